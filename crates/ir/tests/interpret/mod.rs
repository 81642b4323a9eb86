//! A tiny interpreter of programs on `f64`, and a generator of programs: the oracle for passes.
//!
//! Values are lists of `f64` in row-major order whatever their dtype, rounded to it after each op. Only the ops that the generator uses are
//! there.

use pullback_ir::infer::infer;
use pullback_ir::pass::Constant;
use pullback_ir::*;
use smallvec::SmallVec;
use std::sync::Arc;

pub type Data = Vec<f64>;

fn rounded(dtype: DType, v: f64) -> f64 {
    match dtype {
        DType::F64 => v,
        DType::F32 => f64::from(v as f32),
        DType::I64 => v.trunc(),
        DType::Bool => f64::from(u8::from(v != 0.0)),
        dtype => panic!("{dtype} is not generated"),
    }
}

/// What a pointwise op makes of one element of each operand.
pub fn point(op: &Op, of: &[f64], dtype: DType) -> f64 {
    let larger = |a: f64, b: f64| match a.is_nan() || b.is_nan() {
        true => f64::NAN,
        false if a.total_cmp(&b).is_ge() => a,
        false => b,
    };
    let truth = |b: bool| f64::from(u8::from(b));
    let value = match op {
        Op::Unary(f) => match f {
            Unary::Neg => -of[0],
            Unary::Abs => of[0].abs(),
            Unary::Square => of[0] * of[0],
            Unary::Floor => of[0].floor(),
            Unary::Exp => of[0].exp(),
            Unary::Tanh => of[0].tanh(),
            Unary::Relu if of[0].is_nan() => of[0],
            Unary::Relu => {
                if of[0] > 0.0 {
                    of[0]
                } else {
                    0.0
                }
            }
            Unary::Not => truth(of[0] == 0.0),
            f => panic!("{f:?} is not generated"),
        },
        Op::Binary(f) => match f {
            Binary::Add => of[0] + of[1],
            Binary::Sub => of[0] - of[1],
            Binary::Mul => of[0] * of[1],
            Binary::Div => of[0] / of[1],
            Binary::Maximum => larger(of[0], of[1]),
            Binary::Minimum => -larger(-of[0], -of[1]),
            Binary::And => truth(of[0] != 0.0 && of[1] != 0.0),
            f => panic!("{f:?} is not generated"),
        },
        Op::Compare(f) => truth(match f {
            Compare::Eq => of[0] == of[1],
            Compare::Ne => of[0] != of[1],
            Compare::Lt => of[0] < of[1],
            Compare::Le => of[0] <= of[1],
            Compare::Gt => of[0] > of[1],
            Compare::Ge => of[0] >= of[1],
        }),
        Op::Select => {
            if of[0] != 0.0 {
                of[1]
            } else {
                of[2]
            }
        }
        Op::Cast(_) | Op::Copy => of[0],
        op => panic!("{op} is not pointwise"),
    };
    rounded(dtype, value)
}

/// The callback of `fold`.
pub fn evaluate(op: &Op, of: &[Constant]) -> Option<Scalar> {
    let specs: Vec<Spec> = of.iter().map(|c| Spec::new(c.dtype, Shape::new())).collect();
    let dtype = infer(op, &specs.iter().collect::<Vec<_>>()).ok()?[0].dtype;
    let of: Vec<f64> = of.iter().map(|c| rounded(c.dtype, c.value.as_f64())).collect();
    let value = point(op, &of, dtype);
    Some(match dtype {
        DType::Bool => Scalar::Bool(value != 0.0),
        DType::I64 => Scalar::Int(value as i64),
        _ => Scalar::Float(Real(value)),
    })
}

fn places(layout: &Layout) -> Vec<usize> {
    let mut places = vec![layout.offset as isize];
    for (&n, &s) in layout.shape.iter().zip(&layout.strides) {
        places = places.iter().flat_map(|&p| (0..n as isize).map(move |i| p + i * s)).collect();
    }
    places.into_iter().map(|p| p as usize).collect()
}

fn seen(data: &Data, layout: &Layout) -> Data {
    places(layout).into_iter().map(|p| data[p]).collect()
}

fn reduced(kind: Reduction, of: impl Iterator<Item = f64>, dtype: DType) -> f64 {
    let folded = match kind {
        Reduction::Sum => of.fold(0.0, |a, b| rounded(dtype, a + b)),
        Reduction::Prod => of.fold(1.0, |a, b| rounded(dtype, a * b)),
        Reduction::Max => {
            of.fold(f64::NEG_INFINITY, |a, b| point(&Op::Binary(Binary::Maximum), &[a, b], dtype))
        }
        Reduction::Min => {
            of.fold(f64::INFINITY, |a, b| point(&Op::Binary(Binary::Minimum), &[a, b], dtype))
        }
    };
    rounded(dtype, folded)
}

