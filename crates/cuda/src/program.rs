//! Planned programs: one step after the other, on base addresses.
//!
//! Steps are made once; a run adds base addresses. A loop or a conditional is a step that runs
//! other programs, and reads its condition on the host: the only place where a program waits.

use crate::dry_run::{self, DryRunReport, DryStep, PreparationKind};
use crate::flow::CudaFlow;
use crate::gpu::Gpu;
use crate::graph::{GraphRun, Graphs, captures_into};
use crate::host_copies::{self, HostCopies};
use crate::loops::{Loop, StridedOperand};
use crate::lowering::{Lowering, held_copies};
use crate::nccl::{self, NcclFlight};
use crate::profile::CallDescription;
use crate::staging::Staging;
use crate::update::{OptimizerKind, Updates};
use crate::{ops, product, report};
use pullback_cuda_sys::DevicePtr;
use pullback_ir::pass::plan::{Base, Plan, Planned};
use pullback_ir::{
    Bases, CollectiveOp, DType, DeviceFlight, DeviceProgram, Error, Flow, Fused, KernelCode,
    Layout, Line, Op, Program, Region, Result, Spec, Step, Transfer, Value, Var,
};
use smallvec::SmallVec;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

/// Steps into which a loop of known length is unrolled in a CUDA graph, at most.
const MOST_UNROLLED: usize = 20_000;

/// A program that is ready to run.
pub(crate) struct CudaProgram {
    gpu: Arc<Gpu>,
    planned: Arc<Planned>,
    code: StepCode,
    steps: Vec<Step>,
    /// Of the inputs, and of the outputs.
    staging: [Staging; 2],
    /// What was made before the first call.
    dry_run: DryRunReport,
    /// The copies of a run step by step, which is not at its end.
    trips: Option<HostCopies>,
}

/// The steps of a program, and its constants.
pub(crate) struct StepCode {
    pub steps: Vec<CodeStep>,
    /// Locked for a run: a loop runs the programs inside it many times.
    pub parts: Mutex<Vec<LaunchGroup>>,
    /// How many collectives it starts.
    flights: usize,
    /// How many copies to the host and back, and how many bytes are there.
    copies: (usize, usize),
    pub constants: DevicePtr,
    gpu: Arc<Gpu>,
}

/// Steps that are launched together as a CUDA graph, or one by one.
pub(crate) struct LaunchGroup {
    pub steps: Range<usize>,
    /// None: they cannot be captured.
    pub graphs: Option<Graphs>,
}

pub(crate) struct CodeStep {
    pub equation: usize,
    pub action: StepAction,
    pub inputs: Vec<BasedOperand>,
    pub outputs: Vec<BasedOperand>,
    pub at: Option<Line>,
}

pub(crate) enum StepAction {
    Op(Op),
    Region(Arc<Region>, Vec<Value>),
    /// The product of two matrices, added to the result.
    AddProduct,
    /// … or with a bias, the third operand, if there is one, and rounded to the dtype of the
    /// result.
    WideProduct,
    Flow(Box<CudaFlow>),
    /// Starts a collective, which runs beside the steps up to its wait: its number.
    Start(Arc<CollectiveOp>, usize),
    Wait(usize),
    /// Starts a copy to the host or back, and waits for one: its number.
    CopyStart(Transfer, usize),
    CopyEnd(Transfer, usize),
}

/// What a run has begun.
struct RunState {
    /// The collectives that were started and not waited for. Those that are left when it ends, also
    /// by an error, are waited for when this is dropped, before the memory of the run is used
    /// again.
    flights: Vec<Option<NcclFlight>>,
    /// The copies of values that wait on the host, if there are any.
    trips: Option<HostCopies>,
    /// Steps of optimisers, and casts, that are not in the stream yet: those that follow one
    /// another are one kernel.
    updates: Updates,
}

impl RunState {
    /// The addresses with that of the host's memory, if there is any.
    fn bases(&self, bases: &BaseAddresses) -> Option<BaseAddresses> {
        self.trips.as_ref().map(|trips| BaseAddresses { host: trips.at(), ..bases.clone() })
    }
}

