//! Images: resizing, sampling, shuffling.

use super::one;
use crate::args::{Arg, Args};
use pullback::{GridPaddingMode, GridSampleMode, Interpolate, InterpolateMode, Tensor};

pub fn call(name: &str, a: &Args) -> Option<Vec<Tensor>> {
    // The variants (`interpolate.bilinear`) say their mode in the arguments.
    let short = name.strip_prefix("nn.functional.")?;
    let short = short.split_once('.').map_or(short, |(head, _)| head);
    let x = || a.x();
    match short {
        "interpolate" | "upsample" | "upsample_bilinear" | "upsample_nearest" => {
            let mode = match short {
                "upsample_bilinear" => "bilinear",
                "upsample_nearest" => "nearest",
                _ => a.text(3, "mode").unwrap_or("nearest"),
            };
            let goal = match (a.get(1, "size"), a.get(2, "scale_factor")) {
                (Some(size), _) => {
                    Interpolate::to(size.ints().into_iter().map(|n| n as usize).collect::<Vec<_>>())
                }
                (None, Some(Arg::List(list))) => {
                    Interpolate::by(list.iter().map(Arg::float).collect::<Vec<_>>())
                }
                (None, Some(factor)) => Interpolate::by([factor.float()]),
                (None, None) => return None,
            };
            let mode = match mode {
                "nearest" => InterpolateMode::Nearest,
                "nearest-exact" => InterpolateMode::NearestExact,
                "linear" | "bilinear" | "trilinear" => InterpolateMode::Linear,
                "bicubic" => InterpolateMode::Cubic,
                "area" => InterpolateMode::Area,
                _ => return None,
            };
            let corners = a.flag(4, "align_corners", short == "upsample_bilinear");
            one(goal
                .mode(mode)
                .align_corners(corners)
                .recompute_scale(a.flag(5, "recompute_scale_factor", false))
                .antialias(a.flag(6, "antialias", false))
                .of(&x()))
        }
        "grid_sample" => {
            let how = match a.text(2, "mode").unwrap_or("bilinear") {
                "nearest" => GridSampleMode::Nearest,
                "bicubic" => GridSampleMode::Cubic,
                _ => GridSampleMode::Linear,
            };
            let outside = match a.text(3, "padding_mode").unwrap_or("zeros") {
                "border" => GridPaddingMode::Border,
                "reflection" => GridPaddingMode::Reflection,
                _ => GridPaddingMode::Zeros,
            };
            one(x().grid_sample(
                &a.tensor(1, "grid"),
                how,
                outside,
                a.flag(4, "align_corners", false),
            ))
        }
        "affine_grid" => {
            let size: Vec<usize> = a.ints(1, "size").into_iter().map(|n| n as usize).collect();
            one(a.tensor(0, "theta").affine_grid(&size, a.flag(2, "align_corners", false)))
        }
        "channel_shuffle" => one(x().channel_shuffle(a.int(1, "groups") as usize)),
        _ => None,
    }
}
