//! Activation functions: elementwise, and along an axis.

use crate::{Layer, module_scope};
use pullback::{Flag, Tensor, Tree, next_key_on};

/// A row is a layer: its name, its options with their defaults, and what it does to `x` (`f` are
/// its options). A layer without options is written as it is called, `Relu`; one with options is
/// `LeakyRelu::new(0.2)` or, with PyTorch's values, `LeakyRelu::default()`.
macro_rules! activations {
    ($($(#[$doc:meta])* $name:ident $({ $($(#[$about:meta])* $option:ident: $type:ty = $default:expr),* })? |$x:ident, $f:ident| $y:expr;)*) => {$(
        activations!(@type $(#[$doc])* $name $({ $($(#[$about])* $option: $type = $default),* })?);

        impl Layer for $name {
            /// # Panics
            /// Where the tensor method of the same function does: some take no `bool`, and those
            /// along an axis need that axis.
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
            /// With these options. The values of the example are the defaults.
            ///
            /// ```
            #[doc = concat!("# use pullback_nn::", stringify!($name), ";")]
            #[doc = concat!("let layer = ", stringify!($name), "::new(", stringify!($($default),*), ");")]
            $(#[doc = concat!("assert_eq!(layer.", stringify!($option), ", ", stringify!($default), ");")])*
            /// ```
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
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Identity, Layer};
    /// let x = Tensor::from([[1.0, 2.0]]);
    /// assert_eq!(Identity.forward(&x).to_vec::<f64>(), [1.0, 2.0]);
    /// ```
    Identity |x, _f| x.clone();
    /// max(x, 0), elementwise.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Layer, Relu};
    /// assert_eq!(Relu.forward(&Tensor::from([-1.0, 2.0])).to_vec::<f64>(), [0.0, 2.0]);
    /// ```
    Relu |x, _f| x.relu();
    /// min(max(x, 0), 6), elementwise.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Layer, Relu6};
    /// let y = Relu6.forward(&Tensor::from([-1.0, 2.0, 9.0]));
    /// assert_eq!(y.to_vec::<f64>(), [0.0, 2.0, 6.0]);
    /// ```
    Relu6 |x, _f| x.relu6();
    /// x above 0, `negative_slope · x` below, elementwise.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Layer, LeakyRelu};
    /// let y = LeakyRelu::new(0.25).forward(&Tensor::from([-4.0, 2.0]));
    /// assert_eq!(y.to_vec::<f64>(), [-1.0, 2.0]);
    /// ```
    LeakyRelu {
        /// The slope below 0.
        negative_slope: f64 = 0.01
    } |x, f| x.leaky_relu(f.negative_slope);
    /// x·Φ(x), elementwise, with the distribution function Φ of the normal distribution.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Gelu, Layer};
    /// let y = Gelu.forward(&Tensor::from([0.0, 1.0])).to_vec::<f64>();
    /// assert!(y[0] == 0.0 && (y[1] - 0.841345).abs() < 1e-6);
    /// ```
    Gelu |x, _f| x.gelu();
    /// The tanh approximation of [`Gelu`], as in GPT-2: PyTorch's `nn.GELU(approximate="tanh")`.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{GeluTanh, Layer};
    /// let y = GeluTanh.forward(&Tensor::from([0.0, 1.0])).to_vec::<f64>();
    /// assert!(y[0] == 0.0 && (y[1] - 0.841192).abs() < 1e-6);
    /// ```
    GeluTanh |x, _f| x.gelu_tanh();
    /// x·sigmoid(x), elementwise, also known as swish.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Layer, Silu};
    /// let y = Silu.forward(&Tensor::from([0.0, 100.0]));
    /// assert_eq!(y.to_vec::<f64>(), [0.0, 100.0]);
    /// ```
    Silu |x, _f| x.silu();
    /// The hyperbolic tangent, elementwise.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Layer, Tanh};
    /// let y = Tanh.forward(&Tensor::from([0.0, 100.0]));
    /// assert_eq!(y.to_vec::<f64>(), [0.0, 1.0]);
    /// ```
    Tanh |x, _f| x.tanh();
    /// 1/(1 + e⁻ˣ), elementwise.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Layer, Sigmoid};
    /// let y = Sigmoid.forward(&Tensor::from([0.0, 100.0]));
    /// assert_eq!(y.to_vec::<f64>(), [0.5, 1.0]);
    /// ```
    Sigmoid |x, _f| x.sigmoid();
    /// The logarithm of the sigmoid, elementwise, without overflow.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Layer, LogSigmoid};
    /// let y = LogSigmoid.forward(&Tensor::from([0.0, -1000.0])).to_vec::<f64>();
    /// assert!((y[0] + 2f64.ln()).abs() < 1e-12 && y[1] == -1000.0);
    /// ```
    LogSigmoid |x, _f| x.log_sigmoid();
    /// x above 0, alpha·(eˣ − 1) below, elementwise.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Elu, Layer};
    /// let y = Elu::new(2.0).forward(&Tensor::from([-100.0, 3.0]));
    /// assert_eq!(y.to_vec::<f64>(), [-2.0, 3.0]);
    /// ```
    Elu {
        /// The negative of the limit at −∞.
        alpha: f64 = 1.0
    } |x, f| x.elu(f.alpha);
    /// A scaled elu whose constants keep mean 0 and variance 1 from layer to layer.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Layer, Selu};
    /// let y = Selu.forward(&Tensor::from([0.0, 1.0])).to_vec::<f64>();
    /// assert!(y[0] == 0.0 && (y[1] - 1.050701).abs() < 1e-6);
    /// ```
    Selu |x, _f| x.selu();
    /// x above 0, alpha·(exp(x/alpha) − 1) below, elementwise.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Celu, Layer};
    /// let y = Celu::new(2.0).forward(&Tensor::from([-100.0, 3.0]));
    /// assert_eq!(y.to_vec::<f64>(), [-2.0, 3.0]);
    /// ```
    Celu {
        /// The negative of the limit at −∞.
        alpha: f64 = 1.0
    } |x, f| x.celu(f.alpha);
    /// log(1 + exp(beta·x))/beta, elementwise, and x itself where beta·x is above the threshold.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Layer, Softplus};
    /// let y = Softplus::default().forward(&Tensor::from([0.0, 50.0])).to_vec::<f64>();
    /// assert!((y[0] - 2f64.ln()).abs() < 1e-12 && y[1] == 50.0);
    /// ```
    Softplus {
        /// The sharpness of the transition.
        beta: f64 = 1.0,
        /// The value of beta·x above which it is x itself.
        threshold: f64 = 20.0
    } |x, f| x.softplus(f.beta, f.threshold);
    /// x/(1 + |x|), elementwise.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Layer, Softsign};
    /// let y = Softsign.forward(&Tensor::from([-1.0, 3.0]));
    /// assert_eq!(y.to_vec::<f64>(), [-0.5, 0.75]);
    /// ```
    Softsign |x, _f| x.softsign();
    /// x·tanh(softplus(x)), elementwise.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Layer, Mish};
    /// let y = Mish.forward(&Tensor::from([0.0, 1.0])).to_vec::<f64>();
    /// assert!(y[0] == 0.0 && (y[1] - 0.865098).abs() < 1e-6);
    /// ```
    Mish |x, _f| x.mish();
    /// x·min(max(x + 3, 0), 6)/6, elementwise.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Hardswish, Layer};
    /// let y = Hardswish.forward(&Tensor::from([-4.0, 0.0, 4.0]));
    /// assert_eq!(y.to_vec::<f64>(), [0.0, 0.0, 4.0]);
    /// ```
    Hardswish |x, _f| x.hardswish();
    /// min(max(x + 3, 0), 6)/6, elementwise.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Hardsigmoid, Layer};
    /// let y = Hardsigmoid.forward(&Tensor::from([-4.0, 0.0, 4.0]));
    /// assert_eq!(y.to_vec::<f64>(), [0.0, 0.5, 1.0]);
    /// ```
    Hardsigmoid |x, _f| x.hardsigmoid();
    /// x clamped to the bounds, elementwise.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Hardtanh, Layer};
    /// let y = Hardtanh::new(-1.0, 2.0).forward(&Tensor::from([-4.0, 0.5, 4.0]));
    /// assert_eq!(y.to_vec::<f64>(), [-1.0, 0.5, 2.0]);
    /// ```
    Hardtanh {
        /// The lower bound.
        min_val: f64 = -1.0,
        /// The upper bound.
        max_val: f64 = 1.0
    } |x, f| x.hardtanh(f.min_val, f.max_val);
    /// x moved towards 0 by lambda where |x| is above lambda, 0 elsewhere.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Layer, Softshrink};
    /// let y = Softshrink::new(0.5).forward(&Tensor::from([-2.0, 0.25, 1.0]));
    /// assert_eq!(y.to_vec::<f64>(), [-1.5, 0.0, 0.5]);
    /// ```
    Softshrink {
        /// The threshold, and the distance by which x is moved.
        lambda: f64 = 0.5
    } |x, f| x.softshrink(f.lambda);
    /// x where |x| is above lambda, 0 elsewhere.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Hardshrink, Layer};
    /// let y = Hardshrink::new(0.5).forward(&Tensor::from([-2.0, 0.25, 1.0]));
    /// assert_eq!(y.to_vec::<f64>(), [-2.0, 0.0, 1.0]);
    /// ```
    Hardshrink {
        /// The threshold.
        lambda: f64 = 0.5
    } |x, f| x.hardshrink(f.lambda);
    /// x − tanh(x), elementwise.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Layer, Tanhshrink};
    /// let y = Tanhshrink.forward(&Tensor::from([0.0, 100.0]));
    /// assert_eq!(y.to_vec::<f64>(), [0.0, 99.0]);
    /// ```
    Tanhshrink |x, _f| x.tanhshrink();
    /// x where it is above `threshold`, `value` elsewhere.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Layer, Threshold};
    /// let y = Threshold::new(0.5, -1.0).forward(&Tensor::from([0.25, 3.0]));
    /// assert_eq!(y.to_vec::<f64>(), [-1.0, 3.0]);
    /// ```
    Threshold {
        /// The threshold.
        threshold: f64 = 0.0,
        /// The value.
        value: f64 = 0.0
    } |x, f| x.threshold(f.threshold, f.value);
    /// The gated linear unit: the first half of an axis times the sigmoid of the second half.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Glu, Layer};
    /// let y = Glu::default().forward(&Tensor::from([[2.0, 4.0, 0.0, 0.0]]));
    /// assert_eq!((y.shape(), y.to_vec::<f64>()), (&[1, 2][..], vec![1.0, 2.0]));
    /// ```
    Glu {
        /// The axis; the last by default.
        dim: isize = -1
    } |x, f| x.glu(f.dim);
    /// The softmax along an axis: eˣ divided by its sum.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Layer, Softmax};
    /// let y = Softmax::default().forward(&Tensor::from([[0.0, 0.0], [0.0, 3f64.ln()]]));
    /// assert_eq!(y.shape(), [2, 2]);
    /// assert!(
    ///     y.is_close(&Tensor::from([[0.5, 0.5], [0.25, 0.75]]), 0.0, 1e-12, false)
    ///         .all()
    ///         .item::<bool>()
    /// );
    /// ```
    Softmax {
        /// The axis; the last by default.
        dim: isize = -1
    } |x, f| x.softmax(f.dim);
    /// The softmax of −x along an axis.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Layer, Softmin};
    /// let y = Softmin::new(-1).forward(&Tensor::from([[0.0, 3f64.ln()]]));
    /// assert!(y.is_close(&Tensor::from([[0.75, 0.25]]), 0.0, 1e-12, false).all().item::<bool>());
    /// ```
    Softmin {
        /// The axis; the last by default.
        dim: isize = -1
    } |x, f| (-x).softmax(f.dim);
    /// The logarithm of the softmax along an axis, without overflow.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Layer, LogSoftmax};
    /// let y = LogSoftmax::new(-1).forward(&Tensor::from([[0.0, 1000.0]]));
    /// assert_eq!(y.to_vec::<f64>(), [-1000.0, 0.0]);
    /// ```
    LogSoftmax {
        /// The axis; the last by default.
        dim: isize = -1
    } |x, f| x.log_softmax(f.dim);
}

/// [`LeakyRelu`] with a random slope for each element in training, and the mean slope in
/// evaluation.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Layer, Module, RRelu};
/// let layer = RRelu::new(0.125, 0.375);
/// let y = layer.forward(&Tensor::full([100], -1.0));
/// assert!(y.to_vec::<f64>().iter().all(|y| (-0.375..=-0.125).contains(y)));
/// layer.eval();
/// assert_eq!(layer.forward(&Tensor::from([-1.0, 1.0])).to_vec::<f64>(), [-0.25, 1.0]);
/// ```
#[derive(Clone, Tree)]
pub struct RRelu {
    /// The smallest slope.
    pub lower: f64,
    /// The largest slope.
    pub upper: f64,
    /// Whether it is in training mode, in which slopes are random.
    pub training: Flag,
}

impl RRelu {
    /// With slopes drawn between these; PyTorch's defaults are 1/8 and 1/3.
    ///
    /// ```
    /// # use pullback_nn::RRelu;
    /// let layer = RRelu::new(1.0 / 8.0, 1.0 / 3.0);
    /// assert!(layer.training.get());
    /// ```
    #[must_use]
    pub fn new(lower: f64, upper: f64) -> RRelu {
        RRelu { lower, upper, training: Flag::new(true) }
    }
}

impl Layer for RRelu {
    /// # Panics
    /// If `lower` is above `upper`.
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let y = match self.training.get() {
            true => x.rrelu(self.lower, self.upper, Some(&next_key_on(x.device()))),
            false => x.rrelu(self.lower, self.upper, None),
        };
        scope.output(y)
    }
}
