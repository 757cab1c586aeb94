"""What the pages with a `RunForm` share: the devices and presets that the form offers."""

from typing import Any

from forerun.data.device import Device
from forerun.service.http.answers import Answers
from forerun.service.http.pages.run_form import OPTIMIZERS, PRECISIONS, RUNTIMES, RunForm


def form_context(form: RunForm, answers: Answers, path: str) -> dict[str, Any]:
    """The context of `run_fields.html`.

    Args:
        form: what the address asks.
        answers: holds the catalogue of devices.
        path: path of the page, to which presets lead.
    """
    return {
        "catalog": devices_of(form, answers),
        "presets": [],
        "precisions": PRECISIONS,
        "runtimes": RUNTIMES,
        "optimizers": {name: name for name in OPTIMIZERS},
    }


def devices_of(form: RunForm, answers: Answers) -> list[Device]:
    """Every device with a spec sheet, the chosen ones first, then by vendor and title."""
    chosen = [answers.device(name) for name in dict.fromkeys(form.devices)]
    names = {device.name for device in chosen}
    others = [device for device in answers.devices.catalog if device.name not in names]
    return chosen + sorted(others, key=lambda device: (device.vendor.lower(), device.title.lower()))
