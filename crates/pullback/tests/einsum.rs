//! `einsum` against a naive loop over all labels, and its gradients by linearity.

use proptest::prelude::*;
use pullback::{DType, Tensor, catch, einsum, grad_of};
use std::collections::BTreeMap;

/// A small generator, so that one seed makes one whole case.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn tensor(&mut self, shape: &[usize]) -> Tensor {
        let n: usize = shape.iter().product();
        let values: Vec<f64> = (0..n).map(|_| self.roll(2001) as f64 / 1000.0 - 1.0).collect();
        Tensor::from_vec(values, shape)
    }
}

/// An equation, the labels of each operand (digits are axes under the ellipsis), and the output's.
#[derive(Debug)]
struct Case {
    equation: String,
    shapes: Vec<Vec<usize>>,
    labels: Vec<Vec<char>>,
    output: Vec<char>,
}

fn case(dice: &mut Dice) -> Case {
    let alphabet = ['a', 'b', 'C', 'd', 'Z'];
    let size: BTreeMap<char, usize> = alphabet
        .iter()
        .chain(&['0', '1'])
        .map(|&c| (c, if dice.roll(40) == 0 { 0 } else { 1 + dice.roll(3) }))
        .collect();
    let (mut terms, mut shapes, mut labels) = (Vec::new(), Vec::new(), Vec::new());
    let ellipsis = dice.roll(3) == 0;
    for _ in 0..1 + dice.roll(4) {
        let letters: Vec<char> = (0..dice.roll(4)).map(|_| alphabet[dice.roll(5)]).collect();
        let cut = dice.roll(letters.len() + 1);
        let with = ellipsis && dice.roll(3) > 0;
        // The axes under the ellipsis, aligned at the last: `0` is the last one.
        let batch: Vec<char> =
            if with { ['1', '0'][dice.roll(3).min(2)..].to_vec() } else { Vec::new() };
        let dots = if with { "..." } else { "" };
        let text = |part: &[char]| part.iter().collect::<String>();
        terms.push(format!("{}{dots}{}", text(&letters[..cut]), text(&letters[cut..])));
        let all = [&letters[..cut], &batch, &letters[cut..]].concat();
        // Now and then a label broadcasts from length 1, in all its places in the operand.
        let ones: Vec<char> = all.iter().copied().filter(|_| dice.roll(6) == 0).collect();
        shapes.push(all.iter().map(|c| if ones.contains(c) { 1 } else { size[c] }).collect());
        labels.push(all);
    }
    let mut present: Vec<char> = labels.concat();
    present.sort_unstable();
    let batch: Vec<char> = ['1', '0'].into_iter().filter(|c| present.contains(c)).collect();
    let letters = |c: &char| c.is_ascii_alphabetic();
    if dice.roll(3) == 0 {
        let once =
            present.chunk_by(|a, b| a == b).filter(|c| c.len() == 1).map(|c| c[0]).filter(letters);
        let output = batch.iter().copied().chain(once).collect();
        return Case { equation: terms.join(", "), shapes, labels, output };
    }
    present.dedup();
    let mut kept: Vec<char> =
        present.into_iter().filter(letters).filter(|_| dice.roll(2) == 0).collect();
    for i in (1..kept.len()).rev() {
        kept.swap(i, dice.roll(i + 1));
    }
    let cut = dice.roll(kept.len() + 1);
    let with = dice.roll(4) > 0;
    let text = |part: &[char]| part.iter().collect::<String>();
    let dots = if with { "..." } else { "" };
    let equation =
        format!("{} -> {}{dots}{}", terms.join(","), text(&kept[..cut]), text(&kept[cut..]));
    let batch = if with { batch } else { Vec::new() };
    Case { equation, shapes, labels, output: [&kept[..cut], &batch, &kept[cut..]].concat() }
}

