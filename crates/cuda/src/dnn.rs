//! cuDNN: the plans that it makes of graphs, kept and run.
//!
//! A graph is put together once for each [`DnnForm`], from descriptors. cuDNN proposes
//! configurations in the order of its heuristics; the first that is allowed and can be made becomes
//! the plan. Not the fastest of a measurement: so the same bits come out in every process. What
//! cuDNN refuses is remembered, and kernels of our own run instead.
//!
//! Making a plan takes up to seconds, so threads make different ones side by side, each with a
//! handle of its own, and all are run by one. Plans stay as long as the process, like kernels.
//! Those that take long to make (cuDNN compiles their kernels) are kept in files too, as the text
//! that cuDNN writes of them, machine code included.

use crate::cache;
use crate::describe::{describe, driver_words, nvrtc_words};
use crate::dnn_graph::code::{OF_CHAR, OF_HANDLE, OF_I64, OF_POINTER};
use crate::dnn_graph::{Descriptor, DnnGraph, DnnResult};
use crate::dry_run::{self, Preparation, in_dry_run};
use crate::gpu::{Gpu, LibraryHandle};
use pullback_cuda_sys::{Cudnn, Ptr, cublas_lt, cudnn, cudnn_version, nvrtc};
use pullback_ir::{DType, Result};
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
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
    /// Libraries, driver and chip, in words: a plan is good for these.
    about: String,
    /// What runs plans.
    runs: Mutex<DnnRuns>,
    plans: Mutex<FxHashMap<DnnForm, DnnResult<DnnPlan>>>,
    /// Forms whose plans a dry run is making.
    planning: Mutex<FxHashSet<DnnForm>>,
    /// Handles that make plans: as many as there were threads that did so at once. They stay, as
    /// plans refer to them.
    idle: Mutex<Vec<LibraryHandle>>,
}

/// A handle is used by one thread at a time, and so are plans that run.
struct DnnRuns {
    handle: LibraryHandle,
    /// The stream that the handle was last given.
    stream: LibraryHandle,
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
    descriptor: LibraryHandle,
    workspace: usize,
}

/// Plans that take longer are kept in files.
const LONG: Duration = Duration::from_millis(20);

impl Dnn {
    pub fn open(gpu: &Gpu) -> DnnResult<Dnn> {
        let library = cudnn()?;
        // cuDNN opens these two by name; the ones that we have found are then there already. It
        // compiles kernels with the first, so their versions are a part of what a plan is good for.
        let compiler = nvrtc().map_or("no NVRTC".into(), nvrtc_words);
        let products = cublas_lt()
            .map_or("none".into(), |l| pullback_cuda_sys::version(l.cublasLtGetProperty));
        let [major, minor, patch] = cudnn_version(library);
        gpu.enter();
        let handle = new_handle(library)?;
        let chip = describe(gpu.number)?;
        let runs = DnnRuns { handle, stream: LibraryHandle(null_mut()) };
        Ok(Dnn {
            library,
            version: major * 10000 + minor * 100 + patch,
            about: format!(
                "cuDNN {major}.{minor}.{patch} sm_{} {} {} {} {compiler} cuBLASLt {products}",
                chip.capability,
                chip.units,
                chip.name,
                driver_words()
            ),
            runs: Mutex::new(runs),
            plans: Mutex::default(),
            planning: Mutex::default(),
            idle: Mutex::default(),
        })
    }

    fn plans(&self) -> MutexGuard<'_, FxHashMap<DnnForm, DnnResult<DnnPlan>>> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The plan of a form, made at the first call; none if cuDNN refuses.
    pub fn plan(
        &self,
        gpu: &Gpu,
        form: &DnnForm,
        allows: &dyn Fn(&[c_int]) -> bool,
        build: impl FnOnce(&mut DnnGraph) -> DnnResult<()>,
    ) -> Option<DnnPlan> {
        if let Some(made) = self.plans().get(form) {
            return made.as_ref().ok().copied();
        }
        let begun = || self.planning.lock().unwrap_or_else(PoisonError::into_inner);
        if in_dry_run() {
            // Another thread is making it: a dry run goes on as if there were one.
            if !begun().insert(form.clone()) {
                return Some(DnnPlan { descriptor: LibraryHandle(null_mut()), workspace: 0 });
            }
            // Or has made it just now.
            let made = self.plans().get(form).map(|made| made.as_ref().ok().copied());
            if let Some(plan) = made {
                begun().remove(form);
                return plan;
            }
        }
        gpu.enter();
        let plan = self.handle(gpu).ok().and_then(|handle| {
            // The lock is not held meanwhile: plans are made side by side.
            let made = self.make(handle.0, form, allows, build);
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
            // Where two threads have made it, the first is the one.
            self.plans().entry(form.clone()).or_insert(made).as_ref().ok().copied()
        });
        if in_dry_run() {
            begun().remove(form);
        }
        plan
    }

