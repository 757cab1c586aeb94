"""Relative speed of co-located programs by the dual-branch network, run with onnxruntime."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from forerun.data.columns import Column, Matrix
from forerun.models.colocation.base import ColocationBase, Engine
from forerun.models.colocation.dual_branch_network import OUTPUTS, WindowShape, export, train
from forerun.models.colocation.features import FACTS, ColocationRows
from forerun.models.neural import onnx_session, seeded_torch
from forerun.models.predictor import SETTING

if TYPE_CHECKING:
    from torch import nn

FARTHEST = 4.0
"""Standard deviations from the mean to which inputs are clipped."""


@dataclass(frozen=True)
class Scaled:
    """Standardisation of the network's inputs: host metrics, and facts about the program.

    Attributes:
        columns: positions in NAMES of the metrics that are used.
        middle: means of the metrics' medians in a window, then of the facts.
        scale: standard deviations of the same; 1 where they are 0.
    """

    columns: tuple[int, ...]
    middle: tuple[float, ...]
    scale: tuple[float, ...]

    @classmethod
    def of(cls, rows: ColocationRows) -> Self:
        """Standardisation fitted to n training rows; metrics that do not vary are left out."""
        medians = rows.window_statistics[:, 0]
        some = np.flatnonzero((~np.isnan(medians)).any(axis=0)).tolist()
        columns = [column for column in some if np.nanstd(medians[:, column]) > 1e-9]
        inputs = np.concatenate([medians[:, columns], rows.facts], axis=1)
        known = ~np.isnan(inputs)
        count = np.maximum(known.sum(axis=0), 1)
        middle = np.nan_to_num(inputs).sum(axis=0) / count
        deviation = np.sqrt((np.where(known, inputs - middle, 0.0) ** 2).sum(axis=0) / count)
        scale = np.where(deviation > 1e-9, deviation, 1.0)
        return cls(tuple(columns), tuple(middle.tolist()), tuple(scale.tolist()))

    def inputs(self, rows: ColocationRows) -> dict[str, Matrix]:
        """Inputs of the network for n rows; windows are padded with seconds that are masked."""
        middle, scale = np.array(self.middle), np.array(self.scale)
        columns, m = list(self.columns), len(self.columns)
        known = np.concatenate([rows.alone[:, columns], rows.facts], axis=1)
        context = np.concatenate(_filled((known - middle) / scale), axis=1)
        windows = np.full((len(rows), max(map(len, rows.windows)), m), np.nan)
        for row, window in enumerate(rows.windows):
            windows[row, : len(window)] = window[:, columns]
        values, mask = _filled((windows - middle[:m]) / scale[:m])
        return {"values": values, "mask": mask, "context": context}


@dataclass(frozen=True)
class TrainedEngine:
    """A trained ensemble before it is saved; needs torch.

    Attributes:
        scaled: standardisation of its inputs.
        module: as `forerun.models.colocation.dual_branch_network.train` returns it.
    """

    scaled: Scaled
    module: "nn.Module"

    def predict(self, rows: ColocationRows) -> Column:
        """Median over members, shape (n,)."""
        import torch

        with seeded_torch(0), torch.no_grad():
            return _medians(
                self.scaled,
                rows,
                lambda inputs: self.module(*map(torch.from_numpy, inputs.values())).numpy(),
            )

    def exported(self) -> "NetworkEngine":
        """The ensemble as ONNX."""
        onnx = export(self.module, len(self.scaled.columns), len(FACTS))
        return NetworkEngine(self.scaled, onnx)


@dataclass(frozen=True)
class NetworkEngine:
    """An exported ensemble, whose median is the prediction.

    Attributes:
        scaled: standardisation of its inputs.
        onnx: as `forerun.models.colocation.dual_branch_network.export` writes it.
    """

    scaled: Scaled
    onnx: bytes

    def predict(self, rows: ColocationRows) -> Column:
        """Median over members, shape (n,)."""
        return _medians(
            self.scaled, rows, lambda inputs: self._session.run(list(OUTPUTS), inputs)[0]
        )

    @cached_property
    def _session(self) -> Any:
        return onnx_session(self.onnx)


@dataclass(frozen=True)
class ColocationNetwork(ColocationBase):
    """Dual-branch attention network over the seconds and the metrics of a window.

    Attributes:
        shape: sizes of the network and hyperparameters of its training.
    """

    name: ClassVar[str] = "colocation_network"
    looks_ahead: ClassVar[bool] = False
    folds: ClassVar[int] = 3
    engines: Mapping[str, NetworkEngine] = field(default_factory=dict)
    shape: WindowShape = field(default_factory=WindowShape, metadata=SETTING)

    def engine(self, metric: str, rows: ColocationRows, target: Column) -> Engine:
        """An ensemble of networks trained on n standardised targets."""
        scaled = Scaled.of(rows)
        with seeded_torch(self.seed):
            module = train(scaled.inputs(rows), target, self.shape)
        return TrainedEngine(scaled, module)

    def save(self, folder: Path) -> None:
        """Write the ensembles as ONNX, to which networks that were just trained are exported."""
        engines = {
            metric: engine.exported() if isinstance(engine, TrainedEngine) else engine
            for metric, engine in self.engines.items()
        }
        super(ColocationNetwork, replace(self, engines=engines)).save(folder)

    def lighter(self) -> Self:
        """The same predictor with one network."""
        return replace(self, shape=replace(self.shape, members=1))


def _medians(
    scaled: Scaled, rows: ColocationRows, answers: Callable[[Mapping[str, Matrix]], Matrix]
) -> Column:
    """Median over the members of an ensemble, shape (n,); 0 for rows without a window."""
    medians = np.zeros(len(rows))
    measured = rows.has_window
    if measured.any():
        medians[measured] = np.median(answers(scaled.inputs(rows.take(measured))), axis=0)
    return medians


def _filled(values: Matrix) -> Sequence[Matrix]:
    """Clipped values with 0 where they are missing, and a mask that is 1 elsewhere."""
    there = (~np.isnan(values)).astype(np.float64)
    return np.clip(np.nan_to_num(values), -FARTHEST, FARTHEST), there
