//! Training within memory: a chain of 64 blocks x + tanh(x·w), plain, checkpointed, under a byte
//! budget, offloaded and compressed.
//!
//! `tensors_mib` is the most that tensors took above what was there before the step, by the pool's
//! own counters. Of that, 16.5 MiB are gradients. Budgets are chosen so that the whole takes about
//! as much as with checkpoints. A compiled step plans its own memory, so offloading and compression
//! are for eager steps alone; its arena stays between calls and is not in the figure.

use super::{abs_sum, backward, grad};
use crate::compiled;
use crate::data::{fill, tensor};
use crate::measure::{Measurement, measure, rounded};
use pullback::{
    Compress, DType, MemoryBudget, Offload, Pack, Tensor, checkpoint_sequential, jit, memory_stats,
    reset_peak, with_packing,
};
use std::sync::Arc;

const BLOCKS: u32 = 64;
const MIB: f64 = (1 << 20) as f64;

struct Chain {
    x: Tensor,
    weights: Vec<Tensor>,
}

impl Chain {
    fn new() -> Chain {
        let weight = |seed| Tensor::from_vec(fill(256 * 256, seed, 1.0 / 16.0), [256, 256]);
        Chain {
            x: tensor(&[512, 256], 99).requires_grad(),
            weights: (1..=BLOCKS).map(|seed| weight(seed).requires_grad()).collect(),
        }
    }

    fn leaves(&self) -> Vec<Tensor> {
        std::iter::once(&self.x).chain(&self.weights).cloned().collect()
    }

    fn blocks(&self) -> Vec<impl Fn(&Tensor) -> Tensor + Clone + Send + Sync + 'static> {
        let block = |w: &Tensor| {
            let w = w.clone();
            move |x: &Tensor| x + x.matmul(&w).tanh()
        };
        self.weights.iter().map(block).collect()
    }

    fn plain(&self) -> Tensor {
        self.blocks().iter().fold(self.x.clone(), |x, block| block(&x))
    }

    fn zero_grad(&self) {
        self.leaves().iter().for_each(Tensor::zero_grad);
    }

    /// Times a step and takes its peak.
    fn row(&self, suffix: &str, step: impl Fn()) -> Measurement {
        // The first step compiles, if steps are compiled, and warms the pool.
        step();
        self.zero_grad();
        let before = memory_stats().live_bytes;
        reset_peak();
        step();
        let peak = (memory_stats().peak_bytes - before) as f64 / MIB;
        let grads: Vec<Tensor> = self.leaves().iter().map(grad).collect();
        let check = abs_sum(&grads);
        drop(grads);
        measure(step).with("tensors_mib", rounded(peak, 1)).with("check", check).named(suffix)
    }

    /// A step with this forward pass.
    fn step(&self, forward: &impl Fn() -> Tensor) {
        self.zero_grad();
        backward(&forward().square().mean());
    }

    fn trained(&self, suffix: &str, forward: impl Fn() -> Tensor) -> Measurement {
        self.row(suffix, compiled::step(|| self.step(&forward)))
    }

    /// A step within a number of bytes: of all that it takes if it is compiled, of what it saves if
    /// it is not.
    fn budgeted(&self) -> Measurement {
        if compiled::on() {
            let step = jit(|(): &()| self.step(&|| self.plain())).memory_budget(24 << 20);
            return self.row("_budget", move || step.of(&()));
        }
        let budget = MemoryBudget::new(6 << 20);
        self.row("_budget", move || self.step(&|| budget.run(|| self.plain())))
    }

    fn packed(&self, suffix: &str, packer: impl Pack + 'static) -> Measurement {
        let packer: Arc<dyn Pack> = Arc::new(packer);
        self.row(suffix, move || self.step(&|| with_packing(packer.clone(), || self.plain())))
    }
}

pub fn chain() -> Vec<Measurement> {
    let chain = Chain::new();
    let blocks = chain.blocks();
    let mut rows = vec![
        chain.trained("_plain", || chain.plain()),
        chain.trained("_checkpoint", || checkpoint_sequential(&blocks, Some(8), &chain.x)),
        chain.budgeted(),
    ];
    if !compiled::on() {
        let dir = std::env::temp_dir().join(format!("pullback-bench-{}", std::process::id()));
        match Offload::to_disk(&dir) {
            Ok(offload) => rows.push(chain.packed("_offload", offload.buffer_bytes(4 << 20))),
            Err(error) => eprintln!("memory_chain_offload: {error}"),
        }
        // Empty, as every file goes with its value.
        let _ = std::fs::remove_dir(&dir);
        rows.push(chain.packed("_half", Compress::new().half(DType::BF16)));
        rows.push(chain.packed("_blocks8", Compress::new().blocks8()));
    }
    rows
}
