//! The loss of a sequence of class probabilities against a shorter sequence of labels, over all
//! alignments of the labels.
//!
//! One op, whose kernels walk over the times of each sample; its derivative is one too. Where that
//! is differentiated the formulas here run: the labels are laid out with a blank before, between
//! and after them, `alpha[s]` is the log-probability of all prefixes that end at position s of that
//! layout, `beta[s]` that of all that follows, and a step stays, advances by one position, or skips
//! a blank between two different labels. All samples of a batch are processed together; finished
//! ones keep their values.
//!
//! As in PyTorch, the gradient is the one for normalised probabilities: it contains the part of a
//! log-softmax, which is what a network trains with (the difference vanishes behind a log-softmax).
//! It enters as a term whose value is zero.

use crate::apply::apply;
use crate::ops::losses::reduced;
use crate::ops::one_pass::is_value_alone;
use crate::rule::{ByHand, Derivatives, Grad, RuleContext, Tensors, Val};
use crate::{DType, Error, Op, Reduction, Result, Tensor, cat, mode, scan, stack, trace};
use pullback_ir::{Fused, Line};
use smallvec::smallvec;

/// Options of [`ctc`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ctc {
    /// The class of the blank label.
    pub blank: usize,
    /// A loss that is infinite (the labels do not fit into the sequence) counts as 0, and so does
    /// its gradient.
    pub zero_infinity: bool,
    /// How the losses become one number; the mean is over the batch, of each loss divided by its
    /// number of labels.
    pub reduction: Reduction,
}

/// −log of the probability of the labels, by connectionist temporal classification:
/// log-probabilities `[t, n, classes]` (or `[t, classes]`), labels `[n, most]` or all in one
/// vector, and the lengths of both.
///
/// Derivative: with respect to the log-probabilities, eˣ − the probability of being at that class
/// at that time (that of normalised probabilities, as PyTorch has it).
///
/// ```
/// use pullback::{Tensor, losses};
/// let log_p = Tensor::full([2, 1, 2], 0.5f64.ln());
/// let loss = losses::ctc(&log_p, &Tensor::from([[1i64]]), &[2], &[1], losses::Ctc::default());
/// assert!((loss.item::<f64>() - (4.0f64 / 3.0).ln()).abs() < 1e-6);
/// ```
///
/// Traced labels are not checked here: a label out of range is then an error when the program runs.
///
/// # Panics
/// If shapes and lengths do not fit each other, or a label is no class.
#[track_caller]
#[must_use]
pub fn ctc(log_p: &Tensor, labels: &Tensor, times: &[usize], counts: &[usize], how: Ctc) -> Tensor {
    let at = mode::user_line(Line::caller());
    let x = batched(log_p);
    let labels = log_p.checked(layout(log_p, &x, labels, times, counts, how.blank));
    let list = |lengths: &[usize]| -> Tensor {
        x.new_from_vec(lengths.iter().map(|&k| k as i64).collect::<Vec<_>>(), [lengths.len()])
    };
    mode::with_line(at, || loss(log_p, &x, &labels, &list(times), &list(counts), how))
}

/// [`ctc`] with the lengths as tensors, of integers `[n]`, and labels `[n, most]`: what a compiled
/// step takes as arguments, whatever the lengths of a batch are. A length beyond the sequence, or
/// beyond the labels, counts as the whole.
///
/// Derivative: as of [`ctc`].
///
/// ```
/// use pullback::{Tensor, jit, losses};
/// let loss = jit(|(x, y, t, n): &(Tensor, Tensor, Tensor, Tensor)| {
///     losses::ctc_by(x, y, t, n, losses::Ctc::default())
/// });
/// let log_p = Tensor::full([2, 1, 2], 0.5f64.ln());
/// let (labels, times, counts) = (Tensor::from([[1i64]]), Tensor::from([2i64]), Tensor::from([1i64]));
/// let found = loss.of(&(log_p, labels, times, counts));
/// assert!((found.item::<f64>() - (4.0f64 / 3.0).ln()).abs() < 1e-6);
/// ```
///
/// # Panics
/// If shapes do not fit each other, or labels and lengths are not integers.
#[track_caller]
#[must_use]
pub fn ctc_by(
    log_p: &Tensor,
    labels: &Tensor,
    times: &Tensor,
    counts: &Tensor,
    how: Ctc,
) -> Tensor {
    let at = mode::user_line(Line::caller());
    let x = batched(log_p);
    log_p.checked(check_by(log_p, &x, [labels, times, counts], how.blank));
    mode::with_line(at, || {
        let [labels, times, counts] = [labels, times, counts].map(|x| x.detach().cast(DType::I64));
        let n = x.shape()[1];
        let most = labels.shape()[labels.rank() - 1];
        let labels = labels.reshape([n, most]);
        let times = times.reshape([n]).clamp(0, x.shape()[0] as i64);
        let counts = counts.reshape([n]).clamp(0, most as i64);
        loss(log_p, &x, &labels, &times, &counts, how)
    })
}

