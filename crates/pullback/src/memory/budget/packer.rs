//! The packer of a budget: takes values, and returns handles to them.

use super::SharedBudget;
use super::away::AwayValue;
use super::state::BudgetState;
use crate::backend::{Pooled, WeakPooled};
use crate::memory::packing::{Pack, Packed, SavedValue};
use crate::storage::Storage;
use crate::{Error, Result, Spec, Tensor, trace};
use pullback_ir::{ErrorKind, Layout, Line};
use std::sync::Arc;

/// How many lines an error names.
const LINES: usize = 5;

pub(super) struct Packer {
    pub ledger: Arc<SharedBudget>,
    pub overflow: Option<OverflowPacker>,
}

/// The packer for values that are not kept, and its cost.
#[derive(Clone)]
pub(super) struct OverflowPacker {
    pub packer: Arc<dyn Pack>,
    /// The operations that could be done while a byte is packed and unpacked.
    pub rate: f64,
}

impl Pack for Packer {
    fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
        if value.is_parameter() || trace::active() || value.is_traced() {
            return Ok(None);
        }
        let storage = &value.tensor().0.storage;
        let name = value.op().map_or("checkpoint", |op| op.name());
        let mut state = self.ledger.lock();
        if !state.is_counted(storage) {
            return Ok(None);
        }
        state.device.get_or_insert_with(|| storage.device());
        let mut id = state.entry_of(storage, name, value.at());
        if let Some(overflow) = &self.overflow {
            match space_at(&mut state, id, overflow.rate) {
                Space::Freed => {}
                Space::NotNeeded => return Ok(Some(self.ticket(id, value, name))),
                Space::None => {
                    // Nothing is locked while others pack.
                    drop(state);
                    if let Some(packed) = self.pack_overflow(overflow, value, name)? {
                        return Ok(Some(packed));
                    }
                    state = self.ledger.lock();
                    id = state.entry_of(storage, name, value.at());
                }
            }
        }
        evict_for(&mut state, id, value)?;
        state.save(id, storage);
        Ok(Some(self.ticket(id, value, name)))
    }
}

/// What was done for a value, for less than packing it would cost.
enum Space {
    Freed,
    /// The value itself was the one to drop.
    NotNeeded,
    None,
}

fn space_at(state: &mut BudgetState, id: usize, rate: f64) -> Space {
    let bytes = if state.has(id) { 0 } else { state.entries[id].bytes };
    let fits = state.least_with(id) <= state.tally.budget;
    match fits && (bytes == 0 || state.evict_up_to(bytes, rate)) {
        true => Space::Freed,
        false if fits && state.save_dropped(id, rate) => Space::NotNeeded,
        false => Space::None,
    }
}

/// Frees memory for a value, or returns the error that says why it cannot.
fn evict_for(state: &mut BudgetState, id: usize, value: &SavedValue<'_>) -> Result<()> {
    let least = state.least_with(id);
    if least > state.tally.budget {
        return Err(impossible(state, least, value));
    }
    match state.has(id) || state.evict_for(state.entries[id].bytes) {
        true => Ok(()),
        false => Err(impossible(state, state.least_with(id), value)),
    }
}

fn impossible(state: &BudgetState, least: usize, value: &SavedValue<'_>) -> Error {
    let message = format!(
        "a budget of {} bytes is not enough: to keep what `{}` needs for backward takes at least {least} bytes so far",
        state.tally.budget,
        value.name()
    );
    let error = Error::new(ErrorKind::Memory, "memory_budget", message);
    let mut error = error.on([value.tensor().spec()]);
    for (at, name, bytes) in state.pinned_by_line().into_iter().take(LINES) {
        error = error.detail(format!(
            "{bytes:>12} bytes that cannot be computed again, used by {name} at {at}"
        ));
    }
    error.hint("raise the budget, create what cannot be recomputed before the scope, pack it with MemoryBudget::or_pack(..), or use smaller batches")
}

