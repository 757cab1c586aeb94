"""Made-up rows of published training tables: three families on four GPUs, and rows left out."""

from typing import Any

import pandas as pd

from forerun.data.datasets.language_models.published_training import PublishedTraining
from tests.contracts.tiny_published import filled_table, packaged_files

USUAL = {
    **{"family": "MPT", "model": "MPT-125m", "gpu": "a100-sxm-80gb", "device": "a100-sxm-80gb"},
    **{"phase": "pretraining", "framework": "llm-foundry (Composer, PyTorch FSDP)"},
    **{"source_repo": "mosaicml/llm-foundry", "source_path": "README.md", "source_line": 1.0},
    **{"source_commit": "0" * 40, "config_key": "0", "repeats_of_config": 1},
    **{"layers": 12.0, "hidden": 768.0, "heads": 12.0, "vocab": 50368.0, "seq": 2048.0},
    **{"gpu_count": 8.0, "micro_batch": 4.0, "global_batch": 64.0, "zero_or_fsdp": "FULL_SHARD"},
    **{"precision": "amp_bf16", "recompute": "none", "tokens_per_s_per_gpu": 8192.0},
}
BRIDGE = {
    **{"family": "Llama-3", "model": "LLAMA3_8B", "framework": "Megatron-Bridge/NeMo"},
    **{"source_repo": "NVIDIA-NeMo/Megatron-Bridge", "layers": None, "hidden": None, "tp": 2.0},
    **{"heads": None, "vocab": None, "precision": "FP8", "zero_or_fsdp": "DDP", "micro_batch": 1.0},
    **{"gpu": "h100-sxm-80gb", "device": "h100-sxm-80gb", "recompute": None},
}
BLOOM = {
    **{
        "family": "BLOOM",
        "model": "BLOOM-176B-family",
        "framework": "Megatron-LM/Megatron-DeepSpeed",
    },
    **{"source_repo": "bigscience-workshop/bigscience", "layers": 72.0, "hidden": 14336.0},
    **{"params": 181e9, "heads": None, "vocab": None, "gpu_count": 384.0, "tp": 8.0, "pp": 12.0},
    **{"micro_batch": 4.0, "global_batch": 2048.0, "recompute": "full", "zero_or_fsdp": None},
    **{"precision": "bf16/fp16 (see section)", "source_section": "x", "step_time_s": 123.69},
    **{"tokens_per_s_per_gpu": None, "memory_gib": 49.0},
    "memory_kind": "max on first/last node, GB as printed, nvidia-smi style",
}
TITAN = {
    **{"family": "Llama-3", "model": "Llama-3.1-405B", "framework": "torchtitan (PyTorch FSDP2)"},
    **{"source_repo": "pytorch/torchtitan", "gpu": "h100-sxm-96gb-500w", "device": None},
    **{"gpu_count": 512.0, "tp": 8.0, "pp": 8.0, "micro_batch": None, "local_batch": 32.0},
    **{
        "global_batch": None,
        "precision": "bf16+float8",
        "compile": "True",
        "zero_or_fsdp": "FSDP 8",
    },
    **{"recompute": "full", "seq": 8192.0, "tokens_per_s_per_gpu": 100.0, "memory_gib": 82.5},
    "memory_kind": 'peak, "GB" as printed (torchtitan prints GiB)',
}
DEEPSPEED = {
    **{"family": "Llama-3", "model": "Llama-3.1-8B", "framework": "DeepSpeed + HF transformers"},
    **{"source_repo": "stas00/ml-engineering", "gpu": "b200", "device": "b200-sxm-180gb"},
    **{"micro_batch": 1.0, "global_batch": None, "zero_or_fsdp": "ZeRO-3 + CPU offload"},
    **{"seq": 8192.0, "tokens_per_s_per_gpu": None, "tflops_per_gpu": 167.0, "memory_gib": 16.3},
    **{"memory_kind": "peak GiB as printed", "recompute": "full", "precision": "bf16"},
}
PAPER = {
    **{"family": "GPT", "model": "GPT-175B (Korthikanti 2022)", "framework": "Megatron-LM"},
    **{"source_repo": None, "source_commit": None, "layers": 96.0, "hidden": 12288.0},
    **{"heads": 96.0, "vocab": 51200.0, "gpu_count": 64.0, "tp": 8.0, "pp": 8.0, "dp": 1.0},
    **{"micro_batch": 1.0, "global_batch": 64.0, "precision": "amp fp16", "zero_or_fsdp": None},
    **{"recompute": "selective + sequence parallel", "step_time_s": 13.75},
    "tokens_per_s_per_gpu": 148.945,
}


def training_table(*rows: dict[str, Any]) -> pd.DataFrame:
    """A `table` of these rows; what a row does not say is a usual one of MPT-125m."""
    return filled_table(PublishedTraining(), USUAL, rows)


def training_rows() -> pd.DataFrame:
    """Usable rows of six sources, then a repeat and rows that take no part."""
    return training_table(
        *({"micro_batch": micro} for micro in (1.0, 2.0, 4.0, 8.0)),
        *({**BRIDGE, "global_batch": batch} for batch in (32.0, 64.0)),
        BLOOM,
        {**BLOOM, "micro_batch": 2.0, "heads": 128.0, "step_time_s": 150.0},
        TITAN,
        DEEPSPEED,
        PAPER,
        {"tokens_per_s_per_gpu": 4096.0},
        {"family": "Wan", "model": "wan2.1-14b"},
        {"gpu": "tpu-v7-ironwood", "device": None},
        {"consistency_flag": "size"},
        {**BLOOM, "layers": None},
        {"framework": "Meta internal"},
        {"global_batch": None},
        {"tokens_per_s_per_gpu": None},
        {**BRIDGE, "gpu_count": 9.0},
    )


def published_training() -> dict[str, bytes]:
    """The files of the package."""
    return packaged_files(table=training_rows())
