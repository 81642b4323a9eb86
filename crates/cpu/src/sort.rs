//! Stable sorting along an axis, returning the original indices too.
//!
//! Every element becomes an unsigned key whose order is the requested one: the bits of a float,
//! with the sign mapped to an offset, NaN above everything, and −0 equal to +0; for a descending
//! sort, all bits flipped. A key and the index of its element are sorted together, so equal keys
//! stay in order with any algorithm.
//!
//! Keys of up to 32 bits share one `u64` with the index. Long lines of those are sorted by radix,
//! 11 bits at a time, skipping digits that are equal in all keys (so bytes and halves take one or
//! two passes); short lines, and 64-bit keys, by comparison. Threads share the lines; if there is
//! one long line, they share the making of its entries and the writing of its results.

use crate::dot::scratch;
use crate::elem::{Bool, Elem, with_elem};
use crate::operand::{Sink, Source};
use crate::par;
use crate::scan::AxisLines;
use half::{bf16, f16};

/// Elements that are worth a task.
pub(crate) const GRAIN: usize = 1 << 12;
/// Length from which radix sort is faster than comparisons.
const RADIX_FROM: usize = 1024;
const DIGIT: u32 = 11;
/// Entries of a long line that are worth a task.
const BLOCK: usize = 1 << 15;

/// Types with an order-preserving unsigned key.
pub(crate) trait SortKey: Elem {
    /// Whether keys fit in 32 bits.
    const NARROW: bool;
    fn key(self) -> u64;
}

macro_rules! key {
    ($($t:ty, $narrow:literal: $key:expr;)*) => {$(
        impl SortKey for $t {
            const NARROW: bool = $narrow;
            #[inline(always)]
            fn key(self) -> u64 {
                $key(self)
            }
        }
    )*};
}
key! {
    f64, false: key64;
    f32, true: key32;
    bf16, true: |x: bf16| key32(x.load());
    f16, true: |x: f16| key32(x.load());
    i64, false: |x: i64| x as u64 ^ 1 << 63;
    i32, true: |x: i32| (x as u32 ^ 1 << 31) as u64;
    u8, true: |x: u8| x as u64;
    Bool, true: |x: Bool| x.0 as u64;
}

#[inline(always)]
fn key32(x: f32) -> u64 {
    // Adding zero makes +0 of −0.
    let bits = (x + 0.0).to_bits();
    let key = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    (if x.is_nan() { u32::MAX } else { key }) as u64
}

#[inline(always)]
fn key64(x: f64) -> u64 {
    let bits = (x + 0.0).to_bits();
    let key = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
    if x.is_nan() { u64::MAX } else { key }
}

/// Sorts `x` along `axis` into `values`, and writes the original indices as `i64`.
pub(crate) fn sort(axis: usize, descending: bool, x: Source, values: Sink, indices: Sink) {
    if values.is_empty() {
        return;
    }
    with_elem!(x.dtype, T => run::<T>(axis, descending, x, values, indices));
}

/// The mask that keys are xored with, so that a descending sort puts the largest first.
pub(crate) fn flip(descending: bool, narrow: bool) -> u64 {
    match (descending, narrow) {
        (false, _) => 0,
        (true, true) => u32::MAX as u64,
        (true, false) => u64::MAX,
    }
}

