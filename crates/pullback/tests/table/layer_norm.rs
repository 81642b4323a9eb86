//! Layer normalisation as its definition says, row by row.

use super::naive::{Array, indices, ravel};

/// Mean and 1/σ of one row.
pub fn moments(x: &Array, head: &[usize], tail: &[usize], eps: f64) -> (f64, f64) {
    let row: Vec<f64> = indices(tail).iter().map(|t| x.at(&[head, t].concat())).collect();
    let n = row.len() as f64;
    let mean = row.iter().sum::<f64>() / n;
    let var = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
    (mean, 1.0 / (var + eps).sqrt())
}

pub fn backward(eps: f64, x: &Array, w: &Array, dy: &Array) -> Vec<Array> {
    let lead = x.shape.len() - w.shape.len();
    let mut dx = x.clone();
    let (mut dw, mut db) = (w.map(|_| 0.0), w.map(|_| 0.0));
    let tails = indices(&w.shape);
    for head in indices(&x.shape[..lead]) {
        let (mean, scale) = moments(x, &head, &w.shape, eps);
        let at = |a: &Array, t: &[usize]| a.at(&[&head, t].concat());
        let hat = |t: &[usize]| (at(x, t) - mean) * scale;
        let n = tails.len() as f64;
        let g_mean = tails.iter().map(|t| at(dy, t) * w.at(t)).sum::<f64>() / n;
        let gx_mean = tails.iter().map(|t| at(dy, t) * w.at(t) * hat(t)).sum::<f64>() / n;
        for (k, t) in tails.iter().enumerate() {
            dx.values[ravel(&[&head, &t[..]].concat(), &x.shape)] =
                scale * (at(dy, t) * w.at(t) - g_mean - hat(t) * gx_mean);
            dw.values[k] += at(dy, t) * hat(t);
            db.values[k] += at(dy, t);
        }
    }
    vec![dx, dw, db]
}
