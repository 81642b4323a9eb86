//! Where a path of derivatives was cut, and why a tensor gets no gradient: walks the tape from an
//! output and beyond every cut.

use crate::Tensor;
use crate::backend::{Pooled, WeakPooled};
use crate::leaf::Leaf;
use crate::tape::{History, Node, ValueId};
use pullback_ir::Line;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use std::fmt::Write as _;
use std::sync::{Arc, Weak};

/// A place where a path was cut.
pub(crate) struct Cut {
    pub why: CutReason,
    pub op: &'static str,
    pub at: Line,
    /// What was cut off. Weak, so that a detached value does not keep a graph alive.
    from: SmallVec<[CutFrom; 1]>,
    /// How many earlier cuts this one refers to. Bounded: a long evaluation keeps the newest few.
    depth: usize,
}

/// How many cuts behind each other are remembered.
const CUTS_KEPT: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CutReason {
    /// `detach` or `stop_gradient`.
    Detached,
    /// Recording was off.
    NoGrad,
    /// The op is piecewise constant, or gives integers.
    Constant,
}

enum CutFrom {
    Leaf(Weak<Leaf>),
    Node(WeakPooled<Node>),
    Cut(Arc<Cut>),
}

impl Tensor {
    /// Says why `backward` from this tensor gives `target` no gradient: where the path was cut,
    /// or that there is none.
    ///
    /// ```
    /// use pullback::Tensor;
    /// let w = Tensor::from(2.0).requires_grad();
    /// let hidden = (&w * 3.0).detach();
    /// let loss = &hidden * &hidden;
    /// let why = loss.explain_no_grad(&w);
    /// assert!(why.contains("detach"), "{why}");
    /// ```
    ///
    /// # Panics
    /// Never.
    pub fn explain_no_grad(&self, target: &Tensor) -> String {
        let target_history = target.history();
        let Some(wanted) = target_history.key() else {
            return format!(
                "the target {} does not require grad: call requires_grad() on it before it is used{}",
                target.spec(),
                match &target_history {
                    History::Cut(cut) => format!("\n  it was made {}", cut.describe()),
                    _ => String::new(),
                }
            );
        };
        let mut search = CutSearch {
            wanted,
            open_nodes: FxHashSet::default(),
            hidden_nodes: FxHashSet::default(),
            open: false,
            cuts: Vec::new(),
            seen_cuts: FxHashSet::default(),
        };
        search.run(self.history());
        if search.open {
            return "the path is open: backward gives the target a gradient".to_string();
        }
        let mut text = String::from("no gradient reaches the target");
        let behind: Vec<_> = search.cuts.iter().filter(|c| c.1).collect();
        match (behind.is_empty(), search.cuts.is_empty()) {
            (false, _) => {
                for (cut, _) in behind.into_iter().take(LISTED) {
                    let _ = write!(text, "\n  the path was cut {}", cut.describe());
                }
            }
            (true, false) => {
                text.push_str(": the output does not depend on it, unless through one of these cuts, behind which the graph has been freed");
                for (cut, _) in search.cuts.iter().take(LISTED) {
                    let _ = write!(text, "\n  cut {}", cut.describe());
                }
            }
            (true, true) => text.push_str(": the output does not depend on it"),
        }
        text
    }
}

/// How many cuts are listed.
const LISTED: usize = 5;

struct CutSearch {
    wanted: ValueId,
    /// Nodes seen on the open graph, and behind some cut: each is visited once, for the cut that
    /// led there first.
    open_nodes: FxHashSet<u64>,
    hidden_nodes: FxHashSet<u64>,
    open: bool,
    /// Cuts found, and whether the target is behind them.
    cuts: Vec<(Arc<Cut>, bool)>,
    seen_cuts: FxHashSet<*const Cut>,
}

impl CutSearch {
    /// Walks from `start`: the connected graph first, then what is behind the cuts it found.
    fn run(&mut self, start: History) {
        let mut stack = vec![start];
        while let Some(history) = stack.pop() {
            if history.key() == Some(self.wanted) {
                self.open = true;
                return;
            }
            match history {
                History::None | History::Leaf(_) => {}
                History::Cut(cut) => self.add_cut(cut),
                History::Node(node, _) => {
                    if self.open_nodes.insert(node.seq) {
                        stack.extend(node.inputs.iter().cloned());
                    }
                }
            }
        }
        let mut next = 0;
        while next < self.cuts.len() {
            self.expand(next);
            next += 1;
        }
    }

    fn add_cut(&mut self, cut: Arc<Cut>) {
        if self.seen_cuts.insert(Arc::as_ptr(&cut)) {
            self.cuts.push((cut, false));
        }
    }

    fn expand(&mut self, at: usize) {
        let cut = self.cuts[at].0.clone();
        let hidden = |from: &CutFrom| match from {
            CutFrom::Leaf(leaf) => leaf.upgrade().map(History::Leaf),
            CutFrom::Node(node) => node.upgrade().map(|n| History::Node(n, 0)),
            CutFrom::Cut(cut) => Some(History::Cut(cut.clone())),
        };
        let mut stack: Vec<History> = cut.from.iter().filter_map(hidden).collect();
        while let Some(history) = stack.pop() {
            let found = match &history {
                // A cut value is identified by its node.
                History::Node(node, _) => node.seq == self.wanted.0,
                _ => history.key() == Some(self.wanted),
            };
            if found {
                self.cuts[at].1 = true;
                return;
            }
            match history {
                History::None | History::Leaf(_) => {}
                History::Cut(cut) => self.add_cut(cut),
                History::Node(node, _) => {
                    if self.hidden_nodes.insert(node.seq) {
                        stack.extend(node.inputs.iter().cloned());
                    }
                }
            }
        }
    }
}

impl Cut {
    /// A record that a value made from `sources` is a constant, or the record they already carry.
    pub fn between<'a>(
        why: CutReason,
        op: &'static str,
        at: Line,
        sources: impl Iterator<Item = &'a History>,
    ) -> History {
        let mut from: SmallVec<[CutFrom; 1]> = SmallVec::new();
        let mut earlier = None;
        for source in sources {
            match source {
                History::None => {}
                History::Cut(cut) => earlier = Some(cut.clone()),
                History::Leaf(leaf) => from.push(CutFrom::Leaf(Arc::downgrade(leaf))),
                History::Node(node, _) => from.push(CutFrom::Node(Pooled::downgrade(node))),
            }
        }
        match (from.is_empty(), earlier) {
            (true, None) => History::None,
            (true, Some(cut)) => History::Cut(cut),
            (false, earlier) => {
                let earlier = earlier.filter(|cut| cut.depth < CUTS_KEPT);
                let depth = earlier.as_ref().map_or(0, |cut| cut.depth + 1);
                from.extend(earlier.map(CutFrom::Cut));
                History::Cut(Arc::new(Cut { why, op, at, from, depth }))
            }
        }
    }

    pub(crate) fn describe(&self) -> String {
        let how = match self.why {
            CutReason::Detached => format!("by `{}`", self.op),
            CutReason::NoGrad => format!("by no_grad around `{}`", self.op),
            CutReason::Constant => format!("by `{}`, whose derivative is zero everywhere", self.op),
        };
        format!("{how} at {}", self.at)
    }
}
