"""A form that asks about a network on devices, which stands in the page's address; its answers."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import Annotated, Any, Self, TypeVar, get_args
from urllib.parse import urlencode

from pydantic import BaseModel, Field, model_validator

from forerun.data.device import Device
from forerun.data.errors import BadRequest, InputError
from forerun.data.metrics import TITLES
from forerun.data.query import Query
from forerun.data.software import Runtime, Software
from forerun.data.workload import NumberFormat, Phase, TrainingSetup
from forerun.service.answers.answer import answers_to
from forerun.service.http.answers import Answers
from forerun.service.http.pages.chart import label, quantity
from forerun.service.presets import PREDICT, presets
from forerun.service.requests.field_names import without_also
from forerun.service.schemas.answers import IntervalOut, LimitOut, PredictionOut
from forerun.service.schemas.fields import LARGEST_BATCH, Watts, options_of
from forerun.service.schemas.prediction import NetworkIn, OperationIn, PredictIn
from forerun.service.schemas.run_options import OPTIONS, TrainingIn, part_of


@dataclass(frozen=True)
class Refused:
    """A question that cannot run, or cannot run for all requests at once.

    Attributes:
        subject: what was to run on which devices.
        why: what prevents it, with the two numbers.
        nearest: what the nearest question that can run asks; None where none is known.
        address: the address of the page that asks it.
        fatal: whether nothing runs; else some requests wait.
    """

    subject: str
    why: str
    nearest: str | None = None
    address: str | None = None
    fatal: bool = True


def refusals(limits: Iterable[LimitOut]) -> str:
    """Why a question cannot run, in one line; empty where nothing prevents it."""
    return "; ".join(each.message for each in limits if each.severity == "refusal")


MOST_DEVICES = 12
LONGEST_NAME = 200
USUAL_DEVICES = ("rtx-4090", "a100-pcie-80gb", "l4")
"""Devices that are asked about when the address names none."""

PRECISIONS: Mapping[NumberFormat, str] = {
    "fp32": "fp32, PyTorch's default",
    "tf32": "tf32",
    "amp": "amp, mixed fp16",
    "amp_bf16": "amp, mixed bf16",
    "fp16": "fp16",
    "bf16": "bf16",
    "fp8": "fp8",
    "int8": "int8",
}
RUNTIMES: Mapping[Runtime, str] = {
    "eager": "eager PyTorch",
    "compiled": "torch.compile",
    "reduce-overhead": "torch.compile, CUDA graphs",
    "torchscript": "TorchScript",
    "tensorrt": "TensorRT",
    "onnxruntime": "ONNX Runtime",
}

Name = Annotated[str, Field(max_length=LONGEST_NAME)]


class EmptyIsAbsent(BaseModel):
    """A form whose fields take their defaults where they were left empty.

    A list without an entry that is not empty is an empty list: nothing was chosen.
    """

    @model_validator(mode="before")
    @classmethod
    def _without_empty_fields(cls, given: Any) -> Any:
        """Forms send fields that were left empty as empty texts, and numbers as texts."""
        if not isinstance(given, dict):
            return given
        lists = {k: [each for each in v if each] for k, v in given.items() if isinstance(v, list)}
        kept = {key: value for key, value in (given | lists).items() if value != ""}
        for name in kept.keys() & cls.model_fields.keys():
            choices = {str(each): each for each in get_args(cls.model_fields[name].annotation)}
            if isinstance(choices.get(str(kept[name])), int):
                kept[name] = choices[str(kept[name])]
        return kept

    def address(self, path: str, **changes: Any) -> str:
        """The address of a page that asks the same, with changes."""
        fields = self.model_copy(update=changes).model_dump(
            exclude_none=True, exclude_defaults=True
        )
        return f"{path}?{urlencode(fields, doseq=True)}" if fields else path


class RunForm(options_of(TrainingSetup, EmptyIsAbsent)):  # type: ignore[misc]
    """A network, devices, and how the network runs on them, with every option of training.

    The network is named by its digest, so that an address shows the same answer again.
    """

    graph: Name | None = None
    """digest or name of the network"""
    title: Name | None = None
    """what the page calls the network"""
    devices: list[Name] = Field(default=list(USUAL_DEVICES), max_length=MOST_DEVICES)
    batch_size: int = Field(default=32, ge=1, le=LARGEST_BATCH)
    precision: NumberFormat = "amp"
    phase: Phase = "inference"
    runtime: Runtime | None = None
    power_limit_w: Watts | None = None

    @property
    def named(self) -> str:
        """The network's title, or the start of its digest."""
        return self.title or (self.graph or "")[:12]

    def workload(self, batch_size: int | None = None) -> NetworkIn:
        """The network at a batch size, that of the form when None."""
        training = None
        if self.phase == "training":
            given = self.model_dump(include=set(OPTIONS), exclude_defaults=True)
            training = TrainingIn(**given) if given else None
        return NetworkIn(
            kind="network",
            graph=self.graph or "",
            batch_size=batch_size or self.batch_size,
            precision=self.precision,
            phase=self.phase,
            training=training,
        )

    def asked(self, device: str, batch_size: int | None = None) -> PredictIn:
        """The request about one device."""
        software = Software() if self.runtime is None else Software(runtime=self.runtime)
        return PredictIn(
            workload=self.workload(batch_size),
            device=device,
            software=software,
            operation=OperationIn(power_limit_w=self.power_limit_w),
        )

    @classmethod
    def of_request(cls, title: str, request: Mapping[str, Any]) -> Self | None:
        """The form that asks what a request about a network asks.

        None where the form has no field for a part of it, or where it is not about a network.
        """
        workload = dict(request["workload"])
        training = workload.pop("training", {})
        given = {"title": title, "devices": [request["device"]], **workload, **training}
        given |= request.get("software", {}) | request.get("operation", {})
        if given.pop("kind") != "network" or not given.keys() <= cls.model_fields.keys():
            return None
        return cls(**given)


