"""All pages at every width, their charts in a browser, the back button, a server that is gone."""

import csv
import json
from pathlib import Path

import pytest

from tests.service.pages.harness import (
    HEIGHT,
    WIDTHS,
    asking,
    check_everywhere,
    check_width,
    enter,
    sync_api,
    wait_for_charts,
)
from tests.service.real_server import real_server
from tests.waiting import eventually

pytestmark = [pytest.mark.browser, pytest.mark.slow]

RUN = "graph=resnet50&title=ResNet-50"
PATHS = {
    "start": "/",
    "predict": f"/?{RUN}&devices=rtx-4090&devices=a100-pcie-80gb&devices=l4",
    "compare": f"/compare?{RUN}&devices=rtx-4090&devices=l4&prices=rtx-4090=0.4,l4=0.7",
    "power": f"/power?{RUN}&batch_size=64",
    "llm": "/llm",
    "plan": "/plan?name=llama-3.1-8b&requests_per_s=5&input_tokens=500&output_tokens=100",
    "plan without a question": "/plan",
    "fleet": "/plan?name=llama-3.1-8b&trace=splitwise_conv&window_s=600&tpot_ms=80&devices=h100",
    "training": "/training",
    "training on several devices": "/training?name=llama-3.1-70b&device=h100-sxm-80gb&devices=64"
    "&lora_rank=0&tokens=1e12",
    "neighbours": "/neighbours",
    "circuits": "/circuits",
    "requests": "/requests",
    "too large": f"/?{RUN}&devices=l4&devices=h200&batch_size=8192",
    "too long": "/llm?input_tokens=1000000",
    "two devices": "/llm?device=l4&device=h100-sxm-80gb&concurrency=1024",
    "problem": "/problems/unknown-device",
}


@pytest.mark.parametrize("name", PATHS)
def test_a_page_fits_and_can_be_read_by_all(page_at, name):
    page = page_at(PATHS[name], WIDTHS[0])
    assert page.locator("h1").count() == 1
    check_everywhere(page, name)


OUTSIDE = """[...document.querySelectorAll(".card *")].filter((each) => {
  const inner = ".scroll, .plot, .unseen, .tall, .choices, datalist";
  if (each.closest(inner) || !each.checkVisibility()) return false;
  const edge = each.closest(".card").getBoundingClientRect().right;
  return each.getBoundingClientRect().width > 1 && each.getBoundingClientRect().right > edge + 1;
}).map((each) => each.outerHTML.slice(0, 80)).slice(0, 3)"""
"""What lies beyond the right edge of its card, but for what scrolls."""
KEPT_AS_DRAWN = "addEventListener('resize', (event) => event.stopImmediatePropagation(), true)"
"""Charts are not drawn again at each of the widths."""


@pytest.mark.parametrize(
    "path",
    [
        *(
            PATHS[name]
            for name in ("predict", "compare", "llm", "plan", "fleet", "training", "requests")
        ),
        "/leaderboard",
    ],
)
def test_nothing_lies_outside_its_card_at_any_width(page_at, path):
    page = page_at(path, 320)
    page.evaluate(KEPT_AS_DRAWN)
    for width in range(320, 1921, 20):
        page.set_viewport_size({"width": width, "height": HEIGHT})
        check_width(page)
        assert page.evaluate(OUTSIDE) == [], f"{width} px"


SIDEWAYS = """[...document.querySelectorAll(".scroll:has(.plans)")].filter((each) =>
  each.checkVisibility() && each.scrollWidth > each.clientWidth + 1).length"""
ON_OTHERS = """[...document.querySelectorAll(".mark-text.role-mark, .role-legend text, figcaption")]
  .flatMap((each) => each.matches("g") ? [...each.querySelectorAll("text")] : [each])
  .filter((each) => getComputedStyle(each).visibility === "visible")
  .map((each) => each.getBoundingClientRect())
  .filter((own, at, all) => all.some((other, place) => place < at && own.left < other.right
    && other.left < own.right && own.top < other.bottom && other.top < own.bottom)).length"""
"""Number of names of points, of legends and headings of charts that lie on another."""


