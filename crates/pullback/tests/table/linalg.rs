//! Factorisations and Fourier transforms: samples, large operands, and naive twins.

use super::naive::{Array, indices};
use super::samples::{Dice, WIDE};
use pullback::{DType, Tensor};
use pullback_ir::{Fft, Linalg};
use std::f64::consts::TAU;

type Samples<Op> = Vec<(Op, Vec<Tensor>, bool)>;

/// Matrices with a strong diagonal: well-conditioned, pivots clear of ties.
fn strong(dice: &mut Dice, shape: &[usize]) -> Tensor {
    let n = shape[shape.len() - 1].max(shape[shape.len() - 2]);
    let (m, k) = (shape[shape.len() - 2], shape[shape.len() - 1]);
    let eye = Tensor::eye_with(m, k, DType::F64) * (1.0 + n as f64 * 0.5);
    dice.tensor(shape, (-1.0, 1.0)) + eye
}

/// Symmetric positive definite ones.
fn positive(dice: &mut Dice, shape: &[usize]) -> Tensor {
    let a = dice.tensor(shape, (-1.0, 1.0));
    let n = shape[shape.len() - 1];
    (a.matmul(&a.t()) / n.max(1) as f64 + Tensor::eye_with(n, n, DType::F64)).detach()
}

/// Columns of rising size, so that singular values are apart.
fn apart(dice: &mut Dice, shape: &[usize]) -> Tensor {
    let (m, n) = (shape[shape.len() - 2], shape[shape.len() - 1]);
    let scale: Vec<f64> = (0..m.max(n)).map(|i| 1.0 + 1.5 * i as f64).collect();
    let scale = Tensor::from_vec(scale, [m.max(n)]);
    let rows = scale.narrow(0, 0, m).unsqueeze(1);
    let columns = scale.narrow(0, 0, n);
    let a = Tensor::eye_with(m, n, DType::F64) * rows * columns;
    a + dice.tensor(shape, (-0.6, 0.6))
}

const SQUARE: [&[usize]; 6] = [&[3, 3], &[2, 2, 2], &[1, 1], &[0, 0], &[0, 2, 2], &[20, 20]];
const ANY: [&[usize]; 7] = [&[3, 3], &[4, 2], &[2, 4], &[2, 3, 2], &[0, 3], &[3, 0], &[40, 37]];

fn few(shape: &[usize]) -> bool {
    shape.iter().product::<usize>() <= 12
}

/// The order of a triangle's right-hand sides: one, several, none.
fn sides(a: &[usize], count: usize) -> Vec<usize> {
    [&a[..a.len() - 1], &[count]].concat()
}

