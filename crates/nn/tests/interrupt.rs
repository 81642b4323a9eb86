//! Ctrl-C during a run of `Trainer`: this program runs itself, and sends the signal to the child.
#![cfg(target_os = "linux")]

use pullback::{Tensor, Tree};
use pullback_nn::Module;
use pullback_nn::optim::{Sgd, UpdateRule};
use pullback_nn::state::Checkpoints;
use pullback_nn::train::{Callback, Ended, Every, LoopControl, TrainState, Trainer};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// Says what the child does: the kind of run, and the folder of its checkpoints.
const KIND: &str = "PULLBACK_INTERRUPT_KIND";
const FOLDER: &str = "PULLBACK_INTERRUPT_FOLDER";
/// How long a run is if nothing stops it: longer than a test waits.
const LAST: u64 = 2_000;
const PAUSE: Duration = Duration::from_millis(20);
/// How long a child may run.
const DEADLINE: Duration = Duration::from_secs(120);

#[derive(Tree)]
struct Model {
    weight: Tensor,
}

/// Says when steps were taken.
struct Steps;

impl Callback for Steps {
    fn on_step(&mut self, now: &TrainState) -> pullback::Result<LoopControl> {
        eprintln!("took step {}", now.step);
        Ok(LoopControl::Continue(()))
    }
}

/// What the child does; nothing in a usual run of the tests.
#[test]
fn child() {
    let Ok(kind) = std::env::var(KIND) else { return };
    let model = Model { weight: Tensor::from([1.0]).requires_grad() };
    let optimizer = Sgd::default().over(model.parameters()).unwrap();
    let trainer = Trainer::new(&model, &optimizer).steps(LAST).callback(Steps);
    let trainer = match std::env::var_os(FOLDER) {
        Some(folder) => trainer
            .checkpoints(Every::Steps(LAST), Checkpoints::new(folder))
            .resume(kind == "resuming"),
        None => trainer,
    };
    let trainer = trainer.handle_interrupt(kind != "not handled");
    // A test that waits for something that does not come sees the end of its child.
    std::thread::spawn(|| {
        std::thread::sleep(DEADLINE);
        std::process::exit(3);
    });
    let outcome = trainer.run(&vec![0.5; 10], |&x| {
        if kind == "slow" {
            eprintln!("began a step");
        }
        // A step that takes long, where the test presses Ctrl-C twice.
        std::thread::sleep(if kind == "slow" { 1000 * PAUSE } else { PAUSE });
        Ok(x)
    });
    let outcome = outcome.unwrap();
    assert_eq!(outcome.ended, Ended::Interrupted);
    eprintln!("ended at step {}", outcome.step);
    if kind == "afterwards" {
        // No run is left to stop, so Ctrl-C ends the process.
        std::thread::sleep(1000 * PAUSE);
    }
}

/// The child, and what it says.
struct Run {
    child: Child,
    said: BufReader<std::process::ChildStderr>,
}

impl Run {
    fn new(kind: &str, folder: Option<&Path>) -> Run {
        // A shell without job control lets what it runs in the background ignore the signal.
        let mut command = Command::new("env");
        command
            .arg("--default-signal=INT")
            .arg(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--nocapture"])
            .env(KIND, kind)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if let Some(folder) = folder {
            command.env(FOLDER, folder);
        }
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        Run { child, said }
    }

    /// Waits until it has said this.
    fn until(&mut self, wanted: &str) {
        let mut line = String::new();
        while !line.contains(wanted) {
            line.clear();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "the child ended before {wanted}");
        }
    }

    fn interrupt(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    }

    /// What it said last, and how it ended.
    fn end(mut self) -> (String, ExitStatus) {
        let mut text = String::new();
        self.said.read_to_string(&mut text).unwrap();
        (text, self.child.wait().unwrap())
    }
}

fn saved_steps(folder: &Path) -> Vec<u64> {
    let found = Checkpoints::new(folder).latest().unwrap();
    found.into_iter().map(|found| found.checkpoint.record.step).collect()
}

#[test]
fn the_first_saves_a_checkpoint_and_says_how_to_resume() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoints");
    let shown = path.display();
    let mut run = Run::new("plain", Some(&path));
    run.until("took step 3");
    run.interrupt();
    let (text, status) = run.end();
    assert!(status.success(), "{text}");
    let step = saved_steps(&path)[0];
    assert!((3..LAST).contains(&step), "{text}");
    let how = "to resume, call `resume(true)` on the trainer and run the program again";
    let wanted =
        format!("interrupted after step {step}, and a checkpoint saved in {shown}: {how}\n");
    assert!(text.contains(&wanted), "{text}");
    assert!(text.contains(&format!("ended at step {step}")), "{text}");

    // The second run goes on where the first one ended.
    let mut run = Run::new("resuming", Some(&path));
    run.until(&format!("took step {}\n", step + 1));
    run.interrupt();
    let (text, status) = run.end();
    assert!(status.success(), "{text}");
    assert!(text.contains(": to resume, run the program again\n"), "{text}");
    assert!(saved_steps(&path)[0] > step, "{text}");
}

#[test]
fn without_checkpoints_it_says_that_nothing_is_saved() {
    let mut run = Run::new("plain", None);
    run.until("took step 1");
    run.interrupt();
    let (text, status) = run.end();
    assert!(status.success(), "{text}");
    assert!(text.contains("; nothing is saved, as the trainer has no `checkpoints`\n"), "{text}");
}

#[test]
fn the_second_ends_the_process_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::new("slow", Some(folder.path()));
    // The handler is there once the run has begun; the first step takes 20 seconds.
    run.until("began a step");
    run.interrupt();
    run.until("Ctrl-C again ends the process at once");
    run.interrupt();
    let (text, status) = run.end();
    assert_eq!(status.code(), Some(130), "{text}");
    assert!(!text.contains("ended at step"), "{text}");
    assert!(saved_steps(folder.path()).is_empty());
}

#[test]
fn outside_of_a_run_and_where_it_is_not_handled_it_ends_the_process() {
    let mut run = Run::new("afterwards", None);
    run.until("took step 1");
    run.interrupt();
    run.until("ended at step");
    run.interrupt();
    let (text, status) = run.end();
    assert_eq!(status.code(), Some(130), "{text}");

    let mut run = Run::new("not handled", None);
    run.until("took step 1");
    run.interrupt();
    let (text, status) = run.end();
    // The signal itself ended it.
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(2), "{text}");
}
