"""Limits: quantities in words, never the names of features."""

from dataclasses import replace
from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.collectors.workloads.operators import reference_operators
from forerun.data.device import DeviceCatalog
from forerun.data.query import Query
from forerun.data.workload import Kernel
from forerun.features.chips import DEVICE_RATIOS
from forerun.models.answers.served_models import InUse
from forerun.models.answers.wording import in_words
from forerun.models.artifact.sealed_folder import bundled
from forerun.models.domain.feature_range import FeatureRange
from forerun.models.limit import LATENCY, Limit
from forerun.models.networks.rows import RANGED_FEATURES
from forerun.service.answers.answer import answer_of
from forerun.service.answers.question import question_about

METRICS = ("latency_ms", "power_w", "peak_memory_mib", "energy_j", "allocated_memory_mib")


@pytest.mark.parametrize(
    ("figures", "sentence"),
    [
        (
            ("log_ridge", 4.94, 2.31, 3.62),
            "FLOPs at peak per byte of memory bandwidth: 140, the training set has 10 to 37",
        ),
        (
            ("share_pool", 0.0106, 0.0, 0.0),
            "time in kernels of class pool: 1.1 %, the training set has 0 %",
        ),
        (
            ("mean_share_of_weights", 1.0, 1.33e-05, 0.855),
            "weights among the bytes that are moved: 100 %, the training set has 0.0013 % to 86 %",
        ),
        (
            ("mean_torch_version", 2.09, 2.02, 2.04),
            "torch version: 2.9, the training set has 2.2 to 2.4",
        ),
    ],
)
def test_a_feature_out_of_range_is_reported_as_a_quantity(figures, sentence):
    feature, value, low, high = figures
    limit = Limit("", LATENCY, feature=feature, value=value, low=low, high=high)
    assert in_words(limit) == replace(limit, message=sentence)


@given(st.text(min_size=1), st.sampled_from([None, *METRICS]))
def test_every_other_sentence_stays_as_it_is(message, metric):
    limit = Limit(message, metric)
    assert in_words(limit) == limit


def test_a_sentence_is_valid_unicode():
    assert in_words(Limit("no result of the model \ud800")).message.isascii()


@given(st.sampled_from(METRICS[:3]), st.sampled_from(METRICS))
def test_a_limit_concerns_the_metrics_that_depend_on_its_own(own, metric):
    """Energy is power times time; memory depends on neither."""
    depends = {"energy_j": {"power_w", "latency_ms"}, "allocated_memory_mib": {"peak_memory_mib"}}
    assert Limit("x", own).concerns(metric) == (own in depends.get(metric, {metric}))


FEATURES = {*RANGED_FEATURES, *DEVICE_RATIOS}


@given(st.sampled_from(sorted(FEATURES)), st.floats(-1e6, 1e6))
def test_no_feature_is_called_by_its_own_name(feature, value):
    training_range = FeatureRange((feature,), np.array([2e6]), np.array([2e6]))
    (limit,) = training_range.outside(np.array([value]))
    said = in_words(limit).message
    assert said != str(limit)
    assert "_" not in said
    assert feature not in said


def test_answers_of_the_bundled_predictors_are_words():
    catalog, in_use = DeviceCatalog.load(), InUse(bundled())
    sheet_fields = set(catalog.get("l4").model_dump())
    asked = [
        Query(Kernel(op, "fp32"), catalog.get(name))
        for op in reference_operators()
        for name in ("l4", "h100-sxm", "xeon-8175m")
        if name in catalog.names()
    ]
    lines = {x for q in asked for x in answer_of(question_about(q), in_use).limits}
    assert lines
    strange = {w for line in lines for w in line.split() if "_" in w} - sheet_fields
    assert strange == set()


def test_numbers_of_tokens_are_whole():
    limit = Limit("", None, "outside", "log_input_tokens", log(512.0), log(1002.0), log(15063.0))
    assert in_words(limit).message == "input tokens: 512, the training set has 1,002 to 15,063"
