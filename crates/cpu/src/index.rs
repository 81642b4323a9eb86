//! Gather and scatter along an axis.
//!
//! Both iterate over the shape of the index. Every index is checked before the first element moves,
//! so a bad one leaves no partial result and nothing is read or written out of bounds.
//!
//! **Rows.** Selecting rows of a table (an embedding) reaches these kernels as an index that is
//! broadcast over the axes after the indexed one. It is recognised by its strides, which are zero
//! there: then one index moves a whole row.
//!
//! **Scatter is deterministic.** What is scattered to one destination is combined in an order that
//! depends on shapes alone, whatever the number of threads, and without atomics; mostly in
//! row-major order of the source:
//! - many single elements that are added to few destinations (a histogram, a bincount) are cut into
//!   chunks; each chunk is added up in its own table, in order, and then the tables are added up,
//!   in order;
//! - rows are first grouped by destination (a stable counting sort), and then each
//!   destination row is combined by one thread, in the compute type, and rounded once;
//! - single elements are split along an axis other than the indexed one, where destinations are
//!   disjoint, or, if there is none, by ranges of the destination, each reading all indices.
//!
//! Narrow types are combined in their compute type (`widen.rs`), so that they too are rounded once;
//! to set elements is not to compute with them, so that is done in the type they have.
//!
//! The split may then depend on the number of threads, as no sum depends on it (the split into
//! chunks, on which sums do depend, never does).

mod rows;
mod tables;

use crate::elem::{Compute, Elem, with_elem};
use crate::operand::{Sink, Source};
use crate::simd::{Isa, SimdTask, vectorised};
use crate::walk::Walk;
use crate::widen::{is_narrow, narrowed, widened};
use crate::{Buffer, par, pointwise};
use pullback_ir::{Combine, DType, Shape, Strides, dense_strides};
use std::sync::atomic::{AtomicUsize, Ordering};
use tables::{add_tables, is_tabled};

/// An index that is not in `0..len`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexError {
    /// Row-major position among the indices; the first bad one.
    pub(crate) position: usize,
    /// The index.
    pub(crate) index: i64,
    /// Length of the axis that it indexes.
    pub(crate) len: usize,
}

/// Elements that one task moves.
const TASK: usize = 1 << 15;
/// Destination rows that one task combines.
const DESTINATIONS: usize = 64;
/// Elements of a row that are combined at a time.
const TILE: usize = 256;

/// Checks that every index is in `0..len`.
pub(crate) fn check(index: Source<'_>, len: usize) -> Result<(), IndexError> {
    debug_assert_eq!(index.dtype, DType::I64);
    if index.is_empty() {
        return Ok(());
    }
    // A broadcast index is checked once, at its first position.
    let mut shape = Shape::from_slice(index.shape);
    for (n, &s) in shape.iter_mut().zip(index.strides) {
        if s == 0 {
            *n = 1;
        }
    }
    let walk = Walk::new(&shape, [index.strides]);
    let first = AtomicUsize::new(usize::MAX);
    par::for_each(walk.len().div_ceil(TASK), |task| {
        let range = task * TASK..walk.len().min((task + 1) * TASK);
        walk.for_range(range, |run| {
            let index = { index }.ptr.cast::<i64>().wrapping_offset(run.offsets[0]);
            // SAFETY: runs stay inside the source.
            let at = |i: usize| unsafe { index.offset(i as isize * run.strides[0]).read() };
            let mut bad = true;
            if run.strides[0] == 1 {
                vectorised(OutOfRange { index, count: run.len, len: len as u64, any: &mut bad });
            }
            if bad && let Some(i) = (0..run.len).find(|&i| at(i) as u64 >= len as u64) {
                first.fetch_min(run.start + i, Ordering::Relaxed);
            }
        });
    });
    let first = first.into_inner();
    if first == usize::MAX {
        return Ok(());
    }
    // SAFETY: `first` is an element of the walk.
    let found = unsafe { index.ptr.cast::<i64>().offset(walk.offsets(first)[0]).read() };
    let (mut rest, mut position) = (first, 0);
    let full = dense_strides(index.shape);
    for d in (0..shape.len()).rev() {
        position += rest % shape[d] * full[d] as usize;
        rest /= shape[d];
    }
    Err(IndexError { position, index: found, len })
}

/// Whether any of some adjacent indices is not in `0..len`.
struct OutOfRange<'a> {
    index: *const i64,
    count: usize,
    len: u64,
    any: &'a mut bool,
}

