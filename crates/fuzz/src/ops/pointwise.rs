//! Element by element.

use super::{
    ArgKind, EXACT, LOW, OpRow, SOMETIMES, SURROGATE, UNTRACED, VIEW, fit, lines, positive, rows,
    unit,
};
use pullback::{DType, Tensor};
use pullback_ir::{Unary, unary_rows};

/// A row of a function, from the row that defines it: those that take integers compute without
/// rounding.
macro_rules! function {
    (not $f:ident $ints:tt) => {
        OpRow {
            name: "not",
            args: &[ArgKind::Mask],
            flags: EXACT,
            run: |x, _d| x[0].logical_not().into(),
        }
    };
    (stop_gradient $f:ident $ints:tt) => {
        OpRow {
            name: "stop_gradient",
            args: &[ArgKind::Float],
            flags: EXACT | VIEW | SURROGATE,
            run: |x, _d| x[0].stop_gradient().into(),
        }
    };
    ($name:ident $f:ident []) => {
        function!($name $f with 0)
    };
    ($name:ident $f:ident [$ints:ident]) => {
        function!($name $f with EXACT)
    };
    ($name:ident $f:ident with $flags:tt) => {
        OpRow {
            name: stringify!($name),
            args: &[ArgKind::Float],
            flags: $flags,
            run: |x, _d| within(&x[0], Unary::$f.domain()).$name().into(),
        }
    };
}

macro_rules! of_one {
    ($(
        $f:ident $name:ident $value:literal $ints:tt $exact:ident $cost:literal $native:ident
        $native_vjp:ident $domain:tt $peer:tt $kernel:tt $cuda:tt $vjp:tt $cuda_vjp:tt;
    )*) => {
        /// Functions of one element.
        pub const FUNCTIONS: &[OpRow] = &[$(function!($name $f $ints)),*];
    };
}
unary_rows!(of_one);

/// Numbers between these: any, where that is much on both sides of zero.
fn within(x: &Tensor, (low, high): (f64, f64)) -> Tensor {
    if high == -low && high >= 3.0 { x.clone() } else { x.sigmoid() * (high - low) + low }
}

/// Others of one operand.
#[rustfmt::skip]
pub const UNARY: &[OpRow] = rows! {
    frac(x: Float) EXACT, |_d| x.frac();
    ndtr(x: Float) 0, |_d| x.ndtr();
    polygamma(x: Float) 0, |d| positive(x).polygamma(d.from_to(0, 2));
    multigammaln(x: Float) 0, |d| (positive(x) + 1.0).multigammaln(d.from_to(1, 3));
    leaky_relu(x: Float) EXACT, |d| x.leaky_relu(d.pick(&[0.25, 0.0]));
    elu(x: Float) 0, |d| x.elu(d.pick(&[1.0, 0.5]));
    celu(x: Float) 0, |d| x.celu(d.pick(&[1.0, 0.5]));
    selu(x: Float) 0, |_d| x.selu();
    softplus(x: Float) 0, |d| x.softplus(d.pick(&[1.0, 2.0]), d.pick(&[20.0, 1.0]));
    log_sigmoid(x: Float) 0, |_d| x.log_sigmoid();
    mish(x: Float) 0, |_d| x.mish();
    softsign(x: Float) 0, |_d| x.softsign();
    tanhshrink(x: Float) 0, |_d| x.tanhshrink();
    softshrink(x: Float) EXACT, |d| x.softshrink(d.pick(&[0.5, 0.25]));
    hardshrink(x: Float) EXACT, |d| x.hardshrink(d.pick(&[0.5, 0.25]));
    hardtanh(x: Float) EXACT, |d| x.hardtanh(d.pick(&[-1.0, -0.5]), d.pick(&[1.0, 0.5]));
    relu6(x: Float) EXACT, |_d| x.relu6();
    hardsigmoid(x: Float) 0, |_d| x.hardsigmoid();
    hardswish(x: Float) 0, |_d| x.hardswish();
    threshold(x: Float) EXACT, |d| x.threshold(d.pick(&[0.0, 0.5]), d.pick(&[-1.0, 0.0]));
    glu(x: Float) 0, |_d| { let x = lines(x).repeat_each(2, 0); x.glu(0) };
    powi(x: Float) SOMETIMES, |d| x.powi(d.pick(&[2, 3, 1, 0, 4]));
    powi_negative(x: Float) 0, |d| x.powi(d.pick(&[-1, -2]));
    powf(x: Float) SOMETIMES, |d| positive(x).powf(d.pick(&[0.5, 1.5, -0.5, 1.0, 2.0, 0.0]));
    clamp(x: Float) EXACT, |d| x.clamp(d.pick(&[-0.5, -1.0]), d.pick(&[0.5, 1.0]));
    clamp_min(x: Float) EXACT, |d| x.clamp_min(d.pick(&[-0.5, 0.0]));
    clamp_max(x: Float) EXACT, |d| x.clamp_max(d.pick(&[0.5, 0.0]));
    logit(x: Float) 0, |_d| unit(x).logit();
    logit_within(x: Float) 0, |d| x.logit_within(d.pick(&[0.25, 0.125]));
    sinc(x: Float) 0, |_d| x.sinc();
    entr(x: Float) 0, |_d| x.entr();
    deg2rad(x: Float) 0, |_d| x.deg2rad();
    rad2deg(x: Float) 0, |_d| x.rad2deg();
    nan_to_num(x: Float) EXACT, |_d| x.nan_to_num(0.0, 1.0, -1.0);
    round_to(x: Float) 0, |d| x.round_to(d.pick(&[1, 0]));
    scale(x: Float) EXACT, |d| x * d.pick(&[0.5, 2.0, -1.0, 1.0, 0.0]);
    shift(x: Float) EXACT, |d| x + d.pick(&[0.5, -1.0, 2.0]);
    over(x: Float) 0, |d| d.pick(&[1.0, -0.5, 2.0]) / x;
    positive(x: Float) EXACT, |_d| positive(x);
    unit(x: Float) 0, |_d| unit(x);
    cast_same(x: Float) EXACT | VIEW, |_d| x.cast(DType::F64).cast(x.dtype());
    to_bf16(x: Float) LOW | VIEW, |_d| x.cast(DType::BF16);
    to_f16(x: Float) LOW | VIEW, |_d| x.cast(DType::F16);
    to_f32(x: Float) LOW | VIEW, |_d| x.cast(DType::F32);
    deep_clone(x: Float) EXACT, |_d| x.deep_clone();
    contiguous(x: Float) EXACT | VIEW, |_d| x.contiguous();
    heaviside(x: Float) EXACT, |_d| x.heaviside(0.5);
    sign_bit(x: Float) EXACT, |_d| x.sign_bit();
    angle(x: Float) 0, |_d| x.angle();
    frexp(x: Float) EXACT | UNTRACED, |_d| x.frexp().0;
};

