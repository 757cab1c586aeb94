"""Print what an answer is made of: operators of a network, or loops of a hardware design."""

from math import prod
from typing import Final

from forerun.data.metrics import metric
from forerun.service.cli.output import screen
from forerun.service.schemas.answers import REST, AttributedOut, AttributionOut, PredictionOut

MOST_ROWS: Final = 12
LONGEST_LABEL: Final = 72
SUMS: Final = "sums by class of operator, over all parts: ms, share, runs, class"


def show_attribution(answer: PredictionOut) -> None:
    """Print the largest parts of the answer, and how they make the estimate."""
    own = answer.attribution
    if own is None:
        return
    for line in attribution_lines(own):
        screen().print(line, markup=False, highlight=False, soft_wrap=True)


def attribution_lines(own: AttributionOut) -> list[str]:
    """The largest parts as lines: the value, its share or sign, how often it runs, and what it is.

    Parts beyond `MOST_ROWS` are added up in a last line. The sums of all classes of operators
    follow, and add up to the estimate.
    """
    if own.form == "product":
        text, whole = metric(own.metric).text, prod(part.value for part in own.parts)
        lines = [f"{text(own.base)} without directives, times the factor of each loop's directives"]
        lines += [f"  x {part.value:<8.3g} {part.label}" for part in own.parts]
        return [*lines, f"  = {text(own.base * whole)}"]
    total = sum(part.value for part in own.parts)
    kept, rest = own.parts[:MOST_ROWS], own.parts[MOST_ROWS:]
    shapes = f" ({said})" if (said := own.batch_of_shapes()) else ""
    lines = [f"largest parts of the latency: ms, share, runs, operator{shapes}"]
    lines += [_line(part, total) for part in kept]
    if rest:
        others = sum(part.value for part in rest)
        lines.append(f"{others:>9.3g} {others / total:>6.1%}        all smaller parts")
    lines.append(SUMS)
    lines += [
        f"{each.value:>9.4g} {each.value / total:>6.1%} x{each.count:<6g} {each.group}"
        for each in own.by_class
    ]
    lines.append(f"{total:>9.4g} {1:>6.1%}        the latency")
    if own.kernels is not None and own.correction is not None:
        lines.append(
            f"single operators add up to {own.kernels:.4g} ms; corrections of the whole network "
            f"multiply this by {own.correction:.3g}, which is in all parts but host"
        )
    return lines


def _line(part: AttributedOut, total: float) -> str:
    label = part.label if len(part.label) <= LONGEST_LABEL else f"{part.label[:LONGEST_LABEL]}..."
    group = "" if part.group in (part.label, REST) else f" ({part.group})"
    return f"{part.value:>9.3g} {part.value / total:>6.1%} x{part.count:<6g} {label}{group}"
