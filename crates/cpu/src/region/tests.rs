//! Regions against their unfused ops, and the ways to run them against each other.
//!
//! Random regions are bit-equal to their ops: pointwise ones always, and those with reductions
//! while a row is short enough to be folded by one call of the eager loop. In longer rows the sums
//! are blocked differently, so there a random region has only reductions that do not depend on the
//! order (of integers), and the float ones have separate tests with a stated bound.

use super::{CodegenMode, RegionKernel};
use crate::operand::{Sink, Source};
use crate::run::run_op;
use crate::{Buffer, Input, par};
use half::{bf16, f16};
use pullback_ir::{
    Axes, Binary, Compare, DType, Device, Few, Inst, Layout, Load, Op, Random, Reduction, Region,
    Scalar, Shape, Spec, Unary, dense_strides,
};
use smallvec::{SmallVec, smallvec};
use std::rc::Rc;

mod after_dot;
mod functions;
mod measure;
mod op;
mod rows;
mod steady;

/// A seeded random generator.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// A number: mostly of ordinary size, sometimes special.
    fn number(&mut self) -> f64 {
        match self.below(40) {
            0 => 0.0,
            1 => f64::NAN,
            2 => f64::INFINITY,
            3 => f64::NEG_INFINITY,
            4 => -0.0,
            5 => 1e-40,
            6 => 3.0e5 * (self.below(2000) as f64 - 1000.0),
            7 => self.below(10) as f64 - 5.0,
            _ => (self.next() % 4_000_001) as f64 / 1e6 - 2.0,
        }
    }
}

/// Dense elements.
#[derive(Clone)]
pub(super) struct Dense {
    pub(super) buffer: Rc<Buffer>,
    pub(super) spec: Spec,
}

impl Dense {
    /// Elements made from numbers, rounded to the dtype.
    pub(super) fn of(spec: Spec, mut number: impl FnMut() -> f64) -> Dense {
        let mut buffer = Buffer::alloc(spec.bytes()).expect("memory");
        let to = buffer.as_mut_ptr();
        for i in 0..spec.len() {
            let x = number();
            // SAFETY: inside the buffer.
            unsafe {
                match spec.dtype {
                    DType::F64 => to.cast::<f64>().add(i).write(x),
                    DType::F32 => to.cast::<f32>().add(i).write(x as f32),
                    DType::BF16 => to.cast::<bf16>().add(i).write(bf16::from_f64(x)),
                    DType::F16 => to.cast::<f16>().add(i).write(f16::from_f64(x)),
                    DType::I64 => to.cast::<i64>().add(i).write((x * 7.0) as i64),
                    DType::I32 => to.cast::<i32>().add(i).write((x * 7.0) as i32),
                    DType::U8 => to.add(i).write((x * 7.0) as u8),
                    DType::Bool => to.add(i).write(u8::from(x > 0.0)),
                }
            }
        }
        Dense { buffer: Rc::new(buffer), spec }
    }

    /// The elements as f64 and as bits, with one NaN pattern.
    pub(super) fn elements(&self) -> Vec<(f64, u64)> {
        let from = self.buffer.as_ptr();
        let one = |i: usize| {
            // SAFETY: inside the buffer.
            let (x, bits) = unsafe {
                match self.spec.dtype {
                    DType::F64 => {
                        (from.cast::<f64>().add(i).read(), from.cast::<u64>().add(i).read())
                    }
                    DType::F32 => {
                        let x = from.cast::<f32>().add(i).read();
                        (f64::from(x), u64::from(x.to_bits()))
                    }
                    DType::BF16 => {
                        let x = from.cast::<bf16>().add(i).read();
                        (x.to_f64(), u64::from(x.to_bits()))
                    }
                    DType::F16 => {
                        let x = from.cast::<f16>().add(i).read();
                        (x.to_f64(), u64::from(x.to_bits()))
                    }
                    DType::I64 => {
                        let x = from.cast::<i64>().add(i).read();
                        (x as f64, x as u64)
                    }
                    DType::I32 => {
                        let x = from.cast::<i32>().add(i).read();
                        (f64::from(x), x as u64)
                    }
                    DType::U8 | DType::Bool => {
                        let x = from.add(i).read();
                        (f64::from(x), u64::from(x))
                    }
                }
            };
            (x, if x.is_nan() { u64::MAX } else { bits })
        };
        (0..self.spec.len()).map(one).collect()
    }

