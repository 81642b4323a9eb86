//! Templates: one program for all lengths of an axis (dynamic shapes), found by fitting.
//!
//! Shapes are plain numbers to the functions that are traced, so a length cannot be a symbol while
//! they run. Instead a function is traced at a few lengths, and the common part of the programs is
//! kept: a *skeleton* (ops, variables, axes, dtypes), which must be the same, and for every number
//! (`numbers`) a polynomial in the lengths, which must pass through all samples, one more than it
//! has coefficients. [`Template::at`] fills in other lengths.
//!
//! # When that is right
//!
//! A template of a *trace* is compared with the trace at the requested length ([`Template::is`]),
//! so nothing about a function is assumed: one that behaves differently for short inputs is
//! detected. A template of an *optimised* program is the result of the passes on the trace. Passes
//! decide by equalities between numbers (this slice is the whole axis), which hold for all lengths
//! where they hold as polynomials, and by inequalities that choose between equivalent programs (is
//! this worth fusing?), or that hold wherever the resulting program has no negative size. But
//! they also compute with the *values* of literals (n > 30 folds to true), so literals whose value
//! depends on the length become inputs before the passes run ([`lift_literals`]).
//!
//! ```
//! use pullback_ir::{Program, template::Template};
//! let at = |n: usize| -> Program {
//!     let m = 3 * n;
//!     format!("program (a: f32[{n},3]) {{ let b: f32[{m}] = reshape{{[{m}]}} a; return b }}").parse().unwrap()
//! };
//! let template = Template::fit(&[(vec![7], at(7)), (vec![11], at(11)), (vec![13], at(13)), (vec![5], at(5))]).unwrap();
//! assert_eq!(template.at(&[100]).unwrap(), at(100));
//! assert!(template.is(&at(9), &[9]) && !template.is(&at(9), &[8]));
//! ```

mod lift;
mod numbers;
mod polynomial;

pub use lift::{Lifted, lift_literals, varying_literals};
pub use polynomial::sample_points;

use crate::{Program, Real, Scalar};
use numbers::{NumberMut, visit};
use polynomial::{Polynomial, Polynomials};

/// A program with open lengths. See the head of the module.
pub struct Template {
    /// The program with zeros for its numbers.
    skeleton: Program,
    fits: Vec<SizeFit>,
    /// How many of the numbers are lengths of axes: they come first.
    axes: usize,
}

/// A number in a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SampleNumber {
    Int(i64),
    Value(Scalar),
}

/// A number for all lengths.
#[derive(Clone, Debug)]
enum SizeFit {
    /// The same for all.
    Same(SampleNumber),
    /// A size, a stride or an offset.
    Size(Polynomial),
    /// The value of a literal that is an integer, as a float or not.
    Value { whole: Polynomial, float: bool },
}

impl SizeFit {
    fn at(&self, lengths: &[usize]) -> Option<SampleNumber> {
        Some(match self {
            SizeFit::Same(found) => *found,
            SizeFit::Size(polynomial) => SampleNumber::Int(polynomial.at(lengths)?),
            SizeFit::Value { whole, float: true } => {
                SampleNumber::Value(Scalar::Float(Real(whole.at(lengths)? as f64)))
            }
            SizeFit::Value { whole, float: false } => {
                SampleNumber::Value(Scalar::Int(whole.at(lengths)?))
            }
        })
    }
}

/// Extracts the numbers of a program, leaving zeros.
fn split(mut program: Program) -> (Program, Vec<SampleNumber>) {
    let mut found = Vec::new();
    visit(&mut program, &mut |number| {
        found.push(match number {
            NumberMut::Size(n) => SampleNumber::Int(std::mem::take(n) as i64),
            NumberMut::Signed(n) => SampleNumber::Int(std::mem::take(n) as i64),
            NumberMut::Value(value) => {
                SampleNumber::Value(std::mem::replace(value, Scalar::Bool(false)))
            }
        });
    });
    (program, found)
}