pub fn samples(f: Linalg, dice: &mut Dice) -> Samples<Linalg> {
    let mut out: Samples<Linalg> = Vec::new();
    match f {
        // One triangle is read, and the derivative is that of a symmetric matrix: see
        // `tests/linalg.rs`.
        Linalg::Cholesky => {
            SQUARE.iter().for_each(|s| out.push((f, vec![positive(dice, s)], false)));
            let indefinite = Tensor::from([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]]);
            out.push((f, vec![indefinite], false));
        }
        Linalg::Eigh => SQUARE.iter().for_each(|s| {
            let a = apart(dice, s);
            out.push((f, vec![(&a + a.t()).detach()], false));
        }),
        Linalg::TriangularSolve { .. } => {
            for (i, s) in SQUARE.iter().enumerate() {
                for (upper, unit) in [(false, false), (false, true), (true, false), (true, true)] {
                    let b = dice.tensor(&sides(s, [1, 2, 3, 2, 1, 130][i]), WIDE);
                    // Small beside the diagonal: a unit triangle grows by powers.
                    let a = strong(dice, s) * if unit { 0.2 } else { 1.0 };
                    let op = Linalg::TriangularSolve { upper, unit };
                    out.push((op, vec![a.detach(), b], few(s)));
                }
            }
            let (a, b) = (strong(dice, &[2, 2]), Tensor::zeros_with([2, 0], DType::F64));
            out.push((f, vec![a, b], true));
        }
        Linalg::Lu => ANY.iter().chain(&SQUARE).for_each(|s| {
            let strong = strong(dice, s);
            // Rows turned round, so that there is something to exchange.
            out.push((f, vec![strong.flip(-2).deep_clone()], few(s)));
        }),
        Linalg::Permutation(_) => {
            let pivots = |list: &[i32], shape: &[usize]| Tensor::from_vec(list, shape);
            out.push((Linalg::Permutation(3), vec![pivots(&[3, 3, 3], &[3])], true));
            out.push((Linalg::Permutation(4), vec![pivots(&[2, 4, 1, 2], &[2, 2])], true));
            out.push((Linalg::Permutation(2), vec![pivots(&[], &[0])], true));
            out.push((Linalg::Permutation(0), vec![pivots(&[], &[3, 0])], true));
        }
        Linalg::LuSolve { .. } => {
            for s in SQUARE {
                for transpose in [false, true] {
                    let a = strong(dice, s).flip(-2).deep_clone();
                    let factors = naive(Linalg::Lu, &[Array::of(&a)]).unwrap();
                    let lu = Tensor::from_vec(factors[0].values.clone(), s);
                    let pivots: Vec<i32> = factors[1].values.iter().map(|&p| p as i32).collect();
                    let pivots = Tensor::from_vec(pivots, &s[..s.len() - 1]);
                    let b = dice.tensor(&sides(s, 2), WIDE);
                    // Differentiated as a function of A, whose factors do not follow here: see
                    // `tests/linalg.rs`.
                    out.push((Linalg::LuSolve { transpose }, vec![a, lu, pivots, b], false));
                }
            }
        }
        Linalg::Qr { .. } => {
            for s in ANY {
                out.push((Linalg::Qr { complete: false }, vec![strong(dice, s)], few(s)));
                // A complete Q of a tall matrix has no derivative: see `tests/linalg.rs`.
                if s[s.len() - 2] <= s[s.len() - 1] {
                    out.push((Linalg::Qr { complete: true }, vec![strong(dice, s)], few(s)));
                }
            }
        }
        // One triangle is read of a symmetric one.
        Linalg::Spectrum { .. } => {
            for s in ANY {
                out.push((Linalg::Spectrum { singular: true }, vec![apart(dice, s)], few(s)));
            }
            for s in SQUARE {
                let a = apart(dice, s);
                let a = (&a + a.t()).detach();
                out.push((Linalg::Spectrum { singular: false }, vec![a], false));
            }
        }
        Linalg::Svd { .. } => {
            for s in ANY {
                out.push((Linalg::Svd { full: false }, vec![apart(dice, s)], few(s)));
                // Vectors without a singular value are not unique.
                let square = s[s.len() - 2] == s[s.len() - 1];
                out.push((Linalg::Svd { full: true }, vec![apart(dice, s)], few(s) && square));
            }
        }
    }
    out
}

/// Operands that are large enough to be split over threads.
pub fn large(f: Linalg, dice: &mut Dice) -> Vec<(Linalg, Vec<Tensor>)> {
    let stack: &[usize] = &[3, 70, 70];
    match f {
        Linalg::Cholesky => vec![(f, vec![positive(dice, stack)])],
        Linalg::Eigh => vec![(f, vec![positive(dice, stack)])],
        Linalg::TriangularSolve { .. } => {
            vec![(f, vec![strong(dice, &[150, 150]), dice.tensor(&[150, 300], WIDE)])]
        }
        Linalg::Lu => vec![(f, vec![strong(dice, stack)])],
        Linalg::Permutation(_) => {
            vec![(Linalg::Permutation(2), vec![Tensor::from_vec(vec![2i32, 2], [2])])]
        }
        Linalg::LuSolve { .. } => {
            let lu = strong(dice, &[150, 150]);
            let pivots = Tensor::from_vec((1..=150).collect::<Vec<i32>>(), [150]);
            vec![(f, vec![lu.clone(), lu, pivots, dice.tensor(&[150, 300], WIDE)])]
        }
        Linalg::Spectrum { .. } => [false, true]
            .map(|singular| (Linalg::Spectrum { singular }, vec![positive(dice, stack)]))
            .to_vec(),
        Linalg::Qr { .. } | Linalg::Svd { .. } => vec![(f, vec![strong(dice, stack)])],
    }
}

