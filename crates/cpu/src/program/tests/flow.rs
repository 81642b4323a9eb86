//! Conditionals and loops against the same unrolled.

use super::*;
use crate::par;
use pullback_ir::{Binary, Compare, Flow, Reduction, Scan, Span, Unary, View};
use smallvec::smallvec;
use std::sync::Arc;
use std::time::Instant;

fn add(p: &mut Program, a: Var, b: Var) -> Var {
    push(p, Op::Binary(Binary::Add), &[a, b])[0]
}

fn mul(p: &mut Program, a: Var, b: Var) -> Var {
    push(p, Op::Binary(Binary::Mul), &[a, b])[0]
}

pub(super) fn tanh(p: &mut Program, x: Var) -> Var {
    push(p, Op::Unary(Unary::Tanh), &[x])[0]
}

/// Appends the equations of one program to another.
fn inline(into: &mut Program, body: &Program, inputs: &[Var]) -> Vec<Var> {
    let mut to: Vec<Option<Var>> = vec![None; body.specs.len()];
    body.inputs.iter().zip(inputs).for_each(|(v, &w)| to[v.index()] = Some(w));
    let of = |to: &[Option<Var>], v: &Var| to[v.index()].expect("defined");
    for equation in &body.equations {
        let inputs: Vec<Var> = equation.inputs.iter().map(|v| of(&to, v)).collect();
        let made = push(into, equation.op.clone(), &inputs);
        equation.outputs.iter().zip(made).for_each(|(v, w)| to[v.index()] = Some(w));
    }
    body.outputs.iter().map(|v| of(&to, v)).collect()
}

/// Row `i` of a sequence.
fn row(p: &mut Program, x: Var, i: usize) -> Var {
    let shape = p.spec(x).shape.clone();
    let whole = shape[1..].iter().map(|&n| Span { start: 0, len: n, step: 1 });
    let spans = std::iter::once(Span { start: i, len: 1, step: 1 }).chain(whole).collect();
    let part = push(p, Op::View(View::Slice(spans)), &[x])[0];
    push(p, Op::View(View::Reshape(shape[1..].into())), &[part])[0]
}

/// The same program with each scan unrolled.
pub(super) fn unrolled(program: &Program) -> Program {
    let mut out = Program { updates: program.updates.clone(), ..Program::default() };
    let mut to: Vec<Option<Var>> = vec![None; program.specs.len()];
    for &v in &program.inputs {
        to[v.index()] = Some(out.input(program.spec(v).clone()));
    }
    for equation in &program.equations {
        let x: Vec<Var> = equation.inputs.iter().map(|v| to[v.index()].expect("defined")).collect();
        let made: Vec<Var> = match &equation.op {
            Op::Flow(flow) => match &**flow {
                Flow::Scan(scan) => written_out(&mut out, scan, &x),
                Flow::Cond { .. } | Flow::While { .. } => panic!("only scans are written out"),
            },
            op => push(&mut out, op.clone(), &x).to_vec(),
        };
        equation.outputs.iter().zip(made).for_each(|(v, w)| to[v.index()] = Some(w));
    }
    out.outputs = program.outputs.iter().map(|v| to[v.index()].expect("defined")).collect();
    out
}

fn written_out(out: &mut Program, scan: &Scan, x: &[Var]) -> Vec<Var> {
    let (fixed, sequences) = x.split_at(scan.shared + scan.carry);
    let (shared, carry) = fixed.split_at(scan.shared);
    let mut carry = carry.to_vec();
    let mut rows: Vec<Vec<Var>> = vec![Vec::new(); scan.body.outputs.len() - scan.carry];
    for turn in 0..scan.length {
        let i = if scan.reverse { scan.length - 1 - turn } else { turn };
        let mut inputs = shared.to_vec();
        inputs.extend(&carry);
        inputs.extend(sequences.iter().map(|&s| row(out, s, i)).collect::<Vec<_>>());
        let made = inline(out, &scan.body, &inputs);
        carry.copy_from_slice(&made[..scan.carry]);
        for (rows, &y) in rows.iter_mut().zip(&made[scan.carry..]) {
            let mut shape = out.spec(y).shape.clone();
            shape.insert(0, 1);
            rows.push(push(out, Op::View(View::Reshape(shape)), &[y])[0]);
        }
    }
    for mut rows in rows {
        if scan.reverse {
            rows.reverse();
        }
        carry.push(push(out, Op::Cat(0), &rows)[0]);
    }
    carry
}

