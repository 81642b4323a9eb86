//! Packers: how values saved for backward are stored.
//!
//! A node keeps what its row names. Usually that is a window on the memory of the value. Inside
//! [`with_packing`] a packer decides: a [`Pack`] takes the value and returns something to keep in
//! its place, [`Packed`], which returns the value when backward needs it. The history of a saved
//! value is not part of this: it is the node's own edge, so a value that was packed and unpacked is
//! differentiated like any other, to any order.
//!
//! Packers nest. The innermost is called first; what it does not take is offered to the one around
//! it, and what none takes is kept as it is.

use crate::events::{self, LEDGER};
use crate::{Error, Op, Result, Spec, Tensor, fail, mode};
use pullback_ir::{ErrorKind, Line};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Decides how values saved for backward are kept.
///
/// ```
/// use pullback::{DType, Pack, Packed, Result, SavedValue, Tensor, with_packing};
/// use std::sync::Arc;
///
/// /// Keeps `f64` values with the precision of `f32`, in half the memory.
/// struct Halved;
/// struct Half(Tensor);
///
/// impl Pack for Halved {
///     fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
///         let x = value.tensor();
///         match x.dtype() == DType::F64 && !value.is_parameter() {
///             true => Ok(Some(Arc::new(Half(x.cast(DType::F32))))),
///             false => Ok(None),
///         }
///     }
/// }
/// impl Packed for Half {
///     fn unpack(&self) -> Result<Tensor> {
///         Ok(self.0.cast(DType::F64))
///     }
///     fn bytes(&self) -> usize {
///         self.0.spec().bytes()
///     }
/// }
///
/// let x = Tensor::from([0.1, 0.2]).requires_grad();
/// let y = with_packing(Arc::new(Halved), || (&x * 1.0).sin()).sum();
/// y.backward()?;
/// let g = x.grad().unwrap().to_vec::<f64>();
/// assert!((g[0] - 0.1f64.cos()).abs() < 1e-8 && g[0] != 0.1f64.cos());
/// # Ok::<(), pullback::Error>(())
/// ```
pub trait Pack: Send + Sync {
    /// Takes a value and returns what is kept instead of it; `None` leaves it to the packer around
    /// this one.
    ///
    /// Nothing is recorded inside, so nothing is saved or packed: tensor operations may be used
    /// freely. Inside a trace the value is not known ([`SavedValue::is_traced`]): operations on it
    /// become part of the program.
    ///
    /// ```
    /// # use pullback::{DType, Pack, Packed, Result, SavedValue, Tensor, with_packing};
    /// # use std::sync::Arc;
    /// struct Halved;
    /// struct Half(Tensor); // f64 values in f32
    /// impl Pack for Halved {
    ///     fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
    ///         let x = value.tensor();
    ///         match x.dtype() == DType::F64 {
    ///             true => Ok(Some(Arc::new(Half(x.cast(DType::F32))))),
    ///             false => Ok(None),
    ///         }
    ///     }
    /// }
    /// # impl Packed for Half {
    /// #     fn unpack(&self) -> Result<Tensor> { Ok(self.0.cast(DType::F64)) }
    /// #     fn bytes(&self) -> usize { self.0.spec().bytes() }
    /// # }
    /// let x = Tensor::from([0.1, 0.2]).requires_grad();
    /// with_packing(Arc::new(Halved), || (&x * 1.0).sin()).sum().backward()?;
    /// let g = x.grad().unwrap().to_vec::<f64>();
    /// assert!((g[0] - 0.1f64.cos()).abs() < 1e-8 && g[0] != 0.1f64.cos());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// Why it cannot be packed. The operation that saves the value fails with it.
    fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>>;
}

impl<P: Pack + ?Sized> Pack for Arc<P> {
    fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
        (**self).pack(value)
    }
}

/// A value that was saved for backward and packed.
pub trait Packed: Send + Sync {
    /// The value as it was: the same shape and dtype. Called once for each backward pass that needs
    /// it.
    ///
    /// ```
    /// # use pullback::{DType, Pack, Packed, Result, SavedValue, Tensor, with_packing};
    /// # use std::sync::Arc;
    /// # struct Halved;
    /// struct Half(Tensor); // f64 values in f32
    /// # impl Pack for Halved {
    /// #     fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
    /// #         let x = value.tensor();
    /// #         match x.dtype() == DType::F64 {
    /// #             true => Ok(Some(Arc::new(Half(x.cast(DType::F32))))),
    /// #             false => Ok(None),
    /// #         }
    /// #     }
    /// # }
    /// impl Packed for Half {
    ///     fn unpack(&self) -> Result<Tensor> {
    ///         Ok(self.0.cast(DType::F64))
    ///     }
    /// #     fn bytes(&self) -> usize { self.0.spec().bytes() }
    /// }
    /// let packed = Half(Tensor::from([0.5f32, 1.5]));
    /// assert_eq!(packed.unpack()?.to_vec::<f64>(), [0.5, 1.5]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// Why it cannot be restored. Backward fails with it, and changes no gradient.
    fn unpack(&self) -> Result<Tensor>;

