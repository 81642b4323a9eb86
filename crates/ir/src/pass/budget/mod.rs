//! Recomputes values so that a program fits into a byte budget.
//!
//! # The idea
//! A training step runs its layers forward and then backward; in between, everything that backward
//! will read is alive. Much of that can be recomputed from a few checkpoints. This pass decides
//! which values are kept, so that the whole program stays within a budget, with the least
//! recomputed work.
//!
//! 1. The moment of peak memory splits the program in two. The values computed before it and read
//!    after it are the candidates (`liveness.rs`).
//! 2. The part before is cut into segments; what crosses a cut is kept, the rest of a segment is
//!    recomputed when the part after it first needs it. For a limit on the bytes of boundaries and
//!    one segment, a shortest path finds the cuts that cost least (`cuts.rs`).
//! 3. The program is rewritten (`recompute.rs`), and all passes that remain run on it, memory
//!    planning too: the limit is searched so that the *planned* peak, what the compiled program
//!    will really take, is within the budget. With the remaining bytes, the values are kept that
//!    save most work per byte.
//! 4. If no limit fits, the resulting program is cut again at its new peak, and so on: recomputed
//!    values are recomputed once more, from fewer kept values. So the memory of a chain of n can go
//!    down towards log n, at the cost of work that is done several times. It ends when cuts no
//!    longer help, or when more than [`MAX_RECOMPUTED`] times the work of the program would be
//!    recomputed.
//! 5. On a target whose values can wait on the host, some of them may do so instead (`away.rs`):
//!    copies take time on their way, and recomputing takes time of the device, so the fastest of
//!    several programs between the two is taken.
//!
//! # Guarantees
//! The same bits in every result: equations are repeated, never changed, and random numbers are
//! functions of their keys. (Fusion may group sums differently, as always.) The planned peak is not
//! above the budget, or there is an error that names the least peak that was found, and a budget of
//! that many bytes is met. If the program fits already, nothing changes. Deterministic, and fast:
//! well below a second for thousands of equations, a few seconds where the budget is close to the
//! least or below. Programs inside control flow are not analysed; a loop is recomputed as a whole.

mod away;
mod cuts;
mod liveness;
mod recompute;
mod report;
#[cfg(test)]
mod tests;
mod work;

pub use report::BudgetReport;
pub use work::{op_work, work};

use super::plan::{Plan, plan};
use super::{MovedValue, Pipeline, Target, dead_code, offload, remat_where};
use crate::{Error, ErrorKind, Program, Result};
use away::Away;
use cuts::Cuts;
use liveness::Liveness;
use recompute::recompute;

/// A program within a budget. See the head of the module.
#[derive(Clone, Debug)]
pub struct Budgeted {
    /// The program, before the passes that remain.
    pub program: Program,
    /// What was done to it.
    pub report: BudgetReport,
    /// What waits on the host, if anything: then [`offload`](super::offload()) to the budget is the
    /// last of the passes that remain ([`Budgeted::rest`]).
    pub offloaded: Vec<MovedValue>,
}

impl Budgeted {
    /// The passes that remain: those of [`Pipeline::after_budget`], and
    /// [`offload`](super::offload()) where something waits on the host.
    pub fn rest(&self, target: Target) -> Pipeline<'static> {
        let rest = Pipeline::after_budget(target);
        let bytes = self.report.budget;
        match self.offloaded.is_empty() {
            true => rest,
            false => rest.then("offload", move |program| offload(program, bytes, target)),
        }
    }
}

