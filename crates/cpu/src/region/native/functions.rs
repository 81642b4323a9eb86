//! Transcendental functions of f32 inside native loops.
//!
//! Each is the function of the same name in `simd::math32`, operation by operation, with its
//! coefficients: a call would write and read a tile for every function. The tests check for the
//! same bits. The only operation left out is the addition of a zero whose sign does not affect the
//! result.

use super::micro::{Lane, Micro, Writer};
use crate::simd::math32::{
    ERF, ERFC, EXP, GELU, GELU_HIGH, GELU_LOW, LN2, LOG, LOG_ERFC, LOG2_E, PHI, PHI_AT, PHI_MIDDLE,
    ROUND, TANH, UNLIFT,
};
use Micro::*;

const F: Lane = Lane::F32;
const LT: u8 = 0x11;
const GT: u8 = 0x1E;
const EQ: u8 = 0;

impl Writer {
    fn f(&mut self, micro: Micro, x: &[usize]) -> usize {
        self.does(F, micro, x)
    }

    fn c(&mut self, number: f32) -> usize {
        self.bits(F, number.to_bits().into())
    }

    fn word(&mut self, word: u32) -> usize {
        self.bits(F, word.into())
    }

    fn neg(&mut self, x: usize) -> usize {
        let sign = self.sign(F, false);
        self.f(Xor, &[x, sign])
    }

    fn abs(&mut self, x: usize) -> usize {
        let others = self.sign(F, true);
        self.f(And, &[x, others])
    }

    fn copysign(&mut self, size: usize, of: usize) -> usize {
        let sign = self.sign(F, false);
        let (size, sign) = (self.abs(size), self.f(And, &[of, sign]));
        self.f(Or, &[size, sign])
    }

    /// A product with a number, a sum with one.
    fn times(&mut self, number: f32, x: usize) -> usize {
        let number = self.c(number);
        self.f(Mul, &[number, x])
    }

    fn plus(&mut self, number: f32, x: usize) -> usize {
        let number = self.c(number);
        self.f(Add, &[number, x])
    }

    /// `number − x`
    fn from(&mut self, number: f32, x: usize) -> usize {
        let number = self.c(number);
        self.f(Sub, &[number, x])
    }

    fn at_most(&mut self, x: usize, high: f32) -> usize {
        let high = self.c(high);
        self.f(Lower, &[high, x])
    }

    fn at_least(&mut self, x: usize, low: f32) -> usize {
        let low = self.c(low);
        self.f(Upper, &[low, x])
    }

    fn hold(&mut self, x: usize, low: f32, high: f32) -> usize {
        let x = self.at_least(x, low);
        self.at_most(x, high)
    }

    fn test(&mut self, test: u8, x: usize, number: f32) -> usize {
        let number = self.c(number);
        self.does(Lane::Mask, Compare(test), &[x, number])
    }

    fn poly(&mut self, x: usize, c: &[f32]) -> usize {
        let mut p = self.c(c[c.len() - 1]);
        for &c in c[..c.len() - 1].iter().rev() {
            let c = self.c(c);
            p = self.f(Fma, &[p, x, c]);
        }
        p
    }

    /// r, what rounding it lost, and the rounded exponent.
    fn reduce(&mut self, h: usize, l: Option<usize>) -> (usize, usize, usize) {
        let (log2e, round) = (self.c(LOG2_E), self.c(ROUND));
        let sum = l.map_or(h, |l| self.f(Add, &[h, l]));
        let t = self.f(Fma, &[sum, log2e, round]);
        let k = self.f(Sub, &[t, round]);
        let [high, low] = LN2.map(|ln2| self.c(-ln2));
        let near = self.f(Fma, &[k, high, h]);
        let near = l.map_or(near, |l| self.f(Add, &[near, l]));
        let r = self.f(Fma, &[k, low, near]);
        let rest = self.f(Sub, &[near, r]);
        (r, self.f(Fma, &[k, low, rest]), t)
    }

    /// r² times the remainder of e^r after 1 + r, and `l`.
    fn exp_terms(&mut self, r: usize, l: usize) -> usize {
        let p = self.poly(r, &EXP);
        let square = self.f(Mul, &[r, r]);
        self.f(Fma, &[square, p, l])
    }

