"""`forerun sweep`: power limits with what they cost and save, and a picture."""

import json

import pytest


def test_limits_are_printed_with_advice_and_drawn(forerun, graph, tmp_path):
    picture = tmp_path / "sweep.svg"
    words = ("--device", "a100-pcie-80gb", "--batch-size", 65536, "--picture", picture)
    code, out, err = forerun("sweep", graph, *words)
    assert code == 0, err
    assert "least energy: " in out
    assert "at most 10 % slower: " in out
    assert "mine.json on a100-pcie-80gb" in picture.read_text()


def test_limits_and_slow_down_can_be_given(forerun, graph):
    words = ("--device", "l4", "--limits", "40,50,72", "--slow-down", "0.2", "--json")
    code, out, err = forerun("sweep", graph, *words)
    found = json.loads(out)
    assert code == 0, err
    assert [run["limit_w"] for run in found["runs"]] == [40, 50, 72]
    assert found["slow_down"] == 0.2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--device", "epyc-7742"],
            "known for this on epyc-7742 at 90 W. Power is answered on GPUs",
        ),
        (["--device", "l4", "--limits", "40;50"], "write watts as 150,200,250"),
        (["--device", "l4", "--limits", "-40"], "positive number of watts"),
        (["--device", "l4", "--slowdown", "much"], "write 10% or 0.1"),
    ],
)
def test_wrong_words_are_one_line(forerun, graph, words, said):
    code, out, err = forerun("sweep", graph, *words)
    assert (code, out) == (2, "")
    assert said in err
