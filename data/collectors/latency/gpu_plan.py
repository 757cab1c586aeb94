"""What is measured on a GPU (operators; networks eager, compiled and recorded), and for how long.

Budgets are minutes and trials are thousands, so time goes where it informs most. Latency settles in
some tens of milliseconds. Power does not: the energy counter moves every 20 to 100 ms, and a chip
takes seconds to warm up. So every network gets a short window between two steps of the counter, and
one in sixteen a long one in its place, after a rest and a warm-up, with which the short ones can be
compared; of operators one in six gets a short window and the others none, since similar operators
are measured. The choice follows from a trial's key, so that a resumed run chooses as the first did.
The column `power_window_s` holds the length of the window that a row's power was measured in.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from forerun.data.collectors.runner.collector import Seconds, coverage_first, side_by_side
from forerun.data.collectors.runner.stopwatch import Stopwatch
from forerun.data.collectors.runner.trial import Source, Trial
from forerun.data.collectors.system.nvml import PowerWindow
from forerun.data.collectors.workloads.operators import dense_sweep, flops
from forerun.data.collectors.workloads.torch_networks import NETWORKS, Definition
from forerun.data.graph import Operator

SHORT_S, LONG_S = 0.2, 2.0
"""Seconds of a short and of a long window of power."""
REST_S, WARM_UP_S = 0.3, 0.5
"""Seconds of rest and of warm-up before a long window."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The windows of one kind of trials.

    Attributes:
        latency: window of single runs.
        most: window of power of most trials; None measures none.
        few: the same of one trial in `one_in`.
        one_in: number of trials of which one gets `few`.
    """

    latency: Stopwatch
    most: PowerWindow | None = None
    few: PowerWindow | None = None
    one_in: int = 1

    def power(self, trial: Trial) -> PowerWindow | None:
        """The window of power of a trial."""
        return self.most if int(trial.key, 16) % self.one_in else self.few

    def total_s(self, trial: Trial) -> float:
        """Seconds of all windows, to which single runs that are short add little."""
        power = self.power(trial)
        return self.latency.total_s + (power.total_s if power else 0.0)


@dataclass(frozen=True, slots=True)
class Pacing:
    """The windows of trials of operators and of networks."""

    operators: Pace
    networks: Pace

    @classmethod
    def to_a_budget(cls, power_s: float = LONG_S) -> "Pacing":
        """Windows for thousands of operators, or hundreds of trials of networks, in nine minutes.

        Args:
            power_s: seconds of long windows of power; 0 measures no power.
        """
        short = PowerWindow(min(SHORT_S, power_s)) if power_s > 0 else None
        long = PowerWindow(power_s, WARM_UP_S, REST_S) if power_s > 0 else None
        return cls(
            operators=Pace(Stopwatch(0.03, 0.015, most=300), None, short, one_in=6),
            networks=Pace(Stopwatch(0.12, 0.03), short, long, one_in=16),
        )

    def of(self, trial: Trial) -> Pace:
        """The windows of a trial's kind."""
        return self.operators if isinstance(trial.subject, Operator) else self.networks


Networks = Mapping[str, Definition]
Part = Literal["operators", "networks", "recorded", "compiled"]
"""`networks`: launched one by one; `recorded`: as a CUDA graph, whose time is the GPU's alone."""

TENSOR_CORES = {"fp16": (7, 0), "bf16": (8, 0), "tf32": (8, 0), "fp8": (8, 9)}
"""Precision -> compute capability from which on a GPU has it."""
PRODUCTS = ("linear", "matmul", "conv", "attention")
PHASES = ("inference", "training")
SIZES = 3
"""Batch sizes of a network."""
BUILD_S, COMPILE_S, RECORD_S = 0.4, 60.0, 1.0
"""Assumed seconds to build a network, with its first runs, to compile it and to record it."""


def precisions_of(capability: tuple[int, int]) -> tuple[str, ...]:
    """Precisions in which operators are measured on a GPU of a compute capability."""
    return ("fp32", *(name for name, least in TENSOR_CORES.items() if capability >= least))


