//! Ctrl-C and SIGTERM during a run.
//!
//! A process has one handler, which stays once it is set. So it is set at the first use, and counts
//! who wants to know: where nobody does, Ctrl-C ends the process as it would without a handler.
//! SIGTERM, by which batch systems and launchers stop a run, does the same without a message.
//! SIGHUP is left as it is: under `nohup` it must stay ignored.

use pullback::{Error, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// The exit code of a process that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// Whether Ctrl-C was pressed while there was a guard.
static PRESSED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Whether SIGTERM is to end the process: no guard is there, or it was sent before.
static ENDS: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| Arc::new(AtomicBool::new(true)));

struct Guards {
    /// How many there are.
    count: usize,
    /// Whether the process has our handler.
    handled: bool,
}

static GUARDS: Mutex<Guards> = Mutex::new(Guards { count: 0, handled: false });

fn guards() -> MutexGuard<'static, Guards> {
    GUARDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Until it is dropped, the first Ctrl-C or SIGTERM sets a flag, and the second one ends the
/// process at once, Ctrl-C with exit code 130. [`Trainer::run`](super::Trainer::run) does this
/// itself; a program that is to notice Ctrl-C before and after its run too makes a guard around all
/// of it.
///
/// ```
/// use pullback_nn::train::InterruptGuard;
/// let guard = InterruptGuard::new()?;
/// let mut words = 0;
/// while words < 1000 && !guard.is_interrupted() {
///     words += 1; // something that takes time
/// }
/// # Ok::<(), pullback::Error>(())
/// ```
#[must_use = "Ctrl-C ends the process again when this is dropped"]
#[derive(Debug)]
pub struct InterruptGuard(());

impl InterruptGuard {
    /// Replaces the process's handler of Ctrl-C.
    ///
    /// ```
    /// # use pullback_nn::train::InterruptGuard;
    /// let guard = InterruptGuard::new()?;
    /// drop(guard); // Ctrl-C ends the process again
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the program has set a handler with the `ctrlc` crate, or the system refuses one.
    pub fn new() -> Result<InterruptGuard> {
        InterruptGuard::with(ctrlc::set_handler)
    }

    /// [`InterruptGuard::new`], but not where Ctrl-C is handled or ignored already.
    pub(super) fn unless_handled() -> Option<InterruptGuard> {
        InterruptGuard::with(ctrlc::try_set_handler).ok()
    }

    fn with(
        set: impl FnOnce(fn()) -> std::result::Result<(), ctrlc::Error>,
    ) -> Result<InterruptGuard> {
        let mut guards = guards();
        if !guards.handled {
            set(pressed).map_err(|error| {
                Error::argument("interrupt", format!("no handler of Ctrl-C can be set: {error}"))
            })?;
            // What cannot be handled ends the process, as without this.
            let _ = handle_termination();
            guards.handled = true;
        }
        if guards.count == 0 {
            PRESSED.store(false, Ordering::Relaxed);
            ENDS.store(false, Ordering::Relaxed);
        }
        guards.count += 1;
        Ok(InterruptGuard(()))
    }

    /// Whether Ctrl-C was pressed since the first of the guards that there are now was made.
    ///
    /// ```
    /// # use pullback_nn::train::InterruptGuard;
    /// assert!(!InterruptGuard::new()?.is_interrupted());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        PRESSED.load(Ordering::Relaxed)
    }

    /// What [`InterruptGuard::is_interrupted`] reads, for
    /// [`Trainer::stop_at`](super::Trainer::stop_at).
    ///
    /// ```
    /// # use pullback_nn::train::InterruptGuard;
    /// # use std::sync::atomic::Ordering;
    /// let guard = InterruptGuard::new()?;
    /// guard.flag().store(true, Ordering::Relaxed); // as Ctrl-C does
    /// assert!(guard.is_interrupted());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        PRESSED.clone()
    }
}

impl Drop for InterruptGuard {
    fn drop(&mut self) {
        let mut guards = guards();
        guards.count -= 1;
        if guards.count == 0 {
            ENDS.store(true, Ordering::Relaxed);
        }
    }
}

/// SIGTERM: the first sets both flags, and where the second is set it ends the process.
#[cfg(unix)]
fn handle_termination() -> std::io::Result<()> {
    use signal_hook::{consts::SIGTERM, flag};
    flag::register_conditional_default(SIGTERM, ENDS.clone())?;
    flag::register(SIGTERM, ENDS.clone())?;
    flag::register(SIGTERM, PRESSED.clone())?;
    Ok(())
}

#[cfg(not(unix))]
fn handle_termination() -> std::io::Result<()> {
    Ok(())
}

/// The handler, which runs in a thread of its own.
fn pressed() {
    // Held until the message is printed, so that a run does not end before that.
    let guards = guards();
    if guards.count == 0 || PRESSED.swap(true, Ordering::Relaxed) {
        std::process::exit(INTERRUPTED);
    }
    eprintln!("\ninterrupted: stops after this step (Ctrl-C again ends the process at once)");
}
