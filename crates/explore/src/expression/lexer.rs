//! From characters to words: numbers, names, symbols.

use super::Diagnostic;
use std::ops::Range;

/// A word of an expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Token {
    /// A number.
    Number(f64),
    /// A name of a variable, function or constant.
    Name(String),
    /// An operator or a bracket.
    Symbol(&'static str),
    /// Nothing more.
    End,
}

impl Token {
    /// Its description in messages.
    pub fn described(&self) -> String {
        match self {
            Token::Number(x) => format!("the number {x}"),
            Token::Name(name) => format!("`{name}`"),
            Token::Symbol(symbol) => format!("`{symbol}`"),
            Token::End => "the end".to_string(),
        }
    }
}

/// Symbols, longer ones first, and what they denote.
#[rustfmt::skip]
const SYMBOLS: &[(&str, &str)] = &[
    ("**", "^"), ("<=", "<="), (">=", ">="), ("==", "=="), ("!=", "!="),
    ("+", "+"), ("-", "-"), ("−", "-"), ("*", "*"), ("·", "*"), ("×", "*"), ("/", "/"), ("÷", "/"), ("^", "^"), ("@", "@"),
    ("<", "<"), (">", ">"), ("≤", "<="), ("≥", ">="), ("≠", "!="),
    ("(", "("), (")", ")"), ("[", "["), ("]", "]"), (",", ","), (";", ";"), ("=", "="),
];

/// The words of a text, each with its characters; the last one is [`Token::End`].
///
/// # Errors
/// At a character that begins no word, or a number that is none.
pub fn words(source: &str) -> Result<Vec<(Token, Range<usize>)>, Diagnostic> {
    let chars: Vec<char> = source.chars().collect();
    let mut out = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let c = chars[at];
        let start = at;
        if c.is_whitespace() {
            at += 1;
            continue;
        }
        let starts_number =
            c.is_ascii_digit() || (c == '.' && chars.get(at + 1).is_some_and(char::is_ascii_digit));
        let token = if starts_number {
            at = end_of_number(&chars, at);
            let text: String = chars[start..at].iter().collect();
            let value: f64 = text.parse().map_err(|_| {
                Diagnostic::new(source, start..at, format!("`{text}` is not a number"))
            })?;
            if value.is_infinite() {
                let message = format!("`{text}` is too large for f64; infinity is `inf`");
                return Err(Diagnostic::new(source, start..at, message));
            }
            Token::Number(value)
        } else if c.is_alphabetic() || c == '_' {
            let rest = chars[at..].iter().take_while(|c| c.is_alphanumeric() || **c == '_');
            let name: String = rest.collect();
            at += name.chars().count();
            Token::Name(name)
        } else {
            let begins = |symbol: &str| {
                symbol.chars().eq(chars[at..].iter().copied().take(symbol.chars().count()))
            };
            let Some((written, symbol)) = SYMBOLS.iter().find(|(written, _)| begins(written))
            else {
                let message = format!("unexpected character `{}`", c.escape_debug());
                return Err(Diagnostic::new(source, at..at + 1, message));
            };
            at += written.chars().count();
            Token::Symbol(symbol)
        };
        out.push((token, start..at));
    }
    out.push((Token::End, chars.len()..chars.len()));
    Ok(out)
}

/// Digits, a point, digits, and an exponent if it has digits.
fn end_of_number(chars: &[char], mut at: usize) -> usize {
    let digits = |mut at: usize| {
        while chars.get(at).is_some_and(char::is_ascii_digit) {
            at += 1;
        }
        at
    };
    at = digits(at);
    if chars.get(at) == Some(&'.') {
        at = digits(at + 1);
    }
    if matches!(chars.get(at), Some('e' | 'E')) {
        let sign = usize::from(matches!(chars.get(at + 1), Some('+' | '-')));
        if chars.get(at + 1 + sign).is_some_and(char::is_ascii_digit) {
            at = digits(at + 1 + sign);
        }
    }
    at
}
