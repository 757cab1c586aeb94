"""Tables of `published_memory` for documents, evaluated anew:

    python -m forerun.training.reports.memory_results [--data DIR]

prints errors by source and kind of set-up under each protocol, the rows that are left out and why,
and how many set-ups that ran are predicted not to fit their own device (by `Memory`, whose
intervals were not calibrated on these set-ups).
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from forerun.data.bundle import Bundle, find
from forerun.data.datasets.memory.published_memory import PublishedMemory
from forerun.data.device import DeviceCatalog
from forerun.data.errors import InputError, MissingData
from forerun.models.artifact.loading import bundled
from forerun.models.artifact.training_record import TrainingRecord
from forerun.training.evaluation.evaluate import evaluate
from forerun.training.evaluation.memory_fits import FitCounts, fit_counts
from forerun.training.protocols.memory.memory_rows import memory_measurements, out_of_memory
from forerun.training.protocols.memory.published_memory import bundled_memory, graphs_of
from forerun.training.reports.results_tables import rendered
from forerun.training.reports.table_contents import published_memory

PROTOCOLS: Final[Mapping[str, str]] = {
    "published": "estimates as bundled; ranges of `Memory`, before any published set-up is used",
    "unseen_source": "estimates as bundled; ranges calibrated on the other sources",
    "unseen_model": "estimates as bundled; ranges calibrated on the other architecture families",
}
"""Protocol -> description."""


def report(evaluation: Mapping[str, Any], ran: FitCounts, failed: FitCounts) -> str:
    """All tables as Markdown.

    Args:
        evaluation: of `published_memory`, as `forerun.training.evaluation.evaluate.evaluate`
            returns it.
        ran: counts for set-ups that ran on their own device.
        failed: counts for set-ups that ran out of memory.
    """
    parts = []
    for protocol, words in PROTOCOLS.items():
        parts += [f"`{protocol}`: {words}.", rendered(published_memory(protocol), [evaluation])]
    parts.append(_left_out(evaluation["left_out"]))
    parts.append(_fits(ran, failed))
    return "\n\n".join(parts)


def _left_out(reasons: Mapping[str, int]) -> str:
    lines = ["| not evaluated, because | rows |", "| --- | ---: |"]
    ranked = sorted(reasons.items(), key=lambda pair: -pair[1])
    return "\n".join([*lines, *(f"| {reason} | {rows} |" for reason, rows in ranked)])


def _fits(ran: FitCounts, failed: FitCounts) -> str:
    lines = [
        "| runs on their own card | n | refused | estimate above it | upper end above it |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for words, one in (("that ran", ran), ("that ran out of memory", failed)):
        counts = (one.runs, one.refused, one.above_at_value, one.above_at_high)
        lines.append(f"| {words} | " + " | ".join(map(str, counts)) + " |")
    return "\n".join(lines)


def _bundle(folder: Path | None) -> Bundle:
    """The bundle in the folder, or the pulled one, which is first copied from the package."""
    try:
        return find("published_memory", folder)
    except MissingData:
        return PublishedMemory().pull()


def main(arguments: Sequence[str] | None = None) -> int:
    """Evaluate and print.

    Returns:
        Exit code: 0, or that of the error, with one line on standard error.
    """
    parser = argparse.ArgumentParser(prog="python -m forerun.training.reports.memory_results")
    parser.add_argument("--data", type=Path, help="folder of the bundle")
    given = parser.parse_args(arguments)
    try:
        bundle, catalog = _bundle(given.data), DeviceCatalog.load()
        evaluation = evaluate(
            bundle.name, current=bundled(), record=TrainingRecord(), data_dir=bundle.folder
        )
        table, graphs, predictor = bundle.table("table"), graphs_of(bundle), bundled_memory()
        measured, _ = memory_measurements(table, graphs, catalog)
        ran = fit_counts(predictor, measured.queries)
        failed = fit_counts(predictor, out_of_memory(table, graphs, catalog))
    except InputError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(report(evaluation, ran, failed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
