//! The networks that the command knows by name.

mod block;
mod classifier;
mod gpt;
mod gpt2;
mod lstm;

pub use block::{BlockNetwork, ModelBlock};
pub use classifier::{BlockCnn, BlockMlp};
pub use gpt::BlockGpt;
pub use gpt2::BlockGpt2;
pub use lstm::LstmModel;

use clap::ValueEnum;
use pullback::{DType, Tensor, Tree, autocast, cross_entropy};
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
    /// GPT-2, 124M parameters unless --width and the others say otherwise, for text
    Gpt2,
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
            ModelKind::Gpt2 => "gpt2",
            ModelKind::Lstm => "lstm",
        }
    }

    /// Whether it reads text rather than images.
    pub fn reads_text(self) -> bool {
        matches!(self, ModelKind::Gpt | ModelKind::Gpt2 | ModelKind::Lstm)
    }
}

/// The networks made of blocks of attention.
pub const TRANSFORMERS: [ModelKind; 2] = [ModelKind::Gpt, ModelKind::Gpt2];

/// How large a network is. Not every network has all of these.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelSize {
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

    /// Floating-point operations of a forward and a backward pass for each token, where it counts
    /// them.
    fn operations_per_token(&self) -> Option<f64> {
        None
    }
}

/// The cross-entropy of scores `[.., classes]` and labels `[..]`, in single precision or better
/// whatever the scores are in: the op reads 16 bits as they are, without a copy of all scores.
pub fn loss(scores: &Tensor, labels: &Tensor) -> Tensor {
    let classes = scores.shape().last().map_or(1, |&n| n as isize);
    let (scores, labels) = (scores.reshape([-1, classes]), labels.reshape([-1]));
    match scores.dtype() {
        // Autocast has losses in f32; without it, as in PyTorch, they have the dtype of the scores.
        low @ (DType::BF16 | DType::F16) => autocast(low, || cross_entropy(&scores, &labels)),
        _ => cross_entropy(&scores, &labels),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pullback::{Key, grad};

    /// Losses of 16-bit scores are those of the same scores in f32, and in f32; gradients are in
    /// the dtype of the scores.
    #[test]
    fn the_loss_is_in_single_precision() {
        let labels = Tensor::from([[1i64, 0, 2], [2, 1, 1]]);
        for (low, wide) in [
            (DType::BF16, DType::F32),
            (DType::F16, DType::F32),
            (DType::F32, DType::F32),
            (DType::F64, DType::F64),
        ] {
            let scores = Key::new(1).normal([2, 3, 5], low, 0.0, 2.0);
            let (got, want) = (loss(&scores, &labels), loss(&scores.cast(DType::F64), &labels));
            assert_eq!(got.dtype(), wide, "{low}");
            let (got, want) = (got.cast(DType::F64).item::<f64>(), want.item::<f64>());
            assert!((got - want).abs() < 1e-6 * want, "{low}: {got} and {want}");
            let slope = grad(|x: &Tensor| loss(x, &labels))(&scores);
            assert_eq!(slope.dtype(), low);
        }
    }
}
