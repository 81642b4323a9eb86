//! Levels of forward mode: which `jvp` a tangent belongs to.
//!
//! Every `jvp` gets a fresh number, so the tangents of nested ones are distinguished (no
//! perturbation confusion). A tangent whose `jvp` has returned is dropped where it is found in
//! saved values.

use crate::backend::{Pooled, WeakPooled};
use crate::mode;
use crate::tangents::Tangents;
use crate::tape::Node;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

static NEXT: AtomicU64 = AtomicU64::new(1);

/// The number that the next level will have at least.
pub(crate) fn next_number() -> u64 {
    NEXT.load(Ordering::Relaxed)
}

/// A number between those of the levels that were entered and of those that will be.
pub(crate) fn take_number() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The levels being computed, each with the nodes that saved tangents of it. A tangent's history
/// refers to the node that saved it: a reference cycle, which is broken when the level ends.
static ALIVE: RwLock<Vec<(u64, Vec<WeakPooled<Node>>)>> = RwLock::new(Vec::new());

thread_local! {
    /// How many levels were entered on this thread and have not ended.
    static HERE: Cell<usize> = const { Cell::new(0) };
}

thread_local! {
    /// Levels that have ended and are being replayed, on this thread: like [`ALIVE`].
    static REVIVED: RefCell<Vec<(u64, Vec<WeakPooled<Node>>)>> = const { RefCell::new(Vec::new()) };
}

/// The levels that are being computed.
pub(crate) fn all_alive() -> Vec<u64> {
    let alive = ALIVE.read().unwrap_or_else(PoisonError::into_inner);
    let revived = REVIVED.with_borrow(|all| all.iter().map(|level| level.0).collect::<Vec<_>>());
    alive.iter().map(|level| level.0).chain(revived).collect()
}

/// Runs `f` as if these levels were being computed: a function that ran among them runs again, and
/// pushes the same tangents.
pub(crate) fn with_levels<R>(levels: &[u64], f: impl FnOnce() -> R) -> R {
    let alive = all_alive();
    let dead = levels.iter().filter(|level| !alive.contains(level));
    let outer = REVIVED.with_borrow(Vec::len);
    let end = mode::on_drop(|| {
        let ended = REVIVED.with_borrow_mut(|all| all.split_off(outer));
        forget(&ended);
    });
    REVIVED.with_borrow_mut(|all| all.extend(dead.map(|&level| (level, Vec::new()))));
    let result = f();
    drop(end);
    result
}

/// Drops the tangents of levels that have ended.
fn forget(ended: &[(u64, Vec<WeakPooled<Node>>)]) {
    for (level, nodes) in ended {
        nodes.iter().filter_map(WeakPooled::upgrade).for_each(|node| node.forget_tangents(*level));
    }
}

/// A level for as long as this value lives.
pub(crate) struct TransformLevel(pub u64);

impl TransformLevel {
    pub fn enter() -> TransformLevel {
        let id = take_number();
        HERE.set(HERE.get() + 1);
        ALIVE.write().unwrap_or_else(PoisonError::into_inner).push((id, Vec::new()));
        TransformLevel(id)
    }
}

impl Drop for TransformLevel {
    fn drop(&mut self) {
        HERE.set(HERE.get().saturating_sub(1));
        let mut alive = ALIVE.write().unwrap_or_else(PoisonError::into_inner);
        let ended =
            alive.iter().position(|level| level.0 == self.0).map(|at| alive.swap_remove(at));
        drop(alive);
        forget(ended.as_slice());
    }
}

/// Whether forward mode is active on this thread.
pub(crate) fn any() -> bool {
    HERE.get() > 0
}

/// Notes that a node saved tangents of these levels.
pub(crate) fn remember(node: &Pooled<Node>, levels: &[u64]) {
    let note = |all: &mut Vec<(u64, Vec<WeakPooled<Node>>)>| {
        for level in all.iter_mut().filter(|level| levels.contains(&level.0)) {
            level.1.push(Pooled::downgrade(node));
        }
    };
    note(&mut ALIVE.write().unwrap_or_else(PoisonError::into_inner));
    REVIVED.with_borrow_mut(note);
}

/// The tangents whose level is still being computed.
pub(crate) fn alive(tangents: &Tangents) -> Tangents {
    if tangents.is_empty() {
        return Tangents::new();
    }
    let alive = all_alive();
    tangents.iter().filter(|t| alive.contains(&t.0)).cloned().collect()
}
