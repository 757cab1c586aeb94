"""Plans of serving by a formula that a test can follow: the search and its laws."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf

import pytest

from forerun.data.device import Device, DeviceCatalog
from forerun.data.errors import InputError, UnanswerableQuery
from forerun.data.language_models.deployment import Engine, RequestLoad
from forerun.data.query import Query
from forerun.features.readers.language_model.reader import named_language_model
from forerun.models.answers.deployments.plans import ByClass
from forerun.models.llm_serving import plans
from forerun.models.llm_serving.plans import (
    NO_POWER,
    NO_PRICE,
    Figures,
    Risk,
    ServingLimits,
    ServingObjective,
    ServingPlan,
    Stock,
    fewest_replicas,
    layout_of,
    plan,
    tail_of,
    units_of,
)
from forerun.models.prediction import Estimate

CATALOG = DeviceCatalog.load()
LLAMA = named_language_model("meta-llama/Llama-3.1-8B")
MIXTRAL = named_language_model("mistralai/Mixtral-8x7B-Instruct-v0.1")
LOAD = RequestLoad(1000.0, 200.0, None, 20.0)
PRICES = {"l4": 0.8, "h100-sxm-80gb": 6.9, "h200-sxm-141gb": 7.9, "a100-sxm-80gb": 3.4}
STOCKS = [Stock(CATALOG.get(name), None, usd) for name, usd in PRICES.items()]
LIMITS = ServingLimits({"ttft_ms": 600.0, "tpot_ms": 60.0})


@dataclass(frozen=True)
class Made:
    """Figures of one deployment."""

    estimates: Mapping[str, Estimate]
    capacity: Estimate | None


@dataclass
class Formula:
    """A server whose times grow with its load as those of a queue; ends are a third off.

    Attributes:
        wide: ratio of the upper end to the value.
        calls: number of queries of each call.
    """

    wide: float = 4 / 3
    calls: list[int] = field(default_factory=list)

    def figures(
        self, queries: Sequence[Query], *, with_power: bool = False
    ) -> list[Figures | InputError]:
        """Those of n deployments."""
        self.calls.append(len(queries))
        return [self._one(query, with_power) for query in queries]

    def _one(self, query: Query, with_power: bool) -> Made:
        own, device = query.deployment, query.device
        speed = device.bandwidth_gbs / 1000.0 * own.pool.parallelism.devices**0.8
        places = min(own.engine.max_sequences or 256, 256)
        capacity = speed * places / (places + 64.0)
        busy = min((own.load.requests_per_s or 0.0) / capacity, 0.999)
        values = {"ttft_ms": 200.0 / speed / (1.0 - busy), "tpot_ms": 40.0 / speed * (1 + 2 * busy)}
        values["request_latency_ms"] = values["ttft_ms"] + 199.0 * values["tpot_ms"]
        if with_power:
            values["power_w"] = 100.0 + 400.0 * busy
        estimates = {n: Estimate(v, v / self.wide, self.wide * v, 0.9) for n, v in values.items()}
        return Made(estimates, Estimate(capacity, capacity / self.wide, self.wide * capacity, 0.9))


def planned(
    limits: ServingLimits = LIMITS, load: RequestLoad = LOAD, stocks: Sequence[Stock] = STOCKS
) -> ServingPlan:
    """A plan by the formula."""
    return plan([LLAMA], load, [Engine()], stocks, Formula(), limits=limits)


def cost(found: ServingPlan) -> float:
    """Price of the best; infinite where there is none."""
    return found.best[0].usd_per_hour if found.best else inf


def test_the_number_of_replicas_is_the_smallest_that_holds() -> None:
    """Against all numbers up to 200."""
    units = [unit for stock in STOCKS for unit in units_of(LLAMA, LOAD, Engine(), stock)]
    pricing = Formula()
    for unit, found in zip(units, fewest_replicas(units, pricing, LIMITS), strict=True):
        holds = []
        for number in range(1, min(unit.most, 200) + 1):
            (own,) = pricing.figures([unit.share(number)])
            assert not isinstance(own, InputError) and own.capacity is not None
            in_time = all((own.estimates[n].high or 0.0) <= m for n, m in LIMITS.times.items())
            holds.append(in_time and 20.0 / number <= (own.capacity.low or 0.0))
        assert (not found.over) == any(holds)
        if any(holds):
            assert found.replicas == 1 + holds.index(True)


def test_the_best_is_the_cheapest_and_keeps_all_limits() -> None:
    """At the upper ends, as every option that is listed, the front too."""
    found = planned()
    assert found.fitting >= len(found.best) > 1
    for one in (*found.best, *found.front):
        assert all((one.estimates[n].high or inf) <= most for n, most in LIMITS.times.items())
    assert all(one.usd_per_hour <= two.usd_per_hour for one, two in pairwise(found.best))
    for one, two in pairwise(found.front):
        assert one.estimates["request_latency_ms"].value < two.estimates["request_latency_ms"].value
        assert one.usd_per_hour > two.usd_per_hour or one.power_w > two.power_w


def test_every_option_is_counted_once() -> None:
    """What keeps the limits, what fails and what is left out are all that was searched."""
    found = planned()
    assert found.searched == found.fitting + sum(found.failed.values()) + found.withheld
    assert {"scheduler"} < found.failed.keys()


@pytest.mark.parametrize("name", ["ttft_ms", "tpot_ms"])
def test_looser_limits_never_cost_more(name: str) -> None:
    """Also from limits that nothing keeps."""
    costs = [
        cost(planned(ServingLimits({**LIMITS.times, name: most})))
        for most in (0.1, 30.0, 60.0, 120.0, 400.0, 1500.0)
    ]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] == inf > costs[-1]


def test_best_estimates_never_cost_more_than_upper_ends() -> None:
    """The risk of a limit has its price."""
    value = cost(planned(ServingLimits(LIMITS.times, risk="value")))
    assert value < cost(planned())


def test_more_traffic_never_costs_less() -> None:
    """From a trickle to many replicas."""
    rates = (0.1, 1.0, 3.0, 10.0, 31.0, 100.0)
    costs = [cost(planned(load=RequestLoad(1000.0, 200.0, None, rate))) for rate in rates]
    assert costs == sorted(costs) and costs[0] < costs[-1] < inf


def test_a_wider_choice_of_devices_never_costs_more() -> None:
    """Each further type, and each further device of a type."""
    costs = [cost(planned(stocks=STOCKS[:number])) for number in range(1, 5)]
    assert costs == sorted(costs, reverse=True)
    counts = [
        cost(planned(stocks=[Stock(CATALOG.get("l4"), most, 0.8), *STOCKS[1:2]]))
        for most in (1, 4, 64, 512)
    ]
    assert counts == sorted(counts, reverse=True)


def test_budgets_are_kept_and_said() -> None:
    """Of money, of power, and of devices."""
    free = planned()
    dear = planned(ServingLimits(LIMITS.times, usd_per_hour=cost(free) * 0.99))
    assert not dear.best and dear.failed["usd_per_hour"] > 0
    least = min(one.power_w for one in free.front)
    assert not planned(ServingLimits(LIMITS.times, power_w=least / 2)).best
    few = planned(stocks=[Stock(CATALOG.get("l4"), 2, 0.8)])
    assert not few.best and few.failed["devices"] > 0


def test_a_limit_that_nothing_exceeds_changes_nothing() -> None:
    """However wide the intervals are: the end that counts is known."""
    loose = ServingLimits({"tpot_ms": 1e6, "ttft_ms": 1e9})
    prices = [
        cost(plan([LLAMA], LOAD, [Engine()], STOCKS, Formula(wide=4.0), limits=limits))
        for limits in (ServingLimits(), loose)
    ]
    assert prices[0] == prices[1] < inf


def test_nothing_is_ranked_by_an_interval_wider_than_a_factor_of_ten() -> None:
    """It is counted as left out of an order by speed."""
    formula = Formula(wide=4.0)
    found = plan([LLAMA], LOAD, [Engine()], STOCKS, formula, limits=ServingLimits(),
                 objective="speed")  # fmt: skip
    assert not found.best and found.withheld > 0


def test_layouts_of_experts_spread_them_over_all_devices_of_a_layer() -> None:
    """Degrees are such that engines can express them, and no layout is twice."""
    units = list(units_of(MIXTRAL, LOAD, Engine(), STOCKS[1], apart=False))
    degrees = [unit.query.deployment.pool.parallelism for unit in units]
    assert len(set(degrees)) == len(degrees)
    assert {own.expert for own in degrees} == {1, 2, 4, 8}
    assert all(own.expert in (1, own.tensor * own.attention_data) for own in degrees)


def test_pools_of_their_own_are_tried_where_that_is_asked() -> None:
    """Prompts and answers in several ratios."""
    units = list(units_of(LLAMA, LOAD, Engine(), STOCKS[1], apart=True))
    pools = [own.prefill.workers for u in units if (own := u.query.deployment).prefill]
    assert set(pools) == {1, 2}


def test_a_scheduler_that_is_given_is_not_chosen() -> None:
    """All options have it."""
    engine = Engine(max_sequences=48, max_batched_tokens=4096)
    found = plan([LLAMA], LOAD, [engine], STOCKS, Formula(), limits=LIMITS)
    assert {one.unit.query.deployment.engine for one in found.front} == {engine}


def test_layouts_on_one_type_share_most_of_their_error() -> None:
    """Half the devices win fewer draws than a device of another type with two thirds the speed."""

    def wins(*stocks: Stock) -> float:
        """Share of draws of the slowest."""
        load = RequestLoad(1000.0, 200.0, None, 0.1)
        engine = Engine(max_sequences=64, max_batched_tokens=2048)
        limits, pricing = ServingLimits(), Formula(wide=3.0)
        found = plan([LLAMA], load, [engine], stocks, pricing, limits=limits, objective="speed")
        return found.best[-1].wins

    h100, a100 = (Stock(CATALOG.get(name), 1, 1.0) for name in ("h100-sxm-80gb", "a100-sxm-80gb"))
    assert wins(h100, a100) > 0.2
    assert wins(replace(h100, most=2)) < 0.05


class Queue:
    """Percentiles of three times the mean, also of a class."""

    def figures_ms(self, query: Query, replicas: int) -> dict[str, float]:
        """Those of one replica, by the formula of the means."""
        (own,) = Formula().figures([query])
        assert not isinstance(own, InputError)
        times = {tail_of(name): 3.0 * one.value for name, one in own.estimates.items()}
        return times | {f"{of}.{name}": ms for of in ("a", "b") for name, ms in times.items()}


def with_tails(most: Mapping[str, float], risk: Risk = "upper") -> ServingPlan:
    """A plan with limits of percentiles."""
    tails = {tail_of(name): own for name, own in most.items()}
    limits = ServingLimits(LIMITS.times, tails, risk=risk)
    return plan([LLAMA], LOAD, [Engine()], STOCKS, Formula(), limits=limits, tails=Queue())


@pytest.mark.parametrize("risk", ["upper", "value"])
def test_percentiles_hold_with_as_few_replicas_as_will_do(risk: Risk) -> None:
    """Where they ask for more than the means do, one fewer does not hold."""
    limits, wide = {"ttft_ms": 700.0}, 4 / 3 if risk == "upper" else 1.0
    found, free = with_tails(limits, risk), with_tails({}, risk)
    assert found.best and not any(one.tails for one in free.best)
    fewer = {layout_of(one.unit): one.replicas for one in free.best}
    more = 0
    for one in found.best:
        assert one.tails["ttft_p99_ms"] * wide <= limits["ttft_ms"]
        before = fewer.get(layout_of(one.unit), one.replicas)
        assert one.replicas >= before
        if one.replicas > before:
            more += 1
            less = Queue().figures_ms(one.unit.share(one.replicas - 1), one.replicas - 1)
            assert less["ttft_p99_ms"] * wide > limits["ttft_ms"]
    assert more
    assert found.searched == found.fitting + sum(found.failed.values()) + found.withheld
    assert found.searched == free.searched


def test_looser_percentiles_never_cost_more() -> None:
    """A percentile below the time of a prompt holds with no number of replicas."""
    costs = [cost(with_tails({"ttft_ms": most})) for most in (500.0, 700.0, 1000.0, 5000.0)]
    assert costs == sorted(costs, reverse=True)
    none = with_tails({"ttft_ms": 1.0})
    assert not none.best and none.failed["ttft_ms"] > 0


@dataclass(frozen=True)
class Uneven(Queue):
    """Percentiles that are much later on one type of devices."""

    late: Device

    def figures_ms(self, query: Query, replicas: int) -> dict[str, float]:
        """Those of one replica."""
        ratio = 1.5 if query.device == self.late else 0.4
        return {name: ratio * own for name, own in Queue().figures_ms(query, replicas).items()}


def test_options_are_checked_until_no_other_may_cost_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """The best is that of all options, however few are checked at least."""
    limits, costs = ServingLimits(LIMITS.times, {"ttft_p99_ms": 600.0}), []
    late = Uneven(planned().best[0].unit.query.device)
    for least in (1, 32):
        monkeypatch.setattr(plans, "CHECKED", least)
        costs.append(cost(plan([LLAMA], LOAD, [Engine()], STOCKS, Formula(), limits=limits,
                               tails=late)))  # fmt: skip
    assert costs[0] == costs[1] < inf


CLASSES = {"a": LOAD, "b": RequestLoad(8000.0, 300.0, None, 0.5)}


def of_classes(names: str, tails: Mapping[str, float]) -> ServingPlan:
    """A plan for some classes, with limits of them."""
    own = {name: CLASSES[name] for name in names}
    load = replace(LOAD, requests_per_s=sum(one.requests_per_s or 0.0 for one in own.values()))
    return plan([LLAMA], load, [Engine()], STOCKS, ByClass(Formula(), own), tails=Queue(),
                limits=ServingLimits(tails=tails), classes=[*own.values()])  # fmt: skip


def test_a_further_class_and_a_tighter_limit_never_cost_less() -> None:
    """Each class holds by its own limits, and the one that fails is named."""
    mosts = (200.0, 500.0, 900.0, 5000.0)
    costs = [cost(of_classes("ab", {"b.ttft_p99_ms": most})) for most in mosts]
    assert costs == sorted(costs, reverse=True) and inf > costs[0] > costs[-1]
    for most in mosts:
        tails = {"a.ttft_p99_ms": most}
        both, alone = of_classes("ab", {**tails, "b.tpot_p99_ms": 200.0}), of_classes("a", tails)
        assert cost(alone) <= cost(both)
    none = of_classes("ab", {"a.ttft_p99_ms": 1e4, "b.ttft_p99_ms": 1.0})
    assert not none.best and none.failed["b.ttft_ms"] > 0 and "a.ttft_ms" not in none.failed


def test_what_does_not_hold_one_class_alone_is_not_searched_for_all() -> None:
    """Neither where the longest request does not fit the memory."""
    long = {"a": LOAD, "b": RequestLoad(120_000.0, 300.0, None, 0.01)}
    found = plan([LLAMA], LOAD, [Engine()], STOCKS[:1], ByClass(Formula(), long),
                 limits=ServingLimits(), classes=[*long.values()])  # fmt: skip
    short = plan([LLAMA], LOAD, [Engine()], STOCKS[:1], Formula(), limits=ServingLimits())
    assert found.failed["memory"] > short.failed.get("memory", 0)


@pytest.mark.parametrize(
    "limits",
    [
        LIMITS,
        ServingLimits({"tpot_ms": 9.0}),
        ServingLimits(LIMITS.times, usd_per_hour=30.0),
        ServingLimits(LIMITS.times, power_w=900.0),
        ServingLimits({"tpot_ms": 1.0}, risk="value"),
    ],
    ids=str,
)
@pytest.mark.parametrize("objective", ["price", "devices", "energy", "speed"])
def test_each_miss_is_nearest_of_those_that_cost_less_than_the_one_before(
    limits: ServingLimits, objective: ServingObjective
) -> None:
    """And than the best: what costs more and misses a limit is of no use."""
    found = plan([LLAMA], LOAD, [Engine()], STOCKS, Formula(), limits=limits, objective=objective)
    costs = [one.cost(objective) for one in (*found.best[:1], *found.misses)]
    assert all(two < one for one, two in pairwise(costs))
    ratios = [max(one.over.values()) for one in found.misses]
    assert ratios == sorted(ratios) and all(ratio > 1.0 for ratio in ratios)


@pytest.mark.parametrize(
    "limit", [{"ttft_ms": 300.0}, {"ttft_ms": 600.0}, {"tpot_ms": 40.0}], ids=str
)
def test_what_a_percentile_makes_too_few_is_named_with_the_limit(
    limit: Mapping[str, float],
) -> None:
    """The best without it is still the best, or the cheapest of those that miss something."""
    free, found = with_tails({}), with_tails(limit)
    listed = [*found.best[:1], *found.misses]
    assert cost(found) > listed[-1].usd_per_hour == cost(free)
    assert listed[-1].over.keys() == {f"{name.removesuffix('_ms')}_p99_ms" for name in limit}
    assert found.searched == free.searched


def loosened(limits: ServingLimits, ratio: float) -> ServingLimits:
    """Limits so many times as large."""
    return ServingLimits(
        {name: ratio * most for name, most in limits.times.items()},
        usd_per_hour=ratio * limits.usd_per_hour,
        power_w=ratio * limits.power_w,
    )


@pytest.mark.parametrize(
    ("limits", "few"),
    [
        (ServingLimits({"tpot_ms": 0.01}), None),
        (ServingLimits({"tpot_ms": 0.01, "ttft_ms": 500.0}), None),
        (ServingLimits(LIMITS.times, usd_per_hour=0.5), None),
        (ServingLimits(power_w=100.0), None),
        (ServingLimits(), 2),
        (ServingLimits({"tpot_ms": 20.0}), 2),
    ],
    ids=str,
)
def test_what_keeps_no_limit_has_a_nearest_option_that_larger_limits_keep(
    limits: ServingLimits, few: int | None
) -> None:
    """As much larger as its worst limit is missed by, of the devices too; and of these, of price
    and of power no less: more replicas may miss a time by less.
    """
    stocks = [replace(one, most=few) for one in STOCKS[: 1 if few else None]]
    found = planned(limits, stocks=stocks)
    assert not found.best
    over = found.misses[0].over
    worst = max(over.values())
    for ratio in (1.0 + 1e-9, 0.99):
        most = None if few is None else int(few * worst * ratio)
        more = [replace(one, most=most) for one in stocks]
        best = planned(loosened(limits, worst * ratio), stocks=more).best
        assert best if ratio > 1.0 else over.keys() & limits.times.keys() or not best


class Refusing(Formula):
    """Answers no L4, and gives no power."""

    def figures(
        self, queries: Sequence[Query], *, with_power: bool = False
    ) -> list[Figures | InputError]:
        """Those of n deployments."""
        own = super().figures(queries)
        return [
            UnanswerableQuery("No L4.") if query.device.name == "l4" else one
            for query, one in zip(queries, own, strict=True)
        ]


def test_types_of_which_no_option_can_be_compared_are_named_with_the_reason() -> None:
    """By the predictor, by the power, by the price; others are not."""
    named = {}
    for objective in ("price", "energy", "vcpus"):
        found = plan(
            [LLAMA], LOAD, [Engine()], [*STOCKS, Stock(CATALOG.get("a10g"))], Refusing(),
            limits=LIMITS, objective=objective,
        )  # fmt: skip
        named[objective] = dict(found.unanswered)
        assert found.searched == found.fitting + sum(found.failed.values()) + found.withheld
    assert named["price"] == {"l4": "No L4", "a10g": NO_PRICE}
    assert named["energy"].pop("l4") == "No L4"
    assert set(named["energy"].values()) == {NO_POWER}
    assert named["vcpus"].keys() == {*PRICES, "a10g"}
    assert planned().unanswered == {}


@pytest.mark.parametrize("name", ["jetson-agx-orin-64gb", "a100-sxm-80gb-mig-3g-40gb", "epyc-9654"])
def test_devices_that_no_link_joins_are_not_divided_over(name: str) -> None:
    """Neither layers nor experts, nor pools of their own."""
    (unit,) = units_of(MIXTRAL, LOAD, Engine(), Stock(CATALOG.get(name)), apart=True)
    assert unit.devices == 1 and unit.query.deployment.prefill is None


@pytest.mark.parametrize("name", ["l4", "l40s", "rtx-4090", "a10g", "intel-max-1550", "mi300x"])
def test_cards_that_pci_express_or_links_join_are_divided_over(name: str) -> None:
    """Up to eight by tensors."""
    units = units_of(LLAMA, LOAD, Engine(), Stock(CATALOG.get(name)))
    assert max(unit.query.deployment.pool.parallelism.tensor for unit in units) == 8
