//! Nodes that wait for a backward pass, the one with the highest number first.

use crate::rule::Maybe;
use crate::tape::Node;
use rustc_hash::FxHashMap;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// A node, and what has arrived for its results so far.
pub(crate) type Waiting = (Arc<Node>, Maybe);

/// In a chain of ops one node waits at a time: it is kept beside the heap and the map, which are for
/// graphs that branch.
#[derive(Default)]
pub(crate) struct Queue {
    /// One whose number is higher than all in the heap, if there is one.
    first: Option<Waiting>,
    heap: BinaryHeap<u64>,
    others: FxHashMap<u64, Waiting>,
}

impl Queue {
    /// What has arrived for the results of a node, to which more can be added.
    pub fn grads(&mut self, node: &Arc<Node>) -> &mut Maybe {
        let first = self.first.as_ref().map(|(first, _)| first.seq);
        if first != Some(node.seq) {
            let next = self.heap.peek().copied().max(first);
            if next.is_some_and(|next| next >= node.seq) {
                let waiting = self.others.entry(node.seq).or_insert_with(|| {
                    self.heap.push(node.seq);
                    fresh(node)
                });
                return &mut waiting.1;
            }
            if let Some(before) = self.first.take() {
                self.heap.push(before.0.seq);
                self.others.insert(before.0.seq, before);
            }
        }
        &mut self.first.get_or_insert_with(|| fresh(node)).1
    }

    /// The same where something has arrived, to look at.
    pub fn get(&self, node: &Node) -> Option<&Maybe> {
        let first = self.first.as_ref().filter(|(first, _)| first.seq == node.seq);
        first.or_else(|| self.others.get(&node.seq)).map(|(_, grads)| grads)
    }

    /// The node with the highest number.
    pub fn pop(&mut self) -> Option<Waiting> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let seq = self.heap.pop()?;
        self.others.remove(&seq)
    }
}

fn fresh(node: &Arc<Node>) -> Waiting {
    let mut grads = Maybe::new();
    node.out_specs.iter().for_each(|_| grads.push(None));
    (node.clone(), grads)
}
