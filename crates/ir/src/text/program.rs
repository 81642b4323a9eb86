//! Prints programs and control flow.
//!
//! A program prints one equation per line. Inside an op that is printed on one line (`{}`) it is
//! the same text with `;` for the ends of lines; inside one that is printed over several (`{:#}`,
//! as programs print their equations) it is indented. Both parse back. Variables are letters, `a`
//! to `z`, then `ba`, `bb`, …: the digits of a number in base 26.

use super::print::separated;
use crate::{Collective, CollectiveOp, Custom, Equation, Flow, Line, Program, Scan, Var};
use std::fmt::{self, Display, Formatter, Write};

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
        letters[at..].iter().try_for_each(|&c| f.write_char(c as char))
    }
}

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("program ")?;
        write_program(self, f, false)?;
        f.write_str("\n")
    }
}

/// `(a: f32[8]) { let b: f32[8] = neg a; return b }`, on one line or on several.
fn write_program(program: &Program, f: &mut Formatter<'_>, inline: bool) -> fmt::Result {
    f.write_str("(")?;
    separated(f, program.inputs.iter().map(|&v| TypedVar(program, v)), ", ")?;
    f.write_str(") {")?;
    for e in &program.equations {
        if inline {
            f.write_str(" ")?;
            write_equation(program, e, f, inline)?;
            f.write_str(";")?;
        } else {
            write!(Indented(f), "\n{}", Statement(program, e))?;
        }
    }
    f.write_str(if inline { " return" } else { "\n  return" })?;
    for (k, v) in program.outputs.iter().enumerate() {
        write!(f, "{} {v}", if k > 0 { "," } else { "" })?;
        for (_, input) in program.updates.iter().filter(|u| u.0 == k) {
            match program.inputs.get(*input) {
                Some(input) => write!(f, " into {input}")?,
                None => write!(f, " into <input {input}, which is not there>")?,
            }
        }
    }
    f.write_str(if inline { " }" } else { "\n}" })
}

fn write_equation(
    program: &Program,
    e: &Equation,
    f: &mut Formatter<'_>,
    inline: bool,
) -> fmt::Result {
    f.write_str("let ")?;
    separated(f, e.outputs.iter().map(|&v| TypedVar(program, v)), ", ")?;
    match inline {
        true => write!(f, " = {}", e.op)?,
        false => write!(f, " = {:#}", e.op)?,
    }
    e.inputs.iter().try_for_each(|v| write!(f, " {v}"))?;
    match e.at {
        Some(at) if inline => write!(f, " /* {} */", Escaped(at)),
        Some(at) => write!(f, "  // {}", Escaped(at)),
        None => Ok(()),
    }
}

/// An equation on its own line.
struct Statement<'a>(&'a Program, &'a Equation);

impl Display for Statement<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_equation(self.0, self.1, f, false)
    }
}

/// `a: f32[8]`
struct TypedVar<'a>(&'a Program, Var);

impl Display for TypedVar<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // A program that `verify` rejects must still be printable.
        match self.0.specs.get(self.1.index()) {
            Some(spec) => write!(f, "{}: {spec}", self.1),
            None => write!(f, "{}: <no spec>", self.1),
        }
    }
}

/// A line whose file's name cannot be taken for the end of a comment: odd characters are `%` and
/// their code in hexadecimal, with a `;` at the end.
struct Escaped(Line);

impl Display for Escaped {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (i, c) in self.0.file().char_indices() {
            let odd = c.is_control() || c.is_whitespace() && (i == 0 || c != ' ');
            match odd || c == '%' || c == '*' {
                true => write!(f, "%{:x};", c as u32)?,
                false => f.write_char(c)?,
            }
        }
        write!(f, ":{}:{}", self.0.line(), self.0.column())
    }
}

/// Reads what [`Escaped`] writes; `None` for any other comment.
pub(super) fn read_line(text: &str) -> Option<Line> {
    let mut parts = text.trim().rsplitn(3, ':');
    let (column, line) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let mut pieces = parts.next()?.split('%');
    let mut file = pieces.next()?.to_owned();
    for piece in pieces {
        let (code, rest) = piece.split_once(';')?;
        file.push(u32::from_str_radix(code, 16).ok().and_then(char::from_u32)?);
        file.push_str(rest);
    }
    Some(Line::named(&file, line, column))
}

/// Two blanks after every end of line.
struct Indented<'a, 'b>(&'a mut Formatter<'b>);

impl Write for Indented<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for line in text.split_inclusive('\n') {
            self.0.write_str(line)?;
            if line.ends_with('\n') {
                self.0.write_str("  ")?;
            }
        }
        Ok(())
    }
}

struct Nested<'a>(&'a Program, bool);

impl Display for Nested<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_program(self.0, f, self.1)
    }
}

/// The attributes of the op; over several lines with `{:#}`.
impl Display for Flow {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let inline = !f.alternate();
        self.write_numbers(f)?;
        for (i, (name, program)) in self.names().iter().zip(self.programs()).enumerate() {
            let numbers = !matches!(self, Flow::Cond { .. });
            f.write_str(if i > 0 || numbers { "," } else { "" })?;
            match inline {
                true => write!(f, "{name}={}", Nested(program, true))?,
                false => write!(Indented(f), "\n{name}={}", Nested(program, false))?,
            }
        }
        f.write_str(if inline { "" } else { "\n" })
    }
}

/// `custom{name}`, or `custom{name,body=…}`: for display. It contains code, so it does not parse
/// back.
impl Display for Custom {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "custom{{{}", self.name())?;
        match self.body() {
            None => {}
            Some(body) if f.alternate() => {
                write!(Indented(f), ",\nbody={}", Nested(body, false))?;
                f.write_str("\n")?;
            }
            Some(body) => write!(f, ",body={}", Nested(body, true))?,
        }
        f.write_str("}")
    }
}

impl Flow {
    /// The names of the programs inside, in the order of [`Flow::programs`].
    pub fn names(&self) -> &'static [&'static str] {
        match self {
            Flow::Cond { .. } => &["yes", "no"],
            Flow::While { .. } => &["test", "body"],
            Flow::Scan(_) => &["body"],
        }
    }

    /// The attributes that are not programs: `length=3,reverse=false,shared=1,carry=1,kept=0`.
    pub(super) fn write_numbers(&self, f: &mut impl Write) -> fmt::Result {
        match self {
            Flow::Cond { .. } => Ok(()),
            Flow::While { shared, .. } => write!(f, "shared={shared}"),
            Flow::Scan(Scan { length, reverse, shared, carry, kept, .. }) => {
                write!(
                    f,
                    "length={length},reverse={reverse},shared={shared},carry={carry},kept={kept}"
                )
            }
        }
    }
}

/// `{group=local[1/4]}`, after the attributes of the collective: for display. A group exists only
/// in a run, so it does not parse.
impl Display for CollectiveOp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        match &self.collective {
            Collective::Broadcast { root } => write!(f, "root={root},")?,
            Collective::Send { to } => write!(f, "to={to},")?,
            Collective::Recv { from, spec } => write!(f, "from={from},{spec},")?,
            Collective::AllReduce(_) | Collective::AllGather | Collective::ReduceScatter => {}
            Collective::AllToAll | Collective::Barrier => {}
        }
        if self.started {
            f.write_str("started,")?;
        }
        write!(f, "group={:?}}}", self.group)
    }
}
