//! From nodes to steps: operations on tensors, each equal one once, those of constants alone done
//! already.

use super::functions::{Function, find};
use super::parser::{ExpressionNode, Id, ParsedExpression, parse};
use super::{Diagnostic, constant, diagnostic};
use crate::number::{SignificantDigits, tensor};
use pullback::{Spec, Tensor, catch, stack, trace};
use std::collections::HashMap;
use std::ops::Range;
use std::time::Instant;

/// An expression that can be computed and differentiated.
pub struct Graph {
    /// The text.
    pub source: String,
    /// Variables with their values, in the order in which they were given.
    pub inputs: Vec<(String, Tensor)>,
    /// What is computed, operands first.
    pub steps: Vec<GraphStep>,
    /// Values that depend on no variable.
    pub constants: Vec<Tensor>,
    /// What the whole is.
    pub result: ValueRef,
    /// The names of the definitions.
    pub definitions: Vec<String>,
    /// Steps that were given a name are called by it.
    pub named: bool,
}

/// How large an expression may become.
#[derive(Debug, Clone, Copy)]
pub struct ExpressionLimits {
    /// Steps, at most.
    pub steps: usize,
    /// Elements of a value, at most. Each step is checked on shapes alone before it is computed.
    pub elements: usize,
    /// When to give up.
    pub until: Instant,
}

/// A value in a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueRef {
    /// A variable.
    Input(usize),
    /// A result of a step.
    GraphStep(usize),
    /// Something known.
    Constant(usize),
}

/// One operation.
pub struct GraphStep {
    action: NodeAction,
    /// What it is applied to.
    pub operands: Vec<ValueRef>,
    /// Its place in the text, in characters.
    pub span: Range<usize>,
    /// The definition it is written in, a number in [`Graph::definitions`].
    pub part: Option<usize>,
    /// Whether it is what that definition, or another one, names.
    pub label: Option<usize>,
}

#[derive(Clone)]
enum NodeAction {
    Call(&'static Function, Vec<f64>),
    Stack,
    Index(Vec<isize>),
}

impl NodeAction {
    fn apply(&self, operands: &[Tensor]) -> Tensor {
        match self {
            NodeAction::Call(function, numbers) => function.apply(operands, numbers),
            NodeAction::Stack => stack(&operands.iter().collect::<Vec<_>>(), 0),
            NodeAction::Index(indices) => {
                indices.iter().fold(operands[0].clone(), |x, &i| x.select_at(0, i))
            }
        }
    }

    fn name(&self) -> &str {
        match self {
            NodeAction::Call(function, _) => function.name,
            NodeAction::Stack => "[…]",
            NodeAction::Index(_) => "index",
        }
    }

    /// What makes two steps on the same operands the same.
    fn key(&self) -> (String, Vec<u64>) {
        match self {
            NodeAction::Call(f, numbers) => {
                (f.name.into(), numbers.iter().map(|n| n.to_bits()).collect())
            }
            NodeAction::Stack => ("[]".into(), Vec::new()),
            NodeAction::Index(indices) => {
                ("[i]".into(), indices.iter().map(|&i| i as u64).collect())
            }
        }
    }
}

/// `x=[1, 2, 3]`: a name and a value.
///
/// # Errors
/// If it is not of that form, or the value is not a constant.
pub fn assignment(text: &str) -> Result<(String, Tensor), Diagnostic> {
    let error_at = |span: Range<usize>, message: String| Err(Diagnostic::new(text, span, message));
    let end = text.chars().count();
    let Some((name, value)) = text.split_once('=') else {
        return error_at(0..end, "expected a variable and its value, such as `x=2`".into());
    };
    let length = name.chars().count();
    let name = name.trim();
    let letters = |c: char| c.is_alphanumeric() || c == '_';
    if !name.chars().all(letters)
        || !name.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_')
    {
        return error_at(
            0..length,
            format!("`{name}` is not a name: letters, digits and _, a letter first"),
        );
    }
    if constant(name).is_some() {
        return error_at(0..length, format!("`{name}` is a constant and cannot be a variable"));
    }
    // The caret belongs under the whole text, not under the value alone.
    let value = constant_value(value).map_err(|mut c| {
        c.source = text.to_string();
        c.span = c.span.start + length + 1..c.span.end + length + 1;
        c
    })?;
    Ok((name.to_string(), value))
}

/// The value of an expression without variables.
///
/// # Errors
/// If it has variables, or is none.
pub fn constant_value(text: &str) -> Result<Tensor, Diagnostic> {
    let graph = Graph::new(parse(text)?, Vec::new())?;
    match graph.result {
        ValueRef::Constant(i) => Ok(graph.constants[i].clone()),
        // Without inputs everything is known.
        ValueRef::Input(_) | ValueRef::GraphStep(_) => {
            Err(Diagnostic::new(text, 0..1, "expected constants"))
        }
    }
}

impl Graph {
    /// The steps of an expression for these values of its variables. Each is computed once here, so
    /// that what does not fit is found with its place in the text.
    ///
    /// # Errors
    /// If a name has no value, shapes do not fit, or a number is not where one must be.
    pub fn new(
        parsed: ParsedExpression,
        inputs: Vec<(String, Tensor)>,
    ) -> Result<Graph, Diagnostic> {
        Graph::bounded(parsed, inputs, None)
    }

