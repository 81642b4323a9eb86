//! Where the memory of a training step goes: predicted from shapes, or measured.
//!
//! What takes memory is a storage, so what is kept is a ledger of storages (`ledger.rs`): when each
//! was made, by which op and line, in which part of the model, what for, and when it was freed. A
//! storage that is made while a report is active gets a *lifetime handle*; the handle is dropped
//! with it, and dropping it writes the time into the ledger. So nothing has to be guessed about
//! lifetimes: variables that the user holds, values that the tape keeps and what a checkpoint
//! computes again are freed when they are freed. What is packed instead of being kept counts as
//! what it is packed into ([`ledger::packing`]), and what a thread without a ledger restores gets
//! its handle then ([`ledger::unpacked`]).
//!
//! Prediction is the same ledger over a trace. There a storage represents a variable and has no
//! memory, but it is made, kept and dropped by the same tape and the same user code, so it lives
//! exactly as long as the memory would. What a trace does otherwise than eager code is corrected
//! where it happens: a write in place, which in a trace makes a new value ([`ledger::overwrites`],
//! [`ledger::continues`]).
//!
//! `part.rs` says which part of the model runs, `count.rs` makes the report of the ledger,
//! `text.rs`, `json.rs` and `svg.rs` show it.

mod count;
mod json;
pub(crate) mod ledger;
pub(crate) mod part;
mod svg;
mod text;

pub(crate) use text::amount;

pub use part::{MemoryPartGuard, memory_part};

use crate::backend;
use crate::trace::{self, TraceKind};
use crate::{Error, Result, Tensor, fail, mode};
use ledger::Ledger;
use pullback_ir::{Device, ErrorKind, Line};
use std::fmt;
use std::path::Path;

const OP: &str = "memory_report";

/// What memory is for. A storage is of one kind for the whole of its life, the first of these that
/// fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemoryKind {
    /// A leaf that requires grad and was there before, or what was named as one.
    Parameters,
    /// What is, was or becomes the `.grad()` of a leaf, or what `grad` and `grad_of` give.
    Gradients,
    /// What was named as state of an optimiser.
    OptimizerState,
    /// What was there before, or was made by another thread in that time, and is none of these:
    /// batches, buffers of layers, random state.
    Inputs,
    /// What is kept for backward: by the tape, or by a packer.
    Activations,
    /// Everything else that operations make.
    Temporaries,
}

impl MemoryKind {
    /// All of them, in order.
    pub const ALL: [MemoryKind; 6] = [
        MemoryKind::Parameters,
        MemoryKind::Gradients,
        MemoryKind::OptimizerState,
        MemoryKind::Inputs,
        MemoryKind::Activations,
        MemoryKind::Temporaries,
    ];

    /// Its name, as reports print it.
    ///
    /// ```
    /// use pullback::MemoryKind;
    /// assert_eq!(MemoryKind::OptimizerState.name(), "optimizer state");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            MemoryKind::Parameters => "parameters",
            MemoryKind::Gradients => "gradients",
            MemoryKind::OptimizerState => "optimizer state",
            MemoryKind::Inputs => "inputs",
            MemoryKind::Activations => "activations",
            MemoryKind::Temporaries => "temporaries",
        }
    }
}

/// Bytes of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryBytes {
    /// See [`MemoryKind::Parameters`].
    pub parameters: u64,
    /// See [`MemoryKind::Gradients`].
    pub gradients: u64,
    /// See [`MemoryKind::OptimizerState`].
    pub optimizer_state: u64,
    /// See [`MemoryKind::Inputs`].
    pub inputs: u64,
    /// See [`MemoryKind::Activations`].
    pub activations: u64,
    /// See [`MemoryKind::Temporaries`].
    pub temporaries: u64,
}