/// Of two or three operands, which broadcast.
#[rustfmt::skip]
pub const BINARY: &[OpRow] = rows! {
    add(a: Float, b: Float) EXACT, |_d| a + fitted(a, b);
    sub(a: Float, b: Float) EXACT, |_d| a - fitted(a, b);
    mul(a: Float, b: Float) EXACT, |_d| a * fitted(a, b);
    div(a: Float, b: Float) 0, |_d| a / positive(&fitted(a, b));
    div_raw(a: Float, b: Float) 0, |_d| a / fitted(a, b);
    pow(a: Float, b: Float) 0, |_d| positive(a).pow(fitted(a, b));
    atan2(a: Float, b: Float) 0, |_d| a.atan2(fitted(a, b));
    copysign(a: Float, b: Float) EXACT, |_d| a.copysign(fitted(a, b));
    zeta(a: Float, b: Float) SURROGATE, |_d| (positive(a).detach() + 1.0).zeta(positive(&fitted(a, b)));
    gammainc(a: Float, b: Float) SURROGATE, |_d| positive(a).detach().gammainc(positive(&fitted(a, b)));
    gammaincc(a: Float, b: Float) SURROGATE, |_d| positive(a).detach().gammaincc(positive(&fitted(a, b)));
    maximum(a: Float, b: Float) EXACT, |_d| a.maximum(fitted(a, b));
    minimum(a: Float, b: Float) EXACT, |_d| a.minimum(fitted(a, b));
    fmax(a: Float, b: Float) EXACT, |_d| a.fmax(&fitted(a, b));
    fmin(a: Float, b: Float) EXACT, |_d| a.fmin(&fitted(a, b));
    remainder(a: Float, b: Float) 0, |_d| a.remainder(positive(&fitted(a, b)));
    fmod(a: Float, b: Float) 0, |_d| a.fmod(positive(&fitted(a, b)));
    floor_div(a: Float, b: Float) 0, |_d| a.floor_div(positive(&fitted(a, b)));
    hypot(a: Float, b: Float) 0, |_d| a.hypot(&fitted(a, b));
    logaddexp(a: Float, b: Float) 0, |_d| a.logaddexp(&fitted(a, b));
    logaddexp2(a: Float, b: Float) 0, |_d| a.logaddexp2(&fitted(a, b));
    xlogy(a: Float, b: Float) 0, |_d| a.xlogy(&positive(&fitted(a, b)));
    xlog1py(a: Float, b: Float) 0, |_d| a.xlog1py(&positive(&fitted(a, b)));
    betaln(a: Float, b: Float) 0, |_d| positive(a).betaln(&positive(&fitted(a, b)));
    float_power(a: Float, b: Float) 0, |_d| positive(a).float_power(fitted(a, b));
    ldexp(a: Float, n: Index) EXACT, |_d| a.ldexp(fit(n, a.shape()).remainder(3));
    lerp(a: Float, b: Float, w: Float) 0, |_d| a.lerp(&fitted(a, b), fitted(a, w));
    lerp_by(a: Float, b: Float) EXACT, |d| a.lerp(&fitted(a, b), d.pick(&[0.5, 0.25]));
    addcmul(a: Float, b: Float, c: Float) EXACT, |d| a.addcmul(&fitted(a, b), &fitted(a, c), d.pick(&[0.5, 1.0]));
    addcdiv(a: Float, b: Float, c: Float) 0, |d| a.addcdiv(&fitted(a, b), &positive(&fitted(a, c)), d.pick(&[0.5, 1.0]));
    prelu(x: Float, w: Float) EXACT, |_d| { let c = if x.rank() < 2 { 1 } else { x.shape()[1] }; x.prelu(&fit(w, &[c])) };
    trunc_div(a: Float, b: Float) 0, |_d| a.trunc_div(positive(&fitted(a, b)));
    clamp_between(x: Float, a: Float, b: Float) EXACT, |_d| { let (a, b) = (fitted(x, a), fitted(x, b)); x.clamp(a.minimum(&b), a.maximum(&b)) };
};

