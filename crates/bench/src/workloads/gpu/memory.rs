//! Time and peak memory of a stack of 48 transformer blocks, width 1024, on 8 × 1024 positions:
//! plain, with checkpoints, and with what backward needs kept on the host.

use super::super::{abs_sum, backward, grad};
use crate::measure::{Measurement, Protocol};
use crate::{compiled, quick};
use pullback::{DType, Offload, Tensor, autocast, checkpoint, manual_seed};
use pullback_nn::models::Gpt2Block;
use pullback_nn::{Layer, Module};

/// How many blocks a checkpoint spans, where it spans several.
const SEGMENT: usize = 7;

pub fn plain() -> Vec<Measurement> {
    step(|blocks, x| blocks.iter().fold(x.clone(), |x, block| block.forward(&x)))
}

pub fn every_block() -> Vec<Measurement> {
    step(|blocks, x| in_segments(blocks, 1, x))
}

pub fn sqrt() -> Vec<Measurement> {
    step(|blocks, x| in_segments(blocks, SEGMENT, x))
}

pub fn offload() -> Vec<Measurement> {
    if compiled::on() {
        eprintln!("memory_48_blocks_offload: a compiled step plans its memory itself");
        return Vec::new();
    }
    step(|blocks, x| {
        Offload::to_host().run(|| blocks.iter().fold(x.clone(), |x, block| block.forward(&x)))
    })
}

fn in_segments(blocks: &[Gpt2Block], segment: usize, x: &Tensor) -> Tensor {
    blocks.chunks(segment).fold(x.clone(), |x, blocks| {
        let blocks = blocks.to_vec();
        checkpoint(move |x| blocks.iter().fold(Tensor::clone(x), |x, b| b.forward(&x)), &x)
    })
}

fn step(forward: fn(&[Gpt2Block], &Tensor) -> Tensor) -> Vec<Measurement> {
    manual_seed(0);
    let [count, width, heads] = quick::size([48, 1024, 16], [9, 32, 2]);
    let blocks: Vec<Gpt2Block> = (0..count).map(|_| Gpt2Block::new(width, heads, 0.0)).collect();
    let x = Tensor::randn(quick::size([8, 1024, width], [2, 16, width]));
    let parameters = blocks.parameters();
    let row = Protocol::counted(1, 3).measure(compiled::step(|| {
        parameters.iter().for_each(Tensor::zero_grad);
        let y = autocast(DType::BF16, || forward(&blocks, &x));
        backward(&y.cast(DType::F32).square().mean());
    }));
    let check = abs_sum(&[grad(&parameters[0])]);
    assert!(check.is_finite() && check > 0.0, "the sum of the first gradient is {check}");
    vec![row.with("check", check)]
}
