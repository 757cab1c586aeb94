"""The page *What should I run?* in a browser: it asks and answers what POST /v1/llm/plan does."""

import json
from urllib.parse import urlsplit

import pytest

from forerun.data.language_models.traces import named_trace
from forerun.service.http.pages.chart import short
from forerun.service.schemas.llm.serving_plan import EXAMPLE_PLAN, PLAN_FIELDS
from tests.service.pages.harness import asking, check_everywhere, enter, wait_for_charts

pytestmark = [pytest.mark.browser, pytest.mark.slow]

MODEL = {"model": "llama-3.1-8b"}
CHAT = {"requests_per_s": 20, "input_tokens": 1000, "output_tokens": 200}
ADDRESS = "/plan?name=llama-3.1-8b&requests_per_s=20&input_tokens=1000&output_tokens=200"
FLEET = {
    **{"trace": "splitwise_conv", "requests_per_s": 20, "tpot_ms": 75, "window_s": 300},
    **{"startup_s": 60, "stabilization_s": 0, "cap_kw": 50, "cap_risk": 0.05, "region": "france"},
}
FIGURES = ("device_hours", "kwh", "usd", "kg_co2")


def answered(page, fields, **more):
    """The answer of HTTP to the same question."""
    parts = urlsplit(page.url)
    address = f"{parts.scheme}://{parts.netloc}/v1/llm/plan"
    answer = page.request.post(address, data={**MODEL, **fields, **more}, timeout=60_000)
    assert answer.ok, answer.text()
    return answer.json()


def fill(page, fields):
    """Fill in fields, each of which is shown first."""
    for name, value in fields.items():
        own = page.locator(f"#ask [name={name}]")
        own.evaluate(
            "(each) => { if (each.closest('details')) each.closest('details').open = true }"
        )
        if own.evaluate("(each) => each.tagName") == "SELECT":
            own.select_option(str(value))
        else:
            own.fill(str(value))


def plan(page, fields):
    """Fill in fields of a page that has no answer yet, and ask."""
    fill(page, fields)
    with page.expect_response(lambda answer: "/plan" in answer.url):
        page.get_by_role("button", name="Plan").click()
    page.locator("#answer table.answers, #answer .unanswered").first.wait_for()
    wait_for_charts(page)


def first_option(page):
    return page.locator("#answer .figure").inner_text()


def words_of(option):
    """How the page names an option of HTTP, without its settings."""
    count = option["devices"] // option["replicas"]
    many = f"{option['replicas']} x " if option["replicas"] > 1 else ""
    return f"{many}{count} {option['device']}"


def test_the_form_has_every_field_of_a_request_and_no_value_that_was_not_asked(page_at):
    page = page_at("/plan")
    fields = page.evaluate(
        "[...document.querySelector('#ask').elements].map((e) => [e.name, e.value])"
    )
    named = [(name, value) for name, value in fields if name]
    assert sorted(name for name, _ in named) == sorted([*PLAN_FIELDS.paths, "name", "config"])
    checks = {n for n, own in PLAN_FIELDS.fields.items() if own.get("default") is False}
    assert {name for name, value in named if value} == checks
    assert page.locator("#ask :checked:not(option)").count() == 0
    assert page.locator("#answer table").count() == 0


def test_three_questions_have_a_plan_a_front_and_commands(page_at):
    page = page_at("/plan")
    asked = {name: EXAMPLE_PLAN[name] for name in EXAMPLE_PLAN if name != "model"}
    plan(page, {"name": EXAMPLE_PLAN["model"], **asked})
    out = answered(page, EXAMPLE_PLAN)
    assert first_option(page).startswith(words_of(out["best"][0]))
    kinds = page.locator("#run summary").all_inner_texts()
    assert [kind.partition(": ")[2] for kind in kinds] == list(out["commands"])
    for block, text in zip(page.locator("#run code").all(), out["commands"].values(), strict=True):
        assert block.text_content().endswith(text)
    assert page.locator("#run .copy button").count() == len(out["commands"])
    assert page.locator("figure.chart figcaption").inner_text().startswith("What speed costs")
    page.get_by_role("link", name="The plan for sglang").click()
    assert "sglang" in page.locator("#run code").first.text_content()


