//! Every kernel against a naive reference in f64, over shapes, strides, dtypes and threads.

mod batch_norm;

use super::*;
use crate::elem::Elem;
use crate::index::IndexError;
use crate::operand::{Sink, Source};
use crate::par;
use half::{bf16, f16};
use pullback_ir::{DType, dense_strides};

/// Values at `data[at + Σ i·stride]`, and the same in row-major order as f64.
struct Strided<T> {
    data: Vec<T>,
    at: usize,
    shape: Vec<usize>,
    strides: Vec<isize>,
    values: Vec<f64>,
}

trait Sample: Elem + PartialEq + std::fmt::Debug {
    fn of_f64(v: f64) -> Self;
    fn f64(self) -> f64;
    const TOLERANCE: f64;
}

macro_rules! samples {
    ($($t:ty, $of:expr, $to:expr, $tolerance:expr;)*) => {$(
        impl Sample for $t {
            fn of_f64(v: f64) -> $t { let f: fn(f64) -> $t = $of; f(v) }
            fn f64(self) -> f64 { let f: fn($t) -> f64 = $to; f(self) }
            const TOLERANCE: f64 = $tolerance;
        }
    )*};
}
samples! {
    f64, |v| v, |v| v, 1e-13;
    f32, |v| v as f32, f64::from, 3e-6;
    bf16, bf16::from_f64, f64::from, 1e-2;
    f16, f16::from_f64, f64::from, 2e-3;
}

/// Layouts of an operand: dense, axes in reverse order, all axes flipped, one value for all, the
/// last axis broadcast.
const LAYOUTS: usize = 5;

impl<T: Sample> Strided<T> {
    fn new(shape: &[usize], how: usize, seed: &mut u64) -> Strided<T> {
        let len = shape.iter().product::<usize>();
        let data: Vec<T> = (0..len.max(1))
            .map(|_| {
                *seed = seed
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                T::of_f64((*seed >> 40) as f64 / f64::from(1 << 22) - 2.0)
            })
            .collect();
        let mut strides = dense_strides(shape).to_vec();
        let mut at = 0;
        match how {
            0 => {}
            1 => {
                let reversed: Vec<usize> = shape.iter().rev().copied().collect();
                strides = dense_strides(&reversed).iter().rev().copied().collect();
            }
            2 => {
                at = len.saturating_sub(1);
                strides.iter_mut().for_each(|s| *s = -*s);
            }
            3 => strides.fill(0),
            _ => {
                if let Some(last) = strides.last_mut() {
                    *last = 0;
                }
            }
        }
        let values = (0..len)
            .map(|mut i| {
                let mut offset = at as isize;
                for d in (0..shape.len()).rev() {
                    offset += (i % shape[d]) as isize * strides[d];
                    i /= shape[d];
                }
                data[offset as usize].f64()
            })
            .collect();
        Strided { data, at, shape: shape.to_vec(), strides, values }
    }

    fn source(&self) -> Source<'_> {
        Source {
            ptr: self.data[self.at..].as_ptr().cast(),
            shape: &self.shape,
            strides: &self.strides,
            dtype: T::DTYPE,
        }
    }
}

/// Runs a kernel with 1, 2 and 8 threads; the bits must agree.
fn run<T: Sample>(shape: &[usize], f: impl Fn(Sink<'_>)) -> Vec<f64> {
    let mut first: Option<Vec<T>> = None;
    for threads in [1, 2, 8] {
        let mut got = vec![T::of_f64(77.0); shape.iter().product()];
        par::with_threads(threads, || {
            f(Sink { ptr: got.as_mut_ptr().cast(), shape, dtype: T::DTYPE })
        });
        match &first {
            None => first = Some(got),
            Some(first) => {
                // By bits, as a NaN equals nothing.
                let bits = |list: &[T]| list.iter().map(|x| x.f64().to_bits()).collect::<Vec<_>>();
                assert!(bits(first) == bits(&got), "the bits depend on {threads} threads");
            }
        }
    }
    first.unwrap().into_iter().map(T::f64).collect()
}

fn close<T: Sample>(got: &[f64], want: &[f64], what: &str) {
    assert_eq!(got.len(), want.len());
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!(
            (g - w).abs() <= T::TOLERANCE * w.abs().max(1.0),
            "{what}: element {i} is {g}, not {w}"
        );
    }
}

