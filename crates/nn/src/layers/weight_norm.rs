//! A layer whose weight is a length and a direction.

use super::parametrised::{Bare, under};
use crate::{Layer, module_scope};
use pullback::{Path, Tensor, Tree};

/// A layer whose `weight` is g·v/|v|, with the lengths g and the directions v as its parameters:
/// one length for each index of an axis, the first by default. PyTorch's
/// `nn.utils.parametrizations.weight_norm`, with its names: `parametrizations.weight.original0` is
/// g and `…original1` is v.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Layer, Linear, Module, WeightNorm};
/// let linear = Linear::new(4, 3);
/// let layer = WeightNorm::new(linear.clone());
/// let x = Tensor::randn([2, 4]);
/// assert!(layer.forward(&x).is_close(&linear.forward(&x), 1e-5, 1e-6, false).all().item::<bool>());
/// let names: Vec<String> = layer.named_parameters().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["bias", "parametrizations.weight.original0", "parametrizations.weight.original1"]);
/// ```
#[derive(Clone)]
pub struct WeightNorm<L> {
    inner: Bare<L>,
    /// The lengths g.
    pub original0: Tensor,
    /// The directions v, of any lengths.
    pub original1: Tensor,
    axis: Option<usize>,
}

impl<L: Layer> WeightNorm<L> {
    /// The layer with the weight that it has now, one length for each index of its first axis.
    ///
    /// # Panics
    /// If it has no `weight` of floats.
    #[track_caller]
    #[must_use]
    pub fn new(layer: L) -> WeightNorm<L> {
        WeightNorm::over(layer, Some(0))
    }

    /// One length for each index of this axis, or one for all where there is none. (PyTorch's
    /// `dim`.)
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

    /// The weight that the layer has at the next call.
    #[track_caller]
    #[must_use]
    pub fn weight(&self) -> Tensor {
        &self.original1 * (&self.original0 / lengths(&self.original1, self.axis))
    }

    /// The plain layer without this wrapper, with the current weight as a tensor.
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
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let layer = self.inner.with(&self.weight());
        scope.output(layer.forward(x))
    }
}
