//! A program as data: statements on numbered variables. It can be run on tensors (`interpret.rs`),
//! printed (`print.rs`) and shrunk (`shrink.rs`).

use crate::ops::{ArgKind, LOW, OpRow, WriteRow};
use pullback::{DType, Tensor};
use std::sync::Arc;

/// The number of a variable; unique in a program.
pub type Var = usize;

/// How many examples each input has, for batches.
pub const EXAMPLES: usize = 3;

/// What a program takes: `EXAMPLES` tensors of one shape.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramInput {
    /// The shape of one example.
    pub shape: Vec<usize>,
    /// The elements of all examples, one after the other.
    pub values: Vec<f64>,
}

impl ProgramInput {
    /// How many elements an example has.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether an example has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All examples, stacked along a new first axis.
    pub fn stacked(&self, dtype: DType) -> Tensor {
        let shape = [&[EXAMPLES], &self.shape[..]].concat();
        Tensor::from_vec(&self.values[..], shape).cast(dtype)
    }

    /// The first example.
    pub fn first(&self, dtype: DType) -> Tensor {
        Tensor::from_vec(&self.values[..self.len()], &self.shape[..]).cast(dtype)
    }
}

/// A whole program. Its inputs are the parameters of its body.
#[derive(Clone, Debug)]
pub struct Program {
    /// The element type of what it takes.
    pub dtype: DType,
    /// What it takes.
    pub inputs: Vec<ProgramInput>,
    /// Tensors that it captures and writes to: the variable, and its value before the first call.
    pub state: Vec<(Var, ProgramInput)>,
    /// What it does.
    pub body: Arc<Block>,
    /// The first number that is no variable yet.
    pub fresh: Var,
}

/// Statements with parameters and results. A block inside another sees the variables around it.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// What it is given.
    pub params: Vec<Var>,
    /// What it does, in order.
    pub stmts: Vec<Stmt>,
    /// What it gives: numbers, at least one.
    pub results: Vec<Var>,
}

/// One line of a program.
#[derive(Clone, Debug)]
pub enum Stmt {
    /// An op.
    Call {
        /// Which.
        row: &'static OpRow,
        /// On what.
        args: Vec<Var>,
        /// Its plain numbers.
        draws: Vec<u32>,
        /// Its results.
        outs: Vec<(Var, ArgKind)>,
    },
    /// A write in place.
    Write {
        /// Which.
        row: &'static WriteRow,
        /// Into what.
        target: Var,
        /// From what.
        args: Vec<Var>,
        /// Its plain numbers.
        draws: Vec<u32>,
        /// Into state of the program: inside `no_grad`, of detached values, as running statistics
        /// are written.
        detached: bool,
    },
    /// Something that takes functions.
    Nest {
        /// What is done with the bodies.
        how: Nest,
        /// The arguments.
        args: Vec<Var>,
        /// One body, or two for `cond`.
        bodies: Vec<Arc<Block>>,
        /// Its plain numbers.
        draws: Vec<u32>,
        /// Its results.
        outs: Vec<(Var, ArgKind)>,
    },
}

/// What is done with a function inside a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the function of that name")]
pub enum Nest {
    Cond,
    Scan,
    ScanReverse,
    WhileLoop,
    WhileLoopBounded,
    ForiLoop,
    ScanTimes,
    AssociativeScan,
    AssociativeScanReverse,
    Checkpoint,
    NoGrad,
    Autocast,
    Vmap,
    Grad,
    GradAux,
    Jvp,
    JvpAux,
    Vjp,
    VjpAux,
    Linearize,
    Hvp,
    Jacrev,
    Jacfwd,
    Jacobian,
    Hessian,
    Jit,
    MemoryBudget,
}

impl Nest {
    /// All of them.
    pub const ALL: [Nest; 27] = [
        Nest::Cond,
        Nest::Scan,
        Nest::ScanReverse,
        Nest::WhileLoop,
        Nest::WhileLoopBounded,
        Nest::ForiLoop,
        Nest::ScanTimes,
        Nest::AssociativeScan,
        Nest::AssociativeScanReverse,
        Nest::Checkpoint,
        Nest::NoGrad,
        Nest::Autocast,
        Nest::Vmap,
        Nest::Grad,
        Nest::GradAux,
        Nest::Jvp,
        Nest::JvpAux,
        Nest::Vjp,
        Nest::VjpAux,
        Nest::Linearize,
        Nest::Hvp,
        Nest::Jacrev,
        Nest::Jacfwd,
        Nest::Jacobian,
        Nest::Hessian,
        Nest::Jit,
        Nest::MemoryBudget,
    ];

    /// Whether it differentiates.
    pub fn differentiates(self) -> bool {
        self.order() > 0
    }

    /// How often it differentiates.
    pub fn order(self) -> usize {
        use Nest::*;
        match self {
            Hessian | Hvp => 2,
            Grad | GradAux | Jvp | JvpAux | Vjp | VjpAux | Linearize | Jacrev | Jacfwd
            | Jacobian => 1,
            Cond
            | Scan
            | ScanReverse
            | WhileLoop
            | WhileLoopBounded
            | ForiLoop
            | ScanTimes
            | AssociativeScan
            | AssociativeScanReverse
            | Checkpoint
            | NoGrad
            | Autocast
            | Vmap
            | Jit
            | MemoryBudget => 0,
        }
    }

