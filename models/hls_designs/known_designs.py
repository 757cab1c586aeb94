"""Designs of the training set, and pairs of other designs with their nearest ones.

A tool maps many choices of directives to the same hardware, and a design often differs from a
measured one only in a directive without effect. The boosters for programs of the training set
therefore predict how much a design differs from each of its nearest training designs of the same
program, from the design's features, their differences, and the training design's values; the answer
is the mean over these. In training, a design is not its own neighbour.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple, Self

import numpy as np

from forerun.data.columns import Column, Matrix, Positions, rows_by
from forerun.data.query import Query
from forerun.data.workload import Design
from forerun.models.hls_designs.features import (
    BOUND_COLUMNS,
    Key,
    deviations_within,
    feature_matrix,
    place_matrix,
    program_key,
)
from forerun.models.hls_designs.limits import DirectiveRange
from forerun.models.limit import Limit

NEIGHBOURS: Final = 3
"""Number of training designs that a design is compared with."""
COMBINATION: Final = "distance_to_measured_designs"
"""Distance from the nearest training design, over the largest between neighbouring ones."""
FURTHEST: Final = 50.0
"""Cap on a feature in units of its deviation, for distances."""

ROUNDING: Final = 1e-9
"""Far above the relative error of squared distances computed from products."""
_NONE: Final = np.empty(0, dtype=np.intp)

Directives = tuple[tuple[str, str], ...]


class Pairs(NamedTuple):
    """p pairs of n designs with training designs.

    inputs: of the boosters, shape (p, columns).
    values: of the training designs, shape (p, metrics).
    design: design of each pair, ascending positions, shape (p,).
    """

    inputs: Matrix
    values: Matrix
    design: Positions

    def means(self, of_pairs: Matrix) -> Matrix:
        """Means over each design's pairs, shape (n, metrics), of numbers (p, metrics)."""
        sums = np.array([np.bincount(self.design, column) for column in of_pairs.T])
        return np.asarray((sums / np.bincount(self.design)).T)


class ProgramDesigns(NamedTuple):
    """The k training designs of one program.

    Attributes:
        directives: directives of each.
        bounds, places, values: features `BOUNDS`, `place_matrix` and measured values, k rows each.
        varying: columns of `place_matrix` that differ between them.
        scaled: these columns in units of `KnownDesigns.units`, (k, columns).
        lengths: (k,) squared norms of the rows of `scaled`.
        reach: largest distance of any of them from its nearest neighbour.
    """

    directives: tuple[Directives, ...]
    bounds: Matrix
    places: Matrix
    values: Matrix
    varying: Positions
    scaled: Matrix
    lengths: Column
    reach: float

    def nearest(self, design: Column, apart_from: Positions) -> tuple[Positions, float]:
        """The `NEIGHBOURS` nearest to a design, nearest first, and the distance of the nearest.

        Args:
            design: coordinates of the design, as a row of `scaled`.
            apart_from: designs to exclude, unless there are no others.
        """
        rough = self.lengths - 2.0 * np.einsum("kc,c->k", self.scaled, design)
        if len(apart_from) < len(rough):
            rough[apart_from] = np.inf
        # Products pre-select candidates. Their distances follow from differences, column after
        # column, so that ties do not depend on the number of candidates.
        last = np.partition(rough, min(NEIGHBOURS, len(rough)) - 1)[:NEIGHBOURS].max()
        slack = ROUNDING * (self.lengths.max() + design @ design)
        close = np.flatnonzero((rough <= last + slack) & (rough < np.inf))
        squared = np.square(self.scaled[close] - design, order="F").sum(axis=1)
        chosen = np.argsort(squared, kind="stable")[:NEIGHBOURS]
        return close[chosen], float(np.sqrt(squared[chosen[0]]))


class Nearest(NamedTuple):
    """The training designs nearest to one design of their program.

    Attributes:
        program: all training designs of the program.
        chosen: positions of the nearest of them, nearest first.
        distance: distance of the design from the nearest.
        place: the design's row of `place_matrix`.
    """

    program: ProgramDesigns
    chosen: Positions
    distance: float
    place: Column

    @property
    def relative_distance(self) -> float:
        """`distance` over the largest neighbour distance among the program's training designs.

        It is 0 if the program has only one design, or if all of its designs coincide.
        """
        return self.distance / self.program.reach if self.program.reach > 0.0 else 0.0


