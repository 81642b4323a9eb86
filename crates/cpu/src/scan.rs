//! Cumulative reductions (scans) along an axis, forwards or backwards.
//!
//! A line along the axis is inherently sequential, so the work is split by lines: over the threads,
//! and, if the lines are adjacent in memory, over vector lanes.
//!
//! **Dense lines** are cut into links where that is possible: for maxima, minima, and sums that
//! cannot overflow (integers, and floats narrower than the f64 they are summed in). A cumulative
//! product, or a sum of f64, of a part might overflow where that of the whole does not. Eight links
//! are scanned at the same time, so that the processor has eight independent additions in flight;
//! then the total before each link is added to all of its results. A few very long lines are also
//! cut into blocks for the threads: first the total of each block, then, from the totals before it,
//! its results. The cuts depend on the length of a line alone. Of lines that are not cut, eight are
//! scanned at the same time.
//!
//! Floats are accumulated in f64, so a cumulative sum of a million f32 is exact to the rounding of
//! each result. The cumulative `log(sum(exp(x)))` keeps the largest element so far, and the sum of
//! exponentials relative to it, so that nothing overflows.

use crate::elem::{Compute, with_elem};
use crate::operand::{Sink, Source};
use crate::par::{self, Shared};
use crate::simd::{Isa, SimdTask, vectorised};
use crate::walk::Walk;
use crate::widen::{is_narrow, narrowed, widened};
use pullback_ir::{Cumulation, DType};

/// Elements that are worth a task.
const GRAIN: usize = 1 << 14;
/// Adjacent lines that are scanned together.
const TOGETHER: usize = 32;

/// The lines of a tensor along one axis, numbered in row-major order of the other axes.
pub(crate) struct AxisLines {
    /// Elements in a line.
    pub(crate) len: usize,
    /// Distance between neighbours of a line in the source.
    pub(crate) step: isize,
    /// Distance between neighbours of a line in a dense tensor of the same shape.
    pub(crate) dense_step: usize,
    others: Walk<1>,
}

impl AxisLines {
    pub(crate) fn new(x: &Source, axis: usize) -> AxisLines {
        let drop = |d: &usize| *d != axis;
        let shape: Vec<usize> = (0..x.shape.len()).filter(drop).map(|d| x.shape[d]).collect();
        let strides: Vec<isize> = (0..x.shape.len()).filter(drop).map(|d| x.strides[d]).collect();
        AxisLines {
            len: x.shape[axis],
            step: x.strides[axis],
            dense_step: x.shape[axis + 1..].iter().product(),
            others: Walk::new(&shape, [&strides]),
        }
    }

    /// Number of lines.
    pub(crate) fn count(&self) -> usize {
        self.others.len()
    }

    /// Offset of the first element of a line in the source.
    pub(crate) fn start(&self, line: usize) -> isize {
        self.others.offsets(line)[0]
    }

    /// Offset of the first element of a line in a dense tensor of the same shape.
    pub(crate) fn dense_start(&self, line: usize) -> usize {
        line / self.dense_step * self.dense_step * self.len + line % self.dense_step
    }
}

/// What is carried along a line: floats in f64, integers in i64.
trait Carry<C>: Copy + Send + Sync {
    /// Whether a line may be cut into links.
    const CUTS: bool;
    fn start() -> Self;
    fn take(&mut self, x: C);
    fn give(&self) -> C;
    /// What is carried after this link, if `before` is carried into it.
    fn after(self, before: Self) -> Self;
}

/// Defines a carry from a neutral element and an operation.
macro_rules! carry {
    ($name:ident, $($c:ty as $wide:ty, $cuts:literal: $neutral:expr, $join:expr;)*) => {
        #[derive(Clone, Copy)]
        pub(super) struct $name<W>(W);
        $(
            impl Carry<$c> for $name<$wide> {
                const CUTS: bool = $cuts;
                #[inline(always)]
                fn start() -> Self {
                    $name($neutral)
                }
                #[inline(always)]
                fn after(self, before: Self) -> Self {
                    $name($join(before.0, self.0))
                }
                #[inline(always)]
                fn take(&mut self, x: $c) {
                    self.0 = $join(self.0, x as $wide);
                }
                #[inline(always)]
                fn give(&self) -> $c {
                    self.0 as $c
                }
            }
        )*
    };
}
#[rustfmt::skip]
mod carries {
    use super::{Carry, larger, smaller};
    carry!(Sum,  f32 as f64, true: 0.0, |a, b| a + b;   f64 as f64, false: 0.0, |a, b| a + b;  i64 as i64, true: 0, i64::wrapping_add;);
    carry!(Prod, f32 as f64, false: 1.0, |a, b| a * b;  f64 as f64, false: 1.0, |a, b| a * b;  i64 as i64, false: 1, i64::wrapping_mul;);
    carry!(Max,  f32 as f64, true: f64::NEG_INFINITY, larger;  f64 as f64, true: f64::NEG_INFINITY, larger;   i64 as i64, true: i64::MIN, Ord::max;);
    carry!(Min,  f32 as f64, true: f64::INFINITY, smaller;     f64 as f64, true: f64::INFINITY, smaller;      i64 as i64, true: i64::MAX, Ord::min;);
}

