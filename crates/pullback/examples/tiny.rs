//! The whole idea on scalars: automatic differentiation in one file, read top to bottom.
//!
//! A computation is a list of small operations. If we know the slope of each one, the chain rule
//! gives the slope of the whole, and there are two orders in which to multiply the slopes out:
//!
//! - **forward**, along with the computation: every number carries its derivative along (`Dual`);
//! - **reverse**, after it: the operations are written on a `Tape`, which is then read backwards.
//!   One sweep gives the derivative of one output by *every* input, however many there are.
//!
//! Both read the same table, `Op::slopes`. Run it with `cargo run --example tiny`. The tests use
//! this file as an oracle, since it is short enough to be checked by eye.
#![allow(dead_code)] // a test uses only part of it
#![allow(missing_docs)] // `sin` is the sine
#![allow(clippy::new_without_default)]

use std::cell::RefCell;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// An operation is plain data: it can be stored, printed and matched on. A closure cannot.
#[derive(Clone, Copy, Debug, PartialEq)]
#[rustfmt::skip]
pub enum Op { Input, Add, Sub, Mul, Div, Neg, Sin, Cos, Exp, Ln, Tanh, Sqrt, Powi(i32) }

impl Op {
    /// The derivative table: for y = op(a, b), the slopes ∂y/∂a and ∂y/∂b. It is all that is
    /// specific to an operation; everything below it is bookkeeping. (Unary ops ignore b.)
    #[rustfmt::skip]
    fn slopes<T: Num>(self, a: T, b: T, y: T) -> [T; 2] {
        let [zero, one, two] = [0.0, 1.0, 2.0].map(T::constant);
        match self {
            Op::Input   => [zero, zero],
            Op::Add     => [one, one],
            Op::Sub     => [one, -one],
            Op::Mul     => [b, a],
            Op::Div     => [one / b, -y / b],
            Op::Neg     => [-one, zero],
            Op::Sin     => [a.cos(), zero],
            Op::Cos     => [-a.sin(), zero],
            Op::Exp     => [y, zero],
            Op::Ln      => [one / a, zero],
            Op::Tanh    => [one - y * y, zero],
            Op::Sqrt    => [one / (two * y), zero],
            Op::Powi(0) => [zero, zero],
            Op::Powi(n) => [T::constant(n.into()) * a.powi(n - 1), zero],
        }
    }
}

/// What can be computed with: an `f64`, a `Dual`, or a `Var` on a tape. A function written for any
/// `Num` can be evaluated, or differentiated in either mode. All arithmetic goes through one
/// function, `apply`, so a new kind of number needs only to say what happens there.
#[rustfmt::skip]
pub trait Num: Copy + Neg<Output = Self>
    + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    /// A number that depends on no input.
    fn constant(value: f64) -> Self;
    /// op(a, b).
    fn apply(op: Op, a: Self, b: Self) -> Self;

    /// op(self), for the unary operations: the second operand is an unused zero.
    fn unary(self, op: Op) -> Self { Self::apply(op, self, Self::constant(0.0)) }
    fn sin(self)  -> Self { self.unary(Op::Sin) }
    fn cos(self)  -> Self { self.unary(Op::Cos) }
    fn exp(self)  -> Self { self.unary(Op::Exp) }
    fn ln(self)   -> Self { self.unary(Op::Ln) }
    fn tanh(self) -> Self { self.unary(Op::Tanh) }
    fn sqrt(self) -> Self { self.unary(Op::Sqrt) }
    fn powi(self, n: i32) -> Self { self.unary(Op::Powi(n)) }
}

/// The base case: only here are numbers computed.
impl Num for f64 {
    fn constant(value: f64) -> f64 {
        value
    }
    #[rustfmt::skip]
    fn apply(op: Op, a: f64, b: f64) -> f64 {
        match op {
            Op::Input   => a,
            Op::Add     => a + b,
            Op::Sub     => a - b,
            Op::Mul     => a * b,
            Op::Div     => a / b,
            Op::Neg     => -a,
            Op::Sin     => a.sin(),
            Op::Cos     => a.cos(),
            Op::Exp     => a.exp(),
            Op::Ln      => a.ln(),
            Op::Tanh    => a.tanh(),
            Op::Sqrt    => a.sqrt(),
            Op::Powi(n) => a.powi(n),
        }
    }
}

/// Forward mode: a value and its derivative in one chosen direction, computed side by side.
#[derive(Clone, Copy, Debug)]
pub struct Dual<T = f64> {
    pub value: T,
    pub tangent: T,
}

impl<T: Num> Num for Dual<T> {
    fn constant(value: f64) -> Self {
        Dual { value: T::constant(value), tangent: T::constant(0.0) }
    }
    fn apply(op: Op, a: Self, b: Self) -> Self {
        let value = T::apply(op, a.value, b.value);
        let [da, db] = op.slopes(a.value, b.value, value);
        Dual { value, tangent: da * a.tangent + db * b.tangent }
    }
}

/// One line of the tape: what was done, to which numbers, and what came out.
#[derive(Clone, Copy, Debug)]
pub struct Node<T = f64> {
    pub op: Op,
    /// Each operand's value and, unless it is a constant, the line that produced it.
    pub inputs: [(T, Option<usize>); 2],
    pub value: T,
}

/// Reverse mode: the record of a computation, in the order in which it ran.
#[derive(Debug)]
pub struct Tape<T = f64> {
    nodes: RefCell<Vec<Node<T>>>,
}

/// A number with the line of the tape that computed it; a constant has none.
#[derive(Clone, Copy, Debug)]
pub struct Var<'t, T = f64> {
    pub value: T,
    place: Option<(&'t Tape<T>, usize)>,
}

