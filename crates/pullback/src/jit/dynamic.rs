//! Lengths that change: one program for all of them.
//!
//! A function that [`Jit::dynamic`](super::Jit::dynamic) was called on is compiled as usual for the
//! first length. When a second one comes, the function is traced and optimised at a few lengths,
//! and what these programs have in common becomes a template of the trace and one of the optimised
//! program ([`pullback_ir::template`]). From then on a new length costs a trace, which is compared
//! with that template, and filling in the sizes: no passes. A trace that is something else (a
//! function may do something else for short inputs) is compiled for its length, as is everything
//! whose programs have too little in common; the report says so, with the reason.

use super::compile::{CompiledProgram, Request, Specialisation, TracedFunction, passes};
use super::compiler::Call;
use crate::backend::{Executable, reserve_arena};
use crate::trace::Uncompiled;
use crate::{Device, Error, Result, Spec, backend};
use pullback_ir::pass::plan::plan;
use pullback_ir::pass::{Stage, has_bodies, inline, order};
use pullback_ir::template::{Template, lift_literals, sample_points, varying_literals};
use pullback_ir::{Line, Program, Stopwatch};
use std::sync::Arc;
use std::time::Duration;

/// How often templates are made for arguments of one kind, each for another trace: with and without
/// gradients that are there, say.
const TEMPLATES: usize = 4;
/// Shorter axes are special: a broadcast that is none, a sum of one or of nothing.
const SHORTEST: usize = 2;
/// How many lengths a report lists.
const LISTED: usize = 4096;
/// Memory above this is not allocated in advance for the maximum.
const MAX_PREALLOCATED: usize = 1 << 30;

/// Axes whose length may change, for [`Jit::dynamic`](super::Jit::dynamic).
///
/// A number is that axis of every tensor in the argument that has it, from the end if it is
/// negative. A pair names a tensor, by its place among [`Tree::leaves`](crate::Tree::leaves), and
/// its axis; several pairs are axes that always have the same length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamicAxes(AxisSelection);

#[derive(Clone, Debug, PartialEq, Eq)]
enum AxisSelection {
    OfAll(isize),
    Named(Vec<(usize, isize)>),
}

impl From<isize> for DynamicAxes {
    fn from(axis: isize) -> DynamicAxes {
        DynamicAxes(AxisSelection::OfAll(axis))
    }
}

impl From<(usize, isize)> for DynamicAxes {
    fn from(one: (usize, isize)) -> DynamicAxes {
        DynamicAxes(AxisSelection::Named(vec![one]))
    }
}

impl<const N: usize> From<[(usize, isize); N]> for DynamicAxes {
    fn from(all: [(usize, isize); N]) -> DynamicAxes {
        DynamicAxes(AxisSelection::Named(all.to_vec()))
    }
}

impl From<&[(usize, isize)]> for DynamicAxes {
    fn from(all: &[(usize, isize)]) -> DynamicAxes {
        DynamicAxes(AxisSelection::Named(all.to_vec()))
    }
}

/// One length that may change, up to a maximum.
pub(super) struct Dimension {
    pub axes: DynamicAxes,
    pub max: usize,
}

/// The axis of a number, from the end if that is negative.
fn counted(axis: isize, spec: &Spec) -> Option<usize> {
    let rank = spec.shape.len();
    let axis = if axis < 0 { rank.checked_add_signed(axis)? } else { axis as usize };
    (axis < rank).then_some(axis)
}

impl Dimension {
    /// The axes among tensors of such specs: the tensor, the axis as it was declared, and as it is
    /// counted from the front, if the tensor has it.
    fn places(&self, specs: &[Spec]) -> Vec<(usize, isize, Option<usize>)> {
        match &self.axes.0 {
            AxisSelection::OfAll(axis) => {
                let place = |(leaf, spec)| Some((leaf, *axis, Some(counted(*axis, spec)?)));
                specs.iter().enumerate().filter_map(place).collect()
            }
            AxisSelection::Named(all) => {
                let place = |&(leaf, axis): &(usize, isize)| {
                    (leaf, axis, specs.get(leaf).and_then(|spec| counted(axis, spec)))
                };
                all.iter().map(place).collect()
            }
        }
    }

