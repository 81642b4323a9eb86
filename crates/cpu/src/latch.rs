//! A lock for a few instructions.
//!
//! Ops lock the state of operands that have a history, for as long as it takes to copy a
//! reference. No thread sleeps on such a lock, so releasing it needs no look at who waits: it is
//! one store, where `std::sync::Mutex` swaps. An atomic exchange costs as much as twenty plain
//! instructions, and a small op did some thirty of them. There is no poisoning: what is locked is
//! never half-written. What a value held before it is replaced is dropped after the lock is
//! released, as destructors of users may run then.
//!
//! A latch also knows whether its value was ever written: most never are, and one load tells.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};

/// How often a thread spins before the owner, who may have lost the core, is given time to run.
const SPINS: u32 = 64;

/// A value behind a lock that is held for a few instructions.
#[derive(Default)]
pub struct Latch<T> {
    /// [`UNTOUCHED`], [`TOUCHED`] or [`TAKEN`]. A whole word: next to bytes without a value, what
    /// is made in its place would be made elsewhere and copied.
    flag: AtomicUsize,
    value: UnsafeCell<T>,
}

/// The value is the one it was made with.
const UNTOUCHED: usize = 0;
/// It could be written.
const TOUCHED: usize = 1;
/// A guard has it.
const TAKEN: usize = 2;

// SAFETY: as for `Mutex`: only the thread that has the guard reaches the value.
unsafe impl<T: Send> Send for Latch<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Latch<T> {}
impl<T> UnwindSafe for Latch<T> {}
impl<T> RefUnwindSafe for Latch<T> {}

impl<T> Latch<T> {
    /// A value that is not locked.
    #[inline]
    pub const fn new(value: T) -> Latch<T> {
        Latch { flag: AtomicUsize::new(UNTOUCHED), value: UnsafeCell::new(value) }
    }

    /// The value, until the guard is dropped. Must not be called by a thread that has the guard.
    #[inline]
    pub fn lock(&self) -> LatchGuard<'_, T> {
        match self.flag.swap(TAKEN, Ordering::Acquire) {
            TAKEN => LatchGuard { latch: self, after: self.wait() },
            after => LatchGuard { latch: self, after },
        }
    }

    /// Whether the value cannot have been written since it was created; false while it is locked.
    #[inline]
    pub fn is_untouched(&self) -> bool {
        self.flag.load(Ordering::Acquire) == UNTOUCHED
    }

    /// The value, to which there is no other reference.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        *self.flag.get_mut() = TOUCHED;
        self.value.get_mut()
    }

    /// The value, while it is being made: what is set now is what it was made with.
    #[inline]
    pub fn initial_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    #[cold]
    fn wait(&self) -> usize {
        let mut spins = 0;
        loop {
            // A load does not take the cache line from the owner.
            if self.flag.load(Ordering::Relaxed) != TAKEN {
                let before = self.flag.swap(TAKEN, Ordering::Acquire);
                if before != TAKEN {
                    return before;
                }
            }
            spins += 1;
            match spins % SPINS {
                0 => std::thread::yield_now(),
                _ => std::hint::spin_loop(),
            }
        }
    }
}

/// A locked value.
pub struct LatchGuard<'a, T> {
    latch: &'a Latch<T>,
    /// The flag when it is released.
    after: usize,
}

impl<T> Deref for LatchGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard has the latch.
        unsafe { &*self.latch.value.get() }
    }
}

impl<T> DerefMut for LatchGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.after = TOUCHED;
        // SAFETY: as above.
        unsafe { &mut *self.latch.value.get() }
    }
}

impl<T> Drop for LatchGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.latch.flag.store(self.after, Ordering::Release);
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
    fn a_value_is_touched_where_it_could_be_written() {
        let mut latch = Latch::new(1);
        assert!(*latch.lock() == 1 && latch.is_untouched());
        {
            let _guard = latch.lock();
            assert!(!latch.is_untouched());
        }
        assert!(latch.is_untouched());
        *latch.lock() = 2;
        assert!(!latch.is_untouched() && *latch.lock() == 2 && !latch.is_untouched());
        let mut other = Latch::new(1);
        *other.initial_mut() = 2;
        assert!(other.is_untouched() && *other.lock() == 2);
        *other.get_mut() = 3;
        assert!(!other.is_untouched());
        *latch.get_mut() = 4;
        assert!(!latch.is_untouched());
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
