//! Layouts against a naive reference that lists the position of every element.

use proptest::prelude::*;
use pullback_ir::{Layout, Shape, Span, View, diagonal_len};
use std::collections::HashSet;

/// A view as a list: for each index in row-major order, the position of its element.
#[derive(Clone, Debug)]
struct Naive {
    shape: Vec<usize>,
    elements: Vec<usize>,
}

impl Naive {
    fn dense(shape: &[usize]) -> Naive {
        Naive { shape: shape.to_vec(), elements: (0..shape.iter().product()).collect() }
    }

    fn at(&self, index: &[usize]) -> usize {
        let flat = index.iter().zip(&self.shape).fold(0, |flat, (&i, &n)| {
            assert!(i < n);
            flat * n + i
        });
        self.elements[flat]
    }

    /// The result of `shape` whose element at an index is the old one at `source(index)`.
    fn gather(&self, shape: Vec<usize>, source: impl Fn(&[usize]) -> Vec<usize>) -> Naive {
        let elements = indices(&shape).iter().map(|i| self.at(&source(i))).collect();
        Naive { shape, elements }
    }

    fn view(&self, view: &View) -> Naive {
        let old = &self.shape;
        let last = |i: &[usize]| i[i.len() - 1];
        match view {
            View::Reshape(shape) => {
                Naive { shape: shape.to_vec(), elements: self.elements.clone() }
            }
            View::Permute(order) => {
                let shape = order.iter().map(|&axis| old[axis]).collect();
                self.gather(shape, |i| {
                    let mut source = vec![0; i.len()];
                    order.iter().zip(i).for_each(|(&axis, &i)| source[axis] = i);
                    source
                })
            }
            View::Broadcast(shape) => {
                let new = shape.len() - old.len();
                self.gather(shape.to_vec(), |i| {
                    i[new..].iter().zip(old).map(|(&i, &n)| if n == 1 { 0 } else { i }).collect()
                })
            }
            View::Slice(spans) => {
                let shape = spans.iter().map(|s| s.len).collect();
                self.gather(shape, |i| {
                    spans.iter().zip(i).map(|(s, &i)| s.start + i * s.step).collect()
                })
            }
            View::Flip(axes) => self.gather(old.clone(), |i| {
                let flip =
                    |(k, &i): (usize, &usize)| if axes.contains(&k) { old[k] - 1 - i } else { i };
                i.iter().enumerate().map(flip).collect()
            }),
            View::Diagonal { offset, a, b } => {
                let on = |row: usize, column: usize| row as isize + offset == column as isize;
                let cells = (0..old[*a]).flat_map(|r| (0..old[*b]).map(move |c| (r, c)));
                let cells: Vec<_> = cells.filter(|&(r, c)| on(r, c)).collect();
                let kept: Vec<usize> = (0..old.len()).filter(|k| k != a && k != b).collect();
                let mut shape: Vec<usize> = kept.iter().map(|&k| old[k]).collect();
                shape.push(cells.len());
                self.gather(shape, |i| {
                    let mut source = vec![0; old.len()];
                    kept.iter().zip(i).for_each(|(&k, &i)| source[k] = i);
                    (source[*a], source[*b]) = cells[last(i)];
                    source
                })
            }
            View::Unfold { axis, size, step } => {
                let mut shape = old.clone();
                shape[*axis] =
                    (0..=old[*axis]).step_by(*step).filter(|s| s + size <= old[*axis]).count();
                shape.push(*size);
                self.gather(shape, |i| {
                    let mut source = i[..old.len()].to_vec();
                    source[*axis] = i[*axis] * step + last(i);
                    source
                })
            }
        }
    }

    /// Whether some offset and strides give these elements.
    fn is_evenly_spaced(&self) -> bool {
        let Some(&first) = self.elements.first() else { return true };
        let stride = |axis: usize| {
            let mut unit = vec![0; self.shape.len()];
            unit[axis] = 1;
            if self.shape[axis] > 1 { self.at(&unit) as isize - first as isize } else { 0 }
        };
        let strides: Vec<isize> = (0..self.shape.len()).map(stride).collect();
        let all = indices(&self.shape);
        all.iter().zip(&self.elements).all(|(i, &e)| place(first, &strides, i) == e as isize)
    }
}

