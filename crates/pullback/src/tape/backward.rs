//! The walk: from the outputs' cotangents back to the leaves.
//!
//! ```text
//!  roots ─► give ─► pending (by node) ─► visit the node with the highest number ─► vjp ─► give ─► …
//!                └► leaves: summed, and added to `.grad` when all is done
//! ```
//!
//! *Order.* Nodes wait by sequence number (`queue.rs`). The one with the highest number has all its
//! consumers behind it, so its gradient is complete when it is taken: no graph is sorted, nothing
//! recurses, and a chain of a million nodes keeps one waiting.
//!
//! *A visit.* The gradients of the results pass their hooks; the values that the row keeps come
//! back; the row's `vjp` gives the gradients of the operands, and each is added to that of its
//! operand. The row also defines how contributions to one gradient are added up ([`Adds`]): a
//! matrix product or a slice adds to an existing sum, a cast passes them on to a wider leaf.
//!
//! *Leaves.* Gradients of leaves are accumulated separately and added to `.grad` at the end, so a
//! backward that fails leaves every `.grad` as it was. The exception is a leaf with a ready hook:
//! its gradient is added, and the hook called, as soon as the last contribution has been added.
//!
//! *Targets.* Where only some gradients are wanted (`grad`, `vjp`), the walk keeps to nodes that
//! lead to them (`transform/reach.rs`), touches no `.grad`, and gives what it found.

use super::{History, Node, ValueId};
use crate::backend::Pooled;
use crate::grad::BackwardOptions;
use crate::hooks::contributions;
use crate::leaf::{GradientSums, accumulate};
use crate::queue::Queue;
use crate::rule::{Adds, Derivatives, Grad, RuleContext};
use crate::transform::reach::Reachability;
use crate::{Error, Result, Spec, Tensor, anomaly, events, fail, mode, ops, trace};
use pullback_ir::{ErrorKind, Line};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

struct Traversal<'g> {
    options: BackwardOptions,
    pending: Queue<'g>,
    leaves: GradientSums,
    /// Where only some gradients are wanted: what leads to them, and the gradients found.
    targets: Option<GradTargets>,
}

struct GradTargets {
    targets: FxHashSet<ValueId>,
    gradients: FxHashMap<ValueId, Tensor>,
    leading: FxHashSet<u64>,
}

/// Runs backward from `roots` and adds to the `.grad` of the leaves it reaches.
pub(crate) fn into_leaves(
    roots: Vec<(History, Tensor)>,
    options: BackwardOptions,
    at: Line,
) -> Result<()> {
    let leaves = GradientSums::new(options, contributions(&roots), at);
    let (from, cotangents): (Vec<_>, Vec<_>) = roots.into_iter().unzip();
    Traversal { options, pending: Queue::default(), leaves, targets: None }.run(&from, cotangents)
}

/// Runs backward from `roots` and gives the gradients of `targets`, touching no `.grad`.
pub(crate) fn of_targets(
    roots: Vec<(History, Tensor)>,
    targets: &[ValueId],
    plan: Reachability,
    options: BackwardOptions,
    at: Line,
) -> Result<Vec<Option<Tensor>>> {
    let wanted = Some(GradTargets {
        targets: targets.iter().copied().collect(),
        gradients: FxHashMap::default(),
        leading: plan.leading,
    });
    let (from, cotangents): (Vec<_>, Vec<_>) = roots.into_iter().unzip();
    let leaves = GradientSums::new(options, None, at);
    let mut walk = Traversal { options, pending: Queue::default(), leaves, targets: wanted };
    walk.run(&from, cotangents).map_err(|e| e.at(at))?;
    let mut found = walk.targets.take().map_or_else(FxHashMap::default, |wanted| wanted.gradients);
    for (leaf, grad) in walk.leaves.take() {
        events::gradient_of(&leaf, &grad);
        events::leaf_complete(&leaf, &grad);
        found.insert((leaf.seq, 0), grad);
    }
    Ok(targets.iter().map(|key| found.get(key).map(|grad| options.shown(grad.clone()))).collect())
}

impl<'g> Traversal<'g> {
    /// The whole walk. Rules are formulas: what one panics with becomes an error of this pass.
    fn run(&mut self, from: &'g [History], cotangents: Vec<Tensor>) -> Result<()> {
        let _pass = events::backward_starts(self.options.create);
        fail::catch(|| {
            for (history, dy) in from.iter().zip(cotangents) {
                if self.wants(history) {
                    events::backward_from(history);
                    self.accumulate(history, dy);
                }
            }
            while let Some((node, grads)) = self.pending.pop() {
                events::backward_of(node, &grads);
                self.visit(node, grads)?;
            }
            // Hooks first: an error there has changed no `.grad`.
            self.leaves.pass_hooks()?;
            if self.targets.is_none() {
                self.leaves.finish();
            }
            Ok(())
        })?
    }

    /// Whether a gradient for this history is of any use.
    fn wants(&self, history: &History) -> bool {
        match (&self.targets, history) {
            (_, History::None | History::Cut(_)) => false,
            (None, _) => true,
            (Some(wanted), History::Leaf(leaf)) => wanted.targets.contains(&(leaf.seq, 0)),
            (Some(wanted), History::Node(node, k)) => {
                wanted.leading.contains(&node.seq) || wanted.targets.contains(&(node.seq, *k))
            }
        }
    }

