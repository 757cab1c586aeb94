"""The page *Predict* in a browser: upload, options, addresses and errors."""

import re

import pytest

from tests.service.pages.harness import wait_for_charts

pytestmark = [pytest.mark.browser, pytest.mark.slow]
RESNET = "/?graph=resnet50&title=ResNet-50&devices=a100-pcie-80gb&batch_size=256"


def estimate(page, heading):
    """The estimate of the first device under a heading."""
    cell = page.locator(f"#answer td[data-label='{heading}'] strong").first
    return float(cell.inner_text().replace(",", ""))


def answered(page, act):
    """Do something that asks again, and wait for the answer."""
    with page.expect_response(lambda r: "hx-request" in r.request.headers and "?" in r.url):
        act()
    wait_for_charts(page)


def test_a_file_is_answered_and_the_address_shows_the_same_again(page_at, light):
    page = page_at("/")
    answered(page, lambda: page.set_input_files("#file", light / "light_squeezenet.onnx"))
    assert page.locator("#answer h2").first.inner_text() == "light_squeezenet.onnx"
    time = estimate(page, "Time of one run")
    assert time > 0
    assert re.search(r"graph=[0-9a-f]{32}", page.url)
    page.reload()
    wait_for_charts(page)
    assert estimate(page, "Time of one run") == time
    assert page.locator(".plot svg").count() >= 6


def test_a_file_that_is_no_model_is_explained_beside_the_field(page_at, tmp_path):
    wrong = tmp_path / "notes.txt"
    wrong.write_text("no model")
    page = page_at("/")
    page.set_input_files("#file", wrong)
    line = page.locator("#upload-problem .problem")
    line.wait_for()
    assert "neither an ONNX model nor an operator graph" in line.inner_text()
    page.wrong.clear()  # the browser reports the refused upload in its console


def test_the_slider_sets_the_batch_size(page_at):
    page = page_at(RESNET)
    page.focus("[data-powers-of]")
    answered(page, lambda: page.press("[data-powers-of]", "ArrowLeft"))
    assert page.input_value("[name=batch_size]") == "128"
    page.wait_for_url(lambda address: "batch_size=128" in address)


def test_devices_are_filtered_by_words_in_any_order(page_at):
    page = page_at("/")
    page.fill("#find", "nvidia t4")
    visible = page.locator("#devices label:visible")
    assert [each.strip() for each in visible.all_inner_texts()] == ["NVIDIA T4"]


def test_a_theme_is_kept_on_the_next_page(page_at):
    page = page_at("/neighbours")
    back = "getComputedStyle(document.documentElement).backgroundColor"
    before = page.evaluate(back)
    page.click("#theme")
    page.click("#theme")
    assert page.inner_text("#theme") == "Theme: dark"
    assert page.evaluate(back) != before
    page.goto(page.url)
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_the_menu_of_a_narrow_window_opens_and_closes_by_keyboard(page_at):
    page = page_at("/", width=390)
    link = page.get_by_role("link", name="Neighbours")
    assert not link.is_visible()
    page.focus(".menu")
    page.press(".menu", "Enter")
    assert link.is_visible()
    page.keyboard.press("Escape")
    assert not link.is_visible()


def test_the_operators_that_take_the_time_are_drawn_and_add_up_to_it(page_at):
    page = page_at(RESNET + "&precision=amp")
    chart = page.locator("#operators figure.chart").first
    assert chart.locator(".plot svg").count() == 1
    drawn = chart.locator(".plot svg").text_content()
    assert "conv2d" in drawn
    assert "all smaller parts" in drawn
    chart.locator("summary").click()
    cells = chart.locator("td.number").all_inner_texts()
    whole = sum(float(cell.replace(",", "")) for cell in cells)
    assert whole == pytest.approx(estimate(page, "Time of one run"), rel=0.01)


def test_the_loops_of_a_design_are_drawn(page_at):
    page = page_at("/requests?preset=hls-two-matrix-products")
    assert "loop L2: pipeline flatten" in page.locator("#divided .plot svg").text_content()
