//! `jit`: a function traced once, compiled, and called many times.
//!
//! The first call with arguments of some specs traces the function ([`crate::trace`]), runs the
//! passes, plans the memory and prepares kernels; that is a *specialisation*. Later calls with the
//! same specs bind the arguments and the captured tensors to the prepared program and run it. The
//! function itself does not run again, so anything that varies between calls must be in tensors.
//!
//! Effects that a trace recorded are performed after each run:
//! - captured tensors that the function writes in place are inputs that the program replaces, in
//!   their own memory;
//! - gradients of leaves are outputs that go into `.grad()`; where the function checked whether
//!   there was one (accumulation), that is a condition of the specialisation, and the gradient is
//!   an input.
//!
//! A function whose *result* is to be differentiated from outside (a call inside `grad`, or with
//! tracked arguments, or whose result depends on captured leaves and was not run backward) is
//! called eagerly, op by op, so that the tape sees it. So `jit` never cuts a gradient. So is one
//! that marks an argument or a captured tensor as requiring grad: that tensor is the caller's and
//! stays marked.
//!
//! This file has what depends on the types of the function; `compiler.rs` has the rest.
//! `compile.rs` makes specialisations, `cache.rs` keeps and finds them, `run.rs` runs them,
//! `dynamic.rs` makes one for all lengths, `explain.rs` reports on them, `check.rs` compares them
//! with plain ops.

mod cache;
mod check;
mod compile;
mod compiler;
mod dynamic;
mod explain;
mod kernels;
mod reasons;
mod run;

pub use dynamic::{DynamicAxes, DynamicReport};
pub use explain::{Explanation, Specialised};
pub use kernels::{compiled_stages, device_kernels, kernel_table, native_code, not_fused};

pub(crate) use compile::optimised;

use crate::tree::{has_structure, leaves_and_hash};
use crate::unaliased::Since;
use crate::{Result, Tensor, Tree, fail, mode, trace};
use compiler::{Call, CallOutcome, Compiler};
use dynamic::Dimension;
use pullback_ir::{Line, Program};
use run::CallOutputs;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

/// What a compiled function may return: a tree of tensors, or a `Result` of one.
#[diagnostic::on_unimplemented(
    message = "a compiled function cannot return `{Self}`",
    label = "not a tree of tensors, nor a `pullback::Result` of one",
    note = "return a tensor, a tuple, vector or `#[derive(Tree)]` struct of tensors, or a `pullback::Result` of one"
)]
pub trait JitOutput: Sized {
    /// The tree.
    type Value: Tree;

    /// The tree, or the error.
    ///
    /// ```
    /// use pullback::{JitOutput, Result, Tensor};
    /// let plain: Tensor = Tensor::from(2.0);
    /// let fallible: Result<Tensor> = Ok(Tensor::from(3.0));
    /// assert_eq!(plain.into_result()?.item::<f64>(), 2.0);
    /// assert_eq!(fallible.into_result()?.item::<f64>(), 3.0);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the function failed.
    fn into_result(self) -> Result<Self::Value>;
}

impl<T: Tree> JitOutput for T {
    type Value = T;

    fn into_result(self) -> Result<T> {
        Ok(self)
    }
}

impl<T: Tree> JitOutput for Result<T> {
    type Value = T;

    fn into_result(self) -> Result<T> {
        self
    }
}

