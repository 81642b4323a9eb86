//! A small GPT: 4 pre-norm layers, d 256, 8 heads, T 256, B 4, vocabulary 512, exact GELU, and one
//! table for the embedding and the logits.

use super::model::{self, Case};
use crate::data::tokens;
use crate::measure::Measurement;
use pullback::Tensor;
use pullback_nn::models::{Gpt, GptConfig};
use pullback_nn::optim::AdamW;

const BATCH: usize = 4;
const CONFIG: GptConfig =
    GptConfig { vocabulary: 512, length: 256, width: 256, heads: 8, layers: 4, dropout: 0.0 };

fn case() -> Case<Gpt> {
    let (x, y) = tokens(BATCH, CONFIG.length, CONFIG.vocabulary);
    let shaped = |ids: Vec<i64>| Tensor::from_vec(ids, [BATCH, CONFIG.length]);
    Case { model: model::filled(Gpt::new(&CONFIG)), batch: (shaped(x), shaped(y)), loss: Gpt::loss }
}

pub fn step() -> Vec<Measurement> {
    model::train(&case(), AdamW { lr: 3e-4, ..AdamW::default() })
}

pub fn ratio() -> Vec<Measurement> {
    model::ratio(&case())
}
