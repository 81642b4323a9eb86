//! Convolution, pooling, and patches.

use super::one;
use crate::args::{Arg, Args};
use pullback::{Conv, OutputSizes, Padding, Pool, Tensor, grad};

fn sizes(list: &[isize]) -> Vec<usize> {
    list.iter().map(|&n| usize::try_from(n).expect("a size")).collect()
}

/// A list, unless it is absent or empty.
fn some(a: &Args, i: usize, name: &str) -> Option<Vec<usize>> {
    a.maybe_ints(i, name).filter(|list| !list.is_empty()).map(|list| sizes(&list))
}

/// The options at these positions.
fn conv(a: &Args, [stride, padding, dilation, groups]: [usize; 4]) -> Conv {
    let mut options = Conv::new().groups(a.int_or(groups, "groups", 1) as usize);
    if let Some(list) = some(a, stride, "stride") {
        options = options.stride(list);
    }
    if let Some(list) = some(a, dilation, "dilation") {
        options = options.dilation(list);
    }
    match a.text(padding, "padding") {
        Some("same") => options.padding(Padding::Same),
        Some("valid") => options.padding(Padding::Valid),
        Some(other) => panic!("`{other}` is no padding"),
        None => match some(a, padding, "padding") {
            Some(list) => options.padding(list),
            None => options,
        },
    }
}

fn pool(a: &Args, kernel: usize) -> Pool {
    let mut pool = Pool::new(sizes(&a.ints(kernel, "kernel_size")));
    if let Some(list) = some(a, kernel + 1, "stride") {
        pool = pool.stride(list);
    }
    pool
}

fn padded(a: &Args, i: usize, pool: Pool) -> Pool {
    match some(a, i, "padding") {
        Some(list) => pool.padding(list),
        None => pool,
    }
}

fn lengths(a: &Args) -> OutputSizes {
    let one = |arg: &Arg| match arg {
        Arg::Null => None,
        n => Some(n.int() as usize),
    };
    match a.get(1, "output_size").expect("an output size") {
        Arg::List(list) => OutputSizes::from(&list.iter().map(one).collect::<Vec<_>>()[..]),
        n => OutputSizes::from(n.int() as usize),
    }
}

/// The values, and the places where they are asked for.
fn with_places((values, places): (Tensor, Tensor), wanted: bool) -> Option<Vec<Tensor>> {
    Some(if wanted { vec![values, places] } else { vec![values] })
}

