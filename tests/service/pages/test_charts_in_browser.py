"""Charts in a browser: the tooltip with its lines, names of a legend, exports, and addresses."""

import csv
import json
from pathlib import Path

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]
TWO = "/?graph=resnet50&title=ResNet-50&devices=a100-pcie-80gb&devices=l4"


def saved(page, figure, kind):
    """What a button of a chart saves, and under which name."""
    with page.expect_download() as waiting:
        figure.get_by_role("button", name=kind).click()
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


def test_a_point_has_a_tooltip_and_lines_through_it(page_at):
    page = page_at(TWO)
    figure = page.locator("#time-of-one-run-over-batch-size")
    figure.scroll_into_view_if_needed()
    figure.locator(".mark-symbol path").nth(3).hover()
    page.locator(".tip").wait_for()
    assert "batch size: " in page.locator(".tip").inner_text()
    assert figure.locator(".plot.crossed").count() == 1
    page.mouse.move(5, 5)
    assert page.locator(".tip:visible, .plot.crossed").count() == 0


def test_a_name_of_a_legend_fades_the_other_marks(page_at):
    page = page_at(TWO)
    figure = page.locator("#time-of-one-run-over-batch-size")
    figure.scroll_into_view_if_needed()
    opacities = """(figure) => [...figure.querySelectorAll('.mark-line path')]
      .map((each) => +(each.getAttribute('opacity') ?? 1))"""
    assert figure.evaluate(opacities) == [1, 1]
    figure.locator(".role-legend .mark-text text").first.click()
    page.wait_for_timeout(200)
    assert sorted(figure.evaluate(opacities)) == [0.07, 1]
    figure.locator(".role-legend .mark-text text").first.click()
    page.wait_for_timeout(200)
    assert figure.evaluate(opacities) == [1, 1]


def test_a_chart_is_saved_as_its_figures_and_as_a_picture(page_at):
    page = page_at(TWO)
    figure = page.locator("#where-the-time-goes")
    name, text = saved(page, figure, "JSON")
    rows = json.loads(text)
    assert name == "where-the-time-goes.json"
    assert {row["name"] for row in rows} == {"A100 PCIe 80GB", "L4"}
    name, text = saved(page, figure, "CSV")
    assert [row["name"] for row in csv.DictReader(text.decode().splitlines())] == [
        row["name"] for row in rows
    ]
    name, picture = saved(page, figure, "PNG")
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 5_000


def test_a_chart_has_an_address(page_at):
    page = page_at(TWO)
    page.locator("#what-takes-memory .anchor").click()
    assert page.url.endswith("#what-takes-memory")
    assert "graph=resnet50" in page.url
