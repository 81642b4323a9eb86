//! Whether steps run eagerly or compiled: `--jit`.

use crate::limits;
use pullback::{Tree, jit};
use std::cell::Cell;

thread_local! {
    static COMPILED: Cell<bool> = const { Cell::new(false) };
}

/// Compiles from now on, on this thread.
pub fn switch_on() {
    COMPILED.set(true);
}

/// Whether steps are compiled.
pub fn on() -> bool {
    COMPILED.get()
}

/// The step, eager or compiled.
pub fn step<Y: Tree>(f: impl Fn() -> Y) -> impl Fn() -> Y {
    let fast = on().then_some(());
    let compiled = jit(move |(): &()| f());
    move || match fast {
        Some(()) => {
            let result = compiled.of(&());
            limits::keep(|| Some(compiled.explain().specialisations.pop()?.program));
            result
        }
        None => compiled.eager(&()),
    }
}
