"""Published results of other systems on the same data, listed in every table for comparison.

Figures of other systems are copied from the cited publications. Figures marked `own` are results of
simple baselines that we measured ourselves. All are in `figures.toml`.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True)
class Published:
    """One published result.

    Attributes:
        system: name of the predictor.
        dataset: name of the bundle.
        protocol: protocol with the same training and held-out rows as in the publication.
        part: held-out rows that are scored together; `protocol/part` is a task of `forerun
            evaluate`.
        score: name of the score, one of `forerun.training.scores.errors.score`.
        value: the score; relative errors and shares are in percent.
        over: the rows that the score is averaged over, in the words of the source.
        citation: the publication.
        metric: column of measurements that is predicted.
        n: number of rows, if the source gives it.
        own: True for a baseline that we measured; False for another system's result.
    """

    system: str
    dataset: str
    protocol: str
    part: str
    score: str
    value: float
    over: str
    citation: str
    metric: str = "latency_ms"
    n: int | None = None
    own: bool = False

    @property
    def task(self) -> str:
        """`protocol/part`."""
        return f"{self.protocol}/{self.part}"


def _published() -> Iterator[Published]:
    text = Path(__file__).with_name("figures.toml").read_text(encoding="utf-8")
    for group in tomllib.loads(text)["published"]:
        for system, part, value in group.pop("figures"):
            yield Published(system=system, part=part, value=value, **group)


PUBLISHED: Final = tuple(_published())
"""All published results, by dataset."""


def published_for(dataset: str, task: str | None = None) -> tuple[Published, ...]:
    """Published results on a dataset, or on one of its tasks `protocol/part`; may be empty."""
    return tuple(
        figure for figure in PUBLISHED if figure.dataset == dataset and task in (None, figure.task)
    )
