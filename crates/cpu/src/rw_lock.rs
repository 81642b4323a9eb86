//! The lock of a storage: many readers or one writer.
//!
//! `std::sync::RwLock` exchanges a word atomically twice for every operand of an op, which is as
//! long as a small op takes. This one has a third way in: who reads for less than a microsecond
//! locks *briefly*. Then no other thread changes the word, so that it is released by a plain store.
//! Others wait for a brief reader by spinning, and for all others asleep. There is no poisoning: a
//! kernel that panics leaves numbers.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// One thread reads briefly; the word is just this.
const BRIEF: u32 = 1 << 31;
/// One thread writes.
const WRITER: u32 = 1 << 30;
/// Threads sleep until the word is free. No reader joins others meanwhile, so that writers get
/// their turn.
const WAITING: u32 = 1 << 29;
/// The number of readers.
const READERS: u32 = WAITING - 1;

/// A value that many may read or one may write.
pub struct ReadWriteLock<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: as for `RwLock`.
unsafe impl<T: Send> Send for ReadWriteLock<T> {}
// SAFETY: as for `RwLock`: references to the value are on several threads at once.
unsafe impl<T: Send + Sync> Sync for ReadWriteLock<T> {}
impl<T> UnwindSafe for ReadWriteLock<T> {}
impl<T> RefUnwindSafe for ReadWriteLock<T> {}

/// Where threads sleep, by the address of the lock.
static SLEEPERS: [(Mutex<()>, Condvar); 16] = [const { (Mutex::new(()), Condvar::new()) }; 16];

impl<T> ReadWriteLock<T> {
    /// A value that is not locked.
    #[inline]
    pub const fn new(value: T) -> ReadWriteLock<T> {
        ReadWriteLock { word: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// The value, to which there is no other reference.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// The value, to be read as long as the guard lives.
    #[inline]
    pub fn read(&self) -> ReadGuard<'_, T> {
        let word = self.word.load(Ordering::Relaxed);
        if word >= READERS || !self.swaps(word, word + 1) {
            self.wait(WRITER | WAITING, 1);
        }
        ReadGuard { lock: self, brief: false }
    }

    /// The value, to be read for less than a microsecond.
    #[inline]
    pub fn read_briefly(&self) -> ReadGuard<'_, T> {
        match self.swaps(0, BRIEF) {
            true => ReadGuard { lock: self, brief: true },
            false => self.read(),
        }
    }

    /// The value, to be written.
    #[inline]
    pub fn write(&self) -> WriteGuard<'_, T> {
        if !self.swaps(0, WRITER) {
            self.wait(WRITER | READERS, WRITER);
        }
        WriteGuard { lock: self }
    }

    #[inline]
    fn swaps(&self, from: u32, to: u32) -> bool {
        self.word.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Adds to the word when it has none of these bits.
    #[cold]
    fn wait(&self, unless: u32, by: u32) {
        let mut spins = 0u32;
        loop {
            let word = self.word.load(Ordering::Relaxed);
            if word & (unless | BRIEF) == 0 && word & READERS != READERS {
                if self.swaps(word, word + by) {
                    return;
                }
            } else if word & (WRITER | READERS) != 0 {
                self.sleep();
            }
            // A brief reader, or one that is about to wake those who sleep.
            spins += 1;
            match spins % 64 {
                0 => std::thread::yield_now(),
                _ => std::hint::spin_loop(),
            }
        }
    }

    fn sleepers(&self) -> &'static (Mutex<()>, Condvar) {
        &SLEEPERS[(ptr::from_ref(self).addr() / 64) % SLEEPERS.len()]
    }

    /// Sleeps until the word may be free.
    fn sleep(&self) {
        let (mutex, condition) = self.sleepers();
        let held = mutex.lock().unwrap_or_else(PoisonError::into_inner);
        let word = self.word.load(Ordering::Relaxed);
        // Whoever releases it after this sees the bit, and needs the mutex to wake this thread.
        if word & BRIEF == 0
            && word & (WRITER | READERS) != 0
            && (word & WAITING != 0 || self.swaps(word, word | WAITING))
        {
            drop(condition.wait(held));
        }
    }

    /// Wakes all that sleep, after the word became free.
    #[cold]
    fn wake(&self) {
        let (mutex, condition) = self.sleepers();
        let held = mutex.lock().unwrap_or_else(PoisonError::into_inner);
        self.word.fetch_and(!WAITING, Ordering::Relaxed);
        condition.notify_all();
        drop(held);
    }
}

