"""A user's own processor: collect two minutes, adapt, and predict networks never measured.

    python -m tests.benchmarks.own_cpu --threads 1 [--plan cpu-onnxruntime] [FILE ...]

The networks of the test are the nine of the onnx package and the files given; none is in a
collection.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import yaml

from tests.benchmarks.models import LIGHT

TEST_MINUTES = 10


def main() -> None:
    """Measure, adapt, evaluate, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--plan", type=Path, help="collection [--quick]")
    parser.add_argument("--collected", type=Path, help="table of an earlier collection")
    parser.add_argument("--held-out", type=Path, help="table of test networks measured earlier")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        figures = own_cpu(
            Path(place), given.threads, given.plan, given.files, given.collected, given.held_out
        )
    print(json.dumps(figures, indent=1))


def own_cpu(
    place: Path,
    threads: int = 1,
    plan: Path | None = None,
    files: "list[Path] | None" = None,
    collected: Path | None = None,
    held_out: Path | None = None,
) -> dict[str, float]:
    """Median error in %, share inside 90 % intervals, and width of intervals, of unseen networks.

    Args:
        place: an empty folder.
        threads: of all measurements.
        plan: of the collection; `--quick` when None.
        files: networks of the test in addition to those of the onnx package.
        collected: table of a collection, in place of measuring.
        held_out: table of the networks of the test, likewise.
    """
    count = ("--threads", threads)
    if collected is None:
        collected = place / "mine.csv"
        how = ("--plan", plan) if plan else ("--quick",)
        _forerun(place, "collect", "cpu", *how, "-o", collected, *count)
    if held_out is None:
        held_out = place / "held_out.csv"
        networks = [*sorted(LIGHT.glob("light_*.onnx")), *(files or [])]
        content = {
            "budget_minutes": TEST_MINUTES,
            "window_s": 1.0,
            "reference_networks": False,
            "onnx_files": [str(file.resolve()) for file in networks],
        }
        own = place / "held_out.yaml"
        own.write_text(yaml.safe_dump(content))
        _forerun(place, "collect", "cpu", "--plan", own, "-o", held_out, *count)
    return evaluate(collected, held_out)


def evaluate(collected: Path, held_out: Path) -> dict[str, float]:
    """The figures from two tables."""
    from forerun.data.device import Device, DeviceCatalog
    from forerun.models.artifact.sealed_folder import bundled
    from forerun.service.adaptation.measurement_files import GraphFolder, graph_folder_of, read_rows
    from forerun.service.schemas.measured_rows import as_measurements, queries_of

    device = Device(name="my-cpu", vendor="unknown", kind="cpu")
    catalog = DeviceCatalog.load().with_device(device)

    def rows(table: Path):  # type: ignore[no-untyped-def]
        found = read_rows(table, device, catalog)
        graphs = GraphFolder(graph_folder_of(table))
        return as_measurements(found.rows, queries_of(found.rows, device, graphs.get, found.names))

    test = rows(held_out)
    answers = bundled().predictor.adapt(rows(collected)).predict(test.queries)
    truth = test.values["latency_ms"]
    low, high = answers.low["latency_ms"], answers.high["latency_ms"]
    errors = np.abs(answers.values["latency_ms"] / truth - 1)
    memory = np.abs(answers.values["peak_memory_mib"] / test.values["peak_memory_mib"] - 1)
    return {
        "own_cpu_networks": float(len(truth)),
        "own_cpu_median_error_percent": float(100 * np.median(errors)),
        "own_cpu_mean_error_percent": float(100 * np.mean(errors)),
        "own_cpu_inside_interval": float(np.mean((low <= truth) & (truth <= high))),
        "own_cpu_said_coverage": float(answers[0].estimates["latency_ms"].coverage or np.nan),
        "own_cpu_interval_ratio": float(np.median(high / low)),
        "own_cpu_memory_error_percent": float(100 * np.nanmedian(memory)),
    }


def _forerun(place: Path, *words: object) -> None:
    forerun = str(Path(sys.executable).parent / "forerun")
    subprocess.run(
        [forerun, *map(str, words)],
        env={"FORERUN_HOME": str(place / "home"), "PATH": ""},
        stdout=subprocess.DEVNULL,
        check=True,
    )


if __name__ == "__main__":
    main()
