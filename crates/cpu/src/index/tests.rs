use super::*;
use half::bf16;

/// A small generator of numbers for tests.
fn noise(seed: &mut u64) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) as usize
}

/// A strided tensor: values at `data[at + Σ i·stride]`.
struct Strided<T> {
    data: Vec<T>,
    at: usize,
    shape: Vec<usize>,
    strides: Vec<isize>,
}

impl<T: Copy> Strided<T> {
    /// `how`: 0 dense, 1 axes laid out in reverse order, 2 every axis flipped, and from 3 on
    /// constant along the axes from `how - 3` on.
    fn new(shape: &[usize], how: usize, mut f: impl FnMut() -> T) -> Strided<T> {
        let len = shape.iter().product::<usize>();
        let data: Vec<T> = (0..len.max(1)).map(|_| f()).collect();
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
            k => strides.iter_mut().skip(k - 3).for_each(|s| *s = 0),
        }
        Strided { data, at, shape: shape.to_vec(), strides }
    }

    fn source(&self, dtype: DType) -> Source<'_> {
        Source {
            ptr: self.data[self.at..].as_ptr().cast(),
            shape: &self.shape,
            strides: &self.strides,
            dtype,
        }
    }

    fn get(&self, at: &[usize]) -> T {
        let offset: isize = at.iter().zip(&self.strides).map(|(&i, &s)| i as isize * s).sum();
        self.data[self.at.wrapping_add_signed(offset)]
    }
}

fn coordinates(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let shape = shape.to_vec();
    (0..shape.iter().product()).map(move |mut i: usize| {
        let mut at = vec![0; shape.len()];
        for d in (0..shape.len()).rev() {
            at[d] = i % shape[d];
            i /= shape[d];
        }
        at
    })
}

const CASES: &[(usize, &[usize], &[usize])] = &[
    (0, &[7], &[5]),
    (0, &[7], &[0]),
    (0, &[5, 33], &[9, 33]),
    (0, &[5, 33], &[9, 20]),
    (1, &[4, 6], &[3, 17]),
    (1, &[3, 5, 16], &[3, 8, 16]),
    (1, &[3, 5, 2, 3], &[2, 8, 2, 3]),
    (2, &[3, 5, 7], &[3, 5, 4]),
    (1, &[40, 3, 2], &[40, 4, 2]),
    (0, &[300, 70], &[900, 70]),
];

/// Rows of every length that has its own copy loop, and one more.
#[test]
fn gather_takes_short_rows() {
    let mut seed = 3;
    for row in 1..=17 {
        let x = Strided::new(&[5, row], 0, || noise(&mut seed) as i64);
        let index = Strided::new(&[700, row], 4, || (noise(&mut seed) % 5) as i64);
        let want: Vec<i64> =
            coordinates(&[700, row]).map(|at| x.get(&[index.get(&at) as usize, at[1]])).collect();
        let mut got = vec![0; want.len()];
        let out = Sink { ptr: got.as_mut_ptr().cast(), shape: &[700, row], dtype: DType::I64 };
        gather(0, x.source(DType::I64), index.source(DType::I64), out).unwrap();
        assert_eq!(got, want, "rows of {row}");
    }
}

#[test]
fn gather_equals_its_definition() {
    let mut seed = 1;
    for &(axis, shape, picked) in CASES {
        for how in 0..3 + shape.len() {
            for x_how in 0..3 {
                let x = Strided::new(shape, x_how, || noise(&mut seed) as i32);
                let index = Strided::new(picked, how, || (noise(&mut seed) % shape[axis]) as i64);
                let want: Vec<i32> = coordinates(picked)
                    .map(|mut at| {
                        at[axis] = index.get(&at) as usize;
                        x.get(&at)
                    })
                    .collect();
                for threads in [1, 2, 8] {
                    let mut got = vec![0i32; want.len()];
                    let out =
                        Sink { ptr: got.as_mut_ptr().cast(), shape: picked, dtype: DType::I32 };
                    par::with_threads(threads, || {
                        gather(axis, x.source(DType::I32), index.source(DType::I64), out)
                    })
                    .unwrap();
                    assert_eq!(got, want, "axis {axis} of {shape:?} at {picked:?}, {how} {x_how}");
                }
            }
        }
    }
}