impl MemoryBytes {
    /// The bytes of one kind.
    ///
    /// ```
    /// use pullback::{MemoryKind, Tensor, predict_memory};
    /// let w = Tensor::ones([64, 64]).requires_grad();
    /// let x = Tensor::ones([8, 64]);
    /// let report = predict_memory(|| x.matmul(&w).tanh().sum().backward())?;
    /// assert_eq!(report.most.of(MemoryKind::Parameters), 64 * 64 * 4);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn of(&self, kind: MemoryKind) -> u64 {
        let mut copy = *self;
        *copy.slot(kind)
    }

    /// The bytes of all kinds together.
    ///
    /// ```
    /// use pullback::{MemoryKind, Tensor, predict_memory};
    /// let w = Tensor::ones([64, 64]).requires_grad();
    /// let x = Tensor::ones([8, 64]);
    /// let report = predict_memory(|| x.matmul(&w).tanh().sum().backward())?;
    /// let alive = report.peak().alive;
    /// let sum: u64 = MemoryKind::ALL.into_iter().map(|kind| alive.of(kind)).sum();
    /// assert_eq!(alive.total(), sum);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn total(&self) -> u64 {
        MemoryKind::ALL.iter().map(|&kind| self.of(kind)).sum()
    }

    fn slot(&mut self, kind: MemoryKind) -> &mut u64 {
        match kind {
            MemoryKind::Parameters => &mut self.parameters,
            MemoryKind::Gradients => &mut self.gradients,
            MemoryKind::OptimizerState => &mut self.optimizer_state,
            MemoryKind::Inputs => &mut self.inputs,
            MemoryKind::Activations => &mut self.activations,
            MemoryKind::Temporaries => &mut self.temporaries,
        }
    }
}

/// Where in a training step an op is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryPhase {
    /// Before a backward pass, or between two.
    Forward,
    /// In a backward pass.
    Backward,
    /// Inside `no_grad` after a backward pass: the step of the optimiser.
    Step,
}

impl MemoryPhase {
    /// Its name, as reports print it.
    ///
    /// ```
    /// use pullback::MemoryPhase;
    /// assert_eq!(MemoryPhase::Backward.name(), "backward");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            MemoryPhase::Forward => "forward",
            MemoryPhase::Backward => "backward",
            MemoryPhase::Step => "step",
        }
    }
}

/// What an op on a line made.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LineMemory {
    /// The op that made it.
    pub op: &'static str,
    /// The user's line; in a backward pass, that of the forward op. `None` where a tensor was made
    /// without an op.
    pub at: Option<Line>,
    /// Where it is.
    pub device: Device,
    /// What it is for.
    pub kind: MemoryKind,
    /// How much it is.
    pub bytes: u64,
    /// In how many pieces.
    pub count: usize,
}

/// The memory of a part of the model: its own, that of parts inside it not counted.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PartMemory {
    /// The path of the part; empty for what is in no part.
    pub path: String,
    /// Of each kind, how much there is when there is most of that kind in the whole step.
    pub bytes: MemoryBytes,
}

/// What is alive while an op runs: its operands and its results included.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MemorySample {
    /// The op; `start` for the moment before the first, `end` for the one after the last, when the
    /// step has returned.
    pub op: &'static str,
    /// The user's line.
    pub at: Option<Line>,
    /// Where in the step it is.
    pub phase: MemoryPhase,
    /// Whether it had run before, and ran again because a checkpoint or a budget needed its value.
    pub again: bool,
    /// What is alive.
    pub alive: MemoryBytes,
}

