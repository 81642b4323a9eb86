//! `grad`, `value_and_grad`, `vjp` (reverse mode) and `jvp` (forward mode), and each with an
//! auxiliary output (`…_aux`).

use super::levels::{self, TransformLevel};
use super::reach::{Reachability, plan};
use crate::grad::BackwardOptions;
use crate::inplace::record_as;
use crate::tangents::Tangents;
use crate::tape::backward::of_targets;
use crate::tape::{History, ValueId};
use crate::unaliased::Since;
use crate::{Error, Op, Tensor, Tree, fail, mode};
use pullback_ir::Line;

/// The gradient of a scalar function.
///
/// ```
/// use pullback::{Tensor, grad};
/// let f = |x: &Tensor| x.powi(3);
/// let x = Tensor::from(2.0);
/// assert_eq!(grad(f)(&x).item::<f64>(), 12.0);
/// assert_eq!(grad(grad(f))(&x).item::<f64>(), 12.0);
/// ```
///
/// The argument may be any [`Tree`]; leaves that are not floats get zeros of their own dtype, and
/// leaves that the function does not use get zeros.
///
/// Buffers of the argument (`#[tree(buffer)]`: running statistics, counters) are state and not
/// variables, here and in [`value_and_grad`], [`vjp`] and [`jvp`]: the function gets them as they
/// are and may write to them, which the caller's buffers show afterwards, and their gradients are
/// zeros.
///
/// ```
/// use pullback::{Tensor, Tree, grad, no_grad};
///
/// #[derive(Tree)]
/// struct Counted {
///     weight: Tensor,
///     #[tree(buffer)]
///     calls: Tensor,
/// }
///
/// let model = Counted { weight: Tensor::from(3.0), calls: Tensor::from(0.0) };
/// let loss = |m: &Counted| {
///     no_grad(|| m.calls.add_(1.0));
///     m.weight.square()
/// };
/// assert_eq!(grad(loss)(&model).weight.item::<f64>(), 6.0);
/// assert_eq!(model.calls.item::<f64>(), 1.0);
/// ```
///
/// # Panics
/// When called, if the function gives anything but one float.
#[track_caller]
pub fn grad<T: Tree>(f: impl Fn(&T) -> Tensor) -> impl Fn(&T) -> T {
    let both = value_and_grad(f);
    move |x| both(x).1
}

/// The value and the gradient of a scalar function, in one pass.
///
/// ```
/// use pullback::{Tensor, value_and_grad};
/// let f = |(x, y): &(Tensor, Tensor)| (x + y) * x;
/// let (value, (dx, dy)) = value_and_grad(f)(&(Tensor::from(3.0), Tensor::from(4.0)));
/// assert_eq!([value, dx, dy].map(|t| t.item::<f64>()), [21.0, 10.0, 3.0]);
/// ```
///
/// # Panics
/// When called, if the function gives anything but one float.
#[track_caller]
pub fn value_and_grad<T: Tree>(f: impl Fn(&T) -> Tensor) -> impl Fn(&T) -> (Tensor, T) {
    let both = value_and_grad_aux(move |x: &T| (f(x), ()));
    move |x| {
        let ((y, ()), grads) = both(x);
        (y, grads)
    }
}

