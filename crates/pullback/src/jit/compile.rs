//! Making a specialisation: trace, passes, plan, kernels.

use super::cache::Cache;
use super::compiler::{Call, compiler_error};
use crate::backend::Pooled;
use crate::backend::{Executable, Memory};
use crate::leaf::Leaf;
use crate::storage::Storage;
use crate::trace::{self, Effect, FinishedTrace, Touched, TraceKind, Uncompiled};
use crate::{
    Conventions, DType, Flag, Result, Scalar, Spec, Tensor, autocast, backend, fail, kinks, mode,
};
use pullback_ir::pass::{self, BudgetReport, Constant, MovedValue, Pipeline, Stage};
use pullback_ir::template::Lifted;
use pullback_ir::{Line, Op, Program, Stopwatch};
use rustc_hash::FxHashSet;
use std::sync::Arc;
use std::time::Duration;

/// A function compiled for arguments of certain specs.
pub(super) struct Specialisation {
    pub specs: Vec<Spec>,
    /// The structure of the argument: [`Tree::structure`].
    pub structure: Arc<str>,
    /// Its key in the cache, and when it was used last.
    pub key: u64,
    pub used: u64,
    /// The flags that the function read, and their values.
    pub flags: Vec<(Flag, bool)>,
    /// Whether operations were recorded when it was traced.
    pub recording: bool,
    /// Whether it was traced inside `autocast`, in which dtype, and the default dtype.
    pub autocast: autocast::AutocastState,
    /// The derivatives at kinks that held.
    pub conventions: Conventions,
    /// Why it was compiled.
    pub why: String,
    /// How many tensors the function returns.
    pub results: usize,
    /// The captured tensors, and after them the values that depend on a dynamic length.
    pub captures: Vec<Captured>,
    /// The memory among them that is written, by address.
    pub written: FxHashSet<usize>,
    pub lifted: usize,
    /// It was filled in from a program for all lengths ([`super::dynamic`]).
    pub filled: bool,
    pub gradients: Vec<Gradient>,
    /// Why calls run op by op, if they do: the result is tracked by captured leaves, so that it may
    /// be differentiated, or the function has effects on its caller's tensors that a program cannot
    /// have.
    pub op_by_op: Option<&'static str>,
    /// As it was traced, and as it runs.
    pub traced: Program,
    pub executable: Executable,
    pub stages: Vec<PassSummary>,
    /// The bytes that a call may take, and what that cost. A function that is called op by op has a
    /// limit and no cost.
    pub limit: Option<usize>,
    pub budget: Option<BudgetReport>,
    /// What waits on the host for a time.
    pub offloaded: Vec<MovedValue>,
    /// The most bytes that the last call took, where a budget was set: what is held between calls,
    /// and the rise of the pool's counter.
    pub measured: Option<usize>,
    pub timing: Timing,
    /// Where the outputs of a call are gathered, kept so that its allocation is reused.
    pub outputs: Vec<Memory>,
}

/// What a pass did.
pub(super) struct PassSummary {
    pub name: &'static str,
    pub before: usize,
    pub after: usize,
    pub time: Duration,
}

#[derive(Default)]
pub(super) struct Timing {
    pub trace: Duration,
    pub passes: Duration,
    pub prepare: Duration,
    pub calls: usize,
    pub running: Duration,
}

/// A captured tensor that the program takes.
pub(super) enum Captured {
    /// The same memory at every call.
    Fixed { storage: Pooled<Storage>, written: bool, handle: Tensor, tracked: Tracked },
    /// What is in `.grad()` of a leaf when the call is made.
    Gradient { leaf: Arc<Leaf>, spec: Spec },
}

impl Captured {
    /// A number that the program takes as an input.
    fn literal(of: &Lifted) -> Captured {
        let handle = trace::outside(|| Tensor::splat(of.value, of.spec.clone()));
        let storage = handle.0.storage.clone();
        Captured::Fixed { storage, written: false, handle, tracked: Tracked::Not }
    }
}

/// How a captured tensor was tracked when the function was traced.
pub(super) enum Tracked {
    Not,
    /// As the result of an operation.
    Computed,
    /// As this leaf. One that was frozen and unfrozen since is another.
    Leaf(Arc<Leaf>),
}

impl Tracked {
    fn of(x: &Tensor) -> Tracked {
        match (x.leaf(), x.is_tracked()) {
            (Some(leaf), _) => Tracked::Leaf(leaf),
            (None, true) => Tracked::Computed,
            (None, false) => Tracked::Not,
        }
    }

