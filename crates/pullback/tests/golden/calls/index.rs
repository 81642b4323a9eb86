//! Gather, scatter and index selection.

use super::one;
use super::view::lengths;
use crate::args::{Arg, Args};
use pullback::{BagMode, DType, Embedding, EmbeddingBag, Index, ScatterReduction, Tensor, stack};

pub fn call(name: &str, a: &Args) -> Option<Vec<Tensor>> {
    let x = || a.x();
    let (dim, index) = (|| a.int(1, "dim"), || a.tensor(2, "index"));
    match name {
        "gather" => one(match index().is_empty() {
            // An empty index may have any number of axes.
            true => x().reshape([x().len()]).narrow(0, 0, 0).reshape(index().shape()),
            false => x().gather(dim(), &index()),
        }),
        "masked_scatter" => one(x().masked_scatter(&a.tensor(1, "mask"), &a.tensor(2, "source"))),
        "put" => one(x().put_flat(
            &a.tensor(1, "index"),
            &a.tensor(2, "source"),
            a.flag(3, "accumulate", false),
        )),
        "index_select" => one(x().index_select(dim(), &index())),
        "take" => one(x().take(&a.tensor(1, "index"))),
        "take_along_dim" => {
            let (x, index) = (x(), a.tensor(1, "indices"));
            one(match a.get(2, "dim") {
                Some(axis) => x.take_along(&index, axis.int()),
                None => x.take(&index.reshape([index.len()])),
            })
        }
        "masked_select" => one(x().masked_select(&a.tensor(1, "mask"))),
        "index_fill" => {
            one(x().index_fill(dim(), &index(), a.tensor(3, "value").cast(x().dtype())))
        }
        "index_copy" => one(x().index_copy(dim(), &index(), &a.tensor(3, "source"))),
        "index_add" => {
            let alpha = a.get(4, "alpha").map_or(Tensor::from(1i64), Arg::tensor);
            one(x().index_add(dim(), &index(), &(a.tensor(3, "source") * alpha)))
        }
        "index_put" | "_unsafe_index_put" => {
            let indices = places(a.get(1, "indices")?)?;
            let indices: Vec<Option<&Tensor>> = indices.iter().map(Option::as_ref).collect();
            one(x().index_put(&indices, &a.tensor(2, "values"), a.flag(3, "accumulate", false)))
        }
        "index" | "_unsafe_index" => {
            let indices = places(a.get(1, "indices")?)?;
            one(x().index_get(&indices.iter().map(Option::as_ref).collect::<Vec<_>>()))
        }
        "scatter" => {
            let source = spread_source(a, &index(), &x());
            one(match a.text(usize::MAX, "reduce") {
                Some("add") => x().scatter_add(dim(), &index(), &source),
                Some(_) => x().scatter_mul(dim(), &index(), &source),
                None => x().scatter(dim(), &index(), &source),
            })
        }
        "scatter_add" => one(x().scatter_add(dim(), &index(), &a.tensor(3, "src"))),
        "scatter_reduce" | "index_reduce" => {
            let (source, how) = (a.tensor(3, "src|source"), gathered(a.text(4, "reduce")?)?);
            let include = a.flag(5, "include_self", true);
            one(match name {
                "scatter_reduce" => x().scatter_reduce(dim(), &index(), &source, how, include),
                _ => x().index_reduce(dim(), &index(), &source, how, include),
            })
        }
        "as_strided" | "as_strided_copy" => {
            let (size, strides) = (a.ints(1, "size"), lengths(&a.ints(2, "stride")));
            one(x().as_strided(size, &strides, a.int_or(3, "storage_offset", 0) as usize))
        }
        "as_strided_scatter" => {
            let (source, strides) = (a.tensor(1, "src"), lengths(&a.ints(3, "stride")));
            let source = source.reshape(a.ints(2, "size"));
            let offset = a.int_or(4, "storage_offset", 0) as usize;
            one(x().as_strided_put(&source, &strides, offset))
        }
        "nn.functional.embedding" => {
            let (table, rows) = table_and_rows(a);
            one(embedding(a, [2, 3, 4, 5]).of(&table, &rows))
        }
        "nn.functional.embedding_bag" => {
            let (table, rows) = table_and_rows(a);
            let mode = match a.text(6, "mode").unwrap_or("mean") {
                "sum" => BagMode::Sum,
                "max" => BagMode::Max,
                _ => BagMode::Mean,
            };
            let mut bag = EmbeddingBag::new(mode)
                .rows(embedding(a, [10, 3, 4, 5]))
                .include_last_offset(a.flag(9, "include_last_offset", false));
            if let Some(offsets) = a.maybe_tensor(2, "offsets") {
                bag = bag.offsets(&offsets);
            }
            if let Some(weights) = a.maybe_tensor(8, "per_sample_weights") {
                bag = bag.weights(&weights);
            }
            one(bag.of(&table, &rows))
        }
        "nn.functional.one_hot" => {
            let most = || (x().max().item::<i64>() + 1) as isize;
            let classes = Some(a.int_or(1, "num_classes", -1)).filter(|&n| n >= 0);
            one(x().one_hot(classes.unwrap_or_else(most) as usize, DType::I64))
        }
        "__getitem__" => one(indexed(&x(), a.get(1, "index")?)?),
        _ => None,
    }
}

