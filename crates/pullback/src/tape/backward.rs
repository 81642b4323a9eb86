//! The walk: from the outputs' cotangents back to the leaves.
//!
//! Nodes wait in a heap by sequence number. The one with the highest number has all its consumers
//! behind it, so its gradient is complete when it is taken: no graph is sorted, nothing recurses, and a
//! chain of a million nodes keeps one entry in the heap.
//!
//! Gradients of leaves are summed beside the walk and added to `.grad` at the end, so a backward that
//! fails leaves every `.grad` as it was. The exception are leaves with a ready hook: theirs is added, and
//! the hook told, as soon as the last contribution is in.

use super::hooks::any_ready_hook;
use super::saved::From;
use super::{History, Key, Leaf, Node};
use crate::memory::report::ledger;
use crate::memory::{budget, checkpoint};
use crate::rule::{Facts, Maybe, Val};
use crate::{Error, Result, Tensor, autocast, fail, kinks, mode, ops, trace, watch};
use pullback_ir::{ErrorKind, Line, Op, View};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// How a backward pass treats the graph.
#[derive(Clone, Copy, Default)]
pub(crate) struct Manner {
    /// Saved values stay, so that the graph can be gone through again.
    pub retain: bool,
    /// The pass itself is recorded, so that its results can be differentiated.
    pub create: bool,
    /// Where the gradients are constants to every derivative that is taken outside, in both modes: the line that asked for them.
    pub constant: Option<Line>,
}

impl Manner {
    /// A gradient as the user sees it, and his hooks.
    fn given(self, grad: Tensor) -> Tensor {
        match self.constant {
            Some(at) => grad.constant(at),
            None => grad,
        }
    }
}

/// Gradients waiting for their node.
struct Pending {
    node: Arc<Node>,
    grads: Maybe,
}

struct Walk {
    manner: Manner,
    heap: BinaryHeap<u64>,
    pending: FxHashMap<u64, Pending>,
    leaves: Vec<(Arc<Leaf>, Option<Tensor>)>,
    leaf_at: FxHashMap<u64, usize>,
    /// Where only some gradients are wanted: what leads to them, and the gradients found.
    wanted: Option<Wanted>,
    /// Contributions that each leaf still expects, where someone waits for the last.
    expected: Option<FxHashMap<u64, usize>>,
    /// The line that asked for the gradients of leaves.
    at: Line,
}

struct Wanted {
    targets: FxHashSet<Key>,
    found: FxHashMap<Key, Tensor>,
    leading: FxHashSet<u64>,
}

/// Runs backward from `roots` and adds to the `.grad` of the leaves it reaches.
pub(crate) fn into_leaves(roots: Vec<(History, Tensor)>, manner: Manner, at: Line) -> Result<()> {
    let expected = any_ready_hook().then(|| contributions(&roots));
    let mut walk = Walk::new(manner, None, expected, at);
    walk.go(roots)
}

/// What is known before a backward pass to chosen targets.
pub(crate) struct Plan {
    /// The nodes from which some target is reached.
    leading: FxHashSet<u64>,
    /// Whether the outputs also depend on something tracked that is not a target: then someone
    /// outside may want to differentiate the gradients.
    pub outside: bool,
}

/// Runs backward from `roots` and gives the gradients of `targets`, touching no `.grad`.
pub(crate) fn of_targets(
    roots: Vec<(History, Tensor)>,
    targets: &[Key],
    plan: Plan,
    manner: Manner,
    at: Line,
) -> Result<Vec<Option<Tensor>>> {
    let wanted = Wanted {
        targets: targets.iter().copied().collect(),
        found: FxHashMap::default(),
        leading: plan.leading,
    };
    let mut walk = Walk::new(manner, Some(wanted), None, at);
    walk.go(roots).map_err(|e| e.at(at))?;
    let leaves = std::mem::take(&mut walk.leaves);
    let Some(mut wanted) = walk.wanted.take() else { return Ok(Vec::new()) };
    for (leaf, grad) in leaves {
        if let Some(grad) = grad {
            ledger::is_gradient(&leaf, &grad);
            wanted.found.insert((leaf.seq, 0), grad);
        }
    }
    let gradient = |key| wanted.found.get(key).map(|grad| manner.given(grad.clone()));
    Ok(targets.iter().map(gradient).collect())
}

