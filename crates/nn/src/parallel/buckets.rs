//! Which gradients travel together.

use pullback::{DType, Device, Tensor};

/// Collects gradients in the order in which they become ready, and says when enough of one dtype
/// are there to be sent.
///
/// The first bucket is smaller: nothing is sent before it is full, and where the network is slower
/// than backward, that time is lost.
pub(super) struct BucketFiller {
    limit: usize,
    is_first_sent: bool,
    open: Vec<OpenBucket>,
}

/// The first bucket is this part of the others.
const FIRST: usize = 8;

struct OpenBucket {
    kind: (DType, Device),
    bytes: usize,
    members: Vec<usize>,
}

impl BucketFiller {
    /// Buckets of about `limit` bytes: the gradient that reaches it closes its bucket.
    pub fn new(limit: usize) -> BucketFiller {
        BucketFiller { limit, is_first_sent: false, open: Vec::new() }
    }

    /// Adds the gradient of parameter number `i`; gives the bucket that it filled.
    pub fn add(&mut self, i: usize, x: &Tensor) -> Option<Vec<usize>> {
        let kind = (x.dtype(), x.device());
        let at = self.open.iter().position(|open| open.kind == kind).unwrap_or_else(|| {
            self.open.push(OpenBucket { kind, bytes: 0, members: Vec::new() });
            self.open.len() - 1
        });
        let open = &mut self.open[at];
        open.members.push(i);
        open.bytes += x.spec().bytes();
        let limit = if self.is_first_sent { self.limit } else { self.limit / FIRST };
        let full = open.bytes >= limit;
        self.is_first_sent |= full;
        full.then(|| self.open.remove(at).members)
    }

    /// The buckets that are not full.
    pub fn remaining(&mut self) -> impl Iterator<Item = Vec<usize>> {
        std::mem::take(&mut self.open).into_iter().map(|open| open.members)
    }
}

/// The buckets of parameters that become ready in this order.
pub(super) fn layout(
    order: impl IntoIterator<Item = usize>,
    parameters: &[(String, Tensor)],
    limit: usize,
) -> Vec<Vec<usize>> {
    let mut filling = BucketFiller::new(limit);
    let mut buckets: Vec<Vec<usize>> =
        order.into_iter().filter_map(|i| filling.add(i, &parameters[i].1)).collect();
    buckets.extend(filling.remaining());
    buckets
}
