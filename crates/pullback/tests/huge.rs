//! Strides, lengths and counts far beyond the data: right, or an error, and no memory for what is
//! not there.

use pullback::*;

#[test]
fn one_window_is_the_same_with_any_stride() {
    let (x, w) = (Tensor::ones([1, 4, 5]), Tensor::ones([3, 4, 4]));
    for stride in [11, 1 << 40, isize::MAX as usize, 1 << 63, usize::MAX] {
        for (padding, want) in [(0usize, 16.0), (1, 12.0), (2, 8.0), (3, 4.0)] {
            let options = Conv::new().stride(stride).padding(padding);
            let y = x.conv1d(&w, None, &options);
            assert_eq!(y.shape(), [1, 3, 1]);
            assert_eq!(y.to_vec::<f32>(), [want; 3], "stride {stride}, padding {padding}");
            let dx = grad(|x: &Tensor| x.conv1d(&w, None, &options).sum())(&x);
            let dw = grad(|w: &Tensor| x.conv1d(w, None, &options).sum())(&w);
            for d in [dx, dw] {
                let sum = d.sum().item::<f32>();
                assert_eq!(sum, 3.0 * want, "stride {stride}, padding {padding}");
            }
        }
    }
}

#[test]
fn a_wide_dilation_sees_what_is_there() {
    let (x, w) = (Tensor::ones([32, 256, 8]), Tensor::ones([8, 256, 2]));
    let y = x.conv1d(&w, None, &Conv::new().dilation(60_000).padding(30_000));
    assert_eq!(y.shape(), [32, 8, 8]);
    // Both taps lie in the padding.
    assert!(y.to_vec::<f32>().iter().all(|&y| y == 0.0));
}

#[test]
fn empty_results_may_have_long_axes() {
    let empty = Tensor::zeros([0, 2, 3]);
    assert_eq!(empty.adaptive_avg_pool1d(1usize << 39).shape(), [0, 2, 1 << 39]);
    let long = Tensor::zeros([0usize, 2, 1 << 38]);
    assert_eq!(long.avg_pool1d(&Pool::new(1)).shape(), [0, 2, 1 << 38]);
    assert_eq!(long.max_pool1d(&Pool::new(2).stride(1)).shape(), [0, 2, (1 << 38) - 1]);
}

#[test]
fn lists_beyond_memory_are_refused() {
    let (x, image) = (Tensor::from([1.0, 2.0, 3.0]), Tensor::ones([1, 1, 3]));
    let errors = [
        catch(|| drop(x.histc(1 << 39, None))).unwrap_err(),
        catch(|| drop(x.bin_edges(1 << 39, None))).unwrap_err(),
        catch(|| drop(image.adaptive_avg_pool1d(1usize << 39))).unwrap_err(),
    ];
    for error in errors {
        assert!(error.to_string().contains("more than"), "{error}");
    }
}

#[test]
fn attention_without_queries_needs_no_memory() {
    let keys = Tensor::ones([1, 1, 1, 8]).expand([1usize, 1, 1 << 40, 8]);
    let y = Tensor::ones([1, 1, 0, 8]).attention(&keys, &keys, Attention::new());
    assert_eq!(y.shape(), [1, 1, 0, 8]);
    // Nothing comes back from an empty result, however large the scores are.
    let (q, none) = (Tensor::full([1, 1, 4, 8], 1e9f32), Tensor::zeros([1, 1, 4, 0]));
    let d = grad(|q: &Tensor| q.attention(q, &none, Attention::new()).sum())(&q);
    assert_eq!(d.to_vec::<f32>(), [0.0; 32]);
}

