"""`forerun train-step`, a step of training a language model, and `forerun train-plan`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from forerun.data.language_models.training import TrainingFramework
from forerun.service.cli import options as o
from forerun.service.cli.llm.options import RequestOptions
from forerun.service.cli.options import takes
from forerun.service.cli.output import show_answer, working
from forerun.service.requests.model_source import described_model, title_of
from forerun.service.schemas.llm.training import (
    TRAINING_FIELDS,
    ArgumentsOf,
    ClusterIn,
    LayoutIn,
    TrainingEstimateIn,
    TrainingPlanIn,
)

if TYPE_CHECKING:
    from forerun.models.answers.served_models import InUse
    from forerun.service.answers.llm.question import DeviceNamed

Asked = TypeVar("Asked", TrainingEstimateIn, TrainingPlanIn)
Out = TypeVar("Out")
SHORT: Final = {
    **{"tensor": ("tp",), "context_parallel": ("cp", "context"), "pipeline": ("pp",)},
    **{"virtual_stages": ("vpp",), "expert": ("ep",), "micro_batch": ("micro_batch_size",)},
    **{"global_batch": ("global_batch_size",), "sequence_tokens": ("seq_length",)},
    "devices": ("gpus",),
}
"""Option -> what training frameworks call it."""
FRAMEWORK_OF: Final[dict[str, TrainingFramework]] = {
    **{"megatron": "megatron", "torchtitan": "torchtitan"},
    **{"accelerate": "fsdp", "deepspeed": "deepspeed"},
}
"""Value of `--as` -> framework that is planned for where none is asked for."""
LEFT_TO_SCRIPT: Final = ("accelerate", "deepspeed")
"""Values of `--as` that do not say how adapters are made."""
OF_STEP: Final = RequestOptions(
    {"": TrainingEstimateIn, "layout": LayoutIn, "cluster": ClusterIn}, further=SHORT
)
OF_PLAN: Final = RequestOptions(TRAINING_FIELDS.parts, further=SHORT)
OneDevice = Annotated[list[str], typer.Option()]


@takes(OF_STEP.options(), OF_STEP.request)
def train_step(
    context: typer.Context,
    model: str,
    *,
    device: OneDevice,
    run: dict[str, Any],
    explain: o.Explain = False,
    json: o.Json = False,
) -> None:
    """Predict time, memory, power, price and energy of training a language model.

    MFU is the share of the devices' peak arithmetic, in the format of the run, that forward and
    backward passes use; HFU also counts what is computed again. Without a layout, the fastest that
    fits is used; `forerun train-plan` compares layouts and their prices.

    Args:
        context: the options as they were typed
        model: name of a public model (`forerun llm support`), config.json, or its folder
        device: name of one device
        run: how it is trained
        explain: also print bounds, breakdowns and all limits
        json: print one JSON object
    """
    from forerun.service.answers.llm.training import training_estimate
    from forerun.service.python.training import TrainingAnswer

    out = _answered(
        TrainingEstimateIn, model, device, run, OF_STEP.names(context), training_estimate
    )
    show_answer(TrainingAnswer, title_of(model), out, explain=explain, json=json, context=context)
    if explain and out.predict and not json:
        typer.echo(f"the same as a network: {out.predict}")


@takes(OF_PLAN.options(), OF_PLAN.request)
def train_plan(
    context: typer.Context,
    model: str,
    *,
    device: OneDevice,
    run: dict[str, Any],
    written_as: Annotated[ArgumentsOf | None, typer.Option("--as")] = None,
    explain: o.Explain = False,
    json: o.Json = False,
) -> None:
    """Find the layouts that train a language model fastest, cheapest, or with least energy.

    A layout fits if the upper end of its memory interval does. A budget (--max-usd, --max-days)
    determines the number of devices; without one, it is the fewest that fit.

    Args:
        context: the options as they were typed
        model: name of a public model (`forerun llm support`), config.json, or its folder
        device: name of one device
        run: how it is trained
        written_as: print the first layout as arguments of this framework alone
        explain: also print bounds, breakdowns and all limits
        json: print one JSON object
    """
    from forerun.service.answers.llm.training import training_plan
    from forerun.service.python.training import TrainingPlan, arguments_of

    if written_as is not None:
        o.refuse_with("--as", json=json, explain=explain)
    if written_as in FRAMEWORK_OF and "framework" not in run:
        run = {**run, "framework": FRAMEWORK_OF[written_as]}
    out = _answered(TrainingPlanIn, model, device, run, OF_PLAN.names(context), training_plan)
    if written_as is not None:
        typer.echo(arguments_of(out, written_as))
        if out.script and written_as in LEFT_TO_SCRIPT:
            typer.echo(f"in the script: {out.script}", err=True)
    else:
        show_answer(TrainingPlan, title_of(model), out, explain=explain, json=json, context=context)


def _answered(
    kind: type[Asked],
    model: str,
    device: list[str],
    run: dict[str, Any],
    name_of: Callable[[str], str],
    ask: "Callable[[Asked, DeviceNamed, InUse], Out]",
) -> Out:
    """The answer to a request of options.

    Raises:
        InputError: an option is not valid, or the request cannot be answered.
    """
    from forerun.service.problems import valid

    devices = o.devices_known()
    chosen = devices.get(o.only_device(device))
    described = described_model(model) | run.get("model", {})
    asked = valid(kind, {**run, "model": described, "device": chosen.name}, name_of)
    in_use = o.in_use(devices, "llm_training", [chosen])
    with working("searching layouts"):
        return ask(asked, lambda _: chosen, in_use)
