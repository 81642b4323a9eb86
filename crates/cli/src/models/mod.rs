//! The networks that the command knows by name.

mod classifier;
mod gpt;
mod memory;

pub use classifier::{Cnn, Mlp};
pub use gpt::Gpt;
pub use memory::Memory;

use clap::ValueEnum;
use pullback::{DType, Tensor, Tree, cross_entropy};
use serde::{Deserialize, Serialize};

/// A network by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A multilayer perceptron, for digits
    Mlp,
    /// A small convolutional network, for digits
    Cnn,
    /// A transformer that predicts the next character, for text
    Gpt,
    /// A recurrent network that predicts the next character, for text
    Lstm,
}

impl Kind {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Mlp => "mlp",
            Kind::Cnn => "cnn",
            Kind::Gpt => "gpt",
            Kind::Lstm => "lstm",
        }
    }

    /// Whether it reads text rather than images.
    pub fn reads_text(self) -> bool {
        matches!(self, Kind::Gpt | Kind::Lstm)
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
    /// How many characters the network sees at once.
    pub context: usize,
    /// The part of hidden features that is dropped while training.
    pub dropout: f64,
}

/// A network that reads tokens, `i64[batch, positions]`, and gives a score for each that may follow
/// each, `[batch, positions, tokens]`.
pub trait Reader: Tree {
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
