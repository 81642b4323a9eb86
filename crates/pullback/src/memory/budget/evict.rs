//! Eviction: for lack of memory, or because a value is not needed.

use super::state::{BudgetEntry, BudgetState, Recipe, SWEEP, TINY};
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;

/// How many entries are updated when a value is dropped: their cost is an estimate.
const NEWS: usize = 256;

impl BudgetState {
    /// Drops values until this many more bytes fit; `false` where nothing is left to drop.
    pub fn evict_for(&mut self, bytes: usize) -> bool {
        self.evict_up_to(bytes, f64::INFINITY)
    }

    /// The same, but only values of at most this cost per byte are dropped.
    pub fn evict_up_to(&mut self, bytes: usize, most: f64) -> bool {
        while self.kept + bytes > self.tally.budget {
            let Some(id) = self.cheapest(most) else { return false };
            match self.pin_dependencies(id) {
                true => {
                    self.release(id);
                    self.tally.dropped += 1;
                }
                false => self.pin(id),
            }
        }
        true
    }

    /// The work of recomputing the missing operands of an entry: of the longest path, where paths
    /// join again.
    pub fn missing_below(&self, id: usize) -> u64 {
        let Some(recipe) = &self.entries[id].recipe else { return 0 };
        let below = recipe.parts.iter().map(|p| &self.entries[p.entry]);
        let gone = below.filter(|e| e.held.is_none() && !e.is_away() && e.recipe.is_some());
        let (sum, longest) = gone.fold((0u64, 0), |(sum, longest), e| {
            (sum.saturating_add(e.work), e.missing.max(longest))
        });
        sum.saturating_add(longest)
    }

    /// Updates the entries that depend on one that was dropped or recomputed.
    pub fn update_costs(&mut self, id: usize) {
        let mut news: BTreeSet<(u64, usize)> = BTreeSet::new();
        let mut from = Some(id);
        for _ in 0..NEWS {
            let above = from.take().map_or(&[][..], |i| &self.entries[i].users[..]);
            let next = match above {
                &[only] if news.is_empty() => only,
                above => {
                    news.extend(above.iter().map(|&u| (self.entries[u].number, u)));
                    let Some((_, next)) = news.pop_first() else { break };
                    next
                }
            };
            let missing = self.missing_below(next);
            let entry = &mut self.entries[next];
            let changed = std::mem::replace(&mut entry.missing, missing) != missing;
            from = (changed && entry.held.is_none()).then_some(next);
            self.place(next);
        }
    }

    /// Makes sure that a value can be recomputed once it is dropped. `false` if it cannot, or would
    /// save nothing.
    pub fn pin_dependencies(&mut self, id: usize) -> bool {
        if self.entries[id].dependencies_pinned {
            return true;
        }
        let (mut seen, mut waiting) = (FxHashSet::default(), vec![id]);
        let (mut sources, mut relied, mut between) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(i) = waiting.pop() {
            let entry = &self.entries[i];
            if !seen.insert(i) || (i != id && entry.dependencies_pinned) {
                continue;
            }
            if i != id && entry.is_held() {
                relied.push(i);
                continue;
            }
            match &entry.recipe {
                Some(recipe) => {
                    between.push(i);
                    waiting.extend(recipe.parts.iter().map(|p| p.entry));
                }
                None => match entry.alive() {
                    Some(storage) => sources.push((i, storage)),
                    None => return false,
                },
            }
        }
        // What many are made of is held once for all of them.
        let share = |e: &BudgetEntry| e.bytes / e.users.len().max(1);
        let cost_per_byte: usize = sources.iter().map(|s| share(&self.entries[s.0])).sum();
        if self.entries[id].recipe.is_none() || cost_per_byte >= self.entries[id].bytes {
            return false;
        }
        for (i, storage) in sources {
            self.hold(i, storage);
            relied.push(i);
        }
        relied.into_iter().for_each(|i| self.entries[i].relied = true);
        between.into_iter().for_each(|i| self.entries[i].dependencies_pinned = true);
        true
    }

    /// Releases what is not needed any more.
    pub fn release_if_unneeded(&mut self, id: usize) {
        let entry = &self.entries[id];
        if !entry.is_idle() {
            return;
        }
        if entry.users.is_empty() {
            return self.collect(vec![id]);
        }
        match (entry.held.is_some() && entry.relied, entry.recipe.is_some()) {
            (false, _) => self.release(id),
            (true, false) => {}
            (true, true) => match self.pin_dependencies(id) {
                true => self.release(id),
                false => self.pin(id),
            },
        }
    }

    /// Takes out entries that nothing refers to, and what they alone referred to.
    pub fn collect(&mut self, mut ids: Vec<usize>) {
        while let Some(id) = ids.pop() {
            let entry = &self.entries[id];
            if !entry.is_idle() || !entry.users.is_empty() || entry.number == 0 {
                continue;
            }
            self.release(id);
            let entry = &mut self.entries[id];
            // It may still be used as an operand.
            if entry.memory.as_ref().is_some_and(|memory| memory.strong_count() > 0) {
                entry.relied = false;
                continue;
            }
            entry.number = 0;
            let (recipe, memory) = (entry.recipe.take(), entry.memory.take());
            if let Some(recipe) = recipe {
                ids.extend(self.unused(id, &recipe));
            }
            let address = memory.as_ref().map_or(0, |memory| memory.as_ptr() as usize);
            if self.places.get(&address) == Some(&id) {
                self.places.remove(&address);
            }
            self.free.push(id);
        }
    }

    /// Takes out what nothing needs. What no saved value depends on, and has been there since
    /// before the last time, loses its recipe: so an endless loop in one scope does not keep the
    /// recipes of all its iterations.
    pub fn sweep(&mut self) {
        self.collect((0..self.entries.len()).collect());
        let mut needed = vec![false; self.entries.len()];
        let idle = |i: &usize| self.entries[*i].is_idle();
        let mut waiting: Vec<usize> = (0..self.entries.len()).filter(|i| !idle(i)).collect();
        while let Some(i) = waiting.pop() {
            if !std::mem::replace(&mut needed[i], true)
                && let Some(recipe) = &self.entries[i].recipe
            {
                waiting.extend(recipe.parts.iter().map(|p| p.entry));
            }
        }
        for id in (0..needed.len()).filter(|&i| !needed[i]) {
            let entry = &mut self.entries[id];
            let tiny = entry.held.as_ref().is_some_and(|s| s.bytes() <= TINY);
            (entry.dependencies_pinned, entry.relied) = (false, tiny);
            if !tiny {
                self.release(id);
            }
            if self.entries[id].number <= self.swept {
                self.pin(id);
            }
        }
        self.swept = self.numbers;
        self.sweep_at = SWEEP.max(2 * (self.entries.len() - self.free.len()));
    }

    /// The operands of a recipe that this entry no longer uses.
    pub fn unused(&mut self, id: usize, recipe: &Recipe) -> Vec<usize> {
        for part in &recipe.parts {
            let users = &mut self.entries[part.entry].users;
            if let Some(at) = users.iter().rposition(|&u| u == id) {
                users.swap_remove(at);
            }
        }
        recipe.parts.iter().map(|p| p.entry).collect()
    }
}