    /// As [`Graph::new`], for a text that is not trusted.
    ///
    /// # Errors
    /// Also if it becomes larger, or takes longer, than the bounds allow.
    pub fn bounded(
        parsed: ParsedExpression,
        inputs: Vec<(String, Tensor)>,
        bounds: Option<ExpressionLimits>,
    ) -> Result<Graph, Diagnostic> {
        let graph = Graph {
            source: parsed.source.clone(),
            inputs,
            steps: Vec::new(),
            constants: Vec::new(),
            result: ValueRef::Constant(0),
            definitions: parsed.definitions.iter().map(|d| d.name.clone()).collect(),
            named: false,
        };
        let mut builder =
            Builder { graph, values: Vec::new(), known: HashMap::new(), part: None, bounds };
        let mut made: Vec<ValueRef> = Vec::with_capacity(parsed.nodes.len());
        for (i, (node, span)) in parsed.nodes.iter().enumerate() {
            builder.part = parsed.definitions.iter().position(|d| d.nodes.contains(&i));
            made.push(builder.add(&parsed, &made, node, span.clone())?);
        }
        for (d, definition) in parsed.definitions.iter().enumerate() {
            if let ValueRef::GraphStep(k) = made[definition.value] {
                builder.graph.steps[k].label.get_or_insert(d);
            }
        }
        builder.graph.result = made[parsed.result];
        builder.graph.keep_what_is_used();
        Ok(builder.graph)
    }

    /// The values of all steps for these values of the variables.
    pub fn run(&self, inputs: &[Tensor]) -> Vec<Tensor> {
        let mut values: Vec<Tensor> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let operands: Vec<Tensor> = step
                .operands
                .iter()
                .map(|&r| match r {
                    ValueRef::Input(i) => inputs[i].clone(),
                    ValueRef::GraphStep(k) => values[k].clone(),
                    ValueRef::Constant(i) => self.constants[i].clone(),
                })
                .collect();
            values.push(step.apply(&operands));
        }
        values
    }

    /// The value of the whole for these values of the variables.
    pub fn value(&self, inputs: &[Tensor]) -> Tensor {
        match self.result {
            ValueRef::Input(i) => inputs[i].clone(),
            ValueRef::Constant(i) => self.constants[i].clone(),
            ValueRef::GraphStep(_) => self.pick(self.result, inputs, &self.run(inputs)),
        }
    }

    /// A value among those of the variables and of the steps.
    pub fn pick(&self, what: ValueRef, inputs: &[Tensor], steps: &[Tensor]) -> Tensor {
        match what {
            ValueRef::Input(i) => inputs[i].clone(),
            ValueRef::GraphStep(k) => steps[k].clone(),
            ValueRef::Constant(i) => self.constants[i].clone(),
        }
    }

    /// The values of the variables.
    pub fn arguments(&self) -> Vec<Tensor> {
        self.inputs.iter().map(|(_, x)| x.clone()).collect()
    }

