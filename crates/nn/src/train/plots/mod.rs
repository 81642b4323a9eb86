//! Plots of learning curves.
//!
//! A [`Chart`] knows its lines; `layout.rs` turns it into shapes, with axes, ticks (`ticks.rs`) and
//! a legend; `svg.rs` writes those as text, and `png.rs` paints them, with `raster.rs` for lines
//! and `font/` for letters. Both draw the same shapes, so they look the same.

mod chart;
mod curves;
mod font;
mod layout;
mod png;
mod raster;
mod svg;
mod ticks;

pub use chart::Chart;
pub use curves::{Plots, learning_curves};
