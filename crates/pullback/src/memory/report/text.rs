//! The report as a table.

use super::{DeviceMemory, LineMemory, MemoryKind, MemoryReport, PartMemory};
use pullback_ir::Device;
use std::fmt;

/// How many lines of a list are shown.
const SHOWN: usize = 10;

/// Bytes in the unit that suits them.
pub(crate) fn amount(bytes: u64) -> String {
    let units = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.into_iter().find(|(_, size)| bytes >= *size) {
        Some((unit, size)) => format!("{:.1} {unit}", bytes as f64 / size as f64),
        None => format!("{bytes} B"),
    }
}

impl fmt::Display for MemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.predicted { "predicted from shapes" } else { "measured" };
        let peak = self.peak();
        writeln!(f, "memory of a step, {how}")?;
        writeln!(f, "  {:<16} {:>11} {:>11}", "", "at most", "at the peak")?;
        for kind in MemoryKind::ALL {
            let (most, then) = (amount(self.most.of(kind)), amount(peak.alive.of(kind)));
            writeln!(f, "  {:<16} {most:>11} {then:>11}", kind.name())?;
        }
        let total = peak.alive.total();
        writeln!(f, "  {:<16} {:>11} {:>11}", "together", "", amount(total))?;
        writeln!(f, "peak: {total} bytes, at moment {} of {}", self.peak_at, self.timeline.len())?;
        writeln!(f, "  {peak}")?;
        lines(f, "made by operations and alive at the peak", &self.peak_by_line)?;
        lines(f, "activations by line", &self.activations_by_line)?;
        parts(f, &self.by_part)?;
        if let Some(pool) = self.pool {
            let above = amount(pool.peak.saturating_sub(pool.before));
            let (peak, before) = (amount(pool.peak), amount(pool.before));
            writeln!(f, "pool: {peak} at most, {above} above the {before} before")?;
        }
        for of in self.by_device.iter().filter(|of| of.device != Device::Cpu) {
            let DeviceMemory { device, peak, pool } = of;
            write!(f, "{device}: {} of it at most", amount(*peak))?;
            match pool {
                Some(pool) => writeln!(f, ", {} with all else that is there", amount(pool.peak))?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}

fn lines(f: &mut fmt::Formatter<'_>, title: &str, lines: &[LineMemory]) -> fmt::Result {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(f, "{title}")?;
    for line in lines.iter().take(SHOWN) {
        let LineMemory { op, at, device, kind, bytes, count } = line;
        let at = at.map_or("no line".to_string(), |at| at.to_string());
        let what = match device {
            Device::Cpu => format!("{op} ×{count}"),
            device => format!("{op} ×{count} @{device}"),
        };
        writeln!(f, "  {:>11}  {:<15} {what:<24} {at}", amount(*bytes), kind.name())?;
    }
    if let Some(rest) = lines.get(SHOWN..).filter(|rest| !rest.is_empty()) {
        let bytes = rest.iter().map(|line| line.bytes).sum();
        writeln!(f, "  {:>11}  on {} further lines", amount(bytes), rest.len())?;
    }
    Ok(())
}

fn parts(f: &mut fmt::Formatter<'_>, parts: &[PartMemory]) -> fmt::Result {
    if parts.iter().all(|part| part.path.is_empty()) {
        return Ok(());
    }
    let shown = |part: &PartMemory| match part.path.as_str() {
        "" => "(elsewhere)".to_string(),
        path => path.to_string(),
    };
    let width = parts.iter().map(|part| shown(part).chars().count()).max().unwrap_or(0).max(4);
    writeln!(
        f,
        "{:<width$}  {:>11} {:>11} {:>15} {:>11}",
        "part", "parameters", "gradients", "optimizer state", "activations"
    )?;
    for part in parts {
        let bytes = &part.bytes;
        writeln!(
            f,
            "{:<width$}  {:>11} {:>11} {:>15} {:>11}",
            shown(part),
            amount(bytes.parameters),
            amount(bytes.gradients),
            amount(bytes.optimizer_state),
            amount(bytes.activations)
        )?;
    }
    Ok(())
}
