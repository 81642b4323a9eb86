//! Programs against their equations run one by one.

#[path = "../../../ir/tests/random_programs/mod.rs"]
mod random_programs;

mod executable;
mod flow;
mod packed;
mod plain;

use super::*;
use crate::run::{ReadOperand, WriteTarget, run_op, run_op_into};
use executable::Executable;
use pullback_ir::pass::plan::{Plan, Product};
use pullback_ir::{DType, Layout, Line, Op, Program, Scalar, Spec, Var, Vars, Write};
use random_programs::{Dice, random_program};
use std::rc::Rc;

/// A value that was computed eagerly.
#[derive(Clone)]
struct Eager {
    buffer: Rc<Buffer>,
    layout: Layout,
    spec: Spec,
}

impl Eager {
    fn input(&self) -> Input<'_> {
        Input { buffer: &self.buffer, layout: &self.layout, spec: &self.spec }
    }
}

/// The bytes of a value, dense.
fn bytes(x: Input) -> Vec<u8> {
    let copy = run_op(&Op::Copy, &[x]).expect("a copy").remove(0);
    // SAFETY: a copy has written every byte.
    unsafe { copy.buffer.bytes() }.to_vec()
}

/// The same values, copied.
fn dense(x: &Eager) -> Eager {
    let copy = run_op(&Op::Copy, &[x.input()]).expect("a copy").remove(0);
    let layout = Layout::dense(copy.spec.shape.clone());
    Eager { buffer: Rc::new(copy.buffer), layout, spec: copy.spec }
}

/// Runs the equations one by one; `see` gets every result.
fn eagerly(
    program: &Program,
    plan: &Plan,
    inputs: &[Eager],
    see: &mut dyn FnMut(usize, usize, &Eager),
) -> Result<Vec<Eager>> {
    let mut values: Vec<Option<Eager>> = vec![None; program.specs.len()];
    for (&v, x) in program.inputs.iter().zip(inputs) {
        values[v.index()] = Some(x.clone());
    }
    for (e, equation) in program.equations.iter().enumerate() {
        let of = |v: &Var| values[v.index()].clone().expect("defined");
        let x: Vec<Eager> = equation.inputs.iter().map(of).collect();
        let made: Vec<Eager> = if let Op::View(view) = &equation.op
            && let Some(layout) = x[0].layout.view(view)
        {
            let spec = program.spec(equation.outputs[0]).clone();
            vec![Eager { buffer: x[0].buffer.clone(), layout, spec }]
        } else if let Some(Product::Added(k)) = plan.products[e] {
            // Sums in another order than a product and an addition.
            let mut sum = run_op(&Op::Copy, &[x[k].input()])?.remove(0);
            let layout = Layout::dense(sum.spec.shape.clone());
            let target =
                WriteTarget { buffer: &mut sum.buffer, layout: &layout, spec: &sum.spec.clone() };
            let factors = [0, 1].map(|i| ReadOperand::Input(x[i].input()));
            assert!(run_op_into(&Op::Dot, Write::Add, &mut [target], &factors)?);
            vec![Eager { buffer: Rc::new(sum.buffer), layout, spec: sum.spec }]
        } else {
            // Regions get dense operands, which need no plan.
            let x: Vec<Eager> = match equation.op {
                Op::Region(_) | Op::DotRegion(_) => x.iter().map(dense).collect(),
                _ => x,
            };
            let inputs: Vec<Input> = x.iter().map(Eager::input).collect();
            let eager = |o: Output| {
                let shape = o.spec.shape.clone();
                let layout = if o.splat { Layout::splat(shape) } else { Layout::dense(shape) };
                Eager { buffer: Rc::new(o.buffer), layout, spec: o.spec }
            };
            match equation.op {
                Op::Flow(_) => {
                    Executable::once(&equation.op, &inputs)?.into_iter().map(eager).collect()
                }
                _ => run_op(&equation.op, &inputs)?.into_iter().map(eager).collect(),
            }
        };
        for (j, (value, &v)) in made.into_iter().zip(&equation.outputs).enumerate() {
            see(e, j, &value);
            values[v.index()] = Some(value);
        }
    }
    Ok(program.outputs.iter().map(|v| values[v.index()].clone().expect("defined")).collect())
}

