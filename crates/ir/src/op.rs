//! What an operation is: plain data that can be compared, hashed, printed and parsed.
//!
//! An `Op` says *which* operation; what it does is a row in a table elsewhere (its shape rule in
//! [`crate::infer`], its derivative in `pullback::ops`, its kernel in `pullback-cpu`), each a
//! `match` without a catch-all arm, so that the compiler lists what a new op still needs. Plain
//! data about functions and fused ops is a row in `op/unary.rs`, `op/binary.rs` and `op/fused.rs`.
//!
//! Families are sub-enums, so that passes and tables match on families first. Broadcasting and type
//! promotion are desugared by the tensor methods before an op is constructed: pointwise ops have
//! operands of one shape and one dtype.

use crate::shape::{Axes, Shape};
use crate::view::View;
use crate::window::{Conv, Pool};
use crate::{CollectiveOp, Custom, DType, Device, Flow, Program, Region, Scalar, Spec};
use smallvec::SmallVec;
use std::sync::Arc;

mod attributes;
mod binary;
mod fused;
mod unary;

pub use attributes::{
    Combine, Compare, Cumulation, Extreme, Fft, Linalg, Padding, Random, Reduction, Transfer,
    VjpOperand,
};
pub use binary::{Binary, Takes};
pub use fused::{Adam, Attention, Fused, Sgd};
pub use unary::{Ints, Unary};

/// One operation on tensors.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// The same value at every index.
    Literal {
        /// The value.
        value: Scalar,
        /// The shape of the result.
        shape: Shape,
        /// The dtype of the result.
        dtype: DType,
        /// The device of the result.
        device: Device,
    },
    /// 0, 1, 2, … along one axis.
    Iota {
        /// Number of elements.
        len: usize,
        /// The dtype of the result, numeric.
        dtype: DType,
        /// The device of the result.
        device: Device,
    },
    /// Random numbers, a pure function of a key (`i64[2]`), on its device. Several keys
    /// (`i64[b…, 2]`) give as many draws, `[b…, shape…]`, one per key.
    Random {
        /// The distribution.
        kind: Random,
        /// The shape of what one key draws.
        shape: Shape,
        /// The dtype of the result.
        dtype: DType,
    },
    /// A function of one element.
    Unary(Unary),
    /// `dy · f'(x)` in one pass, from the value that the unary's row saves (`x` or `y`) and `dy`.
    UnaryVjp(Unary),
    /// A function of two elements of one dtype.
    Binary(Binary),
    /// A comparison of two elements of one dtype; the result is `bool`.
    Compare(Compare),
    /// `condition ? a : b`.
    Select,
    /// Conversion to another dtype, to the nearest value.
    Cast(DType),
    /// The same elements at other indices.
    View(View),
    /// The same values in new, dense memory.
    Copy,
    /// The same values on a device, which may be another than the operand's.
    To(Device),
    /// The value of the first operand, but not before the others (*tokens*) have been computed. It
    /// is how a value is recomputed late: no pass merges `f(after x t)` with `f(x)`, and it does
    /// not run before `t` is computed. In a compiled program it costs nothing, like a view of the
    /// first operand; run eagerly, it is a copy.
    After,
    /// The base with the part seen through a chain of views replaced by the second operand.
    Put(Vec<View>),
    /// Zeros around and between the elements.
    Pad(SmallVec<[Padding; 2]>),
    /// Operands one after the other along an axis.
    Cat(usize),
    /// `out[i,j] = x[index[i,j], j]` (for axis 0): the result has the shape of `index`.
    Gather(usize),
    /// The base with `source[i,j]` combined into `[index[i,j], j]` (for axis 0).
    Scatter(usize, Combine),
    /// A reduction over axes, which disappear.
    Reduce(Reduction, Axes),
    /// The index of the first extreme element along an axis, which disappears.
    ArgReduce(Extreme, usize),
    /// A cumulative reduction along an axis.
    Cumulate {
        /// What is accumulated.
        kind: Cumulation,
        /// The axis.
        axis: usize,
        /// From the end to the front.
        reverse: bool,
    },
    /// Values in order along an axis, and their original indices: two results, stable.
    Sort {
        /// The axis.
        axis: usize,
        /// Largest first.
        descending: bool,
    },
    /// The elements of the ranks `from..from + count` of a stable sort along an axis, in order, and
    /// their original indices: two results.
    Ranks {
        /// The axis.
        axis: usize,
        /// Largest first.
        descending: bool,
        /// The first rank.
        from: usize,
        /// How many ranks.
        count: usize,
    },
    /// Matrix product over the last two axes: `[b…, m, k] · [b…, k, n]`.
    Dot,
    /// Convolution, or a transpose of it.
    Conv(Box<Conv>),
    /// Windows ("pieces") of the last axes, each reduced to one value.
    Pool(Box<Pool>),
    /// Matrix factorisations and linear solves, over the last two axes.
    Linalg(Linalg),
    /// Discrete Fourier transforms along one axis; a complex number is a pair on the last axis.
    Fft(Fft),
    /// Operations with a decomposition into the ones above, and a fused kernel.
    Fused(Fused),
    /// Fused pointwise ops and reductions.
    Region(Arc<Region>),
    /// A matrix product, and a region over its result while that is in cache: operands are the two
    /// matrices, then those of the region after its first, which is the product.
    DotRegion(Arc<Region>),
    /// A conditional or a loop.
    Flow(Arc<Flow>),
    /// A custom operation of the user, with its derivative.
    Custom(Arc<Custom>),
    /// What the workers of a group compute together. In a program these stay in order
    /// ([`Op::is_ordered`]).
    Collective(Arc<CollectiveOp>),
    /// The result of a collective that was started (the first operand), once it is complete; the
    /// second operand is that of the collective, whose memory is read until then. Like
    /// [`Op::After`] it costs nothing else.
    Wait,
    /// A step of a value's way to memory of the host and back. Only compiled programs have them.
    Transfer(Transfer),
}

