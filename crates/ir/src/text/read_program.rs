//! Parses programs and control flow.
//!
//! The parser checks that every variable is defined once and before its use, as names have no
//! meaning otherwise; [`Program::verify`] checks that ops accept their operands.

use super::cursor::{ParseOpError, Parsed, TextCursor};
use super::parse::{flag, index, op, spec};
use super::program::read_line;
use crate::{Equation, Flow, Program, Scan, Spec, Var, Vars};
use std::collections::HashMap;
use std::str::FromStr;

impl FromStr for Program {
    type Err = ParseOpError;

    /// Parses the text of a program. An error names the line.
    ///
    /// ```
    /// use pullback_ir::Program;
    /// let text = "program (a: f32[2]) {\n  let b: f32[2] = neg a  // src/main.rs:12:9\n  return b\n}\n";
    /// let program: Program = text.parse().unwrap();
    /// program.verify().unwrap();
    /// assert_eq!(program.to_string(), text);
    /// let error = text.replace("neg a", "neg z").parse::<Program>().unwrap_err();
    /// assert!(error.message.starts_with("line 2, column 23: the variable `z` is not defined"));
    /// ```
    fn from_str(text: &str) -> Parsed<Program> {
        let read = |c: &mut TextCursor| {
            c.comments()?;
            c.keyword("program")?;
            let program = program(c)?;
            c.comments()?;
            Ok(program)
        };
        TextCursor::whole(text, read).map_err(|error| {
            let before = text.get(..error.position).unwrap_or(text);
            let line = before.matches('\n').count() + 1;
            let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
            let message = format!("line {line}, column {column}: {}", error.message);
            ParseOpError { message, ..error }
        })
    }
}

/// Variables in the order of their definition: names are numbers, but a text may skip numbers.
#[derive(Default)]
struct VariableNames {
    /// The order in which each name was defined.
    order: HashMap<u32, u32>,
    /// Name and spec, in that order.
    defined: Vec<(u32, Spec)>,
}

impl VariableNames {
    /// A new variable; an error if there is one of this name.
    fn define(&mut self, NamedSpec { var, spec, position }: NamedSpec) -> Parsed<Var> {
        if self.order.insert(var.0, self.defined.len() as u32).is_some() {
            let message = format!("the variable `{var}` is defined twice");
            return Err(ParseOpError { message, position });
        }
        self.defined.push((var.0, spec));
        Ok(var)
    }

    /// A variable that is defined.
    fn read(&self, c: &mut TextCursor) -> Parsed<Var> {
        c.read(|word| {
            let var = variable(word)?;
            match self.order.contains_key(&var.0) {
                true => Ok(var),
                false => Err(format!("the variable `{word}` is not defined")),
            }
        })
    }

    /// The program with its names unchanged, if no number is skipped, otherwise numbered in order.
    fn finish(self, mut program: Program) -> Program {
        let VariableNames { order, defined } = self;
        program.specs = defined.iter().map(|(_, spec)| spec.clone()).collect();
        if defined.iter().all(|&(name, _)| (name as usize) < defined.len()) {
            defined.into_iter().for_each(|(name, spec)| program.specs[name as usize] = spec);
            return program;
        }
        let rename = |v: &mut Var| v.0 = order.get(&v.0).copied().unwrap_or(v.0);
        program.inputs.iter_mut().chain(&mut program.outputs).for_each(rename);
        for e in &mut program.equations {
            e.inputs.iter_mut().chain(&mut e.outputs).for_each(rename);
        }
        program
    }
}

/// A name and its spec.
struct NamedSpec {
    var: Var,
    spec: Spec,
    /// Where the name starts.
    position: usize,
}

/// `a: f32[8]`
fn typed(c: &mut TextCursor) -> Parsed<NamedSpec> {
    let position = c.here();
    let var = c.read(variable)?;
    c.expect(':')?;
    Ok(NamedSpec { var, spec: spec(c)?, position })
}

