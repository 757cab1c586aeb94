"""Tests of benchmark suites: their settings are checked, and completed by usual values."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from forerun.data.errors import BadBenchmark, in_field
from forerun.data.query import Query
from forerun.data.workload import Benchmark, Space
from forerun.models.architectures.latency import ArchitectureLatency
from forerun.models.known_suites import KnownSetting, KnownSuite, KnowsSuites
from forerun.models.limit import Limit
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


MOST_LISTED = 40
"""Values or names that a message lists."""


def suite_of(workload: Benchmark, predictor: Predictor) -> AnsweredSuite:
    """The suite of a test.

    Raises:
        BadBenchmark: no predictor in use knows the suite; the message lists those that are known.
    """
    known = suites_of(predictor)
    if workload.suite not in known:
        with in_field("suite"):
            raise BadBenchmark(
                f"workload.suite: no suite {workload.suite!r:.80}; there are {listed(known)}. "
                "One of your own is known to the predictor that `forerun train` made of it: set "
                "FORERUN_PREDICTOR_FOLDER to that folder."
            )
    return known[workload.suite]


def checked_settings(workload: Benchmark, suite: KnownSuite) -> Benchmark:
    """The test with its settings as the suite has them: numbers as floats, texts as texts.

    Raises:
        BadBenchmark: a setting is unknown or missing, or its value is not one of its choices.
    """
    known = {setting.name: setting for setting in suite.settings}
    given = workload.by_name
    for name in given:
        if name not in known:
            with in_field("settings", name):
                raise BadBenchmark(
                    f"workload.settings: {suite.name} has no setting {name!r:.80}; its settings "
                    f"are {listed(known)}."
                )
    missing = [s for s in suite.settings if s.required and s.name not in given]
    if missing:
        needed = "; ".join(f"{s.name} ({_allowed(s)})" for s in missing)
        with in_field("settings"):
            raise BadBenchmark(f"workload.settings: {suite.name} needs {needed}.")
    settings = {}
    for name, value in given.items():
        with in_field("settings", name):
            settings[name] = _value(known[name], value)
    return replace(workload, settings=tuple(sorted(settings.items())))


def completed(query: Query, answered: AnsweredSuite) -> tuple[Query, tuple[Limit, ...]]:
    """The query with usual values for the settings that it leaves out, and a note that says so."""
    given = query.benchmark.by_name
    usual = answered.predictor.usual_settings(query)
    added = {name: value for name, value in usual.items() if name not in given}
    if not added:
        return query, ()
    workload = replace(query.benchmark, settings=tuple(sorted({**given, **added}.items())))
    words = ", ".join(f"{name} {_text(value)}" for name, value in added.items())
    note = Limit(f"not given, and taken as usual: {words}", severity="note")
    return replace(query, workload=workload), (note,)


def _value(setting: KnownSetting, value: float | str) -> float | str:
    """The value in the type of the setting.

    Raises:
        BadBenchmark: it is none of the setting's values, no number, or not positive where all
            measured ones are: no law of a positive number extends to zero.
    """
    if setting.low is not None and not isinstance(value, float | int):
        raise BadBenchmark(
            f"workload.settings.{setting.name} is {value!r:.80}, not a number "
            f"({_allowed(setting)})."
        )
    if setting.low is not None and setting.low > 0.0 >= float(value):
        raise BadBenchmark(
            f"workload.settings.{setting.name} is {_text(value)}, and was positive in all measured "
            f"rows ({_allowed(setting)})."
        )
    if setting.values and str(value) not in setting.values:
        raise BadBenchmark(
            f"workload.settings.{setting.name} is {value!r:.80}; it may be {_allowed(setting)}."
        )
    return str(value) if setting.values else float(value) if isinstance(value, int) else value


def _allowed(setting: KnownSetting) -> str:
    if setting.values:
        return listed(setting.values)
    if setting.low is None:
        return setting.meaning or "a number or a text"
    meaning = f"; {setting.meaning}" if setting.meaning else ""
    return f"a number, {_text(setting.low)} to {_text(setting.high or 0.0)} were measured{meaning}"


def listed(names: Collection[str]) -> str:
    """The first names of a list, and how many more there are."""
    found = list(names)
    more = f" and {len(found) - MOST_LISTED} more" if len(found) > MOST_LISTED else ""
    return ", ".join(found[:MOST_LISTED]) + more


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,.6g}"