    pub(super) fn bits(&self) -> Vec<u64> {
        self.elements().into_iter().map(|e| e.1).collect()
    }
}

/// A value while ops run one by one: a view of a buffer.
#[derive(Clone)]
struct Seen {
    buffer: Rc<Buffer>,
    layout: Layout,
    dtype: DType,
    row: bool,
}

impl Seen {
    fn apply(op: &Op, inputs: &[Seen], row: bool) -> Seen {
        let specs: Vec<Spec> =
            inputs.iter().map(|x| Spec::cpu(x.dtype, x.layout.shape.clone())).collect();
        let inputs: Vec<Input> = inputs
            .iter()
            .zip(&specs)
            .map(|(x, spec)| Input { buffer: &x.buffer, layout: &x.layout, spec })
            .collect();
        let out = run_op(op, &inputs).expect("an op that runs").remove(0);
        let layout = match out.splat {
            true => Layout::splat(out.spec.shape.clone()),
            false => Layout::dense(out.spec.shape.clone()),
        };
        Seen { buffer: Rc::new(out.buffer), layout, dtype: out.spec.dtype, row }
    }

    /// A row value at every index of the domain.
    fn over(&self, region: &Region) -> Seen {
        let mut strides: Vec<isize> = self.layout.strides.to_vec();
        strides.resize(region.shape.len(), 0);
        let layout = Layout {
            shape: region.shape.clone(),
            strides: Few::from_slice(&strides),
            offset: self.layout.offset,
        };
        Seen { layout, row: false, ..self.clone() }
    }

    fn dense(&self) -> Seen {
        Seen::apply(&Op::Copy, std::slice::from_ref(self), self.row)
    }
}

/// The ops one by one.
pub(super) fn one_by_one(region: &Region, inputs: &[Dense]) -> Vec<Dense> {
    let inner: Axes = (region.shape.len() - region.inner..region.shape.len()).collect();
    let mut values: Vec<Seen> = Vec::new();
    for inst in &region.body {
        let made = match inst {
            Inst::Load(k) => Seen {
                buffer: inputs[*k].buffer.clone(),
                layout: region.inputs[*k].layout.clone(),
                dtype: inputs[*k].spec.dtype,
                row: false,
            },
            Inst::Literal(value, dtype) => {
                let shape = Shape::from_slice(region.outer());
                Seen::apply(&Op::literal(*value, Spec::cpu(*dtype, shape)), &[], true)
            }
            Inst::Index(axis, dtype) => {
                let mut count = Seen::apply(
                    &Op::Iota { len: region.shape[*axis], dtype: *dtype, device: Device::Cpu },
                    &[],
                    false,
                );
                let mut strides = vec![0; region.shape.len()];
                strides[*axis] = 1;
                count.layout.shape = region.shape.clone();
                count.layout.strides = Few::from_slice(&strides);
                count
            }
            Inst::Random(kind, key, dtype) => {
                let draw = Op::Random { kind: *kind, shape: region.shape.clone(), dtype: *dtype };
                let key = &inputs[*key];
                let layout = Layout::dense(key.spec.shape.clone());
                let key =
                    Seen { buffer: key.buffer.clone(), layout, dtype: DType::I64, row: false };
                Seen::apply(&draw, &[key], false)
            }
            Inst::Point(op, of) => {
                let row = of.iter().all(|&v| values[v].row);
                let operand = |&v: &usize| match values[v].row && !row {
                    true => values[v].over(region),
                    false => values[v].clone(),
                };
                Seen::apply(op, &of.iter().map(operand).collect::<Vec<_>>(), row)
            }
            Inst::Reduce(kind, v) => {
                // Dense, so that rows are folded in the order of their elements.
                let x = values[*v].dense();
                Seen::apply(&Op::Reduce(*kind, inner.clone()), &[x], true)
            }
        };
        values.push(made);
    }
    let result = |&v: &usize| {
        let x = values[v].dense();
        Dense { spec: Spec::cpu(x.dtype, x.layout.shape.clone()), buffer: x.buffer }
    };
    let rows: Axes = (0..region.outer().len()).collect();
    let column = |&v: &usize| {
        let sum =
            Seen::apply(&Op::Reduce(Reduction::Sum, rows.clone()), &[values[v].dense()], false);
        Dense { spec: Spec::cpu(sum.dtype, sum.layout.shape.clone()), buffer: sum.buffer }
    };
    region.outputs.iter().map(result).chain(region.columns.iter().map(column)).collect()
}