impl Walk {
    fn new(
        manner: Manner,
        wanted: Option<Wanted>,
        expected: Option<FxHashMap<u64, usize>>,
        at: Line,
    ) -> Walk {
        Walk {
            manner,
            heap: BinaryHeap::new(),
            pending: FxHashMap::default(),
            leaves: Vec::new(),
            leaf_at: FxHashMap::default(),
            wanted,
            expected,
            at,
        }
    }

    /// The whole walk. Rules are formulas: what one panics with becomes an error of this pass.
    fn go(&mut self, roots: Vec<(History, Tensor)>) -> Result<()> {
        let mark = checkpoint::mark();
        let done = self.go_on(roots);
        checkpoint::forget_since(mark);
        done
    }

    fn go_on(&mut self, roots: Vec<(History, Tensor)>) -> Result<()> {
        let create = self.manner.create;
        let walk = || {
            self.run(roots)?;
            self.pass_leaf_hooks()?;
            if self.wanted.is_none() {
                (0..self.leaves.len()).for_each(|i| self.finish_leaf(i));
            }
            Ok(())
        };
        // Dtypes and conventions were settled in the forward pass.
        let walk = || kinks::settled(|| ledger::backward(|| watch::backward(walk)));
        let walk = || budget::backward(create, walk);
        autocast::off(|| mode::set_recording(create, || fail::catch(walk)))?
    }

    /// What the hooks of the leaves make of their gradients; an error here has changed no `.grad`.
    fn pass_leaf_hooks(&mut self) -> Result<()> {
        for (leaf, slot) in &mut self.leaves {
            if let Some(grad) = slot.take() {
                *slot = Some(through_hooks(leaf, grad, self.manner)?);
            }
        }
        Ok(())
    }

    fn run(&mut self, roots: Vec<(History, Tensor)>) -> Result<()> {
        for (history, dy) in roots {
            if self.wants(&history) {
                self.give(&history, dy);
            }
        }
        while let Some(seq) = self.heap.pop() {
            if let Some(Pending { node, grads }) = self.pending.remove(&seq) {
                watch::backward_of(&node.op, node.at);
                self.visit(&node, grads)?;
                // The cast of a leaf keeps nothing, and may be shared by several graphs.
                if !self.manner.retain && !node.is_cast_of_leaf() {
                    node.free();
                }
            }
        }
        Ok(())
    }

    /// Whether a gradient for this history is of any use.
    fn wants(&self, history: &History) -> bool {
        match (&self.wanted, history) {
            (_, History::None | History::Cut(_)) => false,
            (None, _) => true,
            (Some(wanted), History::Leaf(leaf)) => wanted.targets.contains(&(leaf.seq, 0)),
            (Some(wanted), History::Node(node, k)) => {
                wanted.leading.contains(&node.seq) || wanted.targets.contains(&(node.seq, *k))
            }
        }
    }

