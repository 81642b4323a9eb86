//! The ledger: how every value made in the scope was computed, and which are held in memory.
//!
//! A [`BudgetEntry`] represents a storage at a version, so views of a value are the value. It has
//!
//! - a *recipe*, if the value can be made again: the op, and the entries of its operands;
//! - *saves*: how many nodes saved it;
//! - a *hold*, if its memory is kept. Only that counts. Recipes hold no memory: their operands are
//!   entries, which may have none.
//!
//! A dropped value must stay recomputable, whatever is dropped afterwards. So before a value is
//! dropped, its dependencies are *pinned*: values without a recipe are held from then on, and
//! values that are held are marked as relied upon, so that their own dependencies are pinned before
//! they are dropped. If a dependency was freed already, or holding it would cost more than is
//! saved, the value stays: it has lost its recipe.
//!
//! Entries are numbers in a list, not pointers, and everything that follows recipes is a loop: a
//! chain may have any length.

use super::BudgetUse;
use super::away::AwayValue;
use super::candidates::Candidates;
use crate::backend::{Pooled, WeakPooled, live_by_device, live_bytes_of};
use crate::memory::report::ledger as report;
use crate::storage::Storage;
use crate::{Op, Tensor, sequence};
use pullback_ir::pass::op_work;
use pullback_ir::{DType, Device, Layout, Line, Numerics, Program, Spec, Structure};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::{Arc, Weak};

/// Values of up to this many bytes are kept and not counted: their recipe would take more.
pub(super) const TINY: usize = 64;
/// How many entries there are at least before unneeded ones are collected.
pub(super) const SWEEP: usize = 1 << 15;

pub(super) struct BudgetState {
    pub entries: Vec<BudgetEntry>,
    pub free: Vec<usize>,
    /// The entry of a storage, by its address; an entry's weak pointer keeps the address from being
    /// used again.
    pub places: FxHashMap<usize, usize>,
    /// Entries that are held and have a recipe.
    pub candidates: Candidates,
    /// How many scopes are open, on any thread.
    pub scopes: usize,
    /// Memory that is older was there before the scope.
    pub since: u64,
    pub clock: u64,
    pub numbers: u64,
    pub swept: u64,
    pub sweep_at: usize,
    /// Bytes that are held.
    pub kept: usize,
    /// Bytes that are held and have no recipe.
    pub pinned: usize,
    /// Bytes that would be held without a budget.
    pub saved: usize,
    /// The device whose memory counts: that of the first value that was saved.
    pub device: Option<Device>,
    /// What the pools had given out when the first scope was opened.
    pub start: Option<Vec<(Device, u64)>>,
    pub tally: BudgetUse,
}

pub(super) struct BudgetEntry {
    pub recipe: Option<Arc<Recipe>>,
    /// The entries whose recipes use this one, once for each use.
    pub users: SmallVec<[usize; 2]>,
    /// Where the value is, or was.
    pub memory: Option<WeakPooled<Storage>>,
    pub version: u64,
    pub held: Option<Pooled<Storage>>,
    /// Its value, where another packer has it.
    pub away: Option<Weak<AwayValue>>,
    /// The bytes it counts for: none if it is tiny, or was there before the scope.
    pub bytes: usize,
    pub saves: usize,
    /// How often it is needed by what is being made again just now.
    pub locks: usize,
    /// All its dependencies are held or can be recomputed.
    pub dependencies_pinned: bool,
    /// A dropped value depends on it.
    pub relied: bool,
    /// The work of its op, and an estimate of the work on what is missing below it.
    pub work: u64,
    pub missing: u64,
    /// When it was last used.
    pub used: u64,
    pub number: u64,
    /// Where it is among the candidates for being dropped.
    pub place: Option<(u64, (u64, u64, usize))>,
    pub name: &'static str,
    pub at: Line,
}

/// How values were made.
pub(super) struct Recipe {
    pub op: Op,
    pub parts: SmallVec<[RecipeOperand; 2]>,
    /// Its results, by entry and the entry's number; none for one that is unused.
    pub results: SmallVec<[Option<(usize, u64)>; 1]>,
    pub work: u64,
    pub numerics: Numerics,
}

/// An operand.
pub(super) struct RecipeOperand {
    pub entry: usize,
    dtype: DType,
    device: Device,
    layout: Layout,
}

impl RecipeOperand {
    pub fn tensor(&self, storage: Pooled<Storage>) -> Tensor {
        let spec = Spec::on(self.device, self.dtype, self.layout.shape.clone());
        Tensor::new(spec, self.layout.clone(), storage)
    }
}

impl BudgetEntry {
    /// Its memory, if it is unchanged.
    pub fn alive(&self) -> Option<Pooled<Storage>> {
        self.memory.as_ref()?.upgrade().filter(|s| s.version() == self.version)
    }

