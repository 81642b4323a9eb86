//! Anomaly mode: the first NaN or infinity that a backward pass makes is an error.

use crate::tape::Node;
use crate::{Error, Result, Tensor, mode, trace};
use pullback_ir::ErrorKind;

/// Refuses a gradient of an operand of this node that is not finite.
pub(crate) fn check_finite(node: &Node, operand: usize, dx: &Tensor) -> Result<()> {
    if trace::active() {
        trace::note_value_check();
        return Ok(());
    }
    let dx = dx.detach();
    // Where all is well one value is read, for which a device is waited for: so the error is that
    // of the op itself, there too.
    let is = |f: &dyn Fn(&Tensor) -> Tensor| mode::set_recording(false, || f(&dx).item::<bool>());
    if is(&|dx| dx.is_finite().all()) {
        return Ok(());
    }
    let found = if is(&|dx| dx.is_nan().any()) { "NaN" } else { "an infinity" };
    let which = match node.inputs.len() {
        1 => String::new(),
        _ => format!(" for operand {}", operand + 1),
    };
    let message = format!("backward of `{}` made {found}{which}", node.op.name());
    Err(Error::new(ErrorKind::Anomaly, "", message).on([dx.spec()]).at(node.at))
}
