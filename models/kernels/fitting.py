"""Fits `KernelTimes` by gradient descent through the sum over kernels (needs torch)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from forerun.data.columns import Column
from forerun.data.query import Query
from forerun.features.kernels.rows import (
    FEATURES,
    KERNEL_ROOTS,
    ROLES,
    ROOT_OF_KERNEL_KIND,
    KernelRows,
)
from forerun.features.lowering.kernels import KERNEL_KINDS
from forerun.models.domain.feature_range import KnownDevices
from forerun.models.kernels.kernel_times import (
    CONTEXTS,
    FORMATS,
    HEADS,
    LARGEST_LOG,
    MODES,
    SHORTEST_S,
    TABLES,
    UNKNOWN,
    KernelTimes,
    run_codes,
)

HIDDEN: Final = 64
HUBER: Final = 0.05
LEARNING_RATE: Final = 4e-3
WARM_UP: Final = 0.05
RUNS_IN_STEP: Final = 128
LARGEST_GRADIENT: Final = 5.0
UNKNOWN_SHARE: Final = 0.3
"""Share of the runs whose device is replaced by the unknown device during training."""
RANGE: Final = (0.2, 99.8)
"""Percentiles of a feature over the training kernels of a root, beyond which it is clipped."""
PENALTIES: Final = {"device": 1e-3, "context": 1e-3, "kind": 3e-5}
WEIGHT_PENALTY: Final = 1e-5
FLOOR_PENALTY: Final = 0.01
"""Penalty on the squared correction of the shortest time, which few runs of other GPUs identify."""


@dataclass(frozen=True)
class Settings:
    """Settings of the optimisation.

    Attributes:
        epochs: passes over the runs.
        hidden: hidden units per layer.
    """

    epochs: int = 16
    hidden: int = HIDDEN


def fit(
    queries: Sequence[Query],
    rows: KernelRows,
    seconds: Column,
    weights: Column,
    *,
    seed: int = 0,
    settings: Settings = Settings(),
    share: Column | None = None,
) -> KernelTimes:
    """Fit the network so that its sums over kernels match measured times.

    Args:
        queries: n runs on GPUs.
        rows: their kernels.
        seconds: (n,) measured device time.
        weights: (n,) weight of each run.
        seed: seeds the initial weights and the order of runs.
        settings: settings of the optimisation.
        share: (n,) share of the epochs that include the run; all epochs if None.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _Fit(torch, queries, rows, seconds, weights, seed, settings, share).run()
    finally:
        torch.set_num_threads(threads)


