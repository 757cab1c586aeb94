"""Architecture of served models, as in their public config.json: inputs of a workload, by model.

The bundle does not contain these facts. They were written down without the files at hand and remain
to be checked against them. For models that are not listed, queries omit the facts and defaults are
used. The keys and values of a token take 2 x layers x key-value heads x head size x 2 bytes;
DeepSeek stores one latent vector of 576 elements per layer, Nemotron has attention in 6 of 62
layers, and half of gpt-oss's layers attend to 128 tokens only (not taken into account).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

LlmFacts = tuple[int, int, float | None]
"""Routed experts per layer, experts per token, bytes of keys and values per token."""
DiffusionFacts = tuple[int | None, int | None, int | None]
"""Side of a token in pixels, frames per token, forward passes per denoising step."""

_QWEN_30B: LlmFacts = (128, 8, 2.0 * 48 * 4 * 128 * 2)
_QWEN_235B: LlmFacts = (128, 8, 2.0 * 94 * 4 * 128 * 2)
_QWEN_480B: LlmFacts = (160, 8, 2.0 * 62 * 8 * 128 * 2)
_QWEN_8B: LlmFacts = (0, 0, 2.0 * 36 * 8 * 128 * 2)
_QWEN_32B: LlmFacts = (0, 0, 2.0 * 64 * 8 * 128 * 2)
_LLAMA_70B: LlmFacts = (0, 0, 2.0 * 80 * 8 * 128 * 2)
_LLAMA_405B: LlmFacts = (0, 0, 2.0 * 126 * 8 * 128 * 2)
_DEEPSEEK: LlmFacts = (256, 8, 61.0 * 576 * 2)
_NEMOTRON: LlmFacts = (0, 0, 2.0 * 6 * 8 * 128 * 2)

LLM_FACTS: Final[Mapping[str, LlmFacts]] = MappingProxyType(
    {
        "Qwen/Qwen3-30B-A3B-Instruct-2507": _QWEN_30B,
        "Qwen/Qwen3-30B-A3B-Thinking-2507": _QWEN_30B,
        "Qwen/Qwen3-Coder-30B-A3B-Instruct": _QWEN_30B,
        "Qwen/Qwen3-Omni-30B-A3B-Instruct": _QWEN_30B,
        "Qwen/Qwen3-VL-30B-A3B-Instruct": _QWEN_30B,
        "Qwen/Qwen3-235B-A22B-Instruct-2507": _QWEN_235B,
        "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8": _QWEN_235B,
        "Qwen/Qwen3-235B-A22B-Thinking-2507": _QWEN_235B,
        "Qwen/Qwen3-235B-A22B-Thinking-2507-FP8": _QWEN_235B,
        "Qwen/Qwen3-VL-235B-A22B-Instruct": _QWEN_235B,
        "Qwen/Qwen3-VL-235B-A22B-Instruct-FP8": _QWEN_235B,
        "Qwen/Qwen3-Coder-480B-A35B-Instruct": _QWEN_480B,
        "Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8": _QWEN_480B,
        "Qwen/Qwen3-8B": _QWEN_8B,
        "Qwen/Qwen3-VL-8B-Instruct": _QWEN_8B,
        "Qwen/Qwen3-32B": _QWEN_32B,
        "Qwen/Qwen3-VL-32B-Instruct": _QWEN_32B,
        "deepseek-ai/DeepSeek-R1-0528": _DEEPSEEK,
        "deepseek-ai/DeepSeek-V3.1": _DEEPSEEK,
        "google/gemma-3-12b-it": (0, 0, 2.0 * 48 * 8 * 256 * 2),
        "meta-llama/Llama-3.1-8B-Instruct": (0, 0, 2.0 * 32 * 8 * 128 * 2),
        "meta-llama/Llama-3.1-70B-Instruct": _LLAMA_70B,
        "meta-llama/Llama-3.3-70B-Instruct": _LLAMA_70B,
        "meta-llama/Llama-3.1-405B-Instruct": _LLAMA_405B,
        "meta-llama/Llama-3.1-405B-Instruct-FP8": _LLAMA_405B,
        "meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8": (128, 1, 2.0 * 48 * 8 * 128 * 2),
        "nvidia/NVIDIA-Nemotron-Nano-12B-v2": _NEMOTRON,
        "nvidia/NVIDIA-Nemotron-Nano-12B-v2-VL-BF16": _NEMOTRON,
        "openai/gpt-oss-120b": (128, 4, 2.0 * 36 * 8 * 64 * 2),
        "openai/gpt-oss-20b": (32, 4, 2.0 * 24 * 8 * 64 * 2),
    }
)

DIFFUSION_FACTS: Final[Mapping[str, DiffusionFacts]] = MappingProxyType(
    {
        "Efficient-Large-Model/SANA1.5_1.6B_1024px_diffusers": (32, None, 2),
        "Efficient-Large-Model/SANA1.5_4.8B_1024px_diffusers": (32, None, 2),
        "PixArt-alpha/PixArt-Sigma-XL-2-1024-MS": (16, None, 2),
        "Tencent-Hunyuan/HunyuanDiT-v1.2-Diffusers": (16, None, 2),
        "Wan-AI/Wan2.1-T2V-1.3B-Diffusers": (16, 4, 2),
        "black-forest-labs/FLUX.1-dev": (16, None, 1),
        "stabilityai/stable-diffusion-3.5-medium": (16, None, 2),
        "tencent/HunyuanVideo": (16, 4, 1),
        "zai-org/CogVideoX-2b": (16, 4, 2),
        "zai-org/CogVideoX1.5-5B": (16, 8, 2),
    }
)
"""SANA's autoencoder compresses by 32 and its patch size is 1 (arXiv 2410.10629); CogVideoX1.5 has
`patch_size_t: 2`; `guidance_embeds: true` means one forward pass per step."""
