//! Special functions.

use super::{Kept, digits_of_1, huge, one_of, tail, tiny};
use std::f64::consts::PI;

/// The size of `i0e` and `i1e`, whose multiples cancel in their derivatives.
fn bessel(x: f64) -> f64 {
    (1.0 / (2.0 * PI * x.abs()).sqrt()).min(1.0)
}

pub const KEPT: &[Kept] = &[
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
        functions: &["sinc"],
        orders: &[2],
        at: |at, here, there| {
            at[0].abs() < 1e-18 && one_of(here, &[-PI * PI / 3.0], 1e-6) && there.is_nan()
        },
        place: "0 and the smallest numbers",
        reason: "−π²/3, the limit; PyTorch divides 0 by 0",
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
        functions: &["i1"],
        orders: &[2],
        at: |at, here, there| {
            at[0].abs() < 1e-6 && one_of(here, &[at[0] * 0.375], 1e-6) && there == 0.0
        },
        place: "near 0",
        reason: "⅜·x, by a series; PyTorch's terms cancel to 0",
    },
    Kept {
        functions: &["i1e"],
        orders: &[2],
        at: |at, here, there| {
            at[0].abs() < 1e-6 && one_of(here, &[-at[0].signum()], 1e-6) && there == 0.0
        },
        place: "near 0",
        reason: "∓1, by a series; PyTorch's terms cancel to 0",
    },
];
