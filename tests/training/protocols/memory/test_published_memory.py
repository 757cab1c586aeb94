"""published_memory: rows as measurements (graph, set-up, metric), and protocols."""

import numpy as np
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.memory.published_memory import (
    ALLOCATED,
    DEVICE,
    RESERVED,
    PublishedMemory,
)
from forerun.data.workload import InferenceSetup, TrainingSetup
from forerun.features.published.zoo import read_graphs
from forerun.models.artifact.sealed_folder import bundled
from forerun.models.memory.calibrated import CalibratedMemory
from forerun.models.memory.peak_memory import PEAK, Memory
from forerun.training.protocols.memory import published_memory
from forerun.training.protocols.memory.published_memory import (
    Described,
    PublishedMemoryProtocols,
    described,
    left_out,
    optimizer,
)
from tests.contracts.tiny_published_memory import (
    SEGMENT,
    USUAL,
)
from tests.devices import CATALOG

GUIDE = {
    **{"model": "google-bert/bert-large-uncased", "task": "training", "precision": "amp fp16"},
    **{"batch": 1.0, "grad_accum": 4.0, "checkpointing": "True", "optimizer": "Adam 8-bit (bnb)"},
}
TUNE = {"model": "Llama 3.2 3B", "precision": "bf16", "batch": 2.0, "packed": "True"}
LORA = {
    **{"model": "meta-llama/Llama-3.2-3B", "method": "LORA", "lora_rank": 32.0},
    **{"peft_variant": "lora/llama-3.2-3B-rank32", "target_modules": '["v_proj", "q_proj"]'},
}
TITAN = {
    **{"params": 70.6e9, "checkpointing": "full", "batch": 16.0, "seq_or_resolution": "8192.0"},
    **{"tp": 8.0, "pp": 1.0, "dp": 32.0, "cp": 1.0, "compile": "True"},
}


@pytest.fixture(scope="module")
def packaged():
    return Bundle.open(PublishedMemory().packaged().folder, "published_memory")


@pytest.fixture(scope="module")
def measured(packaged):
    return PublishedMemoryProtocols().measured(packaged, CATALOG)


def test_every_row_is_evaluated_or_counted_with_a_reason(packaged, measured):
    why = left_out(packaged.table("table"), read_graphs(packaged.table("graphs")))
    assert sum(why.values()) + len(measured[0]) == len(packaged.table("table"))
    assert why["a rule of thumb, not a measurement"] == 24


def test_every_packaged_graph_belongs_to_a_row_and_is_at_batch_one(packaged, measured):
    graphs = read_graphs(packaged.table("graphs"))
    assert set(measured[0].groups["graph"]) == set(graphs)
    assert {graph.batch_size for graph in graphs.values()} == {1}


def test_one_row_has_one_metric(measured):
    values = np.array([measured[0].values[name] for name in (ALLOCATED, RESERVED, DEVICE)])
    assert (np.isfinite(values).sum(axis=0) == 1).all()


@pytest.mark.parametrize(
    ("source", "row", "graph", "setup"),
    [
        (
            "transformers",
            {"attention": "eager"},
            "bert_base_mlm-256-sum",
            {"optimizer": "none", "attention": "eager"},
        ),
        (
            "transformers",
            GUIDE,
            "bert_large_classification-512",
            {"optimizer": "adam8bit", "accumulation": 4, "checkpoint_blocks": True},
        ),
        (
            "torchtune",
            {**TUNE, "config": "cumulative: +chunked CE"},
            "llama_3.2_3b-4096",
            {"loss_chunks": 8, "checkpoint_blocks": False},
        ),
        (
            "peft",
            LORA,
            "llama_3.2_3b-768",
            {"lora_rank": 32, "lora_targets": "query_value", "adapter_precision": "fp32"},
        ),
        ("torchtitan", TITAN, "llama_3.1_70b-8192", {"tensor_parallel": 8, "zero_stage": 3}),
        ("torchtitan", TITAN, "llama_3.1_70b-8192", {"sequence_parallel": True}),
    ],
)
def test_a_set_up_follows_from_what_the_table_says(source, row, graph, setup):
    found = described(source, {**USUAL, **row})
    assert isinstance(found, Described)
    assert found.graph == graph
    assert isinstance(found.training, TrainingSetup)
    assert {name: getattr(found.training, name) for name in setup} == setup


def test_the_batch_of_a_step_is_that_of_all_its_micro_batches():
    found = described("transformers", {**USUAL, **GUIDE})
    assert isinstance(found, Described)
    assert (found.batch_size, found.precision) == (4, "amp")


def test_a_forward_pass_has_no_training():
    found = described("segment-anything-fast", {**USUAL, **SEGMENT})
    assert found.training is None
    assert found.inference == InferenceSetup("eager", "all", cache_tokens=0)


