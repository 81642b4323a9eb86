//! Random programs, for tests that hold of all programs: every way a value can be computed, read,
//! kept, viewed and replaced.

use pullback_ir::*;
use smallvec::smallvec;
use std::sync::Arc;

/// Numbers that look random.
pub struct Dice(pub u64);

impl Dice {
    /// One of `0..n`.
    pub fn roll(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n.max(1)
    }

    /// One of these.
    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.roll(of.len())].clone()
    }
}

struct Author {
    dice: Dice,
    program: Program,
    vars: Vec<Var>,
}

/// A program of about `equations` equations, with some outputs and, sometimes, updates.
pub fn random_program(seed: u64, equations: usize) -> Program {
    let mut author = Author {
        dice: Dice(seed ^ 0x9e37_79b9_7f4a_7c15),
        program: Program::default(),
        vars: vec![],
    };
    let shapes: [&[usize]; 7] = [&[4, 6], &[4, 6], &[24], &[], &[2, 3, 4], &[0, 5], &[1, 6]];
    for _ in 0..2 + author.dice.roll(4) {
        let shape = author.dice.pick(&shapes);
        let v = author.program.input(Spec::cpu(DType::F32, shape));
        author.vars.push(v);
    }
    while author.program.equations.len() < equations {
        author.write();
    }
    author.finish()
}

impl Author {
    fn any(&mut self) -> Var {
        // Mostly recent ones, so that values die.
        let n = self.vars.len();
        let back = self.dice.roll(n).min(self.dice.roll(n));
        self.vars[n - 1 - back]
    }

    /// A variable like this one (maybe itself).
    fn like(&mut self, spec: &Spec) -> Var {
        let alike: Vec<Var> =
            self.vars.iter().copied().filter(|&v| self.program.spec(v) == spec).collect();
        match alike.is_empty() || self.dice.roll(4) == 0 {
            true => self.literal(spec.clone()),
            false => self.dice.pick(&alike),
        }
    }

    fn literal(&mut self, spec: Spec) -> Var {
        let value = Scalar::from(self.dice.roll(3) as i64);
        self.push(Op::literal(value, spec), &[])
    }

    fn push(&mut self, op: Op, inputs: &[Var]) -> Var {
        let made = self.program.push(op, inputs, None).expect("the author knows the rules");
        self.vars.extend(&made);
        made[0]
    }

    fn float(&mut self) -> Var {
        let v = self.any();
        match self.program.spec(v).dtype {
            DType::F32 => v,
            _ => self.push(Op::Cast(DType::F32), &[v]),
        }
    }

    fn view_of(&mut self, spec: &Spec) -> View {
        let (rank, dice) = (spec.shape.len(), &mut self.dice);
        match dice.roll(7) {
            0 => View::Permute((0..rank).rev().collect()),
            1 => View::Reshape([spec.len()].as_slice().into()),
            2 if spec.len().is_multiple_of(2) => {
                View::Reshape([spec.len() / 2, 2].as_slice().into())
            }
            3 if spec.len() <= 48 => {
                let mut shape = spec.shape.clone();
                shape.insert(0, 2);
                View::Broadcast(shape)
            }
            4 if rank > 0 => View::Slice(
                spec.shape
                    .iter()
                    .map(|&n| {
                        let start = dice.roll(n);
                        let len = if n == 0 { 0 } else { 1 + dice.roll(n - start) };
                        Span { start, len, step: 1 }
                    })
                    .collect(),
            ),
            5 if rank > 1 => View::Diagonal { offset: dice.roll(3) as isize - 1, a: 0, b: 1 },
            6 if rank > 0 && spec.shape[0] >= 2 && spec.len() <= 48 => {
                View::Unfold { axis: 0, size: 2, step: 1 }
            }
            _ => View::Flip((0..rank).filter(|_| dice.roll(2) == 0).collect()),
        }
    }

