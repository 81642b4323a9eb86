//! Values, first and second derivatives at extremes (zeros, infinities, NaN, the smallest and
//! largest numbers, kinks) compared with those of PyTorch, which `data/extremes.py` wrote. What
//! differs and stays so is listed in `extremes_torch/kept/` with its reason, and in
//! `docs/conventions.md`.
//!
//! Compiled code gives what eager code gives at all of these points, and forward mode what reverse
//! mode gives.

#[path = "extremes_torch/cases.rs"]
mod cases;
#[path = "extremes_torch/kept.rs"]
mod kept;

use cases::{Case, case};
use kept::Kept;
use pullback::{DType, Tensor, grad, jit, jvp};
use std::collections::{BTreeMap, BTreeSet};

/// The results of a function at a list of points.
struct Block {
    name: String,
    dtype: DType,
    /// A column for each operand.
    points: Vec<Vec<f64>>,
    /// A column for each result; `None` where PyTorch has no such derivative.
    results: Vec<Vec<Option<f64>>>,
}

/// A line of numbers; `v*n` is v, n times.
fn numbers(line: &str) -> Vec<Option<f64>> {
    let mut list = Vec::new();
    for word in line.split(' ') {
        let (value, count) = word.split_once('*').unwrap_or((word, "1"));
        let value = (value != "-").then(|| value.parse::<f64>().expect("a number"));
        list.extend(std::iter::repeat_n(value, count.parse().expect("a count")));
    }
    list
}

fn blocks() -> Vec<Block> {
    let mut points: BTreeMap<(String, String), Vec<Vec<f64>>> = BTreeMap::new();
    let mut list: Vec<Block> = Vec::new();
    let mut reading = None;
    for line in include_str!("data/extremes.txt").lines().skip(1) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["points", name, dtype] => {
                let key = (name.to_string(), dtype.to_string());
                points.insert(key.clone(), Vec::new());
                reading = Some(key);
            }
            [name, dtype @ ("f64" | "f32"), at] => {
                reading = None;
                let points = points[&(at.to_string(), dtype.to_string())].clone();
                let dtype = if dtype == "f64" { DType::F64 } else { DType::F32 };
                list.push(Block { name: name.to_string(), dtype, points, results: Vec::new() });
            }
            _ => match &reading {
                Some(key) => {
                    let column = numbers(line).into_iter().map(|v| v.expect("a point")).collect();
                    points.get_mut(key).expect("begun").push(column);
                }
                None => list.last_mut().expect("begun").results.push(numbers(line)),
            },
        }
    }
    list
}

fn tensor(values: &[f64], dtype: DType) -> Tensor {
    Tensor::from(values).cast(dtype)
}

fn pair(a: Tensor, b: Tensor) -> Vec<Tensor> {
    vec![a, b]
}

/// The columns that PyTorch gives, here.
fn all(f: Case, x: &[Tensor]) -> Vec<Tensor> {
    match f {
        Case::One(f) => {
            let sum = |x: &Tensor| f(x).sum();
            let first = grad(sum);
            let second = grad(|x: &Tensor| grad(sum)(x).sum());
            vec![f(&x[0]), first(&x[0]), second(&x[0])]
        }
        Case::Two(f) => {
            let x = pair(x[0].clone(), x[1].clone());
            let sum = |x: &Vec<Tensor>| f(&x[0], &x[1]).sum();
            let mut out = vec![f(&x[0], &x[1])];
            out.extend(grad(sum)(&x));
            for i in 0..2 {
                out.extend(grad(|x: &Vec<Tensor>| grad(sum)(x)[i].sum())(&x));
            }
            out
        }
        Case::Rows(f) => {
            let x = pullback::stack(&[&x[0], &x[1], &x[2]], 1);
            let weights = |y: &Tensor| {
                Tensor::from([1.0, 2.0, 3.0]).narrow(0, 0, y.shape()[1]).cast(y.dtype())
            };
            let y = f(&x);
            let dx = grad(|x: &Tensor| {
                let y = f(x);
                (&y * weights(&y)).sum()
            })(&x);
            let column = |t: &Tensor, k: usize| t.select_at(1, k as isize);
            let results = (0..y.shape()[1]).map(|k| column(&y, k));
            results.chain((0..3).map(|k| column(&dx, k))).collect()
        }
    }
}

