"""Power of kernels: the contract, transfer to another GPU, adaptation, and the design power."""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.llm_kernels.families import kernel_groups
from forerun.models.contract import PredictorContract
from forerun.models.kernel_experts.llm_kernels import KernelPower
from tests.models.judged import errors
from tests.models.kernel_experts.rows import CATALOG, GPUS, kernels


def drawn(queries: list[Query], factor: float = 1.0) -> Measurements:
    """A quarter of the TDP, and more the more waves of tiles a kernel has."""
    watts = np.empty(len(queries))
    for group in kernel_groups(queries):
        busy = 1.0 / (1.0 + np.exp(-group.table.features[:, 3]))
        watts[group.rows] = group.device.tdp_w * np.minimum(0.25 + 0.7 * busy, 1.0) * factor
    device = np.array([query.device.name for query in queries])
    return Measurements(queries, {"power_w": watts}, {"device": device})


@lru_cache(maxsize=1)
def training_rows() -> Measurements:
    """Kernels on A100, H100 and H200."""
    return drawn([query for name in GPUS[:3] for query in kernels(name)])


@lru_cache(maxsize=1)
def fitted() -> KernelPower:
    """A small predictor fitted to them."""
    return KernelPower(trees=30).fit(training_rows())


class TestKernelPower(PredictorContract):
    """The contract of every predictor."""

    make = staticmethod(fitted)
    training_rows = staticmethod(training_rows)

    def queries(self):
        return [query for name in GPUS for query in kernels(name, 6, seed=1)]


def error(predictor, measured):
    """Median absolute error as a share."""
    return np.median(errors(predictor, measured, "power_w"))


def test_an_unseen_gpu_draws_its_share_of_its_own_design_power():
    """The law is one of shares, so it holds on a GPU of another design power."""
    assert error(fitted(), drawn(kernels("l40s", 100, seed=2))) < 0.1


def test_a_few_kernels_correct_a_gpu_that_draws_less():
    held_out = drawn(kernels("l40s", 100, seed=3), 0.6)
    adapted = fitted().adapt(drawn(kernels("l40s", 30, seed=4), 0.6))
    assert error(adapted, held_out) < 0.4 * error(fitted(), held_out)


def test_no_answer_is_above_the_design_power():
    """Neither the value nor the upper end, even where the support set drew more."""
    device = CATALOG.get("l40s")
    adapted = fitted().adapt(drawn(kernels("l40s", 30, seed=4), 3.0))
    answers = adapted.predict(kernels("l40s", 50, seed=5))
    assert answers.values["power_w"].max() == device.tdp_w
    assert answers.high["power_w"].max() <= device.tdp_w * (1.0 + 1e-12)  # sums are rounded


def test_a_device_without_a_design_power_is_not_answered():
    [query] = kernels("l40s", 1)
    bare = query.device.model_copy(update={"tdp_w": None, "sources": {}, "name": "bare"})
    assert fitted().answers(query)
    assert not fitted().answers(Query(query.workload, bare))


def test_kernels_of_a_family_that_was_not_fitted_are_left_out_of_a_support_set():
    rows = drawn(kernels("l40s", 30, seed=4), 0.6)
    whole = fitted()
    family, *_ = (group for group in kernel_groups(rows.queries))
    others = {name: own for name, own in whole.families.items() if name != family.family}
    partly = replace(whole, families=others)
    kept = np.array([partly.answers(query) for query in rows.queries])
    assert 0 < kept.sum() < len(kept)
    by_all, by_kept = partly.adapt(rows), partly.adapt(rows.take(kept))
    asked = [query for query in kernels("l40s", 20, seed=5) if partly.answers(query)]
    found = (one.predict(asked).values["power_w"] for one in (by_all, by_kept))
    np.testing.assert_array_equal(*found)
    assert partly.adapt(rows.take(~kept)).support == partly.support
