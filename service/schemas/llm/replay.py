"""Request and answer of POST /v1/llm/replay."""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from forerun.data.described import Described
from forerun.models.limit import Basis
from forerun.service.schemas.answers import DeviceOut, PredictorOut
from forerun.service.schemas.fields import example

MOST_REPLAYED = 20_000
EXAMPLE_REPLAY: dict[str, Any] = example("replay")


class LlmReplayIn(Described):
    """A deployment and the requests sent to it.

    The other fields are those of `POST /v1/llm/estimate`, without lengths, concurrency and rate.
    """

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [EXAMPLE_REPLAY]})

    requests: list[Any] | None = Field(default=None, min_length=1, max_length=MOST_REPLAYED)
    """requests with `arrival_s` (seconds from any origin), `input_tokens` and `output_tokens`"""
    trace: str | None = Field(default=None, max_length=80)
    """name of a public trace, instead of `requests`"""
    speed: float = Field(default=1.0, ge=1e-3, le=1e3)
    """factor by which requests arrive faster"""
    dispatch: Literal["round_robin", "least_loaded"] = "round_robin"
    """how requests are assigned to workers and ranks"""

    def deployment(self) -> dict[str, Any]:
        """The fields of the deployment."""
        return dict(self.model_extra or {})


class StatisticsOut(Described):
    """Mean and percentiles over requests; null where no request has this time."""

    mean: float | None
    """mean"""
    p50: float | None
    """median"""
    p90: float | None
    """90th percentile"""
    p99: float | None
    """99th percentile"""


class ScalesOut(Described):
    """Factors of the fitted predictor on the closed form's iteration times, at the mean load."""

    prefill: float
    """factor on the time of prompts: always 1, because it was measured only where prompts start
    together"""
    decode: float
    """factor on the decoding time"""
    basis: Basis
    """evidence for the factors; `analytic`: the closed form alone, so both are 1"""


class ReplayOut(Described):
    """Latencies and rates of a replayed trace, without intervals."""

    requests: int
    """number of requests"""
    refused: int
    """requests longer than the cache of a rank"""
    preempted: int
    """requests that were preempted at least once"""
    span_s: float
    """from the first arrival to the last token, s"""
    ttft_ms: StatisticsOut
    """from an arrival to the first token, milliseconds"""
    tpot_ms: StatisticsOut
    """time for each further token, milliseconds"""
    request_latency_ms: StatisticsOut
    """from an arrival to the last token, milliseconds"""
    requests_per_s: float
    """requests answered a second"""
    tokens_per_s: float
    """tokens written a second, all devices together"""
    tokens_per_s_per_device: float
    """tokens written a second by one device"""
    busy_share: float
    """share of the span in which ranks are busy, mean, 0 to 1"""
    mean_sequences: float
    """sequences that decode on a busy rank, mean"""
    most_cache_share: float
    """largest share of a rank's cache in use, 0 to 1"""
    scales: ScalesOut
    """how the times of iterations were fitted"""
    chosen: list[str]
    """what was chosen where the request leaves it open"""
    limits: list[str]
    """limits of the fitted times at the mean load"""
    device: DeviceOut
    """the device"""
    device_count: int
    """number of devices"""
    predictor: PredictorOut
    """the predictor of the fitted times"""
