//! Reductions over any set of axes: sum, product, max, min, argmax and argmin.
//!
//! # Two methods
//!
//! The axes are split into those kept and those reduced, each collapsed as far as its strides
//! allow. The method depends on which kind has the smallest stride:
//!
//! - **Rows**: a reduced axis is innermost (`[n, c] → [n]`, or everything). Each result is folded
//!   from runs, over 64 independent lanes that are joined at the end of a block.
//! - **Columns**: a kept axis is innermost (`[n, c] → [c]`, the gradient of a bias). A block of
//!   results is folded together, eight rows at a time.
//!
//! # Accuracy and determinism
//!
//! Floats narrower than f64 are summed in f32, but in blocks of 4096 elements (or 512 rows), whose
//! sums are joined pairwise (or in a second level), so the error grows with the logarithm of the
//! length rather than with the length. Large reductions to few results are cut into pieces for the
//! threads; the cuts depend on shapes only, and the pieces are joined in order, so the bits are the
//! same for any number of threads.

use crate::buffer::Buffer;
use crate::elem::{Compute, Elem, with_elem};
use crate::operand::{Sink, Source};
use crate::par::Shared;
use crate::simd::{Level, level};
use crate::walk::Walk;
use crate::{par, pointwise};
use pullback_ir::{DType, Reduction, Scalar};
use smallvec::SmallVec;
use std::ops::Range;

/// Elements that are worth a task.
const GRAIN: usize = 1 << 15;
/// Most pieces that a long reduction is cut into, for the threads.
const PIECES: usize = 64;
/// Elements of a fold that is cut, at least.
const UNCUT: usize = 64;
/// Elements folded by lanes before the lanes are joined.
const BLOCK: usize = 4096;
const LANES: usize = 64;
/// Results that a task of the column method folds together.
const RESULTS: usize = 1024;
/// Rows folded before they are joined to the total of the column method.
const ROWS: usize = 512;
/// Results of the row method that are written together.
const TOGETHER_SAVED: usize = 64;

/// An associative operation with a neutral element.
trait Fold<A: Copy>: 'static {
    const NEUTRAL: A;
    fn join(a: A, b: A) -> A;
    /// Whether `new` is more extreme than `old`; for folds that look for an extreme.
    #[inline(always)]
    fn beats(_new: A, _old: A) -> bool {
        false
    }
}

struct Sum;
struct Prod;
struct Max;
struct Min;

macro_rules! folds {
    ($($t:ty: $zero:literal $one:literal $lowest:expr, $highest:expr, $add:expr, $mul:expr;)*) => {$(
        impl Fold<$t> for Sum {
            const NEUTRAL: $t = $zero;
            #[inline(always)]
            fn join(a: $t, b: $t) -> $t {
                $add(a, b)
            }
        }
        impl Fold<$t> for Prod {
            const NEUTRAL: $t = $one;
            #[inline(always)]
            fn join(a: $t, b: $t) -> $t {
                $mul(a, b)
            }
        }
        #[allow(clippy::eq_op)] // unequal to itself: NaN, which stays once it came
        impl Fold<$t> for Max {
            const NEUTRAL: $t = $lowest;
            #[inline(always)]
            fn join(a: $t, b: $t) -> $t {
                if (b > a) | (b != b) { b } else { a }
            }
            #[inline(always)]
            fn beats(new: $t, old: $t) -> bool {
                new > old
            }
        }
        #[allow(clippy::eq_op)]
        impl Fold<$t> for Min {
            const NEUTRAL: $t = $highest;
            #[inline(always)]
            fn join(a: $t, b: $t) -> $t {
                if (b < a) | (b != b) { b } else { a }
            }
            #[inline(always)]
            fn beats(new: $t, old: $t) -> bool {
                new < old
            }
        }
    )*};
}
folds! {
    f64: 0.0 1.0 f64::NEG_INFINITY, f64::INFINITY, |a, b| a + b, |a, b| a * b;
    f32: 0.0 1.0 f32::NEG_INFINITY, f32::INFINITY, |a, b| a + b, |a, b| a * b;
    i64: 0 1 i64::MIN, i64::MAX, i64::wrapping_add, i64::wrapping_mul;
}

/// Reduces `axes` (in rising order) of `x`. The dtype of `out` has the same compute type as `x`.
pub(crate) fn reduce(kind: Reduction, axes: &[usize], x: Source, out: Sink) {
    if out.is_empty() {
        return;
    }
    if x.is_empty()
        && let Some(value) = extreme_of_none(kind, out.dtype)
    {
        return pointwise::fill(value, out);
    }
    with_elem!(compute x.dtype.compute(), A => match kind {
        Reduction::Sum => run::<A, Sum>(axes, x, out),
        Reduction::Prod => run::<A, Prod>(axes, x, out),
        Reduction::Max => run::<A, Max>(axes, x, out),
        Reduction::Min => run::<A, Min>(axes, x, out),
    });
}

