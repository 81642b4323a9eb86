//! The innermost loops of reductions.

use super::{Fold, LANES};
use crate::elem::Elem;

/// Folds elements that are `stride` apart: over lanes if `in_lanes`, which wants a stride of 1,
/// else over four. (A block that was widened is contiguous, and folded as its operand would be.)
#[inline(always)]
pub(super) unsafe fn run_body<S: Elem, K: Fold<S::Compute>>(
    x: *const S,
    stride: isize,
    len: usize,
    in_lanes: bool,
) -> S::Compute {
    // SAFETY: the caller has `len` elements there.
    unsafe {
        if in_lanes {
            return short_or_long::<S, K>(x, len);
        }
        let at = |i: usize| (*x.offset(i as isize * stride)).load();
        in_fours::<S::Compute, K>(at, len)
    }
}

/// Folds contiguous elements. Lanes that would stay neutral are skipped: a fold with them gives the
/// same bits.
#[inline(always)]
unsafe fn short_or_long<S: Elem, K: Fold<S::Compute>>(x: *const S, len: usize) -> S::Compute {
    // SAFETY: the caller has `len` elements there.
    unsafe {
        match len {
            ..16 => in_fours::<S::Compute, K>(|i| (*x.add(i)).load(), len),
            16 => in_lanes::<S, K, 16>(x, len),
            17..=32 => in_lanes::<S, K, 32>(x, len),
            _ => in_lanes::<S, K, LANES>(x, len),
        }
    }
}

/// Folds a few elements over four lanes.
#[inline(always)]
fn in_fours<A: Copy, K: Fold<A>>(at: impl Fn(usize) -> A, len: usize) -> A {
    let mut lanes = [K::NEUTRAL; 4];
    let full = len / 4 * 4;
    let mut i = 0;
    while i < full {
        for (l, lane) in lanes.iter_mut().enumerate() {
            *lane = K::join(*lane, at(i + l));
        }
        i += 4;
    }
    // One by one: indexing lanes by a run-time value would keep all of them in memory.
    if len > full {
        lanes[0] = K::join(lanes[0], at(full));
    }
    if len > full + 1 {
        lanes[1] = K::join(lanes[1], at(full + 1));
    }
    if len > full + 2 {
        lanes[2] = K::join(lanes[2], at(full + 2));
    }
    K::join(K::join(lanes[0], lanes[1]), K::join(lanes[2], lanes[3]))
}

#[inline(always)]
unsafe fn in_lanes<S: Elem, K: Fold<S::Compute>, const L: usize>(
    x: *const S,
    len: usize,
) -> S::Compute {
    // SAFETY: the caller has `len` elements there.
    unsafe {
        let mut lanes = lanes_of::<S, K, L>(x, len);
        let mut width = L;
        while width > 1 {
            width /= 2;
            for l in 0..width {
                lanes[l] = K::join(lanes[l], lanes[l + width]);
            }
        }
        lanes[0]
    }
}

/// The folds of every `L`th element.
#[inline(always)]
unsafe fn lanes_of<S: Elem, K: Fold<S::Compute>, const L: usize>(
    x: *const S,
    len: usize,
) -> [S::Compute; L] {
    // SAFETY: the caller has `len` elements there.
    unsafe {
        let mut lanes = [K::NEUTRAL; L];
        let full = len / L * L;
        let mut i = 0;
        while i < full {
            for (l, lane) in lanes.iter_mut().enumerate() {
                *lane = K::join(*lane, (*x.add(i + l)).load());
            }
            i += L;
        }
        if full < len {
            let mut rest = [K::NEUTRAL; L];
            copy_short(x.add(full), len - full, rest.as_mut_ptr());
            for (lane, x) in lanes.iter_mut().zip(rest) {
                *lane = K::join(*lane, x);
            }
        }
        lanes
    }
}

/// Lines that are folded together.
const LINES: usize = 16;

/// Folds each of some lines of contiguous elements over all lanes. Their last lanes are joined side
/// by side, in the order of [`in_lanes`]: line by line, that takes longer than a short line.
#[inline(always)]
unsafe fn lines_in_lanes<S: Elem, K: Fold<S::Compute>>(
    x: *const S,
    line: isize,
    len: usize,
    out: &mut [S::Compute; LINES],
) {
    let mut held = [[K::NEUTRAL; LINES]; LINES];
    for (i, held) in held.iter_mut().enumerate() {
        // SAFETY: the caller has `len` elements in each line.
        let mut lanes = unsafe { lanes_of::<S, K, LANES>(x.offset(i as isize * line), len) };
        let mut width = LANES;
        while width > LINES {
            width /= 2;
            for l in 0..width {
                lanes[l] = K::join(lanes[l], lanes[l + width]);
            }
        }
        held.copy_from_slice(&lanes[..LINES]);
    }
    // In memory, not in registers: the compiler would shuffle the lanes of each line by itself.
    let held = std::hint::black_box(&held).as_flattened();
    let (mut eights, mut fours) = ([K::NEUTRAL; LINES * 8], [K::NEUTRAL; LINES * 4]);
    for i in 0..LINES {
        for l in 0..8 {
            eights[i * 8 + l] = K::join(held[i * LINES + l], held[i * LINES + 8 + l]);
        }
    }
    for i in 0..LINES {
        for l in 0..4 {
            fours[i * 4 + l] = K::join(eights[i * 8 + l], eights[i * 8 + 4 + l]);
        }
    }
    for (i, found) in out.iter_mut().enumerate() {
        let lane = |l: usize| fours[i * 4 + l];
        *found = K::join(K::join(lane(0), lane(2)), K::join(lane(1), lane(3)));
    }
}

