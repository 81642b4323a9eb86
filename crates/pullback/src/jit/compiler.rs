//! A compiled function without its types.
//!
//! [`Jit`](super::Jit) is generic over the argument, the result and the closure, so whatever it
//! does is compiled again in every program that calls it, once for each function. Therefore it does
//! as little as possible: it flattens the argument and puts the results back into their tree. The
//! rest sees lists of tensors, and the function through [`Call`].

use super::cache::{self, Cache};
use super::compile::{self, Request, Specialisation, TracedFunction};
use super::dynamic::{self, Dimension, Open};
use super::explain::Explanation;
use super::reasons::reason_to_run_eagerly;
use super::run::CallOutputs;
use crate::trace::Uncompiled;
use crate::{Error, Result, Spec, Tensor};
use pullback_ir::{Line, Program, Stopwatch};
use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A call of a function, without the types of its argument and result.
pub(super) trait Call {
    /// The structure of the argument: [`Tree::structure`](crate::Tree::structure).
    fn structure(&self) -> String;

    /// Whether the structure of the argument is this, without making it.
    fn has_structure(&self, structure: &Arc<str>) -> bool;

    /// Runs the user's function with these tensors in the argument: the tensors of its result.
    /// What the first run returned is the template of results.
    fn run_function(&self, tensors: &[Tensor]) -> Result<Vec<Tensor>>;

    /// The program of this number was made: its template is kept, those of numbers that are not
    /// `live` any more are dropped.
    fn keep_template(&self, id: u64, live: &dyn Fn(u64) -> bool);

    /// The program of this number ran, with these results.
    fn finish(&self, id: u64, outputs: CallOutputs);
}

/// How a call ended.
pub(super) enum CallOutcome {
    /// The program ran, and [`Call::finish`] has its results.
    Ran,
    /// The function is to be run op by op.
    OpByOp,
}

/// What a compiled function knows besides the function.
pub(super) struct Compiler {
    pub at: Line,
    /// Bytes that a call may take.
    pub budget: Option<usize>,
    /// Lengths that may change.
    pub dynamic: Vec<Dimension>,
    cache: Mutex<Cache>,
}

impl Compiler {
    pub fn new(at: Line) -> Compiler {
        Compiler { at, budget: None, dynamic: Vec::new(), cache: Mutex::default() }
    }

    /// Runs the program for these arguments, whose structure has this hash.
    pub fn call(&self, call: &dyn Call, leaves: &[Tensor], hash: u64) -> Result<CallOutcome> {
        if let Some(why) = reason_to_run_eagerly(leaves) {
            return Ok(self.op_by_op(why));
        }
        let uncompiled = Uncompiled::default();
        let found = self.compiled(call, leaves, hash, &uncompiled);
        let (mut cache, id) = match (found, uncompiled.get()) {
            (Ok(found), _) => found,
            // What cannot be compiled need not be traced to its end.
            (Err(_), Some(why)) => return Ok(self.op_by_op(why)),
            (Err(error), None) => return Err(error),
        };
        let Some(fit) = cache.get_mut(id) else {
            return Err(compiler_error("a program was evicted before it ran"));
        };
        if let Some(why) = fit.op_by_op {
            drop(cache);
            return Ok(self.op_by_op(why));
        }
        let _running = RunningGuard::of(self);
        call.finish(id, fit.call(leaves, self.at)?);
        Ok(CallOutcome::Ran)
    }

    /// Makes the program for these arguments, if there is to be one.
    pub fn compile(&self, call: &dyn Call, leaves: &[Tensor], hash: u64) -> Result<()> {
        if reason_to_run_eagerly(leaves).is_some() {
            return Ok(());
        }
        let uncompiled = Uncompiled::default();
        let made = self.compiled(call, leaves, hash, &uncompiled).map(|_| ());
        if uncompiled.get().is_some() { Ok(()) } else { made }
    }

    /// The program for these arguments, whose structure has this hash, found or made: its number in
    /// the cache.
    fn compiled(
        &self,
        call: &dyn Call,
        leaves: &[Tensor],
        hash: u64,
        uncompiled: &Uncompiled,
    ) -> Result<(MutexGuard<'_, Cache>, u64)> {
        let key = cache::key(leaves.iter().map(Tensor::spec), hash, self.budget);
        let mut cache = self.lock();
        if let Some(id) = cache.find(key, call, leaves, self.budget) {
            return Ok((cache, id));
        }
        let structure = call.structure();
        let why = compile::reason(&cache, key, leaves, &structure, self.budget);
        // The function is the user's, and may be reentrant: no lock is held while it runs.
        drop(cache);
        let request = self.request(leaves, structure, why);
        let mut made = self.specialise(call, request, hash, true, uncompiled)?;
        made.check_rules(leaves)?;
        made.key = key;
        let mut cache = self.lock();
        let id = cache.insert(made);
        call.keep_template(id, &|id| cache.has(id));
        Ok((cache, id))
    }

    fn request(&self, leaves: &[Tensor], structure: String, why: String) -> Request {
        let specs = leaves.iter().map(|x| x.spec().clone()).collect();
        Request { specs, structure: structure.into(), why, limit: self.budget, at: self.at }
    }

