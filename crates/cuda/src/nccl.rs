//! Collectives between GPUs: NCCL, on a stream of its own.
//!
//! The host engine of the group joins the GPUs and compares every call (`ir/device_group.rs`); then
//! the group's own thread gives the call to NCCL. Events order it:
//!
//! ```text
//! queue          … writes x │ event       other work        │ waits │ reads y
//! collectives               └─ waits │ all_reduce x → y │ event ┘
//! ```
//!
//! [`start`] records the first event, when the call is issued. [`NcclFlight::wait`] waits on the
//! host until the call is in NCCL's stream, for which all workers must have made it, and lets the
//! queue wait for the second event. The host never waits for a GPU.
//!
//! **What goes through the host instead** ([`way`]): messages between two workers, which the
//! contract buffers and NCCL does not; the largest and smallest of floats, as NCCL's lose NaN; and
//! sums of floats of a group with a fixed order. NCCL adds in an order that depends on the number
//! of workers and how they are connected, and rounds bf16 and f16 after every addition, not once.
//!
//! **Nothing hangs.** A thread watches what is in flight. If NCCL reports an error, the host engine
//! says that a worker is gone, or time is up, it aborts the communicator, which ends the kernels
//! that wait. What they have computed is of no use: first a word is set that keeps updates of
//! parameters from changing anything, then the group fails on all workers, and the error is that of
//! the next wait for the device.

use crate::gpu::{Gpu, LibraryHandle, device_error};
use crate::loops::StridedOperand;
use crate::ops;
use crate::pinned::Event;
use pullback_cuda_sys::{DevicePtr, NcclConfig, NcclId, Ptr, nccl};
use pullback_ir::{
    Collective, CollectiveCall, CollectiveOp, Combination, Communicator, DType, Device,
    DeviceFlight, DeviceJoin, Error, ErrorKind, Line, Result, Shape, Spec, Started,
};
use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_int};
use std::ptr::null_mut;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// NCCL's codes: a call that goes on by itself.
const IN_PROGRESS: c_int = 7;
/// NCCL's name of bytes.
const BYTES: c_int = 1;
/// How often the thread looks at what is in flight.
const LOOK: Duration = Duration::from_millis(50);
/// How long a call may go on after another worker is gone: it may have all it needs.
const GRACE: Duration = Duration::from_secs(3);

/// How NCCL makes a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NcclCall {
    /// With NCCL's dtype and operation.
    AllReduce(c_int, c_int),
    ReduceScatter(c_int, c_int),
    AllGather,
    Broadcast(usize),
    AllToAll,
}

/// How NCCL makes a collective; `None` if the host does. It follows from the call alone, so all
/// workers decide the same.
pub(crate) fn nccl_call(
    collective: &Collective,
    dtype: DType,
    fixed_order: bool,
) -> Option<NcclCall> {
    if collective.is_sum() && dtype.is_float() && fixed_order {
        return None;
    }
    match collective {
        Collective::AllReduce(combination) => {
            let (dtype, operation) = operation(*combination, dtype)?;
            Some(NcclCall::AllReduce(dtype, operation))
        }
        Collective::ReduceScatter => {
            let (dtype, operation) = operation(Combination::Sum, dtype)?;
            Some(NcclCall::ReduceScatter(dtype, operation))
        }
        Collective::AllGather => Some(NcclCall::AllGather),
        Collective::Broadcast { root } => Some(NcclCall::Broadcast(*root)),
        Collective::AllToAll => Some(NcclCall::AllToAll),
        Collective::Send { .. } | Collective::Recv { .. } | Collective::Barrier => None,
    }
}

/// NCCL's dtype and operation.
fn operation(combination: Combination, dtype: DType) -> Option<(c_int, c_int)> {
    let of = match dtype {
        DType::F64 => 8,
        DType::F32 => 7,
        DType::BF16 => 9,
        DType::F16 => 6,
        DType::I64 => 4,
        DType::I32 => 2,
        DType::U8 | DType::Bool => 1,
    };
    match (combination, dtype) {
        // One of them is true: the largest.
        (Combination::Sum, DType::Bool) => Some((of, 2)),
        (Combination::Sum, _) => Some((of, 0)),
        (Combination::Max | Combination::Min, dtype) if dtype.is_float() => None,
        (Combination::Max, _) => Some((of, 2)),
        (Combination::Min, _) => Some((of, 3)),
    }
}

