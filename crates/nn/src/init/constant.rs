//! Constant initialisations.

use super::{demand, write};
use pullback::{Tensor, no_grad, with_default_device};

/// Sets every element to this value.
///
/// ```
/// # use pullback_nn::{Linear, init};
/// let layer = Linear::new(2, 3);
/// init::constant_(&layer.weight, 0.5);
/// assert_eq!(layer.weight.to_vec::<f32>(), [0.5; 6]);
/// ```
pub fn constant_(tensor: &Tensor, value: f64) {
    no_grad(|| tensor.fill_(value));
}

/// Sets every element to 1.
///
/// ```
/// # use pullback::Tensor;
/// # use pullback_nn::init;
/// let x = Tensor::zeros([3]);
/// init::ones_(&x);
/// assert_eq!(x.to_vec::<f32>(), [1.0; 3]);
/// ```
pub fn ones_(tensor: &Tensor) {
    constant_(tensor, 1.0);
}

/// Sets every element to 0.
///
/// ```
/// # use pullback_nn::{Linear, init};
/// let layer = Linear::new(2, 3);
/// init::zeros_(&layer.weight);
/// assert_eq!(layer.weight.to_vec::<f32>(), [0.0; 6]);
/// ```
pub fn zeros_(tensor: &Tensor) {
    constant_(tensor, 0.0);
}

/// Makes a matrix the identity: ones on the diagonal, zeros elsewhere.
///
/// ```
/// # use pullback::Tensor;
/// # use pullback_nn::init;
/// let x = Tensor::zeros([2, 3]);
/// init::eye_(&x);
/// assert_eq!(x.to_vec::<f32>(), [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
/// ```
///
/// # Panics
/// If it is not a matrix.
#[track_caller]
pub fn eye_(tensor: &Tensor) {
    demand(tensor.rank() == 2, "eye_", tensor, "takes a matrix");
    write(tensor, || {
        let eye = || Tensor::eye_with(tensor.shape()[0], tensor.shape()[1], tensor.dtype());
        with_default_device(tensor.device(), eye)
    });
}

/// Makes the kernel of a convolution preserve its input: in each of `groups` groups, output channel
/// i is input channel i, as far as there are inputs.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Conv1d, Layer, init};
/// let conv = Conv1d::new(2, 2, 3).padding(1).without_bias();
/// init::dirac_(&conv.weight, 1);
/// let x = Tensor::randn([1, 2, 5]);
/// assert_eq!(conv.forward(&x).to_vec::<f32>(), x.to_vec::<f32>());
/// ```
///
/// # Panics
/// If it is not the kernel of a convolution, or its outputs are not divisible by the groups.
#[track_caller]
pub fn dirac_(tensor: &Tensor, groups: usize) {
    let fits = (3..=5).contains(&tensor.rank());
    demand(fits, "dirac_", tensor, "takes the kernel of a convolution");
    let (out, inputs) = (tensor.shape()[0], tensor.shape()[1]);
    let fits = groups > 0 && out.is_multiple_of(groups);
    demand(fits, "dirac_", tensor, &format!("takes outputs that are divisible by {groups} groups"));
    let kernel = &tensor.shape()[2..];
    let middle = kernel.iter().fold(0, |at, &k| at * k + k / 2);
    let size: usize = kernel.iter().product();
    let mut values = vec![0.0; tensor.len()];
    for group in 0..groups {
        for i in 0..inputs.min(out / groups) {
            values[((group * (out / groups) + i) * inputs + i) * size + middle] = 1.0;
        }
    }
    write(tensor, || tensor.new_from_vec(values, tensor.shape()));
}
