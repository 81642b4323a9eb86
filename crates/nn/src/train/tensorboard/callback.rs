//! The TensorBoard callback.

use super::EventWriter;
use crate::train::{Callback, LoopControl, TrainState};
use pullback::Result;
use std::path::PathBuf;

/// A callback that writes all metrics as scalars, and histograms of weights and gradients, for
/// TensorBoard.
pub struct TensorBoard {
    folder: PathBuf,
    scalars: u64,
    histograms: u64,
    events: Option<EventWriter>,
}

impl TensorBoard {
    /// Writes event files to this folder: scalars at every step, no histograms. If a file cannot be
    /// written, the run ends with an error.
    ///
    /// ```
    #[doc = include_str!("../example_run.txt")]
    /// use pullback_nn::train::{TensorBoard, Trainer};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let board = TensorBoard::new(folder);
    /// Trainer::new(&model, &opt).epochs(3).callback(board).run(&batches, step)?;
    /// assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> TensorBoard {
        TensorBoard { folder: folder.into(), scalars: 1, histograms: 0, events: None }
    }

    /// Writes the scalars of steps every `steps` steps; those of evaluations and epochs always.
    ///
    /// ```
    #[doc = include_str!("../example_run.txt")]
    /// use pullback_nn::train::{TensorBoard, Trainer};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let board = TensorBoard::new(folder).every(100);
    /// Trainer::new(&model, &opt).epochs(3).callback(board).run(&batches, step)?;
    /// assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn every(self, steps: u64) -> TensorBoard {
        TensorBoard { scalars: steps, ..self }
    }

    /// Writes histograms of all weights and gradients every `steps` steps; with 0, the default,
    /// none.
    ///
    /// ```
    #[doc = include_str!("../example_run.txt")]
    /// use pullback_nn::train::{TensorBoard, Trainer};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let board = TensorBoard::new(folder).histograms_every(2);
    /// Trainer::new(&model, &opt).epochs(3).callback(board).run(&batches, step)?;
    /// let file = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    /// let bytes = std::fs::read(file).unwrap();
    /// assert!(bytes.windows(10).any(|part| part == b"gradients/"));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn histograms_every(self, steps: u64) -> TensorBoard {
        TensorBoard { histograms: steps, ..self }
    }
}

impl Callback for TensorBoard {
    fn on_start(&mut self, now: &TrainState) -> Result<()> {
        let mut events = EventWriter::create(&self.folder)?;
        if now.step > 0 {
            events.restart(now.step + 1)?;
        }
        self.events = Some(events);
        Ok(())
    }

    fn on_step(&mut self, now: &TrainState) -> Result<LoopControl> {
        let Some(events) = &mut self.events else { return Ok(LoopControl::Continue(())) };
        for (name, value) in now.metrics.iter() {
            let (group, name) = match name.split_once('_') {
                Some(("val", name)) => ("val", name),
                Some(("epoch", name)) => ("epoch", name),
                _ => ("train", name),
            };
            if group != "train" || now.step.is_multiple_of(self.scalars.max(1)) {
                events.scalar(&format!("{group}/{name}"), now.step, value)?;
            }
        }
        if self.histograms > 0 && now.step.is_multiple_of(self.histograms) {
            for (name, x) in now.parameters {
                events.histogram(&format!("weights/{name}"), now.step, &x.to_f64_vec())?;
                if let Some(grad) = x.grad() {
                    events.histogram(&format!("gradients/{name}"), now.step, &grad.to_f64_vec())?;
                }
            }
        }
        Ok(LoopControl::Continue(()))
    }
}
