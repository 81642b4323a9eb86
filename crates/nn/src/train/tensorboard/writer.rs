//! A file of events.

use super::message::{self, Message};
use super::{histogram, record};
use pullback::{Error, Result};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Writes event files for TensorBoard, each event immediately:
/// `torch.utils.tensorboard.SummaryWriter`.
///
/// ```
/// use pullback_nn::train::EventWriter;
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// let mut events = EventWriter::create(folder)?;
/// events.scalar("loss", 1, 0.5)?;
/// events.histogram("weight", 1, &[0.1, -0.2, 0.3])?;
/// events.text("note", 1, "*well begun*")?;
/// # Ok::<(), pullback::Error>(())
/// ```
pub struct EventWriter {
    path: PathBuf,
    file: File,
    clock: fn() -> f64,
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

impl EventWriter {
    /// Creates an event file in this folder, and the folder if it does not exist. TensorBoard shows
    /// all files of a folder as one run.
    ///
    /// ```
    /// use pullback_nn::train::EventWriter;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let events = EventWriter::create(folder.join("run1"))?;
    /// assert!(events.path().starts_with(folder.join("run1")));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be created.
    #[doc(alias = "SummaryWriter")]
    pub fn create(folder: impl AsRef<Path>) -> Result<EventWriter> {
        EventWriter::create_at(folder.as_ref(), now)
    }

    /// [`EventWriter::create`] by another clock.
    pub(super) fn create_at(folder: &Path, clock: fn() -> f64) -> Result<EventWriter> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let (process, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let name =
            format!("events.out.tfevents.{:010}.pullback.{process}.{number}", clock() as u64);
        let path = folder.join(name);
        let made = std::fs::create_dir_all(folder).and_then(|()| File::create(&path));
        let file = made.map_err(|error| failed(&path, &error))?;
        let mut writer = EventWriter { path, file, clock };
        writer.write(message::version(clock()))?;
        Ok(writer)
    }

    /// The path of the event file.
    ///
    /// ```
    /// use pullback_nn::train::EventWriter;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let events = EventWriter::create(folder)?;
    /// assert!(events.path().is_file());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a number.
    ///
    /// ```
    /// use pullback_nn::train::EventWriter;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let mut events = EventWriter::create(folder)?;
    /// let size = |events: &EventWriter| std::fs::metadata(events.path()).unwrap().len();
    /// let before = size(&events);
    /// events.scalar("loss", 1, 0.5)?;
    /// assert!(size(&events) > before);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be written.
    #[doc(alias = "add_scalar")]
    pub fn scalar(&mut self, tag: &str, step: u64, value: f64) -> Result<()> {
        self.summary(step, message::scalar(tag, value))
    }

    /// Writes a histogram of these values; those that are not finite are left out.
    ///
    /// ```
    /// use pullback_nn::train::EventWriter;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let mut events = EventWriter::create(folder)?;
    /// let size = |events: &EventWriter| std::fs::metadata(events.path()).unwrap().len();
    /// let before = size(&events);
    /// events.histogram("weight", 1, &[0.1, -0.2, 0.3])?;
    /// assert!(size(&events) > before);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be written.
    #[doc(alias = "add_histogram")]
    pub fn histogram(&mut self, tag: &str, step: u64, values: &[f64]) -> Result<()> {
        let histogram = histogram::message(values);
        self.summary(step, Message::new().bytes(1, tag.as_bytes()).message(5, histogram))
    }

    /// Writes text, which TensorBoard shows as Markdown.
    ///
    /// ```
    /// use pullback_nn::train::EventWriter;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let mut events = EventWriter::create(folder)?;
    /// let size = |events: &EventWriter| std::fs::metadata(events.path()).unwrap().len();
    /// let before = size(&events);
    /// events.text("config", 0, "lr: **0.1**")?;
    /// assert!(size(&events) > before);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be written.
    #[doc(alias = "add_text")]
    pub fn text(&mut self, tag: &str, step: u64, text: &str) -> Result<()> {
        self.summary(step, message::text(tag, text))
    }

    /// Records that a run resumes at this step: TensorBoard ignores this step and later ones of
    /// earlier files.
    ///
    /// ```
    /// use pullback_nn::train::EventWriter;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let mut events = EventWriter::create(folder)?;
    /// let size = |events: &EventWriter| std::fs::metadata(events.path()).unwrap().len();
    /// let before = size(&events);
    /// events.restart(1001)?; // from the checkpoint at step 1000
    /// assert!(size(&events) > before);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn restart(&mut self, step: u64) -> Result<()> {
        self.write(message::start((self.clock)(), step))
    }

    fn summary(&mut self, step: u64, value: Message) -> Result<()> {
        self.write(message::summary((self.clock)(), step, value))
    }

    fn write(&mut self, message: Message) -> Result<()> {
        let record = record::framed(&message.finish());
        self.file.write_all(&record).map_err(|error| failed(&self.path, &error))
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::argument("tensorboard", format!("{} cannot be written: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file that `tests/data/events.py` makes with TensorBoard's own messages and writer.
    #[test]
    fn the_bytes_are_those_of_tensorboard() {
        let folder = tempfile::tempdir().unwrap();
        let mut events = EventWriter::create_at(folder.path(), || 1_700_000_000.5).unwrap();
        events.scalar("train/loss", 300, 0.5).unwrap();
        let values = [-1.0, -0.001, 1e-9, 0.5, 0.5, 2.0];
        events.histogram("weights/layers.0.weight", 300, &values).unwrap();
        events.text("note", 300, "*well begun*").unwrap();
        events.restart(301).unwrap();
        let bytes = std::fs::read(events.path()).unwrap();
        assert_eq!(bytes, include_bytes!("../../../tests/data/events.tfevents"));
        let name = events.path().file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with("events.out.tfevents.1700000000.pullback."), "{name}");
    }
}
