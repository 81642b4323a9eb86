//! Why equations that share a large value are not in one region, for reports.

use super::cluster::Clusters;
use super::{FusionKind, Limits, views};
use crate::pass::dead_code;
use crate::{Line, Op, Program, Var};
use rustc_hash::FxHashMap;
use std::fmt;

/// What keeps two equations apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// They run over so many elements.
    Elements(usize, usize),
    /// Their rows have so many elements.
    Rows(usize, usize),
    /// They are on different devices.
    Devices,
    /// The sum of a product and a bias comes with the product.
    Bias,
    /// Something between them has to run first, or is not known to run later.
    Between,
    /// One reads the result of a reduction, which is known only when all of it has run.
    Reduction,
    /// Together they have more than so many instructions.
    Instructions(usize),
    /// Together they have more than so many operands.
    Operands(usize),
    /// Together they have more than so many sums over rows.
    Sums(usize),
    /// One reads the other's elements in another order, or no strides describe how they are read.
    Layout,
    /// One of them is an op that is no part of regions.
    Kernel(&'static str),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Elements(a, b) => write!(f, "they run over {a} and {b} elements"),
            Obstacle::Rows(a, b) => write!(f, "their rows have {a} and {b} elements"),
            Obstacle::Devices => f.write_str("they are on different devices"),
            Obstacle::Bias => f.write_str("a sum with a bias comes with its product"),
            Obstacle::Between => f.write_str("something between them has to run first"),
            Obstacle::Reduction => f.write_str("a reduction has to finish first"),
            Obstacle::Instructions(n) => write!(f, "together more than {n} instructions"),
            Obstacle::Operands(n) => write!(f, "together more than {n} operands"),
            Obstacle::Sums(n) => write!(f, "more than {n} sums over rows"),
            Obstacle::Layout => f.write_str("the elements are read in another order"),
            Obstacle::Kernel(name) => write!(f, "`{name}` is a kernel of its own"),
        }
    }
}

/// Two equations that share a value and are not in one region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Apart {
    /// The names of their ops, and where these came from: that which runs first is the first.
    pub ops: [(String, Option<Line>); 2],
    /// Why they are apart.
    pub why: Obstacle,
    /// Bytes of the value.
    pub bytes: usize,
    /// The first one writes the value; otherwise both read it.
    pub written: bool,
}

impl fmt::Display for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [one, two] = &self.ops;
        for (n, (name, at)) in [one, two].into_iter().enumerate() {
            write!(f, "{}`{name}`", if n == 0 { "" } else { " and " })?;
            if let Some(at) = at {
                write!(f, " at {at}")?;
            }
        }
        let how = if self.written { "written and read again" } else { "read again" };
        write!(f, " stay apart: {}; {} bytes {how}", self.why, self.bytes)
    }
}

/// Pairs of equations that share a value of at least so many bytes and that [`fuse_within`] does
/// not put into one region, with the first obstacle of each; the largest values first. The program
/// is that before fusion. Products of matrices are not named: what follows one reads it from
/// memory, or comes with it. This runs the pass again, which itself notes nothing.
///
/// ```
/// use pullback_ir::{Program, pass::{Limits, apart}};
/// let text = "program (x: f32[4,8]) {
///   let a: f32[4,8] = exp x
///   let b: f32[8,4] = permute{[1,0]} a
///   let c: f32[8,4] = tanh b
///   let d: f32[4,8] = neg a
///   return c, d
/// }";
/// let found = apart(&text.parse::<Program>().unwrap(), Limits::default(), 0);
/// let found: Vec<String> = found.iter().map(ToString::to_string).collect();
/// let why = "the elements are read in another order; 128 bytes written and read again";
/// assert_eq!(found, [format!("`exp` and `tanh` stay apart: {why}")]);
/// ```
///
/// [`fuse_within`]: super::fuse_within
#[must_use]
pub fn apart(program: &Program, limits: Limits, least: usize) -> Vec<Apart> {
    let mut found = Vec::new();
    within(program, limits, least, &mut found);
    found.sort_by_key(|pair| std::cmp::Reverse(pair.bytes));
    found
}

