//! Singular values and vectors of bidiagonal matrices by divide and conquer.
//!
//! An upper bidiagonal B is two of half the size, B₁ and B₂, with one row (0 … α β … 0) between. B₁
//! has one column more than rows, and so has B₂ if B has. With their factors Uᵢ·Dᵢ·Vᵢᵀ, B = U·M·Vᵀ,
//! where M has a diagonal and one full row z, from the last row of V₁ times α and the first of V₂
//! times β. The columns of V₁ (and V₂) that have no singular value are columns of M with z alone; a
//! rotation makes them one, and it belongs to a diagonal element 0 in the row of z.
//!
//! MᵀM = D² + z·zᵀ, so the singular values are roots of the secular equation with the poles d²
//! (`secular.rs`), where v is zⱼ / (dⱼ² − σ²), and u is dⱼ·vⱼ with −1 in the row of z. Squares
//! never are formed: dⱼ² − dₖ² is (dⱼ − dₖ)·(dⱼ + dₖ). Deflation and the grouping of vectors are
//! those of `divide.rs`; a rotation is applied to U and to V.

use super::bulge::{qr, rotation};
use super::divide::{DIRECT, Groups, Support};
use super::secular::Secular;
use super::vector::{norm, rotate, rotate_columns};
use super::view::Cols;
use super::{Dense, Real};

/// `d` becomes the singular values, descending, and U and V the vectors. Returns whether it
/// converged.
pub(super) fn divide<T: Real>(d: &mut [T], e: &mut [T], mut u: Cols<T>, mut v: Cols<T>) -> bool {
    let found = part(d, e, u.again(), v.again());
    let n = d.len();
    d.reverse();
    for j in 0..n / 2 {
        for mut x in [u.again(), v.again()] {
            let (a, b) = x.pair(j, n - 1 - j);
            a.swap_with_slice(b);
        }
    }
    found
}

/// `d` becomes the singular values, ascending, and U and V the vectors; V has one row and column
/// more than U if `e` is as long as `d`.
fn part<T: Real>(d: &mut [T], e: &mut [T], mut u: Cols<T>, mut v: Cols<T>) -> bool {
    let n = d.len();
    let extra = v.cols - n;
    u.fill(T::ZERO);
    v.fill(T::ZERO);
    if n <= DIRECT {
        (0..n).for_each(|i| u.set(i, i, T::ONE));
        (0..n + extra).for_each(|i| v.set(i, i, T::ONE));
        return direct(d, e, u, v);
    }
    let middle = n / 2;
    let (alpha, beta) = (d[middle], e[middle]);
    u.set(middle, middle, T::ONE);
    {
        let rest = n - middle - 1;
        let (d1, d2) = d.split_at_mut(middle + 1);
        let (e1, e2) = e.split_at_mut(middle + 1);
        let v1 = v.again().part(0, middle + 1, 0, middle + 1);
        if !part(&mut d1[..middle], &mut e1[..middle], u.again().part(0, middle, 0, middle), v1) {
            return false;
        }
        let from = middle + 1;
        let v2 = v.again().part(from, rest + extra, from, rest + extra);
        if !part(d2, e2, u.again().part(from, rest, from, rest), v2) {
            return false;
        }
    }
    join(d, middle, alpha, beta, u, v);
    true
}

/// A small one, for U and V that are identities.
fn direct<T: Real>(d: &mut [T], e: &mut [T], mut u: Cols<T>, mut v: Cols<T>) -> bool {
    let n = d.len();
    if v.cols > n && n > 0 {
        // Rotations of columns make the last one zero and B lower bidiagonal; rotations of rows
        // make it upper bidiagonal again.
        let mut rotations = vec![(T::ONE, T::ZERO); n];
        for round in [0, 1] {
            for i in 0..n - round {
                let (c, s, r) = rotation(d[i], e[i]);
                (d[i], rotations[i]) = (r, (c, s));
                if i + 1 < n {
                    (e[i], d[i + 1]) = (s * d[i + 1], c * d[i + 1]);
                } else {
                    e[i] = T::ZERO;
                }
            }
            let to = if round == 0 { v.again() } else { u.again() };
            rotate_columns(to, 0, &rotations[..n - round], false);
        }
    }
    let used = v.again().split_cols(n).0;
    let found = qr(d, &mut e[..n.saturating_sub(1)], u.again(), used);
    // Ascending.
    for i in 0..n {
        let best = (i..n).fold(i, |best, j| if d[j] < d[best] { j } else { best });
        if best != i {
            d.swap(i, best);
            for mut x in [u.again(), v.again()] {
                let (a, b) = x.pair(i, best);
                a.swap_with_slice(b);
            }
        }
    }
    found
}

