//! What a compiled function has made so far: found by hash, limited in number.

use super::compile::Specialisation;
use super::compiler::Call;
use super::dynamic::ArgumentFamily;
use crate::{Spec, Tensor, mode};
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// How many specialisations a function keeps by default.
pub(super) const LIMIT: usize = 256;
/// How many evicted ones are remembered, to report why they are compiled again.
const REMEMBERED: usize = 1 << 16;

/// The specialisations of one function.
///
/// What can be hashed of the conditions of a specialisation (specs, structure, whether operations
/// are recorded, the budget) is its *key*; of the few with one key, the most recently used ones are
/// tried first.
pub(super) struct Cache {
    /// By number, in the order in which they were made.
    all: BTreeMap<u64, Specialisation>,
    by_key: FxHashMap<u64, SmallVec<[u64; 1]>>,
    next: u64,
    clock: u64,
    limit: usize,
    /// How many were evicted, and their keys.
    pub evicted: usize,
    gone: FxHashSet<u64>,
    /// Arguments that differ only in their dynamic lengths, by the key of that kind.
    pub families: FxHashMap<u64, ArgumentFamily>,
    /// Calls that were not compiled, and why the last of them was not.
    pub uncompiled: (usize, Option<&'static str>),
}

impl Default for Cache {
    fn default() -> Cache {
        Cache {
            all: BTreeMap::new(),
            by_key: FxHashMap::default(),
            next: 0,
            clock: 0,
            limit: LIMIT,
            evicted: 0,
            gone: FxHashSet::default(),
            families: FxHashMap::default(),
            uncompiled: (0, None),
        }
    }
}

/// The key of a call with such arguments, whose structure has this hash, in the modes of now.
pub(super) fn key<'a>(
    specs: impl Iterator<Item = &'a Spec>,
    structure: u64,
    budget: Option<usize>,
) -> u64 {
    let mut hasher = FxHasher::default();
    (structure, mode::is_grad_enabled(), budget).hash(&mut hasher);
    specs.for_each(|spec| spec.hash(&mut hasher));
    hasher.finish()
}

impl Cache {
    /// The specialisation for these arguments.
    pub fn find(
        &mut self,
        key: u64,
        call: &dyn Call,
        leaves: &[Tensor],
        budget: Option<usize>,
    ) -> Option<u64> {
        let fits = |id: &&u64| {
            let s = &self.all[*id];
            s.fits(leaves, budget) && call.has_structure(&s.structure)
        };
        let id = *self.by_key.get(&key)?.iter().rev().find(fits)?;
        self.clock += 1;
        if let Some(found) = self.all.get_mut(&id) {
            found.used = self.clock;
        }
        Some(id)
    }

    /// Whether one with this number is there still.
    pub fn has(&self, id: u64) -> bool {
        self.all.contains_key(&id)
    }

    pub fn get_mut(&mut self, id: u64) -> Option<&mut Specialisation> {
        self.all.get_mut(&id)
    }

    /// All of them, in the order in which they were made.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = &Specialisation> {
        self.all.values()
    }

    /// Whether one with this key was evicted.
    pub fn is_gone(&self, key: u64) -> bool {
        self.gone.contains(&key)
    }

    /// What is known of arguments of one kind. With more kinds than the limit of specialisations,
    /// all are reset.
    pub fn family(&mut self, key: u64) -> &mut ArgumentFamily {
        if self.families.len() >= self.limit && !self.families.contains_key(&key) {
            self.families.clear();
        }
        self.families.entry(key).or_default()
    }

    /// Adds one; the least recently used are evicted if there are too many.
    pub fn insert(&mut self, mut made: Specialisation) -> u64 {
        let id = self.next;
        self.next += 1;
        self.clock += 1;
        made.used = self.clock;
        self.gone.remove(&made.key);
        self.by_key.entry(made.key).or_default().push(id);
        self.all.insert(id, made);
        self.shrink();
        id
    }

    pub fn limit(&self) -> usize {
        self.limit
    }

    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit.max(1);
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.all.len() > self.limit {
            let Some((&id, _)) = self.all.iter().min_by_key(|(_, s)| s.used) else { return };
            let Some(old) = self.all.remove(&id) else { return };
            if let Some(ids) = self.by_key.get_mut(&old.key) {
                ids.retain(|other| *other != id);
                if ids.is_empty() {
                    self.by_key.remove(&old.key);
                }
            }
            self.evicted += 1;
            if self.gone.len() >= REMEMBERED {
                self.gone.clear();
            }
            self.gone.insert(old.key);
        }
    }
}