/// A communicator of NCCL.
pub(crate) struct Nccl {
    shared: Arc<NcclShared>,
    /// To the thread that watches. It ends, and the communicator with it, when this is dropped.
    watch: Mutex<Sender<WatchedCall>>,
}

struct NcclShared {
    gpu: Arc<Gpu>,
    library: &'static pullback_cuda_sys::Nccl,
    /// `None` once it was aborted or destroyed. NCCL takes one call at a time.
    communicator: Mutex<Option<LibraryHandle>>,
    stream: LibraryHandle,
    /// A stream that never waits.
    aside: LibraryHandle,
    group: Arc<dyn Communicator>,
}

/// A call in NCCL's stream.
struct WatchedCall {
    done: Arc<Event>,
    started: Instant,
    op: &'static str,
    at: Line,
}

/// Joins the GPUs of a group.
pub(crate) struct NcclJoin<'a>(pub &'a Arc<Gpu>);

impl DeviceJoin for NcclJoin<'_> {
    type Engine = Nccl;

    fn name(&self) -> &'static str {
        "NCCL"
    }

    fn offer(&self, rank: usize) -> std::result::Result<Vec<u8>, String> {
        let library = nccl()?;
        match rank {
            0 => Ok(draw_id(library)?.0.to_vec()),
            _ => Ok(Vec::new()),
        }
    }

    fn join(
        &self,
        group: &Arc<dyn Communicator>,
        offers: &[Vec<u8>],
    ) -> std::result::Result<Nccl, String> {
        let id = offers.first().and_then(|id| id.as_slice().try_into().ok());
        let id = NcclId(id.ok_or("worker 0 has drawn no id")?);
        self.0.make_current();
        let communicator = LibraryHandle(connect(group, id)?);
        Nccl::new(self.0, group, communicator).map_err(|error| error.to_string())
    }
}

/// What the workers of a communicator have in common.
pub(crate) fn draw_id(library: &pullback_cuda_sys::Nccl) -> std::result::Result<NcclId, String> {
    let mut id = NcclId([0; 128]);
    // SAFETY: writes one id.
    match unsafe { (library.ncclGetUniqueId)(&mut id) } {
        0 => Ok(id),
        code => Err(format!("NCCL cannot draw an id: {}", nccl_text(library, null_mut(), code))),
    }
}

/// Makes a communicator on the GPU whose context is current, together with all workers. It gives up
/// well before the group does, so that the workers can still go through the host.
pub(crate) fn connect(
    group: &Arc<dyn Communicator>,
    id: NcclId,
) -> std::result::Result<Ptr, String> {
    let library = nccl()?;
    let (size, rank) = (group.size() as c_int, group.rank() as c_int);
    let (mut communicator, mut config) = (null_mut(), NcclConfig::non_blocking());
    // SAFETY: writes one handle. The id was drawn by NCCL.
    let mut code =
        unsafe { (library.ncclCommInitRankConfig)(&mut communicator, size, id, rank, &mut config) };
    let deadline = Instant::now().checked_add(group.timeout() / 2);
    while code == IN_PROGRESS {
        if let Some(why) = group.broken() {
            abort(library, communicator);
            return Err(why);
        }
        if deadline.is_some_and(|deadline| Instant::now() > deadline) {
            abort(library, communicator);
            let seconds = group.timeout().as_secs_f64() / 2.0;
            return Err(format!("NCCL did not connect the workers within {seconds} s"));
        }
        std::thread::sleep(Duration::from_millis(1));
        code = progress(library, communicator);
    }
    match code {
        0 => Ok(communicator),
        code => {
            let why = nccl_text(library, communicator, code);
            abort(library, communicator);
            Err(format!("NCCL cannot connect the workers: {why}"))
        }
    }
}

/// What NCCL says of a code, and of the last error of a communicator: one that lives, or null.
fn nccl_text(library: &pullback_cuda_sys::Nccl, communicator: Ptr, code: c_int) -> String {
    let text = |text: *const c_char| match text.is_null() {
        true => String::new(),
        // SAFETY: it ends with a zero, and lives until the next call of the library at least.
        false => unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_string(),
    };
    // SAFETY: takes any code.
    let name = text(unsafe { (library.ncclGetErrorString)(code) });
    // SAFETY: takes a communicator, or null for the last error of the process.
    let last = text(unsafe { (library.ncclGetLastError)(communicator) });
    if last.is_empty() { name } else { format!("{name}: {last}") }
}

