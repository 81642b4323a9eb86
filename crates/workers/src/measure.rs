//! How long an engine takes.

use pullback::{Group, Result};
use pullback_ir::{Collective, CollectiveCall, Combination, DType, Line, Spec};
use std::time::{Duration, Instant};

/// Times all-reduces of f32 from one block of memory into another. All workers of the group call
/// it. The first two are not counted: they touch memory for the first time.
///
/// ```
/// use pullback_workers::{all_reduce_times, threads};
/// let times = threads(2, |group| all_reduce_times(&group, 4096, 10))?;
/// assert_eq!(times[0].len(), 10);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// As a collective.
pub fn all_reduce_times(group: &Group, bytes: usize, count: usize) -> Result<Vec<Duration>> {
    let sum = Collective::AllReduce(Combination::Sum);
    let spec = Spec::cpu(DType::F32, [bytes / 4]);
    let line = Line::caller();
    let call = CollectiveCall { collective: &sum, operand: &spec, sequence: 0, line };
    let (input, mut output) = (vec![0; spec.bytes()], vec![0; spec.bytes()]);
    let mut times = vec![];
    for i in 0..count + 2 {
        group.barrier()?;
        let start = Instant::now();
        group.communicator().run(&call, &input, &mut output)?;
        if i >= 2 {
            times.push(start.elapsed());
        }
    }
    Ok(times)
}
