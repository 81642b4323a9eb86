//! Losses with a margin, over classes, labels, distances and pairs.

use super::loss_shapes;
use crate::ops::cast::one_float;
use crate::ops::losses::{CAST_LABELS, reduced};
use crate::ops::one_pass::one_pass;
use crate::{DType, Error, Reduction, Tensor, trace};

/// `[n, c]` of `[n, c]` or a single `[c]`.
#[track_caller]
fn as_rows(op: &'static str, x: &Tensor, y: &Tensor, per_row: bool) -> (Tensor, Tensor) {
    let want = match (x.rank(), per_row) {
        (1, true) => vec![],
        (2, true) => vec![x.shape()[0]],
        _ => x.shape().to_vec(),
    };
    let error = if !(1..=2).contains(&x.rank()) {
        Error::shape(op, format!("takes [n, classes] or [classes], not {}", x.spec()))
    } else if y.dtype().is_float() || y.dtype() == DType::Bool {
        Error::dtype(op, format!("classes must be integers, not {}", y.dtype())).hint(CAST_LABELS)
    } else if y.shape() != want && !(per_row && x.rank() == 1 && y.shape() == [1]) {
        Error::shape(
            op,
            format!("{} requires classes of shape {want:?}, not {}", x.spec(), y.spec()),
        )
        .hint(loss_shapes::reshape_to(y, &want))
    } else {
        let y = y.cast(DType::I64);
        return match (x.rank(), per_row) {
            (1, true) => (x.unsqueeze(0), y.reshape([1])),
            (1, false) => (x.unsqueeze(0), y.unsqueeze(0)),
            _ => (x.clone(), y),
        };
    };
    x.checked(Err(error.on([x.spec(), y.spec()])))
}

/// That every class is one of `0..c`, or below `low` none at all.
#[track_caller]
fn check_range(op: &'static str, x: &Tensor, y: &Tensor, low: i64) {
    let c = x.shape()[1] as i64;
    if !trace::on_host(y) {
        return;
    }
    if let Some(i) = y.detach().to_vec::<i64>().iter().find(|i| !(low..c).contains(i)) {
        let message = format!("class {i} is not one of the {c} of {}", x.spec());
        x.checked(Err(Error::argument(op, message).on([x.spec(), y.spec()])))
    }
}

/// One number per row, reduced; of a single row without reduction, 0-d.
#[track_caller]
fn of_rows(losses: Tensor, single: bool, reduction: Reduction) -> Tensor {
    let losses = if single { losses.squeeze_axis(0) } else { losses };
    reduced(losses, reduction)
}

/// Σ over the other classes i of `max(0, margin − x[y] + x[i])ᵖ` / classes, times the weight of
/// class y; `p` is 1 or 2.
///
/// Derivative: of its formula; 0 where the maximum is 0.
///
/// ```
/// use pullback::{Reduction, Tensor, losses};
/// let x = Tensor::from([[0.1, 0.2, 0.4, 0.8]]);
/// let loss = losses::multi_margin(&x, &Tensor::from([3i64]), 1, 1.0, None, Reduction::Mean);
/// assert!((loss.item::<f64>() - 0.325).abs() < 1e-12);
/// ```
///
/// # Panics
/// If `p` is neither 1 nor 2, or classes and weight do not fit.
#[doc(alias = "multi_margin_loss")]
#[track_caller]
#[must_use]
pub fn multi_margin(
    x: &Tensor,
    y: &Tensor,
    p: u32,
    margin: f64,
    weight: Option<&Tensor>,
    reduction: Reduction,
) -> Tensor {
    let op = "multi_margin";
    if !(1..=2).contains(&p) {
        return x.checked(Err(Error::argument(op, format!("p is 1 or 2, not {p}")).on([x.spec()])));
    }
    // A number is one row of one class.
    let x = &x.up().at_least(1);
    let single = x.rank() == 1;
    let (x, y) = as_rows(op, x, y, true);
    check_range(op, &x, &y, 0);
    let c = x.shape()[1];
    if let Some(w) = weight.filter(|w| w.shape() != [c]) {
        let message = format!("the weight must have one element per class ({c}), not {}", w.spec());
        return x.checked(Err(Error::shape(op, message).on([x.spec(), w.spec()])));
    }
    one_float(op, [&x].into_iter().chain(weight));
    let own = x.gather(1, &y.unsqueeze(1));
    let short = (&x - own + margin).relu();
    let each = if p == 1 { short } else { short.square() };
    let others = y.one_hot_unchecked(c, DType::Bool).logical_not();
    let losses = each.only(&others).sum_over(1) / c as f64;
    let losses = match weight {
        Some(w) => losses * w.gather(0, &y),
        None => losses,
    };
    of_rows(losses, single, reduction)
}

