//! Eigenvalues of small tridiagonal matrices: implicit QL.
//!
//! A sweep applies a shifted QL step without forming it: a rotation at the lower end brings an
//! element outside of the three diagonals, and further rotations move it up and out. With the shift
//! from the first 2 × 2 block (Wilkinson's) the first subdiagonal element converges to zero, mostly
//! in two sweeps; what then is left is one smaller. The rotations of a sweep are applied to the
//! vectors together.
//!
//! A sweep moves from small elements to large ones: where the first diagonal element of a block is
//! the larger one, the block is read backwards (which is QR instead of QL). So graded matrices keep
//! their small eigenvalues, and converge.

use super::Real;
use super::vector::rotate_columns;
use super::view::Cols;
use std::ops::Range;

/// Sweeps for an eigenvalue or singular value; far more than are ever needed.
const SWEEPS: usize = 60;

/// `d` becomes the eigenvalues, in no order, and Z becomes Z·(the eigenvectors). `e` is destroyed.
/// Returns whether it converged.
pub(super) fn ql<T: Real>(d: &mut [T], e: &mut [T], mut z: Cols<T>) -> bool {
    let mut rotations = vec![(T::ZERO, T::ZERO); d.len()];
    let (mut blocks, mut up) = (UnreducedBlocks::of(d, e), true);
    while let Some(UnreducedBlock { first, last, is_new }) = blocks.next(d, e) {
        if is_new {
            up = d[last].size() >= d[first].size();
        }
        let rotations = &mut rotations[..last - first];
        sweep(&mut DiagonalPart { d, e, first, last, down: up }, rotations);
        if !up {
            reverse(rotations);
        }
        rotate_columns(z.again(), first, rotations, up);
    }
    blocks.converged()
}

/// Finds the blocks to sweep, from the end: those between off-diagonal elements that are
/// negligible.
pub(super) struct UnreducedBlocks<T> {
    /// What is negligible beside any diagonal element.
    floor: T,
    /// The rows from here on are done.
    end: usize,
    sweeps_left: usize,
    previous: Range<usize>,
}

/// A block of rows from `first` to `last`.
pub(super) struct UnreducedBlock {
    pub first: usize,
    pub last: usize,
    /// Whether it shares no row with the previous one.
    pub is_new: bool,
}

impl<T: Real> UnreducedBlocks<T> {
    pub(super) fn of(d: &[T], e: &[T]) -> UnreducedBlocks<T> {
        let n = d.len();
        UnreducedBlocks { floor: negligible(d, e), end: n, sweeps_left: SWEEPS * n, previous: n..n }
    }

    /// The next block; none if all rows are done, or too many sweeps were.
    pub(super) fn next(&mut self, d: &[T], e: &mut [T]) -> Option<UnreducedBlock> {
        let floor = self.floor;
        let small = |e: &[T], i: usize| {
            e[i].size() <= floor.larger(T::EPS * (d[i].size() + d[i + 1].size()))
        };
        while self.end > 1 && small(e, self.end - 2) {
            e[self.end - 2] = T::ZERO;
            self.end -= 1;
        }
        if self.converged() || self.sweeps_left == 0 {
            return None;
        }
        self.sweeps_left -= 1;
        let last = self.end - 1;
        let first = (0..last).rev().find(|&i| small(e, i)).map_or(0, |i| i + 1);
        let is_new = first >= self.previous.end || last < self.previous.start;
        self.previous = first..self.end;
        Some(UnreducedBlock { first, last, is_new })
    }

    /// Whether all rows are done.
    pub(super) fn converged(&self) -> bool {
        self.end <= 1
    }
}

/// The rotations of a sweep upwards, as ones of columns in ascending order.
pub(super) fn reverse<T: Real>(rotations: &mut [(T, T)]) {
    rotations.reverse();
    rotations.iter_mut().for_each(|(_, s)| *s = -*s);
}

/// A part of the two diagonals, read downwards or upwards.
pub(super) struct DiagonalPart<'a, T> {
    pub d: &'a mut [T],
    pub e: &'a mut [T],
    pub first: usize,
    pub last: usize,
    pub down: bool,
}

impl<T: Real> DiagonalPart<'_, T> {
    #[inline(always)]
    pub(super) fn d(&mut self, i: usize) -> &mut T {
        &mut self.d[if self.down { self.first + i } else { self.last - i }]
    }

    #[inline(always)]
    pub(super) fn e(&mut self, i: usize) -> &mut T {
        &mut self.e[if self.down { self.first + i } else { self.last - 1 - i }]
    }
}

/// One sweep, and its rotations.
fn sweep<T: Real>(line: &mut DiagonalPart<T>, rotations: &mut [(T, T)]) {
    let (n, two, tiny) = (rotations.len(), T::of_f64(2.0), T::TINY / T::EPS);
    let (head, link) = (*line.d(0), *line.e(0));
    let half = (*line.d(1) - head) / (two * link);
    let mut g = *line.d(n) - head + link / (half + T::ONE.length(half).signed(half));
    let (mut s, mut c, mut p) = (T::ONE, T::ONE, T::ZERO);
    for i in (0..n).rev() {
        let own = *line.e(i);
        let (f, b) = (s * own, c * own);
        let r = f.length(g);
        if i + 1 < n {
            *line.e(i + 1) = if r <= tiny { T::ZERO } else { r };
        }
        if r <= tiny {
            // It splits here. (Subnormal numbers have too few digits for a rotation.)
            *line.d(i + 1) -= p;
            rotations[..=i].fill((T::ONE, T::ZERO));
            return;
        }
        (s, c) = (f / r, g / r);
        let below = *line.d(i + 1) - p;
        let r = (*line.d(i) - below) * s + two * c * b;
        p = s * r;
        *line.d(i + 1) = below + p;
        g = c * r - b;
        rotations[i] = (c, -s);
    }
    *line.d(0) -= p;
    *line.e(0) = g;
}

/// What is far below the rounding of these diagonals. (Elements between that and the smallest
/// numbers would be rotated without ever converging, as their squares are zero.)
fn negligible<T: Real>(d: &[T], e: &[T]) -> T {
    let most = d.iter().chain(e).fold(T::ZERO, |most, x| most.larger(x.size()));
    (most * T::EPS * T::EPS).larger(T::TINY / T::EPS)
}

/// Sorts the values ascending, and the columns with them.
pub(super) fn sort<T: Real>(d: &mut [T], mut z: Cols<T>) {
    for i in 0..d.len() {
        let best = (i..d.len()).fold(i, |best, j| if d[j] < d[best] { j } else { best });
        if best != i {
            d.swap(i, best);
            let (a, b) = z.pair(i, best);
            a.swap_with_slice(b);
        }
    }
}
