//! Where the memory of a training step goes, by part of the model.
//!
//! [`pullback::MemoryReporter`] counts; here it gets names. Parameters, buffers and state of the
//! optimiser belong to the part of the model that holds them. What operations allocate belongs to
//! the part that runs: layers open a [`module_scope`](crate::module_scope()). Which part a layer
//! is, is found by its type and its first tensor, inside the part that runs already; layers without
//! tensors are counted in the order of their calls.

use crate::Module;
use crate::optim::Optimizer;
use crate::summary::holds;
use pullback::{
    MemoryKind, MemoryPartGuard, MemoryPhase, MemoryReport, MemoryReporter, Path, Recorder, Result,
    Tensor, Tree,
};
use std::cell::RefCell;
use std::collections::HashMap;

/// The part that is the model itself.
const MODEL: &str = "(model)";
/// The part of state that belongs to no parameter.
const OPTIMIZER: &str = "(optimizer)";

/// Runs a training step and reports where its memory went: parameters, gradients, state of the
/// optimiser and activations, by part of the model and by source line, and the moment of the peak.
/// See [`pullback::memory_report`].
///
/// ```
/// use pullback::{Tensor, no_grad};
/// use pullback_nn::optim::{Adam, Optimizer, UpdateRule};
/// use pullback_nn::{Layer, Linear, Module, Sequential, Tanh, memory_report, predict_memory};
///
/// let model = Sequential::new().then(Linear::new(16, 32)).then(Tanh).then(Linear::new(32, 4));
/// let adam = Adam::default().over(model.parameters())?;
/// let x = Tensor::ones([8, 16]);
/// let step = || {
///     adam.zero_grad();
///     let loss = model.forward(&x).square().mean();
///     loss.backward()?;
///     adam.step()?;
///     Ok(loss)
/// };
/// let predicted = predict_memory(&model, &adam, step)?;
/// let (loss, measured) = memory_report(&model, &adam, step)?;
/// println!("{measured}");
/// assert_eq!(predicted.most.activations, measured.most.activations);
/// let tanh = measured.by_part.iter().find(|part| part.path == "1").unwrap();
/// assert_eq!(tanh.bytes.activations, 8 * 32 * 4);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// A step without an optimiser has an empty list of them: `&Vec::<Box<dyn Optimizer>>::new()`.
///
/// # Errors
/// As [`pullback::memory_report`].
#[track_caller]
pub fn memory_report<R>(
    model: &impl Tree,
    optimizer: &(impl Optimizer + ?Sized),
    step: impl FnOnce() -> Result<R>,
) -> Result<(R, MemoryReport)> {
    let parts = ModuleParts::of(model);
    let reporter = named(&parts, model, optimizer);
    let _known = parts.known();
    reporter.measure(step)
}

/// Predicts from shapes where the memory of a training step will go, without computing anything:
/// see [`memory_report()`] and [`pullback::predict_memory`]. The step may not read values.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
/// use pullback_nn::{Layer, Linear, Module, predict_memory};
///
/// let model = Linear::new(16, 4);
/// let sgd = Sgd::default().over(model.parameters())?;
/// let x = Tensor::ones([8, 16]);
/// let report = predict_memory(&model, &sgd, || {
///     sgd.zero_grad();
///     model.forward(&x).square().mean().backward()?;
///     sgd.step()
/// })?;
/// assert_eq!(report.most.parameters, (16 * 4 + 4) * 4);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// As [`pullback::predict_memory`].
#[track_caller]
pub fn predict_memory<R>(
    model: &impl Tree,
    optimizer: &(impl Optimizer + ?Sized),
    step: impl FnOnce() -> Result<R>,
) -> Result<MemoryReport> {
    let parts = ModuleParts::of(model);
    let reporter = named(&parts, model, optimizer);
    let _known = parts.known();
    reporter.predict(step)
}

/// Runs a program and records it in a file, as [`pullback::record`], with the names of the model's
/// parameters, and with each op in the part of the model that runs it.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Layer, Linear, Sequential, Tanh, record};
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// let model = Sequential::new().then(Linear::new(4, 8)).then(Tanh).then(Linear::new(8, 2));
/// let x = Tensor::ones([3, 4]);
/// let path = folder.join("step.pullback");
/// record(&path, &model, || model.forward(&x).square().mean().backward())?;
/// let bytes = std::fs::read(&path).unwrap();
/// assert!(bytes.windows(8).any(|eight| eight == b"0.weight"));
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// As [`pullback::record`].
#[track_caller]
pub fn record<R>(
    path: impl AsRef<std::path::Path>,
    model: &impl Tree,
    f: impl FnOnce() -> Result<R>,
) -> Result<R> {
    let _known = ModuleParts::of(model).known();
    let named = model.named_parameters().into_iter().chain(model.named_buffers());
    named.fold(Recorder::new(), |all, (name, x)| all.name(name, &x)).run(path, f)
}

/// Attributes what the operations of `module` allocate to its path, until the guard is dropped.
pub(crate) fn enter(module: &impl Tree) -> Option<MemoryPartGuard> {
    PARTS.with_borrow_mut(|parts| parts.as_mut()?.enter(module))
}

thread_local! {
    static PARTS: RefCell<Option<ModuleParts>> = const { RefCell::new(None) };
}

