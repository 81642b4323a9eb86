//! Some ranks of a sorted line, without sorting the rest: what `topk`, `kthvalue` and `median`
//! need.
//!
//! As in [`crate::sort`], an element is an order-preserving key together with its index, so there
//! are no ties, and the elements of the requested ranks do not depend on the algorithm. A long line
//! is first counted by the upper bits of its keys; the counts give the buckets that hold the
//! requested ranks, and only those are collected (in order, so that any number of threads collects
//! the same). If they are many, they are counted once more, by the first bits in which they differ.

use crate::elem::with_elem;
use crate::operand::{Sink, Source};
use crate::par::{self, Shared};
use crate::scan::AxisLines;
use crate::sort::{GRAIN, SortKey, flip, radix};

/// Lines from this length on are counted first.
const LONG: usize = 1 << 14;
/// Elements counted per task.
const BLOCK: usize = 1 << 16;
/// Keys computed at a time.
const CHUNK: usize = 64;
/// Upper bits that are counted.
const BITS: u32 = 11;
const BUCKETS: usize = 1 << BITS;

/// The requested ranks: `from..from + count`.
#[derive(Clone, Copy)]
pub(crate) struct RankRange {
    pub(crate) descending: bool,
    pub(crate) from: usize,
    pub(crate) count: usize,
}

/// Writes the elements of the requested ranks along `axis`, in order, and their original indices as
/// `i64`.
pub(crate) fn ranks(axis: usize, wanted: RankRange, x: Source, values: Sink, indices: Sink) {
    if values.is_empty() {
        return;
    }
    with_elem!(x.dtype, T => run::<T>(axis, wanted, x, values, indices));
}

/// A strided line of elements.
#[derive(Clone, Copy)]
struct StridedRow<S> {
    start: *const S,
    step: isize,
    len: usize,
    flip: u64,
}

// SAFETY: lines are only read, and point into a source that outlives the kernel.
unsafe impl<S> Sync for StridedRow<S> {}

impl<S: SortKey> StridedRow<S> {
    #[inline(always)]
    fn element(&self, i: usize) -> S {
        // SAFETY: callers stay below `len`.
        unsafe { *self.start.wrapping_offset(i as isize * self.step) }
    }

    #[inline(always)]
    fn key(&self, i: usize) -> u64 {
        self.element(i).key() ^ self.flip
    }

    /// The narrow keys from `i` on, up to a chunk of them; the others are unchanged.
    #[inline(always)]
    fn keys(&self, i: usize, to: usize, keys: &mut [u32; CHUNK]) -> usize {
        let n = CHUNK.min(to - i);
        if self.step == 1 {
            // SAFETY: callers stay below `len`.
            let line = unsafe { std::slice::from_raw_parts(self.start.add(i), n) };
            for (key, x) in keys.iter_mut().zip(line) {
                *key = (x.key() ^ self.flip) as u32;
            }
        } else {
            for (j, key) in keys[..n].iter_mut().enumerate() {
                *key = self.key(i + j) as u32;
            }
        }
        n
    }

    /// A narrow key with its index.
    #[inline(always)]
    fn entry(&self, i: usize) -> u64 {
        self.key(i) << 32 | i as u64
    }
}

fn run<S: SortKey>(axis: usize, wanted: RankRange, x: Source, values: Sink, indices: Sink) {
    let lines = AxisLines::new(&x, axis);
    let (count, len) = (lines.count(), lines.len);
    let narrow = S::NARROW && len <= u32::MAX as usize;
    let group = GRAIN.div_ceil(len);
    let RankRange { from, count: take, .. } = wanted;
    par::for_each(count.div_ceil(group), |task| {
        let (x, values, indices) = (&x, &values, &indices);
        let (mut short, mut long) = (Vec::<u64>::new(), Vec::<(u64, usize)>::new());
        let mut spare = Vec::new();
        for n in task * group..count.min((task + 1) * group) {
            let start = x.ptr.cast::<S>().wrapping_offset(lines.start(n));
            let flip = flip(wanted.descending, narrow);
            let line = StridedRow { start, step: lines.step, len, flip };
            let outer = lines.dense_step;
            let at = n / outer * outer * take + n % outer;
            let put = |place: usize, index: usize| {
                let at = at + place * outer;
                // SAFETY: inside both outputs; this line is this task's.
                unsafe {
                    *values.ptr.cast::<S>().add(at) = line.element(index);
                    *indices.ptr.cast::<i64>().add(at) = index as i64;
                }
            };
            if narrow {
                let mut below = if len >= LONG {
                    collect(line, wanted, &mut short)
                } else {
                    short.clear();
                    short.extend((0..len).map(|i| line.entry(i)));
                    0
                };
                let nearly_all = take > short.len() / 4;
                if short.len() >= LONG && !nearly_all {
                    below += refine(&mut short, from - below, take);
                }
                let part = if short.len() >= LONG && nearly_all {
                    // Nearly all: radix sort, as they are still in the order of their indices.
                    spare.resize(short.len(), 0);
                    &radix(&mut short, &mut spare)[from - below..from - below + take]
                } else {
                    pick(&mut short, from - below, take)
                };
                part.iter().enumerate().for_each(|(place, &e)| put(place, e as u32 as usize));
            } else {
                long.clear();
                long.extend((0..len).map(|i| (line.key(i), i)));
                let part = pick(&mut long, from, take);
                part.iter().enumerate().for_each(|(place, entry)| put(place, entry.1));
            }
        }
    });
}