fn random(key: &Data, i: usize, dtype: DType) -> f64 {
    let mixed = (key[0] as u64 ^ (key[1] as u64) << 20 ^ (i as u64) << 40)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    rounded(dtype, (mixed >> 40) as f64 / f64::from(1 << 24))
}

fn dot(a: &Data, b: &Data, shape: &Shape, columns: usize, dtype: DType) -> Data {
    let rank = shape.len();
    let (m, k) = (shape[rank - 2], shape[rank - 1]);
    let stack: usize = shape[..rank - 2].iter().product();
    let mut out = Vec::new();
    for s in 0..stack {
        for i in 0..m {
            for j in 0..columns {
                let terms = (0..k).map(|l| a[(s * m + i) * k + l] * b[(s * k + l) * columns + j]);
                out.push(rounded(dtype, terms.sum::<f64>()));
            }
        }
    }
    out
}

fn region(region: &Region, inputs: &[&Data]) -> Vec<Data> {
    let kinds = region.values().unwrap();
    let len: usize = region.shape.iter().product();
    let (rows, row) = (region.rows(), region.row_len());
    let mut values: Vec<Data> = Vec::new();
    for (inst, kind) in region.body.iter().zip(&kinds) {
        let count = if kind.row { rows } else { len };
        let at = |v: usize, i: usize| match (kinds[v].row, kind.row) {
            (true, false) => values[v][i / row.max(1)],
            _ => values[v][i],
        };
        let data: Data = match inst {
            Inst::Load(k) => seen(inputs[*k], &region.inputs[*k].layout),
            Inst::Literal(value, dtype) => vec![rounded(*dtype, value.as_f64()); count],
            Inst::Index(axis, _) => {
                let mut layout = Layout::splat(region.shape.clone());
                layout.strides[*axis] = 1;
                places(&layout).into_iter().map(|p| p as f64).collect()
            }
            Inst::Random(_, k, dtype) => (0..len).map(|i| random(inputs[*k], i, *dtype)).collect(),
            Inst::Point(op, of) => (0..count)
                .map(|i| {
                    let of: SmallVec<[f64; 3]> = of.iter().map(|&v| at(v, i)).collect();
                    point(op, &of, kind.dtype)
                })
                .collect(),
            Inst::Reduce(how, v) => (0..rows)
                .map(|r| {
                    reduced(*how, values[*v][r * row..(r + 1) * row].iter().copied(), kind.dtype)
                })
                .collect(),
        };
        values.push(data);
    }
    region.outputs.iter().map(|&v| values[v].clone()).collect()
}

/// The results of a program.
pub fn run(program: &Program, inputs: &[Data]) -> Vec<Data> {
    let mut values: Vec<Data> = vec![Vec::new(); program.specs.len()];
    for (&v, data) in program.inputs.iter().zip(inputs) {
        values[v.index()].clone_from(data);
    }
    for e in &program.equations {
        let of: Vec<&Data> = e.inputs.iter().map(|v| &values[v.index()]).collect();
        let shapes: Vec<&Shape> = e.inputs.iter().map(|&v| &program.spec(v).shape).collect();
        let spec = program.spec(e.outputs[0]);
        let made: Vec<Data> = match &e.op {
            Op::Literal { value, .. } => {
                vec![vec![rounded(spec.dtype, value.as_f64()); spec.len()]]
            }
            Op::Iota { len, .. } => vec![(0..*len).map(|i| i as f64).collect()],
            Op::Random { .. } => {
                vec![(0..spec.len()).map(|i| random(of[0], i, spec.dtype)).collect()]
            }
            op if op.is_pointwise() => vec![
                (0..spec.len())
                    .map(|i| {
                        point(op, &of.iter().map(|data| data[i]).collect::<Vec<_>>(), spec.dtype)
                    })
                    .collect(),
            ],
            Op::View(view) => {
                vec![seen(of[0], &Layout::dense(shapes[0].clone()).view(view).unwrap())]
            }
            Op::Put(views) => {
                let mut layout = Layout { ..Layout::dense(shapes[0].clone()) };
                for view in views {
                    layout = layout.view(view).unwrap();
                }
                let mut out = of[0].clone();
                places(&layout).into_iter().zip(of[1]).for_each(|(p, &v)| out[p] = v);
                vec![out]
            }
            Op::Pad(paddings) => {
                let mut out = vec![0.0; spec.len()];
                let mut layout = Layout::dense(spec.shape.clone());
                layout.shape = shapes[0].clone();
                for (i, p) in paddings.iter().enumerate() {
                    layout.offset += p.before * layout.strides[i] as usize;
                    layout.strides[i] *= 1 + p.between as isize;
                }
                places(&layout).into_iter().zip(of[0]).for_each(|(p, &v)| out[p] = v);
                vec![out]
            }
            Op::Cat(axis) => {
                let mut out = Vec::new();
                let outer: usize = spec.shape[..*axis].iter().product();
                for i in 0..outer {
                    for (data, shape) in of.iter().zip(&shapes) {
                        let piece: usize = shape[*axis..].iter().product();
                        out.extend_from_slice(&data[i * piece..(i + 1) * piece]);
                    }
                }
                vec![out]
            }
            Op::Reduce(kind, axes) => {
                let kept = other_axes(axes, shapes[0].len());
                let mut taken = axes.clone();
                taken.sort_unstable();
                let order: Axes = kept.iter().chain(&taken).copied().collect();
                let sorted = seen(
                    of[0],
                    &Layout::dense(shapes[0].clone()).view(&View::Permute(order)).unwrap(),
                );
                let row: usize = axes.iter().map(|&i| shapes[0][i]).product();
                let rows = (0..spec.len()).map(|r| sorted[r * row..(r + 1) * row].iter().copied());
                vec![rows.map(|row| reduced(*kind, row, spec.dtype)).collect()]
            }
            Op::Dot => vec![dot(of[0], of[1], shapes[0], *shapes[1].last().unwrap(), spec.dtype)],
            Op::Region(r) => region(r, &of),
            Op::DotRegion(r) => {
                let product = dot(
                    of[0],
                    of[1],
                    shapes[0],
                    *shapes[1].last().unwrap(),
                    r.inputs[0].spec.dtype,
                );
                let all: Vec<&Data> =
                    std::iter::once(&product).chain(of[2..].iter().copied()).collect();
                region(r, &all)
            }
            Op::Flow(flow) => {
                let given: Vec<Data> = of.iter().map(|&data| data.clone()).collect();
                self::flow(flow, given, &shapes)
            }
            op => panic!("{op} is not generated"),
        };
        for (v, data) in e.outputs.iter().zip(made) {
            assert_eq!(data.len(), program.spec(*v).len(), "{}", e.op);
            values[v.index()] = data;
        }
    }
    program.outputs.iter().map(|v| values[v.index()].clone()).collect()
}

