//! The check of custom rules: a rule is compared with numeric derivatives before it is used.
//!
//! A wrong rule silently gives wrong gradients. So at the first use for given specs (and plain
//! values of the argument) the function runs a few more times, and its rule is compared with
//! differences of its values (`compare.rs`). What passed is remembered (`memo.rs`), and later calls
//! only look that up.
//!
//! # On a thread of its own
//!
//! The check runs in isolation: a trace, `autocast`, a packer of saved values, a checkpoint that
//! records draws and saved values, a watch for overflow are thread-local, and none of them applies
//! to it.
//!
//! # Where values are not known
//!
//! Inside a trace the rule is checked at sampled values, so that a wrong one is rejected early. In
//! addition the op carries a [`PendingCheck`], and once values are known (when `jit` has compiled
//! the program, when `vmap` has its examples) the rule is checked at these, once.

use super::call::plain;
use super::compare::{CheckOutcome, compare};
use super::memo::{self, PassedCheck, Site, UncheckedUse};
use crate::{DType, Error, ErrorKind, Key, Result, Spec, Tensor, fail, mode, random, trace};
use pullback_ir::{Line, with_tf32};
use rustc_hash::FxHashMap;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};

/// A function on the leaves of its argument and of its result, that may be called on another
/// thread.
pub(super) type SyncFn<'a> = dyn Fn(&[Tensor]) -> Vec<Tensor> + Sync + 'a;

/// The check of a custom function's rule.
#[derive(Clone)]
pub(super) struct RuleCheck {
    site: Site,
    opened: Option<Arc<UncheckedUse>>,
    example: Option<Vec<Tensor>>,
    relative: Option<f64>,
    /// A rule of this library, which its tests check.
    trusted: bool,
    /// That the rule is linear in cotangents is known, also where it is not checked.
    linear: bool,
    /// What this object has passed for: a cache in front of the memo.
    passed: Arc<Mutex<FxHashMap<u64, Vec<PassedCheck>>>>,
}

/// The check that an op carries until values are known.
#[derive(Clone, Default)]
pub(crate) struct PendingCheck {
    /// Why it was not checked, if it was not.
    pub opened: Option<Arc<UncheckedUse>>,
    /// Checks the rule at values of the arguments, if that was not done yet.
    pub later: Option<Arc<DeferredCheck>>,
    /// How many operands are arguments, if not all are.
    pub arguments: Option<usize>,
    /// The specs for which its code is known to accept leading axes.
    pub leading: Arc<Mutex<Vec<Vec<Spec>>>>,
    /// Its rule need not be linear in cotangents: that of a sum is not the sum of those of its
    /// parts.
    pub nonlinear: bool,
}

/// A check at several points, each a list of arguments.
pub(crate) type DeferredCheck = dyn Fn(&[&[Tensor]]) -> Result<()> + Send + Sync;

impl PendingCheck {
    /// Checks the rule at each of these lists of operands, if that was not done yet.
    pub fn check(&self, points: &[&[Tensor]]) -> Result<()> {
        let arguments = |operands: &&[Tensor]| self.arguments.unwrap_or(operands.len());
        let points: Vec<&[Tensor]> = points.iter().map(|p| &p[..arguments(p)]).collect();
        self.later.as_ref().map_or(Ok(()), |later| later(&points))
    }
}

impl RuleCheck {
    pub fn new(site: Site) -> RuleCheck {
        let passed = Arc::default();
        RuleCheck {
            site,
            opened: None,
            example: None,
            relative: None,
            trusted: false,
            linear: false,
            passed,
        }
    }

    pub fn open(&mut self, reason: &'static str, at: Line) {
        self.opened = Some(memo::opened(self.site.name, at, reason));
    }

    pub fn example(&mut self, leaves: Vec<Tensor>) {
        self.example = Some(leaves);
    }

    pub fn tolerance(&mut self, relative: f64) {
        self.relative = Some(relative);
    }

    pub fn trust(&mut self) {
        self.trusted = true;
    }

    pub fn linear(&mut self) {
        self.linear = true;
    }

    /// Checks the rule of a call, or raises the error of a wrong one. `structure` describes the
    /// argument besides its specs.
    pub fn pass(&self, x: &[Tensor], structure: &str, at: Line, f: &SyncFn) {
        if let Some(opened) = &self.opened {
            return opened.count();
        }
        // Where nothing is recorded, no derivative can be requested.
        let differentiable = mode::is_grad_enabled() || trace::active();
        if self.trusted || !differentiable && !x.iter().any(Tensor::carries_tangents) {
            return;
        }
        let known = x.iter().all(trace::knows);
        fail::or_raise(self.once(&[x], structure, known, at, f));
    }

