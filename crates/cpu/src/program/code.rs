//! Prepared steps: at run time, only offsets are added to base addresses.

use super::compiler::StepCompiler;
use super::flow::FlowStep;
#[cfg(target_arch = "x86_64")]
use super::straight::{self, Segment};
use super::{NativeCode, no_memory};
use crate::collective::{HostFlight, WaitGuard};
use crate::conv;
use crate::dot::{self, Panels, Right};
use crate::operand::{Sink, Source};
use crate::region::RegionKernel;
use crate::run::dispatch;
use crate::{Buffer, movement, pointwise};
use pullback_ir::pass::plan::Plan;
use pullback_ir::{
    CollectiveOp, DType, Error, Layout, Line, Op, Program, Region, Result, Shape, Spec, Strides,
};
use smallvec::SmallVec;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

/// A program as steps over memory.
pub(super) struct ProgramCode {
    pub(super) steps: Vec<KernelCall>,
    /// The memory of this call: arena, constants, that of values that are away, inputs, outputs.
    pub(super) bases: BasePointers,
    /// Held because `bases` points into it.
    _constants: Buffer,
    /// The same.
    _host: Buffer,
    inputs: usize,
    /// The same steps, those on a few elements joined into straight-line code.
    #[cfg(target_arch = "x86_64")]
    parts: Option<Vec<Segment>>,
    /// Held because `bases` points into it.
    _scratch: Buffer,
    /// The collectives that run beside the steps.
    flights: Vec<Arc<HostFlight>>,
    /// Steps whose right operand is an input that the program does not write, and which input.
    packing: Vec<(usize, usize)>,
}

/// Most rows of a product whose right operand is kept packed between runs: with more of them
/// packing is a small part of the work.
const FEW_ROWS: usize = 256;

/// Addresses that are filled in before each run.
pub(super) struct BasePointers(pub(super) Vec<*mut u8>);

// SAFETY: dereferenced only during a run, which borrows the code mutably and holds the buffers.
unsafe impl Send for BasePointers {}
// SAFETY: as above; nothing is dereferenced through a shared reference.
unsafe impl Sync for BasePointers {}

/// Positions among the bases.
pub(super) const ARENA: usize = 0;
pub(super) const CONSTANTS: usize = 1;
pub(super) const HOST: usize = 2;
pub(super) const FIRST: usize = 3;

/// One kernel call.
pub(super) struct KernelCall {
    /// The equation it belongs to; moves at the end come after all of them.
    pub(super) equation: usize,
    pub(super) action: Action,
    pub(super) sources: Box<[StepOperand]>,
    pub(super) sinks: Box<[StepResult]>,
    pub(super) at: Option<Line>,
    /// The right operand, if it is packed for several runs of the step.
    pub(super) ready: Option<PackedOperand>,
    /// The version of the input that it was packed from, and its address; not of what a loop has
    /// packed.
    pub(super) packed_from: Option<(u64, usize)>,
}

/// A right operand as the kernel reads it.
pub(super) enum PackedOperand {
    Product(Panels),
    Convolution(conv::PackedKernels),
}

/// The operation of a step.
pub(super) enum Action {
    /// The kernel of an op.
    Kernel(Op),
    /// A region over dense operands; and its instructions, if it may be joined with other steps.
    Region(
        Box<RegionKernel>,
        #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] Option<Arc<Region>>,
    ),
    /// The product of the first two operands, and a region over it while it is in cache.
    AfterDot(Box<RegionKernel>, Arc<Region>),
    /// The product of two matrices, added to the sink.
    AddProduct,
    /// Copies, none of which writes what another reads.
    Copies,
    /// A conditional or a loop.
    Flow(Box<FlowStep>),
    /// Starts a collective, which runs beside the steps up to its `Wait`.
    Start(Arc<CollectiveOp>, Arc<HostFlight>),
    /// Waits for a collective.
    Wait(Arc<HostFlight>),
}

/// An operand of a step.
pub(super) struct StepOperand {
    pub(super) base: usize,
    /// The byte offset of the element at index 0, 0, ….
    pub(super) start: usize,
    pub(super) shape: Shape,
    pub(super) strides: Strides,
    pub(super) dtype: DType,
}

