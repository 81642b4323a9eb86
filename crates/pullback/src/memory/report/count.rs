//! From lifetimes to a report.

use super::ledger::{Ledger, Life};
use super::{
    DeviceMemory, LineMemory, MemoryBytes, MemoryKind, MemoryReport, MemorySample, PartMemory,
    PoolPeak,
};
use pullback_ir::Device;

pub(super) fn report(ledger: &Ledger, pool: Option<PoolPeak>) -> MemoryReport {
    let timeline = timeline(ledger);
    let most_at = |amount: &dyn Fn(&MemoryBytes) -> u64| {
        let mut best = (0, 0);
        for (i, moment) in timeline.iter().enumerate() {
            let bytes = amount(&moment.alive);
            if bytes > best.1 {
                best = (i, bytes);
            }
        }
        best
    };
    let peak_at = most_at(&MemoryBytes::total).0;
    let moments = MemoryKind::ALL.map(|kind| (kind, most_at(&|alive| alive.of(kind))));
    let mut most = MemoryBytes::default();
    for (kind, (_, bytes)) in moments {
        *most.slot(kind) = bytes;
    }
    let fullest = most_at(&|alive| alive.activations).0;
    let is_kept = |life: &Life| life.kind() == MemoryKind::Activations;
    // Outside of all parts is named last.
    let parts = ledger.parts.iter().enumerate().map(|(i, path)| (Some(i), path.as_str()));
    let mut by_part: Vec<PartMemory> = Vec::new();
    for (part, path) in parts.chain([(None, "")]) {
        let mut bytes = MemoryBytes::default();
        for life in ledger.lives.iter().filter(|life| life.part == part) {
            let kind = life.kind();
            let (_, (moment, _)) = moments[kind as usize];
            if life.is_alive(moment) {
                *bytes.slot(kind) += life.bytes;
            }
        }
        if bytes != MemoryBytes::default() {
            by_part.push(PartMemory { path: path.to_string(), bytes });
        }
    }
    MemoryReport {
        predicted: pool.is_none(),
        most,
        activations_by_line: by_line(ledger, |life| is_kept(life) && life.is_alive(fullest)),
        by_part,
        peak_at,
        peak_by_line: by_line(ledger, |life| life.known.is_none() && life.is_alive(peak_at)),
        timeline,
        pool,
        by_device: by_device(ledger),
    }
}

/// The most that is alive on each device, the host first.
fn by_device(ledger: &Ledger) -> Vec<DeviceMemory> {
    let mut devices: Vec<Device> = ledger.lives.iter().map(|life| life.device).collect();
    devices.sort_unstable();
    devices.dedup();
    let peak = |device: Device| {
        let mut changes = vec![0i64; ledger.moments.len() + 1];
        for life in ledger.lives.iter().filter(|life| life.device == device) {
            let last = life.last.min(ledger.moments.len() - 1);
            if life.first <= last {
                changes[life.first] += life.bytes as i64;
                changes[last + 1] -= life.bytes as i64;
            }
        }
        let alive = changes.iter().scan(0, |sum, change| {
            *sum += change;
            Some(*sum)
        });
        DeviceMemory { device, peak: alive.max().unwrap_or(0) as u64, pool: None }
    };
    devices.into_iter().map(peak).collect()
}

/// What is alive at each moment.
fn timeline(ledger: &Ledger) -> Vec<MemorySample> {
    let count = ledger.moments.len();
    // The changes at each moment: lifetimes that begin at it, and that have ended before it.
    let mut changes = vec![[0i64; 6]; count + 1];
    for life in &ledger.lives {
        let last = life.last.min(count - 1);
        if life.first <= last {
            let kind = life.kind() as usize;
            changes[life.first][kind] += life.bytes as i64;
            changes[last + 1][kind] -= life.bytes as i64;
        }
    }
    let mut alive = [0i64; 6];
    let mut out = Vec::with_capacity(count);
    for (moment, change) in ledger.moments.iter().zip(&changes) {
        let mut bytes = MemoryBytes::default();
        for (kind, (sum, change)) in MemoryKind::ALL.into_iter().zip(alive.iter_mut().zip(change)) {
            *sum += change;
            *bytes.slot(kind) = *sum as u64;
        }
        let at = moment.at;
        let (op, phase, again) = (moment.op, moment.phase, moment.again);
        out.push(MemorySample { op, at, phase, again, alive: bytes });
    }
    out
}

/// The lifetimes that count, by kind, op and line, the largest first.
fn by_line(ledger: &Ledger, counts: impl Fn(&Life) -> bool) -> Vec<LineMemory> {
    let mut lines: Vec<LineMemory> = Vec::new();
    let mut places = rustc_hash::FxHashMap::default();
    for life in ledger.lives.iter().filter(|life| life.bytes > 0 && counts(life)) {
        let (op, at, kind, device) = (life.op, life.at, life.kind(), life.device);
        let place = *places.entry((op, at, kind, device)).or_insert(lines.len());
        if place == lines.len() {
            lines.push(LineMemory { op, at, device, kind, bytes: 0, count: 0 });
        }
        lines[place].bytes += life.bytes;
        lines[place].count += 1;
    }
    lines.sort_by_key(|line| std::cmp::Reverse(line.bytes));
    lines
}
