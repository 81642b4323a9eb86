//! A quasi-Newton method with a limited memory.
//!
//! All parameters are one vector x here, and so is their gradient g. From the last differences s of
//! x and y of g the product of an approximate inverse Hessian with g follows by two loops over
//! them; x moves along it, by a fixed length or by one that a line search finds (`line_search.rs`).
//! The loss is evaluated several times in a step, so the step takes the closure that does it. It
//! decides by values, so it does not compile; the closure may be compiled.
//!
//! The algorithm is that of `torch.optim.LBFGS`, in all its tests and tolerances. Its state is in
//! tensors whose shapes never change: s and y are ring buffers of `history_size` rows.

use super::line_search::{self, SearchPoint};
use super::update_rule::wide_dtype;
use super::{Bounds, Optimizer};
use pullback::{DType, Error, Result, Tensor, cat, catch, enable_grad, no_grad};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// L-BFGS: `torch.optim.LBFGS`, with its meanings and defaults, except that the line search is on.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{Lbfgs, Optimizer};
///
/// // Rosenbrock's valley.
/// let x = Tensor::from([-1.5, 2.0]).requires_grad();
/// let opt = Lbfgs { max_iter: 50, ..Lbfgs::default() }.over([x.clone()])?;
/// opt.step(|| {
///     opt.zero_grad();
///     let (a, b) = (x.at(0), x.at(1));
///     let loss = (1.0 - &a).square() + (b - a.square()).square() * 100.0;
///     loss.backward()?;
///     Ok(loss)
/// })?;
/// assert!(x.to_vec::<f64>().iter().all(|x| (x - 1.0).abs() < 1e-5));
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Lbfgs {
    /// The length of a step, or of the first one that the line search tries.
    pub lr: f64,
    /// The number of iterations in a step.
    pub max_iter: usize,
    /// The number of function evaluations in a step; `None` is 5/4 of `max_iter`.
    pub max_eval: Option<usize>,
    /// Stops where no element of the gradient is larger.
    pub tolerance_grad: f64,
    /// Stops where neither the loss nor any element of a parameter changes by more.
    pub tolerance_change: f64,
    /// The number of stored differences.
    pub history_size: usize,
    /// The line search; without one, steps have the length `lr`.
    pub line_search_fn: Option<LineSearch>,
    /// Maximises instead of minimising.
    pub maximize: bool,
}

/// A line search of [`Lbfgs`].
///
/// ```
/// use pullback_nn::optim::{Lbfgs, LineSearch};
/// assert_eq!(Lbfgs::default().line_search_fn, Some(LineSearch::StrongWolfe));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineSearch {
    /// For a step that satisfies the strong Wolfe conditions.
    StrongWolfe,
}

impl Default for Lbfgs {
    fn default() -> Lbfgs {
        Lbfgs {
            lr: 1.0,
            max_iter: 20,
            max_eval: None,
            tolerance_grad: 1e-7,
            tolerance_change: 1e-9,
            history_size: 100,
            line_search_fn: Some(LineSearch::StrongWolfe),
            maximize: false,
        }
    }
}

const NAME: &str = "Lbfgs";

impl Lbfgs {
    /// An optimiser of these parameters, all in one group.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Lbfgs, Optimizer};
    /// let x = Tensor::from([-1.5, 2.0]).requires_grad();
    /// let opt = Lbfgs::default().over([x])?;
    /// assert_eq!(opt.groups()[0].len(), 1);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`UpdateRule::over`](super::UpdateRule::over), or if they have several dtypes.
    pub fn over(self, parameters: impl IntoIterator<Item = Tensor>) -> Result<LbfgsStepper> {
        let rows = [
            ("lr", self.lr, Bounds::NotNegative),
            ("tolerance_grad", self.tolerance_grad, Bounds::NotNegative),
            ("tolerance_change", self.tolerance_change, Bounds::NotNegative),
            ("max_iter", self.max_iter as f64, Bounds::Positive),
            ("history_size", self.history_size as f64, Bounds::Positive),
        ];
        super::stepper::check_options(NAME, &rows)?;
        let (mut all, mut known): (Vec<Tensor>, _) = (Vec::new(), HashSet::new());
        for x in parameters {
            super::stepper::check_parameter(NAME, &x, &mut known)?;
            if let Some(first) = all.first().filter(|first| first.dtype() != x.dtype()) {
                let message =
                    format!("parameters of one dtype, not {} and {}", first.spec(), x.spec());
                return Err(Error::argument(NAME, message));
            }
            all.push(x);
        }
        let Some(first) = all.first() else {
            return Err(Error::argument(NAME, "there are no parameters to optimise"));
        };
        let n = all.iter().map(Tensor::len).sum::<usize>();
        let dtype = wide_dtype(first.dtype());
        let vector = || first.new_zeros_with([n], dtype);
        let rows = || first.new_zeros_with([self.history_size, n], dtype);
        Ok(LbfgsStepper {
            lr: first.new_tensor(self.lr),
            counts: first.new_zeros_with([4], DType::I64),
            numbers: first.new_tensor([0.0, 1.0]),
            direction: vector(),
            last_grad: vector(),
            changes: rows(),
            steps: rows(),
            inverses: first.new_zeros_with([self.history_size], DType::F64),
            how: self,
            parameters: all,
            dtype,
        })
    }
}

