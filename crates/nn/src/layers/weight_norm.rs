//! Weight normalisation.

use super::parametrised::{Bare, under};
use crate::{Layer, module_scope};
use pullback::{Path, Tensor, Tree};

/// Weight normalisation: a layer whose `weight` is g·v/|v|, with the norms g and the directions v
/// as its parameters: one norm for each index of an axis, the first by default. PyTorch's
/// `nn.utils.parametrizations.weight_norm`, with its names: `parametrizations.weight.original0` is
/// g and `…original1` is v. Input and output shapes are those of the layer.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Layer, Linear, Module, WeightNorm};
/// let linear = Linear::new(4, 3);
/// let layer = WeightNorm::new(linear.clone());
/// let x = Tensor::randn([2, 4]);
/// assert!(
///     layer.forward(&x).is_close(&linear.forward(&x), 1e-5, 1e-6, false).all().item::<bool>()
/// );
/// let names: Vec<String> = layer.named_parameters().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(
///     names,
///     ["bias", "parametrizations.weight.original0", "parametrizations.weight.original1"]
/// );
/// ```
#[derive(Clone)]
pub struct WeightNorm<L> {
    inner: Bare<L>,
    /// The norms g.
    pub original0: Tensor,
    /// The directions v, of any norm.
    pub original1: Tensor,
    axis: Option<usize>,
}

impl<L: Layer> WeightNorm<L> {
    /// Wraps the layer with its current weight, with one norm for each index of the weight's first
    /// axis.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, Linear, WeightNorm};
    /// let layer = WeightNorm::new(Linear::new(4, 3));
    /// assert_eq!(layer.original0.shape(), [3, 1]);
    /// assert_eq!(layer.forward(&Tensor::zeros([2, 4])).shape(), [2, 3]);
    /// ```
    ///
    /// # Panics
    /// If the layer has no `weight` of floats.
    #[track_caller]
    #[must_use]
    pub fn new(layer: L) -> WeightNorm<L> {
        WeightNorm::over(layer, Some(0))
    }

    /// Wraps the layer, with one norm for each index of this axis (PyTorch's `dim`), or one norm
    /// for all if it is `None`.
    ///
    /// ```
    /// # use pullback_nn::{Linear, WeightNorm};
    /// let layer = WeightNorm::over(Linear::new(4, 3), None);
    /// assert_eq!(layer.original0.len(), 1);
    /// ```
    ///
    /// # Panics
    /// If the layer has no `weight` of floats, or that has no such axis.
    #[track_caller]
    #[must_use]
    pub fn over(layer: L, axis: Option<usize>) -> WeightNorm<L> {
        let (inner, weight) = Bare::new("WeightNorm", &layer);
        crate::refuse::demand(axis.is_none_or(|axis| axis < weight.rank()), "WeightNorm", || {
            format!("a weight {} has no axis {}", weight.spec(), axis.unwrap_or_default())
        });
        let weight = weight.detach();
        let lengths = lengths(&weight, axis);
        WeightNorm {
            inner,
            original0: lengths.requires_grad(),
            original1: weight.deep_clone().requires_grad(),
            axis,
        }
    }

    /// The current normalised weight, g·v/|v|.
    ///
    /// ```
    /// # use pullback_nn::{Linear, WeightNorm, init};
    /// let layer = WeightNorm::new(Linear::new(2, 1));
    /// init::ones_(&layer.original0);
    /// let norm = layer.weight().square().sum().sqrt();
    /// assert!((norm.item::<f32>() - 1.0).abs() < 1e-5);
    /// ```
    ///
    /// # Panics
    /// Never.
    #[track_caller]
    #[must_use]
    pub fn weight(&self) -> Tensor {
        &self.original1 * (&self.original0 / lengths(&self.original1, self.axis))
    }

    /// The layer without this wrapper, with the current normalised weight as its weight.
    ///
    /// ```
    /// # use pullback_nn::{Linear, WeightNorm};
    /// let layer = WeightNorm::new(Linear::new(4, 3));
    /// let plain: Linear = layer.remove();
    /// assert_eq!(plain.weight.to_vec::<f32>(), layer.weight().to_vec::<f32>());
    /// ```
    ///
    /// # Panics
    /// Never.
    #[track_caller]
    #[must_use]
    pub fn remove(&self) -> L {
        self.inner.with(&self.weight().detach().deep_clone().requires_grad())
    }
}

/// The length over all axes but one, in a shape that repeats to that of `v`.
#[track_caller]
fn lengths(v: &Tensor, axis: Option<usize>) -> Tensor {
    let Some(axis) = axis else { return v.square().sum().sqrt() };
    let others: Vec<isize> = (0..v.rank()).filter(|&i| i != axis).map(|i| i as isize).collect();
    if others.is_empty() { v.abs() } else { v.square().sum_keep(others).sqrt() }
}

impl<L: Layer> Tree for WeightNorm<L> {
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Tensor)) {
        path.kind("WeightNorm");
        path.note(&self.axis);
        self.inner.visit(path, f);
        under(path, |path| {
            path.scope("original0", |path| self.original0.visit(path, f));
            path.scope("original1", |path| self.original1.visit(path, f));
        });
    }

    fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> WeightNorm<L> {
        WeightNorm {
            inner: self.inner.map(f),
            original0: f(&self.original0),
            original1: f(&self.original1),
            axis: self.axis,
        }
    }
}

impl<L: Layer> Layer for WeightNorm<L> {
    /// # Panics
    /// Where the `forward` of the layer does.
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let layer = self.inner.with(&self.weight());
        scope.output(layer.forward(x))
    }
}
