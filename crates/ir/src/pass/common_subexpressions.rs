//! Common-subexpression elimination: computes equal values once.
//!
//! Guarantees: of two equations with equal ops and equal operands the second is removed, and its
//! results are those of the first. Ops are pure (random numbers are functions of a key), so this
//! changes nothing; collectives, whose number other workers see, are all kept, and so are copies to
//! the host, each of which has one end. Control flow with equal programs inside counts as equal;
//! nothing moves into or out of the programs inside. Idempotent. Unused values are left to
//! `dead_code`.

use super::rebuild::{Rebuild, with_programs};
use crate::{Op, Program, Var, Vars};
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};

/// Common-subexpression elimination: computes equal values once.
///
/// ```
/// use pullback_ir::{Program, pass::common_subexpressions};
/// let text = "program (a: f32[]) { let b: f32[] = exp a; let c: f32[] = exp a; let d: f32[] = add b c; return d }";
/// let program: Program = text.parse().unwrap();
/// assert_eq!(
///     common_subexpressions(&program).to_string(),
///     "program (a: f32[]) {\n  let b: f32[] = exp a\n  let c: f32[] = add b b\n  return c\n}\n",
/// );
/// ```
#[must_use]
pub fn common_subexpressions(program: &Program) -> Program {
    let mut new = Rebuild::new(program);
    // Equations of the new program by the hash of op and operands: no op is copied for a key.
    let mut seen: FxHashMap<u64, SmallVec<[u32; 2]>> = FxHashMap::default();
    for e in &program.equations {
        let inputs = new.inputs(e);
        let op = with_programs(&e.op, common_subexpressions);
        if op.is_ordered() || matches!(op, Op::Transfer(_)) {
            new.keep_as(e, op, inputs);
            continue;
        }
        let mut hasher = FxHasher::default();
        (&op, &inputs).hash(&mut hasher);
        let equal = seen.entry(hasher.finish()).or_default();
        let found = equal.iter().map(|&i| &new.out.equations[i as usize]);
        let found: Option<Vars> = found
            .filter(|known| known.inputs == inputs && known.op == op)
            .map(|known| known.outputs.clone())
            .next();
        match found {
            Some(known) => {
                let pairs: SmallVec<[(Var, Var); 3]> =
                    e.outputs.iter().copied().zip(known).collect();
                pairs.into_iter().for_each(|(old, known)| new.alias(old, known));
            }
            None => {
                equal.push(new.out.equations.len() as u32);
                new.keep_as(e, op, inputs);
            }
        }
    }
    new.finish()
}
