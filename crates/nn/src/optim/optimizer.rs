//! The interface of optimisers for training loops, schedules and checkpoints.

use crate::refuse::called;
use pullback::{Result, Tensor};

/// The interface of optimisers. State is in tensors that are written in place, and steps take
/// `&self`, so a step compiles with [`jit`](pullback::jit).
pub trait Optimizer {
    /// One step with the gradients that the parameters have now. A parameter without a gradient is
    /// left alone.
    ///
    /// # Errors
    /// If a gradient does not fit its parameter, or a parameter may not be written.
    #[track_caller]
    fn step(&self) -> Result<()>;

    /// The parameters of each group.
    fn groups(&self) -> Vec<Vec<Tensor>>;

    /// The learning rate of each group, `f64[]`: write to it in place to change it, also for steps
    /// that are compiled.
    fn lrs(&self) -> Vec<Tensor>;

    /// All state, with names that do not depend on the run (`0.lr`, `0.3.exp_avg`): what a
    /// checkpoint saves, and restores by writing in place. Learning rates and step counts are part
    /// of it.
    fn named_state(&self) -> Vec<(String, Tensor)>;

    /// Clears the gradients of all parameters.
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
