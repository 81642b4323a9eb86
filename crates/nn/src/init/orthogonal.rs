//! Orthogonal initialisation.

use super::{demand, write};
use pullback::linalg::{QrMode, qr};
use pullback::{DType, Tensor, next_key_on};

/// A random matrix with orthonormal rows (or columns, if these are fewer), times `gain`. Axes after
/// the first are taken as one.
///
/// ```
/// # use pullback::Tensor;
/// # use pullback_nn::{Layer, Linear, init};
/// let layer = Linear::new(8, 4);
/// init::orthogonal_(&layer.weight, 1.0);
/// // The rows are orthonormal.
/// let gram = layer.weight.detach().matmul(&layer.weight.detach().t());
/// assert!(gram.is_close(&Tensor::eye(4), 0.0, 1e-5, false).all().item::<bool>());
/// ```
///
/// # Panics
/// If it has fewer than two axes.
#[track_caller]
pub fn orthogonal_(tensor: &Tensor, gain: f64) {
    demand(tensor.rank() >= 2, "orthogonal_", tensor, "takes a weight of at least two axes");
    if tensor.is_empty() {
        return;
    }
    let rows = tensor.shape()[0];
    let columns = tensor.len() / rows;
    let (long, short) = (rows.max(columns), rows.min(columns));
    let key = next_key_on(tensor.device());
    write(tensor, || {
        let (q, r) = qr(&key.normal([long, short], DType::F64, 0.0, 1.0), QrMode::Reduced);
        // With a positive diagonal of R the distribution is the uniform one.
        let q = q * r.diagonal().sign();
        let q = if rows < columns { q.t() } else { q };
        (q * gain).reshape(tensor.shape()).cast(tensor.dtype())
    });
}
