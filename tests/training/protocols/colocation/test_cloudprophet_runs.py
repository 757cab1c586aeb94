"""cloudprophet_runs as measurements and tasks: no query contains a result of its run."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.colocation.cloudprophet_runs import (
    NEIGHBOUR_COLUMNS,
    RESULTS,
    CloudProphetRuns,
)
from forerun.training.evaluation.evaluate import rows, run_protocols
from forerun.training.protocols import protocols_of_dataset
from forerun.training.protocols.colocation.cloudprophet_runs import (
    NOBODY,
    fair_share,
    main_neighbour,
    neighbour_median,
    rules,
    run_measurements,
)
from tests.contracts.tiny_cloudprophet import cloudprophet_table
from tests.devices import CATALOG

KNOWN = np.ones(120, dtype=bool)


@pytest.fixture(scope="module")
def packaged(tmp_path_factory):
    """The table of the package, a quarter of its runs."""
    table = CloudProphetRuns().tidy(CloudProphetRuns().packaged())["runs"].iloc[::4]
    folder = tmp_path_factory.mktemp("runs") / "bundle"
    return Bundle.write(folder, "cloudprophet_runs", {"runs": table.reset_index(drop=True)})


def test_no_result_of_a_run_is_part_of_its_question():
    table = cloudprophet_table()
    changed = table.assign(**{name: table[name].fillna(1.0) * 7.0 for name in RESULTS})
    one, other = (run_measurements(frame, KNOWN).queries for frame in (table, changed))
    assert one == other
    asked = {name for query in one for name, _ in query.workload.settings}
    assert asked == {*NEIGHBOUR_COLUMNS, "application", "log_load"}


PROTOCOLS = protocols_of_dataset("cloudprophet_runs")


def experiments(bundle):
    """The folds that hold out an experiment each."""
    folds = PROTOCOLS.folds(bundle, CATALOG)
    return (fold for fold in folds if fold.protocol == "leave_one_experiment_out")


def test_ideal_speeds_of_a_held_out_experiment_come_from_the_others(packaged):
    runs = packaged.table("runs")
    before = {str(e.tasks[0].held_out.groups["experiment"][0]): e for e in experiments(packaged)}
    out = runs["exp"] == "exp_v10"
    faster = runs.assign(perf_value=runs["perf_value"].where(~out, runs["perf_value"] * 3.0))
    table = run_measurements(faster, (~out).to_numpy())
    theirs = before["exp_v10"].train.values["p_wall"]
    mine = table.take((~out & runs["perf_value"].notna()).to_numpy())
    finite = mine.values["p_wall"][np.isfinite(mine.values["p_wall"])]
    np.testing.assert_array_equal(finite, theirs)


def test_an_experiment_that_the_package_lacks_is_predicted_by_a_fit_on_the_package(tmp_path):
    table = cloudprophet_table(("exp_new",)).assign(app="redis", vm=1, load_param=np.nan)
    bundle = Bundle.write(tmp_path / "b", "cloudprophet_runs", {"runs": table})
    (fold,) = PROTOCOLS.folds(bundle, CATALOG)
    assert fold.protocol == "leave_one_experiment_out"
    assert len(fold.train) == 2463
    assert set(fold.tasks[0].held_out.groups["experiment"]) == {"exp_new"}
    assert list(PROTOCOLS.evaluation_tasks(bundle, CATALOG, {})) == []


def test_rules_are_fitted_only_on_training_rows():
    found = run_measurements(cloudprophet_table(), KNOWN)
    finite = np.isfinite(found.values["p_wall"])
    out = found.groups["experiment"] == "exp_c"
    train, held_out = found.take(finite & ~out), found.take(finite & out)
    answers = rules(train, held_out)
    assert (answers["rule_unslowed"] == 1.0).all()
    doubled = rules(train, replace(held_out, values={"p_wall": 2.0 * held_out.values["p_wall"]}))
    for name, column in answers.items():
        np.testing.assert_array_equal(doubled[name], column)


def test_a_busy_neighbour_takes_the_share_that_training_shows():
    table = cloudprophet_table()
    slowed = 0.5 / (1.0 + 0.25 * table["co_busy_vms"])
    table = table[table["app"] == "redis"].assign(vm=1, perf_value=slowed)
    rows_ = run_measurements(table, np.ones(len(table), dtype=bool))
    truth = 1.0 / (1.0 + 0.25 * table["co_busy_vms"].to_numpy())
    exact = replace(rows_, values={"p_wall": truth})
    np.testing.assert_allclose(fair_share(exact, exact), truth)


def test_medians_fall_back_to_the_neighbour_then_to_all():
    table = cloudprophet_table()
    table["co_redis"] = 2.0
    found = run_measurements(table, KNOWN)
    finite = np.isfinite(found.values["p_wall"])
    web = found.groups["application"] == "web_serving"
    train, held_out = found.take(finite & ~web), found.take(web)
    expected = np.median(train.values["p_wall"])
    np.testing.assert_allclose(neighbour_median(train, held_out), expected)


def test_the_main_neighbour_is_the_one_that_ran_longest():
    table = cloudprophet_table().head(2).assign(co_media_streaming=[0.2, 0.0], co_redis=[0.6, 0.0])
    assert main_neighbour(table).tolist() == ["redis", NOBODY]


@pytest.mark.slow
def test_the_evaluation_reports_the_rules(packaged):
    asked = {"protocols": ("leave_one_experiment_out",), "predictors": ("neighbour_boost",)}
    (row,) = rows(list(run_protocols(PROTOCOLS, packaged, **asked)))
    assert row["task"] == "leave_one_experiment_out/p_wall"
    names = ("unslowed", "fair_share", "neighbour_median", "application_median")
    assert all(row[f"mae_rule_{name}"] > 0 for name in names)
    assert row["mae"] < row["mae_rule_unslowed"]
    assert row["repeated_rows"] == 0


@pytest.mark.slow
def test_planted_results_would_improve_the_score(packaged):
    """The leakage test: excluded columns would reveal the answer, so excluding them matters."""
    fold = next(experiments(packaged))

    def error(smuggle):
        train, held_out = (
            with_answer(part, smuggle) for part in (fold.train, fold.tasks[0].held_out)
        )
        answers = PROTOCOLS.predictor().fit(train).predict(held_out.queries).values["p_wall"]
        return np.abs(answers - held_out.values["p_wall"]).mean()

    assert error(True) < 0.6 * error(False)


def with_answer(part, smuggle):
    """The same rows, with the result in place of the number of busy neighbours."""
    queries = []
    for query, value in zip(part.queries, part.values["p_wall"], strict=True):
        settings = dict(query.workload.settings)
        if smuggle:
            settings["co_busy_vms"] = float(value)
        workload = replace(query.workload, settings=tuple(sorted(settings.items())))
        queries.append(replace(query, workload=workload))
    return replace(part, queries=queries)
