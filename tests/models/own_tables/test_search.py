"""`Search`: what is asked for keeps limits, is new, depends on no unit, and comes near the best."""

import json
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

from forerun.data.errors import InputError
from forerun.models.own_tables.search import FIRST, Search

SPACE = {"tile": [1, 2, 4, 8, 16, 32], "split": {"low": 1, "high": 12}, "kind": ["a", "b", "c"]}


@dataclass(frozen=True)
class Interval:
    """A value with the upper end of its interval."""

    value: float
    high: float | None


@dataclass(frozen=True)
class Predicted:
    """An answer as `forerun.predict` gives it."""

    metrics: dict
    missing: dict


def time_ms(settings):
    """Least, 1 ms, at tile 8, split 3, kind b."""
    far = np.log2(settings["tile"] / 8) ** 2 + np.log2(settings["split"] / 3) ** 2
    return float((1.0 + far) * {"a": 1.5, "b": 1.0, "c": 3.0}[settings["kind"]])


def run(search, count, *, batch=5, metric="latency_ms", measured=time_ms, **others):
    """The settings that a search asks for, each of which is measured."""
    asked = []
    while len(asked) < count:
        for settings in search.ask(batch):
            asked.append(settings)
            more = {name: value_of(settings) for name, value_of in others.items()}
            search.tell(settings, {metric: measured(settings)} | more)
    return asked


def test_predicted_limits_hold_at_upper_ends():
    """The estimate keeps the limit up to tile 16, its upper end up to tile 8."""

    def predict(settings):
        tile = settings["tile"]
        return Predicted({"peak_memory_mib": Interval(tile, 2 * tile)}, {})

    search = Search(SPACE, minimise="latency_ms", limits={"peak_memory_mib": 16}, predict=predict)
    assert {own["tile"] for own in run(search, 40)} == {1, 2, 4, 8}
    search.tell({"tile": 16, "split": 3, "kind": "b"}, {"latency_ms": 0.1})
    assert search.best[0]["tile"] <= 8
    plain = Search(SPACE, minimise="x", limits={"mib": 4}, predict=lambda own: {"mib": own["tile"]})
    assert {own["tile"] for own in plain.ask(40)} == {1, 2, 4}


@pytest.mark.parametrize(
    "answer",
    [
        Predicted({"latency_ms": Interval(1.0, None)}, {}),
        Predicted({}, {"latency_ms": "nobody measured it"}),
        {"latency_ms": None},
    ],
)
def test_what_has_no_upper_end_keeps_no_limit(answer):
    search = Search(
        SPACE, maximise="accuracy", limits={"latency_ms": 5}, predict=lambda own: answer
    )
    with pytest.raises(InputError, match=r"\d+ candidates are new, and none keeps the limits"):
        search.ask()


def test_numbers_of_numpy_are_saved_too():
    search = Search({"a": [1, 2]}, minimise="x")
    search.tell({"a": np.int64(2)}, {"x": np.float32(0.5)})
    assert json.loads(json.dumps(search.to_dict()))["measurements"] == [[{"a": 2}, {"x": 0.5}]]
    assert search.ask(2) == [{"a": 1}]


def test_measurements_survive_saving():
    """A search that was saved, as JSON, and one that was not ask for the same from then on."""
    other = Search(SPACE, minimise="latency_ms", limits={"mib": 20}, seed=3)
    run(other, 20, mib=lambda own: own["tile"])
    saved = Search(**json.loads(json.dumps(other.to_dict())))
    assert [list(own) for own in other.measurements] == [list(own) for own in saved.measurements]
    assert tuple(saved.best) == tuple(other.best)
    assert saved.ask(7) == other.ask(7)
    assert Search(**json.loads(json.dumps(saved.to_dict()))).ask(1)[0] not in saved.asked


@pytest.mark.parametrize("factor", [1e-3, 2.0**20])
def test_units_do_not_matter(factor):
    """A metric and its limit in other units: the same candidates in the same order."""
    both = []
    for unit in (1.0, factor):
        search = Search(SPACE, minimise="latency", limits={"memory": 9 * unit})
        asked = run(
            search,
            30,
            metric="latency",
            measured=lambda own, unit=unit: unit * time_ms(own),
            memory=lambda own, unit=unit: unit * own["tile"],
        )
        both.append(asked)
    assert both[0] == both[1]


def test_the_highest_rate_is_the_least_time():
    """A maximised rate, in another unit and to a power, has the order of the minimised time."""
    times = run(Search(SPACE, minimise="latency_ms"), 30)
    faster = Search(SPACE, maximise="rate")
    rates = run(faster, 30, metric="rate", measured=lambda own: 1e3 * time_ms(own) ** -2)
    assert times == rates
    assert faster.best[1]["rate"] == max(values["rate"] for _, values in faster.measurements)


