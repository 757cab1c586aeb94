"""Datasets as exams: what may teach, what is judged, what others published."""

from forerun.data.errors import UnknownDataset
from forerun.training.tasks.cloudprophet_runs import CloudProphetExaminer
from forerun.training.tasks.contention import ContentionExaminer
from forerun.training.tasks.contention_pilot import ContentionPilotExaminer
from forerun.training.tasks.deepbench import DeepBenchExaminer
from forerun.training.tasks.gpumemnet import GpuMemNetExaminer
from forerun.training.tasks.hlsyn import HLSynExaminer
from forerun.training.tasks.lambda_bench import LambdaBenchExaminer
from forerun.training.tasks.mlenergy import MlEnergyExaminer
from forerun.training.tasks.mlperf_inference import MlperfInferenceExaminer
from forerun.training.tasks.nas_latency import NasLatencyExaminer
from forerun.training.tasks.ncpp import NcppExaminer
from forerun.training.tasks.neusight import NeuSightExaminer
from forerun.training.tasks.onnxruntime_cpu import OnnxruntimeCpuExaminer
from forerun.training.tasks.published_memory import PublishedMemoryExaminer
from forerun.training.tasks.published_networks import PublishedNetworksExaminer
from forerun.training.tasks.task import Exam, Examiner, Task
from forerun.training.tasks.timm_bench import TimmBenchExaminer
from forerun.training.tasks.torch_op_energy import TorchOpEnergyExaminer
from forerun.training.tasks.wa_hls4ml import WaHls4mlExaminer
from forerun.training.tasks.zeus_powercap import ZeusPowerCapExaminer

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
