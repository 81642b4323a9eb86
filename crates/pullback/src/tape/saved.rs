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
use crate::memory::kept::{Kept, Window};
use crate::memory::packing::{self, Packed};
use crate::rule::Val;
use crate::storage::Storage;
use crate::tensor::Tangents;
use crate::transform::levels;
use crate::{Error, Result, Tensor, events, mode, trace};
use pullback_ir::{Layout, Line, Op, Spec};
use smallvec::SmallVec;
use std::sync::Arc;

pub(crate) struct Saved {
    /// Which value of the op it is.
    which: Val,
    held: Held,
    pub tangents: Tangents,
}

/// What is held of it.
enum Held {
    /// All of a memory, dense, at this version: the node knows the spec. Most values.
    Whole(Pooled<Storage>, u64),
    /// Anything else; boxed, so that a node stays small.
    Kept(Box<Kept>),
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
        let (layout, storage) = (&value.0.layout, &value.0.storage);
        let held = if !packing::is_active() && layout.offset == 0 && layout.is_dense() {
            events::value_saved(storage);
            Held::Whole(storage.clone(), storage.version())
        } else {
            let is_output = matches!(which, Val::Out(_));
            let kept = Kept::pack(value, (Some(op), op.name(), at), is_output, history);
            Held::Kept(Box::new(kept))
        };
        Saved { which, held, tangents: tangents.clone() }
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
                return Err(Error::gradient("backward", message).at(node.at).hint(
                    "use Backward::of(&y).retain_graph().run() to go through a graph more than once",
                ));
            };
            for value in values {
                let x = match &value.held {
                    Held::Whole(storage, version) => node.whole(value.which, storage, *version)?,
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
                f(value.which, Node::given_back(node, value.which, x, &value.tangents));
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
            f(which, Node::given_back(node, which, x, &tangents));
        }
        Ok(())
    }

    /// What a whole memory holds.
    fn whole(&self, which: Val, storage: &Pooled<Storage>, version: u64) -> Result<Tensor> {
        let spec = match which {
            Val::In(i) => self.in_spec(i),
            Val::Out(k) => &self.out_specs[k],
        };
        let layout = Layout::dense(spec.shape.clone());
        let x = Tensor::new(spec.clone(), layout, storage.clone());
        if storage.version() == version {
            return Ok(x);
        }
        let mut window = Window::of(&x);
        window.version = version;
        Err(window.overwritten(self, which))
    }

    /// A kept value; with its history if what backward does is being recorded.
    fn given_back(node: &Pooled<Node>, which: Val, x: Tensor, tangents: &Tangents) -> Tensor {
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
