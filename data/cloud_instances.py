"""Instance types of clouds as devices: a machine with all its processors, as it was measured.

Facts and bandwidth are those of Spare Cores (github.com/SpareCores/sc-inspector-data, CC BY-SA 4.0)
in `llm_tables/llm_cloud_runs/machines.parquet`. There are no prices.
"""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import as_file, files
from types import MappingProxyType
from typing import Any, Final

from forerun.data.errors import UnanswerableQuery
from forerun.data.processor_cores import CORES
from forerun.data.spec_sheet import Device

READ_SHARE: Final = 0.85
"""Share of the peak bandwidth that a read by all cores reaches. The bandwidth on a machine's spec
sheet is the measured one divided by this."""
SOURCE: Final = "Spare Cores, github.com/SpareCores/sc-inspector-data at 804d3c7"

CLOUDS: Final = ("alicloud", "aws", "azure", "gcp", "hcloud", "hetzner", "ovh", "upcloud")
"""What names of types begin with."""
_CLOUD: Final = re.compile(rf"[^a-z0-9]*({'|'.join(CLOUDS)})(?![a-z0-9])")

Facts = Mapping[Any, Any]


def slug(name: str) -> str:
    """A name in lower case with hyphens, as in the catalogue: `Zen 4` is `zen4`."""
    plain = "".join(c if c.isalnum() else "-" for c in name.lower().replace("zen ", "zen"))
    return "-".join(part for part in plain.split("-") if part)


def is_of_cloud(name: str) -> bool:
    """Whether a name begins as those of instance types do."""
    return _CLOUD.match(name.lower()) is not None


def cloud_instance(name: str) -> Device | None:
    """The machine of an instance type such as `aws/m7i.4xlarge`; None if no type has that name.

    Raises:
        UnanswerableQuery: the type has GPUs, or too little of it was measured.
    """
    facts = _types().get(slug(name)) if is_of_cloud(name) else None
    if facts is None:
        return None
    instance = facts["instance"]
    if facts["gpu"] is not None:
        raise UnanswerableQuery(
            f"{instance} has {facts['gpu_count']:.0f} {facts['gpu']}: name that GPU, with its "
            "share of the price."
        )
    found = machine(facts, facts["processor"])
    if found is None:
        raise UnanswerableQuery(f"Too little of {instance} was measured: give a spec sheet of it.")
    return found


def virtual_processors(device: Device) -> int | None:
    """Virtual processors of an instance type; None for other devices."""
    facts = _types().get(slug(device.title)) if is_of_cloud(device.title) else None
    return None if facts is None else int(facts["vcpus"])


def matching(pattern: str) -> list[str]:
    """Types without GPUs whose names match a pattern such as `aws/m7i.*`, fewest processors first.

    Types that were not measured are ignored, too.

    Raises:
        ValueError: no type matches.
    """
    wanted = pattern.lower()
    candidates = [
        facts for facts in _types().values() if fnmatchcase(facts["instance"].lower(), wanted)
    ]
    measured = [
        facts for facts in candidates if facts["gpu"] is None and machine(facts, facts["processor"])
    ]
    if not measured:
        raise ValueError(
            f"no instance type matches {pattern!r:.80}: patterns are like aws/m7i.* or "
            "gcp/c4-standard-*"
        )
    return [facts["instance"] for facts in sorted(measured, key=lambda facts: facts["vcpus"])]


def instance_names() -> list[str]:
    """Names of all instance types."""
    return [facts["instance"] for facts in _types().values()]


def machine(facts: Facts, processor: str) -> Device | None:
    """The spec sheet of a machine.

    Args:
        facts: row of `machines` for the instance type; empty if unknown.
        processor: microarchitecture of its cores, which may differ from that of the facts.

    Returns:
        None if the microarchitecture or the bandwidth is unknown.
    """
    architecture = slug(processor)
    core = CORES.get(architecture)
    if core is None or not facts or not (facts["read_gbs"] or 0.0) > 0.0:
        return None
    cores, clock, name = int(facts["cores"]), core.clock_ghz, slug(str(facts["instance"]))
    if processor.startswith(("Neoverse", "Cortex")) and (facts["nominal_ghz"] or 0.0) > 0.0:
        clock = float(facts["nominal_ghz"])
    peaks = {"fp32": core.fp32, "bf16": core.bf16, "int8": core.int8}
    memory = facts["memory_gib"]
    return Device(
        name=name if processor == facts["processor"] else f"{name}-{architecture}"[:80].rstrip("-"),
        title=facts["instance"],
        vendor=facts["instance"].partition("/")[0],
        kind="cpu",
        architecture=architecture,
        memory_gib=memory if memory and memory > 0.0 else None,
        memory_bandwidth_gbs=float(facts["read_gbs"]) / READ_SHARE,
        peak_tflops={form: ops * cores * clock / 1e3 for form, ops in peaks.items()},
        compute_units=cores,
        boost_clock_mhz=clock * 1e3,
        memory_nodes=int(facts["memory_nodes"]),
        sources={"memory_bandwidth_gbs": f"{SOURCE}: bw_mem rd 512 MB of all cores, over 0.85"},
        origin="catalog",
    )


@cache
def _types() -> Mapping[str, Facts]:
    """Slug -> facts of each instance type."""
    from pyarrow import parquet

    folder = files("forerun.data") / "llm_tables" / "llm_cloud_runs"
    with as_file(folder / "machines.parquet") as path:
        rows = parquet.read_table(path).to_pylist()
    return MappingProxyType({slug(row["instance"]): row for row in rows})