/// The family of an op: tables match on it first.
#[derive(Clone, Copy, Debug)]
pub enum Family<'a> {
    /// Without operands, or with a random key only: literals, ranges, random numbers.
    Source,
    /// Each element of the result depends on the elements at the same index alone.
    Pointwise(Pointwise),
    /// Another view of an operand's memory.
    View,
    /// Elements at other indices, given by the attributes.
    Movement,
    /// Elements at indices given by an operand.
    Index,
    /// Reductions, cumulative reductions and sorting along axes.
    Reduction,
    /// Matrix products, convolutions and pooling.
    Window,
    /// Factorisations, solutions and Fourier transforms.
    Linear,
    /// A fused kernel for a composition of other ops.
    Fused,
    /// Computed with other workers.
    Collective,
    /// It contains other ops, or user code.
    Structure(Structure<'a>),
}

/// Where the result of an op is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultMemory {
    /// In memory of its own.
    Own,
    /// In that of the first operand, which computing it only refers to.
    Operand,
    /// In none, or in the constants of a program: it follows from the op alone, at no cost.
    Constant,
}

/// A pointwise op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Pointwise {
    Unary(Unary),
    UnaryVjp(Unary),
    Binary(Binary),
    Compare(Compare),
    Select,
    Cast(DType),
    Copy,
}

