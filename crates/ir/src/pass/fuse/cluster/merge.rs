//! Makes one cluster of two.

use super::Clusters;
use crate::pass::fuse::inner_axes;
use crate::{Shape, Var};
use rustc_hash::{FxHashMap, FxHashSet};

impl Clusters<'_> {
    /// Merges two clusters, if allowed.
    pub(super) fn merge(&mut self, a: u32, b: u32) -> bool {
        let (a, b) = (self.find(a), self.find(b));
        if a == b {
            return true;
        }
        let (one, two) = (&self.clusters[a as usize], &self.clusters[b as usize]);
        let row = match (one.row, two.row) {
            (Some(m), Some(n)) if m != n => return false,
            (m, n) => m.or(n),
        };
        let level = one.level.max(two.level);
        let incompatible = one.len != two.len || one.device != two.device;
        let closed = one.closed || two.closed;
        if incompatible || closed || level >= one.read_at.min(two.read_at) {
            return false;
        }
        let instructions = one.instructions() + two.instructions();
        let inputs = one.loads.len() + two.loads.len() + one.keys.len() + two.keys.len();
        let columns = one.columns + two.columns;
        if !self.within(one.len, instructions, inputs) || columns > self.limits.columns {
            return false;
        }
        let fits = |shape: &Shape| row.is_none_or(|n| inner_axes(shape, n).is_some());
        // The smaller one is merged into the larger; the shape is chosen separately.
        let (to, from) = if one.members.len() >= two.members.len() { (a, b) } else { (b, a) };
        let (one, two) = (&self.clusters[to as usize], &self.clusters[from as usize]);
        let moved = two.with_shape(&one.shape).filter(|_| fits(&one.shape));
        let (shape, all, moved) = match moved {
            Some(moved) => (one.shape.clone(), None, moved),
            None => match one.with_shape(&two.shape).filter(|_| fits(&two.shape)) {
                Some(all) => (two.shape.clone(), Some(all), two.loads.clone()),
                None => return false,
            },
        };
        let two = &mut self.clusters[from as usize];
        let (members, keys, read_at) =
            (std::mem::take(&mut two.members), std::mem::take(&mut two.keys), two.read_at);
        two.loads = FxHashSet::default();
        let literals = std::mem::take(&mut two.literals);
        let one = &mut self.clusters[to as usize];
        if let Some(all) = all {
            one.loads = all;
        }
        one.shape = shape;
        one.row = row;
        one.level = level;
        one.read_at = one.read_at.min(read_at);
        one.loads.extend(moved);
        one.keys.extend(keys);
        one.literals.extend(literals);
        one.members.extend(members);
        one.columns = columns;
        self.into[from as usize] = to;
        true
    }

    /// Merges clusters over one domain that read the same values, and all over a single element.
    pub(in crate::pass::fuse) fn merge_siblings(&mut self) {
        let mut readers: FxHashMap<Var, Vec<u32>> = FxHashMap::default();
        let mut scalars: Vec<u32> = Vec::new();
        for (id, cluster) in self.clusters.iter().enumerate() {
            if self.into[id] != id as u32 {
                continue;
            }
            if cluster.len == 1 {
                scalars.push(id as u32);
                continue;
            }
            // Sharing only a row or a number is not a reason to merge.
            let whole = |root: &Var| self.spec(*root).len() == cluster.len;
            let roots: FxHashSet<Var> = cluster.loads.iter().map(|load| load.0).collect();
            for root in roots.into_iter().filter(whole) {
                readers.entry(root).or_default().push(id as u32);
            }
        }
        let mut groups: Vec<(Var, Vec<u32>)> = readers.into_iter().collect();
        groups.sort_unstable();
        scalars.sort_by_key(|&c| (self.clusters[c as usize].level, c));
        for group in groups.into_iter().map(|group| group.1).chain([scalars]) {
            for pair in group.windows(2) {
                self.merge(pair[0], pair[1]);
            }
        }
    }
}
