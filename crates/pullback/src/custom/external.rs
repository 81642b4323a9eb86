//! [`CustomOp`]: code that does not use tensor operations.

use super::external_rule::ExternalRule;
use super::host::{HostInput, HostOutput};
use super::memo::Site;
use super::rule::RuleHandle;
use super::rule_check::{PendingCheck, RuleCheck};
use crate::apply::apply_all;
use crate::backend::CudaKernel;
use crate::{Error, Op, Result, Spec, Tensor, fail, mode};
use pullback_ir::{Custom, ErrorKind, Kernel, Line, Work};
use std::sync::{Arc, Mutex, PoisonError};

/// An operation implemented by your code: a table lookup, a call of another library, a kernel in
/// CUDA C, anything that computes output buffers from input buffers.
///
/// ```
/// use pullback::{CustomOp, Derivative, HostInput, HostOutput, Result, Spec, Tensor, custom_op, grad};
///
/// struct Cube;
///
/// impl CustomOp for Cube {
///     fn name(&self) -> &'static str {
///         "cube"
///     }
///     fn specs(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
///         Ok(vec![inputs[0].clone()])
///     }
///     fn forward(&self, inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
///         let (x, y) = (inputs[0].as_slice::<f64>()?, outputs[0].as_mut_slice::<f64>()?);
///         x.iter().zip(y).for_each(|(x, y)| *y = x * x * x);
///         Ok(())
///     }
///     fn derivative(&self) -> Derivative {
///         Derivative::Vjp
///     }
///     fn vjp(&self, x: &[Tensor], _y: &[Tensor], dy: &[Tensor]) -> Vec<Tensor> {
///         vec![3.0 * x[0].square() * &dy[0]]
///     }
/// }
///
/// let cube = custom_op(Cube);
/// let slope = grad(move |x: &Tensor| cube.one(&[x]));
/// assert_eq!(slope(&Tensor::from(2.0)).item::<f64>(), 12.0);
/// ```
///
/// It is one equation inside a compiled program, which calls the code. The derivative is tensor
/// code, so it is taped, traced and differentiated in turn, and may call other custom ops. It is
/// checked at first use as that of a [`custom_vjp`](crate::custom_vjp).
pub trait CustomOp: Send + Sync + 'static {
    /// Its name, in errors, programs and reports.
    ///
    /// ```
    /// # use pullback::{Tensor, catch, custom_op};
    #[doc = include_str!("example_cube.txt")]
    /// let error = catch(|| custom_op(Cube).one(&[&Tensor::from(2.0f32)])).unwrap_err();
    /// assert_eq!(error.op(), "cube");
    /// ```
    fn name(&self) -> &'static str;

    /// The shape rule: the specs (shape and dtype) of the results from those of the operands. There
    /// is at least one result.
    ///
    /// ```
    /// # use pullback::{CustomOp, Derivative, HostInput, HostOutput, Result, Spec};
    /// # use pullback::{Error, Tensor, custom_op};
    /// # struct SumAndProduct;
    /// impl CustomOp for SumAndProduct {
    /// #     fn name(&self) -> &'static str { "sum_and_product" }
    ///     /// A vector gives two scalars.
    ///     fn specs(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
    ///         if inputs[0].shape.len() != 1 {
    ///             return Err(Error::shape("sum_and_product", "not a vector").on(inputs));
    ///         }
    ///         let scalar = Spec { shape: [].into(), ..inputs[0].clone() };
    ///         Ok(vec![scalar.clone(), scalar])
    ///     }
    /// #     fn forward(&self, inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
    /// #         let x = inputs[0].as_slice::<f64>()?;
    /// #         outputs[0].as_mut_slice::<f64>()?[0] = x.iter().sum();
    /// #         outputs[1].as_mut_slice::<f64>()?[0] = x.iter().product();
    /// #         Ok(())
    /// #     }
    /// #     fn derivative(&self) -> Derivative { Derivative::Refused("not needed here") }
    /// }
    /// let y = custom_op(SumAndProduct).call(&[&Tensor::from([2.0, 3.0])]);
    /// assert_eq!((y[0].item::<f64>(), y[1].item::<f64>()), (5.0, 6.0));
    /// ```
    ///
    /// # Errors
    /// If it does not take these operands.
    fn specs(&self, inputs: &[Spec]) -> Result<Vec<Spec>>;

    /// Computes the results, whose memory is zero at first, from the operands. All are contiguous,
    /// in row-major order. Must be a pure function of the operands: it may be called several times,
    /// or not at all.
    ///
    /// ```
    /// # use pullback::{CustomOp, Derivative, HostInput, HostOutput, Result, Spec};
    /// # use pullback::{Tensor, custom_op};
    /// # struct Cube;
    /// impl CustomOp for Cube {
    /// #     fn name(&self) -> &'static str { "cube" }
    /// #     fn specs(&self, inputs: &[Spec]) -> Result<Vec<Spec>> { Ok(inputs.to_vec()) }
    ///     fn forward(&self, inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
    ///         let (x, y) = (inputs[0].as_slice::<f64>()?, outputs[0].as_mut_slice::<f64>()?);
    ///         x.iter().zip(y).for_each(|(x, y)| *y = x * x * x);
    ///         Ok(())
    ///     }
    /// #     fn derivative(&self) -> Derivative { Derivative::Vjp }
    /// #     fn vjp(&self, x: &[Tensor], _y: &[Tensor], dy: &[Tensor]) -> Vec<Tensor> {
    /// #         vec![3.0 * x[0].square() * &dy[0]]
    /// #     }
    /// }
    /// let y = custom_op(Cube).one(&[&Tensor::from([1.0, 2.0, 3.0])]);
    /// assert_eq!(y.to_vec::<f64>(), [1.0, 8.0, 27.0]);
    /// ```
    ///
    /// # Errors
    /// If the values are not as they must be. The default method, always: an op whose only code is
    /// [`CustomOp::cuda`] does not run on the CPU.
    #[allow(unused_variables)]
    fn forward(&self, inputs: &[HostInput<'_>], outputs: &mut [HostOutput<'_>]) -> Result<()> {
        let message = match self.cuda() {
            Some(_) => "its code is CUDA C, which runs on GPUs of NVIDIA alone",
            None => "has no code: neither `forward` nor `cuda` is defined",
        };
        let hint = "move its operands there, with `to(Device::Cuda(0))`, or define `forward` too";
        Err(Error::new(ErrorKind::Device, self.name(), message).hint(hint))
    }

    /// Its code for GPUs. Unless defined, operands on a GPU are copied to the host for
    /// [`CustomOp::forward`], and its results back, which waits for the GPU.
    ///
    /// ```
    /// use pullback::{CudaKernel, CustomOp, Derivative, HostInput, HostOutput, Result, Spec};
    /// use pullback::{Device, Tensor, custom_op};
    ///
    /// struct Cube(CudaKernel);
    ///
    /// impl CustomOp for Cube {
    ///     fn cuda(&self) -> Option<&CudaKernel> {
    ///         Some(&self.0)
    ///     }
    /// #     fn name(&self) -> &'static str { "cube" }
    /// #     fn specs(&self, inputs: &[Spec]) -> Result<Vec<Spec>> { Ok(inputs.to_vec()) }
    /// #     fn forward(&self, inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
    /// #         let (x, y) = (inputs[0].as_slice::<f64>()?, outputs[0].as_mut_slice::<f64>()?);
    /// #         x.iter().zip(y).for_each(|(x, y)| *y = x * x * x);
    /// #         Ok(())
    /// #     }
    /// #     fn derivative(&self) -> Derivative { Derivative::Vjp }
    /// #     fn vjp(&self, x: &[Tensor], _y: &[Tensor], dy: &[Tensor]) -> Vec<Tensor> {
    /// #         vec![3.0 * x[0].square() * &dy[0]]
    /// #     }
    /// }
    ///
    /// let text = r#"
    ///     extern "C" __global__ void cube(const T0* x, R0* y, long long n) {
    ///       long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    ///       if (i < n) y[i] = x[i] * x[i] * x[i];
    ///     }"#;
    /// // SAFETY: a thread reads and writes element i alone, and only if there is one.
    /// let kernel = unsafe { CudaKernel::elementwise("cube", text, 1, 1) };
    /// let cube = custom_op(Cube(kernel));
    /// let device = if Device::Cuda(0).is_available() { Device::Cuda(0) } else { Device::Cpu };
    /// let x = Tensor::from([1.0, 2.0]).to(device).requires_grad();
    /// let y = cube.one(&[&x]); // on a GPU, its rule is checked there
    /// y.sum().backward()?;
    /// assert_eq!((y.device(), y.to_vec::<f64>()), (device, vec![1.0, 8.0]));
    /// assert_eq!(x.grad().unwrap().to_vec::<f64>(), [3.0, 12.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    fn cuda(&self) -> Option<&CudaKernel> {
        None
    }

    /// How it is differentiated: by a rule of its own, as zero, or not at all.
    ///
    /// ```
    /// # use pullback::{CustomOp, Derivative, HostInput, HostOutput, Result, Spec};
    /// # use pullback::{Tensor, custom_op};
    /// # struct Floor;
    /// impl CustomOp for Floor {
    /// #     fn name(&self) -> &'static str { "floor" }
    /// #     fn specs(&self, inputs: &[Spec]) -> Result<Vec<Spec>> { Ok(inputs.to_vec()) }
    /// #     fn forward(&self, inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
    /// #         let (x, y) = (inputs[0].as_slice::<f64>()?, outputs[0].as_mut_slice::<f64>()?);
    /// #         x.iter().zip(y).for_each(|(x, y)| *y = x.floor());
    /// #         Ok(())
    /// #     }
    ///     fn derivative(&self) -> Derivative {
    ///         Derivative::Zero // constant between its jumps
    ///     }
    /// }
    /// let x = Tensor::from(2.7).requires_grad();
    /// let y = custom_op(Floor).one(&[&x]);
    /// assert_eq!(y.item::<f64>(), 2.0);
    /// assert!(y.backward().is_err()); // the path to x is cut
    /// ```
    fn derivative(&self) -> Derivative;

    /// For [`Derivative::Vjp`]: the gradients of the operands, from the operands, the results and
    /// the gradients of the results. Those of integers are ignored.
    ///
    /// ```
    /// # use pullback::{CustomOp, Derivative, HostInput, HostOutput, Result, Spec};
    /// # use pullback::{Tensor, custom_op};
    /// # struct Cube;
    /// impl CustomOp for Cube {
    /// #     fn name(&self) -> &'static str { "cube" }
    /// #     fn specs(&self, inputs: &[Spec]) -> Result<Vec<Spec>> { Ok(inputs.to_vec()) }
    /// #     fn forward(&self, inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
    /// #         let (x, y) = (inputs[0].as_slice::<f64>()?, outputs[0].as_mut_slice::<f64>()?);
    /// #         x.iter().zip(y).for_each(|(x, y)| *y = x * x * x);
    /// #         Ok(())
    /// #     }
    ///     fn derivative(&self) -> Derivative {
    ///         Derivative::Vjp
    ///     }
    ///     fn vjp(&self, x: &[Tensor], _y: &[Tensor], dy: &[Tensor]) -> Vec<Tensor> {
    ///         vec![3.0 * x[0].square() * &dy[0]]
    ///     }
    /// }
    /// let x = Tensor::from(2.0).requires_grad();
    /// custom_op(Cube).one(&[&x]).backward()?;
    /// assert_eq!(x.grad().unwrap().item::<f64>(), 12.0);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// The default method, when backward calls it: it must be defined for [`Derivative::Vjp`].
    #[allow(unused_variables)]
    fn vjp(&self, inputs: &[Tensor], outputs: &[Tensor], cotangents: &[Tensor]) -> Vec<Tensor> {
        fail::raise(Error::gradient(
            self.name(),
            "derivative() returns Vjp, but vjp() is not implemented",
        ))
    }

    /// For [`Derivative::Jvp`]: the tangents of the results, from the operands, the results and the
    /// tangents of the operands.
    ///
    /// ```
    /// # use pullback::{CustomOp, Derivative, HostInput, HostOutput, Result, Spec};
    /// # use pullback::{Tensor, custom_op, jvp};
    /// # struct Cube;
    /// impl CustomOp for Cube {
    /// #     fn name(&self) -> &'static str { "cube" }
    /// #     fn specs(&self, inputs: &[Spec]) -> Result<Vec<Spec>> { Ok(inputs.to_vec()) }
    /// #     fn forward(&self, inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
    /// #         let (x, y) = (inputs[0].as_slice::<f64>()?, outputs[0].as_mut_slice::<f64>()?);
    /// #         x.iter().zip(y).for_each(|(x, y)| *y = x * x * x);
    /// #         Ok(())
    /// #     }
    ///     fn derivative(&self) -> Derivative {
    ///         Derivative::Jvp
    ///     }
    ///     fn jvp(&self, x: &[Tensor], _y: &[Tensor], t: &[Tensor]) -> Vec<Tensor> {
    ///         vec![3.0 * x[0].square() * &t[0]]
    ///     }
    /// }
    /// let cube = custom_op(Cube);
    /// let (_, t) = jvp(|x: &Tensor| cube.one(&[x]), &Tensor::from(2.0), &Tensor::from(1.0));
    /// assert_eq!(t.item::<f64>(), 12.0);
    /// ```
    ///
    /// # Panics
    /// The default method, when it is called: it must be defined for [`Derivative::Jvp`].
    #[allow(unused_variables)]
    fn jvp(&self, inputs: &[Tensor], outputs: &[Tensor], tangents: &[Tensor]) -> Vec<Tensor> {
        fail::raise(Error::gradient(
            self.name(),
            "derivative() returns Jvp, but jvp() is not implemented",
        ))
    }

    /// How it takes many examples at once, under [`vmap`](crate::vmap): unless defined, one call
    /// for each example.
    ///
    /// ```
    /// # use pullback::{CustomOp, Derivative, HostInput, HostOutput, Result, Spec};
    /// # use pullback::{CustomBatching, Tensor, custom_op, vmap};
    /// # struct Cube;
    /// impl CustomOp for Cube {
    /// #     fn name(&self) -> &'static str { "cube" }
    /// #     fn specs(&self, inputs: &[Spec]) -> Result<Vec<Spec>> { Ok(inputs.to_vec()) }
    /// #     fn forward(&self, inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
    /// #         let (x, y) = (inputs[0].as_slice::<f64>()?, outputs[0].as_mut_slice::<f64>()?);
    /// #         x.iter().zip(y).for_each(|(x, y)| *y = x * x * x);
    /// #         Ok(())
    /// #     }
    /// #     fn derivative(&self) -> Derivative { Derivative::Vjp }
    /// #     fn vjp(&self, x: &[Tensor], _y: &[Tensor], dy: &[Tensor]) -> Vec<Tensor> {
    /// #         vec![3.0 * x[0].square() * &dy[0]]
    /// #     }
    ///     fn batching(&self) -> CustomBatching {
    ///         CustomBatching::LeadingAxes // elementwise, so one call takes them all
    ///     }
    /// }
    /// let cube = custom_op(Cube);
    /// let each = vmap(|x: &Tensor| cube.one(&[x]), 0, 0);
    /// assert_eq!(each(&Tensor::from([1.0, 2.0])).to_vec::<f64>(), [1.0, 8.0]);
    /// ```
    #[doc(alias = "vmap")]
    fn batching(&self) -> CustomBatching {
        CustomBatching::OneByOne
    }
}

