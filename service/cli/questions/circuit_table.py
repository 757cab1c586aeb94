"""Print the timing of a circuit."""

from typing import TYPE_CHECKING, Final

from forerun.service.cli.output import screen

if TYPE_CHECKING:
    from forerun.service.schemas.circuits import CircuitOut, ClockOut

SHOWN_CLOCKS: Final = 10


def show_circuit(title: str, answer: "CircuitOut", *, explain: bool = False) -> None:
    """Print the frequency of each clock and the resources; the critical path where asked for."""
    from forerun.service.cli.questions.answer_table import HEADINGS, table

    out = screen()
    out.print(f"\n{title} on {answer.device.name}", markup=False)
    rows = table("clock", "highest frequency", "90 % interval", "trust", "why")
    for clock in answer.clocks[:SHOWN_CLOCKS]:
        rows.add_row(clock.clock, *_frequency(clock))
    if answer.clocks:
        out.print(rows)
    else:
        out.print("no register, and so no clock")
    parts = (f"{own.used:,} of {own.available:,} {name}" for name, own in answer.resources.items())
    verdict = "it fits" if answer.fits else "it does not fit"
    out.print(f"{verdict}: {', '.join(parts)}".replace("_", " "), markup=False)
    if explain and answer.clocks:
        _path(answer.clocks[0])
    for limit in answer.limit_details:
        if limit.severity in {"outside", "note"}:
            out.print(f"{HEADINGS[limit.severity]}: {limit.message}", markup=False)
    if not explain and any(clock.critical_path for clock in answer.clocks):
        out.print("--explain shows the critical path of the slowest clock")


def _frequency(clock: "ClockOut") -> tuple[str, str, str, str]:
    own = clock.fmax_mhz
    if own is None:
        return "not known", "", "", clock.missing or ""
    interval = "" if own.low is None or own.high is None else f"{own.low:.1f} to {own.high:.1f}"
    return f"{own.value:.1f} MHz", interval, own.grade, own.grade_reason


def _path(clock: "ClockOut") -> None:
    """Print the critical path of a clock, and the parts of its period."""
    out = screen()
    out.print(f"critical path of {clock.clock}: arrival, cell and connection, ps", markup=False)
    carries, cells, connections = 0, 0.0, 0.0
    for step in clock.critical_path:
        if step.sink.endswith(".CIN"):
            carries += 1
            cells, connections = cells + step.cell_ps, connections + step.connection_ps
            continue
        if carries:
            through = f"{'':>8} {cells:>7.0f} {connections:>7.0f}  through {carries} carries"
            out.print(through, markup=False)
        carries, cells, connections = 0, 0.0, 0.0
        times = f"{step.arrival_ps:>8.0f} {step.cell_ps:>7.0f} {step.connection_ps:>7.0f}"
        out.print(f"{times}  {step.source} -> {step.sink}", markup=False)
    parts = " + ".join(f"{name} {ps:.0f}" for name, ps in clock.breakdown_ps.items())
    if clock.fmax_mhz is not None and parts:
        whole = sum(clock.breakdown_ps.values())
        words = f"period of {whole:.0f} ps at {clock.fmax_mhz.value:.1f} MHz = {parts}"
        out.print(words.replace("+ placement -", "- placement "), markup=False)