@dataclass(frozen=True)
class Link:
    """A preset as a page offers it: its title, a note, and the address that asks it."""

    title: str
    note: str
    address: str


VALUES: Mapping[str, str] = {
    **{"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM", "other": "another"},
    **{"megatron": "Megatron-LM", "megatron-legacy": "Megatron-LM before 2023"},
    "megatron-deepspeed": "Megatron-DeepSpeed",
    **{"fsdp": "FSDP, Transformers", "deepspeed": "DeepSpeed", "maxtext": "MaxText"},
    "nf4": "nf4 (QLoRA)",
}
"""Value of a field -> its title, where it is no word of its own."""


def form_field(name: str, own: Mapping[str, Any], of: str = "") -> dict[str, Any]:
    """A field of a schema as the macro `described` of `run_fields.html` takes it.

    Args:
        name: name of the field.
        own: its JSON schema.
        of: what its label begins with.
    """
    part, default = part_of(own), own.get("default")
    text, _, hint = without_also(own["description"]).replace("`", "").partition("; ")
    label = of + text.removeprefix("whether ")
    choices = ["false"] if default is True else part.get("enum", ())
    return {
        "name": name,
        "label": label[0].upper() + label[1:],
        "hint": hint,
        "type": part["type"],
        "choices": {each: "no" if default is True else VALUES.get(each, each) for each in choices},
        "default": None if default == [] else default,
        "low": part.get("minimum", part.get("exclusiveMinimum")),
        "high": part.get("maximum", part.get("exclusiveMaximum")),
    }


def training_options(schema: type[BaseModel] = TrainingIn) -> list[dict[str, Any]]:
    """The options of training as fields, as their schema describes them."""
    properties = schema.model_json_schema()["properties"].items()
    return [form_field(name, own, "training: ") for name, own in properties]


def form_context(form: RunForm, answers: Answers) -> dict[str, Any]:
    """The context of `run_fields.html`."""
    return {
        "catalog": sorted_devices(answers, form.devices),
        "precisions": PRECISIONS,
        "runtimes": RUNTIMES,
        "training_options": training_options(),
    }


def network_presets(path: str, devices: Sequence[str] | None = None) -> list[Link]:
    """The presets about one network on one device, as addresses of a page with a `RunForm`.

    Args:
        path: path of the page.
        devices: devices to ask about, in place of that of the preset.
    """
    more = {} if devices is None else {"devices": list(devices)}
    return [
        Link(preset.title, preset.note, form.address(path, **more))
        for preset in presets()
        if preset.endpoint == PREDICT
        and (form := RunForm.of_request(preset.title, preset.request)) is not None
    ]


def in_words(metrics: Mapping[str, IntervalOut | None]) -> str:
    """Metrics with their values, in one line."""
    known = {name: own for name, own in metrics.items() if own is not None}
    return ", ".join(f"{TITLES[n]} {quantity(e.value, e.unit)}" for n, e in known.items())


def curl(path: str, content: Mapping[str, Any], origin: str) -> str:
    """A line of a shell that posts JSON to a path of a service."""
    data = quote(json.dumps(content))
    return f"curl -H 'Content-Type: application/json' {origin}{path} -d {data}"


