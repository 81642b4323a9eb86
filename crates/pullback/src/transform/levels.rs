//! Levels of forward mode: which `jvp` a tangent belongs to.
//!
//! Every `jvp` gets a fresh number, so the tangents of nested ones are told apart and no perturbation is
//! confused with another. A tangent whose `jvp` has returned is dropped where it turns up in saved values.

use crate::tensor::Tangents;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

static NEXT: AtomicU64 = AtomicU64::new(1);
static ALIVE: RwLock<Vec<u64>> = RwLock::new(Vec::new());

/// A level for as long as this value lives.
pub(crate) struct Level(pub u64);

impl Level {
    pub fn enter() -> Level {
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        ALIVE.write().unwrap_or_else(PoisonError::into_inner).push(id);
        Level(id)
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        ALIVE.write().unwrap_or_else(PoisonError::into_inner).retain(|&id| id != self.0);
    }
}

/// The tangents whose level is still being computed.
pub(crate) fn alive(tangents: &Tangents) -> Tangents {
    if tangents.is_empty() {
        return Tangents::new();
    }
    let alive = ALIVE.read().unwrap_or_else(PoisonError::into_inner);
    tangents.iter().filter(|t| alive.contains(&t.0)).cloned().collect()
}