/// [`value_and_grad`] of a function that returns an auxiliary output with its loss: predictions,
/// metrics, new state. Only the loss is differentiated; the auxiliary output is returned as it is,
/// any [`Tree`], without the history of this derivative. (An outer derivative still sees it.)
///
/// ```
/// use pullback::{Tensor, value_and_grad_aux};
/// let f = |w: &Tensor| {
///     let predicted = w * 3.0;
///     ((&predicted - 10.0).square(), predicted)
/// };
/// let ((loss, predicted), g) = value_and_grad_aux(f)(&Tensor::from(2.0));
/// assert_eq!([loss, predicted, g].map(|t| t.item::<f64>()), [16.0, 6.0, -24.0]);
/// ```
///
/// # Panics
/// When called, if the loss is anything but one float.
#[doc(alias = "has_aux")]
#[track_caller]
pub fn value_and_grad_aux<T: Tree, A: Tree>(
    f: impl Fn(&T) -> (Tensor, A),
) -> impl Fn(&T) -> ((Tensor, A), T) {
    let caller = Line::caller();
    move |x| {
        let at = mode::user_line(caller);
        let start = Since::now();
        let frame = Differentiation::enter(x, at);
        let (y, aux) = mode::set_recording(true, || f(&frame.inputs));
        if y.len() != 1 || !y.dtype().is_float() {
            let message = format!("the function must give one float, not {}", y.spec());
            let hint = match y.dtype().is_float() {
                true => "reduce the result to a loss (sum, mean), or use vjp or jacobian",
                false => "only floats have gradients: return the float that it was computed from",
            };
            fail::raise(Error::gradient("grad", message).at(at).hint(hint));
        }
        let mut plan = frame.plan(std::slice::from_ref(&y), at);
        plan.outside |= frame.moves_outside(std::slice::from_ref(&y), at);
        let outside = plan.outside;
        let aux_leaves = aux.leaves();
        // The auxiliary output may depend on something outside that the loss does not.
        let aux_outside = !aux_leaves.is_empty() && frame.plan(&aux_leaves, at).outside;
        let one = mode::with_line(at, || y.ones_like_splat());
        let record = frame.recorded && outside;
        let mut grads = frame.pull(
            std::slice::from_ref(&y),
            &[one],
            plan,
            BackwardOptions {
                retain: record || (frame.recorded && aux_outside),
                create: record,
                constant: None,
            },
            at,
        );
        let count = grads.len();
        grads.push(frame.value(&y, outside));
        grads.extend(aux_leaves.iter().map(|a| frame.value(a, aux_outside)));
        frame.detach_buffers(at);
        let own = mode::with_line(at, || start.own_all(grads));
        let aux = aux.with_leaves(&own[count + 1..]);
        ((own[count].clone(), aux), x.with_leaves(&own[..count]))
    }
}

/// [`grad`] of a function that returns an auxiliary output with its loss: the gradient, and that
/// output. See [`value_and_grad_aux`].
///
/// ```
/// use pullback::{Tensor, grad_aux};
/// let f = |w: &Tensor| (w.square(), w.gt(1.0));
/// let (g, large) = grad_aux(f)(&Tensor::from(2.0));
/// assert_eq!((g.item::<f64>(), large.item::<bool>()), (4.0, true));
/// ```
///
/// # Panics
/// When called, if the loss is anything but one float.
#[doc(alias = "has_aux")]
#[track_caller]
pub fn grad_aux<T: Tree, A: Tree>(f: impl Fn(&T) -> (Tensor, A)) -> impl Fn(&T) -> (T, A) {
    let all = value_and_grad_aux(f);
    move |x| {
        let ((_, aux), grads) = all(x);
        (grads, aux)
    }
}

/// The value of a function and its pullback (vector-Jacobian product), which maps a cotangent of
/// the result to one of the argument and can be called any number of times.
///
/// ```
/// use pullback::{Tensor, vjp};
/// let (y, pullback) = vjp(|x: &Tensor| x.square(), &Tensor::from([1.0, 2.0, 3.0]));
/// assert_eq!(y.to_vec::<f64>(), [1.0, 4.0, 9.0]);
/// assert_eq!(pullback(&Tensor::from([1.0, 0.0, 0.0])).to_vec::<f64>(), [2.0, 0.0, 0.0]);
/// assert_eq!(pullback(&Tensor::from([0.0, 1.0, 1.0])).to_vec::<f64>(), [0.0, 4.0, 6.0]);
/// ```
///
/// # Panics
/// The pullback, if the cotangent has other specs than the value.
#[track_caller]
pub fn vjp<T: Tree, Y: Tree, F: FnOnce(&T) -> Y>(
    f: F,
    x: &T,
) -> (Y, impl Fn(&Y) -> T + use<T, Y, F>) {
    let (value, pullback, ()) = vjp_aux(|x: &T| (f(x), ()), x);
    (value, pullback)
}

