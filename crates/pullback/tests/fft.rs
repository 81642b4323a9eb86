//! Fourier transforms as functions: definitions, round trips, several axes, derivatives, and errors
//! with a sentence.

use pullback::check::Check;
use pullback::fft::{self, Norm, Real};
use pullback::{DType, Key, Tensor, catch, stack, with_threads};
use std::f64::consts::TAU;

const NORMS: [Norm; 3] = [Norm::Backward, Norm::Ortho, Norm::Forward];

fn random(seed: u64, shape: &[usize]) -> Tensor {
    Key::new(seed).normal(shape, DType::F64, 0.0, 1.0)
}

#[track_caller]
fn near(a: &Tensor, b: &Tensor, within: f64) {
    assert_eq!(a.shape(), b.shape());
    let off = (a - b).abs().max().cast(DType::F64).item::<f64>();
    assert!(off <= within, "differs by {off:e}");
}

fn pairs(x: &Tensor) -> Tensor {
    stack(&[x, &x.zeros_like()], -1)
}

/// The sum over all pairs of places.
fn slow(z: &Tensor, sign: f64) -> Tensor {
    let n = z.shape()[0];
    let v = z.to_vec::<f64>();
    let one = |k: usize| {
        (0..n).fold((0.0, 0.0), |(re, im), j| {
            let angle = sign * TAU * ((j * k) % n) as f64 / n as f64;
            let (a, b) = (v[2 * j], v[2 * j + 1]);
            (re + a * angle.cos() - b * angle.sin(), im + a * angle.sin() + b * angle.cos())
        })
    };
    Tensor::from_vec((0..n).map(one).flat_map(|(re, im)| [re, im]).collect::<Vec<_>>(), [n, 2])
}

/// Powers of two, primes, one, and lengths past the bundles; real and complex, single precision
/// too.
#[test]
fn every_length_is_as_defined() {
    for n in (1..=20).chain([31, 64, 97, 128, 210, 1009]) {
        let z = random(n as u64, &[n, 2]);
        let (y, x) = (slow(&z, -1.0), slow(&z, 1.0) / n as f64);
        near(&fft::fft(&z, None, 0, Norm::Backward), &y, 1e-11 * n as f64);
        near(&fft::ifft(&z, None, 0, Norm::Backward), &x, 1e-11);
        let single = fft::fft(&z.cast(DType::F32), None, 0, Norm::Backward);
        near(&single.cast(DType::F64), &y, 1e-5 * (n as f64).sqrt());
        let real = random(n as u64 + 1, &[n]);
        let whole = fft::fft(&pairs(&real), None, 0, Norm::Backward);
        near(&fft::fft(Real(&real), None, 0, Norm::Backward), &whole, 1e-11);
        near(
            &fft::ifft(Real(&real), None, 0, Norm::Ortho),
            &fft::ifft(&pairs(&real), None, 0, Norm::Ortho),
            1e-12,
        );
        near(&fft::rfft(&real, None, 0, Norm::Backward), &whole.narrow(0, 0, n / 2 + 1), 1e-11);
    }
}

