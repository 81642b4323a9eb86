//! Convolution and pooling: samples and naive twins.

use super::naive::{Array, indices, ravel};
use super::samples::{Dice, Sample, WIDE};
use pullback::{DType, Op, Shape, Tensor};
use pullback_ir::{Conv, Frame, Pool, Pooling, Role, Window};

/// A convolution to try: batch, groups, channels of a group on both sides, lengths, windows; and
/// whether by differences.
type Case = (usize, usize, [usize; 2], Vec<usize>, Vec<Window>, bool);

fn window(size: usize, stride: usize, dilation: usize, before: isize, after: isize) -> Window {
    Window { size, stride, dilation, before, after }
}

/// Small ones are differentiated; the others go through every kernel, with edges in every place.
fn cases() -> Vec<Case> {
    let w = window;
    vec![
        (1, 1, [2, 3], vec![5], vec![w(3, 1, 1, 1, 1)], true),
        (2, 1, [3, 2], vec![4], vec![w(2, 3, 1, 0, 1)], true),
        (1, 2, [1, 2], vec![5], vec![w(2, 2, 2, 1, 0)], true),
        (1, 1, [2, 3], vec![3, 3], vec![w(2, 1, 1, 0, 1), w(3, 2, 1, 2, 1)], true),
        (
            1,
            1,
            [2, 3],
            vec![2, 1, 3],
            vec![w(1, 1, 1, 0, 0), w(2, 2, 1, 1, 1), w(2, 1, 2, 1, 1)],
            true,
        ),
        (2, 1, [1, 1], vec![3, 2], vec![w(2, 1, 1, 1, 0), w(2, 1, 1, 0, 1)], true),
        // Negative padding leaves elements out.
        (1, 1, [3, 2], vec![6], vec![w(2, 2, 1, -1, -1)], true),
        // Windows that see nothing but padding, and elements that no window sees.
        (1, 1, [3, 2], vec![3], vec![w(2, 4, 1, 3, 4)], true),
        // No image, no channel.
        (0, 1, [2, 3], vec![4], vec![w(3, 1, 1, 1, 1)], false),
        (2, 1, [0, 3], vec![4], vec![w(3, 1, 1, 1, 1)], false),
        (2, 1, [3, 0], vec![4], vec![w(3, 1, 1, 1, 1)], false),
        // Around the widths of tiles and panels.
        (1, 1, [5, 13], vec![33], vec![w(3, 1, 1, 1, 1)], false),
        (3, 1, [4, 12], vec![7, 7], vec![w(3, 1, 1, 1, 1), w(3, 1, 1, 1, 1)], false),
        (2, 1, [3, 25], vec![9, 37], vec![w(3, 2, 1, 1, 1), w(5, 2, 1, 2, 2)], false),
        (2, 2, [3, 17], vec![8, 35], vec![w(2, 1, 2, 0, 1), w(3, 3, 2, 2, 3)], false),
        (5, 1, [9, 7], vec![2, 2], vec![w(1, 1, 1, 0, 0), w(2, 1, 1, 0, 0)], false),
        (1, 1, [40, 33], vec![11, 16], vec![w(3, 1, 1, 1, 1), w(3, 1, 1, 1, 1)], false),
        (
            2,
            1,
            [3, 5],
            vec![4, 5, 19],
            vec![w(3, 2, 1, 1, 1), w(2, 1, 2, 0, 1), w(3, 2, 1, 1, 1)],
            false,
        ),
        (
            2,
            3,
            [2, 3],
            vec![6, 5, 4],
            vec![w(2, 1, 1, 0, 0), w(3, 1, 1, 1, 1), w(1, 1, 1, 0, 0)],
            false,
        ),
        // Depthwise, with and without a stride.
        (2, 7, [1, 1], vec![9, 21], vec![w(3, 1, 1, 1, 1), w(3, 1, 1, 1, 1)], false),
        (2, 5, [1, 2], vec![9, 22], vec![w(3, 2, 1, 1, 1), w(4, 3, 2, 1, 2)], false),
        // So wide that a copy with zeros around it would be larger than it is worth.
        (1, 1, [3, 3], vec![7], vec![w(2, 1, 300_000, 150_000, 150_000)], false),
    ]
}

