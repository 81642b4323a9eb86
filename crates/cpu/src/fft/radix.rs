//! Butterflies: transforms of a few elements, on scalars; the loops around them are vectorised over
//! lanes.

use crate::simd::{Float, Isa};

/// A complex number.
pub(super) type C<T> = (T, T);

#[inline(always)]
pub(super) fn add<T: Float>(a: C<T>, b: C<T>) -> C<T> {
    (a.0 + b.0, a.1 + b.1)
}

#[inline(always)]
pub(super) fn sub<T: Float>(a: C<T>, b: C<T>) -> C<T> {
    (a.0 - b.0, a.1 - b.1)
}

/// `a · w`.
#[inline(always)]
pub(super) fn mul<T: Float, I: Isa>(a: C<T>, w: C<T>) -> C<T> {
    (T::fma::<I>(a.0, w.0, -(a.1 * w.1)), T::fma::<I>(a.0, w.1, a.1 * w.0))
}

/// `-i · a`.
#[inline(always)]
fn times_minus_i<T: Float>(a: C<T>) -> C<T> {
    (a.1, -a.0)
}

/// `a + s · b` for a real `s`.
#[inline(always)]
fn axpy<T: Float, I: Isa>(a: C<T>, s: T, b: C<T>) -> C<T> {
    (T::fma::<I>(s, b.0, a.0), T::fma::<I>(s, b.1, a.1))
}

#[inline(always)]
fn scale<T: Float>(s: T, a: C<T>) -> C<T> {
    (s * a.0, s * a.1)
}

#[inline(always)]
pub(super) fn two<T: Float, I: Isa>(x: [C<T>; 2]) -> [C<T>; 2] {
    [add(x[0], x[1]), sub(x[0], x[1])]
}

#[inline(always)]
pub(super) fn three<T: Float, I: Isa>(x: [C<T>; 3]) -> [C<T>; 3] {
    let (s, d) = (add(x[1], x[2]), times_minus_i(sub(x[1], x[2])));
    let m = axpy::<T, I>(x[0], T::of_f64(-0.5), s);
    let half = T::of_f64(3f64.sqrt() / 2.0);
    [add(x[0], s), axpy::<T, I>(m, half, d), axpy::<T, I>(m, -half, d)]
}

#[inline(always)]
pub(super) fn four<T: Float, I: Isa>(x: [C<T>; 4]) -> [C<T>; 4] {
    let (a, b) = (add(x[0], x[2]), sub(x[0], x[2]));
    let (c, d) = (add(x[1], x[3]), times_minus_i(sub(x[1], x[3])));
    [add(a, c), add(b, d), sub(a, c), sub(b, d)]
}

#[inline(always)]
pub(super) fn five<T: Float, I: Isa>(x: [C<T>; 5]) -> [C<T>; 5] {
    let [c1, c2] = [T::of_f64(0.309_016_994_374_947_45), T::of_f64(-0.809_016_994_374_947_4)];
    let [s1, s2] = [T::of_f64(0.951_056_516_295_153_5), T::of_f64(0.587_785_252_292_473_1)];
    let (a, d) = (add(x[1], x[4]), times_minus_i(sub(x[1], x[4])));
    let (b, e) = (add(x[2], x[3]), times_minus_i(sub(x[2], x[3])));
    let m1 = axpy::<T, I>(axpy::<T, I>(x[0], c1, a), c2, b);
    let m2 = axpy::<T, I>(axpy::<T, I>(x[0], c2, a), c1, b);
    let n1 = axpy::<T, I>(scale(s1, d), s2, e);
    let n2 = axpy::<T, I>(scale(s2, d), -s1, e);
    [add(add(x[0], a), b), add(m1, n1), add(m2, n2), sub(m2, n2), sub(m1, n1)]
}

#[inline(always)]
pub(super) fn seven<T: Float, I: Isa>(x: [C<T>; 7]) -> [C<T>; 7] {
    let c1 = T::of_f64(0.623_489_801_858_733_5);
    let c2 = T::of_f64(-0.222_520_933_956_314_4);
    let c3 = T::of_f64(-0.900_968_867_902_419_1);
    let s1 = T::of_f64(0.781_831_482_468_029_8);
    let s2 = T::of_f64(0.974_927_912_181_823_6);
    let s3 = T::of_f64(0.433_883_739_117_558_1);
    let (a, d) = (add(x[1], x[6]), times_minus_i(sub(x[1], x[6])));
    let (b, e) = (add(x[2], x[5]), times_minus_i(sub(x[2], x[5])));
    let (c, f) = (add(x[3], x[4]), times_minus_i(sub(x[3], x[4])));
    let sum = |u, v, w| axpy::<T, I>(axpy::<T, I>(axpy::<T, I>(x[0], u, a), v, b), w, c);
    let odd = |u, v, w| axpy::<T, I>(axpy::<T, I>(scale(u, d), v, e), w, f);
    let (m1, m2, m3) = (sum(c1, c2, c3), sum(c2, c3, c1), sum(c3, c1, c2));
    let (n1, n2, n3) = (odd(s1, s2, s3), odd(s2, -s3, -s1), odd(s3, -s1, s2));
    let first = add(add(x[0], a), add(b, c));
    [first, add(m1, n1), add(m2, n2), add(m3, n3), sub(m3, n3), sub(m2, n2), sub(m1, n1)]
}

#[inline(always)]
pub(super) fn eight<T: Float, I: Isa>(x: [C<T>; 8]) -> [C<T>; 8] {
    let e = four::<T, I>([x[0], x[2], x[4], x[6]]);
    let o = four::<T, I>([x[1], x[3], x[5], x[7]]);
    let h = T::of_f64(std::f64::consts::FRAC_1_SQRT_2);
    // The odd ones times the eighth roots of one: (1 - i) h, -i, (-1 - i) h.
    let (a, b) = ((o[1].0 + o[1].1, o[1].1 - o[1].0), times_minus_i(o[2]));
    let c = (o[3].1 - o[3].0, -(o[3].0 + o[3].1));
    [
        add(e[0], o[0]),
        axpy::<T, I>(e[1], h, a),
        add(e[2], b),
        axpy::<T, I>(e[3], h, c),
        sub(e[0], o[0]),
        axpy::<T, I>(e[1], -h, a),
        sub(e[2], b),
        axpy::<T, I>(e[3], -h, c),
    ]
}
