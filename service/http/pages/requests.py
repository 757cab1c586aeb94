"""The page *Requests*: a request about any kind of workload, written in JSON."""

import json
from functools import partial
from typing import Any

from pydantic import Field

from forerun.data.errors import InputError
from forerun.service.answers.answer import answer_of
from forerun.service.http.answers import Answers
from forerun.service.http.pages.charts import attribution_chart
from forerun.service.http.pages.rendering import form_page
from forerun.service.http.pages.run_form import EmptyIsAbsent, Link, Name, curl, network_presets
from forerun.service.presets import PresetOut, as_prediction, preset_named, presets
from forerun.service.schemas.answers import PredictionOut
from forerun.service.schemas.prediction import PredictIn

REQUESTS = "/requests"
"""Path of the page that asks any preset as a request."""

EXAMPLES = (
    Link("Llama 3.1 8B, 64 chats at a time", "Times, rates, memory, power and price.", "/llm"),
    Link(
        "Llama 3.3 70B in FP8 on H100 and H200",
        "One request arriving a second; as many devices as it needs.",
        "/llm?name=llama-3.3-70b&quantization=fp8&requests_per_s=1&device=h100-sxm-80gb&"
        "device=h200-sxm-141gb",
    ),
    Link(
        "Which of eight GPUs for ResNet-50?",
        "Time, energy and price of each, ranked.",
        "/compare?graph=resnet50&title=ResNet-50&batch_size=64",
    ),
    Link(
        "ResNet-50 at every power limit of an A100",
        "Time and energy at each limit, and the limit that saves most.",
        "/power?graph=resnet50&title=ResNet-50&batch_size=64",
    ),
)
"""Questions that pages beyond the start answer, which offers them."""


def further_presets() -> list[Link]:
    """The presets that the form of the start page cannot ask and this page can."""
    listed = {link.title for link in network_presets("/")}
    return [
        Link(preset.title, preset.note, f"{REQUESTS}?preset={preset.name}")
        for preset in presets()
        if preset.title not in listed and as_prediction(preset.endpoint, preset.request)
    ]


LONGEST_REQUEST = 20_000


class BadRequest(InputError):
    """The request is not a JSON object."""

    slug = "bad-request-text"


class RequestForm(EmptyIsAbsent):
    """A preset, and its request where it was edited."""

    preset: Name = "matrix-product"
    request: str | None = Field(default=None, max_length=LONGEST_REQUEST)

    def content(self) -> dict[str, Any]:
        """The request of the text, or of the preset.

        Raises:
            BadRequest: the text is no JSON object.
        """
        if self.request is None:
            return dict(preset_named(self.preset).request)
        try:
            content = json.loads(self.request)
        except ValueError as error:
            raise BadRequest(f"The request is not valid JSON: {error}.") from None
        if not isinstance(content, dict):
            raise BadRequest('The request is not a JSON object such as {"device": "l4"}.')
        return content


def _answered(preset: PresetOut, asked: dict[str, Any], answers: Answers) -> PredictionOut:
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


def _answer(form: RequestForm, answers: Answers) -> dict[str, Any]:
    """The context of `requests_answer.html`: the answer to a preset, or to its edited request."""
    preset, asked = preset_named(form.preset), form.content()
    answer = _answered(preset, asked, answers)
    return {
        "subject": preset.title if asked == preset.request else "Your request",
        "preset": preset,
        "answer": answer,
        "divided": attribution_chart(answer.attribution, "What the answer is made of"),
        "as_curl": partial(curl, preset.endpoint, asked),
    }


def _fields(form: RequestForm, answers: Answers) -> dict[str, Any]:
    return {"offered": further_presets(), "text": json.dumps(form.content(), indent=2)}


router = form_page(REQUESTS, "requests", RequestForm, _answer, _fields)