/// Numbers of a user's that would make lists beyond memory: a sentence that names the op and this
/// file.
#[test]
fn numbers_that_no_memory_holds_are_refused() {
    const MANY: usize = 1 << 45;
    let sixty = Tensor::ones([60]);
    let (x, image) = (Tensor::from([1.0, 2.0, 3.0]), Tensor::ones([1, 1, 3]));
    let long = Tensor::ones([1]).expand([MANY]);
    let key = Key::new(0);
    let times = Tensor::from([MANY as i64]);
    type Call<'a> = (&'a str, Box<dyn Fn() + 'a>);
    let calls: Vec<Call> = vec![
        ("combinations", Box::new(|| drop(sixty.combinations(30, false)))),
        ("combinations", Box::new(|| drop(sixty.combinations(60, true)))),
        ("combinations", Box::new(|| drop(sixty.combinations(MANY, true)))),
        ("repeat", Box::new(|| drop(x.repeat([MANY])))),
        ("repeat_each", Box::new(|| drop(x.repeat_each(MANY, 0)))),
        ("repeat_by", Box::new(|| drop(x.repeat_by(&times, 0)))),
        ("tile", Box::new(|| drop(x.tile([MANY])))),
        ("split", Box::new(|| drop(long.split(1, 0)))),
        ("split_into", Box::new(|| drop(long.split_into(MANY, 0)))),
        ("chunk", Box::new(|| drop(long.chunk(MANY, 0)))),
        ("unbind", Box::new(|| drop(long.unbind(0)))),
        ("split_n", Box::new(|| drop(key.split_n(MANY)))),
        ("pad", Box::new(|| drop(x.pad([(MANY, 0)])))),
        ("pad_by", Box::new(|| drop(x.pad_by([(MANY, 0)], PadMode::Replicate)))),
        ("interpolate", Box::new(|| drop(Interpolate::to([MANY]).of(&image)))),
        ("upsample", Box::new(|| drop(image.upsample_nearest(MANY)))),
        ("adaptive_avg_pool1d", Box::new(|| drop(image.adaptive_avg_pool1d(MANY)))),
        ("adaptive_max_pool1d", Box::new(|| drop(image.adaptive_max_pool1d(MANY)))),
        ("histc", Box::new(|| drop(x.histc(MANY, None)))),
        ("bincount", Box::new(|| drop(Tensor::from([1i64]).bincount(None, MANY)))),
        ("one_hot", Box::new(|| drop(Tensor::from([1i64]).one_hot(MANY, DType::F32)))),
        ("vander", Box::new(|| drop(linalg::vander(&x, Some(MANY))))),
        ("fft", Box::new(|| drop(fft::rfft(&x, Some(MANY), 0, fft::Norm::Backward)))),
        ("fftfreq", Box::new(|| drop(fft::fftfreq(MANY, 1.0)))),
        ("arange", Box::new(|| drop(Tensor::arange(0, MANY as i64)))),
        ("linspace", Box::new(|| drop(Tensor::linspace(0.0, 1.0, MANY)))),
        ("eye", Box::new(|| drop(Tensor::eye(1 << 23)))),
        ("full", Box::new(|| drop(Tensor::full([MANY], 1.0f32)))),
        ("tril_indices", Box::new(|| drop(Tensor::tril_indices(1 << 23, 1 << 23, 0)))),
        ("uniform", Box::new(|| drop(key.uniform([MANY], DType::F32, 0.0, 1.0)))),
        ("normal", Box::new(|| drop(key.normal([MANY], DType::F32, 0.0, 1.0)))),
        ("permutation", Box::new(|| drop(key.permutation(MANY)))),
        ("to_vec", Box::new(|| drop(long.to_vec::<f32>()))),
        ("deep_clone", Box::new(|| drop(long.deep_clone()))),
        ("diag", Box::new(|| drop(x.diag(MANY as isize)))),
        (
            "affine_grid",
            Box::new(|| drop(Tensor::ones([1, 2, 3]).affine_grid(&[1, 1, MANY, 1], false))),
        ),
    ];
    for (name, call) in &calls {
        let error = catch(call).expect_err(name);
        let said = error.to_string();
        assert!(said.contains("huge.rs"), "{name} names no line: {said}");
    }
}

#[test]
fn shapes_are_multiplied_with_care() {
    const HALF: usize = 1 << 33;
    let x = Tensor::ones([1]);
    for shape in [vec![HALF, HALF], vec![usize::MAX, 2], vec![0, usize::MAX, usize::MAX]] {
        assert!(catch(|| x.expand(&shape[..])).is_err(), "{shape:?}");
        assert!(catch(|| Tensor::zeros(&shape[..])).is_err(), "{shape:?}");
    }
    assert!(catch(|| x.expand([HALF]).outer(&x.expand([HALF]))).is_err());
    assert!(catch(|| x.expand([HALF]).kron(&x.expand([HALF]))).is_err());
}

/// Programs whose sizes cannot be counted are refused where they are checked, and nothing behind
/// that counts them.
#[test]
fn texts_with_sizes_beyond_any_memory() {
    let huge = "program (a: f32[4294967296,4294967296,4294967296]) {\n  let b: f32[4294967296,4294967296,4294967296] = neg a\n  return b\n}\n";
    let program: Program = huge.parse().expect("it can be read");
    assert!(program.verify().unwrap_err().to_string().contains("the addressable size"));
    let many = "program (a: f32[1152921504606846975], b: f32[1152921504606846975], c: f32[1152921504606846975]) {\n  return a\n}\n";
    let program: Program = many.parse().expect("it can be read");
    assert!(program.verify().unwrap_err().to_string().contains("the addressable size"));
    let scan = "program (a: f32[2]) {\n  let b: f32[2] = scan{length=1,reverse=false,shared=18446744073709551615,carry=18446744073709551615,kept=0,body=(a: f32[]) { return a }} a\n  return b\n}\n";
    if let Ok(program) = scan.parse::<Program>() {
        assert!(program.verify().is_err());
    }
    let region = "program (a: f32[2]) {\n  let b: f32[4294967296,4294967296,4294967296] = region{shape=[4294967296,4294967296,4294967296],inner=0,inputs=[f32[2]@[0,0,0]+0],body=[v0 = load 0],outputs=[v0]} a\n  return b\n}\n";
    if let Ok(program) = region.parse::<Program>() {
        assert!(program.verify().unwrap_err().to_string().contains("the addressable size"));
    }
}

/// Behind an operand that is flipped, a part begins before its first element: no number may wrap on
/// the way there.
#[test]
fn a_part_of_a_flipped_operand_in_a_branch() {
    let f = |(test, x): &(Tensor, Tensor)| {
        let head = |x: &Tensor| (x.at(1..3), x.tanh());
        cond(test, head, |x: &Tensor| (x.at(0..2), x.clone()), &x.flip(0))
    };
    let x = Tensor::from([1.0, 2.0, 3.0]);
    for (test, want) in [(true, [2.0, 1.0]), (false, [3.0, 2.0])] {
        let given = (Tensor::from(test), x.clone());
        assert_eq!(f(&given).0.to_vec::<f64>(), want);
        assert_eq!(jit(f).of(&given).0.to_vec::<f64>(), want);
    }
}
