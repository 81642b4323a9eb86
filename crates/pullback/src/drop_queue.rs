//! Graphs are dropped in a loop, not by recursion.
//!
//! A chain of a million nodes must not be dropped by a million nested calls. So the first node to
//! go drops everything that the others put into this queue of the thread.

use crate::backend::Pooled;
use crate::mode;
use crate::tape::{Node, SavedList};
use std::cell::RefCell;

thread_local! {
    static QUEUE: RefCell<Option<Vec<DroppedPart>>> = const { RefCell::new(None) };
}

/// What a dropped node held that may hold further nodes. Never read, only dropped.
#[allow(dead_code)]
pub(crate) enum DroppedPart {
    Edge(Pooled<Node>),
    Saved(Box<SavedList>),
}

/// Drops a part: now, if no other is being dropped, else after that one.
pub(crate) fn push(part: DroppedPart) {
    // While the thread is ending the queue is gone; what is left then is dropped at once.
    let _ = QUEUE.try_with(|queue| {
        let Ok(mut held) = queue.try_borrow_mut() else { return };
        if let Some(waiting) = held.as_mut() {
            waiting.push(part);
            return;
        }
        *held = Some(Vec::new());
        drop(held);
        // Also where a destructor panics: what still waits is dropped then, by recursion.
        let _end = mode::on_drop(|| {
            let waiting = queue.borrow_mut().take();
            drop(waiting);
        });
        let mut next = Some(part);
        while let Some(part) = next {
            drop(part);
            next = queue.borrow_mut().as_mut().and_then(Vec::pop);
        }
    });
}
