//! Switches that trade exactness for speed: TF32, and order of sums that may differ between runs.
//!
//! A user sets them for the process or for a scope of one thread. A backend reads them when it runs
//! an op or a program, in the thread that called it, so a program that is compiled once follows the
//! switches of each call. What a backend keeps for later calls (plans, graphs of kernels) has
//! [`Numerics::now`] in its key. The CPU has one way to compute and reads neither.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};

/// The switches, as they are for one op or for one run of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Numerics {
    /// See [`tf32_allowed`].
    pub tf32: bool,
    /// See [`deterministic`].
    pub deterministic: bool,
}

thread_local! {
    /// What the scopes around say.
    static SCOPE: Cell<[Option<bool>; 2]> = const { Cell::new([None; 2]) };
}

/// A switch of the process.
struct Switch {
    /// Where the scope has it.
    number: usize,
    variable: &'static str,
    otherwise: bool,
    /// 0 or 1, or [`UNSET`] until it is set or read.
    value: AtomicU8,
}

const UNSET: u8 = u8::MAX;

static TF32: Switch = Switch::new(0, "PULLBACK_TF32", false);
static DETERMINISTIC: Switch = Switch::new(1, "PULLBACK_DETERMINISTIC", true);

impl Switch {
    const fn new(number: usize, variable: &'static str, otherwise: bool) -> Switch {
        Switch { number, variable, otherwise, value: AtomicU8::new(UNSET) }
    }

    #[inline]
    fn get(&self) -> bool {
        SCOPE.get()[self.number].unwrap_or_else(|| match self.value.load(Ordering::Relaxed) {
            UNSET => self.first(),
            value => value == 1,
        })
    }

    #[cold]
    fn first(&self) -> bool {
        let text = std::env::var(self.variable).unwrap_or_default();
        let value = parsed(&text).unwrap_or(self.otherwise);
        // Unless another thread has set it meanwhile.
        let (new, order) = (u8::from(value), Ordering::Relaxed);
        match self.value.compare_exchange(UNSET, new, order, order) {
            Ok(_) => value,
            Err(set) => set == 1,
        }
    }

    fn set(&self, value: bool) {
        self.value.store(u8::from(value), Ordering::Relaxed);
    }

    fn scope<R>(&self, value: bool, f: impl FnOnce() -> R) -> R {
        let mut inside = SCOPE.get();
        inside[self.number] = Some(value);
        within(inside, f)
    }
}

/// The value of an environment variable.
fn parsed(text: &str) -> Option<bool> {
    match text.trim() {
        "1" | "true" | "on" => Some(true),
        "0" | "false" | "off" => Some(false),
        _ => None,
    }
}

/// Runs `f` with what a scope says, which ends also if `f` panics.
fn within<R>(inside: [Option<bool>; 2], f: impl FnOnce() -> R) -> R {
    struct RestoreNumerics([Option<bool>; 2]);
    impl Drop for RestoreNumerics {
        fn drop(&mut self) {
            SCOPE.set(self.0);
        }
    }
    let _restore = RestoreNumerics(SCOPE.replace(inside));
    f()
}

/// Whether a backend may round the operands of `f32` products and convolutions to TF32, whose
/// mantissa has 10 bits instead of 23; sums stay in `f32`. Off unless a scope ([`with_tf32`]), the
/// process ([`set_tf32`]) or the environment variable `PULLBACK_TF32` (0 or 1) says otherwise.
#[inline]
pub fn tf32_allowed() -> bool {
    TF32.get()
}

/// Whether the same call must give the same bits in every run on the same chip and library
/// versions. On unless a scope ([`with_deterministic`]), the process ([`set_deterministic`]) or the
/// environment variable `PULLBACK_DETERMINISTIC` (0 or 1) says otherwise.
#[inline]
pub fn deterministic() -> bool {
    DETERMINISTIC.get()
}

/// Sets [`tf32_allowed`] while `f` runs in this thread.
pub fn with_tf32<R>(allowed: bool, f: impl FnOnce() -> R) -> R {
    TF32.scope(allowed, f)
}

/// Sets [`deterministic`] while `f` runs in this thread.
pub fn with_deterministic<R>(on: bool, f: impl FnOnce() -> R) -> R {
    DETERMINISTIC.scope(on, f)
}

/// Sets [`tf32_allowed`] for all threads, outside of scopes.
pub fn set_tf32(allowed: bool) {
    TF32.set(allowed);
}

/// Sets [`deterministic`] for all threads, outside of scopes.
pub fn set_deterministic(on: bool) {
    DETERMINISTIC.set(on);
}

impl Numerics {
    /// The switches of this moment, in this thread.
    #[inline]
    pub fn now() -> Numerics {
        Numerics { tf32: tf32_allowed(), deterministic: deterministic() }
    }

    /// Runs `f` with these switches: what was computed before is computed again as it was, or work
    /// is done in another thread as in this one.
    pub fn scope<R>(self, f: impl FnOnce() -> R) -> R {
        within([Some(self.tf32), Some(self.deterministic)], f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_scope_decides() {
        assert_eq!(Numerics::now(), Numerics { tf32: false, deterministic: true });
        with_tf32(true, || {
            assert_eq!(Numerics::now(), Numerics { tf32: true, deterministic: true });
            let seen = with_deterministic(false, || with_tf32(false, Numerics::now));
            assert_eq!(seen, Numerics { tf32: false, deterministic: false });
            assert!(tf32_allowed() && deterministic());
            // Another thread is outside; the switches may be taken there.
            let here = Numerics::now();
            let there = || (tf32_allowed(), here.scope(tf32_allowed));
            assert_eq!(std::thread::scope(|s| s.spawn(there).join().unwrap()), (false, true));
        });
        assert!(!tf32_allowed());
    }

    #[test]
    fn a_scope_ends_with_a_panic() {
        let failed = std::panic::catch_unwind(|| with_tf32(true, || panic!("on purpose")));
        assert!(failed.is_err() && !tf32_allowed());
    }

    #[test]
    fn a_switch_of_the_process_begins_with_its_variable() {
        static SWITCH: Switch = Switch::new(1, "PULLBACK_NOT_SET_BY_ANYBODY", true);
        assert!(SWITCH.get());
        SWITCH.set(false);
        assert!(!SWITCH.get() && SWITCH.scope(true, || SWITCH.get()));
        SWITCH.set(true);
        assert!(SWITCH.get());
        let values = ["1", " on\n", "0", "false", "", "2"].map(parsed);
        assert_eq!(values, [Some(true), Some(true), Some(false), Some(false), None, None]);
    }
}