    /// A handle that no other thread uses, for one plan. That there is none now, for want of memory
    /// say, is not remembered of any form.
    fn handle(&self, gpu: &Gpu) -> DnnResult<LibraryHandle> {
        let found = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let again = |_| {
            gpu.release();
            new_handle(self.library)
        };
        found.map_or_else(|| new_handle(self.library).or_else(again), Ok)
    }

    /// Runs the plan of a form on addresses, which are given by the numbers of tensors. False if
    /// cuDNN refuses, which is remembered: there is no plan of this form any more.
    pub fn run(&self, gpu: &Gpu, form: &DnnForm, plan: DnnPlan, at: &[(i64, u64)]) -> Result<bool> {
        if in_dry_run() {
            return Ok(true);
        }
        // Given back when this returns: later work on the stream may use it again.
        let workspace = gpu.scratch(plan.workspace)?;
        gpu.enter();
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let done = self.execute(gpu, &mut runs, plan, workspace.at, at);
        // The library loads kernels into memory beside the pool, which may hold all of it.
        let done = done.or_else(|_| {
            gpu.release();
            self.execute(gpu, &mut runs, plan, workspace.at, at)
        });
        match done {
            Ok(()) => Ok(true),
            Err(why) => {
                self.plans().insert(form.clone(), Err(why));
                Ok(false)
            }
        }
    }

    fn execute(
        &self,
        gpu: &Gpu,
        runs: &mut DnnRuns,
        plan: DnnPlan,
        workspace: u64,
        at: &[(i64, u64)],
    ) -> DnnResult<()> {
        let failed = |code: c_int| if code == 0 { Ok(()) } else { Err(format!("error {code}")) };
        let stream = gpu.stream();
        if runs.stream.0 != stream.0 {
            // SAFETY: both live as long as the process.
            failed(unsafe { (self.library.cudnnSetStream)(runs.handle.0, stream.0) })?;
            runs.stream = stream;
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
            (self.library.cudnnBackendExecute)(runs.handle.0, plan.descriptor.0, pack.at)
        })
    }

    /// A plan, from its file or from the graph.
    fn make(
        &self,
        handle: Ptr,
        form: &DnnForm,
        allows: &dyn Fn(&[c_int]) -> bool,
        build: impl FnOnce(&mut DnnGraph) -> DnnResult<()>,
    ) -> DnnResult<DnnPlan> {
        let mut key = format!("rules {RULES}\n{}\n{} {}", self.about, form.what, form.dtype);
        form.numbers.iter().for_each(|n| _ = write!(key, " {n}"));
        let folder = cache::folder();
        let kept = folder.as_ref().and_then(|folder| cache::read(folder, "plan", &key));
        if let Some(plan) = kept.and_then(|bytes| self.restore(handle, &bytes)) {
            dry_run::count(Preparation::PlanRead);
            return Ok(plan);
        }
        let clock = Instant::now();
        let mut graph = DnnGraph::new(self.library);
        build(&mut graph)?;
        let (plan, workspace) = graph.plan(handle, allows)?;
        let plan = DnnPlan { descriptor: plan.keep(), workspace };
        dry_run::count(Preparation::Plan);
        if clock.elapsed() > LONG
            && let Some(folder) = &folder
            && let Ok(bytes) = self.text(plan)
        {
            cache::write(folder, "plan", &key, &bytes);
        }
        Ok(plan)
    }

    /// What a file holds: the workspace, a hash of the text, the text.
    fn text(&self, plan: DnnPlan) -> DnnResult<Vec<u8>> {
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
        let why = |(form, plan): (&DnnForm, &DnnResult<DnnPlan>)| {
            plan.as_ref().err().map(|why| format!("{form:?}: {why}"))
        };
        self.plans().iter().filter_map(why).collect()
    }
}

/// A handle, in the current context.
fn new_handle(library: &Cudnn) -> DnnResult<LibraryHandle> {
    let mut handle = null_mut();
    // SAFETY: writes one handle.
    match unsafe { (library.cudnnCreate)(&mut handle) } {
        0 => Ok(LibraryHandle(handle)),
        code => Err(format!("cuDNN cannot start (error {code})")),
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(bytes);
    hasher.finish()
}
