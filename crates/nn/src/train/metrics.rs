//! What was measured: names and numbers.

use pullback::Tensor;

/// Named numbers, in the order in which they were added.
///
/// A step may return its loss alone, as a tensor or a number, or several named numbers:
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::train::Metrics;
///
/// assert_eq!(Metrics::from(Tensor::from(0.5)).get("loss"), Some(0.5));
/// let both = Metrics::from([("loss", 0.5), ("accuracy", 0.9)]);
/// assert_eq!(both.to_string(), "loss 0.5, accuracy 0.9");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics(Vec<(String, f64)>);

impl Metrics {
    /// No numbers yet.
    ///
    /// ```
    /// use pullback_nn::train::Metrics;
    /// let metrics = Metrics::new().with("loss", 0.5);
    /// assert_eq!(metrics.get("loss"), Some(0.5));
    /// ```
    #[must_use]
    pub fn new() -> Metrics {
        Metrics::default()
    }

    /// The number of this name, if there is one.
    ///
    /// ```
    /// use pullback_nn::train::Metrics;
    /// let metrics = Metrics::from([("loss", 0.5), ("accuracy", 0.9)]);
    /// assert_eq!((metrics.get("accuracy"), metrics.get("recall")), (Some(0.9), None));
    /// ```
    #[must_use]
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// Adds a number, or replaces the one of this name.
    ///
    /// ```
    /// use pullback_nn::train::Metrics;
    /// let mut metrics = Metrics::from(0.5);
    /// metrics.set("loss", 0.25);
    /// metrics.set("accuracy", 0.9);
    /// assert_eq!(metrics.to_string(), "loss 0.25, accuracy 0.9");
    /// ```
    pub fn set(&mut self, name: impl Into<String>, value: f64) {
        let name = name.into();
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }

    /// [`Metrics::set`] as a builder method.
    ///
    /// ```
    /// use pullback_nn::train::Metrics;
    /// let metrics = Metrics::new().with("loss", 0.5).with("accuracy", 0.9);
    /// assert_eq!(metrics.len(), 2);
    /// ```
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: f64) -> Metrics {
        self.set(name, value);
        self
    }

    /// Adds all numbers of another, with a prefix before their names.
    ///
    /// ```
    /// use pullback_nn::train::Metrics;
    /// let mut metrics = Metrics::from(0.5);
    /// metrics.extend("val_", &Metrics::from(0.75));
    /// assert_eq!(metrics.to_string(), "loss 0.5, val_loss 0.75");
    /// ```
    pub fn extend(&mut self, prefix: &str, other: &Metrics) {
        other.iter().for_each(|(name, value)| self.set(format!("{prefix}{name}"), value));
    }

    /// The names and numbers, in the order in which they were added.
    ///
    /// ```
    /// use pullback_nn::train::Metrics;
    /// let metrics = Metrics::from([("loss", 0.5), ("accuracy", 0.9)]);
    /// assert_eq!(metrics.iter().last(), Some(("accuracy", 0.9)));
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// The number of metrics.
    ///
    /// ```
    /// use pullback_nn::train::Metrics;
    /// assert_eq!(Metrics::from([("loss", 0.5), ("accuracy", 0.9)]).len(), 2);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no metrics.
    ///
    /// ```
    /// use pullback_nn::train::Metrics;
    /// assert!(Metrics::new().is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::fmt::Display for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, (name, value)) in self.iter().enumerate() {
            write!(f, "{}{name} {}", if i == 0 { "" } else { ", " }, short(value))?;
        }
        Ok(())
    }
}

/// A number in about four digits, as a person reads it.
pub(crate) fn short(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    if !(1e-3..1e5).contains(&size) {
        return format!("{value:.2e}");
    }
    let digits = (3 - size.log10().floor() as i32).max(0) as usize;
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

impl From<f64> for Metrics {
    fn from(loss: f64) -> Metrics {
        Metrics::new().with("loss", loss)
    }
}

/// The loss of a step: one number, of any dtype.
impl From<Tensor> for Metrics {
    fn from(loss: Tensor) -> Metrics {
        Metrics::from(loss.cast(pullback::DType::F64).item::<f64>())
    }
}

impl<const N: usize> From<[(&str, f64); N]> for Metrics {
    fn from(all: [(&str, f64); N]) -> Metrics {
        all.into_iter().fold(Metrics::new(), |out, (name, value)| out.with(name, value))
    }
}

impl<const N: usize> From<[(&str, Tensor); N]> for Metrics {
    fn from(all: [(&str, Tensor); N]) -> Metrics {
        let number = |x: Tensor| x.cast(pullback::DType::F64).item::<f64>();
        all.into_iter().fold(Metrics::new(), |out, (name, value)| out.with(name, number(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let rows = [
            (0.0, "0"),
            (0.123456, "0.1235"),
            (2.0, "2"),
            (12.3456, "12.35"),
            (98765.0, "98765"),
            (123456.0, "1.23e5"),
            (0.00012345, "1.23e-4"),
            (-1.5, "-1.5"),
            (f64::NAN, "NaN"),
        ];
        for (value, text) in rows {
            assert_eq!(short(value), text);
        }
    }
}
