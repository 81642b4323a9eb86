//! Losses, each one formula with a reduction. Cross-entropy has a file of its own.
//!
//! Prediction and target have the same shape unless a loss says otherwise: nothing broadcasts
//! silently. Weights repeat to the shape of the prediction.

use super::loss_shapes;
use crate::ops::cast::one_float;
use crate::ops::one_pass::one_pass;
use crate::{DType, Error, Reduction, Tensor, kinks, trace};

pub use super::ctc::{Ctc, ctc, ctc_by};
pub use super::margin::{
    cosine_embedding, hinge_embedding, margin_ranking, multi_margin, multilabel_margin,
    multilabel_soft_margin, soft_margin, triplet_margin, triplet_margin_with,
};

/// Applies the reduction.
#[track_caller]
pub(crate) fn reduced(losses: Tensor, reduction: Reduction) -> Tensor {
    match reduction {
        Reduction::Mean => losses.mean(),
        Reduction::Sum => losses.sum(),
        Reduction::BatchMean => {
            let batch = losses.shape().first().copied().unwrap_or(1);
            (losses.wide().sum() / batch as f64).cast(losses.reduced_dtype())
        }
        Reduction::None => losses,
    }
}

/// Losses (not yet reduced) times weights; their mean is over the weights: Σ weight·loss / Σ
/// weight.
///
/// Derivative: of its formula.
///
/// ```
/// use pullback::{Reduction, Tensor, losses};
/// let each = losses::l1(&Tensor::from([1.0, 2.0]), &Tensor::from([0.0, 0.0]), Reduction::None);
/// let loss = losses::weighted_by(&each, &Tensor::from([3.0, 1.0]), Reduction::Mean);
/// assert_eq!(loss.item::<f64>(), 1.25);
/// ```
///
/// # Panics
/// If the weight does not repeat to the shape of the losses, or float dtypes are mixed.
#[track_caller]
#[must_use]
pub fn weighted_by(losses: &Tensor, weight: &Tensor, reduction: Reduction) -> Tensor {
    one_float("weighted_by", [losses, weight]);
    loss_shapes::repeats_to("weighted_by", losses, "weight", weight);
    let weighted = losses.up() * weight;
    match reduction {
        Reduction::Mean => weighted.weighted_mean(&weight.expand(weighted.shape())),
        other => reduced(weighted, other),
    }
}

/// The squared error (x − y)².
///
/// Derivative: 2(x − y) by x, the negative by y.
///
/// ```
/// use pullback::{Reduction, Tensor, losses};
/// let loss = losses::mse(&Tensor::from([1.0, 2.0]), &Tensor::from([1.0, 4.0]), Reduction::Mean);
/// assert_eq!(loss.item::<f64>(), 2.0);
/// ```
///
/// # Panics
/// If prediction and target differ in shape, or are of two float dtypes.
#[doc(alias = "mse_loss")]
#[track_caller]
#[must_use]
pub fn mse(x: &Tensor, y: &Tensor, reduction: Reduction) -> Tensor {
    one_float("mse", [x, y]);
    loss_shapes::equal("mse", &[("prediction", x), ("target", y)]);
    reduced(one_pass("mse", &[], [x, y], |[x, y]| (x.up() - y.up()).square()), reduction)
}

/// The absolute error |x − y|.
///
/// Derivative: sign(x − y) by x, the negative by y; 0 where they are equal.
///
/// ```
/// use pullback::{Reduction, Tensor, losses};
/// let loss = losses::l1(&Tensor::from([1.0, 2.0]), &Tensor::from([1.0, 4.0]), Reduction::Mean);
/// assert_eq!(loss.item::<f64>(), 1.0);
/// ```
///
/// # Panics
/// If prediction and target differ in shape, or are of two float dtypes.
#[doc(alias = "l1_loss")]
#[track_caller]
#[must_use]
pub fn l1(x: &Tensor, y: &Tensor, reduction: Reduction) -> Tensor {
    one_float("l1", [x, y]);
    loss_shapes::equal("l1", &[("prediction", x), ("target", y)]);
    reduced(one_pass("l1", &[], [x, y], |[x, y]| (x.up() - y.up()).abs()), reduction)
}

