//! Checks that the collectives of a program are left in order, and waited for.
//!
//! What other workers see of a program is the sequence of its collectives. They are ordered by
//! their place: an [`ordered`](Op::is_ordered) equation is never removed, merged, repeated or
//! moved past another. Passes look that column up; here it is checked what they did, after each of
//! them, whether other checks are on or not: a mistake would be a worker that waits for another.

use crate::{CollectiveOp, Error, ErrorKind, Flow, Op, Program, Result, Structure};

/// A part of the sequence of collectives.
enum SequenceItem<'a> {
    Call(&'a CollectiveOp),
    /// The programs of a loop, or the two of a choice.
    Loop(Vec<Vec<SequenceItem<'a>>>),
    Choice([Vec<SequenceItem<'a>>; 2]),
}

/// The sequence of a program. What is run once, in place, is as if it were inlined.
fn parts<'a>(program: &'a Program, out: &mut Vec<SequenceItem<'a>>) {
    let all = |program: &'a Program| {
        let mut out = Vec::new();
        parts(program, &mut out);
        out
    };
    for e in program.equations.iter().filter(|e| e.op.is_ordered()) {
        if let Op::Collective(of) = &e.op {
            out.push(SequenceItem::Call(of));
        }
        match e.op.structure() {
            Some(Structure::Custom(custom)) => {
                custom.body().into_iter().for_each(|body| parts(body, out));
            }
            Some(Structure::Flow(flow)) => match flow {
                Flow::Scan(scan) if scan.length == 1 => parts(&scan.body, out),
                Flow::Cond { yes, no } => out.push(SequenceItem::Choice([all(yes), all(no)])),
                Flow::Scan(_) | Flow::While { .. } => {
                    out.push(SequenceItem::Loop(flow.programs().into_iter().map(all).collect()));
                }
            },
            Some(Structure::Region(_) | Structure::DotRegion(_)) | None => {}
        }
    }
}

/// Whether one sequence is another, in which choices may have been made already.
fn same(before: &[&SequenceItem], after: &[&SequenceItem]) -> bool {
    let list = |parts: &[SequenceItem<'_>], other: &[SequenceItem<'_>]| {
        same(&parts.iter().collect::<Vec<_>>(), &other.iter().collect::<Vec<_>>())
    };
    for (i, part) in before.iter().enumerate() {
        let is_same = match (part, after.get(i)) {
            (SequenceItem::Call(a), Some(SequenceItem::Call(b))) => {
                (&a.collective, &a.group, a.line) == (&b.collective, &b.group, b.line)
            }
            (SequenceItem::Loop(a), Some(SequenceItem::Loop(b))) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| list(a, b))
            }
            (SequenceItem::Choice(a), Some(SequenceItem::Choice(b)))
                if a.iter().zip(b).all(|(a, b)| list(a, b)) =>
            {
                true
            }
            (SequenceItem::Choice(branches), _) => {
                let taken = |branch: &Vec<SequenceItem<'_>>| {
                    let rest = before[i + 1..].iter().copied();
                    let inlined: Vec<&SequenceItem> = branch.iter().chain(rest).collect();
                    same(&inlined, &after[i.min(after.len())..])
                };
                return branches.iter().any(taken);
            }
            (SequenceItem::Call(_) | SequenceItem::Loop(_), _) => false,
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
    let (old, new): (Vec<&SequenceItem>, Vec<&SequenceItem>) =
        (old.iter().collect(), new.iter().collect());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::{Pipeline, Target, overlap, schedule};
    use crate::{Alone, Collective, DType, GroupHandle, Line, Scan, Spec};
    use std::sync::Arc;

    fn op(collective: Collective, group: &GroupHandle) -> Op {
        let (group, line) = (group.clone(), Line::caller());
        Op::Collective(Arc::new(CollectiveOp { collective, group, line, started: false }))
    }

    /// Two calls that do not depend on each other; nothing reads the first.
    fn two() -> Program {
        let group = GroupHandle::new(Arc::new(Alone));
        let mut program = Program::default();
        let x = program.input(Spec::cpu(DType::F32, [4]));
        program.push(op(Collective::AllGather, &group), &[x], None).unwrap();
        let y = program.push(op(Collective::AllToAll, &group), &[x], None).unwrap();
        program.outputs = y.to_vec();
        program
    }

    #[test]
    fn a_pass_that_moves_or_removes_one_is_named() {
        let swap = |program: &Program| {
            let mut out = program.clone();
            out.equations.swap(0, 1);
            out
        };
        let drop_first = |program: &Program| {
            let mut out = program.clone();
            out.equations.remove(0);
            out
        };
        let repeat = |program: &Program| {
            let mut out = program.clone();
            let e = out.equations[0].clone();
            out.push(e.op, &e.inputs, e.at).unwrap();
            out
        };
        for wrong in [&swap as &dyn Fn(&Program) -> Program, &drop_first, &repeat] {
            let passes = Pipeline::new().then("wrong", wrong).verified(false);
            let error = passes.run(&two()).unwrap_err().to_string();
            assert!(error.contains("the pass `wrong` has changed the collectives"), "{error}");
        }
        let all = Pipeline::standard(Target::default(), |_, _| None).verified(true);
        assert_eq!(all.run(&two()).unwrap().equations.len(), 4);
    }

    #[test]
    fn loops_are_compared_inside() {
        let around = |body: Program| {
            let scan = Scan { body, length: 3, reverse: false, shared: 1, carry: 0, kept: 0 };
            let mut program = Program::default();
            let x = program.input(Spec::cpu(DType::F32, [4]));
            let flow = Op::Flow(Arc::new(Flow::Scan(scan)));
            program.outputs = program.push(flow, &[x], None).unwrap().to_vec();
            program
        };
        let program = around(two());
        assert!(program.is_ordered());
        let mut swapped = program.clone();
        let mut body = two();
        body.equations.swap(0, 1);
        swapped.equations[0].op = around(body).equations[0].op.clone();
        assert!(check_kept(&program, &program, "none").is_ok());
        assert!(check_kept(&program, &swapped, "swap").is_err());
        check_kept(&program, &overlap(&schedule(&program)), "overlap").unwrap();
    }

    #[test]
    fn what_is_started_is_waited_for() {
        let program = overlap(&two());
        program.verify().unwrap();
        assert_eq!(overlap(&program), program, "idempotent");
        let place = |op: &Op| program.equations.iter().position(|e| e.op == *op).unwrap();
        let mut without = program.clone();
        without.equations.remove(place(&Op::Wait));
        let error = without.verify().unwrap_err().to_string();
        assert!(error.contains("is started and not waited for"), "{error}");
        let mut early = program.clone();
        let started = early.equations[0].outputs[0];
        let copy = early.push(Op::Copy, &[started], None).unwrap();
        early.outputs.extend(copy);
        let last = early.equations.pop().unwrap();
        early.equations.insert(1, last);
        let error = early.verify().unwrap_err().to_string();
        assert!(error.contains("before waiting for it"), "{error}");
        let mut other = program.clone();
        let wait = other.equations.iter_mut().find(|e| e.op == Op::Wait).unwrap();
        wait.inputs.truncate(1);
        let error = other.verify().unwrap_err().to_string();
        assert!(error.contains("does not name the operand"), "{error}");
        let mut none = Program::default();
        let x = none.input(Spec::cpu(DType::F32, [4]));
        none.outputs = none.push(Op::Wait, &[x], None).unwrap().to_vec();
        let error = none.verify().unwrap_err().to_string();
        assert!(error.contains("waits for what was not started"), "{error}");
    }
}
