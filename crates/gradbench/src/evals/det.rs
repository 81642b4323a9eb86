//! `det`: a determinant by expansion by minors, and its gradient in reverse mode.
//!
//! The recursion goes over batches: k×k matrices become k times as many minors, down to 1×1, and
//! the sums come back up. What is left of a matrix once a batch would leave the caches is taken one
//! minor after the other.

use super::Module;
use crate::job::{Job, read, show};
use pullback::{Tensor, checkpoint, grad, jit, scan};
use serde::Deserialize;
use serde_json::Value;

pub(super) const MODULE: Module = Module {
    name: "det",
    functions: &[
        ("primal", |input| {
            let (a, f) = (matrix(input)?, jit(determinant));
            Ok(Job::compiled(f, a, show))
        }),
        ("gradient", |input| {
            let (a, f) = (matrix(input)?, jit(grad(determinant)));
            Ok(Job::compiled(f, a, |gradient| show(&gradient.reshape([-1]))))
        }),
    ],
};

#[derive(Deserialize)]
struct DetInput {
    #[serde(rename = "A")]
    a: Vec<f64>,
    ell: usize,
}

fn matrix(input: &Value) -> Result<Tensor, String> {
    let DetInput { a, ell } = read(input)?;
    if ell == 0 || ell.checked_mul(ell) != Some(a.len()) {
        return Err(format!("A has {} numbers, not the {ell}·{ell} of a matrix", a.len()));
    }
    if ell > LARGEST {
        return Err(format!("{ell}! products are too many; {LARGEST}! are the most"));
    }
    Ok(Tensor::from_vec(a, [ell, ell]))
}

/// Minors of this size are expanded in one batch.
const BATCH: usize = 8;

/// The largest matrix whose minors of that size fit into memory together.
const LARGEST: usize = 13;

fn determinant(a: &Tensor) -> Tensor {
    minors(&a.unsqueeze(-1)).squeeze()
}

/// The determinants of matrices, of which element (i, j) of all is `a[i, j, ..]`.
fn minors(a: &Tensor) -> Tensor {
    let (k, count) = (a.shape()[0], a.shape()[2]);
    if k == 1 {
        return a.reshape([-1]);
    }
    if k == BATCH && count > 1 {
        let one = |_: &(), a: &Tensor| ((), checkpoint(determinant, a));
        return scan(one, &(), &a.permute([2, 0, 1])).1;
    }
    // Column c of the minor without column j: in this order minor j of all matrices follows that of
    // all matrices without column j − 1.
    let columns = (0..k as i64 - 1).flat_map(|c| (0..k as i64).map(move |j| c + i64::from(c >= j)));
    let columns = Tensor::from_vec(columns.collect::<Vec<_>>(), [k * (k - 1)]);
    let rest = a.narrow(0, 1, k - 1).index_select(1, &columns);
    let below = minors(&rest.reshape([k - 1, k - 1, k * count])).reshape([k, count]);
    let signs = (0..k).map(|j| if j.is_multiple_of(2) { 1.0 } else { -1.0 }).collect::<Vec<f64>>();
    (Tensor::from_vec(signs, [k, 1]) * a.select_at(0, 0) * below).sum_over(0)
}