/// The number of a name.
fn variable(word: &str) -> Result<Var, String> {
    let wrong = || format!("expected a variable, found `{word}`");
    if word.is_empty() || (word.len() > 1 && word.starts_with('a')) {
        return Err(wrong());
    }
    word.bytes()
        .try_fold(0u32, |number, c| match c {
            b'a'..=b'z' => number.checked_mul(26)?.checked_add(u32::from(c - b'a')),
            _ => None,
        })
        .map(Var)
        .ok_or_else(wrong)
}

/// `(a: f32[8]) { let b: f32[8] = neg a; return b }`
fn program(c: &mut TextCursor) -> Parsed<Program> {
    c.nested(|c| {
        let (mut names, mut program) = (VariableNames::default(), Program::default());
        c.expect('(')?;
        while !c.eat(')') {
            if !program.inputs.is_empty() {
                c.expect(',')?;
            }
            program.inputs.push(names.define(typed(c)?)?);
        }
        c.expect('{')?;
        loop {
            c.comments()?;
            let last = c.read(|word| match word {
                "let" => Ok(false),
                "return" => Ok(true),
                _ => Err(format!("expected `let` or `return`, found `{word}`")),
            })?;
            if last {
                break;
            }
            program.equations.push(equation(c, &mut names)?);
        }
        results(c, &names, &mut program)?;
        Ok(names.finish(program))
    })
}

/// `b: f32[8] = neg a  // src/main.rs:12:9`, after `let`. A line ends it, or a `;`, a comment or a
/// `}`.
fn equation(c: &mut TextCursor, names: &mut VariableNames) -> Parsed<Equation> {
    // Names before the op is read, but not yet defined: an equation cannot read its own results.
    let mut made = Vec::new();
    while !c.eat('=') {
        if !made.is_empty() {
            c.expect(',')?;
        }
        made.push(typed(c)?);
    }
    let op = op(c)?;
    let mut inputs = Vars::new();
    while c.word_on_this_line() {
        inputs.push(names.read(c)?);
    }
    let mut at = None;
    if !c.eat_on_this_line(';') && !c.at_end_of_statement() {
        return Err(c.error("expected an operand or the end of the equation"));
    }
    while let Some(comment) = c.comment_on_this_line()? {
        at = at.or(read_line(comment));
        c.eat_on_this_line(';');
    }
    let outputs = made.into_iter().map(|name| names.define(name)).collect::<Parsed<Vars>>()?;
    Ok(Equation { op, inputs, outputs, at })
}

/// `b, c into a }`, after `return`.
fn results(c: &mut TextCursor, names: &VariableNames, program: &mut Program) -> Parsed<()> {
    loop {
        c.comments()?;
        if c.eat('}') {
            return Ok(());
        }
        if !program.outputs.is_empty() {
            c.expect(',')?;
        }
        program.outputs.push(names.read(c)?);
        while c.peek_word() == "into" {
            c.keyword("into")?;
            let here = c.here();
            let var = names.read(c)?;
            let Some(input) = program.inputs.iter().position(|&v| v == var) else {
                let message = format!("`{var}` is not an input, so nothing can replace it");
                return Err(ParseOpError { message, position: here });
            };
            program.updates.push((program.outputs.len() - 1, input));
        }
    }
}

/// Reads the attributes of `cond`, `while` or `scan`.
pub(super) fn flow(c: &mut TextCursor, name: &str) -> Parsed<Flow> {
    if name == "cond" {
        let yes = c.field("yes", program)?;
        c.expect(',')?;
        return Ok(Flow::Cond { yes, no: c.field("no", program)? });
    }
    if name == "while" {
        let shared = c.field("shared", index)?;
        c.expect(',')?;
        let test = c.field("test", program)?;
        c.expect(',')?;
        return Ok(Flow::While { test, body: c.field("body", program)?, shared });
    }
    let length = c.field("length", index)?;
    c.expect(',')?;
    let reverse = flag(c, "reverse")?;
    c.expect(',')?;
    let shared = c.field("shared", index)?;
    c.expect(',')?;
    let carry = c.field("carry", index)?;
    c.expect(',')?;
    let kept = c.field("kept", index)?;
    c.expect(',')?;
    Ok(Flow::Scan(Scan { body: c.field("body", program)?, length, reverse, shared, carry, kept }))
}
