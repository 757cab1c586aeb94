"""What the predictor in use knows by name: benchmark suites, and devices without a spec sheet."""

from collections.abc import Mapping
from dataclasses import dataclass

from forerun.data.workload import Space
from forerun.models.architectures import ArchitectureLatency
from forerun.models.known_suites import KnownSuite, KnowsSuites
from forerun.models.predictor import Predictor
from forerun.models.router import predictors_in


@dataclass(frozen=True)
class AnsweredSuite:
    """A suite, and the predictor that answers it."""

    suite: KnownSuite
    predictor: KnowsSuites


def suites_of(predictor: Predictor) -> Mapping[str, AnsweredSuite]:
    """Name of each suite -> what the first predictor that answers it knows of it."""
    found: dict[str, AnsweredSuite] = {}
    for part in predictors_in(predictor):
        if isinstance(part, KnowsSuites):
            for suite in part.known_suites():
                found.setdefault(suite.name, AnsweredSuite(suite, part))
    return found


def devices_of_space(predictor: Predictor, space: Space) -> tuple[str, ...]:
    """Names of the devices on which architectures of a search space were measured, sorted."""
    names: set[str] = set()
    for part in predictors_in(predictor):
        if isinstance(part, ArchitectureLatency):
            names.update(part.known_devices(space))
    return tuple(sorted(names))
