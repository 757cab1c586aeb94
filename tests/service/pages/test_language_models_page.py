"""The page *Language models* in a browser: devices, config.json, marks, parts, and what waits."""

import json

import pytest

from tests.service.pages.harness import asking, enter, wait_for_charts

pytestmark = [pytest.mark.browser, pytest.mark.slow]
LLAMA = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "vocab_size": 128256,
    "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
    "torch_dtype": "bfloat16", "tie_word_embeddings": True, "max_position_embeddings": 131072,
}  # fmt: skip


def figures(page):
    """Number of rows of the table with an estimate."""
    return page.locator("#answer table.answers tbody tr:has(strong)").count()


def marks(page):
    """Dashes of the vertical lines of the first chart."""
    first = page.locator("figure.chart").first
    lines = first.locator(".mark-rule line[stroke-dasharray]")
    return sorted(each.get_attribute("stroke-dasharray") for each in lines.all())


def test_a_second_device_is_a_second_column_and_a_second_curve(page_at):
    page = page_at("/llm")
    assert figures(page) == 11
    with asking(page, "device=l4"):
        page.check("[name=device][value=l4]")
    heads = page.locator("#answer table.answers thead th").all_inner_texts()
    assert heads == ["Metric", "1 × H100 SXM5 80GB", "1 × L4"]
    assert page.locator("figure.chart").first.locator(".mark-line path").count() == 2
    assert marks(page) == ["1,3", "1,3", "4,4"]


def test_the_parts_of_time_and_memory_and_the_layouts_are_drawn(page_at):
    page = page_at("/llm")
    text = "".join(page.locator(".plot svg").all_text_contents())
    for words in ("decode attention", "weights", "free", "tensor parallel 2", "fp8"):
        assert words in text
    assert "range of the training set" not in page.inner_text("#answer")


def test_a_model_of_ones_own_is_asked_by_its_config_json(page_at, tmp_path):
    file = tmp_path / "own-1b.json"
    file.write_text(json.dumps(LLAMA))
    page = page_at("/llm")
    with asking(page, "own-1b"):
        page.set_input_files("#file-config", file)
    assert page.locator("#answer h2").first.inner_text() == "own-1b.json"
    page.get_by_text("own-1b.json", exact=True).locator("visible=true").first.wait_for()
    assert page.locator("#config-chosen").inner_text() == "own-1b.json"
    assert page.locator("#config-problem").inner_text() == ""
    assert "weights take 2.3" in page.inner_text("#answer")
    page.reload()
    wait_for_charts(page)
    assert page.locator("#answer h2").first.inner_text() == "own-1b.json"
    enter(page, "#name", "llama-3.1-8b")
    page.wait_for_url("**name=llama-3.1-8b*")
    assert "config=" not in page.url


def test_a_file_that_is_no_configuration_is_explained(page_at, tmp_path):
    file = tmp_path / "config.json"
    file.write_text("no JSON")
    page = page_at("/llm")
    page.set_input_files("#file-config", file)
    page.locator("#config-problem .problem").wait_for()
    assert "config.json" in page.inner_text("#config-problem")


def test_requests_that_wait_are_said_first_with_what_more_devices_give(page_at):
    page = page_at("/llm?concurrency=1024")
    first = page.locator("#answer > *").first
    assert "Some requests wait" in first.inner_text()
    assert "the others wait" in first.inner_text()
    assert "4 devices: " in first.inner_text()
    first.get_by_role("link").click()
    wait_for_charts(page)
    assert "Some requests wait" not in page.inner_text("#answer")
    assert "4 × H100" in page.inner_text("#answer")


def test_the_start_page_offers_few_examples_and_its_models_have_every_figure(page_at):
    page = page_at("/")
    assert "First, drop your network" in page.inner_text("#answer h2")
    links = page.locator(".gallery a")
    assert 8 <= links.count() <= 14
    paths = {each.get_attribute("href").partition("?")[0] for each in links.all()}
    assert paths == {"/", "/compare", "/power", "/llm"}
    page.locator(".gallery a[href^='/llm']").first.click()
    wait_for_charts(page)
    assert figures(page) == 11
    page.go_back()
    page.get_by_role("link", name="any workload, as a request").click()
    assert page.locator("ul.chips a").count() >= 15


def test_a_request_has_the_titles_of_the_other_pages_and_a_line_that_is_seen_whole(page_at):
    page = page_at("/llm?concurrency=32")
    titles = page.locator("#answer table.answers tbody th").all_inner_texts()
    page = page_at("/requests?preset=deploy-8b")
    assert page.locator("#answer table.answers tbody th").all_inner_texts() == titles
    wide = "document.querySelector('.copy pre').scrollWidth"
    assert page.evaluate(f"{wide} <= document.querySelector('.copy pre').clientWidth")
    page.fill("#request", page.input_value("#request").replace("32", "16"))
    page.get_by_role("button", name="Ask").click()
    page.locator("#answer h2 >> text=Your request").wait_for()
