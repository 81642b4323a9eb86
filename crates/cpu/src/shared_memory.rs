//! Memory that several processes map, or several threads share, without locks around it.
//!
//! Whoever writes while another reads would be a data race if this were plain memory, and no
//! borrow checker sees across processes. So it is an array of atomic words from the outside:
//! copies in and out are relaxed loads and stores of 8 bytes, which on current processors are plain
//! moves, and order comes from the flags of a protocol, released by writers and acquired by
//! readers. Whatever a peer writes, and whenever, a reader gets some bytes: there is no undefined
//! behaviour to be had from the safe functions here.
//!
//! [`SharedMemory::sleep_while`] and [`SharedMemory::wake`] are Linux's futex, which works between
//! processes; elsewhere a sleeper polls.

use memmap2::{MmapMut, MmapOptions, MmapRaw};
use pullback_ir::Fresh;
use std::fs::File;
use std::io;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A mapping, seen as atomic words.
pub struct SharedMemory {
    map: MmapRaw,
}

const WORD: usize = size_of::<u64>();

impl SharedMemory {
    /// Memory for the threads of this process, zeroed.
    ///
    /// # Errors
    /// If the system has none left.
    pub fn of_process(bytes: usize) -> io::Result<SharedMemory> {
        Ok(SharedMemory { map: MmapMut::map_anon(bytes.next_multiple_of(WORD))?.into() })
    }

    /// The first bytes of a file, which is made as long as that (new bytes are zero). Every process
    /// that maps the file sees the same memory. Shortening the file while it is mapped ends the
    /// processes that read past its end.
    ///
    /// # Errors
    /// If the file cannot be made that long, or mapped.
    pub fn of_file(file: &File, bytes: usize) -> io::Result<SharedMemory> {
        let bytes = bytes.next_multiple_of(WORD);
        if file.metadata()?.len() < bytes as u64 {
            file.set_len(bytes as u64)?;
        }
        allocate(file, bytes)?;
        Ok(SharedMemory { map: MmapOptions::new().len(bytes).map_raw(file)? })
    }

    /// All of it.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: a mapping begins at a page, is readable and writable for as long as `self` lives,
        // and this process accesses it through atomic words alone. Any bits are a `u64`.
        unsafe { slice::from_raw_parts(self.map.as_ptr().cast(), self.map.len() / WORD) }
    }

    /// Copies bytes in, from a byte on that is a multiple of 8. A last word that is not full is
    /// filled with zeros.
    ///
    /// # Panics
    /// If they do not fit, or `at` is not a multiple of 8.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let words = self.span(at, bytes.len());
        let (whole, rest) = bytes.as_chunks::<WORD>();
        for (word, bytes) in words.iter().zip(whole) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
        if !rest.is_empty() {
            let mut last = [0; WORD];
            last[..rest.len()].copy_from_slice(rest);
            words[whole.len()].store(u64::from_ne_bytes(last), Ordering::Relaxed);
        }
    }

    /// Copies bytes out, from a byte on that is a multiple of 8.
    ///
    /// # Panics
    /// If there are not as many, or `at` is not a multiple of 8.
    pub fn read(&self, at: usize, bytes: &mut [u8]) {
        let words = self.span(at, bytes.len());
        let (whole, rest) = bytes.as_chunks_mut::<WORD>();
        let full = whole.len();
        for (word, bytes) in words.iter().zip(whole) {
            *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        if !rest.is_empty() {
            let last = words[full].load(Ordering::Relaxed).to_ne_bytes();
            rest.copy_from_slice(&last[..rest.len()]);
        }
    }

    /// Copies as many bytes out, from a byte on that is a multiple of 8, to byte `to` of a result.
    ///
    /// # Panics
    /// If there are not as many, they do not fit, or `at` is not a multiple of 8.
    pub fn read_fresh(&self, at: usize, result: &mut Fresh<'_>, to: usize, bytes: usize) {
        let words = self.span(at, bytes).iter();
        let words = words.map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
        result.write_words(to, bytes, words);
    }

    fn span(&self, at: usize, bytes: usize) -> &[AtomicU64] {
        assert_eq!(at % WORD, 0, "shared memory is copied from whole words on");
        &self.words()[at / WORD..at / WORD + bytes.div_ceil(WORD)]
    }

    /// Sleeps while the low half of a word is `value`, until [`SharedMemory::wake`] is called for
    /// it, or for this long. It may return for no reason.
    pub fn sleep_while(&self, word: usize, value: u64, at_most: Duration) {
        let word = &self.words()[word];
        if word.load(Ordering::SeqCst) as u32 != value as u32 {
            return;
        }
        #[cfg(target_os = "linux")]
        {
            let time = libc::timespec {
                tv_sec: at_most.as_secs() as libc::time_t,
                tv_nsec: at_most.subsec_nanos() as libc::c_long,
            };
            // SAFETY: the word is mapped and aligned, and the kernel reads it and the time alone.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    low_half(word),
                    libc::FUTEX_WAIT,
                    value as u32,
                    &raw const time,
                );
            }
        }
        #[cfg(not(target_os = "linux"))]
        std::thread::sleep(at_most.min(Duration::from_micros(100)));
    }

    /// Wakes all who sleep on a word, in any process.
    pub fn wake(&self, word: usize) {
        let word = &self.words()[word];
        // SAFETY: the word is mapped and aligned; the kernel takes its address as a name.
        #[cfg(target_os = "linux")]
        unsafe {
            libc::syscall(libc::SYS_futex, low_half(word), libc::FUTEX_WAKE, i32::MAX);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = word;
    }
}