/// The Huber loss: ½(x − y)² where |x − y| < delta, delta·(|x − y| − ½delta) elsewhere.
///
/// Derivative: x − y where |x − y| < delta, delta·sign(x − y) elsewhere; the negative by y.
///
/// ```
/// use pullback::{Reduction, Tensor, losses};
/// let (x, y) = (Tensor::from([0.5, 4.0]), Tensor::from([0.0, 0.0]));
/// let loss = losses::huber(&x, &y, 1.0, Reduction::None);
/// assert_eq!(loss.to_vec::<f64>(), [0.125, 3.5]);
/// ```
///
/// # Panics
/// If prediction and target differ in shape, or are of two float dtypes.
#[doc(alias = "huber_loss")]
#[track_caller]
#[must_use]
pub fn huber(x: &Tensor, y: &Tensor, delta: f64, reduction: Reduction) -> Tensor {
    one_float("huber", [x, y]);
    loss_shapes::equal("huber", &[("prediction", x), ("target", y)]);
    let losses = one_pass("huber", &[delta], [x, y], |[x, y]| {
        let z = x.up() - y.up();
        // Smooth: |z| is used only away from 0.
        let size = kinks::uncounted_part(|| z.abs());
        let near = size.lt(delta);
        let inside = z.only(&near).square() * 0.5;
        near.select(&inside, &((size - 0.5 * delta) * delta))
    });
    reduced(losses, reduction)
}

/// [`huber`] divided by beta: ½(x − y)²/beta near, |x − y| − ½beta far. A beta of 0 is [`l1`].
///
/// Derivative: (x − y)/beta where |x − y| < beta, sign(x − y) elsewhere; the negative by y.
///
/// ```
/// use pullback::{Reduction, Tensor, losses};
/// let (x, y) = (Tensor::from([1.0, 4.0]), Tensor::from([0.0, 0.0]));
/// let loss = losses::smooth_l1(&x, &y, 2.0, Reduction::None);
/// assert_eq!(loss.to_vec::<f64>(), [0.25, 3.0]);
/// ```
///
/// # Panics
/// If prediction and target differ in shape, or are of two float dtypes.
#[doc(alias = "smooth_l1_loss")]
#[track_caller]
#[must_use]
pub fn smooth_l1(x: &Tensor, y: &Tensor, beta: f64, reduction: Reduction) -> Tensor {
    one_float("smooth_l1", [x, y]);
    loss_shapes::equal("smooth_l1", &[("prediction", x), ("target", y)]);
    if beta == 0.0 {
        return l1(x, y, reduction);
    }
    let losses = one_pass("smooth_l1", &[beta], [x, y], |[x, y]| {
        let z = x.up() - y.up();
        let size = kinks::uncounted_part(|| z.abs());
        let near = size.lt(beta);
        let inside = z.only(&near).square() * (0.5 / beta);
        near.select(&inside, &(size - 0.5 * beta))
    });
    reduced(losses, reduction)
}

/// The Kullback–Leibler divergence y·(log y − x) of log-probabilities x from probabilities y, or
/// from their logarithms with `log_target`. The divergence of its definition, a sum over what can
/// happen, is that of
/// [`Reduction::BatchMean`]: the mean over all elements is smaller.
///
/// Derivative: −y by x; log y + 1 − x by y.
///
/// ```
/// use pullback::{Reduction, Tensor, losses};
/// let (x, y) = (Tensor::from([[0.5, 0.5], [0.5, 0.5]]).log(), Tensor::from([[1.0, 0.0], [0.0, 1.0]]));
/// let loss = losses::kl_div(&x, &y, false, Reduction::BatchMean);
/// assert!((loss.item::<f64>() - 2f64.ln()).abs() < 1e-15);
/// ```
///
/// # Panics
/// If prediction and target differ in shape, or are of two float dtypes.
#[track_caller]
#[must_use]
pub fn kl_div(x: &Tensor, y: &Tensor, log_target: bool, reduction: Reduction) -> Tensor {
    one_float("kl_div", [x, y]);
    loss_shapes::equal("kl_div", &[("prediction", x), ("target", y)]);
    let (x, y) = (&x.up(), &y.up());
    let losses = match log_target {
        true => y.exp() * (y - x),
        false => y.eq(0.0).select_or(1.0, y.clone()).x_log_x() - y * x,
    };
    reduced(losses, reduction)
}

