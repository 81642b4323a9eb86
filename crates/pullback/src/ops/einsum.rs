//! Sums of products, written with a letter per axis.
//!
//! An equation is reduced to views, sums and matrix products, so its derivatives need no row:
//!
//! ```text
//!  parse ─► diagonals, axes of length 1 dropped ─► lone labels summed ─► pairs contracted ─► order
//! ```
//! A pair that shares a label which is not needed elsewhere is a matrix product over it: labels
//! that both have and that stay are its stack, the others its rows and columns. A pair that shares
//! none is a broadcast product. More than two operands are contracted in the order that keeps
//! intermediates small, greedily.

use crate::ops::cast::one_float;
use crate::{DType, Error, Result, Spec, Tensor, fail, mode};
use pullback_ir::Line;
use std::fmt;

/// An axis of the equation: a letter, or an axis under the ellipsis, counted from the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Letter(char),
    Batch(usize),
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Label::Letter(c) => write!(f, "`{c}`"),
            Label::Batch(k) => write!(f, "axis -{} under `...`", k + 1),
        }
    }
}

/// The subscripts of one operand or of the output, before the ellipsis has a length.
struct Term {
    text: String,
    before: Vec<char>,
    after: Vec<char>,
    ellipsis: bool,
}

impl Term {
    fn parse(text: &str) -> Result<Term> {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let (before, after, ellipsis) = match text.split_once("...") {
            Some((before, after)) => (before, after, true),
            None => (&text[..], "", false),
        };
        if let Some(odd) = before.chars().chain(after.chars()).find(|c| !c.is_ascii_alphabetic()) {
            return Err(argument(match (odd, ellipsis) {
                ('.', true) => format!("`{text}` has more than one ellipsis"),
                ('.', false) => format!("`.` in `{text}` is not part of an ellipsis `...`"),
                _ => format!(
                    "`{odd}` in `{text}` is not a label: labels are the letters a-z and A-Z"
                ),
            }));
        }
        let (before, after) = (before.chars().collect(), after.chars().collect());
        Ok(Term { before, after, ellipsis, text })
    }

    fn letters(&self) -> impl Iterator<Item = char> + '_ {
        self.before.iter().chain(&self.after).copied()
    }

    /// The labels, with an ellipsis of `batch` axes.
    fn labels(&self, batch: usize) -> Vec<Label> {
        let batch = if self.ellipsis { batch } else { 0 };
        let before = self.before.iter().copied().map(Label::Letter);
        let after = self.after.iter().copied().map(Label::Letter);
        before.chain((0..batch).rev().map(Label::Batch)).chain(after).collect()
    }
}

fn argument(message: String) -> Error {
    Error::argument("einsum", message)
}

/// What an equation means for operands of known shapes.
struct EinsumPlan {
    /// The labels of each operand, one per axis.
    inputs: Vec<Vec<Label>>,
    output: Vec<Label>,
    sizes: LabelSizes,
}

/// The length of each label.
struct LabelSizes(Vec<(Label, usize)>);

impl LabelSizes {
    fn of(&self, label: Label) -> usize {
        self.0.iter().find(|s| s.0 == label).map_or(1, |s| s.1)
    }

    /// Number of elements under these labels; as a float, since it may not fit an integer.
    fn count(&self, labels: impl Iterator<Item = Label>) -> f64 {
        labels.map(|l| self.of(l) as f64).product()
    }
}

impl EinsumPlan {
    fn new(equation: &str, specs: &[&Spec]) -> Result<EinsumPlan> {
        let (left, right) = match equation.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (equation, None),
        };
        let terms = left.split(',').map(Term::parse).collect::<Result<Vec<_>>>()?;
        if terms.len() != specs.len() {
            let (named, given) = (counted(terms.len(), "operand"), specs.len());
            return Err(argument(format!("`{equation}` names {named}, not {given}")));
        }
        let (mut inputs, mut batch) = (Vec::new(), 0);
        for (i, (term, spec)) in terms.iter().zip(specs).enumerate() {
            let (rank, letters) = (spec.shape.len(), term.letters().count());
            if rank < letters || (rank > letters && !term.ellipsis) {
                let (named, axes) = (counted(letters, "label"), counted(rank, "axis"));
                let message =
                    format!("`{}` has {named}, but operand {i} is {spec}, with {axes}", term.text);
                return Err(Error::shape("einsum", message));
            }
            batch = batch.max(rank - letters);
            inputs.push(term.labels(rank - letters));
        }
        let sizes = sizes(&inputs, specs)?;
        let output = match right {
            Some(right) => explicit(right, batch, &inputs)?,
            None => implicit(&terms, batch),
        };
        Ok(EinsumPlan { inputs, output, sizes })
    }
}

