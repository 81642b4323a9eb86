//! How often the right class was given.

use crate::refuse::refuse;
use pullback::{Error, Tensor};

/// The accuracy over many batches: the fraction of examples whose label has the largest score, or
/// one of the `top` largest.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::train::Accuracy;
/// let mut accuracy = Accuracy::new();
/// let scores = Tensor::from([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]]);
/// accuracy.add(&scores, &Tensor::from([1i64, 0, 0]));
/// assert_eq!(accuracy.value(), 2.0 / 3.0);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Accuracy {
    top: usize,
    right: u64,
    all: u64,
}

impl Default for Accuracy {
    fn default() -> Accuracy {
        Accuracy::new()
    }
}

impl Accuracy {
    /// The accuracy of no examples yet.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::train::Accuracy;
    /// let mut accuracy = Accuracy::new();
    /// accuracy.add(&Tensor::from([[0.1, 0.9], [0.8, 0.2]]), &Tensor::from([1i64, 1]));
    /// assert_eq!(accuracy.value(), 0.5);
    /// ```
    #[must_use]
    pub fn new() -> Accuracy {
        Accuracy::top(1)
    }

    /// Counts a prediction as correct if the label is among the `count` largest scores (at least
    /// 1).
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::train::Accuracy;
    /// let mut accuracy = Accuracy::top(2);
    /// let scores = Tensor::from([[0.2, 0.5, 0.3], [0.2, 0.5, 0.3]]);
    /// accuracy.add(&scores, &Tensor::from([2i64, 0]));
    /// assert_eq!(accuracy.value(), 0.5);
    /// ```
    #[must_use]
    pub fn top(count: usize) -> Accuracy {
        Accuracy { top: count.max(1), right: 0, all: 0 }
    }

    /// Adds a batch: scores `[…, classes]`, and labels `[…]` of an integer dtype.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::train::Accuracy;
    /// let mut accuracy = Accuracy::new();
    /// accuracy.add(&Tensor::from([[0.1, 0.9]]), &Tensor::from([1i64]));
    /// accuracy.add(&Tensor::from([[0.1, 0.9]]), &Tensor::from([0i64]));
    /// assert_eq!(accuracy.value(), 0.5);
    /// ```
    ///
    /// # Panics
    /// If the labels are floats, there are not as many labels as rows of scores, or a label is not
    /// the number of a class.
    #[track_caller]
    pub fn add(&mut self, scores: &Tensor, labels: &Tensor) {
        let classes = *scores.shape().last().unwrap_or(&1);
        let rows = scores.to_f64_vec();
        let found = labels.to_f64_vec();
        let strange = found.iter().find(|&&label| label < 0.0 || label >= classes as f64);
        let wrong = match strange {
            _ if labels.dtype().is_float() => {
                Some(format!("labels are numbers of classes, not {}", labels.dtype()))
            }
            _ if found.len() * classes != rows.len() => {
                Some(format!("{} labels do not fit {}", found.len(), scores.spec()))
            }
            Some(label) => Some(format!("label {label} is not one of {classes} classes")),
            None => None,
        };
        if let Some(message) = wrong {
            refuse(Error::argument("accuracy", message).on([scores.spec(), labels.spec()]));
        }
        for (row, &label) in rows.chunks(classes.max(1)).zip(&found) {
            self.all += 1;
            let own = row[label as usize];
            // Of equal scores the first counts, as with argmax; a NaN is never right.
            let ahead = row.iter().enumerate().filter(|&(i, &score)| {
                score > own || score.is_nan() || (score == own && i < label as usize)
            });
            self.right += u64::from(!own.is_nan() && ahead.count() < self.top);
        }
    }

    /// The fraction of correct predictions; NaN without examples.
    ///
    /// ```
    /// use pullback_nn::train::Accuracy;
    /// assert!(Accuracy::new().value().is_nan());
    /// ```
    #[must_use]
    pub fn value(&self) -> f64 {
        self.right as f64 / self.all as f64
    }
}
