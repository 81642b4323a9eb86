//! Values that a user's function gets to read. It may not write to them: their memory is the
//! caller's, or shared with other computations. Where the function is traced its arguments are
//! frozen permanently ([`Frozen`](crate::tensor::Frozen)); here the tensors themselves are given,
//! and can be written to again when the function has returned.

use crate::Tensor;
use crate::tensor::Frozen;
use std::sync::{Arc, Weak};

/// Tensors that may not be written to for as long as this lives.
#[derive(Default)]
pub(crate) struct ReadOnly(Arc<()>);

impl ReadOnly {
    /// These.
    pub fn of<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> ReadOnly {
        let all = ReadOnly::default();
        all.add(tensors);
        all
    }

    /// And these. A tensor that is read-only already stays with its first owner, which lives
    /// longer.
    pub fn add<'a>(&self, tensors: impl IntoIterator<Item = &'a Tensor>) {
        for x in tensors {
            let mut state = x.lock();
            if !is_active(state.read_only.as_ref()) {
                state.read_only = Some(Arc::downgrade(&self.0));
            }
        }
    }
}

fn is_active(given: Option<&Weak<()>>) -> bool {
    given.is_some_and(|given| given.strong_count() > 0)
}

impl Tensor {
    /// Whether this tensor, or one that it is a view of, is the argument of a function that is
    /// running.
    pub(crate) fn is_argument(&self) -> bool {
        let own = |x: &Tensor| {
            let state = x.lock();
            state.frozen == Frozen::Argument || is_active(state.read_only.as_ref())
        };
        let mut x = self;
        while !own(x) {
            match &x.0.parent {
                Some(parent) => x = &parent.0,
                None => return false,
            }
        }
        true
    }

    /// Makes this tensor, which has the memory of `of`, an argument as far as that is one.
    pub(crate) fn share_read_only(&self, of: &Tensor) {
        let mut x = of;
        loop {
            let (frozen, given) = {
                let state = x.lock();
                (state.frozen, state.read_only.clone())
            };
            let mut own = self.lock();
            if frozen == Frozen::Argument {
                own.frozen = frozen;
            }
            if is_active(given.as_ref()) {
                own.read_only = given;
            }
            match &x.0.parent {
                Some(parent) => x = &parent.0,
                None => return,
            }
        }
    }
}
