"""The steps of a retraining: measurements, candidate, registration; each is done once."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from forerun.data.columns import groups_of
from forerun.data.query import Query
from forerun.service.adaptation.retraining import Candidate, candidate, snapshot
from forerun.service.answers.drift import ALL, drift_here
from forerun.service.answers.observing import family_of
from forerun.service.loading import adaptation_here, artifact_in_use
from forerun.service.settings import Settings
from forerun.training.retraining.comparison import PREDICTED, ROWS_FILE, HeldOutRow
from forerun.training.tracking.runs import tracking_uri

if TYPE_CHECKING:
    from forerun.training.tracking.runs import Run

FOLDER = "retrained"
REGISTERED = "registered.json"


def retrained(
    devices: Sequence[str] = (),
    output: Path | None = None,
    *,
    track: bool = True,
    uri: str | None = None,
) -> tuple[Candidate, int | None]:
    """Adapt the predictors in use to the stored measurements, compare, seal and register.

    Args:
        devices: names of devices; all that were measured when empty.
        output: folder of the candidate; by default one in FORERUN_HOME that is named by the
            measurements and the predictors, so that what is done is not done again.
        track: whether to log the run in MLflow and to register the version.
        uri: MLflow tracking URI.

    Returns:
        The candidate, and the number of its version; None where it is not tracked.

    Raises:
        NothingMeasured: no measurements are stored.
        MissingExtra: tracking without the train extra.
    """
    settings = Settings.load()
    if track and settings.registry_uri is None:
        # What a promotion will replace is what it has to be compared with.
        settings = settings.model_copy(update={"registry_uri": tracking_uri(uri)})
    adaptation, _ = adaptation_here(settings)
    taken = snapshot(adaptation, _changed_since(settings), devices)
    name = hashlib.sha256(f"{taken.hash} {adaptation.base_version}".encode()).hexdigest()[:12]
    folder = output or settings.home / FOLDER / name / "predictor"
    with artifact_in_use(settings) as base:
        made = candidate(adaptation, taken, base, folder, _facts)
    return made, _registered(made, uri) if track else None


def _changed_since(settings: Settings) -> dict[str, datetime]:
    """Device -> since when its observations show the newest lasting change."""
    newest: dict[str, datetime] = {}
    for alarm in drift_here(settings, version=ALL).alarms:
        for change in alarm.slice.changes[-1:]:
            device = alarm.slice.device
            newest[device] = max(change.since, newest.get(device, change.since))
    return newest


def _facts(query: Query) -> Mapping[str, str]:
    workload = query.workload
    precision = getattr(workload, "precision", "")
    return {"kind": workload.kind, "family": family_of(query), "precision": str(precision)}


def _registered(made: Candidate, uri: str | None) -> int:
    """The number of the registered version; a candidate is registered once in a registry."""
    from forerun.training.release import registry
    from forerun.training.tracking import runs

    where, file = runs.tracking_uri(uri), made.folder.parent / REGISTERED
    known: dict[str, int] = json.loads(file.read_text()) if file.is_file() else {}
    key = f"{made.version} {where}"
    if key not in known:
        own = made.comparison
        tags = {"forerun.kind": "retraining", "forerun.champion": own.champion}
        with runs.tracked(f"retrain {own.measurements}", uri, tags=tags) as run:
            run.parameters({"measurements": own.measurements, "champion": own.champion})
            run.dataset("measurements", own.measurements, own.training_rows, context="training")
            for each in own.slices:
                figures = each.model_dump(
                    include={"rows", "groups", "before", "after", "low", "high"}
                )
                run.scores(each.name.replace(" ", "/"), figures)
            _log_rows(run, made)
            known[key] = registry.register(run, made.folder)
        file.write_text(json.dumps(known) + "\n")
    return known[key]


def _log_rows(run: "Run", made: Candidate) -> None:
    """Log the held-out rows as a table, and pictures of both predictions of each metric."""
    from forerun.training.plots import parity

    file = made.folder / ROWS_FILE  # candidates of earlier versions have none
    rows = TypeAdapter(list[HeldOutRow]).validate_json(file.read_bytes() if file.exists() else "[]")
    plain = [{**row.facts, **row.model_dump(exclude={"facts"})} for row in rows]
    if plain:
        run.table("held_out.json", plain)
    for metric, positions in groups_of(row.metric for row in rows).items():
        own = [rows[position] for position in positions]
        devices = [row.facts["device"] for row in own]
        measured, *predicted = ([getattr(row, name) for row in own] for name in PREDICTED)
        with TemporaryDirectory() as place:
            for name, values in zip(PREDICTED[1:], predicted, strict=True):
                picture = Path(place) / f"{metric}-{name}.png"
                title = f"held out, predictors {name.replace('_', ' ')}"
                parity(picture, measured, values, devices, metric_name=metric, title=title)
                run.figure(picture)
