"""Pages after several questions: the back button, and a server that is gone."""

import pytest

from tests.service.pages.harness import HEIGHT, sync_api, wait_for_charts
from tests.service.real_server import real_server

pytestmark = [pytest.mark.browser, pytest.mark.slow]
RUN = "graph=resnet50&title=ResNet-50"
CHANGES = {
    f"/?{RUN}&devices=l4": ("#batch_size", "8", "16"),
    f"/compare?{RUN}&devices=l4&devices=t4": ("#batch_size", "8", "16"),
    f"/power?{RUN}&devices=l4": ("#batch_size", "8", "16"),
    "/llm": ("#input_tokens", "512", "2048"),
    "/neighbours": ("#cpus", "8", "16"),
}
"""Address of a form -> one of its fields, and two values of it."""


def ask(page, field, value):
    """Change a field, and wait for the answer to it."""
    name = field.removeprefix("#")
    with page.expect_response(lambda answer: f"{name}={value}" in answer.url):
        page.fill(field, value)
        page.press(field, "Tab")
    wait_for_charts(page)
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
    page = page_at("/llm?max_sequences=8")
    before = page.locator("#answer h2").first.inner_text()
    page.fill("#name", "llama-3.1-9b")
    page.press("#name", "Tab")
    line = page.locator("#answer > .unanswered")
    line.wait_for()
    assert "llama-3.1-9b" in line.inner_text()
    assert "max_sequences=8" in line.get_by_role("link", name="llama-3.1-8b").get_attribute("href")
    assert page.locator("#answer h2").first.inner_text() == before
    assert page.locator("#answer.stale").count() == 1
    assert "9b" not in page.url
    page.fill("#name", "llama-3.2-1b")
    page.press("#name", "Tab")
    page.wait_for_url("**llama-3.2-1b*")
    wait_for_charts(page)
    assert page.locator(".unanswered, .stale").count() == 0


def test_an_address_has_no_empty_field_and_the_title_says_what_is_answered(page_at):
    page = page_at(f"/?{RUN}&devices=l4")
    assert page.title().startswith("ResNet-50 on L4 · ")
    described = page.get_attribute("meta[name=description]", "content")
    assert "Time of one run" in described
    ask(page, "#batch_size", "8")
    assert "=&" not in page.url and not page.url.endswith("=")
    with page.expect_response(lambda answer: "devices=t4" in answer.url):
        page.check("[name=devices][value=t4]")
    wait_for_charts(page)
    assert page.title().startswith("ResNet-50 on L4, T4 · ")
    with page.expect_response(lambda answer: "devices=&" in answer.url):
        page.uncheck("[name=devices][value=t4]")
        page.uncheck("[name=devices][value=l4]")
    page.get_by_text("Choose at least one device.").wait_for()


def test_a_failure_of_the_service_is_said_with_a_button(page_at):
    page = page_at("/llm")
    page.route("**/llm?*", lambda route: route.fulfill(status=500, body="{}"))
    page.fill("#input_tokens", "512")
    page.press("#input_tokens", "Tab")
    line = page.locator("#answer > .unanswered")
    line.wait_for()
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
        page.fill("#batch_size", "8")
        page.press("#batch_size", "Tab")
        line = page.locator("#answer > .unanswered")
        line.wait_for()
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
