"""Datasets keep their contract and tidy upstream files into the reference bundles.

No split of any dataset, on made-up or real rows, trains on a held-out row.
"""

from dataclasses import replace
from unittest.mock import Mock, patch

import numpy as np
import pandas as pd
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets import DATASETS, dataset
from forerun.data.datasets.architectures.nas_latency import CHOICES, NasLatency, middle
from forerun.data.datasets.benchmark_suites.lambda_bench import LambdaBench, gpu_name
from forerun.data.datasets.benchmark_suites.ncpp import Ncpp
from forerun.data.datasets.dataset import family_of
from forerun.data.datasets.hls_designs.hlsyn import INDUCTIVE, HLSyn
from forerun.data.datasets.hls_designs.wa_hls4ml import WaHls4ml
from forerun.data.datasets.language_models.llm_traces import LlmTraces
from forerun.data.datasets.language_models.llmd_traces import LlmdTraces
from forerun.data.datasets.language_models.vidur import Vidur
from forerun.data.datasets.memory.gpumemnet import GpuMemNet, suspects
from forerun.data.datasets.networks.deepbench import DeepBench
from forerun.data.datasets.networks.neusight import (
    AMD_TRAINING,
    NVIDIA_TRAINING,
    NeuSight,
    bounds_ms,
)
from forerun.data.datasets.networks.timm_bench import TimmBench
from forerun.data.datasets.packaged import PackagedDataset, PackedTables
from forerun.data.datasets.power.torch_op_energy import TorchOpEnergy
from forerun.data.datasets.power.zeus_powercap import ZeusPowerCap
from forerun.data.errors import BadTable, DamagedData, MissingData, UnknownDataset
from forerun.data.quality import counts
from forerun.data.split import LeakedRows, _row_hashes
from forerun.data.upstream.plain_files import all_sheets
from forerun.features.tables.deepbench import LEAST_ALL_REDUCE
from tests.contracts.dataset_contract import DatasetContract
from tests.contracts.tiny_kernel_benchmarks import workbook
from tests.contracts.tiny_upstream import tiny_upstream

DOWNLOADED = [cls for cls in DATASETS if not issubclass(cls, PackagedDataset)]
NOT_DOWNLOADED = {
    ("timm_bench", "graphs"),
    ("gpumemnet", "timm_sim_features"),
    ("ncpp", "qdf_specs"),
    ("ncpp", "train"),
    ("ncpp", "test"),
    ("mlperf_inference", "mlperf_inference_v2.0_v4.1"),
    ("nas_latency", "nb201_archs"),
    ("nas_latency", "fbnet_archs"),
    ("nas_latency", "nb201_edge360"),
    ("nas_latency", "devices"),
    ("nas_latency", "published"),
    ("deepbench", "rnn"),
    ("lambda_bench", "monitor_memory"),
}
"""Graphs of image models are traced, not downloaded; the reference adds columns to architectures, a
category without rows, and two tables of its own; sessions of ncpp are numbered anew and its parts
stand in a workbook; open and network divisions of MLPerf are not in the bundle; the reference
counts DeepBench's all-reduce rows as recurrent layers; traces of several GPUs are not mirrored."""


@pytest.fixture(scope="module")
def pulled(mirror, tmp_path_factory):
    """Bundles tidied from the mirror of upstream files, by name."""
    made: dict[str, Bundle] = {}

    def get(name):
        if name not in made:
            folder = tmp_path_factory.mktemp("bundles") / name
            made[name] = dataset(name).pull(folder=folder, mirror=mirror)
        return made[name]

    return get


