"""Limits that follow from the training set-up: several devices, costs that are not modelled."""

from forerun.data.query import Query
from forerun.data.workload import Network, OperatorWorkload, TrainingSetup
from forerun.features.operators.roofline import COMPUTE_PRECISION
from forerun.models.limit import LATENCY, Limit
from forerun.models.power.limit_response import too_low

TIMES = ("latency_ms", "utilisation")
DRAWN = ("power_w", "energy_j")


def not_known(query: Query) -> dict[str, str]:
    """Metric -> the reason why it has no answer for this set-up or power limit."""
    setup, below = _setup(query), _below_limits(query)
    if below or setup is None or _devices(setup) == 1:
        return below
    count = _devices(setup)
    drawn = f"what {count} devices draw together was not measured"
    if setup.tensor_parallel == setup.pipeline_parallel == 1:
        return dict.fromkeys(DRAWN, drawn)
    time = f"no predictor knows the time of a network divided among {count} devices"
    return dict.fromkeys(TIMES, time) | dict.fromkeys(DRAWN, drawn)


def not_run(query: Query) -> dict[str, str]:
    """Metric -> the reason, where the device does not run it, or no figure tells how fast.

    No predictor was fitted to such runs, so this concerns devices that nobody measured.
    """
    device = query.device
    if not isinstance(query.workload, OperatorWorkload):
        return {}
    if query.software.runtime == "tensorrt" and device.vendor != "nvidia":
        return dict.fromkeys((*TIMES, *DRAWN), "TensorRT runs on GPUs of NVIDIA alone")
    wanted = COMPUTE_PRECISION[query.run.precision]
    if device.kind != "cpu" or wanted in (*device.peak_tflops, "tf32"):
        return {}
    said = f"the sheet of {device.name} has no rate of {wanted}; give one, or ask for fp32"
    return dict.fromkeys((*TIMES, *DRAWN), said)


def _below_limits(query: Query) -> dict[str, str]:
    limit, tdp = query.operation.power_limit_w, query.device.tdp_w
    lines = () if limit is None or tdp is None else too_low(limit, tdp)
    return dict.fromkeys((*TIMES, *DRAWN), lines[0].message) if lines else {}


def set_up_limits(query: Query) -> list[Limit]:
    """Limits of the predicted time that follow from the training set-up alone."""
    setup, lines = _setup(query) or TrainingSetup(), []
    if setup.data_parallel > 1:
        lines.append(f"communication among {setup.data_parallel} devices is not in the time")
    counted = {
        "recomputation": bool(setup.checkpoint_segments or setup.checkpoint_blocks),
        f"{setup.accumulation} micro-batches": setup.accumulation > 1,
        "adapters": bool(setup.lora_rank),
        f"frozen weights in {setup.frozen_weights}": setup.frozen_weights is not None,
    }
    lines += [
        f"no training step with {what} was measured; its kernels are counted by rule"
        for what, applies in counted.items()
        if applies
    ]
    return [Limit(line, LATENCY) for line in lines] + _attention_limits(query)


def _attention_limits(query: Query) -> list[Limit]:
    """A limit where FlashAttention is asked of a graph whose attention is in steps."""
    if not isinstance(network := query.workload, Network):
        return []
    kinds = {op.kind for op in network.graph.operators}
    if network.attention != "flash" or "attention" in kinds or "softmax" not in kinds:
        return []
    line = (
        "the graph computes attention in steps, so the time is that of steps; "
        "for FlashAttention, trace the network with scaled_dot_product_attention"
    )
    return [Limit(line, LATENCY)]


def _setup(query: Query) -> TrainingSetup | None:
    return query.workload.training if isinstance(query.workload, Network) else None


def _devices(setup: TrainingSetup) -> int:
    return setup.data_parallel * setup.tensor_parallel * setup.pipeline_parallel
