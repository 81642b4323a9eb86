//! What the workers of a group find out about each other before they rely on it.
//!
//! A worker that stops with an error while the others go on leaves them waiting in the next
//! collective. Where an error is foreseeable (a file that cannot be written, a model that is not
//! the one of the others), the workers therefore exchange a sentence each, and all of them stop
//! with the first. Without an error that costs one gathered number.

use crate::refuse::called;
use pullback::{Device, Error, Group, Result, Tensor, catch, no_grad, with_default_device};

/// The texts of all workers, in the order of ranks. Every worker calls it.
///
/// ```
/// use pullback_nn::parallel::gather_texts;
/// let texts = pullback_workers::threads(2, |group| {
///     gather_texts(&group, ["zero", "one"][group.rank()])
/// })?;
/// assert_eq!(texts, [["zero", "one"], ["zero", "one"]]);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// Of the group.
#[doc(alias = "all_gather_object")]
#[track_caller]
pub fn gather_texts(group: &Group, text: &str) -> Result<Vec<String>> {
    let _line = called();
    if group.size() == 1 {
        return Ok(vec![text.to_string()]);
    }
    let bytes = text.as_bytes();
    let lengths = gathered(group, || Tensor::from([bytes.len() as i64]))?.try_to_vec::<i64>()?;
    let longest = lengths.iter().copied().max().unwrap_or(0) as usize;
    if longest == 0 {
        return Ok(vec![String::new(); lengths.len()]);
    }
    let mut padded = bytes.to_vec();
    padded.resize(longest, 0);
    let all = gathered(group, || Tensor::from_vec(padded, [longest]))?.try_to_vec::<u8>()?;
    let texts = all.chunks(longest).zip(&lengths);
    Ok(texts.map(|(text, &n)| String::from_utf8_lossy(&text[..n as usize]).into()).collect())
}

/// Texts are on the host, whatever the default device is.
#[track_caller]
fn gathered(group: &Group, x: impl FnOnce() -> Tensor) -> Result<Tensor> {
    catch(|| no_grad(|| with_default_device(Device::Cpu, x).all_gather(group, 0)))
}

/// An error of any worker becomes one of all, which names its rank: so that no worker waits for one
/// that has stopped. `op` is the name in that error. Every worker calls it.
///
/// ```
/// use pullback::Error;
/// use pullback_nn::parallel::together;
/// let errors = pullback_workers::threads(2, |group| {
///     let own = match group.rank() {
///         0 => Ok(()),
///         _ => Err(Error::argument("save", "the disk is full")),
///     };
///     Ok(together(&group, "save", own).unwrap_err().to_string())
/// })?;
/// assert!(errors[0].contains("worker 1 failed") && errors[0].contains("the disk is full"));
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// That of the first worker that has one.
#[track_caller]
pub fn together<T>(group: &Group, op: &'static str, own: Result<T>) -> Result<T> {
    let _line = called();
    let sentence = own.as_ref().err().map(ToString::to_string).unwrap_or_default();
    let sentences = gather_texts(group, &sentence)?;
    let Some(rank) = sentences.iter().position(|sentence| !sentence.is_empty()) else { return own };
    match own {
        // The worker itself has the whole error.
        Err(error) if rank == group.rank() => Err(error),
        Ok(_) | Err(_) => {
            Err(Error::argument(op, format!("worker {rank} failed: {}", sentences[rank])))
        }
    }
}

/// A tensor in such a line: each worker has it on its own device.
pub(crate) fn described(name: &str, x: &Tensor) -> String {
    format!("{name} {}", x.spec().with_device(Device::Cpu))
}

/// Refuses workers that do not list the same lines, and names the first difference. Every worker
/// calls it, and all get the same sentence.
#[track_caller]
pub(crate) fn agree(
    group: &Group,
    op: &'static str,
    what: &str,
    lines: impl IntoIterator<Item = String>,
) -> Result<()> {
    let own = lines.into_iter().collect::<Vec<_>>().join("\n");
    let texts = gather_texts(group, &own)?;
    let Some(rank) = texts.iter().position(|text| *text != texts[0]) else { return Ok(()) };
    let (first, other): (Vec<&str>, Vec<&str>) =
        (texts[0].lines().collect(), texts[rank].lines().collect());
    let at = (0..first.len().max(other.len())).find(|&i| first.get(i) != other.get(i));
    let at = at.unwrap_or_default();
    let line =
        |lines: &[&str]| lines.get(at).map_or("nothing there".to_string(), |l| format!("`{l}`"));
    let message = format!(
        "{what} differ between workers: number {at} is {} on worker 0 and {} on worker {rank}",
        line(&first),
        line(&other)
    );
    Err(Error::argument(op, message))
}
