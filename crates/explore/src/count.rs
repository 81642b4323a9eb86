//! What each mode costs: counted in the programs that the library records of it.
//!
//! A program is traced for the function alone, for one forward pass, and for the function with one
//! backward pass. Ops are equations that compute (views and constants cost nothing);
//! multiplications are products and quotients of elements. What reverse mode keeps are the values
//! made before the backward pass begins that it reads later.

use crate::error::Answer;
use crate::expression::Graph;
use pullback::{Op, Program, Spec, Tensor, jvp, trace, vjp};

/// What one way of differentiating costs.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost {
    /// Which way.
    pub name: &'static str,
    /// How often the derivative part runs for all derivatives.
    pub passes: usize,
    /// Ops in all passes together, values included.
    pub ops: usize,
    /// Multiplications and divisions of elements in all of them.
    pub multiplications: usize,
    /// Bytes kept from the forward to the backward pass.
    pub kept: usize,
}

/// The costs of the function itself and of the requested modes (forward, reverse); `rows` elements
/// of the result are differentiated.
///
/// # Errors
/// If the expression cannot be traced.
pub fn of(graph: &Graph, (forward, reverse): (bool, bool), rows: usize) -> Answer<Vec<Cost>> {
    let specs: Vec<Spec> = graph.arguments().iter().map(|x| x.spec().clone()).collect();
    let f = |x: &Vec<Tensor>| graph.value(x);
    let plain = trace(|x| f(&x.to_vec()), &specs)?;
    let columns: usize = graph.arguments().iter().map(Tensor::len).sum();
    let mut costs = vec![Cost { name: "function", ..counted(&plain, 0) }];
    // Tangents and cotangents are given, as the variables are: making them is no part of the cost.
    let split = specs.len();
    if forward {
        let pass = trace(
            |x| jvp(f, &x[..split].to_vec(), &x[split..].to_vec()),
            &[&specs[..], &specs[..]].concat(),
        )?;
        let one = counted(&pass, 0);
        costs.push(Cost {
            name: "forward",
            passes: columns,
            ops: columns * one.ops,
            multiplications: columns * one.multiplications,
            kept: 0,
        });
    }
    if reverse {
        let recorded = trace(|x| vjp(f, &x.to_vec()).0, &specs)?;
        let start = recorded.equations.len();
        let result = graph.value(&graph.arguments()).spec().clone();
        let both = trace(
            |x| {
                let (y, back) = vjp(f, &x[..split].to_vec());
                (y, back(&x[split]))
            },
            &[&specs[..], &[result]].concat(),
        )?;
        let (there, back) = (counted(&recorded, 0), counted(&both, start));
        costs.push(Cost {
            name: "reverse",
            passes: rows,
            ops: there.ops + rows * back.ops,
            multiplications: there.multiplications + rows * back.multiplications,
            kept: kept(&both, split, start),
        });
    }
    Ok(costs)
}

/// Multiplications and divisions of elements in a program.
pub fn multiplications(program: &Program) -> usize {
    counted(program, 0).multiplications
}

fn counted(program: &Program, from: usize) -> Cost {
    let (mut ops, mut multiplications) = (0, 0);
    for e in &program.equations[from..] {
        if matches!(e.op, Op::View(_) | Op::After | Op::Literal { .. }) {
            continue;
        }
        ops += 1;
        let made: usize = e.outputs.iter().map(|&v| length(program.spec(v))).sum();
        let each = match &e.op {
            Op::Dot => {
                e.inputs.first().map_or(0, |&v| program.spec(v).shape.last().copied().unwrap_or(1))
            }
            Op::UnaryVjp(_) => 1,
            Op::Reduce(..) if e.op.name() == "prod" => {
                let taken: usize = e.inputs.iter().map(|&v| length(program.spec(v))).sum();
                taken / made.max(1)
            }
            op => usize::from(["mul", "div", "square", "recip", "pow"].contains(&op.name())),
        };
        multiplications += made * each;
    }
    Cost { name: "", passes: 1, ops, multiplications, kept: 0 }
}

/// Bytes of what is made (or is one of this many variables) before an equation and read from it on.
/// A view is the value it views.
fn kept(program: &Program, variables: usize, start: usize) -> usize {
    let mut base: Vec<usize> = (0..program.specs.len()).collect();
    let mut literal = vec![false; program.specs.len()];
    let mut before = vec![false; program.specs.len()];
    program.inputs[..variables].iter().for_each(|v| before[v.index()] = true);
    for e in &program.equations[..start] {
        for v in &e.outputs {
            before[v.index()] = true;
            literal[v.index()] = matches!(e.op, Op::Literal { .. });
            if let (Op::View(_) | Op::After, Some(viewed)) = (&e.op, e.inputs.first()) {
                base[v.index()] = base[viewed.index()];
            }
        }
    }
    let read = program.equations[start..].iter().flat_map(|e| &e.inputs);
    let mut found: Vec<usize> = read
        .filter(|v| before[v.index()])
        .map(|v| base[v.index()])
        .filter(|&v| !literal[v])
        .collect();
    found.sort_unstable();
    found.dedup();
    found.iter().map(|&v| length(&program.specs[v]) * program.specs[v].dtype.size()).sum()
}

fn length(spec: &Spec) -> usize {
    spec.shape.iter().product()
}
