"""Protocols of zeus_powercap: each GPU held out, and a folder with one new GPU."""

import numpy as np
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.power.zeus_powercap import TRACE
from forerun.models.artifact.sealed_folder import LoadedPredictor
from forerun.models.artifact.training_record import TrainingRecord
from forerun.models.power.training_jobs import PowerCap
from forerun.models.router import Router
from forerun.training.evaluation.evaluate import evaluate, rows
from forerun.training.protocols.power.torch_op_energy import (
    ZeusPowerCapProtocols,
    best_share,
    board,
)
from tests.devices import CATALOG
from tests.training.fits import predictions_of


class Quick(ZeusPowerCapProtocols):
    """A predictor without intervals, which take most of the time."""

    def predictor(self, seed=0):
        return PowerCap(seed=seed, calibrated=False)


def test_time_is_per_epoch_in_milliseconds_and_the_query_has_the_limit(made_up):
    bundle = made_up("zeus_powercap")
    table, found = bundle.table(TRACE), ZeusPowerCapProtocols().training_rows(bundle, CATALOG)
    np.testing.assert_allclose(found.values["latency_ms"], 1e3 * table["time_per_epoch"])
    product = table["time_per_epoch"] * table["average_power"]
    np.testing.assert_allclose(found.values["energy_j"], product)
    limits = [query.operation.power_limit_w for query in found.queries]
    assert limits == table["power_limit"].tolist()


def test_names_and_devices_are_keys_but_not_settings(made_up):
    found = ZeusPowerCapProtocols().training_rows(made_up("zeus_powercap"), CATALOG)
    settings = {name for query in found.queries for name, _ in query.workload.settings}
    assert settings == {"dataset", "network", "optimizer", "batch_size"}
    assert set(found.groups) == {"device", "job"}


@pytest.mark.parametrize("name", ["RTX6000", "rtx6000", "Quadro RTX 6000", "quadro_rtx_6000"])
def test_an_rtx_6000_of_this_trace_is_the_turing_board(name):
    assert board(name, CATALOG).name == "quadro-rtx-6000"


def test_the_choice_of_a_power_limit_is_scored_with_the_energy(made_up):
    dataset_protocols = Quick()
    fold = next(dataset_protocols.folds(made_up("zeus_powercap"), CATALOG))
    found = {
        row["metric"]: row
        for row in rows(predictions_of(dataset_protocols, fold, (6,), predictors=("power_cap",)))
    }
    assert found["energy_j"]["choices"] == 3
    assert set(found["energy_j"]["chosen_by_rule"]) == {"largest_limit", "taught_share"}
    assert "choices" not in found["power_w"]
    assert found["power_w"]["mape"] < 10


def test_the_share_that_saves_most_is_found(made_up):
    rows_ = ZeusPowerCapProtocols().training_rows(made_up("zeus_powercap"), CATALOG)
    share = best_share(rows_)
    assert 0.4 <= share <= 0.5


def test_a_folder_of_one_new_gpu_is_evaluated_with_and_without_shots(made_up, tmp_path):
    whole = made_up("zeus_powercap").table(TRACE)
    old = Bundle.write(tmp_path / "t", "zeus_powercap", {TRACE: whole[whole["gpu"] != "A40"]})
    dataset_protocols = Quick()
    rows_ = dataset_protocols.training_rows(old, CATALOG)
    record = TrainingRecord().with_rows(old, rows_)
    loaded = LoadedPredictor(
        Router((dataset_protocols.predictor().fit(rows_),)), "1", "2000-01-01", ""
    )
    new = Bundle.write(
        tmp_path / "n",
        "zeus_powercap",
        {TRACE: whole[whole["gpu"] == "A40"].assign(gpu="Quadro RTX 6000")},
    )
    for shots in (0, 6):
        found = evaluate(
            "zeus_powercap", current=loaded, record=record, data_dir=new.folder, shots=shots
        )
        assert {row["task"] for row in found["tasks"]} == {
            f"unseen_device/{part}" for part in ("power", "time", "energy")
        }
        assert {row["device"] for row in found["tasks"]} == {"quadro-rtx-6000"}
        assert {row["n"] for row in found["tasks"]} == {24 - shots}
    seen = {"device": ["quadro-rtx-6000"]}
    assert not list(dataset_protocols.evaluation_tasks(new, CATALOG, seen))
