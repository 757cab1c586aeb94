"""Pages as text: what they answer, how they refuse, and that hostile names stay text."""

import html
import json
import re
from dataclasses import replace

import pytest
from pydantic import Field

from forerun.service.http.pages import PAGES, language_models, serving_plan, training
from forerun.service.http.pages.chart import scaled, short
from forerun.service.http.pages.charts import CACHED, roofline_chart
from forerun.service.http.pages.compare import STEPS
from forerun.service.http.pages.rendering import environment
from forerun.service.http.pages.run_form import RunForm, device_answers
from forerun.service.presets import PREDICT, presets
from forerun.service.schemas.answers import IntervalOut
from tests.every import for_every

pytestmark = pytest.mark.slow
PART = {"hx-request": "true"}
FORMS = (language_models.FORM, serving_plan.FORM, training.FORM)
"""Forms that are made of the fields of a request."""


def text_of(answer):
    assert answer.status_code == 200, answer.text
    return answer.text


def test_a_part_is_the_answer_alone(adapting):
    whole = text_of(adapting.get("/?graph=resnet50&devices=l4"))
    part = text_of(adapting.get("/?graph=resnet50&devices=l4", headers=PART))
    assert "<html" in whole
    assert "<html" not in part
    assert "Estimates" in part


@pytest.mark.parametrize(
    "path", ["/", "/compare", "/power", "/llm", "/plan", "/neighbours", "/coverage"]
)
def test_a_browser_that_goes_back_gets_a_whole_page(adapting, path):
    part = adapting.get(path, headers=PART)
    page = adapting.get(path, headers={**PART, "hx-history-restore-request": "true"})
    assert "<html" not in part.text
    assert "<html" in page.text
    for answer in (part, page):
        names = {name.strip().lower() for name in answer.headers["vary"].split(",")}
        assert names == {"hx-request", "hx-history-restore-request"}


def fields_of(route):
    """Names of the fields in the query of a page."""
    for given in route.dependant.query_params:
        fields = getattr(given.field_info.annotation, "model_fields", None)
        yield from fields or [given.alias]


PAGES_AND_FIELDS = sorted({
    (route.path, field)
    for router in PAGES
    for route in router.routes
    if "GET" in route.methods and "{" not in route.path
    for field in fields_of(route)
} | {
    (form.path, field)
    for form in FORMS
    for field in {str(form.given(f"{field}=")): field for field in form.described}.values()
})  # fmt: skip
"""Of fields of a form that leave the same question when they are empty, one."""


@for_every("path, field", PAGES_AND_FIELDS)
def test_a_field_that_is_left_empty_is_never_a_fault(adapting, path, field):
    asked = {"graph": "resnet50"} if (path, "graph") in PAGES_AND_FIELDS else {}
    answer = adapting.get(path, params={**asked, field: ""})
    assert answer.status_code < 500, answer.text


REFUSED = re.compile(r'<div class="card refused">.*?</div>', re.DOTALL)
LONG = "/llm?input_tokens=1000000"
PLAN = "/plan?name=llama-3.1-8b&requests_per_s=20&input_tokens=1000&output_tokens=200"
LARGE = "/?graph=resnet50&batch_size=65536&devices=l4"


@pytest.mark.parametrize(
    ("address", "numbers"),
    [
        (LONG, ["1,000,256", "131,072", "130,816 input tokens"]),
        (LARGE, ["24 GiB", "batch size"]),
        ("/power?graph=resnet50&batch_size=65536&devices=l4", ["24 GiB", "batch size"]),
        ("/llm?name=llama-3.1-70b&device=l4&device_count=1", ["24.0", "8 devices"]),
        ("/llm?device=l4&requests_per_s=50", ["50 requests/s", "requests/s</a>"]),
    ],
)
def test_what_cannot_run_says_so_first_and_links_what_can(adapting, address, numbers):
    page = text_of(adapting.get(address, headers=PART))
    (said,) = REFUSED.findall(page)
    assert all(number in said for number in numbers), said
    shown = re.sub("<details.*?</details>", "", page, flags=re.DOTALL)
    assert '<td class="number"' not in shown
    (nearest,) = re.findall('href="([^"]*)"', said)
    assert "Cannot run" not in text_of(adapting.get(html.unescape(nearest), headers=PART))