/// Matrix by matrix: the values of each, and what is made of them, joined again.
fn each(
    x: &[Array],
    dims: &[usize],
    f: impl Fn(&[Vec<Vec<f64>>]) -> Vec<Vec<f64>>,
) -> Vec<Vec<f64>> {
    let lead = x[0].shape.len() - 2;
    let count: usize = x[0].shape[..lead].iter().product();
    let mut out: Vec<Vec<f64>> = Vec::new();
    for i in 0..count {
        let one = |x: &Array, axes: usize| {
            let tail = &x.shape[x.shape.len() - axes..];
            let n: usize = tail.iter().product();
            let values = &x.values[i * n..(i + 1) * n];
            let width = if axes == 2 { tail[1] } else { n };
            values.chunks(width.max(1)).map(<[f64]>::to_vec).collect::<Vec<_>>()
        };
        let parts: Vec<_> = x.iter().zip(dims).map(|(x, &axes)| one(x, axes)).collect();
        let found = f(&parts);
        out.resize(found.len(), Vec::new());
        out.iter_mut().zip(found).for_each(|(all, part)| all.extend(part));
    }
    out
}

fn array(x: &Array, last: &[usize], values: Option<Vec<f64>>) -> Array {
    let shape = [&x.shape[..x.shape.len() - 2], last].concat();
    Array { shape, values: values.unwrap_or_default(), dtype: x.dtype }
}

/// By the definitions, in plain loops. Nothing for eigenvectors and singular vectors, whose signs
/// are free.
pub fn naive(f: Linalg, x: &[Array]) -> Option<Vec<Array>> {
    if let Linalg::Permutation(rows) = f {
        let k = *x[0].shape.last()?;
        let mut shape = x[0].shape.clone();
        *shape.last_mut()? = rows;
        let count: usize = x[0].shape[..x[0].shape.len() - 1].iter().product();
        let order = |i: usize| {
            let mut order: Vec<usize> = (0..rows).collect();
            let exchange = |(j, p): (usize, &f64)| order.swap(j, *p as usize - 1);
            x[0].values[i * k..(i + 1) * k].iter().enumerate().for_each(exchange);
            order.into_iter().map(|p| p as f64).collect::<Vec<_>>()
        };
        let values = (0..count).flat_map(order).collect();
        return Some(vec![Array { shape, values, dtype: DType::I64 }]);
    }
    let a = &x[0];
    let (m, n) = (a.shape[a.shape.len() - 2], a.shape[a.shape.len() - 1]);
    let k = m.min(n);
    let flat = |x: Vec<Vec<f64>>| x.concat();
    match f {
        Linalg::Cholesky => {
            let factor = |p: &[Vec<Vec<f64>>]| {
                let mut l = vec![vec![0.0; n]; n];
                for j in 0..n {
                    let d = p[0][j][j] - (0..j).map(|c| l[j][c] * l[j][c]).sum::<f64>();
                    for i in j..n {
                        let s = p[0][i][j] - (0..j).map(|c| l[i][c] * l[j][c]).sum::<f64>();
                        l[i][j] = if d > 0.0 { s / d.sqrt() } else { f64::NAN };
                    }
                }
                vec![flat(l)]
            };
            Some(vec![array(a, &[n, n], each(x, &[2], factor).pop())])
        }
        Linalg::TriangularSolve { upper, unit } => {
            let width = x[1].shape[x[1].shape.len() - 1];
            let solve =
                |p: &[Vec<Vec<f64>>]| vec![flat(substitute(&p[0], p[1].clone(), upper, unit))];
            Some(vec![array(a, &[n, width], each(x, &[2, 2], solve).pop())])
        }
        Linalg::Lu => {
            let factor = |p: &[Vec<Vec<f64>>]| {
                let (mut lu, mut pivots) = (p[0].clone(), vec![0.0; k]);
                for j in 0..k {
                    let row =
                        (j..m).fold(j, |r, i| if lu[i][j].abs() > lu[r][j].abs() { i } else { r });
                    lu.swap(j, row);
                    pivots[j] = row as f64 + 1.0;
                    for i in j + 1..m {
                        lu[i][j] /= lu[j][j];
                        for c in j + 1..n {
                            lu[i][c] -= lu[i][j] * lu[j][c];
                        }
                    }
                }
                vec![flat(lu), pivots]
            };
            let mut found = each(x, &[2], factor);
            let (pivots, lu) = (found.pop(), found.pop());
            let pivots = Array { dtype: DType::I32, ..array(a, &[k], pivots) };
            Some(vec![array(a, &[m, n], lu), pivots])
        }
        Linalg::LuSolve { transpose } => {
            let width = x[3].shape[x[3].shape.len() - 1];
            let solve = |p: &[Vec<Vec<f64>>]| {
                let (lu, pivots, mut b) = (&p[1], &p[2].concat(), p[3].clone());
                let exchange = |b: &mut Vec<Vec<f64>>, j: usize| b.swap(j, pivots[j] as usize - 1);
                if transpose {
                    let turned: Vec<Vec<f64>> =
                        (0..n).map(|i| (0..n).map(|j| lu[j][i]).collect()).collect();
                    b = substitute(&turned, b, false, false);
                    b = substitute(&turned, b, true, true);
                    (0..n).rev().for_each(|j| exchange(&mut b, j));
                } else {
                    (0..n).for_each(|j| exchange(&mut b, j));
                    b = substitute(lu, b, false, true);
                    b = substitute(lu, b, true, false);
                }
                vec![flat(b)]
            };
            Some(vec![array(a, &[n, width], each(x, &[2, 2, 1, 2], solve).pop())])
        }
        Linalg::Qr { complete } => {
            let size = if complete { m } else { k };
            let factor = |p: &[Vec<Vec<f64>>]| {
                let (q, r) = householder(&p[0], m, n);
                let q: Vec<f64> = q.iter().flat_map(|row| row[..size].to_vec()).collect();
                vec![q, flat(r[..size].to_vec())]
            };
            let mut found = each(x, &[2], factor);
            let (r, q) = (found.pop(), found.pop());
            Some(vec![array(a, &[m, size], q), array(a, &[size, n], r)])
        }
        Linalg::Eigh | Linalg::Svd { .. } | Linalg::Spectrum { .. } => None,
        Linalg::Permutation(_) => None,
    }
}

