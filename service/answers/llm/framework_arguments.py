"""A layout of training as arguments of training frameworks.

Only what a layout says is written; data, learning rates and sizes of the model are the user's.
Names are those of Megatron-LM's `megatron/training/arguments.py`, torchtitan's
`config/job_config.py` (before 0.3), `accelerate launch` 1.15, DeepSpeed's `config-json.md` and
LLaMA-Factory 0.9.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final

from forerun.data.device import Device
from forerun.data.language_models.training import LlmTraining
from forerun.data.workload import Network, TrainingSetup
from forerun.features.llm_training.memory import group_sizes

MEGATRON_FP8: Final = {"fp8": "tensorwise", "mxfp8": "mxfp8"}
ENDS: Final = ("first", "last")
BITS: Final = {"nf4": 4, "int8": 8}
"""Format of frozen weights -> bits to which bitsandbytes quantises them."""


def arguments(run: LlmTraining) -> dict[str, str]:
    """Framework -> the layout of a run in its arguments; without those that cannot express it."""
    writers = _WRITERS if run.layout.recompute_layers is None else {"megatron": _megatron}
    return {name: text for name, write in writers.items() if (text := write(run))}


def _megatron(run: LlmTraining) -> str:
    own, layers = run.layout, len(run.model.layers)
    groups = own.pipeline * own.virtual_stages
    uneven = layers % groups != 0
    if run.lora_rank or own.zero_stage > 1:
        return ""
    given: dict[str, Any] = {
        "tensor-model-parallel-size": own.tensor,
        "context-parallel-size": own.context,
        "pipeline-model-parallel-size": own.pipeline,
        "expert-model-parallel-size": own.expert,
        "micro-batch-size": own.micro_batch,
        "global-batch-size": run.global_batch,
        "seq-length": run.sequence_tokens,
    }
    if uneven:
        given["pipeline-model-parallel-layout"] = _groups_of_layers(layers, groups)
    elif own.virtual_stages > 1:
        given["num-virtual-stages-per-pipeline-rank"] = own.virtual_stages
    if own.recompute == "full":
        some = own.recompute_layers
        given |= {"recompute-granularity": "full", "recompute-num-layers": some or 1}
        given["recompute-method"] = "block" if some else "uniform"
    elif own.recompute == "selective":
        given["recompute-granularity"] = "selective"
    if run.precision in MEGATRON_FP8:
        given |= {"fp8-format": "hybrid", "fp8-recipe": MEGATRON_FP8[run.precision]}
    elif run.precision == "nvfp4":
        given |= {"fp4-format": "e2m1", "fp4-recipe": "nvfp4"}
    if own.expert > 1:
        given["expert-tensor-parallel-size"] = 1
    switches = ["fp16" if run.precision == "fp16" else "bf16"]
    switches += ["sequence-parallel"] if own.sequence_parallel and own.tensor > 1 else []
    switches += ["use-distributed-optimizer"] if own.zero_stage == 1 else []
    switches += ["fp8-dot-product-attention"] if run.attention == "flash-fp8" else []
    switches += ["optimizer-cpu-offload"] if own.offload == "optimizer" else []
    return _options(given, switches)


def _groups_of_layers(layers: int, groups: int) -> str:
    """Embeddings (E), layers (t) and loss (L) of each group, as Megatron-LM's custom pipeline
    layout takes them; it reads the number of groups of a stage from it.
    """
    held = [f"t*{count}" if count else "" for count in group_sizes(layers, groups).tolist()]
    return '"E' + "|".join(held) + 'L"'


def _torchtitan(run: LlmTraining) -> str:
    own = run.layout
    if run.lora_rank or own.zero_stage != 3 or run.precision not in ("bf16", "fp8", "mxfp8"):
        return ""
    layers, groups = len(run.model.layers), own.pipeline * own.virtual_stages
    each = -(-layers // groups)
    if -(-layers // each) != groups:
        return ""
    shard = own.shard_devices or run.data * own.context
    given: dict[str, Any] = {
        "parallelism.data_parallel_replicate_degree": run.data * own.context // shard,
        "parallelism.data_parallel_shard_degree": max(1, shard // own.context),
        "parallelism.tensor_parallel_degree": own.tensor,
        "parallelism.context_parallel_degree": own.context,
        "parallelism.pipeline_parallel_degree": own.pipeline,
        "parallelism.expert_parallel_degree": own.expert,
        "training.global_batch_size": run.global_batch,
        "training.seq_len": run.sequence_tokens,
        "training.local_batch_size": own.micro_batch,
        "activation_checkpoint.mode": own.recompute,
    }
    if own.pipeline > 1:
        given["parallelism.pipeline_parallel_schedule"] = (
            "Interleaved1F1B" if own.virtual_stages > 1 else "1F1B"
        )
        # Layers are divided evenly: by default the first and the last stage have one less.
        given |= {f"parallelism.pipeline_parallel_{end}_stage_less_layers": 0 for end in ENDS}
        given["parallelism.pipeline_parallel_layers_per_stage"] = each
        given["parallelism.pipeline_parallel_microbatch_size"] = own.micro_batch
        given["training.local_batch_size"] = run.global_batch // run.data
    return _options(given, [])


def set_in_script(run: LlmTraining) -> str:
    """What accelerate and DeepSpeed leave to the script: adapters and the format of frozen weights,
    in the words of PEFT and of bitsandbytes; empty where there is nothing.
    """
    if not run.lora_rank:
        return ""
    calls = [f'peft.LoraConfig(r={run.lora_rank}, target_modules="all-linear")']
    computed = "float16" if run.precision == "fp16" else "bfloat16"
    if run.frozen_weights == "nf4":
        calls.append(
            'transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", '
            f"bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.{computed})"
        )
    elif run.frozen_weights == "int8":
        calls.append("transformers.BitsAndBytesConfig(load_in_8bit=True)")
    if run.layout.recompute == "full":
        calls.append("model.gradient_checkpointing_enable()")
    return "; ".join(calls)


def _accelerate(run: LlmTraining) -> str:
    own = run.layout
    if own.pipeline > 1 or own.expert > 1 or own.zero_stage < 2 or run.precision == "nvfp4":
        return ""
    if own.recompute == "selective":
        return ""
    precision = run.precision if run.precision == "fp16" else "bf16"
    given: dict[str, Any] = {
        "num_processes": run.devices,
        "mixed_precision": "fp8" if "fp8" in run.precision else precision,
        "gradient_accumulation_steps": run.micro_batches,
    }
    switches = []
    if run.devices > 1:
        switches.append("use_fsdp")
        given |= {
            "fsdp_version": 2,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_reshard_after_forward": str(own.zero_stage == 3).lower(),
            "fsdp_activation_checkpointing": str(own.recompute == "full").lower(),
            "fsdp_offload_params": str(own.offload == "optimizer").lower(),
        }
    if own.tensor > 1 or own.context > 1:
        switches.append("use_parallelism_config")
        given["parallelism_config_dp_shard_size"] = run.data
        given["parallelism_config_tp_size"] = own.tensor
        given["parallelism_config_cp_size"] = own.context
    return _options(given, switches)


def _deepspeed(run: LlmTraining) -> str:
    own = run.layout
    if own.model_devices > 1 or own.expert > 1 or run.precision not in ("bf16", "fp16"):
        return ""
    zero: dict[str, Any] = {"stage": own.zero_stage}
    if own.offload == "optimizer":
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    content = {
        "train_batch_size": run.global_batch,
        "train_micro_batch_size_per_gpu": own.micro_batch,
        "gradient_accumulation_steps": run.micro_batches,
        "zero_optimization": zero,
        run.precision: {"enabled": True},
    }
    return json.dumps(content, indent=1)


def _llama_factory(run: LlmTraining) -> str:
    own = run.layout
    if own.model_devices > 1 or own.expert > 1 or run.precision not in ("bf16", "fp16"):
        return ""
    if own.recompute == "selective":
        return ""
    given: dict[str, Any] = {
        "stage": "sft" if run.lora_rank else "pt",
        "finetuning_type": "lora" if run.lora_rank else "full",
        "cutoff_len": run.sequence_tokens,
        "per_device_train_batch_size": own.micro_batch,
        "gradient_accumulation_steps": run.micro_batches,
        run.precision: True,
        "flash_attn": "fa2" if run.attention == "flash" else "disabled",
        "disable_gradient_checkpointing": own.recompute != "full",
    }
    if run.lora_rank:
        given |= {"lora_rank": run.lora_rank, "lora_target": "all"}
    if run.frozen_weights in BITS:
        given |= {"quantization_method": "bnb", "quantization_bit": BITS[run.frozen_weights]}
    if own.zero_stage and run.devices > 1:
        away = "_offload" if own.offload == "optimizer" else ""
        given["deepspeed"] = f"examples/deepspeed/ds_z{own.zero_stage}{away}_config.json"
    return "\n".join(f"{name}: {str(own).lower()}" for name, own in given.items())


_WRITERS: Final[Mapping[str, Callable[[LlmTraining], str]]] = {
    "megatron": _megatron,
    "torchtitan": _torchtitan,
    "accelerate": _accelerate,
    "deepspeed": _deepspeed,
    "llama-factory": _llama_factory,
}
"""Name of `ArgumentsOf` -> writer, which returns an empty text for what it cannot express."""


def _options(given: Mapping[str, Any], switches: list[str]) -> str:
    """Options with values, then switches, as a command takes them."""
    return " ".join(
        [*(f"--{name} {own}" for name, own in given.items()), *(f"--{s}" for s in switches)]
    )


def predict_command(network: Network, device: Device, tokens: int) -> str:
    """The command that asks for a training step of a model's config.json as this network.

    Args:
        network: a decoder that is trained.
        device: what it runs on.
        tokens: of each sequence.
    """
    usual = asdict(TrainingSetup())
    setup = asdict(network.training or TrainingSetup())
    options: dict[str, Any] = {
        **{"device": device.name, "phase": network.phase, "precision": network.precision},
        **{"batch_size": network.batch_size, "sequence_length": tokens},
        **{name: own for name, own in setup.items() if own != usual[name]},
    }
    words = [
        f"--{name.replace('_', '-')}" + ("" if own is True else f" {own}")
        for name, own in options.items()
    ]
    return f"forerun predict config.json {' '.join(words)}"
