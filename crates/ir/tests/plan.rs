//! Plans replayed element by element: no op reads what another has overwritten.

mod random_programs;

use pullback_ir::pass::plan::*;
use pullback_ir::pass::{HostLink, Target, offload};
use pullback_ir::*;
use random_programs::{random_program, sum_of};
use std::collections::HashMap;
use std::sync::Arc;

const ALIGN: usize = 64;

/// The content of an element: the variable that it belongs to, and its index.
type Tag = (u32, usize);

/// Memory as bytes tagged with what they belong to.
#[derive(Default)]
struct Memory(HashMap<(Base, usize), (Tag, usize)>);

impl Memory {
    fn write(&mut self, base: Base, at: usize, size: usize, tag: Tag) {
        for b in 0..size {
            self.0.insert((base, at + b), (tag, b));
        }
    }

    fn holds(&self, base: Base, at: usize, size: usize, tag: Tag) -> bool {
        (0..size).all(|b| self.0.get(&(base, at + b)) == Some(&(tag, b)))
    }
}

/// The positions of the elements of a layout, in row-major order of its indices.
fn positions(layout: &Layout) -> Vec<usize> {
    let mut all = Vec::new();
    for i in 0..layout.len() {
        let (mut rest, mut at) = (i, layout.offset as isize);
        for (&n, &s) in layout.shape.iter().zip(&layout.strides).rev() {
            at += (rest % n) as isize * s;
            rest /= n;
        }
        all.push(at as usize);
    }
    all
}

struct Replay<'a> {
    program: &'a Program,
    plan: &'a Plan,
    memory: Memory,
    /// The tags of each variable's elements.
    values: Vec<Vec<Tag>>,
}

