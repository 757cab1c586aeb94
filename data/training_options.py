"""Optimizers and formats of frozen weights, shared by all kinds of training."""

from typing import Literal

Optimizer = Literal["none", "sgd", "momentum", "adam", "adamw", "adafactor", "adam8bit", "adam4bit"]
"""Optimizer: `momentum` is SGD with momentum, `adam8bit` and `adam4bit` keep
moments in 8 and 4 bits, `none` is a forward and backward pass without a step."""

FrozenFormat = Literal["fp32", "fp16", "bf16", "fp8", "int8", "mxfp4", "nf4"]
"""How frozen weights are stored; `nf4` is QLoRA's four-bit format with doubly quantised scales
(Dettmers et al. 2023, arXiv 2305.14314)."""
