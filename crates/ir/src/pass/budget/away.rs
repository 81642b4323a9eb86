//! Budgets on targets whose values can wait on the host ([`Target::host`]).
//!
//! Between a program that computes all again that does not fit and one that copies it to the host
//! are those that compute what is cheap again and copy the rest. A lower limit of what is kept
//! ([`Cuts`]) computes more again, the cheapest for its bytes first; what is then still too much
//! goes to the host ([`offloaded`]). Some limits are tried, and the program is chosen that takes
//! the least time, waits for copies included. Where recomputation alone is as fast, nothing is
//! moved.
//!
//! [`Target::host`]: super::super::Target::host

use super::super::{Offloaded, dead_code, duration, offloaded};
use super::cuts::Cuts;
use super::liveness::Liveness;
use super::recompute::recompute;
use super::{BudgetSearch, Tried, worst};
use crate::{Program, Result};

/// How many limits are tried, from the least on. They do not depend on the budget, so that the
/// lowest peak named in an error can be met as a budget.
const LIMITS: usize = 8;
/// How often the best of them is refined.
const REFINED: usize = 3;

/// A program of which some is computed again and some waits on the host.
pub(super) struct Away {
    pub(super) tried: Tried,
    pub(super) offloaded: Offloaded,
}

impl Away {
    /// In less time, or in the same with fewer copies.
    fn is_better_than(&self, other: &Away) -> bool {
        let cost = |of: &Away| (of.offloaded.time, of.offloaded.bytes());
        cost(self) < cost(other)
    }
}

impl BudgetSearch<'_> {
    /// The fastest program within the budget that uses the host; `None` if there is none, or what
    /// was found without is as fast.
    pub(super) fn away(&mut self, bytes: usize, without: Option<&Tried>) -> Result<Option<Away>> {
        let Some(link) = self.target.host else { return Ok(None) };
        let base = self.base.clone();
        let liveness = Liveness::of(&base);
        let moment = worst(&liveness);
        let cuts = Cuts::new(&liveness, moment, true);
        let (least, all) = (cuts.least(), cuts.all());
        let mut step = all.saturating_sub(least) / LIMITS;
        let try_limit = |search: &mut Self, limit: usize| -> Result<Option<Away>> {
            let Some(kept) = cuts.choose(limit) else { return Ok(None) };
            let again = recompute(&liveness, moment, &kept);
            let recomputed = again.roots.iter().map(|v| liveness.bytes[v.index()]).sum();
            search.moved(dead_code(&again.program), (again.work, recomputed, 1), bytes)
        };
        let mut best = (self.moved(base.clone(), (0, 0, 0), bytes)?, all);
        let keep_better = |best: &mut (Option<Away>, usize), found: Option<Away>, limit: usize| {
            if let Some(found) = found
                && best.0.as_ref().is_none_or(|best| found.is_better_than(best))
            {
                *best = (Some(found), limit);
            }
        };
        for i in 0..LIMITS {
            let limit = least + i * step;
            let found = try_limit(self, limit)?;
            keep_better(&mut best, found, limit);
        }
        for _ in 0..REFINED {
            step /= 2;
            let middle = best.1;
            for limit in [middle.saturating_sub(step).max(least), (middle + step).min(all)] {
                if best.0.is_some() {
                    let found = try_limit(self, limit)?;
                    keep_better(&mut best, found, limit);
                }
            }
        }
        // Where one cut is not enough, those that were cut again.
        for tried in std::mem::take(&mut self.too_large) {
            let cost = (tried.again, tried.recomputed, tried.cuts);
            let found = self.moved(tried.program, cost, bytes)?;
            keep_better(&mut best, found, all);
        }
        let (Some(best), _) = best else { return Ok(None) };
        if let Some(without) = without {
            let alone = duration(&self.rest.run(&without.program)?, &link).0;
            return Ok((best.offloaded.time < alone).then_some(best));
        }
        Ok(Some(best))
    }

    /// What is too much of a program goes to the host; `None` if that is not enough. `cost`: the
    /// work that is done again in it, the bytes, and how often it was cut.
    fn moved(
        &mut self,
        program: Program,
        (again, recomputed, cuts): (u64, usize, usize),
        bytes: usize,
    ) -> Result<Option<Away>> {
        let offloaded = offloaded(&self.rest.run(&program)?, bytes, self.target);
        if offloaded.plan.peak() > bytes {
            if self.least_away.as_ref().is_none_or(|least| offloaded.plan.peak() < least.peak()) {
                self.least_away = Some(offloaded.plan);
            }
            return Ok(None);
        }
        let plan = offloaded.plan.clone();
        Ok(Some(Away { tried: Tried { program, plan, again, recomputed, cuts }, offloaded }))
    }
}
