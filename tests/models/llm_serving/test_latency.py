"""Latencies of deployments: the contract, Little's law, limits, intervals, few-shot adaptation."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.language_models.weights import LayerFormats
from forerun.data.measurements import Measurements
from forerun.data.query import Operation, Query
from forerun.features.llm_serving.releases import release
from forerun.models.conformal import Intervals, LogQuantiles
from forerun.models.contract import PredictorContract
from forerun.models.limit import Limit
from forerun.models.llm_serving import LlmLatency
from forerun.models.llm_serving.correction import Correction
from forerun.models.llm_serving.domain import EARLIER, MAKER, RELEASE, WIDER_OF_MAKERS, KnownRuns
from tests.features.llm_serving.deployments import (
    dense_model,
    deployment,
    expert_model,
    with_engine,
)

CATALOG = DeviceCatalog.load()
TRAINED, OTHER = ("h100-sxm-80gb", "b200-sxm-180gb"), "a100-sxm-80gb"


def ask(model=None, device=TRAINED[0], **load):
    one = deployment(model, **load)
    return Query(one, CATALOG.get(device), operation=Operation(one.devices))


def training_rows():
    """The closed form of runs of three models, slowed by a factor of each, with noise."""
    rng = np.random.default_rng(0)
    queries, models, deployments, factors = [], [], [], []
    for number, model in enumerate((dense_model(), dense_model(24, 5120), expert_model())):
        for device in TRAINED:
            for tensor in (1, 2, 4):
                for concurrency in (1.0, 4.0, 16.0, 64.0):
                    queries.append(ask(model, device, tensor=tensor, concurrency=concurrency))
                    models.append(str(number))
                    deployments.append(f"{number}-{device}-{tensor}")
                    factors.append(np.exp(0.2 * number + rng.normal(0.0, 0.03)))
    plain = LlmLatency().predict(queries).values
    values = {name: plain[name] * np.array(factors) for name in ("tpot_ms", "ttft_ms")}
    groups = {
        "model": np.array(models),
        "deployment": np.array(deployments),
        "device": np.array([query.device.name for query in queries]),
    }
    return Measurements(queries, values, groups)


ROWS = training_rows()


@cache
def fitted():
    return LlmLatency(bag=1, trees=60).fit(ROWS)


class TestLlmLatency(PredictorContract):
    def make(self):
        return fitted()

    def queries(self):
        return [
            ask(),
            ask(expert_model(), concurrency=32.0, tensor=2),
            ask(requests_per_s=2.0),
            ask(device=OTHER),
        ]


def test_unfitted_it_answers_by_the_closed_form_without_intervals():
    answer = LlmLatency().predict([ask()])
    assert answer.coverage is None
    assert not answer.low
    assert answer.values["tpot_ms"][0] > 0


def test_it_learns_how_much_slower_than_the_closed_form_runs_are():
    plain = LlmLatency().predict(ROWS.queries).values["tpot_ms"]
    ours = fitted().predict(ROWS.queries).values["tpot_ms"]
    error, before = (np.abs(v / ROWS.values["tpot_ms"] - 1).mean() for v in (ours, plain))
    assert error < before / 2


def test_intervals_are_wider_on_another_device():
    answer = fitted().predict([ask(), ask(device=OTHER)])
    ratio = answer.high["tpot_ms"] / answer.low["tpot_ms"]
    assert ratio[1] > ratio[0]
    assert answer.coverage == 0.9


def test_the_upper_bound_of_a_prompt_that_waits_for_none_is_no_farther_than_the_lower() -> None:
    bounds = LogQuantiles({"all": (-0.5, 2.0)})
    model = replace(fitted(), intervals=Intervals(bounds, bounds))
    answer = model.predict([ask(concurrency=c) for c in (1.0, 4.0, 64.0)])
    value, low, high = (side["ttft_ms"] for side in (answer.values, answer.low, answer.high))
    np.testing.assert_allclose(np.log(low / value), -0.5)
    reach = np.log(high / value)
    assert reach[0] < 1.0
    assert reach[0] < reach[1]
    assert reach[2] == pytest.approx(2.0)


def test_intervals_change_gradually_where_many_prompts_start_together() -> None:
    few, many = LogQuantiles({"all": (-0.5, 0.5)}), (-2.0, 2.0)
    bounds = replace(few, bounds={**few.bounds, "ttft_ms vllm, many in flight": many})
    model = replace(fitted(), intervals=Intervals(bounds, bounds))
    answer = model.predict([ask(concurrency=float(c)) for c in np.geomspace(4.0, 256.0, 60)])
    reach = np.log(answer.high["ttft_ms"] / answer.values["ttft_ms"])
    assert reach[0] == pytest.approx(0.5)
    assert reach[-1] == pytest.approx(2.0)
    assert np.diff(reach).min() > -1e-9
    assert np.diff(reach).max() < 0.15


def test_no_estimate_is_withheld_however_wide_its_interval():
    bounds = LogQuantiles({"all": (-3.0, 3.0)})
    wide = replace(fitted(), intervals=Intervals(bounds, bounds)).predict([ask()])[0]
    assert wide.estimates["ttft_ms"].high > 100 * wide.estimates["ttft_ms"].low
    assert not wide.withheld


def test_devices_of_a_maker_without_runs_are_out_of_domain():
    known, other = fitted().predict([ask(device=OTHER), ask(device="mi300x")]).limits
    assert MAKER in other
    assert MAKER not in known


def test_a_release_before_all_measured_ones_may_be_slower_and_is_out_of_domain():
    query = ask(device=OTHER)
    earlier, later, unnamed = (
        replace(query, workload=with_engine(query.deployment, version=own))
        for own in ("0.8.5", "9.0", "")
    )
    answer = fitted().predict([earlier, later, unnamed])
    assert [RELEASE in own for own in answer.limits] == [True, False, False]
    reach = np.log(answer.high["tpot_ms"] / answer.values["tpot_ms"])
    np.testing.assert_allclose(reach, reach[1] + np.array([EARLIER, 0.0, 0.0]))
    (rate,) = {tuple(answer.high["tokens_per_s"] == answer.high["tokens_per_s"][0])}
    assert rate == (True, True, True), "no rate is higher for it"


def test_a_release_after_all_measured_ones_is_said_to_be_later():
    """Names that are no releases, such as nightly builds, are not the last one."""
    queries = [
        replace(own, workload=with_engine(own.deployment, version="nightly-1"))
        for own in ROWS.queries[:1]
    ]
    known = KnownRuns.of([*ROWS.queries, *queries], np.ones(len(ROWS.queries) + 1))
    last = max(ROWS.queries, key=lambda own: release(own.deployment.engine)).deployment.engine
    asked = ask(device=OTHER)
    for version, is_later in ((last.version, False), ("0.99.0", True), ("nightly-2", False)):
        query = replace(asked, workload=with_engine(asked.deployment, version=version))
        found = [str(one) for one in known.limits_at_any_load(query)]
        line = f"{last.name} 0.99.0 is newer than all measured runs ({last.version})"
        assert (line in found) == is_later, version
        assert all(one.severity != "outside" for one in known.limits_at_any_load(query))


@pytest.mark.parametrize("device", ["mi300x", "rtx-4090"])
def test_a_device_whose_own_runs_were_learnt_is_not_said_to_be_unmeasured(device):
    said = (MAKER, Limit("serving was measured on other devices", severity="transfer"))
    queries = [ask(device=device, concurrency=float(n)) for n in range(1, 13)]
    before = fitted().predict(queries)
    assert all(set(said) & set(own) for own in before.limits)
    own = {"tpot_ms": 1.3 * before.values["tpot_ms"], "ttft_ms": before.values["ttft_ms"]}
    after = fitted().adapt(Measurements(queries, own)).predict(queries)
    assert not any(set(said) & set(own) for own in after.limits)
    few = fitted().adapt(Measurements(queries[:1], {n: v[:1] for n, v in own.items()}))
    assert all(set(said) & set(own) for own in few.predict(queries).limits)


def test_no_time_per_token_below_all_measured_ones_is_sure():
    tiny, usual = ask(dense_model(2, 256), tensor=1), ask(device=OTHER)
    shortest = ROWS.column("tpot_ms").min()
    answer = fitted().predict([tiny, usual])
    assert answer.values["tpot_ms"][0] < shortest < answer.high["tpot_ms"][0]
    short = [[one for one in own if "ms per token" in str(one)] for own in answer.limits]
    assert [len(own) for own in short] == [1, 0]
    assert not short[0][0].in_domain


def test_other_makers_have_wider_intervals_but_for_engines_that_were_tried_there():
    def reach(device, engine):
        query = ask(device=device)
        query = replace(query, workload=with_engine(query.deployment, name=engine, version=""))
        found = fitted().predict([query])
        return float(np.log(found.high["tpot_ms"] / found.low["tpot_ms"])[0])

    for engine, factor in (("sglang", WIDER_OF_MAKERS), ("vllm", 1.0)):
        assert reach("mi300x", engine) == pytest.approx(factor * reach(OTHER, engine)), engine


def test_runs_that_name_no_release_make_no_other_run_known():
    unnamed = [ask(expert_model()), ask(expert_model(), OTHER)]
    unnamed = [replace(q, workload=with_engine(q.deployment, version="")) for q in unnamed]
    seconds = ROWS.column("tpot_ms") / 1e3
    known = KnownRuns.of([*ROWS.queries, *unnamed], np.append(seconds, [1.0, 1.0]))
    assert known.campaigns == KnownRuns.of(ROWS.queries, seconds).campaigns
    assert not known.have(unnamed)[0].any()


def test_limits_name_what_the_training_set_lacks():
    lines = {
        "Poisson": ask(requests_per_s=2.0),
        "other devices": ask(device=OTHER),
        "other models": ask(dense_model(12, 2048)),
        "log_input_tokens": ask(input_tokens=60_000.0),
        "faster than": ask(requests_per_s=1e4),
    }
    for line, query in lines.items():
        assert any(line in str(limit) for limit in fitted().predict([query]).limits[0]), line
    inside = fitted().predict([ask(tensor=2, concurrency=16.0)]).limits[0]
    assert all(limit.in_domain for limit in inside)


def test_support_runs_correct_their_device():
    queries = [ask(device=OTHER, concurrency=n) for n in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)] * 2
    before = fitted().predict(queries)
    support = {name: 2.0 * before.values[name] for name in ("tpot_ms", "ttft_ms")}
    adapted = fitted().adapt(Measurements(queries, support))
    ratio = adapted.predict(queries).values["tpot_ms"] / before.values["tpot_ms"]
    assert (ratio > 1.6).all()
    other = adapted.predict([ask()]).values["tpot_ms"] / fitted().predict([ask()]).values["tpot_ms"]
    assert other[0] == 1.0


def adapted_to(queries, factors):
    """The predictor adapted to runs that are slower than predicted by factors of both times."""
    before = fitted().predict(queries).values
    times = {name: before[name] * np.array(factors) for name in ("tpot_ms", "ttft_ms")}
    return fitted().adapt(Measurements(queries, times))


def test_runs_in_which_prompts_queue_hardly_change_the_first_token_elsewhere():
    light, crowded = (ask(device=OTHER, concurrency=n) for n in (2.0, 256.0))
    before = fitted().predict([light]).values["ttft_ms"][0]
    harm, gain = (
        adapted_to(queries, factors).predict([light]).values["ttft_ms"][0] / before
        for queries, factors in (([crowded] * 2 + [light], (30.0, 30.0, 1.0)), ([light] * 3, 1.5))
    )
    assert harm < 1.5
    assert 1.2 < gain < 1.5


def test_the_offset_of_the_first_token_is_one_of_its_service_and_not_of_its_queue():
    light, crowded = (ask(device=OTHER, concurrency=n) for n in (1.0, 256.0))
    adapted = adapted_to([light] * 8, 2.0)
    new, old = (one.predict([light, crowded]).values for one in (adapted, fitted()))
    queue = [one["ttft_ms"] - one["ttft_service_ms"] for one in (new, old)]
    np.testing.assert_allclose(*queue, rtol=1e-9, atol=1e-9)
    gain = new["ttft_service_ms"] / old["ttft_service_ms"]
    assert (gain > 1.2).all()


def test_other_workloads_and_devices_without_a_sheet_are_not_answered():
    cpu = next(device for device in CATALOG if device.kind == "cpu")
    assert fitted().answers(ask())
    assert not fitted().answers(replace(ask(), device=cpu))


def test_a_fit_without_calibration_has_no_intervals():
    assert not LlmLatency(bag=1, trees=5, calibrated=False).fit(ROWS).predict([ask()]).low


def test_first_tokens_of_poisson_arrivals_are_not_corrected_by_closed_loops():
    query = ask(requests_per_s=2.0)
    ours, plain = (one.predict([query]).values["ttft_ms"][0] for one in (fitted(), LlmLatency()))
    assert ours == pytest.approx(plain)
    closed = [one.predict([ask()]).values["ttft_ms"][0] for one in (fitted(), LlmLatency())]
    assert closed[0] != pytest.approx(closed[1])


def test_support_runs_of_one_model_do_not_make_another_model_known():
    queries = [ask(device=OTHER, concurrency=n) for n in 2.0 ** np.arange(0.0, 6.0, 0.5)]
    values = fitted().predict(queries).values
    rows = Measurements(queries, {name: values[name] for name in ("tpot_ms", "ttft_ms")})
    bounds = Intervals(LogQuantiles({"all": (-0.1, 0.1)}), LogQuantiles({"all": (-1.0, 1.0)}))
    adapted = replace(fitted(), intervals=bounds).adapt(rows)
    answer = adapted.predict([ask(device=OTHER), ask(dense_model(12, 2048), device=OTHER)])
    ratio = np.log(answer.high["tpot_ms"] / answer.low["tpot_ms"])
    assert ratio[0] < 0.5
    assert ratio[1] == pytest.approx(2.0)


def test_rates_alone_correct_both_times_of_their_device():
    queries = [ask(device=OTHER, concurrency=n) for n in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)]
    before = fitted().predict(queries).values
    adapted = fitted().adapt(Measurements(queries, {"tokens_per_s": before["tokens_per_s"] / 1.5}))
    after = adapted.predict(queries).values
    for metric in ("tpot_ms", "ttft_service_ms", "request_latency_ms"):
        assert (after[metric] / before[metric] > 1.3).all(), metric


def test_one_run_moves_a_device_less_than_many_runs_that_agree():
    queries = [ask(device=OTHER, concurrency=n) for n in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)]
    before = fitted().predict(queries).values["tpot_ms"]
    one, many = (
        adapted_to(own, 5.0).predict(queries).values["tpot_ms"] / before
        for own in (queries[:1], queries)
    )
    assert (one < 1.5).all()
    assert (many > 2.0).all()


def test_a_device_with_larger_errors_than_any_held_out_has_wider_intervals():
    queries = [ask(device=OTHER, concurrency=n) for n in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)]
    bounds = LogQuantiles({"all": (-0.05, 0.05)})
    predictor = replace(fitted(), intervals=Intervals(bounds, bounds))
    before = predictor.predict(queries).values["tpot_ms"]
    factors = np.array([1.0, 2.0, 1.0, 2.0, 1.0, 2.0])
    times = {"tpot_ms": before * factors}
    answer = predictor.adapt(Measurements(queries, times)).predict(
        [ask(device=OTHER, concurrency=3.0)]
    )
    assert np.log(answer.high["tpot_ms"] / answer.low["tpot_ms"]) > 0.2


def test_a_few_runs_do_not_make_intervals_narrower():
    queries = [ask(device=OTHER, concurrency=n) for n in (1.0, 8.0)]
    bounds = LogQuantiles({"all": (-0.5, 0.5)})
    predictor = replace(fitted(), intervals=Intervals(bounds, bounds))
    before = predictor.predict(queries).values["tpot_ms"]
    answer = predictor.adapt(Measurements(queries, {"tpot_ms": before})).predict(queries)
    assert (np.log(answer.high["tpot_ms"] / answer.low["tpot_ms"]) >= 0.999).all()


def test_intervals_are_wider_over_more_devices_than_any_in_the_training_set():
    bounds = LogQuantiles({"all": (-0.1, 0.1)})
    fixed = replace(fitted(), intervals=Intervals(bounds, bounds))
    answer = fixed.predict([ask(tensor=4), ask(tensor=16)])
    ratio = np.log(answer.high["ttft_ms"] / answer.low["ttft_ms"])
    assert ratio == pytest.approx([0.2, 0.4])


def test_intervals_of_a_held_out_group_come_from_a_fit_that_does_not_know_it(monkeypatch):
    known = []

    def predict(self, rows, known_runs):
        known.append((self.form, bool(known_runs.all()), bool(known_runs.any())))
        return np.zeros(len(rows))

    monkeypatch.setattr(Correction, "predict", predict)
    LlmLatency(trees=2).fit(ROWS)
    assert (0, True, True) in known, "deployments of measured runs"
    assert (0, False, False) in known, "devices"
    assert (1, False, False) in known, "models"


def test_runs_with_drafted_tokens_train_nothing():
    """Answers about drafts follow from runs without, by the ratio of the closed forms."""

    def drafting(query, tokens):
        own = with_engine(query.deployment, draft_tokens=tokens, draft_acceptance=0.7)
        return replace(query, workload=own)

    odd = np.arange(len(ROWS)) % 2 == 1
    mixed = [drafting(own, 3) if at else own for own, at in zip(ROWS.queries, odd, strict=True)]
    fit = LlmLatency(trees=20, calibrated=False).fit
    without, among = fit(ROWS.take(~odd)), fit(replace(ROWS, queries=mixed))
    asked = [*ROWS.queries, *(drafting(own, 2) for own in ROWS.queries)]
    found, other = (own.predict(asked).values["tpot_ms"] for own in (without, among))
    assert found.tolist() == other.tolist()
    plain = LlmLatency().predict(asked).values["tpot_ms"]
    ratios = (found / plain).reshape(2, -1)
    assert ratios[1] == pytest.approx(ratios[0], rel=1e-6)


def test_a_few_slow_runs_do_not_raise_the_others():
    """Twice the time in a fifth of runs that nothing tells apart moves no prediction of theirs."""
    slow = np.arange(len(ROWS)) % 5 == 0
    values = {name: column * np.where(slow, 2.0, 1.0) for name, column in ROWS.values.items()}
    fitted = LlmLatency(trees=60, calibrated=False).fit(replace(ROWS, values=values))
    ratio = fitted.predict(ROWS.queries).values["tpot_ms"] / values["tpot_ms"]
    assert np.median(ratio[~slow]) == pytest.approx(1.0, abs=0.06)


def test_no_time_falls_with_longer_prompts_even_if_runs_seem_to():
    """The runs are ever faster than the closed form, so that their times fall."""
    lengths = (128.0, 256.0, 512.0, 1024.0, 4096.0, 16384.0)
    loads = [(tensor, load) for tensor in (1, 2, 4) for load in (1.0, 8.0, 64.0)]
    queries = [
        ask(tensor=tensor, concurrency=load, input_tokens=given)
        for tensor, load in loads
        for given in lengths
    ]
    plain = LlmLatency().predict(queries).values
    shares = np.tile(np.array(lengths) ** -1.2, len(loads))
    runs = Measurements(queries, {name: shares * plain[name] for name in ("tpot_ms", "ttft_ms")})
    found = LlmLatency(trees=200, calibrated=False).fit(runs).predict(queries).values
    assert np.all(np.abs(found["tpot_ms"] / plain["tpot_ms"] - 1.0) > 0.1)
    for name in ("tpot_ms", "ttft_ms", "request_latency_ms"):
        assert np.all(np.diff(found[name].reshape(-1, len(lengths)), axis=1) >= 0.0), name


def test_boosters_are_believed_of_releases_models_and_devices_that_were_measured():
    """The time per token of all others is the closed form."""
    own, device = ask(expert_model()), ask(expert_model(), OTHER)
    release, unnamed = (
        replace(own, workload=with_engine(own.deployment, version=version))
        for version in ("99.1", "")
    )
    asked = [own, release, unnamed, device]
    plain, found = (one.predict(asked).values["tpot_ms"] for one in (LlmLatency(), fitted()))
    assert found[0] != pytest.approx(plain[0], rel=0.01)
    assert found[1:] == pytest.approx(plain[1:])


def test_a_model_with_a_single_run_is_no_training_set_of_the_calibration():
    rows = ROWS.take(ROWS.group("model") == "0")
    one = ROWS.take(np.flatnonzero(ROWS.group("model") == "2")[:1])
    fitted = LlmLatency(bag=1, trees=20).fit(rows + one)
    answer = fitted.predict([ask(), ask(device=OTHER)])
    assert np.all(answer.low["tpot_ms"] < answer.high["tpot_ms"])


def test_a_format_without_runs_takes_what_the_nearest_one_shows():
    slower = trained_in("fp8", 1.5)
    half, eight = ask(dense_model(), TRAINED[0]), ask(in_format(dense_model(), "fp8"), TRAINED[0])
    plain = LlmLatency().predict([half, eight]).values["tpot_ms"]
    found = slower.predict([half, eight]).values
    assert found["tpot_ms"] == pytest.approx(1.5 * plain, rel=0.1)
    elsewhere = ask(dense_model(), OTHER)
    closed = LlmLatency().predict([elsewhere]).values["tpot_ms"]
    assert slower.predict([elsewhere]).values["tpot_ms"] == pytest.approx(closed)


def test_a_format_with_a_few_runs_says_nothing_about_others():
    """Those with fewer than ten made formats that were left out worse."""
    here = np.flatnonzero([query.device.name == TRAINED[0] for query in ROWS.queries])
    half = ask(dense_model(), TRAINED[0])
    closed = LlmLatency().predict([half]).values["tpot_ms"]
    few, enough = (trained_in("fp8", 1.5, ROWS.take(here[:number])) for number in (9, 10))
    assert few.predict([half]).values["tpot_ms"] == pytest.approx(closed)
    assert enough.predict([half]).values["tpot_ms"] > 1.2 * closed


def in_format(model, name):
    layers = (LayerFormats.all_in(name),) * len(model.layers)
    return replace(model, formats=replace(model.formats, layers=layers))


def trained_in(name, factor, rows=ROWS):
    """Fitted to runs in one format that take so many times the closed form."""
    models = [in_format(dense_model(), name)] * len(rows)
    queries = [
        replace(query, workload=replace(query.deployment, model=model))
        for query, model in zip(rows.queries, models, strict=True)
    ]
    plain = LlmLatency().predict(queries).values
    values = {metric: factor * plain[metric] for metric in ("tpot_ms", "ttft_ms")}
    made = Measurements(queries, values, rows.groups)
    return LlmLatency(trees=100, calibrated=False).fit(made)
