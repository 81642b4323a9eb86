//! Loss scaling.
//!
//! **How a step is skipped, for any optimiser.** Whether gradients overflowed is a tensor. Where
//! its value is known, the optimiser is simply not called. Inside [`jit`](pullback::jit) it is not
//! known: then the step is taken, and afterwards each parameter and each tensor of the optimiser's
//! state is selected by that tensor between its old and its new value. All state of an optimiser is
//! in [`Optimizer::named_state`], step counts included, so a skipped step changes nothing in either
//! case. Learning rates are not selected: a step does not write them.
//!
//! All state of the scaler is in tensors too (`named_state`), written in place: it compiles, it is
//! saved and restored like an optimiser's state, and it does not matter which of `unscale`, `step`
//! and `update` are compiled and which are not.

mod watched;

pub use watched::{Overflow, Stepped};

use crate::optim::{Bounds, Optimizer};
use crate::refuse::refuse;
use pullback::{
    DType, Error, ErrorKind, Group, IntoDevice, Result, Tensor, autocast_off, catch, no_grad,
};
use std::sync::{Arc, Mutex, PoisonError};

const OP: &str = "GradScaler";

/// The options of [`GradScaler`]: those of `torch.amp.GradScaler`, with its meanings and defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradScalerOptions {
    /// The initial scale.
    pub init_scale: f64,
    /// The scale is multiplied by this after `growth_interval` steps without overflow: above 1.
    pub growth_factor: f64,
    /// The scale is multiplied by this after an overflow: below 1.
    pub backoff_factor: f64,
    /// The number of steps in a row without overflow after which the scale grows.
    pub growth_interval: u64,
}

impl Default for GradScalerOptions {
    fn default() -> GradScalerOptions {
        GradScalerOptions {
            init_scale: 65536.0,
            growth_factor: 2.0,
            backoff_factor: 0.5,
            growth_interval: 2000,
        }
    }
}

/// Multiplies the loss so that gradients do not vanish in `f16`, and skips the steps in which they
/// overflowed. The op and line that overflowed first are named by what can run the step a second
/// time: [`GradScaler::run`], [`GradScaler::watched`] and
/// [`Trainer::scaler`](crate::train::Trainer::scaler). `scale`, `step` and `update` by themselves
/// only skip; put `scaler.watched(&model, &opt, || …)` around them, as below, to have it named.
///
/// The scale is a power of two that follows the run: halved where a gradient was not finite (the
/// step is skipped: neither parameters nor the optimiser's state change), doubled after 2000 steps
/// without. One scaler goes with one optimiser, or with a list of them.
///
/// ```
/// use pullback::{DType, Tensor, autocast, jit};
/// use pullback_nn::optim::{Optimizer, UpdateRule, Sgd, clip_grad_norm_};
/// use pullback_nn::precision::{GradScaler, GradScalerOptions};
///
/// let w = Tensor::from([[0.0f32, 0.0]]).requires_grad();
/// let opt = Sgd { lr: 0.1, ..Sgd::default() }.over([w.clone()])?;
/// let scaler = GradScaler::new(GradScalerOptions::default())?;
/// let step = jit(|(x, y): &(Tensor, Tensor)| {
///     opt.zero_grad();
///     let loss = autocast(DType::F16, || (x.linear(&w, None) - y).square().mean());
///     scaler.scale(&loss).backward()?;
///     scaler.unscale(&opt)?;
///     clip_grad_norm_(&[w.clone()], 1.0)?;
///     scaler.step(&opt)?;
///     scaler.update()?;
///     Ok(loss)
/// });
/// let data = (Tensor::from([[1.0f32, 0.0], [0.0, 1.0]]), Tensor::from([[1.0f32], [-1.0]]));
/// // A gradient of 1 times 65536 is above the largest f16: the first step is skipped.
/// let first = scaler.watched(&w, &opt, || step.call(&data))?;
/// let text = first.overflow.unwrap().to_string();
/// assert!(text.contains("first: ") && text.contains(" made an infinity in f16["), "{text}");
/// assert_eq!(scaler.current()?, 32768.0);
/// for _ in 0..100 {
///     step.call(&data)?;
/// }
/// assert!(step.call(&data)?.item::<f32>() < 1e-4);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct GradScaler {
    how: GradScalerOptions,
    /// `f32[]`.
    scale: Tensor,
    /// Good steps since the scale changed last, `i64[]`.
    good: Tensor,
    /// Where this step is, `i64[]`: 0 before gradients are unscaled, 1 after it, 2 after the
    /// optimiser's step.
    stage: Tensor,
    /// Whether there was a gradient in this step, `bool[]`: without one there is nothing to learn
    /// from.
    looked: Tensor,
    /// Whether a gradient of this step was not finite, `bool[]`.
    overflow: Tensor,
    /// The same of the last step, the scale it had, and how many steps were skipped so far.
    last_overflow: Tensor,
    last_scale: Tensor,
    skipped: Tensor,
    /// The first learning rate of its optimiser, which identifies it.
    owner: Arc<Mutex<Option<Tensor>>>,
    /// Who decides together.
    workers: Option<Group>,
}