/// The L-BFGS optimiser over its parameters: made by [`Lbfgs::over`].
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{Lbfgs, Optimizer};
/// let x = Tensor::from([3.0, -4.0]).requires_grad();
/// let opt = Lbfgs::default().over([x.clone()])?;
/// opt.step(|| {
///     opt.zero_grad();
///     let loss = x.square().sum();
///     loss.backward()?;
///     Ok(loss)
/// })?;
/// assert!(x.norm().item::<f64>() < 1e-6);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct LbfgsStepper {
    how: Lbfgs,
    parameters: Vec<Tensor>,
    dtype: DType,
    lr: Tensor,
    /// How often it moved, how often the loss was evaluated, how many rows of the rings are used,
    /// and which comes next.
    counts: Tensor,
    /// How far it moved along the direction last, and the scale of the first approximate Hessian.
    numbers: Tensor,
    direction: Tensor,
    last_grad: Tensor,
    /// The rings: differences y of gradients, and s of parameters.
    changes: Tensor,
    steps: Tensor,
    /// 1/(s·y), for each row.
    inverses: Tensor,
}

impl LbfgsStepper {
    /// One step: `evaluate` clears the gradients, computes the loss, runs backward and gives the
    /// loss. Gives the loss of the first evaluation, as it was before the step.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Lbfgs, Optimizer};
    /// let x = Tensor::from([3.0, -4.0]).requires_grad();
    /// let opt = Lbfgs::default().over([x.clone()])?;
    /// let first = opt.step(|| {
    ///     opt.zero_grad();
    ///     let loss = x.square().sum();
    ///     loss.backward()?;
    ///     Ok(loss)
    /// })?;
    /// assert_eq!(first.item::<f64>(), 25.0);
    /// assert!(x.square().sum().item::<f64>() < 1e-12);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// Of the closure, or if the loss is not one number.
    pub fn step(&self, mut evaluate: impl FnMut() -> Result<Tensor>) -> Result<Tensor> {
        catch(|| no_grad(|| self.iterate(&mut || enable_grad(&mut evaluate))))?
    }

    fn iterate(&self, evaluate: &mut dyn FnMut() -> Result<Tensor>) -> Result<Tensor> {
        let how = &self.how;
        let most_evaluations = how.max_eval.unwrap_or(how.max_iter * 5 / 4);
        let lr = self.lr.item::<f64>();
        let counts = self.counts.to_vec::<i64>();
        let (mut moves, mut used, mut next) = (counts[0], counts[2] as usize, counts[3] as usize);
        let mut far = self.numbers.to_vec::<f64>()[0];
        let mut scale = self.numbers.to_vec::<f64>()[1];
        let mut evaluations = 1;

        let first = evaluate()?;
        let (mut loss, mut grad) = (self.signed(&first)?, self.gradient());
        let mut direction = self.direction.deep_clone();
        let mut done = largest(&grad) <= how.tolerance_grad;
        let mut iteration = 0;
        while !done && iteration < how.max_iter {
            iteration += 1;
            moves += 1;
            if moves == 1 {
                direction = -&grad;
                (used, next, scale) = (0, 0, 1.0);
            } else {
                let change = &grad - &self.last_grad;
                let step = &direction * far;
                let curvature = dot(&change, &step);
                if curvature > 1e-10 {
                    self.changes.select_at(0, next as isize).copy_(&change);
                    self.steps.select_at(0, next as isize).copy_(&step);
                    self.inverses.select_at(0, next as isize).fill_(1.0 / curvature);
                    next = (next + 1) % how.history_size;
                    used = (used + 1).min(how.history_size);
                    scale = curvature / dot(&change, &change);
                }
                direction = self.newton(&grad, used, next, scale);
            }
            self.last_grad.copy_(&grad);
            let last_loss = loss;

            far = if moves == 1 { (1.0 / sum_of_sizes(&grad)).min(1.0) * lr } else { lr };
            let slope = dot(&grad, &direction);
            // No longer a descent direction.
            if slope > -how.tolerance_change {
                break;
            }
            if how.line_search_fn == Some(LineSearch::StrongWolfe) {
                let at = self.parameters.iter().map(Tensor::deep_clone).collect::<Vec<_>>();
                let mut evaluate = |far: f64| {
                    self.advance(&direction, far);
                    let loss = evaluate().and_then(|loss| self.signed(&loss));
                    let grad = self.gradient();
                    self.parameters.iter().zip(&at).for_each(|(x, old)| {
                        x.copy_(old);
                    });
                    Ok(SearchPoint { far, loss: loss?, slope: dot(&grad, &direction), grad })
                };
                let start = SearchPoint { far: 0.0, loss, slope, grad };
                let search = line_search::WolfeSearch {
                    tolerance: how.tolerance_change,
                    most: most_evaluations.saturating_sub(evaluations),
                    size: largest(&direction),
                };
                let (found, evaluated) = search.run(start, far, &mut evaluate)?;
                (far, loss, grad) = (found.far, found.loss, found.grad);
                evaluations += evaluated;
                self.advance(&direction, far);
                done = largest(&grad) <= how.tolerance_grad;
            } else {
                self.advance(&direction, far);
                if iteration != how.max_iter {
                    loss = self.signed(&evaluate()?)?;
                    grad = self.gradient();
                    done = largest(&grad) <= how.tolerance_grad;
                    evaluations += 1;
                }
            }
            done |= evaluations >= most_evaluations
                || largest(&direction) * far.abs() <= how.tolerance_change
                || (loss - last_loss).abs() < how.tolerance_change;
        }
        self.direction.copy_(&direction);
        let total = counts[1] + evaluations as i64;
        let counts = [moves, total, used as i64, next as i64];
        self.counts.copy_(self.counts.new_tensor(counts));
        self.numbers.copy_(self.numbers.new_tensor([far, scale]));
        Ok(first)
    }