/// A result of a step.
pub(super) struct StepResult {
    pub(super) base: usize,
    pub(super) start: usize,
    pub(super) shape: Shape,
    pub(super) dtype: DType,
}

impl StepOperand {
    #[inline(always)]
    pub(super) fn ptr(&self, bases: &[*mut u8]) -> *mut u8 {
        bases[self.base].wrapping_add(self.start)
    }

    #[inline(always)]
    pub(super) fn source(&self, bases: &[*mut u8]) -> Source<'_> {
        let (ptr, dtype) = (self.ptr(bases).cast_const(), self.dtype);
        Source { ptr, shape: &self.shape, strides: &self.strides, dtype }
    }

    pub(super) fn spec(&self) -> Spec {
        Spec::cpu(self.dtype, self.shape.clone())
    }
}

impl StepResult {
    #[inline(always)]
    pub(super) fn ptr(&self, bases: &[*mut u8]) -> *mut u8 {
        bases[self.base].wrapping_add(self.start)
    }

    #[inline(always)]
    pub(super) fn sink(&self, bases: &[*mut u8]) -> Sink<'_> {
        Sink { ptr: self.ptr(bases), shape: &self.shape, dtype: self.dtype }
    }

    pub(super) fn spec(&self) -> Spec {
        Spec::cpu(self.dtype, self.shape.clone())
    }

    /// The same memory, to be read.
    pub(super) fn operand(&self) -> StepOperand {
        let Layout { shape, strides, .. } = Layout::dense(self.shape.clone());
        StepOperand { base: self.base, start: self.start, shape, strides, dtype: self.dtype }
    }
}

/// Calls `f` with as many values as there are items, without an allocation for up to 256.
#[inline(always)]
fn listed<'a, T, V: Copy, R>(
    items: &'a [T],
    value: impl Fn(&'a T) -> V,
    f: impl FnOnce(&[V]) -> R,
) -> R {
    match items {
        [] => f(&[]),
        [a] => f(&[value(a)]),
        [a, b] => f(&[value(a), value(b)]),
        [a, b, c] => f(&[value(a), value(b), value(c)]),
        [a, b, c, d] => f(&[value(a), value(b), value(c), value(d)]),
        few if few.len() <= 16 => with_capacity::<16, T, V, R>(few, value, f),
        some if some.len() <= 256 => with_capacity::<256, T, V, R>(some, value, f),
        many => f(&many.iter().map(value).collect::<Vec<V>>()),
    }
}

/// As [`listed`], for up to `N` items. Unused values stay uninitialised: filling them is slow.
#[inline(always)]
fn with_capacity<'a, const N: usize, T, V: Copy, R>(
    items: &'a [T],
    value: impl Fn(&'a T) -> V,
    f: impl FnOnce(&[V]) -> R,
) -> R {
    let mut values = [const { MaybeUninit::<V>::uninit() }; N];
    let values = &mut values[..items.len()];
    values.iter_mut().zip(items).for_each(|(to, item)| {
        to.write(value(item));
    });
    // SAFETY: all of the slice has just been written.
    f(unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<V>(), values.len()) })
}

