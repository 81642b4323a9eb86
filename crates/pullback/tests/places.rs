//! Index tensors, masks and pieces: values against loops or against each other, derivatives of both
//! orders.

use pullback::check::check_grads;
use pullback::{
    DType, PadMode, ScatterReduction, Tensor, broadcast_tensors, cartesian_prod, catch, grad,
    masked,
};

fn cube() -> Tensor {
    Tensor::arange(0, 24).reshape([2, 3, 4])
}

/// Random numbers that are not near each other, so that finite differences meet no tie.
fn samples(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    let value = |i: usize| ((i * 7919 + 3) % (n * 13 + 1)) as f64 / n as f64 - 5.0;
    Tensor::from_vec((0..n).map(value).collect::<Vec<f64>>(), shape)
}

#[test]
fn index_tensors_on_any_axes() {
    let x = cube();
    let (i, j) = (Tensor::from([1i64, 0]), Tensor::from([[2i64], [-1]]));
    let value = |a: usize, b: usize, c: usize| (a * 12 + b * 4 + c) as i64;
    // Neighbours: the axes of the index take their place.
    let y = x.index_get(&[None, Some(&j)]);
    assert_eq!(y.shape(), [2, 2, 1, 4]);
    assert_eq!(y.at((1, 0, 0, 3)).item::<i64>(), value(1, 2, 3));
    // Not neighbours: they come first.
    let y = x.index_get(&[Some(&i), None, Some(&j)]);
    assert_eq!(y.shape(), [2, 2, 3]);
    let expected: Vec<i64> = [[(1, 2), (0, 2)], [(1, 3), (0, 3)]]
        .iter()
        .flatten()
        .flat_map(|&(a, c)| (0..3).map(move |b| value(a, b, c)))
        .collect();
    assert_eq!(y.to_vec::<i64>(), expected);
    // A mask over two axes is two index tensors.
    let mask = x.select_at(2, 0).remainder(8).eq(0);
    let y = x.index_get(&[Some(&mask), Some(&Tensor::from(1i64))]);
    let kept: Vec<i64> = (0..2)
        .flat_map(|a| (0..3).map(move |b| (a, b)))
        .filter(|&(a, b)| value(a, b, 0) % 8 == 0)
        .map(|(a, b)| value(a, b, 1))
        .collect();
    assert_eq!(y.to_vec::<i64>(), kept);
    // An empty index, and none.
    assert_eq!(x.index_get(&[&Tensor::zeros_with([0], DType::I64)]).shape(), [0, 3, 4]);
    assert_eq!(x.index_get(&[None::<&Tensor>; 3]).to_vec::<i64>(), x.to_vec::<i64>());
}

#[test]
fn what_is_put_is_what_is_got() {
    let x = samples(&[2, 3, 4]);
    let (i, j) = (Tensor::from([1i64, 0]), Tensor::from([2i64, -1]));
    for places in [[Some(&i), None, Some(&j)], [None, Some(&i), Some(&j)], [None, None, Some(&j)]] {
        let shape = x.index_get(&places).shape().to_vec();
        let values = samples(&shape) * 3.0;
        let y = x.index_put(&places, &values, false);
        assert_eq!(y.index_get(&places).to_vec::<f64>(), values.to_vec::<f64>());
        let kept = y.eq(&x).cast(DType::I64).sum().item::<i64>() as usize;
        assert_eq!(kept, x.len() - values.len());
        let both = |z: &Vec<Tensor>| {
            let set = z[0].index_put(&places, &z[1], false);
            (set.square(), z[0].index_put(&places, &z[1], true).square(), set.index_get(&places))
        };
        let both = |z: &Vec<Tensor>| {
            let (a, b, c) = both(z);
            vec![a, b, c]
        };
        check_grads(both, &vec![x.clone(), values], 2).unwrap();
    }
}

