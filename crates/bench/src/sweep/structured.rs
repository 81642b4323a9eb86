//! The rows of products, convolutions, pooling, indexing, linear algebra and Fourier transforms.

use super::Row;
use pullback::fft::{self, Norm, Real};
use pullback::linalg::{self, MatrixNorm, QrMode};
use pullback::{
    Attention, BagMode, Conv, DType, Embedding, EmbeddingBag, GridPaddingMode, GridSampleMode,
    Interpolate, InterpolateMode, Pool, ScatterReduction as By, einsum,
};

const N: Norm = Norm::Backward;

#[rustfmt::skip]
pub const ROWS: &[Row] = rows![
    // Products.
    "matmul" "q,q q,q" |x, y| x.matmul(y) => "x @ y";
    "matmul" "q,q:bf16! q,q:bf16!" |x, y| x.matmul(y) => "x @ y";
    "dot" "n n" |x, y| x.dot(y) => "x.dot(y)";
    "outer" "m m" |x, y| x.outer(y) => "x.outer(y)";
    "einsum" "b,c,h,h b,c,h,h" |x, y| einsum("bchi,bchj->bcij", &[x, y]) => "torch.einsum('bchi,bchj->bcij', x, y)";
    "addmm" "q,q q,q q,q" |x, y, z| x.addmm(y, z, 0.5, 2.0) => "torch.addmm(x, y, z, beta=0.5, alpha=2)";
    "addmv" "m m,m m" |x, y, z| x.addmv(y, z, 0.5, 2.0) => "torch.addmv(x, y, z, beta=0.5, alpha=2)";
    "addr" "m,m m m" |x, y, z| x.addr(y, z, 0.5, 2.0) => "torch.addr(x, y, z, beta=0.5, alpha=2)";
    "baddbmm" "c,h,h c,h,h c,h,h" |x, y, z| x.baddbmm(y, z, 0.5, 2.0) => "torch.baddbmm(x, y, z, beta=0.5, alpha=2)";
    "addbmm" "h,h c,h,h c,h,h" |x, y, z| x.addbmm(y, z, 0.5, 2.0) => "torch.addbmm(x, y, z, beta=0.5, alpha=2)";
    "inner" "m,m m" |x, y| x.inner(y) => "x.inner(y)";
    "vecdot" "m,m m,m" |x, y| x.vecdot(y, -1) => "L.vecdot(x, y)";
    "tensordot" "b,c,h,h b,c,h,h" |x, y| x.tensordot(y, &[0, 2, 3], &[0, 2, 3]) => "torch.tensordot(x, y, ((0, 2, 3), (0, 2, 3)))";
    "linear" "m,k k,k k" |x, y, z| x.linear(y, Some(z)) => "F.linear(x, y, z)";
    "bilinear" "k,16 k,16 8,16,16" |x, y, z| x.bilinear(y, z, None) => "F.bilinear(x, y, z)";
    "attention" "b,c,h,h b,c,h,h b,c,h,h" |x, y, z| x.attention(y, z, Attention::new()) => "F.scaled_dot_product_attention(x, y, z)";
    "linalg::multi_dot" "k,k k,k k,k" |x, y, z| linalg::multi_dot(&[x, y, z]) => "L.multi_dot((x, y, z))";
    "linalg::matrix_power" "k,k" |x| linalg::matrix_power(x, 3) => "L.matrix_power(x, 3)";
    "linalg::matrix_exp" "k,k:spd" |x| linalg::matrix_exp(x) => "L.matrix_exp(x)";
    "linalg::vander" "m:0.9..1.1" |x| linalg::vander(x, Some(16)) => "L.vander(x, N=16)";
    // Normalisation.
    "channel_norm" "b,c,h,h c! c:0.5..2! c c" |x, y, z, w, v| x.channel_norm(y, z, Some(w), Some(v), 1e-5) => "F.batch_norm(x, y, z, w, v)";
    "batch_norm" "b,c,h,h c c" |x, y, z| x.batch_norm(Some(y), Some(z), 1e-5) => "F.batch_norm(x, None, None, y, z, True)";
    "batch_norm_running" "b,c,h,h c! c:0.5..2! c c" |x, y, z, w, v| x.batch_norm_running((y, z), Some(w), Some(v), 0.1, 1e-5).0 => "F.batch_norm(x, y, z, w, v, True)";
    "instance_norm" "b,c,h,h c c" |x, y, z| x.instance_norm(Some(y), Some(z), 1e-5) => "F.instance_norm(x, None, None, y, z)";
    "instance_norm_running" "b,c,h,h c! c:0.5..2! c c" |x, y, z, w, v| x.instance_norm_running((y, z), Some(w), Some(v), 0.1, 1e-5).0 => "F.instance_norm(x, y, z, w, v)";
    "local_response_norm" "b,c,h,h" |x| x.local_response_norm(2, 1e-4, 0.75, 1.0) => "F.local_response_norm(x, 2)";
    "group_norm" "b,c,h,h c c" |x, y, z| x.group_norm(2, Some(y), Some(z), 1e-5) => "F.group_norm(x, 2, y, z)";
    // Convolution and pooling.
    "conv1d" "b,c,l c,c,3 c" |x, y, z| x.conv1d(y, Some(z), &Conv::new().padding(1)) => "F.conv1d(x, y, z, 1, 1)";
    "conv_transpose1d" "b,c,l c,c,3" |x, y| x.conv_transpose1d(y, None, &Conv::new().padding(1)) => "F.conv_transpose1d(x, y, None, 1, 1)";
    "conv2d" "b,c,h,h c,c,3,3 c" |x, y, z| x.conv2d(y, Some(z), &Conv::new().padding(1)) => "F.conv2d(x, y, z, 1, 1)";
    "conv_transpose2d" "b,c,h,h c,c,3,3" |x, y| x.conv_transpose2d(y, None, &Conv::new().padding(1)) => "F.conv_transpose2d(x, y, None, 1, 1)";
    "conv3d" "b,c,v,v,v 4,c,3,3,3" |x, y| x.conv3d(y, None, &Conv::new().padding(1)) => "F.conv3d(x, y, None, 1, 1)";
    "conv_transpose3d" "b,c,v,v,v c,4,3,3,3" |x, y| x.conv_transpose3d(y, None, &Conv::new().padding(1)) => "F.conv_transpose3d(x, y, None, 1, 1)";
    "max_pool1d" "b,c,l" |x| x.max_pool1d(&Pool::new(2)) => "F.max_pool1d(x, 2)";
    "max_pool1d_at" "b,c,l" |x| x.max_pool1d_at(&Pool::new(2)).0 => "F.max_pool1d(x, 2, return_indices=True)[0]";
    "avg_pool1d" "b,c,l" |x| x.avg_pool1d(&Pool::new(2)) => "F.avg_pool1d(x, 2)";
    "lp_pool1d" "b,c,l:0.1..1" |x| x.lp_pool1d(2.0, &Pool::new(2)) => "F.lp_pool1d(x, 2.0, 2)";
    "adaptive_avg_pool1d" "b,c,l" |x| x.adaptive_avg_pool1d(7) => "F.adaptive_avg_pool1d(x, 7)";
    "adaptive_max_pool1d" "b,c,l" |x| x.adaptive_max_pool1d(7) => "F.adaptive_max_pool1d(x, 7)";
    "adaptive_max_pool1d_at" "b,c,l" |x| x.adaptive_max_pool1d_at(7).0 => "F.adaptive_max_pool1d(x, 7, True)[0]";
    "max_pool2d" "b,c,h,h" |x| x.max_pool2d(&Pool::new(3).stride(2).padding(1)) => "F.max_pool2d(x, 3, 2, 1)";
    "max_pool2d_at" "b,c,h,h" |x| x.max_pool2d_at(&Pool::new(2)).0 => "F.max_pool2d(x, 2, return_indices=True)[0]";
    "avg_pool2d" "b,c,h,h" |x| x.avg_pool2d(&Pool::new(3).stride(2).padding(1)) => "F.avg_pool2d(x, 3, 2, 1)";
    "lp_pool2d" "b,c,h,h:0.1..1" |x| x.lp_pool2d(2.0, &Pool::new(2)) => "F.lp_pool2d(x, 2.0, 2)";
    "adaptive_avg_pool2d" "b,c,h,h" |x| x.adaptive_avg_pool2d(7) => "F.adaptive_avg_pool2d(x, 7)";
    "adaptive_max_pool2d" "b,c,h,h" |x| x.adaptive_max_pool2d(7) => "F.adaptive_max_pool2d(x, 7)";
    "adaptive_max_pool2d_at" "b,c,h,h" |x| x.adaptive_max_pool2d_at(7).0 => "F.adaptive_max_pool2d(x, 7, True)[0]";
    "max_pool3d" "b,c,v,v,v" |x| x.max_pool3d(&Pool::new(2)) => "F.max_pool3d(x, 2)";
    "max_pool3d_at" "b,c,v,v,v" |x| x.max_pool3d_at(&Pool::new(2)).0 => "F.max_pool3d(x, 2, return_indices=True)[0]";
    "avg_pool3d" "b,c,v,v,v" |x| x.avg_pool3d(&Pool::new(2)) => "F.avg_pool3d(x, 2)";
    "lp_pool3d" "b,c,v,v,v:0.1..1" |x| x.lp_pool3d(2.0, &Pool::new(2)) => "F.lp_pool3d(x, 2.0, 2)";
    "adaptive_avg_pool3d" "b,c,v,v,v" |x| x.adaptive_avg_pool3d(3) => "F.adaptive_avg_pool3d(x, 3)";
    "adaptive_max_pool3d" "b,c,v,v,v" |x| x.adaptive_max_pool3d(3) => "F.adaptive_max_pool3d(x, 3)";
    "adaptive_max_pool3d_at" "b,c,v,v,v" |x| x.adaptive_max_pool3d_at(3).0 => "F.adaptive_max_pool3d(x, 3, True)[0]";
    "fractional_max_pool2d" "b,c,h,h b,c,2:0..0.9!" |x, y| x.fractional_max_pool2d(2, 9, y).0 => "F.fractional_max_pool2d(x, 2, 9, _random_samples=y)";
    "fractional_max_pool3d" "b,c,v,v,v b,c,3:0..0.9!" |x, y| x.fractional_max_pool3d(2, 4, y).0 => "F.fractional_max_pool3d(x, 2, 4, _random_samples=y)";
    "max_unpool2d" "b,c,h,h b,c,h,h:0<h" |x, y| x.max_unpool2d(y, &Pool::new(2), None) => "F.max_unpool2d(x, y, 2)";
    "col2im" "b,c*9,h*h" |x| { let h = x.shape()[2].isqrt(); x.col2im([h, h], [3, 3], [1, 1], [1, 1], [1, 1]) } => "F.fold(x, (math.isqrt(x.shape[2]),) * 2, 3, padding=1)";
    // Images.
    "Interpolate::of" "b,c,h,h" |x| Interpolate::by([2.0, 2.0]).mode(InterpolateMode::Cubic).of(x) => "F.interpolate(x, scale_factor=2.0, mode='bicubic')";
    "upsample_nearest" "b,c,h,h" |x| x.upsample_nearest(2) => "F.interpolate(x, scale_factor=2)";
    "upsample_bilinear" "b,c,h,h" |x| x.upsample_bilinear(2.0) => "F.interpolate(x, scale_factor=2.0, mode='bilinear')";
    "grid_sample" "b,c,h,h b,h,h,2" |x, y| x.grid_sample(y, GridSampleMode::Linear, GridPaddingMode::Zeros, false) => "F.grid_sample(x, y, align_corners=False)";
    "affine_grid" "b,2,3" |x| x.affine_grid(&[x.shape()[0], 1, 64, 64], false) => "F.affine_grid(x, (x.shape[0], 1, 64, 64), align_corners=False)";
    // Indexing.
    "gather" "m,m m,m:0<m" |x, y| x.gather(-1, y) => "x.gather(-1, y)";
    "index_select" "m,m m:0<m" |x, y| x.index_select(0, y) => "x.index_select(0, y)";
    "scatter" "m,m m,m:0<m m,m" |x, y, z| x.scatter(-1, y, z) => "x.scatter(-1, y, z)";
    "scatter_add" "m n:0<m n" |x, y, z| x.scatter_add(0, y, z) => "x.scatter_add(0, y, z)";
    "scatter_add" "m,m m,m:0<m m,m" |x, y, z| x.scatter_add(-1, y, z) => "x.scatter_add(-1, y, z)";
    "scatter_mul" "m,m m,m:0<m m,m" |x, y, z| x.scatter_mul(-1, y, z) => "x.scatter_reduce(-1, y, z, 'prod')";
    "scatter_max" "m,m m,m:0<m m,m" |x, y, z| x.scatter_max(-1, y, z) => "x.scatter_reduce(-1, y, z, 'amax')";
    "scatter_min" "m,m m,m:0<m m,m" |x, y, z| x.scatter_min(-1, y, z) => "x.scatter_reduce(-1, y, z, 'amin')";
    "scatter_reduce" "m,m m,m:0<m m,m" |x, y, z| x.scatter_reduce(-1, y, z, By::Mean, true) => "x.scatter_reduce(-1, y, z, 'mean')";
    "index_add" "m,m m:0<m m,m" |x, y, z| x.index_add(0, y, z) => "x.index_add(0, y, z)";
    "index_copy" "m,m m:0<m m,m" |x, y, z| x.index_copy(0, y, z) => "x.index_copy(0, y, z)";
    "index_fill" "m,m m:0<m" |x, y| x.index_fill(0, y, 0.5) => "x.index_fill(0, y, 0.5)";
    "index_reduce" "m,m m:0<m m,m" |x, y, z| x.index_reduce(0, y, z, By::Max, true) => "x.index_reduce(0, y, z, 'amax')";
    "one_hot" "m:0<m" |x| x.one_hot(x.len(), DType::I64) => "F.one_hot(x, x.numel())";
    "index_get" "m,m n:0<m n:0<m" |x, y, z| x.index_get(&[y, z]) => "x[y, z]";
    "index_put" "m,m n:0<m n:0<m n" |x, y, z, w| x.index_put(&[y, z], w, true) => "x.index_put((y, z), w, True)";
    "put_flat" "m,m n:0<n n" |x, y, z| x.put_flat(y, z, true) => "x.put(y, z, True)";
    "masked_scatter" "n n:bool n" |x, y, z| x.masked_scatter(y, z) => "x.masked_scatter(y, z)";
    "masked_select" "n n:bool" |x, y| x.masked_select(y) => "x.masked_select(y)";
    "take" "n n:0<n" |x, y| x.take(y) => "x.take(y)";
    "take_along" "m,m m,m:0<m" |x, y| x.take_along(y, -1) => "x.take_along_dim(y, -1)";
    "nonzero" "m,m:bool" |x| x.nonzero() => "x.nonzero()";
    "searchsorted" "m:sorted n!" |x, y| x.searchsorted(y, false) => "torch.searchsorted(x, y)";
    "bucketize" "n! 64:sorted" |x, y| x.bucketize(y, false) => "torch.bucketize(x, y)";
    "is_in" "n:0<n 64:0<n" |x, y| x.is_in(y) => "torch.isin(x, y)";
    "unique" "n:0<m" |x| x.unique().values => "x.unique(return_inverse=True, return_counts=True)[0]";
    "unique_consecutive" "n:0<2" |x| x.unique_consecutive().values => "x.unique_consecutive(return_inverse=True, return_counts=True)[0]";
    "unravel_index" "n:0<n" |x| x.unravel_index(&[64, x.len() / 64]).remove(0) => "torch.unravel_index(x, (64, x.numel() // 64))[0]";
    "Embedding::of" "m,64 m:0<m" |x, y| Embedding::new().of(x, y) => "F.embedding(y, x)";
    "EmbeddingBag::of" "m,64 m,8:0<m" |x, y| EmbeddingBag::new(BagMode::Mean).of(x, y) => "F.embedding_bag(y, x)";
    "as_strided" "n" |x| x.as_strided([x.len() / 2, 2], &[1, x.len() / 2], 0).contiguous() => "x.as_strided((x.numel() // 2, 2), (1, x.numel() // 2)).contiguous()";
    // Linear algebra.
    "linalg::det" "k,k:dominant" |x| linalg::det(x) => "L.det(x)";
    "linalg::slogdet" "k,k:dominant" |x| linalg::slogdet(x).1 => "L.slogdet(x)[1]";
    "linalg::logdet" "k,k:spd" |x| linalg::logdet(x) => "torch.logdet(x)";
    "linalg::cholesky" "k,k:spd" |x| linalg::cholesky(x, false) => "L.cholesky(x)";
    "linalg::cholesky_ex" "k,k:spd" |x| linalg::cholesky_ex(x, false).0 => "L.cholesky_ex(x)[0]";
    "linalg::lu_factor" "k,k" |x| linalg::lu_factor(x).0 => "L.lu_factor(x)[0]";
    "linalg::lu_factor_ex" "k,k" |x| linalg::lu_factor_ex(x).0 => "L.lu_factor_ex(x)[0]";
    "linalg::lu" "k,k" |x| linalg::lu(x).2 => "L.lu(x)[2]";
    "linalg::qr" "k,k" |x| linalg::qr(x, QrMode::Reduced).0 => "L.qr(x)[0]";
    "linalg::eigh" "k,k:spd" |x| linalg::eigh(x, false).0 => "L.eigh(x)[0]";
    "linalg::eigvalsh" "k,k:spd" |x| linalg::eigvalsh(x, false) => "L.eigvalsh(x)";
    "linalg::svd" "k,k" |x| linalg::svd(x, false).1 => "L.svd(x, False)[1]";
    "linalg::svdvals" "k,k" |x| linalg::svdvals(x) => "L.svdvals(x)";
    "linalg::householder_product" "k,k:dominant k" |x, y| linalg::householder_product(x, y) => "L.householder_product(x, y)";
    "linalg::ormqr" "k,k:dominant! k! k,k!" |x, y, z| linalg::ormqr(x, y, z, true, false) => "torch.ormqr(x, y, z)";
    "linalg::matrix_norm" "k,k" |x| linalg::matrix_norm(x, MatrixNorm::Order(2.0), [-2, -1], false) => "L.matrix_norm(x, 2)";
    "linalg::cond" "k,k:dominant" |x| linalg::cond(x, None) => "L.cond(x)";
    "linalg::matrix_rank" "k,k" |x| linalg::matrix_rank(x, None, None, false) => "L.matrix_rank(x)";
    "linalg::solve" "k,k:dominant k,k" |x, y| linalg::solve(x, y) => "L.solve(x, y)";
    "linalg::solve" "n/16,4,4:dominant n/16,4" |x, y| linalg::solve(x, y) => "L.solve(x, y)";
    "linalg::solve_ex" "k,k:dominant k,k" |x, y| linalg::solve_ex(x, y, true).0 => "L.solve_ex(x, y)[0]";
    "linalg::solve_triangular" "k,k:lower k,k" |x, y| linalg::solve_triangular(x, y, false, true, false) => "L.solve_triangular(x, y, upper=False)";
    "linalg::triangular_solve" "k,k k,k:lower" |x, y| linalg::triangular_solve(x, y, false, false, false) => "torch.triangular_solve(x, y, upper=False)[0]";
    "linalg::cholesky_solve" "k,k k,k:lower" |x, y| linalg::cholesky_solve(x, y, false) => "torch.cholesky_solve(x, y)";
    "linalg::cholesky_inverse" "k,k:lower" |x| linalg::cholesky_inverse(x, false) => "torch.cholesky_inverse(x)";
    "linalg::inv" "k,k:dominant" |x| linalg::inv(x) => "L.inv(x)";
    "linalg::inv_ex" "k,k:dominant" |x| linalg::inv_ex(x).0 => "L.inv_ex(x)[0]";
    "linalg::pinv" "k,k:dominant" |x| linalg::pinv(x, None, None, false) => "L.pinv(x)";
    "linalg::lstsq" "k,k:dominant k,k" |x, y| linalg::lstsq(x, y, None).solution => "L.lstsq(x, y)[0]";
    // Fourier transforms.
    "fft::fft" "n,2" |x| fft::fft(x, None, -1, N) => "torch.fft.fft(complex(x))";
    "fft::fft" "m,m" |x| fft::fft(Real(x), None, -1, N) => "torch.fft.fft(x)";
    "fft::ifft" "n,2" |x| fft::ifft(x, None, -1, N) => "torch.fft.ifft(complex(x))";
    "fft::rfft" "n" |x| fft::rfft(x, None, -1, N) => "torch.fft.rfft(x)";
    "fft::irfft" "n,2" |x| fft::irfft(x, None, -1, N) => "torch.fft.irfft(complex(x))";
    "fft::hfft" "n,2" |x| fft::hfft(x, None, -1, N) => "torch.fft.hfft(complex(x))";
    "fft::ihfft" "n" |x| fft::ihfft(x, None, -1, N) => "torch.fft.ihfft(x)";
    "fft::fftn" "m,m,2" |x| fft::fftn(x, None, None, N) => "torch.fft.fftn(complex(x))";
    "fft::ifftn" "m,m,2" |x| fft::ifftn(x, None, None, N) => "torch.fft.ifftn(complex(x))";
    "fft::rfftn" "m,m" |x| fft::rfftn(x, None, None, N) => "torch.fft.rfftn(x)";
    "fft::irfftn" "m,m,2" |x| fft::irfftn(x, None, None, N) => "torch.fft.irfftn(complex(x))";
    "fft::rfft2" "b,c,h,h" |x| fft::rfft2(x, None, [-2, -1], N) => "torch.fft.rfft2(x)";
    "fft::fft2" "b,c,h,h,2" |x| fft::fft2(x, None, [-2, -1], N) => "torch.fft.fft2(complex(x))";
    "fft::fftshift" "m,m" |x| fft::fftshift(Real(x), None) => "torch.fft.fftshift(x)";
];