    /// e^(r+l)·s for a power of two s.
    fn exp_part(&mut self, r: usize, l: usize, s: usize) -> usize {
        let top = self.f(Fma, &[r, s, s]);
        let rest = self.f(Sub, &[s, top]);
        let lost = self.f(Fma, &[r, s, rest]);
        let terms = self.exp_terms(r, l);
        let low = self.f(Fma, &[terms, s, lost]);
        self.f(Add, &[top, low])
    }

    /// The exponent left in the low bits of `t`.
    fn exponent(&mut self, t: usize) -> usize {
        let round = self.word(ROUND.to_bits());
        self.f(WordSub, &[t, round])
    }

    /// 2^(k + more)
    fn power(&mut self, k: usize, more: u32) -> usize {
        let bias = self.word(127 + more);
        let k = self.f(WordAdd, &[k, bias]);
        self.f(Left(23), &[k])
    }

    pub(super) fn exp(&mut self, x: usize) -> usize {
        let x = self.hold(x, -105.0, 89.5);
        let (r, l, t) = self.reduce(x, None);
        let one = self.c(1.0);
        let p = self.exp_part(r, l, one);
        let k = self.exponent(t);
        let half = self.f(Right(1), &[k]);
        let rest = self.f(WordSub, &[k, half]);
        let (half, rest) = (self.power(half, 0), self.power(rest, 0));
        let p = self.f(Mul, &[p, half]);
        self.f(Mul, &[p, rest])
    }

    /// (r² · … + r)·s + s
    fn exp_quick(&mut self, r: usize, s: usize) -> usize {
        let terms = self.exp_terms(r, r);
        self.f(Fma, &[terms, s, s])
    }

    /// e^x for −80 ≤ x ≤ 80.
    fn exp_mid(&mut self, x: usize) -> usize {
        let (r, _, t) = self.reduce(x, None);
        let k = self.exponent(t);
        let s = self.power(k, 0);
        self.exp_quick(r, s)
    }

    /// e^(h+l) for −105 ≤ h ≤ 0.
    fn exp_below(&mut self, h: usize, l: Option<usize>) -> usize {
        let (r, _, t) = self.reduce(h, l);
        let k = self.exponent(t);
        let s = self.power(k, 64);
        let high = self.exp_quick(r, s);
        self.lower(high)
    }

    fn exp_below_accurate(&mut self, h: usize) -> usize {
        let (r, l, t) = self.reduce(h, None);
        let k = self.exponent(t);
        let s = self.power(k, 64);
        let high = self.exp_part(r, l, s);
        self.lower(high)
    }

    /// Undoes the offset of 64 that kept a power in range.
    fn lower(&mut self, x: usize) -> usize {
        let down = self.word((127 - 64) << 23);
        self.f(Mul, &[x, down])
    }

    /// −min(|x|, 105)
    fn below(&mut self, x: usize) -> usize {
        let a = self.abs(x);
        let a = self.at_most(a, 105.0);
        self.neg(a)
    }

    pub(super) fn log(&mut self, x: usize) -> usize {
        let small = self.test(LT, x, f32::MIN_POSITIVE);
        let lifted = self.times(8388608.0, x);
        let u = self.f(Select, &[small, lifted, x]);
        let (down, zero) = (self.c(-23.0), self.c(0.0));
        let shift = self.f(Select, &[small, down, zero]);
        let (middle, upper) = (self.word(0x3f2a_aaab), self.word(0xff80_0000));
        let e = self.f(WordSub, &[u, middle]);
        let e = self.f(And, &[e, upper]);
        let m = self.f(WordSub, &[u, e]);
        let m = self.plus(-1.0, m);
        let whole = self.f(FromWord, &[e]);
        let unit = self.c(1.192_092_9e-7);
        let k = self.f(Fma, &[whole, unit, shift]);
        let s = self.f(Mul, &[m, m]);
        let low = self.times(LN2[1], k);
        let half = self.c(-0.5);
        let low = self.f(Fma, &[half, s, low]);
        let cube = self.f(Mul, &[s, m]);
        let p = self.poly(m, &LOG);
        let r = self.f(Fma, &[cube, p, low]);
        let rm = self.f(Add, &[r, m]);
        let high = self.c(LN2[0]);
        let y = self.f(Fma, &[k, high, rm]);
        // What is not positive and finite.
        let (least, none) = (self.c(f32::NEG_INFINITY), self.c(f32::NAN));
        let is_zero = self.test(EQ, x, 0.0);
        let y = self.f(Select, &[is_zero, least, y]);
        let is_negative = self.test(LT, x, 0.0);
        let y = self.f(Select, &[is_negative, none, y]);
        let is_finite = self.test(LT, x, f32::INFINITY);
        self.f(Select, &[is_finite, y, x])
    }

