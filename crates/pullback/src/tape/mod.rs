//! The tape: a graph of nodes that are data.
//!
//! Nodes hang off tensors by `Arc`, so what nothing refers to any more is freed by itself. Each node
//! has a sequence number from one global counter; since an op runs after its operands exist, numbers
//! descend along every edge, and backward visits nodes in descending order without sorting a graph.
//!
//! ```text
//!   tensor ──history──► Node ──inputs──► Node ──► … ──► Leaf (a tensor that requires grad)
//!                        │ op, saved values, source line
//! ```
//! `backward.rs` is the walk, `saved.rs` what a node keeps, `explain.rs` why a path was cut.

pub(crate) mod backward;
mod explain;
mod hooks;
pub(crate) mod saved;

pub use hooks::HookHandle;

use crate::tensor::Tangents;
use crate::{Op, Spec, Tensor, mode};
use hooks::Hooks;
use pullback_ir::Line;
use pullback_ir::infer::Specs;
use saved::Saved;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

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
    Node(Arc<Node>, u32),
}

impl History {
    pub fn is_tracked(&self) -> bool {
        matches!(self, History::Leaf(_) | History::Node(..))
    }

    /// An identity by which gradients are looked up.
    pub fn key(&self) -> Option<Key> {
        match self {
            History::None | History::Cut(_) => None,
            History::Leaf(leaf) => Some((leaf.seq, 0)),
            History::Node(node, k) => Some((node.seq, *k)),
        }
    }
}

/// Sequence number and output index: names one tracked value.
pub(crate) type Key = (u64, u32);

/// A recorded op.
pub(crate) struct Node {
    pub seq: u64,
    pub op: Op,
    pub at: Line,
    /// The history of each operand.
    pub inputs: SmallVec<[History; 2]>,
    /// Specs of the operands; empty for pointwise ops of one dtype, whose operands are as the output.
    pub in_specs: Box<[Spec]>,
    pub out_specs: Specs,
    /// What backward needs; `None` once it was freed. A list of its own, so that a node that keeps
    /// nothing stays small.
    saved: Mutex<Option<Vec<Saved>>>,
    hooks: Hooks,
}

/// A tensor that requires grad, apart from its values.
pub(crate) struct Leaf {
    pub seq: u64,
    grad: Mutex<Option<Tensor>>,
    hooks: Hooks,
    /// It was the argument of a `grad` or `vjp` that is over: nobody can ask for its gradient any more. The number of the tape at which
    /// that was, or 0.
    over: AtomicU64,
    /// No tensor is this leaf any more: its [`Owner`] is gone.
    orphan: AtomicBool,
}

/// Held by the tensors that are a leaf, as opposed to the nodes that lead to it. When the last of them is gone nobody can ask for the
/// gradient, so it is dropped: one that was recorded (`create_graph`) leads back to the leaf, and the two would keep each other for good.
pub(crate) struct Owner(Arc<Leaf>);

impl Owner {
    pub fn of(leaf: &Arc<Leaf>) -> Arc<Owner> {
        Arc::new(Owner(leaf.clone()))
    }

    pub fn owns(&self, leaf: &Arc<Leaf>) -> bool {
        Arc::ptr_eq(&self.0, leaf)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.orphan.store(true, Ordering::Release);
        // Whoever holds the lock may be the one who drops this: then it is left as it is.
        let gradient = self.0.grad.try_lock().ok().and_then(|mut slot| slot.take());
        drop(gradient);
    }
}

/// A place where a path was cut.
pub(crate) struct Cut {
    pub why: CutReason,
    pub op: &'static str,
    pub at: Line,
    /// What was cut off. Weak, so that a detached value does not keep a graph alive.
    from: SmallVec<[CutFrom; 1]>,
    /// How many earlier cuts hang on this one. Bounded: a long evaluation keeps the newest few.
    depth: usize,
}

/// How many cuts behind each other are remembered.
const CUTS_KEPT: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CutReason {
    /// `detach` or `stop_gradient`.
    Detached,
    /// Recording was off.
    NoGrad,
    /// The op is piecewise constant, or gives integers.
    Constant,
}

enum CutFrom {
    Leaf(Weak<Leaf>),
    Node(Weak<Node>),
    Cut(Arc<Cut>),
}

static SEQUENCE: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The number of the tape at which what goes on here went on first.
    static MOMENT: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// The number of the tape at which what goes on here went on first: where a function runs again, that of its first run.
pub(crate) fn moment(now: u64) -> u64 {
    now.min(MOMENT.get())
}

/// Runs `f`, which ran at this moment before.
pub(crate) fn as_of<R>(moment: u64, f: impl FnOnce() -> R) -> R {
    mode::with(&MOMENT, moment, f)
}

/// The number that the next node or leaf will have at least.
pub(crate) fn next_number() -> u64 {
    SEQUENCE.load(Ordering::Relaxed)
}

/// A number between those of what was made before and of what will be made.
pub(crate) fn take_number() -> u64 {
    next_seq()
}

fn next_seq() -> u64 {
    SEQUENCE.fetch_add(1, Ordering::Relaxed)
}

