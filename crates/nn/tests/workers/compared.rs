//! Training by one process and by many workers, to be compared.

use pullback::{DType, Group, Key, Result, Tensor, Tree};
use pullback_nn::models::{Gpt, GptConfig};
use pullback_nn::{BatchNorm2d, Conv2d, Layer, Linear, Module, Relu, Sequential};

/// The workers of a comparison.
#[derive(Clone, Debug)]
pub enum Crew {
    /// So many threads of this process.
    Threads(usize),
    /// This process is one of them.
    Joined(Group),
}

impl Crew {
    /// What `f` gives on the workers: on all of them, or on this one.
    pub fn each<R: Send>(&self, f: impl Fn(&Group) -> Result<R> + Sync) -> Result<Vec<R>> {
        match self {
            Crew::Threads(workers) => pullback_workers::threads(*workers, |group| f(&group)),
            Crew::Joined(group) => Ok(vec![f(group)?]),
        }
    }
}

/// Random numbers that depend on the number alone.
pub fn normal(number: u64, shape: &[usize]) -> Tensor {
    Key::new(7).fold_in(number).normal(shape, DType::F64, 0.0, 1.0)
}

/// A copy in f64 whose parameters are drawn from keys.
pub fn seeded<M: Module>(model: &M) -> M {
    let model = model.to_dtype(DType::F64);
    for (i, (_, x)) in model.named_parameters().into_iter().enumerate() {
        let value = normal(100 + i as u64, x.shape()) * 0.3;
        pullback::no_grad(|| x.copy_(value));
    }
    model
}

pub fn mlp() -> Sequential {
    seeded(&Sequential::new().then(Linear::new(6, 16)).then(Relu).then(Linear::new(16, 3)))
}

#[derive(Clone, Tree)]
pub struct Cnn {
    pub conv: Conv2d,
    pub norm: BatchNorm2d,
    pub out: Linear,
}

impl Cnn {
    pub fn new() -> Cnn {
        seeded(&Cnn {
            conv: Conv2d::new(1, 4, 3),
            norm: BatchNorm2d::new(4),
            out: Linear::new(4 * 4 * 4, 3),
        })
    }

    pub fn forward(&self, x: &Tensor) -> Tensor {
        self.out.forward(&self.norm.forward(&self.conv.forward(x)).relu().flatten(1, -1))
    }
}

pub fn gpt() -> Gpt {
    let config =
        GptConfig { vocabulary: 11, length: 6, width: 8, heads: 2, layers: 2, dropout: 0.0 };
    seeded(&Gpt::new(&config))
}

/// The parameters and buffers as numbers, with their names.
pub fn values(model: &impl Module) -> Vec<(String, Vec<f64>)> {
    model.named_state().into_iter().map(|(name, x)| (name, x.to_f64_vec())).collect()
}

/// Asserts that two lists of values differ by less than `tolerance`.
pub fn assert_close(
    what: &str,
    got: &[(String, Vec<f64>)],
    wanted: &[(String, Vec<f64>)],
    tolerance: f64,
) {
    assert_eq!(got.len(), wanted.len());
    for ((name, got), (_, wanted)) in got.iter().zip(wanted) {
        for (i, (a, b)) in got.iter().zip(wanted).enumerate() {
            let bound = tolerance * b.abs().max(1.0);
            assert!((a - b).abs() <= bound, "{what}: {name}[{i}] is {a}, not {b}");
        }
    }
}
