"""What the pages with a `RunForm` share: the devices and presets that the form offers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any, get_args

from forerun.data.device import Device
from forerun.data.workload import FrozenFormat
from forerun.service.http.answers import Answers
from forerun.service.http.pages.run_form import OPTIMIZERS, PRECISIONS, RUNTIMES, RunForm
from forerun.service.presets import PREDICT, presets


@dataclass(frozen=True)
class Link:
    """A preset as a page offers it: its title, a note, and the address that asks it."""

    title: str
    note: str
    address: str


def form_context(form: RunForm, answers: Answers) -> dict[str, Any]:
    """The context of `run_fields.html`."""
    return {
        "catalog": sorted_devices(answers, form.devices),
        "precisions": PRECISIONS,
        "runtimes": RUNTIMES,
        "optimizers": {name: name for name in OPTIMIZERS},
        "frozen_formats": {name: name for name in get_args(FrozenFormat)},
    }


def network_presets(path: str, devices: Sequence[str] | None = None) -> list[Link]:
    """The presets about one network on one device, as addresses of a page with a `RunForm`.

    Args:
        path: path of the page.
        devices: devices to ask about, in place of that of the preset.
    """
    links = []
    for preset in presets():
        form = (
            RunForm.of_request(preset.title, preset.request) if preset.endpoint == PREDICT else None
        )
        if form is not None:
            address = form.address(path, **({} if devices is None else {"devices": list(devices)}))
            links.append(Link(preset.title, preset.note, address))
    return links


def curl(url: str, content: Mapping[str, Any]) -> str:
    """A line of a shell that posts JSON."""
    return f"curl -H 'Content-Type: application/json' {url} -d {quote(json.dumps(content))}"


def sorted_devices(answers: Answers, chosen: Sequence[str] = ()) -> list[Device]:
    """Every device of the catalogue, the chosen ones first, then by vendor and title."""
    first = [answers.device(name) for name in dict.fromkeys(chosen)]
    names = {device.name for device in first}
    others = [device for device in answers.devices.catalog if device.name not in names]
    return first + sorted(others, key=lambda device: (device.vendor.lower(), device.title.lower()))
