//! Eager reverse mode as users see it: `requires_grad`, `backward`, `.grad()`, `detach`.

use crate::cut::{Cut, CutReason};
use crate::tape::History;
use crate::tape::backward::{into_leaves, of_targets};
use crate::tensor::Tangents;
use crate::transform::reach::plan;
use crate::unaliased::Since;
use crate::{Error, Result, Tensor, events, fail, mode, trace};
use pullback_ir::Line;

/// How a backward pass treats the graph.
#[derive(Clone, Copy, Default)]
pub(crate) struct BackwardOptions {
    /// Saved values are kept, so that the graph can be run backward again.
    pub retain: bool,
    /// The pass itself is recorded, so that its results can be differentiated.
    pub create: bool,
    /// Where the gradients are constants to every derivative that is taken outside, in both modes:
    /// the line of the call.
    pub constant: Option<Line>,
}

impl BackwardOptions {
    /// A gradient as users and their hooks see it.
    pub fn shown(self, grad: Tensor) -> Tensor {
        match self.constant {
            Some(at) => grad.constant(at),
            None => grad,
        }
    }
}

impl Tensor {
    /// Makes this tensor a leaf whose gradient `backward` computes.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from(3.0).requires_grad();
    /// (&x * &x + &x).backward().unwrap();
    /// assert_eq!(x.grad().unwrap().item::<f64>(), 7.0); // 2x + 1
    /// ```
    ///
    /// # Panics
    /// If the dtype is not a float, or the tensor is the result of a recorded op (its gradient then
    /// follows from its inputs; see [`grad_of`] and [`Tensor::register_hook`]).
    #[track_caller]
    #[must_use]
    #[doc(alias = "requires_grad_")]
    pub fn requires_grad(self) -> Tensor {
        let at = mode::user_line(Line::caller());
        let refuse = |why: &str, hint: &str| -> ! {
            fail::raise(Error::gradient("requires_grad", why).on([self.spec()]).at(at).hint(hint))
        };
        if !self.dtype().is_float() {
            refuse("only floats have gradients", "cast to a float dtype first");
        }
        if let History::Node(..) = self.history() {
            refuse(
                "the tensor is the result of a recorded operation, not a leaf",
                "use grad_of(..) for the gradient of an intermediate value, or detach() it first",
            );
        }
        let leaf = self.is_leaf();
        fail::or_raise(trace::marks(&self, !leaf, at));
        self.become_leaf();
        self
    }

    /// Switches whether this tensor is a leaf whose gradient `backward` computes, in place:
    /// freezing and unfreezing a parameter.
    ///
    /// Freezing a parameter drops its gradient. What was recorded before stays recorded.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let (w, b) = (Tensor::from(3.0).requires_grad(), Tensor::from(1.0).requires_grad());
    /// w.set_requires_grad(false);
    /// (&w * 2.0 + &b).backward().unwrap();
    /// assert!(w.grad().is_none() && b.grad().is_some());
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::requires_grad`].
    #[track_caller]
    #[doc(alias = "requires_grad_")]
    pub fn set_requires_grad(&self, on: bool) {
        if on || matches!(self.history(), History::Node(..)) {
            let _ = self.clone().requires_grad();
            return;
        }
        let leaf = self.is_leaf();
        fail::or_raise(trace::marks(self, leaf, mode::user_line(Line::caller())));
        if leaf {
            let owner = {
                let mut state = self.lock();
                state.history = History::None;
                state.owner.take()
            };
            // The old gradient is dropped after the lock is released.
            drop(owner);
        }
    }

    /// Whether operations on this tensor are recorded: it is a leaf that requires grad, or was
    /// computed from one. Inside a body (of [`vmap`](crate::vmap), a compiled loop or branch) only
    /// what is tracked inside counts: a derivative that is taken outside sees the body as a whole.
    pub fn is_tracked(&self) -> bool {
        match self.state(Line::caller()) {
            Ok(state) => state.history.is_tracked(),
            Err(_) => true, // overwritten from elsewhere: tracked, but no longer usable
        }
    }

    /// Whether this is a tensor that requires grad itself, rather than one computed from such.
    pub fn is_leaf(&self) -> bool {
        self.leaf().is_some()
    }

    /// The gradient that backward passes have accumulated in this leaf.
    #[track_caller]
    pub fn grad(&self) -> Option<Tensor> {
        trace::note_gradient_read(self);
        let at = mode::user_line(Line::caller());
        let leaf = self.leaf()?;
        let mut slot = leaf.grad();
        trace::touch(&leaf, &mut slot, (true, false), at);
        slot.clone()
    }

    /// Replaces the accumulated gradient (`None` clears it).
    ///
    /// # Panics
    /// If the tensor is not a leaf, or the gradient has another spec.
    #[track_caller]
    pub fn set_grad(&self, grad: Option<Tensor>) {
        let at = mode::user_line(Line::caller());
        trace::note_gradient_read(self);
        let Some(leaf) = self.leaf() else {
            let error = Error::gradient("set_grad", "only a leaf that requires grad has a .grad()");
            fail::raise(error.on([self.spec()]).at(at));
        };
        if let Some(grad) = grad.as_ref().filter(|grad| grad.spec() != self.spec()) {
            let message =
                format!("the gradient is {}, but the leaf is {}", grad.spec(), self.spec());
            fail::raise(Error::gradient("set_grad", message).at(at));
        }
        let mut slot = leaf.grad();
        trace::touch(&leaf, &mut slot, (false, true), at);
        grad.iter().for_each(|grad| events::gradient_of(&leaf, grad));
        let old = std::mem::replace(&mut *slot, grad);
        // Dropped after the lock is released, here and below.
        drop(slot);
        drop(old);
    }

    /// Clears the accumulated gradient.
    #[track_caller]
    pub fn zero_grad(&self) {
        trace::note_gradient_read(self);
        let at = mode::user_line(Line::caller());
        if let Some(leaf) = self.leaf() {
            let mut slot = leaf.grad();
            trace::touch(&leaf, &mut slot, (false, true), at);
            let old = slot.take();
            drop(slot);
            drop(old);
        }
    }

    /// The same values as a constant: gradients stop here. The memory is shared.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from(3.0).requires_grad();
    /// (&x * x.detach()).backward().unwrap();
    /// assert_eq!(x.grad().unwrap().item::<f64>(), 3.0);
    /// ```
    #[track_caller]
    #[must_use]
    pub fn detach(&self) -> Tensor {
        self.cut("detach", Line::caller())
    }

