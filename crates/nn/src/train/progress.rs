//! A bar on the terminal.

use super::metrics::Metrics;
use super::{Callback, LoopControl, Outcome, TrainState};
use indicatif::{ProgressDrawTarget, ProgressStyle};
use pullback::Result;
use std::io::{IsTerminal as _, Write};

/// A progress bar with steps per second, the time left, and the metrics. If standard error is not a
/// terminal it prints nothing, or a line every so often with the metrics since the last one.
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
    /// A bar on the standard error, if that is a terminal.
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

    /// Prints a line to standard error every `steps` steps if that is not a terminal.
    #[must_use]
    pub fn or_lines(self, steps: u64) -> ProgressBar {
        match self.shown {
            true => self,
            false => self.lines_to(steps, std::io::stderr()),
        }
    }

    /// Writes a line every `steps` steps to something else, and shows no bar.
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
