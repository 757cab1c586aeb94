"""Retraining: a candidate that is adapted to measurements of users, and evaluated on others.

The predictors themselves stay as they are; what is new in a candidate are the measurements that it
comes with and adapts to. A quarter of the workloads is held out, for its evaluation.
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np

from forerun.data.columns import Mask, groups_of
from forerun.data.errors import InputError, UnknownGraph
from forerun.data.graph import OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.models.answers.served_models import InUse
from forerun.models.artifact.examples import FILE as EXAMPLES_FILE
from forerun.models.artifact.examples import examples_text
from forerun.models.artifact.sealed_folder import SUPPORT_FILE, check, seal
from forerun.service.adaptation.held_out import Identity
from forerun.service.adaptation.predictor_in_use import Adaptation, joined
from forerun.service.adaptation.released_measurements import text_of
from forerun.service.schemas.measured_rows import MeasuredRow
from forerun.service.schemas.prediction import KernelIn, NetworkIn
from forerun.service.stores.measurement_sets import MeasurementSet
from forerun.training.retraining.comparison import (
    FILE,
    PREDICTED,
    ROWS_FILE,
    Comparison,
    HeldOutRow,
    held_out,
)
from forerun.training.scores.errors import PairedErrors, SliceChange, compared

MOST_WORKLOADS: Final = 2_000
"""Workloads of a device that a candidate adapts to; the newest count."""
Facts = Callable[[Query], Mapping[str, str]]


class NothingMeasured(InputError):
    """There are no measurements to retrain on."""


@dataclass(frozen=True)
class Snapshot:
    """All measurements that a retraining takes.

    Attributes:
        adapted: sets that the predictor in use adapts to.
        observed: one set for each device with the medians of its observations by workload.
        hash: of all rows; the version of these measurements.
    """

    adapted: tuple[MeasurementSet, ...]
    observed: tuple[MeasurementSet, ...]
    hash: str

    def part(self, *, is_held_out: bool, observed: bool) -> list[MeasurementSet]:
        """The training rows, or those that are held out, of one of both; no empty sets."""
        return [
            own.model_copy(update={"rows": rows})
            for own in (self.observed if observed else self.adapted)
            if (rows := _of_part(own.rows, is_held_out))
        ]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sealed candidate.

    Attributes:
        folder: its folder.
        version: hash of its files.
        comparison: its errors next to the champion's.
    """

    folder: Path
    version: str
    comparison: Comparison


def snapshot(
    adaptation: Adaptation,
    since: Mapping[str, datetime],
    devices: Sequence[str] = (),
) -> Snapshot:
    """The measurements that are stored now.

    Args:
        adaptation: holds the store.
        since: device -> time of its newest lasting change, before which observations do not count.
        devices: names; all when empty.

    Raises:
        NothingMeasured: there are none.
    """
    store = adaptation.store
    wanted = [s for s in store.live() if not devices or s.device in devices]
    adapted = tuple(s.model_copy(update={"request": None, "answer": None}) for s in wanted)
    observed = []
    for device in sorted(set(store.observed()) & (set(devices) or set(store.observed()))):
        sets = [
            own for own in store.live(device, "observe") if own.time >= since.get(device, own.time)
        ]
        if rows := _medians([row for own in sets for row in own.rows]):
            digest = _hash([row.model_dump_json() for row in rows])
            observed.append(
                MeasurementSet(
                    id=f"observed-{digest}", device=device, time=sets[-1].time, rows=rows
                )
            )
    if not adapted and not observed:
        raise NothingMeasured(
            "There are no measurements to retrain on: `forerun observe` and `forerun adapt` store "
            "them, and so does POST /v1/devices/{name}/measurements."
        )
    lines = [f"{s.device} {row.model_dump_json()}" for s in (*adapted, *observed) for row in s.rows]
    return Snapshot(adapted, tuple(observed), _hash(sorted(lines)))


def candidate(
    adaptation: Adaptation, taken: Snapshot, base: Path, output: Path, facts: Facts
) -> Candidate:
    """Adapt, compare with the champion on held-out rows, and seal; a finished one is kept.

    Args:
        adaptation: the champion as it was loaded, and the graphs of measurements.
        taken: the measurements.
        base: folder of the champion.
        output: folder of the candidate; complete once it exists.
        facts: query -> property (kind, family, precision) -> value.
    """
    if output.is_dir():
        comparison = Comparison.model_validate_json((output / FILE).read_bytes())
        return Candidate(output, check(output).version, comparison)
    own = taken.part(is_held_out=False, observed=False)
    training = [*own, *taken.part(is_held_out=False, observed=True)]
    evaluated = [
        made for kind in (False, True) for made in taken.part(is_held_out=True, observed=kind)
    ]
    rows = _held_out_rows(
        adaptation,
        evaluated,
        # The champion adapts to the same rows as anywhere, but not to observations.
        adaptation.adapted_to([*adaptation.released(), *own]),
        adaptation.adapted_to(training),
        facts,
    )
    comparison = Comparison(
        champion=adaptation.base_version,
        measurements=taken.hash,
        training_rows=sum(len(made.rows) for made in training),
        held_out_rows=sum(len(made.rows) for made in evaluated),
        slices=tuple(_slices(rows)),
        unknown=tuple(_unknown(adaptation, training, evaluated, facts)),
    )
    support = text_of(training, _graphs(adaptation, training))
    documents = {
        SUPPORT_FILE: support,
        FILE: comparison.model_dump_json(indent=1) + "\n",
        ROWS_FILE: json.dumps([row.model_dump() for row in rows], indent=1) + "\n",
        EXAMPLES_FILE: examples_text(adaptation.base),
    }
    version = _sealed(base, output, documents)
    return Candidate(output, version, comparison)