    /// What an op of this function carries.
    pub fn pending(
        &self,
        structure: String,
        at: Line,
        f: impl Fn(&[Tensor]) -> Vec<Tensor> + Send + Sync + 'static,
    ) -> PendingCheck {
        if self.opened.is_some() {
            let nonlinear = !self.linear;
            return PendingCheck {
                opened: self.opened.clone(),
                nonlinear,
                ..PendingCheck::default()
            };
        }
        if self.trusted {
            return PendingCheck::default();
        }
        let check = self.clone();
        let later = move |points: &[&[Tensor]]| check.once(points, &structure, true, at, &f);
        PendingCheck { later: Some(Arc::new(later)), ..PendingCheck::default() }
    }

    /// Checks the rule at points of the same specs, if that was not done yet.
    fn once(
        &self,
        points: &[&[Tensor]],
        structure: &str,
        known: bool,
        at: Line,
        f: &SyncFn,
    ) -> Result<()> {
        let held = || self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(x) = points.first() else { return Ok(()) };
        let digest = memo::digest(x, structure);
        let holds = |all: &Vec<PassedCheck>| all.iter().any(|p| p.holds_for(x, structure, known));
        if held().get(&digest).is_some_and(holds) {
            return Ok(());
        }
        let now = PassedCheck::new(x, structure, known);
        if !memo::has_passed(&self.site, &now) {
            let mut said = Vec::new();
            for x in points {
                said.push(self.check(x, known, at, f).map_err(|e| e.at(at))?);
            }
            if let (CheckOutcome::Inconclusive(why), false) =
                (said[0], said.contains(&CheckOutcome::Fits))
            {
                memo::opened(self.site.name, at, why).count();
            }
            memo::note_passed(&self.site, now.clone());
        }
        held().entry(digest).or_default().push(now);
        Ok(())
    }

    fn check(&self, x: &[Tensor], known: bool, at: Line, f: &SyncFn) -> Result<CheckOutcome> {
        let alone = || {
            let point: Vec<Tensor> = match (&self.example, known) {
                (_, true) => x.iter().map(plain).collect(),
                (Some(example), false) => example.iter().map(plain).collect(),
                (None, false) => x.iter().enumerate().map(sampled).collect(),
            };
            let compare = |f: &dyn Fn(&[Tensor]) -> Vec<Tensor>| {
                compare(self.site.name, self.relative, &point, f)
            };
            // Differences are taken in all the digits of the dtype.
            let check = || fail::catch(|| replayed(f, compare));
            mode::with_line(at, || with_tf32(false, check))?
        };
        // On a thread of its own, which has no tape and no modes.
        let checked = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().spawn_scoped(scope, alone);
            thread.map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
        });
        let checked = checked.map_err(|error| {
            let message = format!("its rule cannot be checked, as no thread starts: {error}");
            let error = Error::new(ErrorKind::Check, self.site.name, message);
            error.hint("use .unchecked(\"why\") where there are no threads")
        });
        match checked? {
            Err(error) if !known && error.kind() != ErrorKind::Check => {
                let message = "its rule cannot be checked where it is first used, inside a trace: at sampled values it fails";
                let error = Error::new(ErrorKind::Check, self.site.name, message).because(error);
                Err(error.hint("give values with .at(&example), call it once outside, pass traced tensors as arguments, or use .unchecked(\"why\")"))
            }
            other => other,
        }
    }
}

/// Values for an argument of which only the spec is known: positive, so that roots and logarithms
/// exist.
pub(super) fn sampled((i, x): (usize, &Tensor)) -> Tensor {
    match x.dtype().is_float() {
        true => Key::new(i as u64)
            .to(x.device())
            .uniform(x.shape(), DType::F64, 0.5, 1.5)
            .cast(x.dtype()),
        false => Tensor::zeros_of(x.spec()),
    }
}

/// Calls `check` with the function as if each call were the first: where it draws random numbers,
/// it draws the same ones. They come from a thread-local copy of the global generator, whose state
/// does not change; other threads may draw from it concurrently.
fn replayed<R>(
    f: &SyncFn,
    check: impl FnOnce(&dyn Fn(&[Tensor]) -> Vec<Tensor>) -> Result<R>,
) -> Result<R> {
    // The thread has its own generator for the check: others keep drawing from theirs.
    let start = random::states();
    let drawing =
        || random::Draws { state: start.copied().held(), keys: Vec::new(), trace: trace::number() };
    random::repeating(drawing(), || check(&|x| random::repeating(drawing(), || f(x))))
}