impl Packer {
    fn ticket(&self, entry: usize, value: &SavedValue<'_>, name: &'static str) -> Arc<dyn Packed> {
        let storage = &value.tensor().0.storage;
        Arc::new(BudgetedValue {
            ledger: self.ledger.clone(),
            entry,
            spec: value.tensor().spec().clone(),
            layout: value.tensor().0.layout.clone(),
            original: Pooled::downgrade(storage),
            version: storage.version(),
            name,
            at: value.at(),
            is_output: value.is_output(),
        })
    }

    /// Offers a value to the packer; `None` where it does not take it, or where the packed value
    /// does not fit either.
    fn pack_overflow(
        &self,
        overflow: &OverflowPacker,
        value: &SavedValue<'_>,
        name: &'static str,
    ) -> Result<Option<Arc<dyn Packed>>> {
        let Some(packed) = overflow.packer.pack(value)? else { return Ok(None) };
        let bytes = packed.bytes_at_rest();
        let mut state = self.ledger.lock();
        if !state.evict_for(bytes) {
            drop(state);
            return Ok(None);
        }
        state.add_packed(bytes);
        state.tally.packed += 1;
        let away = Arc::new(AwayValue::new(packed));
        if away.may_stand_in(value.tensor()) {
            let id = state.entry_of(&value.tensor().0.storage, name, value.at());
            state.note_away(id, &away);
        }
        drop(state);
        Ok(Some(Arc::new(Handed { ledger: self.ledger.clone(), away, bytes })))
    }
}

/// What a node holds instead of a saved value.
struct BudgetedValue {
    ledger: Arc<SharedBudget>,
    entry: usize,
    spec: Spec,
    layout: Layout,
    /// The memory that was saved. The user may still hold it, and may have written to it.
    original: WeakPooled<Storage>,
    version: u64,
    name: &'static str,
    at: Line,
    is_output: bool,
}

impl Packed for BudgetedValue {
    fn unpack(&self) -> Result<Tensor> {
        let mut state = self.ledger.lock();
        let storage = match self.original.upgrade() {
            Some(storage) if storage.version() == self.version => {
                state.touch(self.entry);
                storage
            }
            Some(storage) => return Err(self.overwritten(&storage)),
            None => state.value(self.entry)?,
        };
        state.note_request(self.entry);
        Ok(Tensor::new(self.spec.clone(), self.layout.clone(), storage))
    }

    /// Its part of what is kept: a value may be saved several times.
    fn bytes(&self) -> usize {
        let state = self.ledger.lock();
        let entry = &state.entries[self.entry];
        if entry.is_held() { entry.bytes / entry.saves.max(1) } else { 0 }
    }
}

impl BudgetedValue {
    /// The error that the tape itself gives where it keeps values as they are.
    fn overwritten(&self, storage: &Storage) -> Error {
        let what = if self.is_output { "its output" } else { "its operand" };
        let name = self.name;
        let message = format!("backward of `{name}` needs {what}, but it was overwritten");
        let saved = format!("saved by     {name:<8} at {}   (version {})", self.at, self.version);
        let error = Error::new(ErrorKind::InPlace, "", message).detail(saved);
        storage.named_writer(error).hint("use the out-of-place form, or clone the value first")
    }
}

impl Drop for BudgetedValue {
    fn drop(&mut self) {
        self.ledger.lock().forget(self.entry);
    }
}

/// A value that another packer has taken, on the account of the budget.
struct Handed {
    ledger: Arc<SharedBudget>,
    away: Arc<AwayValue>,
    /// What it counts for.
    bytes: usize,
}

impl Packed for Handed {
    fn unpack(&self) -> Result<Tensor> {
        match self.away.take() {
            Some(back) => {
                self.ledger.lock().passed(back.spec().bytes());
                Ok(back)
            }
            None => self.away.packed.unpack(),
        }
    }

    fn bytes(&self) -> usize {
        self.away.packed.bytes()
    }

    fn bytes_at_rest(&self) -> usize {
        self.bytes
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        let back = self.away.take();
        let mut state = self.ledger.lock();
        state.remove_packed(self.bytes);
        state.passed(back.as_ref().map_or(0, |back| back.spec().bytes()));
        drop(state);
    }
}
