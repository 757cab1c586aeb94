"""The catalogue of predictors: their classes, and how each is trained and released.

A class is imported only when an artifact that contains it is loaded, which keeps start-up short.
Other packages add a `CatalogEntry` as an entry point (`forerun.data.plugins`).
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, Final

from forerun.data.errors import BadArtifact
from forerun.data.plugins import plugin, plugins_by_name
from forerun.models.predictor import Predictor

GROUP: Final = "forerun.predictors"


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A predictor: its class, and the recipe by which a release trains it.

    Attributes:
        location: `module:class`.
        answers: what it predicts, for the model card and the reference; empty for a baseline.
        trained_on: sources of training rows, one tuple for each fitted instance in a release. A
            source is a dataset, or `dataset/part` for a part of its training rows. The first source
            also evaluates the predictor. Empty if no release contains the predictor.
        evaluated_on: further datasets whose protocols evaluate it.
        contains: predictors that are fitted first and become parts of it (`Composed`).
        workloads: kinds of workloads whose answers it may contribute to; empty for all.
        devices: kinds of devices that it may answer; empty for all.
        asked_before: predictor that follows this one in the router's order. If empty, it is asked
            last; built-in predictors follow the order of `PREDICTORS`.
    """

    location: str
    answers: str = ""
    trained_on: tuple[tuple[str, ...], ...] = ()
    evaluated_on: tuple[str, ...] = ()
    contains: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    asked_before: str = ""


@dataclass(frozen=True, slots=True)
class Scope:
    """The kinds of workloads and devices that queries will be about.

    Predictors that cover none of them need not be loaded.

    Attributes:
        workloads: kinds of workloads.
        devices: kinds of devices; None for all.
    """

    workloads: frozenset[str]
    devices: frozenset[str] | None = None

    def concerns(self, name: str) -> bool:
        """Whether the named predictor may answer; always true for predictors of other packages."""
        entry = PREDICTORS.get(name)
        return entry is None or all(
            not able or asked is None or asked.intersection(able)
            for able, asked in ((entry.workloads, self.workloads), (entry.devices, self.devices))
        )