/// Memory seen through strides, from a base on.
#[derive(Clone)]
pub(crate) struct BasedOperand {
    base: Base,
    /// Bytes from the base to the element at index 0, 0, …; wraps if it is before.
    start: usize,
    pub operand: StridedOperand,
}

/// The base addresses of a run.
#[derive(Clone)]
pub(crate) struct BaseAddresses {
    pub arena: DevicePtr,
    pub constants: DevicePtr,
    /// Memory of the host.
    pub host: DevicePtr,
    pub inputs: Vec<DevicePtr>,
    pub outputs: Vec<DevicePtr>,
}

impl BasedOperand {
    pub fn new(base: Base, start: usize, layout: &Layout, dtype: DType) -> BasedOperand {
        let first = layout.offset.wrapping_mul(dtype.size());
        let operand = StridedOperand::new(0, dtype, &layout.shape, &layout.strides);
        BasedOperand { base, start: start.wrapping_add(first), operand }
    }

    /// Whether its elements are next to each other.
    pub fn is_row(&self) -> bool {
        self.operand.is_dense()
    }

    fn operand(&self, bases: &BaseAddresses) -> StridedOperand {
        let base = match self.base {
            Base::Arena => bases.arena,
            Base::Constants => bases.constants,
            Base::Host => bases.host,
            Base::Input(i) => bases.inputs[i],
            Base::Output(k) => bases.outputs[k],
        };
        StridedOperand { at: base.wrapping_add(self.start as u64), ..self.operand.clone() }
    }

    fn spec(&self, device: pullback_ir::Device) -> Spec {
        Spec::on(device, self.operand.dtype, &self.operand.shape[..])
    }
}

impl Drop for StepCode {
    fn drop(&mut self) {
        if self.constants != 0 {
            self.gpu.free(self.constants);
        }
    }
}

impl CudaProgram {
    pub fn new(gpu: &Arc<Gpu>, planned: &Arc<Planned>) -> Result<CudaProgram> {
        let code = StepCode::new(gpu, planned.program(), planned.plan())?;
        let device = pullback_ir::Device::Cuda(gpu.number);
        let step = |s: &CodeStep| Step {
            equation: s.equation,
            kernel: s.name().to_string(),
            operands: [&s.inputs, &s.outputs]
                .map(|all| all.iter().map(|place| place.spec(device)).collect()),
            at: s.at,
        };
        let steps = code.steps.iter().map(step).collect();
        let program = planned.program();
        let written = |i: usize| program.updates.iter().any(|&(_, input)| input == i);
        let bytes = |&v: &Var| program.spec(v).bytes();
        let read = program.inputs.iter().enumerate();
        let read = read.map(|(i, v)| (!written(i)).then(|| bytes(v)));
        let fresh = |k: usize| planned.fresh().iter().any(|output| output.0 == k);
        let made = program.outputs.iter().enumerate();
        let made = made.map(|(k, v)| fresh(k).then(|| bytes(v)));
        let staging = [Staging::new(gpu, read), Staging::new(gpu, made)];
        let made = dry_run::run_dry(gpu, code.dry_steps());
        let (gpu, planned) = (gpu.clone(), planned.clone());
        Ok(CudaProgram { gpu, planned, code, steps, staging, dry_run: made, trips: None })
    }
}

impl DeviceProgram for CudaProgram {
    fn steps(&self) -> &[Step] {
        &self.steps
    }

