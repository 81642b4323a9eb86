//! `vmap`: a function of one example, applied to many at once.
//!
//! The function is traced once, for one example, and the program is then evaluated with the rules
//! of `batch/`, in which every value is either one for all examples or has one row for each. The
//! evaluation is made of ordinary operations, so `vmap` nests with itself and with every
//! derivative, in any order: a `grad` inside is in the program already, one outside sees the
//! operations.

use crate::batch::{BatchedValue, batch};
use crate::tensor::Frozen;
use crate::trace::{self, TraceKind, evaluate_with};
use crate::unaliased::Since;
use crate::{Error, Result, Spec, Tensor, Tree, fail, kinks, mode};
use pullback_ir::{ErrorKind, Line, Program};

/// The batch axis of each tensor; `None` for a tensor that all examples share.
///
/// One entry for all tensors of a tree (`0`, `-1`, `None`), or a list with one for each, in the
/// order of [`Tree::leaves`].
#[derive(Clone, Debug)]
pub struct BatchAxes(Vec<Option<isize>>);

impl From<isize> for BatchAxes {
    fn from(axis: isize) -> BatchAxes {
        BatchAxes(vec![Some(axis)])
    }
}

impl From<i32> for BatchAxes {
    fn from(axis: i32) -> BatchAxes {
        BatchAxes(vec![Some(axis as isize)])
    }
}

impl From<Option<isize>> for BatchAxes {
    fn from(axis: Option<isize>) -> BatchAxes {
        BatchAxes(vec![axis])
    }
}

impl<const N: usize> From<[Option<isize>; N]> for BatchAxes {
    fn from(axes: [Option<isize>; N]) -> BatchAxes {
        BatchAxes(axes.to_vec())
    }
}

impl From<Vec<Option<isize>>> for BatchAxes {
    fn from(axes: Vec<Option<isize>>) -> BatchAxes {
        BatchAxes(axes)
    }
}

impl BatchAxes {
    /// One entry for each of `n` tensors.
    fn each(&self, what: &str, n: usize) -> Result<Vec<Option<isize>>> {
        match &self.0[..] {
            [one] => Ok(vec![*one; n]),
            many if many.len() == n => Ok(many.to_vec()),
            many => {
                let message = format!("{} axes for {n} tensors in {what}", many.len());
                Err(Error::argument("vmap", message)
                    .hint("give one axis for all, or one for each tensor"))
            }
        }
    }
}

/// Vectorises a function over a batch of examples: `in_axes` gives the batch axis of each argument,
/// `out_axes` that of the results.
///
/// ```
/// use pullback::{Tensor, grad, vmap};
/// let w = Tensor::from([2.0, 3.0]);
/// let loss = |w: &Tensor, x: &Tensor| (w * x).sum().square();
/// // The gradient of each example's loss, without a loop.
/// let each = vmap(|x: &Tensor| grad(|w: &Tensor| loss(w, x))(&w), 0, 0);
/// let g = each(&Tensor::from([[1.0, 0.0], [1.0, 1.0]]));
/// assert_eq!(g.to_vec::<f64>(), [4.0, 0.0, 10.0, 10.0]);
/// ```
///
/// Inside, a random key that is shared gives all examples the same numbers, one key for each gives
/// each its own, and the global generator gives each example its own. What the function reads or
/// branches on must not depend on the example: use [`cond`](crate::cond) or `select`.
///
/// Buffers of the argument (`#[tree(buffer)]`) may be written to: those with an axis of examples
/// are afterwards what each example wrote to its own, and one that all examples share must be
/// written with one value.
///
/// # Panics
/// When called, if the tensors do not have equally many examples, or the function reads a value.
#[track_caller]
pub fn vmap<T: Tree, Y: Tree>(
    f: impl Fn(&T) -> Y,
    in_axes: impl Into<BatchAxes>,
    out_axes: impl Into<BatchAxes>,
) -> impl Fn(&T) -> Y {
    let (from, to, caller) = (in_axes.into(), out_axes.into(), Line::caller());
    move |x| {
        let at = mode::user_line(caller);
        fail::or_raise(mapped(&f, &from, &to, x, true, at).map_err(|e| e.at(at)))
    }
}

/// `f` of every part of `x` along its first axis, as one computation: what it draws from the global
/// generator is drawn once, for all of them.
#[track_caller]
pub(crate) fn along_directions<Y: Tree>(f: &impl Fn(&Tensor) -> Y, x: &Tensor) -> Y {
    let (first, at) = (BatchAxes::from(0), mode::user_line(Line::caller()));
    fail::or_raise(mapped(f, &first, &first, x, false, at).map_err(|e| e.at(at)))
}

