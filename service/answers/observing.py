"""Store observations with the answers about them; the predictor does not adapt to them."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from forerun.data.columns import groups_of
from forerun.data.errors import InputError, in_field
from forerun.data.language_models.deployment import LlmDeployment
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network
from forerun.features.operators.kinds import CLASS_OF_NAME
from forerun.models.answers.served_models import InUse
from forerun.service.adaptation.predictor_in_use import Adaptation, kept_row
from forerun.service.answers.answer import answers_to
from forerun.service.answers.question import Question, question_about
from forerun.service.schemas.answers import EstimateOut
from forerun.service.schemas.measured_rows import (
    MeasuredRow,
    as_measurements,
    check_near,
    check_values,
    names_of,
    queries_of,
)
from forerun.service.schemas.measurements import GivenEstimate, LiveErrorOut, ObservedOut
from forerun.service.schemas.possible_runs import check_possible
from forerun.service.stores.devices import DeviceStore
from forerun.service.stores.measurement_sets import AlreadyStored, MeasurementSet, RepeatableRequest
from forerun.training.monitoring.slices import LiveError


@dataclass(frozen=True, slots=True)
class Observed:
    """Observations as they are stored.

    Attributes:
        kept: the set.
        is_new: whether this request stored it, and not the same request before.
    """

    kept: MeasurementSet
    is_new: bool


def observe(
    adaptation: Adaptation,
    devices: DeviceStore,
    name: str,
    rows: Sequence[MeasuredRow],
    names: Sequence[str] | None = None,
    request: RepeatableRequest | None = None,
    in_use: Callable[[Question], InUse] | None = None,
) -> Observed:
    """Store observations of a device, each with the answer that was given about it.

    Where a row brings no answer to a metric that was measured, it is the one of now. Answers to
    questions do not change.

    Args:
        adaptation: the predictor in use, and the store of measurements.
        devices: spec sheets.
        name: name of the device.
        rows: what was measured.
        names: a name per row for messages.
        request: the request, where it may be repeated.
        in_use: question -> the predictor that answers it; the one in use when None.

    Raises:
        ReusedKey: a request of the same key and of other content stored measurements before.
        UnknownDevice: no device has that name.
        InputError: a row is not valid; the message names it.
        DiskFull, CannotStore: nothing was stored.
    """
    device, store = devices.get(name), adaptation.store
    before = store.before(device.name, request)
    if before is not None:
        return Observed(before, is_new=False)
    check_values(rows, names)
    queries = queries_of(rows, device, adaptation.graph, names)
    current = adaptation.current()
    check_possible(as_measurements(rows, queries), names or names_of(rows))
    answered = _answered(rows, queries, in_use or (lambda question: current))
    _check_near(answered, names or names_of(rows))
    adaptation.keep_graphs(queries)
    kept = [kept_row(row, query) for row, query in zip(answered, queries, strict=True)]
    made = store.new_observations(device.name, kept, [family_of(q) for q in queries], request)
    try:
        store.put(made)
    except AlreadyStored as stored:
        return Observed(stored.before, is_new=False)
    return Observed(made, is_new=True)


def summary_of(stored: MeasurementSet) -> ObservedOut:
    """How good the answers about a set of observations were; equal for equal sets."""
    ratios: dict[str, list[tuple[float, float]]] = {}
    count = 0
    for row in stored.rows:
        found = log_ratios(row)
        count += bool(found)
        for metric, pair in found.items():
            ratios.setdefault(metric, []).append(pair)
    errors = {
        metric: LiveErrorOut(**asdict(LiveError.of(*np.array(pairs, dtype=np.float64).T)))
        for metric, pairs in ratios.items()
    }
    return ObservedOut(
        set=stored.id,
        device=stored.device,
        source="observe",
        rows=len(stored.rows),
        judged=count,
        errors=errors,
    )


def log_ratios(row: MeasuredRow) -> dict[str, tuple[float, float]]:
    """Metric -> log(measured / answered), and whether the interval holds the measured value.

    The latter is 1 or 0, and NaN without an interval. Metrics without an answer are left out.
    """
    found = {}
    for metric, measured in row.measured().items():
        answer = (row.answer or {}).get(metric)
        if answer is not None and measured > 0.0:
            inside = answer.holds(measured)
            ratio = float(np.log(measured / answer.value))
            found[metric] = ratio, float("nan") if inside is None else float(inside)
    return found


def family_of(query: Query) -> str:
    """The family of a workload, by which errors are reported.

    The class of an operator, the architecture of a language model, or what a network is mostly made
    of: transformer, convolutional, recurrent or other.
    """
    workload = query.workload
    if isinstance(workload, LlmDeployment):
        return workload.model.family
    if isinstance(workload, Kernel):
        return CLASS_OF_NAME[workload.operator.kind]
    assert isinstance(workload, Network)
    classes = [CLASS_OF_NAME[operator.kind] for operator in workload.graph.operators]
    if "attention" in classes or ("softmax" in classes and classes.count("bmm") > 1):
        return "transformer"
    return next((name for cls, name in _FAMILIES.items() if cls in classes), "other")


_FAMILIES = {"conv": "convolutional", "recurrent": "recurrent"}


def _answered(
    rows: Sequence[MeasuredRow], queries: Sequence[Query], in_use: Callable[[Question], InUse]
) -> list[MeasuredRow]:
    """The rows with an answer to each measured metric that is answered."""
    missing = {
        index: tuple(name for name in row.measured() if name not in (row.answer or {}))
        for index, row in enumerate(rows)
    }
    asked = [index for index, names in missing.items() if names]
    questions = [question_about(queries[index], missing[index]) for index in asked]
    chosen = [in_use(question) for question in questions]
    found = list(rows)
    for version, places in groups_of(one.loaded.version for one in chosen).items():
        answers = answers_to([questions[place] for place in places], chosen[places[0]])
        for place, answer in zip(places, answers, strict=True):
            row = rows[asked[place]]
            if isinstance(answer, InputError):
                continue
            own = {
                name: _given(estimate, version)
                for name, estimate in answer.metrics.items()
                if estimate is not None and estimate.value > 0.0
            }
            given = {**(row.answer or {}), **own}
            found[asked[place]] = row.model_copy(update={"answer": given})
    return found


def _given(estimate: EstimateOut, version: str) -> GivenEstimate:
    """An estimate as it is kept; a range that is not calibrated is not scored as an interval."""
    if estimate.coverage is None:
        return GivenEstimate(value=estimate.value, version=version)
    return GivenEstimate(
        value=estimate.value, low=estimate.low, high=estimate.high, version=version
    )


def _check_near(rows: Sequence[MeasuredRow], names: Sequence[str]) -> None:
    for position, (row, called) in enumerate(zip(rows, names, strict=True)):
        for metric, measured in row.measured().items():
            answer = (row.answer or {}).get(metric)
            if answer is not None and measured > 0.0:
                with in_field("measurements", position, "metrics", metric):
                    check_near(f"{called}.metrics.{metric}", metric, measured, answer.value)