    /// How many bytes of memory it takes while packed.
    ///
    /// ```
    /// # use pullback::{DType, Pack, Packed, Result, SavedValue, Tensor, with_packing};
    /// # use std::sync::Arc;
    /// # struct Halved;
    /// struct Half(Tensor); // f64 values in f32
    /// # impl Pack for Halved {
    /// #     fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
    /// #         let x = value.tensor();
    /// #         match x.dtype() == DType::F64 {
    /// #             true => Ok(Some(Arc::new(Half(x.cast(DType::F32))))),
    /// #             false => Ok(None),
    /// #         }
    /// #     }
    /// # }
    /// impl Packed for Half {
    /// #     fn unpack(&self) -> Result<Tensor> { Ok(self.0.cast(DType::F64)) }
    ///     fn bytes(&self) -> usize {
    ///         self.0.spec().bytes()
    ///     }
    /// }
    /// assert_eq!(Half(Tensor::from([0.5f32, 1.5])).bytes(), 8);
    /// ```
    fn bytes(&self) -> usize;

    /// How many it will take when the packer is done with it: less than now for one that is still
    /// being written to a file. A [`MemoryBudget`](crate::MemoryBudget) counts these. Unless
    /// defined, as many as now.
    ///
    /// ```
    /// # use pullback::{DType, Pack, Packed, Result, SavedValue, Tensor, with_packing};
    /// # use std::sync::Arc;
    /// # struct Halved;
    /// struct Half(Tensor); // f64 values in f32
    /// # impl Pack for Halved {
    /// #     fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
    /// #         let x = value.tensor();
    /// #         match x.dtype() == DType::F64 {
    /// #             true => Ok(Some(Arc::new(Half(x.cast(DType::F32))))),
    /// #             false => Ok(None),
    /// #         }
    /// #     }
    /// # }
    /// impl Packed for Half {
    /// #     fn unpack(&self) -> Result<Tensor> { Ok(self.0.cast(DType::F64)) }
    /// #     fn bytes(&self) -> usize { self.0.spec().bytes() }
    ///     fn bytes_at_rest(&self) -> usize {
    ///         self.bytes() // this one is never written to a file
    ///     }
    /// }
    /// assert_eq!(Half(Tensor::from([0.5f32, 1.5])).bytes_at_rest(), 8);
    /// ```
    fn bytes_at_rest(&self) -> usize {
        self.bytes()
    }

    /// Whether [`Packed::unpack`] gives the value bit by bit, so that a
    /// [`MemoryBudget`](crate::MemoryBudget) may compute others again from it. Unless defined, it
    /// need not.
    ///
    /// ```
    /// # use pullback::{Packed, Result, Tensor};
    /// /// Keeps the value as it is.
    /// struct Kept(Tensor);
    /// impl Packed for Kept {
    ///     fn unpack(&self) -> Result<Tensor> {
    ///         Ok(self.0.clone())
    ///     }
    ///     fn bytes(&self) -> usize {
    ///         self.0.spec().bytes()
    ///     }
    ///     fn is_exact(&self) -> bool {
    ///         true
    ///     }
    /// }
    /// let packed = Kept(Tensor::from([0.1]));
    /// assert!(packed.is_exact() && packed.unpack()?.to_vec::<f64>() == [0.1]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    fn is_exact(&self) -> bool {
        false
    }
}

/// A value that a node is about to save.
pub struct SavedValue<'a> {
    pub(crate) tensor: Tensor,
    pub(crate) op: Option<&'a Op>,
    pub(crate) name: &'a str,
    pub(crate) at: Line,
    pub(crate) is_output: bool,
    pub(crate) is_parameter: bool,
}

