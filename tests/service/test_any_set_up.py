"""Whatever set-up, sheet and limit is asked about gets an answer or a problem, never a fault."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forerun.service.schemas.training_options import LARGEST_RANK, MOST_DEVICES, MOST_SEGMENTS
from tests.service.conftest import GRAPH

POSITIVE = st.floats(0.0, exclude_min=True, allow_nan=False, allow_infinity=False)
COUNT = st.sampled_from([1, 2, 7, MOST_DEVICES])
TRAINING = st.fixed_dictionaries(
    {},
    optional={
        "optimizer": st.sampled_from(["sgd", "adam8bit", "adafactor"]),
        "checkpoint_segments": st.sampled_from([0, 1, 3, MOST_SEGMENTS]),
        "accumulation": st.sampled_from([1, 2, 64]),
        "lora_rank": st.sampled_from([0, 1, LARGEST_RANK]),
        "data_parallel": COUNT,
        "tensor_parallel": COUNT,
        "pipeline_parallel": COUNT,
        "zero_stage": st.sampled_from([0, 1, 2, 3]),
    },
)
NETWORK = st.fixed_dictionaries(
    {
        "kind": st.just("network"),
        "graph": st.just(GRAPH.to_json()),
        "batch_size": st.sampled_from([1, 64, 65536]),
        "precision": st.sampled_from(["fp32", "amp", "fp8", "int8"]),
        "phase": st.sampled_from(["inference", "training", "training"]),
    },
    optional={"training": TRAINING},
)
SHEET = st.fixed_dictionaries(
    {"name": st.just("odd"), "vendor": st.just("me"), "kind": st.sampled_from(["gpu", "cpu"])},
    optional={"memory_gib": POSITIVE, "tdp_w": POSITIVE, "idle_w": POSITIVE},
)
FIGURES = st.just({}) | st.builds(
    lambda speed, peak: {"memory_bandwidth_gbs": speed, "peak_tflops": {"fp32": peak}},
    POSITIVE,
    POSITIVE,
)
DEVICE = st.sampled_from(["l4", "epyc-7742", "tpu-v4"]) | st.builds(
    lambda sheet, figures: sheet | figures, SHEET, FIGURES
)
LIMIT = st.none() | st.sampled_from([1e-300, 1.0, 70.0, 1e5])


@given(workload=NETWORK, device=DEVICE, limit=LIMIT, goal=st.sampled_from(["cost", "energy_j"]))
@settings(suppress_health_check=list(HealthCheck))
def test_no_set_up_is_a_fault_of_ours(adapting, workload, device, limit, goal):
    operation = {"power_limit_w": limit}
    body = {"workload": workload, "device": device, "operation": operation}
    said = adapting.post("/v1/predict", json=body)
    assert said.status_code < 500, (body, said.text)
    ranked = {"workload": workload, "devices": [device, "t4"], "objective": goal}
    found = adapting.post("/v1/rank", json=ranked | {"operation": operation})
    assert found.status_code < 500, (ranked, found.text)
    limits = None if limit is None else [limit, 2 * limit] if limit < 1e5 else [limit]
    sweep = {"workload": workload, "device": device, "limits_w": limits, "picture": True}
    drawn = adapting.post("/v1/power/sweep", json=sweep)
    assert drawn.status_code < 500, (sweep, drawn.text)
