//! Xavier and Kaiming initialisation: random weights scaled by the fan of a layer, so that
//! variances neither grow nor vanish from layer to layer.

use super::{fans, normal_, uniform_};
use pullback::Tensor;

/// Which of a layer's connections are counted.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Linear, init};
/// let weight = Tensor::zeros([400, 100]);
/// init::kaiming_normal_(&weight, init::Fan::Out, init::Nonlinearity::Linear);
/// // The standard deviation is 1/√400.
/// assert!((weight.std().item::<f32>() - 0.05).abs() < 0.002);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fan {
    /// Those into an output (fan in): the forward pass keeps its variance.
    #[default]
    In,
    /// Those out of an input (fan out): the backward pass keeps its variance.
    Out,
}

/// The activation after the layer: it changes the variance, and the weights compensate for it.
///
/// ```
/// use pullback_nn::{Linear, Relu, init};
/// use pullback_nn::init::Nonlinearity;
/// assert_eq!(Nonlinearity::Relu.gain(), 2f64.sqrt());
/// assert_eq!(Nonlinearity::Linear.gain(), 1.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Nonlinearity {
    /// Nothing, or a convolution.
    Linear,
    /// A sigmoid.
    Sigmoid,
    /// A hyperbolic tangent.
    Tanh,
    /// A relu.
    Relu,
    /// A leaky relu with this slope below 0.
    LeakyRelu(f64),
    /// A selu.
    Selu,
}

impl Nonlinearity {
    /// The factor by which weights before this nonlinearity are scaled: PyTorch's
    /// `nn.init.calculate_gain`.
    ///
    /// ```
    /// # use pullback_nn::init::Nonlinearity;
    /// assert_eq!(Nonlinearity::Tanh.gain(), 5.0 / 3.0);
    /// assert_eq!(Nonlinearity::LeakyRelu(0.0).gain(), Nonlinearity::Relu.gain());
    /// ```
    #[must_use]
    #[doc(alias = "calculate_gain")]
    pub fn gain(self) -> f64 {
        match self {
            Nonlinearity::Linear | Nonlinearity::Sigmoid => 1.0,
            Nonlinearity::Tanh => 5.0 / 3.0,
            Nonlinearity::Relu => 2f64.sqrt(),
            Nonlinearity::LeakyRelu(slope) => (2.0 / (1.0 + slope * slope)).sqrt(),
            Nonlinearity::Selu => 0.75,
        }
    }
}

/// A standard deviation that keeps the variance, for evenly spread draws: they go to √3 times it.
const SPREAD: f64 = 1.732_050_807_568_877_2;

/// The standard deviation of Xavier and Kaiming initialisation.
#[track_caller]
fn xavier(function: &'static str, weight: &Tensor, gain: f64) -> f64 {
    let (inputs, outputs) = fans(function, weight);
    gain * (2.0 / (inputs + outputs) as f64).sqrt()
}

#[track_caller]
fn kaiming(function: &'static str, weight: &Tensor, fan: Fan, before: Nonlinearity) -> f64 {
    let (inputs, outputs) = fans(function, weight);
    let count = match fan {
        Fan::In => inputs,
        Fan::Out => outputs,
    };
    before.gain() / (count.max(1) as f64).sqrt()
}

/// Xavier (Glorot) initialisation, uniform: over ±gain·√(6/(fan in + fan out)).
///
/// ```
/// # use pullback::Tensor;
/// # use pullback_nn::init;
/// let weight = Tensor::zeros([50, 100]);
/// init::xavier_uniform_(&weight, 1.0);
/// let bound = (6.0f32 / 150.0).sqrt();
/// assert!(weight.to_vec::<f32>().iter().all(|w| w.abs() <= bound));
/// ```
///
/// # Panics
/// If the weight has fewer than two axes.
#[track_caller]
pub fn xavier_uniform_(weight: &Tensor, gain: f64) {
    let bound = SPREAD * xavier("xavier_uniform_", weight, gain);
    uniform_(weight, -bound, bound);
}

/// Xavier (Glorot) initialisation, normal: with standard deviation gain·√(2/(fan in + fan out)).
///
/// ```
/// # use pullback::Tensor;
/// # use pullback_nn::init;
/// let weight = Tensor::zeros([100, 100]);
/// init::xavier_normal_(&weight, 1.0);
/// assert!((weight.std().item::<f32>() - 0.1).abs() < 0.005);
/// ```
///
/// # Panics
/// If the weight has fewer than two axes.
#[track_caller]
pub fn xavier_normal_(weight: &Tensor, gain: f64) {
    normal_(weight, 0.0, xavier("xavier_normal_", weight, gain));
}

/// Kaiming (He) initialisation, uniform: over ±gain·√(3/fan).
///
/// ```
/// # use pullback::Tensor;
/// # use pullback_nn::{Relu, init};
/// let weight = Tensor::zeros([50, 100]);
/// init::kaiming_uniform_(&weight, init::Fan::In, init::Nonlinearity::Relu);
/// let bound = (6.0f32 / 100.0).sqrt();
/// assert!(weight.to_vec::<f32>().iter().all(|w| w.abs() <= bound));
/// ```
///
/// # Panics
/// If the weight has fewer than two axes.
#[track_caller]
pub fn kaiming_uniform_(weight: &Tensor, fan: Fan, before: Nonlinearity) {
    let bound = SPREAD * kaiming("kaiming_uniform_", weight, fan, before);
    uniform_(weight, -bound, bound);
}

/// Kaiming (He) initialisation, normal: with standard deviation gain/√fan.
///
/// ```
/// # use pullback::Tensor;
/// # use pullback_nn::{Relu, init};
/// let weight = Tensor::zeros([100, 200]);
/// init::kaiming_normal_(&weight, init::Fan::In, init::Nonlinearity::Relu);
/// assert!((weight.std().item::<f32>() - 0.1).abs() < 0.005);
/// ```
///
/// # Panics
/// If the weight has fewer than two axes.
#[track_caller]
pub fn kaiming_normal_(weight: &Tensor, fan: Fan, before: Nonlinearity) {
    normal_(weight, 0.0, kaiming("kaiming_normal_", weight, fan, before));
}

/// What linear layers and convolutions start with: [`kaiming_uniform_`] for a slope of √5, which
/// goes to ±1/√fan, and a bias that goes there too. `weight` is `[out, in, …]`, also of a
/// transposed convolution, whose outputs PyTorch counts as its inputs.
#[track_caller]
pub(crate) fn default_weights(weight: &Tensor, bias: Option<&Tensor>) {
    kaiming_uniform_(weight, Fan::In, Nonlinearity::LeakyRelu(5f64.sqrt()));
    if let Some(bias) = bias {
        let (inputs, _) = fans("kaiming_uniform_", weight);
        let bound = if inputs > 0 { 1.0 / (inputs as f64).sqrt() } else { 0.0 };
        uniform_(bias, -bound, bound);
    }
}
