"""Measure, verify, collect and adapt on this machine; no test depends on how fast it is."""

import json

import pytest

import forerun
from forerun.data.collectors.system import host as other_load
from forerun.data.collectors.system.nvml import Sample
from forerun.data.measurement import read_measurements
from forerun.models.prediction import Estimate
from forerun.service.answers import verification
from forerun.service.python.own_measurements import measuring
from forerun.service.python.own_measurements.verifying import Compared
from tests.service.conftest import linear_row

ROWS = [linear_row(size, 0.001 * size) for size in (256, 512, 1024, 2048, 4096, 8192)]


def latency_ms(batch_size):
    """A time that is a few times what is predicted for the tiny network."""
    return 0.03 * (1 + 0.01 * batch_size)


class Steady:
    """Measures the same as always, in place of a processor."""

    def __init__(self, device, trials, how):
        self.device, self.how = device, how

    def available(self):
        return None

    def about(self):
        return {"device": self.device, "threads": self.how.threads}

    def measure(self, trial):
        assert trial.subject.shapes == {"x": (trial.batch_size, 64)}
        row = {"status": "ok", "latency_ms": latency_ms(trial.batch_size), "spread": 0.01}
        return row | {"fastest_ms": 0.4, "repeats": 9, "window_s": 1.0, "disturbed": False}


@pytest.fixture
def steady(monkeypatch):
    monkeypatch.setattr(verification, "CpuCollector", Steady)
    sheet = forerun.devices()["epyc-7763"].model_copy(
        update={"name": "my-cpu", "aliases": (), "title": "mine"}
    )
    monkeypatch.setattr(verification, "this_cpu", lambda name: sheet)


def test_verify_shows_the_ratio_before_and_after_adapting(steady, tiny):
    found = forerun.verify(tiny, batch_sizes=[1, 4, 16])
    latencies = [row for row in found if row.metric == "latency_ms"]
    assert [row.batch_size for row in latencies] == [1, 4, 16]
    assert [row.measured for row in latencies] == [latency_ms(n) for n in (1, 4, 16)]
    for row in latencies:
        assert row.before.ratio == pytest.approx(row.measured / row.before.value)
        assert row.before.inside == (row.before.low <= row.measured <= row.before.high)
        assert abs(row.after.ratio - 1) < abs(row.before.ratio - 1)
    threads = found.measurements[0].software.threads
    predicted = forerun.predict(tiny, device=found.sheet, batch_size=4, threads=threads)
    assert latencies[1].before.value == pytest.approx(predicted.latency_ms.value)
    assert "my-cpu" not in forerun.devices().names(), "nothing is stored without adapt"


def test_one_run_alone_has_nothing_to_adapt_to(steady, tiny):
    (row,) = forerun.verify(tiny)
    assert row.after is None
    assert "not known" in str(forerun.verify(tiny))


def test_answers_take_several_verifications_into_account(steady, tiny):
    forerun.verify(tiny, batch_sizes=[1]).adapt()
    found = forerun.verify(tiny, batch_sizes=[4, 8])
    assert "my-cpu" in forerun.devices().names()
    before = forerun.predict(tiny, device="my-cpu", batch_size=4).latency_ms
    adapted = found.adapt()
    assert (adapted.rows, adapted.rows_in_use) == (2, 3)
    after = forerun.predict(tiny, device="my-cpu", batch_size=4).latency_ms
    assert abs(after.value - latency_ms(4)) < abs(before.value - latency_ms(4))
    four = forerun.verify(tiny, batch_sizes=[4, 8]).results[0]
    assert four.before == found.results[0].before, "without measurements of this machine"
    adapted.undo()
    assert forerun.predict(tiny, device="my-cpu", batch_size=4).latency_ms == before


def test_a_verification_adapts_by_itself(steady, tiny):
    found = forerun.verify(tiny, batch_sizes=[1, 4, 16])
    adapted = found.adapt()
    assert adapted.device == "my-cpu"
    assert adapted.errors["latency_ms"].mape_after < adapted.errors["latency_ms"].mape_before
    assert "3 measurements of my-cpu are in use" in str(adapted)
    assert adapted.to_pandas()["metric"].tolist() == ["latency_ms"]