/// What is scattered: a tensor, or one value.
fn spread_source(a: &Args, index: &Tensor, x: &Tensor) -> Tensor {
    let source = a.get(3, "src|value").map(Arg::tensor).unwrap();
    if source.rank() == 0 { source.cast(x.dtype()).expand(index.shape()) } else { source }
}

fn gathered(name: &str) -> Option<ScatterReduction> {
    Some(match name {
        "sum" => ScatterReduction::Sum,
        "mean" => ScatterReduction::Mean,
        "prod" => ScatterReduction::Prod,
        "amax" | "max" => ScatterReduction::Max,
        "amin" | "min" => ScatterReduction::Min,
        _ => return None,
    })
}

/// Index tensors, one for each axis that is indexed: numbers and lists of them are tensors too,
/// bytes are masks.
fn places(index: &Arg) -> Option<Vec<Option<Tensor>>> {
    let Arg::List(list) = index else { return Some(vec![Some(place(index)?)]) };
    list.iter()
        .map(|e| if matches!(e, Arg::Null) { Some(None) } else { place(e).map(Some) })
        .collect()
}

fn place(index: &Arg) -> Option<Tensor> {
    match index {
        Arg::Tensor(t) if t.dtype() == DType::U8 => Some(t.ne(0)),
        Arg::Tensor(t) => Some(t.clone()),
        Arg::Int(i) => Some(Tensor::from(*i)),
        Arg::List(list) => {
            let parts: Vec<Tensor> = list.iter().map(place).collect::<Option<_>>()?;
            match parts.is_empty() {
                true => Some(Tensor::zeros_with([0], DType::I64)),
                false => Some(stack(&parts.iter().collect::<Vec<_>>(), 0)),
            }
        }
        Arg::Bool(b) => Some(Tensor::from(*b)),
        Arg::Float(_) | Arg::Complex(_) | Arg::Text(_) | Arg::Slice(..) | Arg::Null => None,
    }
}

/// `x[…]` by PyTorch's rules: integers, slices, new axes and dots first, then the tensors on the
/// axes that are left.
fn indexed(x: &Tensor, index: &Arg) -> Option<Tensor> {
    let whole = Index::Range { start: None, stop: None, step: 1 };
    let entries = match index {
        // A list of numbers is one index tensor; a list with anything else is a tuple of entries.
        Arg::List(list) if list.iter().any(|e| !matches!(e, Arg::Bool(_) | Arg::Int(_))) => {
            list.clone()
        }
        other => vec![other.clone()],
    };
    let covers = |e: &Arg| match e {
        Arg::Tensor(t) if matches!(t.dtype(), DType::Bool | DType::U8) => t.rank(),
        Arg::List(_) if matches!(place(e), Some(t) if t.dtype() == DType::Bool) => 1,
        Arg::Tensor(_) | Arg::List(_) | Arg::Int(_) | Arg::Slice(..) => 1,
        Arg::Null | Arg::Bool(_) | Arg::Text(_) | Arg::Float(_) | Arg::Complex(_) => 0,
    };
    let used: usize = entries.iter().map(covers).sum();
    let (mut basic, mut tensors): (Vec<Index>, Vec<Option<Tensor>>) = Default::default();
    for e in &entries {
        match e {
            Arg::Int(i) => basic.push(Index::At(*i as isize)),
            Arg::Slice(start, stop, step) => {
                basic.push(Index::Range { start: *start, stop: *stop, step: step.unwrap_or(1) });
                tensors.push(None);
            }
            Arg::Null => {
                basic.push(Index::NewAxis);
                tensors.push(None);
            }
            // A truth value is a mask of no axes: a new axis of length 1 or 0.
            Arg::Bool(b) => {
                basic.push(Index::NewAxis);
                tensors.push(Some(Tensor::from([*b])));
            }
            Arg::Text(dots) if dots == "..." || dots == "Ellipsis" => {
                let rest = x.rank().checked_sub(used)?;
                basic.extend(vec![whole; rest]);
                tensors.extend(vec![None; rest]);
            }
            Arg::Tensor(_) | Arg::List(_) => {
                basic.extend(vec![whole; covers(e)]);
                tensors.push(Some(place(e)?));
            }
            Arg::Float(_) | Arg::Complex(_) | Arg::Text(_) => return None,
        }
    }
    let y = x.at(&basic[..]);
    Some(match tensors.iter().any(Option::is_some) {
        true => y.index_get(&tensors.iter().map(Option::as_ref).collect::<Vec<_>>()),
        false => y,
    })
}

/// The call names the rows first, the samples of the operator database the table.
fn table_and_rows(a: &Args) -> (Tensor, Tensor) {
    let (first, second) = (a.x(), a.tensor(1, "weight|idx|indices"));
    if first.dtype().is_float() { (first, second) } else { (second, first) }
}

/// The options of an embedding; `at` are the places of padding, largest norm, its order and scaling
/// by frequency.
fn embedding(a: &Args, at: [usize; 4]) -> Embedding {
    let mut options =
        Embedding::new().scale_grad_by_freq(a.flag(at[3], "scale_grad_by_freq", false));
    if let Some(row) = a.get(at[0], "padding_idx") {
        options = options.padding(row.int() as i64);
    }
    if let Some(limit) = a.get(at[1], "max_norm") {
        options = options.max_norm(limit.float(), a.float_or(at[2], "norm_type", 2.0));
    }
    options
}
