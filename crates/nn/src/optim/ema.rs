//! The exponential moving average of a model.

use super::update_rule::wide;
use crate::Module;
use pullback::{Error, Result, Tensor, catch, no_grad};

/// The exponential moving average of a model's parameters: after each step of an optimiser,
/// `average ← decay·average + (1 − decay)·model`. Buffers are copied. It often evaluates better
/// than the model that is being trained.
///
/// The average is a separate frozen model, so it can be evaluated directly. An update compiles with
/// [`jit`](pullback::jit).
///
/// ```
/// use pullback::{Tensor, Tree};
/// use pullback_nn::optim::Ema;
///
/// #[derive(Tree)]
/// struct Scale {
///     weight: Tensor,
/// }
///
/// let model = Scale { weight: Tensor::from(1.0).requires_grad() };
/// let ema = Ema::new(&model, 0.75)?;
/// pullback::no_grad(|| model.weight.fill_(5.0));
/// ema.update(&model)?;
/// assert_eq!(ema.model().weight.item::<f64>(), 2.0);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "AveragedModel")]
pub struct Ema<M> {
    average: M,
    decay: f64,
}

impl<M: Module> Ema<M> {
    /// Starts from a copy of the model.
    ///
    /// ```
    /// # use pullback_nn::optim::Ema;
    /// # use pullback_nn::{Linear, Module};
    /// let model = Linear::new(2, 3);
    /// let ema = Ema::new(&model, 0.999)?;
    /// assert_eq!(ema.model().weight.to_vec::<f32>(), model.weight.to_vec::<f32>());
    /// assert!(Ema::new(&model, 1.5).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `decay` is not a number from 0 to 1.
    pub fn new(model: &M, decay: f64) -> Result<Ema<M>> {
        if !(0.0..=1.0).contains(&decay) {
            let message = format!("`decay` must be a number from 0 to 1, not {decay}");
            return Err(Error::argument("Ema", message));
        }
        let average = model.deep_copy();
        average.freeze();
        Ok(Ema { average, decay })
    }

    /// Moves the average towards the model's current parameters.
    ///
    /// ```
    /// # use pullback_nn::optim::Ema;
    /// # use pullback_nn::{Linear, init};
    /// let model = Linear::new(2, 3);
    /// init::zeros_(&model.weight);
    /// let ema = Ema::new(&model, 0.5)?;
    /// init::ones_(&model.weight);
    /// ema.update(&model)?;
    /// assert_eq!(ema.model().weight.to_vec::<f32>(), [0.5; 6]);
    /// ema.update(&model)?;
    /// assert_eq!(ema.model().weight.to_vec::<f32>(), [0.75; 6]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the model has other tensors than the one it began with.
    pub fn update(&self, model: &M) -> Result<()> {
        let parameters = self.pairs(M::named_parameters, model)?;
        let buffers = self.pairs(M::named_buffers, model)?;
        catch(|| {
            no_grad(|| {
                for (average, x) in &parameters {
                    // In at least f32: with a long memory, what changes in a step is lost in bf16.
                    let (old, x) = (wide(average), wide(x));
                    average.copy_(old * self.decay + x * (1.0 - self.decay));
                }
                for (average, x) in &buffers {
                    average.copy_(x);
                }
            });
        })
    }

    /// The averaged model, to be evaluated or saved.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::Ema;
    /// # use pullback_nn::{Layer, Linear};
    /// let ema = Ema::new(&Linear::new(2, 3), 0.999)?;
    /// assert_eq!(ema.model().forward(&Tensor::zeros([4, 2])).shape(), [4, 3]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn model(&self) -> &M {
        &self.average
    }

    /// Exchanges the values of the average and of the model: swap, evaluate the model, swap back.
    ///
    /// ```
    /// # use pullback_nn::optim::Ema;
    /// # use pullback_nn::{Linear, init};
    /// let model = Linear::new(2, 3);
    /// init::zeros_(&model.weight);
    /// let ema = Ema::new(&model, 0.5)?;
    /// init::ones_(&model.weight);
    /// ema.swap(&model)?;
    /// assert_eq!(model.weight.to_vec::<f32>(), [0.0; 6]);
    /// ema.swap(&model)?;
    /// assert_eq!(model.weight.to_vec::<f32>(), [1.0; 6]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the model has other tensors than the one it began with.
    pub fn swap(&self, model: &M) -> Result<()> {
        let pairs = self.pairs(M::named_state, model)?;
        catch(|| {
            no_grad(|| {
                for (average, x) in &pairs {
                    let kept = average.deep_clone();
                    average.copy_(x);
                    x.copy_(&kept);
                }
            });
        })
    }

    /// The tensors of the average and those of the model that go with them.
    fn pairs(
        &self,
        of: impl Fn(&M) -> Vec<(String, Tensor)>,
        model: &M,
    ) -> Result<Vec<(Tensor, Tensor)>> {
        let (ours, theirs) = (of(&self.average), of(model));
        if ours.len() != theirs.len() {
            let message =
                format!("the average has {} tensors, the model {}", ours.len(), theirs.len());
            return Err(Error::argument("Ema", message));
        }
        let pair = |((name, a), (other, x)): ((String, Tensor), (String, Tensor))| {
            if name != other || a.spec() != x.spec() {
                let message = format!(
                    "the average has `{name}` {}, the model `{other}` {}",
                    a.spec(),
                    x.spec()
                );
                return Err(Error::argument("Ema", message));
            }
            Ok((a, x))
        };
        ours.into_iter().zip(theirs).map(pair).collect()
    }
}
