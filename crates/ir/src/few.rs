//! A short list of plain numbers, stored inline.
//!
//! Every op makes and copies several shapes. A copy must cost only a few moves: `SmallVec` clones
//! element by element through its general `extend`, which was a tenth of all instructions of a
//! small op.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};

/// How many elements fit without an allocation.
const INLINE: usize = 4;

/// A list of numbers; up to four are stored inline.
///
/// ```
/// # use pullback_ir::Few;
/// let mut shape: Few<usize> = [2, 3].into();
/// shape.push(4);
/// assert_eq!(&shape[..], [2, 3, 4]);
/// ```
pub struct Few<T> {
    // Whole words, no tag next to small fields: a copy is a few full-width moves.
    len: usize,
    items: [T; INLINE],
    /// All the elements, if they do not fit inline. Boxed: one word, where a vector is three.
    #[allow(clippy::box_collection)]
    heap: Option<Box<Vec<T>>>,
}

impl<T: Copy + Default> Few<T> {
    /// An empty list.
    #[inline]
    pub fn new() -> Few<T> {
        Few { len: 0, items: [T::default(); INLINE], heap: None }
    }

    /// A copy of a slice.
    #[inline]
    pub fn from_slice(values: &[T]) -> Few<T> {
        let mut out = Few::new();
        out.len = values.len();
        match out.items.get_mut(..values.len()) {
            Some(items) => items.copy_from_slice(values),
            None => out.heap = Some(Box::new(values.to_vec())),
        }
        out
    }

    /// One value, `n` times.
    #[inline]
    pub fn from_elem(value: T, n: usize) -> Few<T> {
        let heap = (n > INLINE).then(|| Box::new(vec![value; n]));
        Few { len: n, items: [value; INLINE], heap }
    }

    /// Makes this one value, `n` times, where it is.
    #[inline]
    pub fn fill(&mut self, n: usize, value: T) {
        (self.len, self.items) = (n, [value; INLINE]);
        if n > INLINE || self.heap.is_some() {
            *self = Few::from_elem(value, n);
        }
    }

    /// Makes this a copy of another list, where it is.
    #[inline(always)]
    pub fn set(&mut self, other: &Few<T>) {
        (self.len, self.items) = (other.len, other.items);
        if other.heap.is_some() || self.heap.is_some() {
            *self = other.clone();
        }
    }

    /// Adds an element at the end.
    #[inline]
    pub fn push(&mut self, value: T) {
        match (self.items.get_mut(self.len), &mut self.heap) {
            (Some(slot), _) => *slot = value,
            (None, Some(all)) => all.push(value),
            (None, heap) => {
                let mut all = self.items.to_vec();
                all.push(value);
                *heap = Some(Box::new(all));
            }
        }
        self.len += 1;
    }

    /// Adds an element before position `at`.
    pub fn insert(&mut self, at: usize, value: T) {
        self.push(value);
        self[at..].rotate_right(1);
    }

    /// Takes the element at position `at` out.
    pub fn remove(&mut self, at: usize) -> T {
        let value = self[at];
        *self = self.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, &v)| v).collect();
        value
    }

    /// Keeps the elements for which `f` holds.
    pub fn retain(&mut self, f: impl FnMut(&T) -> bool) {
        let mut f = f;
        *self = self.iter().copied().filter(|x| f(x)).collect();
    }

    /// Adds copies of all elements of a slice.
    pub fn extend_from_slice(&mut self, values: &[T]) {
        values.iter().for_each(|&v| self.push(v));
    }

    /// Removes all elements.
    pub fn clear(&mut self) {
        *self = Few::new();
    }
}

impl<T: Copy> Clone for Few<T> {
    #[inline]
    fn clone(&self) -> Few<T> {
        Few { len: self.len, items: self.items, heap: self.heap.clone() }
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match &self.heap {
            None => &self.items[..self.len],
            Some(all) => all,
        }
    }
}

impl<T> DerefMut for Few<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.heap {
            None => &mut self.items[..self.len],
            Some(all) => all,
        }
    }
}

impl<T: Copy + Default> Default for Few<T> {
    fn default() -> Few<T> {
        Few::new()
    }
}

impl<T: PartialEq> PartialEq for Few<T> {
    #[inline]
    fn eq(&self, other: &Few<T>) -> bool {
        match (&self.heap, &other.heap) {
            // A call of `memcmp` takes longer than comparing four words.
            (None, None) => {
                let pairs = self.items.iter().zip(&other.items).take(self.len);
                self.len == other.len && pairs.fold(true, |same, (a, b)| same & (a == b))
            }
            _ => self[..] == other[..],
        }
    }
}

impl<T: Eq> Eq for Few<T> {}

impl<T: Hash> Hash for Few<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self[..].hash(state);
    }
}

impl<T: fmt::Debug> fmt::Debug for Few<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self[..].fmt(f)
    }
}

impl<T: Copy + Default> FromIterator<T> for Few<T> {
    #[inline]
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Few<T> {
        let mut out = Few::new();
        values.into_iter().for_each(|v| out.push(v));
        out
    }
}

impl<T: Copy + Default> Extend<T> for Few<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        values.into_iter().for_each(|v| self.push(v));
    }
}

impl<T: Copy + Default> From<&[T]> for Few<T> {
    fn from(values: &[T]) -> Few<T> {
        Few::from_slice(values)
    }
}

impl<T: Copy + Default> From<Vec<T>> for Few<T> {
    fn from(values: Vec<T>) -> Few<T> {
        Few::from_slice(&values)
    }
}

impl<T: Copy + Default, const N: usize> From<[T; N]> for Few<T> {
    fn from(values: [T; N]) -> Few<T> {
        Few::from_slice(&values)
    }
}

impl<'a, T> IntoIterator for &'a Few<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    #[inline]
    fn into_iter(self) -> std::slice::Iter<'a, T> {
        self.iter()
    }
}

impl<'a, T> IntoIterator for &'a mut Few<T> {
    type Item = &'a mut T;
    type IntoIter = std::slice::IterMut<'a, T>;

    fn into_iter(self) -> std::slice::IterMut<'a, T> {
        self.iter_mut()
    }
}

impl<T: Copy + Default> IntoIterator for Few<T> {
    type Item = T;
    type IntoIter = std::iter::Take<std::vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        let all = self.heap.map_or_else(|| Vec::from(self.items), |all| *all);
        all.into_iter().take(self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_set_where_it_is_on_both_sides_of_the_inline_length() {
        let mut few: Few<usize> = Few::new();
        for n in [2, 4, 5, 4, 9, 6, 0, 7] {
            let other: Few<usize> = (1..=n).collect();
            few.set(&other);
            assert!(few == other && few[..] == (1..=n).collect::<Vec<_>>()[..]);
            few.push(3);
            few.fill(n, 8);
            assert_eq!(few[..], vec![8; n][..]);
        }
    }

    #[test]
    fn behaves_as_a_vector_on_both_sides_of_the_inline_length() {
        for n in 0..10usize {
            let mut few: Few<usize> = (0..n).collect();
            let mut vec: Vec<usize> = (0..n).collect();
            few.push(77);
            vec.push(77);
            few.insert(n / 2, 5);
            vec.insert(n / 2, 5);
            assert_eq!(few[..], vec[..]);
            assert_eq!(few.remove(n / 3), vec.remove(n / 3));
            few.retain(|&x| x % 2 == 1);
            vec.retain(|&x| x % 2 == 1);
            assert_eq!(few[..], vec[..]);
            assert_eq!(few, Few::from(vec.clone()));
            assert_eq!(few.into_iter().collect::<Vec<_>>(), vec);
        }
    }
}
