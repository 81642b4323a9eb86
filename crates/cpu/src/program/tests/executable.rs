//! A prepared program that owns its memory, as users of this crate do.

use super::*;
use crate::buffer::Arena;
use crate::target::TARGET;
use pullback_ir::pass::plan::Planned;

/// Plans, prepares, and allocates memory for each run.
pub(super) struct Executable(Prepared);

impl Executable {
    pub fn new(program: &Program) -> Result<Executable> {
        Executable::of(Planned::new(program, TARGET)?)
    }

    fn of(planned: Planned) -> Result<Executable> {
        Prepared::new(planned.into()).map(Executable)
    }

    pub fn program(&self) -> &Program {
        self.0.planned().program()
    }

    pub fn plan(&self) -> &Plan {
        self.0.planned().plan()
    }

    pub fn kernels(&self) -> Vec<String> {
        self.0.steps().into_iter().map(|step| step.kernel).collect()
    }

    pub fn run(&mut self, inputs: &mut [BoundInput<'_>]) -> Result<Vec<Buffer>> {
        let (mut arena, mut outputs) = (Arena::take(self.plan().arena)?, Vec::new());
        self.0.bind(&mut arena, inputs, &mut outputs)?.run()?;
        Ok(outputs)
    }

    /// Passes every result to a callback as soon as it is computed; literals are skipped.
    pub fn run_observed(
        &mut self,
        inputs: &mut [BoundInput<'_>],
        see: &mut dyn FnMut(usize, usize, Option<Output>),
    ) -> Result<Vec<Buffer>> {
        let (mut arena, mut outputs) = (Arena::take(self.plan().arena)?, Vec::new());
        let steps: Vec<usize> = self.0.steps().iter().map(|step| step.equation).collect();
        let equations = self.program().equations.clone();
        let mut running = self.0.bind(&mut arena, inputs, &mut outputs)?;
        let mut next = 0;
        for (e, equation) in equations.iter().enumerate() {
            if next < steps.len() && steps[next] == e {
                assert!(running.value(e, 0).is_err(), "a value before it is made");
            }
            while steps.get(next) == Some(&e) {
                running.step()?;
                next += 1;
            }
            for j in 0..equation.outputs.len() {
                see(e, j, running.value(e, j)?);
            }
        }
        (next..steps.len()).try_for_each(|_| running.step())?;
        assert!(running.step().is_err(), "a step after the last");
        drop(running);
        Ok(outputs)
    }

    /// Runs an op that contains programs on operands of any layout.
    pub fn once(op: &Op, inputs: &[Input]) -> Result<Vec<Output>> {
        let (mut program, mut layouts, mut bound) = (Program::default(), Vec::new(), Vec::new());
        for x in inputs {
            program.input(x.spec.clone());
            layouts.push(Layout { offset: 0, ..x.layout.clone() });
            bound.push(BoundInput::Read(x.buffer, x.layout.offset * x.spec.dtype.size()));
        }
        program.outputs = program.push(op.clone(), &program.inputs.clone(), None)?.to_vec();
        let made = Executable::of(Planned::bound(&program, layouts, TARGET)?)?.run(&mut bound)?;
        let output = |(buffer, &v)| Output { buffer, spec: program.spec(v).clone(), splat: false };
        Ok(made.into_iter().zip(&program.outputs).map(output).collect())
    }
}