    /// The work of making it again.
    pub fn cost(&self) -> u64 {
        self.work.saturating_add(self.missing)
    }

    /// Its memory, as it is now.
    pub fn memory(&self) -> Option<Pooled<Storage>> {
        self.memory.as_ref()?.upgrade()
    }

    pub fn is_held(&self) -> bool {
        self.held.as_ref().is_some_and(|s| s.version() == self.version)
    }

    pub fn is_away(&self) -> bool {
        self.away.as_ref().is_some_and(|away| away.strong_count() > 0)
    }

    pub fn is_idle(&self) -> bool {
        self.saves == 0 && self.locks == 0
    }
}

/// Whether an op is deterministic: all do, except user code, which is not known to. (A custom
/// op that is made of others is noted as those.)
fn repeats(op: &Op) -> bool {
    let all = |p: &Program| p.equations.iter().all(|e| repeats(&e.op));
    // Other workers take part in it once.
    if op.is_ordered() {
        return false;
    }
    match op.structure() {
        Some(Structure::Custom(_)) => false,
        Some(Structure::Flow(flow)) => flow.programs().into_iter().all(all),
        Some(Structure::Region(_) | Structure::DotRegion(_)) | None => true,
    }
}

impl BudgetState {
    pub fn new(budget: usize) -> BudgetState {
        BudgetState {
            entries: Vec::new(),
            free: Vec::new(),
            places: FxHashMap::default(),
            candidates: Candidates::new(),
            scopes: 0,
            since: 0,
            clock: 0,
            numbers: 0,
            swept: 0,
            sweep_at: SWEEP,
            kept: 0,
            pinned: 0,
            saved: 0,
            device: None,
            start: None,
            tally: BudgetUse { budget, ..BudgetUse::default() },
        }
    }

    /// A scope begins: existing memory is not its own, unless another one of the account is open.
    pub fn open(&mut self) {
        if self.scopes == 0 {
            self.since = sequence::take_number();
        }
        self.scopes += 1;
        self.start.get_or_insert_with(live_by_device);
    }

    pub fn close(&mut self) {
        self.scopes -= 1;
        self.rest();
    }

    /// Where no scope is open and nothing is saved, nothing will be requested: the ledger is
    /// cleared.
    fn rest(&mut self) {
        if self.scopes > 0 || self.saved > 0 {
            return;
        }
        for entry in self.entries.drain(..).filter(|e| e.held.is_some()) {
            self.kept -= entry.bytes;
            self.pinned -= if entry.recipe.is_none() { entry.bytes } else { 0 };
        }
        self.free.clear();
        self.places.clear();
        self.candidates.clear();
        self.sweep_at = SWEEP;
    }

    /// The estimated peak: what is kept, plus this many bytes in use.
    fn predict(&mut self, at_work: usize) {
        self.tally.predicted = self.tally.predicted.max(self.kept + at_work);
    }

    /// Backward requests a value: a gradient of its size is allocated and another one freed.
    pub fn note_request(&mut self, id: usize) {
        self.predict(2 * self.entries[id].bytes);
    }

    /// The bytes of the scope that an op reads and writes, in addition to those that are kept.
    fn at_work(&self, inputs: &[&Tensor], outs: &[Tensor]) -> usize {
        let mut seen: SmallVec<[&Pooled<Storage>; 8]> = SmallVec::new();
        for storage in inputs.iter().copied().chain(outs).map(|x| &x.0.storage) {
            let is_kept = || self.known(storage).is_some_and(|id| self.has(id));
            if storage.created > self.since
                && self.device.is_none_or(|device| device == storage.device())
                && !seen.iter().any(|s| Pooled::ptr_eq(s, storage))
                && !is_kept()
            {
                seen.push(storage);
            }
        }
        seen.iter().map(|s| s.bytes()).filter(|&bytes| bytes > TINY).sum()
    }

    /// Advances the clock.
    fn tick(&mut self) -> u64 {
        self.tally.kept = self.tally.kept.max(self.kept);
        if let Some(device) = self.device {
            let of = |all: &Vec<(Device, u64)>| all.iter().find(|of| of.0 == device).map(|of| of.1);
            let before = self.start.as_ref().and_then(of).unwrap_or(0);
            let live = live_bytes_of(device).saturating_sub(before) as usize;
            self.tally.measured = self.tally.measured.max(live);
        }
        self.clock += 1;
        self.clock
    }

    pub fn known(&self, storage: &Pooled<Storage>) -> Option<usize> {
        let id = *self.places.get(&(Pooled::as_ptr(storage) as usize))?;
        (self.entries[id].version == storage.version()).then_some(id)
    }

