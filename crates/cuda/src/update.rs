//! Steps of optimisers, and casts of parameters: those that follow one another run as one kernel.
//!
//! A step of a small parameter takes a launch and little else, and a model has hundreds of them. So
//! steps wait in the queue (`queue.rs`) until something else uses the stream, and then a table of
//! them is the parameter of one kernel: no memory holds it, and a graph keeps it. Bits are those of
//! single launches, as every element is computed alone. So do casts between `f32` and 16 bits in
//! programs, where those of parameters come one after the other
//! ([`Target::joins_casts`](pullback_ir::pass::Target::joins_casts)).
//!
//! Steps that wait may run in any order: one that reads or writes what another writes runs them
//! first.

use crate::compile::KernelKey;
use crate::functions::PRELUDE;
use crate::gpu::Gpu;
use crate::loops::StridedOperand;
use crate::ops::copy;
use crate::profile::CallDescription;
use crate::text::{compute, element};
use pullback_cuda_sys::DevicePtr;
use pullback_ir::{Adam, DType, Fused, Line, Result, Sgd};
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeMap;

const UPDATE: &str = include_str!("kernels/update.cu");
const CASTS: &str = include_str!("kernels/casts.cu");
const BLOCK: usize = 256;
/// Elements of a block: few enough that blocks are even, many enough that the powers that each
/// begins with cost nothing.
const CHUNK: usize = 8192;
/// Words of parameters that every driver takes, and those before the table.
const WORDS: usize = 512;
const HEAD: usize = 7;
/// Words of a cast in its table, before which there is one, and how many casts fit.
const CAST_WORDS: usize = 4;
const MOST_CASTS: usize = (WORDS - 1) / CAST_WORDS;

/// Which optimiser, with its options.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum OptimizerKind {
    Sgd(Sgd),
    Adam(Adam),
}

impl OptimizerKind {
    /// None of what is no optimiser.
    pub fn of(fused: Fused) -> Option<OptimizerKind> {
        if let Fused::Sgd(how) = fused {
            return Some(OptimizerKind::Sgd(how));
        }
        if let Fused::Adam(how) = fused { Some(OptimizerKind::Adam(how)) } else { None }
    }

    fn name(self) -> &'static str {
        match self {
            OptimizerKind::Sgd(how) => Fused::Sgd(how).name(),
            OptimizerKind::Adam(how) => Fused::Adam(how).name(),
        }
    }

    /// States of a parameter.
    fn states(self) -> usize {
        match self {
            OptimizerKind::Sgd(how) => usize::from(how.remembers()),
            OptimizerKind::Adam(how) => 2 + usize::from(how.amsgrad),
        }
    }

    /// Whether the number of the step is an operand.
    fn counts(self) -> bool {
        match self {
            OptimizerKind::Sgd(how) => how.remembers(),
            OptimizerKind::Adam(_) => true,
        }
    }

    fn numbers(self) -> [f64; 4] {
        match self {
            OptimizerKind::Sgd(how) => [how.momentum.0, how.dampening.0, how.decay.0, 0.0],
            OptimizerKind::Adam(how) => [how.beta1.0, how.beta2.0, how.eps.0, how.decay.0],
        }
    }

    /// What its kernel depends on besides dtypes, and the definitions for that.
    fn variant(self) -> (&'static str, SmallVec<[u32; 4]>, String) {
        let states = self.states() as u32;
        match self {
            OptimizerKind::Sgd(how) => {
                let flags = smallvec![states, u32::from(how.nesterov), u32::from(how.maximize)];
                let more = format!("#define NESTEROV {}\n", u8::from(how.nesterov));
                ("sgd", flags, more + &maximized(how.maximize))
            }
            OptimizerKind::Adam(how) => {
                let flags = smallvec![states, u32::from(how.decoupled), u32::from(how.maximize)];
                let more = format!("#define ADAM\n#define DECOUPLED {}\n", u8::from(how.decoupled));
                ("adam", flags, more + &maximized(how.maximize))
            }
        }
    }

    /// Words of a step in the table.
    fn words(self) -> usize {
        2 * self.states() + 6
    }

    /// Steps that fit into one table.
    fn most(self) -> usize {
        (WORDS - HEAD) / self.words()
    }
}

