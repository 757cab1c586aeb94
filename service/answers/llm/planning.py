"""Plans of serving a language model, as doors give them."""

import shlex
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain
from math import ceil, fsum, inf, isclose, log2
from typing import Any, Final

from forerun.data.cloud_instances import virtual_processors
from forerun.data.device_slices import no_link
from forerun.data.errors import BadRequest, InputError, UnanswerableQuery, in_field
from forerun.data.errors import UnknownLanguageModel as UnknownModel
from forerun.data.grid_carbon import Grid, grid_of
from forerun.data.language_models.deployment import Pool, RequestLoad
from forerun.data.language_models.engine_formats import awq_not_run, not_run
from forerun.data.language_models.model import LanguageModel
from forerun.data.list_prices import list_price, priced_devices
from forerun.data.query import Operation, Query
from forerun.features.readers.hugging_face_cache import HUGGING_FACE
from forerun.features.readers.language_model.reader import named_model
from forerun.models.answers.deployments.answer import ENERGY, Deployed, deployed_all
from forerun.models.answers.deployments.limits import of_lengths
from forerun.models.answers.deployments.memory import memory_of
from forerun.models.answers.deployments.plans import ByClass, EventTails, PlanPricing
from forerun.models.answers.served_models import InUse
from forerun.models.limit import POWER
from forerun.models.llm_serving.mixes import Change, Mix, mix, rates_of
from forerun.models.llm_serving.plans import (
    LATENCY,
    Risk,
    ServingLimits,
    ServingObjective,
    ServingOption,
    ServingPlan,
    Stock,
    most_of,
    plan,
    tail_of,
)
from forerun.models.llm_serving.processor_latency import ENGINES
from forerun.service.answers.answer import graded, predictor_out, rendered
from forerun.service.answers.llm.fleets import fleet_out
from forerun.service.answers.llm.mixing import mix_out, replicas_of
from forerun.service.answers.llm.question import DeviceNamed
from forerun.service.answers.llm.serving_autoscaling import Scaling
from forerun.service.answers.llm.serving_commands import (
    CONVERTED,
    MANIFESTS,
    commands,
    drafting,
    not_written,
)
from forerun.service.figures import digits
from forerun.service.schemas.llm.serving_plan import LlmPlanIn, SizeIn, StockIn
from forerun.service.schemas.llm.serving_plan_answers import (
    TIMES,
    FleetOut,
    LlmPlanOut,
    MixOut,
    PlannedServingOut,
    TrafficOut,
)
from forerun.service.schemas.llm.training_answers import GridOut

MEGAJOULES_PER_KWH: Final = 3.6
UNITS: Final[Mapping[ServingObjective, str]] = {
    "price": "USD an hour",
    "devices": "devices",
    "vcpus": "vCPUs",
    "energy": "W",
    "carbon": "W",
    "speed": "ms for a request",
}
"""Objective -> unit of what is minimised."""


@dataclass(frozen=True, slots=True)
class _Question:
    """A request with its models and devices.

    Attributes:
        asked: the request.
        models: the model in each format -> the format; empty for its own.
        stocks: types of devices.
        given: name of a device -> as the request gives it.
        limits: what must hold.
        grid: carbon intensity; None where none is given.
        in_use: the predictor in use.
        not_searched: formats that the engine does not run on a device, and why.
    """

    asked: LlmPlanIn
    models: Mapping[LanguageModel, str]
    stocks: Sequence[Stock]
    given: Mapping[str, Any]
    limits: ServingLimits
    grid: Grid | None
    in_use: InUse
    not_searched: list[str]


