"""Fits of a release, its model card, and its run in MLflow."""

import json
import shutil
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.networks.torch_gpu import TorchGpu
from forerun.data.device import DeviceCatalog
from forerun.data.errors import BadArtifact, InputError, SlicesGotWorse
from forerun.models.answers.served_models import InUse
from forerun.models.answers.whole import WholeAnswers
from forerun.models.architectures.latency import ArchitectureLatency
from forerun.models.artifact.sealed_folder import bundled, check
from forerun.models.artifact.stored_predictor import load_part
from forerun.models.artifact.training_record import TrainingRecord
from forerun.models.baselines.roofline import Roofline
from forerun.models.benchmark_suites.scores import BenchmarkBoost
from forerun.models.catalog import PREDICTORS, predictors_evaluated_on, unfitted
from forerun.models.networks.device_time import DeviceTime
from forerun.models.networks.host_time import TERMS
from forerun.models.networks.latency import NetworkLatency
from forerun.models.router import Router
from forerun.service import cli
from forerun.training.evaluation.cells import cells_of
from forerun.training.evaluation.predictions import predict_task
from forerun.training.protocols import DATASET_PROTOCOLS, protocols_of_dataset
from forerun.training.protocols.networks.torch_gpu import measured_runs
from forerun.training.protocols.protocol import DatasetProtocols, Task
from forerun.training.published.figures import published_for
from forerun.training.release import fit
from forerun.training.release.card import Card, training_datasets_of
from forerun.training.release.fit import (
    Recipe,
    _composed,
    _parts,
    composable,
    recipes,
    recipes_of,
    train,
)
from forerun.training.release.pipeline import KIND, _accepted, release, release_name
from forerun.training.release.promotion import not_judged
from forerun.training.scores.errors import score
from forerun.training.tracking.runs import EXPERIMENT, connect, flat_parameters, versions_of
from tests.contracts.tiny_upstream import tiny_bundle
from tests.every import for_every
from tests.service.own_tables.tables import GPUS, settings_table

# Fits of a release, their card and where they are registered.


# Predictors are sealed together; some can be fitted again while others are kept.


DEVICE_TIMES = PREDICTORS["network_latency"].contains
DATASETS = ("wa_hls4ml", "ncpp", "gpumemnet", "published_memory")
MEMORY, RANGES, SUITES = "memory", "calibrated_memory", "benchmark_boost"


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    """Made-up rows of four datasets, a folder each."""
    folder = tmp_path_factory.mktemp("bundles")
    for name in DATASETS:
        tiny_bundle(name, folder)
    return folder


@pytest.fixture(scope="module")
def artifact(bundles, tmp_path_factory):
    output = tmp_path_factory.mktemp("artifact") / "predictor"
    release(output, names=[SUITES], data=bundles, protocols=["unseen_width"], track=False)
    return output


def data(bundles):
    return {name: bundles / name for name in DATASETS}


@pytest.mark.slow
def test_the_training_set_is_recorded(artifact):
    record = TrainingRecord.read(artifact)
    assert set(record.digests) == set(record.rows) == {"wa_hls4ml", "ncpp"}
    assert record.rows["wa_hls4ml"] == 15


def test_a_base_keeps_predictors_that_are_not_refitted_with_their_scores(
    bundles, artifact, tmp_path
):
    made = tmp_path / "made"
    release(made, names=[MEMORY], base=artifact, data=bundles, evaluate=False, track=False)
    kept, parts = load_part(artifact).parts, load_part(made).parts
    assert [p.name for p in parts] == [*(p.name for p in kept), RANGES]
    assert parts[-1].base.name == MEMORY
    assert [p.laws for p in parts[:-1]] == [p.laws for p in kept]
    record = TrainingRecord.read(made)
    assert set(record.rows) == {"wa_hls4ml", "ncpp", "gpumemnet", "published_memory"}
    assert record.keys["ncpp"] == TrainingRecord.read(artifact).keys["ncpp"]
    scores = json.loads((made / "scores.json").read_text())
    assert scores == json.loads((artifact / "scores.json").read_text())


