//! What is wrong with a request, a file or an expression: a kind, a sentence, and a place.

use crate::expression::Diagnostic;
use serde_json::{Value, json};
use std::fmt;
use std::ops::Range;

/// What kind of problem it is. `SCHEMA.md` lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExplorerErrorKind {
    /// An expression, or a value of a variable, is invalid.
    Expression,
    /// The request is not one of those that are answered.
    Request,
    /// There is nothing at this path.
    NotFound,
    /// The path takes another method.
    Method,
    /// The body is too long.
    Large,
    /// The body has another type.
    Type,
    /// The request comes from elsewhere.
    Refused,
    /// Something is larger than allowed.
    Limit,
    /// It took too long.
    Time,
    /// Too much is going on.
    Busy,
    /// The engine refused, with its own sentence.
    Engine,
    /// A file is invalid.
    File,
    /// A defect of this program.
    Internal,
}

impl ExplorerErrorKind {
    /// The name in answers.
    pub fn name(self) -> &'static str {
        match self {
            ExplorerErrorKind::Expression => "expression",
            ExplorerErrorKind::Request
            | ExplorerErrorKind::NotFound
            | ExplorerErrorKind::Method
            | ExplorerErrorKind::Large
            | ExplorerErrorKind::Type => "request",
            ExplorerErrorKind::Refused => "refused",
            ExplorerErrorKind::Limit => "limit",
            ExplorerErrorKind::Time => "time",
            ExplorerErrorKind::Busy => "busy",
            ExplorerErrorKind::Engine => "engine",
            ExplorerErrorKind::File => "file",
            ExplorerErrorKind::Internal => "internal",
        }
    }
}

/// A problem.
#[derive(Debug, Clone, PartialEq)]
pub struct ExplorerError {
    /// Its kind.
    pub kind: ExplorerErrorKind,
    /// The sentence.
    pub message: String,
    /// The text that it is about and the characters to mark.
    pub place: Option<(String, Range<usize>)>,
    /// The field of the request it is about.
    pub field: Option<String>,
}

/// An answer, or why there is none.
pub type Answer<T = ()> = Result<T, ExplorerError>;

impl ExplorerError {
    /// A problem of this kind.
    pub fn new(kind: ExplorerErrorKind, message: impl Into<String>) -> ExplorerError {
        ExplorerError { kind, message: message.into(), place: None, field: None }
    }

    /// The engine refused.
    pub fn engine(message: impl Into<String>) -> ExplorerError {
        ExplorerError::new(ExplorerErrorKind::Engine, message)
    }

    /// The request is invalid.
    pub fn request(message: impl Into<String>) -> ExplorerError {
        ExplorerError::new(ExplorerErrorKind::Request, message)
    }

    /// Something is too large.
    pub fn limit(message: impl Into<String>) -> ExplorerError {
        ExplorerError::new(ExplorerErrorKind::Limit, message)
    }

    /// A file is invalid.
    pub fn file(message: impl Into<String>) -> ExplorerError {
        ExplorerError::new(ExplorerErrorKind::File, message)
    }

    /// The same, about this field of the request.
    #[must_use]
    pub fn about(mut self, field: impl Into<String>) -> ExplorerError {
        self.field = Some(field.into());
        self
    }

    /// As an answer.
    pub fn to_json(&self) -> Value {
        let span = self.place.as_ref().map(|(_, span)| json!([span.start, span.end]));
        json!({ "schema": crate::SCHEMA, "error": {
            "kind": self.kind.name(), "message": self.message, "span": span,
            "text": self.place.as_ref().map(|(text, _)| text), "field": self.field,
        } })
    }
}

impl fmt::Display for ExplorerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some((text, span)) => Diagnostic::new(text, span.clone(), &self.message).fmt(f),
            None => f.write_str(&self.message),
        }
    }
}

impl From<Diagnostic> for ExplorerError {
    fn from(found: Diagnostic) -> ExplorerError {
        let place = Some((found.source, found.span));
        ExplorerError { place, ..ExplorerError::new(ExplorerErrorKind::Expression, found.message) }
    }
}

impl From<pullback::Error> for ExplorerError {
    fn from(error: pullback::Error) -> ExplorerError {
        let text = error.to_string();
        let lines: Vec<&str> = text.lines().filter(|line| !is_place(line)).collect();
        ExplorerError::engine(lines.join("\n"))
    }
}

/// Whether a line of an error is `at file.rs:12:34`: a line of this program, which is of no use to
/// its user.
fn is_place(line: &str) -> bool {
    let place = line.trim_start().strip_prefix("at ").and_then(|place| place.rsplit_once(".rs:"));
    place.is_some_and(|(_, rest)| rest.chars().all(|c| c.is_ascii_digit() || c == ':'))
}
