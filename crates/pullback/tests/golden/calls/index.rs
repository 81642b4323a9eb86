//! Gather, scatter and index selection.

use super::one;
use crate::args::{Arg, Args};
use pullback::{DType, Index, Tensor};

pub fn call(name: &str, a: &Args) -> Option<Vec<Tensor>> {
    let x = || a.x();
    let (dim, index) = (|| a.int(1, "dim"), || a.tensor(2, "index"));
    match name {
        "gather" => one(match index().is_empty() {
            // An empty index may have any number of axes.
            true => x().reshape([x().len()]).narrow(0, 0, 0).reshape(index().shape()),
            false => x().gather(dim(), &index()),
        }),
        "masked_scatter" => {
            let (mask, source) = (a.tensor(1, "mask").expand(x().shape()), a.tensor(2, "source"));
            let n = mask.ne(0).sum().item::<i64>() as usize;
            one(x().index_put(
                &[&mask.ne(0)],
                &source.reshape([source.len()]).narrow(0, 0, n),
                false,
            ))
        }
        "put" => {
            let (index, source) = (a.tensor(1, "index"), a.tensor(2, "source"));
            let flat = |x: &Tensor| x.reshape([x.len()]);
            let y = flat(&x()).index_put(
                &[&flat(&index)],
                &flat(&source),
                a.flag(3, "accumulate", false),
            );
            one(y.reshape(x().shape()))
        }
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
        "index_put" => {
            let indices = a.tensors(1, "indices");
            one(x().index_put(
                &indices.iter().collect::<Vec<_>>(),
                &a.tensor(2, "values"),
                a.flag(3, "accumulate", false),
            ))
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
        "scatter_reduce" => {
            let reduce = a.text(4, "reduce")?;
            one(x().scatter_with(
                dim(),
                &index(),
                &a.tensor(3, "src"),
                reduce,
                a.flag(5, "include_self", true),
            ))
        }
        "index_reduce" => {
            let (x, source) = (x(), a.tensor(3, "source"));
            let axis = dim().rem_euclid(x.rank().max(1) as isize) as usize;
            let mut thin = vec![1; source.rank()];
            thin[axis] = index().len();
            let index = index().reshape(thin).expand(source.shape());
            one(x.scatter_with(
                axis as isize,
                &index,
                &source,
                a.text(4, "reduce")?,
                a.flag(5, "include_self", true),
            ))
        }
        "nn.functional.embedding" => {
            // The samples name the table first. A row that is padding gets no gradient.
            let (table, rows) = (x(), a.tensor(1, "input|idx|indices"));
            if a.get(3, "max_norm").is_some() || a.flag(5, "scale_grad_by_freq", false) {
                return None;
            }
            let picked = table.index_get(&[&rows]);
            one(match a.get(2, "padding_idx") {
                Some(row) => {
                    let row = row.int().rem_euclid(table.shape()[0] as isize) as i64;
                    rows.cast(DType::I64).eq(row).unsqueeze(-1).select(picked.detach(), &picked)
                }
                None => picked,
            })
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

trait ScatterWith {
    fn scatter_with(
        &self,
        axis: isize,
        index: &Tensor,
        source: &Tensor,
        reduce: &str,
        include_self: bool,
    ) -> Tensor;
}

impl ScatterWith for Tensor {
    fn scatter_with(
        &self,
        axis: isize,
        index: &Tensor,
        source: &Tensor,
        reduce: &str,
        include_self: bool,
    ) -> Tensor {
        let ones = Tensor::ones_with(index.shape(), self.dtype());
        let hits = self.detach().zeros_like().scatter_add(axis, index, &ones);
        let unit = match reduce {
            "sum" | "mean" => 0.0,
            "prod" => 1.0,
            "amax" => f64::NEG_INFINITY,
            _ => f64::INFINITY,
        };
        // Where something arrives, a base that does not count is the unit of the reduction.
        let base = if include_self { self.clone() } else { self.masked_fill(&hits.gt(0.0), unit) };
        match reduce {
            "sum" => base.scatter_add(axis, index, source),
            "mean" => {
                let count = if include_self { hits + 1.0 } else { hits.clamp_min(1.0) };
                base.scatter_add(axis, index, source) / count
            }
            "prod" => base.scatter_mul(axis, index, source),
            "amax" => base.scatter_max(axis, index, source),
            _ => base.scatter_min(axis, index, source),
        }
    }
}

/// `x[…]`: integers, slices and new axes in any mixture, or index tensors for the first axes.
fn indexed(x: &Tensor, index: &Arg) -> Option<Tensor> {
    let entries = match index {
        Arg::List(list) => list.clone(),
        other => vec![other.clone()],
    };
    if entries.iter().any(|e| matches!(e, Arg::Tensor(_) | Arg::List(_))) {
        let place = |e: &Arg| match e {
            Arg::Tensor(t) => Some(t.clone()),
            Arg::List(_) => {
                Some(Tensor::from(e.ints().into_iter().map(|i| i as i64).collect::<Vec<_>>()))
            }
            Arg::Int(i) => Some(Tensor::from(*i)),
            _ => None,
        };
        let places: Vec<Tensor> = entries.iter().map(place).collect::<Option<_>>()?;
        return Some(x.index_get(&places.iter().collect::<Vec<_>>()));
    }
    let entry = |e: &Arg| match e {
        Arg::Int(i) => Some(Index::At(*i as isize)),
        Arg::Slice(start, stop, step) => {
            Some(Index::Range { start: *start, stop: *stop, step: step.unwrap_or(1) })
        }
        Arg::Null => Some(Index::NewAxis),
        Arg::Text(s) if s == "..." => Some(Index::Ellipsis),
        _ => None,
    };
    Some(x.at(&entries.iter().map(entry).collect::<Option<Vec<Index>>>()?[..]))
}
