//! Many numbers added to few destinations: in tables, one for each chunk.

use super::{CombineElem, TASK};
use crate::elem::Elem;
use crate::operand::{Sink, Source};
use crate::{par, pointwise};
use std::sync::atomic::{AtomicBool, Ordering};

/// Fewest elements per destination for which tables are profitable.
const ELEMENTS_PER_DESTINATION: usize = 4;
/// Most tables.
const TABLES: usize = 16;

/// Whether elements are added up in tables: many, on one axis, to few destinations.
pub(super) fn is_tabled(axis: usize, source: Source<'_>, out: Sink<'_>) -> bool {
    let (n, places) = (source.len(), out.len());
    n >= TASK
        && places <= n / ELEMENTS_PER_DESTINATION
        && places == out.shape[axis]
        && n == source.shape[axis]
}

/// Adds the elements of each chunk of the source to a table, and the tables to the base. Returns
/// false if an index is out of range; the output must not be used then.
pub(super) fn add_tables<T: Elem<Compute: CombineElem>>(
    axis: usize,
    base: Source<'_>,
    index: Source<'_>,
    source: Source<'_>,
    out: Sink<'_>,
) -> bool {
    let (n, places) = (source.len(), out.len());
    let count = (n / (ELEMENTS_PER_DESTINATION * places.max(1))).clamp(1, TABLES);
    let chunk = n.div_ceil(count);
    let (_memory, tables) = crate::dot::scratch::<T::Compute>(count * places);
    let bad = AtomicBool::new(false);
    let steps = [index.strides[axis], source.strides[axis]];
    par::for_each(count, |task| {
        let range = task * chunk..n.min((task + 1) * chunk);
        let table = tables.at(task * places);
        // SAFETY: the table is this task's; the elements are those of the operands.
        let fine = unsafe {
            (0..places).for_each(|p| *table.add(p) = T::Compute::neutral());
            let table = std::slice::from_raw_parts_mut(table, places);
            let (index, source) = ({ index }.ptr.cast::<i64>(), { source }.ptr.cast::<T>());
            // Strides that the compiler knows.
            match steps {
                [1, 1] => add_chunk(range, index, 1, source, 1, table),
                [i, s] => add_chunk(range, index, i, source, s, table),
            }
        };
        if !fine {
            bad.store(true, Ordering::Relaxed);
        }
    });
    if bad.into_inner() {
        return false;
    }
    pointwise::copy(base, out);
    let each = (TASK / count).max(1);
    par::for_each(places.div_ceil(each), |task| {
        let out = { out }.ptr.cast::<T>();
        for p in task * each..places.min((task + 1) * each) {
            // SAFETY: inside the output and the tables, which are filled; each destination is one
            // task's.
            unsafe {
                let sum = |sum: T::Compute, t: usize| sum.plus(*tables.at(t * places + p));
                *out.add(p) = T::store((0..count).fold((*out.add(p)).load(), sum));
            }
        }
    });
    true
}

/// Adds some elements to a table; false if an index is out of range.
///
/// # Safety
/// The range lies in both operands.
#[inline(always)]
unsafe fn add_chunk<T: Elem<Compute: CombineElem>>(
    range: std::ops::Range<usize>,
    index: *const i64,
    index_step: isize,
    source: *const T,
    source_step: isize,
    table: &mut [T::Compute],
) -> bool {
    let mut fine = true;
    for i in range {
        // SAFETY: guaranteed by the caller.
        let (place, value) = unsafe {
            let at = i as isize;
            (*index.offset(at * index_step), (*source.offset(at * source_step)).load())
        };
        match table.get_mut(place as usize) {
            Some(sum) => *sum = sum.plus(value),
            None => fine = false,
        }
    }
    fine
}
