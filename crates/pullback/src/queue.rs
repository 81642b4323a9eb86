//! Nodes that wait for a backward pass, the one with the highest number first.

use crate::backend::Pooled;
use crate::rule::Derivatives;
use crate::tape::Node;
use rustc_hash::FxHashMap;
use std::collections::BinaryHeap;
use std::collections::hash_map::Entry;

/// A node, and what has arrived for its results so far.
pub(crate) type Waiting<'g> = (&'g Pooled<Node>, Derivatives);

/// In a chain of ops one node waits at a time: it is kept outside the heap and the map, which are
/// for graphs that branch. Nodes are borrowed from the graph `'g`: counting each up and down again
/// would be two atomic exchanges.
#[derive(Default)]
pub(crate) struct Queue<'g> {
    /// The node whose number is higher than all in the heap, if there is one.
    first: Option<Waiting<'g>>,
    heap: BinaryHeap<u64>,
    others: FxHashMap<u64, Waiting<'g>>,
}

impl<'g> Queue<'g> {
    /// What has arrived for the results of a node, to which more can be added.
    pub fn grads(&mut self, node: &'g Pooled<Node>) -> &mut Derivatives {
        let first = self.first.as_ref().map(|(first, _)| first.seq);
        if first != Some(node.seq) {
            let next = self.heap.peek().copied().max(first);
            if next.is_some_and(|next| next >= node.seq) {
                return match self.others.entry(node.seq) {
                    Entry::Occupied(waiting) => &mut waiting.into_mut().1,
                    Entry::Vacant(place) => {
                        self.heap.push(node.seq);
                        with_space(place.insert((node, Derivatives::new())))
                    }
                };
            }
            if let Some(before) = self.first.take() {
                self.heap.push(before.0.seq);
                self.others.insert(before.0.seq, before);
            }
        }
        match &mut self.first {
            Some(first) => &mut first.1,
            // Made where it stays.
            empty => with_space(empty.insert((node, Derivatives::new()))),
        }
    }

    /// The same by reference, where something has arrived.
    pub fn get(&self, node: &Node) -> Option<&Derivatives> {
        let first = self.first.as_ref().filter(|(first, _)| first.seq == node.seq);
        first.or_else(|| self.others.get(&node.seq)).map(|(_, grads)| grads)
    }

    /// The node with the highest number.
    pub fn pop(&mut self) -> Option<Waiting<'g>> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let seq = self.heap.pop()?;
        self.others.remove(&seq)
    }
}

/// The gradients of the results of a node: none yet.
fn with_space<'a>((node, grads): &'a mut Waiting) -> &'a mut Derivatives {
    node.out_specs.iter().for_each(|_| grads.push(None));
    grads
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tensor;
    use crate::tape::History;

    #[test]
    fn the_highest_number_comes_first_and_each_node_once() {
        let x = Tensor::from(1.0).requires_grad();
        let node = |_| match (&x * 2.0).history() {
            History::Node(node, _) => node,
            _ => panic!("the product was not recorded"),
        };
        let nodes: Vec<Pooled<Node>> = (0..7).map(node).collect();
        let descending: Vec<u64> = nodes.iter().rev().map(|n| n.seq).collect();
        for order in [[0, 1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1, 0], [3, 0, 6, 2, 5, 1, 4]] {
            let mut queue = Queue::default();
            assert!(queue.get(&nodes[0]).is_none());
            for i in order {
                queue.grads(&nodes[i])[0] = Some(x.clone());
            }
            assert!(order.iter().all(|&i| queue.grads(&nodes[i])[0].is_some()));
            assert!(nodes.iter().all(|n| queue.get(n).is_some_and(|g| g[0].is_some())));
            let popped = std::iter::from_fn(|| queue.pop()).map(|(n, _)| n.seq);
            assert_eq!(popped.collect::<Vec<_>>(), descending);
        }
        // A node that is added between two steps replaces it.
        let mut queue = Queue::default();
        [1, 4].iter().for_each(|&i| _ = queue.grads(&nodes[i]));
        let mut popped = Vec::new();
        while let Some((node, _)) = queue.pop() {
            popped.push(node.seq);
            if node.seq == nodes[4].seq {
                [0, 3, 2].iter().for_each(|&i| _ = queue.grads(&nodes[i]));
            }
        }
        assert_eq!(popped, descending[2..]);
    }
}