/// The first derivatives in forward mode.
fn forward(f: Case, x: &[Tensor]) -> Vec<Tensor> {
    match f {
        Case::One(f) => vec![jvp(f, &x[0], &x[0].ones_like()).1],
        // By one at a time: the other carries no tangent, as one of 0 would be multiplied by
        // infinities.
        Case::Two(f) => vec![
            jvp(|a: &Tensor| f(a, &x[1]), &x[0], &x[0].ones_like()).1,
            jvp(|b: &Tensor| f(&x[0], b), &x[1], &x[1].ones_like()).1,
        ],
        Case::Rows(_) => Vec::new(),
    }
}

/// Whether two are the same number, but for rounding.
fn same(a: f64, b: f64, dtype: DType) -> bool {
    let (tolerance, least) = match dtype {
        DType::F64 => (1e-11, 4.0 * f64::MIN_POSITIVE),
        _ => (1e-5, 4.0 * f64::from(f32::MIN_POSITIVE)),
    };
    if a.is_nan() || b.is_nan() {
        return a.is_nan() && b.is_nan();
    }
    // What is not normal may be 0 on either side.
    a == b
        || (a - b).abs() <= tolerance * a.abs().min(b.abs())
        || (a.abs() < least && b.abs() < least)
}

/// What a column is: the value, a first or a second derivative.
fn order(block: &Block, column: usize) -> usize {
    let operands = block.points.len();
    match operands {
        3 => usize::from(column + 3 >= block.results.len()),
        _ if column == 0 => 0,
        _ => 1 + usize::from(column > operands),
    }
}

struct Difference {
    name: String,
    dtype: DType,
    column: usize,
    order: usize,
    at: Vec<f64>,
    here: f64,
    there: f64,
}

fn differences() -> Vec<Difference> {
    let mut found = Vec::new();
    for block in blocks() {
        let f =
            case(&block.name).unwrap_or_else(|| panic!("{} is not among the cases", block.name));
        let x: Vec<Tensor> = block.points.iter().map(|v| tensor(v, block.dtype)).collect();
        let here = all(f, &x);
        assert_eq!(here.len(), block.results.len(), "{}", block.name);
        for (column, (here, there)) in here.iter().zip(&block.results).enumerate() {
            for (i, (here, there)) in here.to_f64_vec().into_iter().zip(there).enumerate() {
                let Some(there) = *there else { continue };
                if !same(here, there, block.dtype) {
                    found.push(Difference {
                        name: block.name.clone(),
                        dtype: block.dtype,
                        column,
                        order: order(&block, column),
                        at: block.points.iter().map(|v| v[i]).collect(),
                        here,
                        there,
                    });
                }
            }
        }
    }
    found
}

fn covers(kept: &Kept, d: &Difference) -> bool {
    kept.functions.contains(&&d.name[..])
        && kept.orders.contains(&d.order)
        && (kept.at)(&d.at, d.here, d.there)
}

#[test]
fn extremes_are_those_of_pytorch_or_said_to_differ() {
    let found = differences();
    let mut used = BTreeSet::new();
    let mut rest: BTreeMap<(String, usize), Vec<String>> = BTreeMap::new();
    for d in &found {
        match kept::all().position(|kept| covers(kept, d)) {
            Some(i) => _ = used.insert(i),
            None => rest.entry((d.name.clone(), d.column)).or_default().push(format!(
                "    {:?} {:e}: {:e}, PyTorch {:e}",
                d.dtype,
                List(&d.at),
                d.here,
                d.there
            )),
        }
    }
    for ((name, column), list) in &rest {
        println!("{name}, column {column}\n{}", list.join("\n"));
    }
    for (i, kept) in kept::all().enumerate() {
        if !used.contains(&i) {
            println!("no longer so: {:?} at {}", kept.functions, kept.place);
        }
    }
    let (count, unused) =
        (rest.values().map(Vec::len).sum::<usize>(), kept::all().count() - used.len());
    assert!(count == 0 && unused == 0, "{count} differences, {unused} entries that no longer hold");
}

