"""`forerun.tune.sampler`: trials of Optuna are new, keep limits, and come near the best."""

import subprocess
import sys

import numpy as np
import pytest

import forerun

optuna = pytest.importorskip("optuna", reason="needs the extra `tune`")


@pytest.fixture(autouse=True)
def quiet():
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def objective(trial):
    """Least, 1, at 6 waves of size 0.01 in mode b; more waves than 8 break a constraint."""
    waves = trial.suggest_int("waves", 1, 12)
    size = trial.suggest_float("size", 1e-4, 1.0, log=True)
    mode = trial.suggest_categorical("mode", ["a", "b"])
    trial.set_constraint("waves", waves - 8.5)
    return (1 + (waves - 6) ** 2 + np.log10(size / 0.01) ** 2) * (1 if mode == "b" else 2)


def study(count, direction="minimize", wanted=objective, **options):
    made = optuna.create_study(direction=direction, sampler=forerun.tune.sampler(**options))
    made.optimize(wanted, count)
    return made


def test_a_study_comes_near_the_best_and_keeps_constraints():
    assert study(40).best_value < 1.3
    most = study(40, "maximize", lambda trial: -objective(trial))
    assert most.best_value > -1.3
    above = [own.params["waves"] > 8 for own in study(40).trials]
    assert np.mean(above[15:]) < 0.2


def test_no_trial_is_repeated():
    def small(trial):
        return trial.suggest_int("a", 1, 3) + trial.suggest_int("b", 0, 8, step=4)

    asked = [tuple(own.params.values()) for own in study(9, wanted=small).trials]
    assert len(set(asked)) == 9
    assert {b for _, b in asked} == {0, 4, 8}


def test_predicted_limits_hold_after_the_first_trial():
    """The first trial is random: Optuna does not know the parameters before it."""

    def predict(settings):
        return {"latency_ms": 2.0 * settings["waves"]}

    made = study(20, limits={"latency_ms": 10.0}, predict=predict)
    assert all(own.params["waves"] <= 5 for own in made.trials[1:])


def test_trials_run_at_once_and_failed_ones_are_not_proposed_again():
    made = optuna.create_study(sampler=forerun.tune.sampler())
    space = {"a": optuna.distributions.IntDistribution(1, 4)}
    made.tell(made.ask(space), 1.0)
    failed = made.ask(space)
    made.tell(failed, state=optuna.trial.TrialState.FAIL)
    at_once = [made.ask(space), made.ask(space)]
    assert len({own.params["a"] for own in (made.trials[0], failed, *at_once)}) == 4


def test_nothing_imports_optuna_before_it_is_asked_for():
    code = "import sys, forerun; forerun.tune.Search; assert 'optuna' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