def test_generation_caches_the_prompt_and_the_answer():
    row = {"model": "EleutherAI/pythia-410m-deduped", "task": "generate, 100 new tokens"}
    found = described("transformers", {**USUAL, **row})
    assert found.inference.cache_tokens == 356
    assert found.inference.joined_cache


@pytest.mark.parametrize(
    ("source", "row", "why"),
    [
        ("transformers", {"task": "load"}, "no run: the network is loaded only"),
        ("transformers", {"task": "inference forward"}, "no graph: configuration not certain"),
        ("torchtune", {**TUNE, "config": "cumulative: baseline", "packed": None}, "lengths depend"),
        ("torchtune", {**TUNE, "config": "cumulative: QLoRA"}, "offloaded"),
        ("peft", {**LORA, "method": "BOFT"}, "adapter method"),
        ("peft", {**LORA, "target_modules": '["up_proj"]'}, "no option names"),
        ("torchtitan", {**TITAN, "cp": 4.0}, "context parallelism"),
        ("torchtitan", {**TITAN, "checkpointing": "selective"}, "by operator"),
        ("segment-anything-fast", {**SEGMENT, "compile": "max-autotune"}, "runtime"),
        ("open-muse", {"model": "wurst"}, "a pipeline of several networks"),
        ("somebody", {}, "no graph"),
    ],
)
def test_rows_without_a_query_have_a_reason(source, row, why):
    assert why in described(source, {**USUAL, **row})


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("AdamW", "adamw"),
        ("Adam 8-bit (bnb)", "adam8bit"),
        ("ao AdamW FP8", "adam8bit"),
        ("lpmm AdamW 4-bit", "adam4bit"),
        ("lpmm AdamW 4-bit rank-1", ""),
        ("Adafactor", "adafactor"),
        ("none in the timed loop", "none"),
        (float("nan"), "adamw"),
    ],
)
def test_optimizers_are_read_as_written(written, expected):
    assert optimizer(written) == expected


def test_calibrating_intervals_changes_no_estimate(made_up, monkeypatch):
    monkeypatch.setattr(published_memory, "bundled_memory", Memory)
    rows = PublishedMemoryProtocols().training_rows(made_up("published_memory"), CATALOG)
    unfitted = PublishedMemoryProtocols().predictor()
    before, after = unfitted.predict(rows.queries), unfitted.fit(rows).predict(rows.queries)
    for metric in unfitted.metrics:
        np.testing.assert_array_equal(before.values[metric], after.values[metric])


def test_the_bundled_memory_predictor_is_calibrated_and_not_evaluated_as_shipped():
    """Its intervals were calibrated on the held-out rows, so the model inside is evaluated."""
    others = ("cpu_latency", "llm_training_memory")
    (part,) = [p for p in bundled().predictor.parts if PEAK in p.metrics and p.name not in others]
    assert isinstance(part, CalibratedMemory)
    assert set(part.ranges.widths) == {"training", "inference", "several"}
    assert PublishedMemoryProtocols().predictor().ranges.widths == {}
    assert published_memory.bundled_memory().training == part.base.training


@pytest.mark.slow
def test_bundled_intervals_hold_nearly_all_peaks_of_held_out_families_and_sources(measured):
    """Where coverage is claimed for a held-out family, at least 90 % of its peaks lie inside."""
    rows, claimed, held, below = measured[0], 0, 0, 0
    for key in ("family", "source"):
        for name in np.unique(rows.groups[key]):
            out = rows.groups[key] == name
            fitted = CalibratedMemory(published_memory.bundled_memory()).fit(rows.take(~out))
            held_out = rows.take(out)
            answers = fitted.predict(held_out.queries)
            for metric, peaks in held_out.values.items():
                share = answers.row_coverage[metric]
                inside = (answers.low[metric] <= peaks) & (peaks <= answers.high[metric])
                claimed += int((np.isfinite(share) & np.isfinite(peaks)).sum())
                held += int((np.isfinite(share) & inside).sum())
                below += int((peaks <= answers.high[metric]).sum())
    assert claimed >= 60
    assert held / claimed >= 0.9
    assert below / (2 * len(rows)) >= 0.95


def test_no_set_up_that_ran_on_one_card_is_refused_on_it(measured):
    rows = measured[0]
    alone = [q for q in rows.queries if q.workload.training is None or _devices(q) == 1]
    assert len(alone) > 150
    limits = published_memory.bundled_memory().predict(alone).limits
    assert not [one for own in limits for one in own if one.severity == "refusal"]


def _devices(query):
    setup = query.workload.training
    return setup.data_parallel * setup.tensor_parallel * setup.pipeline_parallel
