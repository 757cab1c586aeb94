"""Layers and attention of language models timed in vLLM and PyTorch on four GPUs.

The tables of vLLM (RTX PRO 6000) are in microseconds; those of the earlier profiler (A6000, H100,
RTX 3090), `v0_layers` and `v0_attention`, in nanoseconds and milliseconds. All are of one rank.
"""

from forerun.data.datasets.language_models.operator_splits import TimedOperators
from forerun.data.datasets.packaged import PackedTables


class LlmServingSim(TimedOperators, PackedTables, declared="llmservingsim"):
    """Leave one device out, few rows of a device, layers of models held out.

    A site is one layer of one model on so many ranks. `v0_attention` has the time of prefill in
    another column than that of decoding.
    """
