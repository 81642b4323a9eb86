//! Recordings: a run of a program as a file, for the tape explorer.
//!
//! `recorder.rs` subscribes to the events of the core while a program runs (`call.rs`: to calls of
//! compiled functions), `model.rs` is what it writes down, `file.rs` the bytes of that, `stats.rs`
//! what is kept of a large value, `recording_file.rs` replaces the file at the end.

pub(crate) mod call;
pub mod file;
pub mod model;
pub(crate) mod recorder;
mod recording_file;
pub(crate) mod stats;

use crate::{Error, Result, Tensor, mode};
use model::Recording;
use pullback_ir::pass::{self, Pipeline};
use pullback_ir::{ErrorKind, Line, Program};
use recording_file::RecordingFile;
use std::path::Path;

const OP: &str = "record";

/// Runs a program and records it in a file, which `pullback explore FILE` opens: each op with its
/// operands, line, part of the model and what it saves for backward, statistics of values and
/// gradients (small ones whole), time, and live memory. See [`Recorder`] for names of tensors.
///
/// ```
/// use pullback::{Tensor, record};
/// # let folder = std::env::temp_dir().join(format!("pullback-record-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// let path = folder.join("step.pullback");
/// let x = Tensor::from(2.0).requires_grad();
/// let y = record(&path, || {
///     let y = (&x * 3.0).sin();
///     y.backward()?;
///     Ok(y)
/// })?;
/// assert!((y.item::<f64>() - 6f64.sin()).abs() < 1e-15);
/// assert!(std::fs::read(&path).unwrap().starts_with(b"pullback recording\n"));
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// A call of a compiled function (`jit`) is a part of its own, with the equations of its program;
/// only its results have values, as the others are never made in that form. What runs on other
/// threads is not seen: its results appear as inputs.
///
/// # Errors
/// With the error of the program, after what ran was written; if the file cannot be written; or if
/// this thread is recording already. A file that was there is replaced when the program has ended,
/// and stays as it was where nothing is recorded.
#[track_caller]
pub fn record<R>(path: impl AsRef<Path>, f: impl FnOnce() -> Result<R>) -> Result<R> {
    Recorder::new().run(path, f)
}

/// [`record()`] with names: tensors are listed under the names that they are given here.
///
/// ```
/// use pullback::{Recorder, Tensor};
/// # let folder = std::env::temp_dir().join(format!("pullback-recorder-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// let path = folder.join("step.pullback");
/// let w = Tensor::from([1.0, 2.0]).requires_grad();
/// Recorder::new().name("w", &w).run(&path, || w.square().sum().backward())?;
/// let bytes = std::fs::read(&path).unwrap();
/// assert!(bytes.windows(3).any(|three| three == [1, 1, b'w']));
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Default)]
pub struct Recorder {
    names: Vec<(String, Tensor)>,
}

impl Recorder {
    /// Without names.
    ///
    /// ```
    /// use pullback::{Recorder, Tensor};
    /// # let path = std::env::temp_dir().join(format!("recorder-new-{}", std::process::id()));
    /// let y = Recorder::new().run(&path, || Ok(Tensor::from(4.0).sqrt()))?;
    /// assert_eq!(y.item::<f64>(), 2.0);
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn new() -> Recorder {
        Recorder::default()
    }

    /// Gives a tensor a name. What is before its last point is the part of the model it belongs to.
    ///
    /// ```
    /// use pullback::{Recorder, Tensor};
    /// # let path = std::env::temp_dir().join(format!("recorder-name-{}", std::process::id()));
    /// let w = Tensor::from(2.0).requires_grad();
    /// Recorder::new().name("head.scale", &w).run(&path, || w.exp().backward())?;
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn name(mut self, name: impl Into<String>, x: &Tensor) -> Recorder {
        self.names.push((name.into(), x.clone()));
        self
    }

    /// Runs a program and records it in a file.
    ///
    /// ```
    /// use pullback::{Recorder, Tensor};
    /// # let path = std::env::temp_dir().join(format!("recorder-run-{}", std::process::id()));
    /// let x = Tensor::from(2.0).requires_grad();
    /// Recorder::new().name("x", &x).run(&path, || x.square().backward())?;
    /// assert_eq!(x.grad().unwrap().item::<f64>(), 4.0);
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`record()`].
    #[track_caller]
    pub fn run<R>(self, path: impl AsRef<Path>, f: impl FnOnce() -> Result<R>) -> Result<R> {
        let at = mode::user_line(Line::caller());
        refuse_nested().map_err(|e| e.at(at))?;
        // Before anything runs: a path that cannot be written is not found out at the end.
        let file = RecordingFile::open(path.as_ref()).map_err(|e| e.at(at))?;
        // What the program raises is its error too: what ran until then is written.
        let caught = || crate::catch(f).and_then(|result| result);
        let (result, recording) = self.capture(caught).map_err(|e| e.at(at))?;
        file.write(&recording.to_bytes()).map_err(|e| e.at(at))?;
        result
    }

    /// Runs a program and gives what was recorded.
    ///
    /// # Errors
    /// If this thread is recording already.
    #[doc(hidden)]
    pub fn capture<R>(self, f: impl FnOnce() -> R) -> Result<(R, Recording)> {
        refuse_nested()?;
        Ok(recorder::recording(self.names, f))
    }
}

/// Writes a program in a file that `pullback explore FILE` opens, with the program after each pass
/// of the compiler.
///
/// ```
/// use pullback::{DType, Spec, Tensor, record_program, trace};
/// # let path = std::env::temp_dir().join(format!("record-program-{}", std::process::id()));
/// let program = trace(|x: &[Tensor]| x[0].sin().exp().sum(), &[Spec::cpu(DType::F32, [8])])?;
/// record_program(&path, &program)?;
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If the program is invalid, or the file cannot be written.
#[track_caller]
pub fn record_program(path: impl AsRef<Path>, program: &Program) -> Result<()> {
    let at = mode::user_line(Line::caller());
    program.verify_deeply()?;
    let passes = Pipeline::standard(pass::Target::default(), |_, _| None);
    let (_, stages) = passes.run_in_stages(program)?;
    let traced = ("trace".to_string(), program.to_string());
    let after = stages.into_iter().map(|s| (s.name.to_string(), s.program.to_string()));
    let stages = std::iter::once(traced).chain(after).collect();
    let recording = Recording { stages, ..Recording::default() };
    let file = RecordingFile::open(path.as_ref()).map_err(|e| e.at(at))?;
    file.write(&recording.to_bytes()).map_err(|e| e.at(at))
}

fn refuse_nested() -> Result<()> {
    if !recorder::is_on() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Program, OP, "this thread is recording already")
        .hint("a recording holds everything that runs inside it, so one is enough"))
}
