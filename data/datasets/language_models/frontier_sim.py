"""Operators of language models timed on A100, A800, H100, H800 and RTX PRO 6000.

`attention`, `linear` and `moe` hold the median and the spread of each operator of one layer on
one rank, in milliseconds. `table` is the kind of source file: `*_kernel_only` is device time alone.
A800 and H800 are A100 and H100 with slower links.
"""

from forerun.data.datasets.language_models.operator_splits import TimedOperators
from forerun.data.datasets.packaged import PackedTables


class FrontierSim(TimedOperators, PackedTables, declared="frontier_sim"):
    """Leave one device or one generation out, few rows of a device, dimensions held out.

    A site is the dimensions of a layer on one rank.
    """
