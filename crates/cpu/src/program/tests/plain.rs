//! Programs without control flow.

use super::*;
use crate::par;
use pullback_ir::{
    Adam, Attention, Axes, Binary, Combine, Compare, Conv, Cumulation, Device, Extreme, Fft, Fused,
    Linalg, Padding, Random, Real, Reduction, Role, Span, Unary, View, Window,
};
use smallvec::smallvec;
use std::slice::from_ref;

#[test]
fn random_programs_give_the_bits_of_their_equations() {
    for seed in 0..1500 {
        let program = random_program(seed, 1 + seed as usize % 40);
        agree(&program, seed);
    }
}

#[test]
fn every_result_is_seen_when_it_is_made() {
    for seed in 0..300 {
        let program = random_program(seed, 25);
        let mut executable = Executable::new(&program).expect("a program");
        let inputs = samples(&program, &mut Dice(seed));
        let mut want = Vec::new();
        let plan = executable.plan().clone();
        eagerly(&program, &plan, &inputs, &mut |e, j, x| want.push((e, j, bytes(x.input()))))
            .expect("runs");
        let mut copies: Vec<Buffer> = inputs
            .iter()
            .map(|x| run_op(&Op::Copy, &[x.input()]).expect("a copy").remove(0).buffer)
            .collect();
        let written = |i: usize| program.updates.iter().any(|u| u.1 == i);
        let mut bound: Vec<BoundInput> = copies
            .iter_mut()
            .enumerate()
            .map(|(i, b)| if written(i) { BoundInput::Write(b, 0) } else { BoundInput::Read(b, 0) })
            .collect();
        let mut got = Vec::new();
        executable
            .run_observed(&mut bound, &mut |e, j, x| {
                got.extend(x.map(|x| {
                    let layout = Layout::dense(x.spec.shape.clone());
                    let x = Input { buffer: &x.buffer, layout: &layout, spec: &x.spec };
                    (e, j, bytes(x))
                }));
            })
            .expect("runs");
        // Views of constants are not computed.
        want.retain(|(e, j, _)| {
            let v = program.equations[*e].outputs[*j];
            plan.locations[v.index()].base != Base::Constants
        });
        for (got, want) in got.iter().zip(&want) {
            assert!(got == want, "{got:?} {want:?} {:?}\n{program}", plan.locations);
        }
        assert_eq!(got.len(), want.len());
    }
}

/// A program of one op, or of several of a family, over inputs with these specs; every result is an
/// output.
fn family(specs: &[Spec], ops: &[(Op, &[usize])]) -> Program {
    let mut program = Program::default();
    let mut vars: Vec<Var> = specs.iter().map(|s| program.input(s.clone())).collect();
    for (op, operands) in ops {
        let operands: Vec<Var> = operands.iter().map(|&i| vars[i]).collect();
        let made = push(&mut program, op.clone(), &operands);
        program.outputs.extend(&made);
        vars.extend(made);
    }
    program
}