#[test]
fn inverses_come_back() {
    for norm in NORMS {
        for (shape, dim) in [(&[5][..], 0), (&[4, 6], -2), (&[3, 7, 2], 1), (&[40, 3], 0)] {
            let z = random(1, &[shape, &[2]].concat());
            near(&fft::ifft(&fft::fft(&z, None, dim, norm), None, dim, norm), &z, 1e-12);
            let x = random(2, shape);
            let n = x.shape()[dim.rem_euclid(shape.len() as isize) as usize];
            near(&fft::irfft(&fft::rfft(&x, None, dim, norm), Some(n), dim, norm), &x, 1e-12);
            near(&fft::hfft(&fft::ihfft(&x, None, dim, norm), Some(n), dim, norm), &x, 1e-12);
        }
        let x = random(3, &[4, 5, 6]);
        let s: Option<&[isize]> = Some(&[5, 6]);
        let dims: Option<&[isize]> = Some(&[1, 2]);
        near(&fft::irfftn(&fft::rfftn(&x, None, dims, norm), s, dims, norm), &x, 1e-12);
        near(&fft::hfftn(&fft::ihfftn(&x, None, dims, norm), s, dims, norm), &x, 1e-12);
        near(
            &fft::ifftn(&fft::fftn(Real(&x), None, None, norm), None, None, norm),
            &pairs(&x),
            1e-12,
        );
        near(
            &fft::ifft2(&fft::fft2(Real(&x), None, [0, 2], norm), None, [0, 2], norm),
            &pairs(&x),
            1e-12,
        );
        let half = fft::rfft2(&x, None, [-2, -1], norm);
        near(&half, &fft::rfftn(&x, None, dims, norm), 0.0);
        near(&fft::irfft2(&half, Some([5, 6]), [-2, -1], norm), &x, 1e-12);
        let half = fft::ihfft2(&x, None, [-2, -1], norm);
        near(&fft::hfft2(&half, Some([5, 6]), [-2, -1], norm), &x, 1e-12);
    }
}

#[test]
fn several_axes_are_one_after_the_other() {
    let x = random(1, &[3, 4, 5]);
    let by_hand = fft::fft(&fft::rfft(&x, None, 2, Norm::Ortho), None, 0, Norm::Ortho);
    near(&fft::rfftn(&x, None, Some(&[0, 2]), Norm::Ortho), &by_hand, 1e-12);
    // The last axis named is the one that is halved.
    assert_eq!(fft::rfftn(&x, None, Some(&[2, 0]), Norm::Ortho).shape(), [2, 4, 5, 2]);
    let cut = fft::fftn(Real(&x), Some(&[6, 2]), None, Norm::Backward);
    let padded = x.pad([(0, 0), (0, 2), (0, 0)]).narrow(2, 0, 2);
    near(&cut, &fft::fftn(Real(&padded), None, Some(&[1, 2]), Norm::Backward), 1e-12);
    assert_eq!(fft::fftn(Real(&x), Some(&[-1, 2]), None, Norm::Backward).shape(), [3, 4, 2, 2]);
    assert_eq!(fft::fft(Real(&x), Some(8), 1, Norm::Backward).shape(), [3, 8, 5, 2]);
    assert_eq!(fft::irfft(&random(2, &[5, 2]), None, 0, Norm::Backward).shape(), [8]);
}

#[test]
fn derivatives() {
    let check = Check::new().order(2).tolerance(1e-7, 1e-9);
    let run = |f: &dyn Fn(&Tensor) -> Tensor, x: &Tensor| {
        // Squared, so that there is a second derivative.
        let squared = |x: &Tensor| f(x).square();
        if let Err(error) = check.run(squared, x) {
            panic!("{error}");
        }
    };
    for n in [4, 5] {
        let (x, z) = (random(1, &[n]), random(2, &[n, 2]));
        run(&|z| fft::fft(z, None, 0, Norm::Backward), &z);
        run(&|z| fft::ifft(z, Some(3), 0, Norm::Ortho), &z);
        run(&|x| fft::rfft(x, None, 0, Norm::Ortho), &x);
        run(&|x| fft::fft(Real(x), None, 0, Norm::Forward), &x);
        run(&|z| fft::irfft(z, None, 0, Norm::Backward), &z);
        run(&|z| fft::irfft(z, Some(2 * n - 1), 0, Norm::Backward), &z);
        run(&|z| fft::hfft(z, None, 0, Norm::Ortho), &z);
        run(&|x| fft::ihfft(x, None, 0, Norm::Backward), &x);
    }
    run(&|x| fft::rfftn(x, Some(&[3, 2]), None, Norm::Backward), &random(3, &[2, 3]));
}

