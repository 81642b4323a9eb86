//! Printing values, laid out as NumPy does.
//!
//! All elements of a tensor are written in one style, so that columns align: the layout of the
//! numbers is found first ([`Style`]), from the elements that will be shown, and then each is
//! written into the same width. Beyond [`SUMMARISED`] elements only the edges of each axis are
//! shown, and only those are read.

use crate::tape::History;
use crate::{DType, Tensor, fail, mode};
use half::{bf16, f16};
use std::fmt::{self, Write as _};

/// Columns that a line of values fills at most.
const LINE: usize = 75;
/// With more elements than this, the middle of long axes is left out.
const SUMMARISED: usize = 1000;
/// How many elements are shown at each edge of an axis whose middle is left out.
const EDGE: usize = 3;
/// Digits after the point, at most.
const PRECISION: usize = 8;

impl fmt::Display for Tensor {
    /// The values: nested brackets with aligned columns. Floats have as many digits as they need,
    /// up to eight after the point; `{:.3}` gives all exactly three.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[1.0, -2.5], [0.125, 30.0]]);
    /// assert_eq!(x.to_string(), "[[ 1.    -2.5  ]\n [ 0.125 30.   ]]");
    /// assert_eq!(format!("{x:.1}"), "[[ 1.0 -2.5]\n [ 0.1 30.0]]");
    /// assert_eq!(Tensor::from(0.5).to_string(), "0.5");
    /// ```
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = values(self, f.precision());
        match f.width() {
            Some(width) if self.rank() == 0 => write!(f, "{values:>width$}"),
            _ => f.write_str(&values),
        }
    }
}

impl fmt::Debug for Tensor {
    /// Spec, place in the graph, and values.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1.0, 2.0]).requires_grad();
    /// assert_eq!(format!("{x:?}"), "Tensor(f64[2], requires_grad) [1. 2.]");
    /// let y = &x * &x;
    /// assert!(format!("{y:?}").starts_with("Tensor(f64[2], tracked by `mul` at "));
    /// ```
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({}", self.spec())?;
        // Cloned, so that no lock is held while writing.
        let history = self.lock().history.clone();
        match history {
            History::None | History::Cut(_) => {}
            History::Leaf(_) => f.write_str(", requires_grad")?,
            History::Node(node, _) => {
                write!(f, ", tracked by `{}` at {}", node.op.name(), node.at)?
            }
        }
        let values = if self.is_empty() { "[]".to_string() } else { values(self, f.precision()) };
        let gap = if values.contains('\n') { '\n' } else { ' ' };
        write!(f, "){gap}{values}")
    }
}

/// The values as text; never a panic, since this is what a panic message may be made of.
fn values(x: &Tensor, precision: Option<usize>) -> String {
    if x.is_empty() {
        let lengths: Vec<String> = x.shape().iter().map(usize::to_string).collect();
        return match lengths.len() {
            1 => "[]".to_string(),
            _ => format!("[], shape [{}]", lengths.join(",")),
        };
    }
    match fail::catch(|| mode::set_recording(false, || Shown::of(x, precision))) {
        Ok(shown) => shown.text(),
        Err(error) => format!("<values cannot be read: {}>", error.message()),
    }
}

/// The elements that are shown, already as text of one width.
struct Shown {
    shape: Vec<usize>,
    /// Which axes have their middle left out.
    cut: Vec<bool>,
    words: Vec<String>,
}

impl Shown {
    fn of(x: &Tensor, precision: Option<usize>) -> Shown {
        let mut part = x.detach();
        let summarised = x.len() > SUMMARISED;
        let cut: Vec<bool> = x.shape().iter().map(|&n| summarised && n > 2 * EDGE).collect();
        for (axis, _) in cut.iter().enumerate().filter(|(_, cut)| **cut) {
            let (n, edge) = (x.shape()[axis] as i64, EDGE as i64);
            let index: Vec<i64> = (0..edge).chain(n - edge..n).collect();
            part = part.index_select(axis as isize, &part.new_tensor(index));
        }
        let dtype = x.dtype();
        let words = match dtype {
            _ if dtype.is_float() => floats(&part.to_f64_vec(), dtype, precision, x.rank() == 0),
            DType::Bool => aligned(integers(&part).into_iter().map(|v| (v != 0).to_string())),
            _ => aligned(integers(&part).into_iter().map(|v| v.to_string())),
        };
        Shown { shape: part.shape().to_vec(), cut, words }
    }

