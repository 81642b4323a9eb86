//! Euclidean distances of all pairs of rows: one op, whose kernels store no differences.
//!
//! Where backward itself is differentiated the formulas here run instead: they do store them.

use crate::apply::{apply, apply_all};
use crate::kinks::{self, KinkKind};
use crate::rule::{ByHand, Derivatives, Grad, RuleContext, Tensors, Val};
use crate::{Op, Tensor};
use pullback_ir::{Fused, broadcast_shapes};
use smallvec::{SmallVec, smallvec};

pub(super) fn row(within: bool) -> Grad {
    use Val::{In, Out};
    const BETWEEN: &[Val] = &[In(0), In(1), Out(0)];
    const WITHIN: &[Val] = &[In(0), Out(0)];
    Grad::ByHand(ByHand {
        uses: if within { WITHIN } else { BETWEEN },
        vjp,
        jvp,
        formula: "with `w = dy / y` (0 where `y = 0`): `dx_i = sum_j(w_ij * (x_i - y_j))`, \
                  `dy_j = -sum_i(w_ij * (x_i - y_j))`",
    })
}

/// Whether there is one operand.
fn is_within(op: &Op) -> bool {
    match op {
        Op::Fused(Fused::Distances { within } | Fused::DistancesVjp { within }) => *within,
        _ => unreachable!("called for distances"),
    }
}

fn vjp(f: &RuleContext, dys: &Derivatives) -> Derivatives {
    let within = is_within(f.op);
    let Some(dy) = &dys[0] else { return smallvec![None; if within { 1 } else { 2 }] };
    let mut given: SmallVec<[&Tensor; 4]> = smallvec![f.x(0)];
    if !within {
        given.push(f.x(1));
    }
    given.extend([f.y(0), dy]);
    apply_all(Op::Fused(Fused::DistancesVjp { within }), &given).into_iter().map(Some).collect()
}

fn jvp(f: &RuleContext, t: &Derivatives) -> Tensors {
    let within = is_within(f.op);
    let change = match (within, &t[0], t.get(1).and_then(Option::as_ref)) {
        (true, Some(tx), _) => {
            let [a, b] = pairs(tx);
            a - b
        }
        (false, Some(tx), Some(ty)) => tx.unsqueeze(-2) - ty.unsqueeze(-3),
        (false, Some(tx), None) => tx.unsqueeze(-2),
        (false, None, Some(ty)) => -ty.unsqueeze(-3),
        (_, None, _) => return Tensors::One(f.y(0).zeros_like_splat()),
    };
    let (y, dtype) = (f.y(0), f.y(0).dtype());
    let along = (differences(within, f.x(0), if within { f.x(0) } else { f.x(1) }) * change.wide())
        .sum_over(-1);
    Tensors::One(over(&along, &y.wide()).cast(dtype))
}

/// A quotient by distances; 0 where these are 0.
fn over(a: &Tensor, distances: &Tensor) -> Tensor {
    let equal = distances.eq(0.0);
    equal.select_or(0.0, a / equal.select_or(1.0, distances.clone()))
}

/// x − y of all pairs, in the compute type.
fn differences(within: bool, x: &Tensor, y: &Tensor) -> Tensor {
    match within {
        true => {
            let [a, b] = pairs(&x.wide());
            a - b
        }
        false => x.wide().unsqueeze(-2) - y.wide().unsqueeze(-3),
    }
}

/// The first and the second rows of all pairs i < j of rows.
pub(super) fn pairs(x: &Tensor) -> [Tensor; 2] {
    pair_indices(x).map(|rows| x.index_select(-2, &rows))
}

/// The numbers of both rows of all pairs, on the device of the rows.
fn pair_indices(x: &Tensor) -> [Tensor; 2] {
    let n = x.shape()[x.rank() - 2] as i64;
    let all = || (0..n).flat_map(|i| (i + 1..n).map(move |j| [i, j]));
    [0, 1].map(|k| {
        let rows: Vec<i64> = all().map(|pair| pair[k]).collect();
        let count = rows.len();
        x.new_from_vec(rows, count)
    })
}

/// Σⱼ w·(x − y) for each row of x, and −Σᵢ w·(x − y) for each row of y, with w = dy / distance.
pub(super) fn slopes(op: &Op, inputs: &[&Tensor]) -> Tensors {
    let (within, x) = (is_within(op), inputs[0]);
    let [distances, dy] = [2, 1].map(|k| inputs[inputs.len() - k].wide());
    let w = over(&dy, &distances).unsqueeze(-1);
    let parts = w * differences(within, x, if within { x } else { inputs[1] });
    if !within {
        let dx = parts.sum_over(-2).cast(x.dtype());
        return Tensors::from([dx, -parts.sum_over(-3).cast(x.dtype())]);
    }
    // Each pair is a part of the gradient of both of its rows.
    let [first, second] = pair_indices(x);
    let dx = x.wide().zeros_like().index_add(-2, &first, &parts).index_add(-2, &second, &-&parts);
    Tensors::One(dx.cast(x.dtype()))
}

/// The Euclidean distances between rows, if the kernel takes these operands, and no convention
/// asks for another derivative where rows are equal.
#[track_caller]
pub(super) fn between(x: &Tensor, y: &Tensor, p: f64) -> Option<Tensor> {
    let (r, s) = (x.rank(), y.rank());
    let fits = p == 2.0
        && r >= 2
        && s >= 2
        && x.shape()[r - 1] == y.shape()[s - 1]
        && x.dtype() == y.dtype()
        && takes(x);
    if !fits {
        return None;
    }
    let lead = broadcast_shapes(&x.shape()[..r - 2], &y.shape()[..s - 2])?;
    let whole = |x: &Tensor| {
        let mut shape = lead.clone();
        shape.extend_from_slice(&x.shape()[x.rank() - 2..]);
        if *x.shape() == shape[..] { x.clone() } else { x.expand(&shape[..]) }
    };
    Some(counted(apply(Op::Fused(Fused::Distances { within: false }), &[&whole(x), &whole(y)])))
}

/// The Euclidean distances of the rows of a matrix, under the same conditions.
#[track_caller]
pub(super) fn within(x: &Tensor, p: f64) -> Option<Tensor> {
    (p == 2.0 && takes(x))
        .then(|| counted(apply(Op::Fused(Fused::Distances { within: true }), &[x])))
}

fn takes(x: &Tensor) -> bool {
    x.dtype().is_float() && !kinks::conventions().is_nan_at_origin(KinkKind::Norm)
}

#[track_caller]
fn counted(y: Tensor) -> Tensor {
    kinks::at("norm", KinkKind::Norm, &[&y], |y| y[0].eq(0.0));
    y
}