    fn visit(&mut self, node: &Arc<Node>, mut grads: Maybe) -> Result<()> {
        for (k, slot) in grads.iter_mut().enumerate() {
            let Some(grad) = slot.take() else { continue };
            let grad = match node.hooks.is_empty() {
                true => grad,
                false => node.hooks.pass(k as u32, self.manner.given(grad)),
            };
            // What a rule gave was checked there; a hook may give anything.
            if !node.hooks.is_empty() {
                check_gradient(node, &node.out_specs[k], &grad)?;
            }
            if let Some(wanted) = &mut self.wanted
                && wanted.targets.contains(&(node.seq, k as u32))
            {
                wanted.found.insert((node.seq, k as u32), grad.clone());
            }
            *slot = Some(grad);
        }
        if trace::is_outside(node.seq) {
            let message = "the graph leads out of the function that is traced";
            let error = Error::new(ErrorKind::Program, "backward", message).at(node.at);
            return Err(
                error.hint("pass what was computed outside as an argument, or compute it inside")
            );
        }
        let mut needs: SmallVec<[bool; 4]> = SmallVec::new();
        node.inputs.iter().for_each(|h| needs.push(self.wants(h)));
        if !needs.contains(&true) {
            return Ok(());
        }
        if let (Op::View(view), Some(dy), false) = (&node.op, &grads[0], self.manner.create)
            && self.give_part(node, view, dy)?
        {
            return Ok(());
        }
        let mut facts = Facts::new(&node.op, &node.in_specs, &node.out_specs, needs);
        let dxs = mode::with_line(node.at, || {
            let set = |from, value| match from {
                From::Input(i) => facts.set(Val::In(i as usize), value),
                From::Output(k) => facts.set(Val::Out(k as usize), value),
            };
            let cotangent = grads.iter().flatten().next();
            checkpoint::walking_with(cotangent, || node.unpack(set))?;
            if let (Op::Dot, Some(dy), false) = (&node.op, &grads[0], self.manner.create) {
                self.give_products(node, &mut facts, dy);
            }
            ops::row(&node.op).vjp(&facts, &grads)
        })?;
        drop(grads);
        for (i, dx) in dxs.into_iter().enumerate() {
            let Some(dx) = dx.filter(|_| facts.needs(i)) else { continue };
            check_gradient(node, node.in_spec(i), &dx)?;
            if mode::anomaly() {
                check_finite(node, i, &dx)?;
            }
            self.give(&node.inputs[i], dx);
        }
        Ok(())
    }

    /// Adds a contribution to the gradient of a tracked value.
    fn give(&mut self, to: &History, grad: Tensor) {
        match to {
            History::None | History::Cut(_) => {}
            // A weight in a low dtype: what its uses give is summed in the dtype of the weight itself.
            History::Node(node, _) if node.is_cast_of_leaf() && self.may_pass(node) => {
                let wide = node.in_spec(0).dtype;
                self.give(&node.inputs[0], mode::with_line(node.at, || grad.cast(wide)));
            }
            History::Node(node, k) => {
                let pending = self.pending.entry(node.seq).or_insert_with(|| {
                    self.heap.push(node.seq);
                    let mut grads = Maybe::new();
                    node.out_specs.iter().for_each(|_| grads.push(None));
                    Pending { node: node.clone(), grads }
                });
                let slot = &mut pending.grads[*k as usize];
                mode::with_line(node.at, || accumulate(slot, grad));
            }
            History::Leaf(leaf) => {
                let at = *self.leaf_at.entry(leaf.seq).or_insert_with(|| {
                    self.leaves.push((leaf.clone(), None));
                    self.leaves.len() - 1
                });
                let slot = &mut self.leaves[at].1;
                mode::with_line(self.at, || accumulate(slot, grad));
                let Some(expected) = &mut self.expected else { return };
                let left = expected.entry(leaf.seq).or_insert(1);
                *left = left.saturating_sub(1);
                if *left == 0 && leaf.hooks.has_ready() {
                    let (leaf, slot) = &mut self.leaves[at];
                    if let Some(grad) = slot.take() {
                        *slot = Some(fail::or_raise(through_hooks(leaf, grad, self.manner)));
                    }
                    self.finish_leaf(at);
                }
            }
        }
    }

    /// Whether a gradient may go through this cast at once: the leaf is the wider one, and nobody waits at the cast for the sum.
    fn may_pass(&self, node: &Node) -> bool {
        let wanted = |w: &Wanted| w.targets.contains(&(node.seq, 0));
        node.in_spec(0).dtype.size() > node.out_specs[0].dtype.size()
            && self.expected.is_none()
            && node.hooks.is_empty()
            && !self.wanted.as_ref().is_some_and(wanted)
            && !trace::is_outside(node.seq)
    }

