//! The thread pool: the only file that deals with threads.
//!
//! Kernels split their work into tasks by shapes only, and pass the tasks to [`for_each`]. How many
//! threads run them is decided here and never changes a result.
//!
//! # Why not an existing pool
//!
//! An eager step is thousands of kernels of 10 to 1000 µs, each forked from the same thread outside
//! the pool. General work-stealing pools are built for forking from the inside: injecting a job
//! from outside costs 10 to 20 µs. A kernel needs much less than work stealing: one job at a time,
//! a counter of task numbers, and workers that are still awake when the next kernel comes a few
//! microseconds later. So workers spin for a short while after a job before they park, and a fork
//! is one store to a word that they poll.
//!
//! # The protocol
//!
//! All coordination goes through one 64-bit word, `state`:
//!
//! ```text
//!   63        32 31       17  16  15        0
//!  [   epoch    |   limit   |open|  active   ]
//! ```
//!
//! - The caller takes the `busy` flag (a second caller at the same time simply runs its own tasks
//!   inline), writes the job, and publishes `epoch + 1`, `open`, `active = 0`.
//! - A worker that sees a new epoch *joins* by a compare-exchange that adds one to `active`, which
//!   only succeeds while the job is open. Only joined workers read the job. Workers with a number
//!   at or above `limit` do not join.
//! - Each participant runs its own range of the tasks, then takes tasks from the ranges of others.
//!   The caller then clears `open` (no worker can join any more) and waits until `active` is zero.
//!
//! # Which participant runs which task
//!
//! The tasks are split into one range for each participant, always in the same order: the caller
//! has the first. So if two kernels split their work the same way, a core reads what it wrote, and
//! a weight's columns stay in the cache of the core that multiplies with them. A shared queue of
//! tasks moves cache lines between cores: in one run an LSTM step took 61 ms on two threads and 67
//! on one. A range is one word, `first` and `end`; its owner takes from the front, others, when
//! their own range is empty, from the back.
//!
//! So the caller never waits for a worker that slept through the job, and a job on an
//! oversubscribed machine costs at most what running it alone would.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How long a worker spins for the next job.
const SPIN: Duration = Duration::from_micros(50);
/// How long it then polls, yielding its core to other threads, before it parks. On a busy machine a
/// parked worker is woken on the core of its waker and competes with it; one that stays runnable is
/// moved to the first idle core.
const YIELD: Duration = Duration::from_millis(2);
const OPEN: u64 = 1 << 16;
const ACTIVE: u64 = OPEN - 1;
const LIMIT_SHIFT: u32 = 17;
const MAX_WORKERS: usize = (1 << 15) - 1;
/// Most participants with their own range of tasks; further ones only take from others.
const RANGES: usize = 64;

/// Keeps a contended word on separate cache lines (pairs of lines are prefetched together).
#[repr(align(128))]
struct CachePadded<T>(T);

#[derive(Clone, Copy)]
struct Job {
    call: unsafe fn(*const (), usize),
    data: *const (),
    /// Participants that have their own range of tasks.
    ranges: usize,
}

struct PoolThread {
    thread: Thread,
    parked: &'static AtomicBool,
}

struct ThreadPool {
    state: CachePadded<AtomicU64>,
    /// For each participant the rest of its range: the first task in the low half, the end in the
    /// high half.
    left: [CachePadded<AtomicU64>; RANGES],
    busy: AtomicBool,
    job: UnsafeCell<Job>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    workers: RwLock<Vec<PoolThread>>,
}

// SAFETY: `job` is written only by the holder of `busy` while `state` is closed with no active
// worker, and read only by workers that joined after it was published.
unsafe impl Sync for ThreadPool {}

unsafe fn nothing(_: *const (), _: usize) {}

static POOL: ThreadPool = ThreadPool {
    state: CachePadded(AtomicU64::new(0)),
    left: [const { CachePadded(AtomicU64::new(0)) }; RANGES],
    busy: AtomicBool::new(false),
    job: UnsafeCell::new(Job { call: nothing, data: std::ptr::null(), ranges: 0 }),
    panic: Mutex::new(None),
    workers: RwLock::new(Vec::new()),
};

