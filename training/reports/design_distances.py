"""How far do hardware designs lie from measured ones, and what does that imply? A Markdown table.

`python -m forerun.training.reports.design_distances` takes the measured designs of all named
programs from the bundled predictor. It prints by how much the cycles of a design differ from those
of its nearest neighbour, by their distance. It also prints how many combinations of measured
directive values lie further from all measured designs than the largest distance between
neighbours, which answers report as a limit.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from forerun.data.columns import Column
from forerun.data.named.networks import program_named, program_names
from forerun.data.named.synthesis import TOOLS, VCU1525
from forerun.data.query import Query
from forerun.data.workload import Design
from forerun.models.artifact.sealed_folder import bundled
from forerun.models.catalog import Scope
from forerun.models.hls_designs.booster import DesignBoost
from forerun.models.hls_designs.features import METRICS, program_key
from forerun.models.hls_designs.known_designs import Directives, KnownDesigns
from forerun.models.router import predictors_in

ENDS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Bounds of the distance bins, relative to the largest distance between neighbours of a program."""
DRAWS: Final = 200
"""Number of combinations drawn for each program and version of the tool."""
_CYCLES: Final = METRICS.index("latency_cycles")


def main() -> None:
    """Print the table and the share of combinations."""
    predictor = bundled(Scope(frozenset({"design"}))).predictor
    (boost,) = (part for part in predictors_in(predictor) if isinstance(part, DesignBoost))
    assert boost.known is not None
    queries = [
        Query(Design(program, ()), VCU1525, tool)
        for program in map(program_named, program_names())
        if program is not None
        for tool in TOOLS.values()
    ]
    print(*lines(boost.known, queries), sep="\n")


def lines(known: KnownDesigns, programs: Sequence[Query]) -> Iterator[str]:
    """The lines of the report.

    Args:
        known: the designs of a training set.
        programs: one design of each program and version of the tool; programs with fewer than two
            training designs are skipped.
    """
    queries = [query for query in programs if len(known.values.get(program_key(query), ())) > 1]
    parts = [distances_and_differences(known, query) for query in queries]
    distance, difference = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    yield "| distance from the nearest other design | designs | factor between their cycles |"
    yield "| --- | ---: | ---: |"
    strata = np.clip(np.searchsorted(ENDS, distance, side="right") - 1, 0, len(ENDS) - 2)
    for stratum, (low, high) in enumerate(pairwise(ENDS)):
        chosen = difference[strata == stratum]
        factor = f"{2.0 ** chosen.mean():.2f}" if len(chosen) else ""
        yield f"| {low:g} to {high:g} | {len(chosen):,} | {factor} |"
    shares = [share_further(known, query) for query in queries]
    yield ""
    yield (
        f"Of {DRAWS} combinations of measured values of each slot for each of {len(queries)} pairs "
        f"of program and tool, {100.0 * float(np.mean(shares)):.0f} % lie further."
    )


def distances_and_differences(known: KnownDesigns, query: Query) -> tuple[Column, Column]:
    """Distance of each training design of a program to its nearest neighbour, and their difference.

    Args:
        known: the designs of a training set.
        query: any design of the program.

    Returns:
        Distances relative to the largest one, and |log2| of the ratio of cycles, shape (k,) each.
    """
    nearest, distances = known.neighbours(query)
    cycles = known.values[program_key(query)][:, _CYCLES]
    return distances, np.abs(cycles - cycles[nearest])


def share_further(known: KnownDesigns, query: Query) -> float:
    """Share of random combinations further away than any two neighbouring training designs.

    Args:
        known: the designs of a training set.
        query: any design of the program. Each slot independently takes one of its measured values.
    """
    random = np.random.default_rng(0)
    values = values_of_slots(known.directives_of(query))
    drawn = (
        tuple((slot, str(random.choice(found))) for slot, found in values.items())
        for _ in range(DRAWS)
    )
    program, device, software = query.design.program, query.device, query.software
    nearest = known.nearest(
        [Query(Design(program, directives), device, software) for directives in drawn]
    )
    return float(np.mean([neighbour.relative_distance > 1.0 for neighbour in nearest]))


def values_of_slots(designs: Sequence[Directives]) -> dict[str, list[str]]:
    """Slot -> its values in these designs, both sorted."""
    slots = sorted({slot for directives in designs for slot, _ in directives})
    return {
        slot: sorted({value for one in designs for own, value in one if own == slot})
        for slot in slots
    }