impl KernelCall {
    /// Runs the step. The bases are those of the code it belongs to, filled in.
    #[inline]
    pub(super) fn run(&mut self, bases: &[*mut u8]) -> Result<()> {
        let (sources, sinks) = (&self.sources, &self.sinks);
        let (panels, kernels) = match &self.ready {
            Some(PackedOperand::Product(panels)) => (Some(panels), None),
            Some(PackedOperand::Convolution(kernels)) => (None, Some(kernels)),
            None => (None, None),
        };
        let done = match &mut self.action {
            Action::Kernel(Op::Dot) => {
                let (a, b) = (sources[0].source(bases), sources[1].source(bases));
                dot::dot(a, Right { source: b, panels }, sinks[0].sink(bases));
                Ok(())
            }
            Action::Kernel(Op::Conv(of)) => {
                let (a, b) = (sources[0].source(bases), sources[1].source(bases));
                conv::conv_with(of, a, b, kernels, sinks[0].sink(bases));
                Ok(())
            }
            Action::Kernel(op) => listed(
                sources,
                |o| o.source(bases),
                |x| listed(sinks, |t| t.sink(bases), |out| dispatch(op, x, out)),
            ),
            Action::Region(compiled, _) => listed(
                sources,
                |o| o.source(bases),
                |x| {
                    listed(sinks, |t| t.sink(bases), |out| compiled.run(x, out));
                    Ok(())
                },
            ),
            Action::AfterDot(compiled, region) => listed(
                sources,
                |o| o.source(bases),
                |x| {
                    let rest = &x[2..];
                    listed(
                        sinks,
                        |t| t.sink(bases),
                        |out| {
                            let b = Right { source: x[1], panels };
                            compiled.run_after_dot(region, x[0], b, rest, out);
                        },
                    );
                    Ok(())
                },
            ),
            Action::AddProduct => {
                let (a, b) = (sources[0].source(bases), sources[1].source(bases));
                match dot::dot_add(a, Right { source: b, panels }, sinks[0].sink(bases)) {
                    true => Ok(()),
                    false => Err(Error::argument("dot", "has no kernel that adds to its result")),
                }
            }
            Action::Copies => {
                let from = sources.iter().map(|from| from.source(bases));
                let to = sinks.iter().map(|to| to.sink(bases));
                // A loop moves all of its state in every iteration.
                let mut all: SmallVec<[(Source, Sink); 32]> = SmallVec::new();
                all.extend(from.zip(to));
                movement::copies(&all);
                Ok(())
            }
            Action::Flow(flow_step) => flow_step.run(sources, sinks, bases),
            Action::Start(op, flight) => listed(
                sources,
                |o| o.source(bases),
                // SAFETY: the plan keeps the memory of both for them alone up to the wait, and
                // whoever runs steps waits (`WaitGuard`) before the memory of the run goes away.
                |x| unsafe { flight.start(op, x, sinks[0].sink(bases)) },
            ),
            Action::Wait(flight) => flight.wait(),
        };
        done.map_err(|error| self.explain(error))
    }

    /// Packs the right operand of a product or convolution if it is in one of these bases.
    fn pack(&mut self, fixed: &Range<usize>, bases: &[*mut u8]) {
        let [a, b, ..] = &self.sources[..] else { return };
        if !fixed.contains(&b.base) {
            return;
        }
        let (a, b) = (a.source(bases), b.source(bases));
        let (shape, dtype) = match (&self.action, &self.sinks[..]) {
            (Action::AfterDot(_, region), _) => {
                let product = &region.inputs[0].spec;
                (&product.shape, product.dtype)
            }
            (Action::Kernel(Op::Dot) | Action::AddProduct, [to]) => (&to.shape, to.dtype),
            (Action::Kernel(Op::Conv(of)), [to]) => {
                self.ready = conv::kernels(of, a, b, &to.shape).map(PackedOperand::Convolution);
                return;
            }
            (Action::Kernel(_) | Action::AddProduct | Action::Region(..), _)
            | (Action::Copies | Action::Flow(_) | Action::Start(..) | Action::Wait(_), _) => return,
        };
        self.ready = dot::panels(a, b, shape, dtype).map(PackedOperand::Product);
    }

    /// The input that its right operand is, if that is one and may be packed.
    fn packs(&self) -> Option<usize> {
        let may = match &self.action {
            Action::Kernel(op) => matches!(op, Op::Dot | Op::Conv(_)),
            Action::AfterDot(..) => true,
            Action::Region(..) | Action::AddProduct | Action::Copies => false,
            Action::Flow(_) | Action::Start(..) | Action::Wait(_) => false,
        };
        let rows = |x: &StepOperand| x.shape.iter().rev().skip(1).product::<usize>();
        let few = |x: &StepOperand| {
            matches!(self.action, Action::Kernel(Op::Conv(_))) || rows(x) <= FEW_ROWS
        };
        match &self.sources[..] {
            [a, b, ..] if may && few(a) => b.base.checked_sub(FIRST),
            _ => None,
        }
    }

