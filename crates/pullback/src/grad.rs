//! Eager reverse mode as users see it: `requires_grad`, `backward`, `.grad()`, `detach`.

use crate::cut::{Cut, CutReason};
use crate::tape::History;
use crate::tape::backward::{into_leaves, of_targets};
use crate::tensor::Tangents;
use crate::transform::reach::plan;
use crate::unaliased::Since;
use crate::{Error, Result, Tensor, events, fail, mode, trace};
use pullback_ir::Line;
use std::cell::Cell;

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
    #[doc(alias = "requires_grad_")]
    #[track_caller]
    #[must_use]
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
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let (w, x) = (Tensor::from(3.0).requires_grad(), Tensor::from(2.0));
    /// let y = &w * &x;
    /// assert!(w.is_tracked() && y.is_tracked() && !x.is_tracked());
    /// assert!(!y.detach().is_tracked());
    /// ```
    ///
    /// # Panics
    /// Never.
    pub fn is_tracked(&self) -> bool {
        match self.state(Line::caller()) {
            Ok(state) => state.history.is_tracked(),
            Err(_) => true, // overwritten from elsewhere: tracked, but no longer usable
        }
    }

    /// Whether this is a tensor that requires grad itself, rather than one computed from such.
    /// Unlike in PyTorch, a tensor that does not require grad is not a leaf.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let w = Tensor::from(3.0).requires_grad();
    /// assert!(w.is_leaf() && !(&w * 2.0).is_leaf() && !Tensor::from(3.0).is_leaf());
    /// ```
    ///
    /// # Panics
    /// Never.
    pub fn is_leaf(&self) -> bool {
        self.leaf().is_some()
    }

    /// The gradient that backward passes have accumulated in this leaf. `None` before the first
    /// pass that reaches it, after [`Tensor::zero_grad`], and for every tensor that is not a leaf:
    /// for the gradient of an intermediate value use [`grad_of`] or [`Tensor::register_hook`].
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1.0, 2.0]).requires_grad();
    /// assert!(x.grad().is_none());
    /// x.square().sum().backward()?;
    /// x.square().sum().backward()?; // gradients add up
    /// assert_eq!(x.grad().unwrap().to_vec::<f64>(), [4.0, 8.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// Never; it is `None` where there is no gradient.
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
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([3.0, 4.0]).requires_grad();
    /// x.square().sum().backward()?;
    /// let g = x.grad().unwrap(); // [6, 8], of norm 10
    /// x.set_grad(Some(&g / g.norm()));
    /// assert_eq!(x.grad().unwrap().to_vec::<f64>(), [0.6, 0.8]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
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

    /// Clears the accumulated gradient: [`Tensor::grad`] is `None` again. Does nothing to a tensor
    /// that is not a leaf.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from(3.0).requires_grad();
    /// x.square().backward()?;
    /// x.zero_grad();
    /// assert!(x.grad().is_none());
    /// x.square().backward()?;
    /// assert_eq!(x.grad().unwrap().item::<f64>(), 6.0); // and not 12
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// Inside [`vmap`](crate::vmap) and the bodies of loops, if the tensor is from outside.
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
    ///
    /// # Panics
    /// For no shape or dtype.
    #[track_caller]
    #[must_use]
    pub fn detach(&self) -> Tensor {
        self.cut("detach", Line::caller())
    }

    /// Another name for [`Tensor::detach`], for formulas: the derivative of what it gives is zero.
    ///
    /// ```
    /// # use pullback::{Tensor, grad};
    /// // The straight-through estimator: the value of round(x), with the derivative of x.
    /// let f = |x: &Tensor| x + (x.round() - x).stop_gradient();
    /// let x = Tensor::from(1.7);
    /// assert_eq!((f(&x).item::<f64>(), grad(f)(&x).item::<f64>()), (2.0, 1.0));
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
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

    /// Adds the gradient of this scalar to the `.grad()` of every leaf it depends on.
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
    /// # `retain_graph` and `create_graph`
    /// The options of a backward pass are methods of [`Backward`]:
    ///
    /// - [`Backward::retain_graph`]: the pass frees the values that the graph saved for it, so a
    ///   second pass through the same graph is an error, unless the first one retained the graph.
    /// - [`Backward::create_graph`]: what the pass adds is a constant to every derivative taken
    ///   outside, in both modes, unless the pass itself is recorded. Recording it makes the
    ///   gradients differentiable: for second derivatives, gradient penalties and meta-learning.
    ///
    /// ```
    /// # use pullback::{Backward, Tensor};
    /// let x = Tensor::from(2.0).requires_grad();
    /// let y = x.powi(3);
    /// Backward::of(&y).retain_graph().run()?;
    /// y.backward()?; // adds 3x² = 12 once more, and frees the graph
    /// assert_eq!(x.grad().unwrap().item::<f64>(), 24.0);
    /// assert!(y.backward().is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the tensor has more than one element (use [`Tensor::backward_with`]), depends on nothing
    /// that requires grad, its graph was freed, or a value that is needed was overwritten.
    #[track_caller]
    pub fn backward(&self) -> Result<()> {
        Backward::at(&[self], Line::caller()).run()
    }

    /// Backward from a tensor of any shape, given its cotangent: the gradient of the loss with
    /// respect to this tensor (`gradient=` of `backward` in PyTorch). [`Backward`] has the options
    /// `retain_graph` and `create_graph`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1.0, 2.0, 3.0]).requires_grad();
    /// x.square().backward_with(&Tensor::from([10.0, 1.0, 0.5]))?;
    /// assert_eq!(x.grad().unwrap().to_vec::<f64>(), [20.0, 4.0, 3.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::backward`], or if the cotangent has another shape or dtype than the tensor.
    #[track_caller]
    pub fn backward_with(&self, cotangent: &Tensor) -> Result<()> {
        Backward::at(&[self], Line::caller()).cotangent(cotangent).run()
    }
}

