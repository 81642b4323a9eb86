//! Functions with derivatives that their users wrote.
//!
//! [`custom_vjp`] is given by a forward function and its pullback, [`custom_jvp`] by a function and
//! its derivative along a direction, a [`CustomOp`] by code without tensor operations. Each of
//! them is one node of the tape and one equation of a program, [`Op::Custom`], that carries its
//! rule. So it is taped, traced, batched and differentiated again like any other op.
//!
//! # One rule, both modes
//!
//! Either rule is a linear map, of the cotangents or of the tangents, and the other mode is its
//! transpose: the pullback of the map itself, taken at zero. Rules are ordinary tensor code, so the
//! tape that transposes them is the one that differentiates everything, and higher orders follow.
//!
//! # What is kept
//!
//! The residuals of a [`custom_vjp`] are what its backward reads. One that is an argument or a
//! result is kept as such, and has its history. Others are further results of the node, whose
//! derivative is the plain one of the forward function: where a second derivative needs it, the
//! forward function runs again, recorded. Therefore the arguments are kept too, if there is such a
//! residual of floats.
//!
//! # The check of rules
//!
//! At the first use for given specs (outside `no_grad`, where no derivative is requested) the rule
//! is compared with numeric derivatives, to second order and in both modes, and a wrong one is
//! refused: `rule_check.rs` says when and where, `compare.rs` and `differences.rs` how. The memo of
//! what has passed is by the line and the types of the functions, and by specs (`memo.rs`). Ops
//! carry a pending into programs, to be checked again once their values are known (`programs.rs`).
//! Rules of this library (`implicit`, `ops/soft.rs`) are trusted: its tests check them.
//!
//! The files: `rule.rs` what a rule is, `call.rs` how a function becomes a node or an equation,
//! `reverse.rs` and `forward.rs` the two kinds, `external.rs`, `external_rule.rs` and `host.rs`
//! code that is called with memory, `batched.rs` many examples at once.

#[cfg(doctest)]
#[doc = include_str!("../../../../docs/custom.md")]
struct Guide;

mod batched;
mod call;
mod compare;
mod differences;
mod external;
mod external_rule;
mod forward;
mod host;
mod memo;
mod programs;
mod reverse;
mod rule;
mod rule_check;

pub(crate) use batched::{batch, for_each_example};
pub(crate) use call::{body, run_body};
pub use external::{CustomBatching, CustomOp, Derivative, External, custom_op};
pub use forward::{CustomJvp, custom_jvp};
pub use host::{HostInput, HostOutput};
pub use memo::{UncheckedRule, unchecked_rules};
pub(crate) use programs::{check_at, unchecked_in};
pub(crate) use reverse::without_values;
pub use reverse::{CustomVjp, custom_vjp};
pub(crate) use rule::{
    OperandRole, Rule, RuleHandle, captured, captures, check_captured, handle, with_captures_cut,
};