    /// Minus the approximate inverse Hessian times the gradient, by the two loops.
    fn newton(&self, grad: &Tensor, used: usize, next: usize, scale: f64) -> Tensor {
        let size = self.how.history_size;
        let inverses = self.inverses.to_vec::<f64>();
        let rows: Vec<(Tensor, Tensor, f64)> = (0..used)
            .map(|i| {
                let at = ((next + size - used + i) % size) as isize;
                let (change, step) = (self.changes.select_at(0, at), self.steps.select_at(0, at));
                (change, step, inverses[at as usize])
            })
            .collect();
        let mut q = -grad;
        let mut parts = vec![0.0; used];
        for (i, (change, step, inverse)) in rows.iter().enumerate().rev() {
            parts[i] = dot(step, &q) * inverse;
            q -= change * parts[i];
        }
        q *= scale;
        for (part, (change, step, inverse)) in parts.iter().zip(&rows) {
            let back = dot(change, &q) * inverse;
            q += step * (part - back);
        }
        q
    }

    /// The gradients in one vector, with their sign; zeros where there is none.
    fn gradient(&self) -> Tensor {
        let flat = |x: &Tensor| match x.grad() {
            Some(grad) => grad.detach().reshape([-1]).cast(self.dtype),
            None => x.new_zeros_with([x.len()], self.dtype),
        };
        let parts: Vec<Tensor> = self.parameters.iter().map(flat).collect();
        let grad = cat(&parts.iter().collect::<Vec<_>>(), 0);
        if self.how.maximize { -grad } else { grad }
    }

    /// Moves the parameters along the direction.
    fn advance(&self, direction: &Tensor, far: f64) {
        let mut start = 0;
        for x in &self.parameters {
            let part = direction.narrow(0, start as isize, x.len()).reshape(x.shape());
            x.copy_(x.detach().cast(self.dtype) + part * far);
            start += x.len();
        }
    }

    fn signed(&self, loss: &Tensor) -> Result<f64> {
        let loss = loss.detach().cast(DType::F64).try_item::<f64>()?;
        Ok(if self.how.maximize { -loss } else { loss })
    }
}

fn dot(a: &Tensor, b: &Tensor) -> f64 {
    a.dot(b).cast(DType::F64).item()
}

fn largest(x: &Tensor) -> f64 {
    if x.is_empty() { 0.0 } else { x.abs().max().cast(DType::F64).item() }
}

fn sum_of_sizes(x: &Tensor) -> f64 {
    x.abs().sum().cast(DType::F64).item()
}

impl Optimizer for LbfgsStepper {
    /// Refused: see [`LbfgsStepper::step`].
    fn step(&self) -> Result<()> {
        Err(Error::argument(NAME, "a step evaluates the loss several times")
            .hint("call `LbfgsStepper::step` with a closure that computes it"))
    }

    fn groups(&self) -> Vec<Vec<Tensor>> {
        vec![self.parameters.clone()]
    }

    fn lrs(&self) -> Vec<Tensor> {
        vec![self.lr.clone()]
    }

    fn named_state(&self) -> Vec<(String, Tensor)> {
        let state = [
            ("0.lr", &self.lr),
            ("0.counts", &self.counts),
            ("0.numbers", &self.numbers),
            ("0.d", &self.direction),
            ("0.prev_flat_grad", &self.last_grad),
            ("0.old_dirs", &self.changes),
            ("0.old_stps", &self.steps),
            ("0.ro", &self.inverses),
        ];
        state.iter().map(|(name, x)| (name.to_string(), (*x).clone())).collect()
    }
}
