//! Why a call runs op by op instead of as a program.

use crate::memory::checkpoint;
use crate::transform::levels;
use crate::{Tensor, kinks, mode, trace, watch};

/// Why a call must run op by op, if it must: something outside observes its ops.
pub(super) fn reason_to_run_eagerly(leaves: &[Tensor]) -> Option<&'static str> {
    if trace::active() {
        return Some("it was called inside a trace, and is part of that program");
    }
    if checkpoint::is_watching() || checkpoint::is_replaying() {
        return Some(
            "a checkpointed function calls it, which must see what it draws, reads and writes",
        );
    }
    if watch::is_active() {
        return Some("every value is checked for overflow");
    }
    if kinks::is_counting() {
        return Some("elements on kinks are being counted");
    }
    if mode::anomaly() {
        return Some("every gradient is checked for NaN and infinity");
    }
    if levels::any() {
        return Some("forward mode is active outside");
    }
    let tracked = mode::is_grad_enabled() && leaves.iter().any(Tensor::is_tracked);
    match tracked || leaves.iter().any(Tensor::carries_tangents) {
        true => Some(
            "an argument requires grad or is differentiated outside (capture a model instead of passing it, or call inside no_grad)",
        ),
        false => None,
    }
}