impl SimdTask for OutOfRange<'_> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        // SAFETY: there are so many indices, by `check`.
        let at = |i: usize| unsafe { *self.index.add(i) as u64 };
        // As numbers of the width of an index, so that the loop has vectors of one width.
        let bad = (0..self.count).fold(0, |bad, i| bad | u64::from(at(i) >= self.len));
        *self.any = bad != 0;
    }
}

/// `out[i, j] = x[index[i, j], j]` (for axis 0). `out` has the shape of `index`, whose other axes
/// may be shorter than those of `x`.
pub(crate) fn gather(
    axis: usize,
    x: Source<'_>,
    index: Source<'_>,
    out: Sink<'_>,
) -> Result<(), IndexError> {
    if x.shape.is_empty() {
        let one = Source { shape: &[1], strides: &[1], ..x };
        let index = Source { shape: &[1], strides: &[1], ..index };
        return gather(0, one, index, Sink { shape: &[1], ..out });
    }
    check(index, x.shape[axis])?;
    if let Some(row) = one_row(axis, index) {
        let ptr = x.ptr.wrapping_offset(row * x.strides[0] * x.dtype.size() as isize);
        let from = Source { ptr, shape: &index.shape[1..], strides: &x.strides[1..], ..x };
        pointwise::copy(from, Sink { shape: &out.shape[1..], ..out });
        return Ok(());
    }
    if x.strides.iter().all(|&s| s == 0) {
        // One value for every index.
        let strides = Strides::from_elem(0, out.shape.len());
        pointwise::copy(Source { shape: out.shape, strides: &strides, ..x }, out);
        return Ok(());
    }
    match x.dtype.size() {
        1 => gather_as::<u8>(axis, x, index, out),
        2 => gather_as::<u16>(axis, x, index, out),
        4 => gather_as::<u32>(axis, x, index, out),
        _ => gather_as::<u64>(axis, x, index, out),
    }
    Ok(())
}

/// The only row that an index selects; `None` if it selects several. The case of a loop that reads
/// or writes one row per iteration.
fn one_row(axis: usize, index: Source<'_>) -> Option<isize> {
    let same = |(&n, &stride): (&usize, &isize)| n == 1 || stride == 0;
    let one = axis == 0
        && index.shape[0] == 1
        && !index.is_empty()
        && index.shape[1..].iter().zip(&index.strides[1..]).all(same);
    // SAFETY: the index has an element.
    one.then(|| unsafe { index.ptr.cast::<i64>().read() as isize })
}

/// Gathers words of the size of the elements.
fn gather_as<T: Copy>(axis: usize, x: Source<'_>, index: Source<'_>, out: Sink<'_>) {
    // The trailing axes along which the index is constant and `x` is dense are copied as one row.
    let (mut split, mut row) = (x.shape.len(), 1);
    while split > axis + 1 {
        let d = split - 1;
        let whole = index.strides[d] == 0 && x.strides[d] == row as isize;
        if index.shape[d] != 1 && !whole {
            break;
        }
        row *= index.shape[d];
        split -= 1;
    }
    let mut steps = Strides::from_slice(&x.strides[..split]);
    let along = std::mem::replace(&mut steps[axis], 0);
    let walk = Walk::new(&index.shape[..split], [&index.strides[..split], &steps]);
    if row == 0 {
        return;
    }
    let points = (TASK / row).max(1);
    par::for_each(walk.len().div_ceil(points), |task| {
        let range = task * points..walk.len().min((task + 1) * points);
        let (x, index, out) =
            ({ x }.ptr.cast::<T>(), { index }.ptr.cast::<i64>(), { out }.ptr.cast::<T>());
        walk.for_range(range, |run| {
            // SAFETY: runs stay inside the operands, every index was checked against the length
            // of the axis, and row `start + j` of `out` belongs to this task.
            unsafe {
                let (index, x) = (index.offset(run.offsets[0]), x.offset(run.offsets[1]));
                let out = out.add(run.start * row);
                let from = |j: isize, [i, s]: [isize; 2], along: isize| {
                    x.offset(j * s + *index.offset(j * i) as isize * along)
                };
                let count = run.len as isize;
                // Strides that the compiler knows.
                match (run.strides, along) {
                    ([1, 0], 1) => rows::copy(count, row, |j| from(j, [1, 0], 1), out),
                    (steps, _) => rows::copy(count, row, |j| from(j, steps, along), out),
                }
            }
        });
    });
}

