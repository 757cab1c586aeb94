"""Separates rejected queries from answered ones, and states what an answer assumes.

Assumptions come from reading the graph, from the precisions of the device, and from the training
set-up: several devices, costs that are not modelled.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from forerun.data.errors import InputError
from forerun.data.graph import OperatorGraph
from forerun.data.language_models.training import LlmTraining
from forerun.data.number_formats import FORMATS
from forerun.data.query import Query
from forerun.data.workload import Network, OperatorWorkload, TrainingSetup, Workload, operator_graph
from forerun.features.graphs.pipeline import has_parts, steps_of, weights_by_part
from forerun.features.operators.roofline import COMPUTE_PRECISION, ELEMENT_BYTES
from forerun.models.answers.wording import readable
from forerun.models.domain.device_novelty import part_limits
from forerun.models.limit import HELD, LATENCY, NOT_COPIED, PEAK_MEMORY, Limit, Severity
from forerun.models.power.limit_response import too_low
from forerun.models.prediction import Prediction, Predictions
from forerun.models.predictor import Predictor


def predicted(predictor: Predictor, queries: Sequence[Query]) -> list[Prediction | InputError]:
    """The prediction or the error of each query; predicted in one call unless one is rejected."""
    rows, found, errors = answered(predictor, queries)
    outcomes: dict[int, Prediction | InputError] = {**errors}
    if found is not None:
        outcomes |= zip(rows, found, strict=True)
    return [outcomes[row] for row in range(len(queries))]


def answered(
    predictor: Predictor, queries: Sequence[Query]
) -> tuple[list[int], Predictions | None, dict[int, InputError]]:
    """Predictions of all queries that the predictor does not reject.

    Args:
        predictor: a predictor.
        queries: n queries.

    Returns:
        Positions of the answered queries, their predictions (None if there are none), and
        position -> error of the rejected queries.
    """
    errors: dict[int, InputError] = {}
    # Absurd spec sheets and sizes overflow here; non-finite answers are rejected later.
    with np.errstate(all="ignore"):
        try:
            return list(range(len(queries))), predictor.predict(queries) if queries else None, {}
        except InputError as error:
            errors = {0: error} if len(queries) == 1 else _errors(predictor, queries)
        rows = [row for row in range(len(queries)) if row not in errors]
        found = predictor.predict([queries[row] for row in rows]) if rows else None
    return rows, found, errors


def _errors(predictor: Predictor, queries: Sequence[Query]) -> dict[int, InputError]:
    """Position -> error of each query that the predictor rejects when asked on its own."""
    errors: dict[int, InputError] = {}
    for row, query in enumerate(queries):
        try:
            predictor.predict([query])
        except InputError as error:
            errors[row] = error
    return errors


TIMES = ("latency_ms", "utilisation")
DRAWN = ("power_w", "energy_j")


def not_known(query: Query) -> dict[str, str]:
    """Metric -> the reason why this training set-up or power limit has no answer."""
    setup, below = _setup(query), _below_limits(query)
    if below or setup is None or _devices(setup) == 1:
        return below
    count = _devices(setup)
    drawn = f"the total power of {count} devices was not measured"
    if setup.tensor_parallel == setup.pipeline_parallel == 1:
        return dict.fromkeys(DRAWN, drawn)
    time = f"no predictor knows the time of a network divided among {count} devices"
    return dict.fromkeys(TIMES, time) | dict.fromkeys(DRAWN, drawn)


def not_run(query: Query) -> dict[str, str]:
    """Metric -> the reason, where the device cannot run the query or its speed is unknown.

    No predictor was trained on such runs, so this applies to devices that the user did not measure.
    """
    device = query.device
    if not isinstance(query.workload, OperatorWorkload):
        return {}
    if query.software.runtime == "tensorrt" and device.vendor != "nvidia":
        return dict.fromkeys((*TIMES, *DRAWN), "TensorRT runs only on NVIDIA GPUs")
    wanted = COMPUTE_PRECISION[query.run.precision]
    if device.kind != "cpu" or wanted in (*device.peak_tflops, "tf32"):
        return {}
    said = f"the spec sheet of {device.name} has no {wanted} peak; give one, or use fp32"
    return dict.fromkeys((*TIMES, *DRAWN), said)


def _below_limits(query: Query) -> dict[str, str]:
    limit, tdp = query.operation.power_limit_w, query.device.tdp_w
    lines = () if limit is None or tdp is None else too_low(limit, tdp)
    return dict.fromkeys((*TIMES, *DRAWN), lines[0].message) if lines else {}


def set_up_limits(query: Query) -> list[Limit]:
    """Limits of the predicted time that follow from the device and the training set-up."""
    setup, lines = _setup(query) or TrainingSetup(), []
    if setup.data_parallel > 1:
        lines.append(
            f"communication among {setup.data_parallel} devices is computed by formula, for "
            "the links and networks of common machines"
        )
    counted = {
        "recomputation": bool(setup.checkpoint_segments or setup.checkpoint_blocks),
        f"{setup.accumulation} micro-batches": setup.accumulation > 1,
        "adapters": bool(setup.lora_rank),
        f"frozen weights in {setup.frozen_weights}": setup.frozen_weights is not None,
    }
    lines += [
        f"no training step with {what} was measured; its kernels are computed by formula"
        for what, applies in counted.items()
        if applies
    ]
    first = [Limit(line, LATENCY) for line in lines]
    return [*part_limits(query.device), *first, *_attention_limits(query)]


def _attention_limits(query: Query) -> list[Limit]:
    """A limit where FlashAttention is requested but the graph computes attention in steps."""
    if not isinstance(network := query.workload, Network):
        return []
    kinds = {op.kind for op in network.graph.operators}
    if network.attention != "flash" or "attention" in kinds or "softmax" not in kinds:
        return []
    line = (
        "the graph has unfused attention, and the time assumes it; for FlashAttention, "
        "trace the network with scaled_dot_product_attention"
    )
    return [Limit(line, LATENCY)]


def _setup(query: Query) -> TrainingSetup | None:
    return query.workload.training if isinstance(query.workload, Network) else None


def _devices(setup: TrainingSetup) -> int:
    return setup.data_parallel * setup.tensor_parallel * setup.pipeline_parallel


MANY = 8
"""Number of convolutions from which a network is unlikely to train without normalisation."""
FOLDED = (
    "the file has no normalization layers, because inference exports fold them into "
    "convolutions: training takes more than this; export the network in training mode"
)


def assumed_in_reading(workload: Workload) -> list[Limit]:
    """Limits for each assumption made while reading the graph, and for a batch size it fixes."""
    if not isinstance(workload, OperatorWorkload):
        return []
    graph = operator_graph(workload)
    usual: Severity = "note" if has_parts(graph) else "outside"
    limits = [Limit(readable(line), LATENCY, severity=usual) for line in graph.assumptions]
    if has_parts(graph):
        limits += _of_pipeline(workload)
    fixed = graph.source == "onnx" and all(b.why != "batch" for b in graph.bound_dimensions)
    if isinstance(workload, Network) and fixed and workload.batch_size != graph.batch_size:
        line = (
            f"the file fixes its first dimension at {graph.batch_size:,}; everything is scaled "
            f"from there to a batch size of {workload.batch_size:,}"
        )
        limits.append(Limit(line, severity="note"))
    if isinstance(workload, Network) and workload.phase == "training" and _norms_are_folded(graph):
        limits += [Limit(FOLDED, metric) for metric in (LATENCY, PEAK_MEMORY)]
    return limits


def _of_pipeline(workload: OperatorWorkload) -> Iterator[Limit]:
    """The memory of a diffusion pipeline by part, and what its predicted time leaves out."""
    yield Limit("only kernels of the pipeline's parts were measured, no whole pipeline", LATENCY)
    if not isinstance(workload, Network):
        return
    item, weights = ELEMENT_BYTES[workload.precision] / 2**20, weights_by_part(workload.graph)
    said = ", ".join(f"{name} {size * item:,.0f}" for name, size in weights.items())
    offloaded = workload.inference is not None and workload.inference.offload
    held = f"; {HELD}" if offloaded else ""
    yield Limit(f"weights by part, MiB: {said}{held}", PEAK_MEMORY, severity="note")
    if offloaded:
        yield Limit(NOT_COPIED, LATENCY)
    steps, guided = steps_of(workload)
    if steps:
        how = f"{steps} steps of the denoiser, {'with' if guided else 'without'} guidance"
        yield Limit(how, LATENCY, severity="note")


def _norms_are_folded(graph: OperatorGraph) -> bool:
    """Whether the file has many convolutions and no normalisation, as inference exports do."""
    kinds = [op.kind for op in graph.operators]
    norms = {"batch_norm", "group_norm", "layer_norm"}
    return graph.source == "onnx" and kinds.count("conv") >= MANY and norms.isdisjoint(kinds)


def other_arithmetic(query: Query) -> list[Limit]:
    """A limit where the spec sheet has no peak rate for the requested precision."""
    if isinstance(query.workload, LlmTraining):
        wanted = FORMATS[query.workload.precision].precisions[0]
    elif isinstance(query.workload, OperatorWorkload):
        wanted = COMPUTE_PRECISION[query.run.precision]
    else:
        return []
    used = query.device.computes_in(wanted)
    if used == wanted:
        return []
    line = f"the spec sheet has no {wanted} peak; its {used} peak is used"
    if wanted == "bf16" and "fp16" in query.device.peak_tflops:
        line += ": fp16 is faster"
    return [Limit(line, LATENCY, feature="precision")]