class TestNeuSight(DatasetContract):
    cls = NeuSight

    def left_out(self, raw):
        """One of each folder, whose files are read alike."""
        return {path.rpartition("/")[0]: path for path in raw.paths}.values()

    def test_convolutions_of_the_held_out_gpu_are_not_training_rows(self, bundle):
        ops = bundle.table("ops")
        split = next(s for s in NeuSight().splits(bundle) if s.protocol == "unseen_device")
        theirs = (ops["device"] == "NVIDIA A100 80GB PCIe") & (ops["op_class"] == "conv")
        assert theirs.any()
        assert not split.train[theirs].any()
        assert not split.held_out[theirs].any()

    def test_an_unknown_gpu_is_held_out(self, bundle, tmp_path):
        ops = bundle.table("ops").assign(device="Imaginary 9000", split_published="test")
        other = Bundle.write(tmp_path / "other", "neusight", {"ops": ops})
        (split,) = [s for s in NeuSight().splits(other) if s.protocol == "unseen_device"]
        assert split.held_out.all()

    def test_the_roofline_of_a_square_gemm(self):
        ops = pd.DataFrame(
            {"device": ["g"], "op": ["linear"], "op_class": ["linear"]}
            | {d: [0] for d in ("h", "c_in", "c_out", "ksize", "in_hw", "stride", "pad")}
            | {"batch": [1], "m": [1000], "n": [1000], "k": [1000]}
        )
        sheet = {"fp32_gflops_mm": [1000], "fp32_gflops_vec": [1000], "mem_bw_gbs": [1]}
        bound, floor = bounds_ms(ops, pd.DataFrame({"device": ["g"], **sheet}))
        assert floor[0] == pytest.approx(2.0)
        assert bound[0] == pytest.approx(12.0)

    def test_the_throttled_p4_rows_are_found_and_nothing_else(self, whole):
        findings = NeuSight().flags(whole)
        rows = whole.table("ops").iloc[findings["row"]]
        assert set(rows["device"]) == {"Tesla P4"}
        assert set(rows["op"]) == {"linear"}
        assert set(rows["split_published"]) == {"train"}
        assert counts(findings)["shifted"] == len(findings) == 6423

    def test_the_throttled_p4_rows_are_found_from_training_rows_only(self, whole):
        ops, devices = whole.table("ops"), whole.table("devices")
        for split in NeuSight().splits(whole):
            if split.protocol not in ("unseen_device", "leave_one_gpu_out/Tesla P4"):
                continue
            training_rows = ops[split.train].reset_index(drop=True)
            flagged = training_rows.iloc[NeuSight().flags_of(training_rows, devices)["row"]]
            expected = set() if split.protocol.endswith("P4") else {("Tesla P4", "linear")}
            assert set(zip(flagged["device"], flagged["op"], strict=True)) == expected

    def test_the_published_split_of_the_reference(self, whole):
        ops = whole.table("ops")
        splits = {s.protocol: s for s in NeuSight().splits(whole)}
        published = splits["unseen_device"]
        assert set(ops["device"][published.train]) == set(NVIDIA_TRAINING)
        assert set(ops["device"][published.held_out]) == {"NVIDIA A100 80GB PCIe"}
        assert published.held_out.sum() == 2487 + 662 + 1040 + 81 + 81
        assert sum(p.startswith("leave_one_gpu_out/") for p in splits) == len(NVIDIA_TRAINING)
        assert splits["end_to_end"].held_out.all()
        assert not set(ops["device"][published.train]) & set(AMD_TRAINING)

    def test_neusights_own_end_to_end_error_is_what_the_paper_reports(self, whole):
        e2e = whole.table("e2e")
        shared = e2e[e2e["pub_roofline_e2e_ms"].notna()]
        error = (shared["pub_neusight_e2e_ms"] / shared["e2e_latency_ms"] - 1).abs()
        assert len(shared) == 38
        assert error.mean() == pytest.approx(0.097, abs=0.001)


