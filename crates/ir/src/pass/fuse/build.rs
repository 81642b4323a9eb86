//! Builds regions from clusters, and the program around them.

use super::super::rebuild::with_programs;
use super::cluster::{Cluster, Clusters};
use super::{FusionKind, inner_axes, with_shape};
use crate::{
    Equation, Inst, Layout, Load, Op, Program, Region, Scalar, Shape, Spec, Var, Vars, View,
};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

impl Clusters<'_> {
    /// The program with its regions; programs inside control flow are transformed by `inside`.
    pub(super) fn into_program(self, inside: &mut dyn FnMut(&Program) -> Program) -> Program {
        let program = self.program;
        let mut regions: Vec<Parts> = Vec::new();
        let mut in_region = vec![false; program.equations.len()];
        for (id, cluster) in self.clusters.iter().enumerate() {
            if self.find(id as u32) == id as u32 && self.is_worth_it(cluster) {
                cluster.members.iter().for_each(|&i| in_region[i as usize] = true);
                regions.push(self.parts(id as u32, cluster));
            }
        }
        // What has to be in memory: results, what ops outside regions read, what regions load, and
        // the bases of kept views.
        let mut needed = vec![false; program.specs.len()];
        program.outputs.iter().for_each(|v| needed[v.index()] = true);
        regions.iter().flat_map(|parts| &parts.inputs).for_each(|v| needed[v.index()] = true);
        for (i, e) in program.equations.iter().enumerate().rev() {
            let kept = match self.kinds[i] {
                FusionKind::Free | FusionKind::View => needed[e.outputs[0].index()],
                FusionKind::Point | FusionKind::Random => !in_region[i],
                FusionKind::Reduce(_) | FusionKind::Columns(_) => !in_region[i],
                FusionKind::Alone => true,
            };
            if kept {
                e.inputs.iter().for_each(|v| needed[v.index()] = true);
            }
        }
        let mut out = Program { equations: Vec::new(), ..program.clone() };
        let mut nodes: Vec<GroupNode> = Vec::new();
        for (i, e) in program.equations.iter().enumerate() {
            let wanted = match self.kinds[i] {
                FusionKind::Free | FusionKind::View => needed[e.outputs[0].index()],
                FusionKind::Point
                | FusionKind::Random
                | FusionKind::Reduce(_)
                | FusionKind::Columns(_)
                | FusionKind::Alone => !in_region[i],
            };
            if wanted {
                let e = Equation { op: with_programs(&e.op, &mut *inside), ..e.clone() };
                nodes.push(GroupNode { place: i, equations: vec![e] });
            }
        }
        nodes.extend(regions.into_iter().filter_map(|parts| parts.node(&mut out, &needed)));
        match in_order(nodes, program) {
            Some(equations) => Program { equations, ..out }.renumbered(),
            // Levels exclude this. If it happens, the original program is returned.
            None => {
                debug_assert!(false, "regions form a cycle:\n{program}");
                program.clone()
            }
        }
    }

    /// A single op is not worth a region, unless it absorbs a view or a literal.
    fn is_worth_it(&self, cluster: &Cluster) -> bool {
        let [only] = cluster.members[..] else { return !cluster.members.is_empty() };
        let e = &self.program.equations[only as usize];
        self.kinds[only as usize] == FusionKind::Point
            && e.inputs.iter().any(|v| {
                let origin = &self.origins[v.index()];
                origin.layout.is_some()
                    || matches!(self.op(origin.root), Some(Op::Literal { .. } | Op::Iota { .. }))
            })
    }

    /// The instructions of a cluster.
    fn parts(&self, id: u32, cluster: &Cluster) -> Parts {
        let program = self.program;
        let mut members = cluster.members.clone();
        members.sort_unstable();
        let shape = cluster.shape.clone();
        let inner = cluster.row.and_then(|length| inner_axes(&shape, length)).unwrap_or(0);
        let mut parts = Parts {
            region: Region {
                device: cluster.device,
                shape,
                inner,
                inputs: Vec::new(),
                body: Vec::new(),
                outputs: Vec::new(),
                columns: Vec::new(),
            },
            inputs: Vec::new(),
            columns: Vec::new(),
            made: Vec::with_capacity(members.len()),
            last: members.last().map_or(0, |&i| i as usize),
            at: members.last().and_then(|&i| program.equations[i as usize].at),
        };
        let mut values = Values::default();
        for i in members {
            let e = &program.equations[i as usize];
            let made = e.outputs[0];
            if let FusionKind::Columns(_) = self.kinds[i as usize] {
                let number = self.value(id, &mut parts, &mut values, e.inputs[0]);
                parts.columns.push((made, number));
                continue;
            }
            let inst = match &e.op {
                Op::Random { kind, dtype, .. } => {
                    let key =
                        parts.input(&mut values, program, e.inputs[0], Layout::dense([2].into()));
                    Inst::Random(*kind, key, *dtype)
                }
                Op::Reduce(kind, _) => {
                    Inst::Reduce(*kind, self.value(id, &mut parts, &mut values, e.inputs[0]))
                }
                op => {
                    let of: SmallVec<[usize; 3]> = e
                        .inputs
                        .iter()
                        .map(|&v| self.value(id, &mut parts, &mut values, v))
                        .collect();
                    Inst::Point(op.clone(), of)
                }
            };
            let number = parts.push(inst);
            values.made.insert(made, number);
            parts.made.push((made, number));
        }
        parts
    }

    /// The number of the value that an operand is in a region.
    fn value(&self, id: u32, parts: &mut Parts, values: &mut Values, v: Var) -> usize {
        let origin = &self.origins[v.index()];
        let root = origin.root;
        if self.cluster_id_of(root) == Some(id) {
            // A member that is read is a member before: equations are in order.
            return values.made.get(&root).copied().unwrap_or(0);
        }
        if let Some(Op::Literal { value, dtype, .. }) = self.op(root) {
            let known = values.literals.get(&(*value, *dtype)).copied();
            return known.unwrap_or_else(|| {
                let number = parts.push(Inst::Literal(*value, *dtype));
                values.literals.insert((*value, *dtype), number);
                number
            });
        }
        let shape = parts.region.shape.clone();
        let dense = || Layout::dense(shape.clone());
        let layout = origin.seen_as(self.program.spec(root), &shape).unwrap_or_else(dense);
        if let Some(Op::Iota { dtype, .. }) = self.op(root)
            && let Some(axis) = counts_along(&layout)
        {
            let known = values.indices.get(&(axis, *dtype)).copied();
            return known.unwrap_or_else(|| {
                let number = parts.push(Inst::Index(axis, *dtype));
                values.indices.insert((axis, *dtype), number);
                number
            });
        }
        let k = parts.input(values, self.program, root, layout);
        let known = values.loads.get(&k).copied();
        known.unwrap_or_else(|| {
            let number = parts.push(Inst::Load(k));
            values.loads.insert(k, number);
            number
        })
    }
}

