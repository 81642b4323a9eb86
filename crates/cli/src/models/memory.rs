//! A recurrent reader: long short-term memory over embedded characters.

use super::{Reader, Size};
use pullback::{Tensor, Tree};
use pullback_nn::{Dropout, Embedding, Layer, Linear, Lstm, RecurrentConfig};

/// Characters, layers of LSTM, and a score for each next character.
#[derive(Tree)]
pub struct Memory {
    tokens: Embedding,
    lstm: Lstm,
    dropout: Dropout,
    head: Linear,
}

impl Memory {
    /// A network for so many different tokens.
    pub fn new(tokens: usize, size: &Size) -> Memory {
        Memory {
            tokens: Embedding::new(tokens, size.width),
            lstm: RecurrentConfig::new(size.width, size.width)
                .num_layers(size.layers)
                .batch_first()
                .lstm(),
            dropout: Dropout::new(size.dropout),
            head: Linear::new(size.width, tokens),
        }
    }
}

impl Reader for Memory {
    fn scores(&self, tokens: &Tensor) -> Tensor {
        let (x, _) = self.lstm.forward(&self.tokens.forward(tokens));
        self.head.forward(&self.dropout.forward(&x))
    }
}