def llm_plan(asked: LlmPlanIn, device_named: DeviceNamed, in_use: InUse) -> LlmPlanOut:
    """What to serve a language model on.

    Raises:
        InputError: the request cannot be answered; the message says why.
    """
    own = _question(asked, device_named, in_use)
    objective, load = own.asked.objective, asked.load()
    if load.requests_per_s is None:
        with in_field("requests_per_s"):
            raise BadRequest("Requests that arrive at once have no rate: give requests_per_s too.")
    found = _searched(own, load)
    unanswered = _unanswered(found, own)
    (best, misses, front, rival), whole = _listed(found, own)
    sizes = asked.model.sizes(asked.engine.name)
    assert sizes is not None
    about = _about(whole, own)
    longest = None if whole is None else _longest(whole.query, own)
    fleet = fleet_out(found.best[0], asked, own.limits, own.grid, in_use) if found.best else None
    written, refused = _commands(found.best[0], own, fleet) if found.best else ({}, {})
    mixed = _mixed(own) if asked.mix else None
    of_mix = None if mixed is None else mix_out(mixed, own.asked.loads(), own.models)
    if mixed and of_mix and of_mix.is_cheaper(best[0].usd_per_hour if best else None):
        written, refused = _commands_of_mix(mixed, of_mix, own)
    return LlmPlanOut(
        **about,
        model=sizes,
        traffic=TrafficOut(**{n: getattr(load, n) for n in TrafficOut.model_fields}),
        most=_most(asked),
        objective=objective,
        risk=asked.risk,
        searched=found.searched,
        not_searched=[*own.not_searched, *unanswered],
        fitting=found.fitting,
        failed=dict(found.failed),
        kept_at_value=_kept_at_value(found, own, load),
        withheld=found.withheld,
        best=best,
        misses=misses,
        front=front,
        mix=of_mix,
        fleet=fleet,
        measure=_measure(best[0], rival[0], asked.risk) if rival else None,
        commands=written,
        not_written=refused,
        grid=None if own.grid is None else GridOut.filled(own.grid),
        chosen=_chosen(own, found.best[0] if found.best else None, longest, fleet),
    )


def _searched(own: _Question, load: RequestLoad) -> ServingPlan:
    asked, classes = own.asked, own.asked.class_loads()
    _check_lengths(own, load)
    for place, one in enumerate(asked.classes or ()):
        with in_field("classes", place):
            _check_lengths(own, classes[one.name], one.limits)
    return plan(
        [*own.models], load, asked.engines(), own.stocks,
        ByClass(PlanPricing(own.in_use), classes), limits=own.limits, objective=asked.objective,
        apart=asked.disaggregated, kept=asked.kept, classes=[*classes.values()],
        tails=EventTails(own.in_use, asked.traced_at_rate(), classes),
    )  # fmt: skip


def _kept_at_value(found: ServingPlan, own: _Question, load: RequestLoad) -> bool | None:
    """Whether an option keeps all limits at the best estimates, where none does at upper ends."""
    if found.best or own.limits.risk == "value":
        return None
    return bool(_searched(replace(own, limits=replace(own.limits, risk="value")), load).best)


def _unanswered(found: ServingPlan, own: _Question) -> list[str]:
    """Types of devices that cannot be compared, and why.

    Raises:
        UnanswerableQuery: none can.
    """
    names: dict[str, list[str]] = {}
    for name, why in found.unanswered.items():
        names.setdefault(why, []).append(name)
    lines = [f"{', '.join(several)}: {why}" for why, several in names.items()]
    if len(found.unanswered) == len(own.stocks) and not found.misses:
        with in_field("devices"):
            raise UnanswerableQuery(f"No device can be compared: {'; '.join(lines)}.")
    return lines


def _check_lengths(own: _Question, load: RequestLoad, limits: Iterable[str] | None = None) -> None:
    """Whether requests can be answered; limits are those of a class of them."""
    most, needed = own.asked.engine.max_request_tokens, load.input_tokens + load.output_tokens
    if most is not None and needed > most:
        with in_field("engine", "max_request_tokens"):
            raise BadRequest(
                f"Requests of {needed:,.0f} tokens with their answers are longer than the {most:,} "
                "that the engine takes."
            )
    is_class = limits is not None
    if limits is None:
        limits = [*own.limits.times, *(name for name in own.limits.tails if "." not in name)]
    limited = next((name for name in limits if name.startswith("tpot")), None)
    if limited is not None and load.output_tokens <= 1.0:
        with in_field(*[] if is_class else [limited]):
            raise BadRequest("An answer of one token has no time per further token: leave it out.")
    for limit in of_lengths(next(iter(own.models)), load.input_tokens, load.output_tokens):
        raise UnanswerableQuery(f"{limit.message[0].upper()}{limit.message[1:]}.")