impl Replay<'_> {
    fn places(&self, v: Var) -> (Base, usize, Vec<usize>) {
        let (home, size) = (&self.plan.locations[v.index()], self.program.spec(v).dtype.size());
        let at = positions(&home.layout).into_iter().map(|p| home.start + p * size).collect();
        (home.base, size, at)
    }

    fn check(&self, v: Var, why: &str) {
        let (base, size, at) = self.places(v);
        for (&at, &tag) in at.iter().zip(&self.values[v.index()]) {
            assert!(
                self.memory.holds(base, at, size, tag),
                "{why}: {v} at {base:?}+{at}\n{}",
                self.program
            );
        }
    }

    fn inside(&self, base: Base, end: usize) -> bool {
        match base {
            Base::Arena => end <= self.plan.arena,
            Base::Constants => end <= self.plan.constants,
            Base::Host => end <= self.plan.host,
            Base::Input(i) => end <= self.program.spec(self.program.inputs[i]).bytes(),
            Base::Output(k) => end <= self.program.spec(self.program.outputs[k]).bytes(),
        }
    }

    fn fill(&mut self, v: Var) {
        let (base, size, at) = self.places(v);
        for (at, tag) in at.into_iter().zip(self.values[v.index()].clone()) {
            assert!(self.inside(base, at + size), "{v} outside {base:?}");
            self.memory.write(base, at, size, tag);
        }
    }

    fn equation(&mut self, e: usize) {
        let equation = &self.program.equations[e];
        if let Op::View(view) = &equation.op {
            let (x, y) = (equation.inputs[0], equation.outputs[0]);
            // A view of the values, whatever becomes of the memory.
            let dense = Layout::dense(self.program.spec(x).shape.clone());
            let seen = positions(&dense.view(view).expect("dense elements have every view"));
            self.values[y.index()] = seen.iter().map(|&p| self.values[x.index()][p]).collect();
            let home = &self.plan.locations[x.index()];
            if let Some(layout) = home.layout.view(view) {
                let there = &self.plan.locations[y.index()];
                assert_eq!((there.base, there.start), (home.base, home.start), "a view moved");
                assert_eq!(there.layout, layout);
                return;
            }
        } else if equation.op == Op::After {
            let (x, y) = (equation.inputs[0], equation.outputs[0]);
            self.values[y.index()] = self.values[x.index()].clone();
            assert_eq!(
                self.plan.locations[y.index()],
                self.plan.locations[x.index()],
                "it costs nothing"
            );
            equation.inputs.iter().for_each(|&v| self.check(v, "waited for"));
            return;
        } else if let Op::Transfer(step) = equation.op {
            // A copy may be made at any time between its two steps.
            let (x, y) = (equation.inputs[0], equation.outputs[0]);
            self.values[y.index()] = self.values[x.index()].clone();
            equation.inputs.iter().for_each(|&v| self.check(v, step.name()));
            let [from, to] = [x, y].map(|v| &self.plan.locations[v.index()]);
            match step.starts() {
                true => self.fill(y),
                false => assert_eq!(to, from, "it costs nothing"),
            }
            assert_eq!(to.base == Base::Host, step.is_on_host());
            return;
        } else {
            for &v in &equation.outputs {
                let count = self.program.spec(v).len();
                self.values[v.index()] = match equation.op {
                    Op::Literal { .. } => vec![(v.0, 0); count],
                    _ => (0..count).map(|i| (v.0, i)).collect(),
                };
            }
        }
        equation.inputs.iter().for_each(|&v| self.check(v, equation.op.name()));
        self.check_overlaps(e);
        for scratch in &self.plan.scratch[e] {
            for at in scratch.start..scratch.start + scratch.bytes {
                self.memory.write(Base::Arena, at, 1, (u32::MAX, 0));
            }
        }
        equation.inputs.iter().for_each(|&v| self.check(v, "after scratch"));
        for &v in &equation.outputs {
            self.fill(v);
        }
        equation.outputs.iter().for_each(|&v| self.check(v, "just made"));
    }

    /// Where a result overwrites an operand, the op must allow it, index by index.
    fn check_overlaps(&self, e: usize) {
        let equation = &self.program.equations[e];
        for (j, &y) in equation.outputs.iter().enumerate() {
            let (base, size, to) = self.places(y);
            let mut shared = 0;
            for (k, &x) in equation.inputs.iter().enumerate() {
                let (other, width, from) = self.places(x);
                let meets = |&a: &usize| from.iter().any(|&b| a < b + width && b < a + size);
                if base != other || !to.iter().any(meets) {
                    continue;
                }
                shared += 1;
                let shapes: Vec<&Shape> =
                    equation.inputs.iter().map(|&x| &self.program.spec(x).shape).collect();
                let kept = piece(&equation.op, k, &shapes, &self.program.spec(y).shape);
                if let Some(at) = kept
                    && to.get(at..at + from.len()) == Some(&from[..])
                {
                    // It is at its position, and no other operand overlaps it.
                    assert_eq!((shared, width), (1, size));
                    continue;
                }
                if from == self.part_of_cat(equation, k, &to) {
                    continue;
                }
                assert!((width, &from) == (size, &to), "{} over a part", equation.op.name());
                match &equation.op {
                    op if op.is_pointwise() => {}
                    Op::Put(_) | Op::Scatter(..) => assert!(k == 0 && shared == 1),
                    Op::Fused(Fused::Sgd(_) | Fused::Adam(_)) => {}
                    Op::Fused(Fused::CrossEntropyVjp) => assert!(k == 0 && shared == 1),
                    Op::Region(region) => {
                        assert_eq!(shared, 1);
                        assert_eq!(
                            positions(&region.inputs[k].layout),
                            (0..to.len()).collect::<Vec<_>>()
                        );
                    }
                    Op::DotRegion(_) => {
                        assert_eq!(self.plan.products[e], Some(ProductLocation::Added(k)));
                        assert!(k == 2 && shared == 1);
                    }
                    Op::Flow(_) => assert_eq!(shared, 1),
                    op => panic!("{} wrote result {j} over operand {k}", op.name()),
                }
            }
            if let Some(ProductLocation::Added(k)) = self.plan.products[e] {
                assert_eq!(self.places(equation.inputs[k]), self.places(y));
            }
        }
    }

    /// Of the elements of a result those that are operand `k`, if it joins its operands.
    fn part_of_cat(&self, equation: &Equation, k: usize, to: &[usize]) -> Vec<usize> {
        let Op::Cat(axis) = equation.op else { return Vec::new() };
        let shape = &self.program.spec(equation.outputs[0]).shape;
        let length = |x: &Var| self.program.spec(*x).shape[axis];
        let before: usize = equation.inputs[..k].iter().map(length).sum();
        let part = before..before + length(&equation.inputs[k]);
        let behind: usize = shape[axis + 1..].iter().product();
        let along = |i: usize| i / behind % shape[axis];
        (0..to.len()).filter(|&i| part.contains(&along(i))).map(|i| to[i]).collect()
    }

    fn run(mut self) {
        for &v in &self.program.inputs {
            self.values[v.index()] = (0..self.program.spec(v).len()).map(|i| (v.0, i)).collect();
            self.fill(v);
        }
        for e in 0..self.program.equations.len() {
            self.equation(e);
        }
        let dense = |base, from: &Replay, v: Var| {
            let size = from.program.spec(v).dtype.size();
            (0..from.program.spec(v).len()).map(move |i| (base, i * size, size)).collect::<Vec<_>>()
        };
        let mut waiting = Vec::new();
        for m in &self.plan.moves {
            match (m.to, m.via) {
                (Base::Input(_), Some(start)) => {
                    self.check(m.var, "move");
                    let tags = self.values[m.var.index()].clone();
                    let bytes = tags.len() * self.program.spec(m.var).dtype.size();
                    assert!(start + bytes <= self.plan.arena);
                    waiting.push((m, start, tags));
                }
                _ => {
                    assert_eq!(m.via, None);
                    self.check(m.var, "move");
                    let tags = self.values[m.var.index()].clone();
                    if let Base::Output(_) = m.to {
                        assert!(waiting.is_empty());
                        for ((base, at, size), tag) in
                            dense(m.to, &self, m.var).into_iter().zip(tags)
                        {
                            self.memory.write(base, at, size, tag);
                        }
                    }
                }
            }
        }
        for (m, start, tags) in &waiting {
            let size = self.program.spec(m.var).dtype.size();
            for (i, &tag) in tags.iter().enumerate() {
                self.memory.write(Base::Arena, start + i * size, size, tag);
            }
        }
        // Inputs last; what waits must still be there, and so must what does not.
        for m in self.plan.moves.iter().filter(|m| matches!(m.to, Base::Input(_))) {
            let tags = self.values[m.var.index()].clone();
            match m.via {
                Some(start) => {
                    let size = self.program.spec(m.var).dtype.size();
                    for (i, &tag) in tags.iter().enumerate() {
                        assert!(self.memory.holds(Base::Arena, start + i * size, size, tag));
                    }
                }
                None => self.check(m.var, "move into an input"),
            }
            for ((base, at, size), tag) in dense(m.to, &self, m.var).into_iter().zip(tags) {
                self.memory.write(base, at, size, tag);
            }
        }
        let updates = &self.program.updates;
        for (k, &v) in self.program.outputs.iter().enumerate() {
            let replaced: Vec<Base> =
                updates.iter().filter(|u| u.0 == k).map(|u| Base::Input(u.1)).collect();
            let to = if replaced.is_empty() { vec![Base::Output(k)] } else { replaced };
            for base in to {
                for ((base, at, size), &tag) in
                    dense(base, &self, v).into_iter().zip(&self.values[v.index()])
                {
                    assert!(self.memory.holds(base, at, size, tag), "output {k}\n{}", self.program);
                }
            }
        }
        for (i, &v) in self.program.inputs.iter().enumerate() {
            if updates.iter().all(|u| u.1 != i) {
                let tags = (0..self.program.spec(v).len()).map(|j| (v.0, j));
                for ((base, at, size), tag) in dense(Base::Input(i), &self, v).into_iter().zip(tags)
                {
                    assert!(self.memory.holds(base, at, size, tag), "input {i} was changed");
                }
            }
        }
    }
}