    /// Another name for [`Tensor::detach`], for formulas: the derivative of what it gives is zero.
    #[track_caller]
    #[must_use]
    pub fn stop_gradient(&self) -> Tensor {
        self.cut("stop_gradient", Line::caller())
    }

    fn cut(&self, op: &'static str, caller: Line) -> Tensor {
        let at = mode::user_line(caller);
        if trace::in_body() && self.dtype().is_float() {
            return fail::or_raise(trace::stopped(self, at));
        }
        self.without_history(op, at)
    }

    /// A gradient without other references, as a constant to every derivative.
    pub(crate) fn constant(self, at: Line) -> Tensor {
        if trace::in_body() {
            return fail::or_raise(trace::constant(&self, at));
        }
        match self.is_tracked() || self.carries_tangents() {
            true => self.without_history("backward", at),
            false => self,
        }
    }

    /// The same memory without history and tangents.
    fn without_history(&self, op: &'static str, at: Line) -> Tensor {
        let history = self.lock().history.clone();
        let history = if trace::is_outside(history.key().map_or(u64::MAX, |key| key.0)) {
            History::None
        } else {
            history
        };
        let cut = Cut::between(CutReason::Detached, op, at, [&history].into_iter());
        let constant = self.alias(cut, Tangents::new());
        constant.share_read_only(self);
        constant
    }

    /// Adds the gradient of this scalar to the `.grad()` of every leaf it depends on. What it adds
    /// is a constant to every derivative taken outside, in both modes, unless the pass is recorded:
    /// see [`Backward::create_graph`].
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let (x, y) = (Tensor::from(2.0).requires_grad(), Tensor::from(3.0).requires_grad());
    /// let z = (&x + &y).powi(2);
    /// z.backward().unwrap();
    /// assert_eq!(x.grad().unwrap().item::<f64>(), 10.0);
    /// assert_eq!(y.grad().unwrap().item::<f64>(), 10.0);
    /// ```
    ///
    /// # Errors
    /// If the tensor has more than one element (use [`Tensor::backward_with`]), depends on nothing
    /// that requires grad, its graph was freed, or a value that is needed was overwritten.
    #[track_caller]
    pub fn backward(&self) -> Result<()> {
        Backward::at(&[self], Line::caller()).run()
    }

