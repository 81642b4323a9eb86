//! The engine `local`: workers are processes of one machine, over shared memory.
//!
//! They meet in a folder, the *session*, which the launcher makes (in memory, where the system has
//! such a folder) and removes:
//!
//! ```text
//! launcher            locked by the launcher while it lives
//! worker-2            locked by worker 2 while it lives
//! exited-2            how worker 2 ended, written by the launcher
//! board-7f3a…         the shared memory of a group; removed as soon as all workers have mapped it
//! mail-7f3a…-0-2-5    message 5 from worker 0 to worker 2 of a group
//! ```
//!
//! A lock shows whether a process is alive: the system releases it when the process ends, however
//! it ends. A worker that waits looks at the locks of those it waits for.
//!
//! Tasks of slurm meet in the same way, without a launcher: they all make a folder whose name
//! follows from their step, and the last that leaves removes it.

use crate::board::Board;
use crate::slurm::{self, SlurmTask};
use crate::worker::{Medium, Worker};
use pullback_ir::{Error, ErrorKind, Result};
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a worker is told by its environment.
pub(crate) const RANK: &str = "PULLBACK_RANK";
pub(crate) const WORKERS: &str = "PULLBACK_WORKERS";
pub(crate) const SESSION: &str = "PULLBACK_SESSION";

/// Where the launcher makes sessions, if not in memory.
const SHARED: &str = "PULLBACK_SHARED";

/// How long the launcher may take to say how a worker ended.
const OBITUARY: Duration = Duration::from_millis(300);

/// A session, as seen by a worker.
struct Session {
    folder: PathBuf,
    /// Locked by the launcher, if there is one.
    launcher: Option<File>,
    workers: Vec<File>,
    /// Locked for as long as this process lives.
    own: File,
}

/// The session of tasks of slurm that this process is to leave.
static WITHOUT_LAUNCHER: Mutex<Option<Arc<Session>>> = Mutex::new(None);

fn to_leave() -> std::sync::MutexGuard<'static, Option<Arc<Session>>> {
    WITHOUT_LAUNCHER.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    fn join(folder: &Path, rank: usize, size: usize, launched: bool) -> io::Result<Session> {
        let own = open(&folder.join(format!("worker-{rank}")))?;
        if own.try_lock().is_err() {
            let message = format!("another process is worker {rank} of this session already");
            return Err(io::Error::new(io::ErrorKind::AddrInUse, message));
        }
        let workers = (0..size).map(|rank| open(&folder.join(format!("worker-{rank}"))));
        Ok(Session {
            folder: folder.to_path_buf(),
            launcher: launched.then(|| File::open(folder.join("launcher"))).transpose()?,
            workers: workers.collect::<io::Result<_>>()?,
            own,
        })
    }

    /// How a worker ended, if the launcher has seen it.
    fn exited(&self, rank: usize) -> Option<String> {
        let text = fs::read_to_string(self.folder.join(format!("exited-{rank}"))).ok()?;
        Some(text).filter(|text| !text.is_empty())
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).open(path)
}

/// Whether the process that locked a file is there no more.
fn ended(file: &File) -> bool {
    match file.try_lock_shared() {
        Ok(()) => {
            // A failure to unlock leaves a shared lock, which hides nothing.
            let _ = file.unlock();
            true
        }
        Err(_) => false,
    }
}

/// A group of processes.
struct LocalGroup {
    id: u64,
    /// The ranks of its workers among all processes.
    ranks: Vec<usize>,
    session: Arc<Session>,
}

impl LocalGroup {
    fn board(&self) -> PathBuf {
        self.session.folder.join(format!("board-{:x}", self.id))
    }

    fn mail(&self, from: usize, to: usize, number: u64) -> PathBuf {
        self.session.folder.join(format!("mail-{:x}-{from}-{to}-{number}", self.id))
    }
}

