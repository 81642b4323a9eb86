//! A position in a text, with the basic parsers.

use std::fmt;
use std::str::FromStr;

/// Why a text is not an op, a view or a spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseOpError {
    /// What was expected, or what is wrong.
    pub message: String,
    /// Where in the text, in bytes from its start.
    pub position: usize,
}

impl fmt::Display for ParseOpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.message, self.position)
    }
}

impl std::error::Error for ParseOpError {}

pub(crate) type Parsed<T> = Result<T, ParseOpError>;

/// A text read from left to right. Blanks between words and signs are ignored.
pub(crate) struct TextCursor<'a> {
    text: &'a str,
    position: usize,
    /// How many programs and regions are open.
    depth: usize,
}

/// Programs inside programs are read up to this depth: a text must not exhaust the stack.
const DEEPEST: usize = 64;

impl<'a> TextCursor<'a> {
    pub(crate) fn new(text: &'a str) -> TextCursor<'a> {
        TextCursor { text, position: 0, depth: 0 }
    }

    /// Reads the whole of a text.
    pub(crate) fn whole<T>(
        text: &'a str,
        read: impl FnOnce(&mut TextCursor<'a>) -> Parsed<T>,
    ) -> Parsed<T> {
        let mut cursor = TextCursor::new(text);
        let value = read(&mut cursor)?;
        cursor.skip_blanks();
        match cursor.rest() {
            "" => Ok(value),
            _ => Err(cursor.error("expected the end of the text")),
        }
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.position..).unwrap_or_default()
    }

    fn skip_blanks(&mut self) {
        let rest = self.rest();
        self.position += rest.len() - rest.trim_start().len();
    }

    /// An error here.
    pub(crate) fn error(&self, message: impl Into<String>) -> ParseOpError {
        ParseOpError { message: message.into(), position: self.position }
    }

    /// Takes `sign` if it comes next.
    pub(crate) fn eat(&mut self, sign: char) -> bool {
        self.skip_blanks();
        let found = self.rest().starts_with(sign);
        if found {
            self.position += sign.len_utf8();
        }
        found
    }

    /// Takes `sign` if it comes next, and a letter right after it.
    pub(crate) fn eat_before_word(&mut self, sign: char) -> bool {
        self.skip_blanks();
        let after = self.rest().strip_prefix(sign);
        let found = after.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic()));
        found && self.eat(sign)
    }

    /// Takes `sign`, which must come next.
    pub(crate) fn expect(&mut self, sign: char) -> Parsed<()> {
        match self.eat(sign) {
            true => Ok(()),
            false => Err(self.error(format!("expected `{sign}`"))),
        }
    }

    /// Takes the longest run of letters, digits, `_`, `.`, `+` and `-`: a name or a number.
    fn word(&mut self) -> &'a str {
        self.skip_blanks();
        let rest = self.rest();
        let part = |c: char| c.is_ascii_alphanumeric() || "_.+-".contains(c);
        let end = rest.find(|c| !part(c)).unwrap_or(rest.len());
        let (word, _) = rest.split_at(end);
        self.position += end;
        word
    }

    /// Takes a word that `read` accepts. An error points to the start of the word.
    pub(crate) fn read<T>(&mut self, read: impl FnOnce(&str) -> Result<T, String>) -> Parsed<T> {
        self.skip_blanks();
        let position = self.position;
        let word = self.word();
        read(word).map_err(|message| ParseOpError { message, position })
    }

    /// Takes a word of a type that parses; `what` says what it is.
    pub(crate) fn parse<T: FromStr>(&mut self, what: &str) -> Parsed<T> {
        self.read(|word| word.parse().map_err(|_| format!("expected {what}, found `{word}`")))
    }

    /// Takes `name=` and what `read` reads.
    pub(crate) fn field<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&mut Self) -> Parsed<T>,
    ) -> Parsed<T> {
        self.read(|word| match word == name {
            true => Ok(()),
            false => Err(format!("expected `{name}=`, found `{word}`")),
        })?;
        self.expect('=')?;
        read(self)
    }

    /// Takes `{`, what `read` reads, and `}`.
    pub(crate) fn braced<T>(&mut self, read: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        self.expect('{')?;
        let value = read(self)?;
        self.expect('}')?;
        Ok(value)
    }

    /// Takes `[`, items with `separator` between them, and `]`.
    pub(crate) fn list<T, C: FromIterator<T>>(
        &mut self,
        separator: char,
        mut item: impl FnMut(&mut Self) -> Parsed<T>,
    ) -> Parsed<C> {
        self.expect('[')?;
        let mut first = true;
        std::iter::from_fn(|| {
            if self.eat(']') {
                return None;
            }
            let start = match std::mem::take(&mut first) {
                true => Ok(()),
                false => self.expect(separator),
            };
            Some(start.and_then(|()| item(self)))
        })
        .collect()
    }

    /// The position of the next word.
    pub(crate) fn here(&mut self) -> usize {
        self.skip_blanks();
        self.position
    }

    /// The next word, without taking it.
    pub(crate) fn peek_word(&mut self) -> &'a str {
        let position = self.here();
        let word = self.word();
        self.position = position;
        word
    }

    /// Takes a word that must come next.
    pub(crate) fn keyword(&mut self, wanted: &str) -> Parsed<()> {
        self.read(|word| match word == wanted {
            true => Ok(()),
            false => Err(format!("expected `{wanted}`, found `{word}`")),
        })
    }

    /// Reads something that may be nested.
    pub(crate) fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == DEEPEST {
            return Err(self.error(format!("nested deeper than {DEEPEST}")));
        }
        self.depth += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn skip_blanks_of_line(&mut self) {
        let rest = self.rest();
        let start = rest.trim_start_matches(|c: char| c.is_whitespace() && c != '\n');
        self.position += rest.len() - start.len();
    }

    /// Whether a word comes next, before the end of the line.
    pub(crate) fn word_on_this_line(&mut self) -> bool {
        self.skip_blanks_of_line();
        self.rest().starts_with(|c: char| c.is_ascii_alphanumeric())
    }

    /// Takes `sign` if it comes next, before the end of the line.
    pub(crate) fn eat_on_this_line(&mut self, sign: char) -> bool {
        self.skip_blanks_of_line();
        self.rest().starts_with(sign) && self.eat(sign)
    }

    /// Whether nothing is left of a statement: a line ends here, a comment starts, or a brace
    /// closes.
    pub(crate) fn at_end_of_statement(&mut self) -> bool {
        self.skip_blanks_of_line();
        let rest = self.rest();
        ["\n", "//", "/*", "}"].iter().any(|end| rest.starts_with(end)) || rest.is_empty()
    }

    /// Takes a comment, `// to the end of the line` or `/* closed */`, if one comes next on this
    /// line.
    pub(crate) fn comment_on_this_line(&mut self) -> Parsed<Option<&'a str>> {
        self.skip_blanks_of_line();
        let rest = self.rest();
        if let Some(comment) = rest.strip_prefix("//") {
            let (comment, _) = comment.split_once('\n').unwrap_or((comment, ""));
            self.position += 2 + comment.len();
            return Ok(Some(comment));
        }
        let Some(comment) = rest.strip_prefix("/*") else {
            return Ok(None);
        };
        let Some((comment, _)) = comment.split_once("*/") else {
            return Err(self.error("the comment has no end"));
        };
        self.position += 4 + comment.len();
        Ok(Some(comment))
    }

    /// Takes all comments and blanks that come next.
    pub(crate) fn comments(&mut self) -> Parsed<()> {
        self.skip_blanks();
        while self.comment_on_this_line()?.is_some() {
            self.skip_blanks();
        }
        Ok(())
    }
}
