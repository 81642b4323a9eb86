//! Control flow over many examples: every construct, batched by its rule, against a loop over the
//! examples.
//!
//! Programs are run by a plain interpreter here, so that what is compared is the batched program
//! itself.

use pullback::table::batched;
use pullback::{
    DType, Op, Program, Spec, Tensor, cond, grad, scan, scan_reverse, stack, trace, try_apply,
    vmap, while_loop, while_loop_bounded,
};
use pullback_ir::Flow;

/// Runs a program, control flow by plain loops.
fn run(program: &Program, inputs: &[Tensor]) -> Vec<Tensor> {
    let mut values: Vec<Option<Tensor>> = vec![None; program.specs.len()];
    for (v, x) in program.inputs.iter().zip(inputs) {
        values[v.index()] = Some(x.clone());
    }
    for e in &program.equations {
        let x: Vec<Tensor> =
            e.inputs.iter().map(|v| values[v.index()].clone().expect("defined before")).collect();
        let made = match &e.op {
            Op::Flow(flow) => run_flow(flow, &x),
            op => try_apply(op.clone(), &x.iter().collect::<Vec<_>>()).unwrap(),
        };
        for (v, y) in e.outputs.iter().zip(made) {
            assert_eq!(y.spec(), program.spec(*v), "{e:?}");
            values[v.index()] = Some(y);
        }
    }
    program.outputs.iter().map(|v| values[v.index()].clone().expect("defined")).collect()
}

fn run_flow(flow: &Flow, x: &[Tensor]) -> Vec<Tensor> {
    match flow {
        Flow::Cond { yes, no } => run(if x[0].item::<bool>() { yes } else { no }, &x[1..]),
        Flow::While { test, body, shared } => {
            let mut x = x.to_vec();
            while run(test, &x)[0].item::<bool>() {
                let next = run(body, &x);
                x.splice(shared.., next);
            }
            x.split_off(*shared)
        }
        Flow::Scan(scan) => {
            let (shared, rest) = x.split_at(scan.shared);
            let (carry, rows) = rest.split_at(scan.carry);
            let (mut carry, mut ys) = (carry.to_vec(), Vec::new());
            for i in 0..scan.length {
                let i = if scan.reverse { scan.length - 1 - i } else { i };
                let row = rows.iter().map(|x| x.select_at(0, i as isize));
                let given: Vec<Tensor> = shared.iter().chain(&carry).cloned().chain(row).collect();
                let mut made = run(&scan.body, &given);
                ys.push(made.split_off(scan.carry));
                carry = made;
            }
            if scan.reverse {
                ys.reverse();
            }
            let stacked = (0..scan.body.outputs.len() - scan.carry)
                .map(|k| stack(&ys.iter().map(|y| &y[k]).collect::<Vec<_>>(), 0));
            carry.into_iter().chain(stacked).collect()
        }
    }
}

/// The program for `n` examples of its inputs, and which results are batched.
fn over_examples(program: &Program, chosen: &[bool], n: usize) -> (Program, Vec<bool>) {
    let spec = |(v, &c): (&pullback_ir::Var, &bool)| match (program.spec(*v), c) {
        (spec, true) => Spec::cpu(spec.dtype, &[&[n], &spec.shape[..]].concat()[..]),
        (spec, false) => spec.clone(),
    };
    let specs: Vec<Spec> = program.inputs.iter().zip(chosen).map(spec).collect();
    let mut flags = Vec::new();
    let made = trace(
        |x: &[Tensor]| {
            let mut values: Vec<Option<(Tensor, bool)>> = vec![None; program.specs.len()];
            for (i, v) in program.inputs.iter().enumerate() {
                values[v.index()] = Some((x[i].clone(), chosen[i]));
            }
            for e in &program.equations {
                let operands: Vec<_> = e
                    .inputs
                    .iter()
                    .map(|v| values[v.index()].clone().expect("defined before"))
                    .collect();
                for (v, y) in e.outputs.iter().zip(batched(&e.op, &operands, n)) {
                    values[v.index()] = Some(y);
                }
            }
            let outs: Vec<(Tensor, bool)> = program
                .outputs
                .iter()
                .map(|v| values[v.index()].clone().expect("defined"))
                .collect();
            flags = outs.iter().map(|y| y.1).collect();
            outs.into_iter().map(|y| y.0).collect::<Vec<Tensor>>()
        },
        &specs,
    )
    .unwrap();
    made.verify().unwrap();
    (made, flags)
}

