//! Connectionist temporal classification: the log-probability of labels over all alignments, and
//! its gradient.
//!
//! The labels of a sample are laid out with a blank before, between and after them. `alpha[s]` is
//! the log-probability of all prefixes that end at place s; a step stays, advances by one place, or
//! jumps over a blank between two different labels:
//!
//! ```text
//! alpha[t][s] = x[t][class[s]] + logsumexp(alpha[t-1][s], alpha[t-1][s-1], alpha[t-1][s-2] if it jumps)
//! beta[t][s]  = logsumexp of the same steps backwards, of beta[t+1][s'] + x[t+1][class[s']]
//! dx[t][k]    = -dy · Σ exp(alpha[t][s] + beta[t][s] - log p), over the places s of class k
//! ```
//!
//! Vectors go across places, which are padded with such that are never reached. A task is a sample.

use crate::dot::scratch;
use crate::elem::with_elem;
use crate::index::IndexError;
use crate::norm::lanes::{AlignedScratch, ComputeFloat};
use crate::operand::{Sink, Source};
use crate::par;
use crate::simd::{Isa, SimdTask, vectorised};
use crate::widen::wide_floats;

/// Places are padded to a multiple.
const LANES: usize = 16;

/// From log-probabilities `[t, n, c]`, labels `[n, most]` and the numbers of times and of labels
/// `[n]`: the losses `[n]`.
pub(crate) fn ctc(blank: usize, x: &[Source], out: Sink) -> Result<(), IndexError> {
    check(x)?;
    wide_floats("ctc", x, &[out], |x, out| {
        with_elem!(wide x[0].dtype, E => run::<E>(blank, x, None, out[0]));
    });
    Ok(())
}

/// From the operands of [`ctc`] and the cotangent of the losses, in the compute type: that of the
/// log-probabilities.
pub(crate) fn ctc_vjp(blank: usize, x: &[Source], out: Sink) -> Result<(), IndexError> {
    check(x)?;
    wide_floats("ctc_vjp", x, &[out], |x, out| {
        with_elem!(wide x[0].dtype, E => run::<E>(blank, x, Some(x[4]), out[0]));
    });
    Ok(())
}

/// An integer of an operand.
fn integer(x: &Source, index: &[usize]) -> i64 {
    let at: isize = index.iter().zip(x.strides).map(|(&i, s)| i as isize * s).sum();
    // SAFETY: callers give indices of the operand, which is of i64.
    unsafe { *x.ptr.cast::<i64>().offset(at) }
}

/// A length, which counts as the whole if it is more.
fn length(x: &Source, sample: usize, most: usize) -> usize {
    usize::try_from(integer(x, &[sample])).unwrap_or(0).min(most)
}

/// Labels are classes.
fn check(x: &[Source]) -> Result<(), IndexError> {
    let (labels, len) = (&x[1], x[0].shape[2]);
    let (n, most) = (labels.shape[0], labels.shape[1]);
    for sample in 0..n {
        for place in 0..length(&x[3], sample, most) {
            let index = integer(labels, &[sample, place]);
            if !usize::try_from(index).is_ok_and(|index| index < len) {
                return Err(IndexError { index, position: sample * most + place, len });
            }
        }
    }
    Ok(())
}

fn run<C: ComputeFloat>(blank: usize, x: &[Source], dy: Option<Source>, out: Sink) {
    if out.is_empty() {
        return;
    }
    par::for_each(x[0].shape[1], |sample| {
        vectorised(Sample { blank, x, dy, out, sample, of: std::marker::PhantomData::<C> });
    });
}

struct Sample<'a, C> {
    blank: usize,
    x: &'a [Source<'a>],
    dy: Option<Source<'a>>,
    out: Sink<'a>,
    sample: usize,
    of: std::marker::PhantomData<C>,
}

impl<C: ComputeFloat> SimdTask for Sample<'_, C> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let (x, most) = (&self.x[0], self.x[1].shape[1]);
        let times = length(&self.x[2], self.sample, x.shape[0]);
        let places = 2 * length(&self.x[3], self.sample, most) + 1;
        let kept = if self.dy.is_some() { times.max(1) } else { 2 };
        let (never, zero) = (C::real(f64::NEG_INFINITY), C::real(0.0));
        // Two places before the first, which are never reached.
        let line = places.next_multiple_of(LANES) + 2;
        let mut memory = AlignedScratch::new((kept + 5) * line, never);
        let (alpha, rest) = memory.as_mut().split_at_mut(kept * line);
        let (here, rest) = rest.split_at_mut(line);
        let (jumps, rest) = rest.split_at_mut(line);
        let (_classes, classes) = scratch::<usize>(places);
        // SAFETY: as many as were asked for, written here first.
        let classes = unsafe {
            (0..places).for_each(|s| *classes.at(s) = self.class(s));
            std::slice::from_raw_parts(classes.at(0), places)
        };
        for s in (3..places).step_by(2).filter(|&s| classes[s] != classes[s - 2]) {
            jumps[s] = zero;
        }
        for t in 0..times {
            for (here, &class) in here.iter_mut().zip(classes) {
                *here = self.at(t, class);
            }
            if t == 0 {
                let both = places.min(2);
                alpha[2..][..both].copy_from_slice(&here[..both]);
                continue;
            }
            let (before, now) = rows(alpha, [(t - 1) % kept, t % kept], line);
            step::<C, I>(before, jumps, here, now);
        }
        // Of no times, an empty prefix ends at the first place.
        let ends = match times {
            0 => [if places == 1 { zero } else { never }, never],
            _ => {
                let last = &alpha[(times - 1) % kept * line..][..places + 2];
                [last[places + 1], last[places]]
            }
        };
        let total = log_sum::<C, I>(ends[0], ends[1], never);
        match self.dy {
            // SAFETY: the loss of this sample.
            None => unsafe { self.out.ptr.cast::<C>().add(self.sample).write(zero - total) },
            Some(dy) => {
                // SAFETY: the cotangent of this sample.
                let dy =
                    unsafe { *dy.ptr.cast::<C>().offset(self.sample as isize * dy.strides[0]) };
                let lines = (&*alpha, here, &*jumps, rest);
                self.backwards::<I>(lines, classes, (total, dy), times);
            }
        }
    }
}

