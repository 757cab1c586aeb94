"""The model card that is stored with a predictor, as Markdown.

Model cards follow Mitchell et al.: "Model Cards for Model Reporting", FAT* 2019, arXiv:1810.03993.
The text is a deterministic function of its data, because the card is hashed with the artifact.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from forerun.data.metrics import metric
from forerun.models.artifact.training_record import TrainingRecord
from forerun.training.published.figures import published_for

PACKAGES = ("forerun", "lightgbm", "numpy", "onnx", "torch")
"""Packages whose versions a card names."""
Row = Mapping[str, Any]
Cell = Callable[[Any], str]
_NONE = "–"
OWN_SCALE = (
    "Mean absolute errors of a share. `repeats` is the error between repeated measurements; "
    "baselines stand last."
)


@dataclass(frozen=True)
class Card:
    """Content of a model card.

    Attributes:
        title: heading.
        answers: metrics and workloads that it predicts; one line each.
        trained_on: name, rows, devices, digest, and citation with licence of each training dataset,
            from `training_datasets_of`.
        evaluations: results of `forerun.training.evaluation.evaluate.evaluate`, by dataset.
        limits: known limitations; one line each.
        command: shell commands that rebuild the artifact.
        created: date of creation, ISO 8601.
        commit: git commit of the code; None if unknown.
        versions: package -> version.
    """

    title: str
    answers: Sequence[str]
    trained_on: Sequence[Sequence[str]]
    evaluations: Sequence[Mapping[str, Any]]
    limits: Sequence[str]
    command: str
    created: str
    commit: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)

    def markdown(self) -> str:
        """The card's text, ending in a line break."""
        head = ["dataset", "rows", "devices", "digest", "source"]
        parts = [
            f"# {self.title}",
            "## What it answers\n\n" + _bullets(self.answers),
            "## Trained on\n\n" + _table(head, self.trained_on),
            "## Scores\n\n"
            "Under every protocol, predictors are fitted anew and evaluated on held-out rows. "
            "Errors are absolute percentage errors; MAPE is their mean.",
            *(_scores(evaluation) for evaluation in self.evaluations),
            "## Intervals\n\n"
            "Meant to hold 90 % of measured values; the ratio is high over low, 1 for no width.",
            _calibration(self.evaluations),
            *_conditional(self.evaluations),
            "## Limits\n\n" + _bullets(self.limits),
            "## Rebuild\n\n" + f"```sh\n{self.command}\n```",
            _bullets(self._provenance()),
        ]
        return "\n\n".join(parts) + "\n"

    def _provenance(self) -> Iterable[str]:
        yield f"made on {self.created}"
        yield f"code at commit `{self.commit}`" if self.commit else "code at no known commit"
        yield from (f"{name} {number}" for name, number in sorted(self.versions.items()))


def training_datasets_of(
    record: TrainingRecord, sources: Mapping[str, str]
) -> list[tuple[str, ...]]:
    """Table rows about the datasets of a training record, sorted by name.

    Args:
        record: digests, grouping keys and number of the training rows.
        sources: dataset -> its citation and licence.
    """
    return [
        (
            name,
            f"{record.rows[name]:,}" if name in record.rows else _NONE,
            ", ".join(record.seen(name).get("device", ())) or _NONE,
            f"`{digest[:16]}`",
            sources.get(name, ""),
        )
        for name, digest in sorted(record.digests.items())
    ]


def _scores(evaluation: Row) -> str:
    dataset, tasks = str(evaluation["dataset"]), evaluation["tasks"]
    of_percentages = [task for task in tasks if task.get("score") != "mae"]
    of_shares = [task for task in tasks if task.get("score") == "mae"]
    parts = [
        f"### {dataset}",
        _percent_table(of_percentages) if of_percentages or not of_shares else "",
    ]
    if of_shares:
        parts += [OWN_SCALE, _own_scale_table(of_shares)]
    figures = [figure for figure in published_for(dataset) if figure.score == "mape"]
    parts += ["Reported on this dataset:", _columns(figures, PUBLISHED)] if figures else []
    return "\n\n".join(filter(None, parts))


def _percent_table(tasks: Sequence[Row]) -> str:
    columns: dict[str, Cell] = {
        "task": lambda task: task["task"],
        "device": lambda task: task["device"] or "all",
        "metric": lambda task: metric(task["metric"]).name,
        "n": lambda task: f"{task['n']:,}",
        "MAPE": lambda task: f"**{_percent(task['mape'])}**",
        "median": lambda task: _percent(task["median_ape"]),
        "within 10 %": lambda task: _percent(task.get("within_10pct")),
        "Spearman": lambda task: _number(task.get("spearman")),
    }
    for name in _baselines(tasks):
        columns[f"MAPE of {name.replace('_', ' ')}"] = partial(_mape_of, name)
    return _columns(tasks, columns)