def gpu_plan(
    precisions: Sequence[str],
    step: int,
    only: Part | None,
    fixed_s: Seconds,
    networks: Networks = NETWORKS,
) -> tuple[Trial, ...]:
    """Trials in the order to measure them.

    Args:
        precisions: precisions of operators.
        step: step between operators' sizes.
        only: part of the plan; all of them in turn, with equal time for each, when None.
        fixed_s: seconds of a trial apart from building its workload.
        networks: the networks, by name.
    """
    if only == "operators":
        return coverage_first(operator_trials(dense_sweep(step), precisions))
    if only == "networks":
        return tuple(network_trials(precisions, networks))
    if only == "recorded":
        return tuple(recorded_trials(precisions, networks))
    if only == "compiled":
        return tuple(compiled_trials(precisions, networks))
    parts = [gpu_plan(precisions, step, p, fixed_s, networks) for p in get_args(Part)]
    return side_by_side(parts, lambda trial: fixed_s(trial) + trial.setup_s)


def operator_trials(operators: Sequence[Operator], precisions: Sequence[str]) -> tuple[Trial, ...]:
    """Operators in each precision whose times add information."""
    return tuple(
        Trial(operator, precision, group=f"{operator.kind} {precision}", flops=flops(operator))
        for operator in operators
        for precision in precisions
        if _is_informative(operator.kind, precision)
    )


def _is_informative(kind: str, precision: str) -> bool:
    """Whether a precision changes an operator's time: only matrix products have units for tf32."""
    if precision == "fp8":
        return kind == "linear"
    return kind in PRODUCTS or precision != "tf32"


def network_trials(precisions: Sequence[str], networks: Networks = NETWORKS) -> Iterator[Trial]:
    """Eager runs: each network in one precision at all batch sizes and phases, then in others.

    Precisions and the batch size that comes first take turns from network to network.
    """
    for turn in range(len(_network_precisions("inference", precisions))):
        for place in range(SIZES):
            for index, (name, definition) in enumerate(networks.items()):
                for phase in PHASES:
                    used = _network_precisions(phase, precisions)
                    if turn < len(used):
                        precision = used[(index + turn) % len(used)]
                        size = definition.sizes[(place + index // len(used)) % SIZES]
                        yield _trial(name, definition, precision, size, phase)


def recorded_trials(precisions: Sequence[str], networks: Networks = NETWORKS) -> Iterator[Trial]:
    """Each network recorded once in every precision and phase, at batch sizes that take turns."""
    for turn in range(len(_network_precisions("inference", precisions))):
        for index, (name, definition) in _by_work(networks):
            for phase in PHASES:
                used = _network_precisions(phase, precisions)
                if turn < len(used):
                    precision = used[(index + turn) % len(used)]
                    size = definition.sizes[(index // len(used) + index + turn) % SIZES]
                    yield _trial(name, definition, precision, size, phase, "recorded")


def compiled_trials(precisions: Sequence[str], networks: Networks = NETWORKS) -> Iterator[Trial]:
    """Each network compiled once to answer and once to train, as it was run eagerly.

    Small networks come first, since a compilation that takes longer than assumed is not cut short.
    """
    for phase in PHASES:
        used = _network_precisions(phase, precisions)
        for index, (name, definition) in _by_work(networks):
            precision, size = used[index % len(used)], definition.sizes[index % SIZES]
            yield _trial(name, definition, precision, size, phase, "compiled")


def _by_work(networks: Networks) -> list[tuple[int, tuple[str, Definition]]]:
    """Places and definitions of networks, the one of least work first."""
    return sorted(enumerate(networks.items()), key=lambda each: each[1][1].gflops)


def _network_precisions(phase: str, precisions: Sequence[str]) -> tuple[str, ...]:
    """Precisions of networks on a GPU, from those of its operators: 16 bits by autocast."""
    autocast = {"fp16": "amp", "bf16": "amp_bf16"}
    there = [p for p in precisions if p in ("fp32", "tf32")]
    there += [autocast[p] for p in precisions if p in autocast]
    there += [p for p in precisions if p in autocast] if phase == "inference" else []
    return tuple(there)


def _trial(
    name: str, definition: Definition, precision: str, size: int, phase: str, how: str = "eager"
) -> Trial:
    return Trial(
        Source(name),
        precision,
        size,
        phase,
        runtime="compiled" if how == "compiled" else "eager",
        cuda_graph=how == "recorded",
        flops=1e9 * definition.gflops,
        setup_s=BUILD_S + {"eager": 0.0, "compiled": COMPILE_S, "recorded": RECORD_S}[how],
    )
