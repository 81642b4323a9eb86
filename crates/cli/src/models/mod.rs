//! The networks that the command knows by name.

mod block;
mod classifier;
mod gpt;
mod lstm;

pub use block::{Block, Blocks};
pub use classifier::{Cnn, Mlp};
pub use gpt::Gpt;
pub use lstm::LstmModel;

use clap::ValueEnum;
use pullback::{DType, Tensor, Tree, cross_entropy};
use serde::{Deserialize, Serialize};

/// A network by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelKind {
    /// A multilayer perceptron, for digits
    Mlp,
    /// A small convolutional network, for digits
    Cnn,
    /// A transformer that predicts the next character, for text
    Gpt,
    /// A recurrent network that predicts the next character, for text
    Lstm,
}

impl ModelKind {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            ModelKind::Mlp => "mlp",
            ModelKind::Cnn => "cnn",
            ModelKind::Gpt => "gpt",
            ModelKind::Lstm => "lstm",
        }
    }

    /// Whether it reads text rather than images.
    pub fn reads_text(self) -> bool {
        matches!(self, ModelKind::Gpt | ModelKind::Lstm)
    }
}

/// How large a network is. Not every network has all of these.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Size {
    /// Features of hidden layers, or channels of the first convolution.
    pub width: usize,
    /// Hidden layers, or blocks.
    pub layers: usize,
    /// Heads of attention.
    pub heads: usize,
    /// The context length in characters.
    pub context: usize,
    /// The dropout probability.
    pub dropout: f64,
}

/// A network that reads tokens, `i64[batch, positions]`, and gives a score for each that may follow
/// each, `[batch, positions, tokens]`.
pub trait TextModel: Tree {
    /// The scores.
    fn scores(&self, tokens: &Tensor) -> Tensor;
}

/// The cross-entropy of scores `[.., classes]` and labels `[..]`, in single precision or better.
pub fn loss(scores: &Tensor, labels: &Tensor) -> Tensor {
    let classes = scores.shape().last().map_or(1, |&n| n as isize);
    let scores =
        if scores.dtype() == DType::F64 { scores.clone() } else { scores.cast(DType::F32) };
    cross_entropy(&scores.reshape([-1, classes]), &labels.reshape([-1]))
}
