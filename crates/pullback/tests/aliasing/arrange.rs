//! Views, movement, indexing.

use super::given::Given;
use pullback::*;

type G = Given;

fn v(g: &G) -> Tensor {
    g.f(&[4])
}

fn m(g: &G) -> Tensor {
    g.f(&[2, 3])
}

crate::rows! {
    "view": |g| m(g).view([6]), |g| m(g).t().view([6]);
    "reshape": |g| m(g).reshape([6]), |g| m(g).reshape([2, 3]), |g| m(g).t().reshape([6]), |g| g.f(&[0, 3]).reshape([3, 0]);
    "permute": |g| m(g).permute([1, 0]), |g| m(g).permute([0, 1]), |g| g.f(&[]).permute(&[] as &[isize]);
    "transpose": |g| m(g).transpose(0, 1), |g| m(g).transpose(0, 0), |g| g.f(&[]).transpose(0, 0);
    "t": |g| m(g).t(), |g| v(g).t(), |g| g.f(&[]).t();
    "move_axis": |g| m(g).move_axis(0, 1), |g| m(g).move_axis(0, 0), |g| g.f(&[]).move_axis(0, 0);
    "move_axes": |g| m(g).move_axes([0, 1], [1, 0]), |g| m(g).move_axes([0], [0]);
    "expand": |g| g.f(&[1, 2]).expand([3, 2]), |g| m(g).expand([2, 3]), |g| v(g).expand([1, 4]);
    "unsqueeze": |g| v(g).unsqueeze(0), |g| v(g).unsqueeze(-1);
    "squeeze": |g| g.f(&[1, 2]).squeeze(), |g| v(g).squeeze();
    "squeeze_axis": |g| g.f(&[1, 2]).squeeze_axis(0), |g| v(g).squeeze_axis(0), |g| g.f(&[]).squeeze_axis(0);
    "squeeze_axes": |g| g.f(&[1, 2]).squeeze_axes([0, 1]), |g| g.f(&[]).squeeze_axes([0]);
    "flatten": |g| m(g).flatten(0, 1), |g| v(g).flatten(0, 0), |g| m(g).t().flatten(0, 1);
    "unflatten": |g| v(g).unflatten(0, [2, 2]), |g| v(g).unflatten(0, [4]), |g| g.f(&[]).unflatten(0, [1, 1]);
    "flip": |g| v(g).flip(0), |g| v(g).flip(&[] as &[isize]);
    "select_at": |g| m(g).select_at(0, 1), |g| g.f(&[1]).select_at(0, 0);
    "narrow": |g| v(g).narrow(0, 1, 2), |g| v(g).narrow(0, 0, 4);
    "diagonal": |g| m(g).diagonal();
    "diagonal_of": |g| m(g).diagonal_of(1, 0, 1), |g| g.f(&[1, 1]).diagonal_of(0, 0, 1);
    "unfold": |g| v(g).unfold(0, 2, 1), |g| v(g).unfold(0, 1, 1), |g| v(g).unfold(0, 4, 1);
    "at": |g| v(g).at(1..3), |g| v(g).at(..), |g| m(g).at(0), |g| m(g).at((0, 1));
    "as_strided": |g| v(g).as_strided([2, 2], &[2, 1], 0), |g| v(g).as_strided([4], &[1], 0);
    "split": |g| v(g).split(2, 0), |g| v(g).split(4, 0), |g| v(g).split(9, 0);
    "split_sizes": |g| v(g).split_sizes(&[1, 3], 0), |g| v(g).split_sizes(&[4], 0);
    "chunk": |g| v(g).chunk(2, 0), |g| v(g).chunk(1, 0);
    "unbind": |g| m(g).unbind(0), |g| g.f(&[1]).unbind(0);
    "split_into": |g| v(g).split_into(3, 0), |g| v(g).split_into(1, 0);
    "split_at": |g| v(g).split_at(&[1, 2], 0), |g| v(g).split_at(&[], 0);
    "at_least": |g| v(g).at_least(2), |g| v(g).at_least(1), |g| g.f(&[]).at_least(3);
    "rot90": |g| m(g).rot90(1, 0, 1), |g| m(g).rot90(0, 0, 1), |g| m(g).rot90(2, 0, 1), |g| m(g).rot90(4, 0, 1);
    "broadcast_tensors": |g| broadcast_tensors(&[&v(g), &g.f(&[1])]), |g| broadcast_tensors(&[&v(g)]);
    "meshgrid": |g| meshgrid(&[&v(g), &g.f(&[2])]), |g| meshgrid(&[&v(g)]);
    "put": |g| v(g).put(|x| x.narrow(0, 0, 2), &g.f(&[2])), |g| v(g).put(|x| x.clone(), &v(g)), |g| v(g).put(|x| x.narrow(0, 0, 0), &g.f(&[0]));
    "as_strided_put": |g| v(g).as_strided_put(&g.f(&[2]), &[1], 0), |g| v(g).as_strided_put(&v(g), &[1], 0);
    "hstack": |g| hstack(&[&v(g)]), |g| hstack(&[&v(g), &v(g)]);
    "vstack": |g| vstack(&[&m(g)]), |g| vstack(&[&v(g)]);
    "dstack": |g| dstack(&[&g.f(&[2, 2, 2])]), |g| dstack(&[&v(g)]);
    "column_stack": |g| column_stack(&[&m(g)]), |g| column_stack(&[&v(g)]);
    "cat": |g| cat(&[&v(g)], 0), |g| cat(&[&v(g), &g.f(&[0])], 0);
    "stack": |g| stack(&[&v(g)], 0), |g| stack(&[&v(g), &v(g)], 1);
    "block_diag": |g| block_diag(&[&m(g)]), |g| block_diag(&[&m(g), &v(g)]);
    "cartesian_prod": |g| cartesian_prod(&[&v(g)]), |g| cartesian_prod(&[&v(g), &g.f(&[1])]);
    "combinations": |g| v(g).combinations(1, false), |g| v(g).combinations(4, false), |g| v(g).combinations(2, true);
    "repeat": |g| v(g).repeat([1]), |g| v(g).repeat([2]), |g| v(g).repeat([1, 1]), |g| v(g).repeat([0]), |g| g.f(&[]).repeat([]), |g| g.f(&[1]).repeat([2]);
    "tile": |g| v(g).tile([1]), |g| v(g).tile([]), |g| v(g).tile([2]);
    "repeat_each": |g| v(g).repeat_each(1, 0), |g| v(g).repeat_each(2, 0), |g| g.f(&[]).repeat_each(1, 0), |g| g.f(&[1]).repeat_each(2, 0);
    "repeat_by": |g| v(g).repeat_by(&g.ints(&[1]), 0), |g| v(g).repeat_by(&g.ints(&[1, 1, 1, 1]), 0);
    "roll": |g| v(g).roll(4, 0), |g| v(g).roll(0, 0), |g| v(g).roll(1, 0), |g| g.f(&[1]).roll(1, 0), |g| g.f(&[]).roll(1, 0), |g| g.f(&[0]).roll(1, 0);
    "diff": |g| v(g).diff(0, 0), |g| v(g).diff(1, 0), |g| g.f(&[0]).diff(1, 0), |g| v(g).diff(9, 0), |g| g.f(&[1]).diff(1, 0);
    "pad": |g| v(g).pad([(0, 0)]), |g| v(g).pad([(1, 1)]);
    "pad_with": |g| v(g).pad_with([(0, 0)], 1.0), |g| v(g).pad_with([(1, 1)], 1.0);
    "pad_by": |g| v(g).pad_by([(0, 0)], PadMode::Circular), |g| v(g).pad_by([(1, 1)], PadMode::Reflect), |g| g.f(&[]).pad_by([], PadMode::Reflect);
    "pad_or_cut": |g| v(g).pad_or_cut([(0, 0)], PadMode::Reflect), |g| v(g).pad_or_cut([(-1, 0)], PadMode::Replicate);
    "pad_last": |g| v(g).pad_last([], PadFill::Constant(0.0)), |g| v(g).pad_last([(-1, 0)], PadFill::Constant(0.0)), |g| v(g).pad_last([(-1, 0)], PadFill::Constant(1.0)),
        |g| v(g).pad_last([(-1, 0)], PadFill::Mode(PadMode::Circular)), |g| v(g).pad_last([(-1, 0)], PadFill::Mode(PadMode::Reflect)), |g| v(g).pad_last([], PadFill::Mode(PadMode::Replicate));
    "im2col": |g| g.f(&[1, 1, 2, 2]).im2col([1, 1], [1, 1], [0, 0], [1, 1]), |g| g.f(&[1, 2, 2]).im2col([1, 1], [1, 1], [0, 0], [1, 1]), |g| g.f(&[1, 1, 2, 2]).im2col([2, 2], [1, 1], [0, 0], [1, 1]),
        |g| g.f(&[1, 1, 3, 3]).im2col([2, 2], [1, 1], [0, 0], [1, 1]);
    "col2im": |g| g.f(&[1, 1, 4]).col2im([2, 2], [1, 1], [1, 1], [0, 0], [1, 1]), |g| g.f(&[1, 4, 1]).col2im([2, 2], [2, 2], [1, 1], [0, 0], [1, 1]);
    "pixel_shuffle": |g| g.f(&[1, 4, 2, 2]).pixel_shuffle(2), |g| g.f(&[1, 4, 2, 2]).pixel_shuffle(1), |g| g.f(&[1, 4, 1, 1]).pixel_shuffle(2);
    "pixel_unshuffle": |g| g.f(&[1, 1, 4, 4]).pixel_unshuffle(2), |g| g.f(&[1, 1, 4, 4]).pixel_unshuffle(1), |g| g.f(&[1, 1, 2, 2]).pixel_unshuffle(2);
    "channel_shuffle": |g| g.f(&[1, 4, 2]).channel_shuffle(2), |g| g.f(&[1, 4, 2]).channel_shuffle(1), |g| g.f(&[1, 4, 2]).channel_shuffle(4);
    "diag": |g| v(g).diag(0), |g| m(g).diag(0), |g| m(g).diag(1);
    "diag_embed": |g| v(g).diag_embed(0, -2, -1), |g| g.f(&[1]).diag_embed(0, 0, 1), |g| g.f(&[]).diag_embed(0, 0, 1);
    "tril": |g| m(g).tril(0), |g| m(g).tril(9);
    "triu": |g| m(g).triu(0), |g| m(g).triu(-9);
    "tril_indices": |_| Tensor::tril_indices(2, 2, 0);
    "triu_indices": |_| Tensor::triu_indices(2, 2, 0);
    "gather": |g| v(g).gather(0, &g.ints(&[0, 1, 2, 3]));
    "index_select": |g| v(g).index_select(0, &g.ints(&[0, 1, 2, 3])), |g| g.f(&[1]).index_select(0, &g.ints(&[0]));
    "scatter": |g| v(g).scatter(0, &g.ints(&[0, 1]), &g.f(&[2])), |g| v(g).scatter(0, &g.ints(&[]), &g.f(&[0]));
    "scatter_add": |g| v(g).scatter_add(0, &g.ints(&[0, 1]), &g.f(&[2])), |g| v(g).scatter_add(0, &g.ints(&[]), &g.f(&[0]));
    "scatter_mul": |g| v(g).scatter_mul(0, &g.ints(&[0, 1]), &g.f(&[2])), |g| v(g).scatter_mul(0, &g.ints(&[]), &g.f(&[0])), |g| g.f(&[1]).scatter_mul(0, &g.ints(&[0]), &g.f(&[1]));
    "scatter_max": |g| v(g).scatter_max(0, &g.ints(&[0, 1]), &g.f(&[2])), |g| v(g).scatter_max(0, &g.ints(&[]), &g.f(&[0]));
    "scatter_min": |g| v(g).scatter_min(0, &g.ints(&[0, 1]), &g.f(&[2])), |g| v(g).scatter_min(0, &g.ints(&[]), &g.f(&[0]));
    "index_add": |g| v(g).index_add(0, &g.ints(&[0, 1]), &g.f(&[2])), |g| v(g).index_add(0, &g.ints(&[]), &g.f(&[0]));
    "index_copy": |g| v(g).index_copy(0, &g.ints(&[0, 1]), &g.f(&[2])), |g| v(g).index_copy(0, &g.ints(&[0, 1, 2, 3]), &v(g));
    "index_fill": |g| v(g).index_fill(0, &g.ints(&[0, 1]), 1.0), |g| v(g).index_fill(0, &g.ints(&[]), 1.0);
    "one_hot": |g| g.ints(&[0, 1]).one_hot(2, DType::I64);
    "take": |g| v(g).take(&g.ints(&[0, 1, 2, 3]));
    "take_along": |g| v(g).take_along(&g.ints(&[0, 1, 2, 3]), 0);
    "masked_select": |g| v(g).masked_select(&g.b(&[4]));
    "topk": |g| v(g).topk(4, 0, true), |g| g.f(&[1]).topk(1, 0, true), |g| g.f(&[]).topk(1, 0, true);
    "kthvalue": |g| v(g).kthvalue(1, 0), |g| g.f(&[1]).kthvalue(1, 0), |g| g.f(&[]).kthvalue(1, 0);
    "median": |g| v(g).median(0), |g| g.f(&[1]).median(0), |g| g.f(&[]).median(0);
    "index_get": |g| v(g).index_get(&[Some(&g.ints(&[0, 1]))]), |g| m(g).index_get(&[None, Some(&g.ints(&[0, 1, 2]))]);
    "index_put": |g| v(g).index_put(&[Some(&g.ints(&[0, 1]))], &g.f(&[2]), false), |g| v(g).index_put(&[Some(&g.ints(&[]))], &g.f(&[0]), true);
    "put_flat": |g| v(g).put_flat(&g.ints(&[0]), &g.f(&[1]), false), |g| v(g).put_flat(&g.ints(&[]), &g.f(&[0]), false);
    "masked_scatter": |g| v(g).masked_scatter(&g.b(&[4]), &v(g)), |g| v(g).masked_scatter(&g.b(&[4]).logical_not(), &v(g));
    "scatter_reduce": |g| v(g).scatter_reduce(0, &g.ints(&[0]), &g.f(&[1]), ScatterReduction::Sum, true), |g| v(g).scatter_reduce(0, &g.ints(&[]), &g.f(&[0]), ScatterReduction::Prod, true), |g| v(g).scatter_reduce(0, &g.ints(&[]), &g.f(&[0]), ScatterReduction::Mean, false);
    "index_reduce": |g| v(g).index_reduce(0, &g.ints(&[0]), &g.f(&[1]), ScatterReduction::Sum, true), |g| v(g).index_reduce(0, &g.ints(&[]), &g.f(&[0]), ScatterReduction::Max, true);
    "segment_reduce": |g| v(g).segment_reduce(ScatterReduction::Sum, &g.ints(&[1, 1, 1, 1]), 0, None), |g| v(g).segment_reduce(ScatterReduction::Max, &g.ints(&[1, 1, 1, 1]), 0, None), |g| v(g).segment_reduce(ScatterReduction::Prod, &g.ints(&[4]), 0, None);
    "searchsorted": |g| v(g).sort(0, false).0.searchsorted(&v(g), false);
    "bucketize": |g| v(g).bucketize(&g.f(&[1]), false);
    "unique": |g| v(g).unique(), |g| g.f(&[0]).unique(), |g| g.f(&[1]).unique();
    "unique_over": |g| m(g).unique_over(0), |g| g.f(&[0]).unique_over(0), |g| g.f(&[1]).unique_over(0);
    "unique_consecutive": |g| v(g).unique_consecutive(), |g| g.f(&[0]).unique_consecutive();
    "unique_consecutive_over": |g| v(g).unique_consecutive_over(0), |g| g.f(&[0]).unique_consecutive_over(0);
    "nonzero": |g| v(g).nonzero();
    "unravel_index": |g| g.ints(&[0, 1]).unravel_index(&[4]), |g| g.ints(&[0, 1]).unravel_index(&[2, 2]);
    "sort": |g| v(g).sort(0, false), |g| g.f(&[1]).sort(0, false), |g| g.f(&[]).sort(0, false);
    "argsort": |g| v(g).argsort(0, false), |g| g.f(&[]).argsort(0, false);
    "isotonic": |g| v(g).isotonic(0), |g| g.f(&[1]).isotonic(0), |g| g.f(&[0]).isotonic(0);
    "soft_sort": |g| v(g).soft_sort(0, false, 0.1), |g| g.f(&[1]).soft_sort(0, false, 0.1);
    "soft_rank": |g| v(g).soft_rank(0, 0.1), |g| g.f(&[1]).soft_rank(0, 0.1);
    "soft_argmax": |g| v(g).soft_argmax(0, 0.1), |g| g.f(&[1]).soft_argmax(0, 0.1);
    "Embedding::of": |g| Embedding::new().of(&m(g), &g.ints(&[0, 1])), |g| Embedding::new().max_norm(9.0, 2.0).of(&m(g), &g.ints(&[0, 1]));
    "EmbeddingBag::of": |g| EmbeddingBag::new(BagMode::Sum).of(&m(g), &g.ints(&[0, 1]).reshape([2, 1]));
}