/// Applies a naive function of lines (of `x` and `dy`) along an axis.
fn along(
    axis: usize,
    shape: &[usize],
    x: &[f64],
    dy: &[f64],
    f: impl Fn(&[f64], &[f64]) -> Vec<f64>,
) -> Vec<f64> {
    let (n, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
    let outer: usize = shape[..axis].iter().product();
    let length = f(&vec![0.0; n], &vec![0.0; n]).len();
    let mut out = vec![0.0; outer * length * inner];
    for o in 0..outer {
        for j in 0..inner {
            let line = |v: &[f64]| (0..n).map(|i| v[(o * n + i) * inner + j]).collect::<Vec<_>>();
            for (i, v) in f(&line(x), &line(dy)).into_iter().enumerate() {
                out[(o * length + i) * inner + j] = v;
            }
        }
    }
    out
}

fn naive_lse(x: &[f64]) -> f64 {
    let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    x.iter().map(|v| (v - most).exp()).sum::<f64>().ln() + most
}

const SHAPES: &[(usize, &[usize])] = &[
    (0, &[1]),
    (0, &[37]),
    (0, &[0]),
    (1, &[0, 5]),
    (1, &[3, 31]),
    (1, &[3, 32]),
    (1, &[5, 33]),
    (1, &[2, 1025]),
    (1, &[700, 10]),
    (0, &[10, 700]),
    (0, &[40, 7]),
    (0, &[5, 3]),
    (1, &[3, 40, 17]),
    (1, &[3, 40, 100]),
    (1, &[2, 9, 5]),
    (0, &[1100, 20]),
    (2, &[4, 50, 64]),
    (2, &[2, 3, 8, 9]),
];

fn softmaxes<T: Sample>() {
    let mut seed = 5;
    for &(axis, shape) in SHAPES {
        for how in 0..LAYOUTS {
            let what = format!("{} {shape:?} along {axis}, layout {how}", T::DTYPE);
            let x = Strided::<T>::new(shape, how, &mut seed);
            let dy = Strided::<T>::new(shape, (how + 3) % LAYOUTS, &mut seed);
            let (xs, dys) = (&x.values, &dy.values);
            let got = run::<T>(shape, |out| softmax(axis, x.source(), out));
            let want = along(axis, shape, xs, dys, |x, _| {
                let l = naive_lse(x);
                x.iter().map(|v| (v - l).exp()).collect()
            });
            close::<T>(&got, &want, &format!("softmax {what}"));
            let got = run::<T>(shape, |out| log_softmax(axis, x.source(), out));
            let want = along(axis, shape, xs, dys, |x, _| {
                let l = naive_lse(x);
                x.iter().map(|v| v - l).collect()
            });
            close::<T>(&got, &want, &format!("log_softmax {what}"));
            let got = run::<T>(shape, |out| softmax_vjp(axis, x.source(), dy.source(), out));
            let want = along(axis, shape, xs, dys, |y, dy| {
                let s: f64 = y.iter().zip(dy).map(|(a, b)| a * b).sum();
                y.iter().zip(dy).map(|(y, dy)| y * (dy - s)).collect()
            });
            // These sums grow with the length of the line.
            let scale = 1.0 / (4.0 + shape[axis] as f64);
            let scaled = |v: Vec<f64>| v.into_iter().map(|v| v * scale).collect::<Vec<_>>();
            close::<T>(&scaled(got), &scaled(want), &format!("softmax_vjp {what}"));
            let got = run::<T>(shape, |out| log_softmax_vjp(axis, x.source(), dy.source(), out));
            let want = along(axis, shape, xs, dys, |y, dy| {
                let s: f64 = dy.iter().sum();
                y.iter().zip(dy).map(|(y, dy)| dy - y.exp() * s).collect()
            });
            close::<T>(&scaled(got), &scaled(want), &format!("log_softmax_vjp {what}"));
            let mut rest = shape.to_vec();
            rest.remove(axis);
            if shape[axis] > 0 {
                let got = run::<T>(&rest, |out| log_sum_exp(axis, x.source(), out));
                let want = along(axis, shape, xs, dys, |x, _| vec![naive_lse(x)]);
                close::<T>(&got, &want, &format!("log_sum_exp {what}"));
            }
        }
    }
}

#[test]
fn softmaxes_equal_their_formulas() {
    softmaxes::<f64>();
    softmaxes::<f32>();
    softmaxes::<bf16>();
    softmaxes::<f16>();
}

#[test]
fn scalars_and_empty_axes() {
    let x =
        Strided::<f32> { data: vec![3.0], at: 0, shape: vec![], strides: vec![], values: vec![] };
    assert_eq!(run::<f32>(&[], |out| softmax(0, x.source(), out)), [1.0]);
    assert_eq!(run::<f32>(&[], |out| log_sum_exp(0, x.source(), out)), [3.0]);
    for (axis, shape, rest) in [(1, [70, 0], [70]), (0, [0, 70], [70])] {
        let x = Strided::<f32>::new(&shape, 0, &mut 1);
        let got = run::<f32>(&rest, |out| log_sum_exp(axis, x.source(), out));
        assert_eq!(got, [f64::NEG_INFINITY; 70]);
    }
}

#[test]
fn infinities_and_nan() {
    const INF: f32 = f32::INFINITY;
    // Short lines are processed by columns, long ones by rows.
    for n in [3, 50] {
        let line = |first: f32, others: f32| {
            let mut v = vec![others; n];
            v[0] = first;
            v
        };
        let rows = [
            line(-INF, -INF),
            line(INF, 0.0),
            line(f32::NAN, 0.0),
            line(-INF, 5.0),
            line(1e30, -1e30),
        ];
        let x = Strided::<f32> {
            data: rows.concat(),
            at: 0,
            shape: vec![5, n],
            strides: vec![n as isize, 1],
            values: vec![],
        };
        let mut got = [0f32; 5];
        log_sum_exp(
            1,
            x.source(),
            Sink { ptr: got.as_mut_ptr().cast(), shape: &[5], dtype: DType::F32 },
        );
        assert!(got[0] == -INF && got[1] == INF && got[2].is_nan() && got[4] == 1e30, "{got:?}");
        assert!((f64::from(got[3]) - (5.0 + ((n - 1) as f64).ln())).abs() < 1e-5);
        let mut got = vec![0f32; 5 * n];
        softmax(
            1,
            x.source(),
            Sink { ptr: got.as_mut_ptr().cast(), shape: &x.shape, dtype: DType::F32 },
        );
        assert!(got[..3 * n].iter().step_by(n).all(|v| v.is_nan()));
        assert_eq!(got[3 * n], 0.0);
        assert!((got[3 * n + 1] - 1.0 / (n - 1) as f32).abs() < 1e-6);
        assert_eq!(got[4 * n..4 * n + 2], [1.0, 0.0]);
        let classes = [1i64; 5];
        let classes =
            Source { ptr: classes.as_ptr().cast(), shape: &[5], strides: &[1], dtype: DType::I64 };
        let mut got = [0f32; 5];
        let out = Sink { ptr: got.as_mut_ptr().cast(), shape: &[5], dtype: DType::F32 };
        assert_eq!(cross_entropy(x.source(), classes, out), Ok(()));
        assert!(got[0].is_nan() && got[1] == INF && got[2].is_nan() && got[4] == 2e30, "{got:?}");
    }
}

fn layer_norms<T: Sample>() {
    let mut seed = 6;
    let cases: &[(&[usize], usize)] = &[
        (&[7], 1),
        (&[3, 33], 1),
        (&[40, 64], 1),
        (&[5, 3, 21], 2),
        (&[200, 5], 1),
        (&[4, 6, 100], 1),
        (&[0, 4], 1),
        (&[2, 1500], 1),
    ];
    for &(shape, axes) in cases {
        for how in 0..LAYOUTS {
            let what = format!("{} {shape:?} over {axes}, layout {how}", T::DTYPE);
            let inner = &shape[shape.len() - axes..];
            let n: usize = inner.iter().product();
            let x = Strided::<T>::new(shape, how % 3, &mut seed);
            let dy = Strided::<T>::new(shape, how, &mut seed);
            let w = Strided::<T>::new(inner, (how + 1) % 4, &mut seed);
            let b = Strided::<T>::new(inner, how % 4, &mut seed);
            let eps = 1e-5;
            let mut want = [vec![], vec![], vec![0.0; n], vec![0.0; n]];
            for (row, dy) in x.values.chunks_exact(n).zip(dy.values.chunks_exact(n)) {
                let mean = row.iter().sum::<f64>() / n as f64;
                let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
                let r = 1.0 / (variance + eps).sqrt();
                let hat: Vec<f64> = row.iter().map(|v| (v - mean) * r).collect();
                let g: Vec<f64> = dy.iter().zip(&w.values).map(|(d, w)| d * w).collect();
                let mean = g.iter().sum::<f64>() / n as f64;
                let slope = g.iter().zip(&hat).map(|(g, h)| g * h).sum::<f64>() / n as f64;
                for j in 0..n {
                    want[0].push(hat[j] * w.values[j] + b.values[j]);
                    want[1].push(r * (g[j] - mean - hat[j] * slope));
                    want[2][j] += dy[j] * hat[j];
                    want[3][j] += dy[j];
                }
            }
            let got =
                run::<T>(shape, |out| layer_norm(eps, x.source(), w.source(), b.source(), out));
            close::<T>(&got, &want[0], &format!("layer_norm {what}"));
            for k in 1..4 {
                let sizes = [shape, inner, inner];
                let got = run::<T>(sizes[k - 1], |out| {
                    let mut others = sizes.map(|s| vec![T::default(); s.iter().product()]);
                    let sinks: Vec<Sink> = others
                        .iter_mut()
                        .zip(sizes)
                        .enumerate()
                        .map(|(i, (v, shape))| {
                            if i == k - 1 {
                                out
                            } else {
                                Sink { ptr: v.as_mut_ptr().cast(), shape, dtype: T::DTYPE }
                            }
                        })
                        .collect();
                    layer_norm_vjp(
                        eps,
                        x.source(),
                        w.source(),
                        dy.source(),
                        sinks[0],
                        sinks[1],
                        sinks[2],
                    );
                });
                let scale = if k > 1 { 1.0 / (1.0 + (x.values.len() / n) as f64) } else { 0.2 };
                let scaled = |v: &[f64]| v.iter().map(|v| v * scale).collect::<Vec<_>>();
                close::<T>(&scaled(&got), &scaled(&want[k]), &format!("layer_norm_vjp {k} {what}"));
            }
        }
    }
}

#[test]
fn layer_norm_equals_its_formula() {
    layer_norms::<f64>();
    layer_norms::<f32>();
    layer_norms::<bf16>();
    layer_norms::<f16>();
}

#[test]
fn layer_norm_far_from_zero() {
    // A large mean must not lose the variance by cancellation.
    let x: Vec<f32> = (0..1000).map(|i| 1e4 + (i % 2) as f32).collect();
    let ones = [1f32];
    let of = |v: &[f32], stride: &'static [isize]| Source {
        ptr: v.as_ptr().cast(),
        shape: &[1000],
        strides: stride,
        dtype: DType::F32,
    };
    let got = run::<f32>(&[1000], |out| {
        layer_norm(0.0, of(&x, &[1]), of(&ones, &[0]), of(&[0.0], &[0]), out)
    });
    assert!(
        got.iter().enumerate().all(|(i, v)| (v - if i % 2 == 0 { -1.0 } else { 1.0 }).abs() < 1e-4)
    );
}

