//! The kernels on sizes around their blocks, negative strides, and matrices that have no factors.

use super::bulge::qr;
use super::dense::Dense;
use super::divide::divide;
use super::implicit::ql;
use super::{bidiagonal, divide_singular, tridiagonal};
use crate::run::run_op;
use crate::{Buffer, Input};
use pullback_ir::{DType, Few, Layout, Linalg, Op, Shape, Spec};

fn value(i: usize) -> f64 {
    // Pseudorandom, without ties: the fractional parts of multiples of the golden ratio.
    (i as f64 * 0.618_033_988_749_895 + 0.1).fract() * 2.0 - 1.0
}

/// Runs an op on one square matrix, read through strides that may be negative.
fn factors(op: Linalg, a: &[f64], shape: [usize; 2], backwards: bool) -> Vec<Vec<f64>> {
    let n = shape[0] * shape[1];
    let stored: Vec<f64> = if backwards { a.iter().rev().copied().collect() } else { a.to_vec() };
    let buffer = Buffer::from_slice(&stored).expect("memory");
    let spec = Spec::cpu(DType::F64, shape.as_slice());
    let (row, offset) = (shape[1] as isize, n.saturating_sub(1));
    let (strides, offset) = if backwards { ([-row, -1], offset) } else { ([row, 1], 0) };
    let layout =
        Layout { shape: Shape::from_slice(&shape), strides: Few::from_slice(&strides), offset };
    let outs = run_op(&Op::Linalg(op), &[Input { buffer: &buffer, layout: &layout, spec: &spec }]);
    let read = |o: &crate::Output| match o.spec.dtype {
        DType::I32 => {
            let list = o.buffer.to_vec::<i32>(DType::I32, 0, o.spec.len()).expect("i32");
            list.into_iter().map(f64::from).collect()
        }
        dtype => o.buffer.to_vec::<f64>(dtype, 0, o.spec.len()).expect("f64"),
    };
    outs.expect("it runs").iter().map(read).collect()
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-10 * (1.0 + b.abs())
}

#[test]
fn lu_multiplies_back_around_its_blocks() {
    for n in (1..20).chain([31, 32, 33, 63, 64, 65, 100]) {
        for (m, k) in [(n, n), (n, n + 3), (n + 5, n)] {
            let a: Vec<f64> = (0..m * k).map(value).collect();
            for backwards in [false, true] {
                let out = factors(Linalg::Lu, &a, [m, k], backwards);
                let mut rows: Vec<usize> = (0..m).collect();
                out[1].iter().enumerate().for_each(|(j, &p)| rows.swap(j, p as usize - 1));
                for i in 0..m {
                    for j in 0..k {
                        let l = |c: usize| if c == i { 1.0 } else { out[0][i * k + c] };
                        let sum: f64 = (0..=i.min(j))
                            .filter(|&c| c < m.min(k))
                            .map(|c| l(c) * out[0][c * k + j])
                            .sum();
                        assert!(near(sum, a[rows[i] * k + j]), "{m}×{k} at {i}, {j}");
                    }
                }
                // Partial pivoting: no element of L exceeds 1.
                assert!((0..m).all(|i| (0..i.min(k)).all(|j| out[0][i * k + j].abs() <= 1.0)));
            }
        }
    }
}

#[test]
fn a_column_without_a_pivot_is_passed_over() {
    for n in [2, 8, 9, 17, 40] {
        // A zero column, and two equal rows.
        let mut a: Vec<f64> = (0..n * n).map(value).collect();
        (0..n).for_each(|i| a[i * n] = 0.0);
        let out = factors(Linalg::Lu, &a, [n, n], false);
        assert!(out[0].iter().all(|v| v.is_finite()));
        assert_eq!(out[0][0], 0.0);
    }
    let zero = factors(Linalg::Lu, &[0.0; 9], [3, 3], false);
    assert_eq!((zero[0].clone(), zero[1].clone()), (vec![0.0; 9], vec![1.0, 2.0, 3.0]));
}

#[test]
fn cholesky_stops_at_the_first_minor_that_is_not_positive() {
    for n in [1, 2, 7, 33, 70] {
        for broken in [0, n / 2, n - 1] {
            let mut a = vec![0.0; n * n];
            (0..n).for_each(|i| a[i * n + i] = 4.0);
            for bad in [-1.0, 0.0, f64::NAN] {
                a[broken * n + broken] = bad;
                let l = &factors(Linalg::Cholesky, &a, [n, n], false)[0];
                for j in 0..n {
                    let d = l[j * n + j];
                    assert!(
                        if j < broken { d == 2.0 } else { d.is_nan() },
                        "{n}, {broken}, {j}: {d}"
                    );
                }
                // Above the diagonal there are zeros.
                assert!((0..n).all(|i| (i + 1..n).all(|j| l[i * n + j] == 0.0)));
            }
        }
    }
}

