//! Values of a program that wait on the host ([`Transfer`]).
//!
//! They leave on the stream of copies to the host and come back on the other, beside the work of
//! the device. A copy begins after what is in the queue, and the queue waits for it where it ends.
//! So a place on the host, or on the device, is written again only after it was read.
//!
//! A run takes the memory of the host from the pool of pinned memory, and makes its events, before
//! its first step: what fails later is that the device is lost. However a run ends, the queue waits
//! for what it has started before the memory of the run is used again.

use crate::gpu::Gpu;
use crate::loops::StridedOperand;
use crate::ops;
use crate::pinned::{Event, PinnedBuffer};
use crate::transfer::Streams;
use pullback_cuda_sys::{DevicePtr, Ptr};
use pullback_ir::{Op, Program, Result, Transfer, Var};
use std::sync::Arc;

/// The copies of a run.
pub(crate) struct HostCopies {
    gpu: Arc<Gpu>,
    memory: PinnedBuffer,
    streams: Streams,
    /// What is in the queue when a copy begins: recorded again for each.
    begun: Arc<Event>,
    /// By number of a copy: its end, and whether the queue does not wait for it yet.
    ends: Vec<(Arc<Event>, bool)>,
}

/// Whether an op starts a copy.
pub(crate) fn starts(op: &Op) -> bool {
    matches!(op, Op::Transfer(step) if step.starts())
}

/// The number of the copy that has this result.
pub(crate) fn number(program: &Program, v: Var) -> Option<usize> {
    let mut started = program.equations.iter().filter(|e| starts(&e.op));
    started.position(|e| e.outputs[0] == v)
}

impl HostCopies {
    /// So many copies, with so many bytes on the host.
    pub fn new(gpu: &Arc<Gpu>, bytes: usize, copies: usize) -> Result<HostCopies> {
        gpu.enter();
        let (memory, streams) = (gpu.pinned.take(gpu, bytes)?, gpu.copy_streams()?);
        // Nothing comes back before it has left.
        memory.before(gpu, streams.out)?;
        let event = || Event::new(gpu).map(Arc::new);
        let ends = (0..copies).map(|_| Ok((event()?, false))).collect::<Result<_>>()?;
        Ok(HostCopies { gpu: gpu.clone(), memory, streams, begun: event()?, ends })
    }

    /// Where the memory of the host begins.
    pub fn at(&self) -> DevicePtr {
        self.memory.at() as DevicePtr
    }

    /// Starts a copy.
    pub fn start(
        &mut self,
        step: Transfer,
        number: usize,
        x: &StridedOperand,
        to: &StridedOperand,
    ) -> Result<()> {
        let (gpu, bytes) = (self.gpu.clone(), to.bytes());
        gpu.enter();
        // What does not lie as its copy does is gathered first. No pass makes a program do that.
        let mut gathered = None;
        if x.strides != to.strides {
            let memory = gpu.scratch(bytes)?;
            ops::run(
                &gpu,
                &Op::Copy,
                std::slice::from_ref(x),
                &[StridedOperand { at: memory.at, ..to.clone() }],
                None,
            )?;
            gathered = Some(memory);
        }
        let from = gathered.as_ref().map_or(x.at, |memory| memory.at);
        let stream = if step.is_on_host() { self.streams.out } else { self.streams.back };
        self.begun.record_again(&gpu, gpu.stream)?;
        self.begun.before(&gpu, stream)?;
        if bytes > 0 {
            match step.is_on_host() {
                true => gpu.to_host(from, to.at as Ptr, bytes, stream)?,
                false => gpu.to_device(from as *const _, to.at, bytes, stream)?,
            }
        }
        let (end, waits) = &mut self.ends[number];
        end.record_again(&gpu, stream)?;
        *waits = true;
        if let Some(memory) = &gathered {
            gpu.pool().note_copy(memory.at, end);
        }
        Ok(())
    }

    /// What is put into the queue from now on comes after a copy.
    pub fn end(&mut self, number: usize) -> Result<()> {
        let (end, waits) = &mut self.ends[number];
        match std::mem::replace(waits, false) {
            true => end.before(&self.gpu, self.gpu.stream),
            false => Ok(()),
        }
    }
}