def _mixed(own: _Question) -> Mix:
    asked, loads = own.asked, own.asked.loads()
    for load in loads:
        _check_lengths(own, load)
    return mix(
        [*own.models], loads, asked.engines(), own.stocks, PlanPricing(own.in_use),
        limits=own.limits, objective="price" if asked.objective == "price" else "devices",
        apart=asked.disaggregated,
        change=Change(asked.change_cost, inf if asked.max_changes is None else asked.max_changes),
    )  # fmt: skip


def _question(asked: LlmPlanIn, device_named: DeviceNamed, in_use: InUse) -> _Question:
    """The models, devices and limits of a request.

    Raises:
        InputError: no such device or model, or a value contradicts another.
    """
    models = {_model(asked, own): own for own in asked.formats or [""]}
    given = asked.devices or [StockIn(device=name) for name in priced_devices()]
    stocks, names = [], {}
    for place, one in enumerate(given):
        with asked.as_written(), in_field("devices", place):
            device = device_named(one.device)
            if device.kind == "cpu" and asked.engine.name not in ENGINES:
                raise UnanswerableQuery(
                    f"{device.name} is a processor: plans take {' and '.join(ENGINES)} there."
                )
            if device.name in names:
                raise BadRequest(f"{device.name} is given twice.")
        usd = one.usd_per_device_hour
        if usd is None and (price := list_price(device.name)) is not None:
            usd = price.usd_per_device_hour
        spot = Stock(device, one.spot_count, one.spot_usd_per_device_hour, is_spot=True)
        stocks.append(
            Stock(device, one.count, usd, virtual_processors(device), one.current,
                  None if spot.usd_per_device_hour is None else spot)
        )  # fmt: skip
        names[device.name] = one.model_dump(mode="json")["device"]
    stocks, not_searched = _runnable(asked, models, stocks)
    by_vcpus = asked.objective == "price" and asked.max_usd_per_hour is None and not asked.mix
    if by_vcpus and all(one.vcpus and one.usd_per_device_hour is None for one in stocks):
        asked = asked.model_copy(update={"objective": "vcpus"})
    times = {n: most for n in TIMES if (most := getattr(asked, n)) is not None}
    tails = asked.tails()
    _check_kinds(asked, tails, {one.device.kind for one in stocks})
    limits = ServingLimits(
        times, tails, asked.max_usd_per_hour or inf, asked.max_power_w or inf, asked.risk
    )
    with in_field("region"):
        grid = grid_of(asked.region, asked.grid_g_co2_per_kwh)
    if asked.objective == "carbon" and grid is None:
        with in_field("objective"):
            raise BadRequest("Carbon needs the electricity: give region or grid_g_co2_per_kwh too.")
    return _Question(asked, models, stocks, names, limits, grid, in_use, not_searched)


def _check_kinds(asked: LlmPlanIn, tails: Iterable[str], kinds: Set[str]) -> None:
    """Whether what is asked is answered on devices of these kinds.

    Raises:
        InputError: it is not.
    """
    is_llama_cpp = asked.engine.name == "llama.cpp"
    if asked.disaggregated and (is_llama_cpp or kinds == {"cpu"}):
        with in_field("disaggregated"):
            raise BadRequest("Prefill workers are supported only on GPUs, and not with llama.cpp.")
    if asked.drafts and (is_llama_cpp or kinds == {"cpu"}):
        with in_field("drafts"):
            raise BadRequest(
                "Speculative decoding is supported with vllm, sglang and trtllm on GPUs, not "
                "with llama.cpp or on processors."
            )
    if (tails or asked.classes) and (is_llama_cpp or "cpu" in kinds):
        with in_field("classes" if asked.classes else next(iter(tails))):
            raise UnanswerableQuery(
                "Percentiles are supported only on GPUs, and not with llama.cpp."
            )