def test_scores_of_answers_that_involve_a_fitted_predictor_are_dropped(bundles, artifact, tmp_path):
    assert json.loads((artifact / "scores.json").read_text())
    made = tmp_path / "made"
    release(made, names=[SUITES], base=artifact, data=bundles, evaluate=False, track=False)
    assert json.loads((made / "scores.json").read_text()) == []


def test_a_damaged_base_is_refused(bundles, artifact, tmp_path):
    damaged = tmp_path / "damaged"
    shutil.copytree(artifact, damaged)
    (damaged / "scores.json").write_text("[]")
    with pytest.raises(BadArtifact):
        train(tmp_path / "new", names=[MEMORY], base=damaged, data=data(bundles))


@pytest.mark.slow
def test_parts_with_the_same_name_are_replaced_together_in_order(bundles, tmp_path):
    first = train(tmp_path / "first", names=[SUITES], data=data(bundles))
    again = train(tmp_path / "again", names=[SUITES], base=first.folder, data=data(bundles))
    assert again.manifest.version == first.manifest.version
    before, after = load_part(first.folder), load_part(again.folder)
    assert [p.settings.keys() for p in before.parts] == [p.settings.keys() for p in after.parts]


def test_an_unknown_predictor_is_named(bundles, tmp_path):
    with pytest.raises(InputError, match="oracle"):
        train(tmp_path / "new", names=["oracle"], data=data(bundles))
    assert not (tmp_path / "new").exists()


def test_memory_intervals_are_recalibrated_around_the_memory_model_of_an_artifact(
    bundles, tmp_path
):
    whole = train(tmp_path / "whole", names=[MEMORY], data=data(bundles))
    assert composable(whole.folder) == {RANGES}
    again = train(tmp_path / "again", names=[RANGES], base=whole.folder, data=data(bundles))
    assert again.manifest.version == whole.manifest.version
    (part,) = load_part(again.folder).parts
    assert part.name == RANGES


def names_of(names, composed=()):
    return [recipe.predictor for recipe in recipes_of(names, composed)]


def test_a_composed_predictor_is_fitted_with_its_part():
    parts, whole = list(DEVICE_TIMES), "network_latency"
    assert names_of(parts) == [*parts, whole]
    assert names_of(parts[:1], {whole}) == [parts[0], whole]
    assert names_of(parts[:1]) == parts[:1]
    assert names_of([MEMORY], {whole}) == [MEMORY, RANGES]


def test_missing_parts_of_a_composed_predictor_are_fitted():
    parts, whole = list(DEVICE_TIMES), "network_latency"
    assert names_of([whole]) == [*parts, whole]
    assert names_of([whole], {whole}) == [whole]
    assert names_of([RANGES]) == [MEMORY, RANGES]
    assert names_of([RANGES], {RANGES}) == [RANGES]


@pytest.mark.slow
def test_predictors_of_an_artifact_are_composed_again(artifact):
    assert not composable(artifact)
    pretrained = Path(str(files("forerun.models") / "pretrained"))
    assert composable(pretrained) == {NetworkLatency.name, RANGES}
    kept = _parts(pretrained, {NetworkLatency.name, DEVICE_TIMES[0]})
    names = [part.name for part in kept]
    assert DEVICE_TIMES[1] in names
    assert not {NetworkLatency.name, DEVICE_TIMES[0]} & set(names)
    both = _parts(pretrained, {NetworkLatency.name})
    made, rest = _composed(NetworkLatency(), both)
    assert [made.device.name, made.operators.name] == list(DEVICE_TIMES)
    assert made.host.effects == ()
    assert [p.name for p in rest] == [p.name for p in both if p.name not in DEVICE_TIMES]
    assert len(rest) + 1 == len(bundled().predictor.parts)


