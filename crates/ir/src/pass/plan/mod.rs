//! Memory planning: assigns memory to every variable before anything runs.
//!
//! # Homes (where variables are stored)
//!
//! A variable lives in the memory of an input, in that of an output, among the constants, or at an
//! offset in one arena, and is accessed through a [`Layout`]. So a view has a location too (that of
//! its base) and costs nothing; only a reshape of elements that are not evenly spaced is a copy.
//! The result of [`Op::After`](crate::Op::After) is its first operand. A literal is one element,
//! broadcast. What is offloaded has an offset in memory of the host, which is packed like the
//! arena.
//!
//! # Slots
//!
//! Memory is assigned to *slots*: sequences of variables that reuse the same memory. A variable
//! gets a new slot, unless it can reuse that of an operand that is read for the last time by the
//! equation that defines it ([`sharing`] says which ops allow it). A slot lives from its first
//! definition to the last use of its last variable, views included.
//!
//! Where kernels write results through strides, a result may be laid out as its reader wants it, or
//! be computed inside a `cat` that is made later (`roots.rs`).
//!
//! What pads, joins or puts a piece ([`piece`]) does not copy it if it can be computed inside the
//! result: the result joins the slot of the piece, which grows at the front or at the end.
//!
//! # Outputs and updates
//!
//! An output is computed in its own memory: a slot whose last variable is an output is placed in
//! the output's memory, with all variables before it in the slot. If an output replaces an input
//! ([`Program::updates`]) the slot is placed in the input's memory, provided that the old value is
//! not read after the slot begins (or is read element by element by the op that begins it). All
//! others are computed elsewhere and copied at the end: outputs that are inputs, literals or views,
//! or that occur twice, and replacements of inputs that are read to the end. All of these copies
//! read before any replaces an input. Until its own slot begins, the memory of an output is used
//! for other slots.
//!
//! # Programs inside
//!
//! The memory of the programs of a loop or a conditional is scratch of their equation: their arenas
//! are blocks in this one, and their operands and results are the locations of the outer variables.
//! The carry of a loop is one piece of memory that the body updates in place.
//!
//! ```
//! # use pullback_ir::{pass::{Target, plan::plan}, Binary, DType, Op, Program, Spec, Unary};
//! let mut p = Program::default();
//! let x = p.input(Spec::cpu(DType::F32, [256].as_slice()));
//! let a = p.push(Op::Unary(Unary::Exp), &[x], None)?[0];
//! let b = p.push(Op::Unary(Unary::Neg), &[a], None)?[0];
//! p.outputs = p.push(Op::Binary(Binary::Mul), &[b, x], None)?.to_vec();
//! let plan = plan(&p, Target::default());
//! assert_eq!((plan.arena, plan.outputs), (0, 1024)); // the chain runs in the memory of its result
//! # Ok::<(), pullback_ir::Error>(())
//! ```

mod compose;
mod host;
mod output_memory;
mod overwrite;
mod pack;
mod planned;
mod roots;
mod share;
mod slots;

pub(super) use host::memory_of;
pub use planned::Planned;
pub use share::{Sharing, added, piece, sharing};

use super::Target;
use crate::{Layout, Line, Program, Var};
use std::fmt;

/// Bytes between constants in their block.
pub const CONSTANT: usize = 8;

/// A block of memory that a program uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Base {
    /// That of an input, by its position.
    Input(usize),
    /// That of an output, by its position among all outputs.
    Output(usize),
    /// The arena.
    Arena,
    /// The elements of literals, written once.
    Constants,
    /// Memory of the host, for values that are copied there and back
    /// ([`Transfer`](crate::Transfer)). Only these copies use it.
    Host,
}

/// Where a variable is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// In which memory.
    pub base: Base,
    /// From which byte on.
    pub start: usize,
    /// The layout of the elements from there on.
    pub layout: Layout,
}

/// Bytes of the arena that only one equation uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScratchSlot {
    /// Its use.
    pub role: ScratchRole,
    /// The first byte in the arena.
    pub start: usize,
    /// How many.
    pub bytes: usize,
}

/// What scratch is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScratchRole {
    /// A dense copy of an operand.
    Dense(usize),
    /// The product of an [`Op::DotRegion`](crate::Op::DotRegion).
    Product,
    /// The result of a loop's condition.
    Test,
    /// The arena of the programs inside.
    Inner,
}

