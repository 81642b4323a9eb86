//! Checking gradients against numeric derivatives.
//!
//! [`check_grads`] compares both modes with central differences, entry by entry, and recurses:
//! order 2 checks the gradient of the gradient in the same way.

use crate::{DType, Error, ErrorKind, Key, Result, Tensor, Tree, jvp, mode, vjp};
use pullback_ir::Line;

/// The result of a gradient check.
#[derive(Clone, Debug)]
pub struct Report {
    /// How many derivatives were compared.
    pub compared: usize,
    /// The one that differs most, relative to its tolerance.
    pub worst: Option<Entry>,
}

/// One compared derivative.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Order of the derivative: 1 is the gradient.
    pub order: usize,
    /// `"reverse"` or `"forward"`.
    pub mode: &'static str,
    /// Which argument, by its index among the leaves.
    pub input: usize,
    /// Which element of it; for forward mode, which direction.
    pub index: Vec<usize>,
    /// The numeric derivative.
    pub expected: f64,
    /// The computed derivative.
    pub given: f64,
    /// Distance over tolerance; above 1 the check fails.
    pub excess: f64,
}

/// A gradient check with options; [`check_grads`] has the usual ones.
///
/// ```
/// use pullback::{Tensor, check::Check};
/// let x = Tensor::from([0.3, -1.2]);
/// let report = Check::new().order(3).run(|x: &Tensor| x.tanh(), &x).unwrap();
/// assert!(report.compared > 6);
/// ```
#[derive(Clone, Debug)]
pub struct Check {
    order: usize,
    step: f64,
    relative: f64,
    absolute: f64,
    seed: u64,
    forward: bool,
    reverse: bool,
}

/// Checks the derivatives of `f` at `x` up to an order, in both modes, with the usual tolerances.
///
/// ```
/// use pullback::{Tensor, check::check_grads};
/// check_grads(|x: &Tensor| x.sin() * x, &Tensor::from([0.5, 2.0]), 2).unwrap();
/// // A value that is cut off has no gradient where there should be one:
/// let error = check_grads(|x: &Tensor| x.detach() * x, &Tensor::from(3.0), 1).unwrap_err();
/// assert!(error.to_string().contains("reverse mode differs: argument 0"), "{error}");
/// ```
///
/// # Errors
/// With the worst entry: which argument, which element, the expected and the given value.
#[doc(alias = "gradgradcheck")]
#[doc(alias = "gradcheck")]
#[track_caller]
pub fn check_grads<T: Tree, Y: Tree>(f: impl Fn(&T) -> Y, x: &T, order: usize) -> Result<Report> {
    Check::new().order(order).run(f, x)
}

impl Default for Check {
    fn default() -> Check {
        Check {
            order: 1,
            step: 1e-3,
            relative: 1e-6,
            absolute: 1e-8,
            seed: 0,
            forward: true,
            reverse: true,
        }
    }
}

type FlatFn<'a> = dyn Fn(&Vec<Tensor>) -> Vec<Tensor> + 'a;

impl Check {
    /// Checks the first order in both modes, with a relative tolerance of 1e-6 and an absolute one
    /// of 1e-8.
    ///
    /// ```
    /// # use pullback::{Tensor, check::Check};
    /// let report = Check::new().run(|x: &Tensor| x.sin(), &Tensor::from([0.5, 2.0]))?;
    /// assert_eq!(report.compared, 4); // two elements in two modes
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn new() -> Check {
        Check::default()
    }

    /// The highest order of derivatives to check: 2 also checks the gradient of the gradient.
    ///
    /// ```
    /// # use pullback::{Tensor, check::Check};
    /// let x = Tensor::from([0.5, 2.0]);
    /// let report = Check::new().order(3).run(|x: &Tensor| x.sin(), &x)?;
    /// assert_eq!(report.compared, 12); // two elements in two modes, at orders 1 to 3
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn order(mut self, order: usize) -> Check {
        self.order = order;
        self
    }

    /// How far a derivative may be from the numeric one: `absolute + relative · |derivative|`.
    /// Larger than the default for functions that compute in less than `f64`.
    ///
    /// ```
    /// # use pullback::{DType, Tensor, check::Check};
    /// let single = |x: &Tensor| x.cast(DType::F32).sin().cast(DType::F64);
    /// let x = Tensor::from([0.5, 1.0]);
    /// assert!(Check::new().run(single, &x).is_err());
    /// Check::new().tolerance(1e-2, 1e-3).run(single, &x)?;
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn tolerance(mut self, relative: f64, absolute: f64) -> Check {
        (self.relative, self.absolute) = (relative, absolute);
        self
    }