#[test]
fn twice_at_one_place() {
    let at = Tensor::from([1i64, 1]);
    let x = Tensor::from([1.0, 2.0]);
    let v = Tensor::from([5.0, 7.0]);
    assert_eq!(x.index_put(&[&at], &v, true).to_vec::<f64>(), [1.0, 14.0]);
    assert_eq!(x.index_put(&[&at], &v, false).to_vec::<f64>(), [1.0, 7.0]);
    let g = grad(|v: &Tensor| x.index_put(&[&at], v, false).sum())(&v);
    assert_eq!(g.to_vec::<f64>(), [0.0, 1.0]);
    assert_eq!(x.put_flat(&at, &v, true).to_vec::<f64>(), [1.0, 14.0]);
}

#[test]
fn an_index_is_checked_on_its_own_axis() {
    let x = cube();
    let text = catch(|| x.index_get(&[None, Some(&Tensor::from([3i64]))])).unwrap_err().to_string();
    assert!(text.contains("index 3 is out of range for axis 1"), "{text}");
    assert!(text.contains("places.rs"), "{text}");
    let text = catch(|| x.as_strided([5, 5], &[5, 1], 0)).unwrap_err().to_string();
    assert!(text.contains("reaches past the 24 elements"), "{text}");
}

#[test]
fn scattered_combinations_against_loops() {
    let base = samples(&[4]);
    let source = samples(&[6]) * 1.5 + 0.25;
    let index = [0usize, 2, 2, 0, 2, 3];
    let places = Tensor::from(index.map(|i| i as i64));
    for include in [true, false] {
        for how in [
            ScatterReduction::Sum,
            ScatterReduction::Mean,
            ScatterReduction::Prod,
            ScatterReduction::Max,
            ScatterReduction::Min,
        ] {
            let expected: Vec<f64> = base
                .to_vec::<f64>()
                .into_iter()
                .enumerate()
                .map(|(i, own)| {
                    let all = source.to_vec::<f64>();
                    let mut here: Vec<f64> =
                        (0..6).filter(|&k| index[k] == i).map(|k| all[k]).collect();
                    if include || here.is_empty() {
                        here.push(own);
                    }
                    match how {
                        ScatterReduction::Sum => here.iter().sum(),
                        ScatterReduction::Mean => here.iter().sum::<f64>() / here.len() as f64,
                        ScatterReduction::Prod => here.iter().product(),
                        ScatterReduction::Max => here.iter().copied().fold(f64::MIN, f64::max),
                        ScatterReduction::Min => here.iter().copied().fold(f64::MAX, f64::min),
                    }
                })
                .collect();
            let f = |z: &Vec<Tensor>| z[0].scatter_reduce(0, &places, &z[1], how, include);
            let g = |z: &Vec<Tensor>| z[0].index_reduce(-1, &places, &z[1], how, include);
            let z = vec![base.clone(), source.clone()];
            for y in [f(&z), g(&z)] {
                let near = y.is_close(&Tensor::from(expected.clone()), 1e-14, 0.0, false);
                assert!(near.all().item::<bool>(), "{how:?} {include}: {y} is not {expected:?}");
            }
            check_grads(f, &z, 2).unwrap();
        }
    }
    // Integers, rounded down; 0-d; empty.
    let y = Tensor::from([10i64, 3]).scatter_reduce(
        0,
        &Tensor::from([1i64, 1]),
        &Tensor::from([-4i64, 2]),
        ScatterReduction::Mean,
        false,
    );
    assert_eq!(y.to_vec::<i64>(), [10, -1]);
    let zero = Tensor::from([0i64]);
    let y =
        Tensor::from(2.0).index_reduce(0, &zero, &Tensor::from([5.0]), ScatterReduction::Max, true);
    assert_eq!((y.rank(), y.item::<f64>()), (0, 5.0));
}

