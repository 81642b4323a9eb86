//! The health of a training run, from the files of its folder.

use super::value::number;
use super::versioned;
use crate::error::{Answer, ExplorerError};
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
    let rows = read_log(&log).map_err(ExplorerError::from)?;
    let mut series: BTreeMap<String, Vec<(u64, f64)>> = BTreeMap::new();
    for row in &rows {
        for (name, value) in row.metrics.iter() {
            series.entry(name.to_string()).or_default().push((row.step, value));
        }
    }
    let mut notes = Vec::new();
    let layers = match folder.join(LAYERS).is_file() {
        true => read_layers(checked(folder, LAYERS)?).map_err(ExplorerError::from)?,
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
    let broken =
        |error: std::io::Error| ExplorerError::file(format!("{name} cannot be read: {error}"));
    let info = std::fs::symlink_metadata(&path).map_err(broken)?;
    if !info.is_file() {
        return Err(ExplorerError::file(format!("{name} is not a file")));
    }
    if info.len() > LARGEST {
        return Err(ExplorerError::file(format!("{name} is larger than {LARGEST} bytes")));
    }
    Ok(path)
}

fn config(path: &Path) -> Answer<Value> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| ExplorerError::file(format!("{CONFIG} cannot be read: {error}")))?;
    let table: toml::Table = text
        .parse()
        .map_err(|error| ExplorerError::file(format!("{CONFIG} is invalid: {error}")))?;
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

struct LayerSeries {
    name: String,
    parameters: u64,
    points: Vec<LayerPoint>,
}

fn by_layer(rows: &[LayerRow]) -> Vec<LayerSeries> {
    let mut layers: Vec<LayerSeries> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows {
        for norms in &row.layers {
            let at = *places.entry(norms.name.clone()).or_insert_with(|| {
                let (name, parameters) = (norms.name.clone(), norms.count);
                layers.push(LayerSeries { name, parameters, points: Vec::new() });
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

/// The first of some rows that are wrong, at least `needed` in a row: its step, and in words how
/// long it lasts.
fn lasting(rows: &[(u64, bool)], needed: usize) -> Option<(u64, String)> {
    let needed = needed.min(rows.len()).max(1);
    let from = rows.windows(needed).position(|some| some.iter().all(|row| row.1))?;
    let count = rows[from..].iter().take_while(|row| row.1).count();
    let (first, last) = (rows[from].0, rows[from + count - 1].0);
    let when = match count {
        _ if from + count == rows.len() => format!("from step {first} on"),
        1 => format!("at step {first}"),
        _ => format!("from step {first} to {last}"),
    };
    Some((first, when))
}

/// What is wrong with a layer for three rows or more, and what is not finite.
fn flags(layers: &[LayerSeries], series: &BTreeMap<String, Vec<(u64, f64)>>) -> Vec<Value> {
    let mut out = Vec::new();
    let mut flag = |layer: Option<&str>, kind: &str, step: u64, text: String| {
        out.push(json!({ "layer": layer, "kind": kind, "step": step, "text": text }));
    };
    for (name, points) in series.iter().filter(|(name, _)| name.contains("loss")) {
        let rows: Vec<(u64, bool)> = points.iter().map(|(s, x)| (*s, !x.is_finite())).collect();
        if let Some((step, when)) = lasting(&rows, 1) {
            flag(None, "non-finite", step, format!("{name} is not finite {when}"));
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
        let rows = |wrong: &dyn Fn(&LayerPoint) -> bool| -> Vec<(u64, bool)> {
            layer.points.iter().map(|p| (p.step, wrong(p))).collect()
        };
        let name = Some(&layer.name[..]);
        let broken = rows(&|p| !p.gradient.is_finite() || !p.weight.is_finite());
        if let Some((step, when)) = lasting(&broken, 1) {
            let text = "the gradient or the weights have elements that are not finite";
            flag(name, "non-finite", step, format!("{text}, {when}"));
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
            if let Some((step, when)) = lasting(&rows(wrong), 3) {
                flag(name, kind, step, format!("{text}, {when}"));
            }
        }
        let first = layer.points.iter().map(|p| p.gradient).find(|&g| g > 0.0);
        let grown = rows(&|p| first.is_some_and(|first| p.gradient > EXPLODING * first));
        if let Some((step, when)) = lasting(&grown, 1) {
            let text = "the gradient is more than a thousand times that of the start";
            flag(name, "exploding", step, format!("{text}, {when}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_say_how_long_it_lasts() {
        let rows = |wrong: &[u64]| -> Vec<(u64, bool)> {
            (1..=12).map(|step| (step, wrong.contains(&step))).collect()
        };
        let found = |wrong: &[u64], needed| lasting(&rows(wrong), needed);
        let is = |step: u64, text: &str| Some((step, text.to_string()));
        assert_eq!(found(&[5], 1), is(5, "at step 5"));
        assert_eq!(found(&[2, 8, 9, 10], 3), is(8, "from step 8 to 10"));
        assert_eq!(found(&[10, 11, 12], 3), is(10, "from step 10 on"));
        assert_eq!(found(&[12], 1), is(12, "from step 12 on"));
        assert_eq!(found(&[4, 5], 3), None);
        // A run of one row has no three, and an empty one has nothing.
        assert_eq!(lasting(&[(7, true)], 3), is(7, "from step 7 on"));
        assert_eq!(lasting(&[], 3), None);
    }
}