/// How a [`CustomOp`] differentiates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Derivative {
    /// By [`CustomOp::vjp`]; forward mode is its transpose.
    Vjp,
    /// By [`CustomOp::jvp`]; reverse mode is its transpose.
    Jvp,
    /// It is zero.
    Zero,
    /// There is none, for this reason: asking for it is an error.
    Refused(&'static str),
}

/// How a [`CustomOp`] takes many examples at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CustomBatching {
    /// One after the other.
    OneByOne,
    /// All at once: shape rule and forward accept additional leading axes, the same for all
    /// operands.
    LeadingAxes,
}

/// A [`CustomOp`] that can be applied to tensors: made by [`custom_op`].
pub struct External {
    op: Arc<dyn CustomOp>,
    check: RuleCheck,
    /// The op of the last call, for the next: so that equal calls are equal to the compiler.
    made: Mutex<Option<Arc<Custom>>>,
}

/// Makes an operation of code that computes output buffers from input buffers: see [`CustomOp`].
///
/// ```
/// # use pullback::{Tensor, custom_op};
#[doc = include_str!("example_cube.txt")]
/// let cube = custom_op(Cube); // the op of the example in `CustomOp`
/// let x = Tensor::from([1.0, 2.0]).requires_grad();
/// let y = cube.one(&[&x]);
/// y.sum().backward()?;
/// assert_eq!(y.to_vec::<f64>(), [1.0, 8.0]);
/// assert_eq!(x.grad().unwrap().to_vec::<f64>(), [3.0, 12.0]);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Panics
/// Only when it is applied: see [`External::call`].
#[track_caller]
#[must_use]
pub fn custom_op<C: CustomOp>(op: C) -> External {
    let mut check = RuleCheck::new(Site::of::<C, ()>(op.name(), Line::caller()));
    if !matches!(op.derivative(), Derivative::Vjp) {
        check.linear();
    }
    External { op: Arc::new(op), check, made: Mutex::default() }
}