impl fmt::Display for MemorySample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` in the {} pass", self.op, self.phase.name())?;
        self.at.map_or(Ok(()), |at| write!(f, ", {at}"))
    }
}

/// The memory of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceMemory {
    /// The device.
    pub device: Device,
    /// The most bytes of tensors that are alive on it at once, and of working memory of compiled
    /// functions.
    pub peak: u64,
    /// What its pool counted; `None` for a prediction.
    pub pool: Option<PoolPeak>,
}

/// What the pool of buffers counted while the step ran: exact, but over all threads of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolPeak {
    /// Bytes that were live before the step.
    pub before: u64,
    /// The most bytes that were live at once.
    pub peak: u64,
}

/// Where the memory of a step goes. Prints as a table; [`MemoryReport::to_json`],
/// [`MemoryReport::to_svg`] and [`MemoryReport::save`] show it otherwise. Made by
/// [`predict_memory`], [`memory_report`] and [`MemoryReporter`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MemoryReport {
    /// Whether it was predicted from shapes; otherwise it was measured.
    pub predicted: bool,
    /// Of each kind, the most that is alive at once.
    pub most: MemoryBytes,
    /// The activations when there are most of them, by the op and line that made them, the largest
    /// first.
    pub activations_by_line: Vec<LineMemory>,
    /// By part of the model, in the order in which parts were named, without those that have
    /// nothing.
    pub by_part: Vec<PartMemory>,
    /// Which moment of the timeline is the peak: the first at which most is alive.
    pub peak_at: usize,
    /// What operations made that is alive at the peak, by op and line, the largest first.
    pub peak_by_line: Vec<LineMemory>,
    /// What is alive while each op runs, in order, from `start` to `end`. Views make nothing and
    /// are left out.
    pub timeline: Vec<MemorySample>,
    /// What the pool of the host counted; `None` for a prediction.
    pub pool: Option<PoolPeak>,
    /// Each device that has memory of the step, the host first: the rest of the report adds them
    /// up.
    pub by_device: Vec<DeviceMemory>,
}

impl MemoryReport {
    /// The moment at which most is alive.
    ///
    /// ```
    /// use pullback::{MemoryPhase, Tensor, predict_memory};
    /// let w = Tensor::ones([64, 64]).requires_grad();
    /// let x = Tensor::ones([8, 64]);
    /// let report = predict_memory(|| x.matmul(&w).tanh().sum().backward())?;
    /// let peak = report.peak();
    /// assert_eq!(peak.phase, MemoryPhase::Backward);
    /// assert!(report.timeline.iter().all(|moment| moment.alive.total() <= peak.alive.total()));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn peak(&self) -> &MemorySample {
        &self.timeline[self.peak_at]
    }

    /// Writes the report to a file, as the ending of its name says: `.txt`, `.json` or `.svg`.
    ///
    /// ```
    /// use pullback::{Tensor, predict_memory};
    /// let w = Tensor::ones([64, 64]).requires_grad();
    /// let x = Tensor::ones([8, 64]);
    /// let report = predict_memory(|| x.matmul(&w).tanh().sum().backward())?;
    /// # let dir = std::env::temp_dir().join(format!("memory-report-{}", std::process::id()));
    /// # std::fs::create_dir_all(&dir).unwrap();
    /// report.save(dir.join("memory.svg"))?;
    /// assert!(report.save(dir.join("memory.png")).is_err());
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the name ends otherwise, or the file cannot be written.
    #[track_caller]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let (path, at) = (path.as_ref(), mode::user_line(Line::caller()));
        let text = match path.extension().and_then(|ending| ending.to_str()) {
            Some("txt") => self.to_string(),
            Some("json") => self.to_json(),
            Some("svg") => self.to_svg(),
            _ => {
                let message = format!("{} ends neither in .txt, .json nor .svg", path.display());
                return Err(Error::argument(OP, message).at(at));
            }
        };
        std::fs::write(path, text).map_err(|error| {
            let message = format!("{} could not be written: {error}", path.display());
            Error::argument(OP, message).at(at)
        })
    }
}

/// Runs a step and reports where its memory went.
///
/// Parameters are the leaves that require grad. To distinguish state of an optimiser from other
/// inputs, and parts of the model from each other, name them: [`MemoryReporter`] (in `pullback_nn`,
/// `memory_report` does that for a model).
///
/// ```
/// use pullback::{Tensor, memory_report};
/// let w = Tensor::ones([64, 64]).requires_grad();
/// let x = Tensor::ones([8, 64]);
/// let (loss, report) = memory_report(|| {
///     let loss = x.matmul(&w).tanh().sum();
///     loss.backward()?;
///     Ok(loss)
/// })?;
/// assert_eq!(report.most.parameters, 64 * 64 * 4);
/// assert_eq!(report.most.gradients, 64 * 64 * 4);
/// // What `tanh` gives is kept for backward, and the product before it is not.
/// assert_eq!(report.most.activations, 8 * 64 * 4);
/// assert_eq!(report.activations_by_line[0].op, "tanh");
/// println!("{report}");
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// What other threads make counts from when this one uses it (in [`MemoryReport::pool`] from when
/// it is made), except that what an [`Offload`](crate::Offload) prefetches counts immediately. What
/// kernels take while they run does not count, nor memory that a packer takes otherwise than in
/// tensors. A compiled function is one op, with the arena of its plan as temporaries.
///
/// # Errors
/// What the step fails with, or if it is being traced, or measured already.
#[track_caller]
pub fn memory_report<R>(f: impl FnOnce() -> Result<R>) -> Result<(R, MemoryReport)> {
    MemoryReporter::new().measure(f)
}

