//! Steps of optimisers, written over parameters and their state in one pass over memory.
//!
//! These are the low-level functions: one parameter at a time, with the state in tensors that the
//! caller keeps. Each is an op with a kernel; where a derivative through a step is wanted, its
//! formula runs instead.

use crate::rule::Tensors;
use crate::{Error, Op, Tensor, fail};
use pullback_ir::{Adam as AdamOp, Fused, Line, Real, Sgd as SgdOp};
use smallvec::{SmallVec, smallvec};

/// How gradient descent steps. The fields have PyTorch's meanings and defaults.
///
/// ```
/// use pullback::{Tensor, update::{SgdOptions, sgd_}};
/// let (x, grad) = (Tensor::from([1.0, 2.0]), Tensor::from([10.0, 20.0]));
/// sgd_(&SgdOptions::default(), &Tensor::from(0.1), &x, &grad, None);
/// assert_eq!(x.to_vec::<f64>(), [0.0, 0.0]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SgdOptions {
    /// The momentum factor.
    pub momentum: f64,
    /// The dampening of the momentum.
    pub dampening: f64,
    /// The weight decay (L2 penalty): this times the parameter is added to its gradient.
    pub weight_decay: f64,
    /// Steps along the gradient and the momentum that comes next.
    pub nesterov: bool,
    /// Ascends.
    pub maximize: bool,
}

impl Default for SgdOptions {
    fn default() -> SgdOptions {
        SgdOptions {
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: false,
            maximize: false,
        }
    }
}

/// How Adam steps. The fields have PyTorch's meanings and defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamOptions {
    /// The coefficients of the running means of the gradient and of its square.
    pub betas: (f64, f64),
    /// Added to the root of the mean square.
    pub eps: f64,
    /// The weight decay: this times the parameter is added to its gradient or, decoupled, this
    /// times the learning rate times the parameter is subtracted from the parameter.
    pub weight_decay: f64,
    /// Decay as in AdamW.
    pub decoupled: bool,
    /// Ascends.
    pub maximize: bool,
}

impl Default for AdamOptions {
    fn default() -> AdamOptions {
        AdamOptions {
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.0,
            decoupled: false,
            maximize: false,
        }
    }
}

/// The state of a parameter under Adam.
#[derive(Clone, Copy, Debug)]
pub struct Moments<'a> {
    /// The running mean of its gradient, zeros at first.
    pub mean: &'a Tensor,
    /// The running mean of its gradient's square, zeros at first.
    pub square: &'a Tensor,
    /// The largest of those so far, zeros at first, where it is kept (AMSGrad).
    pub largest: Option<&'a Tensor>,
}

/// A step of gradient descent in place: g = grad + weight_decay·x; with momentum b = momentum·b +
/// (1 − dampening)·g (g itself in the first step) and g = b, or g + momentum·b with Nesterov; then
/// x = x − lr·g.
///
/// `momentum` holds b, shaped as the parameter, and the number of this step, `i64[]`, 1 for the
/// first. It must be given if and only if `how` has momentum. The learning rate is a tensor, so
/// that a compiled step reads it at each call.
///
/// Derivative: of its formula.
///
/// ```
/// use pullback::{Tensor, update::{SgdOptions, sgd_}};
/// let how = SgdOptions { momentum: 0.5, ..SgdOptions::default() };
/// let lr = Tensor::from(1.0);
/// let (x, b) = (Tensor::from([4.0]), Tensor::from([0.0]));
/// let (grad, step) = (Tensor::from([1.0]), Tensor::from(0i64));
/// for _ in 0..2 {
///     step.add_(1);
///     sgd_(&how, &lr, &x, &grad, Some((&b, &step)));
/// }
/// assert_eq!((x.to_vec::<f64>(), b.to_vec::<f64>()), (vec![1.5], vec![1.5]));
/// ```
///
/// # Panics
/// If shapes or dtypes differ, the parameter may not be written in place, or what is written shares
/// elements.
#[track_caller]
pub fn sgd_(
    how: &SgdOptions,
    lr: &Tensor,
    x: &Tensor,
    grad: &Tensor,
    momentum: Option<(&Tensor, &Tensor)>,
) {
    let op = SgdOp {
        momentum: Real(how.momentum),
        dampening: Real(how.dampening),
        decay: Real(how.weight_decay),
        nesterov: how.nesterov,
        maximize: how.maximize,
    };
    if op.remembers() != momentum.is_some() {
        let message =
            format!("a momentum of {} needs its state, and a state needs a momentum", how.momentum);
        let error = Error::argument("sgd_", message).on([x.spec(), grad.spec()]);
        fail::raise(error.at(crate::mode::user_line(Line::caller())));
    }
    let mut targets: SmallVec<[&Tensor; 2]> = smallvec![x];
    let mut inputs: SmallVec<[&Tensor; 3]> = smallvec![grad];
    if let Some((buffer, step)) = momentum {
        targets.push(buffer);
        inputs.push(step);
    }
    inputs.push(lr);
    let op = Op::Fused(Fused::Sgd(op));
    fail::or_raise(Tensor::in_place_all("sgd_", op, &targets, &inputs, Line::caller()));
}

