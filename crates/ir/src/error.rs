//! The error type: what went wrong, in which op, on which operands, at which line of the user's
//! program, and how to fix it.

use crate::{Line, Spec};
use std::borrow::Cow;
use std::fmt::{self, Write as _};

/// The result of anything that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// The kind of error, for programs that handle it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Incompatible shapes.
    Shape,
    /// An element type that the op does not support.
    DType,
    /// Operands on different devices, or a device that is not available.
    Device,
    /// An axis, index or argument outside its range.
    Argument,
    /// A gradient that cannot be computed: no graph, a freed graph, a missing cotangent.
    Gradient,
    /// A value that backward needs was overwritten, or an in-place write was rejected.
    InPlace,
    /// NaN or infinity where anomaly mode was on.
    Anomaly,
    /// A gradient that differs from the numeric one.
    Check,
    /// Memory could not be allocated.
    Memory,
    /// Workers of a group called different collectives, a worker has exited, or time ran out.
    Workers,
    /// Something that cannot be traced (a value read while tracing, a tensor that left its trace),
    /// or an invalid program.
    Program,
}

/// An error with a message.
///
/// ```text
/// matmul: inner dimensions differ: f32[32,784] · f32[512,10] (784 ≠ 512)
///   at examples/mnist.rs:41:20
/// ```
#[derive(Clone)]
pub struct Error(Box<ErrorInner>);

#[derive(Clone)]
struct ErrorInner {
    kind: ErrorKind,
    op: Cow<'static, str>,
    message: String,
    operands: Vec<Spec>,
    location: Option<Line>,
    details: Vec<String>,
    hint: Option<String>,
    cause: Option<Error>,
}

impl Error {
    /// An error of `op`; the message says what is wrong, operands and location are added by
    /// [`Error::on`] and [`Error::at`].
    ///
    /// ```
    /// # use pullback_ir::{Error, ErrorKind};
    /// let error = Error::new(ErrorKind::Memory, "load", "the file is larger than the memory");
    /// assert_eq!(error.to_string(), "load: the file is larger than the memory");
    /// ```
    pub fn new(
        kind: ErrorKind,
        op: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Error {
        Error(Box::new(ErrorInner {
            kind,
            op: op.into(),
            message: message.into(),
            operands: Vec::new(),
            location: None,
            details: Vec::new(),
            hint: None,
            cause: None,
        }))
    }

    /// An error of incompatible shapes.
    ///
    /// ```
    /// # use pullback_ir::{Error, ErrorKind};
    /// let error = Error::shape("halves", "the last axis is odd");
    /// assert_eq!(error.kind(), ErrorKind::Shape);
    /// assert_eq!(error.to_string(), "halves: the last axis is odd");
    /// ```
    pub fn shape(op: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Shape, op, message)
    }

