"""Answers about what to serve a language model on."""

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final

from forerun.data.described import Described
from forerun.data.errors import InputError
from forerun.models.llm_serving.plans import (
    MOST_DEVICES,
    Risk,
    ServingObjective,
    mean_of,
    tail_of,
)
from forerun.service.figures import digits
from forerun.service.schemas.answers import GradedOut, LimitedAnswerOut, PredictorOut
from forerun.service.schemas.language_model import ModelSizesOut
from forerun.service.schemas.llm.answers import EngineOut, PoolOut
from forerun.service.schemas.llm.training_answers import GridOut

TIMES: Final = {
    "ttft_ms": "time to first token",
    "tpot_ms": "time per output token",
    "request_latency_ms": "request latency",
}
"""Metric that is limited -> in words."""
NAMES: Final[Mapping[str, str]] = {
    **TIMES,
    "usd_per_hour": "price",
    "power_w": "power",
    **{
        tail_of(name, percent): f"{percent}th percentile of the {words}"
        for percent in (95, 99)
        for name, words in TIMES.items()
    },
}
UNITS: Final = {"usd_per_hour": "USD an hour", "power_w": "W"}
"""Limit that is of no time -> its unit."""
FAILED: Final[Mapping[str, str]] = {
    "memory": "do not fit in memory",
    "devices": f"need more devices than there are ({MOST_DEVICES:,} of a type without a number)",
    "scheduler": "differ only in settings of the scheduler and are no better",
    "unknown": "have no interval, price or answer",
    "unchecked": "cost more than those whose percentiles were checked",
}
"""What options fail by, other than limits -> in words."""


def in_words(limit: str) -> str:
    """A limit, of a class of requests such as `chat.ttft_ms` too."""
    own, _, name = limit.rpartition(".")
    return f"{own and f'{own}: '}{NAMES.get(name, name)}"


def limit_of(name: str, most: Mapping[str, float]) -> tuple[str, float]:
    """The limit that a figure misses, and its most: of a mean, the least of its own and those of
    its percentiles, which bound it.
    """
    limits = {own.removeprefix("max_"): value for own, value in most.items()}
    found = [own for own in limits.items() if name in (own[0], mean_of(own[0]))]
    return min(found, key=itemgetter(1), default=(name, 0.0))


class TrafficOut(Described):
    """The requests that a plan is for."""

    requests_per_s: float
    """rate of all requests"""
    input_tokens: float
    """mean length of the prompts"""
    output_tokens: float
    """mean length of the answers"""
    input_variation: float
    """coefficient of variation of prompt lengths"""
    output_variation: float
    """coefficient of variation of output lengths"""


class ReplicasOut(Described):
    """Replicas of one kind."""

    device: str
    """name of the device"""
    devices: int
    """number of all devices"""
    replicas: int
    """copies of the model, or of a set of prefill and decode pools"""
    pool: PoolOut
    """workers of one replica; those that decode, with separate `prefill` workers"""
    prefill: PoolOut | None
    """separate prefill workers; null for none"""
    engine: EngineOut
    """the engine with the limits of its scheduler"""
    format: str
    """number format of the weights; empty for the model's own"""
    usd_per_hour: float | None
    """price of all devices; null where not known"""

    def price(self) -> str:
        """Price of all devices for an hour."""
        return "not known" if self.usd_per_hour is None else f"{self.usd_per_hour:,.4g} USD"

    def words(self) -> str:
        """Replicas, degrees, scheduler and format."""
        own = self.pool.parallelism
        degrees = {"tensor": own.tensor, "pipeline": own.pipeline, "data": own.attention_data}
        words = [f"{name} {degree}" for name, degree in degrees.items() if degree > 1]
        if own.expert > 1:
            words.append(f"expert {own.expert}")
        if self.prefill is not None:
            tensor = self.prefill.parallelism.tensor
            words = [f"{self.prefill.workers} for prompts (tensor {tensor})",
                     f"{self.pool.workers} for answers", *words]  # fmt: skip
        if self.engine.max_sequences is not None:
            words.append(f"{self.engine.max_sequences} sequences")
        if self.engine.max_batched_tokens is not None:
            words.append(f"{self.engine.max_batched_tokens:,} batched tokens")
        if self.engine.draft_tokens:
            accepted = self.engine.draft_acceptance
            words.append(f"{self.engine.draft_tokens} drafted (acceptance {accepted:g})")
        words += [self.format] * bool(self.format)
        count = self.devices // self.replicas
        devices = f"{self.replicas} x {count} {self.device}" if self.replicas > 1 else ""
        return ", ".join((devices or f"{count} {self.device}", *words))


