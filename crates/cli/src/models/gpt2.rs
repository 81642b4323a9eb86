//! GPT-2 whose blocks can be spread over workers.

use super::{BlockNetwork, ModelBlock, TextModel};
use pullback::{Result, Tensor, Tree};
use pullback_nn::models::{self, Gpt2Block, GptConfig};
use pullback_nn::parallel::FullSharding;
use pullback_nn::{Dropout, Embedding, Layer, LayerNorm};

/// The parts of [`models::Gpt2`], with its names, so that each reads the weights of the other.
#[derive(Tree)]
pub struct BlockGpt2 {
    wte: ModelBlock<Embedding>,
    wpe: ModelBlock<Embedding>,
    drop: Dropout,
    h: Vec<ModelBlock<Gpt2Block>>,
    ln_f: ModelBlock<LayerNorm>,
    operations_per_token: f64,
}

impl BlockGpt2 {
    /// A network of these sizes.
    pub fn new(config: &GptConfig) -> BlockGpt2 {
        let models::Gpt2 { wte, wpe, drop, h, ln_f } = models::Gpt2::new(config);
        BlockGpt2 {
            wte: ModelBlock::Whole(wte),
            wpe: ModelBlock::Whole(wpe),
            drop,
            h: h.into_iter().map(ModelBlock::Whole).collect(),
            ln_f: ModelBlock::Whole(ln_f),
            operations_per_token: config.operations_per_token(),
        }
    }
}

impl BlockNetwork for BlockGpt2 {
    fn spread(self, sharding: &FullSharding) -> Result<BlockGpt2> {
        let (wte, wpe) = (self.wte.spread(sharding)?, self.wpe.spread(sharding)?);
        let (h, ln_f) = (self.h.spread(sharding)?, self.ln_f.spread(sharding)?);
        Ok(BlockGpt2 { wte, wpe, h, ln_f, ..self })
    }
}

impl TextModel for BlockGpt2 {
    fn scores(&self, tokens: &Tensor) -> Tensor {
        let length = tokens.shape().last().copied().unwrap_or(0);
        let places = self.wpe.call(|wpe| wpe.weight.narrow(0, 0, length));
        let x = self.drop.forward(&(self.wte.forward(tokens) + places));
        let x = self.h.iter().fold(x, |x, block| block.forward(&x));
        let x = self.ln_f.forward(&x);
        self.wte.call(|wte| x.linear(&wte.weight, None))
    }

    fn operations_per_token(&self) -> Option<f64> {
        Some(self.operations_per_token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pullback::manual_seed;
    use pullback_nn::Module;

    #[test]
    fn it_is_the_model_of_the_library() {
        let config =
            GptConfig { vocabulary: 20, length: 8, width: 8, heads: 2, layers: 2, dropout: 0.1 };
        manual_seed(0);
        let whole = models::Gpt2::new(&config);
        manual_seed(0);
        let blocks = BlockGpt2::new(&config);
        let names = |named: Vec<(String, Tensor)>| -> Vec<String> {
            named.into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(whole.named_parameters()), names(blocks.named_parameters()));
        whole.eval();
        blocks.eval();
        let ids = Tensor::from([[3i64, 1, 4, 1, 5]]);
        let (a, b) = (whole.forward(&ids), blocks.scores(&ids));
        assert_eq!(a.to_vec::<f32>(), b.to_vec::<f32>());
    }
}
