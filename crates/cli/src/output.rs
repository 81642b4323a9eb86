//! Where results go: standard output, in colour on terminals only.

use clap::ValueEnum;
use std::io::{self, BufWriter, IsTerminal, Write};

/// When to use colours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ColourChoice {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl ColourChoice {
    /// Whether a stream gets colours.
    pub fn on(self, stream: &impl IsTerminal) -> bool {
        match self {
            ColourChoice::Always => true,
            ColourChoice::Never => false,
            ColourChoice::Auto => {
                let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
                let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
                stream.is_terminal() && !refused && !dumb
            }
        }
    }
}

/// Standard output.
pub struct StandardOutput {
    stream: Box<dyn Write>,
    coloured: bool,
}

impl StandardOutput {
    /// Standard output with or without colours.
    pub fn new(colour: ColourChoice) -> StandardOutput {
        let stdout = io::stdout();
        let coloured = colour.on(&stdout);
        StandardOutput { stream: Box::new(BufWriter::new(stdout.lock())), coloured }
    }

    /// Prints nothing from now on, and leaves standard output to others.
    pub fn silence(&mut self) {
        self.stream = Box::new(io::sink());
    }

    /// A line.
    ///
    /// # Errors
    /// If the output is closed, or the disk is full.
    pub fn line(&mut self, text: impl AsRef<str>) -> io::Result<()> {
        writeln!(self.stream, "{}", text.as_ref())
    }

    /// A heading.
    ///
    /// # Errors
    /// As [`StandardOutput::line`].
    pub fn heading(&mut self, text: &str) -> io::Result<()> {
        let text = self.bold(text);
        self.line(text)
    }

    /// What was written so far is shown.
    ///
    /// # Errors
    /// As [`StandardOutput::line`].
    pub fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }

    /// Bold on terminals.
    pub fn bold(&self, text: &str) -> String {
        self.painted("1", text)
    }

    /// Faint on terminals.
    pub fn faint(&self, text: &str) -> String {
        self.painted("2", text)
    }

    /// Green on terminals.
    pub fn good(&self, text: &str) -> String {
        self.painted("32", text)
    }

    /// Red on terminals.
    pub fn bad(&self, text: &str) -> String {
        self.painted("31", text)
    }

    fn painted(&self, code: &str, text: &str) -> String {
        match self.coloured {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_string(),
        }
    }
}

/// Rows as aligned columns, two blanks apart. Numbers (columns that `right` names) end at the same
/// place. Letters with marks above count once.
pub fn columns(rows: &[Vec<String>], right: &[usize]) -> Vec<String> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |text: &str| text.chars().filter(|c| !('\u{300}'..'\u{370}').contains(c)).count();
    let widths: Vec<usize> = (0..count)
        .map(|c| {
            rows.iter().filter_map(|row| row.get(c)).map(|cell| width(cell)).max().unwrap_or(0)
        })
        .collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().enumerate().map(|(c, cell)| {
            let space = " ".repeat(widths[c] - width(cell));
            if right.contains(&c) { format!("{space}{cell}") } else { format!("{cell}{space}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    rows.iter().map(line).collect()
}
