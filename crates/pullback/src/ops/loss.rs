//! Cross-entropy with PyTorch's options.

use super::loss_shapes::reshape_to;
use crate::ops::cast::one_float;
use crate::ops::losses::{CAST_LABELS, IGNORED, check_range, reduced};
use crate::{DType, Error, Tensor, fail, mode};
use pullback_ir::Line;

/// How a loss over many elements becomes one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// The (weighted) mean.
    #[default]
    Mean,
    /// The sum.
    Sum,
    /// The sum over the length of the first axis: the mean over the samples of a batch.
    BatchMean,
    /// Not at all: one loss per element.
    None,
}

/// Options of [`cross_entropy`].
///
/// ```
/// use pullback::{CrossEntropy, Tensor};
/// let logits = Tensor::from([[2.0, 0.0], [0.0, 1.0]]);
/// let loss = CrossEntropy::new().label_smoothing(0.1).of(&logits, &Tensor::from([0i64, 1]));
/// assert!(loss.item::<f64>() > 0.0);
/// ```
#[derive(Clone, Debug, Default)]
pub struct CrossEntropy {
    weight: Option<Tensor>,
    ignore_index: Option<i64>,
    label_smoothing: f64,
    reduction: Reduction,
}

/// The mean cross-entropy of logits `[n, c, …]` against classes `[n, …]` (integers) or
/// probabilities shaped as the logits. Elements of the class −100 are ignored.
///
/// Derivative: softmax(logits) − target, for each row.
///
/// ```
/// use pullback::{Tensor, cross_entropy};
/// let loss = cross_entropy(&Tensor::zeros([4, 10]), &Tensor::from([1i64, 2, 3, 4]));
/// assert!((loss.item::<f32>() - 10f32.ln()).abs() < 1e-6);
/// ```
///
/// Logits of any size work, where the direct formula overflows:
///
/// ```
/// use pullback::{Tensor, cross_entropy, grad};
/// let (x, class) = (Tensor::from([[1e4, -1e4]]), Tensor::from([1i64]));
/// let in_words = |x: &Tensor| -(x.exp() / x.exp().sum_keep(1)).log().at((0, 1));
/// assert!(!in_words(&x).item::<f64>().is_finite());
/// assert_eq!(cross_entropy(&x, &class).item::<f64>(), 2e4);
/// assert_eq!(grad(|x: &Tensor| cross_entropy(x, &class))(&x).to_vec::<f64>(), [1.0, -1.0]);
/// ```
///
/// # Panics
/// If the shapes do not fit, the target is neither integers nor probabilities, or a class is out of
/// range.
#[track_caller]
#[must_use]
pub fn cross_entropy(logits: &Tensor, target: &Tensor) -> Tensor {
    CrossEntropy::new().of(logits, target)
}

impl CrossEntropy {
    /// The mean over all elements, without weights or smoothing.
    ///
    /// ```
    /// use pullback::{CrossEntropy, Tensor};
    /// let loss = CrossEntropy::new().of(&Tensor::zeros([4, 10]), &Tensor::from([1i64, 2, 3, 4]));
    /// assert!((loss.item::<f32>() - 10f32.ln()).abs() < 1e-6);
    /// ```
    #[must_use]
    pub fn new() -> CrossEntropy {
        CrossEntropy::default()
    }

    /// A weight for each class.
    ///
    /// ```
    /// use pullback::{CrossEntropy, Tensor};
    /// let logits = Tensor::from([[0.0, 0.0], [0.0, 2.0]]);
    /// // Class 1 does not count.
    /// let loss = CrossEntropy::new().weight(&Tensor::from([1.0, 0.0]));
    /// let loss = loss.of(&logits, &Tensor::from([0i64, 1]));
    /// assert!((loss.item::<f64>() - 2f64.ln()).abs() < 1e-15);
    /// ```
    #[must_use]
    pub fn weight(mut self, weight: &Tensor) -> CrossEntropy {
        self.weight = Some(weight.clone());
        self
    }

