"""The meaning of distances between hardware designs, as stated in `docs/how-to/designs.md`."""

import re
from pathlib import Path

import numpy as np
import pytest

from forerun.models.hls_designs.features import METRICS, place_matrix
from forerun.models.hls_designs.known_designs import KnownDesigns
from forerun.training.reports.design_distances import (
    distances_and_differences,
    lines,
    main,
    share_further,
    values_of_slots,
)
from tests.models.hls_designs.test_booster import measured

DOCUMENT = Path(__file__).parents[3] / "docs" / "how-to" / "designs.md"


def designs_of(rows) -> KnownDesigns:
    """The designs of rows; cycles double with each position."""
    values = np.repeat(np.arange(len(rows), dtype=np.float64)[:, None], len(METRICS), axis=1)
    program = np.zeros(len(rows), dtype=np.intp)
    return KnownDesigns.of(rows.queries, place_matrix(rows.queries), program, values)


def test_the_nearest_other_design_is_by_distance_and_the_largest_distance_is_one():
    rows = measured([16, 32]).take(range(0, 96, 5))
    known = designs_of(rows)
    distances, differences = distances_and_differences(known, rows.queries[0])
    places = place_matrix(rows.queries) / np.array(known.units)
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)
    np.fill_diagonal(apart, np.inf)
    assert distances == pytest.approx(apart.min(axis=1) / apart.min(axis=1).max())
    assert distances.max() == pytest.approx(1.0)
    nearest = apart.argmin(axis=1)
    assert differences == pytest.approx(np.abs(np.arange(len(rows)) - nearest))


def test_combinations_of_a_whole_grid_lie_no_further_and_those_off_an_axis_do():
    rows = measured([16, 32])
    known, query = designs_of(rows), rows.queries[0]
    values = values_of_slots(known.directives_of(query))
    assert np.prod([len(own) for own in values.values()]) == len(set(known.directives_of(query)))
    assert share_further(known, query) == 0.0
    axes = [
        at
        for at, own in enumerate(rows.queries)
        if "1" in (dict(own.design.directives)[name] for name in ("__PARA__L0", "__PARA__L1"))
    ]
    assert share_further(designs_of(rows.take(axes)), query) > 0.1


def test_the_report_counts_every_design_once():
    rows = measured([16, 32]).take(range(0, 96, 5))
    table = list(lines(designs_of(rows), rows.queries[:1]))
    counts = [int(line.split("|")[2].replace(",", "")) for line in table[2:6]]
    assert sum(counts) == len(rows)
    assert re.search(r"for each of 1 pairs of program and tool, \d+ % lie further", table[-1])


@pytest.mark.slow
def test_the_document_states_what_the_report_prints(capsys):
    main()
    printed, stated = capsys.readouterr().out, " ".join(DOCUMENT.read_text().split())
    factors = re.findall(r"\| [\d,]+ \| ([\d.]+) \|", printed)
    (share,) = re.findall(r", (\d+) % lie further", printed)
    assert f"by a factor of {float(factors[0]):.1f} on average" in stated
    assert f"by {float(factors[-1]):.1f} from three quarters" in stated
    assert f"{share} % lie further" in stated
    assert "python -m forerun.training.reports.design_distances" in stated
