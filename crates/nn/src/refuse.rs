//! How a layer that is asked for the impossible says so.

use pullback::{Error, catch, no_grad, raise};
use std::panic::Location;

/// Leaves a formula with an error that names the caller's line: a panic with its text, which [`pullback::catch`] turns back into an `Err`.
#[track_caller]
pub(crate) fn refuse(error: Error) -> ! {
    raise(error.at(Location::caller()))
}

/// Refuses with a sentence unless `fits`. The sentence is made only where it is needed.
#[track_caller]
pub(crate) fn demand(fits: bool, layer: &'static str, sentence: impl FnOnce() -> String) {
    if !fits {
        refuse(Error::argument(layer, sentence()));
    }
}

/// Runs a layer inside a closure, which the caller's line does not pass: an error names it all the same.
pub(crate) fn called_at<R>(at: &'static Location<'static>, f: impl FnOnce() -> R) -> R {
    match catch(f) {
        Ok(y) => y,
        Err(error) => raise(without_our_line(error).at(at)),
    }
}

/// [`no_grad`] for what a layer does to its buffers, with the caller's line in errors.
#[track_caller]
pub(crate) fn unrecorded<R>(f: impl FnOnce() -> R) -> R {
    called_at(Location::caller(), || no_grad(f))
}

/// An error that came through a pointer or a closure, which the caller's line does not pass: it names a line of this library. [`refuse`] will name
/// the caller instead. An error at a line of the user's, in a layer of their own, stays as it is.
pub(crate) fn without_our_line(error: Error) -> Error {
    let ours = file!().trim_end_matches("refuse.rs");
    if error.location().is_some_and(|at| !at.file().starts_with(ours)) {
        return error;
    }
    let text = error.to_string();
    let hint = text.lines().find_map(|line| line.strip_prefix("  hint: "));
    let details = text.lines().filter_map(|line| line.strip_prefix("  in "));
    let moved = Error::new(error.kind(), error.op().to_string(), error.message());
    let moved = details.fold(moved.on(error.operands()), |e, line| e.detail(format!("in {line}")));
    match hint {
        Some(hint) => moved.hint(hint),
        None => moved,
    }
}

/// Room for so many layers: a number that memory cannot hold is a sentence, not the end of the process.
#[track_caller]
pub(crate) fn room_for<T>(layer: &'static str, count: usize) -> Vec<T> {
    let mut layers = Vec::new();
    let fits = layers.try_reserve_exact(count).is_ok();
    demand(fits, layer, || format!("{count} layers are more than memory holds"));
    layers
}
