//! What a program may call: one row for each op, by family. A row takes any operands of its kinds:
//! it brings them into the shape that the op requires ([`fit`]), so that a random choice is never
//! wasted and a shrunk program is still one.
//!
//! Numbers that an op takes besides tensors (axes, lengths, options) come from [`Draws`]: a list of
//! plain integers in the program, interpreted for the current shapes. So a shape can shrink and the
//! program still means something.

mod arrange;
mod index;
mod linear;
mod loss;
mod matrix;
mod pointwise;
mod reduce;
mod rules;
mod window;
mod write;

pub use rules::INJECTED;
pub use write::{WRITES, WriteRow};

use pullback::{DType, Tensor};

/// What a variable holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgKind {
    /// Numbers, which may be differentiated.
    Float,
    /// `i64`.
    Index,
    /// `bool`.
    Mask,
}

impl ArgKind {
    /// The kind of a tensor.
    pub fn of(x: &Tensor) -> ArgKind {
        match x.dtype() {
            DType::Bool => ArgKind::Mask,
            dtype if dtype.is_float() => ArgKind::Float,
            _ => ArgKind::Index,
        }
    }
}

/// On small dyadic numbers it computes without rounding, so ties are ties in every way of running
/// it.
pub const EXACT: u16 = 1;
/// The result may share memory with the first operand.
pub const VIEW: u16 = 2;
/// Its derivative is not that of its values, on purpose: differences say nothing about it.
pub const SURROGATE: u16 = 4;
/// Forward and reverse mode differ, on purpose.
pub const ONE_WAY: u16 = 8;
/// Shares memory with its operand in some cases, which is a defect (`switches::SOMETIMES_ALIASES`).
pub const SOMETIMES: u16 = 16;
/// Is not compiled or batched yet, which is a defect (`switches::REFUSED_IN_TRACES`).
pub const UNTRACED: u16 = 32;

/// Reads the values of an operand on the host, so it can be neither compiled nor batched.
pub const READS: u16 = 64;
/// Rounds to 16 bits.
pub const LOW: u16 = 128;

/// One op.
pub struct OpRow {
    /// Its name in programs.
    pub name: &'static str,
    /// What it takes.
    pub args: &'static [ArgKind],
    /// What holds for it, of the constants above.
    pub flags: u16,
    /// Calls it.
    pub run: fn(&[Tensor], &mut Draws) -> RowResults,
}

impl OpRow {
    /// Whether one of these flags holds.
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

impl std::fmt::Debug for OpRow {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// The results of a row.
pub struct RowResults(pub Vec<Tensor>);

impl From<Tensor> for RowResults {
    fn from(x: Tensor) -> RowResults {
        RowResults(vec![x])
    }
}

impl From<(Tensor, Tensor)> for RowResults {
    fn from((a, b): (Tensor, Tensor)) -> RowResults {
        RowResults(vec![a, b])
    }
}

impl From<(Tensor, Tensor, Tensor)> for RowResults {
    fn from((a, b, c): (Tensor, Tensor, Tensor)) -> RowResults {
        RowResults(vec![a, b, c])
    }
}

impl From<Vec<Tensor>> for RowResults {
    fn from(all: Vec<Tensor>) -> RowResults {
        RowResults(all)
    }
}

/// Rows: `name(operand: ArgKind, …) FLAGS |draws| expression`. For example
///
/// ```text
/// softmax(x: Float) 0 |d| { let x = lines(x); x.softmax(d.axis(&x)) };
/// ```
///
/// becomes
///
/// ```text
/// OpRow { name: "softmax", args: &[ArgKind::Float], flags: 0, run: |args, d| { let [x] = args …; RowResults::from({ … }) } }
/// ```
macro_rules! rows {
    ($($name:ident($($arg:ident: $kind:ident),*) $flags:expr, |$d:ident| $body:expr;)*) => {
        &[$(crate::ops::OpRow {
            name: stringify!($name),
            args: &[$(crate::ops::ArgKind::$kind),*],
            flags: $flags,
            run: |args, $d| {
                let [$($arg),*] = args else { unreachable!("a row with another number of operands") };
                crate::ops::RowResults::from($body)
            },
        }),*]
    };
}
pub(crate) use rows;

/// All rows, by family.
pub const FAMILIES: &[(&str, &[OpRow])] = &[
    ("function", pointwise::FUNCTIONS),
    ("unary", pointwise::UNARY),
    ("binary", pointwise::BINARY),
    ("choose", pointwise::CHOOSE),
    ("reduce", reduce::ROWS),
    ("cumulate", reduce::CUMULATE),
    ("view", arrange::VIEWS),
    ("arrange", arrange::ROWS),
    ("index", index::ROWS),
    ("product", linear::ROWS),
    ("window", window::ROWS),
    ("matrix", matrix::ROWS),
    ("loss", loss::ROWS),
    ("rule", rules::ROWS),
];

/// The row of this name.
pub fn row(name: &str) -> Option<&'static OpRow> {
    FAMILIES.iter().flat_map(|f| f.1).chain(INJECTED).find(|r| r.name == name)
}

/// The plain numbers of a statement, read in order.
pub struct Draws<'a> {
    raw: &'a [u32],
    next: usize,
    /// What they became, for printing.
    pub said: Vec<String>,
}

