//! Chooses which equations become one region.

mod merge;
mod reduce;

use super::apart::{Noted, Obstacle};
use super::{
    FusionKind, Limits, Origin, column_length, inner_axes, is_point, repeats_rows, row_length,
    with_shape,
};
use crate::{Binary, DType, Device, Layout, Op, Program, Reduction, Scalar, Shape, Spec, Var};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

/// Equations that become one region.
pub(super) struct Cluster {
    /// The device of all its values.
    pub(super) device: Device,
    /// The domain.
    pub(super) shape: Shape,
    /// Its number of elements.
    len: usize,
    /// The length of a row, once there is a reduction.
    pub(super) row: Option<usize>,
    /// Larger than the levels of all it reads from.
    level: u32,
    /// The smallest level of all that read from it, when they began to.
    read_at: u32,
    /// The equations.
    pub(super) members: Vec<u32>,
    /// How many of them are sums over the rows.
    columns: usize,
    /// What is read from memory, under the domain's shape.
    loads: FxHashSet<(Var, Layout)>,
    /// The numbers in it.
    literals: FxHashSet<(Scalar, DType)>,
    /// The keys of random numbers.
    keys: SmallVec<[Var; 1]>,
    /// It is the sum of a product and a bias, which the product will compute.
    closed: bool,
}

impl Cluster {
    fn rows(&self) -> Option<usize> {
        self.row.map(|length| self.len / length)
    }

    /// Whether reduced values must not be used together with elements.
    fn single_stage(&self, long: usize) -> bool {
        self.row.is_some_and(|length| length == self.len && length > long)
    }

    fn instructions(&self) -> usize {
        self.members.len() + self.loads.len() + self.literals.len()
    }

    /// The loads under another shape.
    fn with_shape(&self, shape: &Shape) -> Option<FxHashSet<(Var, Layout)>> {
        self.loads.iter().map(|(v, layout)| Some((*v, with_shape(layout, shape)?))).collect()
    }
}

/// The cluster that computes a variable, if any.
#[derive(Clone, Copy)]
struct ClusterRef {
    cluster: u32,
    kind: ClusterValue,
}

/// What a cluster computes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClusterValue {
    /// One number for each element.
    Element,
    /// One number per row.
    Row,
    /// A sum over the rows, which the cluster itself cannot read.
    Column,
}

/// How an op would read its operands as part of a cluster.
struct Reading {
    loads: SmallVec<[(Var, Layout); 3]>,
    row: bool,
}

/// The program, divided into clusters.
pub(super) struct Clusters<'a> {
    pub(super) program: &'a Program,
    limits: Limits,
    pub(super) kinds: Vec<FusionKind>,
    pub(super) origins: Vec<Origin>,
    made: Vec<Option<usize>>,
    /// How often each variable is read.
    uses: Vec<usize>,
    cluster_of: Vec<Option<ClusterRef>>,
    /// Levels of what is computed outside clusters.
    levels: Vec<u32>,
    /// The level of the last ordered equation.
    ordered: u32,
    pub(super) clusters: Vec<Cluster>,
    /// The cluster that each one was merged into.
    into: Vec<u32>,
    /// What was in the way, for reports: nothing is noted otherwise.
    pub(super) noted: Option<Noted>,
}

impl<'a> Clusters<'a> {
    pub(super) fn new(program: &'a Program, limits: Limits) -> Clusters<'a> {
        let count = program.specs.len();
        let root = |i: u32| Origin { root: Var(i), layout: None };
        Clusters {
            program,
            limits,
            kinds: Vec::with_capacity(program.equations.len()),
            origins: (0..count as u32).map(root).collect(),
            made: program.definitions(),
            uses: program.uses(),
            cluster_of: vec![None; count],
            levels: vec![0; count],
            ordered: 0,
            clusters: Vec::new(),
            into: Vec::new(),
            noted: None,
        }
    }

    pub(super) fn find(&self, mut cluster: u32) -> u32 {
        while self.into[cluster as usize] != cluster {
            cluster = self.into[cluster as usize];
        }
        cluster
    }

    fn cluster_ref(&self, v: Var) -> Option<ClusterRef> {
        let cluster_ref = self.cluster_of[v.index()]?;
        Some(ClusterRef { cluster: self.find(cluster_ref.cluster), ..cluster_ref })
    }

    /// The cluster that computes a variable as a value.
    pub(super) fn cluster_id_of(&self, v: Var) -> Option<u32> {
        let found = self.cluster_ref(v).filter(|found| found.kind != ClusterValue::Column);
        found.map(|cluster_ref| cluster_ref.cluster)
    }

    /// The cluster that computes a variable, sums over rows included.
    pub(super) fn cluster_of(&self, v: Var) -> Option<u32> {
        self.cluster_ref(v).map(|found| found.cluster)
    }

    /// The equation that defines a variable.
    pub(super) fn definition(&self, v: Var) -> Option<usize> {
        self.made[v.index()]
    }

    fn spec(&self, v: Var) -> &'a Spec {
        self.program.spec(v)
    }

