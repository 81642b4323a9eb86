//! Groups of workers, and collectives that run while computing goes on.
//!
//! A [`Group`] wraps the communicator of an engine. The tensor methods that take one
//! (`ops/collective.rs`) are ordinary ops. The calls that end in `_later` are not: they take a
//! value without history, return at once, and run on the group's own thread, or on a stream of the
//! device, in the order in which they were called, also among the ordinary ones.

use crate::backend::{Asked, Flight, Memory};
use crate::ops::collective;
use crate::{Device, Error, Result, Tensor, backend, events, fail, mode, trace};
use pullback_ir::infer::check;
use pullback_ir::{
    Alone, Collective, CollectiveCall, Combination, Communicator, ErrorKind, Fresh, GroupHandle,
    Line, Op, Spec, Started,
};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The workers of a group, as seen by one of them. Cheap to clone.
///
/// Engines make groups (the crate `pullback-workers`); [`Group::alone`] is that of one worker.
///
/// ```
/// use pullback::{Group, Tensor};
/// let group = Group::alone();
/// assert_eq!((group.rank(), group.size()), (0, 1));
/// let mean = Tensor::from([1.0, 3.0]).all_reduce_mean(&group);
/// assert_eq!(mean.to_vec::<f64>(), [1.0, 3.0]);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Group(GroupHandle);

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Group {
    /// A group over a communicator. One group is made for each communicator, and cloned where it is
    /// used: it numbers the calls, and workers compare the numbers.
    ///
    /// ```
    /// use pullback::Group;
    /// let group = Group::alone();
    /// let same = Group::new(group.communicator().clone());
    /// assert_eq!(same.size(), 1);
    /// ```
    pub fn new(communicator: Arc<dyn Communicator>) -> Group {
        Group(GroupHandle::new(communicator))
    }

    /// The group of a single worker, where every collective is the identity.
    ///
    /// ```
    /// use pullback::Group;
    /// assert_eq!(Group::alone().engine(), "alone");
    /// ```
    #[must_use]
    pub fn alone() -> Group {
        Group::new(Arc::new(Alone))
    }

    /// This worker's number in the group, from 0.
    ///
    /// ```
    /// assert_eq!(pullback::Group::alone().rank(), 0);
    /// ```
    #[must_use]
    pub fn rank(&self) -> usize {
        self.communicator().rank()
    }

    /// How many workers are in the group.
    ///
    /// ```
    /// assert_eq!(pullback::Group::alone().size(), 1);
    /// ```
    #[must_use]
    pub fn size(&self) -> usize {
        self.communicator().size()
    }

    /// The name of the engine.
    ///
    /// ```
    /// assert_eq!(pullback::Group::alone().engine(), "alone");
    /// ```
    #[must_use]
    pub fn engine(&self) -> &'static str {
        self.communicator().engine()
    }

    /// The communicator that the engine made.
    ///
    /// ```
    /// assert_eq!(pullback::Group::alone().communicator().size(), 1);
    /// ```
    #[must_use]
    pub fn communicator(&self) -> &Arc<dyn Communicator> {
        self.0.communicator()
    }

    pub(crate) fn handle(&self) -> &GroupHandle {
        &self.0
    }

    /// The same group with sums in one order, a balanced tree over the ranks, on every device.
    /// Engines of the host always sum so. NCCL has an order of its own, which depends on the number
    /// of workers and on how they are connected: sums of this group are then made on the host.
    ///
    /// ```
    /// use pullback::{Group, Tensor};
    /// let group = Group::alone().fixed_order();
    /// assert_eq!(Tensor::from([1.0, 2.0]).all_reduce(&group).to_vec::<f64>(), [1.0, 2.0]);
    /// ```
    #[must_use]
    pub fn fixed_order(&self) -> Group {
        Group(self.0.fixed_order())
    }

    /// A group of some of these workers, in ascending order; all of them call it with the same
    /// ranks. `None` for a worker that is not among them, which need not call it.
    ///
    /// ```
    /// use pullback::Group;
    /// assert_eq!(Group::alone().subgroup(&[0])?.unwrap().size(), 1);
    /// assert!(Group::alone().subgroup(&[1]).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a rank is not in the group or not in ascending order, or workers called with different
    /// ranks.
    #[track_caller]
    pub fn subgroup(&self, ranks: &[usize]) -> Result<Option<Group>> {
        let at = mode::user_line(Line::caller());
        let ascending = ranks.windows(2).all(|pair| pair[0] < pair[1]);
        if ranks.is_empty() || !ascending || ranks.iter().any(|&rank| rank >= self.size()) {
            let message = format!(
                "{ranks:?} are not some of the {} workers, in ascending order",
                self.size()
            );
            return Err(Error::argument("subgroup", message).at(at));
        }
        let made = self.communicator().subgroup(ranks).map_err(|e| e.at(at))?;
        Ok(made.map(Group::new))
    }

    /// Waits until every worker of the group is there. In a traced function it is an equation of
    /// the program.
    ///
    /// ```
    /// pullback::Group::alone().barrier()?;
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the workers called different collectives, a worker has exited, or time ran out.
    #[track_caller]
    pub fn barrier(&self) -> Result<()> {
        collective::barrier(self)
    }

    /// Starts [`Tensor::all_reduce`] of a tensor without history, and returns at once. Calls on a
    /// group run in the order in which they were made. A tensor that is given away, and that nobody
    /// else has, is not copied.
    ///
    /// ```
    /// use pullback::{Group, Tensor};
    /// let sum = Group::alone().all_reduce_later(&Tensor::from([1.0, 2.0]));
    /// // … other work …
    /// assert_eq!(sum.wait()?.to_vec::<f64>(), [1.0, 2.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the tensor is differentiated in either mode, or of `bool`.
    #[track_caller]
    pub fn all_reduce_later(&self, x: impl Into<Tensor>) -> Pending {
        self.later(Collective::AllReduce(Combination::Sum), x.into())
    }

    /// Starts [`Tensor::all_gather`] along axis 0 of a tensor without history, and returns at once.
    ///
    /// ```
    /// use pullback::{Group, Tensor};
    /// let all = Group::alone().all_gather_later(&Tensor::from([1.0, 2.0]));
    /// assert_eq!(all.wait()?.to_vec::<f64>(), [1.0, 2.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the tensor is differentiated in either mode, or has no axis.
    #[track_caller]
    pub fn all_gather_later(&self, x: impl Into<Tensor>) -> Pending {
        self.later(Collective::AllGather, x.into())
    }

    /// Starts [`Tensor::reduce_scatter`] along axis 0 of a tensor without history, and returns at
    /// once.
    ///
    /// ```
    /// use pullback::{Group, Tensor};
    /// let part = Group::alone().reduce_scatter_later(&Tensor::from([1.0, 2.0]));
    /// assert_eq!(part.wait()?.to_vec::<f64>(), [1.0, 2.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the tensor is differentiated in either mode, of `bool`, or its first axis cannot be cut
    /// into as many equal parts as there are workers.
    #[track_caller]
    pub fn reduce_scatter_later(&self, x: impl Into<Tensor>) -> Pending {
        self.later(Collective::ReduceScatter, x.into())
    }

    /// Starts [`Tensor::broadcast_from`] of a tensor without history, and returns at once.
    ///
    /// ```
    /// use pullback::{Group, Tensor};
    /// let same = Group::alone().broadcast_later(&Tensor::from([1.0, 2.0]), 0);
    /// assert_eq!(same.wait()?.to_vec::<f64>(), [1.0, 2.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the tensor is differentiated in either mode, or there is no such worker.
    #[track_caller]
    pub fn broadcast_later(&self, x: impl Into<Tensor>, root: usize) -> Pending {
        self.later(Collective::Broadcast { root }, x.into())
    }

    #[track_caller]
    fn later(&self, collective: Collective, x: Tensor) -> Pending {
        let at = mode::user_line(Line::caller());
        let name = collective.name();
        let state = fail::or_raise(x.state(at));
        if state.is_differentiated(&x) {
            let error = Error::gradient(name, "asynchronous collectives are not differentiable")
                .on([x.spec()])
                .hint("detach the tensor, or use the method of `Tensor`");
            fail::raise(error.at(at));
        }
        let op = collective::op(self, collective);
        if trace::active() {
            // A compiled program starts its collectives as early as it can by itself.
            return Pending(PendingState::Ready(crate::apply::apply(op, &[&x])));
        }
        // Not through `apply`, which records, checks and reports results as it returns: this one is
        // not complete then. What `apply` does about an operand is done here: it has no history and
        // no tangents, and reads are events.
        events::values_read(&[&x], at);
        events::work_starts(name, [&x], at);
        let operands = [x.spec()];
        let spec = fail::or_raise(check(&op, &operands).map_err(|e| e.at(at))).results()[0].clone();
        let given = x.spec().with_device(Device::Cpu);
        // A copy, as the tensor may be written before the call is made, unless there is no other
        // reference.
        let input = match x.is_sole_owner() && x.0.layout.is_dense() {
            true => x,
            false => fail::or_raise(backend::copy(&x, at).map_err(|e| e.at(at))),
        };
        let flight = backend::start(&op, &input, &spec, at).map_err(|e| e.at(at));
        match flight.transpose() {
            None => {}
            Some(flight) => return Pending(PendingState::OnDevice(flight, at)),
        }
        let place: Arc<Mutex<Option<Memory>>> = Arc::default();
        let (filled, made) = (place.clone(), spec.clone());
        // A sum that is given away is made in its own memory.
        let sums = matches!(&op, Op::Collective(of) if of.collective.is_all_reduce());
        let input = match sums {
            true => backend::into_host(input),
            false => Err(input),
        };
        let run = move |group: &dyn Communicator, sequence: u64| {
            let Op::Collective(of) = &op else { unreachable!("made above") };
            let (collective, operand) = (&of.collective, &given);
            let call = CollectiveCall { collective, operand, sequence, line: at };
            let output = match input {
                Ok(mut memory) => {
                    memory.rewrite(made.dtype, |bytes| group.run_in_place(&call, bytes))?;
                    Memory::Host(memory)
                }
                Err(input) => {
                    let run = |to: &mut Fresh<'_>| {
                        backend::with_bytes(&input, |from| group.run_fresh(&call, from, to))?
                    };
                    backend::fresh_host(name, &made, run)?
                }
            };
            *filled.lock().unwrap_or_else(PoisonError::into_inner) = Some(output);
            Ok(())
        };
        let started = self.0.start(name, run);
        Pending(PendingState::Started { started, place, spec, name, at })
    }
}

