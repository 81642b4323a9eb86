//! Offsets in one arena for blocks that live at different times.
//!
//! Finding the smallest arena is hard; placing the largest blocks first, each in the tightest gap
//! between those that live at the same time, comes close to the lower bound (the most bytes alive
//! at once) on programs as they occur. Blocks in order of time sometimes do better on long chains,
//! so both orders are tried unless the first reaches the bound.

use std::cmp::Reverse;

/// Memory that is needed from one equation to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Size, a multiple of the alignment.
    pub bytes: usize,
    /// The first equation that uses it.
    pub start: usize,
    /// The last one.
    pub end: usize,
}

/// The offset of each block, and the size of the arena.
pub fn pack(blocks: &[Interval]) -> (Vec<usize>, usize) {
    let bound = most_alive(blocks).1;
    let mut order: Vec<usize> = (0..blocks.len()).filter(|&i| blocks[i].bytes > 0).collect();
    order.sort_by_key(|&i| (Reverse(blocks[i].bytes), blocks[i].start, i));
    let by_size = place(blocks, &order);
    if by_size.1 == bound {
        return by_size;
    }
    order.sort_by_key(|&i| (blocks[i].start, Reverse(blocks[i].bytes), i));
    let by_time = place(blocks, &order);
    if by_time.1 < by_size.1 { by_time } else { by_size }
}

/// The first moment when most bytes are alive, and how many they are.
pub fn most_alive(blocks: &[Interval]) -> (usize, usize) {
    let last = blocks.iter().map(|b| b.end + 1).max().unwrap_or(0);
    let mut change = vec![0i128; last + 1];
    for block in blocks {
        change[block.start] += block.bytes as i128;
        change[block.end + 1] -= block.bytes as i128;
    }
    let (mut alive, mut most) = (0i128, (0, 0));
    for (time, by) in change.into_iter().enumerate() {
        alive += by;
        let bytes = usize::try_from(alive).unwrap_or(MAX_BYTES);
        if bytes > most.1 {
            most = (time, bytes);
        }
    }
    most
}

/// More than any memory has, without overflow when rounded up: allocating so much fails.
const MAX_BYTES: usize = isize::MAX as usize;

/// The end of a block that starts here.
fn end(start: usize, bytes: usize) -> usize {
    start.saturating_add(bytes).min(MAX_BYTES)
}

/// Places blocks in a given order.
fn place(blocks: &[Interval], order: &[usize]) -> (Vec<usize>, usize) {
    let (mut offsets, mut shelf, mut size) = (vec![0; blocks.len()], Shelf::default(), 0);
    for &i in order {
        offsets[i] = shelf.spot(&blocks[i]);
        shelf.put(blocks[i], offsets[i]);
        size = size.max(end(offsets[i], blocks[i].bytes));
    }
    (offsets, size)
}

/// Blocks with their offsets, sorted by offset.
#[derive(Default)]
pub struct Shelf(Vec<(usize, Interval)>);

impl Shelf {
    /// The smallest gap, among the blocks that live at the same time, that fits this one; or after
    /// them all.
    pub fn spot(&self, block: &Interval) -> usize {
        let (mut free, mut best): (usize, Option<(usize, usize)>) = (0, None);
        for (offset, other) in &self.0 {
            if other.start > block.end || other.end < block.start {
                continue;
            }
            if *offset >= end(free, block.bytes) {
                let gap = offset - free;
                if best.is_none_or(|(smallest, _)| gap < smallest) {
                    best = Some((gap, free));
                }
            }
            free = free.max(end(*offset, other.bytes));
        }
        best.map_or(free, |(_, at)| at)
    }

    /// Places a block.
    pub fn put(&mut self, block: Interval, offset: usize) {
        let at = self.0.partition_point(|(other, _)| *other <= offset);
        self.0.insert(at, (offset, block));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(bytes: usize, start: usize, end: usize) -> Interval {
        Interval { bytes, start, end }
    }

    #[test]
    fn what_never_lives_together_shares() {
        let (offsets, size) = pack(&[block(128, 0, 1), block(64, 2, 3), block(64, 2, 2)]);
        assert_eq!((&offsets[..], size), (&[0, 0, 64][..], 128));
        let (_, size) = pack(&[block(64, 0, 1), block(64, 1, 2), block(64, 2, 3)]);
        assert_eq!(size, 128);
        assert_eq!(pack(&[]), (vec![], 0));
    }

    #[test]
    fn the_tightest_gap_is_taken() {
        // Two gaps are free at time 2: one of 192 bytes, one of 64.
        let blocks =
            [block(192, 0, 1), block(128, 0, 3), block(64, 0, 1), block(64, 0, 3), block(64, 2, 3)];
        let (offsets, size) = pack(&blocks);
        assert_eq!(size, 448);
        assert!(blocks.iter().enumerate().all(|(i, a)| blocks[..i].iter().enumerate().all(
            |(j, b)| a.start > b.end
                || b.start > a.end
                || offsets[i] + a.bytes <= offsets[j]
                || offsets[j] + b.bytes <= offsets[i]
        )));
    }
}
