"""Named questions to try first, of every kind of workload.

Each is a request that one endpoint answers as it stands, with the bundled predictors and without
any file. Networks and programs are named; their graphs come with the package.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from forerun.data.described import Described
from forerun.data.errors import UnknownPreset

PREDICT, LLM, DIFFUSION = "/v1/predict", "/v1/llm/estimate", "/v1/diffusion/estimate"
COLOCATION, CIRCUIT = "/v1/colocation", "/v1/circuit"
LENGTHS = frozenset({"input_tokens", "isl", "input_len"})
"""Names of the field that a request about a deployed language model has, and one by size lacks."""
Content = dict[str, Any]


class PresetOut(Described):
    """A named question that is valid without changes."""

    name: str
    """name of the preset"""
    title: str
    """the question, in one line"""
    kind: str
    """kind of workload"""
    endpoint: str
    """path that answers it, by POST"""
    request: dict[str, Any]
    """body of the request"""
    note: str
    """source of the workload, and what to know about the answer"""


@cache
def presets() -> tuple[PresetOut, ...]:
    """All presets, grouped by kind of workload."""
    text = (files("forerun.service") / "presets.json").read_text(encoding="utf-8")
    return tuple(PresetOut(**row) for row in json.loads(text)["presets"])


def preset_named(name: str) -> PresetOut:
    """The preset of that name.

    Raises:
        UnknownPreset: no preset has that name; the message suggests similar ones.
    """
    by_name = {preset.name: preset for preset in presets()}
    if name not in by_name:
        raise UnknownPreset(name, by_name)
    return by_name[name]


def as_prediction(endpoint: str, request: Mapping[str, Any]) -> Content | None:
    """A request about one workload as POST /v1/predict takes it; None for other questions.

    Args:
        endpoint: path that the request is for.
        request: its body.
    """
    kinds = {LLM: "llm_serving", DIFFUSION: "diffusion"}
    if endpoint == PREDICT:
        return dict(request)
    if endpoint not in kinds:
        return None
    given = dict(request)
    if endpoint == LLM and not LENGTHS.isdisjoint(given):
        outside: Content = {
            name: given.pop(name) for name in ("device", "metrics", "level") if name in given
        }
        count = {"device_count": given.pop("device_count")} if "device_count" in given else {}
        return {"workload": {"kind": "llm_deployment", **given}, "operation": count, **outside}
    workload = {"kind": kinds[endpoint], **given.pop("model")}
    operation = {"device_count": given.pop("device_count", 1)}
    return {"workload": workload, "operation": operation, **given}


def example_model() -> Path | None:
    """A real network from the files of the onnx package; None if they are not installed."""
    spec = find_spec("onnx")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations))) / "backend/test/data/light"
    file = folder / "light_squeezenet.onnx"
    return file if file.is_file() else None
