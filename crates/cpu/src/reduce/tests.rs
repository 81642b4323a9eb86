//! Reductions against plain loops, over shapes, strides, axes and dtypes.

use super::*;
use half::{bf16, f16};
use pullback_ir::{DType, Extreme};

/// Strides for a shape: dense, permuted, flipped, broadcast along one axis, every second element.
fn layouts(shape: &[usize]) -> Vec<(Vec<isize>, usize, usize)> {
    let dense = |order: &[usize], gap: usize| {
        let mut strides = vec![0isize; shape.len()];
        let mut step = gap;
        for &d in order.iter().rev() {
            strides[d] = step as isize;
            step *= shape[d].max(1);
        }
        (strides, 0usize, step.max(1))
    };
    let order: Vec<usize> = (0..shape.len()).collect();
    let reversed: Vec<usize> = order.iter().rev().copied().collect();
    let mut all = vec![dense(&order, 1), dense(&reversed, 1), dense(&order, 2)];
    if !shape.is_empty() && shape.iter().all(|&n| n > 0) {
        let (mut strides, _, len) = dense(&order, 1);
        strides.iter_mut().for_each(|s| *s = -*s);
        all.push((strides, len - 1, len));
        for d in [0, shape.len() - 1] {
            let (mut strides, _, len) = dense(&order, 1);
            strides[d] = 0;
            all.push((strides, 0, len));
        }
    }
    all
}

fn value(i: usize) -> f64 {
    ((i * 7919 + 13) % 1009) as f64 / 504.5 - 1.0
}

fn subsets(rank: usize) -> Vec<Vec<usize>> {
    (0..1usize << rank).map(|bits| (0..rank).filter(|d| bits >> d & 1 == 1).collect()).collect()
}

fn check<T: Copy, U: Copy + Default>(
    dtypes: [DType; 2],
    kinds: &[Reduction],
    from: impl Fn(f64) -> T,
    to: impl Fn(T) -> f64,
    result: impl Fn(U) -> f64,
    tolerance: f64,
) {
    let shapes: [&[usize]; 13] = [
        &[],
        &[1],
        &[17],
        &[1000],
        &[5000],
        &[0, 3],
        &[3, 0],
        &[7, 33],
        &[70, 5],
        &[3, 4, 5],
        &[2, 65, 17],
        &[600, 40],
        &[40, 3000],
    ];
    for shape in shapes {
        for (strides, at, len) in layouts(shape) {
            let data: Vec<T> = (0..len).map(|i| from(value(i))).collect();
            for axes in subsets(shape.len()) {
                let kept: Vec<usize> = (0..shape.len()).filter(|d| !axes.contains(d)).collect();
                let out_shape: Vec<usize> = kept.iter().map(|&d| shape[d]).collect();
                let results: usize = out_shape.iter().product();
                let empty = axes.iter().any(|&d| shape[d] == 0);
                for &kind in kinds {
                    if empty && matches!(kind, Reduction::Max | Reduction::Min) {
                        continue;
                    }
                    let identity = match kind {
                        Reduction::Sum => 0.0,
                        Reduction::Prod => 1.0,
                        Reduction::Max => f64::NEG_INFINITY,
                        Reduction::Min => f64::INFINITY,
                    };
                    let (mut want, mut scale) = (vec![identity; results], vec![0.0; results]);
                    for flat in 0..shape.iter().product() {
                        let (mut rest, mut offset, mut place, mut step) = (flat, at as isize, 0, 1);
                        for d in (0..shape.len()).rev() {
                            let i = rest % shape[d];
                            rest /= shape[d];
                            offset += i as isize * strides[d];
                            if kept.contains(&d) {
                                place += i * step;
                                step *= shape[d];
                            }
                        }
                        let x = to(data[offset as usize]);
                        let w = &mut want[place];
                        scale[place] += x.abs();
                        *w = match kind {
                            Reduction::Sum => *w + x,
                            Reduction::Prod => *w * x,
                            Reduction::Max => w.max(x),
                            Reduction::Min => w.min(x),
                        };
                    }
                    let mut bits: Option<Vec<u64>> = None;
                    for threads in [1, 2, 8] {
                        let mut out = vec![U::default(); results];
                        par::with_threads(threads, || {
                            reduce(
                                kind,
                                &axes,
                                Source {
                                    ptr: data.as_ptr().wrapping_add(at).cast(),
                                    shape,
                                    strides: &strides,
                                    dtype: dtypes[0],
                                },
                                Sink {
                                    ptr: out.as_mut_ptr().cast(),
                                    shape: &out_shape,
                                    dtype: dtypes[1],
                                },
                            );
                        });
                        let got: Vec<f64> = out.iter().map(|&x| result(x)).collect();
                        for i in 0..results {
                            let bound = tolerance
                                * (want[i].abs()
                                    + if kind == Reduction::Sum { scale[i] } else { 0.0 });
                            assert!(
                                (got[i] - want[i]).abs() <= bound + 1e-30,
                                "{kind:?} of {} {shape:?} strides {strides:?} over {axes:?} at {i}: {} for {}",
                                dtypes[0],
                                got[i],
                                want[i]
                            );
                        }
                        let now: Vec<u64> = got.iter().map(|x| x.to_bits()).collect();
                        assert!(
                            *bits.get_or_insert_with(|| now.clone()) == now,
                            "threads change the bits"
                        );
                    }
                }
            }
        }
    }
}

