//! Cumulative reductions against plain loops.

use super::*;
use pullback_ir::DType;

fn naive(kind: Cumulation, line: &[f64]) -> Vec<f64> {
    (1..=line.len())
        .map(|n| {
            let part = &line[..n];
            let nan = part.iter().any(|x| x.is_nan());
            match kind {
                Cumulation::Sum => part.iter().sum(),
                Cumulation::Prod => part.iter().product(),
                Cumulation::Max if nan => f64::NAN,
                Cumulation::Min if nan => f64::NAN,
                Cumulation::Max => part.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b)),
                Cumulation::Min => part.iter().fold(f64::INFINITY, |a, &b| a.min(b)),
                Cumulation::LogSumExp => {
                    let top = part.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
                    if nan {
                        f64::NAN
                    } else if top.is_infinite() {
                        top
                    } else {
                        top + part.iter().map(|x| (x - top).exp()).sum::<f64>().ln()
                    }
                }
            }
        })
        .collect()
}

#[test]
fn agrees_along_every_axis() {
    use Cumulation::*;
    let shape = [3usize, 70, 5];
    let mut data: Vec<f32> = (0..1050).map(|i| ((i * 7919) % 1009) as f32 / 504.5 - 1.0).collect();
    data[100] = f32::NAN;
    data[333] = f32::INFINITY;
    data[0] = f32::NEG_INFINITY;
    data[1] = f32::NEG_INFINITY;
    let layouts: [([isize; 3], usize); 4] =
        [([350, 5, 1], 0), ([1, 15, 3], 0), ([-350, 5, -1], 704), ([350, 0, 1], 0)];
    for (strides, at) in layouts {
        for axis in 0..3 {
            for kind in [Sum, Prod, Max, Min, LogSumExp] {
                for (reverse, threads) in [(false, 1), (true, 2), (false, 8)] {
                    let mut out = vec![0f32; 1050];
                    par::with_threads(threads, || {
                        cumulate(
                            kind,
                            axis,
                            reverse,
                            Source {
                                ptr: data.as_ptr().wrapping_add(at).cast(),
                                shape: &shape,
                                strides: &strides,
                                dtype: DType::F32,
                            },
                            Sink { ptr: out.as_mut_ptr().cast(), shape: &shape, dtype: DType::F32 },
                        );
                    });
                    let others: Vec<usize> = (0..3).filter(|&d| d != axis).collect();
                    for a in 0..shape[others[0]] {
                        for b in 0..shape[others[1]] {
                            let index = |i: usize| {
                                let i = if reverse { shape[axis] - 1 - i } else { i };
                                let mut at = [0; 3];
                                (at[axis], at[others[0]], at[others[1]]) = (i, a, b);
                                at
                            };
                            let line: Vec<f64> = (0..shape[axis])
                                .map(|i| {
                                    let p = index(i);
                                    let offset: isize =
                                        (0..3).map(|d| p[d] as isize * strides[d]).sum();
                                    data[(at as isize + offset) as usize] as f64
                                })
                                .collect();
                            for (i, want) in naive(kind, &line).into_iter().enumerate() {
                                let p = index(i);
                                let got = out[p[0] * 350 + p[1] * 5 + p[2]] as f64;
                                let near = (got - want).abs() <= 1e-5 * (1.0 + want.abs());
                                assert!(
                                    near || got == want || got.is_nan() && want.is_nan(),
                                    "{kind:?} {axis} {i}: {got} for {want}"
                                );
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Lengths around links, pieces and blocks.
#[test]
fn cut_lines_equal_uncut_ones() {
    for n in [511usize, 512, 513, 1100, BLOCK, 2 * BLOCK - 1, 2 * BLOCK, 3 * BLOCK + 700] {
        for lines in [1usize, 3] {
            let data: Vec<f32> =
                (0..n * lines).map(|i| ((i * 7919) % 10007) as f32 / 5003.5 - 1.0).collect();
            for kind in [Cumulation::Sum, Cumulation::Max, Cumulation::Min] {
                for reverse in [false, true] {
                    let run = |threads: usize| {
                        let mut out = vec![f32::NAN; n * lines];
                        let shape = [lines, n];
                        let strides = [n as isize, 1];
                        let ptr = data.as_ptr().cast();
                        par::with_threads(threads, || {
                            cumulate(
                                kind,
                                1,
                                reverse,
                                Source { ptr, shape: &shape, strides: &strides, dtype: DType::F32 },
                                Sink {
                                    ptr: out.as_mut_ptr().cast(),
                                    shape: &shape,
                                    dtype: DType::F32,
                                },
                            )
                        });
                        out
                    };
                    let given = run(1);
                    assert!(given == run(3), "{kind:?} of {n} depends on threads");
                    for line in 0..lines {
                        let mut carry = match kind {
                            Cumulation::Sum => 0f64,
                            Cumulation::Max => f64::NEG_INFINITY,
                            _ => f64::INFINITY,
                        };
                        for i in 0..n {
                            let at = line * n + if reverse { n - 1 - i } else { i };
                            let x = f64::from(data[at]);
                            carry = match kind {
                                Cumulation::Sum => carry + x,
                                Cumulation::Max => carry.max(x),
                                _ => carry.min(x),
                            };
                            let near =
                                (f64::from(given[at]) - carry).abs() <= 1e-6 * carry.abs().max(1.0);
                            assert!(
                                near,
                                "{kind:?} of {n}, {reverse}, {at}: {} for {carry}",
                                given[at]
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn truth_values_sum_to_integers() {
    let data = [1u8, 0, 1, 1];
    let mut out = [0i64; 4];
    cumulate(
        Cumulation::Sum,
        0,
        false,
        Source { ptr: data.as_ptr(), shape: &[4], strides: &[1], dtype: DType::Bool },
        Sink { ptr: out.as_mut_ptr().cast(), shape: &[4], dtype: DType::I64 },
    );
    assert_eq!(out, [1, 1, 2, 3]);
}

/// A part may overflow where the whole does not.
#[test]
fn a_sum_of_f64_overflows_only_where_the_whole_does() {
    for (n, reverse) in [(2048usize, false), (2048, true), (3 * BLOCK, false)] {
        let mut data = vec![0f64; n];
        let at = |i: usize| if reverse { n - 1 - i } else { i };
        data[at(0)] = -1e308;
        data[at(65)] = 1e308;
        data[at(66)] = 1e308;
        let mut out = vec![f64::NAN; n];
        let (shape, strides) = ([n], [1isize]);
        let ptr = data.as_ptr().cast();
        cumulate(
            Cumulation::Sum,
            0,
            reverse,
            Source { ptr, shape: &shape, strides: &strides, dtype: DType::F64 },
            Sink { ptr: out.as_mut_ptr().cast(), shape: &shape, dtype: DType::F64 },
        );
        let given = [0, 64, 65, 66, n - 1].map(|i| out[at(i)]);
        assert_eq!(given, [-1e308, -1e308, 0.0, 1e308, 1e308]);
    }
}