/// Every choice of batched arguments, at one level and at two.
fn check(program: &Program, examples: &[Vec<Tensor>]) {
    program.verify().unwrap();
    let (n, count) = (examples.len(), program.inputs.len());
    for number in 1..1u32 << count {
        let chosen: Vec<bool> = (0..count).map(|i| number & 1 << i != 0).collect();
        let lane = |j: usize| -> Vec<Tensor> {
            (0..count).map(|i| examples[if chosen[i] { j } else { 0 }][i].clone()).collect()
        };
        let joined = |i: usize| match chosen[i] {
            true => stack(&examples.iter().map(|x| &x[i]).collect::<Vec<_>>(), 0),
            false => examples[0][i].clone(),
        };
        let all: Vec<Tensor> = (0..count).map(joined).collect();
        let (over, flags) = over_examples(program, &chosen, n);
        let given = run(&over, &all);
        // Twice the same batch: two examples of n.
        let (twice, again) = over_examples(&over, &chosen, 2);
        let both: Vec<Tensor> = (0..count)
            .map(|i| if chosen[i] { stack(&[&all[i], &all[i]], 0) } else { all[i].clone() })
            .collect();
        let doubled = run(&twice, &both);
        for j in 0..n {
            let expected = run(program, &lane(j));
            for (k, expected) in expected.iter().enumerate() {
                let one =
                    |y: &Tensor| if flags[k] { y.select_at(0, j as isize) } else { y.clone() };
                let outer = match again[k] {
                    true => doubled[k].select_at(0, 1),
                    false => doubled[k].clone(),
                };
                for given in [one(&given[k]), one(&outer)] {
                    assert_eq!(given.spec(), expected.spec(), "{chosen:?}");
                    let pairs = given.to_f64_vec().into_iter().zip(expected.to_f64_vec());
                    // Products of one row and of many may be summed in another order.
                    let near =
                        pairs.clone().all(|(a, b)| (a - b).abs() <= 1e-13 * b.abs().max(1.0));
                    assert!(
                        near,
                        "{chosen:?}, example {j}, result {k}: {:?}\n{over}",
                        pairs.collect::<Vec<_>>()
                    );
                }
            }
        }
    }
}

fn spec(shape: &[usize]) -> Spec {
    Spec::cpu(DType::F64, shape)
}

fn values(seed: usize, shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    let one = |i: usize| ((i * 37 + seed * 101) % 97) as f64 / 50.0 - 0.9;
    Tensor::from_vec((0..n).map(one).collect::<Vec<f64>>(), shape)
}

fn examples(shapes: &[&[usize]]) -> Vec<Vec<Tensor>> {
    let of = |j: usize| shapes.iter().enumerate().map(|(i, s)| values(5 * j + i + 1, s)).collect();
    (0..3).map(of).collect()
}

#[test]
fn choices() {
    let shapes: [&[usize]; 3] = [&[], &[2], &[2]];
    // One branch does not look at the last argument, and gives one result that depends on nothing.
    let program = trace(
        |x: &[Tensor]| {
            let pair = (x[1].clone(), x[2].clone());
            cond(
                &x[0].gt(0.0),
                |(a, b): &(Tensor, Tensor)| (a * b, a.sum()),
                |(a, _)| (a.exp(), a.sum() * 0.0 + 3.0),
                &pair,
            )
        },
        &shapes.map(spec),
    )
    .unwrap();
    let of =
        |j: usize| vec![Tensor::from([0.5, -0.5, 0.25][j]), values(j, &[2]), values(j + 7, &[2])];
    check(&program, &(0..3).map(of).collect::<Vec<_>>());
}

#[test]
fn loops_that_end_at_different_turns() {
    // A counter with it, which is the same for all examples until they end at different iterations.
    let program = trace(
        |x: &[Tensor]| {
            let start = (x[0].clone(), Tensor::from(0i64));
            while_loop(
                |(s, _): &(Tensor, Tensor)| s.sum().lt(20.0),
                |(s, i)| (s * 1.5 + x[1].abs() + 0.5, i + 1i64),
                &start,
            )
        },
        &[spec(&[2]), spec(&[2])],
    )
    .unwrap();
    check(&program, &examples(&[&[2], &[2]]));
}

