//! The group of an op: its communicator, and the order in which this worker's calls reach it.
//!
//! Workers agree on what they compute together by the order of their calls. So each call takes a
//! number when it is *issued*, and calls run in the order of these numbers, one at a time, whether
//! they run on the thread that issued them ([`GroupHandle::run`]) or on the group's own thread
//! while the issuer computes on ([`GroupHandle::start`]). That thread is started by the first call
//! that needs it and ends with the last handle.
//!
//! A group whose call failed is not used again: workers may be at different places, and what is
//! sent next would be taken for something else. Later calls fail at once and give the first error
//! as their cause.

use crate::device_group::JoinedDevice;
use crate::{Collective, Communicator, Error, ErrorKind, Family, Line, Op, Program, Result};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A communicator in an op. Clones share the numbering of calls, and are equal.
#[derive(Clone)]
pub struct GroupHandle {
    shared: Arc<GroupShared>,
    /// Sums are the tree of the contract, also if the devices of the workers add in another order.
    fixed_order: bool,
}

struct GroupShared {
    communicator: Arc<dyn Communicator>,
    order: Arc<CallOrder>,
    /// What the devices of the workers exchange memory by, once that was asked for.
    joined: Mutex<Option<JoinedDevice>>,
    /// The way to the group's own thread, once it was needed.
    thread: Mutex<Option<Sender<GroupTask>>>,
}

type GroupTask = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct CallOrder {
    state: Mutex<OrderState>,
    changed: Condvar,
}

#[derive(Default)]
struct OrderState {
    /// How many calls were issued.
    issued: u64,
    /// How many of them have ended.
    ended: u64,
    /// Why the group is not used any more.
    broken: Option<Error>,
}

/// What the workers of a group compute together, as an op.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CollectiveOp {
    /// The operation.
    pub collective: Collective,
    /// The workers.
    pub group: GroupHandle,
    /// The user's line, which workers show each other.
    pub line: Line,
    /// The result is complete only after the [`Op::Wait`](crate::Op::Wait) that takes it: computing
    /// goes on meanwhile. Only a compiler makes these.
    pub started: bool,
}

impl CollectiveOp {
    /// The same operation of the same group and line, for another collective.
    #[must_use]
    pub fn with(&self, collective: Collective) -> CollectiveOp {
        CollectiveOp { collective, ..self.clone() }
    }
}

impl Op {
    /// Whether its place among others of which this holds must stay, as other workers see it:
    /// collectives, and what contains them. No pass removes, merges, repeats or reorders these.
    ///
    /// ```
    /// # use pullback_ir::Op;
    /// assert!(!Op::Dot.is_ordered());
    /// ```
    pub fn is_ordered(&self) -> bool {
        match self.family() {
            Family::Collective => true,
            Family::Structure(inside) => inside.programs().into_iter().any(Program::is_ordered),
            Family::Source | Family::Pointwise(_) | Family::View | Family::Movement => false,
            Family::Index | Family::Reduction | Family::Window | Family::Linear => false,
            Family::Fused => false,
        }
    }
}

/// A call that was issued and has a number.
struct IssuedCall {
    number: u64,
    order: Arc<CallOrder>,
}

/// A call that runs on the group's own thread.
pub struct Started(Arc<CallResult>);

#[derive(Default)]
struct CallResult {
    result: Mutex<Option<Result<()>>>,
    changed: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CallOrder {
    fn issue(self: &Arc<CallOrder>) -> IssuedCall {
        let mut state = lock(&self.state);
        state.issued += 1;
        IssuedCall { number: state.issued - 1, order: self.clone() }
    }
}

impl IssuedCall {
    /// Makes the call when all before it have ended.
    fn call(self, op: &'static str, f: impl FnOnce(u64) -> Result<()>) -> Result<()> {
        if let Some(first) = self.reached().broken.clone() {
            let message = "the group is not used any more, as an earlier call of it failed";
            return Err(Error::new(ErrorKind::Workers, op, message).because(first));
        }
        // The code of an engine may panic: that must not leave other calls waiting.
        let done = catch_unwind(AssertUnwindSafe(|| f(self.number)));
        let result = done.unwrap_or_else(|payload| Err(panicked(op, &*payload)));
        if let Err(error) = &result {
            lock(&self.order.state).broken = Some(error.clone());
        }
        result
    }

