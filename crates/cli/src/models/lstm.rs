//! A recurrent network: an LSTM over embedded characters.

use super::{Block, Blocks, Size, TextModel};
use pullback::{Result, Tensor, Tree};
use pullback_nn::parallel::FullSharding;
use pullback_nn::{Dropout, Embedding, Layer, Linear, Lstm, RecurrentConfig};

/// Characters, layers of LSTM, and a score for each next character.
#[derive(Tree)]
pub struct LstmModel {
    tokens: Block<Embedding>,
    lstm: Block<Lstm>,
    dropout: Dropout,
    head: Block<Linear>,
}

impl LstmModel {
    /// A network for this many tokens.
    pub fn new(tokens: usize, size: &Size) -> LstmModel {
        LstmModel {
            tokens: Block::Whole(Embedding::new(tokens, size.width)),
            lstm: Block::Whole(
                RecurrentConfig::new(size.width, size.width)
                    .num_layers(size.layers)
                    .batch_first()
                    .lstm(),
            ),
            dropout: Dropout::new(size.dropout),
            head: Block::Whole(Linear::new(size.width, tokens)),
        }
    }
}

impl Blocks for LstmModel {
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
