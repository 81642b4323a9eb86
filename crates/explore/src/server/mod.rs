//! The server of the page and of the answers.
//!
//! A request is checked before anything is computed (`guard.rs`): where it comes from, its method,
//! type and length. Then it is computed on a thread of its own, at most [`RUNNING`] at a time,
//! while this one keeps answering; what takes longer than [`ServerLimits::computing`] is answered
//! without a result, and its thread ends by itself, as the sizes of everything that can be
//! requested are limited. Clients that are slow, or many, are limited too (`connections.rs`).
//!
//! There is one listener, on the address that the user named, and no file is ever opened for a
//! request but those of the run folder that was named on the command line.

mod connections;
mod guard;

use crate::assets::{self, Asset, compressed};
use crate::error::{Answer, ExplorerError, ExplorerErrorKind};
use crate::explorer::Explorer;
use crate::page;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::Response;
use connections::{Client, Gate};
use guard::RequestKind;
use serde_json::Value;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};

/// Bytes of a body, at most.
pub const BODY: usize = 64 << 10;
/// Computations at a time.
pub const RUNNING: usize = 4;
/// Requests that may wait for one to end.
pub const WAITING: usize = 32;

/// What a client may take of the server.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// How long a request may be computed.
    pub computing: Duration,
    /// How long a connection may take to send a whole request.
    pub reading: Duration,
    /// Connections that are open at a time.
    pub connections: usize,
}

impl Default for ServerLimits {
    fn default() -> ServerLimits {
        ServerLimits {
            computing: Duration::from_secs(20),
            reading: Duration::from_secs(10),
            connections: 2 * (RUNNING + WAITING),
        }
    }
}

/// The policy of the served page.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

struct ServerState {
    explorer: Explorer,
    assets: Vec<Asset>,
    /// Where this listens: requests for another host are not for us.
    address: SocketAddr,
    running: Semaphore,
    /// Those that run and those that wait.
    admitted: Semaphore,
    limits: ServerLimits,
}

/// A server that listens, and does not answer yet.
pub struct Server {
    listener: TcpListener,
    shared: Arc<ServerState>,
}

impl Server {
    /// Listens on an address; port 0 is any that is free.
    ///
    /// # Errors
    /// If the address is in use, or not one of this machine.
    pub fn bind(explorer: Explorer, host: IpAddr, port: u16) -> std::io::Result<Server> {
        Server::limited(explorer, host, port, ServerLimits::default())
    }

    /// The same, with limits of its own.
    ///
    /// # Errors
    /// As [`Server::bind`].
    pub fn limited(
        explorer: Explorer,
        host: IpAddr,
        port: u16,
        limits: ServerLimits,
    ) -> std::io::Result<Server> {
        let listener = TcpListener::bind((host, port))?;
        listener.set_nonblocking(true)?;
        let assets = assets::all(page::served(&explorer));
        let shared = Arc::new(ServerState {
            explorer,
            assets,
            address: listener.local_addr()?,
            running: Semaphore::new(RUNNING),
            admitted: Semaphore::new(RUNNING + WAITING),
            limits,
        });
        Ok(Server { listener, shared })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Answers requests until `stop` is done.
    ///
    /// # Errors
    /// If the system refuses to serve.
    pub fn run(self, stop: impl Future<Output = ()> + Send + 'static) -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let served = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(self.listener)?;
            let gate = Gate::new(listener, self.shared.limits);
            let routes = Router::new().fallback(answer).with_state(self.shared);
            let routes = routes.into_make_service_with_connect_info::<Client>();
            tokio::select! {
                ended = async { axum::serve(gate, routes).await } => ended,
                () = stop => Ok(()),
            }
        });
        // What still computes is not waited for.
        runtime.shutdown_background();
        served
    }
}

async fn answer(
    State(shared): State<Arc<ServerState>>,
    ConnectInfo(client): ConnectInfo<Client>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let zipped = accepts_gzip(&parts.headers);
    let path = parts.uri.path().to_string();
    let asset = shared.assets.iter().find(|asset| asset.path == path);
    let wanted = if asset.is_some() { RequestKind::Page } else { RequestKind::Answer };
    if let Err(problem) = guard::check(&parts.method, wanted, &parts.headers, shared.address) {
        return refused(&problem, zipped);
    }
    if let Some(asset) = asset {
        return match parts.method {
            Method::GET | Method::HEAD => file(asset, zipped),
            _ => {
                let message = format!("{path} takes GET, not {}", parts.method);
                refused(&ExplorerError::new(ExplorerErrorKind::Method, message), zipped)
            }
        };
    }
    // A body that never ends is no computation: its connection is closed.
    let body = match read(&parts.method, &parts.headers, body).await {
        Ok(body) => body,
        Err(problem) => return refused(&problem, zipped),
    };
    let _computing = client.computing();
    let query = parts.uri.query().unwrap_or_default().to_string();
    let most = shared.limits.computing;
    let timed = tokio::time::timeout(most, computed(shared, parts.method, path, query, body));
    let late = || {
        let message = format!("this took more than {most:?}, and was given up");
        Err(ExplorerError::new(ExplorerErrorKind::Time, message))
    };
    match timed.await.unwrap_or_else(|_| late()) {
        Ok(bytes) => json(StatusCode::OK, bytes, zipped),
        Err(problem) => refused(&problem, zipped),
    }
}

