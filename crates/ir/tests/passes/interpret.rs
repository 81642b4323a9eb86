//! A tiny interpreter of programs on `f64`: the oracle for passes.
//!
//! Values are lists of `f64` in row-major order whatever their dtype, rounded to it after each op.
//! Only the ops that the generator uses are implemented.

use pullback_ir::infer::infer;
use pullback_ir::pass::Constant;
use pullback_ir::*;
use smallvec::SmallVec;

pub type Data = Vec<f64>;

pub fn rounded(dtype: DType, v: f64) -> f64 {
    match dtype {
        DType::F64 => v,
        DType::F32 => f64::from(v as f32),
        // Integers have no negative zero.
        DType::I64 => v.trunc() + 0.0,
        DType::Bool => f64::from(u8::from(v != 0.0)),
        dtype => panic!("{dtype} is not generated"),
    }
}

/// The result of a pointwise op on one element of each operand.
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
    let specs: Vec<Spec> = of.iter().map(|c| Spec::cpu(c.dtype, Shape::new())).collect();
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
                out.push(rounded(dtype, terms.fold(0.0, |a, b| a + b)));
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
    let column = |&v: &usize| {
        let sum = |c| (0..rows).map(move |r| r * row + c);
        let at = |c| reduced(Reduction::Sum, sum(c).map(|i| values[v][i]), kinds[v].dtype);
        (0..row).map(at).collect()
    };
    let outputs = region.outputs.iter().map(|&v| values[v].clone());
    outputs.chain(region.columns.iter().map(column)).collect()
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
            Op::After | Op::Transfer(_) => vec![of[0].to_vec()],
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
            for iteration in 0..scan.length {
                let i = if scan.reverse { scan.length - 1 - iteration } else { iteration };
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
