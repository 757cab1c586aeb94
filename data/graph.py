"""Operator graphs as plain data: nodes are operators, edges are tensors.

The readers that make graphs from ONNX, torch or Hugging Face files are in
`forerun.features.readers`; the plain type is here because a network workload holds one.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, get_args

Shape = tuple[int, ...]
Attribute = int | float | str | tuple[int, ...]

FORMAT = "forerun.graph/1"
_SORTED = json.JSONEncoder(sort_keys=True, separators=(",", ":"))

BindingReason = Literal[
    "given",
    "batch",
    "default_image_size",
    "default_sequence_length",
    "default_channels",
    "empty_past",
    "sum_of_others",
]
"""Where the size of a free dimension comes from. `given`: the query. `batch`: the batch size.
`default_...`: nothing specified it. `empty_past`: a key-value cache without tokens.
`sum_of_others`: the name of the dimension is a sum of others."""
BINDING_REASONS: tuple[BindingReason, ...] = get_args(BindingReason)


@dataclass(frozen=True, slots=True)
class BoundDimension:
    """The size at which a free dimension of a model's input was read.

    Attributes:
        input: name of the input.
        axis: position of the dimension, from 0.
        symbol: name of the dimension in the file; empty if it has none.
        size: its size.
        why: where the size comes from.
    """

    input: str
    axis: int
    symbol: str
    size: int
    why: BindingReason


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator with its shapes.

    Attributes:
        kind: canonical kind, a name in `forerun.features.operators.kinds.KINDS`; `unknown` if the
            reader does not know the operator, which is then counted and reported, never dropped.
        name: the operator's name in its source format, such as `aten.addmm` or `Conv`.
        input_shapes: shapes of activation operands, without parameters.
        output_shapes: shapes of its results.
        parameter_elements: number of elements of the weights it reads.
        attributes: parameters of the kind beyond shapes (`kernel`, `stride`, `groups`, ...).
        inputs: positions in the graph of the operators whose outputs it reads.
        batched: False if it depends neither on the graph's input nor on the batch size.
        repeat: number of runs in one pass.
    """

    kind: str
    name: str
    input_shapes: tuple[Shape, ...]
    output_shapes: tuple[Shape, ...]
    parameter_elements: int = 0
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    inputs: tuple[int, ...] = ()
    batched: bool = True
    repeat: int = 1

    @property
    def part(self) -> str:
        """The part of a pipeline that it belongs to; empty in a single network."""
        return str(self.attributes.get("part", ""))