    #[cold]
    fn explain(&self, error: Error) -> Error {
        let specs: Vec<Spec> = self.sources.iter().map(StepOperand::spec).collect();
        let error = error.on(&specs);
        match self.at {
            Some(at) => error.at(at),
            None => error,
        }
    }

    /// The name of the kernel.
    pub(super) fn name(&self) -> &str {
        match &self.action {
            Action::Kernel(op) => op.name(),
            Action::Region(..) => "region",
            Action::AfterDot(..) => "dot_region",
            Action::AddProduct => "dot_add",
            Action::Copies => "copy",
            Action::Flow(flow_step) => flow_step.name(),
            Action::Start(op, _) => op.collective.name(),
            Action::Wait(_) => "wait",
        }
    }
}

impl ProgramCode {
    /// Prepares the steps of a program that was verified and planned.
    pub(super) fn new(program: &Program, plan: &Plan) -> Result<ProgramCode> {
        let mut flights = Vec::new();
        for e in &program.equations {
            if let Op::Collective(of) = &e.op
                && of.started
            {
                flights.push((e.outputs[0], Arc::<HostFlight>::default()));
            }
        }
        let compiler = StepCompiler { program, plan, flights: &flights };
        let mut constants = allocate("constants", plan.constants)?;
        let mut steps = Vec::new();
        for (e, equation) in program.equations.iter().enumerate() {
            if let Op::Literal { value, dtype, .. } = &equation.op {
                let location = &plan.locations[equation.outputs[0].index()];
                let ptr = constants.as_mut_ptr().wrapping_add(location.start);
                pointwise::fill(*value, Sink { ptr, shape: &[], dtype: *dtype });
            } else {
                compiler.equation(e, &mut steps)?;
            }
        }
        compiler.moves(&mut steps);
        let written = |input: usize| program.updates.iter().any(|update| update.1 == input);
        let fixed = |step: &KernelCall| {
            step.packs().filter(|&input| input < program.inputs.len() && !written(input))
        };
        let numbered = steps.iter().enumerate();
        let packing = numbered.filter_map(|(i, step)| Some((i, fixed(step)?))).collect();
        let mut bases = vec![std::ptr::null_mut(); FIRST];
        bases[CONSTANTS] = constants.as_mut_ptr();
        let mut host = allocate("values that are offloaded", plan.host)?;
        bases[HOST] = host.as_mut_ptr();
        let scratch = FIRST + program.inputs.len() + program.outputs.len();
        bases.resize(scratch + 1, std::ptr::null_mut());
        #[cfg(target_arch = "x86_64")]
        let (parts, values) = match straight::join(&steps, scratch)? {
            Some((parts, values)) => (Some(parts), values),
            None => (None, 0),
        };
        #[cfg(not(target_arch = "x86_64"))]
        let values = 0;
        let mut values = allocate("scratch", values)?;
        bases[scratch] = values.as_mut_ptr();
        Ok(ProgramCode {
            steps,
            bases: BasePointers(bases),
            _constants: constants,
            _host: host,
            inputs: program.inputs.len(),
            #[cfg(target_arch = "x86_64")]
            parts,
            _scratch: values,
            flights: flights.into_iter().map(|(_, flight)| flight).collect(),
            packing,
        })
    }

    /// Sets the memory of the next run.
    #[inline(always)]
    pub(super) fn set_input(&mut self, i: usize, ptr: *mut u8) {
        self.bases.0[FIRST + i] = ptr;
    }

    #[inline(always)]
    pub(super) fn set_output(&mut self, k: usize, ptr: *mut u8) {
        self.bases.0[FIRST + self.inputs + k] = ptr;
    }

    #[inline(always)]
    pub(super) fn set_arena(&mut self, ptr: *mut u8) {
        self.bases.0[ARENA] = ptr;
    }