#[inline(always)]
#[allow(clippy::eq_op)] // unequal to itself: NaN, which stays once it came
fn larger(a: f64, b: f64) -> f64 {
    if (b > a) | (b != b) { b } else { a }
}

#[inline(always)]
#[allow(clippy::eq_op)]
fn smaller(a: f64, b: f64) -> f64 {
    if (b < a) | (b != b) { b } else { a }
}

/// `log(sum(exp(x)))` so far is `top + ln(sum)`, where `top` is the largest so far.
#[derive(Clone, Copy)]
struct LogSumExp {
    top: f64,
    sum: f64,
}

impl LogSumExp {
    #[inline(always)]
    fn push(&mut self, x: f64) {
        if x == self.top {
            // Also for two infinities, whose difference would be NaN.
            self.sum += 1.0;
        } else if x < self.top {
            self.sum += (x - self.top).exp();
        } else {
            // Larger, or NaN on either side, which then propagates.
            self.sum = self.sum * (self.top - x).exp() + 1.0;
            self.top = x;
        }
    }

    #[inline(always)]
    fn value(&self) -> f64 {
        if self.sum == 0.0 { self.top } else { self.top + self.sum.ln() }
    }
}

macro_rules! log_sum_exp {
    ($($c:ty)*) => {$(
        impl Carry<$c> for LogSumExp {
            const CUTS: bool = false;
            fn after(self, _: Self) -> Self {
                unreachable!("these lines are not split")
            }
            fn start() -> Self {
                LogSumExp { top: f64::NEG_INFINITY, sum: 0.0 }
            }
            #[inline(always)]
            fn take(&mut self, x: $c) {
                self.push(x as f64);
            }
            #[inline(always)]
            fn give(&self) -> $c {
                self.value() as $c
            }
        }
    )*};
}
log_sum_exp!(f32 f64);

/// The carries of a compute type.
trait Carried: Sized {
    type Sum: Carry<Self>;
    type Prod: Carry<Self>;
    type Max: Carry<Self>;
    type Min: Carry<Self>;
}
macro_rules! carried {
    ($($c:ty as $wide:ty)*) => {$(
        impl Carried for $c {
            type Sum = carries::Sum<$wide>;
            type Prod = carries::Prod<$wide>;
            type Max = carries::Max<$wide>;
            type Min = carries::Min<$wide>;
        }
    )*};
}
carried!(f32 as f64 f64 as f64 i64 as i64);

/// The cumulative reduction of `x` along `axis`; from the end to the front if `reverse`.
pub(crate) fn cumulate(kind: Cumulation, axis: usize, reverse: bool, x: Source, out: Sink) {
    if out.is_empty() {
        return;
    }
    if is_narrow(x.dtype) {
        return widened("cumulate", x, |x| match is_narrow(out.dtype) {
            true => narrowed("cumulate", out, |wide| cumulate(kind, axis, reverse, x, wide)),
            false => cumulate(kind, axis, reverse, x, out),
        });
    }
    with_elem!(compute x.dtype, S => match kind {
        Cumulation::Sum => run::<S, <S as Carried>::Sum>(axis, reverse, x, out),
        Cumulation::Prod => run::<S, <S as Carried>::Prod>(axis, reverse, x, out),
        Cumulation::Max => run::<S, <S as Carried>::Max>(axis, reverse, x, out),
        Cumulation::Min => run::<S, <S as Carried>::Min>(axis, reverse, x, out),
        Cumulation::LogSumExp => log_sum_exp(axis, reverse, x, out),
    });
}

/// The cumulative `log(sum(exp(x)))`, of floats alone.
fn log_sum_exp(axis: usize, reverse: bool, x: Source, out: Sink) {
    match x.dtype {
        DType::F64 => run::<f64, LogSumExp>(axis, reverse, x, out),
        DType::F32 => run::<f32, LogSumExp>(axis, reverse, x, out),
        other => unreachable!("`infer` accepts only floats, not {other}"),
    }
}