    /// An error of an element type that the op does not support.
    ///
    /// ```
    /// # use pullback_ir::{Error, ErrorKind};
    /// let error = Error::dtype("halves", "only floats");
    /// assert_eq!(error.kind(), ErrorKind::DType);
    /// assert_eq!(error.to_string(), "halves: only floats");
    /// ```
    pub fn dtype(op: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::DType, op, message)
    }

    /// An error of an argument outside its range.
    ///
    /// ```
    /// # use pullback_ir::{Error, ErrorKind};
    /// let error = Error::argument("halves", "no axis 3");
    /// assert_eq!(error.kind(), ErrorKind::Argument);
    /// assert_eq!(error.to_string(), "halves: no axis 3");
    /// ```
    pub fn argument(op: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Argument, op, message)
    }

    /// An error of a gradient that cannot be computed.
    ///
    /// ```
    /// # use pullback_ir::{Error, ErrorKind};
    /// let error = Error::gradient("halves", "no graph");
    /// assert_eq!(error.kind(), ErrorKind::Gradient);
    /// assert_eq!(error.to_string(), "halves: no graph");
    /// ```
    pub fn gradient(op: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Gradient, op, message)
    }

    /// Names the operands, unless some are named already.
    ///
    /// ```
    /// # use pullback_ir::{DType, Error, Spec};
    /// let spec = Spec::cpu(DType::F32, [2, 3]);
    /// let error = Error::shape("halves", "the last axis is odd").on([&spec]);
    /// assert_eq!(error.operands(), [spec]);
    /// assert!(error.to_string().contains("f32[2,3]"));
    /// ```
    pub fn on<'a>(mut self, operands: impl IntoIterator<Item = &'a Spec>) -> Error {
        if self.0.operands.is_empty() {
            self.0.operands = operands.into_iter().cloned().collect();
        }
        self
    }

    /// Names the line of the user's program, unless one is named already.
    ///
    /// ```
    /// # use pullback_ir::{Error, Line};
    /// let error = Error::shape("halves", "odd length").at(Line::named("model.rs", 12, 9));
    /// assert!(error.to_string().ends_with("at model.rs:12:9"));
    /// ```
    pub fn at(mut self, place: impl Into<Line>) -> Error {
        self.0.location.get_or_insert(place.into());
        self
    }

    /// Adds a line below the message.
    ///
    /// ```
    /// # use pullback_ir::Error;
    /// let error = Error::shape("halves", "the last axis is odd").detail("in layer 3");
    /// assert!(error.to_string().contains("\n  in layer 3"));
    /// ```
    pub fn detail(mut self, line: impl Into<String>) -> Error {
        self.0.details.push(line.into());
        self
    }

    /// Adds a hint on how to fix it.
    ///
    /// ```
    /// # use pullback_ir::Error;
    /// let error = Error::shape("halves", "the last axis is odd").hint("pad it by one");
    /// assert!(error.to_string().contains("hint: pad it by one"));
    /// ```
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.0.hint = Some(hint.into());
        self
    }

    /// Adds the error that caused it.
    ///
    /// ```
    /// # use pullback_ir::Error;
    /// let cause = Error::argument("narrow", "no axis 3");
    /// let error = Error::shape("halves", "cannot be split").because(cause);
    /// assert!(error.to_string().contains("no axis 3"));
    /// ```
    pub fn because(mut self, cause: Error) -> Error {
        self.0.cause = Some(cause);
        self
    }

    /// The kind of error.
    ///
    /// ```
    /// # use pullback_ir::{Error, ErrorKind};
    /// assert_eq!(Error::shape("halves", "the last axis is odd").kind(), ErrorKind::Shape);
    /// ```
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The op that failed.
    ///
    /// ```
    /// # use pullback_ir::Error;
    /// assert_eq!(Error::shape("halves", "the last axis is odd").op(), "halves");
    /// ```
    pub fn op(&self) -> &str {
        &self.0.op
    }

    /// The message alone, without op, operands and line.
    ///
    /// ```
    /// # use pullback_ir::Error;
    /// let error = Error::shape("halves", "the last axis is odd").hint("pad it by one");
    /// assert_eq!(error.message(), "the last axis is odd");
    /// ```
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The operands it failed on.
    ///
    /// ```
    /// # use pullback_ir::{DType, Error, Spec};
    /// let spec = Spec::cpu(DType::F32, [2, 3]);
    /// let error = Error::shape("halves", "the last axis is odd").on([&spec]);
    /// assert_eq!(error.operands()[0].shape[..], [2, 3]);
    /// ```
    pub fn operands(&self) -> &[Spec] {
        &self.0.operands
    }

    /// The line of the user's program, if it is known.
    ///
    /// ```
    /// # use pullback_ir::{Error, Line};
    /// let error = Error::shape("halves", "the last axis is odd");
    /// assert!(error.location().is_none());
    /// assert_eq!(error.at(Line::caller()).location().unwrap().line(), line!());
    /// ```
    pub fn location(&self) -> Option<Line> {
        self.0.location
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let e = &*self.0;
        // A message that names its op itself ("backward of `square` …") is given without one.
        if !e.op.is_empty() {
            write!(f, "{}: ", e.op)?;
        }
        f.write_str(&e.message)?;
        // Messages that already contain the operands are not followed by a second list.
        let mut list = String::new();
        for spec in &e.operands {
            let text = spec.to_string();
            if !e.message.contains(&text) {
                write!(list, "{}{text}", if list.is_empty() { "" } else { ", " })?;
            }
        }
        if !list.is_empty() {
            write!(f, "\n  on {list}")?;
        }
        for line in &e.details {
            write!(f, "\n  {line}")?;
        }
        if let Some(at) = e.location {
            write!(f, "\n  at {at}")?;
        }
        if let Some(hint) = &e.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        if let Some(cause) = &e.cause {
            write!(f, "\n  because {}", cause.to_string().replace('\n', "\n  "))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}