impl External {
    /// Applies the op and gives all its results.
    ///
    /// ```
    /// # use pullback::{Tensor, custom_op};
    #[doc = include_str!("example_cube.txt")]
    /// let y = custom_op(Cube).call(&[&Tensor::from([1.0, 2.0])]);
    /// assert_eq!((y.len(), y[0].to_vec::<f64>()), (1, vec![1.0, 8.0]));
    /// ```
    ///
    /// # Panics
    /// If its shape rule or its code refuses the operands, or its derivative is wrong.
    #[track_caller]
    pub fn call(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
        let at = mode::user_line(Line::caller());
        mode::with_line(at, || {
            let inputs: Vec<Tensor> = inputs.iter().map(|&x| x.clone()).collect();
            if !matches!(self.op.derivative(), Derivative::Refused(_)) {
                self.check.pass(&inputs, "", at, &|x| applied(&self.custom(x), x));
            }
            applied(&self.custom(&inputs), &inputs)
        })
    }

    /// Applies the op and gives its first result.
    ///
    /// ```
    /// # use pullback::{Tensor, custom_op};
    #[doc = include_str!("example_cube.txt")]
    /// assert_eq!(custom_op(Cube).one(&[&Tensor::from(2.0)]).item::<f64>(), 8.0);
    /// ```
    ///
    /// # Panics
    /// As [`External::call`].
    #[track_caller]
    pub fn one(&self, inputs: &[&Tensor]) -> Tensor {
        self.call(inputs).swap_remove(0)
    }

