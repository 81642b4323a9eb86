//! The operators that must not be missing, by family.

/// Families and their operators, in PyTorch's names.
#[rustfmt::skip]
pub const OPERATORS: &[(&str, &[&str])] = &[
    ("pointwise", &[
        "abs", "acos", "acosh", "add", "addcdiv", "addcmul", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "copysign",
        "cos", "cosh", "deg2rad", "div.no_rounding_mode", "erf", "erfc", "exp", "exp2", "expm1", "float_power", "floor",
        "fmod", "frac", "lerp", "log", "log10", "log1p", "log2", "logaddexp", "logit", "mul", "nan_to_num", "neg", "pow",
        "rad2deg", "reciprocal", "remainder", "round", "rsqrt", "sigmoid", "sign", "sin", "sinc", "sinh", "special.entr",
        "special.ndtr", "special.xlog1py", "sqrt", "square", "sub", "tan", "tanh", "trunc", "xlogy",
        "nn.functional.elu", "nn.functional.gelu", "nn.functional.glu", "nn.functional.hardshrink",
        "nn.functional.hardsigmoid", "nn.functional.hardswish", "nn.functional.hardtanh", "nn.functional.leaky_relu",
        "nn.functional.logsigmoid", "nn.functional.prelu", "nn.functional.relu", "nn.functional.relu6",
        "nn.functional.selu", "nn.functional.silu", "nn.functional.softplus", "nn.functional.softshrink",
        "nn.functional.tanhshrink", "nn.functional.threshold",
    ]),
    ("comparison and selection", &[
        "clamp", "clamp_max", "clamp_min", "fmax", "masked_fill", "masked_select", "max.binary", "maximum", "min.binary",
        "minimum", "where",
    ]),
    ("views", &[
        "broadcast_to", "chunk", "diag", "diag_embed", "diagonal", "expand", "flatten", "flip", "narrow", "permute",
        "reshape", "select", "slice", "split", "split_with_sizes", "squeeze", "transpose", "tril", "triu", "unbind",
        "unflatten", "unfold", "unsqueeze", "nn.functional.pixel_shuffle", "nn.functional.pixel_unshuffle",
    ]),
    ("padding and concatenation", &[
        "block_diag", "cat", "column_stack", "hstack", "meshgrid.variadic_tensors", "nn.functional.pad.circular",
        "nn.functional.pad.constant", "nn.functional.pad.reflect", "nn.functional.pad.replicate", "repeat",
        "repeat_interleave", "roll", "stack", "vstack",
    ]),
    ("reductions", &[
        "amax", "amin", "dist", "linalg.vector_norm", "logsumexp", "max.reduction_no_dim", "max.reduction_with_dim", "mean",
        "median", "min.reduction_no_dim", "min.reduction_with_dim", "nanmean", "nansum", "norm", "norm.fro", "norm.inf",
        "prod", "std", "std_mean", "sum", "trace", "var", "var_mean",
    ]),
    ("cumulative", &["cummax", "cumprod", "cumsum", "diff", "logcumsumexp"]),
    ("softmax", &["log_softmax", "softmax", "nn.functional.softmin"]),
    ("losses", &[
        "nn.functional.binary_cross_entropy", "nn.functional.binary_cross_entropy_with_logits",
        "nn.functional.cross_entropy", "nn.functional.huber_loss", "nn.functional.kl_div", "nn.functional.l1_loss",
        "nn.functional.mse_loss", "nn.functional.nll_loss", "nn.functional.smooth_l1_loss",
    ]),
    ("normalisation", &["nn.functional.layer_norm", "nn.functional.rms_norm"]),
    ("contractions", &[
        "addmm", "addmv", "addr", "baddbmm", "bmm", "cross", "dot", "einsum", "inner", "linalg.cross", "linalg.vecdot",
        "matmul", "mm", "mv", "outer", "tensordot", "nn.functional.bilinear", "nn.functional.linear",
    ]),
    ("convolution and pooling", &[
        "nn.functional.adaptive_avg_pool1d", "nn.functional.adaptive_avg_pool2d", "nn.functional.adaptive_max_pool2d",
        "nn.functional.avg_pool1d", "nn.functional.avg_pool2d", "nn.functional.avg_pool3d", "nn.functional.conv1d",
        "nn.functional.conv2d", "nn.functional.conv3d", "nn.functional.conv_transpose1d",
        "nn.functional.conv_transpose2d", "nn.functional.max_pool1d", "nn.functional.max_pool2d", "nn.functional.unfold",
    ]),
    ("indexing", &[
        "gather", "index_add", "index_fill", "index_put", "index_select", "nn.functional.embedding", "scatter",
        "scatter_add", "scatter_reduce.amax", "scatter_reduce.mean", "scatter_reduce.prod", "scatter_reduce.sum", "take",
        "take_along_dim",
    ]),
    ("special functions", &[
        "digamma", "erfinv", "lgamma", "polygamma.polygamma_n_0", "polygamma.polygamma_n_1", "special.i0e", "special.i1",
    ]),
    ("images", &[
        "nn.functional.grid_sample", "nn.functional.interpolate.bilinear", "nn.functional.interpolate.linear",
        "nn.functional.interpolate.nearest",
    ]),
    ("layers", &[
        "cdist", "nn.functional.batch_norm", "nn.functional.cosine_embedding_loss", "nn.functional.cosine_similarity",
        "nn.functional.gaussian_nll_loss", "nn.functional.group_norm", "nn.functional.hinge_embedding_loss",
        "nn.functional.margin_ranking_loss", "nn.functional.normalize", "nn.functional.pairwise_distance",
        "nn.functional.soft_margin_loss", "nn.functional.triplet_margin_loss",
    ]),
    ("order", &["kthvalue", "msort", "sort", "topk"]),
];
