//! Programs that run: planned and prepared once, called many times.
//!
//! What is the same on every device is here: the plan, the checks of what is bound, working memory
//! and outputs, the inspection of every value. What differs is [`Code`]: kernels over base
//! addresses.

use super::attach::{ARENA, AttachedDevice, DeviceBlock};
use super::code::Code;
use super::{Bases, DeviceOperand, DeviceProgram, KernelCode, Memory, NativeCode, OpCall, target};
use crate::{Device, Error, Result, Spec, Tensor, control, events, jit};
use pullback_ir::infer::Checked;
use pullback_ir::pass::plan::{Base, Plan, Planned};
use pullback_ir::{Layout, Op, Program, Structure};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::sync::Arc;

/// Loops that are kept ready: those of some layers, for some shapes.
const MOST_FLOWS: usize = 256;

thread_local! {
    /// Loops that ran outside of programs, by the op and the layouts of its operands.
    static KEPT_FLOWS: RefCell<FxHashMap<(Op, Vec<Layout>), Executable>> = RefCell::default();
}

/// Whether what is prepared for an op is kept: a loop on the host, without functions of the user's,
/// which may hold anything.
fn is_kept(op: &Op, device: Device) -> bool {
    let Op::Flow(flow) = op else { return false };
    device == Device::Cpu && flow.programs().into_iter().all(control::is_tensor_code)
}

/// A program that is ready to run on a device.
pub(crate) struct Executable {
    planned: Arc<Planned>,
    code: Code,
}

/// The memory of an input, with the byte at which its elements begin.
pub(crate) enum Bound<'a> {
    /// Only read.
    Read(&'a Memory, usize),
    /// Replaced by an output ([`Program::updates`]).
    Write(&'a mut Memory, usize),
}

impl Bound<'_> {
    pub fn memory(&self) -> &Memory {
        match self {
            Bound::Read(memory, _) => memory,
            Bound::Write(memory, _) => memory,
        }
    }

    pub fn start(&self) -> usize {
        match self {
            Bound::Read(_, start) | Bound::Write(_, start) => *start,
        }
    }

    pub fn is_written(&self) -> bool {
        matches!(self, Bound::Write(..))
    }
}

impl Executable {
    /// Checks, plans and prepares a program whose inputs are dense.
    ///
    /// # Errors
    /// If the program is wrong, or there is no memory for its constants.
    pub fn new(program: &Program) -> Result<Executable> {
        let device = device_of(program)?;
        Executable::on(device, Planned::new(program, target(Some(device)))?)
    }

    fn on(device: Device, planned: Planned) -> Result<Executable> {
        let planned = Arc::new(planned);
        let code = Code::prepare(device, &planned)?;
        Ok(Executable { planned, code })
    }

    /// Runs an op that holds programs or a region, by making a program of it.
    pub fn run_once(call: Checked, inputs: &[&Tensor], memory: &[&Memory]) -> Result<Vec<Memory>> {
        let (mut layouts, mut bound) = (Vec::new(), Vec::new());
        for (x, memory) in inputs.iter().zip(memory) {
            layouts.push(Layout { offset: 0, ..x.0.layout.clone() });
            bound.push(Bound::Read(memory, x.0.layout.offset * x.dtype().size()));
        }
        let (device, mut outputs) = (call.device(), Vec::new());
        let key = (call.op().clone(), layouts.clone());
        if is_kept(&key.0, device) {
            // Taken out, as code that runs may come here again.
            let known = KEPT_FLOWS.with_borrow_mut(|all| all.remove(&key));
            let mut executable = match known {
                Some(known) => known,
                None => Executable::optimised(&call, layouts)?,
            };
            executable.run_into(&mut bound, &mut outputs)?;
            KEPT_FLOWS.with_borrow_mut(|all| {
                if all.len() >= MOST_FLOWS {
                    all.clear();
                }
                all.insert(key, executable);
            });
            return Ok(outputs);
        }
        let planned = Planned::of_op(call, layouts, target(Some(device)))?;
        device_of(planned.program())?;
        Executable::on(device, planned)?.run_into(&mut bound, &mut outputs)?;
        Ok(outputs)
    }

    /// An op as a program of one equation, after all passes.
    fn optimised(call: &Checked, layouts: Vec<Layout>) -> Result<Executable> {
        let mut program = Program::default();
        for &spec in call.operands() {
            program.input(spec.clone());
        }
        let inputs = program.inputs.clone();
        program.outputs = program.push(call.op().clone(), &inputs, None)?.to_vec();
        let program = events::silently(|| jit::optimised(&program))?;
        let device = device_of(&program)?;
        Executable::on(device, Planned::bound(&program, layouts, target(Some(device)))?)
    }

    /// The device it runs on.
    pub fn device(&self) -> Device {
        self.code.device()
    }

    /// The program it runs.
    pub fn program(&self) -> &Program {
        self.planned.program()
    }

    /// The memory plan.
    pub fn plan(&self) -> &Plan {
        self.planned.plan()
    }

    /// Bytes that it holds between calls: the constants.
    pub fn held(&self) -> usize {
        self.plan().all_constants()
    }

    /// How often native code was made for it, and how often existing code is used.
    pub fn native_code(&self) -> (usize, usize) {
        self.code.native_code()
    }

    /// The generated machine code, as text.
    pub fn listings(&self) -> Vec<NativeCode> {
        self.code.listings()
    }

    /// The kernels, in order.
    pub fn kernels(&self) -> Vec<String> {
        self.code.steps().iter().map(|step| step.kernel.clone()).collect()
    }

