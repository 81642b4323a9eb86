//! Products, factorisations, losses.

use super::given::Given;
use pullback::linalg::{MatrixNorm, QrMode};
use pullback::losses;
use pullback::*;

type G = Given;

fn v(g: &G) -> Tensor {
    g.f(&[4])
}

fn m(g: &G) -> Tensor {
    g.f(&[2, 2])
}

fn s(g: &G) -> Tensor {
    g.spd(2)
}

fn lu(g: &G) -> (Tensor, Tensor) {
    linalg::lu_factor(&s(g))
}

const R: Reduction = Reduction::None;
const P: QrMode = QrMode::Reduced;

crate::rows! {
    "matmul": |g| m(g).matmul(&m(g)), |g| v(g).matmul(&v(g));
    "dot": |g| v(g).dot(&v(g)), |g| g.f(&[1]).dot(&g.f(&[1]));
    "outer": |g| v(g).outer(&v(g)), |g| g.f(&[1]).outer(&g.f(&[1]));
    "einsum": |g| einsum("ij->ij", &[&m(g)]), |g| einsum("ij->ji", &[&m(g)]), |g| einsum("ii->i", &[&m(g)]), |g| einsum("ij,jk->ik", &[&m(g), &m(g)]), |g| einsum("ij->", &[&g.f(&[1, 1])]), |g| einsum("i,->i", &[&v(g), &g.f(&[])]);
    "addmm": |g| m(g).addmm(&m(g), &m(g), 1.0, 0.0), |g| m(g).addmm(&m(g), &m(g), 0.0, 1.0);
    "addmv": |g| g.f(&[2]).addmv(&m(g), &g.f(&[2]), 1.0, 0.0), |g| g.f(&[2]).addmv(&m(g), &g.f(&[2]), 0.0, 1.0);
    "addr": |g| m(g).addr(&g.f(&[2]), &g.f(&[2]), 1.0, 0.0), |g| m(g).addr(&g.f(&[2]), &g.f(&[2]), 0.0, 1.0);
    "baddbmm": |g| g.f(&[1, 2, 2]).baddbmm(&g.f(&[1, 2, 2]), &g.f(&[1, 2, 2]), 1.0, 0.0);
    "addbmm": |g| m(g).addbmm(&g.f(&[1, 2, 2]), &g.f(&[1, 2, 2]), 1.0, 0.0);
    "inner": |g| v(g).inner(&v(g)), |g| g.f(&[]).inner(&g.f(&[]));
    "vecdot": |g| m(g).vecdot(&m(g), 1), |g| g.f(&[2, 1]).vecdot(&g.f(&[2, 1]), 1);
    "tensordot": |g| m(g).tensordot(&m(g), &[1], &[0]), |g| g.f(&[]).tensordot(&g.f(&[]), &[], &[]);
    "linear": |g| m(g).linear(&m(g), None), |g| m(g).linear(&m(g), Some(&g.f(&[2])));
    "bilinear": |g| m(g).bilinear(&m(g), &g.f(&[1, 2, 2]), None);
    "trace": |g| m(g).trace(), |g| g.f(&[1, 1]).trace();
    "kron": |g| m(g).kron(&g.f(&[1, 1])), |g| g.f(&[]).kron(&g.f(&[]));
    "cross": |g| g.f(&[3]).cross(&g.f(&[3]), 0);
    "inv": |g| s(g).inv();
    "det": |g| s(g).det(), |g| g.spd(1).det();
    "linalg::cholesky": |g| linalg::cholesky(&s(g), false), |g| linalg::cholesky(&g.f(&[0, 0]), true);
    "linalg::cholesky_ex": |g| linalg::cholesky_ex(&s(g), false);
    "linalg::lu_factor": |g| linalg::lu_factor(&s(g)), |g| linalg::lu_factor(&g.spd(1));
    "linalg::lu_factor_ex": |g| linalg::lu_factor_ex(&s(g));
    "linalg::lu": |g| linalg::lu(&s(g)), |g| linalg::lu(&g.spd(1));
    "linalg::lu_unpack": |g| { let (a, p) = lu(g); linalg::lu_unpack(&a, &p) };
    "linalg::qr": |g| linalg::qr(&s(g), P), |g| linalg::qr(&g.spd(1), P);
    "linalg::eigh": |g| linalg::eigh(&s(g), false), |g| linalg::eigh(&g.spd(1), false);
    "linalg::eigvalsh": |g| linalg::eigvalsh(&s(g), false), |g| linalg::eigvalsh(&g.spd(1), false);
    "linalg::svd": |g| linalg::svd(&s(g), false), |g| linalg::svd(&s(g), true);
    "linalg::svdvals": |g| linalg::svdvals(&s(g));
    "linalg::householder_product": |g| linalg::householder_product(&m(g), &g.f(&[2])), |g| linalg::householder_product(&m(g), &g.f(&[0]));
    "linalg::ormqr": |g| linalg::ormqr(&m(g), &g.f(&[2]), &m(g), true, false), |g| linalg::ormqr(&m(g), &g.f(&[0]), &m(g), true, false);
    "linalg::matrix_exp": |g| linalg::matrix_exp(&s(g)), |g| linalg::matrix_exp(&g.f(&[0, 0])), |g| linalg::matrix_exp(&g.f(&[1, 1]));
    "linalg::matrix_power": |g| linalg::matrix_power(&s(g), 1), |g| linalg::matrix_power(&s(g), 0), |g| linalg::matrix_power(&s(g), -1), |g| linalg::matrix_power(&s(g), 3);
    "linalg::multi_dot": |g| linalg::multi_dot(&[&m(g)]), |g| linalg::multi_dot(&[&m(g), &m(g)]), |g| linalg::multi_dot(&[&v(g)]);
    "linalg::vander": |g| linalg::vander(&v(g), None), |g| linalg::vander(&v(g), Some(1)), |g| linalg::vander(&v(g), Some(0));
    "linalg::matrix_sqrth": |g| linalg::matrix_sqrth(&s(g));
    "linalg::polar": |g| linalg::polar(&s(g));
    "linalg::det": |g| linalg::det(&s(g)), |g| linalg::det(&g.spd(1));
    "linalg::slogdet": |g| linalg::slogdet(&s(g)), |g| linalg::slogdet(&g.spd(1));
    "linalg::logdet": |g| linalg::logdet(&s(g));
    "linalg::matrix_norm": |g| linalg::matrix_norm(&m(g), MatrixNorm::Frobenius, [-2, -1], false), |g| linalg::matrix_norm(&g.f(&[1, 1]), MatrixNorm::Order(1.0), [-2, -1], true);
    "linalg::vector_norm": |g| linalg::vector_norm(&v(g), 1.0, 0, false), |g| linalg::vector_norm(&v(g), f64::INFINITY, &[] as &[isize], false);
    "linalg::norm": |g| linalg::norm(&v(g), None, None, false), |g| linalg::norm(&g.f(&[]), None, None, false);
    "linalg::cond": |g| linalg::cond(&s(g), None);
    "linalg::matrix_rank": |g| linalg::matrix_rank(&s(g), None, None, false);
    "linalg::solve": |g| linalg::solve(&s(g), &m(g)), |g| linalg::solve(&g.f(&[0, 0]), &g.f(&[0, 2]));
    "linalg::solve_ex": |g| linalg::solve_ex(&s(g), &m(g), true);
    "linalg::solve_triangular": |g| linalg::solve_triangular(&s(g), &m(g), false, true, false), |g| linalg::solve_triangular(&s(g), &m(g), true, false, true);
    "linalg::triangular_solve": |g| linalg::triangular_solve(&m(g), &s(g), false, false, false);
    "linalg::cholesky_solve": |g| linalg::cholesky_solve(&m(g), &s(g), false);
    "linalg::cholesky_inverse": |g| linalg::cholesky_inverse(&s(g), false);
    "linalg::lu_solve": |g| { let (a, p) = lu(g); linalg::lu_solve(&a, &p, &m(g), true, false) };
    "linalg::inv": |g| linalg::inv(&s(g)), |g| linalg::inv(&g.f(&[0, 0]));
    "linalg::inv_ex": |g| linalg::inv_ex(&s(g));
    "linalg::pinv": |g| linalg::pinv(&s(g), None, None, false), |g| linalg::pinv(&g.f(&[0, 0]), None, None, true);
    "linalg::lstsq": |g| linalg::lstsq(&s(g), &m(g), None);
    "linalg::tensorinv": |g| linalg::tensorinv(&s(g), 1);
    "linalg::tensorsolve": |g| linalg::tensorsolve(&s(g), &g.f(&[2]), None);
    "cross_entropy": |g| cross_entropy(&m(g), &g.ints(&[0, 1]));
    "CrossEntropy::of": |g| CrossEntropy::new().reduction(R).of(&m(g), &g.ints(&[0, 1])), |g| CrossEntropy::new().reduction(R).of(&m(g), &m(g));
    "losses::weighted_by": |g| losses::weighted_by(&v(g), &v(g), R), |g| losses::weighted_by(&g.f(&[1]), &g.f(&[1]), Reduction::Sum);
    "losses::mse": |g| losses::mse(&v(g), &v(g), R);
    "losses::l1": |g| losses::l1(&v(g), &v(g), R);
    "losses::huber": |g| losses::huber(&v(g), &v(g), 1.0, R);
    "losses::smooth_l1": |g| losses::smooth_l1(&v(g), &v(g), 0.0, R), |g| losses::smooth_l1(&v(g), &v(g), 1.0, R);
    "losses::kl_div": |g| losses::kl_div(&v(g), &v(g), false, R), |g| losses::kl_div(&v(g), &v(g), true, R);
    "losses::binary_cross_entropy": |g| losses::binary_cross_entropy(&v(g), &v(g), None, R);
    "losses::binary_cross_entropy_with_logits": |g| losses::binary_cross_entropy_with_logits(&v(g), &v(g), None, None, R);
    "losses::nll": |g| losses::nll(&m(g), &g.ints(&[0, 1]), None, None, R);
    "losses::gaussian_nll": |g| losses::gaussian_nll(&v(g), &v(g), &v(g), false, 1e-6, R);
    "losses::poisson_nll": |g| losses::poisson_nll(&v(g), &v(g), true, false, 1e-8, R);
    "losses::hinge_embedding": |g| losses::hinge_embedding(&v(g), &g.ints(&[1, 1, 1, 1]).cast(DType::F64), 1.0, R);
    "losses::margin_ranking": |g| losses::margin_ranking(&v(g), &v(g), &v(g), 0.0, R);
    "losses::soft_margin": |g| losses::soft_margin(&v(g), &v(g), R);
    "losses::cosine_embedding": |g| losses::cosine_embedding(&m(g), &m(g), &g.ints(&[1, 1]).cast(DType::F64), 0.0, R);
    "losses::triplet_margin": |g| losses::triplet_margin(&m(g), &m(g), &m(g), (1.0, 2.0, 1e-6), false, R);
    "losses::multi_margin": |g| losses::multi_margin(&m(g), &g.ints(&[0, 1]), 1, 1.0, None, R);
    "losses::multilabel_margin": |g| losses::multilabel_margin(&m(g), &g.ints(&[0, 1, 1, 0]).reshape([2, 2]), R);
    "losses::multilabel_soft_margin": |g| losses::multilabel_soft_margin(&m(g), &m(g), None, R);
    "losses::triplet_margin_with": |g| losses::triplet_margin_with(&m(g), &m(g), &m(g), |a, b| (a - b).square().sum_over(1), 1.0, false, R);
    "losses::ctc": |g| losses::ctc(&g.f(&[3, 1, 3]).log_softmax(2), &g.ints(&[1, 2]).reshape([1, 2]), &[3], &[2], losses::Ctc { blank: 0, reduction: R, zero_infinity: false });
    "losses::ctc_by": |g| losses::ctc_by(&g.f(&[3, 1, 3]).log_softmax(2), &g.ints(&[1, 2]).reshape([1, 2]), &g.ints(&[3]), &g.ints(&[2]), losses::Ctc { blank: 0, reduction: R, zero_infinity: false });
    "update::sgd_": |_| Vec::new();
    "update::adam_": |_| Vec::new();
}
