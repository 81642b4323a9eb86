//! Answers of trained models to one example: where a model is used rather than trained.

use super::model::filled;
use super::{abs_sum, mlp};
use crate::data::tensor;
use crate::measure::{Measurement, measure};
use crate::{compiled, limits};
use pullback::{Tensor, jit, no_grad};
use pullback_nn::models::Cnn;
use pullback_nn::{Layer, Module};

/// The multilayer perceptron and the convolutional network, each on one input.
pub fn single() -> Vec<Measurement> {
    let cnn = filled(Cnn::new(3, &[32, 64, 128], 10));
    vec![
        answer(mlp::mlp(), &tensor(&[1, 784], 1)).named("_mlp"),
        answer(cnn, &tensor(&[1, 3, 32, 32], 1)).named("_cnn"),
    ]
}

/// The input is an argument of the program, as a user's is. The check is of the answer.
fn answer(model: impl Layer + Module + 'static, x: &Tensor) -> Measurement {
    model.eval();
    let forward = jit(move |x: &Tensor| no_grad(|| model.forward(x)));
    let call = |x: &Tensor| match compiled::on() {
        true => {
            let y = forward.of(x);
            limits::keep(|| Some(forward.explain().specialisations.pop()?.program));
            y
        }
        false => forward.eager(x),
    };
    measure(|| drop(call(x))).with("check", abs_sum(&[call(x)]))
}