    /// The op that defines a variable.
    pub(super) fn op(&self, v: Var) -> Option<&'a Op> {
        self.made[v.index()].map(|i| &self.program.equations[i].op)
    }

    fn literal(&self, v: Var) -> Option<(Scalar, DType)> {
        match self.op(v) {
            Some(Op::Literal { value, dtype, .. }) => Some((*value, *dtype)),
            Some(_) | None => None,
        }
    }

    fn is_literal(&self, v: Var) -> bool {
        self.literal(v).is_some()
    }

    /// The numbers that an equation reads.
    fn literals(&self, i: usize) -> SmallVec<[(Scalar, DType); 2]> {
        let inputs = &self.program.equations[i].inputs;
        inputs.iter().filter_map(|v| self.literal(self.origins[v.index()].root)).collect()
    }

    fn level(&self, root: Var) -> u32 {
        match self.cluster_ref(root) {
            Some(cluster_ref) => self.clusters[cluster_ref.cluster as usize].level,
            None => self.levels[root.index()],
        }
    }

    /// Notes that something on `level` reads `root`.
    fn read(&mut self, root: Var, level: u32) {
        if let Some(cluster_ref) = self.cluster_ref(root) {
            let cluster = &mut self.clusters[cluster_ref.cluster as usize];
            cluster.read_at = cluster.read_at.min(level);
        }
    }

    fn kind(&self, i: usize) -> FusionKind {
        let e = &self.program.equations[i];
        let spec = |v: &Var| self.spec(*v);
        match &e.op {
            Op::Literal { .. } | Op::Iota { .. } => FusionKind::Free,
            Op::View(view) => {
                let origin = &self.origins[e.inputs[0].index()];
                let root = spec(&origin.root);
                let dense = || Layout::dense(root.shape.clone());
                match origin.layout.clone().unwrap_or_else(dense).view(view) {
                    Some(_) => FusionKind::View,
                    None => FusionKind::Alone,
                }
            }
            _ if e.outputs.iter().any(|v| spec(v).is_empty()) => FusionKind::Alone,
            op if is_point(op) => {
                let literal = |v: &Var| self.is_literal(self.origins[v.index()].root);
                if e.inputs.iter().all(literal) { FusionKind::Alone } else { FusionKind::Point }
            }
            Op::Random { .. } => {
                let key = &self.origins[e.inputs[0].index()].layout;
                // A region draws from one key; one key per example is a separate op.
                let one = spec(&e.inputs[0]).shape.len() == 1;
                match one && key.as_ref().is_none_or(Layout::is_dense) {
                    true => FusionKind::Random,
                    false => FusionKind::Alone,
                }
            }
            Op::Reduce(kind, axes) if !self.is_literal(self.origins[e.inputs[0].index()].root) => {
                let of = spec(&e.inputs[0]);
                let row = row_length(&of.shape, axes).filter(|&n| n > 0).map(FusionKind::Reduce);
                let sums = *kind == Reduction::Sum && of.dtype.is_float();
                let column = column_length(&of.shape, axes).filter(|&n| sums && self.sums_rows(n));
                row.or(column.map(FusionKind::Columns)).unwrap_or(FusionKind::Alone)
            }
            Op::Unary(_) | Op::UnaryVjp(_) | Op::Binary(_) | Op::Compare(_) => FusionKind::Alone,
            Op::Select | Op::Cast(_) | Op::Copy | Op::To(_) | Op::After => FusionKind::Alone,
            Op::Collective(_) | Op::Wait | Op::Transfer(_) => FusionKind::Alone,
            Op::Put(_) | Op::Pad(_) | Op::Cat(_) | Op::Gather(_) | Op::Scatter(..) => {
                FusionKind::Alone
            }
            Op::Reduce(..) | Op::ArgReduce(..) | Op::Cumulate { .. } => FusionKind::Alone,
            Op::Sort { .. } | Op::Ranks { .. } | Op::Dot | Op::Conv(_) | Op::Pool(_) => {
                FusionKind::Alone
            }
            Op::Linalg(_) | Op::Fft(_) | Op::Fused(_) => FusionKind::Alone,
            Op::Region(_) | Op::DotRegion(_) | Op::Flow(_) | Op::Custom(_) => FusionKind::Alone,
        }
    }

    /// Assigns an equation to a cluster.
    pub(super) fn place(&mut self, i: usize) {
        let kind = self.kind(i);
        self.kinds.push(kind);
        let e = &self.program.equations[i];
        match kind {
            FusionKind::Free => {}
            FusionKind::View => {
                let Op::View(view) = &e.op else { return };
                let origin = &self.origins[e.inputs[0].index()];
                let root = origin.root;
                let dense = || Layout::dense(self.spec(root).shape.clone());
                let layout = origin.layout.clone().unwrap_or_else(dense).view(view);
                self.origins[e.outputs[0].index()] = Origin { root, layout };
            }
            FusionKind::Point => self.place_point(i),
            FusionKind::Reduce(length) => self.place_reduce(i, length, ClusterValue::Row),
            FusionKind::Columns(length) => self.place_reduce(i, length, ClusterValue::Column),
            FusionKind::Random => {
                let root = self.origins[e.inputs[0].index()].root;
                let level = self.level(root) + 1;
                let cluster = self.start(self.spec(e.outputs[0]), level);
                self.clusters[cluster as usize].keys.push(e.inputs[0]);
                self.read(root, level);
                self.add(cluster, i, ClusterValue::Element);
            }
            FusionKind::Alone => {
                let roots: SmallVec<[Var; 6]> =
                    e.inputs.iter().map(|v| self.origins[v.index()].root).collect();
                let mut level = 1 + roots.iter().map(|&r| self.level(r)).max().unwrap_or(0);
                // No region may be between two collectives against their order.
                if e.op.is_ordered() {
                    level = level.max(self.ordered + 1);
                    self.ordered = level;
                }
                roots.iter().for_each(|&r| self.read(r, level));
                e.outputs.iter().for_each(|v| self.levels[v.index()] = level);
            }
        }
    }

    fn start(&mut self, domain: &Spec, level: u32) -> u32 {
        let id = self.clusters.len() as u32;
        self.into.push(id);
        self.clusters.push(Cluster {
            device: domain.device,
            len: domain.len(),
            shape: domain.shape.clone(),
            row: None,
            level,
            read_at: u32::MAX,
            members: Vec::new(),
            columns: 0,
            loads: FxHashSet::default(),
            literals: FxHashSet::default(),
            keys: SmallVec::new(),
            closed: false,
        });
        id
    }

    fn add(&mut self, cluster: u32, i: usize, kind: ClusterValue) {
        let literals = self.literals(i);
        self.clusters[cluster as usize].columns += usize::from(kind == ClusterValue::Column);
        self.clusters[cluster as usize].literals.extend(literals);
        self.clusters[cluster as usize].members.push(i as u32);
        let made = self.program.equations[i].outputs[0];
        self.cluster_of[made.index()] = Some(ClusterRef { cluster, kind });
    }

    fn place_point(&mut self, i: usize) {
        let e = &self.program.equations[i];
        let made = self.spec(e.outputs[0]);
        let mut near: SmallVec<[u32; 3]> = SmallVec::new();
        for v in &e.inputs {
            if let Some(cluster_ref) = self.cluster_ref(self.origins[v.index()].root)
                && !near.contains(&cluster_ref.cluster)
            {
                near.push(cluster_ref.cluster);
            }
        }
        let biased = self.is_biased_product(i);
        near.retain(|c| {
            let room = if biased { Err(Obstacle::Bias) } else { self.room_for(*c, made.len()) };
            room.map_err(|why| self.note(i, *c, why)).is_ok()
        });
        near.sort_by_key(|&c| std::cmp::Reverse(self.clusters[c as usize].level));
        if let Some((&first, others)) = near.split_first() {
            for &other in others {
                let merged = match self.reads_in_place(i, other) {
                    true => self.merge(first, other),
                    false => Err(self.read_by(i, other)),
                };
                let _ = merged.map_err(|why| self.note(i, other, why));
            }
        }
        for c in near {
            let c = self.find(c);
            match self.join(i, c) {
                Ok(()) => return,
                Err(why) => self.note(i, c, why),
            }
        }
        // A new cluster, which reads everything from memory.
        let mut loads: SmallVec<[(Var, Layout); 3]> = SmallVec::new();
        for v in &e.inputs {
            let origin = &self.origins[v.index()];
            if !self.is_literal(origin.root) {
                let layout = origin.layout.clone();
                let dense = || Layout::dense(made.shape.clone());
                loads.push((origin.root, layout.unwrap_or_else(dense)));
            }
        }
        let level = 1 + loads.iter().map(|(root, _)| self.level(*root)).max().unwrap_or(0);
        let cluster = self.start(made, level);
        loads.iter().for_each(|(root, _)| self.read(*root, level));
        self.clusters[cluster as usize].loads.extend(loads);
        self.clusters[cluster as usize].closed = biased;
        self.add(cluster, i, ClusterValue::Element);
    }

    /// Whether an op can join a cluster, of this many elements or rows.
    fn room_for(&self, c: u32, len: usize) -> Result<(), Obstacle> {
        let cluster = &self.clusters[c as usize];
        match cluster.len == len || cluster.rows() == Some(len) {
            _ if cluster.closed => Err(Obstacle::Bias),
            true => Ok(()),
            false => Err(Obstacle::Elements(cluster.len, len)),
        }
    }

    /// Why an op cannot read all that a cluster makes for it in place.
    fn read_by(&self, i: usize, c: u32) -> Obstacle {
        let reduced = |v: &Var| {
            let found = self.cluster_ref(self.origins[v.index()].root);
            found.is_some_and(|found| found.cluster == c && found.kind != ClusterValue::Element)
        };
        match self.program.equations[i].inputs.iter().any(reduced) {
            true => Obstacle::Reduction,
            false => Obstacle::Layout,
        }
    }

    /// Whether this is the sum of a product of matrices, which nothing else reads, and a row, and
    /// several ops read the sum.
    fn is_biased_product(&self, i: usize) -> bool {
        let e = &self.program.equations[i];
        let wanted = self.limits.biased_products && e.op == Op::Binary(Binary::Add);
        if !wanted || self.uses[e.outputs[0].index()] < 2 {
            return false;
        }
        let sum = |product: Var, row: Var| {
            let (product, row) = (&self.origins[product.index()], &self.origins[row.index()]);
            let (of, added) = (self.spec(product.root), self.spec(row.root));
            let alone =
                self.op(product.root) == Some(&Op::Dot) && self.uses[product.root.index()] == 1;
            let &[_, columns] = &of.shape[..] else { return false };
            let repeated = |layout: &Layout| {
                let [outer @ .., last] = &layout.strides[..] else { return false };
                layout.offset == 0 && *last == 1 && outer.iter().all(|&stride| stride == 0)
            };
            alone
                && product.in_place(of)
                && matches!(of.dtype, DType::F32 | DType::BF16 | DType::F16)
                && (added.dtype, added.len()) == (of.dtype, columns)
                && row.layout.as_ref().is_some_and(repeated)
        };
        sum(e.inputs[0], e.inputs[1]) || sum(e.inputs[1], e.inputs[0])
    }

    /// Whether an op reads all that a cluster makes for it in place, or row by row.
    fn reads_in_place(&self, i: usize, c: u32) -> bool {
        self.program.equations[i].inputs.iter().all(|v| {
            let origin = &self.origins[v.index()];
            match self.cluster_ref(origin.root) {
                Some(cluster_ref) if cluster_ref.cluster == c => match cluster_ref.kind {
                    ClusterValue::Element => origin.in_place(self.spec(origin.root)),
                    ClusterValue::Row => {
                        origin.in_place(self.spec(origin.root)) || self.repeats(origin, c)
                    }
                    ClusterValue::Column => false,
                },
                Some(_) | None => true,
            }
        })
    }

    /// Whether this is a row value of a cluster, repeated along the rows.
    fn repeats(&self, origin: &Origin, c: u32) -> bool {
        self.repeats_in(origin, &self.clusters[c as usize].shape, self.clusters[c as usize].row)
    }

    fn repeats_in(&self, origin: &Origin, shape: &Shape, row: Option<usize>) -> bool {
        let Some(inner) = row.and_then(|length| inner_axes(shape, length)) else { return false };
        match &origin.layout {
            None => false,
            Some(layout) => {
                layout.len() == shape.iter().product()
                    && with_shape(layout, shape).is_some_and(|layout| repeats_rows(&layout, inner))
            }
        }
    }

    /// How a pointwise op would read its operands in a cluster whose domain has this shape.
    fn reading(&self, i: usize, c: u32, shape: &Shape) -> Result<Reading, Obstacle> {
        let e = &self.program.equations[i];
        let cluster = &self.clusters[c as usize];
        let len = self.spec(e.outputs[0]).len();
        let mut reading = Reading { loads: SmallVec::new(), row: len != cluster.len };
        let mut elements = false;
        for v in &e.inputs {
            let origin = &self.origins[v.index()];
            let root = self.spec(origin.root);
            if self.is_literal(origin.root) {
                continue;
            }
            match self.cluster_ref(origin.root).filter(|cluster_ref| cluster_ref.cluster == c) {
                Some(cluster_ref) if cluster_ref.kind == ClusterValue::Column => {
                    return Err(Obstacle::Reduction);
                }
                // Together with rows, all operands must be rows.
                Some(cluster_ref) if reading.row => {
                    if cluster_ref.kind != ClusterValue::Row || !origin.in_place(root) {
                        return Err(Obstacle::Layout);
                    }
                }
                None if reading.row => return Err(Obstacle::Elements(cluster.len, len)),
                Some(cluster_ref) if cluster_ref.kind == ClusterValue::Row => {
                    if cluster.single_stage(self.limits.long) {
                        return Err(Obstacle::Reduction);
                    }
                    if !self.repeats_in(origin, shape, cluster.row) {
                        return Err(Obstacle::Layout);
                    }
                }
                Some(_) => {
                    if !origin.in_place(root) {
                        return Err(Obstacle::Layout);
                    }
                    elements = true;
                }
                None => {
                    let layout = origin.seen_as(root, shape).ok_or(Obstacle::Layout)?;
                    reading.loads.push((origin.root, layout));
                    elements = true;
                }
            }
        }
        // An op of rows only is a row, whatever its shape.
        match reading.row || elements {
            true => Ok(reading),
            false => Err(Obstacle::Reduction),
        }
    }

    /// Adds a pointwise op to a cluster, if allowed; else what is in the way.
    fn join(&mut self, i: usize, c: u32) -> Result<(), Obstacle> {
        let made = self.spec(self.program.equations[i].outputs[0]);
        let cluster = &self.clusters[c as usize];
        self.room_for(c, made.len())?;
        let shape = cluster.shape.clone();
        let (reading, with_shape) = match self.reading(i, c, &shape) {
            Ok(reading) => (reading, None),
            Err(why) => {
                // Other operands may have strides under the op's own shape alone.
                if made.len() != cluster.len || made.shape == shape {
                    return Err(why);
                }
                let fits = cluster.row.is_none_or(|n| inner_axes(&made.shape, n).is_some());
                let loads = if fits { cluster.with_shape(&made.shape) } else { None };
                let loads = loads.ok_or(why)?;
                let reading = self.reading(i, c, &made.shape).map_err(|_| why)?;
                (reading, Some((made.shape.clone(), loads)))
            }
        };
        let reads = reading.loads.iter().map(|(root, _)| self.level(*root) + 1).max();
        let level = cluster.level.max(reads.unwrap_or(0));
        let more = reading.loads.iter().filter(|load| !cluster.loads.contains(load)).count();
        let numbers = self.literals(i);
        let numbers = numbers.iter().filter(|number| !cluster.literals.contains(number)).count();
        let instructions = cluster.instructions() + more + numbers + 1;
        let inputs = cluster.loads.len() + cluster.keys.len() + more;
        if level >= cluster.read_at {
            return Err(Obstacle::Between);
        }
        self.within(cluster.len, instructions, inputs)?;
        let cluster = &mut self.clusters[c as usize];
        cluster.level = level;
        if let Some((shape, loads)) = with_shape {
            (cluster.shape, cluster.loads) = (shape, loads);
        }
        let roots: SmallVec<[Var; 3]> = reading.loads.iter().map(|load| load.0).collect();
        cluster.loads.extend(reading.loads);
        roots.iter().for_each(|&root| self.read(root, level));
        self.add(c, i, if reading.row { ClusterValue::Row } else { ClusterValue::Element });
        Ok(())
    }

    /// Whether a region is small enough.
    fn within(&self, len: usize, instructions: usize, inputs: usize) -> Result<(), Obstacle> {
        let limits = &self.limits;
        let times = if len <= limits.few { limits.small } else { 1 };
        let (most, operands) = (limits.instructions * times, limits.inputs * times);
        match len == 1 {
            true => Ok(()),
            false if instructions > most => Err(Obstacle::Instructions(most)),
            false if inputs > operands => Err(Obstacle::Operands(operands)),
            false => Ok(()),
        }
    }

    /// Whether sums over rows of this length are results of a region.
    fn sums_rows(&self, length: usize) -> bool {
        let [least, most] = self.limits.column_row;
        self.limits.columns > 0 && (least..=most).contains(&length)
    }
}