    /// What a value is called: `x`, `v1`, or a number.
    pub fn name(&self, what: ValueRef, digits: SignificantDigits) -> String {
        match what {
            ValueRef::Input(i) => self.inputs[i].0.clone(),
            ValueRef::GraphStep(k) => self.step_name(k),
            ValueRef::Constant(i) => tensor(&self.constants[i], digits),
        }
    }

    /// What a step is called: `v1`, or with another letter where a variable has such a name.
    pub fn step_name(&self, k: usize) -> String {
        if let (Some(label), true) = (self.steps[k].label, self.named) {
            return self.definitions[label].clone();
        }
        let taken = |letter: &&str| {
            let numbered = |name: &str| {
                name.strip_prefix(*letter).is_some_and(|rest| rest.parse::<usize>().is_ok())
            };
            let definitions = self.definitions.iter().filter(|_| self.named);
            self.inputs.iter().map(|(name, _)| name).chain(definitions).any(|name| numbered(name))
        };
        let letter = ["v", "w", "u", "s", "t"].into_iter().find(|letter| !taken(letter));
        format!("{}{}", letter.unwrap_or("step"), k + 1)
    }

    /// A step as a formula of names: `x·y`.
    pub fn formula(&self, step: &GraphStep, digits: SignificantDigits) -> String {
        let name = |r: &ValueRef| {
            let name = self.name(*r, digits);
            // A negative number between operators.
            if name.starts_with('-') && step.operands.len() > 1 {
                format!("({name})")
            } else {
                name
            }
        };
        let names: Vec<String> = step.operands.iter().map(name).collect();
        match &step.action {
            NodeAction::Stack => format!("[{}]", names.join(", ")),
            NodeAction::Index(indices) => {
                let list: Vec<String> = indices.iter().map(ToString::to_string).collect();
                format!("{}[{}]", names[0], list.join(", "))
            }
            NodeAction::Call(f, numbers) if f.name == "power" => {
                let n = crate::number::plain(numbers[0], digits);
                format!("{}^{}", names[0], if numbers[0] < 0.0 { format!("({n})") } else { n })
            }
            NodeAction::Call(f, numbers) => match (f.symbol, &names[..]) {
                (Some("*"), [a, b]) => format!("{a}·{b}"),
                (Some("/"), [a, b]) => format!("{a}/{b}"),
                (Some("^"), [a, b]) => format!("{a}^{b}"),
                (Some(symbol), [a, b]) => format!("{a} {symbol} {b}"),
                (Some(symbol), [a]) => format!("{symbol}{a}"),
                _ => {
                    // Numbers with their default values are not shown.
                    let given = f.numbers().iter().zip(numbers).rposition(|(known, n)| {
                        known.usual.is_none_or(|usual| usual.to_bits() != n.to_bits())
                    });
                    let numbers = &numbers[..given.map_or(0, |last| last + 1)];
                    let numbers = numbers.iter().map(|&n| crate::number::plain(n, digits));
                    let all: Vec<String> = names.into_iter().chain(numbers).collect();
                    format!("{}({})", f.name, all.join(", "))
                }
            },
        }
    }

    /// Drops steps that the result does not depend on (unused definitions).
    fn keep_what_is_used(&mut self) {
        let mut used = vec![false; self.steps.len()];
        if let ValueRef::GraphStep(k) = self.result {
            used[k] = true;
        }
        for k in (0..self.steps.len()).rev() {
            for operand in &self.steps[k].operands {
                if let (ValueRef::GraphStep(j), true) = (*operand, used[k]) {
                    used[j] = true;
                }
            }
        }
        let mut next = 0;
        let numbers: Vec<usize> = used.iter().map(|&u| (next, next += usize::from(u)).0).collect();
        let moved = |r: &mut ValueRef| {
            if let ValueRef::GraphStep(k) = r {
                *k = numbers[*k];
            }
        };
        let mut flags = used.iter();
        self.steps.retain(|_| flags.next().copied().unwrap_or(false));
        self.steps.iter_mut().flat_map(|s| &mut s.operands).for_each(moved);
        moved(&mut self.result);
    }
}

impl GraphStep {
    /// What it does: the name of a function, `[…]` or `index`.
    pub fn name(&self) -> &str {
        self.action.name()
    }

