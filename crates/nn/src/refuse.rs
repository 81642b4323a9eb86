//! How a layer that is asked for the impossible says so.

use pullback::{Error, Result, jit};
use std::panic::Location;

/// Leaves a formula with an error that names the caller's line: a panic with its text, which [`pullback::catch`] turns back into an `Err`.
#[track_caller]
pub(crate) fn refuse(error: Error) -> ! {
    let error = error.at(Location::caller());
    // The way in which Pullback itself leaves formulas, as it is open to other crates: a function that fails, called op by op.
    jit(|(): &()| -> Result<()> { Err(error.clone()) }).as_it_is(&());
    unreachable!("an error was raised")
}

/// Refuses with a sentence unless `fits`. The sentence is made only where it is needed.
#[track_caller]
pub(crate) fn demand(fits: bool, layer: &'static str, sentence: impl FnOnce() -> String) {
    if !fits {
        refuse(Error::argument(layer, sentence()));
    }
}
