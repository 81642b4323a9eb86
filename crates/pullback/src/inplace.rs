//! Writing in place, safely.
//!
//! A write bumps the version of the storage, so values saved for backward notice. What else must
//! hold:
//!
//! - The tensor written to gets the history of the new value. Clones are the same tensor and see
//!   it.
//! - Written through a view, the root of the view gets the history of [`Op::Put`]: the old root
//!   with that part replaced. Other views of the root are then out of date, and [`Tensor::state`]
//!   derives their history from the root when they are next used.
//! - A leaf that requires grad may be written only where nothing is recorded (an optimiser's step).
//! - A tracked value may not be written where nothing is recorded: its history would be wrong.

mod methods;
pub(crate) mod undo;

use crate::apply::{self, checked};
use crate::backend::{self, Write};
use crate::rule::{Outs, Val};
use crate::storage::Writer;
use crate::tape::record::record;
use crate::tape::{History, Node};
use crate::tensor::{Frozen, State, Tangents};
use crate::transform::levels;
use crate::{Error, Result, Tensor, autocast, events, fail, mode, ops, trace, watch};
use pullback_ir::infer::Checked;
use pullback_ir::{Binary, ErrorKind, Layout, Line, Op, View};
use smallvec::{SmallVec, smallvec};
use std::collections::HashSet;

/// What running an op over its targets gave.
enum Made {
    /// The targets are written, and have these versions.
    Written(SmallVec<[u64; 4]>),
    /// New values, which are still to be written.
    Fresh(Outs),
}

impl Tensor {
    /// History and tangents, updated after writes through other tensors.
    pub(crate) fn state(&self, at: Line) -> Result<apply::OperandState> {
        let state = self.lock();
        let current = state.version == self.0.storage.version();
        // Nearly always there is nothing but a history.
        if current && state.tangents.is_empty() && !trace::active() {
            let history = state.history.clone();
            return Ok(apply::OperandState { history, ..apply::OperandState::default() });
        }
        drop(state);
        let mut operand = self.own_state(at)?;
        if trace::active() {
            trace::strip(self, &mut operand, at)?;
        }
        if !operand.tangents.is_empty() {
            operand.cut = mode::cut_tangents(&mut operand.tangents);
        }
        Ok(operand)
    }

    /// [`Tensor::state`] whatever is being traced.
    pub(crate) fn own_state(&self, at: Line) -> Result<apply::OperandState> {
        let now = |state: &State| apply::OperandState {
            history: state.history.clone(),
            tangents: state.tangents.clone(),
            cut: false,
        };
        let state = self.lock();
        if state.version == self.0.storage.version() {
            return Ok(now(&state));
        }
        drop(state);
        // A view follows from its parent, which may be out of date itself: from the root down, in a
        // loop.
        let mut line = vec![self.clone()];
        while let Some(parent) = line[line.len() - 1].0.parent.as_ref().map(|p| p.0.clone()) {
            if parent.lock().version == self.0.storage.version() {
                break;
            }
            line.push(parent);
        }
        line.iter().rev().try_for_each(|tensor| tensor.refresh(at))?;
        Ok(now(&self.lock()))
    }

    /// Brings history and tangents up to date, given that the parent's are.
    fn refresh(&self, at: Line) -> Result<()> {
        let current = self.0.storage.version();
        let (history, severed, dual) = {
            let state = self.lock();
            let dual = !levels::alive(&state.tangents).is_empty();
            (state.history.clone(), state.severed, dual)
        };
        if dual && self.0.parent.is_none() {
            return Err(self.overwritten_elsewhere(None, at));
        }
        let (history, tangents) = match (&self.0.parent, history) {
            // A constant or a leaf stays one, whatever its value.
            (_, history) if severed => (history, Tangents::new()),
            (_, history @ History::Leaf(_)) => (history, Tangents::new()),
            (None, history @ (History::None | History::Cut(_))) => (history, Tangents::new()),
            (Some(parent), _) => {
                let fresh = self.plain();
                // The view was made outside of a `no_grad` that is active now, or it would be cut.
                let record = || record_as(Op::View(parent.1.clone()), &[&parent.0], &fresh, at);
                mode::lifted(record)?;
                let state = fresh.lock();
                (state.history.clone(), state.tangents.clone())
            }
            (None, History::Node(node, _)) => {
                return Err(self.overwritten_elsewhere(Some(&node), at));
            }
        };
        note_change(self);
        let mut state = self.lock();
        (state.history, state.tangents, state.version) = (history, tangents, current);
        Ok(())
    }

