//! Other derivatives at kinks, where frameworks differ.

use super::{KinkKind, off};
use crate::apply::checked;
use crate::events::{self, CONVENTIONS};
use crate::{Error, Op, Result, Tensor, fail, mode};
use pullback_ir::{Binary, Line, Reduction, Unary};
use std::cell::Cell;

/// The derivative at a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtBound {
    /// That of the inside: the gradient passes.
    Inside,
    /// The mean of both sides.
    Half,
    /// That of the outside. The gradient of `clamp` goes to the bound, if that is a tensor.
    Outside,
}

/// The derivative where two operands are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtTie {
    /// Half to each.
    Half,
    /// All to the first operand.
    First,
    /// All to the second operand.
    Second,
}

/// The derivative where several elements are the extreme one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtTies {
    /// Shared evenly.
    Even,
    /// All to the first, in row-major order.
    First,
}

/// The derivative at 0 of a function with two slopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtZero {
    /// The slope from below.
    Below,
    /// The slope from above.
    Above,
}

/// The derivative of a norm at the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtOrigin {
    /// 0, the smallest subgradient.
    Zero,
    /// NaN, what the formula √Σx² gives.
    Nan,
}

/// Which derivative is taken at kinks, where frameworks differ. A preset, changed by the methods
/// called on it:
///
/// ```
/// use pullback::{AtBound, Conventions, Tensor, grad, with_conventions};
/// let half = Conventions::pullback().clamp(AtBound::Half).relu(0.5);
/// let f = |x: &Tensor| x.clamp(0.0, 1.0) + x.relu();
/// assert_eq!(grad(f)(&Tensor::from(0.0)).item::<f64>(), 1.0);
/// assert_eq!(with_conventions(&half, || grad(f)(&Tensor::from(0.0))).item::<f64>(), 1.0);
/// assert_eq!(with_conventions(&half, || grad(f)(&Tensor::from(1.0))).item::<f64>(), 1.5);
/// ```
///
/// | kink | `pullback` | `torch` | `jax` | `tensorflow` |
/// |---|---|---|---|---|
/// | [`relu`](Conventions::relu) at 0 | 0 | 0 | 0 | 0 |
/// | [`abs`](Conventions::abs) at 0 | 0 | 0 | 1 | 0 |
/// | [`leaky_relu`](Conventions::leaky_relu) at 0 | from below | from below | from above | from below |
/// | [`clamp`](Conventions::clamp) at a bound that is a number | inside | outside | half (`jnp.clip`) | inside |
/// | [`clamp`](Conventions::clamp_by) at a bound that is a tensor | inside | half | half | inside |
/// | [`hardtanh`](Conventions::hardtanh) at a bound | outside | outside | inside | (outside) |
/// | [`relu6`](Conventions::relu6), hardsigmoid, hardswish at a bound | outside | outside | outside | outside |
/// | [`maximum`](Conventions::maximum), minimum of equals | half | half | half | first |
/// | [`max`](Conventions::max), min over axes, ties | even | even (`amax`) | even | even |
/// | [`norm`](Conventions::norm), std at the origin | 0 | 0 | NaN | NaN |
/// | [`hypot`](Conventions::hypot) at the origin | 0 | NaN | (0) | (0) |
///
/// `torch` and `jax` are as PyTorch 2.15 and JAX 0.10 ran
/// (`crates/pullback/tests/data/conventions.py`); `tensorflow` is as documented, not run. What is
/// in parentheses has no counterpart there, or (`jnp.hypot`: ½ to each) none here. Where a
/// framework has no fixed convention (`cummax` of equals in JAX depends on the reduction tree),
/// there is no choice.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct Conventions {
    relu: f64,
    abs: f64,
    leaky_relu: AtZero,
    clamp: AtBound,
    clamp_by: AtBound,
    hardtanh: AtBound,
    relu6: AtBound,
    maximum: AtTie,
    max: AtTies,
    norm: AtOrigin,
    hypot: AtOrigin,
}