def test_a_fleet_has_the_figures_of_http_and_a_picture_of_them(page_at):
    page = page_at("/plan")
    plan(page, {"name": "llama-3.1-8b", "devices": "h100", **FLEET})
    out = answered(page, FLEET, devices=["h100"])
    fleet = out["fleet"]
    rows = page.locator("#fleet > .scroll tbody tr").all()
    found = [row.locator("td").all_inner_texts() for row in rows]
    assert found == [[short(fleet[of][name], 4) for of in ("scaled", "fixed")] for name in FIGURES]
    text = page.locator("#fleet").inner_text()
    assert f"of {fleet['replay']['requests']:,} requests of one replica" in text
    assert f"under 50 kW: {fleet['cap']['by_design_power']:,} servers" in text
    assert "at a risk of 0.05" in text
    drawn = json.loads(page.locator("#fleet figure script").text_content())["data"]["values"]
    assert [each["replicas"] for each in drawn[:-1]] == fleet["replicas"]
    assert [each["rate"] for each in drawn[:-1]] == fleet["requests_per_s"]
    assert drawn[-1]["hours"] == pytest.approx(len(fleet["replicas"]) * fleet["window_s"] / 3600)
    assert page.locator("#fleet .plot svg .mark-line, #fleet .plot svg .mark-area").count() == 2


def test_a_trace_of_ones_own_is_planned_for_and_stays_out_of_the_address(page_at, tmp_path):
    trace = named_trace("splitwise_conv")
    rows = trace.take(trace.arrival_s < trace.arrival_s[0] + 300).rows()
    file = tmp_path / "own.csv"
    lines = (",".join(str(value) for value in row.values()) for row in rows)
    file.write_text("arrival_s,input_tokens,output_tokens\n" + "\n".join(lines))
    page = page_at(f"{ADDRESS}&devices=h100&tpot_ms=60")
    page.get_by_text("Traffic by sizes or a trace").click()
    with page.expect_response(lambda answer: answer.request.method == "POST"):
        page.set_input_files("#file-requests", file)
    page.get_by_text("own.csv").wait_for()
    wait_for_charts(page)
    assert page.locator("#input_tokens").input_value() == ""
    out = answered(page, {"requests": rows, "requests_per_s": 20, "tpot_ms": 60}, devices=["h100"])
    assert f"{out['traffic']['input_tokens']:,.0f} tokens in" in page.inner_text("#answer")
    assert first_option(page).startswith(words_of(out["best"][0]))
    assert "arrival" not in page.url
    enter(page, "#input_tokens", "500")  # lengths again, of which one is missing
    page.locator("#output_tokens ~ .at-field").wait_for()


def test_a_file_that_is_no_trace_is_said_at_its_field_with_the_line(page_at, tmp_path):
    file = tmp_path / "own.csv"
    file.write_text("arrival_s,input_tokens,output_tokens\n0,10,3\n1,ten,3\n")
    page = page_at(f"{ADDRESS}&devices=h100")
    page.get_by_text("Traffic by sizes or a trace").click()
    page.set_input_files("#file-requests", file)
    line = page.locator("#file-requests ~ .at-field")
    line.wait_for()
    assert "line 3" in line.inner_text()
    assert "'ten', which is not a number" in line.inner_text()


def test_a_limit_of_a_99th_percentile_is_asked_and_answered(page_at):
    page = page_at(f"{ADDRESS}&devices=h100")
    page.get_by_text("More limits").click()
    with asking(page, "ttft_p99_ms=1500"):
        enter(page, "#ttft_p99_ms", "1500")
    out = answered(page, CHAT, devices=["h100"], ttft_p99_ms=1500)
    said = f"99 %: {short(out['best'][0]['p99_ms']['ttft_ms'])} ms"
    assert said in page.locator("#answer table.answers tbody tr").first.inner_text()
    assert "ttft_p99_ms 1,500" in page.inner_text("#answer")