/// Σ over the labels j of a row and the other classes i of `max(0, 1 − x[j] + x[i])` / classes. The
/// labels come first in a row of `y`; −1 ends them.
///
/// Derivative: of its formula; 0 where the maximum is 0.
///
/// ```
/// use pullback::{Reduction, Tensor, losses};
/// let x = Tensor::from([[0.1, 0.2, 0.4, 0.8]]);
/// // The labels 3 and 0.
/// let loss = losses::multilabel_margin(&x, &Tensor::from([[3i64, 0, -1, 1]]), Reduction::Mean);
/// assert!((loss.item::<f64>() - 0.85).abs() < 1e-12);
/// ```
///
/// # Panics
/// If the labels do not fit the classes.
#[doc(alias = "multilabel_margin_loss")]
#[track_caller]
#[must_use]
pub fn multilabel_margin(x: &Tensor, y: &Tensor, reduction: Reduction) -> Tensor {
    let op = "multilabel_margin";
    let (x, y) = (&x.up().at_least(1), &y.at_least(1));
    let single = x.rank() == 1;
    let (x, y) = as_rows(op, x, y, false);
    let c = x.shape()[1];
    // Everything after the first −1 is ignored.
    let ended = y.lt(0).cast(DType::I64).cumsum(1).gt(0);
    let safe = ended.select(y.zeros_like_splat(), &y);
    check_range(op, &x, &safe, 0);
    let counted = ended.logical_not();
    let marks =
        x.new_zeros_with(x.shape(), DType::I64).scatter_max(1, &safe, &counted.cast(DType::I64));
    let others = marks.eq(0);
    let own = x.gather(1, &safe);
    let short = (1.0 - own.unsqueeze(2) + x.unsqueeze(1)).relu();
    let pairs = counted.unsqueeze(2).logical_and(others.unsqueeze(1));
    of_rows(short.only(&pairs).sum_over([1, 2]) / c as f64, single, reduction)
}

/// The mean over the classes of −y·log σ(x) − (1 − y)·log σ(−x), weighted by class.
///
/// Derivative: of its formula: (σ(x) − y)·weight / classes.
///
/// ```
/// use pullback::{Reduction, Tensor, losses};
/// let (x, y) = (Tensor::from([[0.0, 0.0]]), Tensor::from([[1.0, 0.0]]));
/// let loss = losses::multilabel_soft_margin(&x, &y, None, Reduction::Mean);
/// assert!((loss.item::<f64>() - 2f64.ln()).abs() < 1e-15);
/// ```
///
/// # Panics
/// If prediction and target differ in shape, the weight does not repeat to it, or float dtypes
/// are mixed.
#[doc(alias = "multilabel_soft_margin_loss")]
#[track_caller]
#[must_use]
pub fn multilabel_soft_margin(
    x: &Tensor,
    y: &Tensor,
    weight: Option<&Tensor>,
    reduction: Reduction,
) -> Tensor {
    one_float("multilabel_soft_margin", [x, y].into_iter().chain(weight));
    let op = "multilabel_soft_margin";
    loss_shapes::equal(op, &[("prediction", x), ("target", y)]);
    if let Some(w) = weight {
        loss_shapes::repeats_to(op, x, "weight", w);
    }
    let (x, y) = (&x.up(), &y.up());
    let mut each = -(y * x.log_sigmoid() + (1.0 - y) * (-x).log_sigmoid());
    if let Some(w) = weight {
        each *= w;
    }
    reduced(each.mean_over(-1), reduction)
}