/// How far the last call has come: a code.
fn progress(library: &pullback_cuda_sys::Nccl, communicator: Ptr) -> c_int {
    let mut state = 0;
    // SAFETY: writes one code. The communicator was neither aborted nor destroyed.
    match unsafe { (library.ncclCommGetAsyncError)(communicator, &mut state) } {
        0 => state,
        code => code,
    }
}

fn abort(library: &pullback_cuda_sys::Nccl, communicator: Ptr) {
    if !communicator.is_null() {
        // SAFETY: nothing uses the handle afterwards. Kernels that wait for other workers end.
        unsafe { (library.ncclCommAbort)(communicator) };
    }
}

impl Nccl {
    /// Takes a communicator that is connected.
    fn new(
        gpu: &Arc<Gpu>,
        group: &Arc<dyn Communicator>,
        communicator: LibraryHandle,
    ) -> Result<Nccl> {
        let library = nccl().map_err(|why| device_error("nccl", why.to_string()))?;
        let shared = Arc::new(NcclShared {
            gpu: gpu.clone(),
            library,
            communicator: Mutex::new(Some(communicator)),
            stream: gpu.new_stream()?,
            aside: gpu.new_stream()?,
            group: group.clone(),
        });
        let (watch, watched) = channel();
        let thread = std::thread::Builder::new().name("nccl".into());
        let watcher = shared.clone();
        thread
            .spawn(move || watcher.watch(&watched))
            .map_err(|error| device_error("nccl", format!("no thread to watch NCCL: {error}")))?;
        Ok(Nccl { shared, watch: Mutex::new(watch) })
    }

    /// Puts a call into NCCL's stream, behind an event of the queue. Returns the event of its end.
    pub fn launch(
        &self,
        (way, op, at): (NcclCall, &'static str, Line),
        (from, from_bytes): (DevicePtr, usize),
        (to, to_bytes): (DevicePtr, usize),
        element: usize,
        ready: &Event,
    ) -> Result<Arc<Event>> {
        let shared = &self.shared;
        let (gpu, stream) = (&shared.gpu, shared.stream);
        gpu.make_current();
        let communicator = shared.communicator();
        let Some(LibraryHandle(handle)) = *communicator else {
            let why = shared.group.broken().unwrap_or_else(|| "NCCL was stopped".to_string());
            return Err(Error::new(ErrorKind::Workers, op, why).at(at));
        };
        ready.before(gpu, stream)?;
        if to_bytes > 0 {
            let code = shared.call(way, handle, (from, from_bytes), (to, to_bytes / element));
            shared.finish(handle, code).map_err(|why| {
                shared.group.fail(&why);
                Error::new(ErrorKind::Workers, op, why).at(at)
            })?;
        }
        let done = Event::record(gpu, stream)?;
        let watched = WatchedCall { done: done.clone(), started: Instant::now(), op, at };
        // The thread ends after this is dropped.
        let _ = self.watch.lock().unwrap_or_else(PoisonError::into_inner).send(watched);
        Ok(done)
    }
}

impl NcclShared {
    fn communicator(&self) -> MutexGuard<'_, Option<LibraryHandle>> {
        self.communicator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls NCCL with an operand of so many bytes and a result of so many elements.
    fn call(
        &self,
        way: NcclCall,
        communicator: Ptr,
        (from, bytes): (DevicePtr, usize),
        (to, count): (DevicePtr, usize),
    ) -> c_int {
        let (nccl, stream) = (self.library, self.stream.0);
        // SAFETY: operand and result are memory of the device, as long as the call of all workers
        // says, and stay until the queue has waited for the call.
        unsafe {
            match way {
                NcclCall::AllReduce(dtype, operation) => {
                    (nccl.ncclAllReduce)(from, to, count, dtype, operation, communicator, stream)
                }
                NcclCall::ReduceScatter(dtype, operation) => {
                    let of = (nccl.ncclReduceScatter, dtype, operation);
                    (of.0)(from, to, count, of.1, of.2, communicator, stream)
                }
                NcclCall::AllGather => {
                    (nccl.ncclAllGather)(from, to, bytes, BYTES, communicator, stream)
                }
                NcclCall::Broadcast(root) => {
                    let root = root as c_int;
                    (nccl.ncclBroadcast)(from, to, bytes, BYTES, root, communicator, stream)
                }
                NcclCall::AllToAll => {
                    let part = bytes / self.group.size();
                    let mut code = (nccl.ncclGroupStart)();
                    for rank in 0..self.group.size() {
                        let (at, peer) = ((rank * part) as u64, rank as c_int);
                        let sent =
                            (nccl.ncclSend)(from + at, part, BYTES, peer, communicator, stream);
                        let received =
                            (nccl.ncclRecv)(to + at, part, BYTES, peer, communicator, stream);
                        code = first_error([code, sent, received]);
                    }
                    first_error([code, (nccl.ncclGroupEnd)(), 0])
                }
            }
        }
    }

