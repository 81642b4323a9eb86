//! How factorisations differentiate.
//!
//! Every rule is the classical one, as tensor code, so it holds at every order and in both modes.
//! Two patterns recur:
//!
//! - **Symmetric operands.** `cholesky` and `eigh` read one triangle and are differentiated as
//!   functions of a symmetric matrix: gradients are symmetric, and only the symmetric part of a
//!   tangent counts.
//! - **Gauge.** Eigenvectors and singular vectors are fixed up to a sign (or more, where values
//!   repeat). A loss that depends on that choice has no derivative; one that does not has the
//!   derivative given here. The formulas divide by differences of equal values: the result is
//!   visibly not finite, except where no gradient of a vector is needed.

use super::{gathered_rows, right_solve, triangular};
use crate::apply::{apply, apply_all};
use crate::rule::{ByHand, Derivatives, Grad, RuleContext, Tensors, Val};
use crate::{Error, Op, Tensor, fail};
use pullback_ir::Linalg;
use smallvec::smallvec;

const A: Val = Val::In(0);
const Y: Val = Val::Out(0);

#[rustfmt::skip]
pub(crate) fn row(f: Linalg) -> Grad {
    let hand = |uses, vjp, jvp, formula| Grad::ByHand(ByHand { uses, vjp, jvp, formula });
    match f {
        Linalg::Cholesky => hand(&[Y], cholesky_vjp, cholesky_jvp,
            "`dA = sym(L⁻ᵀ·Φ(Lᵀ·dL)·L⁻¹)`, Φ the lower triangle with half the diagonal"),
        Linalg::TriangularSolve { .. } => hand(&[A, Y], triangular_vjp, triangular_jvp,
            "`dB = A⁻ᵀ·dX`, `dA = -triangle(dB·Xᵀ)`"),
        Linalg::Lu => hand(&[Y, Val::Out(1)], lu_vjp, lu_jvp,
            "`dA = P·L⁻ᵀ·(tril(Lᵀ·dL, -1) + triu(dU·Uᵀ))·U⁻ᵀ`"),
        Linalg::Permutation(_) => Grad::Zero,
        Linalg::LuSolve { .. } => hand(&[A, Val::In(1), Val::In(2), Y], lu_solve_vjp, lu_solve_jvp,
            "`dB = A⁻ᵀ·dX`, `dA = -dB·Xᵀ`"),
        Linalg::Qr { .. } => hand(&[Y, Val::Out(1)], qr_vjp, qr_jvp,
            "`dA = (dQ + Q·sym₂(triu(dR·Rᵀ - Qᵀ·dQ)))·R⁻ᵀ`, sym₂ the triangle mirrored"),
        Linalg::Eigh => hand(&[Y, Val::Out(1)], eigh_vjp, eigh_jvp,
            "`dA = sym(V·(diag(dw) + (Vᵀ·dV)/(wⱼ - wᵢ))·Vᵀ)`"),
        Linalg::Spectrum { .. } => Grad::Decompose(spectrum),
        Linalg::Svd { .. } => hand(&[Y, Val::Out(1), Val::Out(2)], svd_vjp, svd_jvp,
            "`dA = U·(diag(ds) + skew(Uᵀ·dU)/E·S + S·skew(Vᵀ·dV)/E)·Vᵀ` with `E = sⱼ² - sᵢ²`, and the parts of dU, dV outside U, V"),
    }
}

/// The values of a decomposition with vectors, which their derivative needs.
fn spectrum(op: &Op, x: &[&Tensor]) -> Tensors {
    let Op::Linalg(Linalg::Spectrum { singular }) = *op else {
        unreachable!("called for Spectrum")
    };
    let (whole, at) = if singular { (Linalg::Svd { full: false }, 1) } else { (Linalg::Eigh, 0) };
    Tensors::One(apply_all(Op::Linalg(whole), x).remove(at))
}

fn sym(x: &Tensor) -> Tensor {
    (x + x.t()) * 0.5
}

/// The lower triangle with half the diagonal.
fn lower_half(x: &Tensor) -> Tensor {
    x.tril(0) - diagonal_matrix(&x.diagonal()) * 0.5
}

