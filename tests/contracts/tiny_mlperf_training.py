"""Made-up runs of MLPerf Training: systems with and without a layout, on GPUs of two makers."""

from typing import Any

import pandas as pd

from forerun.data.datasets.language_models.mlperf_training import MlperfTraining
from tests.contracts.tiny_published import packaged_files

USUAL = {
    **{"benchmark": "llama31_8b", "submitter": "One", "system": "a", "file": "result_0.txt"},
    **{"gpu": "NVIDIA H200-SXM5-141GB", "gpu_count": 8, "nodes": 1, "gpus_per_node": 8},
    **{"status": "success", "global_batch": 16.0, "gradient_accumulation_steps": 1.0},
    **{"step_time_s": 1.0, "layout_from": "config_DGXH200_1x8x1xtp1pp1cp1.sh"},
}
B200 = {"gpu": "NVIDIA Blackwell GPU (B200-SXM-180GB)", "submitter": "Two"}
AMD = {
    **{"gpu": "AMD Instinct MI325X 256GB", "submitter": "Two", "benchmark": "llama2_70b_lora"},
    **{"step_time_s": None, "throughput_samples_s": 4.0, "global_batch": 8.0, "cp": 1.0},
    **{"tp": 1.0, "pp": 1.0, "layout_from": "config_MI325X_1x8x1.sh"},
}


def run_table(*rows: dict[str, Any]) -> pd.DataFrame:
    """The `runs` of these rows; what a row does not say is of a system with H200."""
    columns = MlperfTraining().tables()["runs"].columns
    types = {n: "str" if own.dtype is None else str(own.dtype) for n, own in columns.items()}
    said = pd.DataFrame([{**USUAL, **row} for row in rows])
    return said.reindex(columns=list(columns)).astype(types)


def run_rows() -> pd.DataFrame:
    """Three runs of one system, five further systems, and what is not evaluated."""
    return run_table(
        *({"step_time_s": own} for own in (1.0, 1.1, 3.0)),
        {"system": "b", "submitter": "Two", "step_time_s": 1.1},
        {**B200, "system": "c", "submitter": "One", "step_time_s": 0.4},
        {**B200, "system": "d", "layout_from": "config_1x8x2xtp1pp1cp2_8b_fp4.sh"},
        AMD,
        {**AMD, "submitter": "One", "throughput_samples_s": 5.0},
        {"system": "e", "layout_from": None},
        {"system": "f", "global_batch": 12.0},
        {"system": "g", "step_time_s": None},
        {"system": "h", "status": "aborted"},
        {"system": "i", "benchmark": "flux1"},
    )


def mlperf_training() -> dict[str, bytes]:
    """The files of the package."""
    return packaged_files(runs=run_rows())
