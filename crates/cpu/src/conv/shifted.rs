//! Groups of few channels whose windows move by one element: sums of shifted rows, in registers.
//!
//! [`super::direct`] adds one scaled row after the other to a row of sums in memory. Here the rows
//! that a strip of results reads are copied once, with zeros around them. A block of results is
//! then the sum, over all taps, of runs of that copy at fixed distances, and stays in registers.
//! The input from the result is the same with shifts of the other sign.

use super::direct::tasks;
use super::num::ConvFloat;
use super::{Problem, Volume};
use crate::dot::even;
use crate::elem::Elem;
use crate::operand::Sink;
use crate::par::Shared;
use crate::simd::{Isa, SimdTask, vectorised};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Most elements between the first and the last tap of a row, which every copied row has more.
const SPAN: usize = 64;
/// Results of a block, and of the last one of a row, if these are enough.
const BLOCK: usize = 32;
const HALF: usize = BLOCK / 2;
/// Elements of a copy that stays in L1 and L2.
const COPIED: usize = 1 << 14;

/// Whether this method applies.
pub(super) fn fits(p: &Problem) -> bool {
    let span = |n: usize| (p.axes[n].window.size - 1).saturating_mul(p.axes[n].window.dilation);
    let by_one = p.axes.iter().all(|axis| axis.window.stride == 1 && axis.window.size > 0);
    let is_empty =
        [p.inner, p.outer].contains(&0) || p.axes.iter().any(|a| a.input == 0 || a.output == 0);
    p.is_thin() && by_one && !is_empty && span(1) <= SPAN && span(2) <= SPAN
}

/// A volume each of whose elements is a sum over shifted elements of another.
struct ShiftedSum<S> {
    source: Volume<S>,
    weights: Volume<S>,
    forward: bool,
    /// Channels of the result in a group, and of the source.
    own: usize,
    others: usize,
    /// Lengths of the source and of the result.
    from: [usize; 3],
    to: [usize; 3],
    /// Where the taps are, from an element of the result.
    shifts: [Vec<isize>; 3],
    out: Shared<S>,
}

pub(super) fn run<S: Elem<Compute = C>, C: ConvFloat>(
    p: &Problem,
    forward: bool,
    source: Volume<S>,
    weights: Volume<S>,
    out: Sink,
) {
    let (input, output) = (p.axes.map(|a| a.input), p.axes.map(|a| a.output));
    let shifts = p.axes.map(|a| {
        let shift = |t: usize| (t * a.window.dilation) as isize - a.window.before;
        (0..a.window.size).map(|t| if forward { shift(t) } else { -shift(t) }).collect::<Vec<_>>()
    });
    let (own, others) = if forward { (p.outer, p.inner) } else { (p.inner, p.outer) };
    let (from, to) = if forward { (input, output) } else { (output, input) };
    let out = Shared(out.ptr.cast::<S>());
    let row = others * shifts[0].len() * (to[2] + SPAN);
    let strip = even(to[1], (COPIED / row).max(shifts[1].len()), 1);
    let it = ShiftedSum { source, weights, forward, own, others, from, to, shifts, out };
    let strips = p.batch * p.groups * own * to[0] * to[1].div_ceil(strip);
    tasks(strips, p.work(), |range| {
        vectorised(Strips { it: &it, range, strip, channels: p.groups * own });
    });
}

/// Some strips of the result: so many rows of its last two axes.
struct Strips<'a, S> {
    it: &'a ShiftedSum<S>,
    range: Range<usize>,
    strip: usize,
    channels: usize,
}

