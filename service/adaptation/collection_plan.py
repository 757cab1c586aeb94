"""Measurement plans for a processor, which users write in YAML."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from forerun.data.collectors.plans import plan_file
from forerun.data.collectors.runner.trial import Source, Trial
from forerun.data.collectors.workloads.operators import flops, operator_sweep, processor_trials
from forerun.data.collectors.workloads.torch_networks import NETWORKS
from forerun.data.errors import InputError
from forerun.data.workload import Phase
from forerun.service.adaptation.measured_networks import built_trials, onnx_trials
from forerun.service.problems import unfit

COMPILE_S = 30.0
"""A guess at the time that torch.compile takes, in seconds."""


class BadPlan(InputError):
    """A measurement plan is not valid."""

    slug = "bad-plan"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SweepPlan(_Part):
    """A grid of single operators."""

    step: int = Field(default=4, ge=2, le=64, description="factor from one size to the next")
    largest_mib: float = Field(
        default=512, gt=0, description="largest size of the operands in fp32, MiB"
    )
    runtimes: tuple[Literal["onnxruntime", "eager"], ...] = ("onnxruntime",)
    precisions: tuple[Literal["fp32", "bf16"], ...] = ("fp32",)

    def trials(self) -> Iterator[Trial]:
        """Every operator in each runtime and precision; onnxruntime runs fp32 only."""
        operators = operator_sweep(self.step, int(self.largest_mib * 2**18))
        for runtime, precision in product(self.runtimes, self.precisions):
            if runtime == "onnxruntime" and precision != "fp32":
                continue
            for op in operators:
                yield Trial(
                    op,
                    precision,
                    framework="onnxruntime" if runtime == "onnxruntime" else "torch",
                    runtime=runtime,
                    group=f"{op.kind} {precision} {runtime}",
                    flops=flops(op),
                )


class NetworksPlan(_Part):
    """Networks of the zoo, run with torch."""

    names: tuple[str, ...] = Field(min_length=1, description="names of networks in the zoo")
    batch_sizes: tuple[int, ...] = (1,)
    runtimes: tuple[Literal["eager", "compiled"], ...] = ("eager",)
    precisions: tuple[Literal["fp32", "bf16", "amp_bf16"], ...] = ("fp32",)
    phases: tuple[Phase, ...] = ("inference",)

    def trials(self) -> Iterator[Trial]:
        """Every network at each batch size, runtime, precision and phase.

        Raises:
            BadPlan: the zoo has no network of that name.
        """
        combinations = product(
            self.names, self.batch_sizes, self.runtimes, self.precisions, self.phases
        )
        for name, size, runtime, precision, phase in combinations:
            if name not in NETWORKS:
                raise BadPlan(f"The zoo has no network {name!r}; it has {', '.join(NETWORKS)}.")
            yield Trial(
                Source(name),
                precision,
                size,
                phase,
                runtime=runtime,
                group=f"{name} {runtime} {phase}",
                flops=1e9 * NETWORKS[name].gflops,
                setup_s=COMPILE_S if runtime == "compiled" else 2.0,
            )


class CollectionPlan(_Part):
    """What to measure, and for how long."""

    budget_minutes: float = Field(default=20, gt=0, description="total time, minutes")
    window_s: float = Field(
        default=2.0, gt=0, le=600, description="measured time of one row, seconds"
    )
    operators: SweepPlan | None = None
    networks: tuple[NetworksPlan, ...] = ()
    reference_networks: bool = Field(
        default=True,
        description="whether to measure the networks built for processors, with onnxruntime",
    )
    reference_batch_sizes: tuple[int, ...] = Field(
        default=(1,), description="batch sizes of the reference networks"
    )
    processor_operators: bool = Field(
        default=False, description="whether to measure operators at batch size 1, with onnxruntime"
    )
    onnx_files: tuple[Path, ...] = Field(
        default=(), description="ONNX files to measure; paths are relative to the plan's folder"
    )

    @classmethod
    def standard(cls) -> "CollectionPlan":
        """The plan that is used where none is given; the packaged `cpu-standard` is the same."""
        small = ("resnet18", "mobilenet-v2", "vit-small")
        wide = ("resnet50", "efficientnet-b0", "convnext-tiny", "bert-base-128")
        return cls(
            budget_minutes=30,
            reference_batch_sizes=(1, 4),
            processor_operators=True,
            operators=SweepPlan(step=16, largest_mib=64, runtimes=("onnxruntime", "eager")),
            networks=(
                NetworksPlan(names=(*small, *wide), batch_sizes=(1, 8)),
                NetworksPlan(names=small, runtimes=("compiled",)),
                NetworksPlan(names=small[:2], batch_sizes=(4,), phases=("training",)),
            ),
        )

    def trials(self, table: Path, folder: Path) -> tuple[Trial, ...]:
        """Every trial of the plan; graphs of ONNX files are written next to the table.

        Args:
            table: path of the table of measurements.
            folder: folder of the plan.

        Raises:
            BadPlan: a network or a file does not exist.
            UnreadableModel: a file is not a readable model.
        """
        files = [folder / file for file in self.onnx_files]
        missing = [file for file in files if not file.is_file()]
        if missing:
            raise BadPlan(f"The plan names {missing[0]}, which is not there.")
        parts = [self.operators.trials()] if self.operators else []
        parts += [part.trials() for part in self.networks]
        # Before the reference networks, which take seconds to build: wrong names are refused first.
        single = [trial for part in parts for trial in part]
        sizes = self.reference_batch_sizes if self.reference_networks else ()
        built = built_trials(table, batch_sizes=sizes) if sizes else ()
        own = processor_trials() if self.processor_operators else ()
        trials = (*built, *own, *single, *onnx_trials(files, table))
        return tuple({trial.key: trial for trial in trials}.values())


def read_plan(path: Path) -> CollectionPlan:
    """Read a plan from a YAML file, or the packaged plan of that name.

    Raises:
        MissingData: there is no such file or name.
        BadPlan: it holds no valid plan.
    """
    import yaml

    try:
        content = yaml.safe_load(plan_file(path).read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadPlan(f"{path} is not valid YAML: {error}".replace("\n", " ")) from None
    try:
        return CollectionPlan.model_validate(content or {})
    except ValidationError as error:
        raise BadPlan(f"{path}: {unfit(error.errors()).detail}") from None
