//! A bar on the terminal, and lines.

use super::metrics::Metrics;
use super::{Callback, LoopControl, Outcome, TrainState};
use indicatif::{ProgressDrawTarget, ProgressStyle};
use pullback::Result;
use std::io::{IsTerminal as _, Write};

/// A progress bar with the epoch, steps per second, the time left, and the metrics below it: the
/// loss first, then the latest results of the evaluation. Each epoch leaves a line above the bar,
/// and so does an evaluation in the middle of an epoch.
///
/// If standard error is not a terminal, it prints a line for each epoch, and with
/// [`ProgressBar::or_lines`] also a line every so often, each with the metrics since the last one.
pub struct ProgressBar {
    bar: indicatif::ProgressBar,
    /// Where the bar is drawn; taken when the run starts.
    target: Option<ProgressDrawTarget>,
    lines: Option<ProgressLines>,
    /// What the bar shows: the newest value of everything.
    latest: Metrics,
    /// The metrics for the next line: those since the last one, so that an old evaluation is not
    /// shown as a new one.
    since_last_line: Metrics,
    /// How many epochs were finished at the last step.
    epoch: u64,
    /// The step of the last line above the bar.
    printed_step: Option<u64>,
}

/// Lines instead of a bar.
struct ProgressLines {
    /// How many steps are between two of them; without it there is one for each epoch.
    steps: Option<u64>,
    to: Box<dyn Write>,
}

impl Default for ProgressBar {
    fn default() -> ProgressBar {
        ProgressBar::new()
    }
}

impl ProgressBar {
    /// A bar on the standard error if that is a terminal, or a line for each epoch.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback_nn::train::{ProgressBar, Trainer};
    /// let trainer = Trainer::new(&model, &opt).epochs(3).callback(ProgressBar::new());
    /// assert_eq!(trainer.run(&batches, step)?.step, 3);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn new() -> ProgressBar {
        let bar = ProgressBar::on(ProgressDrawTarget::stderr());
        match std::io::stderr().is_terminal() {
            true => bar,
            false => bar.with_lines(None, std::io::stderr()),
        }
    }

    fn on(target: ProgressDrawTarget) -> ProgressBar {
        ProgressBar {
            bar: indicatif::ProgressBar::hidden(),
            target: Some(target),
            lines: None,
            latest: Metrics::new(),
            since_last_line: Metrics::new(),
            epoch: 0,
            printed_step: None,
        }
    }

    fn with_lines(self, steps: Option<u64>, to: impl Write + 'static) -> ProgressBar {
        ProgressBar { target: None, lines: Some(ProgressLines { steps, to: Box::new(to) }), ..self }
    }

    /// Prints a line to standard error every `steps` steps too if that is not a terminal.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback_nn::train::{ProgressBar, Trainer};
    /// let bar = ProgressBar::new().or_lines(100);
    /// let trainer = Trainer::new(&model, &opt).epochs(3).callback(bar);
    /// assert_eq!(trainer.run(&batches, step)?.step, 3);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn or_lines(self, steps: u64) -> ProgressBar {
        match self.lines {
            None => self,
            Some(_) => self.lines_to(steps, std::io::stderr()),
        }
    }

    /// Writes a line every `steps` steps and for each epoch to something else, and shows no bar.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback_nn::train::{ProgressBar, Trainer};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let path = folder.join("progress.txt");
    /// let bar = ProgressBar::new().lines_to(2, std::fs::File::create(&path).unwrap());
    /// Trainer::new(&model, &opt).steps(4).callback(bar).run(&batches, step)?;
    /// let text = std::fs::read_to_string(&path).unwrap();
    /// assert!(text.contains("step 2/4, "));
    /// assert!(text.contains("epoch 4, step 4/4, "));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn lines_to(self, steps: u64, to: impl Write + 'static) -> ProgressBar {
        self.with_lines(Some(steps.max(1)), to)
    }

    fn line(&mut self, head: &str, text: &str) {
        if let Some(lines) = &mut self.lines {
            // A closed pipe does not end the run.
            let _ = writeln!(lines.to, "{head}: {text}");
        }
    }

    /// A line above the bar with the results of an epoch or an evaluation.
    fn print_above(&mut self, head: &str, now: &TrainState) {
        self.printed_step = Some(now.step);
        let names = now.metrics.iter().filter(|(name, _)| is_result(name));
        let results = names.fold(Metrics::new(), |all, (name, value)| all.with(name, value));
        let seconds = now.seconds;
        self.bar.println(format!("{head}, {seconds:.1} s: {results}"));
    }
}

