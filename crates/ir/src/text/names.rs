//! The names of ops.

use crate::op::{
    Binary, Combine, Compare, Cumulation, Extreme, Fft, Fused, Linalg, Op, Random, Reduction, Unary,
};
use crate::shape::Axes;
use crate::window::{Conv, Pool, Pooling, Role};
use crate::{DType, Device, Scalar, Shape, View};
use smallvec::SmallVec;

impl Compare {
    /// The name of the comparison: `lt`.
    ///
    /// ```
    /// # use pullback_ir::{DType, Op};
    /// assert_eq!((Op::Dot.name(), Op::Cast(DType::F64).name()), ("dot", "cast"));
    /// ```
    #[rustfmt::skip]
    pub const fn name(self) -> &'static str {
        match self {
            Compare::Eq => "eq",
            Compare::Ne => "ne",
            Compare::Lt => "lt",
            Compare::Le => "le",
            Compare::Gt => "gt",
            Compare::Ge => "ge",
        }
    }
}

impl Random {
    /// The name of the op that draws from this distribution: `random.normal`.
    #[rustfmt::skip]
    pub const fn name(self) -> &'static str {
        match self {
            Random::Bits    => "random.bits",
            Random::Uniform => "random.uniform",
            Random::Normal  => "random.normal",
        }
    }
}

impl Combine {
    /// The name inside `scatter{0,add}`.
    #[rustfmt::skip]
    pub const fn name(self) -> &'static str {
        match self {
            Combine::Set => "set",
            Combine::Add => "add",
            Combine::Mul => "mul",
            Combine::Max => "max",
            Combine::Min => "min",
        }
    }
}

impl Reduction {
    /// The name of the reduction: `sum`.
    #[rustfmt::skip]
    pub const fn name(self) -> &'static str {
        match self {
            Reduction::Sum  => "sum",
            Reduction::Prod => "prod",
            Reduction::Max  => "max",
            Reduction::Min  => "min",
        }
    }
}

impl Extreme {
    /// The name of the op that looks for this extreme: `argmax`.
    #[rustfmt::skip]
    pub const fn name(self) -> &'static str {
        match self {
            Extreme::Max => "argmax",
            Extreme::Min => "argmin",
        }
    }
}

impl Cumulation {
    /// The name of the cumulative reduction: `cumsum`.
    #[rustfmt::skip]
    pub const fn name(self) -> &'static str {
        match self {
            Cumulation::Sum       => "cumsum",
            Cumulation::Prod      => "cumprod",
            Cumulation::Max       => "cummax",
            Cumulation::Min       => "cummin",
            Cumulation::LogSumExp => "cumlogsumexp",
        }
    }
}

impl View {
    /// The name of the view: `slice`.
    #[rustfmt::skip]
    pub const fn name(&self) -> &'static str {
        match self {
            View::Reshape(_)      => "reshape",
            View::Permute(_)      => "permute",
            View::Broadcast(_)    => "broadcast",
            View::Slice(_)        => "slice",
            View::Flip(_)         => "flip",
            View::Diagonal { .. } => "diagonal",
            View::Unfold { .. }   => "unfold",
        }
    }

    /// One view of each kind, with minimal attributes.
    pub fn forms() -> impl Iterator<Item = View> {
        [
            View::Reshape(Shape::new()),
            View::Permute(Axes::new()),
            View::Broadcast(Shape::new()),
            View::Slice(SmallVec::new()),
            View::Flip(Axes::new()),
            View::Diagonal { offset: 0, a: 0, b: 1 },
            View::Unfold { axis: 0, size: 1, step: 1 },
        ]
        .into_iter()
    }
}

impl Role {
    /// The name of the op with this role: `conv`.
    #[rustfmt::skip]
    pub const fn name(&self) -> &'static str {
        match self {
            Role::Forward  => "conv",
            Role::Input(_) => "conv_input",
            Role::Filter   => "conv_filter",
        }
    }

    /// One of each kind, with minimal attributes.
    pub fn forms() -> impl Iterator<Item = Role> {
        [Role::Forward, Role::Input(Shape::new()), Role::Filter].into_iter()
    }
}