/// Every assignment of an index to every label, one product each.
fn naive(case: &Case, operands: &[Tensor]) -> (Vec<usize>, Vec<f64>) {
    let mut size: BTreeMap<char, usize> = BTreeMap::new();
    for (labels, shape) in case.labels.iter().zip(&case.shapes) {
        for (&c, &n) in labels.iter().zip(shape) {
            let m = size.entry(c).or_insert(1);
            *m = if *m == 1 { n } else { *m };
        }
    }
    let values: Vec<Vec<f64>> = operands.iter().map(|x| x.to_vec()).collect();
    let shape: Vec<usize> = case.output.iter().map(|c| size[c]).collect();
    let mut out = vec![0.0; shape.iter().product()];
    let labels: Vec<char> = size.keys().copied().collect();
    let total: usize = size.values().product();
    for mut flat in 0..total {
        let mut at = BTreeMap::new();
        for &c in &labels {
            at.insert(c, flat % size[&c]);
            flat /= size[&c];
        }
        let offset = |labels: &[char], shape: &[usize]| {
            labels.iter().zip(shape).fold(0, |o, (c, &n)| o * n + if n == 1 { 0 } else { at[c] })
        };
        let product: f64 = values
            .iter()
            .zip(&case.labels)
            .zip(&case.shapes)
            .map(|((v, l), s)| v[offset(l, s)])
            .product();
        out[offset(&case.output, &shape)] += product;
    }
    (shape, out)
}

fn close(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-11)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..Default::default() })]

    #[test]
    fn agrees_with_the_naive_loop(seed: u64) {
        let mut dice = Dice(seed);
        let case = case(&mut dice);
        let operands: Vec<Tensor> = case.shapes.iter().map(|s| dice.tensor(s)).collect();
        let y = einsum(&case.equation, &operands.iter().collect::<Vec<_>>());
        let (shape, want) = naive(&case, &operands);
        prop_assert_eq!(y.shape(), &shape[..], "{:?}", case);
        prop_assert!(close(&y.to_vec::<f64>(), &want), "{:?}: {:?} is not {:?}", case, y.to_vec::<f64>(), want);
    }

    /// The result is linear in each operand, so <gradient, v> is the result with v in its place.
    #[test]
    fn gradients_are_transposes(seed: u64) {
        let mut dice = Dice(seed);
        let case = case(&mut dice);
        let operands: Vec<Tensor> = case.shapes.iter().map(|s| dice.tensor(s).requires_grad()).collect();
        let inputs: Vec<&Tensor> = operands.iter().collect();
        let y = einsum(&case.equation, &inputs);
        let dy = dice.tensor(y.shape());
        let gradients = grad_of(&[&y], &inputs, &[&dy]).unwrap();
        for (i, gradient) in gradients.iter().enumerate() {
            prop_assert_eq!(gradient.shape(), operands[i].shape());
            let v = dice.tensor(operands[i].shape());
            let mut replaced: Vec<Tensor> = operands.iter().map(|x| x.detach()).collect();
            replaced[i] = v.clone();
            let (_, moved) = naive(&case, &replaced);
            let want: f64 = moved.iter().zip(dy.to_vec::<f64>()).map(|(a, b)| a * b).sum();
            let found = (gradient * &v).sum().item::<f64>();
            prop_assert!((found - want).abs() < 1e-10, "{:?}, operand {}: {} is not {}", case, i, found, want);
        }
    }
}

#[test]
fn known_equations() {
    let a = Tensor::arange(0, 6).reshape([2, 3]);
    let b = Tensor::arange(0, 12).reshape([3, 4]);
    assert_eq!(einsum("ij,jk", &[&a, &b]).to_vec::<i64>(), [20, 23, 26, 29, 56, 68, 80, 92]);
    assert_eq!(einsum("ij,jk->ki", &[&a, &b]).shape(), [4, 2]);
    assert_eq!(einsum("ba", &[&a]).to_vec::<i64>(), [0, 3, 1, 4, 2, 5]);
    assert_eq!(einsum("ij->", &[&a]).item::<i64>(), 15);
    assert_eq!(
        einsum("i,j->ij", &[&Tensor::arange(1, 3), &Tensor::arange(1, 3)]).to_vec::<i64>(),
        [1, 2, 2, 4]
    );
    assert_eq!(einsum(",", &[&Tensor::from(2.0), &Tensor::from(3.0)]).item::<f64>(), 6.0);
    let square = Tensor::arange(0, 9).reshape([3, 3]);
    assert_eq!(einsum("ii->i", &[&square]).to_vec::<i64>(), [0, 4, 8]);
    assert_eq!(einsum("aB", &[&a]).shape(), [3, 2], "capitals sort first");
}