fn substitute(a: &[Vec<f64>], mut b: Vec<Vec<f64>>, upper: bool, unit: bool) -> Vec<Vec<f64>> {
    let n = if b.is_empty() { 0 } else { a.len() };
    for step in 0..n {
        let i = if upper { n - 1 - step } else { step };
        let others = if upper { i + 1..n } else { 0..i };
        for c in 0..b[i].len() {
            let sum: f64 = others.clone().map(|j| a[i][j] * b[j][c]).sum();
            b[i][c] = (b[i][c] - sum) / if unit { 1.0 } else { a[i][i] };
        }
    }
    b
}

/// Whole reflections, one after the other, on whole matrices: Q (m × m) and R.
fn householder(a: &[Vec<f64>], m: usize, n: usize) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
    let mut r = a.to_vec();
    let mut q: Vec<Vec<f64>> =
        (0..m).map(|i| (0..m).map(|j| f64::from(u8::from(i == j))).collect()).collect();
    for j in 0..m.min(n) {
        let below: f64 = (j + 1..m).map(|i| r[i][j] * r[i][j]).sum();
        if below == 0.0 {
            continue;
        }
        let size = (below + r[j][j] * r[j][j]).sqrt();
        let beta = if r[j][j] < 0.0 { size } else { -size };
        let mut v: Vec<f64> = (0..m).map(|i| if i < j { 0.0 } else { r[i][j] }).collect();
        v[j] -= beta;
        let norm: f64 = v.iter().map(|v| v * v).sum();
        #[allow(clippy::needless_range_loop)] // a column of a list of rows
        for c in 0..n {
            let along: f64 = (0..m).map(|i| v[i] * r[i][c]).sum::<f64>() * 2.0 / norm;
            (0..m).for_each(|i| r[i][c] -= along * v[i]);
        }
        for row in q.iter_mut() {
            let along: f64 = (0..m).map(|i| v[i] * row[i]).sum::<f64>() * 2.0 / norm;
            (0..m).for_each(|i| row[i] -= along * v[i]);
        }
        (j + 1..m).for_each(|i| r[i][j] = 0.0);
    }
    (q, r)
}

/// Lengths with and without factors, odd and even, one; axes inside and at the end; none of
/// something.
const LINES: [(&[usize], usize); 8] = [
    (&[4], 0),
    (&[1], 0),
    (&[2, 3], 1),
    (&[3, 2], 0),
    (&[2, 3, 2], 1),
    (&[0, 3], 1),
    (&[33, 3], 0),
    (&[2, 64], 1),
];

