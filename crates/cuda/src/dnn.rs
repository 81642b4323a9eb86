//! cuDNN: the plans that it makes of graphs, kept and run.
//!
//! A graph is put together once for each [`DnnForm`], from descriptors. cuDNN proposes
//! configurations in the order of its heuristics; the first that is allowed and can be made becomes
//! the plan. Not the fastest of a measurement: so the same bits come out in every process. What
//! cuDNN refuses is remembered, and kernels of our own run instead.
//!
//! Plans stay as long as the process, like kernels. Those that take long to make (cuDNN compiles
//! their kernels) are kept in files too, as the text that cuDNN writes of them, machine code
//! included.

use crate::cache;
use crate::dnn_graph::code::{OF_CHAR, OF_HANDLE, OF_I64, OF_POINTER};
use crate::dnn_graph::{Descriptor, DnnGraph, Made};
use crate::gpu::{Gpu, Handle, describe};
use pullback_cuda_sys::{Cudnn, Ptr, cublas_lt, cudnn, cudnn_version, nvrtc};
use pullback_ir::{DType, Result};
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;
use std::ffi::c_int;
use std::fmt::Write;
use std::hash::Hasher;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Raised when other engines are allowed than before: plans on disk of earlier rules are not used.
const RULES: u32 = 2;

/// cuDNN on one device.
pub(crate) struct Dnn {
    library: &'static Cudnn,
    /// As 91400 for 9.14.0.
    pub version: c_int,
    /// Library and chip, in words: a plan is good for these.
    about: String,
    /// A handle is used by one thread at a time, and so are plans.
    state: Mutex<DnnState>,
}

struct DnnState {
    handle: Handle,
    /// The stream that the handle was last given.
    stream: Handle,
    plans: FxHashMap<DnnForm, Made<DnnPlan>>,
}

/// What a plan follows from: an op, and all lengths, strides and options.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DnnForm {
    pub what: &'static str,
    pub dtype: DType,
    pub numbers: SmallVec<[i64; 48]>,
}

/// How cuDNN runs a graph.
#[derive(Clone, Copy)]
pub(crate) struct DnnPlan {
    descriptor: Handle,
    workspace: usize,
}

/// Plans that take longer are kept in files.
const LONG: Duration = Duration::from_millis(20);

impl Dnn {
    pub fn open(gpu: &Gpu) -> Made<Dnn> {
        let library = cudnn()?;
        // cuDNN opens these two by name; the ones that we have found are then there already.
        let _ = (nvrtc(), cublas_lt());
        let [major, minor, patch] = cudnn_version(library);
        let mut handle = null_mut();
        gpu.enter();
        // SAFETY: writes one handle.
        match unsafe { (library.cudnnCreate)(&mut handle) } {
            0 => {}
            code => return Err(format!("cuDNN cannot start (error {code})")),
        }
        let chip = describe(gpu.number)?;
        let state = DnnState {
            handle: Handle(handle),
            stream: Handle(null_mut()),
            plans: FxHashMap::default(),
        };
        Ok(Dnn {
            library,
            version: major * 10000 + minor * 100 + patch,
            about: format!(
                "cuDNN {major}.{minor}.{patch} sm_{} {} {}",
                chip.capability, chip.units, chip.name
            ),
            state: Mutex::new(state),
        })
    }

    fn state(&self) -> MutexGuard<'_, DnnState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The plan of a form, made at the first call; none if cuDNN refuses.
    pub fn plan(
        &self,
        gpu: &Gpu,
        form: &DnnForm,
        allows: &dyn Fn(&[c_int]) -> bool,
        build: impl FnOnce(&mut DnnGraph) -> Made<()>,
    ) -> Option<DnnPlan> {
        let mut state = self.state();
        if let Some(made) = state.plans.get(form) {
            return made.as_ref().ok().copied();
        }
        gpu.enter();
        let made = self.make(state.handle.0, form, allows, build);
        let plan = made.as_ref().ok().copied();
        state.plans.insert(form.clone(), made);
        plan
    }

    /// Runs the plan of a form on addresses, which are given by the numbers of tensors. False if
    /// cuDNN refuses, which is remembered: there is no plan of this form any more.
    pub fn run(&self, gpu: &Gpu, form: &DnnForm, plan: DnnPlan, at: &[(i64, u64)]) -> Result<bool> {
        // Given back when this returns: later work on the stream may use it again.
        let workspace = gpu.scratch(plan.workspace)?;
        gpu.enter();
        let mut state = self.state();
        let done = self.execute(gpu, &mut state, plan, workspace.at, at);
        // The library loads kernels into memory beside the pool, which may hold all of it.
        let done = done.or_else(|_| {
            gpu.release();
            self.execute(gpu, &mut state, plan, workspace.at, at)
        });
        match done {
            Ok(()) => Ok(true),
            Err(why) => {
                state.plans.insert(form.clone(), Err(why));
                Ok(false)
            }
        }
    }