/// Zero until it is first read or set.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Zero, or the number set by `with_threads` on this thread.
    static SCOPED: Cell<usize> = const { Cell::new(0) };
    /// Whether this thread is inside a task; nested calls then run inline.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Number of threads, the caller included, that kernels called from this thread may use.
///
/// ```
/// # use pullback_cpu::par::{threads, with_threads};
/// assert!(threads() >= 1);
/// assert_eq!(with_threads(2, threads), 2);
/// ```
#[doc(alias = "get_num_threads")]
pub fn threads() -> usize {
    let scoped = SCOPED.with(Cell::get);
    if scoped != 0 {
        return scoped;
    }
    match THREADS.load(Ordering::Relaxed) {
        0 => {
            let n = default_threads();
            THREADS.store(n, Ordering::Relaxed);
            n
        }
        n => n,
    }
}

fn default_threads() -> usize {
    static DEFAULT: OnceLock<usize> = OnceLock::new();
    *DEFAULT.get_or_init(|| {
        std::env::var("PULLBACK_NUM_THREADS")
            .ok()
            .and_then(|s| s.trim().parse::<usize>().ok())
            .filter(|&n| n > 0)
            .or_else(|| std::thread::available_parallelism().ok().map(Into::into))
            .unwrap_or(1)
            .min(MAX_WORKERS)
    })
}

/// Sets the number of threads for the whole process, from the next kernel on. Results do not depend
/// on it. Zero restores the default: the `PULLBACK_NUM_THREADS` variable, or one per core.
///
/// ```
/// # use pullback_cpu::par::{set_threads, threads};
/// set_threads(1);
/// assert_eq!(threads(), 1);
/// set_threads(0); // one per core again
/// ```
#[doc(alias = "set_num_threads")]
pub fn set_threads(n: usize) {
    let n = if n == 0 { default_threads() } else { n.min(MAX_WORKERS) };
    THREADS.store(n, Ordering::Relaxed);
}

/// Runs `f` with kernels called from this thread using `n` threads: at least one, and at most as
/// many as the pool may have.
///
/// ```
/// # use pullback_cpu::par::{threads, with_threads};
/// let before = threads();
/// assert_eq!(with_threads(1, threads), 1);
/// assert_eq!(threads(), before);
/// ```
pub fn with_threads<R>(n: usize, f: impl FnOnce() -> R) -> R {
    struct RestoreThreads(usize);
    impl Drop for RestoreThreads {
        fn drop(&mut self) {
            SCOPED.with(|s| s.set(self.0));
        }
    }
    let _restore = RestoreThreads(SCOPED.with(|s| s.replace(n.clamp(1, MAX_WORKERS))));
    f()
}

/// Calls `f(0)`, …, `f(tasks - 1)`, each once, in any order and on any thread of the pool; the
/// calling thread takes part. Returns when all are done. A panic in a task reaches the caller.
/// Calls from inside a task run inline.
#[inline]
pub fn for_each<F: Fn(usize) + Sync>(tasks: usize, f: F) {
    // SAFETY: `f` lives until all tasks are done, and may be shared between threads.
    unsafe { each(tasks, <F as Task>::call, (&raw const f).cast()) }
}

/// How a task is called: a method, so that a kernel is compiled in its own module and not in this
/// one (see `simd/work.rs`), and once, whether it runs inline or on the pool.
trait Task: Fn(usize) + Sync {
    /// # Safety
    /// `data` points at a live `Self`.
    unsafe fn call(data: *const (), task: usize);
}

impl<F: Fn(usize) + Sync> Task for F {
    unsafe fn call(data: *const (), task: usize) {
        // SAFETY: the caller guarantees that `data` is an `F`.
        unsafe { (*data.cast::<F>())(task) }
    }
}

/// # Safety
/// `call` may be called with `data` and each task, from several threads, until this returns.
unsafe fn each(tasks: usize, call: unsafe fn(*const (), usize), data: *const ()) {
    let helpers = threads().min(tasks).saturating_sub(1);
    let many = tasks > u32::MAX as usize;
    if helpers == 0 || many || INSIDE.with(Cell::get) || POOL.busy.swap(true, Ordering::Acquire) {
        for task in 0..tasks {
            // SAFETY: guaranteed by the caller.
            unsafe { call(data, task) };
        }
        return;
    }
    let ranges = (helpers + 1).min(RANGES);
    POOL.run(Job { call, data, ranges }, tasks, helpers);
}