def _held_out_rows(
    adaptation: Adaptation,
    sets: Sequence[MeasurementSet],
    champion: InUse,
    retrained: InUse,
    facts: Facts,
) -> list[HeldOutRow]:
    """Measured values that neither was adapted to, next to both predictions."""
    # Rows are remembered by the name of their set, which those that train have as well.
    held = [
        adaptation.measured([made.model_copy(update={"id": f"{made.id}-held-out"})])
        for made in sets
    ]
    rows = joined(part.take(_able(part, champion, retrained)) for part in held if part is not None)
    if not rows:
        return []
    predicted = [one.loaded.predictor.predict(rows.queries).values for one in (champion, retrained)]
    return [
        HeldOutRow(
            metric=metric,
            facts={"device": query.device.name, **facts(query)},
            workload=Identity.of(query).name,
            group=_hash([str(Identity.of(query).group)]),
            measured=float(values[row]),
            in_use=float(predicted[0][metric][row]),
            candidate=float(predicted[1][metric][row]),
        )
        for metric, values in rows.values.items()
        if all(metric in own for own in predicted)
        for row, query in enumerate(rows.queries)
        if all(0 < own[row] < np.inf for own in (values, *(own[metric] for own in predicted)))
    ]


def _slices(rows: Sequence[HeldOutRow]) -> Iterator[SliceChange]:
    """Both errors by slice, metric after metric."""
    for metric, positions in groups_of(row.metric for row in rows).items():
        own = [rows[position] for position in positions]
        measured, *predicted = (np.array([getattr(row, n) for row in own]) for n in PREDICTED)
        by_name = {name: [row.facts[name] for row in own] for name in own[0].facts}
        groups = [row.group for row in own]
        errors = PairedErrors.of(measured, predicted[0], predicted[1], groups, by_name)
        yield from compared(metric, errors)


def _unknown(
    adaptation: Adaptation,
    training: Sequence[MeasurementSet],
    evaluated: Sequence[MeasurementSet],
    facts: Facts,
) -> list[str]:
    """Devices, kinds and families that train a candidate and of which nothing is held out."""
    trained, held = (
        {
            " ".join(filter(None, (query.device.name, *facts(query).values())))
            for made in sets
            if (rows := adaptation.measured([made.model_copy(update={"id": f"{made.id}-{part}"})]))
            is not None
            for query in rows.queries
        }
        for part, sets in (("trained", training), ("held-out", evaluated))
    )
    return sorted(trained - held)


def _able(rows: Measurements, *predictors: InUse) -> Mask:
    """Whether all predictors answer each of n rows, shape (n,)."""
    return np.array(
        [all(one.loaded.predictor.answers(query) for one in predictors) for query in rows.queries],
        dtype=np.bool_,
    )


def _of_part(rows: Sequence[MeasuredRow], is_held_out: bool) -> tuple[MeasuredRow, ...]:
    """The training rows, or the held-out rows."""
    held = held_out([_group(row) for row in rows])
    return tuple(row for row, own in zip(rows, held, strict=True) if own == is_held_out)


def _group(row: MeasuredRow) -> str:
    """What is trained on or held out as a whole: a graph, an operator, or a language model."""
    given = row.workload
    match given:
        case NetworkIn():
            return str(given.graph)
        case KernelIn():
            return given.operator.model_dump_json()
        case _:
            return given.model.model_dump_json()


def _medians(rows: Sequence[MeasuredRow]) -> tuple[MeasuredRow, ...]:
    """One row for each workload with its software: the medians of what was measured of it."""
    plain = [row.model_copy(update={"answer": None, "metrics": {}, "spread": None}) for row in rows]
    groups = groups_of(row.model_dump_json() for row in plain)
    newest = sorted(groups.values(), key=lambda own: own[-1])[-MOST_WORKLOADS:]
    found = []
    for own in newest:
        values: dict[str, list[float]] = {}
        for row in own:
            for name, value in rows[row].measured().items():
                values.setdefault(name, []).append(value)
        metrics = {name: float(np.median(column)) for name, column in sorted(values.items())}
        found.append(plain[own[0]].model_copy(update={"metrics": metrics}))
    return tuple(found)


def _graphs(adaptation: Adaptation, sets: Sequence[MeasurementSet]) -> dict[str, OperatorGraph]:
    """Digest -> graph, of all networks in some sets; a graph that is gone is left out."""
    named = {
        row.workload.graph
        for made in sets
        for row in made.rows
        if isinstance(row.workload, NetworkIn) and isinstance(row.workload.graph, str)
    }
    found = {}
    for digest in named:
        with suppress(UnknownGraph):
            found[digest] = adaptation.graph(digest)
    return found


def _sealed(base: Path, output: Path, documents: Mapping[str, str]) -> str:
    """Copy the predictors with other measurements, and seal them; the folder appears when done."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent) as place:
        folder = Path(place) / output.name
        shutil.copytree(base, folder)
        for name, text in documents.items():
            (folder / name).write_text(text)
        manifest = seal(folder, datetime.now(UTC).date().isoformat())
        folder.rename(output)
    return manifest.version


def _hash(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