/// Compiles a function at its first call: pure functions, and whole training steps with their
/// in-place updates.
///
/// ```
/// use pullback::{Tensor, jit, no_grad};
/// let w = Tensor::from([0.0, 0.0]).requires_grad();
/// let step = jit(|(x, y): &(Tensor, Tensor)| {
///     w.zero_grad();
///     let loss = ((x.matmul(&w) - y).square()).mean();
///     loss.backward()?;
///     no_grad(|| w.sub_(w.grad().unwrap() * 0.1));
///     Ok(loss)
/// });
/// let data = (Tensor::from([[1.0, 0.0], [0.0, 1.0]]), Tensor::from([1.0, -1.0]));
/// let first = step.call(&data)?.item::<f64>();
/// for _ in 0..100 {
///     step.call(&data)?;
/// }
/// assert!(step.call(&data)?.item::<f64>() < 1e-4 * first);
/// assert_eq!(step.explain().specialisations.len(), 1);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// An argument is a [`Tree`], which a reference is not: a borrowed argument, such as a model next
/// to a batch, is passed with `borrowed`.
///
/// ```
/// use pullback::{Borrowed, Tensor, jit, borrowed};
/// let weights = vec![Tensor::from([[1.0, 2.0]]), Tensor::from([0.5])];
/// let layer = jit(|(w, x): &(Borrowed<Vec<Tensor>>, Tensor)| w[0].matmul(x) + &w[1]);
/// let y = layer.of(&(borrowed(&weights), Tensor::from([3.0, 4.0])));
/// assert_eq!(y.to_vec::<f64>(), [11.5]);
/// ```
///
/// A compiled function next to what it works on, in a struct: the function owns clones of the
/// tensors (which are the same tensors), and [`Jit::boxed`] gives it a type that can be written.
///
/// ```
/// use pullback::{BoxedJit, Result, Tensor, jit, no_grad};
///
/// struct Fit {
///     weight: Tensor,
///     step: BoxedJit<(Tensor, Tensor), Result<Tensor>>,
/// }
///
/// impl Fit {
///     fn new() -> Fit {
///         let weight = Tensor::from([0.0, 0.0]).requires_grad();
///         let w = weight.clone();
///         let step = jit(move |(x, y): &(Tensor, Tensor)| {
///             w.zero_grad();
///             let loss = (x.matmul(&w) - y).square().mean();
///             loss.backward()?;
///             no_grad(|| w.sub_(w.grad().unwrap() * 0.5));
///             Ok(loss)
///         });
///         Fit { weight, step: step.boxed() }
///     }
/// }
///
/// let fit = Fit::new();
/// let data = (Tensor::from([[1.0, 0.0], [0.0, 1.0]]), Tensor::from([1.0, -1.0]));
/// for _ in 0..50 {
///     fit.step.call(&data)?;
/// }
/// assert!((fit.weight.to_vec::<f64>()[1] + 1.0).abs() < 1e-4);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Common mistakes
///
/// - `jit(|x: &Tensor, y: &Tensor| …)`, "closure is expected to take 1 argument": several arguments
///   are a tuple, `jit(|(x, y): &(Tensor, Tensor)| …)`, called with `f.of(&(x, y))`.
/// - `jit(|x: Tensor| …)`, "type mismatch in closure arguments": the argument is a reference,
///   `|x: &Tensor|`.
/// - `jit(|x| …)`, "type annotations needed": the type is written, `|x: &Tensor|`.
/// - `jit(|(model, x): &(&Net, Tensor)| …)`, "`&Net` is not a tree of tensors": the type is
///   `Borrowed<Net>`, called with `borrowed(&model)`, or the function captures the model.
///
/// # What is compiled, and what is frozen
///
/// The function runs once for each kind of argument (specs, structure, plain values such as flags
/// and learning rates in it), while it is traced; what it does besides tensor operations happens
/// then and not again: prints, counters, hooks on gradients, `on_grad_ready`. Fields that a tree
/// skips are ignored. Tensors it captures are seen by reference, and those it writes in place are
/// written at every call. Its arguments are values: writing to one is refused, marking one as
/// requiring grad makes calls run op by op (it is the caller's tensor, and stays marked), and an
/// argument that is also captured state is read as it was before the call. Results never share
/// memory with arguments or state. Functions that check values (a Cholesky factor that must exist,
/// a probability that must be in \[0, 1\]) cannot while tracing: their kernels give NaN, or an
/// error at the call where an index is out of range.
///
/// Programs are cached, up to 256 for one function ([`Jit::cache_limit`]); the least recently used
/// one is evicted. Working memory belongs to no program: it is borrowed for the time of a call, so
/// all compiled functions of a process, for all their shapes, share one block of the largest size
/// (one for each call that runs at the same time), and [`trim_memory`](crate::trim_memory) frees
/// it. [`Jit::explain`] says what was compiled and why. Results equal those of the function itself:
/// bit for bit where only pointwise ops are fused, within a few units in the last place where a
/// reduction adds in another order. [`Jit::check`] shows it.
///
/// # Panics
/// Only when it is called: see [`Jit::call`] and [`Jit::of`].
#[track_caller]
pub fn jit<T: Tree, Y: JitOutput, F>(f: F) -> Jit<T, Y, F>
where
    // rustc prints the line of the bound below a closure that does not fit.
    F: Fn(&T) -> Y, // one argument, by reference; several are a tuple: |(x, y): &(Tensor, Tensor)|
{
    let compiler = Compiler::new(Line::caller());
    Jit { f, compiler, templates: Mutex::default(), types: PhantomData }
}

