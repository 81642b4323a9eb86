//! Softmax-like kernels over the lines of any axis.
//!
//! A [`RowKernel`] computes one line; the driver here loads and stores lines. There are two
//! methods:
//!
//! - **rows**: one line at a time, vectors along the line. For long lines that are the last axis
//!   (or have few neighbours).
//! - **columns**: a block of 16 or 64 neighbouring lines at a time, vectors across the lines, a
//!   tile `[n, W]` of scratch. For axes that are not the last, where neighbouring lines are
//!   contiguous, and for short lines, which would not fill a vector.

use super::lanes::{AlignedScratch, ComputeFloat, Prefetch, Results};
use super::lanes::{is_streamed, load, padded, share, store, view};
use crate::elem::{Elem, with_elem};
use crate::operand::{Sink, Source};
use crate::par;
use crate::simd::{Isa, SimdTask, vectorised};
use crate::walk::Walk;
use pullback_ir::{Shape, Strides};
use std::marker::PhantomData;

/// Elements per task of columns.
const TASK: usize = 1 << 14;
/// Lines shorter than this are processed by columns.
const SHORT: usize = 32;
/// Lines with fewer contiguous neighbours than this are processed by rows, unless short.
const NARROW: usize = 8;
/// Lines longer than this are processed by narrow blocks of columns, so that the tile stays in
/// cache.
const LONG: usize = 4096;

/// The computation on a line.
pub(super) trait RowKernel {
    /// What scratch is padded with.
    const PAD: f64;
    /// Whether there is a second operand.
    const TWO: bool;
    /// Whether the result is one element.
    const REDUCE: bool;
    /// The statistics of the whole line `a` (and of the second operand `b`) that each element
    /// needs; `to` is scratch for one value each, and `ahead` the next line, to be prefetched. For
    /// a reduction, the first number is the result.
    fn row<C: ComputeFloat, I: Isa>(a: &[C], b: &[C], to: &mut [C], ahead: Prefetch) -> [C; 2];
    /// An element of the result, from those of the operands and of scratch.
    fn finish<C: ComputeFloat, I: Isa>(a: C, b: C, to: C, whole: [C; 2]) -> C;
    /// All of it on `W` lines: element `i` of line `j` is `a[i * W + j]`. The result replaces `a`,
    /// or its first `W` elements.
    fn columns<C: ComputeFloat, I: Isa, const W: usize>(a: &mut [C], b: &[C]);
}

/// Runs `L` over the lines along `axis`. The second operand, if `L` has one, has the shape of `x`.
pub(super) fn lines<L: RowKernel>(
    axis: usize,
    x: Source<'_>,
    second: Option<Source<'_>>,
    out: Sink<'_>,
) {
    with_elem!(float x.dtype, E => lines_as::<L, E>(axis, x, second.unwrap_or(x), out));
}

/// What a task needs to know; made inside the task, as it holds pointers.
struct LineTask<'a, E> {
    /// Over the axes that are not normalised: the starts of the lines of both operands.
    walk: &'a Walk<2>,
    x: *const E,
    second: *const E,
    out: *mut E,
    /// Strides of the operands along the lines.
    along: [isize; 2],
    /// Length of a line.
    n: usize,
    /// Stride of the result along its lines.
    inner: usize,
    /// Whether contiguous lines of the result are streamed past the caches.
    streamed: bool,
    /// The lines of this task.
    from: usize,
    to: usize,
}

