//! Control flow on values: `cond`, `while_loop`, `fori_loop`, `scan`.
//!
//! In eager code these are the plain Rust constructs: the branch that is taken runs and the tape
//! records it. Results have their own memory, as in a program: a branch that returns its operand
//! returns a copy. Inside a trace the value is not known, so each body is traced into a program of
//! its own and the construct is one equation, [`Flow`], with a derivative (`rule.rs`) and a rule
//! for `vmap`. Bodies may capture tensors; those become operands, so their derivatives are
//! not lost.

mod checkpoints;
mod compiled;
mod rule;
mod split;

pub(crate) use compiled::is_tensor_code;
pub use compiled::{scan_compiled, scan_reverse_compiled};

pub(crate) use rule::{check_captured, prepare, row, share_constants};
pub(crate) use split::{TracedProgram, traced};

use crate::apply::apply_all;
use crate::checked_alloc::check_list;
use crate::create::number_on_device_of;
use crate::read_only::ReadOnly;
use crate::tangents::Tangents;
use crate::tape::History;
use crate::trace::{self, FinishedTrace, TraceKind};
use crate::unaliased::Since;
use crate::{Error, Result, Spec, Tensor, Tree, default_device, fail, kinks, mode, stack};
use pullback_ir::{ErrorKind, Flow, Line, Op, Program, Scan, Var};
use std::sync::Arc;

/// `yes(x)` if the condition (one `bool`) holds, else `no(x)`; only one of them is computed. The
/// result has its own memory: a branch that returns its operand returns a copy of it.
///
/// ```
/// use pullback::{Tensor, cond, grad};
/// let f = |x: &Tensor| cond(&x.gt(0.0), |x| x.square(), |x| -x, x);
/// assert_eq!(f(&Tensor::from(3.0)).item::<f64>(), 9.0);
/// assert_eq!(grad(f)(&Tensor::from(-3.0)).item::<f64>(), -1.0);
/// ```
///
/// # Panics
/// If the condition is not one `bool`, or (inside a trace) the branches give different specs.
#[track_caller]
pub fn cond<T: Tree, Y: Tree>(
    condition: &Tensor,
    yes: impl FnOnce(&T) -> Y,
    no: impl FnOnce(&T) -> Y,
    x: &T,
) -> Y {
    let at = mode::user_line(Line::caller());
    let condition = one_bool("cond", condition, at);
    if trace::knows(&condition) {
        let start = Since::now();
        let held = ReadOnly::of(&x.leaves());
        let y = if condition.item::<bool>() { yes(x) } else { no(x) };
        drop(held);
        return mode::with_line(at, || start.own(y));
    }
    let leaves = x.leaves();
    let specs = specs_of(&leaves);
    let (y, first) = body("cond", &specs, at, |args| yes(&x.with_leaves(args)));
    let (_, second) = body("cond", &specs, at, |args| no(&x.with_leaves(args)));
    let shared = union(&[&first, &second]);
    let program = |recorded: &FinishedTrace| {
        let (args, captures) = recorded.program.inputs.split_at(specs.len());
        let mut program = recorded.program.clone();
        let captures = spread(&mut program, recorded, captures, &shared);
        program.inputs = args.iter().copied().chain(captures).collect();
        program.renumbered()
    };
    let flow = Flow::Cond { yes: program(&first), no: program(&second) };
    let operands: Vec<&Tensor> =
        std::iter::once(&condition).chain(&leaves).chain(&shared).collect();
    y.with_leaves(&apply_flow(flow, &operands, at))
}