/// A compiled function: see [`jit`].
pub struct Jit<T, Y: JitOutput, F> {
    f: F,
    compiler: Compiler,
    /// What the function returned when it was traced, with traced tensors, by the number of the
    /// program in ascending order.
    templates: Mutex<Vec<(u64, Y::Value)>>,
    types: PhantomData<fn(&T) -> Y>,
}

/// A compiled function with a type that can be written, in a struct, say: see [`Jit::boxed`].
pub type BoxedJit<T, Y> = Jit<T, Y, Box<dyn Fn(&T) -> Y + Send + Sync>>;

impl<T: Tree, Y: JitOutput, F: Fn(&T) -> Y> Jit<T, Y, F> {
    /// The same compiled function, with what it compiled so far, under a type that does not name
    /// the closure. The closure owns what it uses (`move`, with clones of the model and the
    /// optimiser, which share their tensors): see the example of a struct at [`jit`].
    ///
    /// ```
    /// use pullback::{BoxedJit, Tensor, jit};
    /// let w = Tensor::from(3.0);
    /// let functions: Vec<BoxedJit<Tensor, Tensor>> =
    ///     vec![jit(|x: &Tensor| x.sin()).boxed(), jit(move |x: &Tensor| x * &w).boxed()];
    /// assert_eq!(functions[1].of(&Tensor::from(2.0)).item::<f64>(), 6.0);
    /// ```
    #[must_use]
    pub fn boxed(self) -> BoxedJit<T, Y>
    where
        F: Send + Sync + 'static,
    {
        let Jit { f, compiler, templates, types } = self;
        Jit { f: Box::new(f), compiler, templates, types }
    }

    /// Lets a call take no more than this many bytes: values that do not fit are computed again
    /// where they are needed, those that cost least first.
    ///
    /// ```
    /// use pullback::{Tensor, grad, jit};
    /// let chain = |x: &Tensor| (0..16).fold(x.clone(), |x, _| x.cumsum(0).sin()).sum();
    /// let x = Tensor::full([1000], 0.001);
    /// let plain = jit(grad(chain));
    /// let tight = jit(grad(chain)).memory_budget(100_000);
    /// assert_eq!(plain.of(&x).to_vec::<f64>(), tight.of(&x).to_vec::<f64>());
    /// let report = tight.explain().specialisations[0].budget.unwrap();
    /// assert!(report.peak <= 100_000 && report.peak_without > 128_000);
    /// assert!(report.extra() < 0.5);
    /// println!("{}", tight.explain());
    /// // A budget that cannot be met is refused, with the smallest that was found.
    /// let error = jit(grad(chain)).memory_budget(10_000).call(&x).unwrap_err().to_string();
    /// assert!(error.contains("10000 bytes are not enough: it takes at least"), "{error}");
    /// ```
    ///
    /// # What is counted
    /// The *planned* peak is held to the budget: intermediate values at the worst moment,
    /// constants, and all that a call returns or puts into `.grad()`. Not counted is what is there
    /// before the call: arguments, captured tensors (parameters, optimiser state, gradients that
    /// are added to), which are written in their own memory. The arena is borrowed by the call;
    /// between calls it is kept for the next one, of any function.
    ///
    /// Not planned, but part of [`Specialised::measured`], are temporary allocations inside a
    /// kernel or before the first one: packed panels of a product (as much as its operands, and at
    /// most about 5 MB for each thread), the f32 sums of a product in bf16 or f16 (twice its
    /// result), tables of convolutions and attention, and copies of arguments that are not
    /// contiguous or share memory with what is written. Leave a margin for it.
    ///
    /// # Guarantees
    /// Equations are repeated, never changed: random numbers and dropout are the same, and so is
    /// every bit, up to the order of sums in fused reductions. Functions of
    /// [`CustomOp`](crate::CustomOp)s run again too. A loop is repeated as a whole; values inside
    /// loops are not considered. Programs that fit are not changed. A changed budget compiles
    /// again. Calls that run op by op (see [`jit`]) ignore the budget.
    ///
    /// # Errors of a call
    /// A budget that cannot be met is refused by [`Jit::call`], before anything runs or changes,
    /// with the lowest peak that was found (which, given as the budget, is met) and what is alive
    /// then, by line.
    #[must_use]
    pub fn memory_budget(mut self, bytes: usize) -> Jit<T, Y, F> {
        self.compiler.budget = Some(bytes);
        self
    }

