//! The mean of what comes.

/// A weighted mean, such as that of the losses of batches of several sizes.
///
/// ```
/// use pullback_nn::train::Mean;
/// let mut loss = Mean::new();
/// loss.add(1.0, 3.0);
/// loss.add(5.0, 1.0);
/// assert_eq!(loss.value(), 2.0);
/// assert_eq!(loss.perplexity(), 2f64.exp());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    /// The mean of no numbers yet.
    ///
    /// ```
    /// use pullback_nn::train::Mean;
    /// let mut loss = Mean::new();
    /// loss.add(0.5, 1.0);
    /// assert_eq!(loss.value(), 0.5);
    /// ```
    #[must_use]
    pub fn new() -> Mean {
        Mean::default()
    }

    /// Adds a number with a weight.
    ///
    /// ```
    /// use pullback_nn::train::Mean;
    /// let mut loss = Mean::new();
    /// loss.add(1.0, 64.0); // the mean of a batch of 64
    /// loss.add(5.0, 64.0);
    /// assert_eq!(loss.value(), 3.0);
    /// ```
    pub fn add(&mut self, value: f64, weight: f64) {
        self.sum += value * weight;
        self.weight += weight;
    }

    /// The weighted mean; NaN without numbers.
    ///
    /// ```
    /// use pullback_nn::train::Mean;
    /// assert!(Mean::new().value().is_nan());
    /// ```
    #[must_use]
    pub fn value(&self) -> f64 {
        self.sum / self.weight
    }

    /// The perplexity: the exponential of the mean, where the numbers are cross-entropies in nats.
    ///
    /// ```
    /// use pullback_nn::train::Mean;
    /// let mut loss = Mean::new();
    /// loss.add(0.0, 10.0);
    /// assert_eq!(loss.perplexity(), 1.0);
    /// ```
    #[must_use]
    pub fn perplexity(&self) -> f64 {
        self.value().exp()
    }

    /// The weighted sum and the weight.
    pub(crate) fn parts(&self) -> (f64, f64) {
        (self.sum, self.weight)
    }

    pub(crate) fn from_parts(sum: f64, weight: f64) -> Mean {
        Mean { sum, weight }
    }
}
