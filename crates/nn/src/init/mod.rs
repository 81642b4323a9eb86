//! PyTorch's initialisations. Each writes in place, without being recorded, and draws from the
//! global generator ([`pullback::manual_seed`] makes it repeatable).
//!
//! ```
//! use pullback_nn::{Linear, init};
//! let layer = Linear::new(64, 32);
//! init::kaiming_normal_(&layer.weight, init::Fan::Out, init::Nonlinearity::Relu);
//! init::zeros_(layer.bias.as_ref().unwrap());
//! ```

mod constant;
mod orthogonal;
mod random;
mod scaled;

pub use constant::{constant_, dirac_, eye_, ones_, zeros_};
pub use orthogonal::orthogonal_;
pub use random::{normal_, sparse_, trunc_normal_, uniform_};
pub(crate) use scaled::default_weights;
pub use scaled::{
    Fan, Nonlinearity, kaiming_normal_, kaiming_uniform_, xavier_normal_, xavier_uniform_,
};

use crate::refuse::refuse;
use pullback::{Error, Tensor, no_grad};

/// Writes values that were made for `tensor`, unrecorded.
fn write(tensor: &Tensor, values: impl FnOnce() -> Tensor) {
    no_grad(|| tensor.copy_(values()));
}

/// Raises an error about `tensor` unless it fits.
#[track_caller]
fn demand(fits: bool, function: &'static str, tensor: &Tensor, sentence: &str) {
    if !fits {
        let message = format!("{sentence}, not {}", tensor.spec());
        refuse(Error::shape(function, message).on([tensor.spec()]));
    }
}

/// The number of inputs and outputs that one element of a weight connects: `[out, in, kernel …]`.
#[track_caller]
fn fans(function: &'static str, weight: &Tensor) -> (usize, usize) {
    demand(weight.rank() >= 2, function, weight, "takes a weight of at least two axes");
    let kernel: usize = weight.shape()[2..].iter().product();
    (weight.shape()[1] * kernel, weight.shape()[0] * kernel)
}
