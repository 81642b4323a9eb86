//! A byte budget for what the tape keeps.
//!
//! # The idea
//! Inside the scope every value that a node saves goes through a packer (`packer.rs`), which keeps
//! a ledger (`state.rs`, `evict.rs`) of the memory that is held for backward. While values fit,
//! they are kept as they are. When they do not, the ledger drops the value that is cheapest to
//! recompute per byte freed, and backward, when it requests that one, runs its op again
//! (`recompute.rs`). This is dynamic tensor rematerialisation (Kirisame et al. 2021): nothing needs
//! to be known in advance, so any program works, with branches, loops and shapes that differ from
//! step to step.
//!
//! To run an op again one needs the op and its operands. `apply` notes them inside the scope, for
//! every result: it costs a note, and no memory, since an operand is named by its own note. Random
//! numbers are functions of their keys, so a mask is recomputed exactly.
//!
//! # Which value is dropped
//! It is found among few (`candidates.rs`): the one of least `work / (bytes · √age)`, where work is
//! that of its op and of all that is missing below it, and age the time since it was last used.
//! Work alone would space what is kept evenly; age alone would drop the beginning of a chain and
//! recompute it from the start repeatedly. Together they need, on a chain of 2000 values with
//! memory for 2√2000, less than one extra forward pass.
//!
//! # Keep, compute again, or pack
//! With [`MemoryBudget::or_pack`] values can also be packed, at a cost in operations per byte. Only
//! what is cheaper than that is dropped. When nothing so cheap is left, the value that is being
//! saved goes to the packer: it is the one that can be given as the packer requires it, with
//! its op and its shape. What is made of it can be dropped nevertheless, as it is computed again
//! from what the packer gives back (`away.rs`), if that is exact.
//!
//! # What cannot be dropped
//! Memory that was there before the scope, and parameters: they exist anyway, and do not count.
//! What cannot be recomputed is *pinned* and counts: tensors made of data inside the scope, what
//! was written in place, results of custom kernels and of compiled functions. When a value does not
//! fit in addition to what is pinned, the op that saves it fails, with the smallest sufficient
//! budget: backward would need all of them at the same time.
//!
//! Making a value again takes the operands of its op. They are counted, and others are dropped for
//! them, but they cannot be refused: a budget of less than some op works on is exceeded by that op.
//!
//! # In-place writes
//! A saved value that is overwritten is an error in backward, as always. Memory that is not saved
//! itself, but that something dropped must be made from, is copied before it is overwritten inside
//! the scope, by an op or by a compiled function (`overwrite.rs`); overwritten after the scope, and
//! before backward, it is an error.

mod away;
mod candidates;
mod evict;
mod overwrite;
mod packer;
mod recompute;
mod state;

use crate::backend::Pooled;
use crate::events::{self, BUDGET};
use crate::memory::checkpoint;
use crate::memory::packing::{self, Pack};
use crate::memory::report::ledger as report;
use crate::storage::Storage;
use crate::{Error, Op, Tensor, backend, fail, mode, trace};
use packer::{OverflowPacker, Packer};
use pullback_ir::infer::Checked;
use pullback_ir::{ErrorKind, Line};
use state::BudgetState;
use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The default cost of packing, in operations per byte: a disk writes and reads some hundred
/// megabytes to a gigabyte per second, and a core does about 10¹⁰ operations per second.
const PACKING: f64 = 64.0;

/// Runs `f`; what its operations save for backward takes at most this many bytes. What does not fit
/// is recomputed when backward needs it.
///
/// Gradients have the bits that they have without a budget. [`MemoryBudget`] also says what it
/// cost.
///
/// ```
/// use pullback::{Tensor, memory_budget};
/// let x = Tensor::from([0.5; 1000]).requires_grad();
/// let chain = || (0..64).fold(x.clone(), |x, _| x.sin().exp()).sum();
/// chain().backward()?;
/// let expected = x.grad().unwrap().to_vec::<f64>();
/// x.zero_grad();
/// memory_budget(16 * 8000, chain).backward()?; // of 64 · 8000
/// assert_eq!(x.grad().unwrap().to_vec::<f64>(), expected);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Panics
/// See [`MemoryBudget::run`].
#[track_caller]
pub fn memory_budget<R>(bytes: usize, f: impl FnOnce() -> R) -> R {
    MemoryBudget::new(bytes).run_at(f, mode::user_line(Line::caller()))
}