fn diagonal_matrix(x: &Tensor) -> Tensor {
    x.diag_embed(0, -2, -1)
}

fn sum(terms: impl IntoIterator<Item = Option<Tensor>>) -> Option<Tensor> {
    terms.into_iter().flatten().reduce(|a, b| a + b)
}

fn cholesky_vjp(f: &RuleContext, dys: &Derivatives) -> Derivatives {
    let back = |dl: &Tensor| {
        let l = f.y(0);
        let inner = lower_half(&l.t().matmul(dl));
        let left = triangular(&l.t(), &inner, true, false);
        sym(&right_solve(l, &left, false, false))
    };
    smallvec![dys[0].as_ref().map(back)]
}

fn cholesky_jvp(f: &RuleContext, t: &Derivatives) -> Tensors {
    let l = f.y(0);
    let along = |ta: &Tensor| {
        let left = triangular(l, &sym(ta), false, false);
        l.matmul(&lower_half(&right_solve(&l.t(), &left, true, false)))
    };
    t[0].iter().map(along).collect()
}

fn triangle_of(f: &RuleContext) -> (bool, bool) {
    match *f.op {
        Op::Linalg(Linalg::TriangularSolve { upper, unit }) => (upper, unit),
        _ => unreachable!("called for TriangularSolve"),
    }
}

/// The part of a matrix that a triangular solve reads.
fn read_part(x: &Tensor, upper: bool, unit: bool) -> Tensor {
    let skip = isize::from(unit);
    if upper { x.triu(skip) } else { x.tril(-skip) }
}

fn triangular_vjp(f: &RuleContext, dys: &Derivatives) -> Derivatives {
    let Some(dx) = &dys[0] else { return smallvec![None, None] };
    let (upper, unit) = triangle_of(f);
    let db = triangular(&f.x(0).t(), dx, !upper, unit);
    let da = || read_part(&-db.matmul(&f.y(0).t()), upper, unit);
    smallvec![f.needs(0).then(da), f.needs(1).then(|| db.clone())]
}

fn triangular_jvp(f: &RuleContext, t: &Derivatives) -> Tensors {
    let (upper, unit) = triangle_of(f);
    let from_a = t[0].as_ref().map(|ta| -read_part(ta, upper, unit).matmul(f.y(0)));
    let right = sum([from_a, t[1].clone()]);
    right.iter().map(|b| triangular(f.x(0), b, upper, unit)).collect()
}

fn lu_solve_vjp(f: &RuleContext, dys: &Derivatives) -> Derivatives {
    let Some(dx) = &dys[0] else { return smallvec![None, None, None, None] };
    let &Op::Linalg(Linalg::LuSolve { transpose }) = f.op else {
        unreachable!("called for LuSolve")
    };
    let back = Op::Linalg(Linalg::LuSolve { transpose: !transpose });
    let db = apply(back, &[f.x(0), f.x(1), f.x(2), dx]);
    let da = || match transpose {
        false => -db.matmul(&f.y(0).t()),
        true => -f.y(0).matmul(&db.t()),
    };
    smallvec![f.needs(0).then(da), None, None, f.needs(3).then(|| db.clone())]
}

fn lu_solve_jvp(f: &RuleContext, t: &Derivatives) -> Tensors {
    let &Op::Linalg(Linalg::LuSolve { transpose }) = f.op else {
        unreachable!("called for LuSolve")
    };
    let from_a = t[0].as_ref().map(|ta| match transpose {
        false => -ta.matmul(f.y(0)),
        true => -ta.t().matmul(f.y(0)),
    });
    let right = sum([from_a, t[3].clone()]).unwrap_or_else(|| f.y(0).zeros_like());
    Tensors::One(apply(f.op.clone(), &[f.x(0), f.x(1), f.x(2), &right]))
}

/// The parts of packed factors of m × n: the square L, the part below it, the square U, the part to
/// its right.
struct PackedFactors {
    k: usize,
    lower: Tensor,
    below: Option<Tensor>,
    upper: Tensor,
    right: Option<Tensor>,
}