    /// Keeps at most this many programs, at least one, instead of 256: the least recently used one
    /// is evicted, and is compiled again when it is needed.
    ///
    /// ```
    /// use pullback::{Tensor, jit};
    /// let f = jit(|x: &Tensor| x.square().sum()).cache_limit(2);
    /// for length in [1, 2, 3, 3, 2] {
    ///     assert_eq!(f.of(&Tensor::from(vec![2.0; length])).item::<f64>(), 4.0 * length as f64);
    /// }
    /// let said = f.explain();
    /// assert_eq!((said.specialisations.len(), said.cache_limit, said.evicted), (2, 2, 1));
    /// ```
    #[must_use]
    pub fn cache_limit(self, programs: usize) -> Jit<T, Y, F> {
        self.compiler.set_cache_limit(programs);
        self
    }

    /// Declares that an axis has any length up to a maximum, so that a new length is not compiled
    /// again.
    ///
    /// ```
    /// use pullback::{DType, Tensor, grad, jit};
    /// let f = |x: &Tensor| (x.softmax(-1) * x).mean();
    /// let g = jit(grad(f)).dynamic(1, 100);
    /// for length in 2..40 {
    ///     let x = Tensor::arange(0, 2 * length).cast(DType::F64).reshape([2, length as usize]) / 10.0;
    ///     let (found, expected) = (g.of(&x), grad(f)(&x));
    ///     assert!((found - expected).abs().max().item::<f64>() < 1e-12);
    /// }
    /// // The first was compiled for itself, all others were filled in.
    /// let said = &g.explain().dynamic[0];
    /// assert_eq!((said.lengths, said.alone), (37, 1), "{}", g.explain());
    /// ```
    ///
    /// The axis, from the end if it is negative, is that of every tensor in the argument that has
    /// it. Where only some of them change, or lengths change independently, name them by tensor and
    /// axis: `.dynamic([(0, 1), (1, 1)], 512)` is one length that axis 1 of the first two tensors
    /// share. Called twice, it declares two lengths; there may be two.
    ///
    /// # What happens
    /// The first length is compiled as usual. At the second one, the function is traced and
    /// optimised at a few lengths (up to the maximum), and what these programs have in common
    /// becomes one program with open sizes. A new length then costs a trace and filling in the
    /// sizes, without the passes. The trace is compared with what was expected, so a function that
    /// does something else for some lengths is right: it is compiled for those alone. So is what
    /// has no such program; [`Explanation::dynamic`] lists the lengths that use the one program,
    /// and why others were compiled alone. Native code does not depend on lengths, and is not made
    /// again; memory for the longest is allocated in advance, if that is no more than a GiB.
    /// Results are what they are without this, up to the order of sums in fused reductions. Lengths
    /// of 0 and 1, and calls within a [`memory_budget`](Jit::memory_budget), are compiled alone.
    ///
    /// # Errors of a call
    /// A length above the maximum, axes that were declared one length and differ, an axis that is
    /// not there, and more than two lengths.
    #[must_use]
    pub fn dynamic(mut self, axes: impl Into<DynamicAxes>, max: usize) -> Jit<T, Y, F> {
        self.compiler.dynamic.push(Dimension { axes: axes.into(), max });
        self
    }

