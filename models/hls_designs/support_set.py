"""The support set of a program: measured designs that a predictor was adapted to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from forerun.data.columns import Column
from forerun.data.device import Device
from forerun.data.program import ProgramGraph
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Design


@dataclass(frozen=True)
class SupportDesigns:
    """Measured designs of one program, synthesised by one version of the tool.

    Attributes:
        program: the program, which all designs share.
        device: the device of all designs.
        software: the tool.
        directives: names and values of the directives of each of the k designs.
        values: metric -> k values, NaN where not measured.
    """

    program: ProgramGraph
    device: Device
    software: Software
    directives: tuple[tuple[tuple[str, str], ...], ...]
    values: Mapping[str, Column]

    @classmethod
    def of(cls, queries: Sequence[Query], values: Mapping[str, Column]) -> Self:
        """The designs of k queries that have the program, the device and the tool in common."""
        first, directives = queries[0], tuple(query.design.directives for query in queries)
        return cls(first.design.program, first.device, first.software, directives, values)

    @cached_property
    def queries(self) -> tuple[Query, ...]:
        """The k designs as queries."""
        designs = (Design(self.program, directives) for directives in self.directives)
        return tuple(Query(design, self.device, self.software) for design in designs)
