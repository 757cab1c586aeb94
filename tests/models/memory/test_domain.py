"""Coverage is nominal for networks in the measured domain, and for no others."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.query import Query
from forerun.data.workload import InferenceSetup, Network, TrainingSetup
from forerun.features.memory.plan import MemoryPlan, memory_plan
from forerun.features.memory.traits import TRAITS
from forerun.models.memory.fitted_peaks import (
    GENERATES,
    NO_DROPOUT,
    MemoryDomain,
    assumptions,
    kind_of,
)
from forerun.models.memory.peak_memory import (
    CONTEXT_HIGH_MIB,
    NO_INFERENCE_PEAKS,
    PEAK,
    RESERVED,
    Memory,
)
from tests.features.configurations import traced
from tests.models.memory.test_peak_memory import A100, CATALOG, OWN_MIB, tower, train, training_rows


@pytest.fixture(scope="module")
def fitted():
    return Memory().fit(training_rows())


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


def test_a_query_outside_the_domain_does_not_change_the_coverage_of_others(fitted):
    both = fitted.predict([train(4, 1024, 512), training(traced("bert"))])
    assert [both[row].estimates[PEAK].coverage for row in (0, 1)] == [0.9, None]


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


def test_missing_dropout_is_said(fitted):
    lines = [fitted.predict([training(traced(name))])[0].limits for name in ("bert", "llama")]
    assert [NO_DROPOUT in found for found in lines] == [
        False,
        True,
    ]


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
        "memory: `attention` without effect on this network, which has no attention operator",
        "memory: `loss_chunks` without effect on this network, which gives no logits of tokens",
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


def test_every_kind_has_its_own_largest_run_and_ranges():
    plans = [plan(100.0), plan(300.0), plan(2000.0, convolutions=True)]
    features = np.array([[0.0], [1.0], [9.0]])
    domain = MemoryDomain.of(plans, features, ("share",), {"fp32", "amp"})
    assert domain.largest_mib == {"dense": 300.0, "mixed": 2000.0}
    assert [domain.ranges[k].high.tolist() for k in ("dense", "mixed")] == [[1.0], [9.0]]
    assert domain.precisions == ("amp", "fp32")
    asked = training(tower(2, 64))
    for size, why in ((329.0, None), (331.0, "reserves 300 MiB")):
        found = domain.why_outside(asked, plan(size), np.array([0.5]))
        assert (found is None) if why is None else (why in found)
    assert "such a share" in domain.why_outside(asked, plan(100.0), np.array([2.0]))
    text = domain.why_outside(asked, plan(1.0, attention=True), np.array([0.5]))
    assert "no convolution was measured" in text


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "adamw", "adafactor"])
def test_optimizers_with_at_most_two_states_are_inside(optimizer):
    domain = MemoryDomain.of([plan(100.0)], np.array([[0.5]]), ("share",), {"fp32"})
    asked = training(tower(2, 64), setup=TrainingSetup(optimizer))
    found = domain.why_outside(asked, plan(100.0), np.array([0.5]))
    assert (found is None) == (optimizer != "adafactor")


def test_notes_name_what_a_set_up_leaves_open():
    """Dropout of a transformer whose graph says nothing; what generation keeps."""
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