/// max(0, margin + distance(anchor, near) − distance(anchor, far)) for any distance; with `swap`,
/// from the nearer of anchor and `near`.
///
/// Derivative: of its formula, through the distances.
///
/// ```
/// use pullback::{Reduction, Tensor, losses};
/// let (a, near, far) = (Tensor::from([[0.0]]), Tensor::from([[3.0]]), Tensor::from([[4.0]]));
/// let distance = |x: &Tensor, y: &Tensor| (x - y).abs().sum_over(-1);
/// let loss =
///     losses::triplet_margin_with(&a, &near, &far, distance, 2.0, false, Reduction::Mean);
/// assert_eq!(loss.item::<f64>(), 1.0);
/// ```
///
/// # Panics
/// If anchor, near and far differ in shape, or are of two float dtypes.
#[doc(alias = "triplet_margin_with_distance_loss")]
#[track_caller]
#[must_use]
pub fn triplet_margin_with(
    anchor: &Tensor,
    near: &Tensor,
    far: &Tensor,
    distance: impl Fn(&Tensor, &Tensor) -> Tensor,
    margin: f64,
    swap: bool,
    reduction: Reduction,
) -> Tensor {
    one_float("triplet_margin", [anchor, near, far]);
    let op = "triplet_margin_with";
    loss_shapes::equal(op, &[("anchor", anchor), ("near", near), ("far", far)]);
    let to_near = distance(anchor, near);
    let mut to_far = distance(anchor, far);
    if swap {
        to_far = to_far.minimum(distance(near, far));
    }
    loss_shapes::equal(op, &[("the near distance", &to_near), ("the far one", &to_far)]);
    reduced((to_near - to_far + margin).clamp_min(0.0), reduction)
}

/// The hinge embedding loss: x where y is 1, max(0, margin − x) where y is −1.
///
/// Derivative: 1 where y is 1; −1 where y is −1 and x is below the margin, or at it; else 0.
///
/// ```
/// use pullback::{Reduction, Tensor, losses};
/// let (distance, y) = (Tensor::from([0.5, 0.25, 2.0]), Tensor::from([1.0, -1.0, -1.0]));
/// let loss = losses::hinge_embedding(&distance, &y, 1.0, Reduction::None);
/// assert_eq!(loss.to_vec::<f64>(), [0.5, 0.75, 0.0]);
/// ```
///
/// # Panics
/// If prediction and target differ in shape, or are of two float dtypes.
#[doc(alias = "hinge_embedding_loss")]
#[track_caller]
#[must_use]
pub fn hinge_embedding(x: &Tensor, y: &Tensor, margin: f64, reduction: Reduction) -> Tensor {
    one_float("hinge_embedding", [x, y]);
    loss_shapes::equal("hinge_embedding", &[("prediction", x), ("target", y)]);
    let losses = one_pass("hinge_embedding", &[margin], [x, y], |[x, y]| {
        let (x, y) = (&x.up(), &y.up());
        let far = (margin - x).clamp_min(0.0);
        far.only(&y.ne(1.0)) + x.only(&y.ne(-1.0))
    });
    reduced(losses, reduction)
}

/// The margin ranking loss max(0, margin − y·(a − b)).
///
/// Derivative: −y by a and y by b where the loss is not negative, else 0.
///
/// ```
/// use pullback::{Reduction, Tensor, losses};
/// let (a, b) = (Tensor::from([2.0, 0.0]), Tensor::from([0.0, 2.0]));
/// // `a` should rank above `b` in both.
/// let y = Tensor::from([1.0, 1.0]);
/// let loss = losses::margin_ranking(&a, &b, &y, 0.5, Reduction::None);
/// assert_eq!(loss.to_vec::<f64>(), [0.0, 2.5]);
/// ```
///
/// # Panics
/// If the operands differ in shape, or are of two float dtypes.
#[doc(alias = "margin_ranking_loss")]
#[track_caller]
#[must_use]
pub fn margin_ranking(
    a: &Tensor,
    b: &Tensor,
    y: &Tensor,
    margin: f64,
    reduction: Reduction,
) -> Tensor {
    one_float("margin_ranking", [a, b, y]);
    loss_shapes::equal("margin_ranking", &[("first", a), ("second", b), ("target", y)]);
    let losses = one_pass("margin_ranking", &[margin], [a, b, y], |[a, b, y]| {
        (-(y.up() * (a.up() - b.up())) + margin).clamp_min(0.0)
    });
    reduced(losses, reduction)
}

