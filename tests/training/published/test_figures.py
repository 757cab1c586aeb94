"""Cited figures are complete and unique, and recomputable if their rows are available."""

import pandas as pd
import pytest

from forerun.data.metrics import METRICS, SERVING_METRICS
from forerun.training.published.figures import PUBLISHED, published_for
from forerun.training.scores.errors import score

COLUMNS = {
    "NeuSight": "pub_neusight_e2e_ms",
    "Roofline": "pub_roofline_e2e_ms",
    "Li et al.": "pub_lietal_e2e_ms",
    "Habitat": "pub_habitat_e2e_ms",
}

NAS_SYSTEMS = {"NASFLAT", "HELP", "MultiPredict", "MAML", "Meta-SGD"}
SYSTEMS = {"neusight": set(COLUMNS), "apex": {"APEX"}}


@pytest.fixture(scope="module")
def nvidia(reference):
    table = pd.read_csv(reference / "neusight" / "e2e.csv")
    return table[~table["device_key"].str.startswith("AMD") & table["option"].isna()]


def test_every_figure_has_a_citation():
    for figure in PUBLISHED:
        assert figure.citation and figure.over, figure
        known = SYSTEMS.get(figure.dataset, NAS_SYSTEMS)
        assert figure.own or figure.system in known, f"{figure.system} is not ours: cite it"
        assert figure.metric in {m.name for m in (*METRICS, *SERVING_METRICS)}
        assert figure.score in score([], [])
        assert figure.value > 0


def test_no_system_has_two_figures_for_a_task():
    keys = [(f.system, f.dataset, f.task, f.metric, f.score) for f in PUBLISHED]
    assert len(set(keys)) == len(keys)


@pytest.mark.reference
@pytest.mark.parametrize("system", COLUMNS)
def test_figures_on_shared_rows_follow_from_the_published_predictions(nvidia, system):
    parts = {"e2e_shared": nvidia, "e2e_a100_80": nvidia[nvidia["device_key"].str.contains("80GB")]}
    for part, rows in parts.items():
        (figure,) = (
            f for f in published_for("neusight", f"unseen_device/{part}") if f.system == system
        )
        found = score(rows["e2e_latency_ms"], rows[COLUMNS[system]])
        assert found["n"] == figure.n
        assert found["mape"] == pytest.approx(figure.value, abs=0.005)


def test_the_papers_headline_is_quoted_as_printed():
    headline = {f.system: f.value for f in published_for("neusight", "unseen_device/e2e")}
    assert headline == {"NeuSight": 8.9, "Roofline": 31.4, "Li et al.": 60.3, "Habitat": 385}


def test_our_own_baselines_are_marked_as_ours():
    assert all(f.own for f in published_for("timm_bench"))
    assert not any(f.own for f in published_for("neusight"))


def test_an_unknown_task_has_no_figures():
    assert published_for("neusight", "no_such/task") == ()


def test_nas_figures_belong_to_the_tasks_of_the_same_name():
    figures = {(f.system, f.task): f.value for f in published_for("nas_latency")}
    assert figures["NASFLAT", "nasflat_nb201/N2"] == 0.857
    assert figures["HELP", "help_fbnet/raspi4"] == 0.887


@pytest.mark.reference
def test_nas_figures_are_those_of_the_reference(reference):
    table = pd.read_csv(reference / "nas_latency" / "published.csv")
    table = table[table["protocol"] == "NASFLAT"]
    means = table.groupby(["space", "method"])["value"].mean()
    for (space, system), mean in means.items():
        mine = [
            f.value
            for f in published_for("nas_latency")
            if f.protocol == f"nasflat_{space}" and f.system == system
        ]
        assert sum(mine) / len(mine) == pytest.approx(mean)
