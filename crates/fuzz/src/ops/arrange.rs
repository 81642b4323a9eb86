//! Views, and elements in another order.

use super::{EXACT, OpRow, SOMETIMES, VIEW, fit, lines, rows, table};
use pullback::{PadFill, PadMode, Tensor, block_diag, cat, hstack, meshgrid, stack, vstack};

/// Views: writing to one changes the tensor behind it.
#[rustfmt::skip]
pub const VIEWS: &[OpRow] = rows! {
    flat(x: Float) EXACT | VIEW, |_d| x.reshape([x.len()]);
    column(x: Float) EXACT | VIEW, |_d| x.reshape([x.len(), 1]);
    permute(x: Float) EXACT | VIEW, |d| { let r = x.rank() as isize; let k = d.below(x.rank()) as isize; x.permute((0..r).map(|i| (i + k) % r).collect::<Vec<_>>()) };
    transpose(x: Float) EXACT | VIEW, |d| { let x = lines(x); x.transpose(d.axis(&x), d.axis(&x)) };
    t(x: Float) EXACT | VIEW, |_d| table(x).t();
    move_axis(x: Float) EXACT | VIEW, |d| { let x = lines(x); x.move_axis(d.axis(&x), d.axis(&x)) };
    expand(x: Float) EXACT | VIEW, |d| { let n = d.from_to(1, 2); x.expand([&[n], x.shape()].concat()) };
    unsqueeze(x: Float) EXACT | VIEW, |d| x.unsqueeze(d.below(x.rank() + 1) as isize);
    squeeze(x: Float) EXACT | VIEW, |_d| x.squeeze();
    flatten(x: Float) EXACT | VIEW, |_d| { let x = table(x); x.flatten(0, 1) };
    unflatten(x: Float) EXACT | VIEW, |d| { let x = lines(x); x.unflatten(d.axis(&x), [1, -1]) };
    flip(x: Float) EXACT | VIEW, |d| { let x = lines(x); x.flip(d.axis(&x)) };
    select_at(x: Float) EXACT | VIEW, |d| { let x = lines(x); let axis = d.axis(&x); x.select_at(axis, d.below(x.shape()[axis as usize]) as isize) };
    narrow(x: Float) EXACT | VIEW, |d| { let x = lines(x); let axis = d.axis(&x); let n = x.shape()[axis as usize]; let from = d.below(n); x.narrow(axis, from as isize, d.below(n - from + 1)) };
    every_other(x: Float) EXACT | VIEW, |d| { let x = lines(x); x.unfold(d.axis(&x), 1, 2) };
    diagonal(x: Float) EXACT | VIEW, |_d| table(x).diagonal();
    diagonal_of(x: Float) EXACT | VIEW, |d| table(x).diagonal_of(d.pick(&[0, 1, -1]), 0, 1);
    unfold(x: Float) EXACT | VIEW, |d| { let x = lines(x); let axis = d.axis(&x); x.unfold(axis, d.from_to(1, x.shape()[axis as usize]), d.from_to(1, 2)) };
    split_half(x: Float) EXACT | VIEW, |d| { let x = lines(x); let axis = d.axis(&x); x.chunk(2, axis) };
    at_rows(x: Float) EXACT | VIEW, |_d| { let x = lines(x); x.at(1..) };
    rot90(x: Float) EXACT | VIEW, |d| table(x).rot90(d.from_to(0, 3) as isize, 0, 1);
    as_strided(x: Float) EXACT | VIEW, |_d| { let x = fit(x, &[4]); x.as_strided([2, 2], &[1, 2], 0) };
};

