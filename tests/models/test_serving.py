"""Power of serving, and adaptation to measured runs."""

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import RBF

from forerun.data.datasets.memory.published_memory import PublishedMemory
from forerun.data.device import DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.data.query import Operation, Query
from forerun.data.workload import Diffusion, LlmServing
from forerun.features.serving_features import cycle_bound, outputs
from forerun.models.artifact.sealed_folder import bundled
from forerun.models.contract import PredictorContract
from forerun.models.domain.feature_range import KnownDevices
from forerun.models.serving.features import (
    LENGTH_SCALES,
    ServingRows,
    gives_configuration,
    without_configuration,
)
from forerun.models.serving.power import ServingPower
from forerun.models.serving.support_residuals import (
    NEW_DEVICE_DEVIATION,
    NOISE_DEVIATION,
    SMOOTH_DEVIATION,
    TRAINED_DEVICE_DEVIATION,
    SupportResiduals,
)
from tests.devices import CATALOG
from tests.models.gaussian_process.reference_processes import (
    OnColumns,
    SameCode,
    constant,
    reference,
)
from tests.models.judged import inside

# Serving: the contract, energy consistent with power and rate, limits, few-shot adaptation.


def ask(workload, device="h100", count=1):
    return Query(workload, CATALOG.get(device), operation=Operation(count))


def chat(billions=8.0, sequences=16, **more):
    return LlmServing(billions * 1e9, billions * 1e9, "chat", sequences, **more)


def draw(billions=2.0, batch=1, **more):
    return Diffusion(billions * 1e9, 1024, 1024, steps=20, batch_size=batch, **more)


def training_rows(seed=0):
    """Runs of twelve models on two devices: the bound times a random effect of each model."""
    rng = np.random.default_rng(seed)
    queries, models, power, seconds = [], [], [], []
    for number, billions in enumerate((1, 3, 8, 14, 32, 70)):
        level = rng.normal(0.0, 0.1)
        for device in ("h100", "b200"):
            for count in (1, 4):
                for size in (1, 8, 64):
                    for workload in (chat(billions, 8 * size), draw(billions / 5, size)):
                        query = ask(workload, device, count)
                        queries.append(query)
                        models.append(f"{workload.kind}-{number}")
                        seconds.append(cycle_bound(query).seconds * np.exp(1.0 + level))
                        power.append(query.device.tdp_w * (0.4 + 0.08 * np.log(size) + level / 3))
    seconds, power = np.array(seconds), np.array(power)
    gives = np.array([outputs(q.workload) for q in queries])
    language = np.array([q.workload.kind == "llm_serving" for q in queries])
    values = {
        "power_w": power,
        "tokens_per_s": np.where(language, gives / seconds, np.nan),
        "latency_ms": np.where(language, np.nan, 1e3 * seconds),
    }
    groups = {
        "model": np.array(models),
        "device": np.array([q.device.name for q in queries]),
    }
    return Measurements(queries, values, groups)


ROWS = training_rows()
FEW = ROWS.take(np.array([name[-1] in "134" for name in ROWS.groups["model"]]))


@cache
def fitted():
    return ServingPower(trees=60, bag=1).fit(ROWS)


class TestServingPower(PredictorContract):
    @staticmethod
    @cache
    def make():
        return ServingPower(trees=4, bag=1).fit(FEW)

    def training_rows(self):
        return FEW

    def queries(self):
        return [
            ask(chat(13.0), "b200", 2),
            ask(draw(5.0, 2)),
            ask(chat(20.0, 100)),
            ask(replace(chat(20.0, 100), cache_bytes_per_token=2e5)),
            ask(draw(1.0, 8), "a100-sxm-80gb", 4),
        ]


@settings(max_examples=30)
@given(
    st.sampled_from(["h100", "b200", "h200"]),
    st.sampled_from([1, 2, 4, 8]),
    st.floats(0.5, 900.0),
    st.integers(1, 5000),
)
def test_energy_is_power_times_devices_over_rate(device, count, billions, sequences):
    queries = [ask(chat(billions, sequences), device, count), ask(draw(billions), device, count)]
    said = fitted().predict(queries).values
    token = said["power_w"][0] * count / said["tokens_per_s"][0]
    assert said["energy_per_token_j"][0] == pytest.approx(token)
    picture = said["power_w"][1] * count / said["samples_per_s"][1]
    assert said["energy_per_sample_j"][1] == pytest.approx(picture)
    assert said["energy_j"][1] == pytest.approx(said["power_w"][1] * said["latency_ms"][1] / 1e3)
    assert np.isnan(said["latency_ms"][0])
    assert np.isnan(said["tokens_per_s"][1])
    assert (said["power_w"] <= 1.05 * queries[0].device.tdp_w).all()


