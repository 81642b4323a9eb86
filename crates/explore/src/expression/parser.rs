//! From words to a list of nodes: each refers to earlier ones by number, so nothing here or later
//! is as deep as the expression is long.
//!
//! ```text
//! program    = { name "=" comparison ";" } [ name "=" ] comparison [ ";" ]
//! comparison = sum [ ("<" | "<=" | ">" | ">=" | "==" | "!=") sum ]
//! sum        = product { ("+" | "-") product }
//! product    = signed { ("*" | "/" | "@") signed }
//! signed     = "-" signed | "+" signed | power
//! power      = postfix [ "^" signed ]
//! postfix    = atom { "[" comparison { "," comparison } "]" }
//! atom       = number | name | name "(" [ comparison { "," comparison } ] ")" | "(" comparison ")" | "[" comparison { "," comparison } "]"
//! ```

use super::functions::{Function, find, operator};
use super::lexer::{Token, words};
use super::{Diagnostic, diagnostic};
use std::ops::Range;

/// The number of a node.
pub type Id = usize;

/// A piece of an expression.
#[derive(Debug, Clone)]
pub enum ExpressionNode {
    /// A number.
    Number(f64),
    /// A variable or constant.
    Name(String),
    /// A function or operator, applied.
    Apply(&'static Function, Vec<Id>),
    /// `[a, b, c]`.
    List(Vec<Id>),
    /// `x[i, j]`.
    Index(Id, Vec<Id>),
}

/// A parsed expression.
#[derive(Debug, Clone)]
pub struct ParsedExpression {
    /// The text it came from.
    pub source: String,
    /// Its nodes, operands first, with the characters to point at.
    pub nodes: Vec<(ExpressionNode, Range<usize>)>,
    /// The whole of it.
    pub result: Id,
    /// The parts that have names, in order.
    pub definitions: Vec<Definition>,
}

/// `a = x*y`.
#[derive(Debug, Clone)]
pub struct Definition {
    /// The name.
    pub name: String,
    /// What it names.
    pub value: Id,
    /// The nodes that were written for it.
    pub nodes: Range<Id>,
}

/// Brackets and signs inside each other, at most: the parser calls itself for each.
const DEEPEST: usize = 200;

/// Parses an expression, perhaps after definitions: `a = x*y; a + sin(a)`.
///
/// # Errors
/// At the first unexpected token, with what was expected there.
pub fn parse(source: &str) -> Result<ParsedExpression, Diagnostic> {
    let mut parser = Parser {
        source,
        words: words(source)?,
        at: 0,
        depth: 0,
        nodes: Vec::new(),
        defined: Vec::new(),
    };
    let result = loop {
        if let (Token::Name(name), Token::Symbol("=")) = (parser.peek(0), parser.peek(1)) {
            let (name, span) = (name.clone(), parser.span());
            parser.check_new(&name, span)?;
            parser.at += 2;
            let first = parser.nodes.len();
            let value = parser.comparison()?;
            let ends = parser.accept(";");
            let nodes = first..parser.nodes.len();
            parser.defined.push(Definition { name, value, nodes });
            // The last may have a name too: it is the result.
            match parser.peek(0) {
                Token::End => break value,
                _ if ends => continue,
                _ => return Err(parser.unexpected("`;` after a definition")),
            }
        }
        let value = parser.comparison()?;
        parser.accept(";");
        match parser.peek(0) {
            Token::End => break value,
            _ => return Err(parser.unexpected("an operator or the end")),
        }
    };
    let Parser { nodes, defined: definitions, .. } = parser;
    Ok(ParsedExpression { source: source.to_string(), nodes, result, definitions })
}

struct Parser<'a> {
    source: &'a str,
    words: Vec<(Token, Range<usize>)>,
    at: usize,
    depth: usize,
    nodes: Vec<(ExpressionNode, Range<usize>)>,
    /// Names that were given to parts.
    defined: Vec<Definition>,
}

type Parse<T> = Result<T, Diagnostic>;

