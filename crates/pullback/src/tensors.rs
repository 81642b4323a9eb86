//! The results of an op: nearly always one.
//!
//! Two words, a tag and a pointer, which functions return in registers. (A `SmallVec` is returned
//! in memory: every function on the way from a kernel to the user then copied it, and each copy
//! waits for the one before it.)

use crate::Tensor;
use std::ops::{Deref, DerefMut};

/// The tensors that an op gives or a rule returns.
pub(crate) enum Tensors {
    One(Tensor),
    /// Any other number. Boxed: one word, where a vector is three.
    #[allow(clippy::box_collection)]
    Many(Box<Vec<Tensor>>),
}

impl Tensors {
    pub fn new() -> Tensors {
        Tensors::from(Vec::new())
    }

    /// The first, which there must be.
    #[inline]
    pub fn into_first(self) -> Tensor {
        match self {
            Tensors::One(x) => x,
            Tensors::Many(mut all) => all.swap_remove(0),
        }
    }

    pub fn into_vec(self) -> Vec<Tensor> {
        match self {
            Tensors::One(x) => vec![x],
            Tensors::Many(all) => *all,
        }
    }

    pub fn push(&mut self, x: Tensor) {
        let mut all = std::mem::take(self).into_vec();
        all.push(x);
        *self = all.into();
    }

    /// Takes one out.
    pub fn remove(&mut self, at: usize) -> Tensor {
        let mut all = std::mem::take(self).into_vec();
        let x = all.remove(at);
        *self = all.into();
        x
    }

    /// Removes those after the first `len`.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len() {
            let mut all = std::mem::take(self).into_vec();
            all.truncate(len);
            *self = all.into();
        }
    }
}

impl Default for Tensors {
    fn default() -> Tensors {
        Tensors::new()
    }
}

impl From<Vec<Tensor>> for Tensors {
    fn from(mut all: Vec<Tensor>) -> Tensors {
        match all.len() {
            1 => Tensors::One(all.swap_remove(0)),
            _ => Tensors::Many(Box::new(all)),
        }
    }
}

impl<const N: usize> From<[Tensor; N]> for Tensors {
    fn from(all: [Tensor; N]) -> Tensors {
        Tensors::from(Vec::from(all))
    }
}

impl Deref for Tensors {
    type Target = [Tensor];

    #[inline]
    fn deref(&self) -> &[Tensor] {
        match self {
            Tensors::One(x) => std::slice::from_ref(x),
            Tensors::Many(all) => all,
        }
    }
}

impl DerefMut for Tensors {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Tensor] {
        match self {
            Tensors::One(x) => std::slice::from_mut(x),
            Tensors::Many(all) => all,
        }
    }
}

impl FromIterator<Tensor> for Tensors {
    fn from_iter<I: IntoIterator<Item = Tensor>>(all: I) -> Tensors {
        let mut all = all.into_iter();
        match (all.next(), all.next()) {
            (Some(x), None) => Tensors::One(x),
            (first, second) => {
                Tensors::Many(Box::new(first.into_iter().chain(second).chain(all).collect()))
            }
        }
    }
}

impl IntoIterator for Tensors {
    type Item = Tensor;
    type IntoIter = std::iter::Chain<std::option::IntoIter<Tensor>, std::vec::IntoIter<Tensor>>;

    fn into_iter(self) -> Self::IntoIter {
        let (one, many) = match self {
            Tensors::One(x) => (Some(x), Vec::new()),
            Tensors::Many(all) => (None, *all),
        };
        one.into_iter().chain(many)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_held_inline_and_any_number_is_a_list() {
        let x = |v: f64| Tensor::from(v);
        let values = |all: &Tensors| all.iter().map(|x| x.item::<f64>()).collect::<Vec<_>>();
        for n in 0..4u32 {
            let mut all: Tensors = (0..n).map(|v| x(v.into())).collect();
            assert_eq!((all.len(), matches!(all, Tensors::One(_))), (n as usize, n == 1));
            all.push(x(9.0));
            assert_eq!(values(&all).last(), Some(&9.0));
            all.truncate(1);
            assert!(matches!(all, Tensors::One(_)) && all.len() == 1);
            assert_eq!(all.into_first().item::<f64>(), if n == 0 { 9.0 } else { 0.0 });
        }
        let mut two = Tensors::from([x(1.0), x(2.0)]);
        two.swap(0, 1);
        assert_eq!(values(&two), [2.0, 1.0]);
        two.truncate(5);
        assert_eq!(two.into_iter().map(|x| x.item::<f64>()).sum::<f64>(), 3.0);
        assert_eq!(size_of::<Result<Tensors, crate::Error>>(), 16);
    }
}