fn run<S: SortKey>(axis: usize, descending: bool, x: Source, values: Sink, indices: Sink) {
    let lines = AxisLines::new(&x, axis);
    let (count, len) = (lines.count(), lines.len);
    let group = GRAIN.div_ceil(len);
    let narrow = S::NARROW && len <= u32::MAX as usize;
    let flip = flip(descending, narrow);
    par::for_each(count.div_ceil(group), |task| {
        let (x, values, indices) = (&x, &values, &indices);
        let (mut short, mut long) = (Vec::<u64>::new(), Vec::<(u64, usize)>::new());
        for line in task * group..count.min((task + 1) * group) {
            let from = x.ptr.cast::<S>().wrapping_offset(lines.start(line));
            let line = SortLine {
                from,
                step: lines.step,
                values: values.ptr.cast::<S>().wrapping_add(lines.dense_start(line)),
                indices: indices.ptr.cast::<i64>().wrapping_add(lines.dense_start(line)),
                dense_step: lines.dense_step,
            };
            let entry = |i: usize| (line.element(i).key() ^ flip) << 32 | i as u64;
            if narrow && len >= RADIX_FROM {
                let (_entries, to) = scratch::<u64>(len);
                let (_spare, spare) = scratch::<u64>(len);
                let blocks = len.div_ceil(BLOCK);
                let range = |block: usize| block * BLOCK..len.min((block + 1) * BLOCK);
                par::for_each(blocks, |block| {
                    // SAFETY: inside the scratch; these entries are this task's.
                    range(block).for_each(|i| unsafe { to.at(i).write(entry(i)) });
                });
                // SAFETY: both have `len` entries; the first is written, the other one is a number
                // whatever its bits are, and is written before it is read.
                let sorted = unsafe {
                    let spare = std::slice::from_raw_parts_mut(spare.at(0), len);
                    radix(std::slice::from_raw_parts_mut(to.at(0), len), spare)
                };
                par::for_each(blocks, |block| {
                    range(block).for_each(|place| line.put(place, sorted[place] as u32 as usize));
                });
            } else if narrow {
                short.clear();
                short.extend((0..len).map(entry));
                short.sort_unstable();
                short
                    .iter()
                    .enumerate()
                    .for_each(|(place, &entry)| line.put(place, entry as u32 as usize));
            } else {
                long.clear();
                long.extend((0..len).map(|i| (line.element(i).key() ^ flip, i)));
                long.sort_unstable();
                long.iter().enumerate().for_each(|(place, entry)| line.put(place, entry.1));
            }
        }
    });
}

/// A line of the operand and of both results.
struct SortLine<S> {
    from: *const S,
    step: isize,
    values: *mut S,
    indices: *mut i64,
    dense_step: usize,
}

// SAFETY: the operand is only read, and tasks write different places of a line.
unsafe impl<S> Sync for SortLine<S> {}

impl<S: Copy> SortLine<S> {
    #[inline(always)]
    fn element(&self, i: usize) -> S {
        // SAFETY: callers stay inside the line.
        unsafe { *self.from.wrapping_offset(i as isize * self.step) }
    }

    #[inline(always)]
    fn put(&self, place: usize, index: usize) {
        let at = place * self.dense_step;
        // SAFETY: inside both outputs; this place is the caller's.
        unsafe {
            *self.values.add(at) = self.element(index);
            *self.indices.add(at) = index as i64;
        }
    }
}

/// Sorts by the upper 32 bits, digit by digit from the lowest; each pass is stable. The result is
/// in one of the two, which are equally long.
pub(crate) fn radix<'a>(entries: &'a mut [u64], spare: &'a mut [u64]) -> &'a [u64] {
    const SIZE: usize = 1 << DIGIT;
    let digit = |entry: u64, pass: u32| (entry >> (32 + pass * DIGIT)) as usize & (SIZE - 1);
    let mut counts = [[0u32; SIZE]; 3];
    for &entry in entries.iter() {
        for (pass, counts) in counts.iter_mut().enumerate() {
            counts[digit(entry, pass as u32)] += 1;
        }
    }
    let (mut from, mut to) = (entries, spare);
    for (pass, counts) in counts.iter_mut().enumerate() {
        let pass = pass as u32;
        if counts[digit(from[0], pass)] as usize == from.len() {
            continue;
        }
        let mut sum = 0;
        for count in counts.iter_mut() {
            sum += std::mem::replace(count, sum);
        }
        for &entry in from.iter() {
            let place = &mut counts[digit(entry, pass)];
            to[*place as usize] = entry;
            *place += 1;
        }
        std::mem::swap(&mut from, &mut to);
    }
    from
}

#[cfg(test)]
mod tests {
    use super::*;
    use pullback_ir::DType;
    use std::cmp::Ordering;

