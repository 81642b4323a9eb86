//! Levels of forward mode: which `jvp` a tangent belongs to.
//!
//! Every `jvp` gets a fresh number, so the tangents of nested ones are told apart and no perturbation is
//! confused with another. A tangent whose `jvp` has returned is dropped where it turns up in saved values.

use crate::tape::Node;
use crate::tensor::Tangents;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};

static NEXT: AtomicU64 = AtomicU64::new(1);

/// The number that the next level will have at least.
pub(crate) fn next_number() -> u64 {
    NEXT.load(Ordering::Relaxed)
}

/// A number between those of the levels that were entered and of those that will be.
pub(crate) fn take_number() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The levels being computed, each with the nodes that saved tangents of it. A tangent's history leads
/// back to the node that saved it, which is a circle: it is cut when the level ends.
static ALIVE: RwLock<Vec<(u64, Vec<Weak<Node>>)>> = RwLock::new(Vec::new());

thread_local! {
    /// How many levels were entered on this thread and have not ended.
    static HERE: Cell<usize> = const { Cell::new(0) };
}

/// A level for as long as this value lives.
pub(crate) struct Level(pub u64);

impl Level {
    pub fn enter() -> Level {
        let id = take_number();
        HERE.set(HERE.get() + 1);
        ALIVE.write().unwrap_or_else(PoisonError::into_inner).push((id, Vec::new()));
        Level(id)
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        HERE.set(HERE.get().saturating_sub(1));
        let mut alive = ALIVE.write().unwrap_or_else(PoisonError::into_inner);
        let ended =
            alive.iter().position(|level| level.0 == self.0).map(|at| alive.swap_remove(at));
        drop(alive);
        for node in ended.iter().flat_map(|level| &level.1).filter_map(Weak::upgrade) {
            node.forget_tangents(self.0);
        }
    }
}

/// Whether some forward mode is going on, on this thread.
pub(crate) fn any() -> bool {
    HERE.get() > 0
}

/// Notes that a node saved tangents of these levels.
pub(crate) fn remember(node: &Arc<Node>, levels: &[u64]) {
    let mut alive = ALIVE.write().unwrap_or_else(PoisonError::into_inner);
    for level in alive.iter_mut().filter(|level| levels.contains(&level.0)) {
        level.1.push(Arc::downgrade(node));
    }
}

/// The tangents whose level is still being computed.
pub(crate) fn alive(tangents: &Tangents) -> Tangents {
    if tangents.is_empty() {
        return Tangents::new();
    }
    let alive = ALIVE.read().unwrap_or_else(PoisonError::into_inner);
    tangents.iter().filter(|t| alive.iter().any(|level| level.0 == t.0)).cloned().collect()
}