impl<C: ComputeFloat> Sample<'_, C> {
    /// The class of a place.
    fn class(&self, s: usize) -> usize {
        // Checked before: a class.
        if s % 2 == 1 { integer(&self.x[1], &[self.sample, s / 2]) as usize } else { self.blank }
    }

    /// The log-probability of a class.
    #[inline(always)]
    fn at(&self, t: usize, class: usize) -> C {
        let (x, index) = (&self.x[0], [t, self.sample, class]);
        let at: isize = index.iter().zip(x.strides).map(|(&i, s)| i as isize * s).sum();
        // SAFETY: inside the operand, whose elements are of the compute type.
        unsafe { *x.ptr.cast::<C>().offset(at) }
    }

    /// The cotangent of this sample's log-probabilities. Lines of beta are read from their end, so
    /// that its steps are those of alpha.
    #[inline(always)]
    fn backwards<I: Isa>(
        &self,
        (alpha, here, jumps, rest): (&[C], &mut [C], &[C], &mut [C]),
        classes: &[usize],
        (total, dy): (C, C),
        times: usize,
    ) {
        let (t_max, n, c) = (self.x[0].shape[0], self.x[0].shape[1], self.x[0].shape[2]);
        let (never, zero) = (C::real(f64::NEG_INFINITY), C::real(0.0));
        let (line, places) = (here.len(), classes.len());
        let row = |t: usize| self.out.ptr.cast::<C>().wrapping_add((t * n + self.sample) * c);
        for t in 0..t_max {
            // SAFETY: the rows of this sample are this task's alone; all bits zero are 0.
            unsafe { std::ptr::write_bytes(row(t), 0, c) };
        }
        // Labels that do not fit have no alignment, and no gradient.
        if total == never {
            return;
        }
        let (beta, rest) = rest.split_at_mut(line);
        let (next, back) = rest.split_at_mut(line);
        for s in 2..places {
            back[places + 1 - s] = jumps[s];
        }
        for t in (0..times).rev() {
            if t + 1 == times {
                beta[2..2 + places.min(2)].fill(zero);
            } else {
                for (beta, &class) in beta[2..2 + places].iter_mut().rev().zip(classes) {
                    *beta = *beta + self.at(t + 1, class);
                }
                here.fill(zero);
                step::<C, I>(beta, back, here, next);
                beta[2..].copy_from_slice(&next[2..]);
            }
            let both = alpha[t * line + 2..].iter().zip(beta[2..2 + places].iter().rev());
            for (here, (&alpha, &beta)) in here.iter_mut().zip(both) {
                let log = alpha + beta - total;
                *here = if log > zero { zero } else { log };
            }
            for here in &mut here[..line - 2] {
                *here = here.exp_down::<I>();
            }
            for (&p, &class) in here.iter().zip(classes) {
                // SAFETY: a row of this sample, which was filled.
                unsafe { *row(t).add(class) = *row(t).add(class) - dy * p };
            }
        }
    }
}

/// A row to read and one to write.
#[inline(always)]
fn rows<C>(all: &mut [C], [from, to]: [usize; 2], line: usize) -> (&[C], &mut [C]) {
    if from < to {
        let (low, high) = all.split_at_mut(to * line);
        return (&low[from * line..][..line], &mut high[..line]);
    }
    let (low, high) = all.split_at_mut(from * line);
    (&high[..line], &mut low[to * line..][..line])
}

/// A step of all places, plus what is here.
#[inline(always)]
fn step<C: ComputeFloat, I: Isa>(before: &[C], jumps: &[C], here: &[C], now: &mut [C]) {
    let n = now.len() - 2;
    let (stay, by_one, by_two) = (&before[2..][..n], &before[1..][..n], &before[..n]);
    let (jumps, here, now) = (&jumps[..n], &here[..n], &mut now[2..][..n]);
    for s in 0..n {
        now[s] = log_sum::<C, I>(stay[s], by_one[s], by_two[s] + jumps[s]) + here[s];
    }
}

/// log(eᵃ + eᵇ + eᶜ)
#[inline(always)]
fn log_sum<C: ComputeFloat, I: Isa>(a: C, b: C, c: C) -> C {
    let most = if a > b { a } else { b };
    let most = if c > most { c } else { most };
    let shift = if most == C::real(f64::NEG_INFINITY) { C::real(0.0) } else { most };
    let sum =
        (a - shift).exp_down::<I>() + (b - shift).exp_down::<I>() + (c - shift).exp_down::<I>();
    sum.log::<I>() + shift
}