    fn text(&self) -> String {
        let mut out = String::new();
        self.axis(0, 0, LINE, &mut out);
        out
    }

    /// Writes axis `axis` of the part of `words` that starts at `start`. The first line is already
    /// indented as far as the bracket; lines have room for `width`.
    fn axis(&self, axis: usize, start: usize, width: usize, out: &mut String) {
        let Some(&n) = self.shape.get(axis) else {
            out.push_str(&self.words[start]);
            return;
        };
        let stride: usize = self.shape[axis + 1..].iter().product();
        out.push('[');
        if axis + 1 == self.shape.len() {
            let dots = "...";
            let mut words: Vec<&str> =
                self.words[start..start + n].iter().map(String::as_str).collect();
            if self.cut[axis] {
                words.insert(EDGE, dots);
            }
            wrap(&words, axis + 1, width - 1, out);
        } else {
            let newlines = "\n".repeat(self.shape.len() - axis - 1);
            let indent = " ".repeat(axis + 1);
            for i in 0..n {
                if i > 0 {
                    out.push_str(&newlines);
                    out.push_str(&indent);
                }
                if i == EDGE && self.cut[axis] {
                    let _ = write!(out, "...{newlines}{indent}");
                }
                self.axis(axis + 1, start + i * stride, width - 1, out);
            }
        }
        out.push(']');
    }
}

/// Writes words between spaces, breaking the line before one that ends beyond `width`.
fn wrap(words: &[&str], indent: usize, width: usize, out: &mut String) {
    let mut column = indent;
    for (i, word) in words.iter().enumerate() {
        let length = word.chars().count();
        if i > 0 && column + 1 + length > width {
            out.truncate(out.trim_end().len());
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
        } else if i > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
}

fn integers(x: &Tensor) -> Vec<i64> {
    x.cast(DType::I64).to_vec()
}

fn aligned(words: impl Iterator<Item = String>) -> Vec<String> {
    let words: Vec<String> = words.collect();
    let width = words.iter().map(String::len).max().unwrap_or(0);
    words.into_iter().map(|w| format!("{w:>width$}")).collect()
}

/// Floats as text of one width.
fn floats(values: &[f64], dtype: DType, precision: Option<usize>, single: bool) -> Vec<String> {
    if let ([value], true, None) = (values, single, precision) {
        return vec![scalar(*value, dtype)];
    }
    let style = Style::of(values, dtype, precision);
    let words: Vec<String> = values.iter().map(|&v| style.write(v)).collect();
    aligned(words.into_iter())
}

/// How all floats of a tensor are written.
struct Style {
    dtype: DType,
    scientific: bool,
    precision: usize,
    /// Digits after the point that every number fills: with spaces, or with zeros if `zeros`.
    fraction: usize,
    zeros: bool,
    /// Digits of the longest exponent.
    exponent: usize,
}

impl Style {
    /// Scientific for numbers from 1e8 on (less where the dtype has fewer digits), below 1e-4, or
    /// of more than three orders of magnitude.
    fn of(values: &[f64], dtype: DType, precision: Option<usize>) -> Style {
        let sizes = values.iter().map(|v| v.abs()).filter(|v| v.is_finite() && *v != 0.0);
        let (low, high) = sizes.fold((f64::INFINITY, 0f64), |(l, h), v| (l.min(v), h.max(v)));
        let wide = high >= large(dtype) || low < small(dtype) || high / low > 1000.0;
        let scientific = high > 0.0 && wide;
        let (fraction, zeros) = (precision.unwrap_or(0), precision.is_some());
        let precision = precision.unwrap_or(PRECISION);
        let mut style = Style { dtype, scientific, precision, fraction, zeros, exponent: 2 };
        for &value in values.iter().filter(|v| v.is_finite()) {
            let (_, after, exponent) = style.digits(value);
            if !zeros {
                style.fraction = style.fraction.max(after.len());
            }
            style.exponent = style.exponent.max(exponent.trim_start_matches('-').len());
        }
        style.zeros |= scientific;
        style
    }

    /// What stands before the point, after it, and in the exponent (which may be empty).
    fn digits(&self, value: f64) -> (String, String, String) {
        let text = match (self.scientific, self.zeros) {
            (true, true) => format!("{value:.*e}", self.fraction),
            (false, true) => format!("{value:.*}", self.fraction),
            // As many digits as tell the number from its neighbours, but no more than allowed.
            (true, false) => {
                let shortest = shortest(value, self.dtype);
                let (mantissa, _) = shortest.split_once('e').unwrap_or((&shortest, ""));
                let long =
                    mantissa.split_once('.').is_some_and(|(_, after)| after.len() > self.precision);
                if long { format!("{value:.*e}", self.precision) } else { shortest }
            }
            (false, false) => {
                let shortest = positional(&shortest(value, self.dtype));
                let long =
                    shortest.split_once('.').is_some_and(|(_, after)| after.len() > self.precision);
                if long { format!("{value:.*}", self.precision) } else { shortest }
            }
        };
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, ""));
        let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let after = if self.zeros { after } else { after.trim_end_matches('0') };
        (before.to_string(), after.to_string(), exponent.to_string())
    }

    fn write(&self, value: f64) -> String {
        if !value.is_finite() {
            return non_finite(value);
        }
        let (before, after, exponent) = self.digits(value);
        let point = if self.zeros && !self.scientific && self.fraction == 0 { "" } else { "." };
        let mut text = format!("{before}{point}{after:<width$}", width = self.fraction);
        if self.scientific {
            text.push_str(&written_exponent(&exponent, self.exponent));
        }
        text
    }
}

