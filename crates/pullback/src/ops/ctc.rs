//! The loss of a sequence of class probabilities against a shorter sequence of labels, over every way to stretch the labels.
//!
//! The labels are laid out with a blank before, between and after them. `alpha[s]` is the log-probability of all beginnings that end in place s
//! of that layout; a step stays, goes on by one place, or jumps over a blank between two different labels. All
//! samples of a batch go through the steps together; those that are over keep their values.
//!
//! As in PyTorch, the gradient is the one for normalised probabilities: it contains the part of a log-softmax, which is what a network trains with
//! (the difference vanishes behind a log-softmax). It enters as a term whose value is zero.

use crate::ops::losses::reduced;
use crate::{DType, Error, Reduction, Tensor, cat, stack};

/// Options of [`ctc`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ctc {
    /// The class that stands for "no label".
    pub blank: usize,
    /// A loss that is infinite (the labels do not fit into the sequence) counts as 0, and so does its gradient.
    pub zero_infinity: bool,
    /// How the losses become one number; the mean is over the batch, of each loss divided by its number of labels.
    pub reduction: Reduction,
}

/// −log of the probability of the labels, by connectionist temporal classification: log-probabilities `[t, n, classes]` (or `[t, classes]`), labels `[n, most]` or
/// all in one vector, and the lengths of both.
///
/// Derivative: with respect to the log-probabilities, eˣ − the probability of being at that class at that time (that of normalised
/// probabilities, as PyTorch has it).
///
/// ```
/// use pullback::{Tensor, losses};
/// let log_p = Tensor::full([2, 1, 2], 0.5f64.ln());
/// let loss = losses::ctc(&log_p, &Tensor::from([[1i64]]), &[2], &[1], losses::Ctc::default());
/// assert!((loss.item::<f64>() - (4.0f64 / 3.0).ln()).abs() < 1e-6);
/// ```
///
/// # Panics
/// If shapes and lengths do not fit each other, or a label is no class.
#[track_caller]
#[must_use]
pub fn ctc(log_p: &Tensor, labels: &Tensor, times: &[usize], counts: &[usize], how: Ctc) -> Tensor {
    let single = log_p.rank() == 2;
    let x = if single { log_p.unsqueeze(1) } else { log_p.clone() };
    let rows = log_p.checked(layout(log_p, &x, labels, times, counts, how.blank));
    let (t_max, n) = (x.shape()[0], x.shape()[1]);
    let most = rows.iter().map(Vec::len).max().unwrap_or(0);
    let places = 2 * most + 1;
    // The layout of each sample, and where it may jump over a blank.
    let at = |row: &[i64], s: usize| {
        if s % 2 == 1 { row.get(s / 2).copied() } else { None }.unwrap_or(how.blank as i64)
    };
    let all = |f: &dyn Fn(&[i64], usize) -> i64| -> Tensor {
        let values: Vec<i64> = rows
            .iter()
            .flat_map(|row| (0..places).map(|s| f(row, s)).collect::<Vec<_>>())
            .collect();
        Tensor::from_vec(values, [n, places])
    };
    let class = all(&at);
    let jumps =
        all(&|row, s| i64::from(s >= 3 && s % 2 == 1 && at(row, s) != at(row, s - 2))).eq(1);
    let seen = x.wide().gather(2, &class.unsqueeze(0).expand([t_max, n, places]));
    let never = Tensor::splat(f64::NEG_INFINITY.into(), &[n, places], seen.dtype());
    let lengths = Tensor::from_vec(times.iter().map(|&t| t as i64).collect::<Vec<_>>(), [n, 1]);
    let mut alpha: Option<Tensor> = None;
    for t in 0..t_max {
        let here = seen.select_at(0, t as isize);
        let next = match &alpha {
            None => {
                let first = all(&|_, s| i64::from(s < 2)).eq(1);
                first.select(&here, &never)
            }
            Some(alpha) => {
                let by = |k: usize| {
                    let moved = alpha.narrow(1, 0, places.saturating_sub(k));
                    cat(&[&never.narrow(1, 0, k.min(places)), &moved], 1)
                };
                let jumped = jumps.select(by(2), &never);
                stack(&[alpha, &by(1), &jumped], 0).logsumexp_over(0) + here
            }
        };
        let running = lengths.gt(t as i64);
        alpha = Some(match alpha {
            Some(before) => running.select(&next, &before),
            None => next,
        });
    }
    let start = all(&|_, s| i64::from(s == 0)).eq(1);
    let alpha = match alpha {
        Some(alpha) => lengths.gt(0i64).select(&alpha, start.select(never.zeros_like(), &never)),
        None => start.select(never.zeros_like(), &never),
    };
    let ends = all(&|row, s| {
        let last = 2 * row.len();
        i64::from(s == last || s + 1 == last)
    });
    let mut losses = -ends.eq(1).select(&alpha, &never).logsumexp_over(1);
    // Σ eˣ over the times of each sample, as a gradient alone.
    let clock = Tensor::iota(t_max).reshape([t_max, 1]).lt(lengths.reshape([1, n]));
    let mass = x.wide().exp().sum_over(2).only(&clock).sum_over(0);
    losses += &mass - mass.detach();
    if how.zero_infinity {
        losses = losses.only(&losses.detach().ne(f64::INFINITY));
    }
    let losses = losses.cast(log_p.reduced_dtype());
    match how.reduction {
        Reduction::Mean => {
            let count = |&k: &usize| k.max(1) as f64;
            let counts = Tensor::from_vec(counts.iter().map(count).collect::<Vec<_>>(), [n]);
            (&losses / counts.cast(losses.dtype())).mean()
        }
        Reduction::None if single => losses.squeeze_axis(0),
        other => reduced(losses, other),
    }
}

