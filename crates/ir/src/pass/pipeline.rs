//! Passes in order.

use super::ordered::check_kept;
use super::{
    Constant, Epilogue, Target, channels_last, common_subexpressions, dead_code, epilogue_where,
    fold, fuse_within, inline, layout, losses, norms, overlap_on, remat_where, schedule_on,
    simplify, stores,
};
use crate::{Op, Program, Result, Scalar, Stopwatch};
use std::time::Duration;

/// A named step of a [`Pipeline`].
pub struct Pass<'a> {
    /// Its name.
    pub name: &'static str,
    run: Box<dyn Fn(&Program) -> Program + 'a>,
    /// Programs of which this does not hold skip the pass.
    applies: fn(&Program) -> bool,
}

/// The result of a pass.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The pass.
    pub name: &'static str,
    /// The program after it.
    pub program: Program,
    /// How many equations there were before.
    pub before: usize,
    /// How many there are now, those inside control flow not counted.
    pub after: usize,
    /// How long it took, checks not counted.
    pub time: Duration,
}

/// Passes in order, with a check of the program after each: always in debug builds, otherwise if
/// enabled.
///
/// ```
/// use pullback_ir::{Program, pass::{Pipeline, Target}};
/// let text = "program (a: f32[8], b: f32[8]) { let c: f32[8] = mul a b; let d: f32[8] = tanh c; let e: f32[8] = exp d; return d }";
/// let program: Program = text.parse().unwrap();
/// let passes = Pipeline::standard(Target::default(), |_, _| None);
/// let (compiled, stages) = passes.run_in_stages(&program).unwrap();
/// assert_eq!(compiled.equations.len(), 1);
/// assert!(stages.iter().any(|stage| stage.name == "fuse" && (stage.before, stage.after) == (2, 1)));
/// ```
#[derive(Default)]
pub struct Pipeline<'a> {
    passes: Vec<Pass<'a>>,
    verify: bool,
}