def test_devices_that_can_run_are_shown_beside_one_that_cannot(adapting):
    page = text_of(adapting.get(f"{LARGE}&devices=mi300x", headers=PART))
    assert len(REFUSED.findall(page)) in (1, 2)
    both = text_of(
        adapting.get("/?graph=resnet50&batch_size=8192&devices=l4&devices=h200", headers=PART)
    )
    (said,) = REFUSED.findall(both)
    assert "L4" in said
    assert 'href="/devices/h200' in re.sub("<details.*?</details>", "", both, flags=re.DOTALL)


def test_what_cannot_be_answered_is_a_page_or_one_line(adapting):
    page = adapting.get("/?graph=resnet50&devices=abacus")
    assert page.status_code == 404
    assert "<html" in page.text
    assert "abacus" in page.text
    line = text_of(adapting.get("/?graph=resnet50&devices=abacus", headers=PART))
    assert line.startswith('<div class="problem unanswered"')
    wrong = adapting.get("/?graph=resnet50&batch_size=0")
    assert wrong.status_code == 422
    assert "Batch size: " in html.unescape(wrong.text)
    assert "greater than or equal to 1" in wrong.text
    rate = adapting.get("/llm?requests_per_s=-1").text
    assert "Poisson arrivals over all devices: " in rate


@pytest.mark.parametrize(
    ("address", "nearest"),
    [
        ("/llm?name=llama-3.1-9b&input_tokens=9", "name=llama-3.1-8b&input_tokens=9"),
        ("/?graph=resnet5&devices=l4", "graph=resnet50&devices=l4"),
        ("/?graph=resnet50&devices=l5", "graph=resnet50&devices=l4"),
    ],
)
def test_a_name_that_is_not_known_is_answered_with_links_to_the_nearest(adapting, address, nearest):
    page = html.unescape(adapting.get(address).text)
    assert f'href="?{nearest}"' in page
    assert "<html" in text_of(adapting.get(f"{address.partition('?')[0]}?{nearest}"))


@pytest.mark.parametrize(
    ("method", "path", "status"), [("get", "/nothing", 404), ("post", "/compare", 405)]
)
def test_a_browser_gets_a_page_about_a_path_that_there_is_not(adapting, method, path, status):
    page = getattr(adapting, method)(path, headers={"accept": "text/html,*/*"})
    assert page.status_code == status
    assert "<html" in page.text
    document = getattr(adapting, method)(path)
    assert document.headers["content-type"] == "application/problem+json"
    assert page.headers.get("allow") == document.headers.get("allow")


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
    first, other = (
        re.findall(r'<th scope="row">(\w+)', text_of(adapting.get(address + own, headers=PART)))[
            -2:
        ]
        for own in ("l4=0.1,t4=9", "l4=9,t4=0.1")
    )
    assert (first, other) == (["L4", "T4"], ["T4", "L4"])
    assert " USD" in text_of(adapting.get(address, headers=PART))
    unpriced = text_of(adapting.get("/compare?graph=resnet50&devices=rtx-4090&objective=cost"))
    assert "No device is ranked; the reasons are below" in unpriced
    assert "no list price is known" in unpriced
    assert "is not written as" in text_of(adapting.get(address + "cheap", headers=PART))


def test_a_device_whose_memory_is_not_known_is_ranked_apart(adapting):
    devices = "devices=l4&devices=xeon-platinum-8480-plus"
    address = f"/compare?graph=efficientnet-b0&batch_size=1&precision=fp32&{devices}"
    page = text_of(adapting.get(address, headers=PART))
    ranked, _, apart = page[page.index("Ranked by") :].partition("Not known whether the memory is")
    assert "Xeon" in apart
    assert "Xeon" not in ranked
    assert "Left out" not in apart
    assert "Objective" not in page
    assert 'class="tag' in ranked


GPUS = ("h100-sxm-80gb", "a100-pcie-80gb", "rtx-4090", "l4", "t4", "mi300x")


