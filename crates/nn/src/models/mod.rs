//! Small networks that are whole: to train at once, to begin from, and to measure.

mod cnn;
mod gpt;
mod mlp;

pub use cnn::Cnn;
pub use gpt::{Gpt, GptConfig, Sampling};
pub use mlp::Mlp;