    fn is_that_of(&self, x: &Tensor) -> bool {
        match (self, &Tracked::of(x)) {
            (Tracked::Leaf(then), Tracked::Leaf(now)) => Arc::ptr_eq(then, now),
            (Tracked::Computed, Tracked::Computed) | (Tracked::Not, Tracked::Not) => true,
            (Tracked::Leaf(_) | Tracked::Computed | Tracked::Not, _) => false,
        }
    }
}

/// What becomes of the gradient of a leaf.
pub(super) struct Gradient {
    pub leaf: Arc<Leaf>,
    /// Whether there must be one, where the function looked.
    pub there: Option<bool>,
    pub effect: Effect,
}

/// What a specialisation is made for.
pub(super) struct Request {
    pub specs: Vec<Spec>,
    pub structure: Arc<str>,
    pub why: String,
    pub limit: Option<usize>,
    pub at: Line,
}

/// A function that was traced.
pub(super) struct TracedFunction {
    /// Why calls run op by op, if they do.
    pub op_by_op: Option<&'static str>,
    pub recorded: FinishedTrace,
    pub time: Duration,
}

/// A program that is to run, and how it was made.
pub(super) struct CompiledProgram {
    pub program: Program,
    pub stages: Vec<PassSummary>,
    pub budget: Option<BudgetReport>,
    pub offloaded: Vec<MovedValue>,
    pub time: Duration,
    /// What its inputs after all captured tensors are.
    pub lifted: Vec<Lifted>,
    /// It was filled in from a program for all lengths.
    pub filled: bool,
}

impl Specialisation {
    /// By the passes, from a trace.
    pub fn by_passes(traced: TracedFunction, request: Request) -> Result<Specialisation> {
        let start = Stopwatch::start();
        let within = request.limit.filter(|_| traced.op_by_op.is_none());
        let passed = passes(&traced.recorded.program, within, request.at, None)?;
        let made = CompiledProgram {
            program: passed.program,
            stages: passed.stages.iter().map(summary).collect(),
            budget: passed.budget,
            offloaded: passed.offloaded,
            time: start.elapsed(),
            lifted: Vec::new(),
            filled: false,
        };
        let executable = Executable::new(&made.program)?;
        Ok(Specialisation::new(traced, request, made, executable, start.elapsed()))
    }

    /// From a trace, and what was made of it in this time, preparation included.
    pub fn new(
        traced: TracedFunction,
        request: Request,
        made: CompiledProgram,
        executable: Executable,
        time: Duration,
    ) -> Specialisation {
        let Request { specs, structure, why, limit, .. } = request;
        let TracedFunction { op_by_op, recorded, time: trace } = traced;
        let FinishedTrace { program, results, captures, leaves, flags, .. } = recorded;
        let replaced: FxHashSet<usize> = made.program.updates.iter().map(|u| u.1).collect();
        let written = |i: usize| replaced.contains(&(specs.len() + i));
        let capture = |(i, c): (usize, &trace::Capture)| match (&c.leaf, &c.handle) {
            (Some(leaf), _) => {
                Captured::Gradient { leaf: leaf.clone(), spec: c.tensor.spec().clone() }
            }
            (None, handle) => {
                let handle = handle.clone().unwrap_or_else(|| c.tensor.clone());
                let tracked = Tracked::of(&handle);
                let storage = c.tensor.0.storage.clone();
                Captured::Fixed { storage, written: written(i), handle, tracked }
            }
        };
        let mut captures: Vec<Captured> = captures.iter().enumerate().map(capture).collect();
        captures.extend(made.lifted.iter().map(Captured::literal));
        let address = |c: &Captured| match c {
            Captured::Fixed { storage, written: true, .. } => {
                Some(Pooled::as_ptr(storage) as usize)
            }
            Captured::Fixed { .. } | Captured::Gradient { .. } => None,
        };
        let written = captures.iter().filter_map(address).collect();
        let timing = Timing {
            trace,
            passes: made.time,
            prepare: time.saturating_sub(made.time),
            ..Timing::default()
        };
        Specialisation {
            recording: mode::is_grad_enabled(),
            autocast: autocast::state(),
            conventions: kinks::conventions(),
            why,
            results,
            captures,
            written,
            lifted: made.lifted.len(),
            filled: made.filled,
            gradients: leaves.into_iter().map(gradient).collect(),
            op_by_op,
            traced: program,
            executable,
            stages: made.stages,
            limit,
            budget: made.budget,
            offloaded: made.offloaded,
            measured: None,
            timing,
            outputs: Vec::new(),
            specs,
            structure,
            key: 0,
            used: 0,
            flags,
        }
    }

