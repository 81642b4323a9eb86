//! The norm of gradients that are spread over workers.

use pullback::{DType, Error, Group, Result, Tensor, autocast_off, catch, no_grad};

/// Clips the gradients of parts by the norm of all workers' parts together, and gives that norm.
pub(super) fn clip_parts(parts: &[Tensor], max_norm: f64, group: &Group) -> Result<Tensor> {
    if max_norm.is_nan() || max_norm < 0.0 {
        let message = format!("`max_norm` must not be negative, but is {max_norm}");
        return Err(Error::argument("clip_grad_norm_", message));
    }
    let grads: Vec<Tensor> = parts.iter().filter_map(Tensor::grad).collect();
    let clip = || {
        let wide =
            |x: &Tensor| x.cast(if x.dtype() == DType::F64 { x.dtype() } else { DType::F32 });
        let squares = grads.iter().map(|grad| wide(grad).square().sum());
        let own = squares.reduce(|a, b| a + b).unwrap_or_else(|| Tensor::from(0f32));
        let norm = own.all_reduce(group).sqrt();
        let factor = (max_norm / (&norm + 1e-6)).clamp_max(1.0);
        for grad in &grads {
            grad.copy_(wide(grad) * &factor);
        }
        norm
    };
    catch(|| no_grad(|| autocast_off(clip)))
}
