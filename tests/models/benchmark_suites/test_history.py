"""`BenchmarkHistory`: systems with a history, and systems known by their parts only."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from forerun.data.device import Device
from forerun.data.measurements import Measurements
from forerun.data.query import Operation, Query
from forerun.data.workload import Benchmark
from forerun.models.benchmark_suites.history import BenchmarkHistory, _foldings, history_rows
from forerun.models.contract import PredictorContract
from tests.devices import CATALOG

PARTS = {"a100-sxm-80gb": 8.0, "h100-sxm-80gb": 20.0, "l4": 2.0, "a30": 4.0, "t4": 1.0}
MODELS = {"bert-99": (200.0, 150.0), "resnet50": (4000.0, 8.0), "rnnt": (1500.0, 15.0)}


def asked(part="l4", model="bert-99", scenario="Offline", count=4, round_=300.0, **more) -> Query:
    device = CATALOG.get(part) if isinstance(part, str) else part
    settings = {
        "model": model,
        "scenario": scenario,
        "framework": "vendor",
        "submitter": "here",
        "part": device.name,
        "round": round_,
        "gflop": MODELS.get(model, (0.0, 100.0))[1],
        **more,
    }
    workload = Benchmark("mlperf_inference", tuple(sorted(settings.items())))
    return Query(workload, device, operation=Operation(count))


def measured() -> Measurements:
    random = np.random.default_rng(0)
    queries, rate, latency, watts = [], [], [], []
    for round_ in (200.0, 201.0, 300.0):
        for part, speed in PARTS.items():
            for model, (base, _) in MODELS.items():
                for scenario in ("Offline", "SingleStream"):
                    for count in (1, 8):
                        queries.append(asked(part, model, scenario, count, round_))
                        each = base * speed * float(np.exp(random.normal(0, 0.02)))
                        stream = scenario == "SingleStream"
                        rate.append(np.nan if stream else each * count)
                        latency.append(3e3 / each if stream else np.nan)
                        watts.append(np.nan if stream else 200.0 + 30.0 * speed * count)
    columns = {"samples_per_s": rate, "latency_ms": latency, "wall_power_w": watts}
    return Measurements(queries, {name: np.array(column) for name, column in columns.items()})


@lru_cache(maxsize=1)
def fitted() -> BenchmarkHistory:
    return BenchmarkHistory().fit(measured())


class TestBenchmarkHistoryContract(PredictorContract):
    make = staticmethod(fitted)
    training_rows = staticmethod(measured)

    def queries(self):
        return [asked(), asked("a40", "rnnt", "SingleStream"), asked("t4", "gptj-99", count=16)]


class TestAdaptedBenchmarkHistoryContract(PredictorContract):
    def make(self):
        rows = measured().take([0, 3, 9])
        return fitted().adapt(Measurements(rows.queries, {"samples_per_s": np.full(3, 9e3)}))

    def queries(self):
        return [asked(), asked("a100-sxm-80gb"), asked("a100-sxm-80gb", "rnnt", "SingleStream")]


def answer(query: Query, metric: str, predictor: BenchmarkHistory | None = None) -> float:
    return float((predictor or fitted()).predict([query]).values[metric][0])


def test_a_system_with_a_history_is_answered_by_it():
    assert answer(asked(round_=301.0), "samples_per_s") == pytest.approx(4 * 400.0, rel=0.1)
    stream = asked("a30", "rnnt", "SingleStream", 1, 301.0)
    assert answer(stream, "latency_ms") == pytest.approx(3e3 / 6000.0, rel=0.15)


def test_an_unseen_device_is_predicted_from_its_spec_sheet():
    """An A40 lies between a T4 and an H100 in every figure of its sheet."""
    slow, middle, fast = (answer(asked(p), "samples_per_s") for p in ("t4", "a40", "h100-sxm-80gb"))
    assert slow < middle < fast


def test_throughput_and_power_are_of_the_whole_and_energy_is_their_ratio():
    answers = fitted().predict([asked(count=8)])
    rate, watts, energy = (
        answers.values[metric][0]
        for metric in ("samples_per_s", "wall_power_w", "wall_energy_per_sample_j")
    )
    assert energy == pytest.approx(watts / rate)
    assert np.isnan(answers.values["latency_ms"][0])
    assert rate > 5 * answer(asked(count=1), "samples_per_s")


@pytest.mark.parametrize(("scenario", "samples"), [("SingleStream", 1), ("MultiStream", 8)])
def test_energy_of_the_samples_of_a_query_is_power_for_its_latency(scenario, samples):
    """MultiStream asks for eight samples at once (rules of MLPerf Inference)."""
    values = fitted().predict([asked(scenario=scenario)]).values
    energy_j = samples * values["wall_energy_per_sample_j"][0]
    assert energy_j == pytest.approx(values["wall_power_w"][0] * values["latency_ms"][0] / 1e3)


def test_intervals_are_wider_where_there_is_no_history():
    queries = [asked(), asked("a40"), asked("a40", "gptj-99")]
    answers = fitted().predict(queries)
    ratio = answers.high["samples_per_s"] / answers.low["samples_per_s"]
    assert ratio[0] < min(ratio[1:])


def test_limits_say_what_was_never_seen():
    answers = fitted().predict([asked(), asked("a40", "gptj-99", count=64, round_=500.0)])
    assert answers.limits[0] == ()
    text = "; ".join(map(str, answers.limits[1]))
    for part in ("model gptj", "this device", "64 devices", "over a year"):
        assert part in text


def test_a_few_rows_of_a_device_move_its_answers_and_no_others():
    black_box = Device(name="atom", vendor="rbln", kind="npu")
    rows = Measurements([asked(black_box, count=1)], {"samples_per_s": np.array([5000.0])})
    adapted = fitted().adapt(rows)
    near = abs(np.log(answer(asked(black_box, count=1), "samples_per_s", adapted) / 5000.0))
    far = abs(np.log(answer(asked(black_box, count=1), "samples_per_s") / 5000.0))
    assert near < 0.5 * far
    other = asked("h100-sxm-80gb", "rnnt", submitter="there")
    assert answer(other, "samples_per_s", adapted) == pytest.approx(
        answer(other, "samples_per_s"), rel=1e-6
    )


def test_other_suites_are_not_answered():
    query = asked()
    assert fitted().answers(query)
    assert not fitted().answers(replace(query, workload=Benchmark("stream", ())))


def test_a_round_is_held_out_of_the_rounds_before_it_and_a_device_of_all_other_devices():
    rows = history_rows(measured().queries)
    times, devices = rows.numbers["time"], rows.keys["device"]
    late, by_device = _foldings(rows, 0)[:2], _foldings(rows, 0)[2:]
    for number, (train, held) in enumerate(late, 1):
        assert set(times[held]) == {np.unique(times)[number]}
        assert set(times[train]) == set(np.unique(times)[:number])
    for train, held in by_device:
        assert set(devices[train]) == set(devices) - set(devices[held])
    assert (np.sum([held for _, held in by_device], axis=0) == 1).all()
