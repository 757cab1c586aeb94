"""The page *What should I run?* in a browser: options, the front, and the command."""

import pytest

from tests.service.pages.harness import wait_for_charts

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_three_questions_have_a_plan_a_front_and_a_command(page_at):
    page = page_at("/plan?devices=h100-sxm-80gb&devices=l40s")
    rows = page.locator("#answer table.answers").first.locator("tbody tr")
    assert 1 <= rows.count() <= 5
    assert "vllm serve" in page.inner_text("#answer")
    (title,) = page.locator("figure.chart figcaption").all_inner_texts()
    assert title.startswith("What speed costs")


def test_a_tighter_limit_is_asked_without_loading_the_page(page_at):
    page = page_at("/plan?devices=h100-sxm-80gb&devices=l40s")
    with page.expect_response(lambda answer: "tpot_ms=30" in answer.url):
        page.fill("#tpot_ms", "30")
        page.press("#tpot_ms", "Tab")
    wait_for_charts(page)
    assert "tpot_ms 30" in page.inner_text("#answer")


def test_limits_that_nothing_keeps_are_said_with_the_nearest(page_at):
    page = page_at("/plan?devices=l4&tpot_ms=5&name=llama-3.1-8b")
    assert "Nothing keeps all limits" in page.locator("#answer .card").first.inner_text()


def test_a_cleared_limit_is_none(page_at):
    """An address with an empty limit has none, one without has the limits of the first question."""
    page = page_at("/plan?devices=h100-sxm-80gb&name=llama-3.1-8b&ttft_ms=&tpot_ms=")
    assert "no limits on latency" in page.inner_text("#answer")
    assert "at most ttft_ms 1,000" in page_at("/plan?devices=h100-sxm-80gb").inner_text("#answer")