#[test]
fn every_family_of_ops() {
    let reduce = |axes: &[usize]| Op::Reduce(Reduction::Sum, Axes::from_slice(axes));
    let window = Window { size: 3, stride: 1, dilation: 1, before: 1, after: 1 };
    let conv = Conv { role: Role::Forward, windows: vec![window; 2], groups: 1, last: false };
    let attention = Attention { causal: true, masked: false, scale: Real(0.5), dropout: Real(0.0) };
    let adam = Adam {
        beta1: Real(0.9),
        beta2: Real(0.99),
        eps: Real(1e-8),
        decay: Real(0.01),
        decoupled: true,
        amsgrad: true,
        maximize: false,
    };
    let (m, i64s) = (f32s(&[4, 4]), |shape: &[usize]| Spec::cpu(DType::I64, shape));
    let random = |kind| Op::Random { kind, shape: [5].into(), dtype: DType::F32 };
    let programs = [
        family(
            from_ref(&m),
            &[(Op::Iota { len: 7, dtype: DType::I32, device: Device::Cpu }, &[]), (Op::Copy, &[1])],
        ),
        family(&[i64s(&[2])], &[(random(Random::Normal), &[0]), (random(Random::Uniform), &[0])]),
        family(
            from_ref(&m),
            &[(Op::UnaryVjp(Unary::Tanh), &[0, 0]), (Op::Cast(DType::BF16), &[1])],
        ),
        family(
            &[m.clone(), m.clone()],
            &[
                (Op::Compare(Compare::Lt), &[0, 1]),
                (Op::Select, &[2, 0, 1]),
                (Op::Binary(Binary::Pow), &[3, 0]),
            ],
        ),
        family(
            from_ref(&m),
            &[
                (Op::Pad(smallvec![Padding { before: 1, after: 2, between: 1 }; 2]), &[0]),
                (Op::Cat(0), &[0, 0, 0]),
            ],
        ),
        family(
            &[m.clone(), m.clone()],
            &[
                (Op::Compare(Compare::Lt), &[0, 1]),
                (Op::Cast(DType::I64), &[2]),
                (Op::Gather(1), &[0, 3]),
                (Op::Scatter(0, Combine::Mul), &[0, 3, 1]),
            ],
        ),
        family(
            from_ref(&m),
            &[
                (reduce(&[0]), &[0]),
                (reduce(&[0, 1]), &[0]),
                (Op::ArgReduce(Extreme::Max, 1), &[0]),
                (Op::Cumulate { kind: Cumulation::LogSumExp, axis: 0, reverse: true }, &[0]),
                (Op::Sort { axis: 1, descending: true }, &[0]),
                (Op::Ranks { axis: 0, descending: true, from: 1, count: 2 }, &[0]),
            ],
        ),
        family(&[f32s(&[3, 4, 5]), f32s(&[3, 5, 2])], &[(Op::Dot, &[0, 1])]),
        family(&[f32s(&[2, 3, 6, 6]), f32s(&[4, 3, 3, 3])], &[(Op::Conv(Box::new(conv)), &[0, 1])]),
        family(
            from_ref(&m),
            &[
                (Op::Linalg(Linalg::Lu), &[0]),
                (Op::Linalg(Linalg::Qr { complete: false }), &[0]),
                (Op::Linalg(Linalg::Svd { full: true }), &[0]),
                (Op::Linalg(Linalg::Eigh), &[0]),
            ],
        ),
        family(from_ref(&m), &[(Op::Fft(Fft::Real(1)), &[0])]),
        family(
            &[m.clone(), f32s(&[4]), f32s(&[4])],
            &[
                (Op::Fused(Fused::Softmax(1)), &[0]),
                (Op::Fused(Fused::LogSoftmaxVjp(0)), &[0, 3]),
                (Op::Fused(Fused::LogSumExp(1)), &[0]),
                (Op::Fused(Fused::LayerNorm(Real(1e-5))), &[0, 1, 2]),
                (Op::Fused(Fused::LayerNormVjp(Real(1e-5))), &[0, 1, 3]),
                (Op::Fused(Fused::BatchNorm(Real(1e-5))), &[0, 1, 2]),
            ],
        ),
        family(
            &[(); 3].map(|()| f32s(&[2, 2, 5, 4])),
            &[(Op::Fused(Fused::Attention(attention)), &[0, 1, 2])],
        ),
        family(
            &[m.clone(), i64s(&[4])],
            &[
                (Op::Binary(Binary::Mul), &[1, 1]),
                (Op::Unary(Unary::Sign), &[2]),
                (Op::Fused(Fused::CrossEntropy), &[0, 3]),
            ],
        ),
        family(
            &[m.clone(), m.clone(), m.clone(), m.clone(), m, i64s(&[]), f32s(&[])],
            &[(Op::Fused(Fused::Adam(adam)), &[0, 1, 2, 3, 4, 5, 6])],
        ),
    ];
    for (seed, program) in programs.iter().enumerate() {
        agree(program, seed as u64);
    }
}

