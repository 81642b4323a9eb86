//! Small complete networks, for examples and benchmarks.

mod cnn;
mod gpt;
mod mlp;

pub use cnn::Cnn;
pub use gpt::{Gpt, GptConfig, SamplingOptions};
pub use mlp::Mlp;
