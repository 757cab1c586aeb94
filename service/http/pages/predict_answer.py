"""What the page *Predict* shows: answers of several devices, and their charts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from forerun.data.device import Device
from forerun.data.errors import InputError
from forerun.data.query import Query
from forerun.service.answers.answer import answers_to
from forerun.service.answers.question import Question
from forerun.service.http.answers import Answers
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
