"""Peak memory with intervals, and where it holds."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import InferenceSetup, Network, TrainingSetup
from forerun.features.memory.plan import MemoryPlan, memory_plan
from forerun.features.memory.traits import TRAITS
from forerun.models.contract import PredictorContract
from forerun.models.memory.calibrated import CONTEXT, CalibratedMemory, PublishedRanges
from forerun.models.memory.fitted_peaks import (
    GENERATES,
    NO_DROPOUT,
    MemoryDomain,
    assumptions,
    kind_of,
)
from forerun.models.memory.peak_memory import (
    ALLOCATED,
    CONTEXT_HIGH_MIB,
    NO_INFERENCE_PEAKS,
    PEAK,
    RESERVED,
    Memory,
)
from tests.features.configurations import traced
from tests.models.memory import test_peak_memory
from tests.models.memory.test_peak_memory import (
    A100,
    CATALOG,
    OWN_MIB,
    ask,
    tower,
    train,
    training_rows,
)

# Ranges of memory calibrated on groups of published set-ups.


def published(spread=0.1, metric=ALLOCATED):
    """Twelve runs of four tables and three families in each phase, with residuals of both signs."""
    queries = [ask(b, phase=p) for p in ("training", "inference") for b in (1, 2, 4, 8)] * 3
    answers = Memory().predict(queries).values[metric]
    off = np.exp(spread * np.linspace(-1.0, 1.0, len(queries)))
    groups = {
        "part": np.array([f"table {i % 4}" for i in range(len(queries))]),
        "family": np.array([f"family {i % 3}" for i in range(len(queries))]),
        "source": np.array([f"source {i % 2}" for i in range(len(queries))]),
    }
    return Measurements(queries, {metric: answers * off}, groups)


class TestCalibratedMemoryContract(PredictorContract):
    def make(self):
        return CalibratedMemory().fit(published())

    def queries(self):
        return [ask(), ask(16, "fp16"), ask(2, phase="training")]


@pytest.fixture(scope="module")
def fitted():
    return test_peak_memory.fitted()


def test_estimates_are_those_of_memory_and_ranges_hold_what_was_published():
    rows = published()
    answers = CalibratedMemory().fit(rows).predict(rows.queries)
    np.testing.assert_array_equal(
        answers.values[ALLOCATED], Memory().predict(rows.queries).values[ALLOCATED]
    )
    measured = rows.values[ALLOCATED]
    rounding = 1 + 1e-9
    assert (answers.low[ALLOCATED] <= measured * rounding).all()
    assert (measured <= answers.high[ALLOCATED] * rounding).all()
    assert answers.coverage_of(ALLOCATED) == 0.9


def test_where_memory_was_calibrated_itself_nothing_changes(fitted):
    """Golden: ranges, coverage and limits of `Memory`'s own domain are the very same."""
    queries = [train(4, 1024, 512), train(8, 512, 64), train(2, 2048, 8192)]
    before = fitted.predict(queries)
    after = CalibratedMemory(fitted).fit(published(0.9)).predict(queries)
    for metric in fitted.metrics:
        np.testing.assert_array_equal(before.values[metric], after.values[metric])
        np.testing.assert_array_equal(before.low[metric], after.low[metric])
        np.testing.assert_array_equal(before.high[metric], after.high[metric])
    assert [before[row] for row in range(3)] == [after[row] for row in range(3)]
    assert after[0].estimates[PEAK].coverage == 0.9


def test_training_and_inference_have_widths_of_their_own():
    rows = published(spread=0.0)
    trained = np.array([q.workload.phase == "training" for q in rows.queries])
    high = np.where(trained, 1.2, 1.5) * rows.values[ALLOCATED]
    widths = CalibratedMemory().fit(replace(rows, values={ALLOCATED: high})).ranges.widths
    assert widths["training"] == pytest.approx(np.log(1.2))
    assert widths["inference"] == pytest.approx(np.log(1.5))


def test_a_phase_with_few_tables_takes_the_width_of_both_and_claims_nothing():
    rows = published()
    trained = np.array([q.workload.phase == "training" for q in rows.queries])
    kept = trained | (rows.groups["part"] == "table 0")
    fitted = CalibratedMemory().fit(rows.take(kept))
    answer = fitted.predict([ask(4)])[0]
    assert answer.estimates[ALLOCATED].coverage is None
    assert any("few of inference" in str(line) for line in answer.limits)
    assert fitted.predict([ask(4, phase="training")])[0].estimates[ALLOCATED].coverage == 0.9


