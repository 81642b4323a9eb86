//! Steps of a program as CUDA graphs: launched at once instead of one by one.
//!
//! A list of steps that runs a second time on the same addresses is captured: its launches go into
//! a stream of this thread that runs nothing, and what it has collected becomes a graph, which is
//! then launched in their stead. The first run is not captured, since it loads kernels, plans
//! products and finds out what cuDNN takes. A run on other addresses has a graph of its own; a few
//! are kept. Addresses repeat, as the pool gives the same blocks to the same sequence of requests;
//! where they never do, capturing is given up.
//!
//! # What a graph may refer to
//! Everything in a graph is what it was when it was captured: addresses, launches, switches such as
//! that of TF32 (so these are a part of the key). Memory that steps take for themselves comes from
//! blocks that only graphs use ([`GraphMemory`]): graphs run one after the other on one stream, so
//! all of them share these blocks, within a graph as the order of its steps allows, as in a pool.
//! The blocks are given back when memory is short, and then all graphs are captured anew.
//!
//! # What cannot be captured
//! A step that waits for the device or copies from or to the host, and libraries that are bound to
//! the stream of the device. It is found by trying: the step returns an error meanwhile
//! ([`Gpu::refuse_capture`]), nothing has run, and from then on it runs by itself, between the
//! graphs of the steps before and after it.

use crate::dry_run::in_dry_run;
use crate::gpu::{Gpu, LibraryHandle, device_error};
use pullback_cuda_sys::{DevicePtr, Ptr};
use pullback_ir::{Result, deterministic, tf32_allowed};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::{Arc, PoisonError};

/// Graphs of one list of steps that are kept.
const KEPT: usize = 4;
/// Captures that were used less than once on average, after which no more are made.
const PATIENCE: usize = 12;

thread_local! {
    /// The stream into which this thread captures; null if it does not.
    static STREAM: Cell<Ptr> = const { Cell::new(null_mut()) };
    static CAPTURE: RefCell<Option<GraphCapture>> = const { RefCell::new(None) };
}

/// What the capture of this thread has taken.
#[derive(Default)]
struct GraphCapture {
    /// Blocks of the graphs' memory, and whether a step uses them now.
    blocks: Vec<(DevicePtr, usize, bool)>,
    /// Numbers of calls whose kernels may reject a value.
    fallible: Vec<u32>,
}

/// Blocks that only graphs use.
#[derive(Default)]
pub(crate) struct GraphMemory {
    blocks: Vec<(DevicePtr, usize)>,
    /// Grows when the blocks are given back: older graphs are invalid.
    generation: u64,
}

/// The stream into which this thread captures.
#[inline]
pub(crate) fn captures_into() -> Option<LibraryHandle> {
    let stream = STREAM.get();
    (!stream.is_null()).then_some(LibraryHandle(stream))
}

/// A graph, for steps on the addresses of a key.
struct CudaGraph {
    gpu: Arc<Gpu>,
    key: SmallVec<[u64; 16]>,
    ready: LibraryHandle,
    nodes: usize,
    generation: u64,
    fallible: Vec<u32>,
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        self.gpu.make_current();
        // SAFETY: the driver keeps what is in flight.
        unsafe { (self.gpu.driver.cuGraphExecDestroy)(self.ready.0) };
        self.gpu.forget_calls(&self.fallible);
    }
}

/// The graphs of a list of steps.
#[derive(Default)]
pub(crate) struct Graphs {
    /// Used last, last.
    cached: Vec<CudaGraph>,
    /// The addresses of runs before, the newest last.
    recent_keys: VecDeque<SmallVec<[u64; 16]>>,
    /// The driver refused a graph, or addresses hardly ever repeat.
    given_up: bool,
    pub captured: usize,
    pub replayed: usize,
}

/// How a list of steps was run.
pub(crate) enum GraphRun {
    /// As a graph.
    Replayed,
    /// One by one.
    Plainly,
    /// Not at all: this step cannot be captured.
    Refused(usize),
}

impl Graphs {
    /// The nodes of the graph that ran last.
    pub fn nodes(&self) -> Option<usize> {
        self.cached.last().map(|graph| graph.nodes)
    }