/// Copies a few elements, by eights or fours. The last copy may overlap the one before: that costs
/// less than one by one.
#[inline(always)]
unsafe fn copy_short<S: Elem>(x: *const S, len: usize, to: *mut S::Compute) {
    // SAFETY: the caller has `len` elements, and space for them.
    unsafe {
        let some = |from: usize, count: usize| {
            for i in 0..count {
                *to.add(from + i) = (*x.add(from + i)).load();
            }
        };
        match len {
            8.. => {
                let mut done = 0;
                while done + 8 <= len {
                    some(done, 8);
                    done += 8;
                }
                some(len - 8, 8);
            }
            4.. => {
                some(0, 4);
                some(len - 4, 4);
            }
            _ => some(0, len),
        }
    }
}

/// Folds each of some contiguous rows.
#[inline(always)]
pub(super) unsafe fn each_body<S: Elem, K: Fold<S::Compute>>(
    x: *const S,
    row: usize,
    rows: usize,
    out: *mut S::Compute,
) {
    // SAFETY: the caller has `rows` rows of `row` elements, and space for as many results.
    unsafe {
        for r in 0..rows {
            *out.add(r) = short_or_long::<S, K>(x.add(r * row), row);
        }
    }
}

/// Folds each of some lines, as [`run_body`] folds one. Short lines have lengths that the compiler
/// knows, so that it folds several at a time.
#[inline(always)]
pub(super) unsafe fn lines_body<S: Elem, K: Fold<S::Compute>>(
    x: *const S,
    [line, stride]: [isize; 2],
    len: usize,
    out: &mut [S::Compute],
) {
    // SAFETY: the caller has a line of `len` elements for each result.
    unsafe {
        match (line, stride, len) {
            (2, 1, 2) => few_body::<S, K, 2>(x, out),
            (3, 1, 3) => few_body::<S, K, 3>(x, out),
            (4, 1, 4) => few_body::<S, K, 4>(x, out),
            (8, 1, 8) => few_body::<S, K, 8>(x, out),
            _ => {
                let mut done = 0;
                if stride == 1 && len > 32 {
                    for found in out.as_chunks_mut::<LINES>().0 {
                        lines_in_lanes::<S, K>(x.offset(done as isize * line), line, len, found);
                        done += LINES;
                    }
                }
                for (i, found) in out.iter_mut().enumerate().skip(done) {
                    let x = x.offset(i as isize * line);
                    *found = run_body::<S, K>(x, stride, len, stride == 1);
                }
            }
        }
    }
}

/// Folds each of some contiguous lines of a few elements.
#[inline(always)]
unsafe fn few_body<S: Elem, K: Fold<S::Compute>, const N: usize>(
    x: *const S,
    out: &mut [S::Compute],
) {
    for (i, found) in out.iter_mut().enumerate() {
        // SAFETY: the caller has N elements for each result.
        *found = in_fours::<S::Compute, K>(|j| unsafe { (*x.add(i * N + j)).load() }, N);
    }
}

#[inline(always)]
pub(super) unsafe fn rows_body<S: Elem, K: Fold<S::Compute>>(
    x: *const S,
    row: isize,
    rows: usize,
    step: isize,
    sums: &mut [S::Compute],
) {
    let mut r = 0;
    // SAFETY: the caller has `rows` rows of as many elements as there are sums.
    unsafe {
        while r < rows {
            let x = x.offset(r as isize * row);
            let at = |i: isize, j: usize| (*x.offset(i * row + j as isize * step)).load();
            if step == 1 && rows - r >= 8 {
                let at = |i: isize, j: usize| (*x.offset(i * row).add(j)).load();
                for (j, sum) in sums.iter_mut().enumerate() {
                    let low = K::join(K::join(at(0, j), at(1, j)), K::join(at(2, j), at(3, j)));
                    let high = K::join(K::join(at(4, j), at(5, j)), K::join(at(6, j), at(7, j)));
                    *sum = K::join(*sum, K::join(low, high));
                }
                r += 8;
            } else {
                for (j, sum) in sums.iter_mut().enumerate() {
                    *sum = K::join(*sum, at(0, j));
                }
                r += 1;
            }
        }
    }
}
