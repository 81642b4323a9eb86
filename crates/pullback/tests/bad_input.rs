//! Every public function on operands of the wrong rank, dtype, length and axis: it works, or it is
//! an error that names this file. Nothing else may happen.

use pullback::losses::*;
use pullback::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Ranks 0 to 4, lengths 0, and every kind of dtype.
fn operands() -> Vec<Tensor> {
    vec![
        Tensor::from(1.5),
        Tensor::from(3i64),
        Tensor::from(true),
        Tensor::ones([3]),
        Tensor::zeros([0]),
        Tensor::from([0i64, 7]),
        Tensor::from([-1i64, 1, 0]),
        Tensor::from([true, false, true]),
        Tensor::ones([2, 3]),
        Tensor::ones_with([3, 2], DType::F16),
        Tensor::ones([2, 0]),
        Tensor::from([[1u8, 0, 2], [0, 1, 255]]),
        Tensor::ones([2, 3, 4]),
        Tensor::ones_with([1, 4, 3, 2], DType::F64),
    ]
}

const AXES: [isize; 7] = [0, 1, 2, -1, -3, isize::MAX, isize::MIN];

/// Runs each call; gives the number of errors.
#[track_caller]
fn all_fine(calls: &[(&str, &dyn Fn())], with: &str, wrong: &mut Vec<String>) -> usize {
    let mut refused = 0;
    for (name, call) in calls {
        match catch_unwind(AssertUnwindSafe(|| catch(call))) {
            Err(_) => wrong.push(format!("{name} on {with} panicked without a sentence")),
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                refused += 1;
                if !error.location().is_some_and(|at| at.file().ends_with("bad_input.rs")) {
                    wrong.push(format!("{name} on {with} names a library line: {error}"));
                }
            }
        }
    }
    refused
}

macro_rules! calls {
    ($($call:expr;)*) => {
        &[$((stringify!($call), &|| { let _ = $call; })),*]
    };
}

#[track_caller]
fn none_wrong(wrong: Vec<String>) {
    let few: Vec<&String> = wrong.iter().take(40).collect();
    assert!(wrong.is_empty(), "{} are wrong:\n{few:#?}", wrong.len());
}

