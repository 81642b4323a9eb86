//! Bad input gets a sentence: the op, the operands, the user's line. One case per function family.

use pullback::{
    Attention, CrossEntropy, DType, Index, Op, Reduction, Tensor, cat, catch, cross_entropy,
    einsum, losses, stack, try_apply,
};

/// Runs `f`, which must fail, and checks that the sentence holds every part and this file's name.
#[track_caller]
fn fails<R>(f: impl FnOnce() -> R, parts: &[&str]) {
    let Err(error) = catch(f) else { panic!("did not fail: {parts:?}") };
    let text = error.to_string();
    for part in parts.iter().chain(&["tests/errors.rs:"]) {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
    let at = error.location().expect("a location");
    assert!(at.file().ends_with("errors.rs"), "{at}");
}

fn f32s(shape: &[usize]) -> Tensor {
    Tensor::ones(shape)
}

#[test]
fn creation() {
    fails(|| Tensor::from_vec(vec![1.0, 2.0], [3]), &["from_vec", "2 values do not fill f64[3]"]);
    fails(|| Tensor::zeros([-1, 2]), &["zeros", "[-1, 2] is not a shape"]);
    fails(|| Tensor::zeros([usize::MAX, usize::MAX]), &["zeros", "is not a shape"]);
    fails(|| Tensor::arange_by(0.0, 1.0, 0.0), &["arange", "from 0 to 1 by 0"]);
}

#[test]
fn reading() {
    fails(|| f32s(&[2]).to_vec::<f64>(), &["to_vec", "the elements are f32, not f64", "hint"]);
    fails(|| f32s(&[2]).item::<f32>(), &["item", "f32[2] has 2 elements, not one"]);
}

#[test]
fn pointwise() {
    fails(|| f32s(&[2, 3]) + f32s(&[4]), &["add", "f32[2,3]", "f32[4]", "do not broadcast"]);
    fails(|| f32s(&[2]).maximum(f32s(&[3])), &["maximum", "f32[2]", "f32[3]"]);
    fails(|| f32s(&[2]).logical_and(true), &["and", "does not take f32"]);
    fails(|| f32s(&[2]).logical_not(), &["not", "bool or integers"]);
    fails(|| Tensor::from([true]).neg(), &["neg", "numbers"]);
}

#[test]
fn selection() {
    fails(|| Tensor::from([true, false]).select(f32s(&[3]), 0.0), &["select", "bool[2]", "f32[3]"]);
    fails(
        || f32s(&[2]).masked_fill(&Tensor::from([true, true, true]), 0.0),
        &["select", "bool[3]"],
    );
}

#[test]
fn views() {
    fails(|| f32s(&[2, 3]).reshape([4]), &["reshape", "f32[2,3] has 6 elements"]);
    fails(|| f32s(&[2, 3]).reshape([-1, -1]), &["reshape", "one -1"]);
    fails(|| f32s(&[2, 3]).reshape([-1, 4]), &["reshape", "6 elements of f32[2,3]"]);
    fails(|| f32s(&[2, 3]).permute([0, 0]), &["permute", "[0, 0]"]);
    fails(|| f32s(&[2, 3]).permute([0]), &["permute", "each axis of f32[2,3] once"]);
    fails(|| f32s(&[2, 3]).transpose(0, 2), &["transpose", "axis 2 is out of range for f32[2,3]"]);
    fails(|| f32s(&[2, 3]).expand([2, 4]), &["broadcast", "f32[2,3] does not broadcast to [2, 4]"]);
    fails(|| f32s(&[2]).unsqueeze(3), &["unsqueeze", "axis 3"]);
    fails(|| f32s(&[2]).select_at(0, 2), &["select", "index 2 is out of range"]);
    fails(|| f32s(&[2]).select_at(0, -3), &["select", "index -3 is out of range"]);
    fails(|| f32s(&[4]).narrow(0, 3, 2), &["slice", "reaches outside f32[4]"]);
    fails(|| f32s(&[2]).diagonal(), &["diagonal", "f32[2]"]);
    fails(|| f32s(&[2, 2]).diagonal_of(0, 1, 1), &["diagonal", "the two axes are the same"]);
    fails(|| f32s(&[4]).unfold(0, 5, 1), &["unfold", "windows of 5"]);
    fails(|| f32s(&[4]).unfold(0, 2, 0), &["unfold", "every 0"]);
    fails(|| f32s(&[4]).at((0, 1)), &["at", "2 entries for f32[4]"]);
    fails(|| f32s(&[4]).at(4), &["at", "index 4 is out of range"]);
    fails(|| f32s(&[4]).at((Index::Ellipsis, Index::Ellipsis)), &["at", "more than one ellipsis"]);
    fails(
        || f32s(&[4]).at(Index::Range { start: None, stop: None, step: 0 }),
        &["at", "step of 0"],
    );
    fails(|| f32s(&[4]).flip([0, 0]), &["flip", "named twice"]);
    fails(|| f32s(&[4]).put(|v| v * 2.0, &f32s(&[4])), &["put", "chain of views"]);
    fails(
        || f32s(&[4]).put(|v| v.unfold(0, 2, 1), &f32s(&[3, 2])),
        &["put", "several indices share"],
    );
}

#[test]
fn movement() {
    fails(|| f32s(&[2]).pad([(1, 1), (1, 1)]), &["pad", "2 paddings for f32[2]"]);
    fails(|| cat(&[], 0), &["cat", "at least one"]);
    fails(
        || cat(&[&f32s(&[2, 3]), &f32s(&[2, 4])], 0),
        &["cat", "f32[2,4]", "does not fit f32[2,3]"],
    );
    fails(|| stack(&[&f32s(&[2]), &f32s(&[3])], 0), &["cat", "does not fit"]);
    fails(|| f32s(&[4]).split(0, 0), &["split", "at least 1"]);
    fails(|| f32s(&[4]).split_sizes(&[1, 2], 0), &["split", "[1, 2] do not add up to the 4"]);
    fails(|| f32s(&[4]).chunk(0, 0), &["chunk", "0 pieces"]);
    fails(|| f32s(&[4, 4]).repeat([2]), &["repeat", "f32[4,4]"]);
}

#[test]
fn reductions() {
    fails(|| f32s(&[2]).sum_over(1), &["sum", "axis 1 is out of range for f32[2]"]);
    fails(|| f32s(&[2, 2]).sum_over([0, -2]), &["sum", "named twice"]);
    fails(|| f32s(&[0]).max(), &["max", "length 0"]);
    fails(|| f32s(&[0]).argmax(0), &["argmax", "length 0"]);
    fails(|| f32s(&[2]).cumsum(2), &["cumsum", "axis 2"]);
    fails(|| f32s(&[2]).sort(1, false), &["sort", "axis 1"]);
}

#[test]
fn products() {
    fails(
        || f32s(&[32, 784]).matmul(&f32s(&[512, 10])),
        &["matmul: inner dimensions differ: f32[32,784] · f32[512,10] (784 ≠ 512)"],
    );
    fails(
        || f32s(&[2, 3, 4]).matmul(&f32s(&[3, 4, 5])),
        &["matmul", "batch dimensions do not broadcast"],
    );
    fails(|| Tensor::from(1.0).matmul(&f32s(&[2])), &["matmul", "0-d"]);
    fails(|| f32s(&[2, 2]).dot(&f32s(&[2])), &["dot", "two vectors"]);
    fails(|| einsum("ij,jk->ik", &[&f32s(&[2, 3]), &f32s(&[4, 5])]), &["einsum", "j"]);
    fails(|| einsum("ij,jk->ik", &[&f32s(&[2, 3])]), &["einsum"]);
    fails(|| einsum("i?->i", &[&f32s(&[2])]), &["einsum"]);
}

#[test]
fn indexing() {
    let x = f32s(&[3, 2]);
    fails(
        || x.gather(0, &Tensor::from([[3i64, 0]])),
        &["gather", "index 3", "length 3", "f32[3,2]"],
    );
    fails(|| x.gather(0, &Tensor::from([[-4i64, 0]])), &["gather", "out of range"]);
    fails(|| x.gather(0, &Tensor::from([0i64])), &["gather", "i64[1] does not fit f32[3,2]"]);
    fails(
        || x.gather(0, &Tensor::from([[0.0, 1.0]])),
        &["gather", "indices must be integers, not f64"],
    );
    fails(|| x.index_select(0, &Tensor::from([5i64])), &["gather", "index 5"]);
    fails(|| x.index_select(0, &Tensor::from([[0i64]])), &["index_select", "must be a vector"]);
    fails(|| x.scatter_add(0, &Tensor::from([[7i64, 0]]), &f32s(&[1, 2])), &["scatter", "index 7"]);
    fails(|| x.scatter(0, &Tensor::from([[0i64, 0]]), &f32s(&[2])), &["scatter", "f32[2]"]);
    fails(|| x.index_add(0, &Tensor::from([0i64]), &f32s(&[2, 2])), &["scatter", "f32[2,2]"]);
}

#[test]
fn labels_that_are_floats() {
    let (x, y) = (f32s(&[4, 3]), Tensor::from([0.0f32, 1.0, 2.0, 1.0]));
    let cast = "cast the labels to i64 with `.cast(DType::I64)`";
    fails(
        || cross_entropy(&x, &y),
        &["cross_entropy: the target f32[4] has the shape of class labels", "[4, 3]", cast],
    );
    fails(|| cross_entropy(&f32s(&[3]), &Tensor::from(1.0)), &["cross_entropy", "f64[]", cast]);
    let pixels = f32s(&[2, 3, 5, 5]);
    fails(|| cross_entropy(&pixels, &f32s(&[2, 5, 5])), &["cross_entropy", "f32[2,5,5]", cast]);
    let mean = Reduction::Mean;
    fails(|| losses::nll(&x, &y, None, None, mean), &["nll", "not f32", "f32[4,3]", cast]);
    fails(|| losses::multi_margin(&x, &y, 1, 1.0, None, mean), &["multi_margin", cast]);
    // What the sentence says works; another shape is a matter of the shape.
    let labels = y.cast(DType::I64);
    assert!(cross_entropy(&x, &labels).item::<f32>() > 0.0);
    let error = catch(|| cross_entropy(&x, &f32s(&[5]))).unwrap_err().to_string();
    assert!(!error.contains(cast), "{error}");
}

#[test]
fn indices_are_checked_on_their_own_axis() {
    let x = Tensor::arange(0, 6).reshape([2, 3]);
    let (rows, columns) = (Tensor::from([0i64]), Tensor::from([5i64]));
    let parts = ["index 5 is out of range for axis 1 of i64[2,3], which has length 3"];
    fails(|| x.index_get(&[&rows, &columns]), &parts);
    fails(|| x.index_put(&[&rows, &columns], &rows, false), &parts);
    fails(|| x.index_get(&[&rows, &Tensor::from([-4i64])]), &["index_get", "index -4"]);
    fails(|| x.index_get(&[&Tensor::from([0.5])]), &["index_get", "integers or masks, not f64"]);
    fails(|| x.index_get(&[&Tensor::from([true, false, true])]), &["the mask bool[3]"]);
    fails(|| x.index_get(&[&Tensor::from(true)]), &["the mask bool[]"]);
    assert_eq!(x.index_get(&[&Tensor::from([-1i64]), &Tensor::from([-3i64])]).item::<i64>(), 3);
    let mask = x.remainder(2).eq(1);
    assert_eq!(x.index_get(&[&mask]).to_vec::<i64>(), [1, 3, 5]);

    fails(|| f32s(&[3]).topk(4, 0, true), &["topk", "4", "f32[3]"]);
    fails(|| Tensor::from(1.0).topk(2, 0, true), &["topk", "f64[]"]);
    fails(|| f32s(&[3]).kthvalue(4, 0), &["kthvalue", "k must be in 1..=3"]);
    fails(|| Tensor::from(1.0).kthvalue(2, 0), &["kthvalue", "k must be in 1..=1"]);
    fails(|| f32s(&[4]).at(usize::MAX), &["at", "out of range"]);
    assert_eq!(f32s(&[4]).at(1..=isize::MAX).shape(), [3]);
    assert_eq!(f32s(&[4]).at(1..=usize::MAX).shape(), [3]);
    fails(|| f32s(&[4]).reshape([usize::MAX]), &["reshape", "4 elements"]);
    fails(|| f32s(&[4]).narrow(0, -10, 2), &["narrow", "start -10", "f32[4]"]);
    fails(|| Tensor::from([0i64, 3]).one_hot(3, DType::F32), &["one_hot", "index 3", "3 classes"]);
    fails(|| Tensor::from([-1i64]).one_hot(3, DType::F32), &["one_hot", "index -1"]);
    fails(|| f32s(&[2]).one_hot(3, DType::F32), &["one_hot", "integers, not f32"]);
}

#[test]
fn lengths_and_scalars_that_do_not_fit() {
    fails(|| f32s(&[2]).expand([-2]), &["expand", "-2 is not a length"]);
    fails(|| f32s(&[2]).expand([-1, 2]), &["expand", "-1", "axis 0 does not exist"]);
    assert_eq!(f32s(&[1, 2]).expand([3, -1]).shape(), [3, 2]);
    fails(|| Tensor::from([1u8]) + 300, &["300 does not fit u8", "u8[1]"]);
    fails(|| Tensor::from([1u8]).lt(-1), &["-1 does not fit u8"]);
    fails(|| 300i64 * Tensor::from([1u8]), &["300 does not fit u8"]);
    fails(|| Tensor::from([1i32]) + (1i64 << 40), &["1099511627776 does not fit i32"]);
    fails(|| Tensor::from([1i64]) + usize::MAX, &["does not fit i64"]);
    assert_eq!((Tensor::from([1u8]) + 254).to_vec::<u8>(), [255]);
    let wrong = Tensor::ones([5]);
    let x = f32s(&[2, 4, 3]);
    fails(|| x.batch_norm(Some(&wrong), None, 1e-5), &["f32[5]", "4 channels"]);
    fails(|| x.group_norm(2, None, Some(&wrong), 1e-5), &["f32[5]", "4 channels"]);
    fails(|| f32s(&[3]).attention(&x, &x, Attention::new()), &["attention", "f32[3]"]);
    assert_eq!(Tensor::from(1.0).unflatten(0, [1, 1]).shape(), [1, 1]);
}

#[test]
fn norms_and_losses() {
    let log_p = f32s(&[3, 2]);
    fails(
        || losses::nll(&log_p, &Tensor::from([0i64, 1]), None, None, Reduction::Mean),
        &["nll", "f32[3,2] requires classes of shape [3], not i64[2]"],
    );
    fails(
        || losses::nll(&log_p, &Tensor::from([0i64, 1, 0]), Some(&log_p), None, Reduction::Mean),
        &["nll", "one element per class (2)"],
    );
    fails(|| f32s(&[2, 3]).softmax(2), &["softmax", "axis 2"]);
    fails(
        || f32s(&[2, 3]).layer_norm(&f32s(&[4]), &f32s(&[4]), 1e-5),
        &["layer_norm", "f32[4]", "f32[2,3]"],
    );
    fails(
        || cross_entropy(&f32s(&[2, 3]), &Tensor::from([0i64, 1, 2])),
        &["cross_entropy", "f32[2,3]", "i64[3]"],
    );
    fails(
        || cross_entropy(&f32s(&[2, 3]), &Tensor::from([0i64, 3])),
        &["cross_entropy", "index 3", "length 3"],
    );
    let smooth = CrossEntropy::new().label_smoothing(2.0);
    fails(
        || smooth.of(&f32s(&[2, 3]), &Tensor::from([0i64, 1])),
        &["cross_entropy", "between 0 and 1, not 2"],
    );
    let weighted = CrossEntropy::new().weight(&f32s(&[2]));
    fails(
        || weighted.of(&f32s(&[2, 3]), &Tensor::from([0i64, 1])),
        &["cross_entropy", "one element per class (3)"],
    );
}

#[test]
fn ops_as_data() {
    let error = try_apply("tanh".parse::<Op>().unwrap(), &[]).unwrap_err().to_string();
    assert!(error.contains("tanh: takes 1 operands, not 0"), "{error}");
    let x = Tensor::from([1i64]);
    let error = try_apply(Op::Dot, &[&x, &x]).unwrap_err().to_string();
    assert!(error.contains("matmul") && error.contains("i64[1]"), "{error}");
    assert!("tanhh".parse::<Op>().is_err());
    let error = try_apply(Op::Cast(DType::F32), &[&x, &x]).unwrap_err().to_string();
    assert!(error.contains("cast"), "{error}");
}

#[test]
fn a_panic_outside_catch_carries_the_same_sentence() {
    let caught = std::panic::catch_unwind(|| f32s(&[2]).reshape([3])).unwrap_err();
    let text = caught.downcast_ref::<String>().expect("a message");
    assert!(
        text.starts_with("reshape: f32[2] has 2 elements") && text.contains("tests/errors.rs:"),
        "{text}"
    );
}

#[test]
fn other_panics_pass_through_catch() {
    let caught = std::panic::catch_unwind(|| catch(|| panic!("mine"))).unwrap_err();
    assert_eq!(caught.downcast_ref::<&str>(), Some(&"mine"));
}