#[test]
fn an_optimiser_step_happens_in_place() {
    let adam = Adam {
        beta1: Real(0.9),
        beta2: Real(0.99),
        eps: Real(1e-8),
        decay: Real(0.0),
        decoupled: false,
        amsgrad: false,
        maximize: false,
    };
    let mut program = Program::default();
    let [p, m, v] = [(); 3].map(|()| program.input(f32s(&[1000])));
    let count = program.input(Spec::cpu(DType::I64, [].as_slice()));
    let one = number(&mut program, 1, &Spec::cpu(DType::I64, [].as_slice()));
    let next = push(&mut program, Op::Binary(Binary::Add), &[count, one])[0];
    let g = push(&mut program, Op::Unary(Unary::Square), &[p])[0];
    let rate = number(&mut program, 1, &f32s(&[]));
    let new = push(&mut program, Op::Fused(Fused::Adam(adam)), &[p, m, v, g, next, rate]);
    program.outputs = new.iter().copied().chain([next]).collect();
    program.updates = (0..4).map(|i| (i, i)).collect();
    let executable = agree(&program, 3);
    let plan = executable.plan();
    assert!(plan.moves.is_empty(), "{plan}");
    assert_eq!(plan.arena, 4032);
    assert_eq!(executable.kernels(), ["add", "square", "adam"]);
}

#[test]
fn a_part_is_written_where_the_base_is() {
    let mut program = Program::default();
    let (base, part) = (program.input(f32s(&[100, 8])), program.input(f32s(&[8])));
    let row = Span { start: 3, len: 1, step: 1 };
    let whole = Span { start: 0, len: 8, step: 1 };
    let views = vec![View::Slice(smallvec![row, whole]), View::Reshape([8].into())];
    program.outputs = push(&mut program, Op::Put(views), &[base, part]).to_vec();
    program.updates = vec![(0, 0)];
    let executable = agree(&program, 5);
    assert_eq!((executable.plan().arena, executable.plan().moves.len()), (0, 0));
}

#[test]
fn one_thread_or_two() {
    for seed in 0..40 {
        let program = random_program(seed, 30);
        let mut executable = Executable::new(&program).expect("a program");
        let inputs = samples(&program, &mut Dice(seed));
        let runs = [1, 2]
            .map(|n| par::with_threads(n, || compiled(&mut executable, &inputs).expect("runs")));
        assert!(runs[0] == runs[1], "{program}");
    }
    // Large enough to be split.
    let mut program = Program::default();
    let (a, b) = (program.input(f32s(&[300, 300])), program.input(f32s(&[300, 300])));
    let c = push(&mut program, Op::Dot, &[a, b])[0];
    let d = push(&mut program, Op::Unary(Unary::Gelu), &[c])[0];
    let e = push(&mut program, Op::Binary(Binary::Add), &[d, a])[0];
    program.outputs = push(&mut program, Op::Reduce(Reduction::Sum, [0].into()), &[e]).to_vec();
    let mut executable = agree(&program, 9);
    let inputs = samples(&program, &mut Dice(1));
    let runs = [1, 2, 3]
        .map(|n| par::with_threads(n, || compiled(&mut executable, &inputs).expect("runs")));
    assert!(runs[0] == runs[1] && runs[1] == runs[2]);
}

