//! Batch normalisation: one op that gives the result and the statistics of the batch, and one for
//! its gradient.
//!
//! All three results have derivatives, and the gradient op takes the statistics as operands like
//! any other. So the formulas here are those of a plain function, and higher derivatives follow
//! from them by the chain rule alone.

use crate::apply::apply_all;
use crate::rule::{ByHand, Derivatives, Grad, RuleContext, Tensors, Val};
use crate::{Op, Tensor};
use pullback_ir::{Fused, Real};
use smallvec::smallvec;

pub(super) fn row() -> Grad {
    use Val::{In, Out};
    Grad::ByHand(ByHand {
        uses: &[In(0), In(1), Out(1), Out(2)],
        vjp,
        jvp,
        formula: "`dx = w / σ * (dy - mean(dy) - n * mean(dy * n))` with `n` the normalised x; `dw = sum(dy * n)`, `db = sum(dy)`; from the mean `dmean / count`, from the variance `dvar * 2 * (x - mean) / count`",
    })
}

pub(super) fn vjp_row() -> Grad {
    Grad::Decompose(slopes)
}

fn eps_of(op: &Op) -> f64 {
    match op {
        Op::Fused(Fused::BatchNorm(eps) | Fused::BatchNormVjp(eps)) => eps.0,
        _ => unreachable!("called for batch normalisation"),
    }
}

/// A normalised batch.
struct Batch {
    /// All axes but that of channels.
    others: Vec<isize>,
    /// x − mean
    centred: Tensor,
    /// 1/σ, to broadcast against x.
    scale: Tensor,
    /// x − mean in units of σ.
    unit: Tensor,
    /// The weight, to broadcast against x.
    w: Tensor,
}

impl Batch {
    fn new(op: &Op, x: &Tensor, w: &Tensor, mean: &Tensor, variance: &Tensor) -> Batch {
        let others = (0..x.rank() as isize).filter(|&i| i != 1).collect();
        let centred = x.wide() - spread(mean, x);
        let scale = (spread(variance, x) + eps_of(op)).rsqrt();
        Batch { others, unit: &centred * &scale, centred, scale, w: spread(w, x) }
    }

    fn sum(&self, x: &Tensor) -> Tensor {
        x.sum_over(self.others.clone())
    }

    /// What the mean of a product with n, or of one with 1, takes away: g − mean(g) − n·mean(g·n).
    fn tangential(&self, g: &Tensor) -> Tensor {
        let radial = &self.unit * (&self.unit * g).mean_keep(self.others.clone());
        g - g.mean_keep(self.others.clone()) - radial
    }
}

/// One value per channel, to broadcast against `x`.
fn spread(each: &Tensor, x: &Tensor) -> Tensor {
    let mut shape = vec![1; x.rank()];
    shape[1] = each.len();
    each.wide().reshape(shape)
}

fn vjp(f: &RuleContext, dys: &Derivatives) -> Derivatives {
    let (x, w, mean, variance) = (f.x(0), f.x(1), f.y(1), f.y(2));
    let mut out: Derivatives = match &dys[0] {
        Some(dy) => {
            let op = Op::Fused(Fused::BatchNormVjp(Real(eps_of(f.op))));
            apply_all(op, &[x, w, mean, variance, dy]).into_iter().map(Some).collect()
        }
        None => smallvec![None; 3],
    };
    let count = x.len() as f64 / w.len() as f64;
    let of_mean = dys[1].as_ref().map(|d| spread(d, x) / count);
    let of_variance =
        dys[2].as_ref().map(|d| spread(d, x) * (2.0 / count) * (x.wide() - spread(mean, x)));
    for more in [of_mean, of_variance].into_iter().flatten() {
        let more = more.cast(x.dtype()).expand_to(x.dims());
        out[0] = Some(match out[0].take() {
            Some(dx) => dx + more,
            None => more,
        });
    }
    out
}

fn jvp(f: &RuleContext, t: &Derivatives) -> Tensors {
    let (x, mean, variance) = (f.x(0), f.y(1), f.y(2));
    let batch = Batch::new(f.op, x, f.x(1), mean, variance);
    let terms = [
        t[0].as_ref().map(|tx| &batch.scale * &batch.w * batch.tangential(&tx.wide())),
        t[1].as_ref().map(|tw| spread(tw, x) * &batch.unit),
        t[2].as_ref().map(|tb| spread(tb, x)),
    ];
    let ty = match terms.into_iter().flatten().reduce(|a, b| a + b) {
        Some(ty) => ty.cast(x.dtype()).expand_to(x.dims()),
        None => x.zeros_like_splat(),
    };
    let (tmean, tvariance) = match &t[0] {
        Some(tx) => {
            let tx = tx.wide();
            let count = x.len() as f64 / mean.len() as f64;
            (batch.sum(&tx) / count, batch.sum(&(&batch.centred * &tx)) * (2.0 / count))
        }
        None => (mean.zeros_like_splat(), variance.zeros_like_splat()),
    };
    Tensors::from([ty, tmean, tvariance])
}

/// With n = (x − mean)/σ: dx = w/σ·(dy − mean(dy) − n·mean(dy·n)), dw = Σ dy·n, db = Σ dy.
fn slopes(op: &Op, inputs: &[&Tensor]) -> Tensors {
    let (x, w, dy) = (inputs[0], inputs[1], inputs[4].wide());
    let batch = Batch::new(op, x, w, inputs[2], inputs[3]);
    let dx = &batch.scale * &batch.w * batch.tangential(&dy);
    let (dw, db) = (batch.sum(&(&dy * &batch.unit)), batch.sum(&dy));
    Tensors::from([dx.cast(x.dtype()), dw.cast(w.dtype()), db.cast(w.dtype())])
}

impl Tensor {
    /// Each channel (axis 1) normalised over all other axes, then `· w + b`; and the mean and
    /// variance of each channel. The weights have this dtype and one element per channel.
    #[track_caller]
    pub(super) fn fused_batch_norm(&self, w: &Tensor, b: &Tensor, eps: f64) -> [Tensor; 3] {
        let out = apply_all(Op::Fused(Fused::BatchNorm(Real(eps))), &[self, w, b]);
        let mut out = out.into_iter();
        std::array::from_fn(|_| out.next().expect("three results"))
    }
}