class PlannedServingOut(ReplicasOut):
    """One way to serve the requests."""

    metrics: dict[str, GradedOut]
    """metric -> estimate, as POST /v1/llm/estimate answers `request`"""
    power_w: float | None
    """power of all devices, W; null where not known"""
    g_co2_per_million_tokens: float | None
    """g of CO2 equivalent; null without a grid, or where power is not known"""
    limited_by: str | None
    """what bounds the rate; null where not known"""
    wins: float | None
    """share of draws from the intervals in which no other option is better, 0 to 1; null for
    options that were not drawn"""
    worse: str | None
    """why it is not the first; null for the first"""
    p99_ms: dict[str, float]
    """metric -> 99th percentile by the event model, milliseconds; empty where none is limited"""
    classes: dict[str, dict[str, float]]
    """class of requests -> its means and percentiles by the event model, milliseconds"""
    over: dict[str, float]
    """limit that it misses -> figure over limit; empty where all hold"""
    request: dict[str, Any]
    """request to POST /v1/llm/estimate for this option; with `prefill`, for one replica"""

    def missed(self, most: Mapping[str, float], risk: Risk) -> list[str]:
        """Each limit that it misses, with the figure that counts."""
        lines = []
        for name, by in self.over.items():
            source, limit = limit_of(name, most)
            end = "up to " * (risk == "upper" and name != "usd_per_hour")
            figure = f"{end}{digits(by * limit)} {UNITS.get(name, 'ms')}"
            mean = "" if source == name else ": already the mean is"
            own = f"{in_words(source)}{mean} {figure} (limit {digits(limit)})"
            if name == "memory":
                own = f"weights and one request take {by:.2f} times the memory for them"
            elif name == "devices":
                own = f"{self.devices:,} devices, and there are {self.devices / by:,.0f}"
            lines.append(own)
        return lines


class MixedSizeOut(Described):
    """Requests of one size that some replicas of a mix serve."""

    input_tokens: float
    """mean length of the prompts"""
    output_tokens: float
    """mean length of the answers"""
    requests_per_s: float
    """rate of those that these replicas serve"""


class MixPartOut(ReplicasOut):
    """Replicas of a mix, and the requests that they serve."""

    sizes: list[MixedSizeOut]
    """the requests that they serve"""
    spot: bool
    """whether they run on spot devices, which may be withdrawn"""

    def line(self) -> str:
        """The replicas, and the rate and lengths of their requests."""
        rate = sum(own.requests_per_s for own in self.sizes)
        tokens = [own.input_tokens + own.output_tokens for own in self.sizes]
        return (
            f"{self.words()}{', spot' * self.spot}: {rate:,.3g} requests/s of "
            f"{min(tokens, default=0):,.0f} to {max(tokens, default=0):,.0f} tokens"
        )