/// A step of Adam in place: g = grad + weight_decay·x (or x = x − lr·weight_decay·x, if decoupled);
/// mean = β₁·mean + (1 − β₁)·g, square = β₂·square + (1 − β₂)·g²; then
/// x = x − lr·mean/(1 − β₁ᵗ) / (√(square/(1 − β₂ᵗ)) + eps), with the largest square so far in its
/// place if it is kept.
///
/// `step` is t, the number of this step, `i64[]`, 1 for the first. The learning rate is a tensor,
/// so that a compiled step reads it at each call.
///
/// Derivative: of its formula.
///
/// ```
/// use pullback::{Tensor, update::{AdamOptions, Moments, adam_}};
/// let (x, grad) = (Tensor::from([1.0, 2.0]), Tensor::from([3.0, -4.0]));
/// let (mean, square) = (x.zeros_like(), x.zeros_like());
/// let state = Moments { mean: &mean, square: &square, largest: None };
/// adam_(&AdamOptions::default(), &Tensor::from(0.5), &x, &grad, state, &Tensor::from(1i64));
/// // The first step is as long as the learning rate.
/// assert!((x.to_vec::<f64>()[0] - 0.5).abs() < 1e-6 && (x.to_vec::<f64>()[1] - 2.5).abs() < 1e-6);
/// ```
///
/// # Panics
/// If shapes or dtypes differ, the parameter may not be written in place, or what is written shares
/// elements.
#[track_caller]
pub fn adam_(
    how: &AdamOptions,
    lr: &Tensor,
    x: &Tensor,
    grad: &Tensor,
    state: Moments,
    step: &Tensor,
) {
    let op = AdamOp {
        beta1: Real(how.betas.0),
        beta2: Real(how.betas.1),
        eps: Real(how.eps),
        decay: Real(how.weight_decay),
        decoupled: how.decoupled,
        amsgrad: state.largest.is_some(),
        maximize: how.maximize,
    };
    let mut targets: SmallVec<[&Tensor; 4]> = smallvec![x, state.mean, state.square];
    targets.extend(state.largest);
    let op = Op::Fused(Fused::Adam(op));
    let inputs = [grad, step, lr];
    fail::or_raise(Tensor::in_place_all("adam_", op, &targets, &inputs, Line::caller()));
}

/// The gradient with its sign, in the dtype in which steps are computed.
fn maximised_gradient(grad: &Tensor, maximize: bool) -> Tensor {
    if maximize { -grad.wide() } else { grad.wide() }
}

/// The formula of [`sgd_`].
pub(super) fn sgd(op: &Op, inputs: &[&Tensor]) -> Tensors {
    let Op::Fused(Fused::Sgd(how)) = op else { unreachable!("called for Sgd") };
    let x = inputs[0].wide();
    let states = usize::from(how.remembers());
    let mut g = maximised_gradient(inputs[1 + states], how.maximize);
    if how.decay != Real(0.0) {
        g += &x * how.decay.0;
    }
    let mut new_buffer = None;
    if how.remembers() {
        let first = inputs[3].le(1);
        let later = inputs[1].wide() * how.momentum.0 + &g * (1.0 - how.dampening.0);
        let buffer = first.select(&g, &later);
        g = if how.nesterov { g + &buffer * how.momentum.0 } else { buffer.clone() };
        new_buffer = Some(buffer.cast(inputs[1].dtype()));
    }
    let lr = inputs[inputs.len() - 1].cast(x.dtype());
    std::iter::once((x - g * lr).cast(inputs[0].dtype())).chain(new_buffer).collect()
}

/// The formula of [`adam_`].
pub(super) fn adam(op: &Op, inputs: &[&Tensor]) -> Tensors {
    let Op::Fused(Fused::Adam(how)) = op else { unreachable!("called for Adam") };
    let (mut x, dtype) = (inputs[0].wide(), inputs[0].dtype());
    let n = inputs.len();
    let mut g = maximised_gradient(inputs[n - 3], how.maximize);
    let step = inputs[n - 2].cast(crate::DType::F64);
    let lr = inputs[n - 1].cast(x.dtype());
    if how.decoupled {
        x *= 1.0 - &lr * how.decay.0;
    } else if how.decay != Real(0.0) {
        g += &x * how.decay.0;
    }
    let mean = inputs[1].wide() * how.beta1.0 + &g * (1.0 - how.beta1.0);
    let square = inputs[2].wide() * how.beta2.0 + g.square() * (1.0 - how.beta2.0);
    let largest = how.amsgrad.then(|| inputs[3].wide().maximum(&square));
    let unbias = |beta: f64| (1.0 - step.new_tensor(beta).pow(&step)).cast(x.dtype());
    // The root of zero has an infinite slope, as in the formula.
    let root = largest.as_ref().unwrap_or(&square).sqrt() / unbias(how.beta2.0).sqrt();
    let size = unbias(how.beta1.0).recip() * lr;
    let new = x - &mean * size / (root + how.eps.0);
    let outs = [new.cast(dtype), mean.cast(dtype), square.cast(dtype)];
    outs.into_iter().chain(largest.map(|x| x.cast(dtype))).collect()
}