/// Every index of a shape, in row-major order.
fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![vec![]], |all, &n| {
        let extend = |i: &Vec<usize>, k: usize| i.iter().copied().chain([k]).collect();
        all.iter().flat_map(|i| (0..n).map(move |k| extend(i, k))).collect()
    })
}

fn place(offset: usize, strides: &[isize], index: &[usize]) -> isize {
    offset as isize + strides.iter().zip(index).map(|(&s, &i)| s * i as isize).sum::<isize>()
}

/// Random numbers that choose a view; zeros give the simplest one.
struct Choices<'a>(std::iter::Cycle<std::slice::Iter<'a, u32>>);

impl Choices<'_> {
    /// A number in `0..=most`.
    fn upto(&mut self, most: usize) -> usize {
        self.0.next().map_or(0, |&c| c as usize % (most + 1))
    }

    fn shape_of_len(&mut self, old: &[usize]) -> Shape {
        if old.contains(&0) {
            let mut shape: Shape = (0..self.upto(3)).map(|_| self.upto(4)).collect();
            let zero = self.upto(shape.len());
            shape.insert(zero, 0);
            return shape;
        }
        let mut primes: Vec<usize> = Vec::new();
        for &n in old {
            let (mut left, mut p) = (n, 2);
            while left > 1 {
                if left % p == 0 {
                    primes.push(p);
                    left /= p;
                } else {
                    p += 1;
                }
            }
        }
        // Mostly in the order of the axes, so that many reshapes need no copy.
        if !primes.is_empty() && self.upto(3) == 3 {
            let by = self.upto(primes.len() - 1);
            primes.rotate_left(by);
        }
        let mut shape = Shape::new();
        for p in primes {
            match (self.upto(3), shape.last_mut()) {
                (0 | 1, Some(n)) => *n *= p,
                (2, _) => shape.extend([1, p]),
                _ => shape.push(p),
            }
        }
        if self.upto(3) == 3 {
            shape.push(1);
        }
        shape
    }

    fn view(&mut self, shape: &[usize]) -> View {
        let rank = shape.len();
        match self.upto(6) {
            1 => {
                let mut left: Vec<usize> = (0..rank).collect();
                View::Permute((0..rank).rev().map(|most| left.remove(self.upto(most))).collect())
            }
            2 => {
                let new: Vec<usize> = (0..self.upto(2)).map(|_| self.upto(3)).collect();
                let mut repeat = |n: usize| if n == 1 { [1, 2, 3, 0][self.upto(3)] } else { n };
                let old: Vec<usize> = shape.iter().map(|&n| repeat(n)).collect();
                View::Broadcast(new.into_iter().chain(old).collect())
            }
            3 => View::Slice(shape.iter().map(|&n| self.span(n)).collect()),
            4 => View::Flip((0..rank).filter(|_| self.upto(1) == 1).collect()),
            5 if rank >= 2 => {
                let a = self.upto(rank - 1);
                let b = (a + 1 + self.upto(rank - 2)) % rank;
                let below = shape[a] + 1;
                let offset = self.upto(below + shape[b] + 1) as isize - below as isize;
                View::Diagonal { offset, a, b }
            }
            6 if rank >= 1 => {
                let axis = self.upto(rank - 1);
                View::Unfold { axis, size: self.upto(shape[axis]), step: self.upto(3) + 1 }
            }
            _ => View::Reshape(self.shape_of_len(shape)),
        }
    }

    fn span(&mut self, n: usize) -> Span {
        let start = self.upto(n);
        let step = self.upto(2) + 1;
        Span { start, len: self.upto((n - start).div_ceil(step)), step }
    }
}