/// The max or min of no elements: the neutral value of the dtype. For booleans, the max (any) is
/// false and the min (all) is true.
pub(crate) fn extreme_of_none(kind: Reduction, dtype: DType) -> Option<Scalar> {
    match (kind, dtype) {
        (Reduction::Max, DType::Bool) => Some(false.into()),
        (Reduction::Min, DType::Bool) => Some(true.into()),
        (Reduction::Max, _) => Some(f64::NEG_INFINITY.into()),
        (Reduction::Min, _) => Some(f64::INFINITY.into()),
        (Reduction::Sum | Reduction::Prod, _) => None,
    }
}

/// Writes results from an index on, converted to the dtype of the output.
type Put<A> = unsafe fn(*mut u8, usize, &[A]);

/// Picks the conversion; `out` must have a storage type with compute type `A`.
fn put_for<A: Copy + 'static>(out: &Sink) -> Put<A> {
    unsafe fn put<O: Elem, A: Copy + 'static>(out: *mut u8, index: usize, values: &[A]) {
        // Decided at compile time, so it costs nothing; `infer` guarantees it.
        assert!(std::any::TypeId::of::<A>() == std::any::TypeId::of::<O::Compute>());
        // SAFETY: the caller's results are inside the output; `A` is the compute type of `O`.
        unsafe {
            let out = out.cast::<O>().add(index);
            for (i, value) in values.iter().enumerate() {
                *out.add(i) = O::store(std::mem::transmute_copy::<A, O::Compute>(value));
            }
        }
    }
    with_elem!(out.dtype, O => put::<O, A>)
}

fn run<A: Compute, K: Fold<A>>(axes: &[usize], x: Source, out: Sink) {
    let (mut kept, mut folded) = (StridedAxes::new(), StridedAxes::new());
    for d in 0..x.shape.len() {
        let list = if axes.contains(&d) { &mut folded } else { &mut kept };
        list.push((x.shape[d], x.strides[d]));
    }
    // A fold may visit its axes in any order: the smallest stride innermost.
    folded.sort_by_key(|&(_, stride)| std::cmp::Reverse(stride.unsigned_abs()));
    let kept = walk(&kept);
    let folded = walk(&folded);
    let put = put_for::<A>(&out);
    let (results, each) = (kept.len(), folded.len());
    let elements = Elements::<A>::of(&x);
    let plan = FoldPlan { elements, kept: &kept, folded: &folded };
    if each == 0 {
        for i in 0..results {
            // SAFETY: inside the output.
            unsafe { put(out.ptr, i, &[K::NEUTRAL]) };
        }
        return;
    }

    // How the work is split: blocks of results, and pieces of each fold.
    let inner = kept.inner();
    let columns = results > 1 && inner.len > 1 && {
        let (kept, folded) =
            (inner.strides[0].unsigned_abs(), folded.inner().strides[0].unsigned_abs());
        each > 1 && kept < folded && kept != 0
    };
    let blocks = if columns {
        ResultBlocks::along(inner.len, results)
    } else {
        ResultBlocks::of(results, GRAIN.div_ceil(each))
    };
    // A short fold is not worth cutting: joining its pieces would take longer.
    let wanted = match blocks.count >= 16 || each < UNCUT {
        true => 1,
        false => (results * each / GRAIN).clamp(1, PIECES).min(each),
    };
    let piece = each.div_ceil(wanted);
    let pieces = each.div_ceil(piece);
    let fold = |results: Range<usize>, piece: Range<usize>, save: &mut Save<A>| match (
        columns,
        results.len(),
    ) {
        (false, _) => plan.rows::<K>(results, piece, save),
        (true, ..=64) => plan.columns::<K, 64>(results, piece, save),
        (true, _) => plan.columns::<K, RESULTS>(results, piece, save),
    };

    let out_ptr = Shared(out.ptr);
    if pieces == 1 {
        par::for_each(blocks.count, |task| {
            let out_ptr = &out_ptr;
            // SAFETY: each result belongs to one task.
            fold(blocks.at(task), 0..each, &mut |i, found| unsafe { put(out_ptr.at(0), i, found) });
        });
        return;
    }
    let mut partial = match Buffer::alloc(pieces * results * size_of::<A>()) {
        Ok(buffer) => buffer,
        Err(error) => panic!("reduce: {error}"),
    };
    let partial = Shared(partial.as_mut_ptr().cast::<A>());
    par::for_each(blocks.count * pieces, |task| {
        let partial = &partial;
        let (block, p) = (task / pieces, task % pieces);
        fold(blocks.at(block), p * piece..each.min((p + 1) * piece), &mut |first, found| {
            for (i, &value) in (first..).zip(found) {
                // SAFETY: each slot belongs to one task.
                unsafe { *partial.at(i * pieces + p) = value };
            }
        });
    });
    for i in 0..results {
        let mut sum = Pairwise::<A, K>::new();
        for p in 0..pieces {
            // SAFETY: every slot was written above.
            sum.push(unsafe { *partial.at(i * pieces + p) });
        }
        // SAFETY: inside the output.
        unsafe { put(out.ptr, i, &[sum.total()]) };
    }
}