pub fn call(name: &str, a: &Args) -> Option<Vec<Tensor>> {
    let x = || a.x();
    if name == "max_pool2d_with_indices_backward" {
        let mut pool = padded(a, 3, pool(a, 1)).ceil_mode(a.flag(5, "ceil_mode", false));
        if let Some(list) = some(a, 4, "dilation") {
            pool = pool.dilation(list);
        }
        return one(grad(move |x: &Tensor| x.max_pool2d(&pool).sum())(&x()));
    }
    let name = name.strip_prefix("nn.functional.")?;
    let axes = name.split('.').next()?.trim_end_matches('d').chars().last()?.to_digit(10);
    let base = name.split(|c: char| c.is_ascii_digit()).next()?;
    let Some(axes) = axes else { return patches(name, a) };
    let weight = || a.tensor(1, "weight");
    let bias = || a.maybe_tensor(2, "bias");
    match base {
        "conv" => {
            let options = conv(a, [3, 4, 5, 6]);
            one(match axes {
                1 => x().conv1d(&weight(), bias().as_ref(), &options),
                2 => x().conv2d(&weight(), bias().as_ref(), &options),
                _ => x().conv3d(&weight(), bias().as_ref(), &options),
            })
        }
        "conv_transpose" => {
            let mut options = conv(a, [3, 4, 7, 6]);
            if let Some(list) = some(a, 5, "output_padding") {
                options = options.output_padding(list);
            }
            one(match axes {
                1 => x().conv_transpose1d(&weight(), bias().as_ref(), &options),
                2 => x().conv_transpose2d(&weight(), bias().as_ref(), &options),
                _ => x().conv_transpose3d(&weight(), bias().as_ref(), &options),
            })
        }
        "max_pool" => {
            let mut pool = padded(a, 3, pool(a, 1)).ceil_mode(a.flag(5, "ceil_mode", false));
            if let Some(list) = some(a, 4, "dilation") {
                pool = pool.dilation(list);
            }
            let both = match axes {
                1 => x().max_pool1d_at(&pool),
                2 => x().max_pool2d_at(&pool),
                _ => x().max_pool3d_at(&pool),
            };
            with_places(both, a.flag(6, "return_indices", false))
        }
        "avg_pool" => {
            let mut pool = padded(a, 3, pool(a, 1))
                .ceil_mode(a.flag(4, "ceil_mode", false))
                .count_include_pad(a.flag(5, "count_include_pad", true));
            if let Some(divisor) = a.get(6, "divisor_override") {
                pool = pool.divisor(divisor.int() as i64);
            }
            one(match axes {
                1 => x().avg_pool1d(&pool),
                2 => x().avg_pool2d(&pool),
                _ => x().avg_pool3d(&pool),
            })
        }
        "lp_pool" => {
            let p = a.float(1, "norm_type");
            let pool = pool(a, 2).ceil_mode(a.flag(4, "ceil_mode", false));
            one(match axes {
                1 => x().lp_pool1d(p, &pool),
                2 => x().lp_pool2d(p, &pool),
                _ => x().lp_pool3d(p, &pool),
            })
        }
        "adaptive_avg_pool" => one(match axes {
            1 => x().adaptive_avg_pool1d(lengths(a)),
            2 => x().adaptive_avg_pool2d(lengths(a)),
            _ => x().adaptive_avg_pool3d(lengths(a)),
        }),
        "adaptive_max_pool" => {
            let both = match axes {
                1 => x().adaptive_max_pool1d_at(lengths(a)),
                2 => x().adaptive_max_pool2d_at(lengths(a)),
                _ => x().adaptive_max_pool3d_at(lengths(a)),
            };
            with_places(both, a.flag(2, "return_indices", false))
        }
        "fractional_max_pool" => {
            let kernel = sizes(&a.ints(1, "kernel_size"));
            let lengths = match a.get(3, "output_ratio") {
                None => sizes(&a.ints(2, "output_size")),
                Some(Arg::List(list)) => {
                    let lengths = &x().shape()[x().rank() - list.len()..].to_vec();
                    lengths
                        .iter()
                        .zip(list)
                        .map(|(&n, r)| (n as f64 * r.float()) as usize)
                        .collect()
                }
                Some(one) => {
                    let lengths = &x().shape()[x().rank() - axes as usize..].to_vec();
                    lengths.iter().map(|&n| (n as f64 * one.float()) as usize).collect()
                }
            };
            let samples = a.maybe_tensor(5, "_random_samples").unwrap_or_else(|| {
                let (n, c) = match x().rank() - axes as usize {
                    1 => (1, x().shape()[0]),
                    _ => (x().shape()[0], x().shape()[1]),
                };
                Tensor::full([n, c, axes as usize], 0.5f64)
            });
            let both = match axes {
                2 => x().fractional_max_pool2d(kernel, lengths, &samples),
                _ => x().fractional_max_pool3d(kernel, lengths, &samples),
            };
            with_places(both, a.flag(4, "return_indices", false))
        }
        "max_unpool" => {
            let (places, pool) = (a.tensor(1, "indices"), padded(a, 4, pool(a, 2)));
            let lengths = some(a, 5, "output_size");
            one(match axes {
                1 => x().max_unpool1d(&places, &pool, lengths.as_deref()),
                2 => x().max_unpool2d(&places, &pool, lengths.as_deref()),
                _ => x().max_unpool3d(&places, &pool, lengths.as_deref()),
            })
        }
        _ => None,
    }
}

fn patches(name: &str, a: &Args) -> Option<Vec<Tensor>> {
    let pair = |i: usize, name: &str, default: usize| -> [usize; 2] {
        match some(a, i, name).as_deref() {
            None => [default; 2],
            Some([one]) => [*one; 2],
            Some(list) => [list[0], list[1]],
        }
    };
    let rest =
        |i: usize| (pair(i, "dilation", 1), pair(i + 1, "padding", 0), pair(i + 2, "stride", 1));
    match name {
        "unfold" => {
            let (dilation, padding, stride) = rest(2);
            one(a.x().im2col(pair(1, "kernel_size", 1), dilation, padding, stride))
        }
        "fold" => {
            let (dilation, padding, stride) = rest(3);
            let (image, kernel) = (pair(1, "output_size", 1), pair(2, "kernel_size", 1));
            one(a.x().col2im(image, kernel, dilation, padding, stride))
        }
        _ => None,
    }
}