#[test]
fn functions_of_one_tensor() {
    let (mut wrong, mut refused) = (Vec::new(), 0);
    for x in operands() {
        refused += all_fine(
            calls! {
                x.neg(); x.abs(); x.sign(); x.floor(); x.logical_not(); x.square(); x.sqrt(); x.recip(); x.exp();
                x.relu(); x.gelu(); x.silu(); x.sigmoid(); x.erf(); x.logit(); x.sinc(); x.entr(); x.ndtr(); x.frac();
                x.nan_to_num(0.0, 1.0, -1.0); x.round_to(i32::MIN); x.round_to(i32::MAX); x.round_to(400);
                x.round_to(2); x.deg2rad(); x.powi(i32::MIN); x.powi(3); x.powf(0.5); x.clamp(0, 1); x.clamp(-0.5, 0.5);
                x.is_nan(); x.is_inf(); x.is_finite(); x.leaky_relu(0.1); x.elu(1.0); x.celu(0.0); x.selu();
                x.softplus(0.0, 20.0); x.log_sigmoid(); x.mish(); x.softsign(); x.tanhshrink(); x.softshrink(0.5);
                x.hardshrink(0.5); x.hardtanh(-1.0, 1.0); x.relu6(); x.hardsigmoid(); x.hardswish();
                x.threshold(0.1, 20.0);
                x.sum(); x.mean(); x.prod(); x.max(); x.min(); x.any(); x.all(); x.var(); x.std(); x.norm();
                x.logsumexp(); x.t(); x.squeeze(); x.diagonal(); x.trace(); x.cast(DType::U8); x.cast(DType::BF16);
                x.deep_clone(); x.contiguous(); x.to_vec::<f32>(); x.item::<f64>();
                x.reshape([-1]); x.reshape([7]); x.reshape([usize::MAX]); x.reshape([-2]); x.reshape([0, -1]);
                x.reshape([isize::MAX, isize::MAX]); x.permute([0]); x.permute([1, 0]); x.permute([0, 0]);
                x.permute(Vec::<isize>::new()); x.expand([2, 3]); x.expand([-1, -1, -1]); x.expand([-5]);
                x.expand([usize::MAX, usize::MAX, 3]); x.expand(()); x.repeat([]); x.repeat([2, 2]); x.repeat([0; 5]);
                x.repeat([usize::MAX, 3, 3, 3]); x.pad([]); x.pad([(1, 1)]); x.pad([(usize::MAX, 1)]);
                x.pad([(1, 0), (usize::MAX, usize::MAX)]); x.pad_with([(1, 1), (0, 2)], 300);
                x.pad_by([(1, 1)], PadMode::Reflect); x.pad_by([(9, 1), (0, 1)], PadMode::Circular);
                x.pad_by([(1, 0), (usize::MAX, 1)], PadMode::Replicate); x.pad_by([(2, 2)], PadMode::Replicate);
                x.im2col([1, 1], [1, 1], [0, 0], [1, 1]); x.im2col([0, 1], [1, 1], [0, 0], [1, 1]);
                x.im2col([9, 9], [usize::MAX, 1], [1, 1], [2, 2]); x.im2col([2, 2], [1, 1], [usize::MAX, 1], [1, 1]);
                x.pixel_shuffle(0); x.pixel_shuffle(2); x.pixel_shuffle(usize::MAX); x.pixel_unshuffle(0);
                x.pixel_unshuffle(2); x.pixel_unshuffle(usize::MAX); x.diag(0); x.diag(-7); x.diag(isize::MAX);
                x.diag_embed(1, 0, 1); x.diag_embed(0, 0, 0); x.diag_embed(isize::MIN, 0, 1); x.tril(0);
                x.triu(isize::MAX); x.tril(isize::MIN); x.one_hot(3, DType::F32); x.one_hot(0, DType::I64);
                x.at(0); x.at(9); x.at(usize::MAX); x.at(isize::MIN); x.at((0, 1..3)); x.at((.., .., 0));
                x.at(0..=isize::MAX); x.at(5..7); x.at((..).by(0)); x.at((..).by(isize::MIN)); x.at((..).by(isize::MAX));
                x.at((0, 0, 0, 0, 0)); x.at(Index::NewAxis); x.group_norm(0, None, None, 1e-5);
                x.group_norm(3, None, None, 1e-5); x.batch_norm(None, None, 1e-5); hstack(&[&x]); vstack(&[&x, &x]);
                dstack(&[&x]); column_stack(&[&x, &x]); block_diag(&[&x, &x]); meshgrid(&[&x, &x]); einsum("ii->i", &[&x]);
                einsum("ij->", &[&x]); einsum("...a->a...", &[&x]); x.zeros_like(); x.full_like(3); x.full_like(0.5);
                x.unflatten(0, [1, 1]); x.unflatten(0, [-1, 1]); x.unflatten(0, [-1, -1]); x.unflatten(1, [usize::MAX]);
                &x + 300; &x - 1i64; &x * (1i64 << 40); &x + usize::MAX; x.lt(-1); x.eq(0.5); x.logical_and(true);
                x.heaviside(0.5); x.trunc_div(0); x.floor_div(2); x.remainder(0.5); x.fmod(3); x.maximum(2);
            },
            &x.spec().to_string(),
            &mut wrong,
        );
        for axis in AXES {
            refused += all_fine(
                calls! {
                    x.sum_over(axis); x.mean_over(axis); x.prod_keep(axis); x.max_over([axis, 0]); x.var_over(axis);
                    x.std_keep(axis); x.norm_keep(axis); x.logsumexp_over([0, axis]); x.any_over(axis); x.argmax(axis);
                    x.argmin(axis); x.max_at(axis); x.min_at(axis); x.cumsum(axis); x.cumprod(axis); x.cummax(axis);
                    x.logcumsumexp(axis); x.sort(axis, true); x.argsort(axis, false); x.topk(0, axis, true);
                    x.topk(2, axis, false); x.topk(usize::MAX, axis, true); x.kthvalue(0, axis); x.kthvalue(1, axis);
                    x.kthvalue(usize::MAX, axis); x.median(axis); x.softmax(axis); x.log_softmax(axis); x.glu(axis);
                    x.transpose(0, axis); x.move_axis(axis, 0); x.unsqueeze(axis); x.squeeze_axis(axis);
                    x.flatten(0, axis); x.flatten(axis, 0); x.unflatten(axis, [1, -1]); x.flip(axis); x.flip([axis, axis]);
                    x.select_at(axis, 0); x.select_at(0, axis); x.narrow(axis, 0, 1); x.narrow(0, axis, 1);
                    x.narrow(axis, -10, 2); x.narrow(axis, 1, usize::MAX); x.diagonal_of(axis, 0, 1);
                    x.diagonal_of(0, axis, 0); x.unfold(axis, 1, 1); x.unfold(axis, 0, 1); x.unfold(axis, usize::MAX, 1);
                    x.unfold(axis, 2, usize::MAX); x.split(2, axis); x.split(0, axis); x.split(usize::MAX, axis);
                    x.split_sizes(&[1, usize::MAX, 1], axis); x.split_sizes(&[], axis); x.chunk(2, axis);
                    x.chunk(usize::MAX, axis); x.unbind(axis); x.roll(1, axis); x.roll(isize::MIN, axis);
                    x.repeat_each(2, axis); x.repeat_each(usize::MAX, axis); x.diff(1, axis); x.diff(usize::MAX, axis);
                    x.vector_norm(1.0, axis); x.vector_norm(3.0, [axis, axis]); x.vector_norm_keep(0.0, axis);
                    x.vector_norm(f64::INFINITY, axis); x.vector_norm(f64::NAN, axis); x.normalize(2.0, axis, 1e-9);
                    x.tril(axis); x.diag(axis); stack(&[&x, &x], axis); cat(&[&x, &x], axis); x.index_fill(axis, &x, 1);
                },
                &format!("{} along {axis}", x.spec()),
                &mut wrong,
            );
        }
    }
    assert!(refused > 1000, "only {refused} refused");
    none_wrong(wrong);
}