/// The metrics without those that are for logs: of each worker (`waited_for_3`), and examples a
/// second where tokens say it. Tokens have a short name, so that a line is one line.
fn shown(metrics: &Metrics) -> Metrics {
    let has_tokens = metrics.get("tokens_per_second").is_some();
    let of_worker = |name: &str| {
        name.strip_prefix("waited_for_").is_some_and(|rank| rank.parse::<usize>().is_ok())
    };
    metrics.iter().fold(Metrics::new(), |all, (name, value)| match name {
        "examples_per_second" if has_tokens => all,
        "tokens_per_second" => all.with("tokens/s", value),
        _ if of_worker(name) => all,
        _ => all.with(name, value),
    })
}

/// Whether a metric is the result of an epoch or of an evaluation.
fn is_result(name: &str) -> bool {
    name.starts_with("epoch_") || name.starts_with("val_")
}

/// The step and the time, and the epoch if this step ended it.
fn head(now: &TrainState, ended: bool) -> String {
    let epoch = if ended { format!("epoch {}, ", now.epoch) } else { String::new() };
    let of = now.last_step.map_or(String::new(), |last| format!("/{last}"));
    format!("{epoch}step {}{of}, {:.1} s", now.step, now.seconds)
}

/// How wide the lines below the bar are at most: a terminal has 80 columns or more.
const COLUMNS: usize = 79;

/// The metrics in the order of their importance, in lines of at most [`COLUMNS`].
fn below_the_bar(metrics: &Metrics) -> String {
    let rank = |name: &str| match name {
        "loss" => 0,
        _ if name.starts_with("val_") => 1,
        _ if name.starts_with("epoch_") => 3,
        "lr" | "scale" | "examples_per_second" | "tokens/s" | "mfu" => 4,
        _ => 2,
    };
    let mut sorted: Vec<(&str, f64)> = metrics.iter().collect();
    sorted.sort_by_key(|(name, _)| rank(name));
    let (mut text, mut width) = (String::new(), 0);
    for (name, value) in sorted {
        let next = Metrics::new().with(name, value).to_string();
        let long = next.chars().count();
        if width > 0 {
            let fits = width + 2 + long < COLUMNS;
            text.push_str(if fits { ", " } else { ",\n" });
            width = if fits { width + 2 } else { 0 };
        }
        text.push_str(&next);
        width += long;
    }
    text
}

/// The style with and without a known end.
const KNOWN: &str = "{prefix}  {bar:24.cyan/blue} {pos}/{len}  {per_sec}  {eta} left\n{msg}";
const UNKNOWN: &str = "{prefix}  {spinner} {pos}  {per_sec}  {elapsed}\n{msg}";