pub fn fft_samples(f: Fft, dice: &mut Dice) -> Samples<Fft> {
    let mut out: Samples<Fft> = Vec::new();
    for (shape, axis) in LINES {
        let small = shape.iter().product::<usize>() <= 12;
        match f {
            Fft::Complex { .. } => {
                for inverse in [false, true] {
                    let x = dice.tensor(&[shape, &[2]].concat(), WIDE);
                    out.push((Fft::Complex { axis, inverse }, vec![x], small));
                }
            }
            Fft::Real(_) => out.push((Fft::Real(axis), vec![dice.tensor(shape, WIDE)], small)),
            Fft::Hermitian { .. } => {
                let half = shape[axis];
                for len in [2 * half - 2, 2 * half - 1].into_iter().filter(|&n| n > 0) {
                    let x = dice.tensor(&[shape, &[2]].concat(), WIDE);
                    out.push((Fft::Hermitian { axis, len }, vec![x], small));
                }
            }
        }
    }
    out
}

pub fn fft_large(f: Fft, dice: &mut Dice) -> Vec<(Fft, Vec<Tensor>)> {
    let pairs = |dice: &mut Dice, a, b| dice.tensor(&[a, b, 2], WIDE);
    match f {
        Fft::Complex { .. } => [0, 1]
            .map(|axis| (Fft::Complex { axis, inverse: false }, vec![pairs(dice, 150, 200)]))
            .to_vec(),
        Fft::Real(_) => {
            [0, 1].map(|axis| (Fft::Real(axis), vec![dice.tensor(&[200, 150], WIDE)])).to_vec()
        }
        Fft::Hermitian { .. } => {
            vec![(Fft::Hermitian { axis: 1, len: 200 }, vec![pairs(dice, 200, 101)])]
        }
    }
}

/// Sums over all pairs of places.
pub fn fft_naive(f: Fft, x: &[Array]) -> Option<Vec<Array>> {
    let x = &x[0];
    let (axis, shape, inverse) = match f {
        Fft::Complex { axis, inverse } => (axis, x.shape.clone(), inverse),
        Fft::Real(axis) => {
            let mut shape = [&x.shape[..], &[2]].concat();
            shape[axis] = x.shape[axis] / 2 + 1;
            (axis, shape, false)
        }
        Fft::Hermitian { axis, len } => {
            let mut shape = x.shape[..x.shape.len() - 1].to_vec();
            shape[axis] = len;
            (axis, shape, true)
        }
    };
    let sign = if inverse { 1.0 } else { -1.0 };
    let n = match f {
        Fft::Hermitian { len, .. } => len,
        Fft::Complex { .. } | Fft::Real(_) => x.shape[axis],
    };
    let at = |index: &[usize], j: usize, part: usize| {
        let mut index = index.to_vec();
        index[axis] = j;
        match f {
            Fft::Real(_) => [x.at(&index), 0.0][part],
            Fft::Complex { .. } | Fft::Hermitian { .. } => x.at(&[&index[..], &[part]].concat()),
        }
    };
    // What value j of the line is; a half spectrum goes on with its conjugates, and its ends count
    // as real.
    let value = |index: &[usize], j: usize| match f {
        Fft::Hermitian { .. } if j == 0 || 2 * j == n => (at(index, j, 0), 0.0),
        Fft::Hermitian { .. } if 2 * j > n => (at(index, n - j, 0), -at(index, n - j, 1)),
        _ => (at(index, j, 0), at(index, j, 1)),
    };
    let sum = |index: &[usize], part: usize| -> f64 {
        let k = index[axis];
        let term = |j: usize| {
            let (re, im) = value(index, j);
            let angle = sign * TAU * ((j * k) % n) as f64 / n as f64;
            [re * angle.cos() - im * angle.sin(), re * angle.sin() + im * angle.cos()][part]
        };
        (0..n).map(term).sum()
    };
    let values = indices(&shape)
        .iter()
        .map(|i| match f {
            Fft::Hermitian { .. } => sum(i, 0),
            Fft::Complex { .. } | Fft::Real(_) => sum(&i[..i.len() - 1], i[i.len() - 1]),
        })
        .collect();
    Some(vec![Array { shape, values, dtype: x.dtype }])
}
