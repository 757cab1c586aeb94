"""Answers about circuits on an FPGA."""

from forerun.data.described import Described
from forerun.service.schemas.answers import DeviceOut, GradedOut, LimitedAnswerOut, PredictorOut


class PathStepOut(Described):
    """A connection of a critical path."""

    source: str
    """cell and port that drive it"""
    sink: str
    """cell and port that it drives"""
    cell_ps: float
    """delay of the cell that drives it, picoseconds: from the input at which the path enters it, or
    from the clock's edge for the register that the path begins at"""
    connection_ps: float
    """expected mean delay after routing, picoseconds"""
    arrival_ps: float
    """time after the clock's edge at which its sink is reached"""


class ClockOut(Described):
    """A clock, and how fast it may be."""

    clock: str
    """port, or cell and port, that drives the clock"""
    fmax_mhz: GradedOut | None
    """highest frequency after placing and routing, MHz; null where no register of this clock feeds
    another, and where the circuit does not fit"""
    missing: str | None
    """why there is no frequency; null where there is one"""
    critical_path: list[PathStepOut]
    """connections of the longest path between registers, in their order"""
    breakdown_ps: dict[str, float]
    """parts of the period at fmax_mhz, picoseconds, which add up to it: `cells` and `connections`
    of the critical path, `setup` of the register that it ends at, and `placement`, by which the
    longest path of one placement usually differs from the longest path of mean delays; `placement`
    alone may be negative"""


class ResourceOut(Described):
    """A kind of cell of the FPGA."""

    used: int
    """cells that the circuit takes, after packing"""
    available: int
    """cells that the FPGA has"""


class CircuitOut(LimitedAnswerOut):
    """The timing of a circuit, and the FPGA resources that it uses."""

    clocks: list[ClockOut]
    """clocks of the circuit, the slowest first; paths between clocks do not count"""
    resources: dict[str, ResourceOut]
    """logic_cells, memories, ports and globals; counted, not predicted"""
    fits: bool
    """whether the FPGA has enough of every resource"""
    in_domain: bool
    """whether the circuit is like those of the training set in size"""
    device: DeviceOut
    """the FPGA"""
    predictor: PredictorOut
    """the predictor that answered"""
