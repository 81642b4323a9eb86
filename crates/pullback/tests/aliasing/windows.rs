//! Convolution, pooling, images, Fourier transforms, attention.

use super::given::Given;
use pullback::fft::{self, Norm, Real};
use pullback::*;

type G = Given;

fn v(g: &G) -> Tensor {
    g.f(&[4])
}

/// Complex numbers.
fn z(g: &G) -> Tensor {
    g.f(&[4, 2])
}

const N: Norm = Norm::Backward;

macro_rules! windows {
    ($shape:expr, $filter:expr, $axes:literal: $conv:ident $transposed:ident $max:ident $max_at:ident $avg:ident $lp:ident $adaptive_avg:ident $adaptive_max:ident $adaptive_max_at:ident $unpool:ident) => {{
        use crate::given::call;
        let one = || Pool::new([1; $axes]);
        vec![
            (
                stringify!($conv),
                vec![call(|g: &G| g.f(&$shape).$conv(&g.f(&$filter), None, &Conv::new()))],
            ),
            (
                stringify!($transposed),
                vec![call(|g: &G| g.f(&$shape).$transposed(&g.f(&$filter), None, &Conv::new()))],
            ),
            (stringify!($max), vec![call(move |g: &G| g.f(&$shape).$max(&one()))]),
            (stringify!($max_at), vec![call(move |g: &G| g.f(&$shape).$max_at(&one()))]),
            (stringify!($avg), vec![call(move |g: &G| g.f(&$shape).$avg(&one()))]),
            (
                stringify!($lp),
                vec![
                    call(move |g: &G| g.f(&$shape).$lp(1.0, &one())),
                    call(move |g: &G| g.f(&$shape).$lp(2.0, &one())),
                ],
            ),
            (stringify!($adaptive_avg), vec![call(|g: &G| g.f(&$shape).$adaptive_avg([2; $axes]))]),
            (stringify!($adaptive_max), vec![call(|g: &G| g.f(&$shape).$adaptive_max([2; $axes]))]),
            (
                stringify!($adaptive_max_at),
                vec![call(|g: &G| g.f(&$shape).$adaptive_max_at([2; $axes]))],
            ),
            (
                stringify!($unpool),
                vec![call(move |g: &G| {
                    let (x, at) = g.f(&$shape).$max_at(&one());
                    x.$unpool(&at, &one(), None)
                })],
            ),
        ]
    }};
}

pub fn windows() -> Vec<crate::given::Row> {
    let one = windows!([1, 1, 2], [1, 1, 1], 1: conv1d conv_transpose1d max_pool1d max_pool1d_at avg_pool1d lp_pool1d adaptive_avg_pool1d adaptive_max_pool1d adaptive_max_pool1d_at max_unpool1d);
    let two = windows!([1, 1, 2, 2], [1, 1, 1, 1], 2: conv2d conv_transpose2d max_pool2d max_pool2d_at avg_pool2d lp_pool2d adaptive_avg_pool2d adaptive_max_pool2d adaptive_max_pool2d_at max_unpool2d);
    let three = windows!([1, 1, 2, 2, 2], [1, 1, 1, 1, 1], 3: conv3d conv_transpose3d max_pool3d max_pool3d_at avg_pool3d lp_pool3d adaptive_avg_pool3d adaptive_max_pool3d adaptive_max_pool3d_at max_unpool3d);
    one.into_iter().chain(two).chain(three).collect()
}

