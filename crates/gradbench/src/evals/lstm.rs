//! `lstm`: the loss of predicting the next bits of a text with layers of LSTM cells with diagonal
//! weights, and the gradient in reverse mode.

use super::Module;
use crate::job::{Job, matrix, read, show};
use pullback::{Tensor, cat, grad, jit, scan};
use serde::Deserialize;
use serde_json::Value;

pub(super) const MODULE: Module = Module {
    name: "lstm",
    functions: &[
        ("objective", |input| {
            let (parameters, problem) = read_problem(input)?;
            let f = jit(move |x: &Parameters| problem.objective(x));
            Ok(Job::compiled(f, parameters, show))
        }),
        ("jacobian", |input| {
            let (parameters, problem) = read_problem(input)?;
            let f = jit(grad(move |x: &Parameters| problem.objective(x)));
            let flat = |(main, extra): &Parameters| {
                show(&cat(&[&main.reshape([-1]), &extra.reshape([-1])], 0))
            };
            Ok(Job::compiled(f, parameters, flat))
        }),
    ],
};

#[derive(Deserialize)]
struct LstmInput {
    main_params: Vec<Vec<f64>>,
    extra_params: Vec<Vec<f64>>,
    state: Vec<Vec<f64>>,
    sequence: Vec<Vec<f64>>,
}

/// For each layer a row of weights and a row of biases, each with forget, in, out and change side
/// by side; and the rows that the input is multiplied with, the output is multiplied with, and that
/// is added to it.
type Parameters = (Tensor, Tensor);

struct Problem {
    /// For each layer a row of what is hidden and a row of the cells.
    state: Tensor,
    /// The bits of a character in each row.
    sequence: Tensor,
}

fn read_problem(input: &Value) -> Result<(Parameters, Problem), String> {
    let LstmInput { main_params, extra_params, state, sequence } = read(input)?;
    let main = matrix("main_params", &main_params)?;
    let extra = matrix("extra_params", &extra_params)?;
    let (state, sequence) = (matrix("state", &state)?, matrix("sequence", &sequence)?);
    let (rows, bits) = (state.shape()[0], state.shape()[1]);
    if rows == 0 || rows % 2 == 1 || bits == 0 {
        return Err(format!("state is {rows}×{bits}, not two rows for each layer"));
    }
    let fits = |name: &str, x: &Tensor, rows: usize, columns: usize| match x.shape() {
        shape if shape == [rows, columns] => Ok(()),
        shape => Err(format!(
            "{name} is {}×{}, not {rows}×{columns} as the state requires",
            shape[0], shape[1]
        )),
    };
    fits("main_params", &main, rows, 4 * bits)?;
    fits("extra_params", &extra, 3, bits)?;
    fits("sequence", &sequence, sequence.shape()[0], bits)?;
    if sequence.shape()[0] < 2 {
        return Err("sequence has no second character to predict".into());
    }
    Ok(((main, extra), Problem { state, sequence }))
}

impl Problem {
    fn objective(&self, (main, extra): &Parameters) -> Tensor {
        let last = self.sequence.shape()[0] - 1;
        let (seen, next) = (self.sequence.narrow(0, 0, last), self.sequence.narrow(0, 1, last));
        let layers = self.state.shape()[0] / 2;
        // Weight and bias of each gate of each layer.
        let rows = main.reshape([8 * layers, self.state.shape()[1]]).unbind(0);
        let gate = |layer: usize, gate: usize, x: &Tensor| {
            let weight = 8 * layer + gate;
            x * &rows[weight] + &rows[weight + 4]
        };
        let turn = |state: &Vec<Tensor>, x: &Tensor| {
            let (mut x, mut after) = (x.clone(), Vec::new());
            for layer in 0..layers {
                let (hidden, cell) = (&state[2 * layer], &state[2 * layer + 1]);
                let forget = gate(layer, 0, &x).sigmoid();
                let taken = gate(layer, 1, hidden).sigmoid();
                let shown = gate(layer, 2, &x).sigmoid();
                let change = gate(layer, 3, hidden).tanh();
                let cell = cell * forget + taken * change;
                x = shown * cell.tanh();
                after.extend([x.clone(), cell]);
            }
            (after, x)
        };
        let (_, hidden) = scan(turn, &self.state.unbind(0), &(seen * extra.select_at(0, 0)));
        let said = hidden * extra.select_at(0, 1) + extra.select_at(0, 2);
        let norm = (said.exp().sum_keep(-1) + 2.0).log();
        -(next * (said - norm)).mean()
    }
}