fn counted(n: usize, noun: &str) -> String {
    match (n, noun) {
        (1, _) => format!("1 {noun}"),
        (_, "axis") => format!("{n} axes"),
        _ => format!("{n} {noun}s"),
    }
}

/// One length per label: lengths agree, or are 1 and broadcast.
fn sizes(inputs: &[Vec<Label>], specs: &[&Spec]) -> Result<LabelSizes> {
    let mut sizes: Vec<(Label, usize)> = Vec::new();
    for (i, (labels, spec)) in inputs.iter().zip(specs).enumerate() {
        for (axis, &label) in labels.iter().enumerate() {
            let n = spec.shape[axis];
            if let Some(first) = labels[..axis].iter().position(|&l| l == label) {
                let m = spec.shape[first];
                if n != m {
                    let message = format!(
                        "{label} is repeated in operand {i}, {spec}, with lengths {m} and {n}"
                    );
                    return Err(Error::shape("einsum", message));
                }
            }
            match sizes.iter_mut().find(|s| s.0 == label) {
                None => sizes.push((label, n)),
                Some((_, m)) if *m == 1 => *m = n,
                Some((_, m)) if *m == n || n == 1 => {}
                Some((_, m)) => {
                    let message = format!(
                        "{label} has length {m} in one operand and {n} in operand {i}, {spec}"
                    );
                    return Err(Error::shape("einsum", message));
                }
            }
        }
    }
    Ok(LabelSizes(sizes))
}

fn explicit(right: &str, batch: usize, inputs: &[Vec<Label>]) -> Result<Vec<Label>> {
    if right.contains("->") {
        return Err(argument(format!(
            "a second `->`, before `{}`",
            right.split("->").last().unwrap_or("")
        )));
    }
    let output = Term::parse(right)?.labels(batch);
    for (i, label) in output.iter().enumerate() {
        if !inputs.iter().any(|labels| labels.contains(label)) {
            return Err(argument(format!("the output label {label} is in no operand")));
        }
        if output[..i].contains(label) {
            return Err(argument(format!("the output label {label} is repeated")));
        }
    }
    Ok(output)
}

/// Without `->`: the axes under the ellipsis, then the letters that occur once, in order.
fn implicit(terms: &[Term], batch: usize) -> Vec<Label> {
    let mut letters: Vec<char> = terms.iter().flat_map(Term::letters).collect();
    letters.sort_unstable();
    let once =
        letters.chunk_by(|a, b| a == b).filter(|c| c.len() == 1).map(|c| Label::Letter(c[0]));
    (0..batch).rev().map(Label::Batch).chain(once).collect()
}

/// A tensor with a label for each axis, no two the same.
struct EinsumFactor {
    x: Tensor,
    labels: Vec<Label>,
}

impl EinsumFactor {
    /// An operand with repeated labels as diagonals, and without its axes of length 1: those
    /// broadcast, and an output of length 1 gets its axis back at the end.
    fn new(mut x: Tensor, mut labels: Vec<Label>) -> EinsumFactor {
        let mut axis = 0;
        while axis < labels.len() {
            let label = labels[axis];
            match labels.iter().skip(axis + 1).position(|&l| l == label) {
                Some(gap) => {
                    let other = axis + 1 + gap;
                    x = x.diagonal_of(0, axis as isize, other as isize);
                    labels.remove(other);
                    labels.remove(axis);
                    labels.push(label);
                }
                None => axis += 1,
            }
        }
        let long = |&(_, n): &(Label, usize)| n != 1;
        let kept: Vec<_> = labels.into_iter().zip(x.shape().iter().copied()).filter(long).collect();
        let (labels, shape): (Vec<_>, Vec<_>) = kept.into_iter().unzip();
        EinsumFactor { x: x.reshape(shape), labels }
    }