impl<'a> Pipeline<'a> {
    /// No passes.
    pub fn new() -> Pipeline<'a> {
        Pipeline { passes: Vec::new(), verify: cfg!(debug_assertions) }
    }

    /// What `jit` runs for a target. The callback computes pointwise ops of constants; see
    /// [`fold`].
    pub fn standard(
        target: Target,
        evaluate: impl Fn(&Op, &[Constant]) -> Option<Scalar> + 'a,
    ) -> Pipeline<'a> {
        Pipeline::before_budget(evaluate).and(Pipeline::after_budget(target))
    }

    /// The passes before the byte budget is applied ([`budget`](super::budget)).
    pub fn before_budget(
        evaluate: impl Fn(&Op, &[Constant]) -> Option<Scalar> + 'a,
    ) -> Pipeline<'a> {
        Pipeline::new()
            .then("inline", inline)
            .then("dead_code", dead_code)
            .then("fold", move |program| fold(program, &evaluate))
            .then("simplify", simplify)
            .then("common_subexpressions", common_subexpressions)
            .then("layout", layout)
            .then("simplify", simplify)
            .then("dead_code", dead_code)
            .then("losses", losses)
    }

    /// The passes after it.
    pub fn after_budget(target: Target) -> Pipeline<'a> {
        let images = match target.channels_last {
            [] => Pipeline::new(),
            dtypes => Pipeline::new()
                .then("channels_last", move |program| channels_last(program, dtypes))
                .then("simplify", simplify)
                .then("dead_code", dead_code),
        };
        let near = images.then("remat", move |program| remat_where(program, target.recompute));
        let written = match target.norms {
            true => near.then("norms", move |program| norms(program, target.regions)),
            false => near,
        };
        let fused = written.then("fuse", move |program| fuse_within(program, target.regions));
        let joined = match target.epilogue {
            Epilogue::Nothing => fused,
            which => fused.then("epilogue", move |program| epilogue_where(program, which)),
        };
        let joined = joined.then("simplify", simplify).then("dead_code", dead_code);
        let stored = match target.stores_twice {
            true => joined.then("stores", stores),
            false => joined,
        };
        let ordered = stored.then("schedule", move |program| schedule_on(program, target));
        match target.overlap {
            true => {
                let run = move |program: &Program| overlap_on(program, target);
                ordered.then_where("overlap", Program::is_ordered, run)
            }
            false => ordered,
        }
    }

    /// Appends other passes.
    #[must_use]
    pub fn and(mut self, after: Pipeline<'a>) -> Pipeline<'a> {
        self.passes.extend(after.passes);
        self
    }

    /// With one more pass.
    #[must_use]
    pub fn then(self, name: &'static str, run: impl Fn(&Program) -> Program + 'a) -> Pipeline<'a> {
        self.then_where(name, |_| true, run)
    }

    /// With one more pass, for programs of which something holds.
    #[must_use]
    pub fn then_where(
        mut self,
        name: &'static str,
        applies: fn(&Program) -> bool,
        run: impl Fn(&Program) -> Program + 'a,
    ) -> Pipeline<'a> {
        self.passes.push(Pass { name, run: Box::new(run), applies });
        self
    }

    /// With a check after every pass, or without.
    #[must_use]
    pub fn verified(mut self, verify: bool) -> Pipeline<'a> {
        self.verify = verify;
        self
    }

    /// Without the first pass of this name and all after it.
    ///
    /// ```
    /// use pullback_ir::pass::{Pipeline, Target};
    /// let passes = Pipeline::standard(Target::default(), |_, _| None).before("fuse");
    /// assert_eq!(passes.passes().last().unwrap().name, "remat");
    /// ```
    #[must_use]
    pub fn before(mut self, name: &str) -> Pipeline<'a> {
        let at = self.passes.iter().position(|pass| pass.name == name);
        self.passes.truncate(at.unwrap_or(self.passes.len()));
        self
    }

    /// The passes.
    pub fn passes(&self) -> &[Pass<'a>] {
        &self.passes
    }

    /// Runs all passes.
    ///
    /// # Errors
    /// If the program is invalid, or a pass made it invalid: the error names the pass.
    pub fn run(&self, program: &Program) -> Result<Program> {
        self.each(program, &mut |_, _, _, _| {})
    }

    /// Runs all passes and returns the result of each.
    ///
    /// # Errors
    /// As [`Pipeline::run`].
    pub fn run_in_stages(&self, program: &Program) -> Result<(Program, Vec<Stage>)> {
        let mut stages = Vec::new();
        let last = self.each(program, &mut |name, program, before, time| {
            let after = program.equations.len();
            stages.push(Stage { name, program: program.clone(), before, after, time });
        })?;
        Ok((last, stages))
    }

    fn each(
        &self,
        program: &Program,
        done: &mut dyn FnMut(&'static str, &Program, usize, Duration),
    ) -> Result<Program> {
        if self.verify {
            program.verify_deeply()?;
        }
        let mut program = program.clone();
        for pass in &self.passes {
            if !(pass.applies)(&program) {
                continue;
            }
            let (before, start) = (program.equations.len(), Stopwatch::start());
            let made = (pass.run)(&program);
            if program.is_ordered() || made.is_ordered() {
                check_kept(&program, &made, pass.name)?;
            }
            program = made;
            done(pass.name, &program, before, start.elapsed());
            if self.verify {
                let found = program.verify_deeply();
                found.map_err(|e| e.detail(format!("after the pass `{}`", pass.name)))?;
            }
        }
        Ok(program)
    }
}

/// The order in which the equations of an optimised program run: the last passes of a
/// [`Pipeline`], for programs whose sizes were filled in.
#[must_use]
pub fn order(program: &Program, target: Target) -> Program {
    let ordered = schedule_on(program, target);
    if target.overlap { overlap_on(&ordered, target) } else { ordered }
}

impl Program {
    /// As [`Program::verify`], for the programs inside control flow too.
    ///
    /// ```
    /// # use pullback_ir::Program;
    /// let text = "program (a: f32[]) { let b: f32[] = neg a; let c: f32[] = mul b b; return c }";
    /// text.parse::<Program>().unwrap().verify_deeply()?;
    /// # Ok::<(), pullback_ir::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Program::verify`].
    pub fn verify_deeply(&self) -> Result<()> {
        self.verify()?;
        for e in &self.equations {
            if let Op::Flow(flow) = &e.op {
                flow.programs().into_iter().try_for_each(Program::verify_deeply)?;
            }
            if let Op::Custom(custom) = &e.op {
                custom.body().map_or(Ok(()), Program::verify_deeply)?;
            }
        }
        Ok(())
    }
}
