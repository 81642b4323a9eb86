//! A small GPT: 4 pre-norm layers, d 256, 8 heads, T 256, B 4, vocabulary 512, exact GELU, and one table
//! for the embedding and the logits.

use super::adam::Adam;
use super::layer::{Linear, Norm};
use super::model::{self, Model};
use crate::data::{Init, tokens};
use crate::measure::Row;
use pullback::{Attention, Tensor, Tree, cross_entropy};

const LAYERS: usize = 4;
const WIDTH: usize = 256;
const HEADS: usize = 8;
const LENGTH: usize = 256;
const BATCH: usize = 4;
const VOCABULARY: usize = 512;

#[derive(Tree)]
struct Block {
    before_attention: Norm,
    qkv: Linear,
    out: Linear,
    before_mlp: Norm,
    up: Linear,
    down: Linear,
}

impl Block {
    fn new(init: &mut Init) -> Block {
        Block {
            before_attention: Norm::new(WIDTH),
            qkv: Linear::new(init, WIDTH, 3 * WIDTH),
            out: Linear::new(init, WIDTH, WIDTH),
            before_mlp: Norm::new(WIDTH),
            up: Linear::new(init, WIDTH, 4 * WIDTH),
            down: Linear::new(init, 4 * WIDTH, WIDTH),
        }
    }

    fn attention(&self, x: &Tensor) -> Tensor {
        let depth = WIDTH / HEADS;
        let parts =
            self.qkv.of(x).reshape([BATCH, LENGTH, 3, HEADS, depth]).permute([2, 0, 3, 1, 4]);
        let [q, k, v] = [0, 1, 2].map(|i| parts.select_at(0, i));
        let mixed = q.attention(&k, &v, Attention::new().causal());
        self.out.of(&mixed.transpose(1, 2).reshape([BATCH, LENGTH, WIDTH]))
    }

    fn of(&self, x: &Tensor) -> Tensor {
        let x = x + self.attention(&self.before_attention.of(x));
        let wide = self.up.of(&self.before_mlp.of(&x)).gelu();
        &x + self.down.of(&wide)
    }
}

#[derive(Tree)]
struct Gpt {
    token: Tensor,
    position: Tensor,
    blocks: Vec<Block>,
    last: Norm,
}

impl Gpt {
    fn new() -> Gpt {
        let mut init = Init::new();
        Gpt {
            token: init.next(&[VOCABULARY, WIDTH], WIDTH),
            position: init.next(&[LENGTH, WIDTH], WIDTH),
            blocks: (0..LAYERS).map(|_| Block::new(&mut init)).collect(),
            last: Norm::new(WIDTH),
        }
    }
}

/// The model with its data.
struct Case {
    gpt: Gpt,
    x: Tensor,
    y: Tensor,
}

impl Case {
    fn new() -> Case {
        let (x, y) = tokens(BATCH, LENGTH, VOCABULARY);
        Case {
            gpt: Gpt::new().map(&mut |p| p.clone().requires_grad()),
            x: Tensor::from(x),
            y: Tensor::from(y),
        }
    }
}

impl Model for Case {
    fn loss(&self) -> Tensor {
        let Gpt { token, position, blocks, last } = &self.gpt;
        let embedded = token.index_select(0, &self.x).reshape([BATCH, LENGTH, WIDTH]) + position;
        let x = blocks.iter().fold(embedded, |x, block| block.of(&x));
        let logits = last.of(&x).matmul(&token.t());
        cross_entropy(&logits.reshape([BATCH * LENGTH, VOCABULARY]), &self.y)
    }

    fn parameters(&self) -> Vec<Tensor> {
        self.gpt.leaves()
    }
}

pub fn step() -> Vec<Row> {
    let case = Case::new();
    let adam = Adam::new(case.parameters(), 3e-4, 0.01);
    model::train(&case, || adam.step())
}

pub fn ratio() -> Vec<Row> {
    model::ratio(&Case::new())
}
