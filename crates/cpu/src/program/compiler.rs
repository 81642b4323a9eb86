//! Equations and their plan become kernel calls on places in memory.

use super::code::{ARENA, Action, CONSTANTS, FIRST, HOST, KernelCall, StepOperand, StepResult};
use super::flow::FlowStep;
#[cfg(target_arch = "x86_64")]
use super::straight;
use crate::collective::HostFlight;
use crate::region::RegionKernel;
use pullback_ir::pass::plan::{Base, Location, Move, Plan, ProductLocation, ScratchRole};
use pullback_ir::{Layout, Load, Op, Program, Region, Result, Spec, Var};
use std::sync::Arc;

/// Turns equations and their plan into steps.
pub(super) struct StepCompiler<'a> {
    pub(super) program: &'a Program,
    pub(super) plan: &'a Plan,
    /// The collectives that are started, by their results.
    pub(super) flights: &'a [(Var, Arc<HostFlight>)],
}

impl StepCompiler<'_> {
    fn base(&self, base: Base) -> usize {
        match base {
            Base::Arena => ARENA,
            Base::Constants => CONSTANTS,
            Base::Host => HOST,
            Base::Input(i) => FIRST + i,
            Base::Output(k) => FIRST + self.program.inputs.len() + k,
        }
    }

    fn operand(&self, v: Var) -> StepOperand {
        let Location { base, start, layout } = &self.plan.locations[v.index()];
        let dtype = self.program.spec(v).dtype;
        StepOperand {
            base: self.base(*base),
            // A view of a flipped input may start before its first element: the offset wraps.
            start: start.wrapping_add_signed(layout.offset as isize * dtype.size() as isize),
            shape: layout.shape.clone(),
            strides: layout.strides.clone(),
            dtype,
        }
    }

    fn target(&self, v: Var) -> StepResult {
        let Location { base, start, .. } = self.plan.locations[v.index()];
        let spec = self.program.spec(v);
        StepResult { base: self.base(base), start, shape: spec.shape.clone(), dtype: spec.dtype }
    }

    /// The collective that was started with this result.
    fn flight(&self, v: Var) -> Option<Arc<HostFlight>> {
        self.flights.iter().find(|(made, _)| *made == v).map(|(_, flight)| flight.clone())
    }

    fn in_arena(&self, start: usize, spec: &Spec) -> StepResult {
        StepResult { base: ARENA, start, shape: spec.shape.clone(), dtype: spec.dtype }
    }

    /// The scratch of an equation for one of its uses.
    fn scratch(&self, e: usize, role: ScratchRole) -> Option<usize> {
        self.plan.scratch[e].iter().find(|s| s.role == role).map(|s| s.start)
    }

    pub(super) fn equation(&self, e: usize, steps: &mut Vec<KernelCall>) -> Result<()> {
        let equation = &self.program.equations[e];
        let sources = || equation.inputs.iter().map(|&v| self.operand(v));
        let sinks = || equation.outputs.iter().map(|&v| self.target(v)).collect();
        let step = |action, sources, sinks| KernelCall {
            equation: e,
            action,
            sources,
            sinks,
            at: equation.at,
            ready: None,
            packed_from: None,
        };
        match &equation.op {
            Op::View(view) => {
                let [x, y] = [equation.inputs[0], equation.outputs[0]];
                if self.plan.locations[x.index()].layout.view(view).is_none() {
                    let mut target = self.target(y);
                    target.shape = self.plan.locations[x.index()].layout.shape.clone();
                    let sinks = Box::new([target]);
                    steps.push(step(Action::Kernel(Op::Copy), sources().collect(), sinks));
                }
            }
            // It has the slot of its operand, and steps run in the order of equations.
            Op::After => {}
            Op::Transfer(step) if !step.starts() => {}
            // Its operands are those of the start, which waits for nothing.
            Op::Wait => {
                if let Some(flight) = self.flight(equation.inputs[0]) {
                    let sources = equation.inputs[1..].iter().map(|&v| self.operand(v)).collect();
                    steps.push(step(Action::Wait(flight), sources, Box::default()));
                }
            }
            Op::Collective(of) if of.started => {
                if let Some(flight) = self.flight(equation.outputs[0]) {
                    let start = Action::Start(of.clone(), flight);
                    steps.push(step(start, sources().collect(), sinks()));
                }
            }
            Op::Copy => {
                let (from, to) =
                    (self.operand(equation.inputs[0]), self.target(equation.outputs[0]));
                if (from.base, from.start) != (to.base, to.start) {
                    steps.push(step(Action::Kernel(Op::Copy), Box::new([from]), Box::new([to])));
                }
            }
            Op::Region(region) => {
                let (sources, region) = self.loads(e, region, 0, steps);
                let action = match region.columns.is_empty() {
                    true => region_action(region)?,
                    false => Action::Kernel(Op::Region(region)),
                };
                steps.push(step(action, sources.into(), sinks()));
            }
            Op::DotRegion(region) => self.dot_region(e, region, steps)?,
            Op::Flow(flow) => {
                let arena = self.scratch(e, ScratchRole::Inner).unwrap_or(0);
                let test = self.scratch(e, ScratchRole::Test).unwrap_or(0);
                let flow_step = FlowStep::new(flow, &self.plan.inner[e], arena, test)?;
                steps.push(step(Action::Flow(Box::new(flow_step)), sources().collect(), sinks()));
            }
            op => steps.push(step(Action::Kernel(op.clone()), sources().collect(), sinks())),
        }
        Ok(())
    }

    /// The operands of a region from number `first` on and the region that takes them: without a
    /// copy, if the region can express their layout, or copied to be dense.
    fn loads(
        &self,
        e: usize,
        region: &Arc<Region>,
        first: usize,
        steps: &mut Vec<KernelCall>,
    ) -> (Vec<StepOperand>, Arc<Region>) {
        let equation = &self.program.equations[e];
        let (mut sources, mut region) = (Vec::new(), region.clone());
        for (k, &v) in equation.inputs.iter().enumerate().skip(first) {
            let source = self.operand(v);
            if let Some((_, layout)) = self.plan.loads[e].iter().find(|load| load.0 == k) {
                let Location { base, start, .. } = self.plan.locations[v.index()];
                let spec = Spec::on(region.device, source.dtype, [reach(layout)].as_slice());
                let memory = StepResult {
                    base: self.base(base),
                    start,
                    shape: spec.shape.clone(),
                    dtype: spec.dtype,
                };
                sources.push(memory.operand());
                let number = if first == 0 { k } else { k - 1 };
                Arc::make_mut(&mut region).inputs[number] = Load { spec, layout: layout.clone() };
                continue;
            }
            sources.push(match self.scratch(e, ScratchRole::Dense(k)) {
                None => source,
                Some(start) => {
                    let target = self.in_arena(start, self.program.spec(v));
                    let operand = target.operand();
                    steps.push(KernelCall {
                        equation: e,
                        action: Action::Kernel(Op::Copy),
                        sources: Box::new([source]),
                        sinks: Box::new([target]),
                        at: equation.at,
                        ready: None,
                        packed_from: None,
                    });
                    operand
                }
            });
        }
        (sources, region)
    }

    fn dot_region(
        &self,
        e: usize,
        region: &Arc<Region>,
        steps: &mut Vec<KernelCall>,
    ) -> Result<()> {
        let equation = &self.program.equations[e];
        let matrices = [0, 1].map(|i| self.operand(equation.inputs[i]));
        let spec = &region.inputs[0].spec;
        let step = |action, sources, sinks| KernelCall {
            equation: e,
            action,
            sources,
            sinks,
            at: equation.at,
            ready: None,
            packed_from: None,
        };
        let product = match self.plan.products[e] {
            Some(ProductLocation::Added(_)) => {
                let sinks = Box::new([self.target(equation.outputs[0])]);
                steps.push(step(Action::AddProduct, Box::new(matrices), sinks));
                return Ok(());
            }
            Some(ProductLocation::InResult(_)) => {
                let mut sources = Vec::from(matrices);
                let (rest, region) = self.loads(e, region, 2, steps);
                sources.extend(rest);
                let sinks = equation.outputs.iter().map(|&v| self.target(v)).collect();
                let kernel = Box::new(RegionKernel::new(&region)?);
                steps.push(step(Action::AfterDot(kernel, region), sources.into(), sinks));
                return Ok(());
            }
            Some(ProductLocation::Separate) | None => {
                self.in_arena(self.scratch(e, ScratchRole::Product).unwrap_or(0), spec)
            }
        };
        let mut sources = vec![product.operand()];
        steps.push(step(Action::Kernel(Op::Dot), Box::new(matrices), Box::new([product])));
        let (rest, region) = self.loads(e, region, 2, steps);
        sources.extend(rest);
        let sinks = equation.outputs.iter().map(|&v| self.target(v)).collect();
        steps.push(step(region_action(region)?, sources.into(), sinks));
        Ok(())
    }

    /// Copies at the end: to outputs, then to temporaries, then to inputs.
    pub(super) fn moves(&self, steps: &mut Vec<KernelCall>) {
        let mut copies = |all: Vec<(StepOperand, StepResult)>| {
            if all.is_empty() {
                return;
            }
            let (sources, sinks): (Vec<StepOperand>, Vec<StepResult>) = all.into_iter().unzip();
            steps.push(KernelCall {
                equation: self.program.equations.len(),
                action: Action::Copies,
                sources: sources.into(),
                sinks: sinks.into(),
                at: None,
                ready: None,
                packed_from: None,
            });
        };
        let moves = &self.plan.moves;
        let to = |m: &Move| {
            let spec = self.program.spec(m.var);
            let (shape, dtype) = (spec.shape.clone(), spec.dtype);
            StepResult { base: self.base(m.to), start: 0, shape, dtype }
        };
        let waits = |start: usize, v: Var| self.in_arena(start, self.program.spec(v));
        let outward = |m: &&Move| matches!(m.to, Base::Output(_));
        copies(moves.iter().filter(outward).map(|m| (self.operand(m.var), to(m))).collect());
        let wait = |m: &Move| Some((self.operand(m.var), waits(m.via?, m.var)));
        copies(moves.iter().filter_map(wait).collect());
        let replace = |m: &Move| match m.via {
            Some(start) => (waits(start, m.var).operand(), to(m)),
            None => (self.operand(m.var), to(m)),
        };
        copies(moves.iter().filter(|m| !outward(m)).map(replace).collect());
    }
}

/// The kernel of a region.
fn region_action(region: Arc<Region>) -> Result<Action> {
    let kernel = Box::new(RegionKernel::new(&region)?);
    #[cfg(target_arch = "x86_64")]
    let small = region.shape.iter().product::<usize>() <= straight::ELEMENTS;
    #[cfg(not(target_arch = "x86_64"))]
    let small = false;
    Ok(Action::Region(kernel, small.then_some(region)))
}

/// How many elements from the start of a buffer a layout may access.
fn reach(layout: &Layout) -> usize {
    if layout.is_empty() {
        return 0;
    }
    let far = |(&n, &stride): (&usize, &isize)| (stride.max(0) as usize) * (n - 1);
    layout.offset + 1 + layout.shape.iter().zip(&layout.strides).map(far).sum::<usize>()
}
