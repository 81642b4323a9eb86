//! Activations: functions of each element, and of each line along an axis.

use crate::{Layer, module_scope};
use pullback::{Flag, Tensor, Tree, next_key_on};

/// A row is a layer: its name, its options with their defaults, and what it does to `x` (`f` are
/// its options). A layer without options is written as it is called, `Relu`; one with options is
/// `LeakyRelu::new(0.2)` or, with PyTorch's values, `LeakyRelu::default()`.
macro_rules! activations {
    ($($(#[$doc:meta])* $name:ident $({ $($(#[$about:meta])* $option:ident: $type:ty = $default:expr),* })? |$x:ident, $f:ident| $y:expr;)*) => {$(
        activations!(@type $(#[$doc])* $name $({ $($(#[$about])* $option: $type = $default),* })?);

        impl Layer for $name {
            fn forward(&self, $x: &Tensor) -> Tensor {
                let scope = module_scope(self);
                let $f = self;
                let y = $y;
                scope.output(y)
            }
        }
    )*};
    (@type $(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, Tree)]
        pub struct $name;
    };
    (@type $(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $option:ident: $type:ty = $default:expr),* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Tree)]
        pub struct $name {
            $($(#[$about])* pub $option: $type,)*
        }

        impl $name {
            /// With these options.
            #[must_use]
            pub fn new($($option: $type),*) -> $name {
                $name { $($option),* }
            }
        }

        impl Default for $name {
            /// With PyTorch's options.
            fn default() -> $name {
                $name { $($option: $default),* }
            }
        }
    };
}

activations! {
    /// The input itself.
    Identity |x, _f| x.clone();
    /// max(x, 0)
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Layer, Relu};
    /// assert_eq!(Relu.forward(&Tensor::from([-1.0, 2.0])).to_vec::<f64>(), [0.0, 2.0]);
    /// ```
    Relu |x, _f| x.relu();
    /// min(max(x, 0), 6)
    Relu6 |x, _f| x.relu6();
    /// x above 0, a multiple of it below.
    LeakyRelu {
        /// The slope below 0.
        negative_slope: f64 = 0.01
    } |x, f| x.leaky_relu(f.negative_slope);
    /// x·Φ(x), with the distribution function of the normal distribution.
    Gelu |x, _f| x.gelu();
    /// The tanh approximation of [`Gelu`], as GPT-2 has it.
    GeluTanh |x, _f| x.gelu_tanh();
    /// x·sigmoid(x), also known as swish.
    Silu |x, _f| x.silu();
    /// The hyperbolic tangent.
    Tanh |x, _f| x.tanh();
    /// 1/(1 + e⁻ˣ)
    Sigmoid |x, _f| x.sigmoid();
    /// The logarithm of the sigmoid.
    LogSigmoid |x, _f| x.log_sigmoid();
    /// x above 0, alpha·(eˣ − 1) below.
    Elu {
        /// The negative of the limit at −∞.
        alpha: f64 = 1.0
    } |x, f| x.elu(f.alpha);
    /// A scaled elu that keeps mean 0 and variance 1.
    Selu |x, _f| x.selu();
    /// x above 0, alpha·(exp(x/alpha) − 1) below.
    Celu {
        /// The negative of the limit at −∞.
        alpha: f64 = 1.0
    } |x, f| x.celu(f.alpha);
    /// log(1 + exp(beta·x))/beta, and x itself where beta·x is above the threshold.
    Softplus {
        /// How sharp the bend is.
        beta: f64 = 1.0,
        /// Where it becomes x itself.
        threshold: f64 = 20.0
    } |x, f| x.softplus(f.beta, f.threshold);
    /// x/(1 + |x|)
    Softsign |x, _f| x.softsign();
    /// x·tanh(softplus(x))
    Mish |x, _f| x.mish();
    /// x·min(max(x + 3, 0), 6)/6
    Hardswish |x, _f| x.hardswish();
    /// min(max(x + 3, 0), 6)/6
    Hardsigmoid |x, _f| x.hardsigmoid();
    /// x between two bounds, the bound outside.
    Hardtanh {
        /// The lower bound.
        min_val: f64 = -1.0,
        /// The upper bound.
        max_val: f64 = 1.0
    } |x, f| x.hardtanh(f.min_val, f.max_val);
    /// x where it is further from 0 than lambda, moved towards 0 by it; 0 elsewhere.
    Softshrink {
        /// How far it is moved.
        lambda: f64 = 0.5
    } |x, f| x.softshrink(f.lambda);
    /// x where it is further from 0 than lambda, 0 elsewhere.
    Hardshrink {
        /// How far is far enough.
        lambda: f64 = 0.5
    } |x, f| x.hardshrink(f.lambda);
    /// x − tanh(x)
    Tanhshrink |x, _f| x.tanhshrink();
    /// x above a threshold, a value elsewhere.
    Threshold {
        /// The threshold.
        threshold: f64 = 0.0,
        /// The value.
        value: f64 = 0.0
    } |x, f| x.threshold(f.threshold, f.value);
    /// The first half of an axis times the sigmoid of the second.
    Glu {
        /// The axis; the last by default.
        dim: isize = -1
    } |x, f| x.glu(f.dim);
    /// Positive numbers that add up to 1 along an axis.
    Softmax {
        /// The axis; the last by default.
        dim: isize = -1
    } |x, f| x.softmax(f.dim);
    /// The softmax of the negative.
    Softmin {
        /// The axis; the last by default.
        dim: isize = -1
    } |x, f| (-x).softmax(f.dim);
    /// The logarithm of the softmax.
    LogSoftmax {
        /// The axis; the last by default.
        dim: isize = -1
    } |x, f| x.log_softmax(f.dim);
}

/// [`LeakyRelu`] with a slope that is drawn for each element while training, and the mean slope
/// after it.
#[derive(Clone, Tree)]
pub struct RRelu {
    /// The smallest slope.
    pub lower: f64,
    /// The largest slope.
    pub upper: f64,
    /// Whether slopes are drawn.
    pub training: Flag,
}

impl RRelu {
    /// Slopes between these.
    #[must_use]
    pub fn new(lower: f64, upper: f64) -> RRelu {
        RRelu { lower, upper, training: Flag::new(true) }
    }
}

impl Layer for RRelu {
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let y = match self.training.get() {
            true => x.rrelu(self.lower, self.upper, Some(&next_key_on(x.device()))),
            false => x.rrelu(self.lower, self.upper, None),
        };
        scope.output(y)
    }
}