impl SavedValue<'_> {
    /// The value, without history.
    ///
    /// ```
    /// # use pullback::{Pack, Packed, Result, SavedValue, Tensor, with_packing};
    /// # use std::sync::{Arc, Mutex};
    /// /// Notes what is saved, and keeps it as it is.
    /// struct Notes(Mutex<Vec<Vec<f64>>>);
    /// impl Pack for Notes {
    ///     fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
    ///         self.0.lock().unwrap().push(value.tensor().to_vec());
    ///         Ok(None)
    ///     }
    /// }
    /// let notes = Arc::new(Notes(Mutex::default()));
    /// let x = Tensor::from([1.0, 2.0]).requires_grad();
    /// with_packing(notes.clone(), || (&x + 1.0).sin());
    /// assert_eq!(*notes.0.lock().unwrap(), [[2.0, 3.0]]);
    /// ```
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// The op that saves it; `None` where it is the argument of a checkpointed function.
    ///
    /// ```
    /// # use pullback::{Pack, Packed, Result, SavedValue, Tensor, with_packing};
    /// # use std::sync::{Arc, Mutex};
    /// /// Notes what is saved, and keeps it as it is.
    /// struct Notes(Mutex<Vec<Option<String>>>);
    /// impl Pack for Notes {
    ///     fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
    ///         self.0.lock().unwrap().push(value.op().map(|op| op.to_string()));
    ///         Ok(None)
    ///     }
    /// }
    /// let notes = Arc::new(Notes(Mutex::default()));
    /// let x = Tensor::from([1.0, 2.0]).requires_grad();
    /// with_packing(notes.clone(), || (&x + 1.0).sin());
    /// assert_eq!(*notes.0.lock().unwrap(), [Some("sin".to_string())]);
    /// ```
    pub fn op(&self) -> Option<&Op> {
        self.op
    }

    /// The name of the op that saves it, or `checkpoint`.
    ///
    /// ```
    /// # use pullback::{Pack, Packed, Result, SavedValue, Tensor, with_packing};
    /// # use std::sync::{Arc, Mutex};
    /// /// Notes what is saved, and keeps it as it is.
    /// struct Notes(Mutex<Vec<String>>);
    /// impl Pack for Notes {
    ///     fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
    ///         self.0.lock().unwrap().push(value.name().to_string());
    ///         Ok(None)
    ///     }
    /// }
    /// let notes = Arc::new(Notes(Mutex::default()));
    /// let x = Tensor::from([1.0, 2.0]).requires_grad();
    /// with_packing(notes.clone(), || (&x + 1.0).sin());
    /// assert_eq!(*notes.0.lock().unwrap(), ["sin"]);
    /// ```
    pub fn name(&self) -> &str {
        self.name
    }

    /// The user's line: where the op that saves it was called.
    ///
    /// ```
    /// # use pullback::{Pack, Packed, Result, SavedValue, Tensor, with_packing};
    /// # use std::sync::{Arc, Mutex};
    /// /// Notes what is saved, and keeps it as it is.
    /// struct Notes(Mutex<Vec<u32>>);
    /// impl Pack for Notes {
    ///     fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
    ///         self.0.lock().unwrap().push(value.at().line());
    ///         Ok(None)
    ///     }
    /// }
    /// let notes = Arc::new(Notes(Mutex::default()));
    /// let x = Tensor::from([1.0, 2.0]).requires_grad();
    /// with_packing(notes.clone(), || (&x + 1.0).sin());
    /// assert_eq!(*notes.0.lock().unwrap(), [line!() - 1]);
    /// ```
    pub fn at(&self) -> Line {
        self.at
    }

    /// Whether it is a result of the op, and not an operand.
    ///
    /// ```
    /// # use pullback::{Pack, Packed, Result, SavedValue, Tensor, with_packing};
    /// # use std::sync::{Arc, Mutex};
    /// /// Notes what is saved, and keeps it as it is.
    /// struct Notes(Mutex<Vec<bool>>);
    /// impl Pack for Notes {
    ///     fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
    ///         self.0.lock().unwrap().push(value.is_output());
    ///         Ok(None)
    ///     }
    /// }
    /// let notes = Arc::new(Notes(Mutex::default()));
    /// let x = Tensor::from([1.0, 2.0]).requires_grad();
    /// with_packing(notes.clone(), || (&x + 1.0).sin().exp());
    /// assert_eq!(*notes.0.lock().unwrap(), [false, true]);
    /// ```
    pub fn is_output(&self) -> bool {
        self.is_output
    }

    /// Whether it is a leaf that requires grad: its memory is there anyway, so packing it saves
    /// nothing.
    ///
    /// ```
    /// # use pullback::{Pack, Packed, Result, SavedValue, Tensor, with_packing};
    /// # use std::sync::{Arc, Mutex};
    /// /// Notes what is saved, and keeps it as it is.
    /// struct Notes(Mutex<Vec<bool>>);
    /// impl Pack for Notes {
    ///     fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
    ///         self.0.lock().unwrap().push(value.is_parameter());
    ///         Ok(None)
    ///     }
    /// }
    /// let notes = Arc::new(Notes(Mutex::default()));
    /// let x = Tensor::from([1.0, 2.0]).requires_grad();
    /// with_packing(notes.clone(), || x.sin().cos());
    /// assert_eq!(*notes.0.lock().unwrap(), [true, false]);
    /// ```
    pub fn is_parameter(&self) -> bool {
        self.is_parameter
    }

    /// Whether its value is not known, because a function is being traced.
    ///
    /// ```
    /// # use pullback::{Pack, Packed, Result, SavedValue, Tensor, grad, vmap, with_packing};
    /// # use std::sync::{Arc, Mutex};
    /// /// Notes what is saved, and keeps it as it is.
    /// struct Notes(Mutex<Vec<bool>>);
    /// impl Pack for Notes {
    ///     fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
    ///         self.0.lock().unwrap().push(value.is_traced());
    ///         Ok(None)
    ///     }
    /// }
    /// let notes = Arc::new(Notes(Mutex::default()));
    /// let x = Tensor::from([1.0, 2.0]).requires_grad();
    /// with_packing(notes.clone(), || vmap(grad(|x: &Tensor| x.sin()), 0, 0)(&x.detach()));
    /// assert_eq!(*notes.0.lock().unwrap(), [true]);
    /// ```
    pub fn is_traced(&self) -> bool {
        self.tensor.0.storage.as_traced().is_some()
    }
}