impl Parser<'_> {
    fn peek(&self, ahead: usize) -> &Token {
        let last = self.words.len() - 1;
        &self.words[(self.at + ahead).min(last)].0
    }

    fn span(&self) -> Range<usize> {
        self.words[self.at.min(self.words.len() - 1)].1.clone()
    }

    fn error_at<T>(&self, span: Range<usize>, message: impl Into<String>) -> Parse<T> {
        Err(Diagnostic::new(self.source, span, message))
    }

    fn unexpected(&self, wanted: &str) -> Diagnostic {
        let message = format!("expected {wanted}, found {}", self.peek(0).described());
        Diagnostic::new(self.source, self.span(), message)
    }

    /// Takes one of these symbols, if it is next.
    fn accept_one(&mut self, symbols: &[&'static str]) -> Option<(&'static str, Range<usize>)> {
        let Token::Symbol(next) = *self.peek(0) else { return None };
        let span = self.span();
        symbols.contains(&next).then(|| {
            self.at += 1;
            (next, span)
        })
    }

    fn accept(&mut self, symbol: &'static str) -> bool {
        self.accept_one(&[symbol]).is_some()
    }

    fn expect(&mut self, symbol: &'static str, place: &str) -> Parse<()> {
        match self.accept(symbol) {
            true => Ok(()),
            false => Err(self.unexpected(&format!("`{symbol}` {place}"))),
        }
    }

    fn push(&mut self, node: ExpressionNode, span: Range<usize>) -> Id {
        self.nodes.push((node, span));
        self.nodes.len() - 1
    }

    fn apply(&mut self, symbol: &str, operands: Vec<Id>, span: Range<usize>) -> Parse<Id> {
        match operator(symbol, operands.len()) {
            Some(function) => Ok(self.push(ExpressionNode::Apply(function, operands), span)),
            None => self.error_at(span, format!("there is no operator `{symbol}`")),
        }
    }

    fn check_new(&self, name: &str, span: Range<usize>) -> Parse<()> {
        if super::constant(name).is_some() {
            return self.error_at(span, format!("`{name}` is a constant and cannot be defined"));
        }
        match self.defined.iter().any(|known| known.name == name) {
            true => self.error_at(span, format!("`{name}` is defined twice")),
            false => Ok(()),
        }
    }

    /// Operators of one strength, from left to right.
    fn chain(
        &mut self,
        symbols: &[&'static str],
        operand: fn(&mut Self) -> Parse<Id>,
    ) -> Parse<Id> {
        let mut left = operand(self)?;
        while let Some((symbol, span)) = self.accept_one(symbols) {
            let right = operand(self)?;
            left = self.apply(symbol, vec![left, right], span)?;
        }
        Ok(left)
    }

    fn comparison(&mut self) -> Parse<Id> {
        const SYMBOLS: [&str; 6] = ["<", "<=", ">", ">=", "==", "!="];
        let left = self.sum()?;
        let Some((symbol, span)) = self.accept_one(&SYMBOLS) else { return Ok(left) };
        let right = self.sum()?;
        if self.accept_one(&SYMBOLS).is_some() {
            self.at -= 1;
            return self.error_at(self.span(), "comparisons cannot be chained; use parentheses");
        }
        self.apply(symbol, vec![left, right], span)
    }

    fn sum(&mut self) -> Parse<Id> {
        self.chain(&["+", "-"], Self::product)
    }

    fn product(&mut self) -> Parse<Id> {
        self.chain(&["*", "/", "@"], Self::signed)
    }

    fn signed(&mut self) -> Parse<Id> {
        self.deeper(|parser| match parser.accept_one(&["-", "+"]) {
            Some(("-", span)) => {
                let operand = parser.signed()?;
                // A negative number is a number, not an operation.
                if let (ExpressionNode::Number(x), number) = &parser.nodes[operand] {
                    let (value, number) = (-x, span.start..number.end);
                    return Ok(parser.push(ExpressionNode::Number(value), number));
                }
                parser.apply("-", vec![operand], span)
            }
            Some(_) => parser.signed(),
            None => parser.power(),
        })
    }

    fn power(&mut self) -> Parse<Id> {
        let base = self.postfix()?;
        match self.accept_one(&["^"]) {
            Some((_, span)) => {
                let exponent = self.signed()?;
                self.apply("^", vec![base, exponent], span)
            }
            None => Ok(base),
        }
    }

    fn postfix(&mut self) -> Parse<Id> {
        let mut value = self.atom()?;
        while let Some((_, span)) = self.accept_one(&["["]) {
            let indices = self.items("]", "an index")?;
            let span = span.start..self.words[self.at - 1].1.end;
            value = self.push(ExpressionNode::Index(value, indices), span);
        }
        Ok(value)
    }

    fn atom(&mut self) -> Parse<Id> {
        let span = self.span();
        match self.peek(0).clone() {
            Token::Number(value) => {
                self.at += 1;
                Ok(self.push(ExpressionNode::Number(value), span))
            }
            Token::Name(name) if *self.peek(1) == Token::Symbol("(") => {
                let Some(function) = find(&name) else {
                    let names = super::functions::names();
                    let near = diagnostic::near(&name, names.iter().copied());
                    let near = diagnostic::did_you_mean(&near);
                    return self.error_at(span, format!("there is no function `{name}`{near}"));
                };
                self.at += 2;
                let operands = match self.accept(")") {
                    true => Vec::new(),
                    false => self.items(")", "an argument")?,
                };
                if let Err(wanted) = function.accepts(operands.len()) {
                    let given = operands.len();
                    return self.error_at(span, format!("`{name}` takes {wanted}, not {given}"));
                }
                Ok(self.push(ExpressionNode::Apply(function, operands), span))
            }
            Token::Name(name) => {
                self.at += 1;
                match self.defined.iter().find(|known| known.name == name) {
                    Some(known) => Ok(known.value),
                    None => Ok(self.push(ExpressionNode::Name(name), span)),
                }
            }
            Token::Symbol("(") => {
                self.at += 1;
                let value = self.comparison()?;
                self.expect(")", "to close the parenthesis")?;
                Ok(value)
            }
            Token::Symbol("[") => {
                self.at += 1;
                let items = self.items("]", "an element")?;
                let span = span.start..self.words[self.at - 1].1.end;
                Ok(self.push(ExpressionNode::List(items), span))
            }
            Token::Symbol(_) | Token::End => Err(self.unexpected("a number, a name, `(` or `[`")),
        }
    }

    /// Items between commas, up to a closing bracket, which is taken.
    fn items(&mut self, close: &'static str, what: &str) -> Parse<Vec<Id>> {
        self.deeper(|parser| {
            let mut items = vec![parser.comparison()?];
            while parser.accept(",") {
                items.push(parser.comparison()?);
            }
            match parser.accept(close) {
                true => Ok(items),
                false => Err(parser.unexpected(&format!("`,` or `{close}` after {what}"))),
            }
        })
    }

    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parse<T>) -> Parse<T> {
        if self.depth == DEEPEST {
            return self.error_at(
                self.span(),
                format!("more than {DEEPEST} brackets or signs inside each other"),
            );
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }
}

impl ParsedExpression {
    /// The names of variables and constants that occur.
    pub fn names(&self) -> Vec<&str> {
        let names = self.nodes.iter().filter_map(|(node, _)| match node {
            ExpressionNode::Name(name) => Some(name.as_str()),
            _ => None,
        });
        names.collect()
    }
}
