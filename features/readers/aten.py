"""Kind of each ATen operator, for all readers that trace torch.

Names are those of `torch.ops.aten` without namespace, overload and trailing underscore, so that
`aten.add_.Tensor` and the `add` of a table are the same operator.
"""

from collections.abc import Mapping

VIEWS = frozenset(
    "alias as_strided detach expand expand_as flatten lift_fresh lift_fresh_copy narrow permute "
    "positive real reshape select slice split split_with_sizes chunk unbind squeeze t transpose "
    "swapaxes movedim numpy_T mT unflatten unfold unsafe_split unsafe_split_with_sizes unsqueeze "
    "view view_as _reshape_alias _unsafe_view tensor_split dropout feature_dropout alpha_dropout "
    "native_dropout rot90_view diagonal getitem _assert_tensor_metadata".split()
)
"""Operators that move no data in inference: their readers are linked to what they view."""

DROPOUTS = frozenset({"dropout", "feature_dropout", "alpha_dropout", "native_dropout"})
"""Operators among these that drop activations in training."""

FACTORIES = frozenset(
    "arange empty empty_like empty_strided empty_permuted eye full full_like linspace new_empty "
    "new_full new_ones new_zeros ones ones_like scalar_tensor zeros zeros_like rand randn "
    "new_empty_strided tril_indices triu_indices".split()
)
"""Operators that create a constant: they have no input and no work that depends on the query."""

_KINDS: dict[str, str] = {
    "conv": "convolution conv1d conv2d conv3d _convolution mkldnn_convolution cudnn_convolution "
    "convolution_overrideable torchvision::deform_conv2d",
    "conv_transpose": "conv_transpose1d conv_transpose2d conv_transpose3d",
    "linear": "linear addmm",
    "matmul": "bmm mm matmul baddbmm mv dot addmv",
    "attention": "scaled_dot_product_attention _scaled_dot_product_flash_attention "
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention "
    "_scaled_dot_product_cudnn_attention _scaled_dot_product_fused_attention_overrideable",
    "softmax": "softmax log_softmax _softmax _log_softmax _safe_softmax",
    "layer_norm": "layer_norm native_layer_norm rms_norm _fused_rms_norm",
    "group_norm": "group_norm native_group_norm instance_norm",
    "batch_norm": "batch_norm native_batch_norm _native_batch_norm_legit "
    "_native_batch_norm_legit_no_training _batch_norm_no_update cudnn_batch_norm",
    "reduce": "sum mean amax amin max min var std var_mean std_mean norm linalg_vector_norm prod "
    "logsumexp argmax argmin any all count_nonzero median nansum cumsum cumprod",
    "pool": "avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d "
    "max_pool2d_with_indices max_pool3d_with_indices adaptive_avg_pool1d adaptive_avg_pool2d "
    "_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool3d adaptive_max_pool1d "
    "adaptive_max_pool2d adaptive_max_pool3d torchvision::roi_align torchvision::ps_roi_align "
    "torchvision::roi_pool torchvision::ps_roi_pool",
    "embedding": "embedding embedding_bag _embedding_bag",
    "copy": "cat stack clone contiguous copy _to_copy to constant_pad_nd pad reflection_pad1d "
    "reflection_pad2d replication_pad1d replication_pad2d roll repeat repeat_interleave tile "
    "index index_select gather index_put _unsafe_index _unsafe_index_put scatter scatter_add "
    "index_add slice_scatter select_scatter flip im2col col2im pixel_shuffle pixel_unshuffle "
    "channel_shuffle fill zero tril triu split_with_sizes_copy split_copy where masked_fill "
    "masked_scatter topk sort one_hot index_copy rot90 view_copy permute_copy expand_copy "
    "native_channel_shuffle masked_select type_as",
    "resize": "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact2d "
    "upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d "
    "_upsample_bilinear2d_aa _upsample_bicubic2d_aa grid_sampler_2d grid_sampler",
    "recurrent": "lstm gru rnn_tanh rnn_relu mkldnn_rnn_layer _cudnn_rnn",
    "elementwise": "add sub rsub mul div true_divide floor_divide remainder fmod pow square sqrt "
    "rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p abs neg sign floor ceil round trunc "
    "frac sin cos tan asin acos atan atan2 sinh cosh tanh erf erfc erfinv sigmoid log_sigmoid "
    "log_sigmoid_forward relu relu6 leaky_relu prelu _prelu_kernel elu selu celu gelu silu mish "
    "softplus softsign hardtanh hardswish hardsigmoid hardshrink softshrink threshold glu clamp "
    "clamp_min clamp_max clip maximum minimum addcmul addcdiv lerp eq ne lt le gt ge logical_and "
    "logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor isnan "
    "isinf isfinite diff __and__ __or__ __xor__ nan_to_num polar complex view_as_complex "
    "view_as_real bitwise_left_shift "
    "bitwise_right_shift fake_quantize_per_tensor_affine quantize_per_tensor "
    "dequantize_per_tensor bucketize searchsorted",
}

KIND_OF: Mapping[str, str] = {
    name: kind for kind, names in _KINDS.items() for name in names.split()
}

_FUNCTIONS: Mapping[str, str] = {
    "rsub": "sub",
    "true_divide": "div",
    "square": "pow",
    "clamp_min": "clamp",
    "clamp_max": "clamp",
    "clip": "clamp",
    "relu6": "clamp",
    "hardtanh": "clamp",
    "log_sigmoid_forward": "log_sigmoid",
    "_prelu_kernel": "prelu",
}


def plain_name(name: str) -> str:
    """`aten.add_.Tensor`, `aten::add_` or `add_` -> `add`."""
    last = name.rsplit("::", 1)[-1]
    parts = last.split(".")
    base = parts[1] if len(parts) > 1 and parts[0] in ("aten", "prims") else parts[0]
    return base[:-1] if base.endswith("_") and not base.endswith("__") else base


def operator_name(target: str) -> str:
    """The name of a call: `aten.add_.Tensor` -> `add`, `tv.nms.default` -> `tv::nms`."""
    library, _, rest = target.partition(".")
    if library in ("aten", "prims") or not rest:
        return plain_name(target)
    return f"{library}::{rest.partition('.')[0]}"


def function_of(plain: str) -> str:
    """The `function` attribute of an elementwise operator: `rsub` -> `sub`, `relu` -> `relu`."""
    return _FUNCTIONS.get(plain, plain)
