//! The engine `threads`: workers are threads of this process, for tests and small experiments.

use crate::board::Board;
use crate::call_digest::CallDigest;
use crate::timeout;
use crate::worker::{Medium, Worker};
use pullback::Group;
use pullback_ir::{Communicator, Error, ErrorKind, Result};
use std::collections::HashMap;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Messages by group, sender, receiver and number.
type Messages = HashMap<(u64, usize, usize, u64), Vec<u8>>;

/// What the threads share besides boards.
struct ThreadWorld {
    /// Why a thread will not come to any collective any more.
    gone: Mutex<Vec<Option<String>>>,
    /// Messages by group, sender, receiver and number.
    mail: Mutex<Messages>,
    /// Boards of sub-groups that not all have joined.
    boards: Mutex<HashMap<u64, Arc<Board>>>,
}

/// A group of threads.
struct Threads {
    id: u64,
    /// The ranks of its workers among all threads.
    ranks: Vec<usize>,
    world: Arc<ThreadWorld>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Medium for Threads {
    fn engine(&self) -> &'static str {
        "threads"
    }

    fn departure(&self, rank: usize, _joined: bool) -> Option<String> {
        lock(&self.world.gone)[self.ranks[rank]].clone()
    }

    fn post(&self, from: usize, to: usize, number: u64, message: Vec<u8>) -> io::Result<()> {
        lock(&self.world.mail).insert((self.id, from, to, number), message);
        Ok(())
    }

    fn take(&self, from: usize, to: usize, number: u64) -> io::Result<Vec<u8>> {
        let taken = lock(&self.world.mail).remove(&(self.id, from, to, number));
        taken.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn subgroup(&self, id: u64, ranks: &[usize]) -> io::Result<(Arc<Board>, Box<dyn Medium>)> {
        let mut boards = lock(&self.world.boards);
        let board = match boards.get(&id) {
            Some(board) => board.clone(),
            None => {
                let board = Arc::new(Board::of_process(ranks.len())?);
                boards.insert(id, board.clone());
                board
            }
        };
        let ranks = ranks.iter().map(|&rank| self.ranks[rank]).collect();
        Ok((board, Box::new(Threads { id, ranks, world: self.world.clone() })))
    }

    fn all_joined(&self, rank: usize) {
        if rank == 0 {
            lock(&self.world.boards).remove(&self.id);
        }
    }
}

/// Runs `f` on `n` threads, each with its group, and returns what they return, by rank. An error or
/// a panic of one makes every collective of the others fail, and is what is returned (or panics). A
/// message that was sent and not received is an error too.
///
/// ```
/// # use pullback_workers::threads;
/// let ranks = threads(3, |group| Ok(group.rank()))?;
/// assert_eq!(ranks, [0, 1, 2]);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// The error of the worker that failed first, or if there is no memory for them.
pub fn threads<R: Send>(n: usize, f: impl Fn(Group) -> Result<R> + Sync) -> Result<Vec<R>> {
    threads_within(timeout()?, n, f)
}

/// [`threads`] with a time-out for each collective.
///
/// ```
/// # use pullback_workers::threads_within;
/// # use std::time::Duration;
/// let sizes = threads_within(Duration::from_secs(5), 2, |group| Ok(group.size()))?;
/// assert_eq!(sizes, [2, 2]);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// As [`threads`].
pub fn threads_within<R: Send>(
    timeout: Duration,
    n: usize,
    f: impl Fn(Group) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    static GROUPS: AtomicU64 = AtomicU64::new(1);
    let id = GROUPS.fetch_add(1, Ordering::Relaxed);
    if n == 0 {
        return Err(Error::argument("threads", "a group has one worker at least"));
    }
    let board = Board::of_process(n).map_err(|error| {
        Error::new(ErrorKind::Memory, "threads", format!("no memory for {n} workers: {error}"))
    })?;
    let board = Arc::new(board);
    let world = Arc::new(ThreadWorld {
        gone: Mutex::new(vec![None; n]),
        mail: Mutex::default(),
        boards: Mutex::default(),
    });
    // The rank that failed first, in which way.
    let first = Mutex::new(None);
    let run = |rank: usize| {
        let medium = Threads { id, ranks: (0..n).collect(), world: world.clone() };
        let worker = Worker::join(id, rank, board.clone(), Box::new(medium), timeout, None)?;
        let worker = Arc::new(worker);
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
            pullback::catch(|| f(crate::group(worker.clone())))?
        }));
        let reason = match &outcome {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("it panicked".to_string()),
        };
        lock(&world.gone)[rank] = Some("has ended".to_string());
        if let Some(reason) = reason {
            lock(&first).get_or_insert(rank);
            worker.fail(&reason);
        }
        match outcome {
            Ok(outcome) => outcome,
            Err(payload) => panic::resume_unwind(payload),
        }
    };
    let outcomes: Vec<std::thread::Result<Result<R>>> = std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..n).map(|rank| scope.spawn(move || run(rank))).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let first = lock(&first).take();
    let mut results = Vec::with_capacity(n);
    let mut failure = None;
    for (rank, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Ok(Ok(result)) => results.push(result),
            other if failure.is_none() || first == Some(rank) => failure = Some(other),
            _ => {}
        }
    }
    match failure {
        None => match lock(&world.mail).iter().next() {
            None => Ok(results),
            Some(((_, from, to, _), message)) => Err(unread(*from, *to, message)),
        },
        Some(Ok(outcome)) => outcome.map(|_| results),
        Some(Err(payload)) => panic::resume_unwind(payload),
    }
}

/// A message that nobody has received: a mistake, for example of a worker that computes a tangent
/// and sends it to one that does not.
fn unread(from: usize, to: usize, message: &[u8]) -> Error {
    let what = message.first_chunk().map(CallDigest::decode);
    let what = what.map_or_else(String::new, |digest| format!(": {digest}"));
    let message = format!("worker {to} has not received a message of worker {from}{what}");
    Error::new(ErrorKind::Workers, "send", message)
}