/// Runs a kernel. `over` names pairs (output, input): the output is written over a copy of the
/// input.
pub(super) fn run_kernel(
    kernel: &RegionKernel,
    region: &Region,
    inputs: &[Dense],
    over: &[(usize, usize)],
) -> Vec<Dense> {
    let specs: Vec<&Spec> = inputs.iter().map(|x| &x.spec).collect();
    let results = region.infer(&specs).expect("a region that fits");
    let mut buffers: Vec<Buffer> =
        results.iter().map(|spec| Buffer::alloc(spec.bytes()).expect("memory")).collect();
    let mut sources: Vec<*const u8> = inputs.iter().map(|x| x.buffer.as_ptr()).collect();
    for &(o, k) in over {
        let to = buffers[o].as_mut_ptr();
        // SAFETY: both have the bytes of the input.
        unsafe { std::ptr::copy_nonoverlapping(sources[k], to, inputs[k].spec.bytes()) };
        sources[k] = to;
    }
    let strides: Vec<_> = inputs.iter().map(|x| dense_strides(&x.spec.shape)).collect();
    let sources: Vec<Source> = (0..inputs.len())
        .map(|k| Source {
            ptr: sources[k],
            shape: &inputs[k].spec.shape,
            strides: &strides[k],
            dtype: inputs[k].spec.dtype,
        })
        .collect();
    let sinks: Vec<Sink> = buffers
        .iter_mut()
        .zip(&results)
        .map(|(b, spec)| Sink { ptr: b.as_mut_ptr(), shape: &spec.shape, dtype: spec.dtype })
        .collect();
    kernel.run(&sources, &sinks);
    let dense = |(buffer, spec)| Dense { buffer: Rc::new(buffer), spec };
    buffers.into_iter().zip(results).map(dense).collect()
}

/// The ways that this machine can run a region.
pub(super) fn ways() -> Vec<CodegenMode> {
    vec![CodegenMode::Slices, CodegenMode::Best, CodegenMode::Avx2]
}

/// A random region and operands for it.
struct Made {
    region: Region,
    inputs: Vec<Dense>,
}

