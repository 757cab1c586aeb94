"""Requests about training language models as runs, and their answers as doors give them."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from forerun.data.device import Device
from forerun.data.device_slices import is_slice, no_link
from forerun.data.errors import BadRequest, UnanswerableQuery, in_field
from forerun.data.grid_carbon import grid_of
from forerun.data.language_models.model import LanguageModel
from forerun.data.language_models.training import (
    Cluster,
    LlmTraining,
    Objective,
    TrainingLayout,
    faults_of_layout,
)
from forerun.data.list_prices import Price, list_price
from forerun.features.llm_training.graph import networks
from forerun.features.llm_training.layouts import Layouts
from forerun.models.answers.served_models import InUse
from forerun.models.llm_training.answer import (
    BUDGETED_DEVICES,
    MISSING,
    OF_POWER,
    ONE_POWER,
    Budget,
    Costs,
    TrainingAnswer,
    planned,
    to_fit,
    training_answer,
)
from forerun.models.llm_training.plans import PlannedLayout, TrainingPlan, plan
from forerun.models.llm_training.predictors import TrainingPredictors
from forerun.models.plans import DRAWN
from forerun.service.answers.answer import graded, rendered
from forerun.service.answers.llm.framework_arguments import (
    arguments,
    predict_command,
    set_in_script,
)
from forerun.service.answers.llm.question import DeviceNamed
from forerun.service.schemas.answers import GradedOut
from forerun.service.schemas.llm.answers import PriceOut, counted
from forerun.service.schemas.llm.training import (
    LayoutIn,
    TrainingEstimateIn,
    TrainingFields,
    TrainingPlanIn,
)
from forerun.service.schemas.llm.training_answers import (
    GridOut,
    PartOfStepOut,
    PlannedOut,
    StageMemoryOut,
    TrainingOut,
    TrainingPlanOut,
    TrainingRunOut,
)

USUAL_TOKENS: Final = 4096
USUAL_BATCH_TOKENS: Final = 1 << 22
"""Default tokens of a pretraining step, about as many as in Llama 3's."""
USUAL_ADAPTED: Final = 16
"""Default sequences of a step that trains adapters."""
AS_ASKED: Final = (
    *("devices", "precision", "optimizer", "attention", "lora_rank", "frozen_weights"),
    *("lengths", "packed"),
)
"""Fields of a run that are those of the request."""
NEEDED: Final = (
    ("frozen_weights", "the weights under adapters", "lora_rank"),
    ("packed", "a distribution of lengths", "lengths"),
)
"""Field, what it is about, and the field that it needs."""
PARTS: Final[Mapping[str, str]] = {
    "linear": "matrix products of dense layers",
    "experts": "matrix products of routed experts",
    "attention": "scores of attention",
    "elementwise": "norms, activations and other reads and writes of memory",
    "states": "states of recurrent layers",
    "tensor_messages": "messages between tensor-parallel devices",
    "context_messages": "messages between devices that share sequences",
    "expert_messages": "tokens sent to routed experts and back",
    "head": "output head and loss",
    "bubble": "pipeline stages that wait for each other",
    "data_messages": "messages between data-parallel devices that nothing hides",
    "optimizer": "step of the optimizer",
    "host": "transfers to the host and work there",
    "waiting": "waiting for the fullest stage and for kernels to start",
}
"""Part of a step -> what it is."""


BEST: Final[Mapping[Objective, str]] = {
    **{"time": "fastest", "price": "cheapest", "energy": "the one with least energy"}
}
"""Objective -> what the best is."""


@dataclass(frozen=True, slots=True)
class _Question:
    """A request as a run.

    Attributes:
        run: the run, whose layout is the default where the request gives none.
        device: the device.
        costs: what tokens are charged with.
        chosen: what was chosen where the request leaves it open, a sentence each.
    """

    run: LlmTraining
    device: Device
    costs: Costs
    chosen: tuple[str, ...]


