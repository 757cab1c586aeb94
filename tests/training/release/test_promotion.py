"""A predictor that loses metrics, workloads, accuracy or coverage is not promoted unnoticed."""

import json
import shutil
import sys
from contextlib import nullcontext

import pytest
from fastapi.testclient import TestClient

from forerun.data.errors import PromotionRefused
from forerun.models.artifact.sealed_folder import check, seal
from forerun.models.artifact.training_record import Setting, TrainingRecord
from forerun.models.baselines.constant import Constant
from forerun.models.baselines.roofline import Roofline
from forerun.models.router import Router
from forerun.service import cli
from forerun.service.http.app import create_app
from forerun.service.loading import load_predictors
from forerun.service.settings import Settings
from forerun.training.release import promotion, registry
from forerun.training.release.promotion import differences
from forerun.training.release.registry import (
    FORCED_TAG,
    MODEL,
    champion,
    compared,
    promote,
    register,
)
from forerun.training.retraining.comparison import FILE, Comparison
from forerun.training.scores.errors import SEED_NOISE, SliceChange
from forerun.training.tracking.runs import connect, tracked
from tests.service.own_tables.tables import settings_table

pytestmark = pytest.mark.slow
BOTH = Router((Roofline(), Constant({"power_w": 3.0})))


def task(name="unseen/x", mape=10.0, coverage=90.0, n=1000, **more):
    row = {"task": name, "device": None, "metric": "latency_ms", "predictor": "p", "n": n}
    return row | {"mape": mape, "coverage_90": coverage, "baselines": {}} | more


def sealed(folder, predictor=BOTH, tasks=()):
    folder.mkdir(parents=True)
    predictor.save(folder)
    scores = [{"dataset": "toy", "tasks": list(tasks)}]
    (folder / "scores.json").write_text(json.dumps(scores))
    seal(folder, "2000-01-01")
    return folder


def lost(before, after):
    return {(one.what, one.field) for one in differences(before, after) if one.lost}


def test_a_predictor_loses_nothing_against_itself(tmp_path):
    one = sealed(tmp_path / "one", tasks=[task()])
    assert differences(one, one) == ()


def test_a_metric_that_is_no_longer_answered_is_lost(tmp_path):
    one, two = sealed(tmp_path / "one"), sealed(tmp_path / "two", Router((Roofline(),)))
    assert ("power_w", "answers") in lost(one, two)
    assert ("power_w of kernel on l4", "answers") in lost(one, two)
    assert not lost(two, one), "to answer more is no loss"


def test_a_kind_of_workload_that_is_no_longer_answered_is_lost(tmp_path, monkeypatch):
    one, two = sealed(tmp_path / "one"), sealed(tmp_path / "two", tasks=[task()])
    load = promotion.load_sealed

    class WithoutNetworks:
        metrics = BOTH.metrics

        def answers(self, query):
            return query.workload.kind != "network"

        def predict(self, queries):
            return BOTH.predict(queries)

    def loaded(folder):
        found = load(folder)
        return found if folder == one else type(found)(WithoutNetworks(), "", "", "")

    monkeypatch.setattr(promotion, "load_sealed", loaded)
    names = {what for what, _ in lost(one, two)}
    assert names
    assert all(" of network" in name for name in names)


@pytest.mark.parametrize(
    ("before", "after", "is_lost"),
    [
        (task(), task(mape=10.0 * (1 + SEED_NOISE) + 0.1), True),
        (task(), task(mape=10.0 * (1 + SEED_NOISE) - 0.1), False),
        (task(), task(mape=2.0), False),
        (task(mape_standard_error=1.0), task(mape=12.5, mape_standard_error=1.0), False),
        (task(mape_standard_error=0.1), task(mape=10.4, mape_standard_error=0.1), True),
        (task(score="spearman", spearman=0.9), task(score="spearman", spearman=0.8), True),
        (task(score="spearman", spearman=0.8), task(score="spearman", spearman=0.9), False),
        (task(), task(mape=None), True),
    ],
)
def test_an_error_that_grows_by_more_than_seeds_explain_is_lost(tmp_path, before, after, is_lost):
    one, two = sealed(tmp_path / "1", tasks=[before]), sealed(tmp_path / "2", tasks=[after])
    assert bool(lost(one, two)) is is_lost


@pytest.mark.parametrize(
    ("before", "after", "n", "is_lost"),
    [
        (97.0, 90.0, 1000, False),
        (97.0, 86.0, 1000, True),
        (97.0, 86.0, 20, False),
        (70.0, 71.0, 1000, False),
        (70.0, None, 1000, True),
    ],
)
def test_coverage_may_fall_to_the_nominal_level_but_not_below(tmp_path, before, after, n, is_lost):
    one = sealed(tmp_path / "1", tasks=[task(coverage=before, n=n)])
    two = sealed(tmp_path / "2", tasks=[task(coverage=after, n=n)])
    assert bool(lost(one, two)) is is_lost


