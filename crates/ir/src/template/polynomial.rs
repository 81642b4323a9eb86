//! Polynomials with a few terms through integers.

/// The terms of polynomials in one or two lengths, as exponents: each up to 2, 3 together.
fn terms(lengths: usize) -> &'static [[u32; 2]] {
    const TERMS: [[u32; 2]; 8] = [[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [0, 2], [2, 1], [1, 2]];
    match lengths {
        0 => &TERMS[..1],
        1 => &TERMS[..3],
        _ => &TERMS,
    }
}

fn term(exponents: &[u32; 2], lengths: &[usize]) -> Option<i128> {
    let mut product = 1i128;
    for (&n, &e) in lengths.iter().zip(exponents) {
        product = product.checked_mul((n as i128).checked_pow(e)?)?;
    }
    Some(product)
}

/// A polynomial: twice its coefficients, so that n·(n − 1)/2 is one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Polynomial(Vec<i64>);

impl Polynomial {
    /// Its value, if that is an integer.
    pub(super) fn at(&self, lengths: &[usize]) -> Option<i64> {
        let mut twice = 0i128;
        for (&c, exponents) in self.0.iter().zip(terms(lengths.len())) {
            if c != 0 {
                twice = twice.checked_add(i128::from(c).checked_mul(term(exponents, lengths)?)?)?;
            }
        }
        (twice % 2 == 0).then(|| i64::try_from(twice / 2).ok()).flatten()
    }
}

/// The polynomials through values at certain lengths.
pub(super) struct Polynomials<'a> {
    points: &'a [&'a [usize]],
    /// The first points' terms, inverted: from values to coefficients.
    inverse: Vec<Vec<f64>>,
}

impl<'a> Polynomials<'a> {
    /// `None` if the first points do not determine a polynomial, or there is none left to check it.
    pub(super) fn new(points: &'a [&'a [usize]]) -> Option<Polynomials<'a>> {
        let count = terms(points.first()?.len()).len();
        (points.len() > count).then_some(())?;
        let inverse = inverse(&points[..count])?;
        Some(Polynomials { points, inverse })
    }

    /// The polynomial through these values, if there is one.
    pub(super) fn through(&self, values: &[i64]) -> Option<Polynomial> {
        let twice = |row: &Vec<f64>| {
            let c: f64 = row.iter().zip(values).map(|(a, &v)| a * v as f64).sum();
            let rounded = (2.0 * c).round();
            (rounded.abs() < 9e15).then_some(rounded as i64)
        };
        let coefficients: Option<Vec<i64>> = self.inverse.iter().map(twice).collect();
        // Rounding may have missed it; a polynomial through all points is correct.
        let found = Polynomial(coefficients?);
        let right = self.points.iter().zip(values).all(|(at, &v)| found.at(at) == Some(v));
        right.then_some(found)
    }
}

/// The inverse of the matrix of terms at these points, by elimination.
fn inverse(points: &[&[usize]]) -> Option<Vec<Vec<f64>>> {
    let (k, terms) = (points.len(), terms(points.first()?.len()));
    // Lengths near 1: else the powers differ by orders of magnitude.
    let largest = points.iter().flat_map(|p| p.iter()).copied().max()?.max(1) as f64;
    let scaled = |p: &[usize], e: &[u32; 2]| -> f64 {
        p.iter().zip(e).map(|(&n, &e)| (n as f64 / largest).powi(e as i32)).product()
    };
    let mut rows: Vec<Vec<f64>> = (0..k)
        .map(|i| {
            let one = (0..k).map(|j| f64::from(u8::from(i == j)));
            terms.iter().map(|e| scaled(points[i], e)).chain(one).collect()
        })
        .collect();
    for c in 0..k {
        let best = (c..k).max_by(|&a, &b| rows[a][c].abs().total_cmp(&rows[b][c].abs()))?;
        rows.swap(c, best);
        let pivot = rows[c][c];
        if pivot.abs() < 1e-9 {
            return None;
        }
        rows[c].iter_mut().for_each(|x| *x /= pivot);
        let row = rows[c].clone();
        for (r, other) in rows.iter_mut().enumerate() {
            let factor = other[c];
            if r != c && factor != 0.0 {
                other.iter_mut().zip(&row).for_each(|(x, y)| *x -= factor * y);
            }
        }
    }
    let degree = |c: usize| terms[c].iter().sum::<u32>() as i32;
    let unscaled = |(c, row): (usize, Vec<f64>)| {
        row[k..].iter().map(|x| x / largest.powi(degree(c))).collect()
    };
    Some(rows.into_iter().enumerate().map(unscaled).collect())
}

/// Lengths to try, for one or two open lengths with these choices each: such that they determine a
/// polynomial, and one more that checks it. Empty if there are too few choices.
pub fn sample_points(choices: &[Vec<usize>]) -> Option<Vec<Vec<usize>>> {
    let pick = |list: &Vec<usize>, i: usize| list.get(i).copied();
    match choices {
        [one] => (0..4).map(|i| pick(one, i).map(|n| vec![n])).collect(),
        [a, b] => {
            // A grid of three by three without a corner determines the eight terms.
            const GRID: [(usize, usize); 9] =
                [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (3, 3)];
            GRID.iter().map(|&(i, j)| Some(vec![pick(a, i)?, pick(b, j)?])).collect()
        }
        _ => None,
    }
}