def _runnable(
    asked: LlmPlanIn, models: Iterable[LanguageModel], stocks: Sequence[Stock]
) -> tuple[list[Stock], list[str]]:
    """The devices on which the engine runs some format, and why it does not run others.

    Raises:
        UnanswerableQuery: it runs none on any.
    """
    checks = [not_run, awq_not_run] if set(asked.formats or ()) == {"awq"} else [not_run]
    reasons = [
        [
            next(
                filter(None, (check(asked.engine.name, one.device, own) for check in checks)), None
            )
            for own in models
        ]
        for one in stocks
    ]
    found = [why for why in dict.fromkeys(chain(*reasons)) if why is not None]
    kept = [one for one, why in zip(stocks, reasons, strict=True) if not all(why)]
    if not kept:
        raise UnanswerableQuery(f"{'; '.join(found)}.")
    alone = filter(None, (no_link(one.device) for one in kept))
    return kept, found + [f"replicas of several devices, as {why}" for why in alone]


def _model(asked: LlmPlanIn, weights: str) -> LanguageModel:
    given = asked.model.model_copy(update={"quantization": weights} if weights else {})
    with asked.as_written(), in_field("model"):
        model = given.language_model(asked.engine.name)
    if model is None:
        with in_field("model"):
            raise BadRequest("Give the model by its name or its config.")
    if not model.draft_layers and any(own.method == "mtp" for own in asked.drafts):
        with in_field("drafts"):
            raise BadRequest(f"{asked.model.name or 'The model'} has no layers that draft (mtp).")
    if model.encoder is not None:
        raise UnanswerableQuery("Plans support only decoder models; this model has an encoder.")
    return model


def _most(asked: LlmPlanIn) -> dict[str, float]:
    """Limit of the request -> its most."""
    names = (*TIMES, "max_usd_per_hour", "max_power_w")
    return {n: most for n in names if (most := getattr(asked, n)) is not None} | asked.tails()


def _listed(
    found: ServingPlan, own: _Question
) -> tuple[list[list[PlannedServingOut]], Deployed | None]:
    """The best, the misses, the front and the rival, all answered in one call; and the whole answer
    about the first of them.
    """
    groups = (found.best, found.misses, found.front, () if found.rival is None else (found.rival,))
    every = list({id(one): one for group in groups for one in group}.values())
    given = [one.unit.stock.usd_per_device_hour for one in every]
    answers: dict[int, Deployed] = {}
    for one, answer in zip(
        every, deployed_all([*map(_whole_query, every)], own.in_use, given), strict=True
    ):
        if isinstance(answer, InputError):
            raise answer
        answers[id(one)] = answer
    drawn = {id(one) for one in found.best} | {id(found.rival)}
    first = found.best[0] if found.best else None
    return [
        [_out(one, answers[id(one)], own, first, drawn=id(one) in drawn) for one in group]
        for group in groups
    ], next(iter(answers.values()), None)


def _whole_query(option: ServingOption) -> Query:
    """All replicas as one deployment; one replica where prompts have workers of their own."""
    query, replicas = option.unit.query, option.replicas
    if query.deployment.prefill is not None:
        return option.unit.share(replicas)
    pool = Pool(query.deployment.pool.parallelism, replicas)
    deployment = replace(query.deployment, pool=pool)
    return replace(query, workload=deployment, operation=Operation(deployment.devices))


def _out(
    option: ServingOption,
    answer: Deployed,
    own: _Question,
    first: ServingOption | None,
    *,
    drawn: bool,
) -> PlannedServingOut:
    metrics = {n: graded(n, e, answer.trust[n]) for n, e in answer.estimates.items()}
    power, energy = metrics.get(POWER), metrics.get(ENERGY)
    carbon = None
    if energy is not None and own.grid is not None:
        carbon = energy.value / MEGAJOULES_PER_KWH * own.grid.g_co2_per_kwh
    return PlannedServingOut(
        **replicas_of(option, own.models),
        metrics=metrics,
        power_w=None if power is None else option.devices * power.value,
        g_co2_per_million_tokens=carbon,
        limited_by=answer.limited_by,
        wins=option.wins if drawn else None,
        worse=None if first in (None, option) or option.over else _worse(option, first, own),
        p99_ms={n: option.tails[tail_of(n)] for n in TIMES if option.tails},
        classes={
            one: {
                n.partition(".")[2]: ms for n, ms in option.tails.items() if n.startswith(f"{one}.")
            }
            for one in own.asked.class_loads()
        },
        over=dict(option.over),
        request=_request(option, answer.query, own),
    )