@pytest.mark.parametrize("name", ["plan", "training on several devices", "llm"])
def test_plans_are_seen_whole_and_no_names_in_charts_lie_on_each_other(page_at, name):
    page = page_at(PATHS[name], 1200)
    for width in (1200, 375, 1600):
        page.set_viewport_size({"width": width, "height": HEIGHT})
        eventually(lambda: page.evaluate(f"{SIDEWAYS} + {ON_OTHERS}") == 0, within_s=10)
    if name == "plan":
        assert page.locator(".mark-text.role-mark text:visible").count() > 4


@pytest.mark.parametrize(
    "name", ["predict", "compare", "power", "llm", "plan", "training", "neighbours", "circuits"]
)
def test_a_page_answers_without_scripts(page_at, name):
    page = page_at(PATHS[name], scripts=False)
    assert page.locator("#answer table").count() > 0


TWO = "/?graph=resnet50&title=ResNet-50&devices=a100-pcie-80gb&devices=l4"


def saved(page, figure, kind):
    """What a button of a chart saves, and under which name."""
    with page.expect_download() as waiting:
        figure.get_by_role("button", name=kind).click()
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


def curve(page_at):
    """A page with two devices, and its chart over the batch size."""
    page = page_at(TWO)
    figure = page.locator("#time-of-one-run-over-batch-size")
    figure.scroll_into_view_if_needed()
    return page, figure


def test_a_point_has_a_tooltip_and_lines_through_it(page_at):
    page, figure = curve(page_at)
    figure.locator(".mark-symbol path").nth(3).hover()
    page.locator(".tip").wait_for()
    assert "batch size: " in page.locator(".tip").inner_text()
    assert figure.locator(".plot.crossed").count() == 1
    page.mouse.move(5, 5)
    assert page.locator(".tip:visible, .plot.crossed").count() == 0


def test_a_name_of_a_legend_fades_the_other_marks(page_at):
    page, figure = curve(page_at)
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


CHANGES = {
    f"/?{RUN}&devices=l4": ("#batch_size", "8", "16"),
    f"/compare?{RUN}&devices=l4&devices=t4": ("#batch_size", "8", "16"),
    f"/power?{RUN}&devices=l4": ("#batch_size", "8", "16"),
    "/llm": ("#input_tokens", "512", "2048"),
    "/training": ("#lora_rank", "8", "64"),
    "/neighbours": ("#cpus", "8", "16"),
    f"{PATHS['plan']}&devices=l4": ("#tpot_ms", "60", "70"),
}
"""Address of a form -> one of its fields, and two values of it."""


def unanswered(page):
    """The line that stands before the answer."""
    line = page.locator("#answer > .unanswered")
    line.wait_for()
    return line


def ask(page, field, value):
    """Change a field, and wait for the answer to it."""
    name = field.removeprefix("#")
    with asking(page, f"{name}={value}"):
        enter(page, field, value)
    page.wait_for_url(f"**{name}={value}*")


@pytest.mark.parametrize("address", CHANGES)
def test_the_back_button_shows_the_question_before_with_its_form(page_at, address):
    field, first, second = CHANGES[address]
    page = page_at(address)
    ask(page, field, first)
    answer = page.locator("#answer").inner_text()
    ask(page, field, second)
    page.go_back()
    sync_api.expect(page.locator(field)).to_have_value(first, timeout=60_000)
    wait_for_charts(page)
    assert f"{field.removeprefix('#')}={first}" in page.url
    assert page.locator("header.top").count() == 1
    assert page.locator("form#ask").count() == 1
    assert page.locator("#answer").inner_text() == answer
    ask(page, field, "32")  # the form of the page still asks


def test_a_question_with_an_error_leaves_the_answer_before_and_its_address(page_at):
    page = page_at("/llm?concurrency=8")
    before = page.locator("#answer h2").first.inner_text()
    enter(page, "#name", "llama-3.1-9b")
    line = unanswered(page)
    assert "llama-3.1-9b" in line.inner_text()
    assert "concurrency=8" in line.get_by_role("link", name="llama-3.1-8b").get_attribute("href")
    assert page.locator("#answer h2").first.inner_text() == before
    assert page.locator("#answer.stale").count() == 1
    assert "9b" not in page.url
    enter(page, "#name", "llama-3.2-1b")
    page.wait_for_url("**llama-3.2-1b*")
    wait_for_charts(page)
    assert page.locator(".unanswered, .stale").count() == 0