/// Length and stride of some axes, without an allocation for the usual ranks.
type StridedAxes = SmallVec<[(usize, isize); 6]>;

fn walk(axes: &StridedAxes) -> Walk<1> {
    let shape: SmallVec<[usize; 6]> = axes.iter().map(|a| a.0).collect();
    let strides: SmallVec<[isize; 6]> = axes.iter().map(|a| a.1).collect();
    Walk::new(&shape, [&strides])
}

/// Results cut into blocks that do not cross the end of the innermost kept axis.
struct ResultBlocks {
    count: usize,
    size: usize,
    /// Results per line, and blocks per line.
    line: usize,
    per_line: usize,
}

impl ResultBlocks {
    fn of(results: usize, size: usize) -> ResultBlocks {
        let per_line = results.div_ceil(size);
        ResultBlocks { count: per_line, size, line: results, per_line }
    }

    fn along(line: usize, results: usize) -> ResultBlocks {
        let per_line = line.div_ceil(RESULTS);
        let size = line.div_ceil(per_line).next_multiple_of(16).min(RESULTS);
        let per_line = line.div_ceil(size);
        ResultBlocks { count: results / line * per_line, size, line, per_line }
    }

    fn at(&self, index: usize) -> Range<usize> {
        let start = index / self.per_line * self.line;
        let from = index % self.per_line * self.size;
        start + from..start + self.line.min(from + self.size)
    }
}

/// Joins values pairwise as they come: like a binary counter, slot `i` holds the join of 2^i of
/// them.
struct Pairwise<A, K> {
    places: [A; 48],
    count: u64,
    kind: std::marker::PhantomData<K>,
}

impl<A: Copy, K: Fold<A>> Pairwise<A, K> {
    #[inline(always)]
    fn new() -> Self {
        Pairwise { places: [K::NEUTRAL; 48], count: 0, kind: std::marker::PhantomData }
    }

    #[inline(always)]
    fn push(&mut self, mut value: A) {
        let carries = self.count.trailing_ones() as usize;
        for place in &self.places[..carries] {
            value = K::join(*place, value);
        }
        self.places[carries.min(47)] = value;
        self.count += 1;
    }

    #[inline(always)]
    fn total(&self) -> A {
        let mut total = K::NEUTRAL;
        for place in 0..48 {
            if self.count >> place & 1 == 1 {
                total = K::join(self.places[place], total);
            }
        }
        total
    }
}

/// Takes results: the index of the first, and some in a row.
type Save<'a, A> = dyn FnMut(usize, &[A]) + 'a;

struct FoldPlan<'a, A> {
    elements: Elements<A>,
    kept: &'a Walk<1>,
    folded: &'a Walk<1>,
}

