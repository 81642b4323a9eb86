//! The health of a training run, from the files of its folder.

use super::value::number;
use super::versioned;
use crate::problem::{Answer, Problem};
use pullback_nn::train::{LayerRow, read_layers, read_log};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// The files of a run folder.
pub const CONFIG: &str = "config.toml";
/// Its log.
pub const LOG: &str = "log.jsonl";
/// Its norms by layer.
pub const LAYERS: &str = "layers.jsonl";
/// Bytes of a file that is read.
const LARGEST: u64 = 256 << 20;
/// Points of a curve.
const POINTS: usize = 1000;

/// Whether a folder is one of a run.
pub fn is_run(folder: &Path) -> bool {
    folder.join(LOG).is_file() || folder.join(CONFIG).is_file()
}

/// `GET /api/run`.
///
/// # Errors
/// If there is no log, or it cannot be read.
pub fn answer(folder: &Path) -> Answer<Value> {
    let title = folder.file_name().map_or("run".into(), |name| name.to_string_lossy().to_string());
    let log = checked(folder, LOG)?;
    let rows = read_log(&log).map_err(Problem::from)?;
    let mut series: BTreeMap<String, Vec<(u64, f64)>> = BTreeMap::new();
    for row in &rows {
        for (name, value) in row.metrics.iter() {
            series.entry(name.to_string()).or_default().push((row.step, value));
        }
    }
    let mut notes = Vec::new();
    let layers = match folder.join(LAYERS).is_file() {
        true => read_layers(checked(folder, LAYERS)?).map_err(Problem::from)?,
        false => {
            notes.push(
                "the run has no norms by layer: `pullback train` writes them, and \
                 `LayerLog` in a program of your own",
            );
            Vec::new()
        }
    };
    let by_layer = by_layer(&layers);
    let config = match folder.join(CONFIG).is_file() {
        true => config(&checked(folder, CONFIG)?)?,
        false => Value::Null,
    };
    // The loss first, then what belongs to it.
    let rank = |name: &str| (!name.contains("loss"), name.starts_with("epoch_"), name.to_string());
    let mut named: Vec<(&String, &Vec<(u64, f64)>)> = series.iter().collect();
    named.sort_by_key(|(name, _)| rank(name));
    let curves: Vec<Value> =
        named.iter().map(|(name, all)| json!({ "name": name, "points": points(all) })).collect();
    let shown: Vec<Value> = by_layer
        .iter()
        .map(|layer| {
            let of = |pick: fn(&LayerPoint) -> f64| {
                points(&layer.points.iter().map(|p| (p.step, pick(p))).collect::<Vec<_>>())
            };
            json!({
                "name": layer.name, "parameters": layer.parameters, "gradient": of(|p| p.gradient),
                "weight": of(|p| p.weight), "update": of(|p| p.update),
            })
        })
        .collect();
    Ok(versioned(json!({
        "title": title, "config": config, "steps": rows.last().map_or(0, |row| row.step),
        "series": curves, "layers": shown, "flags": flags(&by_layer, &series), "notes": notes,
    })))
}

/// A file of the folder, if it is one, is inside it and is not too large.
fn checked(folder: &Path, name: &str) -> Answer<std::path::PathBuf> {
    let path = folder.join(name);
    let broken = |error: std::io::Error| Problem::file(format!("{name} cannot be read: {error}"));
    let info = std::fs::symlink_metadata(&path).map_err(broken)?;
    if !info.is_file() {
        return Err(Problem::file(format!("{name} is not a file")));
    }
    if info.len() > LARGEST {
        return Err(Problem::file(format!("{name} is larger than {LARGEST} bytes")));
    }
    Ok(path)
}

fn config(path: &Path) -> Answer<Value> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Problem::file(format!("{CONFIG} cannot be read: {error}")))?;
    let table: toml::Table =
        text.parse().map_err(|error| Problem::file(format!("{CONFIG} is invalid: {error}")))?;
    let shown = |value: &toml::Value| match value {
        toml::Value::String(text) => json!(text),
        toml::Value::Integer(n) => json!(n),
        toml::Value::Float(x) => number(*x),
        toml::Value::Boolean(on) => json!(on),
        other => json!(other.to_string()),
    };
    Ok(Value::Object(table.iter().map(|(k, v)| (k.clone(), shown(v))).collect::<Map<_, _>>()))
}

/// The points of a curve, thinned evenly: the last is always there.
fn points(all: &[(u64, f64)]) -> Vec<Value> {
    let stride = all.len().div_ceil(POINTS).max(1);
    let last = all.len().saturating_sub(1);
    let chosen = all.iter().enumerate().filter(|(i, _)| (last - i).is_multiple_of(stride));
    chosen.map(|(_, &(step, x))| json!([step, number(x)])).collect()
}

