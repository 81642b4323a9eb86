//! `kmeans`: Σᵢ minⱼ |pᵢ − cⱼ|² over points p and centroids c, and Newton's direction for c: the
//! gradient divided by the Hessian, which is diagonal.

use super::Module;
use crate::job::{Job, matrix, read, show};
use pullback::{Tensor, grad, jit, jvp};
use serde::Deserialize;
use serde_json::Value;

pub(super) const MODULE: Module = Module {
    name: "kmeans",
    functions: &[
        ("cost", |input| {
            let (points, centroids) = problem(input)?;
            let f = jit(move |c: &Tensor| cost(&points, c));
            Ok(Job::compiled(f, centroids, show))
        }),
        ("dir", |input| {
            let (points, centroids) = problem(input)?;
            let f = jit(move |c: &Tensor| direction(&points, c));
            Ok(Job::compiled(f, centroids, show))
        }),
    ],
};

#[derive(Deserialize)]
struct KmeansInput {
    points: Vec<Vec<f64>>,
    centroids: Vec<Vec<f64>>,
}

fn problem(input: &Value) -> Result<(Tensor, Tensor), String> {
    let KmeansInput { points, centroids } = read(input)?;
    let (points, centroids) = (matrix("points", &points)?, matrix("centroids", &centroids)?);
    for (name, x) in [("points", &points), ("centroids", &centroids)] {
        if x.is_empty() {
            return Err(format!("there are no {name}"));
        }
    }
    let (d, wanted) = (centroids.shape()[1], points.shape()[1]);
    if d != wanted {
        return Err(format!("centroids have {d} coordinates, and points {wanted}"));
    }
    Ok((points, centroids))
}

/// Distances that are computed at once: 4 MB of them stay in the caches.
const TOGETHER: usize = 1 << 19;

fn cost(points: &Tensor, centroids: &Tensor) -> Tensor {
    // From the middle of the points: far from it, the difference of squares below would lose the
    // digits in which centroids differ.
    let middle = points.mean_over(0);
    let (points, centroids) = (&(points - &middle), &(centroids - &middle));
    let block = (TOGETHER / centroids.shape()[0]).max(1);
    let costs = points.split(block, 0).into_iter().map(|block| cost_of_block(&block, centroids));
    costs.fold(Tensor::from(0.0), |sum, cost| sum + cost)
}

/// Which centroid is nearest does not change where the cost has a derivative, so it is looked up by
/// value: |p|² is the same for all centroids and left out there. Derivatives go through the n
/// distances that count, and not through all n·k.
fn cost_of_block(points: &Tensor, centroids: &Tensor) -> Tensor {
    let distances = centroids.square().sum_keep(1) - centroids.matmul(&points.t()) * 2.0;
    let nearest = centroids.index_select(0, &distances.argmin(0));
    (points - nearest).square().sum()
}

/// Forward over reverse: the tangent of the gradient along ones is the sum of each row of the
/// Hessian, and so its diagonal.
fn direction(points: &Tensor, centroids: &Tensor) -> Tensor {
    let gradient = grad(|c: &Tensor| cost(points, c));
    let (gradient, hessian) = jvp(gradient, centroids, &centroids.ones_like());
    gradient / hessian
}
