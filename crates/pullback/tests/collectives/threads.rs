//! Workers that are threads of this process, and a board on which they leave what they send.

use pullback::{DType, Error, ErrorKind, Group, HostElement, Result};
use pullback_cpu::{Buffer, bytes_of, elements};
use pullback_ir::{Collective, CollectiveCall, Combination, Communicator, Spec};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Nothing here takes long: who waits this long waits for nothing.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Board {
    state: Mutex<BoardState>,
    changed: Condvar,
}

#[derive(Default)]
struct BoardState {
    /// By number of the call: what each worker brought, and how many have read it.
    rounds: HashMap<u64, (Vec<Option<Brought>>, usize)>,
    /// By sender and receiver: messages that wait.
    messages: HashMap<(usize, usize), Vec<Vec<u8>>>,
    groups: HashMap<(u64, Vec<usize>), Arc<Board>>,
    failed: Option<String>,
}

#[derive(Clone)]
struct Brought {
    what: String,
    bytes: Vec<u8>,
}

struct Worker {
    board: Arc<Board>,
    rank: usize,
    size: usize,
    /// How many calls of all workers together were made.
    rounds: Mutex<u64>,
    subgroups: Mutex<u64>,
}

/// Runs `f` on each of `n` workers, and returns what they returned, by rank.
pub fn workers<R: Send>(n: usize, f: impl Fn(&Group) -> R + Sync) -> Vec<R> {
    let board = Arc::<Board>::default();
    std::thread::scope(|scope| {
        let start = |rank| {
            let (f, board) = (&f, board.clone());
            scope.spawn(move || f(&Group::new(Arc::new(Worker::new(board, rank, n)))))
        };
        let all: Vec<_> = (0..n).map(start).collect();
        all.into_iter().map(|worker| worker.join().unwrap()).collect()
    })
}

impl Worker {
    fn new(board: Arc<Board>, rank: usize, size: usize) -> Worker {
        Worker { board, rank, size, rounds: Mutex::new(0), subgroups: Mutex::new(0) }
    }

    fn wait<R>(&self, mut ready: impl FnMut(&mut BoardState) -> Option<R>) -> Result<R> {
        let start = Instant::now();
        let mut state = self.board.state.lock().unwrap();
        loop {
            if let Some(why) = &state.failed {
                return Err(Error::new(ErrorKind::Workers, "threads", why.clone()));
            }
            if let Some(found) = ready(&mut state) {
                self.board.changed.notify_all();
                return Ok(found);
            }
            if start.elapsed() > LIMIT {
                state.failed = Some(format!("worker {} waited too long", self.rank));
            }
            state = self.board.changed.wait_timeout(state, LIMIT / 20).unwrap().0;
        }
    }

    /// What all workers brought to a call.
    fn exchange(&self, what: &str, input: &[u8]) -> Result<Vec<Vec<u8>>> {
        let number = {
            let mut rounds = self.rounds.lock().unwrap();
            *rounds += 1;
            *rounds
        };
        let mine = Brought { what: what.to_string(), bytes: input.to_vec() };
        let (rank, size) = (self.rank, self.size);
        {
            let mut state = self.board.state.lock().unwrap();
            let round = state.rounds.entry(number).or_insert_with(|| (vec![None; size], 0));
            round.0[rank] = Some(mine);
            let different = round.0.iter().flatten().find(|other| other.what != what);
            if let Some(other) = different.map(|other| other.what.clone()) {
                state.failed = Some(format!("one worker calls {what}, another {other}"));
            }
            self.board.changed.notify_all();
        }
        self.wait(|state| {
            let (brought, read) = state.rounds.get_mut(&number)?;
            let all: Option<Vec<Vec<u8>>> =
                brought.iter().map(|b| b.as_ref().map(|b| b.bytes.clone())).collect();
            let all = all?;
            *read += 1;
            if *read == size {
                state.rounds.remove(&number);
            }
            Some(all)
        })
    }
}

impl Communicator for Worker {
    fn id(&self) -> u64 {
        Arc::as_ptr(&self.board) as u64
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn engine(&self) -> &'static str {
        "threads"
    }