#[test]
fn products_with_zeros_have_every_derivative() {
    let index = Tensor::from([[0i64, 1], [0, 1], [0, 0]]);
    let source = Tensor::from([[0.0, 2.0], [3.0, 0.0], [5.0, 0.0]]);
    let base = Tensor::from([[2.0, 0.0], [1.0, 4.0]]);
    let f = |z: &Vec<Tensor>| z[0].scatter_mul(0, &index, &z[1]);
    check_grads(f, &vec![base, source], 3).unwrap();
}

#[test]
fn strides_over_a_flat_tensor() {
    let x = samples(&[3, 4]);
    let y = x.as_strided([3, 2], &[1, 3], 2);
    let flat = x.to_vec::<f64>();
    let expected: Vec<f64> =
        (0..3).flat_map(|i| (0..2).map(move |j| 2 + i + 3 * j)).map(|k| flat[k]).collect();
    assert_eq!(y.to_vec::<f64>(), expected);
    check_grads(|x: &Tensor| x.as_strided([3, 2], &[1, 0], 2).square(), &x, 2).unwrap();
    let f = |z: &Vec<Tensor>| z[0].as_strided_put(&z[1], &[4, 2], 1).square();
    check_grads(f, &vec![x, samples(&[2, 2])], 2).unwrap();
}

#[test]
fn masks() {
    let x = samples(&[3, 4]);
    let mask = x.gt(-2.0);
    let source = samples(&[12]) + 100.0;
    let y = x.masked_scatter(&mask, &source);
    let mut next = source.to_vec::<f64>().into_iter();
    let expected: Vec<f64> = x
        .to_vec::<f64>()
        .into_iter()
        .map(|v| if v > -2.0 { next.next().unwrap() } else { v })
        .collect();
    assert_eq!(y.to_vec::<f64>(), expected);
    let f = |z: &Vec<Tensor>| z[0].masked_scatter(&mask, &z[1]).square();
    check_grads(f, &vec![x.clone(), source], 2).unwrap();

    // Each masked reduction of a line is the plain one of what the mask keeps.
    let line = samples(&[7]);
    let keep = Tensor::from([true, false, true, true, false, false, true]);
    let few = line.masked_select(&keep);
    let same = |a: Tensor, b: Tensor| {
        assert!(a.is_close(&b, 1e-13, 1e-15, false).all().item::<bool>(), "{a} is not {b}");
    };
    same(masked::sum(&line, &keep, 0), few.sum());
    same(masked::prod(&line, &keep, 0), few.prod());
    same(masked::max(&line, &keep, 0), few.max());
    same(masked::min(&line, &keep, 0), few.min());
    same(masked::mean(&line, &keep, 0), few.mean());
    same(masked::median(&line, &keep, 0), few.median(0).0);
    same(masked::var(&line, &keep, 0, 1.0), few.var());
    same(masked::std(&line, &keep, 0, 0.0), few.std_with(0, 0.0));
    same(masked::norm(&line, &keep, 3.0, 0), few.vector_norm(3.0, 0));
    same(masked::norm(&line, &keep, f64::NEG_INFINITY, 0), few.abs().min());
    same(masked::logsumexp(&line, &keep, 0), few.logsumexp());
    for (wide, narrow) in [
        (masked::softmax(&line, &keep, 0), few.softmax(0)),
        (masked::softmin(&line, &keep, 0), (-&few).softmax(0)),
        (masked::log_softmax(&line, &keep, 0), few.log_softmax(0)),
        (masked::cumsum(&line, &keep, 0), few.cumsum(0)),
        (masked::cumprod(&line, &keep, 0), few.cumprod(0)),
        (masked::normalize(&line, &keep, 2.0, 0, 1e-9), few.normalize(2.0, 0, 1e-9)),
    ] {
        same(wide.masked_select(&keep), narrow);
    }
    let place = masked::argmax(&line, &keep, 0).item::<i64>();
    assert_eq!(line.at(place).item::<f64>(), few.max().item::<f64>());
    let f = |x: &Tensor| {
        vec![
            masked::var(x, &keep, 0, 1.0),
            masked::std(x, &keep, 0, 1.0),
            masked::softmax(x, &keep, 0),
            masked::logaddexp(x, &keep, &(x * 2.0), &keep.logical_not()),
        ]
    };
    check_grads(f, &line, 2).unwrap();
    // Nothing left.
    let none = Tensor::from(false);
    assert_eq!(masked::sum(&line, &none, 0).item::<f64>(), 0.0);
    assert!(masked::mean(&line, &none, 0).item::<f64>().is_nan());
}

