"""Which victim runs with which neighbour, how often, and in which order."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from forerun.data.collectors.interference.neighbours import DUTY, ISOLATED, MODES, PLACEMENTS, State
from forerun.data.collectors.interference.victims import VICTIMS, victim
from forerun.data.collectors.plans import plan_file
from forerun.data.errors import BadTable


@dataclass(frozen=True)
class PlannedRun:
    """One run.

    Attributes:
        repeat: number of earlier runs of the same victim in the same state.
        victim: name of the victim.
        state: its neighbour and how that runs.
    """

    repeat: int
    victim: str
    state: State

    @property
    def key(self) -> str:
        """Identifies the run in every session of a collection."""
        return f"{self.repeat}/{self.victim}/{self.state.name}"


@dataclass(frozen=True)
class Shared:
    """A state, and the share of all victims that run in it in each repeat.

    Below 1, repeats take turns: after 1 / share of them every victim has run in the state.
    """

    state: State
    share: float = 1.0


@dataclass(frozen=True)
class ContentionPlan:
    """A matrix of victims and states, with isolated runs between them.

    Attributes:
        victims: names of the victims.
        states: their neighbours, and for which share of the victims in each repeat.
        repeats: number of passes over the whole matrix.
        isolated: isolated runs of each victim in each repeat, spread over it.
        target_s: wall seconds alone that the work of a victim is sized for.
        settle_s: seconds between the start of a neighbour and that of the work.
        clock_s: interval of the sampler.
        probe_ms: interval of the cache probe; 0 is no probe.
        margin_s: seconds of sampling before the first and after the last run of a session.
        seed: seed of the order and of dynamic neighbours.
    """

    victims: tuple[str, ...]
    states: tuple[Shared, ...]
    repeats: int = 3
    isolated: int = 4
    target_s: float = 2.2
    settle_s: float = 0.6
    clock_s: float = 1.0
    probe_ms: float = 100.0
    margin_s: float = 5.0
    seed: int = 0

    @classmethod
    def read(cls, path: Path) -> "ContentionPlan":
        """The plan in a YAML file, or the packaged plan of that name.

        Raises:
            MissingData: there is no such file or name.
            BadTable: it is no plan; the message says why.
        """
        import yaml

        try:
            content = yaml.safe_load(plan_file(path).read_text(encoding="utf-8"))
        except yaml.YAMLError as error:
            raise BadTable(f"{path} is not YAML: {' '.join(str(error).split())}") from error
        try:
            return cls.from_content(content)
        except BadTable as error:
            raise BadTable(f"{path}: {error}") from error

    @classmethod
    def from_content(cls, content: Any) -> "ContentionPlan":
        """The plan that such a mapping describes; `states` holds lists of values to combine.

        Raises:
            BadTable: a key or value is not understood.
            MissingData: a victim does not exist.
        """
        if not isinstance(content, Mapping):
            raise BadTable("a plan is a mapping.")
        numbers = {each.name for each in fields(cls)} - {"victims", "states"}
        unknown = set(content) - numbers - {"victims", "states"}
        if unknown:
            raise BadTable(f"no key {min(map(str, unknown))!r} in a plan.")
        given = content.get("victims", "all")
        names = (
            [v.name for v in VICTIMS] if given == "all" else [victim(str(n)).name for n in given]
        )
        blocks = content.get("states", [])
        states = {each.state: each for block in blocks for each in _states(block)}
        settings: dict[str, Any] = {
            key: _number(key, content[key]) for key in numbers & set(content)
        }
        return cls(tuple(names), tuple(states.values()), **settings)

    def runs(self) -> list[PlannedRun]:
        """All runs in order.

        Repeats follow each other. Each is shuffled, cut into as many blocks as it has isolated runs
        of a victim, and each block has one isolated run of every victim at random places: wherever
        the list is cut, what was run is balanced as far as it can be.
        """
        ordered: list[PlannedRun] = []
        for number in range(self.repeats):
            draw = random.Random(f"{self.seed}/{number}")  # noqa: S311
            pairs = [
                PlannedRun(number, name, each.state)
                for each in self.states
                for name in self._turn(each, number)
            ]
            draw.shuffle(pairs)
            count = max(1, self.isolated)
            for block in range(count):
                block_runs = pairs[block::count]
                if self.isolated:
                    nth = number * self.isolated + block
                    block_runs = block_runs + [PlannedRun(nth, v, ISOLATED) for v in self.victims]
                draw.shuffle(block_runs)
                ordered += block_runs
        return ordered

    def _turn(self, each: Shared, number: int) -> list[str]:
        """Victims that run in a state in that repeat."""
        names = list(self.victims)
        random.Random(f"{self.seed}/{each.state.name}").shuffle(names)  # noqa: S311
        count = max(1, round(each.share * len(names)))
        return [names[(number * count + i) % len(names)] for i in range(count)]


def referenced(runs: Sequence[PlannedRun], least: int, first: int) -> list[PlannedRun]:
    """The runs, with isolated runs added until each victim has at least `least` of them.

    For a session that resumes a plan: P compares with isolated runs of the same session, and the
    remaining plan may hold none. Added runs are spread evenly.

    Args:
        runs: remaining runs, in order.
        least: isolated runs required of each victim that has co-located runs left.
        first: `repeat` of the first isolated run that is added; above those of all runs done.
    """
    draw = random.Random(f"{first}")  # noqa: S311
    placed = [(float(place), run) for place, run in enumerate(runs)]
    for name in dict.fromkeys(run.victim for run in runs if run.state != ISOLATED):
        lacking = least - sum(run.victim == name and run.state == ISOLATED for run in runs)
        for nth in range(lacking):
            place = len(runs) * (nth + draw.random()) / lacking
            placed.append((place, PlannedRun(first + nth, name, ISOLATED)))
    return [run for _, run in sorted(placed, key=lambda each: each[0])]


def possible(runs: Sequence[PlannedRun], cpus: Sequence[int]) -> list[PlannedRun]:
    """Runs that these CPUs allow: without a second one there is no other CPU."""
    return [run for run in runs if len(cpus) > 1 or run.state.placement != "other"]


def _states(block: Any) -> list[Shared]:
    if not isinstance(block, Mapping):
        raise BadTable("each of `states` is a mapping.")
    unknown = set(block) - {"neighbours", "intensities", "placements", "modes", "share"}
    if unknown:
        raise BadTable(f"no key {min(map(str, unknown))!r} in a state.")
    found = [
        State(str(neighbour), str(intensity), str(placement), str(mode))
        for mode in block.get("modes", MODES[:1])
        for placement in block.get("placements", PLACEMENTS[:1])
        for intensity in block.get("intensities", list(DUTY)[-1:])
        for neighbour in block.get("neighbours", ())
    ]
    for state in found:
        state.check()
    share = block.get("share", 1.0)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise BadTable(f"share: {share!r} is not above 0 and at most 1.")
    return [Shared(state, float(share)) for state in found]


def _number(key: str, value: Any) -> float | int:
    whole = key in ("repeats", "isolated", "seed")
    may_be_zero = ("isolated", "settle_s", "seed", "probe_ms", "margin_s")
    least = 0 if key in may_be_zero else 1 if whole else 0.01
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        raise BadTable(f"{key}: {value!r} is no number.")
    if value < least:
        raise BadTable(f"{key}: {value} is too small.")
    return value