fn unpack(lu: &Tensor) -> PackedFactors {
    let (m, n) = sides(lu);
    let k = m.min(n);
    let square = lu.narrow(-2, 0, k).narrow(-1, 0, k);
    PackedFactors {
        k,
        below: (m > k).then(|| lu.narrow(-2, k as isize, m - k)),
        right: (n > k).then(|| lu.narrow(-1, k as isize, n - k)),
        lower: square.clone(),
        upper: square,
    }
}

fn sides(x: &Tensor) -> (usize, usize) {
    (x.shape()[x.rank() - 2], x.shape()[x.rank() - 1])
}

impl PackedFactors {
    /// L⁻¹·x and L⁻ᵀ·x.
    fn lower_solve(&self, x: &Tensor) -> Tensor {
        triangular(&self.lower, x, false, true)
    }
    fn lower_solve_t(&self, x: &Tensor) -> Tensor {
        triangular(&self.lower.t(), x, true, true)
    }
    /// x·U⁻¹ and x·U⁻ᵀ.
    fn upper_right(&self, x: &Tensor) -> Tensor {
        right_solve(&self.upper, x, true, false)
    }
    fn upper_right_t(&self, x: &Tensor) -> Tensor {
        right_solve(&self.upper.t(), x, false, false)
    }
    fn unit_lower(&self) -> Tensor {
        self.lower.tril(-1) + self.lower.new_eye(self.k, self.k, self.lower.dtype())
    }
}

fn lu_vjp(f: &RuleContext, dys: &Derivatives) -> Derivatives {
    let Some(dlu) = &dys[0] else { return smallvec![None] };
    let (lu, g) = (unpack(f.y(0)), unpack(dlu));
    let (upper, lower) = (lu.upper.triu(0), lu.unit_lower());
    let (mut dl, mut du) = (g.lower.tril(-1), g.upper.triu(0));
    // The contribution of the outer parts to the square factors: U₂ = L⁻¹·A₂ and L₂ = A₂·U⁻¹.
    let right = lu.right.as_ref().zip(g.right.as_ref()).map(|(u2, g2)| {
        let da2 = lu.lower_solve_t(g2);
        dl = &dl - da2.matmul(&u2.t());
        da2
    });
    let below = lu.below.as_ref().zip(g.below.as_ref()).map(|(l2, g2)| {
        let da2 = lu.upper_right_t(g2);
        du = &du - l2.t().matmul(&da2);
        da2
    });
    let inner = lower.t().matmul(&dl).tril(-1) + du.matmul(&upper.t()).triu(0);
    let mut da = lu.upper_right_t(&lu.lower_solve_t(&inner));
    if let Some(part) = right {
        da = crate::cat(&[&da, &part], -1);
    }
    if let Some(part) = below {
        da = crate::cat(&[&da, &part], -2);
    }
    let order = permutation(f.y(1), sides(f.y(0)).0);
    smallvec![Some(gathered_rows(&da, &order.argsort(-1, false)))]
}

fn lu_jvp(f: &RuleContext, t: &Derivatives) -> Tensors {
    let along = |ta: &Tensor| {
        let (m, n) = sides(ta);
        let lu = unpack(f.y(0));
        let ta = gathered_rows(ta, &permutation(f.y(1), m));
        let part = unpack(&ta);
        let inner = lu.upper_right(&lu.lower_solve(&part.lower));
        let tl = lu.unit_lower().matmul(&inner.tril(-1));
        let tu = inner.triu(0).matmul(&lu.upper.triu(0));
        let square = &tl + &tu;
        match (&lu.right, &part.right, &lu.below, &part.below) {
            (Some(u2), Some(ta2), _, _) => {
                let tu2 = lu.lower_solve(&(ta2 - tl.matmul(u2)));
                crate::cat(&[&square, &tu2], -1)
            }
            (_, _, Some(l2), Some(ta2)) => {
                let tl2 = lu.upper_right(&(ta2 - l2.matmul(&tu)));
                crate::cat(&[&square, &tl2], -2)
            }
            _ => square.reshape([&ta.shape()[..ta.rank() - 2], &[m, n]].concat()),
        }
    };
    t[0].iter().map(along).collect()
}

