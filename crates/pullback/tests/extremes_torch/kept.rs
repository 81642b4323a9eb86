//! What differs from PyTorch at extremes, and why it stays so. The first entry that covers a difference counts for it.
//!
//! An entry says as narrowly as it can what is given here: where PyTorch is the one that rounds or overflows, the number here is compared with the
//! formula; where the number here is wrong, the entry says so.

use std::f64::consts::{LN_2, PI};

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

/// Finite, and its square is beyond f32.
fn huge(v: f64) -> bool {
    v.is_finite() && v.abs() > 1e18
}

/// Not 0, and its square is below what f32 has.
fn tiny(v: f64) -> bool {
    v != 0.0 && v.abs() < 1e-18
}

/// The largest finite magnitude.
fn largest(at: &[f64]) -> f64 {
    at.iter().filter(|v| v.is_finite()).fold(0.0, |m, v| v.abs().max(m))
}

/// Nine digits are all it has, as what is written of f32.
fn nine_digits(v: f64) -> bool {
    !v.is_finite() || format!("{v:.8e}").parse() == Ok(v)
}

/// The distance of 1 from the next number. That they are of f32 is seen from their digits; numbers that either has count as f32.
fn epsilon(at: &[f64], here: f64, there: f64) -> f64 {
    let exact = !here.is_finite() || f64::from(here as f32) == here;
    let single = exact && nine_digits(there) && at.iter().all(|v| nine_digits(*v));
    if single { f64::from(f32::EPSILON) } else { f64::EPSILON }
}

/// Numbers that differ by so many last digits of 1.
fn digits_of_1(at: &[f64], here: f64, there: f64, count: f64) -> bool {
    (here - there).abs() <= count * epsilon(at, here, there)
}

/// It is one of these numbers, but for this part of it.
fn one_of(here: f64, right: &[f64], part: f64) -> bool {
    right.iter().any(|r| r.is_finite() && (here - r).abs() <= part * r.abs())
}

/// The density of the normal distribution.
fn density(x: f64) -> f64 {
    (-x * x / 2.0).exp() / (2.0 * PI).sqrt()
}

/// What lies below x ≤ −6 of the normal distribution, to 2e−5 of it.
fn tail(x: f64) -> f64 {
    let s = 1.0 / (x * x);
    density(x) / -x * (1.0 - s * (1.0 - 3.0 * s * (1.0 - 5.0 * s * (1.0 - 7.0 * s))))
}

/// `gelu_tanh` and its first derivative.
fn gelu_tanh(x: f64) -> [f64; 2] {
    let c = (2.0 / PI).sqrt();
    let (u, du) = (c * (x + 0.044715 * x * x * x), c * (1.0 + 3.0 * 0.044715 * x * x));
    let e = (-2.0 * u).exp();
    [x / (1.0 + e), 1.0 / (1.0 + e) + 2.0 * x * du * e / (1.0 + e) / (1.0 + e)]
}

/// The slope of the logistic function, for x ≥ 0.
fn logistic_slope(x: f64) -> f64 {
    let e = (-x).exp();
    e / ((1.0 + e) * (1.0 + e))
}

/// The size of `i0e` and `i1e`, whose multiples cancel in their derivatives.
fn bessel(x: f64) -> f64 {
    (1.0 / (2.0 * PI * x.abs()).sqrt()).min(1.0)
}

/// The derivatives of 1·y₁ + 2·y₂ + 3·y₃ of cumulative products y, as sums of products of the others.
fn cumprod(at: &[f64]) -> [f64; 3] {
    let single = at.iter().all(|v| nine_digits(*v));
    let round = |v: f64| if single { f64::from(v as f32) } else { v };
    std::array::from_fn(|j| {
        (j..3).fold(0.0, |sum, k| {
            let others = (0..=k).filter(|&i| i != j);
            let product = others.fold(1.0, |p, i| round(p * at[i]));
            round(sum + round((k + 1) as f64 * product))
        })
    })
}

/// The derivatives of 1·y₁ + 2·y₂ + 3·y₃ of cumulative logarithms of sums of exponentials.
fn logcumsumexp(at: &[f64]) -> [f64; 3] {
    std::array::from_fn(|j| {
        (j..3).fold(0.0, |sum, k| {
            let most = at[..=k].iter().fold(f64::NEG_INFINITY, |m, v| v.max(m));
            let part = |v: f64| if v == most { 1.0 } else { (v - most).exp() };
            let whole: f64 = at[..=k].iter().map(|v| part(*v)).sum();
            sum + (k + 1) as f64 * part(at[j]) / whole
        })
    })
}

