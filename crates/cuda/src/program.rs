//! Planned programs: one step after the other, on base addresses.
//!
//! Steps are made once; a run adds base addresses. A loop or a conditional is a step that runs
//! other programs, and reads its condition on the host: the only place where a program waits.

use crate::gpu::Gpu;
use crate::loops::{Loop, Operand};
use crate::nccl::{self, Flight};
use crate::profile::Described;
use crate::{ops, product};
use pullback_cuda_sys::DevicePtr;
use pullback_ir::pass::plan::{Base, Location, Move, Plan, Planned, ProductLocation, ScratchRole};
use pullback_ir::{
    Bases, CollectiveOp, DType, DeviceFlight, DeviceProgram, Error, Flow, Layout, Line, Op,
    Program, Region, Result, Spec, Step, Value, Var,
};
use std::sync::Arc;

/// A program that is ready to run.
pub(crate) struct Prepared {
    gpu: Arc<Gpu>,
    planned: Arc<Planned>,
    code: Code,
    steps: Vec<Step>,
}

/// The steps of a program, and its constants.
struct Code {
    steps: Vec<CodeStep>,
    /// How many collectives it starts.
    flights: usize,
    constants: DevicePtr,
    gpu: Arc<Gpu>,
}

struct CodeStep {
    equation: usize,
    action: Action,
    inputs: Vec<Place>,
    outputs: Vec<Place>,
    at: Option<Line>,
}

enum Action {
    Op(Op),
    Region(Arc<Region>, Vec<Value>),
    /// The product of two matrices, added to the result.
    AddProduct,
    Flow(Box<FlowCode>),
    /// Starts a collective, which runs beside the steps up to its wait: its number.
    Start(Arc<CollectiveOp>, usize),
    Wait(usize),
}

/// The collectives of a run that were started and not waited for. Those that are left when it ends,
/// also by an error, are waited for when this is dropped, before the memory of the run is used
/// again.
type Flights = Vec<Option<Flight>>;

struct FlowCode {
    flow: Arc<Flow>,
    /// The programs inside.
    codes: Vec<Code>,
    /// Offsets in the arena: of the programs' arena, and of a condition.
    arena: usize,
    condition: usize,
}

/// Memory seen through strides, from a base on.
#[derive(Clone)]
struct Place {
    base: Base,
    /// Bytes from the base to the element at index 0, 0, …; wraps if it is before.
    start: usize,
    operand: Operand,
}

/// The base addresses of a run.
#[derive(Clone)]
struct Addresses {
    arena: DevicePtr,
    constants: DevicePtr,
    inputs: Vec<DevicePtr>,
    outputs: Vec<DevicePtr>,
}

impl Place {
    fn new(base: Base, start: usize, layout: &Layout, dtype: DType) -> Place {
        let first = layout.offset.wrapping_mul(dtype.size());
        let operand = Operand::new(0, dtype, &layout.shape, &layout.strides);
        Place { base, start: start.wrapping_add(first), operand }
    }

    fn operand(&self, bases: &Addresses) -> Operand {
        let base = match self.base {
            Base::Arena => bases.arena,
            Base::Constants => bases.constants,
            Base::Input(i) => bases.inputs[i],
            Base::Output(k) => bases.outputs[k],
        };
        Operand { at: base.wrapping_add(self.start as u64), ..self.operand.clone() }
    }

    fn spec(&self, device: pullback_ir::Device) -> Spec {
        Spec::on(device, self.operand.dtype, &self.operand.shape[..])
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        if self.constants != 0 {
            self.gpu.free(self.constants);
        }
    }
}

impl Prepared {
    pub fn new(gpu: &Arc<Gpu>, planned: &Arc<Planned>) -> Result<Prepared> {
        let code = Code::new(gpu, planned.program(), planned.plan())?;
        let device = pullback_ir::Device::Cuda(gpu.number);
        let step = |s: &CodeStep| Step {
            equation: s.equation,
            kernel: s.name().to_string(),
            operands: [&s.inputs, &s.outputs]
                .map(|all| all.iter().map(|place| place.spec(device)).collect()),
            at: s.at,
        };
        let steps = code.steps.iter().map(step).collect();
        Ok(Prepared { gpu: gpu.clone(), planned: planned.clone(), code, steps })
    }
}