fn maximized(maximize: bool) -> String {
    format!("#define MAXIMIZE {}\n", u8::from(maximize))
}

/// What the steps of a launch have in common.
#[derive(Clone, Copy, PartialEq)]
enum LaunchKind {
    Update(OptimizerLaunch),
    /// From a dtype to another.
    Cast([DType; 2]),
}

/// An optimiser, the dtype of its parameters, and the learning rate.
#[derive(Clone, Copy, PartialEq)]
struct OptimizerLaunch {
    how: OptimizerKind,
    dtype: DType,
    rate: (DevicePtr, DType),
}

impl OptimizerLaunch {
    fn of(how: OptimizerKind, x: &[StridedOperand]) -> OptimizerLaunch {
        let rate = &x[x.len() - 1];
        OptimizerLaunch { how, dtype: x[0].dtype, rate: (rate.at, rate.dtype) }
    }
}

impl LaunchKind {
    /// Steps that fit into one table.
    fn most(self) -> usize {
        match self {
            LaunchKind::Update(of) => of.how.most(),
            LaunchKind::Cast(_) => MOST_CASTS,
        }
    }

    fn launch(self, gpu: &Gpu, steps: &[UpdateStep]) -> Result<()> {
        match self {
            LaunchKind::Update(of) => launch(gpu, of, steps),
            LaunchKind::Cast(dtypes) => launch_casts(gpu, dtypes, steps),
        }
    }

    /// What a profile says of some elements.
    fn timed(self, gpu: &Gpu, count: usize, at: Option<Line>, steps: &[UpdateStep]) -> Result<()> {
        let of = |dtype: DType| StridedOperand::dense(0, dtype, &[count]);
        let run = || self.launch(gpu, steps);
        match self {
            LaunchKind::Update(OptimizerLaunch { how, dtype, .. }) => {
                let all = |operands| vec![of(dtype); operands];
                let (inputs, outputs) = (&all(2 + how.states())[..], &all(1 + how.states())[..]);
                gpu.timed(&CallDescription { kernel: how.name(), inputs, outputs, at }, run)
            }
            LaunchKind::Cast([from, to]) => {
                let (inputs, outputs) = (&[of(from)], &[of(to)]);
                gpu.timed(&CallDescription { kernel: "cast", inputs, outputs, at }, run)
            }
        }
    }
}

/// The source of the kernel for some dtypes of parameters and rates.
pub(crate) fn text(how: OptimizerKind, dtype: DType, rate: DType) -> String {
    let (e, c, r) = (element(dtype), compute(dtype), element(rate));
    let (states, most, more) = (how.states(), how.most(), how.variant().2);
    format!(
        "{PRELUDE}typedef {e} E;\ntypedef {c} C;\ntypedef {r} R;\n#define STATES {states}\n\
         #define MOST {most}\n#define CHUNK {CHUNK}\n{more}{UPDATE}"
    )
}

/// One step: the addresses of results and operands, and its elements.
struct UpdateStep {
    addresses: SmallVec<[DevicePtr; 12]>,
    count: usize,
}

/// The steps that wait.
#[derive(Default)]
pub(crate) struct Updates {
    rule: Option<LaunchKind>,
    steps: Vec<UpdateStep>,
    read: Ranges,
    written: Ranges,
    at: Option<Line>,
}

impl Updates {
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Adds a step, which runs later. `false` if it must run now, as an operand is not dense.
    pub fn add(
        &mut self,
        gpu: &Gpu,
        how: OptimizerKind,
        x: &[StridedOperand],
        out: &[StridedOperand],
        at: Option<Line>,
    ) -> Result<bool> {
        if x[0].len() == 0 || !x.iter().chain(out).all(StridedOperand::is_dense) {
            return Ok(false);
        }
        let step = UpdateStep::of(how, x, out);
        self.join(gpu, LaunchKind::Update(OptimizerLaunch::of(how, x)), step, [x, out], at)
    }

