//! The interface of layers.

use crate::Summary;
use crate::refuse::called;
use pullback::{Path, Tensor, Tree, sharing_flags};

/// A module with one input and one output, so that it can be chained.
///
/// Layers with more of either (attention, recurrent layers) have a `forward` of their own.
///
/// Vectors, tuples, boxes and options of layers are layers too: the first two go through their
/// elements in order, and `None` is the identity.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Layer, Linear, Relu};
/// let net = (Linear::new(4, 8), Relu, vec![Linear::new(8, 8), Linear::new(8, 2)]);
/// assert_eq!(net.forward(&Tensor::zeros([3, 4])).shape(), [3, 2]);
/// ```
///
/// `Box<dyn Layer>` is a layer too, for kinds that are chosen while the program runs. A clone of it
/// shares its parameters, as clones of all layers do.
///
/// ```
/// use pullback::{Tensor, Tree};
/// use pullback_nn::{Conv1d, Layer, Linear, Module, Relu, Sequential, Tanh};
///
/// #[derive(Clone, Tree)]
/// struct Net {
///     layers: Vec<Box<dyn Layer>>,
/// }
///
/// let smooth = true;
/// let activation: Box<dyn Layer> = if smooth { Box::new(Tanh) } else { Box::new(Relu) };
/// let net = Net { layers: vec![Box::new(Linear::new(4, 8)), activation.clone()] };
/// assert_eq!(net.layers.forward(&Tensor::zeros([3, 4])).shape(), [3, 8]);
/// assert_eq!(net.named_parameters()[0].0, "layers.0.weight");
/// let net = Sequential::new().then(net.layers).then(activation);
/// assert_eq!(net.parameter_count(), 40);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a layer",
    label = "not a `Layer`",
    note = "implement `Layer` for it (`fn forward(&self, x: &Tensor) -> Tensor`), next to `#[derive(Tree)]`",
    note = "a function becomes a layer by `Lambda::new(|x: &Tensor| …)`",
    note = "layers with several inputs or outputs (attention, recurrent layers) have a `forward` of their own"
)]
pub trait Layer: Tree + MapBoxed + Send + Sync {
    /// The output for this input.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, Linear};
    /// let y = Linear::new(4, 2).forward(&Tensor::zeros([3, 4]));
    /// assert_eq!(y.shape(), [3, 2]);
    /// ```
    ///
    /// # Panics
    /// If the input's shape or dtype does not fit; the message names the op, the operands and the
    /// caller's line.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor;

    /// [`Module::summary`](crate::Module::summary) with the shapes of the outputs for this input.
    /// The call is made in evaluation mode and without recording, and changes nothing.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Layer, Linear, Relu, Sequential};
    /// let net =
    ///     Sequential::new().then(Linear::new(784, 128)).then(Relu).then(Linear::new(128, 10));
    /// let summary = net.summary_of(&Tensor::zeros([32, 784]));
    /// assert_eq!(summary.parameters, 101_770);
    /// assert!(summary.to_string().contains("[32, 10]"));
    /// ```
    ///
    /// # Panics
    /// As [`Layer::forward`].
    #[track_caller]
    fn summary_of(&self, x: &Tensor) -> Summary
    where
        Self: Sized,
    {
        let _line = called();
        Summary::of_call(self, x, |model, x| model.forward(x))
    }
}

/// [`Tree::map`] behind a pointer: it cannot give a `Self`, so it gives a new pointer. Every layer
/// has it.
#[doc(hidden)]
pub trait MapBoxed {
    fn map_boxed<'a>(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> Box<dyn Layer + 'a>
    where
        Self: 'a;
}

impl<L: Layer> MapBoxed for L {
    fn map_boxed<'a>(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> Box<dyn Layer + 'a>
    where
        Self: 'a,
    {
        Box::new(self.map(f))
    }
}

impl Tree for Box<dyn Layer> {
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Tensor)) {
        (**self).visit(path, f);
    }

    fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> Box<dyn Layer> {
        (**self).map_boxed(f)
    }
}

impl Layer for Box<dyn Layer> {
    fn forward(&self, x: &Tensor) -> Tensor {
        let _line = called();
        (**self).forward(x)
    }
}

/// With the same parameters, buffers and mode.
impl Clone for Box<dyn Layer> {
    fn clone(&self) -> Box<dyn Layer> {
        sharing_flags(|| (**self).map_boxed(&mut Tensor::clone))
    }
}

impl<L: Layer> Layer for Vec<L> {
    fn forward(&self, x: &Tensor) -> Tensor {
        let mut x = x.clone();
        for layer in self {
            x = layer.forward(&x);
        }
        x
    }
}

impl<L: Layer, const N: usize> Layer for [L; N] {
    fn forward(&self, x: &Tensor) -> Tensor {
        let mut x = x.clone();
        for layer in self {
            x = layer.forward(&x);
        }
        x
    }
}

impl<L: Layer> Layer for Option<L> {
    fn forward(&self, x: &Tensor) -> Tensor {
        match self {
            Some(layer) => layer.forward(x),
            None => x.clone(),
        }
    }
}

impl<L: Layer> Layer for Box<L> {
    fn forward(&self, x: &Tensor) -> Tensor {
        (**self).forward(x)
    }
}

/// A tuple calls its elements one after the other.
macro_rules! tuples {
    ($($name:ident $i:tt),*) => {
        impl<$($name: Layer),*> Layer for ($($name,)*) {
            fn forward(&self, x: &Tensor) -> Tensor {
                let x = x.clone();
                $(let x = self.$i.forward(&x);)*
                x
            }
        }
    };
}

tuples!(A 0);
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);
tuples!(A 0, B 1, C 2, D 3, E 4);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
