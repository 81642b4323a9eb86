//! Activation checkpointing of layers.

use crate::refuse::called_at;
use crate::{Layer, Sequential};
use pullback::{Line, Path, Tensor, Tree, checkpoint, is_grad_enabled, user_line};
use std::sync::Arc;

/// A layer that saves only its input for backward and is recomputed in backward: see
/// [`pullback::checkpoint`]. Names, weights and results are those of the layer inside. Dropout
/// repeats; batch normalisation updates its statistics once.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Checkpointed, Layer, Linear, Module, Relu};
/// let block = Checkpointed::new((Linear::new(8, 32), Relu, Linear::new(32, 8)));
/// assert_eq!(block.named_parameters()[0].0, "0.weight");
/// block.forward(&Tensor::ones([4, 8])).sum().backward()?;
/// assert!(block.parameters().iter().all(|w| w.grad().is_some()));
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Checkpointed<L> {
    /// The layer.
    pub inner: L,
}

impl<L: Layer + Send + Sync + 'static> Checkpointed<L> {
    /// Wraps the layer.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Checkpointed, Layer, Linear};
    /// let block = Checkpointed::new(Linear::new(8, 4));
    /// assert_eq!(block.forward(&Tensor::ones([2, 8])).shape(), [2, 4]);
    /// ```
    #[must_use]
    pub fn new(inner: L) -> Checkpointed<L> {
        Checkpointed { inner }
    }
}

/// The tree of the layer inside, under the same names.
impl<L: Tree> Tree for Checkpointed<L> {
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Tensor)) {
        self.inner.visit(path, f);
    }

    fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> Checkpointed<L> {
        Checkpointed { inner: self.inner.map(f) }
    }
}

impl<L: Layer + Send + Sync + 'static> Layer for Checkpointed<L> {
    /// # Panics
    /// Where the `forward` of the layer does.
    fn forward(&self, x: &Tensor) -> Tensor {
        if !is_grad_enabled() {
            return self.inner.forward(x);
        }
        // The same tensors in a layer that backward can hold.
        let (inner, at) = (self.inner.map(&mut Tensor::clone), user_line(Line::caller()));
        checkpoint(move |x: &Tensor| called_at(at, || inner.forward(x)), x)
    }
}

/// Layers one after the other, in segments that are checkpointed: see
/// [`pullback::checkpoint_sequential`]. Without a number there are about √n segments.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Linear, checkpoint_sequential};
/// let layers: Vec<Linear> = (0..9).map(|_| Linear::new(8, 8)).collect();
/// let y = checkpoint_sequential(&layers, None, &Tensor::ones([4, 8]));
/// y.sum().backward()?;
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Panics
/// If there are to be no segments, or as the layers.
#[track_caller]
pub fn checkpoint_sequential<L: Layer + Send + Sync + 'static>(
    layers: &[L],
    segments: Option<usize>,
    x: &Tensor,
) -> Tensor {
    let at = user_line(Line::caller());
    let shared = |layer: &L| {
        let layer = Arc::new(layer.map(&mut Tensor::clone));
        move |x: &Tensor| called_at(at, || layer.forward(x))
    };
    let layers: Vec<_> = layers.iter().map(shared).collect();
    pullback::checkpoint_sequential(&layers, segments, x)
}

impl Sequential {
    /// [`Layer::forward`] in segments that are checkpointed: see
    /// [`checkpoint_sequential`](crate::checkpoint_sequential).
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Linear, Relu, Sequential};
    /// let net = Sequential::new().then(Linear::new(4, 8)).then(Relu).then(Linear::new(8, 2));
    /// net.forward_in_segments(None, &Tensor::ones([3, 4])).sum().backward()?;
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// If there are to be no segments, or as the layers.
    #[track_caller]
    #[must_use]
    pub fn forward_in_segments(&self, segments: Option<usize>, x: &Tensor) -> Tensor {
        let at = user_line(Line::caller());
        let single = |layer: Sequential| {
            let layer = Arc::new(layer);
            move |x: &Tensor| called_at(at, || layer.forward(x))
        };
        let layers: Vec<_> = self.singles().into_iter().map(single).collect();
        pullback::checkpoint_sequential(&layers, segments, x)
    }
}