    /// The history alone; where it is out of date beyond repair, none.
    #[track_caller]
    pub(crate) fn history(&self) -> History {
        fail::or_raise(self.state(mode::user_line(Line::caller()))).history
    }

    fn overwritten_elsewhere(&self, made_by: Option<&Node>, at: Line) -> Error {
        let message = "this value was overwritten through another tensor that shares its memory, so its history no longer holds";
        let mut error = Error::new(ErrorKind::InPlace, "in-place", message).on([self.spec()]);
        if let Some(node) = made_by {
            error = error.detail(format!("made by      {:<8} at {}", node.op.name(), node.at));
        }
        if let Some(writer) = self.0.storage.writer() {
            error = error.detail(format!("overwritten  {:<8} at {}", writer.op, writer.at));
        }
        error.at(at).hint("write to a deep_clone() of the detached value")
    }

    /// The tensor that this is a view of, and the views that lead from it to here.
    fn root(&self) -> (Tensor, Vec<View>) {
        let (mut root, mut views) = (self.clone(), Vec::new());
        while let Some((parent, view)) = root.parent() {
            views.push(view);
            root = parent;
        }
        views.reverse();
        (root, views)
    }

    /// Whether this, or a view on the way to it, was made inside `no_grad` of something that is
    /// differentiated.
    fn is_severed(&self) -> bool {
        let mut view = Some(self.clone());
        while let Some(x) = view {
            if x.lock().severed {
                return true;
            }
            view = x.0.parent.as_ref().map(|p| p.0.clone());
        }
        false
    }

    /// What this is a view of, and the view, as one that can be written through where that can be:
    /// a broadcast that repeats nothing is a reshape.
    pub(crate) fn parent(&self) -> Option<(Tensor, View)> {
        let (parent, view) = &**self.0.parent.as_ref()?;
        let view = match view {
            View::Broadcast(shape) if self.len() == parent.len() => View::Reshape(shape.clone()),
            view => view.clone(),
        };
        Some((parent.clone(), view))
    }

    /// Whether this tensor may be written to; an error with the reason if not.
    fn check_writable(&self, name: &'static str, root: &Tensor, at: Line) -> Result<()> {
        let refuse = |why: &str, hint: &str| {
            Err(Error::new(ErrorKind::InPlace, name, why).on([self.spec()]).at(at).hint(hint))
        };
        if self.is_argument() {
            return refuse(
                "the argument of a function that is being differentiated, traced, mapped or checkpointed, or of a loop, a branch, a rule or a hook, is written in place",
                "write to a deep_clone() of it; state that a compiled step writes is captured, not passed",
            );
        }
        if self.0.layout.overlaps() {
            return refuse(
                "several indices of this tensor share one element, so it cannot be written in place",
                "copy it with deep_clone() first",
            );
        }
        // One lock after the other: the two may be one tensor.
        let own = self.lock().frozen;
        let frozen = [own, root.lock().frozen];
        if frozen.contains(&Frozen::Cut) {
            return refuse(
                "a detached tensor, or a view made in no_grad, is written in place inside the body of a loop or of vmap",
                "there it shares no memory with what it was made of: write to that, or to a deep_clone()",
            );
        }
        let (own, whole) = (self.state(at)?, root.state(at)?);
        let (history, tracked) = (&own.history, whole.history.is_tracked());
        if mode::is_grad_enabled() {
            if [history, &whole.history].iter().any(|h| matches!(h, History::Leaf(_))) {
                return refuse(
                    "a leaf that requires grad is written in place while operations are recorded",
                    "wrap the update in no_grad(|| ..), or use the out-of-place form",
                );
            }
            if (tracked || !whole.tangents.is_empty()) && self.is_severed() {
                return refuse(
                    "this view of a value that is differentiated was made inside no_grad: what is written through it has no derivative",
                    "take the view outside no_grad",
                );
            }
        } else if matches!(whole.history, History::Node(..)) {
            return refuse(
                "a tracked value is written in place inside no_grad: its gradient would be wrong",
                "write outside no_grad, or to a deep_clone() of the detached value",
            );
        }
        if whole.cut {
            return refuse(
                "a value that forward mode is differentiating is written in place inside no_grad: its derivative would be wrong",
                "write outside no_grad, or to a deep_clone() of the detached value",
            );
        }
        if frozen[1] != Frozen::State && trace::may_be_differentiated(root, at)? {
            return refuse(
                "a value of the body of a loop or of vmap is written in place inside no_grad, which was entered in the body: a derivative outside would be wrong",
                "write outside no_grad, or to a deep_clone() of the detached value",
            );
        }
        events::write_wanted(name, root, tracked, at)?;
        undo::note(root, at);
        Ok(())
    }

