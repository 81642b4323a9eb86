//! Factorisations, systems, and Fourier transforms. Matrices are made well-conditioned first, and
//! what has a free sign is made free of it.

use super::{OpRow, UNTRACED, fit, rows};
use pullback::Tensor;
use pullback::fft::{self, Norm};
use pullback::linalg::{self, MatrixNorm, QrMode};

/// Matrices and spectra.
#[rustfmt::skip]
pub const ROWS: &[OpRow] = rows! {
    inv(a: Float) 0, |d| linalg::inv(&regular(a, d.from_to(1, 3)));
    det(a: Float) 0, |d| { let n = d.from_to(0, 3); linalg::det(&fit(a, &[n, n])) };
    slogdet(a: Float) 0, |d| linalg::slogdet(&regular(a, d.from_to(1, 3)));
    logdet(a: Float) 0, |d| linalg::logdet(&definite(a, d.from_to(1, 3)));
    cholesky(a: Float) 0, |d| linalg::cholesky(&definite(a, d.from_to(1, 3)), d.flag());
    solve(a: Float, b: Float) 0, |d| { let n = d.from_to(1, 3); linalg::solve(&regular(a, n), &fit(b, &[n, 2])) };
    solve_stacks(a: Float, b: Float) 0, |_d| linalg::solve(&(fit(a, &[2, 2, 2]) * 0.3 + Tensor::eye_with(2, 2, a.dtype()) * 2.0), &fit(b, &[2, 2, 1]));
    solve_triangular(a: Float, b: Float) 0, |d| { let n = d.from_to(1, 3); linalg::solve_triangular(&regular(a, n), &fit(b, &[n, 2]), d.flag(), true, d.flag()) };
    cholesky_solve(a: Float, b: Float) 0, |d| { let n = d.from_to(1, 2); linalg::cholesky_solve(&fit(b, &[n, 1]), &linalg::cholesky(&definite(a, n), false), false) };
    qr(a: Float) 0, |d| { let (q, r) = linalg::qr(&regular(a, d.from_to(1, 3)), QrMode::Reduced); (q, r) };
    lu(a: Float) 0, |d| linalg::lu(&regular(a, d.from_to(1, 3)));
    eigvalsh(a: Float) 0, |d| linalg::eigvalsh(&spread(a, d.from_to(1, 3)), d.flag());
    eigh_projector(a: Float) 0, |d| { let (_, v) = linalg::eigh(&spread(a, d.from_to(2, 3)), false); let v = v.narrow(-1, 0, 1); v.matmul(&v.t()) };
    svdvals(a: Float) 0, |_d| linalg::svdvals(&(fit(a, &[2, 3]) * 0.3 + Tensor::from([[1.0, 0.0, 0.0], [0.0, 2.5, 0.0]]).cast(a.dtype())));
    pinv(a: Float) 0, |_d| linalg::pinv(&(fit(a, &[2, 3]) * 0.3 + Tensor::from([[1.0, 0.0, 0.0], [0.0, 2.5, 0.0]]).cast(a.dtype())), None, None, false);
    matrix_norm(a: Float) 0, |d| linalg::matrix_norm(&spread(a, 2), d.pick(&[MatrixNorm::Frobenius, MatrixNorm::Nuclear, MatrixNorm::Order(2.0), MatrixNorm::Order(1.0)]), [-2, -1], false);
    matrix_power(a: Float) 0, |d| linalg::matrix_power(&regular(a, 2), d.from_to(0, 4) as i64 - 1);
    matrix_exp(a: Float) UNTRACED, |d| linalg::matrix_exp(&(regular(a, d.from_to(1, 2)) * 0.3));
    matrix_sqrth(a: Float) 0, |_d| linalg::matrix_sqrth(&definite(a, 2));
    lstsq(a: Float, b: Float) UNTRACED, |_d| linalg::lstsq(&(fit(a, &[3, 2]) * 0.3 + Tensor::eye_with(3, 2, a.dtype()) * 2.0), &fit(b, &[3, 1]), None).solution;
    multi_dot(a: Float, b: Float) 0, |_d| linalg::multi_dot(&[&fit(a, &[2, 3]), &fit(b, &[3, 2]), &fit(a, &[2, 1])]);
    vander(a: Float) 0, |_d| linalg::vander(&fit(a, &[3]), Some(3));
    fft(x: Float) UNTRACED, |d| fft::fft(&fit(x, &[2, 3, 2]), pick_length(d), d.below(2) as isize, norm(d));
    ifft(x: Float) UNTRACED, |d| fft::ifft(&fit(x, &[2, 3, 2]), pick_length(d), d.below(2) as isize, norm(d));
    rfft(x: Float) UNTRACED, |d| fft::rfft(&fit(x, &[2, 4]), pick_length(d), d.below(2) as isize, norm(d));
    irfft(x: Float) UNTRACED, |d| fft::irfft(&fit(x, &[3, 2]), pick_length(d), 0, norm(d));
    hfft(x: Float) UNTRACED, |d| fft::hfft(&fit(x, &[3, 2]), pick_length(d), 0, norm(d));
    rfftn(x: Float) UNTRACED, |d| fft::rfftn(&fit(x, &[2, 3]), None, None, norm(d));
    fftshift(x: Float) UNTRACED, |_d| fft::fftshift(&fit(x, &[3, 2]), None);
};

fn pick_length(d: &mut super::Draws) -> Option<usize> {
    d.pick(&[None, Some(2), Some(5)])
}

fn norm(d: &mut super::Draws) -> Norm {
    d.pick(&[Norm::Backward, Norm::Ortho, Norm::Forward])
}

/// A matrix far from a singular one.
fn regular(x: &Tensor, n: usize) -> Tensor {
    fit(x, &[n, n]).tanh() * 0.4 + Tensor::eye_with(n, n, x.dtype()) * 2.0
}

/// A symmetric matrix with positive eigenvalues.
fn definite(x: &Tensor, n: usize) -> Tensor {
    let a = fit(x, &[n, n]).tanh();
    a.matmul(&a.t()) + Tensor::eye_with(n, n, x.dtype())
}

/// A symmetric matrix whose eigenvalues lie apart.
fn spread(x: &Tensor, n: usize) -> Tensor {
    let a = fit(x, &[n, n]).tanh() * 0.2;
    let places = Tensor::arange(1, n as i64 + 1).cast(x.dtype()) * 2.0;
    &a + a.t() + places.diag_embed(0, -2, -1)
}
