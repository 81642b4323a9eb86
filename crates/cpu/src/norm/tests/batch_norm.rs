//! Batch normalisation against its formula in f64.

use super::{LAYOUTS, Sample, Strided, close, run};
use crate::norm::{batch_norm, batch_norm_vjp};
use crate::operand::{Sink, Source};
use half::{bf16, f16};
use pullback_ir::DType;

/// Lines around the width of lanes, short ones, several parts of a channel, a line of several
/// pieces.
const SHAPES: [&[usize]; 14] = [
    &[5, 3],
    &[70, 33],
    &[1, 2],
    &[3, 2, 15],
    &[3, 2, 16],
    &[2, 3, 31],
    &[2, 3, 32],
    &[2, 3, 33],
    &[4, 5, 7, 7],
    &[3, 2, 2, 2, 2],
    &[1, 2, 9001],
    &[70, 2, 33, 32],
    &[0, 4],
    &[2, 0, 5],
];

struct Naive {
    /// y, mean, variance, dx, dw, db
    results: [Vec<f64>; 6],
}

fn naive(eps: f64, shape: &[usize], [x, dy, w, b]: [&[f64]; 4]) -> Naive {
    let (n, c, s) = (shape[0], shape[1], shape[2..].iter().product::<usize>());
    let [mut y, mut dx] = [(); 2].map(|()| vec![0.0; x.len()]);
    let [mut mean, mut variance, mut dw, mut db] = [(); 4].map(|()| vec![0.0; c]);
    for k in 0..c {
        let at: Vec<usize> =
            (0..n).flat_map(|i| (0..s).map(move |j| (i * c + k) * s + j)).collect();
        let count = at.len() as f64;
        let m = at.iter().map(|&i| x[i]).sum::<f64>() / count;
        let v = at.iter().map(|&i| (x[i] - m).powi(2)).sum::<f64>() / count;
        let r = 1.0 / (v + eps).sqrt();
        let hat = |i: usize| (x[i] - m) * r;
        (mean[k], variance[k]) = (m, v);
        dw[k] = at.iter().map(|&i| dy[i] * hat(i)).sum::<f64>();
        db[k] = at.iter().map(|&i| dy[i]).sum::<f64>();
        for &i in &at {
            y[i] = hat(i) * w[k] + b[k];
            dx[i] = w[k] * r * (dy[i] - db[k] / count - hat(i) * dw[k] / count);
        }
    }
    Naive { results: [y, mean, variance, dx, dw, db] }
}