def test_what_cannot_be_verified_is_refused(steady, tiny, monkeypatch):
    with pytest.raises(forerun.InputError, match="give numbers from 1"):
        forerun.verify(tiny, batch_sizes=[0])
    with pytest.raises(forerun.InputError, match="l4 is a gpu"):
        forerun.verify(tiny, device="l4")
    failed = {"status": "failed", "reason": "no kernel"}
    monkeypatch.setattr(Steady, "measure", lambda self, trial: failed)
    with pytest.raises(forerun.InputError, match="cannot be run here at batch size 1: no kernel"):
        forerun.verify(tiny)


@pytest.fixture
def hasty(monkeypatch):
    """Other tests run on this machine at the same time: nothing waits until they are done."""
    monkeypatch.setattr(other_load.QuietWait, "wait", lambda self: None)


@pytest.mark.slow
@pytest.mark.usefixtures("hasty")
def test_verify_runs_the_model_on_this_machine(tiny):
    found = forerun.verify(tiny, batch_sizes=[2], seconds=0.02, threads=1)
    (latency,) = [row for row in found if row.metric == "latency_ms"]
    assert latency.measured > 0
    assert found.measurements[0].software.threads == 1
    assert found.measurements[0].workload.batch_size == 2
    assert found.to_dict()["results"][0]["measured"] > 0


def test_a_value_at_the_end_of_the_interval_is_inside():
    predicted = Estimate(2.0, 1.0, 4.0, 0.9)
    assert Compared.of(predicted, 4.0).inside
    assert not Compared.of(predicted, 4.01).inside
    assert Compared.of(predicted, 4.0).ratio == 2.0
    assert Compared.of(Estimate(2.0), 4.0).inside is None
    assert Compared.of(None, 4.0) is None


def test_a_block_is_measured_and_compared(steady, tiny, monkeypatch):
    clock = iter([0.0, 0.0, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 9.0])
    monkeypatch.setattr(measuring.time, "perf_counter", lambda: next(clock, 10.0))
    monkeypatch.setattr(measuring, "_Sampler", NoSampler)
    done = []
    with forerun.measure("step", model=tiny, batch_size=4, runtime="onnxruntime") as step:
        for number in step.repeat(2, warm_up=1):
            done.append(number)
    assert done == [-1, 0, 1]
    assert len(step.runs_s) == 2
    assert step.latency_ms == pytest.approx(500.0)
    predicted = step.predicted.latency_ms
    assert step.ratio() == pytest.approx(500.0 / predicted.value)
    assert step.inside() is (predicted.low <= 500.0 <= predicted.high)
    assert "2 runs" in str(step)


def test_without_a_loop_the_block_is_one_run_and_without_a_model_nothing_is_predicted():
    with forerun.measure("block") as block:
        pass
    assert block.latency_ms >= 0
    assert len(block.samples) >= 2
    assert block.predicted is None
    assert block.ratio() is None
    assert "not predicted: no model was named" in str(block)
    with pytest.raises(forerun.InputError, match="name it by model="):
        block.measurements  # noqa: B018


def test_an_error_in_the_block_is_not_hidden(tiny):
    with pytest.raises(ZeroDivisionError), forerun.measure("bad", model=tiny) as bad:
        1 / 0  # noqa: B018
    with pytest.raises(forerun.InputError, match="has not ended"):
        bad.latency_ms  # noqa: B018


def test_a_measured_block_is_a_measurement_for_adapting(steady, tiny):
    with forerun.measure("step", model=tiny, batch_size=4) as step:
        for _ in step.repeat(3):
            pass
    (row,) = step.measurements
    assert row.workload.batch_size == 4
    assert row.metrics["latency_ms"] == step.latency_ms
    assert row.workload.graph["operators"]
    with pytest.raises(forerun.InputError, match="at least one run must count"):
        next(step.repeat(0))


def test_power_and_memory_of_a_gpu_are_sampled(tiny, monkeypatch):
    class FakeGpu:
        def sample(self):
            return Sample(120.0, None, None, None, 0.5, None)

        def used_mib(self):
            return 900.0

    monkeypatch.setattr(measuring, "_sampled_gpu", lambda device, index: FakeGpu())
    with forerun.measure("step", model=tiny, device="l4") as step:
        pass
    assert step.metrics["power_w"] == 120.0
    assert step.metrics["peak_memory_mib"] == 900.0
    first, last = step.samples[0], step.samples[-1]
    assert (first.gpu_utilisation, first.gpu_memory_mib, first.gpu_power_w) == (0.5, 900.0, 120.0)
    assert first.time_s < last.time_s
    assert step.ratio("power_w") == pytest.approx(120.0 / step.predicted.power_w.value)