    fn run(&mut self, memory: &Bases<'_>, step: Option<usize>) -> Result<()> {
        let mut outputs = vec![0; self.planned.program().outputs.len()];
        for (&(k, _), &at) in self.planned.fresh().iter().zip(memory.outputs) {
            outputs[k] = at;
        }
        let mut bases = BaseAddresses {
            arena: memory.arena,
            constants: self.code.constants,
            host: 0,
            inputs: memory.inputs.iter().map(|&(at, start)| at + start as u64).collect(),
            outputs,
        };
        match step {
            None if self.code.may_have_graphs() => {
                let [arguments, results] = &mut self.staging;
                arguments.arguments(&mut bases.inputs)?;
                results.results(&mut bases.outputs)?;
                self.code.run(&bases)?;
                results.deliver()
            }
            None => self.code.run(&bases),
            // A collective is waited for at once.
            Some(n) => {
                let trips = self.trips.take().filter(|_| n > 0);
                let mut running = self.code.begin(trips)?;
                let step = &self.code.steps[n];
                let bases = running.bases(&bases).unwrap_or(bases);
                step.run(&self.gpu, &bases, &mut running)?;
                // So is a copy.
                if let (StepAction::CopyStart(_, copy), Some(trips)) =
                    (&step.action, &mut running.trips)
                {
                    trips.end(*copy)?;
                }
                running.updates.flush(&self.gpu)?;
                self.trips = running.trips.take().filter(|_| n + 1 < self.steps.len());
                Ok(())
            }
        }
    }

    fn made(&self) -> Option<String> {
        self.dry_run.words()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.code.notes();
        let [arguments, results] = [0, 1].map(|k| self.staging[k].copied());
        if arguments + results > 0 {
            notes.push(format!(
                "copied to and from fixed addresses: {arguments} arguments, {results} results"
            ));
        }
        notes
    }

    fn kernels(&self) -> Vec<KernelCode> {
        report::kernels_of(&self.planned, self.gpu.kernels.capability).unwrap_or_default()
    }
}

impl StepCode {
    pub fn new(gpu: &Arc<Gpu>, program: &Program, plan: &Plan) -> Result<StepCode> {
        let (held, bytes) = held_copies(program, plan);
        let constants = if bytes > 0 { gpu.alloc(bytes)? } else { 0 };
        let (steps, parts) = (Vec::new(), Mutex::default());
        let copies = program.equations.iter().filter(|e| host_copies::starts(&e.op)).count();
        let copies = (copies, plan.host);
        let mut code = StepCode { steps, parts, flights: 0, copies, constants, gpu: gpu.clone() };
        let compiler = Lowering { gpu: Some(gpu), program, plan, copies: held };
        for (e, equation) in program.equations.iter().enumerate() {
            if let Op::Literal { dtype, .. } = &equation.op {
                let location = &plan.locations[equation.outputs[0].index()];
                let at = constants + location.start as u64;
                ops::run(
                    gpu,
                    &equation.op,
                    &[],
                    &[StridedOperand::dense(at, *dtype, &[])],
                    equation.at,
                )?;
            } else {
                compiler.equation(e, &mut code.steps)?;
            }
        }
        compiler.moves(&mut code.steps);
        code.flights = program.equations.iter().filter(|e| is_started(&e.op)).count();
        let alone = (0..code.steps.len()).filter(|&n| !code.steps[n].may_be_captured());
        code.parts = Mutex::new(parts_between(0..code.steps.len(), alone.collect()));
        Ok(code)
    }

