//! Learning curves as SVG and PNG.

use pullback::{Result, Tensor, Tree};
use pullback_nn::Module;
use pullback_nn::optim::{Sgd, UpdateRule};
use pullback_nn::train::plots::{Chart, Plots, learning_curves};
use pullback_nn::train::{Every, JsonLog, LogRow, Metrics, Trainer};
use std::path::Path;

/// Two curves as those of a training usually are, with noise that is the same each time.
fn rows() -> Vec<LogRow> {
    let mut noise = 7u64;
    let mut next = || {
        noise =
            noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (noise >> 33) as f64 / f64::from(1u32 << 31)
    };
    let row = |step: u64| {
        let fall = 2.3 * (-(step as f64) / 150.0).exp();
        let mut metrics = Metrics::new().with("loss", fall + 0.05 + 0.25 * next() * (fall + 0.1));
        if step.is_multiple_of(50) {
            metrics.set("val_loss", fall * 1.05 + 0.14 + step as f64 * 4e-5);
        }
        LogRow { step, epoch: 0, seconds: 0.0, metrics }
    };
    (1..=1000).map(row).collect()
}

/// A small chart with everything in it.
fn small() -> Chart {
    Chart::new("Loss & <error>")
        .x_label("step")
        .y_label("loss")
        .line("train", vec![(0.0, 4.0), (50.0, 1.0), (60.0, f64::NAN), (70.0, 0.5), (100.0, 0.25)])
        .line("val", vec![(100.0, 2.0)])
}

#[test]
fn the_svg_is_this_text() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/chart.svg");
    let svg = small().svg();
    if std::env::var_os("PULLBACK_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, &svg).unwrap();
    }
    assert_eq!(svg, std::fs::read_to_string(path).unwrap());
    assert!(svg.contains("Loss &amp; &lt;error&gt;"));
    assert_eq!(svg.matches("<polyline").count(), svg.matches("/>").count() - 1);
}

#[test]
fn the_png_has_the_lines_where_they_belong() {
    let png = Chart::new("").line("flat", vec![(0.0, 1.0), (10.0, 3.0)]).png().unwrap();
    let image = image::load_from_memory(&png).unwrap().to_rgb8();
    assert_eq!((image.width(), image.height()), (1440, 880));
    // White in the corners, the colour of the line at its ends and in its middle, not next to it.
    let at = |x: f64, y: f64| image.get_pixel((x * 2.0) as u32, (y * 2.0) as u32).0;
    let (white, blue) = ([255; 3], [0x1f, 0x6f, 0xb4]);
    for (x, y) in [(1.0, 1.0), (719.0, 1.0), (1.0, 439.0), (719.0, 439.0)] {
        assert_eq!(at(x, y), white);
    }
    // The axis goes from 0.9 to 3.1 over 326 units.
    let y_of = |value: f64| 388.0 - (value - 0.9) / 2.2 * 326.0;
    for (x, value) in [(66.0, 1.0), (383.0, 2.0), (699.9, 3.0)] {
        assert_eq!(at(x, y_of(value)), blue, "at {x}");
    }
    assert_eq!(at(383.0, y_of(2.0) - 12.0), white);
    // The edge of the line is between the two: nothing jumps from one to the other.
    let column: Vec<[u8; 3]> = (0..880).map(|y| image.get_pixel(766, y).0).collect();
    let between = column.iter().filter(|c| c[0] > 0x1f && c[0] < 0xe0 && c[2] > 0xb4).count();
    assert!((1..=4).contains(&between), "{between} pixels at the edges");
}

