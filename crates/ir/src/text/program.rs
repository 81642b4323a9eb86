//! Programs, and the ops that hold programs or regions, as text, and back.
//!
//! A program prints one equation a line; inside an op it is the same text with `;` for the ends of lines. Variables are letters,
//! `a` to `z`, then `ba`, `bb`, …: the digits of a number in base 26.

use crate::{Flow, Inst, Program, Region, Scan, Var};
use std::fmt::{self, Display, Formatter};

impl Display for Var {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut letters = [0u8; 8];
        let (mut at, mut rest) = (letters.len(), self.0);
        loop {
            at -= 1;
            letters[at] = b'a' + (rest % 26) as u8;
            rest /= 26;
            if rest == 0 {
                break;
            }
        }
        letters[at..].iter().try_for_each(|&c| f.write_str((c as char).encode_utf8(&mut [0; 4])))
    }
}

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("program ")?;
        write_program(self, f, false)
    }
}

/// `(a: f32[8]) { let b: f32[8] = neg a; return b }`, on one line or on several.
fn write_program(program: &Program, f: &mut Formatter<'_>, inline: bool) -> fmt::Result {
    let (start, end) = if inline { (" ", ";") } else { ("\n  ", "") };
    f.write_str("(")?;
    for (i, v) in program.inputs.iter().enumerate() {
        write!(f, "{}{v}: {}", if i > 0 { ", " } else { "" }, program.spec(*v))?;
    }
    f.write_str(") {")?;
    for e in &program.equations {
        write!(f, "{start}let ")?;
        for (i, v) in e.outputs.iter().enumerate() {
            write!(f, "{}{v}: {}", if i > 0 { ", " } else { "" }, program.spec(*v))?;
        }
        write!(f, " = {}", e.op)?;
        e.inputs.iter().try_for_each(|v| write!(f, " {v}"))?;
        f.write_str(end)?;
        if let Some(at) = e.at.filter(|_| !inline) {
            write!(f, "  // {at}")?;
        }
    }
    write!(f, "{start}return")?;
    for (k, v) in program.outputs.iter().enumerate() {
        write!(f, "{} {v}", if k > 0 { "," } else { "" })?;
        for (_, input) in program.updates.iter().filter(|u| u.0 == k) {
            write!(f, " into {}", program.inputs[*input])?;
        }
    }
    f.write_str(if inline { " }" } else { "\n}\n" })
}

struct Inline<'a>(&'a Program);

impl Display for Inline<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_program(self.0, f, true)
    }
}

/// The attributes of the op.
impl Display for Flow {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Flow::Cond { yes, no } => write!(f, "yes={},no={}", Inline(yes), Inline(no)),
            Flow::While { test, body, shared } => {
                write!(f, "shared={shared},test={},body={}", Inline(test), Inline(body))
            }
            Flow::Scan(Scan { body, length, reverse, shared, carry, kept }) => write!(
                f,
                "length={length},reverse={reverse},shared={shared},carry={carry},kept={kept},body={}",
                Inline(body)
            ),
        }
    }
}

/// The attributes of the op.
impl Display for Region {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "shape={:?},inner={},inputs=[", &self.shape[..], self.inner)?;
        for (i, load) in self.inputs.iter().enumerate() {
            let layout = &load.layout;
            write!(
                f,
                "{}{}@{:?}+{}",
                if i > 0 { ", " } else { "" },
                load.spec,
                &layout.strides[..],
                layout.offset
            )?;
        }
        f.write_str("],body=[")?;
        for (i, inst) in self.body.iter().enumerate() {
            f.write_str(if i > 0 { "; " } else { "" })?;
            match inst {
                Inst::Load(k) => write!(f, "load {k}")?,
                Inst::Literal(value, dtype) => write!(f, "literal {value} {dtype}")?,
                Inst::Index(axis, dtype) => write!(f, "index {axis} {dtype}")?,
                Inst::Random(kind, key, dtype) => write!(f, "{} {key} {dtype}", kind.name())?,
                Inst::Point(op, of) => {
                    write!(f, "{op}")?;
                    of.iter().try_for_each(|v| write!(f, " {v}"))?;
                }
                Inst::Reduce(kind, v) => write!(f, "reduce.{} {v}", kind.name())?,
            }
        }
        write!(f, "],outputs={:?}", self.outputs)
    }
}
