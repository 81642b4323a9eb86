//! A line of the user's program.

use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::Location;
use std::sync::{Mutex, PoisonError};

/// File, line and column. Prints as `src/main.rs:12:9`.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    file: &'static str,
    line: u32,
    column: u32,
    /// What the compiler knows it by, where it does not come from a text.
    location: Option<&'static Location<'static>>,
}

impl PartialEq for Place {
    fn eq(&self, other: &Place) -> bool {
        (self.file, self.line, self.column) == (other.file, other.line, other.column)
    }
}

impl Eq for Place {}

impl Hash for Place {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.file, self.line, self.column).hash(state);
    }
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
        Place { file, line, column, location: None }
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

    /// The same as the compiler knows it; none for a place that was read from a text.
    pub fn location(&self) -> Option<&'static Location<'static>> {
        self.location
    }
}

impl From<&'static Location<'static>> for Place {
    fn from(at: &'static Location<'static>) -> Place {
        Place { file: at.file(), line: at.line(), column: at.column(), location: Some(at) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}