#[test]
fn functions_of_two_tensors() {
    let (mut wrong, mut refused) = (Vec::new(), 0);
    let all = operands();
    let r = Reduction::Mean;
    for (x, y) in all.iter().flat_map(|x| all.iter().map(move |y| (x, y))) {
        refused += all_fine(
            calls! {
                x + y; x - y; x * y; x / y; x % y; x.pow(y); x.atan2(y); x.maximum(y); x.floor_div(y);
                x.logical_xor(y); x.eq(y); x.lt(y); x.select(y, x); x.select(1, y); x.masked_fill(y, 0);
                x.lerp(y, 0.5); x.fmax(y); x.hypot(y); x.logaddexp(y); x.logaddexp2(y); x.xlogy(y); x.xlog1py(y);
                x.trunc_div(y); x.heaviside(y); x.addcmul(y, y, 2.0); x.addcdiv(x, y, 2.0); x.prelu(y);
                x.matmul(y); x.dot(y); x.outer(y); x.inner(y); x.kron(y); x.addmm(y, y, 0.0, 1.0); x.addmv(y, x, 1.0, 2.0);
                x.addr(y, y, 1.0, 1.0); x.baddbmm(y, x, 1.0, 1.0); x.addbmm(y, y, 1.0, 1.0); x.linear(y, None);
                x.linear(x, Some(y)); x.bilinear(y, x, None); x.bilinear(x, x, Some(y)); x.tensordot(y, &[0], &[0]);
                x.tensordot(y, &[-1, 0], &[0]); x.tensordot(y, &[9], &[1]); x.tensordot(y, &[0, 0], &[0, 1]);
                x.tensordot(y, &[], &[]); x.dist(y, 2.0); x.cdist(y, 2.0); x.pairwise_distance(y, 1.0, 1e-6);
                x.take(y); x.masked_select(y); x.index_get(&[y]); x.index_get(&[y, y]); x.index_get::<&Tensor>(&[]);
                x.index_put(&[y], x, true); x.index_put(&[x], y, false); x.index_put::<&Tensor>(&[], y, false);
                x.layer_norm(y, y, 1e-5); x.rms_norm(y, 1e-5); x.batch_norm(Some(y), None, 1e-5);
                x.batch_norm(None, Some(y), 1e-5); x.group_norm(1, Some(y), None, 1e-5); x.group_norm(1, None, Some(y), 1e-5);
                x.channel_norm(y, y, None, None, 1e-5); x.attention(y, y, Attention::new().causal());
                x.attention(x, x, Attention::new().mask(y)); x.attention(x, y, Attention::new()); x.attention(y, x, Attention::new().grouped()); cross_entropy(x, y);
                CrossEntropy::new().ignore_index(0).label_smoothing(0.1).of(x, y);
                CrossEntropy::new().weight(y).of(x, &Tensor::from([0i64, 1]));
                einsum("ij,jk->ik", &[x, y]); einsum("i,i", &[x, y]); einsum("...i,...i->...", &[x, y]);
                hstack(&[x, y]); vstack(&[x, y]); dstack(&[x, y]); column_stack(&[x, y]); block_diag(&[x, y]);
                meshgrid(&[x, y]); x.put(|v| v.narrow(0, 0, 1), y);
                mse(x, y, r); l1(x, y, r); huber(x, y, 1.0, r); smooth_l1(x, y, 0.0, r); smooth_l1(x, y, 1.0, r);
                kl_div(x, y, true, r); kl_div(x, y, false, r); binary_cross_entropy(x, y, None, r);
                binary_cross_entropy(x, x, Some(y), r); binary_cross_entropy_with_logits(x, y, None, None, r);
                binary_cross_entropy_with_logits(x, x, Some(y), None, r);
                binary_cross_entropy_with_logits(x, x, None, Some(y), r); nll(x, y, None, None, r);
                nll(x, y, Some(x), Some(0), r); nll(x, &Tensor::from([0i64, 1]), Some(y), None, r);
                gaussian_nll(x, y, y, true, 1e-6, r); poisson_nll(x, y, true, true, 1e-8, r);
                hinge_embedding(x, y, 1.0, r); margin_ranking(x, y, y, 0.0, r); soft_margin(x, y, r);
                cosine_embedding(x, y, y, 0.0, r); cosine_embedding(x, x, y, 0.0, Reduction::None);
                triplet_margin(x, y, y, (1.0, 2.0, 1e-6), true, r);
            },
            &format!("{} and {}", x.spec(), y.spec()),
            &mut wrong,
        );
        for axis in AXES {
            refused += all_fine(
                calls! {
                    x.gather(axis, y); x.take_along(y, axis); x.index_select(axis, y); x.scatter(axis, y, x);
                    x.scatter_add(axis, x, y); x.scatter_mul(axis, y, y); x.scatter_max(axis, y, x);
                    x.index_add(axis, y, x); x.index_copy(axis, x, y); x.index_fill(axis, y, 300);
                    x.index_fill(axis, &Tensor::from([0i64]), y); cat(&[x, y], axis); stack(&[x, y], axis);
                    x.cosine_similarity(y, axis, 1e-8); x.cross(y, axis); x.vecdot(y, axis);
                    x.tensordot(y, &[axis], &[0]);
                },
                &format!("{} and {} along {axis}", x.spec(), y.spec()),
                &mut wrong,
            );
        }
    }
    assert!(refused > 5000, "only {refused} refused");
    none_wrong(wrong);
}