/// `C` is the compute type of `T`, which losses and their cotangents have.
fn cross_entropies<T: Sample, C: Sample>() {
    let mut seed = 7;
    for shape in [[1, 1], [5, 3], [64, 10], [33, 32], [7, 1001], [0, 4], [3000, 17]] {
        for how in 0..LAYOUTS {
            let what = format!("{} {shape:?}, layout {how}", T::DTYPE);
            let [n, c] = shape;
            let x = Strided::<T>::new(&shape, how, &mut seed);
            let dy = Strided::<C>::new(&[n], how, &mut seed);
            let classes: Vec<i64> = (0..n.max(1)).map(|i| (i * 7 % c) as i64).collect();
            let classes = Source {
                ptr: classes.as_ptr().cast(),
                shape: &[n],
                strides: &[1],
                dtype: DType::I64,
            };
            let (mut loss, mut slope) = (vec![], vec![]);
            for (i, row) in x.values.chunks_exact(c).enumerate() {
                let lse = naive_lse(row);
                loss.push(lse - row[i * 7 % c]);
                let onehot = |j: usize| if j == i * 7 % c { 1.0 } else { 0.0 };
                slope.extend(
                    row.iter()
                        .enumerate()
                        .map(|(j, v)| ((v - lse).exp() - onehot(j)) * dy.values[i]),
                );
            }
            let got = run::<C>(&[n], |out| cross_entropy(x.source(), classes, out).unwrap());
            close::<T>(&got, &loss, &format!("cross_entropy {what}"));
            let losses = got;
            let mut again: Vec<C> = vec![C::of_f64(7.0); n];
            let ptr: *mut u8 = again.as_mut_ptr().cast();
            let of_losses = Sink { ptr, shape: &[n], dtype: C::DTYPE };
            let got = run::<T>(&shape, |out| {
                cross_entropy_vjp(x.source(), classes, dy.source(), out, of_losses).unwrap()
            });
            close::<T>(&got, &slope, &format!("cross_entropy_vjp {what}"));
            assert_eq!(again.iter().map(|&v| v.f64()).collect::<Vec<_>>(), losses, "{what}");
            // Over the logits, where these are dense.
            let mut over: Vec<T> = x.values.iter().map(|&v| T::of_f64(v)).collect();
            let ptr: *mut u8 = over.as_mut_ptr().cast();
            let (shape, strides) = (&shape[..], [c as isize, 1]);
            let logits = Source { ptr, shape, strides: &strides, dtype: T::DTYPE };
            let out = Sink { ptr, shape, dtype: T::DTYPE };
            cross_entropy_vjp(logits, classes, dy.source(), out, of_losses).unwrap();
            assert_eq!(over.into_iter().map(T::f64).collect::<Vec<_>>(), got, "in place, {what}");
        }
    }
}