    /// Its steps, and those of the programs inside, to make what they need ([`dry_run`]).
    pub fn dry_steps(&self) -> Vec<DryStep<'_>> {
        let places = || self.steps.iter().flat_map(|step| step.inputs.iter().chain(&step.outputs));
        let most = |of: fn(&Base) -> Option<usize>| {
            places().filter_map(|place| of(&place.base)).max().map_or(0, |n| n + 1)
        };
        let inputs = most(|base| if let Base::Input(i) = base { Some(*i) } else { None });
        let outputs = most(|base| if let Base::Output(k) = base { Some(*k) } else { None });
        let bases = Arc::new(BaseAddresses {
            arena: dry_run::block(0),
            constants: dry_run::block(1),
            host: 0,
            inputs: (0..inputs).map(|i| dry_run::block(2 + i)).collect(),
            outputs: (0..outputs).map(|k| dry_run::block(2 + inputs + k)).collect(),
        });
        let mut all = Vec::new();
        for step in &self.steps {
            let Some(kind) = step.kind() else { continue };
            let of =
                |all: &[BasedOperand]| all.iter().map(|p| p.operand(&bases)).collect::<Vec<_>>();
            let operands = [of(&step.inputs), of(&step.outputs)].concat();
            let like = step.likeness(&operands);
            let (gpu, bases) = (&self.gpu, bases.clone());
            let run = Box::new(move || step.dry_run(gpu, &bases));
            all.push(DryStep { kind, like, run });
            if let StepAction::Flow(flow) = &step.action {
                all.extend(flow.codes.iter().flat_map(StepCode::dry_steps));
            }
        }
        all
    }

    /// A run, which goes on with these copies, or has its own.
    fn begin(&self, trips: Option<HostCopies>) -> Result<RunState> {
        let flights = std::iter::repeat_with(|| None).take(self.flights).collect();
        let trips = match (self.copies, trips) {
            ((0, _), _) => None,
            (_, Some(trips)) => Some(trips),
            ((copies, bytes), None) => Some(HostCopies::new(&self.gpu, bytes, copies)?),
        };
        Ok(RunState { flights, trips, updates: Updates::default() })
    }

    /// Whether several steps may become one launch.
    fn may_have_graphs(&self) -> bool {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.iter().any(|part| part.graphs.is_some() && part.steps.len() > 1)
    }

    pub fn run(&self, bases: &BaseAddresses) -> Result<()> {
        let mut running = self.begin(None)?;
        let (gpu, steps) = (&self.gpu, &self.steps);
        let with_host = running.bases(bases);
        let bases = with_host.as_ref().unwrap_or(bases);
        // A profile times steps one by one; a program inside one that is captured is a part of it.
        if gpu.profile.is_on() || captures_into().is_some() {
            steps.iter().try_for_each(|step| step.run(gpu, bases, &mut running))?;
            return running.updates.flush(gpu);
        }
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at = 0;
        while let Some(part) = parts.get_mut(at) {
            let range = part.steps.clone();
            let mut run = |n: usize| {
                steps[n].run(gpu, bases, &mut running)?;
                match n + 1 == range.end {
                    true => running.updates.flush(gpu),
                    false => Ok(()),
                }
            };
            let ran = match &mut part.graphs {
                Some(graphs) => graphs.run(gpu, &bases.key(), range.clone(), &mut run)?,
                None => range.clone().try_for_each(run).map(|()| GraphRun::Plainly)?,
            };
            match ran {
                GraphRun::Replayed | GraphRun::Plainly => at += 1,
                // Nothing of the part has run: again, with this step by itself.
                GraphRun::Refused(step) => {
                    parts.splice(at..=at, parts_between(range, vec![step]));
                }
            }
        }
        Ok(())
    }
}

/// Parts between steps that run by themselves.
fn parts_between(steps: Range<usize>, alone: Vec<usize>) -> Vec<LaunchGroup> {
    let (mut parts, mut start) = (Vec::new(), steps.start);
    for next in alone.into_iter().chain([steps.end]) {
        if start < next {
            parts.push(LaunchGroup { steps: start..next, graphs: Some(Graphs::default()) });
        }
        if next < steps.end {
            parts.push(LaunchGroup { steps: next..next + 1, graphs: None });
        }
        start = next + 1;
    }
    parts
}

impl BaseAddresses {
    fn key(&self) -> SmallVec<[u64; 16]> {
        let first = [self.arena, self.constants];
        first.iter().chain(&self.inputs).chain(&self.outputs).copied().collect()
    }
}

impl CodeStep {
    pub fn name(&self) -> &str {
        match &self.action {
            StepAction::Op(op) => op.name(),
            StepAction::Region(..) => "region",
            StepAction::AddProduct => "dot_add",
            StepAction::WideProduct => "dot_region",
            StepAction::Flow(flow) => flow.flow.name(),
            StepAction::Start(of, _) => of.collective.name(),
            StepAction::Wait(_) => "wait",
            StepAction::CopyStart(way, _) | StepAction::CopyEnd(way, _) => way.name(),
        }
    }