#[test]
fn pieces_statistics_and_masks_of_one_tensor() {
    let (mut wrong, mut refused) = (Vec::new(), 0);
    for x in operands() {
        refused += all_fine(
            calls! {
                x.at_least(0); x.at_least(3); x.at_least(usize::MAX); x.tile([]); x.tile([2, 2]); x.tile([usize::MAX; 5]);
                x.sum_to_shape(()); x.sum_to_shape([2, 1]); x.sum_to_shape([-1]); x.sum_to_shape([7, 7, 7, 7, 7]);
                x.combinations(0, true); x.combinations(2, false); x.combinations(usize::MAX, false);
                x.as_strided([2], &[1], 0); x.as_strided([2, 2], &[1], 0); x.as_strided([2], &[usize::MAX], 1);
                x.as_strided([0], &[1], usize::MAX); x.as_strided([isize::MAX], &[0], 0); x.as_strided([-1], &[1], 0);
                x.cov(1.0, None, None); x.cov(f64::NAN, Some(&x), None); x.corrcoef(); x.bincount(None, 0);
                x.bincount(Some(&x), usize::MAX); x.histc(0, None); x.histc(3, None); x.histc(usize::MAX, None);
                x.histc(2, Some((1.0, 0.0))); x.histc(2, Some((f64::NAN, 0.0))); x.histc(2, Some((0.0, f64::INFINITY)));
                x.bin_edges(3, None); x.bin_edges(usize::MAX, Some((0.0, 1.0))); x.unique(); x.unique_consecutive();
                x.nonzero(); x.unravel_index(&[]); x.unravel_index(&[0, 2]); x.unravel_index(&[usize::MAX, 2]);
                x.frexp(); x.sign_bit(); x.angle(); x.float_power(2); x.float_power(0.5); x.ldexp(2); x.ldexp(0.5);
                cartesian_prod(&[&x, &x]); broadcast_tensors(&[&x]);
            },
            &x.spec().to_string(),
            &mut wrong,
        );
        for axis in AXES {
            refused += all_fine(
                calls! {
                    x.split_into(2, axis); x.split_into(0, axis); x.split_into(usize::MAX, axis); x.split_at(&[], axis);
                    x.split_at(&[1, -1, isize::MAX, isize::MIN], axis); x.move_axes([axis], [0]); x.move_axes([0, axis], [1]);
                    x.move_axes([0, 1], [axis, axis]); x.squeeze_axes([axis]); x.squeeze_axes([axis, axis]);
                    x.rot90(1, 0, axis); x.rot90(isize::MIN, axis, axis); x.quantile(0.5, axis, QuantileInterpolation::Linear);
                    x.quantile(2.0, axis, QuantileInterpolation::Lower); x.quantile(f64::NAN, axis, QuantileInterpolation::Lower);
                    x.nan_quantile(1.0, axis, QuantileInterpolation::Nearest); x.quantile(&x, axis, QuantileInterpolation::Midpoint);
                    x.nan_median(axis); x.mode(axis); x.min_max(axis); x.count_nonzero([axis, 0]); x.nan_sum(axis);
                    x.nan_mean([axis]); x.unique_over(axis); x.unique_consecutive_over(axis);
                    x.trapezoid(Spacing::Even(1.0), axis); x.cumulative_trapezoid(Spacing::At(&x), axis);
                    x.gradient(Spacing::Even(0.0), axis, 1); x.gradient(Spacing::At(&x), axis, 2);
                    x.gradient(Spacing::Even(1.0), axis, 3); x.renorm(2.0, axis, 1.0); x.renorm(0.0, axis, 1.0);
                    x.renorm(2.0, axis, f64::NAN);
                },
                &format!("{} along {axis}", x.spec()),
                &mut wrong,
            );
        }
    }
    assert!(refused > 1000, "only {refused} refused");
    none_wrong(wrong);
}

