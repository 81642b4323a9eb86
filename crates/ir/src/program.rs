//! A program: a typed list of equations in single-assignment form.
//!
//! ```text
//! program (a: f32[8], b: f32[8]) {
//!   let c: f32[8] = mul a b  // src/main.rs:12:9
//!   let d: f32[] = sum{[0]} c  // src/main.rs:12:15
//!   return d
//! }
//! ```
//!
//! Everything the compiler does is a pass from program to program. Between passes a program
//! satisfies [`Program::verify`]: every variable is defined once, before its use, with the spec
//! that `infer` gives it.
//!
//! Inputs that the program replaces (the parameters that a training step updates) are named by
//! [`Program::updates`]: `return d, e into b` says that the second output is written over the input
//! `b`.

use crate::infer::{Checked, Specs, fits_memory, infer};
use crate::{Device, Error, ErrorKind, Line, Op, Result, Spec};
use smallvec::SmallVec;

/// A variable: an index into [`Program::specs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Var(pub u32);

impl Var {
    /// The index as a number.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The variables that an equation takes or defines.
pub type Vars = SmallVec<[Var; 3]>;

/// One operation: `outputs = op inputs`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Equation {
    /// The operation.
    pub op: Op,
    /// Its operands.
    pub inputs: Vars,
    /// Its results.
    pub outputs: Vars,
    /// The line of the user's program.
    pub at: Option<Line>,
}

/// A function of tensors as data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Program {
    /// The spec of every variable.
    pub specs: Vec<Spec>,
    /// The arguments.
    pub inputs: Vec<Var>,
    /// The equations, in order.
    pub equations: Vec<Equation>,
    /// The results. A variable may occur more than once, and may be an input.
    pub outputs: Vec<Var>,
    /// Pairs (output, input), both as positions: the output replaces the input's value after the
    /// program has run.
    pub updates: Vec<(usize, usize)>,
}

impl Program {
    /// A new variable of this spec, which nothing defines yet.
    ///
    /// ```
    /// # use pullback_ir::{DType, Program, Spec};
    /// let mut program = Program::default();
    /// let a = program.fresh(Spec::cpu(DType::F32, [2]));
    /// assert_eq!((a.index(), program.inputs.len()), (0, 0));
    /// ```
    pub fn fresh(&mut self, spec: Spec) -> Var {
        self.specs.push(spec);
        Var(self.specs.len() as u32 - 1)
    }

    /// A new variable that is an argument of the program.
    ///
    /// ```
    /// # use pullback_ir::{DType, Program, Spec};
    /// let mut program = Program::default();
    /// let a = program.input(Spec::cpu(DType::F32, [2]));
    /// assert_eq!(program.inputs, [a]);
    /// assert_eq!(program.spec(a).to_string(), "f32[2]");
    /// ```
    pub fn input(&mut self, spec: Spec) -> Var {
        let var = self.fresh(spec);
        self.inputs.push(var);
        var
    }

    /// The spec of a variable.
    ///
    /// ```
    /// # use pullback_ir::{DType, Op, Program, Spec};
    /// let mut program = Program::default();
    /// let a = program.input(Spec::cpu(DType::F32, [2]));
    /// let b = program.push(Op::Cast(DType::F64), &[a], None)?[0];
    /// assert_eq!(program.spec(b).to_string(), "f64[2]");
    /// # Ok::<(), pullback_ir::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the program has no such variable.
    pub fn spec(&self, var: Var) -> &Spec {
        &self.specs[var.index()]
    }