class MixOut(Described):
    """Device types that together serve the requests, by size, at least cost."""

    parts: list[MixPartOut]
    """replicas of each kind; empty where no mix keeps all limits"""
    usd_per_hour: float | None
    """price of all devices; null where not known, or without a mix"""
    devices: int
    """number of all devices"""
    single_types: dict[str, float | None]
    """type of device -> cost of serving all sizes with it alone, in USD an hour or devices as the
    objective is, without the cost of changes; null where it cannot. As in the mix, schedulers have
    their defaults and each size keeps the limits, so `best` may cost less"""
    saving: float | None
    """share of the cost of the cheapest single type that is saved, 0 to 1; null where no type
    serves all sizes"""
    changes: dict[str, int] | None
    """device type -> how many more run than now, for types that change; null without a mix, or
    where no device has `current`"""

    def is_cheaper(self, first_usd: float | None) -> bool:
        """Whether there is a mix, and it costs less than the first option without one, or starts
        from what runs now.

        Args:
            first_usd: price of that option, USD an hour; None where not known.
        """
        dear = first_usd is not None and first_usd <= (self.usd_per_hour or 0.0)
        return bool(self.parts) and (self.changes is not None or not dear)

    def lines(self, first_usd: float | None = None) -> list[str]:
        """The replicas with their sizes, and what is saved; `first_usd` as of `is_cheaper`."""
        if not self.parts:
            return ["no mix keeps all limits for every size"]
        if not self.is_cheaper(first_usd):
            return [
                f"no mix is cheaper than the first option: {self.usd_per_hour:,.4g} USD an hour, "
                "with default schedulers"
            ]
        price = "" if self.usd_per_hour is None else f"{self.usd_per_hour:,.4g} USD an hour"
        saved = f"{100 * (self.saving or 0.0):.0f} % less than one type"
        alone = [f"{n} {cost:,.4g}" for n, cost in self.single_types.items() if cost is not None]
        shown = (price, saved * (not saved.startswith("0 ")))
        lines = ["mix of types: " + ", ".join(filter(None, shown))]
        how = "with default schedulers, limits kept for each size"
        lines += [f"  one type alone ({how}): {', '.join(alone)}"] if alone else []
        lines += [f"  {one.line()}" for one in self.parts]
        if self.changes is not None:
            moved = ", ".join(f"{more:+,} {name}" for name, more in self.changes.items())
            lines.append(f"  against what runs now: {moved or 'no change'}")
        return lines


class FleetCostOut(Described):
    """What a fleet uses over the whole trace."""

    device_hours: float
    """hours of devices that serve or start"""
    kwh: float | None
    """energy of the devices, without hosts; null where not known"""
    usd: float | None
    """price of the device hours; null where not known"""
    kg_co2: float | None
    """kg of CO2 equivalent of the energy; null without a grid, or where energy is not known"""


class FleetReplayOut(Described):
    """Result of replaying one replica's share in the event model."""

    requests: int
    """number of requests that were replayed, in windows whose limits hold"""
    kept: float
    """share of requests that keep every latency limit"""
    low: float
    """lower end of its 95 % binomial interval, assuming independent requests"""
    high: float
    """high end"""
    windows_kept: float
    """share of windows whose mean values keep every limit"""


class PowerCapOut(Described):
    """Servers whose devices together stay under a cap."""

    cap_kw: float
    """the cap, kW"""
    risk: float
    """accepted share of the time in which it is exceeded"""
    server_devices: int
    """devices of a server"""
    by_design_power: int | None
    """servers that never exceed it, by the design power of the devices"""
    servers: int | None
    """servers that exceed it no more often than the accepted risk, given the common error of the
    predicted power; null where that is not known"""
    servers_if_exact: int | None
    """the same if the predicted power is exact; null where power is not known"""
    design_kw: float | None
    """design power of the devices of the busiest window, kW; null where not known"""

    def lines(self, most_kw: float | None) -> list[str]:
        """The servers, and how many more they are than by design power; and whether the fleet
        exceeds the cap.

        Args:
            most_kw: its mean power in the busiest window, kW; None where not known.
        """
        cap, base = f"{self.cap_kw:,.4g} kW", self.by_design_power
        risky, exact = (
            f"{own:,}" + f" (+{100.0 * (own / base - 1.0):.0f} %)" if own and base else str(own)
            for own in (self.servers, self.servers_if_exact)
        )
        is_over, may_be = ((own or 0.0) > self.cap_kw for own in (most_kw, self.design_kw))
        how = "exceeds" if is_over else "may exceed" if may_be else "keeps"
        named = {"predicted": most_kw, "by design power": self.design_kw}
        drawn = [f"{kw:,.4g} {source}" for source, kw in named.items() if kw is not None]
        text = (
            f"  under {cap}: {base} servers of {self.server_devices} devices by design power; "
            f"{risky} at a risk of {self.risk:g}, {exact} if the predicted power is exact"
        )
        fleet = f"  the fleet {how} {cap} in its busiest window: {' kW, '.join(drawn)} kW"
        return [text.replace("None", "not known"), *([fleet] if drawn else [])]


