"""Requests and answers of llm-d's latency predictor, and the deployments that it asks about.

The shapes are those of `prediction_server.py` and `training_server.py` of
github.com/llm-d/llm-d-latency-predictor (commit 147d369a) and of their client,
`types.go` under sidecars/latencypredictorasync of kubernetes-sigs/gateway-api-inference-extension
(commit 2edd944c), both under Apache-2.0.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic.functional_validators import ModelWrapValidatorHandler

from forerun.data.described import Described
from forerun.models.llm_serving.single_requests import QUANTILE
from forerun.service.requests.faults import fault_in
from forerun.service.requests.field_names import PATHS
from forerun.service.schemas.fields import example
from forerun.service.schemas.llm.deployment import Tokens
from forerun.service.schemas.serving import LOADS, LlmEstimateIn

MOST_ROWS: Final = 10_000
MODEL_TYPE: Final = "lightgbm"
"""The client asks servers of the types that it knows alone, and fetches trees from others."""
EXAMPLE_ROUTED: Final[dict[str, Any]] = example("routed")
EXAMPLE_STATE: Final[dict[str, Any]] = example("router_state")
EXAMPLE_ENTRY: Final[dict[str, Any]] = EXAMPLE_STATE | {
    "actual_ttft_ms": 180.0,
    "actual_tpot_ms": 0.0,
}
Count = Annotated[int, Field(ge=0, le=1_000_000_000)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Milliseconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


class RoutedIn(LlmEstimateIn):
    """A deployed model; each server known to a router is one of its workers."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [EXAMPLE_ROUTED]})
    input_tokens: Tokens | None = 1024.0
    """mean length of the prompts"""
    output_tokens: Tokens | None = 256.0
    """mean length of the answers"""
    concurrency: Annotated[float, Field(ge=1, le=1e6)] | None = 1.0
    """not accepted, like `requests_per_s` and `num_prompts`: the load follows from the state of a
    server"""

    @model_validator(mode="wrap")
    @classmethod
    def _without_load(cls, given: Any, validated: ModelWrapValidatorHandler[Self]) -> Self:
        """A load is refused, and that of a command is left out."""
        if not isinstance(given, Mapping):
            return validated(given)
        for name, value in given.items():
            if PATHS.get(name, name) in LOADS:
                why = "the state of a server tells its load; leave this out"
                raise fault_in(name, value, why)
        return validated({**given, "concurrency": 1.0})


class RoutedOut(Described):
    """A deployment that a router asks about."""

    name: str
    """its name, as in the path"""
    device: str
    """the device"""
    ttft_rows: int
    """number of recent times to first token that it learns from"""
    tpot_rows: int
    """number of recent times per token that it learns from"""
    chosen: list[str]
    """what was chosen where the request leaves it open"""


class RouterStateIn(Described):
    """A request, and the state of a server when it is sent there; other fields are ignored."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE_STATE]})

    kv_cache_percentage: Share
    """share of the cache in use, 0 to 1"""
    input_token_length: Count
    """tokens of the prompt"""
    num_request_waiting: Count
    """requests that wait"""
    num_request_running: Count
    """requests that run"""
    num_tokens_generated: Count = 0
    """not used"""
    prefix_cache_score: Share = 0.0
    """share of the prompt in the prefix cache, 0 to 1"""
    prefill_tokens_in_flight: Count = 0
    """prompt tokens sent to the server and not yet processed; 0 if not known"""


class RouterEntryIn(RouterStateIn):
    """A request and what was measured of it; a time of 0 was not measured."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE_ENTRY]})

    actual_ttft_ms: Milliseconds
    """time to the first token, milliseconds"""
    actual_tpot_ms: Milliseconds
    """time per further token, milliseconds"""


class RouterEntriesIn(Described):
    """Measured requests, in the order in which they were measured."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"entries": [EXAMPLE_ENTRY]}]})

    entries: list[RouterEntryIn] = Field(max_length=MOST_ROWS)
    """measured requests"""


class RouterStatesIn(Described):
    """Requests whose times are asked for."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"requests": [EXAMPLE_STATE]}]})

    requests: list[RouterStateIn] = Field(min_length=1, max_length=MOST_ROWS)
    """requests"""


class RouterModelOut(Described):
    """What answers, as llm-d's client wants to know it."""

    model_type: Literal["lightgbm"] = MODEL_TYPE
    """value that llm-d's client expects, which knows only its own types"""
    objective_type: Literal["quantile"] = "quantile"
    """times are quantiles"""
    quantile: float = QUANTILE
    """the quantile, 0 to 1"""


class RouterTimesOut(RouterModelOut):
    """Predicted times of a request."""

    ttft_ms: float
    """quantile of the time to the first token, milliseconds"""
    tpot_ms: float
    """quantile of the time per further token, milliseconds"""
    predicted_at: datetime
    """when it was predicted, UTC"""
    last_model_load: datetime | None = None
    """always null"""


class RouterAllTimesOut(Described):
    """Predicted times of requests, in their order."""

    predictions: list[RouterTimesOut]
    """times of each request"""
    errors: list[str] = Field(default_factory=list)
    """always empty"""
    total_requests: int
    """number of requests"""
    successful_predictions: int
    """the same number"""
    failed_predictions: int = 0
    """always 0"""
    processing_time_ms: float
    """time of the answer, milliseconds"""


class RouterStatusOut(RouterModelOut):
    """Whether a deployment is answered."""

    is_ready: bool = True
    """always true: it needs no rows"""
    last_model_load: datetime | None = None
    """always null"""
    training_server_url: str = ""
    """always empty"""
    models_exist: dict[str, bool]
    """times that are answered"""
    model_status: dict[str, bool]
    """the same, as the training server reports it"""


class AcceptedOut(Described):
    """Confirmation that measured requests were stored."""

    message: str
    """one sentence with their number"""
