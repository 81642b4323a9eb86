//! Transforms against the definition, and the same bits in any company.

use super::fft;
use super::plan::{FftElem, LinePlan, PlanCache, root};
use crate::operand::{Sink, Source};
use pullback_ir::{DType, Fft, dense_strides};
use std::sync::Arc;

/// Noise between -1 and 1.
fn noise(seed: usize, n: usize) -> Vec<f64> {
    let mut state = seed as u64 * 2 + 1;
    let mut list = Vec::with_capacity(n);
    for _ in 0..n {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        list.push((state >> 11) as f64 / (1u64 << 52) as f64 - 1.0);
    }
    list
}

/// Runs an op on a strided operand; the pointer is the operand's first element.
fn run<T: Copy + Default>(
    f: Fft,
    x: &[T],
    shape: &[usize],
    strides: &[isize],
    out: &[usize],
) -> Vec<T> {
    let dtype = if size_of::<T>() == 4 { DType::F32 } else { DType::F64 };
    let mut y = vec![T::default(); out.iter().product()];
    let source = Source { ptr: x.as_ptr().cast(), shape, strides, dtype };
    fft(f, source, Sink { ptr: y.as_mut_ptr().cast(), shape: out, dtype });
    y
}

fn dense<T: Copy + Default>(f: Fft, x: &[T], shape: &[usize], out: &[usize]) -> Vec<T> {
    run(f, x, shape, &dense_strides(shape), out)
}

/// The definition.
fn naive(z: &[f64], inverse: bool) -> Vec<f64> {
    let n = z.len() / 2;
    let mut y = Vec::with_capacity(2 * n);
    for k in 0..n {
        let (mut re, mut im) = (0.0, 0.0);
        for j in 0..n {
            let (c, s) = root(j * k % n, n);
            let s = if inverse { -s } else { s };
            re += z[2 * j] * c - z[2 * j + 1] * s;
            im += z[2 * j] * s + z[2 * j + 1] * c;
        }
        y.extend([re, im]);
    }
    y
}

/// Relative error, in the norm.
fn error(y: &[f64], expected: &[f64]) -> f64 {
    let square = |x: &mut dyn Iterator<Item = f64>| x.map(|v| v * v).sum::<f64>();
    let off = square(&mut y.iter().zip(expected).map(|(a, b)| a - b));
    (off / square(&mut expected.iter().copied())).sqrt()
}

fn single(x: &[f64]) -> Vec<f32> {
    x.iter().map(|&v| v as f32).collect()
}

fn double(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&v| f64::from(v)).collect()
}

fn complex(inverse: bool) -> Fft {
    Fft::Complex { axis: 0, inverse }
}

/// Lengths of all kinds: small ones, in one piece, in two, chirps.
fn lengths() -> impl Iterator<Item = usize> {
    (1..=200).chain([243, 256, 343, 512, 625, 1000, 1009, 1024, 1331, 2 * 1009])
}

#[test]
fn every_length_is_as_defined() {
    for n in lengths() {
        let z = noise(n, 2 * n);
        for inverse in [false, true] {
            let expected = naive(&z, inverse);
            let y = dense(complex(inverse), &z, &[n, 2], &[n, 2]);
            assert!(error(&y, &expected) < 2e-15, "{n}: {:e}", error(&y, &expected));
            let y = double(&dense(complex(inverse), &single(&z), &[n, 2], &[n, 2]));
            assert!(error(&y, &expected) < 6e-7, "{n}: {:e}", error(&y, &expected));
        }
    }
}

#[test]
fn real_lines_and_back() {
    for n in lengths() {
        let (x, half) = (noise(n, n), n / 2 + 1);
        let pairs: Vec<f64> = x.iter().flat_map(|&v| [v, 0.0]).collect();
        let expected = naive(&pairs, false);
        let y = dense(Fft::Real(0), &x, &[n], &[half, 2]);
        assert!(error(&y, &expected[..2 * half]) < 2e-15, "{n}");
        let y32 = double(&dense(Fft::Real(0), &single(&x), &[n], &[half, 2]));
        assert!(error(&y32, &expected[..2 * half]) < 6e-7, "{n}");
        // What must be real for a real result is treated as real.
        let mut spectrum = y;
        spectrum[1] = 7.0;
        if n % 2 == 0 {
            spectrum[2 * half - 1] = -7.0;
        }
        let back = dense(Fft::Hermitian { axis: 0, len: n }, &spectrum, &[half, 2], &[n]);
        let back: Vec<f64> = back.iter().map(|v| v / n as f64).collect();
        assert!(error(&back, &x) < 2e-15, "{n}");
    }
}

/// Longer than what is compared with the definition: one wave is one line of the spectrum, and the
/// inverse comes back.
#[test]
fn long_lines() {
    for n in [1 << 15, 1 << 16, 65537, 100_000, 59_049] {
        let at = n / 3;
        let wave: Vec<f64> =
            (0..n).map(|j| root(at * j % n, n)).flat_map(|(c, s)| [c, -s]).collect();
        let y = dense(complex(false), &wave, &[n, 2], &[n, 2]);
        let mut expected = vec![0.0; 2 * n];
        expected[2 * at] = n as f64;
        assert!(error(&y, &expected) < 3e-15, "{n}: {:e}", error(&y, &expected));
        let z = noise(n, 2 * n);
        let y = dense(complex(false), &z, &[n, 2], &[n, 2]);
        let back = dense(complex(true), &y, &[n, 2], &[n, 2]);
        let back: Vec<f64> = back.iter().map(|v| v / n as f64).collect();
        assert!(error(&back, &z) < 3e-15, "{n}");
    }
}