impl Template {
    /// The template of programs that were traced at these lengths, as many as [`sample_points`]
    /// returns.
    ///
    /// # Errors
    /// A message about what differs between them.
    pub fn fit(samples: &[(Vec<usize>, Program)]) -> Result<Template, String> {
        let points: Vec<&[usize]> = samples.iter().map(|s| &s.0[..]).collect();
        let polynomials = Polynomials::new(&points).ok_or("too few lengths were tried")?;
        let mut all = samples.iter().map(|(_, program)| split(program.clone()));
        let Some((skeleton, first)) = all.next() else {
            return Err("no length was tried".to_string());
        };
        let mut columns: Vec<Vec<SampleNumber>> =
            first.into_iter().map(|found| vec![found]).collect();
        for (k, (other, numbers)) in all.enumerate() {
            if let Some(difference) = difference(&skeleton, &other) {
                let (a, b) = (&samples[0].0, &samples[k + 1].0);
                return Err(format!("{difference} at the lengths {a:?} and {b:?}"));
            }
            columns.iter_mut().zip(numbers).for_each(|(column, found)| column.push(found));
        }
        let fit = |column: &Vec<SampleNumber>| {
            if column.iter().all(|found| *found == column[0]) {
                return Some(SizeFit::Same(column[0]));
            }
            if column.iter().any(|found| found.kind() != column[0].kind()) {
                return None;
            }
            let whole: Option<Vec<i64>> = column.iter().map(|found| found.whole()).collect();
            let polynomial = polynomials.through(&whole?)?;
            Some(match column[0] {
                SampleNumber::Int(_) => SizeFit::Size(polynomial),
                SampleNumber::Value(value) => {
                    SizeFit::Value { whole: polynomial, float: matches!(value, Scalar::Float(_)) }
                }
            })
        };
        let fits: Option<Vec<SizeFit>> = columns.iter().map(fit).collect();
        match fits {
            Some(fits) => {
                let axes = skeleton.specs.iter().map(|spec| spec.shape.len()).sum();
                Ok(Template { skeleton, fits, axes })
            }
            None => Err("a size or a number is not a polynomial in the lengths".to_string()),
        }
    }

    /// Whether the value of a literal depends on a length, which no pass may see.
    pub fn has_varying_values(&self) -> bool {
        self.fits.iter().any(|fit| matches!(fit, SizeFit::Value { .. }))
    }

    /// The program at these lengths; `None` if a size would be negative or not an integer, or if an
    /// axis that changes would have length 0 or 1, for which passes have special cases.
    pub fn at(&self, lengths: &[usize]) -> Option<Program> {
        let mut program = self.skeleton.clone();
        let (mut fits, mut right) = (self.fits.iter().enumerate(), true);
        visit(&mut program, &mut |number| {
            let next = fits.next();
            let found = next.and_then(|(_, fit)| fit.at(lengths));
            let varies = matches!(next, Some((i, SizeFit::Size(_))) if i < self.axes);
            right &= !(varies && matches!(found, Some(SampleNumber::Int(..2))));
            right &= match (number, found) {
                (NumberMut::Size(n), Some(SampleNumber::Int(v))) => {
                    usize::try_from(v).map(|v| *n = v).is_ok()
                }
                (NumberMut::Signed(n), Some(SampleNumber::Int(v))) => {
                    isize::try_from(v).map(|v| *n = v).is_ok()
                }
                (NumberMut::Value(value), Some(SampleNumber::Value(v))) => {
                    *value = v;
                    true
                }
                (NumberMut::Size(_) | NumberMut::Signed(_) | NumberMut::Value(_), _) => false,
            };
        });
        right.then_some(program)
    }

    /// Whether this is the program at these lengths.
    pub fn is(&self, program: &Program, lengths: &[usize]) -> bool {
        let (skeleton, found) = split(program.clone());
        skeleton == self.skeleton
            && self.fits.iter().zip(&found).all(|(fit, found)| fit.at(lengths) == Some(*found))
    }
}

impl SampleNumber {
    fn kind(self) -> u8 {
        match self {
            SampleNumber::Int(_) => 0,
            SampleNumber::Value(Scalar::Int(_)) => 1,
            SampleNumber::Value(Scalar::Float(_)) => 2,
            SampleNumber::Value(Scalar::Bool(_)) => 3,
        }
    }

    /// An integer, or a float that is exactly one.
    fn whole(self) -> Option<i64> {
        match self {
            SampleNumber::Int(v) | SampleNumber::Value(Scalar::Int(v)) => Some(v),
            SampleNumber::Value(Scalar::Float(Real(v))) => {
                (v.fract() == 0.0 && v.abs() < 9e15 && (v != 0.0 || v.is_sign_positive()))
                    .then_some(v as i64)
            }
            SampleNumber::Value(Scalar::Bool(_)) => None,
        }
    }
}

/// How two skeletons differ, if they do.
fn difference(a: &Program, b: &Program) -> Option<String> {
    if a == b {
        return None;
    }
    if a.equations.len() != b.equations.len() {
        let (a, b) = (a.equations.len(), b.equations.len());
        return Some(format!("the programs have {a} and {b} equations"));
    }
    let other = a.equations.iter().zip(&b.equations).find(|(a, b)| a != b);
    Some(match other {
        Some((a, b)) => {
            let line = a.at.map_or(String::new(), |at| format!(" ({at})"));
            format!("`{}`{line} differs from `{}`", a.op.name(), b.op.name())
        }
        None => "inputs, outputs or the variables differ".to_string(),
    })
}
