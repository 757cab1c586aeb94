"""Protocols of splitwise: pairs of model and hardware held out."""

import itertools

import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.datasets.language_models.splitwise import RUNS
from forerun.training.protocols.language_models.static_batches import SplitwiseProtocols
from tests.training.protocols.language_models.batch_tables import CATALOG, RUN


def test_pairs_and_hardware_are_held_out_whole(tmp_path):
    pairs = itertools.product(("llama2-70b", "bloom-176b"), ("a100-80gb", "h100-80gb"), (1, 4))
    frame = pd.DataFrame([RUN | {"model": a, "hardware": b, "batch_size": c} for a, b, c in pairs])
    bundle = Bundle.write(tmp_path / "b", "splitwise", {RUNS: frame})
    folds = list(SplitwiseProtocols().folds(bundle, CATALOG))
    assert [fold.protocol for fold in folds] == ["unseen_setup"] * 4 + ["unseen_device"] * 2
    for fold in folds:
        (task,) = fold.tasks
        names = ("device", "model") if fold.protocol == "unseen_setup" else ("device",)
        sides = [
            set(zip(*(side.groups[name] for name in names), strict=True))
            for side in (fold.train, task.held_out)
        ]
        assert not sides[0] & sides[1]
        assert len(sides[1]) == 1
        assert len(fold.train) + len(task.held_out) == len(frame)
        assert (task.baselines["closed_form"] > 0).all()
    (task,) = SplitwiseProtocols().evaluation_tasks(bundle, CATALOG, {})
    assert len(task.held_out) == len(frame)
