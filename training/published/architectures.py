"""Published rank correlations on architectures: NASFLAT's and HELP's own tables."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

Table = Mapping[tuple[str, str], Mapping[str, float]]

_NB201 = ("ND", "N1", "N2", "N3", "N4", "NA")
_FBNET = ("FD", "F1", "F2", "F3", "F4", "FA")
_NB201_DEVICES = ("titan-rtx-256", "gold-6226", "pixel2", "raspi4", "eyeriss", "fpga")
_FBNET_DEVICES = ("raspi4", "eyeriss", "fpga")


def _row(parts: tuple[str, ...], *values: float) -> Mapping[str, float]:
    return MappingProxyType(dict(zip(parts, values, strict=True)))


NASFLAT: Final[Table] = MappingProxyType(
    {
        ("nb201", "NASFLAT"): _row(_NB201, 0.959, 0.967, 0.857, 0.962, 0.959, 0.893),
        ("nb201", "HELP"): _row(_NB201, 0.948, 0.604, 0.509, 0.729, 0.746, 0.41),
        ("nb201", "MultiPredict"): _row(_NB201, 0.93, 0.97, 0.757, 0.947, 0.952, 0.82),
        ("fbnet", "NASFLAT"): _row(_FBNET, 0.961, 0.809, 0.871, 0.814, 0.734, 0.577),
        ("fbnet", "HELP"): _row(_FBNET, 0.91, 0.793, 0.543, 0.413, 0.799, 0.37),
        ("fbnet", "MultiPredict"): _row(_FBNET, 0.96, 0.756, 0.567, 0.434, 0.763, 0.45),
    }
)
"""(space, system) -> device split -> mean Spearman over its devices, 20 samples each.

Source: nasflat_latency at 8292434, teaser_nas.py and results_geomean.py; HELP and MultiPredict as
run by its authors.
"""

HELP: Final[Table] = MappingProxyType(
    {
        ("nb201", "HELP"): _row(_NB201_DEVICES, 0.987, 0.989, 0.802, 0.89, 0.94, 0.985),
        ("fbnet", "HELP"): _row(_FBNET_DEVICES, 0.887, 0.943, 0.892),
        ("fbnet", "MAML"): _row(_FBNET_DEVICES, 0.718, 0.763, 0.727),
        ("fbnet", "Meta-SGD"): _row(_FBNET_DEVICES, 0.821, 0.822, 0.776),
    }
)
"""(space, system) -> device -> Spearman, 10 samples (HELP measures 10 references more).

Source: HELP at 45f70eb9, README, tables 2 and 3.
"""
