"""The cycles of a hardware design divided among the directives of its loops."""

from collections.abc import Sequence
from dataclasses import replace
from math import log
from typing import Final

from forerun.data.columns import Column
from forerun.data.query import Query
from forerun.data.workload import Design
from forerun.models.answers.wording import readable
from forerun.models.hls_designs.features import loop_effects
from forerun.models.predictor import Predictor
from forerun.models.router import Router
from forerun.service.schemas.answers import AttributedOut, AttributionOut

CYCLES: Final = "latency_cycles"


def by_loop(query: Query, design: Design, predictor: Predictor) -> AttributionOut:
    """The cycles of a design divided among the directives of its loops."""

    def cycles_of(designs: Sequence[Design]) -> Column:
        queries = [replace(query, workload=own) for own in designs]
        if isinstance(predictor, Router):
            return predictor.predict_only({CYCLES}, queries).values[CYCLES]
        return predictor.predict(queries).values[CYCLES]

    effects = loop_effects(design, cycles_of)
    by_size = sorted(effects.factors.items(), key=lambda item: -abs(log(item[1])))
    return AttributionOut(
        metric=CYCLES,
        form="product",
        base=effects.base,
        parts=[
            AttributedOut(label=readable(name), group="loop", count=1.0, value=factor)
            for name, factor in by_size
        ],
        kernels=None,
        correction=None,
    )