/// `out = base`, and then, for each position of `source` in row-major order, `source[i, j]`
/// combined into `out[index[i, j], j]` (for axis 0). `index` has the shape of `source`.
pub(crate) fn scatter(
    axis: usize,
    combine: Combine,
    base: Source<'_>,
    index: Source<'_>,
    source: Source<'_>,
    out: Sink<'_>,
) -> Result<(), IndexError> {
    if base.shape.is_empty() {
        let [base, index, source] =
            [base, index, source].map(|s| Source { shape: &[1], strides: &[1], ..s });
        return scatter(0, combine, base, index, source, Sink { shape: &[1], ..out });
    }
    if combine != Combine::Set && is_narrow(out.dtype) {
        check(index, base.shape[axis])?;
        widened("scatter", base, |base| {
            widened("scatter", source, |source| {
                narrowed("scatter", out, |out| {
                    let done = scatter(axis, combine, base, index, source, out);
                    debug_assert!(done.is_ok(), "every index was checked");
                });
            });
        });
        return Ok(());
    }
    if combine == Combine::Add && is_tabled(axis, source, out) {
        let done =
            with_elem!(compute out.dtype, T => add_tables::<T>(axis, base, index, source, out));
        // On failure, the slow check finds the bad index.
        return if done { Ok(()) } else { check(index, base.shape[axis]) };
    }
    check(index, base.shape[axis])?;
    pointwise::copy(base, out);
    if combine == Combine::Set
        && source.shape[1..] == out.shape[1..]
        && let Some(row) = one_row(axis, index)
    {
        let from = Source { shape: &source.shape[1..], strides: &source.strides[1..], ..source };
        let along = dense_strides(out.shape)[0] * out.dtype.size() as isize;
        let ptr = out.ptr.wrapping_offset(row * along);
        pointwise::copy(from, Sink { ptr, shape: &out.shape[1..], ..out });
        return Ok(());
    }
    if !source.is_empty() {
        match combine {
            Combine::Set => {
                with_elem!(out.dtype, T => scatter_with::<T, Set>(axis, index, source, out))
            }
            _ => {
                with_elem!(compute out.dtype, T => combine_as::<T>(axis, combine, index, source, out))
            }
        }
    }
    Ok(())
}

/// Scatters elements of a compute type, combined by anything but `Set`.
fn combine_as<T: CombineElem>(
    axis: usize,
    combine: Combine,
    index: Source<'_>,
    source: Source<'_>,
    out: Sink<'_>,
) {
    match combine {
        Combine::Set => unreachable!("`Set` is for all types"),
        Combine::Add => scatter_with::<T, Add>(axis, index, source, out),
        Combine::Mul => scatter_with::<T, Mul>(axis, index, source, out),
        Combine::Max => scatter_with::<T, Max>(axis, index, source, out),
        Combine::Min => scatter_with::<T, Min>(axis, index, source, out),
    }
}

fn scatter_with<T: Elem<Compute: CombineElem>, F: Combining>(
    axis: usize,
    index: Source<'_>,
    source: Source<'_>,
    out: Sink<'_>,
) {
    let behind = axis + 1..out.shape.len();
    let whole = behind
        .clone()
        .all(|d| index.shape[d] == out.shape[d] && (index.shape[d] == 1 || index.strides[d] == 0));
    let row: usize = out.shape[behind].iter().product();
    if whole && row > 1 {
        scatter_rows::<T, F>(axis, row, index, source, out);
    } else {
        scatter_single::<T, F>(axis, index, source, out);
    }
}

