//! Checks that the collectives of a program are left in order, and waited for.
//!
//! What other workers see of a program is the sequence of its collectives. They are ordered by
//! their place: an [`ordered`](Op::is_ordered) equation is never removed, merged, repeated or
//! moved past another. Passes look that column up; here it is checked what they did, after each of
//! them, whether other checks are on or not: a mistake would be a worker that waits for another.

use crate::{CollectiveOp, Error, ErrorKind, Flow, Op, Program, Result};

/// A part of the sequence of collectives.
enum Part<'a> {
    Call(&'a CollectiveOp),
    /// The programs of a loop, or the two of a choice.
    Loop(Vec<Vec<Part<'a>>>),
    Choice([Vec<Part<'a>>; 2]),
}

/// The sequence of a program. What is run once, in place, is as if it were inlined.
fn parts<'a>(program: &'a Program, out: &mut Vec<Part<'a>>) {
    let all = |program: &'a Program| {
        let mut out = Vec::new();
        parts(program, &mut out);
        out
    };
    for e in program.equations.iter().filter(|e| e.op.is_ordered()) {
        match &e.op {
            Op::Collective(of) => out.push(Part::Call(of)),
            Op::Custom(custom) => custom.body().into_iter().for_each(|body| parts(body, out)),
            Op::Flow(flow) => match &**flow {
                Flow::Scan(scan) if scan.length == 1 => parts(&scan.body, out),
                Flow::Cond { yes, no } => out.push(Part::Choice([all(yes), all(no)])),
                Flow::Scan(_) | Flow::While { .. } => {
                    out.push(Part::Loop(flow.programs().into_iter().map(all).collect()));
                }
            },
            _ => {}
        }
    }
}

/// Whether one sequence is another, in which choices may have been made already.
fn same(before: &[&Part], after: &[&Part]) -> bool {
    let list = |parts: &[Part<'_>], other: &[Part<'_>]| {
        same(&parts.iter().collect::<Vec<_>>(), &other.iter().collect::<Vec<_>>())
    };
    for (i, part) in before.iter().enumerate() {
        let is_same = match (part, after.get(i)) {
            (Part::Call(a), Some(Part::Call(b))) => {
                (&a.collective, &a.group, a.line) == (&b.collective, &b.group, b.line)
            }
            (Part::Loop(a), Some(Part::Loop(b))) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| list(a, b))
            }
            (Part::Choice(a), Some(Part::Choice(b)))
                if a.iter().zip(b).all(|(a, b)| list(a, b)) =>
            {
                true
            }
            (Part::Choice(branches), _) => {
                let taken = |branch: &Vec<Part<'_>>| {
                    let rest = before[i + 1..].iter().copied();
                    let inlined: Vec<&Part> = branch.iter().chain(rest).collect();
                    same(&inlined, &after[i.min(after.len())..])
                };
                return branches.iter().any(taken);
            }
            (Part::Call(_) | Part::Loop(_), _) => false,
        };
        if !is_same {
            return false;
        }
    }
    before.len() == after.len()
}

/// Checks that a pass left the collectives of a program as they were.
pub(super) fn check_kept(before: &Program, after: &Program, pass: &'static str) -> Result<()> {
    let (mut old, mut new) = (Vec::new(), Vec::new());
    parts(before, &mut old);
    parts(after, &mut new);
    let (old, new): (Vec<&Part>, Vec<&Part>) = (old.iter().collect(), new.iter().collect());
    if same(&old, &new) {
        return Ok(());
    }
    let message = format!("the pass `{pass}` has changed the collectives of the program");
    Err(Error::new(ErrorKind::Program, "verify", message))
}

impl Program {
    /// Every collective that is started is waited for once, and not used before.
    pub(crate) fn check_waits(&self) -> Result<()> {
        let wrong = |message: &str, at: usize| {
            let e = &self.equations[at];
            let message = format!("equation {at} (`{}`) {message}", e.op.name());
            let error = Error::new(ErrorKind::Program, "verify", message);
            match e.at {
                Some(line) => Err(error.at(line)),
                None => Err(error),
            }
        };
        let mut started: Vec<Option<usize>> = vec![None; self.specs.len()];
        for (i, e) in self.equations.iter().enumerate() {
            if e.op == Op::Wait {
                let Some(start) = started[e.inputs[0].index()].take() else {
                    return wrong("waits for what was not started", i);
                };
                if self.equations[start].inputs[..] != e.inputs[1..] {
                    return wrong("does not name the operand of what it waits for", i);
                }
            }
            if e.inputs.iter().any(|v| started[v.index()].is_some()) {
                return wrong("reads the result of a collective before waiting for it", i);
            }
            if let Op::Collective(of) = &e.op
                && of.started
            {
                started[e.outputs[0].index()] = Some(i);
            }
        }
        match started.into_iter().flatten().next() {
            Some(start) => wrong("is started and not waited for", start),
            None => Ok(()),
        }
    }
}
