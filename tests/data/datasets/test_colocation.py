"""Datasets of co-located programs."""

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from forerun.data.bundle import Bundle
from forerun.data.collectors.interference.plan import ContentionPlan
from forerun.data.datasets.colocation.cloudprophet_runs import (
    CloudProphetRuns,
    load_buckets,
    relative_speeds,
    speeds,
)
from forerun.data.datasets.colocation.contention import (
    KEYS,
    PLACES,
    TARGETS,
    Contention,
    features,
    windows,
)
from forerun.data.datasets.packaged import raw_files
from forerun.data.errors import MissingData
from tests.contracts.dataset_contract import DatasetContract
from tests.contracts.tiny_cloudprophet import cloudprophet_table
from tests.contracts.tiny_contention import FAULTS
from tests.contracts.tiny_upstream import tiny_upstream
from tests.data.datasets.packaged_contract import PackagedContract
from tests.every import for_every

# Runs next to neighbours come with the package, and their speeds are compared with like.


class TestCloudProphetRuns(PackagedContract):
    cls = CloudProphetRuns
    datasheet_says = "CC BY-SA 4.0"
    reference_table = "runs"

    def test_an_experiment_and_an_application_are_left_out_in_turn(self, bundle, splits):
        assert set(splits) == {
            *(f"leave_one_experiment_out/exp_{name}" for name in "abc"),
            *(f"leave_one_application_out/{name}" for name in ("redis", "web_serving")),
        }
        runs = bundle.table("runs")
        held_out = splits["leave_one_experiment_out/exp_b"].held_out
        assert set(runs["exp"][held_out]) == {"exp_b"}
        assert runs["perf_value"][held_out].notna().all()

    def test_the_packaged_table_is_the_one_that_was_published(self, packaged):
        dataset, raw = CloudProphetRuns(), CloudProphetRuns().packaged()
        assert len(packaged["runs"]) == 2487
        assert packaged["runs"]["perf_value"].isna().sum() == 24
        sums = dataset.documents(raw)["sources"]["checksums"]
        for path, checksum in sums.items():
            assert hashlib.sha256(raw.read(path)).hexdigest() == checksum
        assert set(sums) == {path for path in raw.paths if path.endswith(".parquet")}

    def test_the_licence_is_the_share_alike_one_of_the_datasheet(self):
        assert self.datasheet_says in CloudProphetRuns.licence


def test_speed_is_work_over_time_in_the_unit_of_the_application():
    runs = cloudprophet_table().head(2)
    runs = runs.assign(
        app=["data_serving", "inmem_analytics"],
        load_param=[2000.0, np.nan],
        perf_value=[500.0, 4e4],
    )
    np.testing.assert_allclose(speeds(runs), [4000.0, 0.025])


def test_only_two_neighbouring_loads_share_a_bucket():
    runs = cloudprophet_table().head(4)
    operations = runs.assign(app="data_serving", load_param=[1000.0, 1260.0, 1580.0, 2000.0])
    first, second, third, fourth = load_buckets(operations)
    assert first == second != third == fourth
    users = load_buckets(runs.assign(app="web_serving", load_param=[1.0, 2.0, 3.0, 4.0]))
    assert users.tolist() == [0, 0, 1, 1]
    assert not load_buckets(runs.assign(app="redis")).any()


def test_the_ideal_speed_only_depends_on_reference_rows():
    runs = cloudprophet_table()
    reference = (runs["exp"] != "exp_c").to_numpy()
    found = relative_speeds(runs, reference)
    changed = runs.assign(perf_value=runs["perf_value"].where(reference, runs["perf_value"] * 9.0))
    np.testing.assert_allclose(relative_speeds(changed, reference)[reference], found[reference])
    np.testing.assert_allclose(
        relative_speeds(changed, reference)[~reference], 9.0 * found[~reference]
    )
    nowhere = relative_speeds(runs, np.zeros(len(runs), dtype=bool))
    assert np.isnan(nowhere).all()


def test_runs_without_a_result_are_flagged(tmp_path):
    bundle = Bundle.write(tmp_path / "b", "cloudprophet_runs", {"runs": cloudprophet_table()})
    findings = CloudProphetRuns().flags(bundle)
    assert set(findings["flag"]) == {"unmeasured"}
    assert len(findings) == 3


# Contention rows come along, are split by family, neighbour and mode, and cut to equal length.


