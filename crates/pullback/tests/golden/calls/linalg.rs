//! Linear algebra and Fourier transforms.

use super::one;
use crate::args::{Arg, Args};
use pullback::fft::{self, Norm, Real, Signal};
use pullback::linalg::{self, MatrixNorm, QrMode};
use pullback::{DType, Tensor};

pub fn call(name: &str, a: &Args) -> Option<Vec<Tensor>> {
    if let Some(name) = name.strip_prefix("fft.") {
        return transform(name, a);
    }
    let x = || a.tensor(0, "input|A|self|x|LU_data|LU|L|B");
    let second = || a.tensor(1, "other|B|b|tau|input2|LU_pivots|pivots|A|L|LU_data");
    let upper = |i: usize| a.flag(i, "upper", false);
    let named = usize::MAX;
    let two = |(p, q): (Tensor, Tensor)| Some(vec![p, q]);
    let three = |(p, q, r): (Tensor, Tensor, Tensor)| Some(vec![p, q, r]);
    let maybe = |i: usize, name: &str| a.get(i, name).map(Arg::tensor);
    match name {
        "linalg.cholesky" | "cholesky" => one(linalg::cholesky(&x(), upper(1))),
        "linalg.cholesky_ex" => two(linalg::cholesky_ex(&x(), upper(named))),
        "cholesky_inverse" => one(linalg::cholesky_inverse(&x(), upper(1))),
        "cholesky_solve" => one(linalg::cholesky_solve(&x(), &second(), upper(2))),
        "linalg.solve" => one(match a.flag(named, "left", true) {
            true => linalg::solve(&x(), &second()),
            false => linalg::solve_ex(&x(), &second(), false).0,
        }),
        "linalg.solve_ex" => two(linalg::solve_ex(&x(), &second(), a.flag(named, "left", true))),
        "linalg.solve_triangular" => one(linalg::solve_triangular(
            &x(),
            &second(),
            upper(named),
            a.flag(named, "left", true),
            a.flag(named, "unitriangular", false),
        )),
        "triangular_solve" => {
            let (upper, transpose) = (a.flag(2, "upper", true), a.flag(3, "transpose", false));
            let y = linalg::triangular_solve(
                &x(),
                &second(),
                upper,
                transpose,
                a.flag(4, "unitriangular", false),
            );
            Some(vec![y, second()])
        }
        "linalg.inv" | "inverse" => one(linalg::inv(&x())),
        "linalg.inv_ex" => two(linalg::inv_ex(&x())),
        "linalg.pinv" | "pinverse" => {
            // `pinv.singular` multiplies two operands first.
            if let Some(Arg::Tensor(b)) = a.positional.get(1)
                && b.rank() >= 2
            {
                return one(linalg::pinv(&x().matmul(&b.t()), None, None, false));
            }
            let rcond = a.get(1, "rcond|rtol").map(Arg::tensor);
            let hermitian = a.flag(2, "hermitian", false);
            one(linalg::pinv(&x(), maybe(named, "atol").as_ref(), rcond.as_ref(), hermitian))
        }
        "linalg.lstsq" | "linalg.lstsq.grad_oriented" => {
            let driver = a.text(3, "driver").unwrap_or("gelsy").to_string();
            let rcond = a.get(2, "rcond").map(Arg::float);
            let y = linalg::lstsq(&x(), &second(), rcond);
            // That driver computes none; it is the one that is taken unsaid.
            let residuals = match &driver[..] {
                "gelsy" => Tensor::zeros_with([0], x().dtype()),
                _ => y.residuals,
            };
            if name.ends_with("oriented") {
                return Some(vec![y.solution, residuals]);
            }
            let (rank, values) = (driver != "gels", driver == "gelsd" || driver == "gelss");
            let none = |dtype| Tensor::zeros_with([0], dtype);
            Some(vec![
                y.solution,
                residuals,
                if rank { y.rank } else { none(DType::I64) },
                if values { y.singular_values } else { none(x().dtype()) },
            ])
        }
        "linalg.det" | "det" => one(linalg::det(&x())),
        "linalg.slogdet" | "slogdet" => two(linalg::slogdet(&x())),
        "logdet" => one(linalg::logdet(&x())),
        "linalg.lu" => three(linalg::lu(&x())),
        "lu" if a.flag(2, "get_infos", false) => three(linalg::lu_factor_ex(&x())),
        "linalg.lu_factor" | "lu" => two(linalg::lu_factor(&x())),
        "linalg.lu_factor_ex" => three(linalg::lu_factor_ex(&x())),
        "linalg.lu_solve" => one(linalg::lu_solve(
            &x(),
            &second(),
            &a.tensor(2, "B"),
            a.flag(named, "left", true),
            a.flag(named, "adjoint", false),
        )),
        "lu_solve" => {
            one(linalg::lu_solve(&second(), &a.tensor(2, "LU_pivots"), &x(), true, false))
        }
        "lu_unpack" => {
            let (p, l, u) = linalg::lu_unpack(&x(), &second());
            let empty = || Tensor::zeros_with([0], x().dtype());
            let data = a.flag(2, "unpack_data", true);
            let p = if a.flag(3, "unpack_pivots", true) { p } else { empty() };
            Some(if data { vec![p, l, u] } else { vec![p, empty(), empty()] })
        }
        "linalg.qr" | "qr" => {
            let mode = match a.text(1, "mode").unwrap_or("reduced") {
                "complete" => QrMode::Complete,
                "r" => QrMode::R,
                _ if !a.flag(named, "some", true) => QrMode::Complete,
                _ => QrMode::Reduced,
            };
            two(linalg::qr(&x(), mode))
        }
        "linalg.eigh" => two(linalg::eigh(&x(), a.text(1, "UPLO") == Some("U"))),
        "linalg.eigvalsh" => one(linalg::eigvalsh(&x(), a.text(1, "UPLO") == Some("U"))),
        "linalg.svd" => three(linalg::svd(&x(), a.flag(1, "full_matrices", true))),
        "svd" => {
            let (u, s, vh) = linalg::svd(&x(), !a.flag(1, "some", true));
            Some(vec![u, s, vh.t()])
        }
        "linalg.svdvals" => one(linalg::svdvals(&x())),
        "matrix_exp" | "linalg.matrix_exp" => one(linalg::matrix_exp(&x())),
        "linalg.matrix_power" | "matrix_power" => {
            one(linalg::matrix_power(&x(), a.int(1, "n") as i64))
        }
        "linalg.matrix_sqrth" => one(linalg::matrix_sqrth(&x())),
        "linalg.polar" => two(linalg::polar(&x())),
        "linalg.multi_dot" | "chain_matmul" => {
            one(linalg::multi_dot(&a.every_tensor().iter().collect::<Vec<_>>()))
        }
        "linalg.householder_product" | "orgqr" => one(linalg::householder_product(&x(), &second())),
        "ormqr" => one(linalg::ormqr(
            &x(),
            &second(),
            &a.tensor(2, "input3|other"),
            a.flag(3, "left", true),
            a.flag(4, "transpose", false),
        )),
        "linalg.tensorinv" => one(linalg::tensorinv(&x(), a.int_or(1, "ind", 2) as usize)),
        "linalg.tensorsolve" => {
            one(linalg::tensorsolve(&x(), &second(), a.maybe_ints(2, "dims").as_deref()))
        }
        "linalg.vander" => {
            one(linalg::vander(&x().at_least(1), a.get(1, "N").map(|n| n.int() as usize)))
        }
        "vander" => {
            let n = a.get(1, "N").map(|n| n.int() as usize);
            let y = linalg::vander(&x(), n);
            one(if a.flag(2, "increasing", false) { y } else { y.flip(-1) })
        }
        "linalg.matrix_rank" => {
            let hermitian = a.flag(2, "hermitian", false);
            let (atol, rtol) = match a.positional.get(1) {
                Some(tol) => (Some(tol.tensor()), Some(Tensor::from(0.0))),
                None => (maybe(named, "atol|tol"), maybe(named, "rtol")),
            };
            one(linalg::matrix_rank(&x(), atol.as_ref(), rtol.as_ref(), hermitian))
        }
        "linalg.cond" => one(linalg::cond(&x(), a.get(1, "p").map(order))),
        "linalg.matrix_norm" => {
            let d = a.maybe_ints(2, "dim").unwrap_or(vec![-2, -1]);
            let kind = a.get(1, "ord").map_or(MatrixNorm::Frobenius, order);
            one(linalg::matrix_norm(&x(), kind, [d[0], d[1]], a.flag(3, "keepdim", false)))
        }
        "linalg.norm" => {
            let (d, keep) = (a.maybe_ints(2, "dim"), a.flag(3, "keepdim", false));
            one(linalg::norm(&x(), a.get(1, "ord").map(order), d.as_deref(), keep))
        }
        "norm" | "norm.nuc" | "norm.fro" | "norm.inf" => {
            let Some(kind @ Arg::Text(_)) = a.get(1, "p") else { return None };
            let (d, keep) = (a.maybe_ints(2, "dim"), a.flag(3, "keepdim", false));
            match order(kind) {
                MatrixNorm::Nuclear => {
                    let d = d.unwrap_or(vec![0, 1]);
                    one(linalg::matrix_norm(&x(), MatrixNorm::Nuclear, [d[0], d[1]], keep))
                }
                _ => one(linalg::norm(&x(), None, d.as_deref(), keep)),
            }
        }
        _ => None,
    }
}

