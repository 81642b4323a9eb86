//! What one way may refuse although another computes it. Anything else is a failure.
//!
//! In place, the rule is "right or refused, never different" (DESIGN.md, "In-place operations").
//! What a tape has to keep is not the same for every way, so not every way refuses the same
//! programs:
//!
//! | refused | by | because |
//! |---|---|---|
//! | what backward needs was overwritten | a way that runs backward, compared with one that runs forward, or backward through what forward mode gave | forward mode keeps nothing |
//! | | an eager tape, compared with a body (`vmap`, `scan`, `cond`) that is differentiated outside | in a body a write makes a new value |
//! | | a traced loop or branch in the program, compared with one of the host | traced, it is one op, which keeps its operands and results |
//! | | a tape without a budget, compared with one with | what the budget drops is no longer saved, and made again from memory that it copies before it is overwritten |
//! | a write inside a body to what was cut off, or inside `no_grad` | a body, traced or mapped | there it shares no memory, or may be differentiated outside |
//! | a checkpoint whose arguments or captures were overwritten | a way that runs backward through one | it computes them again |
//! | reading values | what is traced | there are none yet |

use crate::ast::{Nest, Program, Stmt};
use crate::ops::READS;
use crate::ways::{Transform, Way};
use pullback::{Error, ErrorKind};

/// Why the way that refused may do so where the other way gave numbers; nothing where it may not.
pub fn documented(
    program: &Program,
    refused: &Way,
    gave: &Way,
    error: &Error,
) -> Option<&'static str> {
    let traced = refused.has_body() || refused.is_compiled();
    // A body of the program's own, which is traced inside a trace or where it is differentiated.
    let control = program.nests(Nest::is_control);
    let mapped = program.nests(Nest::is_mapped);
    match error.kind() {
        ErrorKind::Program if program.has(READS) && (traced || control || mapped) => {
            Some("an op that reads the values of its operand")
        }
        ErrorKind::InPlace if program.writes() => {
            in_place(program, refused, gave, &error.to_string())
        }
        _ => None,
    }
}

fn in_place(program: &Program, refused: &Way, gave: &Way, text: &str) -> Option<&'static str> {
    let control = program.nests(Nest::is_control);
    let mapped = program.nests(Nest::is_mapped);
    let checkpoints = program.nests(|n| n == Nest::Checkpoint)
        || refused.has(&[Transform::Checkpoint])
        || gave.has(&[Transform::Checkpoint]);
    let budgets = program.nests(|n| n == Nest::MemoryBudget) || gave.has(&[Transform::Budget]);
    let back = refused.runs_backward() || program.nests(Nest::differentiates);
    let body = refused.has_body() || control || mapped;
    let has = |part: &str| text.contains(part);
    if has("but it was overwritten") || has("shares its memory, so its history no longer holds") {
        return match () {
            () if !back => None,
            // Backward after forward mode sees the tangents, which are values of their own.
            () if !gave.runs_backward() || gave.has(&[Transform::Jvp]) => {
                Some("overwritten: forward mode keeps nothing")
            }
            () if gave.has_body() => Some("overwritten: in a body a write makes a new value"),
            () if control || mapped => Some("overwritten: a traced loop is one op of the tape"),
            () if budgets => Some("overwritten: a budget makes what it dropped again"),
            () if checkpoints => Some("overwritten: a checkpoint keeps its arguments alone"),
            () => None,
        };
    }
    if has("checkpointed function") {
        return (back && checkpoints).then_some("overwritten: a checkpoint computes it again");
    }
    if has("is written in place inside the body of a loop or of vmap") {
        let cuts = ["detach", "stop_gradient"];
        let cut = program.nests(|n| n == Nest::NoGrad)
            || program
                .body
                .any(|stmt| matches!(stmt, Stmt::Call { row, .. } if cuts.contains(&row.name)));
        return (cut && body).then_some("what was cut off is written inside a body");
    }
    if has("inside no_grad, which was entered in the body") {
        let inside = program.nests(|n| n == Nest::NoGrad);
        return (inside && body).then_some("written inside no_grad inside a body");
    }
    None
}