#[test]
fn frequencies_and_shifts() {
    assert_eq!(fft::fftfreq(5, 1.0).to_vec::<f32>(), [0.0, 0.2, 0.4, -0.4, -0.2]);
    assert_eq!(fft::rfftfreq(5, 0.5).to_vec::<f32>(), [0.0, 0.4, 0.8]);
    let x = Tensor::arange(0, 15).reshape([3, 5]);
    let shifted = fft::fftshift(Real(&x), Some(&[1]));
    assert_eq!(shifted.to_vec::<i64>()[..5], [3, 4, 0, 1, 2]);
    let all = fft::ifftshift(Real(&fft::fftshift(Real(&x), None)), None);
    assert_eq!(all.to_vec::<i64>(), x.to_vec::<i64>());
    // The axis of pairs is not one of them.
    let z = random(1, &[4, 2]);
    near(&fft::fftshift(&z, None), &z.roll(2, 0), 0.0);
}

#[track_caller]
fn sentence<T>(f: impl FnOnce() -> T) -> String {
    match catch(|| drop(f())) {
        Ok(()) => panic!("nothing was wrong"),
        Err(error) => {
            assert!(
                error.location().is_some_and(|at| at.file().ends_with("tests/fft.rs")),
                "{error}"
            );
            error.to_string()
        }
    }
}

#[test]
fn what_cannot_be_is_said() {
    let (x, z, norm) = (random(1, &[4]), random(2, &[4, 2]), Norm::Backward);
    assert!(sentence(|| fft::fft(&x, None, 0, norm)).contains("pairs on a last axis of 2"));
    assert!(sentence(|| fft::fft(&z, None, 1, norm)).contains("axis 1 is out of range"));
    assert!(sentence(|| fft::rfft(&x, Some(0), 0, norm)).contains("at least one value"));
    assert!(
        sentence(|| fft::rfft(&Tensor::zeros([0]), None, 0, norm)).contains("at least one value")
    );
    assert!(
        sentence(|| fft::irfft(&random(3, &[1, 2]), None, 0, norm)).contains("must be at least 1")
    );
    assert!(sentence(|| fft::rfft(&x.cast(DType::BF16), None, 0, norm)).contains("f32 or f64"));
    assert!(
        sentence(|| fft::rfft(&Tensor::from(1.0), None, 0, norm)).contains("at least one axis")
    );
    assert!(sentence(|| fft::fftn(&z, Some(&[2, 2]), None, norm)).contains("2 lengths"));
    assert!(sentence(|| fft::fftn(Real(&z), None, Some(&[0, -2]), norm)).contains("twice"));
    assert!(sentence(|| fft::rfftn(&x, None, Some(&[]), norm)).contains("at least one axis"));
    assert!(sentence(|| fft::fftfreq(0, 1.0)).contains("no frequencies"));
    // Integers become floats, as elsewhere.
    assert_eq!(fft::rfft(&Tensor::arange(0, 4), None, 0, norm).dtype(), DType::F32);
}

#[test]
fn threads_do_not_change_a_bit() {
    let (x, z) = (random(1, &[1 << 15]).cast(DType::F32), random(2, &[64, 100, 2]));
    let run = |n: usize| {
        let bits = |y: Tensor| y.to_f64_vec().iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        with_threads(n, || {
            [
                bits(fft::fft(Real(&x), None, 0, Norm::Backward)),
                bits(fft::fft(&pairs(&x), None, 0, Norm::Backward)),
                bits(fft::fft(&z, None, 0, Norm::Backward)),
                bits(fft::ifft(&z, None, 1, Norm::Backward)),
            ]
        })
    };
    let one = run(1);
    assert!(one == run(2) && one == run(8));
}

/// `sentence` looks whether the line is one of this file.
#[test]
fn a_wrong_axis_among_several_names_the_callers_line() {
    let (x, z, norm) = (random(1, &[4]), random(2, &[4, 2]), Norm::Backward);
    assert!(sentence(|| fft::fftn(&z, None, Some(&[0, 5]), norm)).contains("axis 5"));
    assert!(sentence(|| fft::rfftn(&x, None, Some(&[3]), norm)).contains("axis 3"));
    assert!(sentence(|| fft::fftshift(Real(&x), Some(&[7]))).contains("axis 7"));
}