def test_a_protocol_that_is_no_longer_scored_is_lost(tmp_path):
    one = sealed(tmp_path / "1", tasks=[task(), task("other/y")])
    two = sealed(tmp_path / "2", tasks=[task()])
    assert lost(one, two) == {("toy other/y latency_ms", "scored")}
    assert not lost(two, one)


def test_the_best_of_two_predictors_in_a_task_counts(tmp_path):
    one = sealed(tmp_path / "1", tasks=[task(mape=10.0), task(mape=8.0, predictor="q")])
    two = sealed(tmp_path / "2", tasks=[task(mape=9.9), task(mape=30.0, predictor="q")])
    assert lost(one, two) == {("toy unseen/x latency_ms", "mape")}


@pytest.fixture
def versions(store, tmp_path):
    """Version 1 is whole; version 2 is the part for latency alone; version 3 is more accurate."""
    folders = (
        sealed(tmp_path / "whole", tasks=[task()]),
        sealed(tmp_path / "part", Router((Roofline(),)), [task()]),
        sealed(tmp_path / "better", tasks=[task(mape=5.0)]),
    )
    for folder in folders:
        with tracked(folder.name) as run:
            register(run, folder)


@pytest.mark.usefixtures("versions")
def test_the_registry_refuses_a_single_part_and_lists_the_losses():
    promote(1)
    first = champion()
    with pytest.raises(
        PromotionRefused, match=r"Version 2 is refused .*energy_j.*--force"
    ) as refused:
        promote(2)
    assert champion() == first
    assert {one.lost for one in refused.value.differences} == {True}
    assert compared(2) == tuple(refused.value.differences)


@pytest.mark.usefixtures("versions")
def test_a_version_is_promoted_with_a_reason_which_is_recorded():
    promote(1)
    promote(2, reason="power is measured elsewhere")
    tag = json.loads(connect().get_model_version(MODEL, "2").tags[FORCED_TAG])
    assert tag["reason"] == "power is measured elsewhere"
    assert tag["against"] == 1
    assert any("power_w" in line for line in tag["lost"])


@pytest.mark.usefixtures("versions")
def test_a_better_one_is_promoted_and_the_gain_is_returned():
    promote(1)
    (gain,) = promote(3)
    assert (gain.before, gain.after, gain.lost) == (10.0, 5.0, False)
    assert FORCED_TAG not in connect().get_model_version(MODEL, "3").tags