    /// The gradient of a slice, added to the part of a gradient that is already there: so the slices of a
    /// tensor cost as much as the tensor together, not each. `false` where the general rule must run.
    fn give_part(&mut self, node: &Arc<Node>, view: &View, dy: &Tensor) -> Result<bool> {
        let slot = self.waiting(&node.inputs[0]);
        let Some(sum) = slot.filter(|_| matches!(view, View::Slice(_) | View::Diagonal { .. }))
        else {
            return Ok(false);
        };
        if mode::anomaly() {
            check_finite(node, 0, dy)?;
        }
        let add = || sum.add_to_part_if_sole(view, dy);
        Ok(!node.is_freed() && mode::with_line(node.at, add))
    }

    /// The gradients of a matrix product that are sums already are added to by the product itself: the gradient of a weight that
    /// is used at every step of a sequence passes through memory once a step instead of three times.
    fn give_products(&self, node: &Node, facts: &mut Facts, dy: &Tensor) {
        if mode::anomaly() {
            return;
        }
        for i in 0..2 {
            let Some(sum) = self.waiting(&node.inputs[i]).filter(|_| facts.needs(i)) else {
                continue;
            };
            let (a, b) = ops::dot::factors(facts, i, dy);
            if sum.add_product_if_sole(&a, &b) {
                facts.satisfied(i);
            }
        }
    }

    /// What has arrived for a value so far, where more may be added to it in place.
    fn waiting(&self, history: &History) -> Option<&Tensor> {
        match history {
            History::Node(node, k) => {
                self.pending.get(&node.seq).and_then(|p| p.grads[*k as usize].as_ref())
            }
            // A leaf that someone waits for counts its contributions.
            History::Leaf(_) if self.expected.is_some() => None,
            History::Leaf(leaf) => {
                self.leaf_at.get(&leaf.seq).and_then(|&at| self.leaves[at].1.as_ref())
            }
            History::None | History::Cut(_) => None,
        }
    }

    /// Adds what was collected for a leaf to its `.grad`.
    fn finish_leaf(&mut self, i: usize) {
        let at = self.at;
        let (leaf, grad) = &mut self.leaves[i];
        let Some(grad) = grad.take() else { return };
        if leaf.is_orphan() {
            if self.expected.is_some() {
                leaf.hooks.tell_ready(&self.manner.given(grad));
            }
            return;
        }
        ledger::is_gradient(leaf, &grad);
        let mut slot = leaf.grad();
        trace::touch(leaf, &mut slot, (true, true), at);
        // In a body the constant is a value of its own.
        let own = self.manner.constant.is_some() && trace::in_body();
        match &mut *slot {
            Some(_) => mode::with_line(self.at, || accumulate(&mut slot, grad)),
            // Stored for the user, who may write to it: it must be dense and its own.
            None if own || (grad.is_contiguous() && grad.is_sole_owner()) => *slot = Some(grad),
            None => {
                let copy = mode::with_line(self.at, || grad.deep_clone());
                ledger::continues(&grad, &copy);
                *slot = Some(copy);
            }
        }
        *slot = slot.take().map(|grad| self.manner.given(grad));
        slot.iter().for_each(|grad| ledger::is_gradient(leaf, grad));
        let total = slot.as_ref().filter(|_| self.expected.is_some()).cloned();
        drop(slot);
        if let Some(total) = total {
            leaf.hooks.tell_ready(&total);
        }
    }
}

/// A leaf's gradient after its hooks, which must leave its spec as it is.
fn through_hooks(leaf: &Leaf, grad: Tensor, manner: Manner) -> Result<Tensor> {
    if leaf.hooks.is_empty() {
        return Ok(grad);
    }
    let spec = grad.spec().clone();
    let grad = leaf.hooks.pass(0, manner.given(grad));
    if *grad.spec() == spec {
        return Ok(grad);
    }
    let message = format!("a hook gave {} for a gradient of spec {spec}", grad.spec());
    Err(Error::gradient("register_hook", message))
}

/// The first contribution is stored, further ones are added: in place where nobody else can see it.
fn accumulate(slot: &mut Option<Tensor>, grad: Tensor) {
    *slot = Some(match slot.take() {
        None => grad,
        Some(sum) if !mode::is_grad_enabled() && sum.add_in_place_if_sole(&grad) => sum,
        Some(sum) => {
            let total = &sum + &grad;
            ledger::continues(&sum, &total);
            total
        }
    });
}

