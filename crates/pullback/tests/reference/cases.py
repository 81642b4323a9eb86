# Read by make.py, which defines case, r (differentiated), c (constant), ints, t (given values).
nan, inf = math.nan, math.inf

# Special functions. Poles, both axes, tiny and large arguments.
WIDE = [1e-8, 0.1, 0.5, 0.9, 1.0, 1.3, 1.4616, 2.0, 2.7, 4.5, 8.5, 30.25, 1e3, -0.3, -0.7, -1.5, -2.25, -6.6]
case("lgamma", t(WIDE, diff=True))
case("digamma", t(WIDE, diff=True))
case("special.psi", t(WIDE, diff=True))
case("special.gammaln", t(WIDE, diff=True))
for n in (0, 1, 2, 4):
    case("polygamma", n, t([0.1, 0.7, 1.0, 3.3, 12.5, 80.0], diff=True))
case("special.polygamma", 1, t([0.1, 0.7, -0.4, -2.25], diff=True))
case("special.zeta", t([1.2, 2.0, 3.5, 7.0]), t([0.3, 1.0, 2.5, 20.0], diff=True))
case("special.zeta", t(3.0), r(2, 3, low=0.2, high=4.0))
case("special.zeta", t([1.0, 0.5, 2.0, nan]), t([2.0, 2.0, -1.0, 1.0]))
case("mvlgamma", r(3, low=3.0, high=6.0), 1)
case("mvlgamma", r(2, 2, low=3.0, high=6.0), 4)
case("special.multigammaln", r(3, low=3.0, high=6.0), 3)
case("erfinv", t([-0.99999, -0.7, -1e-9, 0.3, 0.9, 0.9999], diff=True))
case("special.erfinv", t([-1.0, 1.0, 1.5, nan]))
case("special.ndtri", t([1e-12, 0.01, 0.2, 0.5, 0.77, 0.999], diff=True))
case("special.ndtri", t([0.0, 1.0, -0.5, nan]))
case("special.log_ndtr", t([-30.0, -5.0, -1.5, -0.5, 0.0, 0.7, 3.0, 9.0], diff=True))
case("special.ndtr", t([-8.0, -1.5, 0.0, 0.7, 6.0], diff=True))
case("special.erfcx", t([-3.0, -0.5, 0.0, 0.5, 3.0, 12.0], diff=True))
for name in ("i0", "special.i0", "special.i0e", "special.i1", "special.i1e"):
    case(name, t([-20.0, -3.0, -0.5, 0.25, 1.0, 7.9, 8.1, 15.0], diff=True))
    case(name, t([0.0, 100.0, 750.0, nan]))
case("special.i1", t([0.0, 1e-3], diff=True))
case("igamma", t([0.5, 2.0, 7.0, 30.0]), t([0.2, 2.5, 9.0, 28.0], diff=True))
case("igammac", t([0.5, 2.0, 7.0, 30.0]), t([0.2, 2.5, 9.0, 28.0], diff=True))
case("special.gammainc", t([0.0, 1.0, 0.0, -1.0, inf]), t([1.0, 0.0, 0.0, 1.0, 2.0]))
case("special.gammaincc", t([0.0, 1.0, 0.0, -1.0, inf]), t([1.0, 0.0, 0.0, 1.0, 2.0]))
case("special.entr", t([-1.0, 0.0, 0.3, 2.0, nan]))
case("special.xlog1py", t([0.0, 1.0, 2.0], diff=True), t([-0.5, 0.5, 3.0], diff=True))
case("special.logit", r(4, low=0.1, high=0.9))
case("special.logit", t([-0.2, 0.1, 0.5, 1.3], diff=True), eps=0.2)