/// Recomputes values so that a program fits into this many bytes, before the passes of
/// [`Pipeline::after_budget`].
///
/// ```
/// use pullback_ir::{Binary, Cumulation, DType, Op, Program, Spec};
/// use pullback_ir::pass::{Pipeline, Target, budget, plan::plan};
/// // A way there, and a way back that reads all that was on the way.
/// let mut program = Program::default();
/// let mut x = program.input(Spec::cpu(DType::F32, [1024].as_slice()));
/// let sum = |reverse| Op::Cumulate { kind: Cumulation::Sum, axis: 0, reverse };
/// let mut way = vec![];
/// for _ in 0..16 {
///     x = program.push(sum(false), &[x], None)?[0];
///     way.push(x);
/// }
/// for &there in way.iter().rev() {
///     let back = program.push(sum(true), &[x], None)?[0];
///     x = program.push(Op::Binary(Binary::Mul), &[back, there], None)?[0];
/// }
/// program.outputs = vec![x];
/// let target = Target::default();
/// let fits = budget(&program, 10 * 4096, target)?;
/// let compiled = Pipeline::after_budget(target).run(&fits.program)?;
/// let peak = |program: &Program| plan(program, target).peak();
/// assert!(peak(&compiled) <= 10 * 4096 && peak(&program) > 16 * 4096);
/// assert!(fits.report.again > 0);
/// let error = budget(&program, 4096, target).unwrap_err().to_string();
/// assert!(error.contains("4096 bytes are not enough: it takes at least"), "{error}");
/// # Ok::<(), pullback_ir::Error>(())
/// ```
///
/// # Errors
/// If it is not possible: names the lowest peak that was found, and what is alive then.
pub fn budget(program: &Program, bytes: usize, target: Target) -> Result<Budgeted> {
    let rest = Pipeline::after_budget(target).verified(false);
    let mut search = BudgetSearch::new(program, bytes, target, &rest)?;
    let whole = search.whole();
    if whole.plan.peak() <= bytes {
        return Ok(search.finished(whole));
    }
    let found = match search.once(bytes)? {
        None => search.deeper(bytes)?,
        found => found,
    };
    if let Some(away) = search.away(bytes, found.as_ref())? {
        return Ok(search.finished_away(away));
    }
    match found {
        Some(found) => Ok(search.finished(found)),
        None => Err(search.refused()),
    }
}

/// A program that was tried.
#[derive(Clone)]
struct Tried {
    program: Program,
    plan: Plan,
    /// The recomputed work, and the bytes.
    again: u64,
    recomputed: usize,
    cuts: usize,
}

struct BudgetSearch<'a> {
    base: Program,
    target: Target,
    rest: &'a Pipeline<'a>,
    budget: usize,
    /// The work without a budget.
    work: u64,
    /// The plan without a budget.
    unbudgeted: Plan,
    /// The plan with the lowest peak, of those that are tried for any budget: so a budget of that
    /// size is met.
    least: Plan,
    /// The same of those whose values wait on the host.
    least_away: Option<Plan>,
    /// Programs that were cut several times, and take more than the budget.
    too_large: Vec<Tried>,
}

/// Steps of the binary search for the limit.
const PROBES: usize = 9;
/// Most cuts in a row without improvement.
const MAX_CUTS_IN_VAIN: usize = 6;
/// Most recomputed work, as a multiple of that of the program.
const MAX_RECOMPUTED: u64 = 8;
/// Targets shrink by this factor, at most so often, and so often without improvement.
const STEP: f64 = 0.75;
const STEPS: usize = 8;
const IDLE: usize = 2;