    /// Computes it.
    pub fn apply(&self, operands: &[Tensor]) -> Tensor {
        let value = self.action.apply(operands);
        // What changes nothing (a vector, flattened) may be its operand itself; here it is a value
        // with an adjoint of its own.
        if operands.iter().any(|x| x.is_same(&value)) { value.deep_clone() } else { value }
    }

    /// The operands that are not constants, each once, in order.
    pub fn variables(&self) -> Vec<ValueRef> {
        let mut out: Vec<ValueRef> = Vec::new();
        for &operand in &self.operands {
            if !matches!(operand, ValueRef::Constant(_)) && !out.contains(&operand) {
                out.push(operand);
            }
        }
        out
    }
}

struct Builder {
    graph: Graph,
    /// The values of the steps so far.
    values: Vec<Tensor>,
    /// Steps by what they do.
    known: HashMap<(String, Vec<u64>, Vec<ValueRef>), ValueRef>,
    /// The definition that is being read.
    part: Option<usize>,
    bounds: Option<ExpressionLimits>,
}

impl Builder {
    fn error_at<T>(&self, span: Range<usize>, message: String) -> Result<T, Diagnostic> {
        Err(Diagnostic::new(&self.graph.source, span, message))
    }

    fn constant(&mut self, value: Tensor) -> ValueRef {
        // Equal numbers are one constant, so that equal steps on them are one step.
        let same = |known: &Tensor| {
            known.spec() == value.spec()
                && known.len() == 1
                && known.to_f64_vec()[0].to_bits() == value.to_f64_vec()[0].to_bits()
        };
        let at = self.graph.constants.iter().position(same).unwrap_or_else(|| {
            self.graph.constants.push(value);
            self.graph.constants.len() - 1
        });
        ValueRef::Constant(at)
    }

    fn add(
        &mut self,
        parsed: &ParsedExpression,
        made: &[ValueRef],
        node: &ExpressionNode,
        span: Range<usize>,
    ) -> Result<ValueRef, Diagnostic> {
        match node {
            ExpressionNode::Number(value) => Ok(self.constant(Tensor::from(*value))),
            ExpressionNode::Name(name) => self.name(name, span),
            ExpressionNode::List(items) => {
                let operands: Vec<ValueRef> = items.iter().map(|&i| made[i]).collect();
                self.step(NodeAction::Stack, operands, span)
            }
            ExpressionNode::Index(value, indices) => {
                let indices = indices
                    .iter()
                    .map(|&i| Ok(self.number(parsed, made, i, "an index", true)? as isize))
                    .collect::<Result<Vec<_>, Diagnostic>>()?;
                self.step(NodeAction::Index(indices), vec![made[*value]], span)
            }
            ExpressionNode::Apply(function, arguments) => {
                let function = *function;
                // A power by a constant keeps its exponent, and needs no logarithm.
                if let ("pow", [base, exponent]) = (function.name, &arguments[..])
                    && let (ValueRef::Constant(i), Some(power)) = (made[*exponent], find("power"))
                    && self.graph.constants[i].rank() == 0
                {
                    let n = self.graph.constants[i].to_f64_vec()[0];
                    return self.step(NodeAction::Call(power, vec![n]), vec![made[*base]], span);
                }
                let split = function.tensors(arguments.len());
                let operands: Vec<ValueRef> = arguments[..split].iter().map(|&i| made[i]).collect();
                let mut numbers = Vec::new();
                for (k, wanted) in function.numbers().iter().enumerate() {
                    numbers.push(match (arguments.get(split + k), wanted.usual) {
                        (Some(&i), _) => {
                            let what = format!("the {} of `{}`", wanted.name, function.name);
                            self.number(parsed, made, i, &what, wanted.whole)?
                        }
                        (None, usual) => usual.unwrap_or(f64::NAN),
                    });
                }
                self.step(NodeAction::Call(function, numbers), operands, span)
            }
        }
    }

