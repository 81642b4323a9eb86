//! Strides, lengths and counts far beyond the data: right, or an error, and no memory for what is not there.

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
        assert!(error.to_string().contains("are more than"), "{error}");
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