fn run<S: Compute, K: Carry<S>>(axis: usize, reverse: bool, x: Source, out: Sink) {
    let lines = AxisLines::new(&x, axis);
    let count = lines.count();
    if K::CUTS && lines.dense_step == 1 && lines.step == 1 && lines.len >= PIECE {
        return match reverse {
            true => dense::<S, K, true>(&lines, x, out),
            false => dense::<S, K, false>(&lines, x, out),
        };
    }
    if lines.dense_step == 1 {
        return rows::<S, K>(&lines, reverse, x, out);
    }
    // Lines scanned together are adjacent in the output, and may be in the source.
    let together = TOGETHER.min(lines.dense_step);
    let per_block = lines.dense_step.div_ceil(together);
    let bundles = count / lines.dense_step * per_block;
    let group = GRAIN.div_ceil(lines.len * together);
    par::for_each(bundles.div_ceil(group), |task| {
        let (x, out) = (&x, &out);
        for bundle in task * group..bundles.min((task + 1) * group) {
            let first = bundle / per_block * lines.dense_step + bundle % per_block * together;
            let width = together.min(lines.dense_step - bundle % per_block * together);
            let mut carries = [K::start(); TOGETHER];
            let mut starts = [0isize; TOGETHER];
            for (j, start) in starts[..width].iter_mut().enumerate() {
                *start = lines.start(first + j);
            }
            let (from, to) =
                (x.ptr.cast::<S>(), out.ptr.cast::<S>().wrapping_add(lines.dense_start(first)));
            for i in 0..lines.len {
                let i = if reverse { lines.len - 1 - i } else { i };
                let to = to.wrapping_add(i * lines.dense_step);
                let from = from.wrapping_offset(i as isize * lines.step);
                for j in 0..width {
                    // SAFETY: inside the source and the output; these lines are this task's.
                    unsafe {
                        carries[j].take(*from.wrapping_offset(starts[j]));
                        *to.add(j) = carries[j].give();
                    }
                }
            }
        }
    });
}

/// Lines that are rows of the output: several at the same time, as the steps of one line wait for
/// each other.
fn rows<S: Compute, K: Carry<S>>(lines: &AxisLines, reverse: bool, x: Source, out: Sink) {
    let (len, count) = (lines.len, lines.count());
    let group = GRAIN.div_ceil(len).next_multiple_of(ROWS);
    par::for_each(count.div_ceil(group), |task| {
        let end = count.min((task + 1) * group);
        let mut line = task * group;
        while line < end {
            // A row that is missing is scanned as another one, again.
            let last = end - 1;
            let from: [*const S; ROWS] = std::array::from_fn(|j| {
                { x }.ptr.cast::<S>().wrapping_offset(lines.start(last.min(line + j)))
            });
            let to: [*mut S; ROWS] = std::array::from_fn(|j| {
                { out }.ptr.cast::<S>().wrapping_add(last.min(line + j) * len)
            });
            let mut carries = [K::start(); ROWS];
            for i in 0..len {
                let i = if reverse { len - 1 - i } else { i };
                for j in 0..ROWS {
                    // SAFETY: inside the source and the output; these lines are this task's.
                    unsafe {
                        carries[j].take(*from[j].offset(i as isize * lines.step));
                        *to[j].add(i) = carries[j].give();
                    }
                }
            }
            line += ROWS;
        }
    });
}

/// Rows that are scanned at the same time.
const ROWS: usize = 8;
/// Links that are scanned at the same time, and the elements of each.
const LINKS: usize = 8;
const LINK: usize = 64;
const PIECE: usize = LINKS * LINK;
/// Elements of a very long line in a task, and the number of lines below which lines are cut.
const BLOCK: usize = 1 << 15;
const FEW: usize = 8;

