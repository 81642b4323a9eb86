//! One LSTM layer, 1024 to 1024, T 128, B 64: loss and gradients.

use super::super::{abs_sum, backward, grad};
use super::{compared, difference};
use crate::measure::{Measurement, Protocol};
use crate::{compiled, quick};
use pullback::{DType, Tensor, manual_seed, no_grad};
use pullback_nn::{Lstm, Module};

pub fn f32() -> Vec<Measurement> {
    step(1e-4)
}

pub fn tf32() -> Vec<Measurement> {
    super::tf32(|| step(5e-3))
}

fn step(most: f64) -> Vec<Measurement> {
    manual_seed(0);
    let [width, length, batch] = quick::size([1024, 128, 64], [16, 5, 3]);
    let (lstm, x) = (Lstm::new(width, width), Tensor::randn([length, batch, width]));
    let parameters = lstm.parameters();
    let row = Protocol::counted(5, 20).measure(compiled::step(|| {
        parameters.iter().for_each(Tensor::zero_grad);
        let (states, _) = lstm.forward(&x);
        backward(&states.square().mean());
    }));
    let gradients: Vec<Tensor> = parameters.iter().map(grad).collect();
    assert!(abs_sum(&gradients).is_finite(), "a gradient is not finite");

    // The first two positions in double precision.
    let (exact, two) = (lstm.to_dtype(DType::F64), x.narrow(0, 0, 2));
    let (got, want) = no_grad(|| (lstm.forward(&two).0, exact.forward(&two.cast(DType::F64)).0));
    vec![compared(row, &[difference(&got, &want)], most)]
}
