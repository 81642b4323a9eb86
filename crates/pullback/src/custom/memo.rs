//! What has passed the gate, and what goes past it.

use crate::Spec;
use rustc_hash::FxHashSet;
use std::any::TypeId;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What a rule is known by: functions that are made anew at each call are the same if they are the same code.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Site {
    pub name: &'static str,
    at: &'static Location<'static>,
    types: [TypeId; 2],
}

impl Site {
    pub fn of<A: 'static, B: 'static>(name: &'static str, at: &'static Location<'static>) -> Site {
        Site { name, at, types: [TypeId::of::<A>(), TypeId::of::<B>()] }
    }
}

static PASSED: Mutex<Option<FxHashSet<(Site, Vec<Spec>)>>> = Mutex::new(None);

/// Whether a rule has passed for these specs.
pub(super) fn has_passed(site: &Site, specs: &[Spec]) -> bool {
    let held = PASSED.lock().unwrap_or_else(PoisonError::into_inner);
    held.as_ref().is_some_and(|all| all.contains(&(site.clone(), specs.to_vec())))
}

pub(super) fn note_passed(site: &Site, specs: &[Spec]) {
    let mut held = PASSED.lock().unwrap_or_else(PoisonError::into_inner);
    held.get_or_insert_default().insert((site.clone(), specs.to_vec()));
}

/// A rule that is used without having been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UncheckedRule {
    /// The name of the function.
    pub name: &'static str,
    /// The line that said so: `src/model.rs:12:9`.
    pub line: String,
    /// Why.
    pub reason: &'static str,
    /// How often the function was called.
    pub calls: u64,
}

pub(super) struct Opened {
    name: &'static str,
    at: &'static Location<'static>,
    reason: &'static str,
    calls: AtomicU64,
}

impl Opened {
    pub fn count(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}

static OPENED: Mutex<Vec<Arc<Opened>>> = Mutex::new(Vec::new());

/// The entry for a rule that goes past the gate.
pub(super) fn opened(
    name: &'static str,
    at: &'static Location<'static>,
    reason: &'static str,
) -> Arc<Opened> {
    let mut all = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let same = |o: &&Arc<Opened>| o.name == name && o.at == at && o.reason == reason;
    if let Some(known) = all.iter().find(same) {
        return known.clone();
    }
    let new = Arc::new(Opened { name, at, reason, calls: AtomicU64::new(0) });
    all.push(new.clone());
    new
}

/// The custom rules of this process that are used without a check, in the order in which they were made.
///
/// ```
/// use pullback::unchecked_rules;
/// for rule in unchecked_rules() {
///     println!("{} at {}: {} ({} calls)", rule.name, rule.line, rule.reason, rule.calls);
/// }
/// ```
#[must_use]
pub fn unchecked_rules() -> Vec<UncheckedRule> {
    let all = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let rule = |o: &Arc<Opened>| UncheckedRule {
        name: o.name,
        line: o.at.to_string(),
        reason: o.reason,
        calls: o.calls.load(Ordering::Relaxed),
    };
    all.iter().map(rule).collect()
}
