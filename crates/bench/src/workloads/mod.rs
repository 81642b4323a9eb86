//! The workloads, one file each, under the peers' names.

mod cnn;
mod elementwise;
mod gpt;
mod gpu;
mod inference;
mod linalg;
mod lstm;
mod matmul;
mod memory;
mod mlp;
mod model;
mod ops;
mod per_example;
mod rowwise;
mod second_order;
pub mod startup;
mod tape;

use crate::measure::Measurement;
use pullback::{DType, Device, Tensor};

/// Something to time.
pub struct Workload {
    /// Its name on the command line and in the rows.
    pub name: &'static str,
    /// What is timed.
    pub about: &'static str,
    /// Runs it.
    pub run: fn() -> Vec<Measurement>,
}

/// The workloads of the CPU, in the order in which they run.
#[rustfmt::skip]
const ALL: &[Workload] = &[
    Workload { name: "tape_overhead", about: "10,000 times x·a + b on 8 values, sum, backward: 20,000 nodes", run: tape::overhead },
    Workload { name: "mlp_step", about: "784-512-512-10, batch 128, cross-entropy: a step of Adam", run: mlp::step },
    Workload { name: "cnn_step", about: "three 3×3 convolutions with batch norm on [32, 3, 32, 32]: a step of SGD with momentum", run: cnn::step },
    Workload { name: "gpt_step", about: "4 layers, d 256, 8 heads, T 256, B 4, vocabulary 512: a step of AdamW", run: gpt::step },
    Workload { name: "elementwise_chain", about: "sum(gelu(x·a + b)·sigmoid(c)) over 4,194,304 values, four gradients", run: elementwise::chain },
    Workload { name: "lstm_step", about: "one layer, 128 to 256, T 64, B 32: loss and gradients", run: lstm::step },
    Workload { name: "per_example_grads", about: "64 gradients of the MLP, one an example, by a loop", run: per_example::grads },
    Workload { name: "hvp", about: "Hessian of the MLP's loss times a vector: forward over reverse, reverse over reverse", run: second_order::hvp },
    Workload { name: "hessian", about: "the Hessian of Rosenbrock's function, n = 200", run: second_order::hessian },
    Workload { name: "softmax", about: "sum(softmax(x)·g) over [4096, 1024], and the plain vjp", run: rowwise::softmax },
    Workload { name: "layernorm", about: "sum(layer_norm(x)·g) over [4096, 1024], and the plain vjp", run: rowwise::layer_norm },
    Workload { name: "matmul", about: "square products of 256 to 2048; of 1024 with both gradients", run: matmul::square },
    Workload { name: "mlp", about: "the MLP's loss without gradients, with them, and the ratio", run: mlp::ratio },
    Workload { name: "cnn", about: "the CNN's loss without gradients, with them, and the ratio", run: cnn::ratio },
    Workload { name: "gpt", about: "the GPT's loss without gradients, with them, and the ratio", run: gpt::ratio },
    Workload { name: "inference", about: "the MLP and the CNN on one example, without gradients", run: inference::single },
    Workload { name: "attention", about: "scaled dot-product attention, [4, 8, 256, 32] and [1, 8, 2048, 64], with gradients", run: ops::attention },
    Workload { name: "convolutions", about: "layers of convolutional networks, without and with gradients", run: ops::convolutions },
    Workload { name: "pooling", about: "max, average and adaptive pooling of [16, 64, 56, 56], with gradients", run: ops::pooling },
    Workload { name: "order", about: "sort, argsort, topk, kthvalue and median of 1,048,576 values", run: ops::order },
    Workload { name: "scatter", about: "1,048,576 values added into 10,000; rows of a table and their gradient", run: ops::scatter },
    Workload { name: "cumulate", about: "running sums of 4,194,304 values: one line, rows, columns", run: ops::cumulate },
    Workload { name: "updates", about: "steps of SGD with momentum and of Adam on 4,194,304 parameters", run: ops::updates },
    Workload { name: "products", about: "small, batched and low-precision matrix products", run: ops::products },
    Workload { name: "linalg", about: "Cholesky, solve, inverse and QR of 512 × 512, SVD and eigenvalues of 256 × 256", run: linalg::factors },
    Workload { name: "fft", about: "Fourier transforms of 1,048,576 values, complex and real, and of an image", run: linalg::transforms },
    Workload { name: "memory_chain", about: "64 blocks x + tanh(x·w) on [512, 256]: plain, checkpointed, within a budget, offloaded, compressed", run: memory::chain },
    Workload { name: "startup", about: "a fresh process up to its first gradient", run: startup::fresh },
];

/// The workloads that run on a device if none is named.
pub fn of(device: Device) -> impl Iterator<Item = &'static Workload> {
    match device {
        Device::Cpu => ALL,
        Device::Cuda(_) => gpu::ALL,
    }
    .iter()
}

/// Every workload once.
pub fn every() -> impl Iterator<Item = &'static Workload> {
    ALL.iter().chain(gpu::ALL.iter().filter(|w| ALL.iter().all(|other| other.name != w.name)))
}

/// The workload of this name.
pub fn find(name: &str) -> Option<&'static Workload> {
    every().find(|w| w.name == name)
}

/// The sum of all absolute values, in double precision: the `check` of gradients.
fn abs_sum(tensors: &[Tensor]) -> f64 {
    tensors.iter().map(|x| x.cast(DType::F64).abs().sum().item::<f64>()).sum()
}

/// Runs a backward pass that cannot fail unless the library is wrong.
fn backward(loss: &Tensor) {
    loss.backward().expect("the loss is a fresh scalar");
}

/// The gradient of a leaf after a backward pass.
fn grad(x: &Tensor) -> Tensor {
    x.grad().expect("the loss depends on it")
}
