//! Checks that values on their way to the host and back ([`Transfer`]) are read by their next step
//! alone, and that every copy that is started ends once.

use crate::{Equation, Error, ErrorKind, Op, Program, Result, Transfer};

impl Program {
    /// See the head of the file.
    pub(crate) fn check_transfers(&self) -> Result<()> {
        if !self.equations.iter().any(has_transfers) {
            return Ok(());
        }
        let mut check = TransferCheck { program: self, made: vec![None; self.specs.len()] };
        self.equations.iter().enumerate().try_for_each(|(i, e)| check.equation(i, e))?;
        if let Some(v) = self.outputs.iter().find(|v| check.made[v.index()].is_some()) {
            let message = format!("the output {v} is on its way to the host or back");
            return Err(Error::new(ErrorKind::Program, "verify", message));
        }
        match check.made.iter().flatten().find(|made| made.waits) {
            Some(made) => check.wrong(made.at, "starts a copy that does not end"),
            None => Ok(()),
        }
    }
}

/// Whether an equation is a step of a value's way, or contains one.
fn has_transfers(e: &Equation) -> bool {
    let inside = || e.op.structure().map_or(Vec::new(), |structure| structure.programs());
    matches!(e.op, Op::Transfer(_))
        || inside().iter().any(|p| p.equations.iter().any(has_transfers))
}

/// What an equation has made that only the next step reads.
#[derive(Clone, Copy)]
struct PendingTransfer {
    at: usize,
    step: Transfer,
    /// The copy has not ended.
    waits: bool,
}

struct TransferCheck<'a> {
    program: &'a Program,
    /// By variable.
    made: Vec<Option<PendingTransfer>>,
}

impl TransferCheck<'_> {
    fn wrong(&self, at: usize, message: &str) -> Result<()> {
        let e = &self.program.equations[at];
        let message = format!("equation {at} (`{}`) {message}", e.op.name());
        let error = Error::new(ErrorKind::Program, "verify", message);
        Err(e.at.map_or_else(|| error.clone(), |line| error.clone().at(line)))
    }

    fn equation(&mut self, at: usize, e: &Equation) -> Result<()> {
        let Op::Transfer(step) = e.op else {
            if has_transfers(e) {
                return self.wrong(at, "offloads inside a loop, which has no memory of the host");
            }
            return match e.inputs.iter().any(|v| self.made[v.index()].is_some()) {
                true => self.wrong(at, "reads a value on its way to the host or back"),
                false => Ok(()),
            };
        };
        let first = self.made[e.inputs[0].index()];
        if first.map(|made| made.step) != step.previous() {
            return self.wrong(at, "is not the next step of its operand");
        }
        // `offloaded` and `restored` end a copy of their second operand.
        if let (Some(made), false) = (first, step.starts()) {
            if !made.waits {
                return self.wrong(at, "ends a copy for the second time");
            }
            if self.program.equations[made.at].inputs[0] != e.inputs[1] {
                return self.wrong(at, "does not name what was copied");
            }
            self.made[e.inputs[0].index()] = Some(PendingTransfer { waits: false, ..made });
        }
        if step != Transfer::Restored {
            self.made[e.outputs[0].index()] =
                Some(PendingTransfer { at, step, waits: step.starts() });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Op, Program};

    const WAY: &str = "program (a: f32[9]) {
  let x: f32[9] = exp a
  let s: f32[9] = offload x
  let h: f32[9] = offloaded s x
  let b: f32[9] = restore h
  let y: f32[9] = restored b h
  let z: f32[9] = neg y
  return z
}
";

    #[test]
    fn each_step_reads_the_one_before() {
        let way: Program = WAY.parse().unwrap();
        way.verify().unwrap();
        assert_eq!(way.to_string().parse::<Program>().unwrap(), way);
        let wrong = [
            ("neg y", "neg b", "reads a value on its way"),
            ("neg y", "neg h", "reads a value on its way"),
            ("offloaded s x", "offloaded s a", "does not name what was copied"),
            ("restored b h", "restored b s", "does not name what was copied"),
            ("restore h", "restore s", "is not the next step"),
            ("restore h", "offload h", "is not the next step"),
            ("return z", "return h", "is on its way"),
            (
                "  let y: f32[9] = restored b h\n  let z: f32[9] = neg y",
                "  let z: f32[9] = neg x",
                "(`restore`) starts a copy that does not end",
            ),
            ("neg y", "restored b h", "ends a copy for the second time"),
        ];
        for (from, to, why) in wrong {
            let broken: Program = WAY.replace(from, to).parse().unwrap();
            let error = broken.verify().unwrap_err().to_string();
            assert!(error.contains(why), "{to}: {error}");
        }
    }

    #[test]
    fn a_loop_has_no_memory_of_the_host() {
        let inside: Program = WAY.parse().unwrap();
        let mut program = Program::default();
        let a = program.input(inside.spec(inside.inputs[0]).clone());
        let test = program.input("bool[]".parse().unwrap());
        let cond = crate::Flow::Cond { yes: inside.clone(), no: inside };
        program.outputs = program.push(Op::Flow(cond.into()), &[test, a], None).unwrap().to_vec();
        let error = program.verify().unwrap_err().to_string();
        assert!(error.contains("offloads inside a loop"), "{error}");
    }
}
