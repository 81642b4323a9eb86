//! Recomputing values: iteratively, for chains of any length, and within the budget as far as
//! possible.

use super::away::AwayValue;
use super::state::{BudgetState, Recipe};
use crate::apply::checked;
use crate::backend::Pooled;
use crate::events::{self, AGAIN, LEDGER, RECORD};
use crate::storage::Storage;
use crate::{Error, Result, Tensor, backend, trace};
use pullback_ir::ErrorKind;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::sync::Arc;

/// What has to be done for one value.
struct RecomputePlan {
    target: usize,
    /// What is to be recomputed, operands first.
    order: Vec<usize>,
    /// Available values, and those recomputed so far.
    ready: FxHashMap<usize, Ready>,
    /// Values that another packer gives.
    away: Vec<(usize, Arc<AwayValue>)>,
    /// How often each of them is still needed.
    uses: FxHashMap<usize, usize>,
}

/// A value that an op may be run on.
struct Ready {
    storage: Pooled<Storage>,
    /// How it is held during the recomputation.
    how: ValueHold,
}

#[derive(Clone, Copy)]
enum ValueHold {
    /// It is referenced elsewhere.
    Found,
    /// It is kept, and may not be dropped.
    Locked,
    /// It is an intermediate value, and counts while it is needed.
    Passing,
}

impl BudgetState {
    /// The memory of a value, recomputed if it was dropped.
    pub fn value(&mut self, id: usize) -> Result<Pooled<Storage>> {
        self.touch(id);
        if let Some(storage) = self.entries[id].alive() {
            return Ok(storage);
        }
        let mut plan = self.plan(id)?;
        for (&i, ready) in &mut plan.ready {
            if self.has(i) {
                self.lock(i);
                ready.how = ValueHold::Locked;
            }
        }
        let made = self.follow(&mut plan);
        // Also where it failed half-way.
        plan.ready.into_iter().for_each(|(i, ready)| self.done_with(i, ready));
        made
    }

    fn done_with(&mut self, id: usize, ready: Ready) {
        drop(ready.storage);
        match ready.how {
            ValueHold::Found => {}
            ValueHold::Locked => self.unlock(id),
            ValueHold::Passing => self.passed(self.entries[id].bytes),
        }
    }

    fn plan(&self, target: usize) -> Result<RecomputePlan> {
        let (mut order, mut seen) = (Vec::new(), FxHashSet::default());
        let (mut ready, mut uses) = (FxHashMap::default(), FxHashMap::default());
        let mut away = Vec::new();
        let mut waiting = vec![(target, false)];
        while let Some((id, operands_done)) = waiting.pop() {
            if operands_done {
                order.push(id);
                continue;
            }
            if !seen.insert(id) {
                continue;
            }
            if let Some(storage) = self.entries[id].alive() {
                ready.insert(id, Ready { storage, how: ValueHold::Found });
                continue;
            }
            if let Some(value) = self.away(id) {
                away.push((id, value));
                continue;
            }
            let Some(recipe) = &self.entries[id].recipe else { return Err(self.lost(id)) };
            waiting.push((id, true));
            recipe.parts.iter().for_each(|p| *uses.entry(p.entry).or_insert(0) += 1);
            // The most expensive is computed first (it is pushed last): cheap values, such as
            // masks, are then not kept waiting for it.
            let mut parts: SmallVec<[usize; 4]> = recipe.parts.iter().map(|p| p.entry).collect();
            parts.sort_by_key(|&i| self.entries[i].cost());
            waiting.extend(parts.into_iter().map(|i| (i, false)));
        }
        *uses.entry(target).or_insert(0) += 1;
        Ok(RecomputePlan { target, order, ready, away, uses })
    }

    fn follow(&mut self, plan: &mut RecomputePlan) -> Result<Pooled<Storage>> {
        for (id, away) in std::mem::take(&mut plan.away) {
            let storage = self.back(id, &away)?.ok_or_else(|| self.lost(id))?;
            plan.ready.insert(id, Ready { storage, how: ValueHold::Found });
        }
        for id in std::mem::take(&mut plan.order) {
            let Some(recipe) = self.entries[id].recipe.clone() else { return Err(self.lost(id)) };
            // It may have come with another result of the same op.
            if !plan.ready.contains_key(&id) {
                self.run(id, &recipe, plan)?;
            }
            for part in &recipe.parts {
                let Some(left) = plan.uses.get_mut(&part.entry) else { continue };
                *left -= 1;
                if *left == 0
                    && let Some(ready) = plan.ready.remove(&part.entry)
                {
                    self.done_with(part.entry, ready);
                }
            }
        }
        let made = plan.ready.get(&plan.target).map(|ready| ready.storage.clone());
        made.ok_or_else(|| self.lost(plan.target))
    }

    /// Runs an op again and keeps those of its results that are needed.
    fn run(&mut self, target: usize, recipe: &Recipe, plan: &mut RecomputePlan) -> Result<()> {
        let mut wanted: SmallVec<[(usize, usize); 1]> = SmallVec::new();
        for (k, result) in recipe.results.iter().enumerate() {
            let Some((id, number)) = *result else { continue };
            let entry = &self.entries[id];
            let is_wanted = plan.uses.get(&id).is_some_and(|&n| n > 0) || entry.saves > 0;
            if entry.number == number && is_wanted && entry.alive().is_none() {
                wanted.push((k, id));
            }
        }
        let bytes = wanted.iter().map(|&(_, id)| self.entries[id].bytes).sum();
        self.evict_for(bytes);
        let mut operands: SmallVec<[Tensor; 4]> = SmallVec::new();
        for part in &recipe.parts {
            let ready = plan.ready.get(&part.entry).ok_or_else(|| self.lost(part.entry))?;
            operands.push(part.tensor(ready.storage.clone()));
        }
        let operands: SmallVec<[&Tensor; 4]> = operands.iter().collect();
        let at = self.entries[target].at;
        let run = || {
            events::op_starts(&recipe.op, &operands, at);
            checked(&recipe.op, &operands, |call| backend::compute(call, &operands, at))
        };
        // As it ran before: without autocast, recording or checks. But its memory is counted.
        let run = || recipe.numerics.scope(run);
        let again = || events::with(AGAIN, || trace::computing(run));
        let results = events::only(LEDGER | RECORD, again)?;
        self.tally.again += 1;
        self.tally.work_again += recipe.work;
        for (k, id) in wanted {
            let storage = results[k].0.storage.clone();
            let how = match self.entries[id].saves > 0 {
                true => {
                    self.hold(id, storage.clone());
                    self.touch(id);
                    ValueHold::Locked
                }
                false => ValueHold::Passing,
            };
            if plan.uses.get(&id).is_none_or(|&n| n == 0) {
                continue;
            }
            match how {
                ValueHold::Locked => self.lock(id),
                ValueHold::Passing | ValueHold::Found => self.passing(self.entries[id].bytes),
            }
            plan.ready.insert(id, Ready { storage, how });
        }
        Ok(())
    }

    /// The error for a value that is needed and cannot be recomputed any more.
    fn lost(&self, id: usize) -> Error {
        let entry = &self.entries[id];
        let message = "a value that the budget dropped is to be computed again, and memory that this needs was overwritten";
        let error = Error::new(ErrorKind::InPlace, "memory_budget", message);
        let error = error.detail(format!("used by      {:<8} at {}", entry.name, entry.at));
        let error = match entry.memory() {
            Some(storage) => storage.named_writer(error),
            None => error,
        };
        error.hint("call backward before the memory is written, as before the optimiser's step, or write inside the scope")
    }
}
