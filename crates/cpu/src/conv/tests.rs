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
        compare::<T>(&t, &mut dice, 1 + tried % 2);
    }
}

/// All three maps of a trial, dense and strided.
fn compare<T>(t: &Trial, dice: &mut Dice, threads: usize)
where
    T: Elem + From<i8> + PartialEq + std::fmt::Debug + std::ops::Mul<Output = T>,
    T: std::ops::AddAssign,
{
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
        products(t, |i, j, k| match role {
            Role::Forward => expected[k] += x[i] * w[j],
            Role::Input(_) => expected[i] += y[k] * w[j],
            Role::Filter => expected[j] += x[i] * y[k],
        });
        let op =
            Conv { role: role.clone(), windows: t.windows.clone(), groups: t.groups, last: false };
        for dense in [true, false] {
            let mut lay = |v: &[T], shape: &[usize]| match dense {
                true => (v.to_vec(), dense_strides(shape)),
                false => scattered(dice, v, shape),
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
            par::with_threads(threads, || {
                conv(&op, source(&av, a.1, &ast), source(&bv, b.1, &bst), sink)
            });
            assert!(out == expected, "{op:?} on {:?}, {:?}: dense {dense}", a.1, b.1);
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

/// Three by three taps with enough channels for transformed tiles: sums of few integers are exact
/// there too.
#[test]
fn transformed_tiles_equal_plain_loops() {
    let mut dice = Dice(3);
    for round in 0..if cfg!(miri) { 1 } else { 16 } {
        let groups = 1 + dice.roll(2);
        let window = |before, after| Window { size: 3, stride: 1, dilation: 1, before, after };
        let mut pad = || dice.roll(4) as isize - 1;
        let windows = vec![window(pad(), pad()), window(pad(), pad())];
        let lengths = [5 + dice.roll(20), 5 + dice.roll(40)];
        let counts = [0, 1].map(|i| windows[i].count(lengths[i]).unwrap());
        let (inner, outer, batch) = (14 + dice.roll(12), 14 + dice.roll(22), 1 + dice.roll(3));
        let t = Trial {
            groups,
            image: vec![batch, groups * inner, lengths[0], lengths[1]],
            kernel: vec![groups * outer, inner, 3, 3],
            result: vec![batch, groups * outer, counts[0], counts[1]],
            windows,
        };
        compare::<f32>(&t, &mut dice, 1 + round % 3);
    }
}

/// Values that are not finite, or would not be when they are transformed, reach the results whose
/// windows contain them, and no others.
#[test]
fn values_that_are_not_finite_stay_in_their_windows() {
    let (channels, n) = (16, 32);
    let windows = vec![Window { size: 3, stride: 1, dilation: 1, before: 1, after: 1 }; 2];
    let op = Conv { role: Role::Forward, windows, groups: 1, last: false };
    let (shape, kernel) = ([1, channels, n, n], [channels, channels, 3, 3]);
    let [a, b] = [dense_strides(&shape), dense_strides(&kernel)];
    let dtype = DType::F32;
    for [first, second] in [[1.0, f32::INFINITY], [f32::NAN, 1.0], [-3e38, 3e38]] {
        let mut x = vec![1.0f32; channels * n * n];
        (x[5 * n + 6], x[5 * n + 7]) = (first, second);
        let w = vec![0.5f32; channels * channels * 9];
        let mut out = vec![0.0f32; channels * n * n];
        let x = Source { ptr: x.as_ptr().cast(), shape: &shape, strides: &a, dtype };
        let w = Source { ptr: w.as_ptr().cast(), shape: &kernel, strides: &b, dtype };
        conv(&op, x, w, Sink { ptr: out.as_mut_ptr().cast(), shape: &shape, dtype });
        for (i, &y) in out.iter().enumerate() {
            let (h, w) = (i / n % n, i % n);
            let seen =
                |column: usize, value: f32| match h.abs_diff(5) <= 1 && w.abs_diff(column) <= 1 {
                    true => value,
                    false => 1.0,
                };
            let sum = seen(6, first) + seen(7, second);
            let full = [h, w].map(|at| if at == 0 || at == n - 1 { 2.0 } else { 3.0 });
            let plain = full[0] * full[1] * channels as f32 * 0.5;
            match sum {
                2.0 => assert_eq!(y, plain, "{first} and {second} at {h}, {w}"),
                sum if sum.is_nan() => assert!(y.is_nan()),
                sum if sum.is_infinite() => assert_eq!(y, sum),
                sum => assert!((y - 0.5 * sum).abs() <= 1e-6 * 3e38),
            }
        }
    }
}

/// What is made of a kernel beforehand gives the same bits, for either method.
#[test]
fn kernels_made_beforehand_give_the_same_bits() {
    let mut dice = Dice(4);
    for (channels, stride) in [(3, 1), (20, 1), (20, 2)] {
        let window = Window { size: 3, stride, dilation: 1, before: 1, after: 1 };
        let op = Conv { role: Role::Forward, windows: vec![window; 2], groups: 1, last: false };
        let (image, kernel) = ([2, channels, 15, 22], [24, channels, 3, 3]);
        let result = [2, 24, 15usize.div_ceil(stride), 22usize.div_ceil(stride)];
        let mut noise = |shape: &[usize]| -> Vec<f32> {
            (0..shape.iter().product()).map(|_| dice.roll(1000) as f32 / 999.0 - 0.5).collect()
        };
        let (x, w) = (noise(&image), noise(&kernel));
        let [a, b] = [dense_strides(&image), dense_strides(&kernel)];
        let dtype = DType::F32;
        let x = Source { ptr: x.as_ptr().cast(), shape: &image, strides: &a, dtype };
        let w = Source { ptr: w.as_ptr().cast(), shape: &kernel, strides: &b, dtype };
        let ready = kernels(&op, x, w, &result).expect("few results");
        // Only what was made of it is read.
        let nothing = vec![f32::NAN; w.shape.iter().product()];
        let unread = Source { ptr: nothing.as_ptr().cast(), ..w };
        let run = |w: Source, ready: Option<&PackedKernels>| {
            let mut out = vec![0.0f32; result.iter().product()];
            let sink = Sink { ptr: out.as_mut_ptr().cast(), shape: &result, dtype };
            conv_with(&op, x, w, ready, sink);
            out.iter().map(|y| y.to_bits()).collect::<Vec<u32>>()
        };
        assert_eq!(run(w, None), run(unread, Some(&ready)), "{channels} channels, stride {stride}");
    }
}

/// The error of transformed tiles, in units in the last place of the largest result.
#[test]
fn transformed_tiles_are_accurate() {
    let mut dice = Dice(5);
    let (channels, n) = (48, 20);
    let window = Window { size: 3, stride: 1, dilation: 1, before: 1, after: 1 };
    let op = Conv { role: Role::Forward, windows: vec![window; 2], groups: 1, last: false };
    let (shape, kernel) = ([1, channels, n, n], [16, channels, 3, 3]);
    let mut noise = |count: usize| -> Vec<f32> {
        (0..count).map(|_| dice.roll(1 << 20) as f32 / (1 << 19) as f32 - 1.0).collect()
    };
    let (x, w) = (noise(channels * n * n), noise(16 * channels * 9));
    let mut exact = vec![0.0f64; 16 * n * n];
    let t = Trial {
        windows: op.windows.clone(),
        groups: 1,
        image: shape.to_vec(),
        kernel: kernel.to_vec(),
        result: vec![1, 16, n, n],
    };
    products(&t, |i, j, k| exact[k] += f64::from(x[i]) * f64::from(w[j]));
    let [a, b] = [dense_strides(&shape), dense_strides(&kernel)];
    let dtype = DType::F32;
    let x = Source { ptr: x.as_ptr().cast(), shape: &shape, strides: &a, dtype };
    let w = Source { ptr: w.as_ptr().cast(), shape: &kernel, strides: &b, dtype };
    let mut out = vec![0.0f32; 16 * n * n];
    let sink = Sink { ptr: out.as_mut_ptr().cast(), shape: &t.result, dtype };
    conv(&op, x, w, sink);
    let largest = exact.iter().fold(0.0f64, |most, y| most.max(y.abs()));
    let pairs = out.iter().zip(&exact);
    let error = pairs.fold(0.0f64, |most, (&y, e)| most.max((f64::from(y) - e).abs()));
    assert!(error <= 8.0 * largest * f64::from(f32::EPSILON), "{error} of {largest}");
}