/// The ranks `from..from + count` of a list, in order.
fn pick<T: Ord>(list: &mut [T], from: usize, count: usize) -> &[T] {
    let list = match from {
        0 => list,
        _ => {
            list.select_nth_unstable(from);
            &mut list[from..]
        }
    };
    if count < list.len() {
        list.select_nth_unstable(count - 1);
    }
    let part = &mut list[..count];
    part.sort_unstable();
    part
}

/// The buckets of the first and of the last of some ranks, and how many entries are below them.
struct Selected {
    low: usize,
    high: usize,
    below: usize,
}

fn select(totals: &[usize], from: usize, count: usize) -> Selected {
    let (mut sum, mut low, mut high, mut below) = (0, totals.len(), totals.len(), 0);
    for (b, &here) in totals.iter().enumerate() {
        if low == totals.len() && sum + here > from {
            (low, below) = (b, sum);
        }
        sum += here;
        if high == totals.len() && sum >= from + count {
            high = b;
        }
    }
    Selected { low, high, below }
}

/// Keeps the entries that may have the ranks `from..from + count` among these, by the bits after
/// those that all have in common; returns how many are below them. The order is kept.
fn refine(entries: &mut Vec<u64>, from: usize, count: usize) -> usize {
    let (low, high) = entries.iter().fold((u64::MAX, 0), |(a, b), &e| (a.min(e), b.max(e)));
    let common = (low ^ high).leading_zeros().min(64 - BITS);
    let bucket = |e: u64| (e << common >> (64 - BITS)) as usize;
    let mut totals = vec![0; BUCKETS];
    entries.iter().for_each(|&e| totals[bucket(e)] += 1);
    let Selected { low, high, below } = select(&totals, from, count);
    // As in `collect`.
    let mut kept = 0;
    for i in 0..entries.len() {
        let entry = entries[i];
        entries[kept] = entry;
        kept += usize::from(bucket(entry).wrapping_sub(low) <= high - low);
    }
    entries.truncate(kept);
    below
}

