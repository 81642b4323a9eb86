//! The explorer over a real socket: its answers, and what it does with requests that mean harm.

#[path = "explorer/answers.rs"]
mod answers;
#[path = "explorer/hostile.rs"]
mod hostile;
#[path = "explorer/limits.rs"]
mod limits;
#[path = "explorer/programs.rs"]
mod programs;
#[path = "explorer/recordings.rs"]
mod recordings;
#[path = "explorer/runs.rs"]
mod runs;
#[path = "explorer/slow.rs"]
mod slow;

use pullback_explore::answer::start::{EXAMPLES, values_of};
use pullback_explore::server::Server;
use pullback_explore::{Explorer, Subject};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// What a server sent.
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The head, in small letters.
    pub head: String,
    /// The body.
    pub body: Vec<u8>,
}

impl Reply {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("an answer is JSON")
    }

    /// The kind of the error that it is.
    pub fn problem(&self) -> (u16, String) {
        let answer = self.json();
        assert_eq!(answer["schema"], 1);
        let message = answer["error"]["message"].as_str().expect("a sentence");
        assert!(message.len() > 10, "{message}");
        (self.status, answer["error"]["kind"].as_str().expect("a kind").to_string())
    }
}

/// Starts a server; it runs until the test process ends.
pub fn serve(subject: Subject) -> SocketAddr {
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let server = Server::bind(Explorer::new(subject), here, 0).expect("a free port");
    let address = server.address();
    std::thread::spawn(move || server.run(std::future::pending()));
    address
}

/// The expression that is there without arguments.
pub fn default_subject() -> Subject {
    Subject::Expression {
        text: EXAMPLES[0].expression.to_string(),
        values: values_of(&EXAMPLES[0]),
    }
}

/// Sends bytes and reads all that comes back.
pub fn raw(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("the server is up");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    // The server may close before all is sent.
    let _ = stream.write_all(bytes);
    let mut out = Vec::new();
    let _ = stream.read_to_end(&mut out);
    out
}

/// Sends a request with these lines in its head.
pub fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    lines: &[(&str, &str)],
    body: &[u8],
) -> Reply {
    let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !lines.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        head += &format!("Host: {address}\r\n");
    }
    for (name, value) in lines {
        head += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() || method == "POST" {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    let bytes = raw(address, &[head.as_bytes(), b"\r\n", body].concat());
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8_lossy(&bytes[..end]).to_string();
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    Reply { status, head: head.to_ascii_lowercase(), body: bytes[end + 4..].to_vec() }
}

/// A request without a body.
pub fn get(address: SocketAddr, path: &str) -> Reply {
    request(address, "GET", path, &[], b"")
}

/// A request with a body.
pub fn post(address: SocketAddr, path: &str, body: &Value) -> Reply {
    let body = body.to_string();
    request(address, "POST", path, &[("Content-Type", "application/json")], body.as_bytes())
}
