"""Versions of the predictors in MLflow's model registry.

The alias `champion` marks the version in use, and `candidate` the version on trial.

A version is an MLflow model that a run logged. It holds the sealed folder of a predictor: text and
JSON, so that nothing is unpickled. The service fetches the champion in a short-lived process,
`python -m forerun.training.release.registry fetch`, and so never imports mlflow itself.
"""

import argparse
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from forerun.data.bundle import home
from forerun.data.errors import BadArtifact, InputError, PromotionRefused, UnknownModelVersion
from forerun.models.artifact.sealed_folder import MANIFEST, check
from forerun.training.release.promotion import Difference, differences
from forerun.training.tracking.runs import (
    PREDICTOR_FOLDER,
    Run,
    connect,
    tracking_uri,
)
from forerun.training.tracking.stores import MODEL, database_file

CHAMPION = "champion"
CANDIDATE = "candidate"
_HASH_TAG = "predictor.version"
_HISTORY_TAG = "champion.history"
FORCED_TAG = "promotion.forced"
"""JSON with the reason for a promotion despite regressions, and their list."""
TRIAL_TAG = "trial"
"""JSON with the UTC times at which the last trial of a version began and ended, and its outcome."""
_LONGEST_TAG = 4500
"""MLflow stores up to 5,000 characters in a tag of a version."""
_HASH = re.compile(r"[0-9a-f]{12}")
_REMEMBERED = 50


def register(run: Run, folder: Path) -> int:
    """Log a sealed predictor to a run and register it as a new version; no alias moves.

    Args:
        run: a run that is being written.
        folder: sealed predictor; its `card.md` becomes the version's description.

    Returns:
        The version's number.

    Raises:
        BadArtifact: the folder is damaged or holds a forbidden kind of file.
    """
    manifest = run.predictor(folder)
    card = folder / "card.md"
    if _model(run.client) is None:
        run.client.create_registered_model(
            MODEL, description="Latency, memory and power of workloads on given hardware."
        )
    version = run.client.create_model_version(
        MODEL,
        source=f"{run.artifacts}/{PREDICTOR_FOLDER}",
        run_id=run.id,
        tags={_HASH_TAG: manifest.version, "created": manifest.created},
        description=card.read_text() if card.is_file() else None,
    )
    return int(version.version)


def promote(
    version: int, uri: str | None = None, *, reason: str | None = None
) -> tuple[Difference, ...]:
    """Make a registered version the champion; `rollback` can restore the one it replaces.

    Args:
        version: number returned by `register`.
        uri: as in `forerun.training.tracking.runs.tracking_uri`.
        reason: why to promote the version despite regressions; stored with them in the version's
            tag `promotion.forced`. Without a reason, a version with regressions is refused.

    Returns:
        Differences from the previous champion (the bundled predictors if there was none),
        regressions first.

    Raises:
        UnknownModelVersion: the registry has no such version.
        PromotionRefused: the version has regressions and no reason is given; the error carries
            all differences.
        BadArtifact: what the registry holds is not what was registered.
    """
    client = _holding(version, uri)
    current = _number(client, CHAMPION)
    if current == version:
        return ()
    changes = compared(version, uri)
    lost = [change.text() for change in changes if change.lost]
    if lost and not reason:
        raise PromotionRefused(str(version), lost, changes)
    if lost:
        forced = json.dumps({"reason": reason, "against": current, "lost": lost})
        client.set_model_version_tag(MODEL, str(version), FORCED_TAG, forced[:_LONGEST_TAG])
    if current is not None:
        _remember(client, [*_history(client), current])
    client.set_registered_model_alias(MODEL, CHAMPION, str(version))
    if _number(client, CANDIDATE) == version:
        _end_trial(client, version, "promoted")
    return changes