struct List<'a>(&'a [f64]);

impl std::fmt::LowerExp for List<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|v| write!(f, "{v:e} "))
    }
}

#[test]
fn compiled_code_gives_the_same_at_extremes() {
    let mut failures = Vec::new();
    for block in blocks() {
        let f = case(&block.name).expect("a case");
        let x: Vec<Tensor> = block.points.iter().map(|v| tensor(v, block.dtype)).collect();
        let eager = all(f, &x);
        let compiled = jit(|x: &Vec<Tensor>| all(f, x)).call(&x).expect("it compiles");
        for (column, (a, b)) in eager.iter().zip(&compiled).enumerate() {
            for (i, (a, b)) in a.to_f64_vec().into_iter().zip(b.to_f64_vec()).enumerate() {
                if !same(a, b, block.dtype) {
                    let at: Vec<f64> = block.points.iter().map(|v| v[i]).collect();
                    let (name, dtype) = (&block.name, block.dtype);
                    failures.push(format!(
                        "{name} {dtype:?}, column {column}, at {:e}: {a:e} and {b:e} compiled",
                        List(&at)
                    ));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
}

/// Where both modes are right but for rounding, or one multiplies 0 by infinity: sums whose terms
/// cancel, and the sign of a ranking that infinite scores have.
const IN_ANOTHER_ORDER: [&str; 3] = ["softsign", "poisson", "margin_ranking"];

#[test]
fn forward_mode_gives_the_same_at_extremes() {
    let mut failures = Vec::new();
    for block in blocks() {
        let f = case(&block.name).expect("a case");
        let x: Vec<Tensor> = block.points.iter().map(|v| tensor(v, block.dtype)).collect();
        if IN_ANOTHER_ORDER.contains(&&block.name[..]) {
            continue;
        }
        let (reverse, forward) = (all(f, &x), forward(f, &x));
        for (k, b) in forward.iter().enumerate() {
            let a = reverse[1 + k].to_f64_vec();
            for (i, (a, b)) in a.into_iter().zip(b.to_f64_vec()).enumerate() {
                if !same(a, b, block.dtype) {
                    let at: Vec<f64> = block.points.iter().map(|v| v[i]).collect();
                    let (name, dtype) = (&block.name, block.dtype);
                    failures.push(format!(
                        "{name} {dtype:?} by operand {k}, at {:e}: {a:e} and {b:e} forward",
                        List(&at)
                    ));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
}

/// The list as `docs/conventions.md` has it.
fn table() -> Vec<String> {
    let of = |orders: &[usize]| -> String {
        let names: Vec<&str> = orders.iter().map(|&k| ["value", "first", "second"][k]).collect();
        names.join(", ")
    };
    let line = |kept: &Kept| {
        let functions: Vec<String> = kept.functions.iter().map(|f| format!("`{f}`")).collect();
        let (functions, of) = (functions.join(", "), of(kept.orders));
        format!("| {functions} | {of} | {} | {} |", kept.place, kept.reason)
    };
    kept::all().map(line).collect()
}

#[test]
fn the_list_of_differences_is_in_the_documentation() {
    let text = include_str!("../../../docs/conventions.md");
    let section = text.split("## Where PyTorch gives something else").nth(1).expect("the section");
    let section = section.split("\n## ").next().unwrap();
    let written: Vec<&str> = section.lines().filter(|line| line.starts_with("| `")).collect();
    let table = table();
    assert!(written == table, "the section should have these lines:\n{}", table.join("\n"));
}