#[track_caller]
pub(super) fn permutation(pivots: &Tensor, rows: usize) -> Tensor {
    apply(Op::Linalg(Linalg::Permutation(rows)), &[pivots])
}

/// A triangle with its mirror image.
fn mirrored(upper: &Tensor) -> Tensor {
    upper + upper.triu(1).t()
}

fn no_complete(f: &RuleContext) {
    let (m, n) = sides_of(f.in_shape(0));
    if matches!(f.op, Op::Linalg(Linalg::Qr { complete: true })) && m > n {
        let why = "a complete Q of a matrix with more rows than columns is not unique, so it has no derivative";
        fail::raise(Error::gradient("qr", why).hint("the reduced factors have one"));
    }
}

fn sides_of(shape: &[usize]) -> (usize, usize) {
    (shape[shape.len() - 2], shape[shape.len() - 1])
}

fn qr_vjp(f: &RuleContext, dys: &Derivatives) -> Derivatives {
    no_complete(f);
    let (q, r) = (f.y(0), f.y(1));
    let (m, n) = sides_of(f.in_shape(0));
    let mut dq = dys[0].clone().unwrap_or_else(|| q.zeros_like());
    let dr = dys[1].clone().unwrap_or_else(|| r.zeros_like());
    let k = m.min(n);
    let right = (n > k).then(|| {
        let (r2, dr2) = (r.narrow(-1, k as isize, n - k), dr.narrow(-1, k as isize, n - k));
        dq = &dq + q.matmul(&r2).matmul(&dr2.t());
        q.matmul(&dr2)
    });
    let (r1, dr1) = (r.narrow(-1, 0, k), dr.narrow(-1, 0, k));
    let inner = mirrored(&(dr1.matmul(&r1.t()) - q.t().matmul(&dq)).triu(0));
    let da = right_solve(&r1.t(), &(dq + q.matmul(&inner)), false, false);
    smallvec![Some(match right {
        Some(part) => crate::cat(&[&da, &part], -1),
        None => da,
    })]
}

fn qr_jvp(f: &RuleContext, t: &Derivatives) -> Tensors {
    no_complete(f);
    let Some(ta) = &t[0] else { return Tensors::new() };
    let (q, r) = (f.y(0), f.y(1));
    let (m, n) = sides_of(f.in_shape(0));
    let k = m.min(n);
    let r1 = r.narrow(-1, 0, k);
    let step = right_solve(&r1, &ta.narrow(-1, 0, k), true, false);
    let inside = q.t().matmul(&step);
    let skew = inside.tril(-1) - inside.tril(-1).t();
    let tq = q.matmul(&(&skew - &inside)) + step;
    let tr = (inside - skew).matmul(&r1);
    if n == k {
        return Tensors::from([tq, tr]);
    }
    let rest = |x: &Tensor| x.narrow(-1, k as isize, n - k);
    let tr2 = tq.t().matmul(&q.matmul(&rest(r))) + q.t().matmul(&rest(ta));
    Tensors::from([tq, crate::cat(&[&tr, &tr2], -1)])
}

/// 1/(xⱼ − xᵢ) off the diagonal, 0 on it.
fn gaps(x: &Tensor) -> Tensor {
    let one = x.new_eye(x.shape()[x.rank() - 1], x.shape()[x.rank() - 1], x.dtype());
    (1.0 - &one) / (x.unsqueeze(-2) - x.unsqueeze(-1) + &one)
}

fn eigh_vjp(f: &RuleContext, dys: &Derivatives) -> Derivatives {
    let (w, v) = (f.y(0), f.y(1));
    let values = dys[0].as_ref().map(|dw| (v * dw.unsqueeze(-2)).matmul(&v.t()));
    let vectors = dys[1].as_ref().map(|dv| v.matmul(&(v.t().matmul(dv) * gaps(w))).matmul(&v.t()));
    smallvec![sum([values, vectors]).map(|da| sym(&da))]
}

fn eigh_jvp(f: &RuleContext, t: &Derivatives) -> Tensors {
    let Some(ta) = &t[0] else { return Tensors::new() };
    let (w, v) = (f.y(0), f.y(1));
    let inner = v.t().matmul(&sym(ta)).matmul(v);
    Tensors::from([inner.diagonal(), v.matmul(&(inner * gaps(w)))])
}

