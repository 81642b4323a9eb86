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

mod check;
mod methods;
mod refresh;
pub(crate) mod undo;

use crate::apply::{self, checked};
use crate::backend::{self, Write};
use crate::rule::{Tensors, Val};
use crate::storage::LastWrite;
use crate::tangents::Tangents;
use crate::tape::History;
use crate::tape::record::record;
use crate::{Error, Result, Tensor, autocast, events, mode, ops, trace, watch};
use pullback_ir::infer::Checked;
use pullback_ir::{Binary, ErrorKind, Line, Op, View};
use smallvec::{SmallVec, smallvec};

/// What running an op over its targets gave.
enum MadeBy {
    /// The targets are written, and have these versions.
    Written(SmallVec<[u64; 4]>),
    /// New values, which are still to be written.
    Fresh(Tensors),
}

impl Tensor {
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
        let writer = LastWrite { op: name, at };
        // A value that is watched for overflow must be computed where it can be checked.
        let known = trace::knows(self) && !watch::is_active();
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
        let writer = LastWrite { op: name, at };
        let at_once =
            plain && (0..targets.len()).all(|i| apart(i) && targets[i].0.layout.is_dense());
        let new = if at_once && !trace::active() && !watch::is_active() {
            events::work_starts(name, all.iter().copied(), at);
            targets.iter().for_each(|target| events::writing(target));
            let bump = || targets.iter().map(|t| t.0.storage.bump(writer)).collect();
            let made = checked(&op, &all, |call| {
                let write = Write::Over;
                let versions: Option<SmallVec<[u64; 4]>> =
                    backend::write(call, write, targets, &all, Some(at), bump)?;
                match versions {
                    Some(versions) => Ok(MadeBy::Written(versions)),
                    // The device has no kernel that writes over its operands.
                    None => Ok(MadeBy::Fresh(apply::compute(call, &all, at)?)),
                }
            });
            match made.map_err(|e| e.at(at))? {
                MadeBy::Written(versions) => {
                    for ((target, (root, _)), version) in targets.iter().zip(&roots).zip(versions) {
                        for tensor in [target, root] {
                            tensor.replace_state(None, Some(Tangents::new()), Some(version));
                        }
                    }
                    return Ok(());
                }
                MadeBy::Fresh(new) => new.into_vec(),
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
        writer: LastWrite,
    ) -> Result<Option<Tensor>> {
        let with_self = !matches!(op, Op::Copy);
        let all: SmallVec<[&Tensor; 4]> =
            with_self.then_some(self).into_iter().chain(operands).collect();
        events::writing(self);
        let bump = || self.0.storage.bump(writer);
        let made = checked(op, &all, |call| {
            match backend::write(call, Write::Over, &[self], &all, Some(writer.at), bump)? {
                Some(version) => Ok(MadeBy::Written(smallvec![version])),
                None => Ok(MadeBy::Fresh(apply::compute(call, &all, writer.at)?)),
            }
        })?;
        let version = match made {
            MadeBy::Written(versions) => versions[0],
            MadeBy::Fresh(new) => return Ok(Some(new.into_first())),
        };
        for tensor in [self, root] {
            tensor.replace_state(None, Some(Tangents::new()), Some(version));
        }
        Ok(None)
    }

    /// Writes a computed value over this tensor and takes over its history.
    fn write_value(
        &self,
        new: &Tensor,
        root: &Tensor,
        views: Vec<View>,
        plain: bool,
        writer: LastWrite,
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
            to.replace_state(history, Some(tangents), Some(version));
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
    fn can_overwrite_with(&self, other: &Tensor) -> bool {
        let quiet = |x: &Tensor| {
            let state = x.lock();
            !state.history.is_tracked() && state.tangents.is_empty()
        };
        trace::knows(self)
            && !watch::is_active()
            && self.is_sole_owner()
            && self.is_contiguous()
            && quiet(self)
            && quiet(other)
    }

    /// Adds `other` to the part of this tensor seen through a view, if it may be written over.
    pub(crate) fn add_to_part_if_sole(&self, view: &View, other: &Tensor) -> bool {
        let Some(layout) = self.0.layout.view(view).filter(|l| !l.overlaps()) else { return false };
        if !self.can_overwrite_with(other)
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
        if self.rank() != 2 || !self.can_overwrite_with(a) || !self.can_overwrite_with(b) {
            return false;
        }
        let add = |call: &Checked| backend::write(call, Write::Add, &[self], &[a, b], None, || ());
        matches!(checked(&Op::Dot, &[a, b], add), Ok(Some(())))
    }

    /// Adds `other` over this tensor, if it may be written over.
    pub(crate) fn add_in_place_if_sole(&self, other: &Tensor) -> bool {
        if !self.can_overwrite_with(other) || self.spec() != other.spec() {
            return false;
        }
        let both = [self, other];
        let write = |call: &Checked| backend::write(call, Write::Over, &[self], &both, None, || ());
        matches!(checked(&Op::Binary(Binary::Add), &both, write), Ok(Some(())))
    }
}

/// The error of memory that a device does not write to in this way.
fn not_written(writer: LastWrite) -> Error {
    Error::new(ErrorKind::InPlace, writer.op, "the device does not write to a part of memory")
}

/// A trace restores what it changes about tensors from outside.
fn note_change(x: &Tensor) {
    if let Some(trace) = trace::current() {
        trace.note(x);
    }
}

/// Records an op whose result is `out`, which is known already.
pub(crate) fn record_as(op: Op, inputs: &[&Tensor], out: &Tensor, at: Line) -> Result<()> {
    events::values_read(inputs, at);
    let mut operands = inputs.iter().map(|x| x.state(at)).collect::<Result<apply::Operands>>()?;
    record(&op, &ops::row(&op), inputs, &mut operands, &mut [out.clone()], at);
    Ok(())
}