const ALL: [Reduction; 4] = [Reduction::Sum, Reduction::Prod, Reduction::Max, Reduction::Min];

#[test]
fn floats_agree() {
    check::<f32, f32>(
        [DType::F32; 2],
        &ALL,
        |x| (1.0 + 0.01 * x) as f32,
        |x| x as f64,
        |x| x as f64,
        1e-4,
    );
    check::<f64, f64>([DType::F64; 2], &ALL, |x| 1.0 + 0.01 * x, |x| x, |x| x, 1e-11);
}

#[test]
fn narrow_floats_agree() {
    let kinds = [Reduction::Sum, Reduction::Max, Reduction::Min];
    check::<bf16, bf16>([DType::BF16; 2], &kinds, bf16::from_f64, bf16::to_f64, bf16::to_f64, 1e-2);
    check::<f16, f16>([DType::F16; 2], &kinds, f16::from_f64, f16::to_f64, f16::to_f64, 2e-3);
}

#[test]
fn integers_and_truth_values_agree() {
    let (kinds, extremes) =
        ([Reduction::Sum, Reduction::Max, Reduction::Min], [Reduction::Max, Reduction::Min]);
    check::<i64, i64>(
        [DType::I64; 2],
        &kinds,
        |x| (x * 1e6) as i64,
        |x| x as f64,
        |x| x as f64,
        0.0,
    );
    check::<i32, i64>(
        [DType::I32, DType::I64],
        &kinds,
        |x| (x * 1e6) as i32,
        |x| x as f64,
        |x| x as f64,
        0.0,
    );
    check::<u8, u8>(
        [DType::U8; 2],
        &extremes,
        |x| (x * 100.0 + 100.0) as u8,
        |x| x as f64,
        |x| x as f64,
        0.0,
    );
    check::<u8, u8>(
        [DType::Bool; 2],
        &extremes,
        |x| (x > 0.5) as u8,
        |x| x as f64,
        |x| x as f64,
        0.0,
    );
    check::<u8, i64>(
        [DType::Bool, DType::I64],
        &kinds,
        |x| (x > 0.5) as u8,
        |x| x as f64,
        |x| x as f64,
        0.0,
    );
}

fn reduce_f32(kind: Reduction, x: &[f32]) -> f32 {
    let mut out = 0f32;
    reduce(
        kind,
        &[0],
        Source { ptr: x.as_ptr().cast(), shape: &[x.len()], strides: &[1], dtype: DType::F32 },
        Sink { ptr: (&raw mut out).cast(), shape: &[], dtype: DType::F32 },
    );
    out
}

