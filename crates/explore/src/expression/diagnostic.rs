//! Errors of an expression, with a caret under the character.

use std::fmt;
use std::ops::Range;

/// An error at a place in a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnostic {
    /// The whole text.
    pub source: String,
    /// The range of characters to mark. May be empty, and may be at the end.
    pub span: Range<usize>,
    /// The message.
    pub message: String,
}

impl Diagnostic {
    /// A diagnostic about these characters.
    pub fn new(source: &str, span: Range<usize>, message: impl Into<String>) -> Diagnostic {
        Diagnostic { source: source.to_string(), span, message: message.into() }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One character of the text stays one column, so that the caret is in the right column.
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        let text: String = self.source.chars().map(plain).collect();
        let carets = "^".repeat(self.span.len().max(1));
        write!(f, "{}\n  {text}\n  {}{carets}", self.message, " ".repeat(self.span.start))
    }
}

/// Names that look like `wanted`, the nearest first: at most two letters wrong, or a beginning in
/// common.
pub fn near<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted = wanted.to_lowercase();
    let mut found: Vec<((usize, usize), &str)> = names
        .filter_map(|name| {
            let distance = distance(&wanted, &name.to_lowercase());
            let allowed = 1 + wanted.chars().count() / 4;
            let shared = wanted.chars().zip(name.chars()).take_while(|(a, b)| a == b).count();
            let begins = wanted.len() >= 3 && name.starts_with(&wanted);
            // Any two short names are near each other, unless they have something in common.
            let alike = distance <= allowed && (shared > 0 || wanted.len() > 2);
            (alike || begins).then_some(((distance, usize::MAX - shared), name))
        })
        .collect();
    found.sort();
    found.dedup();
    found.into_iter().map(|(_, name)| name).take(4).collect()
}

/// `; did you mean a, b or c?`, or nothing.
pub fn did_you_mean(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => format!("; did you mean `{one}`?"),
        [most @ .., last] => {
            let most: Vec<String> = most.iter().map(|name| format!("`{name}`")).collect();
            format!("; did you mean {} or `{last}`?", most.join(", "))
        }
    }
}

/// How many letters must be put in, left out, replaced or exchanged with their neighbour to get
/// from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    // The difference in length is a lower bound; it also bounds the work for long words.
    if a.len().abs_diff(b.len()) > 8 || a.len().max(b.len()) > 64 {
        return usize::MAX;
    }
    let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            table[i][j] = match (i, j) {
                (0, _) => j,
                (_, 0) => i,
                _ => {
                    let replaced = table[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                    let mut least = replaced.min(table[i - 1][j] + 1).min(table[i][j - 1] + 1);
                    if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                        least = least.min(table[i - 2][j - 2] + 1);
                    }
                    least
                }
            };
        }
    }
    table[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found() {
        let names = || ["sin", "sinh", "asin", "cos", "softmax"].into_iter();
        assert_eq!(near("sni", names())[0], "sin");
        assert_eq!(near("soft", names()), ["softmax"]);
        assert!(near("zzz", names()).is_empty());
    }

    #[test]
    fn the_caret_stands_under_the_character() {
        let text = Diagnostic::new("x + ?", 4..5, "no").to_string();
        assert_eq!(text, "no\n  x + ?\n      ^");
    }
}