/// The parts of a model that a report is made of.
struct ModuleParts {
    rows: Vec<ModulePart>,
    /// How often layers of a type and without tensors were called inside a part.
    calls: HashMap<(String, &'static str), usize>,
}

struct ModulePart {
    path: String,
    kind: &'static str,
    /// How many tensors are in it, and the first of them.
    tensors: usize,
    first: Option<Tensor>,
}

/// Restores the parts when the report is made, also if the step panics.
struct RestoreParts(Option<ModuleParts>);

impl Drop for RestoreParts {
    fn drop(&mut self) {
        PARTS.set(self.0.take());
    }
}

impl ModuleParts {
    fn of(model: &impl Tree) -> ModuleParts {
        let kinds = model.tree_structure().kinds.into_iter();
        let row = |(path, kind)| ModulePart { path, kind, tensors: 0, first: None };
        let mut rows: Vec<ModulePart> = kinds.map(row).collect();
        model.visit(&mut Path::default(), &mut |path, x| {
            let name = path.to_string();
            for row in rows.iter_mut().filter(|row| holds(&row.path, &name)) {
                row.tensors += 1;
                row.first.get_or_insert_with(|| x.clone());
            }
        });
        ModuleParts { rows, calls: HashMap::new() }
    }

    fn known(self) -> RestoreParts {
        RestoreParts(PARTS.replace(Some(self)))
    }

    /// The part that holds a tensor.
    fn owner(&self, name: &str) -> &str {
        let holding = self.rows.iter().filter(|row| holds(&row.path, name));
        let deepest = holding.max_by_key(|row| row.path.len());
        deepest.map_or(MODEL, |row| shown(&row.path))
    }

    fn enter(&mut self, module: &impl Tree) -> Option<MemoryPartGuard> {
        let (phase, scope) = MemoryPartGuard::current()?;
        let scope = scope.map(|path| if path == MODEL { String::new() } else { path });
        let leaves = module.leaves();
        let kind = module.tree_structure().kinds.first().map_or("", |(_, kind)| kind);
        let same = |row: &ModulePart| match (&row.first, leaves.first()) {
            // In a checkpointed function its tensors are others with the same memory.
            (Some(a), Some(b)) => a.shares_memory(b) && a.shape() == b.shape(),
            (None, None) => true,
            _ => false,
        };
        let fitting =
            |row: &&ModulePart| row.kind == kind && row.tensors == leaves.len() && same(row);
        let inside = |row: &&ModulePart| match &scope {
            None => true,
            Some(scope) => row.path != *scope && holds(scope, &row.path),
        };
        let within: Vec<&ModulePart> = self.rows.iter().filter(fitting).filter(inside).collect();
        if !leaves.is_empty() {
            // Of parts with the same tensors the outermost runs first.
            let anywhere = self.rows.iter().filter(fitting);
            let found = within.into_iter().chain(anywhere).next()?;
            return Some(pullback::memory_part(shown(&found.path)));
        }
        // What is computed again comes in another order: only one that is alone is known.
        if within.is_empty() || (within.len() > 1 && phase == MemoryPhase::Backward) {
            return None;
        }
        let calls = self.calls.entry((scope.unwrap_or_default(), kind)).or_insert(0);
        let found = within[*calls % within.len()];
        *calls += 1;
        Some(pullback::memory_part(shown(&found.path)))
    }
}

fn shown(path: &str) -> &str {
    if path.is_empty() { MODEL } else { path }
}

/// A reporter that knows the tensors of the model and of the optimiser.
fn named(
    parts: &ModuleParts,
    model: &impl Tree,
    optimizer: &(impl Optimizer + ?Sized),
) -> MemoryReporter {
    let mut reporter = MemoryReporter::new();
    for row in &parts.rows {
        reporter = reporter.part(shown(&row.path));
    }
    let parameters = model.named_parameters();
    for (name, x) in &parameters {
        reporter = reporter.tensor(MemoryKind::Parameters, parts.owner(name), x);
    }
    for (name, x) in model.named_buffers() {
        reporter = reporter.tensor(MemoryKind::Inputs, parts.owner(&name), &x);
    }
    for (owner, x) in states(optimizer) {
        let name = owner.and_then(|p| parameters.iter().find(|(_, x)| x.is_same(&p)));
        let part = name.map_or(OPTIMIZER, |(name, _)| parts.owner(name));
        reporter = reporter.tensor(MemoryKind::OptimizerState, part, &x);
    }
    reporter
}

/// The state of an optimiser, each with the parameter that it is of. Names are
/// `group.parameter.field`, and each group begins with its `lr`.
fn states(optimizer: &(impl Optimizer + ?Sized)) -> Vec<(Option<Tensor>, Tensor)> {
    let groups = optimizer.groups();
    let (mut started, mut out) = (0usize, Vec::new());
    for (name, x) in optimizer.named_state() {
        let words: Vec<&str> = name.split('.').collect();
        let owner = match words[..] {
            [.., "lr"] => {
                started += 1;
                None
            }
            [.., group, place, _] if group.parse::<usize>().is_ok() => {
                let place = place.parse::<usize>().ok();
                let members = started.checked_sub(1).and_then(|group| groups.get(group));
                members.zip(place).and_then(|(members, place)| members.get(place).cloned())
            }
            _ => None,
        };
        out.push((owner, x));
    }
    out
}