    /// Waits until a call is in the stream, which does not wait for other workers once they are
    /// connected. (The first of a kind connects more of them.)
    fn finish(&self, communicator: Ptr, mut code: c_int) -> std::result::Result<(), String> {
        let deadline = Instant::now().checked_add(self.group.timeout());
        while code == IN_PROGRESS {
            if let Some(why) = self.group.broken() {
                return Err(why);
            }
            if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                return Err("NCCL did not start a call in time (PULLBACK_TIMEOUT)".to_string());
            }
            std::thread::yield_now();
            code = progress(self.library, communicator);
        }
        match code {
            0 => Ok(()),
            code => Err(format!("NCCL: {}", nccl_text(self.library, communicator, code))),
        }
    }

    /// Looks after what is in flight until the communicator is unused, and ends it then.
    fn watch(&self, watched: &Receiver<WatchedCall>) {
        let mut under_way: VecDeque<WatchedCall> = VecDeque::new();
        let mut broken_since: Option<Instant> = None;
        let mut in_use = true;
        self.gpu.make_current();
        while in_use || !under_way.is_empty() {
            match under_way.is_empty() {
                true => match watched.recv() {
                    Ok(call) => under_way.push_back(call),
                    Err(_) => in_use = false,
                },
                false => match watched.recv_timeout(LOOK) {
                    Ok(call) => under_way.push_back(call),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => {
                        in_use = false;
                        std::thread::sleep(LOOK);
                    }
                },
            }
            while under_way.front().is_some_and(|call| call.done.is_past()) {
                under_way.pop_front();
                broken_since = None;
            }
            let Some(call) = under_way.front() else { continue };
            if let Some(why) = self.trouble(call, &mut broken_since) {
                self.give_up(call, &why);
                return;
            }
        }
        self.end();
    }

    /// Why a call that is in flight will not end.
    fn trouble(&self, call: &WatchedCall, broken_since: &mut Option<Instant>) -> Option<String> {
        {
            let communicator = self.communicator();
            let handle = (*communicator)?.0;
            let code = progress(self.library, handle);
            if code != 0 && code != IN_PROGRESS {
                return Some(format!("NCCL: {}", nccl_text(self.library, handle, code)));
            }
        }
        if let Some(why) = self.group.broken()
            && broken_since.get_or_insert_with(Instant::now).elapsed() > GRACE
        {
            return Some(why);
        }
        let limit = self.group.timeout();
        (call.started.elapsed() > limit).then(|| {
            format!(
                "the GPUs did not end the call within {} s (PULLBACK_TIMEOUT)",
                limit.as_secs_f64()
            )
        })
    }

    /// Ends the kernels that wait, with an error on all workers.
    fn give_up(&self, call: &WatchedCall, why: &str) {
        let device = Device::Cuda(self.gpu.number);
        let message = format!("stopped on {device}: {why}");
        let error = Error::new(ErrorKind::Workers, call.op, message.clone()).at(call.at);
        // Before the kernels end: what they leave must not reach parameters.
        self.gpu.fail_later(error, self.aside);
        self.group.fail(&message);
        if let Some(LibraryHandle(communicator)) = self.communicator().take() {
            abort(self.library, communicator);
        }
    }