    fn run(&self, call: &CollectiveCall<'_>, input: &[u8], output: &mut [u8]) -> Result<()> {
        let (rank, n) = (self.rank, input.len());
        match call.collective {
            Collective::Send { to } => {
                let mut state = self.board.state.lock().unwrap();
                state.messages.entry((rank, *to)).or_default().push(input.to_vec());
                self.board.changed.notify_all();
                return Ok(());
            }
            Collective::Recv { from, .. } => {
                let next = |state: &mut BoardState| {
                    let waiting = state.messages.get_mut(&(*from, rank))?;
                    (!waiting.is_empty()).then(|| waiting.remove(0))
                };
                let message = self.wait(next)?;
                if message.len() != output.len() {
                    return Err(Error::new(ErrorKind::Workers, "recv", "another length was sent"));
                }
                output.copy_from_slice(&message);
                return Ok(());
            }
            _ => {}
        }
        let what = format!("{:?} of {}", call.collective, call.operand);
        let all = self.exchange(&what, input)?;
        let sum = || combined(&all, call.operand, Combination::Sum);
        match call.collective {
            Collective::AllReduce(how) => {
                output.copy_from_slice(&combined(&all, call.operand, *how));
            }
            Collective::AllGather => output.copy_from_slice(&all.concat()),
            Collective::ReduceScatter => {
                let part = n / self.size;
                output.copy_from_slice(&sum()[rank * part..(rank + 1) * part]);
            }
            Collective::Broadcast { root } => output.copy_from_slice(&all[*root]),
            Collective::AllToAll => {
                let part = n / self.size;
                let mine = all.iter().map(|x| &x[rank * part..(rank + 1) * part]);
                output.copy_from_slice(&mine.collect::<Vec<_>>().concat());
            }
            Collective::Barrier => {}
            Collective::Send { .. } | Collective::Recv { .. } => unreachable!(),
        }
        Ok(())
    }

    fn subgroup(&self, ranks: &[usize]) -> Result<Option<Arc<dyn Communicator>>> {
        let number = {
            let mut made = self.subgroups.lock().unwrap();
            *made += 1;
            *made
        };
        let Some(rank) = ranks.iter().position(|&r| r == self.rank) else { return Ok(None) };
        let mut state = self.board.state.lock().unwrap();
        let board = state.groups.entry((number, ranks.to_vec())).or_default().clone();
        Ok(Some(Arc::new(Worker::new(board, rank, ranks.len()))))
    }
}

/// The elements of all workers combined, in pairs of neighbours.
fn combined(all: &[Vec<u8>], spec: &Spec, how: Combination) -> Vec<u8> {
    match spec.dtype {
        DType::F64 => by_pairs::<f64>(all, |a, b| float(a, b, how)),
        DType::F32 => by_pairs::<f32>(all, |a, b| float(a.into(), b.into(), how) as f32),
        DType::BF16 => by_pairs::<pullback::bf16>(all, |a, b| {
            pullback::bf16::from_f64(float(a.to_f64(), b.to_f64(), how))
        }),
        DType::F16 => by_pairs::<pullback::f16>(all, |a, b| {
            pullback::f16::from_f64(float(a.to_f64(), b.to_f64(), how))
        }),
        DType::I64 => by_pairs::<i64>(all, |a, b| integer(a, b, how)),
        DType::I32 => by_pairs::<i32>(all, |a, b| integer(a.into(), b.into(), how) as i32),
        DType::U8 => by_pairs::<u8>(all, |a, b| integer(a.into(), b.into(), how) as u8),
        DType::Bool => unreachable!("refused"),
    }
}

fn float(a: f64, b: f64, how: Combination) -> f64 {
    match how {
        Combination::Sum => a + b,
        _ if a.is_nan() || b.is_nan() => f64::NAN,
        Combination::Max => a.max(b),
        Combination::Min => a.min(b),
    }
}

fn integer(a: i64, b: i64, how: Combination) -> i64 {
    match how {
        Combination::Sum => a.wrapping_add(b),
        Combination::Max => a.max(b),
        Combination::Min => a.min(b),
    }
}

fn by_pairs<T: HostElement + Copy>(all: &[Vec<u8>], f: impl Fn(T, T) -> T) -> Vec<u8> {
    // Buffers are aligned, lists of bytes need not be.
    let values = |bytes: &Vec<u8>| {
        let buffer = Buffer::from_slice(bytes).unwrap();
        elements::<T>(T::DTYPE, buffer.slice(0, bytes.len()).unwrap()).unwrap().to_vec()
    };
    let mut left: Vec<Vec<T>> = all.iter().map(values).collect();
    while left.len() > 1 {
        let pair = |pair: &[Vec<T>]| match pair {
            [a, b] => a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect(),
            [a] => a.clone(),
            _ => unreachable!(),
        };
        left = left.chunks(2).map(pair).collect();
    }
    bytes_of(&left[0]).to_vec()
}