/// The compiled program has the bits of the unrolled one, run eagerly, and of the op run alone.
pub(super) fn agree_unrolled(program: &Program, seed: u64) -> Executable {
    let executable = agree(program, seed);
    let flat = unrolled(program);
    flat.verify().expect("a program");
    let mut compiled_flat = Executable::new(&flat).expect("a program");
    let mut looped = Executable::new(program).expect("a program");
    let inputs = samples(program, &mut Dice(seed));
    let plan = compiled_flat.plan().clone();
    let want = eagerly(&flat, &plan, &inputs, &mut |_, _, _| {}).expect("runs");
    let want: Vec<Vec<u8>> = want.iter().map(|x| bytes(x.input())).collect();
    assert!(compiled(&mut looped, &inputs).expect("runs") == want, "{program}");
    assert!(compiled(&mut compiled_flat, &inputs).expect("runs") == want, "{program}");
    executable
}

/// A program of one scan.
pub(super) fn scanning(scan: Scan, inputs: &[Spec]) -> Program {
    let mut p = Program::default();
    let vars: Vec<Var> = inputs.iter().map(|s| p.input(s.clone())).collect();
    p.outputs = push(&mut p, Op::Flow(Arc::new(Flow::Scan(scan))), &vars).to_vec();
    p
}

fn recurrence(length: usize, reverse: bool) -> Scan {
    let mut body = Program::default();
    let [w, h, x] = [[5, 5], [3, 5], [3, 5]].map(|s| body.input(f32s(&s)));
    let y = push(&mut body, Op::Dot, &[h, w])[0];
    let y = add(&mut body, y, x);
    let y = tanh(&mut body, y);
    let total = push(&mut body, Op::Reduce(Reduction::Sum, [1].into()), &[y])[0];
    body.outputs = vec![y, y, total];
    Scan { body, length, reverse, shared: 1, carry: 1, kept: 0 }
}

#[test]
fn scans_are_their_turns() {
    let specs = [f32s(&[5, 5]), f32s(&[3, 5]), f32s(&[7, 3, 5])];
    for reverse in [false, true] {
        let executable = agree_unrolled(&scanning(recurrence(7, reverse), &specs), 1);
        assert_eq!(executable.kernels(), ["scan"]);
    }
    // One iteration; and none, after which the carry is unchanged.
    agree_unrolled(
        &scanning(recurrence(1, false), &[f32s(&[5, 5]), f32s(&[3, 5]), f32s(&[1, 3, 5])]),
        2,
    );
    let none = scanning(recurrence(0, false), &[f32s(&[5, 5]), f32s(&[3, 5]), f32s(&[0, 3, 5])]);
    let mut executable = Executable::new(&none).expect("a program");
    let inputs = samples(&none, &mut Dice(1));
    let got = compiled(&mut executable, &inputs).expect("runs");
    assert_eq!(got[0], bytes(inputs[1].input()));
    assert!(got[1].is_empty() && got[2].is_empty());
}

#[test]
fn carries_that_cross_and_that_stay() {
    // (a, b, c) ← (b, a + b·x, c) and y = a: a swap, a value read after its successor is computed,
    // one that never changes.
    let mut body = Program::default();
    let [a, b, c, x] = [(); 4].map(|()| body.input(f32s(&[4])));
    let bx = mul(&mut body, b, x);
    let sum = add(&mut body, a, bx);
    body.outputs = vec![b, sum, c, a];
    let scan = Scan { body, length: 6, reverse: false, shared: 0, carry: 3, kept: 0 };
    let v = f32s(&[4]);
    agree_unrolled(&scanning(scan, &[v.clone(), v.clone(), v.clone(), f32s(&[6, 4])]), 3);

    // (a, b) ← (b, a): only copies, and no equation at all.
    let mut body = Program::default();
    let [a, b] = [(); 2].map(|()| body.input(f32s(&[4])));
    body.outputs = vec![b, a];
    let scan = Scan { body, length: 3, reverse: false, shared: 0, carry: 2, kept: 0 };
    agree_unrolled(&scanning(scan, &[v.clone(), v]), 4);
}

