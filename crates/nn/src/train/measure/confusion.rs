//! Which class was taken for which.

use crate::refuse::demand;
use pullback::Tensor;
use std::fmt;

/// The confusion matrix: how many examples of each class were predicted as each class.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::train::Confusion;
/// let mut confusion = Confusion::new(2);
/// let scores = Tensor::from([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]]);
/// confusion.add(&scores, &Tensor::from([1i64, 0, 0]));
/// assert_eq!(confusion.rows(), [[1, 1], [0, 1]]);
/// assert_eq!((confusion.recall(0), confusion.precision(1)), (0.5, 0.5));
/// ```
#[derive(Clone, Debug)]
pub struct Confusion {
    counts: Vec<Vec<u64>>,
}

impl Confusion {
    /// An empty confusion matrix for this many classes.
    ///
    /// ```
    /// use pullback_nn::train::Confusion;
    /// assert_eq!(Confusion::new(2).rows(), [[0, 0], [0, 0]]);
    /// ```
    ///
    /// # Panics
    /// If a matrix of this size cannot be allocated.
    #[track_caller]
    #[must_use]
    pub fn new(classes: usize) -> Confusion {
        let mut all = Vec::<u64>::new();
        let fits = classes.checked_mul(classes).is_some_and(|n| all.try_reserve_exact(n).is_ok());
        demand(fits, "Confusion", || format!("cannot allocate a table of {classes} classes"));
        drop(all);
        Confusion { counts: vec![vec![0; classes]; classes] }
    }

    /// Adds a batch: scores `[…, classes]`, and labels `[…]` of an integer dtype. Labels that are
    /// not a class are ignored.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::train::Confusion;
    /// let mut confusion = Confusion::new(2);
    /// confusion.add(&Tensor::from([[0.1, 0.9], [0.8, 0.2]]), &Tensor::from([0i64, 0]));
    /// assert_eq!(confusion.rows(), [[1, 1], [0, 0]]);
    /// ```
    ///
    /// # Panics
    /// If the scores are not of as many classes, or there are not as many labels as rows of scores.
    #[track_caller]
    pub fn add(&mut self, scores: &Tensor, labels: &Tensor) {
        let (rows, labels, classes) = (scores.to_f64_vec(), labels.to_f64_vec(), self.counts.len());
        let fits = scores.shape().last() == Some(&classes) && rows.len() == labels.len() * classes;
        assert!(
            fits,
            "confusion: {} labels and {} do not fit {classes} classes",
            labels.len(),
            scores.spec()
        );
        for (row, label) in rows.chunks(classes.max(1)).zip(labels) {
            let best = (0..classes).reduce(|best, i| if row[i] > row[best] { i } else { best });
            let counts = self.counts.get_mut(label as usize).filter(|_| label >= 0.0);
            if let (Some(counts), Some(best)) = (counts, best) {
                counts[best] += 1;
            }
        }
    }

    /// The counts: row `i`, column `j` is the number of examples of class `i` that were predicted
    /// as class `j`.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::train::Confusion;
    /// let mut confusion = Confusion::new(2);
    /// confusion.add(&Tensor::from([[0.1, 0.9]]), &Tensor::from([0i64]));
    /// assert_eq!(confusion.rows()[0], [0, 1]);
    /// ```
    #[must_use]
    pub fn rows(&self) -> &[Vec<u64>] {
        &self.counts
    }

    /// The fraction of correct predictions; NaN without examples.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::train::Confusion;
    /// let mut confusion = Confusion::new(2);
    /// confusion.add(&Tensor::from([[0.1, 0.9], [0.8, 0.2]]), &Tensor::from([0i64, 0]));
    /// assert_eq!(confusion.accuracy(), 0.5);
    /// ```
    #[must_use]
    pub fn accuracy(&self) -> f64 {
        let right: u64 = (0..self.counts.len()).map(|i| self.counts[i][i]).sum();
        right as f64 / self.counts.iter().flatten().sum::<u64>() as f64
    }

    /// The recall of a class: the fraction of its examples that were predicted as it; NaN without
    /// such examples.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::train::Confusion;
    /// let mut confusion = Confusion::new(2);
    /// confusion.add(&Tensor::from([[0.1, 0.9], [0.8, 0.2]]), &Tensor::from([0i64, 0]));
    /// assert_eq!(confusion.recall(0), 0.5);
    /// ```
    ///
    /// # Panics
    /// If `class` is not less than the number of classes.
    #[must_use]
    pub fn recall(&self, class: usize) -> f64 {
        self.counts[class][class] as f64 / self.counts[class].iter().sum::<u64>() as f64
    }

    /// The precision of a class: the fraction of the examples predicted as it that are of it; NaN
    /// without such predictions.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::train::Confusion;
    /// let mut confusion = Confusion::new(2);
    /// confusion.add(&Tensor::from([[0.1, 0.9], [0.8, 0.2]]), &Tensor::from([0i64, 0]));
    /// assert_eq!((confusion.precision(0), confusion.precision(1)), (1.0, 0.0));
    /// ```
    ///
    /// # Panics
    /// If `class` is not less than the number of classes.
    #[must_use]
    pub fn precision(&self, class: usize) -> f64 {
        let given: u64 = self.counts.iter().map(|row| row[class]).sum();
        self.counts[class][class] as f64 / given as f64
    }
}

/// A table, true classes down, given ones across.
impl fmt::Display for Confusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widest = self.counts.iter().flatten().max().map_or(1, |n| n.to_string().len());
        let width = widest.max(self.counts.len().to_string().len()) + 1;
        write!(f, "{:width$} ", "")?;
        (0..self.counts.len()).try_for_each(|class| write!(f, "{class:width$}"))?;
        for (class, row) in self.counts.iter().enumerate() {
            write!(f, "\n{class:width$} ")?;
            row.iter().try_for_each(|n| write!(f, "{n:width$}"))?;
        }
        Ok(())
    }
}
