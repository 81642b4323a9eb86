//! Gradient descent as `particle` and `saddle` require it, and the two modes in which they take
//! their gradients.

use pullback::{Tensor, cond, grad, jacfwd, while_loop};

/// How a gradient is computed.
#[derive(Clone, Copy)]
pub(super) enum Mode {
    Forward,
    Reverse,
}

impl Mode {
    /// The gradient of a function of one tensor that gives one number.
    pub(super) fn gradient(self, f: impl Fn(&Tensor) -> Tensor, x: &Tensor) -> Tensor {
        match self {
            Mode::Forward => jacfwd(f)(x),
            Mode::Reverse => grad(f)(x),
        }
    }
}

/// A module with a function for each choice of the outer and of the inner mode.
macro_rules! in_all_modes {
    ($name:literal, $job:path) => {{
        use $crate::evals::descent::Mode::{Forward, Reverse};
        $crate::evals::Module {
            name: $name,
            functions: &[
                ("ff", |input| $job(input, Forward, Forward)),
                ("fr", |input| $job(input, Forward, Reverse)),
                ("rf", |input| $job(input, Reverse, Forward)),
                ("rr", |input| $job(input, Reverse, Reverse)),
            ],
        }
    }};
}
pub(super) use in_all_modes;

/// Steps and slopes that are no longer than this end the descent.
const TOLERANCE: f64 = 1e-5;

/// Where the descent is: the point, the value and the slope there, the length of steps, and how
/// many in a row went down.
type DescentState = (Tensor, Tensor, Tensor, Tensor, Tensor);

/// Where `f` is smallest, by descent from `start`. Ten steps down in a row double the step, a step
/// up halves it.
pub(super) fn argmin(mode: Mode, f: impl Fn(&Tensor) -> Tensor, start: &Tensor) -> Tensor {
    let slope = |x: &Tensor| mode.gradient(&f, x);
    let length = |x: &Tensor| x.square().sum().sqrt();
    // The step size of the next step, and how many steps went down with it.
    let rate = |(_, _, _, rate, downs): &DescentState| {
        let ten = downs.eq(10);
        (ten.select(rate * 2.0, rate), ten.select(0i64, downs))
    };
    let going = |state: &DescentState| {
        let (_, _, slope, ..) = state;
        length(slope).gt(TOLERANCE).logical_and(length(&(rate(state).0 * slope)).gt(TOLERANCE))
    };
    let turn = |state: &DescentState| {
        let (x, value, here, ..) = state;
        let (rate, downs) = rate(state);
        let next = x - &rate * here;
        let there = f(&next);
        cond(
            &there.lt(value),
            |(next, there, rate, downs, ..)| {
                (next.clone(), there.clone(), slope(next), rate.clone(), downs + 1)
            },
            |(_, _, rate, _, x, value, here)| {
                (x.clone(), value.clone(), here.clone(), rate * 0.5, Tensor::from(0i64))
            },
            &(next, there, rate, downs, x.clone(), value.clone(), here.clone()),
        )
    };
    let start: DescentState =
        (start.clone(), f(start), slope(start), Tensor::from(1e-5), Tensor::from(0i64));
    while_loop(going, turn, &start).0
}