def training_estimate(
    asked: TrainingEstimateIn, device_named: DeviceNamed, in_use: InUse
) -> TrainingOut:
    """Time, memory, power and cost of a training step and of the tokens.

    Raises:
        InputError: the request cannot be answered; the message says why.
    """
    known, layout = TrainingPredictors.of(in_use), asked.layout
    own = _question(asked, device_named, layout and TrainingLayout(**layout.model_dump()))
    if layout is None:
        own = _with_best(own, known)
    with asked.as_written(), _in_degree(own.run):
        own.run.check()
    answer = training_answer(own.run, own.device, known, own.costs, level=asked.level)
    return TrainingOut(
        **_about(asked, own, answer, in_use),
        **_placed(own.run),
        to_fit=None if answer.fits is not False else to_fit(own.run, own.device, known),
        metrics=_graded(answer),
        missing=dict(answer.missing),
        fits=answer.fits,
        fits_at_value=answer.fits_at_value,
        breakdown=_breakdown(answer.breakdown_s),
        memory=StageMemoryOut(
            fullest_mib=dict(answer.parts_mib),
            stages_mib=list(answer.stages_mib),
            usable_mib=own.device.usable_mib,
        ),
        predict=_as_network(own, known),
    )


def training_plan(
    asked: TrainingPlanIn, device_named: DeviceNamed, in_use: InUse
) -> TrainingPlanOut:
    """The best layouts of training, on as many devices as asked, or as a budget allows; raises as
    `training_estimate`.
    """
    known = TrainingPredictors.of(in_use)
    own = _question_of_plan(asked, device_named, known)
    budget = _budget(asked, own.costs)
    found = planned(
        own.run, own.device, known, own.costs,
        objective=asked.objective, budget=budget, kept=DRAWN,
    )  # fmt: skip
    searched, nearest = found.plan, (*found.plan.best, *found.plan.misses)
    if not nearest and searched.withheld:
        raise UnanswerableQuery(
            f"The times of all {searched.withheld:,} layouts are not known well enough to rank "
            "them: their intervals span a factor of more than 10."
        )
    if not nearest:
        raise UnanswerableQuery(
            f"No layout divides {counted(own.run.devices, 'device')}, {own.run.global_batch} "
            "sequences and the model's heads and layers; change devices or global_batch."
        )
    own = replace(own, run=nearest[0].run, chosen=(*own.chosen, *found.chosen))
    kept = [one for n, one in enumerate(searched.best) if n < asked.kept or n == searched.close]
    layouts = {"best": kept, "misses": searched.misses, "front": found.front}
    runs = [one.run for several in layouts.values() for one in several]
    answers, is_one_power = _compared([own.run, *runs], own, known)
    if is_one_power:
        own = replace(own, chosen=(*own.chosen, ONE_POWER))
    is_drawn = known.process is not None
    listed = {
        name: [_planned(one, answers[one.run], is_drawn and name == "best") for one in several]
        for name, several in layouts.items()
    }
    return TrainingPlanOut(
        **_about(asked, own, answers[own.run], in_use),
        **listed,
        to_fit=None if searched.best else to_fit(own.run, own.device, known),
        objective=asked.objective,
        searched=searched.searched,
        fitting=searched.fitting,
        withheld=searched.withheld,
        measure=_measure(searched, asked.objective),
        arguments=arguments(own.run) if searched.best else {},
        script=set_in_script(own.run) or None,
    )


def _question(
    asked: TrainingFields, device_named: DeviceNamed, layout: TrainingLayout | None
) -> _Question:
    """The run of a request; what it leaves open is chosen.

    Raises:
        InputError: no such device or model, or a value contradicts another.
    """
    with asked.as_written(), in_field("device"):
        device = device_named(asked.device)
    if device.kind != "gpu":
        with in_field("device"):
            raise UnanswerableQuery(
                f"Training is supported only on GPUs; {device.name} is not one."
            )
    if (asked.devices or 1) > 1 and is_slice(device):
        with asked.as_written(), in_field("devices"):
            raise UnanswerableQuery(f"{no_link(device)}: each trains by itself.")
    with asked.as_written(), in_field("model"):
        model = asked.model.language_model()
    if model is None:
        with in_field("model"):
            raise BadRequest("Give the model by its name or its config.")
    sequence, batch, chosen = _sizes(asked, model, layout)
    framework = asked.framework
    if asked.lora_rank and "framework" not in asked.model_fields_set:
        framework = "fsdp"
        chosen.append("framework fsdp, as adapters are mostly trained with Transformers")
    given = {name: getattr(asked, name) for name in AS_ASKED}
    has = device.peak_tflops
    if "precision" not in asked.model_fields_set and "bf16" not in has and "fp16" in has:
        given["precision"] = "fp16"
        chosen.append(f"precision fp16, as {device.name} has no bf16 units")
    for name, of, needs in NEEDED:
        if getattr(asked, name) and not getattr(asked, needs):
            with in_field(name):
                raise BadRequest(f"{name} is about {of}: give {needs} too.")
    run = LlmTraining(
        model=model,
        sequence_tokens=sequence,
        global_batch=batch,
        layout=layout or TrainingLayout(),
        framework=framework,
        cluster=Cluster(**asked.cluster.model_dump()),
        **given,
    )
    return _Question(run, device, _costs(asked, device), tuple(chosen))


