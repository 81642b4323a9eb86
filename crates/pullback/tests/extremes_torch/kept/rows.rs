//! Functions of rows: sums, norms, softmax.

use super::{Kept, any_nan, digits_of_1, epsilon, huge, nine_digits, one_of, tiny};

/// The largest finite magnitude.
fn largest(at: &[f64]) -> f64 {
    at.iter().filter(|v| v.is_finite()).fold(0.0, |m, v| v.abs().max(m))
}

/// The derivatives of 1·y₁ + 2·y₂ + 3·y₃ of cumulative products y, as sums of products of the
/// others.
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
        place: "the largest numbers next to one that makes the product small",
        reason: "wrong: 3 times the largest number overflows before it is multiplied by 0 (NaN) or by the smallest number (∞); in another order of the factors another product would overflow",
    },
    Kept {
        functions: &["rows_logcumsumexp"],
        orders: &[1],
        at: |at, here, there| {
            let infinite = at.iter().any(|v| v.is_infinite()) && !any_nan(at);
            infinite && there.is_nan() && one_of(here, &logcumsumexp(at), 1e-6)
        },
        place: "infinities",
        reason: "equal infinities have equal parts; PyTorch subtracts infinities",
    },
    Kept {
        functions: &["rows_logcumsumexp"],
        orders: &[1],
        at: |at, here, there| {
            largest(at) > 1e7 && there == 1.0 && one_of(here, &logcumsumexp(at), 1e-6)
        },
        place: "very large elements",
        reason: "by the differences from the largest; PyTorch's logarithms of the sums lose them",
    },
    Kept {
        functions: &["rows_logcumsumexp"],
        orders: &[1],
        at: |at, here, there| {
            let lost = largest(at) * epsilon(at, here, there);
            at[0] > 1e4 && lost < 0.01 && logcumsumexp(at).iter().any(|r| (here - r).abs() <= lost)
        },
        place: "large elements",
        reason: "PyTorch's logarithms of the sums keep that many digits after the point",
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
        functions: &["rows_layer_norm"],
        orders: &[0, 1],
        at: |at, here, there| {
            let over = at.iter().all(|v| v.is_finite()) && at.iter().any(|v| huge(*v));
            over && here == 0.0 && there.is_nan()
        },
        place: "elements whose square overflows (from 2e19 in f32)",
        reason: "wrong, as PyTorch's NaN is: the variance is ∞, and all is divided by it; the right values are of size 1, and a unit for the squares would take another pass over the rows",
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
        place: "an element of 0 next to NaN",
        reason: "0, the slope of the cube of 0",
    },
    Kept {
        functions: &["rows_norm", "rows_normalize"],
        orders: &[1],
        at: |at, here, there| at.iter().any(|v| huge(*v)) && here.is_nan() && there == 0.0,
        place: "elements whose square overflows",
        reason: "wrong, as PyTorch's 0 is: the norm is ∞ in both, and NaN or 0 is made of it (0 here, too, at 1e20 in f32); a unit for the squares would take another pass",
    },
    Kept {
        functions: &["rows_std", "rows_var"],
        orders: &[0],
        at: |at, here, there| at.iter().any(|v| huge(*v)) && here == f64::INFINITY && there >= 0.0,
        place: "elements whose square or sum overflows",
        reason: "wrong: ∞, since the sums are of the type of the elements; PyTorch adds f32 in f64, which here would take a copy of the elements",
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
        reason: "wrong: 0, as of equal elements, since the deviation is 0 here; PyTorch adds f32 in f64, which here would take a copy of the elements",
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
        functions: &["rows_normalize"],
        orders: &[1],
        at: |at, here, there| digits_of_1(at, here, there, 4.0 / largest(at).max(1.0)),
        place: "slopes that cancel to almost 0",
        reason: "rounding, to the last digit of 1 over the norm",
    },
];
