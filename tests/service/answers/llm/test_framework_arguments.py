"""Layouts in the arguments of training frameworks: names that exist, and degrees that are meant."""

import json
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import get_args

import pytest

from forerun.data.language_models.training import LlmTraining, TrainingLayout, faults_of_layout
from forerun.features.llm_training.memory import group_sizes
from forerun.features.readers.language_model.reader import named_language_model
from forerun.service.answers.llm.framework_arguments import arguments, set_in_script
from forerun.service.schemas.llm.training import ArgumentsOf

PUBLISHED = json.loads((Path(__file__).parent / "published_arguments.json").read_text())
MODEL = named_language_model("meta-llama/Meta-Llama-3-8B")
RUN = LlmTraining(MODEL, 4096, 256, 16)
LAYOUTS = [
    TrainingLayout(
        tensor,
        context,
        pipeline,
        2 if pipeline > 1 else 1,
        zero_stage=zero,
        recompute=again,
        offload=away,
    )
    for tensor, context, pipeline, zero, again, away in product(
        (1, 2), (1, 2), (1, 4), (0, 1, 2, 3), ("none", "selective", "full"), ("none", "optimizer")
    )
]


UNEVEN = LlmTraining(
    named_language_model("meta-llama/Meta-Llama-3.1-405B"),
    *(8192, 256, 512),
    TrainingLayout(tensor=4, pipeline=16, virtual_stages=8),
)
SPREAD = LlmTraining(
    named_language_model("deepseek-ai/DeepSeek-V3"),
    *(4096, 256, 256),
    TrainingLayout(tensor=4, expert=8),
)


def names_in(framework: str, text: str) -> set[str]:
    """The arguments that a text names."""
    if framework == "deepspeed":
        return set(json.loads(text))
    if framework == "llama-factory":
        return {line.partition(":")[0] for line in text.splitlines()}
    return set(re.findall(r"--([\w.-]+)", text))


def test_every_argument_is_one_that_its_framework_publishes():
    runs = [replace(RUN, layout=layout) for layout in LAYOUTS]
    runs += [replace(run, precision=p) for run in runs for p in ("fp16", "fp8", "mxfp8", "nvfp4")]
    runs += [
        replace(run, lora_rank=16, frozen_weights=form)
        for run in runs
        for form in (None, "nf4", "int8")
    ]
    runs += [UNEVEN, SPREAD, replace(RUN, precision="fp8", attention="flash-fp8")]
    used = {name: set() for name in PUBLISHED}
    for run in runs:
        assert next(faults_of_layout(run, run.layout), None) is None
        for framework, text in arguments(run).items():
            used[framework] |= names_in(framework, text)
    assert set(used) == set(get_args(ArgumentsOf))
    for framework, names in used.items():
        assert names == set(PUBLISHED[framework]["names"]), PUBLISHED[framework]["source"]


def test_recomputation_of_some_layers_is_written_for_megatron_alone():
    some = replace(RUN, layout=TrainingLayout(recompute="full", recompute_layers=3))
    (name,) = arguments(some)
    text = arguments(some)[name]
    assert (name, "--recompute-method block" in text) == ("megatron", True)
    assert "--recompute-num-layers 3" in text


def test_degrees_and_batches_are_those_of_the_layout():
    layout = TrainingLayout(2, 1, 4, 2, micro_batch=4, recompute="full")
    text = arguments(replace(RUN, layout=layout))["megatron"]
    for words in (
        *("--tensor-model-parallel-size 2 ", "--pipeline-model-parallel-size 4 "),
        *("--num-virtual-stages-per-pipeline-rank 2 ", "--micro-batch-size 4 "),
        *("--global-batch-size 256 ", "--recompute-granularity full ", "--sequence-parallel"),
    ):
        assert words in f"{text} "
    sharded = arguments(replace(RUN, layout=TrainingLayout(zero_stage=3, micro_batch=2)))
    content = json.loads(sharded["deepspeed"])
    each = content["train_micro_batch_size_per_gpu"] * content["gradient_accumulation_steps"]
    assert each * RUN.devices == content["train_batch_size"] == 256
    assert "--gradient_accumulation_steps 8 " in sharded["accelerate"]
    assert "parallelism.data_parallel_shard_degree 16 " in sharded["torchtitan"]