fn lines_as<L: RowKernel, E: Elem<Compute: ComputeFloat>>(
    axis: usize,
    x: Source<'_>,
    second: Source<'_>,
    out: Sink<'_>,
) {
    if x.shape.is_empty() {
        let [x, second] = [x, second].map(|s| Source { shape: &[1], strides: &[1], ..s });
        let shape: &[usize] = if L::REDUCE { &[] } else { &[1] };
        return lines_as::<L, E>(0, x, second, Sink { shape, ..out });
    }
    let n = x.shape[axis];
    let inner: usize = x.shape[axis + 1..].iter().product();
    let mut shape = Shape::from_slice(x.shape);
    shape.remove(axis);
    let rest = |s: Source<'_>| {
        let mut strides = Strides::from_slice(s.strides);
        strides.remove(axis);
        strides
    };
    let walk = &Walk::new(&shape, [&rest(x), &rest(second)]);
    let count = walk.len();
    if count == 0 || (n == 0 && !L::REDUCE) {
        return;
    }
    let along = [x.strides[axis], second.strides[axis]];
    let streamed = !L::REDUCE && inner == 1 && is_streamed(out, n);
    let task = |from: usize, to: usize| LineTask::<E> {
        walk,
        x: { x }.ptr.cast(),
        second: { second }.ptr.cast(),
        out: { out }.ptr.cast(),
        along,
        n,
        inner,
        streamed,
        from,
        to,
    };
    if n >= SHORT && inner < NARROW {
        let each = share(count, n);
        par::for_each(count.div_ceil(each), |t| {
            vectorised(RowTask(task(t * each, count.min((t + 1) * each)), PhantomData::<L>));
        });
        return;
    }
    // Blocks do not cross the end of a run of contiguous lines.
    let run = if inner < NARROW { count } else { inner };
    let width = if run <= 16 || n > LONG { 16 } else { 64 };
    let each = (TASK / n.max(1)).max(1).next_multiple_of(width);
    let parts = run.div_ceil(each);
    par::for_each(count / run * parts, |t| {
        let (start, part) = (t / parts * run, t % parts);
        let task = task(start + part * each, start + run.min((part + 1) * each));
        if width == 16 {
            vectorised(Columns::<E, 16>::of::<L>(task))
        } else {
            vectorised(Columns::<E, 64>::of::<L>(task))
        }
    });
}

struct RowTask<'a, L, E>(LineTask<'a, E>, PhantomData<L>);

impl<L: RowKernel, E: Elem<Compute: ComputeFloat>> SimdTask for RowTask<'_, L, E> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let LineTask { walk, x, second, out, along, n, inner, from, to, streamed, .. } = self.0;
        let pad = E::Compute::real(L::PAD);
        let mut a = AlignedScratch::new(padded(n), pad);
        let mut b = AlignedScratch::new(if L::TWO { padded(n) } else { 0 }, pad);
        let mut c = AlignedScratch::new(padded(n), pad);
        let c = c.as_mut();
        let mut results = Results::new(out, n, streamed);
        // No closures here: one that is not inlined would be compiled for the baseline.
        for line in from..to {
            let at = walk.offsets(line);
            // SAFETY: the walk and the length of the axis stay inside the operands; this line of
            // the result is this task's alone, and a sink aliases no source.
            unsafe {
                let a = view(x.offset(at[0]), along[0], n, a.as_mut());
                let b =
                    if L::TWO { view(second.offset(at[1]), along[1], n, b.as_mut()) } else { a };
                let ahead = if along[0] == 1 && line + 1 < to {
                    Prefetch::new(x.offset(walk.offsets(line + 1)[0]))
                } else {
                    Prefetch::NONE
                };
                let whole = L::row::<E::Compute, I>(a, b, c, ahead);
                if L::REDUCE {
                    out.add(line).write(E::store(whole[0]));
                    continue;
                }
                if inner == 1 {
                    let out = results.start(line);
                    for (i, ((&a, &b), &c)) in a[..n].iter().zip(b).zip(&*c).enumerate() {
                        out.add(i).write(E::store(L::finish::<E::Compute, I>(a, b, c, whole)));
                    }
                    results.end(line);
                } else {
                    let out = out.add(line / inner * n * inner + line % inner);
                    for (i, ((&a, &b), &c)) in a[..n].iter().zip(b).zip(&*c).enumerate() {
                        out.add(i * inner)
                            .write(E::store(L::finish::<E::Compute, I>(a, b, c, whole)));
                    }
                }
            }
        }
    }
}