@pytest.fixture
def forerun(monkeypatch, capsys):
    """`forerun` in this process: exit code, standard output, standard error."""

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["forerun", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        printed = capsys.readouterr()
        return int(left.value.code or 0), printed.out, printed.err

    return call


@pytest.mark.usefixtures("versions")
def test_the_command_shows_a_table_and_ends_with_code_two(forerun):
    assert forerun("promote", 1)[0] == 0
    code, out, err = forerun("promote", 2)
    assert code == 2
    assert "LOST" in out + err
    assert "power_w" in out + err
    assert "is refused against what is in use" in err
    assert forerun("promote", 2, "--force")[0] == 2, "a reason is needed"
    code, out, err = forerun("promote", 2, "--force", "--reason", "known")
    assert code == 0, err
    assert "version 2 is the champion" in out


@pytest.fixture
def _a_part_trained_alone_and_one_merged(store, tmp_path, forerun, monkeypatch):
    """Versions 1 and 2: the predictor of a table alone, and the same with what is in use."""
    whole = sealed(tmp_path / "whole")
    monkeypatch.setattr(registry, "bundled_artifact", lambda: nullcontext(whole))
    monkeypatch.setenv("FORERUN_PREDICTOR_FOLDER", str(whole))
    file = settings_table(tmp_path)
    assert forerun("data", "import", file, "--name", "mine", "--rest", "setting")[0] == 0
    words = ("train", "mine", "--no-evaluate", "--output", tmp_path / "made")
    for more in (("--alone",), ()):
        code, _, err = forerun(*words, *more)
        assert code == 0, err


@pytest.mark.usefixtures("_a_part_trained_alone_and_one_merged")
def test_a_single_part_is_no_champion_but_a_merged_one_is(forerun, monkeypatch, tmp_path):
    """Without the check, the service would answer null where the bundled predictors had answers."""
    code, out, err = forerun("promote", 1)
    assert code == 2
    assert "power_w" in out and "LOST" in out
    assert "is refused against what is in use" in err
    assert champion() is None, "the bundled predictors still answer"
    code, out, err = forerun("promote", 2)
    assert code == 0, out + err
    settings = Settings(home=tmp_path / "service", predictor_folder=champion())
    operator = {"kind": "linear", "name": "fc", "input_shapes": [[512, 1024]]}
    operator |= {"output_shapes": [[512, 1024]], "parameter_elements": 2**20, "attributes": {}}
    question = {"workload": {"kind": "kernel", "operator": operator}, "device": "l4"}
    with TestClient(create_app(settings, load_predictors(settings))) as client:
        answer = client.post("/v1/predict", json=question)
    metrics = answer.json()["metrics"]
    assert metrics["latency_ms"]["value"] and metrics["power_w"]["value"]


def retrained(folder, base, *slices, champion=None):
    """A candidate with the files of another one and a comparison on measurements."""
    shutil.copytree(base, folder)
    comparison = Comparison(
        champion=champion or check(base).version,
        measurements="0123456789ab",
        training_rows=30,
        held_out_rows=10,
        slices=slices,
    )
    (folder / FILE).write_text(comparison.model_dump_json())
    seal(folder, "2000-01-01")
    return folder


def on_measurements(low, high, **fixed):
    """A slice whose error changed by about this much."""
    middle = (low + high) / 2
    errors = {"before": 20.0, "after": 20.0 + middle, "low": low, "high": high}
    return SliceChange(metric="latency_ms", slice=fixed, rows=9, groups=8, **errors)


def test_a_slice_of_measurements_that_got_worse_beyond_its_noise_is_lost(tmp_path):
    one = sealed(tmp_path / "one")
    slices = (
        on_measurements(-9.0, -5.0),
        on_measurements(-1.0, 2.0, device="l4"),
        on_measurements(0.5, 2.0, device="t4"),
    )
    two = retrained(tmp_path / "two", one, *slices)
    assert lost(one, two) == {("measurements latency_ms t4", "mape")}
    (_, better, level) = differences(one, two)
    assert (better.before, better.after, better.noise) == (20.0, 13.0, 2.0)
    assert not level.lost


def test_a_comparison_with_another_champion_is_a_regression(tmp_path):
    one = sealed(tmp_path / "one")
    two = retrained(tmp_path / "two", one, on_measurements(-9.0, -5.0), champion="feedfeedfeed")
    ((what, field),) = lost(one, two)
    assert "compared with feedfeedfeed" in what
    assert field == "compared"
    assert not lost(two, two)


def test_a_candidate_without_held_out_measurements_is_refused_and_the_table_says_why(
    store, tmp_path, forerun, monkeypatch
):
    base = sealed(tmp_path / "base")
    monkeypatch.setattr(registry, "bundled_artifact", lambda: nullcontext(base))
    with tracked("unevaluated") as run:
        register(run, retrained(tmp_path / "unevaluated", base))
    code, out, err = forerun("promote", 1)
    assert code == 2
    (line,) = [line for line in out.splitlines() if "NOT EVALUATED" in line]
    assert "evaluated NOT EVALUATED" in " ".join(line.split()), "figures of no meaning"
    assert "fewer than five workloads" in line
    assert "Version 1 is refused against what is in use for 1 reason: not evaluated" in err
    assert champion() is None
    code, out, err = forerun("promote", 1, "--force", "--reason", "it is a trial")
    assert code == 0, err
    assert champion() is not None
    code, out, err = forerun("promote", "--rollback")
    assert code == 0, err
    assert "the bundled predictors answer" in out
    assert champion() is None


def test_settings_with_too_few_held_out_rows_are_listed_but_not_regressions(tmp_path):
    one = sealed(tmp_path / "one")
    two = shutil.copytree(one, tmp_path / "two")
    setting = Setting("l4", "network", "latency_ms", "inference", "fp32", "eager")
    counts = {"toy": {setting: 100}}
    TrainingRecord(counts=counts, judged={"toy": {setting: (7, 7.0)}}).write(two)
    seal(two, "2000-01-01")
    (listed,) = differences(one, two)
    assert listed.field == promotion.EVALUATED and not listed.lost
    assert listed.what == (
        "l4 network latency_ms inference fp32 eager: the interval contained 7 of 7 held-out runs "
        "of this kind, too few to confirm a coverage of 80 %"
    )


@pytest.mark.usefixtures("versions")
def test_a_promotion_says_which_setting_makes_commands_follow_it(forerun, monkeypatch):
    monkeypatch.delenv("FORERUN_REGISTRY_URI", raising=False)
    _, out, err = forerun("promote", 1)
    (line,) = (own for own in err.splitlines() if "FORERUN_REGISTRY_URI=" in own)
    uri = line.partition("FORERUN_REGISTRY_URI=")[2].split()[0]
    monkeypatch.setenv("FORERUN_REGISTRY_URI", uri)
    _, out, err = forerun("promote", 3)
    assert "FORERUN_REGISTRY_URI" not in out + err


@pytest.mark.usefixtures("versions")
def test_the_command_begins_and_ends_a_trial(forerun):
    code, out, err = forerun("promote", 3, "--candidate")
    assert (code, "version 3 is the candidate" in out) == (0, True), err
    assert champion() is None
    assert forerun("promote", 3, "--candidate", "--force", "--reason", "x")[0] == 2
    assert forerun("promote", "--candidate", "--rollback")[0] == 2
    assert forerun("promote", 3, "--withdraw")[0] == 2
    code, out, err = forerun("promote", "--withdraw")
    assert (code, "no version is on trial" in out) == (0, True), err