def test_models_of_another_draw_mostly_lie_inside_their_intervals():
    other = training_rows(seed=7)
    said = fitted().predict(other.queries)
    for metric in ("power_w", "tokens_per_s", "latency_ms"):
        known = ~np.isnan(other.values[metric])
        assert inside(said, other, metric)[known].mean() > 0.6


def test_facts_of_a_configuration_are_optional_and_change_the_answer():
    whole = replace(chat(20.0), total_parameters=1e11, architecture="experts")
    configured = replace(whole, experts=128, experts_per_token=1, cache_bytes_per_token=1e5)
    bare, full = ask(whole), ask(configured)
    assert (gives_configuration(bare), gives_configuration(full)) == (False, True)
    assert without_configuration(full) == bare
    rate = fitted().predict([bare, full]).values["tokens_per_s"]
    assert rate[0] != rate[1]
    picture = ask(draw(passes=1, pixels_per_token=32))
    assert gives_configuration(picture)
    assert without_configuration(picture) == ask(draw())


def test_another_device_is_out_of_domain_and_wide():
    near, far = fitted().predict([ask(chat()), ask(chat(), "a100-sxm-80gb")])
    assert near.in_domain
    assert any("other devices" in str(line) for line in far.limits)
    ends = far.estimates["power_w"]
    assert ends.low is not None
    assert ends.high / ends.low >= 4.0 * (1 - 1e-9)


@pytest.mark.parametrize(
    ("query", "word"),
    [
        (ask(chat(5000.0), count=4), "log_total_parameters"),
        (ask(replace(chat(), request="code")), "code request"),
        (ask(replace(chat(), architecture="hybrid")), "hybrid"),
        (replace(ask(chat()), operation=Operation(1, 300.0)), "power limit"),
        (ask(draw(2.0, 4000)), "log_batch"),
    ],
)
def test_what_training_did_not_see_is_named(query, word):
    (said,) = [fitted().predict([query])[0]]
    assert any(word in str(line) for line in said.limits)
    assert not said.in_domain


def test_runs_of_a_new_device_move_its_answers_there_and_nowhere_else():
    device = "a100-sxm-80gb"
    runs = [ask(chat(b, s), device, 2) for b in (8.0, 14.0, 32.0) for s in (8, 32, 64, 256)]
    plain = fitted().predict(runs).values
    values = {"power_w": 1.3 * plain["power_w"], "tokens_per_s": 0.5 * plain["tokens_per_s"]}
    adapted = fitted().adapt(Measurements(runs, values))
    asked = [ask(chat(8.0, 128), device, 2), ask(chat(8.0, 128), "h100", 2)]
    before, after = fitted().predict(asked), adapted.predict(asked)
    ratio = after.values["power_w"] / before.values["power_w"]
    assert 1.15 < ratio[0] <= 1.3
    assert ratio[1] < 1.12
    width = [x.high["power_w"][0] / x.low["power_w"][0] for x in (before, after)]
    assert width[1] < width[0]
    assert not any("other devices" in str(line) for line in after.limits[0])


def test_three_runs_of_a_model_tell_about_its_other_settings_and_little_about_other_models():
    runs = [ask(chat(20.0, s), "h100", n) for s, n in ((8, 1), (64, 2), (256, 4))]
    plain = fitted().predict(runs).values
    values = {"power_w": plain["power_w"], "tokens_per_s": 0.6 * plain["tokens_per_s"]}
    adapted = fitted().adapt(Measurements(runs, values))
    asked = [ask(chat(20.0, 32), "b200", 2), ask(chat(3.0, 32), "h100", 2)]
    before, after = (p.predict(asked).values["tokens_per_s"] for p in (fitted(), adapted))
    ratio = after / before
    assert ratio[0] < 0.75
    assert 0.9 < ratio[1] <= 1.0 + 1e-9
    drawn = ask(draw(2.0))
    assert (
        adapted.predict([drawn]).values["latency_ms"]
        == fitted().predict([drawn]).values["latency_ms"]
    )


def test_it_answers_generative_models_on_gpus_with_a_sheet_alone():
    assert not ServingPower().answers(ask(chat()))
    assert not fitted().answers(replace(ask(chat()), device=CATALOG.get("i9-10940x")))
    assert ServingPower().fit(ROWS.take(np.zeros(0, dtype=np.intp))).fits == {}


# Few-shot corrections are posterior means of a Gaussian process, as scikit-learn computes them.


TRAINED, NEW, OTHER = (CATALOG.get(name) for name in ("h100", "b200", "a100-sxm-80gb"))


