//! The secular equation, by which both divide-and-conquer methods join their halves.
//!
//! The eigenvalues of D + ρ·z·zᵀ, with D diagonal and ascending, are the roots of
//!
//! ```text
//! f(λ) = 1/ρ + Σ zⱼ² / (dⱼ − λ)
//! ```
//!
//! one between each two neighbouring poles dⱼ and one above the last. (Singular values are such
//! roots too, with the poles dⱼ² and λ = σ².) The eigenvector of λ is zⱼ / (dⱼ − λ), normalised.
//!
//! # Distances instead of roots
//!
//! A root may agree with a pole in all digits but the last, or in all. So the unknown is μ, the
//! distance from the nearest pole p, and all else is computed from distances: dⱼ − λ is
//! (dⱼ − p) − μ, which has small relative error.
//!
//! # The iteration
//!
//! The terms of the poles up to the root on the left (ψ) and those on its right (φ) are each
//! replaced by r + s / (pole − x), with the neighbouring pole and with r and s such that value and
//! slope agree at the current x; the next x is the root of that, a quadratic equation. It converges
//! quadratically. A bracket is kept and halved where a step would leave it.
//!
//! # Orthogonal vectors
//!
//! Roots that are exact to rounding still give vectors that are not orthogonal where poles are
//! close. But computed roots that interlace the poles are the exact roots for another ẑ close to z,
//! and that has a formula of products of distances ([`Distances::weights`]; Gu and Eisenstat).
//! Vectors from ẑ are orthogonal to working precision.

use super::vector::norm;
use super::view::{Cols, Grid};
use super::{Dense, Real};
use crate::simd::{Isa, SimdTask, vectorised};

const STEPS: usize = 100;

/// The sums of a secular function: Σ z²/(gap − x) and its slope, for the poles on the left and on
/// the right.
struct Sums<'a, T> {
    gaps: &'a [T],
    z: &'a [T],
    split: usize,
    x: T,
    out: &'a mut [T; 4],
}

impl<T: Real> SimdTask for Sums<'_, T> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let Sums { gaps, z, split, x, out } = self;
        let n = gaps.len().min(z.len());
        (out[0], out[1]) = sums::<I, T>(&gaps[..split], &z[..split], x);
        (out[2], out[3]) = sums::<I, T>(&gaps[split..n], &z[split..n], x);
    }
}

#[inline(always)]
fn sums<I: Isa, T: Real>(gaps: &[T], z: &[T], x: T) -> (T, T) {
    const LANES: usize = 8;
    let n = gaps.len().min(z.len());
    let (gaps, z) = (&gaps[..n], &z[..n]);
    let (mut values, mut slopes) = ([T::ZERO; LANES], [T::ZERO; LANES]);
    let whole = n - n % LANES;
    let mut i = 0;
    while i < whole {
        for l in 0..LANES {
            let t = z[i + l] / (gaps[i + l] - x);
            values[l] = z[i + l].fma::<I>(t, values[l]);
            slopes[l] = t.fma::<I>(t, slopes[l]);
        }
        i += LANES;
    }
    let (mut value, mut slope) = (T::ZERO, T::ZERO);
    for i in whole..n {
        let t = z[i] / (gaps[i] - x);
        value = z[i].fma::<I>(t, value);
        slope = t.fma::<I>(t, slope);
    }
    for l in 0..LANES {
        value += values[l];
        slope += slopes[l];
    }
    (value, slope)
}

/// An equation.
pub(super) struct Secular<'a, T> {
    /// Ascending and different; not negative if squared.
    pub d: &'a [T],
    /// Not zero.
    pub z: &'a [T],
    /// Positive.
    pub rho: T,
    /// The poles are the squares of `d`.
    pub squared: bool,
}

/// A root: the pole it is counted from, and its distance from that.
pub(super) struct SecularRoot<T> {
    pub pole: usize,
    pub offset: T,
}

