//! Why a tensor gets no gradient: walks the tape from an output and looks behind every cut.

use super::{Cut, CutFrom, CutReason, History, Key, Node};
use crate::Tensor;
use rustc_hash::FxHashSet;
use std::fmt::Write as _;
use std::sync::Arc;

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
        let mut search =
            Search { wanted, seen: FxHashSet::default(), open: false, cuts: Vec::new() };
        search.run(self.history(), None);
        if search.open {
            return "the path is open: backward gives the target a gradient".to_string();
        }
        let mut text = String::from("no gradient reaches the target");
        let behind: Vec<_> = search.cuts.iter().filter(|c| c.1).collect();
        match (behind.is_empty(), search.cuts.is_empty()) {
            (false, _) => {
                for (cut, _) in behind {
                    let _ = write!(text, "\n  the path was cut {}", cut.describe());
                }
            }
            (true, false) => {
                text.push_str(": the output does not depend on it, unless by one of these cuts, behind which the graph is gone");
                for (cut, _) in &search.cuts {
                    let _ = write!(text, "\n  cut {}", cut.describe());
                }
            }
            (true, true) => text.push_str(": the output does not depend on it"),
        }
        text
    }
}

struct Search {
    wanted: Key,
    seen: FxHashSet<(u64, usize)>,
    open: bool,
    /// Cuts met, and whether the target lies behind them.
    cuts: Vec<(Arc<Cut>, bool)>,
}

impl Search {
    /// Walks from `start`; `behind` is the cut through which it came, if any.
    fn run(&mut self, start: History, behind: Option<usize>) {
        let mut stack = vec![(start, behind)];
        while let Some((history, behind)) = stack.pop() {
            if history.key() == Some(self.wanted) {
                match behind {
                    None => self.open = true,
                    Some(cut) => self.cuts[cut].1 = true,
                }
                continue;
            }
            match history {
                History::None | History::Leaf(_) => {}
                History::Node(node, _) => {
                    if self.seen.insert((node.seq, behind.map_or(0, |b| b + 1))) {
                        stack.extend(node.inputs.iter().map(|h| (h.clone(), behind)));
                    }
                }
                History::Cut(cut) => {
                    let at = match self.cuts.iter().position(|c| Arc::ptr_eq(&c.0, &cut)) {
                        Some(_) => continue,
                        None => {
                            self.cuts.push((cut.clone(), false));
                            self.cuts.len() - 1
                        }
                    };
                    for from in &cut.from {
                        let hidden = match from {
                            CutFrom::Leaf(leaf) => leaf.upgrade().map(History::Leaf),
                            CutFrom::Node(node) => {
                                node.upgrade().map(|n: Arc<Node>| History::Node(n, 0))
                            }
                            CutFrom::Cut(cut) => Some(History::Cut(cut.clone())),
                        };
                        stack.extend(hidden.map(|h| (h, Some(at))));
                    }
                }
            }
        }
    }
}

impl Cut {
    pub(crate) fn describe(&self) -> String {
        let how = match self.why {
            CutReason::Detached => format!("by `{}`", self.op),
            CutReason::NoGrad => format!("by no_grad around `{}`", self.op),
            CutReason::Constant => format!("by `{}`, whose derivative is zero everywhere", self.op),
        };
        format!("{how} at {}", self.at)
    }
}
