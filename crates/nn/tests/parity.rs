//! Whole trainings compared with PyTorch's: from the same weights and batches, fifty steps of three
//! small networks follow its losses.
//!
//! `data/parity.py` made the weights, batches and curves. In f64 the curves agree to 1e-9, in f32
//! to 1e-4, eagerly and compiled.

use pullback::{DType, Reduction, Result, Tensor, Tree, cross_entropy, jit};
use pullback_nn::data::read_safetensors;
use pullback_nn::losses::{Loss, MseLoss};
use pullback_nn::models::{Gpt, GptConfig};
use pullback_nn::optim::{Adam, AdamW, Optimizer, Sgd, UpdateRule};
use pullback_nn::state::load_weights;
use pullback_nn::{
    BatchNorm2d, Conv2d, Flatten, Layer, Linear, Lstm, MaxPool2d, Module, RecurrentConfig, Relu,
    Sequential,
};
use std::path::PathBuf;

/// Tests run in the folder of their package, also those that were built on another machine.
fn data(name: &str) -> PathBuf {
    PathBuf::from("data").join(name)
}

/// The losses of PyTorch's run.
fn curve(network: &str, dtype: DType) -> Vec<f64> {
    let text = std::fs::read_to_string(data("parity.json")).expect("the recorded curves");
    let all: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let dtype = if dtype == DType::F64 { "float64" } else { "float32" };
    let curve = all["curves"][network][dtype].as_array().expect("a curve");
    curve.iter().map(|loss| loss.as_f64().expect("a number")).collect()
}

/// Floats in the dtype of the run.
fn wide(x: &Tensor, dtype: DType) -> Tensor {
    if x.dtype().is_float() { x.cast(dtype) } else { x.clone() }
}

/// Trains from PyTorch's weights on PyTorch's batches, and compares the losses.
fn follow<M: Module, O: Optimizer>(
    network: &str,
    fresh: impl Fn() -> M,
    loss: impl Fn(&M, &Tensor, &Tensor) -> Tensor,
    optimizer: impl Fn(Vec<Tensor>) -> Result<O>,
) -> Result<()> {
    let batches = read_safetensors(data(&format!("parity_{network}_batches.safetensors")))?;
    let named = |name: &str| batches.get(name).expect("a batch").clone();
    for (dtype, most) in [(DType::F64, 1e-9), (DType::F32, 1e-4)] {
        let [x, y] = ["x", "y"].map(|name| wide(&named(name), dtype));
        let wanted = curve(network, dtype);
        assert!(wanted.len() == 50 && wanted[49] < 0.5 * wanted[0], "a curve that falls");
        for compiled in [false, true] {
            let model = fresh();
            load_weights(&model, data(&format!("parity_{network}.safetensors")))?;
            let model = model.to_dtype(dtype);
            let optimizer = optimizer(model.parameters())?;
            let step = jit(|(x, y): &(Tensor, Tensor)| {
                optimizer.zero_grad();
                let loss = loss(&model, x, y);
                loss.backward()?;
                optimizer.step()?;
                Ok(loss)
            });
            for (i, wanted) in wanted.iter().enumerate() {
                let at = (i % x.shape()[0]) as isize;
                let batch = (x.select_at(0, at), y.select_at(0, at));
                let loss = if compiled { step.call(&batch)? } else { step.eager(&batch) };
                let loss = loss.to_f64_vec()[0];
                assert!(
                    (loss - wanted).abs() <= most * wanted.abs(),
                    "{network} in {dtype}, compiled {compiled}: step {i} has a loss of {loss}, PyTorch {wanted}"
                );
            }
            assert_eq!(step.explain().specialisations.len(), usize::from(compiled));
        }
    }
    Ok(())
}

#[test]
fn a_small_gpt_learns_as_in_pytorch() -> Result<()> {
    let config =
        GptConfig { vocabulary: 40, length: 16, width: 32, heads: 4, layers: 2, dropout: 0.0 };
    let optimizer = AdamW { lr: 3e-3, weight_decay: 0.01, ..AdamW::default() };
    follow("gpt", || Gpt::new(&config), Gpt::loss, |p| optimizer.over(p))
}

#[test]
fn a_cnn_with_batch_norm_learns_as_in_pytorch() -> Result<()> {
    let fresh = || {
        Sequential::new()
            .then(Conv2d::new(1, 8, 3).padding(1))
            .then(BatchNorm2d::new(8))
            .then(Relu)
            .then(MaxPool2d::new(2))
            .then(Conv2d::new(8, 16, 3).padding(1))
            .then(BatchNorm2d::new(16))
            .then(Relu)
            .then(Flatten::new())
            .then(Linear::new(16 * 16, 10))
    };
    let loss = |net: &Sequential, x: &Tensor, y: &Tensor| cross_entropy(&net.forward(x), y);
    let optimizer = Sgd { lr: 0.02, momentum: 0.9, ..Sgd::default() };
    follow("cnn", fresh, loss, |p| optimizer.over(p))
}

#[derive(Tree)]
struct Reader {
    lstm: Lstm,
    head: Linear,
}

#[test]
fn an_lstm_learns_as_in_pytorch() -> Result<()> {
    let fresh = || Reader {
        lstm: RecurrentConfig::new(6, 16).num_layers(2).batch_first().lstm(),
        head: Linear::new(16, 3),
    };
    let loss = |net: &Reader, x: &Tensor, y: &Tensor| {
        let (states, _) = net.lstm.forward(x);
        MseLoss::new(Reduction::Mean).forward(&net.head.forward(&states.select_at(1, -1)), y)
    };
    let optimizer = Adam { lr: 5e-3, ..Adam::default() };
    follow("lstm", fresh, loss, |p| optimizer.over(p))
}
