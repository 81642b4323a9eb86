//! The passes of a transform: `n` rows of lanes, all lanes treated alike.
//!
//! Lanes come in blocks of [`W`]: `W` real parts, then their `W` imaginary parts. A pass of radix
//! `r` over `r·m` rows of `s` lanes reads rows `p + m·k` (`k` below `r`), transforms over `k`,
//! multiplies the results by `w^(p·k)` and writes them to rows `r·p + k`, which the next pass sees
//! as `m` rows of `r·s` lanes.

use super::radix::{self, C, add, mul, sub};
use super::shuffle::LaneShuffle;
use crate::simd::{Float, Isa, SimdTask};

/// Lanes of a block.
pub(super) const W: usize = 8;
/// Elements of a block.
pub(super) const BLOCK: usize = 2 * W;
/// The largest prime that is a radix.
pub(super) const LARGEST: usize = 31;

/// Where the rows of a pass are. All but the result of the last pass are rows of blocks.
#[derive(Clone, Copy)]
pub(super) struct Rows<T> {
    pub(super) ptr: *mut T,
    /// Elements from a row to the next.
    pub(super) row: usize,
    /// Elements from `W` lanes to the next.
    pub(super) block: usize,
    /// Elements from real to imaginary parts; zero if they are pairs.
    pub(super) im: usize,
    /// What the last pass multiplies imaginary parts by.
    pub(super) sign: T,
}

impl<T: LaneShuffle> Rows<T> {
    /// Rows of blocks, `row` elements apart.
    pub(super) fn blocks(ptr: *mut T, row: usize) -> Rows<T> {
        Rows { ptr, row, block: BLOCK, im: W, sign: T::of_f64(1.0) }
    }

    /// Rows of `s` blocks, without gaps.
    pub(super) fn dense(ptr: *mut T, s: usize) -> Rows<T> {
        Rows::blocks(ptr, s * BLOCK)
    }

    /// Writes a block of a result to the place of its lanes.
    ///
    /// # Safety
    /// It is a place of these rows.
    #[inline(always)]
    unsafe fn put<I: Isa>(&self, at: *mut T, block: &[T; BLOCK]) {
        let re = block.as_ptr();
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (re, im) = (&*re.cast::<[T; W]>(), &*re.add(W).cast::<[T; W]>());
            if self.im == 0 {
                T::interleave::<I>(re, im, &mut *at.cast());
            } else {
                *at.cast() = *re;
                *at.add(self.im).cast() = *im;
            }
        }
    }
}

/// One pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct FftPass {
    pub(super) radix: usize,
    /// Rows after it.
    pub(super) rows: usize,
    /// Where its roots start in the table: for each `p` those for `k` from 1, as pairs. The last
    /// pass needs none.
    pub(super) roots: usize,
    /// Where the cosines of all roots of one of this order start, if the radix has no function.
    pub(super) circle: usize,
}

/// The passes of a length, in order.
pub(super) struct Passes<T> {
    pub(super) list: Vec<FftPass>,
    pub(super) roots: Vec<T>,
    /// Those of the first pass again, if it can be [`first`]: for each `k` from 1 the real parts
    /// for all `p`, then the imaginary ones.
    pub(super) first: Vec<T>,
}

