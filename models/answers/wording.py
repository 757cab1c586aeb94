"""Rewrites limits for users: feature names become words, and logarithms become quantities.

For example, `log_ridge is 4.94; the training set has 2.31 to 3.62` becomes `FLOPs at peak per byte
of memory bandwidth: 140; the training set has 10 to 37`. Limits that already have a sentence keep
it.
"""

from dataclasses import replace
from functools import lru_cache
from math import exp
from typing import Final, Literal, NamedTuple

from forerun.data.facts import facts_of
from forerun.models.limit import Limit

Scale = Literal["count", "log", "share", "plain", "version"]


class _Words(NamedTuple):
    text: str
    scale: Scale


_FACTS: Final = facts_of(__file__)
FEATURE_WORDS: Final = {name: _Words(**words) for name, words in _FACTS["features"].items()}
_STARTS: Final = {start: _Words(**words) for start, words in _FACTS["starts"].items()}


@lru_cache(maxsize=1024)
def in_words(limit: Limit) -> Limit:
    """The limit with a sentence that names its feature in words and quantities.

    Features without a description keep their name. The sentence is valid Unicode.
    """
    if limit.message:
        return replace(limit, message=readable(limit.message))
    words = _words(limit.feature or "")
    if words is None:
        return replace(limit, message=readable(str(replace(limit, metric=None))))
    figures = (limit.value, limit.low, limit.high)
    rounded = figures if words.scale == "count" else map(_rounded, figures)
    value, low, high = (_formatted(figure or 0.0, words.scale) for figure in rounded)
    known = low if low == high else f"{low} to {high}"
    return replace(limit, message=f"{words.text}: {value}; the training set has {known}")


def readable(text: str) -> str:
    """The text without lone surrogates, which JSON allows and UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _rounded(figure: float | None) -> float:
    """A figure to three significant digits."""
    return float(f"{figure:.3g}")


def _words(feature: str) -> _Words | None:
    known = FEATURE_WORDS.get(feature)
    if known is not None:
        return known
    for start, words in _STARTS.items():
        if feature.startswith(start):
            rest = feature.removeprefix(start).replace("_", " ")
            return words._replace(text=words.text + rest)
    if feature.startswith("log_"):
        return _Words(feature.removeprefix("log_").replace("_", " "), "log")
    return _Words(feature.replace("_", " "), "plain") if "_" in feature else None


def _formatted(number: float, scale: Scale) -> str:
    match scale:
        case "log" | "count":
            # exp overflows beyond about 709.
            quantity = exp(min(max(number, -700.0), 700.0))
            return f"{quantity:,.0f}" if 100 <= quantity < 1e9 else f"{quantity:.2g}"
        case "share":
            return f"{100 * number:.2g} %" if abs(number) < 0.995 else f"{100 * number:.0f} %"
        case "version":
            return f"{int(number)}.{round(100 * (number % 1))}"
        case "plain":
            return f"{number:.3g}"