fn shapes(case: &Case) -> [Vec<usize>; 3] {
    let (batch, groups, [inner, outer], lengths, windows, _) = case;
    let counts = lengths.iter().zip(windows).map(|(&n, w)| w.count(n).expect("a window"));
    let with = |a: usize, b: usize, rest: Vec<usize>| [vec![a, b], rest].concat();
    [
        with(*batch, groups * inner, lengths.clone()),
        with(groups * outer, *inner, windows.iter().map(|w| w.size).collect()),
        with(*batch, groups * outer, counts.collect()),
    ]
}

fn conv_op(role: &Role, case: &Case) -> (Op, [Vec<usize>; 2]) {
    let [x, w, y] = shapes(case);
    let (role, operands) = match role {
        Role::Forward => (Role::Forward, [x, w]),
        Role::Input(_) => (Role::Input(Shape::from_slice(&case.3)), [y, w]),
        Role::Filter => (Role::Filter, [x, y]),
    };
    let (windows, groups) = (case.4.clone(), case.1);
    (Op::Conv(Box::new(Conv { role, windows, groups, last: false })), operands)
}

pub fn conv_samples(role: &Role, dice: &mut Dice) -> Vec<Sample> {
    let one = |case: Case| {
        let (op, shapes) = conv_op(role, &case);
        // Sums of many terms stay below what a narrow float holds.
        let inputs = shapes.iter().map(|shape| dice.tensor(shape, (-1.2, 1.2))).collect();
        Sample { op, inputs, check: case.5 }
    };
    let plain: Vec<Sample> = cases().into_iter().map(one).collect();
    // Some with the channels of the result last.
    let last = plain.iter().skip(1).step_by(3).map(|sample| {
        let Op::Conv(conv) = &sample.op else { unreachable!("a convolution") };
        let op = Op::Conv(Box::new(Conv { last: true, ..(**conv).clone() }));
        Sample { op, inputs: sample.inputs.clone(), check: sample.check }
    });
    let last: Vec<Sample> = last.collect();
    plain.into_iter().chain(last).collect()
}

/// Large ones, for threads.
pub fn conv_large(role: &Role, random: &mut dyn FnMut(&[usize]) -> Tensor) -> Vec<Sample> {
    let w = window(3, 1, 1, 1, 1);
    let cases: Vec<Case> = vec![
        (4, 1, [8, 20], vec![24, 24], vec![w, w], false),
        (1, 1, [16, 33], vec![3000], vec![window(5, 2, 1, 2, 2)], false),
        (70, 2, [5, 6], vec![3, 3], vec![w, w], false),
        (2, 48, [1, 1], vec![40, 40], vec![w, w], false),
    ];
    let one = |case: &Case| {
        let (op, shapes) = conv_op(role, case);
        Sample { op, inputs: shapes.iter().map(|s| random(s)).collect(), check: false }
    };
    cases.iter().map(one).collect()
}

/// Where output `o` has tap `t`, if that is on the input.
fn position(windows: &[Window], lengths: &[usize], o: &[usize], t: &[usize]) -> Option<Vec<usize>> {
    let one = |i: usize| {
        let w = windows[i];
        let at = (o[i] * w.stride + t[i] * w.dilation) as isize - w.before;
        (at >= 0 && at < lengths[i] as isize).then_some(at as usize)
    };
    (0..windows.len()).map(one).collect()
}

pub fn conv(of: &Conv, x: &[Array]) -> Array {
    let y = image(of, x);
    if !of.last {
        return y;
    }
    let mut shape = y.shape.clone();
    shape[1..].rotate_left(1);
    Array::make(&shape, y.dtype, |i| {
        let mut at = i.to_vec();
        at[1..].rotate_right(1);
        y.at(&at)
    })
}