#[test]
fn gather_of_one_number_everywhere() {
    let (one, index) = ([2.5f64], [0i64, 3, 1]);
    let x = |shape| Source { ptr: one.as_ptr().cast(), shape, strides: &[0, 0], dtype: DType::F64 };
    let rows =
        Source { ptr: index.as_ptr().cast(), shape: &[3, 2], strides: &[1, 0], dtype: DType::I64 };
    let mut got = [0f64; 6];
    let out = Sink { ptr: got.as_mut_ptr().cast(), shape: &[3, 2], dtype: DType::F64 };
    gather(0, x(&[4, 2]), rows, out).unwrap();
    assert_eq!(got, [2.5; 6]);
    // The indices are still checked.
    let out = Sink { ptr: got.as_mut_ptr().cast(), shape: &[3, 2], dtype: DType::F64 };
    let error = gather(0, x(&[3, 2]), rows, out).unwrap_err();
    assert_eq!(error, IndexError { position: 2, index: 3, len: 3 });
}

#[test]
fn scatter_equals_its_definition() {
    let mut seed = 2;
    let kinds = [Combine::Set, Combine::Add, Combine::Mul, Combine::Max, Combine::Min];
    for &(axis, shape, picked) in CASES {
        for how in 0..3 + shape.len() {
            for (k, combine) in kinds.into_iter().enumerate() {
                let mut number = || noise(&mut seed) as f32 / 1e9 - 1.0;
                let base = Strided::new(shape, k % 3, &mut number);
                let source = Strided::new(picked, (k + how) % (3 + shape.len()), &mut number);
                let index = Strided::new(picked, how, || (noise(&mut seed) % shape[axis]) as i64);
                let mut want: Vec<f32> = coordinates(shape).map(|at| base.get(&at)).collect();
                let dense = dense_strides(shape);
                for mut at in coordinates(picked) {
                    let new = source.get(&at);
                    at[axis] = index.get(&at) as usize;
                    let there = &mut want
                        [at.iter().zip(&dense).map(|(i, &s)| i * s as usize).sum::<usize>()];
                    *there = match combine {
                        Combine::Set => new,
                        Combine::Add => *there + new,
                        Combine::Mul => *there * new,
                        Combine::Max => there.max(new),
                        Combine::Min => there.min(new),
                    };
                }
                for threads in [1, 2, 8] {
                    let mut got = vec![f32::NAN; want.len()];
                    let out = Sink { ptr: got.as_mut_ptr().cast(), shape, dtype: DType::F32 };
                    let [base, source] = [&base, &source].map(|s| s.source(DType::F32));
                    par::with_threads(threads, || {
                        scatter(axis, combine, base, index.source(DType::I64), source, out)
                    })
                    .unwrap();
                    assert_eq!(
                        got, want,
                        "axis {axis} of {shape:?} at {picked:?}, {how} {combine:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn one_dimension_splits_by_destination() {
    // Too many destinations for tables.
    let (n, places) = (100_003, 30_011);
    let mut seed = 3;
    let index = Strided::new(&[n], 0, || (noise(&mut seed) % places) as i64);
    let source = Strided::new(&[n], 0, || noise(&mut seed) as f32 / 1e9);
    let base = Strided::new(&[places], 3, || 0f32);
    let mut want = vec![0f32; places];
    for i in 0..n {
        want[index.data[i] as usize] += source.data[i];
    }
    for threads in [1, 2, 8] {
        let mut got = vec![0f32; places];
        let out = Sink { ptr: got.as_mut_ptr().cast(), shape: &[places], dtype: DType::F32 };
        let [base, source] = [&base, &source].map(|s| s.source(DType::F32));
        let done = par::with_threads(threads, || {
            scatter(0, Combine::Add, base, index.source(DType::I64), source, out)
        });
        assert_eq!(done, Ok(()));
        assert_eq!(got, want);
    }
}

#[test]
fn the_first_bad_index_is_named_and_nothing_is_written() {
    let x = Strided::new(&[4, 3], 0, || 1f32);
    let mut index = Strided::new(&[6, 3], 0, || 2i64);
    index.data[7] = 4;
    index.data[11] = -1;
    let mut got = vec![7f32; 18];
    let out = Sink { ptr: got.as_mut_ptr().cast(), shape: &[6, 3], dtype: DType::F32 };
    let error = gather(0, x.source(DType::F32), index.source(DType::I64), out);
    assert_eq!(error, Err(IndexError { position: 7, index: 4, len: 4 }));
    index.data[7] = -9;
    let source = Strided::new(&[6, 3], 0, || 1f32);
    let out = Sink { shape: &[4, 3], ..out };
    let (x, source) = (x.source(DType::F32), source.source(DType::F32));
    let error = scatter(0, Combine::Add, x, index.source(DType::I64), source, out);
    assert_eq!(error, Err(IndexError { position: 7, index: -9, len: 4 }));
    assert_eq!(got, [7.0; 18]);
    // Broadcast over the second axis: positions are counted in the whole index.
    let rows =
        Strided { data: vec![0i64, 1, 5, 0, 0, 0], at: 0, shape: vec![6, 3], strides: vec![1, 0] };
    let out = Sink { shape: &[6, 3], ..out };
    let error = gather(0, x, rows.source(DType::I64), out);
    assert_eq!(error, Err(IndexError { position: 6, index: 5, len: 4 }));
}

#[test]
fn special_values_and_narrow_types() {
    // NaN propagates in Max and Min, from either side.
    for combine in [Combine::Max, Combine::Min] {
        let base = [f32::NAN, 1.0];
        let source = [2.0, f32::NAN];
        let index = [0i64, 1];
        let mut got = [0f32; 2];
        let of = |v: &[f32; 2]| Source {
            ptr: v.as_ptr().cast(),
            shape: &[2],
            strides: &[1],
            dtype: DType::F32,
        };
        let index =
            Source { ptr: index.as_ptr().cast(), shape: &[2], strides: &[1], dtype: DType::I64 };
        let out = Sink { ptr: got.as_mut_ptr().cast(), shape: &[2], dtype: DType::F32 };
        scatter(0, combine, of(&base), index, of(&source), out).unwrap();
        assert!(got.iter().all(|v| v.is_nan()));
    }
    // A thousand small rows on one bf16 row: rounded once, not a thousand times.
    let base = Strided::new(&[2, 3], 3, || bf16::ZERO);
    let source = Strided::new(&[1000, 3], 3, || bf16::from_f32(0.5));
    let index = Strided::new(&[1000, 3], 3, || 1i64);
    let mut got = vec![bf16::ZERO; 6];
    let out = Sink { ptr: got.as_mut_ptr().cast(), shape: &[2, 3], dtype: DType::BF16 };
    let [base, source] = [&base, &source].map(|s| s.source(DType::BF16));
    scatter(0, Combine::Add, base, index.source(DType::I64), source, out).unwrap();
    assert_eq!(got.iter().map(|v| v.to_f32()).collect::<Vec<_>>(), [0., 0., 0., 500., 500., 500.]);
    // Bytes wrap.
    let (base, source, index) = ([200u8], [100u8], [0i64]);
    let mut got = [0u8];
    let of = |v: &[u8; 1]| Source { ptr: v.as_ptr(), shape: &[], strides: &[], dtype: DType::U8 };
    let index = Source { ptr: index.as_ptr().cast(), shape: &[], strides: &[], dtype: DType::I64 };
    let out = Sink { ptr: got.as_mut_ptr(), shape: &[], dtype: DType::U8 };
    scatter(0, Combine::Add, of(&base), index, of(&source), out).unwrap();
    assert_eq!(got, [44]);
}

/// Many small elements added to one element of a narrow type are rounded once, not once each, for
/// any number of threads.
#[test]
fn narrow_elements_are_rounded_once() {
    let cases: [(usize, &[usize], &[usize], usize); 3] =
        [(0, &[2], &[40_000], 1), (0, &[2, 3], &[20_000, 3], 3), (1, &[3, 2], &[3, 20_000], 1)];
    for (axis, shape, picked, apart) in cases {
        let base = Strided::new(shape, 0, || bf16::ONE);
        let index = Strided::new(picked, 0, || 1i64);
        let terms = Strided::new(picked, 0, || bf16::from_f32(0.125));
        // Rounding after each factor would lose it, or count it too much.
        let factors = Strided::new(picked, 0, || bf16::from_f32(0.99609375));
        let n = picked[axis];
        let product = (0..n).fold(1f32, |p, _| p * 0.99609375);
        for (combine, source, want) in
            [(Combine::Add, &terms, 1.0 + n as f32 * 0.125), (Combine::Mul, &factors, product)]
        {
            for threads in [1, 2, 8] {
                let mut got = vec![bf16::ZERO; base.data.len()];
                let out = Sink { ptr: got.as_mut_ptr().cast(), shape, dtype: DType::BF16 };
                let [base, source] = [&base, source].map(|s| s.source(DType::BF16));
                let index = index.source(DType::I64);
                let done =
                    par::with_threads(threads, || scatter(axis, combine, base, index, source, out));
                assert_eq!(done, Ok(()));
                for (i, got) in got.into_iter().enumerate() {
                    let want = if i / apart % 2 == 1 { bf16::from_f32(want) } else { bf16::ONE };
                    assert_eq!(got, want, "{combine:?} into {shape:?}");
                }
            }
        }
    }
}

/// `cargo test --profile bench --workspace --test kernels index::tests::speed -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn speed() {
    let (vocabulary, width, n) = (32_000, 512, 8192);
    let mut seed = 4;
    let table = Strided::new(&[vocabulary, width], 0, || 1f32);
    let index: Vec<i64> = (0..n).map(|_| (noise(&mut seed) % vocabulary) as i64).collect();
    let (shape, big) = ([n, width], [vocabulary, width]);
    let index =
        Source { ptr: index.as_ptr().cast(), shape: &shape, strides: &[1, 0], dtype: DType::I64 };
    let mut rows = vec![0f32; n * width];
    let mut gradient = vec![0f32; vocabulary * width];
    let zero =
        Source { ptr: [0f32].as_ptr().cast(), shape: &big, strides: &[0, 0], dtype: DType::F32 };
    for _ in 0..4 {
        let start = std::time::Instant::now();
        let out = Sink { ptr: rows.as_mut_ptr().cast(), shape: &shape, dtype: DType::F32 };
        gather(0, table.source(DType::F32), index, out).unwrap();
        let gathered = start.elapsed();
        let source = Source {
            ptr: rows.as_ptr().cast(),
            shape: &shape,
            strides: &[512, 1],
            dtype: DType::F32,
        };
        let start = std::time::Instant::now();
        let out = Sink { ptr: gradient.as_mut_ptr().cast(), shape: &big, dtype: DType::F32 };
        scatter(0, Combine::Add, zero, index, source, out).unwrap();
        println!("embedding {gathered:?}, its gradient {:?}", start.elapsed());
    }
}

/// Many elements on few destinations, strided and dense; the sums are exact, so that any order
/// gives the same bits.
#[test]
fn tables_add_up_to_the_same_for_any_number_of_threads() {
    let (n, places) = (TASK + 77, 300);
    let mut seed = 3;
    for how in [0, 2] {
        let index = Strided::new(&[n], how, || (noise(&mut seed) % places) as i64);
        let source = Strided::new(&[n], how, || (noise(&mut seed) % 64) as f32 - 31.0);
        let base = Strided::new(&[places], 0, || -0.0f32);
        let mut want = vec![-0.0f32; places];
        (0..n).for_each(|i| want[index.get(&[i]) as usize] += source.get(&[i]));
        for threads in [1, 2, 8] {
            let mut out = vec![f32::NAN; places];
            let sink = Sink { ptr: out.as_mut_ptr().cast(), shape: &[places], dtype: DType::F32 };
            par::with_threads(threads, || {
                let (index, source) = (index.source(DType::I64), source.source(DType::F32));
                scatter(0, Combine::Add, base.source(DType::F32), index, source, sink).unwrap();
            });
            assert_eq!(out, want);
        }
    }
    for outside in [-1, places as i64, i64::MIN] {
        let mut index = Strided::new(&[n], 0, || 0i64);
        (index.data[TASK], index.data[TASK + 5]) = (outside, i64::MAX);
        let (base, source) = (Strided::new(&[places], 0, || 0f32), Strided::new(&[n], 0, || 1f32));
        let mut out = vec![0f32; places];
        let sink = Sink { ptr: out.as_mut_ptr().cast(), shape: &[places], dtype: DType::F32 };
        let (base, index) = (base.source(DType::F32), index.source(DType::I64));
        let error = scatter(0, Combine::Add, base, index, source.source(DType::F32), sink);
        assert_eq!(error, Err(IndexError { position: TASK, index: outside, len: places }));
    }
}
