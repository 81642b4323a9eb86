//! Compiled training steps of recurrent layers and transformers give what eager ones give, dropout
//! included. They draw from the global generator, so they are in a file of their own and are
//! serialised.

#[allow(dead_code)]
mod recorded;

use pullback::{DType, Key, Result, Tensor, jit, manual_seed, no_grad};
use pullback_nn::{
    AttentionMasks, Module, RecurrentConfig, TransformerConfig, TransformerEncoderLayer,
};
use recorded::near;
use std::sync::{Mutex, PoisonError};

static EXCLUSIVE: Mutex<()> = Mutex::new(());

fn normal(shape: &[usize], seed: u64) -> Tensor {
    Key::new(seed).normal(shape, DType::F64, 0.0, 1.0)
}

/// Trains for some steps, eagerly and compiled, from the same start and seed: the same losses and
/// parameters.
fn compiled_is_eager<M: Module>(
    make: impl Fn() -> M,
    loss: impl Fn(&M, &Tensor) -> Tensor,
    x: &[usize],
) {
    let _lock = EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner);
    let run = |compiled: bool| {
        manual_seed(11);
        let model = make().to_dtype(DType::F64);
        let step = |x: &Tensor| -> Result<Tensor> {
            model.zero_grad();
            let loss = loss(&model, x);
            loss.backward()?;
            no_grad(|| {
                model.parameters().iter().for_each(|p| {
                    p.sub_(p.grad().expect("a gradient") * 0.1);
                })
            });
            Ok(loss)
        };
        let fast = jit(step);
        let mut seen = Vec::new();
        for i in 0..3 {
            let x = normal(x, 20 + i);
            seen.push(if compiled { fast.call(&x) } else { step(&x) }.unwrap());
        }
        assert_eq!(fast.explain().specialisations.len(), usize::from(compiled));
        seen.extend(model.parameters().iter().map(Tensor::detach));
        seen
    };
    for (i, (a, b)) in run(true).iter().zip(&run(false)).enumerate() {
        near(&format!("number {i}"), &a.detach(), &b.detach(), 1e-11);
    }
}

#[test]
fn a_compiled_lstm_step_is_the_eager_one() {
    // With dropout between the layers: the keys come from the same generator.
    let config = RecurrentConfig::new(3, 4).num_layers(2).bidirectional().dropout(0.3);
    compiled_is_eager(|| config.lstm(), |m, x| m.forward(x).0.square().mean(), &[5, 2, 3]);
    let lengths = Tensor::from([3i64, 5]);
    compiled_is_eager(
        || RecurrentConfig::new(3, 4).bidirectional().gru(),
        |m, x| m.forward_with(x, None, Some(&lengths)).0.square().mean(),
        &[5, 2, 3],
    );
}

#[test]
fn a_compiled_transformer_step_is_the_eager_one() {
    let config = TransformerConfig::new(8, 2).dim_feedforward(12).dropout(0.2).norm_first().gelu();
    let causal = AttentionMasks::new().causal();
    let loss =
        |m: &TransformerEncoderLayer, x: &Tensor| m.forward_masked(x, causal).square().mean();
    compiled_is_eager(|| config.encoder_layer(), loss, &[2, 5, 8]);
}
