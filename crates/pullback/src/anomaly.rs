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
    let (nan, infinite) = mode::set_recording(false, || (dx.is_nan().any(), dx.is_inf().any()));
    let found = match (nan.item::<bool>(), infinite.item::<bool>()) {
        (true, _) => "NaN",
        (_, true) => "an infinity",
        _ => return Ok(()),
    };
    let which = match node.inputs.len() {
        1 => String::new(),
        _ => format!(" for operand {}", operand + 1),
    };
    let message = format!("backward of `{}` made {found}{which}", node.op.name());
    Err(Error::new(ErrorKind::Anomaly, "", message).on([dx.spec()]).at(node.at))
}