macro_rules! pass {
    ($name:ident $lanes:ident $r:literal $butterfly:ident $($k:literal $x:ident $y:ident)*) => {
        #[inline(always)]
        #[allow(clippy::too_many_arguments)]
        fn $lanes<T: Float, I: Isa, const LAST: bool>(
            w: &[C<T>; $r],
            sign: T,
            $($x: &[T; BLOCK], $y: &mut [T; BLOCK],)*
        ) {
            for q in 0..W {
                let y = radix::$butterfly::<T, I>([$(($x[q], $x[W + q])),*]);
                $(
                    ($y[q], $y[W + q]) = match ($k, LAST) {
                        (_, true) => (y[$k].0, sign * y[$k].1),
                        (0, false) => y[$k],
                        _ => mul::<T, I>(y[$k], w[$k]),
                    };
                )*
            }
        }

        /// # Safety
        /// `x` has `radix · m` rows of `s` blocks and `y` space for them; they do not overlap.
        #[inline(always)]
        unsafe fn $name<T: LaneShuffle, I: Isa, const LAST: bool>(
            x: Rows<T>,
            y: Rows<T>,
            m: usize,
            s: usize,
            roots: *const T,
        ) {
            let (from, to) = (m * x.row, y.row);
            for p in 0..m {
                // SAFETY: inside the rows and the table of roots; the rows of y are disjoint.
                unsafe {
                    let roots = roots.wrapping_add(2 * ($r - 1) * p);
                    let root = |k: usize| (*roots.add(2 * k - 2), *roots.add(2 * k - 1));
                    let none = (T::default(), T::default());
                    let w = [$(if LAST || $k == 0 { none } else { root($k) }),*];
                    let (mut a, mut b) = (x.ptr.add(p * x.row), y.ptr.add($r * p * y.row));
                    for _ in 0..s {
                        if LAST {
                            $(let mut $y = [T::default(); BLOCK];)*
                            $lanes::<T, I, true>(
                                &w,
                                y.sign,
                                $(&*a.add($k * from).cast(), &mut $y,)*
                            );
                            $(y.put::<I>(b.add($k * to), &$y);)*
                            b = b.wrapping_add(y.block);
                        } else {
                            $lanes::<T, I, false>(
                                &w,
                                y.sign,
                                $(&*a.add($k * from).cast(), &mut *b.add($k * to).cast(),)*
                            );
                            b = b.wrapping_add(BLOCK);
                        }
                        a = a.wrapping_add(BLOCK);
                    }
                }
            }
        }
    };
}

pass!(pass2 lanes2 2 two 0 x0 y0 1 x1 y1);
pass!(pass3 lanes3 3 three 0 x0 y0 1 x1 y1 2 x2 y2);
pass!(pass4 lanes4 4 four 0 x0 y0 1 x1 y1 2 x2 y2 3 x3 y3);
pass!(pass5 lanes5 5 five 0 x0 y0 1 x1 y1 2 x2 y2 3 x3 y3 4 x4 y4);
pass!(pass7 lanes7 7 seven 0 x0 y0 1 x1 y1 2 x2 y2 3 x3 y3 4 x4 y4 5 x5 y5 6 x6 y6);
pass!(pass8 lanes8 8 eight 0 x0 y0 1 x1 y1 2 x2 y2 3 x3 y3 4 x4 y4 5 x5 y5 6 x6 y6 7 x7 y7);