/// [`vjp`] of a function that also returns an auxiliary output, which is not differentiated: the
/// value, the pullback, and that.
///
/// ```
/// use pullback::{Tensor, vjp_aux};
/// let (y, pullback, size) = vjp_aux(|x: &Tensor| (x.square(), x.sum()), &Tensor::from([1.0, 2.0]));
/// assert_eq!((y.to_vec::<f64>(), size.item::<f64>()), (vec![1.0, 4.0], 3.0));
/// assert_eq!(pullback(&Tensor::from([1.0, 1.0])).to_vec::<f64>(), [2.0, 4.0]);
/// ```
///
/// # Panics
/// The pullback, if the cotangent has other specs than the value.
#[doc(alias = "has_aux")]
#[track_caller]
pub fn vjp_aux<T: Tree, Y: Tree, A: Tree, F: FnOnce(&T) -> (Y, A)>(
    f: F,
    x: &T,
) -> (Y, impl Fn(&Y) -> T + use<T, Y, A, F>, A) {
    let at = mode::user_line(Line::caller());
    let start = Since::now();
    let frame = Differentiation::enter(x, at);
    let (y, aux) = mode::set_recording(true, || f(&frame.inputs));
    let results: Vec<Tensor> = y.leaves().into_iter().map(|y| frame.kept(y, at)).collect();
    let outside = frame.plan(&results, at).outside || frame.moves_outside(&results, at);
    let value = y.map(&mut |y| frame.value(y, outside));
    let aux_outside = frame.plan(&aux.leaves(), at).outside;
    let aux = aux.map(&mut |a| frame.value(a, aux_outside));
    frame.detach_buffers(at);
    let (value, aux) = mode::with_line(at, || start.own((value, aux)));
    let pullback = move |dy: &Y| {
        let cotangents = dy.leaves();
        check_cotangents(&results, &cotangents, at);
        let start = Since::now();
        let tracked =
            || cotangents.iter().chain(&all_tangents(&cotangents, at)).any(Tensor::is_tracked);
        let create = mode::is_grad_enabled() && (outside || tracked());
        let plan = frame.plan(&results, at);
        let options = BackwardOptions { retain: true, create, constant: None };
        let grads = frame.pull(&results, &cotangents, plan, options, at);
        frame.inputs.with_leaves(&mode::with_line(at, || start.own_all(grads)))
    };
    (value, pullback, aux)
}

/// Refuses cotangents that do not fit the results of a function. Not generic, as [`vjp_aux`] is
/// compiled for every function that is differentiated.
fn check_cotangents(results: &[Tensor], cotangents: &[Tensor], at: Line) {
    if cotangents.len() != results.len() {
        let message = format!("{} cotangents for {} results", cotangents.len(), results.len());
        fail::raise(Error::gradient("vjp", message).at(at));
    }
    for (y, dy) in results.iter().zip(cotangents) {
        if y.spec() != dy.spec() {
            let message = format!("the cotangent is {}, but the value is {}", dy.spec(), y.spec());
            fail::raise(Error::gradient("vjp", message).at(at));
        }
    }
}

/// The value of a function and its derivative along a direction (Jacobian-vector product): forward
/// mode, without keeping intermediate values.
///
/// ```
/// use pullback::{Tensor, jvp};
/// let (y, ty) = jvp(|x: &Tensor| x.sin(), &Tensor::from(0.0), &Tensor::from(2.0));
/// assert_eq!((y.item::<f64>(), ty.item::<f64>()), (0.0, 2.0));
/// ```
///
/// # Panics
/// If the direction has other specs than the argument. That for a buffer has no effect: see
/// [`grad`].
#[track_caller]
pub fn jvp<T: Tree, Y: Tree>(f: impl FnOnce(&T) -> Y, x: &T, tangent: &T) -> (Y, Y) {
    let at = mode::user_line(Line::caller());
    let start = Since::now();
    let (value, derivatives) = pushforward(f, x, tangent, at);
    let mut derivatives = derivatives.into_iter();
    let derivative =
        value.map(&mut |y| derivatives.next().flatten().unwrap_or_else(|| zeros_of(y, at)));
    mode::with_line(at, || start.own((value, derivative)))
}

/// [`jvp`] of a function that also returns an auxiliary output, which is not differentiated: the
/// value, the derivative, and that.
///
/// ```
/// use pullback::{Tensor, jvp_aux};
/// let f = |x: &Tensor| (x.sin(), x.cos());
/// let (_, ty, aux) = jvp_aux(f, &Tensor::from(0.0), &Tensor::from(2.0));
/// assert_eq!((ty.item::<f64>(), aux.item::<f64>()), (2.0, 1.0));
/// ```
///
/// # Panics
/// If the direction has other specs than the argument.
#[doc(alias = "has_aux")]
#[track_caller]
pub fn jvp_aux<T: Tree, Y: Tree, A: Tree>(
    f: impl FnOnce(&T) -> (Y, A),
    x: &T,
    tangent: &T,
) -> (Y, Y, A) {
    let ((y, aux), (ty, _)) = jvp(f, x, tangent);
    (y, ty, aux)
}