/// Rules are checked where they are used: a gradient has the shape and dtype of what it is for.
fn check_gradient(node: &Node, spec: &crate::Spec, grad: &Tensor) -> Result<()> {
    if grad.spec() == spec {
        return Ok(());
    }
    let message = format!("a gradient of spec {} arrived for a value of spec {spec}", grad.spec());
    Err(Error::gradient(node.op.name(), message).at(node.at))
}

fn check_finite(node: &Node, operand: usize, dx: &Tensor) -> Result<()> {
    if trace::active() {
        trace::looks_at_values();
        return Ok(());
    }
    let dx = dx.detach();
    let (nan, infinite) = mode::set_recording(false, || (dx.is_nan().any(), dx.is_inf().any()));
    let found = match (nan.item::<bool>(), infinite.item::<bool>()) {
        (true, _) => "NaN",
        (_, true) => "an infinity",
        _ => return Ok(()),
    };
    let which = match node.inputs.len() {
        1 => String::new(),
        _ => format!(" for operand {}", operand + 1),
    };
    let message = format!("backward of `{}` made {found}{which}", node.op.name());
    Err(Error::new(ErrorKind::Anomaly, "", message).on([dx.spec()]).at(node.at))
}

/// How many contributions each leaf will get.
fn contributions(roots: &[(History, Tensor)]) -> FxHashMap<u64, usize> {
    let mut counts = FxHashMap::default();
    let mut seen = FxHashSet::default();
    let mut stack: Vec<History> = roots.iter().map(|r| r.0.clone()).collect();
    while let Some(history) = stack.pop() {
        match history {
            History::None | History::Cut(_) => {}
            History::Leaf(leaf) => *counts.entry(leaf.seq).or_insert(0) += 1,
            History::Node(node, _) => {
                if seen.insert(node.seq) {
                    stack.extend(node.inputs.iter().cloned());
                }
            }
        }
    }
    counts
}

/// Finds what leads to the targets. Sequence numbers descend along edges, so nothing older than the
/// oldest target leads to one, and the search stops there.
pub(crate) fn plan<'a>(roots: impl Iterator<Item = &'a History>, targets: &[Key]) -> Plan {
    let mut plan = Plan { leading: FxHashSet::default(), outside: false };
    let targets: FxHashSet<Key> = targets.iter().copied().collect();
    let Some(oldest) = targets.iter().map(|t| t.0).min() else { return plan };
    // Nodes, and whether they were reached without passing through a target. What lies behind a target matters only for targets there.
    let mut nodes: FxHashMap<u64, (Arc<Node>, bool)> = FxHashMap::default();
    let mut stack: Vec<(History, bool)> = roots.cloned().map(|h| (h, true)).collect();
    while let Some((history, direct)) = stack.pop() {
        let direct = direct && !history.key().is_some_and(|key| targets.contains(&key));
        match &history {
            History::None | History::Cut(_) => {}
            History::Leaf(leaf) => plan.outside |= direct && !leaf.is_over(),
            History::Node(node, _) if node.seq < oldest => plan.outside |= direct,
            History::Node(node, _) => {
                let anew = match nodes.get_mut(&node.seq) {
                    Some(known) => direct && !std::mem::replace(&mut known.1, true),
                    None => nodes.insert(node.seq, (node.clone(), direct)).is_none(),
                };
                if anew {
                    stack.extend(node.inputs.iter().cloned().map(|h| (h, direct)));
                }
            }
        }
    }
    let mut order: Vec<&Arc<Node>> = nodes.values().map(|(node, _)| node).collect();
    order.sort_unstable_by_key(|node| node.seq);
    for node in order {
        let leads = |h: &History| match h.key() {
            Some(key) => {
                targets.contains(&key)
                    || (matches!(h, History::Node(..)) && plan.leading.contains(&key.0))
            }
            None => false,
        };
        if node.inputs.iter().any(leads) {
            plan.leading.insert(node.seq);
        }
    }
    plan
}