PREDICTORS: Final[Mapping[str, CatalogEntry]] = {
    # Asked before the predictors of all operators and of kernels on other vendors' GPUs.
    "amd_kernels": CatalogEntry(
        "forerun.models.kernel_experts.amd:AmdKernels",
        "latency of convolutions, matrix products and expert layers on AMD GPUs, as tuned by "
        "AMD's libraries",
        trained_on=(("amd_kernels",),),
        workloads=("llm_kernel", "kernel"),
        devices=("gpu",),
    ),
    # Asked before the predictors of all operators, which have wider intervals in 16 bits and fp8.
    "llm_kernels": CatalogEntry(
        "forerun.models.kernel_experts.llm_kernels:LlmKernels",
        "latency of kernels of language models on data-centre GPUs, in bf16, fp8 and nvfp4, and of "
        "matrix products in 16 bits and fp8 on the GPUs that were measured",
        trained_on=(("aiconfigurator",),),
        evaluated_on=("vidur", "torch_gpu"),
        workloads=("llm_kernel", "kernel"),
        devices=("gpu",),
    ),
    "kernel_power": CatalogEntry(
        "forerun.models.kernel_experts.llm_kernels:KernelPower",
        "power of the same kernels in a loop on the GPUs where it was measured",
        trained_on=(("aiconfigurator/power",),),
        evaluated_on=("aiconfigurator", "torch_gpu"),
        workloads=("llm_kernel", "kernel"),
        devices=("gpu",),
    ),
    "cpu_latency": CatalogEntry(
        "forerun.models.processors.latency:CpuLatency",
        "latency of networks and operators on processors through ONNX Runtime",
        trained_on=(("onnxruntime_cpu",),),
        workloads=("kernel", "network"),
        devices=("cpu",),
    ),
    "device_time": CatalogEntry(
        "forerun.models.networks.device_time:DeviceTime",
        "device time of whole networks and of operators (PyTorch eager and compiled; inference and "
        "training) on GPUs, and latency of networks on CPUs",
        trained_on=(
            (
                *("timm_bench", "torch_gpu/recorded", "torch_gpu/operators"),
                *("published_networks/long", "lambda_bench/half_precision"),
            ),
        ),
        evaluated_on=("torch_gpu",),
    ),
    # Only the convolutions of deepbench are training rows, since NeuSight's convolutions have a
    # single kernel size. Deepbench's matrix products, measured with libraries of 2015 to 2017,
    # increased the error on matrix products of newer, held-out GPUs (docs/research/networks.md).
    "operator_boost": CatalogEntry(
        "forerun.models.kernel_experts.operators:OperatorBoost",
        "latency of single operators, and of fp32 networks as their sum",
        trained_on=(("neusight", "deepbench/fp32_convolutions"),),
        evaluated_on=("deepbench", "torch_gpu"),
    ),
    "network_latency": CatalogEntry(
        "forerun.models.networks.latency:NetworkLatency",
        "latency of networks as the longer of device time and host time",
        trained_on=(("published_networks",),),
        evaluated_on=("torch_gpu",),
        contains=("device_time", "operator_boost"),
        workloads=("kernel", "network"),
    ),
    "operator_power": CatalogEntry(
        "forerun.models.power.operator_power:OperatorPower",
        "average power of the device; energy as power times latency",
        trained_on=(
            (
                *("torch_op_energy", "zeus_powercap/networks", "mlenergy/diffusion"),
                "torch_gpu/power",
            ),
        ),
        devices=("gpu",),
    ),
    "architecture_latency": CatalogEntry(
        "forerun.models.architectures.latency:ArchitectureLatency",
        "latency of NAS-Bench-201, FBNet and OFA networks on devices known by a few measurements",
        trained_on=(("nas_latency",),),
        workloads=("architecture",),
    ),
    "design_boost": CatalogEntry(
        "forerun.models.hls_designs.booster:DesignBoost",
        "cycles and shares of the chip of hardware designs (high-level synthesis)",
        trained_on=(("hlsyn",),),
        workloads=("design",),
    ),
    "placed_boost": CatalogEntry(
        "forerun.models.circuits.placed_boost:PlacedBoost",
        "highest frequency of placed circuits on an iCE40 HX8K, before routing",
        evaluated_on=("circuit_fpga",),
        workloads=("circuit",),
    ),
    "netlist_boost": CatalogEntry(
        "forerun.models.circuits.netlist_boost:NetlistBoost",
        "highest frequency of circuits on an iCE40 HX8K, before placing",
        trained_on=(("circuit_fpga",),),
        workloads=("circuit",),
    ),
    "benchmark_boost": CatalogEntry(
        "forerun.models.benchmark_suites.scores:BenchmarkBoost",
        "dense layers on FPGAs and scores of processor benchmarks",
        trained_on=(("wa_hls4ml",), ("ncpp",)),
        workloads=("benchmark",),
    ),
    "benchmark_history": CatalogEntry(
        "forerun.models.benchmark_suites.history:BenchmarkHistory",
        "results of MLPerf Inference by model, scenario and accelerator, and training throughput "
        "by GPU",
        trained_on=(("mlperf_inference",), ("lambda_bench",)),
        workloads=("benchmark",),
    ),
    "memory": CatalogEntry(
        "forerun.models.memory.peak_memory:Memory",
        "peak memory on GPUs: training as measured on one device, all else analytic",
        trained_on=(("gpumemnet",),),
    ),
    "calibrated_memory": CatalogEntry(
        "forerun.models.memory.calibrated:CalibratedMemory",
        "ranges of peak memory outside the domain of `memory`, calibrated on published set-ups",
        trained_on=(("published_memory",),),
        evaluated_on=("torch_gpu",),
        contains=("memory",),
        workloads=("network",),
        devices=("gpu",),
    ),
    "colocation_boost": CatalogEntry(
        "forerun.models.colocation.booster:ColocationBoost",
        "what neighbours do to a program in a virtual machine",
        trained_on=(("contention",),),
        evaluated_on=("contention_pilot",),
        workloads=("colocation",),
    ),
    "program_mean": CatalogEntry(
        "forerun.models.colocation.booster:ProgramMean",
        evaluated_on=("contention", "contention_pilot"),
    ),
    "neighbour_boost": CatalogEntry(
        "forerun.models.colocation.application_booster:NeighbourBoost",
        evaluated_on=("cloudprophet_runs",),
    ),
    "serving_power": CatalogEntry(
        "forerun.models.serving.power:ServingPower",
        "power and throughput of generative models that serve requests",
        trained_on=(("mlenergy",),),
        workloads=("llm_serving", "llm_deployment", "diffusion"),
        devices=("gpu",),
    ),
    # Asked before the GPU predictor, which would answer llama.cpp by its analytical model.
    "processor_llm_latency": CatalogEntry(
        "forerun.models.llm_serving.processor_latency:ProcessorLlmLatency",
        "times and rates of a language model on processors (vLLM, llama.cpp), and with llama.cpp "
        "on GPUs",
        trained_on=(("llm_cloud_runs",),),
        workloads=("llm_deployment",),
        devices=("cpu", "gpu"),
    ),
    "llm_latency": CatalogEntry(
        "forerun.models.llm_serving.latency:LlmLatency",
        "time to the first token, time per token and rates of a deployed language model",
        trained_on=(("aiconfigurator_serving",),),
        evaluated_on=("llm_inference_bench", "splitwise"),
        workloads=("llm_deployment",),
        devices=("gpu",),
    ),
    "llm_training": CatalogEntry(
        "forerun.models.llm_training.step_time:LlmTrainingStep",
        "time of a training step of a large language model, by layout",
        trained_on=(("published_training",),),
        workloads=("llm_training",),
        devices=("gpu",),
    ),
    "llm_training_memory": CatalogEntry(
        "forerun.models.llm_training.predictors:LlmTrainingMemory",
        "memory of a training step of a large language model, by layout",
        trained_on=(("published_training",),),
        workloads=("llm_training",),
        devices=("gpu",),
    ),
    "power_cap": CatalogEntry(
        "forerun.models.power.training_jobs:PowerCap",
        "power and time of training jobs at a power limit, and how a limit acts on any network",
        trained_on=(("zeus_powercap",),),
    ),
    # Trained on imported tables, each by its own recipe (`forerun train TABLE`).
    "table_boost": CatalogEntry("forerun.models.own_tables.table_boost:TableBoost"),
    "chosen": CatalogEntry("forerun.models.router:Router"),
    "constant": CatalogEntry("forerun.models.baselines.constant:Constant"),
    "roofline": CatalogEntry("forerun.models.baselines.roofline:Roofline"),
}
"""Name of each predictor in artifacts -> its entry, in the order in which the router asks them."""