    /// Ends the communicator, with nothing in flight on this worker.
    fn end(&self) {
        let Some(LibraryHandle(communicator)) = self.communicator().take() else { return };
        let deadline = Instant::now() + GRACE;
        // SAFETY: the communicator was neither aborted nor destroyed.
        let mut code = unsafe { (self.library.ncclCommFinalize)(communicator) };
        while code == IN_PROGRESS && Instant::now() < deadline && self.group.broken().is_none() {
            std::thread::sleep(Duration::from_millis(1));
            code = progress(self.library, communicator);
        }
        match code {
            // SAFETY: as above, and nothing uses the handle afterwards.
            0 => drop(unsafe { (self.library.ncclCommDestroy)(communicator) }),
            _ => abort(self.library, communicator),
        }
    }
}

/// The first code that is an error; else whether one is in progress.
fn first_error(codes: [c_int; 3]) -> c_int {
    let error = codes.into_iter().find(|&code| code != 0 && code != IN_PROGRESS);
    error.unwrap_or_else(|| codes.into_iter().max().unwrap_or(0))
}

/// A collective between its start and its wait.
pub(crate) struct NcclFlight {
    gpu: Arc<Gpu>,
    started: Started,
    /// The end of the call, once it is in NCCL's stream.
    done: Arc<OnceLock<Arc<Event>>>,
    /// A dense copy of the operand.
    copy: Option<DevicePtr>,
    waited: bool,
}

impl DeviceFlight for NcclFlight {
    fn wait(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.waited, true) {
            return Ok(());
        }
        self.started.wait()?;
        // What was queued meanwhile does not wait.
        self.gpu.enter();
        self.done.get().map_or(Ok(()), |done| done.before(&self.gpu, self.gpu.stream))
    }
}

impl Drop for NcclFlight {
    fn drop(&mut self) {
        let _ = self.wait();
        if let Some(copy) = self.copy {
            self.gpu.free(copy);
        }
    }
}

/// Starts a collective; `None`, and nothing done, if it goes through the host.
pub(crate) fn start(
    gpu: &Arc<Gpu>,
    of: &Arc<CollectiveOp>,
    from: &StridedOperand,
    to: &StridedOperand,
) -> Result<Option<NcclFlight>> {
    let (group, op, line) = (&of.group, of.collective.name(), of.line);
    let way = nccl_call(&of.collective, from.dtype, group.has_fixed_order());
    let Some(way) = way.filter(|_| group.communicator().size() > 1 && to.is_dense()) else {
        return Ok(None);
    };
    let spec = Spec::on(Device::Cpu, from.dtype, Shape::from_slice(&from.shape));
    let operand = CollectiveCall::by_devices(&spec);
    let call = CollectiveCall { collective: &of.collective, operand: &operand, sequence: 0, line };
    let device = Device::Cuda(gpu.number);
    let Some(nccl) = group.on_device(&call, device, &NcclJoin(gpu))? else { return Ok(None) };
    // What may fail for want of memory comes before the call is issued.
    let copy = match from.is_dense() {
        true => None,
        false => {
            let at = gpu.alloc(from.bytes())?;
            let dense = StridedOperand::dense(at, from.dtype, &from.shape);
            ops::copy(gpu, from, &dense).inspect_err(|_| gpu.free(at))?;
            Some(at)
        }
    };
    gpu.enter();
    let free_copy = |_: &Error| copy.iter().for_each(|&at| gpu.free(at));
    let ready = Event::record(gpu, gpu.stream).inspect_err(free_copy)?;
    let operands = ((copy.unwrap_or(from.at), from.bytes()), (to.at, to.bytes()));
    let (done, element) = (Arc::<OnceLock<Arc<Event>>>::default(), from.dtype.size());
    let (launched, issued) = (done.clone(), of.clone());
    let started = group.start(op, move |workers, sequence| {
        let collective = &issued.collective;
        workers.agree(&CollectiveCall { collective, operand: &operand, sequence, line })?;
        let (from, to) = operands;
        let done = nccl.launch((way, op, line), from, to, element, &ready)?;
        let _ = launched.set(done);
        Ok(())
    });
    Ok(Some(NcclFlight { gpu: gpu.clone(), started, done, copy, waited: false }))
}
