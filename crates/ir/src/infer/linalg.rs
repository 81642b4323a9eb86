//! Factorisations of matrices, and linear systems.

use super::{Specs, fits_memory, operands};
use crate::{DType, Error, Linalg, Result, Shape, Spec};
use smallvec::smallvec;

pub(super) fn linalg(f: Linalg, inputs: &[&Spec]) -> Result<Specs> {
    let op = f.name();
    let specs = rule(f, op, inputs)?;
    match specs.iter().find(|s| !fits_memory(&s.shape)) {
        None => Ok(specs),
        Some(s) => {
            let message = format!("a result of shape {:?} exceeds the addressable size", s.shape);
            Err(Error::shape(op, message).on(inputs.iter().copied()))
        }
    }
}

fn rule(f: Linalg, op: &'static str, inputs: &[&Spec]) -> Result<Specs> {
    Ok(match f {
        Linalg::Cholesky => {
            let [a] = operands(op, inputs)?;
            floats(op, inputs)?;
            square(op, a)?;
            smallvec![a.clone()]
        }
        Linalg::Eigh => {
            let [a] = operands(op, inputs)?;
            floats(op, inputs)?;
            let n = square(op, a)?;
            smallvec![ending(a, &[n]), a.clone()]
        }
        Linalg::TriangularSolve { .. } => {
            let [a, b] = operands(op, inputs)?;
            floats(op, inputs)?;
            system(op, a, b)?;
            smallvec![b.clone()]
        }
        Linalg::Lu => {
            let [a] = operands(op, inputs)?;
            floats(op, inputs)?;
            let (m, n) = matrix(op, a)?;
            smallvec![a.clone(), ending(a, &[m.min(n)]).with_dtype(DType::I32)]
        }
        Linalg::Permutation(rows) => {
            let [pivots] = operands(op, inputs)?;
            check_pivots(op, pivots)?;
            match pivots.shape.last() {
                Some(&k) if k <= rows => {
                    let mut y = pivots.with_dtype(DType::I64);
                    *y.shape.last_mut().expect("it has a last axis") = rows;
                    smallvec![y]
                }
                _ => {
                    let message = format!("{pivots} are not the pivots of {rows} rows");
                    return Err(Error::shape(op, message).on([pivots]));
                }
            }
        }
        Linalg::LuSolve { .. } => {
            let [a, lu, pivots, b] = operands(op, inputs)?;
            floats(op, &[a, lu, b])?;
            let n = system(op, a, b)?;
            check_pivots(op, pivots)?;
            if lu.shape != a.shape || *pivots != ending(a, &[n]).with_dtype(DType::I32) {
                let message = format!("{lu} and {pivots} are not the factors of {a}");
                return Err(Error::shape(op, message).on([a, lu, pivots, b]));
            }
            smallvec![b.clone()]
        }
        Linalg::Qr { complete } => {
            let [a] = operands(op, inputs)?;
            floats(op, inputs)?;
            let (m, n) = matrix(op, a)?;
            let k = if complete { m } else { m.min(n) };
            smallvec![ending(a, &[m, k]), ending(a, &[k, n])]
        }
        Linalg::Spectrum { singular } => {
            let [a] = operands(op, inputs)?;
            floats(op, inputs)?;
            let (m, n) = if singular { matrix(op, a)? } else { (square(op, a)?, usize::MAX) };
            smallvec![ending(a, &[m.min(n)])]
        }
        Linalg::Svd { full } => {
            let [a] = operands(op, inputs)?;
            floats(op, inputs)?;
            let (m, n) = matrix(op, a)?;
            let k = m.min(n);
            let (left, right) = if full { (m, n) } else { (k, k) };
            smallvec![ending(a, &[m, left]), ending(a, &[k]), ending(a, &[right, n])]
        }
    })
}

/// `a` with other lengths instead of its last two.
fn ending(a: &Spec, last: &[usize]) -> Spec {
    let mut shape = Shape::from_slice(&a.shape[..a.shape.len() - 2]);
    shape.extend_from_slice(last);
    a.with_shape(shape)
}

/// The rows and columns of a stack of matrices.
fn matrix(op: &'static str, a: &Spec) -> Result<(usize, usize)> {
    match a.shape[..] {
        [.., m, n] => Ok((m, n)),
        _ => Err(Error::shape(op, format!("takes matrices, not {a}")).on([a])),
    }
}

fn square(op: &'static str, a: &Spec) -> Result<usize> {
    match matrix(op, a)? {
        (m, n) if m == n => Ok(n),
        (m, n) => {
            let message = format!("takes square matrices, not {a} ({m} ≠ {n})");
            Err(Error::shape(op, message).on([a]))
        }
    }
}

/// A·X = B with the same batches in both.
fn system(op: &'static str, a: &Spec, b: &Spec) -> Result<usize> {
    let n = square(op, a)?;
    let (rows, _) = matrix(op, b)?;
    let lead = |x: &Spec| x.shape.len() - 2;
    if rows != n || a.shape[..lead(a)] != b.shape[..lead(b)] {
        let message = format!("{a} and {b} do not form linear systems (rows or batches differ)");
        return Err(Error::shape(op, message).on([a, b]));
    }
    Ok(n)
}

fn check_pivots(op: &'static str, pivots: &Spec) -> Result<()> {
    if pivots.dtype == DType::I32 {
        return Ok(());
    }
    Err(Error::dtype(op, format!("pivots are i32, not {}", pivots.dtype)).on([pivots]))
}

/// One dtype, f32 or f64: factorisations in 8 or 11 bits are useless.
fn floats(op: &'static str, inputs: &[&Spec]) -> Result<()> {
    let dtype = inputs[0].dtype;
    if matches!(dtype, DType::F32 | DType::F64) && inputs.iter().all(|s| s.dtype == dtype) {
        return Ok(());
    }
    let error = Error::dtype(op, "takes operands of one dtype, f32 or f64");
    let error = if dtype.is_float() { error.hint("cast to f32 first") } else { error };
    Err(error.on(inputs.iter().copied()))
}