@pytest.mark.parametrize(
    ("address", "field"),
    [(f"/?{RUN}&devices=l4", "#batch_size"), ("/neighbours", "#cpus"), ("/llm", "#input_tokens")],
)
def test_a_number_out_of_bounds_is_said_and_the_answer_before_dimmed(page_at, address, field):
    page = page_at(address)
    enter(page, field, "0")
    assert "greater than" in unanswered(page).inner_text()
    assert page.locator("#answer.stale").count() == 1
    assert page.get_attribute(field, "aria-invalid") == "true"


def test_a_load_in_place_of_another_is_said_where_it_clears_it(page_at):
    page = page_at("/llm?concurrency=8")
    page.locator("summary", has_text="Arrivals").click()
    ask(page, "#requests_per_s", "2")
    assert page.input_value("#concurrency") == ""
    (line,) = page.locator(".cleared").all_inner_texts()
    assert line.startswith("Left out: ") and "per second" in line
    ask(page, "#input_tokens", "512")
    assert page.locator(".cleared").count() == 0


def test_an_address_has_no_empty_field_and_the_title_says_what_is_answered(page_at):
    page = page_at(f"/?{RUN}&devices=l4")
    assert page.title().startswith("ResNet-50 on L4 · ")
    described = page.get_attribute("meta[name=description]", "content")
    assert "Time of one run" in described
    ask(page, "#batch_size", "8")
    assert "=&" not in page.url and not page.url.endswith("=")
    with asking(page, "devices=t4"):
        page.check("[name=devices][value=t4]")
    assert page.title().startswith("ResNet-50 on L4, T4 · ")
    with page.expect_response(lambda answer: "devices=&" in answer.url):
        page.uncheck("[name=devices][value=t4]")
        page.uncheck("[name=devices][value=l4]")
    page.get_by_text("Choose at least one device.").wait_for()


def test_a_failure_of_the_service_is_said_with_a_button(page_at):
    page = page_at("/llm")
    page.route("**/llm?*", lambda route: route.fulfill(status=500, body="{}"))
    enter(page, "#input_tokens", "512")
    line = unanswered(page)
    assert "status 500" in line.inner_text()
    page.unroute("**/llm?*")
    line.get_by_role("button").click()
    page.wait_for_url("**input_tokens=512*")
    wait_for_charts(page)
    assert page.locator(".unanswered, .stale").count() == 0
    page.wrong.clear()  # the browser reports the failure in its console


def test_a_server_that_is_gone_is_said_with_a_button_that_asks_again(browser, tmp_path):
    """The page is opened without the fixture, because the browser reports what fails as errors."""
    with real_server(tmp_path) as server:
        page = browser.new_page(viewport={"width": 1280, "height": HEIGHT})
        page.goto(f"{server.url}/?{RUN}&devices=l4")
        wait_for_charts(page)
        before = page.locator("#answer h2").first.inner_text()
        server.stop()
        enter(page, "#batch_size", "8")
        line = unanswered(page)
        assert "cannot be reached" in line.inner_text()
        dimmed = page.locator("#answer.stale > .card").first
        assert float(dimmed.evaluate("(each) => getComputedStyle(each).opacity")) < 1.0
        assert page.locator("#answer h2").first.inner_text() == before
        answered = [("hx-request", "true")]
        page.route(
            "**/?*",
            lambda route: route.fulfill(
                status=200, content_type="text/html",
                body=f"<p id='again'>{dict(answered).items() <= route.request.headers.items()}</p>",
            ),
        )  # fmt: skip
        line.get_by_role("button").click()
        page.locator("#again").wait_for()
        assert page.locator("#again").inner_text() == "True"
        assert page.locator(".unanswered, .stale").count() == 0
        page.close()
