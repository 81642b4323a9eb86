//! Functions of how a number is written: sign, exponent, neighbours, bits, divisors.

use crate::{DType, Error, Operand, Tensor, bf16, f16};
use std::f64::consts::PI;

impl Tensor {
    /// x·2ⁿ.
    ///
    /// Derivative: `dy·2ⁿ`, and `dy·x·2ⁿ·ln 2` for a float n.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1.5, -1.0]).ldexp(3).to_vec::<f64>(), [12.0, -8.0]);
    /// ```
    #[track_caller]
    #[must_use]
    pub fn ldexp(&self, n: impl Operand) -> Tensor {
        let x = self.real();
        let n = n.beside(&x);
        let dtype = if n.dtype().is_float() { n.dtype() } else { x.dtype() };
        x * n.cast(dtype).exp2()
    }

    /// The mantissa m (½ ≤ |m| < 1) and exponent n (in `i32`) of x = m·2ⁿ; 0, infinities and NaN are their own mantissa,
    /// with exponent 0.
    ///
    /// Derivative: `dm·2⁻ⁿ`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let (mantissa, exponent) = Tensor::from([12.0, -0.25]).frexp();
    /// assert_eq!(mantissa.to_vec::<f64>(), [0.75, -0.5]);
    /// assert_eq!(exponent.to_vec::<i32>(), [4, -1]);
    /// ```
    #[track_caller]
    #[must_use]
    pub fn frexp(&self) -> (Tensor, Tensor) {
        let x = self.real();
        let exponent = |v: f64| match v != 0.0 && v.is_finite() {
            true => exponent_of(v),
            false => 0,
        };
        let found: Vec<i32> =
            x.detach().cast(DType::F64).to_vec::<f64>().into_iter().map(exponent).collect();
        let exponents = Tensor::from_vec(found, x.shape());
        // In two steps: 2⁻ⁿ alone may be past the largest number.
        let half = exponents.floor_div(2).cast(DType::F64);
        let rest = exponents.cast(DType::F64) - &half;
        let y = x.cast(DType::F64) * (-half).exp2() * (-rest).exp2();
        (y.cast(x.dtype()), exponents)
    }

    /// The next number after each of these in its dtype, in the direction of `other`; `other` where they are equal.
    ///
    /// Derivative: `dy`, and 0 where they are equal; none for `other`.
    /// PyTorch's name: `nextafter`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([1.0, 0.0]).next_after(&Tensor::from([2.0, -1.0]));
    /// assert_eq!(y.to_vec::<f64>(), [1.0 + f64::EPSILON, -5e-324]);
    /// ```
    #[track_caller]
    #[must_use]
    pub fn next_after(&self, other: &Tensor) -> Tensor {
        let both = crate::broadcast_tensors(&[&self.real(), &other.detach().real()]);
        let dtype = both[0].dtype().promote(both[1].dtype());
        let (from, y) = (both[0].cast(dtype), both[1].cast(dtype));
        let (x, shape) = (from.detach(), from.shape().to_vec());
        macro_rules! stepped {
            ($float:ty, $bits:ty) => {{
                let next = |(x, y): (&$float, &$float)| -> $float {
                    if x.is_nan() || y.is_nan() {
                        return <$float>::NAN;
                    }
                    if x == y {
                        return *y;
                    }
                    let top: $bits = 1 << (<$bits>::BITS - 1);
                    if x.to_bits() & !top == 0 {
                        // The least number, with the sign of where it goes.
                        return <$float>::from_bits(1 | (y.to_bits() & top));
                    }
                    let outwards = (x < y) == (x.to_bits() & top == 0);
                    match outwards {
                        true => <$float>::from_bits(x.to_bits() + 1),
                        false => <$float>::from_bits(x.to_bits() - 1),
                    }
                };
                let (a, b) = (x.to_vec::<$float>(), y.to_vec::<$float>());
                Tensor::from_vec(a.iter().zip(&b).map(next).collect::<Vec<$float>>(), shape)
            }};
        }
        let next = match dtype {
            DType::F64 => stepped!(f64, u64),
            DType::F32 => stepped!(f32, u32),
            DType::BF16 => stepped!(bf16, u16),
            DType::F16 => stepped!(f16, u16),
            DType::I64 | DType::I32 | DType::U8 | DType::Bool => {
                unreachable!("`real` gives floats")
            }
        };
        // The step is exact, so that adding it gives the neighbour, and carries the derivative.
        let step = &next - &x;
        let moves = x.ne(&y).logical_and(step.is_finite()).logical_and(x.is_finite());
        moves.select(&(from + moves.select(&step, 0.0)), &next)
    }

    /// Where the sign is negative: also of −0.
    ///
    /// Derivative: none (a truth value).
    /// PyTorch's name: `signbit`.
    #[track_caller]
    #[must_use]
    pub fn sign_bit(&self) -> Tensor {
        match self.dtype().is_float() {
            true => self.detach().ones_like_splat().copysign(self.detach()).lt(0.0),
            false => self.lt(0),
        }
    }

    /// The angle of a real number in the complex plane: π where it is negative, 0 elsewhere; NaN stays.
    ///
    /// Derivative: zero (piecewise constant).
    #[track_caller]
    #[must_use]
    pub fn angle(&self) -> Tensor {
        let x = self.real().detach();
        let turned = x.lt(0.0).cast(x.dtype()) * PI;
        x.is_nan().select(&x, &turned)
    }

