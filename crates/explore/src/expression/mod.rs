//! Expressions as people type them: `x*y + sin(x*y)`.
//!
//! A text goes through `lexer` (words) and `parser` (nodes) to `graph`: a list of steps on tensors.
//! Names of functions come from `functions`. Whatever is wrong is a [`Diagnostic`] that points at
//! the character.

mod diagnostic;
pub mod functions;
mod graph;
mod lexer;
mod parser;

pub use diagnostic::{Diagnostic, did_you_mean, near};
pub use graph::{ExpressionLimits, Graph, GraphStep, ValueRef, assignment, constant_value};
pub use parser::{Definition, ParsedExpression, parse};

/// Numbers with names.
#[rustfmt::skip]
const CONSTANTS: &[(&str, f64)] = &[
    ("pi", std::f64::consts::PI), ("π", std::f64::consts::PI), ("e", std::f64::consts::E), ("inf", f64::INFINITY), ("nan", f64::NAN),
];

/// The number of this name.
pub fn constant(name: &str) -> Option<f64> {
    CONSTANTS.iter().find(|row| row.0 == name).map(|row| row.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pullback::Tensor;

    /// Whatever is typed, the result is an expression, or an error whose caret is in the text (or
    /// at its end).
    #[test]
    fn no_text_is_too_strange() {
        const PIECES: [&str; 48] = [
            "x", "y", "1", "2.5", ".5", "1e3", "1e", "(", ")", "[", "]", ",", ";", "=", "+", "-",
            "*", "/", "^", "**", "@", "<", ">=", "==", "!=", "!", "sin", "sin(", "sum(",
            "softmax(", "where(", "clamp(", "pi", "e", "nan", " ", "\t", "·", "−", "π", "é", "∂",
            "#", "\"", "x[", "a=", "..", "\u{304}",
        ];
        let mut understood = 0;
        for text in crate::random_text::texts(&PIECES, 12, 20_000) {
            let inputs = vec![
                ("x".to_string(), Tensor::from(0.5)),
                ("y".to_string(), Tensor::from([1.0, 2.0])),
            ];
            match parse(&text).and_then(|parsed| Graph::new(parsed, inputs)) {
                Ok(_) => understood += 1,
                Err(diagnostic) => {
                    assert!(diagnostic.span.start <= diagnostic.span.end, "{text:?}");
                    assert!(diagnostic.span.end <= text.chars().count(), "{text:?}");
                    assert!(!diagnostic.message.is_empty());
                }
            }
            let _ = assignment(&text);
        }
        assert!(understood > 200, "only {understood} made sense");
    }
}
