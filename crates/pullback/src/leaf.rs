//! Leaves: tensors that require grad, where paths of derivatives end and gradients are collected.

use crate::grad::BackwardOptions;
use crate::hooks::Hooks;
use crate::sequence::{self, take_number};
use crate::{Error, Result, Tensor, events, fail, mode, trace};
use pullback_ir::Line;
use rustc_hash::FxHashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A tensor that requires grad, without its values.
pub(crate) struct Leaf {
    pub seq: u64,
    grad: Mutex<Option<Tensor>>,
    pub hooks: Hooks,
    /// It was the argument of a `grad` or `vjp` that has returned: its gradient cannot be requested
    /// any more. The tape number at that time, or 0.
    over: AtomicU64,
    /// No tensor is this leaf any more: its [`Owner`] was dropped.
    orphan: AtomicBool,
}

/// Held by the tensors that are a leaf, as opposed to the nodes that refer to it. When the last of
/// them is dropped the gradient cannot be requested, so it is dropped too: one that was recorded
/// (`create_graph`) refers to the leaf, and the two would be a reference cycle.
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
        // The thread that drops this may hold the lock: then it is left as it is.
        let gradient = self.0.grad.try_lock().ok().and_then(|mut slot| slot.take());
        drop(gradient);
    }
}

impl Leaf {
    pub fn new() -> Leaf {
        Leaf {
            seq: take_number(),
            grad: Mutex::default(),
            hooks: Hooks::default(),
            over: AtomicU64::new(0),
            orphan: AtomicBool::new(false),
        }
    }

    /// Whether its gradient cannot be requested, because no tensor is this leaf any more.
    pub fn is_orphan(&self) -> bool {
        self.orphan.load(Ordering::Acquire)
    }

    /// The transform that it was the argument of is over.
    pub fn end(&self) {
        self.over.store(take_number(), Ordering::Relaxed);
    }

    /// Whether its transform is over. A function that is replayed sees the state of its first run.
    pub fn is_over(&self) -> bool {
        let (over, moment) = (self.over.load(Ordering::Relaxed), sequence::moment(u64::MAX));
        over != 0 && (over < moment || self.seq > moment)
    }

    pub fn grad(&self) -> MutexGuard<'_, Option<Tensor>> {
        self.grad.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A gradient after the hooks, which must leave its spec as it is.
    fn through_hooks(&self, grad: Tensor, options: BackwardOptions) -> Result<Tensor> {
        if self.hooks.is_empty() {
            return Ok(grad);
        }
        let spec = grad.spec().clone();
        let grad = self.hooks.pass(0, options.shown(grad));
        if *grad.spec() == spec {
            return Ok(grad);
        }
        let message = format!("a hook gave {} for a gradient of spec {spec}", grad.spec());
        Err(Error::gradient("register_hook", message))
    }

    /// Adds to `.grad`, and calls its ready hooks where `ready`.
    fn add_grad(self: &Arc<Leaf>, grad: Tensor, options: BackwardOptions, ready: bool, at: Line) {
        if self.is_orphan() {
            if ready {
                self.hooks.call_ready(&options.shown(grad));
            }
            return;
        }
        events::gradient_of(self, &grad);
        let mut slot = self.grad();
        trace::touch(self, &mut slot, (true, true), at);
        // In a body the constant is a value of its own.
        let own = options.constant.is_some() && trace::in_body();
        match &mut *slot {
            Some(_) => accumulate(&mut slot, grad, at),
            // Stored for the user, who may write to it: it must be contiguous and unaliased.
            None if own || (grad.is_contiguous() && grad.is_sole_owner()) => *slot = Some(grad),
            None => {
                let copy = mode::with_line(at, || grad.deep_clone());
                events::replaced(&grad, &copy);
                *slot = Some(copy);
            }
        }
        *slot = slot.take().map(|grad| options.shown(grad));
        slot.iter().for_each(|grad| events::gradient_of(self, grad));
        let total = slot.as_ref().filter(|_| ready).cloned();
        // The last tensor that is this leaf may have gone meanwhile, and found the lock taken.
        let unwanted = if self.is_orphan() { slot.take() } else { None };
        drop(slot);
        drop(unwanted);
        if let Some(total) = total {
            self.hooks.call_ready(&total);
        }
    }
}

