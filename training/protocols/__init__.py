"""Evaluation protocols by dataset: training rows, held-out rows and published predictions."""

from forerun.data.datasets import imported_tables
from forerun.data.errors import UnknownDataset
from forerun.data.plugins import plugins
from forerun.training.protocols.architectures import nas_latency
from forerun.training.protocols.benchmark_suites import lambda_bench, mlperf_inference, ncpp
from forerun.training.protocols.circuits import circuit_fpga
from forerun.training.protocols.colocation import cloudprophet_runs, contention
from forerun.training.protocols.hls_designs import hlsyn, wa_hls4ml
from forerun.training.protocols.language_models import (
    aiconfigurator_serving,
    apex,
    kernels,
    llm_cloud_runs,
    published_training,
    static_batches,
)
from forerun.training.protocols.memory import gpumemnet, published_memory
from forerun.training.protocols.networks import (
    amd_kernels,
    deepbench,
    neusight,
    onnxruntime_cpu,
    published_networks,
    timm_bench,
    torch_gpu,
)
from forerun.training.protocols.own_tables import OwnTableProtocols
from forerun.training.protocols.power import mlenergy, torch_op_energy, zeus_powercap
from forerun.training.protocols.protocol import DatasetProtocols, Fold, Task

DATASET_PROTOCOLS: tuple[type[DatasetProtocols], ...] = (
    aiconfigurator_serving.AiConfiguratorServingProtocols,
    amd_kernels.AmdKernelProtocols,
    apex.ApexProtocols,
    kernels.AiConfiguratorProtocols,
    circuit_fpga.CircuitFpgaProtocols,
    cloudprophet_runs.CloudProphetProtocols,
    contention.ContentionProtocols,
    contention.ContentionPilotProtocols,
    deepbench.DeepBenchProtocols,
    gpumemnet.GpuMemNetProtocols,
    hlsyn.HLSynProtocols,
    lambda_bench.LambdaBenchProtocols,
    llm_cloud_runs.LlmCloudRunsProtocols,
    static_batches.LlmInferenceBenchProtocols,
    mlenergy.MlEnergyProtocols,
    mlperf_inference.MlperfInferenceProtocols,
    nas_latency.NasLatencyProtocols,
    ncpp.NcppProtocols,
    neusight.NeuSightProtocols,
    published_memory.PublishedMemoryProtocols,
    published_networks.PublishedNetworksProtocols,
    published_training.PublishedTrainingProtocols,
    onnxruntime_cpu.OnnxruntimeCpuProtocols,
    static_batches.SplitwiseProtocols,
    timm_bench.TimmBenchProtocols,
    torch_gpu.TorchGpuProtocols,
    torch_op_energy.TorchOpEnergyProtocols,
    kernels.VidurProtocols,
    wa_hls4ml.WaHls4mlProtocols,
    zeus_powercap.ZeusPowerCapProtocols,
)
TRAINING_PARTS: tuple[type[DatasetProtocols], ...] = (
    torch_op_energy.DiffusionPower,
    torch_gpu.EagerPower,
    deepbench.Fp32Convolutions,
    kernels.KernelPowerRows,
    lambda_bench.LambdaSteps,
    published_networks.LongRuns,
    torch_gpu.RecordedNetworks,
    torch_gpu.RecordedOperators,
    torch_op_energy.ZeusNetworkPower,
)
"""Parts of datasets that train a predictor of another dataset."""


def all_protocols() -> tuple[type[DatasetProtocols], ...]:
    """`DATASET_PROTOCOLS`, and those that installed packages add (`forerun.data.plugins`).

    Raises:
        BrokenPlugin: a class of another package cannot be loaded.
    """
    return (*DATASET_PROTOCOLS, *plugins("forerun.protocols"))


def protocols_of_dataset(dataset: str) -> DatasetProtocols:
    """The protocols of a dataset, which may be an imported table.

    Raises:
        UnknownDataset: no protocol is written for a dataset of that name.
    """
    known = {cls.dataset: cls for cls in all_protocols()}
    if dataset in known:
        return known[dataset]()
    imported = imported_tables()
    if dataset not in imported:
        raise UnknownDataset(dataset, [*known, *imported])
    return OwnTableProtocols(imported[dataset])


def training_source(name: str) -> DatasetProtocols:
    """The training rows that `CatalogEntry.trained_on` names: a dataset or `dataset/part`.

    Raises:
        UnknownDataset: there is none of that name.
    """
    parts = {made.source: made for made in (cls() for cls in TRAINING_PARTS)}
    return parts.get(name) or protocols_of_dataset(name)


__all__ = [
    "DATASET_PROTOCOLS",
    "TRAINING_PARTS",
    "DatasetProtocols",
    "Fold",
    "Task",
    "all_protocols",
    "protocols_of_dataset",
    "training_source",
]
