//! Convolutions, pools, and images of other sizes.

use super::{EXACT, OpRow, fit, rows};
use pullback::{Conv, GridPaddingMode, GridSampleMode, Interpolate, InterpolateMode, Pool};

/// Windows that go over a signal or an image.
#[rustfmt::skip]
pub const ROWS: &[OpRow] = rows! {
    conv1d(x: Float, w: Float, b: Float) EXACT, |d| fit(x, &[2, 2, 4]).conv1d(&fit(w, &[2, 2, 2]), Some(&fit(b, &[2])), &Conv::new().stride(d.from_to(1, 2)).padding(d.below(2)));
    conv1d_grouped(x: Float, w: Float) EXACT, |d| fit(x, &[1, 2, 5]).conv1d(&fit(w, &[4, 1, 2]), None, &Conv::new().groups(2).dilation(d.from_to(1, 2)));
    conv2d(x: Float, w: Float) EXACT, |d| fit(x, &[1, 2, 3, 3]).conv2d(&fit(w, &[1, 2, 2, 2]), None, &Conv::new().stride([1, d.from_to(1, 2)]).padding([d.below(2), 0]));
    conv3d(x: Float, w: Float) EXACT, |_d| fit(x, &[1, 1, 2, 2, 3]).conv3d(&fit(w, &[1, 1, 1, 2, 2]), None, &Conv::new());
    conv_transpose1d(x: Float, w: Float, b: Float) EXACT, |d| fit(x, &[1, 2, 3]).conv_transpose1d(&fit(w, &[2, 1, 2]), Some(&fit(b, &[1])), &Conv::new().stride(d.from_to(1, 2)));
    conv_transpose2d(x: Float, w: Float) EXACT, |d| fit(x, &[1, 1, 2, 2]).conv_transpose2d(&fit(w, &[1, 2, 2, 2]), None, &Conv::new().padding(d.below(2)));
    max_pool1d(x: Float) EXACT, |d| fit(x, &[1, 2, 5]).max_pool1d(&Pool::new(2).stride(d.from_to(1, 2)).ceil_mode(d.flag()));
    max_pool2d(x: Float) EXACT, |d| fit(x, &[1, 1, 4, 3]).max_pool2d(&Pool::new([2, 2]).stride(1).padding([d.below(2), 0]));
    max_pool2d_at(x: Float) EXACT, |_d| fit(x, &[1, 1, 4, 4]).max_pool2d_at(&Pool::new(2));
    avg_pool1d(x: Float) 0, |d| fit(x, &[1, 2, 5]).avg_pool1d(&Pool::new(2).stride(d.from_to(1, 2)).padding(1).count_include_pad(d.flag()));
    avg_pool2d(x: Float) EXACT, |_d| fit(x, &[1, 1, 4, 4]).avg_pool2d(&Pool::new(2));
    lp_pool1d(x: Float) 0, |d| fit(x, &[1, 1, 4]).lp_pool1d(d.pick(&[2.0, 1.0]), &Pool::new(2));
    adaptive_avg_pool1d(x: Float) 0, |d| fit(x, &[1, 2, 5]).adaptive_avg_pool1d(d.from_to(1, 3));
    adaptive_max_pool2d(x: Float) EXACT, |d| fit(x, &[1, 1, 3, 4]).adaptive_max_pool2d([2, d.from_to(1, 3)]);
    max_unpool1d(x: Float) EXACT, |_d| { let (y, at) = fit(x, &[1, 1, 4]).max_pool1d_at(&Pool::new(2)); y.max_unpool1d(&at, &Pool::new(2), None) };
    interpolate(x: Float) 0, |d| Interpolate::to([4, 3]).mode(d.pick(&[InterpolateMode::Nearest, InterpolateMode::Linear, InterpolateMode::Cubic, InterpolateMode::Area, InterpolateMode::NearestExact])).of(&fit(x, &[1, 1, 2, 3]));
    grid_sample(x: Float, g: Float) 0, |d| fit(x, &[1, 1, 3, 3]).grid_sample(&(fit(g, &[1, 2, 2, 2]) * 0.7), d.pick(&[GridSampleMode::Linear, GridSampleMode::Cubic, GridSampleMode::Nearest]), d.pick(&[GridPaddingMode::Zeros, GridPaddingMode::Border, GridPaddingMode::Reflection]), d.flag());
    affine_grid(x: Float) 0, |d| fit(x, &[1, 2, 3]).affine_grid(&[1, 1, 2, 2], d.flag());
};