/// Threads share the spectrum of a long real line: it is that of the complex line, and comes back.
#[test]
fn long_real_lines() {
    for n in [1 << 16, 1 << 17, 100_002] {
        let (x, half) = (noise(n, n), n / 2 + 1);
        let pairs: Vec<f64> = x.iter().flat_map(|&v| [v, 0.0]).collect();
        let expected = dense(complex(false), &pairs, &[n, 2], &[n, 2]);
        let y = dense(Fft::Real(0), &x, &[n], &[half, 2]);
        // In parts: an element that nobody wrote hides in the norm of the whole.
        for (at, (y, z)) in y.chunks(64).zip(expected[..2 * half].chunks(64)).enumerate() {
            assert!(error(y, z) < 1e-13, "{n}: elements from {}", 32 * at);
        }
        let back = dense(Fft::Hermitian { axis: 0, len: n }, &y, &[half, 2], &[n]);
        let back: Vec<f64> = back.iter().map(|v| v / n as f64).collect();
        for (at, (y, z)) in back.chunks(64).zip(x.chunks(64)).enumerate() {
            assert!(error(y, z) < 1e-13, "{n}: elements from {}", 64 * at);
        }
    }
}

#[test]
fn linear() {
    for n in [24, 100, 512, 1009] {
        let (a, b) = (noise(1, 2 * n), noise(2, 2 * n));
        let both: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a + 3.0 * b).collect();
        let [a, b, both] = [a, b, both].map(|z| dense(complex(false), &z, &[n, 2], &[n, 2]));
        let sum: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a + 3.0 * b).collect();
        assert!(error(&both, &sum) < 2e-15);
    }
}

/// A line has the same bits alone, in a batch, along another axis, and with its parts apart.
#[test]
fn the_same_bits_in_any_company() {
    for n in [1, 2, 12, 31, 63, 64, 81, 96, 200, 512, 1009, 4096, 1 << 14] {
        for count in [1, 3, 8, 21].into_iter().filter(|count| n * count < 50_000) {
            let x = single(&noise(n, 2 * n * count));
            for (f, g, line, end) in [
                (complex(true), Fft::Complex { axis: 1, inverse: true }, vec![n, 2], vec![n, 2]),
                (Fft::Real(0), Fft::Real(1), vec![n], vec![n / 2 + 1, 2]),
                (
                    Fft::Hermitian { axis: 0, len: n },
                    Fft::Hermitian { axis: 1, len: n },
                    vec![n / 2 + 1, 2],
                    vec![n],
                ),
            ] {
                let size = line.iter().product::<usize>();
                let (shape, out) = ([&[count], &line[..]].concat(), [&[count], &end[..]].concat());
                // The batch as rows, and as columns of its transpose.
                let rows = dense(g, &x, &shape, &out);
                let alone: Vec<f32> =
                    x.chunks(size).take(count).flat_map(|x| dense(f, x, &line, &end)).collect();
                assert_eq!(bits(&rows), bits(&alone), "{g:?} {n} {count}");
                let parts = if line.len() == 2 { 2 } else { 1 };
                let places = size / parts;
                let mut across = vec![0.0; x.len()];
                for i in 0..count {
                    for j in 0..places {
                        for part in 0..parts {
                            // Parts apart from each other, lines next to each other.
                            across[(part * places + j) * count + i] =
                                x[i * size + j * parts + part];
                        }
                    }
                }
                let strides = [1, count as isize, (count * places) as isize];
                let columns = run(g, &across, &shape, &strides[..shape.len()], &out);
                assert_eq!(bits(&columns), bits(&rows), "{g:?} {n} {count}");
            }
            // Along the first axis, so that results are not contiguous either.
            let first = dense(complex(false), &x, &[n, count, 2], &[n, count, 2]);
            let strides = [2, 2 * count as isize, 1];
            let g = Fft::Complex { axis: 1, inverse: false };
            let rows = run(g, &x, &[count, n, 2], &strides, &[count, n, 2]);
            for i in 0..count {
                for j in 0..2 * n {
                    let (a, b) = (first[(j / 2 * count + i) * 2 + j % 2], rows[i * 2 * n + j]);
                    assert_eq!(a.to_bits(), b.to_bits(), "{n} {count}");
                }
            }
        }
    }
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn a_plan_is_made_once_and_the_cache_is_bounded() {
    let first = f64::plan(24);
    assert!((0..100).all(|_| Arc::ptr_eq(&first, &f64::plan(24))));
    let cache = PlanCache::<LinePlan<f32>>::new();
    for n in 1..700 {
        assert_eq!(cache.get(n, LinePlan::new).n, n);
        assert!(cache.len() <= super::plan::PLANS);
    }
}