def try_out(version: int, uri: str | None = None) -> None:
    """Make a registered version the candidate, which services try on a share of their requests.

    Args:
        version: number returned by `register`.
        uri: as in `forerun.training.tracking.runs.tracking_uri`.

    Raises:
        UnknownModelVersion: the registry has no such version.
        BadArtifact: what the registry holds is not what was registered.
    """
    client = _holding(version, uri)
    _fetched(client, version, uri)
    before = _number(client, CANDIDATE)
    if before not in (None, version):
        _end_trial(client, before, "replaced")
    client.set_registered_model_alias(MODEL, CANDIDATE, str(version))
    if before != version:
        _say_of_trial(client, version, {"began": _now()})


def withdraw(uri: str | None = None) -> None:
    """End the trial of the candidate.

    Raises:
        UnknownModelVersion: there is no candidate.
    """
    client = _existing("on trial", uri)
    number = _number(client, CANDIDATE)
    if number is None:
        raise UnknownModelVersion("on trial", _versions(client))
    _end_trial(client, number, "withdrawn")


def _end_trial(client: Any, version: int | None, how: str) -> None:
    client.delete_registered_model_alias(MODEL, CANDIDATE)
    known = client.get_model_version(MODEL, str(version)).tags.get(TRIAL_TAG, "{}")
    _say_of_trial(client, version, {**json.loads(known), "ended": _now(), "how": how})


def _say_of_trial(client: Any, version: int | None, said: Mapping[str, str]) -> None:
    client.set_model_version_tag(MODEL, str(version), TRIAL_TAG, json.dumps(said))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def compared(version: int, uri: str | None = None) -> tuple[Difference, ...]:
    """Differences of a registered version from the champion, regressions first.

    Without a champion, the version is compared with the bundled predictors, which then answer.

    Args:
        version: number returned by `register`.
        uri: as in `forerun.training.tracking.runs.tracking_uri`.

    Returns:
        The differences; empty if this version is the champion.

    Raises:
        UnknownModelVersion: the registry has no such version.
        BadArtifact: what the registry holds is not what was registered.
    """
    client = _holding(version, uri)
    current = _number(client, CHAMPION)
    if current == version:
        return ()
    candidate = _fetched(client, version, uri)
    if current is not None:
        return differences(_fetched(client, current, uri), candidate)
    with bundled_artifact() as bundled:
        return differences(bundled, candidate)


def bundled_artifact() -> AbstractContextManager[Path]:
    """Folder of the predictors that come with the package."""
    return as_file(files("forerun.models") / "pretrained")


def rollback(uri: str | None = None) -> int | None:
    """Give the champion alias back to the version that held it before.

    Before the first champion, the bundled predictors answered.

    Returns:
        The number of the version that is champion now; None if there is none and the bundled
        predictors answer again.

    Raises:
        UnknownModelVersion: there is no champion to roll back.
    """
    client = _existing("before the champion", uri)
    current, history = _number(client, CHAMPION), _history(client)
    if current is None:
        raise UnknownModelVersion("before the champion", _versions(client))
    # A promotion that was interrupted between its two steps leaves the champion itself on top.
    while history and history[-1] == current:
        history.pop()
    if not history:
        client.delete_registered_model_alias(MODEL, CHAMPION)
        return None
    earlier = history.pop()
    client.set_registered_model_alias(MODEL, CHAMPION, str(earlier))
    _remember(client, history)
    return earlier


def champion(uri: str | None = None) -> Path | None:
    """The champion's sealed folder in FORERUN_HOME/registry, downloaded if it is not there yet.

    Args:
        uri: as in `forerun.training.tracking.runs.tracking_uri`.

    Returns:
        A folder named by the predictor's version hash, every file checked; None if there is no
        registry or no champion.

    Raises:
        BadArtifact: what the registry holds is not what was registered.
    """
    return _marked(CHAMPION, uri)


def candidate(uri: str | None = None) -> Path | None:
    """The candidate's sealed folder, like `champion`; None if there is none."""
    return _marked(CANDIDATE, uri)


def _marked(alias: str, uri: str | None) -> Path | None:
    if _is_absent(uri):
        return None
    client = connect(uri)
    number = _number(client, alias)
    return None if number is None else _fetched(client, number, uri)