#[test]
fn places_and_masks_of_two_tensors() {
    let (mut wrong, mut refused) = (Vec::new(), 0);
    let all = operands();
    for (x, y) in all.iter().flat_map(|x| all.iter().map(move |y| (x, y))) {
        refused += all_fine(
            calls! {
                x.index_get(&[None, Some(y)]); x.index_get(&[Some(y), None, Some(y)]); x.index_get(&[None::<&Tensor>; 6]);
                x.index_put(&[None, Some(y)], x, true); x.index_put(&[None, Some(x)], y, false);
                x.put_flat(y, x, true); x.put_flat(x, y, false); x.masked_scatter(y, x); x.masked_scatter(x, y);
                x.as_strided_put(y, &[1], 0); x.as_strided_put(y, &[1, 1], 0); x.cov(1.0, Some(y), Some(y));
                x.bincount(Some(y), 0); x.histogram(y, None); x.histogram(&Tensor::from([0.0, 1.0]), Some(y));
                x.histogram_nd(&[y, y], None); x.histogram_nd(&[y, y, y], Some(y)); x.searchsorted(y, true);
                x.bucketize(y, false); x.is_in(y); x.next_after(y); x.is_close(y, 0.1, 0.1, true); x.gcd(y); x.lcm(y);
                x.shift_left(y); x.shift_right(y); x.ldexp(y); x.float_power(y); cartesian_prod(&[x, y]);
                broadcast_tensors(&[x, y, x]); x.trapezoid(Spacing::At(y), 0); x.gradient(Spacing::At(y), -1, 1);
                x.repeat_by(y, 0); x.quantile(y, 0, QuantileInterpolation::Linear); x.pdist(2.0);
                x.segment_reduce(ScatterReduction::Sum, y, 0, None); x.segment_reduce(ScatterReduction::Mean, y, 1, Some(1.0));
            },
            &format!("{} and {}", x.spec(), y.spec()),
            &mut wrong,
        );
        for axis in [0, -1, 1, isize::MIN] {
            refused += all_fine(
                calls! {
                    x.scatter_reduce(axis, y, x, ScatterReduction::Mean, false); x.scatter_reduce(axis, y, y, ScatterReduction::Max, true);
                    x.index_reduce(axis, y, x, ScatterReduction::Prod, true); x.index_reduce(axis, x, y, ScatterReduction::Min, false);
                    masked::sum(x, y, axis); masked::prod(x, y, axis); masked::max(x, y, axis); masked::min(x, y, axis);
                    masked::mean(x, y, [axis]); masked::var(x, y, axis, 1.0); masked::std(x, y, axis, 0.0);
                    masked::norm(x, y, 3.0, axis); masked::normalize(x, y, 2.0, axis, 1e-9); masked::median(x, y, axis);
                    masked::argmax(x, y, axis); masked::argmin(x, y, axis); masked::logsumexp(x, y, axis);
                    masked::softmax(x, y, axis); masked::log_softmax(x, y, axis); masked::softmin(x, y, axis);
                    masked::cumsum(x, y, axis); masked::cumprod(x, y, axis); masked::logaddexp(x, y, y, x);
                },
                &format!("{} and {} along {axis}", x.spec(), y.spec()),
                &mut wrong,
            );
        }
    }
    assert!(refused > 3000, "only {refused} refused");
    none_wrong(wrong);
}