thread_local! {
    static ANY: Cell<bool> = const { Cell::new(false) };
    static PACKERS: RefCell<Vec<Arc<dyn Pack>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f`; values that its operations save for backward go through `packer`.
///
/// ```
/// use pullback::{Compress, Tensor, with_packing};
/// use std::sync::Arc;
/// let x = Tensor::full([64, 64], 0.5f32).requires_grad();
/// // `relu` saves one bit for each element instead of a float.
/// let y = with_packing(Arc::new(Compress::new().masks()), || x.relu().sum());
/// y.backward()?;
/// assert_eq!(x.grad().unwrap().to_vec::<f32>()[0], 1.0);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Panics
/// Where the packer gives an error, the operation that saves the value fails with it.
#[doc(alias = "saved_tensors_hooks")]
pub fn with_packing<R>(packer: Arc<dyn Pack>, f: impl FnOnce() -> R) -> R {
    let all = PACKERS.with_borrow(|all| all.iter().cloned().chain([packer]).collect());
    with_packers(all, f)
}

/// Runs `f` with these packers, and no others.
pub(crate) fn with_packers<R>(packers: Vec<Arc<dyn Pack>>, f: impl FnOnce() -> R) -> R {
    let any = !packers.is_empty();
    let outer = PACKERS.replace(packers);
    let _restore = mode::on_drop(|| {
        ANY.set(!outer.is_empty());
        PACKERS.set(outer);
    });
    ANY.set(any);
    f()
}

/// Whether a packer is active on this thread.
pub(crate) fn is_active() -> bool {
    ANY.get()
}

/// Offers a value to the packers, from the innermost out.
pub(crate) fn pack(value: &SavedValue<'_>) -> Option<Arc<dyn Packed>> {
    let packers = PACKERS.with_borrow(Clone::clone);
    let ask = || packers.iter().rev().find_map(|packer| packer.pack(value).transpose()).transpose();
    // Ops of a packer are not instrumented: neither cast by `autocast` nor checked by
    // `detect_overflow`. But their memory is counted for the line that saves.
    let ask = || mode::with_line(value.at, || mode::set_recording(false, ask));
    let ask = || events::only(LEDGER, ask);
    let packed = with_packers(Vec::new(), ask);
    fail::or_raise(packed.map_err(|e| e.at(value.at)))
}

/// Unpacks a value.
pub(crate) fn unpack(packed: &dyn Packed, spec: &Spec) -> Result<Tensor> {
    let value = with_packers(Vec::new(), || mode::set_recording(false, || packed.unpack()))?;
    if value.spec() == spec {
        events::unpacked(&value);
        return Ok(value);
    }
    let message = format!("a saved {spec} was unpacked as {}", value.spec());
    Err(Error::new(ErrorKind::Gradient, "unpack", message))
}
