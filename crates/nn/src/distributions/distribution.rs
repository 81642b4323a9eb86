//! What all distributions can do.

use crate::refuse::refuse;
use pullback::{Device, Error, Key, Tensor, next_key_on, no_grad};

/// A probability distribution, or a batch of independent ones: PyTorch's `Distribution`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::distributions::{Distribution, Gamma, Uniform};
/// let all: [Box<dyn Distribution>; 2] =
///     [Box::new(Uniform::new(0.0, 2.0)), Box::new(Gamma::new(2.0, 2.0))];
/// for d in &all {
///     assert_eq!(d.mean().item::<f32>(), 1.0);
///     assert!(d.log_prob(&d.sample(&[10])).is_finite().all().item::<bool>());
/// }
/// ```
pub trait Distribution {
    /// The name of the distribution, as in error messages.
    ///
    /// ```
    /// use pullback_nn::distributions::{Distribution, Normal};
    /// assert_eq!(Normal::new(0.0, 1.0).name(), "Normal");
    /// ```
    ///
    /// # Panics
    /// Never.
    fn name(&self) -> &'static str;

    /// The shape of the batch of distributions.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::{Distribution, Normal};
    /// let d = Normal::new(Tensor::zeros([4, 1]), Tensor::ones([3]));
    /// assert_eq!((d.batch_shape(), d.event_shape()), (&[4, 3][..], &[][..]));
    /// assert!(d.has_rsample() && d.name() == "Normal");
    /// ```
    ///
    /// # Panics
    /// Never.
    fn batch_shape(&self) -> &[usize];

    /// The shape of one draw of one distribution: `[]` for numbers.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::{Dirichlet, Distribution};
    /// let d = Dirichlet::new(Tensor::ones([5, 3]));
    /// assert_eq!((d.batch_shape(), d.event_shape()), (&[5][..], &[3][..]));
    /// ```
    fn event_shape(&self) -> &[usize] {
        &[]
    }

    /// The device of the arguments.
    ///
    /// ```
    /// use pullback::Device;
    /// use pullback_nn::distributions::{Distribution, Normal};
    /// assert_eq!(Normal::new(0.0, 1.0).device(), Device::Cpu);
    /// ```
    ///
    /// # Panics
    /// Never.
    fn device(&self) -> Device;

    /// Whether [`Distribution::rsample`] is supported.
    ///
    /// ```
    /// use pullback_nn::distributions::{Bernoulli, Distribution, Normal};
    /// assert!(Normal::new(0.0, 1.0).has_rsample());
    /// assert!(!Bernoulli::new(0.5).has_rsample());
    /// ```
    fn has_rsample(&self) -> bool {
        true
    }

    /// Draws from the global generator: `sample_shape + batch_shape + event_shape`. The result has
    /// no gradient.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::{Bernoulli, Distribution};
    /// let coins = Bernoulli::new(Tensor::from([0.0, 1.0])).sample(&[3]);
    /// assert_eq!(coins.to_vec::<f64>(), [0.0, 1.0, 0.0, 1.0, 0.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If the draws are larger than memory.
    #[track_caller]
    fn sample(&self, sample_shape: &[usize]) -> Tensor {
        self.sample_with(&next_key_on(self.device()), sample_shape)
    }

    /// [`Distribution::sample`] from a key: the same key gives the same draws.
    ///
    /// ```
    /// use pullback::Key;
    /// use pullback_nn::distributions::{Distribution, Exponential};
    /// let draw = || Exponential::new(2.0).sample_with(&Key::new(7), &[4]).to_vec::<f32>();
    /// assert_eq!(draw(), draw());
    /// ```
    ///
    /// # Panics
    /// If the draws are larger than memory, or the key is on another device.
    #[track_caller]
    fn sample_with(&self, key: &Key, sample_shape: &[usize]) -> Tensor {
        no_grad(|| self.rsample_with(key, sample_shape).detach())
    }

    /// A reparametrised draw from the global generator: a differentiable function of the arguments.
    ///
    /// # Panics
    /// If the distribution has none, as those over integers.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::{Distribution, Normal};
    /// let loc = Tensor::from(1.0).requires_grad();
    /// Normal::new(&loc, 3.0).rsample(&[4]).sum().backward()?;
    /// assert_eq!(loc.grad().unwrap().item::<f64>(), 4.0);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[track_caller]
    fn rsample(&self, sample_shape: &[usize]) -> Tensor {
        self.rsample_with(&next_key_on(self.device()), sample_shape)
    }