    /// Calls the function, compiled: the first call with arguments of some specs compiles it.
    ///
    /// ```
    /// use pullback::{Tensor, jit};
    /// let f = jit(|x: &Tensor| x.sin() * 2.0);
    /// assert_eq!(f.call(&Tensor::from([0.0, 0.0]))?.to_vec::<f64>(), [0.0, 0.0]);
    /// let matrix = jit(|x: &Tensor| x.matmul(x));
    /// let error = matrix.call(&Tensor::ones([2, 3])).unwrap_err();
    /// assert!(error.to_string().starts_with("matmul: inner dimensions differ"), "{error}");
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// What the function or an op in it fails with, under the user's line; a
    /// [`memory_budget`](Jit::memory_budget) that cannot be met; a length that
    /// [`dynamic`](Jit::dynamic) does not allow.
    pub fn call(&self, x: &T) -> Result<Y::Value> {
        if self.compiler.is_running() {
            return self.plain(x);
        }
        let (leaves, hash) = leaves_and_hash(x);
        let call = TypedCall::new(self, x);
        match self.compiler.call(&call, &leaves, hash)? {
            CallOutcome::Ran => call.result.into_inner().ok_or_else(|| {
                compiler::compiler_error("a program ran whose result has no template")
            }),
            CallOutcome::OpByOp => self.plain(x),
        }
    }

    /// Compiles the function for arguments like these, without running it: what the first call
    /// would do before it runs.
    ///
    /// ```
    /// use pullback::{Tensor, jit};
    /// let f = jit(|x: &Tensor| x.sin().sum());
    /// f.compile(&Tensor::zeros([100]))?;
    /// let [made] = &f.explain().specialisations[..] else { panic!() };
    /// assert_eq!(made.calls.0, 0);
    /// assert_eq!(f.of(&Tensor::zeros([100])).item::<f32>(), 0.0);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Jit::call`], where compiling fails.
    pub fn compile(&self, x: &T) -> Result<()> {
        let (leaves, hash) = leaves_and_hash(x);
        self.compiler.compile(&TypedCall::new(self, x), &leaves, hash)
    }

    /// Calls the function, compiled, and gives its value: [`Jit::call`] for formulas.
    ///
    /// ```
    /// use pullback::{Tensor, jit};
    /// let f = jit(|x: &Tensor| x.square().sum());
    /// assert_eq!(f.of(&Tensor::from([3.0, 4.0])).item::<f64>(), 25.0);
    /// ```
    ///
    /// # Panics
    /// Where [`Jit::call`] gives an error.
    #[track_caller]
    pub fn of(&self, x: &T) -> Y::Value {
        fail::or_raise(self.call(x))
    }

    /// Calls the function eagerly, op by op, without compiling it.
    ///
    /// ```
    /// use pullback::{Tensor, jit};
    /// let f = jit(|x: &Tensor| x.square().sum());
    /// assert_eq!(f.eager(&Tensor::from([3.0, 4.0])).item::<f64>(), 25.0);
    /// assert!(f.explain().specialisations.is_empty());
    /// ```
    ///
    /// # Panics
    /// Where an op in the function fails.
    #[track_caller]
    pub fn eager(&self, x: &T) -> Y::Value {
        fail::or_raise((self.f)(x).into_result())
    }

    /// What was compiled, why, by which passes, into which kernels, and how often and how fast it
    /// ran since.
    ///
    /// ```
    /// use pullback::{Tensor, jit};
    /// let f = jit(|x: &Tensor| x.square().sum());
    /// f.of(&Tensor::from([3.0, 4.0]));
    /// f.of(&Tensor::from([1.0, 2.0, 3.0])); // another shape is compiled separately
    /// let said = f.explain();
    /// assert_eq!(said.specialisations.len(), 2);
    /// println!("{said}");
    /// ```
    pub fn explain(&self) -> Explanation {
        self.compiler.explain()
    }

