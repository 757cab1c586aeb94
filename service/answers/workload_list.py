"""What can be asked: kinds of workload with their fields, and what the predictor knows by name."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from forerun.data.metrics import CONTENTION_METRICS
from forerun.data.named.networks import network_names, program_named, program_names
from forerun.data.named.synthesis import VCU1525
from forerun.data.workload import Space
from forerun.features.hls.directives import slots_of
from forerun.models.answers.deployments.metrics import METRICS as OF_DEPLOYMENTS
from forerun.models.answers.served_models import OF_SERVING
from forerun.models.hls_designs.features import METRICS as OF_DESIGNS
from forerun.models.predictor import Predictor
from forerun.service.answers.benchmarks import devices_of_space, suites_of
from forerun.service.answers.question import RUN_METRICS
from forerun.service.presets import COLOCATION, PREDICT, as_prediction, preset_named
from forerun.service.schemas import listings
from forerun.service.schemas import workload_kinds as kinds
from forerun.service.schemas.colocation import ColocationIn
from forerun.service.schemas.prediction import KernelIn, NetworkIn


class _Form(NamedTuple):
    """A kind of workload, or one form of it, with the preset that is its example."""

    kind: str
    model: type[BaseModel]
    metrics: tuple[str, ...]
    preset: str
    endpoint: str = PREDICT
    space: Space | None = None


FORMS: Final = (
    _Form("network", NetworkIn, RUN_METRICS, "resnet50-l4"),
    _Form("kernel", KernelIn, RUN_METRICS, "matrix-product"),
    _Form("llm_serving", kinds.LlmServingIn, OF_SERVING["llm_serving"], "serve-8b-chat"),
    _Form("llm_deployment", kinds.LlmDeploymentIn, OF_DEPLOYMENTS, "deploy-8b"),
    _Form("diffusion", kinds.DiffusionWorkloadIn, OF_SERVING["diffusion"], "draw-images"),
    _Form("architecture", kinds.Nb201In, ("latency_ms",), "nb201-phone", space="nb201"),
    _Form("architecture", kinds.FbnetIn, ("latency_ms",), "fbnet-raspberry-pi", space="fbnet"),
    _Form("architecture", kinds.OfaIn, ("latency_ms",), "ofa-v100", space="ofa"),
    _Form("design", kinds.DesignIn, OF_DESIGNS, "hls-gesummv"),
    _Form("benchmark", kinds.BenchmarkIn, (), "mlperf-resnet50"),
    _Form(
        "colocation",
        ColocationIn,
        tuple(metric.name for metric in CONTENTION_METRICS),
        "neighbours",
        COLOCATION,
    ),
)
"""All forms in which a workload can be asked about."""


def workload_list(predictor: Predictor) -> listings.WorkloadsOut:
    """Kinds of workload, and the names that requests about them may use."""
    programs = ((name, program_named(name)) for name in program_names())
    return listings.WorkloadsOut(
        workloads=[_workload(form, predictor) for form in FORMS],
        networks=list(network_names()),
        programs=[
            listings.HlsProgramOut(name=name, slots=list(slots_of(graph)))
            for name, graph in programs
            if graph is not None
        ],
        suites=[
            listings.SuiteOut.filled(
                own.suite,
                settings=[listings.SettingOut.filled(setting) for setting in own.suite.settings],
                devices=sorted(own.suite.devices),
            )
            for own in suites_of(predictor).values()
        ],
    )


def _workload(form: _Form, predictor: Predictor) -> listings.WorkloadOut:
    properties = form.model.model_json_schema()["properties"]
    definitions = form.model.model_json_schema().get("$defs", {})
    devices: tuple[str, ...] = ()
    if form.space is not None:
        devices = devices_of_space(predictor, form.space)
    elif form.model is kinds.DesignIn:
        devices = (VCU1525.name,)
    return listings.WorkloadOut(
        kind=form.kind,
        form=form.space or form.kind,
        title=(form.model.__doc__ or "").splitlines()[0].rstrip("."),
        endpoint=form.endpoint,
        fields=[
            listings.FieldOut(
                name=name,
                description=properties[name].get("description", ""),
                required=field.is_required(),
                default=None if field.is_required() or field.default_factory else field.default,
                values=list(dict.fromkeys(_choices(properties[name], definitions))),
            )
            for name, field in form.model.model_fields.items()
        ],
        metrics=list(form.metrics),
        devices=list(devices),
        example=_example(form),
    )


def _example(form: _Form) -> dict[str, Any]:
    """The request of the form's preset, as its endpoint takes it."""
    preset = preset_named(form.preset)
    if form.endpoint == PREDICT:
        return as_prediction(preset.endpoint, preset.request) or {}
    return dict(preset.request)


def _choices(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> list[str | int]:
    """Allowed values of a field, or of the entries of a list, by its JSON schema."""
    if "const" in schema:
        return [schema["const"]]
    if "enum" in schema:
        return list(schema["enum"])
    if "$ref" in schema:
        return _choices(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    parts = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if "items" in schema:
        parts.append(schema["items"])
    return [value for part in parts for value in _choices(part, definitions)]
