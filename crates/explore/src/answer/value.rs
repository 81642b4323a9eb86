//! Tensors and statistics as JSON.

use crate::error::{Answer, ExplorerError};
use crate::number::{plain, tensor, to_json};
use pullback::record_file::Stats;
use pullback::{Spec, Tensor};
use serde_json::{Value, json};

/// Values of up to this many elements are given whole.
pub const WHOLE: usize = 256;
/// Significant digits of texts.
pub const DIGITS: usize = 5;

/// A number, also where JSON has none for it.
pub fn number(x: f64) -> Value {
    if x.is_finite() { json!(x) } else { json!(x.to_string()) }
}

/// A tensor as the page shows it.
pub fn value(x: &Tensor) -> Value {
    let whole = (x.len() <= WHOLE).then(|| to_json(x));
    let stats = (x.rank() > 0).then(|| stats(&Stats::of(&x.to_f64_vec())));
    described(x.spec(), tensor(x, DIGITS), whole, stats)
}

/// A value that is described by parts of it.
pub fn described(spec: &Spec, text: String, whole: Option<Value>, stats: Option<Value>) -> Value {
    json!({ "spec": spec.to_string(), "shape": &spec.shape[..], "text": text, "data": whole, "stats": stats })
}

/// Statistics.
pub fn stats(s: &Stats) -> Value {
    let share = |n: u64| if s.count == 0 { 0.0 } else { n as f64 / s.count as f64 };
    let bins = json!({ "low": number(s.low), "high": number(s.high), "counts": s.histogram });
    json!({
        "count": s.count, "min": number(s.low), "max": number(s.high), "mean": number(s.mean),
        "std": number(s.std), "rms": number(s.rms), "nan": share(s.nan), "inf": share(s.inf),
        "zero": share(s.zero), "histogram": if s.histogram.is_empty() { Value::Null } else { bins },
    })
}

/// A number as text.
pub fn text(x: f64) -> String {
    plain(x, DIGITS)
}

/// A tensor from nested lists of numbers, or from a text such as `[1, 2]`.
///
/// # Errors
/// If it is neither, or lists of one level differ in length, or there are too many elements.
pub fn parsed(given: &Value, most: usize) -> Answer<Tensor> {
    if let Value::String(text) = given
        && !["NaN", "inf", "-inf"].contains(&&text[..])
    {
        if text.chars().count() > 4 * most {
            return Err(ExplorerError::limit(format!("a value has at most {most} elements")));
        }
        let x = crate::expression::constant_value(text)?;
        return match x.len() > most {
            true => Err(ExplorerError::limit(format!("a value has at most {most} elements"))),
            false => Ok(x),
        };
    }
    let mut shape = Vec::new();
    let mut first = given;
    while let Value::Array(items) = first {
        if shape.len() == 8 {
            return Err(ExplorerError::limit("a value has at most 8 axes"));
        }
        shape.push(items.len());
        match items.first() {
            Some(item) => first = item,
            None => return Err(ExplorerError::request("a list of a value is empty")),
        }
    }
    let mut flat = Vec::new();
    flatten(given, &shape, most, &mut flat)?;
    Ok(Tensor::from_vec(flat, shape))
}

fn flatten(given: &Value, shape: &[usize], most: usize, flat: &mut Vec<f64>) -> Answer {
    let wrong =
        || ExplorerError::request("a value is a number, or lists of numbers of equal lengths");
    match (given, shape) {
        (Value::Array(items), [n, rest @ ..]) if items.len() == *n => {
            items.iter().try_for_each(|item| flatten(item, rest, most, flat))
        }
        (Value::Number(x), []) => {
            if flat.len() >= most {
                return Err(ExplorerError::limit(format!("a value has at most {most} elements")));
            }
            flat.push(x.as_f64().ok_or_else(wrong)?);
            Ok(())
        }
        (Value::String(text), []) if ["NaN", "inf", "-inf"].contains(&&text[..]) => {
            flat.push(text.parse().map_err(|_| wrong())?);
            Ok(())
        }
        _ => Err(wrong()),
    }
}
