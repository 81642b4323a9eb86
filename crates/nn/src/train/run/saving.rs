//! How a run is saved and resumed: by worker 0 for all, or by each worker its part.

use super::super::spread::CheckpointContents;
use super::{BEST, Batches, OP, TrainingRun};
use crate::Module;
use crate::state::{Checkpoint, Checkpoints, Record, json_of, number_in};
use crate::train::EarlyStop;
use pullback::{Error, Result};
use serde_json::{Map, Value, json};
use std::path::Path;

impl<'a, M: Module, B: Batches> TrainingRun<'_, 'a, M, B> {
    /// Resumes from the newest valid checkpoint, if there is one.
    pub fn resume(&mut self) -> Result<()> {
        let (Some((_, checkpoints)), true) = (&self.trainer.checkpoints, self.trainer.resume)
        else {
            return Ok(());
        };
        let checkpoints = checkpoints.clone();
        if self.trainer.spread.is_some() {
            return self.resume_spread(&checkpoints);
        }
        let resumed = self.resume_whole(&checkpoints);
        self.workers.together(resumed)
    }

    fn resume_whole(&mut self, checkpoints: &Checkpoints) -> Result<()> {
        let Some(found) = checkpoints.latest()? else { return Ok(()) };
        let (saved, passed_over) = (found.checkpoint, found.passed_over);
        let mut groups = self.trainer.states.clone();
        if saved.has_tensors(BEST) {
            let best = self.copied_weights();
            groups.push((BEST.to_string(), best.clone()));
            self.best = Some(best);
        }
        // Where something does not fit, nothing outside of this run is changed: tensors are written
        // last.
        let tensors = saved.checked(self.trainer.model, self.trainer.optimizer, &groups)?;
        self.go_to(&saved.record, saved.folder())?;
        tensors.write()?;
        self.resumed(&saved.record, passed_over)
    }

    /// Resumes a run of which each worker saved its part.
    fn resume_spread(&mut self, checkpoints: &Checkpoints) -> Result<()> {
        let Some(spread) = self.trainer.spread.take() else { return Ok(()) };
        let (workers, target) = (self.workers.clone(), self.saved());
        let mut best = None;
        let resumed = spread.resume(&target, checkpoints, &workers, |saved, has_best| {
            best = has_best.then(|| self.copied_weights());
            self.go_to(&saved.record, saved.folder())?;
            Ok(best.clone())
        });
        self.trainer.spread = Some(spread);
        let Some((record, passed_over)) = resumed? else { return Ok(()) };
        self.best = best;
        self.resumed(&record, passed_over)
    }

    /// Takes the place, the data and the schedule to where a checkpoint was saved.
    fn go_to(&mut self, record: &Record, folder: &Path) -> Result<()> {
        let wrong = |what: &str| {
            Error::argument(OP, format!("{} cannot be resumed from: {what}", folder.display()))
        };
        (self.place.step, self.place.epoch) = (record.step, record.epoch);
        let latest = self.place.restore(&record.run["place"]).and_then(|()| {
            record.run["latest"]
                .as_object()?
                .iter()
                .map(|(k, v)| Some((k, number_in(v)?)))
                .collect()
        });
        let latest: Vec<(&String, f64)> =
            latest.ok_or_else(|| wrong("it is not the state of a training loop"))?;
        latest.into_iter().for_each(|(name, value)| self.latest.set(name, value));
        self.place.saved = Some(record.step);
        if let Some(stop) = &mut self.trainer.early_stop {
            stop.restore_state(&record.run["early_stop"])?;
        }
        self.batches.go_to(&record.data).map_err(|e| wrong("its data").because(e))?;
        if let Some((_, schedule)) = &mut self.trainer.schedule
            && let Err(error) = schedule.go_to(&record.schedule)
        {
            self.batches.go_to(&self.position)?;
            return Err(wrong("its schedule").because(error));
        }
        Ok(())
    }

    /// After the tensors of a checkpoint were written.
    fn resumed(&mut self, record: &Record, passed_over: Vec<String>) -> Result<()> {
        // Learning rates are the optimiser's tensors; a schedule that was changed since overwrites
        // them.
        if let Some((_, schedule)) = &mut self.trainer.schedule {
            schedule.go_to(&record.schedule)?;
        }
        self.position = self.batches.position();
        self.notes = passed_over;
        Ok(())
    }

    /// What checkpoints hold, besides the weights of the best step.
    fn saved(&self) -> CheckpointContents<'a, M> {
        let trainer = &self.trainer;
        let (model, optimizer) = (trainer.model, trainer.optimizer);
        CheckpointContents { model, optimizer, states: trainer.states.clone() }
    }

    /// Saves a checkpoint, if this step has none.
    pub fn save(&mut self) -> Result<()> {
        let Some((_, checkpoints)) = &self.trainer.checkpoints else { return Ok(()) };
        if self.place.saved == Some(self.place.step) {
            return Ok(());
        }
        self.workers.share_buffers(self.trainer.model)?;
        if let Some(spread) = &self.trainer.spread {
            let (saved, best) = (self.saved(), self.best.as_ref());
            spread.save(&saved, checkpoints, best, self.record(), &self.workers)?;
        } else {
            let mut state = self.trainer.model.named_parameters();
            state.extend(self.trainer.optimizer.named_state());
            self.workers.same_state(state)?;
            let saved = self.write(checkpoints);
            self.workers.together(saved)?;
        }
        self.place.saved = Some(self.place.step);
        Ok(())
    }

    /// Everything but the tensors.
    fn record(&self) -> Record {
        let trainer = &self.trainer;
        let early_stop = trainer.early_stop.as_ref().map(EarlyStop::state);
        let latest = self.latest.iter().map(|(name, value)| (name.to_string(), json_of(value)));
        let latest: Map<String, Value> = latest.collect();
        let schedule = trainer.schedule.as_ref().map(|(_, schedule)| schedule.state());
        Record {
            step: self.place.step,
            epoch: self.place.epoch,
            metrics: self.measured.iter().map(|(name, x)| (name.to_string(), x)).collect(),
            schedule: schedule.unwrap_or_default(),
            data: self.position.clone(),
            config: trainer.config.clone(),
            run: json!({
                "place": self.place.state(self.seconds()),
                "early_stop": early_stop,
                "latest": latest,
            }),
        }
    }

    /// Writes a checkpoint, on the worker that does.
    fn write(&self, checkpoints: &Checkpoints) -> Result<()> {
        if !self.workers.is_writer() {
            return Ok(());
        }
        let trainer = &self.trainer;
        let mut checkpoint = Checkpoint::of(trainer.model).optimizer(trainer.optimizer);
        checkpoint.record = self.record();
        for (group, named) in &trainer.states {
            checkpoint = checkpoint.tensors(group, named.clone());
        }
        if let Some(best) = &self.best {
            checkpoint = checkpoint.tensors(BEST, best.clone());
        }
        checkpoints.save(&checkpoint).map(drop)
    }
}