    /// Whether it may be a part of a CUDA graph. A loop whose condition is read on the host, and
    /// collectives, which the host agrees on with other workers, are not; what else is not is found
    /// by trying.
    fn may_be_captured(&self) -> bool {
        match &self.action {
            StepAction::Op(_) | StepAction::Region(..) => true,
            StepAction::AddProduct | StepAction::WideProduct => true,
            StepAction::Start(..) | StepAction::Wait(_) => false,
            // Between graphs, on streams and addresses that no graph has to know.
            StepAction::CopyStart(..) | StepAction::CopyEnd(..) => false,
            StepAction::Flow(flow) => match &*flow.flow {
                Flow::Cond { .. } | Flow::While { .. } => false,
                // Unrolled.
                Flow::Scan(scan) => {
                    let inside: usize = flow.codes.iter().map(|code| code.steps.len()).sum();
                    scan.length.saturating_mul(inside) <= MOST_UNROLLED
                        && flow
                            .codes
                            .iter()
                            .all(|code| code.steps.iter().all(CodeStep::may_be_captured))
                }
            },
        }
    }

    /// What it needs most; none of a collective, which has no kernel of ours.
    fn kind(&self) -> Option<PreparationKind> {
        match &self.action {
            StepAction::Op(Op::Conv(_)) => Some(PreparationKind::Plans),
            StepAction::Op(Op::Fused(Fused::Attention(_) | Fused::AttentionVjp(_))) => {
                Some(PreparationKind::Plans)
            }
            StepAction::Op(Op::Dot) | StepAction::AddProduct | StepAction::WideProduct => {
                Some(PreparationKind::Products)
            }
            StepAction::Op(Op::Collective(_)) | StepAction::Start(..) | StepAction::Wait(_) => None,
            StepAction::Op(_) | StepAction::Region(..) | StepAction::Flow(_) => {
                Some(PreparationKind::Kernels)
            }
            StepAction::CopyStart(..) | StepAction::CopyEnd(..) => None,
        }
    }

    fn likeness(&self, operands: &[StridedOperand]) -> u64 {
        let what = match &self.action {
            StepAction::Op(op) => (0, Some(op), None),
            StepAction::Region(region, _) => (1, None, Some(region)),
            StepAction::AddProduct => (2, None, None),
            StepAction::WideProduct => (3, None, None),
            StepAction::Flow(_) | StepAction::Start(..) | StepAction::Wait(_) => (4, None, None),
            StepAction::CopyStart(..) | StepAction::CopyEnd(..) => (5, None, None),
        };
        dry_run::likeness(what, operands.iter())
    }

    /// Runs it in a thread that makes a dry run.
    fn dry_run(&self, gpu: &Arc<Gpu>, bases: &BaseAddresses) {
        if let StepAction::Flow(_) = &self.action {
            // The programs inside have steps of their own.
            return;
        }
        let (flights, updates) = (Vec::new(), Updates::default());
        let mut running = RunState { flights, trips: None, updates };
        let run = || self.run(gpu, bases, &mut running).and_then(|()| running.updates.flush(gpu));
        // An error is that of the call that runs it, as is a panic of a user's code.
        let _ = catch_unwind(AssertUnwindSafe(run));
    }

    /// Its operands and results, all memory beginning at an address that is aligned as on the
    /// device.
    pub fn somewhere(&self) -> [Vec<StridedOperand>; 2] {
        const ALIGNED: u64 = 1 << 40;
        let at = |place: &BasedOperand| StridedOperand {
            at: ALIGNED.wrapping_add(place.start as u64),
            ..place.operand.clone()
        };
        [&self.inputs, &self.outputs].map(|all| all.iter().map(at).collect())
    }

