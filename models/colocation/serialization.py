"""JSON of a co-location predictor without its engines, which are saved in files of their own."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun.data.errors import BadArtifact
from forerun.data.workload import HostWindow
from forerun.models.colocation.features import ProgramEffects
from forerun.models.colocation.host_forecast import Mixing
from forerun.models.colocation.slowed_class import ClassErrors
from forerun.models.conformal import LogQuantiles
from forerun.models.domain.feature_range import FeatureRange

if TYPE_CHECKING:
    from forerun.models.colocation.base import ColocationBase


def base_to_json(fitted: "ColocationBase") -> dict[str, Any]:
    """Attributes of a fitted predictor; its engines appear only by the metrics they predict."""
    idle = dict(zip(fitted.idle.metrics, next(iter(fitted.idle.seconds), ()), strict=False))
    return {
        "seed": fitted.seed,
        "levels": {metric: levels.to_json() for metric, levels in fitted.levels.items()},
        "engines": sorted(fitted.engines),
        "widths": [[*key, width.to_json()] for key, width in sorted(fitted.widths.items())],
        "trust": [[*key, value] for key, value in sorted(fitted.shrinkage.items())],
        "offsets": [[*key, value] for key, value in sorted(fitted.offsets.items())],
        "training_metrics": fitted.training_metrics,
        "idle": {n: v for n, v in idle.items() if np.isfinite(v)},
        "ahead": {metric: list(ends) for metric, ends in fitted.ahead.items()},
        "errors": [[*key, one.to_json()] for key, one in sorted(fitted.errors.items())],
        "least_cpu_share": fitted.least_cpu_share,
        "unit_power": fitted.unit_power,
        "mixing": {"weights": dict(fitted.mixing.weights), "pairs": fitted.mixing.pairs},
        "ranges": None if fitted.ranges is None else fitted.ranges.to_json(),
    }


def base_from_json(content: Mapping[str, Any]) -> dict[str, Any]:
    """Constructor arguments from what `base_to_json` wrote, without `engines`.

    An artifact from before the class `slowed` existed has no error rates, so none of its intervals
    is withheld.

    Raises:
        BadArtifact: an earlier version of forerun wrote it.
    """
    if not all(isinstance(name, str) for name in content["engines"]):
        raise BadArtifact(
            "This co-location predictor was written by an earlier version of forerun: "
            "train it again."
        )
    idle, ranges, mixing = content["idle"], content["ranges"], content["mixing"]
    return {
        "seed": content["seed"],
        "levels": {m: ProgramEffects.from_json(one) for m, one in content["levels"].items()},
        "widths": {(m, mode): LogQuantiles.from_json(w) for m, mode, w in content["widths"]},
        "shrinkage": {(m, program): value for m, program, value in content["trust"]},
        "offsets": {(m, program): value for m, program, value in content["offsets"]},
        "training_metrics": tuple(content["training_metrics"]),
        "idle": HostWindow(tuple(idle), (tuple(idle.values()),) if idle else ()),
        "ahead": {m: (one[0], one[1]) for m, one in content.get("ahead", {}).items()},
        "errors": {(m, c): ClassErrors.from_json(e) for m, c, e in content.get("errors", [])},
        "least_cpu_share": float(content.get("least_cpu_share", 0.0)),
        "unit_power": float(content.get("unit_power", 1.0)),
        "mixing": Mixing(mixing["weights"], mixing["pairs"]),
        "ranges": None if ranges is None else FeatureRange.from_json(ranges),
    }