/// Runs a kernel of three results for one of them; the others are discarded.
fn one_of<R: Sample>(
    shapes: [&[usize]; 3],
    dtypes: [DType; 3],
    k: usize,
    f: impl Fn([Sink<'_>; 3]),
) -> Vec<f64> {
    run::<R>(shapes[k], |out| {
        let mut others = shapes.map(|s| vec![0f64; s.iter().product()]);
        let mut i = 0;
        let sinks = others.each_mut().map(|v| {
            let at = i;
            i += 1;
            match at == k {
                true => out,
                // Space for elements of any size.
                false => Sink { ptr: v.as_mut_ptr().cast(), shape: shapes[at], dtype: dtypes[at] },
            }
        });
        f(sinks);
    })
}

/// `C` is the compute type of `T`.
fn batch_norms<T: Sample, C: Sample>() {
    let (mut seed, eps) = (8, 1e-5);
    for shape in SHAPES {
        for how in 0..LAYOUTS {
            let what = format!("{} {shape:?}, layout {how}", T::DTYPE);
            let each = &shape[1..2];
            let x = Strided::<T>::new(shape, how % 3, &mut seed);
            let dy = Strided::<T>::new(shape, how, &mut seed);
            let w = Strided::<T>::new(each, (how + 1) % 4, &mut seed);
            let b = Strided::<T>::new(each, how % 4, &mut seed);
            let want = naive(eps, shape, [&x.values, &dy.values, &w.values, &b.values]).results;
            let (shapes, count) =
                ([shape, each, each], x.values.len().checked_div(each[0]).unwrap_or(0));
            let kernel = |[y, mean, variance]: [Sink<'_>; 3]| {
                batch_norm(eps, x.source(), w.source(), b.source(), y, [mean, variance]);
            };
            let dtypes = [T::DTYPE, C::DTYPE, C::DTYPE];
            let got = one_of::<T>(shapes, dtypes, 0, kernel);
            close::<T>(&got, &want[0], &format!("batch_norm {what}"));
            let mut statistics = vec![];
            #[allow(clippy::needless_range_loop)] // a result and its twin
            for k in 1..3 {
                let got = one_of::<C>(shapes, dtypes, k, kernel);
                if count == 0 {
                    assert!(got.iter().all(|v| v.is_nan()), "{what}: {got:?}");
                } else {
                    close::<C>(&got, &want[k], &format!("statistics {k} {what}"));
                }
                statistics.push(got.into_iter().map(C::of_f64).collect::<Vec<_>>());
            }
            let of = |k: usize| Source {
                ptr: statistics[k].as_ptr().cast(),
                shape: each,
                strides: &[1],
                dtype: C::DTYPE,
            };
            for k in 0..3 {
                let got = one_of::<T>(shapes, [T::DTYPE; 3], k, |[dx, dw, db]| {
                    let operands = [x.source(), dy.source()];
                    batch_norm_vjp(eps, operands, w.source(), [of(0), of(1)], dx, [dw, db]);
                });
                // The error of a sum grows with its number of terms, and that of dx with 1/σ.
                let scale = if k > 0 { 1.0 / (1.0 + count as f64) } else { 0.2 };
                let scaled = |v: &[f64]| v.iter().map(|v| v * scale).collect::<Vec<_>>();
                let what = format!("batch_norm_vjp {k} {what}");
                close::<T>(&scaled(&got), &scaled(&want[3 + k]), &what);
            }
        }
    }
}

#[test]
fn batch_norm_equals_its_formula() {
    batch_norms::<f64, f64>();
    batch_norms::<f32, f32>();
    batch_norms::<bf16, f32>();
    batch_norms::<f16, f32>();
}

#[test]
fn batch_norm_far_from_zero() {
    // A large mean must not lose the variance by cancellation, nor parts with different means.
    for (samples, line) in [(2000, 1), (20, 100), (90, 2000)] {
        let shape = [samples, 1, line];
        let x: Vec<f32> = (0..samples * line).map(|i| 1e4 + (i % 2) as f32).collect();
        let source = Source {
            ptr: x.as_ptr().cast(),
            shape: &shape,
            strides: &[line as isize, line as isize, 1],
            dtype: DType::F32,
        };
        let of = |v: &'static [f32; 1]| Source {
            ptr: v.as_ptr().cast(),
            shape: &[1],
            strides: &[1],
            dtype: DType::F32,
        };
        let shapes = [&shape[..], &[1], &[1]];
        let got = one_of::<f32>(shapes, [DType::F32; 3], 0, |[y, mean, variance]| {
            batch_norm(0.0, source, of(&[1.0]), of(&[0.0]), y, [mean, variance]);
        });
        let sign = |i: usize| if i.is_multiple_of(2) { -1.0 } else { 1.0 };
        assert!(got.iter().enumerate().all(|(i, v)| (v - sign(i)).abs() < 2e-3), "{shape:?}");
    }
}

#[test]
fn one_infinity_spoils_its_channel_alone() {
    let shape = [3, 2, 40];
    let mut x = vec![0.5f32; 240];
    x[45] = f32::INFINITY;
    let source =
        Source { ptr: x.as_ptr().cast(), shape: &shape, strides: &[80, 40, 1], dtype: DType::F32 };
    let ones = [1f32; 2];
    let w = Source { ptr: ones.as_ptr().cast(), shape: &[2], strides: &[1], dtype: DType::F32 };
    let mut got = [vec![0f32; 240], vec![0f32; 2], vec![0f32; 2]];
    let shapes: [&[usize]; 3] = [&shape, &[2], &[2]];
    let mut i = 0;
    let [y, mean, variance] = got.each_mut().map(|v| {
        i += 1;
        Sink { ptr: v.as_mut_ptr().cast(), shape: shapes[i - 1], dtype: DType::F32 }
    });
    batch_norm(1e-5, source, w, w, y, [mean, variance]);
    let channel = |i: usize| i / 40 % 2;
    assert!(got[0].iter().enumerate().all(|(i, v)| v.is_nan() == (channel(i) == 1)));
    assert!(got[1][0] == 0.5 && got[1][1] == f32::INFINITY && got[2][1].is_nan(), "{got:?}");
}
