//! From the equations of a planned program to its steps, on base addresses.

use crate::flow::CudaFlow;
use crate::gpu::Gpu;
use crate::host_copies;
use crate::loops::StridedOperand;
use crate::program::{BasedOperand, CodeStep, StepAction, StepCode, is_started};
use pullback_ir::pass::LibraryEpilogue;
use pullback_ir::pass::plan::{Base, Location, Move, Plan, ProductLocation, ScratchRole};
use pullback_ir::{Layout, Op, Program, Region, Result, Spec, Var};
use std::sync::Arc;

/// Turns equations and their plan into steps.
pub(crate) struct Lowering<'a> {
    /// Reports need none: they look into loops and conditionals themselves.
    pub gpu: Option<&'a Arc<Gpu>>,
    pub program: &'a Program,
    pub plan: &'a Plan,
    pub copies: Vec<HeldCopy>,
}

/// A dense copy of operand `k` of equation `e`, from this byte of the constants on.
pub(crate) struct HeldCopy {
    e: usize,
    k: usize,
    start: usize,
}

/// Steps of optimisers take dense operands. Where one is not, memory for a copy is allocated with
/// the constants: in the middle of a run there may be none left, when other parameters have been
/// written. Also the bytes of both.
pub(crate) fn held_copies(program: &Program, plan: &Plan) -> (Vec<HeldCopy>, usize) {
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

impl Lowering<'_> {
    fn place(&self, v: Var) -> BasedOperand {
        let Location { base, start, layout } = &self.plan.locations[v.index()];
        BasedOperand::new(*base, *start, layout, self.program.spec(v).dtype)
    }

    /// The number of the collective that has this result.
    fn flight(&self, v: Var) -> Option<usize> {
        let mut started = self.program.equations.iter().filter(|e| is_started(&e.op));
        started.position(|e| e.outputs[0] == v)
    }

    /// Dense memory in the arena.
    fn in_arena(&self, start: usize, spec: &Spec) -> BasedOperand {
        BasedOperand::new(Base::Arena, start, &Layout::dense(spec.shape.clone()), spec.dtype)
    }

    fn scratch(&self, e: usize, role: ScratchRole) -> Option<usize> {
        self.plan.scratch[e].iter().find(|s| s.role == role).map(|s| s.start)
    }

    pub fn equation(&self, e: usize, steps: &mut Vec<CodeStep>) -> Result<()> {
        let equation = &self.program.equations[e];
        let at = equation.at;
        let inputs: Vec<BasedOperand> = equation.inputs.iter().map(|&v| self.place(v)).collect();
        let outputs: Vec<BasedOperand> = equation.outputs.iter().map(|&v| self.place(v)).collect();
        let step = |action, inputs, outputs| CodeStep { equation: e, action, inputs, outputs, at };
        match &equation.op {
            Op::View(view) => {
                let layout = &self.plan.locations[equation.inputs[0].index()].layout;
                if layout.view(view).is_none() {
                    steps.push(step(StepAction::Op(equation.op.clone()), inputs, outputs));
                }
            }
            // It has the slot of its operand, and steps run in the order of equations.
            Op::After => {}
            Op::Wait => {
                if let Some(number) = self.flight(equation.inputs[0]) {
                    steps.push(step(StepAction::Wait(number), Vec::new(), Vec::new()));
                }
            }
            Op::Transfer(way) => {
                // One that ends a copy names its start, and has the slot of its result.
                let made = if way.starts() { equation.outputs[0] } else { equation.inputs[0] };
                match host_copies::number(self.program, made) {
                    Some(number) if way.starts() => {
                        steps.push(step(StepAction::CopyStart(*way, number), inputs, outputs));
                    }
                    Some(number) => {
                        steps.push(step(StepAction::CopyEnd(*way, number), Vec::new(), Vec::new()));
                    }
                    None => {}
                }
            }
            Op::Collective(of) if of.started => {
                if let Some(number) = self.flight(equation.outputs[0]) {
                    steps.push(step(StepAction::Start(of.clone(), number), inputs, outputs));
                }
            }
            Op::Region(region) => {
                let (inputs, region) = self.loads(e, region, 0, steps);
                let values = region.values()?;
                steps.push(step(StepAction::Region(region, values), inputs, outputs));
            }
            Op::DotRegion(region) => {
                let matrices = inputs[..2].to_vec();
                if let Some(ProductLocation::Added(_)) = self.plan.products[e] {
                    steps.push(step(StepAction::AddProduct, matrices, outputs));
                    return Ok(());
                }
                if let Some(operands) = self.with_epilogue(e, region, steps) {
                    steps.push(step(StepAction::WideProduct, operands, outputs));
                    return Ok(());
                }
                let spec = &region.inputs[0].spec;
                let product = match self.plan.products[e] {
                    Some(ProductLocation::InResult(j)) => {
                        let mut product = outputs[j].clone();
                        product.operand = StridedOperand::dense(0, spec.dtype, &spec.shape);
                        product
                    }
                    _ => self.in_arena(self.scratch(e, ScratchRole::Product).unwrap_or(0), spec),
                };
                steps.push(step(StepAction::Op(Op::Dot), matrices, vec![product.clone()]));
                let (rest, region) = self.loads(e, region, 2, steps);
                let values = region.values()?;
                let inputs = std::iter::once(product).chain(rest).collect();
                steps.push(step(StepAction::Region(region, values), inputs, outputs));
            }
            Op::Flow(flow) => {
                let Some(gpu) = self.gpu else { return Ok(()) };
                let programs = equation.op.structure().map_or(Vec::new(), |s| s.programs());
                let mut codes = Vec::new();
                for (program, plan) in programs.into_iter().zip(&self.plan.inner[e]) {
                    codes.push(StepCode::new(gpu, program, plan)?);
                }
                let code = CudaFlow {
                    flow: flow.clone(),
                    codes,
                    arena: self.scratch(e, ScratchRole::Inner).unwrap_or(0),
                    condition: self.scratch(e, ScratchRole::Test).unwrap_or(0),
                };
                steps.push(step(StepAction::Flow(Box::new(code)), inputs, outputs));
            }
            op => {
                let mut inputs = inputs;
                for copy in self.copies.iter().filter(|copy| copy.e == e) {
                    let spec = self.program.spec(equation.inputs[copy.k]);
                    let layout = Layout::dense(spec.shape.clone());
                    let dense = BasedOperand::new(Base::Constants, copy.start, &layout, spec.dtype);
                    let from = std::mem::replace(&mut inputs[copy.k], dense.clone());
                    steps.push(step(StepAction::Op(Op::Copy), vec![from], vec![dense]));
                }
                steps.push(step(StepAction::Op(op.clone()), inputs, outputs));
            }
        }
        Ok(())
    }

    /// The operands of a product that its library computes with what follows: two matrices, and
    /// the bias.
    fn with_epilogue(
        &self,
        e: usize,
        region: &Arc<Region>,
        steps: &mut Vec<CodeStep>,
    ) -> Option<Vec<BasedOperand>> {
        LibraryEpilogue::of(region)?;
        let inner = self.program.spec(self.program.equations[e].inputs[1]).shape[0];
        if inner == 0 {
            return None;
        }
        let mut operands: Vec<BasedOperand> =
            self.program.equations[e].inputs[..2].iter().map(|&v| self.place(v)).collect();
        let made = steps.len();
        let (rest, seen) = self.loads(e, region, 2, steps);
        let fits = LibraryEpilogue::of(&seen).is_some() && rest.iter().all(BasedOperand::is_row);
        if !fits {
            steps.truncate(made);
            return None;
        }
        operands.extend(rest);
        Some(operands)
    }

    /// The operands of a region from number `first` on, and the region that takes them: where they
    /// are, if the region can express their layout, or copied to be dense.
    fn loads(
        &self,
        e: usize,
        region: &Arc<Region>,
        first: usize,
        steps: &mut Vec<CodeStep>,
    ) -> (Vec<BasedOperand>, Arc<Region>) {
        let equation = &self.program.equations[e];
        let (mut places, mut region) = (Vec::new(), region.clone());
        for (k, &v) in equation.inputs.iter().enumerate().skip(first) {
            let place = self.place(v);
            if let Some((_, layout)) = self.plan.loads[e].iter().find(|load| load.0 == k) {
                let Location { base, start, .. } = self.plan.locations[v.index()];
                let number = if first == 0 { k } else { k - 1 };
                Arc::make_mut(&mut region).inputs[number].layout = layout.clone();
                let whole = Layout::dense([1].as_slice().into());
                places.push(BasedOperand::new(base, start, &whole, place.operand.dtype));
                continue;
            }
            places.push(match self.scratch(e, ScratchRole::Dense(k)) {
                None => place,
                Some(start) => {
                    let dense = self.in_arena(start, self.program.spec(v));
                    steps.push(CodeStep {
                        equation: e,
                        action: StepAction::Op(Op::Copy),
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
    pub fn moves(&self, steps: &mut Vec<CodeStep>) {
        let mut copy = |from: BasedOperand, to: BasedOperand| {
            steps.push(CodeStep {
                equation: self.program.equations.len(),
                action: StepAction::Op(Op::Copy),
                inputs: vec![from],
                outputs: vec![to],
                at: None,
            });
        };
        let to = |m: &Move| {
            let spec = self.program.spec(m.var);
            BasedOperand::new(m.to, 0, &Layout::dense(spec.shape.clone()), spec.dtype)
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