impl Default for Conventions {
    fn default() -> Conventions {
        Conventions::pullback()
    }
}

const DEFAULT: Conventions = Conventions {
    relu: 0.0,
    abs: 0.0,
    leaky_relu: AtZero::Below,
    clamp: AtBound::Inside,
    clamp_by: AtBound::Inside,
    hardtanh: AtBound::Outside,
    relu6: AtBound::Outside,
    maximum: AtTie::Half,
    max: AtTies::Even,
    norm: AtOrigin::Zero,
    hypot: AtOrigin::Zero,
};

impl Conventions {
    /// The default conventions: those of the table in `docs/conventions.md`.
    ///
    /// ```
    /// use pullback::{Conventions, Tensor, grad, with_conventions};
    /// let slope = grad(|x: &Tensor| x.clamp(0.0, 1.0));
    /// let found = with_conventions(&Conventions::pullback(), || slope(&Tensor::from(1.0)));
    /// assert_eq!(found.item::<f64>(), 1.0);
    /// ```
    pub fn pullback() -> Conventions {
        DEFAULT
    }

    /// The conventions of PyTorch: the default ones, except for `clamp` and `hypot`.
    ///
    /// ```
    /// use pullback::{Conventions, Tensor, grad, with_conventions};
    /// let slope = grad(|x: &Tensor| x.clamp(0.0, 1.0));
    /// let found = with_conventions(&Conventions::torch(), || slope(&Tensor::from(1.0)));
    /// assert_eq!(found.item::<f64>(), 0.0);
    /// ```
    pub fn torch() -> Conventions {
        Conventions {
            clamp: AtBound::Outside,
            clamp_by: AtBound::Half,
            hypot: AtOrigin::Nan,
            ..DEFAULT
        }
    }

    /// The conventions of JAX: of `jnp.clip`, `jnp.maximum`, `jnp.max`, `jnp.linalg.norm` and
    /// `jax.nn`.
    ///
    /// ```
    /// use pullback::{Conventions, Tensor, grad, with_conventions};
    /// let slope = grad(|x: &Tensor| x.clamp(0.0, 1.0));
    /// let found = with_conventions(&Conventions::jax(), || slope(&Tensor::from(1.0)));
    /// assert_eq!(found.item::<f64>(), 0.5);
    /// ```
    pub fn jax() -> Conventions {
        Conventions {
            abs: 1.0,
            leaky_relu: AtZero::Above,
            clamp: AtBound::Half,
            clamp_by: AtBound::Half,
            hardtanh: AtBound::Inside,
            norm: AtOrigin::Nan,
            ..DEFAULT
        }
    }

    /// The conventions of TensorFlow: of `tf.maximum`, `tf.clip_by_value`, `tf.reduce_max`,
    /// `tf.norm` and `tf.nn`.
    ///
    /// ```
    /// use pullback::{Conventions, Tensor, grad, with_conventions};
    /// let slope = grad(|x: &Tensor| x.maximum(&Tensor::from(2.0)));
    /// let found = with_conventions(&Conventions::tensorflow(), || slope(&Tensor::from(2.0)));
    /// assert_eq!(found.item::<f64>(), 1.0);
    /// ```
    pub fn tensorflow() -> Conventions {
        Conventions { maximum: AtTie::First, norm: AtOrigin::Nan, ..DEFAULT }
    }

    /// The derivative of `relu` at 0: any slope between its one-sided derivatives, 0 and 1.
    ///
    /// ```
    /// use pullback::{Conventions, Tensor, grad, with_conventions};
    /// let slope = grad(|x: &Tensor| x.relu());
    /// let other = Conventions::pullback().relu(0.5);
    /// assert_eq!(slope(&Tensor::from(0.0)).item::<f64>(), 0.0);
    /// assert_eq!(with_conventions(&other, || slope(&Tensor::from(0.0))).item::<f64>(), 0.5);
    /// ```
    ///
    /// # Panics
    /// If the slope is not between them.
    #[track_caller]
    pub fn relu(self, slope: f64) -> Conventions {
        Conventions { relu: between("relu", slope, 0.0), ..self }
    }