#[test]
fn pieces_come_together_again() {
    let x = samples(&[7, 3]);
    let sizes = |pieces: &[Tensor]| pieces.iter().map(|p| p.shape()[0]).collect::<Vec<_>>();
    assert_eq!(sizes(&x.split_into(3, 0)), [3, 2, 2]);
    assert_eq!(sizes(&x.split_into(9, 0)), [1, 1, 1, 1, 1, 1, 1, 0, 0]);
    assert_eq!(sizes(&x.split_at(&[2, 2, -1, 99], 0)), [2, 0, 4, 1, 0]);
    assert_eq!(sizes(&x.split_at(&[5, 1], 0)), [5, 0, 6]);
    for pieces in [x.split_into(3, 0), x.split_at(&[2, -1], 0)] {
        let whole = pullback::cat(&pieces.iter().collect::<Vec<_>>(), 0);
        assert_eq!(whole.to_vec::<f64>(), x.to_vec::<f64>());
    }
    check_grads(|x: &Tensor| x.split_at(&[2, 5], 0)[1].square(), &x, 2).unwrap();
}

#[test]
fn axes_moved_and_turned() {
    let x = cube();
    assert_eq!(x.move_axes([2, 0], [0, 1]).shape(), [4, 2, 3]);
    assert_eq!(x.move_axes([-1], [0]).shape(), x.move_axis(-1, 0).shape());
    assert_eq!(x.reshape([2, 1, 3, 1, 4]).squeeze_axes([1, -2]).shape(), [2, 3, 4]);
    assert_eq!(x.squeeze_axes([0, 1]).shape(), [2, 3, 4]);
    let turned = (0..4).fold(x.clone(), |x, _| x.rot90(1, 1, 2));
    assert_eq!(turned.to_vec::<i64>(), x.to_vec::<i64>());
    assert_eq!(x.rot90(-1, 0, 2).to_vec::<i64>(), x.rot90(3, 0, 2).to_vec::<i64>());
    assert_eq!(x.rot90(1, 0, 2).to_vec::<i64>(), x.rot90(-1, 2, 0).to_vec::<i64>());
    check_grads(|x: &Tensor| x.rot90(1, 0, 1).square(), &samples(&[2, 3]), 2).unwrap();
}

#[test]
fn choices() {
    let x = Tensor::from([1, 2, 3, 4]);
    let rows = |r, again| x.combinations(r, again).shape().to_vec();
    assert_eq!((rows(2, false), rows(2, true)), (vec![6, 2], vec![10, 2]));
    assert_eq!((rows(3, false), rows(5, false)), (vec![4, 3], vec![0, 5]));
    let p = cartesian_prod(&[&x, &Tensor::from([5, 6])]);
    assert_eq!(p.select_at(1, 0).to_vec::<i32>(), [1, 1, 2, 2, 3, 3, 4, 4]);
    let wide =
        broadcast_tensors(&[&Tensor::zeros([3, 1]), &Tensor::zeros([1, 2]), &Tensor::from(1.0)]);
    assert!(wide.iter().all(|x| x.shape() == [3, 2]));
    check_grads(|x: &Tensor| x.combinations(2, true).square(), &samples(&[3]), 2).unwrap();
    let times = Tensor::from([2i64, 0, 1]);
    check_grads(|x: &Tensor| x.repeat_by(&times, 0).square(), &samples(&[3, 2]), 2).unwrap();
    let x = samples(&[2, 3]);
    assert_eq!(x.sum_to_shape([1, 3]).to_vec::<f64>(), x.sum_over(0).to_vec::<f64>());
    assert_eq!(x.sum_to_shape(()).item::<f64>(), x.sum().item::<f64>());
}