/// Where the product of an [`Op::DotRegion`](crate::Op::DotRegion) is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProductLocation {
    /// In scratch.
    Separate,
    /// In the memory of this result, which the region then overwrites element by element.
    InResult(usize),
    /// Added to this operand, whose memory the result reuses: the region has nothing left to do.
    Added(usize),
}

/// A value that is copied after all equations have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The value.
    pub var: Var,
    /// The destination, dense from the first byte on: an input or an output.
    pub to: Base,
    /// Offset of a temporary copy in the arena, if it is in an input that another move overwrites.
    pub via: Option<usize>,
}

/// A value that is alive at peak memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// The variable; for scratch, the first one that its equation defines.
    pub var: Var,
    /// Bytes that it takes.
    pub bytes: usize,
    /// The line of the user's program that it belongs to.
    pub at: Option<Line>,
    /// Memory of an equation, not of its results.
    pub scratch: bool,
}

/// The memory of a program. See the head of this file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// By variable. Undefined variables have an arbitrary location.
    pub locations: Vec<Location>,
    /// By equation.
    pub scratch: Vec<Vec<ScratchSlot>>,
    /// By equation: operands of a region that are not dense, by number, and the layout of the
    /// domain in their memory (from the start of their locations). They need no dense copy.
    pub loads: Vec<Vec<(usize, Layout)>>,
    /// By equation: plans of the programs inside, in their order.
    pub inner: Vec<Vec<Plan>>,
    /// By equation, for the products that a region follows.
    pub products: Vec<Option<ProductLocation>>,
    /// Copies at the end: to outputs first, then, through temporaries, to inputs.
    pub moves: Vec<Move>,
    /// Bytes of the arena.
    pub arena: usize,
    /// Bytes of the block of constants.
    pub constants: usize,
    /// Bytes of memory of the host, which are no part of the peak.
    pub host: usize,
    /// Bytes of the outputs that do not replace an input.
    pub outputs: usize,
    /// The equation at which most of the arena is in use.
    pub peak_at: usize,
    /// What is in use then, outputs included, the largest first. Memory of programs inside is
    /// listed with their variables.
    pub live: Vec<Live>,
}

impl Plan {
    /// Bytes that a call needs in addition to its inputs.
    pub fn peak(&self) -> usize {
        self.arena.saturating_add(self.all_constants()).saturating_add(self.outputs)
    }

    /// Bytes of constants, those of the programs inside included.
    pub fn all_constants(&self) -> usize {
        self.constants + self.inner.iter().flatten().map(Plan::all_constants).sum::<usize>()
    }

    /// Bytes in use at the peak by source line, the most first. What has no line is under `None`.
    pub fn by_place(&self) -> Vec<(Option<Line>, usize)> {
        let mut lines: Vec<(Option<Line>, usize)> = Vec::new();
        for live in &self.live {
            match lines.iter_mut().find(|line| line.0 == live.at) {
                Some(line) => line.1 = line.1.saturating_add(live.bytes),
                None => lines.push((live.at, live.bytes)),
            }
        }
        lines.sort_by_key(|line| std::cmp::Reverse(line.1));
        lines
    }
}

/// Plans a program that has been verified.
pub fn plan(program: &Program, target: Target) -> Plan {
    let dense = |&v: &Var| Layout::dense(program.spec(v).shape.clone());
    plan_bound(program, &program.inputs.iter().map(dense).collect::<Vec<_>>(), target)
}

/// Plans a program whose inputs have these layouts, each from its first element on (offset 0).
/// Inputs that are replaced must be dense.
pub fn plan_bound(program: &Program, inputs: &[Layout], target: Target) -> Plan {
    slots::plan(program, &program.updates, inputs, target)
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "peak {}: arena {}, outputs {}, constants {}",
            ByteCount(self.peak()),
            ByteCount(self.arena),
            ByteCount(self.outputs),
            ByteCount(self.all_constants())
        )?;
        writeln!(f, "taken during equation {}:", self.peak_at)?;
        for live in &self.live {
            let what = if live.scratch { " (scratch)" } else { "" };
            write!(f, "  {:>10}  {}{what}", ByteCount(live.bytes).to_string(), live.var)?;
            match live.at {
                Some(at) => writeln!(f, "  // {at}")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}

struct ByteCount(usize);

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n < 10 << 10 => write!(f, "{n} B"),
            n if n < 10 << 20 => write!(f, "{:.1} KiB", n as f64 / 1024.0),
            n if n < 10 << 30 => write!(f, "{:.1} MiB", n as f64 / (1 << 20) as f64),
            n => write!(f, "{:.1} GiB", n as f64 / (1 << 30) as f64),
        }
    }
}
