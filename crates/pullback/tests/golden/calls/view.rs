//! Views, padding and concatenation.

use super::one;
use crate::args::{Arg, Args};
use pullback::{
    Index, PadFill, PadMode, Tensor, block_diag, broadcast_tensors, cartesian_prod, cat,
    column_stack, dstack, hstack, meshgrid, stack, vstack,
};

pub fn call(name: &str, a: &Args) -> Option<Vec<Tensor>> {
    let x = || a.x();
    let dim = |i: usize, default: isize| a.int_or(i, "dim|axis", default);
    let each = |f: fn(&Tensor) -> Tensor| Some(a.every_tensor().iter().map(f).collect());
    match name {
        "reshape" | "view" | "_unsafe_view" | "unsafe_view" | "view_copy" => {
            one(x().reshape(a.rest(1, "shape|size")))
        }
        "reshape_as" | "view_as" => one(x().reshape(a.tensor(1, "other").shape())),
        "expand" | "broadcast_to" | "expand_copy" => one(x().expand(a.rest(1, "size|shape"))),
        "expand_as" => one(x().expand(a.tensor(1, "other").shape())),
        "broadcast_tensors" => {
            Some(broadcast_tensors(&a.every_tensor().iter().collect::<Vec<_>>()))
        }
        "flatten" => one(x().flatten(a.int_or(1, "start_dim", 0), a.int_or(2, "end_dim", -1))),
        "ravel" => one(x().reshape([x().len()])),
        "unflatten" => one(x().unflatten(a.int(1, "dim"), a.ints(2, "sizes"))),
        "permute" | "permute_copy" => one(x().permute(a.rest(1, "dims"))),
        "transpose" | "swapaxes" | "swapdims" | "transpose_copy" => {
            one(x().transpose(a.int(1, "dim0|axis0"), a.int(2, "dim1|axis1")))
        }
        "t" | "T" | "t_copy" => one(if x().rank() < 2 {
            x()
        } else {
            x().permute((0..x().rank()).rev().collect::<Vec<_>>())
        }),
        "mT" | "mH" | "H" | "adjoint" => one(x().t()),
        "movedim" | "moveaxis" => one(x().move_axes(a.ints(1, "source"), a.ints(2, "destination"))),
        "squeeze" | "squeeze_copy" => one(match a.maybe_ints(1, "dim") {
            Some(axes) => x().squeeze_axes(axes),
            None => x().squeeze(),
        }),
        "unsqueeze" | "unsqueeze_copy" => one(x().unsqueeze(a.int(1, "dim"))),
        "atleast_1d" => each(|x| x.at_least(1)),
        "atleast_2d" => each(|x| x.at_least(2)),
        "atleast_3d" => each(|x| x.at_least(3)),
        "flip" => one(x().flip(a.rest(1, "dims"))),
        "fliplr" => one(x().flip(1)),
        "flipud" => one(x().flip(0)),
        "rot90" => {
            let (k, dims) = (a.int_or(1, "k", 1), a.maybe_ints(2, "dims").unwrap_or(vec![0, 1]));
            one(x().rot90(k, dims[0], dims[1]))
        }
        "narrow" | "narrow_copy" => {
            one(x().narrow(a.int(1, "dim"), a.int(2, "start"), a.int(3, "length") as usize))
        }
        "select" => one(x().select_at(a.int(1, "dim"), a.int(2, "index"))),
        "slice" => {
            let range = Index::Range {
                start: a.get(2, "start").map(Arg::int),
                stop: a.get(3, "end").map(Arg::int),
                step: a.int_or(4, "step", 1),
            };
            one(x().at(&along(&x(), dim(1, 0), range)[..]))
        }
        "select_scatter" => {
            one(x().put(|v| v.select_at(a.int(2, "dim"), a.int(3, "index")), &a.tensor(1, "src")))
        }
        "slice_scatter" => {
            let range = Index::Range {
                start: a.get(3, "start").map(Arg::int),
                stop: a.get(4, "end").map(Arg::int),
                step: a.int_or(5, "step", 1),
            };
            one(x().put(|v| v.at(&along(v, dim(2, 0), range)[..]), &a.tensor(1, "src")))
        }
        "diagonal_scatter" => {
            let (offset, p, q) =
                (a.int_or(2, "offset", 0), a.int_or(3, "dim1", 0), a.int_or(4, "dim2", 1));
            one(x().put(|v| v.diagonal_of(offset, p, q), &a.tensor(1, "src")))
        }
        "diagonal" | "diagonal_copy" => one(x().diagonal_of(
            a.int_or(1, "offset", 0),
            a.int_or(2, "dim1", 0),
            a.int_or(3, "dim2", 1),
        )),
        "linalg.diagonal" => one(x().diagonal_of(
            a.int_or(1, "offset", 0),
            a.int_or(2, "dim1", -2),
            a.int_or(3, "dim2", -1),
        )),
        "diag_embed" => one(x().diag_embed(
            a.int_or(1, "offset", 0),
            a.int_or(2, "dim1", -2),
            a.int_or(3, "dim2", -1),
        )),
        "diag" => one(x().diag(a.int_or(1, "diagonal", 0))),
        "diagflat" => one(x().reshape([x().len()]).diag(a.int_or(1, "offset", 0))),
        "tril" => one(x().tril(a.int_or(1, "diagonal", 0))),
        "triu" => one(x().triu(a.int_or(1, "diagonal", 0))),
        "unfold" | "unfold_copy" => one(x().unfold(
            a.int(1, "dimension"),
            a.int(2, "size") as usize,
            a.int(3, "step") as usize,
        )),
        "unbind" | "unbind_copy" => Some(x().unbind(dim(1, 0))),
        "chunk" | "unsafe_chunk" => Some(x().chunk(a.int(1, "chunks") as usize, dim(2, 0))),
        "split" | "split_with_sizes" | "unsafe_split" | "split_with_sizes_copy" => {
            Some(match a.get(1, "split_size_or_sections|split_size|split_sizes")? {
                Arg::List(_) => x().split_sizes(
                    &lengths(&a.ints(1, "split_size_or_sections|split_size|split_sizes")),
                    dim(2, 0),
                ),
                size => x().split(size.int() as usize, dim(2, 0)),
            })
        }
        "tensor_split" => Some(parts(
            &x(),
            a.get(1, "indices_or_sections|sections|indices|tensor_indices_or_sections")?,
            dim(2, 0),
        )),
        "hsplit" => Some(parts(
            &x(),
            a.get(1, "indices_or_sections|sections|indices")?,
            if x().rank() == 1 { 0 } else { 1 },
        )),
        "vsplit" => Some(parts(&x(), a.get(1, "indices_or_sections|sections|indices")?, 0)),
        "dsplit" => Some(parts(&x(), a.get(1, "indices_or_sections|sections|indices")?, 2)),
        "roll" => {
            let shifts = a.ints(1, "shifts");
            one(match a.maybe_ints(2, "dims").filter(|d| !d.is_empty()) {
                Some(dims) => shifts.iter().zip(dims).fold(x(), |x, (&by, axis)| x.roll(by, axis)),
                None => x().reshape([x().len()]).roll(shifts[0], 0).reshape(x().shape()),
            })
        }
        "repeat" => one(x().repeat(lengths(&a.rest(1, "repeats|sizes")))),
        "tile" => one(x().tile(lengths(&a.rest(1, "dims")))),
        "repeat_interleave" => {
            let axis = a.maybe_ints(2, "dim").map(|d| d[0]);
            let (x, axis) = axis.map_or((x().reshape([x().len()]), 0), |axis| (x(), axis));
            one(match a.get(1, "repeats")? {
                Arg::Tensor(times) => x.repeat_by(times, axis),
                times => x.repeat_each(times.int() as usize, axis),
            })
        }

        "cat" | "concat" | "concatenate" => {
            // PyTorch leaves out empty vectors, whatever the others are.
            let list = a.tensors(0, "tensors");
            let wide = list.iter().any(|x| x.rank() > 1);
            let kept: Vec<&Tensor> = list.iter().filter(|x| !(wide && x.shape() == [0])).collect();
            one(cat(&kept, dim(1, 0)))
        }
        "stack" => one(stack(&a.tensors(0, "tensors").iter().collect::<Vec<_>>(), dim(1, 0))),
        "hstack" => one(hstack(&a.every_tensor().iter().collect::<Vec<_>>())),
        "vstack" | "row_stack" => one(vstack(&a.every_tensor().iter().collect::<Vec<_>>())),
        "dstack" => one(dstack(&a.every_tensor().iter().collect::<Vec<_>>())),
        "column_stack" => one(column_stack(&a.every_tensor().iter().collect::<Vec<_>>())),
        "block_diag" => one(block_diag(&a.every_tensor().iter().collect::<Vec<_>>())),
        "cartesian_prod" => one(cartesian_prod(&a.every_tensor().iter().collect::<Vec<_>>())),
        "combinations" => {
            one(x()
                .combinations(a.int_or(1, "r", 2) as usize, a.flag(2, "with_replacement", false)))
        }
        "sum_to_size" => one(x().sum_to_shape(a.rest(1, "size"))),
        "meshgrid" => {
            let list = a.every_tensor();
            let mut list: Vec<&Tensor> = list.iter().collect();
            let swap = a.text(usize::MAX, "indexing") == Some("xy") && list.len() > 1;
            if swap {
                list.swap(0, 1);
            }
            let mut grid = meshgrid(&list);
            if swap {
                grid.swap(0, 1);
            }
            Some(grid)
        }
        "nn.functional.pad" | "constant_pad_nd" => one(padded(&x(), a)?),
        "nn.functional.pixel_shuffle" => {
            one(x().pixel_shuffle(a.int(1, "upscale_factor") as usize))
        }
        "nn.functional.pixel_unshuffle" => {
            one(x().pixel_unshuffle(a.int(1, "downscale_factor") as usize))
        }
        _ => None,
    }
}