fn order(arg: &Arg) -> MatrixNorm {
    match arg {
        Arg::Text(s) if s == "nuc" => MatrixNorm::Nuclear,
        Arg::Text(s) if s == "fro" => MatrixNorm::Frobenius,
        number => MatrixNorm::Order(number.float()),
    }
}

fn transform(name: &str, a: &Args) -> Option<Vec<Tensor>> {
    let input = a.get(0, "input")?;
    let tensor = input.tensor();
    let signal = || match input {
        Arg::Complex(_) => Signal::Pairs(&tensor),
        _ => Signal::from(Real(&tensor)),
    };
    let norm = match a.text(3, "norm") {
        Some("ortho") => Norm::Ortho,
        Some("forward") => Norm::Forward,
        _ => Norm::Backward,
    };
    let n = a.get(1, "n").and_then(|n| usize::try_from(n.int()).ok());
    let dim = || a.int_or(2, "dim", -1);
    let (s, dims) = (a.maybe_ints(1, "s"), a.maybe_ints(2, "dim"));
    let two = || dims.clone().unwrap_or(vec![-2, -1]);
    one(match name {
        "fft" => fft::fft(signal(), n, dim(), norm),
        "ifft" => fft::ifft(signal(), n, dim(), norm),
        "rfft" => fft::rfft(&tensor, n, dim(), norm),
        "irfft" => fft::irfft(signal(), n, dim(), norm),
        "hfft" => fft::hfft(signal(), n, dim(), norm),
        "ihfft" => fft::ihfft(&tensor, n, dim(), norm),
        "fft2" => fft::fftn(signal(), s.as_deref(), Some(&two()), norm),
        "ifft2" => fft::ifftn(signal(), s.as_deref(), Some(&two()), norm),
        "rfft2" => fft::rfftn(&tensor, s.as_deref(), Some(&two()), norm),
        "irfft2" => fft::irfftn(signal(), s.as_deref(), Some(&two()), norm),
        "hfft2" => fft::hfftn(signal(), s.as_deref(), Some(&two()), norm),
        "ihfft2" => fft::ihfftn(&tensor, s.as_deref(), Some(&two()), norm),
        "fftn" => fft::fftn(signal(), s.as_deref(), dims.as_deref(), norm),
        "ifftn" => fft::ifftn(signal(), s.as_deref(), dims.as_deref(), norm),
        "rfftn" => fft::rfftn(&tensor, s.as_deref(), dims.as_deref(), norm),
        "irfftn" => fft::irfftn(signal(), s.as_deref(), dims.as_deref(), norm),
        "hfftn" => fft::hfftn(signal(), s.as_deref(), dims.as_deref(), norm),
        "ihfftn" => fft::ihfftn(&tensor, s.as_deref(), dims.as_deref(), norm),
        "fftshift" => fft::fftshift(signal(), a.maybe_ints(1, "dim").as_deref()),
        "ifftshift" => fft::ifftshift(signal(), a.maybe_ints(1, "dim").as_deref()),
        _ => return None,
    })
}