    fn reached(&self) -> MutexGuard<'_, OrderState> {
        let mut state = lock(&self.order.state);
        while state.ended != self.number {
            state = self.order.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }
}

impl Drop for IssuedCall {
    fn drop(&mut self) {
        self.reached().ended += 1;
        self.order.changed.notify_all();
    }
}

fn panicked(op: &'static str, payload: &(dyn std::any::Any + Send)) -> Error {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_string());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    let text = text.or_else(|| payload.downcast_ref::<Error>().map(Error::to_string));
    let message = format!("the engine panicked: {}", text.unwrap_or_else(|| "no text".into()));
    Error::new(ErrorKind::Workers, op, message)
}

impl GroupHandle {
    /// A group, with calls numbered from 0. There is one for each communicator: of two, each would
    /// number its own calls.
    pub fn new(communicator: Arc<dyn Communicator>) -> GroupHandle {
        let (order, joined, thread) = (Arc::default(), Mutex::default(), Mutex::default());
        let shared = Arc::new(GroupShared { communicator, order, joined, thread });
        GroupHandle { shared, fixed_order: false }
    }

    /// The same group, whose sums are the tree of the contract on every device.
    #[must_use]
    pub fn fixed_order(&self) -> GroupHandle {
        GroupHandle { shared: self.shared.clone(), fixed_order: true }
    }

    /// Whether sums must be the tree of the contract on every device.
    pub fn has_fixed_order(&self) -> bool {
        self.fixed_order
    }

    /// What the devices of the workers exchange memory by.
    pub(crate) fn joined(&self) -> MutexGuard<'_, Option<JoinedDevice>> {
        lock(&self.shared.joined)
    }

    /// The communicator.
    pub fn communicator(&self) -> &Arc<dyn Communicator> {
        &self.shared.communicator
    }

    /// Makes a call on this thread, after all that were issued before; `f` gets its number.
    ///
    /// # Errors
    /// That of the call, or that an earlier one failed.
    pub fn run(
        &self,
        op: &'static str,
        f: impl FnOnce(&dyn Communicator, u64) -> Result<()>,
    ) -> Result<()> {
        self.shared.order.issue().call(op, |number| f(&*self.shared.communicator, number))
    }

    /// Makes a call on the group's own thread, after all that were issued before; `f` gets its
    /// number. Its memory must be there until [`Started::wait`] has returned.
    pub fn start(
        &self,
        op: &'static str,
        f: impl FnOnce(&dyn Communicator, u64) -> Result<()> + Send + 'static,
    ) -> Started {
        let outcome = Arc::new(CallResult::default());
        let (communicator, sender) =
            (self.shared.communicator.clone(), ResultSender(outcome.clone()));
        // The number is taken under the lock, so that jobs are sent in the order of their numbers.
        let mut thread = lock(&self.shared.thread);
        let turn = self.shared.order.issue();
        let job: GroupTask = Box::new(move || {
            let result = turn.call(op, |number| f(&*communicator, number));
            sender.tell(result);
        });
        let jobs = thread.get_or_insert_with(spawn);
        if let Err(back) = jobs.send(job) {
            // There is no thread: the machine refused to start one.
            back.0();
        }
        Started(outcome)
    }
}

/// Starts the thread of a group. If that fails, sending fails and the caller makes its calls.
fn spawn() -> Sender<GroupTask> {
    let (jobs, received) = channel::<GroupTask>();
    let work = move || received.into_iter().for_each(|job| job());
    let _ = std::thread::Builder::new().name("collectives".into()).spawn(work);
    jobs
}

/// Tells the outcome of a call, also if the call was never made.
struct ResultSender(Arc<CallResult>);

impl ResultSender {
    fn tell(&self, result: Result<()>) {
        lock(&self.0.result).get_or_insert(result);
        self.0.changed.notify_all();
    }
}

impl Drop for ResultSender {
    fn drop(&mut self) {
        let message = "the thread of the group has ended";
        self.tell(Err(Error::new(ErrorKind::Workers, "collective", message)));
    }
}

impl Started {
    /// Waits for the call, and gives its result. It may be called again.
    ///
    /// # Errors
    /// That of the call, or that an earlier one failed.
    pub fn wait(&self) -> Result<()> {
        let mut result = lock(&self.0.result);
        loop {
            match &*result {
                Some(result) => return result.clone(),
                None => {
                    result = self.0.changed.wait(result).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

impl PartialEq for GroupHandle {
    fn eq(&self, other: &GroupHandle) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared) && self.fixed_order == other.fixed_order
    }
}

impl Eq for GroupHandle {}

impl Hash for GroupHandle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (Arc::as_ptr(&self.shared) as usize, self.fixed_order).hash(state);
    }
}

impl fmt::Debug for GroupHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = self.communicator();
        write!(f, "{}[{}/{}]", group.engine(), group.rank(), group.size())
    }
}