impl GradScaler {
    /// A scaler with these options, on the default device ([`GradScaler::to_device`] moves it).
    ///
    /// ```
    /// use pullback_nn::precision::{GradScaler, GradScalerOptions};
    /// let scaler = GradScaler::new(GradScalerOptions::default())?;
    /// assert_eq!(scaler.current()?, 65536.0);
    /// let options = GradScalerOptions { growth_factor: 0.5, ..Default::default() };
    /// assert!(GradScaler::new(options).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If an option is out of its range: `init_scale` is not positive and finite in `f32`,
    /// `growth_factor` not above 1, `backoff_factor` not between 0 and 1, or `growth_interval` 0.
    pub fn new(how: GradScalerOptions) -> Result<GradScaler> {
        let GradScalerOptions { init_scale, growth_factor, backoff_factor, growth_interval } = how;
        let refused = |name: &str, words: &str, value: f64| {
            Error::argument(OP, format!("`{name}` must be {words}, not {value}"))
        };
        let fits = Bounds::Positive.contains(init_scale) && (init_scale as f32).is_finite();
        if !fits || init_scale as f32 == 0.0 {
            return Err(refused("init_scale", "a number above 0 that f32 holds", init_scale));
        }
        if growth_factor <= 1.0 || !growth_factor.is_finite() {
            return Err(refused("growth_factor", "a number above 1", growth_factor));
        }
        if !(backoff_factor > 0.0 && backoff_factor < 1.0) {
            return Err(refused("backoff_factor", "a number between 0 and 1", backoff_factor));
        }
        if growth_interval == 0 || i64::try_from(growth_interval).is_err() {
            return Err(refused("growth_interval", "at least 1", growth_interval as f64));
        }
        Ok(GradScaler {
            how,
            scale: Tensor::from(init_scale as f32),
            good: Tensor::from(0i64),
            stage: Tensor::from(0i64),
            looked: Tensor::from(false),
            overflow: Tensor::from(false),
            last_overflow: Tensor::from(false),
            last_scale: Tensor::from(init_scale as f32),
            skipped: Tensor::from(0i64),
            owner: Arc::default(),
            workers: None,
        })
    }

