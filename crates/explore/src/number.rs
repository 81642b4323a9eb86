//! Numbers and tensors as people read them.

use pullback::Tensor;
use serde_json::{Value, json};

/// How many significant digits are shown.
pub type SignificantDigits = usize;

/// A number: whole ones in full, others to this many significant digits.
pub fn plain(x: f64, digits: SignificantDigits) -> String {
    if x.is_nan() || x.is_infinite() {
        return match x {
            x if x.is_nan() => "NaN".into(),
            x if x > 0.0 => "∞".into(),
            _ => "-∞".into(),
        };
    }
    if x == 0.0 {
        return "0".into(); // minus zero too
    }
    if x.fract() == 0.0 && x.abs() < 1e15 {
        return format!("{x}");
    }
    let digits = digits.max(1);
    let scientific = format!("{x:.*e}", digits - 1);
    let exponent: i32 = scientific.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
    if !(-5..=14).contains(&exponent) {
        let (mantissa, _) = scientific.split_once('e').unwrap_or((&scientific, ""));
        return format!("{}e{exponent}", trimmed(mantissa));
    }
    let after = (digits as i32 - 1 - exponent).max(0) as usize;
    trimmed(&format!("{x:.after$}")).to_string()
}

fn trimmed(text: &str) -> &str {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    }
}

/// Elements on one axis that are shown; of longer ones, some from both ends.
const SHOWN: usize = 12;

/// A tensor on one line: `[[1, 2], [3, 4]]`.
pub fn tensor(x: &Tensor, digits: SignificantDigits) -> String {
    fn write(values: &[f64], shape: &[usize], digits: SignificantDigits) -> String {
        let [n, rest @ ..] = shape else { return plain(values[0], digits) };
        let size: usize = rest.iter().product();
        let item = |i: usize| write(&values[i * size..(i + 1) * size], rest, digits);
        let items: Vec<String> = match *n > SHOWN {
            false => (0..*n).map(item).collect(),
            true => {
                let ends = (0..SHOWN / 2).map(item);
                ends.chain(["…".to_string()]).chain((n - SHOWN / 2..*n).map(item)).collect()
            }
        };
        format!("[{}]", items.join(", "))
    }
    match x.is_empty() {
        true => format!("[] {}", x.spec()),
        false => write(&x.to_f64_vec(), x.shape(), digits),
    }
}

/// A tensor as nested JSON lists with all digits. What JSON cannot represent is a string: `"NaN"`,
/// `"inf"`, `"-inf"`.
pub fn to_json(x: &Tensor) -> Value {
    fn write(values: &[f64], shape: &[usize]) -> Value {
        let [n, rest @ ..] = shape else {
            return match values[0].is_finite() {
                true => json!(values[0]),
                false => json!(values[0].to_string()),
            };
        };
        let size: usize = rest.iter().product();
        (0..*n).map(|i| write(&values[i * size..(i + 1) * size], rest)).collect()
    }
    write(&x.to_f64_vec(), x.shape())
}

/// Bytes in the unit that suits them.
pub fn bytes(n: usize) -> String {
    match n {
        n if n < 10 << 10 => format!("{n} B"),
        n if n < 10 << 20 => format!("{:.1} KiB", n as f64 / 1024.0),
        n if n < 10 << 30 => format!("{:.1} MiB", n as f64 / f64::from(1 << 20)),
        n => format!("{:.1} GiB", n as f64 / f64::from(1 << 30)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_sensible_digits() {
        #[rustfmt::skip]
        let cases = [
            (5.880_511, "5.8805"), (1e-7, "1e-7"), (123_456.75, "123457"), (0.5, "0.5"), (6.0, "6"), (-0.000_012_345_6, "-0.000012346"),
            (1.5e20, "1.5e20"), (2.25e-12, "2.25e-12"), (f64::NAN, "NaN"), (-0.0, "0"),
        ];
        for (x, text) in cases {
            assert_eq!(plain(x, 5), text);
        }
    }

    #[test]
    fn tensors_are_nested() {
        assert_eq!(tensor(&Tensor::from([[1.0, 2.5], [3.0, 4.0]]), 5), "[[1, 2.5], [3, 4]]");
        assert_eq!(to_json(&Tensor::from([1.0, f64::INFINITY])).to_string(), r#"[1.0,"inf"]"#);
    }
}