impl Node {
    pub fn new(
        op: Op,
        at: Line,
        inputs: SmallVec<[History; 2]>,
        in_specs: Box<[Spec]>,
        out_specs: Specs,
        saved: Vec<Saved>,
    ) -> Node {
        let saved = Mutex::new(Some(saved));
        Node {
            seq: next_seq(),
            op,
            at,
            inputs,
            in_specs,
            out_specs,
            saved,
            hooks: Hooks::default(),
        }
    }

    pub fn in_spec(&self, i: usize) -> &Spec {
        self.in_specs.get(i).unwrap_or(&self.out_specs[0])
    }

    /// Whether this is a leaf in another dtype.
    pub fn is_cast_of_leaf(&self) -> bool {
        matches!((&self.op, &self.inputs[..]), (Op::Cast(_), [History::Leaf(_)]))
    }

    fn saved(&self) -> MutexGuard<'_, Option<Vec<Saved>>> {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the tangents that an output got to the saved copies of it.
    pub fn attach_tangents(&self, output: u32, tangents: &[(u64, Tensor)]) {
        if let Some(values) = &mut *self.saved() {
            for value in values.iter_mut().filter(|v| v.is_output(output)) {
                value.tangents = tangents.to_vec();
            }
        }
    }

    /// Drops the saved tangents of a level that has ended.
    pub fn forget_tangents(&self, level: u64) {
        let mut gone = Tangents::new();
        for value in self.saved().iter_mut().flatten() {
            let (old, kept) =
                std::mem::take(&mut value.tangents).into_iter().partition(|t| t.0 == level);
            value.tangents = kept;
            gone.extend::<Tangents>(old);
        }
        // Dropped after the lock is released: what it leads to may be this node.
        drop(gone);
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

impl Leaf {
    pub fn new() -> Leaf {
        Leaf {
            seq: next_seq(),
            grad: Mutex::default(),
            hooks: Hooks::default(),
            over: AtomicU64::new(0),
            orphan: AtomicBool::new(false),
        }
    }

    /// Whether nobody can ask for its gradient, because no tensor is this leaf any more.
    pub fn is_orphan(&self) -> bool {
        self.orphan.load(Ordering::Acquire)
    }

    /// The transform that it was the argument of is over.
    pub fn end(&self) {
        self.over.store(next_seq(), Ordering::Relaxed);
    }

    /// Whether its transform is over. A function that runs again finds what was there the first time as it was.
    pub fn is_over(&self) -> bool {
        let (over, moment) = (self.over.load(Ordering::Relaxed), MOMENT.get());
        over != 0 && (over < moment || self.seq > moment)
    }

    pub fn grad(&self) -> MutexGuard<'_, Option<Tensor>> {
        self.grad.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.op, self.at)
    }
}

impl fmt::Debug for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "leaf {}", self.seq)
    }
}

impl Cut {
    /// A note that a value made from `sources` is a constant, or the note they already carry.
    pub fn between<'a>(
        why: CutReason,
        op: &'static str,
        at: Line,
        sources: impl Iterator<Item = &'a History>,
    ) -> History {
        let mut from: SmallVec<[CutFrom; 1]> = SmallVec::new();
        let mut earlier = None;
        for source in sources {
            match source {
                History::None => {}
                History::Cut(cut) => earlier = Some(cut.clone()),
                History::Leaf(leaf) => from.push(CutFrom::Leaf(Arc::downgrade(leaf))),
                History::Node(node, _) => from.push(CutFrom::Node(Arc::downgrade(node))),
            }
        }
        match (from.is_empty(), earlier) {
            (true, None) => History::None,
            (true, Some(cut)) => History::Cut(cut),
            (false, earlier) => {
                let earlier = earlier.filter(|cut| cut.depth < CUTS_KEPT);
                let depth = earlier.as_ref().map_or(0, |cut| cut.depth + 1);
                from.extend(earlier.map(CutFrom::Cut));
                History::Cut(Arc::new(Cut { why, op, at, from, depth }))
            }
        }
    }
}

// A chain of a million nodes must not be dropped by a million nested calls: the first node to go
// becomes the one that drops everything the others leave behind, in a loop.
thread_local! {
    static LEFT_BEHIND: RefCell<Option<Vec<Remains>>> = const { RefCell::new(None) };
}

/// What a dropped node held that may hold further nodes. Never read, only dropped.
struct Remains(#[allow(dead_code)] SmallVec<[History; 2]>, #[allow(dead_code)] Option<Vec<Saved>>);

impl Drop for Node {
    fn drop(&mut self) {
        let saved = self.saved.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Only a node that holds the last reference to another one, or tangents that may, leads on.
        let last =
            |h: &History| matches!(h, History::Node(node, _) if Arc::strong_count(node) == 1);
        let tangents = saved.iter().flatten().any(|s| !s.tangents.is_empty());
        if !tangents && !self.inputs.iter().any(last) {
            return;
        }
        let remains = Remains(std::mem::take(&mut self.inputs), saved.take());
        // While the thread is ending the list is gone; what is left then is dropped as it comes.
        let _ = LEFT_BEHIND.try_with(|list| {
            let Ok(mut held) = list.try_borrow_mut() else { return };
            if let Some(waiting) = held.as_mut() {
                waiting.push(remains);
                return;
            }
            *held = Some(Vec::new());
            drop(held);
            let mut next = Some(remains);
            while let Some(remains) = next {
                drop(remains);
                next = list.borrow_mut().as_mut().and_then(Vec::pop);
            }
            *list.borrow_mut() = None;
        });
    }
}