    /// Compares the compiled function for these arguments with plain ops, one equation at a time,
    /// and names the first that differs by more than the stated bound. Changes nothing: captured
    /// tensors keep their values.
    ///
    /// ```
    /// use pullback::{Tensor, grad, jit};
    /// let f = jit(grad(|x: &Tensor| (x.sin() * x).sum()));
    /// f.check(&Tensor::from([1.0, 2.0]))?;
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a pass or a kernel changed a result, or the function cannot be compiled.
    pub fn check(&self, x: &T) -> Result<()> {
        let (leaves, hash) = leaves_and_hash(x);
        self.compiler.check(&TypedCall::new(self, x), &leaves, hash)
    }

    /// The stages of compilation for these arguments: the traced program under the name `trace`,
    /// then the program after each pass.
    ///
    /// ```
    /// use pullback::{Tensor, jit};
    /// let f = jit(|x: &Tensor| x.exp() + x.exp());
    /// let stages = f.stages(&Tensor::from([1.0, 2.0]))?;
    /// assert_eq!(stages[0].0, "trace");
    /// let exps = |program: &pullback::Program| program.to_string().matches("exp").count();
    /// assert_eq!(exps(&stages[0].1), 2);
    /// assert!(exps(&stages.last().unwrap().1) < 2, "{}", stages.last().unwrap().1);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the function cannot be compiled.
    pub fn stages(&self, x: &T) -> Result<Vec<(&'static str, Program)>> {
        self.compiler.stages(&TypedCall::new(self, x), &x.leaves())
    }

    /// Calls the function eagerly.
    fn plain(&self, x: &T) -> Result<Y::Value> {
        let start = Since::now();
        // As a compiled call does, this returns unaliased memory.
        let own = |y| mode::with_line(mode::user_line(self.compiler.at), || start.own(y));
        fail::catch(|| (self.f)(x).into_result().map(own))?
    }
}

/// A call with its types: how the compiler sees the function.
struct TypedCall<'a, T, Y: JitOutput, F> {
    jit: &'a Jit<T, Y, F>,
    x: &'a T,
    /// What the function returned when it was first traced.
    template: RefCell<Option<Y::Value>>,
    result: RefCell<Option<Y::Value>>,
}

impl<'a, T, Y: JitOutput, F> TypedCall<'a, T, Y, F> {
    fn new(jit: &'a Jit<T, Y, F>, x: &'a T) -> TypedCall<'a, T, Y, F> {
        TypedCall { jit, x, template: RefCell::default(), result: RefCell::default() }
    }
}

impl<T: Tree, Y: JitOutput, F: Fn(&T) -> Y> Call for TypedCall<'_, T, Y, F> {
    fn structure(&self) -> String {
        self.x.structure()
    }

    fn has_structure(&self, structure: &Arc<str>) -> bool {
        has_structure(self.x, structure)
    }

    fn run_function(&self, tensors: &[Tensor]) -> Result<Vec<Tensor>> {
        // Made outside the trace: what its flags are is part of its structure, and need not be
        // noted.
        let argument = trace::outside(|| self.x.with_leaves(tensors));
        let y = (self.jit.f)(&argument).into_result()?;
        let leaves = y.leaves();
        self.template.borrow_mut().get_or_insert(y);
        Ok(leaves)
    }

    fn keep_template(&self, id: u64, live: &dyn Fn(u64) -> bool) {
        let mut all = self.jit.templates.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(id, _)| live(*id));
        all.extend(self.template.take().map(|template| (id, template)));
    }

    fn finish(&self, id: u64, outputs: CallOutputs) {
        let all = self.jit.templates.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(at) = all.binary_search_by_key(&id, |(id, _)| *id) else { return };
        let mut next = outputs.into_iter();
        let result = all[at].1.map(&mut |y| next.next().flatten().unwrap_or_else(|| y.clone()));
        *self.result.borrow_mut() = Some(result);
    }
}