/// An op that contains other ops, or user code.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum Structure<'a> {
    Region(&'a Region),
    DotRegion(&'a Region),
    Flow(&'a Flow),
    Custom(&'a Custom),
}

impl Op {
    /// A literal: a tensor of this spec whose elements all have one value.
    ///
    /// ```
    /// # use pullback_ir::{DType, Op, Scalar, Spec};
    /// let op = Op::literal(Scalar::from(2.5), Spec::cpu(DType::F32, [3]));
    /// assert_eq!((op.name(), op.results()), ("literal", 1));
    /// ```
    pub fn literal(value: Scalar, spec: Spec) -> Op {
        let Spec { shape, dtype, device } = spec;
        Op::Literal { value, shape, dtype, device }
    }

    /// The family of the op: passes and backends treat the ops of a family alike.
    ///
    /// ```
    /// # use pullback_ir::{Family, Op};
    /// assert!(matches!("tanh".parse::<Op>().unwrap().family(), Family::Pointwise(_)));
    /// assert!(matches!(Op::Dot.family(), Family::Window));
    /// ```
    pub fn family(&self) -> Family<'_> {
        match self {
            Op::Literal { .. } | Op::Iota { .. } | Op::Random { .. } => Family::Source,
            Op::Unary(f) => Family::Pointwise(Pointwise::Unary(*f)),
            Op::UnaryVjp(f) => Family::Pointwise(Pointwise::UnaryVjp(*f)),
            Op::Binary(f) => Family::Pointwise(Pointwise::Binary(*f)),
            Op::Compare(f) => Family::Pointwise(Pointwise::Compare(*f)),
            Op::Select => Family::Pointwise(Pointwise::Select),
            Op::Cast(dtype) => Family::Pointwise(Pointwise::Cast(*dtype)),
            Op::Copy => Family::Pointwise(Pointwise::Copy),
            Op::View(_) | Op::After | Op::Wait => Family::View,
            Op::To(_) | Op::Put(_) | Op::Pad(_) | Op::Cat(_) => Family::Movement,
            Op::Gather(_) | Op::Scatter(..) => Family::Index,
            Op::Reduce(..) | Op::ArgReduce(..) | Op::Cumulate { .. } => Family::Reduction,
            Op::Sort { .. } | Op::Ranks { .. } => Family::Reduction,
            Op::Dot | Op::Conv(_) | Op::Pool(_) => Family::Window,
            Op::Linalg(_) | Op::Fft(_) => Family::Linear,
            Op::Fused(_) => Family::Fused,
            Op::Region(region) => Family::Structure(Structure::Region(region)),
            Op::DotRegion(region) => Family::Structure(Structure::DotRegion(region)),
            Op::Flow(flow) => Family::Structure(Structure::Flow(flow)),
            Op::Custom(custom) => Family::Structure(Structure::Custom(custom)),
            Op::Collective(_) => Family::Collective,
            Op::Transfer(step) => {
                if step.starts() {
                    Family::Movement
                } else {
                    Family::View
                }
            }
        }
    }

    /// How many results the op has.
    pub fn results(&self) -> usize {
        match self {
            Op::Literal { .. } | Op::Iota { .. } | Op::Random { .. } => 1,
            Op::Unary(_) | Op::UnaryVjp(_) | Op::Binary(_) | Op::Compare(_) => 1,
            Op::Select | Op::Cast(_) | Op::Copy | Op::To(_) | Op::View(_) | Op::After => 1,
            Op::Put(_) | Op::Pad(_) | Op::Cat(_) | Op::Gather(_) | Op::Scatter(..) => 1,
            Op::Reduce(..) | Op::ArgReduce(..) | Op::Cumulate { .. } => 1,
            Op::Sort { .. } | Op::Ranks { .. } => 2,
            Op::Dot | Op::Conv(_) | Op::Pool(_) | Op::Fft(_) => 1,
            Op::Linalg(f) => f.results(),
            Op::Fused(f) => f.results(),
            Op::Region(region) | Op::DotRegion(region) => region.results(),
            Op::Flow(flow) => flow.results(),
            Op::Custom(custom) => custom.results(),
            Op::Collective(_) | Op::Wait | Op::Transfer(_) => 1,
        }
    }

    /// The op as it is on a device, with the programs inside.
    pub(crate) fn on_device(&self, to: Device) -> Op {
        let mut op = self.clone();
        match &mut op {
            Op::Literal { device, .. } | Op::Iota { device, .. } | Op::To(device) => *device = to,
            Op::Region(region) | Op::DotRegion(region) => {
                let region = Arc::make_mut(region);
                region.device = to;
                region.inputs.iter_mut().for_each(|load| load.spec.device = to);
            }
            Op::Flow(flow) => {
                *flow = Arc::new(flow.map_programs(&mut |inside| inside.on_device(to)));
            }
            Op::Random { .. } | Op::Unary(_) | Op::UnaryVjp(_) | Op::Binary(_) => {}
            Op::Compare(_) | Op::Select | Op::Cast(_) | Op::View(_) | Op::Copy | Op::After => {}
            Op::Put(_) | Op::Pad(_) | Op::Cat(_) | Op::Gather(_) | Op::Scatter(..) => {}
            Op::Reduce(..) | Op::ArgReduce(..) | Op::Cumulate { .. } => {}
            Op::Sort { .. } | Op::Ranks { .. } | Op::Dot | Op::Conv(_) | Op::Pool(_) => {}
            Op::Linalg(_) | Op::Fft(_) | Op::Fused(_) | Op::Custom(_) => {}
            Op::Collective(_) | Op::Wait | Op::Transfer(_) => {}
        }
        op
    }

    /// Whether its kernels take memory while they run, on a device that has kernels which do
    /// ([`Target::scratch`](crate::pass::Target::scratch)): all but pointwise work, steps of
    /// optimisers, and what runs no kernel.
    ///
    /// ```
    /// # use pullback_ir::Op;
    /// assert!(Op::Dot.takes_scratch() && !Op::Copy.takes_scratch());
    /// ```
    pub fn takes_scratch(&self) -> bool {
        match self.family() {
            Family::Source | Family::Pointwise(_) | Family::View => false,
            Family::Fused => !matches!(self, Op::Fused(of) if of.updates()),
            Family::Structure(Structure::Region(region)) => region.reduces(),
            Family::Movement if matches!(self, Op::Transfer(_)) => false,
            Family::Movement | Family::Index | Family::Reduction | Family::Window => true,
            Family::Linear | Family::Collective | Family::Structure(_) => true,
        }
    }

    /// How many of the first results a kernel may write through strides, on targets that do
    /// ([`Target::strided_results`](crate::pass::Target::strided_results)).
    pub fn strided_results(&self) -> usize {
        if let Op::Fused(of) = self { of.strided_results() } else { 0 }
    }

    /// Whether a kernel may fail on its operands' values: an index out of range, or a value that
    /// user code rejects.
    pub fn may_fail(&self) -> bool {
        match self {
            Op::Literal { .. } | Op::Iota { .. } | Op::Random { .. } => false,
            Op::Unary(_) | Op::UnaryVjp(_) | Op::Binary(_) | Op::Compare(_) => false,
            Op::Select | Op::Cast(_) | Op::Copy | Op::To(_) | Op::View(_) | Op::After => false,
            Op::Put(_) | Op::Pad(_) | Op::Cat(_) => false,
            Op::Gather(_) | Op::Scatter(..) => true,
            Op::Reduce(..) | Op::ArgReduce(..) | Op::Cumulate { .. } => false,
            Op::Sort { .. } | Op::Ranks { .. } => false,
            Op::Dot | Op::Conv(_) | Op::Pool(_) | Op::Fft(_) => false,
            Op::Linalg(f) => f.may_fail(),
            Op::Fused(f) => f.may_fail(),
            // They contain only pointwise ops, reductions, random numbers and products.
            Op::Region(_) | Op::DotRegion(_) => false,
            Op::Flow(flow) => {
                flow.programs().iter().any(|p| p.equations.iter().any(|e| e.op.may_fail()))
            }
            Op::Custom(custom) => custom.may_fail(),
            Op::Collective(_) | Op::Wait => true,
            // Memory of the host is there before a program runs, and a copy fails where its device
            // does.
            Op::Transfer(_) => false,
        }
    }

    /// Where its result is in memory. What is not in its own costs nothing to compute.
    ///
    /// ```
    /// # use pullback_ir::{Op, ResultMemory};
    /// assert_eq!(Op::Dot.memory(), ResultMemory::Own);
    /// assert_eq!(Op::After.memory(), ResultMemory::Operand);
    /// ```
    pub fn memory(&self) -> ResultMemory {
        match self {
            Op::Literal { .. } | Op::Iota { .. } => ResultMemory::Constant,
            Op::View(_) | Op::After | Op::Wait => ResultMemory::Operand,
            Op::Transfer(step) if !step.starts() => ResultMemory::Operand,
            Op::Transfer(_) => ResultMemory::Own,
            Op::Unary(_) | Op::UnaryVjp(_) | Op::Binary(_) | Op::Compare(_) => ResultMemory::Own,
            Op::Select | Op::Cast(_) | Op::Copy | Op::To(_) | Op::Random { .. } => {
                ResultMemory::Own
            }
            Op::Put(_) | Op::Pad(_) | Op::Cat(_) => ResultMemory::Own,
            Op::Gather(_) | Op::Scatter(..) => ResultMemory::Own,
            Op::Reduce(..) | Op::ArgReduce(..) | Op::Cumulate { .. } => ResultMemory::Own,
            Op::Sort { .. } | Op::Ranks { .. } => ResultMemory::Own,
            Op::Dot | Op::Conv(_) | Op::Pool(_) | Op::Fft(_) => ResultMemory::Own,
            Op::Linalg(_) | Op::Fused(_) => ResultMemory::Own,
            Op::Region(_) | Op::DotRegion(_) => ResultMemory::Own,
            Op::Flow(_) | Op::Custom(_) | Op::Collective(_) => ResultMemory::Own,
        }
    }

    /// Whether fusion can make it part of a region, so that its result need not be in memory.
    ///
    /// ```
    /// # use pullback_ir::Op;
    /// assert!("exp".parse::<Op>().unwrap().is_fusible() && !Op::Dot.is_fusible());
    /// ```
    pub fn is_fusible(&self) -> bool {
        match self {
            Op::Reduce(..) | Op::Random { .. } => true,
            Op::Unary(_) | Op::UnaryVjp(_) | Op::Binary(_) | Op::Compare(_) => true,
            Op::Select | Op::Cast(_) | Op::Copy => true,
            Op::Literal { .. } | Op::Iota { .. } | Op::View(_) | Op::After | Op::To(_) => false,
            Op::Put(_) | Op::Pad(_) | Op::Cat(_) | Op::Gather(_) | Op::Scatter(..) => false,
            Op::ArgReduce(..) | Op::Cumulate { .. } | Op::Sort { .. } | Op::Ranks { .. } => false,
            Op::Dot | Op::Conv(_) | Op::Pool(_) | Op::Fft(_) | Op::Linalg(_) => false,
            Op::Fused(_) | Op::Region(_) | Op::DotRegion(_) | Op::Flow(_) | Op::Custom(_) => false,
            Op::Collective(_) | Op::Wait | Op::Transfer(_) => false,
        }
    }

    /// Whether each element of the result depends on the elements at the same index alone.
    ///
    /// ```
    /// # use pullback_ir::Op;
    /// assert!("exp".parse::<Op>().unwrap().is_pointwise() && !Op::Dot.is_pointwise());
    /// ```
    pub fn is_pointwise(&self) -> bool {
        self.pointwise().is_some()
    }

    /// Whether its operands have the shape and the dtype of its result, so that one spec says all.
    ///
    /// ```
    /// # use pullback_ir::{DType, Op};
    /// assert!("exp".parse::<Op>().unwrap().has_operands_like_its_result());
    /// assert!(!Op::Cast(DType::F64).has_operands_like_its_result());
    /// ```
    pub fn has_operands_like_its_result(&self) -> bool {
        match self.pointwise() {
            Some(
                Pointwise::Unary(_)
                | Pointwise::UnaryVjp(_)
                | Pointwise::Binary(_)
                | Pointwise::Copy,
            ) => true,
            Some(Pointwise::Compare(_) | Pointwise::Select | Pointwise::Cast(_)) | None => false,
        }
    }

    /// The op as a pointwise one, if it is one.
    ///
    /// ```
    /// # use pullback_ir::{DType, Op, Pointwise};
    /// assert_eq!(Op::Cast(DType::F64).pointwise(), Some(Pointwise::Cast(DType::F64)));
    /// assert_eq!(Op::Dot.pointwise(), None);
    /// ```
    pub fn pointwise(&self) -> Option<Pointwise> {
        match self.family() {
            Family::Pointwise(op) => Some(op),
            Family::Source | Family::View | Family::Movement | Family::Index => None,
            Family::Reduction | Family::Window | Family::Linear => None,
            Family::Fused | Family::Collective | Family::Structure(_) => None,
        }
    }

    /// Its contents, if it contains other ops or user code.
    ///
    /// ```
    /// # use pullback_ir::Op;
    /// assert!(Op::Dot.structure().is_none());
    /// ```
    pub fn structure(&self) -> Option<Structure<'_>> {
        match self.family() {
            Family::Structure(structure) => Some(structure),
            Family::Source | Family::Pointwise(_) | Family::View | Family::Movement => None,
            Family::Index | Family::Reduction | Family::Window | Family::Linear => None,
            Family::Fused | Family::Collective => None,
        }
    }
}

impl<'a> Structure<'a> {
    /// The programs that it contains.
    pub fn programs(self) -> Vec<&'a Program> {
        match self {
            Structure::Region(_) | Structure::DotRegion(_) => Vec::new(),
            Structure::Flow(flow) => flow.programs(),
            Structure::Custom(custom) => custom.body().into_iter().collect(),
        }
    }
}

impl Pointwise {
    /// Approximate cost in additions: decides what is kept rather than recomputed, and when threads
    /// are profitable.
    pub fn cost(self) -> usize {
        match self {
            Pointwise::Unary(f) => f.cost(),
            Pointwise::UnaryVjp(f) => f.vjp_cost(),
            Pointwise::Binary(f) => f.cost(),
            Pointwise::Compare(_) | Pointwise::Select | Pointwise::Cast(_) | Pointwise::Copy => 1,
        }
    }
}