/// The gradients of `outputs` with respect to `inputs`, which may be leaves or intermediate values
/// (`torch.autograd.grad`). No `.grad()` is touched. An empty list of cotangents means that every
/// output is a scalar.
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
/// # `retain_graph` and `create_graph`
/// The gradients are constants to every derivative taken outside, in reverse and in forward mode,
/// and the graph is freed: a second pass through it is an error. [`Backward::wrt`] takes the
/// options. [`Backward::retain_graph`] keeps the graph for further passes;
/// [`Backward::create_graph`] also records the pass, so that its gradients can be differentiated,
/// as those of the transforms ([`grad`](crate::grad), [`vjp`](crate::vjp)) are.
///
/// ```
/// # use pullback::{Backward, Tensor};
/// let x = Tensor::from(3.0).requires_grad();
/// let y = x.powi(3);
/// let dy = Backward::of(&y).create_graph().wrt(&[&x])?.remove(0); // 3x²
/// let d2y = Backward::of(&dy).create_graph().wrt(&[&x])?.remove(0); // 6x
/// let d3y = Backward::of(&d2y).wrt(&[&x])?.remove(0); // 6
/// assert_eq!([dy, d2y, d3y].map(|d| d.item::<f64>()), [27.0, 18.0, 6.0]);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// As [`Tensor::backward`]; if an input does not require grad, no output depends on an input, or
/// there is not one cotangent for each output.
#[doc(alias = "autograd.grad")]
#[track_caller]
pub fn grad_of(
    outputs: &[&Tensor],
    inputs: &[&Tensor],
    cotangents: &[&Tensor],
) -> Result<Vec<Tensor>> {
    Backward::at(outputs, Line::caller()).cotangents(cotangents).wrt(inputs)
}

/// A backward pass with options: those of `backward` and `torch.autograd.grad` in PyTorch.
///
/// ```
/// use pullback::{Backward, Tensor};
/// let x = Tensor::from(2.0).requires_grad();
/// let y = x.powi(3);
/// let dy = Backward::of(&y).create_graph().wrt(&[&x]).unwrap().remove(0); // 3x²
/// let d2y = Backward::of(&dy).wrt(&[&x]).unwrap().remove(0); // 6x
/// assert_eq!((dy.item::<f64>(), d2y.item::<f64>()), (12.0, 12.0));
/// ```
///
/// | PyTorch | here |
/// |---|---|
/// | `y.backward(retain_graph=True)` | `Backward::of(&y).retain_graph().run()` |
/// | `y.backward(create_graph=True)` | `Backward::of(&y).create_graph().run()` |
/// | `autograd.grad(y, [x], create_graph=True)` | `Backward::of(&y).create_graph().wrt(&[&x])` |
/// | `autograd.grad(y, [x], allow_unused=True)` | `Backward::of(&y).allow_unused().wrt(&[&x])` |
/// | `autograd.backward(ys, dys)` | `Backward::of_all(&ys).cotangents(&dys).run()` |
///
/// Without `retain_graph` and `create_graph` a pass frees the values that the graph saved, and its
/// gradients are constants.
pub struct Backward<'a> {
    outputs: Vec<&'a Tensor>,
    cotangents: Vec<&'a Tensor>,
    options: BackwardOptions,
    allow_unused: bool,
    at: Line,
}

