//! Questions with a prediction to commit to. What is right is computed when it is revealed.

use super::tape::Tape;
use super::value::{number, text};
use super::{memory, versioned};
use crate::error::{Answer, ExplorerError};
use serde_json::{Value, json};

/// A question.
struct QuestionPreset {
    id: &'static str,
    title: &'static str,
    /// The view that shows it.
    view: &'static str,
    /// What the view is to show, as JSON.
    state: &'static str,
    question: &'static str,
    choices: &'static [&'static str],
    reveal: fn(&Value) -> Answer<PresetAnswer>,
}

/// What is right, why, and the numbers that say so.
struct PresetAnswer {
    answer: usize,
    explanation: String,
    numbers: Vec<(&'static str, f64)>,
}

#[rustfmt::skip]
const PRESETS: [QuestionPreset; 7] = [
    QuestionPreset { id: "one-pass", title: "One pass, all gradients", view: "reverse",
        state: r#"{"expression": "a = x*y; b = sin(a); L = a + b", "values": {"x": 2, "y": 3}}"#,
        question: "L = xy + sin(xy) at x = 2, y = 3. How many backward passes does it take to know both ∂L/∂x and ∂L/∂y?",
        choices: &["One", "Two, one for each input", "Three, one for each op"], reveal: one_pass },
    QuestionPreset { id: "reuse", title: "A value used twice", view: "reverse",
        state: r#"{"expression": "s = x^2; L = s + x", "values": {"x": 3}}"#,
        question: "L = x² + x at x = 3. x is used twice. What is ∂L/∂x?",
        choices: &["6: the gradient of x²", "7: both paths add up", "1: the last use counts"], reveal: reuse },
    QuestionPreset { id: "kink", title: "At a kink", view: "reverse",
        state: r#"{"expression": "L = relu(x)", "values": {"x": 0}}"#,
        question: "relu has no derivative at 0. What does the engine give there?",
        choices: &["An error", "1", "0.5", "0"], reveal: kink },
    QuestionPreset { id: "saturated", title: "A saturated unit", view: "reverse",
        state: r#"{"expression": "h = tanh(w*x); L = h^2", "values": {"w": 1, "x": 20}}"#,
        question: "h = tanh(20) is 1 to sixteen digits. How large is ∂L/∂w for L = h²?",
        choices: &["About 40, as x is large", "About 1", "0, or next to it"], reveal: saturated },
    QuestionPreset { id: "cancel", title: "Equal and opposite", view: "reverse",
        state: r#"{"expression": "L = sum(softmax(v))", "values": {"v": [1, 2, 3]}}"#,
        question: "L is the sum of a softmax. What is the gradient by its inputs?",
        choices: &["The softmax itself", "All ones", "All zeros"], reveal: cancel },
    QuestionPreset { id: "wide", title: "Many inputs, one result", view: "cost",
        state: r#"{"points": [[256, 1]]}"#,
        question: "f: R²⁵⁶ → R. Counted in multiplications, what does the whole gradient cost in reverse mode, compared with f?",
        choices: &["About 256 times as much", "Less than five times as much", "Less than f itself"], reveal: wide },
    QuestionPreset { id: "segments", title: "How long a segment", view: "memory",
        state: r#"{"layers": 36, "width": 64, "batch": 32, "segment": 6, "budget": null}"#,
        question: "A chain of 36 layers is checkpointed in segments of equal length. Which length has the lowest peak?",
        choices: &["1: keep the input of every layer", "About 6", "36: keep nothing"], reveal: segments },
];

/// All questions, without what is right.
pub fn list() -> Vec<Value> {
    let shown = |p: &QuestionPreset| {
        json!({
            "id": p.id, "title": p.title, "view": p.view, "state": state(p),
            "question": p.question, "choices": p.choices,
        })
    };
    PRESETS.iter().map(shown).collect()
}

/// The names of all questions.
pub fn names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|preset| preset.id)
}

fn state(preset: &QuestionPreset) -> Value {
    serde_json::from_str(preset.state).unwrap_or_default()
}

/// `POST /api/preset`.
///
/// # Errors
/// If there is no such question.
pub fn answer(body: &Value) -> Answer<Value> {
    let id = body.get("id").and_then(Value::as_str);
    let Some(preset) = PRESETS.iter().find(|preset| Some(preset.id) == id) else {
        let names: Vec<&str> = names().collect();
        return Err(
            ExplorerError::request(format!("`id` must be one of {}", names.join(", "))).about("id")
        );
    };
    let found = (preset.reveal)(&state(preset))?;
    let numbers: Vec<Value> = found
        .numbers
        .iter()
        .map(|(name, x)| json!({ "name": name, "value": number(*x) }))
        .collect();
    Ok(versioned(json!({
        "id": preset.id, "answer": found.answer, "explanation": found.explanation,
        "numbers": numbers,
    })))
}

