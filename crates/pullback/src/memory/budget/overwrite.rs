//! Memory that is overwritten inside the scope, and what was to be made from it.

use super::ledger::{Book, TINY};
use crate::Tensor;
use crate::backend::Pooled;
use crate::storage::Storage;
use pullback_ir::Layout;
use rustc_hash::FxHashSet;

impl Book {
    /// Memory is about to be written, by which a value is lost. It is kept elsewhere, unless it can
    /// be made again, where something dropped counts on it, or where it is likely that something
    /// saved will be dropped: half of the budget is used.
    pub fn before_write(
        &mut self,
        written: &Tensor,
        copy: impl FnOnce(&Tensor) -> Pooled<Storage>,
    ) {
        let storage = &written.0.storage;
        let Some(id) = self.known(storage) else { return };
        let entry = &self.entries[id];
        let likely = entry.recipe.is_none() && self.kept > self.tally.budget / 2;
        if self.saved == 0 || !(entry.relied || likely) || !self.is_wanted(id) {
            return;
        }
        if entry.recipe.is_some() && self.secure(id) {
            return self.release(id);
        }
        self.pin(id);
        self.release(id);
        let bytes = storage.bytes();
        let whole = [bytes / written.dtype().size()];
        let spec = written.spec().with_shape(whole.as_slice());
        let whole = Tensor::new(spec.clone(), Layout::dense(spec.shape), storage.clone());
        let copied = copy(&whole);
        // It counts for the scope now, and others are dropped for it.
        let counted = if bytes <= TINY { 0 } else { bytes };
        (self.entries[id].bytes, self.entries[id].relied) = (0, true);
        self.hold(id, copied);
        self.evict_for(counted);
        self.entries[id].bytes = counted;
        self.hand_over(counted);
    }

    /// Whether a saved value is made of this one.
    fn is_wanted(&self, id: usize) -> bool {
        let (mut seen, mut waiting) = (FxHashSet::default(), self.entries[id].users.to_vec());
        while let Some(i) = waiting.pop() {
            if self.entries[i].tickets > 0 {
                return true;
            }
            if seen.insert(i) {
                waiting.extend(&self.entries[i].users);
            }
        }
        false
    }
}
