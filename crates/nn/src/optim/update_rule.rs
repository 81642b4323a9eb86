//! What is specific to an optimiser: its options, its state per parameter, and its update.
//!
//! Everything else (groups, step counts, learning rates, names of states, checks) is in
//! [`Stepper`], once. A rule is a struct of options with PyTorch's meanings and defaults; its
//! formula is ordinary tensor code that writes in place and never reads a value, so it runs eagerly
//! and compiles with [`jit`](pullback::jit).
//!
//! Scalars (a learning rate, a bias correction, a step count) are computed in `f64`, as PyTorch
//! computes them in Python. Tensors shaped as the parameter are computed in its dtype, or in `f32`
//! where that is a half-precision one; states have the parameter's dtype.

use super::Stepper;
use pullback::{DType, Result, Tensor};

/// An optimiser's options and its formula. Implement it to write an optimiser of your own.
///
/// ```
/// use pullback::{Result, Tensor};
/// use pullback_nn::optim::{Optimizer, OptionRow, UpdateRule, Update, Bounds};
///
/// /// Steps of one length, whatever the gradient is.
/// #[derive(Clone, Debug)]
/// struct SignDescent {
///     lr: f64,
/// }
///
/// impl UpdateRule for SignDescent {
///     const NAME: &'static str = "SignDescent";
///
///     fn lr(&self) -> f64 {
///         self.lr
///     }
///
///     fn step(&self, update: &Update) {
///         let g = update.gradient(false, 0.0);
///         update.set(&(update.value() - g.sign() * update.lr()));
///     }
/// }
///
/// let x = Tensor::from([3.0, -4.0]).requires_grad();
/// let opt = SignDescent { lr: 0.5 }.over([x.clone()])?;
/// x.square().sum().backward()?;
/// opt.step()?;
/// assert_eq!(x.to_vec::<f64>(), [2.5, -3.5]);
/// # Ok::<(), pullback::Error>(())
/// ```
pub trait UpdateRule: Clone {
    /// Its name in errors.
    const NAME: &'static str;

    /// The learning rate that a group starts with.
    ///
    /// ```
    /// # use pullback_nn::optim::{Adam, UpdateRule};
    /// assert_eq!(Adam::default().lr(), 1e-3);
    /// ```
    ///
    /// # Panics
    /// Never.
    fn lr(&self) -> f64;

    /// The other numeric options, and their bounds.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Bounds, Sgd, UpdateRule};
    /// let error =
    ///     Sgd { momentum: -1.0, ..Sgd::default() }.over([Tensor::from(1.0).requires_grad()]);
    /// assert!(error.err().unwrap().to_string().contains("`momentum` must be"));
    /// assert_eq!(Sgd::default().options()[0], ("momentum", 0.0, Bounds::NotNegative));
    /// ```
    fn options(&self) -> Vec<OptionRow> {
        Vec::new()
    }

    /// Checks that these options fit together, and with this parameter.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Muon, UpdateRule};
    /// // Muon updates matrices only.
    /// assert!(Muon::default().accepts(&Tensor::ones([2, 2])).is_ok());
    /// assert!(Muon::default().accepts(&Tensor::ones([2])).is_err());
    /// ```
    ///
    /// # Errors
    /// With a message that names the option or the parameter.
    fn accepts(&self, parameter: &Tensor) -> Result<()> {
        let _ = parameter;
        Ok(())
    }

    /// The initial state for a parameter, with PyTorch's names. Steps write to it in place.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Adam, UpdateRule};
    /// let state = Adam::default().state(&Tensor::ones([2, 3]));
    /// let names: Vec<&str> = state.iter().map(|(name, _)| *name).collect();
    /// assert_eq!(names, ["exp_avg", "exp_avg_sq"]);
    /// ```
    fn state(&self, parameter: &Tensor) -> Vec<(&'static str, Tensor)> {
        let _ = parameter;
        Vec::new()
    }

