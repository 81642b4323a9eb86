//! Functions of how a number is written: sign, exponent, neighbours, bits, divisors.

use crate::ops::one_pass::{is_value_alone, one_pass};
use crate::{DType, Error, Operand, Tensor, bf16, f16};
use pullback_ir::Binary;
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
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[track_caller]
    #[must_use]
    pub fn ldexp(&self, n: impl Operand) -> Tensor {
        let x = self.real();
        let n = n.matching(&x);
        let dtype = if n.dtype().is_float() { n.dtype() } else { x.dtype() };
        x * n.cast(dtype).exp2()
    }

    /// The mantissa m (½ ≤ |m| < 1) and exponent n (in `i32`) of x = m·2ⁿ; 0, infinities and NaN
    /// are their own mantissa, with exponent 0.
    ///
    /// Derivative: `dm·2⁻ⁿ`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let (mantissa, exponent) = Tensor::from([12.0, -0.25]).frexp();
    /// assert_eq!(mantissa.to_vec::<f64>(), [0.75, -0.5]);
    /// assert_eq!(exponent.to_vec::<i32>(), [4, -1]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[track_caller]
    #[must_use]
    pub fn frexp(&self) -> (Tensor, Tensor) {
        let x = self.real();
        if x.dtype() == DType::F64 {
            let exponents = exponents(&x);
            return (scaled(&x, &-&exponents), exponents);
        }
        let power = one_pass("frexp_power", &[], [&x.detach()], |[x]| power_within(x));
        let mantissa = one_pass("frexp", &[], [&x, &power], |[x, power]| {
            (x.cast(DType::F64) * (power.cast(DType::F64).recip() * 0.5)).cast(x.dtype())
        });
        let exponents = one_pass("frexp_exponent", &[], [&power], |[power]| power.log2() + 1.0);
        (mantissa, exponents.cast(DType::I32))
    }

    /// The next number after each of these in its dtype, in the direction of `other`; `other` where
    /// they are equal.
    ///
    /// Derivative: `dy`, and 0 where they are equal; none for `other`.
    /// PyTorch's name: `nextafter`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([1.0, 0.0]).next_after(&Tensor::from([2.0, -1.0]));
    /// assert_eq!(y.to_vec::<f64>(), [1.0 + f64::EPSILON, -5e-324]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[doc(alias = "nextafter")]
    #[track_caller]
    #[must_use]
    pub fn next_after(&self, other: &Tensor) -> Tensor {
        let both = crate::broadcast_tensors(&[&self.real(), &other.detach().real()]);
        let dtype = both[0].dtype().promote(both[1].dtype());
        let (from, y) = (both[0].cast(dtype), both[1].cast(dtype));
        let x = from.detach();
        let next = match dtype {
            DType::F64 => next_f64(&x, &y),
            _ => one_pass("next_after", &[], [&x, &y], |[x, y]| next_narrow(x, y)),
        };
        if is_value_alone(&from) {
            return next;
        }
        // The step is exact, so that adding it gives the neighbour, and carries the derivative.
        one_pass("next_after_step", &[], [&from, &x, &next], |[from, x, next]| {
            let step = next - x;
            let moves = next.ne(x).logical_and(step.is_finite());
            moves.select(&(from + moves.select(&step, 0.0)), next)
        })
    }

    /// Whether the sign bit is set: of negative numbers and −0.
    ///
    /// Derivative: none (a `bool`).
    /// PyTorch's name: `signbit`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([-1.0, -0.0, 2.0]).sign_bit().to_vec::<bool>(), [true, true, false]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[doc(alias = "signbit")]
    #[track_caller]
    #[must_use]
    pub fn sign_bit(&self) -> Tensor {
        match self.dtype().is_float() {
            true => self.detach().ones_like_splat().copysign(self.detach()).lt(0.0),
            false => self.lt(0),
        }
    }

    /// The angle of a real number in the complex plane: π where it is negative, 0 elsewhere; NaN
    /// stays.
    ///
    /// Derivative: zero (piecewise constant).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([-2.0, 2.0]).angle();
    /// assert_eq!(y.to_vec::<f64>(), [std::f64::consts::PI, 0.0]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[track_caller]
    #[must_use]
    pub fn angle(&self) -> Tensor {
        let x = self.real().detach();
        one_pass("angle", &[], [&x], |[x]| {
            let turned = x.lt(0.0).cast(x.dtype()) * PI;
            x.is_nan().select(x, &turned)
        })
    }

    /// self raised to a power, in `f64` whatever the dtypes are.
    ///
    /// Derivative: `dy·b·a^(b−1)` and `dy·aᵇ·ln a`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([2, 3]).float_power(-1).to_vec::<f64>(), [0.5, 1.0 / 3.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[track_caller]
    #[must_use]
    pub fn float_power(&self, exponent: impl Operand) -> Tensor {
        let x = self.cast(DType::F64);
        let exponent = exponent.matching(&x).cast(DType::F64);
        x.pow(&exponent)
    }

    /// Whether elements are equal to within `absolute + relative·|other|`; infinities of one sign
    /// are, and with `nan_too` also two NaN.
    ///
    /// Derivative: none (a `bool`).
    /// PyTorch's name: `isclose`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([1.0, 1.1]).is_close(&Tensor::from([1.0 + 1e-9, 1.0]), 1e-5, 1e-8, false);
    /// assert_eq!(y.to_vec::<bool>(), [true, false]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[doc(alias = "isclose")]
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
    ///
    /// # Panics
    /// If an operand is a float or `bool`, or the shapes do not broadcast.
    #[track_caller]
    #[must_use]
    pub fn gcd(&self, other: &Tensor) -> Tensor {
        let (a, b) = self.integers("gcd", other);
        a.binary(Binary::Gcd, &b)
    }

    /// The least common multiple of two integers; 0 where one is 0.
    ///
    /// Derivative: none (an integer).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([4, 6]).lcm(&Tensor::from([6, 0])).to_vec::<i32>(), [12, 0]);
    /// ```
    ///
    /// # Panics
    /// If an operand is a float or `bool`, or the shapes do not broadcast.
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
    ///
    /// # Panics
    /// If an operand is a float or `bool`, or the shapes do not broadcast.
    #[doc(alias = "bitwise_left_shift")]
    #[track_caller]
    #[must_use]
    pub fn shift_left(&self, by: &Tensor) -> Tensor {
        let (x, by) = self.integers("shift_left", by);
        x.binary(Binary::ShiftLeft, &by)
    }

    /// The bits of an integer shifted to the right; copies of the sign come in.
    ///
    /// Derivative: none (an integer).
    /// PyTorch's name: `bitwise_right_shift`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([12, -8]).shift_right(&Tensor::from([2, 1])).to_vec::<i32>(), [3, -4]);
    /// ```
    ///
    /// # Panics
    /// If an operand is a float or `bool`, or the shapes do not broadcast.
    #[doc(alias = "bitwise_right_shift")]
    #[track_caller]
    #[must_use]
    pub fn shift_right(&self, by: &Tensor) -> Tensor {
        let (x, by) = self.integers("shift_right", by);
        x.binary(Binary::ShiftRight, &by)
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

/// The largest power of two that is not above |x|, in `f32`, of a dtype narrower than f64; ½ where
/// x is 0 or not finite.
#[track_caller]
fn power_within(x: &Tensor) -> Tensor {
    let x = x.cast(DType::F64).abs();
    let plain = x.gt(0.0).logical_and(x.is_finite());
    // Rump's algorithm: the product is x to 53 bits and its leading bit 52 places above, so that
    // what is left of it without its last bit is that leading bit. Every step is exact or rounds
    // as intended, in f64, where the least f32 is far from the least number.
    let product = plain.select(&x, 0.5) * (2f64.powi(52) + 1.0);
    let below = &product * (1.0 - 2f64.powi(-53));
    (product - below).cast(DType::F32)
}

/// n (in `i32`) where |x| = m·2ⁿ with ½ ≤ m < 1; 0 where x is 0 or not finite.
#[track_caller]
fn exponents(x: &Tensor) -> Tensor {
    let x = x.detach().cast(DType::F64).abs();
    let plain = x.gt(0.0).logical_and(x.is_finite());
    let x = plain.select(&x, 1.0);
    // Subnormal numbers are made normal first.
    let small = x.lt(2f64.powi(-1000));
    let x = small.select(&x * 2f64.powi(200), &x);
    let guess = x.log2().floor().cast(DType::I32) + 1;
    // The logarithm may round up to the next integer.
    let mantissa = scaled(&x, &-&guess);
    let guess = guess + mantissa.ge(1.0).cast(DType::I32) - mantissa.lt(0.5).cast(DType::I32);
    plain.select(small.select(&guess - 200, &guess), 0)
}

/// x·2ⁿ for an f64 x, in two steps: 2ⁿ alone may be past the largest or the least number.
#[track_caller]
fn scaled(x: &Tensor, n: &Tensor) -> Tensor {
    let half = n.floor_div(2).cast(DType::F64);
    let rest = n.cast(DType::F64) - &half;
    x * half.exp2() * rest.exp2()
}

/// The neighbour of x in the direction of y, in a dtype narrower than f64: found in f64, where a
/// number a little further away than half the distance exists, and rounded to the dtype.
#[track_caller]
fn next_narrow(x: &Tensor, y: &Tensor) -> Tensor {
    // Bits, the distance of the least numbers, the least number with all bits, the largest.
    let (bits, least, normal, largest) = match x.dtype() {
        DType::BF16 => (bf16::MANTISSA_DIGITS, -133, -126, bf16::MAX.to_f64()),
        DType::F16 => (f16::MANTISSA_DIGITS, -24, -14, f16::MAX.to_f64()),
        _ => (f32::MANTISSA_DIGITS, -149, -126, f64::from(f32::MAX)),
    };
    let (a, b) = (x.cast(DType::F64), y.cast(DType::F64));
    let constant = |v: f64| a.new_splat(v.into(), a.shape(), DType::F64);
    let (up, half) = (a.lt(&b), 2f64.powi(-(bits as i32)));
    // The distance is more than |a|·half and at most twice that. Outwards, ¾ of the largest are
    // more than half of any distance and less than 1½; inwards, where the next power of two begins
    // smaller distances, the half of the largest is.
    let outwards = up.eq(a.gt(0.0));
    let moved = &a + &a * outwards.select_or(1.5 * half, constant(-half));
    // The least numbers have one distance.
    let least = 2f64.powi(least);
    let step = up.select_or(least, constant(-least));
    let moved = a.abs().lt(2f64.powi(normal + 1)).select(&a + step, &moved);
    let inwards = constant(largest).copysign(&a);
    let moved = a.is_inf().select(inwards, &moved);
    let odd = a.is_nan().logical_or(b.is_nan());
    let next = a.eq(&b).select(&b, odd.select(&a + &b, &moved));
    next.cast(x.dtype())
}

/// The neighbour of x in the direction of y, in f64.
#[track_caller]
fn next_f64(x: &Tensor, y: &Tensor) -> Tensor {
    // Adjacent numbers differ by 2ⁿ, with n from the exponent; towards 0 from a power of two half
    // as far.
    let outwards = x.lt(y).eq(x.gt(0.0));
    let exponent = exponents(x);
    let half = scaled(&x.abs(), &-&exponent).eq(0.5);
    let halved = outwards.logical_not().logical_and(half).cast(DType::I32);
    let (bits, least) = (i64::from(f64::MANTISSA_DIGITS), -1074i64);
    let spacing = (exponent - bits - halved).clamp_min(least);
    let one = x.new_ones_with(x.shape(), DType::F64);
    let spacing = scaled(&one, &spacing);
    let moved = x.lt(y).select(x + &spacing, x - &spacing);
    let smallest = scaled(&one, &x.new_tensor(least).expand(x.shape()));
    let moved = x.eq(0.0).select(smallest.copysign(y), &moved);
    let inwards = x.new_tensor(f64::MAX).expand(x.shape()).copysign(x);
    let moved = x.is_inf().select(&inwards, &moved);
    let odd = x.is_nan().logical_or(y.is_nan());
    x.eq(y).logical_or(odd).select(x.eq(y).select(y, x + y), &moved)
}