# Interpolation.
for x, size in ((r(1, 2, 5), [7]), (r(1, 2, 4, 5), [6, 3]), (r(1, 1, 3, 2, 4), [4, 3, 2])):
    d = x.dim() - 2
    linear = ["linear", "bilinear", "trilinear"][d - 1]
    for mode in ("nearest", "nearest-exact", "area", linear) + (("bicubic",) if d == 2 else ()):
        case("nn.functional.interpolate", x, size, mode=mode)
        if mode != "area":
            case("nn.functional.interpolate", x, scale_factor=1.7, mode=mode)
            case("nn.functional.interpolate", x, scale_factor=[0.6] * d, mode=mode, recompute_scale_factor=True)
        if mode in (linear, "bicubic"):
            case("nn.functional.interpolate", x, size, mode=mode, align_corners=True)
            case("nn.functional.interpolate", x, [1] * d, mode=mode, align_corners=True)
for mode in ("bilinear", "bicubic"):
    for size in ([3, 4], [12, 5], [1, 1]):
        for corners in (False, True):
            case("nn.functional.interpolate", r(1, 2, 8, 9), size, mode=mode, antialias=True, align_corners=corners)
case("nn.functional.interpolate", r(1, 2, 8, 9), scale_factor=[0.3, 1.4], mode="bilinear", antialias=True)
case("nn.functional.interpolate", r(1, 2, 9, 8), scale_factor=0.5, mode="area")
case("nn.functional.upsample", r(1, 2, 3), scale_factor=2, mode="nearest")
case("nn.functional.upsample_nearest", r(1, 2, 3, 2), scale_factor=2)
case("nn.functional.upsample_bilinear", r(1, 2, 3, 2), size=[5, 4])

# Sampling.
for shape, out in (((2, 2, 4, 5), (3, 4)), ((1, 2, 3, 4, 5), (2, 3, 2))):
    for mode in ("bilinear", "nearest", "bicubic"):
        for pad in ("zeros", "border", "reflection"):
            for corners in (False, True):
                case("nn.functional.grid_sample", r(*shape), r(shape[0], *out, len(out), low=-1.7, high=1.7), mode, pad, corners)
case("nn.functional.grid_sample", r(1, 1, 1, 1), r(1, 2, 2, 2), mode="bilinear", padding_mode="reflection", align_corners=True)
for corners in (False, True):
    case("nn.functional.affine_grid", r(2, 2, 3), [2, 1, 3, 4], align_corners=corners)
    case("nn.functional.affine_grid", r(1, 3, 4), [1, 1, 2, 3, 2], align_corners=corners)
case("nn.functional.affine_grid", r(1, 2, 3), [1, 1, 1, 3], align_corners=True)
case("nn.functional.channel_shuffle", r(1, 6, 2, 2), 3)
case("nn.functional.pixel_shuffle", r(2, 8, 2, 3), 2)
case("nn.functional.pixel_unshuffle", r(2, 2, 4, 6), 2)
for mode in ("reflect", "replicate", "circular"):
    case("nn.functional.pad", r(2, 3, 5), [2, 1], mode)
    case("nn.functional.pad", r(2, 3, 4, 5), [2, 1, 0, 3], mode)
    case("nn.functional.pad", r(1, 2, 3, 4, 3), [1, 1, 2, 0, 1, 2], mode)
case("nn.functional.pad", r(3, 5), [2, -1, -1, 2])
case("nn.functional.pad", r(3, 5), [-1, 2], "constant", 1.5)
case("nn.functional.pad", r(3, 5), [1, 2, 3, 0], value=nan)
case("nn.functional.pad", r(2, 3, 5), [-1, 2], "replicate")
case("nn.functional.pad", r(2, 3, 5), [-1, 2], "circular")
case("nn.functional.pad", r(2, 3, 5), [2, -1], "reflect")

# Activations.
X = [-4.0, -3.0, -1.5, -0.5, 0.25, 0.6, 2.0, 3.5, 25.0]
for name in ("relu", "relu6", "selu", "silu", "mish", "softsign", "logsigmoid", "tanhshrink", "hardsigmoid", "hardswish", "gelu",
             "elu", "celu", "leaky_relu", "hardtanh", "softplus", "softshrink", "hardshrink", "tanh", "sigmoid"):
    case("nn.functional." + name, t(X, diff=True))
