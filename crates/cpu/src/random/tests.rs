//! Random numbers: known answers, layouts, and the moments of distributions.

use super::*;

fn drawn<T: Copy + Default>(kind: Random, dtype: DType, key: [i64; 2], len: usize) -> Vec<T> {
    let mut v = vec![T::default(); len];
    let key = Source { ptr: key.as_ptr().cast(), shape: &[2], strides: &[1], dtype: DType::I64 };
    random(kind, key, Sink { ptr: v.as_mut_ptr().cast(), shape: &[len], dtype });
    v
}

#[test]
fn known_answers() {
    let zero = philox([0; 4], [0; 2]);
    assert_eq!(zero, [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    let ones = philox([!0; 4], [!0; 2]);
    assert_eq!(ones, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    let pi =
        philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]);
    assert_eq!(pi, [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
}

#[test]
fn an_element_is_a_function_of_key_and_index() {
    let key = [0x1234_5678_9abc_def0, -7];
    let bits: Vec<i64> = drawn(Random::Bits, DType::I64, key, 40_000);
    for i in [0usize, 1, 63, 64, 127, 128, 8191, 8192, 39_999] {
        let block = (i / 128 * 64 + i % 64) as u32;
        let words = philox([block, 0, -7i32 as u32, !0], [0x9abc_def0, 0x1234_5678]);
        let pair = i / 64 % 2 * 2;
        let want = u64::from(words[pair]) | u64::from(words[pair + 1]) << 32;
        assert_eq!(bits[i], want as i64, "element {i}");
    }
    for len in [0, 1, 63, 64, 65, 255, 256, 257, 16_384, 16_385, 40_000] {
        for threads in [1, 2, 8] {
            par::with_threads(threads, || {
                let short: Vec<i64> = drawn(Random::Bits, DType::I64, key, len);
                assert_eq!(short, bits[..len]);
                let a: Vec<f32> = drawn(Random::Normal, DType::F32, key, len);
                let b: Vec<f32> = drawn(Random::Normal, DType::F32, key, 40_000);
                assert_eq!(a, b[..len]);
            });
        }
    }
}

#[test]
fn several_keys_draw_what_each_draws_alone() {
    // The strides put keys in columns, and broadcast them along the first axis.
    let words: Vec<i64> = (0..14).map(|i| i * 0x1234_5678_9abc - 7).collect();
    let keys = Source {
        ptr: words.as_ptr().cast(),
        shape: &[2, 7, 2],
        strides: &[0, 1, 7],
        dtype: DType::I64,
    };
    for len in [0usize, 1, 100, 257, 5000, 16_385, 40_000] {
        let shape = [2, 7, len];
        let (mut bits, mut normal) = (vec![0i64; 14 * len], vec![0f32; 14 * len]);
        let sink = |ptr: *mut u8, dtype| Sink { ptr, shape: &shape, dtype };
        random(Random::Bits, keys, sink(bits.as_mut_ptr().cast(), DType::I64));
        random(Random::Normal, keys, sink(normal.as_mut_ptr().cast(), DType::F32));
        for n in 0..14 {
            let (key, part) = ([words[n % 7], words[n % 7 + 7]], n * len..(n + 1) * len);
            assert_eq!(bits[part.clone()], drawn::<i64>(Random::Bits, DType::I64, key, len));
            assert_eq!(normal[part], drawn::<f32>(Random::Normal, DType::F32, key, len));
        }
    }
}

#[test]
fn uniforms_lie_in_range_and_are_even() {
    let n = 1 << 18;
    let check = |v: &[f64], bits: i32| {
        assert!(v.iter().all(|&u| (0.0..1.0).contains(&u)));
        let mean = v.iter().sum::<f64>() / n as f64;
        let grain = 0.5 * f64::powi(2.0, -bits);
        assert!((mean + grain - 0.5).abs() < 3e-3, "mean {mean}");
        let variance = v.iter().map(|u| (u - mean).powi(2)).sum::<f64>() / n as f64;
        assert!((variance - 1.0 / 12.0).abs() < 1e-3, "variance {variance}");
    };
    let key = [42, 0];
    check(&drawn::<f64>(Random::Uniform, DType::F64, key, n), 53);
    let v: Vec<f32> = drawn(Random::Uniform, DType::F32, key, n);
    check(&v.iter().map(|&u| u.into()).collect::<Vec<_>>(), 24);
    let v: Vec<bf16> = drawn(Random::Uniform, DType::BF16, key, n);
    check(&v.iter().map(|&u| u.into()).collect::<Vec<_>>(), 8);
    let v: Vec<f16> = drawn(Random::Uniform, DType::F16, key, n);
    check(&v.iter().map(|&u| u.into()).collect::<Vec<_>>(), 11);
}

#[test]
fn normals_have_the_moments_and_tails() {
    let n = 1 << 20;
    let check = |v: &[f64]| {
        let moment = |p: i32| v.iter().map(|u| u.powi(p)).sum::<f64>() / n as f64;
        assert!(moment(1).abs() < 4e-3, "mean {}", moment(1));
        assert!((moment(2) - 1.0).abs() < 6e-3, "variance {}", moment(2));
        assert!(moment(3).abs() < 2e-2, "skew {}", moment(3));
        assert!((moment(4) - 3.0).abs() < 5e-2, "kurtosis {}", moment(4));
        let most = v.iter().fold(0f64, |m, u| m.max(u.abs()));
        assert!((4.2..6.7).contains(&most), "extreme {most}");
        let outside = v.iter().filter(|u| u.abs() > 3.0).count() as f64 / n as f64;
        assert!((outside - 0.0027).abs() < 3e-4, "beyond three sigma {outside}");
        let product = v.windows(2).map(|w| w[0] * w[1]).sum::<f64>() / n as f64;
        assert!(product.abs() < 4e-3, "neighbours {product}");
        let pairs = v.windows(65).map(|w| w[0] * w[64]).sum::<f64>() / n as f64;
        assert!(pairs.abs() < 4e-3, "pairs {pairs}");
    };
    let key = [7, 11];
    check(&drawn::<f64>(Random::Normal, DType::F64, key, n));
    let v: Vec<f32> = drawn(Random::Normal, DType::F32, key, n);
    check(&v.iter().map(|&u| u.into()).collect::<Vec<_>>());
    let v: Vec<f16> = drawn(Random::Normal, DType::F16, key, n);
    check(&v.iter().map(|&u| u.into()).collect::<Vec<_>>());
}

#[test]
fn the_functions_behind_the_normals_are_accurate() {
    for i in 1..=20_000u32 {
        let u = f64::from(i) / 20_000.0;
        assert!((log64(u) - u.ln()).abs() <= 4e-16 * u.ln().abs().max(0.3), "log {u}");
        let x = u as f32;
        let want = f64::from(x).ln();
        assert!((f64::from(log32(x)) - want).abs() <= 2e-7 * want.abs().max(0.3), "log {x}");
        let turn = u - 0.5 - 1.0 / 40_000.0;
        let (sin, cos) = (turn * std::f64::consts::TAU).sin_cos();
        let (s, c) = turn64(turn);
        assert!((s - sin).abs() < 5e-16 && (c - cos).abs() < 5e-16, "turn {turn}");
        let (s, c) = turn32(turn as f32);
        assert!((f64::from(s) - sin).abs() < 4e-7 && (f64::from(c) - cos).abs() < 4e-7);
    }
}

#[test]
fn iota_counts() {
    let mut v = vec![0f32; 70_000];
    iota(Sink { ptr: v.as_mut_ptr().cast(), shape: &[70_000], dtype: DType::F32 });
    assert!(v.iter().enumerate().all(|(i, &x)| x == i as f32));
    let mut v = vec![0i64; 3];
    iota(Sink { ptr: v.as_mut_ptr().cast(), shape: &[3], dtype: DType::I64 });
    assert_eq!(v, [0, 1, 2]);
}

/// `cargo test --profile bench --workspace --test kernels random::tests::speed -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn speed() {
    let n = 1 << 22;
    let mut v = vec![0f64; n];
    let key = [3i64, 5];
    let key = Source { ptr: key.as_ptr().cast(), shape: &[2], strides: &[1], dtype: DType::I64 };
    for (kind, dtype) in [
        (Random::Bits, DType::I64),
        (Random::Uniform, DType::F32),
        (Random::Normal, DType::F32),
        (Random::Normal, DType::BF16),
        (Random::Normal, DType::F64),
    ] {
        for threads in [1, 2] {
            par::with_threads(threads, || {
                let out = Sink { ptr: v.as_mut_ptr().cast(), shape: &[n], dtype };
                let best = (0..10)
                    .map(|_| {
                        let start = std::time::Instant::now();
                        random(kind, key, out);
                        start.elapsed()
                    })
                    .min();
                println!("{kind:?} {dtype}, {threads} threads: {best:?} for 4M");
            });
        }
    }
}
