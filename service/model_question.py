"""What stands beside an uploaded model: the question as query parameters."""

from pydantic import BaseModel, Field

from forerun.data.device import Device
from forerun.data.graph import OperatorGraph
from forerun.data.query import Query
from forerun.data.software import Layout, Runtime, Software
from forerun.data.workload import Network, NumberFormat, Optimizer, Phase, TrainingSetup
from forerun.service.schemas import LARGEST_BATCH, LONGEST_NAME
from forerun.service.training_options import (
    LARGEST_RANK,
    MOST_DEVICES,
    MOST_SEGMENTS,
    OPTIONS,
    training_in,
    training_of,
)
from forerun.service.workloads import operation_of, usual_runtime


class ModelQuestion(BaseModel):
    """On which device, and how it is run."""

    device: str = Field(description="name of a device", max_length=LONGEST_NAME, examples=["l4"])
    batch_size: int = Field(default=1, ge=1, le=LARGEST_BATCH, description="samples")
    precision: NumberFormat = Field(default="fp32", description="number format")
    phase: Phase = Field(default="inference", description="inference or training")
    runtime: Runtime | None = Field(
        default=None,
        description="how the graph is executed; onnxruntime for ONNX files on processors, "
        "else eager",
    )
    layout: Layout = Field(default="nchw", description="layout of image tensors")
    threads: int | None = Field(
        default=None, ge=1, le=1024, description="that compute, on a processor; as it was measured"
    )
    sequence_length: int | None = Field(
        default=None, ge=1, le=2**20, description="bound to free sequence dimensions"
    )
    optimizer: Optimizer | None = Field(default=None, description="of training; AdamW when absent")
    checkpoint_segments: int | None = Field(
        default=None, ge=0, le=MOST_SEGMENTS, description="of training: parts computed again"
    )
    accumulation: int | None = Field(
        default=None, ge=1, le=LARGEST_BATCH, description="of training: micro-batches of a step"
    )
    lora_rank: int | None = Field(
        default=None, ge=0, le=LARGEST_RANK, description="of training: adapters; 0 for none"
    )
    data_parallel: int | None = Field(
        default=None, ge=1, le=MOST_DEVICES, description="of training: devices with a batch each"
    )
    tensor_parallel: int | None = Field(
        default=None, ge=1, le=MOST_DEVICES, description="of training: devices that share a layer"
    )
    pipeline_parallel: int | None = Field(
        default=None, ge=1, le=MOST_DEVICES, description="of training: devices along the layers"
    )
    zero_stage: int | None = Field(
        default=None, ge=0, le=3, description="of training: what data-parallel devices share"
    )
    power_limit_w: float | None = Field(
        default=None, gt=0, le=1e5, description="limit set on the device, W"
    )

    def training(self) -> TrainingSetup | None:
        """How it is trained.

        Raises:
            BadTrainingSetup: nothing is trained, or the options contradict each other.
        """
        given = training_in({name: getattr(self, name) for name in OPTIONS})
        return training_of(self.phase, self.batch_size, given)

    def query(self, graph: OperatorGraph, device: Device, training: TrainingSetup | None) -> Query:
        """The question about a graph."""
        network = Network(graph, self.batch_size, self.precision, self.phase, training)
        runtime = self.runtime or usual_runtime(graph, device)
        software = Software(runtime=runtime, layout=self.layout, threads=self.threads)
        return Query(network, device, software, operation_of(network, self.power_limit_w))