/// Scatters where the index is constant along all axes after the indexed one.
fn scatter_rows<T: Elem<Compute: CombineElem>, F: Combining>(
    axis: usize,
    row: usize,
    index: Source<'_>,
    source: Source<'_>,
    out: Sink<'_>,
) {
    // A source row must have one stride; otherwise it is copied first.
    let inner = Walk::new(&source.shape[axis + 1..], [&source.strides[axis + 1..]]);
    if inner.axes().len() > 1
        && let Ok(mut copy) = Buffer::alloc(source.len() * size_of::<T>())
    {
        let ptr = copy.as_mut_ptr();
        pointwise::copy(source, Sink { ptr, shape: source.shape, dtype: source.dtype });
        let strides = dense_strides(source.shape);
        return scatter_rows::<T, F>(
            axis,
            row,
            index,
            Source { ptr, strides: &strides, ..source },
            out,
        );
    }
    if inner.axes().len() > 1 {
        return scatter_single::<T, F>(axis, index, source, out);
    }
    let step = inner.inner().strides[0];
    let (n, places) = (source.shape[axis], out.shape[axis]);
    let dense = dense_strides(out.shape);
    let outer = Walk::new(
        &source.shape[..axis],
        [&index.strides[..axis], &source.strides[..axis], &dense[..axis]],
    );
    let along = source.strides[axis];
    let alone = par::threads() == 1 || source.len() < TASK;
    let group = |o: usize| {
        let offsets = outer.offsets(o);
        // Sources by destination: those of destination `p` are `order[starts[p]..starts[p + 1]]`.
        let place = |i: usize| {
            let at = offsets[0] + i as isize * index.strides[axis];
            // SAFETY: inside the index, by the outer walk and the length of the axis.
            unsafe { { index }.ptr.cast::<i64>().offset(at).read() as usize }
        };
        if alone {
            // One thread: each row directly. A destination gets the same sums in the same order.
            for i in 0..n {
                // SAFETY: as below.
                unsafe {
                    let to = { out }.ptr.cast::<T>().offset(offsets[2]).add(place(i) * row);
                    let from = { source }.ptr.cast::<T>().offset(offsets[1] + i as isize * along);
                    combine_into::<T, F>(to, row, from, step);
                }
            }
            return;
        }
        let mut starts = vec![0usize; places + 2];
        (0..n).for_each(|i| starts[place(i) + 2] += 1);
        (2..places + 2).for_each(|p| starts[p] += starts[p - 1]);
        let mut order = vec![0usize; n];
        for i in 0..n {
            let next = &mut starts[place(i) + 1];
            order[*next] = i;
            *next += 1;
        }
        par::for_each(places.div_ceil(DESTINATIONS), |task| {
            for p in task * DESTINATIONS..places.min((task + 1) * DESTINATIONS) {
                let from = &order[starts[p]..starts[p + 1]];
                if !from.is_empty() {
                    // SAFETY: all rows are inside the operands; row `p` is this task's alone.
                    unsafe {
                        let to = { out }.ptr.cast::<T>().offset(offsets[2]).add(p * row);
                        let source = { source }.ptr.cast::<T>().offset(offsets[1]);
                        combine_row::<T, F>(to, row, source, along, from, step);
                    }
                }
            }
        });
    };
    // Many small groups run in parallel; inside a task a group is not split.
    if outer.len() >= 16 {
        let each = (TASK / (n * row)).max(1);
        par::for_each(outer.len().div_ceil(each), |task| {
            (task * each..outer.len().min((task + 1) * each)).for_each(group);
        });
    } else {
        (0..outer.len()).for_each(group);
    }
}

/// Combines one row of the source into a destination row.
///
/// # Safety
/// `to` has `row` elements; so has `from`, `step` apart.
#[inline(always)]
unsafe fn combine_into<T: Elem<Compute: CombineElem>, F: Combining>(
    to: *mut T,
    row: usize,
    from: *const T,
    step: isize,
) {
    let fold = |j: usize, from: *const T| {
        // SAFETY: guaranteed by the caller.
        unsafe { *to.add(j) = T::store(F::fold((*to.add(j)).load(), (*from).load())) };
    };
    match step {
        1 => (0..row).for_each(|j| fold(j, from.wrapping_add(j))),
        _ => (0..row).for_each(|j| fold(j, from.wrapping_offset(j as isize * step))),
    }
}

/// Combines rows `from` of the source into one destination row, in tiles that stay in registers or
/// L1.
///
/// # Safety
/// `to` has `row` elements; so has each row `from[k] * along` of the source, `step` apart.
unsafe fn combine_row<T: Elem<Compute: CombineElem>, F: Combining>(
    to: *mut T,
    row: usize,
    source: *const T,
    along: isize,
    from: &[usize],
    step: isize,
) {
    let mut tile = [T::Compute::default(); TILE];
    for start in (0..row).step_by(TILE) {
        let len = TILE.min(row - start);
        let tile = &mut tile[..len];
        // SAFETY: `start + len` is at most `row`.
        unsafe {
            for (j, acc) in tile.iter_mut().enumerate() {
                *acc = (*to.add(start + j)).load();
            }
            for &i in from {
                let source = source.offset(i as isize * along + start as isize * step);
                if step == 1 {
                    for (j, acc) in tile.iter_mut().enumerate() {
                        *acc = F::fold(*acc, (*source.add(j)).load());
                    }
                } else {
                    for (j, acc) in tile.iter_mut().enumerate() {
                        *acc = F::fold(*acc, (*source.offset(j as isize * step)).load());
                    }
                }
            }
            for (j, acc) in tile.iter().enumerate() {
                *to.add(start + j) = T::store(*acc);
            }
        }
    }
}

