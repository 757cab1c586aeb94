"""Tables hold what was journaled: P against the nearest isolated runs, deltas, phases, gaps."""

import json

import numpy as np
import pandas as pd
import pytest

from forerun.data.collectors.interference.tables import (
    build,
    noise,
    placed,
    with_references,
    write_tables,
)
from forerun.data.collectors.runner.journal import LineJournal
from tests.contracts.tiny_contention import FAULTS, STATES, write_journal

LONGER = {(n, p, m): longer for n, _, p, m, longer in STATES}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("collection")
    write_journal(made / "journal")
    return made


@pytest.fixture(scope="module")
def tables(folder):
    return build(folder / "journal", 1.0)


def timeline(*rows, **columns):
    """Runs of one victim in one session: neighbour, start, wall."""
    frame = pd.DataFrame(rows, columns=["neighbour", "start_s", "wall_s"])
    frame["cpu_s"] = frame["wall_s"] / 2
    return frame.assign(**({"status": "ok", "victim": "alu", "session": "000"} | columns))


def test_p_is_ideal_over_actual_for_both_clocks(tables):
    runs = tables["runs"]
    keys = zip(runs["neighbour"], runs["placement"], runs["mode"], strict=True)
    expected = [1 / LONGER[key] for key in keys]
    np.testing.assert_allclose(runs["p_wall"], expected)
    np.testing.assert_allclose(runs["p_cpu"], expected)


def test_the_reference_is_the_median_of_the_nearest_isolated_runs_and_not_of_the_run_itself():
    alone = [("none", float(t), 1.0) for t in range(5)] + [
        ("none", 100.0 + t, 3.0) for t in range(6)
    ]
    runs = with_references(timeline(*alone, ("cache", 2.5, 4.0), ("cache", 99.0, 4.0)))
    assert runs["reference_wall_s"].tolist()[-2:] == [1.0, 3.0]
    assert runs["p_wall"].tolist()[-2:] == [0.25, 0.75]
    lonely = with_references(timeline(("none", 0.0, 1.0), ("cache", 1.0, 2.0)))
    assert np.isnan(lonely["p_wall"][0]), "it cannot be its own reference"
    assert lonely["p_wall"][1] == 0.5


def test_faster_than_alone_is_above_one():
    runs = with_references(timeline(("none", 0.0, 2.0), ("cpu", 3.0, 0.1)))
    assert runs["p_wall"][1] == pytest.approx(20)


def test_runs_that_failed_and_other_sessions_and_victims_are_no_reference():
    for columns in (
        {"status": ["failed: no", "ok"]},
        {"session": ["000", "001"]},
        {"victim": ["alu", "copy"]},
    ):
        runs = with_references(timeline(("none", 0.0, 2.0), ("cpu", 3.0, 4.0), **columns))
        assert runs["p_wall"].isna().all(), columns


def test_counters_become_growth_a_second_and_gauges_stay(tables):
    samples = tables["samples"]
    np.testing.assert_allclose(samples["cpu.user_share"], 1.0, rtol=1e-5)
    np.testing.assert_allclose(samples["stat.ctxt_per_s"], 7.0, rtol=1e-3)
    assert set(samples["memory.MemFree_mib"]) == {100.0}
    assert "cpu.user_s" in tables["cumulative"], "raw counters are kept apart"
    assert "cpu.user_s" not in samples


def test_a_process_s_times_do_not_run_on_into_the_next_process(tables):
    samples = tables["samples"]
    inside = samples[samples["phase"] == "inside"]
    runs = tables["runs"].set_index("run")["p_wall"]
    np.testing.assert_allclose(inside["task.cpu_share"], runs[inside["run"]], rtol=1e-3)
    assert samples.loc[samples["phase"] == "before", "task.cpu_share"].isna().all()


def test_inside_is_strictly_inside(tables):
    samples, runs = tables["samples"], tables["runs"].set_index("run")
    inside = samples[samples["phase"] == "inside"]
    assert len(inside)
    mine = runs.loc[inside["run"]]
    assert (inside["from_s"].to_numpy() >= mine["start_s"].to_numpy()).all()
    assert (inside["to_s"].to_numpy() <= mine["end_s"].to_numpy()).all()
    assert (inside["second"] >= 0).all()


def test_an_interval_belongs_to_the_run_it_touches_else_to_the_nearest():
    runs = pd.DataFrame(
        {"run": [7, 8, 9], "start_s": [2.5, 6.0, np.nan], "end_s": [4.5, 7.0, np.nan]}
    )
    edges = np.array([0.0, 2, 3, 4, 5, 5.5, 6.0, 7.0, 8.0, 9.0])
    number, phase = placed(edges[:-1], edges[1:], runs)
    assert number.tolist() == [7, 7, 7, 7, 7, 8, 8, 8, 8]
    assert phase.tolist() == [
        *("before", "edge", "inside", "edge", "after", "edge", "inside", "edge", "after")
    ]