    /// Packs right operands among the first `fixed` inputs, constant until [`ProgramCode::unpack`].
    pub(super) fn pack(&mut self, fixed: usize) {
        let bases = &self.bases.0[..];
        self.steps.iter_mut().for_each(|step| step.pack(&(FIRST..FIRST + fixed), bases));
    }

    /// Frees the memory of packed operands.
    pub(super) fn unpack(&mut self) {
        self.steps.iter_mut().for_each(|step| step.ready = None);
    }

    /// Whether [`ProgramCode::pack_unchanged`] may pack something.
    pub(super) fn packs(&self) -> bool {
        !self.packing.is_empty()
    }

    /// Packs right operands that are inputs with a version, unless they are packed from this
    /// version; frees the others.
    pub(super) fn pack_unchanged(&mut self, versions: &[Option<u64>]) {
        let bases = &self.bases.0[..];
        for &(step, input) in &self.packing {
            let step = &mut self.steps[step];
            let version = versions.get(input).copied().flatten();
            let from = version.map(|version| (version, bases[FIRST + input] as usize));
            if step.packed_from != from {
                step.ready = None;
                step.packed_from = from;
                if from.is_some() {
                    step.pack(&(FIRST + input..FIRST + input + 1), bases);
                }
            }
        }
    }

    /// Runs one step, and what it started to its end.
    pub(super) fn run_step(&mut self, i: usize) -> Result<()> {
        let _landing = WaitGuard(&self.flights);
        match self.steps.get_mut(i) {
            Some(step) => step.run(&self.bases.0),
            None => Err(Error::argument("program", format!("has no step {i}"))),
        }
    }

    /// The generated machine code, as text, with the equations it is for.
    pub(super) fn listings(&self) -> Vec<NativeCode> {
        let of = |steps: &[KernelCall], text: String| {
            let mut equations: Vec<usize> = steps.iter().map(|step| step.equation).collect();
            equations.dedup();
            NativeCode { equations, text }
        };
        let alone = |step: &KernelCall| -> Vec<NativeCode> {
            let texts = match &step.action {
                Action::Region(kernel, _) | Action::AfterDot(kernel, _) => {
                    kernel.listing().into_iter().collect()
                }
                Action::Flow(flow) => flow.listings(),
                Action::Kernel(_) | Action::AddProduct | Action::Copies => Vec::new(),
                Action::Start(..) | Action::Wait(_) => Vec::new(),
            };
            texts.into_iter().map(|text| of(std::slice::from_ref(step), text)).collect()
        };
        #[cfg(target_arch = "x86_64")]
        if let Some(parts) = &self.parts {
            let part = |part: &Segment| -> Vec<NativeCode> {
                match part {
                    Segment::Straight(code, range) => {
                        let text = code.listing().into_iter();
                        text.map(|text| of(&self.steps[range.clone()], text)).collect()
                    }
                    Segment::Steps(range) => {
                        self.steps[range.clone()].iter().flat_map(alone).collect()
                    }
                }
            };
            return parts.iter().flat_map(part).collect();
        }
        self.steps.iter().flat_map(alone).collect()
    }

    /// Runs all steps, up to the first that fails.
    #[inline]
    pub(super) fn run(&mut self) -> Result<()> {
        // However this ends, nothing uses the memory of the run afterwards.
        let _landing = WaitGuard(&self.flights);
        let bases = &self.bases.0[..];
        #[cfg(target_arch = "x86_64")]
        if let Some(parts) = &self.parts {
            for part in parts {
                match part {
                    // SAFETY: accesses its scratch, and the elements of the steps that it replaces.
                    Segment::Straight(straight, _) => unsafe { straight.run(bases) },
                    Segment::Steps(range) => {
                        self.steps[range.clone()]
                            .iter_mut()
                            .try_for_each(|step| step.run(bases))?;
                    }
                }
            }
            return Ok(());
        }
        self.steps.iter_mut().try_for_each(|step| step.run(bases))
    }
}

pub(super) fn allocate(what: &'static str, bytes: usize) -> Result<Buffer> {
    Buffer::alloc(bytes).map_err(|_| no_memory(what, bytes))
}