def runs(devices, seed, kind="llm_serving"):
    random = np.random.default_rng(seed)
    queries = []
    for device in devices:
        billions, size = float(random.uniform(1, 70)), int(random.integers(1, 200))
        chat = LlmServing(billions * 1e9, billions * 1e9, "chat", size)
        picture = Diffusion(billions * 1e9, 1024, 1024, steps=20, batch_size=size)
        workload = chat if kind == "llm_serving" else picture
        queries.append(Query(workload, device, operation=Operation(int(random.integers(1, 8)))))
    return ServingRows.of(kind, queries)


@pytest.mark.parametrize("kind", ["llm_serving", "diffusion"])
@pytest.mark.parametrize("device", [TRAINED, NEW])
def test_a_correction_and_what_stays_unsure_are_those_of_scikit_learns_process(kind, device):
    measured, asked = runs([device] * 8, 0, kind), runs([device] * 5 + [OTHER], 1, kind)
    errors = np.random.default_rng(2).normal(0.2, 0.3, (8, 2))
    known = KnownDevices.of([TRAINED])
    few = SupportResiduals.of(measured, errors, [device] * 8, known)
    added, left = few.correction(asked, [device] * 5 + [OTHER])
    assert added.shape == left.shape == (6, 2)
    level = TRAINED_DEVICE_DEVIATION if device is TRAINED else NEW_DEVICE_DEVIATION
    rows = np.column_stack([measured.points(LENGTH_SCALES["support"][kind]), np.zeros(8)])
    points = np.column_stack([asked.points(LENGTH_SCALES["support"][kind]), [0.0] * 5 + [1.0]])
    width = rows.shape[1] - 1
    for target, (smooth, noise) in enumerate(zip(SMOOTH_DEVIATION, NOISE_DEVIATION, strict=True)):
        curve = OnColumns(RBF(1.0, "fixed"), 0, width)
        kernel = constant(level**2) * SameCode(width) + constant(smooth**2) * curve
        process = reference(kernel, rows, errors[:, target], noise**2)
        mean, deviation = process.predict(points, return_std=True)
        np.testing.assert_allclose(added[:, target], mean, atol=1e-8)
        before = level**2 + smooth**2
        wanted = np.sqrt((deviation**2 + noise**2) / (before + noise**2))
        np.testing.assert_allclose(left[:5, target], wanted[:5], atol=1e-6)
    assert (left <= 1.0 + 1e-9).all()


# Diffusion with U-Nets, described by the tokens that have as many products: published times.
#
# The times of open-muse (RTX 4090 and A100) train nothing; their memory calibrates `memory`.


DEVICES = {"a100": "a100-sxm-80gb", "4090": "rtx-4090"}
U_NETS = {
    "sdxl": (2.567e9, 30),
    "ssd_1b": (1.331e9, 27),
    "stable_diffusion_1_5": (0.8595e9, 26),
}
"""Model -> weights of its U-Net, pixels of a token that gives as many products."""


def asked_and_measured():
    """Queries about the rows, with and without their tokens, and the measured milliseconds."""
    catalog, source = DeviceCatalog.load(), PublishedMemory()
    table = source.tidy(source.packaged())["table"]
    rows = table[table["source_repo"].str.endswith("open-muse") & table["model"].isin(U_NETS)]
    described, usual = [], []
    for row in rows.to_dict("records"):
        weights, pixels = U_NETS[row["model"]]
        side, steps = int(row["seq_or_resolution"]), re.search(r"steps (\d+)", row["config"])
        picture = Diffusion(
            weights, side, side, 1, int(steps[1]), int(row["batch"]), "fp16", passes=2
        )
        device = catalog.get(DEVICES[row["gpu_as_written"]])
        described.append(Query(replace(picture, pixels_per_token=pixels), device))
        usual.append(Query(picture, device))
    return described, usual, rows["time_printed"].to_numpy(dtype=np.float64)


@pytest.fixture(scope="module")
def serving():
    [own] = [part for part in bundled().predictor.parts if isinstance(part, ServingPower)]
    return own


def test_intervals_hold_published_times_of_u_nets(serving):
    described, usual, measured = asked_and_measured()
    assert len(measured) == 48
    known, unknown = serving.predict(described), serving.predict(usual)
    inside = (known.low["latency_ms"] <= measured) & (measured <= known.high["latency_ms"])
    assert inside.mean() >= 0.85
    errors = [np.abs(np.log(p.values["latency_ms"] / measured)) for p in (known, unknown)]
    assert np.median(errors[0]) < 0.6 < 1.0 < np.median(errors[1])
