//! Shapes, strides, broadcasting and indexing against a twin that holds its elements in a
//! `Vec<f64>`.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use pullback::{DType, Index, IntoIndex, Tensor, cat};

/// Elements in row-major order.
#[derive(Clone, Debug, PartialEq)]
struct Twin {
    shape: Vec<usize>,
    values: Vec<f64>,
}

impl Twin {
    /// Distinct small integers, so that sums are exact.
    fn iota(shape: &[usize]) -> Twin {
        let n: usize = shape.iter().product();
        Twin {
            shape: shape.to_vec(),
            values: (0..n).map(|k| ((k * 7919) % 1009) as f64 - 500.0).collect(),
        }
    }

    fn make(shape: &[usize], f: impl Fn(&[usize]) -> f64) -> Twin {
        let n: usize = shape.iter().product();
        Twin { shape: shape.to_vec(), values: (0..n).map(|k| f(&unravel(k, shape))).collect() }
    }

    fn at(&self, index: &[usize]) -> f64 {
        self.values[index.iter().zip(&self.shape).fold(0, |flat, (&i, &n)| flat * n + i)]
    }

    fn tensor(&self) -> Tensor {
        Tensor::from_vec(&self.values, &self.shape[..])
    }
}

fn unravel(mut flat: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (i, &n) in index.iter_mut().zip(shape).rev() {
        *i = flat % n;
        flat /= n;
    }
    index
}

fn same(x: &Tensor, twin: &Twin) -> TestCaseResult {
    prop_assert_eq!(x.shape(), &twin.shape[..]);
    prop_assert_eq!(x.to_vec::<f64>(), &twin.values[..]);
    Ok(())
}

fn shapes() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![1 => Just(0usize), 3 => Just(1), 12 => 2usize..5], 0..5)
}

