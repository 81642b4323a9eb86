//! [`custom_jvp`]: a function with its derivative along a direction.

use super::call::{CustomCall, call};
use super::memo::Site;
use super::reverse::{specs, without_values};
use super::rule::{OperandRole, Rule, checked, filled, floats, transposed};
use super::rule_check::{PendingCheck, RuleCheck};
use crate::read_only::ReadOnly;
use crate::rule::{Derivatives, RuleContext, Tensors, Val};
use crate::{Spec, Tensor, Tree, kinks, mode};
use pullback_ir::Line;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::Arc;

/// A function with a forward derivative of its own: made by [`custom_jvp`].
pub struct CustomJvp<T, Y> {
    function: Arc<JvpFunction<T, Y>>,
    check: RuleCheck,
}

struct JvpFunction<T, Y> {
    name: &'static str,
    run: Box<dyn Fn(&T) -> Y + Send + Sync>,
    jvp: Box<JvpFn<T, Y>>,
}

type JvpFn<T, Y> = dyn Fn(&T, &T) -> Y + Send + Sync;

/// A function whose derivative along a direction is given: `jvp(x, t)`, a linear map of `t`.
/// Reverse mode is its transpose, so a rule that is written once gives both.
///
/// ```
/// use pullback::{Tensor, custom_jvp, grad, jvp};
/// let cube = custom_jvp("cube", |x: &Tensor| x.powi(3), |x: &Tensor, t: &Tensor| 3.0 * x.square() * t);
/// let x = Tensor::from(2.0);
/// assert_eq!(jvp(|x: &Tensor| cube.call(x), &x, &Tensor::from(1.0)).1.item::<f64>(), 12.0);
/// assert_eq!(grad(|x: &Tensor| cube.call(x))(&x).item::<f64>(), 12.0);
/// assert_eq!(grad(grad(|x: &Tensor| cube.call(x)))(&x).item::<f64>(), 12.0);
/// ```
///
/// Directions for tensors of integers are zeros. All else is as for
/// [`custom_vjp`](crate::custom_vjp).
///
/// # Panics
/// Only when it is called: see [`CustomJvp::call`].
#[track_caller]
#[must_use]
pub fn custom_jvp<T, Y, F, J>(name: &'static str, function: F, jvp: J) -> CustomJvp<T, Y>
where
    T: Tree + Send + Sync + 'static,
    Y: Tree + Send + Sync + 'static,
    F: Fn(&T) -> Y + Send + Sync + 'static,
    J: Fn(&T, &T) -> Y + Send + Sync + 'static,
{
    let mut check = RuleCheck::new(Site::of::<F, J>(name, Line::caller()));
    // Reverse mode is its transpose, which is linear whatever the rule is.
    check.linear();
    let function = Arc::new(JvpFunction { name, run: Box::new(function), jvp: Box::new(jvp) });
    CustomJvp { function, check }
}

impl<T, Y> CustomJvp<T, Y>
where
    T: Tree + Send + Sync + 'static,
    Y: Tree + Send + Sync + 'static,
{
    /// The function at `x`; the rule is checked as by [`CustomVjp::call`](crate::CustomVjp::call).
    ///
    /// ```
    /// use pullback::{Tensor, custom_jvp, grad};
    /// let cube = custom_jvp("cube", |x: &Tensor| x.powi(3), |x, t: &Tensor| 3.0 * x.square() * t);
    /// assert_eq!(cube.call(&Tensor::from(2.0)).item::<f64>(), 8.0);
    /// assert_eq!(grad(|x: &Tensor| cube.call(x))(&Tensor::from(2.0)).item::<f64>(), 12.0);
    /// ```
    ///
    /// # Panics
    /// If the rule is wrong, with the worst entry; if the result depends on a tracked tensor that
    /// is not in `x`.
    #[track_caller]
    pub fn call(&self, x: &T) -> Y {
        let at = mode::user_line(Line::caller());
        let structure = x.structure();
        self.check.pass(&x.leaves(), &structure, at, &|leaves| {
            apply(&self.function, &x.with_leaves(leaves), at, &PendingCheck::default).leaves()
        });
        let pending = || {
            let (function, like) = (self.function.clone(), without_values(x));
            let run = move |leaves: &[Tensor]| {
                apply(&function, &like.with_leaves(leaves), at, &PendingCheck::default).leaves()
            };
            self.check.pending(structure.clone(), at, run)
        };
        apply(&self.function, x, at, &pending)
    }

    /// Skips the check, for a rule that is not the derivative and is not meant to be; as
    /// [`CustomVjp::unchecked`](crate::CustomVjp::unchecked).
    ///
    /// ```
    /// use pullback::{Tensor, custom_jvp, grad};
    /// let sign = custom_jvp("sign", |x: &Tensor| x.sign(), |x, t: &Tensor| t / (1.0 + x.abs()))
    ///     .unchecked("a surrogate gradient");
    /// assert_eq!(grad(|x: &Tensor| sign.call(x))(&Tensor::from(3.0)).item::<f64>(), 0.25);
    /// ```
    #[track_caller]
    #[must_use]
    pub fn unchecked(mut self, reason: &'static str) -> Self {
        self.check.open(reason, mode::user_line(Line::caller()));
        self
    }

    /// An argument at which to check the rule if it is first used inside a trace (`jit`, `vmap`, a
    /// loop), where values are not known.
    ///
    /// ```
    /// use pullback::{Tensor, custom_jvp, jit};
    /// // Only defined above 10, where the random numbers of the check would not be.
    /// let log = custom_jvp("log", |x: &Tensor| (x - 10.0).log(), |x, t: &Tensor| t / (x - 10.0))
    ///     .at(&Tensor::from(12.0));
    /// let f = jit(move |x: &Tensor| log.call(x));
    /// assert_eq!(f.of(&Tensor::from(11.0)).item::<f64>(), 0.0);
    /// ```
    #[must_use]
    pub fn at(mut self, example: &T) -> Self {
        self.check.example(example.leaves());
        self
    }

    /// How far the derivative may be from the numeric one, relative to it; as
    /// [`CustomVjp::tolerance`](crate::CustomVjp::tolerance).
    ///
    /// ```
    /// use pullback::{Tensor, catch, custom_jvp};
    /// let value = |x: &Tensor| x.powi(3);
    /// let cube = || custom_jvp("cube", value, |x, t: &Tensor| 3.001 * x.square() * t);
    /// assert!(catch(|| cube().call(&Tensor::from(2.0))).is_err()); // off by 1/3000
    /// assert_eq!(cube().tolerance(1e-2).call(&Tensor::from(2.0)).item::<f64>(), 8.0);
    /// ```
    #[must_use]
    pub fn tolerance(mut self, relative: f64) -> Self {
        self.check.tolerance(relative);
        self
    }
}

fn apply<T, Y>(
    function: &Arc<JvpFunction<T, Y>>,
    x: &T,
    at: Line,
    pending: &dyn Fn() -> PendingCheck,
) -> Y
where
    T: Tree + Send + Sync + 'static,
    Y: Tree + Send + Sync + 'static,
{
    let made = RefCell::new(None);
    let run = |leaves: &[Tensor]| {
        let y = (function.run)(&x.with_leaves(leaves));
        let leaves = y.leaves();
        *made.borrow_mut() = Some(y);
        (leaves, Vec::new())
    };
    let rule = |call: CustomCall| -> Box<dyn Rule> {
        Box::new(JvpRule { function: function.clone(), x: without_values(x), call })
    };
    let ys = call(function.name, &x.leaves(), at, &run, &rule, pending);
    match made.into_inner() {
        Some(y) => y.with_leaves(&ys),
        None => unreachable!("the function ran"),
    }
}

struct JvpRule<T, Y> {
    function: Arc<JvpFunction<T, Y>>,
    x: T,
    call: CustomCall,
}

impl<T: Tree, Y: Tree> JvpRule<T, Y> {
    /// The derivative along a direction, on leaves.
    fn push(&self, x: &[Tensor], tangents: &[Tensor], wanted: &[Spec]) -> Vec<Tensor> {
        let _held = ReadOnly::of(x.iter().chain(tangents));
        let (x, t) = (self.x.with_leaves(x), self.x.with_leaves(tangents));
        let run = || (self.function.jvp)(&x, &t).leaves();
        let given = kinks::with_state(self.call.conventions, run);
        checked(self.call.name, "jvp", "result", given, wanted.iter())
    }
}

impl<T, Y> Rule for JvpRule<T, Y>
where
    T: Tree + Send + Sync,
    Y: Tree + Send + Sync,
{
    fn keeps(&self, val: Val) -> bool {
        matches!(val, Val::In(i) if i < self.call.arguments)
    }

    fn role(&self, operand: usize) -> OperandRole {
        self.call.role(operand)
    }

    fn pending(&self) -> Option<&PendingCheck> {
        self.call.pending.as_ref()
    }

    fn vjp(&self, ctx: &RuleContext, dys: &Derivatives) -> Derivatives {
        let (inputs, outputs) = specs(ctx);
        let x: Vec<Tensor> = (0..self.call.arguments).map(|i| ctx.x(i).clone()).collect();
        let (moved, made) = (floats(&inputs[..x.len()]), floats(&outputs));
        let dys = filled(dys, outputs.iter());
        let from: Vec<Spec> = moved.iter().map(|&i| inputs[i].clone()).collect();
        let given = transposed(
            &from,
            |tangents| {
                let mut all: Vec<Tensor> = inputs[..x.len()].iter().map(Tensor::zeros_of).collect();
                moved.iter().zip(tangents).for_each(|(&i, t)| all[i] = t.clone());
                let pushed = self.push(&x, &all, &outputs);
                made.iter().map(|&k| pushed[k].clone()).collect()
            },
            &made.iter().map(|&k| dys[k].clone()).collect::<Vec<_>>(),
        );
        let mut out: Derivatives = SmallVec::from_elem(None, inputs.len());
        for (&i, g) in moved.iter().zip(given).filter(|(i, _)| ctx.needs(**i)) {
            out[i] = Some(g);
        }
        out
    }

    fn jvp(&self, ctx: &RuleContext, tangents: &Derivatives) -> Tensors {
        let (inputs, outputs) = specs(ctx);
        let x: Vec<Tensor> = (0..self.call.arguments).map(|i| ctx.x(i).clone()).collect();
        let tangents = filled(&tangents[..x.len()], inputs.iter());
        let given = self.push(&x, &tangents, &outputs);
        let tangent = |(t, spec): (Tensor, &Spec)| match spec.dtype.is_float() {
            true => t,
            false => Tensor::zeros_of(spec),
        };
        given.into_iter().zip(&outputs).map(tangent).collect()
    }
}