case("nn.functional.relu", t([nan, inf, -inf, 0.0, -0.0]))
case("nn.functional.gelu", t(X, diff=True), approximate="tanh")
case("nn.functional.elu", t(X, diff=True), alpha=0.7)
case("nn.functional.celu", t(X, diff=True), alpha=0.7)
case("nn.functional.leaky_relu", t(X, diff=True), negative_slope=0.3)
case("nn.functional.hardtanh", t(X, diff=True), min_val=-0.8, max_val=0.4)
case("nn.functional.softplus", t(X, diff=True), beta=3, threshold=2)
case("nn.functional.softshrink", t(X, diff=True), lambd=1.0)
case("nn.functional.hardshrink", t(X, diff=True), lambd=1.0)
case("nn.functional.threshold", t(X, diff=True), 0.5, -7.0)
case("nn.functional.rrelu", t(X, diff=True))
case("nn.functional.rrelu", t(X, diff=True), lower=0.2, upper=0.6, training=False)
case("nn.functional.prelu", r(2, 3, 4), r(3))
case("nn.functional.prelu", r(2, 3), r(1))
case("nn.functional.glu", r(2, 6))
case("nn.functional.glu", r(4, 3), dim=0)
for name in ("softmax", "log_softmax", "softmin"):
    case("nn.functional." + name, r(2, 3), dim=1)
    case("nn.functional." + name, r(2, 3, 2), dim=0)

# Normalisation.
case("nn.functional.batch_norm", r(3, 2, 4), c(2), c(2, low=0.5), training=True)
case("nn.functional.batch_norm", r(3, 2, 4), None, None, r(2), r(2), True, 0.1, 1e-3)
case("nn.functional.batch_norm", r(3, 2), c(2), c(2, low=0.5), r(2), r(2))
case("nn.functional.batch_norm", r(2, 3, 2, 2), c(3), c(3, low=0.5), training=False, eps=0.1)
case("nn.functional.instance_norm", r(2, 3, 4))
case("nn.functional.instance_norm", r(2, 3, 4), weight=r(3), bias=r(3), eps=1e-3)
case("nn.functional.instance_norm", r(2, 3, 4), c(3), c(3, low=0.5), r(3), r(3), False)
case("nn.functional.instance_norm", r(2, 3, 2, 2), c(3), c(3, low=0.5), use_input_stats=True, momentum=0.3)
case("nn.functional.group_norm", r(2, 4, 3), 2)
case("nn.functional.group_norm", r(2, 4, 3), 4, r(4), r(4), 1e-3)
case("nn.functional.layer_norm", r(2, 3, 4), [4])
case("nn.functional.layer_norm", r(2, 3, 4), [3, 4], r(3, 4), r(3, 4), 1e-3)
case("nn.functional.layer_norm", r(2, 3), [3], r(3), None)
case("nn.functional.rms_norm", r(2, 3), [3])
case("nn.functional.rms_norm", r(2, 3, 4), [3, 4], r(3, 4), 1e-3)
case("nn.functional.local_response_norm", r(2, 5, 3), 3)
case("nn.functional.local_response_norm", r(2, 5, 3, 2), 2, alpha=0.3, beta=0.5, k=2.0)
case("nn.functional.local_response_norm", r(1, 3, 2, 2, 2), 4, 0.1)
case("nn.functional.normalize", r(2, 3))
case("nn.functional.normalize", r(2, 3, 2), p=3.0, dim=0, eps=1e-3)
case("nn.functional.normalize", t([[0.0, 0.0], [3.0, 4.0]]), p=1)