/// The result with the channels before the spatial axes.
fn image(conv: &Conv, x: &[Array]) -> Array {
    let (a, b) = (&x[0], &x[1]);
    let sizes: Vec<usize> = conv.windows.iter().map(|w| w.size).collect();
    // The three shapes, of which two are given.
    let (image, kernel, result) = match &conv.role {
        Role::Forward => {
            let counts = a.shape[2..].iter().zip(&conv.windows).map(|(&n, w)| w.count(n).unwrap());
            let y = [vec![a.shape[0], b.shape[0]], counts.collect()].concat();
            (a.shape.clone(), b.shape.clone(), y)
        }
        Role::Input(lengths) => {
            let x = [vec![a.shape[0], b.shape[1] * conv.groups], lengths.to_vec()].concat();
            (x, b.shape.clone(), a.shape.clone())
        }
        Role::Filter => {
            let w = [vec![b.shape[1], a.shape[1] / conv.groups], sizes.clone()].concat();
            (a.shape.clone(), w, b.shape.clone())
        }
    };
    let shape = match &conv.role {
        Role::Forward => &result,
        Role::Input(_) => &image,
        Role::Filter => &kernel,
    };
    let mut out = vec![0.0; shape.iter().product()];
    let outer = (kernel[0] / conv.groups).max(1);
    // The distance between channels.
    let [channel_x, channel_w] = [&image, &kernel].map(|s| s[2..].iter().product::<usize>());
    for o in indices(&result) {
        let in_y = ravel(&o, &result);
        for t in indices(&sizes) {
            let Some(at) = position(&conv.windows, &image[2..], &o[2..], &t) else { continue };
            let first = o[1] / outer * kernel[1];
            let first_x = ravel(&[&[o[0], first], &at[..]].concat(), &image);
            let first_w = ravel(&[&[o[1], 0], &t[..]].concat(), &kernel);
            for i in 0..kernel[1] {
                let (in_x, in_w) = (first_x + i * channel_x, first_w + i * channel_w);
                match &conv.role {
                    Role::Forward => out[in_y] += a.values[in_x] * b.values[in_w],
                    Role::Input(_) => out[in_x] += a.values[in_y] * b.values[in_w],
                    Role::Filter => out[in_w] += a.values[in_x] * b.values[in_y],
                }
            }
        }
    }
    Array { shape: shape.clone(), values: out, dtype: a.dtype }
}

/// Lengths of all axes, and frames of the last of them.
fn pools() -> Vec<(Vec<usize>, Vec<Frame>, bool)> {
    let s = |size, stride, dilation, before, after| {
        Frame::Sliding(window(size, stride, dilation, before, after))
    };
    vec![
        (vec![5], vec![s(2, 2, 1, 0, 0)], true),
        (vec![2, 5], vec![s(3, 2, 1, 1, 1)], true),
        (vec![2, 6], vec![s(2, 1, 2, 1, 2)], true),
        (vec![1, 2, 3, 4], vec![s(2, 1, 1, 1, 0), s(3, 2, 1, 1, 1)], true),
        (vec![3, 2, 5], vec![s(1, 1, 1, 0, 0), s(2, 2, 1, -1, 0)], true),
        (vec![2, 3, 2, 3], vec![s(2, 1, 1, 1, 0), s(2, 2, 1, 0, 0), s(3, 3, 1, 1, 1)], true),
        (vec![2, 5], vec![Frame::Even(3)], true),
        (vec![3, 4], vec![Frame::Even(2), Frame::Even(6)], true),
        (vec![2, 3, 4], vec![Frame::Even(1), s(3, 1, 1, 1, 1)], true),
        (vec![2, 4], vec![Frame::Even(0)], true),
        (vec![0, 4], vec![s(2, 2, 1, 0, 0)], true),
        (vec![3, 19, 37], vec![s(3, 2, 1, 1, 1), s(5, 3, 1, 2, 1)], false),
        (vec![2, 3, 16, 32], vec![s(2, 2, 1, 0, 0), s(2, 2, 1, 0, 0)], false),
        (vec![2, 5, 7], vec![s(2, 2, 1, 0, 0), s(2, 2, 1, 0, 0)], true),
    ]
}