/// The same elements, elsewhere.
#[rustfmt::skip]
pub const ROWS: &[OpRow] = rows! {
    cat(a: Float, b: Float) EXACT, |d| { let a = lines(a); cat(&[&a, &fit(b, a.shape())], d.axis(&a)) };
    cat_flat(a: Float, b: Float) EXACT, |_d| cat(&[&a.reshape([a.len()]), &b.reshape([b.len()])], 0);
    stack(a: Float, b: Float) EXACT, |d| stack(&[a, &fit(b, a.shape())], d.below(a.rank() + 1) as isize);
    hstack(a: Float, b: Float) EXACT, |_d| hstack(&[a, &fit(b, a.shape())]);
    vstack(a: Float, b: Float) EXACT, |_d| vstack(&[a, &fit(b, a.shape())]);
    block_diag(a: Float, b: Float) EXACT, |_d| block_diag(&[&fit(a, &[2, 2]), &fit(b, &[1, 2])]);
    meshgrid(a: Float, b: Float) EXACT | VIEW, |_d| meshgrid(&[&fit(a, &[2]), &fit(b, &[3])]);
    cartesian(a: Float, b: Float) EXACT, |_d| pullback::cartesian_prod(&[&fit(a, &[2]), &fit(b, &[3])]);
    combinations(a: Float) EXACT, |d| fit(a, &[3]).combinations(2, d.flag());
    pad(x: Float) EXACT, |d| { let x = lines(x); let mut p = vec![(0, 0); x.rank()]; p[0] = (d.below(2), d.below(3)); x.pad(&p) };
    pad_with(x: Float) EXACT, |d| { let x = lines(x); let mut p = vec![(0, 0); x.rank()]; p[x.rank() - 1] = (d.below(2), d.below(2)); x.pad_with(&p, d.pick(&[0.5, -1.0])) };
    pad_by(x: Float) EXACT, |d| fit(x, &[2, 3]).pad_by([(0, 1), (d.below(3), 1)], d.pick(&[PadMode::Reflect, PadMode::Replicate, PadMode::Circular]));
    pad_or_cut(x: Float) EXACT, |d| fit(x, &[2, 3]).pad_or_cut([(0, 0), (-1, d.below(2) as isize)], PadMode::Replicate);
    pad_last(x: Float) EXACT, |d| { let x = lines(x); x.pad_last([(1, d.below(2) as isize)], PadFill::Constant(0.5)) };
    repeat(x: Float) EXACT | SOMETIMES, |d| { let x = lines(x); let mut times = vec![1; x.rank()]; times[0] = d.from_to(1, 2); x.repeat(&times) };
    repeat_each(x: Float) EXACT | SOMETIMES, |d| { let x = lines(x); x.repeat_each(d.from_to(1, 2), d.axis(&x)) };
    tile(x: Float) EXACT | SOMETIMES, |d| x.tile([d.from_to(1, 2)]);
    roll(x: Float) EXACT | SOMETIMES, |d| { let x = lines(x); x.roll(d.from_to(0, 3) as isize - 1, d.axis(&x)) };
    diff(x: Float) EXACT | SOMETIMES, |d| { let x = lines(x); x.diff(d.from_to(0, 2), d.axis(&x)) };
    tril(x: Float) EXACT, |d| table(x).tril(d.pick(&[0, 1, -1]));
    triu(x: Float) EXACT, |d| table(x).triu(d.pick(&[0, 1, -1]));
    diag_embed(x: Float) EXACT, |d| { let x = lines(x); x.diag_embed(d.pick(&[0, 1, -1]), -2, -1) };
    put(x: Float, y: Float) EXACT, |d| { let x = lines(x); let (axis, part) = (d.axis(&x), d.flag()); let n = x.shape()[axis as usize]; let view = |x: &Tensor| if part { x.narrow(axis, 0, n / 2) } else { x.flip(axis) }; let shape = view(&x).shape().to_vec(); x.put(view, &fit(y, &shape)) };
    as_strided_put(x: Float, y: Float) EXACT, |_d| fit(x, &[4]).as_strided_put(&fit(y, &[2]), &[2], 1);
    im2col(x: Float) EXACT, |d| fit(x, &[1, 1, 3, 3]).im2col([2, 2], [1, 1], [d.below(2), 0], [1, d.from_to(1, 2)]);
    col2im(x: Float) EXACT, |_d| fit(x, &[1, 4, 4]).col2im([3, 3], [2, 2], [1, 1], [0, 0], [1, 1]);
    pixel_shuffle(x: Float) EXACT, |_d| fit(x, &[1, 4, 1, 2]).pixel_shuffle(2);
    pixel_unshuffle(x: Float) EXACT, |_d| fit(x, &[1, 1, 2, 4]).pixel_unshuffle(2);
    channel_shuffle(x: Float) EXACT, |_d| fit(x, &[1, 4, 2]).channel_shuffle(2);
    trace(x: Float) EXACT, |_d| fit(x, &[2, 2]).trace();
    kron(a: Float, b: Float) EXACT, |_d| fit(a, &[2, 1]).kron(&fit(b, &[1, 3]));
    cross(a: Float, b: Float) EXACT, |d| fit(a, &[2, 3]).cross(&fit(b, &[2, 3]), d.pick(&[1, -1]));
    zeros_like(x: Float) EXACT, |_d| x.zeros_like();
    full_like(x: Float) EXACT, |d| x.full_like(d.pick(&[0.5, 1.0]));
};