def _is_absent(uri: str | None) -> bool:
    """Whether the registry is a missing SQLite file, which connecting would create."""
    file = database_file(tracking_uri(uri))
    return file is not None and not file.is_file()


def _existing(version: str, uri: str | None) -> Any:
    """A client of an existing registry; a missing one is not created.

    Raises:
        UnknownModelVersion: there is no registry, and so no such version.
    """
    if _is_absent(uri):
        raise UnknownModelVersion(version, ())
    return connect(uri)


def _holding(version: int, uri: str | None) -> Any:
    """A client of the registry, after a check that it has a version.

    Raises:
        UnknownModelVersion: it has no such version.
    """
    client = _existing(str(version), uri)
    if str(version) not in _versions(client):
        raise UnknownModelVersion(str(version), _versions(client))
    return client


def _fetched(client: Any, number: int, uri: str | None) -> Path:
    """The sealed folder of a version in FORERUN_HOME/registry, downloaded if necessary."""
    version = client.get_model_version(MODEL, str(number))
    promised = str(version.tags.get(_HASH_TAG, ""))
    if not _HASH.fullmatch(promised):
        raise BadArtifact(f"Version {number} of {MODEL} was not registered by forerun: no hash.")
    folder = home() / "registry" / promised
    if not _is_sound(folder, promised):
        _download(version.source, folder, promised, tracking_uri(uri))
    return folder


def _download(source: str, folder: Path, promised: str, uri: str) -> None:
    import mlflow

    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as place:
        mlflow.artifacts.download_artifacts(artifact_uri=source, dst_path=place, tracking_uri=uri)
        downloaded = next(
            (manifest.parent for manifest in Path(place).rglob(MANIFEST)), Path(place)
        )
        found = check(downloaded).version
        if found != promised:
            raise BadArtifact(
                f"{source} holds predictor {found}, but {promised} was registered; "
                "register and promote it again."
            )
        shutil.rmtree(folder, ignore_errors=True)
        try:
            downloaded.rename(folder)
        except OSError:
            # Another process may have fetched it meanwhile.
            if not _is_sound(folder, promised):
                raise


def _is_sound(folder: Path, promised: str) -> bool:
    try:
        return check(folder).version == promised
    except BadArtifact:
        return False


def _model(client: Any) -> Any:
    """The registered model; None if nothing was registered."""
    found = client.search_registered_models(f"name='{MODEL}'")
    return next((model for model in found if model.name == MODEL), None)


def _versions(client: Any) -> list[str]:
    return sorted(
        (str(v.version) for v in client.search_model_versions(f"name='{MODEL}'")), key=int
    )


def _number(client: Any, alias: str) -> int | None:
    model = _model(client)
    number = None if model is None else model.aliases.get(alias)
    return None if number is None else int(number)


def _history(client: Any) -> list[int]:
    model = _model(client)
    return [] if model is None else [*json.loads(model.tags.get(_HISTORY_TAG, "[]"))]


def _remember(client: Any, history: Sequence[int]) -> None:
    client.set_registered_model_tag(MODEL, _HISTORY_TAG, json.dumps(list(history)[-_REMEMBERED:]))


def main(arguments: Sequence[str] | None = None) -> int:
    """`fetch`: print the folders of the champion and of the candidate as one JSON object.

    `path` and `candidate` are null if there is none; `problem` says why a candidate that the
    registry names could not be fetched.

    Returns:
        Exit code: 0, or 2 with one line on standard error.
    """
    parser = argparse.ArgumentParser(prog="python -m forerun.training.release.registry")
    parser.add_argument("verb", choices=["fetch"], help="download the champion")
    parser.add_argument("--uri", help="MLflow tracking URI")
    given = parser.parse_args(arguments)
    try:
        folder = champion(given.uri)
    except InputError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    tried, problem = None, None
    try:
        tried = candidate(given.uri)
    except InputError as error:  # the champion answers all the same
        problem = str(error)
    names = {"path": folder, "candidate": tried, "problem": problem}
    print(json.dumps({name: value and str(value) for name, value in names.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
