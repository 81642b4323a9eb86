//! Updates of parameters: the new values have the shapes of the old ones.

use super::{Specs, wrong_arity};
use crate::{Adam, DType, Error, Fused, Result, Sgd, Spec};

/// The parameter, and the momentum if there is one.
pub(super) fn sgd(how: Sgd, inputs: &[&Spec]) -> Result<Specs> {
    let states = usize::from(how.remembers());
    update(Fused::Sgd(how).name(), inputs, 1 + states, how.remembers())
}

/// The parameter, the means of its gradient and of its square, and the largest of the latter
/// (AMSGrad).
pub(super) fn adam(how: Adam, inputs: &[&Spec]) -> Result<Specs> {
    update(Fused::Adam(how).name(), inputs, 3 + usize::from(how.amsgrad), true)
}

/// `targets` tensors and a gradient, all of one spec, a step counter if needed, and a learning
/// rate.
fn update(op: &'static str, inputs: &[&Spec], targets: usize, counts: bool) -> Result<Specs> {
    let wanted = targets + 2 + usize::from(counts);
    if inputs.len() != wanted {
        return Err(wrong_arity(op, inputs.len(), wanted));
    }
    let x = inputs[0];
    if !x.dtype.is_float() {
        return Err(Error::dtype(op, format!("updates floats, not {x}")).on([x]));
    }
    for &other in &inputs[1..=targets] {
        if other != x {
            let message = format!("{other} does not match the parameter {x}");
            return Err(match other.dtype == x.dtype {
                true => Error::shape(op, message),
                false => Error::dtype(op, message),
            }
            .on([x, other]));
        }
    }
    if counts {
        let step = inputs[wanted - 2];
        if !step.shape.is_empty() || step.dtype != DType::I64 {
            let message = format!("the number of the step is i64[], not {step}");
            return Err(Error::shape(op, message).on([step]));
        }
    }
    let rate = inputs[wanted - 1];
    if !rate.shape.is_empty() || !rate.dtype.is_float() {
        let message = format!("the learning rate must be a float scalar, not {rate}");
        return Err(Error::shape(op, message).on([rate]));
    }
    Ok(inputs[..targets].iter().map(|&x| x.clone()).collect())
}