# Embedding.
case("nn.functional.embedding", ints(2, 3, high=4), r(4, 2))
case("nn.functional.embedding", t([1, 0, 1, 3]), r(4, 2), padding_idx=1)
case("nn.functional.embedding", t([1, 0, 1, 3]), r(4, 2), padding_idx=-1)
# Forward mode is the transpose of the scaled gradient here; PyTorch does not scale it.
case("nn.functional.embedding", t([1, 0, 1, 3, 1]), r(4, 2), scale_grad_by_freq=True)
REVERSE_ONLY.add(("nn.functional.embedding", sum(n == "nn.functional.embedding" for n, _, _ in CASES) - 1))
for mode in ("sum", "mean", "max"):
    case("nn.functional.embedding_bag", ints(2, 3, high=4), r(4, 2), mode=mode)
    case("nn.functional.embedding_bag", ints(6, high=4), r(4, 2), t([0, 2, 2, 5]), mode=mode)
    case("nn.functional.embedding_bag", ints(6, high=4), r(4, 2), t([0, 2, 2, 6]), mode=mode, include_last_offset=True)
    case("nn.functional.embedding_bag", t([1, 0, 1, 3, 1, 2]), r(4, 2), t([0, 2, 4]), mode=mode, padding_idx=1)
case("nn.functional.embedding_bag", ints(5, high=4), r(4, 2), t([0, 3]), mode="sum", per_sample_weights=r(5))
case("nn.functional.embedding_bag", t([1, 0, 1, 3, 1, 2]), r(4, 2), t([0, 2, 4]), mode="sum", scale_grad_by_freq=True)
case("nn.functional.one_hot", ints(2, 3, high=4))
case("nn.functional.one_hot", ints(4, high=4), num_classes=6)
case("nn.functional.one_hot", t(2), 3)

# Distances.
case("nn.functional.cosine_similarity", r(2, 3), r(2, 3))
case("nn.functional.cosine_similarity", r(2, 3, 2), r(3, 2), dim=1, eps=1e-3)
case("nn.functional.pairwise_distance", r(3, 4), r(3, 4))
case("nn.functional.pairwise_distance", r(3, 4), r(4), p=1.0, eps=1e-3, keepdim=True)
case("nn.functional.pairwise_distance", r(4), r(4), p=3.0)
for p in (0.0, 1.0, 2.0, 3.5, inf):
    case("nn.functional.pdist", r(4, 3), p)
    case("cdist", r(2, 3, 4), r(2, 5, 4), p)
case("nn.functional.pdist", r(1, 3))
case("nn.functional.bilinear", r(2, 3), r(2, 4), r(5, 3, 4), r(5))
case("nn.functional.linear", r(2, 3), r(4, 3), r(4))