/// The axis along which a layout of 0, 1, 2, … counts from 0 on, every index of the domain.
fn counts_along(layout: &Layout) -> Option<usize> {
    let mut moving =
        (0..layout.shape.len()).filter(|&i| layout.shape[i] > 1 && layout.strides[i] != 0);
    let axis = moving.next()?;
    (layout.offset == 0 && layout.strides[axis] == 1 && moving.next().is_none()).then_some(axis)
}

/// The numbers of existing values.
#[derive(Default)]
struct Values {
    made: FxHashMap<Var, usize>,
    literals: FxHashMap<(Scalar, crate::DType), usize>,
    indices: FxHashMap<(usize, crate::DType), usize>,
    loads: FxHashMap<usize, usize>,
    inputs: FxHashMap<(Var, Layout), usize>,
}

/// A region being built.
struct Parts {
    region: Region,
    inputs: Vec<Var>,
    /// The variables that it defines, and their values.
    made: Vec<(Var, usize)>,
    /// Those that are sums of values over the rows.
    columns: Vec<(Var, usize)>,
    /// Where the last of its equations was.
    last: usize,
    at: Option<crate::Line>,
}

impl Parts {
    fn push(&mut self, inst: Inst) -> usize {
        self.region.body.push(inst);
        self.region.body.len() - 1
    }

    fn input(&mut self, values: &mut Values, program: &Program, v: Var, layout: Layout) -> usize {
        let Parts { region, inputs, .. } = self;
        *values.inputs.entry((v, layout)).or_insert_with_key(|(v, layout)| {
            region.inputs.push(Load { spec: program.spec(*v).clone(), layout: layout.clone() });
            inputs.push(*v);
            inputs.len() - 1
        })
    }