/// A collective that was started. Dropping it does not stop it: other workers count on it.
///
/// ```
/// use pullback::{Group, Pending, Tensor};
/// let sum: Pending = Group::alone().all_reduce_later(&Tensor::from(3.0));
/// assert_eq!(sum.wait()?.item::<f64>(), 3.0);
/// # Ok::<(), pullback::Error>(())
/// ```
#[must_use = "its result comes with `wait`"]
pub struct Pending(PendingState);

enum PendingState {
    /// Made by the device, or why it could not be started.
    OnDevice(Result<Flight>, Line),
    Started {
        started: Started,
        place: Arc<Mutex<Option<Memory>>>,
        spec: Spec,
        name: &'static str,
        at: Line,
    },
    Ready(Tensor),
}

impl Pending {
    /// Waits until the result is complete, and returns it. Where the devices of the workers
    /// exchange memory by themselves, it waits for the other workers alone, and what uses the
    /// result comes after it on the device.
    ///
    /// ```
    /// use pullback::{Group, Tensor};
    /// let sum = Group::alone().all_reduce_later(&Tensor::from(3.0));
    /// assert_eq!(sum.wait()?.item::<f64>(), 3.0);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the workers called different collectives, a worker has exited, time ran out, or an
    /// earlier collective of the group failed.
    pub fn wait(self) -> Result<Tensor> {
        match self.0 {
            PendingState::Ready(tensor) => Ok(tensor),
            PendingState::OnDevice(flight, at) => {
                let located = |e: Error| if e.location().is_some() { e } else { e.at(at) };
                flight.and_then(Flight::wait).map_err(located)
            }
            PendingState::Started { started, place, spec, name, at } => {
                started.wait().map_err(|e| e.at(at))?;
                let memory = place.lock().unwrap_or_else(PoisonError::into_inner).take();
                let missing = || Error::new(ErrorKind::Workers, name, "has no result").at(at);
                let by = Asked::by(name, at);
                backend::from_host(spec, memory.ok_or_else(missing)?, by).map_err(|e| e.at(at))
            }
        }
    }
}