@pytest.mark.parametrize(
    ("layout", "without"),
    [
        (TrainingLayout(tensor=2), {"accelerate", "deepspeed", "llama-factory", "torchtitan"}),
        (TrainingLayout(pipeline=2, zero_stage=3), {"accelerate", "deepspeed", "megatron"}),
        (TrainingLayout(zero_stage=3, recompute="selective"), {"accelerate", "llama-factory"}),
    ],
)
def test_a_framework_that_cannot_express_a_layout_is_left_out(layout, without):
    found = arguments(replace(RUN, layout=layout))
    assert found and not without & set(found)


def test_qlora_of_llama_factory_quantises_to_four_bits():
    run = replace(RUN, devices=1, lora_rank=16, frozen_weights="nf4", framework="fsdp")
    lines = arguments(run)["llama-factory"].splitlines()
    assert {"finetuning_type: lora", "lora_rank: 16", "quantization_bit: 4"} <= set(lines)
    assert "megatron" not in arguments(run)


def test_layers_that_do_not_divide_are_written_group_by_group_for_megatron() -> None:
    """In the letters of its docs/source/api-guide/custom_pipeline_model_parallel_layout.md: E is
    the embedding, t a layer, L the loss; all layers of a model are in some group.
    """
    divided = replace(SPREAD, layout=replace(SPREAD.layout, pipeline=16, expert=16))
    for run in (UNEVEN, divided):
        text = arguments(run)["megatron"]
        (written,) = re.findall(r'--pipeline-model-parallel-layout "([Et*0-9|L]+)"', text)
        assert written.startswith("E") and written.endswith("L")
        groups = written.split("|")
        assert len(groups) == run.layout.pipeline * run.layout.virtual_stages
        counts = [sum(map(int, re.findall(r"t\*(\d+)", group))) for group in groups]
        assert sum(counts) == len(run.model.layers)
        assert counts == group_sizes(len(run.model.layers), len(groups)).tolist()
        assert "--num-virtual-stages-per-pipeline-rank" not in text, "it is read from the groups"
    assert "--expert-tensor-parallel-size 1" in arguments(SPREAD)["megatron"]
    assert "pipeline-model-parallel-layout" not in arguments(RUN)["megatron"]


def test_what_launchers_leave_to_the_script_is_said() -> None:
    """Adapters by PEFT, frozen weights by bitsandbytes, with the run's values; else nothing."""
    run = replace(RUN, devices=1, lora_rank=64, frozen_weights="nf4", framework="fsdp")
    said = set_in_script(replace(run, layout=TrainingLayout(recompute="full")))
    for words in ("LoraConfig(r=64", "load_in_4bit=True", '"nf4"', "gradient_checkpointing"):
        assert words in said
    assert "load_in_8bit=True" in set_in_script(replace(run, frozen_weights="int8"))
    assert "BitsAndBytes" not in set_in_script(replace(run, frozen_weights=None))
    assert set_in_script(RUN) == ""


def test_torchtitan_makes_as_many_groups_of_layers_as_the_layout_has() -> None:
    """It makes ceil(layers / layers of a group) of them (`pipeline_parallel.py`)."""
    layout = TrainingLayout(pipeline=4, virtual_stages=4, zero_stage=3)
    run = replace(RUN, layout=layout, framework="torchtitan")
    text = arguments(run)["torchtitan"]
    assert "pipeline_parallel_layers_per_stage 2" in text, "32 layers in 16 groups"
    assert "torchtitan" not in arguments(replace(run, layout=replace(layout, virtual_stages=5)))
