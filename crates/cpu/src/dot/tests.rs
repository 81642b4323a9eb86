//! The product against three plain loops in f64, over shapes, strides and dtypes.

use super::*;
use ::half::{bf16, f16};

/// Pseudorandom numbers in [-1, 1).
fn noise(len: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

/// A matrix in one of several memory layouts: strides and the offset of element 0, 0.
fn lay(rows: usize, cols: usize, how: usize) -> (usize, [isize; 2], usize) {
    let (r, c) = (rows as isize, cols as isize);
    match how {
        0 => (rows * cols, [c, 1], 0),
        1 => (rows * cols, [1, r], 0),
        2 => (rows * (cols + 3), [c + 3, 1], 0),
        3 => (2 * rows * cols, [2 * c, 2], 0),
        4 => (rows * cols, [-c, -1], (rows * cols).saturating_sub(1)),
        _ => (cols, [0, 1], 0),
    }
}

fn check<T: Copy>(dtype: DType, from: impl Fn(f64) -> T, to: impl Fn(T) -> f64, tolerance: f64) {
    let sizes = [
        (1, 1, 1),
        (2, 3, 4),
        (8, 8, 8),
        (1, 17, 5),
        (17, 1, 5),
        (1, 300, 40),
        (300, 1, 40),
        (5, 5, 1),
        (13, 33, 17),
        (12, 32, 300),
        (64, 10, 70),
        (3, 4, 0),
        (70, 65, 257),
        (25, 100, 600),
        (130, 48, 64),
        (20, 140, 300),
        (33, 129, 520),
        (14, 40, 1301),
    ];
    let mut packed_ahead = 0;
    for (m, n, k) in sizes {
        for (how_a, how_b) in
            [(0, 0), (1, 0), (0, 1), (1, 1), (2, 3), (3, 2), (4, 0), (0, 4), (5, 0), (0, 5), (4, 3)]
        {
            let (len_a, strides_a, at_a) = lay(m, k, how_a);
            let (len_b, strides_b, at_b) = lay(k, n, how_b);
            let a: Vec<T> = noise(len_a.max(1), 1).into_iter().map(&from).collect();
            let b: Vec<T> = noise(len_b.max(1), 2).into_iter().map(&from).collect();
            let [wide_a, wide_b] = [&a, &b].map(|x| x.iter().map(|&x| to(x)).collect::<Vec<f64>>());
            let get = |x: &[f64], at: usize, s: [isize; 2], i: usize, j: usize| {
                x[(at as isize + i as isize * s[0] + j as isize * s[1]) as usize]
            };
            let one = |i: usize, j: usize| -> f64 {
                let term =
                    |p| get(&wide_a, at_a, strides_a, i, p) * get(&wide_b, at_b, strides_b, p, j);
                (0..k).map(term).sum()
            };
            let product: Vec<f64> = (0..m * n).map(|at| one(at / n, at % n)).collect();
            let mut bits: Option<Vec<u64>> = None;
            for threads in [1, 2, 8] {
                let mut c: Vec<T> = vec![from(7.0); m * n];
                let left = Source {
                    ptr: a.as_ptr().wrapping_add(at_a).cast(),
                    shape: &[m, k],
                    strides: &strides_a,
                    dtype,
                };
                let right = Source {
                    ptr: b.as_ptr().wrapping_add(at_b).cast(),
                    shape: &[k, n],
                    strides: &strides_b,
                    dtype,
                };
                let sink = |c: &mut Vec<T>| c.as_mut_ptr().cast();
                let mut sum: Vec<T> = vec![from(7.0); m * n];
                let added = par::with_threads(threads, || {
                    dot(left, right, Sink { ptr: sink(&mut c), shape: &[m, n], dtype });
                    dot_add(left, right, Sink { ptr: sink(&mut sum), shape: &[m, n], dtype })
                });
                let wide = matches!(dtype, DType::F32 | DType::F64);
                assert_eq!(added, wide && m > 1 && n > 1);
                // Prepacked: the same bits.
                if let Some(panels) = panels(left, right, &[m, n], dtype) {
                    packed_ahead += 1;
                    let right = Right { source: right, panels: Some(&panels) };
                    let mut again: [Vec<T>; 2] = [vec![from(-1.0); m * n], vec![from(7.0); m * n]];
                    par::with_threads(threads, || {
                        let [c, sum] = again.each_mut().map(|c| c.as_mut_ptr().cast());
                        dot(left, right, Sink { ptr: c, shape: &[m, n], dtype });
                        dot_add(left, right, Sink { ptr: sum, shape: &[m, n], dtype });
                    });
                    for (was, now) in [&c, &sum].into_iter().zip(&again) {
                        let same = |(&a, &b): (&T, &T)| to(a).to_bits() == to(b).to_bits();
                        assert!(was.iter().zip(now).all(same), "{m} {n} {k} lay {how_a} {how_b}");
                    }
                }
                let now: Vec<u64> = c.iter().map(|&x| to(x).to_bits()).collect();
                match &bits {
                    Some(bits) => assert!(*bits == now, "{m} {n} {k} on {threads} threads"),
                    None => bits = Some(now),
                }
                for i in 0..m {
                    for j in 0..n {
                        let want = product[i * n + j];
                        let got = to(c[i * n + j]);
                        let bound = tolerance * (1.0 + want.abs());
                        assert!(
                            (got - want).abs() <= bound,
                            "{dtype} {m}×{n}×{k} lay {how_a} {how_b} at {i},{j}: {got} for {want}"
                        );
                        let got = to(sum[i * n + j]) - if added { want } else { 0.0 };
                        assert!(
                            (got - to(from(7.0))).abs() <= bound,
                            "{m}×{n}×{k} added at {i},{j}: {got}"
                        );
                    }
                }
            }
        }
    }
    assert!(packed_ahead > 20 || !dtype.is_float(), "{packed_ahead}");
}

/// A tall product with a small B, which leaves A unpacked: within tolerance of the exact one, with
/// the same bits for any number of threads.
#[test]
fn tall_products_leave_their_rows_in_place() {
    let (m, n, k) = (701, 260, 300);
    let a: Vec<f32> = noise(m * k, 1).into_iter().map(|x| x as f32).collect();
    let values: Vec<f32> = noise(k * n, 2).into_iter().map(|x| x as f32).collect();
    let dtype = DType::F32;
    let of = |x: &[f32], at: usize| x.as_ptr().wrapping_add(at).cast();
    for strides in [[n as isize, 1], [1, k as isize]] {
        let b = Source { ptr: of(&values, 0), shape: &[k, n], strides: &strides, dtype };
        let product = |from: usize, rows: usize, c: &mut [f32]| {
            let (shape, strides) = ([rows, k], [k as isize, 1]);
            let a = Source { ptr: of(&a, from * k), shape: &shape, strides: &strides, dtype };
            let ptr = c[from * n..].as_mut_ptr().cast();
            dot(a, b, Sink { ptr, shape: &[rows, n], dtype });
        };
        assert!(
            m * k > IN_PLACE && method::<f32, f32>(m, n, k, 1, strides[1]) == Method::HalfPacked
        );
        let mut want = vec![0f32; m * n];
        par::with_threads(1, || product(0, m, &mut want));
        for (i, &got) in want.iter().enumerate() {
            let (row, column) = (i / n, i % n);
            let at = |p: usize| p * strides[0] as usize + column * strides[1] as usize;
            let exact: f64 =
                (0..k).map(|p| f64::from(a[row * k + p]) * f64::from(values[at(p)])).sum();
            assert!(
                (f64::from(got) - exact).abs() <= 2e-5 * (1.0 + exact.abs()),
                "{row}, {column}"
            );
        }
        for threads in [2, 3, 8] {
            let mut got = vec![0f32; m * n];
            par::with_threads(threads, || product(0, m, &mut got));
            let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits();
            assert!(got.iter().zip(&want).all(same), "{strides:?} on {threads} threads");
        }
    }
}

#[test]
fn f32_agrees() {
    check::<f32>(DType::F32, |x| x as f32, |x| x as f64, 2e-5);
}

#[test]
fn f64_agrees() {
    check::<f64>(DType::F64, |x| x, |x| x, 1e-12);
}

#[test]
fn narrow_floats_agree() {
    check::<bf16>(DType::BF16, bf16::from_f64, bf16::to_f64, 6e-3);
    check::<f16>(DType::F16, f16::from_f64, f16::to_f64, 1e-3);
}

/// The rounding that `pairs` promises, step by step.
#[cfg(target_arch = "x86_64")]
#[test]
fn products_of_pairs_round_as_stated() {
    if !multiplies_pairs() {
        return;
    }
    for (m, n, k) in [(3, 5, 7), (1, 40, 33), (40, 1, 600), (70, 40, 1301), (13, 300, 2600)] {
        let bf16s =
            |len, seed| -> Vec<bf16> { noise(len, seed).into_iter().map(bf16::from_f64).collect() };
        let (a, b) = (bf16s(m * k, 5), bf16s(k * n, 6));
        let mut c = vec![bf16::ZERO; m * n];
        let (a_strides, b_strides, dtype) = ([k as isize, 1], [n as isize, 1], DType::BF16);
        let left = Source { ptr: a.as_ptr().cast(), shape: &[m, k], strides: &a_strides, dtype };
        let right = Source { ptr: b.as_ptr().cast(), shape: &[k, n], strides: &b_strides, dtype };
        dot(left, right, Sink { ptr: c.as_mut_ptr().cast(), shape: &[m, n], dtype });
        let block = even(k, pairs::KC, 2);
        for (index, &got) in c.iter().enumerate() {
            let (i, j) = (index / n, index % n);
            let term = |p: usize| (a[i * k + p].to_f32(), b[p * n + j].to_f32());
            let mut total = None;
            for from in (0..k).step_by(block) {
                let to = k.min(from + block);
                let mut sum = 0f32;
                for p in (from..to).step_by(2) {
                    for p in [p + 1, p].into_iter().filter(|&p| p < to) {
                        sum = term(p).0.mul_add(term(p).1, sum);
                    }
                }
                total = Some(total.map_or(sum, |total: f32| total + sum));
            }
            let want = bf16::from_f32(total.unwrap_or_default());
            assert_eq!(got.to_bits(), want.to_bits(), "{m} {n} {k} at {i}, {j}: {got} for {want}");
        }
    }
    // What is below the smallest normal number counts as zero.
    let tiny = [bf16::from_f32(1e-39)];
    let large = [bf16::from_f32(1e30)];
    let mut c = [bf16::ONE];
    let of = |x: &[bf16; 1]| Source {
        ptr: x.as_ptr().cast(),
        shape: &[1, 1],
        strides: &[2, 2],
        dtype: DType::BF16,
    };
    let mut job = DotTask::new(
        of(&tiny),
        of(&large),
        Sink { ptr: c.as_mut_ptr().cast(), shape: &[1, 1], dtype: DType::BF16 },
    );
    pairs::dot(&job.take().unwrap());
    assert_eq!(c[0].to_bits(), 0);
}

#[test]
fn integers_agree() {
    check::<i64>(DType::I64, |x| (x * 1000.0) as i64, |x| x as f64, 0.0);
    check::<i32>(DType::I32, |x| (x * 100.0) as i32, |x| x as f64, 0.0);
}

#[test]
fn batches() {
    let (count, m, n, k) = (6, 5, 7, 9);
    let a: Vec<f32> = noise(count * m * k, 3).iter().map(|&x| x as f32).collect();
    let b: Vec<f32> = noise(count * k * n, 4).iter().map(|&x| x as f32).collect();
    let (mk, kn) = ((m * k) as isize, (k * n) as isize);
    let (ki, ni, mi) = (k as isize, n as isize, m as isize);
    // Batches [2, 3] of A and B: both dense, A or B broadcast, permuted, A with rows reversed.
    let cases: [([isize; 4], [isize; 4]); 6] = [
        ([3 * mk, mk, ki, 1], [3 * kn, kn, ni, 1]),
        ([3 * mk, mk, ki, 1], [0, 0, ni, 1]),
        ([0, 0, ki, 1], [3 * kn, kn, ni, 1]),
        ([mk, 2 * mk, ki, 1], [0, kn, 1, ki]),
        ([3 * mk, mk, 1, mi], [0, 0, ni, 1]),
        ([3 * ki, ki, 6 * ki, 1], [3 * kn, kn, 1, ki]),
    ];
    for (sa, sb) in cases {
        let mut c = vec![0f32; count * m * n];
        dot(
            Source {
                ptr: a.as_ptr().cast(),
                shape: &[2, 3, m, k],
                strides: &sa,
                dtype: DType::F32,
            },
            Source {
                ptr: b.as_ptr().cast(),
                shape: &[2, 3, k, n],
                strides: &sb,
                dtype: DType::F32,
            },
            Sink { ptr: c.as_mut_ptr().cast(), shape: &[2, 3, m, n], dtype: DType::F32 },
        );
        for (index, &got) in c.iter().enumerate() {
            let (t, i, j) = (index / (m * n), index / n % m, index % n);
            let at = |s: [isize; 4], r: usize, q: usize| {
                ((t / 3) as isize * s[0]
                    + (t % 3) as isize * s[1]
                    + r as isize * s[2]
                    + q as isize * s[3]) as usize
            };
            let want: f64 = (0..k).map(|p| a[at(sa, i, p)] as f64 * b[at(sb, p, j)] as f64).sum();
            assert!((got as f64 - want).abs() < 1e-5, "{sa:?} {sb:?}");
        }
    }
}

/// `cargo test --profile bench --workspace --test kernels dot_rates -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn dot_rates() {
    rates::<f32>(DType::F32);
    rates::<bf16>(DType::BF16);
    rates::<f16>(DType::F16);
}

