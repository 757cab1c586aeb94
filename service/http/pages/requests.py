"""The page *Requests*: a request about any kind of workload, written in JSON."""

import json
from typing import Annotated, Any

from fastapi import Query, Request
from pydantic import Field
from starlette.responses import HTMLResponse

from forerun.data.errors import InputError
from forerun.service.answers.answer import answer_of
from forerun.service.http.answers import Answers
from forerun.service.http.pages.chart import Chart
from forerun.service.http.pages.charts import attribution_chart
from forerun.service.http.pages.compare import PATH as COMPARE
from forerun.service.http.pages.compare import CompareForm
from forerun.service.http.pages.language_models import PATH as LANGUAGE_MODELS
from forerun.service.http.pages.language_models import LlmForm
from forerun.service.http.pages.power import PATH as POWER
from forerun.service.http.pages.power import PowerForm
from forerun.service.http.pages.rendering import asks_for_part, page_router, rendered
from forerun.service.http.pages.run_form import EmptyIsAbsent, Link, Name, curl, network_presets
from forerun.service.http.state import TheAnswers, TheState
from forerun.service.presets import Preset, as_prediction, preset_named, presets
from forerun.service.schemas.answers import PredictionOut
from forerun.service.schemas.prediction import PredictIn

REQUESTS = "/requests"
"""Path of the page that asks any preset as a request."""

RANK, SWEEP = "/v1/rank", "/v1/power/sweep"


def further_presets(in_forms: bool) -> list[Link]:
    """The presets that the form of the start page cannot ask.

    Args:
        in_forms: those that a form of another page asks, or those of the page of requests.
    """
    listed = {link.title for link in network_presets("/")}
    found = []
    for preset in presets():
        path, form = _form(preset)
        if preset.title in listed or (form is not None) != in_forms:
            continue
        if form is not None:
            found.append(Link(preset.title, preset.note, form.address(path)))
        elif as_prediction(preset.endpoint, preset.request) is not None:
            found.append(Link(preset.title, preset.note, f"{path}?preset={preset.name}"))
    return found


def _form(preset: Preset) -> tuple[str, EmptyIsAbsent | None]:
    """The path of the page for a preset, and the form that asks it; None where no form does."""
    if preset.endpoint == RANK:
        return COMPARE, CompareForm.of_request(preset.title, preset.request)
    if preset.endpoint == SWEEP:
        return POWER, PowerForm.of_request(preset.title, preset.request)
    if preset.kind == "llm_deployment":
        return LANGUAGE_MODELS, LlmForm.of_request(preset.request)
    return REQUESTS, None


LONGEST_REQUEST = 20_000

router = page_router()


class BadRequest(InputError):
    """The request is no JSON object."""

    slug = "bad-request-text"


class RequestForm(EmptyIsAbsent):
    """A preset, and its request where it was edited."""

    preset: Name = "matrix-product"
    request: str | None = Field(default=None, max_length=LONGEST_REQUEST)

    def content(self, preset: Preset) -> dict[str, Any]:
        """The request of the text, or of the preset.

        Raises:
            BadRequest: the text is no JSON object.
        """
        if self.request is None:
            return dict(preset.request)
        try:
            content = json.loads(self.request)
        except ValueError as error:
            raise BadRequest(f"The request is not valid JSON: {error}.") from None
        if not isinstance(content, dict):
            raise BadRequest('The request is no JSON object such as {"device": "l4"}.')
        return content


@router.get(REQUESTS)
async def requests_page(
    request: Request, form: Annotated[RequestForm, Query()], answers: TheAnswers, state: TheState
) -> HTMLResponse:
    """The answer to a preset, whose request can be edited."""
    origin = str(request.base_url).rstrip("/")

    def page() -> HTMLResponse:
        preset = preset_named(form.preset)
        asked = form.content(preset)
        answer = _answer(preset, asked, answers)
        context: dict[str, Any] = {
            "subject": preset.title if asked == preset.request else "Your request",
            "preset": preset,
            "answer": answer,
            "divided": _divided(answer),
            "as_curl": curl(f"{origin}{preset.endpoint}", asked),
        }
        if asks_for_part(request):
            return rendered("requests_answer.html", REQUESTS, **context)
        text = json.dumps(asked, indent=2)
        more: dict[str, Any] = {"offered": further_presets(in_forms=False), "text": text}
        return rendered("requests.html", REQUESTS, **context, **more)

    return await state.run(page)


def _divided(answer: PredictionOut) -> Chart | None:
    """The parts of the answer, where it has any."""
    own = answer.attribution
    return None if own is None else attribution_chart(own, "What the answer is made of")


def _answer(preset: Preset, asked: dict[str, Any], answers: Answers) -> PredictionOut:
    """The answer to a request to the endpoint of a preset.

    Raises:
        InputError: the request cannot be answered, or the preset has a page of its own.
        ValidationError: the request does not fit the schema.
    """
    try:
        content = as_prediction(preset.endpoint, asked)
    except (KeyError, TypeError):
        raise BadRequest(f"A request to {preset.endpoint} has an object model.") from None
    if content is None:
        raise BadRequest(f"The preset {preset.name} is asked at {preset.endpoint}, not here.")
    question = answers.question(PredictIn.model_validate(content | {"explain": True}))
    return answer_of(question, answers.adaptation.current())