    /// Overwrites this tensor with `op(self, others…)`.
    fn in_place(&self, name: &'static str, op: Op, others: &[&Tensor], caller: Line) -> Result<()> {
        let at = mode::user_line(caller);
        let (root, views) = self.root();
        self.check_writable(name, &root, at)?;
        let mut operands: SmallVec<[Tensor; 3]> = SmallVec::new();
        for x in others {
            if x.dtype().is_float() && !self.dtype().is_float() && !matches!(op, Op::Copy) {
                let message = format!(
                    "the result would be {}, which does not fit over {}",
                    x.dtype(),
                    self.spec()
                );
                return Err(Error::new(ErrorKind::InPlace, name, message)
                    .at(at)
                    .hint("use the out-of-place form"));
            }
            // `copy_` brings values from wherever they are; other ops refuse operands from
            // elsewhere.
            let elsewhere = x.device() != self.device() && matches!(op, Op::Copy);
            let moved = elsewhere.then(|| mode::with_line(at, || x.to(self.device())));
            let x = moved.as_ref().unwrap_or(x);
            operands.push(x.try_cast_and_expand(name, self.spec(), at)?);
        }
        let derivative = |x: &Tensor| -> Result<bool> {
            let x = x.state(at)?;
            Ok((mode::is_grad_enabled() && x.history.is_tracked()) || !x.tangents.is_empty())
        };
        let mut plain = !derivative(self)? && !derivative(&root)?;
        let mut tracked = [true; 2];
        for x in &operands {
            tracked[1] = derivative(x)?;
            plain &= !tracked[1] && !x.shares_memory(self);
        }
        let writer = Writer { op: name, at };
        // A value that is watched for overflow must be computed where it can be checked.
        let known = trace::knows(self) && !watch::is_looking();
        let at_once = plain && self.0.layout.is_dense() && op.is_pointwise();
        if at_once && known {
            events::work_starts(name, [self].into_iter().chain(&operands), at);
            return match self.write_plain(&op, &operands, &root, writer).map_err(|e| e.at(at))? {
                None => Ok(()),
                Some(new) => {
                    events::written_as(&new);
                    self.write_value(&new, &root, views, plain, writer)
                }
            };
        }
        let with_self = !matches!(op, Op::Copy);
        // Where backward needs the value that this write is about to replace, it keeps a copy.
        let old = match with_self && !plain && ops::row(&op).keeps(Val::In(0), &tracked) {
            true => {
                let state = self.state(at)?;
                let copy = mode::set_recording(false, || self.plain().deep_clone());
                copy.alias(state.history, state.tangents)
            }
            false => self.clone(),
        };
        let all: SmallVec<[&Tensor; 4]> =
            with_self.then_some(&old).into_iter().chain(&operands).collect();
        // What is written keeps the dtype of what it is written to.
        let new = autocast::off(|| mode::with_line(at, || apply::try_apply(op, &all)))?;
        let new = &new[0];
        if at_once {
            events::written_as(new);
        }
        self.write_value(new, &root, views, plain, writer)
    }