/// With an axis of samples.
fn batched(log_p: &Tensor) -> Tensor {
    if log_p.rank() == 2 { log_p.unsqueeze(1) } else { log_p.clone() }
}

/// The loss of `[t, n, classes]` against labels `[n, most]`, with both lengths `[n]`.
fn loss(
    given: &Tensor,
    x: &Tensor,
    labels: &Tensor,
    times: &Tensor,
    counts: &Tensor,
    how: Ctc,
) -> Tensor {
    let (t_max, n) = (x.shape()[0], x.shape()[1]);
    let x = &x.real();
    let op = Op::Fused(Fused::Ctc { blank: how.blank });
    let mut losses = apply(op, &[x, labels, times, counts]);
    if !is_value_alone(x) {
        // Σ eˣ over the times of each sample, as a gradient alone.
        let clock = x.new_iota(t_max).reshape([t_max, 1]).lt(times.reshape([1, n]));
        let mass = x.wide().exp().sum_over(2).only(&clock).sum_over(0);
        losses += &mass - mass.detach();
    }
    if how.zero_infinity {
        losses = losses.only(&losses.detach().ne(f64::INFINITY));
    }
    let losses = losses.cast(given.reduced_dtype());
    match how.reduction {
        Reduction::Mean => (&losses / counts.clamp_min(1i64).cast(losses.dtype())).mean(),
        Reduction::None if given.rank() == 2 => losses.squeeze_axis(0),
        other => reduced(losses, other),
    }
}

pub(super) fn row() -> Grad {
    use Val::In;
    Grad::ByHand(ByHand {
        uses: &[In(0), In(1), In(2), In(3)],
        vjp,
        jvp,
        formula: "`dx[t, n, k] = -dy[n] * p`, the probability of class k at time t, over all \
                  alignments of the labels of sample n",
    })
}

fn blank_of(op: &Op) -> usize {
    match op {
        Op::Fused(Fused::Ctc { blank } | Fused::CtcVjp { blank }) => *blank,
        _ => unreachable!("called for ctc"),
    }
}

/// The gradient of the log-probabilities.
fn pulled(f: &RuleContext, dy: &Tensor) -> Tensor {
    let op = Op::Fused(Fused::CtcVjp { blank: blank_of(f.op) });
    apply(op, &[f.x(0), f.x(1), f.x(2), f.x(3), dy])
}

fn vjp(f: &RuleContext, dys: &Derivatives) -> Derivatives {
    smallvec![dys[0].as_ref().map(|dy| pulled(f, dy)), None, None, None]
}

fn jvp(f: &RuleContext, t: &Derivatives) -> Tensors {
    let x = f.x(0);
    let along = |tx: &Tensor| {
        let one = x.new_ones_with([x.shape()[1]], x.dtype().compute());
        (pulled(f, &one).wide() * tx.wide()).sum_over([0, 2])
    };
    t[0].iter().map(along).collect()
}

/// The layout of the labels of each sample: the class of each place, and whether a step may skip
/// the one before: to a label that is not the one before that.
fn places(labels: &Tensor, counts: &Tensor, blank: i64) -> (Tensor, Tensor) {
    let (n, most) = (labels.shape()[0], labels.shape()[1]);
    let places = 2 * most + 1;
    let number = labels.new_iota(places).unsqueeze(0);
    // Blanks are at even places, and after the last label.
    let is_label = labels.new_iota(most).unsqueeze(0).lt(counts.unsqueeze(1));
    let label = is_label.select(labels, blank);
    let pairs = stack(&[&label.full_like(blank), &label], 2).reshape([n, 2 * most]);
    let class = cat(&[&pairs, &labels.new_full_of([n, 1], blank)], 1);
    let jumps = match most {
        0 => labels.new_full_of([n, places], false),
        _ => {
            let other = class.narrow(1, 2, places - 2).ne(class.narrow(1, 0, places - 2));
            let odd = number.remainder(2i64).eq(1i64);
            cat(&[&labels.new_full_of([n, 2], false), &other], 1).logical_and(odd)
        }
    };
    (class, jumps)
}

