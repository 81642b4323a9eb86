//! A line of the user's program.

use std::collections::HashSet;
use std::fmt;
use std::panic::Location;
use std::sync::{Mutex, PoisonError};

/// File, line and column. Prints as `src/main.rs:12:9`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    file: &'static str,
    line: u32,
    column: u32,
}

impl Place {
    /// A place that was read from a text. File names are kept for the life of the process, each once.
    pub fn new(file: &str, line: u32, column: u32) -> Place {
        static FILES: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
        let mut held = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        let files = held.get_or_insert_with(HashSet::new);
        let file = match files.get(file) {
            Some(known) => known,
            None => {
                let kept: &'static str = Box::leak(file.to_owned().into_boxed_str());
                files.insert(kept);
                kept
            }
        };
        Place { file, line, column }
    }

    /// The file, as the compiler names it.
    pub fn file(&self) -> &'static str {
        self.file
    }

    /// The line, from 1.
    pub fn line(&self) -> u32 {
        self.line
    }

    /// The column, from 1.
    pub fn column(&self) -> u32 {
        self.column
    }
}

impl From<&'static Location<'static>> for Place {
    fn from(at: &'static Location<'static>) -> Place {
        Place { file: at.file(), line: at.line(), column: at.column() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}