/// A number of bytes that the values saved for backward may take, and the account of what is kept,
/// dropped and computed again.
///
/// ```
/// use pullback::{MemoryBudget, Tensor};
/// let x = Tensor::from([0.5; 1000]).requires_grad();
/// let budget = MemoryBudget::new(16 * 8000);
/// let loss = budget.run(|| (0..64).fold(x.clone(), |x, _| x.sin().exp()).sum());
/// loss.backward()?;
/// let used = budget.used();
/// assert!(used.kept <= 16 * 8000 && used.without > 60 * 8000);
/// assert!(used.extra() < 2.0, "{used}");
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// What counts is the memory of distinct values that nodes made in the scope keep, on the device of
/// the first of them (what a step on another device saves on the host does not count): not
/// parameters, not what was there before, not values of 64 bytes or less, nor the tangents of
/// forward mode. In addition there are, as without a budget, the operands and results of the
/// running op, and
/// gradients in flight.
///
/// Backward may be called inside the scope or after it, on any thread. Scopes may be opened again
/// with the same account, as in a training loop. A scope inside another one has an account of its
/// own. Inside a checkpointed function the checkpoint decides, and the scope does nothing. Packers
/// nest as usual ([`with_packing`](crate::with_packing)): one inside the scope is called before the
/// budget.
#[derive(Clone)]
pub struct MemoryBudget {
    ledger: Arc<SharedBudget>,
    overflow: Option<OverflowPacker>,
}