/// [`jvp`], with no derivative for what does not depend on the argument.
pub(crate) fn pushforward<T: Tree, Y: Tree>(
    f: impl FnOnce(&T) -> Y,
    x: &T,
    tangent: &T,
    at: Line,
) -> (Y, Vec<Option<Tensor>>) {
    let directions = tangent.leaves();
    let level = TransformLevel::enter();
    let buffers = x.buffers();
    let (mut i, mut wrong, mut state) = (0, None, Vec::new());
    let dual = x.map(&mut |x| {
        let direction = directions.get(i).cloned();
        let is_buffer = buffers.get(i).is_some_and(|&b| b);
        i += 1;
        match direction {
            Some(t) if t.spec() == x.spec() && is_buffer => {
                state.push(x.clone());
                x.clone()
            }
            Some(t) if t.spec() == x.spec() && x.dtype().is_float() => {
                let mut state = fail::or_raise(x.state(at));
                state.tangents.push((level.0, t));
                x.argument(state.history, state.tangents)
            }
            Some(t) if t.spec() == x.spec() => integers(x, at),
            other => {
                wrong.get_or_insert((x.spec().clone(), other.map(|t| t.spec().clone())));
                x.clone()
            }
        }
    });
    if i != directions.len() {
        let message = format!("the argument has {i} tensors, the direction {}", directions.len());
        fail::raise(Error::gradient("jvp", message).at(at));
    }
    if let Some((x, t)) = wrong {
        let given = t.map_or("missing".to_string(), |t| t.to_string());
        let message = format!("the direction for {x} is {given}");
        fail::raise(Error::gradient("jvp", message).at(at));
    }
    let y = f(&dual);
    // Through `state`, so that a result that was overwritten since has its new derivative.
    let mut derivatives = Vec::new();
    let value = y.map(&mut |y| {
        let mut state = fail::or_raise(y.state(at));
        let found = state.tangents.iter().position(|t| t.0 == level.0);
        derivatives.push(found.map(|i| state.tangents.remove(i).1));
        y.alias(state.history, state.tangents)
    });
    // What was written to buffers is a constant outside.
    for x in &state {
        let tangents = x.lock().tangents.clone();
        let outer = tangents.into_iter().filter(|t| t.0 != level.0).collect();
        x.replace_state(None, Some(outer), None);
    }
    (value, derivatives)
}

/// The tangents of tensors, those of the tangents themselves, and so on.
fn all_tangents(of: &[Tensor], at: Line) -> Vec<Tensor> {
    let mut all: Vec<Tensor> = Vec::new();
    let push = |x: &Tensor, all: &mut Vec<Tensor>| {
        all.extend(
            levels::alive(&fail::or_raise(x.own_state(at)).tangents).into_iter().map(|t| t.1),
        );
    };
    of.iter().for_each(|x| push(x, &mut all));
    let mut next = 0;
    while let Some(x) = all.get(next).cloned() {
        push(&x, &mut all);
        next += 1;
    }
    all
}

/// Zeros that no transform outside sees.
fn zeros_of(x: &Tensor, at: Line) -> Tensor {
    mode::set_recording(false, || mode::with_line(at, || x.detach().zeros_like()))
}

/// One differentiation: the argument with each float a tracked value of its own, which nothing else
/// depends on. Where the original is tracked, the value follows from it by an identity, so that the
/// graph continues behind it and transforms nest.
struct Differentiation<T> {
    inputs: T,
    leaves: Vec<Tensor>,
    /// The buffers among the floats: the caller's own, which the function may write to.
    buffers: Vec<Tensor>,
    /// Whether operations were being recorded outside.
    recorded: bool,
}

impl<T: Tree> Differentiation<T> {
    fn enter(x: &T, at: Line) -> Differentiation<T> {
        let recorded = mode::is_grad_enabled();
        let is_buffer = x.buffers();
        let (mut leaves, mut buffers) = (Vec::new(), Vec::new());
        let inputs = x.map(&mut |x| {
            if is_buffer.get(leaves.len()).is_some_and(|&b| b) && x.dtype().is_float() {
                // Gradients are collected for a constant instead of it.
                let zero = || x.zeros_like_splat();
                leaves.push(mode::with_line(at, zero));
                buffers.push(x.clone());
                return x.clone();
            }
            let leaf = match x.dtype().is_float() {
                true => fresh(x, recorded, at),
                false if is_buffer.get(leaves.len()).is_some_and(|&b| b) => x.clone(),
                false => integers(x, at),
            };
            leaves.push(leaf.clone());
            leaf
        });
        Differentiation { inputs, leaves, buffers, recorded }
    }