#[test]
fn inputs_are_checked() {
    let mut program = Program::default();
    let (p, g) = (program.input(f32s(&[3])), program.input(f32s(&[3])));
    program.outputs = push(&mut program, Op::Binary(Binary::Sub), &[p, g]).to_vec();
    program.updates = vec![(0, 0)];
    let mut executable = Executable::new(&program).expect("a program");
    let mut a = Buffer::from_slice(&[1f32, 2.0, 3.0, 4.0]).expect("memory");
    let b = Buffer::from_slice(&[1f32, 1.0, 1.0]).expect("memory");
    let c = Buffer::from_slice(&[1f32, 1.0, 1.0]).expect("memory");
    let mut wrong = |inputs: &mut [BoundInput]| {
        executable.run(inputs).expect_err("wrong inputs").message().to_owned()
    };
    assert_eq!(wrong(&mut [BoundInput::Write(&mut a, 0)]), "takes 2 inputs, not 1");
    assert_eq!(
        wrong(&mut [BoundInput::Read(&c, 0), BoundInput::Read(&b, 0)]),
        "input 0 is replaced, and must be bound so"
    );
    for start in [2, 4, 8, usize::MAX & !3] {
        let text = format!("input 1 does not fit: 12 bytes, read from {start} on");
        assert_eq!(wrong(&mut [BoundInput::Write(&mut a, 4), BoundInput::Read(&b, start)]), text);
    }
    assert_eq!(a.to_vec::<f32>(DType::F32, 0, 4), Some(vec![1.0, 2.0, 3.0, 4.0]));
    executable.run(&mut [BoundInput::Write(&mut a, 4), BoundInput::Read(&b, 0)]).expect("runs");
    assert_eq!(a.to_vec::<f32>(DType::F32, 0, 4), Some(vec![1.0, 1.0, 2.0, 3.0]));
}

#[test]
fn an_error_names_the_line_and_changes_nothing() {
    let mut program = Program::default();
    let (p, x, index) = (
        program.input(f32s(&[3])),
        program.input(f32s(&[3])),
        program.input(Spec::cpu(DType::I64, [2].as_slice())),
    );
    let at = Line::named("src/main.rs", 12, 9);
    let new = push(&mut program, Op::Binary(Binary::Add), &[p, x])[0];
    let taken = program.push(Op::Gather(0), &[x, index], Some(at)).expect("operands that fit")[0];
    program.outputs = vec![new, taken];
    program.updates = vec![(0, 0)];
    let mut executable = Executable::new(&program).expect("a program");
    let mut p = Buffer::from_slice(&[1f32; 3]).expect("memory");
    let x = Buffer::from_slice(&[1f32; 3]).expect("memory");
    let index = Buffer::from_slice(&[0i64, 5]).expect("memory");
    let error = executable
        .run(&mut [
            BoundInput::Write(&mut p, 0),
            BoundInput::Read(&x, 0),
            BoundInput::Read(&index, 0),
        ])
        .expect_err("an index out of range");
    assert_eq!(
        error.to_string(),
        "gather: index 5 (element 1 of the indices) is out of range for an axis of length 3\
         \n  on f32[3], i64[2]\
         \n  at src/main.rs:12:9"
    );
    assert_eq!(p.to_vec::<f32>(DType::F32, 0, 3), Some(vec![1.0; 3]));
    let index = Buffer::from_slice(&[0i64, 2]).expect("memory");
    executable
        .run(&mut [
            BoundInput::Write(&mut p, 0),
            BoundInput::Read(&x, 0),
            BoundInput::Read(&index, 0),
        ])
        .expect("runs");
    assert_eq!(p.to_vec::<f32>(DType::F32, 0, 3), Some(vec![2.0; 3]));
}

#[test]
fn steps_are_named() {
    let mut program = Program::default();
    let x = program.input(f32s(&[4, 4]));
    let turned = push(&mut program, Op::View(View::Permute([1, 0].into())), &[x])[0];
    let flat = push(&mut program, Op::View(View::Reshape([16].into())), &[turned])[0];
    program.outputs = push(&mut program, Op::Unary(Unary::Exp), &[flat]).to_vec();
    let executable = agree(&program, 0);
    assert_eq!(executable.kernels(), ["copy", "exp"]);
    let steps =
        Prepared::new(Planned::new(&program, crate::target::TARGET).expect("a program").into())
            .expect("memory");
    let steps: Vec<_> = steps.steps().into_iter().map(|s| (s.equation, s.operands)).collect();
    let both = |spec: Spec| [vec![spec.clone()], vec![spec]];
    assert_eq!(steps, [(1, both(f32s(&[4, 4]))), (2, both(f32s(&[16])))]);
}
