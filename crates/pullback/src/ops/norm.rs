//! Softmax, layer norm and similar functions: one kernel each, with a decomposition for higher
//! derivatives.

use crate::apply::{apply, apply_all};
use crate::ops::cast::one_float;
use crate::ops::one_pass::{one_pass_of_rows, or_op_by_op};
use crate::rule::{ByHand, Derivatives, Grad, RuleContext, Tensors, Val, Y};
use crate::{DType, Op, Shape, Tensor};
use pullback_ir::infer::args;
use pullback_ir::{Fused, Real};
use smallvec::smallvec;

pub(super) const SOFTMAX: Grad = Grad::ByHand(ByHand {
    uses: &[Y],
    vjp: softmax_vjp,
    jvp: softmax_jvp,
    formula: "`dx = y * (dy - sum(y * dy))`",
});

pub(super) const LOG_SOFTMAX: Grad = Grad::ByHand(ByHand {
    uses: &[Y],
    vjp: log_softmax_vjp,
    jvp: log_softmax_jvp,
    formula: "`dx = dy - exp(y) * sum(dy)`",
});

pub(super) const LOG_SUM_EXP: Grad = Grad::ByHand(ByHand {
    uses: &[Val::In(0), Y],
    vjp: log_sum_exp_vjp,
    jvp: log_sum_exp_jvp,
    formula: "`dx = dy * exp(x - y)`",
});

pub(super) const LAYER_NORM: Grad = Grad::ByHand(ByHand {
    uses: &[Val::In(0), Val::In(1)],
    vjp: layer_norm_vjp,
    jvp: layer_norm_jvp,
    formula: "`dx = (g - mean(g) - n * mean(g * n)) / σ` with `n` the normalised x, `g = dy * w`; \
              `dw = sum(dy * n)`, `db = sum(dy)`",
});

pub(super) const CROSS_ENTROPY: Grad = Grad::ByHand(ByHand {
    uses: &[Val::In(0), Val::In(1)],
    vjp: cross_entropy_vjp,
    jvp: cross_entropy_jvp,
    formula: "`dx = (softmax(x) - onehot(class)) * dy`",
});

/// The axis that the op works along.
fn axis_of(op: &Op) -> usize {
    let Op::Fused(f) = op else { unreachable!("called for a fused op") };
    f.axis().expect("called for an op along an axis")
}

fn each(list: &Derivatives, f: impl Fn(&Tensor) -> Tensor) -> Derivatives {
    smallvec![list[0].as_ref().map(f)]
}

// The Jacobian of softmax is symmetric, so forward and reverse mode are the same product.

fn softmax_vjp(f: &RuleContext, dys: &Derivatives) -> Derivatives {
    each(dys, |dy| apply(Op::Fused(Fused::SoftmaxVjp(axis_of(f.op))), &[f.y(0), dy]))
}

fn softmax_jvp(f: &RuleContext, t: &Derivatives) -> Tensors {
    softmax_vjp(f, t).into_iter().flatten().collect()
}

/// y·(dy − Σ y·dy)
pub(super) fn softmax_slope(op: &Op, inputs: &[&Tensor]) -> Tensors {
    let (y, dy) = (inputs[0], inputs[1]);
    let mean = (y * dy).sum_keep(axis_of(op) as isize);
    Tensors::One(y * (dy - mean))
}

fn log_softmax_vjp(f: &RuleContext, dys: &Derivatives) -> Derivatives {
    each(dys, |dy| apply(Op::Fused(Fused::LogSoftmaxVjp(axis_of(f.op))), &[f.y(0), dy]))
}

fn log_softmax_jvp(f: &RuleContext, t: &Derivatives) -> Tensors {
    let axis = axis_of(f.op) as isize;
    t[0].iter().map(|tx| tx - (f.y(0).exp() * tx).sum_keep(axis)).collect()
}

/// dy − eʸ·Σ dy
pub(super) fn log_softmax_slope(op: &Op, inputs: &[&Tensor]) -> Tensors {
    let (y, dy) = (inputs[0], inputs[1]);
    Tensors::One(dy - y.exp() * dy.sum_keep(axis_of(op) as isize))
}

/// The weights e^(x−y) of a logsumexp; where all is −∞, y is taken as 0: every weight is 0 there.
/// An x of +∞ has the weight NaN, and the others 0.
fn weights(f: &RuleContext) -> Tensor {
    let y = f.y(0).unsqueeze(axis_of(f.op) as isize);
    let above = y.eq(f64::NEG_INFINITY).select_or(0.0, y);
    (f.x(0) - above).exp()
}

fn log_sum_exp_vjp(f: &RuleContext, dys: &Derivatives) -> Derivatives {
    each(dys, |dy| dy.unsqueeze(axis_of(f.op) as isize) * weights(f))
}

