//! Random programs that `verify` accepts.

use super::interpret::{Data, rounded};
use pullback_ir::infer::infer;
use pullback_ir::*;
use std::sync::Arc;

/// Choices from a list of numbers, so that one strategy makes whole programs.
pub struct Choices(pub Vec<u64>, pub usize);

impl Choices {
    pub fn below(&mut self, n: usize) -> usize {
        self.1 += 1;
        let at = self.0[self.1 % self.0.len()].wrapping_add(self.1 as u64);
        let mixed = (at ^ at >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ mixed >> 32) % n.max(1) as u64) as usize
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// Numbers for the inputs of a program.
    pub fn inputs(&mut self, program: &Program, odd: bool) -> Vec<Data> {
        let numbers = [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0, -0.0, 0.5, f64::INFINITY, f64::NAN];
        let mut data = |&v: &Var| {
            let spec = program.spec(v);
            (0..spec.len())
                .map(|_| rounded(spec.dtype, numbers[self.below(if odd { 10 } else { 6 })]))
                .collect()
        };
        program.inputs.iter().map(&mut data).collect()
    }

    /// A program that `verify` accepts, of about this many equations. `whole`: on small integers
    /// all its values are integers, so that the order of a sum does not matter.
    pub fn program(&mut self, size: usize, whole: bool) -> Program {
        let mut program = Program::default();
        let shapes: [&[usize]; 9] =
            [&[2, 3], &[3, 2], &[2, 2, 3], &[6], &[3], &[], &[1], &[2, 1], &[3, 1, 2]];
        let dtypes = if whole { [DType::F64; 2] } else { [DType::F64, DType::F32] };
        let mut live = Vec::new();
        for _ in 0..2 + self.below(3) {
            let spec = Spec::cpu(self.pick(&dtypes), self.pick(&shapes));
            live.push(program.input(spec));
        }
        let key = program.input(Spec::cpu(DType::I64, [2].as_slice()));
        let flag = program.input(Spec::cpu(DType::Bool, Shape::new()));
        for _ in 0..size {
            if self.below(8) == 0 {
                let phrase = self.phrase(&mut program, &live, whole);
                live.extend(phrase.unwrap_or_default());
            }
            if let Some((op, inputs)) = self.equation(&program, &live, key, flag, size, whole) {
                let at = Some(Line::named("src/test.rs", program.equations.len() as u32 + 1, 1));
                // Many choices are invalid; the valid ones are enough.
                if let Ok(made) = program.push(op, &inputs, at) {
                    live.extend(made);
                }
            }
        }
        for _ in 0..1 + self.below(3) {
            // Later ones are made of more.
            let from = live.len() - 1 - self.below(live.len().min(6));
            program.outputs.push(live[from]);
        }
        let takers = program.inputs.clone();
        for (k, &v) in program.outputs.clone().iter().enumerate() {
            let fits = |&(i, &input): &(usize, &Var)| {
                program.spec(input) == program.spec(v) && program.updates.iter().all(|u| u.1 != i)
            };
            let taker = takers.iter().enumerate().find(fits).map(|(i, _)| i);
            if let Some(i) = taker.filter(|_| self.below(2) == 0) {
                program.updates.push((k, i));
            }
        }
        program
    }

