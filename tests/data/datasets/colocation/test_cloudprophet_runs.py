"""Runs next to neighbours come with the package, and their speeds are compared with like."""

import hashlib

import numpy as np
import pandas as pd
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.colocation.cloudprophet_runs import (
    CloudProphetRuns,
    load_buckets,
    relative_speeds,
    speeds,
)
from tests.contracts.dataset_contract import DatasetContract
from tests.contracts.tiny_cloudprophet import cloudprophet_table


class TestCloudProphetRuns(DatasetContract):
    cls = CloudProphetRuns

    def test_an_experiment_and_an_application_are_left_out_in_turn(self, bundle):
        splits = {s.protocol: s for s in CloudProphetRuns().splits(bundle)}
        assert set(splits) == {
            *(f"leave_one_experiment_out/exp_{name}" for name in "abc"),
            *(f"leave_one_application_out/{name}" for name in ("redis", "web_serving")),
        }
        runs = bundle.table("runs")
        held_out = splits["leave_one_experiment_out/exp_b"].held_out
        assert set(runs["exp"][held_out]) == {"exp_b"}
        assert runs["perf_value"][held_out].notna().all()

    def test_the_packaged_table_is_valid_and_is_the_one_that_was_published(self):
        dataset = CloudProphetRuns()
        raw = dataset.packaged()
        tables = dataset.tidy(raw)
        dataset.validate(tables)
        assert len(tables["runs"]) == 2487
        assert tables["runs"]["perf_value"].isna().sum() == 24
        sums = dataset.documents(raw)["sources"]["checksums"]
        for path, checksum in sums.items():
            assert hashlib.sha256(raw.read(path)).hexdigest() == checksum
        assert set(sums) == {path for path in raw.paths if path.endswith(".parquet")}

    def test_the_datasheet_keeps_the_share_alike_licence(self, tmp_path):
        bundle = CloudProphetRuns().pull(folder=tmp_path / "pulled")
        assert "CC BY-SA 4.0" in bundle.datasheet
        assert "CC BY-SA 4.0" in CloudProphetRuns.licence

    @pytest.mark.reference
    def test_the_packaged_rows_are_the_reference(self, reference):
        theirs = pd.read_parquet(reference / "cloudprophet_runs" / "runs.parquet")
        mine = CloudProphetRuns().tidy(CloudProphetRuns().packaged())["runs"]
        pd.testing.assert_frame_equal(mine, theirs)


def test_speed_is_work_over_time_in_the_unit_of_the_application():
    runs = cloudprophet_table().head(2)
    runs = runs.assign(
        app=["data_serving", "inmem_analytics"],
        load_param=[2000.0, np.nan],
        perf_value=[500.0, 4e4],
    )
    np.testing.assert_allclose(speeds(runs), [4000.0, 0.025])


def test_two_neighbouring_loads_are_compared_and_others_are_not():
    runs = cloudprophet_table().head(4)
    operations = runs.assign(app="data_serving", load_param=[1000.0, 1260.0, 1580.0, 2000.0])
    first, second, third, fourth = load_buckets(operations)
    assert first == second != third == fourth
    users = load_buckets(runs.assign(app="web_serving", load_param=[1.0, 2.0, 3.0, 4.0]))
    assert users.tolist() == [0, 0, 1, 1]
    assert not load_buckets(runs.assign(app="redis")).any()


def test_the_ideal_speed_is_of_the_reference_rows_alone():
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