/// Has the system set the memory of a file aside: a file in memory that is only made longer has
/// none, and the first access without any left ends the process instead of giving an error.
fn allocate(file: &File, bytes: usize) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd;
        // SAFETY: a call with the descriptor of an open file.
        let code = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as libc::off_t) };
        // Some file systems cannot; the length is all there is to be had then.
        if code != 0 && code != libc::EOPNOTSUPP && code != libc::EINVAL {
            return Err(io::Error::from_raw_os_error(code));
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, bytes);
    Ok(())
}

/// The half of a word that the kernel compares.
#[cfg(target_os = "linux")]
fn low_half(word: &AtomicU64) -> *const u32 {
    let halves = word.as_ptr().cast::<u32>();
    halves.wrapping_add(usize::from(cfg!(target_endian = "big")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn bytes_of_any_length_come_back() {
        let memory = SharedMemory::of_process(64).unwrap();
        for len in 0..=24 {
            let bytes: Vec<u8> = (1..=len).collect();
            memory.write(16, &bytes);
            let mut back = vec![0; len as usize];
            memory.read(16, &mut back);
            assert_eq!(back, bytes);
        }
        assert_eq!(memory.words()[0].load(Ordering::Relaxed), 0);
        assert_eq!(memory.words()[5].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn two_mappings_of_a_file_are_one_memory() {
        let path = std::env::temp_dir().join(format!("pullback-mapping-{}", std::process::id()));
        let open = || {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false).open(&path).unwrap()
        };
        let one = SharedMemory::of_file(&open(), 4096).unwrap();
        let two = SharedMemory::of_file(&open(), 4096).unwrap();
        std::fs::remove_file(&path).unwrap();
        one.write(8, b"a sentence");
        let mut back = [0; 10];
        two.read(8, &mut back);
        assert_eq!(&back, b"a sentence");
    }

    #[test]
    fn words_go_to_any_byte_of_a_result() {
        let memory = SharedMemory::of_process(64).unwrap();
        let bytes: Vec<u8> = (1..=21).collect();
        memory.write(8, &bytes);
        let mut result = [0; 30];
        let mut fresh = Fresh::over(&mut result);
        memory.read_fresh(8, &mut fresh, 3, bytes.len());
        assert!(fresh.check("test").is_err());
        assert_eq!(result[3..24], bytes);
        assert_eq!((&result[..3], &result[24..]), (&[0; 3][..], &[0; 6][..]));
    }

    #[test]
    fn a_sleeper_is_woken() {
        let memory = SharedMemory::of_process(8).unwrap();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                let start = Instant::now();
                while memory.words()[0].load(Ordering::SeqCst) == 0 {
                    memory.sleep_while(0, 0, Duration::from_secs(60));
                }
                start.elapsed()
            });
            memory.words()[0].store(1, Ordering::SeqCst);
            memory.wake(0);
            assert!(sleeper.join().unwrap() < Duration::from_secs(60));
        });
    }
}