impl Pooling {
    /// The name of the op: `pool_sum`.
    #[rustfmt::skip]
    pub const fn name(&self) -> &'static str {
        match self {
            Pooling::Sum       => "pool_sum",
            Pooling::Spread(_) => "pool_spread",
            Pooling::ArgMax    => "pool_argmax",
            Pooling::Take      => "pool_take",
            Pooling::Give(_)   => "pool_give",
        }
    }

    /// One of each kind, with minimal attributes.
    pub fn forms() -> impl Iterator<Item = Pooling> {
        use Pooling::{ArgMax, Give, Spread, Sum, Take};
        [Sum, Spread(Shape::new()), ArgMax, Take, Give(Shape::new())].into_iter()
    }
}

impl Linalg {
    /// The name of the operation: `cholesky`.
    #[rustfmt::skip]
    pub const fn name(self) -> &'static str {
        match self {
            Linalg::Cholesky               => "cholesky",
            Linalg::TriangularSolve { .. } => "triangular_solve",
            Linalg::Lu                     => "lu",
            Linalg::Permutation(_)         => "permutation",
            Linalg::LuSolve { .. }         => "lu_solve",
            Linalg::Qr { .. }              => "qr",
            Linalg::Eigh                   => "eigh",
            Linalg::Spectrum { .. }        => "spectrum",
            Linalg::Svd { .. }             => "svd",
        }
    }

    /// One of each kind.
    #[rustfmt::skip]
    pub fn forms() -> impl Iterator<Item = Linalg> {
        use Linalg::*;
        [
            Cholesky, TriangularSolve { upper: false, unit: false }, Lu, Permutation(0),
            LuSolve { transpose: false }, Qr { complete: false }, Eigh, Spectrum { singular: false },
            Svd { full: false },
        ]
        .into_iter()
    }
}

impl Fft {
    /// The name of the transform: `fft`.
    #[rustfmt::skip]
    pub const fn name(self) -> &'static str {
        match self {
            Fft::Complex { .. }   => "fft",
            Fft::Real(_)          => "fft.real",
            Fft::Hermitian { .. } => "fft.hermitian",
        }
    }

    /// One of each kind, on axis 0.
    pub fn forms() -> impl Iterator<Item = Fft> {
        let complex = Fft::Complex { axis: 0, inverse: false };
        [complex, Fft::Real(0), Fft::Hermitian { axis: 0, len: 1 }].into_iter()
    }
}