    /// Overwrites the targets with `op(targets…, inputs…)`, which has as many results.
    pub(crate) fn in_place_all(
        name: &'static str,
        op: Op,
        targets: &[&Tensor],
        inputs: &[&Tensor],
        caller: Line,
    ) -> Result<()> {
        let at = mode::user_line(caller);
        let all: SmallVec<[&Tensor; 6]> = targets.iter().chain(inputs).copied().collect();
        for (i, a) in targets.iter().enumerate() {
            if let Some(b) = targets[..i].iter().find(|b| a.overlaps(b)) {
                let message = "two of the tensors to write share elements: one write would overwrite the other";
                return Err(Error::new(ErrorKind::InPlace, name, message)
                    .on([b.spec(), a.spec()])
                    .at(at)
                    .hint("give each memory of its own, with deep_clone()"));
            }
        }
        let mut roots: SmallVec<[(Tensor, Vec<View>); 4]> = SmallVec::new();
        for target in targets {
            let root = target.root();
            target.check_writable(name, &root.0, at)?;
            roots.push(root);
        }
        let mut plain = true;
        for x in all.iter().copied().chain(roots.iter().map(|r| &r.0)) {
            let x = x.state(at)?;
            plain &= !(mode::is_grad_enabled() && x.history.is_tracked()) && x.tangents.is_empty();
        }
        let apart =
            |i: usize| all.iter().enumerate().all(|(j, x)| i == j || !x.shares_memory(targets[i]));
        let writer = Writer { op: name, at };
        let at_once =
            plain && (0..targets.len()).all(|i| apart(i) && targets[i].0.layout.is_dense());
        let new = if at_once && !trace::active() && !watch::is_looking() {
            events::work_starts(name, all.iter().copied(), at);
            targets.iter().for_each(|target| events::writing(target));
            let bump = || targets.iter().map(|t| t.0.storage.bump(writer)).collect();
            let made = checked(&op, &all, |call| {
                let write = Write::Over;
                let versions: Option<SmallVec<[u64; 4]>> =
                    backend::write(&call, write, targets, &all, Some(at), bump)?;
                match versions {
                    Some(versions) => Ok(Made::Written(versions)),
                    // The device has no kernel that writes over its operands.
                    None => Ok(Made::Fresh(apply::compute(call, &all, at)?)),
                }
            });
            match made.map_err(|e| e.at(at))? {
                Made::Written(versions) => {
                    for ((target, (root, _)), version) in targets.iter().zip(&roots).zip(versions) {
                        for tensor in [target, root] {
                            let mut state = tensor.lock();
                            state.version = version;
                            state.tangents.clear();
                        }
                    }
                    return Ok(());
                }
                Made::Fresh(new) => new.into_vec(),
            }
        } else {
            autocast::off(|| mode::with_line(at, || apply::try_apply(op, &all)))?
        };
        if at_once {
            new.iter().for_each(events::written_as);
        }
        // All or none: what could fail for a later target is found before the first is written.
        for ((target, (root, views)), new) in targets.iter().zip(&roots).zip(&new) {
            target.check_fits(new, root, views, plain, writer)?;
        }
        for ((target, (root, views)), new) in targets.iter().zip(roots).zip(&new) {
            target.write_value(new, &root, views, plain, writer)?;
        }
        Ok(())
    }

    /// Nothing to differentiate: the kernel writes straight over the old values. If the device has
    /// no such kernel, the new values, which are still to be written.
    fn write_plain(
        &self,
        op: &Op,
        operands: &[Tensor],
        root: &Tensor,
        writer: Writer,
    ) -> Result<Option<Tensor>> {
        let with_self = !matches!(op, Op::Copy);
        let all: SmallVec<[&Tensor; 4]> =
            with_self.then_some(self).into_iter().chain(operands).collect();
        events::writing(self);
        let bump = || self.0.storage.bump(writer);
        let made = checked(op, &all, |call| {
            match backend::write(&call, Write::Over, &[self], &all, Some(writer.at), bump)? {
                Some(version) => Ok(Made::Written(smallvec![version])),
                None => Ok(Made::Fresh(apply::compute(call, &all, writer.at)?)),
            }
        })?;
        let version = match made {
            Made::Written(versions) => versions[0],
            Made::Fresh(mut new) => return Ok(Some(new.swap_remove(0))),
        };
        for tensor in [self, root] {
            let mut state = tensor.lock();
            state.version = version;
            state.tangents.clear();
        }
        Ok(None)
    }