    /// The length of these axes.
    fn length(&self, specs: &[Spec], at: Line) -> Result<usize> {
        let wrong = |message: String| Error::argument("jit", message).on(specs).at(at);
        let mut found: Option<(usize, usize, isize)> = None;
        for (leaf, axis, counted) in self.places(specs) {
            let name = format!("axis {axis} of tensor {leaf}");
            let Some(counted) = counted else {
                let message = format!("{name} was declared dynamic, and the argument has none");
                return Err(wrong(message));
            };
            let length = specs[leaf].shape[counted];
            if length > self.max {
                let max = self.max;
                return Err(wrong(format!(
                    "{name} has the length {length}, and was declared dynamic up to {max}"
                )));
            }
            match found {
                Some((n, other, its)) if n != length => {
                    let both = format!("axis {its} of tensor {other} and {name}");
                    let message = format!(
                        "{both} were declared one dynamic length, and have {n} and {length}"
                    );
                    return Err(wrong(message).hint(
                        "declare lengths that differ separately, each by tensor and axis: \
                         `.dynamic((0, 1), max)`",
                    ));
                }
                _ => found = Some((length, leaf, axis)),
            }
        }
        let nothing = "no tensor of the argument has the axis that was declared dynamic";
        found.map(|found| found.0).ok_or_else(|| wrong(nothing.to_string()))
    }
}

/// The dynamic lengths of a call; nothing where none was declared.
pub(super) fn lengths(
    dimensions: &[Dimension],
    specs: &[Spec],
    at: Line,
) -> Result<Option<Vec<usize>>> {
    match dimensions {
        [] => Ok(None),
        [_, _, _, ..] => {
            let message =
                format!("{} dynamic lengths were declared, and at most 2 can be", dimensions.len());
            Err(Error::argument("jit", message).at(at))
        }
        all => all.iter().map(|d| d.length(specs, at)).collect::<Result<_>>().map(Some),
    }
}

/// The specs with these lengths for the dynamic ones.
pub(super) fn with_lengths(
    dimensions: &[Dimension],
    specs: &[Spec],
    lengths: &[usize],
) -> Vec<Spec> {
    let mut out = specs.to_vec();
    for (dimension, &length) in dimensions.iter().zip(lengths) {
        for (leaf, _, axis) in dimension.places(specs) {
            if let Some(axis) = axis {
                out[leaf].shape[axis] = length;
            }
        }
    }
    out
}

/// A program for all lengths.
pub(super) struct Open {
    trace: Template,
    optimised: Template,
    /// The literals, by equation, whose values depend on a length.
    varying: Vec<usize>,
}

/// Arguments that differ only in their dynamic lengths.
#[derive(Default)]
pub(super) struct ArgumentFamily {
    /// The first lengths, and how long it took to compile for them.
    first: Option<(Vec<usize>, Duration)>,
    pub open: Vec<Arc<Open>>,
    attempts: usize,
    /// Why there is no program for all lengths.
    none: Option<String>,
    pub report: DynamicReport,
}

/// How one program was used for the lengths of an argument: see
/// [`Jit::dynamic`](crate::Jit::dynamic).
#[derive(Clone, Debug, Default)]
pub struct DynamicReport {
    /// For how many lengths it was filled in.
    pub lengths: usize,
    /// For how many lengths a program was compiled as if nothing had been declared: the first,
    /// those of 0 and 1, and where `why` says.
    pub alone: usize,
    /// Why the last of those was, unless it was the first length.
    pub why: Option<String>,
    /// The lengths that it was filled in for, one for each that was declared, in the order in which
    /// they came; of thousands, the first.
    pub filled: Vec<Vec<usize>>,
    /// The lengths that were compiled alone, and why each was.
    pub compiled: Vec<(Vec<usize>, String)>,
    /// How often native code had to be made where it was filled in, and how often that of another
    /// length was there already.
    pub native: (usize, usize),
    /// How long it took to make the program for all lengths.
    pub making: Duration,
    /// How long a new length took on average: trace, filling in, plan and kernels.
    pub each: [Duration; 3],
    /// How long compiling for the first length took.
    pub full: Duration,
}

impl ArgumentFamily {
    /// Whether other lengths occurred before.
    pub fn has_changed(&self, lengths: &[usize]) -> bool {
        self.first.as_ref().is_some_and(|first| first.0 != lengths)
    }