pub fn pool_samples(kind: &Pooling, dice: &mut Dice) -> Vec<Sample> {
    let mut out = Vec::new();
    for (shape, frames, check) in pools() {
        let (kind, operand) = pool_shapes(kind, &shape, &frames);
        let mut random = |shape: &[usize]| dice.tensor(shape, WIDE);
        let inputs = pool_operands(&kind, &shape, &operand, &frames, &mut random);
        out.push(Sample { op: Op::Pool(Box::new(Pool { kind, frames })), inputs, check });
    }
    if *kind == Pooling::Take {
        // Positions outside of their pieces; and integers.
        let frames = vec![Frame::Sliding(window(2, 2, 1, 0, 0))];
        let op = Op::Pool(Box::new(Pool { kind: Pooling::Take, frames }));
        let places = Tensor::from_vec(vec![1i64, -1, 6], [3]);
        let whole = Tensor::from_vec(vec![3i64, 3, -7, i64::MIN, 5, 6], [6]);
        for x in [dice.tensor(&[6], WIDE), whole] {
            out.push(Sample { op: op.clone(), inputs: vec![x, places.clone()], check: false });
        }
        let op = Op::Pool(Box::new(Pool { kind: Pooling::Take, frames: squares() }));
        let places = Tensor::from_vec(vec![7i64, 4, 11, 12, -1, i64::MIN], [2, 3]);
        let inputs = vec![dice.tensor(&[4, 6], WIDE), places];
        out.push(Sample { op, inputs, check: false });
    }
    if *kind == Pooling::ArgMax {
        // Ties, infinities and NaN; and integers.
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        let odd = [1.0, 1.0, -inf, -inf, nan, 2.0, nan, nan, inf, inf, -0.0, 0.0];
        let frames = vec![Frame::Sliding(window(2, 2, 1, 0, 0))];
        let op = Op::Pool(Box::new(Pool { kind: Pooling::ArgMax, frames }));
        let whole = Tensor::from_vec(vec![3i64, 3, -7, i64::MIN, 5, 6], [6]);
        for x in [Tensor::from_vec(odd, [12]), whole] {
            out.push(Sample { op: op.clone(), inputs: vec![x], check: false });
        }
        let op = Op::Pool(Box::new(Pool { kind: Pooling::ArgMax, frames: squares() }));
        let odd = [1.0, 1.0, nan, 2.0, -inf, -inf, 1.0, 0.5, 3.0, nan, -inf, -inf];
        let x = Tensor::from_vec(odd, [2, 6]);
        out.push(Sample { op, inputs: vec![x], check: false });
    }
    out
}

/// Squares of two by two elements.
fn squares() -> Vec<Frame> {
    vec![Frame::Sliding(window(2, 2, 1, 0, 0)); 2]
}

/// The kind with its lengths, and the shape of its operand.
fn pool_shapes(kind: &Pooling, shape: &[usize], frames: &[Frame]) -> (Pooling, Vec<usize>) {
    let (lead, last) = shape.split_at(shape.len() - frames.len());
    let counts = last.iter().zip(frames).map(|(&n, f)| f.count(n).expect("a piece"));
    match kind {
        Pooling::Sum | Pooling::ArgMax | Pooling::Take => (kind.clone(), shape.to_vec()),
        Pooling::Spread(_) => {
            (Pooling::Spread(Shape::from_slice(last)), lead.iter().copied().chain(counts).collect())
        }
        Pooling::Give(_) => {
            (Pooling::Give(Shape::from_slice(last)), lead.iter().copied().chain(counts).collect())
        }
    }
}

/// The operand, and the positions of the largest elements of pieces where the kind takes them.
fn pool_operands(
    kind: &Pooling,
    shape: &[usize],
    operand: &[usize],
    frames: &[Frame],
    random: &mut dyn FnMut(&[usize]) -> Tensor,
) -> Vec<Tensor> {
    let x = random(operand);
    match kind {
        Pooling::Sum | Pooling::ArgMax | Pooling::Spread(_) => vec![x],
        Pooling::Take | Pooling::Give(_) => {
            let most = Pool { kind: Pooling::ArgMax, frames: frames.to_vec() };
            let whole = random(shape);
            let places = pool(&most, &[Array::of(&whole)]);
            let places: Vec<i64> = places.values.iter().map(|&p| p as i64).collect();
            let lead = &shape[..shape.len() - frames.len()];
            let last = &shape[lead.len()..];
            let counts = last.iter().zip(frames).map(|(&n, f)| f.count(n).expect("a piece"));
            let pieces: Vec<usize> = lead.iter().copied().chain(counts).collect();
            vec![x, Tensor::from_vec(places, &pieces[..])]
        }
    }
}

