"""The presets that the start page offers besides those about one network on one device."""

from forerun.service.http.pages.compare.form import CompareForm
from forerun.service.http.pages.compare.page import PATH as COMPARE
from forerun.service.http.pages.language_models import PATH as LANGUAGE_MODELS
from forerun.service.http.pages.language_models import LlmForm
from forerun.service.http.pages.neighbours import PATH as NEIGHBOURS
from forerun.service.http.pages.neighbours import NeighboursForm
from forerun.service.http.pages.power import PATH as POWER
from forerun.service.http.pages.power import PowerForm
from forerun.service.http.pages.run_form import EmptyIsAbsent
from forerun.service.http.pages.run_page import Link, network_presets
from forerun.service.presets import COLOCATION, LLM, Preset, presets

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
