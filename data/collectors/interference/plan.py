"""Which victim runs with which neighbour, how often, and in which order."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, with_config

from forerun.data.collectors.interference.neighbours import DUTY, ISOLATED, MODES, PLACEMENTS, State
from forerun.data.collectors.interference.victims import VICTIMS, victim
from forerun.data.collectors.plans import plan_content
from forerun.data.described import first_fault
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


class StatesIn(BaseModel):
    """Lists of values of a state, which are combined."""

    model_config = ConfigDict(extra="forbid")

    neighbours: list[str] = []
    intensities: list[str] = [*DUTY][-1:]
    placements: list[str] = [PLACEMENTS[0]]
    modes: list[str] = [MODES[0]]
    share: Annotated[float, Field(gt=0, le=1)] = 1.0

    def combined(self) -> list[Shared]:
        """Each combination.

        Raises:
            BadTable: there is no such neighbour, intensity, placement or mode.
            MissingData: it is a victim that does not exist.
        """
        values = product(self.modes, self.placements, self.intensities, self.neighbours)
        found = [
            Shared(State(neighbour, intensity, placement, mode), self.share)
            for mode, placement, intensity, neighbour in values
        ]
        for each in found:
            each.state.check()
        return found


class PlanIn(BaseModel):
    """A plan as it is written; its further fields are those of `ContentionPlan`."""

    model_config = ConfigDict(extra="allow")

    victims: Literal["all"] | list[str] = "all"
    states: list[StatesIn] = []


@with_config(ConfigDict(extra="forbid"))
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
    repeats: Annotated[int, Field(ge=1)] = 3
    isolated: Annotated[int, Field(ge=0)] = 4
    target_s: Annotated[float, Field(ge=0.01)] = 2.2
    settle_s: Annotated[float, Field(ge=0)] = 0.6
    clock_s: Annotated[float, Field(ge=0.01)] = 1.0
    probe_ms: Annotated[float, Field(ge=0)] = 100.0
    margin_s: Annotated[float, Field(ge=0)] = 5.0
    seed: Annotated[int, Field(ge=0)] = 0

    @classmethod
    def read(cls, path: Path) -> "ContentionPlan":
        """The plan in a YAML file, or the packaged plan of that name.

        Raises:
            MissingData: there is no such file or name, or no such victim.
            BadTable: it is no plan; the message says why.
        """
        content = plan_content(path)
        try:
            given = PlanIn.model_validate(content)
            known = [v.name for v in VICTIMS] if given.victims == "all" else given.victims
            states = {each.state: each for block in given.states for each in block.combined()}
            own = {"victims": [victim(name).name for name in known], "states": [*states.values()]}
            return TypeAdapter(cls).validate_python((given.model_extra or {}) | own)
        except ValidationError as error:
            raise BadTable(f"{path}: {first_fault(error)}.") from None

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