    /// Runs steps on the addresses of a key: as a graph, if there is one or this is the second run,
    /// or one by one. `run` runs one step.
    pub fn run(
        &mut self,
        gpu: &Arc<Gpu>,
        addresses: &[u64],
        steps: Range<usize>,
        run: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<GraphRun> {
        let mut key = SmallVec::<[u64; 16]>::from_slice(addresses);
        key.push(u64::from(tf32_allowed()) | u64::from(deterministic()) << 1);
        if let Some(at) = self.cached.iter().position(|graph| graph.key == key) {
            let graph = self.cached.remove(at);
            if graph.launch()? {
                self.cached.push(graph);
                self.replayed += 1;
                return Ok(GraphRun::Replayed);
            }
        }
        self.given_up |= self.captured >= PATIENCE && self.replayed < 2 * self.captured;
        let again = self.recent_keys.contains(&key);
        if !again {
            if self.recent_keys.len() == 2 * KEPT {
                self.recent_keys.pop_front();
            }
            self.recent_keys.push_back(key.clone());
        }
        if !again || self.given_up {
            return steps.clone().try_for_each(run).map(|()| GraphRun::Plainly);
        }
        let mut refused = None;
        let captured = gpu.capture(&mut || {
            steps.clone().try_for_each(|n| run(n).inspect_err(|_| refused = Some(n)))
        });
        let graph = match (captured, refused) {
            (Ok((ready, nodes, generation, fallible)), _) => {
                CudaGraph { gpu: gpu.clone(), key, ready, nodes, generation, fallible }
            }
            (Err(_), Some(step)) => return Ok(GraphRun::Refused(step)),
            (Err(_), None) => {
                self.given_up = true;
                return steps.clone().try_for_each(run).map(|()| GraphRun::Plainly);
            }
        };
        self.captured += 1;
        if !graph.launch()? {
            // Its memory was given back meanwhile.
            return steps.clone().try_for_each(run).map(|()| GraphRun::Plainly);
        }
        if self.cached.len() == KEPT {
            self.cached.remove(0);
        }
        self.cached.push(graph);
        self.replayed += 1;
        Ok(GraphRun::Replayed)
    }
}

impl CudaGraph {
    /// Puts the graph into the queue. `false` if its memory was given back.
    fn launch(&self) -> Result<bool> {
        let gpu = &self.gpu;
        gpu.enter();
        // Held meanwhile, so that the memory is not given back before the launch.
        let memory = gpu.graph_memory.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.generation != self.generation {
            return Ok(false);
        }
        // SAFETY: the graph was made in this context, and what it refers to is there: the memory of
        // the program for this run, and that of graphs.
        let code = unsafe { (gpu.driver.cuGraphLaunch)(self.ready.0, gpu.stream().0) };
        gpu.ok("graph", code).map(|()| true)
    }
}

/// Ends the capture of this thread, also where a step panics.
struct CaptureGuard;

impl Drop for CaptureGuard {
    fn drop(&mut self) {
        STREAM.set(null_mut());
    }
}

impl Gpu {
    /// The stream into which this thread puts its work.
    #[inline]
    pub fn stream(&self) -> LibraryHandle {
        captures_into().unwrap_or(self.stream)
    }

    /// What waits for the device or copies from or to the host cannot be a part of a graph.
    pub fn refuse_capture(&self, what: &'static str) -> Result<()> {
        match captures_into() {
            None if in_dry_run() => Err(device_error(what, "cannot be run dry".into())),
            None => Ok(()),
            Some(_) => Err(device_error(what, "cannot be a part of a CUDA graph".into())),
        }
    }

    /// Libraries that are bound to the stream of the device cannot be captured.
    pub fn not_captured(&self) -> std::result::Result<(), &'static str> {
        match captures_into() {
            None if in_dry_run() => Err("is not run dry"),
            None => Ok(()),
            Some(_) => Err("is not a part of a CUDA graph"),
        }
    }