/// Collects the entries of the buckets that hold the requested ranks; returns how many are below
/// them.
fn collect<S: SortKey>(line: StridedRow<S>, wanted: RankRange, entries: &mut Vec<u64>) -> usize {
    let len = line.len;
    let blocks = len.div_ceil(BLOCK);
    let range = |block: usize| block * BLOCK..len.min((block + 1) * BLOCK);
    let bucket = |key: u32| (key >> (32 - BITS)) as usize;
    let mut counts = vec![0u32; blocks * BUCKETS];
    let table = Shared(counts.as_mut_ptr());
    par::for_each(blocks, |block| {
        // SAFETY: these counts are this task's.
        let counts = unsafe { std::slice::from_raw_parts_mut(table.at(block * BUCKETS), BUCKETS) };
        let (mut keys, range) = ([0; CHUNK], range(block));
        for i in range.clone().step_by(CHUNK) {
            let n = line.keys(i, range.end, &mut keys);
            keys[..n].iter().for_each(|&key| counts[bucket(key)] += 1);
        }
    });
    let mut totals = vec![0usize; BUCKETS];
    for counts in counts.chunks_exact(BUCKETS) {
        totals.iter_mut().zip(counts).for_each(|(total, &n)| *total += n as usize);
    }
    let Selected { low, high, below } = select(&totals, wanted.from, wanted.count);
    // The start of the entries of each block.
    let mut starts = vec![0usize; blocks + 1];
    for block in 0..blocks {
        let here = &counts[block * BUCKETS..][low..=high];
        starts[block + 1] = starts[block] + here.iter().map(|&n| n as usize).sum::<usize>();
    }
    entries.clear();
    entries.resize(starts[blocks], 0);
    let to = Shared(entries.as_mut_ptr());
    par::for_each(blocks, |block| {
        // SAFETY: as many entries as were counted; this part is this task's.
        let part = unsafe {
            std::slice::from_raw_parts_mut(to.at(starts[block]), starts[block + 1] - starts[block])
        };
        let (mut keys, mut found, range) = ([0; CHUNK], [0u64; CHUNK], range(block));
        let mut next = 0;
        for i in range.clone().step_by(CHUNK) {
            let n = line.keys(i, range.end, &mut keys);
            // Written always, and counted if selected, by one comparison: no branch to mispredict.
            let mut hits = 0;
            for (j, &key) in keys[..n].iter().enumerate() {
                found[hits] = u64::from(key) << 32 | (i + j) as u64;
                hits += usize::from(bucket(key).wrapping_sub(low) <= high - low);
            }
            part[next..next + hits].copy_from_slice(&found[..hits]);
            next += hits;
        }
    });
    below
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sort::sort;
    use pullback_ir::DType;

    fn sink(ptr: *mut u8, shape: &[usize], dtype: DType) -> Sink<'_> {
        Sink { ptr, shape, dtype }
    }

    /// Entries that differ in their lowest bits only, in their highest, and that are all equal.
    #[test]
    fn refining_keeps_the_requested_ranks() {
        for shift in [0, 20, 52] {
            let list: Vec<u64> =
                (0..5000u64).map(|i| (i * 7919 % 4096) << shift | 1 << 63).collect();
            let mut sorted = list.clone();
            sorted.sort_unstable();
            for (from, count) in [(0, 1), (17, 3), (2500, 1000), (4999, 1), (0, 5000)] {
                let mut kept = list.clone();
                let below = refine(&mut kept, from, count);
                assert!(
                    kept.len() >= count && (count > 4000 || kept.len() < 4000),
                    "{shift} {from}"
                );
                let part = pick(&mut kept, from - below, count);
                assert_eq!(part, &sorted[from..from + count], "{shift} {from} {count}");
            }
        }
        let mut same = vec![5u64; 100];
        assert_eq!((refine(&mut same, 40, 3), same.len()), (0, 100));
    }

    /// Lengths around a task and a block, with ties and NaN, against the full sort.
    #[test]
    fn agrees_with_the_sort() {
        for len in [1usize, 5, 1000, LONG - 1, LONG, BLOCK + 1, 3 * BLOCK] {
            let data: Vec<f32> = (0..2 * len)
                .map(|i| match i % 11 {
                    3 => f32::NAN,
                    7 => -0.0,
                    _ => ((i * 7919) % 1009) as f32 / 504.5 - 1.0,
                })
                .collect();
            for (shape, strides, axis) in
                [([2, len], [len as isize, 1], 1), ([len, 2], [1, len as isize], 0)]
            {
                let source = Source {
                    ptr: data.as_ptr().cast(),
                    shape: &shape,
                    strides: &strides,
                    dtype: DType::F32,
                };
                for descending in [false, true] {
                    let (mut all, mut order) = (vec![0f32; 2 * len], vec![0i64; 2 * len]);
                    sort(
                        axis,
                        descending,
                        source,
                        sink(all.as_mut_ptr().cast(), &shape, DType::F32),
                        sink(order.as_mut_ptr().cast(), &shape, DType::I64),
                    );
                    for (from, count) in [
                        (0, 1),
                        (0, len.min(10)),
                        (len / 3, 1),
                        (len - 1, 1),
                        (len / 2, len - len / 2),
                        (0, len),
                    ] {
                        let mut part = shape;
                        part[axis] = count;
                        for threads in [1, 3] {
                            let (mut values, mut indices) =
                                (vec![0f32; 2 * count], vec![0i64; 2 * count]);
                            par::with_threads(threads, || {
                                ranks(
                                    axis,
                                    RankRange { descending, from, count },
                                    source,
                                    sink(values.as_mut_ptr().cast(), &part, DType::F32),
                                    sink(indices.as_mut_ptr().cast(), &part, DType::I64),
                                )
                            });
                            for line in 0..2 {
                                for i in 0..count {
                                    let at = |i: usize, n: usize| {
                                        if axis == 1 { line * n + i } else { i * 2 + line }
                                    };
                                    let (given, want) = (at(i, count), at(from + i, len));
                                    assert_eq!(
                                        indices[given], order[want],
                                        "{len} {from} {count} {descending}"
                                    );
                                    assert_eq!(values[given].to_bits(), all[want].to_bits());
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