    /// A specialisation, filled in for the lengths that were declared dynamic, if it can be. The
    /// hash is that of the argument's structure; a lookup without a call is not counted in reports.
    fn specialise(
        &self,
        call: &dyn Call,
        request: Request,
        hash: u64,
        counts: bool,
        uncompiled: &Uncompiled,
    ) -> Result<Specialisation> {
        let lengths = dynamic::lengths(&self.dynamic, &request.specs, self.at)?;
        let Some(lengths) = lengths else {
            let traced = TracedFunction::new(call, &request.specs, uncompiled, self.at)?;
            return Specialisation::by_passes(traced, request);
        };
        let masked = dynamic::with_lengths(&self.dynamic, &request.specs, &vec![0; lengths.len()]);
        let family = cache::key(masked.iter(), hash, self.budget);
        let (changed, known) = {
            let mut cache = self.lock();
            let family = cache.family(family);
            (family.has_changed(&lengths), family.open.clone())
        };
        let traced = TracedFunction::new(call, &request.specs, uncompiled, self.at)?;
        let why_not = match () {
            () if !changed => None,
            () if self.budget.is_some() => {
                Some("a memory budget is applied at every length separately")
            }
            () if traced.op_by_op.is_some() => Some("calls run op by op"),
            () if !dynamic::is_usual(&lengths) => Some("lengths of 0 and 1 are compiled alone"),
            () => None,
        };
        let (mut left, mut made) = (Some((traced, request)), None);
        if changed && why_not.is_none() {
            for open in known {
                if let Some((traced, request)) = left.take() {
                    match open.fill(traced, request, &lengths) {
                        Ok(filled) => made = Some(filled),
                        Err(back) => left = Some(*back),
                    }
                }
            }
            if let Some((traced, request)) = left.take() {
                match self.open(call, family, &traced, &request) {
                    None => left = Some((traced, request)),
                    Some(open) => match open.fill(traced, request, &lengths) {
                        Ok(filled) => made = Some(filled),
                        Err(back) => {
                            left = Some(*back);
                            self.lock().family(family).disable_template();
                        }
                    },
                }
            }
        }
        let made = match (made, left) {
            (Some(made), _) => made,
            (None, Some((traced, request))) => Specialisation::by_passes(traced, request)?,
            (None, None) => return Err(compiler_error("a trace was lost")),
        };
        if !counts {
            return Ok(made);
        }
        let mut cache = self.lock();
        let family = cache.family(family);
        let why = match why_not {
            _ if !changed => "the first length".to_string(),
            Some(why) => why.to_string(),
            None => family
                .why_none()
                .unwrap_or("at this length the function does something else")
                .to_string(),
        };
        family.note(&made, &lengths, &why);
        Ok(made)
    }

    /// A program for all lengths, if one can be made and was not tried too often.
    fn open(
        &self,
        call: &dyn Call,
        family: u64,
        traced: &TracedFunction,
        request: &Request,
    ) -> Option<Arc<Open>> {
        if !self.lock().family(family).may_try() {
            return None;
        }
        let start = Stopwatch::start();
        let program = &traced.recorded.program;
        let made = Open::make(call, &self.dynamic, &request.specs, program, self.at).map(Arc::new);
        let mut cache = self.lock();
        cache.family(family).tried(&made, start.elapsed());
        made.ok()
    }

    /// Compares the program for these arguments with plain ops.
    pub fn check(&self, call: &dyn Call, leaves: &[Tensor], hash: u64) -> Result<()> {
        let request = self.request(leaves, call.structure(), "to be checked".to_string());
        self.specialise(call, request, hash, false, &Uncompiled::default())?.check(leaves, self.at)
    }

    /// The traced program, and what each pass makes of it.
    pub fn stages(
        &self,
        call: &dyn Call,
        leaves: &[Tensor],
    ) -> Result<Vec<(&'static str, Program)>> {
        let specs: Vec<Spec> = leaves.iter().map(|x| x.spec().clone()).collect();
        compile::stages(call, &specs, self.budget, self.at)
    }

    pub fn explain(&self) -> Explanation {
        let cache = self.lock();
        let made: Vec<_> = cache.all().map(Specialisation::explain).collect();
        let mut explanation = Explanation {
            specialisations: Vec::new(),
            cache_limit: cache.limit(),
            evicted: cache.evicted,
            dynamic: cache.families.values().map(|family| family.report.clone()).collect(),
            uncompiled: cache.uncompiled,
        };
        drop(cache);
        let finished = made.into_iter().map(|(made, traced)| made.with_obstacles(traced.as_ref()));
        explanation.specialisations = finished.collect();
        explanation
    }

    pub fn set_cache_limit(&self, programs: usize) {
        self.lock().set_limit(programs);
    }

    fn op_by_op(&self, why: &'static str) -> CallOutcome {
        let mut cache = self.lock();
        cache.uncompiled = (cache.uncompiled.0 + 1, Some(why));
        CallOutcome::OpByOp
    }

    fn lock(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this thread is running a program of this function. A custom op may call the function
    /// that it is part of, whose cache is locked until that call ends.
    pub fn is_running(&self) -> bool {
        RUNNING.with_borrow(|all| all.contains(&(std::ptr::from_ref(self) as usize)))
    }
}

thread_local! {
    /// The compiled functions that this thread is running, by address.
    static RUNNING: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// A compiled function runs on this thread while this lives.
struct RunningGuard;

impl RunningGuard {
    fn of(compiler: &Compiler) -> RunningGuard {
        RUNNING.with_borrow_mut(|all| all.push(std::ptr::from_ref(compiler) as usize));
        RunningGuard
    }
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        RUNNING.with_borrow_mut(Vec::pop);
    }
}

/// An error of the compiler itself.
pub(super) fn compiler_error(message: impl Into<String>) -> Error {
    Error::new(pullback_ir::ErrorKind::Program, "jit", message)
}
