"""Grades each estimate: A measured on this device, B calibrated, C extrapolated."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from forerun.data.language_models.deployment import LlmDeployment
from forerun.data.query import Query
from forerun.data.workload import Benchmark, Kernel, Network
from forerun.features.operators.kinds import CLASS_OF_NAME
from forerun.models.artifact.training_record import (
    LEAST_COVERAGE,
    Judged,
    Setting,
    TrainingRecord,
    setting_of,
)
from forerun.models.catalog import training_datasets
from forerun.models.limit import Grade, Limit
from forerun.models.prediction import Estimate

OPERATOR_KEYS = frozenset({"op_class", "kernel_class", "op_shape"})
"""Grouping keys that identify datasets of single operators where rows are not counted."""
ENERGY = "energy_j"
IN_SHORT: Mapping[str, str] = {
    "device_novelty": "this GPU differs from those measured in this precision",
    "kernel_mix_novelty": "the network's kernels differ from those of the measured networks",
}
"""Feature of a limit -> short explanation that replaces the limit's figures."""
ENOUGH_ROWS = 20
"""Rows in one precision, phase and runtime from which a device counts as measured."""
ELSEWHERE = "not measured on this device; the interval was validated on held-out devices"
OPERATORS_ALONE = "single operators, but no whole networks, were measured on this device"
ON_THIS_DEVICE = "measured on this device, and inside the range of these measurements"
MEASURED = "measured, and inside the range of these measurements"
ADAPTED = "adapted to your measurements on this device"
UNCALIBRATED = (
    "extrapolated: the interval is an engineering estimate, not calibrated on measurements"
)


@dataclass(frozen=True, slots=True)
class Trust:
    """The grade of an estimate and its reason.

    Attributes:
        grade: the grade.
        reason: the reason in one sentence.
    """

    grade: Grade
    reason: str


@dataclass(frozen=True)
class Evidence:
    """The evidence shared by answers to queries that differ only in batch size.

    Attributes:
        record: the training set of the predictors.
        predictors: metric -> name of its predictor; without derived metrics.
        adapted: metric -> subject (see `subject_of`) -> number of the user's rows on this device
            that the predictors were adapted to.
    """

    record: TrainingRecord
    predictors: Mapping[str, str]
    adapted: Mapping[str, Mapping[Setting, int]] = field(default_factory=dict)

    def by_measurements(self, metric: str, query: Query) -> Trust | None:
        """The grade from the user's measurements of the query's subject on this device.

        None if they are too few. A network needs as many as in a release. Adapted to operators
        alone, predictions of networks on held-out GPUs were off by a fifth, and the intervals of
        unseen devices held 92 % of them.
        """
        rows = self.adapted.get(metric, {}).get(subject_of(query, metric), 0)
        fewest = ENOUGH_ROWS if isinstance(query.workload, Network) else 1
        return Trust("A", ADAPTED) if rows >= fewest else None

    def by_device(self, metric: str, query: Query) -> Trust:
        """The grade from training data on this device; independent of the batch size."""
        if metric not in self._by_device:
            self._by_device[metric] = _by_device(metric, query, self)
        return self._by_device[metric]

    @cached_property
    def _by_device(self) -> dict[str, Trust]:
        return {}


def subject_of(query: Query, metric: str) -> Setting:
    """The subject of a measurement: its setting, of which an operator has only its class, in place
    of the kind, and a served language model also its model.
    """
    workload, setting = query.workload, setting_of(query, metric)
    if isinstance(workload, LlmDeployment):
        return replace(setting, kind=f"{workload.kind} {hash(workload.model)}")
    if isinstance(workload, Kernel):
        return Setting(setting.device, CLASS_OF_NAME[workload.operator.kind], metric)
    return setting


def trust_in(
    metric: str,
    estimates: Mapping[str, Estimate],
    query: Query,
    limits: Sequence[Limit],
    evidence: Evidence,
) -> Trust:
    """The grade of one estimate, with its reason.

    Energy computed as power times time gets the lower of the two grades.

    Args:
        metric: a metric in `estimates`.
        estimates: metric -> estimate.
        query: the answered query.
        limits: limits of the answer.
        evidence: the evidence behind the answer.
    """
    if metric == ENERGY and metric not in evidence.predictors and "power_w" in estimates:
        parts = ("latency_ms", "power_w")
        grades = [trust_in(part, estimates, query, limits, evidence) for part in parts]
        worst = max(grades, key=lambda trust: trust.grade)
        which = "time" if worst is grades[0] else "power"
        return Trust(worst.grade, f"power times time; of the {which}: {worst.reason}")
    by_limits = trust_by([limit for limit in limits if _concerns(limit, metric)])
    if by_limits.grade == "C":
        return by_limits
    if estimates[metric].coverage is None:
        return Trust("C", UNCALIBRATED)
    by_measurements = evidence.by_measurements(metric, query)
    if by_measurements is not None:
        return by_measurements
    by_device = evidence.by_device(metric, query)
    both = [by_device, by_limits]
    if by_limits.grade == "B" and not evidence.adapted.get(metric):
        both.reverse()
    return max(both, key=lambda trust: trust.grade)