    fn run(&self, gpu: &Arc<Gpu>, bases: &BaseAddresses, running: &mut RunState) -> Result<()> {
        let operands =
            |all: &[BasedOperand]| all.iter().map(|place| place.operand(bases)).collect::<Vec<_>>();
        let (x, out) = (operands(&self.inputs), operands(&self.outputs));
        // Steps of optimisers, and casts, wait for those that follow.
        let waits = match &self.action {
            StepAction::Op(Op::Fused(of)) => match OptimizerKind::of(*of) {
                Some(how) => running.updates.add(gpu, how, &x, &out, self.at)?,
                None => false,
            },
            StepAction::Op(Op::Cast(_)) => running.updates.cast(gpu, &x[0], &out[0], self.at)?,
            _ => false,
        };
        if waits {
            return Ok(());
        }
        running.updates.flush(gpu)?;
        let what = CallDescription { kernel: self.name(), inputs: &x, outputs: &out, at: self.at };
        let mut run = || match &self.action {
            StepAction::Op(op) => ops::run(gpu, op, &x, &out, self.at),
            StepAction::Region(region, values) => region_loop(gpu, region, values, &x, &out),
            StepAction::AddProduct => product::dot(gpu, &x[0], &x[1], &out[0], true),
            StepAction::WideProduct => product::dot_with_bias(gpu, &x[0], &x[1], &out[0], x.get(2)),
            StepAction::Flow(flow) => flow.run(gpu, &x, &out, bases),
            StepAction::Start(of, number) => match nccl::start(gpu, of, &x[0], &out[0])? {
                Some(flight) => {
                    running.flights[*number] = Some(flight);
                    Ok(())
                }
                None => ops::run(gpu, &Op::Collective(of.clone()), &x, &out, self.at),
            },
            StepAction::Wait(number) => match running.flights[*number].take() {
                Some(mut flight) => flight.wait(),
                None => Ok(()),
            },
            StepAction::CopyStart(way, number) => match &mut running.trips {
                Some(trips) => trips.start(*way, *number, &x[0], &out[0]),
                None => Ok(()),
            },
            StepAction::CopyEnd(_, number) => match &mut running.trips {
                Some(trips) => trips.end(*number),
                None => Ok(()),
            },
        };
        let done = match &self.action {
            // Its steps have rows of their own; copies beside the queue take none of its time.
            StepAction::Flow(_) | StepAction::CopyStart(..) | StepAction::CopyEnd(..) => run(),
            _ => gpu.timed(&what, run),
        };
        done.map_err(|error| self.located(error))
    }

    /// The error with the line of the step, if it has none.
    fn located(&self, error: Error) -> Error {
        match self.at {
            Some(at) if error.location().is_none() => error.at(at),
            _ => error,
        }
    }
}

pub(crate) fn is_started(op: &Op) -> bool {
    matches!(op, Op::Collective(of) if of.started)
}

pub(crate) fn region_loop(
    gpu: &Gpu,
    region: &Region,
    values: &[Value],
    x: &[StridedOperand],
    out: &[StridedOperand],
) -> Result<()> {
    with_loop(region, values, x, out, |of, columns| of.run_region(gpu, columns))
}

/// Calls `f` with the loop of a region, and with the sums over rows beside it.
pub(crate) fn with_loop<R>(
    region: &Region,
    values: &[Value],
    x: &[StridedOperand],
    out: &[StridedOperand],
    f: impl FnOnce(&Loop<'_>, &[(usize, StridedOperand)]) -> R,
) -> R {
    let mut inputs = Vec::with_capacity(x.len());
    for (x, load) in x.iter().zip(&region.inputs) {
        let layout = &load.layout;
        inputs.push(x.from(layout.offset as isize).as_strided(&layout.shape, &layout.strides));
    }
    // The key of random numbers has no layout of the domain: its address alone is used.
    for inst in &region.body {
        if let pullback_ir::Inst::Random(_, key, _) = inst {
            let none = vec![0; region.shape.len()];
            inputs[*key] = x[*key].as_strided(&region.shape, &none);
        }
    }
    let results = region.outputs.iter().chain(&region.columns).copied();
    let mut outputs: Vec<(usize, StridedOperand)> = results.zip(out.iter().cloned()).collect();
    let columns = outputs.split_off(region.outputs.len());
    let of = Loop {
        shape: &region.shape,
        inner: region.inner,
        body: &region.body,
        values,
        inputs: &inputs,
        outputs: &outputs,
        immediate: 0,
    };
    f(&of, &columns)
}
