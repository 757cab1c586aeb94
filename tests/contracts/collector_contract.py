"""What every collector promises, written once; a test says how to make one that is quick."""

import pytest
import typer

from forerun.data.collectors.runner.collector import Collector, collect
from forerun.data.collectors.runner.journal import KEY, Journal
from forerun.data.measurement import read_measurements, tidy_measurements, write_measurements
from forerun.service.cli.collect import group


class CollectorContract:
    """Subclass it, set `cls`, and say how to make one with at least two quick trials."""

    cls: type[Collector]

    def make(self) -> Collector:
        raise NotImplementedError

    @pytest.fixture
    def journal(self, tmp_path):
        return Journal.for_table(tmp_path / "table.parquet")

    def test_it_has_a_command(self):
        collect = typer.main.get_command(group.app)
        assert collect.get_command(None, self.cls.name).help

    def test_it_can_measure_or_says_why_in_one_line(self):
        why = self.make().available()
        assert why is None or (why and "\n" not in why)

    def test_its_plan_names_each_trial_once_and_the_same_each_time(self):
        plan = self.make().plan()
        assert len({trial.key for trial in plan}) == len(plan) >= 2
        assert [t.key for t in plan] == [t.key for t in self.make().plan()]

    def test_what_it_collects_is_a_table_of_measurements(self, journal, tmp_path):
        collector = self.make()
        done = collect(collector, journal, 300)
        assert (done.measured, done.left) == (len(collector.plan()), 0)
        write_measurements(journal.frame().drop(columns=KEY), tmp_path / "table.parquet")
        table = read_measurements(tmp_path / "table.parquet")
        assert (table["status"] == "ok").all(), table.get("reason")
        for name in ("latency_ms", "spread", "window_s", "repeats", "framework_version"):
            assert table[name].notna().all(), name
        assert table["device"].nunique() == 1

    def test_what_was_not_measured_has_a_reason_and_is_null(self):
        collector = self.make()
        row = collector.measure(collector.plan()[0])
        assert ("energy_j" in row) != ("energy_reason" in row)
        assert 0 not in [row.get(name) for name in ("energy_j", "power_w", "peak_memory_mib")]

    def test_interrupted_midway_it_leaves_a_table_and_goes_on(self, journal):
        collector = self.make()

        def interrupt(*_):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            collect(collector, journal, 300, report=interrupt)
        assert len(tidy_measurements(journal.frame(), "the journal")) == 1
        done = collect(self.make(), journal, 300)
        assert (done.resumed, done.measured) == (1, len(collector.plan()) - 1)
        assert len(tidy_measurements(journal.frame(), "the journal")) == len(collector.plan())

    def test_without_time_it_begins_nothing(self, journal):
        done = collect(self.make(), journal, 0.0)
        assert (done.measured, done.left) == (0, len(self.make().plan()))