    /// [`Distribution::rsample`] from a key.
    ///
    /// ```
    /// use pullback::{Key, Tensor, grad};
    /// use pullback_nn::distributions::{Distribution, Exponential};
    /// let draw = |rate: &Tensor| Exponential::new(rate).rsample_with(&Key::new(0), &[]);
    /// let rate = Tensor::from(2.0);
    /// let slope = grad(draw)(&rate).item::<f64>();
    /// assert!((slope + draw(&rate).item::<f64>() / 2.0).abs() < 1e-12);
    /// ```
    ///
    /// # Panics
    /// If the distribution has none, as those over integers.
    #[track_caller]
    fn rsample_with(&self, key: &Key, sample_shape: &[usize]) -> Tensor {
        let _ = (key, sample_shape);
        let message = "has no reparametrised samples: its values are integers";
        refuse(Error::gradient(self.name(), message).hint("use sample, and log_prob in the loss"))
    }

    /// The logarithm of the density, or of the probability, of values that broadcast against
    /// `batch_shape + event_shape`; −∞ outside the support.
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::{Distribution, Exponential};
    /// let y = Exponential::new(Tensor::from(2.0)).log_prob(&Tensor::from([0.0, 1.0, -1.0]));
    /// let log2 = std::f64::consts::LN_2;
    /// assert_eq!(y.to_vec::<f64>(), [log2, log2 - 2.0, f64::NEG_INFINITY]);
    /// ```
    #[track_caller]
    fn log_prob(&self, value: &Tensor) -> Tensor;

    /// The entropy, of shape `batch_shape`, in nats.
    ///
    /// ```
    /// use pullback_nn::distributions::{Distribution, Uniform};
    /// assert_eq!(Uniform::new(2.0, 3.0).entropy().item::<f32>(), 0.0);
    /// ```
    ///
    /// # Panics
    /// If it has no closed form ([`Poisson`](super::Poisson)).
    #[track_caller]
    fn entropy(&self) -> Tensor;

    /// The mean, of shape `batch_shape + event_shape`; NaN where there is none.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::{Distribution, Exponential};
    /// assert_eq!(Exponential::new(Tensor::from([1.0, 4.0])).mean().to_vec::<f64>(), [1.0, 0.25]);
    /// ```
    ///
    /// # Panics
    /// Never.
    fn mean(&self) -> Tensor;

    /// The variance of each element, of shape `batch_shape + event_shape`; NaN where there is none.
    ///
    /// ```
    /// use pullback_nn::distributions::{Distribution, Poisson};
    /// let d = Poisson::new(4.0);
    /// assert_eq!((d.mean().item::<f32>(), d.variance().item::<f32>()), (4.0, 4.0));
    /// assert_eq!(d.stddev().item::<f32>(), 2.0);
    /// ```
    ///
    /// # Panics
    /// Never.
    fn variance(&self) -> Tensor;

    /// The standard deviation: the square root of [`Distribution::variance`].
    ///
    /// ```
    /// use pullback_nn::distributions::{Distribution, Poisson};
    /// assert_eq!(Poisson::new(4.0).stddev().item::<f32>(), 2.0);
    /// ```
    ///
    /// # Panics
    /// Never.
    fn stddev(&self) -> Tensor {
        self.variance().sqrt()
    }

    /// The probability of a draw at most `value`.
    ///
    /// # Panics
    /// If it has no closed form among the functions of tensors.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::{Distribution, Laplace};
    /// let half = Laplace::new(3.0, 1.0).cdf(&Tensor::from(3.0));
    /// assert_eq!(half.item::<f64>(), 0.5);
    /// ```
    #[track_caller]
    fn cdf(&self, value: &Tensor) -> Tensor {
        let _ = value;
        refuse(Error::argument(self.name(), "its distribution function has no closed form here"))
    }

    /// The value that a draw is at most with this probability: the inverse of
    /// [`Distribution::cdf`]. NaN outside [0, 1].
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::{Distribution, Gamma};
    /// let d = Gamma::new(Tensor::from(2.5), 1.0);
    /// let x = d.icdf(&Tensor::from(0.9));
    /// assert!((d.cdf(&x).item::<f64>() - 0.9).abs() < 1e-14);
    /// ```
    ///
    /// # Panics
    /// If it has no closed form among the functions of tensors.
    #[track_caller]
    fn icdf(&self, value: &Tensor) -> Tensor {
        let _ = value;
        refuse(Error::argument(self.name(), "its quantile function has no closed form here"))
    }
}

/// The methods that follow from a name and one argument of shape `batch_shape`.
macro_rules! described {
    ($name:literal, $argument:ident) => {
        fn name(&self) -> &'static str {
            $name
        }

        fn batch_shape(&self) -> &[usize] {
            self.$argument.shape()
        }

        fn device(&self) -> pullback::Device {
            self.$argument.device()
        }
    };
}
pub(super) use described;
