//! A line of the user's program.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::Location;
use std::ptr;
use std::sync::{Mutex, PoisonError};

/// File, line and column: where an op was written. Prints as `src/main.rs:12:9`.
///
/// A handle of 8 bytes: the data is interned for the life of the process, so lines are copied,
/// compared and hashed by address. A line may come from the Rust compiler ([`Line::caller`]), or
/// from anywhere else ([`Line::named`]): a script in another language that calls this library, or
/// the text of a recorded program.
///
/// ```
/// use pullback_ir::Line;
/// let here = Line::caller();
/// assert_eq!(here.line(), line!() - 1);
/// let there = Line::named("model.py", 12, 0);
/// assert_eq!(there.to_string(), "model.py:12");
/// assert_eq!(there, Line::named("model.py", 12, 0));
/// assert_eq!(size_of::<Option<Line>>(), 8);
/// ```
#[derive(Clone, Copy)]
pub struct Line(&'static SourceLine);

#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
struct SourceLine {
    file: &'static str,
    line: u32,
    column: u32,
}

/// Every interned line.
static LINES: Mutex<Option<HashSet<&'static SourceLine>>> = Mutex::new(None);
/// The names of files that did not come from the compiler.
static FILES: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);

/// Size of a thread's cache of Rust lines, in front of [`LINES`]; a power of two.
const CACHED_LINES: usize = 512;

thread_local! {
    /// The Rust lines that were last looked up, by the address of the compiler's `Location`.
    static CACHE: RefCell<Vec<Option<(&'static Location<'static>, Line)>>> =
        const { RefCell::new(Vec::new()) };
}

impl Line {
    /// The line that called the function, as [`Location::caller`] returns it.
    ///
    /// ```
    /// # use pullback_ir::Line;
    /// #[track_caller]
    /// fn caller() -> Line {
    ///     Line::caller()
    /// }
    /// let line = caller();
    /// assert_eq!(line.line(), line!() - 1);
    /// ```
    #[track_caller]
    #[inline]
    pub fn caller() -> Line {
        Line::from(Location::caller())
    }

    /// A line of any file, written in any language. Lines and columns count from 1; a column of 0
    /// is unknown, and is not printed.
    ///
    /// ```
    /// # use pullback_ir::Line;
    /// assert_eq!(Line::named("model.py", 12, 5).to_string(), "model.py:12:5");
    /// assert_eq!(Line::named("model.py", 12, 0).to_string(), "model.py:12");
    /// ```
    pub fn named(file: &str, line: u32, column: u32) -> Line {
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
        drop(held);
        Line::interned(SourceLine { file, line, column })
    }

    fn interned(source: SourceLine) -> Line {
        let mut held = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = held.get_or_insert_with(HashSet::new);
        if let Some(known) = lines.get(&source) {
            return Line(known);
        }
        let kept: &'static SourceLine = Box::leak(Box::new(source));
        lines.insert(kept);
        Line(kept)
    }

    /// The file, as the compiler or [`Line::named`] names it.
    ///
    /// ```
    /// # use pullback_ir::Line;
    /// assert_eq!(Line::named("model.py", 12, 5).file(), "model.py");
    /// ```
    pub fn file(self) -> &'static str {
        self.0.file
    }

    /// The line, from 1.
    ///
    /// ```
    /// # use pullback_ir::Line;
    /// assert_eq!(Line::named("model.py", 12, 5).line(), 12);
    /// ```
    pub fn line(self) -> u32 {
        self.0.line
    }

    /// The column, from 1, or 0 if unknown.
    ///
    /// ```
    /// # use pullback_ir::Line;
    /// assert_eq!(Line::named("model.py", 12, 5).column(), 5);
    /// ```
    pub fn column(self) -> u32 {
        self.0.column
    }
}

impl From<&'static Location<'static>> for Line {
    fn from(at: &'static Location<'static>) -> Line {
        // A `Location` is 24 bytes: a third of the address, folded, hashes neighbours evenly.
        let third = ptr::from_ref(at).addr() / 24;
        let slot = (third ^ (third >> 9)) & (CACHED_LINES - 1);
        CACHE.with_borrow_mut(|cache| {
            if let Some(Some((known, line))) = cache.get(slot)
                && ptr::eq(*known, at)
            {
                return *line;
            }
            let line = Line::interned(SourceLine {
                file: at.file(),
                line: at.line(),
                column: at.column(),
            });
            cache.resize(CACHED_LINES, None);
            cache[slot] = Some((at, line));
            line
        })
    }
}

impl PartialEq for Line {
    fn eq(&self, other: &Line) -> bool {
        ptr::eq(self.0, other.0)
    }
}

impl Eq for Line {}

impl Hash for Line {
    fn hash<H: Hasher>(&self, state: &mut H) {
        ptr::hash(self.0, state);
    }
}

impl PartialEq<&'static Location<'static>> for Line {
    fn eq(&self, other: &&'static Location<'static>) -> bool {
        *self == Line::from(*other)
    }
}

impl PartialOrd for Line {
    fn partial_cmp(&self, other: &Line) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// By file, line and column.
impl Ord for Line {
    fn cmp(&self, other: &Line) -> Ordering {
        self.0.cmp(other.0)
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0.file, self.0.line)?;
        match self.0.column {
            0 => Ok(()),
            column => write!(f, ":{column}"),
        }
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
