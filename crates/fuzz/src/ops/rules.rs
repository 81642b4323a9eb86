//! Rules of the user's own, what cuts a derivative, and the deliberately wrong rows that test the
//! fuzzer itself.

use super::{EXACT, ONE_WAY, OpRow, SURROGATE, fit, rows};
use pullback::{Tensor, custom_jvp, custom_vjp, fixed_point};

/// Custom derivatives, surrogates and cuts.
#[rustfmt::skip]
pub const ROWS: &[OpRow] = rows! {
    rule_softplus(x: Float) 0, |_d| custom_vjp("rule_softplus", |x: &Tensor| (x.exp().log1p(), x.clone()), |x: &Tensor, dy: &Tensor| dy * x.sigmoid()).call(x);
    rule_product(a: Float, b: Float) 0, |_d| custom_vjp(
        "rule_product",
        |(a, b): &(Tensor, Tensor)| (a * b.sin(), (a.clone(), b.clone())),
        |(a, b): &(Tensor, Tensor), dy: &Tensor| (dy * b.sin(), dy * a * b.cos()),
    ).call(&(a.clone(), fit(b, a.shape())));
    rule_cube(x: Float) 0, |_d| custom_jvp("rule_cube", |x: &Tensor| x.powi(3), |x: &Tensor, dx: &Tensor| x.square() * 3.0 * dx).call(x);
    rule_two_results(x: Float) 0, |_d| custom_vjp(
        "rule_two_results",
        |x: &Tensor| ((x.sin(), x.cos()), x.clone()),
        |x: &Tensor, (ds, dc): &(Tensor, Tensor)| ds * x.cos() - dc * x.sin(),
    ).call(x);
    rule_residual(x: Float) 0, |_d| custom_vjp("rule_residual", |x: &Tensor| { let e = x.exp(); (&e * 2.0, e) }, |e: &Tensor, dy: &Tensor| dy * e * 2.0).call(x);
    fixed_point(a: Float) super::UNTRACED, |_d| fixed_point(|a: &Tensor, x: &Tensor| (a * 0.3 + x * 0.3).tanh(), a, &a.zeros_like());
    detach(x: Float) EXACT | super::VIEW | SURROGATE, |_d| x.detach();
    round_ste(x: Float) EXACT | SURROGATE, |_d| x.round_ste();
    sign_ste(x: Float) EXACT | SURROGATE, |_d| x.sign_ste(Some(1.0));
    threshold_ste(x: Float) EXACT | SURROGATE, |_d| x.threshold_ste(0.25);
    straight_through(x: Float) EXACT | SURROGATE, |_d| x.straight_through(|x| x.floor());
    reverse_gradient(x: Float) EXACT | SURROGATE | ONE_WAY, |_d| x.reverse_gradient(0.5);
    scale_gradient(x: Float) EXACT | SURROGATE, |_d| x.scale_gradient(2.0);
    clip_gradient(x: Float) SURROGATE | ONE_WAY, |_d| x.clip_gradient(0.5);
    clip_gradient_value(x: Float) EXACT | SURROGATE | ONE_WAY, |_d| x.clip_gradient_value(0.5);
};

/// Never generated, except where a test requests one: the fuzzer has to find them.
#[rustfmt::skip]
pub const INJECTED: &[OpRow] = rows! {
    wrong_slope(x: Float) 0, |_d| custom_vjp("wrong_slope", |x: &Tensor| (x.sin(), x.clone()), |x: &Tensor, dy: &Tensor| dy * x.cos() * 1.01).unchecked("it is wrong on purpose").call(x);
    wrong_tangent(x: Float) 0, |_d| custom_jvp("wrong_tangent", |x: &Tensor| x.square(), |x: &Tensor, dx: &Tensor| x * dx * 2.01).unchecked("it is wrong on purpose").call(x);
    reads_a_value(x: Float) 0, |_d| x * x.sum().to_f64_vec()[0];
    panics_if_large(x: Float) 0, |_d| { assert!(x.len() < 2, "more than one element"); x.clone() * 2.0 };
};
