//! How a layer that is asked for the impossible says so.

use pullback::{Error, Line, OnBehalf, no_grad, on_behalf_of, raise, user_line};

/// Leaves a formula with an error that names the caller's line: a panic with its text, which
/// [`pullback::catch`] turns back into an `Err`.
#[track_caller]
pub(crate) fn refuse(error: Error) -> ! {
    raise(error.at(user_line(Line::caller())))
}

/// Until what it gives is dropped, lines of this crate are the caller's in errors, on the tape and
/// in reports: also where closures and pointers lie between, which the caller's line does not pass.
#[track_caller]
pub(crate) fn called() -> OnBehalf {
    on_behalf_of(Line::caller(), file!().trim_end_matches("refuse.rs"))
}

/// Refuses with a sentence unless `fits`. The sentence is made only where it is needed.
#[track_caller]
pub(crate) fn demand(fits: bool, layer: &'static str, sentence: impl FnOnce() -> String) {
    if !fits {
        refuse(Error::argument(layer, sentence()));
    }
}

/// Runs a layer for a caller whose line is known: in a closure that runs later, or elsewhere.
pub(crate) fn called_at<R>(at: Line, f: impl FnOnce() -> R) -> R {
    let _line = on_behalf_of(at, file!().trim_end_matches("refuse.rs"));
    f()
}

/// [`no_grad`] for what a layer does to its buffers, with the caller's line in errors.
#[track_caller]
pub(crate) fn unrecorded<R>(f: impl FnOnce() -> R) -> R {
    let _line = called();
    no_grad(f)
}

/// Room for so many layers: a number that memory cannot hold is a sentence, not the end of the
/// process.
#[track_caller]
pub(crate) fn room_for<T>(layer: &'static str, count: usize) -> Vec<T> {
    let mut layers = Vec::new();
    let fits = layers.try_reserve_exact(count).is_ok();
    demand(fits, layer, || format!("{count} layers are more than memory holds"));
    layers
}