/// The labels of each sample.
fn layout(
    given: &Tensor,
    x: &Tensor,
    labels: &Tensor,
    times: &[usize],
    counts: &[usize],
    blank: usize,
) -> crate::Result<Vec<Vec<i64>>> {
    let op = "ctc";
    let on = [given.spec(), labels.spec()];
    if x.rank() != 3 {
        let message = format!("takes [t, n, classes] or [t, classes], not {}", given.spec());
        return Err(Error::shape(op, message).on(on));
    }
    let (t, n, classes) = (x.shape()[0], x.shape()[1], x.shape()[2]);
    let refuse = |message: String| Err(Error::argument(op, message).on(on));
    if labels.dtype().is_float() || labels.dtype() == DType::Bool {
        let message = format!("labels must be integers, not {}", labels.dtype());
        return Err(Error::dtype(op, message).on(on));
    }
    if times.len() != n || counts.len() != n {
        let found = (times.len(), counts.len());
        return refuse(format!("{n} samples want {n} lengths of both kinds, not {found:?}"));
    }
    if let Some(long) = times.iter().find(|&&k| k > t) {
        return refuse(format!(
            "a length of {long} is more than the {t} times of {}",
            given.spec()
        ));
    }
    if blank >= classes {
        return refuse(format!("the blank {blank} is not one of the {classes} classes"));
    }
    let values = labels.detach().cast(DType::I64).to_vec::<i64>();
    let mut rows = Vec::with_capacity(n);
    match labels.rank() {
        // A single sample, or all of them in one vector.
        1 => {
            let total = counts.iter().try_fold(0usize, |sum, &k| sum.checked_add(k));
            if total != Some(values.len()) && !(n == 1 && counts[0] <= values.len()) {
                return refuse(format!(
                    "{} labels are not as many as {counts:?} say",
                    values.len()
                ));
            }
            let mut from = 0;
            for &k in counts {
                rows.push(values[from..from + k].to_vec());
                from += k;
            }
        }
        2 if labels.shape()[0] == n && counts.iter().all(|&k| k <= labels.shape()[1]) => {
            let most = labels.shape()[1];
            rows.extend(
                counts.iter().enumerate().map(|(i, &k)| values[i * most..i * most + k].to_vec()),
            );
        }
        _ => {
            return refuse(format!(
                "labels {} do not hold {counts:?} for {n} samples",
                labels.spec()
            ));
        }
    }
    let wrong = |&&i: &&i64| i < 0 || i >= classes as i64;
    match rows.iter().flatten().find(wrong) {
        Some(i) => refuse(format!("label {i} is not one of the {classes} classes")),
        None => Ok(rows),
    }
}