fn non_finite(value: f64) -> String {
    match (value.is_nan(), value > 0.0) {
        (true, _) => "nan".to_string(),
        (_, true) => "inf".to_string(),
        (_, false) => "-inf".to_string(),
    }
}

/// An exponent with its sign and this many digits.
fn written_exponent(exponent: &str, width: usize) -> String {
    match exponent.strip_prefix('-') {
        Some(digits) => format!("e-{digits:0>width$}"),
        None => format!("e+{exponent:0>width$}"),
    }
}

/// From here on numbers of the dtype are written with an exponent: their last digits would be made
/// up.
fn large(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 1e6,
        DType::F16 | DType::BF16 => 1e3,
        _ => 1e8,
    }
}

/// 0.0001 as the dtype has it: what is smaller is written with an exponent.
fn small(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => f64::from(1e-4f32),
        DType::F16 => f64::from(f16::from_f64(1e-4)),
        DType::BF16 => f64::from(bf16::from_f64(1e-4)),
        _ => 1e-4,
    }
}

/// A number by itself: the shortest text that reads back as the same number of its dtype.
fn scalar(value: f64, dtype: DType) -> String {
    if !value.is_finite() {
        return non_finite(value);
    }
    let short = shortest(value, dtype);
    if value != 0.0 && !(small(dtype)..1e16).contains(&value.abs()) {
        let (mantissa, exponent) = short.split_once('e').unwrap_or((&short, "0"));
        return format!("{mantissa}{}", written_exponent(exponent, 2));
    }
    let text = positional(&short);
    if text.contains('.') { text } else { text + ".0" }
}

/// The fewest digits that read back as the same number of the dtype, as `1.25e-3`.
fn shortest(value: f64, dtype: DType) -> String {
    let same = |text: &str| {
        text.parse::<f64>().is_ok_and(|v| match dtype {
            DType::BF16 => f64::from(bf16::from_f64(v)) == value,
            _ => f64::from(f16::from_f64(v)) == value,
        })
    };
    match dtype {
        DType::F32 => format!("{:e}", value as f32),
        DType::BF16 | DType::F16 => {
            let found =
                (0..PRECISION).map(|digits| format!("{value:.digits$e}")).find(|text| same(text));
            found.unwrap_or_else(|| format!("{value:e}"))
        }
        _ => format!("{value:e}"),
    }
}