#[test]
fn qr_is_orthogonal_around_its_panels_and_without_full_rank() {
    for (m, n) in [(1, 1), (5, 5), (31, 31), (32, 32), (33, 33), (65, 64), (40, 70), (70, 40)] {
        for rank in [m.min(n), 1] {
            let entry = |i: usize, j: usize| {
                if rank == 1 { value(i) * value(j + 7) } else { value(i * n + j) }
            };
            let a: Vec<f64> = (0..m * n).map(|at| entry(at / n, at % n)).collect();
            let out = factors(Linalg::Qr { complete: true }, &a, [m, n], false);
            for i in 0..m {
                for j in 0..m {
                    let dot: f64 = (0..m).map(|c| out[0][c * m + i] * out[0][c * m + j]).sum();
                    assert!(near(dot, f64::from(u8::from(i == j))));
                }
                for j in 0..n {
                    let sum: f64 = (0..m).map(|c| out[0][i * m + c] * out[1][c * n + j]).sum();
                    assert!(near(sum, a[i * n + j]));
                    assert!(i <= j || out[1][i * n + j] == 0.0);
                }
            }
        }
    }
}

#[test]
fn what_is_not_finite_has_no_values() {
    for bad in [f64::NAN, f64::INFINITY] {
        let a = [1.0, 0.0, bad, 1.0];
        for op in [Linalg::Eigh, Linalg::Svd { full: false }] {
            assert!(factors(op, &a, [2, 2], false).iter().flatten().all(|v| v.is_nan()));
        }
    }
}

/// Matrices that are hard for eigenvalues: repeated, clustered and zero ones, steep grading, glued
/// blocks, elements near the limits of f64.
fn hard(n: usize) -> Vec<(&'static str, Vec<f64>)> {
    let symmetric = |i: usize, j: usize| value(i.max(j) * n + i.min(j));
    let link = |i: usize, j: usize| i.abs_diff(j) == 1;
    let peak = |i: usize, size: usize| (size as f64 / 2.0 - (i % size) as f64).abs();
    // Reflecting a diagonal: an eigenvalue keeps its multiplicity.
    let reflected = |d: &dyn Fn(usize) -> f64| -> Vec<f64> {
        let v: Vec<f64> = (0..n).map(|i| value(i) + 1.5).collect();
        let square: f64 = v.iter().map(|x| x * x).sum();
        let h = |i: usize, j: usize| f64::from(u8::from(i == j)) - 2.0 * v[i] * v[j] / square;
        let mut a = vec![0.0; n * n];
        for i in 0..n {
            for j in 0..=i {
                a[i * n + j] = (0..n).map(|k| h(i, k) * d(k) * h(j, k)).sum();
                a[j * n + i] = a[i * n + j];
            }
        }
        a
    };
    let full = |f: &dyn Fn(usize, usize) -> f64| (0..n * n).map(|at| f(at / n, at % n)).collect();
    let grade = |i: usize| 1e200_f64.powf(1.0 - 2.0 * i as f64 / n as f64);
    let glue = |i: usize, j: usize| if i.max(j).is_multiple_of(21) { 1e-9 } else { 1.0 };
    vec![
        ("random", full(&symmetric)),
        ("zero", full(&|_, _| 0.0)),
        ("identity", full(&|i, j| f64::from(u8::from(i == j)))),
        ("ones", full(&|_, _| 1.0)),
        ("repeated", reflected(&|k| (k % 3) as f64)),
        ("clustered", reflected(&|k| 1.0 + (k % 4) as f64 + 1e-13 * k as f64)),
        ("deficient", reflected(&|k| if k < 2 { 1.0 } else { 0.0 })),
        (
            "wilkinson",
            full(&|i, j| match i == j {
                true => peak(i, n),
                false => f64::from(u8::from(link(i, j))),
            }),
        ),
        (
            "glued",
            full(&|i, j| match i == j {
                true => peak(i, 21),
                false => {
                    if link(i, j) {
                        glue(i, j)
                    } else {
                        0.0
                    }
                }
            }),
        ),
        ("graded", full(&|i, j| symmetric(i, j) * grade(i).sqrt() * grade(j).sqrt())),
        ("steep", full(&|i, j| symmetric(i, j) / grade(i).sqrt() / grade(j).sqrt())),
        ("huge", full(&|i, j| symmetric(i, j) * 1e305)),
        ("tiny", full(&|i, j| symmetric(i, j) * 1e-305)),
        ("small", full(&|i, j| symmetric(i, j) * 1e-120)),
    ]
}

