"""Networks of any number of operators, as ONNX files, to see how work grows with it."""

from collections.abc import Callable, Mapping

from onnx import TensorProto, helper

FLOAT = TensorProto.FLOAT


class _Builder:
    """Nodes and weights of a file; weights have shapes only."""

    def __init__(self) -> None:
        self.nodes, self.weights = [], []

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(TensorProto(name=name, data_type=FLOAT, dims=shape))
        return name

    def op(self, op_type: str, *inputs: str, **attributes: object) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], **attributes))
        return name

    def file(self, result: str, shape: list[object]) -> bytes:
        value = helper.make_tensor_value_info
        inputs = [value("x", FLOAT, shape), value("which", TensorProto.BOOL, [])]
        graph = helper.make_graph(
            self.nodes, "g", inputs, [value(result, FLOAT, None)], self.weights
        )
        opset = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()


_IMAGE: list[object] = ["n", 16, 8, 8]
_TOKENS: list[object] = ["n", 8, 32]


def pointwise(count: int) -> bytes:
    """One function after the other."""
    file, at = _Builder(), "x"
    while len(file.nodes) < count:
        at = file.op("Tanh", at)
    return file.file(at, _IMAGE)


def residual(count: int) -> bytes:
    """Equal residual blocks of convolutions."""
    file, at = _Builder(), "x"
    while len(file.nodes) < count:
        made = file.op("Conv", at, file.weight(16, 16, 3, 3), pads=[1] * 4)
        made = file.op("BatchNormalization", made, *(file.weight(16) for _ in range(4)))
        at = file.op("Add", at, file.op("Relu", made))
    return file.file(at, _IMAGE)


def shared(count: int) -> bytes:
    """Every operator reads the result of one convolution."""
    file = _Builder()
    root = at = file.op("Conv", "x", file.weight(16, 16, 1, 1))
    while len(file.nodes) < count:
        at = file.op("Mul" if len(file.nodes) % 2 else "Add", at, root)
    return file.file(at, _IMAGE)


def transformer(count: int) -> bytes:
    """Attention and GELU written as elementary operators, as exporters do."""
    file, at = _Builder(), "x"
    while len(file.nodes) < count:
        query, key, value = (file.op("MatMul", at, file.weight(32, 32)) for _ in range(3))
        scores = file.op("MatMul", query, file.op("Transpose", key, perm=[0, 2, 1]))
        scores = file.op("Softmax", file.op("Div", scores, file.weight(1)), axis=-1)
        at = file.op("Add", at, file.op("MatMul", scores, value))
        wide = file.op("MatMul", at, file.weight(32, 64))
        plus = file.op("Add", file.op("Erf", file.op("Div", wide, file.weight(1))), file.weight(1))
        gelu = file.op("Mul", file.op("Mul", wide, plus), file.weight(1))
        at = file.op("Add", at, file.op("MatMul", gelu, file.weight(64, 32)))
    return file.file(at, _TOKENS)


def branches(count: int) -> bytes:
    """Branches of which nothing says which one runs, one after the other."""
    file, at = _Builder(), "x"
    while 3 * len(file.nodes) < count:
        bodies = {}
        for name in ("then", "else"):
            inner, result = f"{name}_inner{len(file.nodes)}", f"{name}{len(file.nodes)}"
            nodes = [
                helper.make_node("Relu", [at], [inner]),
                helper.make_node("Tanh", [inner], [result]),
            ]
            made = [helper.make_tensor_value_info(result, FLOAT, None)]
            bodies[f"{name}_branch"] = helper.make_graph(nodes, name, [], made)
        at = file.op("If", "which", **bodies)
    return file.file(at, _IMAGE)


LARGE: Mapping[str, Callable[[int], bytes]] = {
    "pointwise": pointwise,
    "residual": residual,
    "shared": shared,
    "transformer": transformer,
    "branches": branches,
}
"""Name of a structure -> the file of about so many operators."""