    /// Whether its body becomes one op of the tape where it is traced, and a loop of the host where
    /// it is not.
    pub fn is_control(self) -> bool {
        use Nest::*;
        matches!(
            self,
            Cond | Scan | ScanReverse | WhileLoop | WhileLoopBounded | ForiLoop | ScanTimes
        )
    }

    /// Whether it maps a function over many examples, so that the body is traced.
    pub fn is_mapped(self) -> bool {
        use Nest::*;
        matches!(
            self,
            Vmap | AssociativeScan | AssociativeScanReverse | Jacrev | Jacfwd | Jacobian | Hessian
        )
    }

    /// Whether the body is the same function of the same arguments: it can be taken out of it.
    pub fn is_transparent(self) -> bool {
        matches!(
            self,
            Nest::Checkpoint | Nest::NoGrad | Nest::Autocast | Nest::Jit | Nest::MemoryBudget
        )
    }
}

impl Stmt {
    /// What it reads, in its own block.
    pub fn args(&self) -> &[Var] {
        match self {
            Stmt::Call { args, .. } | Stmt::Write { args, .. } | Stmt::Nest { args, .. } => args,
        }
    }

    /// What it makes.
    pub fn outs(&self) -> &[(Var, ArgKind)] {
        match self {
            Stmt::Call { outs, .. } | Stmt::Nest { outs, .. } => outs,
            Stmt::Write { .. } => &[],
        }
    }

    /// Its plain numbers.
    pub fn draws_mut(&mut self) -> &mut Vec<u32> {
        match self {
            Stmt::Call { draws, .. } | Stmt::Write { draws, .. } | Stmt::Nest { draws, .. } => {
                draws
            }
        }
    }

    /// Its bodies.
    pub fn bodies(&self) -> &[Arc<Block>] {
        match self {
            Stmt::Nest { bodies, .. } => bodies,
            Stmt::Call { .. } | Stmt::Write { .. } => &[],
        }
    }
}

impl Block {
    /// Calls `f` on each statement, those of inner blocks included.
    pub fn visit(&self, f: &mut dyn FnMut(&Stmt)) {
        for stmt in &self.stmts {
            f(stmt);
            stmt.bodies().iter().for_each(|body| body.visit(f));
        }
    }

    /// Whether some statement is like this.
    pub fn any(&self, test: impl Fn(&Stmt) -> bool) -> bool {
        let mut found = false;
        self.visit(&mut |stmt| found |= test(stmt));
        found
    }

    /// How many statements there are, those of inner blocks included.
    pub fn count(&self) -> usize {
        let mut count = 0;
        self.visit(&mut |_| count += 1);
        count
    }
}

impl Program {
    /// Whether an op with this flag is in it.
    pub fn has(&self, flag: u16) -> bool {
        self.body.any(|stmt| matches!(stmt, Stmt::Call { row, .. } if row.has(flag)))
    }

    /// Whether it writes in place.
    pub fn writes(&self) -> bool {
        self.body.any(|stmt| matches!(stmt, Stmt::Write { .. }))
    }

    /// Whether this is in it.
    pub fn nests(&self, test: impl Fn(Nest) -> bool) -> bool {
        self.body.any(|stmt| matches!(stmt, Stmt::Nest { how, .. } if test(*how)))
    }

    /// How often it differentiates inside itself, at most.
    pub fn order(&self) -> usize {
        deepest(&self.body)
    }

    /// The dtype of the fewest digits that some value in it has.
    pub fn coarsest(&self) -> DType {
        if self.dtype == DType::BF16 || self.has(LOW) || self.nests(|n| n == Nest::Autocast) {
            DType::BF16
        } else {
            self.dtype
        }
    }

    /// Whether no operation rounds: ops on small dyadic numbers, and nothing that divides.
    pub fn is_exact(&self) -> bool {
        if matches!(self.coarsest(), DType::BF16 | DType::F16) {
            return false;
        }
        let dyadic = self.inputs.iter().flat_map(|x| &x.values).all(|v| v.fract() % 0.25 == 0.0);
        dyadic
            && !self.body.any(|stmt| match stmt {
                Stmt::Call { row, .. } => !row.has(crate::ops::EXACT),
                Stmt::Write { row, .. } => !row.exact,
                Stmt::Nest { .. } => false,
            })
    }

    /// The same program on inputs a little aside.
    pub fn nudged(&self) -> Program {
        let mut program = self.clone();
        for (k, input) in program.inputs.iter_mut().enumerate() {
            for (i, v) in input.values.iter_mut().enumerate() {
                *v += 0.004 * (0.7 + ((3 * i + 7 * k) as f64).sin());
            }
        }
        program
    }

    /// The first example of each input.
    pub fn first(&self) -> Vec<Tensor> {
        self.inputs.iter().map(|x| x.first(self.dtype)).collect()
    }

    /// All examples of each input.
    pub fn stacked(&self) -> Vec<Tensor> {
        self.inputs.iter().map(|x| x.stacked(self.dtype)).collect()
    }
}

fn deepest(block: &Block) -> usize {
    let of = |stmt: &Stmt| {
        let inside = stmt.bodies().iter().map(|body| deepest(body)).max().unwrap_or(0);
        inside + if let Stmt::Nest { how, .. } = stmt { how.order() } else { 0 }
    };
    block.stmts.iter().map(of).max().unwrap_or(0)
}
