//! A recurrent network: an LSTM over embedded characters.

use super::{Size, TextModel};
use pullback::{Tensor, Tree};
use pullback_nn::{Dropout, Embedding, Layer, Linear, Lstm, RecurrentConfig};

/// Characters, layers of LSTM, and a score for each next character.
#[derive(Tree)]
pub struct LstmModel {
    tokens: Embedding,
    lstm: Lstm,
    dropout: Dropout,
    head: Linear,
}

impl LstmModel {
    /// A network for this many tokens.
    pub fn new(tokens: usize, size: &Size) -> LstmModel {
        LstmModel {
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

impl TextModel for LstmModel {
    fn scores(&self, tokens: &Tensor) -> Tensor {
        let (x, _) = self.lstm.forward(&self.tokens.forward(tokens));
        self.head.forward(&self.dropout.forward(&x))
    }
}
