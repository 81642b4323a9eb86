//! The tape: a graph of nodes that are data.
//!
//! Tensors hold nodes by counted references, so unreferenced nodes are freed automatically. Each
//! node has a sequence number from one global counter; since an op runs after its operands exist,
//! numbers descend along every edge, and backward visits nodes in descending order without sorting
//! a graph.
//!
//! ```text
//!   tensor ──history──► Node ──inputs──► Node ──► … ──► Leaf (a tensor that requires grad)
//!                        │ op, saved values, source line
//! ```
//! `record.rs` puts an op on the tape, `saved.rs` is what a node keeps, `backward.rs` the walk.

pub(crate) mod backward;
pub(crate) mod record;
pub(crate) mod saved;

use crate::backend::{Latch, LatchGuard, Pooled};
use crate::cut::Cut;
use crate::drop_queue::{self, DroppedPart};
use crate::hooks::Hooks;
use crate::leaf::Leaf;
use crate::rule::{Adds, Grad};
use crate::{Op, Spec};
use pullback_ir::Line;
use pullback_ir::infer::Specs;
use saved::Saved;
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;

/// Where a tensor's value came from.
#[derive(Clone, Default)]
pub(crate) enum History {
    /// A constant.
    #[default]
    None,
    /// A constant, but made from something tracked: the path was cut, and here is where.
    Cut(Arc<Cut>),
    /// A tensor that requires grad.
    Leaf(Arc<Leaf>),
    /// An output of a recorded op.
    Node(Pooled<Node>, u32),
}

impl History {
    pub fn is_tracked(&self) -> bool {
        matches!(self, History::Leaf(_) | History::Node(..))
    }

    /// An identity by which gradients are looked up.
    pub fn key(&self) -> Option<ValueId> {
        match self {
            History::None | History::Cut(_) => None,
            History::Leaf(leaf) => Some((leaf.seq, 0)),
            History::Node(node, k) => Some((node.seq, *k)),
        }
    }
}

/// Sequence number and output index: names one tracked value.
pub(crate) type ValueId = (u64, u32);

/// The values that a node keeps; most keep one or none.
pub(crate) type SavedList = SmallVec<[Saved; 1]>;

/// A recorded op.
pub(crate) struct Node {
    pub seq: u64,
    pub op: Op,
    pub at: Line,
    /// The history of each operand.
    pub inputs: SmallVec<[History; 2]>,
    /// Specs of the operands; empty for pointwise ops of one dtype, whose operands are as the
    /// output.
    pub in_specs: Box<[Spec]>,
    pub out_specs: Specs,
    /// What backward needs; `None` once it was freed.
    saved: Latch<Option<SavedList>>,
    pub hooks: Hooks,
}

impl Node {
    pub fn in_spec(&self, i: usize) -> &Spec {
        self.in_specs.get(i).unwrap_or(&self.out_specs[0])
    }

    /// Whether this belongs to a leaf, and so to every graph that uses it: [`Adds::AtLeaf`].
    fn is_shared(&self, row: &Grad) -> bool {
        matches!((row.adds(), &self.inputs[..]), (Adds::AtLeaf(_), [History::Leaf(_)]))
    }

    pub fn saved(&self) -> LatchGuard<'_, Option<SavedList>> {
        self.saved.lock()
    }

    pub fn is_freed(&self) -> bool {
        self.saved().is_none()
    }

    pub fn free(&self) {
        // Dropped after the lock is released.
        let values = self.saved().take();
        drop(values);
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.op, self.at)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Only the last reference to another node can free more, and tangents that may hold one.
        for edge in &mut self.inputs {
            match std::mem::take(edge) {
                History::Node(node, _) if Pooled::strong_count(&node) == 1 => {
                    drop_queue::push(DroppedPart::Edge(node));
                }
                _ => {}
            }
        }
        let saved = self.saved.get_mut();
        if let Some(list) = saved.take_if(|list| list.iter().any(|s| !s.tangents.is_empty())) {
            drop_queue::push(DroppedPart::Saved(Box::new(list)));
        }
    }
}
