//! Whether a request is one of ours.
//!
//! A page of another site can make a browser send requests to 127.0.0.1, and a name that it owns
//! can be pointed at 127.0.0.1 (DNS rebinding). The first is known by its `Origin`, which must be
//! the host that the request is for, the second by its `Host`, which must be the address that was
//! printed. A link to the page may be followed from anywhere: then the browser shows the page, and
//! the site that the link was on sees nothing of it. Answers are for the page alone.

use crate::error::{Answer, ExplorerError, ExplorerErrorKind};
use axum::http::{HeaderMap, Method, header};
use std::net::{IpAddr, SocketAddr};

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// The page, or a file of it.
    Page,
    /// An answer, or nothing that is here.
    Answer,
}

/// Checks where a request comes from and whom it is for.
///
/// # Errors
/// If it is not from the page that this server serves, or not for this server.
pub fn check(
    method: &Method,
    wanted: RequestKind,
    headers: &HeaderMap,
    address: SocketAddr,
) -> Answer {
    let refused = |message: String| Err(ExplorerError::new(ExplorerErrorKind::Refused, message));
    let text = |name: header::HeaderName| -> Answer<Option<String>> {
        let mut all = headers.get_all(&name).iter();
        match (all.next().map(|value| value.to_str()), all.next()) {
            (None, _) => Ok(None),
            (Some(Ok(value)), None) => Ok(Some(value.to_string())),
            _ => {
                let message = format!("the header {name} is invalid");
                Err(ExplorerError::new(ExplorerErrorKind::Refused, message))
            }
        }
    };
    let fetch = |name: &'static str| text(header::HeaderName::from_static(name));
    let Some(host) = text(header::HOST)? else {
        return refused("the request names no host".into());
    };
    if !is_ours(&host, address) {
        let host = printable(&host);
        return refused(format!("the request is for {host}, and this server is {address}"));
    }
    // Any number is ours where this listens everywhere, but only one of them served the page.
    if let Some(origin) = text(header::ORIGIN)?
        && !origin.strip_prefix("http://").is_some_and(|from| from.eq_ignore_ascii_case(&host))
    {
        return refused(format!("the request comes from {}", printable(&origin)));
    }
    let site = fetch("sec-fetch-site")?;
    let followed = wanted == RequestKind::Page
        && *method == Method::GET
        && fetch("sec-fetch-mode")?.as_deref() == Some("navigate")
        && fetch("sec-fetch-dest")?.as_deref() == Some("document");
    match site.as_deref() {
        None | Some("same-origin" | "none") => Ok(()),
        Some(_) if followed => Ok(()),
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

    fn answered(
        method: Method,
        wanted: RequestKind,
        at: SocketAddr,
        lines: &[(&str, &str)],
    ) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name: header::HeaderName = name.parse().expect("a name");
            headers.append(name, value.parse().expect("a value"));
        }
        check(&method, wanted, &headers, at).is_ok()
    }

    #[test]
    fn links_of_other_sites_lead_to_the_page_alone() {
        let here: SocketAddr = ([127, 0, 0, 1], 7878).into();
        let link = [
            ("host", "127.0.0.1:7878"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        assert!(answered(Method::GET, RequestKind::Page, here, &link));
        assert!(!answered(Method::GET, RequestKind::Answer, here, &link));
        assert!(!answered(Method::POST, RequestKind::Page, here, &link));
        // A frame, a script and a request of another site are no links that a user followed.
        for (place, value) in [(2, "no-cors"), (2, "cors"), (3, "iframe"), (3, "script")] {
            let mut other = link;
            other[place].1 = value;
            assert!(!answered(Method::GET, RequestKind::Page, here, &other), "{value}");
        }
        let mut rebound = link;
        rebound[0].1 = "evil.example:7878";
        assert!(!answered(Method::GET, RequestKind::Page, here, &rebound));
    }

    #[test]
    fn the_origin_is_the_host_of_the_request() {
        let everywhere: SocketAddr = ([0, 0, 0, 0], 7878).into();
        let host = ("host", "192.168.0.7:7878");
        let from = |origin: &str| {
            let lines = [host, ("origin", origin)];
            [RequestKind::Page, RequestKind::Answer]
                .map(|w| answered(Method::GET, w, everywhere, &lines))
        };
        assert_eq!(from("http://192.168.0.7:7878"), [true; 2]);
        for origin in [
            "http://192.168.0.8:7878",
            "http://127.0.0.1:7878",
            "http://localhost:7878",
            "https://192.168.0.7:7878",
            "http://192.168.0.7",
            "null",
            "",
        ] {
            assert_eq!(from(origin), [false; 2], "{origin}");
        }
    }
}
