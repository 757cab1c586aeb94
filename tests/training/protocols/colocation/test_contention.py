"""Relative speed with neighbours: scores, protocols, leakage, and baseline rules."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.colocation.contention import Contention, windows
from forerun.data.device import Device
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Colocation, HostWindow, ProgramProfile
from forerun.features.host_windows import HOST_METRICS
from forerun.features.tables.contention import colocations, equal_seconds
from forerun.models.colocation import booster as calibration
from forerun.models.colocation import booster as colocation
from forerun.models.colocation.booster import ColocationBoost, ProgramMean
from forerun.training.evaluation.evaluate import rows
from forerun.training.protocols import protocols_of_dataset
from forerun.training.protocols.colocation.contention import (
    PILOT_METRICS,
    contention_measurements,
    fair_share,
    neighbour_median,
    reference_ratio,
    rules,
    steadiness,
)
from forerun.training.scores.task_scores import repeated
from tests.devices import CATALOG
from tests.training.fits import predictions_of


@pytest.fixture(scope="module")
def bundle(made_up):
    """A bundle of the collector's tables, made up."""
    return made_up("contention")


@pytest.fixture(scope="module")
def packaged():
    return Bundle.open(Contention().packaged().folder, "contention")


def test_windows_have_equal_length_and_hold_no_counts(bundle):
    runs, samples = bundle.table("runs"), bundle.table("samples")
    length = equal_seconds(runs, samples)
    found = colocations(runs, samples)
    assert len(found) == len(runs)
    assert {len(one.window.seconds) for one in found} <= {0, length}
    assert sum(len(one.window.seconds) == length for one in found) > 0.9 * len(found)
    assert {name for one in found for name in one.window.metrics} <= set(HOST_METRICS)


def test_profiles_come_from_isolated_runs(bundle):
    runs, samples = bundle.table("runs"), bundle.table("samples")
    colocated = runs["neighbour"] != "none"
    held_out = ("cpu_s", "wall_s", "p_cpu", "p_wall")
    changed = runs.assign(**{name: runs[name].where(~colocated, 1e3) for name in held_out})
    for one, other in zip(colocations(runs, samples), colocations(changed, samples), strict=True):
        assert repr(one.profile) == repr(other.profile)  # What is missing equals nothing.


def test_the_spread_of_programs_comes_from_isolated_runs_and_no_held_out_row(packaged):
    runs, samples = packaged.table("runs"), packaged.table("samples")
    colocated = runs["neighbour"] != "none"

    def spreads(table):
        return {one.profile.program: one.profile.cpu_spread for one in colocations(table, samples)}

    known = spreads(runs)
    assert all(spread is not None and spread > 0 for spread in known.values())
    assert spreads(runs.assign(p_cpu=runs["p_cpu"].where(~colocated, 1e3))) == known
    assert spreads(runs.assign(p_cpu=runs["p_cpu"].where(colocated, runs["p_cpu"] ** 2))) != known


def test_profiles_include_the_effect_of_one_load_only_on_request(bundle):
    runs, samples = bundle.table("runs"), bundle.table("samples")
    plain = {one.profile.p_cpu_beside_cache for one in colocations(runs, samples)}
    assert plain == {None}
    for one in colocations(runs, samples, profiled=True):
        assert one.profile.p_cpu_beside_cache == pytest.approx(0.5, abs=0.02)


def all_tasks(bundle):
    """Protocol of each task -> training rows, and the task."""
    found = {}
    for fold in protocols_of_dataset("contention").folds(bundle, CATALOG):
        for task in fold.tasks:
            found.setdefault(task.name.partition("/")[0], []).append((fold.train, task))
    return found


def test_profiling_runs_are_not_held_out(bundle):
    for protocol, tasks in all_tasks(bundle).items():
        for _, task in tasks:
            known = [q.workload.profile.p_cpu_beside_cache for q in task.held_out.queries]
            profiled = "_profiled" in protocol
            assert all((one is not None) == profiled for one in known)
            keys = task.held_out.groups["repeated"]
            loads = [key for key in keys if "cache high other static" in key]
            assert not (profiled and loads)