    /// Whether a call with these arguments, within this budget, is what this was made for, if their
    /// structure is.
    pub fn fits(&self, leaves: &[Tensor], limit: Option<usize>) -> bool {
        let as_tracked = |c: &Captured| match c {
            Captured::Fixed { handle, tracked, .. } => tracked.is_that_of(handle),
            Captured::Gradient { .. } => true,
        };
        self.recording == mode::is_grad_enabled()
            && self.autocast == autocast::state()
            && self.conventions == kinks::conventions()
            && self.limit == limit
            && self.specs.iter().eq(leaves.iter().map(Tensor::spec))
            && self.flags.iter().all(|(flag, value)| flag.peek() == *value)
            && (!self.recording || self.captures.iter().all(as_tracked))
            && self
                .gradients
                .iter()
                .all(|g| g.there.is_none_or(|there| there == g.leaf.grad().is_some()))
    }
}

fn gradient((touched, effect): (Touched, Effect)) -> Gradient {
    let there = touched.looked.then_some(touched.before.is_some());
    Gradient { leaf: touched.leaf, there, effect }
}

fn summary(stage: &Stage) -> PassSummary {
    PassSummary { name: stage.name, before: stage.before, after: stage.after, time: stage.time }
}

/// Why a function is called op by op whose result the tape must see.
pub(super) const DIFFERENTIATED: &str =
    "its result, or state it writes, is differentiated from outside";

impl TracedFunction {
    /// Traces the function.
    pub fn new(
        call: &dyn Call,
        specs: &[Spec],
        uncompiled: &Uncompiled,
        at: Line,
    ) -> Result<TracedFunction> {
        let start = Stopwatch::start();
        fail::catch(|| {
            let run = |args: &[Tensor]| {
                let (failed, outputs) = match call.run_function(args) {
                    Ok(outputs) => (None, outputs),
                    Err(error) => (Some(error), Vec::new()),
                };
                let tracked =
                    outputs.iter().any(|y| y.is_leaf() || trace::can_be_differentiated(y));
                ((failed, tracked), outputs)
            };
            let ((failed, tracked), recorded) =
                trace::record_with_reason(uncompiled, TraceKind::Whole, None, specs, at, run)?;
            if let Some(error) = failed {
                return Err(error);
            }
            let state = recorded.tracked_state && mode::is_grad_enabled();
            let op_by_op = match recorded.checks_values {
                true => Some("it checks every gradient for NaN and infinity itself"),
                false => uncompiled.get().or((tracked || state).then_some(DIFFERENTIATED)),
            };
            Ok(TracedFunction { op_by_op, recorded, time: start.elapsed() })
        })?
    }
}

/// A program after all passes, what each of them made, and what a budget cost.
pub(super) struct Passed {
    pub program: Program,
    pub stages: Vec<Stage>,
    pub budget: Option<BudgetReport>,
    pub offloaded: Vec<MovedValue>,
}

/// Runs the passes, with the kernels for folding constants, within a budget if there is one.
/// Verifies after every pass if requested, or by default in debug builds.
pub(super) fn passes(
    program: &Program,
    budget: Option<usize>,
    at: Line,
    verify: Option<bool>,
) -> Result<Passed> {
    let verified = |pipeline: Pipeline<'static>| match verify {
        Some(verify) => pipeline.verified(verify),
        None => pipeline,
    };
    let Some(bytes) = budget else {
        let target = backend::target(program.device());
        let (program, stages) =
            verified(Pipeline::standard(target, evaluate)).run_in_stages(program)?;
        return Ok(Passed { program, stages, budget: None, offloaded: Vec::new() });
    };
    let target = backend::target_within_budget(program.device());
    let (program, mut stages) =
        verified(Pipeline::before_budget(evaluate)).run_in_stages(program)?;
    let start = Stopwatch::start();
    let budgeted = pass::budget(&program, bytes, target).map_err(|error| error.at(at))?;
    stages.push(Stage {
        name: "budget",
        before: program.equations.len(),
        after: budgeted.program.equations.len(),
        program: budgeted.program.clone(),
        time: start.elapsed(),
    });
    // This also checks what the budget made of the program.
    let (program, rest) = verified(budgeted.rest(target)).run_in_stages(&budgeted.program)?;
    stages.extend(rest);
    let pass::Budgeted { report, offloaded, .. } = budgeted;
    Ok(Passed { program, stages, budget: Some(report), offloaded })
}

/// A program after all passes.
pub(crate) fn optimised(program: &Program) -> Result<Program> {
    let target = backend::target(program.device());
    Pipeline::standard(target, evaluate).run(program)
}