/// Comparisons, selections, booleans and integers.
#[rustfmt::skip]
pub const CHOOSE: &[OpRow] = rows! {
    lt(a: Float, b: Float) EXACT, |_d| a.lt(fitted(a, b));
    le(a: Float, b: Float) EXACT, |_d| a.le(fitted(a, b));
    gt(a: Float, b: Float) EXACT, |_d| a.gt(fitted(a, b));
    ge(a: Float, b: Float) EXACT, |_d| a.ge(fitted(a, b));
    eq(a: Float, b: Float) EXACT, |_d| a.eq(fitted(a, b));
    ne(a: Float, b: Float) EXACT, |_d| a.ne(fitted(a, b));
    is_nan(x: Float) EXACT, |_d| x.is_nan();
    is_finite(x: Float) EXACT, |_d| x.is_finite();
    gt_number(x: Float) EXACT, |d| x.gt(d.pick(&[0.0, 0.5]));
    and(a: Mask, b: Mask) EXACT, |_d| a.logical_and(fit(b, a.shape()));
    or(a: Mask, b: Mask) EXACT, |_d| a.logical_or(fit(b, a.shape()));
    xor(a: Mask, b: Mask) EXACT, |_d| a.logical_xor(fit(b, a.shape()));
    select(m: Mask, a: Float, b: Float) EXACT, |_d| fit(m, a.shape()).select(a, fitted(a, b));
    masked_fill(x: Float, m: Mask) EXACT, |d| x.masked_fill(&fit(m, x.shape()), d.pick(&[0.5, 0.0]));
    masked_fill_by(x: Float, m: Mask, v: Float) EXACT, |_d| x.masked_fill(&fit(m, x.shape()), v.sum());
    to_index(x: Float) EXACT, |_d| (x * 2.0).floor().cast(DType::I64);
    from_index(n: Index, x: Float) EXACT, |_d| n.remainder(5).cast(x.dtype());
    from_mask(m: Mask, x: Float) EXACT, |_d| m.cast(x.dtype());
    mask_index(m: Mask) EXACT, |_d| m.cast(DType::I64);
    index_add_one(n: Index) EXACT, |_d| n + 1;
    index_mul(a: Index, b: Index) EXACT, |_d| a.remainder(7) * fit(b, a.shape()).remainder(7);
    index_divide(a: Index) EXACT, |_d| a.floor_div(2);
    gcd(a: Index, b: Index) EXACT, |_d| a.gcd(&fit(b, a.shape()));
    shift_left(a: Index, b: Index) EXACT, |_d| a.remainder(9).shift_left(&fit(b, a.shape()).remainder(3));
    shift_right(a: Index, b: Index) EXACT, |_d| a.shift_right(&fit(b, a.shape()).remainder(3));
    iota() EXACT, |d| Tensor::arange(0, d.from_to(0, 4) as i64);
    is_close(a: Float, b: Float) 0, |_d| a.is_close(&fitted(a, b), 1e-3, 1e-3, false);
};

/// The second operand where it broadcasts with the first, or fitted.
fn fitted(a: &Tensor, b: &Tensor) -> Tensor {
    let pairs = a.shape().iter().rev().zip(b.shape().iter().rev());
    let small = a.len().max(1) * b.len().max(1) <= 64;
    if small && pairs.into_iter().all(|(&m, &n)| m == n || m == 1 || n == 1) {
        return b.clone();
    }
    fit(b, a.shape())
}
