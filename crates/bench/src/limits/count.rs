//! The arithmetic and the bytes of a program that no implementation of it avoids.

use crate::measure::{Measurement, rounded};
use pullback::Program;

use pullback_ir::{Equation, Flow, Fused, Op, Role, Spec, Var};

/// What a step has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Floating-point operations of its products.
    pub operations: f64,
    /// Bytes of its arguments and results, each once.
    pub bytes: f64,
}

impl Work {
    /// That of a program.
    pub fn of(program: &Program) -> Work {
        let size = |&v: &Var| program.spec(v).bytes() as f64;
        let read = |v: &&Var| {
            program.equations.iter().any(|e| e.inputs.contains(v)) || program.outputs.contains(v)
        };
        let operations = program.equations.iter().map(|e| operations(program, e)).sum();
        let inputs: f64 = program.inputs.iter().filter(read).map(size).sum();
        Work { operations, bytes: inputs + program.outputs.iter().map(size).sum::<f64>() }
    }

    /// A row with it.
    pub fn noted(self, row: Measurement) -> Measurement {
        row.with("gflop", rounded(self.operations / 1e9, 4))
            .with("mb", rounded(self.bytes / 1e6, 3))
    }
}

/// The operations of an equation's products: a multiplication and an addition for each pair of
/// factors that meet.
pub fn operations(program: &Program, equation: &Equation) -> f64 {
    let spec = |list: &[Var], k: usize| program.spec(list[k]).clone();
    let len = |spec: &Spec| spec.len() as f64;
    let from_end = |spec: &Spec, k: usize| spec.shape[spec.shape.len() - k] as f64;
    let input = |k: usize| spec(&equation.inputs, k);
    match &equation.op {
        Op::Dot | Op::DotRegion(_) => {
            let b = input(1);
            let columns = if b.shape.len() >= 2 { from_end(&b, 1) } else { 1.0 };
            2.0 * len(&input(0)) * columns
        }
        Op::Conv(conv) => {
            // Each of the three maps has the products of the forward one: every position of its
            // result with the window of one filter.
            let y = spec(&equation.outputs, 0);
            let (images, filters) = match conv.role {
                Role::Forward => (y, input(1)),
                Role::Input(_) => (input(0), input(1)),
                Role::Filter => (input(1), y),
            };
            2.0 * len(&images) * len(&filters) / filters.shape[0] as f64
        }
        Op::Fused(Fused::Attention(how)) => {
            4.0 * met(how.causal, &input(0), &input(1)) * from_end(&input(0), 1)
        }
        // Scores are computed once more: storing them costs more.
        Op::Fused(Fused::AttentionVjp(how)) => {
            10.0 * met(how.causal, &input(0), &input(1)) * from_end(&input(0), 1)
        }
        Op::Flow(flow) => match &**flow {
            Flow::Scan(scan) => scan.length as f64 * Work::of(&scan.body).operations,
            // How often they run is not known.
            Flow::Cond { .. } | Flow::While { .. } => 0.0,
        },
        _ => 0.0,
    }
}

/// Pairs of a query and a key that it attends to, in all heads.
fn met(causal: bool, queries: &Spec, keys: &Spec) -> f64 {
    let length = |spec: &Spec| spec.shape[spec.shape.len() - 2];
    let (n, m) = (length(queries), length(keys));
    let heads = queries.len() / (n * queries.shape[queries.shape.len() - 1]).max(1);
    let pairs = match causal {
        true => (0..n).map(|i| m.min(i + 1)).sum(),
        false => n * m,
    };
    (heads * pairs) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(text: &str) -> Work {
        Work::of(&text.parse().unwrap())
    }

    #[test]
    fn a_product_has_two_operations_for_each_pair() {
        let text = "program (a: f32[3,5], b: f32[5,7]) { let c: f32[3,7] = dot a b; return c }";
        let found = work(text);
        assert_eq!(found.operations, 2.0 * 3.0 * 5.0 * 7.0);
        assert_eq!(found.bytes, 4.0 * (15.0 + 35.0 + 21.0));
    }

    #[test]
    fn what_is_not_read_does_not_count() {
        let found = work("program (a: f32[8], b: f32[8]) { let c: f32[8] = tanh a; return c }");
        assert_eq!(found, Work { operations: 0.0, bytes: 64.0 });
    }

    #[test]
    fn a_causal_query_meets_the_keys_before_it() {
        let spec = Spec::cpu(pullback::DType::F32, [2, 4, 8]);
        assert_eq!((met(false, &spec, &spec), met(true, &spec, &spec)), (32.0, 20.0));
    }
}
