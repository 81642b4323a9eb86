//! Linear layers of which each worker has some outputs, or some inputs.

use super::{gather_sum, own_share, spread};
use crate::{Layer, Linear, module_scope};
use pullback::{Group, Tensor, Tree};

/// A linear layer of which each worker computes some of the outputs: the first of a pair, of which
/// [`RowParallelLinear`] is the second.
///
/// The input is the same on all workers; the output is this worker's share of the last axis.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::parallel::{ColumnParallelLinear, RowParallelLinear};
/// use pullback_nn::{Layer, Linear};
///
/// let (up, down) = (Linear::new(4, 8), Linear::new(8, 4));
/// let x = Tensor::ones([2, 4]);
/// let whole = down.forward(&up.forward(&x).relu()).to_vec::<f32>();
/// let results = pullback_workers::threads(2, |group| {
///     let (up, down) =
///         (ColumnParallelLinear::from(&up, &group), RowParallelLinear::from(&down, &group));
///     assert_eq!(up.weight.shape(), [4, 4]);
///     Ok(down.forward(&up.forward(&x).relu()).to_vec::<f32>())
/// })?;
/// assert!(results[0].iter().zip(&whole).all(|(a, b)| (a - b).abs() < 1e-5));
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Tree)]
pub struct ColumnParallelLinear {
    /// This worker's rows of the weight: `[out_features / workers, in_features]`.
    pub weight: Tensor,
    /// This worker's part of the bias: `[out_features / workers]`.
    pub bias: Option<Tensor>,
    /// The workers.
    #[tree(skip)]
    pub workers: Group,
}

impl ColumnParallelLinear {
    /// This worker's share of a layer that all workers have.
    ///
    /// ```
    /// # use pullback_nn::Linear;
    /// # use pullback_nn::parallel::ColumnParallelLinear;
    /// let shared = Linear::new(2, 6);
    /// let rows = pullback_workers::threads(3, |group| {
    ///     Ok(ColumnParallelLinear::from(&shared, &group).weight.to_vec::<f32>())
    /// })?;
    /// assert_eq!(rows.concat(), shared.weight.to_vec::<f32>());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the number of outputs is not a multiple of the number of workers.
    #[track_caller]
    #[must_use]
    pub fn from(linear: &Linear, workers: &Group) -> ColumnParallelLinear {
        let share = |x: &Tensor| own_share(x, 0, workers, "ColumnParallelLinear").requires_grad();
        ColumnParallelLinear {
            weight: share(&linear.weight),
            bias: linear.bias.as_ref().map(share),
            workers: workers.clone(),
        }
    }
}

impl Layer for ColumnParallelLinear {
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let y = spread(x, &self.workers).linear(&self.weight, self.bias.as_ref());
        scope.output_with_macs(y, |y| y.len() * self.weight.shape()[1])
    }
}

/// A linear layer of which each worker has some of the inputs: its input is what a
/// [`ColumnParallelLinear`] gave, its output, the sum over workers, is the same on all of them.
///
/// See [`ColumnParallelLinear`] for an example.
///
/// ```
/// # use pullback::Tensor;
/// # use pullback_nn::parallel::RowParallelLinear;
/// # use pullback_nn::{Layer, Linear};
/// let shared = Linear::new(4, 1);
/// let outputs = pullback_workers::threads(2, |group| {
///     let layer = RowParallelLinear::from(&shared, &group);
///     Ok(layer.forward(&Tensor::ones([1, 2])).item::<f32>())
/// })?;
/// let whole = shared.forward(&Tensor::ones([1, 4])).item::<f32>();
/// assert!((outputs[0] - whole).abs() < 1e-6 && outputs[0] == outputs[1]);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Tree)]
pub struct RowParallelLinear {
    /// This worker's columns of the weight: `[out_features, in_features / workers]`.
    pub weight: Tensor,
    /// The bias, the same on all workers: `[out_features]`.
    pub bias: Option<Tensor>,
    /// The workers.
    #[tree(skip)]
    pub workers: Group,
}

impl RowParallelLinear {
    /// This worker's share of a layer that all workers have.
    ///
    /// ```
    /// # use pullback_nn::Linear;
    /// # use pullback_nn::parallel::RowParallelLinear;
    /// let shared = Linear::new(6, 2);
    /// pullback_workers::threads(3, |group| {
    ///     let layer = RowParallelLinear::from(&shared, &group);
    ///     assert_eq!(layer.weight.shape(), [2, 2]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the number of inputs is not a multiple of the number of workers.
    #[track_caller]
    #[must_use]
    pub fn from(linear: &Linear, workers: &Group) -> RowParallelLinear {
        let own = |x: &Tensor| x.detach().deep_clone().requires_grad();
        RowParallelLinear {
            weight: own_share(&linear.weight, 1, workers, "RowParallelLinear").requires_grad(),
            bias: linear.bias.as_ref().map(own),
            workers: workers.clone(),
        }
    }
}

impl Layer for RowParallelLinear {
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let y = gather_sum(&x.linear(&self.weight, None), &self.workers);
        // Once, and not by every worker.
        let y = match &self.bias {
            Some(bias) => y + bias,
            None => y,
        };
        scope.output_with_macs(y, |y| y.len() * self.weight.shape()[1])
    }
}