    /// The derivative of `abs` at 0: any slope between its one-sided derivatives, −1 and 1.
    ///
    /// ```
    /// use pullback::{Conventions, Tensor, grad, with_conventions};
    /// let slope = grad(|x: &Tensor| x.abs());
    /// let other = Conventions::pullback().abs(1.0);
    /// assert_eq!(slope(&Tensor::from(0.0)).item::<f64>(), 0.0);
    /// assert_eq!(with_conventions(&other, || slope(&Tensor::from(0.0))).item::<f64>(), 1.0);
    /// ```
    ///
    /// # Panics
    /// If the slope is not between them.
    #[track_caller]
    pub fn abs(self, slope: f64) -> Conventions {
        Conventions { abs: between("abs", slope, -1.0), ..self }
    }

    /// The derivative of `leaky_relu` and `prelu` at 0.
    ///
    /// ```
    /// use pullback::{AtZero, Conventions, Tensor, grad, with_conventions};
    /// let slope = grad(|x: &Tensor| x.leaky_relu(0.25));
    /// let other = Conventions::pullback().leaky_relu(AtZero::Above);
    /// assert_eq!(slope(&Tensor::from(0.0)).item::<f64>(), 0.25);
    /// assert_eq!(with_conventions(&other, || slope(&Tensor::from(0.0))).item::<f64>(), 1.0);
    /// ```
    pub fn leaky_relu(self, at: AtZero) -> Conventions {
        Conventions { leaky_relu: at, ..self }
    }

    /// The derivative of `clamp`, `clamp_min` and `clamp_max` at a bound.
    ///
    /// ```
    /// use pullback::{AtBound, Conventions, Tensor, grad, with_conventions};
    /// let slope = grad(|x: &Tensor| x.clamp(0.0, 1.0));
    /// let other = Conventions::pullback().clamp(AtBound::Half);
    /// assert_eq!(slope(&Tensor::from(1.0)).item::<f64>(), 1.0);
    /// assert_eq!(with_conventions(&other, || slope(&Tensor::from(1.0))).item::<f64>(), 0.5);
    /// ```
    pub fn clamp(self, at: AtBound) -> Conventions {
        Conventions { clamp: at, clamp_by: at, ..self }
    }

    /// The derivative of `clamp`, `clamp_min` and `clamp_max` at a bound that is a tensor, which
    /// may be another than at one that is a number.
    ///
    /// ```
    /// use pullback::{AtBound, Conventions, Tensor, grad, with_conventions};
    /// let slope = grad(|x: &Tensor| x.clamp_max(&Tensor::from(1.0)));
    /// let other = Conventions::pullback().clamp_by(AtBound::Outside);
    /// assert_eq!(slope(&Tensor::from(1.0)).item::<f64>(), 1.0);
    /// assert_eq!(with_conventions(&other, || slope(&Tensor::from(1.0))).item::<f64>(), 0.0);
    /// ```
    pub fn clamp_by(self, at: AtBound) -> Conventions {
        Conventions { clamp_by: at, ..self }
    }

    /// The derivative of `hardtanh` at a bound.
    ///
    /// ```
    /// use pullback::{AtBound, Conventions, Tensor, grad, with_conventions};
    /// let slope = grad(|x: &Tensor| x.hardtanh(-1.0, 1.0));
    /// let other = Conventions::pullback().hardtanh(AtBound::Inside);
    /// assert_eq!(slope(&Tensor::from(1.0)).item::<f64>(), 0.0);
    /// assert_eq!(with_conventions(&other, || slope(&Tensor::from(1.0))).item::<f64>(), 1.0);
    /// ```
    pub fn hardtanh(self, at: AtBound) -> Conventions {
        Conventions { hardtanh: at, ..self }
    }

