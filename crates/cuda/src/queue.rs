//! Pointwise ops that wait, so that several run as one kernel.
//!
//! Ops of a device return before they have run; this file puts that off a little further. A
//! pointwise op is not launched at once, but joins the ops that wait, as an instruction of a
//! region. Everything else that uses the stream (`Gpu::enter`) runs the region first, so the order
//! that others see is that of the calls. What this saves:
//!
//! - launches, which cost more than all else of a small op;
//! - reads: a value that a later instruction needs is in a register;
//! - writes: the result of an op whose memory was given back meanwhile is not stored.
//!
//! # What may join
//!
//! The ops of a region have equally many elements and dense results. An operand is the value of an
//! earlier instruction (if it is at the address of its result), one number, or memory that no
//! waiting op writes. The result may take memory that waiting ops read only element for element,
//! since a thread loads its elements before it stores them. All other cases run the region first.
//! Memory that waiting ops read may have been given back; what is allocated there is written by
//! later calls, which again run the region first, or join it under the rule above.
//!
//! # When a region is compiled
//!
//! A kernel takes some 0.1 s to compile. The ops of a region run one by one, with kernels that
//! every program shares, until the same region came up [`OFTEN`] times; then it is worth a kernel
//! of its own. Bits do not depend on it: every instruction rounds to its dtype.
//!
//! Steps of optimisers wait too (`update.rs`), never beside pointwise ops.
//!
//! Numbers (`Op::Literal`) are passed by value to regions, so that a kernel does not depend on
//! them, and written to their memory only if they are still needed when the region runs.

use crate::compile::KernelKey;
use crate::gpu::Gpu;
use crate::loops::{Loop, StridedOperand};
use crate::ops;
use crate::profile::CallDescription;
use crate::text::{THREADS, text};
use crate::update::{OptimizerKind, Updates};
use pullback_cuda_sys::DevicePtr;
use pullback_ir::{DType, Inst, Line, Op, Result, Scalar, Value, element_count};
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::{SmallVec, smallvec};
use std::hash::{Hash, Hasher};
use std::thread::ThreadId;

/// A region that came up this many times has a kernel of its own.
const OFTEN: u8 = 3;
/// A region that cannot be compiled.
const NEVER: u8 = u8::MAX;
/// Most instructions, operands and results of a region.
const INSTRUCTIONS: usize = 32;
const OPERANDS: usize = 12;
const RESULTS: usize = 10;
/// Most numbers whose memory is not written yet.
const NUMBERS: usize = 64;

/// The ops that wait.
pub(crate) struct LaunchQueue {
    calls: Vec<QueuedCall>,
    body: Vec<Inst>,
    values: Vec<Value>,
    inputs: Vec<StridedOperand>,
    /// Bit `k`: input `k` is a number that is passed by value.
    immediate: u64,
    outputs: Vec<QueuedOutput>,
    /// Elements of every result.
    count: usize,
    /// Their axes, if an operand is broadcast along some.
    shape: Option<SmallVec<[usize; 4]>>,
    /// Numbers whose memory is not written yet.
    numbers: Vec<QueuedScalar>,
    /// Steps of optimisers: either these wait or the others.
    updates: Updates,
    owner: Option<ThreadId>,
    occurrences: FxHashMap<u64, u8>,
    often: u8,
}

/// A call, as it was made.
struct QueuedCall {
    op: Op,
    inputs: SmallVec<[StridedOperand; 3]>,
    /// Bit `k`: input `k` is a number that is passed by value.
    immediate: u64,
    output: StridedOperand,
    at: Option<Line>,
}

/// Where the value of an instruction goes.
struct QueuedOutput {
    value: usize,
    to: StridedOperand,
}

struct QueuedScalar {
    at: DevicePtr,
    dtype: DType,
    bits: u64,
}

/// What an operand is to the region.
enum RegionSource {
    Value(usize),
    /// Memory, or the bits of a number.
    Memory(StridedOperand),
    Number(StridedOperand),
}

/// Bytes from the first to the last element; operands of regions have no negative strides.
fn extent(x: &StridedOperand) -> (DevicePtr, DevicePtr) {
    let mut last = 0;
    for (&n, &s) in x.shape.iter().zip(&x.strides) {
        last += n.saturating_sub(1) * s.unsigned_abs();
    }
    (x.at, x.at + ((last + 1) * x.dtype.size()) as u64)
}

