"""`forerun rank`: devices in order, the others with their reasons."""

import json

import pytest

from forerun.data.device import DeviceCatalog


def test_devices_come_in_order_and_every_other_one_has_a_reason(forerun, graph):
    words = ("--device", "l4,t4,epyc-7742", "--batch-size", 1)
    code, out, err = forerun("rank", graph, *words)
    assert code == 0, err
    assert out.index("  1 ") < out.index("  2 ")
    assert "left out: epyc-7742: whether it fits is not known" in out
    code, out, err = forerun("rank", graph, *words, "--no-fits", "--json")
    assert len(json.loads(out)["ranked"]) == 3


def test_limits_and_prices_count(forerun, graph):
    code, out, err = forerun("rank", graph, "--max-power-w", 75, "--batch-size", 64, "--json")
    found = json.loads(out)
    assert code == 0, err
    catalog = DeviceCatalog.load()
    for row in found["ranked"]:
        enforced = catalog.get(row["device"]["name"]).tdp_w
        assert min(row["metrics"]["power_w"]["high"], enforced) <= 75
    assert any("the limit 75 W" in line for row in found["excluded"] for line in row["reasons"])
    words = ("--device", "l4,t4", "--objective", "cost", "--price", "l4=9,t4=0.1", "--json")
    found = json.loads(forerun("rank", graph, *words)[1])
    assert [row["device"]["name"] for row in found["ranked"]] == ["t4", "l4"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--objective", "speed"], "--objective 'speed' is none of latency_ms"),
        (["--risk", "none"], "--risk 'none' is none of high, value"),
        (["--price", "l4"], "write it as l4=0.71"),
        (["--device", "rtx 4091"], "Did you mean rtx-4090"),
    ],
)
def test_wrong_words_are_one_line(forerun, graph, words, said):
    code, out, err = forerun("rank", graph, *words)
    assert (code, out) == (2, "")
    assert said in err


def test_options_of_memory_reach_the_ranking(forerun, graph):
    words = ("rank", graph, "--device", "l4", "--batch-size", 4096, "--phase", "training", "--json")
    peaks = []
    for options in ((), ("--optimizer-kernel", "fused"), ("--optimizer", "none")):
        code, out, err = forerun(*words, *options)
        assert code == 0, err
        peaks.append(json.loads(out)["ranked"][0]["metrics"]["peak_memory_mib"]["value"])
    assert peaks[0] >= peaks[1] > peaks[2]
    code, _, err = forerun(*words, "--checkpoint-blocks", "--checkpoint-segments", 2)
    assert code == 2
    assert "give one" in err
    code, _, err = forerun(*words[:6], "--cache-tokens", 64, "--dropout", 0.1)
    assert (code, "dropout: options of training" in err) == (2, True)


def test_the_objective_has_one_column_with_its_grade(forerun, graph):
    _, shown, _ = forerun("rank", graph, "--device", "l4,t4", "--objective", "energy_j")
    heading = next(line for line in shown.splitlines() if "fits" in line).split()
    assert heading.count("energy_j") == 1
    first = next(line for line in shown.splitlines() if " J " in line)
    assert first.split(" J ")[1].split()[0] in "ABC"