def test_two_tables_are_too_few_to_calibrate_on():
    rows = published()
    few = rows.take(np.isin(rows.groups["part"], ["table 0", "table 1"]))
    fitted = CalibratedMemory().fit(few)
    assert fitted.ranges == PublishedRanges()
    assert CalibratedMemory().fit(rows.take(np.array([], dtype=np.intp))) == CalibratedMemory()
    before, after = Memory().predict(rows.queries), fitted.predict(rows.queries)
    np.testing.assert_array_equal(before.high[PEAK], after.high[PEAK])


def test_rows_of_other_metrics_count_by_their_own():
    rows = published(spread=0.0, metric=PEAK)
    both = replace(rows, values={PEAK: 2.0 * rows.values[PEAK]})
    fitted = CalibratedMemory().fit(both)
    assert fitted.ranges.widths["training"] == pytest.approx(np.log(2.0))
    answer = fitted.predict([ask(4, phase="training")])[0]
    coverage = {name: one.coverage for name, one in answer.estimates.items()}
    assert coverage == {PEAK: 0.9, RESERVED: None, ALLOCATED: None}, "only what was measured"


def test_runs_on_several_devices_do_not_widen_the_ranges_of_one():
    rows = published(spread=0.0)
    divided = [
        ask(b, phase="training", setup=TrainingSetup("sgd", data_parallel=8)) for b in (1, 2)
    ]
    off = 5.0 * Memory().predict(divided).values[ALLOCATED]
    groups = {name: np.array(["another", "another"]) for name in rows.groups}
    fitted = CalibratedMemory().fit(rows + Measurements(divided, {ALLOCATED: off}, groups))
    assert fitted.ranges.widths["training"] == pytest.approx(0.0)
    assert fitted.ranges.widths["several"] == pytest.approx(np.log(5.0))
    answers = fitted.predict([*divided, *rows.queries])
    assert answers.high[ALLOCATED][0] > 4.0 * answers.values[ALLOCATED][0]
    np.testing.assert_allclose(answers.high[ALLOCATED][2:], answers.values[ALLOCATED][2:])
    assert answers[0].estimates[ALLOCATED].coverage is None
    assert any("few of them on several devices" in str(line) for line in answers[0].limits)


@pytest.mark.parametrize(
    ("query", "why"),
    [
        (lambda: Query(Network(traced("bert"), 1), ask().device), "none of this kind"),
        (lambda: ask(1 << 12), "the largest of this kind reserves"),
        (lambda: ask(4, "bf16"), "none of this kind with bf16"),
        (
            lambda: ask(4, phase="training", setup=TrainingSetup(checkpoint_segments=2)),
            "none of this kind with checkpoint_segments",
        ),
    ],
)
def test_a_question_that_no_published_set_up_resembles_gets_no_claim_and_the_wider_range(
    query, why
):
    fitted = CalibratedMemory().fit(published(spread=0.01))
    queries = [query()]
    before, after = Memory().predict(queries), fitted.predict(queries)
    answer = after[0]
    assert {one.coverage for one in answer.estimates.values()} == {None}
    assert sum(why in str(line) for line in answer.limits) == 1
    for metric in fitted.metrics:
        assert after.low[metric][0] <= before.low[metric][0]
        assert after.high[metric][0] >= before.high[metric][0]


def test_one_family_does_not_speak_for_a_kind():
    rows = published()
    groups = dict(rows.groups) | {"family": np.full(len(rows), "one")}
    answer = CalibratedMemory().fit(replace(rows, groups=groups)).predict([ask(4)])[0]
    assert answer.estimates[ALLOCATED].coverage is None
    assert any("few of this kind" in str(line) for line in answer.limits)


def test_one_sentence_says_what_the_range_rests_on():
    fitted = CalibratedMemory().fit(published())
    line = "memory: the interval was calibrated on 12 published inference setups of 2 sources"
    assert f"{line}{CONTEXT}" in map(str, fitted.predict([ask(4)])[0].limits)
    lines = list(map(str, fitted.predict([ask(4, phase="training")])[0].limits))
    assert not any("engineering estimate:" in one for one in lines)
    assert sum("calibrated on 12 published training setups" in one for one in lines) == 1


def test_in_inference_the_peak_keeps_room_for_what_no_table_measured():
    fitted = CalibratedMemory().fit(published(spread=0.01))
    answers = fitted.predict([ask(1)])
    reserved = answers.values[RESERVED][0]
    assert answers.high[PEAK][0] > reserved + CONTEXT_HIGH_MIB
    assert answers.coverage_of(PEAK) is None
    assert answers.coverage_of(ALLOCATED) == 0.9