#[test]
fn borders_with_cuts() {
    let x = Tensor::from([1, 2, 3, 4]);
    let padded = |pad, border| x.pad_or_cut([pad], border).to_vec::<i32>();
    assert_eq!(padded((-3, 3), PadMode::Replicate), [4, 4, 4, 4]);
    assert_eq!(padded((1, -2), PadMode::Replicate), [1, 1, 2]);
    assert_eq!(padded((2, -1), PadMode::Reflect), [3, 2, 1, 2, 3]);
    assert_eq!(padded((-1, 2), PadMode::Circular), [2, 3, 4, 2, 3]);
    let text = catch(|| x.pad_or_cut([(-3, -2)], PadMode::Circular)).unwrap_err().to_string();
    assert!(text.contains("too short"), "{text}");
}

#[test]
fn segments() {
    let x = samples(&[2, 5, 3]);
    for how in [
        ScatterReduction::Sum,
        ScatterReduction::Mean,
        ScatterReduction::Prod,
        ScatterReduction::Max,
        ScatterReduction::Min,
    ] {
        let y = x.segment_reduce(how, &Tensor::from([2i64, 0, 3]), 1, Some(0.5));
        assert_eq!(y.shape(), [2, 3, 3]);
        assert!(y.select_at(1, 1).eq(0.5).all().item::<bool>());
        let f = |x: &Tensor| x.segment_reduce(how, &Tensor::from([[2i64, 3], [4, 1]]), 1, None);
        let part = |row: isize, start: isize, n: usize| {
            let part = x.select_at(0, row).narrow(0, start, n);
            match how {
                ScatterReduction::Sum => part.sum_over(0),
                ScatterReduction::Mean => part.mean_over(0),
                ScatterReduction::Prod => part.prod_over(0),
                ScatterReduction::Max => part.max_over(0),
                ScatterReduction::Min => part.min_over(0),
            }
        };
        let rows = [part(0, 0, 2), part(0, 2, 3), part(1, 0, 4), part(1, 4, 1)];
        let expected = pullback::stack(&rows.iter().collect::<Vec<_>>(), 0).reshape([2, 2, 3]);
        assert!(f(&x).is_close(&expected, 1e-13, 0.0, false).all().item::<bool>(), "{how:?}");
        check_grads(f, &x, 2).unwrap();
    }
    // What no run reaches is left out; a mean of nothing is none.
    let y = Tensor::from([1.0, 2.0, 9.0]).segment_reduce(
        ScatterReduction::Mean,
        &Tensor::from([2i64, 0]),
        0,
        None,
    );
    assert_eq!(y.at(0).item::<f64>(), 1.5);
    assert!(y.at(1).item::<f64>().is_nan());
    let text = catch(|| x.segment_reduce(ScatterReduction::Sum, &Tensor::from([9i64]), 1, None));
    assert!(text.unwrap_err().to_string().contains("lengths that add up to the 5 of axis 1"));
}

#[test]
fn triangles_and_pairs() {
    let at = Tensor::tril_indices(3, 2, -1);
    assert_eq!(at.to_vec::<i64>(), [1, 2, 2, 0, 0, 1]);
    assert_eq!(Tensor::triu_indices(0, 3, 0).shape(), [2, 0]);
    let x = samples(&[4, 3]);
    let all = x.cdist(&x, 3.0);
    let at = Tensor::triu_indices(4, 4, 1);
    let upper = all.index_get(&[&at.select_at(0, 0), &at.select_at(0, 1)]);
    assert_eq!(x.pdist(3.0).to_vec::<f64>(), upper.to_vec::<f64>());
    check_grads(|x: &Tensor| x.pdist(2.0), &x, 2).unwrap();
}
