//! Prints and parses the attributes of fused ops.

use super::cursor::{Parsed, TextCursor};
use super::parse::{index, real};
use super::print::Exact;
use crate::op::{Adam, Attention, Fused, Sgd};
use smallvec::SmallVec;
use std::fmt::{self, Formatter};

pub(super) fn print(f: &mut Formatter<'_>, fused: Fused) -> fmt::Result {
    match fused {
        Fused::Softmax(axis)
        | Fused::SoftmaxVjp(axis)
        | Fused::LogSoftmax(axis)
        | Fused::LogSoftmaxVjp(axis)
        | Fused::LogSumExp(axis) => write!(f, "{{{axis}}}"),
        Fused::LayerNorm(eps)
        | Fused::LayerNormVjp(eps)
        | Fused::BatchNorm(eps)
        | Fused::BatchNormVjp(eps) => write!(f, "{{{}}}", Exact(eps)),
        Fused::CrossEntropy | Fused::CrossEntropyVjp => Ok(()),
        Fused::Distances { within } | Fused::DistancesVjp { within } => {
            write!(f, "{{within={within}}}")
        }
        Fused::Ctc { blank } | Fused::CtcVjp { blank } => write!(f, "{{blank={blank}}}"),
        Fused::Sgd(how) => {
            let reals = [how.momentum, how.dampening, how.decay].map(Exact);
            let [momentum, dampening, decay] = reals;
            let (nesterov, maximize) = (how.nesterov, how.maximize);
            write!(f, "{{momentum={momentum},dampening={dampening},decay={decay}")?;
            write!(f, ",nesterov={nesterov},maximize={maximize}}}")
        }
        Fused::Adam(how) => {
            let reals = [how.beta1, how.beta2, how.eps, how.decay].map(Exact);
            let [beta1, beta2, eps, decay] = reals;
            let (decoupled, amsgrad) = (how.decoupled, how.amsgrad);
            write!(f, "{{beta1={beta1},beta2={beta2},eps={eps},decay={decay}")?;
            write!(f, ",decoupled={decoupled},amsgrad={amsgrad},maximize={}}}", how.maximize)
        }
        Fused::Attention(a) | Fused::AttentionVjp(a) => {
            let (scale, dropout) = (Exact(a.scale), Exact(a.dropout));
            let (causal, masked) = (a.causal, a.masked);
            write!(f, "{{causal={causal},masked={masked},scale={scale},dropout={dropout}}}")
        }
    }
}

/// The op, from one of its kind.
pub(super) fn parse(c: &mut TextCursor, form: Fused) -> Parsed<Fused> {
    Ok(match form {
        Fused::Softmax(_) => Fused::Softmax(c.braced(index)?),
        Fused::SoftmaxVjp(_) => Fused::SoftmaxVjp(c.braced(index)?),
        Fused::LogSoftmax(_) => Fused::LogSoftmax(c.braced(index)?),
        Fused::LogSoftmaxVjp(_) => Fused::LogSoftmaxVjp(c.braced(index)?),
        Fused::LogSumExp(_) => Fused::LogSumExp(c.braced(index)?),
        Fused::LayerNorm(_) => Fused::LayerNorm(c.braced(real)?),
        Fused::LayerNormVjp(_) => Fused::LayerNormVjp(c.braced(real)?),
        Fused::BatchNorm(_) => Fused::BatchNorm(c.braced(real)?),
        Fused::BatchNormVjp(_) => Fused::BatchNormVjp(c.braced(real)?),
        Fused::CrossEntropy | Fused::CrossEntropyVjp => form,
        Fused::Attention(_) => Fused::Attention(c.braced(attention)?),
        Fused::AttentionVjp(_) => Fused::AttentionVjp(c.braced(attention)?),
        Fused::Distances { .. } => {
            Fused::Distances { within: c.braced(|c| c.field("within", truth))? }
        }
        Fused::DistancesVjp { .. } => {
            Fused::DistancesVjp { within: c.braced(|c| c.field("within", truth))? }
        }
        Fused::Ctc { .. } => Fused::Ctc { blank: c.braced(|c| c.field("blank", index))? },
        Fused::CtcVjp { .. } => Fused::CtcVjp { blank: c.braced(|c| c.field("blank", index))? },
        Fused::Sgd(_) => Fused::Sgd(c.braced(|c| {
            let [momentum, dampening, decay] = fields(c, ["momentum", "dampening", "decay"], real)?;
            c.expect(',')?;
            let [nesterov, maximize] = fields(c, ["nesterov", "maximize"], truth)?;
            Ok(Sgd { momentum, dampening, decay, nesterov, maximize })
        })?),
        Fused::Adam(_) => Fused::Adam(c.braced(|c| {
            let [beta1, beta2, eps, decay] = fields(c, ["beta1", "beta2", "eps", "decay"], real)?;
            c.expect(',')?;
            let [decoupled, amsgrad, maximize] =
                fields(c, ["decoupled", "amsgrad", "maximize"], truth)?;
            Ok(Adam { beta1, beta2, eps, decay, decoupled, amsgrad, maximize })
        })?),
    })
}

fn truth(c: &mut TextCursor) -> Parsed<bool> {
    c.parse("`true` or `false`")
}

/// `a=1,b=2`: fields of these names and of one type, in this order.
fn fields<T: Copy, const N: usize>(
    c: &mut TextCursor,
    names: [&str; N],
    read: fn(&mut TextCursor) -> Parsed<T>,
) -> Parsed<[T; N]> {
    let mut found = SmallVec::<[T; 8]>::new();
    for (i, name) in names.into_iter().enumerate() {
        if i > 0 {
            c.expect(',')?;
        }
        found.push(c.field(name, read)?);
    }
    Ok(std::array::from_fn(|i| found[i]))
}

fn attention(c: &mut TextCursor) -> Parsed<Attention> {
    let causal = c.field("causal", truth)?;
    c.expect(',')?;
    let masked = c.field("masked", truth)?;
    c.expect(',')?;
    let scale = c.field("scale", real)?;
    c.expect(',')?;
    Ok(Attention { causal, masked, scale, dropout: c.field("dropout", real)? })
}
