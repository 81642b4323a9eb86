//! Activations that are ops: sigmoid, relu, gelu and silu.

use super::Row;
use crate::Tensor;
use crate::rule::{Grad, slopes};
use std::f64::consts::{FRAC_2_SQRT_PI, PI, SQRT_2};

#[rustfmt::skip]
rows! {
    //       policy  need        kink                              derivative
    Sigmoid  Promote MaxRelative []                                slopes!(Y => |y| y * (1.0 - y));
    Relu     Promote Sign        [Relu zero]                       slopes!(Y => |y| y.gt(0.0).cast(y.dtype()));
    Gelu     Promote Mixed       []                                slopes!(X => |x| normal_cdf(x) + x * normal_pdf(x));
    GeluTanh Promote Mixed       []                                slopes!(X => |x| gelu_tanh_slope(x));
    Silu     Promote Mixed       []                                slopes!(X => |x| silu_slope(x));
}

fn normal_cdf(x: &Tensor) -> Tensor {
    ((x * (1.0 / SQRT_2)).erf() + 1.0) * 0.5
}

fn normal_pdf(x: &Tensor) -> Tensor {
    (x.square() * -0.5).exp() * (0.5 * FRAC_2_SQRT_PI / SQRT_2)
}

fn gelu_tanh_slope(x: &Tensor) -> Tensor {
    let k = (2.0 / PI).sqrt();
    let t = ((x + x.square() * x * 0.044715) * k).tanh();
    let inner = (x.square() * (3.0 * 0.044715) + 1.0) * k;
    (&t + 1.0) * 0.5 + x * 0.5 * (1.0 - t.square()) * inner
}

fn silu_slope(x: &Tensor) -> Tensor {
    let s = x.sigmoid();
    &s * (x * (1.0 - &s) + 1.0)
}

unary_methods! {
    /// max(x, 0); its derivative at 0 is 0.
    ///
    /// Derivative: `dy` where x > 0, 0 elsewhere.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([-2.0, 3.0]).relu().to_vec::<f64>(), [0.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// If the dtype is `bool`.
    relu Relu;
}

real_methods! {
    /// The logistic function 1 / (1 + e⁻ˣ).
    ///
    /// Derivative: `y·(1 − y)·dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([0.0, 100.0]).sigmoid().to_vec::<f64>(), [0.5, 1.0]);
    /// ```
    #[doc(alias = "expit")]
    sigmoid Sigmoid;
    /// The Gaussian error linear unit x·Φ(x), exact.
    ///
    /// Derivative: `(Φ(x) + x·φ(x))·dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 1.0]).gelu().to_vec::<f64>();
    /// assert!(y[0] == 0.0 && (y[1] - 0.8413447460685429).abs() < 1e-15);
    /// ```
    gelu Gelu;
    /// The Gaussian error linear unit in its tanh approximation.
    ///
    /// Derivative: of its formula.
    /// PyTorch's name: `nn.functional.gelu`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 1.0]).gelu_tanh().to_vec::<f64>();
    /// assert!(y[0] == 0.0 && (y[1] - 0.8411919906082768).abs() < 1e-15);
    /// ```
    #[doc(alias = "gelu")]
    gelu_tanh GeluTanh;
    /// The sigmoid linear unit (swish) x·sigmoid(x).
    ///
    /// Derivative: `s·(1 + x·(1 − s))·dy`, where s = sigmoid(x).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 1.0]).silu().to_vec::<f64>();
    /// assert!(y[0] == 0.0 && (y[1] - 0.7310585786300049).abs() < 1e-15);
    /// ```
    #[doc(alias = "swish")]
    silu Silu;
}