pub fn lengths(list: &[isize]) -> Vec<usize> {
    list.iter().map(|&n| n as usize).collect()
}

fn from_front(axis: isize, rank: usize) -> usize {
    axis.rem_euclid(rank.max(1) as isize) as usize
}

/// An index that takes a range of one axis.
fn along(x: &Tensor, axis: isize, range: Index) -> Vec<Index> {
    let whole = Index::Range { start: None, stop: None, step: 1 };
    let mut index = vec![whole; from_front(axis, x.rank())];
    index.push(range);
    index
}

/// Pieces by count (of nearly equal size) or at these places.
fn parts(x: &Tensor, how: &Arg, axis: isize) -> Vec<Tensor> {
    match how {
        Arg::Tensor(t) if t.rank() > 0 => {
            let places = t.to_vec::<i64>().into_iter().map(|i| i as isize).collect::<Vec<_>>();
            x.split_at(&places, axis)
        }
        Arg::List(_) => x.split_at(&how.ints(), axis),
        count => x.split_into(count.int() as usize, axis),
    }
}

/// Pads are listed from the last axis; negative ones cut.
fn padded(x: &Tensor, a: &Args) -> Option<Tensor> {
    let pads: Vec<(isize, isize)> = a.ints(1, "pad").chunks(2).map(|p| (p[0], p[1])).collect();
    let fill = match a.text(2, "mode").unwrap_or("constant") {
        "constant" => {
            let at = if a.text(2, "mode").is_some() { 3 } else { 2 };
            PadFill::Constant(a.float_or(at, "value", 0.0))
        }
        "reflect" => PadFill::Mode(PadMode::Reflect),
        "replicate" => PadFill::Mode(PadMode::Replicate),
        "circular" => PadFill::Mode(PadMode::Circular),
        _ => return None,
    };
    Some(x.pad_last(&pads, fill))
}
