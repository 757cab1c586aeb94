"""Answers about circuits on an FPGA."""

from pydantic import BaseModel, Field

from forerun.service.schemas.answers import (
    DeviceOut,
    GradedOut,
    LimitedAnswerOut,
    PredictorOut,
)


class PathStepOut(BaseModel):
    """A connection of a critical path."""

    source: str = Field(description="cell and port that drive it")
    sink: str = Field(description="cell and port that it drives")
    cell_ps: float = Field(
        description="delay of the cell that drives it, picoseconds: from the input at which the "
        "path enters it, or from the clock's edge for the register that the path begins at"
    )
    connection_ps: float = Field(description="mean delay expected of it after routing, picoseconds")
    arrival_ps: float = Field(
        description="time after the clock's edge at which its sink is reached"
    )


class ClockOut(BaseModel):
    """A clock, and how fast it may be."""

    clock: str = Field(description="port, or cell and port, that drives the clock")
    fmax_mhz: GradedOut | None = Field(
        description="highest frequency after placing and routing, MHz; null where no register of "
        "this clock feeds another, and where the circuit does not fit"
    )
    missing: str | None = Field(description="why there is no frequency; null where there is one")
    critical_path: list[PathStepOut] = Field(
        description="connections of the longest path between registers, in their order"
    )
    breakdown_ps: dict[str, float] = Field(
        description="parts of the period at fmax_mhz, picoseconds, which add up to it: `cells` and "
        "`connections` of the critical path, `setup` of the register that it ends at, and "
        "`placement`, by which the longest path of one placement usually differs from the longest "
        "path of mean delays; `placement` alone may be negative"
    )


class ResourceOut(BaseModel):
    """A kind of cell of the FPGA."""

    used: int = Field(description="cells that the circuit takes, after packing")
    available: int = Field(description="cells that the FPGA has")


class CircuitOut(LimitedAnswerOut):
    """The timing of a circuit, and what it takes of the FPGA."""

    clocks: list[ClockOut] = Field(
        description="clocks of the circuit, the slowest first; paths between clocks do not count"
    )
    resources: dict[str, ResourceOut] = Field(
        description="logic_cells, memories, ports and globals; counted, not predicted"
    )
    fits: bool = Field(description="whether the FPGA has enough of all of them")
    in_domain: bool = Field(
        description="whether the circuit is like those of the training set in size"
    )
    device: DeviceOut = Field(description="the FPGA")
    predictor: PredictorOut = Field(description="the predictor that answered")