    fn equation(
        &mut self,
        program: &Program,
        live: &[Var],
        key: Var,
        flag: Var,
        size: usize,
        whole: bool,
    ) -> Option<(Op, Vec<Var>)> {
        // Mostly recent ones, so that chains are made.
        let recent = live.len().min(5);
        let a = match self.below(3) {
            0 => self.pick(live),
            _ => live[live.len() - 1 - self.below(recent)],
        };
        let spec = program.spec(a).clone();
        let shape = spec.shape.clone();
        let mate = |c: &mut Choices, spec: &Spec| {
            let fits: Vec<Var> =
                live.iter().copied().filter(|&v| program.spec(v) == spec).collect();
            if fits.is_empty() { None } else { Some(c.pick(&fits)) }
        };
        Some(match self.below(20) {
            0..4 if spec.dtype == DType::Bool => (Op::Unary(Unary::Not), vec![a]),
            0..4 => {
                let exact = [Unary::Neg, Unary::Abs, Unary::Relu, Unary::Floor];
                let any =
                    [Unary::Neg, Unary::Abs, Unary::Tanh, Unary::Exp, Unary::Square, Unary::Relu];
                (Op::Unary(if whole { self.pick(&exact) } else { self.pick(&any) }), vec![a])
            }
            4..8 => {
                let exact = [Binary::Add, Binary::Sub, Binary::Maximum, Binary::Mul];
                let any = [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Minimum];
                let f = match spec.dtype {
                    DType::Bool => Binary::And,
                    _ if whole => self.pick(&exact),
                    _ => self.pick(&any),
                };
                let b = mate(self, &spec)?;
                (Op::Binary(f), if self.below(2) == 0 { vec![a, b] } else { vec![b, a] })
            }
            8 => (Op::Compare(self.pick(Compare::ALL)), vec![a, mate(self, &spec)?]),
            9 => {
                let condition = mate(self, &spec.with_dtype(DType::Bool))?;
                (Op::Select, vec![condition, a, mate(self, &spec)?])
            }
            10 => {
                let to = if whole {
                    DType::F64
                } else {
                    self.pick(&[DType::F64, DType::F32, DType::Bool, DType::I64])
                };
                // What is no number, or too large, has no integer that is the same everywhere.
                if to == DType::I64 && spec.dtype != DType::Bool {
                    return None;
                }
                (Op::Cast(to), vec![a])
            }
            11 => {
                let numbers = [0.0, -0.0, 1.0, 2.0, -1.0, f64::INFINITY, f64::NAN];
                let value = Scalar::Float(Real(numbers[self.below(if whole { 5 } else { 7 })]));
                let dtype = if spec.dtype.is_float() { spec.dtype } else { DType::F64 };
                (Op::literal(value, Spec::cpu(dtype, shape)), vec![])
            }
            12 => match self.below(5) {
                0 => (Op::Random { kind: Random::Uniform, shape, dtype: DType::F64 }, vec![key])
                    .into_whole(whole)?,
                1 => (
                    Op::Iota {
                        len: shape.iter().product(),
                        dtype: DType::F64,
                        device: Device::Cpu,
                    },
                    vec![],
                ),
                2 => (Op::Copy, vec![a]),
                3 => (Op::After, vec![a, self.pick(live)]),
                _ => {
                    let padding = (0..shape.len()).map(|_| Padding {
                        before: self.below(2),
                        after: 0,
                        between: self.below(2),
                    });
                    (Op::Pad(padding.collect()), vec![a])
                }
            },
            13..16 => (Op::View(self.view(&shape)), vec![a]),
            16 => {
                let kinds = [Reduction::Sum, Reduction::Max, Reduction::Sum];
                let axes: Axes = match self.below(3) {
                    0 => (0..shape.len()).collect(),
                    1 => (0..shape.len()).filter(|_| self.below(2) == 0).collect(),
                    _ => (shape.len().saturating_sub(1)..shape.len()).collect(),
                };
                (Op::Reduce(self.pick(&kinds), axes), vec![a])
            }
            17 => {
                let fits: Vec<Var> = live
                    .iter()
                    .copied()
                    .filter(|&b| infer(&Op::Dot, &[&spec, program.spec(b)]).is_ok())
                    .collect();
                if fits.is_empty() {
                    // Products with the transpose always fit.
                    return (shape.len() >= 2)
                        .then(|| (Op::View(View::Permute(swapped(shape.len()))), vec![a]));
                }
                (Op::Dot, vec![a, self.pick(&fits)])
            }
            18 => match self.below(2) {
                0 => (Op::Cat(self.below(shape.len())), vec![a, mate(self, &spec)?]),
                _ => {
                    let view = self.view(&shape);
                    let part = infer(&Op::View(view.clone()), &[&spec]).ok()?.swap_remove(0);
                    (Op::Put(vec![view]), vec![a, mate(self, &part)?])
                }
            },
            _ => return self.flow(program, a, flag, size, whole),
        })
    }