def test_no_candidate_is_asked_for_twice():
    """Every candidate of a space once, measured or not, failed or not; then a line says so."""
    search = Search({"a": [1, 2, 3], "b": {"low": 0, "high": 3}}, minimise="x")
    search.tell({"a": 1, "b": 0}, {"x": 2.0})
    asked = [*search.ask(3), *search.ask(4)]
    search.tell(asked[0], {})
    asked += search.ask(99)
    assert sorted((own["a"], own["b"]) for own in asked) == sorted(
        {*product((1, 2, 3), range(4))} - {(1, 0)}
    )
    with pytest.raises(InputError, match="All candidates were asked"):
        search.ask()


def test_a_search_comes_nearer_to_the_best_than_chance():
    """216 candidates of which one takes 1 ms: found by 40 measurements, and not at random."""
    found, by_chance = [], []
    for seed in range(4):
        search = Search(SPACE, minimise="latency_ms", seed=seed)
        run(search, 40)
        found.append(search.best[1]["latency_ms"])
        every = Search(SPACE, minimise="latency_ms", seed=seed).ask(40)
        by_chance.append(min(map(time_ms, every)))
    assert np.mean(found) < 1.02
    assert np.mean(by_chance) > np.mean(found)


def test_limits_are_learnt_from_measurements():
    """Once a search knows of it, few candidates break a limit, and the best never does."""
    search = Search(SPACE, minimise="latency_ms", limits={"mib": 5})
    asked = run(search, 40, mib=lambda own: own["tile"] * 1.01)
    breaking = [own["tile"] > 4 for own in asked]
    assert np.mean(breaking[FIRST:]) < 0.5 * np.mean(breaking[:FIRST])
    assert search.best[0] == {"tile": 4, "split": 3, "kind": "b"}
    search.tell({"tile": 8, "split": 3, "kind": "b"}, {"latency_ms": 1.0})
    assert search.best[0]["tile"] == 4, "memory was not measured, so it is not known to be enough"


def test_ranges_are_drawn_from_end_to_end():
    space = {"whole": {"low": 1, "high": 4}, "real": {"low": 1e-4, "high": 1.0}, "any": [0.5]}
    asked = Search(space, minimise="x").ask(1500)
    assert {own["whole"] for own in asked} == {1, 2, 3, 4}
    logs = np.log10([own["real"] for own in asked])
    assert logs.min() >= -4 and logs.max() <= 0
    assert np.histogram(logs, bins=4, range=(-4, 0))[0] == pytest.approx([375] * 4, rel=0.2)
    negative = [own["x"] for own in Search({"x": {"low": -2.0, "high": 2}}, minimise="y").ask(99)]
    assert -2 <= min(negative) < -1 < 1 < max(negative) <= 2


def test_candidates_may_be_listed():
    listed = [{"a": n, "b": n**2} for n in range(1, 8)]
    search = Search(listed, maximise="a")
    assert sorted(own["a"] for own in search.ask(9)) == list(range(1, 8))


def test_an_answer_counts_with_its_upper_ends():
    answer = Predicted({"power_w": Interval(9.0, 12.0), "rate": Interval(5.0, 7.0)}, {})
    search = Search(SPACE, maximise="rate", limits={"power_w": 10})
    search.tell({"tile": 1, "split": 1, "kind": "a"}, answer)
    assert search.measurements[0][1] == {"power_w": 12.0, "rate": 5.0}
    assert search.best is None


@pytest.mark.parametrize(
    ("mistake", "line"),
    [
        (lambda: Search(SPACE), "Give one of minimise= and maximise="),
        (lambda: Search({"a": []}, minimise="x"), "a: give a list, or a range"),
        (lambda: Search({"a": {"low": 2, "high": 1}}, minimise="x"), "a: give a list"),
        (
            lambda: Search({"a": [1]}, minimise="x").tell({}, {"x": 1}),
            r"settings \[\]: give \['a'\]",
        ),
        (
            lambda: Search({"a": [1]}, minimise="x").tell({"a": 1}, {"x": float("nan")}),
            "x is nan: give a finite number",
        ),
        (lambda: Search({"a": [1]}, minimise="x").tell({"a": 1}, {"x": "fast"}), "x is 'fast'"),
    ],
)
def test_mistakes_are_said_in_one_line(mistake, line):
    with pytest.raises(InputError, match=line):
        mistake()


def test_what_is_no_candidate_is_refused():
    search = Search({"tile": [16, 32], "split": {"low": 1, "high": 2}}, minimise="ms")
    for wrong in ({"tile": 17, "split": 1}, {"tile": 16, "split": 3}, {"tile": 16, "split": "x"}):
        with pytest.raises(InputError, match="not in the space"):
            search.tell(wrong, {"ms": 1.0})
    with pytest.raises(InputError, match="at least one"):
        search.ask(0)
    with pytest.raises(InputError, match="give \\['split', 'tile'\\]"):
        Search(search.space, minimise="ms", measurements=[({"tile": 16}, {"ms": 1.0})])