/// `state = body(state)` for as long as `test(state)` holds.
///
/// Both modes differentiate it. In eager code the iterations that ran are on the tape. Inside a
/// trace their number is not known: the backward pass runs the loop again, records evenly spaced
/// checkpoints of its state, and runs backward from those. It keeps 1024 checkpoints, fewer where a
/// state has more than a kilobyte, and at least 16; so memory does not grow with the number of
/// iterations, and where there are more iterations than checkpoints, iterations are recomputed once
/// more.
///
/// ```
/// use pullback::{Tensor, while_loop};
/// let x = while_loop(|x: &Tensor| x.lt(100.0), |x| x * 2.0, &Tensor::from(3.0));
/// assert_eq!(x.item::<f64>(), 192.0);
/// ```
///
/// # Panics
/// If the test does not give one `bool`, or the body changes the state's specs.
#[track_caller]
pub fn while_loop<S: Tree>(test: impl Fn(&S) -> Tensor, step: impl Fn(&S) -> S, init: &S) -> S {
    let at = mode::user_line(Line::caller());
    let leaves = init.leaves();
    if !trace::active() {
        let (start, held) = (Since::now(), ReadOnly::of(&leaves));
        let mut state = init.with_leaves(&leaves);
        while one_bool("while_loop", &test(&state), at).item::<bool>() {
            state = checked("while_loop", &leaves, step(&state), at);
            held.add(&state.leaves());
        }
        drop(held);
        return mode::with_line(at, || start.own(state));
    }
    let specs = specs_of(&leaves);
    let (_, first) = body("while_loop", &specs, at, |args| {
        one_bool("while_loop", &test(&init.with_leaves(args)), at)
    });
    let (next, second) = body("while_loop", &specs, at, |args| {
        let state = init.with_leaves(args);
        checked("while_loop", args, step(&state), at)
    });
    let shared = union(&[&first, &second]);
    let program = |recorded: &FinishedTrace| {
        let (state, captures) = recorded.program.inputs.split_at(specs.len());
        let mut program = recorded.program.clone();
        let captures = spread(&mut program, recorded, captures, &shared);
        program.inputs = captures.into_iter().chain(state.iter().copied()).collect();
        program.renumbered()
    };
    let flow = Flow::While { test: program(&first), body: program(&second), shared: shared.len() };
    let operands: Vec<&Tensor> = shared.iter().chain(&leaves).collect();
    next.with_leaves(&apply_flow(flow, &operands, at))
}

/// [`while_loop`] for at most `bound` iterations.
///
/// ```
/// use pullback::{Tensor, grad, while_loop_bounded};
/// let f = |x: &Tensor| while_loop_bounded(3, |x: &Tensor| x.lt(100.0), |x| x * 2.0, x);
/// assert_eq!(f(&Tensor::from(3.0)).item::<f64>(), 24.0);
/// assert_eq!(grad(f)(&Tensor::from(3.0)).item::<f64>(), 8.0);
/// ```
///
/// # Panics
/// As [`while_loop`].
#[track_caller]
pub fn while_loop_bounded<S: Tree>(
    bound: usize,
    test: impl Fn(&S) -> Tensor,
    step: impl Fn(&S) -> S,
    init: &S,
) -> S {
    let at = mode::user_line(Line::caller());
    let leaves = init.leaves();
    let first = (number_on_device_of(&leaves, 0i64), init.with_leaves(&leaves));
    let bound = i64::try_from(bound).unwrap_or(i64::MAX);
    let continues = |(iteration, state): &(Tensor, S)| {
        iteration.lt(bound).logical_and(one_bool("while_loop", &test(state), at))
    };
    let next = |(iteration, state): &(Tensor, S)| (iteration + 1, step(state));
    mode::with_line(at, || while_loop(continues, next, &first).1)
}

/// `state = body(i, state)` for i from `low` up to, not including, `high`; `i` is a tensor,
/// `i64[]`.
///
/// ```
/// use pullback::{Tensor, fori_loop};
/// let sum = fori_loop(1, 5, |i, s: &Tensor| s + i.cast(s.dtype()), &Tensor::from(0.0));
/// assert_eq!(sum.item::<f64>(), 10.0);
/// ```
///
/// # Panics
/// If the body changes the state's specs.
#[track_caller]
pub fn fori_loop<S: Tree>(low: i64, high: i64, body: impl Fn(&Tensor, &S) -> S, init: &S) -> S {
    let at = mode::user_line(Line::caller());
    mode::with_line(at, || {
        let device = init.leaves().first().map_or_else(default_device, Tensor::device);
        let counted =
            mode::with(&mode::DEFAULT_DEVICE, Some(device), || Tensor::arange(low, high.max(low)));
        scan(|state: &S, i: &Tensor| (body(i, state), ()), init, &counted).0
    })
}

