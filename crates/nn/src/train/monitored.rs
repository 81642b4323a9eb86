//! Metrics that a run monitors by name: a name that nothing measures is an error, as it would
//! silently never stop or save.

use super::trainer::Trainer;
use crate::Module;
use pullback::Error;

/// The monitored metrics, with what monitors them.
fn monitored_metrics<'t, M: Module>(trainer: &'t Trainer<'_, M>) -> Vec<(&'static str, &'t str)> {
    let stop = trainer.early_stop.as_ref().map(|stop| ("EarlyStop", stop.metric()));
    let best = trainer.checkpoints.as_ref().and_then(|(_, checkpoints)| checkpoints.best_metric());
    let schedule = trainer.schedule.as_ref().and_then(|(_, schedule)| schedule.metric());
    [stop, best.map(|m| ("Checkpoints::keep_best", m)), schedule.map(|m| ("the schedule", m))]
        .into_iter()
        .flatten()
        .collect()
}

/// The error about the first monitored metric that is not among the known ones.
pub(super) fn missing<M: Module>(trainer: &Trainer<'_, M>, known: &[String]) -> Option<Error> {
    let (who, metric) =
        monitored_metrics(trainer).into_iter().find(|(_, m)| !known.iter().any(|k| k == m))?;
    let there = match known.is_empty() {
        true => "nothing was measured".to_string(),
        false => format!("there are {}", known.join(", ")),
    };
    let message = format!("{who} monitors `{metric}`, which nothing measures; {there}");
    Some(Error::argument("train", message))
}