impl Callback for ProgressBar {
    fn on_start(&mut self, now: &TrainState) -> Result<()> {
        self.epoch = now.epoch;
        self.bar =
            indicatif::ProgressBar::with_draw_target(now.last_step, ProgressDrawTarget::hidden());
        let template = if now.last_step.is_some() { KNOWN } else { UNKNOWN };
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style.progress_chars("━╸─"));
        }
        self.bar.set_prefix(format!("epoch {}", now.epoch + 1));
        self.bar.set_position(now.step);
        // Steps before resuming do not count for the speed.
        self.bar.reset_eta();
        if let Some(target) = self.target.take() {
            self.bar.set_draw_target(target);
        }
        Ok(())
    }

    fn on_step(&mut self, now: &TrainState) -> Result<LoopControl> {
        let ended = std::mem::replace(&mut self.epoch, now.epoch) < now.epoch;
        match &self.lines {
            Some(lines) => {
                self.since_last_line.extend("", &shown(now.metrics));
                let due = |n: u64| now.step.is_multiple_of(n) || now.last_step == Some(now.step);
                if ended || lines.steps.is_some_and(due) {
                    let metrics = std::mem::take(&mut self.since_last_line);
                    self.line(&head(now, ended), &metrics.to_string());
                }
            }
            None => {
                self.latest.extend("", &shown(now.metrics));
                self.bar.set_message(below_the_bar(&self.latest));
                self.bar.set_position(now.step);
            }
        }
        Ok(LoopControl::Continue(()))
    }

    fn on_epoch(&mut self, now: &TrainState) -> Result<LoopControl> {
        if self.lines.is_none() {
            self.print_above(&format!("epoch {}", now.epoch), now);
            // After the last epoch there is no next one.
            if now.last_step != Some(now.step) {
                self.bar.set_prefix(format!("epoch {}", now.epoch + 1));
            }
        }
        Ok(LoopControl::Continue(()))
    }

    fn on_eval(&mut self, now: &TrainState) -> Result<LoopControl> {
        if self.lines.is_none() && self.printed_step != Some(now.step) {
            self.print_above(&format!("step {}", now.step), now);
        }
        Ok(LoopControl::Continue(()))
    }

    fn on_end(&mut self, now: &TrainState, outcome: &Outcome) -> Result<()> {
        self.bar.abandon();
        self.line(&head(now, false), &outcome.ended.to_string());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Module;
    use crate::optim::{Sgd, UpdateRule};
    use crate::train::{Every, Trainer};
    use indicatif::TermLike;
    use pullback::{Tensor, Tree};
    use std::io;
    use std::sync::{Arc, Mutex};

    /// What is on a screen, and where its cursor is.
    #[derive(Debug, Default)]
    struct Shown {
        lines: Vec<Vec<char>>,
        row: usize,
        column: usize,
    }

    /// A terminal of 80 columns.
    #[derive(Clone, Debug, Default)]
    struct Screen(Arc<Mutex<Shown>>);

    impl Screen {
        fn put(&self, text: &str) {
            let mut held = self.0.lock().unwrap();
            let Shown { lines, row, column } = &mut *held;
            for c in text.chars() {
                // A line that is full goes on in the next one.
                if c == '\n' || *column == 80 {
                    (*row, *column) = (*row + 1, 0);
                }
                if c == '\r' {
                    *column = 0;
                }
                if !c.is_control() {
                    lines.resize(lines.len().max(*row + 1), Vec::new());
                    let line = &mut lines[*row];
                    line.resize(line.len().max(*column + 1), ' ');
                    line[*column] = c;
                    *column += 1;
                }
            }
        }

        fn lines(&self) -> Vec<String> {
            let held = self.0.lock().unwrap();
            let line = |line: &Vec<char>| line.iter().collect::<String>().trim_end().to_string();
            held.lines.iter().map(line).collect()
        }
    }

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            80
        }

        fn move_cursor_up(&self, n: usize) -> io::Result<()> {
            let mut held = self.0.lock().unwrap();
            held.row = held.row.saturating_sub(n);
            Ok(())
        }

        fn move_cursor_down(&self, n: usize) -> io::Result<()> {
            self.0.lock().unwrap().row += n;
            Ok(())
        }

        fn move_cursor_right(&self, n: usize) -> io::Result<()> {
            self.0.lock().unwrap().column += n;
            Ok(())
        }

        fn move_cursor_left(&self, n: usize) -> io::Result<()> {
            let mut held = self.0.lock().unwrap();
            held.column = held.column.saturating_sub(n);
            Ok(())
        }

        fn write_line(&self, s: &str) -> io::Result<()> {
            self.put(s);
            self.put("\n");
            Ok(())
        }

        fn write_str(&self, s: &str) -> io::Result<()> {
            self.put(s);
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            let mut held = self.0.lock().unwrap();
            let row = held.row;
            held.lines.get_mut(row).into_iter().for_each(Vec::clear);
            held.column = 0;
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[derive(Tree)]
    struct Model {
        weight: Tensor,
    }

    /// What is on the screen after a run of three epochs.
    fn after(evaluate: Every) -> Vec<String> {
        let screen = Screen::default();
        let target = ProgressDrawTarget::term_like(Box::new(screen.clone()));
        let model = Model { weight: Tensor::from([1.0]).requires_grad() };
        let optimizer = Sgd { lr: 0.125, ..Sgd::default() }.over(model.parameters()).unwrap();
        let outcome = Trainer::new(&model, &optimizer)
            .epochs(3)
            .evaluate(evaluate, |_: &Model| {
                Ok([("loss", 0.23456), ("accuracy", 0.97123), ("top_5_accuracy", 0.99876)])
            })
            .callback(ProgressBar::on(target))
            .run(&vec![0.12347; 4000], |&x: &f64| Ok([("loss", x), ("perplexity", x.exp())]));
        outcome.unwrap();
        screen.lines()
    }

    #[test]
    fn epochs_leave_lines_and_results_are_not_cut_off() {
        let lines = after(Every::Epochs(1));
        let text = lines.join("\n");
        let results = "val_loss 0.2346, val_accuracy 0.9712, val_top_5_accuracy 0.9988";
        // A long line goes on in the next row of the screen.
        let whole = lines.concat();
        for epoch in 1..=3 {
            let left: Vec<&str> = whole.split(&format!("epoch {epoch}, ")).skip(1).collect();
            assert!(left.len() == 1 && left[0].contains("epoch_loss 0.1235"), "{text}");
            assert!(left[0].replace(' ', "").contains(&results.replace(' ', "")), "{text}");
        }
        let bar: Vec<&String> = lines.iter().skip_while(|line| !line.contains('━')).collect();
        assert!(bar[0].contains("12000/12000"), "{text}");
        let below: Vec<&str> = bar[1..].iter().map(|line| line.as_str()).collect();
        assert!(below.iter().all(|line| line.chars().count() <= 80), "{text}");
        let below = below.join(" ");
        let all = format!("loss 0.1235, {results}, perplexity 1.131, ");
        assert!(below.starts_with(&all), "{text}");
        assert!(below.trim_end().ends_with("lr 0.125"), "{text}");
    }

    #[test]
    fn tokens_and_utilisation_fit_into_a_line() {
        let measured = Metrics::from([("loss", 10.8249), ("lr", 2.9912e-4)])
            .with("examples_per_second", 498.304)
            .with("tokens_per_second", 510_263.3)
            .with("mfu", 0.412_345);
        let text = below_the_bar(&shown(&measured));
        assert_eq!(text, "loss 10.82, lr 2.99e-4, tokens/s 5.10e5, mfu 0.4123");
        // As a line of its own, after two hours.
        assert!("step 3000/3000, 7200.0 s: ".len() + text.len() <= COLUMNS, "{text}");
        // With a name that a log has anyway, nothing is lost.
        let alone = Metrics::new().with("examples_per_second", 12.0);
        assert_eq!(shown(&alone), alone);
    }

    #[test]
    fn an_evaluation_inside_an_epoch_leaves_a_line_too() {
        let lines = after(Every::Steps(6000));
        let starts = |start: &str| lines.iter().filter(|line| line.starts_with(start)).count();
        let text = lines.join("\n");
        assert_eq!((starts("step 6000, "), starts("step 12000, ")), (1, 0), "{text}");
        assert!((1..=3).all(|epoch| starts(&format!("epoch {epoch}, ")) == 1), "{text}");
    }
}
