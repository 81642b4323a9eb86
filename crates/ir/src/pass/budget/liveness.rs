//! Liveness: the lifetimes of a program's values.
//!
//! A *root* is a variable that owns memory; views, and results of `after`, refer to that of their
//! root. Some roots are *free*: inputs and outputs are in memory anyway, literals and counters need
//! none, and tiny values are ignored. All others have a first and a last equation.

use crate::{Op, Program, ResultMemory, Transfer, Var};

/// The planner's view of a program.
pub(super) struct Liveness<'a> {
    pub(super) program: &'a Program,
    /// The root of each variable.
    pub(super) roots: Vec<Var>,
    /// By variable: the equation that defines it; `None` for inputs.
    pub(super) made: Vec<Option<usize>>,
    /// By root: whether keeping it costs nothing.
    pub(super) free: Vec<bool>,
    /// By root: its bytes, zero if it is free.
    pub(super) bytes: Vec<usize>,
    /// By root: the equations that read it, through whatever views, in order.
    pub(super) readers: Vec<Vec<u32>>,
    /// By equation.
    pub(super) work: Vec<u64>,
}

/// Whether the op only refers to the memory of its first operand.
pub(super) fn is_alias(op: &Op) -> bool {
    op.memory() == ResultMemory::Operand
}

/// Memory that is ignored, as a fraction of what is alive at the peak.
const TINY: usize = 1 << 13;

impl<'a> Liveness<'a> {
    pub(super) fn of(program: &'a Program) -> Liveness<'a> {
        let count = program.specs.len();
        let mut roots: Vec<Var> = (0..count as u32).map(Var).collect();
        let mut free = vec![false; count];
        let mut readers: Vec<Vec<u32>> = vec![Vec::new(); count];
        program.inputs.iter().for_each(|v| free[v.index()] = true);
        for (i, e) in program.equations.iter().enumerate() {
            match e.op.memory() {
                ResultMemory::Operand => {
                    roots[e.outputs[0].index()] = roots[e.inputs[0].index()];
                }
                ResultMemory::Constant => free[e.outputs[0].index()] = true,
                // Never recomputed, so in memory in any case.
                ResultMemory::Own if e.op.is_ordered() => {
                    e.outputs.iter().for_each(|v| free[v.index()] = true);
                }
                // On the host.
                ResultMemory::Own if e.op == Op::Transfer(Transfer::Offload) => {
                    free[e.outputs[0].index()] = true;
                }
                ResultMemory::Own => {}
            }
            let read = if is_alias(&e.op) { &e.inputs[..1] } else { &e.inputs[..] };
            for v in read {
                let readers = &mut readers[roots[v.index()].index()];
                if readers.last() != Some(&(i as u32)) {
                    readers.push(i as u32);
                }
            }
        }
        program.outputs.iter().for_each(|v| free[roots[v.index()].index()] = true);
        let own = |v: usize| roots[v] == Var(v as u32) && !free[v];
        let mut bytes: Vec<usize> =
            (0..count).map(|v| if own(v) { program.specs[v].bytes() } else { 0 }).collect();
        let made = program.definitions();
        let work = program.equations.iter().map(|e| super::work::work_of(program, e)).collect();
        let mut liveness =
            Liveness { program, roots, made, free, bytes: Vec::new(), readers, work };
        let tiny = alive(&liveness.made, &bytes, &liveness.readers, program.equations.len())
            .into_iter()
            .max()
            .unwrap_or(0)
            / TINY;
        for (bytes, free) in bytes.iter_mut().zip(&mut liveness.free) {
            if *bytes <= tiny {
                (*bytes, *free) = (0, true);
            }
        }
        liveness.bytes = bytes;
        liveness
    }

    pub(super) fn root(&self, v: Var) -> Var {
        self.roots[v.index()]
    }

    /// Bytes that are computed before each equation and read from it on, and one more for the end.
    pub(super) fn alive(&self) -> Vec<usize> {
        alive(&self.made, &self.bytes, &self.readers, self.program.equations.len())
    }

    /// The roots that an equation defines, of those that are not free.
    pub(super) fn makes(&self, e: usize) -> impl Iterator<Item = Var> + '_ {
        let aliased = is_alias(&self.program.equations[e].op);
        let outputs = self.program.equations[e].outputs.iter().copied();
        outputs.filter(move |v| !aliased && !self.free[v.index()])
    }
}

fn alive(
    made: &[Option<usize>],
    bytes: &[usize],
    readers: &[Vec<u32>],
    equations: usize,
) -> Vec<usize> {
    let mut change = vec![0isize; equations + 2];
    for (v, &bytes) in bytes.iter().enumerate().filter(|(_, bytes)| **bytes > 0) {
        if let (Some(made), Some(&last)) = (made[v], readers[v].last()) {
            change[made + 1] += bytes as isize;
            change[last as usize + 1] -= bytes as isize;
        }
    }
    let mut now = 0isize;
    let mut alive = Vec::with_capacity(equations + 1);
    for by in change.into_iter().take(equations + 1) {
        now += by;
        alive.push(now.max(0) as usize);
    }
    alive
}