fn largest(a: &[f64]) -> f64 {
    a.iter().fold(0.0, |most: f64, x| most.max(x.abs()))
}

/// The error that rounding explains in an element of a product of factors, for a largest element 1.
fn rounding(a: &[f64], n: usize) -> f64 {
    let unit = largest(a).max(1e-300);
    let norm = a.iter().map(|x| (x / unit) * (x / unit)).sum::<f64>().sqrt().max(1.0);
    2e-16 * (n + 20) as f64 * norm
}

/// Whether the columns of a matrix with `n` rows are orthonormal to rounding.
fn orthonormal(q: &[f64], n: usize, cols: usize) -> bool {
    (0..cols).all(|i| {
        (0..=i).all(|j| {
            let dot: f64 = (0..n).map(|k| q[k * cols + i] * q[k * cols + j]).sum();
            (dot - f64::from(u8::from(i == j))).abs() < 1e-13
        })
    })
}

#[test]
fn eigenvectors_of_hard_matrices_are_orthogonal_and_multiply_back() {
    for n in [1, 2, 3, 5, 31, 32, 33, 64, 65, 97] {
        for (name, a) in hard(n) {
            let out = factors(Linalg::Eigh, &a, [n, n], false);
            let (w, v, unit) = (&out[0], &out[1], largest(&a).max(1e-300));
            let bound = rounding(&a, n);
            assert!(w.is_sorted(), "{name} {n}");
            assert!(orthonormal(v, n, n), "{name} {n}");
            for i in 0..n {
                for j in 0..n {
                    let sum: f64 =
                        (0..n).map(|k| v[i * n + k] * (w[k] / unit) * v[j * n + k]).sum();
                    let error = (sum - a[i * n + j] / unit).abs();
                    assert!(error < bound, "{name} {n}: {error}");
                }
            }
        }
    }
}

#[test]
fn singular_vectors_of_hard_matrices_are_orthogonal_and_multiply_back() {
    for n in [1, 2, 3, 5, 31, 32, 33, 64, 66, 97] {
        for (name, a) in hard(n) {
            // All columns; some, for a wide matrix; and the upper triangle.
            let some = n.div_ceil(3);
            let wide = a[..some * n].to_vec();
            let cut = |(at, &x): (usize, &f64)| if at / n <= at % n { x } else { 0.0 };
            let upper = a.iter().enumerate().map(cut).collect();
            for (m, a) in [(n, a.clone()), (some, wide), (n, upper)] {
                let out = factors(Linalg::Svd { full: false }, &a, [m, n], false);
                let (u, s, v, unit) = (&out[0], &out[1], &out[2], largest(&a).max(1e-300));
                let (k, bound) = (m.min(n), rounding(&a, n));
                assert!(s.iter().rev().is_sorted() && s[k - 1] >= 0.0, "{name} {m}×{n}");
                let turned: Vec<f64> = (0..n * k).map(|at| v[at % k * n + at / k]).collect();
                assert!(orthonormal(u, m, k) && orthonormal(&turned, n, k), "{name} {m}×{n}");
                for i in 0..m {
                    for j in 0..n {
                        let sum: f64 =
                            (0..k).map(|c| u[i * k + c] * (s[c] / unit) * v[c * n + j]).sum();
                        let error = (sum - a[i * n + j] / unit).abs();
                        assert!(error < bound, "{name} {m}×{n}: {error}");
                    }
                }
            }
        }
    }
}

#[test]
fn values_alone_are_those_beside_vectors() {
    for n in [1, 2, 3, 5, 31, 33, 66, 97] {
        for (name, a) in hard(n) {
            let near = |x: &[f64], y: &[f64]| {
                let unit = largest(&a).max(1e-300);
                x.iter().zip(y).all(|(x, y)| ((x - y) / unit).abs() < rounding(&a, n))
            };
            let of = factors(Linalg::Eigh, &a, [n, n], false);
            let alone = factors(Linalg::Spectrum { singular: false }, &a, [n, n], false);
            assert!(near(&alone[0], &of[0]) && alone[0].is_sorted(), "{name} {n}");
            // Of tall and wide matrices too.
            for (m, k) in [(n, n), (n, n.div_ceil(3)), (n.div_ceil(3), n)] {
                let some = &a[..m * k];
                let of = factors(Linalg::Svd { full: false }, some, [m, k], false);
                let alone = factors(Linalg::Spectrum { singular: true }, some, [m, k], false);
                assert!(near(&alone[0], &of[1]), "{name} {m}×{k}");
                assert!(alone[0].iter().rev().is_sorted() && alone[0][m.min(k) - 1] >= 0.0);
            }
        }
    }
}