    /// Whether the two have an element of memory in common.
    fn overlaps(&self, other: &Tensor) -> bool {
        let (a, b) = (&self.0.layout, &other.0.layout);
        if !self.shares_memory(other) || a.is_empty() || b.is_empty() {
            return false;
        }
        let ((low_a, high_a), (low_b, high_b)) = (span(a), span(b));
        if high_a < low_b || high_b < low_a {
            return false;
        }
        // Interleaved, as columns are: element by element.
        let seen: HashSet<isize> = elements(a).into_iter().collect();
        elements(b).iter().any(|place| seen.contains(place))
    }

    /// What keeps a computed value from being written over this tensor.
    fn check_fits(
        &self,
        new: &Tensor,
        root: &Tensor,
        views: &[View],
        plain: bool,
        writer: Writer,
    ) -> Result<()> {
        if new.spec() != self.spec() {
            let message =
                format!("the result is {}, which does not fit over {}", new.spec(), self.spec());
            return Err(Error::new(ErrorKind::InPlace, writer.op, message).at(writer.at));
        }
        if plain || self.is_same(root) { Ok(()) } else { check_views(root, views, writer) }
    }

    /// Writes a computed value over this tensor and takes over its history.
    fn write_value(
        &self,
        new: &Tensor,
        root: &Tensor,
        views: Vec<View>,
        plain: bool,
        writer: Writer,
    ) -> Result<()> {
        self.check_fits(new, root, &views, plain, writer)?;
        let whole = self.is_same(root);
        // The history of the root after the write, worked out before anything is changed.
        let replaced = match whole || plain {
            true => None,
            false => {
                let after = root.alias(History::None, Tangents::new());
                record_as(Op::Put(views), &[root, new], &after, writer.at)?;
                Some(after)
            }
        };
        events::writing(self);
        let version = match trace::active() {
            true => {
                [self, root].into_iter().for_each(note_change);
                trace::write(self, new, writer)?
            }
            false => {
                let bump = || self.0.storage.bump(writer);
                let operand = [new.spec()];
                let call = Checked::copy(&operand);
                backend::write(&call, Write::Part, &[self], &[new], Some(writer.at), bump)
                    .and_then(|version| version.ok_or_else(|| not_written(writer)))
                    .map_err(|e| e.at(writer.at))?
            }
        };
        let take = |to: &Tensor, from: Option<&Tensor>| {
            let (history, tangents) = match from {
                Some(from) => {
                    let state = from.lock();
                    (Some(state.history.clone()), state.tangents.clone())
                }
                None => (None, Tangents::new()),
            };
            let mut state = to.lock();
            if let Some(history) = history {
                state.history = history;
            }
            state.tangents = tangents;
            state.version = version;
        };
        let leaf = self.leaf().is_some();
        take(self, (!plain && !leaf).then_some(new));
        if !whole {
            take(root, replaced.as_ref());
        }
        Ok(())
    }

    /// Whether this tensor may be overwritten because it has no other references and nothing is
    /// being differentiated.
    fn is_quiet_beside(&self, other: &Tensor) -> bool {
        let quiet = |x: &Tensor| {
            let state = x.lock();
            !state.history.is_tracked() && state.tangents.is_empty()
        };
        trace::knows(self)
            && !watch::is_looking()
            && self.is_sole_owner()
            && self.is_contiguous()
            && quiet(self)
            && quiet(other)
    }

