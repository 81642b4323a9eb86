//! The functions an expression may name. Those of one or two elements come from the library's op
//! table, so that a new op is known here at once; the rest is one table below.

use pullback::{DType, Op, Tensor, broadcast_tensors, cat, linalg, stack, try_apply};
use std::sync::OnceLock;

/// A function with its name.
#[derive(Debug)]
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// What it takes, and how it is computed.
    pub kind: FunctionKind,
    /// How it is written between or before its operands, if it is.
    pub symbol: Option<&'static str>,
}

/// What a function takes.
#[derive(Debug)]
pub enum FunctionKind {
    /// One tensor, by an op of the table.
    Unary(Op),
    /// Two tensors that broadcast, by an op of the table.
    Binary(Op),
    /// So many tensors, then numbers, which may be left out if they have a default.
    Of(usize, &'static [NumberParameter], fn(&[Tensor], &[f64]) -> Tensor),
    /// A tensor, and perhaps an axis.
    Reduction(fn(&Tensor, Option<isize>) -> Tensor),
    /// One or more tensors.
    Several(fn(&[&Tensor]) -> Tensor),
}

/// A number that a function takes, in addition to its tensors.
#[derive(Debug)]
pub struct NumberParameter {
    /// What it is called in messages.
    pub name: &'static str,
    /// Its value where it is left out.
    pub usual: Option<f64>,
    /// Only integers.
    pub whole: bool,
}

const fn number(name: &'static str, usual: f64) -> NumberParameter {
    NumberParameter { name, usual: Some(usual), whole: false }
}

const fn axis(usual: f64) -> NumberParameter {
    NumberParameter { name: "axis", usual: Some(usual), whole: true }
}

type FunctionRow = (&'static str, FunctionKind);

macro_rules! of {
    ($tensors:literal, [$($number:expr),*], |$x:ident, $n:ident| $body:expr) => {
        FunctionKind::Of($tensors, const { &[$($number),*] }, |$x, $n| $body)
    };
}

macro_rules! reduction {
    ($all:ident, $over:ident) => {
        FunctionKind::Reduction(|x, axis| match axis {
            None => x.$all(),
            Some(axis) => x.$over([axis]),
        })
    };
}

/// Functions that are not one op of the table.
#[rustfmt::skip]
fn rows() -> Vec<FunctionRow> {
    vec![
        ("sum",           reduction!(sum, sum_over)),
        ("mean",          reduction!(mean, mean_over)),
        ("prod",          reduction!(prod, prod_over)),
        ("max",           reduction!(max, max_over)),
        ("min",           reduction!(min, min_over)),
        ("var",           reduction!(var, var_over)),
        ("std",           reduction!(std, std_over)),
        ("norm",          reduction!(norm, norm_over)),
        ("logsumexp",     reduction!(logsumexp, logsumexp_over)),
        ("softmax",       of!(1, [axis(-1.0)], |x, n| x[0].softmax(n[0] as isize))),
        ("log_softmax",   of!(1, [axis(-1.0)], |x, n| x[0].log_softmax(n[0] as isize))),
        ("cumsum",        of!(1, [axis(-1.0)], |x, n| x[0].cumsum(n[0] as isize))),
        ("cumprod",       of!(1, [axis(-1.0)], |x, n| x[0].cumprod(n[0] as isize))),
        ("normalize",     of!(1, [number("p", 2.0), axis(-1.0)], |x, n| x[0].normalize(n[0], n[1] as isize, 1e-12))),
        ("matmul",        of!(2, [], |x, _n| x[0].matmul(&x[1]))),
        ("dot",           of!(2, [], |x, _n| x[0].dot(&x[1]))),
        ("outer",         of!(2, [], |x, _n| x[0].outer(&x[1]))),
        ("cross",         of!(2, [axis(-1.0)], |x, n| x[0].cross(&x[1], n[0] as isize))),
        ("cosine_similarity", of!(2, [axis(-1.0)], |x, n| x[0].cosine_similarity(&x[1], n[0] as isize, 1e-8))),
        ("transpose",     of!(1, [], |x, _n| x[0].t())),
        ("trace",         of!(1, [], |x, _n| x[0].trace())),
        ("det",           of!(1, [], |x, _n| linalg::det(&x[0]))),
        ("logdet",        of!(1, [], |x, _n| linalg::logdet(&x[0]))),
        ("inv",           of!(1, [], |x, _n| linalg::inv(&x[0]))),
        ("solve",         of!(2, [], |x, _n| linalg::solve(&x[0], &x[1]))),
        ("cholesky",      of!(1, [], |x, _n| linalg::cholesky(&x[0], false))),
        ("matrix_exp",    of!(1, [], |x, _n| linalg::matrix_exp(&x[0]))),
        ("diag",          of!(1, [], |x, _n| x[0].diag(0))),
        ("flatten",       of!(1, [], |x, _n| x[0].reshape([-1]))),
        ("where",         of!(3, [], |x, _n| x[0].ne(0).select(&x[1], &x[2]))),
        ("clamp",         of!(1, [number("low", f64::NEG_INFINITY), number("high", f64::INFINITY)], |x, n| x[0].clamp(n[0], n[1]))),
        ("lerp",          of!(3, [], |x, _n| x[0].lerp(&x[1], &x[2]))),
        ("logaddexp",     of!(2, [], |x, _n| x[0].logaddexp(&x[1]))),
        ("hypot",         of!(2, [], |x, _n| x[0].hypot(&x[1]))),
        ("xlogy",         of!(2, [], |x, _n| x[0].xlogy(&x[1]))),
        ("leaky_relu",    of!(1, [number("slope", 0.01)], |x, n| x[0].leaky_relu(n[0]))),
        ("elu",           of!(1, [number("alpha", 1.0)], |x, n| x[0].elu(n[0]))),
        ("celu",          of!(1, [number("alpha", 1.0)], |x, n| x[0].celu(n[0]))),
        ("softplus",      of!(1, [number("beta", 1.0), number("threshold", 20.0)], |x, n| x[0].softplus(n[0], n[1]))),
        ("softshrink",    of!(1, [number("lambda", 0.5)], |x, n| x[0].softshrink(n[0]))),
        ("hardshrink",    of!(1, [number("lambda", 0.5)], |x, n| x[0].hardshrink(n[0]))),
        ("hardtanh",      of!(1, [number("low", -1.0), number("high", 1.0)], |x, n| x[0].hardtanh(n[0], n[1]))),
        ("selu",          of!(1, [], |x, _n| x[0].selu())),
        ("log_sigmoid",   of!(1, [], |x, _n| x[0].log_sigmoid())),
        ("mish",          of!(1, [], |x, _n| x[0].mish())),
        ("softsign",      of!(1, [], |x, _n| x[0].softsign())),
        ("tanhshrink",    of!(1, [], |x, _n| x[0].tanhshrink())),
        ("relu6",         of!(1, [], |x, _n| x[0].relu6())),
        ("hardsigmoid",   of!(1, [], |x, _n| x[0].hardsigmoid())),
        ("hardswish",     of!(1, [], |x, _n| x[0].hardswish())),
        ("logit",         of!(1, [], |x, _n| x[0].logit())),
        ("sinc",          of!(1, [], |x, _n| x[0].sinc())),
        ("entr",          of!(1, [], |x, _n| x[0].entr())),
        ("ndtr",          of!(1, [], |x, _n| x[0].ndtr())),
        ("frac",          of!(1, [], |x, _n| x[0].frac())),
        ("cat",           FunctionKind::Several(|x| cat(x, 0))),
        ("stack",         FunctionKind::Several(|x| stack(x, 0))),
        ("power",         of!(1, [NumberParameter { name: "exponent", usual: None, whole: false }], |x, n| power(&x[0], n[0]))),
    ]
}

/// Operators: symbol, number of operands, and the function of this name.
#[rustfmt::skip]
const OPERATORS: &[(&str, usize, &str)] = &[
    ("+", 2, "add"), ("-", 2, "sub"), ("*", 2, "mul"), ("/", 2, "div"), ("^", 2, "pow"), ("@", 2, "matmul"), ("-", 1, "neg"),
    ("<", 2, "lt"), ("<=", 2, "le"), (">", 2, "gt"), (">=", 2, "ge"), ("==", 2, "eq"), ("!=", 2, "ne"),
];

/// Other names of the same function.
const ALIASES: &[(&str, &str)] =
    &[("ln", "log"), ("swish", "silu"), ("logistic", "sigmoid"), ("t", "transpose")];

/// All functions, by name.
pub fn all() -> &'static [Function] {
    static ALL: OnceLock<Vec<Function>> = OnceLock::new();
    ALL.get_or_init(|| {
        // Those of bits and integers have no place among real numbers.
        let of_table = Op::forms().filter_map(|op| {
            let name = op.name();
            match op {
                Op::Unary(f) => {
                    f.takes().has(DType::F64).then_some((name, FunctionKind::Unary(op)))
                }
                Op::Binary(f) => {
                    f.takes().has(DType::F64).then_some((name, FunctionKind::Binary(op)))
                }
                Op::Compare(_) => Some((name, FunctionKind::Binary(op))),
                _ => None,
            }
        });
        let symbol = |name: &str| OPERATORS.iter().find(|row| row.2 == name).map(|row| row.0);
        let mut all: Vec<Function> = of_table
            .chain(rows())
            .map(|(name, kind)| Function { name, symbol: symbol(name), kind })
            .collect();
        all.sort_by_key(|f| f.name);
        all
    })
}

/// All names that can be called.
pub fn names() -> Vec<&'static str> {
    all().iter().map(|f| f.name).chain(ALIASES.iter().map(|row| row.0)).collect()
}

