//! One LSTM layer, 128 to 256, T 64, B 32: loss and gradients.

use super::{abs_sum, backward, grad};
use crate::compiled;
use crate::data::{Init, tensor};
use crate::measure::{Measurement, measure};
use pullback::{Tensor, no_grad};
use pullback_nn::{Lstm, Module};

const INPUTS: usize = 128;
const WIDTH: usize = 256;
const LENGTH: usize = 64;
const BATCH: usize = 32;

/// The layer with the peers' numbers: one bias is theirs, the other zero.
fn lstm() -> Lstm {
    let (lstm, mut init) = (Lstm::new(INPUTS, WIDTH), Init::new());
    for (name, x) in lstm.named_parameters() {
        no_grad(|| match name.as_str() {
            "bias_hh_l0" => x.zero_(),
            _ => x.copy_(init.next(x.shape(), WIDTH)),
        });
    }
    lstm
}

pub fn step() -> Vec<Measurement> {
    let (lstm, x) = (lstm(), tensor(&[LENGTH, BATCH, INPUTS], 1).requires_grad());
    let parameters = lstm.parameters();
    let row = measure(compiled::step(|| {
        parameters.iter().chain([&x]).for_each(Tensor::zero_grad);
        let (states, _) = lstm.forward(&x);
        backward(&states.square().mean());
    }));
    vec![row.with("check", abs_sum(&[grad(&x)]))]
}
