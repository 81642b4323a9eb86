//! Fuses pointwise ops, the views before them and reductions into regions.
//!
//! # What joins what
//! Equations are assigned in order to *clusters*, each of which becomes one region with one domain.
//! A pointwise op joins a cluster that computes one of its operands, if
//!
//! - it has as many elements as the domain, and reads the cluster's values in place (the same
//!   elements in the same row-major order: a reshape does not matter, and results that have another
//!   shape than the domain are reshaped after the region), or
//! - it has as many elements as the domain has rows and reads row values of the cluster alone;
//!
//! all its other operands are then read from memory through layouts of the domain's shape. Views
//! are part of those layouts: no view is computed, and one is kept only for ops outside regions. A
//! row value that is repeated along its row is used directly. Literals and counters are recomputed
//! in each region. A reduction over the trailing axes joins the cluster that computes its operand,
//! and sets the row length. So does a sum over the leading axes, as a sum over the rows, if the
//! target has kernels for that; what reads such a sum is in another region. The sum of a product
//! and a bias is a region that nothing joins, where a target's products add a bias and the sum has
//! to be stored anyway ([`Limits::biased_products`]). Clusters that an op reads are merged if
//! allowed; at the end, so are those over one domain that read the same values, and all scalar
//! ones.
//!
//! Before that, views are moved in front of pointwise ops with no other reader, so that they are
//! views of memory.
//!
//! # Why there are no cycles
//! A region runs as one op, so nothing it reads may depend on its results. Every cluster and every
//! op outside one has a *level*, larger than the levels of all it reads from. A cluster may rise to
//! a higher level when an op joins it, or when two become one, as long as it stays below all that
//! read from it. So levels always grow along edges, and there is no cycle. The test needs no
//! search; it may reject what a search would allow, and then a value is stored unnecessarily.
//!
//! # Guarantees
//! Every pointwise result has the same bits. Reductions inside regions may add in another order.
//! Nothing is computed twice but literals and counters. A single op becomes a region only if it
//! absorbs a view or a literal. Regions have at most [`Limits`] instructions and operands; those
//! over a few elements [`Limits::small`] times as many; those over a single element any number, so
//! that programs of thousands of scalars become one region. If a row is the whole domain and longer
//! than [`Limits::long`], its reduced value is not used together with elements in the same region.

mod apart;
mod build;
mod cluster;
mod views;

pub use apart::{Apart, Obstacle, apart};
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
    /// The factor by which both limits are larger over few elements, where launching a region is
    /// the main cost.
    pub small: usize,
    /// Up to this many elements are few.
    pub few: usize,
    /// A row that is the whole domain, and longer than this, is split over threads: its sum is
    /// known only at the end.
    pub long: usize,
    /// Up to so many sums over the rows are results of a region; 0: a backend has no kernels for
    /// that.
    pub columns: usize,
    /// They are if a row has at least and at most so many elements.
    pub column_row: [usize; 2],
    /// Whether products add a bias at no cost ([`Epilogue::Library`](super::Epilogue)). A sum of a
    /// product and a row that several ops read, and which is stored anyway, is then left to it.
    pub biased_products: bool,
}

impl Default for Limits {
    /// 192 instructions, 32 operands; six times as many over up to 64 elements. Rows of more than
    /// 65536 are long. No sums over the rows, no products with a bias.
    fn default() -> Limits {
        Limits {
            instructions: 192,
            inputs: 32,
            small: 6,
            few: 64,
            long: 65536,
            columns: 0,
            column_row: [0, 0],
            biased_products: false,
        }
    }
}

/// Fuses ops into regions, within [`Limits::default`].
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

/// Fuses ops into regions.
#[must_use]
pub fn fuse_within(program: &Program, limits: Limits) -> Program {
    let program = dead_code(&views::earlier(program));
    let mut clusters = Clusters::new(&program, limits);
    (0..program.equations.len()).for_each(|i| clusters.place(i));
    clusters.merge_siblings();
    clusters.into_program(&mut |inside| fuse_within(inside, limits))
}

/// The storage of a variable: a root, which is not a view, in order or through a layout.
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
            Some(layout) => with_shape(layout, shape),
        }
    }
}

/// A layout under another shape of as many elements, if it has strides for it.
fn with_shape(layout: &Layout, shape: &Shape) -> Option<Layout> {
    match layout.shape == *shape {
        true => Some(layout.clone()),
        false => layout.view(&View::Reshape(shape.clone())),
    }
}

/// How fusion treats an equation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FusionKind {
    /// A literal or a counter: recomputed where it is used.
    Free,
    /// A view with strides.
    View,
    Point,
    Random,
    /// A reduction of trailing axes with this many elements together.
    Reduce(usize),
    /// A sum over leading axes, of which this many elements are left.
    Columns(usize),
    /// Anything else: a separate equation.
    Alone,
}

/// The length of the rows that a reduction reduces: if it reduces trailing axes, axes of length 1
/// not counted, and more than one element.
fn row_length(shape: &Shape, axes: &[usize]) -> Option<usize> {
    let long = |i: &usize| shape[*i] != 1;
    let taken = axes.iter().copied().filter(long).collect::<smallvec::SmallVec<[usize; 4]>>();
    let trailing = (0..shape.len()).rev().filter(long).take(taken.len());
    let all = trailing.into_iter().all(|i| taken.contains(&i));
    (all && !taken.is_empty()).then(|| taken.iter().map(|&i| shape[i]).product())
}

/// The length of the rows that a reduction adds up: if it reduces leading axes, axes of length 1
/// not counted, and more than one element, to more than one.
fn column_length(shape: &Shape, axes: &[usize]) -> Option<usize> {
    let long = |i: &usize| shape[*i] != 1;
    let taken = axes.iter().copied().filter(long).collect::<smallvec::SmallVec<[usize; 4]>>();
    let leading = (0..shape.len()).filter(long).take(taken.len());
    let all = leading.into_iter().all(|i| taken.contains(&i));
    let kept = (0..shape.len()).filter(|i| !axes.contains(i)).map(|i| shape[i]).product();
    (all && !taken.is_empty() && kept > 1).then_some(kept)
}

/// How many trailing axes have this many elements together.
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

/// Whether a layout repeats, at every index of a domain, the number of its row.
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