fn replay(program: &Program) -> Plan {
    replay_on(program, Target::default())
}

fn replay_on(program: &Program, target: Target) -> Plan {
    let plan = plan(program, target);
    let values = vec![Vec::new(); program.specs.len()];
    Replay { program, plan: &plan, memory: Memory::default(), values }.run();
    plan
}

#[test]
fn nothing_is_read_after_it_was_overwritten() {
    for seed in 0..4000 {
        let program = random_program(seed, 1 + seed as usize % 40);
        let plan = replay(&program);
        assert_eq!(
            plan,
            pullback_ir::pass::plan::plan(&program, Target::default()),
            "the same plan every time"
        );
        let all: usize = program
            .equations
            .iter()
            .flat_map(|e| &e.outputs)
            .map(|&v| program.spec(v).bytes().div_ceil(ALIGN) * ALIGN)
            .chain(plan.scratch.iter().flatten().map(|s| s.bytes.div_ceil(ALIGN) * ALIGN))
            .chain(
                plan.moves
                    .iter()
                    .filter(|m| m.via.is_some())
                    .map(|m| program.spec(m.var).bytes().div_ceil(ALIGN) * ALIGN),
            )
            .sum();
        assert!(plan.arena <= all, "worse than no reuse");
    }
}

#[test]
fn values_that_leave_and_come_back_are_not_overwritten() {
    let link = HostLink { out: 40, back: 60, memory: 1000, narrow: 1000, wide: 1000 };
    let target = Target { host: Some(link), ..Target::default() };
    let mut moved = 0;
    for seed in 0..2000 {
        let program = random_program(seed, 1 + seed as usize % 40);
        let peak = replay_on(&program, target).peak();
        for bytes in [peak / 2, peak - peak / 8] {
            let away = offload(&program, bytes, target);
            away.verify_deeply().unwrap_or_else(|e| panic!("{e}\n{away}"));
            let plan = replay_on(&away, target);
            moved += usize::from(plan.host > 0);
            assert!(
                plan.peak() < peak || plan.host == 0 && plan.peak() == peak,
                "{} of {peak}\n{program}{away}",
                plan.peak()
            );
            // Where views of kernels' results lie as their readers want them.
            replay_on(&away, Target { strided_results: true, ..target });
        }
    }
    assert!(moved > 500, "only {moved}");
}

