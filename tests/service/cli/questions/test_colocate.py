"""`forerun colocate`: profiles of programs in, relative speeds or classes out."""

import json

import pytest

from forerun.service.python.colocation import RelativeSpeed
from forerun.service.schemas.colocation import PerformanceOut, SlowedOut


@pytest.fixture
def profiles(tmp_path):
    """Two files as `forerun collect program` writes them."""
    paths = []
    for name, share in (("mine", 1.0), ("other", 0.9)):
        path = tmp_path / f"{name}.json"
        alone = {"cpu.user_share": share, "probe.evicted": 0.1}
        facts = {"cpu_share": share, "cpu_spread": 0.03, "working_set_mib": None}
        path.write_text(json.dumps({"name": name, "alone": alone, **facts}))
        paths.append(path)
    return paths


def test_every_program_on_the_host_is_answered(forerun, profiles):
    mine, other = profiles
    code, out, err = forerun("colocate", mine, "--resident", other, "--cpus", 1)
    assert code == 0, err
    assert "mine" in out
    assert "other" in out
    code, out, err = forerun("colocate", mine, "--resident", other, "--cpus", 1, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["candidate"]["p_wall"]["value"] < 0.7, "two programs share one CPU"
    assert [one["program"] for one in found["residents"]] == ["other"]


def test_a_class_has_its_error_rates_and_an_interval_its_ends():
    rates = SlowedOut(slowed=True, false_alarms=0.25, misses=0.1, runs=40)
    wide = PerformanceOut(value=0.5, low=None, high=None, coverage=None, slowed=rates)
    assert str(RelativeSpeed.of(wide)) == "0.50, slowed (false alarms 25%, misses 10%)"
    quick = rates.model_copy(update={"slowed": False})
    other = RelativeSpeed.of(wide.model_copy(update={"slowed": quick}))
    assert str(other).startswith("0.50, not slowed")
    narrow = PerformanceOut(value=0.5, low=0.4, high=0.6, coverage=0.9, slowed=None)
    assert str(RelativeSpeed.of(narrow)) == "0.50 (0.40 to 0.60)"
    assert RelativeSpeed.of(None) is None


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "Cannot read"), ("{}", "no profile of a program: name"), ("no json", "no profile")],
)
def test_a_file_that_is_no_profile_is_one_line(forerun, tmp_path, content, said):
    path = tmp_path / "wrong.json"
    if content is not None:
        path.write_text(content)
    code, out, err = forerun("colocate", path)
    assert (code, out) == (2, "")
    assert said in err