    /// The update of one parameter. It is not recorded on the tape.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Sgd, Update, UpdateRule};
    /// # let (x, grad) = (Tensor::from([1.0, 2.0]), Tensor::from([0.5, -0.5]));
    /// # let (lr, step) = (Tensor::from(0.1), Tensor::from(1i64));
    /// let update = Update { x: &x, grad: &grad, lr: &lr, step: &step, state: &[] };
    /// Sgd::default().step(&update);
    /// assert_eq!(x.to_vec::<f64>(), [0.95, 2.05]);
    /// ```
    ///
    /// # Panics
    /// Where a tensor operation does; [`Optimizer::step`](super::Optimizer::step) returns the
    /// error.
    fn step(&self, update: &Update);

    /// An optimiser of these parameters with this rule. [`Stepper::and`] adds groups with other
    /// options.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{AdamW, Optimizer, UpdateRule};
    /// # use pullback_nn::{Layer, Linear, Module};
    /// let model = Linear::new(2, 3);
    /// let opt = AdamW { lr: 1e-3, ..AdamW::default() }.over(model.parameters())?;
    /// model.forward(&Tensor::ones([4, 2])).sum().backward()?;
    /// opt.step()?;
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no parameters; one is listed twice, is not of floats or is not a leaf; or an
    /// option is out of its range.
    fn over(self, parameters: impl IntoIterator<Item = Tensor>) -> Result<Stepper<Self>> {
        Stepper::new(self, parameters)
    }
}

/// An option's name, its value and its bounds.
pub type OptionRow = (&'static str, f64, Bounds);

/// The bounds of an option. None contains NaN or an infinity.
///
/// ```
/// use pullback_nn::optim::Bounds;
/// assert!(Bounds::Fraction.contains(0.9) && !Bounds::Fraction.contains(1.0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bounds {
    /// Zero or above.
    NotNegative,
    /// Above zero.
    Positive,
    /// Zero or above, and below one.
    Fraction,
    /// From zero to one.
    UpToOne,
    /// Zero or below.
    NotPositive,
    /// One or above.
    AtLeastOne,
    /// Any number.
    Anywhere,
}

impl Bounds {
    /// Whether the value is within the bounds.
    ///
    /// ```
    /// # use pullback_nn::optim::Bounds;
    /// assert!(Bounds::NotNegative.contains(0.0));
    /// assert!(!Bounds::Positive.contains(0.0));
    /// assert!(!Bounds::Anywhere.contains(f64::NAN));
    /// ```
    ///
    /// # Panics
    /// Never.
    pub fn contains(self, value: f64) -> bool {
        value.is_finite()
            && match self {
                Bounds::NotNegative => value >= 0.0,
                Bounds::Positive => value > 0.0,
                Bounds::Fraction => (0.0..1.0).contains(&value),
                Bounds::UpToOne => (0.0..=1.0).contains(&value),
                Bounds::NotPositive => value <= 0.0,
                Bounds::AtLeastOne => value >= 1.0,
                Bounds::Anywhere => true,
            }
    }

    /// A description of the bounds, for error messages.
    ///
    /// ```
    /// # use pullback_nn::optim::Bounds;
    /// assert_eq!(Bounds::UpToOne.words(), "a number from 0 to 1");
    /// ```
    pub fn words(self) -> &'static str {
        match self {
            Bounds::NotNegative => "a number that is not negative",
            Bounds::Positive => "a number above 0",
            Bounds::Fraction => "a number from 0 to below 1",
            Bounds::UpToOne => "a number from 0 to 1",
            Bounds::NotPositive => "a number that is not positive",
            Bounds::AtLeastOne => "a number that is at least 1",
            Bounds::Anywhere => "a finite number",
        }
    }
}

