//! Whether the workloads of GPUs run in a small size, a few times: `--quick`. Their checks are made
//! all the same, so a machine without a GPU can tell whether they still work.

use std::cell::Cell;

thread_local! {
    static QUICK: Cell<bool> = const { Cell::new(false) };
}

/// Runs small from now on, on this thread.
pub fn switch_on() {
    QUICK.set(true);
}

/// Whether workloads run small.
pub fn on() -> bool {
    QUICK.get()
}

/// The size of the peers, or the small one.
pub fn size<T>(full: T, small: T) -> T {
    if on() { small } else { full }
}
