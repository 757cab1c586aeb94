"""Requests about a deployed language model: load, engine, parallelism, price."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.functional_validators import ModelWrapValidatorHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from forerun.data.errors import InputError
from forerun.data.language_models.deployment import Degree, Engine, Parallelism, RequestLoad
from forerun.features.llm_serving.releases import is_release
from forerun.service.requests.faults import about_fields
from forerun.service.requests.field_names import also, in_own_names, names_written
from forerun.service.schemas.fields import Strict, options_of

MOST_DEVICES = 1024
DRAFTED, ACCEPTANCE = "engine.draft_tokens", "engine.draft_acceptance"
ENGINES: Final[Mapping[str, str]] = {
    **{"tensorrt-llm": "trtllm", "tensorrt_llm": "trtllm", "trt-llm": "trtllm"},
    **{"trt_llm": "trtllm", "tensorrtllm": "trtllm"},
    **{"llama_cpp": "llama.cpp", "llamacpp": "llama.cpp", "llama-cpp": "llama.cpp"},
}
"""Other spellings of an engine's name."""


def no_rate(given: Any) -> Any:
    """A rate of arrivals as given; None where it is infinite."""
    return None if str(given).lower() in ("inf", "infinity") else given


Tokens = Annotated[float, Field(ge=1, le=1e7, allow_inf_nan=False)]
Rate = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Variation = Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)]


class NamedPart(Strict):
    """A part whose fields may have the names that others give them."""

    PART: ClassVar[str] = ""
    """Name of the part in a request; empty for the request."""

    _written: dict[str, str] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _own_names(cls, given: Any, validated: ModelWrapValidatorHandler[Self]) -> Self:
        made = validated(in_own_names(given, cls.model_fields, cls.PART, field_paths()))
        if not isinstance(given, cls):
            made._written = names_written(given, cls.PART)
        return made

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The schema, with the further names of each field at the end of its description."""
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        for name, own in handler.resolve_ref_schema(schema)["properties"].items():
            own["description"] += also(f"{cls.PART}.{name}" if cls.PART else name)
        return schema

    @contextmanager
    def as_written(self) -> Iterator[None]:
        """Errors in the block have the field of this request as the request writes it."""
        try:
            yield
        except InputError as error:
            error.field = _keys_written(self, error.field)
            raise


@cache
def field_paths() -> tuple[str, ...]:
    """Paths of the fields of a request and of its parts, without those of single endpoints."""
    kinds: list[type[NamedPart]] = [DeploymentFields, *_parts(NamedPart)]
    own = [
        f"{each.PART}.{name}" if each.PART else name for each in kinds for name in each.model_fields
    ]
    of_prefill = [f"prefill.{name}" for name in PrefillIn.model_fields]
    return (*own, *of_prefill, *(f"prefill.parallelism.{n}" for n in ParallelismIn.model_fields))


def _parts(kind: type[NamedPart]) -> Iterator[type[NamedPart]]:
    """The classes below a class that name their part."""
    below: list[type[NamedPart]] = kind.__subclasses__()
    for each in below:
        if "PART" in vars(each):
            yield each
        yield from _parts(each)


def _keys_written(part: Any, field: Sequence[str | int]) -> tuple[str | int, ...]:
    """Keys of a field of a part of a request, as the request writes them."""
    if not field or not isinstance(part, BaseModel):
        return tuple(field)
    names = part._written if isinstance(part, NamedPart) else {}
    for end in range(len(field), 0, -1):
        name = names.get(".".join(map(str, field[:end])))
        if name is not None:
            is_text = isinstance(getattr(part, name, None), str)  # a command has no keys
            return (name,) if is_text else (name, *field[end:])
    return (field[0], *_keys_written(getattr(part, str(field[0]), None), field[1:]))


class EngineIn(options_of(Engine, NamedPart)):  # type: ignore[misc]
    """An inference engine and its settings; omitted settings have the engine's defaults."""

    PART = "engine"

    @field_validator("name", mode="before")
    @classmethod
    def _name(cls, given: Any) -> Any:
        return ENGINES.get(given.lower(), given.lower()) if isinstance(given, str) else given

    @field_validator("version")
    @classmethod
    def _version(cls, given: str, info: ValidationInfo) -> str:
        if given and not is_release(str(info.data.get("name")), given):
            also = ", b4567" if info.data.get("name") == "llama.cpp" else ""
            raise ValueError(
                f"not written as a release, such as 0.15.1, 0.5.6.post2{also} or 1.2.0rc6; leave "
                "it out for the present one"
            )
        return given

    @model_validator(mode="after")
    def _drafts(self) -> Self:
        if self.draft_acceptance and not self.draft_tokens:
            raise about_fields("{} is of drafted tokens: give {} too", ACCEPTANCE, DRAFTED)
        if self.draft_tokens and "draft_acceptance" not in self.model_fields_set:
            raise about_fields(
                f"{self.draft_tokens} drafted tokens need {{}}: give the probability that one is "
                "accepted, from 0 to 1",
                ACCEPTANCE,
            )
        return self

    def engine(self) -> Engine:
        """The engine of a deployment."""
        return Engine(**self.model_dump())


