//! Eigenvalues of small tridiagonal matrices, and of large ones without vectors: implicit QL.
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
use super::vector::turn_columns;
use super::view::Cols;

/// Sweeps for an eigenvalue; far more than are ever needed.
const SWEEPS: usize = 60;

/// `d` becomes the eigenvalues, in no order, and Z becomes Z·(the eigenvectors). `e` is destroyed.
/// Returns whether it converged.
pub(super) fn ql<T: Real>(d: &mut [T], e: &mut [T], mut z: Option<Cols<T>>) -> bool {
    let n = d.len();
    let mut turns = vec![(T::ZERO, T::ZERO); n];
    let floor = negligible(d, e);
    let (mut end, mut budget) = (n, SWEEPS * n);
    let (mut block, mut up) = (n..n, true);
    while end > 1 {
        let small =
            |i: usize| e[i].size() <= floor.larger(T::EPS * (d[i].size() + d[i + 1].size()));
        if small(end - 2) {
            e[end - 2] = T::ZERO;
            end -= 1;
            continue;
        }
        let first = (0..end - 1).rev().find(|&i| small(i)).map_or(0, |i| i + 1);
        let last = end - 1;
        if budget == 0 {
            return false;
        }
        budget -= 1;
        if first >= block.end || last < block.start {
            up = d[last].size() >= d[first].size();
        }
        block = first..last + 1;
        let count = last - first;
        sweep(&mut Line { d, e, first, last, down: up }, &mut turns[..count]);
        if let Some(z) = &mut z {
            if !up {
                turns[..count].reverse();
                turns[..count].iter_mut().for_each(|(_, s)| *s = -*s);
            }
            turn_columns(z.again(), first, &turns[..count], up);
        }
    }
    true
}

/// A part of the two diagonals, read downwards or upwards.
pub(super) struct Line<'a, T> {
    pub d: &'a mut [T],
    pub e: &'a mut [T],
    pub first: usize,
    pub last: usize,
    pub down: bool,
}

impl<T: Real> Line<'_, T> {
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
fn sweep<T: Real>(line: &mut Line<T>, turns: &mut [(T, T)]) {
    let (n, two, tiny) = (turns.len(), T::of_f64(2.0), T::TINY / T::EPS);
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
            turns[..=i].fill((T::ONE, T::ZERO));
            return;
        }
        (s, c) = (f / r, g / r);
        let below = *line.d(i + 1) - p;
        let r = (*line.d(i) - below) * s + two * c * b;
        p = s * r;
        *line.d(i + 1) = below + p;
        g = c * r - b;
        turns[i] = (c, -s);
    }
    *line.d(0) -= p;
    *line.e(0) = g;
}

/// What is far below the rounding of these diagonals. (Elements between that and the smallest
/// numbers would be rotated without ever converging, as their squares are zero.)
pub(super) fn negligible<T: Real>(d: &[T], e: &[T]) -> T {
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
