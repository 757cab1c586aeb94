"""Datasets that can be pulled, one file each."""

from forerun.data.bundle import Bundle
from forerun.data.datasets.cloudprophet_runs import CloudProphetRuns
from forerun.data.datasets.contention import Contention
from forerun.data.datasets.dataset import Dataset
from forerun.data.datasets.deepbench import DeepBench
from forerun.data.datasets.gpumemnet import GpuMemNet
from forerun.data.datasets.hlsyn import HLSyn
from forerun.data.datasets.lambda_bench import LambdaBench
from forerun.data.datasets.mlenergy import MlEnergy
from forerun.data.datasets.mlperf_inference import MlperfInference
from forerun.data.datasets.nas_latency import NasLatency
from forerun.data.datasets.ncpp import Ncpp
from forerun.data.datasets.neusight import NeuSight
from forerun.data.datasets.onnxruntime_cpu import OnnxruntimeCpu
from forerun.data.datasets.published_memory import PublishedMemory
from forerun.data.datasets.published_networks import PublishedNetworks
from forerun.data.datasets.timm_bench import TimmBench
from forerun.data.datasets.torch_op_energy import TorchOpEnergy
from forerun.data.datasets.wa_hls4ml import WaHls4ml
from forerun.data.datasets.zeus_powercap import ZeusPowerCap
from forerun.data.errors import UnknownDataset

DATASETS: tuple[type[Dataset], ...] = (
    CloudProphetRuns,
    Contention,
    DeepBench,
    GpuMemNet,
    HLSyn,
    LambdaBench,
    MlEnergy,
    MlperfInference,
    NasLatency,
    Ncpp,
    NeuSight,
    OnnxruntimeCpu,
    PublishedMemory,
    PublishedNetworks,
    TimmBench,
    TorchOpEnergy,
    WaHls4ml,
    ZeusPowerCap,
)


def dataset(name: str) -> Dataset:
    """The dataset of that name.

    Raises:
        UnknownDataset: there is none.
    """
    for cls in DATASETS:
        if cls.name == name:
            return cls()
    raise UnknownDataset(name, [cls.name for cls in DATASETS])


def pull(name: str) -> Bundle:
    """Download and tidy a dataset into the user's folder of bundles.

    Raises:
        UnknownDataset: there is none of that name.
        MissingData, DamagedData, BadTable: as in `Dataset.pull`.
    """
    return dataset(name).pull()


__all__ = ["DATASETS", "Dataset", "dataset", "pull"]