class _Fit:
    def __init__(
        self,
        torch: Any,
        queries: Sequence[Query],
        rows: KernelRows,
        seconds: Column,
        weights: Column,
        seed: int,
        settings: Settings,
        share: Column | None,
    ) -> None:
        self.torch, self.settings, self.seed = torch, settings, seed
        self.devices = KnownDevices.of([query.device for query in queries]).sheets
        roots = ROOT_OF_KERNEL_KIND[rows.kind]
        self.lowest, self.highest = _ranges(rows.features, roots)
        inside = np.clip(rows.features, self.lowest[roots], self.highest[roots])
        self.mean, self.scale = inside.mean(axis=0), inside.std(axis=0) + 1e-6
        f32 = torch.float32
        self.x = torch.tensor((inside - self.mean) / self.scale, dtype=f32)
        self.bounds = torch.tensor(
            np.stack([rows.compute_s, rows.memory_s], axis=1) * 1e6, dtype=f32
        )
        self.count = torch.tensor(rows.count, dtype=f32)
        self.kind_role = torch.tensor(rows.kind * len(ROLES) + rows.role)
        self.codes = torch.tensor(run_codes(queries, self.devices))
        self.target = torch.tensor(np.log(seconds * 1e6), dtype=f32)
        self.weights = torch.tensor(weights / weights.mean(), dtype=f32)
        self.share = np.ones(len(queries)) if share is None else share
        sizes = np.bincount(rows.owner, minlength=len(queries))
        self.sizes, self.starts = sizes, np.concatenate([[0], np.cumsum(sizes)[:-1]])
        assert (np.diff(rows.owner) >= 0).all()
        self._draw()
        self.root_of_kind = torch.tensor(ROOT_OF_KERNEL_KIND)

    def _draw(self) -> None:
        """Initial weights: random where symmetry must be broken, zero elsewhere."""
        torch = self.torch
        generator = torch.Generator().manual_seed(self.seed)
        h, inputs = self.settings.hidden, len(FEATURES)

        def drawn(rows_: int, columns: int) -> Any:
            return (torch.randn(rows_, columns, generator=generator) / rows_**0.5).requires_grad_()

        self.first, self.second = drawn(inputs, h), drawn(h, h)
        self.last, self.bias = (
            torch.zeros(h, HEADS, requires_grad=True),
            torch.zeros(h, requires_grad=True),
        )
        sizes_of = {
            "root": len(KERNEL_ROOTS),
            "kind": len(KERNEL_KINDS),
            "role": len(ROLES),
            "mode": len(MODES),
            "format": len(FORMATS),
            "context": len(CONTEXTS),
            "device": len(self.devices) + 1,
        }
        self.tables = {}
        for name, size in sizes_of.items():
            values = torch.zeros(size, h + HEADS)
            if name == "root":
                values[:, :h] = 0.5 * torch.randn(size, h, generator=generator)
            self.tables[name] = values.requires_grad_()

    @property
    def parameters(self) -> list[Any]:
        return [self.first, self.second, self.last, self.bias, *self.tables.values()]

    def run(self) -> KernelTimes:
        torch = self.torch
        random = np.random.default_rng(self.seed)
        optimizer = torch.optim.Adam(self.parameters, lr=LEARNING_RATE, betas=(0.9, 0.99))
        epochs = [self._batches(random) for _ in range(self.settings.epochs)]
        steps = sum(len(epoch) for epoch in epochs)
        step = 0
        for epoch in epochs:
            for batch in epoch:
                done = step / steps
                rate = min(1.0, done / WARM_UP) if done < WARM_UP else 1.0
                rate *= 0.5 * (1.0 + np.cos(np.pi * max(0.0, (done - WARM_UP) / (1.0 - WARM_UP))))
                for group in optimizer.param_groups:
                    group["lr"] = LEARNING_RATE * max(rate, 1e-3)
                optimizer.zero_grad()
                self._loss(batch, random).backward()
                torch.nn.utils.clip_grad_norm_(self.parameters, LARGEST_GRADIENT)
                optimizer.step()
                step += 1
        return self._fitted()

    def _batches(self, random: np.random.Generator) -> list[Any]:
        kept = np.flatnonzero(random.random(len(self.share)) < self.share)
        order = random.permutation(kept)
        return [order[i : i + RUNS_IN_STEP] for i in range(0, len(order), RUNS_IN_STEP)]

    def _loss(self, batch: Any, random: np.random.Generator) -> Any:
        torch, h = self.torch, self.settings.hidden
        sizes = self.sizes[batch]
        owner = np.repeat(np.arange(len(batch)), sizes)
        offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        index = np.arange(len(owner)) - np.repeat(offsets - self.starts[batch], sizes)
        owner_t, index_t = torch.from_numpy(owner), torch.from_numpy(index)
        tables = self.tables
        kinds = tables["root"][self.root_of_kind] + tables["kind"]
        kind_roles = (kinds[:, None] + tables["role"][None]).flatten(0, 1)
        codes = self.codes[torch.from_numpy(batch)].clone()
        hidden_device = torch.from_numpy(random.random(len(batch)) < UNKNOWN_SHARE)
        codes[hidden_device, 3] = UNKNOWN
        runs = sum(tables[name][codes[:, i]] for i, name in enumerate(TABLES[2:]))
        shift = kind_roles[self.kind_role[index_t]] + runs[owner_t]
        swish = torch.nn.functional.silu
        hidden = swish(self.x[index_t] @ self.first + shift[:, :h])
        hidden = swish(hidden @ self.second + self.bias)
        logs = (hidden @ self.last + shift[:, h:]).clamp(-LARGEST_LOG, LARGEST_LOG)
        factors = logs.exp()
        compute, memory = (self.bounds[index_t] * factors[:, :2]).unbind(1)
        spent = (compute**2 + memory**2 + 1e-12).sqrt() + 1e6 * SHORTEST_S * factors[:, 2]
        total = torch.zeros(len(batch)).index_add(0, owner_t, spent * self.count[index_t])
        rows = torch.from_numpy(batch)
        error = torch.log(total) - self.target[rows]
        loss = torch.nn.functional.huber_loss(
            error, torch.zeros_like(error), reduction="none", delta=HUBER
        )
        value = (loss / HUBER * self.weights[rows]).mean()
        for name, penalty in PENALTIES.items():
            value = value + penalty * (tables[name] ** 2).sum()
        for matrix in (self.first, self.second, self.last):
            value = value + WEIGHT_PENALTY * (matrix**2).sum()
        return value + FLOOR_PENALTY * (logs[:, 2] ** 2).mean()

    def _fitted(self) -> KernelTimes:
        def plain(tensor: Any) -> Any:
            return tensor.detach().numpy().astype(np.float64)

        tables = {name: plain(self.tables[name]) for name in TABLES}
        tables["kind"] = plain(self.tables["root"])[ROOT_OF_KERNEL_KIND] + tables["kind"]
        return KernelTimes(
            mean=self.mean,
            scale=self.scale,
            lowest=self.lowest,
            highest=self.highest,
            first=plain(self.first),
            second=plain(self.second),
            last=plain(self.last),
            bias=plain(self.bias),
            tables=tables,
            devices=self.devices,
        )


def _ranges(features: Any, roots: Any) -> tuple[Any, Any]:
    """Range of each feature per kernel root; that of all kernels for a root without kernels."""
    whole = np.percentile(features, RANGE, axis=0)
    lowest, highest = (np.repeat(side[None], len(KERNEL_ROOTS), axis=0) for side in whole)
    for root in np.unique(roots):
        lowest[root], highest[root] = np.percentile(features[roots == root], RANGE, axis=0)
    return lowest, highest