#[test]
fn results_have_memory_of_their_own() {
    let x = Tensor::zeros([2, 3, 3]);
    assert!(!einsum("aij->jia", &[&x]).shares_memory(&x));
    assert!(!einsum("aii->ia", &[&x]).shares_memory(&x));
}

#[test]
fn many_operands_are_contracted_in_a_cheap_order() {
    // Left to right this would make a matrix of 2000 × 2000 first.
    let (n, column) = (2000, Tensor::ones([2000, 1]));
    let y = einsum("ij,kl,km,in->jlmn", &[&column; 4]);
    assert_eq!(y.shape(), [1, 1, 1, 1]);
    assert_eq!(y.sum().item::<f32>(), (n * n) as f32);
    let v = Tensor::ones([2000]);
    assert_eq!(einsum("a,b,a,b->", &[&v, &v, &v, &v]).item::<f32>(), (n * n) as f32);
}

#[test]
fn dtypes_promote() {
    let ints = Tensor::from([1i32, 2, 3]);
    assert_eq!(einsum("i,i", &[&ints, &ints]).dtype(), DType::I32);
    assert_eq!(einsum("i->", &[&ints]).dtype(), DType::I32);
    assert_eq!(einsum("i,i", &[&ints, &Tensor::from([1.0f32, 2.0, 3.0])]).item::<f32>(), 14.0);
    let truth = Tensor::from([true, true, false]);
    assert_eq!(einsum("i,i->", &[&truth, &truth]).item::<i64>(), 2);
}

#[test]
fn errors_are_sentences() {
    let (a, b) = (Tensor::zeros([2, 3]), Tensor::zeros([4, 5]));
    let said = |equation: &str, operands: &[&Tensor]| {
        let error = catch(|| einsum(equation, operands)).unwrap_err();
        assert_eq!(error.op(), "einsum");
        assert!(error.to_string().contains("tests/einsum.rs:"), "{error}");
        error.message().to_string()
    };
    assert_eq!(said("i1", &[&a]), "`1` in `i1` is not a label: labels are the letters a-z and A-Z");
    assert_eq!(said("i.j", &[&a]), "`.` in `i.j` is not part of an ellipsis `...`");
    assert_eq!(said("...i...", &[&a]), "`...i...` has more than one ellipsis");
    assert_eq!(said("ij,jk", &[&a]), "`ij,jk` names 2 operands, not 1");
    assert_eq!(said("ij", &[]), "`ij` names 1 operand, not 0");
    assert_eq!(said("ijk", &[&a]), "`ijk` has 3 labels, but operand 0 is f32[2,3], with 2 axes");
    assert_eq!(said("i", &[&a]), "`i` has 1 label, but operand 0 is f32[2,3], with 2 axes");
    assert_eq!(
        said("ij,jk", &[&a, &b]),
        "`j` has length 3 in one operand and 4 in operand 1, f32[4,5]"
    );
    assert_eq!(said("ii", &[&a]), "`i` is repeated in operand 0, f32[2,3], with lengths 2 and 3");
    assert_eq!(said("ij->ik", &[&a]), "the output label `k` is in no operand");
    assert_eq!(said("ij->ii", &[&a]), "the output label `i` is repeated");
    assert_eq!(said("ij->i->j", &[&a]), "a second `->`, before `j`");
    let batch = said("...,...", &[&a, &b]);
    assert_eq!(
        batch,
        "axis -2 under `...` has length 2 in one operand and 4 in operand 1, f32[4,5]"
    );
}
