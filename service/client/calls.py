"""Requests of the HTTP interface: for each a function of typed arguments, and its typed answer."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, TypeAdapter

from forerun.data.device import Device
from forerun.service.problems import Problem
from forerun.service.schemas.answers import PredictionOut, RankOut, ServingOut, SweepOut
from forerun.service.schemas.circuits import CircuitOut
from forerun.service.schemas.colocation import ColocationOut, HostsOut
from forerun.service.schemas.listings import PresetsOut, ReadyOut, WorkloadsOut
from forerun.service.schemas.llm.answers import SupportOut
from forerun.service.schemas.llm.replay import ReplayOut
from forerun.service.schemas.llm.serving_plan_answers import LlmPlanOut
from forerun.service.schemas.llm.training_answers import TrainingOut, TrainingPlanOut
from forerun.service.schemas.measurements import (
    AdaptationOut,
    DriftOut,
    ObservedOut,
    SetOut,
    SetsOut,
)
from forerun.service.schemas.pipelines import PipelineOut
from forerun.service.schemas.prediction import (
    DevicesOut,
    GraphOut,
    LeaderboardOut,
    ModelsOut,
)

T = TypeVar("T")
Body = BaseModel | Mapping[str, Any]
"""A request: a model of `forerun.service.schemas`, or what its JSON holds."""
ONNX = {"Content-Type": "application/octet-stream"}


class PredictionBatch(BaseModel):
    """The answer to each question of a batch, or the problem that prevents one."""

    items: list[PredictionOut | Problem]


class ServingBatch(BaseModel):
    """The estimate of each deployment of a batch, or the problem that prevents one."""

    items: list[ServingOut | Problem]


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request, which may be sent again: its effect is the same once or twice.

    Attributes:
        method, path: of HTTP.
        answer: reads the answer from JSON.
        body: what is sent as JSON; None for nothing.
        content: bytes that are sent as they are, in place of `body`.
        parameters: of the query; those that are None are left out.
        headers: further headers.
    """

    method: str
    path: str
    answer: TypeAdapter[T]
    body: Any = None
    content: bytes | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


def _asked(path: str, answer: type[T], body: Body) -> Call[T]:
    return Call("POST", path, TypeAdapter(answer), _plain(body))


def _got(path: str, answer: type[T], **parameters: Any) -> Call[T]:
    return Call("GET", path, TypeAdapter(answer), parameters=parameters)


def _plain(body: Body) -> Any:
    return body.model_dump(mode="json", by_alias=True) if isinstance(body, BaseModel) else body


def _deleted(path: str) -> Call[None]:
    return Call("DELETE", path, TypeAdapter(type(None)))


def predict(question: Body) -> Call[PredictionOut]:
    """Predict the metrics of a workload on a device."""
    return _asked("/v1/predict", PredictionOut, question)


def predict_batch(items: Sequence[Body]) -> Call[PredictionBatch]:
    """Predict up to 1,000 questions; each gets an answer or a problem of its own."""
    return _asked("/v1/predict:batch", PredictionBatch, {"items": [_plain(item) for item in items]})


def predict_model(onnx: bytes, device: str, **options: Any) -> Call[PredictionOut]:
    """Predict an ONNX file.

    Args:
        onnx: content of the file.
        device: name of the device.
        options: further parameters of `POST /v1/predict/model`, such as `batch_size`.
    """
    answer, parameters = TypeAdapter(PredictionOut), {"device": device, **options}
    path = "/v1/predict/model"
    return Call("POST", path, answer, content=onnx, parameters=parameters, headers=ONNX)


def pipeline(question: Body) -> Call[PipelineOut]:
    """POST /v1/pipeline: what stages with links carry, and where they saturate."""
    return _asked("/v1/pipeline", PipelineOut, question)


def rank(question: Body) -> Call[RankOut]:
    """Rank devices for a workload."""
    return _asked("/v1/rank", RankOut, question)


def power_sweep(question: Body) -> Call[SweepOut]:
    """Time, power and energy of a workload at several power limits."""
    return _asked("/v1/power/sweep", SweepOut, question)


def colocation(question: Body) -> Call[ColocationOut]:
    """How much programs slow each other down on one host."""
    return _asked("/v1/colocation", ColocationOut, question)


def rank_hosts(question: Body) -> Call[HostsOut]:
    """Rank hosts for one more program."""
    return _asked("/v1/colocation/rank", HostsOut, question)


def circuit(netlist: Body) -> Call[CircuitOut]:
    """Frequency, critical path and resources of a netlist, as yosys writes it in JSON."""
    return _asked("/v1/circuit", CircuitOut, netlist)


def llm_estimate(question: Body) -> Call[ServingOut]:
    """What a deployed language model costs to serve."""
    return _asked("/v1/llm/estimate", ServingOut, question)


def llm_estimate_batch(items: Sequence[Body]) -> Call[ServingBatch]:
    """Estimate up to 1,000 deployments; each gets an answer or a problem of its own."""
    return _asked(
        "/v1/llm/estimate:batch", ServingBatch, {"items": [_plain(item) for item in items]}
    )


def llm_replay(question: Body) -> Call[ReplayOut]:
    """Percentiles of the latencies of a trace of requests."""
    return _asked("/v1/llm/replay", ReplayOut, question)


