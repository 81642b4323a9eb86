//! Puts reductions into clusters.

use super::{ClusterValue, Clusters};
use crate::pass::fuse::apart::Obstacle;
use crate::pass::fuse::inner_axes;
use crate::{Layout, Shape};

impl Clusters<'_> {
    /// A reduction of rows of this length, or a sum over them.
    pub(super) fn place_reduce(&mut self, i: usize, length: usize, kind: ClusterValue) {
        let e = &self.program.equations[i];
        let operand = self.spec(e.inputs[0]);
        let origin = self.origins[e.inputs[0].index()].clone();
        let root = self.spec(origin.root);
        if let Some(cluster_ref) = self.cluster_ref(origin.root) {
            let joined = match cluster_ref.kind {
                ClusterValue::Row | ClusterValue::Column => Err(Obstacle::Reduction),
                ClusterValue::Element if !origin.in_place(root) => Err(Obstacle::Layout),
                ClusterValue::Element => {
                    self.reduce_in(cluster_ref.cluster, length, &operand.shape, kind)
                }
            };
            match joined {
                Ok(()) => return self.add(cluster_ref.cluster, i, kind),
                Err(why) => self.note_root(i, origin.root, why),
            }
        }
        let level = self.level(origin.root) + 1;
        let cluster = self.start(operand, level);
        self.read(origin.root, level);
        let dense = || Layout::dense(operand.shape.clone());
        let load = (origin.root, origin.layout.unwrap_or_else(dense));
        self.clusters[cluster as usize].loads.insert(load);
        self.clusters[cluster as usize].row = Some(length);
        self.add(cluster, i, kind);
    }

    /// Sets the row length of a cluster, if allowed; else what is in the way.
    fn reduce_in(
        &mut self,
        c: u32,
        length: usize,
        shape: &Shape,
        kind: ClusterValue,
    ) -> Result<(), Obstacle> {
        let cluster = &self.clusters[c as usize];
        let inputs = cluster.loads.len() + cluster.keys.len();
        if kind == ClusterValue::Column && cluster.columns >= self.limits.columns {
            return Err(Obstacle::Sums(self.limits.columns));
        }
        if cluster.closed {
            return Err(Obstacle::Bias);
        }
        if let Some(n) = cluster.row.filter(|&n| n != length) {
            return Err(Obstacle::Rows(n, length));
        }
        self.within(cluster.len, cluster.instructions() + 1, inputs)?;
        let with_shape = match inner_axes(&cluster.shape, length) {
            Some(_) => None,
            None => match (inner_axes(shape, length), cluster.with_shape(shape)) {
                (Some(_), Some(loads)) => Some((shape.clone(), loads)),
                _ => return Err(Obstacle::Layout),
            },
        };
        let cluster = &mut self.clusters[c as usize];
        cluster.row = Some(length);
        if let Some((shape, loads)) = with_shape {
            (cluster.shape, cluster.loads) = (shape, loads);
        }
        Ok(())
    }
}
