"""Serving: the contract, energy consistent with power and rate, limits, few-shot adaptation."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.data.device import DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.data.query import Operation, Query
from forerun.data.workload import Diffusion, LlmServing
from forerun.features.serving_features import cycle_bound, outputs
from forerun.models.contract import PredictorContract
from forerun.models.serving.features import gives_configuration, without_configuration
from forerun.models.serving.power import ServingPower

CATALOG = DeviceCatalog.load()


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
    def make(self):
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
        truth = other.values[metric]
        known = ~np.isnan(truth)
        inside = (said.low[metric] <= truth) & (truth <= said.high[metric])
        assert inside[known].mean() > 0.6


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
        (ask(chat(70.0)), "memory: weights take 130 GiB"),
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
