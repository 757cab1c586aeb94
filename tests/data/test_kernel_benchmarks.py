"""deepbench and lambda_bench: several tables a sheet, several GPUs a system."""

import pandas as pd
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.benchmark_suites.lambda_bench import LambdaBench, gpu_name
from forerun.data.datasets.networks.deepbench import DeepBench
from forerun.data.errors import DamagedData
from forerun.data.upstream.plain_files import all_sheets
from forerun.features.tables.deepbench import LEAST_ALL_REDUCE
from tests.contracts.dataset_contract import DatasetContract
from tests.contracts.tiny_kernel_benchmarks import workbook


class TestDeepBench(DatasetContract):
    cls = DeepBench

    def test_every_sheet_of_results_is_read_with_its_precision(self, tables):
        counts = tables["gemm"].groupby(["device", "precision"]).size()
        assert counts["V100", "fp32"] == counts["V100", "fp16_mixed"] == 6
        assert counts["iPhone_6", "int8"] == 1

    def test_windows_stand_by_height_and_width_whatever_the_order_of_columns(self, tables):
        conv = tables["conv"]
        assert set(conv["device"]) == {"V100", "TitanX", "M40"}
        for name, value in {"r": 5, "s": 20, "pad_h": 1, "stride_v": 2, "stride_h": 3}.items():
            assert set(conv[name]) == {value}

    def test_a_pass_that_was_not_measured_is_null(self, tables):
        by_batch = tables["conv"].groupby("batch")["bwd_input_ms"]
        assert by_batch.count()[4] == 0
        assert by_batch.count()[8] == 4

    def test_a_row_listed_twice_is_kept_once(self, tables):
        assert not tables["conv"].duplicated().any()
        assert len(tables["conv"]) == 2 * 4

    def test_all_reduce_is_no_recurrent_layer(self, tables):
        assert set(tables["rnn"]["hidden"]) == {512}

    def test_sparse_products_are_left_out(self, tables):
        assert not tables["gemm"]["sparse"].any()
        assert 7680 not in set(tables["gemm"]["m"])

    def test_an_architecture_is_left_out_whole(self, bundle):
        gemm = bundle.table("gemm")
        splits = {s.protocol: s for s in DeepBench().splits(bundle)}
        maxwell = splits["unseen_generation/gemm/maxwell"]
        assert set(gemm["device"][maxwell.held_out]) == {"TitanX", "M40"}
        assert set(gemm["device"][splits["unseen_device/gemm/M40"].train]) >= {"TitanX", "V100"}

    def test_a_time_of_a_few_steps_of_the_clock_is_flagged(self, bundle, tmp_path):
        gemm = bundle.table("gemm").assign(latency_ms=0.011)
        other = Bundle.write(tmp_path / "coarse", "deepbench", {"gemm": gemm})
        rounded = DeepBench().flags(other).query("flag == 'rounded'")
        assert len(rounded) == len(gemm)
        assert not len(DeepBench().flags(bundle).query("flag == 'rounded'"))

    @pytest.mark.reference
    def test_recurrent_layers_are_the_references_less_its_all_reduce_rows(
        self, mirror, reference, tmp_path
    ):
        mine = DeepBench().pull(folder=tmp_path / "b", mirror=mirror).table("rnn")
        theirs = Bundle.open(reference / "deepbench").table("rnn")
        layers = theirs[theirs["hidden"] < LEAST_ALL_REDUCE].reset_index(drop=True)
        assert len(theirs) - len(layers) == 203
        pd.testing.assert_frame_equal(mine, layers, check_exact=True)


class TestLambdaBench(DatasetContract):
    cls = LambdaBench

    def test_a_model_that_did_not_run_is_no_row(self, tables):
        rows = tables["throughput"]
        mine = rows[(rows["system"] == "RTX 3090") & (rows["model"] == "bert_base_squad")]
        assert len(mine) == 0

    def test_the_batch_size_is_that_of_all_gpus(self, tables):
        sizes = tables["throughput"].set_index(["system", "model", "precision"])["batch_size"]
        assert sizes["2x RTX 3090", "ssd", "fp16"] == 2 * sizes["RTX 3090", "ssd", "fp16"]

    def test_the_node_says_number_and_gpu(self, tables):
        later = tables["throughput"].query("table == 'v2'")
        assert set(later["system"]) == {"H100_80GB_SXM5"}
        assert sorted(set(later["num_gpu"])) == [1, 8]
        assert later["batch_size"].isna().all()

    @pytest.mark.parametrize(
        ("system", "gpu"),
        [
            ("DellTexas 8x H100 80GB SXM5", "H100 80GB SXM5"),
            ("LambdaCloud 4xV100 16GB", "V100 16GB"),
            ("1CC H100 80GB SXM5", "H100 80GB SXM5"),
            ("H200_140GB_SXM", "H200 140GB SXM"),
            ("4x2080TiNVlink_trt2", "2080Ti"),
            ("p3.2xlarge", "V100"),
        ],
    )
    def test_a_system_is_known_by_its_gpu(self, system, gpu):
        assert gpu_name(system) == gpu

    def test_one_gpu_is_held_out_in_every_number(self, bundle):
        rows = bundle.table("throughput")
        splits = {s.protocol: s for s in LambdaBench().splits(bundle)}
        held_out = rows[splits["unseen_device/RTX 3090"].held_out]
        assert set(held_out["num_gpu"]) == {1, 2}

    @pytest.mark.reference
    def test_memory_is_the_references_of_the_systems_that_are_mirrored(
        self, mirror, reference, tmp_path
    ):
        bundle = LambdaBench().pull(folder=tmp_path / "b", mirror=mirror)
        mine = bundle.table("monitor_memory")
        theirs = Bundle.open(reference / "lambda_bench").table("monitor_memory")
        theirs = theirs[theirs["system"].isin(set(mine["system"]))].reset_index(drop=True)
        assert len(mine) == 603
        pd.testing.assert_frame_equal(mine, theirs, check_exact=True)


def test_sheets_are_named_by_the_workbook_and_not_by_their_parts():
    content = workbook({"first": [["a", 1.0]], "second": [["b", None, 2.0]]})
    assert all_sheets(content, "x.xlsx") == {"first": [["a", 1.0]], "second": [["b", None, 2.0]]}


def test_cells_stay_in_their_rows_and_columns_and_empty_ones_are_none():
    content = workbook({"sheet": [[], [None, "a", 1.0], [2.5]]})
    assert all_sheets(content, "x.xlsx") == {
        "sheet": [[None] * 3, [None, "a", 1.0], [2.5, None, None]]
    }


def test_a_file_that_is_no_workbook_is_refused_by_name():
    with pytest.raises(DamagedData, match=r"x\.xlsx is no readable workbook"):
        all_sheets(b"PK", "x.xlsx")