/// Lines that are dense in source and output.
fn dense<S: Compute, K: Carry<S>, const REVERSE: bool>(lines: &AxisLines, x: Source, out: Sink) {
    let (len, count) = (lines.len, lines.count());
    let part = |line: usize, from: usize, n: usize, carry: K| {
        // The part from `from` on, counted from where the line starts.
        let first = if REVERSE { len - from - n } else { from };
        ScanPart::<S, K, REVERSE> {
            x: { x }.ptr.cast::<S>().wrapping_offset(lines.start(line)).wrapping_add(first),
            out: { out }.ptr.cast::<S>().wrapping_add(lines.dense_start(line) + first),
            n,
            carry,
        }
    };
    if count >= FEW || len < 2 * BLOCK {
        let group = GRAIN.div_ceil(len);
        par::for_each(count.div_ceil(group), |task| {
            for line in task * group..count.min((task + 1) * group) {
                vectorised(part(line, 0, len, K::start()));
            }
        });
        return;
    }
    let blocks = len.div_ceil(BLOCK);
    let mut carries = vec![K::start(); count * blocks];
    let totals = Shared(carries.as_mut_ptr());
    let size = |block: usize| BLOCK.min(len - block * BLOCK);
    par::for_each(count * blocks, |task| {
        let (line, block) = (task / blocks, task % blocks);
        let part = part(line, block * BLOCK, size(block), K::start());
        // SAFETY: the part is inside the source; its total is this task's.
        unsafe { *totals.at(task) = total(&part) };
    });
    for line in carries.chunks_exact_mut(blocks) {
        let mut before = K::start();
        for carry in line {
            let total = std::mem::replace(carry, before);
            before = total.after(before);
        }
    }
    par::for_each(count * blocks, |task| {
        let (line, block) = (task / blocks, task % blocks);
        // SAFETY: all are filled, and only read.
        let carry = unsafe { *totals.at(task) };
        vectorised(part(line, block * BLOCK, size(block), carry));
    });
}

/// A dense part of a line, and what is carried into it.
struct ScanPart<S, K, const REVERSE: bool> {
    x: *const S,
    out: *mut S,
    n: usize,
    carry: K,
}

/// The total of a part with no carry in, folded over lanes.
///
/// # Safety
/// The part lies inside the source.
unsafe fn total<S: Compute, K: Carry<S>, const REVERSE: bool>(part: &ScanPart<S, K, REVERSE>) -> K {
    // SAFETY: guaranteed by the caller.
    let x = unsafe { std::slice::from_raw_parts(part.x, part.n) };
    let mut lanes = [K::start(); 16];
    let chunks = x.chunks_exact(16);
    for (lane, x) in lanes.iter_mut().zip(chunks.remainder()) {
        lane.take(*x);
    }
    for x in chunks {
        for (lane, x) in lanes.iter_mut().zip(x) {
            lane.take(*x);
        }
    }
    lanes.into_iter().fold(K::start(), |all, lane| lane.after(all))
}

/// Scans the links of a piece at the same time. Compiled for the baseline: with wider vectors, the
/// compiler would gather one element of each link, and scatter the results, which takes three times
/// as long as scalars do.
///
/// # Safety
/// There is a piece at `x`.
#[inline(never)]
unsafe fn scan_interleaved<S, K, const REVERSE: bool>(
    x: *const S,
    held: &mut [K; PIECE],
) -> [K; LINKS]
where
    S: Compute,
    K: Carry<S>,
{
    // SAFETY: guaranteed by the caller.
    let x = unsafe { &*x.cast::<[S; PIECE]>() };
    let mut links = [K::start(); LINKS];
    for i in 0..LINK {
        for (k, link) in links.iter_mut().enumerate() {
            let at = k * LINK + i;
            let at = if REVERSE { PIECE - 1 - at } else { at };
            link.take(x[at]);
            held[at] = *link;
        }
    }
    links
}

impl<S: Compute, K: Carry<S>, const REVERSE: bool> SimdTask for ScanPart<S, K, REVERSE> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let ScanPart { x, out, n, mut carry } = self;
        let mut held = [K::start(); PIECE];
        let mut done = 0;
        // SAFETY: elements below `n` of the source and of the output, which is this task's.
        unsafe {
            while done + PIECE <= n {
                let first = if REVERSE { n - done - PIECE } else { done };
                let (x, out) = (x.add(first), out.add(first));
                let links = scan_interleaved::<S, K, REVERSE>(x, &mut held);
                for (k, link) in links.into_iter().enumerate() {
                    let from = if REVERSE { PIECE - (k + 1) * LINK } else { k * LINK };
                    for (i, sum) in held[from..from + LINK].iter().enumerate() {
                        out.add(from + i).write(sum.after(carry).give());
                    }
                    carry = link.after(carry);
                }
                done += PIECE;
            }
            for i in done..n {
                let at = if REVERSE { n - 1 - i } else { i };
                carry.take(*x.add(at));
                out.add(at).write(carry.give());
            }
        }
    }
}

#[cfg(test)]
mod tests;
