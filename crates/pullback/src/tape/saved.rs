//! Values saved for backward: all of them go through `pack` and `unpack` here.
//!
//! A saved value holds the memory, not the tensor: the history of a saved input is the node's own
//! edge, and a saved output belongs to the node itself, so there are no reference cycles. It
//! remembers the storage version it saw; if the memory was written to since, unpacking fails with
//! an error.
//!
//! Where a packer is active (`memory/packing.rs`), what it returned is kept instead.

use super::{History, Node};
use crate::backend::Pooled;
use crate::memory::kept::{self, Held, Kept};
use crate::memory::packing::{self, Packed};
use crate::rule::Val;
use crate::tangents::Tangents;
use crate::transform::levels;
use crate::{Error, Result, Tensor, events, mode, trace};
use pullback_ir::{Line, Op, Spec};
use smallvec::SmallVec;
use std::sync::Arc;

pub(crate) struct Saved {
    /// Which value of the op it is.
    which: Val,
    held: Held,
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
        let held = Held::pack(value, (Some(op), op.name(), at), is_output, history);
        Saved { which, held, tangents: tangents.clone() }
    }

    pub fn which(&self) -> Val {
        self.which
    }

    pub fn is_output(&self, k: usize) -> bool {
        self.which == Val::Out(k)
    }
}

impl Node {
    /// Calls `f` with each kept value.
    pub fn unpack(node: &Pooled<Node>, mut f: impl FnMut(Val, Tensor)) -> Result<()> {
        // Packed values are unpacked after the lock is released: that may run user code.
        type Waiting = (Val, Spec, Arc<dyn Packed>, Tangents);
        let mut packed: SmallVec<[Waiting; 2]> = SmallVec::new();
        {
            let saved = node.saved();
            let Some(values) = &*saved else {
                let name = node.op.name();
                let message =
                    format!("the graph through `{name}` was freed by an earlier backward");
                // The location is the line of this pass, which the caller adds.
                return Err(Error::gradient("backward", message)
                    .on(&node.in_specs)
                    .detail(format!("`{name}` was recorded at {}", node.at))
                    .hint(
                        "keep the graph in the earlier pass: `Backward::of(&y).retain_graph()`, or \
                         `.create_graph()` where a gradient of its gradient is wanted",
                    ));
            };
            for value in values {
                let x = match &value.held {
                    Held::Whole(storage, version) => {
                        kept::whole(node, value.which, storage, *version)?
                    }
                    Held::Kept(kept) => match &**kept {
                        Kept::Memory(window) => match window.tensor() {
                            Some(x) => x,
                            None => return Err(window.overwritten(node, value.which)),
                        },
                        Kept::Packed(spec, what) => {
                            let tangents = value.tangents.clone();
                            packed.push((value.which, spec.clone(), what.clone(), tangents));
                            continue;
                        }
                    },
                };
                f(value.which, Node::with_history(node, value.which, x, &value.tangents));
            }
        }
        for (which, spec, what, tangents) in packed {
            events::unpacking(&node.op, node.at);
            // A value from outside a body is unpacked outside it, like one that was never packed:
            // the body sees a constant, and outer derivatives see its history.
            let unpack = || packing::unpack(&*what, &spec);
            let x = trace::where_made(node.seq, unpack).map_err(|e| e.at(node.at))?;
            // It may be a user's tensor: the history is given to another handle.
            let x = Tensor::new(spec, x.0.layout.clone(), x.0.storage.clone());
            f(which, Node::with_history(node, which, x, &tangents));
        }
        Ok(())
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