    /// Labels that are not needed, summed out.
    fn sum_out(self, needed: impl Fn(Label) -> bool) -> EinsumFactor {
        let axes: Vec<usize> =
            (0..self.labels.len()).filter(|&i| !needed(self.labels[i])).collect();
        if axes.is_empty() {
            return self;
        }
        let dtype = self.x.dtype();
        let labels = self.labels.into_iter().filter(|&l| needed(l)).collect();
        EinsumFactor { x: self.x.sum_over(axes).cast(dtype), labels }
    }

    /// The axes in the order of `labels`, which are all of its own.
    fn ordered(&self, labels: &[Label]) -> Tensor {
        if self.labels == labels {
            return self.x.clone();
        }
        let order: Vec<usize> =
            labels.iter().filter_map(|l| self.labels.iter().position(|m| m == l)).collect();
        self.x.permute(order)
    }

    /// The axes in the order of `labels`, with length 1 where it has none.
    fn spread(&self, labels: &[Label], sizes: &LabelSizes) -> Tensor {
        let own: Vec<Label> = labels.iter().copied().filter(|l| self.labels.contains(l)).collect();
        let length = |l: &Label| if self.labels.contains(l) { sizes.of(*l) } else { 1 };
        self.ordered(&own).reshape(labels.iter().map(length).collect::<Vec<_>>())
    }

    /// A stack of matrices: `stack` axes as they are, rows and columns each merged into one.
    fn matrices(&self, [stack, rows, columns]: [&[Label]; 3], sizes: &LabelSizes) -> Tensor {
        let mut shape: Vec<usize> = stack.iter().map(|&l| sizes.of(l)).collect();
        for merged in [rows, columns] {
            shape.push(merged.iter().map(|&l| sizes.of(l)).product());
        }
        self.ordered(&[stack, rows, columns].concat()).reshape(shape)
    }
}

/// Multiplies two factors and sums over the labels that are not needed afterwards.
fn contract(
    a: EinsumFactor,
    b: EinsumFactor,
    output: &[Label],
    sizes: &LabelSizes,
    needed: impl Fn(Label) -> bool,
) -> EinsumFactor {
    let a = a.sum_out(|l| needed(l) || b.labels.contains(&l));
    let b = b.sum_out(|l| needed(l) || a.labels.contains(&l));
    let place = |l: &Label| output.iter().position(|m| m == l).unwrap_or(usize::MAX);
    let alone = |x: &EinsumFactor, y: &EinsumFactor| -> Vec<Label> {
        x.labels.iter().copied().filter(|l| !y.labels.contains(l)).collect()
    };
    let (rows, columns) = (alone(&a, &b), alone(&b, &a));
    let larger = if a.x.len() >= b.x.len() { &a } else { &b };
    let shared =
        larger.labels.iter().copied().filter(|l| a.labels.contains(l) && b.labels.contains(l));
    let (mut stack, inner): (Vec<Label>, Vec<Label>) = shared.partition(|&l| needed(l));
    stack.sort_by_key(place);
    if inner.is_empty() {
        let mut labels = [stack, rows, columns].concat();
        labels.sort_by_key(place);
        return EinsumFactor { x: a.spread(&labels, sizes) * b.spread(&labels, sizes), labels };
    }
    // The side whose labels come first in the output makes the rows, so that the result is in
    // order.
    let first = |side: &[Label]| side.iter().map(place).min().unwrap_or(usize::MAX);
    let (a, b, rows, columns) = match first(&columns) < first(&rows) {
        true => (b, a, columns, rows),
        false => (a, b, rows, columns),
    };
    let left = a.matrices([&stack, &rows, &inner], sizes);
    let right = b.matrices([&stack, &inner, &columns], sizes);
    let labels = [stack, rows, columns].concat();
    let shape: Vec<usize> = labels.iter().map(|&l| sizes.of(l)).collect();
    EinsumFactor { x: left.matmul(&right).reshape(shape), labels }
}