crate::rows! {
    "fractional_max_pool2d": |g| g.f(&[1, 1, 4, 4]).fractional_max_pool2d([2, 2], [2, 2], &g.f(&[1, 1, 2]));
    "fractional_max_pool3d": |g| g.f(&[1, 1, 4, 4, 4]).fractional_max_pool3d([2, 2, 2], [2, 2, 2], &g.f(&[1, 1, 3]));
    "Interpolate::of": |g| Interpolate::to([2]).of(&g.f(&[1, 1, 2])), |g| Interpolate::to([2]).mode(InterpolateMode::Linear).of(&g.f(&[1, 1, 2])), |g| Interpolate::to([4]).of(&g.f(&[1, 1, 2])),
        |g| Interpolate::to([2]).mode(InterpolateMode::Area).of(&g.f(&[1, 1, 2])), |g| Interpolate::to([2, 2]).mode(InterpolateMode::Cubic).of(&g.f(&[1, 1, 2, 2]));
    "upsample_nearest": |g| g.f(&[1, 1, 2]).upsample_nearest(1), |g| g.f(&[1, 1, 2]).upsample_nearest(2);
    "upsample_bilinear": |g| g.f(&[1, 1, 2, 2]).upsample_bilinear(1.0), |g| g.f(&[1, 1, 2, 2]).upsample_bilinear(2.0);
    "grid_sample": |g| g.f(&[1, 1, 2, 2]).grid_sample(&g.f(&[1, 2, 2, 2]), GridSampleMode::Linear, GridPaddingMode::Zeros, false), |g| g.f(&[1, 1, 2, 2]).grid_sample(&g.f(&[1, 2, 2, 2]), GridSampleMode::Nearest, GridPaddingMode::Border, true);
    "affine_grid": |g| g.f(&[1, 2, 3]).affine_grid(&[1, 1, 2, 2], false);
    "attention": |g| g.f(&[1, 2, 3]).attention(&g.f(&[1, 2, 3]), &g.f(&[1, 2, 3]), Attention::new()), |g| g.f(&[1, 1, 1]).attention(&g.f(&[1, 1, 1]), &g.f(&[1, 1, 1]), Attention::new());
    "fft::fft": |g| fft::fft(&z(g), None, 0, N), |g| fft::fft(&g.f(&[1, 2]), None, 0, N), |g| fft::fft(Real(&g.f(&[1])), None, 0, N);
    "fft::ifft": |g| fft::ifft(&z(g), None, 0, N), |g| fft::ifft(&g.f(&[1, 2]), None, 0, N);
    "fft::rfft": |g| fft::rfft(&v(g), None, 0, N), |g| fft::rfft(&g.f(&[1]), None, 0, N);
    "fft::irfft": |g| fft::irfft(&z(g), None, 0, N), |g| fft::irfft(&g.f(&[1, 2]), Some(1), 0, N);
    "fft::hfft": |g| fft::hfft(&z(g), None, 0, N), |g| fft::hfft(&g.f(&[1, 2]), Some(1), 0, N);
    "fft::ihfft": |g| fft::ihfft(&v(g), None, 0, N), |g| fft::ihfft(&g.f(&[1]), None, 0, N);
    "fft::fftn": |g| fft::fftn(&z(g), None, None, N), |g| fft::fftn(&z(g), None, Some(&[]), N), |g| fft::fftn(Real(&v(g)), None, Some(&[]), N);
    "fft::ifftn": |g| fft::ifftn(&z(g), None, None, N), |g| fft::ifftn(&z(g), None, Some(&[]), N);
    "fft::rfftn": |g| fft::rfftn(&v(g), None, None, N);
    "fft::irfftn": |g| fft::irfftn(&z(g), None, None, N);
    "fft::hfftn": |g| fft::hfftn(&z(g), None, None, N);
    "fft::ihfftn": |g| fft::ihfftn(&v(g), None, None, N);
    "fft::fft2": |g| fft::fft2(&g.f(&[2, 2, 2]), None, [-2, -1], N);
    "fft::ifft2": |g| fft::ifft2(&g.f(&[2, 2, 2]), None, [-2, -1], N);
    "fft::rfft2": |g| fft::rfft2(&g.f(&[2, 2]), None, [-2, -1], N);
    "fft::irfft2": |g| fft::irfft2(&g.f(&[2, 2, 2]), None, [-2, -1], N);
    "fft::hfft2": |g| fft::hfft2(&g.f(&[2, 2, 2]), None, [-2, -1], N);
    "fft::ihfft2": |g| fft::ihfft2(&g.f(&[2, 2]), None, [-2, -1], N);
    "fft::fftfreq": |_| fft::fftfreq(4, 1.0);
    "fft::rfftfreq": |_| fft::rfftfreq(4, 1.0);
    "fft::fftshift": |g| fft::fftshift(&z(g), None), |g| fft::fftshift(Real(&g.f(&[1])), None), |g| fft::fftshift(&z(g), Some(&[]));
    "fft::ifftshift": |g| fft::ifftshift(&z(g), None), |g| fft::ifftshift(Real(&g.f(&[1])), None), |g| fft::ifftshift(Real(&v(g)), Some(&[]));
}