    /// Adds a cast, which runs later. `false` if it must run now: only those between `f32` and 16
    /// bits, of dense operands, have a table.
    pub fn cast(
        &mut self,
        gpu: &Gpu,
        x: &StridedOperand,
        out: &StridedOperand,
        at: Option<Line>,
    ) -> Result<bool> {
        let narrow = |dtype| matches!(dtype, DType::BF16 | DType::F16);
        let fits = (x.dtype == DType::F32 && narrow(out.dtype))
            || (narrow(x.dtype) && out.dtype == DType::F32);
        if !fits || x.len() == 0 || !x.is_dense() || !out.is_dense() {
            return Ok(false);
        }
        let step = UpdateStep { addresses: smallvec![out.at, x.at], count: x.len() };
        let rule = LaunchKind::Cast([x.dtype, out.dtype]);
        self.join(gpu, rule, step, [std::slice::from_ref(x), std::slice::from_ref(out)], at)
    }

    fn join(
        &mut self,
        gpu: &Gpu,
        rule: LaunchKind,
        step: UpdateStep,
        [x, out]: [&[StridedOperand]; 2],
        at: Option<Line>,
    ) -> Result<bool> {
        let range = |x: &StridedOperand| (x.at, x.at + x.bytes() as u64);
        let meets = out.iter().map(range).any(|y| self.written.meet(y) || self.read.meet(y))
            || x.iter().map(range).any(|x| self.written.meet(x));
        if meets || self.rule != Some(rule) || self.steps.len() >= rule.most() {
            self.flush(gpu)?;
            (self.rule, self.at) = (Some(rule), at);
        }
        x.iter().for_each(|x| self.read.add(range(x)));
        out.iter().for_each(|y| self.written.add(range(y)));
        self.steps.push(step);
        Ok(true)
    }