def catalog() -> Mapping[str, CatalogEntry]:
    """`PREDICTORS` plus those of installed packages, in the order in which the router asks them.

    Raises:
        BrokenPlugin: an entry of another package cannot be loaded.
    """
    names = list(PREDICTORS)
    added = {
        name: _entry(declared)
        for name, declared in plugins_by_name(GROUP, (type, CatalogEntry)).items()
        if name not in PREDICTORS
    }
    for name, entry in added.items():
        before = entry.asked_before
        names.insert(names.index(before) if before in names else len(names), name)
    return {name: PREDICTORS.get(name) or added[name] for name in names}


def predictors_evaluated_on(dataset: str) -> tuple[str, ...]:
    """Names of the predictors evaluated on a dataset; those that it trains come first."""
    entries = catalog()
    trained = [n for n, e in entries.items() if dataset in [names[0] for names in e.trained_on]]
    others = [name for name, entry in entries.items() if dataset in entry.evaluated_on]
    return tuple(dict.fromkeys((*trained, *others)))


def training_datasets(name: str) -> tuple[str, ...]:
    """Names of the datasets that train a predictor and its parts."""
    entry = PREDICTORS.get(name) or catalog().get(name, CatalogEntry(""))
    datasets = [source.split("/")[0] for sources in entry.trained_on for source in sources]
    parts = [dataset for part in entry.contains for dataset in training_datasets(part)]
    return tuple(dict.fromkeys((*datasets, *parts)))


def unfitted(name: str, seed: int = 0) -> Predictor:
    """A new predictor of that name; predictors without randomness ignore the seed.

    Raises:
        BadArtifact, BrokenPlugin: as `predictor_class`.
    """
    cls: Any = predictor_class(name)
    made = cls(seed=seed) if "seed" in inspect.signature(cls).parameters else cls()
    assert isinstance(made, Predictor)
    return made


def predictor_class(name: str) -> type[Predictor]:
    """The class of the predictor of that name.

    Raises:
        BadArtifact: neither forerun nor an installed package has a predictor of that name.
        BrokenPlugin: an installed package's predictor cannot be loaded.
    """
    entry = PREDICTORS.get(name)
    if entry is None:
        declared = plugin(GROUP, name, (type, CatalogEntry))
        if declared is None:
            raise BadArtifact(f"this version of forerun knows no predictor {name!r}.")
        entry = _entry(declared)
    cls = resolve_name(entry.location)
    assert isinstance(cls, type)
    return cls


def _entry(declared: type | CatalogEntry) -> CatalogEntry:
    """The entry of another package; a class alone means that the package trains it itself."""
    if isinstance(declared, CatalogEntry):
        return declared
    return CatalogEntry(f"{declared.__module__}:{declared.__qualname__}")
