//! Inner products of columns, on vectors that are written out: the compiler's vectoriser does not
//! reorder sums, so that loops in the manner of `vector.rs` would stay scalar.
//!
//! As in [`crate::dot::tile`], an algorithm is written once for any [`Vector`], and compiled for
//! the vectors of each instruction set.

use super::Real;
use super::view::Grid;
use crate::dot::tile::Vector;
use crate::simd::{by_level, level};

/// A piece of work on vectors.
trait VectorWork<T: Real>: Sized {
    /// # Safety
    /// The processor has the vectors.
    unsafe fn run<V: Vector<T = T>>(self);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2<T: Real, W: VectorWork<T>>(work: W) {
    // SAFETY: the processor has these features.
    unsafe { work.run::<T::V256>() }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx2,fma")]
unsafe fn avx512<T: Real, W: VectorWork<T>>(work: W) {
    // SAFETY: the processor has these features.
    unsafe { work.run::<T::V512>() }
}

fn on_vectors<T: Real, W: VectorWork<T>>(work: W) {
    // SAFETY: the level was detected.
    unsafe {
        by_level!(
            level(),
            avx512: avx512::<T, W>(work),
            avx2: avx2::<T, W>(work),
            baseline: work.run::<T::Base>(),
        )
    }
}

/// The sum of the lanes.
#[inline(always)]
unsafe fn total<V: Vector<T = T>, T: Real>(x: V) -> T {
    let mut lanes = [T::ZERO; 16];
    // SAFETY: no vector has more than 16 lanes.
    unsafe { x.store(lanes.as_mut_ptr()) };
    let mut half = V::N / 2;
    while half > 0 {
        for l in 0..half {
            lanes[l] += lanes[l + half];
        }
        half /= 2;
    }
    lanes[0]
}

#[inline(always)]
unsafe fn inner<V: Vector<T = T>, T: Real>(a: &[T], b: &[T]) -> T {
    let n = a.len().min(b.len());
    let (a, b, mut i) = (a.as_ptr(), b.as_ptr(), 0);
    // SAFETY: all loads are inside the first n elements.
    unsafe {
        let mut sums = [V::zero(); 4];
        while i + 4 * V::N <= n {
            for (k, sum) in sums.iter_mut().enumerate() {
                let at = i + k * V::N;
                *sum = sum.fma(V::load(a.add(at)), V::load(b.add(at)));
            }
            i += 4 * V::N;
        }
        while i + V::N <= n {
            sums[0] = sums[0].fma(V::load(a.add(i)), V::load(b.add(i)));
            i += V::N;
        }
        if i < n {
            let rest = V::mask(n - i);
            let (a, b) = (V::load_masked(a.add(i), rest), V::load_masked(b.add(i), rest));
            sums[1] = sums[1].fma(a, b);
        }
        total(sums[0].add(sums[1]).add(sums[2].add(sums[3])))
    }
}

struct Dot<'a, T> {
    a: &'a [T],
    b: &'a [T],
    out: &'a mut T,
}

impl<T: Real> VectorWork<T> for Dot<'_, T> {
    #[inline(always)]
    unsafe fn run<V: Vector<T = T>>(self) {
        // SAFETY: passed on.
        *self.out = unsafe { inner::<V, T>(self.a, self.b) };
    }
}

/// The inner product.
pub(super) fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    let mut out = T::ZERO;
    on_vectors(Dot { a, b, out: &mut out });
    out
}

/// Four columns from column `j` on.
#[inline(always)]
fn four<T: Real>(a: &Grid<T>, j: usize) -> [*const T; 4] {
    [j, j + 1, j + 2, j + 3].map(|c| a.column(c).as_ptr())
}

/// A result, a matrix and a vector.
struct MatVecOperands<'a, T> {
    y: &'a mut [T],
    a: Grid<'a, T>,
    x: &'a [T],
}

struct Project<'a, T>(MatVecOperands<'a, T>);