/// The update of one parameter in one step, as an [`UpdateRule`] gets it: the parameter, its
/// gradient and its state.
///
/// Formulas are computed in `f32`, or in `f64` for parameters in `f64`: the methods convert. See
/// [`UpdateRule`] for a rule of your own.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::Update;
/// let (x, grad) = (Tensor::from([1.0, 2.0]), Tensor::from([0.5, -0.5]));
/// let (lr, step) = (Tensor::from(0.1), Tensor::from(1i64));
/// let state = [("exp_avg", Tensor::from([4.0, 8.0]))];
/// let update = Update { x: &x, grad: &grad, lr: &lr, step: &step, state: &state };
/// update.set(&(update.value() - update.gradient(false, 0.0) * update.lr()));
/// assert_eq!(x.to_vec::<f64>(), [0.95, 2.05]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Update<'a> {
    /// The parameter.
    pub x: &'a Tensor,
    /// Its gradient.
    pub grad: &'a Tensor,
    /// The learning rate of its group, `f64[]`.
    pub lr: &'a Tensor,
    /// The number of this step for this parameter, `i64[]`: 1 for the first.
    pub step: &'a Tensor,
    /// Its state, in the order of [`UpdateRule::state`].
    pub state: &'a [(&'static str, Tensor)],
}