/// Predicts from shapes where the memory of a step will go, and computes nothing: no memory for
/// values is taken, and parameters, gradients and random state stay as they are.
///
/// ```
/// use pullback::{Tensor, memory_report, predict_memory};
/// let w = Tensor::ones([64, 64]).requires_grad();
/// let x = Tensor::ones([8, 64]);
/// let step = || x.matmul(&w).tanh().sum().backward();
/// let predicted = predict_memory(step)?;
/// assert!(w.grad().is_none());
/// let ((), measured) = memory_report(step)?;
/// assert_eq!(predicted.peak().alive, measured.peak().alive);
/// assert_eq!(predicted.peak().at, measured.peak().at);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// The step is traced, so it may not read values: return the loss, and read it outside. A compiled
/// function that it calls is predicted op by op. Hooks are called, with tensors that have no
/// values. A batch for which there is no memory is made inside, where it takes none:
///
/// ```
/// # use pullback::{Tensor, predict_memory};
/// let w = Tensor::ones([64, 64]).requires_grad();
/// let report = predict_memory(|| Tensor::zeros([1 << 30, 64]).matmul(&w).tanh().sum().backward())?;
/// assert_eq!(report.most.activations, 2 * (1 << 30) * 64 * 4); // the batch, and what `tanh` gives
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// A [`MemoryBudget`](crate::MemoryBudget), an [`Offload`](crate::Offload) and
/// [`Compress`](crate::Compress) are ignored in a prediction: it says what the step takes without
/// them. Other packers ([`with_packing`](crate::with_packing)) are called as usual, with tensors
/// that have no values.
///
/// A prediction may be above what is measured where eager code adds to a gradient in place and a
/// trace cannot: for tensors of which several slices, or several products, have gradients, by the
/// size of such a gradient.
///
/// # Errors
/// What the step fails with, also where it reads a value; or if it is being traced, or measured
/// already.
#[track_caller]
pub fn predict_memory<R>(f: impl FnOnce() -> Result<R>) -> Result<MemoryReport> {
    MemoryReporter::new().predict(f)
}

/// Reports on memory with names: which tensors are parameters or state of an optimiser, and which
/// part of the model they belong to.
///
/// ```
/// use pullback::{MemoryKind, MemoryReporter, Tensor, memory_part, no_grad};
/// let w = Tensor::ones([32, 32]).requires_grad();
/// let momentum = Tensor::zeros([32, 32]);
/// let reporter = MemoryReporter::new()
///     .tensor(MemoryKind::Parameters, "layer", &w)
///     .tensor(MemoryKind::OptimizerState, "layer", &momentum);
/// let report = reporter.predict(|| {
///     let loss = {
///         let _part = memory_part("layer");
///         w.exp().sum()
///     };
///     loss.backward()?;
///     no_grad(|| {
///         momentum.mul_(0.9).add_(w.grad().unwrap());
///         w.sub_(&momentum * 0.1);
///     });
///     Ok(())
/// })?;
/// let layer = &report.by_part[0];
/// assert_eq!((layer.path.as_str(), layer.bytes.parameters), ("layer", 4096));
/// assert_eq!((layer.bytes.optimizer_state, layer.bytes.activations), (4096, 4096));
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Default)]
#[must_use]
pub struct MemoryReporter {
    known: Vec<(MemoryKind, String, Tensor)>,
    parts: Vec<String>,
}