class TestTimmBench(DatasetContract):
    cls = TimmBench

    def test_a_row_without_a_time_is_kept_flagged_and_in_no_split(self, bundle):
        bench = bundle.table("bench")
        empty = bench["step_time_ms"].isna()
        assert empty.any()
        assert counts(TimmBench().flags(bundle))["unmeasured"] == empty.sum()
        for split in TimmBench().splits(bundle):
            assert not (split.train | split.held_out)[empty].any()

    @pytest.mark.parametrize(
        ("model", "expected"),
        [("resnet50.a1_in1k", "resnet"), ("Mixer_b16", "mixer"), ("vit_base", "vit"), ("3d", "3d")],
    )
    def test_a_family_is_the_leading_letters(self, model, expected):
        assert family_of(model) == expected

    def test_the_splits_of_the_reference(self, whole):
        bench = whole.table("bench")
        splits = {s.protocol: s for s in TimmBench().splits(whole)}
        device = splits["unseen_device"]
        assert set(bench["device"][device.train]) == {"rtx3090", "rtx4090"}
        assert set(bench["device"][device.held_out]) == {"pro6000maxq"}
        both = [s for p, s in splits.items() if p.startswith("unseen_device_and_family/")]
        assert sum(s.held_out.sum() for s in both) == device.held_out.sum()
        assert all((s.train <= device.train).all() for s in both)
        for protocol, count in (("unseen_family", 10), ("unseen_model", 5)):
            folds = [s for p, s in splits.items() if p.startswith(protocol)]
            assert len(folds) == count
            assert sum(s.held_out.sum() for s in folds) == bench["step_time_ms"].notna().sum()


class TestTorchOpEnergy(DatasetContract):
    cls = TorchOpEnergy


class TestZeusPowerCap(DatasetContract):
    cls = ZeusPowerCap


class TestGpuMemNet(DatasetContract):
    cls = GpuMemNet

    def test_a_peak_below_that_of_a_smaller_batch_is_suspect(self):
        rows = pd.DataFrame(
            {
                "model": ["a"] * 4,
                "batch_size": [8, 16, 32, 64],
                "max_gpu_memory_mib": [5000, 3000, 5000, 5100],
                "faketensor_after_forward_mib": [100.0] * 4,
            }
        )
        assert suspects(rows) == ["", "not_monotone", "same_as_smaller_batch", ""]

    def test_only_clean_rows_are_held_out_and_lower_bounds_are_training_rows(self, bundle):
        timm = bundle.table("timm_training_peak")
        for split in GpuMemNet().splits(bundle):
            if split.table == "timm_training_peak":
                assert set(timm["suspect"][split.held_out]) == {""}
                assert set(timm["suspect"][split.train]) <= {"", "near_40gb_cap"}


class TestNasLatency(DatasetContract):
    cls = NasLatency

    def test_a_cell_is_read_edge_by_edge(self, tables):
        cell = tables["nb201_archs"].iloc[1]
        assert cell["arch_str"].startswith("|nor_conv_3x3~0|+|none~0|skip_connect~1|")
        assert cell[list(CHOICES["nb201"])].tolist() == [3, 0, 1, 1, 0, 3]

    def test_the_middle_leaves_out_a_tenth_at_either_end(self):
        times = np.arange(1.0, 12.0)
        assert middle(times, np.arange(11)).tolist() == list(range(1, 10))
        assert not len(middle(times, np.arange(0)))

    def test_phones_are_flagged_as_rounded_and_cells_that_fold_away(self, whole):
        rows, found = whole.table("nb201_latency"), NasLatency().flags(whole)
        flagged = rows.iloc[found.loc[found["flag"] == "rounded", "row"]]
        phones = {"essential_ph_1", "pixel2", "samsung_a50", "samsung_s7"}
        assert set(flagged["device"]) == phones
        folded = rows.iloc[found.loc[found["flag"] == "folded", "row"]]
        assert set(folded["device"]) == {"pixel3", "raspi4"}

    def test_boards_of_edge360_are_read_as_in_the_reference(self, pulled, whole):
        mine = pulled("nas_latency").table("nb201_edge360")
        theirs = whole.table("nb201_edge360")
        words = dict.fromkeys(("device", "framework", "task"), "str")
        mine, theirs = mine.astype(words), theirs.astype(words)
        pd.testing.assert_frame_equal(mine, theirs, check_exact=True)


