//! Rewrites by a table of named rules.
//!
//! A rule matches one equation, and the definitions of its operands, and may replace it by an
//! existing value, or by another op. None changes a bit of any result, negative zeros and
//! infinities included; the payload and the sign of a NaN are not preserved. Inexact rewrites are
//! excluded: `x·0` is not 0 (infinities), `x + 0` is not `x` for floats (−0 + 0 is +0; `x + (−0)`
//! is), a sum over an axis of length 1 is not its element (kernels start from +0) but that plus 0,
//! and a comparison is not the opposite of its opposite (NaN).
//!
//! Guarantees: no more work than before, and no rule of the table applies to the result:
//! idempotent. Unused values are left to `dead_code`.

mod parts;
mod values;
mod views;

use super::rebuild::{Rebuild, with_programs};
use crate::{Equation, Line, Op, Program, Scalar, Var, Vars};

/// One rule.
#[derive(Clone, Copy)]
pub struct Rewrite {
    /// Its name.
    pub name: &'static str,
    /// The rewrite, as text.
    pub says: &'static str,
    /// Why no bit changes, if that is not obvious.
    pub because: &'static str,
    rule: RewriteFn,
}

impl std::fmt::Debug for Rewrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.name, self.says)
    }
}

type RewriteFn = fn(&mut Context<'_, '_>, &Op, &[Var]) -> Option<Rewritten>;

/// The result of a rule.
enum Rewritten {
    /// An existing value.
    Value(Var),
    /// Another op.
    Op(Op, Vars),
}

const fn row(
    name: &'static str,
    says: &'static str,
    because: &'static str,
    rule: RewriteFn,
) -> Rewrite {
    Rewrite { name, says, because, rule }
}

/// Every rule, in the order in which they are tried.
#[rustfmt::skip]
pub static REWRITES: &[Rewrite] = &[
    row("mul_one",            "x·1 → x",                                 "1 is neutral in every rounding",                      values::mul_one),
    row("add_zero",           "x + (−0) → x; of integers x + 0 → x",     "+0 would turn −0 into +0; −0 does not",                values::add_zero),
    row("sub_zero",           "x − 0 → x",                               "−0 − (+0) is −0; a literal −0 is not taken",           values::sub_zero),
    row("div_one",            "x/1 → x",                                 "1 is neutral in every rounding",                      values::div_one),
    row("same_twice",         "max(x,x), min(x,x), x∧x, x∨x → x",        "",                                                    values::same_twice),
    row("undone",             "−(−x), ¬(¬x) → x",                        "both turn one bit (or all bits, or wrap) and back",    values::undone),
    row("done_already",       "|−x| → |x|; rounding, abs, sign, relu again → once", "the second has nothing left to do",         values::done_already),
    row("stopped",            "stop_gradient(x) → x",                    "what is compiled is not differentiated again",         values::stopped),
    row("cast_same",          "a cast to the dtype it has → x",          "",                                                    values::cast_same),
    row("cast_chain",         "cast of a cast → one cast",               "only where the first loses nothing and both round once", values::cast_chain),
    row("select_same",        "select(c,x,x) → x",                       "",                                                    values::select_same),
    row("select_not",         "select(¬c,x,y) → select(c,y,x)",          "",                                                    values::select_not),
    row("copy",               "a copy → x, but where it unaliases an output", "values do not change",                         values::copy),
    row("put_all",            "put of everything → the source",          "",                                                    values::put_all),
    row("pad_nothing",        "pad by nothing → x",                      "",                                                    values::pad_nothing),
    row("cat_one",            "cat of one → x",                          "",                                                    values::cat_one),
    row("parts_side_by_side", "a sum of parts put into zeros that fill everything → cat of parts + 0", "every element is one part's and +0 of all others", parts::parts_side_by_side),
    row("reduce_one",         "a reduction over length 1 → reshape; a sum of floats → x + 0, reshaped", "kernels start sums from +0, which turns −0 into +0", values::reduce_one),
    row("zero_summed",        "a sum, or a product of matrices, of x + 0 → of x", "kernels start sums from +0, so zeros of both signs add the same", values::zero_summed),
    row("reduce_reduce",      "max of max, min of min → one",            "order does not matter to an extreme",                 values::reduce_reduce),
    row("view_of_all",        "a view of all in order → x",              "",                                                    views::view_of_all),
    row("view_view",          "reshape of reshape, permute of permute, broadcast of broadcast, slice of slice, flip of flip → one", "", views::view_view),
    row("views_undo",         "views that together keep all elements in order → reshape", "",                                    views::views_undo),
    row("view_is_reshape",    "a permute or broadcast that only moves axes of length 1 → reshape", "",                         views::view_is_reshape),
    row("view_later",         "f(broadcast x, …) → broadcast f(x, …); so for permute", "the same function of the same elements", views::view_later),
];