    /// Backward from a tensor of any shape, given the gradient of what follows it.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1.0, 2.0, 3.0]).requires_grad();
    /// x.square().backward_with(&Tensor::from([10.0, 1.0, 0.1])).unwrap();
    /// let g = x.grad().unwrap().to_vec::<f64>();
    /// assert!((g[0] - 20.0).abs() < 1e-12 && (g[1] - 4.0).abs() < 1e-12 && (g[2] - 0.6).abs() < 1e-12);
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::backward`], or if the cotangent has another shape or dtype than the tensor.
    #[track_caller]
    pub fn backward_with(&self, cotangent: &Tensor) -> Result<()> {
        Backward::at(&[self], Line::caller()).cotangent(cotangent).run()
    }
}

/// The gradients of `outputs` with respect to `inputs`, which may be leaves or intermediate values.
/// No `.grad()` is touched. An empty list of cotangents means that every output is a scalar.
///
/// They are constants to every derivative taken outside, in reverse and in forward mode:
/// [`Backward::create_graph`] and the transforms ([`grad`](crate::grad), [`vjp`](crate::vjp)) give
/// gradients that are differentiated.
///
/// ```
/// use pullback::{Tensor, grad_of};
/// let x = Tensor::from(3.0).requires_grad();
/// let h = &x * &x;
/// let y = &h * &h;
/// let g = grad_of(&[&y], &[&h, &x], &[]).unwrap();
/// assert_eq!((g[0].item::<f64>(), g[1].item::<f64>()), (18.0, 108.0));
/// ```
///
/// # Errors
/// As [`Tensor::backward`], or if an output does not depend on an input.
#[track_caller]
pub fn grad_of(
    outputs: &[&Tensor],
    inputs: &[&Tensor],
    cotangents: &[&Tensor],
) -> Result<Vec<Tensor>> {
    Backward::at(outputs, Line::caller()).cotangents(cotangents).wrt(inputs)
}

/// A backward pass with options.
///
/// ```
/// use pullback::{Backward, Tensor};
/// let x = Tensor::from(2.0).requires_grad();
/// let y = x.powi(3);
/// let dy = Backward::of(&y).create_graph().wrt(&[&x]).unwrap().remove(0); // 3x²
/// let d2y = Backward::of(&dy).wrt(&[&x]).unwrap().remove(0); // 6x
/// assert_eq!((dy.item::<f64>(), d2y.item::<f64>()), (12.0, 12.0));
/// ```
pub struct Backward<'a> {
    outputs: Vec<&'a Tensor>,
    cotangents: Vec<&'a Tensor>,
    options: BackwardOptions,
    allow_unused: bool,
    at: Line,
}

