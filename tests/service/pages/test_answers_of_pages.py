"""Pages as text: what they answer, how they refuse, and that hostile names stay text."""

import re

import pytest

from forerun.service.http.pages.compare.heat_map import STEPS

pytestmark = pytest.mark.slow
PART = {"hx-request": "true"}


def text_of(answer):
    assert answer.status_code == 200, answer.text
    return answer.text


def test_a_part_is_the_answer_alone(adapting):
    whole = text_of(adapting.get("/?graph=resnet50&devices=l4"))
    part = text_of(adapting.get("/?graph=resnet50&devices=l4", headers=PART))
    assert "<html" in whole
    assert "<html" not in part
    assert "Estimates" in part


def test_what_cannot_be_answered_is_a_page_or_one_line(adapting):
    page = adapting.get("/?graph=resnet50&devices=abacus")
    assert page.status_code == 404
    assert "<html" in page.text
    assert "abacus" in page.text
    line = text_of(adapting.get("/?graph=resnet50&devices=abacus", headers=PART))
    assert line.startswith('<p class="problem"')
    wrong = adapting.get("/?graph=resnet50&batch_size=0")
    assert wrong.status_code == 422
    assert "batch_size" in wrong.text
    assert adapting.get("/llm?parameters_billion=1&active_billion=2").status_code == 422


def test_a_device_that_cannot_answer_does_not_hide_the_others(adapting):
    page = text_of(adapting.get("/?graph=resnet50&devices=l4&devices=tpu-v5p&precision=fp32"))
    assert "tpu-v5p" in page
    assert page.count('data-label="Peak memory"') >= 1


def test_a_hostile_title_stays_text(adapting):
    address = "/?graph=resnet50&devices=l4&title=%3Cscript%3Ealert(1)%3C/script%3E"
    assert "<script>alert" not in text_of(adapting.get(address))


def test_the_map_shades_the_best_most_and_says_where_memory_is_short(adapting):
    address = "/compare?graph=vit-base&devices=h100-sxm-80gb&devices=t4&phase=training"
    page = text_of(adapting.get(address, headers=PART))
    cells = re.findall(r'<td class="number(?: h(\d))?" title="([^"]*)">([^<]*)</td>', page)
    shades = {float(text.replace(",", "")): int(step) for step, _, text in cells if step}
    assert shades[min(shades)] == STEPS
    assert shades[max(shades)] == 1
    short_of = [text for _, note, text in cells if note == "the memory is not enough"]
    assert short_of
    assert set(short_of) == {"–"}


def test_a_ranking_by_cost_uses_the_prices(adapting):
    address = "/compare?graph=resnet50&devices=l4&devices=t4&objective=cost&prices="
    assert "a million runs" in text_of(adapting.get(address + "l4=0.7,t4=0.3", headers=PART))
    assert "no price is given" in text_of(adapting.get(address + "l4=0.7", headers=PART))
    assert "is not written as" in text_of(adapting.get(address + "cheap", headers=PART))


def test_an_edited_request_is_answered_and_a_broken_one_is_explained(adapting):
    asked = '{"workload": {"kind": "network", "graph": "resnet50"}, "device": "l4"}'
    given = {"preset": "matrix-product", "request": asked}
    assert "latency_ms" in text_of(adapting.get("/requests", params=given, headers=PART))
    broken = {"preset": "matrix-product", "request": "{"}
    assert "not valid JSON" in text_of(adapting.get("/requests", params=broken, headers=PART))
    assert adapting.get("/requests?preset=neighbours").status_code == 422


def test_a_named_model_has_times_memory_and_price(adapting):
    text = text_of(adapting.get("/llm?name=llama-3.1-8b&usd_per_device_hour=3", headers=PART))
    for words in ("Time to first token", "Time per output token", "weights take", "3 USD",
                  "the smallest that fits", "decode attention"):  # fmt: skip
        assert words in text
    by_rate = adapting.get("/llm?name=llama-3.1-8b&requests_per_s=2", headers=PART)
    assert "arrival rate" in text_of(by_rate)
    assert adapting.get("/llm?name=lama-3.1-8b").status_code == 404
    by_size = text_of(adapting.get("/llm?parameters_billion=8", headers=PART))
    assert "8 billion parameters" in by_size


@pytest.mark.parametrize("path", ["/llm?requests_per_s=2", "/neighbours", "/power?graph=resnet50"])
def test_every_answer_says_what_limits_it(adapting, path):
    assert "Why: what" in text_of(adapting.get(path, headers=PART))