#[test]
fn the_extremes_of_nothing() {
    fn of_none<T: Copy + Default>(kind: Reduction, dtype: DType) -> T {
        let mut out = T::default();
        let x = Source { ptr: std::ptr::dangling(), shape: &[0], strides: &[1], dtype };
        reduce(kind, &[0], x, Sink { ptr: (&raw mut out).cast(), shape: &[], dtype });
        out
    }
    let [max, min] = [Reduction::Max, Reduction::Min];
    assert_eq!([of_none::<u8>(max, DType::Bool), of_none(min, DType::Bool)], [0, 1]);
    assert_eq!([of_none::<u8>(max, DType::U8), of_none(min, DType::U8)], [0, 255]);
    assert_eq!([of_none::<i32>(max, DType::I32), of_none(min, DType::I32)], [i32::MIN, i32::MAX]);
    assert_eq!([of_none::<i64>(max, DType::I64), of_none(min, DType::I64)], [i64::MIN, i64::MAX]);
    assert_eq!(
        [of_none::<f32>(max, DType::F32), of_none(min, DType::F32)],
        [f32::NEG_INFINITY, f32::INFINITY]
    );
}

#[test]
fn a_long_sum_is_accurate() {
    let x: Vec<f32> = (0..4 << 20).map(|i| 0.1 + (i % 7) as f32 * 0.01).collect();
    let exact: f64 = x.iter().map(|&x| x as f64).sum();
    assert!((reduce_f32(Reduction::Sum, &x) as f64 / exact - 1.0).abs() < 2e-7);
}

#[test]
fn nan_stays() {
    for len in [1, 5, 64, 100, 5000, 100_000] {
        for at in [0, len / 2, len - 1] {
            let mut x: Vec<f32> = (0..len).map(|i| i as f32).collect();
            x[at] = f32::NAN;
            for kind in ALL {
                assert!(reduce_f32(kind, &x).is_nan(), "{kind:?} {len} {at}");
            }
        }
    }
}

#[test]
fn arg_reduce_agrees() {
    for shape in [[1usize, 1], [3, 17], [17, 3], [5, 5000], [5000, 5], [70, 130]] {
        for (strides, at, len) in layouts(&shape) {
            for nan in [false, true] {
                // Few different values, so that the first of equal ones matters.
                let mut data: Vec<f32> = (0..len).map(|i| ((i * 7919) % 23) as f32).collect();
                if nan {
                    data.iter_mut().skip(len / 2).step_by(11).for_each(|x| *x = f32::NAN);
                }
                for (axis, kind) in
                    [(0, Extreme::Max), (0, Extreme::Min), (1, Extreme::Max), (1, Extreme::Min)]
                {
                    let out_shape = [shape[1 - axis]];
                    let mut out = vec![-1i64; out_shape[0]];
                    arg_reduce(
                        kind,
                        axis,
                        Source {
                            ptr: data.as_ptr().wrapping_add(at).cast(),
                            shape: &shape,
                            strides: &strides,
                            dtype: DType::F32,
                        },
                        Sink { ptr: out.as_mut_ptr().cast(), shape: &out_shape, dtype: DType::I64 },
                    );
                    for (o, &got) in out.iter().enumerate() {
                        let get = |i: usize| {
                            let (a, b) = if axis == 0 { (i, o) } else { (o, i) };
                            data[(at as isize + a as isize * strides[0] + b as isize * strides[1])
                                as usize]
                        };
                        let mut best = 0;
                        for i in 1..shape[axis] {
                            let (x, b) = (get(i), get(best));
                            let better = if kind == Extreme::Max { x > b } else { x < b };
                            if !b.is_nan() && (x.is_nan() || better) {
                                best = i;
                            }
                        }
                        assert_eq!(
                            got, best as i64,
                            "{kind:?} {shape:?} {strides:?} axis {axis} at {o}"
                        );
                    }
                }
            }
        }
    }
}

