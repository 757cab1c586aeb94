"""What the page *Predict* shows: answers of several devices, and their charts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from forerun.data.device import Device
from forerun.data.errors import InputError
from forerun.data.query import Query
from forerun.service.answers.answer import answers_to
from forerun.service.answers.question import Question
from forerun.service.http.answers import Answers
from forerun.service.http.pages.numbers import label
from forerun.service.http.pages.refused import Refused, refusals
from forerun.service.http.pages.run_form import RunForm
from forerun.service.schemas.answers import PredictionOut
from forerun.service.schemas.prediction import LARGEST_BATCH

METRICS: Mapping[str, str] = {
    "latency_ms": "Time of one run",
    "peak_memory_mib": "Peak memory",
    "power_w": "Average power",
    "energy_j": "Energy of one run",
}
"""Metric -> heading, for the metrics that the page shows."""

LARGEST_CURVE = 1024
"""Largest batch size of the curves, unless the form asks for more."""


@dataclass(frozen=True)
class DeviceAnswer:
    """The answer for one device, or why there is none.

    Attributes:
        device: the spec sheet.
        query: what was asked.
        answer: the prediction; None where there is none.
        problem: why there is none, in one line.
    """

    device: Device
    query: Query
    answer: PredictionOut | None
    problem: str | None

    @property
    def refusal(self) -> str:
        """Why it cannot run as asked, in one line; empty where nothing prevents it."""
        return refusals(self.answer.limit_details) if self.answer else ""


@dataclass(frozen=True)
class BatchPoint:
    """The answer for one device at one batch size."""

    device: Device
    batch_size: int
    answer: PredictionOut


def device_answers(form: RunForm, answers: Answers) -> list[DeviceAnswer]:
    """The answer for every device of the form, in its order.

    Raises:
        UnknownGraph, UnknownDevice: a name of the form is not known.
        BadTrainingSetup: the options contradict each other.
    """
    names = dict.fromkeys(form.devices)
    questions = [replace(answers.question(form.asked(name)), explain=True) for name in names]
    outcomes = answers_to(questions, answers.adaptation.current())
    return [_of(*pair) for pair in zip(questions, outcomes, strict=True)]


def refused_runs(
    form: RunForm, found: Iterable[DeviceAnswer], path: str, answers: Answers
) -> list[Refused]:
    """The devices on which the network cannot run, with the largest batch size that can.

    Args:
        form: what is asked.
        found: the answer for each device.
        path: path of the page that asks.
        answers: answers the same at smaller batch sizes.
    """
    return [_refused(form, each, path, answers) for each in found if each.refusal]


def _refused(form: RunForm, each: DeviceAnswer, path: str, answers: Answers) -> Refused:
    own = form.model_copy(update={"devices": [each.device.name]})
    sizes = [2**power for power in range((form.batch_size - 1).bit_length())]
    points = batch_points(own, answers, sizes)
    able = [one.batch_size for one in points if not refusals(one.answer.limit_details)]
    subject = f"{form.named} on {label(each.device)}"
    if not able:
        return Refused(subject, each.refusal)
    nearest, address = max(able), own.address(path, batch_size=max(able))
    return Refused(subject, each.refusal, f"batch size {nearest:,}", address)


def batch_points(form: RunForm, answers: Answers, sizes: list[int]) -> list[BatchPoint]:
    """The answers over devices and batch sizes; those that cannot be given are left out."""
    questions = [
        answers.question(form.asked(name, size))
        for name in dict.fromkeys(form.devices)
        for size in sizes
    ]
    outcomes = answers_to(questions, answers.adaptation.current())
    at = sizes * len(dict.fromkeys(form.devices))
    return [
        BatchPoint(question.query.device, size, outcome)
        for question, size, outcome in zip(questions, at, outcomes, strict=True)
        if not isinstance(outcome, InputError)
    ]


def batch_sizes(chosen: int) -> list[int]:
    """Powers of two from 1 to `LARGEST_CURVE` or twice the chosen batch size, and that size."""
    most = min(LARGEST_BATCH, max(LARGEST_CURVE, 2 * chosen))
    powers = {2**exponent for exponent in range(most.bit_length()) if 2**exponent <= most}
    return sorted(powers | {chosen})


def _of(question: Question, outcome: PredictionOut | InputError) -> DeviceAnswer:
    device = question.query.device
    if isinstance(outcome, InputError):
        return DeviceAnswer(device, question.query, None, str(outcome))
    return DeviceAnswer(device, question.query, outcome, None)