impl DeviceProgram for Prepared {
    fn steps(&self) -> &[Step] {
        &self.steps
    }

    fn run(&mut self, memory: &Bases<'_>, step: Option<usize>) -> Result<()> {
        let mut outputs = vec![0; self.planned.program().outputs.len()];
        for (&(k, _), &at) in self.planned.fresh().iter().zip(memory.outputs) {
            outputs[k] = at;
        }
        let bases = Addresses {
            arena: memory.arena,
            constants: self.code.constants,
            inputs: memory.inputs.iter().map(|&(at, start)| at + start as u64).collect(),
            outputs,
        };
        match step {
            None => self.code.run(&bases),
            // A collective is waited for at once.
            Some(n) => self.code.steps[n].run(&self.gpu, &bases, &mut self.code.flights()),
        }
    }
}

impl Code {
    fn new(gpu: &Arc<Gpu>, program: &Program, plan: &Plan) -> Result<Code> {
        let (held, bytes) = held_copies(program, plan);
        let constants = if bytes > 0 { gpu.alloc(bytes)? } else { 0 };
        let mut code = Code { steps: Vec::new(), flights: 0, constants, gpu: gpu.clone() };
        let compiler = Compiler { gpu, program, plan, held };
        for (e, equation) in program.equations.iter().enumerate() {
            if let Op::Literal { dtype, .. } = &equation.op {
                let location = &plan.locations[equation.outputs[0].index()];
                let at = constants + location.start as u64;
                ops::run(gpu, &equation.op, &[], &[Operand::dense(at, *dtype, &[])], equation.at)?;
            } else {
                compiler.equation(e, &mut code.steps)?;
            }
        }
        compiler.moves(&mut code.steps);
        code.flights = program.equations.iter().filter(|e| is_started(&e.op)).count();
        Ok(code)
    }

    fn flights(&self) -> Flights {
        std::iter::repeat_with(|| None).take(self.flights).collect()
    }

    fn run(&self, bases: &Addresses) -> Result<()> {
        let mut flights = self.flights();
        self.steps.iter().try_for_each(|step| step.run(&self.gpu, bases, &mut flights))
    }
}

impl CodeStep {
    fn name(&self) -> &str {
        match &self.action {
            Action::Op(op) => op.name(),
            Action::Region(..) => "region",
            Action::AddProduct => "dot_add",
            Action::Flow(flow) => flow.flow.name(),
            Action::Start(of, _) => of.collective.name(),
            Action::Wait(_) => "wait",
        }
    }

