//! What was compiled, and why.

use super::compile::{DIFFERENTIATED, Specialisation, apart};
use super::dynamic::DynamicReport;
use super::kernels::kernel_table;
use crate::backend::KernelCode;
use crate::{UncheckedRule, custom};
use pullback_ir::Program;
use pullback_ir::pass::{Apart, BudgetReport, MovedValue};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// Lines of the table of kernels in a report, at most.
const KERNELS: usize = 25;
/// Lines of what was not fused, at most.
const APART: usize = 12;
/// Lines of what is offloaded, at most.
const OFFLOADED: usize = 12;
/// Bytes of a value that is worth a line there: below, it stays in a cache.
const LARGE: usize = 1 << 16;

/// What a [`Jit`](crate::Jit) has compiled so far. Prints as a report.
pub struct Explanation {
    /// One for each set of argument specs, in the order of their first call.
    pub specialisations: Vec<Specialised>,
    /// How many programs are kept at most.
    pub cache_limit: usize,
    /// How many were evicted so far.
    pub evicted: usize,
    /// How programs for all lengths did, one for each kind of argument, where lengths were declared
    /// [`dynamic`](crate::Jit::dynamic).
    pub dynamic: Vec<DynamicReport>,
    /// How many calls ran op by op, and why the last one did.
    pub uncompiled: (usize, Option<&'static str>),
}

/// One specialisation.
pub struct Specialised {
    /// The specs of the arguments.
    pub arguments: Vec<String>,
    /// Why it was compiled.
    pub why: String,
    /// Each pass: its name, the equations before and after, the time it took.
    pub passes: Vec<(&'static str, usize, usize, Duration)>,
    /// The kernels, and how often each is called.
    pub kernels: BTreeMap<String, usize>,
    /// What a device other than the CPU made for it before the first call: kernels, plans.
    pub made: Option<String>,
    /// The kernels of a GPU, equal calls being one, with the CUDA C of fused regions.
    pub device_kernels: Vec<KernelCode>,
    /// How a device other than the CPU launches them: as CUDA graphs, or one by one.
    pub launches: Vec<String>,
    /// Pairs of equations that share a value of 64 KiB or more and are not in one fused
    /// region, with what keeps them apart; the largest values first. Empty where a memory budget
    /// holds, and for programs that were filled in.
    pub apart: Vec<Apart>,
    /// How often native code was made for it, and how often existing code is used.
    pub native: (usize, usize),
    /// Captured tensors, and how many of them the function writes.
    pub captures: (usize, usize),
    /// The planned peak: bytes of intermediate values at the worst moment, of constants and of
    /// outputs. Arguments and captured tensors are not in it.
    pub peak: usize,
    /// What [`Jit::memory_budget`](crate::Jit::memory_budget) cost, where one was set.
    pub budget: Option<BudgetReport>,
    /// What waits on the host for a time, where a budget was set on a device that can do that: what
    /// its copies cost, and what it would to compute it again.
    pub offloaded: Vec<MovedValue>,
    /// The peak of the last call by the pool's counters, where a budget was set; `None` before the
    /// first call, and on other devices than the CPU. It counts what the plan counts, and also
    /// scratch memory of kernels, copies of arguments that are not contiguous, and allocations of
    /// other threads.
    pub measured: Option<usize>,
    /// The largest values alive at that moment, with their lines.
    pub peak_by_line: Vec<(String, usize)>,
    /// How long tracing, the passes and the preparation took.
    pub compile: [Duration; 3],
    /// How often it was called, and how long a call took on average.
    pub calls: (usize, Duration),
    /// It was filled in from a program for all lengths: then there were no passes, and the second
    /// of the times is that of filling in.
    pub filled: bool,
    /// The program that runs.
    pub program: Program,
    /// Its result is differentiated outside, so calls run op by op.
    pub differentiated: bool,
    /// Why calls run op by op, if they do.
    pub op_by_op: Option<&'static str>,
    /// The custom rules in it that are used without a check.
    pub unchecked: Vec<UncheckedRule>,
}

impl Specialised {
    pub(super) fn with_obstacles(mut self, traced: Option<&Program>) -> Specialised {
        self.apart = traced.and_then(|program| apart(program, LARGE).ok()).unwrap_or_default();
        self
    }
}

impl Specialisation {
    /// The report, and the traced program where it is to be said what was not fused: that runs the
    /// passes again, which other calls of the function need not wait for.
    pub(super) fn explain(&self) -> (Specialised, Option<Program>) {
        let fused_freely = self.limit.is_none() && !self.filled;
        (self.report(), fused_freely.then(|| self.traced.clone()))
    }