impl Update<'_> {
    /// The parameter in the dtype of the computation: `f64` for `f64`, otherwise `f32`.
    ///
    /// ```
    /// # use pullback::{DType, Tensor};
    /// # use pullback_nn::optim::Update;
    /// let (x, grad) = (Tensor::from([1f32]).cast(DType::BF16), Tensor::from([1f32]));
    /// # let (lr, step) = (Tensor::from(0.1), Tensor::from(1i64));
    /// let update = Update { x: &x, grad: &grad, lr: &lr, step: &step, state: &[] };
    /// assert_eq!(update.value().dtype(), DType::F32);
    /// ```
    ///
    /// # Panics
    /// Never.
    pub fn value(&self) -> Tensor {
        wide(self.x)
    }

    /// Overwrites the parameter, in its own dtype.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::Update;
    /// # let (x, grad) = (Tensor::from([1.0, 2.0]), Tensor::from([0.5, -0.5]));
    /// # let (lr, step) = (Tensor::from(0.1), Tensor::from(1i64));
    /// # let state = [("exp_avg", Tensor::from([4.0, 8.0]))];
    /// # let update = Update { x: &x, grad: &grad, lr: &lr, step: &step, state: &state };
    /// update.set(&(update.value() * 2.0));
    /// assert_eq!(x.to_vec::<f64>(), [2.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// If the value does not fit the parameter's shape.
    pub fn set(&self, value: &Tensor) {
        self.x.copy_(value);
    }

    /// State number `i` in the dtype of the computation.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::Update;
    /// # let (x, grad) = (Tensor::from([1.0, 2.0]), Tensor::from([0.5, -0.5]));
    /// # let (lr, step) = (Tensor::from(0.1), Tensor::from(1i64));
    /// # let state = [("exp_avg", Tensor::from([4.0, 8.0]))];
    /// # let update = Update { x: &x, grad: &grad, lr: &lr, step: &step, state: &state };
    /// // The state is `[("exp_avg", [4, 8])]`.
    /// assert_eq!(update.remembered(0).to_vec::<f64>(), [4.0, 8.0]);
    /// ```
    ///
    /// # Panics
    /// If there is no such state.
    pub fn remembered(&self, i: usize) -> Tensor {
        wide(&self.state[i].1)
    }

    /// Overwrites state number `i`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::Update;
    /// # let (x, grad) = (Tensor::from([1.0, 2.0]), Tensor::from([0.5, -0.5]));
    /// # let (lr, step) = (Tensor::from(0.1), Tensor::from(1i64));
    /// # let state = [("exp_avg", Tensor::from([4.0, 8.0]))];
    /// # let update = Update { x: &x, grad: &grad, lr: &lr, step: &step, state: &state };
    /// update.remember(0, &update.gradient(false, 0.0));
    /// assert_eq!(state[0].1.to_vec::<f64>(), [0.5, -0.5]);
    /// ```
    ///
    /// # Panics
    /// If there is no such state, or the value does not fit its shape.
    pub fn remember(&self, i: usize, value: &Tensor) {
        self.state[i].1.copy_(value);
    }

    /// The gradient, negated if `maximize`, plus `decay` times the parameter (L2 penalty).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::Update;
    /// # let (x, grad) = (Tensor::from([1.0, 2.0]), Tensor::from([0.5, -0.5]));
    /// # let (lr, step) = (Tensor::from(0.1), Tensor::from(1i64));
    /// # let state = [("exp_avg", Tensor::from([4.0, 8.0]))];
    /// # let update = Update { x: &x, grad: &grad, lr: &lr, step: &step, state: &state };
    /// // The parameter is [1, 2], its gradient [0.5, −0.5].
    /// assert_eq!(update.gradient(false, 0.0).to_vec::<f64>(), [0.5, -0.5]);
    /// assert_eq!(update.gradient(true, 0.25).to_vec::<f64>(), [-0.25, 1.0]);
    /// ```
    ///
    /// # Panics
    /// Never.
    pub fn gradient(&self, maximize: bool, decay: f64) -> Tensor {
        let g = wide(self.grad);
        let g = if maximize { -g } else { g };
        if decay == 0.0 { g } else { g + self.value() * decay }
    }

    /// The parameter after decoupled weight decay: x − lr·decay·x.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::Update;
    /// # let (x, grad) = (Tensor::from([1.0, 2.0]), Tensor::from([0.5, -0.5]));
    /// # let (lr, step) = (Tensor::from(0.1), Tensor::from(1i64));
    /// # let state = [("exp_avg", Tensor::from([4.0, 8.0]))];
    /// # let update = Update { x: &x, grad: &grad, lr: &lr, step: &step, state: &state };
    /// // The parameter is [1, 2], the learning rate 0.1.
    /// let decayed = update.decayed(0.5).to_vec::<f64>();
    /// assert!((decayed[0] - 0.95).abs() < 1e-12 && (decayed[1] - 1.9).abs() < 1e-12);
    /// ```
    ///
    /// # Panics
    /// Never.
    pub fn decayed(&self, decay: f64) -> Tensor {
        if decay == 0.0 {
            return self.value();
        }
        self.value() * self.number(&(1.0 - self.lr * decay))
    }

    /// The parameter and the gradient, with the decay applied to the parameter if decoupled,
    /// otherwise to the gradient.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::Update;
    /// # let (x, grad) = (Tensor::from([1.0, 2.0]), Tensor::from([0.5, -0.5]));
    /// # let (lr, step) = (Tensor::from(0.1), Tensor::from(1i64));
    /// # let state = [("exp_avg", Tensor::from([4.0, 8.0]))];
    /// # let update = Update { x: &x, grad: &grad, lr: &lr, step: &step, state: &state };
    /// // The parameter is [1, 2], its gradient [0.5, −0.5].
    /// let (x, g) = update.decay(false, 0.25, false);
    /// assert_eq!((x.to_vec::<f64>(), g.to_vec::<f64>()), (vec![1.0, 2.0], vec![0.75, 0.0]));
    /// let (_, g) = update.decay(false, 0.25, true);
    /// assert_eq!(g.to_vec::<f64>(), [0.5, -0.5]);
    /// ```
    ///
    /// # Panics
    /// Never.
    pub fn decay(&self, maximize: bool, decay: f64, decoupled: bool) -> (Tensor, Tensor) {
        match decoupled {
            true => (self.decayed(decay), self.gradient(maximize, 0.0)),
            false => (self.value(), self.gradient(maximize, decay)),
        }
    }

    /// Updates state number `i` to the running mean `keep·state + (1 − keep)·value`, and gives it.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::Update;
    /// # let (x, grad) = (Tensor::from([1.0, 2.0]), Tensor::from([0.5, -0.5]));
    /// # let (lr, step) = (Tensor::from(0.1), Tensor::from(1i64));
    /// # let state = [("exp_avg", Tensor::from([4.0, 8.0]))];
    /// # let update = Update { x: &x, grad: &grad, lr: &lr, step: &step, state: &state };
    /// // The state is [4, 8], the gradient [0.5, −0.5].
    /// let mean = update.mean(0, 0.5, &update.gradient(false, 0.0));
    /// assert_eq!(mean.to_vec::<f64>(), [2.25, 3.75]);
    /// assert_eq!(state[0].1.to_vec::<f64>(), [2.25, 3.75]);
    /// ```
    ///
    /// # Panics
    /// If there is no such state.
    pub fn mean(&self, i: usize, keep: f64, value: &Tensor) -> Tensor {
        let mean = self.remembered(i) * keep + value * (1.0 - keep);
        self.remember(i, &mean);
        mean
    }

    /// The number of this step as `f64[]`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::Update;
    /// # let (x, grad) = (Tensor::from([1.0, 2.0]), Tensor::from([0.5, -0.5]));
    /// # let (lr, step) = (Tensor::from(0.1), Tensor::from(1i64));
    /// # let state = [("exp_avg", Tensor::from([4.0, 8.0]))];
    /// # let update = Update { x: &x, grad: &grad, lr: &lr, step: &step, state: &state };
    /// assert_eq!(update.count().item::<f64>(), 1.0);
    /// ```
    ///
    /// # Panics
    /// Never.
    pub fn count(&self) -> Tensor {
        self.step.cast(DType::F64)
    }

    /// The bias correction `1 − betaᵗ` of step t, by which a running mean that started at zero is
    /// divided: `f64[]`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::Update;
    /// # let (x, grad) = (Tensor::from([1.0, 2.0]), Tensor::from([0.5, -0.5]));
    /// # let (lr, step) = (Tensor::from(0.1), Tensor::from(1i64));
    /// # let state = [("exp_avg", Tensor::from([4.0, 8.0]))];
    /// # let update = Update { x: &x, grad: &grad, lr: &lr, step: &step, state: &state };
    /// assert!((update.unbias(0.9).item::<f64>() - 0.1).abs() < 1e-12);
    /// ```
    ///
    /// # Panics
    /// Never.
    pub fn unbias(&self, beta: f64) -> Tensor {
        1.0 - self.step.new_tensor(beta).pow(self.count())
    }

    /// The learning rate in the dtype of the computation.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::Update;
    /// # let (x, grad) = (Tensor::from([1.0, 2.0]), Tensor::from([0.5, -0.5]));
    /// # let (lr, step) = (Tensor::from(0.1), Tensor::from(1i64));
    /// # let state = [("exp_avg", Tensor::from([4.0, 8.0]))];
    /// # let update = Update { x: &x, grad: &grad, lr: &lr, step: &step, state: &state };
    /// assert_eq!(update.lr().item::<f64>(), 0.1);
    /// ```
    ///
    /// # Panics
    /// Never.
    pub fn lr(&self) -> Tensor {
        self.number(self.lr)
    }

    /// Converts a number computed in `f64` to the dtype of the computation.
    ///
    /// ```
    /// # use pullback::{DType, Tensor};
    /// # use pullback_nn::optim::Update;
    /// let (x, grad) = (Tensor::from([1f32]), Tensor::from([1f32]));
    /// # let (lr, step) = (Tensor::from(0.1), Tensor::from(1i64));
    /// let update = Update { x: &x, grad: &grad, lr: &lr, step: &step, state: &[] };
    /// assert_eq!(update.number(&Tensor::from(0.5)).dtype(), DType::F32);
    /// ```
    ///
    /// # Panics
    /// Never.
    pub fn number(&self, x: &Tensor) -> Tensor {
        x.cast(wide_dtype(self.x.dtype()))
    }
}

/// The dtype that steps of parameters of this dtype are computed in.
pub(super) fn wide_dtype(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// The tensor in the dtype of the computation.
pub(super) fn wide(x: &Tensor) -> Tensor {
    x.cast(wide_dtype(x.dtype()))
}
