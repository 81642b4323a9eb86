//! Control flow inside programs: a conditional, a while loop, a scan over the rows of tensors.

use crate::infer::{Specs, fits_memory};
use crate::{DType, Error, Program, Result, Shape, Spec};

/// Structured control flow. The "shared" operands are the same in every iteration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Flow {
    /// From a condition (`bool[]`) and operands: the results of the first program on the operands
    /// if it is true, otherwise those of the second. Only one of them runs.
    Cond {
        /// Taken if the condition is true.
        yes: Program,
        /// Taken if it is false.
        no: Program,
    },
    /// From shared operands and a state: the state after the last iteration. While
    /// `test(shared…, state…)` is true, the state becomes `body(shared…, state…)`.
    While {
        /// Returns `bool[]`.
        test: Program,
        /// Returns the next state.
        body: Program,
        /// How many operands are shared.
        shared: usize,
    },
    /// From shared operands, a carry and sequences: `(carry…, y…) = body(shared…, carry…, x…)` for
    /// each x of the sequences along their first axis; returns the last carry and the ys, stacked.
    Scan(Scan),
}

/// A loop over the rows of tensors.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scan {
    /// One iteration.
    pub body: Program,
    /// The number of iterations: the length of the first axis of every sequence.
    pub length: usize,
    /// From the last row to the first; the ys are stacked so that row i is the one computed from
    /// row i.
    pub reverse: bool,
    /// How many operands are shared.
    pub shared: usize,
    /// How many operands, after those, are the carry.
    pub carry: usize,
    /// How many of the last results are saved for a backward pass, and are not results of the
    /// user's function.
    pub kept: usize,
}

impl Flow {
    /// The name of the op.
    pub const fn name(&self) -> &'static str {
        match self {
            Flow::Cond { .. } => "cond",
            Flow::While { .. } => "while",
            Flow::Scan(_) => "scan",
        }
    }

    /// How many results the op has.
    pub fn results(&self) -> usize {
        match self {
            Flow::Cond { yes, .. } => yes.outputs.len(),
            Flow::While { body, .. } => body.outputs.len(),
            Flow::Scan(scan) => scan.body.outputs.len(),
        }
    }

    /// The programs inside, in the order of the fields.
    pub fn programs(&self) -> Vec<&Program> {
        match self {
            Flow::Cond { yes, no } => vec![yes, no],
            Flow::While { test, body, .. } => vec![test, body],
            Flow::Scan(scan) => vec![&scan.body],
        }
    }

    /// The same with each program replaced.
    pub fn map_programs(&self, f: &mut dyn FnMut(&Program) -> Program) -> Flow {
        match self {
            Flow::Cond { yes, no } => Flow::Cond { yes: f(yes), no: f(no) },
            Flow::While { test, body, shared } => {
                Flow::While { test: f(test), body: f(body), shared: *shared }
            }
            Flow::Scan(scan) => Flow::Scan(Scan { body: f(&scan.body), ..scan.clone() }),
        }
    }

    /// Checks the operands and returns the specs of the results.
    ///
    /// # Errors
    /// If programs and operands do not match.
    pub fn infer(&self, inputs: &[&Spec]) -> Result<Specs> {
        let name = self.name();
        let wrong = |message: String| Error::shape(name, message).on(inputs.iter().copied());
        for program in self.programs() {
            if !program.updates.is_empty() {
                return Err(wrong("a program inside may not update its inputs".into()));
            }
        }
        match self {
            Flow::Cond { yes, no } => {
                let Some((test, operands)) = inputs.split_first() else {
                    return Err(wrong("there is no condition".into()));
                };
                is_test(test).map_err(|e| wrong(format!("the condition {e}")))?;
                takes(yes, operands).map_err(|e| wrong(format!("the branch for true {e}")))?;
                takes(no, operands).map_err(|e| wrong(format!("the branch for false {e}")))?;
                let (a, b) = (results(yes), results(no));
                if a != b {
                    return Err(wrong(format!(
                        "the branches differ: {} and {}",
                        list(&a),
                        list(&b)
                    )));
                }
                Ok(a)
            }
            Flow::While { test, body, shared } => {
                takes(test, inputs).map_err(|e| wrong(format!("the test {e}")))?;
                takes(body, inputs).map_err(|e| wrong(format!("the body {e}")))?;
                match &results(test)[..] {
                    [one] => is_test(one).map_err(|e| wrong(format!("the test {e}")))?,
                    _ => return Err(wrong("the test must return one bool[]".into())),
                }
                let (state, next) = (inputs.get(*shared..).unwrap_or_default(), results(body));
                if !state.iter().copied().eq(&next) {
                    let now: Specs = state.iter().map(|&s| s.clone()).collect();
                    return Err(wrong(format!("the state {} becomes {}", list(&now), list(&next))));
                }
                Ok(next)
            }
            Flow::Scan(scan) => {
                // Both may be any number if the program was parsed from text.
                let first = scan.shared.saturating_add(scan.carry);
                let Some((fixed, sequences)) = inputs.split_at_checked(first) else {
                    return Err(wrong(format!("takes at least {first} operands")));
                };
                let mut rows = Vec::new();
                for x in sequences {
                    match x.shape.split_first() {
                        Some((&n, rest)) if n == scan.length => rows.push(x.with_shape(rest)),
                        _ => {
                            return Err(wrong(format!(
                                "{x} has no first axis of length {}",
                                scan.length
                            )));
                        }
                    }
                }
                let given: Vec<&Spec> = fixed.iter().copied().chain(&rows).collect();
                takes(&scan.body, &given).map_err(|e| wrong(format!("the body {e}")))?;
                let mut out = results(&scan.body);
                let carry = &fixed[scan.shared..];
                if out.len() < carry.len() || !carry.iter().copied().eq(&out[..carry.len()]) {
                    let now: Specs = carry.iter().map(|&s| s.clone()).collect();
                    return Err(wrong(format!("the carry {} becomes {}", list(&now), list(&out))));
                }
                for y in &mut out[carry.len()..] {
                    let mut shape: Vec<usize> = vec![scan.length];
                    shape.extend_from_slice(&y.shape);
                    if !fits_memory(&shape) {
                        return Err(wrong(format!(
                            "{} rows of {y} do not fit in memory",
                            scan.length
                        )));
                    }
                    *y = y.with_shape(Shape::from_slice(&shape));
                }
                Ok(out)
            }
        }
    }
}

pub(crate) fn results(program: &Program) -> Specs {
    program.outputs.iter().map(|&v| program.spec(v).clone()).collect()
}

pub(crate) fn takes(program: &Program, given: &[&Spec]) -> std::result::Result<(), String> {
    let wanted: Specs = program.inputs.iter().map(|&v| program.spec(v).clone()).collect();
    match wanted.iter().eq(given.iter().copied()) {
        true => Ok(()),
        false => Err(format!("takes {}", list(&wanted))),
    }
}

fn is_test(spec: &Spec) -> std::result::Result<(), String> {
    match spec.dtype == DType::Bool && spec.shape.is_empty() {
        true => Ok(()),
        false => Err(format!("must be bool[], not {spec}")),
    }
}

pub(crate) fn list(specs: &[Spec]) -> String {
    format!("({})", specs.iter().map(Spec::to_string).collect::<Vec<_>>().join(", "))
}