    fn report(&self) -> Specialised {
        let mut kernels = BTreeMap::new();
        for name in self.executable.kernels() {
            *kernels.entry(name.to_string()).or_insert(0) += 1;
        }
        let plan = self.executable.plan();
        let line = |at: Option<pullback_ir::Line>| at.map_or("?".to_string(), |at| at.to_string());
        let updates = self.executable.program().updates.len();
        let timing = &self.timing;
        Specialised {
            arguments: self.specs.iter().map(ToString::to_string).collect(),
            why: self.why.clone(),
            passes: self.stages.iter().map(|s| (s.name, s.before, s.after, s.time)).collect(),
            kernels,
            made: self.executable.made(),
            device_kernels: self.executable.device_kernels(),
            launches: self.executable.notes(),
            apart: Vec::new(),
            native: self.executable.native_code(),
            captures: (self.captures.len() - self.lifted, updates),
            peak: plan.peak(),
            budget: self.budget,
            offloaded: self.offloaded.clone(),
            measured: self.measured,
            peak_by_line: plan
                .by_place()
                .into_iter()
                .map(|(at, bytes)| (line(at), bytes))
                .collect(),
            compile: [timing.trace, timing.passes, timing.prepare],
            calls: (
                timing.calls,
                timing.running.checked_div(timing.calls.max(1) as u32).unwrap_or_default(),
            ),
            filled: self.filled,
            program: self.executable.program().renumbered(),
            differentiated: self.op_by_op == Some(DIFFERENTIATED),
            op_by_op: self.op_by_op,
            unchecked: custom::unchecked_in(&self.traced),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, s) in self.specialisations.iter().enumerate() {
            writeln!(f, "specialisation {i}: ({})", s.arguments.join(", "))?;
            write!(f, "{s}")?;
        }
        for report in &self.dynamic {
            write!(f, "{report}")?;
        }
        if self.evicted > 0 {
            let (n, kept) = (self.evicted, self.cache_limit);
            writeln!(f, "{n} programs were evicted: {kept} are kept (`cache_limit`)")?;
        }
        if let (n @ 1.., Some(why)) = self.uncompiled {
            writeln!(f, "{n} calls ran op by op: {why}")?;
        }
        Ok(())
    }
}

impl fmt::Display for DynamicReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DynamicReport { lengths, alone, making, each, full, filled, native, .. } = self;
        writeln!(f, "dynamic lengths: {lengths} by one program, {alone} compiled alone")?;
        if !filled.is_empty() {
            let all: Vec<String> = filled.iter().map(|n| length(n)).collect();
            writeln!(f, "  by one program: {}", few(&all))?;
        }
        let mut reasons: Vec<&str> = self.compiled.iter().map(|(_, why)| &why[..]).collect();
        let mut seen = BTreeSet::new();
        reasons.retain(|why| seen.insert(*why));
        for why in reasons {
            let of = self.compiled.iter().filter(|(_, other)| other == why);
            let all: Vec<String> = of.map(|(n, _)| length(n)).collect();
            writeln!(f, "  compiled alone: {}, because: {why}", few(&all))?;
        }
        if *lengths > 0 {
            let (all, [trace, fill, prepare]) = (each.iter().sum::<Duration>(), each);
            write!(f, "  a new length took {all:.1?} (trace {trace:.1?}, sizes {fill:.1?}, ")?;
            writeln!(f, "plan and kernels {prepare:.1?}), compiling the first {full:.1?}")?;
            let (new, found) = native;
            writeln!(
                f,
                "  native code: {new} times compiled, {found} times that of another length"
            )?;
            writeln!(f, "  the program for all lengths took {making:.1?} to make")?;
        }
        Ok(())
    }
}