def test_a_gpu_that_is_asked_for_must_be_there(monkeypatch):
    monkeypatch.setattr(measuring.Nvml, "visible", classmethod(lambda cls, index: "no driver"))
    with pytest.raises(forerun.InputError, match="gpu 0 cannot be read: no driver"):
        forerun.measure("step", gpu=0)


def test_adapt_takes_lists_tables_and_files(tmp_path):
    adapted = forerun.adapt(ROWS, device="l4")
    assert (adapted.rows, adapted.rows_in_use, adapted.left_out) == (6, 6, 0)
    adapted.undo()
    file = tmp_path / "rows.json"
    file.write_text(json.dumps({"measurements": ROWS}))
    assert forerun.adapt(file, device="l4").rows == 6
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "workload": [json.dumps(row["workload"]["operator"]) for row in ROWS],
            "kind": "kernel",
            "device": "t4",
            "status": "ok",
            "precision": "fp32",
            "latency_ms": [row["metrics"]["latency_ms"] for row in ROWS],
        }
    )
    assert forerun.adapt(frame, device="t4").rows == 6


def test_adapt_registers_a_sheet_first(tmp_path):
    sheet = forerun.devices()["l4"].model_copy(update={"name": "own", "aliases": ()})
    file = tmp_path / "own.json"
    file.write_text(sheet.model_dump_json(exclude_none=True, exclude={"title", "origin"}))
    adapted = forerun.adapt(ROWS, device="own", sheet=file)
    assert adapted.device == "own"
    assert "own" in forerun.devices().names()
    with pytest.raises(forerun.InputError, match=r"No folder gone"):
        forerun.adapt(ROWS, device="own", graphs="gone")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "gpu", "quick": True}, "are about processors"),
        ({"quick": True, "plan": "plan.yaml"}, "Give quick or plan, not both"),
        ({"plan": "gone.yaml"}, "No plan gone.yaml"),
    ],
)
def test_options_of_a_collection_that_contradict_each_other_are_refused(options, message, tmp_path):
    with pytest.raises(forerun.InputError, match=message):
        forerun.collect(tmp_path / "rows.csv", **options)


@pytest.mark.slow
@pytest.mark.usefixtures("hasty")
def test_collect_measures_the_plan_into_a_table(tiny, tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "budget_minutes: 0.5\nwindow_s: 0.02\nreference_networks: false\nonnx_files: [tiny.onnx]\n"
    )
    message = []
    found = forerun.collect(tmp_path / "rows.csv", plan=plan, threads=1, report=message.append)
    assert (found.rows, found.device) == (1, "my-cpu")
    assert found.median_spread >= 0
    assert read_measurements(found.table)["status"].tolist() == ["ok"]
    assert any("my-cpu is registered" in line for line in message)
    assert "1 measurements of my-cpu" in str(found)
    again = forerun.collect(tmp_path / "rows.csv", plan=plan, threads=1)
    assert again.rows == 1


class NoSampler:
    """Takes no samples, so that a clock of a test is read by the block alone."""

    def __init__(self, gpu):
        pass

    def start(self):
        pass

    def stop(self):
        return ()


OBSERVED = [linear_row(size, 0.001 * size) for size in range(256, 6_400, 256)]


def test_observations_are_compared_reported_and_taken_back():
    before = forerun.devices()["l4"].name
    made = forerun.observe(OBSERVED, device=before)
    assert (made.device, made.rows, made.judged, made.left_out) == (
        "l4",
        len(OBSERVED),
        len(OBSERVED),
        0,
    )
    assert made.is_new
    assert made.errors["latency_ms"].rows == len(OBSERVED)
    again = forerun.observe(OBSERVED, device="l4")
    assert (again.set_id, again.is_new) == (made.set_id, False)
    report = forerun.drift("l4")
    assert report.alarms == ()
    (row,) = report.records()
    assert (row["metric"], row["device"], row["rows"]) == ("latency_ms", "l4", len(OBSERVED))
    assert row["live_mape"] == pytest.approx(made.errors["latency_ms"].mape)
    assert "no lasting change" in str(report)
    assert "have an answer" in str(made)
    (record,) = made.records()
    assert record["metric"] == "latency_ms"
    made.undo()
    assert forerun.drift().report.observations == {}


def test_an_unknown_device_and_a_wrong_value_are_refused():
    with pytest.raises(forerun.InputError, match="No device named 'l5'"):
        forerun.drift("l5")
    with pytest.raises(forerun.InputError, match="measurement 0"):
        forerun.observe([linear_row(64, -1.0)], device="l4")
