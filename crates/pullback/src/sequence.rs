//! The order of things: one counter for nodes, leaves, storages and scopes.
//!
//! An op runs after its operands exist, so numbers descend along every edge of the tape; and what
//! is older than a scope has a smaller number than the one taken where the scope began.

use crate::mode;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

static SEQUENCE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The number at which the current code first ran.
    static MOMENT: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// The number at which the current code first ran: in a replay, that of its first run.
pub(crate) fn moment(now: u64) -> u64 {
    now.min(MOMENT.get())
}

/// Runs `f`, a replay of code that ran at this number.
pub(crate) fn as_of<R>(moment: u64, f: impl FnOnce() -> R) -> R {
    mode::with(&MOMENT, moment, f)
}

/// The number that the next node or leaf will have at least.
pub(crate) fn next_number() -> u64 {
    SEQUENCE.load(Ordering::Relaxed) + 1
}

/// A number between those of what was made before and of what will be made.
pub(crate) fn take_number() -> u64 {
    SEQUENCE.fetch_add(1, Ordering::Relaxed) + 1
}
