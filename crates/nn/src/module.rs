//! The methods of modules: naming parameters and buffers, freezing, switching between training and
//! evaluation, copying.

use crate::Summary;
use crate::refuse::refuse;
use pullback::{DType, Flag, IntoDevice, Path, Tensor, Tree};
use std::collections::{HashMap, HashSet};

/// The methods of modules: of every struct with `#[derive(Tree)]`, and of tuples, vectors and
/// options of such.
///
/// A tensor is a parameter unless its field says `#[tree(buffer)]`. Names are paths of fields
/// (`layers.0.weight`), in the order of declaration. A tensor that occurs several times (tied
/// weights) is one parameter, under the first of its names.
///
/// ```
/// use pullback::{Tensor, Tree};
/// use pullback_nn::Module;
///
/// #[derive(Tree)]
/// struct Scale {
///     weight: Tensor,
///     #[tree(buffer)]
///     seen: Tensor,
/// }
///
/// let scale = Scale { weight: Tensor::ones([3]).requires_grad(), seen: Tensor::from(0i64) };
/// assert_eq!(scale.named_parameters()[0].0, "weight");
/// assert_eq!(scale.named_buffers()[0].0, "seen");
/// assert_eq!(scale.parameter_count(), 3);
/// ```
///
/// # Clones
/// A clone of a layer shares its parameters, its buffers and its mode, as a clone of a tensor
/// shares its memory: training one trains the other. [`Module::deep_copy`] makes a module of its
/// own.
///
/// ```
/// use pullback_nn::{Linear, Module, Relu, Sequential};
/// let net = Sequential::new().then(Linear::new(2, 3)).then(Relu);
/// let (same, own) = (net.clone(), net.deep_copy());
/// assert!(same.parameters()[0].is_same(&net.parameters()[0]));
/// assert!(!own.parameters()[0].shares_memory(&net.parameters()[0]));
/// ```
pub trait Module: Tree + Sized {
    /// The parameters with their names, tied ones once.
    ///
    /// ```
    /// # use pullback_nn::{Linear, Module};
    /// let names: Vec<String> =
    ///     Linear::new(2, 3).named_parameters().into_iter().map(|(name, _)| name).collect();
    /// assert_eq!(names, ["weight", "bias"]);
    /// ```
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        named(self, |path| !path.is_buffer())
    }

    /// The parameters, tied ones once.
    ///
    /// ```
    /// # use pullback_nn::{Linear, Module};
    /// let parameters = Linear::new(2, 3).parameters();
    /// assert_eq!((parameters[0].shape(), parameters[1].shape()), (&[3, 2][..], &[3][..]));
    /// ```
    fn parameters(&self) -> Vec<Tensor> {
        self.named_parameters().into_iter().map(|(_, x)| x).collect()
    }

    /// The buffers with their names: tensors that are part of the state, but not trained.
    ///
    /// ```
    /// # use pullback_nn::{BatchNorm1d, Module};
    /// let buffers = BatchNorm1d::new(3).named_buffers();
    /// let names: Vec<&str> = buffers.iter().map(|(name, _)| name.as_str()).collect();
    /// assert_eq!(names, ["running_mean", "running_var", "num_batches_tracked"]);
    /// ```
    fn named_buffers(&self) -> Vec<(String, Tensor)> {
        named(self, Path::is_buffer)
    }

    /// Parameters and buffers with their names, in the order of declaration, tied ones once: what
    /// is saved.
    ///
    /// ```
    /// # use pullback_nn::{BatchNorm1d, Module};
    /// assert_eq!(BatchNorm1d::new(3).named_state().len(), 5);
    /// ```
    #[doc(alias = "state_dict")]
    fn named_state(&self) -> Vec<(String, Tensor)> {
        named(self, |_| true)
    }

    /// The number of elements of the parameters, tied ones once.
    ///
    /// ```
    /// # use pullback_nn::{Linear, Module};
    /// assert_eq!(Linear::new(784, 128).parameter_count(), 784 * 128 + 128);
    /// ```
    fn parameter_count(&self) -> usize {
        self.parameters().iter().map(Tensor::len).sum()
    }

    /// Switches to training mode: dropout drops, batch normalisation uses the statistics of the
    /// batch and updates its running ones.
    ///
    /// ```
    /// # use pullback_nn::{Dropout, Module};
    /// let layer = Dropout::new(0.5);
    /// layer.eval();
    /// layer.train();
    /// assert!(layer.training.get());
    /// ```
    fn train(&self) {
        set_training(self, true);
    }

    /// Switches to evaluation mode.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Dropout, Layer, Module};
    /// let layer = Dropout::new(0.5);
    /// layer.eval();
    /// assert_eq!(layer.forward(&Tensor::ones([3])).to_vec::<f32>(), [1.0; 3]);
    /// ```
    fn eval(&self) {
        set_training(self, false);
    }

    /// Freezes the parameters: they get no gradient, and optimisers do not change them.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, Linear, Module};
    /// let (first, second) = (Linear::new(2, 3), Linear::new(3, 1));
    /// first.freeze();
    /// second.forward(&first.forward(&Tensor::ones([4, 2]))).sum().backward()?;
    /// assert!(first.weight.grad().is_none() && second.weight.grad().is_some());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// If a parameter is not a leaf.
    #[track_caller]
    #[doc(alias = "requires_grad_")]
    fn freeze(&self) {
        self.parameters().iter().for_each(|x| x.set_requires_grad(false));
    }

    /// Makes the parameters of float dtypes require gradients again.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, Linear, Module};
    /// let layer = Linear::new(2, 3);
    /// layer.freeze();
    /// layer.unfreeze();
    /// layer.forward(&Tensor::ones([4, 2])).sum().backward()?;
    /// assert!(layer.weight.grad().is_some());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// If a parameter is not a leaf.
    #[track_caller]
    fn unfreeze(&self) {
        let floats = self.parameters().into_iter().filter(|x| x.dtype().is_float());
        floats.for_each(|x| x.set_requires_grad(true));
    }

    /// Clears the gradients of the parameters.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, Linear, Module};
    /// let layer = Linear::new(2, 3);
    /// layer.forward(&Tensor::ones([4, 2])).sum().backward()?;
    /// layer.zero_grad();
    /// assert!(layer.weight.grad().is_none());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    fn zero_grad(&self) {
        self.parameters().iter().for_each(Tensor::zero_grad);
    }

    /// A copy that shares no memory with the module. What was tied stays tied, and what was frozen
    /// stays frozen.
    ///
    /// ```
    /// # use pullback_nn::{Linear, Module, init};
    /// let layer = Linear::new(2, 3);
    /// let copy = layer.deep_copy();
    /// init::zeros_(&layer.weight);
    /// assert_ne!(copy.weight.to_vec::<f32>(), layer.weight.to_vec::<f32>());
    /// ```
    #[must_use]
    #[doc(alias = "deepcopy")]
    fn deep_copy(&self) -> Self {
        rebuilt(self, &mut |x| x.deep_clone())
    }

    /// A copy whose float tensors have another dtype.
    ///
    /// ```
    /// # use pullback::{DType, Tensor};
    /// # use pullback_nn::{Layer, Linear, Module};
    /// let layer = Linear::new(2, 3).to_dtype(DType::F64);
    /// assert_eq!(layer.forward(&Tensor::from([[1.0, 2.0]])).dtype(), DType::F64);
    /// ```
    #[must_use]
    fn to_dtype(&self, dtype: DType) -> Self {
        rebuilt(self, &mut |x| match x.dtype().is_float() {
            true if x.dtype() != dtype => x.cast(dtype),
            _ => x.deep_clone(),
        })
    }

    /// A copy whose tensors are on a device, given as a [`Device`](pullback::Device) or by its
    /// name.
    ///
    /// ```
    /// use pullback::Device;
    /// use pullback_nn::{Linear, Module};
    /// let model = Linear::new(2, 3).to_device("cpu");
    /// assert!(model.parameters().iter().all(|x| x.device() == Device::Cpu));
    /// ```
    ///
    /// # Panics
    /// If there is no such device.
    #[track_caller]
    #[must_use]
    fn to_device(&self, device: impl IntoDevice) -> Self {
        let device = device.into_device().unwrap_or_else(|error| refuse(error));
        rebuilt(self, &mut |x| match x.device() == device {
            true => x.deep_clone(),
            false => x.to(device),
        })
    }

    /// A table of the module's parts and their parameters, as torchinfo prints it: `println!("{}",
    /// model.summary())`. [`Layer::summary_of`](crate::Layer::summary_of) and
    /// [`Module::summary_with`] also show the shapes of outputs.
    ///
    /// ```
    /// # use pullback_nn::{Linear, Module};
    /// let summary = Linear::new(784, 128).summary();
    /// assert_eq!((summary.parameters, summary.parameter_bytes), (100_480, 4 * 100_480));
    /// assert!(summary.to_string().contains("Linear"));
    /// ```
    fn summary(&self) -> Summary {
        Summary::new(self)
    }

    /// [`Module::summary`] with the output shapes of a call, for modules with inputs of any kind.
    /// The call is made in evaluation mode and without recording, and changes nothing.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::{Bilinear, Module};
    /// let inputs = (Tensor::zeros([8, 3]), Tensor::zeros([8, 4]));
    /// let summary = Bilinear::new(3, 4, 2).summary_with(&inputs, |m, (a, b)| m.forward(a, b));
    /// assert_eq!((summary.parameters, summary.macs), (26, 8 * 2 * 3 * 4));
    /// ```
    ///
    /// # Panics
    /// As `call`.
    #[track_caller]
    fn summary_with<T: Tree, R>(&self, inputs: &T, call: impl FnOnce(&Self, &T) -> R) -> Summary {
        Summary::of_call(self, inputs, call)
    }
}

