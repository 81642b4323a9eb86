//! Which writes in place are refused.

use super::undo;
use crate::storage::LastWrite;
use crate::tape::History;
use crate::tensor::Frozen;
use crate::{Error, Result, Tensor, events, mode, trace};
use pullback_ir::{ErrorKind, Layout, Line, View};
use std::collections::HashSet;

impl Tensor {
    /// Whether this tensor may be written to; an error with the reason if not.
    pub(super) fn check_writable(&self, name: &'static str, root: &Tensor, at: Line) -> Result<()> {
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

    /// Whether the two have an element of memory in common.
    pub(super) fn overlaps(&self, other: &Tensor) -> bool {
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
    pub(super) fn check_fits(
        &self,
        new: &Tensor,
        root: &Tensor,
        views: &[View],
        plain: bool,
        writer: LastWrite,
    ) -> Result<()> {
        if new.spec() != self.spec() {
            let message =
                format!("the result is {}, which does not fit over {}", new.spec(), self.spec());
            return Err(Error::new(ErrorKind::InPlace, writer.op, message).at(writer.at));
        }
        if plain || self.is_same(root) { Ok(()) } else { check_views(root, views, writer) }
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
fn check_views(root: &Tensor, views: &[View], writer: LastWrite) -> Result<()> {
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
