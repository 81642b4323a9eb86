//! [`Backward`]: a backward pass with its options.

use crate::grad::BackwardOptions;
use crate::tape::History;
use crate::tape::backward::{into_leaves, of_targets};
use crate::transform::reach::plan;
use crate::unaliased::Since;
use crate::{Error, Result, Tensor, mode, trace};
use pullback_ir::Line;
use std::cell::Cell;

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

    pub(crate) fn at(outputs: &[&'a Tensor], at: Line) -> Backward<'a> {
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
    /// See [`grad_of`](crate::grad_of).
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