/// The pair to contract next: the one whose product frees most memory (or takes least), then the
/// one that costs least, then the first.
fn cheapest(factors: &[EinsumFactor], plan: &EinsumPlan) -> (usize, usize) {
    let mut best = ((f64::INFINITY, f64::INFINITY), (0, 1));
    for j in 1..factors.len() {
        for i in 0..j {
            let (a, b) = (&factors[i].labels, &factors[j].labels);
            let all = || a.iter().chain(b.iter().filter(|l| !a.contains(l))).copied();
            let needed = |l: &Label| is_needed(*l, factors, &[i, j], &plan.output);
            let after = plan.sizes.count(all().filter(needed));
            let before = plan.sizes.count(a.iter().copied()) + plan.sizes.count(b.iter().copied());
            let cost = (after - before, plan.sizes.count(all()));
            if cost < best.0 {
                best = (cost, (i, j));
            }
        }
    }
    best.1
}

/// Whether a label is in the output or in a factor other than these.
fn is_needed(label: Label, factors: &[EinsumFactor], except: &[usize], output: &[Label]) -> bool {
    let elsewhere =
        |(i, f): (usize, &EinsumFactor)| !except.contains(&i) && f.labels.contains(&label);
    output.contains(&label) || factors.iter().enumerate().any(elsewhere)
}

/// A sum of products, as NumPy's `einsum`: each operand has a letter per axis; letters that are not
/// in the output are summed over.
///
/// Derivative: for each operand, the einsum of `dy` and the others.
///
/// - Without `->` the output has the letters that occur once, in alphabetical order, capitals
///   first.
/// - A letter that one operand has twice takes its diagonal.
/// - `...` matches any number of axes, which broadcast; omitted from an explicit output, they are
///   summed over.
/// - Lengths of one letter agree, or are 1 and broadcast. Spaces are ignored.
///
/// The floats among the operands must have one dtype, which is that of the result; integers promote
/// (`bool` counts as `i64`).
///
/// ```
/// use pullback::{Tensor, einsum};
/// let a = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
/// let v = Tensor::from([1.0, 10.0]);
/// assert_eq!(einsum("ij,j->i", &[&a, &v]).to_vec::<f64>(), [21.0, 43.0]);
/// assert_eq!(einsum("ii", &[&a]).item::<f64>(), 5.0);
/// assert_eq!(einsum("...ij->...ji", &[&a]).to_vec::<f64>(), [1.0, 3.0, 2.0, 4.0]);
/// ```
///
/// # Panics
/// If the equation is malformed, or does not fit the operands.
///
/// ```
/// # use pullback::{Tensor, catch, einsum};
/// let error = catch(|| einsum("ij,jk", &[&Tensor::zeros([2, 3]), &Tensor::zeros([4, 5])])).unwrap_err();
/// assert_eq!(error.message(), "`j` has length 3 in one operand and 4 in operand 1, f32[4,5]");
/// ```
#[track_caller]
#[must_use]
pub fn einsum(equation: &str, operands: &[&Tensor]) -> Tensor {
    let at = mode::user_line(Line::caller());
    let specs: Vec<&Spec> = operands.iter().map(|x| x.spec()).collect();
    let plan = EinsumPlan::new(equation, &specs).map_err(|e| e.on(specs.iter().copied()).at(at));
    let plan = fail::or_raise(plan);
    one_float("einsum", operands.iter().copied());
    mode::with_line(at, || evaluate(&plan, operands).unaliased_with(operands))
}

fn evaluate(plan: &EinsumPlan, operands: &[&Tensor]) -> Tensor {
    let dtype = match operands.iter().map(|x| x.dtype()).reduce(DType::promote) {
        Some(DType::Bool) | None => DType::I64,
        Some(dtype) => dtype,
    };
    let factor =
        |(x, labels): (&&Tensor, &Vec<Label>)| EinsumFactor::new(x.cast(dtype), labels.clone());
    let mut factors: Vec<EinsumFactor> = operands.iter().zip(&plan.inputs).map(factor).collect();
    while factors.len() > 1 {
        let (i, j) = if factors.len() == 2 { (0, 1) } else { cheapest(&factors, plan) };
        let (b, a) = (factors.remove(j), factors.remove(i));
        let needed = |l: Label| is_needed(l, &factors, &[], &plan.output);
        let product = contract(a, b, &plan.output, &plan.sizes, needed);
        factors.insert(i, product);
    }
    let last = factors.remove(0).sum_out(|l| plan.output.contains(&l));
    last.spread(&plan.output, &plan.sizes)
}
