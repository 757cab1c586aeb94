"""The page *Training* in a browser: layouts, memory, the parts of a step, and what does not fit."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]
LARGE = "/training?name=llama-3.1-70b&device=h100-sxm-80gb&devices=128&lora_rank=0&tokens=1e12"


def test_the_default_question_is_adapters_on_one_card(page_at):
    page = page_at("/training")
    assert page.locator("#answer h2").first.inner_text() == "llama-3.1-8b on 1 × RTX 4090"
    assert "LoRA of rank 16 on nf4" in page.inner_text("#answer")
    text = "".join(page.locator(".plot svg").all_text_contents())
    for words in ("linear", "weights", "activations", "free"):
        assert words in text
    assert page.locator(".gallery a").count() == 3


def test_a_plan_has_a_table_memory_by_stage_and_a_front(page_at):
    page = page_at(LARGE)
    rows = page.locator("#answer table.answers").first.locator("tbody tr")
    assert 1 <= rows.count() <= 5
    titles = page.locator("figure.chart figcaption").all_inner_texts()
    wanted = ("Where the time", "Memory of the fullest", "Memory of each", "Days and price")
    for start, title in zip(wanted, titles, strict=True):
        assert title.startswith(start)
    assert "stage 2" in "".join(page.locator(".plot svg").all_text_contents())
    page.get_by_text("As arguments of megatron").click()
    assert "--tensor-model-parallel-size" in page.inner_text("#answer pre")


def test_what_does_not_fit_is_said_first_with_the_nearest_layouts(page_at):
    page = page_at("/training?name=llama-3.1-70b&devices=1&lora_rank=0")
    assert "No layout fits" in page.locator("#answer .card").first.inner_text()
    assert page.locator("#answer details[open] table tbody tr").count() >= 1
    assert "not known" in page.inner_text("#answer")
