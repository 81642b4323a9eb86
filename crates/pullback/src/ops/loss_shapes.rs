//! Which shapes a loss takes. A prediction `[n, 1]` with a target `[n]` would broadcast to
//! `[n, n]`: every prediction compared with every target, with a plausible result. So losses
//! require equal shapes, or what PyTorch documents for the operand.

use crate::{Error, Tensor};

/// Checks that `operands`, each with its name, have the shape of the first.
#[track_caller]
pub(super) fn equal(op: &'static str, operands: &[(&str, &Tensor)]) {
    let [(what, first), rest @ ..] = operands else { return };
    if let Some((name, other)) = rest.iter().find(|(_, x)| x.shape() != first.shape()) {
        let (x, y) = (first.spec(), other.spec());
        let message = format!("{what} {x} and {name} {y} must have the same shape");
        first.checked(Err(Error::shape(op, message).on([x, y]).hint(reshape(first, other))))
    }
}

/// That `y` has the shape `wants`, which follows from `x`.
#[track_caller]
pub(super) fn wanted(
    op: &'static str,
    (what, x): (&str, &Tensor),
    (name, y): (&str, &Tensor),
    wants: &[usize],
) {
    if y.shape() != wants {
        let message =
            format!("{what} {} requires {name} of shape {wants:?}, not {}", x.spec(), y.spec());
        let error = Error::shape(op, message).on([x.spec(), y.spec()]);
        x.checked(Err(error.hint(reshape_to(y, wants))))
    }
}

/// That `weight` repeats to the shape of the losses, and does not enlarge them.
#[track_caller]
pub(super) fn repeats_to(op: &'static str, x: &Tensor, name: &str, weight: &Tensor) {
    let (to, from) = (x.shape(), weight.shape());
    let fits = from.len() <= to.len()
        && from.iter().rev().zip(to.iter().rev()).all(|(&w, &n)| w == n || w == 1);
    if !fits {
        let message =
            format!("{name} {} does not repeat to the shape of {}", weight.spec(), x.spec());
        let error = Error::shape(op, message).on([x.spec(), weight.spec()]);
        x.checked(Err(error.hint(reshape(x, weight))))
    }
}

/// `variance` or a target as a Gaussian likelihood takes them: shaped as `x`, or so with one axis
/// of length 1. With `fewer`, also without the last axis of `x` (one number for each row) or 0-d.
/// Comes back in a shape that repeats to that of `x`.
#[track_caller]
pub(super) fn gaussian(
    op: &'static str,
    x: &Tensor,
    (name, v): (&str, &Tensor),
    fewer: bool,
) -> Tensor {
    let (n, own) = (x.shape(), v.shape());
    let mut other = n.iter().zip(own).filter(|(a, b)| a != b);
    let mut one_axis = || match (other.next(), other.next()) {
        (None, _) => true,
        (Some((_, &b)), None) => b == 1,
        (Some(_), Some(_)) => false,
    };
    if own.len() == n.len() && one_axis() {
        return v.clone();
    }
    if fewer && own.is_empty() {
        return v.clone();
    }
    if fewer && !n.is_empty() && own == &n[..n.len() - 1] {
        return v.unsqueeze(-1);
    }
    let or = match fewer {
        true => ", with one axis of length 1, without the last axis, or 0-d",
        false => ", or with one axis of length 1",
    };
    let message = format!("{name} {} must have the shape of the mean {}{or}", v.spec(), x.spec());
    let error = Error::shape(op, message).on([x.spec(), v.spec()]);
    x.checked(Err(error.hint(reshape(x, v))))
}

/// A hint how to give an operand the required shape.
pub(super) fn reshape_to(y: &Tensor, wants: &[usize]) -> String {
    match y.len() == wants.iter().product() {
        true => format!("`.reshape({wants:?})` gives it that shape"),
        false => "reshape, index or expand it until it has that shape".to_string(),
    }
}

/// A hint how to make the shapes of two operands of a loss equal.
fn reshape(x: &Tensor, y: &Tensor) -> String {
    if x.len() == y.len() {
        format!("reshape one of them, as with `.reshape({:?})` on the second", x.shape())
    } else {
        format!("reshape or index them until both are {:?}, or repeat one with `expand`", x.shape())
    }
}
