//! Values saved for backward: all of them go through `pack` and `unpack` here.
//!
//! A saved value holds the memory, not the tensor: the history of a saved input is the node's own
//! edge, and a saved output belongs to the node itself, so there are no reference cycles. It
//! remembers the storage version it saw; if the memory was written to since, unpacking fails with
//! an error.
//!
//! Where a packer is active (`memory/packing.rs`), what it returned is kept instead.

use super::{History, Node, SavedList};
use crate::backend::Pooled;
use crate::memory::kept::{self, KeptValue, SavedMemory};
use crate::rule::Val;
use crate::tangents::Tangents;
use crate::transform::levels;
use crate::{Result, Tensor, mode};
use pullback_ir::{Line, Op};

#[derive(Clone)]
pub(crate) struct Saved {
    /// Which value of the op it is.
    which: Val,
    memory: SavedMemory,
    pub tangents: Tangents,
}

impl Saved {
    /// Keeps a value of an op.
    pub fn pack(
        which: Val,
        value: &Tensor,
        tangents: &Tangents,
        (op, at): (&Op, Line),
        history: &History,
    ) -> Saved {
        let is_output = matches!(which, Val::Out(_));
        let held = SavedMemory::pack(value, (Some(op), op.name(), at), is_output, history);
        Saved { which, memory: held, tangents: tangents.clone() }
    }

    pub fn which(&self) -> Val {
        self.which
    }

    pub fn is_output(&self, k: usize) -> bool {
        self.which == Val::Out(k)
    }
}

impl Node {
    /// Calls `f` with each kept value. Where this is the `last` time, values that are just memory
    /// are taken out, and the node is freed by that: the answer is whether it was.
    pub fn unpack(node: &Pooled<Node>, last: bool, mut f: impl FnMut(Val, Tensor)) -> Result<bool> {
        // Copied or taken: tensors are made, and packed values unpacked, which may run user code,
        // after the lock is released.
        let mut values = SavedList::new_const();
        let mut saved = node.saved();
        let taken = last && saved.iter().flatten().all(|value| value.memory.is_plain());
        match (&*saved, taken) {
            (None, _) => return Err(kept::freed(node)),
            (Some(_), true) => values = saved.take().unwrap_or_default(),
            (Some(saved), false) => saved.iter().for_each(|value| values.push(value.clone())),
        }
        drop(saved);
        for Saved { which, memory: held, tangents } in values {
            let x = match held {
                SavedMemory::Whole(storage, version) => kept::whole(node, which, storage, version)?,
                SavedMemory::Other(kept) => match &*kept {
                    KeptValue::Memory(window) => match window.tensor() {
                        Some(x) => x,
                        None => return Err(window.overwritten(node, which)),
                    },
                    KeptValue::Packed(spec, what) => kept::unpacked(node, spec, &**what)?,
                },
            };
            f(which, Node::with_history(node, which, x, &tangents));
        }
        Ok(taken)
    }

    /// A kept value; with its history if what backward does is being recorded.
    fn with_history(node: &Pooled<Node>, which: Val, x: Tensor, tangents: &Tangents) -> Tensor {
        if mode::is_grad_enabled() || !tangents.is_empty() {
            let mut state = x.lock();
            state.tangents = levels::alive(tangents);
            if mode::is_grad_enabled() {
                state.history = match which {
                    Val::In(i) => node.inputs[i].clone(),
                    Val::Out(k) => History::Node(node.clone(), k as u32),
                };
            }
        }
        x
    }
}