    fn name(&mut self, name: &str, span: Range<usize>) -> Result<ValueRef, Diagnostic> {
        if let Some(i) = self.graph.inputs.iter().position(|(known, _)| known == name) {
            return Ok(ValueRef::Input(i));
        }
        if let Some(value) = constant(name) {
            return Ok(self.constant(Tensor::from(value)));
        }
        if find(name).is_some() {
            return self.error_at(span, format!("`{name}` is a function: write `{name}(…)`"));
        }
        let known = self.graph.inputs.iter().map(|(name, _)| name.as_str());
        let near = diagnostic::near(name, known.chain(["pi", "inf", "nan"]));
        let near = diagnostic::did_you_mean(&near);
        let hint =
            if near.is_empty() { format!("; add `{name}=…` after the expression") } else { near };
        self.error_at(span, format!("`{name}` has no value{hint}"))
    }

    /// An argument that must be a plain number.
    fn number(
        &self,
        parsed: &ParsedExpression,
        made: &[ValueRef],
        id: Id,
        what: &str,
        whole: bool,
    ) -> Result<f64, Diagnostic> {
        let span = parsed.nodes[id].1.clone();
        let value = match made[id] {
            ValueRef::Constant(i) if self.graph.constants[i].rank() == 0 => {
                self.graph.constants[i].to_f64_vec()[0]
            }
            _ => return self.error_at(span, format!("{what} must be a plain number")),
        };
        match whole && (value.fract() != 0.0 || value.abs() > 1e9) {
            true => self.error_at(span, format!("{what} must be an integer")),
            false => Ok(value),
        }
    }

    /// Refuses a step that is one too many, too large or too late.
    fn check_bounds(
        &self,
        action: &NodeAction,
        operands: &[Tensor],
        span: &Range<usize>,
    ) -> Result<(), Diagnostic> {
        let Some(bounds) = self.bounds else { return Ok(()) };
        if self.graph.steps.len() >= bounds.steps {
            let message = format!("the expression has more than {} steps", bounds.steps);
            return self.error_at(span.clone(), message);
        }
        if Instant::now() > bounds.until {
            return self.error_at(span.clone(), "the expression takes too long".into());
        }
        let specs: Vec<Spec> = operands.iter().map(|x| x.spec().clone()).collect();
        // What cannot be traced is an error that computing it explains.
        let Ok(program) = trace(|x: &[Tensor]| action.apply(x), &specs) else { return Ok(()) };
        let length = |spec: &Spec| {
            spec.shape.iter().try_fold(1usize, |n, &m| n.checked_mul(m)).unwrap_or(usize::MAX)
        };
        match program.specs.iter().find(|spec| length(spec) > bounds.elements) {
            Some(spec) => {
                let (name, most) = (action.name(), bounds.elements);
                let message =
                    format!("`{name}` makes {spec}, and at most {most} elements are shown here");
                self.error_at(span.clone(), message)
            }
            None => Ok(()),
        }
    }

    fn step(
        &mut self,
        action: NodeAction,
        operands: Vec<ValueRef>,
        span: Range<usize>,
    ) -> Result<ValueRef, Diagnostic> {
        let (name, numbers) = action.key();
        let key = (name, numbers, operands.clone());
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        let inputs = self.graph.arguments();
        let tensors: Vec<Tensor> =
            operands.iter().map(|&r| self.graph.pick(r, &inputs, &self.values)).collect();
        self.check_bounds(&action, &tensors, &span)?;
        let value = match catch(|| action.apply(&tensors)) {
            Ok(value) => value,
            Err(error) => {
                let shapes: Vec<String> = tensors.iter().map(|x| x.spec().to_string()).collect();
                if let NodeAction::Stack = action {
                    let message = format!(
                        "the elements of a list must have one shape, and these have {}",
                        shapes.join(" and ")
                    );
                    return self.error_at(span, message);
                }
                let mut message = format!("{}: {}", action.name(), error.message());
                if !message.contains('[') {
                    message += &format!(" ({})", shapes.join(" and "));
                }
                return self.error_at(span, message);
            }
        };
        let made = match operands.iter().all(|r| matches!(r, ValueRef::Constant(_))) {
            true => self.constant(value),
            false => {
                self.values.push(value);
                let part = self.part;
                self.graph.steps.push(GraphStep { action, operands, span, part, label: None });
                ValueRef::GraphStep(self.graph.steps.len() - 1)
            }
        };
        self.known.insert(key, made);
        Ok(made)
    }
}
