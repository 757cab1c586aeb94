"""P of programs beside neighbours by the dual-branch network, answered by onnxruntime."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.errors import BadArtifact
from forerun.features.host_windows import NAMES
from forerun.models.artifact.sealed_folder import read_content, write_content
from forerun.models.colocation.base import ColocationBase, Engine
from forerun.models.colocation.dual_branch_network import (
    INPUTS,
    OUTPUTS,
    WindowShape,
    export,
    train,
)
from forerun.models.colocation.features import FACTS, ColocationRows, Column
from forerun.models.graph_network.training import torch_threads

if TYPE_CHECKING:
    from torch import nn

Matrix = NDArray[np.float64]
FARTHEST = 4.0
"""Deviations beyond which an input is not told apart."""


@dataclass(frozen=True)
class Scaled:
    """What the network is given: some metrics, centred and scaled.

    Attributes:
        places: of the metrics in NAMES.
        middle, scale: of the metrics, then of the facts.
    """

    places: tuple[int, ...]
    middle: tuple[float, ...]
    scale: tuple[float, ...]

    @classmethod
    def of(cls, rows: ColocationRows) -> Self:
        """Metrics that vary in these rows."""
        medians = rows.window_statistics[:, 0]
        some = (~np.isnan(medians)).any(axis=0)
        places = [p for p in np.flatnonzero(some).tolist() if np.nanstd(medians[:, p]) > 1e-9]
        columns = np.concatenate([medians[:, places], rows.facts], axis=1)
        known = ~np.isnan(columns)
        count = np.maximum(known.sum(axis=0), 1)
        middle = np.nan_to_num(columns).sum(axis=0) / count
        spread = np.sqrt((np.where(known, columns - middle, 0.0) ** 2).sum(axis=0) / count)
        scale = np.where(spread > 1e-9, spread, 1.0)
        return cls(tuple(places), tuple(middle.tolist()), tuple(scale.tolist()))

    def batches(self, rows: ColocationRows) -> Iterator[dict[str, Matrix]]:
        """Inputs of windows of one length, with `rows`, their places."""
        lengths = np.array([len(window) for window in rows.windows], dtype=np.intp)
        middle, scale = np.array(self.middle), np.array(self.scale)
        f = len(self.places)
        known = np.concatenate([rows.alone[:, list(self.places)], rows.facts], axis=1)
        told, there = _filled((known - middle) / scale)
        context = np.concatenate([told, there], axis=1)
        for length in np.unique(lengths[lengths > 0]):
            index = np.flatnonzero(lengths == length)
            found = np.stack([rows.windows[int(row)][:, list(self.places)] for row in index])
            values, mask = _filled((found - middle[:f]) / scale[:f])
            places = index.astype(np.float64)
            yield {"values": values, "mask": mask, "context": context[index], "rows": places}

    def to_json(self) -> dict[str, Any]:
        """Plain lists, metrics by name."""
        names = [NAMES[place] for place in self.places]
        return {"metrics": names, "middle": self.middle, "scale": self.scale}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """What `to_json` wrote."""
        places = tuple(NAMES.index(name) for name in content["metrics"])
        return cls(places, tuple(content["middle"]), tuple(content["scale"]))


@dataclass(frozen=True)
class TrainedEngine:
    """A committee as it was trained, before it is saved; needs torch.

    Attributes:
        scaled: what it is given.
        module: as `forerun.models.colocation.dual_branch_network.train` returns it.
    """

    scaled: Scaled
    module: "nn.Module"

    def predict(self, rows: ColocationRows) -> Column:
        """Median over members, shape (n,)."""
        import torch

        def answers(*given: Matrix) -> Matrix:
            found: Matrix = self.module(*map(torch.from_numpy, given)).numpy()
            return found

        with torch_threads(1), torch.no_grad():
            return _medians(self.scaled, rows, answers)

    def save(self, folder: Path, name: str) -> None:
        """As `NetworkEngine` does."""
        onnx = export(self.module, len(self.scaled.places), len(FACTS))
        NetworkEngine(self.scaled, onnx).save(folder, name)


@dataclass(frozen=True)
class NetworkEngine:
    """An exported committee; the answer is the median of its members.

    Attributes:
        scaled: what it is given.
        onnx: as `forerun.models.colocation.dual_branch_network.export` writes it.
    """

    scaled: Scaled
    onnx: bytes

    def predict(self, rows: ColocationRows) -> Column:
        """Median over members, shape (n,)."""

        def answers(*given: Matrix) -> Matrix:
            fed = dict(zip(INPUTS, given, strict=True))
            found: Matrix = self._session.run(list(OUTPUTS), fed)[0]
            return found

        return _medians(self.scaled, rows, answers)

    def save(self, folder: Path, name: str) -> None:
        """ONNX, and JSON of what it is given."""
        write_content(folder / name, name, self.scaled.to_json())
        (folder / name / "network.onnx").write_bytes(self.onnx)

    @classmethod
    def load(cls, folder: Path, name: str) -> Self:
        """The engine that `save` wrote.

        Raises:
            BadArtifact: a file is missing.
        """
        scaled = Scaled.from_json(read_content(folder / name, name))
        try:
            return cls(scaled, (folder / name / "network.onnx").read_bytes())
        except OSError as error:
            raise BadArtifact(f"{folder} lacks a network: {error}") from None

    @cached_property
    def _session(self) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        return onnxruntime.InferenceSession(self.onnx, options, providers=["CPUExecutionProvider"])


@dataclass(frozen=True)
class ColocationNetwork(ColocationBase):
    """Attention over seconds and over metrics, fused."""

    name: ClassVar[str] = "colocation_network"
    looks_ahead: ClassVar[bool] = False
    folds: ClassVar[int] = 3
    shape: WindowShape = field(default_factory=WindowShape)

    def engine(self, metric: str, rows: ColocationRows, target: Column) -> Engine:
        """A committee of networks."""
        scaled = Scaled.of(rows)
        with torch_threads(1):
            module = train(list(scaled.batches(rows)), target, self.shape, self.seed)
        return TrainedEngine(scaled, module)

    def lighter(self) -> Self:
        """One member."""
        return replace(self, shape=replace(self.shape, members=1))

    @classmethod
    def load_engine(cls, folder: Path, name: str) -> Engine:
        """The committee that was saved under that name."""
        return NetworkEngine.load(folder, name)


def _medians(scaled: Scaled, rows: ColocationRows, answers: Callable[..., Matrix]) -> Column:
    """Median over the members of a committee, shape (n,); 0 for rows without a window."""
    found = np.zeros(len(rows))
    for batch in scaled.batches(rows):
        told = answers(*(batch[name] for name in INPUTS))
        found[batch["rows"].astype(np.intp)] = np.median(told, axis=0)
    return found


def _filled(values: Matrix) -> Sequence[Matrix]:
    """Values with 0 for what is missing, and 1 where they are there."""
    there = (~np.isnan(values)).astype(np.float64)
    return np.clip(np.nan_to_num(values), -FARTHEST, FARTHEST), there