class ParallelismIn(options_of(Parallelism, NamedPart)):  # type: ignore[misc]
    """How one worker, a copy of the model, is divided over devices."""

    PART = "parallelism"

    tensor: Degree | None = Field(
        default=None,
        description="tensor parallelism: devices that share each layer's matrix "
        "products; the smallest "
        "number that fits when absent",
    )

    def parallelism(self) -> Parallelism | None:
        """The degrees; None where that of tensor parallelism is not given."""
        if self.tensor is None:
            return None
        return Parallelism(self.tensor, self.pipeline, self.attention_data, self.expert)


class PrefillIn(Strict):
    """Separate workers for prompts (disaggregated serving)."""

    parallelism: ParallelismIn = Field(default_factory=ParallelismIn)
    """devices of each of these workers"""
    workers: Degree = 1
    """number of them"""


class DeploymentFields(NamedPart):
    """The requests that a deployed model answers, and the engine and devices that serve them."""

    input_tokens: Tokens | None = None
    """mean prompt length, tokens"""
    output_tokens: Tokens | None = None
    """mean output length, tokens"""
    concurrency: Annotated[float, Field(ge=1, le=1e6, allow_inf_nan=False)] | None = None
    """requests in flight over all devices; each finished request is replaced at once"""
    requests_per_s: Annotated[Rate | None, BeforeValidator(no_rate)] = None
    """Poisson arrivals over all devices, requests per second; instead of `concurrency`; inf means
    not given"""
    cached_share: Share = 0.0
    """share of input tokens that the prefix cache holds"""
    input_variation: Variation = 0.0
    """coefficient of variation of prompt lengths"""
    output_variation: Variation = 0.0
    """coefficient of variation of output lengths"""
    engine: EngineIn = Field(default_factory=EngineIn)
    """the inference engine"""
    parallelism: ParallelismIn = Field(default_factory=ParallelismIn)
    """devices of one worker, a copy of the model"""
    workers: Degree | None = None
    """number of workers; as many as `device_count` has room for, or 1, when absent"""
    prefill: PrefillIn | None = None
    """separate prefill workers (disaggregated serving)"""
    usd_per_device_hour: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] | None = None
    """price of one device, USD an hour; its list price, if known, when absent"""

    @property
    def has_lengths(self) -> bool:
        """Whether lengths of prompts and answers are given, so that times are answered."""
        return self.input_tokens is not None

    @property
    def at_once(self) -> float | None:
        """Requests of a burst; None where they do not all arrive at once."""
        return None

    @model_validator(mode="after")
    def _load_is_whole(self) -> Self:
        """Either a whole load is given, or nothing of it."""
        given = self.model_fields_set & set(DeploymentFields.model_fields)
        if given and self.input_tokens is None:
            self.input_tokens = self.encoded_tokens()
        for field, other in (("input_tokens", "output_tokens"), ("output_tokens", "input_tokens")):
            if given and getattr(self, field) is None:
                raise about_fields("{} is missing, which {} needs", field, _first(given, other))
        loads = (self.concurrency, self.requests_per_s, self.at_once)
        bursts = "num_prompts" in type(self).model_fields
        if loads == (None, None, None) and "requests_per_s" in given and bursts:
            text = "{} inf needs {}, the number of requests that arrive at once; or give {}"
            raise about_fields(text, "requests_per_s", "num_prompts", "concurrency")
        if given and sum(load is not None for load in loads) != 1:
            raise about_fields("give one of {} and {}", "concurrency", "requests_per_s")
        return self

    def encoded_tokens(self) -> float | None:
        """Length to which the model's encoder brings every input; None where prompts decide."""
        return None

    def load(self) -> RequestLoad:
        """Lengths and arrivals of a request with lengths."""
        assert self.input_tokens is not None and self.output_tokens is not None
        return RequestLoad(
            self.input_tokens,
            self.output_tokens,
            self.concurrency or self.at_once,
            self.requests_per_s,
            self.cached_share,
            self.input_variation,
            self.output_variation,
        )


def _first(given: set[str], preferred: str) -> str:
    return preferred if preferred in given else min(given)
