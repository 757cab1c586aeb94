"""Intervals of times that are parts of another time, in agreement with that of the whole.

Ends of intervals are fitted or interpolated for each time alone, so that of a part may lie beyond
that of the whole.
"""

from dataclasses import replace

from forerun.models.prediction import Estimate, Prediction

FIRST, SERVED, WHOLE = "ttft_ms", "ttft_service_ms", "request_latency_ms"


def parts_within_wholes(time: Prediction, output_tokens: float) -> Prediction:
    """The times, where no part of a time and no end of its interval is longer than the whole.

    The time to the first token is the one that is measured: its part without queueing, which no run
    measures, has no end beyond it, and no end of the time of a request is before it. A request with
    one token of an answer takes as long as that token: both have the tighter ends of the two.

    Args:
        time: times of a deployment.
        output_tokens: tokens of an answer.
    """
    known = dict(time.estimates)
    first = known.get(FIRST)
    if first is None:
        return time
    if WHOLE in known and output_tokens <= 1.0:
        first = known[FIRST] = known[WHOLE] = _same(first, known[WHOLE])
    if SERVED in known:
        known[SERVED] = _at_most(known[SERVED], first)
    if WHOLE in known:
        known[WHOLE] = _at_least(known[WHOLE], first)
    return replace(time, estimates=known)


def _same(first: Estimate, whole: Estimate) -> Estimate:
    """The longer of two estimates of one time, with the tighter ends of both around it."""
    one = _at_least(whole, first)
    if None in (first.low, first.high, whole.low, whole.high):
        return one
    high = min(first.high or 0.0, whole.high or 0.0)
    return replace(one, high=max(high, one.value))


def _at_most(part: Estimate, whole: Estimate) -> Estimate:
    """A part of a time, whose value and ends are those of the whole where they are longer."""
    if None in (part.low, part.high, whole.low, whole.high):
        return replace(part, value=min(part.value, whole.value))
    low, high = min(part.low or 0.0, whole.low or 0.0), min(part.high or 0.0, whole.high or 0.0)
    value = min(part.value, whole.value)
    return replace(part, value=value, low=low, high=max(high, value))


def _at_least(whole: Estimate, part: Estimate) -> Estimate:
    """A time, whose value and ends are those of a part of it where they are shorter."""
    if None in (part.low, part.high, whole.low, whole.high):
        return replace(whole, value=max(part.value, whole.value))
    low, high = max(part.low or 0.0, whole.low or 0.0), max(part.high or 0.0, whole.high or 0.0)
    value = max(part.value, whole.value)
    return replace(whole, value=value, low=min(low, value), high=high)
