//! Factorisations of matrices and Fourier transforms. Their PyTorch counterparts are in
//! `peers/torch_ops.py`.

use super::abs_sum;
use crate::data::tensor;
use crate::measure::{Measurement, Protocol};
use pullback::fft::{Norm, Real, fft, irfft, rfft};
use pullback::linalg::{self, QrMode};
use pullback::{DType, Tensor, stack};

fn briefly(name: &str, check: impl Fn() -> Tensor, mut step: impl FnMut()) -> Measurement {
    let row = Protocol { warm: 0.2, budget: 0.7, ..Protocol::default() }.measure(&mut step);
    row.with("check", abs_sum(&[check()])).named(name)
}

pub fn factors() -> Vec<Measurement> {
    let a = tensor(&[512, 512], 1);
    let one = Tensor::eye_with(512, 512, DType::F32);
    let positive = (a.matmul(&a.t()) / 512.0 + &one).detach();
    let general = (&a + &one * 20.0).detach();
    let (b, v) = (tensor(&[512, 512], 2), tensor(&[512], 3));
    let small = tensor(&[256, 256], 4);
    let even = (&small + small.t()).detach();
    let stacked = (tensor(&[256, 16, 16], 5) + Tensor::eye_with(16, 16, DType::F32) * 5.0).detach();
    let cholesky = || linalg::cholesky(&positive, false);
    let leaf = positive.deep_clone().requires_grad();
    let backward = || {
        leaf.zero_grad();
        linalg::cholesky(&leaf, false).backward_with(&b).expect("the shapes are equal");
        leaf.grad().expect("backward ran")
    };
    let pair = [general.deep_clone().requires_grad(), b.deep_clone().requires_grad()];
    let solve_backward = || {
        pair.iter().for_each(|x| x.zero_grad());
        linalg::solve(&pair[0], &pair[1]).backward_with(&b).expect("the shapes are equal");
        pair[1].grad().expect("backward ran")
    };
    let s = || linalg::svdvals(&small);
    vec![
        briefly("_cholesky_512", cholesky, || drop(cholesky())),
        briefly("_cholesky_512_fwdbwd", backward, || drop(backward())),
        briefly("_solve_512", || linalg::solve(&general, &b), || drop(linalg::solve(&general, &b))),
        briefly("_solve_512_fwdbwd", solve_backward, || drop(solve_backward())),
        briefly(
            "_solve_512_vector",
            || linalg::solve(&general, &v),
            || drop(linalg::solve(&general, &v)),
        ),
        briefly("_inv_512", || linalg::inv(&general), || drop(linalg::inv(&general))),
        briefly("_solve_256x16", || linalg::inv(&stacked), || drop(linalg::inv(&stacked))),
        briefly("_svd_256", s, || drop(linalg::svd(&small, true))),
        briefly("_svdvals_256", s, || drop(s())),
        briefly(
            "_eigh_256",
            || linalg::eigvalsh(&even, false),
            || drop(linalg::eigh(&even, false)),
        ),
        briefly(
            "_qr_512",
            || linalg::qr(&general, QrMode::Reduced).1,
            || drop(linalg::qr(&general, QrMode::Reduced)),
        ),
    ]
}

pub fn transforms() -> Vec<Measurement> {
    let norm = Norm::Backward;
    let x = tensor(&[1 << 20], 1);
    let z = stack(&[&x, &tensor(&[1 << 20], 2)], -1);
    let image = tensor(&[1024, 1024], 3);
    let half = rfft(&x, None, -1, norm);
    let two = || pullback::fft::rfft2(&image, None, [-2, -1], norm);
    vec![
        briefly("_1m", || fft(&z, None, -1, norm), || drop(fft(&z, None, -1, norm))),
        briefly(
            "_1m_of_real",
            || fft(Real(&x), None, -1, norm),
            || drop(fft(Real(&x), None, -1, norm)),
        ),
        briefly("_1m_real", || rfft(&x, None, -1, norm), || drop(rfft(&x, None, -1, norm))),
        briefly(
            "_1m_inverse_real",
            || irfft(&half, None, -1, norm),
            || drop(irfft(&half, None, -1, norm)),
        ),
        briefly("_1024x1024_real", two, || drop(two())),
    ]
}