@pytest.mark.slow
def test_the_sealed_folder_is_complete(artifact, bundles, tmp_path):
    made = train(tmp_path / "made", names=[SUITES], data=data(bundles))
    assert check(made.folder).version == made.manifest.version


def test_several_datasets_train_one_predictor_and_are_on_record(made_up, tmp_path, monkeypatch):
    folders = {name: made_up(name).folder for name in ("deepbench", "lambda_bench")}
    both = Recipe("constant", tuple(folders))
    monkeypatch.setattr(fit, "recipes", lambda: (both,))
    made = train(tmp_path / "made", data=folders)
    assert set(made.record.rows) == set(made.record.digests) == set(folders)
    (part,) = load_part(made.folder).parts
    assert {"latency_ms", "samples_per_s"} <= set(part.metrics)


def test_the_router_asks_in_the_order_of_the_recipes():
    whole = bundled().predictor
    inside = {name for entry in PREDICTORS.values() for name in entry.contains}
    released = dict.fromkeys(recipe.predictor for recipe in recipes())
    assert list(dict.fromkeys(part.name for part in whole.parts)) == [
        name for name in released if name not in inside
    ]


def test_each_source_of_training_rows_has_protocols_and_the_first_evaluates_the_predictor():
    for recipe in recipes():
        assert [protocols.source for protocols in recipe.all_protocols] == list(recipe.sources)
        assert recipe.predictor in predictors_evaluated_on(recipe.evaluated_on)


def test_every_dataset_evaluates_a_predictor():
    for cls in DATASET_PROTOCOLS:
        own = cls.predictors is not DatasetProtocols.predictors
        assert own or predictors_evaluated_on(cls.dataset), cls.dataset


def test_a_release_records_scored_settings_and_lists_unscored_ones(bundles, tmp_path):
    options = {"names": [SUITES], "data": bundles, "track": False, "protocols": ["unseen_width"]}
    made = release(tmp_path / "scored", **options)
    record = TrainingRecord.read(tmp_path / "scored")
    assert record.judged["ncpp"] == {}, "its protocols were not asked for"
    assert set() < record.judged["wa_hls4ml"].keys() <= record.counts["wa_hls4ml"].keys()
    assert made["unjudged"] == not_judged(record)
    often = dict.fromkeys(record.counts["ncpp"], 20)
    listed = not_judged(replace(record, counts={"ncpp": often}))
    assert len(listed) == len(often)
    assert all("no answer of this kind on this device was validated" in line for line in listed)


def test_a_release_that_gets_worse_in_a_slice_is_refused_and_names_it(
    artifact, bundles, tmp_path, monkeypatch
):
    """A correction for one width is off by a fifth; with a reason, the release is made anyway."""
    predict = BenchmarkBoost.predict

    def off(self, queries):
        found = predict(self, queries)
        wide = [dict(query.benchmark.settings).get("d_out") == width for query in queries]
        values = {name: np.where(wide, 1.2 * v, v) for name, v in found.values.items()}
        return replace(found, values=values)

    width = dict(rows_of(bundles).queries[0].benchmark.settings)["d_out"]
    options = {"names": [SUITES], "base": artifact, "data": bundles, "track": False}
    options |= {"protocols": ["unseen_width"]}
    release(tmp_path / "same", **options)
    monkeypatch.setattr(BenchmarkBoost, "predict", off)
    with pytest.raises(SlicesGotWorse, match=r"wa_hls4ml unseen_width/.*--accept REASON"):
        release(tmp_path / "worse", **options)
    assert not (tmp_path / "worse").exists()
    made = release(tmp_path / "worse", **options, accepted="measured anew")
    assert {one["accepted"] for one in made["evaluations"]} == {"measured anew"}


def rows_of(bundles):
    bundle = Bundle.open(bundles / "wa_hls4ml", "wa_hls4ml")
    return protocols_of_dataset("wa_hls4ml").training_rows(bundle, DeviceCatalog.load())


