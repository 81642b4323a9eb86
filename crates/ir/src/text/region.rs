//! Prints and parses regions.
//!
//! ```text
//! region{shape=[4,8],inner=1,inputs=[f32[4,8], f32[8]@[0,1]+0],body=[v0 = load 0; v1 = load 1; v2 = mul v0 v1; v3 = sum v2],outputs=[v3]}
//! ```
//!
//! An operand that has the domain's shape and is read in order shows its spec alone; any other
//! shows strides and offset after `@`, and before them the shape that is read, where that is not
//! the domain's (the key of random numbers). Values that are summed over the rows follow, as
//! `columns=[v2]`, if there are any. A region on another device than the CPU begins with
//! `device=cuda:0`.

use super::cursor::{Parsed, TextCursor};
use super::parse::{device, dtype, index, indices, op, scalar, spec};
use super::print::{Exact, IntList, separated};
use crate::{Device, Inst, Layout, Load, Random, Reduction, Region, Scalar, Strides};
use smallvec::SmallVec;
use std::fmt::{self, Display, Formatter};

/// The attributes of the op; with `{:#}`, one instruction per line.
impl Display for Region {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.device != Device::Cpu {
            write!(f, "device={},", self.device)?;
        }
        write!(f, "shape={},inner={},inputs=[", IntList(&self.shape), self.inner)?;
        separated(f, self.inputs.iter().map(|load| LoadText(self, load)), ", ")?;
        f.write_str("],body=[")?;
        let lines = f.alternate() && !self.body.is_empty();
        for (i, inst) in self.body.iter().enumerate() {
            f.write_str(if i > 0 { ";" } else { "" })?;
            f.write_str(if lines { "\n  " } else { [" ", ""][usize::from(i == 0)] })?;
            write!(f, "v{i} = {inst}")?;
        }
        f.write_str(if lines { "\n" } else { "" })?;
        f.write_str("],outputs=[")?;
        separated(f, self.outputs.iter().map(|&v| ValueName(v)), ",")?;
        if !self.columns.is_empty() {
            f.write_str("],columns=[")?;
            separated(f, self.columns.iter().map(|&v| ValueName(v)), ",")?;
        }
        f.write_str("]")
    }
}

impl Display for Inst {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Inst::Load(k) => write!(f, "load {k}"),
            Inst::Literal(Scalar::Float(v), dtype) => write!(f, "literal {}: {dtype}", Exact(*v)),
            Inst::Literal(value, dtype) => write!(f, "literal {value}: {dtype}"),
            Inst::Index(axis, dtype) => write!(f, "index {axis}: {dtype}"),
            Inst::Random(kind, key, dtype) => write!(f, "{} {key}: {dtype}", kind.name()),
            Inst::Point(op, of) => {
                write!(f, "{op}")?;
                of.iter().try_for_each(|v| write!(f, " v{v}"))
            }
            Inst::Reduce(kind, v) => write!(f, "{} v{v}", kind.name()),
        }
    }
}

/// `v3`
struct ValueName(usize);

impl Display for ValueName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

struct LoadText<'a>(&'a Region, &'a Load);

impl Display for LoadText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let LoadText(Region { shape, .. }, Load { spec, layout }) = self;
        write!(f, "{spec}")?;
        // A domain too large for any memory has no dense strides.
        let fits = spec.shape == *shape && crate::infer::fits_memory(shape);
        if fits && *layout == Layout::dense(shape.clone()) {
            return Ok(());
        }
        f.write_str("@")?;
        if layout.shape != *shape {
            write!(f, "{}:", IntList(&layout.shape))?;
        }
        f.write_str("[")?;
        separated(f, &layout.strides, ",")?;
        write!(f, "]+{}", layout.offset)
    }
}

