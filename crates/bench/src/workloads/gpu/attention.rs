//! Causal scaled dot-product attention in bf16, without and with gradients.

use super::super::grad;
use super::{compared, difference, with_tflops};
use crate::measure::{Measurement, Protocol, rounded};
use crate::{compiled, quick};
use pullback::{Attention, DType, Tensor, manual_seed, no_grad};

pub fn short() -> Vec<Measurement> {
    of(quick::size([16, 12, 1024, 64], [2, 2, 48, 16]))
}

pub fn long() -> Vec<Measurement> {
    of(quick::size([4, 16, 4096, 128], [1, 2, 80, 32]))
}

fn of(shape: [usize; 4]) -> Vec<Measurement> {
    manual_seed(0);
    let leaves = [(); 3].map(|()| Tensor::randn_with(shape, DType::BF16).requires_grad());
    let g = Tensor::randn_with(shape, DType::BF16);
    let [q, k, v] = &leaves;
    let attention = || q.attention(k, v, Attention::new().causal());
    let value = compiled::step(|| no_grad(attention));
    let forward = Protocol::counted(5, 20).measure(|| drop(value()));
    let row = Protocol::counted(5, 20).measure(compiled::step(|| {
        leaves.iter().for_each(Tensor::zero_grad);
        attention().backward_with(&g).expect("the cotangent has the shape of the result");
    }));

    // The first head in f32, with all of its scores.
    let head = |x: &Tensor| x.detach().at((0, 0)).cast(DType::F32);
    let exact = leaves.each_ref().map(|x| head(x).requires_grad());
    let [eq, ek, ev] = &exact;
    let [batch, heads, length, features] = shape.map(|n| n as f64);
    let later = Tensor::ones([shape[2], shape[2]]).triu(1).gt(0.0);
    let scores = (eq.matmul(&ek.t()) / features.sqrt()).masked_fill(&later, f64::NEG_INFINITY);
    let want = scores.softmax(-1).matmul(ev);
    let mut wrong = vec![difference(&value().at((0, 0)), &want)];
    want.backward_with(&head(&g)).expect("the cotangent has the shape of the result");
    wrong.extend(leaves.iter().zip(&exact).map(|(x, y)| difference(&head(&grad(x)), &grad(y))));

    let operations = 4.0 * batch * heads * length * length * features / 2.0;
    let row = compared(row, &wrong, 2e-2)
        .with("fwd_ms", forward.ms())
        .with("fwd_tflops", rounded(operations / forward.ms() / 1e9, 1));
    vec![with_tflops(row, 3.5 * operations)]
}