/// A pointer that tasks share; they write disjoint parts of what it points at.
pub(crate) struct Shared<T>(pub(crate) *mut T);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Shared<T> {}
// SAFETY: see the type; every use is inside a kernel that owns the memory.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// The element at an index. (A method, so that closures capture the wrapper.)
    pub(crate) fn at(self, index: usize) -> *mut T {
        self.0.wrapping_add(index)
    }
}

impl ThreadPool {
    /// Runs a job with up to `helpers` workers; the caller has taken `busy`, which is released.
    fn run(&'static self, job: Job, tasks: usize, helpers: usize) {
        // SAFETY: we hold `busy` and the last job was closed with no worker left in it.
        unsafe { *self.job.get() = job };
        let cut = |i: usize| (tasks * i / job.ranges) as u64;
        for (i, left) in self.left[..job.ranges].iter().enumerate() {
            left.0.store(cut(i + 1) << 32 | cut(i), Ordering::Relaxed);
        }
        let workers = self.workers.read().unwrap_or_else(PoisonError::into_inner);
        let workers = if workers.len() < helpers {
            drop(workers);
            self.spawn_workers(helpers);
            self.workers.read().unwrap_or_else(PoisonError::into_inner)
        } else {
            workers
        };
        let helpers = helpers.min(workers.len());
        let epoch = (self.state.0.load(Ordering::Relaxed) >> 32).wrapping_add(1);
        let state = epoch << 32 | (helpers as u64) << LIMIT_SHIFT | OPEN;
        self.state.0.store(state, Ordering::SeqCst);
        for worker in &workers[..helpers] {
            if worker.parked.load(Ordering::SeqCst) && worker.parked.swap(false, Ordering::SeqCst) {
                worker.thread.unpark();
            }
        }
        drop(workers);

        self.take_part(job, 0);
        let mut left = self.state.0.fetch_and(!OPEN, Ordering::AcqRel) & ACTIVE;
        let mut spins = 0u32;
        while left != 0 {
            spins += 1;
            if spins < 20_000 {
                std::hint::spin_loop()
            } else {
                std::thread::yield_now()
            }
            left = self.state.0.load(Ordering::Acquire) & ACTIVE;
        }
        let panic = self.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.busy.store(false, Ordering::Release);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Runs tasks until there are none; a panic is stored for the caller and ends the job early.
    fn take_part(&self, job: Job, participant: usize) {
        INSIDE.with(|i| i.set(true));
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            for i in 0..job.ranges {
                let whose = (participant + i) % job.ranges;
                let own = whose == participant;
                while let Some(task) = self.take(whose, own) {
                    // SAFETY: the job's closure outlives the job: its owner waits in `run`.
                    unsafe { (job.call)(job.data, task) };
                }
            }
        }));
        INSIDE.with(|i| i.set(false));
        if let Err(panic) = outcome {
            self.left.iter().for_each(|left| left.0.store(0, Ordering::Relaxed));
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
        }
    }

    /// The next task of a range, for its owner from the front, for others from the back.
    fn take(&self, whose: usize, own: bool) -> Option<usize> {
        let step = |word: u64| {
            let (first, end) = (word & u64::from(u32::MAX), word >> 32);
            let rest = if own { end << 32 | (first + 1) } else { (end.max(1) - 1) << 32 | first };
            (first < end).then_some(rest)
        };
        let before =
            self.left[whose].0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step).ok()?;
        Some(if own { before & u64::from(u32::MAX) } else { (before >> 32) - 1 } as usize)
    }

    /// Starts workers until there are `wanted`, or as many as the system allows.
    #[cold]
    fn spawn_workers(&'static self, wanted: usize) {
        let mut workers = self.workers.write().unwrap_or_else(PoisonError::into_inner);
        while workers.len() < wanted {
            let index = workers.len();
            // Workers live as long as the process, so their flags may be leaked.
            let parked: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
            let work = move || self.work(index, parked);
            match std::thread::Builder::new().name(format!("pullback-{index}")).spawn(work) {
                Ok(handle) => workers.push(PoolThread { thread: handle.thread().clone(), parked }),
                Err(_) => break,
            }
        }
    }

    fn work(&self, index: usize, parked: &AtomicBool) {
        let mut seen = 0;
        loop {
            let mut state = self.wait(seen, index, parked);
            seen = state >> 32;
            while state >> 32 == seen && state & OPEN != 0 {
                match self.state.0.compare_exchange_weak(
                    state,
                    state + 1,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        // SAFETY: we joined an open job, so it stays until `active` falls to zero.
                        self.take_part(unsafe { *self.job.get() }, index + 1);
                        self.state.0.fetch_sub(1, Ordering::AcqRel);
                        break;
                    }
                    Err(now) => state = now,
                }
            }
        }
    }

    /// Waits for a state that is open to this worker and newer than `seen`.
    fn wait(&self, seen: u64, index: usize, parked: &AtomicBool) -> u64 {
        let wanted = |state: u64| {
            let limit = (state >> LIMIT_SHIFT) as usize & MAX_WORKERS;
            (state >> 32 != seen && state & OPEN != 0 && index < limit).then_some(state)
        };
        loop {
            let start = Instant::now();
            loop {
                for _ in 0..64 {
                    if let Some(state) = wanted(self.state.0.load(Ordering::Acquire)) {
                        return state;
                    }
                    std::hint::spin_loop();
                }
                let waited = start.elapsed();
                if waited > YIELD {
                    break;
                }
                if waited > SPIN {
                    std::thread::yield_now();
                }
            }
            parked.store(true, Ordering::SeqCst);
            if let Some(state) = wanted(self.state.0.load(Ordering::SeqCst)) {
                parked.store(false, Ordering::SeqCst);
                return state;
            }
            while parked.load(Ordering::SeqCst) {
                std::thread::park();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once() {
        for threads in [1, 2, 8] {
            with_threads(threads, || {
                for tasks in [0, 1, 2, 3, 7, 64, 1000] {
                    let counts: Vec<AtomicUsize> =
                        (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                    for_each(tasks, |i| {
                        counts[i].fetch_add(1, Ordering::Relaxed);
                    });
                    assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1));
                }
            });
        }
    }

    #[test]
    fn many_jobs_from_many_threads_and_nested() {
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    with_threads(3, || {
                        for round in 0..500 {
                            let sum = AtomicUsize::new(0);
                            for_each(10, |i| {
                                for_each(3, |j| {
                                    sum.fetch_add(i * j + round, Ordering::Relaxed);
                                });
                            });
                            assert_eq!(sum.into_inner(), 45 * 3 + 30 * round);
                        }
                    });
                });
            }
        });
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_survives() {
        for round in 0..20 {
            let caught = catch_unwind(|| {
                with_threads(4, || for_each(100, |i| assert!(i != 10 + round, "task {i}")));
            });
            assert!(caught.is_err());
            let sum = AtomicUsize::new(0);
            with_threads(4, || {
                for_each(10, |i| {
                    sum.fetch_add(i, Ordering::Relaxed);
                })
            });
            assert_eq!(sum.into_inner(), 45);
        }
    }

    #[test]
    fn scoped_number_of_threads() {
        with_threads(5, || {
            assert_eq!(threads(), 5);
            with_threads(1, || assert_eq!(threads(), 1));
            assert_eq!(threads(), 5);
        });
    }

    /// `cargo test --profile bench --workspace --test kernels fork_join_latency -- --ignored --nocapture`
    #[test]
    #[ignore = "a measurement"]
    fn fork_join_latency() {
        // A chain of multiplications takes about a nanosecond per step.
        let work = |n: u32| {
            let mut x = std::hint::black_box(1.000_000_1f64);
            for _ in 0..n {
                x *= std::hint::black_box(x);
            }
            std::hint::black_box(x);
        };
        let rounds = 20_000;
        for n in [0, 1000, 3000, 10_000] {
            let start = Instant::now();
            (0..rounds).for_each(|_| work(n));
            let alone = start.elapsed() / rounds;
            let mut best = Duration::MAX;
            with_threads(2, || {
                for _ in 0..20 {
                    let start = Instant::now();
                    for _ in 0..rounds / 20 {
                        for_each(2, |_| work(n));
                    }
                    best = best.min(start.elapsed() / (rounds / 20));
                }
            });
            println!("a task takes {alone:?}, two of them on two threads {best:?}");
        }
    }
}
