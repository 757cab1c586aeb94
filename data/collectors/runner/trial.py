"""A trial: a workload to measure, its execution mode, and its columns in a row."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from forerun.data.graph import Operator, OperatorGraph

Row = dict[str, Any]
"""Column of a table of measurements -> value; what is not there is null."""

Executor = Literal["torch", "onnxruntime"]


@dataclass(frozen=True, slots=True)
class Source:
    """A whole network that can be run.

    Attributes:
        name: key in the zoo of `torch_networks`, or its name in the table.
        file: an ONNX file that holds it; empty for the zoo.
        graph: digest of its operator graph, or the name of the graph's file; the name when empty.
        flops: FLOPs of one run at batch size 1; 0 where not known.
        shapes: input of the file -> its shape at the batch size of the trial; inputs that are not
            among them have the shape that the file declares.
    """

    name: str
    file: str = ""
    graph: str = ""
    flops: float = 0.0
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Trial:
    """A measurement to take.

    Attributes:
        subject: operator, or network.
        precision, batch_size, phase: as in a table of measurements; operators hold their batch.
        framework: what runs it.
        runtime: `eager`, `compiled` or `onnxruntime`.
        cuda_graph: launched as one recorded CUDA graph.
        group: trials of a group give nearly the same information; a plan begins with one of each.
        flops: FLOPs of a forward pass at batch size 1, to estimate its time; 0 where not known.
        setup_s: assumed seconds of preparation, such as compilation.
    """

    subject: Operator | Source
    precision: str = "fp32"
    batch_size: int = 1
    phase: str = "inference"
    framework: Executor = "torch"
    runtime: str = "eager"
    cuda_graph: bool = False
    group: str = ""
    flops: float = 0.0
    setup_s: float = 0.0

    @property
    def name(self) -> str:
        """Readable name: workload, batch size, precision, phase and execution mode."""
        how = self.runtime + (" in a CUDA graph" if self.cuda_graph else "")
        if isinstance(self.subject, Operator):
            return f"{self.subject.name}, {self.precision}, {how}"
        return f"{self.subject.name} x{self.batch_size}, {self.precision}, {self.phase}, {how}"

    @cached_property
    def key(self) -> str:
        """Stable key: 16 hexadecimal digits of a hash of workload and execution mode."""
        content = sorted(self.columns().items())
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    def columns(self) -> Row:
        """Columns of a row that are known before the trial is run."""
        is_kernel = isinstance(self.subject, Operator)
        row: Row = {"workload": _workload(self.subject), "label": self.subject.name}
        row |= {"kind": "kernel" if is_kernel else "network", "precision": self.precision}
        row |= {"framework": self.framework, "runtime": self.runtime}
        row |= {"cuda_graph": True} if self.cuda_graph else {}
        return row if is_kernel else row | {"batch_size": self.batch_size, "phase": self.phase}

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries, ready for `json.dumps`."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        del fields["subject"]
        if isinstance(self.subject, Source):
            return fields | {"source": {f: getattr(self.subject, f) for f in Source.__slots__}}
        return fields | {"operator": OperatorGraph((self.subject,)).to_json()}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Trial":
        """The trial from what `to_json` returned."""
        fields = dict(content)
        if "source" in fields:
            return cls(Source(**fields.pop("source")), **fields)
        return cls(OperatorGraph.from_json(fields.pop("operator")).operators[0], **fields)


def _workload(subject: Operator | Source) -> str:
    """A kernel is its operator as JSON, a network its graph."""
    if isinstance(subject, Source):
        return subject.graph or subject.name
    (row,) = OperatorGraph((subject,)).to_json()["operators"]
    fields = ("kind", "name", "input_shapes", "output_shapes", "parameter_elements", "attributes")
    return json.dumps({name: row[name] for name in fields if name in row})