/// The lengths of a call in words: a number, or several with a cross between.
fn length(all: &[usize]) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join("×")
}

/// The first of many.
fn few(all: &[String]) -> String {
    let (shown, more) = (&all[..all.len().min(24)], all.len().saturating_sub(24));
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

impl fmt::Display for Specialised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  compiled because: {}", self.why)?;
        if let Some(why) = self.op_by_op {
            writeln!(f, "  calls run op by op: {why}")?;
        }
        let [trace, passes, prepare] = self.compile;
        let how = if self.filled { "one program for all lengths, filled in" } else { "passes" };
        writeln!(
            f,
            "  compile time: trace {trace:.1?}, {how} {passes:.1?}, plan and kernels {prepare:.1?}{}",
            self.made.as_ref().map_or(String::new(), |made| format!(" ({made})"))
        )?;
        for (name, before, after, time) in &self.passes {
            writeln!(f, "    {name:<24} {before:>6} → {after:<6} {time:.1?}")?;
        }
        writeln!(
            f,
            "  captured tensors: {}, of which written: {}",
            self.captures.0, self.captures.1
        )?;
        let total: usize = self.kernels.values().sum();
        let list: Vec<String> =
            self.kernels.iter().map(|(name, n)| format!("{name} ×{n}")).collect();
        writeln!(f, "  kernels: {total} ({})", list.join(", "))?;
        for launch in &self.launches {
            writeln!(f, "  launches: {launch}")?;
        }
        if !self.device_kernels.is_empty() {
            let lines = kernel_table(&self.device_kernels);
            lines.iter().take(KERNELS).try_for_each(|line| writeln!(f, "    {line}"))?;
            if let more @ 1.. = lines.len().saturating_sub(KERNELS) {
                writeln!(f, "    and {more} more (`kernel_table`)")?;
            }
            writeln!(f, "    (`native_code` has the CUDA C of each region)")?;
        }
        let lines = self.not_fused();
        if !lines.is_empty() {
            writeln!(f, "  not fused:")?;
            lines.iter().take(APART).try_for_each(|line| writeln!(f, "    {line}"))?;
            if let more @ 1.. = lines.len().saturating_sub(APART) {
                writeln!(f, "    and {more} more (`Specialised::not_fused`)")?;
            }
        }
        if self.native != (0, 0) {
            let (new, found) = self.native;
            writeln!(f, "  native code: {new} compiled, {found} found")?;
        }
        for UncheckedRule { name, line, reason, .. } in &self.unchecked {
            writeln!(f, "  unchecked rule: `{name}`, {reason} ({line})")?;
        }
        writeln!(f, "  peak memory: {} bytes", self.peak)?;
        for (line, bytes) in self.peak_by_line.iter().take(5) {
            writeln!(f, "    {bytes:>12}  {line}")?;
        }
        if let Some(report) = &self.budget {
            for line in report.to_string().lines() {
                writeln!(f, "  {line}")?;
            }
            for value in self.offloaded.iter().take(OFFLOADED) {
                writeln!(f, "    {value}")?;
            }
            if let more @ 1.. = self.offloaded.len().saturating_sub(OFFLOADED) {
                writeln!(f, "    and {more} more (`Specialised::offloaded`)")?;
            }
            match self.measured {
                Some(bytes) => {
                    write!(f, "    measured peak of the last call: {bytes} bytes")?;
                    match bytes.saturating_sub(report.budget) {
                        0 => writeln!(f)?,
                        n => writeln!(f, ", {n} above the budget: scratch memory is not planned")?,
                    }
                }
                None if self.calls.0 == 0 => writeln!(f, "    measured peak: not called yet")?,
                None => writeln!(f, "    measured peak: another measurement ran")?,
            }
        }
        writeln!(f, "  calls: {}, {:.1?} each", self.calls.0, self.calls.1)
    }
}
