//! Solving A·x = b with matrix-vector products only: CG, BiCGSTAB, GMRES. Textbook iterations, as
//! loops over tensors.

use super::flat::known;
use crate::{DType, Tensor, cat, linalg, stack, while_loop};

/// A product with the matrix.
pub(super) type MatVec<'a> = &'a dyn Fn(&Tensor) -> Tensor;

/// When to stop.
pub(super) struct KrylovLimits {
    /// |b − A·x| over |b|.
    pub tolerance: f64,
    /// Of products.
    pub most: usize,
}

/// What an iteration found: x, |b − A·x| and the number of products.
pub(super) type KrylovSolution = (Tensor, Tensor, Tensor);

impl KrylovLimits {
    /// Whether to continue with a residual of this norm after this many products. NaN stops it too.
    fn should_continue(&self, residual: &Tensor, b: &Tensor, count: &Tensor) -> Tensor {
        residual.gt(norm(b) * self.tolerance).logical_and(count.lt(self.most))
    }
}

/// The Euclidean norm.
pub(super) fn norm(v: &Tensor) -> Tensor {
    v.square().sum().sqrt()
}

fn zero(like: &Tensor) -> Tensor {
    like.new_tensor(0i64)
}

/// Conjugate gradients, for symmetric positive definite A.
pub(super) fn cg(a: MatVec, b: &Tensor, limits: &KrylovLimits) -> KrylovSolution {
    type CgState = (Tensor, Tensor, Tensor, Tensor); // x, residual, direction, products
    let step = |(x, r, p, count): &CgState| {
        let (ap, rr) = (a(p), r.dot(r));
        let along = &rr / p.dot(&ap);
        let next = r - &along * ap;
        let beta = next.dot(&next) / rr;
        (x + along * p, next.clone(), next + beta * p, count + 1i64)
    };
    let should_continue = |s: &CgState| limits.should_continue(&norm(&s.1), b, &s.3);
    let (x, r, _, count) =
        while_loop(should_continue, step, &(b.zeros_like(), b.clone(), b.clone(), zero(b)));
    (x, norm(&r), count)
}

/// Stabilised biconjugate gradients, for any A; without a guarantee, and in little memory.
pub(super) fn bicgstab(a: MatVec, b: &Tensor, limits: &KrylovLimits) -> KrylovSolution {
    type BicgState = (Tensor, Tensor, Tensor, Tensor); // x, residual, direction, products
    let step = |(x, r, p, count): &BicgState| {
        let (v, rho) = (a(p), b.dot(r));
        let alpha = &rho / b.dot(&v);
        let s = r - &alpha * &v;
        let t = a(&s);
        // A residual that is zero already stays so.
        let tt = t.dot(&t);
        let omega = tt.gt(0.0).select(t.dot(&s) / &tt, 0.0);
        let next = &s - &omega * t;
        let beta = b.dot(&next) / rho * (&alpha / &omega);
        let direction = &next + beta * (p - &omega * v);
        (x + alpha * p + omega * s, next, direction, count + 2i64)
    };
    let should_continue = |s: &BicgState| limits.should_continue(&norm(&s.1), b, &s.3);
    let (x, r, _, count) =
        while_loop(should_continue, step, &(b.zeros_like(), b.clone(), b.clone(), zero(b)));
    (x, norm(&r), count)
}

/// Generalised minimal residuals, for any A, restarted every `restart` products.
pub(super) fn gmres(
    a: MatVec,
    b: &Tensor,
    limits: &KrylovLimits,
    restart: usize,
) -> KrylovSolution {
    type GmresState = (Tensor, Tensor, Tensor); // x, residual, products
    let m = restart.min(b.len()).max(1);
    let step = |(x, r, count): &GmresState| {
        let size = norm(r);
        let mut basis = vec![r / &size];
        let mut columns = Vec::new();
        for j in 0..m {
            // Orthogonal to those before; twice, so that rounding does not undo it.
            let all = stack(&basis.iter().collect::<Vec<_>>(), 0);
            let w = a(&basis[j]);
            let first = all.matmul(&w);
            let w = w - first.matmul(&all);
            let second = all.matmul(&w);
            let w = w - second.matmul(&all);
            let rest = norm(&w);
            // A remainder of rounding error only is no direction: the Krylov space is exhausted.
            let fresh = rest.gt(norm(&first) * (64.0 * spacing(b.dtype())));
            columns.push((first + second, fresh.select(&rest, 0.0)));
            basis.push(fresh.select(w / rest, 0.0));
            if known(&fresh) == Some(0.0) {
                break;
            }
        }
        let m = columns.len();
        let columns: Vec<Tensor> = columns.iter().map(|(h, rest)| padded(h, rest, m)).collect();
        let hessenberg = stack(&columns.iter().collect::<Vec<_>>(), 1);
        let aim = b.new_iota(m + 1).eq(0i64).cast(b.dtype()) * size;
        let y = linalg::pinv(&hessenberg, None, None, false).matmul(&aim);
        let all = stack(&basis[..m].iter().collect::<Vec<_>>(), 0);
        let x = x + y.matmul(&all);
        (x.clone(), b - a(&x), count + (m + 1))
    };
    let should_continue = |s: &GmresState| limits.should_continue(&norm(&s.1), b, &s.2);
    let (x, r, count) = while_loop(should_continue, step, &(b.zeros_like(), b.clone(), zero(b)));
    (x, norm(&r), count)
}

/// A column of the Hessenberg matrix, m + 1 long.
fn padded(above: &Tensor, below: &Tensor, m: usize) -> Tensor {
    let rest = above.new_zeros([m - above.len()]);
    cat(&[above, &below.reshape([1]), &rest], 0)
}

/// The machine epsilon.
pub(super) fn spacing(dtype: DType) -> f64 {
    if dtype == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) }
}
