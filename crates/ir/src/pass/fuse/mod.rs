//! Makes regions of pointwise ops, the views before them and the reductions beside them.
//!
//! # What joins what
//! Equations are taken in order and put into *clusters*, each of which becomes one region with one
//! domain. A pointwise op joins a cluster that makes one of its operands, if
//!
//! - it has as many elements as the domain, and reads the cluster's values in place (the same
//!   elements in the same row-major order: a reshape does not matter, and results that have another
//!   shape than the domain are reshaped after the region), or
//! - it has as many elements as the domain has rows and reads row values of the cluster alone;
//!
//! all its other operands are then read from memory through layouts of the domain's shape. Views
//! are part of those layouts: no view is computed, and one is kept only for ops outside regions. A
//! row value that is repeated along its row is used as it is. Literals and counters are made anew
//! in each region. A reduction over the trailing axes joins the cluster that makes its operand, and
//! fixes what a row is. Clusters that an op reads become one if they may; at the end, so do those
//! over one domain that read the same values, and all scalar ones.
//!
//! Before that, views are moved in front of pointwise ops that nobody else reads, so that they are
//! views of memory.
//!
//! # Why there are no cycles
//! A region runs as one, so nothing it reads may depend on what it makes. Every cluster and every
//! op outside one has a *level*, larger than the levels of all it reads from. A cluster may rise to
//! a higher level when an op joins it, or when two become one, as long as it stays below all that
//! read from it. So levels always grow along arrows, and no arrow leads back. The test takes no
//! search; it may refuse what a search would allow, and then a value is stored that need not be.
//!
//! # Promises
//! Every pointwise result has the bits it had. Reductions inside regions may add in another order.
//! Nothing is computed twice but literals and counters. A lone op becomes a region only if a view
//! or a literal goes away by it. Regions have at most [`Limits`] instructions and operands; those
//! over a few elements [`Limits::small`] times as many; those over a single element any number, so
//! that programs of thousands of scalars become one region. If a row is the whole domain and longer
//! than [`Limits::long`], its reduced value is not used beside elements in the same region.

mod build;
mod cluster;
mod views;

pub(super) use build::reshaped;

use super::dead_code;
use crate::{Layout, Op, Program, Shape, Spec, Var, View};
use cluster::Clusters;

/// How large a region may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Instructions, loads included.
    pub instructions: usize,
    /// Operands.
    pub inputs: usize,
    /// How many times as many both may be over few elements, where a region costs what it costs to
    /// begin it.
    pub small: usize,
    /// Elements that are few.
    pub few: usize,
    /// A row that is the whole domain, and longer than this, is cut among threads: its sum is known
    /// at the end only.
    pub long: usize,
}

impl Default for Limits {
    /// 192 instructions, 32 operands; six times as many over up to 64 elements. Rows of more than
    /// 65536 are long.
    fn default() -> Limits {
        Limits { instructions: 192, inputs: 32, small: 6, few: 64, long: 65536 }
    }
}

/// Makes regions, within [`Limits::default`].
///
/// ```
/// use pullback_ir::{Program, pass::fuse};
/// let text = "program (x: f32[4,8]) {
///   let b: f32[4] = max{[1]} x
///   let c: f32[4,1] = reshape{[4,1]} b
///   let d: f32[4,8] = broadcast{[4,8]} c
///   let e: f32[4,8] = sub x d
///   let f: f32[4,8] = exp e
///   let g: f32[4] = sum{[1]} f
///   let h: f32[4,1] = reshape{[4,1]} g
///   let i: f32[4,8] = broadcast{[4,8]} h
///   let j: f32[4,8] = div f i
///   return j
/// }";
/// let program: Program = text.parse().unwrap();
/// let fused = fuse(&program);
/// assert_eq!(fused.equations.len(), 1);
/// assert!(fused.to_string().contains("v1 = max v0"));
/// ```
#[must_use]
pub fn fuse(program: &Program) -> Program {
    fuse_within(program, Limits::default())
}

/// Makes regions.
#[must_use]
pub fn fuse_within(program: &Program, limits: Limits) -> Program {
    let program = dead_code(&views::earlier(program));
    let mut clusters = Clusters::new(&program, limits);
    (0..program.equations.len()).for_each(|i| clusters.place(i));
    clusters.merge_siblings();
    clusters.into_program(&mut |inside| fuse_within(inside, limits))
}

/// Where a variable's elements lie: in a root, which is not a view, in order or through a layout.
#[derive(Clone, Debug)]
struct Origin {
    root: Var,
    /// `None`: it is the root.
    layout: Option<Layout>,
}

impl Origin {
    /// Whether the elements are those of the root, all of them, in order.
    fn in_place(&self, root: &Spec) -> bool {
        self.layout.as_ref().is_none_or(|layout| {
            layout.offset == 0 && layout.len() == root.len() && layout.is_dense()
        })
    }

    /// The layout under another shape of as many elements.
    fn seen_as(&self, root: &Spec, shape: &Shape) -> Option<Layout> {
        match &self.layout {
            None => Some(Layout::dense(shape.clone()))
                .filter(|_| root.shape == *shape || root.len() == shape.iter().product()),
            Some(layout) => relaid(layout, shape),
        }
    }
}

/// A layout under another shape of as many elements, if it has strides for it.
fn relaid(layout: &Layout, shape: &Shape) -> Option<Layout> {
    match layout.shape == *shape {
        true => Some(layout.clone()),
        false => layout.view(&View::Reshape(shape.clone())),
    }
}

/// What fusion may do with an equation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A literal or a counter: made where it is used.
    Free,
    /// A view with strides.
    View,
    Point,
    Random,
    /// A reduction of trailing axes with so many elements together.
    Reduce(usize),
    /// Anything else: an equation of its own.
    Alone,
}

/// The length of the rows that a reduction takes: if it takes trailing axes, axes of length 1 not
/// counted, and more than one element.
fn row_length(shape: &Shape, axes: &[usize]) -> Option<usize> {
    let long = |i: &usize| shape[*i] != 1;
    let taken = axes.iter().copied().filter(long).collect::<smallvec::SmallVec<[usize; 4]>>();
    let trailing = (0..shape.len()).rev().filter(long).take(taken.len());
    let all = trailing.into_iter().all(|i| taken.contains(&i));
    (all && !taken.is_empty()).then(|| taken.iter().map(|&i| shape[i]).product())
}

/// How many trailing axes have so many elements together.
fn inner_axes(shape: &Shape, length: usize) -> Option<usize> {
    let mut product = 1;
    for (k, &n) in shape.iter().rev().enumerate() {
        product *= n;
        if product == length {
            return Some(k + 1);
        }
        if product > length {
            return None;
        }
    }
    None
}

/// Whether a layout shows, at every index of a domain, the number of its row.
fn repeats_rows(layout: &Layout, inner: usize) -> bool {
    let outer = layout.shape.len() - inner;
    let mut expected = 1;
    let in_order = (0..outer).rev().all(|i| {
        let n = layout.shape[i];
        let fits = n == 1 || layout.strides[i] == expected;
        expected *= n as isize;
        fits
    });
    let still = (outer..layout.shape.len()).all(|i| layout.shape[i] == 1 || layout.strides[i] == 0);
    layout.offset == 0 && in_order && still
}

fn is_point(op: &Op) -> bool {
    op.is_pointwise() && *op != Op::Copy
}