pub fn pool_large(kind: &Pooling, random: &mut dyn FnMut(&[usize]) -> Tensor) -> Vec<Sample> {
    let frames = vec![Frame::Sliding(window(3, 2, 1, 1, 1)), Frame::Even(17)];
    let (kind, operand) = pool_shapes(kind, &[9, 11, 40, 50], &frames);
    let inputs = pool_operands(&kind, &[9, 11, 40, 50], &operand, &frames, random);
    vec![Sample { op: Op::Pool(Box::new(Pool { kind, frames })), inputs, check: false }]
}

/// The positions of a piece, as the definition says.
fn positions(frame: &Frame, o: usize, n: usize) -> Vec<usize> {
    match frame {
        Frame::Sliding(w) => {
            let at = |t: usize| (o * w.stride + t * w.dilation) as isize - w.before;
            let inside = |&p: &isize| p >= 0 && p < n as isize;
            (0..w.size).map(at).filter(inside).map(|p| p as usize).collect()
        }
        Frame::Even(m) => (0..n).filter(|&p| (p + 1) * m > o * n && p * m < (o + 1) * n).collect(),
    }
}

pub fn pool(pool: &Pool, x: &[Array]) -> Array {
    let (x, at) = (&x[0], x.get(1));
    let rank = pool.frames.len();
    let (lead, last) = x.shape.split_at(x.shape.len() - rank);
    let whole = match &pool.kind {
        Pooling::Sum | Pooling::ArgMax | Pooling::Take => last.to_vec(),
        Pooling::Spread(lengths) | Pooling::Give(lengths) => lengths.to_vec(),
    };
    let counts: Vec<usize> =
        whole.iter().zip(&pool.frames).map(|(&n, f)| f.count(n).unwrap()).collect();
    let spreads = matches!(pool.kind, Pooling::Spread(_) | Pooling::Give(_));
    let shape = [lead, if spreads { &whole[..] } else { &counts[..] }].concat();
    let dtype = if pool.kind == Pooling::ArgMax { DType::I64 } else { x.dtype };
    let mut out = vec![0.0; shape.iter().product()];
    for image in indices(lead) {
        for o in indices(&counts) {
            let lists: Vec<Vec<usize>> =
                (0..rank).map(|i| positions(&pool.frames[i], o[i], whole[i])).collect();
            let lengths: Vec<usize> = lists.iter().map(Vec::len).collect();
            let places: Vec<Vec<usize>> = indices(&lengths)
                .iter()
                .map(|k| k.iter().zip(&lists).map(|(&k, list)| list[k]).collect())
                .collect();
            let full = |tail: &[usize]| [&image[..], tail].concat();
            let chosen =
                |p: &&Vec<usize>| at.is_some_and(|at| at.at(&full(&o)) == ravel(p, &whole) as f64);
            match &pool.kind {
                Pooling::Take => {
                    out[ravel(&full(&o), &shape)] =
                        places.iter().find(chosen).map_or(0.0, |p| x.at(&full(p)));
                }
                Pooling::Give(_) => {
                    if let Some(p) = places.iter().find(chosen) {
                        out[ravel(&full(p), &shape)] += x.at(&full(&o));
                    }
                }
                Pooling::Sum => {
                    let sum = places.iter().map(|p| x.at(&full(p))).sum();
                    out[ravel(&full(&o), &shape)] = sum;
                }
                Pooling::ArgMax => {
                    let mut best = &places[0];
                    for p in &places {
                        let (new, old) = (x.at(&full(p)), x.at(&full(best)));
                        best = if new.is_nan() || new > old { p } else { best };
                    }
                    out[ravel(&full(&o), &shape)] = ravel(best, &whole) as f64;
                }
                Pooling::Spread(_) => {
                    places.iter().for_each(|p| out[ravel(&full(p), &shape)] += x.at(&full(&o)))
                }
            }
        }
    }
    Array { shape, values: out, dtype }
}