impl<T: Real> VectorWork<T> for Project<'_, T> {
    #[inline(always)]
    unsafe fn run<V: Vector<T = T>>(self) {
        let Project(MatVecOperands { y, a, x }) = self;
        let (m, n) = (a.rows, a.cols);
        let mut j = 0;
        // SAFETY: `project` has checked the sizes; all loads are inside x and the columns.
        unsafe {
            while j + 4 <= n {
                let c = four(&a, j);
                let (x, mut i) = (x.as_ptr(), 0);
                let (mut s, mut t) = ([V::zero(); 4], [V::zero(); 4]);
                while i + 2 * V::N <= m {
                    let (v, w) = (V::load(x.add(i)), V::load(x.add(i + V::N)));
                    for k in 0..4 {
                        s[k] = s[k].fma(V::load(c[k].add(i)), v);
                        t[k] = t[k].fma(V::load(c[k].add(i + V::N)), w);
                    }
                    i += 2 * V::N;
                }
                while i < m {
                    let rest = V::mask(m - i);
                    let v = V::load_masked(x.add(i), rest);
                    for k in 0..4 {
                        s[k] = s[k].fma(V::load_masked(c[k].add(i), rest), v);
                    }
                    i += V::N;
                }
                for k in 0..4 {
                    y[j + k] = total(s[k].add(t[k]));
                }
                j += 4;
            }
            while j < n {
                y[j] = inner::<V, T>(a.column(j), x);
                j += 1;
            }
        }
    }
}

/// y = Aᵀ·x, for dense columns.
pub(super) fn project<T: Real>(y: &mut [T], a: Grid<T>, x: &[T]) {
    assert!(y.len() >= a.cols && x.len() == a.rows);
    on_vectors(Project(MatVecOperands { y, a, x }));
}

struct Mirror<'a, T>(MatVecOperands<'a, T>);

impl<T: Real> VectorWork<T> for Mirror<'_, T> {
    #[inline(always)]
    unsafe fn run<V: Vector<T = T>>(self) {
        let Mirror(MatVecOperands { y, a, x }) = self;
        let n = a.rows;
        let mut j = 0;
        while j < n {
            // The triangle on the diagonal, then four columns below it in one pass.
            let end = n.min(j + 4);
            for c in j..end {
                let column = a.column(c);
                y[c] += column[c] * x[c];
                for r in c + 1..end {
                    y[r] += column[r] * x[c];
                    y[c] += column[r] * x[r];
                }
            }
            if end == n {
                break;
            }
            // SAFETY: all loads and stores are in rows from `end` to n.
            unsafe {
                let c = four(&a, j);
                let s = [j, j + 1, j + 2, j + 3].map(|c| V::splat(x[c]));
                let mut sums = [V::zero(); 4];
                let (from, to, mut i) = (x.as_ptr(), y.as_mut_ptr(), end);
                while i + V::N <= n {
                    let (v, mut w) = (V::load(from.add(i)), V::load(to.add(i)));
                    for k in 0..4 {
                        let e = V::load(c[k].add(i));
                        sums[k] = sums[k].fma(e, v);
                        w = w.fma(e, s[k]);
                    }
                    w.store(to.add(i));
                    i += V::N;
                }
                if i < n {
                    let rest = V::mask(n - i);
                    let v = V::load_masked(from.add(i), rest);
                    let mut w = V::load_masked(to.add(i), rest);
                    for k in 0..4 {
                        let e = V::load_masked(c[k].add(i), rest);
                        sums[k] = sums[k].fma(e, v);
                        w = w.fma(e, s[k]);
                    }
                    w.store_masked(to.add(i), rest);
                }
                for k in 0..4 {
                    y[j + k] += total(sums[k]);
                }
            }
            j = end;
        }
    }
}

/// y = A·x for a symmetric A of which only the lower triangle is read.
pub(super) fn mirrored<T: Real>(y: &mut [T], a: Grid<T>, x: &[T]) {
    assert!(a.rows == a.cols && y.len() == a.rows && x.len() == a.rows);
    y.fill(T::ZERO);
    on_vectors(Mirror(MatVecOperands { y, a, x }));
}
