//! How a command fails: a message and an exit code.

use pullback_explore::expression::Diagnostic;
use pullback_explore::{ExplorerError, ExplorerErrorKind};
use std::fmt;
use std::io;

/// Why a command failed.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// The message, perhaps with lines of detail below it; empty if it was printed already.
    pub message: String,
}

/// The command failed.
pub const FAILED: u8 = 1;
/// The command line is invalid.
pub const USAGE: u8 = 2;
/// The user stopped it.
pub const INTERRUPTED: u8 = 130;

/// The result of a command.
pub type CliResult<T = ()> = Result<T, Failure>;

impl Failure {
    /// The command failed.
    pub fn failed(message: impl Into<String>) -> Failure {
        Failure { code: FAILED, message: message.into() }
    }

    /// The command line is invalid.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { code: USAGE, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Diagnostic> for Failure {
    fn from(diagnostic: Diagnostic) -> Failure {
        Failure::usage(diagnostic.to_string())
    }
}

impl From<pullback::Error> for Failure {
    fn from(error: pullback::Error) -> Failure {
        ExplorerError::from(error).into()
    }
}

impl From<ExplorerError> for Failure {
    fn from(problem: ExplorerError) -> Failure {
        match problem.kind {
            ExplorerErrorKind::Expression | ExplorerErrorKind::Limit => {
                Failure::usage(problem.to_string())
            }
            _ => Failure::failed(problem.to_string()),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        // A closed pipe (`pullback ops | head`) is not a failure.
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure { code: 0, message: String::new() },
            _ => Failure::failed(error.to_string()),
        }
    }
}