    pub(super) fn tanh(&mut self, x: usize) -> usize {
        let a = self.abs(x);
        let s = self.f(Mul, &[x, x]);
        let p = self.poly(s, &TANH);
        let xs = self.f(Mul, &[x, s]);
        let near = self.f(Fma, &[xs, p, x]);
        let held = self.at_most(a, 10.0);
        let twice = self.times(2.0, held);
        let e = self.exp_mid(twice);
        let (two, d) = (self.c(2.0), self.plus(1.0, e));
        let q = self.f(Div, &[two, d]);
        let far = self.from(1.0, q);
        let is_near = self.test(LT, a, 0.6);
        let y = self.f(Select, &[is_near, near, far]);
        self.copysign(y, x)
    }

    pub(super) fn erf(&mut self, x: usize) -> usize {
        let a = self.abs(x);
        let s = self.f(Mul, &[x, x]);
        let p = self.poly(s, &ERF);
        let near = self.f(Fma, &[x, p, x]);
        let held = self.at_most(a, 4.0);
        let p = self.poly(held, &LOG_ERFC);
        let e = self.exp_mid(p);
        let far = self.from(1.0, e);
        let far = self.copysign(far, x);
        let is_near = self.test(LT, a, 0.92);
        self.f(Select, &[is_near, near, far])
    }

    /// (a + b)/(1 + e)
    fn over_one_plus(&mut self, a: usize, b: usize, e: usize) -> usize {
        let d = self.plus(1.0, e);
        let back = self.plus(-1.0, d);
        let lost = self.f(Sub, &[e, back]);
        let q = self.f(Div, &[a, d]);
        let correction = self.f(Fnma, &[q, lost, b]);
        let (half, one) = (self.c(-0.5), self.c(1.0));
        let rough = self.f(Fma, &[half, e, one]);
        self.f(Fma, &[correction, rough, q])
    }

    pub(super) fn sigmoid(&mut self, x: usize) -> usize {
        let below = self.below(x);
        let e = self.exp_below_accurate(below);
        let (zero, one) = (self.c(0.0), self.c(1.0));
        let is_negative = self.test(LT, x, 0.0);
        let a = self.f(Select, &[is_negative, e, one]);
        self.over_one_plus(a, zero, e)
    }

    pub(super) fn silu(&mut self, x: usize) -> usize {
        let below = self.below(x);
        let e = self.exp_below_accurate(below);
        let held = self.at_least(x, -1000.0);
        let low = self.f(Mul, &[held, e]);
        let rest = self.f(Fms, &[held, e, low]);
        let zero = self.c(0.0);
        let is_negative = self.test(LT, x, 0.0);
        let top = self.f(Select, &[is_negative, low, x]);
        let rest = self.f(Select, &[is_negative, rest, zero]);
        let y = self.over_one_plus(top, rest, e);
        let is_zero = self.test(EQ, x, 0.0);
        let y = self.f(Select, &[is_zero, x, y]);
        let is_large = self.test(GT, x, 100.0);
        self.f(Select, &[is_large, x, y])
    }

    /// e^(−c·a²)
    fn exp_square(&mut self, a: usize, c: f32) -> usize {
        let s = self.f(Mul, &[a, a]);
        let lost = self.f(Fms, &[a, a, s]);
        let (h, l) = (self.times(-c, s), self.times(-c, lost));
        self.exp_below(h, Some(l))
    }

    /// Φ(x), and e^(−x²/2).
    fn normal(&mut self, x: usize) -> (usize, usize) {
        let a = self.abs(x);
        let a = self.at_most(a, 14.4);
        let e = self.exp_square(a, 0.5);
        let scaled = self.times(std::f32::consts::FRAC_1_SQRT_2, a);
        let erfc = self.erfc_scaled(scaled);
        let half = self.times(0.5, e);
        let tail = self.f(Mul, &[erfc, half]);
        let rest = self.from(1.0, tail);
        let is_negative = self.test(LT, x, 0.0);
        (self.f(Select, &[is_negative, tail, rest]), e)
    }