def test_a_run_is_refused_by_the_lower_end_that_is_answered():
    """Plans of some set-ups lie far above what was measured: such a run must not be refused."""
    large = ask(5000, phase="training")
    assert any(line.severity == "refusal" for line in Memory().predict([large])[0].limits)
    fitted = CalibratedMemory().fit(published(spread=1.5))
    answers = fitted.predict([large])
    refused = any(line.severity == "refusal" for line in answers[0].limits)
    assert refused == (answers.low[PEAK][0] > large.device.memory_gib * 1024.0)
    assert not refused


def test_adapting_moves_the_estimate_and_keeps_what_was_published():
    fitted = CalibratedMemory().fit(published())
    queries = [ask(b) for b in (1, 2, 4, 8)]
    more = fitted.predict(queries).values[PEAK] + 400.0
    adapted = fitted.adapt(Measurements(queries, {PEAK: more}))
    assert adapted.ranges == fitted.ranges
    assert (adapted.predict(queries).values[PEAK] > fitted.predict(queries).values[PEAK]).all()


# Coverage is nominal for networks in the measured domain, and for no others.


def training(graph, batch=1, precision="fp32", setup=None):
    known = setup or TrainingSetup("sgd")
    return Query(Network(graph, batch, precision, "training", known), CATALOG.get(A100))


@pytest.mark.slow
def test_networks_like_those_measured_keep_their_coverage(fitted):
    answer = fitted.predict([train(4, 1024, 512)])[0]
    assert answer.estimates[PEAK].coverage == 0.9
    assert answer.in_domain


@pytest.mark.parametrize(
    ("query", "why"),
    [
        (lambda: training(traced("bert")), "no convolution"),
        (lambda: training(traced("gpt2"), 4, "bf16"), "no convolution"),
        (lambda: training(tower(4, 1024), 512, "bf16"), "no training in bf16"),
        (lambda: training(tower(4, 1024), 1 << 24), "the largest network of this kind"),
        (lambda: training(tower(4, 1024), 8, setup=TrainingSetup("adam8bit")), "no such set-up"),
        (lambda: training(tower(4, 1024), 8, setup=TrainingSetup(checkpoint_segments=2)), "set-up"),
    ],
)
def test_queries_outside_the_domain_have_a_limit_line_with_the_reason(fitted, query, why):
    answer = fitted.predict([query()])[0]
    peak = answer.estimates[PEAK]
    assert peak.coverage is None
    assert any(why in str(line) for line in answer.limits)
    assert peak.low < peak.value < peak.high
    assert peak.high > 1.02 * peak.value


def test_networks_with_other_shares_than_those_measured_are_outside():
    """Perceptrons with large batches do not calibrate small ones, which are all weights."""
    rows = training_rows()
    large = np.array([query.workload.batch_size > 4096 for query in rows.queries])
    fitted = Memory().fit(rows.take(large))
    answers = fitted.predict([train(4, 1024, 8192), train(4, 1024, 8)])
    inside, outside = answers[0], answers[1]
    assert inside.estimates[PEAK].coverage == 0.9
    assert outside.estimates[PEAK].coverage is None
    assert any("such a share" in str(line) for line in outside.limits)


def test_the_booster_adds_no_more_to_larger_runs_than_to_the_largest_measured_one(fitted):
    """The relative residual of a small run would be gigabytes of a large one."""
    peaks = []
    for batch in (1 << 20, 1 << 21, 1 << 22):
        query = train(4, 2048, batch)
        mapped = fitted.training.peak(memory_plan(query.workload))
        peaks.append(fitted.predict([query]).values[PEAK][0] - mapped)
    measured = [train(n, w, b) for n in (2, 4, 8) for w in (512, 1024, 2048) for b in (512, 8192)]
    mapped = np.array([fitted.training.peak(memory_plan(q.workload)) for q in measured])
    most = np.abs(fitted.predict(measured).values[PEAK] - mapped).max()
    assert np.abs(peaks).max() <= 1.5 * most + 1.0


def test_transformers_follow_the_plan_without_a_booster(fitted):
    query = training(traced("gpt2"), 256, "bf16")
    plan = memory_plan(query.workload)
    assert kind_of(plan) == "text"
    assert fitted.predict([query]).values[PEAK][0] == pytest.approx(fitted.training.peak(plan))