    fn run(&self, gpu: &Arc<Gpu>, bases: &Addresses, flights: &mut Flights) -> Result<()> {
        let operands =
            |all: &[Place]| all.iter().map(|place| place.operand(bases)).collect::<Vec<_>>();
        let (x, out) = (operands(&self.inputs), operands(&self.outputs));
        let what = Described { kernel: self.name(), inputs: &x, outputs: &out, at: self.at };
        let mut run = || match &self.action {
            Action::Op(op) => ops::run(gpu, op, &x, &out, self.at),
            Action::Region(region, values) => region_loop(gpu, region, values, &x, &out),
            Action::AddProduct => product::dot(gpu, &x[0], &x[1], &out[0], true),
            Action::Flow(flow) => flow.run(gpu, &x, &out, bases),
            Action::Start(of, number) => match nccl::start(gpu, of, &x[0], &out[0])? {
                Some(flight) => {
                    flights[*number] = Some(flight);
                    Ok(())
                }
                None => ops::run(gpu, &Op::Collective(of.clone()), &x, &out, self.at),
            },
            Action::Wait(number) => match flights[*number].take() {
                Some(mut flight) => flight.wait(),
                None => Ok(()),
            },
        };
        let done = match &self.action {
            // Its steps have rows of their own.
            Action::Flow(_) => run(),
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

fn is_started(op: &Op) -> bool {
    matches!(op, Op::Collective(of) if of.started)
}

pub(crate) fn region_loop(
    gpu: &Gpu,
    region: &Region,
    values: &[Value],
    x: &[Operand],
    out: &[Operand],
) -> Result<()> {
    let mut inputs = Vec::with_capacity(x.len());
    for (x, load) in x.iter().zip(&region.inputs) {
        let layout = &load.layout;
        inputs.push(x.from(layout.offset as isize).seen(&layout.shape, &layout.strides));
    }
    // The key of random numbers has no layout of the domain: its address alone is used.
    for inst in &region.body {
        if let pullback_ir::Inst::Random(_, key, _) = inst {
            let none = vec![0; region.shape.len()];
            inputs[*key] = x[*key].seen(&region.shape, &none);
        }
    }
    let results = region.outputs.iter().chain(&region.columns).copied();
    let mut outputs: Vec<(usize, Operand)> = results.zip(out.iter().cloned()).collect();
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
    of.run_region(gpu, &columns)
}

/// Turns equations and their plan into steps.
struct Compiler<'a> {
    gpu: &'a Arc<Gpu>,
    program: &'a Program,
    plan: &'a Plan,
    held: Vec<HeldCopy>,
}

/// A dense copy of operand `k` of equation `e`, from this byte of the constants on.
struct HeldCopy {
    e: usize,
    k: usize,
    start: usize,
}

/// Steps of optimisers take dense operands. Where one is not, memory for a copy is allocated with
/// the constants: in the middle of a run there may be none left, when other parameters have been
/// written. Also the bytes of both.
fn held_copies(program: &Program, plan: &Plan) -> (Vec<HeldCopy>, usize) {
    let (mut held, mut bytes) = (Vec::new(), plan.constants);
    for (e, equation) in program.equations.iter().enumerate() {
        if !matches!(equation.op, Op::Fused(of) if of.updates()) {
            continue;
        }
        for (k, v) in equation.inputs.iter().enumerate() {
            if !plan.locations[v.index()].layout.is_dense() {
                let start = bytes.next_multiple_of(256);
                held.push(HeldCopy { e, k, start });
                bytes = start + program.spec(*v).bytes();
            }
        }
    }
    (held, bytes)
}

impl Compiler<'_> {
    fn place(&self, v: Var) -> Place {
        let Location { base, start, layout } = &self.plan.locations[v.index()];
        Place::new(*base, *start, layout, self.program.spec(v).dtype)
    }

    /// The number of the collective that has this result.
    fn flight(&self, v: Var) -> Option<usize> {
        let mut started = self.program.equations.iter().filter(|e| is_started(&e.op));
        started.position(|e| e.outputs[0] == v)
    }

    /// Dense memory in the arena.
    fn in_arena(&self, start: usize, spec: &Spec) -> Place {
        Place::new(Base::Arena, start, &Layout::dense(spec.shape.clone()), spec.dtype)
    }

    fn scratch(&self, e: usize, role: ScratchRole) -> Option<usize> {
        self.plan.scratch[e].iter().find(|s| s.role == role).map(|s| s.start)
    }

    fn equation(&self, e: usize, steps: &mut Vec<CodeStep>) -> Result<()> {
        let equation = &self.program.equations[e];
        let at = equation.at;
        let inputs: Vec<Place> = equation.inputs.iter().map(|&v| self.place(v)).collect();
        let outputs: Vec<Place> = equation.outputs.iter().map(|&v| self.place(v)).collect();
        let step = |action, inputs, outputs| CodeStep { equation: e, action, inputs, outputs, at };
        match &equation.op {
            Op::View(view) => {
                let layout = &self.plan.locations[equation.inputs[0].index()].layout;
                if layout.view(view).is_none() {
                    steps.push(step(Action::Op(equation.op.clone()), inputs, outputs));
                }
            }
            // It has the slot of its operand, and steps run in the order of equations.
            Op::After => {}
            Op::Wait => {
                if let Some(number) = self.flight(equation.inputs[0]) {
                    steps.push(step(Action::Wait(number), Vec::new(), Vec::new()));
                }
            }
            Op::Collective(of) if of.started => {
                if let Some(number) = self.flight(equation.outputs[0]) {
                    steps.push(step(Action::Start(of.clone(), number), inputs, outputs));
                }
            }
            Op::Region(region) => {
                let (inputs, region) = self.loads(e, region, 0, steps);
                let values = region.values()?;
                steps.push(step(Action::Region(region, values), inputs, outputs));
            }
            Op::DotRegion(region) => {
                let matrices = inputs[..2].to_vec();
                if let Some(ProductLocation::Added(_)) = self.plan.products[e] {
                    steps.push(step(Action::AddProduct, matrices, outputs));
                    return Ok(());
                }
                let spec = &region.inputs[0].spec;
                let product = match self.plan.products[e] {
                    Some(ProductLocation::InResult(j)) => {
                        let mut product = outputs[j].clone();
                        product.operand = Operand::dense(0, spec.dtype, &spec.shape);
                        product
                    }
                    _ => self.in_arena(self.scratch(e, ScratchRole::Product).unwrap_or(0), spec),
                };
                steps.push(step(Action::Op(Op::Dot), matrices, vec![product.clone()]));
                let (rest, region) = self.loads(e, region, 2, steps);
                let values = region.values()?;
                let inputs = std::iter::once(product).chain(rest).collect();
                steps.push(step(Action::Region(region, values), inputs, outputs));
            }
            Op::Flow(flow) => {
                let programs = equation.op.structure().map_or(Vec::new(), |s| s.programs());
                let mut codes = Vec::new();
                for (program, plan) in programs.into_iter().zip(&self.plan.inner[e]) {
                    codes.push(Code::new(self.gpu, program, plan)?);
                }
                let code = FlowCode {
                    flow: flow.clone(),
                    codes,
                    arena: self.scratch(e, ScratchRole::Inner).unwrap_or(0),
                    condition: self.scratch(e, ScratchRole::Test).unwrap_or(0),
                };
                steps.push(step(Action::Flow(Box::new(code)), inputs, outputs));
            }
            op => {
                let mut inputs = inputs;
                for copy in self.held.iter().filter(|copy| copy.e == e) {
                    let spec = self.program.spec(equation.inputs[copy.k]);
                    let layout = Layout::dense(spec.shape.clone());
                    let dense = Place::new(Base::Constants, copy.start, &layout, spec.dtype);
                    let from = std::mem::replace(&mut inputs[copy.k], dense.clone());
                    steps.push(step(Action::Op(Op::Copy), vec![from], vec![dense]));
                }
                steps.push(step(Action::Op(op.clone()), inputs, outputs));
            }
        }
        Ok(())
    }

    /// The operands of a region from number `first` on, and the region that takes them: where they
    /// are, if the region can express their layout, or copied to be dense.
    fn loads(
        &self,
        e: usize,
        region: &Arc<Region>,
        first: usize,
        steps: &mut Vec<CodeStep>,
    ) -> (Vec<Place>, Arc<Region>) {
        let equation = &self.program.equations[e];
        let (mut places, mut region) = (Vec::new(), region.clone());
        for (k, &v) in equation.inputs.iter().enumerate().skip(first) {
            let place = self.place(v);
            if let Some((_, layout)) = self.plan.loads[e].iter().find(|load| load.0 == k) {
                let Location { base, start, .. } = self.plan.locations[v.index()];
                let number = if first == 0 { k } else { k - 1 };
                Arc::make_mut(&mut region).inputs[number].layout = layout.clone();
                let whole = Layout::dense([1].as_slice().into());
                places.push(Place::new(base, start, &whole, place.operand.dtype));
                continue;
            }
            places.push(match self.scratch(e, ScratchRole::Dense(k)) {
                None => place,
                Some(start) => {
                    let dense = self.in_arena(start, self.program.spec(v));
                    steps.push(CodeStep {
                        equation: e,
                        action: Action::Op(Op::Copy),
                        inputs: vec![place],
                        outputs: vec![dense.clone()],
                        at: equation.at,
                    });
                    dense
                }
            });
        }
        (places, region)
    }

    /// Copies at the end: to outputs, then to temporaries, then to inputs.
    fn moves(&self, steps: &mut Vec<CodeStep>) {
        let mut copy = |from: Place, to: Place| {
            steps.push(CodeStep {
                equation: self.program.equations.len(),
                action: Action::Op(Op::Copy),
                inputs: vec![from],
                outputs: vec![to],
                at: None,
            });
        };
        let to = |m: &Move| {
            let spec = self.program.spec(m.var);
            Place::new(m.to, 0, &Layout::dense(spec.shape.clone()), spec.dtype)
        };
        let waits = |start: usize, v: Var| self.in_arena(start, self.program.spec(v));
        let outward = |m: &&Move| matches!(m.to, Base::Output(_));
        let moves = &self.plan.moves;
        moves.iter().filter(outward).for_each(|m| copy(self.place(m.var), to(m)));
        for m in moves {
            if let Some(start) = m.via {
                copy(self.place(m.var), waits(start, m.var));
            }
        }
        for m in moves.iter().filter(|m| !outward(m)) {
            let from = m.via.map_or_else(|| self.place(m.var), |start| waits(start, m.var));
            copy(from, to(m));
        }
    }
}

impl FlowCode {
    fn run(&self, gpu: &Gpu, x: &[Operand], out: &[Operand], bases: &Addresses) -> Result<()> {
        let at = |all: &[Operand]| all.iter().map(|o| o.at).collect::<Vec<_>>();
        let inside = |code: &Code, inputs: Vec<DevicePtr>, outputs: Vec<DevicePtr>| {
            let arena = bases.arena + self.arena as u64;
            Addresses { arena, constants: code.constants, inputs, outputs }
        };
        match (&*self.flow, &self.codes[..]) {
            (Flow::Cond { .. }, [yes, no]) => {
                let code = if read_bool(gpu, x[0].at)? { yes } else { no };
                code.run(&inside(code, at(&x[1..]), at(out)))
            }
            (Flow::While { shared, .. }, [test, body]) => {
                begin(gpu, &x[*shared..], out)?;
                let inputs = [at(&x[..*shared]), at(out)].concat();
                let condition = bases.arena + self.condition as u64;
                let tests = inside(test, inputs.clone(), vec![condition]);
                // The body updates its state in place.
                let bodies = inside(body, inputs, at(out));
                let mut iteration = 0usize;
                loop {
                    let failed = |error: Error| {
                        error.detail(format!("in iteration {iteration} of the loop"))
                    };
                    test.run(&tests).map_err(failed)?;
                    if !read_bool(gpu, condition).map_err(failed)? {
                        return Ok(());
                    }
                    body.run(&bodies).map_err(failed)?;
                    iteration += 1;
                }
            }
            (Flow::Scan(scan), [body]) => {
                let (fixed, sequences) = x.split_at(scan.shared + scan.carry);
                let (state, stacked) = out.split_at(scan.carry);
                begin(gpu, &fixed[scan.shared..], state)?;
                let fixed = [at(&fixed[..scan.shared]), at(state)].concat();
                let mut run = inside(body, Vec::new(), Vec::new());
                for iteration in 0..scan.length {
                    let last = scan.length - 1 - iteration;
                    let row = if scan.reverse { last } else { iteration } as isize;
                    run.inputs.clone_from(&fixed);
                    run.inputs.extend(sequences.iter().map(|x| x.from(x.strides[0] * row).at));
                    run.outputs = at(state);
                    run.outputs.extend(stacked.iter().map(|y| y.from(y.strides[0] * row).at));
                    body.run(&run).map_err(|error| {
                        error.detail(format!("in iteration {iteration} of the scan"))
                    })?;
                }
                Ok(())
            }
            (flow, codes) => {
                let message = format!("has {} programs inside", codes.len());
                Err(Error::argument(flow.name(), message))
            }
        }
    }
}

fn read_bool(gpu: &Gpu, at: DevicePtr) -> Result<bool> {
    let mut byte = [0];
    gpu.download(at, &mut byte)?;
    Ok(byte[0] != 0)
}

/// Copies the initial state to where it is updated, unless it is there already.
fn begin(gpu: &Gpu, first: &[Operand], state: &[Operand]) -> Result<()> {
    first.iter().zip(state).try_for_each(|(from, to)| ops::copy(gpu, from, to))
}
