//! Special functions: the gamma and error function families, Bessel functions, Hurwitz zeta, the
//! incomplete gamma function.
//!
//! They branch by region, so they run one element at a time, in f64 for every dtype: an f32 result
//! is the f64 one rounded, nearly always the correctly rounded value. Functions of one f32 have a
//! form without branches for the common range (`vector.rs`). Polynomials are
//! interpolations at Chebyshev nodes, computed with 60 digits and rounded. Where a function has
//! zeros away from the origin (log Γ at 1 and 2, ψ at 1.46), the zero is factored out, so that the
//! relative error stays small; the zeros of log Γ and ψ on the negative axis are accurate to about
//! 1e-15 absolutely. NaN gives NaN; at a pole the functions follow PyTorch.

mod bessel;
mod gamma;
mod incomplete;
mod normal;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
pub(crate) mod vector;
mod zeta;

pub(crate) use bessel::{i0, i0e, i1, i1e};
pub(crate) use gamma::{digamma, lgamma};
pub(crate) use incomplete::{gammainc, gammainc32, gammaincc, gammaincc32};
pub(crate) use normal::{erfcx, erfinv, log_ndtr, ndtri};
pub(crate) use zeta::zeta;

/// A polynomial by Horner's rule, lowest coefficient first.
fn poly<const N: usize>(x: f64, c: &[f64; N]) -> f64 {
    c.iter().rev().fold(0.0, |p, c| p * x + c)
}
