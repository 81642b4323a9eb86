//! Effects on the caller's tensors that a program cannot have, and what a body cannot do to an
//! enclosing `no_grad`.

use super::{ACTIVE, TraceKind, address, current};
use crate::{Error, Result, Tensor, fail};
use pullback_ir::{ErrorKind, Line};

const LIFTS: &str = "it switches recording on, and was called inside no_grad";
const MARKS: &str = "it marks a tensor of its caller as requiring grad, or no longer";
const READS_GRADIENT: &str = "it reads the gradient of an argument";

/// The innermost whole function that is traced must not be compiled.
fn go_op_by_op(why: &'static str) {
    ACTIVE.with_borrow(|all| {
        if let Some(whole) = all.iter().rev().find(|trace| !trace.is_body()) {
            whole.uncompiled.set(Some(why));
        }
    });
}

/// A tensor is about to become a leaf, or to stop being one. For the caller's tensor, such as an
/// argument, that holds after the call: a program cannot do that. `changes` says whether it is
/// something else now.
pub(crate) fn marks(x: &Tensor, changes: bool, at: Line) -> Result<()> {
    let Some(trace) = current() else { return Ok(()) };
    let argument = trace.log.borrow().arguments.contains(&address(x));
    let outside = changes && !trace.owns(x) && !trace.made(x);
    match trace.kind {
        TraceKind::Whole if outside => {
            trace.note(x);
            go_op_by_op(MARKS);
        }
        TraceKind::Whole if argument => go_op_by_op(MARKS),
        // Elsewhere the argument is the function's own: a row, an example, an alias.
        TraceKind::Body(name @ ("cond" | "while_loop" | "scan")) if argument => {
            return Err(refused_mark(x, &format!("an argument of a body of {name}"), at));
        }
        TraceKind::Body(name) if outside => {
            return Err(refused_mark(x, &format!("a tensor that a body of {name} captures"), at));
        }
        TraceKind::Whole | TraceKind::Body(_) => {}
    }
    Ok(())
}

fn refused_mark(x: &Tensor, what: &str, at: Line) -> Error {
    // Called eagerly, the function may do that.
    go_op_by_op(MARKS);
    let message = format!("{what} is marked as requiring grad, or no longer, inside the body");
    Error::new(ErrorKind::Gradient, "requires_grad", message)
        .on([x.spec()])
        .at(at)
        .hint("mark x.detach(), or compute the gradient with grad(..)")
}

/// The gradient of a tensor is read or changed. The caller's tensor may have one where the traced
/// argument does not.
pub(crate) fn note_gradient_read(x: &Tensor) {
    if let Some(trace) = current().filter(|trace| trace.in_no_grad && !trace.is_body())
        && trace.log.borrow().arguments.contains(&address(x))
    {
        go_op_by_op(READS_GRADIENT);
    }
}

/// Refuses to lift a `no_grad` that encloses the innermost body: the body is replayed inside it.
pub(crate) fn check_lifting(at: Line) {
    let Some(trace) = current().filter(|trace| trace.in_no_grad) else { return };
    match trace.kind {
        TraceKind::Whole => trace.uncompiled.set(Some(LIFTS)),
        TraceKind::Body(name) => {
            let message = format!(
                "recording is switched on inside the body of {name}, which was called inside no_grad"
            );
            go_op_by_op(LIFTS);
            let error = Error::new(ErrorKind::Gradient, "enable_grad", message).at(at);
            fail::raise(error.hint("switch it on outside the body, or call grad(..) inside"));
        }
    }
}

/// Whether a write to this value inside `no_grad` would change what a derivative outside the
/// innermost body sees.
pub(crate) fn may_be_differentiated(x: &Tensor, at: Line) -> Result<bool> {
    match current() {
        Some(trace) if trace.is_body() && trace.is_cut() && trace.owns(x) => {
            trace.depends_on_floats(x, at)
        }
        _ => Ok(false),
    }
}