def _worse(option: ServingOption, first: ServingOption | None, own: _Question) -> str:
    """How much more than the first an option takes of what is to be least."""
    assert first is not None
    objective = own.asked.objective
    pairs: list[tuple[str, float, float]] = [
        (UNITS[objective], option.cost(objective), first.cost(objective)),
        (UNITS["speed"], option.estimates[LATENCY].value, first.estimates[LATENCY].value),
    ]
    for unit, value, least in pairs:
        if value > least * (1.0 + 5e-4):
            more = 100.0 * (value / least - 1.0)
            return f"{more:,.3g} % more {unit}: {digits(value)} against {digits(least)}"
    return "same price and speed" if objective == "price" else "no less, and no faster"


def _request(option: ServingOption, query: Query, own: _Question) -> dict[str, Any]:
    """The option as a request to `/v1/llm/estimate`."""
    asked, deployment = own.asked, query.deployment
    model = asked.model.model_dump(mode="json", exclude_none=True)
    if weights := own.models[deployment.model]:
        model["quantization"] = weights
    load = {name: value for name, value in asdict(deployment.load).items() if value}
    engine = {
        **asked.engine.model_dump(mode="json", exclude_unset=True),
        "name": deployment.engine.name,
        "max_batched_tokens": deployment.engine.max_batched_tokens,
        "max_sequences": deployment.engine.max_sequences,
    }
    if deployment.engine.draft_tokens:
        drafts = deployment.engine.draft_tokens, deployment.engine.draft_acceptance
        engine |= zip(("draft_tokens", "draft_acceptance"), drafts, strict=True)
    found: dict[str, Any] = {
        "model": model,
        "device": own.given[query.device.name],
        **load,
        "engine": {name: value for name, value in engine.items() if value is not None},
        "parallelism": asdict(deployment.pool.parallelism),
        "workers": deployment.pool.workers,
    }
    if (first := deployment.prefill) is not None:
        found["prefill"] = {"parallelism": asdict(first.parallelism), "workers": first.workers}
    if option.unit.stock.usd_per_device_hour is not None:
        found["usd_per_device_hour"] = option.unit.stock.usd_per_device_hour
    return found


def _about(whole: Deployed | None, own: _Question) -> dict[str, Any]:
    """Limits of the answer about the first option, and the predictor."""
    if whole is None:
        return {"limits": [], "limit_details": [], "predictor": predictor_out(own.in_use, 0)}
    found = rendered(whole.query, whole.limits, own.in_use)
    return {n: found[n] for n in ("limits", "limit_details", "level", "predictor")}


def _measure(first: PlannedServingOut, rival: PlannedServingOut, risk: Risk) -> str:
    """What a measurement should compare, and which to take without one."""
    wins = [100.0 * (one.wins or 0.0) for one in (first, rival)]
    one = f"{rival.devices // rival.replicas} {rival.device}"
    ends = "upper ends of intervals" if risk == "upper" else "best estimates"
    advice = ""
    if wins[1] > wins[0]:
        advice = (
            f": that is the likely best, but {ends} decide the order, so take the first unless "
            "you measure"
        )
    return (
        f"not certain: the first, which {ends} choose, is best in {wins[0]:.0f} % of simulated "
        f"cases, {rival.words()} in {wins[1]:.0f} %{advice}; benchmark one replica of each ({one} "
        "for the second) at rising request rates, and note the highest that keeps the limits"
    )


def _longest(query: Query, own: _Question) -> int | None:
    """Maximum context length to start a server with; None for that of the model.

    vLLM does not start where its cache has no room for one request of the longest context.
    """
    longest: int | None = own.asked.engine.max_request_tokens
    if longest is not None:
        return longest
    deployment = query.deployment
    room = min((memory.cache_tokens for memory in memory_of(query, 1.0)), default=inf)
    if room >= (deployment.model.most_tokens or 0) or room < 1:
        return None
    needed = ceil(deployment.load.input_tokens + deployment.load.output_tokens)
    return int(min(room, max(1 << int(log2(room)), needed)))


