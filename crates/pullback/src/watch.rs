//! Finding the op that overflowed.
//!
//! Inside [`detect_overflow`] the result of every op is checked, in `apply`, forward and backward
//! too. The first one that is not finite although its operands were is noted. What bypasses
//! `apply` (accumulation into unshared memory, fused updates, compiled functions) runs op by op
//! meanwhile: the same values, computed where they can be checked.

use crate::events::{self, WATCH};
use crate::mode::{self, Restore};
use crate::{Op, Spec, Tensor, trace};
use pullback_ir::{Fused, Line};
use std::cell::{Cell, RefCell};
use std::fmt;

/// An op whose result is not finite although its operands are.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OverflowSource {
    /// The op.
    pub op: &'static str,
    /// In a backward pass, the op of the forward pass that it is the backward of.
    pub backward_of: Option<&'static str>,
    /// The line it was called on; in a backward pass, that of the forward op.
    pub at: Line,
    /// What it was given.
    pub operands: Vec<Spec>,
    /// What it made.
    pub result: Spec,
    /// Whether it made a NaN; otherwise it made an infinity.
    pub nan: bool,
    /// The largest magnitude in the operands.
    pub largest: f64,
}

impl fmt::Display for OverflowSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OverflowSource { op, result, largest, at, .. } = self;
        let made = if self.nan { "NaN" } else { "an infinity" };
        let operands: Vec<String> = self.operands.iter().map(Spec::to_string).collect();
        let operands = operands.join(", ");
        match self.backward_of {
            Some(forward) if forward == *op => write!(f, "backward of `{op}`")?,
            Some(forward) => write!(f, "`{op}` in the backward of `{forward}`")?,
            None => write!(f, "`{op}`")?,
        }
        write!(f, " made {made} in {result} of {operands} (up to {largest:.3e})\n  at {at}")
    }
}

/// Runs `f` and finds the first op in it, forward or backward, whose result is not finite although
/// its operands are. Checking costs a pass over every value, and compiled functions run op by op:
/// use it to find out where an overflow came from, not in every step.
///
/// ```
/// use pullback::{DType, Tensor, detect_overflow};
/// let x = Tensor::from([300.0, 2.0]).cast(DType::F16);
/// let (_, source) = detect_overflow(|| (&x * &x).exp());
/// let source = source.unwrap();
/// assert_eq!((source.op, source.backward_of), ("mul", None));
/// assert!(source.to_string().starts_with("`mul` made an infinity in f16[2] of f16[2], f16[2] (up to 3.000e2)"));
/// ```
///
/// In a function that is being traced values are not known, so nothing is found there.
pub fn detect_overflow<R>(f: impl FnOnce() -> R) -> (R, Option<OverflowSource>) {
    let outer = FOUND.take();
    // What an inner watch found is also reported by the outer one, unless it found something
    // before.
    let merge = mode::on_drop(|| {
        let inner = FOUND.take();
        FOUND.set(outer.or(inner));
    });
    let result = events::with(WATCH, f);
    let found = FOUND.with_borrow(Clone::clone);
    drop(merge);
    if !is_active() {
        FOUND.set(None);
    }
    (result, found)
}

thread_local! {
    static FOUND: RefCell<Option<OverflowSource>> = const { RefCell::new(None) };
    /// The forward op of the current node of a backward pass.
    static BACKWARD_OF: Cell<Option<(&'static str, Line)>> = const { Cell::new(None) };
}

/// Whether values are checked.
pub(crate) fn is_active() -> bool {
    events::is_on(WATCH)
}

/// The current node of a backward pass, restored when a nested pass, in a hook, ends.
pub(crate) struct AtNode {
    _restore: Restore<Option<(&'static str, Line)>>,
}

impl AtNode {
    pub fn remember() -> AtNode {
        AtNode { _restore: Restore::set(&BACKWARD_OF, BACKWARD_OF.get()) }
    }
}

/// Sets the current node of the backward pass.
pub(crate) fn backward_of(op: &Op, at: Line) {
    BACKWARD_OF.set(Some((op.name(), at)));
}

/// Checks the results of an op.
pub(crate) fn check(op: &Op, inputs: &[&Tensor], outs: &[Tensor], at: Line) {
    // A view has the values of its operand; an op without operands makes the values it was given.
    let makes_nothing = inputs.is_empty() || matches!(op, Op::View(_) | Op::Copy | Op::To(_));
    if makes_nothing || trace::active() || FOUND.with_borrow(Option::is_some) {
        return;
    }
    // The log-sum-exp of a query that sees nothing is −∞, as it should be.
    let outs = match op {
        Op::Fused(Fused::Attention(_)) => outs.get(..1).unwrap_or_default(),
        _ => outs,
    };
    // Not counted, or it would recurse.
    let unseen = |f: &mut dyn FnMut()| events::only(0, || mode::set_recording(false, f));
    unseen(&mut || {
        let Some(result) = outs.iter().find(|y| !is_finite(y)) else { return };
        if !inputs.iter().all(|x| is_finite(x)) {
            return;
        }
        let (backward_of, at) = match BACKWARD_OF.get() {
            Some((forward, at)) => (Some(forward), at),
            None => (None, at),
        };
        let source = OverflowSource {
            op: op.name(),
            backward_of,
            at,
            operands: inputs.iter().map(|x| x.spec().clone()).collect(),
            result: result.spec().clone(),
            nan: result.detach().is_nan().any().item::<bool>(),
            largest: inputs.iter().map(|x| largest(x)).fold(0.0, f64::max),
        };
        FOUND.set(Some(source));
    });
}

fn is_finite(x: &Tensor) -> bool {
    !x.dtype().is_float() || x.is_empty() || x.detach().is_finite().all().item::<bool>()
}

fn largest(x: &Tensor) -> f64 {
    match !x.dtype().is_float() || x.is_empty() {
        true => 0.0,
        false => x.detach().abs().max().to_f64_vec()[0],
    }
}