def sorted_devices(answers: Answers, chosen: Sequence[str] = ()) -> list[Device]:
    """Every device of the catalogue, the chosen ones first, then by vendor and title."""
    first = [answers.device(name) for name in dict.fromkeys(chosen)]
    names = {device.name for device in first}
    others = [device for device in answers.devices.catalog if device.name not in names]
    return first + sorted(others, key=lambda device: (device.vendor.lower(), device.title.lower()))


def is_gpu(device: Device) -> bool:
    """Whether a device is a GPU with a spec sheet."""
    return device.kind == "gpu" and device.has_sheet


def model_of(name: str | None, config: str | None) -> dict[str, Any]:
    """The model of a request by its name, or by the text of a config.json where there is one.

    Raises:
        BadRequest: the text is no JSON.
    """
    if config is None:
        return {} if name is None else {"name": name}
    try:
        return {"config": json.loads(config)}
    except ValueError as error:
        raise BadRequest(f"config.json is not valid JSON: {error}.") from None


METRICS = ("latency_ms", "peak_memory_mib", "power_w", "energy_j")
"""Metrics that the page shows, in order."""

LARGEST_CURVE = 1024
"""Largest batch size, or number of concurrent requests, of the curves, unless more are asked."""
Count = TypeVar("Count", int, float)


@dataclass(frozen=True)
class DeviceAnswer:
    """The answer for one device, or why there is none.

    Attributes:
        device: the spec sheet.
        query: what was asked.
        answer: the prediction; None where there is none.
        problem: why there is none, in one line.
    """

    device: Device
    query: Query
    answer: PredictionOut | None
    problem: str | None

    @property
    def refusal(self) -> str:
        """Why it cannot run as asked, in one line; empty where nothing prevents it."""
        return refusals(self.answer.limit_details) if self.answer else ""


@dataclass(frozen=True)
class BatchPoint:
    """The answer for one device at one batch size."""

    device: Device
    batch_size: int
    answer: PredictionOut


def device_answers(form: RunForm, answers: Answers) -> list[DeviceAnswer]:
    """The answer for every device of the form, in its order.

    Raises:
        UnknownGraph, UnknownDevice: a name of the form is not known.
        BadTrainingSetup: the options contradict each other.
    """
    names = dict.fromkeys(form.devices)
    questions = [replace(answers.question(form.asked(name)), explain=True) for name in names]
    outcomes = answers_to(questions, answers.adaptation.current())
    return [
        DeviceAnswer(asked.query.device, asked.query, None, str(outcome))
        if isinstance(outcome, InputError)
        else DeviceAnswer(asked.query.device, asked.query, outcome, None)
        for asked, outcome in zip(questions, outcomes, strict=True)
    ]


def refused_runs(
    form: RunForm, found: Iterable[DeviceAnswer], path: str, answers: Answers
) -> list[Refused]:
    """The devices on which the network cannot run, with the largest batch size that can.

    Args:
        form: what is asked.
        found: the answer for each device.
        path: path of the page that asks.
        answers: answers the same at smaller batch sizes.
    """
    return [_refused(form, each, path, answers) for each in found if each.refusal]


def _refused(form: RunForm, each: DeviceAnswer, path: str, answers: Answers) -> Refused:
    own = form.model_copy(update={"devices": [each.device.name]})
    sizes = [2**power for power in range((form.batch_size - 1).bit_length())]
    points = batch_points(own, answers, sizes)
    able = [one.batch_size for one in points if not refusals(one.answer.limit_details)]
    subject = f"{form.named} on {label(each.device)}"
    if not able:
        return Refused(subject, each.refusal)
    nearest, address = max(able), own.address(path, batch_size=max(able))
    return Refused(subject, each.refusal, f"batch size {nearest:,}", address)


def batch_points(form: RunForm, answers: Answers, sizes: list[int]) -> list[BatchPoint]:
    """The answers over devices and batch sizes; those that cannot be given are left out."""
    places = [(name, size) for name in dict.fromkeys(form.devices) for size in sizes]
    questions = [answers.question(form.asked(*place)) for place in places]
    outcomes = answers_to(questions, answers.adaptation.current())
    return [
        BatchPoint(question.query.device, size, outcome)
        for question, (_, size), outcome in zip(questions, places, outcomes, strict=True)
        if not isinstance(outcome, InputError)
    ]


def doublings(chosen: Count, most: int = LARGEST_BATCH) -> list[Count]:
    """Powers of two from 1 to `LARGEST_CURVE` or twice what is chosen, and that.

    Args:
        chosen: batch size, or another count.
        most: largest count that is answered.
    """
    last: int = int(min(most, max(LARGEST_CURVE, 2 * chosen)))
    return sorted({chosen, *(2**power for power in range(last.bit_length()))})
