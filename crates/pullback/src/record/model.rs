//! What a recording holds, in memory.

use super::stats::Stats;

/// A run of a program: what was computed, from what, and what came back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// Texts of ops, with their attributes: `sum{[0]}`.
    pub ops: Vec<String>,
    /// Names of ops and their families, in the order of `ops`.
    pub names: Vec<(String, String)>,
    /// Specs: their text, and the shape.
    pub specs: Vec<(String, Vec<u64>)>,
    /// Lines of the user's program.
    pub lines: Vec<String>,
    /// Parts of the model, as paths: `blocks.0.attention`.
    pub parts: Vec<String>,
    /// Names of leaves.
    pub labels: Vec<String>,
    /// Values, operands first.
    pub nodes: Vec<RecordedNode>,
    /// The nodes that backward passes visited, in order.
    pub visits: Vec<Visit>,
    /// What ran, in order.
    pub moments: Vec<RecordedOp>,
    /// A program after each pass: the name of the pass, and the text.
    pub stages: Vec<(String, String)>,
    /// Where the last backward pass began.
    pub result: Option<u32>,
    /// Values that were not recorded, because there were too many.
    pub left_out: u64,
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A result of an op.
    Op,
    /// It was there before, and is a constant.
    Input,
    /// A leaf that requires grad.
    Parameter,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedNode {
    /// What it is.
    pub kind: NodeKind,
    /// The op, a number in [`Recording::ops`]; of other kinds nothing.
    pub op: Option<u32>,
    /// Which result of the op it is.
    pub output: u32,
    /// A number in [`Recording::specs`].
    pub spec: u32,
    /// A number in [`Recording::lines`].
    pub line: Option<u32>,
    /// A number in [`Recording::parts`].
    pub part: Option<u32>,
    /// A number in [`Recording::labels`].
    pub label: Option<u32>,
    /// Whether it is on the tape.
    pub tracked: bool,
    /// The values it was computed from.
    pub operands: Vec<u32>,
    /// What its op keeps for backward.
    pub saved: Vec<SavedNote>,
    /// Its elements.
    pub value: Sampled,
    /// The elements of its gradient, if one arrived; of several passes, the last.
    pub gradient: Option<Sampled>,
    /// How long its op took.
    pub nanos: u64,
}

/// A value that is kept for backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedNote {
    /// It is a result of the op, rather than an operand.
    pub result: bool,
    /// Which one.
    pub index: u32,
    /// Its bytes.
    pub bytes: u64,
}

/// Elements of a value: all of a small one, statistics of a large one.
#[derive(Clone, Debug, PartialEq)]
pub enum Sampled {
    /// All of them, in order.
    Whole(Vec<f64>),
    /// What is known about them.
    Stats(Stats),
    /// Nothing: it could not be read.
    Unknown,
}

/// A node that a backward pass visited.
#[derive(Clone, Debug, PartialEq)]
pub struct Visit {
    /// The node.
    pub node: u32,
    /// Its gradient in this pass.
    pub adjoint: Sampled,
    /// What it added to the gradients of its operands: which operand, its node, and how much.
    pub contributions: Vec<(u32, u32, Sampled)>,
}

/// Something that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedOp {
    /// The op, a number in [`Recording::ops`].
    pub op: u32,
    /// The value it made, if that is recorded.
    pub node: Option<u32>,
    /// A number in [`Recording::lines`].
    pub line: Option<u32>,
    /// In a backward pass.
    pub backward: bool,
    /// It had run before, and ran again for its value.
    pub again: bool,
    /// Bytes of the pool that were live after it, over those before the recording.
    pub bytes: u64,
    /// When it began, in nanoseconds from the start.
    pub start: u64,
    /// How long it took.
    pub nanos: u64,
}