#[test]
fn convolution_and_pooling() {
    let (mut wrong, mut refused) = (Vec::new(), 0);
    let mut all = operands();
    all.push(Tensor::ones([2, 3, 4, 5, 6]));
    let huge = usize::MAX;
    let (none, wide) = (Conv::new(), Conv::new().padding(huge).dilation(huge));
    let odd = [
        Conv::new().stride(0),
        Conv::new().groups(0),
        Conv::new().groups(3),
        Conv::new().groups(huge),
        Conv::new().stride(huge).padding(2),
        Conv::new().padding([1, 2, 3, 4]),
        Conv::new().padding(Padding::Same).stride(2),
        Conv::new().padding(Padding::Sides(vec![(1, 0), (huge, 0)])),
        Conv::new().output_padding(5),
        Conv::new().output_padding([huge, 0]).stride(huge),
        Conv::new().dilation(1 << 40).padding(1 << 40),
        none.clone(),
        wide,
    ];
    for (x, y) in all.iter().flat_map(|x| all.iter().map(move |y| (x, y))) {
        for o in &odd {
            refused += all_fine(
                calls! {
                    x.conv1d(y, None, o); x.conv2d(y, None, o); x.conv3d(y, None, o);
                    x.conv_transpose1d(y, None, o); x.conv_transpose2d(y, None, o); x.conv_transpose3d(y, None, o);
                    x.conv1d(y, Some(y), o); x.conv2d(x, Some(y), o);
                },
                &format!("{} and {} with {o:?}", x.spec(), y.spec()),
                &mut wrong,
            );
        }
        refused += all_fine(
            calls! {
                x.max_unpool1d(y, &Pool::new(2), None); x.max_unpool2d(y, &Pool::new([2, 1]), Some(&[huge, 2]));
                x.max_unpool3d(y, &Pool::new(1), Some(&[2])); x.max_unpool1d(y, &Pool::new(1).padding(huge), None);
                x.fractional_max_pool2d(2, [1, 2], y); x.fractional_max_pool3d(1, 2, y); x.fractional_max_pool2d(0, huge, y);
                x.fractional_max_pool2d(1, 1, &Tensor::ones([1, 4, 2])); x.fractional_max_pool2d([huge, 1], 1, y);
                x.max_unpool1d(y, &Pool::new(huge).stride(huge), None); x.max_unpool2d(y, &Pool::new(0), None);
            },
            &format!("{} and {}", x.spec(), y.spec()),
            &mut wrong,
        );
    }
    let pools = [
        Pool::new(2),
        Pool::new(0),
        Pool::new(huge),
        Pool::new([1, 2]),
        Pool::new([1, 2, 3, 4]),
        Pool::new(3).padding(2),
        Pool::new(3).padding(1).dilation(huge),
        Pool::new(2).stride(0),
        Pool::new(2).stride(huge).ceil_mode(true),
        Pool::new(3).ceil_mode(true).padding(1),
        Pool::new(2).dilation(1 << 60).padding(1 << 59),
        Pool::new(2).divisor(0),
    ];
    for x in &all {
        for p in &pools {
            refused += all_fine(
                calls! {
                    x.max_pool1d(p); x.max_pool2d(p); x.max_pool3d_at(p); x.avg_pool1d(p); x.avg_pool2d(p);
                    x.avg_pool3d(p); x.lp_pool1d(2.0, p); x.lp_pool2d(0.0, p); x.lp_pool3d(f64::INFINITY, p);
                },
                &format!("{} with {p:?}", x.spec()),
                &mut wrong,
            );
        }
        refused += all_fine(
            calls! {
                x.adaptive_avg_pool1d(3); x.adaptive_avg_pool2d([None, Some(0)]); x.adaptive_avg_pool3d([1, 2, 3]);
                x.adaptive_avg_pool1d(huge); x.adaptive_max_pool1d(huge); x.adaptive_max_pool2d([None, None]);
                x.adaptive_max_pool3d(0); x.adaptive_max_pool2d([1, 2, 3]); x.adaptive_max_pool1d_at(2);
                x.col2im([2, 2], [1, 1], [1, 1], [0, 0], [1, 1]); x.col2im([2, 2], [0, 1], [1, 1], [0, 0], [1, 1]);
                x.col2im([huge, 2], [1, 1], [1, 1], [0, 0], [huge, 1]); x.col2im([1, 1], [1, 3], [1, 1], [0, 1], [1, 0]);
                x.col2im([1, 1], [1, 1], [1, 1], [huge, 1], [1, 1]); x.col2im([1, 2], [1, 1], [huge, 1], [0, 0], [1, 1]);
            },
            &x.spec().to_string(),
            &mut wrong,
        );
    }
    assert!(refused > 5000, "only {refused} refused");
    none_wrong(wrong);
}