# Losses: every reduction, every keyword.
for red in ("mean", "sum", "none"):
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "poisson_nll_loss"):
        case("nn.functional." + name, r(3, 2), c(3, 2), reduction=red)
    case("nn.functional.smooth_l1_loss", r(3, 2), r(3, 2), beta=0.3, reduction=red)
    case("nn.functional.huber_loss", r(3, 2), r(3, 2), delta=0.3, reduction=red)
    case("nn.functional.kl_div", r(2, 3), c(2, 3, low=0.1), reduction=red)
    case("nn.functional.kl_div", r(2, 3), r(2, 3), log_target=True, reduction=red)
    case("nn.functional.binary_cross_entropy", r(2, 3, low=0.1, high=0.9), c(2, 3, low=0.0, high=1.0), reduction=red)
    case("nn.functional.binary_cross_entropy_with_logits", r(2, 3), c(2, 3, low=0.0, high=1.0), c(3), reduction=red, pos_weight=c(3, low=0.5))
    case("nn.functional.nll_loss", r(4, 3), t([0, 2, 1, 2]), c(3, low=0.5), reduction=red)
    case("nn.functional.nll_loss", r(2, 3, 2, 2), ints(2, 2, 2), ignore_index=1, reduction=red)
    case("nn.functional.cross_entropy", r(4, 3), t([0, 2, 1, 2]), c(3, low=0.5), reduction=red, label_smoothing=0.2)
    case("nn.functional.cross_entropy", r(2, 3, 2), t([[0, -100], [1, 2]]), reduction=red, label_smoothing=0.2)
    case("nn.functional.cross_entropy", r(4, 3), r(4, 3, low=0.0, high=1.0), c(3, low=0.5), reduction=red, label_smoothing=0.2)
    case("nn.functional.gaussian_nll_loss", r(3, 2), r(3, 2), r(3, 2, low=0.5), reduction=red)
    case("nn.functional.poisson_nll_loss", r(3, 2, low=0.3), c(3, 2, low=0.0, high=4.0), log_input=False, full=True, eps=1e-3, reduction=red)
    case("nn.functional.hinge_embedding_loss", r(2, 3), t([[1.0, -1.0, 1.0], [-1.0, 1.0, -1.0]]), margin=0.7, reduction=red)
    case("nn.functional.margin_ranking_loss", r(4), r(4), t([1.0, -1.0, 1.0, -1.0]), margin=0.3, reduction=red)
    case("nn.functional.cosine_embedding_loss", r(3, 2), r(3, 2), t([1.0, -1.0, 1.0]), margin=0.1, reduction=red)
    case("nn.functional.triplet_margin_loss", r(3, 4), r(3, 4), r(3, 4), margin=0.8, p=3, swap=True, reduction=red)
    case("nn.functional.triplet_margin_with_distance_loss", r(3, 4), r(3, 4), r(3, 4), margin=0.8, swap=True, reduction=red)
    case("nn.functional.multilabel_margin_loss", r(2, 4), t([[3, 0, -1, 1], [1, -1, 0, 2]]), reduction=red)
    case("nn.functional.multilabel_soft_margin_loss", r(2, 4), c(2, 4, low=0.0, high=1.0), c(4, low=0.5), reduction=red)
    case("nn.functional.multi_margin_loss", r(3, 4), t([1, 0, 3]), reduction=red)
    case("nn.functional.multi_margin_loss", r(3, 4), t([1, 0, 3]), p=2, margin=0.6, weight=c(4, low=0.5), reduction=red)
    case("nn.functional.ctc_loss", r(5, 2, 4).log_softmax(-1).detach().requires_grad_(), t([[1, 2, 2], [3, 1, 0]]), t([5, 4]), t([3, 2]), reduction=red)
    case("nn.functional.ctc_loss", r(6, 2, 4).log_softmax(-1).detach().requires_grad_(), t([0, 2, 2, 1, 0]), t([6, 6]), t([3, 2]), blank=3, reduction=red)
    case("nn.functional.ctc_loss", r(3, 2, 4).log_softmax(-1).detach().requires_grad_(), t([[1, 1, 1], [2, 1, 2]]), t([3, 3]), t([3, 1]), zero_infinity=True, reduction=red)
case("nn.functional.kl_div", r(2, 3), c(2, 3, low=0.1), reduction="batchmean")
case("nn.functional.ctc_loss", r(5, 4).log_softmax(-1).detach().requires_grad_(), t([1, 2]), t(5), t(2))
case("nn.functional.ctc_loss", r(5, 1, 4).log_softmax(-1).detach().requires_grad_(), t([[]], dtype=torch.int64), t([5]), t([0]), reduction="sum")
case("nn.functional.multilabel_margin_loss", r(4), t([3, 0, -1, 1]))
case("nn.functional.multi_margin_loss", r(4), t(1))
case("nn.functional.cross_entropy", r(3), t(1))
case("nn.functional.cross_entropy", r(3), r(3, low=0.0, high=1.0))
case("nn.functional.nll_loss", r(3), t(1))
case("nn.functional.gaussian_nll_loss", r(3, 2), r(3, 2), r(3, 1, low=0.5), full=True, eps=0.1)
case("nn.functional.gaussian_nll_loss", r(3, 2), r(3, 2), r(3, low=0.5))
case("nn.functional.mse_loss", r(3, 2), c(3, 2), weight=c(3, 2, low=0.5))
