//! The threads that make batches.
//!
//! Of `w` threads, the first makes batches 0, w, 2w, …, the second 1, w + 1, …, and so on. Each has
//! its own bounded channel, and the receiver takes from the channels in turn. So batches arrive in
//! order without sorting, a thread that is ahead waits at its full channel, and a batch depends on
//! its number alone.
//!
//! An error is the last thing a thread sends, and the last thing that is received. Dropping the
//! receiver sets a flag, which the threads check between items, and closes the channels, which
//! wakes those that wait; then it joins them. It waits for at most one item per thread.

use pullback::{Error, Result, catch, with_threads};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{Builder, JoinHandle};

/// Makes a batch by its number; none past the last. Numbers come in ascending order.
pub(super) type NumberedBatchFn<B> = Box<dyn FnMut(usize) -> Option<Result<B>> + Send>;

/// Set when no more batches are wanted.
#[derive(Clone, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Batches in order, made here or by threads.
pub(super) struct LoaderWorkers<B> {
    source: BatchSource<B>,
    next: usize,
    done: bool,
}

enum BatchSource<B> {
    Caller(NumberedBatchFn<B>),
    Threads {
        receivers: Vec<Receiver<Option<Result<B>>>>,
        threads: Vec<JoinHandle<()>>,
        stop: Stop,
    },
}

impl<B: Send + 'static> LoaderWorkers<B> {
    /// Starts `count` threads that make the batches from `first` on, each at most `ahead` batches
    /// in advance; with none, the caller makes them. `maker` is called once per thread.
    pub fn start(
        first: usize,
        count: usize,
        ahead: usize,
        maker: impl Fn(Stop) -> NumberedBatchFn<B>,
    ) -> Result<LoaderWorkers<B>> {
        let stop = Stop::default();
        if count == 0 {
            return Ok(LoaderWorkers {
                source: BatchSource::Caller(maker(stop)),
                next: first,
                done: false,
            });
        }
        let mut out = LoaderWorkers {
            source: BatchSource::Threads {
                receivers: Vec::new(),
                threads: Vec::new(),
                stop: stop.clone(),
            },
            next: first,
            done: false,
        };
        for lane in 0..count {
            let (sender, receiver) = sync_channel(ahead);
            let (mut make, stop) = (maker(stop.clone()), stop.clone());
            let work = move || {
                let mut number = first.saturating_add(lane);
                while !stop.is_raised() {
                    // The kernels of a data thread stay on it: the pool is the training step's.
                    let made = with_threads(1, || guarded(&mut make, number));
                    let ends = !matches!(made, Some(Ok(_)));
                    if sender.send(made).is_err() || ends {
                        break;
                    }
                    number = number.saturating_add(count);
                }
            };
            let thread = Builder::new().name(format!("data-{lane}")).spawn(work).map_err(|e| {
                Error::argument("loader", format!("data thread {lane} cannot be started: {e}"))
            })?;
            if let BatchSource::Threads { receivers, threads, .. } = &mut out.source {
                receivers.push(receiver);
                threads.push(thread);
            }
        }
        out.next = 0;
        Ok(out)
    }

    /// The next batch; after an error, none.
    pub fn next(&mut self) -> Option<Result<B>> {
        if self.done {
            return None;
        }
        let number = self.next;
        self.next += 1;
        let made = match &mut self.source {
            BatchSource::Caller(make) => guarded(make, number),
            BatchSource::Threads { receivers, .. } => {
                let lane = number % receivers.len();
                receivers[lane].recv().unwrap_or_else(|_| {
                    Some(Err(Error::argument(
                        "loader",
                        format!("data thread {lane} ended unexpectedly"),
                    )))
                })
            }
        };
        if !matches!(made, Some(Ok(_))) {
            self.end();
        }
        made
    }

    /// Whether the last batch, or an error, was returned.
    pub fn is_done(&self) -> bool {
        self.done
    }
}

impl<B> LoaderWorkers<B> {
    fn end(&mut self) {
        self.done = true;
        if let BatchSource::Threads { receivers, threads, stop } = &mut self.source {
            stop.0.store(true, Ordering::Relaxed);
            receivers.clear();
            // They catch every panic, so joining cannot fail.
            threads.drain(..).for_each(|thread| drop(thread.join()));
        }
    }
}

impl<B> Drop for LoaderWorkers<B> {
    fn drop(&mut self) {
        self.end();
    }
}

fn guarded<B>(make: &mut NumberedBatchFn<B>, number: usize) -> Option<Result<B>> {
    match catch_unwind(AssertUnwindSafe(|| make(number))) {
        Ok(made) => made,
        Err(panic) => {
            let message = format!("batch {number} cannot be made: {}", panic_text(&*panic));
            Some(Err(Error::argument("loader", message)))
        }
    }
}

/// Runs `f`, which is the user's: its error, or its panic, becomes an error that names `what`.
pub(super) fn attempt<T>(what: impl Fn() -> String, f: impl FnOnce() -> Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(|| catch(f))) {
        Ok(Ok(Ok(value))) => Ok(value),
        Ok(Ok(Err(why)) | Err(why)) => {
            Err(Error::new(why.kind(), "loader", format!("{} failed", what())).because(why))
        }
        Err(panic) => {
            let message = format!("{} panicked: {}", what(), panic_text(&*panic));
            Err(Error::argument("loader", message))
        }
    }
}

/// The message of a panic.
fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}