impl fmt::Debug for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "leaf {}", self.seq)
    }
}

/// The gradients of leaves that a backward pass has summed so far.
pub(crate) struct GradientSums {
    options: BackwardOptions,
    sums: Vec<(Arc<Leaf>, Option<Tensor>)>,
    /// Where each leaf is in the list, by its number.
    places: FxHashMap<u64, usize>,
    /// Contributions that each leaf still expects, where a ready hook waits for the last.
    expected: Option<FxHashMap<u64, usize>>,
    /// The line of the call.
    at: Line,
}

impl GradientSums {
    pub fn new(
        options: BackwardOptions,
        expected: Option<FxHashMap<u64, usize>>,
        at: Line,
    ) -> GradientSums {
        GradientSums { options, sums: Vec::new(), places: FxHashMap::default(), expected, at }
    }

    /// Whether contributions are counted, because a ready hook waits for the last.
    pub fn counts(&self) -> bool {
        self.expected.is_some()
    }

    /// The sum for a leaf, where more may be added to it in place.
    pub fn waiting(&self, leaf: &Leaf) -> Option<&Tensor> {
        match self.counts() {
            true => None,
            false => self.places.get(&leaf.seq).and_then(|&i| self.sums[i].1.as_ref()),
        }
    }

    /// Adds a contribution.
    pub fn add(&mut self, leaf: &Arc<Leaf>, grad: Tensor) {
        let i = *self.places.entry(leaf.seq).or_insert_with(|| {
            self.sums.push((leaf.clone(), None));
            self.sums.len() - 1
        });
        accumulate(&mut self.sums[i].1, grad, self.at);
        let Some(expected) = &mut self.expected else { return };
        let left = expected.entry(leaf.seq).or_insert(1);
        *left = left.saturating_sub(1);
        if *left == 0 && leaf.hooks.has_ready() {
            fail::or_raise(self.pass_hooks_of(i));
            self.finish_one(i);
        }
    }

    /// What the hooks of the leaves make of their gradients.
    pub fn pass_hooks(&mut self) -> Result<()> {
        (0..self.sums.len()).try_for_each(|i| self.pass_hooks_of(i))
    }

    fn pass_hooks_of(&mut self, i: usize) -> Result<()> {
        let (leaf, slot) = &mut self.sums[i];
        if let Some(grad) = slot.take() {
            *slot = Some(leaf.through_hooks(grad, self.options)?);
        }
        Ok(())
    }

    /// Adds what was summed to `.grad`.
    pub fn finish(&mut self) {
        (0..self.sums.len()).for_each(|i| self.finish_one(i));
    }

    fn finish_one(&mut self, i: usize) {
        let ready = self.counts();
        let (leaf, grad) = &mut self.sums[i];
        if let Some(grad) = grad.take() {
            events::leaf_complete(leaf, &grad);
            leaf.add_grad(grad, self.options, ready, self.at);
        }
    }

    /// The sums, for a caller that takes them instead.
    pub fn take(self) -> impl Iterator<Item = (Arc<Leaf>, Tensor)> {
        self.sums.into_iter().filter_map(|(leaf, grad)| Some((leaf, grad?)))
    }
}

/// The first contribution is stored, further ones are added: in place where there are no other
/// references.
pub(crate) fn accumulate(slot: &mut Option<Tensor>, grad: Tensor, at: Line) {
    let total = match &*slot {
        None => grad,
        // What is there stays until there is a total: an addition may fail.
        Some(sum) => {
            let added = || !mode::is_grad_enabled() && sum.add_in_place_if_sole(&grad);
            let Some(total) = mode::with_line(at, || (!added()).then(|| sum + &grad)) else {
                return;
            };
            events::replaced(sum, &total);
            total
        }
    };
    *slot = Some(total);
}