    /// Elements of this class are ignored; by default −100.
    ///
    /// ```
    /// use pullback::{CrossEntropy, Tensor};
    /// let logits = Tensor::from([[0.0, 0.0], [9.0, 2.0]]);
    /// let loss = CrossEntropy::new().ignore_index(1).of(&logits, &Tensor::from([0i64, 1]));
    /// assert!((loss.item::<f64>() - 2f64.ln()).abs() < 1e-15);
    /// ```
    #[must_use]
    pub fn ignore_index(mut self, class: i64) -> CrossEntropy {
        self.ignore_index = Some(class);
        self
    }

    /// Mixes the target with the uniform distribution: 0 is none, 1 is all.
    ///
    /// ```
    /// use pullback::{CrossEntropy, Tensor};
    /// let (logits, class) = (Tensor::from([[100.0, 0.0]]), Tensor::from([0i64]));
    /// // Half of a tenth is the target of the other class, which costs 100.
    /// let loss = CrossEntropy::new().label_smoothing(0.1).of(&logits, &class);
    /// assert!((loss.item::<f64>() - 5.0).abs() < 1e-12);
    /// ```
    #[must_use]
    pub fn label_smoothing(mut self, amount: f64) -> CrossEntropy {
        self.label_smoothing = amount;
        self
    }

    /// How the losses become one number.
    ///
    /// ```
    /// use pullback::{CrossEntropy, Reduction, Tensor};
    /// let loss = CrossEntropy::new().reduction(Reduction::None);
    /// let each = loss.of(&Tensor::zeros([2, 10]), &Tensor::from([1i64, 2]));
    /// assert_eq!(each.shape(), [2]);
    /// ```
    #[must_use]
    pub fn reduction(mut self, reduction: Reduction) -> CrossEntropy {
        self.reduction = reduction;
        self
    }

    /// The loss.
    ///
    /// Derivative: softmax(logits) − target for each row, weighted.
    ///
    /// ```
    /// use pullback::{CrossEntropy, Tensor};
    /// let logits = Tensor::from([[0.0, 0.0]]);
    /// // Classes, or probabilities.
    /// let a = CrossEntropy::new().of(&logits, &Tensor::from([1i64]));
    /// let b = CrossEntropy::new().of(&logits, &Tensor::from([[0.25, 0.75]]));
    /// assert!((a.item::<f64>() - 2f64.ln()).abs() < 1e-15);
    /// assert!((b.item::<f64>() - 2f64.ln()).abs() < 1e-15);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not fit, the target is neither integers nor probabilities, or a class is
    /// out of range.
    #[track_caller]
    #[must_use]
    pub fn of(&self, logits: &Tensor, target: &Tensor) -> Tensor {
        let at = mode::user_line(Line::caller());
        if let Err(error) = self.check(logits, target) {
            fail::raise(error.on([logits.spec(), target.spec()]).at(at));
        }
        one_float("cross_entropy", [logits, target].into_iter().chain(&self.weight));
        // Rows of classes: [n, c, d…] becomes [n·d…, c].
        let vector = logits.rank() == 1;
        let logits = if vector { logits.unsqueeze(0) } else { logits.clone() };
        let c = logits.shape()[1];
        let rows = |x: &Tensor| x.move_axis(1, -1).reshape([x.len() / c.max(1), c]);
        let mut shape = logits.shape().to_vec();
        shape.remove(1);
        if vector {
            shape.clear();
        }
        if target.dtype().is_float() {
            let logits = logits.up();
            let target = if vector { target.unsqueeze(0) } else { target.clone() };
            return self.of_probabilities(&rows(&logits), &rows(&target), &shape);
        }
        self.of_classes(&rows(&logits), &target.cast(DType::I64).reshape([-1]), &shape)
    }

