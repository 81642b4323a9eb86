//! `llsq`: ½ Σᵢ (sᵢ − Σⱼ xⱼ tᵢʲ)² for tᵢ evenly spaced from −1 to 1 and sᵢ = sign tᵢ, and its
//! gradient in reverse mode.
//!
//! t, s and the powers follow from n alone. They are part of the compiled function all the same, as
//! they are of the suite's C++: the compiler folds numbers that are the same at every index, not
//! vectors, so every call computes them.

use super::Module;
use crate::job::{Job, read, show, vector};
use pullback::{DType, Tensor, cat, grad, jit};
use serde::Deserialize;
use serde_json::Value;

pub(super) const MODULE: Module = Module {
    name: "llsq",
    functions: &[
        ("primal", |input| {
            let (x, n) = problem(input)?;
            let f = jit(move |x: &Tensor| primal(x, n));
            Ok(Job::compiled(f, x, show))
        }),
        ("gradient", |input| {
            let (x, n) = problem(input)?;
            let f = jit(grad(move |x: &Tensor| primal(x, n)));
            Ok(Job::compiled(f, x, show))
        }),
    ],
};

#[derive(Deserialize)]
struct LlsqInput {
    x: Vec<f64>,
    n: usize,
}

fn problem(input: &Value) -> Result<(Tensor, usize), String> {
    let LlsqInput { x, n } = read(input)?;
    if !(2..=1 << 40).contains(&n) {
        return Err(format!("n is {n}, not from 2 points, which span the interval, to 2⁴⁰"));
    }
    if x.is_empty() {
        return Err("x has no coefficients".into());
    }
    Ok((vector(&x), n))
}

fn primal(x: &Tensor, n: usize) -> Tensor {
    let t = Tensor::arange(0, n as i64).cast(DType::F64) * (2.0 / (n - 1) as f64) - 1.0;
    (t.sign() - polynomial(x, &t)).square().sum() / 2.0
}

/// Σⱼ xⱼ tʲ for each t. All powers of all t would be n·m numbers; with x as a matrix of √m rows, j
/// = row·width + column, it takes √m powers for the columns and √m for the rows.
fn polynomial(x: &Tensor, t: &Tensor) -> Tensor {
    let m = x.len();
    let width = m.isqrt().max(1);
    let rows = m.div_ceil(width);
    let x = x.pad([(0, rows * width - m)]).reshape([rows, width]);
    let columns = powers(t, width);
    let step = columns.select_at(0, -1) * t;
    (x.matmul(&columns) * powers(&step, rows)).sum_over(0)
}

/// The powers of t from 0 to m − 1, a row each.
fn powers(t: &Tensor, m: usize) -> Tensor {
    let one = Tensor::ones_with([1, t.len()], DType::F64);
    cat(&[&one, &t.expand([m - 1, t.len()])], 0).cumprod(0)
}
