//! `gmm`: the log posterior of a mixture of Gaussians with a Wishart prior on its precision
//! matrices, and its gradient in reverse mode.

use super::Module;
use crate::job::{Job, matrix, read, show, vector};
use pullback::{DType, Tensor, Tree, cat, grad, jit};
use serde::Deserialize;
use serde_json::{Value, json};
use std::f64::consts::{SQRT_2, TAU};

pub(super) const MODULE: Module = Module {
    name: "gmm",
    functions: &[
        ("objective", |input| {
            let (mixture, data) = problem(input)?;
            let f = jit(move |mixture: &Mixture| data.log_posterior(mixture));
            Ok(Job::compiled(f, mixture, show))
        }),
        ("jacobian", |input| {
            let (mixture, data) = problem(input)?;
            let f = jit(grad(move |mixture: &Mixture| data.log_posterior(mixture)));
            Ok(Job::compiled(
                f,
                mixture,
                |g: &Mixture| json!({ "alpha": show(&g.alpha), "mu": show(&g.mu), "q": show(&g.q), "l": show(&g.l) }),
            ))
        }),
    ],
};

#[derive(Deserialize)]
struct GmmInput {
    d: usize,
    k: usize,
    n: usize,
    x: Vec<Vec<f64>>,
    m: u32,
    gamma: f64,
    alpha: Vec<f64>,
    mu: Vec<Vec<f64>>,
    q: Vec<Vec<f64>>,
    l: Vec<Vec<f64>>,
}

/// What is differentiated: a row for each of k components.
#[derive(Tree)]
struct Mixture {
    /// Logarithms of weights, up to a constant.
    alpha: Tensor,
    mu: Tensor,
    /// Logarithms of the diagonal of Q, where QᵀQ is the precision matrix.
    q: Tensor,
    /// Q below its diagonal, column by column.
    l: Tensor,
}

struct GmmData {
    x: Tensor,
    /// Where in Qᵀ, flat, the numbers of l belong.
    places: Tensor,
    m: f64,
    gamma: f64,
}

fn problem(input: &Value) -> Result<(Mixture, GmmData), String> {
    let GmmInput { d, k, n, x, m, gamma, alpha, mu, q, l } = read(input)?;
    if d == 0 || d > 1 << 20 || k == 0 {
        return Err(format!("d is {d} and k is {k}, and both are at least 1, and d at most 2²⁰"));
    }
    if gamma.is_nan() || gamma <= 0.0 {
        return Err(format!("gamma is {gamma}, and a precision is positive"));
    }
    let below = d * (d - 1) / 2;
    let sized = |name: &str, rows: &[Vec<f64>], count: usize, width: usize| {
        let tensor = matrix(name, rows)?;
        match (tensor.shape(), count * width) {
            (_, 0) if rows.len() == count => Ok(tensor.reshape([count, width])),
            (&[a, b], _) if (a, b) == (count, width) => Ok(tensor),
            (found, _) => {
                Err(format!("{name} has the shape {found:?}, and should have [{count}, {width}]"))
            }
        }
    };
    if alpha.len() != k {
        return Err(format!("alpha has {} numbers, and k is {k}", alpha.len()));
    }
    let mixture = Mixture {
        alpha: vector(&alpha),
        mu: sized("mu", &mu, k, d)?,
        q: sized("q", &q, k, d)?,
        l: sized("l", &l, k, below)?,
    };
    // Below the diagonal column by column is above the diagonal of the transpose row by row.
    let above: Vec<i64> =
        (0..d).flat_map(|i| (i + 1..d).map(move |j| (i * d + j) as i64)).collect();
    let places = Tensor::from_vec(above, [below]);
    Ok((mixture, GmmData { x: sized("x", &x, n, d)?, places, m: f64::from(m), gamma }))
}

impl GmmData {
    fn log_posterior(&self, mixture: &Mixture) -> Tensor {
        let Mixture { alpha, mu, q, l } = mixture;
        let (n, k, d) = (self.x.shape()[0], mu.shape()[0], mu.shape()[1]);
        let (diagonal, log_det) = (q.exp(), q.sum_over(1));

        // Moving x and μ together changes nothing, so no derivative goes through where they are
        // moved to. Far from the origin Qx − Qμ would have no digits left.
        let middle = mu.mean_over(0).detach();
        let (x, mu) = (&self.x - &middle, mu - &middle);

        // Q(x − μ) for each component and point, as rows: x with a one behind it, times Qᵀ above
        // −(Qμ)ᵀ.
        let above = Tensor::zeros_with([k, d * d], DType::F64).index_add(1, &self.places, l);
        let qt = above.reshape([k, d, d]) + diagonal.diag_embed(0, 1, 2);
        let affine = cat(&[&qt, &-mu.unsqueeze(1).matmul(&qt)], 1);
        let scaled = cat(&[&x, &Tensor::ones_with([n, 1], DType::F64)], 1).matmul(&affine);
        let beta = alpha + &log_det - scaled.square().sum_over(2).t() * 0.5;
        let constant = n as f64 * d as f64 * 0.5 * TAU.ln();
        let likelihood = beta.logsumexp_over(1).sum() - alpha.logsumexp() * n as f64 - constant;

        let GmmData { m, gamma, .. } = self;
        let freedom = d as f64 + m + 1.0;
        let norms = diagonal.square().sum() + l.square().sum();
        let log_gamma = Tensor::from(freedom / 2.0).multigammaln(d);
        let scale = (freedom * d as f64 * (gamma / SQRT_2).ln() - log_gamma) * k as f64;
        likelihood + scale - norms * (gamma * gamma / 2.0) + log_det.sum() * *m
    }
}