impl Medium for LocalGroup {
    fn engine(&self) -> &'static str {
        "local"
    }

    fn departure(&self, rank: usize, joined: bool) -> Option<String> {
        let session = &self.session;
        let world = self.ranks[rank];
        let launcher_ended = session.launcher.as_ref().is_some_and(ended);
        if joined && ended(&session.workers[world]) {
            let start = Instant::now();
            while session.launcher.is_some() && !launcher_ended && start.elapsed() < OBITUARY {
                match session.exited(world) {
                    None => std::thread::sleep(Duration::from_millis(5)),
                    some => return some,
                }
            }
            return Some("has exited".to_string());
        }
        if launcher_ended {
            // Nothing else does; its processes, which have mapped what they need, are not
            // disturbed.
            let _ = fs::remove_dir_all(&session.folder);
            return Some("cannot be reached: the launcher has exited".to_string());
        }
        if joined { None } else { session.exited(world) }
    }

    fn post(&self, from: usize, to: usize, number: u64, message: Vec<u8>) -> io::Result<()> {
        fs::write(self.mail(from, to, number), message)
    }

    fn take(&self, from: usize, to: usize, number: u64) -> io::Result<Vec<u8>> {
        let path = self.mail(from, to, number);
        let message = fs::read(&path)?;
        fs::remove_file(&path)?;
        Ok(message)
    }

    fn subgroup(&self, id: u64, ranks: &[usize]) -> io::Result<(Arc<Board>, Box<dyn Medium>)> {
        let world = ranks.iter().map(|&rank| self.ranks[rank]).collect();
        let medium = LocalGroup { id, ranks: world, session: self.session.clone() };
        let board = Board::of_file(&open(&medium.board())?, ranks.len())?;
        Ok((Arc::new(board), Box::new(medium)))
    }

    fn all_joined(&self, rank: usize) {
        if rank == 0 {
            // The launcher removes what is left.
            let _ = fs::remove_file(self.board());
        }
    }
}

/// Joins the session that the environment names, if it names one.
pub(crate) fn from_environment(timeout: Duration) -> Result<Option<Worker>> {
    let Some(folder) = std::env::var_os(SESSION) else {
        let task = slurm::task(&|name| std::env::var(name).ok());
        let task = task.filter(|task| task.tasks > 1 && task.machines == Some(1));
        return task.map(|task| join_step(&task, timeout)).transpose();
    };
    let number = |name: &str| -> Result<usize> {
        let text = std::env::var(name).unwrap_or_default();
        text.parse().map_err(|_| {
            let message = format!("{name} is `{text}`, but {SESSION} is set: both are by `launch`");
            Error::new(ErrorKind::Workers, "workers", message)
        })
    };
    let (rank, size) = (number(RANK)?, number(WORKERS)?);
    if rank >= size {
        let message = format!("{RANK} is {rank} of {size} workers");
        return Err(Error::new(ErrorKind::Workers, "workers", message));
    }
    join(Path::new(&folder), rank, size, timeout, true).map(Some)
}

/// Joins the other tasks of a step of slurm, all of which are on this machine.
fn join_step(task: &SlurmTask, timeout: Duration) -> Result<Worker> {
    if task.rank >= task.tasks {
        let message = format!("SLURM_PROCID is {} of {} tasks", task.rank, task.tasks);
        return Err(Error::new(ErrorKind::Workers, "workers", message));
    }
    let name = format!("pullback-slurm-{}", task.step);
    let folder = create_session(&name, common).map_err(|error| {
        let message = format!("worker {} cannot make the folder of its step: {error}", task.rank);
        Error::new(ErrorKind::Workers, "workers", message)
    })?;
    join(&folder, task.rank, task.tasks, timeout, false)
}

/// Leaves the other tasks of slurm: who is the last removes their folder. Each unlocks its file
/// before it looks, so that one of them sees that all have.
pub(crate) fn leave() {
    let Some(session) = to_leave().take() else { return };
    // A failure to unlock leaves the folder.
    let _ = session.own.unlock();
    if session.workers.iter().all(ended) {
        // Another one may be removing it just now.
        let _ = fs::remove_dir_all(&session.folder);
    }
}

