//! The derivatives of a value in forward mode.

use crate::Tensor;
use std::ops::Deref;

/// Tangents by level, in ascending order. Nearly always none, so that is one word: the states of
/// operands, which every op makes, moves and drops, have such a list each.
#[derive(Clone, Default)]
#[allow(clippy::box_collection)]
pub(crate) struct Tangents(Option<Box<Vec<(u64, Tensor)>>>);

impl Tangents {
    #[inline]
    pub const fn new() -> Tangents {
        Tangents(None)
    }

    /// Adds one of a level that is higher than all others.
    pub fn push(&mut self, tangent: (u64, Tensor)) {
        self.0.get_or_insert_default().push(tangent);
    }

    pub fn remove(&mut self, at: usize) -> (u64, Tensor) {
        let mut all: Vec<(u64, Tensor)> = std::mem::take(self).into_iter().collect();
        let tangent = all.remove(at);
        *self = all.into_iter().collect();
        tangent
    }

    pub fn retain(&mut self, keep: impl FnMut(&(u64, Tensor)) -> bool) {
        *self = std::mem::take(self).into_iter().filter(keep).collect();
    }
}

impl Deref for Tangents {
    type Target = [(u64, Tensor)];

    #[inline]
    fn deref(&self) -> &[(u64, Tensor)] {
        match &self.0 {
            None => &[],
            Some(all) => all,
        }
    }
}

impl FromIterator<(u64, Tensor)> for Tangents {
    fn from_iter<I: IntoIterator<Item = (u64, Tensor)>>(all: I) -> Tangents {
        let all: Vec<(u64, Tensor)> = all.into_iter().collect();
        Tangents((!all.is_empty()).then(|| Box::new(all)))
    }
}

impl Extend<(u64, Tensor)> for Tangents {
    fn extend<I: IntoIterator<Item = (u64, Tensor)>>(&mut self, more: I) {
        more.into_iter().for_each(|tangent| self.push(tangent));
    }
}

impl IntoIterator for Tangents {
    type Item = (u64, Tensor);
    type IntoIter = std::vec::IntoIter<(u64, Tensor)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.map_or_else(Vec::new, |all| *all).into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_are_one_empty_word() {
        let levels = |all: &Tangents| all.iter().map(|t| t.0).collect::<Vec<u64>>();
        let mut all: Tangents = (1..5).map(|level| (level, Tensor::from(0.5))).collect();
        all.push((7, Tensor::from(1.5)));
        assert_eq!((all.remove(1).0, levels(&all)), (2, vec![1, 3, 4, 7]));
        all.retain(|t| t.0 > 3);
        assert_eq!(levels(&all.clone()), [4, 7]);
        all.retain(|t| t.0 > 7);
        assert!(all.is_empty() && all.0.is_none() && size_of::<Tangents>() == 8);
        all.extend([(3, Tensor::from(2.5))]);
        assert_eq!(all.remove(0).1.item::<f64>(), 2.5);
        assert!(all.0.is_none() && Tangents::from_iter([]).0.is_none());
    }
}