    /// self raised to a power, in `f64` whatever the dtypes are.
    ///
    /// Derivative: `dy·b·a^(b−1)` and `dy·aᵇ·ln a`.
    #[track_caller]
    #[must_use]
    pub fn float_power(&self, exponent: impl Operand) -> Tensor {
        let x = self.cast(DType::F64);
        let exponent = exponent.beside(&x).cast(DType::F64);
        x.pow(&exponent)
    }

    /// Where two are equal to within `absolute + relative·|other|`; infinities of one sign are, and with `nan_too` also
    /// two NaN.
    ///
    /// Derivative: none (a truth value).
    /// PyTorch's name: `isclose`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([1.0, 1.1]).is_close(&Tensor::from([1.0 + 1e-9, 1.0]), 1e-5, 1e-8, false);
    /// assert_eq!(y.to_vec::<bool>(), [true, false]);
    /// ```
    #[track_caller]
    #[must_use]
    pub fn is_close(&self, other: &Tensor, relative: f64, absolute: f64, nan_too: bool) -> Tensor {
        let equal = self.eq(other);
        let (x, y) = (self.detach().real(), other.detach().real());
        let bound = y.abs() * relative + absolute;
        let near = (&x - &y).abs().le(&bound).logical_and(x.is_finite().logical_and(y.is_finite()));
        let near = equal.logical_or(near);
        match nan_too {
            true => near.logical_or(x.is_nan().logical_and(y.is_nan())),
            false => near,
        }
    }

    /// The greatest common divisor of two integers; 0 with 0 is 0.
    ///
    /// Derivative: none (an integer).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([12, -7]).gcd(&Tensor::from([18, 0])).to_vec::<i32>(), [6, 7]);
    /// ```
    #[track_caller]
    #[must_use]
    pub fn gcd(&self, other: &Tensor) -> Tensor {
        let (mut a, mut b) = self.integers("gcd", other);
        // Euclid on all pairs at once; the pairs that are done stay as they are.
        while b.ne(0).any().item::<bool>() {
            let done = b.eq(0);
            let rest = a.remainder(done.select(1, &b));
            (a, b) = (done.select(&a, &b), done.select(0, &rest));
        }
        a.abs()
    }

    /// The least common multiple of two integers; 0 where one is 0.
    ///
    /// Derivative: none (an integer).
    #[track_caller]
    #[must_use]
    pub fn lcm(&self, other: &Tensor) -> Tensor {
        let (a, b) = self.integers("lcm", other);
        let divisor = a.gcd(&b);
        let none = divisor.eq(0);
        (a.floor_div(none.select(1, &divisor)) * b).abs()
    }

    /// The bits of an integer shifted to the left; zeros come in.
    ///
    /// Derivative: none (an integer).
    /// PyTorch's name: `bitwise_left_shift`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([3, 1]).shift_left(&Tensor::from([2, 4])).to_vec::<i32>(), [12, 16]);
    /// ```
    #[track_caller]
    #[must_use]
    pub fn shift_left(&self, by: &Tensor) -> Tensor {
        self.shifted("shift_left", by, |value, by| value.checked_shl(by).unwrap_or(0), 0)
    }

    /// The bits of an integer shifted to the right; copies of the sign come in.
    ///
    /// Derivative: none (an integer).
    /// PyTorch's name: `bitwise_right_shift`.
    #[track_caller]
    #[must_use]
    pub fn shift_right(&self, by: &Tensor) -> Tensor {
        self.shifted("shift_right", by, |value, by| value >> by.min(63), 63)
    }

    #[track_caller]
    fn shifted(
        &self,
        op: &'static str,
        by: &Tensor,
        shift: fn(i64, u32) -> i64,
        outside: u32,
    ) -> Tensor {
        let (x, by) = self.integers(op, by);
        let bits = 8 * x.dtype().size() as i64;
        let one = |(&value, &by): (&i64, &i64)| match (0..bits).contains(&by) {
            true => shift(value, by as u32),
            // By more than all of them (or less than none), nothing is left but the sign.
            false if outside > 0 => shift(value, outside),
            false => 0,
        };
        let (a, b) = (x.cast(DType::I64).to_vec::<i64>(), by.cast(DType::I64).to_vec::<i64>());
        // Bits that leave the dtype are lost.
        let held = |value: i64| match bits {
            8 => i64::from(value as u8),
            32 => i64::from(value as i32),
            _ => value,
        };
        let wide: Vec<i64> = a.iter().zip(&b).map(one).map(held).collect();
        Tensor::from_vec(wide, x.shape()).cast(x.dtype())
    }

    /// Two tensors of integers in one dtype and shape.
    #[track_caller]
    fn integers(&self, op: &'static str, other: &Tensor) -> (Tensor, Tensor) {
        let dtype = self.dtype().promote(other.dtype());
        if dtype.is_float() || dtype == DType::Bool {
            let message = format!("takes integers, not {} and {}", self.spec(), other.spec());
            return self.checked(Err(Error::dtype(op, message).on([self.spec(), other.spec()])));
        }
        let both = crate::broadcast_tensors(&[self, other]);
        (both[0].detach().cast(dtype), both[1].detach().cast(dtype))
    }
}

/// n where |v| = m·2ⁿ with ½ ≤ m < 1, for a finite v that is not 0.
fn exponent_of(v: f64) -> i32 {
    let raw = (v.to_bits() >> 52) as i32 & 0x7ff;
    match raw {
        // Subnormal: as a normal number 2⁵⁴ times as large.
        0 => exponent_of(v * 2f64.powi(54)) - 54,
        _ => raw - 1022,
    }
}
