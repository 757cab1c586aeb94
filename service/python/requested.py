"""Workloads that are given in the form of POST /v1/predict: architectures, designs, benchmarks."""

from collections.abc import Mapping, Sequence
from typing import Any

from forerun.data.device import Device
from forerun.data.errors import InputError
from forerun.service.answers.answer import answer_of
from forerun.service.answers.requested import question_of, request_of
from forerun.service.python.answer import Answer
from forerun.service.python.question import SOFTWARE
from forerun.service.python.run_options import checked_run
from forerun.service.python.session import DeviceLike, Session

OF_OPERATORS = ("kernel", "network")


def is_request(model: Any) -> bool:
    """Whether a model is a workload without operators, as a mapping with its kind."""
    return isinstance(model, Mapping) and model.get("kind", "network") not in OF_OPERATORS


def requested(
    workload: Mapping[str, Any],
    device: DeviceLike,
    metrics: Sequence[str] | None,
    options: Mapping[str, Any],
    here: Session,
    *,
    explain: bool = False,
) -> Answer:
    """The answer about a workload that names its kind.

    Args:
        workload: the field `workload` of POST /v1/predict.
        device: name, spec sheet or its path; a name may be that of a device that only the training
            set has.
        metrics: names of the requested metrics; all that the workload can have when None.
        options: `runtime`, `layout`, `threads`, `power_limit_w`.
        here: the session.
        explain: whether the answer divides its estimate among parts.

    Raises:
        InputError: the workload, the device, an option or a metric is not valid.
    """
    run = checked_run(options)
    superfluous = sorted(set(options) - {*SOFTWARE, "power_limit_w"})
    if superfluous:
        raise InputError(f"{superfluous[0]}: write it into the workload, which has 'kind'.")
    named = device if isinstance(device, str) else here.device(device)
    software = {name: getattr(run, name) for name in SOFTWARE if options.get(name) is not None}
    asked = request_of(
        {
            "workload": dict(workload),
            "device": named.model_dump() if isinstance(named, Device) else named,
            "software": software,
            "operation": {"power_limit_w": run.power_limit_w},
            "metrics": None if metrics is None else list(metrics),
            "explain": explain,
        }
    )
    in_use = here.in_use
    question = question_of(asked, here.devices.get, here.graphs.get, in_use.loaded.predictor)
    return Answer.of(str(workload["kind"]), question.query, answer_of(question, in_use))