/// A step from the places of a line to those after them, which may jump there.
fn step(line: &Tensor, never: &Tensor, jumps: &Tensor) -> Tensor {
    let count = line.shape()[1];
    let by = |k: usize| {
        let moved = line.narrow(1, 0, count.saturating_sub(k));
        cat(&[&never.narrow(1, 0, k.min(count)), &moved], 1)
    };
    let jumped = jumps.select(by(2), never);
    stack(&[line, &by(1), &jumped], 0).logsumexp_over(0)
}

/// The gradient of the log-probabilities, by formulas.
pub(super) fn slope(op: &Op, inputs: &[&Tensor]) -> Tensors {
    let [x, labels, times, counts, dy] = *inputs else { unreachable!("five operands") };
    let (t_max, n, most) = (x.shape()[0], x.shape()[1], labels.shape()[1]);
    if x.is_empty() {
        return Tensors::One(x.zeros_like());
    }
    let count = 2 * most + 1;
    let (times, counts) = (times.clamp(0, t_max as i64), counts.clamp(0, most as i64));
    let (class, jumps) = places(labels, &counts, blank_of(op) as i64);
    let number = x.new_iota(count).unsqueeze(0);
    let classes = class.unsqueeze(0).expand([t_max, n, count]);
    let seen = x.wide().gather(2, &classes);
    let never = seen.new_splat(f64::NEG_INFINITY.into(), &[n, count], seen.dtype());
    let (lengths, rest) = (times.unsqueeze(1), x.new_iota(t_max - 1) + 1i64);
    let first = number.lt(2i64).select(seen.select_at(0, 0), &never);
    let forwards = |alpha: &Tensor, (t, here): &(Tensor, Tensor)| {
        let next = step(alpha, &never, &jumps) + here;
        let next = lengths.gt(t).select(next, alpha);
        (next.clone(), next)
    };
    let (last, later) = scan(forwards, &first, &(rest.clone(), seen.narrow(0, 1, t_max - 1)));
    let alpha = cat(&[&first.unsqueeze(0), &later], 0);
    // Where an alignment ends: after the last label, or at it.
    let end = &counts.unsqueeze(1) * 2i64;
    let is_end = number.eq(&end).logical_or((&number + 1i64).eq(&end));
    let total = is_end.select(&last, &never).logsumexp_over(1).unsqueeze(1);
    let ends = is_end.select(never.zeros_like(), &never);
    // Jumps from a place, of lines that are read from their end.
    let ahead = match most {
        0 => jumps.clone(),
        _ => cat(&[&jumps.narrow(1, 2, count - 2), &jumps.narrow(1, 0, 2)], 1).flip(1),
    };
    let backwards = |beta: &Tensor, (t, here): &(Tensor, Tensor)| {
        let next = step(&(beta + here).flip(1), &never, &ahead).flip(1);
        let next = lengths.gt(t).select(next, &ends);
        (next.clone(), next)
    };
    let after = (rest.flip(0), seen.narrow(0, 1, t_max - 1).flip(0));
    let (_, earlier) = scan(backwards, &ends, &after);
    let beta = cat(&[&earlier.flip(0), &ends.unsqueeze(0)], 0);
    let clock = x.new_iota(t_max).reshape([t_max, 1, 1]).lt(times.reshape([1, n, 1]));
    let possible = total.ne(f64::NEG_INFINITY);
    let finite = possible.select(&total, total.zeros_like());
    let log = possible.select(alpha + beta - finite, &never);
    let parts = -(clock.select(log.exp(), log.zeros_like()) * dy.wide().unsqueeze(1));
    let zeros = x.wide().zeros_like();
    Tensors::One(zeros.scatter_add(2, &classes, &parts).cast(x.dtype()))
}

/// Checks common to both forms of lengths.
fn check(given: &Tensor, x: &Tensor, labels: &Tensor, blank: usize) -> Result<()> {
    let on = [given.spec(), labels.spec()];
    if x.rank() != 3 {
        let message = format!("takes [t, n, classes] or [t, classes], not {}", given.spec());
        return Err(Error::shape("ctc", message).on(on));
    }
    if labels.dtype().is_float() || labels.dtype() == DType::Bool {
        let message = format!("labels must be integers, not {}", labels.dtype());
        return Err(Error::dtype("ctc", message).on(on));
    }
    let classes = x.shape()[2];
    if blank >= classes {
        let message = format!("the blank {blank} is not one of the {classes} classes");
        return Err(Error::argument("ctc", message).on(on));
    }
    Ok(())
}