    /// Skips the check of its derivative, for a rule that is not the derivative and is not meant to
    /// be; as [`CustomVjp::unchecked`](crate::CustomVjp::unchecked).
    ///
    /// ```
    /// # use pullback::{CustomOp, Derivative, HostInput, HostOutput, Result, Spec};
    /// # use pullback::{Tensor, custom_op};
    /// # struct Floor;
    /// impl CustomOp for Floor {
    /// #     fn name(&self) -> &'static str { "floor_through" }
    /// #     fn specs(&self, inputs: &[Spec]) -> Result<Vec<Spec>> { Ok(inputs.to_vec()) }
    /// #     fn forward(&self, inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
    /// #         let (x, y) = (inputs[0].as_slice::<f64>()?, outputs[0].as_mut_slice::<f64>()?);
    /// #         x.iter().zip(y).for_each(|(x, y)| *y = x.floor());
    /// #         Ok(())
    /// #     }
    /// #     fn derivative(&self) -> Derivative { Derivative::Vjp }
    ///     fn vjp(&self, _x: &[Tensor], _y: &[Tensor], dy: &[Tensor]) -> Vec<Tensor> {
    ///         vec![dy[0].clone()]
    ///     }
    /// }
    /// let x = Tensor::from(2.7).requires_grad();
    /// custom_op(Floor).unchecked("a straight-through estimator").one(&[&x]).backward()?;
    /// assert_eq!(x.grad().unwrap().item::<f64>(), 1.0);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn unchecked(mut self, reason: &'static str) -> External {
        self.check.open(reason, mode::user_line(Line::caller()));
        self.renewed()
    }

    /// Without the check, and not listed as unchecked: for rules of this library, which its tests
    /// check.
    pub(crate) fn trusted(mut self) -> External {
        self.check.trust();
        self
    }

    /// Operands at which to check the derivative if the op is first used inside a trace (`jit`,
    /// `vmap`, a loop), where values are not known. Otherwise they are random numbers between 0.5
    /// and 1.5.
    ///
    /// ```
    /// # use pullback::{Tensor, custom_op, jit};
    #[doc = include_str!("example_cube.txt")]
    /// let cube = custom_op(Cube).at(&[&Tensor::from(-2.0)]);
    /// let f = jit(move |x: &Tensor| cube.one(&[x]));
    /// assert_eq!(f.of(&Tensor::from(3.0)).item::<f64>(), 27.0);
    /// ```
    #[must_use]
    pub fn at(mut self, example: &[&Tensor]) -> External {
        self.check.example(example.iter().map(|&x| x.clone()).collect());
        self.renewed()
    }

    /// How far the derivative may be from the numeric one, relative to it; as
    /// [`CustomVjp::tolerance`](crate::CustomVjp::tolerance).
    ///
    /// ```
    /// # use pullback::{CustomOp, Derivative, HostInput, HostOutput, Result, Spec};
    /// # use pullback::{Tensor, catch, custom_op};
    /// # struct Cube;
    /// impl CustomOp for Cube {
    /// #     fn name(&self) -> &'static str { "cube" }
    /// #     fn specs(&self, inputs: &[Spec]) -> Result<Vec<Spec>> { Ok(inputs.to_vec()) }
    /// #     fn forward(&self, inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
    /// #         let (x, y) = (inputs[0].as_slice::<f64>()?, outputs[0].as_mut_slice::<f64>()?);
    /// #         x.iter().zip(y).for_each(|(x, y)| *y = x * x * x);
    /// #         Ok(())
    /// #     }
    /// #     fn derivative(&self) -> Derivative { Derivative::Vjp }
    ///     fn vjp(&self, x: &[Tensor], _y: &[Tensor], dy: &[Tensor]) -> Vec<Tensor> {
    ///         vec![3.001 * x[0].square() * &dy[0]] // off by 1/3000
    ///     }
    /// }
    /// let x = Tensor::from(2.0).requires_grad();
    /// assert!(catch(|| custom_op(Cube).one(&[&x])).is_err());
    /// assert_eq!(custom_op(Cube).tolerance(1e-2).one(&[&x]).item::<f64>(), 8.0);
    /// ```
    #[must_use]
    pub fn tolerance(mut self, relative: f64) -> External {
        self.check.tolerance(relative);
        self.renewed()
    }

    /// Without the op of the last call, whose pending check is outdated.
    fn renewed(self) -> External {
        External { made: Mutex::default(), ..self }
    }

    /// The op for these operands.
    fn custom(&self, inputs: &[Tensor]) -> Arc<Custom> {
        let code = ExternalRule(self.op.clone(), PendingCheck::default());
        let given: Vec<&Spec> = inputs.iter().map(Tensor::spec).collect();
        let at = mode::user_line(Line::caller());
        let results = match code.infer(&given).map_err(|e| e.on(given)) {
            Ok(specs) => specs.len(),
            Err(error) => fail::raise(error.at(at)),
        };
        let mut held = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = held.as_ref().filter(|custom| custom.results() == results) {
            return known.clone();
        }
        let kernel: Arc<dyn Kernel> = Arc::new(code);
        let custom = |pending: PendingCheck| {
            let rule = RuleHandle(Box::new(ExternalRule(self.op.clone(), pending)));
            let work = Work::Kernel { kernel: kernel.clone(), results };
            Arc::new(Custom::new(self.op.name(), work, Arc::new(rule)))
        };
        let alone = custom(PendingCheck::default());
        let refused = matches!(self.op.derivative(), Derivative::Refused(_));
        let pending = match refused {
            true => PendingCheck::default(),
            false => self.check.pending(String::new(), at, move |x| applied(&alone, x)),
        };
        held.insert(custom(pending)).clone()
    }
}

fn applied(custom: &Arc<Custom>, inputs: &[Tensor]) -> Vec<Tensor> {
    apply_all(Op::Custom(custom.clone()), &inputs.iter().collect::<Vec<_>>()).into_vec()
}