fn layout_over(dice: &mut Dice, shape: &[usize], dtype: DType) -> Load {
    let rank = shape.len();
    if dice.one_in(3) {
        let shape = Shape::from_slice(shape);
        return Load { spec: Spec::cpu(dtype, shape.clone()), layout: Layout::dense(shape) };
    }
    // Axes of the operand in another order, longer than needed, some of them missing.
    let mut order: Vec<usize> = (0..rank).filter(|_| !dice.one_in(3)).collect();
    for i in (1..order.len()).rev() {
        if dice.one_in(2) {
            let j = dice.below(i + 1);
            order.swap(i, j);
        }
    }
    let mut lengths = Vec::new();
    let mut how = Vec::new();
    for &d in &order {
        let step = if dice.one_in(5) { 2 } else { 1 };
        let before = if dice.one_in(4) { 1 + dice.below(2) } else { 0 };
        let after = if dice.one_in(4) { 1 } else { 0 };
        lengths.push(before + shape[d] * step + after);
        how.push((step, before, dice.one_in(5)));
    }
    let dense = dense_strides(&lengths);
    let (mut strides, mut offset) = (vec![0isize; rank], 0isize);
    for (i, &d) in order.iter().enumerate() {
        let (step, before, flipped) = how[i];
        offset += before as isize * dense[i];
        strides[d] = dense[i] * step as isize;
        if flipped && shape[d] > 0 {
            offset += strides[d] * (shape[d] as isize - 1);
            strides[d] = -strides[d];
        }
    }
    let layout = Layout {
        shape: Shape::from_slice(shape),
        strides: Few::from_slice(&strides),
        offset: offset as usize,
    };
    Load { spec: Spec::cpu(dtype, lengths.as_slice()), layout }
}

/// `floats`: mostly floats, so that native code is exercised.
fn made(seed: u64, shape: &[usize], inner: usize, floats: bool) -> Made {
    let mut dice = Dice::new(seed);
    let dice = &mut dice;
    let dtypes: &[DType] =
        if floats { &[DType::F32, DType::F32, DType::F64, DType::Bool] } else { &DType::ALL };
    let mut region = Region {
        device: Device::Cpu,
        shape: Shape::from_slice(shape),
        inner,
        inputs: Vec::new(),
        body: Vec::new(),
        outputs: Vec::new(),
        columns: Vec::new(),
    };
    for _ in 0..1 + dice.below(4) {
        let dtype = dice.of(dtypes);
        region.inputs.push(layout_over(dice, shape, dtype));
        region.body.push(Inst::Load(region.inputs.len() - 1));
    }
    if dice.one_in(4) {
        let key = Spec::cpu(DType::I64, [2].as_slice());
        region.inputs.push(Load { spec: key, layout: Layout::splat(Shape::from_slice(shape)) });
        let (kind, dtype) = match dice.below(3) {
            0 => (Random::Bits, DType::I64),
            1 => (Random::Uniform, dice.of(&DType::FLOATS)),
            _ => (Random::Normal, dice.of(&DType::FLOATS)),
        };
        region.body.push(Inst::Random(kind, region.inputs.len() - 1, dtype));
    }
    let row: usize = shape[shape.len() - inner..].iter().product();
    let reduces = !dice.one_in(3);
    let most = if dice.one_in(4) { 60 } else { 15 };
    let wanted = region.body.len() + 1 + dice.below(most);
    let mut tries = 0;
    while region.body.len() < wanted && tries < 1000 {
        tries += 1;
        let count = region.body.len();
        let values = region.values().expect("a region that fits");
        let pick = |dice: &mut Dice| {
            let span = if dice.one_in(2) { count.min(4) } else { count };
            count - 1 - dice.below(span)
        };
        let a = pick(dice);
        let dtype = values[a].dtype;
        let like = |dice: &mut Dice, dtype: DType| {
            let b = pick(dice);
            let same = (0..count).filter(|&v| values[v].dtype == dtype).collect::<Vec<_>>();
            if values[b].dtype == dtype { b } else { dice.of(&same) }
        };
        let inst = match dice.below(16) {
            0 => Inst::Literal(Scalar::from(dice.below(7) as i64 - 3), dice.of(dtypes)),
            1 if dtype.is_float() => Inst::Literal(Scalar::from(dice.number()), dtype),
            2 if !shape.is_empty() => {
                Inst::Index(dice.below(shape.len()), dice.of(&DType::ALL[..7]))
            }
            3 | 4 if reduces => {
                let kind = dice.of(Reduction::ALL);
                // Beyond one fold the order matters, and so does a zero's sign.
                if (row > 512 && dtype.is_float()) || row == 0 {
                    continue;
                }
                Inst::Reduce(kind, a)
            }
            5 => Inst::Point(Op::Cast(dice.of(dtypes)), smallvec![a]),
            6 => Inst::Point(Op::Compare(dice.of(Compare::ALL)), smallvec![a, like(dice, dtype)]),
            7 => match (0..count).rev().find(|&v| values[v].dtype == DType::Bool) {
                Some(c) => Inst::Point(Op::Select, smallvec![c, a, like(dice, dtype)]),
                None => continue,
            },
            8 => Inst::Point(Op::UnaryVjp(dice.of(Unary::ALL)), smallvec![a, like(dice, dtype)]),
            9 | 10 => Inst::Point(Op::Unary(dice.of(Unary::ALL)), smallvec![a]),
            11 | 12 => {
                use Unary::*;
                let f = dice.of(&[Neg, Abs, Square, Sqrt, Recip, Relu, Floor, Round, Rsqrt, Exp]);
                Inst::Point(Op::Unary(f), smallvec![a])
            }
            13 => Inst::Point(Op::Binary(dice.of(Binary::ALL)), smallvec![a, like(dice, dtype)]),
            _ => {
                use Binary::*;
                let f = dice.of(&[Add, Sub, Mul, Div, Maximum, Minimum, And, Or, Xor]);
                Inst::Point(Op::Binary(f), smallvec![a, like(dice, dtype)])
            }
        };
        region.body.push(inst);
        if region.values().is_err() {
            region.body.pop();
        }
    }
    let count = region.body.len();
    region.outputs.push(count - 1);
    for _ in 0..dice.below(4) {
        region.outputs.push(dice.below(count));
    }
    let inputs = region.inputs.iter().map(|load| Dense::of(load.spec.clone(), || dice.number()));
    let inputs = inputs.collect();
    Made { region, inputs }
}