fn flow(flow: &Flow, given: Vec<Data>, shapes: &[&Shape]) -> Vec<Data> {
    match flow {
        Flow::Cond { yes, no } => run(if given[0][0] != 0.0 { yes } else { no }, &given[1..]),
        Flow::While { test, body, shared } => {
            let mut given = given;
            while run(test, &given)[0][0] != 0.0 {
                let state = run(body, &given);
                given.splice(*shared.., state);
            }
            given.split_off(*shared)
        }
        Flow::Scan(scan) => {
            let fixed = scan.shared + scan.carry;
            let mut carry = given[scan.shared..fixed].to_vec();
            let mut ys: Vec<Vec<Data>> =
                vec![vec![Vec::new(); scan.length]; scan.body.outputs.len() - scan.carry];
            for turn in 0..scan.length {
                let i = if scan.reverse { scan.length - 1 - turn } else { turn };
                let mut all = given[..scan.shared].to_vec();
                all.append(&mut carry);
                for (data, shape) in given[fixed..].iter().zip(&shapes[fixed..]) {
                    let row: usize = shape[1..].iter().product();
                    all.push(data[i * row..(i + 1) * row].to_vec());
                }
                carry = run(&scan.body, &all);
                for (y, stack) in carry.split_off(scan.carry).into_iter().zip(&mut ys) {
                    stack[i] = y;
                }
            }
            carry.into_iter().chain(ys.into_iter().map(|stack| stack.concat())).collect()
        }
    }
}

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

    /// A program that `verify` accepts, of about so many equations. `whole`: on small whole numbers all its numbers are whole, so that the order
    /// of a sum does not matter.
    pub fn program(&mut self, size: usize, whole: bool) -> Program {
        let mut program = Program::default();
        let shapes: [&[usize]; 9] =
            [&[2, 3], &[3, 2], &[2, 2, 3], &[6], &[3], &[], &[1], &[2, 1], &[3, 1, 2]];
        let dtypes = if whole { [DType::F64; 2] } else { [DType::F64, DType::F32] };
        let mut live = Vec::new();
        for _ in 0..2 + self.below(3) {
            let spec = Spec::new(self.pick(&dtypes), self.pick(&shapes));
            live.push(program.input(spec));
        }
        let key = program.input(Spec::new(DType::I64, [2].as_slice()));
        let flag = program.input(Spec::new(DType::Bool, Shape::new()));
        for _ in 0..size {
            if let Some((op, inputs)) = self.equation(&program, &live, key, flag, size, whole) {
                let at = Some(Place::new("src/test.rs", program.equations.len() as u32 + 1, 1));
                // Many choices do not fit; those that do are enough.
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
                (Op::Literal { value, shape, dtype }, vec![])
            }
            12 => match self.below(4) {
                0 => (Op::Random { kind: Random::Uniform, shape, dtype: DType::F64 }, vec![key])
                    .into_whole(whole)?,
                1 => (Op::Iota { len: shape.iter().product(), dtype: DType::F64 }, vec![]),
                2 => (Op::Copy, vec![a]),
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

    /// A choice between two programs of one operand, or a loop over its rows.
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