    /// Adds `other` to the part of this tensor seen through a view, if it may be written over.
    pub(crate) fn add_to_part_if_sole(&self, view: &View, other: &Tensor) -> bool {
        let Some(layout) = self.0.layout.view(view).filter(|l| !l.overlaps()) else { return false };
        if !self.is_quiet_beside(other)
            || self.dtype() != other.dtype()
            || layout.shape != *other.dims()
        {
            return false;
        }
        let part = Tensor::new(other.spec().clone(), layout, self.0.storage.clone());
        let Ok(sum) = apply::try_apply(Op::Binary(Binary::Add), &[&part, other]) else {
            return false;
        };
        let operand = [part.spec()];
        let call = Checked::copy(&operand);
        let done = backend::write(&call, Write::Part, &[&part], &[&sum[0]], None, || ());
        matches!(done, Ok(Some(())))
    }

    /// Adds the matrix product of `a` and `b` over this tensor, if it may be written over and a
    /// kernel does both at once.
    pub(crate) fn add_product_if_sole(&self, a: &Tensor, b: &Tensor) -> bool {
        if self.rank() != 2 || !self.is_quiet_beside(a) || !self.is_quiet_beside(b) {
            return false;
        }
        let add = |call: Checked| backend::write(&call, Write::Add, &[self], &[a, b], None, || ());
        matches!(checked(&Op::Dot, &[a, b], add), Ok(Some(())))
    }

    /// Adds `other` over this tensor, if it may be written over.
    pub(crate) fn add_in_place_if_sole(&self, other: &Tensor) -> bool {
        if !self.is_quiet_beside(other) || self.spec() != other.spec() {
            return false;
        }
        let both = [self, other];
        let write = |call: Checked| backend::write(&call, Write::Over, &[self], &both, None, || ());
        matches!(checked(&Op::Binary(Binary::Add), &both, write), Ok(Some(())))
    }
}

/// The error of memory that a device does not write to in this way.
fn not_written(writer: Writer) -> Error {
    Error::new(ErrorKind::InPlace, writer.op, "the device does not write to a part of memory")
}

/// A trace restores what it changes about tensors from outside.
fn note_change(x: &Tensor) {
    if let Some(trace) = trace::current() {
        trace.note(x);
    }
}

/// The first and the last place in memory that a layout with elements reaches.
fn span(layout: &Layout) -> (isize, isize) {
    let (mut low, mut high) = (layout.offset as isize, layout.offset as isize);
    for (&n, &stride) in layout.shape.iter().zip(&layout.strides) {
        let reach = stride * (n as isize - 1);
        low += reach.min(0);
        high += reach.max(0);
    }
    (low, high)
}

/// The place in memory of each element.
fn elements(layout: &Layout) -> Vec<isize> {
    let mut places = vec![layout.offset as isize];
    for (&n, &stride) in layout.shape.iter().zip(&layout.strides) {
        let along = |&place: &isize| (0..n as isize).map(move |i| place + i * stride);
        places = places.iter().flat_map(along).collect();
    }
    places
}

/// The views must be expressible on a dense root, as the derivative of `Put` will see it.
fn check_views(root: &Tensor, views: &[View], writer: Writer) -> Result<()> {
    let mut layout = Layout::dense(root.dims().clone());
    for view in views {
        layout = layout.view(view).filter(|l| !l.overlaps()).ok_or_else(|| {
            let message = format!(
                "cannot write through this chain of views: `{}` has no strides of its own",
                view.name()
            );
            Error::new(ErrorKind::InPlace, writer.op, message)
                .on([root.spec()])
                .at(writer.at)
                .hint("write to the base tensor, or use the out-of-place form")
        })?;
    }
    Ok(())
}

/// Records an op whose result is `out`, which is known already.
pub(crate) fn record_as(op: Op, inputs: &[&Tensor], out: &Tensor, at: Line) -> Result<()> {
    events::values_read(inputs, at);
    let operands = inputs.iter().map(|x| x.state(at)).collect::<Result<apply::Operands>>()?;
    record(op.clone(), &ops::row(&op), inputs, operands, std::slice::from_ref(out), at);
    Ok(())
}
