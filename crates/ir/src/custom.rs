//! Custom operations of users: what they compute, and a handle to their derivative.
//!
//! An op is plain data, and code is not. So a [`Custom`] contains two things that only the crates
//! above can use: a [`Kernel`], if the work is code that is called with memory, and a derivative
//! rule, which is opaque here. Two of them are equal if they hold the same rule (by address, not by
//! value) and do the same work. Their text cannot be parsed back, and the parser says so.

use crate::flow::{list, results, takes};
use crate::infer::Specs;
use crate::{Error, Launch, Program, Result, Spec};
use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// An operation with a derivative that the user wrote.
pub struct Custom {
    name: &'static str,
    work: Work,
    rule: Arc<dyn Any + Send + Sync>,
}

/// What a [`Custom`] computes.
#[derive(Clone)]
pub enum Work {
    /// A program: compiling inlines it (`pass::inline`).
    Body(Program),
    /// Code that is called with memory.
    Kernel {
        /// The code.
        kernel: Arc<dyn Kernel>,
        /// How many results it has.
        results: usize,
    },
    /// This many values that were computed already: the op is recorded on a tape, never in a
    /// program.
    Done(usize),
}

/// Code that computes tensors from tensors, in dense host memory and, if it has code for it, a GPU.
pub trait Kernel: Send + Sync {
    /// The specs of the results.
    ///
    /// # Errors
    /// If it does not accept these operands.
    fn infer(&self, inputs: &[&Spec]) -> Result<Specs>;

    /// Fills the results, which are zeros before.
    ///
    /// # Errors
    /// If the values of the operands are wrong.
    fn run(&self, inputs: &[Bytes<'_>], outputs: &mut [BytesMut<'_>]) -> Result<()>;

    /// The launches that do the same on a GPU, in order, on dense operands and results of these
    /// specs. `None` if it has no code for a GPU: then the backend copies the operands to the host,
    /// calls `run`, and copies the results back.
    ///
    /// # Errors
    /// If its code for a GPU does not take these operands.
    fn launches(&self, _inputs: &[&Spec], _outputs: &[&Spec]) -> Result<Option<Vec<Launch>>> {
        Ok(None)
    }
}

/// An operand in memory: dense, row-major.
#[derive(Clone, Copy)]
pub struct Bytes<'a> {
    /// Its spec.
    pub spec: &'a Spec,
    /// Its elements.
    pub bytes: &'a [u8],
}

/// A result in memory: dense, row-major.
pub struct BytesMut<'a> {
    /// Its spec.
    pub spec: &'a Spec,
    /// Its elements.
    pub bytes: &'a mut [u8],
}

impl Custom {
    /// An op of this name with a derivative rule, used by the crate that differentiates.
    pub fn new(name: &'static str, work: Work, rule: Arc<dyn Any + Send + Sync>) -> Custom {
        Custom { name, work, rule }
    }

    /// The name the user gave it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What it computes.
    pub fn work(&self) -> &Work {
        &self.work
    }

    /// Its program, if it has one.
    pub fn body(&self) -> Option<&Program> {
        match &self.work {
            Work::Body(program) => Some(program),
            Work::Kernel { .. } | Work::Done(_) => None,
        }
    }

    /// Its derivative rule.
    pub fn rule(&self) -> &Arc<dyn Any + Send + Sync> {
        &self.rule
    }

    /// How many results the op has.
    pub fn results(&self) -> usize {
        match &self.work {
            Work::Body(program) => program.outputs.len(),
            Work::Kernel { results, .. } | Work::Done(results) => *results,
        }
    }

    /// Whether it may stop with an error when it is run.
    pub fn may_fail(&self) -> bool {
        match &self.work {
            Work::Body(program) => program.equations.iter().any(|e| e.op.may_fail()),
            Work::Kernel { .. } | Work::Done(_) => true,
        }
    }

    /// Checks the operands and returns the specs of the results.
    ///
    /// # Errors
    /// If the op does not accept these operands.
    pub fn infer(&self, inputs: &[&Spec]) -> Result<Specs> {
        let wrong = |message: String| Error::shape(self.name, message).on(inputs.iter().copied());
        match &self.work {
            Work::Body(program) if program.updates.is_empty() => {
                takes(program, inputs).map_err(wrong)?;
                Ok(results(program))
            }
            Work::Body(_) => Err(wrong("a program inside may not update its inputs".into())),
            Work::Kernel { kernel, results } => {
                let specs = kernel.infer(inputs).map_err(|e| e.on(inputs.iter().copied()))?;
                match specs.len() == *results {
                    true => Ok(specs),
                    false => Err(wrong(format!(
                        "its shape rule gives {}, and {results} results were expected",
                        list(&specs)
                    ))),
                }
            }
            Work::Done(_) => Err(wrong("exists only on the tape, and cannot be run again".into())),
        }
    }

    /// An address that identifies the rule.
    fn identity(&self) -> usize {
        Arc::as_ptr(&self.rule).cast::<()>() as usize
    }
}

impl PartialEq for Custom {
    fn eq(&self, other: &Custom) -> bool {
        let same_work = match (&self.work, &other.work) {
            (Work::Body(a), Work::Body(b)) => a == b,
            (Work::Kernel { kernel: a, .. }, Work::Kernel { kernel: b, .. }) => {
                std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b))
            }
            (Work::Done(a), Work::Done(b)) => a == b,
            (Work::Body(_) | Work::Kernel { .. } | Work::Done(_), _) => false,
        };
        self.name == other.name && self.identity() == other.identity() && same_work
    }
}

impl Eq for Custom {}

impl Hash for Custom {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.name, self.identity()).hash(state);
    }
}

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let work = match &self.work {
            Work::Body(_) => "body",
            Work::Kernel { .. } => "kernel",
            Work::Done(_) => "done",
        };
        write!(f, "Custom({}, {work})", self.name)
    }
}