/// The elements of the gradient by the first variable.
fn gradient(state: &Value) -> Answer<Vec<f64>> {
    Ok(Tape::of(state)?.sweep.gradient[0].to_f64_vec())
}

/// Nothing else is right: then the engine does not do what the question assumes.
fn unexpected(x: f64) -> ExplorerError {
    ExplorerError::engine(format!("the engine gives {x}, which is none of the choices"))
}

fn one_pass(state: &Value) -> Answer<PresetAnswer> {
    let tape = Tape::of(state)?;
    let g: Vec<f64> = tape.sweep.gradient.iter().map(|g| g.to_f64_vec()[0]).collect();
    Ok(PresetAnswer {
        answer: 0,
        explanation: format!(
            "One sweep over the {} ops filled both registers: {} and {}. Its cost does not depend on the number of inputs.",
            tape.graph().steps.len(),
            text(g[0]),
            text(g[1])
        ),
        numbers: vec![("∂L/∂x", g[0]), ("∂L/∂y", g[1])],
    })
}

fn reuse(state: &Value) -> Answer<PresetAnswer> {
    let g = gradient(state)?[0];
    let answer = [6.0, 7.0, 1.0].iter().position(|&x| x == g).ok_or_else(|| unexpected(g))?;
    let explanation =
        "Each use adds its contribution to the register of x: 6 by the square, and 1 directly.";
    Ok(PresetAnswer { answer, explanation: explanation.into(), numbers: vec![("∂L/∂x", g)] })
}

fn kink(state: &Value) -> Answer<PresetAnswer> {
    let g = gradient(state)?[0];
    let values = [f64::NAN, 1.0, 0.5, 0.0];
    let answer = values.iter().position(|&x| x == g).ok_or_else(|| unexpected(g))?;
    let explanation = format!(
        "By convention it is {}: one of the slopes on either side. docs/conventions.md lists the choice for every kink.",
        text(g)
    );
    Ok(PresetAnswer { answer, explanation, numbers: vec![("∂L/∂x", g)] })
}

fn saturated(state: &Value) -> Answer<PresetAnswer> {
    let g = gradient(state)?[0];
    let answer = match g.abs() {
        g if g > 10.0 => 0,
        g if g > 0.1 => 1,
        _ => 2,
    };
    let explanation = format!(
        "The local derivative of tanh is 1 − h², which is next to nothing there, and everything behind it is multiplied by it: {}.",
        text(g)
    );
    Ok(PresetAnswer { answer, explanation, numbers: vec![("∂L/∂w", g)] })
}

fn cancel(state: &Value) -> Answer<PresetAnswer> {
    let g = gradient(state)?;
    let largest = g.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    let answer = if largest < 1e-12 {
        2
    } else if g.iter().all(|&x| x == 1.0) {
        1
    } else {
        0
    };
    let explanation =
        "A softmax always sums to 1, so no input can change the sum: the contributions cancel.";
    Ok(PresetAnswer {
        answer,
        explanation: explanation.into(),
        numbers: vec![("largest |∂L/∂v|", largest)],
    })
}

fn wide(state: &Value) -> Answer<PresetAnswer> {
    let measured = super::cost::answer(state)?;
    let point = &measured["points"][0];
    let ratio = point["counted_ratio"].as_f64().unwrap_or(f64::NAN);
    let answer = match ratio {
        r if r > 100.0 => 0,
        r if r >= 1.0 => 1,
        _ => 2,
    };
    let forward = point["counted"]["forward"].as_f64().unwrap_or(f64::NAN);
    let function = point["counted"]["function"].as_f64().unwrap_or(f64::NAN);
    Ok(PresetAnswer {
        answer,
        explanation: format!(
            "{} times as many multiplications as f, for 256 derivatives. Forward mode needs {} times as many: a pass for each input.",
            text(ratio),
            text(forward / function)
        ),
        numbers: vec![("reverse / f", ratio), ("forward / f", forward / function)],
    })
}

fn segments(state: &Value) -> Answer<PresetAnswer> {
    let measured = memory::answer(state)?;
    let empty = Vec::new();
    let tried = measured["segments"].as_array().unwrap_or(&empty);
    let peak = |s: &Value| s["peak"].as_u64().unwrap_or(u64::MAX);
    let best =
        tried.iter().min_by_key(|s| peak(s)).map_or(0, |s| s["segment"].as_u64().unwrap_or(0));
    let answer = match best {
        1 | 2 => 0,
        3..=16 => 1,
        _ => 2,
    };
    let at = |n: u64| {
        let found = tried.iter().find(|s| s["segment"].as_u64() == Some(n));
        found.map_or(f64::NAN, |s| peak(s) as f64)
    };
    Ok(PresetAnswer {
        answer,
        explanation: format!(
            "The lowest peak was at length {best}. Short segments keep many inputs, long ones recompute a long stretch at once; the two balance near √36."
        ),
        numbers: vec![
            ("lowest at length", best as f64),
            ("its peak, bytes", at(best)),
            ("peak at length 1", at(1)),
        ],
    })
}
