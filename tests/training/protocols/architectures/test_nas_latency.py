"""Protocols of nas_latency: of a held-out device only its support set is known."""

import numpy as np
import pandas as pd
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.architectures.nas_latency import CHOICES, published_protocols
from forerun.data.device import DeviceCatalog
from forerun.features.nas_cells import features_of, random_codes
from forerun.training.evaluation.evaluate import rows, run_protocols
from forerun.training.protocols.architectures.nas_latency import NasLatencyProtocols, spaces

CATALOG = DeviceCatalog.load()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Bundle:
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


def test_no_held_out_device_is_in_the_training_set(bundle):
    folds = list(NasLatencyProtocols().folds(bundle, CATALOG))
    assert {e.protocol for e in folds} >= {"nasflat_nb201", "help_nb201", "every_other_device"}
    for fold in folds:
        trained_on = set(fold.train.groups["device"])
        assert trained_on
        for task in fold.tasks:
            assert set(task.held_out.groups["device"]) == {task.device}
            assert task.device not in trained_on


def test_training_rows_are_the_first_900_architectures(bundle):
    (space,) = spaces(bundle)
    for fold in NasLatencyProtocols().folds(bundle, CATALOG):
        names, counts = np.unique(fold.train.groups["device"], return_counts=True)
        assert set(counts) == {900}
        assert fold.train.queries[0].device.name in names
        train_architectures = [q.workload for q in fold.train.queries[:900]]
        assert train_architectures == list(space.architectures[:900])


def test_help_draws_from_the_middle_and_holds_out_nothing_that_it_was_given(bundle):
    helps = [e for e in NasLatencyProtocols().folds(bundle, CATALOG) if e.protocol == "help_nb201"]
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


def test_what_was_seen_in_one_space_is_unseen_in_another(bundle):
    dataset_protocols = NasLatencyProtocols()
    seen = {"space_device": ["nb201/1080ti-1", "fbnet/fpga"]}
    devices = {t.device for t in dataset_protocols.evaluation_tasks(bundle, CATALOG, seen)}
    assert "1080ti-1" not in devices
    assert len(devices) == 5
    everything = dataset_protocols.training_rows(bundle, CATALOG)
    assert set(everything.groups["space_device"]) == {f"nb201/{d}" for d in devices} | {
        "nb201/1080ti-1"
    }


def test_shots_make_the_answers_good(bundle):
    predictions = run_protocols(NasLatencyProtocols(), bundle, protocols=["nasflat_nb201"])
    found = [row for row in rows(list(predictions)) if row["task"] == "nasflat_nb201/ND"]
    assert len(found) == 2
    for row in found:
        assert row["n"] == 980
        assert row["spearman"] > 0.9
        assert row["median_ape"] < 5.0