#[test]
fn loops_that_count() {
    // The test is the same for all examples: so it stays one jump.
    let program = trace(
        |x: &[Tensor]| {
            let start = (x[0].clone(), Tensor::from(0i64));
            while_loop(
                |(_, i): &(Tensor, Tensor)| i.lt(4i64),
                |(s, i)| ((s * &x[1]).sin(), i + 1i64),
                &start,
            )
        },
        &[spec(&[2]), spec(&[2])],
    )
    .unwrap();
    check(&program, &examples(&[&[2], &[2]]));
    let (over, flags) = over_examples(&program, &[true, false], 3);
    assert_eq!(flags, [true, false]);
    let any = |p: &Program| p.equations.iter().any(|e| e.op.name() == "max");
    let inner = over.equations.iter().find_map(|e| match &e.op {
        Op::Flow(flow) => Some(flow.programs().into_iter().any(any)),
        _ => None,
    });
    assert_eq!(inner, Some(false), "{over}");
}

#[test]
fn scans_in_both_directions() {
    let shapes: [&[usize]; 3] = [&[2], &[4, 2], &[2, 2]];
    for reverse in [false, true] {
        let program = trace(
            |x: &[Tensor]| {
                let iteration = |s: &Tensor, row: &Tensor| {
                    let next = (s.matmul(&x[2]) + row).tanh();
                    (next.clone(), (row * 2.0, next.sum()))
                };
                if reverse {
                    scan_reverse(iteration, &x[0], &x[1])
                } else {
                    scan(iteration, &x[0], &x[1])
                }
            },
            &shapes.map(spec),
        )
        .unwrap();
        check(&program, &examples(&shapes));
    }
}

#[test]
fn gradients_of_scans_and_bounded_loops() {
    let shapes: [&[usize]; 2] = [&[2], &[3, 2]];
    let program = trace(
        |x: &[Tensor]| {
            let loss = |s: &Tensor| {
                let (last, ys) =
                    scan(|s: &Tensor, row: &Tensor| ((s * row).sin(), s.square().sum()), s, &x[1]);
                last.sum() + ys.sum()
            };
            grad(loss)(&x[0])
        },
        &shapes.map(spec),
    )
    .unwrap();
    check(&program, &examples(&shapes));
    let program = trace(
        |x: &[Tensor]| {
            let grow = |s: &Tensor| {
                while_loop_bounded(6, |s: &Tensor| s.sum().lt(9.0), |s| s * 1.5 + x[1].exp(), s)
            };
            grad(|s: &Tensor| grow(s).square().sum())(&x[0])
        },
        &[spec(&[2]), spec(&[2])],
    )
    .unwrap();
    check(&program, &examples(&[&[2], &[2]]));
}

/// Derivatives of derivatives of loops, in programs and over many examples, against those of the
/// loop that runs as it is written.
#[test]
fn second_derivatives_of_scans() {
    let shapes: [&[usize]; 2] = [&[2], &[3, 2]];
    let rows = values(3, &[3, 2]);
    let loss = |s: &Tensor, rows: &Tensor| {
        let iteration = |s: &Tensor, row: &Tensor| ((s * row).sin() * s, s.square().sum());
        let (last, ys) = scan(iteration, s, rows);
        last.sum() + ys.sum()
    };
    let twice = |s: &Tensor, rows: &Tensor| {
        grad(|s: &Tensor| grad(|s: &Tensor| loss(s, rows))(s).square().sum())(s)
    };
    let near = |a: &Tensor, b: &Tensor| {
        let pairs = a.to_f64_vec().into_iter().zip(b.to_f64_vec());
        let alike = pairs.clone().all(|(a, b)| (a - b).abs() <= 1e-12 * b.abs().max(1.0));
        assert!(alike && a.shape() == b.shape(), "{:?}", pairs.collect::<Vec<_>>());
    };
    let program = trace(|x: &[Tensor]| twice(&x[0], &x[1]), &shapes.map(spec)).unwrap();
    let s = values(1, &[2]);
    near(&run(&program, &[s.clone(), rows.clone()])[0], &twice(&s, &rows));
    check(&program, &examples(&shapes));

    // A gradient of gradients of examples.
    let over = trace(
        |x: &[Tensor]| {
            let outer = |s: &Tensor| {
                let each = |rows: &Tensor| grad(|s: &Tensor| loss(s, rows))(s);
                vmap(each, 0, 0)(&x[1]).square().sum()
            };
            grad(outer)(&x[0])
        },
        &[spec(&[2]), spec(&[4, 3, 2])],
    )
    .unwrap();
    let many: Vec<Tensor> = (0..4).map(|j| values(j, &[3, 2])).collect();
    let expected = many.iter().map(|rows| twice(&s, rows)).reduce(|a, b| a + b).unwrap();
    near(&run(&over, &[s, stack(&many.iter().collect::<Vec<_>>(), 0)])[0], &expected);
}