/// Reads what is between the braces.
pub(super) fn region(c: &mut TextCursor) -> Parsed<Region> {
    let device = match c.peek_word() {
        "device" => {
            let device = c.field("device", device)?;
            c.expect(',')?;
            device
        }
        _ => Device::Cpu,
    };
    let shape = c.field("shape", indices)?;
    c.expect(',')?;
    let inner = c.field("inner", index)?;
    c.expect(',')?;
    let inputs = c.field("inputs", |c| {
        c.list(',', |c| {
            let spec = spec(c)?;
            if !c.eat('@') {
                return match crate::infer::fits_memory(&shape) {
                    true => Ok(Load { spec, layout: Layout::dense(shape.clone()) }),
                    false => Err(c.error("the domain exceeds the addressable size")),
                };
            }
            let list: SmallVec<[isize; 4]> = c.list(',', |c| c.parse("an integer"))?;
            let (seen, strides): (_, Strides) = match c.eat(':') {
                false => (shape.clone(), list.iter().copied().collect()),
                true => {
                    let lengths =
                        list.iter().map(|&n| usize::try_from(n)).collect::<Result<_, _>>();
                    let seen = lengths.map_err(|_| c.error("expected a shape before the `:`"))?;
                    (seen, c.list(',', |c| c.parse("an integer"))?)
                }
            };
            if strides.len() != seen.len() {
                let message = format!("{} strides for {} axes", strides.len(), seen.len());
                return Err(c.error(message));
            }
            c.expect('+')?;
            Ok(Load { spec, layout: Layout { shape: seen, strides, offset: index(c)? } })
        })
    })?;
    c.expect(',')?;
    let mut count = 0;
    let body = c.field("body", |c| {
        c.list(';', |c| {
            c.keyword(&ValueName(count).to_string())?;
            count += 1;
            c.expect('=')?;
            inst(c)
        })
    })?;
    c.expect(',')?;
    let outputs = c.field("outputs", |c| c.list(',', value))?;
    let columns = match c.eat(',') {
        true => c.field("columns", |c| c.list(',', value))?,
        false => Vec::new(),
    };
    Ok(Region { device, shape, inner, inputs, body, outputs, columns })
}

fn inst(c: &mut TextCursor) -> Parsed<Inst> {
    let name = c.peek_word();
    if let Some(&kind) = Reduction::ALL.iter().find(|kind| kind.name() == name) {
        c.read(|_| Ok(()))?;
        return Ok(Inst::Reduce(kind, value(c)?));
    }
    if let Some(&kind) = Random::ALL.iter().find(|kind| kind.name() == name) {
        c.read(|_| Ok(()))?;
        let key = index(c)?;
        c.expect(':')?;
        return Ok(Inst::Random(kind, key, dtype(c)?));
    }
    match name {
        "load" => {
            c.read(|_| Ok(()))?;
            Ok(Inst::Load(index(c)?))
        }
        "literal" => {
            c.read(|_| Ok(()))?;
            let value = scalar(c)?;
            c.expect(':')?;
            Ok(Inst::Literal(value, dtype(c)?))
        }
        "index" => {
            c.read(|_| Ok(()))?;
            let axis = index(c)?;
            c.expect(':')?;
            Ok(Inst::Index(axis, dtype(c)?))
        }
        _ => {
            let before = c.error(format!("`{name}` is not an instruction of a region"));
            let op = op(c)?;
            if !op.is_pointwise() {
                return Err(before);
            }
            let mut of = SmallVec::new();
            while c.peek_word().starts_with('v') {
                of.push(value(c)?);
            }
            Ok(Inst::Point(op, of))
        }
    }
}

/// `v3`
fn value(c: &mut TextCursor) -> Parsed<usize> {
    c.read(|word| {
        let digits = word.strip_prefix('v').filter(|d| d.bytes().all(|b| b.is_ascii_digit()));
        let number = digits.and_then(|d| d.parse().ok());
        number.ok_or_else(|| format!("expected a value such as `v0`, found `{word}`"))
    })
}
