"""Layers and attention of language models timed in vLLM and PyTorch on four GPUs.

Tables of vLLM (RTX PRO 6000) are in microseconds. Those of the earlier profiler (A6000, H100, RTX
3090) are in nanoseconds (`v0_layers`) and milliseconds (`v0_attention`). All are of one rank.
"""

from forerun.data.datasets.language_models.operator_splits import TimedOperators
from forerun.data.datasets.packaged import PackedTables


class LlmServingSim(TimedOperators, PackedTables, declared="llmservingsim"):
    """Leave one device out, few rows of a device, layers of models held out.

    A site is one layer of one model on a given number of ranks. `v0_attention` has separate columns
    for the times of prefill and decoding.
    """