# The gate sees a constant of a fitted correction that is off, in a table of another dataset.


@pytest.fixture(scope="module")
def task():
    """Eager networks, which train none of the predictors of time."""
    bundle = Bundle.open(TorchGpu().packaged().folder, "torch_gpu")
    rows = measured_runs(bundle, DeviceCatalog.load())
    eager = (rows.groups["mode"] == "eager") & (rows.groups["phase"] == "inference")
    return Task("eager/inference_latency", "latency_ms", rows.take(eager))


def with_host_constant(factor):
    """The bundled predictors with the time of one operator on the host times a factor."""
    loaded = bundled()
    parts = []
    for part in loaded.predictor.parts:
        if part.name == "network_latency":
            mean = part.host.mean.copy()
            mean[list(TERMS).index("operator")] += np.log(factor)
            part = replace(part, host=replace(part.host, mean=mean))
        parts.append(part)
    return replace(loaded, predictor=replace(loaded.predictor, parts=tuple(parts)))


def evaluation(task, factor):
    answers = WholeAnswers(InUse(with_host_constant(factor)), (task.metric,))
    cells = cells_of([predict_task(task, answers, None, 0, 0)])
    return [{"dataset": "torch_gpu", "tasks": [], "cells": cells}]


def test_a_host_time_constant_that_is_off_by_a_fifth_is_refused(task):
    before = evaluation(task, 1.0)
    with pytest.raises(SlicesGotWorse, match="torch_gpu eager/inference_latency"):
        _accepted(evaluation(task, 1.2), before, "")
    assert _accepted(evaluation(task, 1.0), before, "") == before


# A card says all that its data holds, and the same data makes the same card.


TASKS = [
    {
        "task": f"unseen_device/{part}",
        "device": device,
        "metric": "latency_ms",
        **score([1.0, 2.0, 4.0], [1.1, 2.0, 4.4], [0.5, 1.0, 2.0], [2.0, 4.0, 8.0]),
        "baselines": {"roofline": roofline, "published_neusight": None},
    }
    for part, device, roofline in (("bmm", "a100-80", 41.25), ("e2e", None, 27.0))
]
CARD = Card(
    title="forerun predictors",
    answers=["latency of networks", "power of kernels"],
    trained_on=[
        ("neusight", "327,919", "t4, v100", f"`{'d' * 16}`", "sitar-lab/NeuSight, MIT"),
    ],
    evaluations=[{"dataset": "neusight", "tasks": TASKS}],
    limits=["no multi-GPU runs"],
    command="forerun train --output models/pretrained",
    created="2026-11-20",
    commit="a" * 40,
    versions={"numpy": "2.4.6", "lightgbm": "4.7.0"},
)


def tables(text):
    blocks = [b for b in text.split("\n\n") if b.startswith("|")]
    return [[line.strip("| ").split(" | ") for line in block.splitlines()] for block in blocks]


def rows_of_table(text, column):
    """The rows of the only table of a card that has a column, as cells by column."""
    (table,) = (own for own in tables(text) if column in own[0])
    return [dict(zip(table[0], row, strict=True)) for row in table[2:]]


def test_the_same_data_give_the_same_card():
    shuffled = replace(CARD, versions=dict(reversed(CARD.versions.items())))
    assert CARD.markdown() == shuffled.markdown()


@pytest.mark.parametrize(
    "said",
    ["latency of networks", "327,919", "t4, v100", f"`{'d' * 16}`", "sitar-lab/NeuSight, MIT",
     "no multi-GPU runs", "forerun train --output models/pretrained", "2026-11-20", "a" * 40,
     "lightgbm 4.7.0"],
)  # fmt: skip
def test_a_card_shows_its_data(said):
    assert said in CARD.markdown()


def test_our_scores_are_listed_with_every_baseline():
    bmm, whole = rows_of_table(CARD.markdown(), "within 10 %")
    assert bmm["MAPE"] == "**6.7 %**"
    assert bmm["MAPE of roofline"] == "41.2 %"
    assert bmm["MAPE of published neusight"] == "–", "a score that does not apply"
    assert (bmm["device"], whole["device"]) == ("a100-80", "all")