/// Some values of a spec.
fn sample(spec: &Spec, dice: &mut Dice) -> Eager {
    let mut number = || dice.roll(4001) as f64 / 1000.0 - 2.0;
    let n = spec.len();
    let buffer = match spec.dtype {
        DType::F32 => Buffer::from_slice(&(0..n).map(|_| number() as f32).collect::<Vec<_>>()),
        DType::F64 => Buffer::from_slice(&(0..n).map(|_| number()).collect::<Vec<_>>()),
        DType::BF16 => {
            Buffer::from_slice(&(0..n).map(|_| half::bf16::from_f64(number())).collect::<Vec<_>>())
        }
        DType::F16 => {
            Buffer::from_slice(&(0..n).map(|_| half::f16::from_f64(number())).collect::<Vec<_>>())
        }
        DType::I64 => Buffer::from_slice(&(0..n).map(|_| number() as i64).collect::<Vec<_>>()),
        DType::I32 => Buffer::from_slice(&(0..n).map(|_| number() as i32).collect::<Vec<_>>()),
        DType::U8 => Buffer::from_slice(&(0..n).map(|_| number() as u8).collect::<Vec<_>>()),
        DType::Bool => Buffer::from_slice(&(0..n).map(|_| number() > 0.0).collect::<Vec<_>>()),
    };
    let buffer = Rc::new(buffer.expect("memory"));
    Eager { buffer, layout: Layout::dense(spec.shape.clone()), spec: spec.clone() }
}

fn samples(program: &Program, dice: &mut Dice) -> Vec<Eager> {
    program.inputs.iter().map(|&v| sample(program.spec(v), dice)).collect()
}

/// Runs an executable on copies of these values: its outputs in order, with those that replaced
/// inputs among them.
fn compiled(executable: &mut Executable, inputs: &[Eager]) -> Result<Vec<Vec<u8>>> {
    let program = executable.program().clone();
    let mut copies: Vec<Buffer> = inputs
        .iter()
        .map(|x| run_op(&Op::Copy, &[x.input()]).expect("a copy").remove(0).buffer)
        .collect();
    let written = |i: usize| program.updates.iter().any(|u| u.1 == i);
    let mut bound: Vec<Bound> = copies
        .iter_mut()
        .enumerate()
        .map(|(i, b)| if written(i) { Bound::Write(b, 0) } else { Bound::Read(b, 0) })
        .collect();
    let fresh = executable.run(&mut bound)?;
    // SAFETY: outputs are full, and so are inputs.
    let read = |b: &Buffer| unsafe { b.bytes() }.to_vec();
    let mut fresh = fresh.iter();
    let mut out = Vec::new();
    for k in 0..program.outputs.len() {
        let mut replaced = program.updates.iter().filter(|u| u.0 == k).map(|u| u.1);
        match replaced.next() {
            None => out.push(read(fresh.next().expect("an output"))),
            Some(i) => {
                out.push(read(&copies[i]));
                replaced.for_each(|j| assert_eq!(read(&copies[i]), read(&copies[j])));
            }
        }
    }
    for (i, x) in inputs.iter().enumerate() {
        assert!(written(i) || read(&copies[i]) == bytes(x.input()), "input {i} was changed");
    }
    Ok(out)
}

/// Compiled twice over and eagerly: the same bits.
fn agree(program: &Program, seed: u64) -> Executable {
    let mut executable = Executable::new(program).expect("a program");
    let mut dice = Dice(seed);
    for _ in 0..2 {
        let inputs = samples(program, &mut dice);
        let plan = executable.plan().clone();
        let want = eagerly(program, &plan, &inputs, &mut |_, _, _| {}).expect("runs");
        let want: Vec<Vec<u8>> = want.iter().map(|x| bytes(x.input())).collect();
        let got = compiled(&mut executable, &inputs).expect("runs");
        assert!(got == want, "{program}\n{plan}");
    }
    executable
}

fn f32s(shape: &[usize]) -> Spec {
    Spec::cpu(DType::F32, shape)
}

fn push(program: &mut Program, op: Op, inputs: &[Var]) -> Vars {
    program.push(op, inputs, None).expect("operands that fit")
}

fn number(program: &mut Program, value: impl Into<Scalar>, spec: &Spec) -> Var {
    let op = Op::literal(value.into(), spec.clone());
    push(program, op, &[])[0]
}