/// Iterates over the rows of `xs` (along the first axis of each of its tensors) with a state that
/// is carried from one to the next: `(state, y) = body(state, x)`. Returns the last state, and the
/// ys stacked.
///
/// ```
/// use pullback::{Tensor, scan};
/// let xs = Tensor::from([1.0, 2.0, 3.0]);
/// let (sum, sums) = scan(|s: &Tensor, x: &Tensor| (s + x, s + x), &Tensor::from(0.0), &xs);
/// assert_eq!(sum.item::<f64>(), 6.0);
/// assert_eq!(sums.to_vec::<f64>(), [1.0, 3.0, 6.0]);
/// ```
///
/// # Panics
/// If the tensors of `xs` have no first axis in common, or the body changes the state's specs.
#[track_caller]
pub fn scan<S: Tree, X: Tree, Y: Tree>(
    body: impl Fn(&S, &X) -> (S, Y),
    init: &S,
    xs: &X,
) -> (S, Y) {
    let at = mode::user_line(Line::caller());
    scan_at(None, false, body, init, xs, at)
}

/// [`scan`] from the last row to the first; row i of the ys is made from row i of `xs`.
///
/// ```
/// use pullback::{Tensor, scan_reverse};
/// let xs = Tensor::from([1.0, 2.0, 3.0]);
/// let (_, sums) = scan_reverse(|s: &Tensor, x: &Tensor| (s + x, s + x), &Tensor::from(0.0), &xs);
/// assert_eq!(sums.to_vec::<f64>(), [6.0, 5.0, 3.0]);
/// ```
///
/// # Panics
/// As [`scan`].
#[track_caller]
pub fn scan_reverse<S: Tree, X: Tree, Y: Tree>(
    body: impl Fn(&S, &X) -> (S, Y),
    init: &S,
    xs: &X,
) -> (S, Y) {
    let at = mode::user_line(Line::caller());
    scan_at(None, true, body, init, xs, at)
}

/// [`scan`] without inputs, for `n` steps.
///
/// ```
/// use pullback::{Tensor, scan_times};
/// let (last, all) = scan_times(4, |x: &Tensor, _: &()| (x * 2.0, x.clone()), &Tensor::from(1.0));
/// assert_eq!(last.item::<f64>(), 16.0);
/// assert_eq!(all.to_vec::<f64>(), [1.0, 2.0, 4.0, 8.0]);
/// ```
///
/// # Panics
/// As [`scan`].
#[track_caller]
pub fn scan_times<S: Tree, Y: Tree>(
    n: usize,
    body: impl Fn(&S, &()) -> (S, Y),
    init: &S,
) -> (S, Y) {
    let at = mode::user_line(Line::caller());
    scan_at(Some(n), false, body, init, &(), at)
}

fn scan_at<S: Tree, X: Tree, Y: Tree>(
    times: Option<usize>,
    reverse: bool,
    iteration: impl Fn(&S, &X) -> (S, Y),
    init: &S,
    xs: &X,
    at: Line,
) -> (S, Y) {
    let (carry, rows) = (init.leaves(), xs.leaves());
    let length = fail::or_raise(length_of(times, &rows).map_err(|e| e.at(at)));
    // Where kinks are counted, iteration by iteration: inside a loop their values would not be
    // known.
    if (!trace::active() || kinks::is_collecting()) && length > 0 {
        return scan_eagerly(length, reverse, iteration, (init, &carry), xs, at);
    }
    scan_as_op(length, reverse, iteration, (init, &carry), (xs, &rows), at)
}

