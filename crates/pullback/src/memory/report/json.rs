//! The report as JSON, for tools.

use super::{LineMemory, MemoryBytes, MemoryKind, MemoryReport, MemorySample, PoolPeak};
use pullback_ir::Line;
use std::fmt::Write;

impl MemoryReport {
    /// The report as one JSON object.
    ///
    /// | key | value |
    /// |---|---|
    /// | `predicted` | whether it was predicted |
    /// | `most` | bytes of each kind, each at its largest: `{"parameters": …, "gradients": …, "optimizer_state": …, …}` |
    /// | `peak` | the moment at which most is alive, as in `timeline`, with its `index` and `by_line` |
    /// | `activations_by_line` | list of `{"op", "at", "kind", "bytes", "count", "device"}` |
    /// | `by_part` | list of `{"path", "bytes"}` |
    /// | `timeline` | list of `{"op", "at", "phase", "total", "alive"}` |
    /// | `pool` | `null`, or `{"before", "peak"}` |
    /// | `by_device` | list of `{"device", "peak", "pool"}` |
    ///
    /// A place (`at`) is `null` or `{"file", "line", "column"}`.
    ///
    /// ```
    /// # use pullback::{Tensor, predict_memory};
    /// let w = Tensor::from([1.0f32, 2.0]).requires_grad();
    /// let report = predict_memory(|| w.exp().sum().backward())?;
    /// assert!(report.to_json().starts_with(r#"{"predicted":true,"most":{"parameters":8,"gradients":8,"#));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn to_json(&self) -> String {
        let mut out = format!("{{\"predicted\":{},\"most\":", self.predicted);
        bytes(&mut out, &self.most);
        let _ = write!(out, ",\"peak\":{{\"index\":{},", self.peak_at);
        moment(&mut out, self.peak());
        out.push_str(",\"by_line\":");
        list(&mut out, &self.peak_by_line, line);
        out.push_str("},\"activations_by_line\":");
        list(&mut out, &self.activations_by_line, line);
        out.push_str(",\"by_part\":");
        list(&mut out, &self.by_part, |out, part| {
            out.push_str("{\"path\":");
            string(out, &part.path);
            out.push_str(",\"bytes\":");
            bytes(out, &part.bytes);
            out.push('}');
        });
        out.push_str(",\"timeline\":");
        list(&mut out, &self.timeline, |out, it| {
            out.push('{');
            moment(out, it);
            out.push('}');
        });
        out.push_str(",\"pool\":");
        pool(&mut out, self.pool);
        out.push_str(",\"by_device\":");
        list(&mut out, &self.by_device, |out, of| {
            let _ = write!(out, "{{\"device\":\"{}\",\"peak\":{},\"pool\":", of.device, of.peak);
            pool(out, of.pool);
            out.push('}');
        });
        out.push('}');
        out
    }
}

fn pool(out: &mut String, pool: Option<PoolPeak>) {
    match pool {
        None => out.push_str("null"),
        // Writing to a string does not fail, here and elsewhere.
        Some(pool) => {
            let _ = write!(out, "{{\"before\":{},\"peak\":{}}}", pool.before, pool.peak);
        }
    }
}

fn list<T>(out: &mut String, items: &[T], mut item: impl FnMut(&mut String, &T)) {
    out.push('[');
    for (i, value) in items.iter().enumerate() {
        out.push_str(if i > 0 { "," } else { "" });
        item(out, value);
    }
    out.push(']');
}

fn bytes(out: &mut String, bytes: &MemoryBytes) {
    out.push('{');
    for (i, kind) in MemoryKind::ALL.into_iter().enumerate() {
        out.push_str(if i > 0 { "," } else { "" });
        let _ = write!(out, "\"{}\":{}", kind.name().replace(' ', "_"), bytes.of(kind));
    }
    out.push('}');
}

/// The fields of a moment.
fn moment(out: &mut String, moment: &MemorySample) {
    out.push_str("\"op\":");
    string(out, moment.op);
    out.push_str(",\"at\":");
    place(out, moment.at);
    let (phase, total) = (moment.phase.name(), moment.alive.total());
    let _ = write!(out, ",\"phase\":\"{phase}\",\"total\":{total},\"alive\":");
    bytes(out, &moment.alive);
}

fn line(out: &mut String, line: &LineMemory) {
    out.push_str("{\"op\":");
    string(out, line.op);
    out.push_str(",\"at\":");
    place(out, line.at);
    let kind = line.kind.name().replace(' ', "_");
    let LineMemory { bytes, count, device, .. } = line;
    let _ = write!(
        out,
        ",\"kind\":\"{kind}\",\"bytes\":{bytes},\"count\":{count},\"device\":\"{device}\"}}"
    );
}

fn place(out: &mut String, at: Option<Line>) {
    let Some(at) = at else { return out.push_str("null") };
    out.push_str("{\"file\":");
    string(out, at.file());
    let _ = write!(out, ",\"line\":{},\"column\":{}}}", at.line(), at.column());
}

fn string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