fn check(made: &Made, ways: &[CodegenMode], threads: &[usize], what: &str) {
    let Made { region, inputs } = made;
    let want: Vec<Vec<u64>> = one_by_one(region, inputs).iter().map(Dense::bits).collect();
    for &how in ways {
        let kernel = RegionKernel::with(region, how).expect("a kernel");
        for &threads in threads {
            let got = par::with_threads(threads, || run_kernel(&kernel, region, inputs, &[]));
            for (o, (got, want)) in got.iter().zip(&want).enumerate() {
                let got = got.bits();
                if let Some(i) = (0..want.len()).find(|&i| got[i] != want[i]) {
                    panic!(
                        "{what}, {how:?}, {threads} threads: output {o} differs at {i}: {:x} for {:x}\n{region}",
                        got[i], want[i]
                    );
                }
            }
        }
    }
}

const SHAPES: &[(&[usize], usize)] = &[
    (&[], 0),
    (&[1], 1),
    (&[7], 1),
    (&[3, 5], 1),
    (&[5, 3, 4], 2),
    (&[2, 3, 4, 5], 1),
    (&[40, 64], 1),
    (&[9, 300], 1),
    (&[4, 1030], 1),
    (&[2, 3, 700], 1),
    (&[2, 3, 700], 2),
    (&[1500], 1),
    (&[1, 1, 33], 3),
    (&[6, 17, 1], 1),
    (&[0], 1),
    (&[3, 0], 1),
    (&[0, 4], 1),
    (&[2, 300, 3], 0),
    (&[3, 50, 7], 1),
    (&[4, 90, 20], 1),
];

#[test]
fn random_regions_are_their_ops() {
    for seed in 0..600 {
        let (shape, inner) = SHAPES[seed as usize % SHAPES.len()];
        let made = made(seed, shape, inner, seed % 2 == 0);
        check(&made, &ways(), &[1], &format!("seed {seed}"));
    }
}