/// A scan as an op, which holds its iteration as a program.
fn scan_as_op<S: Tree, X: Tree, Y: Tree>(
    length: usize,
    reverse: bool,
    iteration: impl Fn(&S, &X) -> (S, Y),
    (init, carry): (&S, &[Tensor]),
    (xs, rows): (&X, &[Tensor]),
    at: Line,
) -> (S, Y) {
    let row_spec = |x: &Tensor| x.spec().with_shape(&x.shape()[1..]);
    let specs: Vec<Spec> = specs_of(carry).into_iter().chain(rows.iter().map(row_spec)).collect();
    let ((state, y), recorded) = body("scan", &specs, at, |args| {
        let (s, x) = args.split_at(carry.len());
        // A row is a tensor of the iteration, not of the caller.
        let x: Vec<Tensor> = x.iter().map(|x| x.argument(History::None, Tangents::new())).collect();
        let (next, y) = iteration(&init.with_leaves(s), &xs.with_leaves(&x));
        (checked("scan", s, next, at), y)
    });
    let shared: Vec<Tensor> = recorded.captures.iter().map(|c| c.tensor.clone()).collect();
    let mut program = recorded.program;
    program.inputs.rotate_left(specs.len());
    let (shared_count, carry_count) = (shared.len(), carry.len());
    let scan = Scan {
        body: program.renumbered(),
        length,
        reverse,
        shared: shared_count,
        carry: carry_count,
        kept: 0,
    };
    let operands: Vec<&Tensor> = shared.iter().chain(carry).chain(rows).collect();
    let made = apply_flow(Flow::Scan(scan), &operands, at);
    let (last, ys) = made.split_at(carry.len());
    (state.with_leaves(last), y.with_leaves(ys))
}

/// A scan outside of a trace: its iterations run one after the other.
fn scan_eagerly<S: Tree, X: Tree, Y: Tree>(
    length: usize,
    reverse: bool,
    iteration: impl Fn(&S, &X) -> (S, Y),
    (init, carry): (&S, &[Tensor]),
    xs: &X,
    at: Line,
) -> (S, Y) {
    let (start, held) = (Since::now(), ReadOnly::of(carry));
    let mut state = init.with_leaves(carry);
    mode::with_line(at, || check_list("scan", length, size_of::<Vec<Tensor>>(), &[]));
    let mut parts: Vec<Vec<Tensor>> = Vec::new();
    let mut versions: Vec<u64> = Vec::new();
    let mut shape = None;
    for step in 0..length {
        let before = Since::now();
        let i = if reverse { length - 1 - step } else { step };
        let row = |x: &Tensor| {
            let row = x.select_at(0, i as isize);
            held.add([&row]);
            row
        };
        let x = mode::with_line(at, || xs.map(&mut |x| row(x)));
        let (next, y) = iteration(&state, &x);
        state = checked("scan", carry, next, at);
        held.add(&state.leaves());
        // A later iteration may write to older memory, and y has the value it had here.
        let given = mode::with_line(at, || before.own_all(y.leaves()));
        versions.extend(given.iter().map(|y| y.0.storage.version()));
        parts.push(given);
        shape = Some(y);
    }
    drop(held);
    let now = parts.iter().flatten().map(|y| (y, y.0.storage.version()));
    if let Some((y, _)) = now.zip(&versions).find(|((_, now), then)| now != *then).map(|f| f.0) {
        let message = "the y of an iteration was overwritten in place by a later iteration";
        let error = Error::new(ErrorKind::InPlace, "scan", message).on([y.spec()]);
        fail::raise(y.0.storage.named_writer(error).at(at).hint("return a deep_clone() of it"));
    }
    if reverse {
        parts.reverse();
    }
    let Some(y) = shape else { unreachable!("there was an iteration") };
    let mut k = 0;
    let y = mode::with_line(at, || {
        y.map(&mut |_| {
            let column: Vec<&Tensor> = parts.iter().map(|part| &part[k]).collect();
            k += 1;
            stack(&column, 0)
        })
    });
    mode::with_line(at, || start.own((state, y)))
}

