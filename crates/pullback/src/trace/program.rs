//! `trace`: a function as a program.

use super::{FinishedTrace, TraceKind, record};
use crate::{Result, Spec, Tensor, Tree, mode};
use pullback_ir::{Line, Program};

/// Records what a function does to arguments of these specs, and computes nothing.
///
/// Everything inside is recorded, gradients included. Captured tensors
/// become inputs of the program after the arguments; those it writes to become outputs that replace
/// them (`into`).
///
/// ```
/// use pullback::{DType, Spec, Tensor, trace};
/// let w = Tensor::from([1.0f32, 2.0]);
/// let program = trace(|x: &[Tensor]| (&x[0] * &w).sum(), &[Spec::cpu(DType::F32, [2])]).unwrap();
/// let text = program.to_string();
/// assert!(text.contains("let c: f32[2] = mul a b"), "{text}");
/// assert!(text.contains("return d"), "{text}");
/// ```
///
/// # Errors
/// If the function reads a traced value, or anything else in it fails: the error names the line.
#[track_caller]
pub fn trace<Y: Tree>(f: impl FnOnce(&[Tensor]) -> Y, specs: &[Spec]) -> Result<Program> {
    let at = mode::user_line(Line::caller());
    let recorded = whole(f, specs, at)?.1;
    Ok(recorded.program.renumbered())
}

/// The result as it was traced, and the trace.
pub(crate) fn whole<Y: Tree>(
    f: impl FnOnce(&[Tensor]) -> Y,
    specs: &[Spec],
    at: Line,
) -> Result<(Y, FinishedTrace)> {
    crate::fail::catch(|| {
        record(TraceKind::Whole, None, specs, at, |arguments| {
            let y = f(arguments);
            let outputs = y.leaves();
            (y, outputs)
        })
    })?
}