/// The function of this name.
pub fn find(name: &str) -> Option<&'static Function> {
    let name = ALIASES.iter().find(|row| row.0 == name).map_or(name, |row| row.1);
    all().iter().find(|f| f.name == name)
}

/// The function that a symbol denotes with this many operands.
pub fn operator(symbol: &str, operands: usize) -> Option<&'static Function> {
    let row = OPERATORS.iter().find(|row| row.0 == symbol && row.1 == operands)?;
    find(row.2)
}

impl Function {
    /// How many of the arguments are tensors; the rest are numbers.
    pub fn tensors(&self, given: usize) -> usize {
        match self.kind {
            FunctionKind::Unary(_) | FunctionKind::Reduction(_) => 1,
            FunctionKind::Binary(_) => 2,
            FunctionKind::Of(tensors, ..) => tensors,
            FunctionKind::Several(_) => given,
        }
    }

    /// The numbers it takes after its tensors.
    pub fn numbers(&self) -> &'static [NumberParameter] {
        const AXIS: &[NumberParameter] =
            &[NumberParameter { name: "axis", usual: Some(f64::NAN), whole: true }];
        match self.kind {
            FunctionKind::Unary(_) | FunctionKind::Binary(_) | FunctionKind::Several(_) => &[],
            FunctionKind::Reduction(_) => AXIS,
            FunctionKind::Of(_, numbers, _) => numbers,
        }
    }

    /// Whether it takes this many arguments.
    ///
    /// # Errors
    /// With what it takes instead.
    pub fn accepts(&self, given: usize) -> Result<(), String> {
        if let FunctionKind::Several(_) = self.kind {
            return if given > 0 { Ok(()) } else { Err("one argument or more".into()) };
        }
        let least =
            self.tensors(given) + self.numbers().iter().filter(|n| n.usual.is_none()).count();
        let most = self.tensors(given) + self.numbers().len();
        let plural = |n: usize| if n == 1 { "argument" } else { "arguments" };
        match (least..=most).contains(&given) {
            true => Ok(()),
            false if least == most => Err(format!("{least} {}", plural(least))),
            false => Err(format!("{least} to {most} arguments")),
        }
    }

    /// Computes it. Numbers that were left out have their defaults.
    pub fn apply(&self, tensors: &[Tensor], numbers: &[f64]) -> Tensor {
        match &self.kind {
            FunctionKind::Unary(op) => one(op, &[&real(&tensors[0])]),
            FunctionKind::Binary(op) => binary(op, &real(&tensors[0]), &real(&tensors[1])),
            FunctionKind::Of(_, _, f) => f(&tensors.iter().map(real).collect::<Vec<_>>(), numbers),
            FunctionKind::Reduction(f) => {
                // NaN marks an omitted axis.
                let axis = numbers.first().filter(|n| !n.is_nan()).map(|&n| n as isize);
                f(&real(&tensors[0]), axis)
            }
            FunctionKind::Several(f) => f(&tensors.iter().collect::<Vec<_>>()),
        }
    }
}