@dataclass(frozen=True)
class KnownDesigns:
    """The designs of a training set, by program.

    Attributes:
        directives: program -> JSON list with the names and values of each of its k designs.
        values: program -> measured values on the scale of the boosters, (k, metrics).
        units: deviation of each column of `place_matrix` within programs.
    """

    directives: Mapping[Key, str]
    values: Mapping[Key, Matrix]
    units: tuple[float, ...]

    @classmethod
    def of(
        cls, queries: Sequence[Query], places: Matrix, program: Positions, values: Matrix
    ) -> Self:
        """The designs of n queries.

        Args:
            queries: n designs.
            places: their `place_matrix`.
            program: index of each design's program, shape (n,).
            values: measured values on the scale of the boosters, (n, metrics).
        """
        rows = rows_by(map(program_key, queries))
        texts = {
            key: json.dumps(
                [queries[row].design.directives for row in members], separators=(",", ":")
            )
            for key, members in rows.items()
        }
        units = deviations_within(places, program)
        return cls(texts, {key: values[members] for key, members in rows.items()}, units)

    def nearest(self, queries: Sequence[Query], *, others: bool = False) -> list[Nearest]:
        """The nearest training designs of each design.

        Args:
            queries: n designs of programs in the training set.
            others: whether to choose only among designs with other directives, for training. The
                only design of its program is its own neighbour.
        """
        places = place_matrix(queries)
        scaled = np.clip(places / self._units, -FURTHEST, FURTHEST)
        found = []
        for query, place, scaled_place in zip(queries, places, scaled, strict=True):
            program, same = self._of_program(program_key(query), query), _NONE
            if others:
                directives = query.design.directives
                same = np.flatnonzero([other == directives for other in program.directives])
            found.append(
                Nearest(program, *program.nearest(scaled_place[program.varying], same), place)
            )
        return found

    def pairs(self, nearest: Sequence[Nearest], matrix: Matrix) -> Pairs:
        """Pairs of n designs with their nearest training designs.

        Args:
            nearest: result of `nearest` for them.
            matrix: their features, (n, len(FEATURES)).
        """
        design = np.repeat(
            np.arange(len(nearest)), [len(neighbours.chosen) for neighbours in nearest]
        )
        bounds = np.concatenate(
            [neighbours.program.bounds[neighbours.chosen] for neighbours in nearest]
        )
        theirs = np.concatenate(
            [neighbours.program.places[neighbours.chosen] for neighbours in nearest]
        )
        values = np.concatenate(
            [neighbours.program.values[neighbours.chosen] for neighbours in nearest]
        )
        features, places = (
            matrix[design],
            np.array([neighbours.place for neighbours in nearest])[design],
        )
        apart = bounds - features[:, BOUND_COLUMNS], theirs - places
        inputs = np.concatenate([features, places, *apart, values], axis=1)
        return Pairs(inputs, values, design)

    def directive_range(self, key: Key, support: Sequence[Directives] = ()) -> DirectiveRange:
        """Values of directives in the training designs of a program.

        Args:
            key: the program; for one outside the training set, the range over all programs is used.
            support: directives of further measured designs of the program.
        """
        of_training = self._range(key)
        return of_training.with_designs(support) if support else of_training

    @staticmethod
    def combination_limit(nearest: Nearest) -> Limit | None:
        """A limit if a combination of directives is far from those of all training designs.

        Intervals are calibrated on held-out designs, which are as far from the others as training
        designs are from each other.

        Args:
            nearest: result of `nearest` for a design.

        Returns:
            None if it is no further from its nearest training design than these are from each
            other, or if the program has only one.
        """
        times = nearest.relative_distance
        if times <= 1.0:
            return None
        message = (
            "each directive value was measured for this program, but their combination is "
            f"{times:.3g} times as far from the nearest measured design as measured designs "
            "are from each other"
        )
        return Limit(message, feature=COMBINATION, value=times, low=0.0, high=1.0)

    def directives_of(self, query: Query) -> tuple[Directives, ...]:
        """Directives of the training designs of the query's program."""
        return self._directives(program_key(query))

    def neighbours(self, query: Query) -> tuple[Positions, Column]:
        """The nearest other training design of each of the k >= 2 training designs of a program.

        Args:
            query: any design of the program.

        Returns:
            Positions of these, shape (k,), and distances over the largest of them, shape (k,).
        """
        known = self._of_program(program_key(query), query)
        squared = np.array([np.square(known.scaled - point).sum(axis=1) for point in known.scaled])
        np.fill_diagonal(squared, np.inf)
        nearest = squared.argmin(axis=1)
        distances = np.sqrt(squared[np.arange(len(nearest)), nearest])
        return nearest, distances / known.reach if known.reach > 0.0 else 0.0 * distances

    def _range(self, key: Key) -> DirectiveRange:
        """The range of the training designs alone, computed once."""
        range_key = key if key in self.directives else None
        found = self._ranges.get(range_key)
        if found is None:
            of = DirectiveRange.of_programs if range_key is None else DirectiveRange.of_program
            found = self._ranges[range_key] = of(self._directives(key))
        return found

    def _directives(self, key: Key) -> tuple[Directives, ...]:
        """Directives of the training designs of a program, or of all where it has none."""
        if key not in self.directives:
            return tuple(design for known in self.directives for design in self._directives(known))
        return tuple(
            tuple((str(name), str(value)) for name, value in pairs)
            for pairs in json.loads(self.directives[key])
        )

    @cached_property
    def _ranges(self) -> dict[Key | None, DirectiveRange]:
        return {}

    @cached_property
    def _units(self) -> Column:
        return np.array(self.units)

    @cached_property
    def _programs(self) -> dict[Key, ProgramDesigns]:
        return {}

    def _of_program(self, key: Key, query: Query) -> ProgramDesigns:
        """The training designs of a query's program, with features computed once."""
        found = self._programs.get(key)
        if found is None:
            directives = self._directives(key)
            queries = [
                Query(Design(query.design.program, chosen), query.device, query.software)
                for chosen in directives
            ]
            places = place_matrix(queries)
            scaled = np.clip(places / self._units, -FURTHEST, FURTHEST)
            varying = np.flatnonzero(np.ptp(scaled, axis=0) > 0)
            bounds = feature_matrix(queries)[:, BOUND_COLUMNS]
            of_varying, values = scaled[:, varying], self.values[key]
            rows = directives, bounds, places, values
            found = ProgramDesigns(
                *rows, varying, of_varying, np.square(of_varying).sum(axis=1), _reach(of_varying)
            )
            self._programs[key] = found
        return found


def _reach(points: Matrix) -> float:
    """Largest distance of any of k points from its nearest neighbour; 0 for a single point.

    Args:
        points: shape (k, columns).
    """
    if len(points) < 2:
        return 0.0
    lengths = np.square(points).sum(axis=1)
    squared = lengths[:, None] + lengths - 2.0 * points @ points.T
    np.fill_diagonal(squared, np.inf)
    return float(np.sqrt(max(squared.min(axis=1).max(), 0.0)))