    pub fn may_try(&self) -> bool {
        self.attempts < TEMPLATES
    }

    /// Notes what came of an attempt to make a program for all lengths.
    pub fn tried(&mut self, made: &std::result::Result<Arc<Open>, String>, time: Duration) {
        self.attempts += 1;
        self.report.making += time;
        match made {
            Ok(open) => self.open.push(open.clone()),
            // What failed once fails again.
            Err(why) => (self.attempts, self.none) = (TEMPLATES, Some(why.clone())),
        }
    }

    /// Notes that the newest program for all lengths is none for a trace that it was made for: nor
    /// would the next be.
    pub fn disable_template(&mut self) {
        self.attempts = TEMPLATES;
        self.open.pop();
    }

    /// Notes a length that was filled in, or compiled for this reason.
    pub fn note(&mut self, made: &Specialisation, lengths: &[usize], why: &str) {
        let t = &made.timing;
        let report = &mut self.report;
        if made.filled {
            let (new, found) = made.executable.native_code();
            report.native = (report.native.0 + new, report.native.1 + found);
            if report.filled.len() < LISTED && !report.filled.iter().any(|n| *n == lengths) {
                report.filled.push(lengths.to_vec());
            }
            let n = report.lengths as u32;
            for (mean, new) in report.each.iter_mut().zip([t.trace, t.passes, t.prepare]) {
                *mean = (*mean * n + new) / (n + 1);
            }
            report.lengths += 1;
            return;
        }
        report.alone += 1;
        if self.first.is_some() {
            report.why = Some(why.to_string());
        }
        let known = report.compiled.iter().any(|(n, because)| *n == lengths && because == why);
        if report.compiled.len() < LISTED && !known {
            report.compiled.push((lengths.to_vec(), why.to_string()));
        }
        let full = t.trace + t.passes + t.prepare;
        if self.first.is_none() {
            (self.first, report.full) = (Some((lengths.to_vec(), full)), full);
        }
    }

    /// Why there is no program for all lengths, if there is none.
    pub fn why_none(&self) -> Option<&str> {
        self.none.as_deref()
    }
}

/// The program with the bodies of custom ops inlined, whose objects are others in every
/// trace.
fn plain(program: &Program) -> Program {
    if has_bodies(program) { inline(program) } else { program.clone() }
}

impl Open {
    /// The specialisation for these lengths; the trace and the request are returned where the trace
    /// does not match.
    pub fn fill(
        &self,
        traced: TracedFunction,
        request: Request,
        lengths: &[usize],
    ) -> std::result::Result<Specialisation, Box<(TracedFunction, Request)>> {
        let start = Stopwatch::start();
        let filled = || {
            let plain = plain(&traced.recorded.program);
            let (program, lifted) = lift_literals(plain, &self.varying).ok()?;
            let same = self.trace.is(&program, lengths);
            let program = same.then(|| self.optimised.at(lengths)).flatten()?;
            let program = order(&program, backend::target(program.device()));
            let time = start.elapsed();
            // This also checks it.
            let executable = Executable::new(&program).ok()?;
            let stages = Vec::new();
            let (budget, offloaded, filled) = (None, Vec::new(), true);
            Some((
                CompiledProgram { program, stages, budget, offloaded, time, lifted, filled },
                executable,
            ))
        };
        match filled() {
            Some((made, executable)) => {
                Ok(Specialisation::new(traced, request, made, executable, start.elapsed()))
            }
            None => Err(Box::new((traced, request))),
        }
    }

    /// Makes a program for all lengths of a function that was called with such specs.
    pub fn make(
        call: &dyn Call,
        dimensions: &[Dimension],
        specs: &[Spec],
        traced: &Program,
        at: Line,
    ) -> std::result::Result<Open, String> {
        let traced = plain(traced);
        let taken: Vec<usize> =
            traced.specs.iter().flat_map(|spec| spec.shape.iter().copied()).collect();
        // Near the maximum, where it matters; if a decision of the compiler changes there, closer
        // together, or below.
        let mut why = String::new();
        for (part, distinct) in [(1, true), (1, false), (3, false)] {
            let mut avoid = taken.clone();
            let choices: Vec<Vec<usize>> = dimensions
                .iter()
                .map(|d| {
                    let chosen = tries(d.max / part, distinct, &avoid);
                    avoid.extend(&chosen);
                    chosen
                })
                .collect();
            let Some(points) = sample_points(&choices) else {
                if part == 1 {
                    why = "too few lengths are allowed, or more than two change".to_string();
                }
                continue;
            };
            match Open::sampled(call, dimensions, specs, &traced, &points, at) {
                Ok(open) => {
                    open.take_ahead(&dimensions.iter().map(|d| d.max).collect::<Vec<_>>());
                    return Ok(open);
                }
                Err(found) => why = found,
            }
        }
        Err(why)
    }

