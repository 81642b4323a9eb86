//! Errors of layers, with the caller's line.

use pullback::{CallerLineGuard, Error, Line, no_grad, raise, user_line, with_caller_lines};

/// Raises an error that names the caller's line: a panic with its text, which [`pullback::catch`]
/// turns back into an `Err`.
#[track_caller]
pub(crate) fn refuse(error: Error) -> ! {
    raise(error.at(user_line(Line::caller())))
}

/// Until the guard is dropped, errors, the tape and reports name the caller's line instead of
/// lines of this crate, also across closures and trait objects, which `#[track_caller]` does not
/// cross.
#[track_caller]
pub(crate) fn called() -> CallerLineGuard {
    with_caller_lines(Line::caller(), file!().trim_end_matches("refuse.rs"))
}

/// Raises an error unless `fits`. The message is only formatted if needed.
#[track_caller]
pub(crate) fn demand(fits: bool, layer: &'static str, sentence: impl FnOnce() -> String) {
    if !fits {
        refuse(Error::argument(layer, sentence()));
    }
}

/// Runs a layer for a caller whose line is known: in a closure that runs later, or elsewhere.
pub(crate) fn called_at<R>(at: Line, f: impl FnOnce() -> R) -> R {
    let _line = with_caller_lines(at, file!().trim_end_matches("refuse.rs"));
    f()
}

/// [`no_grad`] for what a layer does to its buffers, with the caller's line in errors.
#[track_caller]
pub(crate) fn unrecorded<R>(f: impl FnOnce() -> R) -> R {
    let _line = called();
    no_grad(f)
}

/// A vector with capacity for `count` layers: a number that memory cannot hold is an error, not an
/// abort.
#[track_caller]
pub(crate) fn try_reserve<T>(layer: &'static str, count: usize) -> Vec<T> {
    let mut layers = Vec::new();
    let fits = layers.try_reserve_exact(count).is_ok();
    demand(fits, layer, || format!("cannot allocate {count} layers"));
    layers
}