@pytest.mark.parametrize("cls", DOWNLOADED)
def test_tidy_tables_are_the_reference_to_the_last_bit(cls, pulled, reference):
    mine, theirs = pulled(cls.name), Bundle.open(reference / cls.name)
    for name in theirs.tables():
        if (cls.name, name) not in NOT_DOWNLOADED:
            pd.testing.assert_frame_equal(
                mine.table(name), theirs.table(name), check_exact=True, obj=f"{cls.name}.{name}"
            )
    for name in theirs.documents():
        assert mine.document(name) == theirs.document(name)


def test_a_pulled_bundle_describes_itself(pulled):
    bundle = pulled("torch_op_energy")
    assert bundle.facts["digest"] == bundle.digest
    assert bundle.facts["rows"] == {"ops": 4613, "full_models": 88}
    assert bundle.facts["commit"] == TorchOpEnergy.upstream.commit
    assert TorchOpEnergy.licence in bundle.datasheet


@pytest.mark.parametrize("cls", [cls for cls in DOWNLOADED if cls.name in dict(NOT_DOWNLOADED)])
def test_tables_that_only_the_reference_has_satisfy_the_schemas(cls, reference):
    """All others come from `pull`, which validates what it writes."""
    bundle = Bundle.open(reference / cls.name)
    alone = [name for name in bundle.tables() if (cls.name, name) in NOT_DOWNLOADED]
    cls().validate({name: bundle.table(name) for name in alone})


def test_a_table_with_a_bad_value_is_refused_with_its_place():
    frame = pd.DataFrame({"device_key": ["a", "b"]})
    with pytest.raises(BadTable, match=r"neusight\.devices: no column 'device'"):
        NeuSight().validate({"devices": frame})


def test_a_table_that_the_dataset_does_not_have_is_refused():
    with pytest.raises(BadTable, match="no table 'extra'"):
        TimmBench().validate({"extra": pd.DataFrame()})


def test_an_unknown_dataset_is_named_with_the_known_ones():
    with pytest.raises(UnknownDataset, match="neusight, onnxruntime_cpu, published_memory"):
        dataset("neusigth")


