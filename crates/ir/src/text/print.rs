//! Ops and views to text.

use crate::op::{Fft, Linalg, Op, Padding};
use crate::spec::DeviceSuffix;
use crate::window::{Frame, Pooling, Role, Window};
use crate::{Real, Scalar, Span, View};
use std::fmt::{self, Display, Formatter};

impl Display for Op {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // A view prints its own name.
        if let Op::View(view) = self {
            return view.fmt(f);
        }
        // Custom ops may have any name.
        if let Op::Custom(custom) = self {
            return Display::fmt(&**custom, f);
        }
        f.write_str(self.name())?;
        match self {
            Op::Literal { value: Scalar::Float(v), shape, dtype, device } => {
                write!(f, "{{{}: {dtype}{}{}}}", Exact(*v), IntList(shape), DeviceSuffix(*device))
            }
            Op::Literal { value, shape, dtype, device } => {
                write!(f, "{{{value}: {dtype}{}{}}}", IntList(shape), DeviceSuffix(*device))
            }
            Op::Iota { len, dtype, device } => {
                write!(f, "{{{len}: {dtype}{}}}", DeviceSuffix(*device))
            }
            Op::To(device) => write!(f, "{{{device}}}"),
            Op::Random { kind: _, shape, dtype } => write!(f, "{{{dtype}{}}}", IntList(shape)),
            Op::Cast(dtype) => write!(f, "{{{dtype}}}"),
            Op::Put(views) => {
                f.write_str("{[")?;
                separated(f, views, "; ")?;
                f.write_str("]}")
            }
            Op::Pad(paddings) => {
                f.write_str("{[")?;
                separated(f, paddings.iter().map(Triple::from), ", ")?;
                f.write_str("]}")
            }
            Op::Cat(axis) | Op::Gather(axis) | Op::ArgReduce(_, axis) => write!(f, "{{{axis}}}"),
            Op::Scatter(axis, combine) => write!(f, "{{{axis},{}}}", combine.name()),
            Op::Reduce(_, axes) => write!(f, "{{{}}}", IntList(axes)),
            Op::Cumulate { kind: _, axis, reverse } => {
                write!(f, "{{axis={axis},reverse={reverse}}}")
            }
            Op::Sort { axis, descending } => write!(f, "{{axis={axis},descending={descending}}}"),
            Op::Ranks { axis, descending, from, count } => {
                write!(f, "{{axis={axis},descending={descending},from={from},count={count}}}")
            }
            Op::Conv(conv) => {
                f.write_str("{[")?;
                separated(f, &conv.windows, ", ")?;
                write!(f, "],groups={}", conv.groups)?;
                match &conv.role {
                    Role::Input(shape) => write!(f, ",lengths={}", IntList(shape))?,
                    Role::Forward | Role::Filter => {}
                }
                f.write_str(if conv.last { ",last}" } else { "}" })
            }
            Op::Pool(pool) => {
                f.write_str("{[")?;
                separated(f, &pool.frames, ", ")?;
                f.write_str("]")?;
                match &pool.kind {
                    Pooling::Spread(shape) | Pooling::Give(shape) => {
                        write!(f, ",lengths={}}}", IntList(shape))
                    }
                    Pooling::Sum | Pooling::ArgMax | Pooling::Take => f.write_str("}"),
                }
            }
            Op::Linalg(linalg) => match linalg {
                Linalg::TriangularSolve { upper, unit } => {
                    write!(f, "{{upper={upper},unit={unit}}}")
                }
                Linalg::Permutation(rows) => write!(f, "{{{rows}}}"),
                Linalg::LuSolve { transpose } => write!(f, "{{transpose={transpose}}}"),
                Linalg::Qr { complete } => write!(f, "{{complete={complete}}}"),
                Linalg::Spectrum { singular } => write!(f, "{{singular={singular}}}"),
                Linalg::Svd { full } => write!(f, "{{full={full}}}"),
                Linalg::Cholesky | Linalg::Lu | Linalg::Eigh => Ok(()),
            },
            Op::Region(region) | Op::DotRegion(region) => {
                f.write_str("{")?;
                region.fmt(f)?;
                f.write_str("}")
            }
            Op::Flow(flow) => {
                f.write_str("{")?;
                flow.fmt(f)?;
                f.write_str("}")
            }
            Op::Fft(fft) => match fft {
                Fft::Complex { axis, inverse } => write!(f, "{{axis={axis},inverse={inverse}}}"),
                Fft::Real(axis) => write!(f, "{{{axis}}}"),
                Fft::Hermitian { axis, len } => write!(f, "{{axis={axis},len={len}}}"),
            },
            Op::Fused(fused) => super::fused::print(f, *fused),
            Op::Unary(_) | Op::UnaryVjp(_) | Op::Binary(_) | Op::Compare(_) => Ok(()),
            Op::Select | Op::Copy | Op::After | Op::Wait | Op::Dot | Op::View(_) => Ok(()),
            Op::Transfer(_) => Ok(()),
            Op::Collective(of) => of.fmt(f),
            Op::Custom(_) => Ok(()),
        }
    }
}

impl Display for View {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            View::Reshape(list)
            | View::Permute(list)
            | View::Broadcast(list)
            | View::Flip(list) => {
                write!(f, "{{{}}}", IntList(list))
            }
            View::Slice(spans) => {
                f.write_str("{[")?;
                separated(f, spans.iter().map(Triple::from), ", ")?;
                f.write_str("]}")
            }
            View::Diagonal { offset, a, b } => write!(f, "{{offset={offset},a={a},b={b}}}"),
            View::Unfold { axis, size, step } => {
                write!(f, "{{axis={axis},size={size},step={step}}}")
            }
        }
    }
}

/// `3:2:1:1:1`: size, stride, dilation, before, after.
impl Display for Window {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Window { size, stride, dilation, before, after } = self;
        write!(f, "{size}:{stride}:{dilation}:{before}:{after}")
    }
}

/// A window, or `even:5`.
impl Display for Frame {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Frame::Sliding(window) => window.fmt(f),
            Frame::Even(count) => write!(f, "even:{count}"),
        }
    }
}

/// `[2,3]`
pub(super) struct IntList<'a>(pub(super) &'a [usize]);

impl Display for IntList<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        separated(f, self.0, ",")?;
        f.write_str("]")
    }
}

/// `0:5:1`
struct Triple(usize, usize, usize);

impl From<&Span> for Triple {
    fn from(span: &Span) -> Triple {
        Triple(span.start, span.len, span.step)
    }
}

impl From<&Padding> for Triple {
    fn from(padding: &Padding) -> Triple {
        Triple(padding.before, padding.after, padding.between)
    }
}

impl Display for Triple {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.0, self.1, self.2)
    }
}

/// A float such that its bits parse back: the shortest decimal that is nearest to it, `inf`, `NaN`,
/// and any other NaN with its bits: `NaN(0x7ff8000000000001)`.
pub(super) struct Exact(pub(super) Real);

impl Display for Exact {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Exact(v) = self;
        if v.0.is_nan() && *v != Real(f64::NAN) {
            return write!(f, "NaN({:#018x})", v.0.to_bits());
        }
        write!(f, "{:?}", v.0)
    }
}

pub(super) fn separated<T: Display>(
    f: &mut Formatter<'_>,
    items: impl IntoIterator<Item = T>,
    separator: &str,
) -> fmt::Result {
    for (i, item) in items.into_iter().enumerate() {
        write!(f, "{}{item}", if i > 0 { separator } else { "" })?;
    }
    Ok(())
}
