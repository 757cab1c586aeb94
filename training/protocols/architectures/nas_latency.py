"""nas_latency: few-shot latency prediction on unseen devices, in three architecture spaces."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

import numpy as np
from numpy.typing import NDArray

from forerun.data.bundle import Bundle
from forerun.data.datasets.architectures.nas_latency import (
    CHOICES,
    LATENCIES,
    TRAINING_ARCHITECTURES,
    device_slug,
    middle,
    protocols_of,
    times_of,
)
from forerun.data.device import Device, DeviceCatalog, DeviceKind
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Architecture, Space
from forerun.training.protocols.protocol import DatasetProtocols, Fold, Seen, Support, Task, Tasks

Ids = NDArray[np.intp]
SHOTS: Final = 20
"""Size of the support set, as in NASFLAT."""
FEWEST_TRAINING_IDS: Final = 400
_KINDS: Final[tuple[DeviceKind, ...]] = ("gpu", "cpu", "fpga")


class NasLatencyProtocols(DatasetProtocols):
    """Latency of architectures by device; only a support set of a held-out device is known."""

    dataset = "nas_latency"

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """Architectures with ids below 900 on every device and space, but at least 400 for each."""
        parts = [
            space.rows(device, _training_ids(space.measured(device)))
            for space in spaces(bundle)
            for device in space.devices
        ]
        return sum(parts[1:], parts[0])

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
        """NASFLAT's and HELP's device splits, then each device held out in turn."""
        published = protocols_of(bundle)
        found = {space.space: space for space in spaces(bundle)}
        for name, space in found.items():
            for part, devices in published.get(name, {}).items():
                tasks = [
                    _task(f"nasflat_{name}/{part}", space, device)
                    for device in space.known(devices["test"])
                ]
                yield from _folds_of(f"nasflat_{name}", space, devices["train"], tasks)
        for name, space in found.items():
            if help_ := published["help"].get(name):
                tasks = [_help(space, d, help_) for d in space.known(help_["meta_test"])]
                yield from _folds_of(f"help_{name}", space, help_["meta_train"], tasks)
        for name, space in found.items():
            whole = [d for d in space.devices if space.tables[d] == LATENCIES[name][0]]
            for device in whole:
                others = [other for other in whole if other != device]
                task = _task(f"every_other_device/{name}", space, device)
                yield from _folds_of("every_other_device", space, others, [task])
            boards = [device for device in space.devices if device not in whole]
            tasks = [_task(f"every_other_device/{name}_boards", space, board) for board in boards]
            yield from _folds_of("every_other_device", space, whole, tasks)

    def evaluation_tasks(self, bundle: Bundle, catalog: DeviceCatalog, seen: Seen) -> Tasks:
        """Devices without training rows in a search space."""
        known = set(seen.get("space_device", ()))
        for space in spaces(bundle):
            for device in space.devices:
                if space.key(device) not in known:
                    yield _task(f"unseen_device/{space.space}", space, device, shots=0)


@dataclass(frozen=True)
class SpaceRows:
    """One search space of a bundle.

    Attributes:
        space: name of the search space.
        architectures: all architectures, by id.
        times: device -> latency in ms by id, NaN where not measured.
        tables: device -> table of the bundle that holds its latencies.
        classes: device -> its class in the bundle.
    """

    space: Space
    architectures: Sequence[Architecture]
    times: Mapping[str, NDArray[np.float64]]
    tables: Mapping[str, str]
    classes: Mapping[str, str]

    @property
    def devices(self) -> list[str]:
        """Names of devices in the bundle, sorted."""
        return sorted(self.times)

    def known(self, names: Collection[str]) -> list[str]:
        """The given devices that are in the bundle."""
        return [name for name in names if name in self.times]

    def key(self, device: str) -> str:
        """Grouping key of a device in this search space."""
        return f"{self.space}/{device_slug(device)}"

    def measured(self, device: str) -> Ids:
        """Ids of the architectures measured on a device, ascending."""
        return np.flatnonzero(self.times[device] > 0)

    def rows(self, device: str, ids: Ids) -> Measurements:
        """The given architectures on one device; groups `device` and `space_device`."""
        label = f"{self.classes.get(device, '')} {device}"
        kind = next((kind for kind in _KINDS if kind in label), "npu")
        # A device here includes runtime, batch size and precision, so no spec sheet describes it.
        sheet = Device(name=device_slug(device), title=device, vendor="unknown", kind=kind)
        queries = [Query(self.architectures[index], sheet) for index in ids]
        groups = {"space_device": [self.key(device)] * len(ids)}
        return Measurements.of(queries, {"latency_ms": self.times[device][ids]}, groups)


def spaces(bundle: Bundle) -> list[SpaceRows]:
    """The search spaces for which a bundle has latencies."""
    classes: dict[str, str] = {}
    if bundle.has("devices"):
        table = bundle.table("devices")
        classes = dict(zip(table["device"].astype(str), table["class"].astype(str), strict=True))
    found = []
    for name in get_args(Space):
        times: dict[str, NDArray[np.float64]] = {}
        tables: dict[str, str] = {}
        available = [latency for latency in LATENCIES[name] if bundle.has(latency)]
        if not available:
            continue
        archs = bundle.table(f"{name}_archs").sort_values("arch_id")
        for latency in available:
            found_times = times_of(bundle.table(latency), len(archs))
            times |= found_times
            tables |= dict.fromkeys(found_times, latency)
        codes = archs[list(CHOICES[name])].to_numpy(dtype=np.int64).tolist()
        architectures = [Architecture(name, tuple(c)) for c in codes]
        found.append(SpaceRows(name, architectures, times, tables, classes))
    return found


def _task(name: str, space: SpaceRows, device: str, shots: int = SHOTS) -> Task:
    rows = space.rows(device, space.measured(device))
    slug = device_slug(device)
    return Task(name, "latency_ms", rows, slug, support=Support(shots, suggested=True))


def _help(space: SpaceRows, device: str, protocol: Mapping[str, Any]) -> Task:
    """HELP's task: a support set from the middle of the pool, plus the reference architectures.

    Reference architectures among the held-out rows are not scored, since they are in the support
    set.
    """
    references = np.array(protocol["reference_arch_ids"], dtype=np.intp)
    first, last = protocol["n_pool"], protocol["n_pool"] + protocol.get("n_query", 1000)
    times = space.times[device]
    references = references[references < len(times)]
    held_out = middle(times, np.arange(first, min(last, len(times))))
    return Task(
        f"help_{space.space}/{device_slug(device)}",
        "latency_ms",
        space.rows(device, np.setdiff1d(held_out, references)),
        device_slug(device),
        support=Support(
            protocol["n_samples"],
            pool=space.rows(device, np.setdiff1d(middle(times, np.arange(first)), references)),
            always=space.rows(device, references[times[references] > 0]),
        ),
    )


def _folds_of(
    protocol: str, space: SpaceRows, source_devices: Collection[str], tasks: Sequence[Task]
) -> Iterator[Fold]:
    """A fold trained on low-id architectures of the source devices; none if it would be empty."""
    parts = [
        space.rows(device, ids[ids < TRAINING_ARCHITECTURES])
        for device in space.known(source_devices)
        for ids in [space.measured(device)]
        if (ids < TRAINING_ARCHITECTURES).any()
    ]
    if parts and tasks:
        yield Fold(protocol, sum(parts[1:], parts[0]), tasks)


def _training_ids(ids: Ids) -> Ids:
    """Ids of the training rows, as far as possible the same architectures on all devices."""
    return ids[: max(int((ids < TRAINING_ARCHITECTURES).sum()), FEWEST_TRAINING_IDS)]
