"""Pack tables of `forerun collect gpu` and graphs of `collect graphs` as `torch_gpu`."""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
from forerun.data.lazy import pd
from forerun.data.markdown import markdown

MACHINE = ("framework_version", "cuda", "driver", "cpu_model", "cpus", "system", "python")
"""Columns of the collector that describe software and host."""


def write_package(
    tables: Sequence[Path], graphs: Sequence[Path], folder: Path, earlier: Bundle | None = None
) -> Bundle:
    """Write rows of `forerun collect gpu` as the tables of this dataset.

    Rows that failed and rows of runtimes other than eager are dropped.

    Args:
        tables: tables written by the collector.
        graphs: folders of `forerun collect graphs`, with a file for each network of the tables
            whose graph is not in `earlier`.
        folder: output folder, such as `data/measured/torch_gpu`.
        earlier: a previously packed version of this dataset, to which the rows are added; of two
            rows with the same query the later one is kept.

    Raises:
        BadTable: a table was not written by the collector, or a network has no graph.
        UnknownDevice: a GPU is not among forerun's devices.
    """
    from forerun.data.measurement import read_measurements

    frame = pd.concat([read_measurements(table) for table in tables], ignore_index=True)
    kept = (frame["runtime"] == "eager") & (frame["status"] != "failed")
    frame = frame[kept].reset_index(drop=True)
    catalog = DeviceCatalog.load()
    names = {device: catalog.get(device).name for device in frame["device"].unique()}
    recorded = frame["cuda_graph"] if "cuda_graph" in frame else pd.Series(False, frame.index)
    networks = frame["kind"] == "network"
    labels = set(frame.loc[networks, "label"])
    known = None if earlier is None else earlier.table("graphs")
    contents = _contents(graphs, sorted(labels if known is None else labels - {*known["graph"]}))
    if known is not None:
        contents = pd.concat([known, contents]).sort_values("graph", ignore_index=True)
    digests = dict(zip(contents["graph"], contents["digest"], strict=True))
    rows = frame.assign(
        device=frame["device"].map(names),
        cuda_graph=[value is True for value in recorded.astype(object)],
        workload=frame["workload"].where(~networks, frame["label"].map(digests)),
        fp32_convolutions=_fp32_convolutions(frame),
    )
    rows = rows.reindex(columns=TorchGpu.columns).astype(dict.fromkeys(NUMBERS, "float64"))
    rows["phase"] = rows["phase"].where(networks, None)
    machines = {names[device]: facts for device, facts in _machines(frame).items()}
    if earlier is not None:
        rows = pd.concat([earlier.table("runs"), rows])
        rows = rows.drop_duplicates(list(TorchGpu.query), keep="last")
        machines = earlier.facts.get("machines", {}) | machines
    rows = rows.sort_values(["device", "kind", "cuda_graph", "label"], kind="stable")
    dataset, written = TorchGpu(), {"runs": rows.reset_index(drop=True), "graphs": contents}
    dataset.validate(written)
    return Bundle.write(
        folder,
        dataset.name,
        written,
        datasheet=_datasheet(written["runs"], len(contents), machines),
        facts={
            "source": f"measured by `{dataset.origin}`",
            "licence": dataset.licence,
            "machines": machines,
        },
    )


def _fp32_convolutions(frame: "pd.DataFrame") -> "pd.Series[str]":
    """Meaning of fp32 for convolutions; `strict` in tables that do not state it."""
    if "fp32_convolutions" not in frame:
        return pd.Series("strict", frame.index, dtype="str")
    return frame["fp32_convolutions"].fillna("strict").astype("str")


def _machines(frame: "pd.DataFrame") -> dict[str, str]:
    """The collector's name of a GPU -> versions and host, in words."""
    names = [name for name in MACHINE if name in frame]
    return {
        str(device): ", ".join(f"{name} {rows.iloc[0][name]}" for name in names)
        for device, rows in frame.groupby("device")
    }


def _contents(folders: Sequence[Path], labels: Sequence[str]) -> "pd.DataFrame":
    """Rows of the table `graphs` for the given networks."""
    rows: list[dict[str, Any]] = []
    for label in labels:
        found = [path for folder in folders if (path := folder / f"{label}.json").is_file()]
        if not found:
            raise BadTable(f"{label} was measured, but no folder has its graph {label}.json.")
        graph = OperatorGraph.from_json(json.loads(found[0].read_text(encoding="utf-8")))
        content = json.dumps(graph.to_json(), sort_keys=True, separators=(",", ":"))
        row = {"graph": label, "digest": graph.digest, "content": content}
        rows.append({**row, "operators": len(graph)})
    contents = pd.DataFrame(rows, columns=["graph", "digest", "content", "operators"])
    return contents.astype({"operators": "int64"})


def _datasheet(rows: "pd.DataFrame", graphs: int, machines: Mapping[str, str]) -> str:
    order = {"mode": list(EXECUTION_MODES), "phase": ["", "inference", "training"]}
    keys = rows.assign(mode=execution_modes(rows), phase=rows["phase"].fillna(""))
    for name, values in order.items():
        keys[name] = pd.Categorical(keys[name], values)
    groups = keys.groupby(["device", *order], observed=True)
    return markdown(
        "forerun.data.datasets.networks",
        "pack_torch_gpu.md",
        dataset=TorchGpu,
        rows=rows,
        graphs=graphs,
        machines=machines,
        groups=groups,
    )


def main() -> None:
    """Pack tables and graphs into `data/measured/torch_gpu` of the working folder."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--graphs", nargs="+", type=Path, required=True)
    parser.add_argument("--folder", type=Path, default=Path("data/measured/torch_gpu"))
    parser.add_argument("--add", action="store_true", help="keep the rows that FOLDER holds")
    given = parser.parse_args()
    earlier = Bundle.open(given.folder) if given.add else None
    print(write_package(given.tables, given.graphs, given.folder, earlier).digest)


if __name__ == "__main__":
    main()
