//! What was counted.

use pullback_ir::Line;
use std::fmt;

/// The elements of one op on one line that were at a kink.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Kink {
    /// The op, or the function where it has no op of its own.
    pub op: &'static str,
    /// The line it was called on.
    pub at: Line,
    /// Where its kinks are.
    pub place: &'static str,
    /// The derivative that was taken there.
    pub convention: String,
    /// How many elements of its results were exactly there.
    pub elements: usize,
    /// How many elements its results had.
    pub total: usize,
    /// How often it was called.
    pub calls: usize,
}

impl Kink {
    fn is_alike(&self, other: &Kink) -> bool {
        let same = |k: &Kink| (k.op, k.at.file(), k.at.line(), k.place);
        same(self) == same(other) && self.convention == other.convention
    }
}

/// What [`kink_report`](crate::kink_report) found; printed as a table.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct KinkReport {
    /// Ops with elements on a kink, those with most first.
    pub kinks: Vec<Kink>,
    /// Ops that may have kinks, on lines that were traced, where values are not known.
    pub unseen: Vec<(&'static str, Line)>,
}

impl KinkReport {
    /// Whether no element was at a kink, as far as could be checked.
    ///
    /// ```
    /// use pullback::{Tensor, kink_report};
    /// let x = Tensor::from([-1.0, 2.0]).requires_grad();
    /// assert!(kink_report(|| x.relu()).1.is_empty());
    /// assert!(!kink_report(|| (&x + 1.0).relu()).1.is_empty()); // at 0
    /// ```
    pub fn is_empty(&self) -> bool {
        self.kinks.is_empty()
    }

    /// How many elements were at a kink.
    ///
    /// ```
    /// use pullback::{Tensor, kink_report};
    /// let x = Tensor::from([-1.0, 0.0, 0.0]).requires_grad();
    /// let (_, report) = kink_report(|| x.relu() + x.abs());
    /// assert_eq!(report.elements(), 4); // two of each
    /// ```
    pub fn elements(&self) -> usize {
        self.kinks.iter().map(|k| k.elements).sum()
    }
}

impl fmt::Display for KinkReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kinks.is_empty() {
            write!(f, "no element was at a kink")?;
        } else {
            let header = ["elements", "of", "calls", "op", "where", "derivative taken", "line"];
            let row = |k: &Kink| {
                let counts = [k.elements, k.total, k.calls].map(|n| n.to_string());
                let [elements, total, calls] = counts;
                let line = format!("{}:{}", k.at.file(), k.at.line());
                let (op, place) = (k.op.to_string(), k.place.to_string());
                [elements, total, calls, op, place, k.convention.clone(), line]
            };
            let rows: Vec<[String; 7]> = std::iter::once(header.map(String::from))
                .chain(self.kinks.iter().map(row))
                .collect();
            let width = |i: usize| rows.iter().map(|r| r[i].chars().count()).max().unwrap_or(0);
            let widths: [usize; 7] = std::array::from_fn(width);
            for (i, row) in rows.iter().enumerate() {
                let [a, b, c, d, e, g, line] = row;
                let [wa, wb, wc, wd, we, wg, _] = widths;
                let end = if i + 1 < rows.len() { "\n" } else { "" };
                write!(f, "{a:>wa$}  {b:>wb$}  {c:>wc$}  {d:wd$}  {e:we$}  {g:wg$}  {line}{end}")?;
            }
        }
        for (op, at) in &self.unseen {
            write!(f, "\nnot seen: `{op}` at {at}, inside a trace")?;
        }
        Ok(())
    }
}

/// A report in the making.
#[derive(Default)]
pub(super) struct Counter {
    /// Every op that may have kinks, also those without an element on one.
    kinks: Vec<Kink>,
    unseen: Vec<(&'static str, Line)>,
}

impl Counter {
    pub fn count(&mut self, kink: Kink) {
        match self.kinks.iter_mut().find(|k| k.is_alike(&kink)) {
            Some(known) => {
                known.elements += kink.elements;
                known.total += kink.total;
                known.calls += kink.calls;
            }
            None => self.kinks.push(kink),
        }
    }

    pub fn unseen(&mut self, name: &'static str, at: Line) {
        if !self.unseen.contains(&(name, at)) {
            self.unseen.push((name, at));
        }
    }

    pub fn add(&mut self, inner: Counter) {
        inner.kinks.into_iter().for_each(|k| self.count(k));
        inner.unseen.into_iter().for_each(|(name, at)| self.unseen(name, at));
    }

    pub fn report(&self) -> KinkReport {
        let mut kinks: Vec<Kink> = self.kinks.iter().filter(|k| k.elements > 0).cloned().collect();
        kinks.sort_by_key(|k| std::cmp::Reverse(k.elements));
        KinkReport { kinks, unseen: self.unseen.clone() }
    }
}