/// A value that is locked to be read.
pub struct ReadGuard<'a, T> {
    lock: &'a ReadWriteLock<T>,
    brief: bool,
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: nothing is written while the guard exists.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> Drop for ReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let word = &self.lock.word;
        if self.brief {
            word.store(0, Ordering::Release);
        } else if word.fetch_sub(1, Ordering::Release) == WAITING | 1 {
            self.lock.wake();
        }
    }
}

/// A value that is locked to be written.
pub struct WriteGuard<'a, T> {
    lock: &'a ReadWriteLock<T>,
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: only this thread reaches the value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for WriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.lock.word.swap(0, Ordering::Release) & WAITING != 0 {
            self.lock.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize};
    use std::thread;
    use std::time::Duration;

    #[test]
    fn readers_never_see_half_a_write() {
        // Two words that only a torn write makes differ.
        let lock = ReadWriteLock::new((0u64, 0u64));
        let rounds = 200;
        thread::scope(|scope| {
            for way in 0..6 {
                let lock = &lock;
                scope.spawn(move || {
                    for _ in 0..rounds {
                        let seen = match way {
                            0 | 1 => {
                                let mut value = lock.write();
                                value.0 += 1;
                                thread::yield_now();
                                value.1 += 1;
                                *value
                            }
                            2 | 3 => *lock.read_briefly(),
                            _ => *lock.read(),
                        };
                        assert_eq!(seen.0, seen.1);
                    }
                });
            }
        });
        let mut lock = lock;
        assert_eq!(*lock.get_mut(), (2 * rounds, 2 * rounds));
        assert_eq!(*lock.word.get_mut(), 0);
    }

    #[test]
    fn readers_share_it_and_a_writer_waits_for_all_of_them() {
        let (lock, written) = (ReadWriteLock::new(1), AtomicBool::new(false));
        thread::scope(|scope| {
            let (first, second) = (lock.read(), lock.read_briefly());
            scope.spawn(|| {
                *lock.write() = 2;
                written.store(true, Ordering::Release);
            });
            // The writer sleeps before the readers leave.
            while lock.word.load(Ordering::Relaxed) & WAITING == 0 {
                thread::yield_now();
            }
            drop(first);
            thread::sleep(Duration::from_millis(1));
            assert!(*second == 1 && !written.load(Ordering::Acquire));
            drop(second);
        });
        assert!(written.load(Ordering::Acquire) && *lock.read_briefly() == 2);
    }

    #[test]
    fn all_who_sleep_are_woken() {
        let (lock, seen) = (ReadWriteLock::new(0), AtomicUsize::new(0));
        for _ in 0..20 {
            thread::scope(|scope| {
                let mut value = lock.write();
                for way in 0..6 {
                    let (lock, seen) = (&lock, &seen);
                    scope.spawn(move || {
                        match way {
                            0 => *lock.write() += 1,
                            1 => drop(lock.read_briefly()),
                            _ => drop(lock.read()),
                        }
                        seen.fetch_add(1, Ordering::Relaxed);
                    });
                }
                thread::sleep(Duration::from_millis(1));
                *value += 1;
            });
        }
        assert_eq!((seen.into_inner(), *lock.read()), (120, 40));
    }

    #[test]
    fn it_is_released_where_its_owner_panics() {
        let lock = ReadWriteLock::new(1);
        for way in 0..3 {
            let panicked = std::panic::catch_unwind(|| match way {
                0 => {
                    let _guard = lock.write();
                    panic!("on purpose");
                }
                1 => {
                    let _guard = lock.read();
                    panic!("on purpose");
                }
                _ => {
                    let _guard = lock.read_briefly();
                    panic!("on purpose");
                }
            });
            assert!(panicked.is_err() && lock.word.load(Ordering::Relaxed) == 0);
        }
        assert_eq!(*lock.write(), 1);
    }
}