fn length_of(times: Option<usize>, rows: &[Tensor]) -> Result<usize> {
    let mut length = times;
    for x in rows {
        let Some(&n) = x.shape().first() else {
            return Err(Error::shape(
                "scan",
                format!("{} is a scalar: scan needs a leading axis", x.spec()),
            ));
        };
        if length.is_some_and(|known| known != n) {
            let specs: Vec<&Spec> = rows.iter().map(Tensor::spec).collect();
            let message =
                format!("the sequences have different lengths: {:?} and {n}", length.unwrap_or(0));
            return Err(Error::shape("scan", message).on(specs));
        }
        length = Some(n);
    }
    length.ok_or_else(|| {
        Error::argument("scan", "there is nothing to iterate over")
            .hint("use scan_times for a number of iterations")
    })
}

/// Traces a body.
pub(crate) fn body<R: Tree>(
    name: &'static str,
    specs: &[Spec],
    at: Line,
    f: impl FnOnce(&[Tensor]) -> R,
) -> (R, FinishedTrace) {
    let traced = trace::record(TraceKind::Body(name), None, specs, at, |args| {
        let y = f(args);
        let outputs = y.leaves();
        (y, outputs)
    });
    fail::or_raise(traced)
}

/// Applies a construct to its operands.
pub(crate) fn apply_flow(flow: Flow, operands: &[&Tensor], at: Line) -> Vec<Tensor> {
    mode::with_line(at, || apply_all(Op::Flow(Arc::new(flow)), operands).into_vec())
}

/// What several bodies capture, each once.
fn union(bodies: &[&FinishedTrace]) -> Vec<Tensor> {
    let mut all: Vec<Tensor> = Vec::new();
    for capture in bodies.iter().flat_map(|b| &b.captures) {
        if !all.iter().any(|x| x.is_same(&capture.tensor)) {
            all.push(capture.tensor.clone());
        }
    }
    all
}

/// Inputs of a body for all that several bodies use: its own, and spare ones.
fn spread(
    program: &mut Program,
    recorded: &FinishedTrace,
    own: &[Var],
    all: &[Tensor],
) -> Vec<Var> {
    let place = |x: &Tensor| recorded.captures.iter().position(|c| c.tensor.is_same(x));
    all.iter()
        .map(|x| match place(x) {
            Some(i) => own[i],
            None => program.fresh(x.spec().clone()),
        })
        .collect()
}

fn specs_of(leaves: &[Tensor]) -> Vec<Spec> {
    leaves.iter().map(|x| x.spec().clone()).collect()
}

fn one_bool(op: &'static str, x: &Tensor, at: Line) -> Tensor {
    if x.dtype() != crate::DType::Bool || x.len() != 1 {
        let message = format!("the test must be one bool, not {}", x.spec());
        fail::raise(
            Error::new(ErrorKind::Argument, op, message)
                .at(at)
                .hint("compare with gt(..), or reduce with all() or any()"),
        );
    }
    if x.rank() == 0 { x.clone() } else { x.reshape(&[] as &[usize]) }
}

/// A state after an iteration, whose tensors must be as before.
fn checked<S: Tree>(op: &'static str, before: &[Tensor], after: S, at: Line) -> S {
    let (now, list) = (after.leaves(), |xs: &[Tensor]| {
        let texts: Vec<String> = xs.iter().map(|x| x.spec().to_string()).collect();
        format!("({})", texts.join(", "))
    });
    if !before.iter().map(Tensor::spec).eq(now.iter().map(Tensor::spec)) {
        let message =
            format!("the state {} becomes {} after an iteration", list(before), list(&now));
        fail::raise(
            Error::shape(op, message)
                .at(at)
                .hint("every iteration must return the shapes and dtypes it was given"),
        );
    }
    after
}
