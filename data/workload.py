"""What is run: operators, a network, an architecture, a design, a test of a suite, a neighbour."""

from dataclasses import dataclass
from typing import Literal

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.program import ProgramGraph

Phase = Literal["inference", "training"]
NumberFormat = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8", "amp", "amp_bf16"]
"""Precision of a run. `amp` is fp16 autocast over fp32 weights, `amp_bf16` the same in bf16."""


Optimizer = Literal["sgd", "momentum", "adam", "adamw", "adafactor", "adam8bit"]
"""How weights are stepped: `momentum` is SGD with momentum, `adam8bit` keeps 8-bit moments."""

Space = Literal["nb201", "fbnet", "ofa"]
"""Architecture search space."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One operator at given shapes.

    Attributes:
        operator: shapes and attributes.
        precision: number format of its operands.
    """

    operator: Operator
    precision: NumberFormat = "fp32"
    kind: Literal["kernel"] = "kernel"


@dataclass(frozen=True, slots=True)
class TrainingSetup:
    """How a network is trained, as far as memory sees it.

    Attributes:
        optimizer: AdamW, the default of most training scripts, where nothing is said.
        checkpoint_segments: parts of the network whose activations are computed again in the
            backward pass; 0 for none.
        accumulation: micro-batches whose gradients are summed before a step; the batch size of the
            workload is that of one step of one data-parallel device.
        lora_rank: rank of adapters on the linear layers, with all else frozen; 0 for none.
        data_parallel, tensor_parallel, pipeline_parallel: devices along each direction.
        zero_stage: what the data-parallel devices share: 1 optimizer slots, 2 also gradients,
            3 also weights.
    """

    optimizer: Optimizer = "adamw"
    checkpoint_segments: int = 0
    accumulation: int = 1
    lora_rank: int = 0
    data_parallel: int = 1
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    zero_stage: Literal[0, 1, 2, 3] = 0


@dataclass(frozen=True, slots=True)
class Network:
    """A whole network at a batch size.

    Attributes:
        graph: operators at `graph.batch_size`; costs are scaled to `batch_size`.
        batch_size: samples in one run.
        precision: number format of the run.
        phase: `inference`, or `training` (forward, backward and optimizer step).
        training: how it is trained; None is `TrainingSetup()`. Times do not see it.
    """

    graph: OperatorGraph
    batch_size: int = 1
    precision: NumberFormat = "fp32"
    phase: Phase = "inference"
    training: TrainingSetup | None = None
    kind: Literal["network"] = "network"


@dataclass(frozen=True, slots=True)
class Architecture:
    """A network of an architecture search space, named by its choices alone.

    Attributes:
        space: `nb201` (NAS-Bench-201 cells), `fbnet` or `ofa` (OFA-MobileNetV3).
        operators: the choice at every place, in the order of the bundle's columns.
    """

    space: Space
    operators: tuple[int, ...]
    kind: Literal["architecture"] = "architecture"


@dataclass(frozen=True, slots=True)
class Design:
    """A program with directives for high-level synthesis.

    Attributes:
        program: graph of the program, with places for directives.
        directives: (place, value), sorted by place.
    """

    program: ProgramGraph
    directives: tuple[tuple[str, str], ...]
    kind: Literal["design"] = "design"


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One test of a suite at given settings, of which nothing else is known.

    Attributes:
        suite: settings and results of one suite are comparable, those of two are not.
        settings: (name, value), sorted by name; a text is one of several choices.
    """

    suite: str
    settings: tuple[tuple[str, float | str], ...]
    kind: Literal["benchmark"] = "benchmark"


@dataclass(frozen=True, slots=True)
class HostWindow:
    """Metrics of a host, second by second.

    Attributes:
        metrics: names, as in `forerun.features.windows.HOST_METRICS`; others are passed over.
        seconds: one tuple a second, a value each metric; NaN where it was not read.
    """

    metrics: tuple[str, ...] = ()
    seconds: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class ProgramProfile:
    """What is known of a program from runs of it alone.

    Attributes:
        program: key to what was measured of the same program; never a feature.
        alone: metrics of the host while it ran alone.
        without: metrics of the same host shortly before or after, with nothing of ours on it.
        working_set_mib: memory that it goes through again and again; None where not known.
        cpu_share: its CPU time over its wall time alone; None where not known.
    """

    program: str
    alone: HostWindow = HostWindow()
    without: HostWindow = HostWindow()
    working_set_mib: float | None = None
    cpu_share: float | None = None


@dataclass(frozen=True, slots=True)
class Colocation:
    """A program beside neighbours on one host.

    Attributes:
        profile: the program.
        window: metrics of the host while it runs beside them.
        estimated: whether the window was made from profiles, for a run that is still to come.
    """

    profile: ProgramProfile
    window: HostWindow
    estimated: bool = False
    kind: Literal["colocation"] = "colocation"


OperatorWorkload = Kernel | Network
"""What runs operators in a precision."""

Workload = OperatorWorkload | Architecture | Design | Benchmark | Colocation
