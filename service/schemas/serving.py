"""Requests about generative models that are served."""

from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from pydantic import ConfigDict, Field, PrivateAttr, ValidationError, model_validator
from pydantic.functional_validators import ModelWrapValidatorHandler

from forerun.data.level import USUAL, Level
from forerun.data.workload import Diffusion, LlmServing, Parameters
from forerun.service.requests.commands import fields_of
from forerun.service.requests.faults import about_fields, within_command
from forerun.service.requests.field_names import in_own_names, merged, names_written
from forerun.service.requests.flat_fields import FlatFields
from forerun.service.schemas.fields import OneDevice, Strict, example, options_of
from forerun.service.schemas.llm.deployment import (
    MOST_DEVICES,
    DeploymentFields,
    EngineIn,
    ParallelismIn,
    PrefillIn,
    field_paths,
    no_rate,
)
from forerun.service.schemas.llm.model import LanguageModelIn

if TYPE_CHECKING:
    from fastapi.openapi.models import Example

MOST_AT_ONCE = 20_000
LONGEST_COMMAND = 8_000
LOADS = ("concurrency", "requests_per_s", "num_prompts")
EXAMPLE_LLM: dict[str, Any] = example("llm_by_size")
EXAMPLE_DEPLOYMENT: dict[str, Any] = example("llm_by_lengths")
EXAMPLE_COMMAND: dict[str, Any] = example("llm_by_command")
LLM_EXAMPLES: "dict[str, Example]" = {
    "deployment": {"summary": "times, memory and price by lengths", "value": EXAMPLE_DEPLOYMENT},
    "command": {"summary": "commands of an engine and its benchmark", "value": EXAMPLE_COMMAND},
    "sizes": {"summary": "power and rate by the number of parameters", "value": EXAMPLE_LLM},
}
MOST_IN_BATCH = 1_000
EXAMPLE_DIFFUSION: dict[str, Any] = example("diffusion")
OF_LAYERS = frozenset(LanguageModelIn.model_fields)
"""Fields of a model whose times are asked for; the others are sizes of one, or a load."""
FROM_CONFIG = frozenset(
    {"total_parameters", "active_parameters", "architecture", "experts", "experts_per_token"}
    | {"cache_bytes_per_token"}
)
"""Fields that follow from a configuration or a name."""
INSTEAD = {
    "weights": "model.quantization",
    "max_sequences": "concurrency",
    "tensor_parallel": "parallelism.tensor",
    "data_parallel": "parallelism.attention_data",
    "expert_parallel": "parallelism.expert",
}
"""Field of a model that is described by its size -> field that says the same with lengths."""


class LlmIn(options_of(LlmServing, LanguageModelIn)):  # type: ignore[misc]
    """A language model and how it is served; absent fields count as unknown."""

    total_parameters: Parameters | None = None
    """number of parameters of the model; `config` or `name` may stand for it"""
    active_parameters: Parameters | None = None
    """number of parameters used per token; all when absent"""

    @model_validator(mode="after")
    def _sizes_are_given_once(self) -> "LlmIn":
        source = "config" if self.config is not None else "name" if self.name is not None else None
        if source is None and self.total_parameters is None:
            raise ValueError("total_parameters is missing, and there is no config or name")
        if self.config is not None and self.name is not None:
            raise ValueError("name and config are two models; leave one of the two out")
        twice = sorted(FROM_CONFIG & self.model_fields_set)
        if source is not None and twice:
            raise ValueError(f"{twice[0]} follows from {source}; leave one of the two out")
        formats = sorted({"quantization", "cache_format"} & self.model_fields_set)
        if source is None and formats:
            raise ValueError(f"{formats[0]} needs the model's config or name; `weights` does not")
        return self

    @model_validator(mode="after")
    def _no_token_passes_more_than_all(self) -> "LlmIn":
        if (self.active_parameters or 0.0) > (self.total_parameters or inf):
            raise ValueError("active_parameters cannot be more than total_parameters")
        if self.experts_per_token > self.experts:
            raise ValueError("experts_per_token cannot be more than experts")
        return self

    def workload(self) -> LlmServing:
        """The workload of the query.

        Raises:
            UnreadableModel, BadRequest: as `sizes`.
        """
        given = self.model_dump(exclude=set(LanguageModelIn.model_fields))
        sizes = self.sizes()
        if sizes is not None:
            named = self.weights if "weights" in self.model_fields_set else None
            given |= sizes.request(weights=named)
        given["active_parameters"] = given["active_parameters"] or given["total_parameters"]
        return LlmServing(**given)


class DiffusionIn(options_of(Diffusion, Strict)):  # type: ignore[misc]
    """A diffusion model and the images or videos it makes; absent fields count as unknown."""

    def workload(self) -> Diffusion:
        """The workload of the query."""
        return Diffusion(**self.model_dump())


class _ServedOn(Strict):
    device: OneDevice
    """name of a device, or a spec sheet"""
    device_count: int = Field(default=1, ge=1, le=MOST_DEVICES)
    """number of devices"""
    level: Level = USUAL


