//! Gradient clipping.

use super::update_rule::wide;
use pullback::{DType, Error, Result, Tensor, catch, no_grad, stack};

/// Options of gradient clipping by norm: `torch.nn.utils.clip_grad_norm_`, with its meanings and
/// defaults.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::ClipNorm;
/// let x = Tensor::from([3.0, -4.0]).requires_grad();
/// x.square().sum().backward()?;
/// // By the largest element instead of the Euclidean norm.
/// let clip = ClipNorm { max_norm: 2.0, norm_type: f64::INFINITY, ..ClipNorm::default() };
/// assert_eq!(clip.apply(&[x.clone()])?.item::<f64>(), 8.0);
/// assert!((x.grad().unwrap().at(1).item::<f64>() + 2.0).abs() < 1e-6);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClipNorm {
    /// The largest norm that all gradients together may have.
    pub max_norm: f64,
    /// The order of the norm: 2, or `f64::INFINITY` for the largest element, or another one above
    /// 0.
    pub norm_type: f64,
    /// Refuses a norm that is NaN or infinite. This reads the norm, so it does not compile.
    pub error_if_nonfinite: bool,
}

impl Default for ClipNorm {
    fn default() -> ClipNorm {
        ClipNorm { max_norm: 1.0, norm_type: 2.0, error_if_nonfinite: false }
    }
}

impl ClipNorm {
    /// Scales the gradients of the parameters in place by `max_norm`/(norm + 10⁻⁶), if that is
    /// below 1, and gives the norm they had: `f64[]` if one of them is `f64`, otherwise `f32[]`.
    /// Parameters without a gradient do not count.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::ClipNorm;
    /// let x = Tensor::from([3.0, 4.0]).requires_grad();
    /// (x.square().sum() * 0.5).backward()?;
    /// let norm = ClipNorm { max_norm: 10.0, ..ClipNorm::default() }.apply(&[x.clone()])?;
    /// // The norm was below 10, so the gradients stay as they were.
    /// assert_eq!(norm.item::<f64>(), 5.0);
    /// assert_eq!(x.grad().unwrap().to_vec::<f64>(), [3.0, 4.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `max_norm` is negative or NaN, `norm_type` is not above 0, or the norm is not finite and
    /// `error_if_nonfinite` is set.
    pub fn apply(&self, parameters: &[Tensor]) -> Result<Tensor> {
        let ClipNorm { max_norm, norm_type, error_if_nonfinite } = *self;
        if max_norm.is_nan() || max_norm < 0.0 || norm_type.is_nan() || norm_type <= 0.0 {
            let message = format!(
                "`max_norm` must not be negative and `norm_type` must be above 0, not {max_norm} and {norm_type}"
            );
            return Err(Error::argument("clip_grad_norm_", message));
        }
        let grads: Vec<Tensor> = parameters.iter().filter_map(Tensor::grad).collect();
        let norm = catch(|| no_grad(|| total_norm(&grads, norm_type)))?;
        if error_if_nonfinite && !norm.cast(DType::F64).try_item::<f64>()?.is_finite() {
            let message = format!("the norm of order {norm_type} of the gradients is {norm}");
            return Err(Error::argument("clip_grad_norm_", message));
        }
        catch(|| {
            no_grad(|| {
                let factor = (max_norm / (&norm + 1e-6)).clamp_max(1.0);
                for grad in &grads {
                    grad.copy_(wide(grad) * &factor);
                }
            });
        })?;
        Ok(norm)
    }
}

/// Clips gradients by their norm of order 2: [`ClipNorm`] has the options.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::clip_grad_norm_;
///
/// let x = Tensor::from([3.0, 4.0]).requires_grad();
/// (x.square().sum() * 0.5).backward()?;
/// let norm = clip_grad_norm_(&[x.clone()], 1.0)?;
/// assert_eq!(norm.item::<f64>(), 5.0);
/// assert!((x.grad().unwrap().norm().item::<f64>() - 1.0).abs() < 1e-6);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// As [`ClipNorm::apply`].
pub fn clip_grad_norm_(parameters: &[Tensor], max_norm: f64) -> Result<Tensor> {
    ClipNorm { max_norm, ..ClipNorm::default() }.apply(parameters)
}

/// Clips every element of the gradients to ±`clip_value`, in place:
/// `torch.nn.utils.clip_grad_value_`.
///
/// ```
/// # use pullback::Tensor;
/// # use pullback_nn::optim::clip_grad_value_;
/// let x = Tensor::from([3.0, -0.25]).requires_grad();
/// x.square().sum().backward()?;
/// clip_grad_value_(&[x.clone()], 1.0)?;
/// assert_eq!(x.grad().unwrap().to_vec::<f64>(), [1.0, -0.5]);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If `clip_value` is negative or NaN.
pub fn clip_grad_value_(parameters: &[Tensor], clip_value: f64) -> Result<()> {
    if clip_value.is_nan() || clip_value < 0.0 {
        let message = format!("`clip_value` must be at least 0, not {clip_value}");
        return Err(Error::argument("clip_grad_value_", message));
    }
    catch(|| {
        no_grad(|| {
            for grad in parameters.iter().filter_map(Tensor::grad) {
                grad.copy_(grad.clamp(-clip_value, clip_value));
            }
        });
    })
}

/// The norm of the norms, which is the norm of all elements.
fn total_norm(grads: &[Tensor], order: f64) -> Tensor {
    let axes = |x: &Tensor| (0..x.rank() as isize).collect::<Vec<_>>();
    let norms = grads.iter().map(|grad| wide(grad).vector_norm(order, axes(grad)));
    let norms: Vec<Tensor> = norms.collect();
    let Some(dtype) = norms.iter().map(Tensor::dtype).reduce(DType::promote) else {
        return Tensor::from(0.0f32);
    };
    let norms: Vec<Tensor> = norms.iter().map(|norm| norm.cast(dtype)).collect();
    stack(&norms.iter().collect::<Vec<_>>(), 0).vector_norm(order, 0)
}