    /// The derivative of `relu6`, `hardsigmoid` and `hardswish` at a bound.
    ///
    /// ```
    /// use pullback::{AtBound, Conventions, Tensor, grad, with_conventions};
    /// let slope = grad(|x: &Tensor| x.relu6());
    /// let other = Conventions::pullback().relu6(AtBound::Half);
    /// assert_eq!(slope(&Tensor::from(6.0)).item::<f64>(), 0.0);
    /// assert_eq!(with_conventions(&other, || slope(&Tensor::from(6.0))).item::<f64>(), 0.5);
    /// ```
    pub fn relu6(self, at: AtBound) -> Conventions {
        Conventions { relu6: at, ..self }
    }

    /// The derivative of `maximum` and `minimum` where both operands are equal.
    ///
    /// ```
    /// use pullback::{AtTie, Conventions, Tensor, grad, with_conventions};
    /// let slope = grad(|x: &Tensor| x.maximum(&Tensor::from(2.0)));
    /// let other = Conventions::pullback().maximum(AtTie::First);
    /// assert_eq!(slope(&Tensor::from(2.0)).item::<f64>(), 0.5);
    /// assert_eq!(with_conventions(&other, || slope(&Tensor::from(2.0))).item::<f64>(), 1.0);
    /// ```
    pub fn maximum(self, at: AtTie) -> Conventions {
        Conventions { maximum: at, ..self }
    }

    /// The derivative of `max` and `min` over axes where several elements are the extreme one.
    ///
    /// ```
    /// use pullback::{AtTies, Conventions, Tensor, grad, with_conventions};
    /// let slopes = || grad(|x: &Tensor| x.max())(&Tensor::from([2.0, 2.0]));
    /// let first = Conventions::pullback().max(AtTies::First);
    /// assert_eq!(slopes().to_vec::<f64>(), [0.5, 0.5]);
    /// assert_eq!(with_conventions(&first, slopes).to_vec::<f64>(), [1.0, 0.0]);
    /// ```
    pub fn max(self, at: AtTies) -> Conventions {
        Conventions { max: at, ..self }
    }

    /// The derivative of `norm` (also as the `vector_norm` of order 2) and `std` at the origin.
    ///
    /// ```
    /// use pullback::{AtOrigin, Conventions, Tensor, grad, with_conventions};
    /// let f = |x: &Tensor| x.norm();
    /// let slope = || grad(f)(&Tensor::from(0.0)).item::<f64>();
    /// let nan = Conventions::pullback().norm(AtOrigin::Nan);
    /// assert_eq!(slope(), 0.0);
    /// assert!(with_conventions(&nan, slope).is_nan());
    /// ```
    pub fn norm(self, at: AtOrigin) -> Conventions {
        Conventions { norm: at, ..self }
    }

    /// The derivative of `hypot` at the origin.
    ///
    /// ```
    /// use pullback::{AtOrigin, Conventions, Tensor, grad, with_conventions};
    /// let f = |x: &Tensor| x.hypot(&Tensor::from(0.0));
    /// let slope = || grad(f)(&Tensor::from(0.0)).item::<f64>();
    /// let nan = Conventions::pullback().hypot(AtOrigin::Nan);
    /// assert_eq!(slope(), 0.0);
    /// assert!(with_conventions(&nan, slope).is_nan());
    /// ```
    pub fn hypot(self, at: AtOrigin) -> Conventions {
        Conventions { hypot: at, ..self }
    }

    /// What to add to the slope of the outside of a bound, as a part of the step to the inside.
    pub(crate) fn hardtanh_part(&self) -> f64 {
        part(self.hardtanh)
    }

    pub(crate) fn relu6_part(&self) -> f64 {
        part(self.relu6)
    }

    pub(crate) fn is_leaky_above(&self) -> bool {
        self.leaky_relu == AtZero::Above
    }

