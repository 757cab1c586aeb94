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
from forerun.service.http.pages.neighbours import PATH as NEIGHBOURS
from forerun.service.http.pages.neighbours import NeighboursForm
from forerun.service.http.pages.power import PATH as POWER
from forerun.service.http.pages.power import PowerForm
from forerun.service.http.pages.rendering import asks_for_part, page_router, rendered
from forerun.service.http.pages.run_form import EmptyIsAbsent, Link, Name, curl, network_presets
from forerun.service.http.routes.serving import diffusion_of
from forerun.service.http.state import TheAnswers, TheState
from forerun.service.presets import (
    COLOCATION,
    DIFFUSION,
    LLM,
    PREDICT,
    Preset,
    preset_named,
    presets,
)
from forerun.service.schemas.answers import PredictionOut, ServingOut
from forerun.service.schemas.prediction import PredictIn
from forerun.service.schemas.serving import DiffusionEstimateIn

REQUESTS = "/requests"
"""Path of the page that asks any preset as a request."""

RANK, SWEEP = "/v1/rank", "/v1/power/sweep"


def further_presets() -> list[Link]:
    """The presets that the form of the start page cannot ask, with the pages that can."""
    listed = {link.title for link in network_presets("/")}
    return [
        Link(preset.title, preset.note, _address(preset))
        for preset in presets()
        if preset.title not in listed
    ]


def _address(preset: Preset) -> str:
    path, form = _form(preset)
    return f"{REQUESTS}?preset={preset.name}" if form is None else form.address(path)


def _form(preset: Preset) -> tuple[str, EmptyIsAbsent | None]:
    """The path of the page for a preset, and the form that asks it; None where no form does."""
    if preset.endpoint == RANK:
        return COMPARE, CompareForm.of_request(preset.title, preset.request)
    if preset.endpoint == SWEEP:
        return POWER, PowerForm.of_request(preset.title, preset.request)
    if preset.endpoint == LLM:
        return LANGUAGE_MODELS, LlmForm.of_request(preset.request)
    if preset.endpoint == COLOCATION:
        return NEIGHBOURS, NeighboursForm.of_request(preset.request)
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
            "preset": preset,
            "answer": answer,
            "divided": _divided(answer),
            "as_curl": curl(f"{origin}{preset.endpoint}", asked),
        }
        if asks_for_part(request):
            return rendered("requests_answer.html", REQUESTS, **context)
        offered = [link for link in further_presets() if link.address.startswith(REQUESTS)]
        more: dict[str, Any] = {"offered": offered, "text": json.dumps(asked, indent=2)}
        return rendered("requests.html", REQUESTS, **context, **more)

    return await state.run(page)


def _divided(answer: PredictionOut | ServingOut) -> Chart | None:
    """The parts of the answer, where it has any."""
    own = answer.attribution if isinstance(answer, PredictionOut) else None
    return None if own is None else attribution_chart(own, "What the answer is made of")


def _answer(preset: Preset, asked: dict[str, Any], answers: Answers) -> PredictionOut | ServingOut:
    """The answer to a request to the endpoint of a preset.

    Raises:
        InputError: the request cannot be answered, or the preset has a page of its own.
        ValidationError: the request does not fit the schema.
    """
    if preset.endpoint == DIFFUSION:
        return diffusion_of(DiffusionEstimateIn.model_validate(asked), answers)
    if preset.endpoint != PREDICT:
        raise BadRequest(f"The preset {preset.name} is asked at {preset.endpoint}, not here.")
    question = answers.question(PredictIn.model_validate(asked | {"explain": True}))
    return answer_of(question, answers.adaptation.current())