/// All properties of a layout, against the reference.
fn check(layout: &Layout, naive: &Naive, buffer: usize) {
    assert_eq!(layout.shape[..], naive.shape[..]);
    assert_eq!(layout.strides.len(), layout.shape.len());
    assert_eq!(layout.len(), naive.elements.len());
    assert_eq!(layout.is_empty(), naive.elements.is_empty());
    assert!(
        layout.offset == 0 || layout.offset < buffer,
        "offset outside of the buffer: {layout:?}"
    );
    for (index, &element) in indices(&naive.shape).iter().zip(&naive.elements) {
        assert_eq!(place(layout.offset, &layout.strides, index), element as isize, "{layout:?}");
    }
    let dense = naive.elements.windows(2).all(|pair| pair[0] + 1 == pair[1]);
    assert_eq!(layout.is_dense(), dense, "{layout:?}");
    let distinct: HashSet<_> = naive.elements.iter().collect();
    if distinct.len() < naive.elements.len() {
        assert!(layout.overlaps(), "{layout:?}");
    }
    if dense {
        assert!(!layout.overlaps(), "{layout:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn views_agree_with_the_naive_twin(
        shape in prop::collection::vec(prop_oneof![1 => Just(0usize), 12 => 1usize..=5], 0..=4),
        chain in prop::collection::vec(prop::collection::vec(any::<u32>(), 24), 1..=4),
    ) {
        let mut naive = Naive::dense(&shape);
        let mut layout = Layout::dense(Shape::from(&shape[..]));
        let mut buffer = layout.len();
        check(&layout, &naive, buffer);
        for choices in &chain {
            let view = Choices(choices.iter().cycle()).view(&layout.shape);
            naive = naive.view(&view);
            match layout.view(&view) {
                Some(seen) => layout = seen,
                None => {
                    // It needs a copy: continue with one.
                    prop_assert!(matches!(view, View::Reshape(_)));
                    prop_assert!(!layout.is_dense());
                    prop_assert!(!naive.is_evenly_spaced(), "{layout:?} has a {view:?}");
                    naive = Naive::dense(&naive.shape);
                    layout = Layout::dense(Shape::from(&naive.shape[..]));
                    buffer = layout.len();
                }
            }
            check(&layout, &naive, buffer);
            if layout.len() > 1500 || layout.shape.len() > 8 {
                break;
            }
        }
    }

    #[test]
    fn a_splat_is_one_element(shape in prop::collection::vec(0usize..4, 0..4)) {
        let layout = Layout::splat(Shape::from(&shape[..]));
        let naive = Naive { elements: vec![0; shape.iter().product()], shape };
        check(&layout, &naive, 1);
    }

    #[test]
    fn overlaps_is_never_wrongly_denied(
        axes in prop::collection::vec((0usize..5, -9isize..10), 0..4),
    ) {
        let (shape, strides): (Vec<usize>, Vec<isize>) = axes.into_iter().unzip();
        let layout = Layout {
            shape: Shape::from(&shape[..]),
            strides: strides.iter().copied().collect(),
            offset: 100,
        };
        let places: Vec<_> = indices(&shape).iter().map(|i| place(100, &strides, i)).collect();
        let distinct: HashSet<_> = places.iter().collect();
        prop_assert!(layout.overlaps() || distinct.len() == places.len());
    }
}

#[test]
fn extreme_attributes_do_not_overflow() {
    let matrix = Layout::dense(Shape::from(&[2, 3][..]));
    for offset in [isize::MIN, isize::MAX] {
        assert_eq!(diagonal_len(2, 3, offset), 0);
        let diagonal = matrix.view(&View::Diagonal { offset, a: 0, b: 1 });
        assert!(diagonal.is_some_and(|d| d.is_empty() && d.offset == 0));
    }
    let span = |start, len| Span { start, len, step: usize::MAX };
    let corner = matrix.view(&View::Slice([span(1, 1), span(2, 1)].into_iter().collect()));
    assert!(corner.is_some_and(|c| c.offset == 5 && c.shape[..] == [1, 1]));
    let window = matrix.view(&View::Unfold { axis: 1, size: 3, step: usize::MAX });
    assert!(window.is_some_and(|w| w.shape[..] == [2, 1, 3] && w.strides[2] == 1));
}