def llm_plan(question: Body) -> Call[LlmPlanOut]:
    """What to serve a language model on, within limits."""
    return _asked("/v1/llm/plan", LlmPlanOut, question)


def training_estimate(question: Body) -> Call[TrainingOut]:
    """What a step of training a language model takes, and what tokens cost."""
    return _asked("/v1/training/estimate", TrainingOut, question)


def training_plan(question: Body) -> Call[TrainingPlanOut]:
    """The best layouts of training a language model."""
    return _asked("/v1/training/plan", TrainingPlanOut, question)


def llm_support() -> Call[SupportOut]:
    """Language models, devices and engines that are known, and what was measured."""
    return _got("/v1/llm/support", SupportOut)


def diffusion_estimate(question: Body) -> Call[ServingOut]:
    """Power, rate and energy of a served diffusion model."""
    return _asked("/v1/diffusion/estimate", ServingOut, question)


def upload_graph(model: bytes | Mapping[str, Any], **options: Any) -> Call[GraphOut]:
    """Store an ONNX file or the JSON of an operator graph; its digest names it from then on.

    Args:
        model: content of the file, or the JSON.
        options: parameters of `POST /v1/graphs`, such as `batch_size`.
    """
    answer, path = TypeAdapter(GraphOut), "/v1/graphs"
    if isinstance(model, bytes):
        return Call("POST", path, answer, content=model, parameters=options, headers=ONNX)
    return Call("POST", path, answer, dict(model), parameters=options)


def graph(digest: str) -> Call[GraphOut]:
    """A stored graph."""
    return _got(f"/v1/graphs/{quote(digest, safe='')}", GraphOut)


def delete_graph(digest: str) -> Call[None]:
    """Delete a stored graph."""
    return _deleted(f"/v1/graphs/{quote(digest, safe='')}")


def devices(kind: str | None = None, vendor: str | None = None) -> Call[DevicesOut]:
    """Devices that are known, all or those of a kind or vendor."""
    return _got("/v1/devices", DevicesOut, kind=kind, vendor=vendor)


def device(name: str) -> Call[Device]:
    """The spec sheet of a device."""
    return _got(f"/v1/devices/{quote(name, safe='')}", Device)


def put_device(sheet: Device) -> Call[Device]:
    """Register a device, or replace the one of its name."""
    path = f"/v1/devices/{quote(sheet.name, safe='')}"
    return Call("PUT", path, TypeAdapter(Device), _plain(sheet))


def delete_device(name: str) -> Call[None]:
    """Delete a registered device."""
    return _deleted(f"/v1/devices/{quote(name, safe='')}")


def adapt(device: str, measurements: Sequence[Body], key: str | None = None) -> Call[AdaptationOut]:
    """Store measurements of a device and adapt the answers to them.

    Args:
        device: name of the device.
        measurements: rows with a workload and its metrics.
        key: the same for requests that are one; a new one when None.
    """
    return _measured(device, measurements, "adapt", key, AdaptationOut)


def observe(device: str, measurements: Sequence[Body], key: str | None = None) -> Call[ObservedOut]:
    """Store observations of a device, which answers are compared with; otherwise as `adapt`."""
    return _measured(device, measurements, "observe", key, ObservedOut)


def _measured(
    device: str, rows: Sequence[Body], source: str, key: str | None, answer: type[T]
) -> Call[T]:
    body = {"measurements": [_plain(row) for row in rows], "source": source}
    headers = {"Idempotency-Key": key or uuid.uuid4().hex}
    path = f"/v1/devices/{quote(device, safe='')}/measurements"
    return Call("POST", path, TypeAdapter(answer), body, headers=headers)


def measurements(device: str, source: str = "adapt") -> Call[SetsOut]:
    """Sets of measurements of a device, to adapt to or observed."""
    path = f"/v1/devices/{quote(device, safe='')}/measurements"
    return _got(path, SetsOut, source=source)


def undo_measurements(device: str, set_id: str) -> Call[SetOut]:
    """Roll back a set of measurements."""
    path = f"/v1/devices/{quote(device, safe='')}/measurements/{quote(set_id, safe='')}"
    return Call("DELETE", path, TypeAdapter(SetOut))


def drift(device: str | None = None, version: str | None = None) -> Call[DriftOut]:
    """Live errors of the answers, and what changed."""
    return _got("/v1/drift", DriftOut, device=device, version=version)


def leaderboard(dataset: str | None = None) -> Call[LeaderboardOut]:
    """Errors on held-out rows, by dataset, task and system."""
    return _got("/v1/leaderboard", LeaderboardOut, dataset=dataset)


def models() -> Call[ModelsOut]:
    """The predictors in use."""
    return _got("/v1/models", ModelsOut)


def presets() -> Call[PresetsOut]:
    """Examples of questions."""
    return _got("/v1/presets", PresetsOut)


def workloads() -> Call[WorkloadsOut]:
    """Kinds of workloads, their fields, suites and programs."""
    return _got("/v1/workloads", WorkloadsOut)


def ready() -> Call[ReadyOut]:
    """Whether the service answers, and with which version."""
    return _got("/readyz", ReadyOut)