impl<'a> BudgetSearch<'a> {
    fn new(
        program: &Program,
        budget: usize,
        target: Target,
        rest: &'a Pipeline<'a>,
    ) -> Result<BudgetSearch<'a>> {
        // Cheap values are recomputed in any case.
        let base = dead_code(&remat_where(program, target.recompute));
        let least = plan(&rest.run(&base)?, target);
        let (work, unbudgeted) = (work(&base), least.clone());
        Ok(BudgetSearch {
            work,
            base,
            target,
            rest,
            budget,
            unbudgeted,
            least,
            least_away: None,
            too_large: Vec::new(),
        })
    }

    /// The program as it is.
    fn whole(&self) -> Tried {
        let (program, plan) = (self.base.clone(), self.unbudgeted.clone());
        Tried { program, plan, again: 0, recomputed: 0, cuts: 0 }
    }

    fn planned(&self, program: &Program) -> Result<Plan> {
        Ok(plan(&self.rest.run(program)?, self.target))
    }

    /// Remembers the lowest peak.
    fn note(&mut self, plan: &Plan) {
        if plan.peak() < self.least.peak() {
            self.least = plan.clone();
        }
    }

    /// Keeps these roots, recomputes the others, and plans the result.
    fn tried(&self, liveness: &Liveness, moment: usize, kept: &[bool]) -> Result<Tried> {
        let again = recompute(liveness, moment, kept);
        let recomputed = again.roots.iter().map(|v| liveness.bytes[v.index()]).sum();
        let program = dead_code(&again.program);
        let plan = self.planned(&program)?;
        Ok(Tried { program, plan, again: again.work, recomputed, cuts: 1 })
    }

    /// Cuts the program at its peak, once.
    fn once(&mut self, bytes: usize) -> Result<Option<Tried>> {
        let base = self.base.clone();
        let liveness = Liveness::of(&base);
        let moment = worst(&liveness);
        let cuts = Cuts::new(&liveness, moment, true);
        // A higher limit means less recomputation and more memory, nearly always.
        let least = cuts.least();
        let (mut low, mut high) = (least, cuts.all());
        let mut best: Option<(Tried, Vec<bool>)> = None;
        // First what the budget seems to allow. If that fails, the lowest, to know whether any
        // fits; then a binary search.
        let mut limit = high.saturating_sub(self.unbudgeted.peak() - bytes).max(low);
        for _ in 0..PROBES {
            let Some(kept) = cuts.choose(limit) else { break };
            let found = self.tried(&liveness, moment, &kept)?;
            if limit == least {
                self.note(&found.plan);
            }
            if found.plan.peak() <= bytes {
                low = limit;
                if best.as_ref().is_none_or(|(best, _)| found.again < best.again) {
                    best = Some((found, kept));
                }
            } else {
                high = limit;
            }
            limit = match best {
                None if limit == least => break,
                None => least,
                Some(_) if high - low <= high / 256 => break,
                Some(_) => low + (high - low) / 2,
            };
        }
        let Some((mut best, kept)) = best else { return Ok(None) };
        self.keep_more(&liveness, moment, &mut best, kept, bytes)?;
        // The path is computed from the limit, not from the plan: sometimes the lowest limit saves
        // more.
        if let Some(kept) = cuts.choose(least) {
            self.keep_more(&liveness, moment, &mut best, kept, bytes)?;
        }
        Ok(Some(best))
    }

    /// Keeps more values, those that save most work per byte, as many as fit.
    fn keep_more(
        &self,
        liveness: &Liveness,
        moment: usize,
        best: &mut Tried,
        kept: Vec<bool>,
        bytes: usize,
    ) -> Result<()> {
        let again = recompute(liveness, moment, &kept);
        let mut order: Vec<(f64, usize)> = again
            .roots
            .iter()
            .filter(|v| liveness.readers[v.index()].last().is_some_and(|&e| e as usize >= moment))
            .filter_map(|v| {
                let work = liveness.work[liveness.made[v.index()]?];
                Some((work as f64 / liveness.bytes[v.index()].max(1) as f64, v.index()))
            })
            .collect();
        // Among equals the later ones: they are needed first.
        order.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
        let (mut low, mut high) = (0, order.len());
        while low < high {
            let count = (low + high).div_ceil(2);
            let mut more = kept.clone();
            order[..count].iter().for_each(|&(_, v)| more[v] = true);
            let found = self.tried(liveness, moment, &more)?;
            if found.plan.peak() <= bytes {
                low = count;
                if found.again < best.again {
                    *best = found;
                }
            } else {
                high = count - 1;
            }
        }
        Ok(())
    }

    /// Cuts the program, and the result again, until its peak is low enough.
    fn deeper(&mut self, bytes: usize) -> Result<Option<Tried>> {
        let start = {
            let liveness = Liveness::of(&self.base);
            Cuts::new(&liveness, worst(&liveness), false).least() as f64
        };
        // Down in steps that do not depend on the budget, so that the lowest peak named in an error
        // can be met as a budget.
        let flat = |search: &BudgetSearch, step: f64| {
            search.flattened(search.whole(), (start * STEP.powf(step)) as usize, bytes)
        };
        let mut in_vain = 0;
        for step in 1..=STEPS {
            let found = flat(self, step as f64)?;
            if found.plan.peak() <= bytes {
                // Half of the last step may be enough.
                let less = flat(self, step as f64 - 0.5)?;
                let better = less.plan.peak() <= bytes && less.again < found.again;
                return Ok(Some(if better { less } else { found }));
            }
            in_vain = if found.plan.peak() < self.least.peak() { 0 } else { in_vain + 1 };
            self.note(&found.plan);
            self.too_large.push(found);
            if in_vain == IDLE {
                break;
            }
        }
        Ok(None)
    }

    /// Cuts a program at its peak repeatedly, until it fits, no more than `target` bytes cross any
    /// moment, or it does not help. Returns the one with the lowest peak.
    fn flattened(&self, from: Tried, target: usize, bytes: usize) -> Result<Tried> {
        let (mut now, mut best, mut in_vain) = (from.clone(), from, 0);
        while best.plan.peak() > bytes && in_vain < MAX_CUTS_IN_VAIN {
            let Some(next) = self.cut_again(&now, target)? else { break };
            now = next;
            in_vain += 1;
            if now.plan.peak() < best.plan.peak() {
                (best, in_vain) = (now.clone(), 0);
            }
        }
        Ok(best)
    }

    /// Cuts a program once more, at its peak; `None` if that would hardly lower it, or cost too
    /// much.
    fn cut_again(&self, now: &Tried, target: usize) -> Result<Option<Tried>> {
        let liveness = Liveness::of(&now.program);
        let moment = worst(&liveness);
        let cuts = Cuts::new(&liveness, moment, false);
        let limit = cuts.least().max(target);
        if limit > cuts.all() - cuts.all() / 32 {
            return Ok(None);
        }
        let Some(kept) = cuts.choose(limit) else { return Ok(None) };
        let mut next = self.tried(&liveness, moment, &kept)?;
        next.again += now.again;
        next.recomputed += now.recomputed;
        next.cuts += now.cuts;
        Ok((next.again <= MAX_RECOMPUTED * self.work).then_some(next))
    }

    fn finished(&self, found: Tried) -> Budgeted {
        let report = self.report(&found, &found.program);
        Budgeted { program: found.program, report, offloaded: Vec::new() }
    }

    fn finished_away(&self, Away { tried, offloaded }: Away) -> Budgeted {
        let report = BudgetReport {
            offloaded: offloaded.bytes(),
            host: offloaded.plan.host,
            waits: offloaded.waits,
            ..self.report(&tried, &offloaded.program)
        };
        Budgeted { program: tried.program, report, offloaded: offloaded.values }
    }

    fn report(&self, found: &Tried, kept_in: &Program) -> BudgetReport {
        let liveness = Liveness::of(kept_in);
        BudgetReport {
            budget: self.budget,
            peak_without: self.unbudgeted.peak(),
            peak: found.plan.peak(),
            kept: liveness.alive().into_iter().max().unwrap_or(0),
            recomputed: found.recomputed,
            work: self.work,
            again: found.again,
            cuts: found.cuts,
            offloaded: 0,
            host: 0,
            waits: 0,
        }
    }

    fn refused(&self) -> Error {
        let away = self.least_away.as_ref().filter(|away| away.peak() < self.least.peak());
        let (least, how) = match away {
            Some(away) => (away, "without recomputation and copies to the host"),
            None => (&self.least, "without recomputation"),
        };
        let message = format!(
            "{} bytes are not enough: it takes at least {}, and {} {how}",
            self.budget,
            least.peak(),
            self.unbudgeted.peak()
        );
        let mut error = Error::new(ErrorKind::Memory, "memory_budget", message);
        for (at, bytes) in least.by_place().into_iter().take(5) {
            let place = at.map_or("?".to_string(), |at| at.to_string());
            error = error.detail(format!("{bytes:>12}  {place}"));
        }
        error.hint("these values are live at the peak, by line; smaller batches take less")
    }
}

/// The moment across which most is kept.
fn worst(liveness: &Liveness) -> usize {
    let alive = liveness.alive();
    let most = alive.iter().copied().max().unwrap_or(0);
    alive.iter().position(|&bytes| bytes == most).unwrap_or(0)
}