    fn erfc_scaled(&mut self, a: usize) -> usize {
        let (two, one) = (self.c(2.0), self.c(1.0));
        let u = self.f(Add, &[a, two]);
        let v = self.f(Fma, &[two, a, one]);
        let uv = self.f(Mul, &[u, v]);
        let r = self.f(Div, &[one, uv]);
        let less = self.plus(-2.0, a);
        let vr = self.f(Mul, &[v, r]);
        let at = self.f(Mul, &[less, vr]);
        let p = self.poly(at, &ERFC);
        let ur = self.f(Mul, &[u, r]);
        self.f(Mul, &[p, ur])
    }

    /// e^(h+l)·2^64, for −140 ≤ h ≤ 0.
    fn exp_lifted(&mut self, h: usize, l: usize) -> usize {
        let (r, l, t) = self.reduce(h, Some(l));
        let k = self.exponent(t);
        let s = self.power(k, 64);
        self.exp_part(r, l, s)
    }

    /// max(x, 0) − z·2^−64 with the sign of x.
    fn above_tail(&mut self, x: usize, z: usize) -> usize {
        let (down, above) = (self.c(UNLIFT), self.at_least(x, 0.0));
        let y = self.f(Fnma, &[z, down, above]);
        self.copysign(y, x)
    }

    pub(super) fn gelu(&mut self, x: usize) -> usize {
        let a = self.abs(x);
        let a = self.at_most(a, 14.4);
        let half = self.times(-0.5, a);
        let square = self.f(Mul, &[half, a]);
        let lost = self.f(Fms, &[half, a, square]);
        let e = self.exp_lifted(square, lost);
        let (v, u) = (self.plus(PHI_AT[0], a), self.plus(PHI_AT[1], a));
        let (one, uv) = (self.c(1.0), self.f(Mul, &[u, v]));
        let r = self.f(Div, &[one, uv]);
        let (less, vr) = (self.plus(-PHI_AT[1], a), self.f(Mul, &[v, r]));
        let t = self.f(Mul, &[less, vr]);
        let p = self.poly(t, &PHI);
        let more = self.f(Mul, &[t, p]);
        let p = self.plus(PHI_MIDDLE, more);
        let inverse = self.f(Mul, &[u, r]);
        let q = self.f(Mul, &[p, inverse]);
        let rest = self.f(Fnma, &[q, v, p]);
        let back = self.plus(-PHI_AT[0], v);
        let v_lost = self.f(Sub, &[a, back]);
        let rest = self.f(Fnma, &[q, v_lost, rest]);
        let back = self.plus(-PHI_MIDDLE, p);
        let p_lost = self.f(Sub, &[more, back]);
        let rest = self.f(Add, &[rest, p_lost]);
        let m = self.f(Mul, &[a, e]);
        let m_lost = self.f(Fms, &[a, e, m]);
        let (rest, low) = (self.f(Mul, &[rest, inverse]), self.f(Mul, &[m_lost, q]));
        let low = self.f(Fma, &[m, rest, low]);
        let z = self.f(Fma, &[m, q, low]);
        self.above_tail(x, z)
    }

    /// 2·√(2/π)·(x + 0.044715·x³), and x².
    fn gelu_inner(&mut self, x: usize) -> (usize, usize) {
        let square = self.f(Mul, &[x, x]);
        let [first, third] = GELU.map(|c| self.c(c));
        let slope = self.f(Fma, &[third, square, first]);
        (self.f(Mul, &[x, slope]), square)
    }

    /// sigmoid(u) and sigmoid(−u), quickly.
    fn halves(&mut self, u: usize) -> (usize, usize) {
        let below = self.below(u);
        let e = self.exp_below(below, None);
        let (one, d) = (self.c(1.0), self.plus(1.0, e));
        let r = self.f(Div, &[one, d]);
        let er = self.f(Mul, &[e, r]);
        let is_negative = self.test(LT, u, 0.0);
        let s = self.f(Select, &[is_negative, er, r]);
        (s, self.f(Select, &[is_negative, r, er]))
    }