/// One way to see a tensor anew; numbers are taken modulo what fits.
#[derive(Clone, Debug)]
enum Step {
    Permute(Vec<usize>),
    Flip(usize),
    Narrow(usize, usize, usize, usize),
    Expand(usize),
    Unsqueeze(usize),
    Flatten,
    Split(usize),
    Diagonal(isize),
    Unfold(usize, usize, usize),
    Swap(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let n = 0usize..8;
    let step = prop_oneof![
        prop::collection::vec(0usize..100, 6).prop_map(Step::Permute),
        n.clone().prop_map(Step::Flip),
        (n.clone(), n.clone(), n.clone(), 1usize..4)
            .prop_map(|(a, s, l, k)| Step::Narrow(a, s, l, k)),
        n.clone().prop_map(Step::Expand),
        n.clone().prop_map(Step::Unsqueeze),
        Just(Step::Flatten),
        n.clone().prop_map(Step::Split),
        (-3isize..4).prop_map(Step::Diagonal),
        (n.clone(), 1usize..4, 1usize..3).prop_map(|(a, s, k)| Step::Unfold(a, s, k)),
        (n.clone(), n).prop_map(|(a, b)| Step::Swap(a, b)),
    ];
    prop::collection::vec(step, 0..7)
}

/// Takes a step with both.
fn take(step: &Step, x: Tensor, t: Twin) -> (Tensor, Twin) {
    let rank = t.shape.len();
    if rank == 0 && !matches!(step, Step::Unsqueeze(_) | Step::Flatten) {
        return (x, t);
    }
    let mut shape = t.shape.clone();
    match step {
        Step::Permute(keys) => {
            let mut order: Vec<usize> = (0..rank).collect();
            order.sort_by_key(|&a| keys.get(a).copied().unwrap_or(a));
            let seen: Vec<usize> = order.iter().map(|&a| shape[a]).collect();
            let twin = Twin::make(&seen, |i| {
                let mut from = vec![0; rank];
                order.iter().zip(i).for_each(|(&a, &k)| from[a] = k);
                t.at(&from)
            });
            (x.permute(order.iter().map(|&a| a as isize).collect::<Vec<_>>()), twin)
        }
        Step::Flip(axis) => {
            let axis = axis % rank;
            let twin = Twin::make(&shape, |i| t.at(&with(i, axis, shape[axis] - 1 - i[axis])));
            (x.flip(axis as isize - rank as isize), twin)
        }
        Step::Narrow(axis, start, stop, step) => {
            let axis = axis % rank;
            let n = shape[axis];
            let (start, stop) = (start % (n + 1), stop % (n + 1));
            let picked: Vec<usize> = (start..stop.max(start)).step_by(*step).collect();
            shape[axis] = picked.len();
            let twin = Twin::make(&shape, |i| t.at(&with(i, axis, picked[i[axis]])));
            let mut entries = vec![(..).index(); axis];
            entries.push((start as isize..stop.max(start) as isize).by(*step as isize));
            (x.at(&entries[..]), twin)
        }
        Step::Expand(n) => {
            let lengths: Vec<usize> = [n % 3 + 1]
                .into_iter()
                .chain(shape.iter().map(|&m| if m == 1 { n % 4 + 1 } else { m }))
                .collect();
            if lengths.iter().product::<usize>() > 4000 {
                return (x, t);
            }
            let twin = Twin::make(&lengths, |i| {
                t.at(&i[1..]
                    .iter()
                    .zip(&shape)
                    .map(|(&k, &m)| if m == 1 { 0 } else { k })
                    .collect::<Vec<_>>())
            });
            (x.expand(&lengths[..]), twin)
        }
        Step::Unsqueeze(at) => {
            let at = at % (rank + 1);
            shape.insert(at, 1);
            (x.unsqueeze(at as isize), Twin { shape, ..t })
        }
        Step::Flatten => (x.reshape([-1isize]), Twin { shape: vec![t.values.len()], ..t }),
        Step::Split(axis) => {
            let axis = axis % rank;
            let n = shape[axis];
            let factor = (2..=n.max(1)).find(|f| n.is_multiple_of(*f)).unwrap_or(1);
            shape.splice(axis..=axis, [n / factor, factor]);
            (x.reshape(&shape[..]), Twin { shape, ..t })
        }
        Step::Diagonal(_) if rank < 2 => (x, t),
        Step::Diagonal(offset) => {
            let (a, b) = (rank - 1, 0);
            let (down, right) = ((-offset).max(0) as usize, (*offset).max(0) as usize);
            let len = shape[a].saturating_sub(down).min(shape[b].saturating_sub(right));
            let seen: Vec<usize> = shape[1..a].iter().copied().chain([len]).collect();
            let twin = Twin::make(&seen, |i| {
                let k = i[i.len() - 1];
                let from: Vec<usize> = [k + right]
                    .into_iter()
                    .chain(i[..i.len() - 1].iter().copied())
                    .chain([k + down])
                    .collect();
                t.at(&from)
            });
            (x.diagonal_of(*offset, -1, 0), twin)
        }
        Step::Unfold(axis, size, step) => {
            let axis = axis % rank;
            if *size > shape[axis] {
                return (x, t);
            }
            shape[axis] = (shape[axis] - size) / step + 1;
            shape.push(*size);
            let twin =
                Twin::make(&shape, |i| t.at(&with(&i[..rank], axis, i[axis] * step + i[rank])));
            (x.unfold(axis as isize, *size, *step), twin)
        }
        Step::Swap(a, b) => {
            let (a, b) = (a % rank, b % rank);
            shape.swap(a, b);
            let twin = Twin::make(&shape, |i| {
                let mut from = i.to_vec();
                from.swap(a, b);
                t.at(&from)
            });
            (x.transpose(a as isize, b as isize), twin)
        }
    }
}

fn with(index: &[usize], axis: usize, k: usize) -> Vec<usize> {
    let mut index = index.to_vec();
    index[axis] = k;
    index
}

/// A tensor seen through a random chain, with its twin.
fn chained(shape: &[usize], chain: &[Step]) -> (Tensor, Twin) {
    let twin = Twin::iota(shape);
    chain.iter().fold((twin.tensor(), twin), |(x, t), step| take(step, x, t))
}

fn entries() -> impl Strategy<Value = Vec<Index>> {
    let bound = prop::option::of(-7isize..8);
    let step = prop_oneof![Just(1isize), Just(2), Just(3), Just(-1), Just(-2)];
    let range = (bound.clone(), bound, step).prop_map(|(start, stop, step)| Index::Range {
        start,
        stop,
        step,
    });
    let entry = prop_oneof![4 => range, 2 => (-4isize..4).prop_map(Index::At), 1 => Just(Index::NewAxis), 1 => Just(Index::Ellipsis)];
    prop::collection::vec(entry, 0..5)
}

/// Python's `range(*slice(start, stop, step).indices(n))`.
fn python(start: Option<isize>, stop: Option<isize>, step: isize, n: isize) -> Vec<usize> {
    let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
    let bound = |v: Option<isize>, open: isize| {
        v.map_or(open, |v| (if v < 0 { v + n } else { v }).clamp(low, high))
    };
    let (mut k, stop) = if step > 0 {
        (bound(start, 0), bound(stop, n))
    } else {
        (bound(start, n - 1), bound(stop, -1))
    };
    let mut out = Vec::new();
    while (step > 0 && k < stop) || (step < 0 && k > stop) {
        out.push(k as usize);
        k += step;
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Chains of views, and what a kernel then makes of the strides.
    #[test]
    fn views_chain(shape in shapes(), chain in steps()) {
        let (x, t) = chained(&shape, &chain);
        same(&x, &t)?;
        same(&x.deep_clone(), &t)?;
        same(&(&x + &x), &Twin { values: t.values.iter().map(|v| v + v).collect(), ..t.clone() })?;
        same(&x.cast(DType::I64).cast(DType::F64), &t)?;
    }

    /// A view is linear: its gradient adds up what it shows. Read off from ⟨view(x), c⟩ = ⟨x, grad⟩
    /// entry by entry.
    #[test]
    fn views_pull_back(shape in shapes(), chain in steps()) {
        let base = Twin::iota(&shape);
        let leaf = base.tensor().requires_grad();
        let (places, _) = {
            let n = base.values.len();
            let place = Twin { shape: shape.clone(), values: (0..n).map(|k| k as f64).collect() };
            chain.iter().fold((place.tensor(), place), |(x, t), step| take(step, x, t))
        };
        let (y, t) = chain.iter().fold((leaf.clone(), base.clone()), |(x, t), step| take(step, x, t));
        let cotangent = Twin { values: (0..t.values.len()).map(|k| (k % 17) as f64 - 5.0).collect(), ..t };
        if y.is_same(&leaf) {
            return Ok(());
        }
        y.backward_with(&cotangent.tensor()).unwrap();
        let mut expected = vec![0.0; base.values.len()];
        for (k, c) in places.to_vec::<f64>().into_iter().zip(&cotangent.values) {
            expected[k as usize] += c;
        }
        prop_assert_eq!(leaf.grad().unwrap().to_vec::<f64>(), expected);
    }

    #[test]
    fn at_follows_python(shape in shapes(), chain in steps(), index in entries()) {
        let (x, t) = chained(&shape, &chain);
        let taken = index.iter().filter(|e| matches!(e, Index::At(_) | Index::Range { .. })).count();
        let dots = index.iter().filter(|e| matches!(e, Index::Ellipsis)).count();
        let rank = t.shape.len();
        let mut entries = index.clone();
        if dots == 0 {
            entries.push(Index::Ellipsis);
        }
        // For each axis of the source the indices taken, and the shape seen.
        let (mut axes, mut seen, mut legal): (Vec<Vec<usize>>, Vec<usize>, bool) = (vec![], vec![], taken <= rank && dots <= 1);
        for entry in entries.iter().take_while(|_| taken <= rank) {
            let n = t.shape.get(axes.len()).copied().unwrap_or(0) as isize;
            match *entry {
                Index::At(i) => {
                    legal &= (-n..n).contains(&i);
                    axes.push(vec![(if i < 0 { i + n } else { i }).max(0) as usize]);
                }
                Index::Range { start, stop, step } => {
                    let picked = python(start, stop, step, n);
                    seen.push(picked.len());
                    axes.push(picked);
                }
                Index::NewAxis => seen.push(1),
                Index::Ellipsis => for _ in 0..rank - taken {
                    let n = t.shape.get(axes.len()).copied().unwrap_or(0);
                    seen.push(n);
                    axes.push((0..n).collect());
                },
            }
        }
        let given = pullback::catch(|| x.at(&index[..]));
        prop_assert_eq!(given.is_ok(), legal, "{:?} of {:?}", index, t.shape);
        if let Ok(given) = given {
            let lengths: Vec<usize> = axes.iter().map(Vec::len).collect();
            let picked = Twin::make(&lengths, |i| t.at(&i.iter().zip(&axes).map(|(&k, axis)| axis[k]).collect::<Vec<_>>()));
            same(&given, &Twin { shape: seen, ..picked })?;
        }
    }

    #[test]
    fn binary_ops_broadcast(shape in shapes(), ones in prop::collection::vec(any::<(bool, bool)>(), 4), cut in (0usize..4, 0usize..4), chain in steps()) {
        // Two shapes that broadcast to a part of `shape`: some lengths 1, some leading axes
        // missing.
        let shrink = |pick: fn(&(bool, bool)) -> bool, cut: usize| -> Vec<usize> {
            let lengths = shape.iter().zip(&ones).map(|(&n, b)| if pick(b) { 1 } else { n });
            lengths.skip(cut.min(shape.len())).collect()
        };
        let (a, b) = (Twin::iota(&shrink(|b| b.0, cut.0)), Twin::iota(&shrink(|b| b.1, cut.1)));
        let rank = a.shape.len().max(b.shape.len());
        let length = |s: &[usize], i: usize| if i + s.len() < rank { 1 } else { s[i + s.len() - rank] };
        let wide: Vec<usize> = (0..rank).map(|i| match (length(&a.shape, i), length(&b.shape, i)) { (1, m) => m, (n, _) => n }).collect();
        let seen = |t: &Twin, i: &[usize]| {
            let tail = &i[rank - t.shape.len()..];
            t.at(&tail.iter().zip(&t.shape).map(|(&k, &n)| if n == 1 { 0 } else { k }).collect::<Vec<_>>())
        };
        let (x, y) = (a.tensor().requires_grad(), b.tensor().requires_grad());
        let out = &x * &y - &x;
        same(&out, &Twin::make(&wide, |i| seen(&a, i) * seen(&b, i) - seen(&a, i)))?;
        // The transpose of broadcasting is a sum: the gradient of x is Σ (y − 1) over where x is
        // seen.
        out.sum().backward().unwrap();
        let n: usize = wide.iter().product();
        let mut expected = vec![0.0; a.values.len()];
        for flat in 0..n {
            let i = unravel(flat, &wide);
            let tail = &i[rank - a.shape.len()..];
            let to = tail.iter().zip(&a.shape).fold(0, |f, (&k, &m)| f * m + if m == 1 { 0 } else { k });
            expected[to] += seen(&b, &i) - 1.0;
        }
        prop_assert_eq!(x.grad().unwrap().to_vec::<f64>(), expected);
        // And with an operand of strange strides.
        let (z, t) = chained(&shape, &chain);
        same(&(&z + &z.detach()), &Twin { values: t.values.iter().map(|v| 2.0 * v).collect(), ..t })?;
    }

    #[test]
    fn reductions_take_any_axes(shape in shapes(), chain in steps(), mask in prop::collection::vec(any::<bool>(), 12)) {
        let (x, t) = chained(&shape, &chain);
        let rank = t.shape.len();
        let axes: Vec<usize> = (0..rank).filter(|&a| mask[a % 12]).collect();
        let kept: Vec<usize> = (0..rank).filter(|a| !axes.contains(a)).collect();
        let seen: Vec<usize> = kept.iter().map(|&a| t.shape[a]).collect();
        let mut groups = vec![vec![]; seen.iter().product()];
        for (flat, &v) in t.values.iter().enumerate() {
            let i = unravel(flat, &t.shape);
            groups[kept.iter().fold(0, |f, &a| f * t.shape[a] + i[a])].push(v);
        }
        let list: Vec<isize> = axes.iter().map(|&a| if mask[11] { a as isize } else { a as isize - rank as isize }).collect();
        let twin = |f: fn(&Vec<f64>) -> f64| Twin { shape: seen.clone(), values: groups.iter().map(f).collect() };
        same(&x.sum_over(list.clone()), &twin(|g| g.iter().sum()))?;
        let kept_shape: Vec<usize> = (0..rank).map(|a| if axes.contains(&a) { 1 } else { t.shape[a] }).collect();
        same(&x.sum_keep(list.clone()), &Twin { shape: kept_shape, ..twin(|g| g.iter().sum()) })?;
        if groups.iter().all(|g| !g.is_empty()) {
            same(&x.max_over(list.clone()), &twin(|g| g.iter().copied().fold(f64::NEG_INFINITY, f64::max)))?;
            same(&x.min_over(list), &twin(|g| g.iter().copied().fold(f64::INFINITY, f64::min)))?;
        }
    }

    #[test]
    fn cat_undoes_split(shape in shapes(), chain in steps(), axis in 0usize..8, size in 1usize..4) {
        let (x, t) = chained(&shape, &chain);
        if t.shape.is_empty() {
            return Ok(());
        }
        let axis = axis % t.shape.len();
        let parts = x.split(size, axis as isize);
        prop_assert!(parts.iter().all(|p| p.shape()[axis] <= size));
        if !parts.is_empty() {
            same(&cat(&parts.iter().collect::<Vec<_>>(), axis as isize), &t)?;
        }
        let half = t.shape[axis] / 2;
        let two = x.split_sizes(&[half, t.shape[axis] - half], axis as isize);
        same(&cat(&two.iter().collect::<Vec<_>>(), axis as isize), &t)?;
    }

    #[test]
    fn gather_and_scatter(shape in shapes(), chain in steps(), axis in 0usize..8, len in 0usize..6, seed in any::<u32>()) {
        let (x, t) = chained(&shape, &chain);
        if t.values.is_empty() || t.shape.is_empty() {
            return Ok(());
        }
        let axis = axis % t.shape.len();
        let mut seen = t.shape.clone();
        seen[axis] = len;
        let n = t.shape[axis] as u32;
        let index = Twin { shape: seen.clone(), values: (0..seen.iter().product::<usize>()).map(|k| f64::from((k as u32).wrapping_mul(2654435761).wrapping_add(seed) / 7 % n)).collect() };
        let indices = index.tensor().cast(DType::I64);
        let from = |i: &[usize]| with(i, axis, index.at(i) as usize);
        same(&x.gather(axis as isize, &indices), &Twin::make(&seen, |i| t.at(&from(i))))?;
        let source = Twin::iota(&seen);
        let (mut added, mut set) = (t.clone(), t.clone());
        for (flat, &v) in source.values.iter().enumerate() {
            let to = from(&unravel(flat, &seen)).iter().zip(&t.shape).fold(0, |f, (&i, &n)| f * n + i);
            added.values[to] += v;
            set.values[to] = v;
        }
        same(&x.scatter_add(axis as isize, &indices, &source.tensor()), &added)?;
        same(&x.scatter(axis as isize, &indices, &source.tensor()), &set)?;
        // Whole slices at one index each.
        let line: Vec<i64> = (0..len as i64).map(|k| (k * 3 + i64::from(seed)) % i64::from(n)).collect();
        let picked = x.index_select(axis as isize, &Tensor::from_vec(&line, [len]));
        same(&picked, &Twin::make(&seen, |i| t.at(&with(i, axis, line[i[axis]] as usize))))?;
    }
}