/// What fusion keeps apart in a program.
pub(super) fn apart(program: &Program, least: usize) -> Result<Vec<pass::Apart>> {
    let target = backend::target(program.device());
    let before = Pipeline::standard(target, evaluate).before("fuse").run(program)?;
    Ok(pass::apart(&before, target.regions, least))
}

/// What each pass makes of a program.
pub(super) fn optimised_in_stages(program: &Program) -> Result<Vec<Stage>> {
    let stages = passes(program, None, Line::caller(), None)?.stages;
    Ok(stages.into_iter().map(|s| Stage { program: s.program.renumbered(), ..s }).collect())
}

/// What a pointwise op makes of constants.
fn evaluate(op: &Op, of: &[Constant]) -> Option<Scalar> {
    trace::computing(|| {
        mode::set_recording(false, || {
            let operand = |c: &Constant| Tensor::splat(c.value, Spec::cpu(c.dtype, []));
            let operands: Vec<Tensor> = of.iter().map(operand).collect();
            let y = crate::try_apply(op.clone(), &operands.iter().collect::<Vec<_>>()).ok()?;
            let [y] = &y[..] else { return None };
            Some(match y.dtype() {
                DType::Bool => Scalar::from(y.item::<bool>()),
                dtype if dtype.is_float() => Scalar::from(*y.to_f64_vec().first()?),
                _ => Scalar::from(y.cast(DType::I64).item::<i64>()),
            })
        })
    })
}

/// The traced program and what each pass makes of it.
pub(super) fn stages(
    call: &dyn Call,
    specs: &[Spec],
    limit: Option<usize>,
    at: Line,
) -> Result<Vec<(&'static str, Program)>> {
    let TracedFunction { op_by_op, recorded, .. } =
        TracedFunction::new(call, specs, &Uncompiled::default(), at)?;
    let within = limit.filter(|_| op_by_op.is_none());
    let stages = passes(&recorded.program, within, at, None)?.stages;
    let mut all = vec![("trace", recorded.program.renumbered())];
    all.extend(stages.into_iter().map(|s| (s.name, s.program.renumbered())));
    Ok(all)
}

/// Why none of the specialisations fits these arguments.
pub(super) fn reason(
    cache: &Cache,
    key: u64,
    leaves: &[Tensor],
    structure: &str,
    limit: Option<usize>,
) -> String {
    let Some(last) = cache.all().next_back() else { return "the first call".to_string() };
    if cache.is_gone(key) {
        return format!("it was evicted: the cache holds {}", cache.limit());
    }
    if last.specs.len() != leaves.len() {
        return format!(
            "{} tensors in the argument, previously {}",
            leaves.len(),
            last.specs.len()
        );
    }
    let changed =
        last.specs.iter().zip(leaves).enumerate().find(|(_, (old, new))| *old != new.spec());
    if let Some((i, (old, new))) = changed {
        return format!("tensor {i} of the argument is {}, and was {old}", new.spec());
    }
    if *last.structure != *structure {
        return "plain values or the structure of the argument have changed".to_string();
    }
    if let Some((_, before)) = last.flags.iter().find(|(flag, value)| flag.peek() != *value) {
        return format!(
            "a flag that it reads, such as whether a layer is in training, was {before} in the last call"
        );
    }
    if last.recording != mode::is_grad_enabled() {
        return "it was called inside no_grad, or no longer".to_string();
    }
    if last.autocast != autocast::state() {
        return format!("it was called {}, and {} before", autocast::state(), last.autocast);
    }
    if last.limit != limit {
        let name = |bytes: Option<usize>| match bytes {
            Some(bytes) => format!("{bytes} bytes"),
            None => "unlimited".to_string(),
        };
        return format!("the memory budget is {}, and was {}", name(limit), name(last.limit));
    }
    if last.conventions != kinks::conventions() {
        return "other conventions hold for derivatives at kinks".to_string();
    }
    let there = |g: &&Gradient| g.there.is_some_and(|there| there != g.leaf.grad().is_some());
    match last.gradients.iter().find(there) {
        Some(g) if g.there == Some(true) => {
            "a leaf had a gradient before, and has none now".to_string()
        }
        Some(_) => "a leaf has a gradient now, and had none before".to_string(),
        None => "no earlier one fits".to_string(),
    }
}

/// The error of a gradient that is not the one the function was compiled for.
pub(super) fn wrong_gradient(found: &Spec, wanted: &Spec) -> crate::Error {
    compiler_error(format!(
        "the gradient of a leaf is {found}, but the function was compiled for {wanted}"
    ))
}
