//! Memory of a result that is written for the first time.
//!
//! Clearing memory before an engine writes it costs a pass over it, and an engine is safe code,
//! which must not read uninitialised memory. So it gets [`Fresh`]: it can only be written, and
//! remembers where it was, so that its owner can see whether all of it is there now.

use crate::{Error, ErrorKind, Result};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Bytes of a word, by which shared memory is copied.
const WORD: usize = 8;

/// Memory that is written, in any order, and not read.
///
/// ```
/// use pullback_ir::Fresh;
/// let mut memory = [0; 4];
/// let mut fresh = Fresh::over(&mut memory);
/// fresh.write(2, &[3, 4]);
/// assert!(fresh.check("example").is_err());
/// fresh.write(0, &[1, 2]);
/// fresh.check("example")?;
/// assert_eq!(memory, [1, 2, 3, 4]);
/// # Ok::<(), pullback_ir::Error>(())
/// ```
pub struct Fresh<'a> {
    memory: FreshMemory<'a>,
    /// What was written: ascending ranges that do not touch.
    written: Vec<Range<usize>>,
}

enum FreshMemory<'a> {
    Unwritten(&'a mut [MaybeUninit<u8>]),
    Old(&'a mut [u8]),
}

impl<'a> Fresh<'a> {
    /// Over memory of which nothing was written.
    ///
    /// ```
    /// # use pullback_ir::Fresh;
    /// let mut block = Vec::with_capacity(3);
    /// let mut fresh = Fresh::new(block.spare_capacity_mut());
    /// fresh.write(0, &[7; 3]);
    /// assert!(fresh.check("example").is_ok());
    /// ```
    pub fn new(memory: &'a mut [MaybeUninit<u8>]) -> Fresh<'a> {
        Fresh { memory: FreshMemory::Unwritten(memory), written: Vec::new() }
    }

    /// Over memory whose content is replaced.
    ///
    /// ```
    /// # use pullback_ir::Fresh;
    /// let mut memory = [1, 2];
    /// Fresh::over(&mut memory).write(0, &[3]);
    /// assert_eq!(memory, [3, 2]);
    /// ```
    pub fn over(memory: &'a mut [u8]) -> Fresh<'a> {
        Fresh { memory: FreshMemory::Old(memory), written: Vec::new() }
    }

    /// How many bytes there are.
    ///
    /// ```
    /// # use pullback_ir::Fresh;
    /// assert_eq!(Fresh::over(&mut [0; 5]).len(), 5);
    /// ```
    #[expect(clippy::len_without_is_empty, reason = "it is written, not asked")]
    pub fn len(&self) -> usize {
        match &self.memory {
            FreshMemory::Unwritten(memory) => memory.len(),
            FreshMemory::Old(memory) => memory.len(),
        }
    }

    /// Writes bytes, from byte `at` on.
    ///
    /// ```
    /// # use pullback_ir::Fresh;
    /// let mut memory = [0; 3];
    /// Fresh::over(&mut memory).write(1, &[8, 9]);
    /// assert_eq!(memory, [0, 8, 9]);
    /// ```
    ///
    /// # Panics
    /// If they do not fit.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        match &mut self.memory {
            FreshMemory::Unwritten(memory) => {
                for (to, &from) in memory[at..at + bytes.len()].iter_mut().zip(bytes) {
                    to.write(from);
                }
            }
            FreshMemory::Old(memory) => memory[at..at + bytes.len()].copy_from_slice(bytes),
        }
        self.note(at..at + bytes.len());
    }

    /// Writes `len` bytes from byte `at` on that are given as words, of which the last is not
    /// needed whole.
    ///
    /// ```
    /// # use pullback_ir::Fresh;
    /// let mut memory = [0; 10];
    /// Fresh::over(&mut memory).write_words(0, 10, [[1; 8], [2; 8]]);
    /// assert_eq!(memory, [1, 1, 1, 1, 1, 1, 1, 1, 2, 2]);
    /// ```
    ///
    /// # Panics
    /// If they do not fit, or there are fewer.
    pub fn write_words(
        &mut self,
        at: usize,
        len: usize,
        words: impl IntoIterator<Item = [u8; WORD]>,
    ) {
        let (end, words) = (at + len, words.into_iter());
        let done = match &mut self.memory {
            FreshMemory::Unwritten(memory) => {
                let set = |to: &mut MaybeUninit<u8>, from: u8| *to = MaybeUninit::new(from);
                put(&mut memory[at..end], words, |to, word| *to = word.map(MaybeUninit::new), set)
            }
            FreshMemory::Old(memory) => {
                put(&mut memory[at..end], words, |to, word| *to = word, |to, from| *to = from)
            }
        };
        assert!(done == len, "{done} bytes were given instead of {len}");
        self.note(at..end);
    }

    /// What was there before, if it was written: an operand that the result replaces.
    ///
    /// ```
    /// # use pullback_ir::Fresh;
    /// assert_eq!(Fresh::over(&mut [1, 2]).old(), Some(&[1, 2][..]));
    /// ```
    pub fn old(&self) -> Option<&[u8]> {
        match &self.memory {
            FreshMemory::Unwritten(_) => None,
            FreshMemory::Old(memory) => Some(memory),
        }
    }

    /// Whether all of it was written.
    ///
    /// ```
    /// # use pullback_ir::Fresh;
    /// let error = Fresh::over(&mut [0; 2]).check("example").unwrap_err();
    /// assert!(error.to_string().contains("has written 0 of 2 bytes"));
    /// ```
    ///
    /// # Errors
    /// If it was not.
    pub fn check(&self, op: &'static str) -> Result<()> {
        let (written, len) = (self.written.iter().map(Range::len).sum::<usize>(), self.len());
        match written == len {
            true => Ok(()),
            false => {
                let message = format!("the engine has written {written} of {len} bytes");
                Err(Error::new(ErrorKind::Workers, op, message))
            }
        }
    }

    /// Joins a range to those it touches. Most often it follows the one before.
    fn note(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let first = self.written.partition_point(|old| old.end < range.start);
        let last = self.written.partition_point(|old| old.start <= range.end);
        match self.written.get(first..last) {
            None | Some([]) => self.written.insert(first, range),
            Some(touched) => {
                let start = touched[0].start.min(range.start);
                let end = touched[touched.len() - 1].end.max(range.end);
                self.written[first] = start..end;
                self.written.drain(first + 1..last);
            }
        }
    }
}

/// Copies words, the last of them in part, and counts the bytes.
fn put<T>(
    memory: &mut [T],
    mut words: impl Iterator<Item = [u8; WORD]>,
    whole: impl Fn(&mut [T; WORD], [u8; WORD]),
    single: impl Fn(&mut T, u8),
) -> usize {
    let (chunks, rest) = memory.as_chunks_mut::<WORD>();
    let mut done = 0;
    for (to, word) in chunks.iter_mut().zip(&mut words) {
        whole(to, word);
        done += WORD;
    }
    let last = if rest.is_empty() { None } else { words.next() };
    for (to, from) in rest.iter_mut().zip(last.into_iter().flatten()) {
        single(to, from);
        done += 1;
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ranges that are noted when these were written, as first and last.
    fn written(ranges: &[(usize, usize)]) -> Vec<(usize, usize)> {
        let mut memory = [0; 100];
        let mut fresh = Fresh::over(&mut memory);
        for &(start, end) in ranges {
            fresh.write(start, &vec![1; end - start]);
        }
        fresh.written.iter().map(|range| (range.start, range.end)).collect()
    }

    #[test]
    fn ranges_are_joined_and_none_is_counted_twice() {
        assert_eq!(written(&[(0, 3), (3, 5)]), [(0, 5)]);
        assert_eq!(written(&[(3, 5), (0, 3)]), [(0, 5)]);
        assert_eq!(written(&[(0, 3), (4, 5)]), [(0, 3), (4, 5)]);
        assert_eq!(written(&[(0, 3), (6, 9), (2, 7)]), [(0, 9)]);
        assert_eq!(written(&[(0, 3), (6, 9), (12, 20), (3, 12)]), [(0, 20)]);
        assert_eq!(written(&[(10, 20), (12, 15), (5, 5), (9, 21)]), [(9, 21)]);
        assert_eq!(written(&[(50, 60), (10, 20), (30, 40)]), [(10, 20), (30, 40), (50, 60)]);
    }

    #[test]
    fn what_is_written_twice_does_not_stand_for_what_is_missing() {
        let mut memory = [0; 4];
        let mut fresh = Fresh::over(&mut memory);
        fresh.write(0, &[1, 2]);
        fresh.write(0, &[3, 4]);
        assert!(fresh.check("test").is_err());
        fresh.write_words(2, 2, [[5; 8]]);
        assert!(fresh.check("test").is_ok());
        assert_eq!(memory, [3, 4, 5, 5]);
    }

    #[test]
    #[should_panic = "8 bytes were given instead of 9"]
    fn too_few_words_are_not_counted_as_written() {
        Fresh::over(&mut [0; 9]).write_words(0, 9, [[1; 8]]);
    }
}