/// A pass of any odd radix up to [`LARGEST`], by the definition, with conjugate rows combined.
///
/// # Safety
/// As for the others; `circle` has the cosines of the `radix` roots of one, then the sines.
#[inline(always)]
unsafe fn pass_prime<T: LaneShuffle, I: Isa>(
    x: Rows<T>,
    y: Rows<T>,
    pass: FftPass,
    s: usize,
    roots: *const T,
    circle: *const T,
) {
    let (r, m) = (pass.radix, pass.rows);
    let half = r / 2;
    let zero = [T::default(); W];
    // Sums and differences of opposite rows: [real, imaginary].
    let (mut sums, mut gaps) = ([[zero; 2]; LARGEST / 2], [[zero; 2]; LARGEST / 2]);
    for p in 0..m {
        for at in 0..s {
            // SAFETY: inside the rows and tables.
            unsafe {
                let from = x.ptr.add(p * x.row + at * BLOCK);
                let to = y.ptr.add(r * p * y.row + at * y.block);
                let load = |k: usize| {
                    let at = from.add(k * m * x.row);
                    (*at.cast::<[T; W]>(), *at.add(W).cast::<[T; W]>())
                };
                let (re0, im0) = load(0);
                let (mut re, mut im) = (re0, im0);
                for j in 1..=half {
                    let (a, b) = (load(j), load(r - j));
                    for q in 0..W {
                        let sum = add((a.0[q], a.1[q]), (b.0[q], b.1[q]));
                        let gap = sub((a.0[q], a.1[q]), (b.0[q], b.1[q]));
                        (sums[j - 1][0][q], sums[j - 1][1][q]) = sum;
                        (gaps[j - 1][0][q], gaps[j - 1][1][q]) = gap;
                        (re[q], im[q]) = add((re[q], im[q]), sum);
                    }
                }
                let last = m == 1;
                let sign = if last { y.sign } else { T::of_f64(1.0) };
                let mut block = [T::default(); BLOCK];
                for q in 0..W {
                    (block[q], block[W + q]) = (re[q], sign * im[q]);
                }
                y.put::<I>(to, &block);
                for k in 1..=half {
                    let mut even = [re0, im0];
                    let mut odd = [zero; 2];
                    for j in 1..=half {
                        let turn = j * k % r;
                        let (cos, sin) = (*circle.add(turn), *circle.add(r + turn));
                        let (sum, gap) = (&sums[j - 1], &gaps[j - 1]);
                        for q in 0..W {
                            even[0][q] = T::fma::<I>(cos, sum[0][q], even[0][q]);
                            even[1][q] = T::fma::<I>(cos, sum[1][q], even[1][q]);
                            // The difference times -i.
                            odd[0][q] = T::fma::<I>(sin, gap[1][q], odd[0][q]);
                            odd[1][q] = T::fma::<I>(-sin, gap[0][q], odd[1][q]);
                        }
                    }
                    for (k, side) in [(k, T::of_f64(1.0)), (r - k, T::of_f64(-1.0))] {
                        let w = match last {
                            true => (T::of_f64(1.0), T::of_f64(0.0)),
                            false => {
                                let at = roots.add(2 * (r - 1) * p + 2 * k);
                                (*at.sub(2), *at.sub(1))
                            }
                        };
                        for q in 0..W {
                            let v = (
                                T::fma::<I>(side, odd[0][q], even[0][q]),
                                T::fma::<I>(side, odd[1][q], even[1][q]),
                            );
                            (block[q], block[W + q]) = match last {
                                true => (v.0, sign * v.1),
                                false => mul::<T, I>(v, w),
                            };
                        }
                        y.put::<I>(to.add(k * y.row), &block);
                    }
                }
            }
        }
    }
}

/// The first pass of radix 8 over one line of pairs: eight `p` at a time take the place of lanes,
/// and a transposition makes the eight results of each `p` a block.
///
/// # Safety
/// `x` has `8 · m` pairs, `y` space for `m` blocks, which do not overlap; `m` is at least 8.
#[inline(always)]
unsafe fn first<T: LaneShuffle, I: Isa>(
    x: *const T,
    y: *mut T,
    m: usize,
    sign: T,
    roots: *const T,
) {
    let (mut from, mut to) = ([[T::default(); BLOCK]; 8], [[T::default(); BLOCK]; 8]);
    let mut p = 0;
    while p < m {
        // The last eight overlap those before them, if `m` is no multiple of eight.
        p = p.min(m - W);
        // SAFETY: inside the line and the table.
        unsafe {
            for (k, block) in from.iter_mut().enumerate() {
                T::deinterleave::<I>(&*x.add(2 * (p + m * k)).cast(), block);
            }
            eights::<T, I>(&from, sign, roots.add(p), m, &mut to);
            T::transpose::<I>(to.as_ptr().cast(), y.add(p * BLOCK));
            T::transpose::<I>(to.as_ptr().cast::<T>().add(W), y.add(p * BLOCK + W));
        }
        p += W;
    }
}

/// The loop of [`first`].
///
/// # Safety
/// The roots for `W` elements and each `k`, `2·m` apart.
#[inline(always)]
unsafe fn eights<T: Float, I: Isa>(
    x: &[[T; BLOCK]; 8],
    sign: T,
    roots: *const T,
    m: usize,
    y: &mut [[T; BLOCK]; 8],
) {
    for q in 0..W {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let x = |k: usize| (x[k][q], sign * x[k][W + q]);
            let w = |k: usize| (*roots.add(2 * (k - 1) * m + q), *roots.add((2 * k - 1) * m + q));
            let v = radix::eight::<T, I>([x(0), x(1), x(2), x(3), x(4), x(5), x(6), x(7)]);
            (y[0][q], y[0][W + q]) = v[0];
            (y[1][q], y[1][W + q]) = mul::<T, I>(v[1], w(1));
            (y[2][q], y[2][W + q]) = mul::<T, I>(v[2], w(2));
            (y[3][q], y[3][W + q]) = mul::<T, I>(v[3], w(3));
            (y[4][q], y[4][W + q]) = mul::<T, I>(v[4], w(4));
            (y[5][q], y[5][W + q]) = mul::<T, I>(v[5], w(5));
            (y[6][q], y[6][W + q]) = mul::<T, I>(v[6], w(6));
            (y[7][q], y[7][W + q]) = mul::<T, I>(v[7], w(7));
        }
    }
}

