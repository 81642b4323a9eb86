//! Eager reverse mode as users see it: `requires_grad`, `backward`, `.grad()`, `detach`.

use crate::Backward;
use crate::cut::{Cut, CutReason};
use crate::tangents::Tangents;
use crate::tape::History;
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