    /// The step of the finite differences, relative to the magnitude of the element where that is
    /// above 1; 1e-3 unless set. Smaller for functions that vary on a smaller scale.
    ///
    /// ```
    /// # use pullback::{Tensor, check::Check};
    /// let fast = |x: &Tensor| (x * 1000.0).sin();
    /// let x = Tensor::from(0.3);
    /// assert!(Check::new().run(fast, &x).is_err()); // the differences are too coarse
    /// Check::new().step(1e-5).run(fast, &x)?;
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn step(mut self, step: f64) -> Check {
        self.step = step;
        self
    }

    /// The seed of the random cotangents, which weigh the elements of the result; 0 unless set.
    ///
    /// ```
    /// # use pullback::{Tensor, check::Check};
    /// let compared = |seed: u64| {
    ///     let report = Check::new().seed(seed).run(|x: &Tensor| x.square(), &Tensor::from(3.0));
    ///     report.unwrap().worst.unwrap().expected // 6 times the cotangent
    /// };
    /// assert_eq!(compared(1), compared(1));
    /// assert_ne!(compared(1), compared(2));
    /// ```
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Check {
        self.seed = seed;
        self
    }

    /// Checks reverse mode alone.
    ///
    /// ```
    /// # use pullback::{Tensor, check::Check};
    /// let x = Tensor::from([0.5, 2.0]);
    /// let report = Check::new().reverse_only().run(|x: &Tensor| x.exp(), &x)?;
    /// assert_eq!(report.compared, 2);
    /// assert_eq!(report.worst.unwrap().mode, "reverse");
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn reverse_only(mut self) -> Check {
        self.forward = false;
        self
    }

    /// Checks forward mode alone.
    ///
    /// ```
    /// # use pullback::{Tensor, check::Check};
    /// let x = Tensor::from([0.5, 2.0]);
    /// let report = Check::new().forward_only().run(|x: &Tensor| x.exp(), &x)?;
    /// assert_eq!(report.compared, 2);
    /// assert_eq!(report.worst.unwrap().mode, "forward");
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn forward_only(mut self) -> Check {
        self.reverse = false;
        self
    }