def test_no_class_of_operators_is_above_the_compute_roof(adapting):
    """Of every preset about a network on six GPUs; above the memory roof, a mark says so."""
    found, answers = [], adapting.app.state.forerun.answers
    for preset in presets():
        form = preset.endpoint == PREDICT and RunForm.of_request(preset.title, preset.request)
        if form:
            found += device_answers(form.model_copy(update={"devices": [*GPUS]}), answers)
    charts = [chart for each in found if (chart := roofline_chart(each))]
    assert len(charts) > 6 * len(GPUS)
    for chart in charts:
        peak = max(point["tflops"] for point in chart.spec["layer"][0]["data"]["values"])
        assert all(row["tflops"] <= 1.001 * peak for row in chart.rows), chart.title
        for row in chart.rows:
            assert (row["place"] == CACHED) == (row["tflops"] > row["roof"])
    assert any(row["place"] == CACHED for chart in charts for row in chart.rows)


def test_the_line_of_a_shell_asks_about_every_device(adapting):
    page = html.unescape(text_of(adapting.get("/?graph=resnet50&devices=l4&devices=t4")))
    sent = re.search(r"/v1/predict:batch -d '([^']*)'", page)
    items = adapting.post("/v1/predict:batch", json=json.loads(sent[1])).json()["items"]
    assert [each["device"]["name"] for each in items] == ["l4", "t4"]
    assert all(each["metrics"]["latency_ms"] for each in items)


def test_an_edited_request_is_answered_and_a_broken_one_is_explained(adapting):
    asked = '{"workload": {"kind": "network", "graph": "resnet50"}, "device": "l4"}'
    given = {"preset": "matrix-product", "request": asked}
    edited = text_of(adapting.get("/requests", params=given, headers=PART))
    assert "<h2>Your request</h2>" in edited
    assert "Time of one run" in edited
    assert "latency_ms" not in edited.partition("curl")[0]
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
    gguf = adapting.get("/llm?device=epyc-9654&quantization=q4_k_m&engine=llama.cpp&concurrency=1")
    listed = ("epyc-9654", "h100-sxm-80gb", "q4_k_m")
    assert all(f' value="{one}"' in gguf.text for one in listed)
    assert "What takes the memory" not in gguf.text  # the sheet of a processor gives none


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.path)
def test_a_form_has_every_field_of_its_request_once_and_a_new_one_unasked(adapting, form):
    class New(form.kind):
        tenants: int = Field(default=3, ge=1, description="tenants of the service; each pays")

    page = text_of(adapting.get(form.path))
    named = re.findall(r'<(?:input|select)[^>]* name="(\w+)"', page)
    own = {"name", "config", *form.described, *({"device"} - {form.path == "/plan" and "device"})}
    assert set(named) == own
    assert sorted(own - {"device"}) == sorted(name for name in named if name != "device")
    fields = replace(form.fields, parts={**form.fields.parts, "": New})
    more = replace(form, kind=New, fields=fields)
    made = environment().get_template(f"{form.path[1:]}.html").render(
        path=form.path, asks=more, given=more.usual, answered=False, catalog=[], models=[],
        priced=(), example={},
    )  # fmt: skip
    assert '<label for="tenants">Tenants of the service</label>' in made
    assert 'placeholder="3"' in made
    assert "each pays" in made


SERVED = {
    "model": {"name": "qwen3-8b", "quantization": "fp8", "cache_format": "fp8"},
    "device": "l4", "device_count": 4, "input_tokens": 700, "output_tokens": 90, "concurrency": 12,
    "engine": {"name": "sglang", "max_sequences": 8, "chunked_prefill": False},
    "parallelism": {"tensor": 2}, "usd_per_device_hour": 0.5, "level": 80,
}  # fmt: skip
TRAINED = {
    "model": "llama-3.2-1b", "device": "a100-sxm-80gb", "devices": 8, "tokens": 1e9,
    "sequence_tokens": 2048, "lora_rank": 0, "optimizer": "adamw", "framework": "torchtitan",
    "objective": "price", "usd_per_device_hour": 2.5, "cluster": {"network_gbit_s": 100},
}  # fmt: skip


