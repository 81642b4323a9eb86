//! One tensor in equal parts, one on each worker.
//!
//! A parameter is flattened, padded with zeros to a multiple of the number of workers, and cut:
//! worker r has elements r·k to (r + 1)·k. Parameters that travel together are the columns of one
//! matrix with a row for each worker, so one collective moves all of them.

use pullback::{Group, Tensor, cat, no_grad};

/// How a parameter is cut.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ShardLayout {
    /// The whole shape.
    pub shape: Vec<usize>,
    /// How many elements each worker has.
    pub shard_len: usize,
}

impl ShardLayout {
    pub fn new(shape: &[usize], workers: usize) -> ShardLayout {
        let length: usize = shape.iter().product();
        ShardLayout { shape: shape.to_vec(), shard_len: length.div_ceil(workers) }
    }

    /// How many elements there are, without padding.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// The elements as a matrix with a row for each worker.
    pub fn rows(&self, x: &Tensor, workers: usize) -> Tensor {
        let flat = x.reshape([self.len()]);
        let padding = workers * self.shard_len - self.len();
        let flat = match padding {
            0 => flat,
            n => cat(&[&flat, &x.new_zeros([n]).cast(x.dtype())], 0),
        };
        flat.reshape([workers, self.shard_len])
    }

    /// The tensor whose [`ShardLayout::rows`] these are.
    pub fn whole(&self, rows: &Tensor) -> Tensor {
        let workers = rows.shape()[0];
        rows.reshape([workers * self.shard_len]).narrow(0, 0, self.len()).reshape(&self.shape)
    }

    /// This worker's row.
    pub fn own(&self, x: &Tensor, group: &Group) -> Tensor {
        no_grad(|| {
            let rows = self.rows(&x.detach(), group.size());
            rows.narrow(0, group.rank() as isize, 1).reshape([self.shard_len]).deep_clone()
        })
    }
}

/// The rows of several tensors side by side.
pub(super) fn side_by_side(tensors: &[(&ShardLayout, Tensor)], workers: usize) -> Tensor {
    let rows: Vec<Tensor> = tensors.iter().map(|(cut, x)| cut.rows(x, workers)).collect();
    cat(&rows.iter().collect::<Vec<_>>(), 1)
}

/// The columns of each of several tensors that lie side by side.
pub(super) fn columns<'a>(
    matrix: &Tensor,
    cuts: impl IntoIterator<Item = &'a ShardLayout>,
) -> Vec<Tensor> {
    let mut from = 0;
    let each = cuts.into_iter().map(|cut| {
        let columns = matrix.narrow(1, from, cut.shard_len);
        from += cut.shard_len as isize;
        columns
    });
    each.collect()
}