impl<'a> Backward<'a> {
    /// Backward from one output.
    ///
    /// ```
    /// # use pullback::{Backward, Tensor};
    /// let x = Tensor::from(3.0).requires_grad();
    /// Backward::of(&x.square()).run()?; // the same as x.square().backward()
    /// assert_eq!(x.grad().unwrap().item::<f64>(), 6.0);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// Never; [`Backward::run`] returns the errors.
    #[track_caller]
    pub fn of(output: &'a Tensor) -> Backward<'a> {
        Backward::at(&[output], Line::caller())
    }

    /// Backward from several outputs at once: the gradient of their sum, in one pass.
    ///
    /// ```
    /// # use pullback::{Backward, Tensor};
    /// let x = Tensor::from(3.0).requires_grad();
    /// let h = x.square();
    /// Backward::of_all(&[&h, &(&h * 10.0)]).run()?;
    /// assert_eq!(x.grad().unwrap().item::<f64>(), 66.0); // 2x + 20x
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// Never; [`Backward::run`] returns the errors.
    #[doc(alias = "autograd.backward")]
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

    /// The cotangent of the output, or of the next one of several: the gradient of the loss with
    /// respect to it. Needed where an output is not a scalar.
    ///
    /// ```
    /// # use pullback::{Backward, Tensor};
    /// let x = Tensor::from([1.0, 2.0]).requires_grad();
    /// Backward::of(&x.square()).cotangent(&Tensor::from([1.0, 10.0])).run()?;
    /// assert_eq!(x.grad().unwrap().to_vec::<f64>(), [2.0, 40.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Backward::run`] and [`Backward::wrt`] fail if it has another shape or dtype than the
    /// output, or if some outputs have a cotangent and others none.
    #[doc(alias = "grad_outputs")]
    #[must_use]
    pub fn cotangent(mut self, cotangent: &'a Tensor) -> Backward<'a> {
        self.cotangents.push(cotangent);
        self
    }

    /// One cotangent for each output, in their order: see [`Backward::cotangent`].
    ///
    /// ```
    /// # use pullback::{Backward, Tensor};
    /// let x = Tensor::from([1.0, 2.0]).requires_grad();
    /// let (y, z) = (x.square(), x.sum());
    /// let (dy, dz) = (Tensor::from([1.0, 10.0]), Tensor::from(100.0));
    /// Backward::of_all(&[&y, &z]).cotangents(&[&dy, &dz]).run()?;
    /// assert_eq!(x.grad().unwrap().to_vec::<f64>(), [102.0, 140.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Backward::cotangent`].
    #[doc(alias = "grad_outputs")]
    #[must_use]
    pub fn cotangents(mut self, cotangents: &[&'a Tensor]) -> Backward<'a> {
        self.cotangents.extend(cotangents);
        self
    }

    /// Keeps the values that the graph has saved, so that another pass can run through it: for
    /// several losses that share a part, or several cotangents of one output. Otherwise a pass
    /// frees them as it goes, and the next one through the same graph is an error. The pass itself
    /// is not recorded; for gradients of gradients use [`Backward::create_graph`], which retains
    /// the graph too.
    ///
    /// ```
    /// # use pullback::{Backward, Tensor};
    /// let x = Tensor::from(2.0).requires_grad();
    /// let h = x.exp(); // shared by both losses
    /// let (a, b) = (h.square(), h.sin());
    /// let da = Backward::of(&a).retain_graph().wrt(&[&x])?.remove(0);
    /// let db = Backward::of(&b).wrt(&[&x])?.remove(0); // the last pass may free the graph
    /// let e = 2f64.exp();
    /// assert!((da.item::<f64>() - 2.0 * e * e).abs() < 1e-12);
    /// assert!((db.item::<f64>() - e * e.cos()).abs() < 1e-12);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn retain_graph(mut self) -> Backward<'a> {
        self.options.retain = true;
        self
    }

    /// Records the backward pass itself, so that the gradients can be differentiated in turn, in
    /// both modes, and retains the graph ([`Backward::retain_graph`]). Without it, gradients are
    /// constants.
    ///
    /// With [`Backward::run`], a leaf's `.grad()` then holds the graph, until [`Tensor::zero_grad`]
    /// or until the last handle of the leaf is dropped. [`Backward::wrt`] gives the gradients to
    /// the caller instead.
    ///
    /// ```
    /// # use pullback::{Backward, Tensor};
    /// // A gradient penalty: L + |∇L|², with L = Σw³.
    /// let w = Tensor::from([1.0, 2.0]).requires_grad();
    /// let loss = w.powi(3).sum();
    /// let g = Backward::of(&loss).create_graph().wrt(&[&w])?.remove(0); // 3w²
    /// (loss + g.square().sum()).backward()?;
    /// assert_eq!(w.grad().unwrap().to_vec::<f64>(), [39.0, 300.0]); // 3w² + 36w³
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn create_graph(mut self) -> Backward<'a> {
        self.options = BackwardOptions { retain: true, create: true, constant: None };
        self
    }

    /// In [`Backward::wrt`], gives zeros for inputs that no output depends on, instead of an error.
    ///
    /// ```
    /// # use pullback::{Backward, Tensor};
    /// let (x, unused) = (Tensor::from(3.0).requires_grad(), Tensor::from(1.0).requires_grad());
    /// let y = x.square();
    /// assert!(Backward::of(&y).retain_graph().wrt(&[&x, &unused]).is_err());
    /// let g = Backward::of(&y).allow_unused().wrt(&[&x, &unused])?;
    /// assert_eq!((g[0].item::<f64>(), g[1].item::<f64>()), (6.0, 0.0));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn allow_unused(mut self) -> Backward<'a> {
        self.allow_unused = true;
        self
    }

    /// Runs the pass and adds the gradients to the `.grad()` of every leaf.
    ///
    /// ```
    /// # use pullback::{Backward, Tensor};
    /// let (x, y) = (Tensor::from(2.0).requires_grad(), Tensor::from(3.0).requires_grad());
    /// Backward::of(&(&x * &y)).run()?;
    /// assert_eq!((x.grad().unwrap().item::<f64>(), y.grad().unwrap().item::<f64>()), (3.0, 2.0));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`Tensor::backward`]; also if there is not one cotangent for each output.
    pub fn run(self) -> Result<()> {
        let roots = self.roots()?;
        if let Some((i, _)) = roots.iter().enumerate().find(|(_, r)| !r.0.is_tracked()) {
            return Err(self.untracked(self.outputs[i]));
        }
        into_leaves(roots, self.options, self.at).map_err(|e| e.at(self.at))?;
        self.note_constants();
        Ok(())
    }

    /// Runs the pass and gives the gradients with respect to these tensors, leaves or intermediate
    /// values. No `.grad()` is touched.
    ///
    /// ```
    /// # use pullback::{Backward, Tensor};
    /// let x = Tensor::from(3.0).requires_grad();
    /// let h = x.square();
    /// let g = Backward::of(&h.square()).wrt(&[&h, &x])?;
    /// assert_eq!((g[0].item::<f64>(), g[1].item::<f64>()), (18.0, 108.0));
    /// assert!(x.grad().is_none());
    /// # Ok::<(), pullback::Error>(())
    /// ```
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
        self.note_constants();
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
            History::Cut(cut) if cut.op == "backward" => error
                .detail(format!("it was computed by the backward pass at {}", cut.at))
                .hint(CREATE_GRAPH),
            History::Cut(cut) => error.detail(format!("the path was cut {}", cut.describe())),
            _ if trace::in_body() => error.hint(
                "inside vmap and the bodies of loops captured tensors are constants: use grad(..) over them",
            ),
            // A gradient without a graph looks like any other constant.
            _ if CONSTANT_GRADIENTS.get() => error.hint(format!(
                "call requires_grad() on what you want the gradient of, before it is used; if this \
                 was computed from a gradient: {CREATE_GRAPH}"
            )),
            _ => error.hint(
                "call requires_grad() on what you want the gradient of, before it is used",
            ),
        }
    }

    /// Remembers that this thread has gradients that cannot be differentiated.
    fn note_constants(&self) {
        if !self.options.create {
            CONSTANT_GRADIENTS.set(true);
        }
    }
}

thread_local! {
    /// Whether a backward pass of this thread made gradients that are constants: only then can a
    /// missing `create_graph` be why a value has no gradient.
    static CONSTANT_GRADIENTS: Cell<bool> = const { Cell::new(false) };
}

/// How a gradient of a gradient is made.
const CREATE_GRAPH: &str =
    "a gradient can be differentiated if it was made with `Backward::of(&y).create_graph()`";

fn check_cotangent(y: &Tensor, dy: &Tensor) -> Result<()> {
    if y.spec() == dy.spec() {
        return Ok(());
    }
    let message = format!("the cotangent is {}, but the value is {}", dy.spec(), y.spec());
    Err(Error::gradient("backward", message))
}
