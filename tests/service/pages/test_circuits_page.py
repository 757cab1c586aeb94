"""The page *Circuits* in a browser: a netlist that is sent, one that is refused, and the chart."""

import json

import pytest

from forerun.service.http.pages.circuits import path_chart
from forerun.service.schemas.circuits import ClockOut
from tests.data.circuits.reference import stored
from tests.service.pages.harness import wait_for_charts


def clock(placement):
    steps = [
        {
            "source": "a.O",
            "sink": "b.I0",
            "cell_ps": 540.0,
            "connection_ps": 600.0,
            "arrival_ps": 1140.0,
        },
        {
            "source": "b.O",
            "sink": "c.I3",
            "cell_ps": 448.0,
            "connection_ps": 400.0,
            "arrival_ps": 1988.0,
        },
    ]
    parts = {"cells": 988.0, "connections": 1000.0, "setup": 335.0, "placement": placement}
    value = 1e6 / sum(parts.values())
    fmax = {"value": value, "low": None, "high": None, "coverage": None, "unit": "MHz",
            "grade": "B", "grade_reason": ""}  # fmt: skip
    given = {"clock": "clk", "missing": None, "fmax_mhz": fmax}
    return ClockOut.model_validate({**given, "critical_path": steps, "breakdown_ps": parts})


@pytest.mark.parametrize(("placement", "end_ps"), [(177.0, 2500.0), (-50.0, 2323.0)])
def test_the_parts_of_the_bar_follow_one_another_to_the_end_of_the_period(placement, end_ps):
    """A period that is shorter than the longest path of mean delays has no last part."""
    rows = path_chart(clock(placement)).rows
    ends = [row["to_ns"] for row in rows]
    assert [row["from_ns"] for row in rows] == [0.0, *ends[:-1]]
    assert ends[-1] == pytest.approx(end_ps / 1e3)
    assert [row["part"] for row in rows][:5] == ["cell", "connection"] * 2 + ["cell"]


def test_a_clock_without_a_frequency_has_no_chart():
    assert path_chart(clock(1.0).model_copy(update={"fmax_mhz": None})) is None


@pytest.mark.browser
@pytest.mark.slow
def test_a_netlist_replaces_the_answer_to_the_example(page_at, tmp_path):
    page = page_at("/circuits")
    heading = page.locator("#answer h2").first
    assert "divider" in heading.inner_text()
    before = page.locator("#answer td strong").first.inner_text()
    file = tmp_path / "fifo.json"
    file.write_text(json.dumps(stored("fifo")))
    page.set_input_files("#file", file)
    page.locator("h2:has-text('Your netlist')").wait_for()
    wait_for_charts(page)
    assert page.locator("#answer td strong").first.inner_text() != before
    assert page.locator("#chosen").inner_text() == "fifo.json"
    assert page.locator(".plot svg").count() == 1


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("module x;", "not JSON"),
        ("[]", "no object"),
        ('{"modules": {"m": {"cells": {"a": {"type": "$add"}}}}}', "'$add'"),
    ],
)
def test_a_file_that_is_no_netlist_is_explained_in_place_of_the_answer(
    page_at, tmp_path, text, said
):
    page = page_at("/circuits")
    file = tmp_path / "wrong.json"
    file.write_text(text)
    page.set_input_files("#file", file)
    line = page.locator("#answer .problem")
    line.wait_for()
    assert said in line.inner_text()
