//! Values that another packer has: what is made of them can be computed again from them.
//!
//! A function of a product costs little to compute again, if the product is there. Where the
//! product was offloaded, it comes back for the function, and stays until its own node, which
//! follows in backward, takes it: so it is copied back once.

use super::state::BudgetState;
use crate::backend::Pooled;
use crate::memory::packing::Packed;
use crate::storage::Storage;
use crate::{Result, Tensor};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A packed value, and what came back of it before its node has asked.
///
/// The ledger has weak references to it and upgrades them while it is locked, so dropping one may
/// not lock it.
pub(super) struct AwayValue {
    pub packed: Arc<dyn Packed>,
    back: Mutex<Option<Tensor>>,
}

impl AwayValue {
    pub fn new(packed: Arc<dyn Packed>) -> AwayValue {
        AwayValue { packed, back: Mutex::default() }
    }

    /// Whether it may be read instead of the memory of a tensor: all of it, in order, bit by bit.
    pub fn may_stand_in(&self, x: &Tensor) -> bool {
        self.packed.is_exact() && is_whole(x)
    }

    /// What came back, if it was not taken.
    pub fn take(&self) -> Option<Tensor> {
        self.back.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Its memory, and the bytes that came back for it.
    fn fetch(&self) -> Result<Option<(Pooled<Storage>, usize)>> {
        let mut back = self.back.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(back) = &*back {
            return Ok(Some((back.0.storage.clone(), 0)));
        }
        let x = self.packed.unpack()?;
        if !is_whole(&x) {
            return Ok(None);
        }
        let (storage, bytes) = (x.0.storage.clone(), x.spec().bytes());
        *back = Some(x);
        Ok(Some((storage, bytes)))
    }
}

/// Whether a tensor is all of its memory, in order.
fn is_whole(x: &Tensor) -> bool {
    let layout = &x.0.layout;
    layout.is_dense() && layout.offset == 0 && x.0.storage.bytes() == x.spec().bytes()
}

impl BudgetState {
    /// A packer has taken a value.
    pub fn note_away(&mut self, id: usize, away: &Arc<AwayValue>) {
        self.entries[id].away = Some(Arc::downgrade(away));
        self.update_costs(id);
    }

    /// The value of an entry, if a packer has it.
    pub fn away(&self, id: usize) -> Option<Arc<AwayValue>> {
        self.entries[id].away.as_ref().and_then(Weak::upgrade)
    }

    /// The memory of a value that a packer has, which counts from now on; `None` if it is not as it
    /// was.
    pub fn back(&mut self, id: usize, away: &AwayValue) -> Result<Option<Pooled<Storage>>> {
        self.evict_for(self.entries[id].bytes);
        let Some((storage, bytes)) = away.fetch()? else { return Ok(None) };
        self.passing(bytes);
        Ok(Some(storage))
    }
}