    pub(super) fn gelu_tanh(&mut self, x: usize) -> usize {
        let a = self.abs(x);
        let a = self.at_most(a, 11.2);
        let square = self.f(Mul, &[a, a]);
        let square_lost = self.f(Fms, &[a, a, square]);
        let [first, third] = GELU_HIGH.map(|c| self.c(c));
        let w = self.f(Fma, &[third, square, first]);
        let back = self.f(Sub, &[first, w]);
        let cubic_lost = self.f(Fma, &[third, square, back]);
        let [first_low, third_low] = GELU_LOW.map(|c| self.c(c));
        let low = self.f(Fma, &[third_low, square, first_low]);
        let low = self.f(Fma, &[third, square_lost, low]);
        let w_lost = self.f(Add, &[cubic_lost, low]);
        let h = self.f(Mul, &[a, w]);
        let h_lost = self.f(Fms, &[a, w, h]);
        let l = self.f(Fma, &[a, w_lost, h_lost]);
        let e = self.exp_lifted(h, l);
        let m = self.f(Mul, &[a, e]);
        let m_lost = self.f(Fms, &[a, e, m]);
        let below = self.times(UNLIFT, e);
        let z = self.over_one_plus(m, m_lost, below);
        self.above_tail(x, z)
    }
}

/// Derivatives times cotangents, by the names of their functions.
pub(super) mod slope {
    use super::{Fma, GELU, Mul, Writer};

    pub(in super::super) fn gelu(w: &mut Writer, x: usize, dy: usize) -> usize {
        let (cdf, e) = w.normal(x);
        let held = w.hold(x, -100.0, 100.0);
        let density = w.times(0.398_942_3, held);
        let slope = w.f(Fma, &[density, e, cdf]);
        w.f(Mul, &[dy, slope])
    }

    pub(in super::super) fn gelu_tanh(w: &mut Writer, x: usize, dy: usize) -> usize {
        let x = w.hold(x, -100.0, 100.0);
        let (u, square) = w.gelu_inner(x);
        let (third, first) = (w.c(3.0 * GELU[1]), w.c(GELU[0]));
        let du = w.f(Fma, &[third, square, first]);
        let (s, c) = w.halves(u);
        let xdu = w.f(Mul, &[x, du]);
        let xdus = w.f(Mul, &[xdu, s]);
        let slope = w.f(Fma, &[xdus, c, s]);
        w.f(Mul, &[dy, slope])
    }

    pub(in super::super) fn silu(w: &mut Writer, x: usize, dy: usize) -> usize {
        let x = w.hold(x, -1000.0, 1000.0);
        let (s, c) = w.halves(x);
        let one = w.c(1.0);
        let more = w.f(Fma, &[x, c, one]);
        let slope = w.f(Mul, &[s, more]);
        w.f(Mul, &[dy, slope])
    }

    pub(in super::super) fn erf(w: &mut Writer, x: usize, dy: usize) -> usize {
        let a = w.abs(x);
        let a = w.at_most(a, 10.2);
        let e = w.exp_square(a, 1.0);
        let slope = w.times(std::f32::consts::FRAC_2_SQRT_PI, e);
        w.f(Mul, &[dy, slope])
    }
}

/// Derivatives times cotangents that are a formula, of functions above: for floats of either width.
pub(super) mod either {
    use super::{Div, Lane, Mul, Sub, Writer};

    pub(in super::super) fn tanh(w: &mut Writer, [y, dy]: [usize; 2], l: Lane) -> usize {
        let (one, square) = (w.number(l, 1.0), w.does(l, Mul, &[y, y]));
        let rest = w.does(l, Sub, &[one, square]);
        w.does(l, Mul, &[dy, rest])
    }

    pub(in super::super) fn sigmoid(w: &mut Writer, [y, dy]: [usize; 2], l: Lane) -> usize {
        let one = w.number(l, 1.0);
        let rest = w.does(l, Sub, &[one, y]);
        let slope = w.does(l, Mul, &[y, rest]);
        w.does(l, Mul, &[dy, slope])
    }

    pub(in super::super) fn log(w: &mut Writer, [x, dy]: [usize; 2], l: Lane) -> usize {
        w.does(l, Div, &[dy, x])
    }
}