fn join(
    folder: &Path,
    rank: usize,
    size: usize,
    timeout: Duration,
    launched: bool,
) -> Result<Worker> {
    // Every session is a group of its own, of which the name is the number.
    let id = folder.file_name().map_or(0, |name| {
        name.as_encoded_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    });
    let opened = || -> io::Result<(Arc<Board>, LocalGroup)> {
        let session = Arc::new(Session::join(folder, rank, size, launched)?);
        let medium = LocalGroup { id, ranks: (0..size).collect(), session };
        let board = Board::of_file(&open(&medium.board())?, size)?;
        Ok((Arc::new(board), medium))
    };
    let (board, medium) = opened().map_err(|error| {
        let message = format!("worker {rank} cannot join {}: {error}", folder.display());
        Error::new(ErrorKind::Workers, "workers", message)
    })?;
    let session = medium.session.clone();
    let worker = Worker::join(id, rank, board, Box::new(medium), timeout, None)?;
    if !launched {
        // Not earlier: one that comes late must find what the others say.
        *to_leave() = Some(session);
    }
    Ok(worker)
}

/// A session, as seen by the launcher: removed when dropped.
pub(crate) struct NewSession {
    pub(crate) folder: PathBuf,
    _lock: File,
}

impl NewSession {
    /// A new folder: in `PULLBACK_SHARED`, or in memory if the system has a place for that.
    pub(crate) fn new() -> io::Result<NewSession> {
        let name = format!("pullback-{:016x}", RandomState::new().hash_one(std::process::id()));
        let folder = create_session(&name, create)?;
        let lock = open(&folder.join("launcher"))?;
        lock.lock()?;
        Ok(NewSession { folder, _lock: lock })
    }

    /// Messages that no worker has received: who sent them to whom.
    pub(crate) fn unread(&self) -> Vec<(String, String)> {
        let names = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let of = |name: String| {
            let mut words = name.strip_prefix("mail-")?.split('-').skip(1).map(str::to_string);
            Some((words.next()?, words.next()?))
        };
        names.filter_map(|entry| of(entry.file_name().into_string().ok()?)).collect()
    }

    /// Says how a worker ended, to those who wait for it.
    pub(crate) fn exited(&self, rank: usize, how: &str) -> io::Result<()> {
        // Written aside first: a reader sees all of it or nothing.
        let aside = self.folder.join(format!("exiting-{rank}"));
        fs::write(&aside, how)?;
        fs::rename(aside, self.folder.join(format!("exited-{rank}")))
    }
}

impl Drop for NewSession {
    fn drop(&mut self) {
        // A worker that is just being killed may still write: a second try gets that.
        if fs::remove_dir_all(&self.folder).is_err() && self.folder.exists() {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// Makes a folder for a session: in `PULLBACK_SHARED`, or in memory if the system has a place.
fn create_session(
    name: &str,
    create: impl Fn(&Path) -> io::Result<PathBuf>,
) -> io::Result<PathBuf> {
    let memory = Path::new("/dev/shm");
    match std::env::var_os(SHARED) {
        Some(place) => {
            let path = Path::new(&place).join(name);
            create(&path).map_err(|error| {
                let message = format!("{SHARED}: {} cannot be made: {error}", path.display());
                io::Error::new(error.kind(), message)
            })
        }
        None if memory.is_dir() => {
            create(&memory.join(name)).or_else(|_| create(&std::env::temp_dir().join(name)))
        }
        None => create(&std::env::temp_dir().join(name)),
    }
}

/// A folder that this user alone can read, made by whoever comes first. It has a name that others
/// can guess, so one that another user has made is refused.
fn common(path: &Path) -> io::Result<PathBuf> {
    match create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            #[cfg(unix)]
            {
                use std::os::unix::fs::MetadataExt;
                let found = fs::symlink_metadata(path)?;
                let own = found.uid() == nix::unistd::geteuid().as_raw();
                if !own || !found.is_dir() || found.mode() & 0o077 != 0 {
                    let message = format!("{} belongs to another user", path.display());
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
                }
            }
            Ok(path.to_path_buf())
        }
        made => made,
    }
}

/// A folder that this user alone can read.
fn create(path: &Path) -> io::Result<PathBuf> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)?;
    Ok(path.to_path_buf())
}
