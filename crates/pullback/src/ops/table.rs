//! The op table as documentation: what `docs/ops.md` is made from.

use crate::Op;
use crate::ops::row;
use crate::rule::{Grad, Val};
use std::fmt::Write as _;

/// `docs/ops.md`, from the rows themselves.
///
/// ```
/// assert!(pullback::table::markdown().contains("| `tanh` |"));
/// ```
pub fn markdown() -> String {
    let mut text = String::from(
        "# The op table\n\n\
         Generated from the rows in `crates/pullback/src/ops`; a test keeps it fresh\n\
         (`cargo run -p pullback --example ops > docs/ops.md` writes it).\n\n\
         Every tensor method is one of these ops or a composition of them. In formulas `x` (or `a`, `b`) is the\n\
         input, `y` the output; what a derivative does not name is not kept for backward.\n\n\
         | op | derivative | kept for backward |\n|---|---|---|\n",
    );
    // Only some functions have a kernel for `dy · f'`.
    let unfused = |op: &Op| matches!(op, Op::UnaryVjp(f) if f.fused_vjp().is_none());
    for op in Op::forms().filter(|op| !unfused(op)) {
        let row = row(&op);
        let _ = writeln!(text, "| `{}` | {} | {} |", op.name(), derivative(&row), kept(&op, &row));
    }
    text
}

fn derivative(row: &Grad) -> String {
    match row {
        Grad::Zero => "zero: piecewise constant".to_string(),
        Grad::Slopes(slopes) => {
            let clean = |s: &str| {
                s.replace(".clone()", "").split_whitespace().collect::<Vec<_>>().join(" ")
            };
            slopes.iter().map(|s| format!("`{}`", clean(s.text))).collect::<Vec<_>>().join(", ")
        }
        Grad::Linear(linear) => format!("linear: {}", linear.formula),
        Grad::Bilinear(two) => format!("bilinear: {}", two.formula),
        Grad::Hand(hand) => hand.formula.to_string(),
        Grad::Flow(..) => "that of the turns that are taken".to_string(),
        Grad::Decompose(_) => "of its decomposition".to_string(),
    }
}

fn kept(op: &Op, row: &Grad) -> String {
    let name = |val: Val| match val {
        Val::In(i) => match op {
            Op::Unary(_) => "x".to_string(),
            _ => ["a", "b", "c"].get(i).map_or(format!("operand {i}"), |s| s.to_string()),
        },
        Val::Out(_) => "y".to_string(),
    };
    let all = [Val::In(0), Val::In(1), Val::In(2), Val::Out(0), Val::Out(1)];
    let list: Vec<String> =
        all.into_iter().filter(|&v| row.keeps(v, &[true; 3])).map(name).collect();
    if list.is_empty() { "nothing".to_string() } else { list.join(", ") }
}