/// Rows of every length that has its own loop: alone, and many at once. Integers, so that every
/// order gives the same sum.
#[test]
fn short_rows_agree() {
    for row in 1..=200 {
        let rows = 7;
        let data: Vec<f64> = (0..rows * row).map(|i| (value(i) * 1000.0).round()).collect();
        for kind in [Reduction::Sum, Reduction::Max, Reduction::Min] {
            let folder = folder(kind, DType::F64, DType::F64);
            let mut each = vec![f64::NAN; rows];
            // SAFETY: there are so many elements, and space for the results.
            unsafe { folder.each(data.as_ptr().cast(), row, rows, each.as_mut_ptr().cast()) };
            for (x, each) in data.chunks(row).zip(each) {
                let want = match kind {
                    Reduction::Max => x.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                    Reduction::Min => x.iter().copied().fold(f64::INFINITY, f64::min),
                    _ => x.iter().sum(),
                };
                // SAFETY: the row is inside the data.
                let alone = f64::from_bits(unsafe { folder.run(x.as_ptr().cast(), row) });
                assert_eq!((alone, each), (want, want), "{kind:?} of {row}");
            }
        }
    }
}

/// A fold of a row with fewer lanes gives the bits of one with all 64: those skipped are neutral.
#[test]
fn lanes_that_are_left_out_change_no_bit() {
    for row in 16..=40 {
        let data: Vec<f32> = (0..row).map(|i| value(i) as f32 - 1e-9).collect();
        let mut lanes = [0f32; 64];
        lanes.iter_mut().zip(&data).for_each(|(lane, x)| *lane += x);
        for width in [32, 16, 8, 4, 2, 1] {
            (0..width).for_each(|l| lanes[l] += lanes[l + width]);
        }
        assert_eq!(reduce_f32(Reduction::Sum, &data).to_bits(), lanes[0].to_bits(), "{row}");
        assert_eq!(reduce_f32(Reduction::Sum, &vec![-0.0; row]).to_bits(), 0, "{row}");
    }
}

/// `cargo test --profile bench --workspace --test kernels reduce_rates -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn reduce_rates() {
    let cases: [(&[usize], &[usize]); 9] = [
        (&[1 << 22], &[0]),
        (&[1 << 14], &[0]),
        (&[64], &[0]),
        (&[4096, 1024], &[1]),
        (&[4096, 1024], &[0]),
        (&[128, 10], &[0]),
        (&[128, 10], &[1]),
        (&[65536, 64], &[0]),
        (&[64, 256, 256], &[1]),
    ];
    for (shape, axes) in cases {
        let len: usize = shape.iter().product();
        let x = vec![0.5f32; len];
        let mut strides = vec![1isize; shape.len()];
        for d in (0..shape.len() - 1).rev() {
            strides[d] = strides[d + 1] * shape[d + 1] as isize;
        }
        let out_shape: Vec<usize> =
            (0..shape.len()).filter(|d| !axes.contains(d)).map(|d| shape[d]).collect();
        let mut out = vec![0f32; out_shape.iter().product()];
        let mut line = format!("{shape:?} over {axes:?}:");
        for kind in [Reduction::Sum, Reduction::Max] {
            let mut best = f64::MAX;
            for _ in 0..50 {
                let repeats = (1_000_000 / len).max(1);
                let start = std::time::Instant::now();
                for _ in 0..repeats {
                    reduce(
                        kind,
                        axes,
                        Source {
                            ptr: x.as_ptr().cast(),
                            shape,
                            strides: &strides,
                            dtype: DType::F32,
                        },
                        Sink { ptr: out.as_mut_ptr().cast(), shape: &out_shape, dtype: DType::F32 },
                    );
                }
                best = best.min(start.elapsed().as_secs_f64() / repeats as f64);
            }
            line += &format!(
                "  {kind:?} {:.2} µs {:.1} GB/s",
                best * 1e6,
                len as f64 * 4.0 / best / 1e9
            );
        }
        println!("{line}");
    }
}