impl<'a> Backward<'a> {
    /// From one output.
    #[track_caller]
    pub fn of(output: &'a Tensor) -> Backward<'a> {
        Backward::at(&[output], Line::caller())
    }

    /// From several outputs at once.
    #[track_caller]
    pub fn of_all(outputs: &[&'a Tensor]) -> Backward<'a> {
        Backward::at(outputs, Line::caller())
    }

    fn at(outputs: &[&'a Tensor], at: Line) -> Backward<'a> {
        let at = mode::user_line(at);
        Backward {
            outputs: outputs.to_vec(),
            cotangents: Vec::new(),
            options: BackwardOptions { constant: Some(at), ..BackwardOptions::default() },
            allow_unused: false,
            at,
        }
    }

    /// The gradient of what follows the (next) output; needed where it is not a scalar.
    #[must_use]
    pub fn cotangent(mut self, cotangent: &'a Tensor) -> Backward<'a> {
        self.cotangents.push(cotangent);
        self
    }

    /// One cotangent per output.
    #[must_use]
    pub fn cotangents(mut self, cotangents: &[&'a Tensor]) -> Backward<'a> {
        self.cotangents.extend(cotangents);
        self
    }

    /// Keeps the saved values, so that the graph can be run backward again.
    #[must_use]
    pub fn retain_graph(mut self) -> Backward<'a> {
        self.options.retain = true;
        self
    }

    /// Records the backward pass itself, so that gradients can be differentiated, in both modes.
    /// Keeps the graph. Without it they are constants.
    ///
    /// With [`Backward::run`], a leaf's `.grad()` then holds the graph, until [`Tensor::zero_grad`]
    /// or until the last handle of the leaf is dropped. [`Backward::wrt`] gives the gradients to
    /// the caller instead.
    #[must_use]
    pub fn create_graph(mut self) -> Backward<'a> {
        self.options = BackwardOptions { retain: true, create: true, constant: None };
        self
    }

    /// In [`Backward::wrt`], gives zeros for inputs that no output depends on, instead of an error.
    #[must_use]
    pub fn allow_unused(mut self) -> Backward<'a> {
        self.allow_unused = true;
        self
    }

    /// Adds to the `.grad()` of every leaf.
    ///
    /// # Errors
    /// See [`Tensor::backward`].
    pub fn run(self) -> Result<()> {
        let roots = self.roots()?;
        if let Some((i, _)) = roots.iter().enumerate().find(|(_, r)| !r.0.is_tracked()) {
            return Err(self.untracked(self.outputs[i]));
        }
        into_leaves(roots, self.options, self.at).map_err(|e| e.at(self.at))
    }

    /// Gives the gradients with respect to these tensors and touches no `.grad()`.
    ///
    /// # Errors
    /// See [`grad_of`].
    pub fn wrt(self, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let start = Since::now();
        let roots = self.roots()?;
        let mut targets = Vec::new();
        for x in inputs {
            let history = x.state(self.at)?.history;
            match history.key() {
                Some(key) => targets.push(key),
                // The id of no value: no tracked value has id 0.
                None if self.allow_unused => targets.push((0, 0)),
                None => {
                    let error =
                        Error::gradient("grad_of", "an input does not require grad").on([x.spec()]);
                    return Err(error
                        .at(self.at)
                        .hint("call requires_grad() on it before it is used"));
                }
            }
        }
        if !self.allow_unused
            && roots.iter().all(|r| !r.0.is_tracked())
            && let Some(y) = self.outputs.first()
        {
            return Err(self.untracked(y));
        }
        let known: Vec<_> = targets.iter().copied().filter(|t| t.0 != 0).collect();
        let plan = plan(roots.iter().map(|r| &r.0), &known);
        let mut found = of_targets(roots, &known, plan, self.options, self.at)?.into_iter();
        let mut grads = Vec::new();
        for (x, key) in inputs.iter().zip(targets) {
            let grad = if key.0 == 0 { None } else { found.next().flatten() };
            grads.push(match grad {
                Some(grad) => grad,
                None if self.allow_unused => mode::with_line(self.at, || x.zeros_like_splat()),
                None => {
                    let message = "an output does not depend on this input, so it has no gradient";
                    let why =
                        self.outputs.first().map(|y| y.explain_no_grad(x)).unwrap_or_default();
                    let error = Error::gradient("grad_of", message)
                        .on([x.spec()])
                        .detail(why.replace('\n', "\n  "));
                    return Err(error
                        .at(self.at)
                        .hint("use Backward::allow_unused() to get zeros instead"));
                }
            });
        }
        let own = || mode::with_line(self.at, || start.own_all(grads));
        Ok(mode::set_recording(self.options.create, own))
    }

    /// Each output's history with its cotangent.
    fn roots(&self) -> Result<Vec<(History, Tensor)>> {
        let (outputs, cotangents) = (&self.outputs, &self.cotangents);
        if !cotangents.is_empty() && cotangents.len() != outputs.len() {
            let message = format!("{} cotangents for {} outputs", cotangents.len(), outputs.len());
            return Err(Error::argument("backward", message).at(self.at));
        }
        let mut roots = Vec::new();
        for (i, y) in outputs.iter().enumerate() {
            let cotangent = match cotangents.get(i) {
                Some(&dy) => {
                    check_cotangent(y, dy).map_err(|e| e.at(self.at))?;
                    dy.clone()
                }
                None if y.len() == 1 && y.dtype().is_float() => {
                    let one = || y.ones_like_splat();
                    mode::with_line(self.at, one)
                }
                None if !y.dtype().is_float() => {
                    let message = format!("{} has no gradient: only floats have one", y.spec());
                    return Err(Error::gradient("backward", message)
                        .at(self.at)
                        .hint("call backward on the float tensor that it was computed from"));
                }
                None => {
                    let message =
                        format!("{} is not a scalar, so backward needs a cotangent", y.spec());
                    return Err(Error::gradient("backward", message).at(self.at).hint(
                        "reduce it to a loss (sum, mean), or use backward_with(&cotangent)",
                    ));
                }
            };
            roots.push((y.state(self.at)?.history, cotangent));
        }
        Ok(roots)
    }

    fn untracked(&self, y: &Tensor) -> Error {
        let message = "this value does not depend on any tensor that requires grad";
        let error = Error::gradient("backward", message).on([y.spec()]).at(self.at);
        match &y.lock().history {
            History::Cut(cut) => error.detail(format!("the path was cut {}", cut.describe())),
            _ if trace::in_body() => error.hint(
                "inside vmap and the bodies of loops captured tensors are constants: use grad(..) over them",
            ),
            _ => error
                .hint("call requires_grad() on what you want the gradient of, before it is used"),
        }
    }
}

fn check_cotangent(y: &Tensor, dy: &Tensor) -> Result<()> {
    if y.spec() == dy.spec() {
        return Ok(());
    }
    let message = format!("the cotangent is {}, but the value is {}", dy.spec(), y.spec());
    Err(Error::gradient("backward", message))
}
