//! A call of a compiled program allocates nothing: all memory is allocated at compile time, and
//! outputs are reused from the pool.
//!
//! One test in a separate process, since it counts the allocations of the whole process.

use pullback_cpu::buffer::{Arena, reset_peak, stats};
use pullback_cpu::{BoundInput, Buffer, Prepared, TARGET, par};
use pullback_ir::pass::plan::Planned;
use pullback_ir::{
    Adam, Binary, DType, Device, Flow, Fused, Inst, Layout, Load, Op, Program, Real, Reduction,
    Region, Scan, Spec, Unary, Var, View,
};
use smallvec::smallvec;
use std::alloc::{GlobalAlloc, Layout as Size, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

struct Counting;

static ASKED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator, with a counter.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, size: Size) -> *mut u8 {
        ASKED.fetch_add(1, Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, size: Size) {
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(ptr, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn f32s(shape: &[usize]) -> Spec {
    Spec::cpu(DType::F32, shape)
}

fn push(p: &mut Program, op: Op, inputs: &[Var]) -> Var {
    p.push(op, inputs, None).expect("operands that fit")[0]
}

/// `softmax(tanh(x·w + b))` by hand, as a step that also moves `w`: products, views, regions,
/// reductions, an update.
fn layer() -> Program {
    let mut p = Program::default();
    let (x, w, b) = (p.input(f32s(&[64, 96])), p.input(f32s(&[96, 80])), p.input(f32s(&[80])));
    let [m, v] = [(); 2].map(|()| p.input(f32s(&[96, 80])));
    let count = p.input(Spec::cpu(DType::I64, [].as_slice()));
    let y = push(&mut p, Op::Dot, &[x, w]);
    let b = push(&mut p, Op::View(View::Broadcast([64, 80].into())), &[b]);
    let y = push(&mut p, Op::Binary(Binary::Add), &[y, b]);
    let y = push(&mut p, Op::Unary(Unary::Tanh), &[y]);
    let region = Region {
        device: Device::Cpu,
        shape: [64, 80].into(),
        inner: 1,
        inputs: vec![Load { spec: f32s(&[64, 80]), layout: Layout::dense([64, 80].into()) }],
        body: vec![
            Inst::Load(0),
            Inst::Reduce(Reduction::Max, 0),
            Inst::Point(Op::Binary(Binary::Sub), smallvec![0, 1]),
            Inst::Point(Op::Unary(Unary::Exp), smallvec![2]),
            Inst::Reduce(Reduction::Sum, 3),
            Inst::Point(Op::Binary(Binary::Div), smallvec![3, 4]),
        ],
        outputs: vec![5],
        columns: Vec::new(),
    };
    let y = push(&mut p, Op::Region(Arc::new(region)), &[y]);
    let across = push(&mut p, Op::View(View::Permute([1, 0].into())), &[x]);
    let g = push(&mut p, Op::Dot, &[across, y]);
    let sum = push(&mut p, Op::Reduce(Reduction::Sum, [0, 1].into()), &[y]);
    let columns = push(&mut p, Op::Reduce(Reduction::Max, [0].into()), &[y]);
    let adam = Adam {
        beta1: Real(0.9),
        beta2: Real(0.99),
        eps: Real(1e-8),
        decay: Real(0.0),
        decoupled: false,
        amsgrad: false,
        maximize: false,
    };
    let one = Op::literal(1.into(), Spec::cpu(DType::I64, []));
    let one = push(&mut p, one, &[]);
    let next = push(&mut p, Op::Binary(Binary::Add), &[count, one]);
    let rate = Op::literal(0.1.into(), Spec::cpu(DType::F32, []));
    let rate = push(&mut p, rate, &[]);
    let inputs = [w, m, v, g, next, rate];
    let new = p.push(Op::Fused(Fused::Adam(adam)), &inputs, None).expect("operands that fit");
    p.outputs = vec![sum, new[0], new[1], new[2], next, columns, y];
    p.updates = vec![(1, 1), (2, 3), (3, 4), (4, 5)];
    p
}

/// A recurrence: `h ← tanh(h·w + x)`, with every `h` returned.
fn recurrence() -> Program {
    let mut body = Program::default();
    let (w, h, x) =
        (body.input(f32s(&[16, 16])), body.input(f32s(&[4, 16])), body.input(f32s(&[4, 16])));
    let y = push(&mut body, Op::Dot, &[h, w]);
    let y = push(&mut body, Op::Binary(Binary::Add), &[y, x]);
    let y = push(&mut body, Op::Unary(Unary::Tanh), &[y]);
    body.outputs = vec![y, y];
    let scan = Scan { body, length: 20, reverse: false, shared: 1, carry: 1, kept: 0 };
    let mut p = Program::default();
    let inputs = [p.input(f32s(&[16, 16])), p.input(f32s(&[4, 16])), p.input(f32s(&[20, 4, 16]))];
    let op = Op::Flow(Arc::new(Flow::Scan(scan)));
    p.outputs = p.push(op, &inputs, None).expect("operands that fit").to_vec();
    p
}

#[test]
fn calls_allocate_nothing() {
    for (program, threads) in [(layer(), 1), (layer(), 2), (recurrence(), 1)] {
        par::with_threads(threads, || steady(&program));
    }
}

fn steady(program: &Program) {
    let made = |spec: &Spec| match spec.dtype {
        DType::F32 => {
            let values: Vec<f32> = (0..spec.len()).map(|i| (i % 17) as f32 / 17.0).collect();
            Buffer::from_slice(&values).expect("memory")
        }
        _ => Buffer::from_slice(&vec![0i64; spec.len()]).expect("memory"),
    };
    let mut buffers: Vec<Buffer> = program.inputs.iter().map(|&v| made(program.spec(v))).collect();
    let written = |i: usize| program.updates.iter().any(|u| u.1 == i);
    let mut inputs: Vec<BoundInput> = buffers
        .iter_mut()
        .enumerate()
        .map(|(i, b)| if written(i) { BoundInput::Write(b, 0) } else { BoundInput::Read(b, 0) })
        .collect();

    let before = stats().live_bytes;
    let planned = Arc::new(Planned::new(program, TARGET).expect("a program"));
    let mut prepared = Prepared::new(planned.clone()).expect("a program");
    let plan = planned.plan();
    let mut run = |inputs: &mut [BoundInput], outputs: &mut Vec<Buffer>| {
        let mut arena = Arena::take(plan.arena)?;
        prepared.bind(&mut arena, inputs, outputs)?.run()
    };
    let (constants, outputs_planned) = (plan.all_constants(), plan.outputs);
    assert_eq!(stats().live_bytes - before, constants as u64, "the arena is taken by calls");
    let mut outputs = Vec::with_capacity(8);
    // Often enough that every thread has run and has its scratch: on a busy machine some come late.
    for _ in 0..100 {
        let asked = ASKED.load(Relaxed);
        for _ in 0..100 {
            outputs.clear();
            run(&mut inputs, &mut outputs).expect("runs");
        }
        if ASKED.load(Relaxed) == asked {
            break;
        }
    }
    let held: usize = outputs.iter().map(Buffer::len).sum();
    assert_eq!(held, outputs_planned);

    let (asked, pool) = (ASKED.load(Relaxed), stats());
    reset_peak();
    for _ in 0..10 {
        outputs.clear();
        run(&mut inputs, &mut outputs).expect("runs");
    }
    let (asked, now) = (ASKED.load(Relaxed) - asked, stats());
    assert_eq!(asked, 0, "allocations in ten calls of\n{program}");
    assert_eq!(now.allocations - pool.allocations, now.reused - pool.reused, "pool misses");
    // Packed panels and partial reductions are scratch of their kernels, and not in the plan. These
    // are too small to need any.
    let planned = plan.peak() as u64;
    // Between calls the arena is free for other programs; during a call memory is what was planned.
    let between = (constants + outputs_planned) as u64;
    assert_eq!((now.live_bytes - before, now.peak_bytes - before), (between, planned));
}