def test_pairs_are_predicted_before_they_are_co_located(bundle):
    tasks = all_tasks(bundle)["pairs_ahead"]
    runs, samples = bundle.table("runs"), bundle.table("samples")
    measured = [one.window for one in colocations(runs, samples)]
    for _, task in tasks:
        assert set(task.held_out.groups["neighbour"]) == {"victim:triad"}
        for query in task.held_out.queries:
            assert query.workload.estimated
            assert query.workload.window.seconds
            assert query.workload.window not in measured


def test_profiles_in_training_hold_no_run_of_a_held_out_neighbour(bundle):
    for protocol, tasks in all_tasks(bundle).items():
        for train, _ in tasks:
            known = [q.workload.profile.p_cpu_beside_cache for q in train.queries]
            assert any(one is not None for one in known) == protocol.startswith("leave_one_family")


@pytest.mark.slow
def test_counts_of_our_own_runs_are_not_features(packaged, monkeypatch):
    """They are excluded by name; as planted features they would reveal P of known programs."""
    monkeypatch.setattr(colocation, "TREES", 60)
    monkeypatch.setattr(calibration, "FOLDS", 2)
    names = ("vmstat.pgfault_per_s", "stat.processes_per_s", "stat.ctxt_per_s")
    runs, samples = packaged.table("runs"), packaged.table("samples")
    rates = windows(runs, samples, 1, names)[:, 0].astype(float)
    rows = contention_measurements(packaged)
    rows = replace(rows, values={"p_cpu": rows.values["p_cpu"]})
    allowed = ("probe.latency_ns", "probe.near_ns", "probe.latency_cycles")

    splits = Contention().splits(packaged)
    split = next(one for one in splits if one.protocol.startswith("leave_one_corunner_out"))

    def answers(metrics):
        given = with_windows(
            rows, [dict(zip(metrics, one, strict=False)) for one in rates.tolist()]
        )
        fitted = ColocationBoost(bags=1).fit(given.take(split.train))
        return fitted.predict(given.take(split.held_out).queries).values["p_cpu"]

    nothing = answers(())
    np.testing.assert_array_equal(answers(names), nothing)
    assert np.abs(answers(allowed) - nothing).max() > 0.05


@pytest.fixture(scope="module")
def pilot_fold(request):
    """The fold of the pilot with the co-runner `cache` held out."""
    folder = Path(request.getfixturevalue("reference")) / "contention_pilot"
    folds = protocols_of_dataset("contention_pilot").folds(
        Bundle.open(folder, "contention_pilot"), CATALOG
    )
    return next(e for e in folds if set(e.tasks[0].held_out.groups["neighbour"]) == {"cache_other"})


def cpu_only(fold):
    """The fold with its task of CPU time alone."""
    values = {"p_cpu": fold.train.values["p_cpu"]}
    return replace(fold, train=replace(fold.train, values=values), tasks=fold.tasks[:1])


@pytest.mark.reference
def test_the_pilot_is_scored_with_its_baseline_and_its_noise(pilot_fold, monkeypatch):
    monkeypatch.setattr(colocation, "TREES", 60)
    monkeypatch.setattr(calibration, "FOLDS", 2)
    dataset_protocols = protocols_of_dataset("contention_pilot")
    fold, predictors = cpu_only(pilot_fold), ("colocation_boost",)
    predictions = predictions_of(dataset_protocols, fold, predictors=predictors)
    (row,) = rows(predictions)
    assert row["task"] == "leave_one_corunner_out/p_cpu"
    assert row["mae"] < row["mae_program_mean"]
    assert row["mae_of_repeats"] > 0
    assert row["auc_below_0.9"] > 0.7


@pytest.mark.reference
def test_shots_among_the_held_out_rows_are_not_scored(pilot_fold, monkeypatch):
    monkeypatch.setattr(colocation, "TREES", 20)
    monkeypatch.setattr(calibration, "FOLDS", 2)
    dataset_protocols = protocols_of_dataset("contention_pilot")
    fold, predictors = cpu_only(pilot_fold), ("colocation_boost",)
    predictions = predictions_of(dataset_protocols, fold, (8,), predictors=predictors)
    (row,) = rows(predictions)
    assert row["n"] == len(pilot_fold.tasks[0].held_out) - 8