impl<S: Elem<Compute = C>, C: ConvFloat> SimdTask for Strips<'_, S> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let it = self.it;
        let [_, height, width] = it.to;
        let [depths, heights, widths] = &it.shifts;
        let [low, left] = [heights, widths].map(|s| s.iter().copied().min().unwrap_or(0));
        let [high, right] = [heights, widths].map(|s| s.iter().copied().max().unwrap_or(0));
        let (above, beside) = ((high - low) as usize, (right - left) as usize);
        let pitch = width.next_multiple_of(BLOCK) + beside;
        let rows = self.strip + above;
        let mut copy = vec![C::default(); it.others * depths.len() * rows * pitch];
        let mut line = vec![C::default(); width.next_multiple_of(BLOCK)];
        let mut numbers: Vec<C> = Vec::new();
        let mut taps: Vec<(C, usize)> = Vec::new();
        let in_slice = height.div_ceil(self.strip);
        for part in self.range {
            let (slice, top) = (part / in_slice, part % in_slice * self.strip);
            let bottom = height.min(top + self.strip);
            let (rest, d) = (slice / it.to[0], slice % it.to[0]);
            let (image, c) = (rest / self.channels, rest % self.channels);
            let group = c / it.own;
            let inside = |at: isize, len: usize| usize::try_from(at).ok().filter(|&at| at < len);
            // Of each channel and depth, the rows with zeros around them; and the weights.
            numbers.clear();
            for n in 0..it.others {
                let other = group * it.others + n;
                let pair = if it.forward { [c, n] } else { [other, c % it.own] };
                for (td, shift) in depths.iter().enumerate() {
                    let to = (n * depths.len() + td) * rows * pitch;
                    if let Some(at) = inside(d as isize + shift, it.from[0]) {
                        for row in 0..bottom - top + above {
                            let y = inside((top + row) as isize + low, it.from[1]);
                            let Some(y) = y else { continue };
                            let first = it.source.at([image, other, at, y, 0]);
                            let to = &mut copy[to + row * pitch..][..pitch];
                            // SAFETY: the row is in the source.
                            unsafe { it.copy_row(first, left, to) };
                        }
                    }
                    for th in 0..heights.len() {
                        for tw in 0..widths.len() {
                            let at = it.weights.at([pair[0], pair[1], td, th, tw]);
                            // SAFETY: the tap is in the kernel.
                            numbers.push(unsafe { (*at).load() });
                        }
                    }
                }
            }
            // The taps of the first row; those of others are as many rows further on.
            let of_row = |h: usize, taps: &mut Vec<(C, usize)>| {
                taps.clear();
                let mut k = numbers.iter();
                for n in 0..it.others {
                    for (td, shift) in depths.iter().enumerate() {
                        let deep = inside(d as isize + shift, it.from[0]).is_some();
                        for shift in heights {
                            let is = deep && inside(h as isize + shift, it.from[1]).is_some();
                            let row = (n * depths.len() + td) * rows + (shift - low) as usize;
                            for (shift, &k) in widths.iter().zip(&mut k) {
                                if is {
                                    taps.push((k, row * pitch + (shift - left) as usize));
                                }
                            }
                        }
                    }
                }
            };
            let mut all_inside = false;
            for h in top..bottom {
                let now = inside(h as isize + low, it.from[1]).is_some()
                    && inside(h as isize + high, it.from[1]).is_some();
                if !(now && all_inside) {
                    of_row(h, &mut taps);
                }
                all_inside = now;
                let down = (h - top) * pitch;
                let mut j = 0;
                while j < width {
                    // SAFETY: a row of the copy has the taps of whole blocks, and so has the line.
                    unsafe {
                        let (from, to) = (copy.as_ptr().add(down + j), line.as_mut_ptr().add(j));
                        match width - j > HALF {
                            true => block::<C, I, BLOCK>(&taps, from, to),
                            false => block::<C, I, HALF>(&taps, from, to),
                        }
                    }
                    j += BLOCK;
                }
                let first = it.out.at((slice * height + h) * width);
                // SAFETY: this strip is this task's.
                let out = unsafe {
                    std::slice::from_raw_parts_mut(first.cast::<MaybeUninit<S>>(), width)
                };
                for (out, &sum) in out.iter_mut().zip(&line) {
                    out.write(S::store(sum));
                }
            }
        }
    }
}

impl<S: Elem> ShiftedSum<S> {
    /// Copies a row of the source from a column on, with zeros where it has none.
    ///
    /// # Safety
    /// `first` is the first element of a row of the source.
    #[inline(always)]
    unsafe fn copy_row(&self, first: *const S, left: isize, to: &mut [S::Compute])
    where
        S::Compute: ConvFloat,
    {
        let before = ((-left).max(0) as usize).min(to.len());
        let after =
            (self.from[2] as isize - left).clamp(before as isize, to.len() as isize) as usize;
        to[..before].fill(Default::default());
        to[after..].fill(Default::default());
        let (step, column) = (self.source.strides[4], before as isize + left);
        let to = &mut to[before..after];
        // SAFETY: as many columns of the row follow, which nobody writes.
        unsafe {
            if step == 1 {
                let row = std::slice::from_raw_parts(first.wrapping_offset(column), to.len());
                to.iter_mut().zip(row).for_each(|(to, x)| *to = x.load());
            } else {
                for (i, to) in to.iter_mut().enumerate() {
                    *to = (*first.offset((column + i as isize) * step)).load();
                }
            }
        }
    }
}

/// Sums over the taps: `N` results from `N` adjacent elements at each.
///
/// # Safety
/// There are as many elements at each tap from `from` on, and space for the sums.
#[inline(always)]
unsafe fn block<C: ConvFloat, I: Isa, const N: usize>(
    taps: &[(C, usize)],
    from: *const C,
    to: *mut C,
) {
    let mut sums = [C::default(); N];
    for &(k, at) in taps {
        // SAFETY: guaranteed by the caller.
        let x = unsafe { from.add(at).cast::<[C; N]>().read() };
        for (sum, x) in sums.iter_mut().zip(x) {
            *sum = x.fma::<I>(k, *sum);
        }
    }
    // SAFETY: guaranteed by the caller.
    unsafe { to.cast::<[C; N]>().write(sums) };
}