fn skew(x: &Tensor) -> Tensor {
    x - x.t()
}

/// The first k columns of U and rows of Vᵀ: those that have singular values.
fn thin(u: &Tensor, vh: &Tensor, k: usize) -> (Tensor, Tensor) {
    (u.narrow(-1, 0, k), vh.narrow(-2, 0, k))
}

fn svd_vjp(f: &RuleContext, dys: &Derivatives) -> Derivatives {
    let s = f.y(1);
    let k = s.shape()[s.rank() - 1];
    let (u, vh) = thin(f.y(0), f.y(2), k);
    let (m, n) = sides_of(f.in_shape(0));
    let du = dys[0].as_ref().map(|d| d.narrow(-1, 0, k));
    let dvh = dys[2].as_ref().map(|d| d.narrow(-2, 0, k));
    let (columns, rows) = (s.unsqueeze(-2), s.unsqueeze(-1));
    let values = dys[1].as_ref().map(diagonal_matrix);
    let left = du.as_ref().map(|du| skew(&u.t().matmul(du)) * gaps(&s.square()) * &columns);
    let right = dvh.as_ref().map(|d| skew(&vh.matmul(&d.t())) * gaps(&s.square()) * &rows);
    let inside = sum([values, left, right]).map(|inner| u.matmul(&inner).matmul(&vh));
    let above = du.as_ref().filter(|_| m > k).map(|du| {
        let outside = du - u.matmul(&u.t().matmul(du));
        (outside / &columns).matmul(&vh)
    });
    let right = dvh.as_ref().filter(|_| n > k).map(|d| {
        let outside = d - d.matmul(&vh.t()).matmul(&vh);
        u.matmul(&(outside / &rows))
    });
    smallvec![sum([inside, above, right])]
}

fn svd_jvp(f: &RuleContext, t: &Derivatives) -> Tensors {
    let Some(ta) = &t[0] else { return Tensors::new() };
    let s = f.y(1);
    let k = s.shape()[s.rank() - 1];
    let (u, vh) = thin(f.y(0), f.y(2), k);
    let (m, n) = sides_of(f.in_shape(0));
    let (columns, rows) = (s.unsqueeze(-2), s.unsqueeze(-1));
    let inner = u.t().matmul(ta).matmul(&vh.t());
    let gaps = gaps(&s.square());
    let mut tu = u.matmul(&(&gaps * (&inner * &columns + &rows * inner.t())));
    let mut tv = vh.t().matmul(&(&gaps * (&rows * &inner + inner.t() * &columns)));
    if m > k {
        let out = ta.matmul(&vh.t());
        tu += (&out - u.matmul(&u.t().matmul(&out))) / &columns;
    }
    if n > k {
        let out = ta.t().matmul(&u);
        tv += (&out - vh.t().matmul(&vh.matmul(&out))) / &columns;
    }
    // Vectors without a singular value are rotated by the least that keeps them orthogonal to the
    // others.
    let extend = |full: &Tensor, first: &Tensor, tangent: Tensor, count: usize| match count > k {
        false => tangent,
        true => {
            let rest = full.narrow(-1, k as isize, count - k);
            let turned = -first.matmul(&tangent.t().matmul(&rest));
            crate::cat(&[&tangent, &turned], -1)
        }
    };
    let (v, full_v) = (vh.t(), f.y(2).t());
    let (wide, tall) = (f.y(0).shape()[f.y(0).rank() - 1], full_v.shape()[full_v.rank() - 1]);
    let (tu, tv) = (extend(f.y(0), &u, tu, wide), extend(&full_v, &v, tv, tall));
    Tensors::from([tu, inner.diagonal(), tv.t()])
}

/// Both results of an op with two.
#[track_caller]
pub(super) fn pair(op: Linalg, x: &Tensor) -> (Tensor, Tensor) {
    let mut outs = apply_all(Op::Linalg(op), &[x]);
    let second = outs.remove(1);
    (outs.remove(0), second)
}