def with_windows(measured, columns):
    """The same rows, with other numbers in place of what the host showed."""
    queries = []
    for query, values in zip(measured.queries, columns, strict=True):
        bare = replace(query.workload.profile, alone=HostWindow())
        window = HostWindow(tuple(values), (tuple(values.values()),))
        queries.append(Query(Colocation(bare, window), query.device))
    return replace(measured, queries=queries)


@pytest.mark.reference
def test_rates_of_quantities_fixed_in_a_run_are_not_features(pilot_fold, reference, monkeypatch):
    """They reveal the duration: they are excluded by name, and would improve scores if planted."""
    monkeypatch.setattr(colocation, "TREES", 60)
    monkeypatch.setattr(calibration, "FOLDS", 2)
    fold = cpu_only(pilot_fold)
    held_out = fold.tasks[0].held_out
    mean = ProgramMean().fit(fold.train).predict(held_out.queries).values["p_cpu"]

    def error(names):
        counted = [with_windows(part, trap(part, names)) for part in (fold.train, held_out)]
        answers = ColocationBoost(bags=1).fit(counted[0]).predict(counted[1].queries)
        return float(np.abs(answers.values["p_cpu"] - held_out.values["p_cpu"]).mean())

    def trap(part, names):
        """A fixed count divided by the time of a run, with noise."""
        draw = np.random.default_rng(0)
        noise = np.exp(0.02 * draw.standard_normal((len(part), len(names))))
        rates = 1e4 * part.values["p_cpu"][:, None] * noise
        return [dict(zip(names, row, strict=True)) for row in rates.tolist()]

    baseline = float(np.abs(mean - held_out.values["p_cpu"]).mean())
    assert error(("vmstat.pgfault_per_s", "stat.processes_per_s")) >= 0.85 * baseline
    assert error(("probe.latency_ns",)) < 0.6 * baseline


def test_the_pilot_uses_no_column_that_its_readme_warns_about():
    words = ("fault", "processes", "nivcsw", "disk", "vmstat", "wall", "rundelay", "dt", "load")
    columns = [column for column, _ in PILOT_METRICS.values()]
    assert not [c for c in columns if any(word in c for word in words)]


def test_the_median_baseline_uses_only_training_rows(bundle):
    for tasks in all_tasks(bundle).values():
        for train, task in tasks:
            values, programs = train.values[task.metric], train.groups["program"]
            for name, found in zip(
                task.held_out.groups["program"], task.baselines["program_median"], strict=True
            ):
                mine = values[programs == name]
                assert found == np.median(mine if len(mine) else values)


def test_steady_programs_are_selected_only_by_measured_variation(packaged):
    runs = packaged.table("runs")
    unsteady = set(runs["victim"][steadiness(runs) == "unsteady"])
    assert unsteady == {"chase4", "chase8"}
    renamed = runs.assign(victim=runs["victim"].map(lambda name: f"x{name}"))
    np.testing.assert_array_equal(steadiness(renamed), steadiness(runs))
    colocated = runs["neighbour"] != "none"
    changed = runs.assign(cpu_s=runs["cpu_s"].where(~colocated, 1e3 * runs.index))
    np.testing.assert_array_equal(steadiness(changed), steadiness(runs))


def test_the_noise_floor_of_our_own_runs_rests_on_162_of_621_rows(packaged):
    rows = contention_measurements(packaged)
    held_out = np.zeros(len(rows), dtype=bool)
    for split in Contention().splits(packaged):
        if split.protocol.startswith("leave_one_family_out"):
            held_out |= split.held_out
    keys = rows.groups["repeated"][held_out]
    assert (repeated(keys).sum(), len(keys)) == (162, 621)


