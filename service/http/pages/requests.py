"""The page *Requests*: a request about any kind of workload, written in JSON."""

import json
from typing import Annotated, Any

from fastapi import Query, Request
from pydantic import Field
from starlette.responses import HTMLResponse

from forerun.data.errors import InputError
from forerun.service.answers.answer import answer_of
from forerun.service.http.answers import Answers
from forerun.service.http.pages.attribution_chart import attribution_chart
from forerun.service.http.pages.chart import Chart
from forerun.service.http.pages.preset_links import REQUESTS, further_presets
from forerun.service.http.pages.rendering import asks_for_part, page_router, rendered
from forerun.service.http.pages.run_form import EmptyIsAbsent, Name
from forerun.service.http.pages.run_page import curl
from forerun.service.http.routes.serving import diffusion_of
from forerun.service.http.state import TheAnswers, TheState
from forerun.service.presets import DIFFUSION, PREDICT, Preset, preset_named
from forerun.service.schemas.answers import PredictionOut, ServingOut
from forerun.service.schemas.prediction import PredictIn
from forerun.service.schemas.serving import DiffusionEstimateIn

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
