//! The interface of optimisers for training loops, schedules and checkpoints.

use crate::refuse::called;
use pullback::{Result, Tensor};

/// The interface of optimisers. State is in tensors that are written in place, and steps take
/// `&self`, so a step compiles with [`jit`](pullback::jit).
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
/// fn train(opt: &dyn Optimizer, loss: impl Fn() -> Tensor) -> pullback::Result<()> {
///     for _ in 0..50 {
///         opt.zero_grad();
///         loss().backward()?;
///         opt.step()?;
///     }
///     Ok(())
/// }
///
/// let x = Tensor::from([3.0, -4.0]).requires_grad();
/// let opt = Sgd { lr: 0.1, ..Sgd::default() }.over([x.clone()])?;
/// train(&opt, || x.square().sum())?;
/// assert!(x.norm().item::<f64>() < 1e-3);
/// # Ok::<(), pullback::Error>(())
/// ```
pub trait Optimizer {
    /// One step with the gradients that the parameters have now. A parameter without a gradient is
    /// left alone.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
    /// let (x, unused) = (Tensor::from(1.0).requires_grad(), Tensor::from(1.0).requires_grad());
    /// let opt = Sgd { lr: 0.25, ..Sgd::default() }.over([x.clone(), unused.clone()])?;
    /// x.square().backward()?;
    /// opt.step()?;
    /// assert_eq!((x.item::<f64>(), unused.item::<f64>()), (0.5, 1.0));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a gradient does not fit its parameter, or a parameter may not be written.
    #[track_caller]
    fn step(&self) -> Result<()>;

    /// The parameters of each group.
    ///
    /// ```
    /// # use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
    /// # use pullback_nn::{Linear, Module};
    /// let model = Linear::new(2, 3);
    /// let opt = Sgd::default().over(model.parameters())?;
    /// assert_eq!(opt.groups()[0].len(), 2);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// Never.
    #[doc(alias = "param_groups")]
    fn groups(&self) -> Vec<Vec<Tensor>>;

    /// The learning rate of each group, `f64[]`: write to it in place to change it, also for steps
    /// that are compiled.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
    /// let x = Tensor::from(1.0).requires_grad();
    /// let opt = Sgd { lr: 0.25, ..Sgd::default() }.over([x.clone()])?;
    /// opt.lrs()[0].fill_(0.125);
    /// x.square().backward()?;
    /// opt.step()?;
    /// assert_eq!(x.item::<f64>(), 0.75);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// Never.
    fn lrs(&self) -> Vec<Tensor>;

    /// All state, with names that do not depend on the run (`0.lr`, `0.3.exp_avg`): what a
    /// checkpoint saves, and restores by writing in place. Learning rates and step counts are part
    /// of it.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
    /// let opt =
    ///     Sgd { momentum: 0.9, ..Sgd::default() }.over([Tensor::from(1.0).requires_grad()])?;
    /// let names: Vec<String> = opt.named_state().into_iter().map(|(name, _)| name).collect();
    /// assert_eq!(names, ["0.lr", "0.0.step", "0.0.momentum_buffer"]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// Never.
    #[doc(alias = "state_dict")]
    fn named_state(&self) -> Vec<(String, Tensor)>;

    /// Clears the gradients of all parameters.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
    /// let x = Tensor::from(1.0).requires_grad();
    /// let opt = Sgd::default().over([x.clone()])?;
    /// x.square().backward()?;
    /// opt.zero_grad();
    /// assert!(x.grad().is_none());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// See [`Tensor::zero_grad`].
    fn zero_grad(&self) {
        self.groups().iter().flatten().for_each(Tensor::zero_grad);
    }
}

impl<O: Optimizer + ?Sized> Optimizer for Box<O> {
    fn step(&self) -> Result<()> {
        let _line = called();
        (**self).step()
    }

    fn groups(&self) -> Vec<Vec<Tensor>> {
        (**self).groups()
    }

    fn lrs(&self) -> Vec<Tensor> {
        (**self).lrs()
    }

    fn named_state(&self) -> Vec<(String, Tensor)> {
        (**self).named_state()
    }
}

/// Several optimisers that step together, such as Muon for matrices and AdamW for the rest. Their
/// groups are those of the first, then those of the second and so on; the names of their states
/// start with their index in the list (`1.0.lr`).
impl<O: Optimizer> Optimizer for Vec<O> {
    fn step(&self) -> Result<()> {
        let _line = called();
        self.iter().try_for_each(Optimizer::step)
    }

    fn groups(&self) -> Vec<Vec<Tensor>> {
        self.iter().flat_map(Optimizer::groups).collect()
    }

    fn lrs(&self) -> Vec<Tensor> {
        self.iter().flat_map(Optimizer::lrs).collect()
    }

    fn named_state(&self) -> Vec<(String, Tensor)> {
        let mut out = Vec::new();
        for (place, optimizer) in self.iter().enumerate() {
            let states = optimizer.named_state().into_iter();
            out.extend(states.map(|(name, x)| (format!("{place}.{name}"), x)));
        }
        out
    }
}