def test_a_reference_is_relative_to_the_median_isolated_time_of_its_program(bundle):
    runs, samples = bundle.table("runs"), bundle.table("samples")
    found = [one.reference_ratio for one in colocations(runs, samples)]
    np.testing.assert_allclose(found, 1.0)
    mine = runs["victim"] == "alu"
    slower = runs.assign(
        reference_cpu_s=runs["reference_cpu_s"].where(~mine, 1.5 * runs["reference_cpu_s"])
    )
    ratios = np.array([one.reference_ratio for one in colocations(slower, samples)])
    np.testing.assert_allclose(ratios, np.where(mine, 1.5, 1.0))
    bare = colocations(runs.drop(columns="reference_cpu_s"), samples)
    assert {one.reference_ratio for one in bare} == {None}


GUEST = Device(name="guest", vendor="nobody", kind="vm")


def runs(*rows):
    """Measurements of (neighbour, CPUs shared, CPU share alone, relative speed, reference)."""
    queries = [
        Query(
            Colocation(
                ProgramProfile("mine", cpu_share=share), HostWindow(), reference_ratio=reference
            ),
            GUEST,
        )
        for _, _, share, _, reference in rows
    ]
    speed = np.array([row[3] for row in rows], dtype=np.float64)
    groups = {
        "neighbour": np.array([row[0] for row in rows], dtype=np.str_),
        "cpus_shared": np.array([row[1] for row in rows], dtype=np.str_),
    }
    return Measurements(queries, {"p_cpu": speed, "p_wall": speed}, groups)


TRAIN = runs(
    ("none", "2", 1.0, 5.0, None),
    ("cache", "1", 1.0, 0.4, None),
    ("cache", "1", 1.0, 0.5, None),
    ("cache", "1", 1.0, 0.9, None),
    ("cache", "2", 1.0, 0.8, None),
    ("cpu", "1", 1.0, 0.3, None),
)


@pytest.mark.parametrize(
    ("wanted", "cpus", "expected"),
    [(1.0, "1", 0.5), (0.8, "1", 0.625), (0.5, "1", 1.0), (0.2, "1", 1.0), (1.0, "2", 1.0)],
)
def test_a_program_gets_no_more_than_an_equal_part_of_a_shared_cpu(wanted, cpus, expected):
    held_out = runs(("cache", cpus, wanted, 0.0, None))
    assert fair_share(held_out, "p_wall") == pytest.approx([expected])
    assert fair_share(held_out, "p_cpu") == pytest.approx([1.0])


def test_a_program_with_unknown_share_is_assumed_to_need_a_whole_cpu():
    assert fair_share(runs(("cache", "1", None, 0.0, None)), "p_wall") == pytest.approx([0.5])


def test_medians_are_by_neighbour_and_placement_then_by_placement_then_of_all():
    held_out = runs(
        ("cache", "1", 1.0, 0.0, None),
        ("cache", "2", 1.0, 0.0, None),
        ("disk", "1", 1.0, 0.0, None),
        ("disk", "3", 1.0, 0.0, None),
    )
    # Isolated runs are no part of any median.
    expected = [0.5, 0.8, np.median([0.4, 0.5, 0.9, 0.3]), np.median([0.4, 0.5, 0.9, 0.8, 0.3])]
    np.testing.assert_allclose(neighbour_median(TRAIN, held_out, "p_wall"), expected)


def test_a_slower_reference_multiplies_the_fair_share():
    held_out = runs(("cache", "1", 1.0, 0.0, 1.2), ("cache", "1", 1.0, 0.0, None))
    np.testing.assert_allclose(reference_ratio(held_out), [1.2, 1.0])
    found = rules(TRAIN, held_out, "p_wall")
    np.testing.assert_allclose(found["rule_fair_share_of_reference"], [0.6, 0.5])
    np.testing.assert_allclose(found["rule_unslowed"], 1.0)


def test_no_rule_reads_the_measured_values_of_held_out_rows():
    held_out = runs(("cache", "1", 1.0, 0.1, None), ("cpu", "2", 0.7, 0.2, 1.1))
    other = runs(("cache", "1", 1.0, 9.0, None), ("cpu", "2", 0.7, 8.0, 1.1))
    for metric in ("p_cpu", "p_wall"):
        one, two = rules(TRAIN, held_out, metric), rules(TRAIN, other, metric)
        for name in one:
            np.testing.assert_array_equal(one[name], two[name])
