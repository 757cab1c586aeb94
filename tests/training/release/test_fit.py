"""Predictors are sealed together; some can be fitted again while others are kept."""

import json
import shutil
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.benchmark_suites.lambda_bench import LambdaBench
from forerun.data.datasets.benchmark_suites.ncpp import Ncpp
from forerun.data.datasets.hls_designs.wa_hls4ml import WaHls4ml
from forerun.data.datasets.memory.gpumemnet import GpuMemNet
from forerun.data.datasets.memory.published_memory import PublishedMemory
from forerun.data.datasets.networks.deepbench import DeepBench
from forerun.data.device import DeviceCatalog
from forerun.data.errors import BadArtifact, InputError, SlicesGotWorse
from forerun.models.artifact.sealed_folder import bundled, check
from forerun.models.artifact.stored_predictor import load_part
from forerun.models.artifact.training_record import TrainingRecord
from forerun.models.benchmark_suites.scores import BenchmarkBoost
from forerun.models.catalog import PREDICTORS
from forerun.models.networks.latency import NetworkLatency
from forerun.training.protocols import DATASET_PROTOCOLS, protocols_of_dataset
from forerun.training.release import fit
from forerun.training.release.fit import (
    Recipe,
    _composed,
    _parts,
    composable,
    recipes,
    recipes_of,
    train,
)
from forerun.training.release.pipeline import release
from forerun.training.release.promotion import not_judged
from tests.contracts.tiny_upstream import tiny_upstream

DEVICE_TIMES = PREDICTORS["network_latency"].contains
MEMORY, RANGES, SUITES = "memory", "calibrated_memory", "benchmark_boost"


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    """Made-up rows of four datasets, a folder each."""
    folder = tmp_path_factory.mktemp("bundles")
    for dataset in (WaHls4ml(), Ncpp(), GpuMemNet(), PublishedMemory()):
        tables = dataset.tidy(tiny_upstream(dataset.name, folder / f"{dataset.name}-upstream"))
        Bundle.write(folder / dataset.name, dataset.name, tables, as_csv=dataset.csv_tables)
    return folder


@pytest.fixture(scope="module")
def artifact(bundles, tmp_path_factory):
    output = tmp_path_factory.mktemp("artifact") / "predictor"
    release(output, names=[SUITES], data=bundles, protocols=["unseen_width"], track=False)
    return output


def data(bundles):
    return {name: bundles / name for name in ("wa_hls4ml", "ncpp", "gpumemnet", "published_memory")}


@pytest.mark.slow
def test_the_training_set_is_recorded(artifact):
    record = TrainingRecord.read(artifact)
    assert set(record.digests) == set(record.rows) == {"wa_hls4ml", "ncpp"}
    assert record.rows["wa_hls4ml"] == 15


def test_a_base_keeps_what_is_not_fitted_anew_and_its_scores(bundles, artifact, tmp_path):
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


def test_scores_of_answers_that_a_fitted_predictor_takes_part_in_are_dropped(
    bundles, artifact, tmp_path
):
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
def test_parts_of_one_name_are_replaced_together_in_their_order(bundles, tmp_path):
    first = train(tmp_path / "first", names=[SUITES], data=data(bundles))
    again = train(tmp_path / "again", names=[SUITES], base=first.folder, data=data(bundles))
    assert again.manifest.version == first.manifest.version
    before, after = load_part(first.folder), load_part(again.folder)
    assert [p.settings.keys() for p in before.parts] == [p.settings.keys() for p in after.parts]


def test_an_unknown_predictor_is_named(bundles, tmp_path):
    with pytest.raises(InputError, match="oracle"):
        train(tmp_path / "new", names=["oracle"], data=data(bundles))
    assert not (tmp_path / "new").exists()


def test_ranges_of_memory_are_calibrated_anew_around_the_memory_of_an_artifact(bundles, tmp_path):
    whole = train(tmp_path / "whole", names=[MEMORY], data=data(bundles))
    assert composable(whole.folder) == {RANGES}
    again = train(tmp_path / "again", names=[RANGES], base=whole.folder, data=data(bundles))
    assert again.manifest.version == whole.manifest.version
    (part,) = load_part(again.folder).parts
    assert part.name == RANGES


def names_of(names, composed=()):
    return [recipe.predictor for recipe in recipes_of(names, composed)]


def test_what_is_composed_of_a_predictor_is_fitted_with_it():
    parts, whole = list(DEVICE_TIMES), "network_latency"
    assert names_of(parts) == [*parts, whole]
    assert names_of(parts[:1], {whole}) == [parts[0], whole]
    assert names_of(parts[:1]) == parts[:1]
    assert names_of([MEMORY], {whole}) == [MEMORY, RANGES]


def test_what_a_composed_predictor_needs_is_fitted_where_no_artifact_holds_it():
    parts, whole = list(DEVICE_TIMES), "network_latency"
    assert names_of([whole]) == [*parts, whole]
    assert names_of([whole], {whole}) == [whole]
    assert names_of([RANGES]) == [MEMORY, RANGES]
    assert names_of([RANGES], {RANGES}) == [RANGES]


@pytest.mark.slow
def test_the_predictors_of_an_artifact_are_composed_anew(artifact):
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
def test_the_sealed_folder_is_whole(artifact, bundles, tmp_path):
    made = train(tmp_path / "made", names=[SUITES], data=data(bundles))
    assert check(made.folder).version == made.manifest.version


def test_rows_of_several_datasets_train_one_predictor_and_are_on_record(tmp_path, monkeypatch):
    for dataset in (DeepBench(), LambdaBench()):
        tables = dataset.tidy(tiny_upstream(dataset.name, tmp_path / f"{dataset.name}-upstream"))
        Bundle.write(tmp_path / dataset.name, dataset.name, tables, as_csv=dataset.csv_tables)
    both = Recipe("constant", ("deepbench", "lambda_bench"))
    monkeypatch.setattr(fit, "recipes", lambda: (both,))
    folders = {name: tmp_path / name for name in ("deepbench", "lambda_bench")}
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
        assert recipe.predictor == recipe.all_protocols[0].predictor_names[0]
    for name, entry in PREDICTORS.items():
        for dataset in entry.evaluated_on:
            assert name in protocols_of_dataset(dataset).predictor_names


def test_every_protocol_has_a_predictor():
    assert all(cls().predictor_names for cls in DATASET_PROTOCOLS)


def test_a_release_records_what_it_was_scored_on_and_lists_what_it_was_not(bundles, tmp_path):
    options = {"names": [SUITES], "data": bundles, "track": False, "protocols": ["unseen_width"]}
    made = release(tmp_path / "scored", **options)
    record = TrainingRecord.read(tmp_path / "scored")
    assert record.judged["ncpp"] == {}, "its protocols were not asked for"
    assert set() < record.judged["wa_hls4ml"].keys() <= record.counts["wa_hls4ml"].keys()
    assert made["unjudged"] == not_judged(record)
    often = dict.fromkeys(record.counts["ncpp"], 20)
    listed = not_judged(replace(record, counts={"ncpp": often}))
    assert len(listed) == len(often)
    assert all("0 held-out rows scored, 20 needed" in line for line in listed)


def test_a_release_that_gets_worse_in_a_slice_is_refused_and_names_it(
    artifact, bundles, tmp_path, monkeypatch
):
    """A correction of one width is off by a fifth; a reason makes the release all the same."""
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