/// Where a transform starts.
#[derive(Clone, Copy)]
pub(super) enum PassInput<T> {
    /// Rows of that many blocks.
    Rows(Rows<T>, usize),
    /// One line of pairs, whose second parts are multiplied by the sign; the first radix is 8.
    Line(*const T, T),
}

/// How the result of a transform is written.
#[derive(Clone, Copy)]
pub(super) enum TransformTarget<T> {
    /// Rows of blocks, where [`Passes::end`] says.
    Blocks,
    /// Planes, that far apart, where [`Passes::end`] says.
    Planes(usize),
    /// Pairs there, whose second parts are multiplied by the sign.
    Pairs(*mut T, T),
}

/// All passes of a transform, in the two spaces in turn, from `a` on; what is at `b` may be the
/// source.
pub(super) struct PassRun<'a, T> {
    pub(super) passes: &'a Passes<T>,
    pub(super) from: PassInput<T>,
    pub(super) a: *mut T,
    pub(super) b: *mut T,
    pub(super) to: TransformTarget<T>,
}

impl<T> Passes<T> {
    /// The space of the result.
    pub(super) fn end(&self, a: *mut T, b: *mut T) -> *mut T {
        if self.list.len() % 2 == 1 { a } else { b }
    }
}

impl<T: LaneShuffle> SimdTask for PassRun<'_, T> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let (mut x, mut s) = match self.from {
            PassInput::Rows(rows, s) => (rows, s),
            PassInput::Line(..) => (Rows::dense(self.a, 1), 1),
        };
        let spaces = [self.a, self.b];
        let list = &self.passes.list;
        for (i, &pass) in list.iter().enumerate() {
            let roots = self.passes.roots.as_ptr().wrapping_add(pass.roots);
            let (r, m) = (pass.radix, pass.rows);
            // SAFETY: the spaces are as large as the transform, the roots are those of the pass,
            // and the passes belong to the number of rows.
            unsafe {
                if let (PassInput::Line(line, sign), 0) = (self.from, i) {
                    first::<T, I>(line, self.a, m, sign, self.passes.first.as_ptr());
                    continue;
                }
                let last = i + 1 == list.len();
                let blocks = Rows::dense(spaces[i % 2], s);
                let y = match self.to {
                    TransformTarget::Planes(im) if last => {
                        Rows { row: s * W, block: W, im, ..blocks }
                    }
                    TransformTarget::Pairs(ptr, sign) if last => {
                        Rows { ptr, im: 0, sign, ..blocks }
                    }
                    _ => blocks,
                };
                match (r, last) {
                    (2, false) => pass2::<T, I, false>(x, y, m, s, roots),
                    (2, true) => pass2::<T, I, true>(x, y, m, s, roots),
                    (3, false) => pass3::<T, I, false>(x, y, m, s, roots),
                    (3, true) => pass3::<T, I, true>(x, y, m, s, roots),
                    (4, false) => pass4::<T, I, false>(x, y, m, s, roots),
                    (4, true) => pass4::<T, I, true>(x, y, m, s, roots),
                    (5, false) => pass5::<T, I, false>(x, y, m, s, roots),
                    (5, true) => pass5::<T, I, true>(x, y, m, s, roots),
                    (7, false) => pass7::<T, I, false>(x, y, m, s, roots),
                    (7, true) => pass7::<T, I, true>(x, y, m, s, roots),
                    (8, false) => pass8::<T, I, false>(x, y, m, s, roots),
                    (8, true) => pass8::<T, I, true>(x, y, m, s, roots),
                    _ => {
                        let circle = self.passes.roots.as_ptr().wrapping_add(pass.circle);
                        pass_prime::<T, I>(x, y, pass, s, roots, circle);
                    }
                }
                s *= r;
                x = Rows::dense(spaces[i % 2], s);
            }
        }
    }
}
