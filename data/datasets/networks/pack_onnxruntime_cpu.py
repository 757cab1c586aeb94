"""Tables of `forerun collect cpu` as the dataset `onnxruntime_cpu`, with its datasheet."""

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from forerun.data.bundle import Bundle
from forerun.data.datasets.networks.onnxruntime_cpu import OnnxruntimeCpu
from forerun.data.lazy import pd


def write_package(tables: Sequence[Path], device: str, folder: Path) -> Bundle:
    """Write rows of `forerun collect cpu` as the tables of this dataset, replacing earlier ones.

    Args:
        tables: as the collector wrote them; rows of other runtimes, failed and crowded ones are
            left out.
        device: name of the processor.
        folder: `data/measured/onnxruntime_cpu`, or another.

    Raises:
        BadTable: a table was not written by the collector.
    """
    from forerun.data.measurement import crowded, read_measurements

    frames = []
    for table in tables:
        frame = read_measurements(table)
        kept = (frame["status"] == "ok") & (frame["runtime"] == "onnxruntime") & ~crowded(frame)
        frames.append(frame[kept].assign(device=device))
    rows = pd.concat(frames, ignore_index=True)
    rows["batch_size"] = rows["batch_size"].fillna(1)
    rows = rows[list(OnnxruntimeCpu.columns)].astype({"threads": "int64", "batch_size": "int64"})
    numbers = ("latency_ms", "fastest_ms", "peak_memory_mib", "spread", "others_share")
    rows = rows.astype(dict.fromkeys(numbers, "float64"))
    dataset = OnnxruntimeCpu()
    dataset.validate({"runs": rows})
    return Bundle.write(
        folder,
        dataset.name,
        {"runs": rows},
        datasheet=_datasheet(rows, frames),
        facts={"source": f"measured by `{dataset.origin}`", "licence": dataset.licence},
    )


def _datasheet(rows: "pd.DataFrame", frames: "Sequence[pd.DataFrame]") -> str:
    first = frames[0].iloc[0]
    about = ("cpu_model", "instruction_set", "cpus", "system", "framework_version", "python")
    lines = ["# onnxruntime_cpu: operators and networks through onnxruntime on processors", ""]
    lines += [f"{len(rows)} rows, made by `{OnnxruntimeCpu.origin}`; see the plan", ""]
    lines += ["`cpu-onnxruntime`.", "", "## Machine", ""]
    lines += [f"- {name}: {first[name]}" for name in about if name in first]
    kinds = zip(rows["threads"].tolist(), rows["kind"].tolist(), strict=True)
    counts = sorted(Counter(kinds).items())
    lines += ["", "## Rows", ""]
    lines += [f"- {n} of kind {kind} at {threads} threads" for (threads, kind), n in counts]
    spread, others = rows["spread"].median(), rows["others_share"].median()
    lines += [
        "",
        "`latency_ms` is the median of the fastest steady window, `spread` the interquartile "
        f"range of its runs over that ({spread:.3f} in the middle), `others_share` what others "
        f"took of the processors meanwhile ({others:.2f} in the middle: the machine is shared). "
        "`peak_memory_mib` is the process's peak over what it held before the network was loaded. "
        "Networks are those of `forerun.data.collectors.workloads.onnx_networks`; `workload` is "
        "the digest of their graph. No network that people publish is among them.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Pack tables into `data/measured/onnxruntime_cpu` of the working folder."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--device", required=True)
    parser.add_argument("--folder", type=Path, default=Path("data/measured/onnxruntime_cpu"))
    given = parser.parse_args()
    print(write_package(given.tables, given.device, given.folder).digest)


if __name__ == "__main__":
    main()