/// Computes the answer of a request on another thread.
async fn computed(
    shared: Arc<ServerState>,
    method: Method,
    path: String,
    query: String,
    body: Value,
) -> Answer<Vec<u8>> {
    let busy =
        || ExplorerError::new(ExplorerErrorKind::Busy, "too many requests are being computed");
    let (done, result) = oneshot::channel();
    let admitted = shared.clone();
    // The permit of those that wait is held by this future, that of those that run by the thread.
    let _waits = admitted.admitted.try_acquire().map_err(|_| busy())?;
    let permit = shared.running.acquire().await.map_err(|_| busy())?;
    permit.forget();
    let worker = shared.clone();
    let work = move || {
        let outcome = worker.explorer.respond(method.as_str(), &path, &query, &body);
        worker.running.add_permits(1);
        // The client may be gone.
        let _ = done.send(outcome.map(|answer| answer.to_string().into_bytes()));
    };
    if std::thread::Builder::new().stack_size(16 << 20).spawn(work).is_err() {
        shared.running.add_permits(1);
        return Err(busy());
    }
    let lost = || {
        ExplorerError::new(ExplorerErrorKind::Internal, "the computation ended without a result")
    };
    result.await.unwrap_or_else(|_| Err(lost()))
}

/// The body of a request, as JSON.
async fn read(method: &Method, headers: &HeaderMap, body: Body) -> Answer<Value> {
    if *method != Method::POST {
        return Ok(Value::Null);
    }
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
    if !kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
        let message = "the body must have the type application/json";
        return Err(ExplorerError::new(ExplorerErrorKind::Type, message));
    }
    let large = || {
        let message = format!("a body has at most {BODY} bytes");
        ExplorerError::new(ExplorerErrorKind::Large, message)
    };
    let bytes: Bytes = to_bytes(body, BODY).await.map_err(|_| large())?;
    parse(&bytes)
}

/// A body as JSON: an object.
///
/// # Errors
/// If it is something else.
pub fn parse(bytes: &[u8]) -> Answer<Value> {
    match serde_json::from_slice(bytes) {
        Ok(body @ Value::Object(_)) => Ok(body),
        Ok(_) => Err(ExplorerError::request("the body must be a JSON object")),
        Err(error) => Err(ExplorerError::request(format!("the body is not JSON: {error}"))),
    }
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT_ENCODING).iter();
    accepted.filter_map(|value| value.to_str().ok()).any(|value| value.contains("gzip"))
}

fn status(kind: ExplorerErrorKind) -> StatusCode {
    match kind {
        ExplorerErrorKind::Refused => StatusCode::FORBIDDEN,
        ExplorerErrorKind::NotFound => StatusCode::NOT_FOUND,
        ExplorerErrorKind::Method => StatusCode::METHOD_NOT_ALLOWED,
        ExplorerErrorKind::Large => StatusCode::PAYLOAD_TOO_LARGE,
        ExplorerErrorKind::Type => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ExplorerErrorKind::Time | ExplorerErrorKind::Busy => StatusCode::SERVICE_UNAVAILABLE,
        ExplorerErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        ExplorerErrorKind::Expression
        | ExplorerErrorKind::Request
        | ExplorerErrorKind::Limit
        | ExplorerErrorKind::Engine
        | ExplorerErrorKind::File => StatusCode::BAD_REQUEST,
    }
}

fn refused(problem: &ExplorerError, zipped: bool) -> Response {
    let mut response =
        json(status(problem.kind), problem.to_json().to_string().into_bytes(), zipped);
    if problem.kind == ExplorerErrorKind::Method {
        let allowed = if problem.message.contains("takes POST") { "POST" } else { "GET" };
        response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static(allowed));
    }
    response
}

fn json(status: StatusCode, bytes: Vec<u8>, zipped: bool) -> Response {
    // Small answers gain nothing.
    let zipped = zipped && bytes.len() > 1400;
    let bytes = if zipped { compressed(&bytes) } else { bytes };
    respond(status, "application/json", bytes, zipped)
}

fn file(asset: &Asset, zipped: bool) -> Response {
    let bytes = if zipped { asset.gzip.clone() } else { asset.plain.clone().into_owned() };
    respond(StatusCode::OK, asset.kind, bytes, zipped)
}

fn respond(status: StatusCode, kind: &'static str, bytes: Vec<u8>, zipped: bool) -> Response {
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    let mut set = |name, value| {
        response.headers_mut().insert(name, header::HeaderValue::from_static(value));
    };
    set(header::CONTENT_TYPE, kind);
    set(header::CACHE_CONTROL, "no-store");
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::X_FRAME_OPTIONS, "DENY");
    set(header::REFERRER_POLICY, "no-referrer");
    set(header::VARY, "accept-encoding, origin");
    set(header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    set(header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    if zipped {
        set(header::CONTENT_ENCODING, "gzip");
    }
    response
}
