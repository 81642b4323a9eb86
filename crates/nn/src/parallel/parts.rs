//! Sums whose bits do not depend on how many workers computed them.
//!
//! The global batch is cut into a fixed number of parts, a power of two. Their gradients are the
//! leaves of a balanced binary tree, ((0 + 1) + (2 + 3)) + …; a worker owns neighbouring parts,
//! which are a subtree, and engines sum over ranks in the same kind of tree. So 1, 2, 4 or 8
//! workers with 8 parts add the same numbers in the same order.

use pullback::{Error, Result, Tensor};
use std::ops::Range;

/// A balanced sum of values that come one after the other: a binary counter, whose digit `k` holds
/// the sum of 2ᵏ values.
#[derive(Default)]
pub(super) struct TreeSum(Vec<(u32, Tensor)>);

impl TreeSum {
    /// Adds a value. After a power of two of them there is one sum.
    pub fn add(&mut self, x: Tensor) {
        let (mut level, mut x) = (0, x);
        while self.0.last().is_some_and(|(held, _)| *held == level) {
            if let Some((_, left)) = self.0.pop() {
                x = left + x;
            }
            level += 1;
        }
        self.0.push((level, x));
    }

    /// The sum of all values, if there are as many as make a whole tree.
    pub fn take(&mut self) -> Option<Tensor> {
        let whole = self.0.len() == 1;
        self.0.pop().filter(|_| whole).map(|(_, x)| x)
    }
}

/// How the examples of a global batch are divided into parts, and parts among workers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Division {
    parts: usize,
    workers: usize,
    rank: usize,
}

impl Division {
    pub fn new(op: &'static str, parts: usize, workers: usize, rank: usize) -> Result<Division> {
        if parts.is_power_of_two() && workers.is_power_of_two() && workers <= parts {
            return Ok(Division { parts, workers, rank });
        }
        let message = format!(
            "{parts} logical workers cannot be divided among {workers} workers in equal halves"
        );
        let hint = "use a power of two, and as many workers or a smaller power of two";
        Err(Error::argument(op, message).hint(hint))
    }

    /// How many parts the global batch has.
    pub fn parts(&self) -> usize {
        self.parts
    }

    /// The parts of this worker.
    pub fn own(&self) -> Range<usize> {
        let each = self.parts / self.workers;
        self.rank * each..(self.rank + 1) * each
    }

    /// The examples of a part, of this many in the global batch.
    pub fn examples(&self, part: usize, total: usize) -> Range<usize> {
        share(part, self.parts, total)
    }
}

/// Part `i` of `parts` nearly equal ones of `0..total`.
pub(crate) fn share(i: usize, parts: usize, total: usize) -> Range<usize> {
    let bound = |i: usize| (i as u128 * total as u128 / parts as u128) as usize;
    bound(i)..bound(i + 1)
}