impl<T: Num> Num for Var<'_, T> {
    fn constant(value: f64) -> Self {
        Var { value: T::constant(value), place: None }
    }
    fn apply(op: Op, a: Self, b: Self) -> Self {
        let value = T::apply(op, a.value, b.value);
        let inputs = [a, b].map(|v| (v.value, v.place.map(|(_, line)| line)));
        if let (Some((s, _)), Some((t, _))) = (a.place, b.place) {
            assert!(std::ptr::eq(s, t), "operands of {op:?} are on different tapes");
        }
        match a.place.or(b.place) {
            Some((tape, _)) => tape.push(Node { op, inputs, value }),
            None => Var { value, place: None },
        }
    }
}

impl<T: Num> Tape<T> {
    /// An empty tape.
    pub fn new() -> Self {
        Tape { nodes: RefCell::new(Vec::new()) }
    }

    /// A new independent variable.
    pub fn input(&self, value: T) -> Var<'_, T> {
        self.push(Node { op: Op::Input, inputs: [(value, None); 2], value })
    }

    /// What has been recorded so far.
    pub fn nodes(&self) -> Vec<Node<T>> {
        self.nodes.borrow().clone()
    }

    fn push(&self, node: Node<T>) -> Var<'_, T> {
        let mut nodes = self.nodes.borrow_mut();
        nodes.push(node);
        Var { value: node.value, place: Some((self, nodes.len() - 1)) }
    }

    /// The derivative of `output` by each input of this tape, in the order they were made.
    ///
    /// Line k's adjoint is ∂output/∂(line k). A line is only used by later ones, so on the way back
    /// its adjoint is complete when we reach it, and each operand gets its contribution. An operand
    /// used twice gets two, which add up: the chain rule sums over all paths.
    pub fn gradient(&self, output: Var<'_, T>) -> Vec<T> {
        let nodes = self.nodes.borrow();
        let mut adjoint = vec![T::constant(0.0); nodes.len()];
        if let Some((tape, line)) = output.place {
            assert!(std::ptr::eq(tape, self), "the output is on another tape");
            adjoint[line] = T::constant(1.0);
        }
        for (line, node) in nodes.iter().enumerate().rev() {
            let [(a, _), (b, _)] = node.inputs;
            let slopes = node.op.slopes(a, b, node.value);
            for ((_, from), slope) in node.inputs.into_iter().zip(slopes) {
                if let Some(from) = from {
                    adjoint[from] = adjoint[from] + adjoint[line] * slope;
                }
            }
        }
        let inputs = nodes.iter().zip(adjoint).filter(|(node, _)| node.op == Op::Input);
        inputs.map(|(_, adjoint)| adjoint).collect()
    }
}

/// Spells `a + b` as `Num::apply(Op::Add, a, b)`, and so on.
#[rustfmt::skip]
macro_rules! operators {
    ($($op:ident $method:ident),*) => {$(
        impl<T: Num> $op for Dual<T> {
            type Output = Self;
            fn $method(self, b: Self) -> Self { Num::apply(Op::$op, self, b) }
        }
        impl<T: Num> $op for Var<'_, T> {
            type Output = Self;
            fn $method(self, b: Self) -> Self { Num::apply(Op::$op, self, b) }
        }
    )*};
}
operators!(Add add, Sub sub, Mul mul, Div div);

#[rustfmt::skip]
impl<T: Num> Neg for Dual<T> { type Output = Self; fn neg(self) -> Self { self.unary(Op::Neg) } }
#[rustfmt::skip]
impl<T: Num> Neg for Var<'_, T> { type Output = Self; fn neg(self) -> Self { self.unary(Op::Neg) } }

/// The worked example: x·y + sin(x·y). The product is used twice, so two paths join in it.
pub fn example<T: Num>(x: T, y: T) -> T {
    let p = x * y;
    p + p.sin()
}

pub fn main() {
    let (x, y) = (2.0, 3.0);
    println!("f(x, y) = x*y + sin(x*y) at ({x}, {y}) is {:.4}", example(x, y)); // 5.7206

    // Reverse: one sweep, all inputs. By hand, with c = 1 + cos 6: c·y = 5.8805 and c·x = 3.9203.
    let tape = Tape::new();
    let f = example(tape.input(x), tape.input(y));
    println!("\nthe tape:");
    for (line, node) in tape.nodes().iter().enumerate() {
        let from: Vec<_> = node.inputs.iter().filter_map(|&(_, from)| from).collect();
        let (op, from) = (format!("{:?}", node.op), format!("{from:?}"));
        println!("  {line}: {op:<5} {from:<6} = {:7.4}", node.value);
    }
    println!("\nreverse  df = {:.4?}", tape.gradient(f));

    // Forward: one direction per run, so one run per input.
    let dx = example(Dual { value: x, tangent: 1.0 }, Dual { value: y, tangent: 0.0 }).tangent;
    let dy = example(Dual { value: x, tangent: 0.0 }, Dual { value: y, tangent: 1.0 }).tangent;
    println!("forward  df = [{dx:.4}, {dy:.4}]");

    // Second derivatives cost nothing new: a tape of duals. The tangent of the gradient in the
    // direction of x is the first row of the Hessian: 2.5147 and 3.6367.
    let tape = Tape::new();
    let f = example(
        tape.input(Dual { value: x, tangent: 1.0 }),
        tape.input(Dual { value: y, tangent: 0.0 }),
    );
    let row: Vec<f64> = tape.gradient(f).iter().map(|d| d.tangent).collect();
    println!("forward over reverse, d/dx of df = {row:.4?}");
}