    pub(crate) fn at_clamp(&self, number: bool) -> AtBound {
        if number { self.clamp } else { self.clamp_by }
    }

    pub(crate) fn is_nan_at_origin(&self, kind: KinkKind) -> bool {
        let at = if kind == KinkKind::Hypot { self.hypot } else { self.norm };
        at == AtOrigin::Nan
    }
}

/// What the table says of each.
impl Conventions {
    pub(super) fn relu_text(&self) -> String {
        self.relu.to_string()
    }

    pub(super) fn abs_text(&self) -> String {
        self.abs.to_string()
    }

    pub(super) fn leaky_text(&self) -> String {
        let text = match self.leaky_relu {
            AtZero::Below => "the slope for x < 0",
            AtZero::Above => "1, the slope for x > 0",
        };
        text.to_string()
    }

    pub(super) fn clamp_text(&self) -> String {
        let text = match self.clamp {
            AtBound::Inside => "1: the bound counts as inside",
            AtBound::Half => "½, and ½ to the bound",
            AtBound::Outside => "0: the bound counts as outside",
        };
        text.to_string()
    }

    pub(super) fn hardtanh_text(&self) -> String {
        bound_text(self.hardtanh).to_string()
    }

    pub(super) fn relu6_text(&self) -> String {
        bound_text(self.relu6).to_string()
    }

    pub(super) fn pair_text(&self) -> String {
        let text = match self.maximum {
            AtTie::Half => "½ to each",
            AtTie::First => "to the first",
            AtTie::Second => "to the second",
        };
        text.to_string()
    }

    pub(super) fn ties_text(&self) -> String {
        let text = match self.max {
            AtTies::Even => "shared evenly",
            AtTies::First => "to the first one",
        };
        text.to_string()
    }

    pub(super) fn norm_text(&self) -> String {
        origin_text(self.norm).to_string()
    }

    pub(super) fn hypot_text(&self) -> String {
        origin_text(self.hypot).to_string()
    }
}

fn origin_text(at: AtOrigin) -> &'static str {
    match at {
        AtOrigin::Zero => "0",
        AtOrigin::Nan => "NaN",
    }
}

fn bound_text(at: AtBound) -> &'static str {
    match at {
        AtBound::Inside => "the derivative inside the bounds",
        AtBound::Half => "the mean of both sides",
        AtBound::Outside => "the derivative outside the bounds",
    }
}

fn part(at: AtBound) -> f64 {
    match at {
        AtBound::Inside => 1.0,
        AtBound::Half => 0.5,
        AtBound::Outside => 0.0,
    }
}

#[track_caller]
fn between(name: &str, slope: f64, low: f64) -> f64 {
    if (low..=1.0).contains(&slope) {
        // Not −0, which prints and compares otherwise.
        return slope + 0.0;
    }
    let message =
        format!("{slope} is not a slope of `{name}` at 0: it must be between {low} and 1");
    let at = mode::user_line(Line::caller());
    fail::raise(Error::argument("conventions", message).at(at))
}

thread_local! {
    static IN_FORCE: Cell<Conventions> = const { Cell::new(DEFAULT) };
}

/// Runs `f` with these derivatives at kinks. They hold for the ops that are applied inside, on this
/// thread, in reverse and forward mode and at every order, and are recorded with them: it does not
/// matter where the backward pass runs. Values are the same under all conventions.
///
/// ```
/// use pullback::{AtTie, Conventions, Tensor, with_conventions};
/// let (a, b) = (Tensor::from(2.0).requires_grad(), Tensor::from(2.0).requires_grad());
/// let first = Conventions::pullback().maximum(AtTie::First);
/// let y = with_conventions(&first, || a.maximum(&b));
/// y.backward()?;
/// assert_eq!((a.grad().unwrap().item::<f64>(), b.grad().unwrap().item::<f64>()), (1.0, 0.0));
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// A function that is compiled inside is compiled for them: called under others, `jit` compiles it
/// again. Hooks that run in a backward pass use the defaults.
pub fn with_conventions<R>(conventions: &Conventions, f: impl FnOnce() -> R) -> R {
    with_state(*conventions, f)
}

