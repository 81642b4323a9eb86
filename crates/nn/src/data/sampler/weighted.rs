use super::{EpochSeed, Sampler};
use pullback::{Error, Result, Tensor, catch};

/// Items drawn with probability in proportion to their weights, such as rare classes more often:
/// `torch.utils.data.WeightedRandomSampler`.
///
/// ```
/// use pullback_nn::data::{EpochSeed, Sampler, WeightedRandomSampler};
/// let sampler = WeightedRandomSampler::new([0.0, 1.0, 3.0], 100, true)?;
/// let drawn = sampler.indices(3, EpochSeed { seed: 0, epoch: 0 })?;
/// assert!(drawn.iter().all(|&i| i > 0));
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct WeightedRandomSampler {
    weights: Vec<f64>,
    samples: usize,
    replacement: bool,
}

impl WeightedRandomSampler {
    /// Draws `samples` items an epoch by these weights, one for each item; they need not sum to
    /// one. Without replacement no item occurs twice in an epoch.
    ///
    /// ```
    /// use pullback_nn::data::{EpochSeed, Sampler, WeightedRandomSampler};
    /// let sampler = WeightedRandomSampler::new([1.0, 0.0, 2.0], 2, false)?;
    /// let mut drawn = sampler.indices(3, EpochSeed { seed: 0, epoch: 0 })?;
    /// drawn.sort();
    /// assert_eq!(drawn, [0, 2]);
    /// assert!(WeightedRandomSampler::new([1.0, 0.0], 2, false).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a weight is negative or not finite, none is positive, or without replacement there are
    /// fewer positive weights than samples.
    pub fn new(
        weights: impl Into<Vec<f64>>,
        samples: usize,
        replacement: bool,
    ) -> Result<WeightedRandomSampler> {
        let weights = weights.into();
        let refuse = |message: String| Err(Error::argument("WeightedRandomSampler", message));
        if let Some(i) = weights.iter().position(|w| !w.is_finite() || *w < 0.0) {
            return refuse(format!(
                "weight {i} is {}, not a finite number of at least 0",
                weights[i]
            ));
        }
        let positive = weights.iter().filter(|w| **w > 0.0).count();
        if samples > 0 && positive == 0 {
            return refuse("no weight is positive, so nothing can be drawn".to_string());
        }
        if !replacement && samples > positive {
            return refuse(format!(
                "{samples} samples without replacement need as many positive weights, and there are {positive}"
            ));
        }
        Ok(WeightedRandomSampler { weights, samples, replacement })
    }
}

impl Sampler for WeightedRandomSampler {
    fn indices(&self, len: usize, pass: EpochSeed) -> Result<Vec<usize>> {
        if self.weights.len() != len {
            let n = self.weights.len();
            let message = format!("there are {n} weights for {len} items");
            return Err(Error::argument("WeightedRandomSampler", message));
        }
        let weights = Tensor::from(&self.weights[..]);
        let drawn = catch(|| pass.key().multinomial(&weights, self.samples, self.replacement))?;
        Ok(drawn.try_to_vec::<i64>()?.into_iter().map(|i| i as usize).collect())
    }

    fn count(&self, _: usize) -> usize {
        self.samples
    }

    fn describe(&self) -> String {
        let bytes: Vec<u8> = self.weights.iter().flat_map(|w| w.to_le_bytes()).collect();
        let how = if self.replacement { "with" } else { "without" };
        format!("{} by weights {:08x} {how} replacement", self.samples, crc32c::crc32c(&bytes))
    }
}