fn f32s(shape: &[usize]) -> Spec {
    Spec::cpu(DType::F32, shape)
}

fn unary(p: &mut Program, x: Var) -> Var {
    p.push(Op::Unary(Unary::Tanh), &[x], None).expect("a float")[0]
}

fn binary(p: &mut Program, f: Binary, a: Var, b: Var) -> Var {
    p.push(Op::Binary(f), &[a, b], None).expect("floats")[0]
}

#[test]
fn a_chain_takes_the_memory_of_its_result_and_a_residual_one_more() {
    let mut p = Program::default();
    let x = p.input(f32s(&[256]));
    let mut v = unary(&mut p, x);
    for _ in 0..20 {
        let w = unary(&mut p, v);
        v = binary(&mut p, Binary::Add, w, v);
    }
    p.outputs = vec![v];
    assert_eq!((replay(&p).arena, replay(&p).outputs), (1024, 1024));
    // Not an output in the end: two buffers.
    p.outputs = p.push(Op::Reduce(Reduction::Sum, [0].into()), &[v], None).expect("a sum").to_vec();
    assert_eq!((replay(&p).arena, replay(&p).outputs), (2048, 4));
}

#[test]
fn updates_are_computed_where_they_go() {
    // p ← p − 0.1·g, m ← 0.9·m + g: nothing is copied and the arena holds only 0.1·g.
    let mut p = Program::default();
    let [w, m, g] = [(); 3].map(|()| p.input(f32s(&[64])));
    let number = |p: &mut Program, v: f64| {
        let op = Op::literal(v.into(), Spec::cpu(DType::F32, [64]));
        p.push(op, &[], None).expect("a literal")[0]
    };
    let (rate, keep) = (number(&mut p, 0.1), number(&mut p, 0.9));
    let step = binary(&mut p, Binary::Mul, g, rate);
    let new_w = binary(&mut p, Binary::Sub, w, step);
    let kept = binary(&mut p, Binary::Mul, m, keep);
    let new_m = binary(&mut p, Binary::Add, kept, g);
    p.outputs = vec![new_w, new_m];
    p.updates = vec![(0, 0), (1, 1)];
    let plan = replay(&p);
    assert!(plan.moves.is_empty());
    assert_eq!((plan.arena, plan.outputs, plan.constants), (256, 0, 16));
    assert_eq!(plan.locations[new_w.index()].base, Base::Input(0));
    assert_eq!(plan.locations[kept.index()].base, Base::Input(1));

    // A swap is all copies, at least one of them through a temporary.
    let mut p = Program::default();
    let [a, b] = [(); 2].map(|()| p.input(f32s(&[3])));
    p.outputs = vec![b, a];
    p.updates = vec![(0, 0), (1, 1)];
    assert_eq!(replay(&p).moves.len(), 2);
    // What is already there is not touched.
    p.updates = vec![(0, 1), (1, 0)];
    assert!(replay(&p).moves.is_empty());
}