fn mapped<T: Tree, Y: Tree>(
    f: &impl Fn(&T) -> Y,
    from: &BatchAxes,
    to: &BatchAxes,
    x: &T,
    own_keys: bool,
    at: Line,
) -> Result<Y> {
    let start = Since::now();
    let leaves = x.leaves();
    let axes = from.each("the argument", leaves.len())?;
    let (n, examples) = lanes_of(&leaves, &axes)?;
    let specs: Vec<Spec> = examples.iter().map(example_spec).collect();
    let is_buffer = x.buffers();
    let traced =
        trace::record(TraceKind::Body("vmap"), own_keys.then_some(n), &specs, at, |args| {
            let buffers = || args.iter().enumerate().filter(|(i, _)| is_buffer[*i]);
            buffers().for_each(|(_, x)| x.lock().frozen = Frozen::State);
            let (y, noted) = kinks::collecting(|| f(&x.with_leaves(args)));
            let written: Vec<(usize, Tensor)> =
                buffers().filter(|(_, x)| x.is_written()).map(|(i, x)| (i, x.clone())).collect();
            let new = written.iter().map(|(_, x)| x.clone());
            let outputs = y.leaves().into_iter().chain(noted.tensors()).chain(new).collect();
            ((y, noted, written), outputs)
        })?;
    let ((y, noted, written), recorded) = traced;
    let captures = recorded
        .captures
        .iter()
        .map(|c| BatchedValue { value: c.tensor.clone(), batched: c.batched });
    let all: Vec<BatchedValue> = examples.into_iter().chain(captures).collect();
    let mut made = evaluate_batched(&recorded.program, &all, n);
    let new = made.split_off(made.len() - written.len());
    let mut writes = Vec::new();
    for ((i, inside), example) in written.into_iter().zip(new) {
        if example.batched && axes[i].is_none() {
            return Err(shared_buffer(&inside));
        }
        writes.push((&leaves[i], axes[i], example));
    }
    let counted = made.split_off(made.len() - noted.tensors().len());
    kinks::count_collected(noted, counted.into_iter().map(|example| example.value).collect())?;
    let axes = to.each("the result", made.len())?;
    let mut results = Vec::new();
    for (example, axis) in made.into_iter().zip(axes) {
        results.push(match axis {
            Some(axis) => {
                let all = example.spread(n);
                check_axis(&all, axis, "the result with its examples")?;
                all.move_axis(0, axis)
            }
            None if example.batched => {
                let message = format!(
                    "a result of spec {} differs between examples, so it has no single value",
                    example_spec(&example)
                );
                return Err(Error::argument("vmap", message).hint("give it an axis in out_axes"));
            }
            None => example.value,
        });
    }
    for (buffer, axis, example) in writes {
        let value = match axis {
            Some(axis) => example.spread(n).move_axis(0, axis),
            None => example.value,
        };
        mode::with_line(at, || buffer.copy_(value));
    }
    Ok(y.with_leaves(&mode::with_line(at, || start.own_all(results))))
}

/// A buffer that all examples share was written with a value that differs between them.
fn shared_buffer(buffer: &Tensor) -> Error {
    let message = format!(
        "the buffer {} is shared by all examples, and is written with a value that differs between them",
        buffer.spec()
    );
    let mut error = Error::new(ErrorKind::InPlace, "vmap", message).on([buffer.spec()]);
    if let Some(writer) = buffer.0.storage.writer() {
        error = error.detail(format!("written  {:<8} at {}", writer.op, writer.at));
    }
    error.hint("give the buffer an axis in in_axes, or call eval() on the module")
}

/// How many examples there are, and each tensor with them in front.
fn lanes_of(leaves: &[Tensor], axes: &[Option<isize>]) -> Result<(usize, Vec<BatchedValue>)> {
    let (mut n, mut examples) = (None, Vec::new());
    for (x, axis) in leaves.iter().zip(axes) {
        let Some(axis) = *axis else {
            examples.push(BatchedValue::shared(x.clone()));
            continue;
        };
        check_axis(x, axis, "the argument")?;
        let moved = x.move_axis(axis, 0);
        let count = moved.shape()[0];
        match n {
            Some(known) if known != count => {
                let message =
                    format!("{known} and {count} examples in the tensors of one argument");
                return Err(Error::shape("vmap", message).on(leaves.iter().map(Tensor::spec)));
            }
            _ => n = Some(count),
        }
        examples.push(BatchedValue::batched(moved));
    }
    match n {
        Some(n) => Ok((n, examples)),
        None => Err(Error::argument("vmap", "no tensor of the argument has an axis of examples")),
    }
}

fn check_axis(x: &Tensor, axis: isize, what: &str) -> Result<()> {
    let rank = x.rank() as isize;
    if (-rank..rank).contains(&axis) {
        return Ok(());
    }
    let message = format!("axis {axis} is out of range for {what}, {}", x.spec());
    Err(Error::argument("vmap", message).on([x.spec()]))
}

/// The spec of one example.
fn example_spec(example: &BatchedValue) -> Spec {
    let spec = example.value.spec();
    spec.with_shape(&spec.shape[usize::from(example.batched)..])
}

/// The results of a program for many examples.
pub(crate) fn evaluate_batched(
    program: &Program,
    inputs: &[BatchedValue],
    n: usize,
) -> Vec<BatchedValue> {
    evaluate_with(program, inputs, |op, operands| batch(op, operands, n).into_vec())
}
