//! Complete networks, for examples, benchmarks and the command.
//!
//! ```
//! use pullback::Tensor;
//! use pullback_nn::{Layer, models};
//! let net = models::Mlp::new(&[784, 128, 10]);
//! assert_eq!(net.forward(&Tensor::zeros([32, 1, 28, 28])).shape(), [32, 10]);
//! ```

mod cnn;
mod gpt;
mod gpt2;
mod mlp;

pub use cnn::Cnn;
pub use gpt::{Gpt, GptConfig, SamplingOptions};
pub use gpt2::{Gpt2, Gpt2Block, Gpt2Mlp};
pub use mlp::Mlp;