#[test]
fn the_gradient_of_losses_is_written_over_the_logits() {
    let mut p = Program::default();
    let narrow = |shape: &[usize]| Spec::cpu(DType::BF16, shape);
    let x = p.input(narrow(&[64, 32]));
    let classes = p.input(Spec::cpu(DType::I64, [64]));
    let dy = p.input(f32s(&[64]));
    let logits = unary(&mut p, x);
    let gradient = |p: &mut Program| {
        let op = Op::Fused(Fused::CrossEntropyVjp);
        let dx = p.push(op, &[logits, classes, dy], None).expect("a gradient")[0];
        p.push(Op::Reduce(Reduction::Max, [1].into()), &[dx], None).expect("a reduction")[0]
    };
    let first = gradient(&mut p);
    p.outputs = vec![first];
    // Besides it, the losses.
    assert_eq!(replay(&p).arena, 64 * 32 * 2 + 64 * 4);
    // Not where they are read again.
    let again = gradient(&mut p);
    p.outputs = vec![first, again];
    assert_eq!(replay(&p).arena, 2 * 64 * 32 * 2 + 64 * 4);
}

/// Heads side by side: what follows attention, and in backward its gradients in one buffer.
#[test]
fn results_of_attention_lie_as_their_readers_want_them() {
    let how = Attention { causal: true, masked: false, scale: Real(1.0), dropout: Real(0.0) };
    let mut p = Program::default();
    let [q, k, v] = [(); 3].map(|()| p.input(f32s(&[2, 3, 4, 5])));
    let made = p.push(Op::Fused(Fused::Attention(how)), &[q, k, v], None).expect("attention");
    let side_by_side = |p: &mut Program, x: Var| {
        let turned = Op::View(View::Permute([0, 2, 1, 3].into()));
        let turned = p.push(turned, &[x], None).expect("a permute")[0];
        let flat = Op::View(View::Reshape([2, 4, 15].as_slice().into()));
        p.push(flat, &[turned], None).expect("a reshape")[0]
    };
    let flat = side_by_side(&mut p, made[0]);
    let dy = unary(&mut p, made[0]);
    let y = unary(&mut p, flat);
    let back = [q, k, v, made[0], made[1], dy];
    let back = p.push(Op::Fused(Fused::AttentionVjp(how)), &back, None).expect("a vjp").to_vec();
    let pieces: Vec<Var> = back.iter().map(|&x| side_by_side(&mut p, x)).collect();
    let cat = p.push(Op::Cat(2), &pieces, None).expect("a cat")[0];
    let sum = p.push(Op::Reduce(Reduction::Sum, [0].into()), &[cat], None).expect("a sum")[0];
    p.outputs = vec![y, sum];
    let copies = |plan: &Plan| {
        let apart = |v: &&Var| {
            let (a, b) = (&plan.locations[v.index()], &plan.locations[cat.index()]);
            (a.base, a.start) != (b.base, b.start)
        };
        let [a, b] = [flat, made[0]].map(|v| &plan.locations[v.index()]);
        let moved = (a.base, a.start) != (b.base, b.start);
        (moved, pieces.iter().filter(apart).count())
    };
    assert_eq!(copies(&replay(&p)), (true, 3));
    let strided = Target { strided_results: true, ..Target::default() };
    let plan = replay_on(&p, strided);
    assert_eq!(copies(&plan), (false, 0));
    let at = |v: Var| &plan.locations[v.index()].layout;
    assert_eq!(at(made[0]).strides[..], [60, 5, 15, 1]);
    assert_eq!((at(back[1]).strides[..].to_vec(), at(back[1]).offset), (vec![180, 5, 45, 1], 15));
    // An output is no part of another value, and a `cat` that is one is copied to.
    p.outputs = vec![y, cat, made[0]];
    assert!(!copies(&replay_on(&p, strided)).0);
}

