//! The workloads of the peers' scripts for GPUs, under their names and in their sizes.
//!
//! The peers start from random numbers of their own, so the checks are not theirs to compare: each
//! workload compares a part of its result with the same mathematics in a higher precision, or sees
//! that its loss falls, and fails if that is not so. `--quick` runs them small, on any device.

mod attention;
mod convolutions;
mod gpt2;
mod llama;
mod lstm;
mod memory;
mod per_example;
mod pointwise;
mod products;
mod resnet;
mod rowwise;
mod training;

use super::{Workload, mlp};
use crate::measure::{Measurement, rounded};
use pullback::{DType, Tensor, with_tf32};

/// The workloads, in the order in which they run.
#[rustfmt::skip]
pub const ALL: &[Workload] = &[
    Workload { name: "matmul_bf16", about: "square products of 1024, 4096 and 8192 in bf16", run: products::bf16 },
    Workload { name: "matmul_f16", about: "… in f16", run: products::f16 },
    Workload { name: "matmul_f32", about: "… in f32", run: products::f32 },
    Workload { name: "matmul_tf32", about: "… of f32 in TF32", run: products::tf32 },
    Workload { name: "mlp_step", about: "784-512-512-10, batch 128, cross-entropy: a step of Adam", run: mlp::step },
    Workload { name: "elementwise_chain_64M", about: "sum(gelu(x·a + b)·sigmoid(c)) over 67,108,864 values, four gradients", run: pointwise::chain },
    Workload { name: "softmax_16384x4096_bf16", about: "softmax of rows and its gradient", run: rowwise::softmax },
    Workload { name: "layernorm_16384x4096_bf16", about: "layer norm of rows in f32, from and to bf16, and its gradients", run: rowwise::layer_norm },
    Workload { name: "tape_overhead_1000", about: "1000 times x·a + b on 8 values, sum, backward (eager only)", run: pointwise::tape },
    Workload { name: "attention_b16h12t1024d64", about: "causal attention in bf16, with gradients", run: attention::short },
    Workload { name: "attention_b4h16t4096d128", about: "causal attention in bf16, with gradients", run: attention::long },
    Workload { name: "conv_resnet50", about: "four convolutions of ResNet-50 in bf16, batch 128, with gradients", run: convolutions::layers },
    Workload { name: "gpt2_124m_bf16", about: "GPT-2 124M, 16 × 1024 tokens, autocast to bf16: a step of AdamW", run: gpt2::bf16 },
    Workload { name: "gpt2_124m_tf32", about: "… in f32 with products in TF32", run: gpt2::tf32 },
    Workload { name: "gpt2_decode_b1_cache512_bf16", about: "one token of GPT-2 124M in bf16, with a cache of 512 positions", run: gpt2::decode },
    Workload { name: "llama_1b_bf16", about: "Llama 3.2 1B, 4 × 2048 tokens, autocast to bf16: a step of AdamW", run: llama::step },
    Workload { name: "resnet50_bf16_b128", about: "ResNet-50, 128 images of 224 × 224, autocast to bf16: a step of SGD with momentum", run: resnet::step },
    Workload { name: "lstm_1024_t128_b64_f32", about: "one layer, 1024 to 1024, T 128, B 64: loss and gradients", run: lstm::f32 },
    Workload { name: "lstm_1024_t128_b64_tf32", about: "… with products in TF32", run: lstm::tf32 },
    Workload { name: "per_example_grads_256", about: "256 gradients of the MLP, one an example", run: per_example::grads },
    Workload { name: "memory_48_blocks_plain", about: "48 transformer blocks of width 1024 on 8 × 1024 positions, autocast to bf16: time and peak of loss and gradients", run: memory::plain },
    Workload { name: "memory_48_blocks_every_block", about: "… with a checkpoint at every block", run: memory::every_block },
    Workload { name: "memory_48_blocks_sqrt", about: "… with a checkpoint at every seventh block", run: memory::sqrt },
    Workload { name: "memory_48_blocks_offload", about: "… with what backward needs kept on the host; compiled, within a budget", run: memory::offload },
    Workload { name: "memory_48_blocks_recompute_offload", about: "… with products kept on the host, and the rest computed again (eager only)", run: memory::recompute_offload },
];

/// Runs `f` with products of f32 in TF32.
fn tf32<R>(f: impl FnOnce() -> R) -> R {
    with_tf32(true, f)
}

/// The row with its rate, in TFLOP/s.
fn with_tflops(row: Measurement, operations: f64) -> Measurement {
    let rate = rounded(operations / row.ms() / 1e9, 1);
    row.with("tflops", rate)
}

/// |got − want| / |want|, as vectors, in double precision.
fn difference(got: &Tensor, want: &Tensor) -> f64 {
    let (got, want) = (got.detach().cast(DType::F64), want.detach().cast(DType::F64));
    let length = |x: &Tensor| x.square().sum().item::<f64>().sqrt();
    length(&(got - &want)) / length(&want).max(f64::MIN_POSITIVE)
}

/// The row with the difference of a result from its reference as its check.
///
/// # Panics
/// If the difference is larger than that.
fn compared(row: Measurement, differences: &[f64], most: f64) -> Measurement {
    let worst = differences.iter().copied().fold(0.0, f64::max);
    let fits = differences.iter().all(|d| *d <= most);
    assert!(fits, "results differ from the reference by {differences:?} of it, more than {most}");
    row.with("check", worst)
}

#[cfg(test)]
mod tests {
    use super::{Workload, memory};
    use crate::{compiled, quick};

    /// Small, every workload runs and passes its checks.
    fn runs_small() {
        let mut names = Vec::new();
        for Workload { name, run, .. } in super::ALL {
            for row in run() {
                assert!(row.ms() > 0.0, "{name}");
                names.push(format!("{name}{}", row.suffix));
            }
        }
        for name in ["matmul_tf32_8192", "gpt2_124m_bf16", "memory_48_blocks_sqrt"] {
            assert!(names.iter().any(|n| n == name), "{name} is not among {names:?}");
        }
    }

    fn checkpoints_change_no_gradient() {
        let runs = [memory::plain, memory::every_block, memory::sqrt, memory::offload];
        let [plain, each, sqrt, away] = runs.map(|run| run()[0].get("check").expect("a check"));
        let near = |check: f64| (check - plain).abs() <= 1e-3 * plain;
        assert!(near(each) && near(sqrt) && near(away), "{plain}, {each}, {sqrt}, {away}");
        for row in memory::recompute_offload() {
            assert!(near(row.get("check").expect("a check")), "{plain}");
        }
    }

    // One test, as workloads seed the global generator.
    #[test]
    fn workloads_run_small() {
        quick::switch_on();
        runs_small();
        checkpoints_change_no_gradient();
        compiled::switch_on();
        runs_small();
        checkpoints_change_no_gradient();
    }
}
