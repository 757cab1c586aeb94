"""Protocols of zeus_powercap: each GPU held out, and a folder with one new GPU."""

import pytest

from forerun.models.power.training_jobs import PowerCap
from forerun.training.evaluation.evaluate import rows
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
