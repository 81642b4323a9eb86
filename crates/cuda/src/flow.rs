//! Loops and conditionals of programs: a step that runs other programs, and reads its condition on
//! the host.

use crate::gpu::Gpu;
use crate::loops::StridedOperand;
use crate::ops;
use crate::program::{BaseAddresses, StepCode};
use pullback_cuda_sys::DevicePtr;
use pullback_ir::{Error, Flow, Result};
use std::sync::Arc;

pub(crate) struct CudaFlow {
    pub flow: Arc<Flow>,
    /// The programs inside.
    pub codes: Vec<StepCode>,
    /// Offsets in the arena: of the programs' arena, and of a condition.
    pub arena: usize,
    pub condition: usize,
}

impl CudaFlow {
    pub fn run(
        &self,
        gpu: &Gpu,
        x: &[StridedOperand],
        out: &[StridedOperand],
        bases: &BaseAddresses,
    ) -> Result<()> {
        let at = |all: &[StridedOperand]| all.iter().map(|o| o.at).collect::<Vec<_>>();
        let inside = |code: &StepCode, inputs: Vec<DevicePtr>, outputs: Vec<DevicePtr>| {
            let arena = bases.arena + self.arena as u64;
            BaseAddresses { arena, constants: code.constants, host: 0, inputs, outputs }
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
fn begin(gpu: &Gpu, first: &[StridedOperand], state: &[StridedOperand]) -> Result<()> {
    first.iter().zip(state).try_for_each(|(from, to)| ops::copy(gpu, from, to))
}