def test_errors_of_shares_are_absolute_and_shown_with_the_noise_of_repeats():
    rows = [
        {**TASKS[0], "score": "mae", "predictor": name, "mae": error, "mae_of_repeats": 0.0986}
        | {"auc_below_0.9": 0.82, "baselines": {"program_mean": 29.3}, "mae_program_mean": 0.1572}
        for name, error in (("colocation_boost", 0.1375), ("colocation_network", 0.1444))
    ]
    text = replace(CARD, evaluations=[{"dataset": "contention", "tasks": rows}]).markdown()
    one, other = rows_of_table(text, "predictor")
    assert (one["predictor"], one["error"]) == ("`colocation_boost`", "**0.138**")
    assert (other["predictor"], other["error"]) == ("`colocation_network`", "**0.144**")
    assert (one["repeats"], one["program mean"]) == ("0.099", "0.157")
    assert not [t for t in tables(text) if "within 10 %" in t[0]]


def test_a_stored_evaluation_without_the_error_of_a_share_has_no_figure_for_it():
    task = {**TASKS[0], "score": "mae", "predictor": "whole", "mae_of_repeats": 0.0986}
    text = replace(CARD, evaluations=[{"dataset": "contention", "tasks": [task]}]).markdown()
    (own,) = rows_of_table(text, "repeats")
    assert (own["error"], own["repeats"]) == ("**–**", "0.099")


def test_every_published_figure_on_the_dataset_is_cited():
    text = CARD.markdown()
    for figure in published_for("neusight"):
        assert f"| {figure.system} | {figure.task} | {figure.value:.1f} %" in text
        assert figure.citation in text


def test_calibration_is_shown_where_there_are_intervals():
    rows = rows_of_table(CARD.markdown(), "inside the interval")
    assert [[*row.values()][-2:] for row in rows] == [["100.0 %", "4.00"]] * 2
    bare = {**TASKS[0], "coverage_90": None}
    without = replace(CARD, evaluations=[{"dataset": "neusight", "tasks": [bare]}])
    assert "inside the interval" not in without.markdown()


def test_every_table_is_valid_whatever_its_cells_hold():
    odd = replace(CARD, trained_on=[("a|b", "1", "", "d", "two\nlines")])
    for table in tables(odd.markdown().replace("\\|", "/")):
        assert {len(row) for row in table} == {len(table[0])}


def test_an_empty_card_says_so():
    empty = Card("Empty", [], [], [], [], "true", "2000-01-01").markdown()
    assert empty.count("None.") == 4
    assert "no known commit" in empty


def test_datasets_are_read_from_the_training_record():
    record = TrainingRecord(
        {"timm_bench": "b", "neusight": "a"},
        {"neusight": {"device": ["p4", "t4"]}},
        {"neusight": 5},
    )
    first, second = training_datasets_of(record, {"neusight": "MIT"})
    assert first == ("neusight", "5", "p4, t4", "`a`", "MIT")
    assert second == ("timm_bench", "–", "–", "`b`", "")


def test_versions_of_missing_packages_are_left_out():
    assert set(versions_of(["numpy", "no-such-package"])) == {"numpy"}


# A release in MLflow: runs for training and evaluation, flat settings, folds, and pictures.


FOUR_GPUS = {**GPUS, "A10": 0.8}
"""Without one, three are left: enough for intervals on a device outside of the table."""
ROWS = 72


def run_cli(*words):
    cli.app([str(word) for word in words], standalone_mode=False)


