//! The outcome of a run, and the comparison of two.

use pullback::{DType, Error, Tensor, catch};
use std::cell::Cell;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

/// Of one way compared with another in `f64`, relative to the largest number of the result (and to
/// 1): sums are added in another order.
pub const SAME: f64 = 1e-7;
/// The same in `f32`.
pub const SAME_F32: f64 = 2e-3;
/// The same in `f16`, and in `bf16`: a few roundings of 2⁻¹¹ and 2⁻⁸ for each op.
pub const SAME_F16: f64 = 2e-2;
/// See [`SAME_F16`].
pub const SAME_BF16: f64 = 1e-1;
/// Of a derivative compared with differences, where the differences of two step sizes agree to a
/// tenth of it.
pub const NUMERIC: f64 = 2e-5;

/// How closely two ways must agree, whose values have at least the digits of this dtype.
pub fn tolerance(coarsest: DType) -> f64 {
    match coarsest {
        DType::BF16 => SAME_BF16,
        DType::F16 => SAME_F16,
        DType::F32 => SAME_F32,
        _ => SAME,
    }
}

/// The elements of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Its dtype.
    pub dtype: DType,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its elements.
    pub data: Vec<f64>,
}

impl Value {
    fn of(x: &Tensor) -> Value {
        Value { dtype: x.dtype(), shape: x.shape().to_vec(), data: x.to_f64_vec() }
    }
}

/// The result of a run.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Numbers.
    Gave(Vec<Value>),
    /// An error with a message.
    Refused(Error),
    /// A panic that is no error of the library's.
    Panicked(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Outcome::Gave(values) => {
                for (i, v) in values.iter().enumerate() {
                    let shown: Vec<String> =
                        v.data.iter().take(8).map(|x| format!("{x:.9}")).collect();
                    let dots = if v.data.len() > 8 { ", …" } else { "" };
                    let comma = if i > 0 { "; " } else { "" };
                    write!(f, "{comma}{}{:?} [{}{dots}]", v.dtype, v.shape, shown.join(", "))?;
                }
                Ok(())
            }
            Outcome::Refused(error) => write!(f, "refused: {}", first_line(&error.to_string())),
            Outcome::Panicked(text) => write!(f, "PANICKED: {}", first_line(text)),
        }
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or("")
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static WHERE: Cell<Option<String>> = const { Cell::new(None) };
}

/// Runs something and gives its outcome. Its panics print nothing.
pub fn outcome(f: impl FnOnce() -> Vec<Tensor>) -> Outcome {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| match QUIET.get() {
            true => WHERE.set(info.location().map(ToString::to_string)),
            false => before(info),
        }));
    });
    let before = QUIET.replace(true);
    let run = || catch(|| f().iter().map(Value::of).collect());
    let result = panic::catch_unwind(AssertUnwindSafe(run));
    QUIET.set(before);
    match result {
        Ok(Ok(values)) => Outcome::Gave(values),
        Ok(Err(error)) => Outcome::Refused(error),
        Err(payload) => {
            let text = payload.downcast_ref::<String>().cloned();
            let text = text.or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string));
            let at = WHERE.take().unwrap_or_default();
            Outcome::Panicked(format!("{} ({at})", text.unwrap_or_else(|| "?".into())))
        }
    }
}

/// How far apart two results are: 0 for the same, 1 for the tolerance; more is a difference. `None`
/// where the shapes or dtypes are not even the same.
pub fn distance(a: &[Value], b: &[Value], tolerance: f64) -> Option<f64> {
    if a.len() != b.len() {
        return None;
    }
    let largest = a.iter().flat_map(|v| &v.data).filter(|x| x.is_finite());
    let scale = largest.fold(1.0f64, |most, x| most.max(x.abs()));
    let mut worst = 0.0f64;
    for (a, b) in a.iter().zip(b) {
        if a.shape != b.shape || a.dtype != b.dtype {
            return None;
        }
        for (&x, &y) in a.data.iter().zip(&b.data) {
            let same = x == y || x.is_nan() && y.is_nan();
            let far = (x - y).abs() / (scale * tolerance);
            worst = worst.max(if same {
                0.0
            } else if far.is_nan() {
                f64::INFINITY
            } else {
                far
            });
        }
    }
    Some(worst)
}

/// The largest difference between two results of the same shapes.
pub fn gap(a: &[Value], b: &[Value]) -> f64 {
    let pairs = a.iter().zip(b).flat_map(|(a, b)| a.data.iter().zip(&b.data));
    let far = |(x, y): (&f64, &f64)| match x == y || x.is_nan() && y.is_nan() {
        true => 0.0,
        false if (x - y).is_nan() => f64::INFINITY,
        false => (x - y).abs(),
    };
    pairs.map(far).fold(0.0, f64::max)
}