pub const KEPT: &[Kept] = &[
    Kept {
        functions: &["clamp", "clamp_min", "clamp_max", "hinge_embedding", "margin_ranking"],
        orders: &[1, 2],
        at: |at, here, there| {
            let bound = match *at {
                [x] => x == 0.0 || x.abs() == 1.0,
                _ => at[0].abs() == 1.0 && at[1].abs() == 1.0,
            };
            bound && here.abs() == 1.0 && there == 0.0
        },
        place: "at a bound",
        reason: "the gradient passes on the closed interval; `Conventions::torch()` has PyTorch's choice",
    },
    Kept {
        functions: &["clamp_min_by", "clamp_max_by"],
        orders: &[1],
        at: |at, here, there| at[0] == at[1] && (here == 0.0 || here == 1.0) && there == 0.5,
        place: "at the bound",
        reason: "the gradient passes on the closed interval, to the first operand; `Conventions::torch()` has PyTorch's choice",
    },
    Kept {
        functions: &["fmax", "fmin"],
        orders: &[1],
        at: |at, here, there| at[0] == at[1] && (here == 0.0 || here == 1.0) && there == 0.5,
        place: "equal operands",
        reason: "to the first, not ½ to each",
    },
    Kept {
        functions: &["elu", "selu", "celu", "prelu"],
        orders: &[2],
        at: |at, here, there| {
            let slopes = [1.5, 0.5, 1.0, 1.0507009873554805 * 1.6732632423543772];
            at[0] == 0.0 && one_of(here, &slopes, 1e-6) && there == 0.0
        },
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
        at: |at, here, there| {
            let slopes = [0.0, 1.0, -1.0, 1.0 / 3.0, 1.0 / 6.0];
            let slope = slopes.contains(&here) || one_of(here, &slopes, 1e-6);
            any_nan(at) && slope && there.abs() <= 1.0
        },
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
        at: |at, here, there| {
            let equal = at.len() == 2 && at[0] == at[1] && at[0].is_infinite();
            (any_nan(at) || equal) && here.is_nan() && !there.is_nan()
        },
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
        functions: &["atan2"],
        orders: &[1, 2],
        at: |at, here, there| {
            let r = at[0].hypot(at[1]);
            let first = one_of(here, &[at[1] / r / r, -at[0] / r / r], 1e-6) && there == 0.0;
            let second = at[0] == at[1] && here.is_infinite() && there.is_nan();
            at.iter().any(|v| tiny(*v)) && (first || second)
        },
        place: "very small operands",
        reason: "squares are taken in a unit in which they do not vanish",
    },
    Kept {
        functions: &["hypot"],
        orders: &[1],
        at: |at, here, there| {
            huge(at[0]) && at[0] == at[1] && one_of(here, &[0.5_f64.sqrt()], 1e-6) && there == 0.0
        },
        place: "very large operands",
        reason: "squares are taken in a unit in which they do not overflow",
    },
    Kept {
        functions: &["acosh"],
        orders: &[2],
        at: |at, here, there| at[0].abs() == 1.0 && here.is_nan() && there.is_infinite(),
        place: "±1",
        reason: "a product of √(x − 1) and √(x + 1) keeps its digits near 1; at it, 0 is multiplied by infinity",
    },
    Kept {
        functions: &["bce"],
        orders: &[1],
        at: |at, here, there| {
            at[0] * (1.0 - at[0]) < 1e-12 && here.abs() == 100.0 && there * here.signum() > 100.0
        },
        place: "by the target, probabilities of 0, of 1 and below e⁻¹⁰⁰",
        reason: "the logarithms are held at −100 in the derivative as they are in the value; PyTorch's derivative does not hold them",
    },
    Kept {
        functions: &["bce"],
        orders: &[1],
        at: |at, here, there| at[0] * (1.0 - at[0]) < 1e-12 && one_of(here, &[there], 5e-9),
        place: "x·(1 − x) below 1e−12",
        reason: "it is held at 1e−12, which PyTorch has in f32 only",
    },
    Kept {
        functions: &["bce"],
        orders: &[2],
        at: |at, here, there| {
            let slope = one_of(here.abs(), &[1e12], 1e-7) && at[0] * (1.0 - at[0]) < 1e-12;
            slope && (there == 0.0 || there * here.signum() > 1e12)
        },
        place: "x·(1 − x) below 1e−12",
        reason: "the derivative of the first as it is held, ±1e12; PyTorch takes that of one that is not held",
    },
    Kept {
        functions: &["bce"],
        orders: &[2],
        at: |at, here, there| {
            at[1] == 1.0 && there == 0.0 && one_of(here, &[1.0 / (at[0] * at[0])], 1e-6)
        },
        place: "the last number before 1, target 1",
        reason: "1/x²; in PyTorch it cancels to 0",
    },
    Kept {
        functions: &["bce"],
        orders: &[2],
        at: |at, here, there| {
            let held = 1e-12 / (at[0] * (1.0 - at[0]));
            held < 1.0 && one_of(here, &[there], 3.0 * held)
        },
        place: "x·(1 − x) above 1e−12",
        reason: "PyTorch adds 1e−12 to x·(1 − x)",
    },
    Kept {
        functions: &["fmod"],
        orders: &[1],
        at: |at, here, there| {
            (at[1] == 0.0 || at[0].is_infinite()) && here.is_nan() && there.is_infinite()
        },
        place: "b = 0, a = ±∞",
        reason: "NaN, as the value is",
    },
    Kept {
        functions: &["fmod"],
        orders: &[1],
        at: |at, here, there| {
            let quotient = at[0] / at[1];
            let whole = quotient.round();
            let near = (quotient - whole).abs() <= 1e-7 * quotient.abs();
            near && there == -whole && here == -(whole - whole.signum())
        },
        place: "quotients that round to an integer",
        reason: "the derivative is of the quotient that the value was made with (1 by 0.1: 9, not 10)",
    },
    Kept {
        functions: &["fmod", "remainder"],
        orders: &[0],
        at: |at, here, there| {
            let beyond = at[0].abs() > 1e38 && at[1].abs() < 1.0 && at[1] != 0.0;
            beyond && at[0].is_finite() && here == 0.0 && there.is_nan()
        },
        place: "quotients beyond the largest number",
        reason: "the remainder is exact",
    },
    Kept {
        functions: &["hardswish", "round_to", "soft_margin", "gelu"],
        orders: &[0],
        at: |at, here, there| {
            huge(at[0]) && one_of(here, &[at[0]], 1e-8) && there == here.signum() * f64::INFINITY
        },
        place: "very large numbers",
        reason: "x itself: nothing overflows on the way to a result that does not",
    },
    Kept {
        functions: &["rows_cumprod"],
        orders: &[1],
        at: |at, here, _| {
            let small = |v: f64| v.abs() < 1e-37;
            cumprod(at).iter().any(|r| {
                (here.is_nan() && r.is_nan())
                    || here == *r
                    || one_of(here, &[*r], 1e-6)
                    || (small(here) && small(*r))
            })
        },
        place: "zeros, infinities, NaN and very large elements",
        reason: "the sum of products of the other factors, with no division by an element, and NaN where 0 is multiplied by infinity in it; PyTorch divides by the element",
    },
    Kept {
        functions: &["rows_cumprod"],
        orders: &[1],
        at: |at, here, there| {
            let over = at.iter().any(|v| v.is_finite() && v.abs() > 1e38);
            let small = at.iter().any(|v| *v == 0.0 || tiny(*v));
            over && small && !here.is_finite() && !there.is_nan()
        },
        place: "the largest numbers beside one that makes the product small",
        reason: "wrong: 3 times the largest number overflows before it is multiplied by 0 (NaN) or by the smallest number (∞)",
    },
    Kept {
        functions: &["rows_logcumsumexp"],
        orders: &[1],
        at: |at, here, there| {
            let infinite = at.iter().any(|v| v.is_infinite()) && !any_nan(at);
            infinite && there.is_nan() && [1.0, 2.0, 3.0, 5.0, 6.0].contains(&here)
        },
        place: "infinities",
        reason: "by the differences of neighbours, of which the last of equal infinities has all; PyTorch subtracts infinities",
    },
    Kept {
        functions: &["rows_logcumsumexp"],
        orders: &[1],
        at: |at, here, there| {
            at.iter().any(|v| huge(*v)) && there == 1.0 && one_of(here, &logcumsumexp(at), 1e-6)
        },
        place: "very large elements",
        reason: "by the differences of neighbours; PyTorch's logarithms of the sums lose them",
    },
    Kept {
        functions: &["rows_logcumsumexp"],
        orders: &[1],
        at: |at, here, there| {
            let lost = largest(at) * epsilon(at, here, there);
            at[0] > 1e4 && lost < 0.01 && logcumsumexp(at).iter().any(|r| (here - r).abs() <= lost)
        },
        place: "large elements",
        reason: "rounding: the sums keep so many digits after the point",
    },
    Kept {
        functions: &["rows_logcumsumexp"],
        orders: &[1],
        at: |at, here, there| {
            let lost = largest(at) * epsilon(at, here, there) > LN_2;
            lost && at[0] == at[1] && [3.5, 1.75, 0.75].contains(&here) && there == 1.0
        },
        place: "three equal elements so large that adding ln 2 leaves them as they are (from 2e7 in f32)",
        reason: "wrong, as PyTorch's 1, 1, 1 is: the third is shared as ½, ¼, ¼, where each has ⅓",
    },
    Kept {
        functions: &["rows_var"],
        orders: &[1],
        at: |at, here, there| {
            let equal = at[0] == at[1] && at[1] == at[2];
            equal && here == 0.0 && there.abs() <= at[0].abs() * f64::from(f32::EPSILON)
        },
        place: "equal elements",
        reason: "their distance from the mean is 0; PyTorch's derivative takes a mean that is rounded",
    },
    Kept {
        functions: &["copysign"],
        orders: &[1],
        at: |at, here, there| at[0].is_infinite() && here.abs() == 1.0 && there.is_nan(),
        place: "a = ±∞",
        reason: "by the signs alone; PyTorch divides the result by a",
    },
    Kept {
        functions: &["copysign"],
        orders: &[2],
        at: |at, here, there| (at[0] == 0.0 || !at[0].is_finite()) && here == 0.0 && there.is_nan(),
        place: "a = 0, ±∞, NaN",
        reason: "the same",
    },
    Kept {
        functions: &["logit"],
        orders: &[1, 2],
        at: |at, here, there| {
            let x = at[0];
            let outside = !(x > 0.0 && x < 1.0) || tiny(x);
            let right = [1.0 / x + 1.0 / (1.0 - x), 1.0 / ((1.0 - x) * (1.0 - x)) - 1.0 / (x * x)];
            let lost = 4.0 * epsilon(at, here, there);
            let near = (0..2).any(|k| {
                let size = 1.0 / x.abs().powi(k as i32 + 1);
                here == f64::from(right[k] as f32)
                    || (size.is_finite()
                        && (here - right[k]).abs() <= lost * size.max(right[k].abs()))
            });
            outside && near && (there.is_nan() || there == 0.0)
        },
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
        at: |at, here, _| {
            let none = at[1] <= 0.0 || !at[1].is_finite();
            at[0] == 0.0 && none && here == 0.0
        },
        place: "x = 0 where the logarithm does not exist or is infinite",
        reason: "the function is taken as 0 there, by either operand",
    },
    Kept {
        functions: &["pow"],
        orders: &[2],
        at: |at, here, there| {
            let none = at[0] < 0.0 || at[0] == f64::INFINITY;
            none && at[1] == 0.0 && here.is_nan() && !there.is_nan()
        },
        place: "b = 0 with a < 0 or infinite, by b and then a",
        reason: "the derivative by the exponent does not exist for a < 0, and neither does that of it",
    },
    Kept {
        functions: &["digamma", "lgamma", "polygamma1", "multigammaln"],
        orders: &[0, 1, 2],
        at: |at, here, there| {
            let pole = at[0].is_infinite() || at[0].fract() == 0.0 || at[0].fract() == -0.5;
            at[0] < 0.0 && pole && here == f64::INFINITY && (there > 0.0 || there.is_nan())
        },
        place: "the poles",
        reason: "∞; PyTorch's trigamma is finite there by rounding",
    },
    Kept {
        functions: &["digamma", "polygamma1"],
        orders: &[1, 2],
        at: |at, here, there| at[0] == f64::INFINITY && here == 0.0 && there.is_nan(),
        place: "∞",
        reason: "0, which it tends to",
    },
    Kept {
        functions: &["digamma", "lgamma", "polygamma1", "multigammaln"],
        orders: &[0, 1, 2],
        at: |_, here, there| one_of(here, &[there], 2e-9),
        place: "everywhere, in f64",
        reason: "PyTorch's trigamma is good to 1e−9",
    },
    Kept {
        functions: &["multigammaln"],
        orders: &[1],
        at: |at, here, there| at[0] < 0.0 && digits_of_1(at, here, there, 4.0),
        place: "below 0, where two terms cancel",
        reason: "rounding",
    },
    Kept {
        functions: &["rows_layer_norm"],
        orders: &[0, 1],
        at: |at, here, there| {
            let over = at.iter().all(|v| v.is_finite()) && at.iter().any(|v| huge(*v));
            over && here == 0.0 && there.is_nan()
        },
        place: "elements whose square overflows (from 2e19 in f32)",
        reason: "wrong, as PyTorch's NaN is: the variance is ∞, and all is divided by it; the right values are of size 1",
    },
    Kept {
        functions: &["log_ndtr"],
        orders: &[1],
        at: |at, here, there| huge(at[0]) && here == f64::INFINITY && there.is_nan(),
        place: "the largest numbers below 0",
        reason: "wrong, as PyTorch's NaN is: ∞ for −x, since a term overflows",
    },
    Kept {
        functions: &["gaussian_variance"],
        orders: &[2],
        at: |at, here, there| {
            let over = huge(at[0]) && (huge(at[1]) || at[1].is_infinite());
            over && ((here.is_nan() && there == f64::INFINITY)
                || (here.is_infinite() && there.is_nan()))
        },
        place: "the largest variance, with a difference as large",
        reason: "wrong, as PyTorch's number is: squares of both overflow",
    },
    Kept {
        functions: &["pow"],
        orders: &[2],
        at: |at, here, there| (at[0] == 0.0 || at[1] == 0.0) && here == 0.0 && there.is_nan(),
        place: "a = 0, b = 0",
        reason: "a number, where PyTorch has NaN: what is selected away is not computed from 0 times infinity",
    },
    Kept {
        functions: &["zero_pow"],
        orders: &[2],
        at: |at, here, there| at[0] >= 0.0 && here == 0.0 && there.is_nan(),
        place: "0 and above",
        reason: "a number, where PyTorch has NaN: what is selected away is not computed from 0 times infinity",
    },
    Kept {
        functions: &["pow_half", "pow_3_2", "pow_-half"],
        orders: &[0, 1, 2],
        at: |at, here, there| {
            at[0] == f64::NEG_INFINITY && (here == 0.0 || here == f64::INFINITY) && there.is_nan()
        },
        place: "−∞",
        reason: "as C's `pow` has it, and the power of its derivative; PyTorch has a NaN",
    },
    Kept {
        functions: &["kl_div"],
        orders: &[1],
        at: |at, here, there| {
            at[1] == 0.0 && (here == -at[0] || one_of(here, &[-at[0]], 1e-8)) && there.is_nan()
        },
        place: "a target of 0, by it",
        reason: "−x: t·ln t is taken as 0, with slope 0; PyTorch multiplies 0 by infinity",
    },
    Kept {
        functions: &["kl_div"],
        orders: &[2],
        at: |at, here, there| at[1] == 0.0 && here == 0.0 && there.is_nan(),
        place: "a target of 0, by it",
        reason: "0, the same",
    },
    Kept {
        functions: &["poisson_full"],
        orders: &[1],
        at: |at, here, there| {
            let plain = at[1] <= 1.0 || at[1].is_nan();
            plain && (here == -at[0] || one_of(here, &[-at[0]], 1e-8)) && there.is_nan()
        },
        place: "targets that are not above 1, and NaN, by the target",
        reason: "−x: Stirling's formula, which is for those above 1, is not computed; PyTorch multiplies it by 0",
    },
    Kept {
        functions: &["poisson_full"],
        orders: &[2],
        at: |at, here, there| (at[1] <= 1.0 || at[1].is_nan()) && here == 0.0 && there.is_nan(),
        place: "targets that are not above 1, and NaN, by the target",
        reason: "0, the same",
    },
    Kept {
        functions: &["logaddexp", "logaddexp2"],
        orders: &[1, 2],
        at: |at, here, there| {
            let far = at.iter().any(|v| v.is_infinite() || huge(*v));
            far && !any_nan(at) && (here == 0.0 || here == 1.0) && there.is_nan()
        },
        place: "infinities and the largest numbers",
        reason: "0 or 1, the slope beside them; PyTorch subtracts infinities",
    },
    Kept {
        functions: &["logit_within"],
        orders: &[2],
        at: |at, here, there| {
            !(0.125..=0.875).contains(&at[0]) && !any_nan(at) && here == 0.0 && there.is_nan()
        },
        place: "outside of the bounds, where 0 and 1 are",
        reason: "a number, where PyTorch has NaN: what is selected away is not computed from 0 times infinity",
    },
    Kept {
        functions: &["mish"],
        orders: &[2],
        at: |at, here, there| at[0] >= 100.0 && here == 0.0 && there.is_nan(),
        place: "100 and above",
        reason: "0; PyTorch's exponential overflows",
    },
    Kept {
        functions: &["silu", "gelu", "gelu_tanh", "hardswish"],
        orders: &[0, 1],
        at: |at, here, there| {
            let end = at[0].is_infinite() || huge(at[0]);
            end && (here.abs() < 1e-40 || here == 1.0 || here == at[0]) && there.is_nan()
        },
        place: "±∞ and the largest numbers",
        reason: "x, 1 or 0, which they tend to; PyTorch multiplies 0 by infinity",
    },
    Kept {
        functions: &["i0", "i1"],
        orders: &[0, 1],
        at: |at, here, there| at[0].is_infinite() && here.is_infinite() && there.is_nan(),
        place: "±∞",
        reason: "±∞; PyTorch multiplies 0 by infinity",
    },
    Kept {
        functions: &["erfcx", "log_ndtr"],
        orders: &[1, 2],
        at: |at, here, there| {
            let limit = if at[0] > 0.0 { 0.0 } else { f64::INFINITY };
            at[0].is_infinite() && here == limit && there.is_nan()
        },
        place: "±∞",
        reason: "the limit; PyTorch subtracts infinities",
    },
    Kept {
        functions: &["soft_margin"],
        orders: &[1, 2],
        at: |at, here, there| {
            (at[0].is_infinite() || huge(at[0]))
                && (here == 0.0 || here.abs() == 1.0)
                && there.is_nan()
        },
        place: "±∞ and the largest numbers",
        reason: "±1 and 0, which they tend to; PyTorch's exponential overflows",
    },
    Kept {
        functions: &["sinc"],
        orders: &[2],
        at: |at, here, there| {
            at[0].abs() < 1e-18 && one_of(here, &[-PI * PI / 3.0], 1e-6) && there.is_nan()
        },
        place: "0 and the smallest numbers",
        reason: "−π²/3, the limit; PyTorch divides 0 by 0",
    },
    Kept {
        functions: &["hypot"],
        orders: &[1, 2],
        at: |at, here, there| at == [0.0, 0.0] && here == 0.0 && there.is_nan(),
        place: "the origin",
        reason: "0, a subgradient, as of a norm; PyTorch divides 0 by 0",
    },
    Kept {
        functions: &["rows_cross_entropy"],
        orders: &[0],
        at: |at, here, there| {
            at.contains(&f64::INFINITY) && !any_nan(at) && here == f64::INFINITY && there.is_nan()
        },
        place: "∞ as the score of another class",
        reason: "∞, the loss of a class of probability 0; PyTorch subtracts infinities",
    },
    Kept {
        functions: &["rows_logsumexp"],
        orders: &[1],
        at: |at, here, there| {
            at.iter().all(|v| *v == f64::NEG_INFINITY) && here == 0.0 && there.is_nan()
        },
        place: "all −∞",
        reason: "0, as of an empty sum; PyTorch subtracts infinities",
    },
    Kept {
        functions: &["rows_norm3"],
        orders: &[1],
        at: |at, here, there| any_nan(at) && at.contains(&0.0) && here == 0.0 && there.is_nan(),
        place: "an element of 0 beside NaN",
        reason: "0, the slope of the cube of 0",
    },
    Kept {
        functions: &["entr", "kl_div"],
        orders: &[2],
        at: |at, here, there| {
            let t = at[at.len() - 1];
            let (entropy, sign) = (at.len() == 1, if at.len() == 1 { 1.0 } else { -1.0 });
            let wrong = here == sign * f64::INFINITY || (entropy && here.is_nan());
            t > 0.0 && tiny(t) && wrong && there * sign < 0.0
        },
        place: "numbers above 0 whose square vanishes (below 1e−19 in f32, 1e−154 in f64)",
        reason: "wrong, of the wrong sign: ±∞ (NaN below the smallest normal number) for ∓1/t, as one of the two terms that cancel overflows; so it is of t·ln t by `xlogy`",
    },
    Kept {
        functions: &["entr"],
        orders: &[1, 2],
        at: |at, here, there| at[0] == f64::INFINITY && here.is_nan() && !there.is_nan(),
        place: "∞",
        reason: "wrong: NaN for −∞ and 0; ∞ is divided by ∞",
    },
    Kept {
        functions: &["atan"],
        orders: &[2],
        at: |at, here, there| huge(at[0]) && here.is_nan() && there == 0.0,
        place: "the largest numbers",
        reason: "wrong: NaN for 0; 2·x overflows and is multiplied by 0",
    },
    Kept {
        functions: &["div", "xlogy"],
        orders: &[2],
        at: |at, here, there| at[0] == 0.0 && tiny(at[1]) && here.is_nan() && there == 0.0,
        place: "0 by numbers whose square vanishes",
        reason: "wrong: NaN for 0, as b² vanishes",
    },
    Kept {
        functions: &["xlogy"],
        orders: &[2],
        at: |at, here, there| {
            tiny(at[0]) && tiny(at[1]) && here == f64::NEG_INFINITY && there < 0.0
        },
        place: "both so small that their squares vanish",
        reason: "wrong: −∞ for −x/y², as y² vanishes",
    },
    Kept {
        functions: &["div", "xlogy", "xlog1py", "poisson"],
        orders: &[2],
        at: |at, here, there| {
            let infinite = at.iter().any(|v| v.is_infinite()) && at.iter().any(|v| huge(*v));
            infinite && here.is_nan() && there.is_infinite()
        },
        place: "±∞ by numbers whose square overflows",
        reason: "wrong: NaN for ±∞, as ∞ is divided by ∞",
    },
    Kept {
        functions: &["log_ndtr"],
        orders: &[2],
        at: |at, here, _| huge(at[0]) && at[0] < 0.0 && here == f64::NEG_INFINITY,
        place: "numbers below 0 whose square overflows (from −2e19 in f32)",
        reason: "wrong: −∞ (NaN further on) for −1, as a square overflows; PyTorch's number is wrong, too",
    },
    Kept {
        functions: &["rows_norm", "rows_normalize"],
        orders: &[1],
        at: |at, here, there| at.iter().any(|v| huge(*v)) && here.is_nan() && there == 0.0,
        place: "elements whose square overflows",
        reason: "wrong, as PyTorch's 0 is: the norm is ∞ in both, and NaN or 0 is made of it (0 here, too, at 1e20 in f32)",
    },
    Kept {
        functions: &["rows_std", "rows_var"],
        orders: &[0],
        at: |at, here, there| at.iter().any(|v| huge(*v)) && here == f64::INFINITY && there >= 0.0,
        place: "elements whose square or sum overflows",
        reason: "wrong: ∞, since the sums are of the type of the elements; PyTorch adds f32 in f64",
    },
    Kept {
        functions: &["rows_std"],
        orders: &[1],
        at: |at, here, there| at.iter().any(|v| huge(*v)) && here.is_nan() && there == 0.0,
        place: "elements whose square overflows",
        reason: "wrong, as PyTorch's 0 is: the deviation is ∞ here",
    },
    Kept {
        functions: &["rows_std"],
        orders: &[1],
        at: |at, here, there| {
            at.iter().all(|v| *v == 0.0 || tiny(*v)) && here == 0.0 && there.abs() < 0.6
        },
        place: "elements whose square vanishes (below 1e−22 in f32)",
        reason: "wrong: 0, as of equal elements, since the deviation is 0 here; PyTorch adds f32 in f64",
    },
    Kept {
        functions: &["rows_var"],
        orders: &[1],
        at: |at, here, there| {
            let infinite = at.iter().any(|v| v.is_infinite());
            infinite && here.is_nan() && there.is_infinite()
        },
        place: "infinities",
        reason: "the variance is NaN, and so is the derivative; PyTorch has that of the finite elements as ±∞",
    },
    Kept {
        functions: &["rows_var"],
        orders: &[1],
        at: |at, here, there| {
            let same = here.is_infinite() && here.signum() == there.signum();
            at.iter().any(|v| huge(*v)) && (here.is_nan() || same) && !there.is_nan()
        },
        place: "the largest numbers",
        reason: "wrong: twice a distance from the mean overflows before it is divided by n − 1",
    },
    Kept {
        functions: &["gelu"],
        orders: &[0, 1],
        at: |at, here, there| {
            let x = at[0];
            let right = [x * tail(x), tail(x) + x * density(x)];
            x <= -6.0 && one_of(here, &right, 1e-4) && digits_of_1(at, here, there, -x)
        },
        place: "x ≤ −6",
        reason: "of the complementary error function, which keeps the tail; PyTorch's is 1 + erf, to the last digit of 1",
    },
    Kept {
        functions: &["gelu"],
        orders: &[0],
        at: |at, here, there| {
            at[0] < 0.0 && at[0] > -6.0 && digits_of_1(at, here, there, -2.0 * at[0])
        },
        place: "−6 < x < 0",
        reason: "the same",
    },
    Kept {
        functions: &["gelu_tanh"],
        orders: &[0, 1],
        at: |at, here, there| {
            let part = (100.0 * epsilon(at, here, there)).max(1e-11);
            at[0] < 0.0
                && one_of(here, &gelu_tanh(at[0]), part)
                && digits_of_1(at, here, there, -at[0])
        },
        place: "below 0",
        reason: "x times a logistic function, which keeps the tail; PyTorch's 1 + tanh does not",
    },
    Kept {
        functions: &["gelu_tanh"],
        orders: &[2],
        at: |at, here, there| digits_of_1(at, here, there, 16.0),
        place: "where it is almost 0",
        reason: "rounding, and 0 in the tails (−7e−9 at ±6 in f32): it is made from 1 − tanh², good to the last digit of 1; PyTorch keeps the tail",
    },
    Kept {
        functions: &["ndtr"],
        orders: &[0],
        at: |at, here, there| {
            at[0] <= -6.0 && one_of(here, &[tail(at[0])], 1e-4) && digits_of_1(at, here, there, 1.0)
        },
        place: "x ≤ −6",
        reason: "of the complementary error function, which keeps the tail; PyTorch's is 1 + erf, to the last digit of 1",
    },
    Kept {
        functions: &["softplus", "log_sigmoid"],
        orders: &[2],
        at: |at, here, there| {
            let right = [2.0 * logistic_slope(2.0 * at[0]), -logistic_slope(at[0])];
            let part = 100.0 * epsilon(at, here, there);
            at[0] > 0.0 && one_of(here, &right, part) && digits_of_1(at, here, there, 4.0)
        },
        place: "above 0",
        reason: "both factors of σ·(1 − σ) keep their digits; PyTorch's is good to the last digit of 1",
    },
    Kept {
        functions: &["softplus"],
        orders: &[2],
        at: |at, here, there| {
            let right = 2.0 * logistic_slope(2.0 * at[0]);
            at[0] == 10.0 && there == 0.0 && one_of(here, &[right], 1e-6)
        },
        place: "β·x at the threshold",
        reason: "that of the curve, of which the value and the first derivative are in both; PyTorch takes the second from the line",
    },
    Kept {
        functions: &["erfcx"],
        orders: &[1, 2],
        at: |at, here, _| {
            let s = 1.0 / (at[0] * at[0]);
            let scale = -s / PI.sqrt();
            let first = scale * (1.0 - 1.5 * s * (1.0 - 2.5 * s * (1.0 - 3.5 * s)));
            let second =
                -2.0 * scale / at[0] * (1.0 - 3.0 * s * (1.0 - 3.75 * s * (1.0 - 14.0 / 3.0 * s)));
            let vanishes = at[0] > 1e18 && here == 0.0;
            at[0] >= 10.0 && (vanishes || one_of(here, &[first, second], 2e-5))
        },
        place: "x ≥ 10",
        reason: "−1/(√π·x²) and its derivative by their series; PyTorch's 2·x·erfcx(x) − 2/√π cancels, and overflows",
    },
    Kept {
        functions: &["log_ndtr"],
        orders: &[1, 2],
        at: |at, here, _| {
            let (x, s) = (at[0], 1.0 / (at[0] * at[0]));
            let right =
                [-x - (1.0 - 2.0 * s) / x, -1.0 + s * (1.0 - 6.0 * s * (1.0 - 50.0 / 6.0 * s))];
            x <= -6.0 && one_of(here, &right, 1e-3)
        },
        place: "x ≤ −6",
        reason: "−x − 1/x + … and its derivative by a series; PyTorch's cancels",
    },
    Kept {
        functions: &["i0e", "i1e"],
        orders: &[1, 2],
        at: |at, here, there| digits_of_1(at, here, there, 4.0 * bessel(at[0])),
        place: "where terms cancel",
        reason: "rounding, to the last digits of the value; for x above 1e8 nothing else is left of a second derivative, here as in PyTorch",
    },
    Kept {
        functions: &["i1e"],
        orders: &[2],
        at: |at, here, there| {
            let x = at[0];
            x != 0.0 && x.abs() < 1e-6 && !tiny(x) && here == -x.signum() && there == 0.0
        },
        place: "±1.2e−7 in f32, ±2.2e−16 in f64",
        reason: "∓1, its limit; PyTorch has 0. Nearer to 0 it is 0 here, too, which is wrong",
    },
    Kept {
        functions: &["i1e"],
        orders: &[2],
        at: |at, here, there| {
            let x = at[0];
            x != 0.0 && x.abs() < 1.2e-38 && here == -1.5 * x.signum() && there == 0.0
        },
        place: "below the smallest normal number",
        reason: "wrong, as PyTorch's 0 is: ∓1.5 for ∓1, by rounding",
    },
    Kept {
        functions: &["i1"],
        orders: &[2],
        at: |at, here, there| at[0].abs() > 0.1 && digits_of_1(at, here, there, 1.0 / at[0].abs()),
        place: "0.125",
        reason: "rounding: terms of size 1/x cancel",
    },
    Kept {
        functions: &["sinc"],
        orders: &[1, 2],
        at: |at, here, there| {
            let right = [-PI * PI * at[0] / 3.0, -PI * PI / 3.0];
            at[0].abs() < 1e-6 && one_of(here, &right, 1e-6) && there == 0.0
        },
        place: "near 0",
        reason: "−π²·x/3 and −π²/3 by a series; PyTorch's terms cancel to 0",
    },
    Kept {
        functions: &["sinc"],
        orders: &[1, 2],
        at: |at, here, there| huge(at[0]) && here.abs() <= PI / at[0].abs() && there == 0.0,
        place: "very large numbers",
        reason: "wrong but for its size, at most π/x: π·x has no digits after the point, as in the value; in PyTorch x² overflows, and it is 0",
    },
    Kept {
        functions: &["ndtri"],
        orders: &[2],
        at: |at, here, there| tiny(at[0]) && one_of(here, &[there], 2e-5),
        place: "1e−19",
        reason: "rounding",
    },
    Kept {
        functions: &["hardsigmoid"],
        orders: &[1],
        at: |at, here, there| {
            at[0].abs() < 3.0 && here == 1.0 / 6.0 && one_of(there, &[here], 4e-8)
        },
        place: "between −3 and 3",
        reason: "⅙; PyTorch's is that of f32",
    },
    Kept {
        functions: &["logaddexp2"],
        orders: &[0],
        at: |at, here, there| at == [-1.0, -1.0] && here == 0.0 && there.abs() < 2e-8,
        place: "−1, −1",
        reason: "exact; PyTorch's is rounded",
    },
    Kept {
        functions: &["rows_layer_norm"],
        orders: &[1],
        at: |at, here, _| {
            let equal = at[0] == at[1] && at[1] == at[2];
            equal && one_of(here.abs(), &[1e5_f64.sqrt()], 1e-6)
        },
        place: "equal elements",
        reason: "1/√ε times the distance from the mean weight; PyTorch's mean is rounded (320 for 316.2)",
    },
    Kept {
        functions: &["rows_layer_norm"],
        orders: &[1],
        at: |at, here, there| {
            let size = largest(at);
            size < 1e9
                && digits_of_1(at, here, there, (16.0 * size.max(1.0)).min(2e9))
                && (here - there).abs() < 2e-6
        },
        place: "slopes that cancel to almost 0",
        reason: "rounding, to the last digits of the elements and of 1",
    },
    Kept {
        functions: &["rows_log_softmax", "rows_softmax"],
        orders: &[1],
        at: |at, here, there| digits_of_1(at, here, there, 2.0),
        place: "slopes that cancel to almost 0",
        reason: "rounding, to the last digit of 1",
    },
    Kept {
        functions: &["elu", "selu", "celu", "tanh", "tanhshrink", "sigmoid", "silu"],
        orders: &[1, 2],
        at: |at, here, there| digits_of_1(at, here, there, 4.0),
        place: "where the slope is almost 0",
        reason: "rounding: it is made from the result, as y + 1 or 1 − y², and good to the last digit of 1",
    },
    Kept {
        functions: &["mish"],
        orders: &[2],
        at: |at, here, there| digits_of_1(at, here, there, 32.0),
        place: "where it is almost 0",
        reason: "rounding: terms cancel",
    },
    Kept {
        functions: &["softsign"],
        orders: &[1, 2],
        at: |at, here, there| one_of(here, &[there], 2.0 * at[0].abs() * epsilon(at, here, there)),
        place: "large numbers",
        reason: "rounding: it is made from 1 − y, and good to the last digit of 1",
    },
    Kept {
        functions: &["rows_normalize"],
        orders: &[1],
        at: |at, here, there| digits_of_1(at, here, there, 4.0 / largest(at).max(1.0)),
        place: "slopes that cancel to almost 0",
        reason: "rounding, to the last digit of 1 over the norm",
    },
];