@pytest.fixture
def runs(store, tmp_path):
    """Kind of each run of a small release -> the runs, as MLflow gives them."""
    run_cli(
        "data", "import", settings_table(tmp_path, FOUR_GPUS), "--name", "mine", "--rest", "setting"
    )
    words = ("--protocol", "unseen_device", "--output", tmp_path / "made")
    run_cli("train", "mine", "--alone", *words)
    client = connect()
    experiment = client.get_experiment_by_name(EXPERIMENT)
    found = {}
    for run in client.search_runs([experiment.experiment_id]):
        found.setdefault(run.data.tags[KIND], []).append(run)
    return found


@pytest.mark.slow
def test_a_release_is_a_run_with_one_for_training_and_one_for_evaluation(runs):
    (release,), (training,), (evaluation,) = (
        runs[kind] for kind in ("release", "training", "evaluation")
    )
    names = [run.info.run_name for run in (release, training, evaluation)]
    assert names == [
        "release table_boost on mine",
        "train table_boost on mine",
        "evaluate table_boost on mine",
    ]
    for part in (training, evaluation):
        assert part.data.tags["mlflow.parentRunId"] == release.info.run_id
    assert_used("mine", training, evaluation)
    assert_scores_and_pictures(evaluation)


def assert_used(table, training, evaluation):
    """The training run has settings and no scores; both name the dataset and its use."""
    assert training.data.params == {
        "predictor": "table_boost",
        "table": table,
        "own_devices": "True",
        "seed": "0",
        "trees": "400",
    }
    assert not training.data.metrics
    for run, context in ((training, "training"), (evaluation, "evaluation")):
        (given,) = run.inputs.dataset_inputs
        assert given.dataset.name == table
        assert given.dataset.digest == run.data.tags[f"dataset.{table}"][:36]
        assert {tag.key: tag.value for tag in given.tags}["mlflow.data.context"] == context
        assert json.loads(given.dataset.profile) == {"rows": ROWS}
    assert evaluation.data.params["held_out_rows"] == str(2 * ROWS)


def assert_scores_and_pictures(evaluation):
    """Scores are those of tasks and of each fold; there are two pictures of each metric."""
    client, run_id = connect(), evaluation.info.run_id
    task = "unseen_device/latency_ms/all"
    assert evaluation.data.metrics[f"{task}/n"] == ROWS
    folds = client.get_metric_history(run_id, f"folds/{task}/mape")
    assert [point.step for point in folds] == [0, 1, 2, 3]
    assert evaluation.data.metrics[f"{task}/mape"] == pytest.approx(
        sum(point.value for point in folds) / 4, rel=1e-4
    ), "folds are of equal size"
    pictures = {entry.path for entry in client.list_artifacts(run_id, "figures")}
    assert pictures == {
        f"figures/mine-{metric}-{picture}.png"
        for metric in ("latency_ms", "peak_memory_mib")
        for picture in ("parity", "calibration")
    }


@for_every("name", PREDICTORS)
def test_parameters_of_every_predictor_are_plain_values(name):
    if name == Router.name:
        return
    for key, value in flat_parameters(unfitted(name)).items():
        assert value is None or isinstance(value, bool | int | float | str)
        assert "(" not in key and " at 0x" not in str(value) and "(" not in str(value)


def test_settings_of_parts_are_named_with_dots():
    found = flat_parameters(Router((Roofline(), DeviceTime(trees=7))))
    assert found["parts.0.predictor"] == "roofline"
    assert found["parts.1.trees"] == 7
    nested = flat_parameters(NetworkLatency())
    assert all(isinstance(value, bool | int | float | str | None) for value in nested.values())
    assert flat_parameters(ArchitectureLatency()) == ArchitectureLatency().get_params(deep=False)
    assert flat_parameters(object()) == {}


def test_a_release_name_lists_few_predictors_and_counts_many():
    assert release_name([Recipe("cpu_latency", ("onnxruntime_cpu",))]) == (
        "cpu_latency on onnxruntime_cpu"
    )
    many = [Recipe(n, e.trained_on[0]) for n, e in PREDICTORS.items() if e.trained_on]
    assert release_name(many).startswith(f"{len(many)} predictors on ")
