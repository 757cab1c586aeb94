"""Designs of the training set, and pairs of other designs with the nearest of them.

A tool maps many choices of directives to the same hardware, and often one directive apart from a
measured design changes nothing. So the boosters for programs of the training set predict by how
much a design differs from each of its nearest training designs of the same program, from the
features of the design, their differences, and the values of the training design; the answer is the
mean over these. In training, a design is not its own neighbour.
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
"""Training designs that a design is compared with."""
COMBINATION: Final = "distance_to_measured_designs"
"""Distance from the nearest training design, over the largest between neighbours of these."""
FURTHEST: Final = 50.0
"""Largest value of a feature in units of its deviation, for distances."""

Directives = tuple[tuple[str, str], ...]


class Pairs(NamedTuple):
    """p pairs of n designs with training designs.

    Attributes:
        inputs: of the boosters, shape (p, columns).
        values: of the training designs, shape (p, metrics).
        design: position of the design of each pair, ascending, shape (p,).
    """

    inputs: Matrix
    values: Matrix
    design: Positions

    def means(self, of_pairs: Column) -> Column:
        """Mean over the pairs of each design, shape (n,), of numbers of shape (p,)."""
        return np.bincount(self.design, of_pairs) / np.bincount(self.design)


class _OfProgram(NamedTuple):
    """The k training designs of one program.

    `scaled` has the columns of `place_matrix` that differ between them, in units of `units`.
    `reach` is the largest distance of one of them from the nearest other.
    """

    directives: tuple[Directives, ...]
    bounds: Matrix
    places: Matrix
    varying: Positions
    scaled: Matrix
    reach: float


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
            key: json.dumps([queries[row].design.directives for row in own], separators=(",", ":"))
            for key, own in rows.items()
        }
        units = deviations_within(places, program)
        return cls(texts, {key: values[own] for key, own in rows.items()}, units)

    def pairs(
        self, queries: Sequence[Query], matrix: Matrix, places: Matrix, *, others: bool = False
    ) -> Pairs:
        """Pairs of n designs with their nearest training designs.

        Args:
            queries: n designs of programs in the training set.
            matrix: their features, (n, len(FEATURES)).
            places: their `place_matrix`.
            others: whether a design is paired with those of other directives only, for training.
                The only design of its program is paired with itself.
        """
        found: dict[int, tuple[_OfProgram, Positions, Matrix]] = {}
        for key, rows in rows_by(map(program_key, queries)).items():
            known = self._of_program(key, queries[rows[0]])
            for row in rows:
                chosen = _nearest(known, places[row] / self._units, FURTHEST)
                if others:
                    same = [known.directives[at] == queries[row].design.directives for at in chosen]
                    chosen = chosen[~np.array(same)] if not all(same) else chosen
                chosen = chosen[:NEIGHBOURS]
                found[row] = known, chosen, self.values[key][chosen]
        nearest = [found[row] for row in range(len(queries))]
        design = np.repeat(np.arange(len(queries)), [len(chosen) for _, chosen, _ in nearest])
        own = np.hstack([matrix, places])[design]
        bounds = np.concatenate([known.bounds[chosen] for known, chosen, _ in nearest])
        theirs = np.concatenate([known.places[chosen] for known, chosen, _ in nearest])
        values = np.concatenate([values for _, _, values in nearest])
        apart = bounds - matrix[:, BOUND_COLUMNS][design], theirs - places[design]
        return Pairs(np.hstack([own, *apart, values]), values, design)

    def directive_range(self, key: Key, support: Sequence[Directives] = ()) -> DirectiveRange:
        """Values of directives in the training designs of a program.

        Args:
            key: the program; of one outside the training set, the range is that of all programs.
            support: directives of further measured designs of the program.
        """
        if not support:
            return self._range(key)
        of = DirectiveRange.of_program if key in self.directives else DirectiveRange.of_programs
        return of([*self._directives(key), *support])

    def combination_limit(self, query: Query) -> Limit | None:
        """A limit where directives together lie far from those of all training designs.

        Intervals are calibrated on held-out designs, which lie as far from the nearest of the
        others as training designs do.

        Args:
            query: a design of a program in the training set.

        Returns:
            None where it is no further from the nearest training design than one of these is from
            the nearest other, or where the program has only one.
        """
        times = self.relative_distance(query)
        if times <= 1.0:
            return None
        message = (
            "each directive has a value of a measured design of this program, but together they "
            f"lie {times:.3g} times as far from the nearest of these as any of them from the next"
        )
        return Limit(message, feature=COMBINATION, value=times, low=0.0, high=1.0)

    def directives_of(self, query: Query) -> tuple[Directives, ...]:
        """Directives of the training designs of the query's program."""
        return self._directives(program_key(query))

    def relative_distance(self, query: Query) -> float:
        """Distance from the nearest training design, over the largest between neighbours of these.

        Args:
            query: a design of a program in the training set.

        Returns:
            0 where the program has only one design, or all of its designs are alike.
        """
        known = self._of_program(program_key(query), query)
        place = place_matrix([query])[0] / self._units
        distance = float(np.sqrt(_squared_distances(known, place).min()))
        return distance / known.reach if known.reach > 0.0 else 0.0

    def neighbours(self, query: Query) -> tuple[Positions, Column]:
        """The nearest other training design of each of the k >= 2 training designs of a program.

        Args:
            query: any design of the program.

        Returns:
            Positions of these, shape (k,), and distances over the largest of them, shape (k,).
        """
        known = self._of_program(program_key(query), query)
        squared = np.array([np.square(known.scaled - own).sum(axis=1) for own in known.scaled])
        np.fill_diagonal(squared, np.inf)
        nearest = squared.argmin(axis=1)
        distances = np.sqrt(squared[np.arange(len(nearest)), nearest])
        return nearest, distances / known.reach if known.reach > 0.0 else 0.0 * distances

    def _range(self, key: Key) -> DirectiveRange:
        """The range of training designs alone, which is computed once."""
        own = key if key in self.directives else None
        found = self._ranges.get(own)
        if found is None:
            of = DirectiveRange.of_programs if own is None else DirectiveRange.of_program
            found = self._ranges[own] = of(self._directives(key))
        return found

    def _directives(self, key: Key) -> tuple[Directives, ...]:
        """Directives of the training designs of a program, or of all where it has none."""
        if key not in self.directives:
            return tuple(one for known in self.directives for one in self._directives(known))
        return tuple(
            tuple((str(name), str(value)) for name, value in one)
            for one in json.loads(self.directives[key])
        )

    @cached_property
    def _ranges(self) -> dict[Key | None, DirectiveRange]:
        return {}

    @cached_property
    def _units(self) -> Column:
        return np.array(self.units)

    @cached_property
    def _programs(self) -> dict[Key, _OfProgram]:
        return {}

    def _of_program(self, key: Key, query: Query) -> _OfProgram:
        """The training designs of a query's program, whose features are computed once."""
        found = self._programs.get(key)
        if found is None:
            directives = self._directives(key)
            queries = [
                Query(Design(query.design.program, one), query.device, query.software)
                for one in directives
            ]
            places = place_matrix(queries)
            scaled = np.clip(places / self._units, -FURTHEST, FURTHEST)
            varying = np.flatnonzero(np.ptp(scaled, axis=0) > 0)
            bounds = feature_matrix(queries)[:, BOUND_COLUMNS]
            own = scaled[:, varying]
            found = _OfProgram(directives, bounds, places, varying, own, _reach(own))
            self._programs[key] = found
        return found


def _nearest(known: _OfProgram, scaled: Column, furthest: float) -> Positions:
    """Training designs by distance, each computed alone so that no batch changes ties."""
    return np.argsort(_squared_distances(known, scaled, furthest), kind="stable")


def _squared_distances(known: _OfProgram, scaled: Column, furthest: float = FURTHEST) -> Column:
    """Squared distance of a design from each of the k training designs, shape (k,)."""
    own = np.clip(scaled[known.varying], -furthest, furthest)
    return np.asarray(np.square(known.scaled - own).sum(axis=1))


def _reach(points: Matrix) -> float:
    """Largest distance of one of k points from the nearest other; 0 of a single one.

    Args:
        points: shape (k, columns).
    """
    if len(points) < 2:
        return 0.0
    lengths = np.square(points).sum(axis=1)
    squared = lengths[:, None] + lengths - 2.0 * points @ points.T
    np.fill_diagonal(squared, np.inf)
    return float(np.sqrt(max(squared.min(axis=1).max(), 0.0)))
