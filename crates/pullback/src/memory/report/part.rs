//! Which part of the model runs.

use super::MemoryPhase;
use super::ledger::{self, Ledger, Life, SharedLedger, kept, of};
use crate::Tensor;
use crate::record::recorder;
use pullback_ir::Line;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::{Arc, Mutex, Weak};

/// A guard: what is made until it is dropped belongs to a part of the model. See [`memory_part`].
#[must_use = "the part ends when this is dropped"]
pub struct MemoryPartGuard {
    /// The report that is being made, and the previous part.
    before: Option<(Weak<Mutex<Ledger>>, Option<usize>)>,
    /// The previous part of a recording, where one is being made.
    recorded: Option<Option<u32>>,
    /// It belongs to this thread.
    _here: PhantomData<Rc<()>>,
}

/// Names the part of the model that what follows belongs to, for reports on memory and
/// recordings. Parts inside parts have the name that they are given. Where neither is being made,
/// this does nothing.
///
/// ```
/// use pullback::{Tensor, memory_part, memory_report};
/// let w = Tensor::from([1.0f32, 2.0]).requires_grad();
/// let (_, report) = memory_report(|| {
///     let y = {
///         let _part = memory_part("encoder");
///         w.exp()
///     };
///     y.sin().sum().backward()
/// })?;
/// assert_eq!(report.by_part[0].path, "encoder");
/// assert_eq!(report.by_part[0].bytes.activations, 8);
/// # Ok::<(), pullback::Error>(())
/// ```
pub fn memory_part(name: &str) -> MemoryPartGuard {
    let recorded = recorder::is_on().then(|| recorder::enter_part(name));
    let guard = match kept() {
        None => MemoryPartGuard { before: None, recorded: None, _here: PhantomData },
        Some(ledger) => {
            let part = of(&ledger).part_named(name);
            MemoryPartGuard::begin(&ledger, Some(part))
        }
    };
    guard.recording(recorded)
}

impl MemoryPartGuard {
    /// The phase of the step and the current part, if there is one; `None` where neither a report
    /// nor a recording is being made.
    ///
    /// ```
    /// use pullback::{MemoryPartGuard, MemoryPhase, memory_part, memory_report};
    /// assert!(MemoryPartGuard::current().is_none());
    /// memory_report(|| {
    ///     let _part = memory_part("encoder");
    ///     let current = Some((MemoryPhase::Forward, Some("encoder".to_string())));
    ///     assert_eq!(MemoryPartGuard::current(), current);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn current() -> Option<(MemoryPhase, Option<String>)> {
        let Some(ledger) = kept() else {
            let phase = match recorder::in_backward() {
                true => MemoryPhase::Backward,
                false => MemoryPhase::Forward,
            };
            return recorder::is_on().then(|| (phase, recorder::part()));
        };
        let state = of(&ledger);
        Some((state.phase(), state.part.map(|part| state.parts[part].clone())))
    }

    fn recording(mut self, recorded: Option<Option<u32>>) -> MemoryPartGuard {
        self.recorded = recorded;
        self
    }

    fn begin(ledger: &SharedLedger, part: Option<usize>) -> MemoryPartGuard {
        let before = std::mem::replace(&mut of(ledger).part, part);
        let before = Some((Arc::downgrade(ledger), before));
        MemoryPartGuard { before, recorded: None, _here: PhantomData }
    }
}

impl Drop for MemoryPartGuard {
    fn drop(&mut self) {
        if let Some(before) = self.recorded.take() {
            recorder::leave_part(before);
        }
        let Some((ledger, before)) = self.before.take() else { return };
        // It may be over already.
        if let Some(ledger) = ledger.upgrade() {
            of(&ledger).part = before;
        }
    }
}

/// The current part, to be restored later.
pub(crate) struct Here(Option<(Weak<Mutex<Ledger>>, Option<usize>)>);

/// Where we are.
pub(crate) fn here() -> Here {
    Here(kept().map(|ledger| (Arc::downgrade(&ledger), of(&ledger).part)))
}

impl Here {
    /// Another thread has made this, to be ready when backward requests what an op saved here.
    pub fn register(&self, x: &Tensor, op: &'static str, at: Line) {
        let Some((ledger, part)) = &self.0 else { return };
        // The report may be over.
        let Some(ledger) = ledger.upgrade() else { return };
        let now = of(&ledger).now();
        let size = (x.0.storage.bytes(), x.device());
        ledger::register(&ledger, &x.0.storage, Life::new(size, now, op, Some(at), *part));
    }
}

/// Runs `f` in the part that was current when `here` was taken: what is computed again belongs to
/// where it was computed first.
pub(crate) fn back_at<R>(here: &Here, f: impl FnOnce() -> R) -> R {
    let Some(ledger) = kept() else { return f() };
    // What was computed first before the report belongs to no part.
    let same = |there: &Weak<Mutex<Ledger>>| std::ptr::eq(there.as_ptr(), Arc::as_ptr(&ledger));
    let part = here.0.as_ref().filter(|(there, _)| same(there)).and_then(|(_, part)| *part);
    let _part = MemoryPartGuard::begin(&ledger, part);
    f()
}