    fn write(&mut self) {
        let x = self.float();
        let spec = self.program.spec(x).clone();
        let rank = spec.shape.len();
        let f32 = |shape: &[usize]| Spec::cpu(DType::F32, shape);
        match self.dice.roll(18) {
            0 | 1 => {
                use Unary::*;
                let f = self.dice.pick(&[Neg, Exp, Tanh, Relu, Abs, Square, Sigmoid]);
                self.push(Op::Unary(f), &[x]);
            }
            2..5 => {
                use Binary::*;
                let f = self.dice.pick(&[Add, Sub, Mul, Maximum]);
                let y = self.like(&spec);
                self.push(Op::Binary(f), &[x, y]);
            }
            5..8 => {
                let view = self.view_of(&spec);
                self.push(Op::View(view), &[x]);
            }
            8 if rank > 0 => {
                let axis = self.dice.roll(rank);
                self.push(Op::Reduce(Reduction::Sum, [axis].as_slice().into()), &[x]);
            }
            9 => {
                let token = self.like(&spec);
                match self.dice.roll(2) {
                    0 => self.push(Op::Copy, &[x]),
                    _ => self.push(Op::After, &[x, token]),
                };
            }
            10 => {
                let view = self.view_of(&spec);
                if !matches!(view, View::Broadcast(_) | View::Unfold { .. }) {
                    let part = infer::infer_one(&Op::View(view.clone()), &[&spec]).expect("a view");
                    let source = self.like(&part);
                    self.push(Op::Put(vec![view]), &[x, source]);
                }
            }
            11 if rank > 0 && spec.len() <= 48 => {
                let y = self.like(&spec);
                let axis = self.dice.roll(rank);
                self.push(Op::Cat(axis), &[x, y]);
            }
            12 if rank == 2 => {
                let turned = self.push(Op::View(View::Permute([1, 0].into())), &[x]);
                let product = self.push(Op::Dot, &[x, turned]);
                if self.dice.roll(2) == 0 {
                    let square = self.program.spec(product).clone();
                    let other = self.like(&square);
                    self.push(Op::DotRegion(Arc::new(sum_of(&square))), &[x, turned, other]);
                }
            }
            13 => {
                let y = self.like(&spec);
                let test = self.push(Op::Compare(Compare::Lt), &[x, y]);
                self.push(Op::Select, &[test, y, x]);
            }
            14 if rank > 0 => {
                self.push(Op::Sort { axis: rank - 1, descending: false }, &[x]);
            }
            15 => {
                let how = Sgd {
                    momentum: Real(if self.dice.roll(2) == 0 { 0.5 } else { 0.0 }),
                    dampening: Real(0.0),
                    decay: Real(0.0),
                    nesterov: false,
                    maximize: false,
                };
                let (m, g) = (self.like(&spec), self.like(&spec));
                let rate = self.literal(Spec::cpu(DType::F32, Shape::new()));
                match how.remembers() {
                    true => {
                        let step = self.literal(Spec::cpu(DType::I64, Shape::new()));
                        self.push(Op::Fused(Fused::Sgd(how)), &[x, m, g, step, rate]);
                    }
                    false => {
                        self.push(Op::Fused(Fused::Sgd(how)), &[x, g, rate]);
                    }
                }
            }
            16 => {
                let turned: Vec<usize> = spec.shape.iter().rev().copied().collect();
                let y = self.like(&f32(&turned));
                let region = self.region(&spec);
                self.push(Op::Region(Arc::new(region)), &[x, y]);
            }
            _ if rank > 0 && spec.shape[0] > 0 => {
                let source = self.like(&spec);
                let index = self.literal(Spec::cpu(DType::I64, Shape::new()));
                let index = self.push(Op::View(View::Broadcast(spec.shape.clone())), &[index]);
                let zero = self.literal(Spec::cpu(DType::I64, spec.shape.clone()));
                let index = match self.program.spec(x).shape[0] > 2 {
                    true => index,
                    false => self.push(Op::Binary(Binary::Mul), &[index, zero]),
                };
                let most = self.literal(Spec::cpu(DType::I64, spec.shape.clone()));
                let index = match spec.shape[0] {
                    n if n > 2 => index,
                    _ => self.push(Op::Binary(Binary::Sub), &[most, most]),
                };
                let combine = self.dice.pick(&[Combine::Add, Combine::Max]);
                self.push(Op::Scatter(0, combine), &[x, index, source]);
            }
            _ => {}
        }
    }

    /// `exp(x + yᵀ)`, and with a reduction sometimes.
    fn region(&mut self, spec: &Spec) -> Region {
        let dense = Layout::dense(spec.shape.clone());
        let turned: Shape = spec.shape.iter().rev().copied().collect();
        let back = View::Permute((0..turned.len()).rev().collect());
        let across = Layout::dense(turned.clone()).view(&back).expect("a view");
        let mut body = vec![
            Inst::Load(0),
            Inst::Load(1),
            Inst::Point(Op::Binary(Binary::Add), smallvec![0, 1]),
            Inst::Point(Op::Unary(Unary::Tanh), smallvec![2]),
        ];
        let mut outputs = vec![3];
        let inner = usize::from(!spec.shape.is_empty());
        if self.dice.roll(2) == 0 && inner > 0 && !spec.is_empty() {
            body.push(Inst::Reduce(Reduction::Max, 2));
            body.push(Inst::Point(Op::Binary(Binary::Sub), smallvec![3, 4]));
            outputs = self.dice.pick(&[vec![5, 4], vec![5], vec![3, 5], vec![5, 2]]);
        } else if self.dice.roll(2) == 0 {
            outputs = vec![2, 3];
        }
        Region {
            device: spec.device,
            shape: spec.shape.clone(),
            inner,
            inputs: vec![
                Load { spec: spec.clone(), layout: dense },
                Load { spec: spec.with_shape(turned), layout: across },
            ],
            body,
            outputs,
            columns: Vec::new(),
        }
    }

    fn finish(mut self) -> Program {
        for k in 0..1 + self.dice.roll(5) {
            let mut v = match self.dice.roll(6) {
                0 => self.dice.pick(&self.vars.clone()),
                _ => self.any(),
            };
            if self.dice.roll(2) == 0 {
                // Something that could replace an input.
                let wanted = self.dice.pick(&self.program.inputs.clone());
                let spec = self.program.spec(wanted).clone();
                let alike: Vec<Var> =
                    self.vars.iter().copied().filter(|&v| *self.program.spec(v) == spec).collect();
                v = alike[alike.len() - 1 - self.dice.roll(alike.len().min(3))];
            }
            self.program.outputs.push(v);
            for i in 0..self.program.inputs.len() {
                let input = self.program.inputs[i];
                let free = self.program.updates.iter().all(|u| u.1 != i && u.0 != k);
                let fits = self.program.spec(input) == self.program.spec(v);
                if free && fits && self.dice.roll(2) == 0 {
                    self.program.updates.push((k, i));
                }
            }
        }
        self.program.verify().expect("the author knows the rules");
        self.program
    }
}

/// A region that adds its second operand to its first.
pub fn sum_of(spec: &Spec) -> Region {
    let layout = Layout::dense(spec.shape.clone());
    Region {
        device: spec.device,
        shape: spec.shape.clone(),
        inner: 0,
        inputs: vec![Load { spec: spec.clone(), layout }; 2],
        body: vec![
            Inst::Load(0),
            Inst::Load(1),
            Inst::Point(Op::Binary(Binary::Add), smallvec![0, 1]),
        ],
        outputs: vec![2],
        columns: Vec::new(),
    }
}
