"""The predictor of static batches: closed form, fit, adaptation, what it answers and stores."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.features.llm_serving.static_batch import StaticBatches
from forerun.models.llm_serving.static_batch import RATE, TIME, StaticBatch
from forerun.training.protocols.language_models.static_batches import benchmark_rows
from tests.training.protocols.language_models.batch_tables import CATALOG, benchmark_table

MEASURED, _ = benchmark_rows(benchmark_table(), CATALOG)
NEW = MEASURED.groups["device"] == "intel-max-1550"
HELD_OUT = MEASURED.take(NEW)


@pytest.fixture(scope="module")
def fitted():
    return StaticBatch().fit(MEASURED.take(~NEW))


def error(predictor, rows):
    return np.abs(np.log(predictor.predict(rows.queries).values[RATE] / rows.values[RATE]))


def test_unfitted_it_is_the_closed_form_without_intervals():
    found = StaticBatch().predict(MEASURED.queries)
    closed = StaticBatches.of(MEASURED.queries).seconds
    np.testing.assert_allclose(found.values[TIME], 1e3 * closed)
    assert not found.low
    assert StaticBatch().suggest(MEASURED.queries, 3) == []
    assert StaticBatch().adapt(MEASURED) == StaticBatch()


def test_time_and_rate_agree_and_so_do_their_intervals(fitted):
    found = fitted.predict(HELD_OUT.queries)
    loads = [query.deployment.load for query in HELD_OUT.queries]
    tokens = np.array([load.concurrency * load.output_tokens for load in loads])
    np.testing.assert_allclose(found.values[RATE] * found.values[TIME] / 1e3, tokens)
    np.testing.assert_allclose(found.low[RATE] * found.high[TIME] / 1e3, tokens)
    np.testing.assert_allclose(found.high[RATE] * found.low[TIME] / 1e3, tokens)


def test_devices_of_the_training_set_are_predicted_and_others_are_said_to_be_unmeasured(fitted):
    known = MEASURED.take(~NEW)
    assert np.median(error(fitted, known)) < 0.05
    assert not any(fitted.predict(known.queries).limits)
    assert all(limits for limits in fitted.predict(HELD_OUT.queries).limits)


def test_a_few_rows_of_a_new_device_suffice(fitted):
    chosen = fitted.suggest(HELD_OUT.queries, 6)
    adapted = fitted.adapt(HELD_OUT.take(np.array(chosen)))
    others = HELD_OUT.take(np.setdiff1d(np.arange(len(HELD_OUT)), chosen))
    assert np.median(error(fitted, others)) > 0.4
    assert np.median(error(adapted, others)) < 0.15


def test_rows_without_a_time_change_nothing(fitted):
    missing = replace(HELD_OUT, values={TIME: np.full(len(HELD_OUT), np.nan)})
    assert fitted.adapt(missing) is fitted
    assert StaticBatch().fit(missing) == StaticBatch()
    assert len(fitted.predict([]).values[TIME]) == 0


def test_open_loops_and_devices_without_a_sheet_are_not_answered(fitted):
    query = HELD_OUT.queries[0]
    load = replace(query.deployment.load, concurrency=None, requests_per_s=1.0)
    assert fitted.answers(query)
    assert not fitted.answers(replace(query, workload=replace(query.deployment, load=load)))


def test_it_is_restored_from_files(fitted, tmp_path):
    adapted = fitted.adapt(HELD_OUT.take(np.arange(8)))
    adapted.save(tmp_path / "saved")
    restored = StaticBatch.load(tmp_path / "saved").predict(HELD_OUT.queries)
    np.testing.assert_array_equal(
        restored.values[TIME], adapted.predict(HELD_OUT.queries).values[TIME]
    )