    /// Equations that belong together and that single choices hardly ever make: a row reduced and
    /// used together with its elements, a stack of matrices times one, the sum of a stack of
    /// products.
    fn phrase(&mut self, program: &mut Program, live: &[Var], whole: bool) -> Option<Vec<Var>> {
        let of_rank = |program: &Program, rank: usize| -> Vec<Var> {
            let fits = |v: &Var| {
                let spec = program.spec(*v);
                spec.shape.len() == rank && spec.dtype.is_float() && !spec.is_empty()
            };
            live.iter().copied().filter(fits).collect()
        };
        match self.below(4) {
            0 | 1 => {
                let a = self.pick(live);
                let shape = program.spec(a).shape.clone();
                let inner = 1 + self.below(shape.len());
                let outer = shape.len().checked_sub(inner)?;
                let mut push =
                    |op: Op, inputs: &[Var]| program.push(op, inputs, None).ok().map(|v| v[0]);
                let kind = self.pick(&[Reduction::Max, Reduction::Sum]);
                let row = push(Op::Reduce(kind, (outer..shape.len()).collect()), &[a])?;
                let ones = (0..shape.len()).map(|i| if i < outer { shape[i] } else { 1 }).collect();
                let negative = push(Op::Unary(Unary::Neg), &[row])?;
                let kept = push(Op::View(View::Reshape(ones)), &[negative])?;
                let wide = push(Op::View(View::Broadcast(shape)), &[kept])?;
                let f = if whole { Binary::Add } else { self.pick(&[Binary::Add, Binary::Div]) };
                let made = push(Op::Binary(f), &[a, wide])?;
                Some(vec![row, made])
            }
            2 => {
                let (stacks, matrices) = (of_rank(program, 3), of_rank(program, 2));
                let a = self.pick_some(&stacks)?;
                let shape = program.spec(a).shape.clone();
                let fits = |v: &&Var| program.spec(**v).shape[0] == shape[2];
                let fitting: Vec<Var> = matrices.iter().filter(fits).copied().collect();
                let b = self.pick_some(&fitting)?;
                let mut wide: Vec<usize> = vec![shape[0]];
                wide.extend_from_slice(&program.spec(b).shape);
                let wide =
                    program.push(Op::View(View::Broadcast(wide.into())), &[b], None).ok()?[0];
                Some(vec![program.push(Op::Dot, &[a, wide], None).ok()?[0]])
            }
            _ => {
                let stacks = of_rank(program, 3);
                let (a, b) = (self.pick_some(&stacks)?, self.pick_some(&stacks)?);
                let mut push =
                    |op: Op, inputs: &[Var]| program.push(op, inputs, None).ok().map(|v| v[0]);
                let turned = push(Op::View(View::Permute([0, 2, 1].into())), &[a])?;
                let product = push(Op::Dot, &[turned, b])?;
                Some(vec![push(Op::Reduce(Reduction::Sum, [0].into()), &[product])?])
            }
        }
    }

    fn pick_some(&mut self, from: &[Var]) -> Option<Var> {
        (!from.is_empty()).then(|| self.pick(from))
    }

