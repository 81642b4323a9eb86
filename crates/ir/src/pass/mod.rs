//! Passes: from a program to an equivalent, better one.
//!
//! Each pass is a file and a function from program to program, and works on the programs inside
//! control flow too. All of them preserve inputs, outputs and updates, and the user's line of every
//! equation they keep; an equation that replaces several has the line of the last. Collectives stay
//! in order ([`Op::is_ordered`](crate::Op::is_ordered)), which is checked after each. What else a
//! pass guarantees is stated at its head. [`Pipeline`] runs them in order, verifies the program
//! after each one, and can return the stages.
//!
//! | pass | what it does | changes results |
//! |---|---|---|
//! | [`inline`] | inlines the bodies of custom ops | no |
//! | [`dead_code`] | drops what no result needs | no |
//! | [`common_subexpressions`] | computes equal values once | no |
//! | [`fold`] | computes constants | no |
//! | [`simplify`] | rewrites by a table of named rules | no |
//! | [`layout`] | merges products, removes copies before them | sums of products in another order |
//! | [`losses`] | takes the losses of a cross-entropy from the op that computes its gradient | no |
//! | [`channels_last`] | keeps images with their channels last, where a target convolves so | sums in another order |
//! | [`budget`] | recomputes what does not fit into a byte budget, if one is set | no |
//! | [`remat`] | recomputes cheap values near their use | no |
//! | [`norms`] | writes norms out, for targets that fuse them | sums in another order |
//! | [`fuse`] | fuses pointwise ops and reductions into regions | reductions in another order |
//! | [`epilogue`] | joins products and the regions that follow | no |
//! | [`stores`] | regions of loops store a value twice, instead of a copy, where a target gains by it | no |
//! | [`schedule`] | orders equations for less memory at a time | no |
//! | [`overlap`] | starts collectives early and waits for them late | no |
//! | [`offload`](offload()) | moves what does not fit into a budget to the host, if one is set | no |
//! | [`plan`] | assigns every value its memory | no |

mod budget;
mod channels_last;
mod common_subexpressions;
mod dead_code;
mod epilogue;
mod fold;
mod fuse;
mod inline;
mod layout;
mod losses;
mod norms;
mod offload;
mod ordered;
mod overlap;
mod pipeline;
pub mod plan;
mod rebuild;
mod remat;
mod schedule;
mod simplify;
mod stores;
mod target;

pub use budget::{BudgetReport, Budgeted, budget, op_work, work};
pub use channels_last::channels_last;
pub use common_subexpressions::common_subexpressions;
pub use dead_code::dead_code;
pub use epilogue::{LibraryEpilogue, epilogue, epilogue_where};
pub use fold::{Constant, Evaluate, fold};
pub use fuse::{Apart, Limits, Obstacle, apart, fuse, fuse_within};
pub use inline::{has_bodies, inline};
pub use layout::layout;
pub use losses::losses;
pub use norms::norms;
pub use offload::{MovedValue, Offloaded, duration, nanoseconds, offload, offloaded};
pub use overlap::{overlap, overlap_on};
pub use pipeline::{Pass, Pipeline, Stage, order};
pub use remat::{Remat, remat, remat_where};
pub use schedule::{peak_bytes, schedule, schedule_on};
pub use simplify::{REWRITES, Rewrite, simplify};
pub use stores::stores;
pub use target::{Epilogue, HostLink, Target};