impl MemoryBudget {
    /// A budget of this many bytes, with an account of its own.
    ///
    /// ```
    /// use pullback::{MemoryBudget, Tensor};
    /// let x = Tensor::from([0.5; 1000]).requires_grad();
    /// let budget = MemoryBudget::new(4 * 8000);
    /// budget.run(|| (0..16).fold(x.clone(), |x, _| x.sin())).sum().backward()?;
    /// assert!(budget.used().kept <= 4 * 8000);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn new(bytes: usize) -> MemoryBudget {
        MemoryBudget {
            ledger: Arc::new(SharedBudget(Mutex::new(BudgetState::new(bytes)))),
            overflow: None,
        }
    }

    /// Packs values instead of dropping them where that is cheaper: with a packer that writes to
    /// files ([`Offload`](crate::Offload)) or compresses. When a value does not fit, those are
    /// dropped that are computed again for less than packing costs
    /// ([`MemoryBudget::packing_costs`], 64 operations for a byte: what a core does per byte
    /// written and read); the value itself, if it is such a one. When none are left,
    /// or what is left cannot be computed again, the packer gets the value. What it does not take
    /// is dropped or refused as without it. What it takes at rest counts
    /// ([`Packed::bytes_at_rest`](crate::Packed::bytes_at_rest)); the buffers of an offload are
    /// additional, with their own bound.
    ///
    /// A packer that is not exact changes gradients.
    ///
    /// ```
    /// use pullback::{MemoryBudget, Pack, Packed, Result, SavedValue, Tensor, no_grad};
    /// use std::sync::Arc;
    /// /// Keeps the values elsewhere.
    /// struct Elsewhere;
    /// struct Far(Vec<f64>, Vec<usize>);
    /// impl Pack for Elsewhere {
    ///     fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
    ///         let x = value.tensor();
    ///         Ok(Some(Arc::new(Far(x.to_vec(), x.shape().to_vec()))))
    ///     }
    /// }
    /// impl Packed for Far {
    ///     fn unpack(&self) -> Result<Tensor> {
    ///         Ok(Tensor::from(self.0.as_slice()).reshape(&self.1[..]))
    ///     }
    ///     fn bytes(&self) -> usize {
    ///         0
    ///     }
    /// }
    /// let x = Tensor::from([0.5; 100]).requires_grad();
    /// let budget = MemoryBudget::new(1000).or_pack(Arc::new(Elsewhere));
    /// // Captured numbers cannot be computed again.
    /// let loss = budget.run(|| (0..9).fold(x.clone(), |x, i| x * Tensor::from([f64::from(i); 100])).sum());
    /// loss.backward()?;
    /// assert!(budget.used().kept <= 1000);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn or_pack(mut self, packer: Arc<dyn Pack>) -> MemoryBudget {
        let rate = self.overflow.map_or(PACKING, |o| o.rate);
        self.overflow = Some(OverflowPacker { packer, rate });
        self
    }

    /// The cost of packing: how many operations could be done while a byte is packed and unpacked.
    /// The packer gets what would cost more to compute again. With 0 it gets all that does not fit,
    /// and nothing is dropped for it; with infinity, only what cannot be computed again.
    ///
    /// ```
    /// use pullback::{Compress, DType, MemoryBudget, Tensor};
    /// use std::sync::Arc;
    /// let x = Tensor::from([0.5; 1000]).requires_grad();
    /// let budget = MemoryBudget::new(13_000)
    ///     .or_pack(Arc::new(Compress::new().half(DType::BF16)))
    ///     .packing_costs(0.0); // what does not fit is packed, and nothing is computed again
    /// budget.run(|| (0..4).fold(x.clone(), |x, _| x.sin())).sum().backward()?;
    /// assert_eq!((budget.used().packed, budget.used().again), (2, 0));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// If it is negative or not a number, or if no packer was given ([`MemoryBudget::or_pack`]).
    #[must_use]
    #[track_caller]
    pub fn packing_costs(mut self, operations_per_byte: f64) -> MemoryBudget {
        let at = mode::user_line(Line::caller());
        let wrong = |message: String| {
            fail::raise(Error::new(ErrorKind::Memory, "packing_costs", message).at(at))
        };
        if operations_per_byte.is_nan() || operations_per_byte < 0.0 {
            wrong(format!(
                "the cost must be at least 0 operations per byte, not {operations_per_byte}"
            ));
        }
        match &mut self.overflow {
            Some(overflow) => overflow.rate = operations_per_byte,
            None => wrong("a cost of packing needs a packer: call or_pack first".into()),
        }
        self
    }

    /// Runs `f` within the budget.
    ///
    /// ```
    /// use pullback::{MemoryBudget, Tensor, catch};
    /// let x = Tensor::from([0.5; 1000]).requires_grad();
    /// let budget = MemoryBudget::new(4 * 8000);
    /// budget.run(|| (0..16).fold(x.clone(), |x, _| x.sin())).sum().backward()?;
    /// assert!(budget.used().again > 0); // ops that ran a second time
    /// // A tensor that is made of data cannot be computed again.
    /// let data = || (0..9).fold(x.clone(), |x, i| x * Tensor::from([f64::from(i); 1000]));
    /// let error = catch(|| MemoryBudget::new(4 * 8000).run(data)).unwrap_err();
    /// assert!(error.to_string().contains("memory_budget"), "{error}");
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// Where an operation of `f` saves a value that does not fit, although everything that can be
    /// computed again was dropped: the error names the smallest sufficient budget so far, and what
    /// takes it. Inside a function that is being traced: there the budget is given to what compiles
    /// it. (In a prediction, [`predict_memory`](crate::predict_memory), `f` runs as it is.)
    #[track_caller]
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        self.run_at(f, mode::user_line(Line::caller()))
    }

    fn run_at<R>(&self, f: impl FnOnce() -> R, at: Line) -> R {
        // Which values would be dropped depends on what is alive, and a prediction has no memory
        // that could be short.
        if report::is_predicting() {
            return f();
        }
        if trace::active() {
            let message = "a budget for the tape inside a function that is traced, whose tape does not exist when it runs";
            let error = Error::new(ErrorKind::Memory, "memory_budget", message).at(at);
            fail::raise(error.hint(
                "give the budget to what compiles it, Jit::memory_budget(bytes), or open the scope around vmap and loops",
            ));
        }
        if checkpoint::is_watching() || checkpoint::is_replaying() {
            return f();
        }
        self.ledger.lock().open();
        let _close = Close(&self.ledger);
        let packer = Packer { ledger: self.ledger.clone(), overflow: self.overflow.clone() };
        let all =
            BUDGETS.with_borrow(|all| all.iter().cloned().chain([self.ledger.clone()]).collect());
        let noted = || events::with(BUDGET, f);
        with_budgets(all, || packing::with_packing(Arc::new(packer), noted))
    }

    /// What the budget has cost so far: bytes kept, values dropped, work done again.
    ///
    /// ```
    /// use pullback::{MemoryBudget, Tensor};
    /// let x = Tensor::from([0.5; 1000]).requires_grad();
    /// let budget = MemoryBudget::new(4 * 8000);
    /// budget.run(|| (0..16).fold(x.clone(), |x, _| x.sin())).sum().backward()?;
    /// let used = budget.used();
    /// assert_eq!(used.budget, 32_000);
    /// assert!(used.kept <= 32_000 && used.without > 100_000 && used.dropped > 0);
    /// println!("{used}");
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn used(&self) -> BudgetUse {
        self.ledger.lock().tally.clone()
    }
}

impl fmt::Debug for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBudget").field("used", &self.used()).finish_non_exhaustive()
    }
}