/// The program so far, as seen by rules.
struct Context<'a, 'b> {
    new: &'a mut Rebuild<'b>,
    at: Option<Line>,
    /// The result is an output of the program, so it must not be an input or another output.
    output: bool,
    outputs: &'a [bool],
}

impl Context<'_, '_> {
    /// The op that defines a value, and its operands.
    fn made_by(&self, v: Var) -> Option<(&Op, &[Var])> {
        self.new.made_by(v).map(|e| (&e.op, &e.inputs[..]))
    }

    /// The constant value of a variable.
    fn literal(&self, v: Var) -> Option<Scalar> {
        let mut v = v;
        loop {
            match self.made_by(v)? {
                (Op::Literal { value, .. }, _) => return Some(*value),
                (Op::View(_) | Op::Copy, of) => v = of[0],
                _ => return None,
            }
        }
    }
}

/// Rewrites by [`REWRITES`].
///
/// ```
/// use pullback_ir::{Program, pass::{dead_code, simplify}};
/// let text = "program (a: f32[2,3]) { let b: f32[3,2] = permute{[1,0]} a; let c: f32[3,2] = neg b; let d: f32[3,2] = neg c; let e: f32[2,3] = permute{[1,0]} d; return e }";
/// let program: Program = text.parse().unwrap();
/// assert_eq!(dead_code(&simplify(&program)).to_string(), "program (a: f32[2,3]) {\n  return a\n}\n");
/// ```
#[must_use]
pub fn simplify(program: &Program) -> Program {
    let mut new = Rebuild::new(program);
    let mut outputs = vec![false; program.specs.len()];
    program.outputs.iter().for_each(|v| outputs[v.index()] = true);
    // New variables that are outputs, as far as they are known.
    let mut new_outputs: Vec<bool> = vec![false; program.specs.len()];
    for &v in program.inputs.iter().filter(|v| outputs[v.index()]) {
        new_outputs[new.var(v).index()] = true;
    }
    for e in &program.equations {
        let op = with_programs(&e.op, simplify);
        simplify_equation(&mut new, e, op, &outputs, &new_outputs);
        new_outputs.resize(new.out.specs.len().max(program.specs.len()), false);
        for &v in e.outputs.iter().filter(|v| outputs[v.index()]) {
            new_outputs[new.var(v).index()] = true;
        }
    }
    new.finish()
}

/// Far more steps than any chain of rules needs.
const MOST_STEPS: usize = 32;

fn simplify_equation(new: &mut Rebuild, e: &Equation, op: Op, outputs: &[bool], taken: &[bool]) {
    let inputs = new.inputs(e);
    let [result] = e.outputs[..] else {
        return new.keep_as(e, op, inputs);
    };
    let mut context = Context { new, at: e.at, output: outputs[result.index()], outputs: taken };
    match context.rewritten(op, inputs) {
        Rewritten::Value(v) => new.alias(result, v),
        Rewritten::Op(op, inputs) => new.keep_as(e, op, inputs),
    }
}

impl Context<'_, '_> {
    /// Applies rules to an op until none matches.
    fn rewritten(&mut self, mut op: Op, mut inputs: Vars) -> Rewritten {
        for _ in 0..MOST_STEPS {
            match REWRITES.iter().find_map(|rewrite| (rewrite.rule)(self, &op, &inputs)) {
                None => break,
                Some(Rewritten::Op(next, of)) => (op, inputs) = (next, of),
                Some(value) => return value,
            }
        }
        Rewritten::Op(op, inputs)
    }

    /// A new equation, rewritten until no rule matches.
    fn emit(&mut self, op: Op, inputs: Vars) -> Option<Var> {
        let output = std::mem::replace(&mut self.output, false);
        let step = self.rewritten(op, inputs);
        self.output = output;
        match step {
            Rewritten::Value(v) => Some(v),
            Rewritten::Op(op, inputs) => self.new.emit(op, &inputs, self.at),
        }
    }
}
