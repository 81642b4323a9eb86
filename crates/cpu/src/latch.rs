//! A lock for a few instructions.
//!
//! Every op locks the state of its operands, for as long as it takes to copy a reference. Nobody
//! sleeps on such a lock, so releasing it needs no look at who waits: it is one store, where
//! `std::sync::Mutex` swaps. An atomic exchange costs as much as twenty plain instructions, and a
//! small op did some thirty of them. There is no poisoning: what is locked is never half-written.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};

/// Looks at a taken latch before its owner, who may have lost the core, is given time to run.
const LOOKS: u32 = 64;

/// A value behind a lock that is held for a few instructions.
#[derive(Default)]
pub struct Latch<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: as for `Mutex`: only the thread that has the guard reaches the value.
unsafe impl<T: Send> Send for Latch<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Latch<T> {}
impl<T> UnwindSafe for Latch<T> {}
impl<T> RefUnwindSafe for Latch<T> {}

impl<T> Latch<T> {
    /// A value that nobody has locked.
    #[inline]
    pub const fn new(value: T) -> Latch<T> {
        Latch { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// The value, until the guard is dropped. Must not be called by a thread that has the guard.
    #[inline]
    pub fn lock(&self) -> LatchGuard<'_, T> {
        if self.taken.swap(true, Ordering::Acquire) {
            self.wait();
        }
        LatchGuard(self)
    }

    /// The value, which nobody else can reach.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    #[cold]
    fn wait(&self) {
        let mut looks = 0;
        while self.taken.load(Ordering::Relaxed) || self.taken.swap(true, Ordering::Acquire) {
            looks += 1;
            match looks % LOOKS {
                0 => std::thread::yield_now(),
                _ => std::hint::spin_loop(),
            }
        }
    }
}

/// A locked value.
pub struct LatchGuard<'a, T>(&'a Latch<T>);

impl<T> Deref for LatchGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard has the latch.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for LatchGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for LatchGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn one_thread_at_a_time_has_the_value() {
        // Two words that only a torn write makes differ.
        let latch = Latch::new((0u64, 0u64));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let mut value = latch.lock();
                        assert_eq!(value.0, value.1);
                        value.0 += 1;
                        value.1 += 1;
                    }
                });
            }
        });
        let mut latch = latch;
        assert_eq!(*latch.get_mut(), (8_000, 8_000));
    }

    #[test]
    fn it_is_released_where_its_owner_panics() {
        let latch = Latch::new(1);
        let panicked = std::panic::catch_unwind(|| {
            *latch.lock() = 2;
            let _guard = latch.lock();
            panic!("on purpose");
        });
        assert!(panicked.is_err() && *latch.lock() == 2);
    }
}