fn within(program: &Program, limits: Limits, least: usize, found: &mut Vec<Apart>) {
    let program = dead_code(&views::earlier(program));
    let mut clusters = Clusters::new(&program, limits);
    clusters.noted = Some(Noted::default());
    (0..program.equations.len()).for_each(|i| clusters.place(i));
    clusters.merge_siblings();
    clusters.apart(least, found);
    for e in &program.equations {
        if let Op::Flow(flow) = &e.op {
            flow.programs().into_iter().for_each(|inside| within(inside, limits, least, found));
        }
    }
}

/// What was met while clusters were made.
#[derive(Default)]
pub(super) struct Noted {
    /// By the equation that reads, and the variable: the first obstacle.
    read: FxHashMap<(usize, Var), Obstacle>,
    /// Clusters that both read a variable.
    shared: Vec<([u32; 2], Var, Obstacle)>,
}

impl Clusters<'_> {
    /// Notes why an equation is not where its operands are computed that a cluster computes.
    pub(super) fn note(&mut self, i: usize, c: u32, why: Obstacle) {
        if self.noted.is_none() {
            return;
        }
        for v in &self.program.equations[i].inputs {
            let root = self.origins[v.index()].root;
            if self.cluster_of(root).is_some_and(|cluster| cluster == self.find(c)) {
                self.note_root(i, root, why);
            }
        }
    }

    pub(super) fn note_root(&mut self, i: usize, root: Var, why: Obstacle) {
        if let Some(noted) = &mut self.noted {
            noted.read.entry((i, root)).or_insert(why);
        }
    }

    /// Notes why two clusters that read a variable are apart.
    pub(super) fn note_shared(&mut self, of: [u32; 2], root: Var, why: Obstacle) {
        if let Some(noted) = &mut self.noted {
            noted.shared.push((of, root, why));
        }
    }

    fn apart(&self, least: usize, found: &mut Vec<Apart>) {
        let Some(noted) = &self.noted else { return };
        let equations = &self.program.equations;
        let named = |i: usize| (equations[i].op.name().to_string(), equations[i].at);
        let bytes = |v: Var| self.program.spec(v).bytes();
        for (i, e) in equations.iter().enumerate() {
            if matches!(self.kinds[i], FusionKind::Free | FusionKind::View) {
                continue;
            }
            let mut seen: Vec<Var> = Vec::new();
            for v in &e.inputs {
                let root = self.origins[v.index()].root;
                let Some(made) = self.definition(root) else { continue };
                if seen.contains(&root) || bytes(root) < least {
                    continue;
                }
                seen.push(root);
                let [from, to] = [&equations[made].op, &e.op];
                let why = match [self.kinds[made], self.kinds[i]] {
                    // What has no loop of its own, and ops of which neither has one.
                    [FusionKind::Free | FusionKind::View, _] => continue,
                    [FusionKind::Alone, FusionKind::Alone] => continue,
                    _ if is_product(from) || is_product(to) => continue,
                    [FusionKind::Alone, _] => Obstacle::Kernel(from.name()),
                    [_, FusionKind::Alone] => Obstacle::Kernel(to.name()),
                    _ => {
                        if self.cluster_of(root) == self.cluster_of(e.outputs[0]) {
                            continue;
                        }
                        noted.read.get(&(i, root)).copied().unwrap_or(Obstacle::Between)
                    }
                };
                let ops = [named(made), named(i)];
                found.push(Apart { ops, why, bytes: bytes(root), written: true });
            }
        }
        for (of, root, why) in &noted.shared {
            let [a, b] = of.map(|c| self.find(c));
            if a == b || bytes(*root) < least {
                continue;
            }
            let reader = |c: u32| {
                let reads = |i: &&u32| {
                    let inputs = &equations[**i as usize].inputs;
                    inputs.iter().any(|v| self.origins[v.index()].root == *root)
                };
                self.clusters[c as usize].members.iter().find(reads).map(|&i| i as usize)
            };
            if let (Some(one), Some(two)) = (reader(a), reader(b)) {
                let ops = [named(one.min(two)), named(one.max(two))];
                found.push(Apart { ops, why: *why, bytes: bytes(*root), written: false });
            }
        }
    }
}

fn is_product(op: &Op) -> bool {
    matches!(op, Op::Dot | Op::DotRegion(_))
}
