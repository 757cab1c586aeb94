"""Tables of `forerun collect gpu` and graphs of `collect graphs` as the dataset `torch_gpu`."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forerun.data.bundle import Bundle
from forerun.data.datasets.networks.torch_gpu import (
    EXECUTION_MODES,
    NUMBERS,
    TorchGpu,
    execution_modes,
)
from forerun.data.device import DeviceCatalog
from forerun.data.errors import BadTable
from forerun.data.graph import OperatorGraph

if TYPE_CHECKING:
    import pandas as pd

PRECISIONS = (
    "`fp32` is strict: TF32 was off for matrix products and for convolutions. PyTorch's default "
    "allows TF32 in convolutions, so that times of convolutions in `fp32` are longer here than "
    "under that default. `tf32` allows it in both. `amp` and `amp_bf16` are autocast over fp32 "
    "weights, whose casts are part of every run; `fp16` and `bf16` store weights so; `fp8` was "
    "measured for linear layers alone."
)
COLUMNS = (
    "`latency_ms` is the median of the fastest steady window of synchronised runs, `fastest_ms` "
    "the fastest run and `spread` the interquartile range over the median. Of an operator it is "
    "often the time that the host takes to launch it; `kernel_ms` is the time of the GPU alone, of "
    "runs that were queued before the first one began. A network with `cuda_graph` was recorded as "
    "one CUDA graph, so that its `latency_ms` is the time of the GPU without that of the host.",
    "`allocated_memory_mib` and `reserved_memory_mib` are peaks of PyTorch's allocator with the "
    "weights, `peak_memory_mib` the memory in use of the device with the CUDA context, less what "
    "was in use before. Those of recorded networks are with the pool of the CUDA graph.",
    "`power_w` is energy over time in a window (`power_window_s`) of queued runs, by the device's "
    "energy counter; `energy_j` is that of one run in the window. One operator in six has such a "
    "window, and every network. `power_capped_share` is the share of looks at the GPU in which its "
    "power limit (`power_limit_w`) held the clock down; `sm_clock_mhz` is the mean clock.",
    "A training step is a forward pass, the mean square of all outputs as loss, a backward pass "
    "and a step of AdamW. Inference of language models computes logits of all positions, without a "
    "cache. `workload` is an operator as JSON, or the digest of a network's graph in `graphs`.",
)


def write_package(tables: Sequence[Path], graphs: Sequence[Path], folder: Path) -> Bundle:
    """Write rows of `forerun collect gpu` as the tables of this dataset, replacing earlier ones.

    Args:
        tables: as the collector wrote them; rows of other runtimes than eager are left out.
        graphs: folders of `forerun collect graphs`, with a file for each network of the tables.
        folder: `data/measured/torch_gpu`, or another.

    Raises:
        BadTable: a table was not written by the collector, or a network has no graph.
        UnknownDevice: a GPU is not among forerun's devices.
    """
    import pandas as pd

    from forerun.data.measurement import read_measurements

    frame = pd.concat([read_measurements(table) for table in tables], ignore_index=True)
    frame = frame[frame["runtime"] == "eager"].reset_index(drop=True)
    catalog = DeviceCatalog.load()
    names = {device: catalog.get(device).name for device in frame["device"].unique()}
    recorded = frame["cuda_graph"] if "cuda_graph" in frame else pd.Series(False, frame.index)
    networks = frame["kind"] == "network"
    contents = _contents(graphs, sorted(frame.loc[networks, "label"].unique()))
    digests = dict(zip(contents["graph"], contents["digest"], strict=True))
    rows = frame.assign(
        device=frame["device"].map(names),
        cuda_graph=[value is True for value in recorded.astype(object)],
        workload=frame["workload"].where(~networks, frame["label"].map(digests)),
    )
    rows = rows.reindex(columns=TorchGpu.columns).astype(dict.fromkeys(NUMBERS, "float64"))
    rows["phase"] = rows["phase"].where(networks, None)
    rows = rows.sort_values(["device", "kind", "cuda_graph", "label"], kind="stable")
    dataset, written = TorchGpu(), {"runs": rows.reset_index(drop=True), "graphs": contents}
    dataset.validate(written)
    return Bundle.write(
        folder,
        dataset.name,
        written,
        datasheet=_datasheet(written["runs"], len(contents), frame),
        facts={"source": f"measured by `{dataset.collector}`", "licence": dataset.licence},
    )


def _contents(folders: Sequence[Path], labels: Sequence[str]) -> "pd.DataFrame":
    """Rows of the table `graphs`: those of these networks."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for label in labels:
        found = [path for folder in folders if (path := folder / f"{label}.json").is_file()]
        if not found:
            raise BadTable(f"{label} was measured, but no folder has its graph {label}.json.")
        graph = OperatorGraph.from_json(json.loads(found[0].read_text(encoding="utf-8")))
        content = json.dumps(graph.to_json(), sort_keys=True, separators=(",", ":"))
        row = {"graph": label, "digest": graph.digest, "content": content}
        rows.append({**row, "operators": len(graph)})
    return pd.DataFrame(rows, columns=["graph", "digest", "content", "operators"])


def _datasheet(rows: "pd.DataFrame", graphs: int, collected: "pd.DataFrame") -> str:
    about = ("framework_version", "cuda", "driver", "cpu_model", "cpus", "system", "python")
    lines = [f"# {TorchGpu.name}: {TorchGpu.title}", ""]
    lines += [f"{len(rows):,} rows of `{TorchGpu.collector}`, {graphs} graphs of networks of"]
    trains = "Recorded networks and the power of eager ones train released predictors."
    lines += [f"`forerun collect graphs`. {trains}", ""]
    lines += ["## Machines", ""]
    for device, own in collected.groupby("device"):
        facts = [f"{name} {own.iloc[0][name]}" for name in about if name in own]
        lines.append(f"- {device}: {', '.join(facts)}")
    lines += ["", "## Rows", "", "| device | mode | phase | rows | with power | median spread |"]
    lines += ["|---|---|---|---:|---:|---:|"]
    modes, phases = execution_modes(rows), rows["phase"].fillna("")
    for device in sorted(rows["device"].unique()):
        for mode in EXECUTION_MODES:
            for phase in ("", "inference", "training"):
                own = rows[(rows["device"] == device) & (modes == mode) & (phases == phase)]
                if len(own):
                    figures = f"{len(own)} | {own['power_w'].notna().sum()}"
                    spread = f"{own['spread'].median():.3f}"
                    lines.append(f"| {device} | {mode} | {phase} | {figures} | {spread} |")
    lines += ["", "## Precisions", "", PRECISIONS, "", "## Columns", ""]
    return "\n".join(lines) + "\n" + "\n\n".join(COLUMNS) + "\n"


def main() -> None:
    """Pack tables and graphs into `data/measured/torch_gpu` of the working folder."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--graphs", nargs="+", type=Path, required=True)
    parser.add_argument("--folder", type=Path, default=Path("data/measured/torch_gpu"))
    given = parser.parse_args()
    print(write_package(given.tables, given.graphs, given.folder).digest)


if __name__ == "__main__":
    main()