    /// Allocates memory for the longest, so that growing lengths do not allocate a new block each.
    fn take_ahead(&self, longest: &[usize]) {
        // On other devices the arena grows with the stream.
        let on_host = |program: &Program| program.device() == Some(Device::Cpu);
        let program = self.optimised.at(longest).filter(on_host);
        let bytes = program.map(|p| {
            let target = backend::target(p.device());
            plan(&order(&p, target), target).arena
        });
        if let Some(bytes) = bytes.filter(|bytes| *bytes <= MAX_PREALLOCATED) {
            reserve_arena(bytes);
        }
    }

    fn sampled(
        call: &dyn Call,
        dimensions: &[Dimension],
        specs: &[Spec],
        traced: &Program,
        points: &[Vec<usize>],
        at: Line,
    ) -> std::result::Result<Open, String> {
        let mut programs = Vec::with_capacity(points.len());
        for point in points {
            let found = TracedFunction::new(
                call,
                &with_lengths(dimensions, specs, point),
                &Uncompiled::default(),
                at,
            )
            .map_err(|error| format!("the function fails at the lengths {point:?}: {error}"))?;
            if let Some(why) = found.op_by_op {
                return Err(why.into());
            }
            programs.push(plain(&found.recorded.program));
        }
        let mut all: Vec<&Program> = programs.iter().collect();
        // A literal may be another at the length of this call alone.
        if traced.equations.len() == programs[0].equations.len() {
            all.push(traced);
        }
        let varying = varying_literals(&all)?;
        let (mut traces, mut optimised) = (Vec::new(), Vec::new());
        for (point, program) in points.iter().zip(programs) {
            let (program, _) = lift_literals(program, &varying)?;
            let passed = passes(&program, None, at, None).map_err(|error| error.to_string())?;
            traces.push((point.clone(), program));
            // The order of equations depends on how large they are, and is found at each length.
            let orders = |stage: &&Stage| !["schedule", "overlap"].contains(&stage.name);
            let unordered = passed.stages.iter().rev().find(orders);
            let unordered = unordered.map_or(&passed.program, |stage| &stage.program);
            optimised.push((point.clone(), unordered.renumbered()));
        }
        let trace = Template::fit(&traces).map_err(|why| format!("the function: {why}"))?;
        if trace.has_varying_values() {
            return Err("a number inside a loop or a choice depends on the length".to_string());
        }
        let optimised =
            Template::fit(&optimised).map_err(|why| format!("the optimised program: {why}"))?;
        Ok(Open { trace, optimised, varying })
    }
}

/// Four lengths to try up to a maximum that are no size of the program, so that no size is another
/// by chance: distinct, primes of the upper fifth if there are any, or else the largest.
fn tries(max: usize, distinct: bool, taken: &[usize]) -> Vec<usize> {
    // Longer ones take long to try, and add no information.
    let max = max.min(1 << 20);
    let is_prime = |n: usize| (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d));
    let mut found: Vec<usize> = Vec::new();
    for part in [16, 15, 14, 13] {
        let part = if distinct { part } else { 16 };
        let top = max / 16 * part + max % 16 * part / 16;
        let free = |n: &usize| !taken.contains(n) && !found.contains(n);
        let below = || (SHORTEST + 1..=top).rev().filter(free);
        let prime = below().take(100).find(|&n| distinct && is_prime(n));
        let next = prime.or_else(|| below().next());
        found.extend(next);
    }
    found
}

/// Whether a program for all lengths may be filled in with these.
pub(super) fn is_usual(lengths: &[usize]) -> bool {
    lengths.iter().all(|&n| n >= SHORTEST)
}
