//! One LSTM layer, 128 to 256, T 64, B 32: loss and gradients. The inputs of all steps go through one
//! product; the state through one a step, by `scan`.

use super::{abs_sum, backward, grad};
use crate::compiled;
use crate::data::{Init, tensor};
use crate::measure::{Row, measure};
use pullback::{Tensor, scan};

const INPUTS: usize = 128;
const WIDTH: usize = 256;
const LENGTH: usize = 64;
const BATCH: usize = 32;

struct Lstm {
    from_input: Tensor,
    from_state: Tensor,
    input_bias: Tensor,
    state_bias: Tensor,
}

impl Lstm {
    fn new() -> Lstm {
        let mut init = Init::new();
        Lstm {
            from_input: init.next(&[4 * WIDTH, INPUTS], WIDTH).requires_grad(),
            from_state: init.next(&[4 * WIDTH, WIDTH], WIDTH).requires_grad(),
            input_bias: init.next(&[4 * WIDTH], WIDTH).requires_grad(),
            state_bias: Tensor::zeros([4 * WIDTH]).requires_grad(),
        }
    }

    fn parameters(&self) -> [&Tensor; 4] {
        [&self.from_input, &self.from_state, &self.input_bias, &self.state_bias]
    }

    /// The states after each step, `[T, B, WIDTH]`.
    fn of(&self, x: &Tensor) -> Tensor {
        let driven = x.matmul(&self.from_input.t()) + (&self.input_bias + &self.state_bias);
        let recur = self.from_state.t();
        let turn = |(h, c): &(Tensor, Tensor), driven: &Tensor| {
            let gates = (driven + h.matmul(&recur)).chunk(4, -1);
            let [i, f, o] = [0, 1, 3].map(|k| gates[k].sigmoid());
            let c = f * c + i * gates[2].tanh();
            let h = o * c.tanh();
            ((h.clone(), c), h)
        };
        let zeros = Tensor::zeros([BATCH, WIDTH]);
        scan(turn, &(zeros.clone(), zeros), &driven).1
    }
}

pub fn step() -> Vec<Row> {
    let (lstm, x) = (Lstm::new(), tensor(&[LENGTH, BATCH, INPUTS], 1).requires_grad());
    let row = measure(compiled::step(|| {
        lstm.parameters().into_iter().chain([&x]).for_each(Tensor::zero_grad);
        backward(&lstm.of(&x).square().mean());
    }));
    vec![row.with("check", abs_sum(&[grad(&x)]))]
}
