//! Undoing writes: a function that runs once for every direction of one derivative sees the same
//! state each time, and its writes happen once.

use crate::backend::Pooled;
use crate::storage::LastWrite;
use crate::tangents::Tangents;
use crate::tape::History;
use crate::{Tensor, events, fail, mode, sequence, trace};
use pullback_ir::Line;
use std::cell::{Cell, RefCell};

thread_local! {
    static ANY: Cell<bool> = const { Cell::new(false) };
    static LOGS: RefCell<Vec<UndoLog>> = const { RefCell::new(Vec::new()) };
}

/// What is noted while a function runs.
struct UndoLog {
    /// Memory from before this number of the tape is older than the run.
    start: u64,
    /// The trace that it runs in.
    trace: u64,
    written: WriteUndo,
}

/// What older memory held before a function wrote to it.
#[derive(Default)]
pub(crate) struct WriteUndo(Vec<UndoRecord>);

struct UndoRecord {
    tensor: Tensor,
    old: Tensor,
    history: History,
    tangents: Tangents,
}

/// Runs `f` and gives what it wrote to memory that is older than the run.
pub(crate) fn noting<R>(f: impl FnOnce() -> R) -> (R, WriteUndo) {
    let (start, trace) = (sequence::take_number(), trace::number());
    LOGS.with_borrow_mut(|logs| logs.push(UndoLog { start, trace, written: WriteUndo::default() }));
    ANY.set(true);
    let _end = mode::on_drop(|| {
        let left = LOGS.with_borrow_mut(|logs| {
            logs.pop();
            !logs.is_empty()
        });
        ANY.set(left);
    });
    let result = f();
    let last =
        |logs: &mut Vec<UndoLog>| logs.last_mut().map(|log| std::mem::take(&mut log.written));
    let written = LOGS.with_borrow_mut(last).unwrap_or_default();
    (result, written)
}

/// Runs `f`, whose writes are not undone.
pub(crate) fn unnoted<R>(f: impl FnOnce() -> R) -> R {
    mode::with(&ANY, false, f)
}

/// A tensor that is no view is about to be written to.
pub(super) fn note(root: &Tensor, at: Line) {
    if !ANY.get() {
        return;
    }
    let (trace, storage) = (trace::number(), &root.0.storage);
    // What a body inside the function writes is its own.
    let concerns = |log: &UndoLog| {
        let known = |w: &UndoRecord| {
            Pooled::ptr_eq(&w.tensor.0.storage, storage) && w.tensor.0.layout == root.0.layout
        };
        log.trace == trace && storage.created <= log.start && !log.written.0.iter().any(known)
    };
    if !LOGS.with_borrow(|logs| logs.iter().any(concerns)) {
        return;
    }
    let copy = || mode::with_line(at, || root.plain().deep_clone());
    let old = mode::set_recording(false, || events::internal(copy));
    let (history, tangents) = {
        let state = root.lock();
        (state.history.clone(), state.tangents.clone())
    };
    LOGS.with_borrow_mut(|logs| {
        for log in logs.iter_mut().filter(|log| concerns(log)) {
            let (tensor, old) = (root.clone(), old.clone());
            let (history, tangents) = (history.clone(), tangents.clone());
            log.written.0.push(UndoRecord { tensor, old, history, tangents });
        }
    });
}

impl WriteUndo {
    /// Restores the old contents.
    pub fn undo(self, op: &'static str, at: Line) {
        for UndoRecord { tensor, old, history, tangents } in self.0.into_iter().rev() {
            let writer = LastWrite { op, at };
            let put = || tensor.write_value(&old, &tensor, Vec::new(), true, writer);
            fail::or_raise(mode::set_recording(false, || events::internal(put)));
            tensor.replace_state(Some(history), Some(tangents), None);
        }
    }
}