    /// The specs of several variables.
    ///
    /// ```
    /// # use pullback_ir::{DType, Program, Spec};
    /// let mut program = Program::default();
    /// let a = program.input(Spec::cpu(DType::F32, [2]));
    /// assert_eq!(program.specs_of(&[a, a]).len(), 2);
    /// ```
    ///
    /// # Panics
    /// If the program has no such variable.
    pub fn specs_of<'a>(&'a self, vars: &[Var]) -> SmallVec<[&'a Spec; 4]> {
        vars.iter().map(|&v| self.spec(v)).collect()
    }

    /// Appends an equation and returns the variables it defines.
    ///
    /// ```
    /// # use pullback_ir::{DType, Op, Program, Spec};
    /// let mut program = Program::default();
    /// let a = program.input(Spec::cpu(DType::F32, [2]));
    /// let b = program.push("neg".parse().unwrap(), &[a], None)?;
    /// program.outputs.extend(&b);
    /// program.verify()?;
    /// assert!(program.push(Op::Dot, &[a, a], None).is_err()); // a product needs matrices
    /// # Ok::<(), pullback_ir::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the op does not accept these operands.
    pub fn push(&mut self, op: Op, inputs: &[Var], at: Option<Line>) -> Result<Vars> {
        let results = infer(&op, &self.specs_of(inputs))?;
        Ok(self.append(op, inputs, results, at))
    }

    /// Appends the equation of an op that was checked for operands with the specs of these
    /// variables, and returns the variables it defines.
    ///
    /// ```
    /// # use pullback_ir::infer::check;
    /// # use pullback_ir::{DType, Op, Program, Spec};
    /// let mut program = Program::default();
    /// let a = program.input(Spec::cpu(DType::F32, [2]));
    /// let (op, spec): (Op, _) = ("neg".parse().unwrap(), program.spec(a).clone());
    /// let b = program.push_checked(check(&op, &[&spec])?, &[a], None);
    /// assert_eq!(program.specs_of(&b)[0], &spec);
    /// # Ok::<(), pullback_ir::Error>(())
    /// ```
    pub fn push_checked(&mut self, call: Checked<'_>, inputs: &[Var], at: Option<Line>) -> Vars {
        debug_assert!(call.operands().iter().copied().eq(self.specs_of(inputs)), "other operands");
        self.append(call.op().clone(), inputs, call.into_results(), at)
    }

    fn append(&mut self, op: Op, inputs: &[Var], results: Specs, at: Option<Line>) -> Vars {
        let outputs: Vars = results.into_iter().map(|spec| self.fresh(spec)).collect();
        let inputs = Vars::from_slice(inputs);
        self.equations.push(Equation { op, inputs, outputs: outputs.clone(), at });
        outputs
    }

    /// How often each variable is read, by equations and as an output.
    ///
    /// ```
    /// # use pullback_ir::Program;
    /// let text = "program (a: f32[]) { let b: f32[] = neg a; let c: f32[] = mul b b; return c }";
    /// assert_eq!(text.parse::<Program>().unwrap().uses(), [1, 2, 1]);
    /// ```
    pub fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.specs.len()];
        let read = self.equations.iter().flat_map(|e| &e.inputs).chain(&self.outputs);
        read.for_each(|v| uses[v.index()] += 1);
        uses
    }

    /// The device that all its values are on; `None` if there are several, or no values.
    ///
    /// ```
    /// # use pullback_ir::{Device, Program};
    /// let text = "program (a: f32[2]@cuda:0) { let b: f32[2]@cuda:0 = neg a; return b }";
    /// assert_eq!(text.parse::<Program>().unwrap().device(), Some(Device::Cuda(0)));
    /// ```
    pub fn device(&self) -> Option<Device> {
        let first = self.specs.first()?.device;
        self.specs.iter().all(|spec| spec.device == first).then_some(first)
    }

    /// The same program with all its values on a device: what it would be if it had been traced
    /// there.
    ///
    /// ```
    /// # use pullback_ir::{Device, Program};
    /// let text = "program (a: f32[2]) { let b: f32[2] = neg a; return b }";
    /// let moved = text.parse::<Program>().unwrap().on_device(Device::Cuda(0));
    /// assert_eq!(moved.device(), Some(Device::Cuda(0)));
    /// assert!(moved.verify().is_ok());
    /// ```
    #[must_use]
    pub fn on_device(&self, device: Device) -> Program {
        let mut out = self.clone();
        out.specs.iter_mut().for_each(|spec| spec.device = device);
        out.equations.iter_mut().for_each(|e| e.op = e.op.on_device(device));
        out
    }

    /// The equation that defines each variable; `None` for inputs.
    ///
    /// ```
    /// # use pullback_ir::Program;
    /// let text = "program (a: f32[]) { let b: f32[] = neg a; let c: f32[] = mul b b; return c }";
    /// assert_eq!(text.parse::<Program>().unwrap().definitions(), [None, Some(0), Some(1)]);
    /// ```
    pub fn definitions(&self) -> Vec<Option<usize>> {
        let mut made = vec![None; self.specs.len()];
        for (i, equation) in self.equations.iter().enumerate() {
            equation.outputs.iter().for_each(|v| made[v.index()] = Some(i));
        }
        made
    }

    /// Whether it contains collectives, at any depth.
    ///
    /// ```
    /// # use pullback_ir::Program;
    /// assert!(!Program::default().is_ordered());
    /// ```
    pub fn is_ordered(&self) -> bool {
        self.equations.iter().any(|e| e.op.is_ordered())
    }

    /// The same with every variable renumbered in order of definition, and unused numbers removed:
    /// programs that differ only in names become equal.
    ///
    /// ```
    /// # use pullback_ir::{DType, Program, Spec};
    /// let mut program = Program::default();
    /// program.fresh(Spec::cpu(DType::F32, [9])); // unused
    /// let a = program.input(Spec::cpu(DType::F32, [2]));
    /// program.outputs = vec![a];
    /// assert_eq!(program.renumbered().specs.len(), 1);
    /// ```
    #[must_use]
    pub fn renumbered(&self) -> Program {
        let mut out = Program { updates: self.updates.clone(), ..Program::default() };
        let mut to = vec![Var(u32::MAX); self.specs.len()];
        for &v in &self.inputs {
            to[v.index()] = out.input(self.spec(v).clone());
        }
        for e in &self.equations {
            let inputs = e.inputs.iter().map(|v| to[v.index()]).collect();
            for &v in &e.outputs {
                to[v.index()] = out.fresh(self.spec(v).clone());
            }
            let outputs = e.outputs.iter().map(|v| to[v.index()]).collect();
            out.equations.push(Equation { op: e.op.clone(), inputs, outputs, at: e.at });
        }
        out.outputs = self.outputs.iter().map(|v| to[v.index()]).collect();
        out
    }

    /// Checks that the program is valid: every variable defined once and before its use, every
    /// equation accepted by `infer` with the stored specs, every collective that is started waited
    /// for, every copy to the host and back ended once, and valid updates.
    ///
    /// ```
    /// # use pullback_ir::{DType, Program, Spec};
    /// let mut program = Program::default();
    /// let a = program.fresh(Spec::cpu(DType::F32, [2]));
    /// program.outputs = vec![a];
    /// assert!(program.verify().is_err()); // nothing defines it
    /// program.inputs = vec![a];
    /// program.verify()?;
    /// # Ok::<(), pullback_ir::Error>(())
    /// ```
    ///
    /// # Errors
    /// Names the first invalid equation, and its line.
    pub fn verify(&self) -> Result<()> {
        let wrong = |message: String| Error::new(ErrorKind::Program, "verify", message);
        let mut defined = vec![false; self.specs.len()];
        let mut define = |v: Var| match defined.get_mut(v.index()) {
            None => Err(wrong(format!("variable {} has no spec", v.0))),
            Some(true) => Err(wrong(format!("variable {v} is defined twice"))),
            Some(slot) => {
                *slot = true;
                Ok(())
            }
        };
        self.inputs.iter().try_for_each(|&v| define(v))?;
        // `infer` checks the sizes of results; those of arguments are unchecked.
        let huge = |&&v: &&Var| !fits_memory(&self.spec(v).shape);
        if let Some(&v) = self.inputs.iter().find(huge) {
            return Err(wrong(format!(
                "the input {v}: {} exceeds the addressable size",
                self.spec(v)
            )));
        }
        // Passes add up the bytes of values.
        let all = self.specs.iter().map(Spec::bytes).fold(0, usize::saturating_add);
        if all > isize::MAX as usize {
            return Err(wrong("its values together exceed the addressable size".into()));
        }
        let mut known: Vec<Vars> = Vec::with_capacity(self.equations.len());
        for (i, e) in self.equations.iter().enumerate() {
            known.push(e.inputs.clone());
            e.outputs
                .iter()
                .try_for_each(|&v| define(v))
                .map_err(|e| e.detail(format!("in equation {i}")))?;
        }
        let mut ready = vec![false; self.specs.len()];
        self.inputs.iter().for_each(|v| ready[v.index()] = true);
        for (i, e) in self.equations.iter().enumerate() {
            let located = |error: Error| match e.at {
                Some(at) => error.at(at),
                None => error,
            };
            if let Some(v) =
                e.inputs.iter().find(|v| !ready.get(v.index()).copied().unwrap_or(false))
            {
                return Err(located(wrong(format!(
                    "equation {i} (`{}`) reads {v} before it is defined",
                    e.op.name()
                ))));
            }
            let inferred = infer(&e.op, &self.specs_of(&e.inputs)).map_err(located)?;
            if !inferred.iter().eq(self.specs_of(&e.outputs)) {
                let list =
                    |specs: &mut dyn Iterator<Item = String>| specs.collect::<Vec<_>>().join(", ");
                let given = list(&mut e.outputs.iter().map(|&v| self.spec(v).to_string()));
                let found = list(&mut inferred.iter().map(Spec::to_string));
                return Err(located(wrong(format!(
                    "equation {i} (`{}`) has the result {found}, but {given} is declared",
                    e.op.name()
                ))));
            }
            e.outputs.iter().for_each(|v| ready[v.index()] = true);
        }
        if let Some(v) =
            self.outputs.iter().find(|v| !ready.get(v.index()).copied().unwrap_or(false))
        {
            return Err(wrong(format!("the output {v} is not defined")));
        }
        self.check_waits()?;
        self.check_transfers()?;
        let mut replaced = vec![false; self.inputs.len()];
        for &(output, input) in &self.updates {
            let (Some(&o), Some(&i)) = (self.outputs.get(output), self.inputs.get(input)) else {
                return Err(wrong(format!(
                    "output {output} cannot replace input {input}: there are fewer"
                )));
            };
            if self.spec(o) != self.spec(i) {
                return Err(wrong(format!(
                    "{} cannot replace the input {}",
                    self.spec(o),
                    self.spec(i)
                )));
            }
            if std::mem::replace(&mut replaced[input], true) {
                return Err(wrong(format!("input {input} is replaced twice")));
            }
        }
        Ok(())
    }
}