class FleetOut(Described):
    """Replicas of the first option over time, against a fixed fleet for the busiest window."""

    window_s: float
    """length of a window, s"""
    fixed_replicas: int
    """replicas that the busiest window needs"""
    requests_per_s: list[float]
    """mean rate of all requests in each window"""
    replicas: list[int]
    """replicas that serve in each window"""
    power_kw: list[float | None]
    """mean power of the devices that serve or start in each window, kW; null where not known"""
    keeps: list[bool]
    """whether the limits hold in each window"""
    scaled: FleetCostOut
    """with replicas that follow the traffic, which is known in advance"""
    fixed: FleetCostOut
    """with the fixed fleet"""
    missed_share: float
    """share of requests in windows where no number of replicas keeps the limits, 0 to 1"""
    replay: FleetReplayOut | None
    """check by the event model; null where it does not support the engine or the pipeline stages,
    or where no limits hold"""
    cap: PowerCapOut | None
    """servers under a power cap; null where none is given"""

    def lines(self) -> list[str]:
        """Replicas over time, what they take, and the check."""
        count, own, fixed = len(self.replicas), self.scaled, self.fixed
        parts = min(count, 24)
        ends = [part * count // parts for part in range(parts + 1)]
        most = [str(max(self.replicas[start:end])) for start, end in pairwise(ends)]
        figures = {
            "kW at most": self.most_kw(),
            "kWh": own.kwh,
            "USD": own.usd,
            "kg of CO2": own.kg_co2,
        }
        known = [f", {value:,.4g} {unit}" for unit, value in figures.items() if value is not None]
        less = f"{100.0 * (1.0 - own.device_hours / fixed.device_hours):.0f} % fewer hours"
        if own.kwh is not None and fixed.kwh:
            less += f" and {100.0 * (1.0 - own.kwh / fixed.kwh):.0f} % less energy"
        lines = [
            f"over time: {count:,} equal windows of {self.window_s:,.4g} s, most replicas in each "
            f"of {parts} parts: {', '.join(most)}",
            f"  {own.device_hours:,.5g} device hours{''.join(known)}; {less} than "
            f"{self.fixed_replicas:,} replicas all the time",
        ]
        return lines + self.checks()

    def most_kw(self) -> float | None:
        """Most power of a window, kW; None where it is not known."""
        return max(kilowatts or 0.0 for kilowatts in self.power_kw) or None

    def checks(self) -> list[str]:
        """Where limits do not hold, the check by the event model, and servers under a cap."""
        lines = []
        if self.missed_share:
            lines.append(f"  limits do not hold for {100 * self.missed_share:.2g} % of requests")
        if (check := self.replay) is not None:
            kept, low, high = (f"{100.0 * own:.2f}" for own in (check.kept, check.low, check.high))
            lines.append(
                f"  event model: {kept} % ({low} to {high}) of {check.requests:,} requests of one "
                f"replica keep the limits, and the means of {100.0 * check.windows_kept:.0f} % of "
                "the windows"
            )
        return lines if self.cap is None else [*lines, *self.cap.lines(self.most_kw())]


class LlmPlanOut(LimitedAnswerOut):
    """What to serve a language model on."""

    model: ModelSizesOut
    """what was read from the request's config or name"""
    traffic: TrafficOut
    """the requests"""
    most: dict[str, float]
    """limit -> its maximum"""
    objective: ServingObjective
    """what is minimised"""
    risk: Risk
    """where limits hold: upper ends of intervals, or best estimates"""
    searched: int
    """number of options that were searched"""
    not_searched: list[str]
    """formats that the engine does not run on a device type, and types that cannot be compared or
    have no links, with the reason"""
    fitting: int
    """layouts that keep all limits, each with its best scheduler"""
    failed: dict[str, int]
    """reason -> number of options left out for it: memory, devices (too few available),
    usd_per_hour, power_w, a mean or percentile of a time, also of a class (chat.ttft_ms);
    scheduler: another one is as good; unknown: no interval, price or answer; unchecked: dearer than
    those whose percentiles were checked"""
    kept_at_value: bool | None = None
    """whether an option keeps all limits at the best estimates; null where one keeps them at the
    upper ends too, or `risk` is `value`"""
    withheld: int
    """number of options that are not ranked by speed, because their latency is not known within a
    factor of 10"""
    best: list[PlannedServingOut]
    """options that keep all limits, best first, and the one that `measure` names"""
    misses: list[PlannedServingOut]
    """options that miss latency, price or power limits by the least, each cheaper than the best and
    than the one before it; if nothing keeps all limits and there are none, the option that misses
    its worst limit by the least"""
    front: list[PlannedServingOut]
    """options that keep all limits and that no other beats in the time of a request, in price and
    in power, fastest first"""
    mix: MixOut | None
    """mix of types of devices; null where none is asked for"""
    fleet: FleetOut | None
    """replicas of the first option over time; null where none is asked for, or nothing keeps all
    limits"""
    measure: str | None
    """what a measurement should compare; null where the first is best in any case"""
    commands: dict[str, str]
    """form -> text: commands for vllm and sglang (one line for each server of a replica) of the
    first option, or of the mix where it is cheaper; of the first option also manifests for
    kubernetes, kserve and llmisvc (KServe with llm-d), values for helm (llm-d's chart), rules for
    prometheus and a ScaledObject for keda; without forms that cannot express it"""
    not_written: dict[str, str]
    """form that cannot express it -> the reason"""
    grid: GridOut | None
    """carbon intensity; null where none is given"""
    chosen: list[str]
    """what was chosen where the request leaves it open"""
    predictor: PredictorOut
    """the predictor that answered"""

    def title(self) -> str:
        """Traffic and limits."""
        own = self.traffic
        limits = [f"{name} {digits(most)}" for name, most in self.most.items()]
        return (
            f"{digits(own.requests_per_s)} requests/s, {own.input_tokens:,.0f} tokens in, "
            f"{own.output_tokens:,.0f} out; "
            + (f"at most {', '.join(limits)}" if limits else "no limits on latency")
        )

    def remedy(self) -> str:
        """What to change where nothing keeps all limits."""
        ways = {
            "loosen a limit": self.failed.keys() - FAILED.keys(),
            "add devices": "devices" in self.failed,
            "add formats or devices with more memory": "memory" in self.failed,
            "take best estimates (risk value)": self.kept_at_value or False,
        }
        return f"nothing keeps all limits: {'; '.join(way for way, own in ways.items() if own)}"

    def remarks(self) -> list[str]:
        """What was searched, and what the options do not say of themselves; one line each."""
        lines, first = self.counts(), self.best[0] if self.best else None
        if first is not None and (grams := first.g_co2_per_million_tokens) is not None:
            lines.append(f"{grams:,.4g} g of CO2 for a million tokens of the first")
        if first is not None and (tails := first.p99_ms):
            said = ", ".join(f"{NAMES[name]} {own:,.0f} ms" for name, own in tails.items())
            lines.append(f"99th percentiles of the first by the event model: {said}")
            own = {f"{of}.{n}": ms for of, got in first.classes.items() for n, ms in got.items()}
            lines += [f"{in_words(n)} {digits(own[n])} ms (limit {digits(self.most[n])})"
                      for n in self.most if n in own]  # fmt: skip
        return lines + (self.mix.lines(first.usd_per_hour if first else None) if self.mix else [])

    def written_as(self, kind: str) -> str:
        """The first option as a command or a manifest.

        Raises:
            InputError: it cannot be written so.
        """
        if not self.best:
            raise InputError(f"No option keeps all limits, so nothing is written for {kind}.")
        if kind not in self.commands:
            why = self.not_written.get(kind, "there is no such form")
            others = f" It can for {', '.join(self.commands)}." if self.commands else ""
            raise InputError(f"The plan cannot be written for {kind}: {why}.{others}")
        first = f"{self.best[0].words()}, {self.best[0].price()} an hour"
        mix = self.mix is not None and self.mix.is_cheaper(self.best[0].usd_per_hour)
        lines = ["one replica of each type of the mix" if mix else first, *self.chosen]
        return "".join(f"# {line}\n" for line in lines) + self.commands[kind]

    def counts(self) -> list[str]:
        """What was searched, and what failed by which limit, one line each."""
        counts: Counter[str] = Counter()
        for name, count in self.failed.items():
            limit, _ = limit_of(name, self.most)
            counts[FAILED.get(name) or f"exceed the limit on {in_words(limit)}"] += count
        failed = ", ".join(f"{count:,} {why}" for why, count in counts.items())
        lines = [f"{self.fitting:,} of {self.searched:,} options keep all limits"]
        lines += [f"not searched: {why}" for why in self.not_searched]
        lines += [f"left out: {failed}"] if failed else []
        if self.withheld:
            lines.append(
                f"{self.withheld:,} not ranked: their latency is too uncertain (the upper end is "
                "more than 10 times the lower end)"
            )
        return lines
