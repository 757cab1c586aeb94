"""Scores on the traces of llm-d's router: their parts, floors, and a comparison with baselines."""

import numpy as np
import pytest

from forerun.data.datasets.language_models.llmd_traces import LlmdTraces
from forerun.training.protocols.language_models.llmd_traces import LEARNED, pinball, scores


@pytest.mark.slow
def test_forerun_beats_llm_d_and_the_latest_times_at_each_number_of_requests(tmp_path):
    found = list(scores(LlmdTraces().pull(folder=tmp_path / "bundle")))
    assert len(found) == 4 * len(LEARNED)
    for row in found:
        own = row["forerun"]["pinball_ms"]
        assert own < row["llm_d"]["pinball_ms"], row
        assert own < row["latest_200"]["pinball_ms"], row
        if not row["task"].startswith("after_0"):
            assert row["forerun"]["coverage"] > 80.0, row
    llm_d = {row["task"]: row["llm_d"]["pinball_ms"] for row in found}
    assert llm_d["after_1000/sharegpt_h200/ttft_ms"] == pytest.approx(10.7, rel=0.1)


def test_pinball_loss_weighs_underestimates_nine_times():
    measured = np.array([10.0, 20.0])
    assert pinball(measured, np.array([11.0, 19.0])) == pytest.approx((0.1 + 0.9) / 2)