    fn view(&mut self, shape: &Shape) -> View {
        let rank = shape.len();
        match self.below(7) {
            0 => {
                let mut order: Axes = (0..rank).collect();
                if rank > 1 {
                    let (i, j) = (self.below(rank), self.below(rank));
                    order.swap(i, j);
                }
                View::Permute(order)
            }
            1 => {
                let n: usize = shape.iter().product();
                let forms: [&[usize]; 5] = [&[n], &[1, n], &[n, 1], &[2, n / 2], &[n / 3, 3]];
                View::Reshape(Shape::from_slice(self.pick(&forms)))
            }
            2 | 3 => {
                let mut to: Shape =
                    shape.iter().map(|&n| if n == 1 { 1 + self.below(3) } else { n }).collect();
                if rank < 3 && self.below(2) == 0 {
                    to.insert(0, 2);
                }
                View::Broadcast(to)
            }
            4 => View::Slice(
                shape
                    .iter()
                    .map(|&n| {
                        let start = self.below(n);
                        let step = 1 + self.below(2);
                        Span { start, len: 1 + (n.saturating_sub(1 + start)) / step, step }
                    })
                    .collect(),
            ),
            5 => View::Flip((0..rank).filter(|_| self.below(2) == 0).collect()),
            _ if self.below(2) == 0 => {
                View::Diagonal { offset: self.below(2) as isize, a: 0, b: 1 }
            }
            _ => View::Unfold { axis: 0, size: 1 + self.below(2), step: 1 },
        }
    }

    /// A conditional between two programs of one operand, or a loop over its rows.
    fn flow(
        &mut self,
        program: &Program,
        a: Var,
        flag: Var,
        size: usize,
        whole: bool,
    ) -> Option<(Op, Vec<Var>)> {
        if size < 8 {
            return None;
        }
        let spec = program.spec(a).clone();
        let mut branch = |program: &mut Program, mut v: Var| {
            for _ in 0..1 + self.below(3) {
                let f = [Unary::Neg, Unary::Abs][self.below(2)];
                let g = [Binary::Add, Binary::Maximum][self.below(2)];
                v = program.push(Op::Unary(f), &[v], None).ok()?[0];
                v = program.push(Op::Binary(g), &[v, v], None).ok()?[0];
            }
            Some(v)
        };
        let one = |branch: &mut dyn FnMut(&mut Program, Var) -> Option<Var>| {
            let mut inside = Program::default();
            let x = inside.input(spec.clone());
            let unused = inside.input(spec.clone());
            let y = branch(&mut inside, x)?;
            let z = inside.push(Op::Unary(Unary::Neg), &[unused], None).ok()?[0];
            inside.outputs = vec![y, z];
            Some(inside)
        };
        let yes = one(&mut branch)?;
        let no = one(&mut branch)?;
        match (self.below(2), spec.shape.first()) {
            (0, Some(&length)) if !whole => {
                let mut body = Program::default();
                let row = spec.with_shape(&spec.shape[1..]);
                let (carry, x) = (body.input(row.clone()), body.input(row));
                let next = body.push(Op::Binary(Binary::Sub), &[carry, x], None).ok()?[0];
                let y = body.push(Op::Unary(Unary::Neg), &[next], None).ok()?[0];
                let z = body.push(Op::Unary(Unary::Abs), &[next], None).ok()?[0];
                body.outputs = vec![next, y, z];
                let fits = |&v: &Var| program.spec(v) == body.spec(carry);
                let start = (0..program.specs.len() as u32).map(Var).find(fits)?;
                let scan = Scan {
                    body,
                    length,
                    reverse: self.below(2) == 0,
                    shared: 0,
                    carry: 1,
                    kept: 0,
                };
                Some((Op::Flow(Arc::new(Flow::Scan(scan))), vec![start, a]))
            }
            _ => Some((Op::Flow(Arc::new(Flow::Cond { yes, no })), vec![flag, a, a])),
        }
    }
}

trait Whole: Sized {
    fn into_whole(self, whole: bool) -> Option<Self>;
}

impl Whole for (Op, Vec<Var>) {
    /// Fractions are not whole.
    fn into_whole(self, whole: bool) -> Option<Self> {
        (!whole).then_some(self)
    }
}

fn swapped(rank: usize) -> Axes {
    (0..rank - 2).chain([rank - 1, rank - 2]).collect()
}