    /// What the function wrote to buffers is a constant outside, unless it depends on something
    /// outside.
    fn detach_buffers(&self, at: Line) {
        for x in &self.buffers {
            let written = matches!(x.lock().history, History::Node(..));
            if written && !self.plan(std::slice::from_ref(x), at).outside {
                x.replace_state(Some(History::None), None, None);
            }
        }
    }

    /// A result whose history stays when buffers lose theirs.
    fn kept(&self, y: Tensor, at: Line) -> Tensor {
        if !self.buffers.iter().any(|x| x.is_same(&y)) {
            return y;
        }
        let state = fail::or_raise(y.own_state(at));
        y.alias(state.history, state.tangents)
    }

    fn targets(&self) -> Vec<ValueId> {
        // The id of untracked values (integers): no tracked value has id 0.
        self.leaves.iter().map(|x| x.lock().history.key().unwrap_or((0, 0))).collect()
    }

    fn plan(&self, results: &[Tensor], at: Line) -> Reachability {
        let targets: Vec<ValueId> = self.targets().into_iter().filter(|k| k.0 != 0).collect();
        let histories: Vec<History> =
            results.iter().map(|y| fail::or_raise(y.own_state(at)).history).collect();
        let mut plan = plan(histories.iter(), &targets);
        // A leaf made by an identity has a history behind it.
        plan.outside |= self.leaves.iter().any(|x| matches!(x.lock().history, History::Node(..)));
        plan
    }

    /// Whether the results' tangents depend on something tracked outside: then those of the
    /// gradients do too.
    fn moves_outside(&self, results: &[Tensor], at: Line) -> bool {
        let tangents = all_tangents(results, at);
        !tangents.is_empty() && self.plan(&tangents, at).outside
    }

    /// The gradients of the results with respect to the leaves; zeros where there is no path.
    fn pull(
        &self,
        results: &[Tensor],
        cotangents: &[Tensor],
        plan: Reachability,
        options: BackwardOptions,
        at: Line,
    ) -> Vec<Tensor> {
        let targets = self.targets();
        // The results' own histories: seen from inside a `vmap` over the pullback they would be
        // none.
        let root =
            |(y, dy): (&Tensor, &Tensor)| (fail::or_raise(y.own_state(at)).history, dy.clone());
        let roots = results.iter().zip(cotangents).map(root).filter(|r| r.0.is_tracked()).collect();
        let known: Vec<ValueId> = targets.iter().copied().filter(|k| k.0 != 0).collect();
        let found = fail::or_raise(of_targets(roots, &known, plan, options, at));
        let mut found = found.into_iter();
        let gradient = |(x, key): (&Tensor, ValueId)| match key.0 {
            0 => zeros_of(x, at),
            _ => found.next().flatten().unwrap_or_else(|| zeros_of(x, at)),
        };
        self.leaves.iter().zip(targets).map(gradient).collect()
    }

    /// A result as the outside sees it: a constant, unless it depends on something outside.
    fn value(&self, y: &Tensor, outside: bool) -> Tensor {
        let (history, tangents) = {
            let state = y.lock();
            (state.history.clone(), state.tangents.clone())
        };
        match history.is_tracked() && !(outside && self.recorded) {
            true => y.alias(History::None, tangents),
            false => y.clone(),
        }
    }
}

impl<T> Drop for Differentiation<T> {
    fn drop(&mut self) {
        for x in &self.leaves {
            if let History::Leaf(leaf) = &x.lock().history {
                leaf.end();
            }
        }
    }
}

/// An argument that has no derivative.
fn integers(x: &Tensor, at: Line) -> Tensor {
    let state = fail::or_raise(x.state(at));
    x.argument(state.history, state.tangents)
}

fn fresh(x: &Tensor, recorded: bool, at: Line) -> Tensor {
    let state = fail::or_raise(x.state(at));
    if !(recorded && state.history.is_tracked()) {
        let leaf = x.argument(History::None, state.tangents);
        leaf.become_leaf();
        return leaf;
    }
    let copy = x.argument(History::None, Tangents::new());
    fail::or_raise(record_as(Op::Copy, &[x], &copy, at));
    copy
}