class TestContention(DatasetContract):
    cls = Contention

    def test_a_held_out_family_has_no_training_rows_even_isolated_ones(self, bundle, splits):
        runs = bundle.table("runs")
        split = splits["leave_one_family_out/cache"]
        assert set(runs[split.held_out]["victim"]) == {"chase4"}
        assert "cache" not in set(runs[split.train]["family"])
        assert "none" in set(runs[split.train]["neighbour"])
        assert "none" not in set(runs[split.held_out]["neighbour"])

    def test_every_family_neighbour_and_the_mode_are_held_out_in_turn(self, bundle):
        protocols = [split.protocol for split in Contention().splits(bundle)]
        names = ["compute", "cache", "memory", "io", "inference"]
        families = [f"leave_one_family_out/{name}" for name in names]
        neighbours = [f"leave_one_corunner_out/{n}" for n in ("cache", "cpu", "victim:triad")]
        assert sorted(protocols) == sorted([*families, *neighbours, "static_to_dynamic"])

    def test_dynamic_neighbours_are_predicted_from_static_ones(self, bundle):
        runs = bundle.table("runs")
        split = Contention().splits(bundle)[-1]
        assert set(runs[split.train]["mode"]) == {"static"}
        assert set(runs[split.held_out]["mode"]) == {"dynamic"}

    def test_runs_that_failed_are_neither_trained_on_nor_held_out(self, tables, tmp_path):
        runs = tables["runs"].copy()
        runs.loc[3, ["p_cpu", "p_wall"]] = np.nan
        bundle = Bundle.write(tmp_path / "failed", "contention", tables | {"runs": runs})
        for split in Contention().splits(bundle):
            assert not (split.train | split.held_out)[3]

    def test_windows_have_equal_length_for_all_runs(self, bundle):
        runs, samples = bundle.table("runs"), bundle.table("samples")
        window = windows(runs, samples, 1)
        assert window.shape == (len(runs), 1, len(features(samples)))
        inside = samples[samples["phase"] == "inside"].groupby("run").size()
        assert inside.max() > inside.min(), "runs differ in length, windows do not"
        share = windows(runs, samples, 1, ["task.cpu_share"])[:, 0, 0]
        share_known = ~np.isnan(share)
        assert share_known.any()
        np.testing.assert_allclose(share[share_known], runs["p_wall"][share_known], rtol=1e-3)

    def test_a_run_too_short_for_its_window_is_nan_and_not_filled(self, bundle):
        runs, samples = bundle.table("runs"), bundle.table("samples")
        long = windows(runs, samples, 3, ["cpu.user_share"])
        readings = samples[samples["phase"] == "inside"].groupby("run").size()
        readings = readings.reindex(runs["run"], fill_value=0).to_numpy()
        assert ((~np.isnan(long)).sum(axis=(1, 2)) == np.minimum(readings, 3)).all()

    def test_no_feature_reveals_the_duration_of_the_run(self, bundle):
        """A count that is fixed for a run, over its duration, reveals the duration and thus P."""
        runs, samples = bundle.table("runs"), bundle.table("samples")
        wall = runs["wall_s"].to_numpy()
        leaking = windows(runs, samples, 1, ["vmstat.pgfault_per_s"])[:, 0, 0]
        known = ~np.isnan(leaking)
        np.testing.assert_allclose(FAULTS / leaking[known], wall[known], rtol=1e-3)
        chosen = features(samples)
        assert "vmstat.pgfault_per_s" not in chosen
        assert not [name for name in chosen if name.endswith("_per_s")]
        assert not set(chosen) & {*KEYS, *PLACES, *TARGETS, *runs.columns}


@pytest.fixture
def samples(tmp_path):
    return Contention().tidy(tiny_upstream("contention", tmp_path / "upstream"))["samples"]


@for_every(
    "name",
    [
        *("vmstat.pgfault_per_s", "vmstat.thp_fault_alloc_per_s", "stat.processes_per_s"),
        *("stat.ctxt_per_s", "softirq.SCHED_per_s", "interrupt.RES_per_s"),
        *("disk.write_bytes_per_s", "net.sent_bytes_per_s", "cgroup.io.writes_per_s"),
        *("run", "second", "from_s", "to_s", "phase", "gap", "memory.MemFree_mib", "load.1"),
    ],
)
def test_columns_that_may_reveal_duration_or_order_are_not_features(samples, name):
    assert "pressure.cpu.some_share" in features(samples)
    assert name not in features(samples.assign(**{name: 0.0}))


def test_measured_tables_are_written_as_a_bundle_without_a_download(tmp_path, monkeypatch):
    folder = tmp_path / "package"
    raw = tiny_upstream("contention", folder)
    (folder / "README.md").write_text("# as measured\n")
    (folder / "sources.json").write_text(json.dumps({"sessions": []}))
    monkeypatch.setattr(Contention, "packaged", lambda self: raw_files(folder))
    bundle = Contention().pull(folder=tmp_path / "bundle")
    assert bundle.tables() == ("probe", "runs", "samples")
    assert bundle.datasheet == "# as measured\n"
    assert bundle.document("sources") == {"sessions": []}
    assert bundle.facts["source"] == "forerun collect contention"
    assert len(raw.paths) == 3


def test_a_package_without_rows_says_how_to_measure_them(monkeypatch):
    monkeypatch.setattr(Contention, "name", "never_measured")
    with pytest.raises(MissingData, match="origin: forerun collect contention"):
        Contention().packaged()


@pytest.fixture(scope="module")
def measured():
    """Files of the runs that come along, where there are some."""
    try:
        return Contention().packaged()
    except MissingData as error:
        pytest.skip(str(error))


def test_the_packaged_rows_are_valid_contention_runs(measured):
    tables = Contention().tidy(measured)
    Contention().validate(tables)
    assert sum((measured.folder / path).stat().st_size for path in measured.paths) < 5 * 2**20
    runs = tables["runs"]
    alone = runs[(runs["neighbour"] == "none") & (runs["status"] == "ok")]
    assert alone["victim"].value_counts().min() >= 10
    assert runs["family"].nunique() == 5


def test_the_whole_standard_plan_was_carried_out(measured):
    runs = Contention().tidy(measured)["runs"]
    names = ["repeat", "victim", "neighbour", "intensity", "placement", "mode"]
    found = set(runs[names].itertuples(index=False, name=None))
    planned = ContentionPlan.read(Path("standard")).runs()
    lacking = {(r.repeat, r.victim, *dataclasses.astuple(r.state)) for r in planned} - found
    assert not lacking
    assert (runs["status"] == "ok").all()