#[test]
fn operands_of_a_scan_lie_as_they_like() {
    // A transposed matrix, a flipped and transposed sequence, a literal for a carry and one for a
    // sequence.
    let mut p = Program::default();
    let (w, x) = (p.input(f32s(&[5, 5])), p.input(f32s(&[3, 7, 5])));
    let w = push(&mut p, Op::View(View::Permute([1, 0].into())), &[w])[0];
    let x = push(&mut p, Op::View(View::Permute([1, 0, 2].into())), &[x])[0];
    let x = push(&mut p, Op::View(View::Flip([0, 2].into())), &[x])[0];
    let h = number(&mut p, 0.5, &f32s(&[3, 5]));
    let op = Op::Flow(Arc::new(Flow::Scan(recurrence(7, false))));
    let made = push(&mut p, op.clone(), &[w, h, x]);
    let still = number(&mut p, 0.25, &f32s(&[7, 3, 5]));
    let again = push(&mut p, op, &[w, made[0], still]);
    p.outputs = again.iter().copied().chain([made[1]]).collect();
    agree_unrolled(&p, 5);
}

#[test]
fn a_state_that_is_updated_by_a_scan_stays_where_it_is() {
    let specs = [f32s(&[5, 5]), f32s(&[3, 5]), f32s(&[7, 3, 5])];
    let mut p = scanning(recurrence(7, false), &specs);
    p.updates = vec![(0, 1)];
    let executable = agree_unrolled(&p, 6);
    assert_eq!(executable.plan().locations[p.outputs[0].index()].base, Base::Input(1));
    assert!(executable.plan().moves.is_empty());
}

#[test]
fn scans_inside_scans() {
    let inner = recurrence(2, true);
    let mut body = Program::default();
    let [w, h, x] = [f32s(&[5, 5]), f32s(&[3, 5]), f32s(&[2, 3, 5])].map(|s| body.input(s));
    let made = push(&mut body, Op::Flow(Arc::new(Flow::Scan(inner))), &[w, h, x]);
    let h = tanh(&mut body, made[0]);
    body.outputs = vec![h, made[1]];
    let scan = Scan { body, length: 4, reverse: false, shared: 1, carry: 1, kept: 0 };
    let p = scanning(scan, &[f32s(&[5, 5]), f32s(&[3, 5]), f32s(&[4, 2, 3, 5])]);
    agree(&p, 7);
    let flat = unrolled(&unrolled(&p));
    let inputs = samples(&p, &mut Dice(8));
    let mut both = [&p, &flat].map(|p| Executable::new(p).expect("a program"));
    let [a, b] = [0, 1].map(|i| compiled(&mut both[i], &inputs).expect("runs"));
    assert!(a == b);
}

/// `x` doubled while its sum is below a bound, and the number of iterations.
fn doubling() -> Flow {
    let state = |p: &mut Program| {
        let bound = p.input(f32s(&[]));
        (bound, p.input(f32s(&[4])), p.input(Spec::cpu(DType::I64, [].as_slice())))
    };
    let mut test = Program::default();
    let (bound, x, _) = state(&mut test);
    let sum = push(&mut test, Op::Reduce(Reduction::Sum, [0].into()), &[x])[0];
    test.outputs = push(&mut test, Op::Compare(Compare::Lt), &[sum, bound]).to_vec();
    let mut body = Program::default();
    let (_, x, count) = state(&mut body);
    let x = add(&mut body, x, x);
    let one = number(&mut body, 1, &Spec::cpu(DType::I64, [].as_slice()));
    body.outputs = vec![x, add(&mut body, count, one)];
    Flow::While { test, body, shared: 1 }
}

