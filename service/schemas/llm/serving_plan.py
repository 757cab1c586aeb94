"""Requests for plans of serving: traffic, limits, devices at hand."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from forerun.data.cloud_instances import matching
from forerun.data.columns import Column
from forerun.data.errors import BadRequest, in_field
from forerun.data.language_models.deployment import Engine, RequestLoad
from forerun.data.language_models.requests import Requests
from forerun.data.language_models.traces import named_trace, read_trace
from forerun.models.llm_serving.mixes import grouped
from forerun.models.llm_serving.plans import Risk, ServingObjective, tail_of
from forerun.service.requests.faults import about_fields
from forerun.service.requests.flat_fields import FlatFields
from forerun.service.schemas.fields import LONGEST_NAME, Name, OneDevice, Strict, example
from forerun.service.schemas.llm.deployment import (
    DRAFTED,
    EngineIn,
    NamedPart,
    Rate,
    Share,
    Tokens,
    Variation,
)
from forerun.service.schemas.llm.model import LanguageModelIn
from forerun.service.schemas.llm.replay import MOST_REPLAYED
from forerun.service.schemas.llm.serving_plan_answers import TIMES

EXAMPLE_PLAN: dict[str, Any] = example("serving_plan")
MOST_TYPES = 1_000
MOST_SIZES = 1_000
Milliseconds = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
Amount = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]
LENGTHS = ("input_tokens", "output_tokens")
VARIATIONS = ("input_variation", "output_variation")
P99: Final = tuple(map(tail_of, TIMES))
NEEDS: Final = {
    **dict.fromkeys(("change_cost", "max_changes"), ("a mix", "mix")),
    **dict.fromkeys(("startup_s", "stabilization_s", "cap_kw"), ("a plan over time", "window_s")),
    "cap_risk": ("a power cap", "cap_kw"),
}
"""Field -> what it is of, and the field without which it has no effect."""
BOUNDS: Final = (
    *((name, tail_of(name), "a 99th percentile is above the mean") for name in TIMES),
    *((name, tail_of(name, 95), "a 95th percentile is above the mean") for name in TIMES),
    *((tail_of(name, 95), tail_of(name), "a 99th percentile is above the 95th") for name in TIMES),
    *(
        (of("ttft_ms"), of("request_latency_ms"), "a request takes longer than its first token")
        for of in (str, tail_of, partial(tail_of, percent=95))
    ),
)
"""Limits of which the second is not below the first, and why."""


Usd = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]


class StockIn(Strict):
    """Available devices of one type."""

    device: OneDevice
    """name of a device, a pattern of instance types such as `aws/m7i.*`, or a spec sheet"""
    count: int | None = Field(default=None, ge=1, le=100_000)
    """how many there are; any number when absent"""
    usd_per_device_hour: Usd | None = None
    """price of one; a list price, where one is known, when absent"""
    spot_usd_per_device_hour: Usd | None = None
    """spot price of one, in a mix; none when absent"""
    spot_count: int | None = Field(default=None, ge=1, le=100_000)
    """how many are available at the spot price; any number when absent"""
    current: int = Field(default=0, ge=0, le=100_000)
    """how many run now, for a mix"""


def _stock(given: Any) -> Any:
    """Devices by their name or sheet alone are any number of them."""
    is_stock = isinstance(given, StockIn) or (isinstance(given, Mapping) and "device" in given)
    return given if is_stock else {"device": given}


def _each_type(given: Any) -> Any:
    """Devices with those that patterns of instance types stand for."""
    if not isinstance(given, list):
        return given
    found = []
    for one in given:
        name = one.get("device") if isinstance(one, Mapping) else one
        if not isinstance(name, str) or "*" not in name:
            found.append(one)
        elif isinstance(one, Mapping) and one.get("usd_per_device_hour") is not None:
            raise ValueError(f"{name} is several types without a common price: price each")
        else:
            known = one if isinstance(one, Mapping) else {}
            found += [{**known, "device": own} for own in matching(name)]
    return found


Stocked = Annotated[StockIn, BeforeValidator(_stock)]
Stocks = Annotated[
    list[Stocked], Field(min_length=1, max_length=MOST_TYPES), BeforeValidator(_each_type)
]


def stock_of(word: str) -> dict[str, str]:
    """A type of devices by NAME=COUNT@USD:spot=USD:spot_count=COUNT:current=COUNT, of which all but
    the name may be left out, to be validated.
    """
    word, *further = word.split(":")
    stock, _, usd = word.partition("@")
    name, _, count = stock.partition("=")
    more = {"count": count, "usd_per_device_hour": usd}
    for field, _, text in (own.partition("=") for own in further):
        more["spot_usd_per_device_hour" if field == "spot" else field] = text
    return {"device": name} | {field: text for field, text in more.items() if text}


class SizeIn(Strict):
    """Requests of one size."""

    input_tokens: Tokens
    """length of the prompts"""
    output_tokens: Tokens
    """length of the answers"""
    share: Annotated[float, Field(gt=0, le=1e12)] = 1.0
    """how many there are, in a unit common to all sizes"""


def size_of(word: str) -> dict[str, str]:
    """Requests of one size by INPUT,OUTPUT,SHARE, to be validated."""
    return dict(zip(SizeIn.model_fields, word.split(","), strict=False))


CLASS_FORM: Final = "NAME,RATE,INPUT,OUTPUT[,LIMIT=VALUE...]"
DRAFT_FORM: Final = "METHOD,TOKENS,ACCEPTANCE[,MODEL]"
DraftMethod = Literal["mtp", "eagle", "eagle3", "ngram"]
CLASS_LIMITS: Final = (*TIMES, *(tail_of(name, own) for own in (95, 99) for name in TIMES))


def _contradictions(limits: Mapping[str, float]) -> Iterator[tuple[str, str, str]]:
    """Each limit that is below one that it bounds, that one, and what is wrong, with {} for them
    and the second again.
    """
    for least, most, why in BOUNDS:
        low, high = limits.get(least, 0.0), limits.get(most, inf)
        if low > high:
            fault = f"{{}} {high:g} is below {{}} {low:g}, but {why}: raise it, or leave {{}} out"
            yield most, least, fault


class DraftIn(Strict):
    """Speculative decoding to try."""

    method: DraftMethod
    """layers of the model (mtp), a head (eagle, eagle3) or the prompt (ngram)"""
    tokens: Annotated[int, Field(ge=1, le=64)]
    """tokens drafted in an iteration"""
    acceptance: Share
    """as `draft_acceptance` of an engine"""
    model: Name | None = None
    """checkpoint of the head; required for eagle and eagle3"""

    @model_validator(mode="after")
    def _has_a_head(self) -> Self:
        if self.method.startswith("eagle") != (self.model is not None):
            has = "needs a model" if self.model is None else "has no model"
            raise ValueError(f"{self.method} {has}, the checkpoint of a head that drafts")
        return self


def draft_of(word: str) -> dict[str, str]:
    """Drafts by `DRAFT_FORM`, to be validated.

    Raises:
        BadRequest: the text is not of that form.
    """
    given = word.split(",")
    if not 3 <= len(given) <= 4:
        raise BadRequest(f"{word!r:.80} is not {DRAFT_FORM}.")
    return dict(zip(DraftIn.model_fields, given, strict=False))


class ClassIn(Strict):
    """Requests of one class, with their own limits."""

    name: Annotated[str, Field(pattern=r"^[\w-]+$", max_length=LONGEST_NAME)]
    """name, such as chat"""
    requests_per_s: Rate
    """their rate"""
    input_tokens: Tokens
    """mean length of their prompts"""
    output_tokens: Tokens
    """mean length of their answers"""
    input_variation: Variation = 0.0
    """as of all"""
    output_variation: Variation = 0.0
    """as of all"""
    limits: dict[str, Milliseconds] = Field(default_factory=dict)
    """limit (of a mean or a percentile) -> its maximum, milliseconds"""

    @field_validator("limits")
    @classmethod
    def _hold(cls, given: dict[str, float], info: ValidationInfo) -> dict[str, float]:
        for name in given.keys() - set(CLASS_LIMITS):
            raise ValueError(f"{name} is no limit: there are {', '.join(CLASS_LIMITS)}")
        for most, least, fault in _contradictions(given):
            raise ValueError(f"{info.data.get('name')}: {fault.format(most, least, least)}")
        return given

    def load(self) -> RequestLoad:
        """Lengths and rate."""
        lengths = self.input_tokens, self.output_tokens
        variations = self.input_variation, self.output_variation
        return RequestLoad(*lengths, None, self.requests_per_s, 0.0, *variations)


def class_of(word: str) -> dict[str, Any]:
    """A class by `CLASS_FORM`, to be validated.

    Raises:
        BadRequest: the text is not of that form.
    """
    given = word.split(",")
    if len(given) < 4 or ["=" in own for own in given] != [False] * 4 + [True] * (len(given) - 4):
        raise BadRequest(f"{word!r:.80} is not {CLASS_FORM}.")
    fields = dict(zip(ClassIn.model_fields, given[:4], strict=False))
    more = dict(own.split("=", 1) for own in given[4:])
    own = {name: more.pop(name) for name in VARIATIONS if name in more}
    return {**fields, **own, "limits": more}


class LlmPlanIn(NamedPart):
    """What to serve a language model on: traffic, limits and available devices."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [EXAMPLE_PLAN]})

    model: LanguageModelIn
    """the model, by its name or its configuration"""
    formats: Annotated[list[Name], Field(max_length=8)] = Field(default_factory=list)
    """number formats of weights to choose from, as `quantization` of the model; only the model's
    own when empty"""
    devices: Stocks | None = None
    """device types to choose from: names, or with number and price; all GPUs with a list price when
    absent"""
    requests_per_s: Rate | None = None
    """requests per second"""
    input_tokens: Tokens | None = None
    """mean prompt length, tokens"""
    output_tokens: Tokens | None = None
    """mean output length, tokens"""
    input_variation: Variation = 0.0
    """coefficient of variation of prompt lengths"""
    output_variation: Variation = 0.0
    """coefficient of variation of output lengths"""
    cached_share: Share = 0.0
    """share of input tokens that the prefix cache holds"""
    sizes: Annotated[list[SizeIn], Field(min_length=1, max_length=MOST_SIZES)] | None = None
    """histogram of lengths, instead of mean lengths"""
    classes: Annotated[list[ClassIn], Field(min_length=1, max_length=16)] | None = None
    """classes of requests with their own rates, lengths and limits, instead of those of this
    request; limits are checked by the event model"""
    requests: Annotated[list[Any], Field(min_length=1, max_length=MOST_REPLAYED)] | None = None
    """a trace, as in POST /v1/llm/replay, which gives rate and lengths"""
    trace: Annotated[str, Field(max_length=80)] | None = None
    """name of a public trace, instead of `requests`"""
    engine: EngineIn = Field(default_factory=EngineIn)
    """the inference engine; scheduler limits that are given are fixed"""
    drafts: Annotated[list[DraftIn], Field(max_length=8)] = Field(default_factory=list)
    """speculative decoding to try too; drafting a token is assumed to cost one layer of the
    model"""
    ttft_ms: Milliseconds | None = None
    """limit on the mean time to first token, milliseconds"""
    tpot_ms: Milliseconds | None = None
    """limit on the mean time per output token, milliseconds"""
    request_latency_ms: Milliseconds | None = None
    """limit on the mean latency of requests, milliseconds"""
    ttft_p99_ms: Milliseconds | None = None
    """limit on the 99th percentile of the time to first token, milliseconds; percentiles are
    checked by the event model for the cheapest options"""
    tpot_p99_ms: Milliseconds | None = None
    """limit on the 99th percentile of the time per output token, milliseconds"""
    request_latency_p99_ms: Milliseconds | None = None
    """limit on the 99th percentile of the latency of requests, milliseconds"""
    max_usd_per_hour: Amount | None = None
    """limit on the price of all devices, USD"""
    max_power_w: Amount | None = None
    """limit on the power of all devices, W"""
    objective: ServingObjective = "price"
    """what to minimise; speed is the latency of requests, with the fewest replicas that keep the
    limits"""
    risk: Risk = "upper"
    """what must keep the limits: upper ends of intervals, or best estimates (value)"""
    disaggregated: bool = False
    """whether to try separate prefill workers too"""
    mix: bool = False
    """whether to try mixes of device types too, by request size"""
    change_cost: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 0.0
    """cost of each device that a mix starts or stops, in the unit of the objective"""
    max_changes: int | None = Field(default=None, ge=0, le=100_000)
    """maximum number of devices that a mix starts or stops"""
    grid_g_co2_per_kwh: Annotated[float, Field(ge=0, le=5e3, allow_inf_nan=False)] | None = None
    """carbon intensity of the electricity, g of CO2 equivalent a kWh"""
    region: Annotated[str, Field(max_length=LONGEST_NAME)] | None = None
    """country whose yearly mean carbon intensity is used, such as france"""
    window_s: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """length of the trace's windows, seconds, for replicas of the first option over time; none when
    absent"""
    startup_s: Annotated[float, Field(ge=0, le=1e5)] = 120.0
    """time to start a replica, seconds"""
    stabilization_s: Annotated[float, Field(ge=0, le=1e6)] = 300.0
    """time for which surplus replicas are kept, seconds; `stabilizationWindowSeconds` of
    Kubernetes"""
    cap_kw: Amount | None = None
    """power cap for all devices, kW, under which servers are counted"""
    cap_risk: Annotated[float, Field(gt=0, le=0.5)] = 0.01
    """accepted share of the time above the cap"""
    kept: Annotated[int, Field(ge=1, le=20)] = 4
    """number of options to list"""

    @model_validator(mode="after")
    def _traffic_is_whole(self) -> "LlmPlanIn":
        """Rate and lengths are given once."""
        traced = [n for n in ("requests", "trace") if getattr(self, n) is not None]
        means = [n for n in LENGTHS if getattr(self, n) is not None]
        of_lengths = [*means, *(n for n in VARIATIONS if getattr(self, n))]
        sources = traced + [n for n in ("sizes", "classes") if getattr(self, n) is not None]
        if len(sources) > 1:
            raise about_fields("give one of {} and {}", *sources[:2])
        if sources and of_lengths:
            raise about_fields("{} follows from {}: leave it out", of_lengths[0], *sources)
        if not sources and len(means) < 2:
            missing = next(n for n in LENGTHS if n not in means)
            raise about_fields("{} is missing", missing)
        if self.classes is not None and self.requests_per_s is not None:
            raise about_fields("{} follows from {}: leave it out", "requests_per_s", "classes")
        names = [own.name for own in self.classes or ()]
        if twice := next((own for own in names if names.count(own) > 1), None):
            raise about_fields(f"two of {{}} have the name {twice}", "classes")
        if not traced and not names and self.requests_per_s is None:
            raise about_fields("{} is missing, the rate of all requests", "requests_per_s")
        if self.mix and self.objective not in ("price", "devices"):
            raise about_fields("{} of a mix is price or devices", "objective")
        given = (n for n in ("max_power_w", "classes", *P99) if getattr(self, n) is not None)
        if self.mix and (unkept := next(given, None)):
            raise about_fields("{} is not kept by a mix: leave it out", unkept)
        if self.window_s is not None and not traced:
            raise about_fields("{} is of a trace: give {} too", "window_s", "trace")
        return self

    @model_validator(mode="after")
    def _each_has_an_effect(self) -> "LlmPlanIn":
        """No limit or setting is void by another field, or without it."""
        for name, (what, needed) in NEEDS.items():
            is_usual = getattr(self, name) == type(self).model_fields[name].default
            if not getattr(self, needed) and not is_usual:
                raise about_fields(f"{{}} is of {what}: give {{}} too", name, needed)
        for name in ("spot_usd_per_device_hour", "spot_count", "current"):
            if not self.mix and any(getattr(own, name) for own in self.devices or ()):
                raise about_fields(
                    f"{{}} has {name}, which is of a mix: give {{}} too", "devices", "mix"
                )
        if self.drafts and self.engine.draft_tokens:
            raise about_fields("give one of {} and {}", "drafts", DRAFTED)
        drafts = [(own.tokens, own.acceptance) for own in self.drafts]
        if len(set(drafts)) < len(drafts):
            raise about_fields("two of {} have the same tokens and acceptance", "drafts")
        if self.formats and self.model.quantization is not None:
            raise about_fields("give one of {} and {}", "formats", "model.quantization")
        limits = {n: own for n in (*TIMES, *P99) if (own := getattr(self, n)) is not None}
        for most, least, fault in _contradictions(limits):
            raise about_fields(fault, most, least, least)
        return self

    def engines(self) -> list[Engine]:
        """The engine, without drafts and with each."""
        own = self.engine.engine()
        return [own] + [
            replace(own, draft_tokens=one.tokens, draft_acceptance=one.acceptance)
            for one in self.drafts
        ]

    def tails(self) -> dict[str, float]:
        """Limit of a 99th percentile, or of a class (`chat.ttft_ms`) -> its most, milliseconds."""
        given = self.ttft_p99_ms, self.tpot_p99_ms, self.request_latency_p99_ms
        found = {n: most for n, most in zip(P99, given, strict=True) if most is not None}
        return found | {
            f"{own.name}.{n}": most for own in self.classes or () for n, most in own.limits.items()
        }

    def class_loads(self) -> dict[str, RequestLoad]:
        """Class -> its lengths and rate."""
        return {
            own.name: replace(own.load(), cached_share=self.cached_share)
            for own in self.classes or ()
        }

    def load(self) -> RequestLoad:
        """Rate and lengths of the requests; a rate that is given replaces that of a trace.

        Raises:
            BadTrace: the requests cannot be read.
        """
        if (found := self.traced()) is not None:
            mean = found.load()
            rate = self.requests_per_s or mean.requests_per_s
            return replace(mean, requests_per_s=rate, cached_share=self.cached_share)
        if self.sizes is not None:
            parts = [[own.share, own.input_tokens, own.output_tokens, 0, 0] for own in self.sizes]
        else:
            names = ("requests_per_s", *LENGTHS, *VARIATIONS)
            given: list[Any] = self.classes or [self]
            parts = [[getattr(own, n) or 0.0 for n in names] for own in given]
        shares, *lengths = np.array(parts, dtype=float).T
        rate = self.requests_per_s or float(shares.sum())
        (given_in, given_out), (varied_in, varied_out) = zip(
            *(_moments(shares, *lengths[place::2]) for place in (0, 1)), strict=True
        )
        rest = (None, rate, self.cached_share, varied_in, varied_out)
        return RequestLoad(given_in, given_out, *rest)

    def loads(self) -> list[RequestLoad]:
        """Rate and lengths of the requests of each size; of all where lengths have means alone."""
        if (found := self.traced()) is not None:
            given = [found.input_tokens, found.output_tokens, np.ones(len(found.input_tokens))]
        elif self.sizes is not None:
            names = (*LENGTHS, "share")
            given = [np.array([getattr(one, n) for one in self.sizes]) for n in names]
        else:
            return [self.load()]
        return grouped(self.load(), *(own.astype(float) for own in given))

    def traced(self) -> Requests | None:
        """The requests of a trace; None where none is given.

        Raises:
            BadTrace: they cannot be read.
        """
        with in_field("trace" if self.requests is None else "requests"):
            if self.requests is not None:
                return read_trace(self.requests)
            return None if self.trace is None else named_trace(self.trace)

    def traced_at_rate(self) -> Requests | None:
        """The requests of the trace, scaled to `requests_per_s`; None without a trace."""
        found = self.traced()
        if found is None or self.requests_per_s is None:
            return found
        scale = (found.load().requests_per_s or self.requests_per_s) / self.requests_per_s
        return replace(found, arrival_s=found.arrival_s * scale)


def _moments(shares: Column, means: Column, variations: Column) -> tuple[float, float]:
    """Mean of a length over parts, and its standard deviation over the mean."""
    mean = float(np.average(means, weights=shares))
    square = np.average((means - mean) ** 2 + (variations * means) ** 2, weights=shares)
    return mean, float(square) ** 0.5 / mean


PLAN_FIELDS: Final = FlatFields(
    {"": LlmPlanIn, "engine": EngineIn},
    frozenset({"model", "engine.draft_tokens", "engine.draft_acceptance"}),
)
"""What options and forms ask of a plan, but for the model."""