def _question_of_plan(
    asked: TrainingPlanIn, device_named: DeviceNamed, known: TrainingPredictors
) -> _Question:
    """The question; without a number of devices or a budget, on the fewest devices, of powers of
    two, on which a layout is sure to fit.

    Raises:
        InputError: as `_question`, or none fits.
    """
    if asked.devices is not None:
        return _question(asked, device_named, None)
    if asked.max_usd or asked.max_days:
        return _question(asked.model_copy(update={"devices": 1}), device_named, None)
    for count in BUDGETED_DEVICES:
        own = _question(asked.model_copy(update={"devices": count}), device_named, None)
        if plan(own.run, own.device, known, kept=1).best:
            number = f"{counted(count, 'device')}, the fewest on which a layout is sure to fit"
            return replace(own, chosen=(f"{number}: give devices for others", *own.chosen))
    most = f"{BUDGETED_DEVICES[-1]:,} of {own.device.name}"
    raise UnanswerableQuery(
        f"No layout is sure to fit on up to {most}: choose a device with more memory, lower "
        "sequence_tokens, set lora_rank, or give devices to see the layouts that come nearest."
    )


def _sizes(
    asked: TrainingFields, model: LanguageModel, layout: TrainingLayout | None
) -> tuple[int, int, list[str]]:
    """Tokens of a sequence, sequences of a step, and what was chosen of them."""
    chosen: list[str] = []
    sequence = asked.sequence_tokens
    padded = 0 if asked.packed else max((one.tokens for one in asked.lengths), default=0)
    if sequence is None:
        usual = padded or USUAL_TOKENS
        sequence = min(usual, model.most_tokens or usual)
        chosen.append(f"sequence_tokens {sequence:,}")
    sequence = min(sequence, padded or sequence)
    batch = asked.global_batch
    if batch is None:
        rows = asked.devices
        if layout is not None:
            rows = max(1, asked.devices // layout.model_devices) * layout.micro_batch
        wanted = USUAL_ADAPTED if asked.lora_rank else max(1, USUAL_BATCH_TOKENS // sequence)
        batch = rows * max(1, round(wanted / rows))
        most = "up to " if padded else ""
        chosen.append(f"global_batch {batch:,}, {most}{batch * sequence:,} tokens a step")
    return sequence, batch, chosen


def _costs(asked: TrainingFields, device: Device) -> Costs:
    given = asked.usd_per_device_hour
    price = list_price(device.name) if given is None else Price(given, "as given")
    with in_field("region"):
        grid = grid_of(asked.region, asked.grid_g_co2_per_kwh)
    return Costs(asked.tokens, price, grid)


def _budget(asked: TrainingPlanIn, costs: Costs) -> Budget | None:
    """The budget of a request; None where it gives none.

    Raises:
        BadRequest: tokens or the price of a device are not known.
    """
    if asked.max_usd is None and asked.max_days is None:
        return None
    if asked.devices is not None:
        with in_field("devices"):
            raise BadRequest("A budget chooses the number of devices: give no devices with it.")
    if costs.tokens is None:
        with in_field("tokens"):
            raise BadRequest("A budget needs tokens, the number of tokens to train on.")
    if asked.max_usd is not None and costs.price is None:
        with in_field("usd_per_device_hour"):
            raise BadRequest(f"max_usd needs a price: {MISSING['run_usd']}.")
    return Budget(asked.max_usd, asked.max_days)


def _with_best(own: _Question, known: TrainingPredictors) -> _Question:
    """The question with the fastest layout that fits, or the nearest to fitting."""
    found = plan(own.run, own.device, known, kept=1)
    nearest = (*found.best, *found.misses)
    if not nearest:
        return own
    how = f"the fastest that fits of {found.searched:,}"
    if not found.best:
        likely = nearest[0].memory_mib <= (own.device.usable_mib or 0.0)
        none = "is sure to fit" if likely else "fits by the best estimate"
        how = f"the nearest to fitting of {found.searched:,}, none of which {none}"
    chosen = f"layout {_words(nearest[0])}: {how}"
    return replace(own, run=nearest[0].run, chosen=(*own.chosen, chosen))


def _in_degree(run: LlmTraining) -> AbstractContextManager[None]:
    """Where the first fault of a layout is."""
    fault = next(faults_of_layout(run, run.layout), "")
    name = fault.partition(" ")[0]
    return in_field(*(("layout", name) if name in TrainingLayout.__slots__ else (name,)))


def _about(
    asked: TrainingFields, own: _Question, answer: TrainingAnswer, in_use: InUse
) -> dict[str, Any]:
    """What both kinds of answers say."""
    sizes, run, costs = asked.model.sizes(), own.run, own.costs
    assert sizes is not None
    whole = rendered(answer.query, answer.limits, in_use)
    del whole["in_domain"]
    names = TrainingRunOut.model_fields
    return {
        **whole,
        "model": sizes,
        "run": TrainingRunOut(**{name: getattr(run, name) for name in names}),
        "chosen": list(own.chosen),
        "price": None if costs.price is None else PriceOut.filled(costs.price),
        "grid": None if costs.grid is None else GridOut.filled(costs.grid),
    }


def _placed(run: LlmTraining) -> dict[str, Any]:
    layout = LayoutIn(**asdict(run.layout))
    return {"layout": layout, "data": run.data, "micro_batches": run.micro_batches}


def _graded(answer: TrainingAnswer) -> dict[str, GradedOut]:
    return {name: graded(name, e, answer.trust[name]) for name, e in answer.estimates.items()}


def _breakdown(seconds: Mapping[str, float]) -> list[PartOfStepOut]:
    total = sum(seconds.values())
    return [
        PartOfStepOut(name=name, meaning=PARTS[name], seconds=own, share=own / total)
        for name, own in sorted(seconds.items(), key=lambda item: -item[1])
    ]


def _as_network(own: _Question, known: TrainingPredictors) -> str | None:
    """The command that asks the same as a network; None where kernels do not answer."""
    layouts = Layouts.of(own.run)
    if not known.by_kernels(own.run, layouts)[0]:
        return None
    (network,) = networks(own.run, layouts)
    return predict_command(network, own.device, own.run.sequence_tokens)


def _compared(
    runs: Iterable[LlmTraining], own: _Question, known: TrainingPredictors
) -> tuple[dict[LlmTraining, TrainingAnswer], bool]:
    """Run -> answer, and whether power is a share of the TDP in all since some have no
    other: energies are compared, and one more device must not lower them by another rule.
    """
    found = {run: training_answer(run, own.device, known, own.costs) for run in runs}
    assumed = [run for run, answer in found.items() if _is_assumed(answer)]
    if not assumed or len(assumed) == len(found):
        return found, False
    others = found.keys() - set(assumed)
    return found | {
        run: training_answer(run, own.device, known, own.costs, power_of_tdp=True) for run in others
    }, True


def _is_assumed(answer: TrainingAnswer) -> bool:
    power = answer.trust.get("power_w")
    return power is not None and power.reason == OF_POWER


def _planned(one: PlannedLayout, answer: TrainingAnswer, drawn: bool) -> PlannedOut:
    """A layout of a plan with its figures."""
    return PlannedOut(
        **_placed(one.run),
        devices=one.run.devices,
        metrics=_graded(answer),
        fits=bool(answer.fits),
        fits_at_value=answer.fits_at_value,
        wins=one.wins if drawn else None,
    )


def _measure(searched: TrainingPlan, objective: Objective) -> str | None:
    """Which layouts a measurement should compare, where the first does not win anyway."""
    if searched.close is None:
        return None
    first, other = searched.best[0], searched.best[searched.close]
    named, advice = _words(other), ""
    if other.wins > first.wins:
        advice = (
            f" That is the likely best, in {100 * other.wins:.0f} %; best estimates decide the "
            "order, so take the first unless you measure."
        )
    return (
        f"Close: the first is {BEST[objective]} in {100 * first.wins:.0f} % of simulated cases. "
        f"Time a few steps of it and of {named}.{advice}"
    )


def _words(one: PlannedLayout) -> str:
    return PlannedOut.model_construct(**_placed(one.run)).words()
