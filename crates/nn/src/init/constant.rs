//! Values that are known beforehand.

use super::{demand, write};
use pullback::{Tensor, no_grad, with_default_device};

/// Every element this value.
pub fn constant_(tensor: &Tensor, value: f64) {
    no_grad(|| tensor.fill_(value));
}

/// Ones.
pub fn ones_(tensor: &Tensor) {
    constant_(tensor, 1.0);
}

/// Zeros.
pub fn zeros_(tensor: &Tensor) {
    constant_(tensor, 0.0);
}

/// The identity: ones on the diagonal of a matrix.
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

/// The kernel of a convolution that keeps its input: each of `groups` groups of outputs begins with
/// the inputs of its group, as many as there are.
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
/// If it is not the kernel of a convolution, or its outputs do not fall into that many groups.
#[track_caller]
pub fn dirac_(tensor: &Tensor, groups: usize) {
    let fits = (3..=5).contains(&tensor.rank());
    demand(fits, "dirac_", tensor, "takes the kernel of a convolution");
    let (out, inputs) = (tensor.shape()[0], tensor.shape()[1]);
    let fits = groups > 0 && out.is_multiple_of(groups);
    demand(fits, "dirac_", tensor, &format!("takes outputs that fall into {groups} groups"));
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