#[test]
fn images_and_layers_of_one_tensor() {
    let (mut wrong, mut refused) = (Vec::new(), 0);
    let key = Key::new(0);
    let some = Some(&key);
    for x in operands() {
        refused += all_fine(
            calls! {
                x.lgamma(); x.digamma(); x.polygamma(0); x.polygamma(3); x.polygamma(usize::MAX >> 40); x.multigammaln(0);
                x.multigammaln(3); x.erfinv(); x.erfcx(); x.ndtri(); x.log_ndtr(); x.i0(); x.i0e(); x.i1(); x.i1e();
                x.logit_within(0.1); x.logit_within(f64::NAN);
                Interpolate::to([2]).of(&x); Interpolate::to([0]).of(&x); Interpolate::to([usize::MAX]).of(&x);
                Interpolate::to([1usize << 50]).of(&x); Interpolate::to([2, 2]).mode(InterpolateMode::Cubic).of(&x);
                Interpolate::to([2, 3]).mode(InterpolateMode::Linear).antialias(true).of(&x); Interpolate::to([]).of(&x);
                Interpolate::by([f64::NAN]).of(&x); Interpolate::by([-1.0]).of(&x); Interpolate::by([1e300]).of(&x);
                Interpolate::by([0.1]).mode(InterpolateMode::Area).of(&x); Interpolate::by([]).of(&x);
                Interpolate::by([2.0]).align_corners(true).of(&x); x.upsample_nearest(2); x.upsample_nearest(usize::MAX);
                x.upsample_bilinear(1.5); x.affine_grid(&[1, 1, 2, 2], true); x.affine_grid(&[], true);
                x.affine_grid(&[2, 3, usize::MAX, 2], true); x.channel_shuffle(0); x.channel_shuffle(2);
                x.channel_shuffle(usize::MAX); x.pad_last([(1, 1)], PadFill::Constant(0.5));
                x.pad_last([(isize::MAX, 1)], PadFill::Constant(0.0)); x.pad_last([(isize::MIN, 0)], PadFill::Constant(0.0));
                x.pad_last([(-1, -1)], PadFill::Mode(PadMode::Reflect)); x.pad_last([(0, 0); 7], PadFill::Constant(0.0));
                x.pad_last([(2, -9)], PadFill::Mode(PadMode::Circular));
                x.dropout(0.5, some); x.dropout(1.0, some); x.dropout(-1.0, some); x.dropout(f64::NAN, None);
                x.channel_dropout(0.5, 2, some); x.channel_dropout(0.5, usize::MAX, some); x.alpha_dropout(0.5, some);
                x.alpha_dropout(2.0, some); x.feature_alpha_dropout(0.5, some); x.rrelu(0.1, 0.3, some);
                x.rrelu(0.3, 0.1, None); x.rrelu(f64::NAN, 0.1, some); x.gumbel_softmax(1.0, true, -1, &key);
                x.gumbel_softmax(0.0, false, 5, &key); x.instance_norm(None, None, 1e-5);
                x.local_response_norm(0, 1.0, 1.0, 1.0); x.local_response_norm(3, 1.0, 0.5, 1.0);
                x.local_response_norm(usize::MAX, 1.0, 0.5, 1.0); x.pdist(2.0); x.pdist(f64::NAN);
            },
            &x.spec().to_string(),
            &mut wrong,
        );
    }
    assert!(refused > 200, "only {refused} refused");
    none_wrong(wrong);
}

