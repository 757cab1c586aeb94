"""A release in MLflow: runs for training and evaluation, flat settings, folds, and pictures."""

import json

import pytest

from forerun.models.architectures.latency import ArchitectureLatency
from forerun.models.baselines.roofline import Roofline
from forerun.models.catalog import PREDICTORS, unfitted
from forerun.models.networks.device_time import DeviceTime
from forerun.models.networks.latency import NetworkLatency
from forerun.models.router import Router
from forerun.service import cli
from forerun.training.release.fit import Recipe
from forerun.training.release.tracked_release import KIND, release_name
from forerun.training.tracking.runs import EXPERIMENT, connect, flat_parameters
from tests.every import for_every
from tests.service.own_tables.tables import GPUS, settings_table

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


def test_a_release_of_few_names_them_and_one_of_many_counts_them():
    assert release_name([Recipe("cpu_latency", ("onnxruntime_cpu",))]) == (
        "cpu_latency on onnxruntime_cpu"
    )
    many = [Recipe(n, e.trained_on[0]) for n, e in PREDICTORS.items() if e.trained_on]
    assert release_name(many).startswith(f"{len(many)} predictors on ")
