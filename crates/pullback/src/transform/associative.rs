//! Prefixes of an associative function, in logarithmically many steps.

use super::vmap::vmap;
use crate::{Error, Result, Tensor, Tree, cat, fail, mode, stack};
use pullback_ir::Line;

/// Combines all prefixes of the elements along an axis by an associative function (a parallel
/// prefix scan): x₀, f(x₀, x₁), f(f(x₀, x₁), x₂), … where each x is an element of every tensor of
/// `xs`. A [`scan`](crate::scan) takes as many steps one after the other as there are elements;
/// this takes 2·log₂ of them, each for many elements at once, and calls `f` about twice as often.
///
/// ```
/// use pullback::{Tensor, associative_scan};
/// let xs = Tensor::from([1.0, 2.0, 3.0, 4.0, 5.0]);
/// let products = associative_scan(|a: &Tensor, b: &Tensor| a * b, &xs, 0);
/// assert_eq!(products.to_vec::<f64>(), [1.0, 2.0, 6.0, 24.0, 120.0]);
///
/// // The linear recurrence hₜ = aₜ·hₜ₋₁ + bₜ, as prefixes of maps.
/// let (a, b) = (Tensor::full([4], 0.5), Tensor::from([1.0, 1.0, 1.0, 1.0]));
/// let then = |(a, b): &(Tensor, Tensor), (c, d): &(Tensor, Tensor)| (a * c, b * c + d);
/// let (_, h) = associative_scan(then, &(a, b), 0);
/// assert_eq!(h.to_vec::<f64>(), [1.0, 1.5, 1.75, 1.875]);
/// ```
///
/// `f` is given single elements, without the axis, and runs for many by [`vmap`](crate::vmap). It
/// must be associative (nothing checks that) and give what it is given: the same structure, shapes
/// and dtypes. The result is rounded as the tree of calls rounds, not as a scan does.
///
/// # Panics
/// If the tensors are not equally long along the axis, or `f` gives other specs than it is given.
#[track_caller]
pub fn associative_scan<T: Tree>(f: impl Fn(&T, &T) -> T, xs: &T, axis: isize) -> T {
    let at = mode::user_line(Line::caller());
    fail::or_raise(prefixes(&f, xs, axis, false, at).map_err(|e| e.at(at)))
}

/// [`associative_scan`] from the end: every element with all that come after it, the last one
/// first, as of the flipped elements.
///
/// ```
/// use pullback::{Tensor, associative_scan_reverse};
/// let xs = Tensor::from([1.0, 2.0, 3.0]);
/// let sums = associative_scan_reverse(|a: &Tensor, b: &Tensor| a + b, &xs, 0);
/// assert_eq!(sums.to_vec::<f64>(), [6.0, 5.0, 3.0]);
/// ```
///
/// # Panics
/// As [`associative_scan`].
#[track_caller]
pub fn associative_scan_reverse<T: Tree>(f: impl Fn(&T, &T) -> T, xs: &T, axis: isize) -> T {
    let at = mode::user_line(Line::caller());
    fail::or_raise(prefixes(&f, xs, axis, true, at).map_err(|e| e.at(at)))
}

fn prefixes<T: Tree>(
    f: &impl Fn(&T, &T) -> T,
    xs: &T,
    axis: isize,
    reverse: bool,
    at: Line,
) -> Result<T> {
    let op = "associative_scan";
    let leaves = xs.leaves();
    for x in &leaves {
        if !(-(x.rank() as isize)..x.rank() as isize).contains(&axis) {
            let message = format!("{} has no axis {axis}", x.spec());
            return Err(Error::argument(op, message).on(leaves.iter().map(Tensor::spec)));
        }
    }
    let front = |x: &Tensor| {
        let x = x.move_axis(axis, 0);
        if reverse { x.flip(0) } else { x }
    };
    let rows: Vec<Tensor> = mode::with_line(at, || leaves.iter().map(front).collect());
    let n = rows.first().map_or(0, |x| x.shape()[0]);
    if rows.iter().any(|x| x.shape()[0] != n) {
        let message = format!("the tensors are not equally long along axis {axis}");
        return Err(Error::shape(op, message).on(leaves.iter().map(Tensor::spec)));
    }
    // Many pairs at once: errors in `f` name its own lines, others the caller's.
    let pairs = vmap(|(a, b): &(T, T)| mode::with_own_lines(|| f(a, b)), 0, 0);
    let combine = |a: &[Tensor], b: &[Tensor]| -> Result<Vec<Tensor>> {
        let made = pairs(&(xs.with_leaves(a), xs.with_leaves(b))).leaves();
        if !made.iter().map(Tensor::spec).eq(a.iter().map(Tensor::spec)) {
            let list = |xs: &[Tensor]| {
                let one = |x: &Tensor| x.spec().with_shape(&x.shape()[1..]).to_string();
                format!("({})", xs.iter().map(one).collect::<Vec<_>>().join(", "))
            };
            let message = format!("the function makes {} of elements {}", list(&made), list(a));
            let hint = "an associative function gives the shapes and dtypes that it is given";
            return Err(Error::shape(op, message).hint(hint));
        }
        Ok(made)
    };
    mode::with_line(at, || {
        let all = scanned(&combine, &rows, n)?;
        let back = |x: &Tensor| {
            let x = if reverse { x.flip(0) } else { x.clone() };
            x.move_axis(0, axis)
        };
        Ok(xs.with_leaves(&all.iter().map(back).collect::<Vec<_>>()))
    })
}

/// Neighbours are combined, half as many are scanned, which gives the odd positions; each even
/// position follows from the odd one before it.
fn scanned(
    combine: &impl Fn(&[Tensor], &[Tensor]) -> Result<Vec<Tensor>>,
    rows: &[Tensor],
    n: usize,
) -> Result<Vec<Tensor>> {
    if n < 2 {
        return Ok(rows.iter().map(Tensor::deep_clone).collect());
    }
    let half = n / 2;
    let every = |start: usize, count: usize, which: isize| -> Vec<Tensor> {
        let pick = |x: &Tensor| {
            let shape = [&[count, 2], &x.shape()[1..]].concat();
            x.narrow(0, start as isize, 2 * count).reshape(shape).select_at(1, which)
        };
        rows.iter().map(pick).collect()
    };
    let first = |rows: &[Tensor], count: usize| -> Vec<Tensor> {
        rows.iter().map(|x| x.narrow(0, 0, count)).collect()
    };
    let odd = scanned(combine, &combine(&every(0, half, 0), &every(0, half, 1))?, half)?;
    // The even positions after the first: as many as there are odd ones before them.
    let later = (n - 1) / 2;
    let even = match later {
        0 => first(rows, 1),
        _ => {
            let made = combine(&first(&odd, later), &every(1, later, 1))?;
            let starts = first(rows, 1);
            starts.iter().zip(&made).map(|(a, b)| cat(&[a, b], 0)).collect()
        }
    };
    let woven = |(even, odd): (&Tensor, &Tensor)| {
        let shape = [&[2 * half], &odd.shape()[1..]].concat();
        let pairs = stack(&[&even.narrow(0, 0, half), odd], 1).reshape(shape);
        match n % 2 {
            0 => pairs,
            _ => cat(&[&pairs, &even.narrow(0, half as isize, 1)], 0),
        }
    };
    Ok(even.iter().zip(&odd).map(woven).collect())
}