def _commands_of_mix(
    found: Mix, out: MixOut, own: _Question
) -> tuple[dict[str, str], dict[str, str]]:
    """Commands of one replica of each type, below what it serves; manifests are of one type."""
    engine, lines = own.asked.engine.name, []
    for option, part in zip(found.parts, out.parts, strict=True):
        written, _ = _commands(option, own, None)
        lines += [f"# {part.line()}", written.get(engine, f"# no command of {engine}")]
    return {engine: "\n".join(lines)}, dict.fromkeys(MANIFESTS, "it is a mix of types")


def _commands(
    option: ServingOption, own: _Question, fleet: FleetOut | None
) -> tuple[dict[str, str], dict[str, str]]:
    longest = _longest(option.unit.query, own)
    replicas = option.replicas if fleet is None else fleet.fixed_replicas
    deployment, device = option.unit.query.deployment, option.unit.query.device
    name = (own.asked.model.name or "./model").removeprefix(HUGGING_FACE)
    with suppress(UnknownModel):  # it is described by its configuration
        name = named_model(name).name
    given = own.models[deployment.model] or own.asked.model.quantization
    weights = given if isinstance(given, str) else ""
    drafts = deployment.engine.draft_tokens, deployment.engine.draft_acceptance
    draft = next((d for d in own.asked.drafts if (d.tokens, d.acceptance) == drafts), None)
    further = (
        drafting(deployment.engine.name, draft.method, draft.tokens, draft.model) if draft else ()
    )
    scaling = Scaling(
        _rate_of_one(option, own), deployment.load, most_of(option.unit), own.asked.stabilization_s
    )
    found = commands(deployment, device, name, weights, replicas, longest, further, scaling)
    refused = not_written(deployment, device, found)
    if deployment.engine.name == "llama.cpp" and device.kind == "cpu":
        file = "-".join(filter(None, (name.rpartition("/")[2], weights)))
        words = ["llama-server", "--model", f"{file}.gguf", "--parallel", "1"]
        words += [] if longest is None else ["--ctx-size", str(longest)]
        found = {"llama.cpp": shlex.join(words)}
    return found, refused


def _rate_of_one(option: ServingOption, own: _Question) -> float:
    """A rate with which one replica keeps the limits: the largest, where they are of means alone,
    and else that of the plan.
    """
    planned = (option.unit.query.deployment.load.requests_per_s or 0.0) / option.replicas
    if own.limits.tails:
        return planned
    return max(planned, float(rates_of([option.unit], PlanPricing(own.in_use), own.limits)[0]))


def _of_shares(sizes: Sequence[SizeIn]) -> list[str]:
    """That shares were divided by their sum, where they were given and it is not 1."""
    total = fsum(one.share for one in sizes)
    if isclose(total, 1.0) or not any("share" in one.model_fields_set for one in sizes):
        return []
    return [f"shares of sizes are parts of their sum, {digits(total)}"]


def _chosen(
    own: _Question, first: ServingOption | None, longest: int | None, fleet: FleetOut | None
) -> list[str]:
    """What was chosen where the request leaves it open."""
    lines = []
    if own.asked.objective == "vcpus" and not any(one.usd_per_device_hour for one in own.stocks):
        lines.append("no price is given: options are ranked by vCPUs")
    if own.asked.devices is None:
        names = ", ".join(own.given)
        lines.append(f"devices with a list price (Amazon EC2 on demand): {names}")
    lines += _of_shares(own.asked.sizes or [])
    if not own.limits.times and not own.limits.tails:
        lines.append("no limit on latency: the plan keeps up with the rate alone")
    if fleet is not None:
        wanted, used = map(digits, (own.asked.window_s or 0.0, fleet.window_s))
        if wanted != used:
            lines.append(f"windows of {used} s in place of {wanted}: equal parts of the trace")
        lines.append(f"manifests have the replicas of the busiest window: {fleet.fixed_replicas}")
    if longest is not None and own.asked.engine.max_request_tokens is None:
        lines.append(
            f"requests of at most {longest:,} tokens, as the cache cannot hold the longest context "
            "of the model"
        )
    if own.asked.model.name is None:
        lines.append("./model stands for the folder of the model")
    if first is not None:
        weights = own.models[first.unit.query.deployment.model]
        if weights and weights not in CONVERTED:
            lines.append(f"the name of the checkpoint in {weights} is a placeholder")
    return lines