impl<A: Compute> FoldPlan<'_, A> {
    /// Each result separately, along the runs of the folded axes.
    fn rows<K: Fold<A>>(&self, results: Range<usize>, piece: Range<usize>, save: &mut Save<A>) {
        let (level, x) = (level(), self.elements);
        let mut wide = x.space(piece.len().min(BLOCK));
        if let [axis] = self.folded.axes()
            && piece.len() <= BLOCK
        {
            // The usual case, rows of one block: nothing to keep between runs.
            let stride = axis.strides[0];
            let first = piece.start as isize * stride;
            self.kept.for_range(results, |run| {
                let mut found = [K::NEUTRAL; TOGETHER_SAVED];
                for from in (0..run.len).step_by(TOGETHER_SAVED) {
                    let found = &mut found[..TOGETHER_SAVED.min(run.len - from)];
                    let at = first + run.offsets[0] + from as isize * run.strides[0];
                    // SAFETY: the rows are inside the source.
                    unsafe {
                        x.fold_lines::<K>(
                            level,
                            at,
                            [run.strides[0], stride],
                            piece.len(),
                            found,
                            &mut wide,
                        );
                    }
                    save(run.start + from, found);
                }
            });
            return;
        }
        let mut sum = Pairwise::<A, K>::new();
        for i in results {
            let start = self.kept.offsets(i)[0];
            sum.count = 0;
            // Short runs are accumulated up to a block before they count as one value.
            let (mut block, mut held) = (K::NEUTRAL, 0);
            self.folded.for_range(piece.clone(), |run| {
                let mut done = 0;
                while done < run.len {
                    let len = BLOCK.min(run.len - done);
                    let at = start + run.offsets[0] + done as isize * run.strides[0];
                    // SAFETY: the run is inside the source.
                    let value = unsafe { x.fold::<K>(level, at, run.strides[0], len, &mut wide) };
                    block = K::join(block, value);
                    held += len;
                    done += len;
                    if held >= BLOCK {
                        sum.push(block);
                        (block, held) = (K::NEUTRAL, 0);
                    }
                }
            });
            save(i, &[if sum.count == 0 { block } else { K::join(sum.total(), block) }]);
        }
    }

    /// A block of at most `W` results along the innermost kept axis together, row by row.
    fn columns<K: Fold<A>, const W: usize>(
        &self,
        results: Range<usize>,
        piece: Range<usize>,
        save: &mut Save<A>,
    ) {
        let (level, x) = (level(), self.elements);
        let start = self.kept.offsets(results.start)[0];
        let step = self.kept.inner().strides[0];
        let width = results.len().min(W);
        let mut wide = x.space(TOGETHER * width);
        let mut total = [K::NEUTRAL; W];
        let mut block = [K::NEUTRAL; W];
        let mut held = 0;
        self.folded.for_range(piece, |run| {
            let mut done = 0;
            while done < run.len {
                let rows = (ROWS - held).min(run.len - done);
                let at = start + run.offsets[0] + done as isize * run.strides[0];
                let sums = &mut block[..width];
                // SAFETY: the rows are inside the source.
                unsafe { x.fold_rows::<K>(level, at, run.strides[0], rows, step, sums, &mut wide) };
                held += rows;
                done += rows;
                if held == ROWS {
                    for (total, block) in total.iter_mut().zip(&mut block[..width]) {
                        *total = K::join(*total, std::mem::replace(block, K::NEUTRAL));
                    }
                    held = 0;
                }
            }
        });
        for (total, block) in total.iter_mut().zip(&block[..width]) {
            *total = K::join(*total, *block);
        }
        save(results.start, &total[..width]);
    }
}

/// Compiles a body once per instruction set and calls the one for a level. For instance
/// `per_level!(fold_run = run_body(x: *const S, …) -> S::Compute)` generates `unsafe fn fold_run<S,
/// K>(level: Level, x: *const S, …) -> S::Compute`, which calls `run_body` inside a function with
/// the target features of the level.
macro_rules! per_level {
    ($name:ident = $body:ident($($arg:ident: $t:ty),*) -> $out:ty) => {
        #[inline]
        unsafe fn $name<S: Elem, K: Fold<S::Compute>>(level: Level, $($arg: $t),*) -> $out {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            unsafe fn avx512<S: Elem, K: Fold<S::Compute>>($($arg: $t),*) -> $out {
                // SAFETY: passed on.
                unsafe { $body::<S, K>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            unsafe fn avx2<S: Elem, K: Fold<S::Compute>>($($arg: $t),*) -> $out {
                // SAFETY: passed on.
                unsafe { $body::<S, K>($($arg),*) }
            }
            // Once, not in every caller.
            #[inline(never)]
            unsafe fn baseline<S: Elem, K: Fold<S::Compute>>($($arg: $t),*) -> $out {
                // SAFETY: passed on.
                unsafe { $body::<S, K>($($arg),*) }
            }
            // SAFETY: passed on; the level is one that this machine has.
            unsafe {
                $crate::simd::by_level!(
                    level,
                    avx512: avx512::<S, K>($($arg),*),
                    avx2: avx2::<S, K>($($arg),*),
                    baseline: baseline::<S, K>($($arg),*),
                )
            }
        }
    };
}
per_level!(fold_run = run_body(x: *const S, stride: isize, len: usize, in_lanes: bool) -> S::Compute);
per_level!(fold_rows = rows_body(x: *const S, row: isize, rows: usize, step: isize, sums: &mut [S::Compute]) -> ());
per_level!(fold_each = each_body(x: *const S, row: usize, rows: usize, out: *mut S::Compute) -> ());
per_level!(fold_lines = lines_body(x: *const S, steps: [isize; 2], len: usize, out: &mut [S::Compute]) -> ());

mod arg;
mod elements;
mod folder;
mod inner_loops;
#[cfg(test)]
mod tests;

pub(crate) use arg::arg_reduce;
use elements::{Elements, TOGETHER};
pub(crate) use folder::{Folder, Joined, folder};
use inner_loops::{each_body, lines_body, rows_body, run_body};