fn check_by(
    given: &Tensor,
    x: &Tensor,
    [labels, times, counts]: [&Tensor; 3],
    blank: usize,
) -> Result<()> {
    check(given, x, labels, blank)?;
    let n = x.shape()[1];
    let on = [given.spec(), labels.spec(), times.spec(), counts.spec()];
    let integers = |x: &Tensor| !x.dtype().is_float() && x.dtype() != DType::Bool;
    if !integers(times) || !integers(counts) {
        return Err(Error::dtype("ctc", "lengths must be integers").on(on));
    }
    let rows = match labels.rank() {
        1 => given.rank() == 2,
        rank => rank == 2 && labels.shape()[0] == n,
    };
    if !rows || times.len() != n || counts.len() != n || times.rank() > 1 || counts.rank() > 1 {
        let message =
            format!("expected labels [{n}, max_length], {n} input lengths and {n} target lengths");
        return Err(Error::shape("ctc", message).on(on));
    }
    let classes = x.shape()[2] as i64;
    if trace::on_host(labels) && trace::on_host(counts) {
        let most = labels.shape()[labels.rank() - 1];
        let values = labels.detach().cast(DType::I64).to_vec::<i64>();
        let counts = counts.detach().cast(DType::I64).to_vec::<i64>();
        let wrong = |(i, &label): (usize, &i64)| {
            let is_label = ((i % most) as i64) < counts[i / most];
            (is_label && !(0..classes).contains(&label)).then_some(label)
        };
        if let Some(label) = values.iter().enumerate().find_map(wrong) {
            return Err(not_a_class(label, classes).on(on));
        }
    }
    Ok(())
}

fn not_a_class(label: i64, classes: i64) -> Error {
    Error::argument("ctc", format!("label {label} is not one of the {classes} classes"))
}

/// The labels of each sample in a row, as long as the longest. What comes after them is ignored.
fn layout(
    given: &Tensor,
    x: &Tensor,
    labels: &Tensor,
    times: &[usize],
    counts: &[usize],
    blank: usize,
) -> Result<Tensor> {
    check(given, x, labels, blank)?;
    let on = [given.spec(), labels.spec()];
    let (t, n, classes) = (x.shape()[0], x.shape()[1], x.shape()[2] as i64);
    let refuse = |message: String| Err(Error::argument("ctc", message).on(on));
    if times.len() != n || counts.len() != n {
        let found = (times.len(), counts.len());
        return refuse(format!("expected {n} input lengths and {n} target lengths, not {found:?}"));
    }
    if let Some(long) = times.iter().find(|&&k| k > t) {
        return refuse(format!(
            "a length of {long} is more than the {t} times of {}",
            given.spec()
        ));
    }
    // Where each row begins.
    let mut starts = Vec::with_capacity(n);
    match labels.rank() {
        // A single sample, or all of them in one vector.
        1 => {
            let total = counts.iter().try_fold(0usize, |sum, &k| sum.checked_add(k));
            let found = labels.len();
            if total != Some(found) && !(n == 1 && counts[0] <= found) {
                return refuse(format!(
                    "target lengths {counts:?} must add up to the number of labels, {found}"
                ));
            }
            let mut from = 0;
            for &k in counts {
                starts.push(from);
                from += k;
            }
        }
        2 if labels.shape()[0] == n && counts.iter().all(|&k| k <= labels.shape()[1]) => {
            starts.extend((0..n).map(|i| i * labels.shape()[1]));
        }
        _ => {
            return refuse(format!(
                "labels {} do not hold {counts:?} for {n} samples",
                labels.spec()
            ));
        }
    }
    let most = counts.iter().copied().max().unwrap_or(0);
    let places: Vec<Option<usize>> = starts
        .iter()
        .zip(counts)
        .flat_map(|(&from, &k)| (0..most).map(move |j| (j < k).then_some(from + j)))
        .collect();
    let flat = labels.detach().cast(DType::I64).reshape([labels.len()]);
    if trace::on_host(&flat) {
        let values = flat.to_vec::<i64>();
        let wrong = |&place: &usize| !(0..classes).contains(&values[place]);
        if let Some(place) = places.iter().flatten().copied().find(wrong) {
            return Err(not_a_class(values[place], classes).on(on));
        }
    }
    if places.is_empty() {
        return Ok(flat.new_zeros_with([n, most], DType::I64));
    }
    let index: Vec<i64> = places.iter().map(|place| place.unwrap_or(0) as i64).collect();
    Ok(flat.index_select(0, &flat.new_tensor(index)).reshape([n, most]))
}