#[test]
fn loops_run_until_their_test_fails() {
    let mut p = Program::default();
    let (bound, x) = (p.input(f32s(&[])), p.input(f32s(&[4])));
    let zero = number(&mut p, 0, &Spec::cpu(DType::I64, [].as_slice()));
    let flipped = push(&mut p, Op::View(View::Flip([0].into())), &[x])[0];
    p.outputs = push(&mut p, Op::Flow(Arc::new(doubling())), &[bound, flipped, zero]).to_vec();
    let mut executable = Executable::new(&p).expect("a program");
    for (bound, turns) in [(100.0f32, 4), (0.0, 0), (10.5, 1), (1e30, 97)] {
        let bound = Buffer::from_slice(&[bound]).expect("memory");
        let x = Buffer::from_slice(&[1f32, 2.0, 3.0, 4.0]).expect("memory");
        let out = executable
            .run(&mut [BoundInput::Read(&bound, 0), BoundInput::Read(&x, 0)])
            .expect("runs");
        let by = 2f32.powi(turns);
        let want: Vec<f32> = [4.0, 3.0, 2.0, 1.0].map(|x: f32| x * by).to_vec();
        assert_eq!(out[0].to_vec::<f32>(DType::F32, 0, 4), Some(want));
        assert_eq!(out[1].to_vec::<i64>(DType::I64, 0, 1), Some(vec![turns.into()]));
    }
    agree(&p, 1);
}

#[test]
fn only_one_branch_runs() {
    // The branch for false would read an index out of range.
    let operands =
        |p: &mut Program| (p.input(f32s(&[3])), p.input(Spec::cpu(DType::I64, [2].as_slice())));
    let mut yes = Program::default();
    let (x, _) = operands(&mut yes);
    let head = View::Slice(smallvec![Span { start: 1, len: 2, step: 1 }]);
    let head = push(&mut yes, Op::View(head), &[x])[0];
    yes.outputs = vec![head, tanh(&mut yes, x)];
    let mut no = Program::default();
    let (x, index) = operands(&mut no);
    let at = Line::named("src/main.rs", 3, 4);
    let taken = no.push(Op::Gather(0), &[x, index], Some(at)).expect("operands that fit")[0];
    no.outputs = vec![taken, x];
    let mut p = Program::default();
    let test = p.input(Spec::cpu(DType::Bool, [].as_slice()));
    let (x, index) = operands(&mut p);
    let turned = push(&mut p, Op::View(View::Flip([0].into())), &[x])[0];
    let op = Op::Flow(Arc::new(Flow::Cond { yes, no }));
    p.outputs = push(&mut p, op, &[test, turned, index]).to_vec();

    let mut executable = Executable::new(&p).expect("a program");
    let x = Buffer::from_slice(&[1f32, 2.0, 3.0]).expect("memory");
    let mut run = |test: bool, index: [i64; 2]| {
        let test = Buffer::from_slice(&[test]).expect("memory");
        let index = Buffer::from_slice(&index).expect("memory");
        let inputs =
            &mut [BoundInput::Read(&test, 0), BoundInput::Read(&x, 0), BoundInput::Read(&index, 0)];
        executable.run(inputs).map(|out| {
            [(0, 2), (1, 3)].map(|(k, n)| out[k].to_vec::<f32>(DType::F32, 0, n).expect("floats"))
        })
    };
    let tanhs = [3f32, 2.0, 1.0].map(|x| {
        let x = Buffer::from_slice(&[x]).expect("memory");
        let (layout, spec) = (Layout::dense([1].into()), f32s(&[1]));
        let input = Input { buffer: &x, layout: &layout, spec: &spec };
        let y = run_op(&Op::Unary(Unary::Tanh), &[input]).expect("runs").remove(0);
        y.buffer.to_vec::<f32>(DType::F32, 0, 1).expect("a float")[0]
    });
    assert_eq!(run(true, [0, 9]).expect("runs"), [vec![2.0, 1.0], tanhs.to_vec()]);
    assert_eq!(run(false, [0, 2]).expect("runs"), [vec![3.0, 1.0], vec![3.0, 2.0, 1.0]]);
    let error = run(false, [0, 9]).expect_err("out of range").to_string();
    assert!(
        error.starts_with("gather: index 9") && error.ends_with("at src/main.rs:3:4"),
        "{error}"
    );
    agree(&p, 2);
}

