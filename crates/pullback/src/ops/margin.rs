//! Losses over classes and labels with a margin, re-exported from [`crate::losses`].

use super::loss_shapes;
use crate::ops::cast::one_float;
use crate::ops::losses::{CAST_LABELS, reduced};
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