    fn check(&self, logits: &Tensor, target: &Tensor) -> crate::Result<()> {
        let (l, t) = (logits.shape(), target.shape());
        let axis = usize::from(l.len() > 1);
        if l.is_empty() {
            return Err(Error::shape("cross_entropy", "0-d logits have no classes"));
        }
        let without_classes: Vec<usize> =
            l.iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, &n)| n).collect();
        let wants = match target.dtype().is_float() {
            true if t == without_classes && t != l => {
                let message = format!(
                    "the target {} has the shape of class labels, which must be integers; float \
                     targets are probabilities of shape {l:?}",
                    target.spec()
                );
                return Err(Error::dtype("cross_entropy", message).hint(CAST_LABELS));
            }
            true => l.to_vec(),
            false => without_classes,
        };
        if t != wants {
            let message = format!(
                "logits {} want a target of shape {wants:?}, not {}",
                logits.spec(),
                target.spec()
            );
            return Err(Error::shape("cross_entropy", message).hint(reshape_to(target, &wants)));
        }
        if l[axis] == 0 {
            return Err(Error::shape("cross_entropy", "there are no classes"));
        }
        if !(0.0..=1.0).contains(&self.label_smoothing) {
            let message =
                format!("label smoothing must be between 0 and 1, not {}", self.label_smoothing);
            return Err(Error::argument("cross_entropy", message));
        }
        if let Some(weight) = self.weight.as_ref().filter(|w| w.shape() != [l[axis]]) {
            let message = format!(
                "the weight must have one element per class ({}), not {}",
                l[axis],
                weight.spec()
            );
            return Err(Error::shape("cross_entropy", message));
        }
        Ok(())
    }

    #[track_caller]
    fn of_classes(&self, logits: &Tensor, classes: &Tensor, shape: &[usize]) -> Tensor {
        let ignored = self.ignore_index.unwrap_or(IGNORED);
        // One formula for every device: which rows count is a mask, not a decision. Rows that do
        // not count are computed for class 0, and dropped.
        let counted = classes.ne(ignored);
        let safe = counted.select(classes, classes.zeros_like_splat());
        let mut weights = counted.cast(logits.reduced_dtype());
        if self.weight.is_none() && self.label_smoothing == 0.0 {
            // The kernel refuses classes out of range itself, and computes in the wider dtype.
            let losses = logits.row_cross_entropy(&safe).cast(weights.dtype());
            return self.reduce(losses.only(&counted), Some(weights), shape);
        }
        check_range("cross_entropy", classes, ignored, logits.shape()[1]);
        let logits = logits.up();
        let log_p = logits.log_softmax(1);
        if let Some(w) = &self.weight {
            weights *= w.cast(logits.dtype()).gather(0, &safe);
        }
        let picked = log_p.gather(1, &safe.unsqueeze(1)).squeeze_axis(1);
        let mut losses = -(picked.only(&counted) * &weights);
        if self.label_smoothing > 0.0 {
            let each = match &self.weight {
                Some(w) => log_p * w.cast(logits.dtype()),
                None => log_p,
            };
            let uniform = -each.mean_over(1).only(&counted);
            losses = losses * (1.0 - self.label_smoothing) + uniform * self.label_smoothing;
        }
        self.reduce(losses, Some(weights), shape)
    }

    #[track_caller]
    fn of_probabilities(&self, logits: &Tensor, target: &Tensor, shape: &[usize]) -> Tensor {
        let c = logits.shape()[1] as f64;
        let target = target * (1.0 - self.label_smoothing) + self.label_smoothing / c;
        let mut terms = logits.log_softmax(1) * target;
        if let Some(w) = &self.weight {
            terms *= w.cast(logits.dtype());
        }
        self.reduce(-terms.sum_over(1), None, shape)
    }

    #[track_caller]
    fn reduce(&self, losses: Tensor, weights: Option<Tensor>, shape: &[usize]) -> Tensor {
        match (self.reduction, weights) {
            (Reduction::None, _) => losses.reshape(shape),
            (Reduction::Sum, _) => losses.sum(),
            (Reduction::BatchMean, _) => reduced(losses.reshape(shape), Reduction::BatchMean),
            (Reduction::Mean, None) => losses.mean(),
            (Reduction::Mean, Some(weights)) => losses.weighted_mean(&weights),
        }
    }
}
