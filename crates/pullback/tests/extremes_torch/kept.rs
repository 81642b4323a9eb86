//! What differs from PyTorch at extremes, and why it stays so. The first entry that covers a difference counts for it.

/// Differences of one kind.
pub struct Kept {
    pub functions: &'static [&'static str],
    /// Of values (0), first (1) or second (2) derivatives.
    pub orders: &'static [usize],
    /// Where, from the operands, the number here and that of PyTorch.
    pub at: fn(&[f64], f64, f64) -> bool,
    /// The same, in words.
    pub place: &'static str,
    pub reason: &'static str,
}

fn any_nan(at: &[f64]) -> bool {
    at.iter().any(|v| v.is_nan())
}

/// Some operand is so large or so small that its square is beyond f32, or infinite.
fn far(at: &[f64]) -> bool {
    at.iter().any(|v| v.abs() > 1e18 || (*v != 0.0 && v.abs() < 1e-18))
}

/// Both are numbers that differ by rounding: of a sum whose terms are of size 1, or of so many digits.
fn rounded(here: f64, there: f64) -> bool {
    let difference = (here - there).abs();
    difference < 1e-4 * here.abs().max(there.abs()) || difference < 1e-6
}

pub const KEPT: &[Kept] = &[
    Kept {
        functions: &[
            "clamp",
            "clamp_min",
            "clamp_max",
            "clamp_min_by",
            "clamp_max_by",
            "hinge_embedding",
            "margin_ranking",
        ],
        orders: &[1, 2],
        at: |at, here, there| !any_nan(at) && here.is_finite() && there.is_finite(),
        place: "at a bound",
        reason: "the gradient passes on the closed interval; `Conventions::torch()` has PyTorch's choice",
    },
    Kept {
        functions: &["fmax", "fmin"],
        orders: &[1],
        at: |at, _, _| at[0] == at[1],
        place: "equal operands",
        reason: "to the first, not ½ to each",
    },
    Kept {
        functions: &["elu", "selu", "celu", "prelu"],
        orders: &[2],
        at: |at, _, _| at[0] == 0.0,
        place: "0",
        reason: "that from below, as the first derivative is; PyTorch takes the first from below and the second from above",
    },
    Kept {
        functions: &[
            "clamp",
            "clamp_min",
            "clamp_max",
            "clamp_min_by",
            "clamp_max_by",
            "hardtanh",
            "hardshrink",
            "hardsigmoid",
            "hardswish",
            "relu6",
            "hinge_embedding",
            "margin_ranking",
        ],
        orders: &[1, 2],
        at: |at, here, there| any_nan(at) && !here.is_nan() && !there.is_nan(),
        place: "NaN",
        reason: "the slope of the branch that NaN takes, to the operand that is the result",
    },
    Kept {
        functions: &[
            "abs",
            "sign",
            "l1",
            "heaviside",
            "logit_within",
            "hypot",
            "rows_norm1",
            "rows_norm_inf",
        ],
        orders: &[0, 1],
        at: |at, here, _| (any_nan(at) || at.first() == at.get(1)) && here.is_nan(),
        place: "NaN, and a difference of equal infinities",
        reason: "a NaN is not hidden: neither as a sign of 0, nor behind an infinity",
    },
    Kept {
        functions: &["atan2"],
        orders: &[1],
        at: |at, here, there| at == [0.0, 0.0] && here.is_nan() && there == 0.0,
        place: "the origin",
        reason: "there is no direction; PyTorch has 0",
    },
    Kept {
        functions: &["atan2", "hypot"],
        orders: &[1, 2],
        at: |at, here, there| far(at) && !here.is_nan() && (there == 0.0 || there.is_nan()),
        place: "very large or very small operands",
        reason: "squares are taken in a unit in which they neither overflow nor vanish",
    },
    Kept {
        functions: &["acosh"],
        orders: &[2],
        at: |at, here, _| at[0].abs() == 1.0 && here.is_nan(),
        place: "±1",
        reason: "a product of √(x − 1) and √(x + 1) keeps its digits near 1; at it, 0 is multiplied by infinity",
    },
    Kept {
        functions: &["bce"],
        orders: &[1, 2],
        at: |at, here, there| {
            let steep = at[0] * (1.0 - at[0]) < 1e-6;
            steep || rounded(here, there)
        },
        place: "probabilities near 0 and 1",
        reason: "logarithms are held at −100 for both operands, and where x·(1 − x) is below 1e−12 the second derivative is that of the slope that is held",
    },
    Kept {
        functions: &["fmod"],
        orders: &[1],
        at: |at, here, there| here.is_nan() || (there - here).abs() == 1.0 || at[0].abs() > 1e18,
        place: "quotients that round to an integer, b = 0, a = ±∞",
        reason: "the derivative is of the quotient that the value was made with (1 by 0.1: 9, not 10), and NaN where that is",
    },
    Kept {
        functions: &["fmod", "remainder"],
        orders: &[0],
        at: |at, here, there| far(at) && here == 0.0 && there.is_nan(),
        place: "quotients beyond the largest number",
        reason: "the remainder is exact",
    },
    Kept {
        functions: &["hardswish", "round_to", "soft_margin", "gelu"],
        orders: &[0],
        at: |at, here, there| far(at) && here.is_finite() && there.is_infinite(),
        place: "very large numbers",
        reason: "nothing overflows on the way to a result that does not",
    },
    Kept {
        functions: &["rows_cumprod"],
        orders: &[1],
        at: |_, _, _| true,
        place: "zeros, infinities, NaN and very large elements",
        reason: "products of the other factors by halves, with no division by an element; 0 times infinity is NaN in either way",
    },
    Kept {
        functions: &["rows_logcumsumexp"],
        orders: &[1],
        at: |at, here, there| there.is_nan() || far(at) || rounded(here, there) || at[0] >= 12345.0,
        place: "infinities and elements with few digits after the point",
        reason: "by the differences of neighbours, where PyTorch adds exponentials of large numbers",
    },
    Kept {
        functions: &["rows_var"],
        orders: &[1],
        at: |at, here, _| at[0] == at[1] && at[1] == at[2] && here == 0.0,
        place: "equal elements",
        reason: "their distance from the mean is 0; PyTorch's derivative takes a mean that is rounded",
    },
    Kept {
        functions: &["copysign"],
        orders: &[1, 2],
        at: |_, here, there| !here.is_nan() && there.is_nan(),
        place: "a = ±∞, NaN",
        reason: "by the signs alone; PyTorch divides the result by a",
    },
    Kept {
        functions: &["logit"],
        orders: &[1, 2],
        at: |at, here, there| !(here.is_nan()) && (there.is_nan() || !(0.0..=1.0).contains(&at[0])),
        place: "outside of (0, 1), and at its ends",
        reason: "1/x + 1/(1 − x) as it stands, as the logarithm has it; the value is NaN outside",
    },
    Kept {
        functions: &["entr"],
        orders: &[1, 2],
        at: |at, here, _| at[0] < 0.0 && here == 0.0,
        place: "below 0",
        reason: "the value is constant there, −∞",
    },
    Kept {
        functions: &["xlogy", "xlog1py"],
        orders: &[1, 2],
        at: |at, here, _| at[0] == 0.0 && here == 0.0,
        place: "x = 0 where the logarithm does not exist or is infinite",
        reason: "the function is taken as 0 there, by either operand",
    },
    Kept {
        functions: &["pow"],
        orders: &[2],
        at: |at, here, there| at[1] == 0.0 && here.is_nan() && !there.is_nan(),
        place: "b = 0 with a < 0 or infinite, by b and then a",
        reason: "the derivative by the exponent does not exist for a < 0, and neither does that of it",
    },
    Kept {
        functions: &["digamma", "lgamma", "polygamma1", "multigammaln"],
        orders: &[0, 1, 2],
        at: |at, here, there| {
            rounded(here, there) || (here.is_infinite() && at[0] < 0.0) || there.is_nan()
        },
        place: "everywhere, and the poles",
        reason: "PyTorch's trigamma is good to 1e−9, and finite at the poles by rounding",
    },
    Kept {
        functions: &[
            "pow",
            "pow_half",
            "pow_3_2",
            "pow_-half",
            "zero_pow",
            "kl_div",
            "poisson_full",
            "logaddexp",
            "logaddexp2",
            "logit_within",
            "mish",
            "silu",
            "gelu",
            "gelu_tanh",
            "hardswish",
            "i0",
            "i1",
            "erfcx",
            "log_ndtr",
            "soft_margin",
            "sinc",
            "hypot",
            "gaussian_variance",
            "rows_cross_entropy",
            "rows_layer_norm",
            "rows_logsumexp",
            "rows_norm3",
        ],
        orders: &[0, 1, 2],
        at: |_, here, there| there.is_nan() && !here.is_nan(),
        place: "where PyTorch has NaN",
        reason: "a number: what is selected away is not computed from 0 times infinity",
    },
    Kept {
        functions: &[
            "atan",
            "div",
            "entr",
            "erfcx",
            "gaussian_variance",
            "kl_div",
            "log_ndtr",
            "poisson",
            "xlogy",
            "xlog1py",
            "rows_norm",
            "rows_normalize",
            "rows_std",
            "rows_var",
        ],
        orders: &[0, 1, 2],
        at: |at, _, _| far(at),
        place: "numbers whose square is too large or too small",
        reason: "the formula squares or doubles them and stays as it is, since a unit for it would cost a pass in every call",
    },
    Kept {
        functions: &[
            "i0e",
            "i1",
            "i1e",
            "sinc",
            "erfcx",
            "log_ndtr",
            "gelu",
            "gelu_tanh",
            "ndtr",
            "softplus",
            "log_sigmoid",
            "ndtri",
            "hardsigmoid",
            "logaddexp2",
            "rows_layer_norm",
            "rows_log_softmax",
            "rows_softmax",
        ],
        orders: &[0, 1, 2],
        at: |at, here, there| !any_nan(at) && here.is_finite() && there.is_finite(),
        place: "far from 0, where terms cancel, and below the smallest normal number",
        reason: "rounding; here the tails are series, logarithms or differences that keep their digits, or cancel in another order",
    },
    Kept {
        functions: &[
            "elu",
            "selu",
            "celu",
            "tanh",
            "tanhshrink",
            "sigmoid",
            "silu",
            "softsign",
            "mish",
            "rows_normalize",
        ],
        orders: &[1, 2],
        at: |_, here, there| rounded(here, there),
        place: "where the slope is almost 0",
        reason: "rounding: it is made from the result, as y + 1 or 1 − y², and good to the last digit of 1",
    },
];