#[track_caller]
fn weighted(losses: Tensor, weight: Option<&Tensor>) -> Tensor {
    match weight {
        Some(w) => losses * w,
        None => losses,
    }
}

impl Tensor {
    /// The sum of weighted losses over that of the weights, wide enough for both.
    #[track_caller]
    pub(crate) fn weighted_mean(&self, weights: &Tensor) -> Tensor {
        (self.wide().sum() / weights.wide().sum()).cast(self.reduced_dtype())
    }
}

/// The binary cross-entropy −y·log(x) − (1 − y)·log(1 − x) for probabilities x; logarithms are
/// taken as at least −100.
///
/// Derivative: (x − y)/max(x·(1 − x), 1e−12) by x.
///
/// ```
/// use pullback::{Reduction, Tensor, losses};
/// let (p, y) = (Tensor::from([0.5, 0.25]), Tensor::from([1.0, 0.0]));
/// let loss = losses::binary_cross_entropy(&p, &y, None, Reduction::None).to_vec::<f64>();
/// assert!((loss[0] - 2f64.ln()).abs() < 1e-15 && (loss[1] + 0.75f64.ln()).abs() < 1e-15);
/// ```
///
/// # Panics
/// If prediction and target differ in shape, a weight does not repeat to it, or float dtypes are
/// mixed.
#[track_caller]
#[must_use]
pub fn binary_cross_entropy(
    x: &Tensor,
    y: &Tensor,
    weight: Option<&Tensor>,
    reduction: Reduction,
) -> Tensor {
    one_float("binary_cross_entropy", [x, y].into_iter().chain(weight));
    loss_shapes::equal("binary_cross_entropy", &[("prediction", x), ("target", y)]);
    if let Some(w) = weight {
        loss_shapes::repeats_to("binary_cross_entropy", x, "weight", w);
    }
    let dtype = x.reduced_dtype().promote(y.reduced_dtype());
    let (x, y) = (x.wide(), y.wide());
    let known = x.detach();
    // Where a probability is (almost) 0 or 1 the logarithms are constants, and a parabola of value
    // 0 has the slope.
    let steep = (&known * (1.0 - &known)).lt(1e-12);
    let inner = steep.select_or(0.5, x.clone());
    let log_p = steep.select(known.log().clamp_min(-100.0), inner.log());
    let log_q = steep.select((-&known).log1p().clamp_min(-100.0), (-&inner).log1p());
    // (x − y)² − (known − y)², so written that its slope by y is zero and no large terms cancel.
    let parabola = (&x - &known) * (&x + &known - &y * 2.0) * 0.5e12;
    let losses = (&y - 1.0) * log_q - &y * log_p + parabola.only(&steep);
    reduced(weighted(losses.cast(dtype), weight), reduction)
}

/// [`binary_cross_entropy`] of sigmoid(x), without overflow; `positive` weighs the term of y.
///
/// Derivative: sigmoid(x) − y by x, without a weight of positives.
///
/// ```
/// use pullback::{Reduction, Tensor, losses};
/// let (x, y) = (Tensor::from([0.0, 1000.0]), Tensor::from([1.0, 0.0]));
/// let loss = losses::binary_cross_entropy_with_logits(&x, &y, None, None, Reduction::None);
/// let loss = loss.to_vec::<f64>();
/// assert!((loss[0] - 2f64.ln()).abs() < 1e-15 && loss[1] == 1000.0);
/// ```
///
/// # Panics
/// If prediction and target differ in shape, a weight does not repeat to it, or float dtypes are
/// mixed.
#[track_caller]
#[must_use]
pub fn binary_cross_entropy_with_logits(
    x: &Tensor,
    y: &Tensor,
    weight: Option<&Tensor>,
    positive: Option<&Tensor>,
    reduction: Reduction,
) -> Tensor {
    let given = [x, y].into_iter().chain(weight).chain(positive);
    one_float("binary_cross_entropy_with_logits", given);
    loss_shapes::equal("binary_cross_entropy_with_logits", &[("prediction", x), ("target", y)]);
    if let Some(w) = weight {
        loss_shapes::repeats_to("binary_cross_entropy_with_logits", x, "weight", w);
    }
    if let Some(w) = positive {
        loss_shapes::repeats_to("binary_cross_entropy_with_logits", x, "pos_weight", w);
    }
    let losses = match positive {
        Some(p) => {
            let (x, y) = (&x.up(), &y.up());
            (1.0 - y) * x - ((p - 1.0) * y + 1.0) * x.log_sigmoid()
        }
        None => one_pass("binary_cross_entropy_with_logits", &[], [x, y], |[x, y]| {
            let (x, y) = (&x.up(), &y.up());
            (1.0 - y) * x - x.log_sigmoid()
        }),
    };
    reduced(weighted(losses, weight), reduction)
}

