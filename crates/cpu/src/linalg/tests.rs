//! The kernels on sizes around their blocks, negative strides, and matrices that have no factors.

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