impl<T: Real> Secular<'_, T> {
    /// The distance of pole j from pole `from`.
    #[inline(always)]
    fn gap(&self, j: usize, from: usize) -> T {
        let (a, b) = (self.d[j], self.d[from]);
        if self.squared { (a - b) * (a + b) } else { a - b }
    }

    fn gaps(&self, from: usize, out: &mut [T]) {
        let origin = self.d[from];
        if self.squared {
            out.iter_mut().zip(self.d).for_each(|(gap, &d)| *gap = (d - origin) * (d + origin));
        } else {
            out.iter_mut().zip(self.d).for_each(|(gap, &d)| *gap = d - origin);
        }
    }

    /// The root above pole k. `gaps` becomes the distances of all poles from it.
    pub(super) fn root(&self, k: usize, gaps: &mut [T]) -> SecularRoot<T> {
        let (n, level) = (self.d.len(), T::ONE / self.rho);
        let (half, two, four) = (T::of_f64(0.5), T::of_f64(2.0), T::of_f64(4.0));
        let last = k + 1 == n;
        if n == 1 {
            let offset = self.rho * self.z[0] * self.z[0];
            gaps[0] = -offset;
            return SecularRoot { pole: 0, offset };
        }
        // The neighbours a and b of the root; for the last root both are on its left.
        let (a, b) = if last { (k - 1, k) } else { (k, k + 1) };
        let split = b;
        let mut sums = [T::ZERO; 4];
        self.gaps(k, gaps);
        let mut pole = k;
        let (mut low, mut high) = if last {
            let norm = norm(self.z);
            (T::ZERO, self.rho * norm * norm)
        } else {
            (T::ZERO, self.gap(k + 1, k))
        };
        if last {
            // A little room for the rounding of the bound.
            high *= T::ONE + four * T::EPS;
        }
        let mut x = half * high;
        let mut value = self.value(gaps, split, x, level, &mut sums);
        if !last && value < T::ZERO {
            // Closer to the pole above.
            x -= high;
            (low, high) = (x, T::ZERO);
            pole = k + 1;
            self.gaps(pole, gaps);
        } else if value >= T::ZERO {
            high = x;
        } else {
            low = x;
        }
        for _ in 0..STEPS {
            let [psi, psi_slope, phi, phi_slope] = sums;
            let noise = T::EPS * (level + psi.size() + phi.size());
            let open = low < high;
            if value.size() <= noise || !open {
                break;
            }
            let (left, right) = (gaps[a] - x, gaps[b] - x);
            let c = value - left * psi_slope - right * phi_slope;
            let p = (left + right) * value - left * right * (psi_slope + phi_slope);
            let q = left * right * value;
            let root = (p * p - four * q * c).size().root();
            let step = if c == T::ZERO {
                q / p
            } else if last {
                if p >= T::ZERO { (p + root) / (two * c) } else { two * q / (p - root) }
            } else if p <= T::ZERO {
                (p - root) / (two * c)
            } else {
                two * q / (p + root)
            };
            let mut next = x + step;
            if !(next > low && next < high) {
                next = half * (low + high);
                if next == low || next == high {
                    break;
                }
            }
            if next == x {
                break;
            }
            x = next;
            value = self.value(gaps, split, x, level, &mut sums);
            if value < T::ZERO { low = x } else { high = x }
        }
        gaps.iter_mut().for_each(|gap| *gap -= x);
        SecularRoot { pole, offset: x }
    }

    fn value(&self, gaps: &[T], split: usize, x: T, level: T, sums: &mut [T; 4]) -> T {
        vectorised(Sums { gaps, z: self.z, split, x, out: sums });
        level + sums[0] + sums[2]
    }

    /// All roots, and the distances of the poles from them.
    pub(super) fn roots(&self) -> (Vec<SecularRoot<T>>, Distances<T>) {
        let n = self.d.len();
        let mut gaps = Dense::<T>::working(n, n);
        let roots = (0..n).map(|k| self.root(k, gaps.column_mut(k))).collect();
        (roots, Distances { gaps })
    }
}

/// Column k: the distances of all poles from root k.
pub(super) struct Distances<T> {
    gaps: Dense<T>,
}

impl<T: Real> Distances<T> {
    /// The ẑ for which the computed roots are exact.
    pub(super) fn weights(&self, equation: &Secular<T>) -> Vec<T> {
        let n = equation.d.len();
        let mut w = vec![T::ONE; n];
        vectorised(SecularWeights { gaps: self.gaps.view(), equation, w: &mut w });
        w.iter_mut().zip(equation.z).for_each(|(w, z)| *w = w.size().root().signed(*z));
        w
    }

    pub(super) fn column(&self, k: usize) -> &[T] {
        self.gaps.column(k)
    }

    /// The vectors weightⱼ / distance as columns, normalised, with row j moved to `place[j]`.
    pub(super) fn vectors(&mut self, weights: &[T], place: &[usize], mut out: Cols<T>) {
        for k in 0..self.gaps.cols {
            let gaps = self.gaps.column_mut(k);
            gaps.iter_mut().zip(weights).for_each(|(gap, &w)| *gap = w / *gap);
            let scale = T::ONE / norm(gaps);
            let column = out.column_mut(k);
            gaps.iter().zip(place).for_each(|(&v, &at)| column[at] = v * scale);
        }
    }
}

struct SecularWeights<'a, T> {
    gaps: Grid<'a, T>,
    equation: &'a Secular<'a, T>,
    w: &'a mut [T],
}

impl<T: Real> SimdTask for SecularWeights<'_, T> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let SecularWeights { gaps, equation, w } = self;
        let n = w.len();
        let d = &equation.d[..n];
        for k in 0..n {
            let (column, origin) = (&gaps.column(k)[..n], d[k]);
            let own = w[k] * column[k];
            if equation.squared {
                for j in 0..n {
                    w[j] *= column[j] / ((d[j] - origin) * (d[j] + origin));
                }
            } else {
                for j in 0..n {
                    w[j] *= column[j] / (d[j] - origin);
                }
            }
            w[k] = own;
        }
    }
}
