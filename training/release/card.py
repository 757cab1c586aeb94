"""The model card that is stored with a predictor, as Markdown.

Model cards follow Mitchell et al.: "Model Cards for Model Reporting", FAT* 2019, arXiv:1810.03993.
`card.md` is its template. The text is a deterministic function of its data, because the card is
hashed with the artifact.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from forerun.data.markdown import NONE, markdown
from forerun.data.metrics import metric
from forerun.models.artifact.training_record import TrainingRecord
from forerun.training.published.figures import published_for

PACKAGES = ("forerun", "lightgbm", "numpy", "onnx", "torch")
"""Packages whose versions a card names."""
Row = Mapping[str, Any]


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
        calibrated = [
            (evaluation, task)
            for evaluation, task in self._rows("tasks")
            if task["coverage_90"] is not None and task.get("score") != "mae"
        ]
        return markdown(
            "forerun.training.release",
            "card.md",
            card=self,
            baselines=_baselines,
            metric=metric,
            published_for=published_for,
            calibrated=calibrated,
            conditional=self._rows("conditional_coverage"),
        )

    def _rows(self, field: str) -> list[tuple[Row, Row]]:
        """The rows of one field of all evaluations, each after its evaluation."""
        return [(given, row) for given in self.evaluations for row in given.get(field, ())]


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
            f"{record.rows[name]:,}" if name in record.rows else NONE,
            ", ".join(record.seen(name).get("device", ())) or NONE,
            f"`{digest[:16]}`",
            sources.get(name, ""),
        )
        for name, digest in sorted(record.digests.items())
    ]


def _baselines(tasks: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for task in tasks for name in task["baselines"]))
