"""What is learnt about one kind of generative model: boosters, a process, and their middle.

Power share and time over bound come from both; energy over bound, their sum, is learnt a second
time, and its two answers meet half way. Time follows from energy and power, so that none of the
three contradicts another.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from forerun.models.domain.feature_range import FeatureRange
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.serving.features import FEATURES, SCALES, ServingRows
from forerun.models.serving.mixed_effects_gp import MixedEffectsProcess, Spread

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
TARGETS = ("share", "slower", "energy")
SETTINGS: Mapping[str, Any] = {
    "objective": "huber",
    "alpha": 0.3,
    "learning_rate": 0.1,
    "num_leaves": 8,
    "min_data_in_leaf": 10,
    "feature_fraction": 0.5,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
    "lambda_l2": 1.0,
}
SPREADS: Mapping[str, Spread] = {
    "llm_serving": Spread(group=0.05, noise=0.1),
    "diffusion": Spread(group=0.2, noise=0.12),
}
"""Ten diffusion models differ by more that no input tells than thirty language models."""
PROCESS_SHARE = 0.65
"""Of the answer; with language models left out in turn, 0.5 and 0.7 differ by 0.2 points."""
MOST_SHARE = float(np.log(1.02))
"""Of the design power: the limit is held but for short overshoots."""


class LogAnswer(NamedTuple):
    """Logarithms, n of each: power share, time over bound, energy over bound (their sum)."""

    share: Column
    slower: Column

    @property
    def energy(self) -> Column:
        """Energy over what the bound would take at design power."""
        return self.share + self.slower

    @property
    def columns(self) -> Matrix:
        """Shape (n, 3), as in `ServingRows.targets`."""
        return np.column_stack([self.share, self.slower, self.energy])


@dataclass(frozen=True)
class ServingFit:
    """Boosters and process of one kind.

    Attributes:
        kind: of the workloads.
        boosters: one bag a target.
        process: of share and slower.
        ranges: of all features.
    """

    kind: str
    boosters: Mapping[str, BoosterBag]
    process: MixedEffectsProcess
    ranges: FeatureRange

    @classmethod
    def of(
        cls,
        rows: ServingRows,
        targets: Matrix,
        groups: NDArray[np.str_],
        *,
        trees: int,
        seeds: range,
    ) -> Self:
        """Fit on rows.

        Args:
            rows: n rows.
            targets: (n, 3), as in `ServingRows.targets`.
            groups: n models.
            trees: boosting rounds.
            seeds: one booster each.
        """
        boosters = {
            name: BoosterBag.fit(
                rows.features, column, parameters=SETTINGS, trees=trees, seeds=seeds
            )
            for name, column in zip(TARGETS, targets.T, strict=True)
        }
        process = MixedEffectsProcess.fit(
            rows.places(SCALES[rows.kind]), targets[:, :2], groups, SPREADS[rows.kind]
        )
        return cls(
            rows.kind, boosters, process, FeatureRange.of(FEATURES[rows.kind], rows.features)
        )

    def predict(self, rows: ServingRows) -> LogAnswer:
        """Answers to n rows."""
        inside = rows.clipped(self.ranges)
        boosted = {name: bag.predict(inside.features) for name, bag in self.boosters.items()}
        smooth = self.process.predict(inside.places(SCALES[self.kind]))
        mine = 1.0 - PROCESS_SHARE
        share = mine * boosted["share"] + PROCESS_SHARE * smooth[:, 0]
        share = np.minimum(share, MOST_SHARE)
        slower = mine * boosted["slower"] + PROCESS_SHARE * smooth[:, 1]
        energy = mine * boosted["energy"] + PROCESS_SHARE * smooth.sum(axis=1)
        return LogAnswer(share, (energy + share + slower) / 2.0 - share)

    def save(self, folder: Path, way: str) -> dict[str, Any]:
        """Write the boosters under a name; the rest as plain dictionaries and lists."""
        for name, bag in self.boosters.items():
            bag.save(folder, f"{way}-{name}")
        return {
            "kind": self.kind,
            "boosters": {name: len(bag.texts) for name, bag in self.boosters.items()},
            "process": self.process.to_json(),
            "ranges": self.ranges.to_json(),
        }

    @classmethod
    def load(cls, folder: Path, way: str, content: Mapping[str, Any]) -> Self:
        """What `save` wrote.

        Raises:
            BadArtifact: a booster is missing, or it was fitted on other features.
        """
        kind = content["kind"]
        FeatureRange.check_names(folder, FEATURES[kind], content["ranges"]["names"])
        boosters = {
            name: BoosterBag.load(folder, f"{way}-{name}", count)
            for name, count in content["boosters"].items()
        }
        process = MixedEffectsProcess.from_json(content["process"])
        return cls(kind, boosters, process, FeatureRange.from_json(content["ranges"]))
