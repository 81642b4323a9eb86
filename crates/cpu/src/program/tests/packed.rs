//! Loops that multiply with a shared matrix, which they pack once: against the same unrolled, where
//! every product packs separately.

use super::flow::{agree_unrolled, scanning, tanh, unrolled};
use super::*;
use crate::dot::panels;
use crate::par;
use pullback_ir::pass::{epilogue, fuse};
use pullback_ir::{Binary, Compare, Flow, Reduction, Scan, View};
use std::sync::Arc;

fn transposed(p: &mut Program, x: Var) -> Var {
    push(p, Op::View(View::Permute([1, 0].into())), &[x])[0]
}

/// h ← tanh(h·w + x), or with wᵀ, and the states.
fn recurrence(spec: &dyn Fn(&[usize]) -> Spec, [rows, width]: [usize; 2], turned: bool) -> Scan {
    let mut body = Program::default();
    let [w, h, x] = [[width, width], [rows, width], [rows, width]].map(|s| body.input(spec(&s)));
    let w = if turned { transposed(&mut body, w) } else { w };
    let y = push(&mut body, Op::Dot, &[h, w])[0];
    let y = push(&mut body, Op::Binary(Binary::Add), &[y, x])[0];
    let y = tanh(&mut body, y);
    body.outputs = vec![y, y];
    Scan { body, length: 4, reverse: false, shared: 1, carry: 1, kept: 0 }
}

/// Whether a product of this size packs its right operand.
fn packs(spec: &Spec, [rows, width]: [usize; 2], turned: bool) -> bool {
    let (shape, n) = ([rows, width], width as isize);
    let weights = sample(&Spec::cpu(spec.dtype, [width, width].as_slice()), &mut Dice(1));
    let ptr = weights.buffer.as_ptr();
    let dtype = spec.dtype;
    let a = crate::operand::Source { ptr, shape: &shape, strides: &[n, 1], dtype };
    let strides = if turned { [1, n] } else { [n, 1] };
    let b = crate::operand::Source { ptr, shape: &[width, width], strides: &strides, dtype };
    panels(a, b, &shape, dtype).is_some()
}

/// Sizes whose products pack, and one whose does not.
const CASES: [([usize; 2], bool, bool); 5] = [
    ([14, 260], false, true),
    ([14, 260], true, true),
    ([5, 130], true, true),
    ([33, 515], true, true),
    ([5, 130], false, false),
];

#[test]
fn a_shared_matrix_is_packed_once() {
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        let spec = |shape: &[usize]| Spec::cpu(dtype, shape);
        for (size, turned, packed) in CASES {
            // Pairs of bf16 are always packed.
            let packed = packed || dtype == DType::BF16 && crate::dot::multiplies_pairs();
            assert_eq!(packs(&spec(&size), size, turned), packed, "{dtype} {size:?} {turned}");
            let [rows, width] = size;
            let specs = [spec(&[width, width]), spec(&size), spec(&[4, rows, width])];
            for reverse in [false, true] {
                let scan = Scan { reverse, ..recurrence(&spec, size, turned) };
                agree_unrolled(&scanning(scan, &specs), 1);
            }
            // Under update of the state, and with the product and what follows as one kernel.
            let mut p = scanning(recurrence(&spec, size, turned), &specs);
            p.updates = vec![(0, 1)];
            agree_unrolled(&p, 2);
            let joined = epilogue(&fuse(&p));
            let Op::Flow(flow) = &joined.equations[0].op else { panic!("a scan") };
            let ops = flow.programs()[0].equations.iter();
            assert!(ops.into_iter().any(|e| matches!(e.op, Op::DotRegion(_))), "{joined}");
            agree_unrolled(&joined, 3);
        }
    }
}

#[test]
fn matrices_packed_inside_scans_inside_scans() {
    for (size @ [rows, width], turned, _) in CASES {
        let inner = recurrence(&f32s, size, turned);
        let mut body = Program::default();
        let specs = [f32s(&[width, width]), f32s(&size), f32s(&[4, rows, width])];
        let [w, h, x] = specs.map(|s| body.input(s));
        let made = push(&mut body, Op::Flow(Arc::new(Flow::Scan(inner))), &[w, h, x]);
        // The same matrix again, transposed, and one that changes between iterations.
        let other = transposed(&mut body, w);
        let y = push(&mut body, Op::Dot, &[made[0], other])[0];
        let changing = push(&mut body, Op::Dot, &[w, w])[0];
        let y = push(&mut body, Op::Dot, &[y, changing])[0];
        let h = tanh(&mut body, y);
        body.outputs = vec![h, made[1]];
        let scan = Scan { body, length: 3, reverse: true, shared: 1, carry: 1, kept: 0 };
        let p = scanning(scan, &[f32s(&[width, width]), f32s(&size), f32s(&[3, 4, rows, width])]);
        agree(&p, 7);
        let flat = unrolled(&unrolled(&p));
        let inputs = samples(&p, &mut Dice(8));
        let mut both = [&p, &flat].map(|p| Executable::new(p).expect("a program"));
        let [a, b] = [0, 1].map(|i| compiled(&mut both[i], &inputs).expect("runs"));
        assert!(a == b);
    }
}

