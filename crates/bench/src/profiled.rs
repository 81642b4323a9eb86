//! Whether the kernels of a step are timed, one by one, after each measurement: `--profile`.

use std::cell::Cell;

thread_local! {
    static PROFILED: Cell<bool> = const { Cell::new(false) };
}

/// Times kernels from now on, on this thread.
pub fn switch_on() {
    PROFILED.set(true);
}

/// Whether kernels are timed.
pub fn on() -> bool {
    PROFILED.get()
}

/// Runs a step once more and prints what its kernels took, where the standard output has results.
pub fn print(step: impl FnOnce()) {
    match pullback::profile_device(pullback::default_device(), step) {
        Ok((_, profile)) => eprintln!("{profile}"),
        Err(error) => eprintln!("{error}"),
    }
}
