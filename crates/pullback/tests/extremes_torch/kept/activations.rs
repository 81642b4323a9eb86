//! Activations and losses.

use super::{Kept, any_nan, density, digits_of_1, epsilon, huge, one_of, tail};
use std::f64::consts::PI;

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

pub const KEPT: &[Kept] = &[
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
        functions: &["hardswish", "round_to", "soft_margin", "gelu"],
        orders: &[0],
        at: |at, here, there| {
            huge(at[0]) && one_of(here, &[at[0]], 1e-8) && there == here.signum() * f64::INFINITY
        },
        place: "very large numbers",
        reason: "x itself: nothing overflows on the way to a result that does not",
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
        functions: &["hardsigmoid"],
        orders: &[1],
        at: |at, here, there| {
            at[0].abs() < 3.0 && here == 1.0 / 6.0 && one_of(there, &[here], 4e-8)
        },
        place: "between −3 and 3",
        reason: "⅙; PyTorch's is that of f32",
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
        functions: &["kl_div"],
        orders: &[1, 2],
        at: |at, here, there| {
            at[1].is_infinite() && there.is_nan() && (here == f64::INFINITY || here == 0.0)
        },
        place: "an infinite target, by it",
        reason: "∞ and 0, its limits; PyTorch divides ∞ by ∞",
    },
];
