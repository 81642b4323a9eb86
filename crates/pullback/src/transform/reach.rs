//! What a backward pass to chosen targets has to visit.

use crate::backend::Pooled;
use crate::tape::{History, Node, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

/// What is known before a backward pass to chosen targets.
pub(crate) struct Reachability {
    /// The nodes from which some target is reached.
    pub leading: FxHashSet<u64>,
    /// Whether the outputs also depend on something tracked that is not a target: then the
    /// gradients may be differentiated outside.
    pub outside: bool,
}

/// Finds the nodes that depend on the targets. Sequence numbers descend along edges, so nothing
/// older than the oldest target depends on one, and the search stops there.
pub(crate) fn plan<'a>(
    roots: impl Iterator<Item = &'a History>,
    targets: &[ValueId],
) -> Reachability {
    let mut plan = Reachability { leading: FxHashSet::default(), outside: false };
    let targets: FxHashSet<ValueId> = targets.iter().copied().collect();
    let Some(oldest) = targets.iter().map(|t| t.0).min() else { return plan };
    // Nodes, and whether they were reached without passing through a target. The history behind a
    // target matters only for targets in it.
    let mut nodes: FxHashMap<u64, (Pooled<Node>, bool)> = FxHashMap::default();
    let mut stack: Vec<(History, bool)> = roots.cloned().map(|h| (h, true)).collect();
    while let Some((history, direct)) = stack.pop() {
        let direct = direct && !history.key().is_some_and(|key| targets.contains(&key));
        match &history {
            History::None | History::Cut(_) => {}
            History::Leaf(leaf) => plan.outside |= direct && !leaf.is_over(),
            History::Node(node, _) if node.seq < oldest => plan.outside |= direct,
            History::Node(node, _) => {
                let anew = match nodes.get_mut(&node.seq) {
                    Some(known) => direct && !std::mem::replace(&mut known.1, true),
                    None => nodes.insert(node.seq, (node.clone(), direct)).is_none(),
                };
                if anew {
                    stack.extend(node.inputs.iter().cloned().map(|h| (h, direct)));
                }
            }
        }
    }
    let mut order: Vec<&Pooled<Node>> = nodes.values().map(|(node, _)| node).collect();
    order.sort_unstable_by_key(|node| node.seq);
    for node in order {
        let leads = |h: &History| match h.key() {
            Some(key) => {
                targets.contains(&key)
                    || (matches!(h, History::Node(..)) && plan.leading.contains(&key.0))
            }
            None => false,
        };
        if node.inputs.iter().any(leads) {
            plan.leading.insert(node.seq);
        }
    }
    plan
}