#[test]
fn cross_entropy_equals_its_formula() {
    cross_entropies::<f64, f64>();
    cross_entropies::<f32, f32>();
    cross_entropies::<bf16, f32>();
    cross_entropies::<f16, f32>();
}

#[test]
fn a_class_out_of_range_is_named() {
    let x = Strided::<f32>::new(&[3, 4], 0, &mut 1);
    for bad in [4i64, -1] {
        let classes = [0, 3, bad];
        let classes =
            Source { ptr: classes.as_ptr().cast(), shape: &[3], strides: &[1], dtype: DType::I64 };
        let mut got = [7f32; 3];
        let out = Sink { ptr: got.as_mut_ptr().cast(), shape: &[3], dtype: DType::F32 };
        assert_eq!(
            cross_entropy(x.source(), classes, out),
            Err(IndexError { position: 2, index: bad, len: 4 })
        );
        assert_eq!(got, [7.0; 3]);
    }
}

/// Large results are streamed; their rows are the same as those of a small one.
#[test]
fn large_results_are_streamed() {
    type Kernel<'a> = &'a dyn Fn(Source<'_>, Source<'_>, Sink<'_>);
    fn check<T: Sample>(columns: usize) {
        let (rows, few) = ((16 << 20) / (columns * size_of::<T>()), 8);
        let (x, dy) = (
            Strided::<T>::new(&[rows, columns], 0, &mut 1),
            Strided::<T>::new(&[rows, columns], 0, &mut 2),
        );
        let w = Strided::<T>::new(&[columns], 0, &mut 3);
        let mut aside = [(); 2].map(|()| vec![T::of_f64(0.0); columns]);
        let [dw, db] = aside.each_mut().map(|v| Sink {
            ptr: v.as_mut_ptr().cast(),
            shape: &w.shape,
            dtype: T::DTYPE,
        });
        let kernels: [Kernel<'_>; 4] = [
            &|x, _, out| softmax(1, x, out),
            &|x, dy, out| softmax_vjp(1, x, dy, out),
            &|x, _, out| layer_norm(1e-5, x, w.source(), w.source(), out),
            &|x, dy, out| layer_norm_vjp(1e-5, x, w.source(), dy, out, dw, db),
        ];
        let mut large = crate::Buffer::alloc(rows * columns * size_of::<T>()).unwrap();
        let large = large.as_mut_ptr();
        for (k, kernel) in kernels.into_iter().enumerate() {
            for threads in [1, 2, 8] {
                let out = Sink { ptr: large, shape: &x.shape, dtype: T::DTYPE };
                par::with_threads(threads, || kernel(x.source(), dy.source(), out));
                for start in [0, rows / 2, rows - few] {
                    let shape = [few, columns];
                    let part = |s: &Strided<T>| s.data[start * columns..].as_ptr().cast();
                    let [x, dy] =
                        [&x, &dy].map(|s| Source { ptr: part(s), shape: &shape, ..s.source() });
                    let mut want = vec![T::of_f64(0.0); few * columns];
                    kernel(
                        x,
                        dy,
                        Sink { ptr: want.as_mut_ptr().cast(), shape: &shape, dtype: T::DTYPE },
                    );
                    // SAFETY: the kernel has filled all rows.
                    let got = unsafe {
                        std::slice::from_raw_parts(
                            large.cast::<T>().add(start * columns),
                            want.len(),
                        )
                    };
                    assert!(got == want, "kernel {k} on {threads} threads, rows from {start}");
                }
            }
        }
    }
    check::<f32>(1024);
    check::<bf16>(2056);
}

/// `cargo test --profile bench --workspace --test kernels norm::tests::speed -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn speed() {
    let (rows, columns) = (4096, 1024);
    let shape = [rows, columns];
    let x = Strided::<f32>::new(&shape, 0, &mut 1);
    let dy = Strided::<f32>::new(&shape, 0, &mut 2);
    let w = Strided::<f32>::new(&[columns], 0, &mut 3);
    // Aligned, as tensors are.
    let mut buffers = [(); 3].map(|()| crate::Buffer::alloc(rows * columns * 4).unwrap());
    let [a, b, out] = buffers.each_mut().map(|b| b.as_mut_ptr());
    let out = Sink { ptr: out, shape: &shape, dtype: DType::F32 };
    let (mut dw, mut db) = (vec![0f32; columns], vec![0f32; columns]);
    let dw = Sink { ptr: dw.as_mut_ptr().cast(), shape: &shape[1..], dtype: DType::F32 };
    let db = Sink { ptr: db.as_mut_ptr().cast(), ..dw };
    let classes: Vec<i64> = (0..rows as i64).map(|i| i % 1000).collect();
    let classes = Source {
        ptr: classes.as_ptr().cast(),
        shape: &shape[..1],
        strides: &[1],
        dtype: DType::I64,
    };
    let one = Source {
        ptr: [1f32].as_ptr().cast(),
        shape: &shape[..1],
        strides: &[0],
        dtype: DType::F32,
    };
    let all = Source { shape: &shape, strides: &[0, 0], ..one };
    let rows_out = Sink { shape: &shape[..1], ..out };
    let copied = |v: &Strided<f32>, to: *mut u8| {
        // SAFETY: the buffer has space for as many elements.
        unsafe { std::ptr::copy_nonoverlapping(v.data.as_ptr().cast(), to, rows * columns * 4) }
        to
    };
    let (x, dy, w) = (
        Source { ptr: copied(&x, a), ..x.source() },
        Source { ptr: copied(&dy, b), ..dy.source() },
        w.source(),
    );
    let time = |name: &str, f: &dyn Fn()| {
        for threads in [1, 2] {
            let best = par::with_threads(threads, || {
                (0..15)
                    .map(|_| {
                        let start = std::time::Instant::now();
                        f();
                        start.elapsed()
                    })
                    .min()
            });
            println!("{name:28} {threads} threads {best:?}");
        }
    };
    time("copy", &|| {
        // SAFETY: both have this many elements.
        unsafe { std::ptr::copy_nonoverlapping(x.ptr, out.ptr, rows * columns * 4) }
    });
    let part = |s: Source<'_>| s.ptr;
    let small = [64, columns];
    let (xs, ds, os) = (
        Source { ptr: part(x), shape: &small, strides: &[1024, 1], dtype: DType::F32 },
        Source { ptr: part(dy), shape: &small, strides: &[1024, 1], dtype: DType::F32 },
        Sink { shape: &small, ..out },
    );
    time("softmax, 64 rows", &|| softmax(1, xs, os));
    time("softmax_vjp, 64 rows", &|| softmax_vjp(1, xs, ds, os));
    time("softmax", &|| softmax(1, x, out));
    time("softmax, first axis", &|| softmax(0, x, out));
    time("softmax_vjp", &|| softmax_vjp(1, x, dy, out));
    time("softmax_vjp, dy broadcast", &|| softmax_vjp(1, x, all, out));
    time("softmax_vjp, first axis", &|| softmax_vjp(0, x, dy, out));
    time("log_softmax", &|| log_softmax(1, x, out));
    time("log_softmax_vjp", &|| log_softmax_vjp(1, x, dy, out));
    time("log_sum_exp", &|| log_sum_exp(1, x, rows_out));
    time("layer_norm", &|| layer_norm(1e-5, x, w, w, out));
    time("layer_norm_vjp", &|| layer_norm_vjp(1e-5, x, w, dy, out, dw, db));
    time("cross_entropy", &|| cross_entropy(x, classes, rows_out).unwrap());
    time("cross_entropy_vjp", &|| cross_entropy_vjp(x, classes, one, out, rows_out).unwrap());
}
