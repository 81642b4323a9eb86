//! Makes one cluster of two.

use super::Clusters;
use crate::pass::fuse::apart::Obstacle;
use crate::pass::fuse::inner_axes;
use crate::{Shape, Var};
use rustc_hash::{FxHashMap, FxHashSet};

impl Clusters<'_> {
    /// Merges two clusters, if allowed; else what is in the way.
    pub(super) fn merge(&mut self, a: u32, b: u32) -> Result<(), Obstacle> {
        let (a, b) = (self.find(a), self.find(b));
        if a == b {
            return Ok(());
        }
        let (one, two) = (&self.clusters[a as usize], &self.clusters[b as usize]);
        let row = match (one.row, two.row) {
            (Some(m), Some(n)) if m != n => return Err(Obstacle::Rows(m, n)),
            (m, n) => m.or(n),
        };
        let level = one.level.max(two.level);
        if one.len != two.len {
            return Err(Obstacle::Elements(one.len, two.len));
        }
        if one.device != two.device {
            return Err(Obstacle::Devices);
        }
        if one.closed || two.closed {
            return Err(Obstacle::Bias);
        }
        if level >= one.read_at.min(two.read_at) {
            return Err(Obstacle::Between);
        }
        let instructions = one.instructions() + two.instructions();
        let inputs = one.loads.len() + two.loads.len() + one.keys.len() + two.keys.len();
        let columns = one.columns + two.columns;
        self.within(one.len, instructions, inputs)?;
        if columns > self.limits.columns {
            return Err(Obstacle::Sums(self.limits.columns));
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
                None => return Err(Obstacle::Layout),
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
        Ok(())
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
        for (root, group) in groups {
            for pair in group.windows(2) {
                if let Err(why) = self.merge(pair[0], pair[1]) {
                    self.note_shared([pair[0], pair[1]], root, why);
                }
            }
        }
        for pair in scalars.windows(2) {
            // Numbers are not reported.
            let _ = self.merge(pair[0], pair[1]);
        }
    }
}
