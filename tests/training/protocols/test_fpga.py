"""Protocols of designs, circuits, architectures and benchmark suites."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.architectures.nas_latency import CHOICES, published_protocols
from forerun.data.datasets.benchmark_suites.lambda_bench import THROUGHPUT
from forerun.data.datasets.benchmark_suites.mlperf_inference import (
    CLOSED,
)
from forerun.data.datasets.circuits.circuit_fpga import PROCESSORS
from forerun.data.graph import Operator, OperatorGraph
from forerun.features.nas_cells import features_of, random_codes
from forerun.features.tables.lambda_bench import GRAPHS
from forerun.models.circuits.netlist_boost import circuits_of
from forerun.models.circuits.placed_boost import frequencies
from forerun.training.evaluation.evaluate import rows, run_protocols
from forerun.training.protocols.architectures.nas_latency import NasLatencyProtocols, spaces
from forerun.training.protocols.benchmark_suites.lambda_bench import (
    FAMILIES,
    benchmark_measurements,
    half_precision_steps,
    scaled_by_peak,
    step_measurements,
)
from forerun.training.protocols.benchmark_suites.mlperf_inference import (
    MlperfInferenceProtocols,
    framework_family,
    gflop_per_sample,
    run_measurements,
    tokens_per_unit,
)
from forerun.training.protocols.circuits.circuit_fpga import (
    CircuitFpgaProtocols,
    circuit_measurements,
    estimated_ps,
)
from forerun.training.protocols.hls_designs.hls_designs import (
    performance,
    share,
)
from tests.devices import CATALOG

# Protocols of hlsyn: training programs, support sets, and tasks on an unseen folder.


def test_the_published_scale_of_cycles():
    """10 million cycles give 0, and every factor of four fewer cycles adds 1."""
    assert performance(np.array([1e7, 2.5e6])) == pytest.approx([0.0, 1.0])
    assert share(np.array([0.5])) == pytest.approx([0.5])


# Protocols of circuit_fpga: what is held out, what is asked, and the placer's own estimate.


def test_processors_are_a_test_set_that_nothing_is_trained_on(made_up, tmp_path):
    tables = {
        name: made_up("circuit_fpga").table(name)
        for name in ("runs", "nodes", "arcs", "paths", "words")
    }
    runs = tables["runs"].copy()
    runs["family"] = runs["family"].replace("family_2", PROCESSORS[0])
    own = Bundle.write(tmp_path / "bundle", "circuit_fpga", {**tables, "runs": runs})
    protocols = CircuitFpgaProtocols()
    assert PROCESSORS[0] not in protocols.training_rows(own, CATALOG).groups["family"]
    for fold in protocols.folds(own, CATALOG):
        assert PROCESSORS[0] not in fold.train.groups["family"]
        for task in fold.tasks:
            families = set(task.held_out.groups["family"])
            assert (families == {PROCESSORS[0]}) == (fold.protocol == "processor")
            assert fold.protocol == "processor" or PROCESSORS[0] not in families


def test_circuits_that_are_asked_about_have_no_routes_and_those_of_training_do(made_up):
    for fold in CircuitFpgaProtocols().folds(made_up("circuit_fpga"), CATALOG):
        asked = [own for task in fold.tasks for own in circuits_of(task.held_out.queries)]
        assert all(own.routed_ps is None for own in asked)
        assert all(own.routed_ps is not None for own in circuits_of(fold.train.queries))
        placed, unplaced = fold.tasks
        assert all(own.placement is not None for own in circuits_of(placed.held_out.queries))
        assert all(own.placement is None for own in circuits_of(unplaced.held_out.queries))


def test_frequencies_of_the_table_follow_from_the_delays_after_routing(made_up):
    measured, _ = circuit_measurements(made_up("circuit_fpga"))
    own = circuits_of(measured.queries)
    assert frequencies(own, [one.routed_ps for one in own]) == pytest.approx(
        measured.column("fmax_mhz")
    )


def test_the_baseline_is_the_placer_s_estimate_except_for_fixed_connections(made_up):
    measured, _ = circuit_measurements(made_up("circuit_fpga"))
    own = circuits_of(measured.queries)[0]
    (plain,) = estimated_ps([own], [own])
    assert plain.tolist() == own.placement.estimated_ps.tolist()
    ports = ["COUT", *own.netlist.arcs.source_port[1:]]
    carried = replace(
        own, netlist=replace(own.netlist, arcs=replace(own.netlist.arcs, source_port=ports))
    )
    (found,) = estimated_ps([carried], [carried])
    assert found[0] == own.routed_ps[0]
    assert found[1:].tolist() == plain[1:].tolist()


# Protocols of nas_latency: of a held-out device only its support set is known.


@pytest.fixture(scope="module")
def nas_latency_bundle(tmp_path_factory) -> Bundle:
    """Eleven configurations of a made-up world with the published names, 1,000 cells each."""
    protocols = published_protocols()["nb201"]["ND"]
    codes = random_codes("nb201", 1000, 3)
    archs = pd.DataFrame(codes.astype(np.int8), columns=list(CHOICES["nb201"]))
    archs.insert(0, "arch_id", np.arange(1000, dtype=np.int32))
    features = features_of("nb201", codes)
    parts = []
    for number, name in enumerate((*protocols["train"][:4], *protocols["test"][:2])):
        generator = np.random.default_rng(number)
        times = 1 + 0.2 * features[:, 10] + 0.01 * number * np.exp(features[:, 8])
        times = (times * np.exp(generator.normal(0, 0.02, 1000))).astype(np.float32)
        ids = np.arange(1000, dtype=np.int32)
        parts.append(pd.DataFrame({"arch_id": ids, "device": name, "latency_ms": times}))
    folder = tmp_path_factory.mktemp("nas") / "nas_latency"
    tables = {"nb201_archs": archs, "nb201_latency": pd.concat(parts, ignore_index=True)}
    return Bundle.write(folder, "nas_latency", tables)


def test_no_held_out_device_is_in_the_training_set(nas_latency_bundle):
    folds = list(NasLatencyProtocols().folds(nas_latency_bundle, CATALOG))
    assert {e.protocol for e in folds} >= {"nasflat_nb201", "help_nb201", "every_other_device"}
    for fold in folds:
        trained_on = set(fold.train.groups["device"])
        assert trained_on
        for task in fold.tasks:
            assert set(task.held_out.groups["device"]) == {task.device}
            assert task.device not in trained_on


def test_training_rows_are_the_first_900_architectures(nas_latency_bundle):
    (space,) = spaces(nas_latency_bundle)
    for fold in NasLatencyProtocols().folds(nas_latency_bundle, CATALOG):
        names, counts = np.unique(fold.train.groups["device"], return_counts=True)
        assert set(counts) == {900}
        assert fold.train.queries[0].device.name in names
        train_architectures = [q.workload for q in fold.train.queries[:900]]
        assert train_architectures == list(space.architectures[:900])


def test_help_draws_from_the_middle_and_holds_out_no_support_row(nas_latency_bundle):
    helps = [
        e
        for e in NasLatencyProtocols().folds(nas_latency_bundle, CATALOG)
        if e.protocol == "help_nb201"
    ]
    (fold,) = helps
    assert len(fold.tasks) == 2
    for task in fold.tasks:
        assert task.support.shots == 10
        times = task.support.pool.values["latency_ms"]
        assert 600 < len(times) < 760
        held_out = {q.workload for q in task.held_out.queries}
        assert len(task.held_out) <= 100
        references = {q.workload for q in task.support.always.queries}
        references = published_protocols()["help"]["nb201"]["reference_arch_ids"]
        assert len(task.support.always) == sum(r < 1000 for r in references)
        assert not {id(w) for w in held_out} & {id(w) for w in references}


def test_a_device_seen_in_one_space_is_unseen_in_another(nas_latency_bundle):
    dataset_protocols = NasLatencyProtocols()
    seen = {"space_device": ["nb201/1080ti-1", "fbnet/fpga"]}
    devices = {
        t.device for t in dataset_protocols.evaluation_tasks(nas_latency_bundle, CATALOG, seen)
    }
    assert "1080ti-1" not in devices
    assert len(devices) == 5
    everything = dataset_protocols.training_rows(nas_latency_bundle, CATALOG)
    assert set(everything.groups["space_device"]) == {f"nb201/{d}" for d in devices} | {
        "nb201/1080ti-1"
    }


def test_shots_improve_the_predictions(nas_latency_bundle):
    predictions = run_protocols(
        NasLatencyProtocols(), nas_latency_bundle, protocols=["nasflat_nb201"]
    )
    found = [row for row in rows(list(predictions)) if row["task"] == "nasflat_nb201/ND"]
    assert len(found) == 2
    for row in found:
        assert row["n"] == 980
        assert row["spearman"] > 0.9
        assert row["median_ape"] < 5.0


# Protocols of lambda_bench: a GPU held out in every number, and graphs where given.
#
# Training steps of lambda_bench as training rows of `NetworkLatency`.


GRAPH = OperatorGraph((Operator("linear", "x", ((1, 8),), ((1, 4),), 32),), batch_size=1)


def test_nodes_of_the_same_kind_are_one_question(made_up):
    table = made_up("lambda_bench").table(THROUGHPUT)
    twice = table[table["table"] == "v2"].assign(throughput=lambda rows: 3 * rows["throughput"])
    once = benchmark_measurements(table, CATALOG)
    both = benchmark_measurements(pd.concat([table, twice], ignore_index=True), CATALOG)
    assert len(both) == len(once)
    later = both.groups["device"] == "h100-sxm-80gb"
    ratio = both.values["samples_per_s"] / once.values["samples_per_s"]
    np.testing.assert_allclose(ratio[later], 2.0)
    np.testing.assert_allclose(ratio[~later], 1.0)


def test_the_simple_rule_scales_by_peak_and_number(made_up):
    rows = benchmark_measurements(made_up("lambda_bench").table(THROUGHPUT), CATALOG)
    out = rows.groups["device"] == "rtx-3090"
    guessed = scaled_by_peak(rows.take(~out), rows.take(out))
    held_out = rows.take(out)
    counts = np.array([query.operation.device_count for query in held_out.queries])
    for key in np.unique(held_out.groups["model"] + held_out.groups["precision"]):
        mine = (held_out.groups["model"] + held_out.groups["precision"]) == key
        assert len(np.unique(np.round(guessed[mine] / counts[mine], 6))) == 1


def test_steps_of_single_gpus_are_evaluated_if_graphs_are_given(made_up):
    graphs = {GRAPHS["resnet50"]: GRAPH}
    steps = step_measurements(made_up("lambda_bench").table(THROUGHPUT), graphs, CATALOG)
    # two precisions of two systems with one GPU and a known batch size
    assert len(steps) == 4
    fast = (steps.groups["device"] == "rtx-3090") & (steps.groups["precision"] == "fp16")
    np.testing.assert_allclose(steps.values["latency_ms"][fast], 1e3 * 256 / 600)


NODE = {"table": "v1", "num_gpu": 1, "precision": "fp16", "batch_size": 64.0, "tdp_w_total": 400.0}
NODE |= {"node": None, "model": "resnet50", "system": "A100 80GB SXM4", "throughput": 1000.0}


def table(*rows: dict[str, object]) -> pd.DataFrame:
    return pd.DataFrame([{**NODE, **row} for row in rows])


def test_a_step_time_is_batch_over_throughput() -> None:
    rows = half_precision_steps(table({}), CATALOG)
    assert rows.values["latency_ms"].tolist() == [64.0]
    query = rows.queries[0]
    assert (query.device.name, query.network.phase) == ("a100-sxm-80gb", "training")
    assert (query.network.precision, query.network.batch_size) == ("amp", 64)
    assert rows.groups["chip"].tolist() == ["a100"]
    assert rows.groups["family"].tolist() == ["resnet"]


def test_nodes_of_one_configuration_are_one_row_with_their_median() -> None:
    nodes = [{"throughput": value} for value in (1000.0, 500.0, 800.0)]
    rows = half_precision_steps(table(*nodes, {"batch_size": 32.0}), CATALOG)
    assert sorted(rows.values["latency_ms"]) == [32.0, 80.0]


@pytest.mark.parametrize(
    "left_out",
    [{"model": "ssd"}, {"precision": "fp32"}, {"num_gpu": 8}, {"batch_size": np.nan}],
    ids=lambda row: next(iter(row)),
)
def test_other_rows_are_left_out(left_out: dict[str, object]) -> None:
    assert len(half_precision_steps(table({}, left_out), CATALOG)) == 1


def test_every_model_has_a_graph_and_bert_base_is_not_large() -> None:
    rows = half_precision_steps(table(*({"model": model} for model in FAMILIES)), CATALOG)
    sizes = dict(
        zip(rows.groups["model"], (len(q.network.graph) for q in rows.queries), strict=True)
    )
    assert set(sizes) == set(FAMILIES)
    assert sizes["bert_base_squad"] < sizes["bert_large_squad"]


# Protocols of mlperf_inference: training rows, held-out rows and simple baselines.
#
# Protocols of wa_hls4ml and ncpp: training rows, held-out rows, and tasks on a new folder.


def test_the_median_predicts_exactly_the_rows_with_a_history(made_up):
    for fold in MlperfInferenceProtocols().folds(made_up("mlperf_inference"), CATALOG):
        for task in fold.tasks:
            if task.name == "later_rounds/throughput":
                median = task.baselines["median"]
                assert np.isfinite(median).all()
                assert median == pytest.approx(task.held_out.values["samples_per_s"], rel=0.1)
            if task.name.endswith("throughput_new"):
                assert np.isnan(task.baselines["median"]).all()


def test_settings_contain_no_results(made_up):
    rows = made_up("mlperf_inference").table(CLOSED)
    doubled = rows.assign(result=2 * rows["result"], accuracy=0.1)
    one, other = (run_measurements(frame, CATALOG) for frame in (rows, doubled))
    assert list(one.queries) == list(other.queries)


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("TensorRT 9.0.0, CUDA 12.2", "vendor"),
        ("NGC MLPerf v3.0.2", "vendor"),
        ("MLCommons reference implementation with CM API, Onnxruntime v1.15.1", "onnx"),
        ("PyTorch", "pytorch"),
        (float("nan"), "vendor"),
    ],
)
def test_frameworks_are_either_the_vendors_or_portable(text, family):
    assert framework_family(text) == family


def test_the_longest_matching_name_gives_the_arithmetic_of_a_model():
    assert gflop_per_sample("dlrm-v2-99.9") > gflop_per_sample("dlrm-99.9")
    assert np.isnan(gflop_per_sample("something-new"))


@pytest.mark.reference
def test_tokens_become_samples_by_the_reference_output_length(reference):
    """Without the conversion, the same system would be 70 to 300 times as fast as before."""
    rows = Bundle.open(reference / "mlperf_inference").table(CLOSED)
    unit = tokens_per_unit(rows)
    mine = (rows["model"] == "gptj-99") & (rows["scenario"] == "Offline")
    mine &= rows["platform"].str.contains("H100") & (rows["accelerators_per_node"] == 8)
    rate = (rows["result"] / unit)[mine].groupby(rows["round"]).median()
    assert 1.0 < rate["v4.1"] / rate["v4.0"] < 2.0
