//! The fastest of several ways to do the same work on a device, by measuring.

use crate::dry_run::in_dry_run;
use crate::gpu::{Gpu, LibraryHandle};
use crate::graph::captures_into;
use pullback_ir::Result;
use std::ptr::null_mut;

/// Milliseconds of a measurement, if the work is short.
const LONG_ENOUGH: f32 = 1.0;
/// Most repetitions in a measurement: so many are put into the queue while the device is kept busy.
const MOST: usize = 10;

/// The number of the fastest way. `time` runs a way so many times and gives the milliseconds of all
/// together; `None` if it fails. The first ways are those that are thought to be faster: a later
/// one must be better by more than a measurement varies.
pub(crate) fn fastest(
    ways: usize,
    mut time: impl FnMut(usize, usize) -> Option<f32>,
) -> Option<usize> {
    let mut best: Option<(usize, f32)> = None;
    for way in 0..ways {
        let limit = best.map_or(f32::INFINITY, |(_, time)| time);
        // Twice, as the first run also loads the kernel.
        let Some(once) = time(way, 1).and_then(|_| time(way, 1)) else { continue };
        if once > 2.0 * limit {
            continue;
        }
        let count = ((LONG_ENOUGH / once.max(1e-3)) as usize).clamp(1, MOST);
        // The least of several: other work on the device only adds.
        let again = (0..3).filter_map(|_| time(way, count)).map(|all| all / count as f32);
        let least = again.fold(once, f32::min);
        if best.is_none() || least < 0.99 * limit {
            best = Some((way, least));
        }
    }
    best.map(|(way, _)| way)
}

/// Measures work on the stream of a device.
pub(crate) struct StreamTimer<'a> {
    gpu: &'a Gpu,
    events: [LibraryHandle; 2],
}

impl<'a> StreamTimer<'a> {
    /// `None` while the stream is being captured or steps run dry, when nothing can be
    /// measured.
    pub fn new(gpu: &'a Gpu) -> Option<StreamTimer<'a>> {
        gpu.enter();
        if captures_into().is_some() || in_dry_run() {
            return None;
        }
        let mut watch = StreamTimer { gpu, events: [LibraryHandle(null_mut()); 2] };
        for event in &mut watch.events {
            // SAFETY: writes one handle. Without flags an event keeps its time.
            if unsafe { (gpu.driver.cuEventCreate)(&mut event.0, 0) } != 0 {
                return None;
            }
        }
        Some(watch)
    }

    /// The milliseconds between begin and end of the work that `f` puts into the queue, after work
    /// that `before` puts there to keep the device busy meanwhile.
    pub fn time(
        &self,
        before: impl FnOnce() -> Result<()>,
        f: impl FnOnce() -> Result<()>,
    ) -> Option<f32> {
        let (driver, stream, [start, end]) = (self.gpu.driver, self.gpu.stream.0, self.events);
        let mut time = 0.0;
        before().ok()?;
        self.gpu.enter();
        // SAFETY: events and stream are of this context and live until the end of the call.
        unsafe {
            ((driver.cuEventRecord)(start.0, stream) == 0).then_some(())?;
            let done = f();
            ((driver.cuEventRecord)(end.0, stream) == 0).then_some(())?;
            ((driver.cuEventSynchronize)(end.0) == 0).then_some(())?;
            done.ok()?;
            ((driver.cuEventElapsedTime)(&mut time, start.0, end.0) == 0).then_some(time)
        }
    }
}

impl Drop for StreamTimer<'_> {
    fn drop(&mut self) {
        for event in self.events.iter().filter(|event| !event.0.is_null()) {
            // SAFETY: the event was created, and nothing refers to it any more.
            unsafe { (self.gpu.driver.cuEventDestroy_v2)(event.0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fastest;

    /// A device on which each way takes so long, and the first run of each as long again.
    fn chosen(times: &[Option<f32>]) -> (Option<usize>, usize) {
        let (mut seen, mut runs) = (vec![false; times.len()], 0);
        let way = fastest(times.len(), |way, count| {
            runs += count;
            let load = if std::mem::replace(&mut seen[way], true) { 0.0 } else { 50.0 };
            times[way].map(|time| load + time * count as f32)
        });
        (way, runs)
    }

    #[test]
    fn the_fastest_way_is_chosen_and_the_earlier_of_equals() {
        assert_eq!(chosen(&[Some(0.5), Some(0.3), Some(0.4)]).0, Some(1));
        assert_eq!(chosen(&[Some(0.5), Some(0.499), Some(0.6)]).0, Some(0));
        assert_eq!(chosen(&[None, Some(0.5), None]).0, Some(1));
        assert_eq!(chosen(&[None, None]).0, None);
        assert_eq!(chosen(&[]).0, None);
    }

    #[test]
    fn long_work_is_not_repeated_often() {
        // Two runs, and three measurements of one run each; what is much slower, two.
        assert_eq!(chosen(&[Some(20.0)]).1, 5);
        assert_eq!(chosen(&[Some(20.0), Some(100.0)]), (Some(0), 7));
    }
}
