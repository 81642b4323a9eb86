//! Products and attention.

use super::{EXACT, OpRow, fit, lines, rows, table};
use pullback::{Attention, einsum};

/// Products of matrices, and what is made of them.
#[rustfmt::skip]
pub const ROWS: &[OpRow] = rows! {
    matmul(a: Float, b: Float) EXACT, |d| { let a = table(a); let k = a.shape()[a.rank() - 1]; a.matmul(&fit(b, &[k, d.from_to(1, 3)])) };
    matmul_left(a: Float, b: Float) EXACT, |d| { let a = table(a); let k = a.shape()[a.rank() - 2]; fit(b, &[d.from_to(1, 3), k]).matmul(&a) };
    matmul_vector(a: Float, b: Float) EXACT, |_d| { let a = table(a); let k = a.shape()[a.rank() - 1]; a.matmul(&fit(b, &[k])) };
    matmul_stacks(a: Float, b: Float) EXACT, |_d| fit(a, &[2, 1, 2, 2]).matmul(&fit(b, &[2, 2, 3]));
    gram(a: Float) EXACT, |_d| { let a = table(a); a.matmul(&a.t()) };
    dot(a: Float, b: Float) EXACT, |_d| { let a = lines(a); let n = &a.shape()[a.rank() - 1..]; a.dot(&fit(b, n)) };
    outer(a: Float, b: Float) EXACT, |_d| fit(a, &[a.len().min(3)]).outer(&fit(b, &[b.len().min(3)]));
    inner(a: Float, b: Float) EXACT, |_d| fit(a, &[2, 2]).inner(&fit(b, &[3, 2]));
    vecdot(a: Float, b: Float) EXACT, |d| { let a = lines(a); a.vecdot(&fit(b, a.shape()), d.axis(&a)) };
    tensordot(a: Float, b: Float) EXACT, |_d| fit(a, &[2, 3, 1]).tensordot(&fit(b, &[3, 2]), &[0, 1], &[1, 0]);
    addmm(c: Float, a: Float, b: Float) EXACT, |_d| fit(c, &[2, 2]).addmm(&fit(a, &[2, 3]), &fit(b, &[3, 2]), 0.5, 2.0);
    addr(c: Float, a: Float, b: Float) EXACT, |_d| fit(c, &[2, 3]).addr(&fit(a, &[2]), &fit(b, &[3]), 1.0, 0.5);
    addbmm(c: Float, a: Float, b: Float) EXACT, |_d| fit(c, &[2, 2]).addbmm(&fit(a, &[2, 2, 1]), &fit(b, &[2, 1, 2]), 1.0, 0.5);
    linear(x: Float, w: Float, b: Float) EXACT, |_d| { let x = lines(x); let k = x.shape()[x.rank() - 1]; x.linear(&fit(w, &[2, k]), Some(&fit(b, &[2]))) };
    bilinear(a: Float, b: Float, w: Float) EXACT, |_d| fit(a, &[2, 2]).bilinear(&fit(b, &[2, 3]), &fit(w, &[2, 2, 3]), None);
    einsum_two(a: Float, b: Float) EXACT, |d| match d.below(5) {
        0 => einsum("ij,jk->ik", &[&fit(a, &[2, 3]), &fit(b, &[3, 2])]),
        1 => einsum("bij,bj->bi", &[&fit(a, &[2, 2, 3]), &fit(b, &[2, 3])]),
        2 => einsum("ij,ij->", &[&fit(a, &[2, 3]), &fit(b, &[2, 3])]),
        3 => einsum("i,j->ji", &[&fit(a, &[2]), &fit(b, &[3])]),
        _ => einsum("...i,...i->...", &[&fit(a, &[2, 3]), &fit(b, &[3])]),
    };
    einsum_one(a: Float) EXACT, |d| match d.below(4) {
        0 => einsum("ii->i", &[&fit(a, &[2, 2])]),
        1 => einsum("ij->ji", &[&fit(a, &[2, 3])]),
        2 => einsum("ii->", &[&fit(a, &[3, 3])]),
        _ => einsum("ij->j", &[&fit(a, &[2, 3])]),
    };
    einsum_three(a: Float, b: Float, c: Float) EXACT, |_d| einsum("ij,jk,ki->i", &[&fit(a, &[2, 3]), &fit(b, &[3, 2]), &fit(c, &[2, 2])]);
    attention(q: Float, k: Float, v: Float) 0, |d| {
        let (q, k, v) = (fit(q, &[1, 2, 3, 2]), fit(k, &[1, 2, 2, 2]), fit(v, &[1, 2, 2, 3]));
        if d.flag() { q.attention(&k, &v, Attention::new().causal()) } else { q.attention(&k, &v, Attention::new()) }
    };
    attention_masked(q: Float, k: Float, m: Mask) 0, |_d| fit(q, &[2, 3, 2]).attention(&fit(k, &[2, 3, 2]), &fit(k, &[2, 3, 2]), Attention::new().mask(&fit(m, &[3, 3])));
    attention_biased(q: Float, k: Float, b: Float) 0, |_d| fit(q, &[2, 3, 2]).attention(&fit(k, &[2, 3, 2]), &fit(k, &[2, 3, 2]), Attention::new().mask(&fit(b, &[3, 3])).scale(0.5));
    attention_grouped(q: Float, k: Float, v: Float) 0, |_d| fit(q, &[1, 4, 2, 2]).attention(&fit(k, &[1, 2, 3, 2]), &fit(v, &[1, 2, 3, 2]), Attention::new().grouped());
    attention_dropout(q: Float, k: Float, v: Float) 0, |d| { let key = d.key(); fit(q, &[2, 2, 2]).attention(&fit(k, &[2, 3, 2]), &fit(v, &[2, 3, 2]), Attention::new().dropout(0.5, &key)) };
    cdist(a: Float, b: Float) 0, |d| fit(a, &[2, 3]).cdist(&fit(b, &[2, 3]), d.pick(&[2.0, 1.0, 3.0]));
};
