//! Kinks: the points where a function has no derivative, and a convention defines one.
//!
//! The derivative of `relu` at 0 is a convention. That is harmless if few elements are there, and a
//! silent bias if many are: units that are always 0, masks of zeros, quantised inputs, ties. Three
//! tools:
//!
//! - [`kink_report`] counts, by op and line, how many elements were exactly at such a point, and
//!   says which derivative was taken for them;
//! - [`strict_kinks`] makes the first of them an error;
//! - [`with_conventions`] chooses another derivative where frameworks differ.
//!
//! One table (`table.rs`) says for every op where its kinks are and what is taken there;
//! `docs/conventions.md` holds the same lines, and a test compares them. `mask.rs` finds the
//! elements, with ordinary ops. `apply` checks each op after it has run. Functions made of smooth
//! ops and a selection (`clamp`, `leaky_relu`, `norm`) have no op of their own and report their
//! kinks themselves ([`at`]).
//!
//! # What counts
//!
//! Elements of the *result*, of an op that is differentiated: an operand is tracked while
//! operations are recorded, or carries a tangent. Elsewhere no derivative is taken. A backward
//! pass, a tangent, and a checkpointed function that runs again count nothing: the elements were
//! counted when the function ran. The inside of a smooth function that is written with |x| is not
//! counted either ([`uncounted_part`]).
//!
//! # Inside a trace
//!
//! Values are not known there. `jit` calls its function op by op then. The body of a `vmap`
//! computes its masks along with everything else and they are counted when the batched program has
//! run ([`collecting`], [`count_collected`]); whether an operand is differentiated is known by then
//! as well. A `scan` inside it is unrolled. What is left (`trace`, branches and loops that depend
//! on the example, scopes that begin inside) is listed as unseen, and refused in strict mode.
//!
//! # Conventions
//!
//! A convention other than the default makes another function of the op (`conventions.rs`): the
//! same values, made of ops whose derivatives add up to the one that is wanted. So it holds for
//! reverse and forward mode, for every order and every batch, and also where the backward pass runs
//! outside of the scope. What the library does for an op (decompositions, rules, replays) uses the
//! defaults: the op has been replaced before. User code that is called again later (a custom rule,
//! a checkpointed function, the function of a solver) uses the conventions of its call.

mod conventions;
pub(crate) mod mask;
mod report;
mod table;

pub use conventions::{AtBound, AtOrigin, AtTie, AtTies, AtZero, Conventions, with_conventions};
pub use report::{Kink, KinkReport};
pub use table::{KinkRow, kink_table};

pub(crate) use conventions::{by_convention, conventions, with_slope_at_kink, with_state};
pub(crate) use table::{KinkKind, kink};

use crate::events::{self, CONVENTIONS, COUNT};
use crate::memory::packing;
use crate::{Error, Op, Result, Tensor, fail, mode, trace};
use pullback_ir::Line;
use report::Counter;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};

