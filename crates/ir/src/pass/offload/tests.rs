//! Where copies start and end, on programs that are known.

use super::*;
use crate::pass::{Epilogue, budget};
use crate::{Binary, DType, Op, Reduction, Spec, Transfer, Unary, Var, View};

const SIDE: usize = 64;
/// Bytes of a value.
const ONE: usize = SIDE * SIDE * 4;

/// A device on which a product of such matrices takes 53 µs, in nanoseconds, and a copy so long.
fn link(copy: u64) -> HostLink {
    let rate = ONE as u64 * 1000 / copy;
    HostLink { out: rate, back: rate, memory: 100_000, narrow: 10_000, wide: 10_000 }
}

fn target(copy: u64) -> Target {
    Target { host: Some(link(copy)), ..Target::default() }
}

/// Products one after the other, and then of all results, from the last to the first.
fn there_and_back(values: usize) -> Program {
    let mut program = Program::default();
    let spec = Spec::cpu(DType::F32, [SIDE, SIDE]);
    let [mut x, w] = [0, 1].map(|_| program.input(spec.clone()));
    let mut way = Vec::new();
    for _ in 0..values {
        x = program.push(Op::Dot, &[x, w], None).unwrap()[0];
        way.push(x);
    }
    for &there in way.iter().rev() {
        x = program.push(Op::Dot, &[x, there], None).unwrap()[0];
    }
    let sum = Op::Reduce(Reduction::Sum, [0, 1].into());
    program.outputs = program.push(sum, &[x], None).unwrap().to_vec();
    program
}

/// The names of the equations, in order.
fn names(program: &Program) -> Vec<&'static str> {
    program.equations.iter().map(|e| e.op.name()).collect()
}

fn count(program: &Program, step: Transfer) -> usize {
    program.equations.iter().filter(|e| e.op == Op::Transfer(step)).count()
}

#[test]
fn equations_take_the_time_of_their_bytes_or_their_operations() {
    let program = there_and_back(1);
    let [product, .., sum] = &program.equations[..] else { panic!("three equations") };
    let operations = (2 * SIDE * SIDE * SIDE + 3 * SIDE * SIDE) as u64;
    assert_eq!(nanoseconds(&program, product, &link(1)), operations * 1000 / 10_000);
    let fast = HostLink { wide: u64::MAX, ..link(1) };
    assert_eq!(nanoseconds(&program, sum, &fast), (ONE as u64 + 4) * 1000 / 100_000);
    // Two copies of 7 µs each way: the second waits for the first, and the end for both.
    let text = "program (a: f32[64,64]) {
      let x: f32[64,64] = copy a
      let s: f32[64,64] = offload x
      let y: f32[64,64] = copy a
      let t: f32[64,64] = offload y
      let h: f32[64,64] = offloaded s x
      let i: f32[64,64] = offloaded t y
      return a
    }";
    let program: Program = text.parse().unwrap();
    let copy = 2 * ONE as u64 * 1000 / 100_000;
    let rate = ONE as u64 * 1000 / 7000;
    let slow = HostLink { out: rate, ..fast };
    let way = ONE as u64 * 1000 / rate;
    assert_eq!(duration(&program, &slow), (copy + 2 * way, 2 * way - copy));
}

#[test]
fn what_is_needed_last_leaves_first_and_nobody_waits() {
    let program = there_and_back(8);
    let target = target(20_000);
    let whole = plan(&program, target);
    let moved = offloaded(&program, whole.peak() - 2 * ONE, target);
    assert!(moved.plan.peak() <= whole.peak() - 2 * ONE);
    assert!((2..5).contains(&moved.values.len()), "{}", moved.program);
    assert_eq!(moved.waits, 0, "{}", moved.program);
    // The first value leaves when the second, which reads it, has been made.
    assert_eq!(names(&moved.program)[..4], ["dot", "dot", "offload", "dot"]);
    for step in Transfer::ALL {
        assert_eq!(count(&moved.program, step), moved.values.len());
    }
    let value = &moved.values[0];
    assert_eq!((value.bytes, value.op), (ONE, "dot"));
    assert!(value.again > 2 * value.copies[0] && value.idle > 10 * value.copies[0], "{value}");
    // It comes back one product before it is read, not earlier.
    let back: Vec<usize> = (0..moved.program.equations.len())
        .filter(
            |&i| matches!(moved.program.equations[i].op, Op::Transfer(step) if !step.is_on_host()),
        )
        .collect();
    assert!(back.windows(2).all(|pair| pair[1] - pair[0] <= 3), "{}", moved.program);
}

