//! Results that are not views never alias their arguments.
//!
//! A view always shares the memory of what it was taken from, and says so in its documentation;
//! everything else never does, whatever the arguments are, whether it is differentiated, and
//! whether it is compiled. An op writes to new memory by itself. What needs care is a formula that
//! is the identity in a special case (`powi(1)`), and a user's function that returns its argument.

use crate::backend::Pooled;
use crate::{Tensor, Tree, sequence};
use rustc_hash::FxHashSet;

impl Tensor {
    /// The value in memory of its own, not shared with the operands.
    #[track_caller]
    pub(crate) fn unaliased_with(self, operands: &[&Tensor]) -> Tensor {
        match operands.iter().any(|x| x.shares_memory(&self)) {
            true => self.deep_clone(),
            false => self,
        }
    }
}

/// A point in time: memory was allocated before it, or is new.
#[derive(Clone, Copy)]
pub(crate) struct Since(u64);

impl Since {
    pub fn now() -> Since {
        Since(sequence::take_number())
    }

    /// The tensors in new memory, and each in its own: those that are not already are copied.
    #[track_caller]
    pub fn own_all(self, mut tensors: Vec<Tensor>) -> Vec<Tensor> {
        let mut taken = FxHashSet::default();
        for x in &mut tensors {
            if x.0.storage.created <= self.0 || !taken.insert(Pooled::as_ptr(&x.0.storage)) {
                *x = x.deep_clone();
            }
        }
        tensors
    }

    /// [`Since::own_all`] for the tensors of a tree.
    #[track_caller]
    pub fn own<Y: Tree>(self, y: Y) -> Y {
        let given = y.leaves();
        let own = self.own_all(given.clone());
        match given.iter().zip(&own).all(|(a, b)| a.is_same(b)) {
            true => y,
            false => y.with_leaves(&own),
        }
    }
}
