"""Kind of each ONNX operator, and the function of elementwise ones."""

from collections.abc import Mapping

VIEWS = frozenset("Reshape Flatten Squeeze Unsqueeze Identity Dropout Optional".split())
"""Operators that move no data in inference: their readers are linked to what they view."""

SIZES = frozenset({"Shape", "Size"})
"""Operators that read only the size of a tensor, which is known before the run."""

STANDARD_FORM: Mapping[str, str] = {
    "FusedConv": "Conv",
    "NhwcFusedConv": "Conv",
    "FusedGemm": "Gemm",
    "GemmFastGelu": "MatMul",
    "TransposeMatMul": "MatMul",
    "DynamicQuantizeLSTM": "LSTM",
}
"""Contributed operators whose output has the shape of a standard one's."""

_KINDS: dict[str, str] = {
    "conv": "Conv FusedConv NhwcFusedConv ConvInteger QLinearConv DeformConv",
    "conv_transpose": "ConvTranspose",
    "linear": "Gemm FusedGemm QGemm MatMulNBits MatMulBnb4 GemmFastGelu",
    "matmul": "MatMul FusedMatMul TransposeMatMul MatMulInteger QLinearMatMul "
    "DynamicQuantizeMatMul MatMulIntegerToFloat Einsum",
    "attention": "Attention MultiHeadAttention GroupQueryAttention PackedMultiHeadAttention "
    "DecoderMaskedMultiHeadAttention",
    "softmax": "Softmax LogSoftmax Hardmax QLinearSoftmax",
    "layer_norm": "LayerNormalization SimplifiedLayerNormalization SkipLayerNormalization "
    "SkipSimplifiedLayerNormalization RMSNormalization MeanVarianceNormalization",
    "group_norm": "InstanceNormalization GroupNormalization GroupNorm SkipGroupNorm",
    "batch_norm": "BatchNormalization",
    "reduce": "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 "
    "ReduceLogSum ReduceLogSumExp ReduceSumSquare ArgMax ArgMin GlobalAveragePool CumSum "
    "LpNormalization QLinearReduceMean QLinearGlobalAveragePool",
    "pool": "MaxPool AveragePool LpPool GlobalMaxPool GlobalLpPool MaxRoiPool RoiAlign "
    "QLinearAveragePool NhwcMaxPool",
    "resize": "Resize Upsample GridSample AffineGrid",
    "recurrent": "LSTM GRU RNN DynamicQuantizeLSTM",
    "copy": "Concat Pad Tile Expand Transpose Slice Split Gather GatherElements GatherND "
    "Scatter ScatterElements ScatterND SpaceToDepth DepthToSpace ReverseSequence Trilu OneHot "
    "TopK Cast CastLike Compress EyeLike CenterCropPad Col2Im QLinearConcat NonZero Unique "
    "TensorScatter BitCast",
    "elementwise": "Abs Acos Acosh Add And Asin Asinh Atan Atanh BiasGelu BiasSplitGelu "
    "BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Celu Clip Cos Cosh "
    "DequantizeLinear Div DynamicQuantizeLinear Elu Equal Erf Exp FastGelu Floor Gelu Greater "
    "GreaterOrEqual HardSigmoid HardSwish IsInf IsNaN LRN LeakyRelu Less LessOrEqual Log Max "
    "Mean Min Mish Mod Mul Neg Not Or PRelu Pow QLinearAdd QLinearLeakyRelu QLinearMul "
    "QLinearSigmoid QuantizeLinear QuickGelu Reciprocal Relu RotaryEmbedding Round Selu "
    "Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu "
    "Where Xor",
}

KIND_OF: Mapping[str, str] = {op: kind for kind, ops in _KINDS.items() for op in ops.split()}

_FUNCTIONS: Mapping[str, str] = {
    "Clip": "clamp",
    "Sum": "add",
    "QLinearAdd": "add",
    "QLinearMul": "mul",
    "QLinearSigmoid": "sigmoid",
    "QLinearLeakyRelu": "leaky_relu",
    "LeakyRelu": "leaky_relu",
    "Swish": "silu",
    "Max": "maximum",
    "Min": "minimum",
    "FastGelu": "gelu",
    "BiasGelu": "gelu",
    "QuickGelu": "gelu",
}


def function_of(op_type: str) -> str:
    """The `function` attribute of an elementwise operator, as torch calls it."""
    return _FUNCTIONS.get(op_type, op_type.lower())


FOLDED_VALUES = frozenset(
    "Abs Add And Cast CastLike Ceil Clip Concat Constant ConstantOfShape Cos CumSum Div Equal "
    "Expand Flatten Floor Gather GatherElements Greater GreaterOrEqual Identity Less LessOrEqual "
    "Max Min Mod Mul Neg NonZero Not Or Pow Range Reciprocal ReduceMax ReduceMin ReduceProd "
    "ReduceSum Reshape Round ScatterND Sign Slice Split Sqrt Squeeze Sub Tile Transpose Trilu "
    "Unsqueeze Where Xor".split()
)
"""Operators whose value is computed when all their inputs are small constants."""