impl Drop for HostCopies {
    fn drop(&mut self) {
        self.gpu.make_current();
        for number in 0..self.ends.len() {
            // If this fails, the context is lost, and nothing is in flight.
            let _ = self.end(number);
        }
        if self.begun.record_again(&self.gpu, self.gpu.stream).is_ok() {
            self.memory.used_until(&self.begun);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::backend::TARGET;
    use crate::device_tests::{bytes, device};
    use crate::lowering::Lowering;
    use crate::program::{CudaProgram, StepAction};
    use pullback_ir::pass::plan::Planned;
    use pullback_ir::{Bases, DType, DeviceProgram, Program, Transfer};
    use std::sync::Arc;

    const AWAY: &str = "program (a: f32[64,96], b: f32[96,96]) {
      let x: f32[64,96] = dot a b
      let s: f32[64,96] = offload x
      let y: f32[64,96] = dot x b
      let t: f32[64,96] = offload y
      let h: f32[64,96] = offloaded s x
      let z: f32[64,96] = dot y b
      let i: f32[64,96] = offloaded t y
      let k: f32[64,96] = restore i
      let w: f32[64,96] = dot z b
      let y2: f32[64,96] = restored k i
      let j: f32[64,96] = restore h
      let v: f32[64,96] = add w y2
      let x2: f32[64,96] = restored j h
      let u: f32[64,96] = add v x2
      return u
    }";

    fn planned() -> Arc<Planned> {
        let text = AWAY.replace("y2", "m").replace("x2", "n");
        let program: Program = text.parse().expect("a program");
        Arc::new(Planned::new(&program, TARGET).expect("a plan"))
    }

    #[test]
    fn copies_are_steps_with_the_number_of_their_start() {
        let planned = planned();
        let (program, plan) = (planned.program(), planned.plan());
        let compiler = Lowering { gpu: None, program, plan, copies: Vec::new() };
        let mut steps = Vec::new();
        (0..program.equations.len()).for_each(|e| compiler.equation(e, &mut steps).unwrap());
        let found: Vec<_> = steps
            .iter()
            .filter_map(|step| match &step.action {
                StepAction::CopyStart(way, n) => Some((*way, *n, step.inputs.len())),
                StepAction::CopyEnd(way, n) => Some((*way, *n, step.inputs.len())),
                _ => None,
            })
            .collect();
        use Transfer::{Offload, Offloaded, Restore, Restored};
        let wanted = [
            (Offload, 0, 1),
            (Offload, 1, 1),
            (Offloaded, 0, 0),
            (Offloaded, 1, 0),
            (Restore, 2, 1),
            (Restored, 2, 0),
            (Restore, 3, 1),
            (Restored, 3, 0),
        ];
        assert_eq!(found, wanted);
        // Both are there at a time.
        assert_eq!(plan.host, 2 * 64 * 96 * 4);
    }

    /// Only with `PULLBACK_DEVICE=cuda:0`: plainly, as graphs between the copies, and step by step.
    #[test]
    fn values_come_back_as_they_left() {
        let Some(gpu) = device() else { return };
        let gpu = Arc::new(gpu);
        let number = |i: usize| ((i * 37) % 199) as f64 / 995.0 - 0.1;
        let memory = |n: usize| {
            let content = bytes(DType::F32, &(0..n).map(number).collect::<Vec<_>>());
            let at = gpu.alloc(content.len()).unwrap();
            gpu.upload(&content, at).unwrap();
            at
        };
        let inputs = [(memory(64 * 96), 0), (memory(96 * 96), 0)];
        let plain =
            AWAY.lines().filter(|line| !line.contains("offload") && !line.contains("restore "));
        let plain = plain.filter(|line| !line.contains("restored"));
        let plain = plain.collect::<Vec<_>>().join("\n").replace("y2", "y").replace("x2", "x");
        let plain: Program = plain.parse().expect("the program without copies");
        let all = [Arc::new(Planned::new(&plain, TARGET).unwrap()), planned()];
        let run = |planned: &Arc<Planned>, by_steps: bool| {
            let mut ready = CudaProgram::new(&gpu, planned).unwrap();
            let arena = gpu.alloc(planned.plan().arena.max(1)).unwrap();
            let mut results = Vec::new();
            for _ in 0..4 {
                let out = gpu.alloc(64 * 96 * 4).unwrap();
                gpu.fill(arena, 0xA5, planned.plan().arena).unwrap();
                let bases = Bases { arena, inputs: &inputs, outputs: &[out] };
                match by_steps {
                    false => ready.run(&bases, None).unwrap(),
                    true => {
                        (0..ready.steps().len()).for_each(|n| ready.run(&bases, Some(n)).unwrap())
                    }
                }
                let mut result = vec![0; 64 * 96 * 4];
                gpu.download(out, &mut result).unwrap();
                results.push(result);
                gpu.free(out);
            }
            gpu.free(arena);
            results
        };
        let wanted = run(&all[0], false);
        assert!(run(&all[1], false) == wanted);
        assert!(run(&all[1], true) == wanted);
    }
}
