//! A recurrent network: an LSTM over embedded characters.

use super::{BlockNetwork, ModelBlock, ModelSize, TextModel};
use pullback::{Result, Tensor, Tree};
use pullback_nn::parallel::FullSharding;
use pullback_nn::{Dropout, Embedding, Layer, Linear, Lstm, RecurrentConfig};

/// Characters, layers of LSTM, and a score for each next character.
#[derive(Tree)]
pub struct LstmModel {
    tokens: ModelBlock<Embedding>,
    lstm: ModelBlock<Lstm>,
    dropout: Dropout,
    head: ModelBlock<Linear>,
}

impl LstmModel {
    /// A network for this many tokens.
    pub fn new(tokens: usize, size: &ModelSize) -> LstmModel {
        LstmModel {
            tokens: ModelBlock::Whole(Embedding::new(tokens, size.width)),
            lstm: ModelBlock::Whole(
                RecurrentConfig::new(size.width, size.width)
                    .num_layers(size.layers)
                    .batch_first()
                    .lstm(),
            ),
            dropout: Dropout::new(size.dropout),
            head: ModelBlock::Whole(Linear::new(size.width, tokens)),
        }
    }
}

impl BlockNetwork for LstmModel {
    fn spread(self, sharding: &FullSharding) -> Result<LstmModel> {
        let (tokens, lstm) = (self.tokens.spread(sharding)?, self.lstm.spread(sharding)?);
        Ok(LstmModel { tokens, lstm, dropout: self.dropout, head: self.head.spread(sharding)? })
    }
}

impl TextModel for LstmModel {
    fn scores(&self, tokens: &Tensor) -> Tensor {
        let embedded = self.tokens.forward(tokens);
        let (x, _) = self.lstm.call(|lstm| lstm.forward(&embedded));
        self.head.forward(&self.dropout.forward(&x))
    }
}