/// Those that hold for the ops that are applied now.
pub(crate) fn conventions() -> Conventions {
    match events::mask() & CONVENTIONS {
        0 => DEFAULT,
        _ => IN_FORCE.get(),
    }
}

/// Runs `f` with the conventions that held when they were read.
pub(crate) fn with_state<R>(conventions: Conventions, f: impl FnOnce() -> R) -> R {
    let bit = if conventions == DEFAULT { 0 } else { CONVENTIONS };
    let run = || events::replacing(CONVENTIONS, bit, f);
    mode::with(&IN_FORCE, conventions, run)
}

/// The result of an op by other ops, where the conventions choose another derivative than that of
/// its row.
pub(crate) fn by_convention(op: &Op, inputs: &[&Tensor], at: Line) -> Result<Option<Tensor>> {
    let c = conventions();
    let differs = match op {
        Op::Unary(Unary::Relu) => c.relu != DEFAULT.relu,
        Op::Unary(Unary::Abs) => c.abs != DEFAULT.abs,
        Op::Binary(Binary::Maximum | Binary::Minimum) => c.maximum != DEFAULT.maximum,
        Op::Reduce(Reduction::Max | Reduction::Min, axes) => {
            c.max != DEFAULT.max && !axes.is_empty() && inputs.iter().all(|x| !x.is_empty())
        }
        _ => false,
    };
    if !differs || !inputs.iter().all(|x| x.dtype().is_float()) {
        return Ok(None);
    }
    // Checked here, so that a wrong shape is an error of this op and not of its parts.
    checked(op, inputs, |_| Ok(())).map_err(|e| e.at(at))?;
    let make = || match (op, inputs) {
        (Op::Unary(Unary::Relu), [x]) => with_slope_at_kink(x.relu(), x, 0.0, c.relu),
        (Op::Unary(Unary::Abs), [x]) => with_slope_at_kink(x.abs(), x, 0.0, c.abs),
        (Op::Binary(f), [a, b]) => {
            let taken = if c.maximum == AtTie::First { a } else { b };
            a.eq(*b).select(*taken, a.binary(*f, *b))
        }
        (Op::Reduce(kind, axes), [x]) => first_extreme(x, *kind, axes),
        _ => unreachable!("one of the ops above"),
    };
    Ok(Some(off(|| mode::with_line(at, make))))
}

/// `y` with `slope` more as its derivative by `x` where `x` is `kink`: the values stay, for what is
/// added is 0.
#[track_caller]
pub(crate) fn with_slope_at_kink(y: Tensor, x: &Tensor, kink: f64, slope: f64) -> Tensor {
    // No number is at infinity.
    if slope == 0.0 || kink.is_infinite() {
        return y;
    }
    let on = x.eq(kink);
    let zero = x.zeros_like_splat();
    y + on.select(&((x - kink) * slope), &zero)
}

/// The extreme over axes by the place of the first one.
fn first_extreme(x: &Tensor, kind: Reduction, axes: &[usize]) -> Tensor {
    let kept = pullback_ir::other_axes(axes, x.rank());
    let order: Vec<isize> = kept.iter().chain(axes).map(|&i| i as isize).collect();
    let mut shape: Vec<usize> = kept.iter().map(|&i| x.shape()[i]).collect();
    shape.push(axes.iter().map(|&i| x.shape()[i]).product());
    let flat = x.permute(order).reshape(&shape[..]);
    let place = match kind {
        Reduction::Max => flat.argmax(-1),
        _ => flat.argmin(-1),
    };
    flat.gather(-1, &place.unsqueeze(-1)).squeeze_axis(-1)
}
