//! Reductions of nothing: in a program as in eager code, and for many examples at once.

use pullback::*;

type Reduce = fn(&Tensor, &[isize]) -> Tensor;

const REDUCTIONS: &[(&str, Reduce)] = &[
    ("sum", |x, axes| x.sum_over(axes)),
    ("mean", |x, axes| x.mean_over(axes)),
    ("prod", |x, axes| x.prod_over(axes)),
    ("max", |x, axes| x.max_over(axes)),
    ("min", |x, axes| x.min_over(axes)),
    ("any", |x, axes| x.any_over(axes)),
    ("all", |x, axes| x.all_over(axes)),
    ("var", |x, axes| x.var_over(axes)),
    ("std", |x, axes| x.std_over(axes)),
    ("logsumexp", |x, axes| x.logsumexp_over(axes)),
    ("norm", |x, axes| x.norm_over(axes)),
    ("count_nonzero", |x, axes| x.count_nonzero(axes)),
    ("nan_sum", |x, axes| x.nan_sum(axes)),
    ("nan_mean", |x, axes| x.nan_mean(axes)),
    ("vector_norm", |x, axes| x.vector_norm(1.0, axes)),
    ("argmax", |x, axes| x.argmax(axes.first().copied().unwrap_or(0))),
    ("argmin", |x, axes| x.argmin(axes.first().copied().unwrap_or(0))),
    ("cumsum", |x, axes| x.cumsum(axes.first().copied().unwrap_or(0))),
    ("cumprod", |x, axes| x.cumprod(axes.first().copied().unwrap_or(0))),
    ("cummax", |x, axes| x.cummax(axes.first().copied().unwrap_or(0))),
    ("logcumsumexp", |x, axes| x.logcumsumexp(axes.first().copied().unwrap_or(0))),
    ("softmax", |x, axes| x.softmax(axes.first().copied().unwrap_or(0))),
    ("log_softmax", |x, axes| x.log_softmax(axes.first().copied().unwrap_or(0))),
    ("sort", |x, axes| x.sort(axes.first().copied().unwrap_or(0), false).0),
    // What is around a reduction is fused with it.
    ("any with others", |x, axes| x.square().gt(0.5).any_over(axes).logical_not()),
    ("all with others", |x, axes| (x * 2.0).lt(0.5).all_over(axes).cast(DType::F64) + 1.0),
    ("sum with others", |x, axes| (x * 2.0).exp().sum_over(axes) + 1.0),
    ("prod with others", |x, axes| (x * 2.0).exp().prod_over(axes) + 1.0),
];

fn same(a: &Tensor, b: &Tensor) -> bool {
    let bits = |x: &Tensor| -> Vec<u64> {
        let one = |v: f64| if v.is_nan() { f64::NAN.to_bits() } else { v.to_bits() };
        x.to_f64_vec().into_iter().map(one).collect()
    };
    a.spec() == b.spec() && bits(a) == bits(b)
}

#[test]
fn compiled_and_batched_as_eager() {
    let shapes: &[&[usize]] = &[&[0], &[0, 3], &[3, 0], &[2, 0, 3], &[0, 0], &[2, 3]];
    let dtypes = [DType::F64, DType::F32, DType::I64, DType::Bool];
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for &(name, reduce) in REDUCTIONS {
        for &shape in shapes {
            for dtype in dtypes {
                let rank = shape.len() as isize;
                let all: Vec<isize> = (0..rank).collect();
                for axes in all.iter().map(|&i| vec![i]).chain([all.clone(), vec![]]) {
                    let x = Tensor::ones_with(shape, dtype);
                    let eager = catch(|| reduce(&x, &axes));
                    let compiled = jit({
                        let axes = axes.clone();
                        move |x: &Tensor| reduce(x, &axes)
                    })
                    .call(&x);
                    let many = Tensor::ones_with([&[2], shape].concat(), dtype);
                    let batched = catch(|| vmap(|x: &Tensor| reduce(x, &axes), 0, 0)(&many));
                    let batched = batched.map(|y| y.at(1));
                    let compiled_batched = jit({
                        let axes = axes.clone();
                        move |x: &Tensor| vmap(|x: &Tensor| reduce(x, &axes), 0, 0)(x)
                    })
                    .call(&many)
                    .map(|y| y.at(1));
                    compared += usize::from(eager.is_ok());
                    for (how, found) in [
                        ("compiled", compiled),
                        ("batched", batched),
                        ("compiled and batched", compiled_batched),
                    ] {
                        let fits = match (&eager, &found) {
                            (Ok(a), Ok(b)) => same(a, b),
                            (Err(_), Err(_)) => true,
                            (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
                        };
                        if !fits {
                            wrong.push(format!(
                                "{name} of {} over {axes:?}, {how}: {eager:?} and {found:?}",
                                x.spec()
                            ));
                        }
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 1000, "{compared}");
}

#[test]
fn any_of_nothing_is_false_and_all_is_true() {
    let none = Tensor::zeros([0]);
    let f = jit(|x: &Tensor| (x.any(), x.all(), x.gt(0.0).any(), x.gt(0.0).all()));
    let (a, b, c, d) = f.of(&none);
    assert_eq!([a, b, c, d].map(|x| x.item::<bool>()), [false, true, false, true]);
}