    /// Decides together with the other workers of a group: a gradient that is not finite on one of
    /// them makes all of them skip the step. For gradients of which each worker has a part
    /// ([`Sharded`](crate::parallel::Sharded), [`FullSharding`](crate::parallel::FullSharding));
    /// with [`DataParallel`](crate::parallel::DataParallel) all workers have the same gradients
    /// anyway. Every worker then calls [`GradScaler::unscale`] and [`GradScaler::step`].
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Sgd, UpdateRule};
    /// # use pullback_nn::precision::{GradScaler, GradScalerOptions};
    /// let skipped = pullback_workers::threads(2, |group| {
    ///     let x = Tensor::from(1f32).requires_grad();
    ///     let optimizer = Sgd::default().over([x.clone()])?;
    ///     let scaler = GradScaler::new(GradScalerOptions::default())?.workers(&group);
    ///     let loss = &x * if group.rank() == 1 { f32::INFINITY } else { 1.0 };
    ///     scaler.scale(&loss).backward()?;
    ///     scaler.step(&optimizer)?;
    ///     scaler.update()?;
    ///     scaler.skipped()
    /// })?;
    /// assert_eq!(skipped, [1, 1]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn workers(self, group: &Group) -> GradScaler {
        GradScaler { workers: Some(group.clone()), ..self }
    }

    /// A scaler with copies of this one's state on another device. A scaler must be on the device
    /// of the losses and gradients it is used with, and [`GradScaler::new`] makes it on the default
    /// device.
    ///
    /// ```
    /// use pullback_nn::precision::{GradScaler, GradScalerOptions};
    /// let scaler = GradScaler::new(GradScalerOptions::default())?.to_device("cpu");
    /// assert_eq!(scaler.current()?, 65536.0);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the device is not there.
    #[track_caller]
    #[must_use]
    pub fn to_device(&self, device: impl IntoDevice) -> GradScaler {
        let device = device.into_device().unwrap_or_else(|error| refuse(error));
        let to = |x: &Tensor| no_grad(|| x.to(device));
        GradScaler {
            how: self.how,
            scale: to(&self.scale),
            good: to(&self.good),
            stage: to(&self.stage),
            looked: to(&self.looked),
            overflow: to(&self.overflow),
            last_overflow: to(&self.last_overflow),
            last_scale: to(&self.last_scale),
            skipped: to(&self.skipped),
            owner: Arc::default(),
            workers: self.workers.clone(),
        }
    }

    /// The error of a loss or gradient that is on another device than the scaler.
    fn check_device(&self, what: &str, x: &Tensor) -> Result<()> {
        if x.device() == self.scale.device() {
            return Ok(());
        }
        let message =
            format!("{what} is {}, and the scaler is on {}", x.spec(), self.scale.device());
        Err(Error::new(ErrorKind::Device, OP, message)
            .hint("move the scaler with `to_device` before its first use"))
    }

    /// The loss times the scale: call `backward` on this.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::precision::{GradScaler, GradScalerOptions};
    /// let scaler = GradScaler::new(GradScalerOptions { init_scale: 8.0, ..Default::default() })?;
    /// assert_eq!(scaler.scale(&Tensor::from(0.5f32)).item::<f32>(), 4.0);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the loss is not of a float dtype, or is on another device than the scaler.
    #[track_caller]
    #[must_use]
    pub fn scale(&self, loss: &Tensor) -> Tensor {
        if !loss.dtype().is_float() {
            let message = format!("scales a loss of a float dtype, not {}", loss.spec());
            refuse(Error::dtype(OP, message));
        }
        if let Err(error) = self.check_device("the loss", loss) {
            refuse(error);
        }
        // A copy: the scale is written to by `update`, and backward may want this one later.
        loss * self.scale.deep_clone()
    }

    /// Divides the gradients by the scale, in place, and checks whether they are finite.
    /// [`GradScaler::step`] does it; call it before that to clip the gradients.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
    /// # use pullback_nn::precision::{GradScaler, GradScalerOptions};
    /// # let w = Tensor::from(1f32).requires_grad();
    /// # let opt = Sgd { lr: 0.5, ..Sgd::default() }.over([w.clone()])?;
    /// let scaler = GradScaler::new(GradScalerOptions::default())?;
    /// scaler.scale(&(&w * 3.0)).backward()?;
    /// scaler.unscale(&opt)?;
    /// assert_eq!(w.grad().unwrap().item::<f32>(), 3.0);
    /// assert!(scaler.unscale(&opt).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If they were already unscaled in this step, the optimiser is not the one it was before, or a
    /// parameter is of a 16-bit dtype or on another device than the scaler.
    #[doc(alias = "unscale_")]
    pub fn unscale(&self, optimizer: &(impl Optimizer + ?Sized)) -> Result<()> {
        match self.stage.try_item::<i64>() {
            Ok(1) => Err(Error::argument(OP, "the gradients were unscaled already in this step")
                .hint("call `update` after each step")),
            Ok(2) => Err(Error::argument(OP, "the gradients are unscaled after the step")
                .hint("call `unscale` before `step`, and `update` after it")),
            // Inside a trace it is not known. There a second time changes nothing.
            Ok(_) | Err(_) => self.unscale_once(optimizer),
        }
    }

    fn unscale_once(&self, optimizer: &(impl Optimizer + ?Sized)) -> Result<()> {
        self.claim(optimizer)?;
        let parameters: Vec<Tensor> = optimizer.groups().into_iter().flatten().collect();
        let mut gradients = Vec::new();
        for x in &parameters {
            let Some(grad) = x.grad() else { continue };
            // Optimisers of a list may share a parameter: its gradient is divided once.
            if gradients.iter().any(|seen: &Tensor| seen.is_same(&grad)) {
                continue;
            }
            if matches!(grad.dtype(), DType::BF16 | DType::F16) {
                let message =
                    format!("gradients must be f32 or f64 to be unscaled, not {}", grad.spec());
                return Err(Error::dtype(OP, message)
                    .hint("keep parameters in f32, and use autocast for the forward pass"));
            }
            self.check_device("a gradient", &grad)?;
            gradients.push(grad);
        }
        untracked(|| {
            let inverse = self.scale.cast(DType::F64).recip().cast(DType::F32);
            let inverse = self.stage.eq(0).select(inverse, 1.0f32);
            let mut wrong = self.overflow.deep_clone();
            for grad in &gradients {
                wrong = wrong.logical_or(grad.is_finite().all().logical_not());
                grad.mul_(inverse.cast(grad.dtype()));
            }
            if let Some(workers) = &self.workers {
                wrong = wrong.cast(DType::F32).all_reduce_max(workers).gt(0.0);
            }
            self.overflow.copy_(wrong);
            if !gradients.is_empty() {
                self.looked.fill_(true);
            }
            self.stage.copy_(self.stage.maximum(1i64));
        })
    }

    /// The optimiser's step. The gradients are unscaled first, if they are not yet; if one is not
    /// finite, the step is skipped.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
    /// # use pullback_nn::precision::{GradScaler, GradScalerOptions};
    /// # let w = Tensor::from(1f32).requires_grad();
    /// # let opt = Sgd { lr: 0.5, ..Sgd::default() }.over([w.clone()])?;
    /// let scaler = GradScaler::new(GradScalerOptions::default())?;
    /// scaler.scale(&w.square()).backward()?;
    /// scaler.step(&opt)?; // w − 0.5·2w
    /// scaler.update()?;
    /// assert_eq!(w.item::<f32>(), 0.0);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the optimiser fails, has already stepped since the last `update`, or is not the one it
    /// was before.
    pub fn step(&self, optimizer: &(impl Optimizer + ?Sized)) -> Result<()> {
        let stage = self.stage.try_item::<i64>();
        if let Ok(2) = stage {
            return Err(Error::argument(OP, "the optimiser has stepped already")
                .hint("call `update` after each step"));
        }
        match stage {
            Ok(1) => self.claim(optimizer)?,
            Ok(_) | Err(_) => self.unscale_once(optimizer)?,
        }
        match self.overflow.try_item::<bool>() {
            Ok(true) => {}
            Ok(false) => optimizer.step()?,
            Err(_) => self.step_or_stay(optimizer)?,
        }
        untracked(|| drop(self.stage.fill_(2i64)))
    }

    /// A step of which nothing is left where gradients overflowed: what an optimiser does where it
    /// is not known yet whether they did.
    fn step_or_stay(&self, optimizer: &(impl Optimizer + ?Sized)) -> Result<()> {
        let lrs = optimizer.lrs();
        let is_lr = |x: &Tensor| lrs.iter().any(|lr| lr.is_same(x));
        let state = optimizer.named_state().into_iter().map(|(_, x)| x).filter(|x| !is_lr(x));
        let written: Vec<Tensor> = optimizer.groups().into_iter().flatten().chain(state).collect();
        let copy = |x: &Tensor| no_grad(|| x.detach().deep_clone());
        let before = catch(|| written.iter().map(copy).collect::<Vec<_>>())?;
        let stay = catch(|| self.overflow.logical_or(self.stage.eq(2)))?;
        optimizer.step()?;
        untracked(|| {
            for (x, before) in written.iter().zip(&before) {
                x.copy_(stay.select(before, x.detach()));
            }
        })
    }

    /// Ends the step: the scale shrinks after an overflow, and grows after enough steps without. It
    /// uses the gradients that `step` or `unscale` saw: an overflow counts also if the caller then
    /// leaves the step out. Where there was no gradient, nothing changes.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
    /// # use pullback_nn::precision::{GradScaler, GradScalerOptions};
    /// # let w = Tensor::from(1f32).requires_grad();
    /// # let opt = Sgd { lr: 0.5, ..Sgd::default() }.over([w.clone()])?;
    /// let how = GradScalerOptions { init_scale: 8.0, growth_interval: 1, ..Default::default() };
    /// let scaler = GradScaler::new(how)?;
    /// for expected in [16.0, 32.0] {
    ///     opt.zero_grad();
    ///     scaler.scale(&w.square()).backward()?;
    ///     scaler.step(&opt)?;
    ///     scaler.update()?;
    ///     assert_eq!(scaler.current()?, expected);
    /// }
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// None at present.
    pub fn update(&self) -> Result<()> {
        let GradScalerOptions { growth_factor, backoff_factor, growth_interval, .. } = self.how;
        untracked(|| {
            let (scale, good) = (self.scale.deep_clone(), self.good.deep_clone());
            let seen = self.looked.deep_clone();
            let wrong = self.overflow.deep_clone();
            let enough = (&good + 1).ge(growth_interval as i64);
            let larger = &scale * growth_factor;
            let larger = larger.is_finite().select(&larger, &scale);
            // A scale of 0 could not grow again.
            let smaller = (&scale * backoff_factor).clamp_min(f64::from(f32::MIN_POSITIVE));
            let next = wrong.select(smaller, enough.select(larger, &scale));
            let count = wrong.logical_or(enough).select(0i64, &good + 1);
            self.last_overflow.copy_(seen.select(&wrong, &self.last_overflow));
            self.last_scale.copy_(seen.select(&scale, &self.last_scale));
            self.skipped.copy_(&self.skipped + seen.logical_and(&wrong).cast(DType::I64));
            self.scale.copy_(seen.select(next, &scale));
            self.good.copy_(seen.select(count, &good));
            self.forget();
        })
    }

    /// Resets the step, as after an error in the middle of one: what was unscaled and found is
    /// discarded.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
    /// # use pullback_nn::precision::{GradScaler, GradScalerOptions};
    /// # let w = Tensor::from(1f32).requires_grad();
    /// # let opt = Sgd { lr: 0.5, ..Sgd::default() }.over([w.clone()])?;
    /// let scaler = GradScaler::new(GradScalerOptions::default())?;
    /// scaler.scale(&w.square()).backward()?;
    /// scaler.unscale(&opt)?;
    /// scaler.forget();
    /// assert!(scaler.unscale(&opt).is_ok()); // a new step
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn forget(&self) {
        no_grad(|| {
            self.stage.fill_(0i64);
            self.looked.fill_(false);
            self.overflow.fill_(false);
        });
    }

    /// The scale.
    ///
    /// ```
    /// use pullback_nn::precision::{GradScaler, GradScalerOptions};
    /// let scaler = GradScaler::new(GradScalerOptions { init_scale: 8.0, ..Default::default() })?;
    /// assert_eq!(scaler.current()?, 8.0);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// Inside a function that is being compiled, where it is not known.
    #[doc(alias = "get_scale")]
    pub fn current(&self) -> Result<f64> {
        self.scale.try_item::<f32>().map(f64::from)
    }

    /// Whether the last step that `update` ended was skipped. Steps without any gradient do not
    /// count.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
    /// # use pullback_nn::precision::{GradScaler, GradScalerOptions};
    /// # let w = Tensor::from(1f32).requires_grad();
    /// # let opt = Sgd { lr: 0.5, ..Sgd::default() }.over([w.clone()])?;
    /// let scaler = GradScaler::new(GradScalerOptions::default())?;
    /// scaler.scale(&(&w * 1e38)).backward()?; // 65536·1e38 is infinite in f32
    /// scaler.step(&opt)?;
    /// scaler.update()?;
    /// assert!(scaler.overflowed()?);
    /// assert_eq!(w.item::<f32>(), 1.0);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// Inside a function that is being compiled, where it is not known.
    pub fn overflowed(&self) -> Result<bool> {
        self.last_overflow.try_item::<bool>()
    }

    /// The number of steps that were skipped so far.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
    /// # use pullback_nn::precision::{GradScaler, GradScalerOptions};
    /// # let w = Tensor::from(1f32).requires_grad();
    /// # let opt = Sgd { lr: 0.5, ..Sgd::default() }.over([w.clone()])?;
    /// let scaler = GradScaler::new(GradScalerOptions::default())?;
    /// for _ in 0..3 {
    ///     opt.zero_grad();
    ///     scaler.scale(&(&w * 1e38)).backward()?;
    ///     scaler.step(&opt)?;
    ///     scaler.update()?;
    /// }
    /// assert_eq!((scaler.skipped()?, scaler.current()?), (3, 8192.0));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// Inside a function that is being compiled, where it is not known.
    pub fn skipped(&self) -> Result<u64> {
        self.skipped.try_item::<i64>().map(i64::unsigned_abs)
    }

    /// The state as named tensors: what a checkpoint saves
    /// ([`Checkpoint::tensors`](crate::state::Checkpoint::tensors)), and restores by writing in
    /// place.
    ///
    /// ```
    /// use pullback_nn::precision::{GradScaler, GradScalerOptions};
    /// let scaler = GradScaler::new(GradScalerOptions { init_scale: 8.0, ..Default::default() })?;
    /// let (name, scale) = scaler.named_state().swap_remove(0);
    /// assert_eq!((&name[..], scale.item::<f32>()), ("scale", 8.0));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[doc(alias = "state_dict")]
    pub fn named_state(&self) -> Vec<(String, Tensor)> {
        let state = [
            ("scale", &self.scale),
            ("growth_tracker", &self.good),
            ("stage", &self.stage),
            ("looked", &self.looked),
            ("overflow", &self.overflow),
            ("last_overflow", &self.last_overflow),
            ("last_scale", &self.last_scale),
            ("skipped", &self.skipped),
        ];
        state.iter().map(|(name, x)| (name.to_string(), (*x).clone())).collect()
    }

    /// An optimiser is identified by its learning rates. Two optimisers would share one overflow
    /// flag.
    fn claim(&self, optimizer: &(impl Optimizer + ?Sized)) -> Result<()> {
        let Some(lr) = optimizer.lrs().into_iter().next() else { return Ok(()) };
        let mut owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        if owner.get_or_insert_with(|| lr.clone()).is_same(&lr) {
            return Ok(());
        }
        Err(Error::argument(OP, "it was used with another optimiser before")
            .hint("make one for each, or put the optimisers into one list"))
    }
}

/// Runs a formula of this file: unrecorded, in the dtypes it is written in.
fn untracked(f: impl FnOnce()) -> Result<()> {
    catch(|| no_grad(|| autocast_off(f)))
}
