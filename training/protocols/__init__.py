"""Datasets as exams: what may teach, what is judged, what others published."""

from forerun.data.errors import UnknownDataset
from forerun.training.protocols.architectures.nas_latency import NasLatencyExaminer
from forerun.training.protocols.benchmark_suites.lambda_bench import LambdaBenchExaminer
from forerun.training.protocols.benchmark_suites.mlperf_inference import MlperfInferenceExaminer
from forerun.training.protocols.benchmark_suites.ncpp import NcppExaminer
from forerun.training.protocols.colocation.cloudprophet_runs import CloudProphetExaminer
from forerun.training.protocols.colocation.contention import ContentionExaminer
from forerun.training.protocols.colocation.contention_pilot import ContentionPilotExaminer
from forerun.training.protocols.hls_designs.hlsyn import HLSynExaminer
from forerun.training.protocols.hls_designs.wa_hls4ml import WaHls4mlExaminer
from forerun.training.protocols.memory.gpumemnet import GpuMemNetExaminer
from forerun.training.protocols.memory.published_memory import PublishedMemoryExaminer
from forerun.training.protocols.networks.deepbench import DeepBenchExaminer
from forerun.training.protocols.networks.neusight import NeuSightExaminer
from forerun.training.protocols.networks.onnxruntime_cpu import OnnxruntimeCpuExaminer
from forerun.training.protocols.networks.published_networks import PublishedNetworksExaminer
from forerun.training.protocols.networks.timm_bench import TimmBenchExaminer
from forerun.training.protocols.power.mlenergy import MlEnergyExaminer
from forerun.training.protocols.power.torch_op_energy import TorchOpEnergyExaminer
from forerun.training.protocols.power.zeus_powercap import ZeusPowerCapExaminer
from forerun.training.protocols.protocol import Exam, Examiner, Task

EXAMINERS: tuple[type[Examiner], ...] = (
    CloudProphetExaminer,
    ContentionExaminer,
    ContentionPilotExaminer,
    DeepBenchExaminer,
    GpuMemNetExaminer,
    HLSynExaminer,
    LambdaBenchExaminer,
    MlEnergyExaminer,
    MlperfInferenceExaminer,
    NasLatencyExaminer,
    NcppExaminer,
    NeuSightExaminer,
    PublishedMemoryExaminer,
    PublishedNetworksExaminer,
    OnnxruntimeCpuExaminer,
    TimmBenchExaminer,
    TorchOpEnergyExaminer,
    WaHls4mlExaminer,
    ZeusPowerCapExaminer,
)


def examiner(dataset: str) -> Examiner:
    """The examiner of a dataset.

    Raises:
        UnknownDataset: no protocol is written for a dataset of that name.
    """
    for cls in EXAMINERS:
        if cls.dataset == dataset:
            return cls()
    raise UnknownDataset(dataset, [cls.dataset for cls in EXAMINERS])


__all__ = ["EXAMINERS", "Exam", "Examiner", "Task", "examiner"]