/// Lines by columns. What loads and stores is compiled for each dtype, and what computes once for
/// each compute type: a call for a tile costs little.
struct Columns<'a, E: Elem, const W: usize> {
    task: LineTask<'a, E>,
    pad: f64,
    two: bool,
    reduce: bool,
    compute: fn(&mut [E::Compute], &[E::Compute]),
}

impl<'a, E: Elem<Compute: ComputeFloat>, const W: usize> Columns<'a, E, W> {
    fn of<L: RowKernel>(task: LineTask<'a, E>) -> Self {
        let compute = |a: &mut [E::Compute], b: &[E::Compute]| {
            vectorised(LineTile::<L, E::Compute, W> { a, b, line: PhantomData });
        };
        Columns { task, pad: L::PAD, two: L::TWO, reduce: L::REDUCE, compute }
    }
}

/// The computation on a tile.
struct LineTile<'a, L, C, const W: usize> {
    a: &'a mut [C],
    b: &'a [C],
    line: PhantomData<L>,
}

impl<L: RowKernel, C: ComputeFloat, const W: usize> SimdTask for LineTile<'_, L, C, W> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        L::columns::<C, I, W>(self.a, self.b);
    }
}

/// The starts of `W` lines, and whether they are adjacent.
struct Starts<const W: usize> {
    offsets: [isize; W],
    contiguous: bool,
}

/// Loads `width` lines into a tile.
///
/// # Safety
/// The lines can be read.
#[inline(always)]
unsafe fn load_columns<E: Elem, const W: usize>(
    from: *const E,
    starts: &Starts<W>,
    width: usize,
    along: isize,
    tile: &mut [E::Compute],
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if starts.contiguous {
            for (i, to) in tile.chunks_exact_mut(W).enumerate() {
                load(from.offset(starts.offsets[0] + i as isize * along), 1, &mut to[..width]);
            }
        } else {
            for (j, &start) in starts.offsets[..width].iter().enumerate() {
                for (i, to) in tile.chunks_exact_mut(W).enumerate() {
                    to[j] = (*from.offset(start + i as isize * along)).load();
                }
            }
        }
    }
}

impl<E: Elem<Compute: ComputeFloat>, const W: usize> SimdTask for Columns<'_, E, W> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let Columns { task, pad, two, reduce, compute } = self;
        let LineTask { walk, x, second, out, along, n, inner, from, to, .. } = task;
        // An empty reduction still has results: the padding of the tile.
        let pad = E::Compute::real(pad);
        let mut a = AlignedScratch::new(n.max(1) * W, pad);
        let mut b = AlignedScratch::new(if two { n * W } else { 0 }, pad);
        let (a, b) = (a.as_mut(), b.as_mut());
        let mut start = from;
        while start < to {
            let width = W.min(to - start);
            let mut starts = [0, 1].map(|_| Starts { offsets: [0; W], contiguous: false });
            walk.for_range(start..start + width, |run| {
                for (k, starts) in starts.iter_mut().enumerate() {
                    for j in 0..run.len {
                        starts.offsets[run.start - start + j] =
                            run.offsets[k] + j as isize * run.strides[k];
                    }
                    starts.contiguous = run.len == width && (run.strides[k] == 1 || width == 1);
                }
            });
            // SAFETY: as in `RowTask`.
            unsafe {
                if n > 0 {
                    load_columns(x, &starts[0], width, along[0], a);
                }
                if two {
                    load_columns(second, &starts[1], width, along[1], b);
                }
                compute(a, b);
                if reduce {
                    store(&a[..width], out.add(start), 1);
                } else if inner >= NARROW {
                    let out = out.add(start / inner * n * inner + start % inner);
                    for (i, from) in a.chunks_exact(W).enumerate() {
                        store(&from[..width], out.add(i * inner), 1);
                    }
                } else {
                    for j in 0..width {
                        let line = start + j;
                        let out = out.add(line / inner * n * inner + line % inner);
                        for (i, from) in a.chunks_exact(W).enumerate() {
                            out.add(i * inner).write(E::store(from[j]));
                        }
                    }
                }
            }
            if width < W || n == 0 {
                a.fill(pad);
            }
            start += width;
        }
    }
}
