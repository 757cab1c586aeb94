"""Published rank correlations on architectures: NASFLAT's and HELP's own tables."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

Table = Mapping[tuple[str, str], Mapping[str, float]]

NASFLAT: Final[Table] = MappingProxyType(
    {
        ("nb201", "NASFLAT"): {
            "ND": 0.959,
            "NA": 0.893,
            "N1": 0.967,
            "N2": 0.857,
            "N3": 0.962,
            "N4": 0.959,
        },
        ("fbnet", "NASFLAT"): {
            "FD": 0.961,
            "FA": 0.577,
            "F1": 0.809,
            "F2": 0.871,
            "F3": 0.814,
            "F4": 0.734,
        },
        ("nb201", "HELP"): {
            "ND": 0.948,
            "NA": 0.41,
            "N1": 0.604,
            "N2": 0.509,
            "N3": 0.729,
            "N4": 0.746,
        },
        ("fbnet", "HELP"): {
            "FD": 0.91,
            "FA": 0.37,
            "F1": 0.793,
            "F2": 0.543,
            "F3": 0.413,
            "F4": 0.799,
        },
        ("nb201", "MultiPredict"): {
            "ND": 0.93,
            "NA": 0.82,
            "N1": 0.97,
            "N2": 0.757,
            "N3": 0.947,
            "N4": 0.952,
        },
        ("fbnet", "MultiPredict"): {
            "FD": 0.96,
            "FA": 0.45,
            "F1": 0.756,
            "F2": 0.567,
            "F3": 0.434,
            "F4": 0.763,
        },
    }
)
"""(space, system) -> device split -> mean Spearman over its devices, 20 samples each.

Source: nasflat_latency at 8292434, teaser_nas.py and results_geomean.py; HELP and MultiPredict as
run by its authors."""

HELP: Final[Table] = MappingProxyType(
    {
        ("nb201", "HELP"): {
            "titan-rtx-256": 0.987,
            "gold-6226": 0.989,
            "pixel2": 0.802,
            "raspi4": 0.89,
            "eyeriss": 0.94,
            "fpga": 0.985,
        },
        ("fbnet", "MAML"): {"raspi4": 0.718, "eyeriss": 0.763, "fpga": 0.727},
        ("fbnet", "Meta-SGD"): {"raspi4": 0.821, "eyeriss": 0.822, "fpga": 0.776},
        ("fbnet", "HELP"): {"raspi4": 0.887, "eyeriss": 0.943, "fpga": 0.892},
    }
)
"""(space, system) -> device -> Spearman, 10 samples (HELP measures 10 references more).

Source: HELP at 45f70eb9, README, tables 2 and 3."""