fn log_sum_exp_jvp(f: &RuleContext, t: &Derivatives) -> Tensors {
    t[0].iter().map(|tx| (tx * weights(f)).sum_over(axis_of(f.op) as isize)).collect()
}

fn eps_of(op: &Op) -> f64 {
    let Op::Fused(Fused::LayerNorm(eps) | Fused::LayerNormVjp(eps)) = op else {
        unreachable!("called for LayerNorm")
    };
    eps.0
}

/// The normalised value and 1/σ, over the axes of `w`.
fn normalised(op: &Op, x: &Tensor, w: &Tensor) -> (Vec<isize>, Tensor, Tensor) {
    let axes: Vec<isize> = (1..=w.rank() as isize).map(|i| -i).collect();
    let centred = x.wide().centred(&axes);
    let scale = (centred.square().mean_keep(axes.clone()) + eps_of(op)).rsqrt();
    (axes, &centred * &scale, scale)
}

fn layer_norm_vjp(f: &RuleContext, dys: &Derivatives) -> Derivatives {
    let Some(dy) = &dys[0] else { return smallvec![None, None, None] };
    let op = Op::Fused(Fused::LayerNormVjp(Real(eps_of(f.op))));
    apply_all(op, &[f.x(0), f.x(1), dy]).into_iter().map(Some).collect()
}

fn layer_norm_jvp(f: &RuleContext, t: &Derivatives) -> Tensors {
    let (x, w) = (f.x(0), f.x(1));
    let (axes, unit, scale) = normalised(f.op, x, w);
    let along = |tx: &Tensor| {
        let tx = tx.wide();
        let centred = &tx - tx.mean_keep(axes.clone());
        let radial = &unit * (&unit * &centred).mean_keep(axes.clone());
        w * (scale * (centred - radial))
    };
    let terms = [t[0].as_ref().map(along), t[1].as_ref().map(|tw| tw * &unit), t[2].clone()];
    let total = terms.into_iter().flatten().reduce(|a, b| a + b);
    total.into_iter().map(|t| t.cast(x.dtype()).expand_to(x.dims())).collect()
}

/// With u = (x−μ)/σ and g = dy·w: dx = (g − mean(g) − u·mean(u·g))/σ, dw = Σ dy·u, db = Σ dy.
pub(super) fn layer_norm_slope(op: &Op, inputs: &[&Tensor]) -> Tensors {
    let (x, w, dy) = (inputs[0], inputs[1], inputs[2]);
    let (axes, unit, scale) = normalised(op, x, w);
    let dy = dy.wide();
    let g = &dy * w;
    let radial = &unit * (&unit * &g).mean_keep(axes.clone());
    let dx = scale * (&g - g.mean_keep(axes.clone()) - radial);
    let (dw, db) = ((&dy * unit).sum_to(w.shape()), dy.sum_to(w.shape()));
    Tensors::from([dx.cast(x.dtype()), dw.cast(w.dtype()), db.cast(w.dtype())])
}

fn cross_entropy_vjp(f: &RuleContext, dys: &Derivatives) -> Derivatives {
    let op = Op::Fused(Fused::CrossEntropyVjp);
    let back = |dy: &Tensor| apply_all(op, &[f.x(0), f.x(1), dy]).into_first();
    smallvec![dys[0].as_ref().map(back), None]
}

fn cross_entropy_jvp(f: &RuleContext, t: &Derivatives) -> Tensors {
    let along = |tx: &Tensor| {
        let tx = tx.wide();
        let expected = (f.x(0).wide().softmax(1) * &tx).sum_over(1);
        expected - tx.gather(1, &f.x(1).unsqueeze(1)).squeeze_axis(1)
    };
    t[0].iter().map(along).collect()
}

/// (softmax − onehot)·dy, and the losses.
pub(super) fn cross_entropy_slope(_: &Op, inputs: &[&Tensor]) -> Tensors {
    let (logits, classes, dy) = (inputs[0], inputs[1], inputs[2]);
    let hot = classes.one_hot_unchecked(logits.shape()[1], dy.dtype());
    let dx = (logits.wide().softmax(1) - hot) * dy.unsqueeze(1);
    Tensors::from([dx.cast(logits.dtype()), logits.row_cross_entropy(classes)])
}

impl Tensor {
    /// Applies a fused op along an axis; a 0-d tensor is a vector of one element.
    #[track_caller]
    fn along(&self, op: &'static str, axis: isize, f: fn(usize) -> Fused) -> Tensor {
        let axis = self.axis(op, axis);
        let x = self.real();
        match x.rank() {
            0 => apply(Op::Fused(f(0)), &[&x.reshape([1])]).reshape(&[] as &[usize]),
            _ => apply(Op::Fused(f(axis)), &[&x]),
        }
    }

