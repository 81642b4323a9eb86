//! Matrix products and other contractions.

use super::one;
use crate::args::{Arg, Args};
use pullback::{Tensor, einsum};

pub fn call(name: &str, a: &Args) -> Option<Vec<Tensor>> {
    let x = || a.x();
    let beta = || a.float_or(usize::MAX, "beta", 1.0);
    let alpha = || a.float_or(usize::MAX, "alpha", 1.0);
    match name {
        "matmul" | "__rmatmul__" | "mm" | "bmm" | "mv" => {
            let other = a.tensor(1, "other|mat2|vec");
            one(if name == "__rmatmul__" { other.matmul(&x()) } else { x().matmul(&other) })
        }
        "dot" | "vdot" => one(x().dot(&a.tensor(1, "tensor|other"))),
        "inner" => one(x().inner(&a.tensor(1, "other"))),
        "outer" | "ger" => one(x().outer(&a.tensor(1, "vec2"))),
        "kron" => one(x().kron(&a.tensor(1, "other"))),
        "addmm" => one(x().addmm(&a.tensor(1, "mat1"), &a.tensor(2, "mat2"), beta(), alpha())),
        "addmv" => one(x().addmv(&a.tensor(1, "mat"), &a.tensor(2, "vec"), beta(), alpha())),
        "addr" => one(x().addr(&a.tensor(1, "vec1"), &a.tensor(2, "vec2"), beta(), alpha())),
        "baddbmm" => {
            one(x().baddbmm(&a.tensor(1, "batch1"), &a.tensor(2, "batch2"), beta(), alpha()))
        }
        "addbmm" => {
            one(x().addbmm(&a.tensor(1, "batch1"), &a.tensor(2, "batch2"), beta(), alpha()))
        }
        "linalg.vecdot" | "vecdot" => {
            one(x().vecdot(&a.tensor(1, "y|other"), a.int_or(2, "dim", -1)))
        }
        "tensordot" => {
            let (p, q) = match a.get(2, "dims") {
                Some(Arg::List(pair)) => (pair[0].ints(), pair[1].ints()),
                n => {
                    let n = n.map_or(2, Arg::int);
                    ((-n..0).collect(), (0..n).collect())
                }
            };
            one(x().tensordot(&a.tensor(1, "b|other"), &p, &q))
        }
        "einsum" => {
            // The samples list the operands first.
            let equation = a.positional.iter().find_map(|arg| match arg {
                Arg::Text(s) => Some(s.as_str()),
                _ => None,
            })?;
            one(einsum(equation, &a.every_tensor().iter().collect::<Vec<_>>()))
        }
        "trace" => one(x().trace()),
        "cross" => {
            let first = || x().shape().iter().position(|&n| n == 3).unwrap_or(0) as isize;
            one(x().cross(&a.tensor(1, "other"), a.get(2, "dim").map_or_else(first, Arg::int)))
        }
        "linalg.cross" => one(x().cross(&a.tensor(1, "other"), a.int_or(2, "dim", -1))),
        "nn.functional.linear" => {
            one(x().linear(&a.tensor(1, "weight"), a.maybe_tensor(2, "bias").as_ref()))
        }
        "nn.functional.bilinear" => {
            let (second, weight, bias) =
                (a.tensor(1, "input2"), a.tensor(2, "weight"), a.maybe_tensor(3, "bias"));
            one(a.tensor(0, "input1").bilinear(&second, &weight, bias.as_ref()))
        }
        _ => None,
    }
}