def as_fields(form, request):
    """The fields of a form that ask what a request asks."""
    model = request["model"] if isinstance(request["model"], dict) else {"name": request["model"]}
    flat = {"model.name": model["name"], **{k: v for k, v in request.items() if k != "model"}}
    flat |= {f"model.{name}": own for name, own in model.items()}
    for part in ("engine", "parallelism", "cluster"):
        flat |= {f"{part}.{name}": own for name, own in flat.pop(part, {}).items()}
    names = {path: name for name, path in form.fields.paths.items()} | {"model.name": "name"}
    return {names.get(p, p): str(v).lower() if v is False else v for p, v in flat.items()}


@pytest.mark.parametrize(
    ("module", "request_", "endpoint"),
    [(language_models, SERVED, "/v1/llm/estimate"), (training, TRAINED, "/v1/training/plan")],
    ids=["served", "trained"],
)
def test_a_form_answers_what_its_endpoint_does(adapting, module, request_, endpoint):
    out = adapting.post(endpoint, json=request_).json()
    params = as_fields(module.FORM, request_)
    page = text_of(adapting.get(module.FORM.path, params=params, headers=PART))
    first = out["best"][0] if "best" in out else out
    assert len(first["metrics"]) >= 5
    for name in {*first["metrics"]} & {*module.METRICS}:
        own = scaled(IntervalOut(**first["metrics"][name]))
        assert f"<strong>{short(own.value)}</strong> {own.unit}" in page, name


@pytest.mark.parametrize(
    ("address", "field", "said"),
    [
        ("/llm?input_tokens=0", "input_tokens", "greater than or equal to 1"),
        ("/llm?memory_share=2", "memory_share", "Share of a device&#39;s memory"),
        ("/llm?quantization=fp3", "quantization", "fp3"),
        ("/llm?device_count=3&tensor=2", "device_count", "workers"),
        ("/llm?command=vllm+serve+qwen3-8b", "input_tokens", "missing"),
        ("/llm?device=l4&device=l44", "device", "l44"),
        ("/training?devices=0", "devices", "greater than or equal to 1"),
        ("/training?network_gbit_s=-1", "network_gbit_s", "Network bandwidth of one device"),
        ("/training?region=atlantis", "region", "atlantis"),
        ("/training?lora_rank=0&frozen_weights=nf4&devices=many", "devices", "valid integer"),
        (f"{PLAN}&devices==4", "devices", "No device named &#39;&#39;"),
        (f"{PLAN}&tpot_ms=0", "tpot_ms", "greater than 0"),
        (f"{PLAN}&trace=splitwise_conv", "input_tokens", "follows from Name of a public trace"),
        (f"{PLAN}&cap_kw=5", "cap_kw", "give Length of the trace"),
        (f"{PLAN}&region=atlantis", "region", "give carbon intensity of the electricity"),
        (f"{PLAN}&name=llama-9", "name", "llama-9"),
    ],
)
def test_what_is_wrong_is_said_at_its_field_with_the_form(adapting, address, field, said):
    page, part = (adapting.get(address, headers=headers).text for headers in ({}, PART))
    line = f'data-field="{field}">[^<]*{re.escape(said)}'
    assert re.search(line, part), part
    assert re.search(line, page), part
    assert re.search(f'<(input|select)[^>]* name="{field}"', page)


@pytest.mark.parametrize("path", ["/llm?requests_per_s=2", "/neighbours", "/power?graph=resnet50"])
def test_every_answer_says_what_limits_it(adapting, path):
    assert "Why: what" in text_of(adapting.get(path, headers=PART))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ("&devices=l4&tpot_ms=5", "nothing keeps all limits"),
        ("&devices=h100", "no limits on latency"),
        ("&devices=h100&format=fp8", "'format' is no field; did you mean formats?"),
    ],
)
def test_a_plan_says_how_limits_were_kept(adapting, changes, said):
    assert said in html.unescape(adapting.get(PLAN + changes, headers=PART).text)