    /// Checks the derivatives of `f` at `x`.
    ///
    /// ```
    /// # use pullback::{Tensor, check::Check};
    /// let x = (Tensor::from([[1.0, 2.0]]), Tensor::from([[3.0], [4.0]]));
    /// Check::new().order(2).run(|(a, b): &(Tensor, Tensor)| a.matmul(b), &x)?;
    /// // A value that is detached has no gradient where there should be one:
    /// let cut = |(a, _): &(Tensor, Tensor)| a.detach().square();
    /// let error = Check::new().run(cut, &x).unwrap_err();
    /// assert!(error.to_string().contains("argument 0, element [0, "), "{error}");
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a derivative differs, or an argument is not `f64` (finite differences of narrower floats
    /// are too inexact).
    #[track_caller]
    pub fn run<T: Tree, Y: Tree>(&self, f: impl Fn(&T) -> Y, x: &T) -> Result<Report> {
        let at = mode::user_line(Line::caller());
        let inputs = x.leaves();
        if let Some(x) = inputs.iter().find(|x| x.dtype().is_float() && x.dtype() != DType::F64) {
            let message = format!("gradients are checked in f64, not {}", x.dtype());
            return Err(Error::new(ErrorKind::Check, "check_grads", message)
                .at(at)
                .hint("cast the arguments to f64"));
        }
        let on_leaves = |leaves: &Vec<Tensor>| f(&x.with_leaves(leaves)).leaves();
        let mut report = Report { compared: 0, worst: None };
        self.check(&on_leaves, &inputs, 1, &mut report);
        match &report.worst {
            Some(worst) if worst.excess > 1.0 || worst.excess.is_nan() => {
                let message = format!(
                    "the derivative of order {} in {} mode differs: argument {}, element {:?}: expected {:?}, given {:?}",
                    worst.order, worst.mode, worst.input, worst.index, worst.expected, worst.given
                );
                Err(Error::new(ErrorKind::Check, "check_grads", message).at(at))
            }
            _ => Ok(report),
        }
    }

    fn check(&self, f: &FlatFn, x: &[Tensor], order: usize, report: &mut Report) {
        let detached: Vec<Tensor> = x.iter().map(Tensor::detach).collect();
        let x = &detached;
        let y = f(x);
        let key = Key::new(self.seed.wrapping_add(order as u64));
        let keys = key.split_n(y.len().max(1));
        // One random cotangent turns the results into one number whose every partial is compared.
        let cotangents: Vec<Tensor> = y
            .iter()
            .zip(&keys)
            .map(|(y, key)| match y.dtype().is_float() {
                true => key.to(y.device()).uniform(y.shape(), DType::F64, 0.5, 1.5).cast(y.dtype()),
                false => y.zeros_like(),
            })
            .collect();
        let scalar = |x: &Vec<Tensor>| -> f64 {
            let terms = f(x).into_iter().zip(&cotangents).filter(|(y, _)| y.dtype().is_float());
            terms.map(|(y, c)| (y.detach() * c).sum().cast(DType::F64).item::<f64>()).sum()
        };
        let gradient = |x: &Vec<Tensor>| vjp(f, x).1(&cotangents);
        let reverse = self.reverse.then(|| gradient(x));
        for (i, input) in x.iter().enumerate().filter(|(_, x)| x.dtype().is_float()) {
            for flat in 0..input.len() {
                let expected = self.numeric(&scalar, x, i, flat);
                let index = unravel(flat, input.shape());
                let mut note = |mode, given| {
                    self.note(
                        report,
                        Entry {
                            order,
                            mode,
                            input: i,
                            index: index.clone(),
                            expected,
                            given,
                            excess: 0.0,
                        },
                    )
                };
                if let Some(grads) = &reverse {
                    note("reverse", grads[i].to_vec::<f64>()[flat]);
                }
                if self.forward {
                    let mut tangent: Vec<Tensor> = x.iter().map(Tensor::zeros_like).collect();
                    tangent[i] = bump(&tangent[i], flat, 1.0);
                    let ty = jvp(f, x, &tangent).1;
                    let terms = ty.iter().zip(&cotangents).filter(|(t, _)| t.dtype().is_float());
                    note(
                        "forward",
                        terms
                            .map(|(t, c)| (t.detach() * c).sum().cast(DType::F64).item::<f64>())
                            .sum(),
                    );
                }
            }
        }
        if order < self.order {
            self.check(&gradient, x, order + 1, report);
        }
    }

    /// The central difference of fourth order.
    fn numeric(
        &self,
        f: &dyn Fn(&Vec<Tensor>) -> f64,
        x: &[Tensor],
        input: usize,
        flat: usize,
    ) -> f64 {
        let value = x[input].to_vec::<f64>()[flat];
        let h = self.step * value.abs().max(1.0);
        let at = |steps: f64| {
            let mut moved = x.to_vec();
            moved[input] = bump(&x[input], flat, steps * h);
            f(&moved)
        };
        (8.0 * (at(1.0) - at(-1.0)) - (at(2.0) - at(-2.0))) / (12.0 * h)
    }

    fn note(&self, report: &mut Report, mut entry: Entry) {
        let distance = (entry.given - entry.expected).abs();
        let scale = entry.given.abs().max(entry.expected.abs());
        entry.excess = match entry.given == entry.expected {
            true => 0.0,
            false => distance / (self.absolute + self.relative * scale),
        };
        report.compared += 1;
        // NaN is the worst of all, and stays.
        let worse = report.worst.as_ref().is_none_or(|w| {
            !w.excess.is_nan() && (entry.excess.is_nan() || entry.excess > w.excess)
        });
        if worse {
            report.worst = Some(entry);
        }
    }
}

/// The tensor with one element moved.
fn bump(x: &Tensor, flat: usize, by: f64) -> Tensor {
    let mut values = x.to_vec::<f64>();
    values[flat] += by;
    x.new_from_vec(values, x.shape())
}

fn unravel(mut flat: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (i, &n) in shape.iter().enumerate().rev() {
        index[i] = flat % n;
        flat /= n;
    }
    index
}