#[test]
fn the_turn_that_fails_is_named() {
    let mut body = Program::default();
    let (x, c) = (body.input(f32s(&[3])), body.input(f32s(&[1])));
    let index = body.input(Spec::cpu(DType::I64, [1].as_slice()));
    let at = Line::named("src/main.rs", 8, 1);
    let y = body.push(Op::Gather(0), &[x, index], Some(at)).expect("operands that fit")[0];
    body.outputs = vec![add(&mut body, c, y)];
    let scan = Scan { body, length: 4, reverse: false, shared: 1, carry: 1, kept: 0 };
    let p = scanning(scan, &[f32s(&[3]), f32s(&[1]), Spec::cpu(DType::I64, [4, 1].as_slice())]);
    let mut executable = Executable::new(&p).expect("a program");
    let x = Buffer::from_slice(&[1f32; 3]).expect("memory");
    let index = Buffer::from_slice(&[0i64, 1, 7, 0]).expect("memory");
    let inputs =
        &mut [BoundInput::Read(&x, 0), BoundInput::Read(&x, 0), BoundInput::Read(&index, 0)];
    let error = executable.run(inputs).expect_err("out of range").to_string();
    assert!(
        error.contains("gather: index 7") && error.contains("in iteration 2 of the scan"),
        "{error}"
    );
}

#[test]
fn a_wrong_program_inside_is_refused() {
    let mut scan = recurrence(2, false);
    scan.body.specs[0] = f32s(&[5, 6]);
    let mut p = Program::default();
    let vars = [f32s(&[5, 6]), f32s(&[3, 5]), f32s(&[2, 3, 5])].map(|s| p.input(s));
    p.outputs = push(&mut p, Op::Flow(Arc::new(Flow::Scan(scan))), &vars).to_vec();
    assert!(Executable::new(&p).is_err());
}

#[test]
fn threads_do_not_change_a_scan() {
    let mut body = Program::default();
    let [w, h, x] = [[160, 160], [200, 160], [200, 160]].map(|s| body.input(f32s(&s)));
    let y = push(&mut body, Op::Dot, &[h, w])[0];
    let y = add(&mut body, y, x);
    let y = tanh(&mut body, y);
    body.outputs = vec![y, y];
    let scan = Scan { body, length: 3, reverse: false, shared: 1, carry: 1, kept: 0 };
    let p = scanning(scan, &[f32s(&[160, 160]), f32s(&[200, 160]), f32s(&[3, 200, 160])]);
    let mut executable = Executable::new(&p).expect("a program");
    let inputs = samples(&p, &mut Dice(1));
    let runs = [1, 2, 3]
        .map(|n| par::with_threads(n, || compiled(&mut executable, &inputs).expect("runs")));
    assert!(runs[0] == runs[1] && runs[1] == runs[2]);
}

/// `cargo test --profile bench --workspace --test kernels iteration_latency -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn iteration_latency() {
    let mut body = Program::default();
    let [a, x] = [(); 2].map(|()| body.input(f32s(&[])));
    let mut v = a;
    for _ in 0..4 {
        v = add(&mut body, v, x);
    }
    body.outputs = vec![v];
    for (body, steps) in
        [(Program { equations: vec![], outputs: vec![a], ..body.clone() }, 0), (body, 4)]
    {
        let length = 100_000;
        let scan = Scan { body, length, reverse: false, shared: 0, carry: 1, kept: 0 };
        let p = scanning(scan, &[f32s(&[]), f32s(&[length])]);
        let mut executable = Executable::new(&p).expect("a program");
        let (a, x) = (sample(&f32s(&[]), &mut Dice(0)), sample(&f32s(&[length]), &mut Dice(1)));
        let best = (0..20)
            .map(|_| {
                let start = Instant::now();
                executable
                    .run(&mut [BoundInput::Read(&a.buffer, 0), BoundInput::Read(&x.buffer, 0)])
                    .expect("runs");
                start.elapsed()
            })
            .min();
        println!(
            "{steps} steps per iteration: {:?} per iteration",
            best.map(|t| t / length as u32)
        );
    }
}