@dataclass(frozen=True)
class OperatorGraph:
    """A network as operators in execution order.

    Attributes:
        operators: operators in topological order, so `inputs` of each refer to earlier ones.
        batch_size: batch size of the shapes in `operators`.
        training: True if the operators already include the backward pass.
        source: the format it was read from (`onnx`, `torch_export`, `huggingface`, `table`, ...).
        parameter_elements: elements of all weights, counting shared weights once; None if unknown.
        bound_dimensions: sizes of the inputs' free dimensions.
        assumptions: what the file leaves open and how it was decided, one sentence each.
        stored_bytes: number format (`float32`, `int8`, `uint4`, ...) -> bytes of the tensors that
            the file stores in it, including indices and scalars; empty if unknown.

    Equality ignores the last three; the digest includes only the quantised `stored_bytes`.
    """

    operators: tuple[Operator, ...]
    batch_size: int = 1
    training: bool = False
    source: str = "table"
    parameter_elements: int | None = None
    bound_dimensions: tuple[BoundDimension, ...] = field(default=(), compare=False)
    assumptions: tuple[str, ...] = field(default=(), compare=False)
    stored_bytes: Mapping[str, int] = field(default_factory=dict, compare=False)

    def __len__(self) -> int:
        return len(self.operators)

    @cached_property
    def digest(self) -> str:
        """Stable content hash: 32 hexadecimal digits.

        It ignores the source format, `bound_dimensions` and `assumptions`.
        """
        outline: dict[str, Any] = {
            "format": FORMAT,
            "batch_size": self.batch_size,
            "training": self.training,
            "parameter_elements": self.parameter_elements,
            "operators": [],
        }
        if self.quantised_bytes:
            outline["quantised_bytes"] = self.quantised_bytes
        before, after = _SORTED.encode(outline).split("[]")
        digest = hashlib.sha256(f"{before}[".encode())
        # Operators are encoded one by one, since encoding one long text would block other threads.
        for place, op in enumerate(self.operators):
            digest.update(("," * (place > 0) + _SORTED.encode(_operator_to_json(op))).encode())
        digest.update(f"]{after}".encode())
        return digest.hexdigest()[:32]

    @property
    def quantised_bytes(self) -> dict[str, int]:
        """`stored_bytes` in formats of at most eight bits, which stay quantised during a run."""
        return {
            name: size
            for name, size in self.stored_bytes.items()
            if bits_of(name) <= 8 and name != "bool"
        }

    def narrowed(self, item: float) -> float:
        """Bytes of the weights, relative to `item` bytes for each weight.

        It is 1 unless the file stores quantised weights in fewer bytes.
        """
        quantised, total = self.quantised_bytes, self.parameter_elements
        if not quantised or not total:
            return 1.0
        narrow = sum(size * 8 // bits_of(name) for name, size in quantised.items())
        wide = max(0, total - narrow)
        return min(1.0, (wide * item + sum(quantised.values())) / (total * item))

    @cached_property
    def unknown(self) -> Mapping[str, int]:
        """Name of each operator of unknown kind -> number of occurrences in the graph."""
        return Counter(op.name for op in self.operators if op.kind == "unknown")

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists, ready for `json.dumps`."""
        content: dict[str, Any] = {
            "format": FORMAT,
            "batch_size": self.batch_size,
            "training": self.training,
            "source": self.source,
            "parameter_elements": self.parameter_elements,
            "operators": [_operator_to_json(op) for op in self.operators],
        }
        if self.bound_dimensions:
            content["bound_dimensions"] = [asdict(bound) for bound in self.bound_dimensions]
        if self.assumptions:
            content["assumptions"] = list(self.assumptions)
        if self.stored_bytes:
            content["stored_bytes"] = dict(self.stored_bytes)
        return content

    def to_text(self) -> str:
        """The JSON text of `to_json`, without spaces.

        Operators are encoded one by one, since the encoder blocks other threads while it runs.
        """
        encode = json.JSONEncoder(separators=(",", ":")).encode
        outline = encode(replace(self, operators=()).to_json())
        operators = ",".join(encode(_operator_to_json(op)) for op in self.operators)
        # Quotes in texts are escaped, so only the key itself matches.
        return outline.replace('"operators":[]', f'"operators":[{operators}]')

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "OperatorGraph":
        """The graph that `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: `content` is not in this format; the reader
                `forerun.features.readers.operator_json` turns these into one clear line.
        """
        if content.get("format") != FORMAT:
            raise ValueError(f"format is {content.get('format')!r}, not {FORMAT!r}")
        total = content.get("parameter_elements")
        return cls(
            operators=tuple(_operator_from_json(op) for op in content["operators"]),
            batch_size=int(content.get("batch_size", 1)),
            training=bool(content.get("training", False)),
            source=str(content.get("source", "json")),
            parameter_elements=None if total is None else int(total),
            bound_dimensions=tuple(
                BoundDimension(**row) for row in content.get("bound_dimensions", ())
            ),
            assumptions=tuple(content.get("assumptions", ())),
            stored_bytes=dict(content.get("stored_bytes", {})),
        )


def bits_of(number_format: str) -> int:
    """Bits of a number in a format, by the first digits of its name; 8 if it has none (`bool`)."""
    found = re.search(r"\d+", number_format)
    return int(found[0]) if found else 8


def _operator_to_json(op: Operator) -> dict[str, Any]:
    row: dict[str, Any] = {
        "kind": op.kind,
        "name": op.name,
        "input_shapes": [list(s) for s in op.input_shapes],
        "output_shapes": [list(s) for s in op.output_shapes],
        "inputs": list(op.inputs),
    }
    if op.parameter_elements:
        row["parameter_elements"] = op.parameter_elements
    if op.attributes:
        row["attributes"] = {
            k: list(v) if isinstance(v, tuple) else v for k, v in sorted(op.attributes.items())
        }
    if not op.batched:
        row["batched"] = False
    if op.repeat != 1:
        row["repeat"] = op.repeat
    return row


def _operator_from_json(row: Mapping[str, Any]) -> Operator:
    return Operator(
        kind=str(row["kind"]),
        name=str(row.get("name", row["kind"])),
        input_shapes=tuple(tuple(int(d) for d in s) for s in row["input_shapes"]),
        output_shapes=tuple(tuple(int(d) for d in s) for s in row["output_shapes"]),
        parameter_elements=int(row.get("parameter_elements", 0)),
        attributes={
            k: tuple(v) if isinstance(v, list) else v
            for k, v in dict(row.get("attributes", {})).items()
        },
        inputs=tuple(int(i) for i in row.get("inputs", ())),
        batched=bool(row.get("batched", True)),
        repeat=int(row.get("repeat", 1)),
    )