/// The soft margin (logistic) loss log(1 + exp(−y·x)), without overflow.
///
/// Derivative: −y·sigmoid(−y·x).
///
/// ```
/// use pullback::{Reduction, Tensor, losses};
/// let (x, y) = (Tensor::from([0.0, -1000.0]), Tensor::from([1.0, 1.0]));
/// let loss = losses::soft_margin(&x, &y, Reduction::None).to_vec::<f64>();
/// assert!((loss[0] - 2f64.ln()).abs() < 1e-15 && loss[1] == 1000.0);
/// ```
///
/// # Panics
/// If prediction and target differ in shape, or are of two float dtypes.
#[doc(alias = "soft_margin_loss")]
#[track_caller]
#[must_use]
pub fn soft_margin(x: &Tensor, y: &Tensor, reduction: Reduction) -> Tensor {
    one_float("soft_margin", [x, y]);
    loss_shapes::equal("soft_margin", &[("prediction", x), ("target", y)]);
    let losses = one_pass("soft_margin", &[], [x, y], |[x, y]| -(y.up() * x.up()).log_sigmoid());
    reduced(losses, reduction)
}

/// 1 − cos(a, b) over the last axis where y is 1, max(0, cos(a, b) − margin) where y is −1.
///
/// Derivative: of the cosine: −1 times it where y is 1, 1 times it where y is −1 and the loss is
/// not negative.
///
/// ```
/// use pullback::{Reduction, Tensor, losses};
/// let (a, b) = (Tensor::from([[1.0, 0.0], [1.0, 0.0]]), Tensor::from([[0.0, 2.0], [2.0, 0.0]]));
/// let y = Tensor::from([1.0, -1.0]);
/// let loss = losses::cosine_embedding(&a, &b, &y, 0.0, Reduction::None);
/// assert!((loss - 1.0).abs().max().item::<f64>() < 1e-9);
/// ```
///
/// # Panics
/// If `a` and `b` differ in shape, `y` does not have one element for each row, or float dtypes
/// are mixed.
#[doc(alias = "cosine_embedding_loss")]
#[track_caller]
#[must_use]
pub fn cosine_embedding(
    a: &Tensor,
    b: &Tensor,
    y: &Tensor,
    margin: f64,
    reduction: Reduction,
) -> Tensor {
    one_float("cosine_embedding", [a, b, y]);
    loss_shapes::equal("cosine_embedding", &[("first", a), ("second", b)]);
    let rows = &a.shape()[..a.rank().saturating_sub(1)];
    loss_shapes::wanted("cosine_embedding", ("first", a), ("target", y), rows);
    let dtype = a.reduced_dtype().promote(b.reduced_dtype());
    let (a, b) = (a.wide(), b.wide());
    let (size_a, size_b) = (a.square().sum_over(-1) + 1e-12, b.square().sum_over(-1) + 1e-12);
    let cosine = ((a * b).sum_over(-1) / (size_a * size_b).sqrt()).cast(dtype);
    let near = (1.0 - &cosine).only(&y.eq(1.0));
    let far = (cosine - margin).clamp_min(0.0).only(&y.eq(-1.0));
    reduced(near + far, reduction)
}

/// max(0, margin + |anchor − near| − |anchor − far|), in the norm of order `p` over the last axis;
/// with `swap`, from the nearer of anchor and `near`.
///
/// Derivative: of the distances, where the loss is not negative; else 0.
///
/// ```
/// use pullback::{Reduction, Tensor, losses};
/// let anchor = Tensor::from([[0.0, 0.0]]);
/// let (near, far) = (Tensor::from([[3.0, 0.0]]), Tensor::from([[0.0, 4.0]]));
/// let loss =
///     losses::triplet_margin(&anchor, &near, &far, (2.0, 2.0, 0.0), false, Reduction::Mean);
/// assert_eq!(loss.item::<f64>(), 1.0);
/// ```
///
/// # Panics
/// If anchor, near and far differ in shape, or are of two float dtypes.
#[doc(alias = "triplet_margin_loss")]
#[track_caller]
#[must_use]
pub fn triplet_margin(
    anchor: &Tensor,
    near: &Tensor,
    far: &Tensor,
    (margin, p, eps): (f64, f64, f64),
    swap: bool,
    reduction: Reduction,
) -> Tensor {
    one_float("triplet_margin", [anchor, near, far]);
    loss_shapes::equal("triplet_margin", &[("anchor", anchor), ("near", near), ("far", far)]);
    let to_near = anchor.pairwise_distance(near, p, eps);
    let mut to_far = anchor.pairwise_distance(far, p, eps);
    if swap {
        to_far = to_far.minimum(near.pairwise_distance(far, p, eps));
    }
    reduced((to_near - to_far + margin).clamp_min(0.0), reduction)
}
