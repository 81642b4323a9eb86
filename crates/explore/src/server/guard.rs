//! Whether a request is one of ours.
//!
//! A page of another site can make a browser send requests to 127.0.0.1, and a name that it owns can
//! be pointed at 127.0.0.1 (DNS rebinding). The first is known by its `Origin`, the second by its
//! `Host`: both must be the address that was printed.

use crate::problem::{Answer, Problem, ProblemKind};
use axum::http::{HeaderMap, header};
use std::net::{IpAddr, SocketAddr};

/// Checks where a request comes from and whom it is for.
///
/// # Errors
/// If it is not from the page that this server serves, or not for this server.
pub fn check(headers: &HeaderMap, address: SocketAddr) -> Answer {
    let refused = |message: String| Err(Problem::new(ProblemKind::Refused, message));
    let text = |name: header::HeaderName| -> Answer<Option<String>> {
        let mut all = headers.get_all(&name).iter();
        match (all.next().map(|value| value.to_str()), all.next()) {
            (None, _) => Ok(None),
            (Some(Ok(value)), None) => Ok(Some(value.to_string())),
            _ => {
                let message = format!("the header {name} is invalid");
                Err(Problem::new(ProblemKind::Refused, message))
            }
        }
    };
    match text(header::HOST)? {
        Some(host) if is_ours(&host, address) => {}
        Some(host) => {
            return refused(format!(
                "the request is for {}, and this server is {address}",
                printable(&host)
            ));
        }
        None => return refused("the request names no host".into()),
    }
    if let Some(origin) = text(header::ORIGIN)? {
        let host = origin.strip_prefix("http://");
        if !host.is_some_and(|host| is_ours(host, address)) {
            return refused(format!("the request comes from {}", printable(&origin)));
        }
    }
    let site = text(header::HeaderName::from_static("sec-fetch-site"))?;
    match site.as_deref() {
        None | Some("same-origin" | "none") => Ok(()),
        Some(site) => refused(format!("the request comes from another site ({})", printable(site))),
    }
}

/// Whether `host:port` is where this listens: the address itself, or `localhost` where that is this
/// machine. An address that listens everywhere is known by any number, but by no name.
fn is_ours(host: &str, address: SocketAddr) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !name.ends_with(':') && port.parse::<u16>().is_ok() => {
            (name, port.parse().unwrap_or(80))
        }
        _ => (host, 80),
    };
    if port != address.port() {
        return false;
    }
    let local = address.ip().is_loopback() || address.ip().is_unspecified();
    if name.eq_ignore_ascii_case("localhost") {
        return local;
    }
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    match bare.parse::<IpAddr>() {
        Ok(ip) => ip == address.ip() || address.ip().is_unspecified(),
        Err(_) => false,
    }
}

/// A text of a stranger, short and without control characters.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_printed_address_is_ours() {
        let here: SocketAddr = ([127, 0, 0, 1], 7878).into();
        for host in ["127.0.0.1:7878", "localhost:7878", "LOCALHOST:7878"] {
            assert!(is_ours(host, here), "{host}");
        }
        for host in [
            "127.0.0.1",
            "127.0.0.1:80",
            "evil.example:7878",
            "127.0.0.1.evil.example:7878",
            "",
            "localhost.evil.example:7878",
            "[::1]:7878",
            ":7878",
            "127.0.0.1:78780",
            "0.0.0.0:7878",
        ] {
            assert!(!is_ours(host, here), "{host}");
        }
        let six: SocketAddr = "[::1]:7878".parse().expect("an address");
        assert!(is_ours("[::1]:7878", six) && is_ours("localhost:7878", six));
        let everywhere: SocketAddr = ([0, 0, 0, 0], 7878).into();
        assert!(is_ours("192.168.0.7:7878", everywhere));
        assert!(!is_ours("evil.example:7878", everywhere));
    }
}