fn rates<T: Elem>(dtype: DType) {
    let shapes = [
        (8, 8, 8),
        (32, 32, 32),
        (64, 64, 64),
        (128, 128, 128),
        (256, 256, 256),
        (512, 512, 512),
        (1024, 1024, 1024),
        (2048, 2048, 2048),
        (64, 512, 784),
        (128, 10, 512),
        (1024, 1024, 256),
        (1024, 768, 256),
        (1024, 256, 1024),
        (1, 1024, 1024),
        (1024, 1, 1024),
    ];
    for (m, n, k) in shapes {
        let a = vec![T::of(0.5.into()); m * k];
        let b = vec![T::of(0.25.into()); k * n];
        let mut c = vec![T::default(); m * n];
        let mut line = format!("{dtype} {m:5} {n:5} {k:5}");
        for (name, ta, tb) in [("NN", false, false), ("NT", false, true), ("TN", true, false)] {
            let sa = if ta { [1, m as isize] } else { [k as isize, 1] };
            let sb = if tb { [1, k as isize] } else { [n as isize, 1] };
            let left = Source { ptr: a.as_ptr().cast(), shape: &[m, k], strides: &sa, dtype };
            let right = Source { ptr: b.as_ptr().cast(), shape: &[k, n], strides: &sb, dtype };
            let mut best = f64::MAX;
            let mut spent = 0.0;
            while spent < 0.15 {
                let repeats = (5_000_000 / (m * n * k)).max(1);
                let start = std::time::Instant::now();
                for _ in 0..repeats {
                    dot(left, right, Sink { ptr: c.as_mut_ptr().cast(), shape: &[m, n], dtype });
                }
                let time = start.elapsed().as_secs_f64();
                spent += time;
                best = best.min(time / repeats as f64);
            }
            let rate = 2.0 * (m * n * k) as f64 / best / 1e9;
            line += &format!("  {name} {:9.2} µs {rate:6.1} GFLOP/s", best * 1e6);
        }
        println!("{line}");
    }
}