struct LayerPoint {
    step: u64,
    gradient: f64,
    weight: f64,
    update: f64,
}

struct Layer {
    name: String,
    parameters: u64,
    points: Vec<LayerPoint>,
}

fn by_layer(rows: &[LayerRow]) -> Vec<Layer> {
    let mut layers: Vec<Layer> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows {
        for norms in &row.layers {
            let at = *places.entry(norms.name.clone()).or_insert_with(|| {
                let (name, parameters) = (norms.name.clone(), norms.count);
                layers.push(Layer { name, parameters, points: Vec::new() });
                layers.len() - 1
            });
            layers[at].points.push(LayerPoint {
                step: row.step,
                gradient: norms.gradient,
                weight: norms.weight,
                update: norms.update,
            });
        }
    }
    layers
}

/// A gradient this many times smaller than the median of all layers vanishes.
const VANISHING: f64 = 1e-3;
/// One this many times larger explodes, and so does one that grew by as much.
const EXPLODING: f64 = 1e3;
/// Updates below this share of the weights change nothing; above the next one they are not steps.
const FROZEN: f64 = 1e-7;
const UNSTABLE: f64 = 0.1;

/// A kind of flag, when it is raised, and in words.
type FlagRule<'a> = (&'a str, &'a dyn Fn(&LayerPoint) -> bool, &'a str);

/// What is wrong with a layer, with the first step at which it stays so for three rows.
fn flags(layers: &[Layer], series: &BTreeMap<String, Vec<(u64, f64)>>) -> Vec<Value> {
    let mut out = Vec::new();
    let mut flag = |layer: Option<&str>, kind: &str, step: u64, text: String| {
        out.push(json!({ "layer": layer, "kind": kind, "step": step, "text": text }));
    };
    for (name, points) in series.iter().filter(|(name, _)| name.contains("loss")) {
        if let Some((step, x)) = points.iter().find(|(_, x)| !x.is_finite()) {
            flag(None, "non-finite", *step, format!("{name} is {x} from step {step} on"));
        }
    }
    // The median gradient of all layers, by step.
    let mut by_step: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for point in layers.iter().flat_map(|layer| &layer.points) {
        if point.gradient.is_finite() && point.gradient > 0.0 {
            by_step.entry(point.step).or_default().push(point.gradient);
        }
    }
    let median: BTreeMap<u64, f64> = by_step
        .into_iter()
        .map(|(step, mut all)| {
            all.sort_by(f64::total_cmp);
            (step, all[all.len() / 2])
        })
        .collect();
    for layer in layers {
        let lasting = |wrong: &dyn Fn(&LayerPoint) -> bool| {
            let needed = layer.points.len().min(3);
            let all = layer.points.windows(needed.max(1));
            all.into_iter().find(|w| w.iter().all(wrong)).map(|w| w[0].step)
        };
        let name = Some(&layer.name[..]);
        let broken = |p: &&LayerPoint| !p.gradient.is_finite() || !p.weight.is_finite();
        if let Some(point) = layer.points.iter().find(broken) {
            let text = "the gradient or the weights have elements that are not finite";
            flag(name, "non-finite", point.step, text.into());
            continue;
        }
        let near = |p: &LayerPoint| median.get(&p.step).copied().unwrap_or(f64::NAN);
        let rules: [FlagRule; 5] = [
            ("dead", &|p| p.gradient == 0.0, "the gradient is zero"),
            (
                "vanishing",
                &|p| p.gradient > 0.0 && p.gradient < VANISHING * near(p),
                "the gradient is less than a thousandth of that of the median layer",
            ),
            (
                "exploding",
                &|p| p.gradient > EXPLODING * near(p),
                "the gradient is more than a thousand times that of the median layer",
            ),
            (
                "frozen",
                &|p| p.update < FROZEN && p.gradient > 0.0,
                "updates are less than 1e-7 of the weights",
            ),
            (
                "unstable",
                // Biases start at zero: any step is large there.
                &|p| p.update > UNSTABLE && !layer.name.ends_with("bias"),
                "updates are more than a tenth of the weights",
            ),
        ];
        for (kind, wrong, text) in rules {
            if let Some(step) = lasting(wrong) {
                flag(name, kind, step, format!("{text}, from step {step} on"));
            }
        }
        let first = layer.points.iter().map(|p| p.gradient).find(|&g| g > 0.0);
        let grown = |p: &&LayerPoint| first.is_some_and(|first| p.gradient > EXPLODING * first);
        if let Some(point) = layer.points.iter().find(grown) {
            let text = "the gradient has grown by more than a thousand times since the start";
            flag(name, "exploding", point.step, text.into());
        }
    }
    out
}