    fn visit(&mut self, node: &'g Pooled<Node>, mut grads: Derivatives) -> Result<()> {
        if self.targets.is_some() || !node.hooks.is_empty() {
            self.arrive(node, &mut grads)?;
        }
        if trace::is_outside(node.seq) {
            let message = "backward reaches an op recorded outside the traced function";
            let error = Error::new(ErrorKind::Program, "backward", message).at(node.at);
            return Err(
                error.hint("pass what was computed outside as an argument, or compute it inside")
            );
        }
        let row = ops::row(&node.op);
        let mut needs: SmallVec<[bool; 4]> = SmallVec::new();
        node.inputs.iter().for_each(|h| needs.push(self.wants(h)));
        let (last, mut freed) = (!self.options.retain && !node.is_shared(&row), false);
        if needs.contains(&true) {
            let mut ctx = RuleContext::new(&node.op, &node.in_specs, &node.out_specs, needs);
            let mut dxs = Derivatives::new();
            mode::with_line(node.at, || {
                let set = |val, value| ctx.set(val, value);
                let unpack = || Node::unpack(node, last, set);
                freed = events::unpacking_for(grads.iter().flatten().next(), unpack)?;
                self.add_in_place(node, &row, &mut ctx, &grads);
                row.vjp(&ctx, &grads, &mut dxs);
                Ok(())
            })?;
            drop(grads);
            for (i, dx) in dxs.into_iter().enumerate() {
                let Some(dx) = dx.filter(|_| ctx.needs(i)) else { continue };
                check_gradient(node, node.in_spec(i), &dx)?;
                events::contributed(node, i, &dx);
                if mode::anomaly() {
                    anomaly::check_finite(node, i, &dx)?;
                }
                self.accumulate(&node.inputs[i], dx);
            }
        }
        if last && !freed {
            node.free();
        }
        Ok(())
    }

    /// The gradients of a node's results pass its hooks, and are found if they are wanted.
    fn arrive(&mut self, node: &Node, grads: &mut Derivatives) -> Result<()> {
        for (k, slot) in grads.iter_mut().enumerate() {
            let Some(mut grad) = slot.take() else { continue };
            if !node.hooks.is_empty() {
                grad = node.hooks.pass(k as u32, self.options.shown(grad));
                // What a rule gave was checked there; a hook may give anything.
                check_gradient(node, &node.out_specs[k], &grad)?;
            }
            let key = (node.seq, k as u32);
            if let Some(wanted) = self.targets.as_mut().filter(|w| w.targets.contains(&key)) {
                wanted.gradients.insert(key, grad.clone());
            }
            *slot = Some(grad);
        }
        Ok(())
    }

    /// Adds gradients to sums that are there already, where the row can do both at once.
    fn add_in_place(&self, node: &Node, row: &Grad, ctx: &mut RuleContext, grads: &Derivatives) {
        let (Adds::Into(add), Some(dy)) = (row.adds(), &grads[0]) else { return };
        // Anomaly mode checks each contribution.
        if self.options.create || mode::anomaly() {
            return;
        }
        for (i, history) in node.inputs.iter().enumerate() {
            if let Some(sum) = self.waiting(history).filter(|_| ctx.needs(i))
                && add(ctx, i, dy, sum)
            {
                ctx.satisfied(i);
            }
        }
    }

    /// What has arrived for a value so far, where more may be added to it in place.
    fn waiting(&self, history: &History) -> Option<&Tensor> {
        match history {
            History::Node(node, k) => self.pending.get(node)?[*k as usize].as_ref(),
            History::Leaf(leaf) => self.leaves.waiting(leaf),
            History::None | History::Cut(_) => None,
        }
    }

    /// Adds a contribution to the gradient of a tracked value.
    fn accumulate(&mut self, to: &'g History, grad: Tensor) {
        match to {
            History::None | History::Cut(_) => {}
            History::Node(node, k) => match self.passes_on(node) {
                None => accumulate(&mut self.pending.grads(node)[*k as usize], grad, node.at),
                Some(pass) => {
                    let dx = mode::with_line(node.at, || pass(node.in_spec(0), &grad));
                    self.accumulate(&node.inputs[0], dx);
                }
            },
            History::Leaf(leaf) => self.leaves.add(leaf, grad),
        }
    }

    /// How a gradient is passed on to the leaf behind this node immediately ([`Adds::AtLeaf`]), if
    /// it is: the leaf is wider, and no hook needs the sum at the node.
    fn passes_on(&self, node: &Node) -> Option<fn(&Spec, &Tensor) -> Tensor> {
        let [History::Leaf(_)] = &node.inputs[..] else { return None };
        // First what costs least: nearly all nodes have results of their operand's dtype.
        if node.in_spec(0).dtype.size() <= node.out_specs[0].dtype.size() {
            return None;
        }
        let Adds::AtLeaf(pass) = ops::row(&node.op).adds() else { return None };
        let wanted = |w: &GradTargets| w.targets.contains(&(node.seq, 0));
        let passes = !self.leaves.counts()
            && node.hooks.is_empty()
            && !self.targets.as_ref().is_some_and(wanted)
            && !trace::is_outside(node.seq);
        passes.then_some(pass)
    }
}

/// Rules are checked where they are used: a gradient has the shape and dtype of what it is for.
fn check_gradient(node: &Node, spec: &Spec, grad: &Tensor) -> Result<()> {
    if grad.spec() == spec {
        return Ok(());
    }
    let message = format!("a gradient of spec {} arrived for a value of spec {spec}", grad.spec());
    Err(Error::gradient(node.op.name(), message).at(node.at))
}