#[test]
fn letters_are_painted_in_a_font_of_many_sizes() {
    // The ink of a title, in pixels of a chart of the scale 1.
    let ink = |title: &str, scale: f64| {
        let png = Chart::new(title).png_scaled(scale).unwrap();
        let image = image::load_from_memory(&png).unwrap().to_luma8();
        assert_eq!(image.width(), (720.0 * scale) as u32);
        let dark: f64 = image.pixels().map(|pixel| f64::from(255 - pixel.0[0])).sum();
        dark / 255.0 / (scale * scale)
    };
    let of = |text: &str, scale: f64| ink(text, scale) - ink("", scale);
    for text in ["I", "Loss", "10⁻³ ≤ ∇λ", "ß"] {
        let one = of(text, 1.0);
        assert!(one > 5.0, "{text}: {one}");
        for scale in [0.5, 2.0, 3.0] {
            assert!((of(text, scale) / one - 1.0).abs() < 0.1, "{text} at {scale}");
        }
    }
    // Letters have widths of their own and shades at their edges.
    assert!(of("W", 2.0) > 2.0 * of("i", 2.0));
    assert!((of("WW", 2.0) / of("W", 2.0) - 2.0).abs() < 0.05);
    let png = Chart::new("O").png().unwrap();
    let image = image::load_from_memory(&png).unwrap().to_luma8();
    let shades: std::collections::BTreeSet<u8> = image
        .enumerate_pixels()
        .filter(|(x, y, _)| (132..160).contains(x) && (30..60).contains(y))
        .map(|(_, _, pixel)| pixel.0[0])
        .collect();
    assert!(shades.len() > 20, "{shades:?}");
    for scale in [0.0, 17.0, f64::NAN] {
        let error = Chart::new("").png_scaled(scale).unwrap_err().to_string();
        assert!(error.contains("must be between 0.25 and 16"), "{error}");
    }
}

#[test]
fn charts_of_odd_data_can_be_drawn() {
    let odd: [Vec<(f64, f64)>; 7] = [
        vec![],
        vec![(1.0, 1.0)],
        vec![(1.0, f64::NAN)],
        vec![(1.0, f64::INFINITY), (2.0, 1.0)],
        vec![(1.0, -5.0), (2.0, 0.0)],
        vec![(1.0, 1e300), (2.0, -1e300)],
        vec![(0.0, 1e-300), (1e18, 1e-299)],
    ];
    for points in odd {
        for log in [false, true] {
            let chart = Chart::new("odd").log_y(log).noisy_line("a", points.clone(), 5);
            let svg = chart.svg();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{points:?}: {svg}");
            chart.png().unwrap();
            let shows = points.iter().any(|p| p.1.is_finite() && (!log || p.1 > 0.0));
            assert_eq!(svg.contains("nothing to show"), !shows, "{points:?}");
        }
    }
}

#[test]
fn a_million_points_are_a_small_file() {
    let points = (0..1_000_000).map(|i| (f64::from(i), f64::from(i % 1000))).collect();
    let svg = Chart::new("").line("saw", points).svg();
    assert!(svg.len() < 100_000, "{} bytes", svg.len());
}

#[test]
fn curves_are_those_of_steps_and_evaluations() {
    let svg = learning_curves(&rows(), "loss").svg();
    for part in [">train<", ">val<", ">Loss<", ">loss<", ">step<", "stroke-opacity"] {
        assert!(svg.contains(part), "no {part} in {svg}");
    }
    let svg = learning_curves(&rows()[..40], "loss").svg();
    assert!(!svg.contains("stroke-opacity") && !svg.contains(">val<"));
}

#[derive(Tree)]
struct Model {
    weight: Tensor,
}

#[test]
fn a_run_leaves_its_plots() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log.jsonl");
    let model = Model { weight: Tensor::from([1.0]).requires_grad() };
    let optimizer = Sgd::default().over(model.parameters())?;
    Trainer::new(&model, &optimizer)
        .evaluate(Every::Steps(1), |_: &Model| Ok([("top/5 accuracy", 0.5)]))
        .callback(JsonLog::new(&log))
        .callback(Plots::new(&log, folder.path().join("plots")))
        .run(&vec![0.5, 0.25], |&x| Ok(x))?;
    let files = std::fs::read_dir(folder.path().join("plots")).unwrap().flatten();
    let mut names: Vec<String> = files.map(|f| f.file_name().into_string().unwrap()).collect();
    names.sort();
    let wanted = ["loss.png", "loss.svg", "lr.png", "lr.svg"];
    assert_eq!(names[..4], wanted);
    assert_eq!(names[4..], ["top_5_accuracy.png", "top_5_accuracy.svg"]);
    let error = Chart::new("").save(folder.path().join("chart.gif")).unwrap_err().to_string();
    assert!(error.contains("chart.gif ends neither in .svg nor in .png"), "{error}");
    Ok(())
}
