//! Clients that are slow, or many: each is limited, and others are answered meanwhile.

use super::{default_subject, get, post, request};
use pullback_explore::Explorer;
use pullback_explore::server::{RUNNING, Server, ServerLimits, WAITING};
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const READING: Duration = Duration::from_millis(400);

fn serve(connections: usize) -> SocketAddr {
    let computing = Duration::from_millis(300);
    serve_within(ServerLimits { computing, reading: READING, connections })
}

fn serve_within(limits: ServerLimits) -> SocketAddr {
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let explorer = Explorer::new(default_subject());
    let server = Server::limited(explorer, here, 0, limits).expect("a free port");
    let address = server.address();
    std::thread::spawn(move || server.run(std::future::pending()));
    address
}

fn is_up(address: SocketAddr) {
    let body = json!({ "expression": "x^2", "values": { "x": 3 } });
    let tape = post(address, "/api/expression", &body).json();
    assert_eq!(tape["sweep"]["gradient"][0]["value"]["data"], 6.0);
}

/// Sends a byte now and then until the server closes the connection; how long that took.
fn drip(address: SocketAddr, start: &str, every: Duration) -> Duration {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(address).expect("the server is up");
    stream.set_read_timeout(Some(every)).expect("a timeout");
    stream.write_all(start.as_bytes()).expect("sent");
    while begun.elapsed() < Duration::from_secs(30) {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(0) => break,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            _ if stream.write_all(b"a").is_err() => break,
            _ => {}
        }
    }
    begun.elapsed()
}

#[test]
fn a_head_or_a_body_that_never_ends() {
    let address = serve(16);
    let body = format!(
        "POST /api/expression HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    );
    let head = "GET / HTTP/1.1\r\nX: ".to_string();
    let slow = [head, body, String::new()]
        .map(|start| std::thread::spawn(move || drip(address, &start, Duration::from_millis(50))));
    is_up(address);
    for one in slow {
        let took = one.join().expect("it ended");
        assert!(took >= READING && took < Duration::from_secs(20), "{took:?}");
    }
    is_up(address);
}

#[test]
fn who_asks_nothing_locks_nobody_out() {
    let address = serve(4);
    let idle: Vec<TcpStream> =
        (0..64).map(|_| TcpStream::connect(address).expect("the server is up")).collect();
    for _ in 0..8 {
        is_up(address);
    }
    // Those in whose place others came are closed.
    let closed = idle.iter().filter(|stream| {
        stream.set_read_timeout(Some(Duration::from_millis(1))).expect("a timeout");
        matches!((&mut &**stream).read(&mut [0]), Ok(0))
            || matches!((&mut &**stream).read(&mut [0]), Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset)
    });
    assert!(closed.count() >= 48, "connections are limited");
    is_up(address);
}

/// The answer is never read: the server gives up writing it.
#[test]
fn an_answer_that_nobody_reads() {
    let address = serve(16);
    let mut stream = TcpStream::connect(address).expect("the server is up");
    let ask = format!("GET /app.js HTTP/1.1\r\nHost: {address}\r\n\r\n");
    // More answers than the buffers of both sides hold.
    let mut sent = 0;
    stream.set_write_timeout(Some(READING)).expect("a timeout");
    while sent < 200 && stream.write_all(ask.as_bytes()).is_ok() {
        sent += 1;
    }
    std::thread::sleep(3 * READING);
    is_up(address);
    // What had been written is still here; then there is nothing.
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let mut got = Vec::new();
    let _ = stream.read_to_end(&mut got);
    assert!(got.len() < sent * 200_000, "{} bytes for {sent} requests", got.len());
}

#[test]
fn a_computation_that_takes_too_long() {
    let address = serve(16);
    let long = json!({ "points": vec![[64, 64]; 32] });
    let begun = Instant::now();
    let reply = post(address, "/api/cost", &long);
    assert_eq!(reply.problem(), (503, "time".into()));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    is_up(address);
}

/// Four are computed at a time, 32 wait, and the others are told so at once.
#[test]
fn more_than_may_wait() {
    // However busy the machine is, none of them takes too long.
    let computing = Duration::from_secs(600);
    let address =
        serve_within(ServerLimits { computing, connections: 200, ..ServerLimits::default() });
    let asked: Vec<_> = (0..60)
        .map(|_| {
            let slow = json!({ "points": vec![[64, 64]; 4] });
            std::thread::spawn(move || post(address, "/api/cost", &slow))
        })
        .collect();
    let replies: Vec<super::Reply> = asked.into_iter().map(|t| t.join().expect("sent")).collect();
    let refused: Vec<_> = replies.iter().filter(|reply| reply.status != 200).collect();
    assert!((1..=60 - RUNNING - WAITING).contains(&refused.len()), "{}", refused.len());
    for reply in refused {
        assert_eq!(reply.problem(), (503, "busy".into()));
    }
    is_up(address);
}

/// What the tests above make shorter is, for users, as SCHEMA.md says.
#[test]
fn limits_are_those_of_the_schema() {
    let ServerLimits { computing, reading, connections } = ServerLimits::default();
    let text = include_str!("../../SCHEMA.md").split_whitespace().collect::<Vec<_>>().join(" ");
    for sentence in [
        format!("A computation gets {} seconds", computing.as_secs()),
        format!("at most {RUNNING} run at a time, more than {WAITING} waiting get 503"),
        format!("not complete after {} seconds", reading.as_secs()),
        format!("At most {connections} are open"),
    ] {
        assert!(text.contains(&sentence), "SCHEMA.md does not say: {sentence}");
    }
}

#[test]
fn heads_and_addresses_that_are_too_long() {
    let address = serve(16);
    let long = "a".repeat(1 << 20);
    let reply = super::raw(address, format!("GET /{long} HTTP/1.1\r\n\r\n").as_bytes());
    let text = String::from_utf8_lossy(&reply[..reply.len().min(40)]).to_string();
    assert!(reply.is_empty() || text.contains(" 4"), "{text}");
    let many: Vec<(String, String)> =
        (0..500).map(|i| (format!("X-{i}"), "a".to_string())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(n, v)| (&n[..], &v[..])).collect();
    assert_eq!(request(address, "GET", "/", &many, b"").status, 431);
    assert_eq!(get(address, "/").status, 200);
    is_up(address);
}
