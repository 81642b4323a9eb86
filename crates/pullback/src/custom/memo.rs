//! Which rules passed their check, and which skip it.

use crate::{Spec, Tensor};
use pullback_ir::Line;
use rustc_hash::{FxHashMap, FxHasher};
use std::any::TypeId;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The identity of a rule: functions that are constructed at each call are the same if they are the
/// same code.
///
/// What they captured may differ, and cannot be compared. So those without captures are one rule,
/// and of the others [`OBJECTS`] objects are checked before a line is trusted: a rule that is wrong
/// for the second value it captured is found, and one that is constructed at each step is not
/// checked at each.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Site {
    pub name: &'static str,
    at: Line,
    types: [TypeId; 2],
    captures: bool,
}

/// How many objects of one line are checked for the same specs, where they captured something.
const OBJECTS: usize = 4;

impl Site {
    pub fn of<A: 'static, B: 'static>(name: &'static str, at: Line) -> Site {
        let captures = size_of::<A>() + size_of::<B>() > 0;
        Site { name, at, types: [TypeId::of::<A>(), TypeId::of::<B>()], captures }
    }
}

/// What a rule has passed for.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct PassedCheck {
    specs: Vec<Spec>,
    structure: String,
    /// At values that it was called with; otherwise at sampled ones.
    known: bool,
}

impl PassedCheck {
    pub fn new(x: &[Tensor], structure: &str, known: bool) -> PassedCheck {
        let specs = x.iter().map(|x| x.spec().clone()).collect();
        PassedCheck { specs, structure: structure.to_string(), known }
    }

    /// Whether a call with this argument passes too. A rule that passed with values also passes
    /// without.
    pub fn holds_for(&self, x: &[Tensor], structure: &str, known: bool) -> bool {
        (self.known || !known)
            && self.structure == structure
            && self.specs.iter().eq(x.iter().map(Tensor::spec))
    }
}

/// Equal for the same specs and plain values: the key of the memo.
pub(super) fn digest(x: &[Tensor], structure: &str) -> u64 {
    let mut hasher = FxHasher::default();
    x.iter().for_each(|x| x.spec().hash(&mut hasher));
    structure.hash(&mut hasher);
    hasher.finish()
}

/// How many objects have passed, by line and by what for.
static PASSED: Mutex<Option<FxHashMap<(Site, PassedCheck), usize>>> = Mutex::new(None);

/// Whether a rule has passed.
pub(super) fn has_passed(site: &Site, passed: &PassedCheck) -> bool {
    let held = PASSED.lock().unwrap_or_else(PoisonError::into_inner);
    let count = |known: bool| {
        let key = (site.clone(), PassedCheck { known, ..passed.clone() });
        held.as_ref().and_then(|all| all.get(&key)).copied().unwrap_or(0)
    };
    let enough = if site.captures { OBJECTS } else { 1 };
    count(true).max(if passed.known { 0 } else { count(false) }) >= enough
}

pub(super) fn note_passed(site: &Site, passed: PassedCheck) {
    let mut held = PASSED.lock().unwrap_or_else(PoisonError::into_inner);
    *held.get_or_insert_default().entry((site.clone(), passed)).or_default() += 1;
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

pub(crate) struct UncheckedUse {
    name: &'static str,
    at: Line,
    reason: &'static str,
    calls: AtomicU64,
}

impl UncheckedUse {
    pub fn count(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    pub fn rule(&self) -> UncheckedRule {
        UncheckedRule {
            name: self.name,
            line: self.at.to_string(),
            reason: self.reason,
            calls: self.calls.load(Ordering::Relaxed),
        }
    }
}

static OPENED: Mutex<Vec<Arc<UncheckedUse>>> = Mutex::new(Vec::new());

/// The entry for a rule that skips its check.
pub(super) fn opened(name: &'static str, at: Line, reason: &'static str) -> Arc<UncheckedUse> {
    let mut all = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let same = |o: &&Arc<UncheckedUse>| o.name == name && o.at == at && o.reason == reason;
    if let Some(known) = all.iter().find(same) {
        return known.clone();
    }
    let new = Arc::new(UncheckedUse { name, at, reason, calls: AtomicU64::new(0) });
    all.push(new.clone());
    new
}

/// The custom rules of this process that are used without a check, in the order in which they were
/// made: those that said so, and those that could not be checked (then with the line of their first
/// use), because every sampled point was at a kink, rounding error masked the derivative, or no
/// result was finite. The [`explain`](crate::Jit::explain) of a compiled function lists those in
/// it.
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
    all.iter().map(|o| o.rule()).collect()
}