impl MemoryReporter {
    /// A reporter without names: as [`memory_report`] and [`predict_memory`].
    ///
    /// ```
    /// use pullback::{MemoryReporter, Tensor};
    /// let w = Tensor::ones([64]).requires_grad();
    /// let report = MemoryReporter::new().predict(|| w.exp().sum().backward())?;
    /// assert_eq!(report.most.parameters, 256);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn new() -> MemoryReporter {
        MemoryReporter::default()
    }

    /// Says what a tensor is for, and to which part of the model it belongs. The first name that a
    /// memory is given counts.
    ///
    /// ```
    /// use pullback::{MemoryKind, MemoryReporter, Tensor, no_grad};
    /// let momentum = Tensor::zeros([64]);
    /// let reporter = MemoryReporter::new();
    /// let reporter = reporter.tensor(MemoryKind::OptimizerState, "encoder", &momentum);
    /// let report = reporter.predict(|| Ok(no_grad(|| momentum.mul_(0.9))))?;
    /// assert_eq!(report.most.optimizer_state, 256);
    /// assert_eq!(report.by_part[0].path, "encoder");
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn tensor(mut self, kind: MemoryKind, part: &str, x: &Tensor) -> MemoryReporter {
        self.known.push((kind, part.to_string(), x.clone()));
        self
    }

    /// Names a part of the model. Reports list parts in the order in which they are first named,
    /// here, with a tensor or by [`memory_part`].
    ///
    /// ```
    /// use pullback::{MemoryReporter, Tensor, memory_part};
    /// let w = Tensor::ones([64]).requires_grad();
    /// let report = MemoryReporter::new().part("encoder").part("decoder").predict(|| {
    ///     let part = memory_part("decoder");
    ///     let late = w.exp();
    ///     drop(part);
    ///     let _part = memory_part("encoder");
    ///     (late + w.sin()).sum().backward()
    /// })?;
    /// let parts: Vec<&str> = report.by_part.iter().map(|part| part.path.as_str()).collect();
    /// assert_eq!(parts[..2], ["encoder", "decoder"]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn part(mut self, name: &str) -> MemoryReporter {
        if !self.parts.iter().any(|known| known == name) {
            self.parts.push(name.to_string());
        }
        self
    }

    /// [`predict_memory`] with these names.
    ///
    /// ```
    /// use pullback::{MemoryKind, MemoryReporter, Tensor};
    /// let w = Tensor::ones([64]).requires_grad();
    /// let reporter = MemoryReporter::new().tensor(MemoryKind::Parameters, "layer", &w);
    /// let report = reporter.predict(|| w.exp().sum().backward())?;
    /// assert!(report.predicted && w.grad().is_none());
    /// assert_eq!(report.by_part[0].bytes.parameters, 256);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`predict_memory`].
    #[track_caller]
    pub fn predict<R>(self, f: impl FnOnce() -> Result<R>) -> Result<MemoryReport> {
        let at = mode::user_line(Line::caller());
        refuse_inside(at)?;
        let ledger = Ledger::new(&self.known, self.parts);
        let done = ledger::with(&ledger, || {
            fail::catch(|| {
                trace::record(TraceKind::Whole, None, &[], at, |_| {
                    ledger::of(&ledger).follow(trace::number());
                    let result = f();
                    ledger::of(&ledger).close();
                    (result, Vec::new())
                })
            })
        });
        done??.0?;
        Ok(count::report(&ledger::of(&ledger), None))
    }

    /// [`memory_report`] with these names.
    ///
    /// ```
    /// use pullback::{MemoryKind, MemoryReporter, Tensor};
    /// let w = Tensor::ones([64]).requires_grad();
    /// let reporter = MemoryReporter::new().tensor(MemoryKind::Parameters, "layer", &w);
    /// let ((), report) = reporter.measure(|| w.exp().sum().backward())?;
    /// assert!(!report.predicted && w.grad().is_some());
    /// assert_eq!(report.by_part[0].bytes.parameters, 256);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`memory_report`].
    #[track_caller]
    pub fn measure<R>(self, f: impl FnOnce() -> Result<R>) -> Result<(R, MemoryReport)> {
        refuse_inside(mode::user_line(Line::caller()))?;
        let before = backend::stats().live_bytes;
        let ledger = Ledger::new(&self.known, self.parts);
        let peaks = backend::DevicePeaks::start();
        let (done, rise) = backend::rise(|| ledger::with(&ledger, || fail::catch(f)));
        let peaks = peaks.end();
        let result = done??;
        ledger::of(&ledger).close();
        let pool = rise.map(|rise| PoolPeak { before, peak: before + rise });
        let mut report = count::report(&ledger::of(&ledger), pool);
        for of in &mut report.by_device {
            let found = peaks.iter().find(|(device, ..)| *device == of.device);
            of.pool = match found {
                Some(&(_, before, peak)) => Some(PoolPeak { before, peak }),
                None => pool,
            };
        }
        Ok((result, report))
    }
}

/// Refuses to begin a report where one cannot be made.
fn refuse_inside(at: Line) -> Result<()> {
    let message = match (ledger::is_on(), trace::active()) {
        (true, _) => "a report on memory is being made already",
        (_, true) => "a function is being traced here, so nothing takes memory",
        (false, false) => return Ok(()),
    };
    let error = Error::new(ErrorKind::Memory, OP, message).at(at);
    Err(error.hint("call memory_report outside"))
}