#[test]
fn a_piece_is_computed_where_it_is_wanted() {
    let text = |what: &str| -> Program {
        let text = format!(
            "program (x: f32[8], y: f32[1]) {{
               let a: f32[8] = exp x
               let b: f32[7] = slice{{[{}:7:1]}} a
               let z: f32[8] = literal{{0.0: f32[8]}}
               {what}
               let d: f32[8] = neg c
               let e: f32[] = sum{{[0]}} d
               return e
             }}",
            usize::from(what.contains("put"))
        );
        text.parse().unwrap()
    };
    // One more element before the first, or after the last: the result starts one element earlier,
    // or later.
    let cases = [
        ("let c: f32[8] = cat{0} y b", -4),
        ("let c: f32[8] = pad{[1:0:0]} b", -4),
        ("let c: f32[8] = put{[slice{[0:7:1]}]} z b", 4),
    ];
    for (what, by) in cases {
        let program = text(what);
        let plan = replay(&program);
        let home = |name: &str| {
            let made = program.equations.iter().find(|e| e.op.name() == name).unwrap();
            plan.locations[made.outputs[0].index()].clone()
        };
        let op = what.split(" = ").nth(1).unwrap().split('{').next().unwrap();
        assert_eq!(home(op).base, home("exp").base, "{what}");
        assert_eq!(home(op).start as isize - home("exp").start as isize, by, "{what}");
    }
    // Not where it is read again, where two pieces come from one value, or where the result is an
    // output.
    let others = [
        "let c: f32[8] = cat{0} y b; return c, a",
        "let w: f32[1] = slice{[7:1:1]} a; let c: f32[8] = cat{0} w b; return c",
        "let c: f32[8] = cat{0} y b; return c",
    ];
    for rest in others {
        let program: Program = format!(
            "program (x: f32[8], y: f32[1]) {{ let a: f32[8] = exp x; let b: f32[7] = slice{{[0:7:1]}} a; {rest} }}"
        )
        .parse()
        .unwrap();
        let plan = replay(&program);
        let home =
            |v: Var| (plan.locations[v.index()].base, plan.locations[v.index()].start / ALIGN);
        let last = program.equations.last().unwrap().outputs[0];
        assert_ne!(home(last), home(program.equations[0].outputs[0]), "{rest}");
    }
}

#[test]
fn a_product_is_added_in_place() {
    let mut p = Program::default();
    let [a, b, c] = [[4, 8], [8, 4], [4, 4]].map(|shape| p.input(f32s(&shape)));
    let op = Op::DotRegion(Arc::new(sum_of(&f32s(&[4, 4]))));
    p.outputs = p.push(op, &[a, b, c], None).expect("a product").to_vec();
    assert_eq!(replay(&p).products[0], Some(ProductLocation::InResult(0)));
    p.updates = vec![(0, 2)];
    let plan = replay(&p);
    assert_eq!((plan.products[0], plan.arena), (Some(ProductLocation::Added(2)), 0));
}

#[test]
fn the_report_names_what_is_alive() {
    let mut p = Program::default();
    let x = p.input(f32s(&[1024]));
    let at = Line::named("src/main.rs", 7, 3);
    let a = p.push(Op::Unary(Unary::Exp), &[x], Some(at)).expect("floats")[0];
    let s = p.push(Op::Reduce(Reduction::Sum, [0].into()), &[a], None).expect("a sum")[0];
    let wide = View::Broadcast([1024].into());
    let s = p.push(Op::View(wide), &[s], None).expect("a view")[0];
    let y = p.push(Op::Binary(Binary::Div), &[a, s], None).expect("floats")[0];
    p.outputs = p
        .push(Op::Cumulate { kind: Cumulation::Sum, axis: 0, reverse: false }, &[y], None)
        .expect("a sum")
        .to_vec();
    let plan = replay(&p);
    assert_eq!(
        plan.to_string(),
        "\
peak 8192 B: arena 4096 B, outputs 4096 B, constants 0 B
taken during equation 0:
      4096 B  b  // src/main.rs:7:3
      4096 B  f
"
    );
    assert!(plan.by_place().contains(&(Some(at), 4096)));
}