    /// Captures what `run` puts into the stream: the graph that can be launched, its nodes, the
    /// generation of its memory, and the calls that may be rejected.
    fn capture(
        &self,
        run: &mut dyn FnMut() -> Result<()>,
    ) -> Result<(LibraryHandle, usize, u64, Vec<u32>)> {
        self.enter();
        let generation =
            self.graph_memory.lock().unwrap_or_else(PoisonError::into_inner).generation;
        let stream = self.new_stream()?;
        let driver = self.driver;
        let (mut graph, mut ready) = (null_mut(), null_mut());
        // SAFETY: a stream of this thread. In the relaxed mode, calls of this and other threads
        // that do not use the stream are as always.
        let begun = unsafe { (driver.cuStreamBeginCapture_v2)(stream.0, 2) };
        let done = self.ok("graph", begun).and_then(|()| {
            CAPTURE.set(Some(GraphCapture::default()));
            STREAM.set(stream.0);
            let ends = CaptureGuard;
            let done = run();
            drop(ends);
            done
        });
        let taken = CAPTURE.take().unwrap_or_default();
        // SAFETY: ends what was begun above and gives one handle; then each handle is used for the
        // last time.
        let (code, mut nodes) = unsafe {
            let mut code = begun;
            if begun == 0 {
                code = (driver.cuStreamEndCapture)(stream.0, &mut graph);
            }
            let mut nodes = 0usize;
            if code == 0 && done.is_ok() {
                (driver.cuGraphGetNodes)(graph, null_mut(), &mut nodes);
                code = (driver.cuGraphInstantiateWithFlags)(&mut ready, graph, 0);
            }
            if !graph.is_null() {
                (driver.cuGraphDestroy)(graph);
            }
            (driver.cuStreamDestroy_v2)(stream.0);
            (code, nodes)
        };
        if let Err(error) = done.and_then(|()| self.ok("graph", code)) {
            self.forget_calls(&taken.fallible);
            return Err(error);
        }
        nodes = nodes.max(1);
        Ok((LibraryHandle(ready), nodes, generation, taken.fallible))
    }

    /// Memory for a step that is captured; `None` if this thread does not capture.
    pub fn captured_alloc(&self, bytes: usize) -> Option<Result<DevicePtr>> {
        captures_into()?;
        CAPTURE.with_borrow_mut(|capture| {
            let capture = capture.as_mut()?;
            Some(self.alloc_for_graphs(capture, bytes.max(1)))
        })
    }

    fn alloc_for_graphs(&self, capture: &mut GraphCapture, bytes: usize) -> Result<DevicePtr> {
        // A block that is much longer serves a longer request.
        let fits = |length: usize| length >= bytes && length <= 2 * bytes + (1 << 20);
        let own = capture.blocks.iter_mut().filter(|b| !b.2 && fits(b.1)).min_by_key(|b| b.1);
        if let Some(block) = own {
            block.2 = true;
            return Ok(block.0);
        }
        let mut memory = self.graph_memory.lock().unwrap_or_else(PoisonError::into_inner);
        let known = |at: DevicePtr| capture.blocks.iter().any(|block| block.0 == at);
        let mut others = memory.blocks.iter().copied().filter(|b| fits(b.1) && !known(b.0));
        let (at, length) = match others.by_ref().min_by_key(|block| block.1) {
            Some(block) => block,
            None => {
                let at = self.pool().alloc_cached(self, bytes)?;
                memory.blocks.push((at, bytes));
                (at, bytes)
            }
        };
        capture.blocks.push((at, length, true));
        Ok(at)
    }

    /// Whether the memory was taken by the capture of this thread, which may use it again.
    pub fn captured_free(&self, at: DevicePtr) -> bool {
        captures_into().is_some()
            && CAPTURE.with_borrow_mut(|capture| {
                let blocks = capture.as_mut().map(|capture| &mut capture.blocks);
                let own = blocks.and_then(|blocks| blocks.iter_mut().find(|block| block.0 == at));
                own.map(|block| block.2 = false).is_some()
            })
    }

    /// Notes a call that may be rejected, and whose graph may run at any later time. `false` if
    /// this thread does not capture.
    pub fn captured_call(&self, number: u32) -> bool {
        captures_into().is_some()
            && CAPTURE.with_borrow_mut(|capture| {
                capture.as_mut().map(|capture| capture.fallible.push(number)).is_some()
            })
    }

    /// Gives the memory of graphs back to the pool; whether there was any. Graphs that were made
    /// before are not launched any more.
    pub fn release_graphs(&self) -> bool {
        let mut memory = self.graph_memory.lock().unwrap_or_else(PoisonError::into_inner);
        let blocks = std::mem::take(&mut memory.blocks);
        if blocks.is_empty() {
            return false;
        }
        memory.generation += 1;
        drop(memory);
        // Work that is in flight comes before what uses the memory next.
        let mut pool = self.pool();
        blocks.iter().for_each(|block| pool.free_cached(self, block.0));
        true
    }
}
