//! Recomputes what does not fit into a number of bytes.
//!
//! # The idea
//! A training step goes through its layers forwards and then backwards; at the turn, everything that the way back will read is alive. Much of that can be
//! made again from a few values that are kept. This pass decides which are kept, so that the whole program stays within a budget, for the least
//! work done twice.
//!
//! 1. The moment when most is alive cuts the program in two. What is made before it and read after it is what the choice is about (`lives.rs`).
//! 2. The part before is cut into segments; what crosses a cut is kept, the rest of a segment is made again when the part after it first needs it. For a
//!    limit on the bytes of boundaries and one segment, a shortest path finds the cuts that cost least (`cuts.rs`).
//! 3. The program is rewritten (`again.rs`), and all passes that remain run on it, memory planning too: the limit is searched so that the *planned* peak, what
//!    the compiled program will really take, is within the budget. With what is left, values are kept again that save most work for a byte.
//! 4. If no limit does, the program made last is cut again where most is alive now: what was made again is made again once more, from fewer kept values. So the
//!    memory of a chain of n can go down towards log n, at the price of work that is done several times.
//!
//! # Promises
//! The same bits in every result: equations are repeated, never changed, and random numbers are functions of their keys. (Fusion may group sums
//! otherwise, as it always may.) The planned peak is not above the budget, or there is an error that names the least peak that was found. If the
//! program fits as it is, nothing changes. Deterministic. Programs inside control flow are not looked into; a loop is made again as one.

mod again;
mod cuts;
mod lives;
mod report;
#[cfg(test)]
mod tests;
mod work;

pub use report::BudgetReport;
pub use work::work;

use super::plan::{Plan, plan};
use super::{Pipeline, dead_code, remat};
use crate::{Error, ErrorKind, Program, Result};
use again::made_again;
use cuts::Cuts;
use lives::Lives;

/// A program within a budget. See the head of the module.
#[derive(Clone, Debug)]
pub struct Budgeted {
    /// The program, before the passes that remain.
    pub program: Program,
    /// What was done to it.
    pub report: BudgetReport,
}

/// Recomputes what does not fit into so many bytes, before the passes of [`Pipeline::after_budget`].
///
/// ```
/// use pullback_ir::{Binary, Cumulation, DType, Op, Program, Spec};
/// use pullback_ir::pass::{Pipeline, budget, plan::plan};
/// // A way there, and a way back that reads all that was on the way.
/// let mut program = Program::default();
/// let mut x = program.input(Spec::new(DType::F32, [1024].as_slice()));
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
/// let fits = budget(&program, 10 * 4096)?;
/// let compiled = Pipeline::after_budget().run(&fits.program)?;
/// assert!(plan(&compiled).peak() <= 10 * 4096 && plan(&program).peak() > 16 * 4096);
/// assert!(fits.report.again > 0);
/// let error = budget(&program, 4096).unwrap_err().to_string();
/// assert!(error.contains("4096 bytes are not enough: it takes at least"), "{error}");
/// # Ok::<(), pullback_ir::Error>(())
/// ```
///
/// # Errors
/// If it cannot be done: names the least peak that was found, and what is alive then.
pub fn budget(program: &Program, bytes: usize) -> Result<Budgeted> {
    let rest = Pipeline::after_budget().verified(false);
    let mut search = Search::new(program, bytes, &rest)?;
    let whole = search.whole();
    if whole.plan.peak() <= bytes {
        return Ok(search.finished(whole));
    }
    if let Some(found) = search.once(bytes)? {
        return Ok(search.finished(found));
    }
    match search.deeper(bytes)? {
        Some(found) => Ok(search.finished(found)),
        None => Err(search.refused()),
    }
}

/// A program that was tried.
struct Tried {
    program: Program,
    plan: Plan,
    /// The work that is done again, and the bytes.
    again: u64,
    recomputed: usize,
    cuts: usize,
}

struct Search<'a> {
    base: Program,
    rest: &'a Pipeline<'a>,
    budget: usize,
    /// The plan without a budget.
    as_it_is: Plan,
    /// The plan with the lowest peak, of those that are tried whatever the budget is: so a budget of as much is met.
    least: Plan,
}

/// How often the limit is halved in search of the best one.
const PROBES: usize = 9;
/// How often a program is cut at most.
const DEPTH: usize = 128;
/// Targets become smaller by this factor, so often.
const STEP: f64 = 0.8;
const STEPS: f64 = 12.0;