impl<T: Tree> Module for T {}

/// The tensors at paths that `wanted` accepts, each under its first name.
fn named(module: &impl Tree, wanted: impl Fn(&Path) -> bool) -> Vec<(String, Tensor)> {
    let (mut out, mut met): (Vec<(String, Tensor)>, _) = (Vec::new(), HashSet::new());
    module.visit(&mut Path::default(), &mut |path, x| {
        if wanted(path) && met.insert(x.id()) {
            out.push((path.to_string(), x.clone()));
        }
    });
    out
}

fn set_training(module: &impl Tree, on: bool) {
    module.tree_structure().flags.iter().for_each(|(_, flag)| flag.set(on));
}

/// Runs `f` with the module in evaluation, and restores the mode of every part, also if `f` panics.
pub(crate) fn in_evaluation<R>(module: &impl Tree, f: impl FnOnce() -> R) -> R {
    struct RestoreFlags(Vec<(bool, Flag)>);
    impl Drop for RestoreFlags {
        fn drop(&mut self) {
            self.0.iter().for_each(|(mode, flag)| flag.set(*mode));
        }
    }
    let modes = module.tree_structure().flags.into_iter().map(|(_, flag)| (flag.get(), flag));
    let _restore = RestoreFlags(modes.collect());
    set_training(module, false);
    f()
}

/// The module with every tensor replaced by a new leaf, tied ones by the same.
fn rebuilt<M: Tree>(module: &M, new: &mut dyn FnMut(&Tensor) -> Tensor) -> M {
    // The old ones are held, so that their numbers stay their own.
    let mut made: HashMap<usize, (Tensor, Tensor)> = HashMap::new();
    module.map(&mut |old| {
        if let Some((_, new)) = made.get(&old.id()) {
            return new.clone();
        }
        let copy = new(&old.detach());
        let copy = if old.is_leaf() { copy.requires_grad() } else { copy };
        made.insert(old.id(), (old.clone(), copy.clone()));
        copy
    })
}