    /// What the device has made for it, in words.
    pub fn made(&self) -> Option<String> {
        match &self.code {
            Code::Host(..) => None,
            Code::Attached(program, ..) => program.made(),
        }
    }

    /// The kernels of a GPU, with their generated code.
    pub fn device_kernels(&self) -> Vec<KernelCode> {
        self.code.kernels()
    }

    /// How the device launches them, a line each.
    pub fn notes(&self) -> Vec<String> {
        self.code.notes()
    }

    /// Says which version the memory of each input of the next run has, where it is the same memory
    /// in every run. Weights that have not changed are then packed once.
    pub fn unchanged(&mut self, versions: impl Iterator<Item = Option<u64>>) {
        self.code.unchanged(versions);
    }

    /// Runs the program and puts the outputs that do not replace an input into a list, in order,
    /// which is cleared first: if it has the capacity, nothing is allocated outside the pool.
    ///
    /// # Errors
    /// If the inputs are not those of the program, or an op fails; the inputs that are replaced are
    /// then as they were, and the list is empty.
    pub fn run_into(&mut self, inputs: &mut [Bound<'_>], outputs: &mut Vec<Memory>) -> Result<()> {
        outputs.clear();
        self.code.run(&self.planned, inputs, outputs)
    }

    /// Runs the program and shows every result of every equation when it has just been made:
    /// `see(equation, result, value)`, without a value where it is a literal.
    ///
    /// # Errors
    /// As [`Executable::run_into`].
    pub fn run_observed(
        &mut self,
        inputs: &mut [Bound<'_>],
        see: &mut dyn FnMut(usize, usize, Option<Tensor>),
    ) -> Result<()> {
        let program = self.planned.program();
        let steps: Vec<usize> = self.code.steps().iter().map(|step| step.equation).collect();
        let mut next = 0;
        self.code.run_by_steps(&self.planned, inputs, &mut |running| {
            for (e, equation) in program.equations.iter().enumerate() {
                while steps.get(next) == Some(&e) {
                    running.step()?;
                    next += 1;
                }
                for (j, &v) in equation.outputs.iter().enumerate() {
                    let value = running.value(e, j)?;
                    let tensor = |memory| Tensor::dense(program.spec(v).clone(), memory);
                    see(e, j, value.map(tensor));
                }
            }
            (next..steps.len()).try_for_each(|_| running.step())
        })
    }
}

/// A program that is run one step after the other.
pub(super) trait BySteps {
    /// Runs the next step.
    fn step(&mut self) -> Result<()>;

    /// A dense copy of what an equation has just made, unless it is a literal or on the host.
    fn value(&self, equation: usize, result: usize) -> Result<Option<Memory>>;
}

/// The one device of all values of a program, and of the programs inside it.
fn device_of(program: &Program) -> Result<Device> {
    let with_bytes = program.specs.iter().find(|spec| spec.bytes() > 0);
    let device = with_bytes.or(program.specs.first()).map_or(Device::Cpu, |spec| spec.device);
    check_device(program, device)?;
    Ok(device)
}

fn check_device(program: &Program, device: Device) -> Result<()> {
    // Without bytes (the result of a barrier) it is anywhere.
    let is_elsewhere = |spec: &&Spec| spec.device != device && spec.bytes() > 0;
    if let Some(other) = program.specs.iter().find(is_elsewhere) {
        let message = format!("values on {device} and on {} in one program", other.device);
        return Err(Error::argument("jit", message)
            .hint("move all of them to one device before the call, with `to`"));
    }
    let structures = program.equations.iter().filter_map(|e| e.op.structure());
    structures.flat_map(Structure::programs).try_for_each(|inside| check_device(inside, device))
}

/// A program of a device, bound.
pub(super) struct OnDevice<'a> {
    pub planned: &'a Planned,
    pub program: &'a mut dyn DeviceProgram,
    pub bases: Bases<'a>,
    pub on: &'a Arc<AttachedDevice>,
    pub next: usize,
}

impl BySteps for OnDevice<'_> {
    fn step(&mut self) -> Result<()> {
        self.next += 1;
        self.program.run(&self.bases, Some(self.next - 1))
    }

    fn value(&self, equation: usize, result: usize) -> Result<Option<Memory>> {
        let program = self.planned.program();
        let v = program.equations[equation].outputs[result];
        let (home, spec) = (&self.planned.plan().locations[v.index()], program.spec(v));
        let (memory, start) = match home.base {
            Base::Arena => (self.bases.arena, 0),
            Base::Constants | Base::Host => return Ok(None),
            Base::Input(i) => self.bases.inputs[i],
            Base::Output(k) => {
                let at = self.planned.fresh().partition_point(|o| o.0 < k);
                (self.bases.outputs[at], 0)
            }
        };
        let mut layout = home.layout.clone();
        // Behind an input that is flipped the offset is a negative number, around the end of the
        // unsigned ones.
        layout.offset = layout.offset.wrapping_add((start + home.start) / spec.dtype.size());
        let (to, dense) =
            (DeviceBlock::alloc(self.on, spec.bytes(), ARENA)?, Layout::dense(spec.shape.clone()));
        let from = DeviceOperand { memory, layout: &layout, spec };
        let out = DeviceOperand { memory: to.handle, layout: &dense, spec };
        let call =
            OpCall { op: &Op::Copy, write: None, outputs: &[out], inputs: &[from], at: None };
        self.on.backend.run(&call)?;
        Ok(Some(to.into()))
    }
}