fn join<T: Real>(d: &mut [T], middle: usize, alpha: T, beta: T, mut u: Cols<T>, mut v: Cols<T>) {
    let n = d.len();
    d[middle] = T::ZERO;
    let mut z: Vec<T> = (0..n)
        .map(|j| if j <= middle { alpha * v.at(middle, j) } else { beta * v.at(middle + 1, j) })
        .collect();
    if v.cols > n {
        let other = beta * v.at(middle + 1, n);
        let (c, s, r) = rotation(z[middle], other);
        z[middle] = r;
        let (x, y) = v.pair(middle, n);
        rotate(x, y, c, s);
    }
    let largest = d.iter().fold(alpha.size().larger(beta.size()), |most, x| most.larger(x.size()));
    if largest <= T::TINY / T::EPS {
        d.fill(T::ZERO);
        return;
    }
    // Numbers close to 1, so that squares and products are neither tiny nor huge.
    let tolerance = T::of_f64(8.0) * T::EPS;
    let sizes: Vec<T> = d.iter().map(|x| *x / largest).collect();
    z.iter_mut().for_each(|x| *x /= largest);
    if z[middle].size() <= tolerance {
        z[middle] = tolerance.signed(z[middle]);
    }
    let halves: Vec<Support> = (0..n)
        .map(|j| match j.cmp(&middle) {
            std::cmp::Ordering::Less => Support::Upper,
            std::cmp::Ordering::Equal => Support::Both,
            std::cmp::Ordering::Greater => Support::Lower,
        })
        .collect();
    let (mut halves, mut kept, mut done) = (halves, vec![middle], Vec::new());
    for j in order(&sizes, middle) {
        if z[j].size() <= tolerance {
            done.push(j);
            continue;
        }
        let before = kept[kept.len() - 1];
        if before != middle && sizes[j] - sizes[before] <= tolerance {
            let length = z[before].length(z[j]);
            let (c, s) = (z[j] / length, -(z[before] / length));
            (z[j], z[before]) = (length, T::ZERO);
            if halves[before] != halves[j] {
                (halves[before], halves[j]) = (Support::Both, Support::Both);
            }
            for mut x in [u.again(), v.again()] {
                let (x, y) = x.pair(before, j);
                rotate(x, y, c, s);
            }
            kept.pop();
            done.push(before);
        }
        kept.push(j);
    }
    let k = kept.len();
    let (mut poles, weights): (Vec<T>, Vec<T>) = kept.iter().map(|&j| (sizes[j], z[j])).unzip();
    if k > 1 {
        poles[1] = poles[1].larger(tolerance * T::of_f64(0.5));
    }
    let equation = Secular { d: &poles, z: &weights, rho: T::ONE, squared: true };
    let (roots, mut distances) = equation.roots();
    let mut values: Vec<T> = roots
        .iter()
        .map(|root| (poles[root.pole] * poles[root.pole] + root.offset).root() * largest)
        .collect();
    let weights = distances.weights(&equation);
    let groups = Groups::new(&kept, &halves);
    let (mut s, mut fresh) = (Dense::<T>::working(k, k), Dense::<T>::working(v.rows, n));
    distances.vectors(&weights, &groups.place, s.view_mut());
    groups.multiply(&v, middle + 1, &s, fresh.view_mut().part(0, v.rows, 0, k));
    values.extend(done.iter().map(|&j| d[j]));
    let mut sorted: Vec<usize> = (0..n).collect();
    sorted.sort_by(|&a, &b| values[a].partial_cmp(&values[b]).unwrap_or(std::cmp::Ordering::Equal));
    let place = |x: &mut Cols<T>, fresh: &mut Dense<T>| {
        for (at, &j) in done.iter().enumerate() {
            fresh.column_mut(k + at)[..x.rows].copy_from_slice(x.column(j));
        }
        for (to, &from) in sorted.iter().enumerate() {
            let rows = x.rows;
            x.column_mut(to).copy_from_slice(&fresh.column(from)[..rows]);
        }
    };
    place(&mut v, &mut fresh);
    // The columns of `distances` now are z / (d² − σ²).
    let mut column = vec![T::ZERO; k];
    for at in 0..k {
        let from = distances.column(at);
        (0..k).for_each(|j| column[j] = poles[j] * from[j]);
        column[0] = -T::ONE;
        let scale = T::ONE / norm(&column);
        let to = s.column_mut(at);
        groups.place.iter().zip(&column).for_each(|(&place, &x)| to[place] = x * scale);
    }
    groups.multiply(&u, middle + 1, &s, fresh.view_mut().part(0, n, 0, k));
    place(&mut u, &mut fresh);
    sorted.iter().zip(d).for_each(|(&from, d)| *d = values[from]);
}

/// All but the middle one, ascending; those on either side of it are so already.
fn order<T: Real>(d: &[T], middle: usize) -> Vec<usize> {
    let (mut i, mut j) = (0, middle + 1);
    let mut order = Vec::with_capacity(d.len());
    while i < middle || j < d.len() {
        let first = j == d.len() || (i < middle && d[i] <= d[j]);
        let from = if first { &mut i } else { &mut j };
        order.push(*from);
        *from += 1;
    }
    order
}