def _mape_of(baseline: str, task: Row) -> str:
    return _percent(task["baselines"].get(baseline))


def _own_scale_table(tasks: Sequence[Row]) -> str:
    columns: dict[str, Cell] = {
        "task": lambda task: task["task"],
        "predictor": lambda task: f"`{task['predictor']}`",
        "n": lambda task: f"{task['n']:,}",
        "error": lambda task: f"**{_share(task.get('mae'))}**",
        "repeats": lambda task: _share(task.get("mae_of_repeats")),
        "AUC for < 0.9": lambda task: _number(task.get("auc_below_0.9")),
        "inside the interval": lambda task: _percent(task["coverage_90"]),
        "median ratio": lambda task: _number(task.get("median_interval_ratio")),
    }
    for name in _baselines(tasks):
        columns[name.replace("_", " ")] = partial(_mae_of, name)
    return _columns(tasks, columns)


def _mae_of(baseline: str, task: Row) -> str:
    return _share(task.get(f"mae_{baseline}"))


def _baselines(tasks: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for task in tasks for name in task["baselines"]))


PUBLISHED: Mapping[str, Cell] = {
    "system": lambda figure: figure.system + (" (our floor)" if figure.own else ""),
    "task": lambda figure: figure.task,
    "MAPE": lambda figure: _percent(figure.value),
    "n": lambda figure: _NONE if figure.n is None else str(figure.n),
    "mean over": lambda figure: figure.over,
    "source": lambda figure: figure.citation,
}
CALIBRATION: Mapping[str, Cell] = {
    "dataset": lambda task: task["dataset"],
    "task": lambda task: task["task"],
    "device": lambda task: task["device"] or "all",
    "n": lambda task: f"{task['n']:,}",
    "inside the interval": lambda task: _percent(task["coverage_90"]),
    "median ratio": lambda task: _number(task.get("median_interval_ratio")),
}
CONDITIONAL: Mapping[str, Cell] = {
    "dataset": lambda entry: entry["dataset"],
    "task": lambda entry: entry["task"],
    "device": lambda entry: entry["device"] or "all",
    "by": lambda entry: entry["by"],
    "groups": lambda entry: f"{entry['groups']:,}",
    "all rows": lambda entry: _percent(entry["coverage_90"]),
    "worst tenth": lambda entry: f"**{_percent(entry['coverage'])}**",
    "least covered": lambda entry: ", ".join((entry["coverage_group"] or {}).values()),
    "error of the worst tenth": lambda entry: _percent(entry["mape"]),
}


def _with_dataset(evaluations: Sequence[Row], field: str) -> list[Row]:
    """The rows of one field of all evaluations, each with its dataset."""
    return [
        {**row, "dataset": str(evaluation["dataset"])}
        for evaluation in evaluations
        for row in evaluation.get(field, ())
    ]


def _calibration(evaluations: Sequence[Row]) -> str:
    tasks = _with_dataset(evaluations, "tasks")
    known = [t for t in tasks if t["coverage_90"] is not None and t.get("score") != "mae"]
    return _columns(known, CALIBRATION)


def _conditional(evaluations: Sequence[Row]) -> Sequence[str]:
    """The card's section on conditional coverage; empty if no evaluation has any."""
    rows = _with_dataset(evaluations, "conditional_coverage")
    if not rows:
        return ()
    return (
        "### By groups of rows\n\n"
        "Coverage of the tenth of the groups (of 20 rows or more) that is covered least, and mean "
        "error of the tenth with the largest. `interval` groups rows by the size of theirs.",
        _columns(rows, CONDITIONAL),
    )


def _columns(rows: Sequence[Any], columns: Mapping[str, Cell]) -> str:
    """A Markdown table; each column has a function that gives the text of a cell."""
    return _table([*columns], [[cell(row) for cell in columns.values()] for row in rows])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return "None."
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split()) or _NONE


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines) or "None."


def _percent(value: float | None) -> str:
    return _NONE if value is None else f"{value:,.1f} %"


def _share(value: float | None) -> str:
    return _NONE if value is None else f"{value:.3f}"


def _number(value: float | None) -> str:
    return _NONE if value is None else f"{value:,.2f}"
