"""`forerun rank`, `sweep` and `colocate`: results with their reasons, wrong words in one line."""

import json

import pytest

from forerun.data.device import DeviceCatalog
from forerun.service.python.colocation import RelativeSpeed
from forerun.service.schemas.colocation import PerformanceOut, SlowedOut


def test_devices_come_in_order_and_every_other_one_has_a_reason(forerun, graph):
    words = ("--device", "l4,t4,epyc-7742", "--batch-size", 1)
    out = forerun.ok("rank", graph, *words)
    assert out.index("  1 ") < out.index("  2 ")
    assert "left out: epyc-7742: whether it fits is not known" in out
    out = forerun.ok("rank", graph, *words, "--no-fits", "--json")
    assert len(json.loads(out)["ranked"]) == 3


def test_devices_that_the_host_keeps_waiting_are_named(forerun):
    words = ("--device", "h100,h200,p4", "--precision", "fp16")
    (line,) = (
        own for own in forerun.ok("rank", "resnet50", *words).splitlines() if "host-bound" in own
    )
    assert line.startswith("host-bound") and line.endswith("h100-sxm-80gb, h200-sxm-141gb")
    assert "host-bound" not in forerun.ok("rank", "resnet50", *words, "--batch-size", 256)


def test_limits_and_prices_count(forerun, graph):
    found = forerun.json("rank", graph, "--max-power-w", 75, "--batch-size", 64)
    catalog = DeviceCatalog.load()
    for row in found["ranked"]:
        enforced = catalog.get(row["device"]["name"]).tdp_w
        assert min(row["metrics"]["power_w"]["high"], enforced) <= 75
    assert any("the limit 75 W" in line for row in found["excluded"] for line in row["reasons"])
    words = ("--device", "l4,t4", "--objective", "cost", "--price", "l4=9,t4=0.1", "--json")
    found = json.loads(forerun("rank", graph, *words)[1])
    assert [row["device"]["name"] for row in found["ranked"]] == ["t4", "l4"]
    for name, said in (("a2", "a2 is not among the devices"), ("a2x", "--price: No device named")):
        assert said in forerun.refused("rank", graph, *words[:4], "--price", f"{name}=1")


@pytest.mark.parametrize(
    ("verb", "option", "word", "said"),
    [
        ("rank", "--objective", "speed", "--objective 'speed' is not one of latency_ms"),
        ("rank", "--risk", "none", "--risk 'none' is not one of high, value"),
        ("rank", "--price", "l4", "write it as l4=0.71"),
        ("rank", "--price", "l4=2", "--price: Prices are for the objective cost"),
        ("rank", "--device", "rtx 4091", "--device: No device named 'rtx 4091'. Did you mean"),
        ("sweep", "--threads", "4", "--threads applies only to processors, and no device is one"),
        (
            "sweep",
            "--device",
            "epyc-7742",
            "on epyc-7742 at 90 W. Power is predicted only for GPUs",
        ),
        ("sweep", "--limits", "40;50", "write watts as 150,200,250"),
        ("sweep", "--limits", "-40", "positive number of watts"),
        ("sweep", "--slowdown", "much", "write 10% or 0.1"),
    ],
)
def test_wrong_words_are_one_line(forerun, graph, verb, option, word, said):
    device = () if verb == "rank" or option == "--device" else ("--device", "l4")
    assert said in forerun.refused(verb, graph, *device, option, word)


def test_the_objective_has_one_column_with_its_grade(forerun, graph):
    _, shown, _ = forerun("rank", graph, "--device", "l4,t4", "--objective", "energy_j")
    heading = next(line for line in shown.splitlines() if "fits" in line).split()
    assert heading.count("energy_j") == 1
    first = next(line for line in shown.splitlines() if " J " in line)
    assert first.split(" J ")[1].split()[0] in "ABC"


def test_limits_are_printed_with_advice_and_drawn(forerun, graph, tmp_path):
    picture = tmp_path / "sweep.svg"
    words = ("--device", "a100-pcie-80gb", "--batch-size", 65536, "--picture", picture)
    out = forerun.ok("sweep", graph, *words)
    assert "least energy: " in out
    assert "at most 10 % slower: " in out
    assert "mine.json on a100-pcie-80gb" in picture.read_text()


def test_limits_and_slow_down_can_be_given(forerun, graph):
    words = ("--device", "l4", "--limits", "40,50,72", "--slow-down", "0.2", "--json")
    found = json.loads(forerun.ok("sweep", graph, *words))
    assert [run["limit_w"] for run in found["runs"]] == [40, 50, 72]
    assert found["slow_down"] == 0.2


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
    out = forerun.ok("colocate", mine, "--resident", other, "--cpus", 1)
    assert "mine" in out
    assert "other" in out
    found = forerun.json("colocate", mine, "--resident", other, "--cpus", 1)
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
    assert said in forerun.refused("colocate", path)