    fn execute(
        &self,
        gpu: &Gpu,
        state: &mut DnnState,
        plan: DnnPlan,
        workspace: u64,
        at: &[(i64, u64)],
    ) -> Made<()> {
        let failed = |code: c_int| if code == 0 { Ok(()) } else { Err(format!("error {code}")) };
        let stream = gpu.stream();
        if state.stream.0 != stream.0 {
            // SAFETY: both live as long as the process.
            failed(unsafe { (self.library.cudnnSetStream)(state.handle.0, stream.0) })?;
            state.stream = stream;
        }
        let (numbers, addresses): (SmallVec<[i64; 16]>, SmallVec<[u64; 16]>) =
            at.iter().copied().unzip();
        let pack = Descriptor::new(self.library, 16)?
            .with(1000, OF_I64, &numbers)?
            .with(1001, OF_POINTER, &addresses)?
            .with(1003, OF_POINTER, &[workspace])?
            .finish()?;
        // SAFETY: the addresses are of tensors of the plan's form, and the workspace has its size.
        failed(unsafe {
            (self.library.cudnnBackendExecute)(state.handle.0, plan.descriptor.0, pack.at)
        })
    }

    /// A plan, from its file or from the graph.
    fn make(
        &self,
        handle: Ptr,
        form: &DnnForm,
        allows: &dyn Fn(&[c_int]) -> bool,
        build: impl FnOnce(&mut DnnGraph) -> Made<()>,
    ) -> Made<DnnPlan> {
        let mut key = format!("rules {RULES}\n{}\n{} {}", self.about, form.what, form.dtype);
        form.numbers.iter().for_each(|n| _ = write!(key, " {n}"));
        let folder = cache::folder();
        let kept = folder.as_ref().and_then(|folder| cache::read(folder, "plan", &key));
        if let Some(plan) = kept.and_then(|bytes| self.restore(handle, &bytes)) {
            return Ok(plan);
        }
        let clock = Instant::now();
        let mut graph = DnnGraph::new(self.library);
        build(&mut graph)?;
        let (plan, workspace) = graph.plan(handle, allows)?;
        let plan = DnnPlan { descriptor: plan.keep(), workspace };
        if clock.elapsed() > LONG
            && let Some(folder) = &folder
            && let Ok(bytes) = self.text(plan)
        {
            cache::write(folder, "plan", &key, &bytes);
        }
        Ok(plan)
    }

    /// What a file holds: the workspace, a hash of the text, the text.
    fn text(&self, plan: DnnPlan) -> Made<Vec<u8>> {
        // Not dropped: the plan stays.
        let of = std::mem::ManuallyDrop::new(Descriptor {
            library: self.library,
            at: plan.descriptor.0,
        });
        let length = of.get::<u8>(405, OF_CHAR, &mut [])?;
        let mut text = vec![0u8; length];
        let count = of.get(405, OF_CHAR, &mut text)?;
        text.truncate(count);
        let mut bytes = (plan.workspace as u64).to_le_bytes().to_vec();
        bytes.extend(hash(&text).to_le_bytes());
        bytes.extend(text);
        Ok(bytes)
    }

    fn restore(&self, handle: Ptr, bytes: &[u8]) -> Option<DnnPlan> {
        let (head, text) = bytes.split_at_checked(16)?;
        let number = |at: usize| Some(u64::from_le_bytes(head[at..at + 8].try_into().ok()?));
        if number(8)? != hash(text) {
            return None;
        }
        let plan = Descriptor::new(self.library, 5)
            .and_then(|plan| plan.with(400, OF_HANDLE, &[handle]))
            .and_then(|plan| plan.with(405, OF_CHAR, text))
            .and_then(Descriptor::finish)
            .ok()?;
        Some(DnnPlan { descriptor: plan.keep(), workspace: number(0)? as usize })
    }

    /// What was refused, and why.
    #[cfg(test)]
    pub fn refusals(&self) -> Vec<String> {
        let state = self.state();
        let why = |(form, plan): (&DnnForm, &Made<DnnPlan>)| {
            plan.as_ref().err().map(|why| format!("{form:?}: {why}"))
        };
        state.plans.iter().filter_map(why).collect()
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(bytes);
    hasher.finish()
}
