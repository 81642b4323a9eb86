//! What a program needs, made before its first call, on several threads.
//!
//! Which kernels, plans of cuDNN and forms of products a step needs follows from its operands: from
//! layouts, alignment, switches, what a library takes. A list of all that would repeat every choice
//! of the launch path, and be wrong where the two differ. So the launch path itself is walked, in a
//! *dry run*: a thread runs steps as always, on placeholder addresses, but nothing reaches the
//! device. No memory is allocated, copies and launches return at once, and what would wait ends the
//! step. What is looked up on the way, and not there, is made.
//!
//! Steps are independent then, so threads take them one by one. Those that differ only in where
//! their operands are, as the layers of a network do, are run once. A thread that finds that
//! another is making what it needs goes on without. Nothing depends on a dry run: what it has not
//! found, since an operand is aligned otherwise (say), is made in the first call, as are errors.
//!
//! The threads begin with different work: one with plans of cuDNN, which take longest, one with
//! products, whose library takes long to open, all others with kernels.

use crate::gpu::Gpu;
use crate::loops::StridedOperand;
use pullback_cuda_sys::DevicePtr;
use pullback_ir::Numerics;
use rustc_hash::FxHasher;
use std::cell::{Cell, RefCell};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Most threads: each that compiles takes some 100 MB.
const MOST: usize = 16;
/// Where placeholder memory begins: every block of a program, and then what steps take, far from
/// the others, and like real memory at multiples of 256.
const BLOCK: DevicePtr = 1 << 44;
const TAKEN: DevicePtr = 1 << 62;

thread_local! {
    static DRY_RUN: Cell<bool> = const { Cell::new(false) };
    static NEXT: Cell<DevicePtr> = const { Cell::new(TAKEN) };
    static COUNTS: RefCell<Option<Arc<Counts>>> = const { RefCell::new(None) };
}

/// Whether this thread makes a dry run.
#[inline]
pub(crate) fn in_dry_run() -> bool {
    DRY_RUN.get()
}

/// The address of a block of a program.
pub(crate) fn block(number: usize) -> DevicePtr {
    (number as DevicePtr + 1) * BLOCK
}

/// Memory that a step takes.
pub(crate) fn placeholder(bytes: usize) -> DevicePtr {
    let at = NEXT.get();
    NEXT.set(at + (bytes.max(1) as DevicePtr).next_multiple_of(256));
    at
}

/// What is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Preparation {
    Kernel,
    /// … whose machine code was in a file.
    KernelRead,
    Plan,
    PlanRead,
    Product,
    /// A kernel that NVRTC does not compile, or the driver does not load.
    Refused,
}

#[derive(Default)]
struct Counts([AtomicUsize; 6]);

/// Notes that something was made, if this thread makes a dry run.
pub(crate) fn count(what: Preparation) {
    COUNTS.with_borrow(|counts| {
        if let Some(Counts(all)) = counts.as_deref() {
            all[what as usize].fetch_add(1, Ordering::Relaxed);
        }
    });
}

/// Sets whether this thread in_dry_run, until it is dropped.
struct DryRunScope {
    before: bool,
    counts: Option<Arc<Counts>>,
}

impl DryRunScope {
    fn new(on: bool, counts: Option<Arc<Counts>>) -> DryRunScope {
        DryRunScope { before: DRY_RUN.replace(on), counts: COUNTS.replace(counts) }
    }
}

impl Drop for DryRunScope {
    fn drop(&mut self) {
        DRY_RUN.set(self.before);
        COUNTS.set(self.counts.take());
    }
}

/// Calls `f` in a dry run.
#[cfg(test)]
pub(crate) fn with_dry_run<R>(f: impl FnOnce() -> R) -> R {
    let _scope = DryRunScope::new(true, None);
    f()
}

/// Calls `f`, which uses the device, outside of the dry run of this thread.
pub(crate) fn paused<R>(f: impl FnOnce() -> R) -> R {
    let _scope = DryRunScope::new(false, None);
    f()
}

/// What a step waits for most.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PreparationKind {
    Kernels,
    Plans,
    Products,
}

/// A step of a dry run.
pub(crate) struct DryStep<'a> {
    pub kind: PreparationKind,
    /// Equal for steps of which one is enough.
    pub like: u64,
    pub run: Box<dyn Fn() + Send + Sync + 'a>,
}

/// A hash of what a step does, and of its operands but for the places of their memory.
pub(crate) fn likeness<'a>(
    what: impl Hash,
    operands: impl Iterator<Item = &'a StridedOperand>,
) -> u64 {
    let mut hasher = FxHasher::default();
    what.hash(&mut hasher);
    for x in operands {
        (x.at % 256, x.dtype, &x.shape, &x.strides).hash(&mut hasher);
    }
    hasher.finish()
}

/// How a dry run went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DryRunReport {
    /// As in [`Preparation`].
    pub made: [usize; 6],
    pub threads: usize,
    pub time: Duration,
}

impl DryRunReport {
    /// In words; none if everything was there.
    pub fn words(&self) -> Option<String> {
        let [compiled, read, plans, plans_read, products, refused] = self.made;
        let mut all = Vec::new();
        for (count, what) in [
            (compiled, "kernels compiled"),
            (read, "read from files"),
            (plans, "plans of cuDNN made"),
            (plans_read, "plans read from files"),
            (products, "forms of products"),
            (refused, "kernels refused"),
        ] {
            if count > 0 {
                all.push(format!("{count} {what}"));
            }
        }
        let (threads, time) = (self.threads, self.time);
        (!all.is_empty()).then(|| format!("{} on {threads} threads in {time:.1?}", all.join(", ")))
    }
}

/// Runs steps dry, on as many threads as pay.
pub(crate) fn run_dry(gpu: &Gpu, steps: Vec<DryStep<'_>>) -> DryRunReport {
    let clock = Instant::now();
    let mut seen = rustc_hash::FxHashSet::default();
    let mut lists: [Vec<DryStep<'_>>; 3] = Default::default();
    for step in steps.into_iter().filter(|step| seen.insert(step.like)) {
        lists[step.kind as usize].push(step);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = (seen.len() / 2).min(cores).clamp(1, MOST);
    let next: [AtomicUsize; 3] = Default::default();
    let (numerics, counts) = (Numerics::now(), Arc::new(Counts::default()));
    let work = |thread: usize| {
        let _scope = DryRunScope::new(true, Some(counts.clone()));
        gpu.make_current();
        let order = match thread {
            0 => [PreparationKind::Plans, PreparationKind::Products, PreparationKind::Kernels],
            1 => [PreparationKind::Products, PreparationKind::Kernels, PreparationKind::Plans],
            _ => [PreparationKind::Kernels, PreparationKind::Plans, PreparationKind::Products],
        };
        numerics.scope(|| {
            for list in order.map(|kind| kind as usize) {
                while let Some(step) = lists[list].get(next[list].fetch_add(1, Ordering::Relaxed)) {
                    (step.run)();
                }
            }
        });
    };
    let mut started = 1;
    std::thread::scope(|s| {
        for thread in 1..threads {
            let work = &work;
            // Where there are no more threads, those that run do all of it.
            let thread = std::thread::Builder::new().spawn_scoped(s, move || work(thread));
            started += usize::from(thread.is_ok());
        }
        work(0);
    });
    let made = counts.0.each_ref().map(|count| count.load(Ordering::Relaxed));
    DryRunReport { made, threads: started, time: clock.elapsed() }
}
