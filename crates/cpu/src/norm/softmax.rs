//! Softmax, log-softmax and log-sum-exp along an axis.
//!
//! A softmax of a line that is −∞ throughout, or has a +∞ or a NaN in it, is NaN, as in the
//! formula. The log-sum-exp of such lines is −∞, +∞ and NaN, and that of an empty line −∞.

use super::lanes::{ComputeFloat, Prefetch, dot, exp_sum, larger, largest, shift, sum};
use super::lines::{RowKernel, lines};
use crate::operand::{Sink, Source};
use crate::simd::Isa;

/// `exp(x) / sum(exp(x))` along `axis`.
pub(crate) fn softmax(axis: usize, x: Source<'_>, out: Sink<'_>) {
    lines::<Softmax>(axis, x, None, out);
}

/// From `y = softmax(x)` and `dy`: `y · (dy − sum(y·dy))`.
pub(crate) fn softmax_vjp(axis: usize, y: Source<'_>, dy: Source<'_>, out: Sink<'_>) {
    lines::<SoftmaxVjp>(axis, y, Some(dy), out);
}

/// `x − log(sum(exp(x)))` along `axis`.
pub(crate) fn log_softmax(axis: usize, x: Source<'_>, out: Sink<'_>) {
    lines::<LogSoftmax>(axis, x, None, out);
}

/// From `y = log_softmax(x)` and `dy`: `dy − exp(y) · sum(dy)`.
pub(crate) fn log_softmax_vjp(axis: usize, y: Source<'_>, dy: Source<'_>, out: Sink<'_>) {
    lines::<LogSoftmaxVjp>(axis, y, Some(dy), out);
}

/// `log(sum(exp(x)))` along `axis`, which disappears.
pub(crate) fn log_sum_exp(axis: usize, x: Source<'_>, out: Sink<'_>) {
    lines::<LogSumExpRows>(axis, x, None, out);
}

/// The largest of each column.
#[inline(always)]
fn largest_of<C: ComputeFloat, const W: usize>(a: &[C]) -> [C; W] {
    let mut most = [C::real(f64::NEG_INFINITY); W];
    for a in a.chunks_exact(W) {
        for j in 0..W {
            most[j] = larger(a[j], most[j]);
        }
    }
    most
}

/// Rows of a tile that are summed before the sums are added to those of the rows above.
const PIECE: usize = 64;

/// The sum of each column, in two levels so that the error does not grow with the length.
#[inline(always)]
fn sum_of<C: ComputeFloat, const W: usize>(a: &[C]) -> [C; W] {
    let mut sums = [C::default(); W];
    for a in a.chunks(PIECE * W) {
        let mut piece = [C::default(); W];
        for a in a.chunks_exact(W) {
            for j in 0..W {
                piece[j] = piece[j] + a[j];
            }
        }
        for j in 0..W {
            sums[j] = sums[j] + piece[j];
        }
    }
    sums
}

struct Softmax;

impl RowKernel for Softmax {
    const PAD: f64 = f64::NEG_INFINITY;
    const TWO: bool = false;
    const REDUCE: bool = false;

    #[inline(always)]
    fn row<C: ComputeFloat, I: Isa>(a: &[C], _: &[C], to: &mut [C], ahead: Prefetch) -> [C; 2] {
        let most = largest(a);
        [C::real(1.0) / exp_sum::<C, I>(a, most, to, ahead), most]
    }

    #[inline(always)]
    fn finish<C: ComputeFloat, I: Isa>(_: C, _: C, to: C, [scale, _]: [C; 2]) -> C {
        to * scale
    }

    #[inline(always)]
    fn columns<C: ComputeFloat, I: Isa, const W: usize>(a: &mut [C], _: &[C]) {
        let most = largest_of::<C, W>(a);
        for a in a.chunks_exact_mut(W) {
            for j in 0..W {
                a[j] = (a[j] - most[j]).exp_down::<I>();
            }
        }
        let mut scale = sum_of::<C, W>(a);
        for scale in &mut scale {
            *scale = C::real(1.0) / *scale;
        }
        for a in a.chunks_exact_mut(W) {
            for j in 0..W {
                a[j] = a[j] * scale[j];
            }
        }
    }
}

struct SoftmaxVjp;

impl RowKernel for SoftmaxVjp {
    const PAD: f64 = 0.0;
    const TWO: bool = true;
    const REDUCE: bool = false;

    #[inline(always)]
    fn row<C: ComputeFloat, I: Isa>(y: &[C], dy: &[C], _: &mut [C], _: Prefetch) -> [C; 2] {
        [dot::<C, I>(y, dy), C::default()]
    }

    #[inline(always)]
    fn finish<C: ComputeFloat, I: Isa>(y: C, dy: C, _: C, [mean, _]: [C; 2]) -> C {
        y * (dy - mean)
    }

