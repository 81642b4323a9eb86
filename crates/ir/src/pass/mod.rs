//! Passes: from a program to a better one that means the same.
//!
//! Each pass is a file and a function from program to program, and works on the programs inside
//! control flow too. All of them keep inputs, outputs and updates as they are, and the user's line
//! of every equation they keep; an equation that stands for several has the line of the last. What
//! else a pass promises is said at its head. [`Pipeline`] runs them in order, checks the program
//! after each one, and keeps the stages for those who want to look.
//!
//! | pass | what it does | changes results |
//! |---|---|---|
//! | [`inline`] | puts the bodies of custom ops in their place | no |
//! | [`dead_code`] | drops what no result needs | no |
//! | [`common_subexpressions`] | computes equal things once | no |
//! | [`fold`] | computes what is constant | no |
//! | [`simplify`] | rewrites by a table of named rules | no |
//! | [`layout`] | larger products, no copies before them | sums of products in another order |
//! | [`budget`] | recomputes what does not fit into so many bytes, where asked for | no |
//! | [`remat`] | recomputes cheap values near their use | no |
//! | [`fuse`] | makes regions of pointwise ops and reductions | reductions in another order |
//! | [`epilogue`] | joins products and the regions that follow | no |
//! | [`schedule`] | orders equations for less memory at a time | no |
//! | [`plan`] | gives every value its place in memory | no |

mod budget;
mod common_subexpressions;
mod dead_code;
mod epilogue;
mod fold;
mod fuse;
mod inline;
mod layout;
mod pipeline;
pub mod plan;
mod rebuild;
mod remat;
mod schedule;
mod simplify;
mod target;

pub use budget::{BudgetReport, Budgeted, budget, op_work, work};
pub use common_subexpressions::common_subexpressions;
pub use dead_code::dead_code;
pub use epilogue::epilogue;
pub use fold::{Constant, Evaluate, fold};
pub use fuse::{Limits, fuse, fuse_within};
pub use inline::{has_bodies, inline};
pub use layout::layout;
pub use pipeline::{Pass, Pipeline, Stage};
pub use remat::{Remat, remat, remat_where};
pub use schedule::{peak_bytes, schedule};
pub use simplify::{REWRITES, Rewrite, simplify};
pub use target::Target;