    /// Whether the budget counts this memory.
    pub fn is_counted(&self, storage: &Pooled<Storage>) -> bool {
        storage.bytes() > TINY
            && self.device.is_none_or(|device| device == storage.device())
            && match self.known(storage) {
                Some(id) => self.entries[id].bytes > 0,
                None => storage.created > self.since,
            }
    }

    /// The entry of a value, without a recipe if it was not known.
    pub fn entry_of(&mut self, storage: &Pooled<Storage>, name: &'static str, at: Line) -> usize {
        if let Some(id) = self.known(storage) {
            return id;
        }
        // What was there was overwritten.
        if let Some(&old) = self.places.get(&(Pooled::as_ptr(storage) as usize)) {
            self.release(old);
        }
        self.insert(storage, name, at)
    }

    fn insert(&mut self, storage: &Pooled<Storage>, name: &'static str, at: Line) -> usize {
        let bytes = storage.bytes();
        let tiny = bytes <= TINY;
        self.numbers += 1;
        let entry = BudgetEntry {
            recipe: None,
            users: SmallVec::new(),
            memory: Some(Pooled::downgrade(storage)),
            version: storage.version(),
            held: tiny.then(|| storage.clone()),
            away: None,
            bytes: if tiny || storage.created <= self.since { 0 } else { bytes },
            saves: 0,
            locks: 0,
            dependencies_pinned: false,
            relied: tiny,
            work: 0,
            missing: 0,
            used: self.clock,
            number: self.numbers,
            place: None,
            name,
            at,
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.entries[id] = entry;
                id
            }
            None => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
        };
        self.places.insert(Pooled::as_ptr(storage) as usize, id);
        id
    }

    /// Notes how an op made its results.
    pub fn note(&mut self, op: &Op, inputs: &[&Tensor], outs: &[Tensor], at: Line) {
        self.tick();
        self.predict(self.at_work(inputs, outs));
        let specs: SmallVec<[&Spec; 4]> = inputs.iter().map(|x| x.spec()).collect();
        let out_specs: SmallVec<[&Spec; 2]> = outs.iter().map(|y| y.spec()).collect();
        let work = op_work(op, &specs, &out_specs);
        self.tally.work += work;
        // A view is what it is a view of.
        let fresh = |y: &Tensor| {
            !inputs.iter().any(|x| x.shares_memory(y))
                && y.0.storage.bytes() > TINY
                && self.known(&y.0.storage).is_none()
        };
        let fresh: SmallVec<[bool; 1]> = outs.iter().map(fresh).collect();
        if !fresh.contains(&true) || !repeats(op) {
            return;
        }
        if self.entries.len() - self.free.len() >= self.sweep_at {
            self.sweep();
        }
        let part = |x: &&Tensor| RecipeOperand {
            entry: self.entry_of(&x.0.storage, op.name(), at),
            dtype: x.dtype(),
            device: x.device(),
            layout: x.0.layout.clone(),
        };
        let parts: SmallVec<[RecipeOperand; 2]> = inputs.iter().map(part).collect();
        let mut results: SmallVec<[Option<(usize, u64)>; 1]> = SmallVec::new();
        for (y, fresh) in outs.iter().zip(fresh) {
            results.push(fresh.then(|| {
                let id = self.insert(&y.0.storage, op.name(), at);
                (id, self.numbers)
            }));
        }
        let numerics = Numerics::now();
        let recipe = Arc::new(Recipe { op: op.clone(), parts, results, work, numerics });
        for &(id, _) in recipe.results.iter().flatten() {
            recipe.parts.iter().for_each(|p| self.entries[p.entry].users.push(id));
            let entry = &mut self.entries[id];
            (entry.recipe, entry.work) = (Some(recipe.clone()), work.max(1));
            self.entries[id].missing = self.missing_below(id);
        }
    }

    /// A node saves a value that fits.
    pub fn save(&mut self, id: usize, storage: &Pooled<Storage>) {
        self.hold(id, storage.clone());
        self.touch(id);
        self.add_save(id);
    }

    fn add_save(&mut self, id: usize) {
        let entry = &mut self.entries[id];
        entry.saves += 1;
        if entry.saves == 1 {
            self.saved += entry.bytes;
            self.tally.without = self.tally.without.max(self.saved);
        }
        let extra = if entry.recipe.is_some() { entry.bytes } else { 0 };
        self.tally.least = self.tally.least.max(self.pinned + extra);
    }

    /// Whether memory is kept for a value.
    pub fn has(&self, id: usize) -> bool {
        self.entries[id].is_held()
    }

    /// A lower bound of the budget if this value is saved too: when backward requests it, it is
    /// there together with all that was saved before and cannot be dropped.
    pub fn least_with(&self, id: usize) -> usize {
        let entry = &self.entries[id];
        let counted = entry.recipe.is_none() && entry.is_held();
        self.pinned + if counted { 0 } else { entry.bytes }
    }

    /// Bytes of intermediate values needed to recompute a value.
    pub fn passing(&mut self, bytes: usize) {
        self.kept += bytes;
        self.tally.kept = self.tally.kept.max(self.kept);
    }

    pub fn passed(&mut self, bytes: usize) {
        self.kept -= bytes;
    }

    /// Nodes save a value that is dropped before it was ever held, because it is the cheapest there
    /// is. `false` where it cannot be recomputed below this cost per byte, or not at all.
    pub fn save_dropped(&mut self, id: usize, most: f64) -> bool {
        if self.entries[id].recipe.is_none()
            || self.entries[id].cost_per_byte() > most
            || !self.pin_dependencies(id)
        {
            return false;
        }
        self.touch(id);
        self.add_save(id);
        self.tally.dropped += 1;
        true
    }

    /// Bytes that a packer takes, on behalf of the scope.
    pub fn add_packed(&mut self, bytes: usize) {
        self.passing(bytes);
        self.pinned += bytes;
    }

    pub fn remove_packed(&mut self, bytes: usize) {
        self.passed(bytes);
        self.pinned -= bytes;
    }

    /// A node no longer needs a value.
    pub fn forget(&mut self, id: usize) {
        let entry = &mut self.entries[id];
        entry.saves -= 1;
        if entry.saves == 0 {
            self.saved -= entry.bytes;
            self.release_if_unneeded(id);
            self.rest();
        }
    }

    pub fn touch(&mut self, id: usize) {
        let clock = self.tick();
        self.entries[id].used = clock;
        self.place(id);
    }

    /// While something else is made of it a value may not be dropped.
    pub fn lock(&mut self, id: usize) {
        self.entries[id].locks += 1;
        self.place(id);
    }

    pub fn unlock(&mut self, id: usize) {
        self.entries[id].locks -= 1;
        self.place(id);
        self.release_if_unneeded(id);
    }

    /// Keeps memory for a value. That of another device does not count.
    pub fn hold(&mut self, id: usize, storage: Pooled<Storage>) {
        if self.entries[id].is_held() {
            return;
        }
        self.release(id);
        let address = Pooled::as_ptr(&storage) as usize;
        let elsewhere = self.device.is_some_and(|device| device != storage.device());
        let entry = &mut self.entries[id];
        if elsewhere && entry.saves == 0 {
            entry.bytes = 0;
        }
        let before = entry.memory.as_ref().map_or(0, |memory| memory.as_ptr() as usize);
        entry.version = storage.version();
        if address != before {
            entry.memory = Some(Pooled::downgrade(&storage));
            if self.places.get(&before) == Some(&id) {
                self.places.remove(&before);
            }
            self.places.insert(address, id);
        }
        if report::is_on() {
            report::saves(&storage);
        }
        entry.held = Some(storage);
        self.kept += entry.bytes;
        if entry.recipe.is_none() {
            self.pinned += entry.bytes;
        }
        self.place(id);
        self.update_costs(id);
    }

    /// Keeps no memory for a value any more.
    pub fn release(&mut self, id: usize) {
        let entry = &mut self.entries[id];
        let Some(held) = entry.held.take() else { return };
        drop(held);
        self.kept -= entry.bytes;
        if entry.recipe.is_none() {
            self.pinned -= entry.bytes;
        }
        self.place(id);
        self.update_costs(id);
    }

    /// This value cannot be recomputed: what is held of it stays.
    pub fn pin(&mut self, id: usize) {
        let entry = &mut self.entries[id];
        if entry.held.is_some() && entry.recipe.is_some() {
            self.pinned += entry.bytes;
        }
        entry.dependencies_pinned = false;
        let Some(recipe) = entry.recipe.take() else { return };
        self.place(id);
        let unused = self.unused(id, &recipe);
        self.collect(unused);
    }

    /// What is held and cannot be made again, by line, the most first.
    pub fn pinned_by_line(&self) -> Vec<(Line, &'static str, usize)> {
        let mut lines: Vec<(Line, &'static str, usize)> = Vec::new();
        let pinned = |e: &&BudgetEntry| e.held.is_some() && e.recipe.is_none() && e.bytes > 0;
        for entry in self.entries.iter().filter(pinned) {
            match lines.iter_mut().find(|l| l.0 == entry.at && l.1 == entry.name) {
                Some(line) => line.2 += entry.bytes,
                None => lines.push((entry.at, entry.name, entry.bytes)),
            }
        }
        lines.sort_by_key(|line| std::cmp::Reverse(line.2));
        lines
    }
}