    #[inline(always)]
    fn columns<C: ComputeFloat, I: Isa, const W: usize>(a: &mut [C], b: &[C]) {
        let mut mean = [C::default(); W];
        for (y, dy) in a.chunks(PIECE * W).zip(b.chunks(PIECE * W)) {
            let mut piece = [C::default(); W];
            for (y, dy) in y.chunks_exact(W).zip(dy.chunks_exact(W)) {
                for j in 0..W {
                    piece[j] = y[j].fma::<I>(dy[j], piece[j]);
                }
            }
            for j in 0..W {
                mean[j] = mean[j] + piece[j];
            }
        }
        for (y, dy) in a.chunks_exact_mut(W).zip(b.chunks_exact(W)) {
            for j in 0..W {
                y[j] = y[j] * (dy[j] - mean[j]);
            }
        }
    }
}

struct LogSoftmax;

impl RowKernel for LogSoftmax {
    const PAD: f64 = f64::NEG_INFINITY;
    const TWO: bool = false;
    const REDUCE: bool = false;

    #[inline(always)]
    fn row<C: ComputeFloat, I: Isa>(a: &[C], _: &[C], to: &mut [C], ahead: Prefetch) -> [C; 2] {
        let most = largest(a);
        [most, exp_sum::<C, I>(a, most, to, ahead).log::<I>()]
    }

    #[inline(always)]
    fn finish<C: ComputeFloat, I: Isa>(a: C, _: C, _: C, [most, log]: [C; 2]) -> C {
        (a - most) - log
    }

    #[inline(always)]
    fn columns<C: ComputeFloat, I: Isa, const W: usize>(a: &mut [C], _: &[C]) {
        let most = largest_of::<C, W>(a);
        let mut log = exp_sums_of::<C, I, W>(a, &most);
        for log in &mut log {
            *log = log.log::<I>();
        }
        for a in a.chunks_exact_mut(W) {
            for j in 0..W {
                a[j] = (a[j] - most[j]) - log[j];
            }
        }
    }
}

/// The sum of `exp(a − shift)` of each column.
#[inline(always)]
fn exp_sums_of<C: ComputeFloat, I: Isa, const W: usize>(a: &[C], shift: &[C; W]) -> [C; W] {
    let mut sums = [C::default(); W];
    for a in a.chunks(PIECE * W) {
        let mut piece = [C::default(); W];
        for a in a.chunks_exact(W) {
            for j in 0..W {
                piece[j] = piece[j] + (a[j] - shift[j]).exp_down::<I>();
            }
        }
        for j in 0..W {
            sums[j] = sums[j] + piece[j];
        }
    }
    sums
}

struct LogSoftmaxVjp;

impl RowKernel for LogSoftmaxVjp {
    const PAD: f64 = 0.0;
    const TWO: bool = true;
    const REDUCE: bool = false;

    #[inline(always)]
    fn row<C: ComputeFloat, I: Isa>(_: &[C], dy: &[C], _: &mut [C], _: Prefetch) -> [C; 2] {
        [sum(dy), C::default()]
    }

    #[inline(always)]
    fn finish<C: ComputeFloat, I: Isa>(y: C, dy: C, _: C, [total, _]: [C; 2]) -> C {
        dy - y.exp::<I>() * total
    }

    #[inline(always)]
    fn columns<C: ComputeFloat, I: Isa, const W: usize>(a: &mut [C], b: &[C]) {
        let total = sum_of::<C, W>(b);
        for (y, dy) in a.chunks_exact_mut(W).zip(b.chunks_exact(W)) {
            for j in 0..W {
                y[j] = dy[j] - y[j].exp::<I>() * total[j];
            }
        }
    }
}

struct LogSumExpRows;

impl RowKernel for LogSumExpRows {
    const PAD: f64 = f64::NEG_INFINITY;
    const TWO: bool = false;
    const REDUCE: bool = true;

    #[inline(always)]
    fn row<C: ComputeFloat, I: Isa>(a: &[C], _: &[C], to: &mut [C], ahead: Prefetch) -> [C; 2] {
        let by = shift(largest(a));
        [exp_sum::<C, I>(a, by, to, ahead).log::<I>() + by, by]
    }

    #[inline(always)]
    fn finish<C: ComputeFloat, I: Isa>(_: C, _: C, _: C, [result, _]: [C; 2]) -> C {
        result
    }

    #[inline(always)]
    fn columns<C: ComputeFloat, I: Isa, const W: usize>(a: &mut [C], _: &[C]) {
        let mut by = largest_of::<C, W>(a);
        for by in &mut by {
            *by = shift(*by);
        }
        let sums = exp_sums_of::<C, I, W>(a, &by);
        for j in 0..W {
            a[j] = sums[j].log::<I>() + by[j];
        }
    }
}
