"""Figures of deployments for plans: those of whole answers, without what only words need."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

from forerun.data.errors import InputError
from forerun.data.query import Query
from forerun.features.deadline import check
from forerun.models.answers.deployments.answer import Priced, deployed_all, priced
from forerun.models.answers.deployments.times import Loops, under_load
from forerun.models.answers.served_models import InUse

TOGETHER: Final = 500
"""Deployments between two checks of the deadline."""


@dataclass
class PlanPricing:
    """Figures of deployments whose load alone changes from one call to the next.

    Attributes:
        in_use: the predictor in use.
        kept: closed loops of the deployments that were asked about.
    """

    in_use: InUse
    kept: dict[tuple[Hashable, ...], Loops] = field(default_factory=dict)

    def figures(
        self, queries: Sequence[Query], *, with_power: bool = False
    ) -> list[Priced | InputError]:
        """Those of n deployments, in one call of each predictor for each `TOGETHER`.

        Raises:
            DeadlineExceeded: the caller has left, or waits no longer.
        """
        found: list[Priced | InputError] = []
        for start in range(0, len(queries), TOGETHER):
            own = queries[start : start + TOGETHER]
            check()
            loads = under_load(own, self.in_use, self.kept, with_power=with_power)
            found += [
                load.time if isinstance(load.time, InputError) else priced(query, load.time, load)
                for query, load in zip(own, loads, strict=True)
            ]
        return found

    def grades(self, queries: Sequence[Query]) -> list[str]:
        """Grade of the time of a request of n deployments, that of whole answers."""
        found = deployed_all(queries, self.in_use)
        return [
            "C" if isinstance(own, InputError) else own.trust["request_latency_ms"].grade
            for own in found
        ]