thread_local! {
    /// The reports that are being made, the outermost first.
    static COUNTERS: RefCell<Vec<Counter>> = const { RefCell::new(Vec::new()) };
    static STRICT: Cell<bool> = const { Cell::new(false) };
    /// What bodies that are being traced have noted.
    static NOTED: RefCell<Vec<(BodyScope, Vec<KinkSite>)>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f` and counts the elements of differentiated results that were exactly at a point without
/// a derivative, by op and line.
///
/// ```
/// use pullback::{Tensor, kink_report};
/// let x = Tensor::from([-1.0, 0.0, 0.0, 2.0]).requires_grad();
/// let (y, report) = kink_report(|| x.relu());
/// let kink = &report.kinks[0];
/// assert_eq!((kink.op, kink.elements, kink.total), ("relu", 2, 4));
/// assert_eq!(kink.convention, "0");
/// # let _ = y;
/// ```
///
/// Counting costs passes over the values, and compiled functions run op by op: use it to find out,
/// not in every step. Ties between workers are found by a sum of all of them, so all workers of a
/// group count, or none. It holds for this thread. Reports nest: what an inner one counts, the
/// outer ones count too.
pub fn kink_report<R>(f: impl FnOnce() -> R) -> (R, KinkReport) {
    COUNTERS.with_borrow_mut(|all| all.push(Counter::default()));
    let _end = mode::on_drop(|| {
        COUNTERS.with_borrow_mut(|all| {
            if let (Some(inner), Some(outer)) = (all.pop(), all.last_mut()) {
                outer.add(inner);
            }
        });
    });
    let result = events::with(COUNT, f);
    let report = COUNTERS.with_borrow(|all| all.last().map(Counter::report));
    (result, report.unwrap_or_default())
}

/// Runs `f` so that an op whose derivative is taken with an element on a kink fails. The error
/// names the op, the line, how many elements there are, the first of them, and the derivative that
/// would have been taken. Use [`catch`](crate::catch) to get it as an `Err`.
///
/// ```
/// use pullback::{Tensor, catch, strict_kinks};
/// let x = Tensor::from([[1.0, 0.0], [0.0, 2.0]]).requires_grad();
/// let error = catch(|| strict_kinks(|| x.abs())).unwrap_err();
/// assert!(error.to_string().starts_with("abs: 2 of 4 elements are at a kink (0), the first at [0, 1]; the derivative taken there is 0"));
/// ```
///
/// # Panics
/// Where `f` differentiates an op at a kink.
pub fn strict_kinks<R>(f: impl FnOnce() -> R) -> R {
    mode::with(&STRICT, true, || events::with(COUNT, f))
}

/// Whether elements on kinks are counted.
pub(crate) fn is_counting() -> bool {
    events::is_on(COUNT)
}

/// Runs `f`, the internals of an op that was counted already: with the default conventions,
/// counting nothing.
pub(crate) fn off<R>(f: impl FnOnce() -> R) -> R {
    events::without(COUNT | CONVENTIONS, f)
}

/// Runs `f`, whose derivative is given separately: kinks inside are not counted.
pub(crate) fn uncounted<R>(f: impl FnOnce() -> R) -> R {
    events::without(COUNT, f)
}

/// Runs `f` only to count, and not at all where nothing is counted. It saves nothing on the tape.
pub(crate) fn only_counted<R>(f: impl FnOnce() -> R) {
    if is_counting() {
        let count = || events::only(COUNT | CONVENTIONS, f);
        drop(packing::with_packers(Vec::new(), count));
    }
}

/// Runs `f`, the decomposition of an op: with the default conventions.
pub(crate) fn decomposed<R>(f: impl FnOnce() -> R) -> R {
    events::without(CONVENTIONS, f)
}

/// [`off`] for a part of a formula whose kinks are not kinks of the whole.
#[track_caller]
pub(crate) fn uncounted_part<R>(f: impl FnOnce() -> R) -> R {
    let at = mode::user_line(Line::caller());
    mode::with_line(at, || off(f))
}

/// Checks an op that has run.
pub(crate) fn check(op: &Op, inputs: &[&Tensor], outs: &[Tensor], at: Line) -> Result<()> {
    check_as(op.name(), op, inputs, outs, at)
}

/// [`check`] under the name of the function that the op is part of.
pub(crate) fn check_as(
    name: &'static str,
    op: &Op,
    inputs: &[&Tensor],
    outs: &[Tensor],
    at: Line,
) -> Result<()> {
    let Some((kind, spots)) = table::row(op).filter(|_| is_counting()) else { return Ok(()) };
    note(name, kind, inputs, at, |inputs| {
        let outs: SmallVec<[Tensor; 2]> = outs.iter().map(Tensor::detach).collect();
        spots(op, inputs, &outs)
    })
}

/// Reports the kinks of a function that has no op of its own.
#[track_caller]
pub(crate) fn at(
    name: &'static str,
    kind: KinkKind,
    operands: &[&Tensor],
    mask: impl FnOnce(&[Tensor]) -> Tensor,
) {
    if is_counting() {
        let at = mode::user_line(Line::caller());
        fail::or_raise(note(name, kind, operands, at, mask));
    }
}

/// A kink that an op, or a function without one, may have elements on.
struct KinkSite {
    name: &'static str,
    at: Line,
    place: &'static str,
    convention: String,
    operands: SmallVec<[Tensor; 2]>,
    /// Whether one of the operands is differentiated.
    differentiated: bool,
    /// Which elements of the result are at it.
    mask: Tensor,
}

fn note(
    name: &'static str,
    kind: KinkKind,
    operands: &[&Tensor],
    at: Line,
    mask: impl FnOnce(&[Tensor]) -> Tensor,
) -> Result<()> {
    if !operands.iter().any(|x| x.dtype().is_float()) {
        return Ok(());
    }
    let differentiated = operands.iter().any(|x| is_differentiated(x));
    // A body is differentiated where it is replayed, if at all. Ties of workers are found by all of
    // them, also by those that do not count them.
    if !differentiated && !trace::in_body() && kind != KinkKind::Workers {
        return Ok(());
    }
    if trace::active() && !is_collecting() {
        return unseen(name, at);
    }
    let row = kind.row(&conventions());
    let known: SmallVec<[Tensor; 2]> = operands.iter().map(|x| (*x).clone()).collect();
    // Not counted, or it would recurse.
    let mask = events::only(0, || {
        let find = || {
            let operands: SmallVec<[Tensor; 2]> = operands.iter().map(|x| x.detach()).collect();
            mask(&operands)
        };
        mode::set_recording(false, || mode::with_line(at, find))
    });
    KinkSite {
        name,
        at,
        place: row.place,
        convention: row.derivative,
        operands: known,
        differentiated,
        mask,
    }
    .count()
}

/// Whether what is computed from this tensor now may be differentiated.
fn is_differentiated(x: &Tensor) -> bool {
    let tracked = || mode::is_grad_enabled() && x.is_tracked();
    let dual = x.lock().tangents.iter().any(|t| t.0 >= mode::cut());
    x.dtype().is_float() && (dual || tracked())
}

impl KinkSite {
    /// Counts the elements, or leaves that to the body that is being traced.
    fn count(self) -> Result<()> {
        // As in `note`: outside of bodies it is known by now.
        if !self.differentiated && !trace::in_body() {
            return Ok(());
        }
        if is_collecting() {
            NOTED.with_borrow_mut(|all| all.last_mut().map(|last| last.1.push(self)));
            return Ok(());
        }
        if trace::active() {
            return unseen(self.name, self.at);
        }
        let hits = events::only(0, || self.mask.to_vec::<bool>());
        let elements = hits.iter().filter(|hit| **hit).count();
        if let (Some(first), true) = (hits.iter().position(|hit| *hit), STRICT.get()) {
            let message = format!(
                "{elements} of {} elements are at a kink ({}), the first at {:?}; the derivative taken there is {}",
                hits.len(),
                self.place,
                indices(first, self.mask.shape()),
                self.convention
            );
            let specs: Vec<_> = self.operands.iter().map(|x| x.spec().clone()).collect();
            return Err(Error::gradient(self.name, message).on(&specs).at(self.at));
        }
        let KinkSite { name, at, place, convention, .. } = self;
        let total = hits.len();
        let kink = Kink { op: name, at, place, convention, elements, total, calls: 1 };
        COUNTERS.with_borrow_mut(|all| {
            if let Some(counter) = all.last_mut() {
                counter.count(kink);
            }
        });
        Ok(())
    }
}

/// The indices of an element that is given by its number in row-major order.
fn indices(mut number: usize, shape: &[usize]) -> Vec<usize> {
    let mut list: Vec<usize> = Vec::with_capacity(shape.len());
    for &n in shape.iter().rev() {
        list.push(number % n);
        number /= n;
    }
    list.reverse();
    list
}

/// An op that may have kinks runs where its values are not known.
fn unseen(name: &'static str, at: Line) -> Result<()> {
    if STRICT.get() {
        let message =
            "whether elements are at its kinks is not known inside this trace, branch or loop";
        let error = Error::gradient(name, message).at(at);
        return Err(error.hint("leave it out of strict_kinks, or call the function eagerly"));
    }
    COUNTERS.with_borrow_mut(|all| {
        if let Some(counter) = all.last_mut() {
            counter.unseen(name, at);
        }
    });
    Ok(())
}

/// Where a body began: what is noted for it is counted when it is left, so a report or a strict
/// scope that begins inside gets none of it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct BodyScope {
    trace: u64,
    reports: usize,
    strict: bool,
}