impl<'a> Draws<'a> {
    /// From the start of the list.
    pub fn new(raw: &'a [u32]) -> Draws<'a> {
        Draws { raw, next: 0, said: Vec::new() }
    }

    fn raw(&mut self) -> usize {
        let value = self.raw.get(self.next).copied().unwrap_or(0);
        self.next += 1;
        value as usize
    }

    /// A number below `n`; 0 if `n` is.
    pub fn below(&mut self, n: usize) -> usize {
        let value = self.raw() % n.max(1);
        self.said.push(value.to_string());
        value
    }

    /// A number from `low` to `high`, both included.
    pub fn from_to(&mut self, low: usize, high: usize) -> usize {
        let value = low + self.raw() % (high.max(low) - low + 1);
        self.said.push(value.to_string());
        value
    }

    /// An axis of a tensor that has one.
    pub fn axis(&mut self, x: &Tensor) -> isize {
        self.below(x.rank()) as isize
    }

    /// Yes or no.
    pub fn flag(&mut self) -> bool {
        let value = self.raw() % 2 == 1;
        self.said.push(value.to_string());
        value
    }

    /// One of some.
    pub fn pick<T: Copy + std::fmt::Debug>(&mut self, from: &[T]) -> T {
        let value = from[self.raw() % from.len()];
        self.said.push(format!("{value:?}"));
        value
    }

    /// A key.
    pub fn key(&mut self) -> pullback::Key {
        pullback::Key::new(self.below(1000) as u64)
    }
}

/// The elements of a tensor in another shape: repeated where there are too few, cut off where there
/// are too many. The tensor itself if it has the shape.
pub fn fit(x: &Tensor, shape: &[usize]) -> Tensor {
    if x.shape() == shape {
        return x.clone();
    }
    let n: usize = shape.iter().product();
    if n == 0 || x.is_empty() {
        let zeros = Tensor::zeros_with(shape, x.dtype());
        return if x.dtype().is_float() { zeros + x.sum() } else { zeros };
    }
    let flat = x.reshape([x.len()]);
    let flat = match n.div_ceil(x.len()) {
        1 => flat,
        times => flat.expand([times, x.len()]).reshape([times * x.len()]),
    };
    flat.narrow(0, 0, n).reshape(shape)
}

/// With one axis at least.
pub fn lines(x: &Tensor) -> Tensor {
    if x.rank() == 0 { x.unsqueeze(0) } else { x.clone() }
}

/// With two axes at least.
pub fn table(x: &Tensor) -> Tensor {
    if x.rank() < 2 { lines(x).unsqueeze(0) } else { x.clone() }
}

/// Indices below `n` (which is not 0), in this shape.
pub fn places(x: &Tensor, shape: &[usize], n: usize) -> Tensor {
    fit(x, shape).remainder(n.max(1) as i64)
}

/// Numbers above ½.
pub fn positive(x: &Tensor) -> Tensor {
    x.square() + 0.5
}

/// Numbers between 0 and 1, and not near them.
pub fn unit(x: &Tensor) -> Tensor {
    x.sigmoid() * 0.8 + 0.1
}