#[test]
fn tall_and_wide_matrices_have_all_singular_vectors() {
    for (m, n) in [(7, 2), (2, 7), (40, 9), (9, 40), (70, 65), (65, 70), (130, 40)] {
        let a: Vec<f64> = (0..m * n).map(value).collect();
        let out = factors(Linalg::Svd { full: true }, &a, [m, n], false);
        let (u, s, v) = (&out[0], &out[1], &out[2]);
        assert!(orthonormal(u, m, m) && orthonormal(v, n, n));
        for i in 0..m {
            for j in 0..n {
                let sum: f64 = (0..m.min(n)).map(|c| u[i * m + c] * s[c] * v[c * n + j]).sum();
                assert!(near(sum, a[i * n + j]), "{m}×{n}");
            }
        }
    }
}

#[test]
fn division_finds_the_values_of_sweeps() {
    let sorted = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values
    };
    for n in [1, 2, 33, 70] {
        for (name, a) in hard(n) {
            let unit = largest(&a).max(1e-300);
            let load = || {
                let mut x = Dense::<f64>::zeros(n, n);
                a.iter().enumerate().for_each(|(at, v)| x.column_mut(at / n)[at % n] = v / unit);
                x
            };
            let same = |x: Vec<f64>, y: Vec<f64>| {
                let close = |(x, y): (&f64, &f64)| (x - y).abs() < rounding(&a, n);
                assert!(sorted(x).iter().zip(&sorted(y)).all(close), "{name} {n}");
            };
            let identity = || Dense::<f64>::identity(n, n);
            let (mut d, mut e) = (vec![0.0; n], vec![0.0; n]);
            bidiagonal::reduce(load().view_mut(), &mut d, &mut e);
            let (mut divided, mut links) = (d.clone(), e.clone());
            assert!(qr(&mut d, &mut e[..n - 1], identity().view_mut(), identity().view_mut()));
            let (mut u, mut v) = (identity(), identity());
            let links = &mut links[..n - 1];
            assert!(divide_singular::divide(&mut divided, links, u.view_mut(), v.view_mut()));
            same(d, divided);
            let (mut d, mut e) = (vec![0.0; n], vec![0.0; n]);
            tridiagonal::reduce(load().view_mut(), &mut d, &mut e);
            let (mut divided, mut links) = (d.clone(), e.clone());
            assert!(ql(&mut d, &mut e[..n - 1], identity().view_mut()));
            assert!(divide(&mut divided, &mut links[..n - 1], identity().view_mut()));
            same(d, divided);
        }
    }
}

#[test]
fn triangles_solve_around_their_strips() {
    for n in [1, 3, 8, 15, 16, 17, 33, 70] {
        let t: Vec<f64> = (0..n * n)
            .map(|at| if at % (n + 1) == 0 { 2.0 } else { value(at) / n as f64 })
            .collect();
        for cols in [1, 3, 4, 15, 16, 19, 130] {
            let b: Vec<f64> = (0..n * cols).map(value).collect();
            for (upper, unit) in [(false, false), (false, true), (true, false), (true, true)] {
                let x = solved(upper, unit, &t, &b, n, cols);
                for i in 0..n {
                    for j in 0..cols {
                        let element = |k: usize| match k == i {
                            true => {
                                if unit {
                                    1.0
                                } else {
                                    t[i * n + i]
                                }
                            }
                            false => {
                                if (k > i) == upper {
                                    t[i * n + k]
                                } else {
                                    0.0
                                }
                            }
                        };
                        let sum: f64 = (0..n).map(|k| element(k) * x[k * cols + j]).sum();
                        assert!(near(sum, b[i * cols + j]), "{n}, {cols}, {upper}, {unit}");
                    }
                }
            }
        }
    }
}

fn solved(upper: bool, unit: bool, t: &[f64], b: &[f64], n: usize, cols: usize) -> Vec<f64> {
    let buffers = [t, b].map(|x| Buffer::from_slice(x).expect("memory"));
    let specs = [n, cols].map(|cols| Spec::cpu(DType::F64, [n, cols].as_slice()));
    let layouts = [n, cols].map(|cols| Layout {
        shape: Shape::from_slice(&[n, cols]),
        strides: Few::from_slice(&[cols as isize, 1]),
        offset: 0,
    });
    let input = |i: usize| Input { buffer: &buffers[i], layout: &layouts[i], spec: &specs[i] };
    let op = Op::Linalg(Linalg::TriangularSolve { upper, unit });
    let outs = run_op(&op, &[input(0), input(1)]).expect("it runs");
    outs[0].buffer.to_vec::<f64>(DType::F64, 0, n * cols).expect("f64")
}
