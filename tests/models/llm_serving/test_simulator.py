"""Times of batches by the interface of SGLang's simulator."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from forerun.features.llm_serving.iteration import Iterations
from forerun.features.llm_serving.step import WorkerTime
from forerun.models.llm_serving.correction import FittedTime
from forerun.models.llm_serving.simulator import FEATURES, IterationPredictor
from tests.features.llm_serving.deployments import DEVICE, deployment

TIME = WorkerTime.of(deployment(), DEVICE)
WRITTEN = json.loads((Path(__file__).parent / "batches" / "written.json").read_text())["batches"]


@pytest.fixture(scope="module")
def predictor():
    return IterationPredictor.of(TIME, most_tokens=2048, most_sequences=64, most_context=4096)


def batch(reqs):
    return SimpleNamespace(reqs=[SimpleNamespace(**one) for one in reqs])


def exact(*values, time=TIME):
    return float(time.seconds(Iterations(*(np.array([float(v)]) for v in values)))[0])


EXACT = (
    (640, 512 * 513 / 2 + 128 * 512 + 128 * 129 / 2, 2, 0, 0),
    (0, 0, 0, 2, 1000),
    (256, 256 * 257 / 2, 1, 1, 900),
)


@pytest.mark.parametrize(("written", "values"), list(zip(WRITTEN, EXACT, strict=True)))
def test_a_batch_takes_the_time_of_its_iteration(predictor, written, values):
    found = predictor.predict_infer_time(batch(written["reqs"]))
    assert found == pytest.approx(exact(*values), rel=0.05)


def test_an_empty_batch_takes_no_time(predictor):
    assert predictor.predict_infer_time(batch([])) == 0.0


def test_batches_beyond_the_table_are_computed(predictor):
    large = batch([{"extend_length": 8192, "past_kv_length": 0}])
    values = (8192, 8192 * 8193 / 2, 1, 0, 0)
    assert predictor.predict_infer_time(large) == pytest.approx(exact(*values), rel=1e-12)


def features(reqs):
    extend = np.array([one["extend_length"] for one in reqs], dtype=float)
    past = np.array([one["past_kv_length"] for one in reqs], dtype=float)
    attention = (extend * (past + extend / 2)).sum()
    decodes = bool((extend == 1).all())
    return [
        *(len(reqs), extend.sum(), extend.max(), extend.min()),
        *(past.sum(), past.max(), past.min()),
        *((extend * past).sum(), (extend**2).sum(), (past**2).sum(), attention),
        *((extend * past.max()).sum(), np.log1p(past.sum()), np.log1p(attention)),
        *(len(reqs) * extend.sum(), past.max() - past.min(), decodes, not decodes),
    ]


def test_features_give_the_same_times_as_batches_of_one_kind(predictor):
    kinds = [one["reqs"] for one in WRITTEN[:2]]
    found = predictor.predict([features(reqs) for reqs in kinds])
    assert found == pytest.approx([predictor.predict_infer_time(batch(reqs)) for reqs in kinds])


def test_other_numbers_of_features_are_refused(predictor):
    with pytest.raises(ValueError, match="18 features"):
        predictor.predict([[1.0] * (len(FEATURES) - 1)])


@pytest.mark.parametrize(("prefill", "decode"), [(2.0, 1.0), (1.0, 2.0)])
def test_factors_of_prompts_and_of_decoding_move_their_own_batches(prefill, decode):
    scaled = FittedTime(TIME, prefill, decode)
    ratios = [exact(*values, time=scaled) / exact(*values) for values in EXACT]
    alone, decoding, mixed = ratios
    assert alone == pytest.approx(prefill)
    assert decoding == pytest.approx(decode)
    assert 1.0 < mixed < 2.0