/// The state of a scan is not shared: it changes in every iteration.
#[test]
fn a_matrix_that_is_carried_is_not_packed() {
    let mut body = Program::default();
    let [w, x] = [[260, 260], [14, 260]].map(|s| body.input(f32s(&s)));
    let y = push(&mut body, Op::Dot, &[x, w])[0];
    let next = tanh(&mut body, w);
    body.outputs = vec![next, y];
    let scan = Scan { body, length: 3, reverse: false, shared: 0, carry: 1, kept: 0 };
    agree_unrolled(&scanning(scan, &[f32s(&[260, 260]), f32s(&[3, 14, 260])]), 4);
}

#[test]
fn loops_pack_too_and_other_weights_are_packed_anew() {
    // Until a sum is large enough: x ← x·wᵀ.
    let state = |p: &mut Program| {
        let w = p.input(f32s(&[130, 130]));
        (w, p.input(f32s(&[5, 130])), p.input(f32s(&[])))
    };
    let mut test = Program::default();
    let (_, _, count) = state(&mut test);
    let zero = number(&mut test, 0.5, &f32s(&[]));
    test.outputs = push(&mut test, Op::Compare(Compare::Gt), &[count, zero]).to_vec();
    let mut body = Program::default();
    let (w, x, count) = state(&mut body);
    let turned = transposed(&mut body, w);
    let y = push(&mut body, Op::Dot, &[x, turned])[0];
    let y = tanh(&mut body, y);
    let one = number(&mut body, 1.0, &f32s(&[]));
    let fewer = push(&mut body, Op::Binary(Binary::Sub), &[count, one])[0];
    body.outputs = vec![y, fewer];
    let mut p = Program::default();
    let (w, x) = (p.input(f32s(&[130, 130])), p.input(f32s(&[5, 130])));
    let turns = number(&mut p, 3.0, &f32s(&[]));
    let flow = Op::Flow(Arc::new(Flow::While { test, body, shared: 1 }));
    p.outputs = push(&mut p, flow, &[w, x, turns])[..1].to_vec();

    let mut flat = Program::default();
    let (w, mut x) = (flat.input(f32s(&[130, 130])), flat.input(f32s(&[5, 130])));
    for _ in 0..3 {
        let turned = transposed(&mut flat, w);
        x = push(&mut flat, Op::Dot, &[x, turned])[0];
        x = tanh(&mut flat, x);
    }
    flat.outputs = vec![x];
    let mut both = [&p, &flat].map(|p| Executable::new(p).expect("a program"));
    for seed in 0..3 {
        let inputs = samples(&p, &mut Dice(seed));
        let [a, b] = [0, 1].map(|i| compiled(&mut both[i], &inputs).expect("runs"));
        assert!(a == b, "{seed}");
    }
}

#[test]
fn a_turn_that_fails_leaves_nothing_packed() {
    let mut body = Program::default();
    let (w, table) = (body.input(f32s(&[130, 130])), body.input(f32s(&[3])));
    let h = body.input(f32s(&[5, 130]));
    let index = body.input(Spec::cpu(DType::I64, [1].as_slice()));
    let turned = transposed(&mut body, w);
    let y = push(&mut body, Op::Dot, &[h, turned])[0];
    let found = push(&mut body, Op::Gather(0), &[table, index])[0];
    let found = push(&mut body, Op::Reduce(Reduction::Sum, [0].into()), &[found])[0];
    let found = push(&mut body, Op::View(View::Broadcast([5, 130].into())), &[found])[0];
    let y = push(&mut body, Op::Binary(Binary::Add), &[y, found])[0];
    body.outputs = vec![tanh(&mut body, y)];
    let scan = Scan { body, length: 2, reverse: false, shared: 2, carry: 1, kept: 0 };
    let index = Spec::cpu(DType::I64, [2, 1].as_slice());
    let p = scanning(scan, &[f32s(&[130, 130]), f32s(&[3]), f32s(&[5, 130]), index]);
    let mut used = Executable::new(&p).expect("a program");
    for (seed, at) in [(1, 2), (2, 9), (3, 0)] {
        let mut inputs = samples(&p, &mut Dice(seed));
        inputs[3].buffer = Rc::new(Buffer::from_slice(&[0i64, at]).expect("memory"));
        let fresh = compiled(&mut Executable::new(&p).expect("a program"), &inputs);
        let again = compiled(&mut used, &inputs);
        assert_eq!(again.is_err(), at == 9);
        assert!(again.ok() == fresh.ok());
    }
}

#[test]
fn threads_do_not_change_packed_products() {
    let size = [40, 160];
    let specs = [f32s(&[160, 160]), f32s(&size), f32s(&[4, 40, 160])];
    let p = epilogue(&fuse(&scanning(recurrence(&f32s, size, true), &specs)));
    let mut executable = Executable::new(&p).expect("a program");
    let inputs = samples(&p, &mut Dice(1));
    let mut run = |n| par::with_threads(n, || compiled(&mut executable, &inputs).expect("runs"));
    let alone = run(1);
    assert!([2, 3, 8].into_iter().all(|n| run(n) == alone));
}
