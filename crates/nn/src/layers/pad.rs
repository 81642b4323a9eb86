//! Padding.

use crate::{Layer, module_scope};
use pullback::{PadFill, Path, Tensor, Tree};

/// Pads the last axes: PyTorch's zero, constant, reflection, replication and circular padding.
///
/// ```
/// use pullback::{PadMode, PadFill, Tensor};
/// use pullback_nn::{Layer, Pad};
/// let layer = Pad::new([(1, 1), (2, 2)], PadFill::Mode(PadMode::Reflect));
/// assert_eq!(layer.forward(&Tensor::zeros([1, 3, 8, 8])).shape(), [1, 3, 12, 10]);
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "ZeroPad2d")]
#[doc(alias = "ConstantPad2d")]
#[doc(alias = "ReflectionPad2d")]
#[doc(alias = "ReplicationPad2d")]
#[doc(alias = "CircularPad2d")]
pub struct Pad {
    /// The numbers of elements before and after, from the last axis on; a negative number removes
    /// elements.
    pub padding: Vec<(isize, isize)>,
    /// The values of the padding.
    pub fill: PadFill,
}

impl Pad {
    /// With these numbers of elements before and after the last axis, the one before it, and so on.
    ///
    /// ```
    /// # use pullback::{PadFill, Tensor};
    /// # use pullback_nn::{Layer, Pad};
    /// let layer = Pad::new([(1, 2)], PadFill::Constant(7.0));
    /// assert_eq!(layer.forward(&Tensor::from([1.0])).to_vec::<f64>(), [7.0, 1.0, 7.0, 7.0]);
    /// ```
    #[must_use]
    pub fn new(padding: impl AsRef<[(isize, isize)]>, fill: PadFill) -> Pad {
        Pad { padding: padding.as_ref().to_vec(), fill }
    }

    /// Pads with zeros.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, Pad};
    /// let layer = Pad::zeros([(1, 1), (2, 2)]);
    /// assert_eq!(layer.forward(&Tensor::ones([1, 3, 8, 8])).shape(), [1, 3, 12, 10]);
    /// ```
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn zeros(padding: impl AsRef<[(isize, isize)]>) -> Pad {
        Pad::new(padding, PadFill::Constant(0.0))
    }
}

/// By hand: the fill is the op's, which is not a tree, and a compiled function depends on it.
impl Tree for Pad {
    fn visit(&self, path: &mut Path, _: &mut dyn FnMut(&Path, &Tensor)) {
        path.kind("Pad");
        path.note(self);
    }

    fn map(&self, _: &mut dyn FnMut(&Tensor) -> Tensor) -> Pad {
        self.clone()
    }
}

impl Layer for Pad {
    /// # Panics
    /// If there are more pairs than axes, an axis is too short for its border, or more is cut off
    /// than there is.
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        scope.output(x.pad_last(&self.padding, self.fill))
    }
}