fn overlap(a: &StridedOperand, b: &StridedOperand) -> bool {
    let (a, b) = (extent(a), extent(b));
    a.0 < b.1 && b.0 < a.1
}

/// The bits of a number in its dtype, in the low bytes.
pub(crate) fn bits(value: Scalar, dtype: DType) -> u64 {
    let double = value.as_f64();
    match dtype {
        DType::F64 => double.to_bits(),
        DType::F32 => u64::from((double as f32).to_bits()),
        DType::BF16 => u64::from(half::bf16::from_f64(double).to_bits()),
        DType::F16 => u64::from(half::f16::from_f64(double).to_bits()),
        DType::I64 => value.as_i64() as u64,
        DType::I32 => {
            let bounded = value.as_i64().clamp(i64::from(i32::MIN), i64::from(i32::MAX));
            u64::from(bounded as i32 as u32)
        }
        DType::U8 => value.as_i64().clamp(0, 255) as u64,
        DType::Bool => u64::from(double != 0.0),
    }
}

impl Default for LaunchQueue {
    fn default() -> LaunchQueue {
        // For tests: `1` compiles every region at once, `0` none.
        let often: Option<u8> =
            std::env::var("PULLBACK_CUDA_REGIONS").ok().and_then(|v| v.parse().ok());
        LaunchQueue {
            calls: Vec::new(),
            body: Vec::new(),
            values: Vec::new(),
            inputs: Vec::new(),
            immediate: 0,
            outputs: Vec::new(),
            count: 0,
            shape: None,
            numbers: Vec::new(),
            updates: Updates::default(),
            owner: None,
            occurrences: FxHashMap::default(),
            often: often.unwrap_or(OFTEN).min(NEVER - 1),
        }
    }
}

