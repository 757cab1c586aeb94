"""The model card that is stored with a predictor, as Markdown.

Model cards follow Mitchell et al.: "Model Cards for Model Reporting", FAT* 2019, arXiv:1810.03993.
The text is a deterministic function of its data, so that the card can be part of the artifact that
is hashed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from forerun.data.metrics import metric
from forerun.models.artifact.training_record import TrainingRecord
from forerun.training.published.figures import Published, published_for

PACKAGES = ("forerun", "lightgbm", "numpy", "onnx", "torch")
"""Packages whose versions a card names."""
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
        trained_on: name, rows, devices, digest, and citation with licence of each dataset that the
            predictors were trained on, as `training_datasets_of` gives them.
        evaluations: results of `forerun.training.evaluation.evaluate.evaluate`, by dataset.
        limits: known limitations; one line each.
        command: shell commands that rebuild the artifact.
        created: date of creation, ISO 8601.
        commit: git commit of the code; None when not known.
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
            _calibration_table(self.evaluations),
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
    """Texts about the datasets of a training record, sorted by name.

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


def _scores(evaluation: Mapping[str, Any]) -> str:
    dataset, tasks = str(evaluation["dataset"]), evaluation["tasks"]
    plain = [task for task in tasks if task.get("score") != "mae"]
    own = [task for task in tasks if task.get("score") == "mae"]
    parts = [f"### {dataset}", _percent_table(plain) if plain or not own else ""]
    if own:
        parts += [OWN_SCALE, _own_scale_table(own)]
    figures = published_for(dataset)
    parts += ["Reported on this dataset:", _published_table(figures)] if figures else []
    return "\n\n".join(filter(None, parts))


def _percent_table(tasks: Sequence[Mapping[str, Any]]) -> str:
    baselines = list(dict.fromkeys(name for task in tasks for name in task["baselines"]))
    head = ["task", "device", "metric", "n", "MAPE", "median", "within 10 %", "Spearman"]
    rows = [
        [
            task["task"],
            task["device"] or "all",
            metric(task["metric"]).name,
            f"{task['n']:,}",
            f"**{_percent(task['mape'])}**",
            _percent(task["median_ape"]),
            _percent(task.get("within_10pct")),
            _number(task.get("spearman")),
            *(_percent(task["baselines"].get(name)) for name in baselines),
        ]
        for task in tasks
    ]
    spoken = [f"MAPE of {name.replace('_', ' ')}" for name in baselines]
    return _table([*head, *spoken], rows)


def _own_scale_table(tasks: Sequence[Mapping[str, Any]]) -> str:
    baselines = list(dict.fromkeys(name for task in tasks for name in task["baselines"]))
    head = ["task", "predictor", "n", "error", "repeats", "AUC for < 0.9", "inside the interval"]
    head.append("median ratio")
    rows = [
        [
            task["task"],
            f"`{task['predictor']}`",
            f"{task['n']:,}",
            f"**{_share(task.get('mae'))}**",
            _share(task.get("mae_of_repeats")),
            _number(task.get("auc_below_0.9")),
            _percent(task["coverage_90"]),
            _number(task.get("median_interval_ratio")),
            *(_share(task.get(f"mae_{name}")) for name in baselines),
        ]
        for task in tasks
    ]
    return _table([*head, *(name.replace("_", " ") for name in baselines)], rows)


def _published_table(figures: Sequence[Published]) -> str:
    return _table(
        ["system", "task", "MAPE", "n", "mean over", "source"],
        [
            [
                f.system + (" (our floor)" if f.own else ""),
                f.task,
                _percent(f.value),
                _NONE if f.n is None else str(f.n),
                f.over,
                f.citation,
            ]
            for f in figures
            if f.score == "mape"
        ],
    )


def _calibration_table(evaluations: Sequence[Mapping[str, Any]]) -> str:
    return _table(
        ["dataset", "task", "device", "n", "inside the interval", "median ratio"],
        [
            [
                str(evaluation["dataset"]),
                task["task"],
                task["device"] or "all",
                f"{task['n']:,}",
                _percent(task["coverage_90"]),
                _number(task.get("median_interval_ratio")),
            ]
            for evaluation in evaluations
            for task in evaluation["tasks"]
            if task["coverage_90"] is not None and task.get("score") != "mae"
        ],
    )


def _conditional(evaluations: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    """The card's section on conditional coverage; empty where no evaluation has it."""
    rows = [
        [
            str(evaluation["dataset"]),
            entry["task"],
            entry["device"] or "all",
            entry["by"],
            f"{entry['groups']:,}",
            _percent(entry["coverage_90"]),
            f"**{_percent(entry['coverage'])}**",
            ", ".join((entry["coverage_group"] or {}).values()),
            _percent(entry["mape"]),
        ]
        for evaluation in evaluations
        for entry in evaluation.get("conditional_coverage", ())
    ]
    if not rows:
        return ()
    head = ["dataset", "task", "device", "by", "groups", "all rows", "worst tenth", "least covered"]
    return (
        "### By groups of rows\n\n"
        "Coverage of the tenth of the groups (of 20 rows or more) that is covered least, and mean "
        "error of the tenth with the largest. `interval` groups rows by the size of theirs.",
        _table([*head, "error of the worst tenth"], rows),
    )


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