def test_a_failed_pull_leaves_the_old_bundle(tmp_path, monkeypatch):
    folder = tmp_path / "bundle"
    old = Bundle.write(folder, "timm_bench", {"bench": pd.DataFrame({"model": ["old"]})})
    monkeypatch.setattr(pd.DataFrame, "to_parquet", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        Bundle.write(folder, "timm_bench", {"bench": pd.DataFrame({"model": ["new"]})})
    assert old.table("bench")["model"].tolist() == ["old"]
    assert [p.name for p in tmp_path.iterdir()] == ["bundle"]


class TestHLSyn(DatasetContract):
    cls = HLSyn

    def test_held_out_programs_are_not_training_rows_of_their_tool(self, bundle, splits):
        designs = bundle.table("designs")
        assert set(splits) == {f"{p}/{t}" for p in ("inductive", "transductive") for t in INDUCTIVE}
        for protocol, split in splits.items():
            tool = protocol.split("/")[1]
            assert set(designs["tool"][split.train | split.held_out]) == {tool}
            assert not set(designs["kernel"][split.train]) & set(INDUCTIVE[tool])

    def test_designs_without_a_label_are_kept_flagged_and_in_no_split(self, bundle):
        empty = bundle.table("designs")["latency_cycles"] == 0
        assert counts(HLSyn().flags(bundle))["unmeasured"] == empty.sum() > 0
        for split in HLSyn().splits(bundle):
            assert not (split.train | split.held_out)[empty].any()

    def test_the_splits_of_the_reference(self, whole):
        splits = {split.protocol: split for split in HLSyn().splits(whole)}
        inductive, transductive = splits["inductive/v18"], splits["transductive/v18"]
        assert inductive.held_out.sum() == 439 + 221 + 498 + 197 + 82 + 42
        assert set(whole.table("designs")["kernel"][inductive.held_out]) == set(INDUCTIVE["v18"])
        pool = inductive.train.sum()
        assert not (transductive.train & ~inductive.train).any()
        assert transductive.held_out.sum() / pool == pytest.approx(0.15, abs=0.01)
        assert transductive.train.sum() / pool == pytest.approx(0.70, abs=0.01)


class TestWaHls4ml(DatasetContract):
    cls = WaHls4ml

    def test_a_failed_synthesis_has_no_label_and_is_in_no_split(self, bundle):
        grid = bundle.table("dense_grid_v0")
        failed = ~grid["hls_synth_success"]
        assert failed.any()
        assert grid.loc[failed, "LUT"].isna().all()
        for split in WaHls4ml().splits(bundle):
            assert not (split.train | split.held_out)[failed].any()


class TestNcpp(DatasetContract):
    cls = Ncpp

    def test_machine_names_and_timestamps_are_dropped(self, tables):
        rows = tables["train"]
        assert not [name for name in rows if "kubernetes" in name or "@timestamp" in name]
        assert "secret" not in rows.to_csv()
        assert rows["run_id"].nunique() == 2
        assert rows["iteration"].max() == 1

    def test_test_rows_are_never_training_rows(self, bundle):
        for split in Ncpp().splits(bundle):
            assert split.table == "train" or not split.train.any()

    @pytest.mark.parametrize("part", ["train", "test"])
    def test_runs_are_those_of_the_reference(self, part, pulled, whole):
        theirs, mine = whole.table(part), pulled("ncpp").table(part)
        named = theirs.drop(columns="run_id")
        pd.testing.assert_frame_equal(mine.drop(columns="run_id"), named, check_exact=True)
        one, other = (pd.factorize(frame["run_id"])[0] for frame in (mine, theirs))
        assert np.array_equal(one, other)

    def test_every_training_suite_ran_on_one_part(self, whole):
        """Therefore nothing about hardware can be learned from the sample."""
        rows = whole.table("train")
        parts = rows.groupby("RESULT.WorkloadName")["META.metadata.cscope.qdf0"].nunique()
        assert (parts == 1).all()


class TestDeepBench(DatasetContract):
    cls = DeepBench

    def test_a_time_of_a_few_steps_of_the_clock_is_flagged(self, bundle, tmp_path):
        gemm = bundle.table("gemm").assign(latency_ms=0.011)
        other = Bundle.write(tmp_path / "coarse", "deepbench", {"gemm": gemm})
        rounded = DeepBench().flags(other).query("flag == 'rounded'")
        assert len(rounded) == len(gemm)
        assert not len(DeepBench().flags(bundle).query("flag == 'rounded'"))

    def test_recurrent_layers_equal_the_reference_without_its_all_reduce_rows(self, pulled, whole):
        mine, theirs = pulled("deepbench").table("rnn"), whole.table("rnn")
        layers = theirs[theirs["hidden"] < LEAST_ALL_REDUCE].reset_index(drop=True)
        assert len(theirs) - len(layers) == 203
        pd.testing.assert_frame_equal(mine, layers, check_exact=True)


class TestLambdaBench(DatasetContract):
    cls = LambdaBench

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

    def test_memory_equals_the_reference_for_mirrored_systems(self, pulled, whole):
        mine = pulled("lambda_bench").table("monitor_memory")
        theirs = whole.table("monitor_memory")
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


def test_a_file_that_is_not_a_workbook_is_refused_by_name():
    with pytest.raises(DamagedData, match=r"x\.xlsx is not a readable workbook"):
        all_sheets(b"PK", "x.xlsx")


PREDICTED = [cls for cls in DATASETS if cls not in (LlmTraces, LlmdTraces)]
"""Traces of requests are no measurements."""
MOST_ROWS = 2_000
"""Rows of a reference table that are checked: of larger tables, a random sample."""
MOST_COPIED = 100
"""Training rows among which a copy of a held-out row is looked for."""
ROWS = ("tiny", pytest.param("reference", marks=pytest.mark.reference))


@pytest.fixture(params=ROWS, scope="module")
def rows(request):
    """The folder of reference bundles, or None for made-up rows."""
    return request.getfixturevalue("reference") if request.param == "reference" else None


@pytest.fixture(params=PREDICTED, scope="module")
def checked(request, rows, tmp_path_factory):
    """All splits of one dataset with their tables, checked; read once for all tests of it."""
    dataset, folder = request.param(), tmp_path_factory.mktemp("rows")
    if rows is not None:
        return checked_splits(dataset, thinned(real_bundle(dataset, rows), dataset, folder))
    tables = dataset.tidy(tiny_upstream(dataset.name, folder / "upstream"))
    bundle = Bundle.write(folder / "bundle", dataset.name, tables, as_csv=dataset.csv_tables)
    return checked_splits(dataset, bundle)


def real_bundle(dataset, root):
    """The reference bundle of a dataset, or the rows that come with the package."""
    if not isinstance(dataset, PackagedDataset):
        return Bundle.open(root / dataset.name)
    try:
        return Bundle.open(dataset.packaged().folder, dataset.name)
    except MissingData as error:
        pytest.skip(str(error))


def thinned(bundle, dataset, folder):
    """A bundle of few rows of each large table of timed operators; others as they are."""
    if not isinstance(dataset, PackedTables | Vidur):
        return bundle
    tables = {name: bundle.table(name) for name in bundle.tables()}
    few = {n: t.sample(min(len(t), MOST_ROWS), random_state=0) for n, t in tables.items()}
    return Bundle.write(folder, bundle.name, {n: t.reset_index(drop=True) for n, t in few.items()})


def checked_splits(dataset, bundle):
    """All splits with their tables, after checking them."""
    splits = dataset.splits(bundle)
    assert splits, f"{dataset.name} has no split"
    assert any(split.train.any() for split in splits), f"nothing trains in {dataset.name}"
    assert len({split.protocol for split in splits}) == len(splits), "each has a name of its own"
    tables = {name: bundle.table(name) for name in {split.table for split in splits}}
    hashes = {}

    def hashed_once(frame, columns):
        """Hashes of the queries of a table, which all of its splits have in common."""
        if (id(frame), columns) not in hashes:
            hashes[id(frame), columns] = _row_hashes(frame, columns)
        return hashes[id(frame), columns]

    for split in splits:
        with patch("forerun.data.split._row_hashes", hashed_once):
            split.check(tables[split.table])
        assert split.held_out.any(), f"{split.protocol} holds nothing out"
        assert split.disjoint_keys or split.query_columns or not split.train.any(), (
            f"{split.protocol} does not say what must be disjoint"
        )
    return [(split, tables[split.table]) for split in splits]


def test_no_split_trains_on_what_it_holds_out(checked):
    assert checked


def test_a_held_out_row_put_into_training_is_found(checked):
    for split, frame in checked:
        train = split.train.copy()
        train[np.flatnonzero(split.held_out)[-1]] = True
        with pytest.raises(LeakedRows, match="held-out rows are trained on"):
            replace(split, train=train).check(frame)


def test_a_held_out_row_copied_into_training_is_found_by_its_content(checked):
    """Flags alone would not show it: the copy is a training row, the row is held out."""
    for split, frame in checked:
        if not split.train.any():
            continue
        row = np.flatnonzero(split.held_out)[0]
        kept = np.array([*np.flatnonzero(split.train)[:MOST_COPIED], row, row])
        copy = np.arange(len(kept)) == len(kept) - 1
        copied = replace(
            split,
            train=split.train[kept] | copy,
            held_out=split.held_out[kept] & ~copy,
            derived={key: values[kept] for key, values in split.derived.items()},
        )
        with pytest.raises(LeakedRows, match=r"is trained on and held out|queries are trained on"):
            copied.check(frame.iloc[kept].reset_index(drop=True))


def test_a_dataset_without_a_split_fails(tmp_path):
    class Forgetful(NeuSight):
        def splits(self, bundle):
            return []

    tables = NeuSight().tidy(tiny_upstream("neusight", tmp_path / "upstream"))
    bundle = Bundle.write(tmp_path / "bundle", "neusight", tables)
    with pytest.raises(AssertionError, match="has no split"):
        checked_splits(Forgetful(), bundle)
