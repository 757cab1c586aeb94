"""Measured kernels of language models as queries, and folds of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from forerun.data.columns import Column, Mask, Names, groups_of
from forerun.data.device import Device
from forerun.data.language_models.deployment import EngineName
from forerun.data.language_models.kernel import KernelShape, LlmKernel
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.llm_kernels.families import family_of, kernel_groups
from forerun.features.llm_kernels.table import KernelGroup
from forerun.training.protocols.protocol import Fold, Task

TASK_ROWS: Final = 4000
"""Most rows of a task, drawn at random with a fixed seed."""
HELD_OUT_SHARE: Final = 0.1
Groups = Callable[[Sequence[Query]], Iterator[KernelGroup]]


@dataclass(frozen=True)
class KernelRows:
    """Measured kernels of one table.

    Attributes:
        measured: n kernels with `latency_ms`, the groups `device`, `part` (family and engine),
            `op_class` (what the kernel does) and `site` (what stays equal where only the number of
            tokens varies).
        prefix: what names of protocols begin with; empty for the only table of a dataset.
        groups: the kernels of queries by family and device, which give bounds.
    """

    measured: Measurements
    prefix: str = ""
    groups: Groups = kernel_groups

    @classmethod
    def of(
        cls,
        kernels: Sequence[KernelShape],
        engines: Sequence[EngineName],
        devices: Sequence[Device],
        latency_ms: Column,
        sites: Names,
        prefix: str = "",
    ) -> "KernelRows":
        """N measured kernels.

        Args:
            kernels: n kernels.
            engines: n engines.
            devices: n devices.
            latency_ms: (n,) measured times, milliseconds.
            sites: (n,) names of sites within a family.
            prefix: as the attribute.
        """
        queries = [
            Query(LlmKernel(kernel, engine), device)
            for kernel, engine, device in zip(kernels, engines, devices, strict=True)
        ]
        parts = [f"{family_of(k)}/{e}" for k, e in zip(kernels, engines, strict=True)]
        groups = {
            "device": np.array([device.name for device in devices], dtype=np.str_),
            "part": np.array(parts, dtype=np.str_),
            "op_class": np.array([part.split("/")[0] for part in parts], dtype=np.str_),
            "site": sites,
        }
        return cls(Measurements(queries, {"latency_ms": latency_ms}, groups), prefix)

    def training_rows(self, most: int) -> Measurements:
        """At most so many rows of each device and part, drawn at random with a fixed seed.

        They have no group `site`: a training record would list thousands of sites.
        """
        every = np.ones(len(self.measured), dtype=np.bool_)
        drawn = self.measured.take(self._drawn(every, most))
        groups = {name: column for name, column in drawn.groups.items() if name != "site"}
        return replace(drawn, groups=groups)

    def unseen_devices(self, most: int, only: Sequence[str] = ()) -> Iterator[Fold]:
        """Each device is held out: rows of the others train, at most `most` of each part.

        Args:
            most: training rows of each device and part.
            only: devices to hold out; all when empty.
        """
        names = self.measured.groups["device"]
        for device in only or np.unique(names).tolist():
            yield self.fold("unseen_device", names == device, most)

    def held_out_sites(self, most: int) -> Fold:
        """A tenth of the sites is held out on all devices."""
        sites = self.measured.groups["site"]
        distinct = np.unique(sites)
        count = max(1, round(HELD_OUT_SHARE * len(distinct)))
        chosen = np.random.default_rng(0).choice(distinct, count, replace=False)
        return self.fold("held_out_sites", np.isin(sites, chosen), most)

    def random_rows(self, most: int) -> Fold:
        """A tenth of the rows is held out at random."""
        held = np.random.default_rng(0).random(len(self.measured)) < HELD_OUT_SHARE
        return self.fold("random_rows", held, most)

    def fold(self, name: str, held: Mask, most: int) -> Fold:
        """These rows held out; at most so many others of each device and part train."""
        protocol = f"{self.prefix}{name}"
        train = self.measured.take(self._drawn(~held, most))
        tasks = kernel_tasks(
            self.measured.take(self._drawn(held, TASK_ROWS)), train, protocol, self.groups
        )
        return Fold(protocol, train, tasks)

    def _drawn(self, among: Mask, most: int) -> Mask:
        """Mask of at most `most` rows of each device and part."""
        groups = self.measured.groups
        rows = np.flatnonzero(among)
        rng = np.random.default_rng(0)
        drawn = np.zeros(len(among), dtype=np.bool_)
        labels = zip(groups["device"][rows].tolist(), groups["part"][rows].tolist(), strict=True)
        for own in groups_of(labels).values():
            chosen = rng.permutation(len(own))[:most]
            drawn[rows[np.array(own)[chosen]]] = True
        return drawn


def kernel_tasks(
    held_out: Measurements, train: Measurements, protocol: str, groups: Groups = kernel_groups
) -> list[Task]:
    """One task for each device and part, with the roofline bound and that times one factor.

    Args:
        held_out: held-out kernels.
        train: training set, which the factor is the median of.
        protocol: name.
        groups: the kernels of queries by family and device.
    """
    factors = _factors(train, groups)
    bound_ms = bounds_ms(held_out, groups)
    labels = zip(held_out.groups["part"].tolist(), held_out.groups["device"].tolist(), strict=True)
    tasks = []
    for (part, device), own in groups_of(labels).items():
        rows = np.array(own)
        scaled = bound_ms[rows] * factors.get(part, np.nan)
        tasks.append(
            Task(
                f"{protocol}/{part}",
                "latency_ms",
                held_out.take(rows),
                device=device,
                baselines={"roofline": bound_ms[rows], "roofline_times_factor": scaled},
            )
        )
    return tasks


def bounds_ms(measured: Measurements, groups: Groups = kernel_groups) -> Column:
    """Roofline bound of each kernel, shape (n,), milliseconds."""
    bounds = np.empty(len(measured))
    for group in groups(measured.queries):
        bounds[group.rows] = group.table.bound_s * 1e3
    return bounds


def _factors(train: Measurements, groups: Groups) -> Mapping[str, float]:
    """Part -> median of measured time over bound."""
    ratios = train.values["latency_ms"] / bounds_ms(train, groups)
    parts = groups_of(train.groups["part"].tolist())
    return {part: float(np.median(ratios[own])) for part, own in parts.items()}
