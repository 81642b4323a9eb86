//! Whether steps run eagerly or compiled: `--jit`.

use crate::limits;
use pullback::{Result, Tree, jit};
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

/// The compiled step within a budget of device memory, or why there is none.
pub fn within<Y: Tree>(bytes: usize, f: impl Fn() -> Y) -> Result<impl Fn() -> Y> {
    let compiled = jit(move |(): &()| f()).memory_budget(bytes);
    compiled.compile(&())?;
    Ok(move || {
        let result = compiled.of(&());
        limits::keep(|| Some(compiled.explain().specialisations.pop()?.program));
        result
    })
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
