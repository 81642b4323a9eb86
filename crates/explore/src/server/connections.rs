//! Open connections: how many there may be, and how long one may take to send a request.
//!
//! A client that sends its request byte by byte, or never, or does not read its answer, takes a
//! connection and nothing else. It is closed when the request is not complete after
//! [`ServerLimits::reading`], or when nothing could be written for as long. Where all connections
//! are taken, a new one takes the place of the oldest that waits for a request: so nobody is locked
//! out by those who ask nothing. A connection whose request is being computed is never closed for
//! this; fewer computations are admitted than there are connections.

use super::ServerLimits;
use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep};

/// A listener whose connections are limited.
pub struct Gate {
    listener: TcpListener,
    limits: ServerLimits,
    /// Those that are open, the oldest first.
    open: Vec<Weak<Connection>>,
}

/// An open connection.
struct Connection(Mutex<ConnectionState>);

/// The connection that a request came by.
#[derive(Clone)]
pub struct Client(Arc<Connection>);

impl Client {
    /// Its request is complete, and is being computed until this is dropped.
    pub fn computing(&self) -> Computing {
        self.0.lock().waiting = None;
        Computing(self.0.clone())
    }
}

struct ConnectionState {
    /// Since when a request or the rest of one is waited for; nothing while one is computed.
    waiting: Option<Instant>,
    closed: bool,
    reader: Option<Waker>,
}

impl Connection {
    fn lock(&self) -> MutexGuard<'_, ConnectionState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes it if it waits for a request.
    fn close_if_waiting(&self) -> bool {
        let mut state = self.lock();
        if state.waiting.is_none() {
            return false;
        }
        state.closed = true;
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
        true
    }
}

/// A request is being computed.
pub struct Computing(Arc<Connection>);

impl Drop for Computing {
    fn drop(&mut self) {
        self.0.lock().waiting = Some(Instant::now());
    }
}

impl Gate {
    pub fn new(listener: TcpListener, limits: ServerLimits) -> Gate {
        Gate { listener, limits, open: Vec::new() }
    }

    /// Notes a connection, in the place of the oldest that waits if there are too many.
    fn admit(&mut self, connection: &Arc<Connection>) {
        self.open.retain(|one| one.strong_count() > 0);
        if self.open.len() >= self.limits.connections {
            let waits =
                |one: &Weak<Connection>| one.upgrade().is_some_and(|one| one.close_if_waiting());
            if let Some(oldest) = self.open.iter().position(waits) {
                self.open.remove(oldest);
            }
        }
        self.open.push(Arc::downgrade(connection));
    }
}

impl Listener for Gate {
    type Io = GuardedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (GuardedStream, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, from)) => {
                    let waiting = Some(Instant::now());
                    let state = ConnectionState { waiting, closed: false, reader: None };
                    let connection = Arc::new(Connection(Mutex::new(state)));
                    self.admit(&connection);
                    let limit = self.limits.reading;
                    let timers = [(); 2].map(|()| Box::pin(tokio::time::sleep(limit)));
                    let [reads, writes] = timers;
                    let stalled = None;
                    let io = GuardedStream { stream, connection, limit, reads, writes, stalled };
                    return (io, from);
                }
                // There may be no more file descriptors for a while.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Connected<IncomingStream<'_, Gate>> for Client {
    fn connect_info(stream: IncomingStream<'_, Gate>) -> Client {
        Client(stream.io().connection.clone())
    }
}

/// A stream that ends when its client takes too long.
pub struct GuardedStream {
    stream: TcpStream,
    connection: Arc<Connection>,
    limit: Duration,
    reads: Pin<Box<Sleep>>,
    writes: Pin<Box<Sleep>>,
    /// Since when nothing could be written.
    stalled: Option<Instant>,
}

/// Whether this much time has passed; if not, the task is woken when it has.
fn is_over(timer: &mut Pin<Box<Sleep>>, at: Instant, context: &mut Context<'_>) -> bool {
    if timer.deadline() != at {
        timer.as_mut().reset(at);
    }
    timer.as_mut().poll(context).is_ready()
}

fn late<T>() -> Poll<io::Result<T>> {
    Poll::Ready(Err(io::Error::new(ErrorKind::TimedOut, "the client takes too long")))
}

impl AsyncRead for GuardedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let waiting = {
            let mut state = this.connection.lock();
            if state.closed {
                return late();
            }
            state.reader = Some(context.waker().clone());
            state.waiting
        };
        // Before reading: there is always a byte to be read from a client that sends one by one.
        if let Some(since) = waiting
            && is_over(&mut this.reads, since + this.limit, context)
        {
            return late();
        }
        Pin::new(&mut this.stream).poll_read(context, into)
    }
}

impl GuardedStream {
    fn written<T>(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.stalled = None;
            let mut state = self.connection.lock();
            // The time for the next request begins when the answer has left.
            if state.waiting.is_some() {
                state.waiting = Some(Instant::now());
            }
            return outcome;
        }
        let since = *self.stalled.get_or_insert_with(Instant::now);
        match is_over(&mut self.writes, since + self.limit, context) {
            true => late(),
            false => Poll::Pending,
        }
    }
}

impl AsyncWrite for GuardedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.written(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
