//! Time and peak memory of a stack of 48 transformer blocks, width 1024, on 8 × 1024 positions:
//! plain, with checkpoints, and with what backward needs kept on the host, all of it or what is not
//! cheap to compute again.

use super::super::{abs_sum, backward, grad};
use crate::measure::{Measurement, Protocol};
use crate::{compiled, quick};
use pullback::{DType, MemoryBudget, Offload, Tensor, autocast, checkpoint, manual_seed};
use pullback_nn::models::Gpt2Block;
use pullback_nn::{Layer, Module};
use std::sync::Arc;

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

/// Values that may be on the device at a time, beside parameters and their gradients: so many times
/// the bytes between two blocks.
const KEPT: usize = 12;

/// Eagerly, all that backward needs goes to the host; compiled, what the planner chooses for a
/// budget.
pub fn offload() -> Vec<Measurement> {
    if compiled::on() {
        return Stack::new().measure_within_budget(plainly);
    }
    step(|blocks, x| Offload::to_host().run(|| plainly(blocks, x)))
}

/// Products go to the host, and what is cheap is computed from them again.
pub fn recompute_offload() -> Vec<Measurement> {
    if compiled::on() {
        eprintln!(
            "memory_48_blocks_recompute_offload: memory_48_blocks_offload is planned so, compiled"
        );
        return Vec::new();
    }
    step(|blocks, x| {
        let budget = MemoryBudget::new(KEPT * x.spec().bytes());
        budget.or_pack(Arc::new(Offload::to_host())).run(|| plainly(blocks, x))
    })
}

fn plainly(blocks: &[Gpt2Block], x: &Tensor) -> Tensor {
    blocks.iter().fold(x.clone(), |x, block| block.forward(&x))
}

fn in_segments(blocks: &[Gpt2Block], segment: usize, x: &Tensor) -> Tensor {
    blocks.chunks(segment).fold(x.clone(), |x, blocks| {
        let blocks = blocks.to_vec();
        checkpoint(move |x| blocks.iter().fold(Tensor::clone(x), |x, b| b.forward(&x)), &x)
    })
}

fn step(forward: fn(&[Gpt2Block], &Tensor) -> Tensor) -> Vec<Measurement> {
    let stack = Stack::new();
    let row = Protocol::counted(1, 3).measure(compiled::step(|| stack.run(forward)));
    vec![stack.checked(row)]
}

/// The blocks, their parameters, and what they are applied to.
struct Stack {
    blocks: Vec<Gpt2Block>,
    parameters: Vec<Tensor>,
    x: Tensor,
}

impl Stack {
    fn new() -> Stack {
        manual_seed(0);
        let [count, width, heads] = quick::size([48, 1024, 16], [9, 32, 2]);
        let blocks: Vec<Gpt2Block> =
            (0..count).map(|_| Gpt2Block::new(width, heads, 0.0)).collect();
        let x = Tensor::randn(quick::size([8, 1024, width], [2, 16, width]));
        Stack { parameters: blocks.parameters(), blocks, x }
    }

    fn run(&self, forward: fn(&[Gpt2Block], &Tensor) -> Tensor) {
        self.parameters.iter().for_each(Tensor::zero_grad);
        let y = autocast(DType::BF16, || forward(&self.blocks, &self.x));
        backward(&y.cast(DType::F32).square().mean());
    }

    fn checked(&self, row: Measurement) -> Measurement {
        let check = abs_sum(&[grad(&self.parameters[0])]);
        assert!(check.is_finite() && check > 0.0, "the sum of the first gradient is {check}");
        row.with("check", check)
    }

    /// Gradients, and few values beside them.
    fn measure_within_budget(
        &self,
        forward: fn(&[Gpt2Block], &Tensor) -> Tensor,
    ) -> Vec<Measurement> {
        let gradients: usize = self.parameters.iter().map(|p| p.spec().bytes()).sum();
        let bytes = gradients + KEPT * self.x.spec().bytes();
        match compiled::within(bytes, || self.run(forward)) {
            Ok(step) => vec![self.checked(Protocol::counted(1, 3).measure(step))],
            Err(why) => {
                eprintln!("memory_48_blocks_offload: {why}");
                Vec::new()
            }
        }
    }
}