#[test]
fn images_and_layers_of_two_tensors() {
    let (mut wrong, mut refused) = (Vec::new(), 0);
    let all = operands();
    let r = Reduction::Mean;
    let how = Ctc::default();
    for (x, y) in all.iter().flat_map(|x| all.iter().map(move |y| (x, y))) {
        refused += all_fine(
            calls! {
                x.zeta(y); x.gammainc(y); x.gammaincc(y); x.betaln(y);
                x.grid_sample(y, GridSampleMode::Linear, GridPaddingMode::Zeros, false);
                x.grid_sample(y, GridSampleMode::Cubic, GridPaddingMode::Reflection, true);
                Embedding::new().of(x, y); Embedding::new().padding(-1).scale_grad_by_freq(true).of(x, y);
                Embedding::new().padding(9).of(x, y); Embedding::new().max_norm(1.0, 2.0).of(x, y);
                EmbeddingBag::new(BagMode::Mean).of(x, y); EmbeddingBag::new(BagMode::Max).offsets(y).of(x, y);
                EmbeddingBag::new(BagMode::Sum).offsets(&Tensor::from([0i64, 9])).of(x, y);
                EmbeddingBag::new(BagMode::Sum).offsets(&Tensor::from([0i64])).include_last_offset(true).of(x, y);
                EmbeddingBag::new(BagMode::Sum).weights(x).of(x, y); EmbeddingBag::new(BagMode::Max).weights(y).of(x, y);
                multi_margin(x, y, 1, 1.0, None, r); multi_margin(x, y, 3, 1.0, None, r);
                multi_margin(x, &Tensor::from([0i64, 1]), 2, 1.0, Some(y), r); multilabel_margin(x, y, r);
                multilabel_soft_margin(x, y, None, r); multilabel_soft_margin(x, x, Some(y), r);
                triplet_margin_with(x, y, y, |a, b| a.pairwise_distance(b, 2.0, 1e-6), 1.0, true, r);
                weighted_by(x, y, r); ctc(x, y, &[2], &[1], how); ctc(x, y, &[3, 3, 3], &[1, 1, 1], how);
                ctc(x, y, &[usize::MAX; 3], &[usize::MAX; 3], how); ctc(x, y, &[], &[], Ctc { blank: 9, ..how });
                x.batch_norm_running((y, y), None, None, 0.1, 1e-5); x.instance_norm(Some(y), Some(y), 1e-5);
                x.instance_norm_running((y, y), None, None, 0.1, 1e-5);
            },
            &format!("{} and {}", x.spec(), y.spec()),
            &mut wrong,
        );
    }
    assert!(refused > 1000, "only {refused} refused");
    none_wrong(wrong);
}

#[test]
fn creation_and_transforms() {
    let mut wrong = Vec::new();
    let none: Vec<Tensor> = Vec::new();
    let (empty, ints) = (Tensor::zeros([0]), Tensor::from([1i64, 2]));
    let f = |x: &Tensor| x.square().sum();
    all_fine(
        calls! {
            cat(&[], 0); stack(&[], 0); hstack(&[]); vstack(&[]); dstack(&[]); column_stack(&[]); block_diag(&[]);
            Tensor::tril_indices(usize::MAX, 2, 0); Tensor::triu_indices(2, 0, isize::MIN); cartesian_prod(&[]);
            meshgrid(&[]); einsum("", &[]); einsum("i->", &[]);
            Tensor::zeros([-1]); Tensor::ones([usize::MAX]); Tensor::full([usize::MAX, 2], 1u8); Tensor::eye(usize::MAX);
            Tensor::eye_with(0, 3, DType::Bool); Tensor::arange(5, 2); Tensor::arange(i64::MIN, i64::MAX);
            Tensor::arange_by(0i64, i64::MAX, 1); Tensor::arange_by(i64::MAX, i64::MIN, i64::MIN);
            Tensor::arange_by(0u8, 255, 0); Tensor::arange_by(false, true, true); Tensor::arange_by(0.0, f64::NAN, 1.0);
            Tensor::arange_by(0.0, 1e300, 1.0); Tensor::linspace(0.0, 1.0, 0); Tensor::linspace(0.0, 1.0, usize::MAX);
            Tensor::linspace(false, true, 3); Tensor::from_vec(Vec::<f32>::new(), [2]); Tensor::from_vec([1u8], ());
            hessian_tree(|x: &Vec<Tensor>| x.iter().fold(Tensor::from(0.0), |a, b| a + b.sum()))(&none);
            hessian(f)(&empty); hessian(f)(&ints); hessian(f)(&Tensor::from(2.0)); jacrev(f)(&empty); jacfwd(f)(&empty);
            jacobian(f)(&empty); jacrev(f)(&ints); jacfwd(f)(&ints); jacobian(f)(&ints); hvp(f, &Tensor::from(1.0), &empty);
        },
        "nothing",
        &mut wrong,
    );
    none_wrong(wrong);
}