def trust_by(limits: Sequence[Limit]) -> Trust:
    """The grade of a calibrated estimate from its limits alone."""
    refusal = _sentence(limits, "refusal")
    if refusal is not None:
        return Trust("C", f"it cannot run as asked: {refusal}")
    beyond, transfer = _sentence(limits, "outside"), _sentence(limits, "transfer")
    if beyond is not None:
        return Trust("C", f"extrapolated: {beyond}")
    if transfer is not None:
        return Trust("B", f"calibrated: {transfer}")
    return Trust("A", MEASURED)


def _concerns(limit: Limit, metric: str) -> bool:
    """Whether a limit concerns a metric; a refusal concerns all."""
    return limit.concerns(metric) or limit.severity == "refusal"


def _sentence(limits: Iterable[Limit], severity: str) -> str | None:
    """The first limit of a severity in plain words; None if there is none."""
    for limit in limits:
        if limit.severity == severity:
            return IN_SHORT.get(limit.feature or "") or limit.message or str(limit)
    return None


def _datasets(metric: str, query: Query, evidence: Evidence) -> list[str]:
    """Training datasets of the predictor of a metric; for operators, only those of operators."""
    name = evidence.predictors.get(metric)
    workload = query.workload
    suite = (workload.suite,) if isinstance(workload, Benchmark) else ()
    names = () if name is None else (*training_datasets(name), *suite)
    known = [dataset for dataset in dict.fromkeys(names) if evidence.record.seen(dataset)]
    if query.workload.kind == "kernel":
        return [dataset for dataset in known if "kernel" in _kinds(dataset, evidence.record)]
    return known


def _by_device(metric: str, query: Query, evidence: Evidence) -> Trust:
    name, record, datasets = query.device.name, evidence.record, _datasets(metric, query, evidence)
    is_network = isinstance(query.workload, Network)
    own = evidence.adapted.get(metric, {}) if is_network else {}
    having = [dataset for dataset in datasets if "device" in record.seen(dataset)]
    if datasets and not having:
        return _not_judged(metric, query, datasets, record) or Trust("A", MEASURED)
    measured = [dataset for dataset in having if name in record.seen(dataset)["device"]]
    other_run = _other_run(metric, query, having, evidence) if is_network else None
    if other_run is not None and other_run.grade == "C":
        return other_run
    if not measured and not own:
        return Trust("B", f"calibrated: {ELSEWHERE}")
    kinds = frozenset().union(*(_kinds(d, record, device=name, metric=metric) for d in measured))
    kinds |= {"network" if setting.kind == "network" else "kernel" for setting in own}
    if is_network and "kernel" in kinds and "network" not in kinds:
        return Trust("B", f"calibrated: {OPERATORS_ALONE}")
    lower = other_run or _not_judged(metric, query, measured, record)
    return lower or Trust("A", ON_THIS_DEVICE)


def _other_run(
    metric: str, query: Query, datasets: Sequence[str], evidence: Evidence
) -> Trust | None:
    """The grade where a network's device was hardly measured in this precision, phase and runtime.

    C where hardly any device was. None where it was measured, or where rows were not counted.
    """
    record = evidence.record
    counted = [record.counts[dataset] for dataset in datasets if dataset in record.counts]
    if not datasets or len(counted) < len(datasets):
        return None
    asked = setting_of(query, metric)
    own = evidence.adapted.get(metric, {}).get(asked, 0)
    rows = own + sum(counts.get(asked, 0) for counts in counted)
    if rows >= ENOUGH_ROWS:
        return None
    run = f"{asked.precision}, {asked.runtime}, {asked.phase}"
    how_often = f"{rows} times" if rows else "never"
    if record.rows_on_any_device(asked) + own < ENOUGH_ROWS:
        return Trust("C", f"extrapolated: few networks were measured in this configuration ({run})")
    return Trust(
        "B", f"calibrated: this device was measured, but {how_often} in this configuration ({run})"
    )


def _not_judged(
    metric: str, query: Query, datasets: Sequence[str], record: TrainingRecord
) -> Trust | None:
    """Grade B where answers of this kind about held-out runs do not show that intervals hold.

    None where they do, or where the release does not record it.
    """
    setting = setting_of(query, metric)
    if record.is_covered(setting) or not all(dataset in record.judged for dataset in datasets):
        return None
    return Trust("B", f"calibrated: {checked(record.runs_judged(setting))}")


def checked(judged: Judged) -> str:
    """What held-out runs of a setting say that is not covered."""
    runs, held = judged
    if not runs:
        return "no answer of this kind on this device was validated"
    return (
        f"the interval contained {held:,.0f} of {runs:,.0f} held-out runs of this kind, too "
        f"few to confirm a coverage of {100 * LEAST_COVERAGE:.0f} %"
    )


def _kinds(
    dataset: str, record: TrainingRecord, *, device: str | None = None, metric: str | None = None
) -> frozenset[str]:
    """Kinds of workloads among the training rows of a dataset.

    Args:
        dataset: name of the dataset.
        record: the training set. Where it counts no rows, grouping keys identify operator data.
        device: only rows of this device.
        metric: only rows with a value of this metric.
    """
    if dataset not in record.counts:
        of_operators = not OPERATOR_KEYS.isdisjoint(record.seen(dataset))
        return frozenset({"kernel" if of_operators else "network"})
    return frozenset(
        setting.kind
        for setting in record.counts[dataset]
        if device in (None, setting.device) and metric in (None, setting.metric)
    )