def test_weights_and_slots_of_large_networks_get_no_slack(fitted):
    """Slack applies to transient memory: full fine-tuning keeps most of its memory throughout."""
    graph = OperatorGraph(
        (
            Operator("embedding", "wte", ((1, 8),), ((1, 8, 4096),), 1 << 20),
            Operator("linear", "fc", ((1, 8, 4096),), ((1, 8, 4096),), 4 << 30, inputs=(0,)),
        )
    )
    query = training(graph, 1, "bf16", TrainingSetup("adamw", optimizer_kernel="fused"))
    plan, answer = memory_plan(query.workload), fitted.predict([query])[0]
    lasting = plan.parts["weights"] + plan.parts["optimizer"]
    assert plan.lasting == lasting > 20_000
    own = max(fitted.training.peak(plan) - plan.reserved, CONTEXT_HIGH_MIB)
    assert answer.estimates[PEAK].high <= 1.16 * (plan.reserved - lasting) + lasting + own


def test_three_levels_of_memory_are_three_answers(fitted):
    answer = fitted.predict([training(traced("gpt2"), 256)])[0]
    allocated, reserved, peak = (
        answer.estimates[name].value for name in ("allocated_memory_mib", RESERVED, PEAK)
    )
    assert allocated < reserved < peak
    assert peak - reserved == pytest.approx(OWN_MIB, rel=0.3)


def test_inference_claims_nothing_and_says_what_generation_keeps():
    query = Query(Network(traced("llama"), 4, "bf16"), CATALOG.get("l4"))
    answer = Memory().predict([query])[0]
    assert GENERATES in answer.limits
    assert any(NO_INFERENCE_PEAKS in str(limit) for limit in answer.limits)
    asked = replace(query, workload=replace(query.workload, inference=InferenceSetup()))
    assert GENERATES not in Memory().predict([asked])[0].limits


@pytest.mark.parametrize("device", ["core-i9-10940x", "gaudi2"])
@pytest.mark.parametrize("phase", ["inference", "training"])
def test_ranges_of_gpus_are_for_gpus(fitted, device, phase):
    query = Query(Network(traced("bert"), 1, "fp32", phase), CATALOG.get(device))
    assert not fitted.answers(query)


def test_options_of_parts_that_a_network_lacks_widen_nothing_and_are_noted(fitted):
    """A scheduler sends the same options with every job."""
    given = TrainingSetup("sgd", attention="eager", loss_chunks=8)
    plain, asked = fitted.predict([train(4, 1024, 512), training(tower(4, 1024), 512, setup=given)])
    assert asked.estimates == plain.estimates
    assert asked.estimates[PEAK].coverage == 0.9
    assert plain.in_domain
    assert asked.in_domain
    assert set(map(str, asked.limits)) - set(map(str, plain.limits)) == {
        "memory: `attention` not used by this network, which has no attention operator",
        "memory: `loss_chunks` not used by this network, which gives no logits of tokens",
    }


def plan(reserved, convolutions=False, attention=False, looks_up=False):
    traits = [0.0] * len(TRAITS)
    traits[-2:] = float(attention), float(convolutions)
    return MemoryPlan(reserved, reserved, {}, 0.0, 0.0, tuple(traits), looks_up)


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        ({}, "dense"),
        ({"convolutions": True}, "mixed"),
        ({"convolutions": True, "attention": True}, "mixed"),
        ({"attention": True}, "text"),
        ({"looks_up": True}, "text"),
        ({"looks_up": True, "convolutions": True}, "text"),
    ],
)
def test_kinds_by_what_a_network_is_made_of(parts, kind):
    assert kind_of(plan(1.0, **parts)) == kind


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "adamw", "adafactor"])
def test_optimizers_with_at_most_two_states_are_inside(optimizer):
    domain = MemoryDomain.of([plan(100.0)], np.array([[0.5]]), ("share",), {"fp32"})
    asked = training(tower(2, 64), setup=TrainingSetup(optimizer))
    found = domain.why_outside(asked, plan(100.0), np.array([0.5]))
    assert (found is None) == (optimizer != "adafactor")


def test_notes_name_what_a_set_up_leaves_open():
    """Notes say where a graph shows no dropout, and that generation keeps a cache."""
    silent, saying = traced("llama"), traced("bert")
    assert assumptions(training(silent)) == (NO_DROPOUT,)
    assert assumptions(training(saying)) == ()
    assert assumptions(training(silent, setup=TrainingSetup("sgd", dropout=0.0))) == ()
    assert assumptions(training(tower(2, 64))) == ()
    asked = Query(Network(silent, 1), CATALOG.get(A100))
    assert assumptions(asked) == (GENERATES,)
    assert assumptions(Query(Network(saying, 1), CATALOG.get(A100))) == ()
    given = replace(asked, workload=replace(asked.workload, inference=InferenceSetup()))
    assert assumptions(given) == ()
