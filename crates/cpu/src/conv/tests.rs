//! Every path against plain loops, on many random shapes: lengths around the widths of tiles and
//! panels, strides, dilations, paddings of either sign, groups, operands of any strides.

use super::*;
use crate::par;
use pullback_ir::{Few, Shape, dense_strides};

/// A small random generator.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }

    /// Integers, so that every sum is exact and any order gives the same bits.
    fn values<T: From<i8>>(&mut self, n: usize) -> Vec<T> {
        (0..n).map(|_| T::from(self.roll(9) as i8 - 4)).collect()
    }
}

struct Trial {
    windows: Vec<Window>,
    groups: usize,
    image: Vec<usize>,
    kernel: Vec<usize>,
    result: Vec<usize>,
}

fn trial(dice: &mut Dice) -> Option<Trial> {
    let rank = 1 + dice.roll(3);
    let groups = 1 + dice.roll(3) * dice.roll(2);
    let longest = [70, 20, 7][rank - 1];
    let (inner, outer) = (1 + dice.roll(7), 1 + dice.roll(30));
    let (mut windows, mut lengths, mut counts) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rank {
        let endless = [usize::MAX, isize::MAX as usize, 1 << 63][dice.roll(3)];
        let window = Window {
            size: 1 + dice.roll(4),
            stride: if dice.roll(8) == 0 { endless } else { 1 + dice.roll(3) },
            dilation: 1 + dice.roll(3),
            before: dice.roll(5) as isize - 1,
            after: dice.roll(5) as isize - 1,
        };
        let len = 1 + dice.roll(longest);
        counts.push(window.count(len)?);
        lengths.push(len);
        windows.push(window);
    }
    let batch = 1 + dice.roll(4);
    let with = |a: usize, b: usize, rest: Vec<usize>| [vec![a, b], rest].concat();
    let sizes = windows.iter().map(|w| w.size).collect();
    Some(Trial {
        groups,
        image: with(batch, groups * inner, lengths),
        kernel: with(groups * outer, inner, sizes),
        result: with(batch, groups * outer, counts),
        windows,
    })
}

/// Calls `f` for every product with the offsets in image, kernel and result.
fn products(t: &Trial, mut f: impl FnMut(usize, usize, usize)) {
    let [image, kernel, result] =
        [&t.image, &t.kernel, &t.result].map(|s| dense_strides(s).to_vec());
    let all = |shape: &[usize]| {
        let mut list: Vec<Vec<usize>> = vec![vec![]];
        for &n in shape {
            list = list.iter().flat_map(|h| (0..n).map(move |k| [&h[..], &[k]].concat())).collect();
        }
        list
    };
    let outer = t.kernel[0] / t.groups;
    let taps = all(&t.kernel[2..]);
    for y in all(&t.result) {
        for tap in &taps {
            let at: Option<Vec<usize>> = (0..t.windows.len())
                .map(|i| {
                    let w = t.windows[i];
                    let p = (y[i + 2] * w.stride + tap[i] * w.dilation) as isize - w.before;
                    (p >= 0 && p < t.image[i + 2] as isize).then_some(p as usize)
                })
                .collect();
            let Some(at) = at else { continue };
            let dot = |index: &[usize], strides: &[isize]| -> usize {
                index.iter().zip(strides).map(|(&i, &s)| i * s as usize).sum()
            };
            for i in 0..t.kernel[1] {
                let x = [&[y[0], y[1] / outer * t.kernel[1] + i], &at[..]].concat();
                let w = [&[y[1], i], &tap[..]].concat();
                f(dot(&x, &image), dot(&w, &kernel), dot(&y, &result));
            }
        }
    }
}

