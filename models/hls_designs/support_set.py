"""The support set of a program: measured designs that a predictor was adapted to."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.data.device import Device
from forerun.data.program import ProgramGraph
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Design

Column = NDArray[np.float64]


@dataclass(frozen=True)
class SupportDesigns:
    """Measured designs of one program, synthesised by one version of the tool.

    Attributes:
        queries: the k designs.
        values: metric -> k values, NaN where not measured.
    """

    queries: tuple[Query, ...]
    values: Mapping[str, Column]

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists; the program, shared by all designs, is written once."""
        first = self.queries[0]
        designs = [q.workload for q in self.queries if isinstance(q.workload, Design)]
        return {
            "program": asdict(designs[0].program),
            "device": first.device.model_dump(mode="json"),
            "software": first.software.model_dump(mode="json"),
            "directives": [design.directives for design in designs],
            "values": {
                metric: [None if np.isnan(v) else v for v in column.tolist()]
                for metric, column in self.values.items()
            },
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "SupportDesigns":
        """The designs that `to_json` wrote."""
        parts = {name: tuple(column) for name, column in content["program"].items()}
        parts["edges"] = tuple((e[0], e[1], e[2], e[3]) for e in content["program"]["edges"])
        program = ProgramGraph(**parts)
        device = Device.model_validate(content["device"])
        software = Software.model_validate(content["software"])
        designs = [
            Design(program, tuple((name, value) for name, value in directives))
            for directives in content["directives"]
        ]
        return cls(
            tuple(Query(design, device, software) for design in designs),
            {
                metric: np.array([np.nan if v is None else v for v in column], dtype=np.float64)
                for metric, column in content["values"].items()
            },
        )