/// Scatters one element at a time.
fn scatter_single<T: Elem<Compute: CombineElem>, F: Combining>(
    axis: usize,
    index: Source<'_>,
    source: Source<'_>,
    out: Sink<'_>,
) {
    let mut dense = dense_strides(out.shape);
    let along = std::mem::replace(&mut dense[axis], 0);
    let pieces = if source.len() < TASK { 1 } else { par::threads() };
    let longest = (0..source.shape.len()).filter(|&d| d != axis).max_by_key(|&d| source.shape[d]);
    let cut = longest.filter(|&d| source.shape[d] > 1);
    par::for_each(pieces, |piece| {
        let part = |len: usize| len * piece / pieces..len * (piece + 1) / pieces;
        let mut shape = Shape::from_slice(source.shape);
        let mut first = 0isize;
        let mut places = 0..out.shape[axis];
        if let Some(d) = cut {
            let part = part(shape[d]);
            (first, shape[d]) = (part.start as isize, part.len());
        } else {
            places = part(out.shape[axis]);
        }
        let begin = |strides: &[isize]| cut.map_or(0, |d| first * strides[d]);
        let begins = [begin(index.strides), begin(source.strides), begin(&dense)];
        let walk = Walk::new(&shape, [index.strides, source.strides, &dense]);
        // Where another axis is cut, every destination is this piece's.
        let all = cut.is_some() || pieces == 1;
        walk.for_each(|run| {
            let start = |k: usize| begins[k] + run.offsets[k];
            // SAFETY: the walk stays inside index and source; the index was checked, and as the
            // other coordinates are inside `out`, so is the destination. No other task writes it.
            unsafe {
                let index = { index }.ptr.cast::<i64>().offset(start(0));
                let source = { source }.ptr.cast::<T>().offset(start(1));
                let out = { out }.ptr.cast::<T>().offset(start(2));
                let one = |j: isize, [i, s, o]: [isize; 3], along: isize| {
                    let place = *index.offset(j * i) as usize;
                    if all || places.contains(&place) {
                        let to = out.offset(j * o + place as isize * along);
                        *to = T::store(F::fold((*to).load(), (*source.offset(j * s)).load()));
                    }
                };
                // Strides that the compiler knows.
                match (run.strides, along) {
                    ([1, 1, 0], 1) => (0..run.len as isize).for_each(|j| one(j, [1, 1, 0], 1)),
                    (steps, _) => (0..run.len as isize).for_each(|j| one(j, steps, along)),
                }
            }
        });
    });
}

/// The arithmetic that combining needs; integers wrap.
trait CombineElem: Compute {
    /// The neutral element of addition: −0, as −0 + +0 is +0.
    fn neutral() -> Self;
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
}

/// `number!(f64, -0.0, a, b => a + b, a * b)` is the `impl` with those bodies.
macro_rules! number {
    ($type:ty, $neutral:expr, $a:ident, $b:ident => $plus:expr, $times:expr) => {
        impl CombineElem for $type {
            #[inline(always)]
            fn neutral() -> $type {
                $neutral
            }
            #[inline(always)]
            fn plus(self, $b: $type) -> $type {
                let $a = self;
                $plus
            }
            #[inline(always)]
            fn times(self, $b: $type) -> $type {
                let $a = self;
                $times
            }
        }
    };
}
number!(f64, -0.0, a, b => a + b, a * b);
number!(f32, -0.0, a, b => a + b, a * b);
number!(i64, 0, a, b => a.wrapping_add(b), a.wrapping_mul(b));

/// How two elements are combined.
trait Combining {
    fn fold<C: CombineElem>(there: C, new: C) -> C;
}

struct Set;
struct Add;
struct Mul;
struct Max;
struct Min;

impl Combining for Set {
    #[inline(always)]
    fn fold<C: CombineElem>(_: C, new: C) -> C {
        new
    }
}

impl Combining for Add {
    #[inline(always)]
    fn fold<C: CombineElem>(there: C, new: C) -> C {
        there.plus(new)
    }
}

impl Combining for Mul {
    #[inline(always)]
    fn fold<C: CombineElem>(there: C, new: C) -> C {
        there.times(new)
    }
}

impl Combining for Max {
    #[inline(always)]
    #[allow(clippy::eq_op)]
    fn fold<C: CombineElem>(there: C, new: C) -> C {
        // NaN is unequal to itself: it propagates from either side.
        if there > new || there != there { there } else { new }
    }
}

impl Combining for Min {
    #[inline(always)]
    #[allow(clippy::eq_op)]
    fn fold<C: CombineElem>(there: C, new: C) -> C {
        if there < new || there != there { there } else { new }
    }
}

#[cfg(test)]
mod tests;
