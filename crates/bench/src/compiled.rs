//! Whether steps run eagerly or compiled: `--jit`.

use pullback::{Tree, jit};
use std::sync::atomic::{AtomicBool, Ordering};

static COMPILED: AtomicBool = AtomicBool::new(false);

/// Compiles from now on.
pub fn switch_on() {
    COMPILED.store(true, Ordering::Relaxed);
}

/// Whether steps are compiled.
pub fn on() -> bool {
    COMPILED.load(Ordering::Relaxed)
}

/// The step, eager or compiled.
pub fn step<Y: Tree>(f: impl Fn() -> Y) -> impl Fn() -> Y {
    let fast = on().then_some(());
    let compiled = jit(move |(): &()| f());
    move || match fast {
        Some(()) => compiled.of(&()),
        None => compiled.eager(&()),
    }
}
