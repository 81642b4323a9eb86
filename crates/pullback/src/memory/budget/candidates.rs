//! The values that may be dropped, ordered so that the one to drop is found by comparing a few of
//! them.
//!
//! What it costs to drop a value, `work / (bytes · √age)`, falls as it grows old: for each value at
//! its own rate, so no order of them stays valid. But of values of one *cost_per_byte*, the work
//! for a byte, the oldest is always dropped first. So they are in classes of nearly the same cost
//! per byte, eight to a factor of two, each in the order of last use, and only the oldest of each
//! class are compared. The one found costs at most an eighth more than the best.
//!
//! The rank of a value changes when it is used and when something it depends on is dropped or
//! recomputed; while it is needed for something else it has none.

use super::state::{BudgetEntry, BudgetState};
use std::collections::{BTreeMap, BTreeSet};

/// Classes, by cost per byte; in each of them when a value was used last, its number, and the
/// entry.
pub(super) type Candidates = BTreeMap<u64, BTreeSet<Rank>>;
type Rank = (u64, u64, usize);

/// Positive numbers have the order of their bits, of which these are the exponent and the first
/// three of the fraction.
fn class(cost_per_byte: f64) -> u64 {
    cost_per_byte.to_bits() >> 49
}

impl BudgetEntry {
    /// The work of making it again, with what is missing below it, for a byte.
    pub fn cost_per_byte(&self) -> f64 {
        self.cost() as f64 / self.bytes.max(1) as f64
    }

    fn may_be_dropped(&self) -> bool {
        self.held.is_some() && self.recipe.is_some() && self.locks == 0
    }
}

impl BudgetState {
    /// Brings the place of an entry up to date.
    pub fn place(&mut self, id: usize) {
        let entry = &mut self.entries[id];
        let place = (entry.used, entry.number, id);
        let new = entry.may_be_dropped().then(|| (class(entry.cost_per_byte()), place));
        let old = std::mem::replace(&mut entry.place, new);
        if old == new {
            return;
        }
        if let Some((class, place)) = old
            && let Some(members) = self.candidates.get_mut(&class)
        {
            members.remove(&place);
            if members.is_empty() {
                self.candidates.remove(&class);
            }
        }
        if let Some((class, place)) = new {
            self.candidates.entry(class).or_default().insert(place);
        }
    }

    /// The value to drop next, of those whose cost per byte is in no class above that of `most`.
    ///
    /// It is less for one that has not been used for long: backward, which runs in reverse, will
    /// need it last.
    pub fn cheapest(&mut self, most: f64) -> Option<usize> {
        let mut best: Option<(f64, u64, usize)> = None;
        for members in self.candidates.range(..=class(most)).map(|c| c.1) {
            let Some(&(used, number, id)) = members.first() else { continue };
            self.tally.weighed += 1;
            let age = (self.clock - used + 1) as f64;
            let score = self.entries[id].cost_per_byte() / age.sqrt();
            let is_less =
                |b: (f64, u64, usize)| score.total_cmp(&b.0).then(number.cmp(&b.1)).is_lt();
            if best.is_none_or(is_less) {
                best = Some((score, number, id));
            }
        }
        best.map(|b| b.2)
    }
}
