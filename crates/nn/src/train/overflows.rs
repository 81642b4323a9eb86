//! Steps that a scaler skipped, and why.
//!
//! To know which op overflowed a step must be run a second time, op by op. That is done for the
//! first few that are skipped: most often they are those at the start, where the scale is still too
//! large. Of the others only the number is kept.

use super::trainer::Trainer;
use crate::Module;
use crate::precision::{GradScaler, Overflow};
use pullback::Result;

/// How many skipped steps are run again by default.
pub(super) const NAMED: u64 = 3;

/// Notes about them.
#[derive(Default)]
pub(super) struct Overflows {
    named: Vec<String>,
    others: u64,
    /// Why the last step was skipped, if known.
    pub latest: Option<Overflow>,
}

impl Overflows {
    /// Runs a step with its scaler: gives what it gave, and whether it was skipped.
    pub fn step<M: Module, R>(
        &mut self,
        trainer: &Trainer<'_, M>,
        scaler: &GradScaler,
        number: u64,
        step: impl Fn() -> Result<R>,
    ) -> Result<(R, bool)> {
        self.latest = None;
        if self.named.len() as u64 >= trainer.name_overflows {
            let before = scaler.skipped()?;
            let value = step().inspect_err(|_| scaler.forget())?;
            let skipped = scaler.skipped()? > before;
            self.others += u64::from(skipped);
            return Ok((value, skipped));
        }
        let kept = || {
            let all = trainer.states.iter().flat_map(|(_, named)| named);
            all.map(|(_, x)| x.clone()).collect()
        };
        let stepped = scaler.watched_with(trainer.model, trainer.optimizer, kept, step)?;
        self.latest = stepped.overflow;
        self.named.extend(self.latest.iter().map(|why| format!("step {number}: {why}")));
        Ok((stepped.value, self.latest.is_some()))
    }

    /// All of it as messages.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.named.clone();
        let how = match (self.others, notes.is_empty()) {
            (0, _) => return notes,
            (1, true) => "1 step was",
            (1, false) => "1 more step was",
            (n, true) => &format!("{n} steps were"),
            (n, false) => &format!("{n} more steps were"),
        };
        notes.push(format!(
            "{how} skipped because gradients were not finite, and not run again to find the op"
        ));
        notes
    }
}