def test_numbers_and_prices_of_devices_and_a_mix_are_those_of_http(page_at):
    page = page_at("/plan")
    sizes = [(500, 150, 0.8), (6000, 400, 0.2)]
    page.get_by_text("What is best").click()
    page.check("#mix")
    words = " ".join(",".join(map(str, size)) for size in sizes)
    plan(page, {"name": "llama-3.1-8b", "requests_per_s": 5, "tpot_ms": 100, "sizes": words,
                "devices": "l4=16, l40s=8@0.9, aws/m7i.4xlarge@0.81"})  # fmt: skip
    stocks = [
        {"device": "l4", "count": 16},
        {"device": "l40s", "count": 8, "usd_per_device_hour": 0.9},
        {"device": "aws/m7i.4xlarge", "usd_per_device_hour": 0.81},
    ]
    names = ("input_tokens", "output_tokens", "share")
    out = answered(
        page, {"requests_per_s": 5, "tpot_ms": 100, "mix": True}, devices=stocks,
        sizes=[dict(zip(names, size, strict=True)) for size in sizes],
    )  # fmt: skip
    assert first_option(page).startswith(words_of(out["best"][0]))
    price = page.locator("#answer table.answers tbody td").first.inner_text()
    assert price == short(out["best"][0]["usd_per_hour"])
    assert out["mix"] is not None
    assert "mix" in page.inner_text("#answer ul")


def test_a_wrong_device_is_said_at_its_field_until_it_is_mended(page_at):
    page = page_at(f"{ADDRESS}&devices=l4")
    before = first_option(page)
    enter(page, "#devices", "l4=4, l44=2")
    line = page.locator("#devices ~ .at-field")
    line.wait_for()
    assert "'l44'" in line.inner_text()
    assert page.get_attribute("#devices", "aria-invalid") == "true"
    assert line.get_attribute("id") in page.get_attribute("#devices", "aria-describedby")
    assert first_option(page) == before
    page.evaluate(
        "document.querySelector('#answer').classList.remove('stale')"
    )  # dimmed on purpose
    check_everywhere(page, "a wrong device")
    enter(page, "#devices", "l4=4")
    page.wait_for_url("**devices=l4%3D4*")
    wait_for_charts(page)
    assert page.locator(".at-field, [aria-invalid], .stale").count() == 0


@pytest.mark.parametrize("scripts", [True, False])
def test_an_address_with_an_error_is_the_form_with_one_line_at_the_field(page_at, scripts):
    page = page_at(f"{ADDRESS}&devices=l4=x", scripts=scripts)
    line = page.locator("#answer .unanswered [data-field=devices]")
    assert "count of device types to choose from" in line.inner_text()
    assert page.locator("#requests_per_s").input_value() == "20"
    if scripts:
        assert page.locator(".at-field:visible").inner_text() == line.inner_text()
        assert page.locator("[name=devices][aria-invalid]").count() == 1
    page.wrong.clear()  # the browser reports the status in its console


def test_a_shared_address_restores_the_form_and_the_answer(page_at):
    page = page_at("/plan")
    asked = {
        "name": "llama-3.1-8b", **CHAT, "tpot_ms": "50.5", "request_latency_p99_ms": "60000",
        "devices": "l4=16, h100@2.5", "formats": "bf16, fp8", "objective": "energy",
        "risk": "value", "engine": "sglang", "graphs": "false", "kept": "3",
    }  # fmt: skip
    page.get_by_text("What is best").click()
    page.check("#disaggregated")
    plan(page, asked)
    again = page_at(urlsplit(page.url)._replace(scheme="", netloc="").geturl())
    for name, value in asked.items():
        own = again.locator(f"#ask [name={name}]")
        assert own.input_value() == str(value), name
        assert own.is_visible(), name
    assert again.is_checked("#disaggregated")
    assert not again.is_checked("#mix")
    assert again.inner_text("#answer") == page.inner_text("#answer")


def test_a_trace_takes_the_place_of_lengths_and_lengths_that_of_a_trace(page_at):
    page = page_at(f"{ADDRESS}&devices=h100")
    page.get_by_text("Traffic by sizes or a trace").click()
    with page.expect_response(lambda answer: "trace=lmsys_05_llama" in answer.url):
        page.select_option("#trace", "lmsys_05_llama")
    assert [page.locator(f"#{n}").input_value() for n in ("input_tokens", "output_tokens")] == [
        "",
        "",
    ]
    wait_for_charts(page)
    enter(page, "#input_tokens", "700")
    assert page.locator("#trace").input_value() == ""
    page.locator("#output_tokens ~ .at-field").wait_for()


def test_a_device_is_added_by_choosing_it(page_at):
    page = page_at(f"{ADDRESS}&devices=l4=2")
    with asking(page, "devices=l4%3D2%2C%20l40s"):
        page.get_by_label("Add a device").select_option("l40s")
    assert page.locator("#devices").input_value() == "l4=2, l40s"