impl<'a> Search<'a> {
    fn new(program: &Program, budget: usize, rest: &'a Pipeline<'a>) -> Result<Search<'a>> {
        // What is cheap is recomputed in any case, and need not be thought about.
        let base = dead_code(&remat(program));
        let least = plan(&rest.run(&base)?);
        Ok(Search { base, rest, budget, as_it_is: least.clone(), least })
    }

    /// The program as it is.
    fn whole(&self) -> Tried {
        let (program, plan) = (self.base.clone(), self.as_it_is.clone());
        Tried { program, plan, again: 0, recomputed: 0, cuts: 0 }
    }

    fn planned(&self, program: &Program) -> Result<Plan> {
        Ok(plan(&self.rest.run(program)?))
    }

    /// Remembers the lowest peak.
    fn note(&mut self, plan: &Plan) {
        if plan.peak() < self.least.peak() {
            self.least = plan.clone();
        }
    }

    /// Keeps these roots, makes the others again, and looks what comes of it.
    fn tried(&self, lives: &Lives, moment: usize, kept: &[bool]) -> Result<Tried> {
        let again = made_again(lives, moment, kept);
        let recomputed = again.roots.iter().map(|v| lives.bytes[v.index()]).sum();
        let program = dead_code(&again.program);
        let plan = self.planned(&program)?;
        Ok(Tried { program, plan, again: again.work, recomputed, cuts: 1 })
    }

    /// Cuts the program where most is alive, once.
    fn once(&mut self, bytes: usize) -> Result<Option<Tried>> {
        let base = self.base.clone();
        let lives = Lives::of(&base);
        let moment = worst(&lives);
        let cuts = Cuts::new(&lives, moment, true);
        // The higher the limit, the less is done again, and the more memory is taken: nearly always.
        let least = cuts.least();
        let (mut low, mut high) = (least, cuts.all());
        let mut best: Option<(Tried, Vec<bool>)> = None;
        // First what the budget seems to allow. If that does not do, the least, to know whether anything does; then halves.
        let mut limit = high.saturating_sub(self.as_it_is.peak() - bytes).max(low);
        for _ in 0..PROBES {
            let Some(kept) = cuts.choose(limit) else { break };
            let found = self.tried(&lives, moment, &kept)?;
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
        self.keep_more(&lives, moment, &mut best, kept, bytes)?;
        Ok(Some(best))
    }

    /// Keeps values again that save most work for a byte, as many as fit.
    fn keep_more(
        &self,
        lives: &Lives,
        moment: usize,
        best: &mut Tried,
        kept: Vec<bool>,
        bytes: usize,
    ) -> Result<()> {
        let again = made_again(lives, moment, &kept);
        let mut order: Vec<(f64, usize)> = again
            .roots
            .iter()
            .filter(|v| lives.readers[v.index()].last().is_some_and(|&e| e as usize >= moment))
            .filter_map(|v| {
                let work = lives.work[lives.made[v.index()]?];
                Some((work as f64 / lives.bytes[v.index()].max(1) as f64, v.index()))
            })
            .collect();
        // Of equals the later ones: they are needed first.
        order.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
        let (mut low, mut high) = (0, order.len());
        while low < high {
            let count = (low + high).div_ceil(2);
            let mut more = kept.clone();
            order[..count].iter().for_each(|&(_, v)| more[v] = true);
            let found = self.tried(lives, moment, &more)?;
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

    /// Cuts the program, and what comes of it, until it is flat enough.
    fn deeper(&mut self, bytes: usize) -> Result<Option<Tried>> {
        let start = {
            let lives = Lives::of(&self.base);
            Cuts::new(&lives, worst(&lives), false).least() as f64
        };
        // Down in steps that do not depend on the budget, so that what is called the least is the least.
        let (mut now, mut step) = (self.whole(), 0.0);
        while now.plan.peak() > bytes {
            if step == STEPS {
                return Ok(None);
            }
            step += 1.0;
            now = self.flattened(now, (start * STEP.powf(step)) as usize)?;
            self.note(&now.plan);
        }
        // In one go it may cost less, and perhaps not all of it is needed.
        for back in [0.0, 0.5, 0.25, 0.125] {
            let target = (start * STEP.powf(step - back)) as usize;
            let found = self.flattened(self.whole(), target)?;
            if found.plan.peak() <= bytes {
                step -= back;
                if found.again < now.again {
                    now = found;
                }
            }
        }
        Ok(Some(now))
    }

    /// Cuts a program at its worst moment until no more than `target` bytes cross any, or nothing helps.
    fn flattened(&self, from: Tried, target: usize) -> Result<Tried> {
        let Tried { mut program, mut plan, mut again, mut recomputed, mut cuts } = from;
        let before = cuts;
        while cuts < DEPTH {
            let lives = Lives::of(&program);
            let moment = worst(&lives);
            let here = Cuts::new(&lives, moment, false);
            let limit = here.least().max(target);
            // Not for a slope that hardly becomes flatter.
            if limit > here.all() - here.all() / 32 {
                break;
            }
            let Some(kept) = here.choose(limit) else { break };
            let made = made_again(&lives, moment, &kept);
            again += made.work;
            recomputed += made.roots.iter().map(|v| lives.bytes[v.index()]).sum::<usize>();
            cuts += 1;
            program = dead_code(&made.program);
        }
        if cuts > before {
            plan = self.planned(&program)?;
        }
        Ok(Tried { program, plan, again, recomputed, cuts })
    }

    fn finished(&self, found: Tried) -> Budgeted {
        let lives = Lives::of(&found.program);
        let report = BudgetReport {
            budget: self.budget,
            peak_without: self.as_it_is.peak(),
            peak: found.plan.peak(),
            kept: lives.alive().into_iter().max().unwrap_or(0),
            recomputed: found.recomputed,
            work: work(&self.base),
            again: found.again,
            cuts: found.cuts,
        };
        Budgeted { program: found.program, report }
    }

    fn refused(&self) -> Error {
        let message = format!(
            "{} bytes are not enough: it takes at least {}, and {} without recomputation",
            self.budget,
            self.least.peak(),
            self.as_it_is.peak()
        );
        let mut error = Error::new(ErrorKind::Memory, "memory_budget", message);
        for (at, bytes) in self.least.by_place().into_iter().take(5) {
            let place = at.map_or("?".to_string(), |at| at.to_string());
            error = error.detail(format!("{bytes:>12}  {place}"));
        }
        error.hint("these are alive then, by line; smaller batches take less")
    }
}

/// The moment across which most is kept.
fn worst(lives: &Lives) -> usize {
    let alive = lives.alive();
    let most = alive.iter().copied().max().unwrap_or(0);
    alive.iter().position(|&bytes| bytes == most).unwrap_or(0)
}