impl Op {
    /// The name, without attributes, as error messages and printed programs show it.
    #[rustfmt::skip]
    pub fn name(&self) -> &'static str {
        match self {
            Op::Literal { .. }        => "literal",
            Op::Iota { .. }           => "iota",
            Op::Random { kind, .. }   => kind.name(),
            Op::Unary(f)              => f.name(),
            Op::UnaryVjp(f)           => f.vjp_name(),
            Op::Binary(f)             => f.name(),
            Op::Compare(f)            => f.name(),
            Op::Select                => "select",
            Op::Cast(_)               => "cast",
            Op::View(view)            => view.name(),
            Op::Copy                  => "copy",
            Op::To(_)                 => "to",
            Op::After                 => "after",
            Op::Put(_)                => "put",
            Op::Pad(_)                => "pad",
            Op::Cat(_)                => "cat",
            Op::Gather(_)             => "gather",
            Op::Scatter(..)           => "scatter",
            Op::Reduce(kind, _)       => kind.name(),
            Op::ArgReduce(kind, _)    => kind.name(),
            Op::Cumulate { kind, .. } => kind.name(),
            Op::Sort { .. }           => "sort",
            Op::Ranks { .. }          => "ranks",
            Op::Dot                   => "dot",
            Op::Conv(conv)            => conv.role.name(),
            Op::Pool(pool)            => pool.kind.name(),
            Op::Linalg(f)             => f.name(),
            Op::Fft(f)                => f.name(),
            Op::Fused(f)              => f.name(),
            Op::Region(_)             => "region",
            Op::DotRegion(_)          => "dot_region",
            Op::Flow(flow)            => flow.name(),
            Op::Custom(custom)        => custom.name(),
            Op::Collective(of)        => of.collective.name(),
            Op::Wait                  => "wait",
            Op::Transfer(step)        => step.name(),
        }
    }

    /// One op of each name, with minimal attributes: the parser looks names up here.
    ///
    /// ```
    /// # use pullback_ir::Op;
    /// assert!(Op::forms().any(|op| op.name() == "softmax"));
    /// ```
    pub fn forms() -> impl Iterator<Item = Op> {
        let (shape, dtype, device) = (Shape::new(), DType::F32, Device::Cpu);
        let single = [
            Op::Literal { value: Scalar::Int(0), shape, dtype, device },
            Op::Iota { len: 0, dtype, device },
            Op::Select,
            Op::Cast(dtype),
            Op::Copy,
            Op::To(device),
            Op::After,
            Op::Put(Vec::new()),
            Op::Pad(SmallVec::new()),
            Op::Cat(0),
            Op::Gather(0),
            Op::Scatter(0, Combine::Set),
            Op::Sort { axis: 0, descending: false },
            Op::Ranks { axis: 0, descending: false, from: 0, count: 0 },
            Op::Dot,
        ];
        let random = move |&kind| Op::Random { kind, shape: Shape::new(), dtype };
        let conv =
            |role| Op::Conv(Box::new(Conv { role, windows: Vec::new(), groups: 1, last: false }));
        let pool = |kind| Op::Pool(Box::new(Pool { kind, frames: Vec::new() }));
        let cumulate = |&kind| Op::Cumulate { kind, axis: 0, reverse: false };
        (single.into_iter())
            .chain(Unary::ALL.iter().copied().map(Op::Unary))
            .chain(Unary::ALL.iter().copied().map(Op::UnaryVjp))
            .chain(Binary::ALL.iter().copied().map(Op::Binary))
            .chain(Compare::ALL.iter().copied().map(Op::Compare))
            .chain(Random::ALL.iter().map(random))
            .chain(View::forms().map(Op::View))
            .chain(Reduction::ALL.iter().map(|&kind| Op::Reduce(kind, Axes::new())))
            .chain(Extreme::ALL.iter().map(|&kind| Op::ArgReduce(kind, 0)))
            .chain(Cumulation::ALL.iter().map(cumulate))
            .chain(Role::forms().map(conv))
            .chain(Pooling::forms().map(pool))
            .chain(Linalg::forms().map(Op::Linalg))
            .chain(Fft::forms().map(Op::Fft))
            .chain(Fused::forms().map(Op::Fused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Alone, Collective, CollectiveOp, Custom, Flow, GroupHandle, Line, Program, Region,
        Transfer, Work,
    };
    use std::collections::BTreeSet;
    use std::fmt::Debug;
    use std::sync::Arc;

    /// Asserts that `ALL` holds each variant once. The variants are listed again as the arms of a
    /// match, so that the compiler rejects a list that lacks one.
    macro_rules! assert_all {
        ($kind:ident: $($variant:ident)*) => {{
            let number = |v: $kind| {
                let _exhaustive = match v { $($kind::$variant => ()),* };
                v as usize
            };
            assert_places([$($kind::$variant),*].len(), $kind::ALL, number);
        }};
    }

    fn assert_places<T: Copy + Debug>(count: usize, all: &[T], number: impl Fn(T) -> usize) {
        let found: BTreeSet<usize> = all.iter().map(|&v| number(v)).collect();
        assert_eq!(found, (0..count).collect(), "{all:?}");
        assert_eq!(all.len(), count, "{all:?}");
    }

    #[test]
    #[rustfmt::skip]
    fn lists_hold_every_variant_once() {
        assert_all!(Compare: Eq Ne Lt Le Gt Ge);
        assert_all!(Random: Bits Uniform Normal);
        assert_all!(Combine: Set Add Mul Max Min);
        assert_all!(Reduction: Sum Prod Max Min);
        assert_all!(Extreme: Max Min);
        assert_all!(Cumulation: Sum Prod Max Min LogSumExp);
    }

    /// The number of variants of a data-carrying enum, and which of them `forms` has.
    macro_rules! assert_forms {
        ($forms:expr, $($pattern:pat),* $(,)?) => {{
            let patterns = [$(stringify!($pattern)),*];
            let mut missing: BTreeSet<&str> = patterns.into_iter().collect();
            for form in $forms {
                missing.remove(match form { $($pattern => stringify!($pattern)),* });
            }
            assert!(missing.is_empty(), "no form of {missing:?}");
        }};
    }

    #[test]
    #[rustfmt::skip]
    fn forms_hold_every_variant() {
        assert_forms!(View::forms(),
            View::Reshape(_), View::Permute(_), View::Broadcast(_), View::Slice(_), View::Flip(_),
            View::Diagonal { .. }, View::Unfold { .. });
        assert_forms!(Linalg::forms(),
            Linalg::Cholesky, Linalg::TriangularSolve { .. }, Linalg::Lu, Linalg::Permutation(_),
            Linalg::LuSolve { .. }, Linalg::Qr { .. }, Linalg::Eigh, Linalg::Spectrum { .. },
            Linalg::Svd { .. });
        assert_forms!(Fft::forms(), Fft::Complex { .. }, Fft::Real(_), Fft::Hermitian { .. });
        // Structured ops have no minimal form: their text is parsed by `program.rs`.
        let region = || Arc::new(Region { device: Device::Cpu, shape: Shape::new(), inner: 0, inputs: vec![], body: vec![], outputs: vec![],
            columns: vec![] });
        let flow = Arc::new(Flow::Cond { yes: Program::default(), no: Program::default() });
        let custom = Arc::new(Custom::new("twice", Work::Done(1), Arc::new(())));
        // Nor have collectives, which name a group of workers that only a run has.
        let (group, line) = (GroupHandle::new(Arc::new(Alone)), Line::caller());
        let all = Op::Collective(Arc::new(CollectiveOp { collective: Collective::Barrier, group, line, started: false }));
        let transfer = Op::Transfer(Transfer::Offload);
        let structure = [Op::Region(region()), Op::DotRegion(region()), Op::Flow(flow), Op::Custom(custom), all, Op::Wait, transfer];
        assert_forms!(Op::forms().chain(structure),
            Op::Literal { .. }, Op::Iota { .. }, Op::Random { .. }, Op::Unary(_), Op::UnaryVjp(_),
            Op::Binary(_), Op::Compare(_), Op::Select, Op::Cast(_), Op::View(_), Op::Copy, Op::To(_), Op::After, Op::Put(_),
            Op::Pad(_), Op::Cat(_), Op::Gather(_), Op::Scatter(..), Op::Reduce(..), Op::ArgReduce(..),
            Op::Cumulate { .. }, Op::Sort { .. }, Op::Ranks { .. }, Op::Dot, Op::Conv(_), Op::Pool(_), Op::Linalg(_), Op::Fft(_),
            Op::Fused(_), Op::Region(_), Op::DotRegion(_), Op::Flow(_), Op::Custom(_), Op::Collective(_), Op::Wait, Op::Transfer(_));
        assert_forms!(Role::forms(), Role::Forward, Role::Input(_), Role::Filter);
        assert_forms!(Pooling::forms(), Pooling::Sum, Pooling::Spread(_), Pooling::ArgMax, Pooling::Take, Pooling::Give(_));
    }

    #[test]
    fn names_are_unique_snake_case() {
        let mut seen = BTreeSet::new();
        for op in Op::forms() {
            let name = op.name();
            assert!(seen.insert(name), "`{name}` names two ops");
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_.".contains(c);
            assert!(name.chars().all(plain), "{name}");
        }
        let combines: BTreeSet<_> = Combine::ALL.iter().map(|c| c.name()).collect();
        assert_eq!(combines.len(), Combine::ALL.len());
    }
}
