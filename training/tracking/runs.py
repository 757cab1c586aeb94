"""Training runs in MLflow: parameters, datasets, scores, artifacts and the software environment.

This is the only file that writes MLflow runs. By default runs are stored in an SQLite file in
FORERUN_HOME with their artifacts next to it; FORERUN_TRACKING_URI, else MLFLOW_TRACKING_URI, names
another store. Predictors are logged as MLflow models that hold their own text and JSON files, never
a pickle, which would run code when it is loaded: `LOADER` names the module that reads them.
"""

import hashlib
import os
import platform
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from forerun.data.bundle import home
from forerun.data.errors import MissingExtra
from forerun.models.artifact.sealed_folder import Manifest, check
from forerun.models.predictor import Estimator
from forerun.training.tracking.stores import database_file

PACKAGES = (
    "forerun",
    "lightgbm",
    "numpy",
    "pandas",
    "scikit-learn",
    "onnx",
    "onnxruntime",
    "torch",
)


def environment(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """`python`, `platform` and each installed package of `packages` -> its version."""
    where = {"python": platform.python_version(), "platform": platform.platform(terse=True)}
    return where | versions_of(packages)


def versions_of(packages: Sequence[str]) -> dict[str, str]:
    """Package -> its version, for installed packages."""
    found = {}
    for name in packages:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


Plain = bool | int | float | str | None


def flat_parameters(predictor: object) -> dict[str, Plain]:
    """Name -> value of each setting of a predictor, including the estimators among its settings.

    Nested settings are named `OUTER.INNER`, members of tuples by their position. A value that is
    not made of plain values is replaced by the name of its type.

    Args:
        predictor: an estimator; any other object has no settings.
    """
    if not isinstance(predictor, Estimator):
        return {}
    found: dict[str, Plain] = {}
    for name, value in predictor.get_params(deep=False).items():
        found |= _flat(name, value)
    return found


def _flat(name: str, value: object) -> dict[str, Plain]:
    """A value as plain values, whose names begin with `name`."""
    if value is None or isinstance(value, bool | int | float | str):
        return {name: value}
    inner: dict[str, object]
    if isinstance(value, Estimator):
        inner = {"predictor": getattr(value, "name", type(value).__name__)}
        inner |= value.get_params(deep=False)
    elif isinstance(value, Mapping):
        inner = {str(key): part for key, part in value.items()}
    elif isinstance(value, list | tuple):
        inner = {str(position): part for position, part in enumerate(value)}
    elif is_dataclass(value):
        inner = {f.name: getattr(value, f.name) for f in fields(value)}
    else:
        return {name: type(value).__name__}
    return {
        key: v
        for part, part_value in inner.items()
        for key, v in _flat(f"{name}.{part}", part_value).items()
    }


EXPERIMENT = "forerun"
PREDICTOR_FOLDER = "predictor"
LOADER = "forerun.service.python.mlflow_model"
"""Module that MLflow imports when it loads a version, to call its `_load_pyfunc`."""
REQUIRED = ("workload", "device")
OPTIONAL = ("software", "operation", "metrics", "level", "explain")
"""Fields of a request of POST /v1/predict: the columns of the model's input."""
EXAMPLE = {
    "workload": {"kind": "network", "graph": "resnet50", "batch_size": 64, "precision": "amp"},
    "device": "l4",
}
_LONGEST_PARAMETER = 6000
_LONGEST_DESCRIPTION = 8000


def tracking_uri(uri: str | None = None) -> str:
    """Where runs and versions are kept.

    Args:
        uri: an MLflow tracking URI; when None, FORERUN_TRACKING_URI, then MLFLOW_TRACKING_URI, then
            the SQLite file `mlflow.db` in FORERUN_HOME.
    """
    named = uri or os.environ.get("FORERUN_TRACKING_URI") or os.environ.get("MLFLOW_TRACKING_URI")
    return named or f"sqlite:///{(home() / 'mlflow.db').absolute()}"


def connect(uri: str | None = None) -> Any:
    """An `mlflow.MlflowClient` of the store; a new SQLite file is prepared once, in seconds.

    Raises:
        MissingExtra: mlflow is not installed.
    """
    # MLflow would send usage statistics; users who want that can set these variables to false.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    where = tracking_uri(uri)
    file = database_file(where)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        # MLflow's own use of SQLAlchemy is deprecated; nothing can be done about it here.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            from mlflow import MlflowClient
        except ImportError:
            raise MissingExtra("Tracking runs", "train") from None
        return MlflowClient(tracking_uri=where, registry_uri=where)


def git_commit(folder: Path | None = None) -> str | None:
    """The checked-out commit, with `+changes` if files were modified; None outside git.

    Args:
        folder: a folder of the repository; by default the one with this file.
    """
    where = folder or Path(__file__).resolve().parent
    try:
        commit = _git(where, "rev-parse", "HEAD")
        changed = _git(where, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit}+changes" if changed else commit


def code_state(folder: Path | None = None) -> str | None:
    """`git_commit`, with a hash of the modifications instead of `+changes`.

    Args:
        folder: see `git_commit`.
    """
    commit = git_commit(folder)
    if commit is None or not commit.endswith("+changes"):
        return commit
    changes = _git(folder or Path(__file__).resolve().parent, "diff", "HEAD")
    return f"{commit}-{hashlib.sha256(changes.encode()).hexdigest()[:8]}"


@dataclass(frozen=True, slots=True)
class Run:
    """A training run that is being written; made by `tracked`.

    Attributes:
        client: MLflow client.
        id: MLflow's run id.
        artifacts: URI of the run's artifacts.
    """

    client: Any
    id: str
    artifacts: str

    def parameters(self, values: Mapping[str, object]) -> None:
        """Log settings of the run as text; long ones are truncated to MLflow's limit."""
        from mlflow.entities import Param

        logged = [Param(name, str(value)[:_LONGEST_PARAMETER]) for name, value in values.items()]
        for start in range(0, len(logged), 100):
            self.client.log_batch(self.id, params=logged[start : start + 100])

    def metrics(self, values: Mapping[str, float | int | None]) -> None:
        """Log final scores; None, a score that does not apply, is skipped."""
        self._log((name, value, 0) for name, value in values.items())

    def scores(self, task: str, score: Mapping[str, float | int | None]) -> None:
        """Log one task's scores as metrics `task/field`, such as `unseen_device/bmm/mape`."""
        self.metrics({f"{task}/{field}": value for field, value in score.items()})

    def series(self, name: str, values: Sequence[float | None]) -> None:
        """Log one metric with a value for each step, such as a fold; None is skipped."""
        self._log((name, value, step) for step, value in enumerate(values))

    def _log(self, points: Iterable[tuple[str, float | int | None, int]]) -> None:
        """Log values of metrics at their steps."""
        from mlflow.entities import Metric

        now = int(time.time() * 1e3)
        known = [Metric(name, float(v), now, step) for name, v, step in points if v is not None]
        for start in range(0, len(known), 500):
            self.client.log_batch(self.id, metrics=known[start : start + 500])

    def dataset(
        self, name: str, digest: str, rows: int, source: str = "", context: str = ""
    ) -> None:
        """Log a dataset as an input of this run.

        Args:
            name: name of the bundle.
            digest: hash of its content; its first 36 characters are MLflow's digest.
            rows: number of rows that were used.
            source: origin of the data, such as a repository and commit.
            context: use of the data: `training` or `evaluation`; empty for neither.
        """
        from mlflow.entities import Dataset, DatasetInput, InputTag

        entry = Dataset(name, digest[:36], "bundle", source or name, profile=f'{{"rows": {rows}}}')
        tags = [InputTag("mlflow.data.context", context)] if context else []
        self.client.log_inputs(self.id, datasets=[DatasetInput(entry, tags=tags)])
        self.client.set_tag(self.id, f"dataset.{name}", digest)

    def card(self, markdown: str) -> None:
        """Log the model card as a file and, truncated to MLflow's limit, as a description."""
        self.client.log_text(self.id, markdown, "card.md")
        self.client.set_tag(self.id, "mlflow.note.content", markdown[:_LONGEST_DESCRIPTION])

    def text(self, name: str, content: str) -> None:
        """Log a text file of that name."""
        self.client.log_text(self.id, content, name)

    def table(self, name: str, rows: Sequence[Mapping[str, Plain]]) -> None:
        """Log rows with the same fields as a table; the name ends in `.json`."""
        columns = {field: [row[field] for row in rows] for field in rows[0]}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of MLflow's use of pandas
            self.client.log_table(self.id, columns, name)

    def figure(self, path: Path) -> None:
        """Log an image under `figures/`."""
        self.client.log_artifact(self.id, str(path), "figures")

    def predictor(self, folder: Path) -> Manifest:
        """Log a sealed predictor as an MLflow model, after checking every file's hash.

        Raises:
            BadArtifact: the folder is damaged or holds a forbidden kind of file.
        """
        manifest = check(folder)
        with tempfile.TemporaryDirectory() as place:
            model = Path(place) / PREDICTOR_FOLDER
            _save_model(model, folder)
            self.client.log_artifacts(self.id, str(model), PREDICTOR_FOLDER)
        self.client.set_tag(self.id, "predictor.version", manifest.version)
        return manifest


def _save_model(place: Path, folder: Path) -> None:
    """Write an MLflow model of flavour `python_function` that holds a sealed folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of MLflow about types of its own
        import mlflow.pyfunc
    from mlflow.models import ModelSignature
    from mlflow.types.schema import AnyType, ColSpec, Schema

    columns = [ColSpec(AnyType(), n, required=n in REQUIRED) for n in (*REQUIRED, *OPTIONAL)]
    mlflow.pyfunc.save_model(
        place,
        loader_module=LOADER,
        data_path=str(folder),
        signature=ModelSignature(Schema(columns), Schema([ColSpec(AnyType())])),
        input_example=[EXAMPLE],
        pip_requirements=[f"forerun=={version('forerun')}"],
    )


@contextmanager
def tracked(
    name: str,
    uri: str | None = None,
    *,
    parent: Run | None = None,
    tags: Mapping[str, str] | None = None,
) -> Iterator[Run]:
    """A run, as a context manager: finished at the end of the block, failed if the block raises.

    The checked-out git commit is recorded with it.

    Args:
        name: name in MLflow's list of runs.
        uri: see `tracking_uri`.
        parent: run that this one is a part of; its store is used.
        tags: further tags of the run.

    Raises:
        MissingExtra: mlflow is not installed.
    """
    client = connect(uri) if parent is None else parent.client
    given = {"mlflow.source.name": "forerun train", **(tags or {})}
    commit = git_commit()
    if commit:
        given["mlflow.source.git.commit"] = commit
    if parent is not None:
        given["mlflow.parentRunId"] = parent.id
    begun = client.create_run(_experiment(client, tracking_uri(uri)), run_name=name, tags=given)
    status = "FAILED"
    try:
        yield Run(client, begun.info.run_id, begun.info.artifact_uri)
        status = "FINISHED"
    finally:
        client.set_terminated(begun.info.run_id, status)


def _experiment(client: Any, uri: str) -> str:
    found = client.get_experiment_by_name(EXPERIMENT)
    if found is not None:
        return str(found.experiment_id)
    file = database_file(uri)
    # A server decides itself where artifacts go. With a file as the store, MLflow would write them
    # to the working directory.
    location = None if file is None else (file.parent / "mlartifacts").absolute().as_uri()
    return str(client.create_experiment(EXPERIMENT, artifact_location=location))


def scoreboard_at(commit: str) -> str | None:
    """Content of the scoreboard at a commit, such as `HEAD`; None if it did not exist."""
    try:
        return _git(Path(__file__).parent, "show", f"{commit}:training/scoreboard.json")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(  # noqa: S603
        ["git", "-C", str(folder), *words],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
        timeout=10,
    )
    return done.stdout.strip()