    fn sorted<S: SortKey + PartialOrd>(
        dtype: DType,
        shape: [usize; 2],
        strides: [isize; 2],
        at: usize,
        axis: usize,
        data: &[S],
        show: impl Fn(S) -> f64,
    ) {
        for descending in [false, true] {
            let count = shape[0] * shape[1];
            let (mut values, mut indices) = (vec![S::default(); count], vec![-1i64; count]);
            sort(
                axis,
                descending,
                Source {
                    ptr: data.as_ptr().wrapping_add(at).cast(),
                    shape: &shape,
                    strides: &strides,
                    dtype,
                },
                Sink { ptr: values.as_mut_ptr().cast(), shape: &shape, dtype },
                Sink { ptr: indices.as_mut_ptr().cast(), shape: &shape, dtype: DType::I64 },
            );
            for line in 0..shape[1 - axis] {
                let place = |i: usize| if axis == 0 { [i, line] } else { [line, i] };
                let get = |i: usize| {
                    let p = place(i);
                    data[(at as isize + p[0] as isize * strides[0] + p[1] as isize * strides[1])
                        as usize]
                };
                let mut order: Vec<usize> = (0..shape[axis]).collect();
                order.sort_by(|&i, &j| {
                    let (a, b) = (show(get(i)), show(get(j)));
                    let order = a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()));
                    if descending { order.reverse() } else { order }
                });
                for (i, &want) in order.iter().enumerate() {
                    let p = place(i);
                    let at = p[0] * shape[1] + p[1];
                    assert_eq!(
                        indices[at], want as i64,
                        "{dtype} {shape:?} {strides:?} axis {axis} line {line} place {i}"
                    );
                    let (a, b) = (show(values[at]), show(get(want)));
                    assert!(
                        a.to_bits() == b.to_bits()
                            || a.partial_cmp(&b) != Some(Ordering::Equal) && a.is_nan()
                    );
                }
            }
        }
    }

    #[test]
    fn agrees_with_a_stable_sort() {
        for shape in [[1usize, 1], [5, 17], [3, 3000], [2000, 4], [1, BLOCK + 1]] {
            let (r, c) = (shape[0] as isize, shape[1] as isize);
            let count = shape[0] * shape[1];
            let floats: Vec<f64> = (0..count)
                .map(|i| match i % 13 {
                    3 => f64::NAN,
                    5 => 0.0,
                    7 => -0.0,
                    9 => f64::NEG_INFINITY,
                    11 => -f64::NAN,
                    _ => ((i * 7919) % 503) as f64 - 250.0,
                })
                .collect();
            for (strides, at) in [([c, 1], 0), ([1, r], 0), ([-c, -1], count - 1), ([0, 1], 0)] {
                for axis in [0, 1] {
                    let to = |f: fn(f64) -> f64| floats.iter().map(move |&x| f(x));
                    sorted(DType::F64, shape, strides, at, axis, &floats, |x: f64| x);
                    sorted(
                        DType::F32,
                        shape,
                        strides,
                        at,
                        axis,
                        &to(|x| x).map(|x| x as f32).collect::<Vec<_>>(),
                        |x: f32| x as f64,
                    );
                    sorted(
                        DType::BF16,
                        shape,
                        strides,
                        at,
                        axis,
                        &to(|x| x).map(bf16::from_f64).collect::<Vec<_>>(),
                        bf16::to_f64,
                    );
                    sorted(
                        DType::I32,
                        shape,
                        strides,
                        at,
                        axis,
                        &to(|x| x).map(|x| x as i32).collect::<Vec<_>>(),
                        |x: i32| x as f64,
                    );
                    sorted(
                        DType::I64,
                        shape,
                        strides,
                        at,
                        axis,
                        &to(|x| x).map(|x| x as i64).collect::<Vec<_>>(),
                        |x: i64| x as f64,
                    );
                    sorted(
                        DType::U8,
                        shape,
                        strides,
                        at,
                        axis,
                        &to(|x| x).map(|x| x as u8).collect::<Vec<_>>(),
                        |x: u8| x as f64,
                    );
                }
            }
        }
    }

    /// `cargo test --profile bench --workspace --test kernels sort_rates -- --ignored --nocapture`
    #[test]
    #[ignore = "a measurement"]
    fn sort_rates() {
        for shape in [[1usize, 1 << 20], [1 << 15, 32], [1024, 1024]] {
            let data: Vec<f32> = (0..1u64 << 20)
                .map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f32)
                .collect();
            let (mut values, mut indices) = (vec![0f32; 1 << 20], vec![0i64; 1 << 20]);
            for _ in 0..3 {
                let start = std::time::Instant::now();
                sort(
                    1,
                    false,
                    Source {
                        ptr: data.as_ptr().cast(),
                        shape: &shape,
                        strides: &[shape[1] as isize, 1],
                        dtype: DType::F32,
                    },
                    Sink { ptr: values.as_mut_ptr().cast(), shape: &shape, dtype: DType::F32 },
                    Sink { ptr: indices.as_mut_ptr().cast(), shape: &shape, dtype: DType::I64 },
                );
                println!("{shape:?}: {:?}", start.elapsed());
            }
        }
    }
}