/// That there is a class for each row, and a weight for each class.
#[track_caller]
fn check_classes(log_p: &Tensor, classes: &Tensor, weight: Option<&Tensor>, axis: usize) {
    let mut wants = log_p.shape().to_vec();
    let count = if log_p.rank() == 0 { 0 } else { wants.remove(axis) };
    let error = if log_p.rank() == 0 {
        Error::shape("nll", "0-d log-probabilities have no classes")
    } else if classes.dtype().is_float() || classes.dtype() == DType::Bool {
        Error::dtype("nll", format!("classes must be integers, not {}", classes.dtype()))
            .hint(CAST_LABELS)
    } else if classes.shape() != wants {
        let hint = loss_shapes::reshape_to(classes, &wants);
        let (log_p, classes) = (log_p.spec(), classes.spec());
        Error::shape("nll", format!("{log_p} requires classes of shape {wants:?}, not {classes}"))
            .hint(hint)
    } else if let Some(w) = weight.filter(|w| w.shape() != [count]) {
        let message =
            format!("the weight must have one element per class ({count}), not {}", w.spec());
        Error::shape("nll", message)
    } else {
        return;
    };
    log_p.checked(Err(error.on([log_p.spec(), classes.spec()])))
}

/// What to do with labels that are not integers.
pub(crate) const CAST_LABELS: &str = "cast the labels to i64 with `.cast(DType::I64)`";

/// The class that is ignored by default, as in PyTorch.
pub(crate) const IGNORED: i64 = -100;

/// That every class that counts is one of `count`: a gather would take −1 for the last one.
#[track_caller]
pub(crate) fn check_range(op: &'static str, classes: &Tensor, ignored: i64, count: usize) {
    if !trace::on_host(classes) {
        return;
    }
    let wrong = |class: &&i64| **class != ignored && !(0..count as i64).contains(*class);
    if let Some(class) = classes.detach().to_vec::<i64>().iter().find(wrong) {
        let message = format!("{class} is not one of the {count} classes from 0 on");
        classes.checked::<()>(Err(Error::argument(op, message).on([classes.spec()])));
    }
}

/// The negative log-likelihood of classes `[n, …]` under log-probabilities `[n, c, …]`, weighted by
/// class.
/// Elements of the class `ignored`, −100 unless another is given, are ignored. The mean is over the
/// weights.
///
/// Derivative: −weight at the class of each row, 0 elsewhere.
///
/// ```
/// use pullback::{Reduction, Tensor, losses};
/// let log_p = Tensor::from([[0.25, 0.75], [0.5, 0.5]]).log();
/// let loss = losses::nll(&log_p, &Tensor::from([0i64, -100]), None, None, Reduction::Mean);
/// assert!((loss.item::<f64>() - 4f64.ln()).abs() < 1e-15);
/// ```
///
/// # Panics
/// If the shapes do not fit, the classes are not integers, or one that counts is out of range.
#[doc(alias = "nll_loss")]
#[track_caller]
#[must_use]
pub fn nll(
    log_p: &Tensor,
    classes: &Tensor,
    weight: Option<&Tensor>,
    ignored: Option<i64>,
    reduction: Reduction,
) -> Tensor {
    let log_p = &log_p.up();
    let axis = if log_p.rank() > 1 { 1 } else { 0 };
    check_classes(log_p, classes, weight, axis as usize);
    one_float("nll", [log_p].into_iter().chain(weight));
    let classes = classes.cast(DType::I64);
    let ignored = ignored.unwrap_or(IGNORED);
    check_range("nll", &classes, ignored, log_p.shape()[axis as usize]);
    let counted = classes.ne(ignored);
    let safe = counted.select(&classes, classes.zeros_like_splat());
    let picked = log_p.gather(axis, &safe.unsqueeze(axis)).squeeze_axis(axis);
    let weights = match weight {
        Some(w) => w.cast(log_p.dtype()).take(&safe).only(&counted),
        None => counted.cast(log_p.dtype()),
    };
    let losses = -(picked.only(&counted) * &weights);
    match reduction {
        Reduction::Mean => losses.weighted_mean(&weights),
        _ => reduced(losses, reduction),
    }
}