impl BodyScope {
    fn here() -> BodyScope {
        let reports = COUNTERS.with_borrow(Vec::len);
        BodyScope { trace: trace::number(), reports, strict: STRICT.get() }
    }
}

/// Whether the innermost trace is a body whose kinks are collected.
pub(crate) fn is_collecting() -> bool {
    is_counting()
        && NOTED.with_borrow(|all| all.last().is_some_and(|last| last.0 == BodyScope::here()))
}

/// What the body of a `vmap` noted, in terms of its own variables.
pub(crate) struct BatchedKinks(Vec<KinkSite>);

/// Runs `f`, the body of a trace that has just begun, and gives what it noted.
pub(crate) fn collecting<R>(f: impl FnOnce() -> R) -> (R, BatchedKinks) {
    if !is_counting() {
        return (f(), BatchedKinks(Vec::new()));
    }
    NOTED.with_borrow_mut(|all| all.push((BodyScope::here(), Vec::new())));
    let _end = mode::on_drop(|| {
        let dropped = NOTED.with_borrow_mut(Vec::pop);
        drop(dropped);
    });
    let result = f();
    let noted = NOTED.with_borrow_mut(|all| all.last_mut().map(|last| std::mem::take(&mut last.1)));
    (result, BatchedKinks(noted.unwrap_or_default()))
}

impl BatchedKinks {
    /// The variables whose values are counted.
    pub fn tensors(&self) -> Vec<Tensor> {
        self.0.iter().flat_map(|n| n.operands.iter().chain([&n.mask])).cloned().collect()
    }
}

/// Counts what a body noted, once its values are computed.
pub(crate) fn count_collected(collected: BatchedKinks, values: Vec<Tensor>) -> Result<()> {
    let mut values = values.into_iter();
    for noted in collected.0 {
        let operands: SmallVec<[Tensor; 2]> = values.by_ref().take(noted.operands.len()).collect();
        let Some(mask) = values.next() else { break };
        let differentiated = noted.differentiated || operands.iter().any(is_differentiated);
        KinkSite { operands, differentiated, mask, ..noted }.count()?;
    }
    Ok(())
}