#[test]
fn large_random_regions_are_their_ops_for_any_number_of_threads() {
    let shapes: &[(&[usize], usize)] =
        &[(&[100_003], 0), (&[100_003], 1), (&[300, 700], 1), (&[20_000, 9], 1), (&[3, 70_001], 1)];
    for seed in 0..20 {
        let (shape, inner) = shapes[seed as usize % shapes.len()];
        let made = made(1000 + seed, shape, inner, seed % 2 == 0);
        check(&made, &ways(), &[1, 2, 8], &format!("seed {seed}"));
    }
}

/// Operands that are columns of one matrix have shorter tiles, and are prefetched together.
#[test]
fn columns_of_a_matrix() {
    let mut dice = Dice::new(11);
    for (rows, width, dtype) in [(70_003, 11, DType::F64), (300, 40, DType::F32)] {
        let spec = Spec::cpu(dtype, [rows, width].as_slice());
        let shape = Shape::from_slice(&[rows]);
        let column = |offset: usize| Load {
            spec: spec.clone(),
            layout: Layout {
                shape: shape.clone(),
                strides: Few::from_slice(&[width as isize]),
                offset,
            },
        };
        let mut body = vec![Inst::Load(0)];
        for k in 1..width {
            body.push(Inst::Load(k));
            let op = if k % 3 == 0 { Binary::Mul } else { Binary::Sub };
            body.push(Inst::Point(Op::Binary(op), smallvec![2 * k - 2, 2 * k - 1]));
        }
        body.push(Inst::Point(Op::Unary(Unary::Exp), smallvec![body.len() - 1]));
        let outputs = vec![body.len() - 1, body.len() - 2];
        let inputs = (0..width).rev().map(column).collect();
        let (device, columns) = (Device::Cpu, Vec::new());
        let region =
            Region { device, shape: shape.clone(), inner: 0, inputs, body, outputs, columns };
        let matrix = Dense::of(spec.clone(), || dice.number());
        let made = Made { region, inputs: vec![matrix; width] };
        check(&made, &ways(), &[1, 3], "columns of a matrix");
    }
}

#[test]
fn a_result_may_lie_where_an_operand_does() {
    let mut tried = 0;
    for seed in 0..400 {
        let (shape, inner) = SHAPES[seed as usize % SHAPES.len()];
        let Made { region, inputs } = made(5000 + seed, shape, inner, seed % 3 > 0);
        // Each operand to the first result that has its size, each result once.
        let values = region.values().expect("a region that fits");
        let mut over: Vec<(usize, usize)> = Vec::new();
        for (o, &v) in region.outputs.iter().enumerate() {
            let fits = |&k: &usize| {
                let load = &region.inputs[k];
                load.layout.is_dense()
                    && load.layout.offset == 0
                    && load.spec.len() == region.shape.iter().product::<usize>()
                    && !values[v].row
                    && load.spec.dtype.size() == values[v].dtype.size()
                    && !over.iter().any(|p| p.1 == k)
            };
            if let Some(k) = (0..inputs.len()).find(fits) {
                over.push((o, k));
            }
        }
        if over.is_empty() {
            continue;
        }
        tried += 1;
        let want: Vec<Vec<u64>> = one_by_one(&region, &inputs).iter().map(Dense::bits).collect();
        for how in ways() {
            let kernel = RegionKernel::with(&region, how).expect("a kernel");
            let got = run_kernel(&kernel, &region, &inputs, &over);
            let got: Vec<Vec<u64>> = got.iter().map(Dense::bits).collect();
            assert!(got == want, "seed {seed}, {how:?}, {over:?}\n{region}");
        }
    }
    assert!(tried > 50, "only {tried} regions had such a result");
}

/// Shorthand for the bodies of written-out regions.
pub(super) fn point(op: Op, of: &[usize]) -> Inst {
    Inst::Point(op, SmallVec::from_slice(of))
}
