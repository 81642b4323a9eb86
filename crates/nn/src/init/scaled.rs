//! Draws scaled by the fan of a layer, so that variances neither grow nor vanish from layer to
//! layer.

use super::{fans, normal_, uniform_};
use pullback::Tensor;

/// Which of a layer's connections are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fan {
    /// Those into an output (fan in): the forward pass keeps its variance.
    #[default]
    In,
    /// Those out of an input (fan out): the backward pass keeps its variance.
    Out,
}

/// The activation after the layer: it changes the variance, and the weights compensate for it.
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
    /// What weights are scaled by before it (`calculate_gain`).
    ///
    /// ```
    /// # use pullback_nn::init::Nonlinearity;
    /// assert_eq!(Nonlinearity::Tanh.gain(), 5.0 / 3.0);
    /// assert_eq!(Nonlinearity::LeakyRelu(0.0).gain(), Nonlinearity::Relu.gain());
    /// ```
    #[must_use]
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

/// Xavier's (Glorot's) initialisation, spread evenly.
///
/// # Panics
/// If the weight has fewer than two axes.
#[track_caller]
pub fn xavier_uniform_(weight: &Tensor, gain: f64) {
    let bound = SPREAD * xavier("xavier_uniform_", weight, gain);
    uniform_(weight, -bound, bound);
}

/// Xavier's (Glorot's) initialisation, normal.
///
/// # Panics
/// If the weight has fewer than two axes.
#[track_caller]
pub fn xavier_normal_(weight: &Tensor, gain: f64) {
    normal_(weight, 0.0, xavier("xavier_normal_", weight, gain));
}

/// Kaiming's (He's) initialisation, spread evenly.
///
/// # Panics
/// If the weight has fewer than two axes.
#[track_caller]
pub fn kaiming_uniform_(weight: &Tensor, fan: Fan, before: Nonlinearity) {
    let bound = SPREAD * kaiming("kaiming_uniform_", weight, fan, before);
    uniform_(weight, -bound, bound);
}

/// Kaiming's (He's) initialisation, normal.
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
