//! The expression that a request is about.

use super::value;
use crate::error::{Answer, ExplorerError, ExplorerErrorKind};
use crate::expression::{ExpressionLimits, Graph, constant, functions, parse};
use pullback::Tensor;
use serde_json::{Map, Value};
use std::time::{Duration, Instant};

/// Limits on what is computed for a request.
pub mod limits {
    /// Characters of an expression.
    pub const CHARACTERS: usize = 16_384;
    /// Elements of a value.
    pub const ELEMENTS: usize = 4096;
    /// Steps of an expression.
    pub const STEPS: usize = 1000;
    /// Variables of an expression.
    pub const VARIABLES: usize = 64;
    /// Seconds for building an expression.
    pub const SECONDS: u64 = 5;
}

/// An expression with values of its variables.
pub struct EvaluatedExpression {
    /// What is computed.
    pub graph: Graph,
    /// Variables that got a value because none was given.
    pub defaulted: Vec<String>,
}

/// A field of a request that must be an object.
///
/// # Errors
/// If it is something else.
pub fn object<'a>(body: &'a Value, name: &str) -> Answer<Option<&'a Map<String, Value>>> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(map)) => Ok(Some(map)),
        Some(_) => Err(ExplorerError::request(format!("`{name}` must be an object")).about(name)),
    }
}

impl EvaluatedExpression {
    /// The subject of a request.
    ///
    /// # Errors
    /// If there is no expression, it is invalid, or too large.
    pub fn of(body: &Value) -> Answer<EvaluatedExpression> {
        let Some(text) = body.get("expression").and_then(Value::as_str) else {
            return Err(ExplorerError::request("`expression` is missing").about("expression"));
        };
        let empty = Map::new();
        let values = object(body, "values")?.unwrap_or(&empty);
        EvaluatedExpression::new(text, |name| match values.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(given) => Ok(Some(
                value::parsed(given, limits::ELEMENTS)
                    .map_err(|problem| problem.about(format!("values.{name}")))?,
            )),
        })
    }

    /// An expression whose variables have the values that `known` gives; 1 where it gives none.
    ///
    /// # Errors
    /// As [`EvaluatedExpression::of`].
    pub fn new(
        text: &str,
        known: impl Fn(&str) -> Answer<Option<Tensor>>,
    ) -> Answer<EvaluatedExpression> {
        if text.chars().count() > limits::CHARACTERS {
            let message = format!("an expression has at most {} characters", limits::CHARACTERS);
            return Err(ExplorerError::limit(message).about("expression"));
        }
        let about = |problem: ExplorerError| problem.about("expression");
        let parsed = parse(&statements(text)).map_err(|found| about(found.into()))?;
        let (mut inputs, mut defaulted) = (Vec::<(String, Tensor)>::new(), Vec::new());
        for name in parsed.names() {
            let seen = inputs.iter().any(|(other, _)| other == name);
            if seen || constant(name).is_some() {
                continue;
            }
            let given = known(name)?;
            // A variable may have the name of a function, but then it needs a value.
            if given.is_none() && functions::find(name).is_some() {
                continue;
            }
            if inputs.len() == limits::VARIABLES {
                let message = format!("an expression has at most {} variables", limits::VARIABLES);
                return Err(about(ExplorerError::limit(message)));
            }
            if given.is_none() {
                defaulted.push(name.to_string());
            }
            inputs.push((name.to_string(), given.unwrap_or_else(|| Tensor::from(1.0))));
        }
        if inputs.is_empty() {
            let message = "the expression has no variables: there is nothing to differentiate by";
            return Err(about(ExplorerError::new(ExplorerErrorKind::Expression, message)));
        }
        let bounds = ExpressionLimits {
            steps: limits::STEPS,
            elements: limits::ELEMENTS,
            until: Instant::now() + Duration::from_secs(limits::SECONDS),
        };
        let mut graph =
            Graph::bounded(parsed, inputs, Some(bounds)).map_err(|found| about(found.into()))?;
        graph.named = true;
        if !graph.value(&graph.arguments()).dtype().is_float() {
            let message = "the result is a bool, which has no derivative";
            return Err(about(ExplorerError::new(ExplorerErrorKind::Expression, message)));
        }
        Ok(EvaluatedExpression { graph, defaulted })
    }
}

/// The text with a `;` for each line end between two statements: as many characters as before, so
/// that places stay what they are.
fn statements(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        let open = out.trim_end();
        let between = c == '\n'
            && !open.is_empty()
            && !open.ends_with([';', '(', '[', ',', '+', '-', '*', '/', '@', '^', '='])
            && !rest.trim_start().is_empty()
            && !rest.trim_start().starts_with([')', ']', ',', '+', '*', '/', '@', '^']);
        out.push(if between { ';' } else { c });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::statements;

    #[test]
    fn line_ends_separate_statements() {
        assert_eq!(statements("a = x\nb = a\n"), "a = x;b = a\n");
        assert_eq!(statements("a = x +\n y;\n a"), "a = x +\n y;\n a");
        assert_eq!(statements("[1,\n2]\n"), "[1,\n2]\n");
    }
}