    /// The equation, and the reshapes after it; `None` if no result is needed.
    fn node(mut self, out: &mut Program, needed: &[bool]) -> Option<GroupNode> {
        self.made.retain(|(v, _)| needed[v.index()]);
        self.columns.retain(|(v, _)| needed[v.index()]);
        if self.made.is_empty() && self.columns.is_empty() {
            return None;
        }
        self.region.outputs = self.made.iter().map(|made| made.1).collect();
        self.region.columns = self.columns.iter().map(|made| made.1).collect();
        let operands: Vec<&Spec> = self.region.inputs.iter().map(|load| &load.spec).collect();
        let specs = self.region.infer(&operands).ok()?;
        let mut views = Vec::new();
        let mut outputs = Vars::new();
        for (&(v, _), spec) in self.made.iter().chain(&self.columns).zip(specs) {
            if spec.shape == out.spec(v).shape {
                outputs.push(v);
                continue;
            }
            let op = Op::View(View::Reshape(out.spec(v).shape.clone()));
            let result = out.fresh(spec);
            outputs.push(result);
            let (inputs, made) = (Vars::from_slice(&[result]), Vars::from_slice(&[v]));
            views.push(Equation { op, inputs, outputs: made, at: self.at });
        }
        let op = Op::Region(Arc::new(self.region));
        let mut equations =
            vec![Equation { op, inputs: Vars::from_vec(self.inputs), outputs, at: self.at }];
        equations.append(&mut views);
        Some(GroupNode { place: self.last, equations })
    }
}

/// Equations that stay together.
struct GroupNode {
    place: usize,
    equations: Vec<Equation>,
}

/// The equations of all nodes, each after those it reads, otherwise in the original order. `None`
/// if there is no such order.
fn in_order(mut nodes: Vec<GroupNode>, program: &Program) -> Option<Vec<Equation>> {
    nodes.sort_by_key(|node| node.place);
    let mut made: FxHashMap<Var, u32> = FxHashMap::default();
    for (n, node) in nodes.iter().enumerate() {
        for v in node.equations.iter().flat_map(|e| &e.outputs) {
            made.insert(*v, n as u32);
        }
    }
    let mut after: Vec<Vec<u32>> = vec![Vec::new(); nodes.len()];
    let mut waits = vec![0usize; nodes.len()];
    let mut is_input = vec![false; program.specs.len()];
    program.inputs.iter().for_each(|v| is_input[v.index()] = true);
    for (n, node) in nodes.iter().enumerate() {
        let mut before: SmallVec<[u32; 8]> = SmallVec::new();
        for v in node.equations.iter().flat_map(|e| &e.inputs) {
            match made.get(v) {
                Some(&m) if m != n as u32 => before.push(m),
                Some(_) => {}
                None if is_input.get(v.index()).copied().unwrap_or(false) => {}
                None => return None,
            }
        }
        before.sort_unstable();
        before.dedup();
        waits[n] = before.len();
        before.iter().for_each(|&m| after[m as usize].push(n as u32));
    }
    let is_ordered = |&n: &usize| nodes[n].equations.iter().any(|e| e.op.is_ordered());
    let ordered: Vec<usize> = (0..nodes.len()).filter(is_ordered).collect();
    for pair in ordered.windows(2) {
        after[pair[0]].push(pair[1] as u32);
        waits[pair[1]] += 1;
    }
    let mut ready: BinaryHeap<Reverse<u32>> =
        (0..nodes.len() as u32).filter(|&n| waits[n as usize] == 0).map(Reverse).collect();
    let mut equations = Vec::with_capacity(nodes.len());
    let mut count = 0;
    while let Some(Reverse(n)) = ready.pop() {
        count += 1;
        equations.append(&mut nodes[n as usize].equations);
        for &next in &after[n as usize] {
            waits[next as usize] -= 1;
            if waits[next as usize] == 0 {
                ready.push(Reverse(next));
            }
        }
    }
    (count == nodes.len()).then_some(equations)
}

/// The region over a domain of another shape with as many elements. Regions that count along an
/// axis, or add anything up, keep their shape.
pub(in super::super) fn reshaped(region: &Region, shape: &Shape) -> Option<Region> {
    if region.shape == *shape {
        return Some(region.clone());
    }
    let counts = |inst: &Inst| matches!(inst, Inst::Index(..));
    if region.reduces() || region.body.iter().any(counts) {
        return None;
    }
    let mut out = Region { shape: shape.clone(), inner: 0, ..region.clone() };
    for load in out.inputs.iter_mut().filter(|load| load.layout.shape == region.shape) {
        load.layout = with_shape(&load.layout, shape)?;
    }
    Some(out)
}