class LlmEstimateIn(DeploymentFields, _ServedOn):
    """A language model on devices of one kind.

    With `input_tokens` and `output_tokens`, times, memory and price are answered too; the model is
    then given by `name` or `config`.
    """

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [EXAMPLE_LLM, EXAMPLE_DEPLOYMENT]}
    )
    model: LlmIn
    """the model and how it is served, or the name of a public model alone"""
    num_prompts: int | None = Field(default=None, ge=1, le=MOST_AT_ONCE)
    """requests of a benchmark, which arrive at once or at `requests_per_s`; with `concurrency`,
    times are those of the steady state"""
    command: str | None = Field(default=None, max_length=LONGEST_COMMAND)
    """commands of vLLM, SGLang or llama.cpp that start a server, a benchmark or both, as typed;
    other fields override them"""
    _notes: tuple[str, ...] = PrivateAttr(default=())
    _closed: "LlmEstimateIn | None" = PrivateAttr(default=None)

    @model_validator(mode="wrap")
    @classmethod
    def _with_command(cls, given: Any, validated: ModelWrapValidatorHandler[Self]) -> Self:
        command = given.get("command") if isinstance(given, Mapping) else None
        if not isinstance(command, str) or len(command) > LONGEST_COMMAND:
            return validated(given)
        said, notes, options = fields_of(command)
        own = in_own_names(given, cls.model_fields, cls.PART, field_paths())
        if not isinstance(own.get("model", {}), Mapping):
            return validated(given)
        if {"concurrency", "requests_per_s"} & own.keys():
            said = {name: value for name, value in said.items() if name not in LOADS}
        if {"config", "total_parameters", "name"} & own.get("model", {}).keys():
            said.get("model", {}).pop("name", None)
        options = {
            path: name
            for path, name in options.items()
            if _holds(said, path) and not _holds(own, path)
        }
        content, closed = merged(said, own), None
        try:
            if "concurrency" in said and no_rate(said.get("requests_per_s")) is not None:
                closed = validated({**content, "requests_per_s": None})
                del content["concurrency"]
            made = validated(content)
        except ValidationError as error:
            raise within_command(error, options) from None
        parts = {path.partition(".")[0] for path in options} - own.keys()
        made._written = dict.fromkeys((*parts, *options), "command") | names_written(given)
        made._notes = tuple(notes)
        if closed is not None:
            rate, most = f"{made.requests_per_s:g}", f"{closed.concurrency:g}"
            names = f"{options['requests_per_s']} {rate} and {options['concurrency']} {most}"
            slow = f"{names}: {most} in flight answer fewer, so times are those of {most} in flight"
            fast = f"{names}: {most} in flight answer more, so times are those at {rate} requests/s"
            closed._written, closed._notes = made._written, (*notes, slow)
            made._notes, made._closed = (*notes, fast), closed
        return made

    def encoded_tokens(self) -> float | None:
        """As of the model."""
        tokens: float | None = self.model.encoded_tokens()
        return tokens

    @property
    def at_once(self) -> float | None:
        """As in the request, where no other load is given."""
        given = self.num_prompts, self.concurrency, self.requests_per_s
        return float(given[0]) if given[0] and given[1:] == (None, None) else None

    @property
    def prompts(self) -> int | None:
        """Requests that arrive at once or at a rate; None without an end and in closed loops."""
        return None if self.concurrency is not None else self.num_prompts

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out or assumed of a command, one sentence each."""
        return self._notes

    @property
    def closed(self) -> "LlmEstimateIn | None":
        """As many requests in flight as a command allows at most, where it gives a rate too."""
        return self._closed

    @model_validator(mode="after")
    def _has_the_devices(self) -> "LlmEstimateIn":
        """No degree of parallelism is over the number of devices."""
        if self.has_lengths:
            return self
        for name in ("tensor_parallel", "expert_parallel", "data_parallel"):
            if getattr(self.model, name) > self.device_count:
                raise ValueError(f"{name} cannot be more than device_count, {self.device_count}")
        return self

    @model_validator(mode="after")
    def _layers_are_known(self) -> "LlmEstimateIn":
        """With lengths, the model has layers, and the load is not given twice."""
        if not self.has_lengths:
            if self.num_prompts is not None:
                raise about_fields("{} is missing, which {} needs", "input_tokens", "num_prompts")
            return self
        check_layers(self.model)
        return self


def _holds(given: Any, path: str) -> bool:
    """Whether an object has a value at a path of keys."""
    for step in path.split("."):
        given = given.get(step) if isinstance(given, Mapping) else None
    return given is not None


def check_layers(model: LlmIn) -> None:
    """Check the model of a request with lengths.

    Raises:
        ValueError: its layers are not known, or it has a field that the request has too.
    """
    if model.config is None and model.name is None:
        raise ValueError("times follow from the layers: give model.config or model.name")
    for field in sorted(model.model_fields_set - OF_LAYERS):
        instead = INSTEAD.get(field)
        why = f"`{instead}` of the request says it" if instead else "the layers and lengths say it"
        raise ValueError(f"model.{field} is not taken together with input_tokens: {why}")


class LlmBatchIn(Strict):
    """Up to 1,000 requests."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"items": [EXAMPLE_DEPLOYMENT, EXAMPLE_LLM]}]},
    )

    items: Annotated[list[Any], Field(min_length=1, max_length=MOST_IN_BATCH)]
    """requests as in POST /v1/llm/estimate; each gets an answer or a problem"""


class DiffusionEstimateIn(_ServedOn):
    """A diffusion model on devices of one kind."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [EXAMPLE_DIFFUSION]})
    model: DiffusionIn
    """the model and its samples"""


SERVING_FIELDS: Final = FlatFields(
    {own.PART: own for own in (LlmEstimateIn, LanguageModelIn, EngineIn, ParallelismIn)}
    | {"prefill": PrefillIn, "prefill.parallelism": ParallelismIn}
)
"""What options and forms ask of a deployed model, but for the model and the device."""