/// `1.25e-3` as `0.00125`.
fn positional(scientific: &str) -> String {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |m| ("-", m));
    let digits: String = mantissa.chars().filter(|c| *c != '.').collect();
    let point = exponent.parse::<isize>().unwrap_or(0) + 1;
    let text = match usize::try_from(point) {
        Ok(point) if point >= digits.len() => format!("{digits:0<point$}"),
        Ok(point) if point > 0 => format!("{}.{}", &digits[..point], &digits[point..]),
        _ => format!("0.{}{digits}", "0".repeat(point.unsigned_abs())),
    };
    format!("{sign}{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(x: impl Into<Tensor>) -> String {
        x.into().to_string()
    }

    /// A multiline text as it is written in these tests: each line after a `|`.
    fn lines(text: &str) -> String {
        let lines: Vec<&str> =
            text.lines().filter_map(|l| l.split_once('|')).map(|l| l.1).collect();
        lines.join("\n")
    }

    // The expected texts are NumPy's, except where a comment says otherwise.

    #[test]
    fn floats_share_a_precision() {
        assert_eq!(shown([1.0, 2.0, 3.0]), "[1. 2. 3.]");
        assert_eq!(shown([[1.0, -2.5], [0.125, 30.0]]), "[[ 1.    -2.5  ]\n [ 0.125 30.   ]]");
        assert_eq!(shown([0.1f32, 1.0 / 3.0]), "[0.1        0.33333334]");
        assert_eq!(shown([0.1, 1.0 / 3.0]), "[0.1        0.33333333]");
        assert_eq!(shown([123456.789, 1000.5]), "[123456.789   1000.5  ]");
        assert_eq!(shown([99999999.9999999, 1e6]), "[99999999.9999999  1000000.       ]");
        assert_eq!(shown([-0.0, 1.0]), "[-0.  1.]");
        assert_eq!(shown([0.0, 0.0]), "[0. 0.]");
        assert_eq!(shown([0.00012345678912, 0.0001]), "[0.00012346 0.0001    ]");
        assert_eq!(shown([0.999999999999, 1.0]), "[1. 1.]");
        assert_eq!(shown([0.0001f32, 0.01]), "[0.0001 0.01  ]");
    }

    #[test]
    fn wide_ranges_are_scientific() {
        assert_eq!(shown([1e-5, 150.0]), "[1.0e-05 1.5e+02]");
        assert_eq!(shown([1e8, 1.0]), "[1.e+08 1.e+00]");
        assert_eq!(shown([1234567.1f32, 7654321.2]), "[1.2345671e+06 7.6543210e+06]");
        assert_eq!(shown([1e-5, -2.25e-5, 0.0]), "[ 1.00e-05 -2.25e-05  0.00e+00]");
        assert_eq!(shown([1e300, 1.0, f64::NAN]), "[1.e+300 1.e+000     nan]");
    }

    #[test]
    fn nan_and_infinity_take_part_in_the_columns() {
        assert_eq!(shown([f64::NAN, 1.0, f64::NEG_INFINITY]), "[ nan   1. -inf]");
        assert_eq!(shown([f64::NAN, f64::INFINITY]), "[nan inf]");
        assert_eq!(shown([f64::NEG_INFINITY, 1e10]), "[  -inf 1.e+10]");
    }

    #[test]
    fn half_types_show_the_digits_they_have() {
        assert_eq!(shown([f16::from_f64(0.1), f16::from_f64(0.2)]), "[0.1 0.2]");
        assert_eq!(shown([bf16::from_f64(0.1), bf16::from_f64(3.0)]), "[0.1 3. ]");
        assert_eq!(shown(f16::from_f64(0.1)), "0.1");
    }

    #[test]
    fn integers_and_booleans() {
        assert_eq!(shown([1i64, -20, 300]), "[  1 -20 300]");
        assert_eq!(shown([i64::MAX, i64::MIN]), "[ 9223372036854775807 -9223372036854775808]");
        assert_eq!(shown([1u8, 255]), "[  1 255]");
        // In Rust's words, and no wider than needed.
        assert_eq!(shown([[true, false], [true, true]]), "[[ true false]\n [ true  true]]");
        assert_eq!(shown([true]), "[true]");
    }

    #[test]
    fn scalars_are_the_shortest_text_that_reads_back() {
        assert_eq!(shown(1.0), "1.0");
        assert_eq!(shown(1e-7), "1e-07");
        assert_eq!(shown(0.1f32), "0.1");
        assert_eq!(shown(1.0 / 3.0), "0.3333333333333333");
        assert_eq!(shown(-1234.5), "-1234.5");
        assert_eq!(shown(1.5e20), "1.5e+20");
        assert_eq!(shown(f64::NAN), "nan");
        assert_eq!(shown(7i64), "7");
        assert_eq!(format!("{:8.3}|", Tensor::from(2.0 / 3.0)), "   0.667|");
    }

    #[test]
    fn a_precision_is_obeyed() {
        assert_eq!(format!("{:.2}", Tensor::from([1.0, -0.125])), "[ 1.00 -0.12]");
        assert_eq!(format!("{:.0}", Tensor::from([1.0, 2.5])), "[1 2]");
        assert_eq!(format!("{:.1}", Tensor::from([1.0, 25000.0])), "[1.0e+00 2.5e+04]");
    }

    #[test]
    fn ranks_nest() {
        let want = "
            |[[[ 0  1  2  3]
            |  [ 4  5  6  7]
            |  [ 8  9 10 11]]
            |
            | [[12 13 14 15]
            |  [16 17 18 19]
            |  [20 21 22 23]]]";
        assert_eq!(shown(Tensor::arange(0, 24).reshape([2, 3, 4])), lines(want));
        assert_eq!(shown(Tensor::zeros([1, 2, 1, 1])), "[[[[0.]]\n\n  [[0.]]]]");
    }

    #[test]
    fn long_rows_wrap() {
        let want = "
            |[0.    0.125 0.25  0.375 0.5   0.625 0.75  0.875 1.    1.125 1.25  1.375
            | 1.5   1.625 1.75  1.875 2.    2.125 2.25  2.375 2.5   2.625 2.75  2.875
            | 3.    3.125 3.25  3.375 3.5   3.625 3.75  3.875 4.    4.125 4.25  4.375
            | 4.5   4.625 4.75  4.875]";
        assert_eq!(shown(Tensor::linspace(0.0, 4.875, 40)), lines(want));
    }

    #[test]
    fn many_elements_are_summarised() {
        let want = "
            |[[   0    1    2 ...   47   48   49]
            | [  50   51   52 ...   97   98   99]
            | [ 100  101  102 ...  147  148  149]
            | ...
            | [1850 1851 1852 ... 1897 1898 1899]
            | [1900 1901 1902 ... 1947 1948 1949]
            | [1950 1951 1952 ... 1997 1998 1999]]";
        assert_eq!(shown(Tensor::arange(0, 2000).reshape([40, 50])), lines(want));
        let want = "
            |[[   0    1]
            | [   2    3]
            | [   4    5]
            | ...
            | [1996 1997]
            | [1998 1999]
            | [2000 2001]]";
        assert_eq!(shown(Tensor::arange(0, 2002).reshape([1001, 2])), lines(want));
        let want = "[0.000e+00 1.000e+00 2.000e+00 ... 1.997e+03 1.998e+03 1.999e+03]";
        assert_eq!(shown(Tensor::arange(0, 2000).cast(DType::F64)), want);
        let want = "
            |[[[0.00000000e+00 1.42857143e-01 2.85714286e-01 ... 1.38571429e+01
            |   1.40000000e+01 1.41428571e+01]]
            |
            | [[1.42857143e+01 1.44285714e+01 1.45714286e+01 ... 2.81428571e+01
            |   2.82857143e+01 2.84285714e+01]]";
        let x = Tensor::arange(0, 1200).cast(DType::F64).reshape([12, 1, 100]) / 7.0;
        assert!(shown(x).starts_with(&lines(want)));
        assert_eq!(shown(Tensor::arange(0, 1000)).matches("...").count(), 0);
    }

    #[test]
    fn empty_tensors_say_their_shape() {
        assert_eq!(shown(Tensor::zeros([0])), "[]");
        assert_eq!(shown(Tensor::zeros([2, 0])), "[], shape [2,0]");
        assert_eq!(format!("{:?}", Tensor::zeros([2, 0])), "Tensor(f32[2,0]) []");
    }

    #[test]
    fn debug_says_where_a_tensor_stands() {
        let x = Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]);
        assert_eq!(format!("{x:?}"), "Tensor(f32[2,2])\n[[1. 2.]\n [3. 4.]]");
        let x = x.requires_grad();
        assert_eq!(format!("{x:?}"), "Tensor(f32[2,2], requires_grad)\n[[1. 2.]\n [3. 4.]]");
        let y = (&x * &x).sum();
        let text = format!("{y:?}");
        assert!(text.starts_with("Tensor(f32[], tracked by `sum` at "), "{text}");
        assert!(text.ends_with(") 30.0"), "{text}");
        assert_eq!(format!("{:?}", y.detach()), "Tensor(f32[]) 30.0");
    }

    #[test]
    fn views_show_what_they_show() {
        let x = Tensor::arange(0, 6).reshape([2, 3]);
        assert_eq!(shown(x.t()), "[[0 3]\n [1 4]\n [2 5]]");
        assert_eq!(shown(Tensor::from(2.5).expand([2, 2])), "[[2.5 2.5]\n [2.5 2.5]]");
    }
}