impl LaunchQueue {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.numbers.is_empty() && self.updates.is_empty()
    }

    /// Memory is given back: what waits to be written there is not needed.
    pub fn free(&mut self, at: DevicePtr) {
        self.outputs.retain(|output| output.to.at != at);
        self.numbers.retain(|number| number.at != at);
    }

    /// A number, repeated over memory of one element.
    pub fn number(&mut self, gpu: &Gpu, value: Scalar, dtype: DType, at: DevicePtr) -> Result<()> {
        if self.numbers.len() >= NUMBERS || !self.updates.is_empty() {
            self.flush(gpu)?;
        }
        self.numbers.retain(|number| number.at != at);
        self.numbers.push(QueuedScalar { at, dtype, bits: bits(value, dtype) });
        Ok(())
    }

    /// Adds a pointwise op, which runs later. `false` if it is not one that may wait.
    pub fn add(
        &mut self,
        gpu: &Gpu,
        op: &Op,
        x: &[StridedOperand],
        out: &StridedOperand,
        at: Option<Line>,
    ) -> Result<bool> {
        let count = out.len();
        let negative = |x: &StridedOperand| x.strides.iter().any(|&s| s < 0);
        if count == 0 || !out.is_dense() || x.iter().any(negative) {
            return Ok(false);
        }
        let owner = std::thread::current().id();
        let full = !self.updates.is_empty()
            || self.body.len() + x.len() + 1 > INSTRUCTIONS
            || self.inputs.len() + x.len() > OPERANDS
            || self.outputs.len() >= RESULTS;
        if full || !self.calls.is_empty() && (self.count != count || self.owner != Some(owner)) {
            self.flush(gpu)?;
        }
        let mut sources = self.sources(x, out);
        if sources.is_none() {
            self.flush(gpu)?;
            sources = self.sources(x, out);
        }
        let Some(sources) = sources else { return Ok(false) };
        (self.owner, self.count) = (Some(owner), count);
        let mut call =
            QueuedCall { op: op.clone(), inputs: x.into(), immediate: 0, output: out.clone(), at };
        let mut of: SmallVec<[usize; 3]> = SmallVec::new();
        for (k, source) in sources.into_iter().enumerate() {
            let (operand, is_number) = match source {
                RegionSource::Value(v) => {
                    of.push(v);
                    continue;
                }
                RegionSource::Memory(operand) => (operand, false),
                RegionSource::Number(operand) => {
                    call.immediate |= 1 << k;
                    call.inputs[k].at = operand.at;
                    (operand, true)
                }
            };
            of.push(self.load(operand, is_number));
        }
        self.body.push(Inst::Point(op.clone(), SmallVec::from_slice(&of)));
        self.values.push(Value { dtype: out.dtype, row: false });
        // Written over: only the last value is stored.
        self.outputs.retain(|output| output.to.at != out.at);
        self.outputs.push(QueuedOutput { value: self.body.len() - 1, to: out.clone() });
        self.calls.push(call);
        Ok(true)
    }

    /// Adds a step of an optimiser, which runs later. `false` if it must run now.
    pub fn update(
        &mut self,
        gpu: &Gpu,
        how: OptimizerKind,
        [x, out]: [&[StridedOperand]; 2],
        at: Option<Line>,
    ) -> Result<bool> {
        if self.updates.is_empty() {
            self.flush(gpu)?;
        }
        self.updates.add(gpu, how, x, out, at)
    }

    /// The value of an operand that is loaded, once.
    fn load(&mut self, x: StridedOperand, is_number: bool) -> usize {
        let same = |(k, y): (usize, &StridedOperand)| {
            (self.immediate >> k & 1 == 1) == is_number
                && y.at == x.at
                && y.dtype == x.dtype
                && y.shape == x.shape
                && y.strides == x.strides
        };
        let k = self.inputs.iter().enumerate().position(same).unwrap_or(self.inputs.len());
        let loads = |inst: &Inst| matches!(inst, Inst::Load(n) if *n == k);
        if let Some(v) = self.body.iter().position(loads) {
            return v;
        }
        self.body.push(Inst::Load(k));
        self.values.push(Value { dtype: x.dtype, row: false });
        self.immediate |= u64::from(is_number) << k;
        self.inputs.push(x);
        self.body.len() - 1
    }

    /// What the operands of an op are to the region; none if it must run first.
    fn sources(
        &mut self,
        x: &[StridedOperand],
        out: &StridedOperand,
    ) -> Option<SmallVec<[RegionSource; 3]>> {
        let count = out.len();
        let is_flat = |x: &StridedOperand| x.len() == count && x.is_dense();
        if self.calls.is_empty() {
            self.shape = None;
        }
        let mut sources = SmallVec::new();
        for x in x {
            let single = x.strides.iter().all(|&s| s == 0) || x.len() == 1;
            if let Some(number) = self.numbers.iter().find(|n| n.at == x.at) {
                if !single || number.dtype != x.dtype {
                    return None;
                }
                sources.push(RegionSource::Number(StridedOperand::new(
                    number.bits,
                    x.dtype,
                    &[],
                    &[],
                )));
                continue;
            }
            if let Some(output) = self.outputs.iter().find(|o| overlap(&o.to, x)) {
                if output.to.at == x.at && output.to.dtype == x.dtype && is_flat(x) {
                    sources.push(RegionSource::Value(output.value));
                    continue;
                }
                return None;
            }
            sources.push(RegionSource::Memory(if is_flat(x) {
                x.as_strided(&[count], &[1])
            } else if single {
                x.as_strided(&[], &[])
            } else {
                match &self.shape {
                    None => self.shape = Some(SmallVec::from_slice(&out.shape)),
                    Some(shape) if shape[..] == out.shape[..] => {}
                    Some(_) => return None,
                }
                x.clone()
            }));
        }
        // What is read where the result goes is read by the thread that writes it.
        let apart = |y: &StridedOperand| {
            let same = y.at == out.at
                && y.dtype.size() == out.dtype.size()
                && y.shape[..] == [count]
                && y.strides[..] == [1];
            same || !overlap(y, out)
        };
        let stored = self.inputs.iter().enumerate().filter(|(k, _)| self.immediate >> k & 1 == 0);
        let fresh = sources.iter().filter_map(|source| match source {
            RegionSource::Memory(view) => Some(view),
            _ => None,
        });
        if !stored.map(|(_, y)| y).chain(fresh).all(apart) {
            return None;
        }
        let written = |o: &QueuedOutput| {
            o.to.at == out.at && o.to.bytes() == out.bytes() || !overlap(&o.to, out)
        };
        let number = |n: &QueuedScalar| overlap(&StridedOperand::dense(n.at, n.dtype, &[]), out);
        (self.outputs.iter().all(written) && !self.numbers.iter().any(number)).then_some(sources)
    }

    /// Runs what waits.
    pub fn flush(&mut self, gpu: &Gpu) -> Result<()> {
        let done = self.updates.flush(gpu).and_then(|()| self.region(gpu));
        self.calls.clear();
        self.body.clear();
        self.values.clear();
        self.inputs.clear();
        self.outputs.clear();
        (self.immediate, self.shape, self.owner) = (0, None, None);
        // After the region, which may read memory that a number takes.
        for number in self.numbers.drain(..) {
            gpu.write_number(number.at, number.bits, number.dtype.size())?;
        }
        done
    }

    fn region(&mut self, gpu: &Gpu) -> Result<()> {
        if self.outputs.is_empty() {
            return Ok(());
        }
        if self.calls.len() > 1 && self.fused(gpu)? {
            return Ok(());
        }
        // One by one, as they were called.
        for call in &self.calls {
            let what = CallDescription {
                kernel: call.op.name(),
                inputs: &call.inputs,
                outputs: std::slice::from_ref(&call.output),
                at: call.at,
            };
            let done = gpu.timed(&what, || {
                ops::point(gpu, &call.op, &call.inputs, &call.output, call.immediate)
            });
            done.map_err(|error| match call.at {
                Some(at) => error.at(at),
                None => error,
            })?;
        }
        Ok(())
    }

    /// Runs the region as one kernel; `false` if it has none.
    fn fused(&mut self, gpu: &Gpu) -> Result<bool> {
        let flat: SmallVec<[usize; 4]> = smallvec![self.count];
        let shape = self.shape.as_ref().unwrap_or(&flat);
        let inputs: SmallVec<[StridedOperand; 8]> =
            self.inputs.iter().map(|x| over(x, shape)).collect();
        let outputs: SmallVec<[(usize, StridedOperand); 4]> =
            self.outputs.iter().map(|output| (output.value, over(&output.to, shape))).collect();
        let of = Loop {
            shape,
            inner: 0,
            body: &self.body,
            values: &self.values,
            inputs: &inputs,
            outputs: &outputs,
            immediate: self.immediate,
        };
        let (key, blocks, words) = of.elements_call(self.count);
        let key = KernelKey::Loop(key);
        let launch = |kernel| {
            let made: SmallVec<[StridedOperand; 4]> = outputs.iter().map(|o| o.1.clone()).collect();
            let at = self.calls.last().and_then(|call| call.at);
            let what = CallDescription { kernel: "pointwise", inputs: &inputs, outputs: &made, at };
            gpu.timed(&what, || gpu.launch(kernel, blocks, THREADS, &words)).map(|()| true)
        };
        if let Some(kernel) = gpu.kernels.find(&key) {
            return launch(kernel);
        }
        let mut hasher = FxHasher::default();
        key.hash(&mut hasher);
        let seen = self.occurrences.entry(hasher.finish()).or_insert(0);
        let KernelKey::Loop(of) = &key else { return Ok(false) };
        if *seen == NEVER || self.often == 0 {
            return Ok(false);
        }
        *seen += 1;
        if *seen < self.often {
            return Ok(false);
        }
        match gpu.kernels.get(gpu, &key, || text(of, &self.values)) {
            Ok(kernel) => launch(kernel),
            Err(_) => {
                *seen = NEVER;
                Ok(false)
            }
        }
    }
}

/// An operand of a region over the shape of all: dense, one number, or broadcast already.
fn over(x: &StridedOperand, shape: &[usize]) -> StridedOperand {
    if x.shape[..] == *shape {
        return x.clone();
    }
    match x.shape.len() {
        0 => x.as_strided(shape, &SmallVec::<[isize; 4]>::from_elem(0, shape.len())),
        _ => {
            debug_assert_eq!(element_count(shape), x.len());
            StridedOperand::dense(x.at, x.dtype, shape)
        }
    }
}