/// The same values with axes in another order in memory and gaps between them.
fn scattered<T: Copy + Default>(dice: &mut Dice, v: &[T], shape: &[usize]) -> (Vec<T>, Few<isize>) {
    let mut order: Vec<usize> = (0..shape.len()).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, dice.roll(i + 1));
    }
    let mut strides = Few::from_elem(0, shape.len());
    let mut step = 1 + dice.roll(2);
    for &axis in &order {
        strides[axis] = step as isize;
        step *= shape[axis] + dice.roll(2);
    }
    let mut out = vec![T::default(); step + 1];
    for (i, &value) in v.iter().enumerate() {
        let mut rest = i;
        let mut at = 0;
        for axis in (0..shape.len()).rev() {
            at += rest % shape[axis] * strides[axis] as usize;
            rest /= shape[axis];
        }
        out[at] = value;
    }
    (out, strides)
}

fn check<T>(rounds: usize, seed: u64)
where
    T: Elem + From<i8> + PartialEq + std::fmt::Debug + std::ops::Mul<Output = T>,
    T: std::ops::AddAssign,
{
    let mut dice = Dice(seed);
    let mut tried = 0;
    while tried < rounds {
        let Some(t) = trial(&mut dice) else { continue };
        tried += 1;
        let count = |shape: &[usize]| shape.iter().product::<usize>();
        let (x, w, y): (Vec<T>, Vec<T>, Vec<T>) = (
            dice.values(count(&t.image)),
            dice.values(count(&t.kernel)),
            dice.values(count(&t.result)),
        );
        let lengths = Role::Input(Shape::from_slice(&t.image[2..]));
        for role in [Role::Forward, lengths, Role::Filter] {
            let (a, b, shape) = match role {
                Role::Forward => ((&x, &t.image), (&w, &t.kernel), &t.result),
                Role::Input(_) => ((&y, &t.result), (&w, &t.kernel), &t.image),
                Role::Filter => ((&x, &t.image), (&y, &t.result), &t.kernel),
            };
            let mut expected = vec![T::default(); count(shape)];
            products(&t, |i, j, k| match role {
                Role::Forward => expected[k] += x[i] * w[j],
                Role::Input(_) => expected[i] += y[k] * w[j],
                Role::Filter => expected[j] += x[i] * y[k],
            });
            let op = Conv {
                role: role.clone(),
                windows: t.windows.clone(),
                groups: t.groups,
                last: false,
            };
            for dense in [true, false] {
                let mut lay = |v: &[T], shape: &[usize]| match dense {
                    true => (v.to_vec(), dense_strides(shape)),
                    false => scattered(&mut dice, v, shape),
                };
                let (av, ast) = lay(a.0, a.1);
                let (bv, bst) = lay(b.0, b.1);
                let source = |v: &[T], shape, strides| Source {
                    ptr: v.as_ptr().cast(),
                    shape,
                    strides,
                    dtype: T::DTYPE,
                };
                let mut out = vec![T::from(77); count(shape)];
                let sink = Sink { ptr: out.as_mut_ptr().cast(), shape, dtype: T::DTYPE };
                par::with_threads(1 + tried % 2, || {
                    conv(&op, source(&av, a.1, &ast), source(&bv, b.1, &bst), sink)
                });
                assert!(out == expected, "{op:?} on {:?}, {:?}: dense {dense}", a.1, b.1);
            }
        }
    }
}

#[test]
fn random_shapes_equal_plain_loops() {
    check::<f32>(if cfg!(miri) { 3 } else { 400 }, 1);
    check::<f64>(if cfg!(miri) { 2 } else { 200 }, 2);
}

/// Copies of a few elements with a great many zeros between them are not made.
#[test]
fn regions_much_larger_than_the_data_are_wide() {
    use super::source_block::{AxisReads, SourceBlock};
    let one = AxisReads { first: 0, step: 1, count: 1, reach: 0, len: 1 };
    let region = |last: AxisReads| SourceBlock::new([one, one, last]);
    let spread = region(AxisReads { first: -30_000, step: 1, count: 8, reach: 60_000, len: 8 });
    assert!(spread.is_wide(32 * 256, 8) && spread.is_wide(96, 8) && !spread.is_wide(1, 8));
    let plain = region(AxisReads { first: -1, step: 1, count: 64, reach: 2, len: 64 });
    assert!(!plain.is_wide(1 << 20, 64));
}