/// What a [`MemoryBudget`] has cost so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetUse {
    /// The bytes that are allowed.
    pub budget: usize,
    /// The bytes of saved values that were kept at most, by the account: with what is made on the
    /// way to a value that is computed again, which alone may take it beyond the budget.
    pub kept: usize,
    /// The estimated peak, from shapes: what is kept, plus the operands and results of the op that
    /// runs, or in backward two gradients of the size of the value that is needed.
    pub predicted: usize,
    /// The bytes that would have been kept at most without dropping; values that went to a packer
    /// not counted.
    pub without: usize,
    /// A lower bound of sufficient budgets: the most that could not be computed again, plus a value
    /// that backward needs at the same time.
    pub least: usize,
    /// The peak as the pool counts it: the bytes that it had given out at most since the first
    /// scope was opened, beyond what it had then: looked up at each operation of the scope, and
    /// each time that backward requests a value. Operands and results of running ops are part of
    /// it, and what other threads allocate.
    pub measured: usize,
    /// How often a value was dropped.
    pub dropped: usize,
    /// How many values went to the packer of [`MemoryBudget::or_pack`].
    pub packed: usize,
    /// How many values were compared to find those to drop: a few for each, however many there are.
    pub weighed: usize,
    /// How often an op ran again.
    pub again: usize,
    /// The work of the operations in the scope, in floating-point operations, as an estimate.
    pub work: u64,
    /// The work that was done again.
    pub work_again: u64,
}

impl BudgetUse {
    /// The extra work, as a share of the work of the operations in the scope.
    ///
    /// ```
    /// use pullback::{MemoryBudget, Tensor};
    /// let x = Tensor::from([0.5; 1000]).requires_grad();
    /// let budget = MemoryBudget::new(1_000_000);
    /// budget.run(|| (0..16).fold(x.clone(), |x, _| x.sin())).sum().backward()?;
    /// assert_eq!(budget.used().extra(), 0.0); // everything fitted
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn extra(&self) -> f64 {
        self.work_again as f64 / self.work.max(1) as f64
    }
}

impl fmt::Display for BudgetUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BudgetUse { budget, kept, predicted, without, least, measured, .. } = self;
        let BudgetUse { dropped, packed, again, .. } = self;
        let extra = 100.0 * self.extra();
        writeln!(f, "memory budget   {budget:>12} bytes")?;
        writeln!(
            f,
            "saved values    {kept:>12} bytes at most, {without} without dropping, at least {least}"
        )?;
        writeln!(
            f,
            "predicted peak  {predicted:>12} bytes, with operands and results of the running op"
        )?;
        writeln!(f, "measured peak   {measured:>12} bytes, of all that the pool gave out")?;
        write!(
            f,
            "extra compute   {extra:>11.1} % of the forward pass: dropped {dropped} values, packed {packed}, ran {again} operations again"
        )
    }
}

/// Closes a scope, also where it panics.
struct Close<'a>(&'a SharedBudget);

impl Drop for Close<'_> {
    fn drop(&mut self) {
        self.0.lock().close();
    }
}

pub(super) struct SharedBudget(Mutex<BudgetState>);

impl SharedBudget {
    fn lock(&self) -> MutexGuard<'_, BudgetState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

thread_local! {
    /// The scopes that are open, the innermost last.
    static BUDGETS: RefCell<Vec<Arc<SharedBudget>>> = const { RefCell::new(Vec::new()) };
}

fn with_budgets<R>(ledgers: Vec<Arc<SharedBudget>>, f: impl FnOnce() -> R) -> R {
    let outer = BUDGETS.replace(ledgers);
    let _restore = mode::on_drop(|| BUDGETS.set(outer));
    f()
}

/// Notes how an op made its results.
pub(crate) fn note(op: &Op, inputs: &[&Tensor], outs: &[Tensor], at: Line) {
    BUDGETS.with_borrow(|all| {
        if let Some(ledger) = all.last() {
            ledger.lock().note(op, inputs, outs, at);
        }
    });
}

/// Memory is about to be written in place.
pub(crate) fn before_write(written: &Tensor) {
    if trace::active() {
        return;
    }
    let at = Line::caller();
    let copy = |whole: &Tensor| -> Pooled<Storage> {
        let copied = backend::compute(&Checked::copy(&[whole.spec()]), &[whole], at);
        let copied = fail::or_raise(copied);
        copied[0].0.storage.clone()
    };
    BUDGETS.with_borrow(|all| all.iter().for_each(|l| l.lock().before_write(written, copy)));
}
