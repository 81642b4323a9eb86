//! The op table as documentation: what `docs/ops.md` is made from; and what the tests of all ops
//! check.

use crate::batch::{BatchedValue, Batching, batch, batching};
use crate::ops::{collective, row};
use crate::rule::{Grad, Val};
use crate::{Group, Op, Tensor};
use std::fmt::Write as _;

/// `docs/ops.md`, from the rows themselves.
///
/// ```
/// assert!(pullback::table::markdown().contains("| `tanh` |"));
/// ```
///
/// # Panics
/// Never.
pub fn markdown() -> String {
    let mut text = String::from(
        "# The op table\n\n\
         Generated from the rows in `crates/pullback/src/ops`; a test keeps it fresh\n\
         (`cargo run -p pullback --example ops > docs/ops.md` writes it).\n\n\
         Every tensor method is one of these ops or a composition of them. In formulas `x` (or `a`, `b`) is the\n\
         input, `y` the output; what a derivative does not name is not kept for backward.\n\n\
         | op | derivative | kept for backward | over many examples |\n|---|---|---|---|\n",
    );
    // Only some functions have a kernel for `dy · f'`.
    let unfused = |op: &Op| matches!(op, Op::UnaryVjp(f) if f.fused_vjp().is_none());
    let all = Op::forms().chain(collective::forms(&Group::alone()));
    for op in all.filter(|op| !unfused(op)) {
        let row = row(&op);
        let (derivative, kept) = (derivative(&row), kept(&op, &row));
        let _ = writeln!(text, "| `{}` | {derivative} | {kept} | {} |", op.name(), kind(&op));
    }
    text
}

/// One collective of each kind, over a group: they are ops of the table, and have no form without a
/// group.
#[doc(hidden)]
pub fn collectives(group: &Group) -> impl Iterator<Item = Op> + use<> {
    collective::forms(group)
}

fn derivative(row: &Grad) -> String {
    match row {
        Grad::Zero => "zero".to_string(),
        Grad::Slopes(slopes) => {
            let clean = |s: &str| {
                s.replace(".clone()", "").split_whitespace().collect::<Vec<_>>().join(" ")
            };
            slopes.iter().map(|s| format!("`{}`", clean(s.text))).collect::<Vec<_>>().join(", ")
        }
        Grad::Linear(linear) => format!("linear: {}", linear.formula),
        Grad::Bilinear(two) => format!("bilinear: {}", two.formula),
        Grad::ByHand(hand) => hand.formula.to_string(),
        Grad::Flow(..) => "that of the iterations that run".to_string(),
        Grad::Decompose(_) => "of its decomposition".to_string(),
        Grad::Custom(_) => "as its user says".to_string(),
    }
}

fn kind(op: &Op) -> &'static str {
    match batching(op, 1) {
        Batching::Pointwise => "pointwise",
        Batching::Axes(_) => "axes",
        Batching::Leading => "leading",
        Batching::ByHand(_) => "by hand",
    }
}

/// Applies an op, meant for one example, to `n` examples at once: those of each operand along its
/// first axis, where it is said to be batched, and the same for all otherwise. This is what `vmap`
/// does with each op; it is here for the tests of the table.
#[doc(hidden)]
#[track_caller]
pub fn batched(op: &Op, operands: &[(Tensor, bool)], n: usize) -> Vec<(Tensor, bool)> {
    let lane = |(value, batched): &(Tensor, bool)| BatchedValue {
        value: value.clone(),
        batched: *batched,
    };
    let lanes: Vec<BatchedValue> = operands.iter().map(lane).collect();
    batch(op, &lanes, n).into_iter().map(|lane| (lane.value, lane.batched)).collect()
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
