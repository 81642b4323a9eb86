//! A sequence of layers of any types.

use crate::refuse::refuse;
use crate::{Layer, module_scope};
use pullback::{Path, Tensor, Tree, catch};
use std::sync::Arc;

/// Layers one after the other, named `0`, `1`, … as in PyTorch.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Layer, Linear, Module, Relu, Sequential};
/// let net = Sequential::new().then(Linear::new(784, 128)).then(Relu).then(Linear::new(128, 10));
/// assert_eq!(net.forward(&Tensor::zeros([32, 784])).shape(), [32, 10]);
/// assert_eq!(net.named_parameters()[2].0, "2.weight");
/// ```
#[derive(Clone, Default)]
pub struct Sequential {
    /// Behind counted pointers, so that a clone holds the same layers.
    layers: Vec<Arc<dyn DynLayer>>,
}

/// A layer behind a pointer. `Tree::map` gives a `Self`, which a pointer cannot, so here it gives a
/// new pointer.
trait DynLayer: Send + Sync {
    fn run(&self, x: &Tensor) -> Tensor;
    fn walk(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Tensor));
    fn mapped(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> Arc<dyn DynLayer>;
}

impl<L: Layer + Send + Sync + 'static> DynLayer for L {
    fn run(&self, x: &Tensor) -> Tensor {
        self.forward(x)
    }

    fn walk(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Tensor)) {
        self.visit(path, f);
    }

    fn mapped(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> Arc<dyn DynLayer> {
        Arc::new(self.map(f))
    }
}

impl Sequential {
    /// Without layers: the identity.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, Sequential};
    /// assert_eq!(Sequential::new().forward(&Tensor::zeros([2, 3])).shape(), [2, 3]);
    /// ```
    #[must_use]
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// Appends this layer.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, Linear, Relu, Sequential};
    /// let net = Sequential::new().then(Linear::new(4, 8)).then(Relu);
    /// assert_eq!(net.forward(&Tensor::zeros([2, 4])).shape(), [2, 8]);
    /// ```
    #[must_use]
    pub fn then(mut self, layer: impl Layer + 'static) -> Sequential {
        self.layers.push(Arc::new(layer));
        self
    }

    /// The number of layers.
    ///
    /// ```
    /// # use pullback_nn::{Linear, Relu, Sequential};
    /// assert_eq!(Sequential::new().then(Linear::new(4, 8)).then(Relu).len(), 2);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.layers.len()
    }

    /// Each layer as a sequence of its own, with the same tensors.
    pub(super) fn singles(&self) -> Vec<Sequential> {
        let copies = self.layers.iter().map(|layer| layer.mapped(&mut Tensor::clone));
        copies.map(|layer| Sequential { layers: vec![layer] }).collect()
    }

    /// Whether there are no layers.
    ///
    /// ```
    /// # use pullback_nn::Sequential;
    /// assert!(Sequential::new().is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }
}

impl Tree for Sequential {
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Tensor)) {
        path.kind("Sequential");
        path.note(&self.layers.len());
        for (i, layer) in self.layers.iter().enumerate() {
            path.scope(&i.to_string(), |path| layer.walk(path, f));
        }
    }

    fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> Sequential {
        Sequential { layers: self.layers.iter().map(|layer| layer.mapped(f)).collect() }
    }
}

impl Layer for Sequential {
    /// # Panics
    /// Where a layer does; the message names its index.
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let mut x = x.clone();
        for (i, layer) in self.layers.iter().enumerate() {
            x = match catch(|| layer.run(&x)) {
                Ok(y) => y,
                Err(error) => refuse(error.detail(format!("in layer {i} of the sequence"))),
            };
        }
        scope.output(x)
    }
}