    /// The softmax exp(x) / Σ exp(x) along an axis.
    ///
    /// Derivative: `y·(dy − Σ y·dy)`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 0.0]).softmax(0);
    /// assert_eq!(y.to_vec::<f64>(), [0.5, 0.5]);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range.
    #[track_caller]
    #[must_use]
    pub fn softmax(&self, axis: isize) -> Tensor {
        self.along("softmax", axis, Fused::Softmax)
    }

    /// The logarithm of softmax, computed without overflow.
    ///
    /// Derivative: `dy − eʸ·Σ dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 0.0]).log_softmax(0).to_vec::<f64>();
    /// assert!((y[0] + 2f64.ln()).abs() < 1e-15);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range.
    #[track_caller]
    #[must_use]
    pub fn log_softmax(&self, axis: isize) -> Tensor {
        self.along("log_softmax", axis, Fused::LogSoftmax)
    }

    #[track_caller]
    pub(crate) fn log_sum_exp(&self, axes: &[isize]) -> Tensor {
        let axes = self.checked(args::axes("logsumexp", axes, self.spec()));
        let x = self.real();
        match axes[..] {
            [] => x,
            [axis] => apply(Op::Fused(Fused::LogSumExp(axis)), &[&x]),
            // Several axes are merged into one, at the end.
            _ => {
                let kept = pullback_ir::other_axes(&axes, x.rank());
                let mut shape: Shape = kept.iter().map(|&i| x.shape()[i]).collect();
                let order: Vec<isize> = kept.iter().chain(&axes).map(|&i| i as isize).collect();
                shape.push(axes.iter().map(|&i| x.shape()[i]).product());
                let flat = x.permute(order).reshape(&shape[..]);
                apply(Op::Fused(Fused::LogSumExp(shape.len() - 1)), &[&flat])
            }
        }
    }

    /// Layer normalisation over the last axes, those of `weight`: mean 0 and variance 1, then
    /// `· weight + bias`.
    ///
    /// Derivative: `dx = (g − mean(g) − x̂·mean(g·x̂))/σ` with g = dy·weight; `Σ dy·x̂` and `Σ dy`
    /// for weight and bias.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[1.0f32, 3.0], [2.0, 2.0]]);
    /// let y = x.layer_norm(&Tensor::ones([2]), &Tensor::zeros([2]), 0.0001);
    /// assert!((y.at((0, 1)).item::<f32>() - 1.0).abs() < 1e-3);
    /// ```
    ///
    /// # Panics
    /// If weight and bias do not have the shape of the last axes, or float dtypes are mixed.
    #[track_caller]
    #[must_use]
    pub fn layer_norm(&self, weight: &Tensor, bias: &Tensor, eps: f64) -> Tensor {
        one_float("layer_norm", [self, weight, bias]);
        let x = self.up();
        let (w, b) = (weight.cast(x.dtype()), bias.cast(x.dtype()));
        apply(Op::Fused(Fused::LayerNorm(Real(eps))), &[&x, &w, &b])
    }

    /// RMS normalisation: x divided by the root of its mean square over the last axes, those of
    /// `weight`, then `· weight`.
    ///
    /// Derivative: `(g − x̂·mean(g·x̂))/rms` with g = dy·weight; `Σ dy·x̂` for the weight.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[3.0, -3.0], [0.5, 0.5]]);
    /// let y = x.rms_norm(&Tensor::from([1.0, 1.0]), 0.0);
    /// assert_eq!(y.to_vec::<f64>(), [1.0, -1.0, 1.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If the weight does not fit the last axes, or float dtypes are mixed.
    #[track_caller]
    #[must_use]
    pub fn rms_norm(&self, weight: &Tensor, eps: f64) -> Tensor {
        one_float("rms_norm", [self, weight]);
        let axes: Vec<isize> = (1..=weight.rank() as isize).map(|i| -i).collect();
        let n: usize = weight.len();
        let normed = |x: &Tensor, weight: &Tensor, axes: Vec<isize>| {
            let (dtype, x) = (x.reduced_dtype(), x.wide());
            let squares = x.square().sum_keep(axes) / n as f64;
            (&x * (squares + eps).rsqrt()).cast(dtype) * weight
        };
        let rows =
            one_pass_of_rows("rms_norm", &[n as f64, eps], [self, weight], &axes, |[x, w]| {
                normed(x, w, vec![1])
            });
        or_op_by_op(rows, || normed(self, weight, axes))
    }

    /// The loss of each row, in the compute type: logits `[n, c]`, classes `i64[n]`.
    #[track_caller]
    pub(crate) fn row_cross_entropy(&self, classes: &Tensor) -> Tensor {
        apply(Op::Fused(Fused::CrossEntropy), &[self, &classes.cast(DType::I64)])
    }
}