#[test]
fn none_overtakes_another_on_its_way_back() {
    let program = there_and_back(12);
    for copy in [5_000, 40_000, 200_000] {
        for share in 3..7 {
            let bytes = plan(&program, target(copy)).peak() * share / 8;
            let moved = offloaded(&program, bytes, target(copy)).program;
            let of = |step: Transfer| {
                let equations = moved.equations.iter().filter(move |e| e.op == Op::Transfer(step));
                equations.map(|e| e.inputs[0]).collect::<Vec<_>>()
            };
            let returned =
                moved.equations.iter().filter(|e| e.op == Op::Transfer(Transfer::Restore));
            let started: Vec<Var> = returned.map(|e| e.outputs[0]).collect();
            assert_eq!(started, of(Transfer::Restored), "{copy} {share}\n{moved}");
        }
    }
}

#[test]
fn a_slow_way_is_waited_for() {
    let program = there_and_back(8);
    let bytes = plan(&program, target(1)).peak() / 2;
    let [fast, slow] = [1_000, 1_000_000].map(|copy| offloaded(&program, bytes, target(copy)));
    assert!(fast.plan.peak() <= bytes && slow.plan.peak() <= bytes);
    assert_eq!(fast.waits, 0, "{}", fast.program);
    assert!(slow.waits > 1_000_000 && slow.time > fast.time + slow.waits / 2, "{slow:?}");
    // Neither is done where there is no way.
    let none = offloaded(&program, bytes, Target::default());
    assert_eq!((none.program, none.values.len()), (program, 0));
}

#[test]
fn views_of_a_value_are_views_of_what_comes_back() {
    let mut program = there_and_back(6);
    // A view that was made early, of the first value, and is read at the end.
    let first = program.equations[0].outputs[0];
    let turned = program.push(Op::View(View::Permute([1, 0].into())), &[first], None).unwrap()[0];
    let view = program.equations.pop().unwrap();
    program.equations.insert(1, view);
    let sum = program.equations.pop().unwrap();
    let last = program.push(Op::Binary(Binary::Add), &[sum.inputs[0], turned], None).unwrap()[0];
    program.outputs = program.push(sum.op, &[last], None).unwrap().to_vec();
    let moved = offload(&program, 0, target(1000));
    moved.verify().unwrap();
    // It is seen again, right before it is read.
    let names = names(&moved);
    let seen: Vec<usize> = (0..names.len()).filter(|&i| names[i] == "permute").collect();
    assert_eq!(seen.len(), 1, "{moved}");
    assert_eq!(names[seen[0] + 1], "add", "{moved}");
}

/// Blocks `x + gelu(x·a)`, the sum of squares, and backward, whose products take eight times as
/// long as functions of an element.
fn blocks(count: usize) -> Program {
    let mut p = Program::default();
    let spec = Spec::cpu(DType::F32, [SIDE, SIDE]);
    let [mut x, w] = [0, 1].map(|_| p.input(spec.clone()));
    let mut push = |op: Op, of: &[Var]| p.push(op, of, None).unwrap()[0];
    let mut saved = Vec::new();
    for _ in 0..count {
        let h = push(Op::Dot, &[x, w]);
        let g = push(Op::Unary(Unary::Gelu), &[h]);
        saved.push((h, g));
        x = push(Op::Dot, &[g, w]);
    }
    let mut d = x;
    for &(h, g) in saved.iter().rev() {
        d = push(Op::Dot, &[d, g]);
        d = push(Op::UnaryVjp(Unary::Gelu), &[h, d]);
    }
    p.outputs = vec![d];
    p
}

#[test]
fn cheap_values_are_computed_again_and_the_others_are_copied() {
    let program = blocks(16);
    // Without regions and epilogues, equations are what they were.
    let regions = crate::pass::Limits { instructions: 1, ..crate::pass::Limits::default() };
    let on = |copy: Option<u64>| Target {
        host: copy.map(link),
        regions,
        epilogue: Epilogue::Nothing,
        ..Target::default()
    };
    let alone = |bytes: usize| budget(&program, bytes, on(None)).unwrap();
    let whole = alone(usize::MAX).report.peak_without;
    let bytes = whole * 3 / 8;
    let recomputed = alone(bytes).report;
    // A few copies hide: what is cheap is made again, and products leave.
    let mixed = budget(&program, bytes, on(Some(120_000))).unwrap();
    assert!(mixed.report.peak <= bytes && mixed.report.waits == 0, "{:?}", mixed.report);
    assert!(mixed.report.again > 0 && mixed.report.again < recomputed.again / 4, "{recomputed:?}");
    assert!(mixed.offloaded.len() > 3, "{:?}", mixed.offloaded);
    assert!(mixed.offloaded.iter().all(|value| value.op == "dot"), "{:?}", mixed.offloaded);
    // A way that costs nothing: nothing is made again. One that costs too much: nothing leaves.
    let free = budget(&program, bytes, on(Some(100))).unwrap().report;
    assert!(free.again == 0 && free.offloaded > 0 && free.waits == 0, "{free:?}");
    let slow = budget(&program, bytes, on(Some(100_000_000))).unwrap().report;
    assert_eq!((slow.offloaded, slow.host), (0, 0), "{slow:?}");
}
