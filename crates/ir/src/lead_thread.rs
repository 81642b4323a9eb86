//! Counting without atomic exchanges, on one thread.
//!
//! An atomic exchange costs as much as twenty plain instructions, and most programs do nearly all
//! of their small work on one thread. So a counter may be two words: one that the *lead* thread
//! alone writes, with plain stores, and one that all others exchange. The lead is the first thread
//! that asks; when it ends, the next thread that asks for the first time follows.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static IS_TAKEN: AtomicBool = AtomicBool::new(false);

#[derive(Clone, Copy, PartialEq, Eq)]
enum ThreadRole {
    Unknown,
    Lead,
    Other,
}

thread_local! {
    static ROLE: Cell<ThreadRole> = const { Cell::new(ThreadRole::Unknown) };
    static END: RoleGuard = const { RoleGuard };
}

/// Gives the role up when the thread ends.
struct RoleGuard;

impl Drop for RoleGuard {
    fn drop(&mut self) {
        // What other destructors of this thread count is counted as by any other thread.
        ROLE.set(ThreadRole::Other);
        IS_TAKEN.store(false, Ordering::Release);
    }
}

/// Whether the calling thread is the lead. What a lead wrote is visible to the next one.
#[inline(always)]
fn is_lead() -> bool {
    match ROLE.get() {
        ThreadRole::Lead => true,
        ThreadRole::Other => false,
        ThreadRole::Unknown => ask(),
    }
}

#[cold]
fn ask() -> bool {
    let free = || IS_TAKEN.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
    // A thread that is ending cannot give the role up any more, so it does not take it.
    let is_lead = END.try_with(|_| free().is_ok()).unwrap_or(false);
    ROLE.set(if is_lead { ThreadRole::Lead } else { ThreadRole::Other });
    is_lead
}

/// A sum that all threads add to and subtract from.
pub struct LeadSum {
    lead: AtomicU64,
    others: AtomicU64,
}

impl LeadSum {
    /// Zero.
    #[must_use]
    pub const fn new() -> LeadSum {
        LeadSum { lead: AtomicU64::new(0), others: AtomicU64::new(0) }
    }

    /// Adds.
    #[inline(always)]
    pub fn add(&self, by: u64) {
        match is_lead() {
            true => {
                let sum = self.lead.load(Ordering::Relaxed).wrapping_add(by);
                self.lead.store(sum, Ordering::Relaxed);
            }
            false => _ = self.others.fetch_add(by, Ordering::Relaxed),
        }
    }

    /// Subtracts, and returns the sum before.
    #[inline(always)]
    pub fn subtract(&self, by: u64) -> u64 {
        let before = match is_lead() {
            true => {
                let lead = self.lead.load(Ordering::Relaxed);
                self.lead.store(lead.wrapping_sub(by), Ordering::Relaxed);
                lead.wrapping_add(self.others.load(Ordering::Relaxed))
            }
            false => {
                let others = self.others.fetch_sub(by, Ordering::Relaxed);
                others.wrapping_add(self.lead.load(Ordering::Relaxed))
            }
        };
        not_negative(before)
    }

    /// The sum: exact, unless another thread changes it at the same time.
    #[inline]
    pub fn get(&self) -> u64 {
        let others = self.others.load(Ordering::Relaxed);
        not_negative(others.wrapping_add(self.lead.load(Ordering::Relaxed)))
    }
}

impl Default for LeadSum {
    fn default() -> LeadSum {
        LeadSum::new()
    }
}

/// What one thread added and another subtracted while the two words were read may be missing.
#[inline(always)]
fn not_negative(sum: u64) -> u64 {
    if sum > i64::MAX as u64 { 0 } else { sum }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// Each role, also one that is given up and taken again, counts into the same sum.
    #[test]
    fn sums_are_exact_when_nobody_counts() {
        static SUM: LeadSum = LeadSum::new();
        for round in 1..20 {
            let count = move || {
                for _ in 0..1_000 {
                    SUM.add(7);
                    assert!(SUM.subtract(4) >= 4);
                }
            };
            let threads: Vec<_> = (0..3).map(|_| thread::spawn(count)).collect();
            threads.into_iter().for_each(|t| t.join().expect("no thread panics"));
            assert_eq!(SUM.get(), round * 3 * 3_000);
        }
        // What others added, this thread may subtract.
        assert_eq!(SUM.subtract(10), 19 * 9_000);
        assert_eq!(SUM.get(), 19 * 9_000 - 10);
    }
}
