"""Every dataset, on made-up tables: held-out and training rows never change unintentionally.

`pinned.json` has digests of training rows, folds and tasks. After an intended change,
`python -m tests.training.protocols.test_every_dataset` stores the current ones; explain the change
in the commit message.
"""

import hashlib
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from forerun.data.bundle import find
from forerun.data.datasets import DATASETS
from forerun.data.split import LeakedRows
from forerun.training.evaluation.refit import digest
from forerun.training.protocols import DATASET_PROTOCOLS, TRAINING_PARTS, protocols_of_dataset
from tests.devices import CATALOG
from tests.training.toy_bundles import NOT_IN_TOYS, toy_folds, write_bundles

PINNED = Path(__file__).with_name("pinned.json")
MADE_UP = {cls().name for cls in DATASETS}
NAMES = [cls.dataset for cls in DATASET_PROTOCOLS if cls.dataset in MADE_UP]


def digest_of(task):
    """Digest of all that a task says; figures to six digits, as processors differ in the last."""
    support, found = task.support, hashlib.sha256()
    for rows in (task.held_out, support.pool, support.always):
        found.update(b"" if rows is None else digest(rows).encode())
    scale = task.scale(np.linspace(0.1, 9.0, 9)) if task.scale else None
    facts = [task.name, task.metric, task.device, task.device_only, scale, task.baselines]
    facts += [support.shots, support.suggested, support.offset_by]
    facts += [(type(score).__name__, vars(score)) for score in task.scores]
    found.update(text_of(facts).encode())
    return found.hexdigest()


def text_of(value):
    if isinstance(value, dict):
        return text_of(sorted(value.items()))
    if isinstance(value, list | tuple | np.ndarray):
        return f"({' '.join(map(text_of, value))})"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def joined(digests):
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()[:16]


def of_dataset(name):
    """What there is -> its digest, or the class of the error where the made-up rows have none."""
    protocols, bundle = protocols_of_dataset(name), find(name)
    sources = [protocols, *(own for own in TRAINING_PARTS.values() if own.dataset == name)]
    found, seen = {}, {}
    for source in sources:
        for rows in attempted(lambda own=source: [own.training_rows(bundle, CATALOG)]):
            known = not isinstance(rows, str)
            found[f"rows of {source.source}"] = joined([digest(rows) if known else rows])
            if known and source is protocols:
                seen = {key: sorted({*column})[::2] for key, column in rows.groups.items()}
    folds = {}
    for fold in attempted(lambda: toy_folds(name)):
        own = folds.setdefault(getattr(fold, "protocol", fold), [])
        if not isinstance(fold, str):
            keys = {key: sorted(values) for key, values in fold.without.items()}
            own += [digest(fold.train), json.dumps(keys, sort_keys=True), fold.source or ""]
            own += map(digest_of, fold.tasks)
    found |= {f"folds of {name}": joined(own) for name, own in folds.items()}
    for what, own in (("nothing seen", {}), ("half seen", seen)):
        tasks = attempted(lambda own=own: list(protocols.evaluation_tasks(bundle, CATALOG, own)))
        found[what] = joined(t if isinstance(t, str) else digest_of(t) for t in tasks)
    left = attempted(lambda: list(protocols.left_out(bundle, CATALOG, seen).items()))
    found["left out"] = joined(map(str, left))
    return found


def attempted(what):
    try:
        return what()
    except NOT_IN_TOYS as error:
        return [type(error).__name__]


@pytest.mark.parametrize("name", NAMES)
def test_rows_folds_and_tasks_are_as_they_were(name, home):
    assert of_dataset(name) == json.loads(PINNED.read_text())[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_held_out_row_among_training_rows_is_noticed(name, home, monkeypatch):
    protocols, bundle = protocols_of_dataset(name), find(name)
    folds = attempted(lambda: toy_folds(name))
    checked = [fold for fold in folds if not isinstance(fold, str) and fold.without]
    if not checked:
        pytest.skip("made-up rows have no fold that holds out groups")
    for fold in checked:
        held = fold.tasks[0].held_out if fold.held_out is None else fold.held_out
        leaking = replace(fold, train=fold.train + held.take([0]))
        monkeypatch.setattr(protocols, "folds", lambda *given, own=leaking: iter([own]))
        monkeypatch.setattr(
            protocols, "held_out_by", {fold.protocol.partition("/")[0]: tuple(fold.without)}
        )
        with pytest.raises(LeakedRows, match=name):
            list(protocols.checked_folds(bundle, CATALOG))


@pytest.mark.parametrize("name", NAMES)
def test_tasks_fit_their_rows(name, home):
    folds = attempted(lambda: toy_folds(name))
    for task in (task for fold in folds if not isinstance(fold, str) for task in fold.tasks):
        rows = task.held_out
        assert len(rows)
        assert task.metric in rows.values
        assert {len(column) for column in task.baselines.values()} <= {len(rows)}
        assert task.device is None or {q.device.name for q in rows.queries} == {task.device}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FORERUN_HOME"] = folder
        write_bundles(Path(folder))
        stored = {name: of_dataset(name) for name in NAMES}
    PINNED.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