    /// Runs what waits.
    pub fn flush(&mut self, gpu: &Gpu) -> Result<()> {
        let steps = std::mem::take(&mut self.steps);
        (self.read, self.written) = Default::default();
        match self.rule.take() {
            Some(rule) if !steps.is_empty() => {
                let count = steps.iter().map(|step| step.count).sum();
                let done = rule.timed(gpu, count, self.at, &steps);
                done.map_err(|error| match self.at {
                    Some(at) => error.at(at),
                    None => error,
                })
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl UpdateStep {
    /// Of dense operands.
    fn of(how: OptimizerKind, x: &[StridedOperand], out: &[StridedOperand]) -> UpdateStep {
        let mut addresses: SmallVec<[DevicePtr; 12]> = out.iter().map(|y| y.at).collect();
        addresses.extend(x[..2 + how.states()].iter().map(|x| x.at));
        addresses.push(if how.counts() { x[x.len() - 2].at } else { 0 });
        UpdateStep { addresses, count: x[0].len() }
    }
}

/// A step that runs now: what is read is copied if it is not dense.
pub(crate) fn run(
    gpu: &Gpu,
    how: OptimizerKind,
    x: &[StridedOperand],
    out: &[StridedOperand],
) -> Result<()> {
    if x[0].len() == 0 {
        return Ok(());
    }
    let (mut held, mut dense) = (Vec::new(), SmallVec::<[StridedOperand; 8]>::new());
    for x in x {
        dense.push(if x.is_dense() {
            x.clone()
        } else {
            let memory = gpu.scratch(x.bytes())?;
            let to = StridedOperand::dense(memory.at, x.dtype, &x.shape);
            copy(gpu, x, &to)?;
            held.push(memory);
            to
        });
    }
    launch(gpu, OptimizerLaunch::of(how, &dense), &[UpdateStep::of(how, &dense, out)])
}

fn launch(gpu: &Gpu, rule: OptimizerLaunch, steps: &[UpdateStep]) -> Result<()> {
    let OptimizerLaunch { how, dtype, rate } = rule;
    let (name, flags, _) = how.variant();
    let key = KernelKey::Named(name, smallvec![dtype, rate.1], flags);
    let kernel = gpu.kernels.get(gpu, &key, || text(how, dtype, rate.1))?;
    let mut words: SmallVec<[u64; WORDS]> = smallvec![rate.0, gpu.stop_word(), steps.len() as u64];
    words.extend(how.numbers().map(f64::to_bits));
    let blocks = table(&mut words, steps);
    words.resize(HEAD + how.most() * how.words(), 0);
    gpu.launch(kernel, blocks, BLOCK, &words)
}

/// Adds the steps to the parameters of a kernel, and returns the number of blocks that they take.
fn table(words: &mut SmallVec<[u64; WORDS]>, steps: &[UpdateStep]) -> usize {
    let mut blocks = 0;
    for step in steps {
        blocks += step.count.div_ceil(CHUNK);
        words.extend_from_slice(&step.addresses);
        words.extend([step.count as u64, blocks as u64]);
    }
    blocks
}

/// The source of the kernel for casts.
pub(crate) fn cast_text([from, to]: [DType; 2]) -> String {
    let (f, t) = (element(from), element(to));
    format!(
        "{PRELUDE}typedef {f} F;\ntypedef {t} T;\n#define MOST {MOST_CASTS}\n#define CHUNK {CHUNK}\n{CASTS}"
    )
}

fn launch_casts(gpu: &Gpu, dtypes: [DType; 2], steps: &[UpdateStep]) -> Result<()> {
    let key = KernelKey::Named("casts", SmallVec::from_slice(&dtypes), smallvec![]);
    let kernel = gpu.kernels.get(gpu, &key, || cast_text(dtypes))?;
    let mut words: SmallVec<[u64; WORDS]> = smallvec![steps.len() as u64];
    let blocks = table(&mut words, steps);
    words.resize(1 + MOST_CASTS * CAST_WORDS, 0);
    gpu.launch(kernel, blocks, BLOCK, &words)
}

/// Memory, as ranges that neither meet nor touch.
#[derive(Default)]
struct Ranges(BTreeMap<DevicePtr, DevicePtr>);

impl Ranges {
    fn meet(&self, (from, to): (DevicePtr, DevicePtr)) -> bool {
        self.0.range(..to).next_back().is_some_and(|(_, &end)| end > from)
    }

    fn add(&mut self, (mut from, mut to): (DevicePtr, DevicePtr)) {
        while let Some((&start, &end)) = self.0.range(..=to).next_back().filter(|r| *r.1 >= from) {
            self.0.remove(&start);
            (from, to) = (from.min(start), to.max(end));
        }
        self.0.insert(from, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_meet_where_they_share_a_byte() {
        let mut ranges = Ranges::default();
        [(10, 20), (30, 40), (40, 50), (12, 15)].into_iter().for_each(|r| ranges.add(r));
        assert_eq!(ranges.0.into_iter().collect::<Vec<_>>(), [(10, 20), (30, 50)]);
        let mut ranges = Ranges::default();
        [(10, 20), (30, 40), (5, 35)].into_iter().for_each(|r| ranges.add(r));
        assert_eq!(ranges.0.iter().collect::<Vec<_>>(), [(&5, &40)]);
        for (range, meets) in [((0, 5), false), ((0, 6), true), ((39, 99), true), ((40, 41), false)]
        {
            assert_eq!(ranges.meet(range), meets, "{range:?}");
        }
    }

    #[test]
    fn a_table_fits_the_parameters_of_a_kernel() {
        for how in crate::tests::optimisers() {
            let words = HEAD + how.most() * how.words();
            assert!(words <= WORDS && words + how.words() > WORDS, "{words}");
        }
    }
}