/// The Gaussian negative log-likelihood ½(log v + (x − y)²/v), with a variance of at least `eps`
/// (through which the gradient still passes), and the constant ½log 2π if `full`. The variance is
/// shaped as x, or so with one axis of length 1; or it is one number for each row (x's shape
/// without its last axis), or one for all (0-d). The target is shaped as x, or so with one axis of
/// length 1.
///
/// Derivative: (x − y)/v by x; ½(1/v − (x − y)²/v²) by v.
///
/// ```
/// use pullback::{Reduction, Tensor, losses};
/// let (x, y, v) = (Tensor::from([1.0]), Tensor::from([3.0]), Tensor::from([1.0]));
/// let loss = losses::gaussian_nll(&x, &y, &v, false, 1e-6, Reduction::Mean);
/// assert_eq!(loss.item::<f64>(), 2.0);
/// ```
///
/// # Panics
/// If target or variance do not fit the prediction, or float dtypes are mixed.
#[doc(alias = "gaussian_nll_loss")]
#[track_caller]
#[must_use]
pub fn gaussian_nll(
    x: &Tensor,
    y: &Tensor,
    variance: &Tensor,
    full: bool,
    eps: f64,
    reduction: Reduction,
) -> Tensor {
    one_float("gaussian_nll", [x, y, variance]);
    let y = &loss_shapes::gaussian("gaussian_nll", x, ("target", y), false);
    let variance = &loss_shapes::gaussian("gaussian_nll", x, ("variance", variance), true);
    let constant = if full { 0.5 * (2.0 * std::f64::consts::PI).ln() } else { 0.0 };
    let formula = |[x, y, variance]: [&Tensor; 3]| {
        let (x, y, variance) = (&x.up(), &y.up(), &variance.up());
        // What is missing to `eps`: not a difference of infinities where the variance is infinite.
        let known = variance.detach();
        let v = variance + (eps - &known).only(&known.lt(eps));
        (v.log() + (x - y).square() / &v) * 0.5 + constant
    };
    reduced(one_pass("gaussian_nll", &[eps, constant], [x, y, variance], formula), reduction)
}

/// The Poisson negative log-likelihood: eˣ − y·x for a logarithm x, x − y·log(x + eps) otherwise;
/// Stirling's term for y > 1 if `full`.
///
/// Derivative: eˣ − y for a logarithm x, 1 − y/(x + eps) otherwise.
///
/// ```
/// use pullback::{Reduction, Tensor, losses};
/// let (log_rate, y) = (Tensor::from([0.0, 0.0]), Tensor::from([1.0, 3.0]));
/// let loss = losses::poisson_nll(&log_rate, &y, true, false, 1e-8, Reduction::Mean);
/// assert_eq!(loss.item::<f64>(), 1.0);
/// ```
///
/// # Panics
/// If prediction and target differ in shape, or are of two float dtypes.
#[doc(alias = "poisson_nll_loss")]
#[track_caller]
#[must_use]
pub fn poisson_nll(
    x: &Tensor,
    y: &Tensor,
    log_input: bool,
    full: bool,
    eps: f64,
    reduction: Reduction,
) -> Tensor {
    one_float("poisson_nll", [x, y]);
    loss_shapes::equal("poisson_nll", &[("prediction", x), ("target", y)]);
    let (x, y) = (&x.up(), &y.up());
    let mut losses = if log_input { x.exp() - y * x } else { x - y * (x + eps).log() };
    if full {
        let large = y.gt(1.0);
        let safe = large.select(y, y.ones_like_splat());
        let stirling =
            &safe * safe.log() - &safe + (&safe * (2.0 * std::f64::consts::PI)).log() * 0.5;
        losses += stirling.only(&large);
    }
    reduced(losses, reduction)
}
