//! A bar on the terminal.

use super::metrics::Metrics;
use super::{Callback, LoopControl, Outcome, TrainState};
use indicatif::{ProgressDrawTarget, ProgressStyle};
use pullback::Result;
use std::io::{IsTerminal as _, Write};

/// A callback that shows a progress bar with steps per second, the time left, and the metrics. If
/// the standard error is not a terminal, it prints nothing, or with [`ProgressBar::or_lines`] a
/// line every so many steps.
pub struct ProgressBar {
    bar: indicatif::ProgressBar,
    shown: bool,
    lines: Option<(u64, Box<dyn Write>)>,
    /// What the bar shows: the newest value of everything.
    latest: Metrics,
    /// The metrics for the next line: those since the last one, so that an old evaluation is not
    /// shown as a new one.
    unsaid: Metrics,
}

impl Default for ProgressBar {
    fn default() -> ProgressBar {
        ProgressBar::new()
    }
}

impl ProgressBar {
    /// A progress bar on the standard error, if that is a terminal; otherwise nothing is shown.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
    /// # let model = [Tensor::from(0f32).requires_grad()];
    /// # let opt = Sgd { lr: 0.1, ..Sgd::default() }.over(model.clone())?;
    /// # let batches = vec![Tensor::from([1f32, 2.0])];
    /// # let step = |x: &Tensor| -> pullback::Result<Tensor> {
    /// #     opt.zero_grad();
    /// #     let loss = (x * &model[0] - x * 3.0).square().mean();
    /// #     loss.backward()?;
    /// #     opt.step()?;
    /// #     Ok(loss)
    /// # };
    /// use pullback_nn::train::{ProgressBar, Trainer};
    /// let trainer = Trainer::new(&model, &opt).epochs(3).callback(ProgressBar::new());
    /// assert_eq!(trainer.run(&batches, step)?.step, 3);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn new() -> ProgressBar {
        let shown = std::io::stderr().is_terminal();
        ProgressBar {
            bar: indicatif::ProgressBar::hidden(),
            shown,
            lines: None,
            latest: Metrics::new(),
            unsaid: Metrics::new(),
        }
    }

    /// Prints a line to the standard error every `steps` steps if that is not a terminal.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
    /// # let model = [Tensor::from(0f32).requires_grad()];
    /// # let opt = Sgd { lr: 0.1, ..Sgd::default() }.over(model.clone())?;
    /// # let batches = vec![Tensor::from([1f32, 2.0])];
    /// # let step = |x: &Tensor| -> pullback::Result<Tensor> {
    /// #     opt.zero_grad();
    /// #     let loss = (x * &model[0] - x * 3.0).square().mean();
    /// #     loss.backward()?;
    /// #     opt.step()?;
    /// #     Ok(loss)
    /// # };
    /// use pullback_nn::train::{ProgressBar, Trainer};
    /// let bar = ProgressBar::new().or_lines(100);
    /// let trainer = Trainer::new(&model, &opt).epochs(3).callback(bar);
    /// assert_eq!(trainer.run(&batches, step)?.step, 3);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn or_lines(self, steps: u64) -> ProgressBar {
        match self.shown {
            true => self,
            false => self.lines_to(steps, std::io::stderr()),
        }
    }

    /// Writes a line every `steps` steps (at least 1) to another writer, and shows no bar.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
    /// # let model = [Tensor::from(0f32).requires_grad()];
    /// # let opt = Sgd { lr: 0.1, ..Sgd::default() }.over(model.clone())?;
    /// # let batches = vec![Tensor::from([1f32, 2.0])];
    /// # let step = |x: &Tensor| -> pullback::Result<Tensor> {
    /// #     opt.zero_grad();
    /// #     let loss = (x * &model[0] - x * 3.0).square().mean();
    /// #     loss.backward()?;
    /// #     opt.step()?;
    /// #     Ok(loss)
    /// # };
    /// use pullback_nn::train::{ProgressBar, Trainer};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let path = folder.join("progress.txt");
    /// let bar = ProgressBar::new().lines_to(2, std::fs::File::create(&path).unwrap());
    /// Trainer::new(&model, &opt).steps(4).callback(bar).run(&batches, step)?;
    /// let text = std::fs::read_to_string(&path).unwrap();
    /// assert!(text.starts_with("step 2/4, "));
    /// assert_eq!(text.lines().count(), 3); // steps 2 and 4, and how it ended
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn lines_to(self, steps: u64, to: impl Write + 'static) -> ProgressBar {
        ProgressBar { shown: false, lines: Some((steps.max(1), Box::new(to))), ..self }
    }

    fn line(&mut self, now: &TrainState, text: &str) {
        if let Some((_, to)) = &mut self.lines {
            let of = now.last_step.map_or(String::new(), |last| format!("/{last}"));
            // A closed pipe does not end the run.
            let _ = writeln!(to, "step {}{of}, {:.1} s: {text}", now.step, now.seconds);
        }
    }
}

/// The style with and without a known end.
const KNOWN: &str = "{bar:28.cyan/blue} {pos}/{len}  {per_sec}  {eta} left  {wide_msg}";
const UNKNOWN: &str = "{spinner} {pos}  {per_sec}  {elapsed}  {wide_msg}";

impl Callback for ProgressBar {
    fn on_start(&mut self, now: &TrainState) -> Result<()> {
        self.bar =
            indicatif::ProgressBar::with_draw_target(now.last_step, ProgressDrawTarget::hidden());
        let template = if now.last_step.is_some() { KNOWN } else { UNKNOWN };
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style.progress_chars("━╸─"));
        }
        self.bar.set_position(now.step);
        // Steps before resuming do not count for the speed.
        self.bar.reset_eta();
        if self.shown {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        Ok(())
    }

    fn on_step(&mut self, now: &TrainState) -> Result<LoopControl> {
        if self.lines.is_some() {
            self.unsaid.extend("", now.metrics);
        }
        if self.shown {
            self.latest.extend("", now.metrics);
            self.bar.set_message(self.latest.to_string());
            self.bar.set_position(now.step);
        }
        let due = |steps: u64| now.step.is_multiple_of(steps) || now.last_step == Some(now.step);
        if self.lines.as_ref().is_some_and(|(steps, _)| due(*steps)) {
            let said = std::mem::take(&mut self.unsaid);
            self.line(now, &said.to_string());
        }
        Ok(LoopControl::Continue(()))
    }

    fn on_end(&mut self, now: &TrainState, outcome: &Outcome) -> Result<()> {
        self.bar.abandon();
        self.line(now, &outcome.ended.to_string());
        Ok(())
    }
}
