//! Bounds, powers, quotients, logarithms and angles.

use super::{Kept, any_nan, epsilon, huge, one_of, tiny};

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
            let second = there.is_nan() && (here == 0.0 || here.is_infinite());
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
        reason: "1/x + 1/(1 − x), as for the logarithm; the value is NaN outside",
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
        functions: &["logaddexp", "logaddexp2"],
        orders: &[1, 2],
        at: |at, here, there| {
            let far = at.iter().any(|v| v.is_infinite() || huge(*v));
            far && !any_nan(at) && (here == 0.0 || here == 1.0) && there.is_nan()
        },
        place: "infinities and the largest numbers",
        reason: "0 or 1, the slope next to them; PyTorch subtracts infinities",
    },
    Kept {
        functions: &["hypot"],
        orders: &[1, 2],
        at: |at, here, there| at == [0.0, 0.0] && here == 0.0 && there.is_nan(),
        place: "the origin",
        reason: "0, a subgradient, as of a norm; PyTorch divides 0 by 0",
    },
    Kept {
        functions: &["logaddexp2"],
        orders: &[0],
        at: |at, here, there| at == [-1.0, -1.0] && here == 0.0 && there.abs() < 2e-8,
        place: "−1, −1",
        reason: "exact; PyTorch's is rounded",
    },
];
