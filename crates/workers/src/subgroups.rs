//! The numbers of sub-groups.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

/// How many sub-groups of the same ranks a worker has made of a group.
#[derive(Default)]
pub(crate) struct Subgroups(Mutex<HashMap<Vec<usize>, u64>>);

impl Subgroups {
    /// The number of one more sub-group of these ranks: the same on all workers of the group.
    pub(crate) fn next(&self, group: u64, ranks: &[usize]) -> u64 {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = made.entry(ranks.to_vec()).or_default();
        *count += 1;
        let mut hasher = DefaultHasher::new();
        (group, ranks, *count).hash(&mut hasher);
        hasher.finish()
    }
}