def test_without_runs_nothing_belongs_anywhere():
    number, _ = placed(np.array([0.0]), np.array([1.0]), pd.DataFrame({"run": [], "end_s": []}))
    assert np.isnan(number).all()


def test_what_was_not_read_is_nan_and_a_gap_is_marked(folder, tmp_path):
    journal = LineJournal(tmp_path / "journal" / "000" / "samples.jsonl")
    for number, row in enumerate(LineJournal(folder / "journal/000/samples.jsonl").rows()):
        if number == 4:
            del row["cumulative"]["stat.ctxt"]
        if number != 8:
            journal.append(row)
    tables = build(tmp_path / "journal", 1.0)
    assert len(tables["runs"]) == 0
    samples = tables["samples"]
    assert np.flatnonzero(samples["stat.ctxt_per_s"].isna()).tolist() == [3, 4]
    assert np.flatnonzero(samples["gap"]).tolist() == [7]
    assert samples["to_s"][7] - samples["from_s"][7] == 2.0, "nothing is filled in"
    assert samples["probe.latency_ns"].isna().all()


def test_the_probe_is_a_median_over_ticks_and_nan_where_they_are_missing(folder, tables, tmp_path):
    samples = tables["samples"]
    inside = samples[samples["phase"] == "inside"]
    runs = tables["runs"].set_index("run")["p_wall"]
    np.testing.assert_allclose(inside["probe.latency_ns"], 20 / runs[inside["run"]], rtol=1e-4)
    session = tmp_path / "000"
    session.mkdir()
    for name in ("samples.jsonl", "runs.jsonl"):
        (session / name).write_bytes((folder / "journal/000" / name).read_bytes())
    lines = (folder / "journal/000/probe.csv").read_text().splitlines()
    (session / "probe.csv").write_text("\n".join(lines[:40] + lines[80:]))
    thinned = build(tmp_path, 1.0)["samples"]["probe.latency_ns"]
    assert thinned.isna().sum() == samples["probe.latency_ns"].isna().sum() + 4


def test_a_journal_that_ends_in_the_middle_of_a_line_is_read(folder, tmp_path):
    session = tmp_path / "000"
    session.mkdir()
    for name in ("samples.jsonl", "runs.jsonl", "probe.csv"):
        content = (folder / "journal/000" / name).read_bytes()
        (session / name).write_bytes(content[: len(content) * 3 // 5])
    tables = build(tmp_path, 1.0)
    assert 0 < len(tables["runs"]) < 50
    assert tables["runs"]["p_wall"].notna().any()
    assert (tables["samples"]["phase"] == "inside").any()


def test_nothing_journaled_makes_no_tables(tmp_path):
    assert write_tables(tmp_path, 1.0) == {}
    assert list(tmp_path.iterdir()) == []


def test_tables_datasheet_and_sources_are_written_next_to_the_journal(folder):
    written = write_tables(folder, 1.0)
    assert set(written) == {"runs", "samples", "probe"}
    names = {path.name for path in folder.iterdir()}
    assert names == {
        *("journal", "runs.parquet", "samples.parquet", "probe.parquet", "sources.json"),
        *("README.md", "bundle.json"),
    }
    assert (folder / "journal/cumulative.parquet").is_file()
    sheet = (folder / "README.md").read_text()
    for part in ("Noise floor", "| alu | 2 |", "resctrl: no /sys", "no stress-ng", "2.0 MiB"):
        assert part in sheet
    sources = json.loads((folder / "sources.json").read_text())
    assert sources["sessions"][0]["sources"]["resctrl"]["reason"] == "no /sys"


def test_the_noise_floor_is_that_of_isolated_runs():
    runs = timeline(("none", 0.0, 1.0), ("none", 1.0, 3.0), ("cache", 2.0, 50.0))
    (row,) = noise(with_references(runs)).to_dict("records")
    assert row["isolated"] == 2
    assert row["cv_wall"] == pytest.approx(np.sqrt(2) / 2)


def test_faults_of_a_run_betray_its_duration(tables):
    """What the dataset's choice of features guards against is really there."""
    samples, runs = tables["samples"], tables["runs"].set_index("run")
    inside = samples[samples["phase"] == "inside"]
    expected_s = FAULTS / inside["vmstat.pgfault_per_s"].to_numpy()
    np.testing.assert_allclose(expected_s, runs["wall_s"][inside["run"]], rtol=1e-3)