/// Booleans as 0 and 1.
fn real(x: &Tensor) -> Tensor {
    if x.dtype().is_float() { x.clone() } else { x.cast(DType::F64) }
}

fn binary(op: &Op, a: &Tensor, b: &Tensor) -> Tensor {
    // The operators of the library name themselves in messages about shapes; the other ops are
    // broadcast here.
    match op.name() {
        "add" => a + b,
        "sub" => a - b,
        "mul" => a * b,
        "div" => a / b,
        _ => {
            let both = broadcast_tensors(&[a, b]);
            one(op, &[&both[0], &both[1]])
        }
    }
}

/// The only result of an op.
fn one(op: &Op, operands: &[&Tensor]) -> Tensor {
    match try_apply(op.clone(), operands) {
        Ok(mut results) => results.swap_remove(0),
        // Raises an error as the library does; `pullback::catch` turns it into an `Err` again.
        Err(error) => std::panic::resume_unwind(Box::new(error)),
    }
}

/// A power by a plain number: exact for whole ones.
fn power(x: &Tensor, exponent: f64) -> Tensor {
    match exponent.fract() == 0.0 && exponent.abs() <= 1024.0 {
        true => x.powi(exponent as i32),
        false => x.powf(exponent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        let names = names();
        for name in &names {
            assert_eq!(names.iter().filter(|n| *n == name).count(), 1, "{name} twice");
            assert!(find(name).is_some(), "{name}");
        }
        assert!(OPERATORS.iter().all(|(symbol, n, _)| operator(symbol, *n).is_some()));
    }
}
